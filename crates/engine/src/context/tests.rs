//! Orders that come too late, and steps that come between an order and its answer: what threads do to one another, one
//! interleaving at a time.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::event::EventState;
use crate::pmu::{BankError, EventSpec, ParseError, PmuCaps, PmuModel, Slot, SlotMask, SlotReading, SlotTime};
use crate::testing::{Machine, PLENTY, SCARCE, event};
use crate::{Cred, Engine, PmuId};
use pmux_abi::attr::Attr;

struct Bench {
    engine: Engine<Machine>,
    core: CpuContext,
    batch: Batch,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self { engine: Machine::engine(1), core: CpuContext::new(), batch: Batch::default(), now: 0 };
        bench.step(|context, step| context.meet(Presence::In, step));
        bench
    }

    fn step<R>(&mut self, f: impl FnOnce(&mut Context, Step<'_>) -> R) -> R {
        self.core.step(Ctx::Cpu, Step { now: Nanos(self.now), pmus: self.engine.host() }, f).unwrap()
    }

    fn attach(&mut self, pmu: PmuId, rates: &[u64]) -> GroupKey {
        let caps = *self.engine.host().pmu(pmu).unwrap().caps();
        let new = |&rate: &u64| {
            let spec = self.engine.host().pmu(pmu).unwrap().parse(pmu, &event(rate)).unwrap();
            NewEvent { spec: alloc::sync::Arc::new(spec), caps, lineage: None }
        };
        let new: Vec<_> = rates.iter().map(new).collect();
        let demand = Demand { pinned: false, exclusive: false };
        self.step(|context, step| context.attach(demand, &new, (Filter::Everything, None), step))
    }

    fn context(&self) -> &Context {
        self.core.context(Ctx::Cpu).unwrap()
    }

    fn leader(&self, group: GroupKey) -> EventKey {
        self.context().group(group).unwrap().members[0]
    }

    fn state(&self, group: GroupKey) -> EventState {
        self.context().member(self.leader(group)).unwrap().state()
    }

    /// The next order and what the bank would be told.
    fn next(&mut self) -> Option<(Job, Outcome)> {
        let job = self.core.next_job()?;
        Some((job, self.core.prepare(job, &mut self.batch).1))
    }

    fn answer(&mut self, job: Job, report: Report) {
        let step = Step { now: Nanos(self.now), pmus: self.engine.host() };
        self.core.complete(job, report, &self.batch, step);
    }

    /// Carries out everything that is left, with a bank that reads 0; says what reached it.
    fn drain(&mut self) -> Vec<Outcome> {
        let mut reached = Vec::new();
        while let Some((order, outcome)) = self.next() {
            if outcome != Outcome::Nothing {
                reached.push(outcome);
            }
            match outcome {
                Outcome::Read(_) => self.answer(order, Report::Reading(SlotReading { raw: 0, time: SlotTime::Whole })),
                Outcome::Program(_) => self.answer(order, Report::Done),
                _ => {}
            }
        }
        reached
    }
}

#[test]
fn what_is_detached_before_it_was_programmed_never_reaches_the_bank() {
    let mut bench = Bench::new();
    let group = bench.attach(PLENTY, &[1, 2]);
    bench.step(|context, step| {
        context.enable_group(group, step);
        context.order_read_group(group, step);
        context.detach(group, step);
    });
    assert_eq!(bench.drain(), []);
}

#[test]
fn a_refusal_that_comes_after_the_detach_gives_nothing_back_twice() {
    let mut bench = Bench::new();
    let group = bench.attach(PLENTY, &[1]);
    let (program, outcome) = bench.next().unwrap();
    assert!(matches!(outcome, Outcome::Program(_)));
    bench.step(|context, step| context.detach(group, step));
    // The place is taken again before the bank has answered.
    let other = bench.attach(PLENTY, &[2]);
    bench.answer(program, Report::Refused(BankError::Busy));
    let third = bench.attach(PLENTY, &[3]);
    let slot = |bench: &Bench, group| bench.context().member(bench.leader(group)).unwrap().lease.unwrap().slot;
    assert_ne!(slot(&bench, other), slot(&bench, third));
    let reached = bench.drain();
    assert!(matches!(reached[..], [Outcome::Program(_), Outcome::Program(_)]), "no release of what was refused");
}

