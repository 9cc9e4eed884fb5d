//! Rings that are overwritten: against a model, with lies, and the kernel's.

use super::backward::{BackwardSource, Copied};
use super::{BackwardRing, Corruption, Excerpt, Ring, RingError, Writers};
use crate::host::bytes_of;
use crate::sys::{Errno, perf};
use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, Wakeup, sw};
use pmux_abi::record::{Record, RecordKind, SampleLayout, decode_record};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};

/// A ring whose writer is the test; it also writes in the middle of a copy.
struct Fake {
    data: RefCell<Vec<u8>>,
    /// What is written, and what of it is shown, in bytes.
    written: Cell<u64>,
    shown: Cell<u64>,
    /// What is written when so many words of a copy are done.
    meanwhile: RefCell<Vec<(usize, Vec<u8>)>>,
}

impl Fake {
    fn new(bytes: usize) -> Self {
        let (written, shown) = (Cell::new(0), Cell::new(0));
        Self { data: RefCell::new(vec![0xEE; bytes]), written, shown, meanwhile: RefCell::default() }
    }

    /// Writes a record without showing it.
    fn begin(&self, record: &[u8]) {
        let mut data = self.data.borrow_mut();
        self.written.set(self.written.get() + record.len() as u64);
        let position = self.written.get().wrapping_neg();
        for (offset, byte) in (0..).zip(record) {
            let at = position.wrapping_add(offset) as usize & (data.len() - 1);
            data[at] = *byte;
        }
    }

    fn show(&self) {
        self.shown.set(self.written.get());
    }

    fn put(&self, record: &[u8]) {
        self.begin(record);
        self.show();
    }
}

impl BackwardSource for Fake {
    fn bytes(&self) -> u64 {
        self.data.borrow().len() as u64
    }
    fn head(&self) -> u64 {
        self.shown.get().wrapping_neg()
    }
    fn settled_head(&self) -> u64 {
        self.head()
    }
    fn copy(&self, position: u64, into: &mut [u8]) {
        for (word, chunk) in into.chunks_mut(8).enumerate() {
            loop {
                let due = self.meanwhile.borrow().iter().position(|(at, _)| *at <= word);
                let Some(due) = due else { break };
                let (_, record) = self.meanwhile.borrow_mut().remove(due);
                self.put(&record);
            }
            let data = self.data.borrow();
            let at = position.wrapping_add(word as u64 * 8) as usize & (data.len() - 1);
            chunk.copy_from_slice(&data[at..at + 8]);
        }
        self.meanwhile.borrow_mut().drain(..).for_each(|(_, record)| self.put(&record));
    }
}

/// A record of so many bytes that is told from all others.
fn record(size: u16, number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = number.to_ne_bytes().iter().copied().cycle().take(usize::from(size)).collect();
    bytes[..6].copy_from_slice(&[9, 0, 0, 0, 2, 0]);
    bytes[6..8].copy_from_slice(&size.to_ne_bytes());
    bytes
}

fn take(fake: &Fake, known: u64, writers: Writers) -> Result<Excerpt, RingError> {
    Copied::begin(fake, known)?.settle(writers)
}

fn records(excerpt: &Excerpt) -> Vec<Vec<u8>> {
    excerpt.records().map(<[u8]>::to_vec).collect()
}

#[test]
fn an_empty_ring_has_nothing() {
    let excerpt = take(&Fake::new(64), 0, Writers::Done).unwrap();
    assert_eq!((excerpt.bytes(), excerpt.missing_bytes(), excerpt.records().len()), (0, 0, 0));
}

#[test]
fn what_is_known_is_not_copied_again() {
    let fake = Fake::new(1024);
    fake.put(&record(64, 1));
    let first = take(&fake, 0, Writers::Done).unwrap();
    fake.put(&record(24, 2));
    fake.put(&record(40, 3));
    let second = take(&fake, first.written_bytes(), Writers::Done).unwrap();
    assert_eq!(records(&second), [record(24, 2), record(40, 3)]);
    let third = take(&fake, second.written_bytes(), Writers::Done).unwrap();
    assert_eq!((third.bytes(), third.missing_bytes(), third.corrupt()), (0, 0, None));
}

