//! Records for all who ask for the same: one event writes, everybody who is on reads.

use super::everywhere;
use super::rings::record;
use crate::engine::{Audience, Census, EventRing};
use crate::ring_buffer::{Forward, LossReason, Reader, RingSetup, Taking};
use crate::share::SharingScope;
use crate::testing::{Machine, SCARCE, event, group};
use crate::{CpuId, Engine, EventId, Nanos, OutputError, SetId};
use pmux_abi::attr::{Attr, Sampling, Wakeup};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::vec::Vec;

const CPUS: u32 = 3;

fn sampling(period: u64) -> Attr {
    Attr { sampling: Sampling::Period(period), ..event(1) }
}

struct Subscriber {
    set: SetId,
    reader: Reader<Taking<Arc<crate::ring_buffer::HeapPages>>>,
    ring: Arc<EventRing<Machine, Forward>>,
}

fn subscribe(engine: &Engine<Machine>, attrs: &[Attr], bytes: usize) -> Subscriber {
    let groups = attrs.iter().map(|&attr| group(SCARCE, &[attr])).collect();
    let set = engine.open_set_in(SharingScope::RECORDS, everywhere(groups, 0..CPUS)).unwrap();
    let ring = engine.attach_set_ring::<Forward>(set, bytes, RingSetup::default()).unwrap();
    Subscriber { set, reader: Reader::new(Taking(Arc::clone(ring.pages()))), ring }
}

impl Subscriber {
    fn read(&mut self) -> Vec<u64> {
        let mut read = Vec::new();
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes[8..16].try_into().unwrap());
        self.reader.drain(&mut |bytes| read.push(number(bytes))).unwrap();
        read
    }

    /// The events whose records it gets, by CPU.
    fn sources(&self, engine: &Engine<Machine>) -> BTreeMap<u32, Vec<EventId>> {
        let source = |event: &EventId| engine.source_of(*event).unwrap();
        let events = engine.set_events(self.set).unwrap();
        events.iter().map(|(cpu, events)| (cpu.0, events.iter().map(source).collect())).collect()
    }
}

/// A record of an event, as its host would bring it; how many have got it.
fn bring(engine: &Engine<Machine>, source: EventId, number: u64) -> usize {
    let mut audience = Audience::default();
    engine.audience(source, &mut audience);
    audience.write(&record(number), Nanos(number), |_| {});
    audience.len()
}

