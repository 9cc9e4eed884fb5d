//! Marks of a recording: when threads entered and left regions.
//!
//! What it is: a ring behind the slots of the table. Every thread of a command writes into it, and the recorder takes out.
//! Read first: [`RegionTable::mark`].
//!
//! **Invariant:** a writer waits for nothing. What finds no room is counted, and a place whose writer was killed is passed over.

use super::{MOST_REGIONS, RegionSlot, RegionTable, TABLE_WORDS};
use crate::sys::current_cpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most marks that wait to be taken.
const MOST_MARKS: u64 = 1 << 18;
// A mark: its number in the order of all, from 1 on, which says that the rest is written; the time; process and thread; the slot, whether
// it is entered, and the CPU.
const MARK_WORDS: usize = 4;
pub(super) const WORDS: usize = MOST_MARKS as usize * MARK_WORDS;

/// What is marked: 0 for nothing, as where regions are counted.
const KIND: usize = 4;
const MARKS: u64 = 1;
/// Whether marks are recorded now.
const ON: usize = 5;
/// How many places were given to writers.
const HEAD: usize = 6;
/// How many of them the recorder has taken.
const TAIL: usize = 7;
/// How many marks found no room.
const LOST: usize = 8;

/// Whether a region is entered or left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// It is entered.
    Enter,
    /// It is left.
    Leave,
}

/// A thread enters or leaves a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// When, on the monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Its process, as that process knows it.
    pub pid: u32,
    /// Itself.
    pub tid: u32,
    /// The CPU that it was on.
    pub cpu: u32,
    /// The region.
    pub slot: RegionSlot,
    /// What it does.
    pub kind: MarkKind,
    /// Whether marks of this thread are missing in front of this one, or it is the first of a program.
    pub is_fresh: bool,
}

/// How far a recorder is with taking marks: which places writers have had for some time.
#[derive(Debug, Default)]
pub struct MarkReader {
    /// Those in front of this one.
    old_head: u64,
    /// How many places were given at this time.
    young: (u64, u64),
}

/// A writer that has not written after so long was stopped or killed.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Which marks are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakeMarks {
    /// At most so many. One that is being written is left, with all behind it; where it is not written a second later, its writer was
    /// stopped or killed, and it counts as lost.
    AtMost(u64),
    /// All, for the last time: what is not written is lost.
    TheLast,
}

impl RegionTable {
    pub(super) fn marks_instead_of_counts(&self) {
        self.word(KIND).store(MARKS, Ordering::Relaxed);
    }

    /// Whether regions are marked, and not counted.
    #[must_use]
    pub fn is_of_marks(&self) -> bool {
        self.word(KIND).load(Ordering::Relaxed) == MARKS
    }

    /// Whether marks are recorded from now on.
    pub fn switch_marks(&self, on: bool) {
        self.word(ON).store(u64::from(on), Ordering::Relaxed);
    }

