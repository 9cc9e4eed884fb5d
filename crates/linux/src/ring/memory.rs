//! The memory of the engine's rings, for one process to write and others to read.
//!
//! What it is: two files without a name. The one with the records is written by its maker only, whichever other process
//! has it: it is sealed. The other one is a word, up to where records were taken, for the one reader that takes them out. A process
//! that gets the first file looks ([`RingFile`]); one that gets both may also take records out ([`TakingFile`]).
//! Read first: [`RingMemory`].
//!
//! **Invariant:** what the other side can write is loaded as numbers and no code believes it; a file is mapped only if it can't
//! become shorter.

use crate::sys::{Errno, ReadableWords, SharedWords, WritableWords, words};
use pmux_engine::ring_buffer::{RingEnd, RingPages, RingView, SHOWN_WORDS};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Words before the records: a page.
const HEAD_WORDS: usize = 512;
/// Words of the file in which a reader writes. It needs one.
const TAKEN_WORDS: usize = HEAD_WORDS;
/// Most bytes of records: 1 GiB.
pub const MOST_RING_BYTES: usize = 1 << 30;

/// The writer's side. The memory lives until all sides have let go of it.
#[derive(Debug)]
pub struct RingMemory {
    records: WritableWords,
    records_file: OwnedFd,
    taken: SharedWords,
    taken_file: OwnedFd,
    data_words: usize,
}

/// The side that looks.
#[derive(Debug)]
pub struct RingFile {
    records: ReadableWords,
    data_words: usize,
}

/// The side of the one who takes records out.
#[derive(Debug)]
pub struct TakingFile {
    ring: RingFile,
    taken: SharedWords,
}

/// How many words a ring of so many bytes has.
fn words_of(data_bytes: usize) -> Result<usize, Errno> {
    let fits = data_bytes.is_power_of_two() && (8..=MOST_RING_BYTES).contains(&data_bytes);
    if fits { Ok(data_bytes / 8) } else { Err(Errno::EINVAL) }
}

impl RingMemory {
    /// Makes memory for a ring of so many bytes of records, a power of two.
    ///
    /// # Errors
    /// `EINVAL` for a size that no ring has, or before Linux 5.1, where such memory can't be protected; `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn make(data_bytes: usize) -> Result<Self, Errno> {
        let data_words = words_of(data_bytes)?;
        let (records, records_file) = WritableWords::make(HEAD_WORDS + data_words)?;
        let (taken, taken_file) = SharedWords::make(TAKEN_WORDS)?;
        Ok(Self { records, records_file, taken, taken_file, data_words })
    }

    /// The file for the side that looks.
    #[must_use]
    pub fn records_file(&self) -> BorrowedFd<'_> {
        self.records_file.as_fd()
    }

    /// The file that goes with it to the one who takes records out.
    #[must_use]
    pub fn taken_file(&self) -> BorrowedFd<'_> {
        self.taken_file.as_fd()
    }

    #[inline]
    fn data(&self, at: usize) -> &[AtomicU64] {
        self.records.words().get(HEAD_WORDS + at..).unwrap_or_default()
    }
}

impl RingView for RingMemory {
    type Word = AtomicU64;

    #[inline]
    fn look(&self, word: usize) -> u64 {
        self.records.load(word, Ordering::Acquire)
    }
    #[inline]
    fn data_words(&self) -> usize {
        self.data_words
    }
    #[inline]
    fn get(&self, at: usize, into: &mut [u8]) {
        pmux_engine::ring_buffer::get_words(self.data(at), into);
    }
}

/// The first of the words, which there are.
#[inline]
fn first(words: &[AtomicU64]) -> &[AtomicU64; SHOWN_WORDS] {
    static NOWHERE: [AtomicU64; SHOWN_WORDS] = [const { AtomicU64::new(0) }; SHOWN_WORDS];
    words.first_chunk().unwrap_or(&NOWHERE)
}

impl RingEnd for RingMemory {
    #[inline]
    fn taken(&self) -> &AtomicU64 {
        &first(self.taken.words())[0]
    }
}

impl RingPages for RingMemory {
    #[inline]
    fn shown(&self) -> &[AtomicU64; SHOWN_WORDS] {
        first(self.records.words())
    }
    #[inline]
    fn put(&self, at: usize, bytes: &[u8]) {
        words::put(self.data(at), bytes);
    }
}

impl RingFile {
    /// Maps a ring of so many bytes of records that came from its writer.
    ///
    /// # Errors
    /// `EINVAL` for a size that no ring has, or where it isn't memory; `EPERM` where it could become shorter; `EOVERFLOW` where it is
    /// shorter; `EACCES`; `ENOMEM`.
    pub fn map(records: impl AsFd, data_bytes: usize) -> Result<Self, Errno> {
        let data_words = words_of(data_bytes)?;
        Ok(Self { records: ReadableWords::map(records.as_fd(), HEAD_WORDS + data_words)?, data_words })
    }
}

impl RingView for RingFile {
    type Word = AtomicU64;

    #[inline]
    fn look(&self, word: usize) -> u64 {
        self.records.load(word, Ordering::Acquire)
    }
    #[inline]
    fn data_words(&self) -> usize {
        self.data_words
    }
    #[inline]
    fn get(&self, at: usize, into: &mut [u8]) {
        self.records.copy(HEAD_WORDS + at, into);
    }
}

impl TakingFile {
    /// Maps both files of a ring of so many bytes of records.
    ///
    /// # Errors
    /// Those of [`RingFile::map`], for either.
    pub fn map(records: impl AsFd, taken: impl AsFd, data_bytes: usize) -> Result<Self, Errno> {
        let ring = RingFile::map(records, data_bytes)?;
        Ok(Self { ring, taken: SharedWords::map(taken.as_fd(), TAKEN_WORDS)? })
    }
}

