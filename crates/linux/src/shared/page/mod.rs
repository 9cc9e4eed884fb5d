//! What the service shows to a client without being asked: memory that one writes and the other one reads.
//!
//! What it is: entries of two cache lines, one for each event. An entry says what its event had counted when the service read it last
//! (a *cached* value, with its age), and how the count is found in what a passed file says ([`Base`]).
//! Read first: [`Entry`], then [`pmux_engine::seqlock`].
//!
//! **Invariant:** a process that has the file can read it, and nothing else: not write it, and not make it shorter under its readers.
//! A reader believes nothing: whatever stands in the memory, it is numbers.

use super::wire::{Handle, TimedTotals, Totals};
use crate::sys::{Errno, ReadableWords, WritableWords};
use pmux_engine::seqlock::{Words, is_still, read, write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

/// Words of an entry: two cache lines.
const ENTRY_WORDS: usize = 16;
/// Most entries of a page: 2 MiB.
pub const MOST_ENTRIES: u32 = 16 * 1024;
/// Words of an entry that mean something, behind the sequence number.
const USED_WORDS: usize = 9;
/// The numbers of files begin here: see [`super::wire::PassedFile::number`].
pub const FIRST_FILE: u64 = 2;
/// What stands in place of a file's number where nothing does.
const NO_BASE: u64 = 0;
/// What stands there where the count stands still.
const STOPPED: u64 = 1;

/// What the page says of one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which event it is about: entries are used again.
    pub handle: Handle,
    /// What it had counted when it was read last, and when that was.
    pub moment: TimedTotals,
    /// How its count is found now.
    pub base: Base,
}

/// How the count of an event is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// Only the service can say.
    Ask,
    /// It doesn't count at present, and its totals are these.
    Stopped(Totals),
    /// It is what the file with this number (from [`FIRST_FILE`] on) says, less these totals, modulo 2^64 each.
    File(u64, Totals),
}

/// The service's side. The memory lives until both sides have let go of it.
#[derive(Debug)]
pub struct PageWriter {
    memory: WritableWords,
    entries: u32,
}

/// A client's side.
#[derive(Debug)]
pub struct Page {
    memory: ReadableWords,
    entries: u32,
}

/// An entry as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What it said.
    pub entry: Entry,
    /// Since when.
    pub mark: Mark,
}

/// An entry as it was last written: see [`Page::is_still`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    base: usize,
    sequence: u64,
}

impl Words for WritableWords {
    const TRIES: u32 = 1;

    fn load(&self, at: usize, ordering: Ordering) -> u64 {
        self.load(at, ordering)
    }

    fn store(&self, at: usize, value: u64, ordering: Ordering) {
        self.store(at, value, ordering);
    }

    fn fence(ordering: Ordering) {
        fence(ordering);
    }

    fn pause() {}
}

impl Words for ReadableWords {
    const TRIES: u32 = 200;

    #[inline]
    fn load(&self, at: usize, ordering: Ordering) -> u64 {
        self.load(at, ordering)
    }

    /// A reader doesn't write what it reads.
    fn store(&self, _: usize, _: u64, _: Ordering) {}

    #[inline]
    fn fence(ordering: Ordering) {
        fence(ordering);
    }

    fn pause() {
        std::hint::spin_loop();
    }
}

