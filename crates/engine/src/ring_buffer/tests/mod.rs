//! Rings: what is written is read, or counted as lost.
#![allow(clippy::unwrap_used)]

mod hostile;
mod model;
mod threads;

use super::*;
use crate::id::{CpuId, Nanos};
use pmux_abi::attr::{Attr, AttrFlags, SampleFormat};
use pmux_abi::record::{Lost, Record, RecordHeader, RecordKind, Records, SampleId, SampleLayout, decode_record};
use std::sync::Arc;
use std::vec::Vec;

type Pages = Arc<HeapPages>;

/// A record of `bytes` that knows its number and shows it in each of its words.
fn record(number: u32, bytes: usize) -> Vec<u8> {
    let mut record: Vec<u8> =
        (0..bytes / 8).flat_map(|word| (u64::from(number) << 32 | word as u64).to_ne_bytes()).collect();
    record[..4].copy_from_slice(&(number + RecordKind::FIRST_USER.0).to_ne_bytes());
    record[4..6].fill(0);
    record[6..8].copy_from_slice(&(bytes as u16).to_ne_bytes());
    record
}

/// The number of such a record, which must be whole.
fn number(bytes: &[u8]) -> u32 {
    let number = RecordHeader::decode(bytes).unwrap().kind.0 - RecordKind::FIRST_USER.0;
    assert_eq!(bytes, record(number, bytes.len()), "torn");
    number
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    Records::new(bytes).map(|record| number(record.unwrap())).collect()
}

fn ring<M: Mode>(bytes: usize, setup: RingSetup) -> (Writer<Pages, M>, Pages) {
    let pages = Arc::new(HeapPages::new(bytes / 8));
    (Writer::new(Arc::clone(&pages), setup).unwrap(), pages)
}

fn write<M: Mode>(writer: &Writer<Pages, M>, name: u32, bytes: usize) -> Result<Wake, WriteError> {
    writer.write(&record(name, bytes), Nanos(u64::from(name)))
}

fn taken<S: RingSource>(reader: &mut Reader<S>) -> Vec<u32> {
    let mut taken = Vec::new();
    reader.drain(&mut |bytes| taken.push(number(bytes))).unwrap();
    taken
}

fn seen<P: RingView>(reader: &mut SnapshotReader<P>) -> (Vec<u32>, Progress) {
    let mut seen = Vec::new();
    let progress = reader.read(&mut |piece| match piece {
        Piece::Records { bytes, .. } => seen.extend(numbers(bytes)),
        Piece::Missed { .. } => {}
    });
    (seen, progress.unwrap())
}

#[test]
fn a_forward_ring_keeps_until_it_is_read_and_counts_what_it_refuses() {
    let (writer, pages) = ring::<Forward>(64, RingSetup::default());
    let mut reader = Reader::new(Taking(pages));
    assert!(write(&writer, 0, 24).is_ok() && write(&writer, 1, 24).is_ok());
    assert_eq!(write(&writer, 2, 24), Err(WriteError { why: LossReason::Full, wake: Wake::No }));
    assert!(write(&writer, 3, 16).is_ok(), "it fits exactly");
    assert_eq!(write(&writer, 4, 8).map_err(|refused| refused.why), Err(LossReason::Full));
    assert_eq!(reader.waiting_bytes(), 64);
    assert_eq!(taken(&mut reader), [0, 1, 3]);
    for number in 5..100 {
        assert!(write(&writer, number, 40).is_ok());
        assert_eq!(taken(&mut reader), [number]);
    }
    let tally = writer.tally();
    let lost = Loss { records: 2, bytes: 32, first_at: Nanos(2), last_at: Nanos(4) };
    assert_eq!((tally.records, tally.lost.of(LossReason::Full), tally.lost.records()), (3 + 95, lost, 2));
    assert_eq!((tally.bytes, tally.bad_tail), (64 + 95 * 40, 0));
}

#[test]
fn an_overwrite_ring_has_a_valid_tail_at_any_moment() {
    let (writer, pages) = ring::<Overwrite>(256, RingSetup::default());
    let mut follower = SnapshotReader::from_now(Arc::clone(&pages));
    let mut known = 0;
    let records = if cfg!(miri) { 60 } else { 1000 };
    for name in 0..records {
        let bytes = 8 * (1 + name as usize * 7 % 11);
        assert!(write(&writer, name, bytes).is_ok());
        let (whole, progress) = seen(&mut SnapshotReader::from_oldest(&*pages));
        assert_eq!(whole.last(), Some(&name));
        assert!(whole.is_sorted_by(|a, b| a + 1 == *b), "no hole: {whole:?}");
        // Seven eighths of the ring, less a record, are always kept.
        assert!(progress.bytes >= 256 * 7 / 8 - 88 || whole[0] == 0, "{progress:?} after {name}");
        if name % 7 == 0 {
            let (new, progress) = seen(&mut follower);
            let missed = u64::from(name + 1 - known) - new.len() as u64;
            assert_eq!((new.last(), progress.missed_bytes > 0), (Some(&name), missed > 0));
            known = name + 1;
        }
    }
    let tally = writer.tally();
    let missed = follower.missed_records().unwrap();
    assert!(missed > 0);
    assert_eq!((tally.records, tally.lost.records()), (u64::from(records), 0));
    let mut rest = SnapshotReader::from_oldest(&*pages);
    assert_eq!(rest.missed_records(), None);
    let (whole, _) = seen(&mut rest);
    assert_eq!(rest.position(), tally.bytes);
    assert_eq!((rest.missed_records(), seen(&mut rest).0), (Some(0), vec![]), "nothing comes twice");
    rest.rewind();
    assert_eq!(seen(&mut rest).0, whole);
}

