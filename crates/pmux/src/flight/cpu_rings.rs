//! The rings that are overwritten, CPU by CPU.
//!
//! What it is: what samples on a CPU is led into that CPU's newest ring. Where a span is to be kept and a ring turns out too small for
//! it, a larger one takes over: each event changes from one to the other between two of its records, and the old ring is looked at
//! until nothing in it is young enough any more. Read first: [`CpuRings`].
//!
//! **Invariant:** no writer is ever stopped. How much is kept is observed, not assumed.

use super::copy::Copies;
use super::marks::Marks;
use super::{Keeping, Lasted, RingSpan};
use crate::error::Error;
use crate::ring_owner::{RingOwner, is_too_large, pages};
use crate::session::Session;
use crate::units::nanos;
use pmux_engine::{CpuId, EventId};
use pmux_linux::affinity::{CpuVisitor, Placement};
use pmux_linux::ring::{BackwardRing, Writers};
use std::collections::HashMap;
use std::time::Duration;

/// Bytes of a ring at first, where a span is to be kept.
const FIRST_BYTES: u64 = 1 << 20;
/// The smallest ring that is tried where larger ones are not allowed.
const LEAST_BYTES: u64 = 32 << 10;
/// How long a ring is watched before it is said to be too small.
const WATCHED_NS: u64 = 1_000_000_000;
/// A ring gets smaller where for so many times the time that is kept, and at least so long, no more than one part in so many was needed.
const LONG_SPANS: u64 = 10;
const LONG_NS: u64 = 300_000_000_000;
const MUCH: u64 = 8;
const WHAT: &str = "mapping a ring that keeps the newest records";

/// One ring, and what is known of it.
struct KeptRing {
    ring_owner: RingOwner<BackwardRing>,
    number: u64,
    begun_ns: u64,
    marks: Marks,
    /// How many bytes had been written when the last snapshot ended.
    snapshot_bytes: Option<u64>,
    /// Since when nothing is written into it any more.
    retired_ns: Option<u64>,
}

impl KeptRing {
    /// How many bytes the time that is kept takes, a quarter more than it was at its fastest as far back as the ring reaches; `None` as
    /// long as too little is known.
    fn needed(&self, span_ns: u64, now_ns: u64) -> Option<u64> {
        let (bytes, within_ns) = self.marks.fastest(WATCHED_NS, now_ns)?;
        let needed = u128::from(bytes) * u128::from(span_ns) * 5 / (u128::from(within_ns) * 4);
        Some(u64::try_from(needed).unwrap_or(u64::MAX))
    }
}

/// The rings of a CPU, the newest one last.
struct CpuRing {
    cpu: CpuId,
    events: Vec<EventId>,
    rings: Vec<KeptRing>,
}

pub(crate) struct CpuRings {
    session: Session,
    keep: Keeping,
    pub(super) most_bytes: u64,
    cpu_rings: Vec<CpuRing>,
    next_number: u64,
    /// Why no ring grows any more.
    pub(super) stuck: Option<String>,
    /// How often a ring contradicted itself.
    pub(super) corrupt: u64,
    has_snapshot: bool,
}

impl CpuRings {
    /// None yet; they come with the events. `most_bytes` is what all of `cpus` rings may have together.
    pub(super) fn new(session: &Session, keep: Keeping, most_bytes: u64, cpus: usize) -> Self {
        let each = (most_bytes / cpus.max(1) as u64).max(LEAST_BYTES);
        let most_bytes = 1 << each.ilog2();
        let (session, cpu_rings) = (session.clone(), Vec::new());
        Self { session, keep, most_bytes, cpu_rings, next_number: 0, stuck: None, corrupt: 0, has_snapshot: false }
    }

    /// Leads an event into the newest ring of its CPU, which is made where there is none.
    pub(crate) fn lead(&mut self, event: EventId, cpu: CpuId) -> Result<(), Error> {
        let place = match self.cpu_rings.iter().position(|cpu_ring| cpu_ring.cpu == cpu) {
            Some(place) => place,
            None => {
                let ring = self.first_ring(cpu)?;
                self.cpu_rings.push(CpuRing { cpu, events: Vec::new(), rings: vec![ring] });
                self.cpu_rings.len() - 1
            }
        };
        let cpu_ring = &mut self.cpu_rings[place];
        if let Some(ring) = cpu_ring.rings.last() {
            ring.ring_owner.lead(event)?;
        }
        cpu_ring.events.push(event);
        Ok(())
    }

    fn ring(&mut self, cpu: CpuId, bytes: u64) -> Result<KeptRing, Error> {
        let ring_owner = RingOwner::open_backward(&self.session, cpu, pages(bytes), WHAT)?;
        self.next_number += 1;
        let begun_ns = pmux_linux::now_ns();
        let marks = Marks::begin(begun_ns);
        Ok(KeptRing { ring_owner, number: self.next_number, begun_ns, marks, snapshot_bytes: None, retired_ns: None })
    }

