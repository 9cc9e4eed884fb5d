//! Rings under real threads, and a writer that is interrupted at each word that it writes.
//!
//! What it is: what loom's small rings don't have: many records, rings of many sizes, writers nested to any depth. Small enough
//! for Miri (`cargo +nightly miri test -p pmux-engine ring::tests::threads`), which sees every access as it is compiled.

use super::*;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::rc::Rc;
use std::thread;

const RECORDS: u32 = if cfg!(miri) { 60 } else { 20_000 };

/// Two writers side by side and two readers: nothing is torn, nothing is unaccounted for.
#[test]
fn nothing_is_unaccounted_for_among_threads() {
    let (writer, pages) = ring::<Overwrite>(1024, RingSetup::default());
    let (writer, done) = (&writer, &AtomicBool::new(false));
    thread::scope(|scope| {
        let writing = [0, RECORDS].map(|first| {
            scope.spawn(move || {
                for name in first..first + RECORDS {
                    let _ = write(writer, name, 8 + 8 * (name as usize % 20));
                }
            })
        });
        let reading = [0, 1].map(|_| {
            let pages = Arc::clone(&pages);
            scope.spawn(move || {
                let (mut reader, mut read) = (SnapshotReader::from_now(pages), 0);
                let mut last = [0, RECORDS];
                while !done.load(Ordering::Acquire) || reader.read(&mut |_| ()).unwrap() != Progress::default() {
                    for number in seen(&mut reader).0 {
                        let of = usize::from(number >= RECORDS);
                        assert!(number >= last[of], "{number} after {}", last[of]);
                        last[of] = number + 1;
                        read += 1;
                    }
                }
                (read, reader.missed_records())
            })
        });
        for writing in writing {
            writing.join().unwrap();
        }
        done.store(true, Ordering::Release);
        let tally = writer.tally();
        assert_eq!(tally.records + tally.lost.records(), u64::from(2 * RECORDS));
        for reading in reading {
            let (read, missed) = reading.join().unwrap();
            assert!(read <= tally.records && missed.is_none_or(|missed| read + missed <= tally.records));
        }
    });
}

/// An exclusive reader, one writer: what was produced was read or lost, and the reader knows how much.
#[test]
fn a_slow_reader_loses_what_is_counted() {
    let (writer, pages) = ring::<Forward>(512, RingSetup::default());
    let (mut reader, mut read) = (Reader::new(Taking(pages)), 0);
    thread::scope(|scope| {
        let writing = scope.spawn(|| (0..RECORDS).filter(|&name| write(&writer, name, 48).is_ok()).count());
        let mut last = None;
        while !writing.is_finished() || reader.waiting_bytes() > 0 {
            for number in taken(&mut reader) {
                assert!(Some(number) > last);
                (last, read) = (Some(number), read + 1);
            }
        }
        assert_eq!(writing.join().unwrap(), read);
    });
    let tally = writer.tally();
    assert_eq!((read as u64 + tally.lost.of(LossReason::Full).records, tally.bad_tail), (u64::from(RECORDS), 0));
}

/// Memory whose every word that is written may bring an interrupt.
struct Interrupting {
    pages: HeapPages,
}

std::thread_local! {
    static INTERRUPT: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

fn interrupt() {
    if let Some(interrupt) = INTERRUPT.with_borrow(Clone::clone) {
        interrupt();
    }
}

impl RingView for Interrupting {
    type Word = AtomicU64;

    fn look(&self, word: usize) -> u64 {
        self.pages.look(word)
    }
    fn data_words(&self) -> usize {
        interrupt();
        self.pages.data_words()
    }
    fn get(&self, at: usize, into: &mut [u8]) {
        self.pages.get(at, into);
    }
}

impl RingEnd for Interrupting {
    fn taken(&self) -> &AtomicU64 {
        interrupt();
        self.pages.taken()
    }
}

impl RingPages for Interrupting {
    fn shown(&self) -> &[AtomicU64; SHOWN_WORDS] {
        interrupt();
        self.pages.shown()
    }
    fn put(&self, at: usize, bytes: &[u8]) {
        interrupt();
        // Word by word, with an interrupt between any two.
        for (word, bytes) in bytes.chunks(8).enumerate() {
            self.pages.put(at + word, bytes);
            interrupt();
        }
    }
}

/// Interrupts write, and are interrupted while they do.
#[test]
fn interrupted_writers_lap_no_other() {
    fn one<M: Mode>(ring_bytes: usize, seed: u64) {
        let mut rng = fastrand(seed);
        let pages = Arc::new(Interrupting { pages: HeapPages::new(ring_bytes / 8) });
        let writer: Arc<Writer<_, M>> = Arc::new(Writer::new(Arc::clone(&pages), RingSetup::default()).unwrap());
        let name = Rc::new(Cell::new(0));
        let next = move |random: u64, name: &Cell<u32>| {
            name.set(name.get() + 1);
            record(name.get(), 8 + 8 * (random as usize % (ring_bytes / 16)))
        };
        let (inner, names, inner_dice, depth) =
            (Arc::clone(&writer), Rc::clone(&name), RefCell::new(fastrand(!seed)), Cell::new(0));
        let interrupting: Rc<dyn Fn()> = Rc::new(move || {
            let random = inner_dice.borrow_mut()();
            if random.is_multiple_of(3) && depth.get() < 3 {
                depth.set(depth.get() + 1);
                let _ = inner.write(&next(random / 3, &names), Nanos(0));
                depth.set(depth.get() - 1);
            }
        });
        let mut read = 0;
        for _ in 0..RECORDS / 20 {
            INTERRUPT.set(Some(Rc::clone(&interrupting)));
            let _ = writer.write(&next(rng(), &name), Nanos(0));
            INTERRUPT.set(None);
            let (whole, progress) = seen(&mut SnapshotReader::from_oldest(Arc::clone(&pages)));
            assert!(progress.missed_bytes == 0 && progress.bytes <= ring_bytes as u64);
            let tally = writer.tally();
            assert_eq!(tally.records + tally.lost.records(), u64::from(name.get()));
            assert_eq!(tally.tail + progress.bytes, tally.bytes);
            assert_eq!(tally.bad_tail, 0);
            if M::marks(64) == 0 && rng().is_multiple_of(4) {
                read += taken(&mut Reader::new(Taking(Arc::clone(&pages)))).len() as u64;
            } else if M::marks(64) == 0 {
                // What was taken is there as long as its room is not wanted.
                assert!((tally.records - read..=tally.records).contains(&(whole.len() as u64)));
            }
        }
    }
    for (seed, ring_bytes) in [(1, 32), (2, 64), (3, 256), (4, 1024)] {
        one::<Overwrite>(ring_bytes, seed);
        one::<Forward>(ring_bytes, seed);
    }
}

/// A small generator with a seed: the same numbers on every run.
pub(super) fn fastrand(seed: u64) -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 3
    }
}