#[test]
fn records_as_large_as_the_ring_and_larger() {
    fn both<M: Mode>() -> (Writer<Pages, M>, Pages) {
        let (writer, pages) = ring::<M>(64, RingSetup::default());
        for (name, bytes, expected) in
            [(0, 72, Err(LossReason::TooLarge)), (1, 64, Ok(Wake::No)), (2, 72, Err(LossReason::TooLarge))]
        {
            assert_eq!(write(&writer, name, bytes).map_err(|refused| refused.why), expected);
        }
        assert_eq!(seen(&mut SnapshotReader::from_oldest(&*pages)).0, [1], "what was there stays");
        assert_eq!(writer.tally().lost.of(LossReason::TooLarge).bytes, 144);
        (writer, pages)
    }
    both::<Forward>();
    let (writer, pages) = both::<Overwrite>();
    for name in 3..50 {
        assert!(write(&writer, name, if name % 3 == 0 { 8 } else { 64 }).is_ok());
        assert_eq!(seen(&mut SnapshotReader::from_oldest(&*pages)).0.last(), Some(&name));
    }
}

#[test]
fn what_is_no_record_is_refused() {
    let (writer, _) = ring::<Overwrite>(64, RingSetup::default());
    for bytes in [&[][..], &[0; 7], &[0; 8], &record(1, 16)[..8], &[8; 12]] {
        assert_eq!(writer.write(bytes, Nanos(7)).map_err(|refused| refused.why), Err(LossReason::Malformed));
    }
    let loss = Loss { records: 5, bytes: 35, first_at: Nanos(7), last_at: Nanos(7) };
    assert_eq!((writer.tally().lost.of(LossReason::Malformed), writer.tally().bytes), (loss, 0));
}

#[test]
fn sizes_that_no_ring_has_are_refused() {
    for words in [0, 3, 12] {
        let made =
            Writer::<_, Forward>::new(HeapPages::<core::sync::atomic::AtomicU64>::new(words), RingSetup::default());
        assert_eq!(made.err(), Some(BadSize { words }));
    }
    // Of one word: each record gives way to the next.
    let (writer, pages) = ring::<Overwrite>(8, RingSetup::default());
    for name in 0..9 {
        assert!(write(&writer, name, 8).is_ok());
        assert_eq!(seen(&mut SnapshotReader::from_oldest(&*pages)).0, [name]);
    }
}

#[test]
fn a_ring_that_is_worn_out_says_so() {
    let pages = Arc::new(HeapPages::new(8));
    let last = (1 << 61) - 8;
    let writer: Writer<_, Overwrite> = Writer::at(Arc::clone(&pages), RingSetup::default(), last - 24).unwrap();
    assert!(write(&writer, 0, 24).is_ok());
    assert_eq!(write(&writer, 1, 8).map_err(|refused| refused.why), Err(LossReason::WornOut));
    assert_eq!(seen(&mut SnapshotReader::from_oldest(&*pages)).0, [0]);
}

#[test]
fn readers_are_woken_by_bytes_or_by_records_and_when_room_is_wanted() {
    let setup = |wakeup| RingSetup { wakeup, ..RingSetup::default() };
    let woken = |wakeup, bytes: usize| -> Vec<u32> {
        let (writer, _) = ring::<Forward>(256, setup(wakeup));
        let wakes = |result| matches!(result, Ok(Wake::Now) | Err(WriteError { wake: Wake::Now, .. }));
        (1..=40).filter(|&name| wakes(write(&writer, name, bytes))).collect()
    };
    assert_eq!(woken(Wakeup::Bytes(64), 24), [3, 6, 9, 11], "the last one is lost: 10 of 24 bytes fit");
    assert_eq!(woken(Wakeup::Bytes(u64::MAX), 16), [8, 16, 17], "half of the ring at most");
    assert_eq!(woken(Wakeup::Records(4), 24), [4, 8, 11]);
    assert_eq!(woken(Wakeup::Records(100), 64), [2, 4, 5], "half of the ring is new");
    assert!(woken(Wakeup::Never, 64).is_empty());
}

