//! A snapshot from its cause to its end.
//!
//! What it is: it waits for its turn, is begun with a copy of what the rings hold, goes on with what comes after, and ends.
//! Read first: [`Pending`].
//!
//! **Invariant:** while it goes on, rings are copied before they have been around once, as far as that can be foreseen.

use super::copy::Copies;
use super::cpu_rings::CpuRings;
use super::write::Times;
use super::{Requested, SnapshotCause};

/// A cause that comes while one is pending makes it longer, but in all no more than so many times.
const MOST_TIMES: u64 = 2;

pub(super) struct Pending {
    pub(super) number: u64,
    pub(super) causes: Vec<SnapshotCause>,
    pub(super) copies: Copies,
    /// `None` while it waits for its turn.
    pub(super) taken: Option<SnapshotTimes>,
}

/// What is known once it is begun.
#[derive(Clone, Copy, Default)]
pub(super) struct SnapshotTimes {
    begun_ns: u64,
    /// What is older is not asked for.
    pub(super) cut_ns: u64,
    ends_ns: u64,
    /// When rings are copied again.
    next_ns: u64,
    /// All that happened before is copied. CPUs are copied one after the other: what came later is there of some only.
    pub(super) ended_ns: u64,
}

impl Pending {
    pub(super) fn new(number: u64, cause: SnapshotCause) -> Self {
        Self { number, causes: vec![cause], copies: Copies::default(), taken: None }
    }

    pub(super) fn join(&mut self, cause: SnapshotCause, after_ns: u64) -> Requested {
        if let Some(taken) = &mut self.taken {
            let latest_ns = taken.begun_ns.saturating_add(after_ns.saturating_mul(MOST_TIMES));
            taken.ends_ns = taken.ends_ns.max(pmux_linux::now_ns().saturating_add(after_ns).min(latest_ns));
        }
        self.causes.push(cause);
        Requested::Joined(self.number)
    }

    pub(super) fn begin(&mut self, cpu_rings: &mut CpuRings, cut_ns: u64, now_ns: u64, after_ns: u64) {
        let ended_ns = self.copy_all(cpu_rings);
        let ends_ns = now_ns.saturating_add(after_ns);
        self.taken = Some(SnapshotTimes { begun_ns: now_ns, cut_ns, ends_ns, next_ns: now_ns, ended_ns });
    }

    /// Copies what came since, where it is time for that; at the latest after `most_ns` it is time again.
    pub(super) fn follow(&mut self, cpu_rings: &mut CpuRings, now_ns: u64, most_ns: u64) {
        let Some(taken) = self.taken.filter(|taken| now_ns >= taken.next_ns) else { return };
        cpu_rings.copy(&mut self.copies);
        let next_ns = now_ns.saturating_add(cpu_rings.quarter_ns(now_ns).clamp(1_000_000, most_ns));
        self.taken = Some(SnapshotTimes { next_ns, ..taken });
    }

    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.taken.is_some_and(|taken| now_ns >= taken.ends_ns)
    }

    /// It is over, whatever was meant.
    pub(super) fn end_now(&mut self) {
        if let Some(taken) = &mut self.taken {
            taken.ends_ns = 0;
        }
    }

    /// Copies what came last. The next snapshot is compared with this one.
    pub(super) fn end(&mut self, cpu_rings: &mut CpuRings, times: &Times) {
        // With nothing after its cause it is what it was then.
        if self.taken.is_some_and(|taken| taken.ends_ns != taken.begun_ns) {
            let ended_ns = self.copy_all(cpu_rings);
            self.taken = self.taken.map(|taken| SnapshotTimes { ended_ns, ..taken });
        }
        let ended_ns = self.taken.map_or(0, |taken| taken.ended_ns);
        cpu_rings.note_snapshot(&self.copies.written_until(ended_ns, |record| times.of(record)));
    }

    /// Copies all that there is now; answers when that was.
    fn copy_all(&mut self, cpu_rings: &mut CpuRings) -> u64 {
        let ended_ns = pmux_linux::now_ns();
        cpu_rings.copy(&mut self.copies);
        ended_ns
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.taken.map(|taken| taken.next_ns.min(taken.ends_ns))
    }
}