#[test]
fn one_event_writes_to_all_who_are_on() {
    let engine = Machine::sharing(CPUS);
    let woken = Attr { wakeup: Wakeup::Bytes(64), ..sampling(100) };
    let (mut one, mut two) = (subscribe(&engine, &[sampling(100)], 1024), subscribe(&engine, &[woken], 64));
    let mut other = subscribe(&engine, &[sampling(101)], 1024);
    assert_eq!(engine.census().masters, 2 * CPUS as usize, "who differs in the period has events of his own");
    assert_eq!(one.sources(&engine), two.sources(&engine));
    let source = one.sources(&engine)[&1][0];
    assert_ne!(source, other.sources(&engine)[&1][0]);
    assert_eq!(bring(&engine, source, 0), 0, "no event is on");
    engine.enable_set(one.set).unwrap();
    assert_eq!(bring(&engine, source, 1), 1);
    engine.enable_set(two.set).unwrap();
    (2..7).for_each(|number| assert_eq!(bring(&engine, source, number), 2));
    engine.disable_set(one.set).unwrap();
    assert_eq!(bring(&engine, source, 7), 1);
    assert_eq!(one.read(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(two.read(), [2, 3, 4, 5], "who doesn't read loses his own records");
    assert_eq!((two.ring.tally().lost.of(LossReason::Full).records, one.ring.tally().lost.records()), (2, 0));
    assert!(other.read().is_empty());
    engine.close_set(two.set);
    assert_eq!(bring(&engine, source, 8), 0);
    assert_eq!(Arc::strong_count(&two.ring), 1, "only the caller has it");
    engine.close_set(one.set);
    engine.close_set(other.set);
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
    assert_eq!(engine.source_of(source), Err(OutputError::Closed));
}

#[test]
fn a_cpu_that_comes_back_goes_on_in_the_same_ring() {
    let engine = Machine::sharing(CPUS);
    let mut one = subscribe(&engine, &[sampling(7), sampling(8)], 1024);
    let led = subscribe(&engine, &[sampling(7)], 64);
    engine.redirect_set(led.set, one.set).unwrap();
    engine.enable_set(one.set).unwrap();
    engine.cpu_offline(CpuId(2));
    assert!(!one.sources(&engine).contains_key(&2) || one.sources(&engine)[&2].is_empty());
    engine.cpu_online(CpuId(2));
    let again = one.sources(&engine)[&2].clone();
    assert_eq!(again, [led.sources(&engine)[&2][0], again[1]]);
    assert_eq!((bring(&engine, again[0], 1), bring(&engine, again[1], 2)), (1, 1));
    engine.enable_set(led.set).unwrap();
    assert_eq!(bring(&engine, again[0], 3), 2, "both lead there");
    assert_eq!(one.read(), [1, 2, 3, 3]);
    let gone = led.set;
    engine.close_set(gone);
    assert_eq!(engine.redirect_set(one.set, gone), Err(OutputError::Closed));
}

#[test]
fn without_sharing_each_event_has_its_own() {
    let engine = Machine::engine(CPUS);
    let (mut one, mut two) = (subscribe(&engine, &[sampling(7)], 1024), subscribe(&engine, &[sampling(7)], 1024));
    engine.enable_set(one.set).unwrap();
    engine.enable_set(two.set).unwrap();
    assert_eq!(bring(&engine, one.sources(&engine)[&0][0], 1), 1);
    assert_eq!((one.read(), two.read()), (Vec::from([1]), Vec::new()));
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe(u64),
    Arm(usize),
    Disarm(usize),
    Close(usize),
    Record(u64, u32),
    Hotplug(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (period, cpu) = (1_u64..3, 0..CPUS);
    prop_oneof![
        period.clone().prop_map(Step::Subscribe),
        any::<usize>().prop_map(Step::Arm),
        any::<usize>().prop_map(Step::Disarm),
        any::<usize>().prop_map(Step::Close),
        (period.clone(), cpu.clone()).prop_map(|(period, cpu)| Step::Record(period, cpu)),
        (period, cpu.clone()).prop_map(|(period, cpu)| Step::Record(period, cpu)),
        cpu.prop_map(Step::Hotplug),
    ]
}

/// What one of them must have read.
struct Model {
    period: u64,
    on: bool,
    expected: Vec<u64>,
}

proptest! {
    /// Each has read what was written while it was on, in order, and nothing else.
    #[test]
    fn each_reads_what_came_while_it_was_on(steps in proptest::collection::vec(step(), 0..80)) {
        let engine = Machine::sharing(CPUS);
        let mut all: Vec<(Subscriber, Model)> = Vec::new();
        let mut off = BTreeSet::new();
        for (number, step) in (1..).zip(steps) {
            let count = all.len().max(1);
            match step {
                Step::Subscribe(period) => {
                    let model = Model { period, on: false, expected: Vec::new() };
                    all.push((subscribe(&engine, &[sampling(period)], 4096), model));
                }
                Step::Arm(at) => if let Some((one, model)) = all.get_mut(at % count) {
                    model.on = engine.enable_set(one.set).is_ok();
                },
                Step::Disarm(at) => if let Some((one, model)) = all.get_mut(at % count) {
                    engine.disable_set(one.set).unwrap();
                    model.on = false;
                },
                Step::Close(at) => if at % count < all.len() {
                    let (mut one, model) = all.swap_remove(at % count);
                    engine.close_set(one.set);
                    prop_assert_eq!(one.read(), model.expected);
                },
                Step::Record(period, cpu) => {
                    let same = |(_, model): &&(Subscriber, Model)| model.period == period;
                    let Some((first, _)) = all.iter().find(same) else { continue };
                    let sources = first.sources(&engine);
                    let Some(&source) = sources.get(&cpu).and_then(|events| events.first()) else {
                        prop_assert!(off.contains(&cpu));
                        continue;
                    };
                    bring(&engine, source, number);
                    let on = all.iter_mut().filter(|(_, model)| model.period == period && model.on);
                    on.for_each(|(_, model)| model.expected.push(number));
                }
                Step::Hotplug(cpu) => if off.remove(&cpu) {
                    engine.cpu_online(CpuId(cpu));
                } else {
                    engine.cpu_offline(CpuId(cpu));
                    off.insert(cpu);
                },
            }
        }
        for (one, model) in &mut all {
            prop_assert_eq!(one.read(), std::mem::take(&mut model.expected));
            engine.close_set(one.set);
        }
        prop_assert_eq!(engine.census(), Census::default());
    }
}