impl RingView for TakingFile {
    type Word = AtomicU64;

    #[inline]
    fn look(&self, word: usize) -> u64 {
        self.ring.look(word)
    }
    #[inline]
    fn data_words(&self) -> usize {
        self.ring.data_words()
    }
    #[inline]
    fn get(&self, at: usize, into: &mut [u8]) {
        self.ring.get(at, into);
    }
}

impl RingEnd for TakingFile {
    #[inline]
    fn taken(&self) -> &AtomicU64 {
        &first(self.taken.words())[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_engine::Nanos;
    use pmux_engine::ring_buffer::{
        Forward, LossReason, Overwrite, Piece, Reader, RingSetup, SnapshotReader, Taking, Writer,
    };
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::os::fd::AsRawFd;

    const BYTES: usize = 4096;

    fn record(number: u64) -> [u8; 16] {
        let mut record = [0; 16];
        record[6] = 16;
        record[8..].copy_from_slice(&number.to_ne_bytes());
        record
    }

    fn number(record: &[u8]) -> u64 {
        u64::from_ne_bytes(record[8..16].try_into().unwrap())
    }

    #[test]
    fn what_one_side_writes_the_other_takes_out() {
        let writer: Writer<_, Forward> = Writer::new(RingMemory::make(BYTES).unwrap(), RingSetup::default()).unwrap();
        let memory = writer.pages();
        let end = TakingFile::map(memory.records_file(), memory.taken_file(), BYTES).unwrap();
        let mut reader = Reader::new(Taking(end));
        let mut expected = 0;
        for round in 0..1000 {
            for number in 0..=round % 300 {
                let written = writer.write(&record(round * 1000 + number), Nanos(0));
                assert_eq!(written.is_ok(), number < 256, "it has been emptied before");
            }
            expected += (round % 300 + 1).min(256);
            let mut last = round * 1000;
            reader
                .drain(&mut |record| {
                    assert_eq!(number(record), last);
                    last += 1;
                })
                .unwrap();
        }
        let tally = writer.tally();
        assert_eq!(
            (tally.records, tally.bad_tail, tally.lost.records()),
            (expected, 0, tally.lost.of(LossReason::Full).records)
        );
    }

    #[test]
    fn any_number_look_at_it_while_it_is_overwritten() {
        let writer: Writer<_, Overwrite> = Writer::new(RingMemory::make(BYTES).unwrap(), RingSetup::default()).unwrap();
        let readers: Vec<_> = (0..3)
            .map(|_| SnapshotReader::from_now(RingFile::map(writer.pages().records_file(), BYTES).unwrap()))
            .collect();
        let most = 50_000;
        std::thread::scope(|scope| {
            let reading = readers.into_iter().map(|mut reader| {
                scope.spawn(move || {
                    let (mut next, mut seen) = (0, 0);
                    while next < most {
                        let read = reader.read(&mut |piece| match piece {
                            Piece::Records { bytes, .. } => {
                                for record in bytes.chunks(16) {
                                    assert_eq!(number(record), next, "torn, or twice");
                                    (next, seen) = (next + 1, seen + 1);
                                }
                            }
                            Piece::Missed { bytes, .. } => next += bytes / 16,
                        });
                        read.unwrap();
                    }
                    (reader, seen)
                })
            });
            let reading: Vec<_> = reading.collect();
            for number in 0..most {
                assert!(writer.write(&record(number), Nanos(0)).is_ok());
            }
            for reading in reading {
                let (mut reader, seen) = reading.join().unwrap();
                // A reading between the two words of a record that is being shown does not know the number of records yet.
                reader.read(&mut |_| unreachable!("it has read everything")).unwrap();
                assert_eq!(reader.missed_records(), Some(most - seen));
            }
        });
    }

    /// A process that has the files, as the same user or as root, can't write records, nor make anything shorter.
    #[test]
    fn readers_write_one_word_and_nothing_else() {
        let memory = RingMemory::make(BYTES).unwrap();
        let denied = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(1);
        let open = |file: BorrowedFd<'_>| {
            OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
        };
        assert!(denied(open(memory.records_file()).write_all(b"lies")));
        for file in [memory.records_file(), memory.taken_file()] {
            assert!(denied(open(file).set_len(0)) && denied(open(file).set_len(1 << 24)));
        }
        // The word itself may say anything.
        let writer: Writer<_, Forward> = Writer::new(memory, RingSetup::default()).unwrap();
        open(writer.pages().taken_file()).write_all(&u64::MAX.to_ne_bytes()).unwrap();
        for name in 0..300 {
            assert_eq!(writer.write(&record(name), Nanos(0)).is_ok(), name < 256);
        }
        assert_eq!((writer.tally().bad_tail, writer.tally().tail), (44, 0));
    }

    #[test]
    fn other_files_are_refused() {
        let memory = RingMemory::make(BYTES).unwrap();
        assert_eq!(RingMemory::make(24).err(), Some(Errno::EINVAL));
        assert_eq!(RingMemory::make(2 * MOST_RING_BYTES).err(), Some(Errno::EINVAL));
        assert_eq!(RingFile::map(memory.records_file(), 100).err(), Some(Errno::EINVAL));
        assert_eq!(RingFile::map(memory.records_file(), 2 * BYTES).err(), Some(Errno::EOVERFLOW));
        let swapped = TakingFile::map(memory.records_file(), memory.records_file(), BYTES);
        assert_eq!(swapped.err(), Some(Errno::EPERM));
        let (pipe, _writer) = std::io::pipe().unwrap();
        assert_eq!(RingFile::map(pipe, BYTES).err(), Some(Errno::EINVAL));
    }
}