    /// A thread of this process, which has these numbers, enters or leaves a region. Answers whether that is recorded: the next mark of the
    /// thread is to be `is_fresh` where it is not, and the first one.
    #[must_use]
    pub fn mark(&self, slot: RegionSlot, (pid, tid): (u32, u32), kind: MarkKind, is_fresh: bool) -> bool {
        if self.word(ON).load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut head = self.word(HEAD).load(Ordering::Relaxed);
        loop {
            // Pairs with the release of the reader: it has read what stood in the places that it gives back.
            if head.wrapping_sub(self.word(TAIL).load(Ordering::Acquire)) >= MOST_MARKS {
                // Where others went on meanwhile, more may have been taken than was given by then: that is no lack of room.
                let now = self.word(HEAD).load(Ordering::Relaxed);
                if now == head {
                    self.word(LOST).fetch_add(1, Ordering::Relaxed);
                    return false;
                }
                head = now;
                continue;
            }
            let next = head.wrapping_add(1);
            match self.word(HEAD).compare_exchange_weak(head, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        let [number, time, task, what] = self.mark_words(head) else { return false };
        let flags = u64::from(is_fresh) << 1 | u64::from(kind == MarkKind::Leave);
        time.store(crate::now_ns(), Ordering::Relaxed);
        task.store(u64::from(pid) << 32 | u64::from(tid), Ordering::Relaxed);
        what.store((slot.0 as u64) << 34 | flags << 32 | u64::from(current_cpu()), Ordering::Relaxed);
        // Pairs with the acquire of the reader: who sees the number sees the rest.
        number.store(head.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the marks out that are there. Answers whether it was held up by one that is being written: those behind it come later.
    pub fn take_marks(&self, reader: &mut MarkReader, which: TakeMarks, mut sink: impl FnMut(Mark)) -> bool {
        let head = self.word(HEAD).load(Ordering::Relaxed);
        let mut tail = self.word(TAIL).load(Ordering::Relaxed);
        let now_ns = crate::now_ns();
        if now_ns.saturating_sub(reader.young.1) >= PATIENCE_NS {
            (reader.old_head, reader.young) = (reader.young.0, (head, now_ns));
        }
        let most = match which {
            TakeMarks::AtMost(most) => most.min(MOST_MARKS),
            TakeMarks::TheLast => MOST_MARKS,
        };
        let mut is_held_up = false;
        // Whatever stands there, it ends.
        for _ in 0..head.wrapping_sub(tail).min(most) {
            let is_old = reader.old_head.wrapping_sub(tail).wrapping_sub(1) < MOST_MARKS;
            let [number, time, task, what] = self.mark_words(tail) else { break };
            if number.load(Ordering::Acquire) == tail.wrapping_add(1) {
                let (task, what) = (task.load(Ordering::Relaxed), what.load(Ordering::Relaxed));
                sink(Mark {
                    at_ns: time.load(Ordering::Relaxed),
                    pid: (task >> 32) as u32,
                    tid: task as u32,
                    cpu: what as u32,
                    slot: RegionSlot((what >> 34) as usize % MOST_REGIONS),
                    kind: if what >> 32 & 1 == 0 { MarkKind::Enter } else { MarkKind::Leave },
                    is_fresh: what >> 33 & 1 == 1,
                });
            } else if is_old || which == TakeMarks::TheLast {
                self.word(LOST).fetch_add(1, Ordering::Relaxed);
            } else {
                is_held_up = true;
                break;
            }
            tail = tail.wrapping_add(1);
        }
        self.word(TAIL).store(tail, Ordering::Release);
        is_held_up
    }

    /// How many marks were lost so far.
    #[must_use]
    pub fn lost_marks(&self) -> u64 {
        self.word(LOST).load(Ordering::Relaxed)
    }

    /// None of a table of counts, whatever stands in its head.
    fn mark_words(&self, number: u64) -> &[AtomicU64] {
        let at = TABLE_WORDS + (number % MOST_MARKS) as usize * MARK_WORDS;
        self.words.words().get(at..at + MARK_WORDS).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(table: &RegionTable, which: TakeMarks) -> Vec<(u32, MarkKind)> {
        let mut taken = Vec::new();
        table.take_marks(&mut MarkReader::default(), which, |mark| taken.push((mark.tid, mark.kind)));
        taken
    }

    #[test]
    fn each_mark_of_each_thread_comes_once_and_in_its_order() {
        const EACH: u32 = 20_000;
        let table = RegionTable::for_marks().unwrap();
        let slot = table.slot("x").unwrap();
        assert!(!table.mark(slot, (1, 9), MarkKind::Enter, true), "not before it is switched on");
        table.switch_marks(true);
        let mut taken: Vec<Mark> = Vec::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|tid| {
                    let table = &table;
                    // The number stands where the process's would.
                    scope.spawn(move || {
                        (0..EACH).for_each(|number| {
                            assert!(table.mark(slot, (number, tid), MarkKind::Enter, number % 3 == 0));
                        });
                    })
                })
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                // However long a writer takes: for this reader no place is old.
                table.take_marks(&mut MarkReader::default(), TakeMarks::AtMost(1000), |mark| taken.push(mark));
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            table.take_marks(&mut MarkReader::default(), TakeMarks::TheLast, |mark| taken.push(mark));
        });
        assert_eq!(table.lost_marks(), 0);
        for tid in 0..4 {
            let own: Vec<&Mark> = taken.iter().filter(|mark| mark.tid == tid).collect();
            assert!(own.iter().map(|mark| mark.pid).eq(0..EACH), "{tid}");
            assert!(own.iter().all(|mark| mark.is_fresh == (mark.pid % 3 == 0) && mark.at_ns > 0));
        }
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let table = RegionTable::for_marks().unwrap();
        let slot = table.slot("x").unwrap();
        table.switch_marks(true);
        let found = (0..MOST_MARKS + 5).filter(|_| table.mark(slot, (1, 2), MarkKind::Leave, false)).count();
        assert_eq!((found as u64, table.lost_marks()), (MOST_MARKS, 5));
        assert_eq!(take(&table, TakeMarks::AtMost(7)).len(), 7);
        assert_eq!(take(&table, TakeMarks::AtMost(u64::MAX)).len() as u64, MOST_MARKS - 7);
        assert!(table.mark(slot, (1, 3), MarkKind::Enter, false));
        assert_eq!(take(&table, TakeMarks::AtMost(9)), [(3, MarkKind::Enter)]);
    }

    #[test]
    fn a_writer_that_was_killed_holds_up_no_other_for_long() {
        let table = RegionTable::for_marks().unwrap();
        let slot = table.slot("x").unwrap();
        table.switch_marks(true);
        for tid in [3, 4] {
            table.word(HEAD).fetch_add(1, Ordering::Relaxed);
            assert!(table.mark(slot, (1, tid), MarkKind::Enter, false));
        }
        assert_eq!(take(&table, TakeMarks::AtMost(9)), []);
        assert!(table.take_marks(&mut MarkReader::default(), TakeMarks::AtMost(9), |_| ()));
        // As it is when a second has passed.
        let mut reader = MarkReader { old_head: 2, young: (2, crate::now_ns()) };
        let mut taken = Vec::new();
        table.take_marks(&mut reader, TakeMarks::AtMost(9), |mark| taken.push(mark.tid));
        assert_eq!((&taken[..], table.lost_marks()), (&[3][..], 1), "the other one is young");
        assert_eq!((take(&table, TakeMarks::TheLast), table.lost_marks()), (vec![(4, MarkKind::Enter)], 2));
        // Numbers that make no sense end all the same.
        table.word(HEAD).store(u64::MAX, Ordering::Relaxed);
        table.word(TAIL).store(u64::MAX - 1, Ordering::Relaxed);
        assert!(table.mark(slot, (1, 3), MarkKind::Enter, false));
        for _ in 0..10 {
            take(&table, TakeMarks::TheLast);
        }
        assert!(table.lost_marks() > 2);
    }
}