#[test]
fn heads_that_cant_be_are_refused() {
    let fake = Fake::new(64);
    fake.put(&record(16, 1));
    for lie in [17, 8] {
        fake.shown.set(lie);
        let answer = take(&fake, 16, Writers::Done);
        assert_eq!(
            answer,
            Err(RingError::Corrupt {
                what: Corruption::Head { head: lie.wrapping_neg() },
                position: 16_u64.wrapping_neg(),
                skipped_bytes: 0
            })
        );
    }
    // It goes back while we copy.
    fake.show();
    let copied = Copied::begin(&fake, 0).unwrap();
    fake.shown.set(8);
    assert!(matches!(copied.settle(Writers::Done), Err(RingError::Corrupt { what: Corruption::Head { .. }, .. })));
    // It claims to have been around more often than anybody can count: nothing is read beyond the ring.
    for lie in [!7, 1 << 63] {
        fake.shown.set(lie);
        let excerpt = take(&fake, 0, Writers::Done).unwrap();
        assert!(excerpt.bytes() <= 64);
    }
}

#[test]
fn sizes_that_cant_be_end_an_excerpt() {
    for size in [0, 1, 7, 12, 65535, 64] {
        let fake = Fake::new(128);
        let mut wrong = record(16, 1);
        wrong[6..8].copy_from_slice(&u16::to_ne_bytes(size));
        fake.put(&wrong);
        fake.put(&record(24, 2));
        let excerpt = take(&fake, 0, Writers::Done).unwrap();
        assert_eq!(records(&excerpt), [record(24, 2)], "size {size}");
        assert_eq!(excerpt.corrupt(), Some(Corruption::RecordSize { size }));
        assert_eq!(excerpt.missing_bytes(), 16);
    }
}

