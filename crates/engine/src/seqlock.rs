//! A value of several words that one thread writes and others read without a lock.
//!
//! What it is: a sequence number before the words, odd while they are being written. The writer never waits; a reader takes
//! what it saw only if the number was even and the same before and after.
//!
//! Pairs of orderings, by letter:
//!
//! * **A**: the writer's fence after it has stored the odd number, and the reader's fence before it loads the number again:
//!   a reader that saw a new word sees that the number is odd, or another.
//! * **B**: the writer's release store of the even number, and the reader's acquire load of it: a reader that saw that number sees
//!   all words from before.
//!
//! **Invariant:** there is one writer at a time. A reader never waits for ever, also where the writer died in the middle.

use core::sync::atomic::Ordering;

/// Memory of words: mapped, or a test's.
pub trait Words {
    /// How often a reader looks again. A write takes some nanoseconds, so that a few hundred are a long time for it; but not
    /// where the writer lost its CPU in the middle.
    const TRIES: u32;

    /// Loads a word.
    fn load(&self, at: usize, ordering: Ordering) -> u64;
    /// Stores a word.
    fn store(&self, at: usize, value: u64, ordering: Ordering);
    /// [`core::sync::atomic::fence`], or what a test has for it.
    fn fence(ordering: Ordering);
    /// Lets the writer go on.
    fn pause();
}

/// Writes the words behind the sequence number at `base`.
pub fn write<W: Words>(memory: &W, base: usize, words: &[u64]) {
    // Relaxed: only this thread stores it. Only a writer that had died leaves a number that is odd.
    let sequence = memory.load(base, Ordering::Relaxed) & !1;
    memory.store(base, sequence.wrapping_add(1), Ordering::Relaxed);
    W::fence(Ordering::Release); // A
    for (at, &word) in words.iter().enumerate() {
        // Relaxed: between A and B.
        memory.store(base + 1 + at, word, Ordering::Relaxed);
    }
    memory.store(base, sequence.wrapping_add(2), Ordering::Release); // B
}

/// Reads words behind the sequence number at `base`: those, and the number. `None` where the writer is (or died) in the
/// middle for longer than it is worth to wait.
#[must_use]
#[inline]
pub fn read<W: Words, const N: usize>(memory: &W, base: usize) -> Option<([u64; N], u64)> {
    for _ in 0..W::TRIES {
        let sequence = memory.load(base, Ordering::Acquire); // B
        if sequence & 1 == 0 {
            // Relaxed: between B and A.
            let words = core::array::from_fn(|at| memory.load(base + 1 + at, Ordering::Relaxed));
            if is_still(memory, base, sequence) {
                return Some((words, sequence));
            }
        }
        W::pause();
    }
    None
}

/// Whether nothing was written since the words with this number were read.
#[must_use]
#[inline]
pub fn is_still<W: Words>(memory: &W, base: usize, sequence: u64) -> bool {
    W::fence(Ordering::Acquire); // A
    memory.load(base, Ordering::Relaxed) == sequence
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use alloc::vec::Vec;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, fence};
    use loom::thread;

    const SIZE: usize = 2;

    struct Memory([AtomicU64; SIZE + 1]);

    impl Memory {
        fn new() -> Arc<Self> {
            Arc::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
        }
    }

    impl Words for Memory {
        /// Each further one multiplies what is tried.
        const TRIES: u32 = 2;

        fn load(&self, at: usize, ordering: Ordering) -> u64 {
            self.0[at].load(ordering)
        }

        fn store(&self, at: usize, value: u64, ordering: Ordering) {
            self.0[at].store(value, ordering);
        }

        fn fence(ordering: Ordering) {
            fence(ordering);
        }

        fn pause() {
            thread::yield_now();
        }
    }

    fn words(number: u64) -> [u64; SIZE] {
        [number, number * 10]
    }

    /// Every interleaving, and every old value that a load may bring.
    #[test]
    fn no_reader_sees_half_a_value() {
        // Each of thousands of runs ends by unwinding, which the hooks of shuttle in this process would print.
        if !pmux_testkit::own_process() {
            return;
        }
        let seen = std::sync::Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
        let all = std::sync::Arc::clone(&seen);
        loom::model(move || {
            let memory = Memory::new();
            let writer = Arc::clone(&memory);
            let thread = thread::spawn(move || {
                write(&*writer, 0, &words(1));
                write(&*writer, 0, &words(2));
            });
            if let Some((read, sequence)) = read::<_, SIZE>(&*memory, 0) {
                assert_eq!(read, words(read[0]), "torn");
                assert_eq!(sequence, read[0] * 2);
                all.lock().expect("no panic").insert(read[0]);
            }
            thread.join().expect("no panic");
            assert_eq!(read(&*memory, 0), Some((words(2), 4)));
        });
        assert_eq!(seen.lock().expect("no panic").iter().copied().collect::<Vec<_>>(), [0, 1, 2], "all were met");
    }

    /// What was read by another way between two looks belongs to the words, if nothing was written in between.
    #[test]
    fn what_is_done_in_between_belongs_to_the_words() {
        loom::model(|| {
            let memory = Memory::new();
            let fd = Arc::new(AtomicU64::new(0));
            let (writer, writers_fd) = (Arc::clone(&memory), Arc::clone(&fd));
            let thread = thread::spawn(move || {
                // First the words say that something else holds, then the file brings something else.
                write(&*writer, 0, &words(1));
                writers_fd.store(1, Ordering::Release);
            });
            if let Some((read, sequence)) = read::<_, SIZE>(&*memory, 0) {
                let file = fd.load(Ordering::Acquire);
                if is_still(&*memory, 0, sequence) {
                    assert!(file <= read[0], "{file} was read with the words of {}", read[0]);
                }
            }
            thread.join().expect("no panic");
        });
    }

    #[test]
    fn a_writer_that_died_in_the_middle_stops_no_reader() {
        loom::model(|| {
            let memory = Memory::new();
            memory.store(0, 7, Ordering::Relaxed);
            assert_eq!(read::<_, SIZE>(&*memory, 0), None);
            // The next writer sets it right.
            write(&*memory, 0, &words(3));
            assert_eq!(read(&*memory, 0), Some((words(3), 8)));
        });
    }
}