    /// What is to be kept says how large it is. Where a span is asked for, less will do for now.
    fn first_ring(&mut self, cpu: CpuId) -> Result<KeptRing, Error> {
        let mut bytes = match self.keep {
            Keeping::Bytes(bytes) => return self.ring(cpu, bytes),
            Keeping::Span(_) => FIRST_BYTES.min(self.most_bytes),
        };
        loop {
            match self.ring(cpu, bytes) {
                Err(error) if is_too_large(&error) && bytes > LEAST_BYTES => bytes /= 2,
                other => return other,
            }
        }
    }

    /// Looks how full rings are, lets those grow that are too small, and drops those that are not needed any more.
    pub(super) fn watch(&mut self, now_ns: u64) {
        for cpu_ring in &mut self.cpu_rings {
            for ring in &mut cpu_ring.rings {
                let written = ring.ring_owner.ring.written_bytes();
                ring.marks.note(written, now_ns, ring.ring_owner.ring.capacity_bytes());
            }
        }
        let Keeping::Span(span) = self.keep else { return };
        let span_ns = nanos(span);
        for cpu_ring in &mut self.cpu_rings {
            let needed = |ring: &KeptRing| ring.retired_ns.is_none_or(|at| now_ns.saturating_sub(at) <= span_ns);
            cpu_ring.rings.retain(needed);
        }
        for place in 0..self.cpu_rings.len() {
            let other = self.too_small(place, span_ns, now_ns).or_else(|| self.too_large(place, span_ns, now_ns));
            if let Some(bytes) = other {
                self.replace(place, bytes, now_ns);
            }
        }
    }

    /// How large the ring of a CPU should be, if it should be larger.
    fn too_small(&self, place: usize, span_ns: u64, now_ns: u64) -> Option<u64> {
        let ring = self.cpu_rings[place].rings.last()?;
        let needed = ring.needed(span_ns, now_ns)?.min(self.most_bytes);
        (needed > ring.ring_owner.ring.capacity_bytes() && self.stuck.is_none()).then(|| needed.next_power_of_two())
    }

    /// How large the ring of a CPU should be, if it should be smaller.
    fn too_large(&self, place: usize, span_ns: u64, now_ns: u64) -> Option<u64> {
        let ring = self.cpu_rings[place].rings.last()?;
        let age_ns = now_ns.saturating_sub(ring.begun_ns);
        smaller(ring.ring_owner.ring.capacity_bytes(), age_ns, span_ns, ring.needed(span_ns, now_ns)?)
    }

    /// Another ring takes over: from one record to the next each event writes there.
    fn replace(&mut self, place: usize, bytes: u64, now_ns: u64) {
        let cpu = self.cpu_rings[place].cpu;
        // A CPU that is away writes nothing, and its events can't be led anywhere.
        if !self.session.online().contains(cpu.0) {
            return;
        }
        let ring = match self.ring(cpu, bytes) {
            Ok(ring) => ring,
            Err(error) => {
                self.stuck = Some(format!("rings of {bytes} bytes can't be had: {error}"));
                return;
            }
        };
        let cpu_ring = &mut self.cpu_rings[place];
        // An event that can't be led is gone: its CPU went, or its task.
        cpu_ring.events.retain(|&event| ring.ring_owner.lead(event).is_ok());
        if let Some(old) = cpu_ring.rings.last_mut() {
            old.retired_ns = Some(now_ns);
        }
        cpu_ring.rings.push(ring);
    }

    pub(super) fn held(&self, now_ns: u64) -> Vec<RingSpan> {
        let of = |cpu_ring: &CpuRing| {
            let rings = || cpu_ring.rings.iter();
            let used =
                |ring: &KeptRing| ring.ring_owner.ring.written_bytes().min(ring.ring_owner.ring.capacity_bytes());
            let since_ns = since(cpu_ring);
            RingSpan {
                cpu: cpu_ring.cpu.0,
                span: Duration::from_nanos(now_ns.saturating_sub(since_ns)),
                used_bytes: rings().map(used).sum(),
                ring_bytes: rings().map(|ring| ring.ring_owner.ring.capacity_bytes()).sum(),
                lasted: if cpu_ring.rings.len() == 1 && cpu_ring.rings[0].marks.is_whole() {
                    Lasted::SinceStart
                } else {
                    Lasted::Overwritten
                },
            }
        };
        self.cpu_rings.iter().map(of).collect()
    }

