//! Hits by thread and place, counted in the kernel.
//!
//! What it is: a table in memory that a program writes (`counting`), and that is read here without a call. Each CPU has slots of its
//! own, so that a slot has one writer. It belongs to the thread and place that claimed it first, for good. Those of a CPU that are
//! claimed are a list, so that as many are read as there are.
//!
//! **Invariant:** what the kernel has written is never believed to be in order: a list has an end, and a slot that isn't filled yet
//! is looked at again.

use pmux_linux::Errno;
use pmux_linux::bpf::{Map, MapKind, Values};

/// The table is no larger, but for one with very many CPUs.
const MOST_BYTES: u64 = 16 << 20;
/// So many slots has each CPU where there is room: 2 to the power of this.
const MOST_SLOT_BITS: u32 = 13;
/// And so many at least.
const LEAST_SLOT_BITS: u32 = 6;

/// Bytes of a slot: a cache line.
pub(super) const SLOT_BYTES: u32 = 64;
const SLOT_WORDS: usize = 8;

/// Where a slot has what, in bytes.
pub(super) struct SlotLayout {
    /// Process and thread as the kernel has them, and the number of the program.
    pub(super) task: i16,
    /// The register's address.
    pub(super) address: i16,
    /// The instruction pointer; 0 where the slot is free. Written last.
    pub(super) ip: i16,
    /// Hits that were not written.
    pub(super) hits: i16,
    /// When the first hit was, written or not.
    pub(super) first: i16,
    /// When the last one was that was not written.
    pub(super) last: i16,
    /// How many hits are still to come until one is written, with it.
    pub(super) left: i16,
    /// For how many hits that one will stand.
    pub(super) weight: i16,
    /// How many hits lie between two that are written, about; in sixteenths.
    pub(super) gap: i16,
    /// The slot that was claimed before on this CPU, by its number in the map, plus 1.
    pub(super) link: i16,
}

pub(super) const SLOT: SlotLayout =
    SlotLayout { task: 0, address: 8, ip: 16, hits: 24, first: 32, last: 40, left: 48, weight: 52, gap: 56, link: 60 };
/// Behind all slots each CPU has a head: in the lower half the slot that was claimed last, by its number in the map, plus 1; in the
/// upper half how many are claimed.
pub(super) const HEAD: i16 = 0;

/// The instruction, where none is, of slots for what was hit before all was armed, by whomever and wherever.
pub(super) const EARLY: i32 = 1;

/// Bits of a thread's number: `PID_MAX_LIMIT` in `include/linux/threads.h`. Above are those of the program's.
const TID_BITS: u32 = 22;
/// So many programs are told apart.
const TAGS: u32 = 1 << 9;

/// What is mixed into the number of a task, so that slots of different programs differ.
pub(super) fn tag_bits(tag: u32) -> i32 {
    ((tag % TAGS) << TID_BITS).cast_signed()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) cpus: u32,
    pub(super) slot_bits: u32,
}

impl Shape {
    fn of(cpus: u32) -> Self {
        let bytes = |bits: u32| (u64::from(cpus) << bits) * u64::from(SLOT_BYTES);
        let fits = |bits: &u32| bytes(*bits) <= MOST_BYTES;
        let slot_bits = (LEAST_SLOT_BITS..=MOST_SLOT_BITS).rev().find(fits).unwrap_or(LEAST_SLOT_BITS);
        Self { cpus, slot_bits }
    }

    /// The number of the first head.
    pub(super) fn heads(self) -> u32 {
        self.cpus << self.slot_bits
    }
}

#[derive(Debug)]
struct SlotState {
    number: usize,
    /// How many of its hits were taken.
    taken: u64,
    /// As long as the slot isn't filled.
    claimed_by: Option<Claim>,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    tag: u32,
    pid: i32,
    tid: i32,
    address: u64,
    ip: u64,
    first: u64,
}

/// Hits of one thread at one place on one CPU that were counted since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watch) struct CountedRow {
    /// The program's.
    pub(in crate::watch) tag: u32,
    pub(in crate::watch) pid: i32,
    pub(in crate::watch) tid: i32,
    pub(in crate::watch) cpu: u32,
    pub(in crate::watch) address: u64,
    pub(in crate::watch) ip: u64,
    pub(in crate::watch) hits: u64,
    /// The first hit there, written or counted, ns.
    pub(in crate::watch) first: u64,
    /// The last one that was counted, ns.
    pub(in crate::watch) last: u64,
}

impl CountedRow {
    /// Whether they came before all was armed: they belong to no task.
    pub(in crate::watch) fn are_early(&self) -> bool {
        self.ip == EARLY as u64
    }
}