#[test]
fn a_reading_ordered_before_the_refusal_reaches_nothing() {
    let mut bench = Bench::new();
    let group = bench.attach(PLENTY, &[1]);
    let leader = bench.leader(group);
    bench.step(|context, step| context.order_read(leader, step));
    let (program, _) = bench.next().unwrap();
    bench.answer(program, Report::Refused(BankError::NoSuchTask));
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.context().refusal(group), Some(OpenError::Bank { index: 0, error: BankError::NoSuchTask }));
}

#[test]
fn a_refusal_of_an_old_slot_does_not_touch_the_new_one() {
    let mut bench = Bench::new();
    let group = bench.attach(SCARCE, &[1]);
    bench.step(|context, step| context.enable_group(group, step));
    let (program, _) = bench.next().unwrap();
    // Off and on again, while the bank is still busy with the first slot.
    bench.step(|context, step| context.arrive(Presence::Out, step));
    bench.step(|context, step| context.arrive(Presence::In, step));
    bench.answer(program, Report::Refused(BankError::Busy));
    assert_eq!(bench.state(group), EventState::Active);
    assert!(matches!(bench.drain()[..], [Outcome::Program(_), Outcome::Start(_)]));
}

#[test]
fn a_switch_knows_better_than_a_first_look() {
    let mut context = Context::new();
    let engine = Machine::engine(1);
    let step = Step { now: Nanos(0), pmus: engine.host() };
    context.arrive(Presence::Out, step);
    context.meet(Presence::In, step);
    assert_eq!(context.presence(), Some(Presence::Out), "the task left after the host was asked");
}

#[test]
fn two_groups_that_are_refused_do_not_chase_one_another() {
    let mut bench = Bench::new();
    let groups = [bench.attach(SCARCE, &[1, 2]), bench.attach(SCARCE, &[3, 4])];
    for group in groups {
        bench.step(|context, step| context.enable_group(group, step));
    }
    let mut programs = 0;
    while let Some((order, outcome)) = bench.next() {
        match outcome {
            Outcome::Program(_) => {
                programs += 1;
                bench.answer(order, Report::Refused(BankError::Busy));
            }
            Outcome::Read(_) => bench.answer(order, Report::Reading(SlotReading { raw: 0, time: SlotTime::Whole })),
            _ => {}
        }
        assert!(programs < 10, "each group is tried once");
    }
    assert_eq!(groups.map(|group| bench.state(group)), [EventState::Inactive; 2]);
}

/// A model that places events where they can't be.
struct Liar(PmuCaps, [Slot; 2]);

impl PmuModel for Liar {
    fn caps(&self) -> &PmuCaps {
        &self.0
    }
    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask::ALL, claim: None, cred: Cred::HOST })
    }
    fn place(&self, _: &[SlotMask], _: SlotMask, out: &mut [Slot]) -> bool {
        out.copy_from_slice(&self.1);
        true
    }
}

impl PmuTable for Liar {
    fn pmu(&self, _: PmuId) -> Option<&dyn PmuModel> {
        Some(self)
    }
}

#[test]
fn a_model_that_places_two_events_on_one_slot_is_not_believed() {
    for slots in [[Slot(1), Slot(1)], [Slot(1), Slot(64)], [Slot(u32::MAX), Slot(0)]] {
        let mut bench = Bench::new();
        let group = bench.attach(SCARCE, &[1, 2]);
        let caps = *bench.engine.host().pmu(SCARCE).unwrap().caps();
        let step = Step { now: Nanos(0), pmus: &Liar(caps, slots) };
        bench.core.step(Ctx::Cpu, step, |context, step| context.enable_group(group, step));
        assert_eq!((bench.state(group), bench.drain()), (EventState::Inactive, vec![]));
        bench.step(|context, step| context.enable_group(group, step));
        assert_eq!(bench.state(group), EventState::Active, "an honest model is");
    }
}

#[test]
fn switching_does_not_allocate_once_it_has_been_done() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        let group = bench.attach(SCARCE, &[1]);
        bench.step(|context, step| context.enable_group(group, step));
    }
    bench.drain();
    let scratch = |context: &Context| {
        let CpuPmuContext { orders, scratch, .. } = &context.cpu_pmu;
        (orders.capacity(), scratch.wanted.capacity(), scratch.allowed.capacity(), scratch.slots.capacity())
    };
    let mut before = None;
    for _ in 0..10 {
        bench.step(|context, step| context.arrive(Presence::Out, step));
        bench.drain();
        bench.step(|context, step| context.arrive(Presence::In, step));
        bench.drain();
        let now = scratch(bench.context());
        assert_eq!(*before.get_or_insert(now), now);
    }
}
