//! Rings: the engine's beside the model, byte by byte.
//!
//! What it is: the same records go into both, of random sizes, and are taken out at random moments. A forward ring is what the
//! model is. An overwrite ring keeps the newest of what the model keeps: it gives room by eighths of the ring, the model by
//! records.

use pmux_abi::record::{RecordHeader, RecordKind, Records};
use pmux_engine::Nanos;
use pmux_engine::ring_buffer::{
    Forward, HeapPages, LossReason, Mode, Overwrite, Piece, Reader, RingSetup, SnapshotReader, Taking, Writer,
};
use pmux_sim::oracle::ring::{Mode as ModelMode, Ring, Written};
use proptest::prelude::*;
use std::sync::Arc;

type Pages = Arc<HeapPages>;

#[derive(Clone, Copy, Debug)]
enum Op {
    Write { words: usize },
    Take,
    Look,
}

fn ops() -> impl Strategy<Value = (u32, Vec<Op>)> {
    let op = |most: usize| {
        prop_oneof![
            6 => (1..=most).prop_map(|words| Op::Write { words }),
            1 => Just(Op::Take),
            1 => Just(Op::Look),
        ]
    };
    // Rings of 8 bytes to 2 KiB; records from one word to more than the ring.
    (0_u32..9).prop_flat_map(move |bits| {
        let most = (1 << bits) + 1;
        (Just(bits), prop::collection::vec(prop_oneof![op(most), op(most.min(4))], 1..200))
    })
}

fn record(number: u32, words: usize) -> Vec<u8> {
    let mut record = vec![number as u8; words * 8];
    record[..4].copy_from_slice(&(RecordKind::FIRST_USER.0 + number).to_ne_bytes());
    record[6..8].copy_from_slice(&(words as u16 * 8).to_ne_bytes());
    record
}

/// The numbers of whole records that are what was written.
fn numbers(bytes: &[u8]) -> Vec<u32> {
    let number = |bytes: &[u8]| {
        let header = RecordHeader::decode(bytes).unwrap();
        let number = header.kind.0 - RecordKind::FIRST_USER.0;
        assert_eq!(bytes, record(number, bytes.len() / 8));
        number
    };
    Records::new(bytes).map(|record| number(record.unwrap())).collect()
}

fn ring<M: Mode>(bits: u32) -> (Writer<Pages, M>, Pages) {
    let pages = Arc::new(HeapPages::new(1 << bits));
    (Writer::new(Arc::clone(&pages), RingSetup::default()).unwrap(), pages)
}

fn snapshot(reader: &mut SnapshotReader<Pages>) -> (Vec<u32>, u64) {
    let (mut seen, mut missed) = (Vec::new(), 0);
    let read = reader.read(&mut |piece| match piece {
        Piece::Records { bytes, .. } => seen.extend(numbers(bytes)),
        Piece::Missed { bytes, .. } => missed += bytes,
    });
    read.unwrap();
    (seen, missed)
}

proptest! {
    #[test]
    fn a_forward_ring_is_what_the_model_is((bits, ops) in ops()) {
        let (writer, pages) = ring::<Forward>(bits);
        let mut reader = Reader::new(Taking(Arc::clone(&pages)));
        let mut model = Ring::new(ModelMode::Forward, 8 << bits);
        for (number, op) in (0_u32..).zip(ops) {
            match op {
                Op::Write { words } => {
                    let written = match writer.write(&record(number, words), Nanos(0)).map_err(|refused| refused.why) {
                        Ok(_) => Written::Kept,
                        Err(LossReason::TooLarge) => Written::TooLarge,
                        Err(why) => {
                            prop_assert_eq!(why, LossReason::Full);
                            Written::Lost
                        }
                    };
                    prop_assert_eq!(written, model.write(number, words as u64 * 8));
                }
                Op::Take => {
                    let mut taken = Vec::new();
                    reader.drain(&mut |bytes| taken.extend(numbers(bytes))).unwrap();
                    let expected: Vec<_> = std::iter::from_fn(|| model.take()).collect();
                    prop_assert_eq!(taken, expected);
                }
                Op::Look => {
                    let (seen, _) = snapshot(&mut SnapshotReader::from_oldest(Arc::clone(&pages)));
                    prop_assert!(seen.ends_with(&model.records()));
                }
            }
            let tally = writer.tally();
            prop_assert_eq!((tally.records, tally.lost.records()), (model.kept(), model.lost()));
            prop_assert_eq!((tally.bytes, reader.waiting_bytes()), (model.head_bytes(), model.head_bytes() - model.tail_bytes()));
        }
    }

    #[test]
    fn an_overwrite_ring_keeps_the_newest_of_what_the_model_keeps((bits, ops) in ops()) {
        let (writer, pages) = ring::<Overwrite>(bits);
        let mut follower = SnapshotReader::from_now(Arc::clone(&pages));
        let mut model = Ring::new(ModelMode::Overwrite, 8 << bits);
        let mut followed = 0;
        for (number, op) in (0_u32..).zip(ops) {
            match op {
                Op::Write { words } => {
                    let kept = writer.write(&record(number, words), Nanos(0)).is_ok();
                    prop_assert_eq!(kept, model.write(number, words as u64 * 8) == Written::Kept);
                }
                Op::Take => {
                    let (seen, missed) = snapshot(&mut follower);
                    followed += seen.len() as u64;
                    prop_assert!(model.records().ends_with(&seen));
                    let missed_records = follower.missed_records().unwrap();
                    prop_assert_eq!(followed + missed_records, model.kept());
                    prop_assert!(missed_records > 0 || missed == 0);
                }
                Op::Look => {
                    let (seen, missed) = snapshot(&mut SnapshotReader::from_oldest(Arc::clone(&pages)));
                    prop_assert!(missed == 0 && model.records().ends_with(&seen));
                }
            }
            let tally = writer.tally();
            prop_assert_eq!((tally.bytes, tally.lost.records()), (model.head_bytes(), model.lost()));
            // An eighth, and what is left of the record that ends behind it.
            let (size, longest) = (8 << bits, 8 * ((1 << bits) + 1));
            let kept = tally.bytes - tally.tail;
            prop_assert!(tally.tail >= model.tail_bytes() && (tally.tail == 0 || kept + size / 8 + longest >= size));
        }
    }
}