impl PageWriter {
    /// Makes a page of so many entries, which say nothing yet; and its file, to be passed to the client.
    ///
    /// # Errors
    /// `EINVAL` for none, for more than [`MOST_ENTRIES`], or before Linux 5.1, where such memory can't be protected;
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn make(entries: u32) -> Result<(Self, OwnedFd), Errno> {
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(Errno::EINVAL);
        }
        let (memory, file) = WritableWords::make(entries as usize * ENTRY_WORDS)?;
        Ok((Self { memory, entries }, file))
    }

    /// Writes an entry, if there is one by that number. It never waits for a reader.
    pub fn write(&mut self, index: u32, entry: &Entry) {
        if index >= self.entries {
            return;
        }
        let Entry { handle, moment: TimedTotals { totals, time_ns }, base } = *entry;
        let (kind, of) = match base {
            Base::Ask => (NO_BASE, Totals::default()),
            Base::Stopped(totals) => (STOPPED, totals),
            Base::File(number, less) if number >= FIRST_FILE => (number, less),
            Base::File(..) => (NO_BASE, Totals::default()),
        };
        let [value, enabled, running] = words_of(totals);
        let [base_value, base_enabled, base_running] = words_of(of);
        let words = [handle.0, value, enabled, running, time_ns, kind, base_value, base_enabled, base_running];
        let words: [u64; USED_WORDS] = words;
        write(&self.memory, index as usize * ENTRY_WORDS, &words);
    }

    /// Makes an entry say nothing: of an event that is closed.
    pub fn clear(&mut self, index: u32) {
        self.write(index, &Entry { handle: Handle(0), moment: TimedTotals::default(), base: Base::Ask });
    }
}

const fn words_of(totals: Totals) -> [u64; 3] {
    [totals.value, totals.enabled_ns, totals.running_ns]
}

const fn totals_of([value, enabled_ns, running_ns]: [u64; 3]) -> Totals {
    Totals { value, enabled_ns, running_ns }
}

impl Page {
    /// Maps the page that came from a service, to be read.
    ///
    /// # Errors
    /// `EINVAL` where it has no entries, too many, or isn't memory; `EPERM` where it could become shorter; `EOVERFLOW` where it is
    /// shorter; `EACCES`; `ENOMEM`.
    pub fn map(file: impl AsFd, entries: u32) -> Result<Self, Errno> {
        if entries == 0 || entries > MOST_ENTRIES {
            return Err(Errno::EINVAL);
        }
        let memory = ReadableWords::map(file.as_fd(), entries as usize * ENTRY_WORDS)?;
        Ok(Self { memory, entries })
    }

    /// What an event had counted when the service read it last, and when that was; `None` where the entry is about another
    /// one, or just being written.
    #[must_use]
    #[inline]
    pub fn cached(&self, index: u32, of: Handle) -> Option<TimedTotals> {
        let ([handle, value, enabled, running, time_ns], _) = read::<_, 5>(&self.memory, self.place(index)?)?;
        let totals = totals_of([value, enabled, running]);
        (handle == of.0).then_some(TimedTotals { totals, time_ns })
    }

    /// All that an entry says of an event; `None` where it is about another one, or just being written.
    #[must_use]
    pub fn read(&self, index: u32, of: Handle) -> Option<Seen> {
        let at = self.place(index)?;
        let (words, sequence) = read::<_, USED_WORDS>(&self.memory, at)?;
        let [handle, value, enabled, running, time_ns, kind, base @ ..] = words;
        let base = match kind {
            NO_BASE => Base::Ask,
            STOPPED => Base::Stopped(totals_of(base)),
            number => Base::File(number, totals_of(base)),
        };
        let moment = TimedTotals { totals: totals_of([value, enabled, running]), time_ns };
        let entry = Entry { handle: Handle(handle), moment, base };
        (handle == of.0).then_some(Seen { entry, mark: Mark { base: at, sequence } })
    }

    /// Whether an entry was not written since: then what was read from a file in between belongs to what it said.
    #[must_use]
    #[inline]
    pub fn is_still(&self, mark: Mark) -> bool {
        is_still(&self.memory, mark.base, mark.sequence)
    }