    /// The time before which no ring holds anything.
    pub(super) fn oldest_ns(&self) -> u64 {
        let oldest = |cpu_ring: &CpuRing| cpu_ring.rings.first().map(|ring| ring.marks.oldest_ns());
        self.cpu_rings.iter().filter_map(oldest).min().unwrap_or(0)
    }

    /// How long it takes at the most, as it was lately, until a quarter of a ring is new.
    pub(super) fn quarter_ns(&self, now_ns: u64) -> u64 {
        let of = |cpu_ring: &CpuRing| {
            let ring = cpu_ring.rings.last()?;
            let (bytes, within_ns) = ring.marks.fastest(0, now_ns).filter(|(bytes, _)| *bytes > 0)?;
            let quarter = u128::from(ring.ring_owner.ring.capacity_bytes() / 4);
            u64::try_from(quarter * u128::from(within_ns) / u128::from(bytes)).ok()
        };
        self.cpu_rings.iter().filter_map(of).min().unwrap_or(u64::MAX)
    }

    /// Copies what is younger than what was copied before, out of all rings.
    pub(super) fn copy(&mut self, into: &mut Copies) {
        let mut visitor = CpuVisitor::new();
        let online = self.session.online();
        // What came into a ring that is younger than the last snapshot is all new.
        let from = self.has_snapshot.then_some(0);
        for cpu_ring in &self.cpu_rings {
            let mut visit = || match visitor.visit(cpu_ring.cpu.0) {
                Placement::Moved => Writers::Done,
                Placement::NotMoved(_) if !online.contains(cpu_ring.cpu.0) => Writers::Done,
                Placement::NotMoved(_) => Writers::Unknown,
            };
            let copy = into.cpu_ring(cpu_ring.cpu.0);
            for ring in &cpu_ring.rings {
                match ring.ring_owner.ring.excerpt(copy.known(ring.number), &mut visit) {
                    Ok(excerpt) => copy.take(ring.number, ring.begun_ns, ring.snapshot_bytes.or(from), excerpt),
                    Err(_) => self.corrupt += 1,
                }
            }
        }
    }

    /// What was `written` into each ring is the end of a snapshot: the next one is compared with it.
    pub(super) fn note_snapshot(&mut self, written: &HashMap<u64, u64>) {
        self.has_snapshot = true;
        for ring in self.cpu_rings.iter_mut().flat_map(|cpu_ring| &mut cpu_ring.rings) {
            ring.snapshot_bytes = written.get(&ring.number).copied().or(ring.snapshot_bytes);
        }
    }
}

/// How large a ring should be that has been far too large for long: memory that a burst needed once is given back, but not so soon that the
/// next one has to wait for it.
fn smaller(capacity: u64, age_ns: u64, span_ns: u64, needed: u64) -> Option<u64> {
    let watched = age_ns >= span_ns.saturating_mul(LONG_SPANS).max(LONG_NS);
    let much = capacity > FIRST_BYTES && needed <= capacity / MUCH;
    (watched && much).then(|| (needed * 2).next_power_of_two().max(FIRST_BYTES))
}

/// Since when the rings of a CPU hold everything.
fn since(cpu_ring: &CpuRing) -> u64 {
    // A ring that took over holds what came since then. Where it lost some of that, what older rings have is another story.
    let mut since_ns = u64::MAX;
    for ring in cpu_ring.rings.iter().rev() {
        since_ns = since_ns.min(ring.marks.since_ns());
        if !ring.marks.is_whole() {
            break;
        }
    }
    since_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_gets_smaller_when_a_burst_is_long_over() {
        const SPAN: u64 = 30_000_000_000;
        const MIB: u64 = 1 << 20;
        assert_eq!(smaller(64 * MIB, 2 * LONG_NS, SPAN, 3 * MIB), Some(8 * MIB));
        assert_eq!(smaller(64 * MIB, 2 * LONG_NS, SPAN, 0), Some(MIB));
        // Too young, of a longer time to keep, not so much too large, and as small as any.
        assert_eq!(smaller(64 * MIB, LONG_NS - 1, SPAN, 0), None);
        assert_eq!(smaller(64 * MIB, 2 * LONG_NS, LONG_NS, 0), None);
        assert_eq!(smaller(64 * MIB, 2 * LONG_NS, SPAN, 9 * MIB), None);
        assert_eq!(smaller(MIB, 2 * LONG_NS, SPAN, 0), None);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// What is made smaller has room for what it needs, and is not too small at once.
        #[test]
        fn it_does_not_go_up_and_down(bits in 15_u32..36, needed in 0_u64..1 << 36) {
            if let Some(bytes) = smaller(1 << bits, u64::MAX, 1, needed) {
                proptest::prop_assert!(bytes >= needed && bytes < 1 << bits && bytes.is_power_of_two());
            }
        }
    }
}