#[derive(Debug)]
pub(super) struct CountTable {
    pub(super) map: Map,
    pub(super) shape: Shape,
    words: Values,
    /// By CPU, in the order in which they were claimed.
    known: Vec<Vec<SlotState>>,
}

impl CountTable {
    /// Makes an empty one, for CPUs whose numbers are less than `cpus`.
    pub(super) fn new(cpus: u32) -> Result<Self, Errno> {
        let shape = Shape::of(cpus);
        let map = Map::new(MapKind::SharedArray, 4, SLOT_BYTES, shape.heads() + cpus, "pmux_hits")?;
        let words = map.values()?;
        Ok(Self { map, shape, words, known: (0..cpus).map(|_| Vec::new()).collect() })
    }

    /// What was counted since the last look.
    pub(super) fn take(&mut self) -> Vec<CountedRow> {
        let mut counted = Vec::new();
        for (cpu, known) in (0..).zip(&mut self.known) {
            find_new(&self.words, self.shape, cpu, known);
            for slot in known {
                slot.claimed_by = slot.claimed_by.or_else(|| claim(&self.words, slot.number));
                let Some(claim) = slot.claimed_by else { continue };
                let hits = word(&self.words, slot.number, SLOT.hits);
                let fresh = hits.wrapping_sub(slot.taken);
                if fresh == 0 {
                    continue;
                }
                slot.taken = hits;
                let Claim { tag, pid, tid, address, ip, first } = claim;
                // A program counts first, and then writes when that was.
                let last = word(&self.words, slot.number, SLOT.last).max(first);
                counted.push(CountedRow { tag, pid, tid, cpu, address, ip, hits: fresh, first, last });
            }
        }
        counted
    }
}

fn word(words: &Values, slot: usize, at: i16) -> u64 {
    words.load(slot * SLOT_WORDS + usize::try_from(at / 8).unwrap_or_default())
}

/// The second half of a word.
fn upper(word: u64) -> u32 {
    let [.., a, b, c, d] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Adds the slots of a CPU that were claimed since they were listed.
fn find_new(words: &Values, shape: Shape, cpu: u32, known: &mut Vec<SlotState>) {
    let own = (cpu as usize) << shape.slot_bits..((cpu as usize) + 1) << shape.slot_bits;
    let head = words.load((shape.heads() + cpu) as usize * SLOT_WORDS);
    let missing = ((head >> 32) as usize).min(own.len()).saturating_sub(known.len());
    let mut fresh = Vec::with_capacity(missing);
    let mut link = head as u32;
    while fresh.len() < missing {
        let Some(number) = link.checked_sub(1).map(|number| number as usize).filter(|number| own.contains(number))
        else {
            // The link of a slot can't be seen yet: next time.
            return;
        };
        fresh.push(SlotState { number, taken: 0, claimed_by: None });
        link = upper(word(words, number, SLOT.link));
    }
    known.extend(fresh.into_iter().rev());
}

/// Whose a slot is, where all of that can be seen.
fn claim(words: &Values, slot: usize) -> Option<Claim> {
    let of = |at: i16| Some(word(words, slot, at)).filter(|&word| word != 0);
    let (ip, address, first) = (of(SLOT.ip)?, of(SLOT.address)?, of(SLOT.first)?);
    // That of an idle CPU is 0.
    let task = word(words, slot, SLOT.task);
    let (pid, tid) = ((task >> 32) as u32, task as u32);
    let tag = (tid >> TID_BITS) % TAGS;
    let tid = tid & ((1 << TID_BITS) - 1);
    Some(Claim { tag, pid: pid.cast_signed(), tid: tid.cast_signed(), address, ip, first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_its_machine() {
        assert_eq!(Shape::of(2), Shape { cpus: 2, slot_bits: 13 });
        assert_eq!(Shape::of(256).slot_bits, 10);
        assert_eq!(Shape::of(8192).slot_bits, LEAST_SLOT_BITS);
        for cpus in [1, 2, 3, 100, 256, 4096, 8192] {
            let shape = Shape::of(cpus);
            assert!(u64::from(shape.heads()) * u64::from(SLOT_BYTES) <= 2 * MOST_BYTES, "{shape:?}");
        }
    }

    #[test]
    fn programs_are_told_apart_in_a_threads_number() {
        let task = (77_u64 << 32 | 4_194_303) | u64::from(tag_bits(511).cast_unsigned());
        assert_eq!((task as u32 >> TID_BITS, task as u32 & 0x3f_ffff, task >> 32), (511, 4_194_303, 77));
        assert!(tag_bits(511) > 0 && tag_bits(512) == 0, "the kernel spreads a sign over all bits");
    }
}