    #[inline]
    fn place(&self, index: u32) -> Option<usize> {
        (index < self.entries).then_some(index as usize * ENTRY_WORDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn totals(number: u64) -> Totals {
        Totals { value: number, enabled_ns: number * 2, running_ns: number * 3 }
    }

    fn entry(number: u64, base: Base) -> Entry {
        Entry { handle: Handle(9), moment: TimedTotals { totals: totals(number), time_ns: number * 4 }, base }
    }

    #[test]
    fn entries_come_back() {
        let (mut writer, file) = PageWriter::make(3).unwrap();
        let page = Page::map(&file, 3).unwrap();
        drop(file);
        assert_eq!((page.cached(0, Handle(9)), page.read(0, Handle(9))), (None, None));
        for base in [Base::Ask, Base::Stopped(totals(5)), Base::File(2, totals(6)), Base::File(u64::MAX, totals(7))] {
            let written = entry(1, base);
            writer.write(2, &written);
            let seen = page.read(2, Handle(9)).unwrap();
            assert_eq!(seen.entry, written);
            assert_eq!(page.cached(2, Handle(9)), Some(written.moment));
            assert!(page.is_still(seen.mark));
            assert_eq!(page.read(2, Handle(8)), None, "it is about another event");
            writer.write(1, &written);
            assert!(page.is_still(seen.mark));
            writer.write(2, &written);
            assert!(!page.is_still(seen.mark));
        }
        // A number that means something else never gets in.
        writer.write(2, &entry(1, Base::File(STOPPED, totals(6))));
        assert_eq!(page.read(2, Handle(9)).unwrap().entry.base, Base::Ask);
        writer.clear(2);
        assert_eq!(page.cached(2, Handle(9)), None);
    }

    #[test]
    fn numbers_that_are_out_of_the_page_reach_nothing() {
        let (mut writer, file) = PageWriter::make(1).unwrap();
        let page = Page::map(&file, 1).unwrap();
        for index in [1, 2, MOST_ENTRIES, u32::MAX] {
            writer.write(index, &entry(1, Base::Ask));
            assert_eq!((page.cached(index, Handle(9)), page.read(index, Handle(9))), (None, None));
        }
        assert_eq!(Page::map(&file, 0).err(), Some(Errno::EINVAL));
        assert_eq!(Page::map(&file, 2).err(), Some(Errno::EOVERFLOW));
        assert_eq!(Page::map(&file, MOST_ENTRIES + 1).err(), Some(Errno::EINVAL));
        assert_eq!(PageWriter::make(0).err(), Some(Errno::EINVAL));
        assert_eq!(PageWriter::make(MOST_ENTRIES + 1).err(), Some(Errno::EINVAL));
    }

    /// A service that writes whatever it likes: no reader hangs or panics.
    #[test]
    fn hostile_words_are_numbers() {
        let (writer, file) = PageWriter::make(4).unwrap();
        let page = Page::map(&file, 4).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            for at in 0..4 * ENTRY_WORDS {
                let dice = random.u64(..);
                let word = if dice & 3 == 0 { [0, 1, 2, 9, u64::MAX][dice as usize % 5] } else { dice };
                writer.memory.store(at, word, Ordering::Relaxed);
            }
            for index in 0..5 {
                let _ = page.cached(index, Handle(9));
                if let Some(seen) = page.read(index, Handle(9)) {
                    assert!(page.is_still(seen.mark));
                }
            }
        }
    }

    #[test]
    fn real_threads_read_no_half_entries() {
        let (mut writer, file) = PageWriter::make(1).unwrap();
        let page = Page::map(&file, 1).unwrap();
        writer.write(0, &entry(0, Base::Stopped(totals(0))));
        let stop = Arc::new(AtomicBool::new(false));
        let writing = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !writing.load(Ordering::Relaxed) {
                number += 1;
                writer.write(0, &entry(number, Base::Stopped(totals(number))));
            }
            number
        });
        let mut last = 0;
        for _ in 0..200_000 {
            let Some(seen) = page.read(0, Handle(9)) else { continue };
            let number = seen.entry.moment.totals.value;
            assert_eq!(seen.entry, entry(number, Base::Stopped(totals(number))), "torn");
            assert!(number >= last, "it went back");
            last = number;
        }
        stop.store(true, Ordering::Relaxed);
        let written = thread.join().unwrap();
        assert_eq!(page.cached(0, Handle(9)).unwrap().totals.value, written);
    }
}
