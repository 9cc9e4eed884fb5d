//! Rings of events: whose samples go where, and what is counted of those that don't.

use super::super::{Audience, Exec, Overflow, Sampled};
use crate::error::OutputError;
use crate::ring_buffer::{Forward, LossReason, Overwrite, Reader, RingSetup, Taking, Wake, Wakeup, WriteError};
use crate::target::{ContextKey, Presence};
use crate::testing::{Machine, PLENTY, SCARCE, event, flagged, group};
use crate::{CpuId, EventId, EventState, Nanos, Target, TaskId};
use pmux_abi::attr::AttrFlags;
use pmux_abi::record::{Misc, Record, RecordKind, SampleLayout, encode_record};
use std::sync::Arc;
use std::vec::Vec;

/// A record with a number, 16 bytes.
pub(super) fn record(number: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let record = Record::Unknown { kind: RecordKind::FIRST_USER, payload: &number.to_ne_bytes() };
    encode_record(&record, None, Misc::default(), &SampleLayout::default(), &mut bytes).unwrap();
    bytes
}

fn opened(engine: &crate::Engine<Machine>) -> (crate::GroupId, EventId, EventId) {
    let pair = engine.open_enabled(&group(SCARCE, &[event(1), event(2)]), Target::task(TaskId(1)));
    (pair.group, pair.events[0], pair.events[1])
}

#[test]
fn several_events_write_into_one_ring_until_they_are_closed() {
    let engine = Machine::engine(1);
    let (both, leader, sibling) = opened(&engine);
    let setup = RingSetup { wakeup: Wakeup::Records(2), labels: None };
    assert_eq!(engine.sample(leader, &record(0), Nanos(0)), Sampled::NoRing);
    assert_eq!(engine.redirect(sibling, leader), Err(OutputError::NoRing));
    let ring = engine.attach_ring::<Forward>(leader, 64, setup).unwrap();
    engine.redirect(sibling, leader).unwrap();
    assert_eq!(engine.sample(leader, &record(1), Nanos(1)), Sampled::Written(Wake::No));
    assert_eq!(engine.sample(sibling, &record(2), Nanos(2)), Sampled::Written(Wake::Now));
    assert_eq!(engine.sample(leader, &record(3), Nanos(3)), Sampled::Written(Wake::No));
    assert_eq!(engine.sample(leader, &record(4), Nanos(4)), Sampled::Written(Wake::Now));
    let lost = WriteError { why: LossReason::Full, wake: Wake::Now };
    assert_eq!(engine.sample(sibling, &record(5), Nanos(5)), Sampled::Lost(lost));

    // Off, it has no samples.
    engine.disable(sibling).unwrap();
    assert_eq!(engine.sample(sibling, &record(6), Nanos(6)), Sampled::Dropped(Overflow::Stale));
    let mut read = Vec::new();
    let mut reader = Reader::new(Taking(Arc::clone(ring.pages())));
    reader.drain(&mut |bytes| read.push(bytes.to_vec())).unwrap();
    assert_eq!(read, [1, 2, 3, 4].map(|number| record(number).to_vec()));
    assert_eq!((ring.tally().records, ring.tally().lost.of(LossReason::Full).last_at), (4, Nanos(5)));

    engine.close(both);
    assert_eq!(engine.sample(leader, &record(7), Nanos(7)), Sampled::Dropped(Overflow::Stale));
    assert_eq!(engine.strays(), 2);
    assert_eq!(Arc::strong_count(&ring), 1, "only the caller has it");
    assert_eq!(engine.redirect(leader, sibling), Err(OutputError::Closed));
}

/// An event that its children have on counters, and the root not: in error, and waiting for an exec that a child has had.
#[test]
fn what_children_sample_is_their_roots_whatever_its_state() {
    let pinned = flagged(1, AttrFlags::PINNED | AttrFlags::INHERIT);
    let waiting = flagged(1, AttrFlags::ENABLE_ON_EXEC | AttrFlags::INHERIT);
    for (attr, state) in [(pinned, EventState::Error), (waiting, EventState::Off)] {
        let engine = Machine::engine(1);
        for task in [1, 2] {
            engine.host().place(ContextKey::Task(TaskId(task)), Presence::Out);
        }
        let opened = engine.open(&group(SCARCE, &[attr]), Target::task(TaskId(1))).unwrap();
        let (root, mut audience) = (opened.events[0], Audience::default());
        let ring = engine.attach_ring::<Forward>(root, 1024, RingSetup::default()).unwrap();
        if state == EventState::Error {
            engine.enable(root).unwrap();
        }
        engine.task_fork(TaskId(1), TaskId(2)).unwrap();
        if state == EventState::Error {
            engine.host().refuse_programs(1);
            engine.switch_in(TaskId(1), CpuId(0));
            engine.switch_out(TaskId(1));
        } else {
            assert_eq!(engine.sample(root, &record(0), Nanos(0)), Sampled::Dropped(Overflow::Stale));
            engine.task_exec(TaskId(2), Exec::Plain);
        }
        engine.switch_in(TaskId(2), CpuId(0));
        engine.host().run_task(2, 5);
        assert_eq!((engine.state(root), engine.host().leased()), (Ok(state), 1));
        assert_eq!(engine.sample(root, &record(1), Nanos(1)), Sampled::Written(Wake::No));
        engine.audience(root, &mut audience);
        audience.write(&record(2), Nanos(2), |_| {});
        assert_eq!((audience.len(), ring.tally().records), (1, 2));
        engine.disable(root).unwrap();
        engine.audience(root, &mut audience);
        assert!(audience.is_empty(), "off everywhere");
        assert_eq!(engine.sample(root, &record(3), Nanos(3)), Sampled::Dropped(Overflow::Stale));
        engine.close(opened.group);
    }
}

#[test]
fn a_ring_takes_the_place_of_another() {
    let engine = Machine::engine(1);
    let (_, event, _) = opened(&engine);
    let first = engine.attach_ring::<Overwrite>(event, 32, RingSetup::default()).unwrap();
    (0..5).for_each(|number| assert_eq!(engine.sample(event, &record(number), Nanos(0)), Sampled::Written(Wake::No)));
    let second = engine.attach_ring::<Forward>(event, 32, RingSetup::default()).unwrap();
    assert_eq!(engine.sample(event, &record(5), Nanos(0)), Sampled::Written(Wake::No));
    assert_eq!((first.tally().records, second.tally().records, Arc::strong_count(&first)), (5, 1, 1));
}

#[test]
fn what_can_be_no_ring_is_refused() {
    let engine = Machine::engine(1);
    let only = engine.open(&group(PLENTY, &[event(1)]), Target::task(TaskId(1))).unwrap();
    for data_bytes in [0, 4, 24, 4095] {
        let refused = engine.attach_ring::<Forward>(only.events[0], data_bytes, RingSetup::default());
        assert_eq!(refused.err(), Some(OutputError::BadSize { data_bytes }));
    }
    engine.close(only.group);
    let refused = engine.attach_ring::<Forward>(only.events[0], 64, RingSetup::default());
    assert_eq!(refused.err(), Some(OutputError::Closed));
}