#[test]
fn what_is_being_written_is_given_up_for() {
    let fake = Fake::new(256);
    (0..20).for_each(|number| fake.put(&record(32, number)));
    // Over the oldest one, in the middle of our copy, and not shown.
    let copied = Copied::begin(&fake, 0).unwrap();
    fake.begin(&record(32, 20));
    let excerpt = copied.settle(Writers::Unknown).unwrap();
    assert_eq!(records(&excerpt), (16..20).map(|number| record(32, number)).collect::<Vec<_>>());
    fake.show();
    let excerpt = take(&fake, 0, Writers::Done).unwrap();
    assert_eq!(records(&excerpt), (13..21).map(|number| record(32, number)).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a list of all that was ever written: what comes out is what of it can be there, and nothing else.
    #[test]
    fn exactly_what_was_not_overwritten_comes_out(
        rounds in prop::collection::vec(
            (prop::collection::vec(1_u16..9, 0..40), prop::collection::vec((0_usize..40, 1_u16..9), 0..12)),
            1..6,
        ),
    ) {
        const CAPACITY: u64 = 256;
        let fake = Fake::new(CAPACITY as usize);
        let (mut all, mut number, mut known): (Vec<(u64, Vec<u8>)>, u64, u64) = (Vec::new(), 0, 0);
        let mut next = |words: u16| {
            number += 1;
            record(words * 8, number)
        };
        for (before, meanwhile) in rounds {
            for words in before {
                let record = next(words);
                all.push((fake.written.get(), record.clone()));
                fake.put(&record);
            }
            let written = fake.written.get();
            let mut meanwhile: Vec<_> = meanwhile.into_iter().map(|(at, words)| (at, next(words))).collect();
            meanwhile.sort_by_key(|(at, _)| *at);
            fake.meanwhile.replace(meanwhile.clone());
            let excerpt = take(&fake, known, Writers::Done).unwrap();
            // What a copy of nothing left for later.
            let left: Vec<_> = fake.meanwhile.take();
            prop_assert!(left.is_empty());
            let safe = |begins: u64| fake.written.get() - begins <= CAPACITY;
            let expected: Vec<_> =
                all.iter().filter(|(begins, _)| *begins >= known && safe(*begins)).map(|(_, record)| record.clone()).collect();
            prop_assert_eq!(records(&excerpt), expected);
            prop_assert_eq!(excerpt.bytes() + excerpt.missing_bytes(), written - known);
            prop_assert_eq!(excerpt.corrupt(), None);
            let mut begins = written;
            for (_, record) in meanwhile {
                let long = record.len() as u64;
                all.push((begins, record));
                begins += long;
            }
            known = written;
        }
    }

    /// Whatever stands in the memory, records are whole and in it.
    #[test]
    fn memory_without_a_meaning_does_no_harm(
        data in prop::collection::vec(prop_oneof![Just(0_u8), Just(8), Just(16), any::<u8>()], 256),
        heads in (any::<u64>(), any::<u64>()),
        known in any::<u64>(),
    ) {
        let fake = Fake::new(256);
        fake.data.replace(data);
        fake.shown.set(heads.0);
        let Ok(copied) = Copied::begin(&fake, known) else { return Ok(()) };
        fake.shown.set(heads.1);
        if let Ok(excerpt) = copied.settle(Writers::Unknown) {
            let mut bytes = 0;
            for record in excerpt.records() {
                prop_assert!(record.len() >= 8 && record.len() % 8 == 0);
                prop_assert_eq!(usize::from(u16::from_ne_bytes([record[6], record[7]])), record.len());
                bytes += record.len() as u64;
            }
            prop_assert_eq!(bytes, excerpt.bytes());
        }
    }
}

/// An event of this thread that tells of its names, or why there is none.
fn names(full: AttrFlags) -> Option<(OwnedFd, SampleLayout)> {
    let attr = Attr {
        kind: EventType::SOFTWARE,
        config: sw::DUMMY,
        flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::COMM | AttrFlags::SAMPLE_ID_ALL | full,
        sample: SampleFormat::TID | SampleFormat::TIME | SampleFormat::IDENTIFIER,
        wakeup: Wakeup::Bytes(0),
        ..Attr::default()
    };
    Some((super::tests::opened(&bytes_of(&attr))?, SampleLayout::new(&attr)))
}

/// The number that a record names this thread by.
fn name(record: &[u8], layout: &SampleLayout) -> u32 {
    match decode_record(record, layout).unwrap().0 {
        Record::Comm(comm) => std::str::from_utf8(comm.comm).unwrap().trim_start_matches("name").parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// So often a thread is renamed, as `prctl(2)` does it.
const NAMES: u32 = 10_000;

fn rename(number: u32) {
    std::fs::write("/proc/thread-self/comm", format!("name{number}")).unwrap();
}

#[test]
fn of_ten_thousand_names_a_forward_ring_has_all_and_an_overwritten_one_the_last() {
    let Some((forward, layout)) = names(AttrFlags::empty()) else { return };
    let Some((backward, _)) = names(AttrFlags::WRITE_BACKWARD) else { return };
    // Full after some hundreds, and then emptied.
    let mut all = Ring::map(forward.as_fd(), 8).unwrap();
    let newest = BackwardRing::map(backward.as_fd(), 8).unwrap();
    let (mut seen, mut followed, mut known) = (Vec::new(), Vec::new(), 0);
    for number in 0..NAMES {
        rename(number);
        if number % 100 == 0 || number == NAMES - 1 {
            all.drain(&mut |record| {
                assert_eq!(record[..4], RecordKind::COMM.0.to_ne_bytes());
                seen.push(name(record, &layout));
            })
            .unwrap();
            // Who looks often enough misses nothing here either.
            let excerpt = newest.excerpt(known, || Writers::Done).unwrap();
            assert_eq!((excerpt.missing_bytes(), excerpt.corrupt()), (0, None));
            followed.extend(excerpt.records().map(|record| name(record, &layout)));
            known = excerpt.written_bytes();
        }
    }
    assert!(seen.iter().copied().eq(0..NAMES), "{} of {NAMES}", seen.len());
    assert!(followed.iter().copied().eq(0..NAMES), "{} of {NAMES}", followed.len());
    let excerpt = newest.excerpt(0, || Writers::Done).unwrap();
    let last: Vec<u32> = excerpt.records().map(|record| name(record, &layout)).collect();
    assert_eq!(excerpt.bytes() + excerpt.missing_bytes(), known);
    assert!(excerpt.bytes() > newest.capacity_bytes() - 128, "as many as it can hold");
    assert!(last.iter().copied().eq(NAMES - last.len() as u32..NAMES), "{last:?}");
}

#[test]
fn an_overwritten_ring_takes_only_those_that_write_backward() {
    let Some((backward, _)) = names(AttrFlags::WRITE_BACKWARD) else { return };
    let Some((forward, _)) = names(AttrFlags::empty()) else { return };
    let ring = BackwardRing::map(backward.as_fd(), 2).unwrap();
    assert_eq!(perf::set_output(forward.as_fd(), backward.as_fd()), Err(Errno::EINVAL));
    assert_eq!(ring.written_bytes(), 0);
    assert_eq!(BackwardRing::map(forward.as_fd(), 3).err(), Some(Errno::EINVAL));
}