fn labels() -> (RingSetup, SampleLayout) {
    let sample = SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU | SampleFormat::IDENTIFIER;
    let layout = SampleLayout::new(&Attr { sample, flags: AttrFlags::SAMPLE_ID_ALL, ..Attr::default() });
    let labels = Labels { id: 77, layout, cpu: Some(CpuId(3)) };
    (RingSetup { wakeup: Wakeup::Never, labels: Some(labels) }, layout)
}

#[test]
fn losses_are_told_before_the_next_record() {
    let (setup, layout) = labels();
    let (writer, pages) = ring::<Forward>(128, setup);
    let mut reader = Reader::new(Taking(pages));
    (0..6).for_each(|name| assert_eq!(write(&writer, name, 48).is_ok(), name < 2));
    assert_eq!(taken(&mut reader), [0, 1]);
    let described = |bytes: &[u8]| match decode_record(bytes, &layout) {
        Ok((Record::Lost(Lost { id, lost }), Some(sample_id))) => Err((id, lost, sample_id)),
        _ => Ok(number(bytes)),
    };
    let records = |reader: &mut Reader<_>| {
        let mut records = Vec::new();
        reader.drain(&mut |bytes| records.push(described(bytes))).unwrap();
        records
    };
    // A label has 24 + 32 bytes. No ring of 128 ever holds it together with 80: it waits, the record doesn't.
    assert!(write(&writer, 6, 80).is_ok());
    assert_eq!(records(&mut reader), [Ok(6)]);
    assert!(write(&writer, 7, 72).is_ok(), "both fit exactly");
    assert_eq!(write(&writer, 8, 8).map_err(|refused| refused.why), Err(LossReason::Full));
    let label = |lost, time| {
        let task = Some(pmux_abi::record::TaskId::default());
        let sample_id = SampleId { task, time: Some(time), cpu: Some(3), identifier: Some(77), ..SampleId::default() };
        Err((77, lost, sample_id))
    };
    assert_eq!(records(&mut reader), [label(4, 5), Ok(7)]);
    // At the end of a recording nothing follows.
    assert_eq!(writer.tell_losses(), Wake::No);
    assert_eq!(records(&mut reader), [label(1, 8)]);
    assert_eq!((writer.tell_losses(), records(&mut reader)), (Wake::No, vec![]));
    let tally = writer.tally();
    assert_eq!((tally.records, tally.labels, tally.lost.records()), (2 + 1 + 2 + 1, 2, 5));
}

/// A ring that takes one more record whenever a reader looks.
struct Endless(Writer<Pages, Forward>, std::cell::Cell<u32>);

impl RingSource for Endless {
    fn bytes(&self) -> u64 {
        Taking(Arc::clone(self.0.pages())).bytes()
    }
    fn head(&self) -> u64 {
        let next = self.1.get();
        if write(&self.0, next, 24 + 8 * (next as usize % 3)).is_ok() {
            self.1.set(next + 1);
        }
        Taking(Arc::clone(self.0.pages())).head()
    }
    fn tail(&self) -> u64 {
        Taking(Arc::clone(self.0.pages())).tail()
    }
    fn publish_tail(&self, tail: u64) {
        Taking(Arc::clone(self.0.pages())).publish_tail(tail);
        self.head();
    }
    fn copy(&self, position: u64, into: &mut [u8]) {
        Taking(Arc::clone(self.0.pages())).copy(position, into);
    }
}

/// Who is there always brings more: still each call ends, where it was told to, and nothing is passed twice or out of order.
#[test]
fn draining_ends_although_there_is_always_more() {
    let endless = Endless(ring(4096, RingSetup::default()).0, std::cell::Cell::new(0));
    while endless.1.get() < 50 {
        endless.head();
    }
    let mut reader = Reader::new(endless);
    let mut all = Vec::new();
    let mut asked = 0;
    for (turn, piece_bytes) in [1, 24, 100, 1000].into_iter().cycle().take(400).enumerate() {
        let head = reader.head();
        let before = all.len();
        let stop_after = turn % 4;
        let mut pieces = 0;
        let go_on = || {
            asked += 1;
            pieces += 1;
            pieces <= stop_after
        };
        let drained = reader.drain_to(head, piece_bytes, &mut |bytes| all.push(number(bytes)), go_on).unwrap();
        assert_eq!(drained.records as usize, all.len() - before);
        assert!(pieces <= stop_after + 1, "it went on although it was told to stop");
        // At least one record, and no piece beyond what it may have or one record has.
        assert!((1..=pieces * (piece_bytes as usize / 24).max(1)).contains(&(all.len() - before)), "{turn}");
        assert_eq!(drained.left_bytes, head.wrapping_sub(reader.position()));
    }
    assert!(asked >= 400);
    // Another call has been further already.
    let head = reader.head();
    taken(&mut reader).into_iter().for_each(|number| all.push(number));
    let none = reader.drain_to(head.wrapping_sub(8), 64, &mut |_| panic!("it was taken already"), || true);
    assert_eq!(none.unwrap(), Drained { records: 0, left_bytes: 0 });
    assert!(all.iter().copied().eq(0..all.len() as u32));
}
