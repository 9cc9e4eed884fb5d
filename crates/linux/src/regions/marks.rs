//! Marks of a recording: when threads entered and left regions.
//!
//! What it is: a ring behind the slots of the table. Every thread of a command writes into it, and the recorder takes out.
//! Read first: [`RegionTable::mark`].
//!
//! **Invariant:** a writer waits for nothing. What finds no room is counted, and a place whose writer was killed is passed over.

use super::{HEAD_WORDS, MOST_REGIONS, RegionSlot, RegionTable, SLOT_WORDS};
use crate::sys::current_cpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most marks that wait to be taken.
const MOST_MARKS: u64 = 1 << 18;
// A mark: its number in the order of all, from 1 on, which says that the rest is written; the time; process and thread; the slot, whether
// it is entered, and the CPU.
const MARK_WORDS: usize = 4;
const FIRST: usize = HEAD_WORDS + MOST_REGIONS * SLOT_WORDS;
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
}

/// How far a recorder is with taking marks.
#[derive(Debug, Default)]
pub struct MarkReader {
    /// A place that was not written when it was looked at, and is passed over if it still is not.
    unwritten: Option<u64>,
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

    /// A thread of this process, which has these numbers, enters or leaves a region.
    pub fn mark(&self, slot: RegionSlot, (pid, tid): (u32, u32), kind: MarkKind) {
        if self.word(ON).load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut head = self.word(HEAD).load(Ordering::Relaxed);
        loop {
            // Pairs with the release of the reader: it has read what stood in the places that it gives back.
            if head.wrapping_sub(self.word(TAIL).load(Ordering::Acquire)) >= MOST_MARKS {
                self.word(LOST).fetch_add(1, Ordering::Relaxed);
                return;
            }
            match self.word(HEAD).compare_exchange_weak(head, head + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        let words = self.mark_words(head);
        let leaves = u64::from(kind == MarkKind::Leave);
        words[1].store(crate::now_ns(), Ordering::Relaxed);
        words[2].store(u64::from(pid) << 32 | u64::from(tid), Ordering::Relaxed);
        words[3].store((slot.0 as u64) << 33 | leaves << 32 | u64::from(current_cpu()), Ordering::Relaxed);
        // Pairs with the acquire of the reader: who sees the number sees the rest.
        words[0].store(head + 1, Ordering::Release);
    }

    /// Takes the marks out that are there. One that is being written is left for the next call, with all behind it; if it is not written
    /// then, its writer was stopped or killed, and it counts as lost.
    pub fn take_marks(&self, reader: &mut MarkReader, mut sink: impl FnMut(Mark)) {
        let head = self.word(HEAD).load(Ordering::Relaxed);
        let mut tail = self.word(TAIL).load(Ordering::Relaxed);
        // Whatever stands there, it ends.
        for _ in 0..head.wrapping_sub(tail).min(MOST_MARKS) {
            let words = self.mark_words(tail);
            if words[0].load(Ordering::Acquire) == tail.wrapping_add(1) {
                let load = |at: usize| words[at].load(Ordering::Relaxed);
                let (task, what) = (load(2), load(3));
                sink(Mark {
                    at_ns: load(1),
                    pid: (task >> 32) as u32,
                    tid: task as u32,
                    cpu: what as u32,
                    slot: RegionSlot((what >> 33) as usize % MOST_REGIONS),
                    kind: if what >> 32 & 1 == 0 { MarkKind::Enter } else { MarkKind::Leave },
                });
            } else if reader.unwritten == Some(tail) {
                self.word(LOST).fetch_add(1, Ordering::Relaxed);
            } else {
                reader.unwritten = Some(tail);
                break;
            }
            tail = tail.wrapping_add(1);
        }
        self.word(TAIL).store(tail, Ordering::Release);
    }

    /// How many marks were lost so far.
    #[must_use]
    pub fn lost_marks(&self) -> u64 {
        self.word(LOST).load(Ordering::Relaxed)
    }

    fn mark_words(&self, number: u64) -> &[AtomicU64] {
        let at = FIRST + (number % MOST_MARKS) as usize * MARK_WORDS;
        &self.words.words()[at..at + MARK_WORDS]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn take(table: &RegionTable, reader: &mut MarkReader) -> Vec<(u32, MarkKind)> {
        let mut taken = Vec::new();
        table.take_marks(reader, |mark| taken.push((mark.tid, mark.kind)));
        taken
    }

    #[test]
    fn each_mark_of_each_thread_comes_once_and_in_its_order() {
        const EACH: u32 = 20_000;
        let table = RegionTable::for_marks().unwrap();
        let slot = table.slot("x").unwrap();
        table.mark(slot, (1, 9), MarkKind::Enter);
        table.switch_marks(true);
        let mut taken: Vec<(u32, u32)> = Vec::new();
        std::thread::scope(|scope| {
            for tid in 0..4 {
                let table = &table;
                // The number stands where the process's would.
                scope.spawn(move || (0..EACH).for_each(|number| table.mark(slot, (number, tid), MarkKind::Enter)));
            }
            let mut reader = MarkReader::default();
            while taken.len() < 4 * EACH as usize && table.lost_marks() == 0 {
                table.take_marks(&mut reader, |mark| taken.push((mark.tid, mark.pid)));
            }
        });
        for tid in 0..4 {
            let numbers: Vec<u32> = taken.iter().filter(|(of, _)| *of == tid).map(|(_, number)| *number).collect();
            assert!(numbers.is_sorted() && numbers.len() <= EACH as usize);
        }
        assert!(taken.len() as u64 + table.lost_marks() <= 4 * u64::from(EACH));
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let table = RegionTable::for_marks().unwrap();
        let (slot, mut reader) = (table.slot("x").unwrap(), MarkReader::default());
        table.switch_marks(true);
        (0..MOST_MARKS + 5).for_each(|_| table.mark(slot, (1, 2), MarkKind::Leave));
        assert_eq!(table.lost_marks(), 5);
        assert_eq!(take(&table, &mut reader).len() as u64, MOST_MARKS);
        table.mark(slot, (1, 3), MarkKind::Enter);
        assert_eq!(take(&table, &mut reader), [(3, MarkKind::Enter)]);
    }

    #[test]
    fn a_writer_that_was_killed_holds_up_no_other() {
        let table = RegionTable::for_marks().unwrap();
        let (slot, mut reader) = (table.slot("x").unwrap(), MarkReader::default());
        table.switch_marks(true);
        table.word(HEAD).fetch_add(1, Ordering::Relaxed);
        table.mark(slot, (1, 3), MarkKind::Enter);
        assert_eq!(take(&table, &mut reader), []);
        assert_eq!((take(&table, &mut reader), table.lost_marks()), (vec![(3, MarkKind::Enter)], 1));
        // Numbers that make no sense end all the same.
        table.word(HEAD).store(u64::MAX, Ordering::Relaxed);
        for _ in 0..10 {
            take(&table, &mut reader);
        }
        assert!(table.lost_marks() > 1);
    }
}
