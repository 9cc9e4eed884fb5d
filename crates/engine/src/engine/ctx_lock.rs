//! One core, its lock and its banks.
//!
//! What it is: how a step of a pure context reaches the counters. A thread that takes a step holds the `PmuGuard`, and keeps
//! it until every order that is waiting has been carried out, in their order.
//! All orders that wait are carried out as one batch, without the core's lock, in the order of the decisions; one more turn of the
//! lock brings the results back.
//! Read first: [`ContextCell::ask`], then `switch` (contexts that move) and `ipi` (cores that are out of reach).
//!
//! **Invariant:** the core's lock is never held while a bank or the clock is called.
//!
//! Linux: `perf_ctx_lock`, `perf_event_ctx_lock` (kernel/events/core.c).

use super::Engine;
use super::ipi::{CallQueue, NotDone, RemoteOp, Work};
use crate::context::{Batch, Context, CpuContext, Ctx, Job, Order, Outcome, Report, Step};
use crate::host::Host;
use crate::id::{CpuId, Nanos};
use crate::lock::{LockCell, Rank};
use crate::pmu::{BankError, CounterBank, Lease, Program, SlotReading, SlotTime};
use crate::target::ContextKey;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr;

/// How many orders are carried out before their results are brought back.
const BATCH: usize = 64;

pub(super) struct ContextCell<H: Host> {
    pub(super) key: ContextKey,
    pub(super) pmu_guard: H::BankLock<PmuGuard<H::Bank>>,
    pub(super) place: H::IrqLock<CtxState<H>>,
    pub(super) calls: H::IrqLock<CallQueue<H>>,
    _counted: Option<Arc<()>>,
}

/// How many contexts of tasks there are: where there is none, a switch has nothing to look at. One is counted before its task's slot is
/// filled, and until no core and no host has it any more.
///
/// Linux: `perf_sched_events` (kernel/events/core.c).
#[derive(Default)]
pub(super) struct TaskContexts(Arc<()>);

impl TaskContexts {
    pub(super) fn are_none(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// What a context holds to be counted.
    pub(super) fn one_more(&self) -> Arc<()> {
        Arc::clone(&self.0)
    }
}

/// A core, and who is where.
pub(super) struct CtxState<H: Host> {
    pub(super) core: CpuContext,
    /// Whose guest the cell's own context is.
    pub(super) away: Option<CpuId>,
    /// Whose context is a guest here.
    pub(super) guest: Option<Arc<ContextCell<H>>>,
    /// Whose context is about to go home: the one that was a guest until this step.
    pub(super) leaving: Option<Arc<ContextCell<H>>>,
}

/// The right to touch the counters: only the thread that holds its lock does.
pub(super) struct PmuGuard<B> {
    pub(super) banks: Banks<B>,
    todo: Todo,
    /// How many steps have been taken that did more than read; see [`super::fast_read`].
    pub(super) steps: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It only reads: what a reading means stays, unless something goes wrong.
    Reading,
    /// Anything else.
    Change,
}

/// Whether the caller may touch the counters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReachCheck {
    /// It is on their CPU, or touches none.
    Given,
    /// It may have come to another CPU meanwhile: that is asked once more, when it can't any longer.
    Asked,
}

/// The banks of a core's contexts.
pub(super) struct Banks<B> {
    pub(super) own: Option<B>,
    pub(super) guest: Option<B>,
    pub(super) leaving: Option<B>,
}

/// What is being carried out: room for a batch of orders and for their results.
#[derive(Default)]
pub(super) struct Todo {
    batch: Batch,
    tasks: Vec<Task>,
    /// Slots whose programming was refused meanwhile: nothing more is asked of them.
    refused: Vec<Lease>,
}

struct Task {
    job: Job,
    whose: Ctx,
    outcome: Outcome,
    report: Report,
}

impl<B> PmuGuard<B> {
    pub(super) fn parts(&mut self) -> (&mut Banks<B>, &mut Todo, &mut u64) {
        (&mut self.banks, &mut self.todo, &mut self.steps)
    }
}

impl<B> Banks<B> {
    fn of(&mut self, side: Ctx) -> Option<&mut B> {
        match side {
            Ctx::Cpu => self.own.as_mut(),
            Ctx::Task => self.guest.as_mut(),
            Ctx::Prev => self.leaving.as_mut(),
        }
    }
}

impl<H: Host> CtxState<H> {
    pub(super) fn side_of(&self, here: ContextKey, whose: &ContextCell<H>) -> Option<Ctx> {
        if here == whose.key {
            return self.away.is_none().then_some(Ctx::Cpu);
        }
        let is_whose =
            |cell: &Option<Arc<ContextCell<H>>>| cell.as_ref().is_some_and(|cell| ptr::eq(&raw const **cell, whose));
        is_whose(&self.guest).then_some(Ctx::Task).or_else(|| is_whose(&self.leaving).then_some(Ctx::Prev))
    }
}

impl<H: Host> ContextCell<H> {
    pub(super) fn new(key: ContextKey, bank: H::Bank, counted: Option<Arc<()>>) -> Self {
        let banks = Banks { own: Some(bank), guest: None, leaving: None };
        let place = CtxState { core: CpuContext::new(), away: None, guest: None, leaving: None };
        // Those of a task are taken while those of a CPU are held, where it comes or goes.
        let (bank_rank, rank) = match key {
            ContextKey::Cpu(_) => (Rank::Bank, Rank::Context),
            ContextKey::Task(_) => (Rank::TaskBank, Rank::TaskContext),
        };
        Self {
            key,
            pmu_guard: LockCell::ranked(bank_rank, PmuGuard { banks, todo: Todo::default(), steps: 0 }),
            place: LockCell::ranked(rank, place),
            calls: LockCell::ranked(Rank::Context, CallQueue::default()),
            _counted: counted,
        }
    }

    /// Makes room for as many orders as a switch may leave, and for groups of so many events, so that nothing is allocated then.
    pub(super) fn reserve(&self, events: usize) {
        self.pmu_guard.with(|guard| {
            guard.todo.tasks.reserve(BATCH);
            guard.todo.batch.programs.reserve(BATCH);
            guard.todo.refused.reserve(BATCH);
            guard.todo.batch.reserve_group(events);
        });
        self.place.with(|place| place.core.reserve_group(events));
    }

    /// Looks at the context, wherever it is.
    pub(super) fn look<R>(&self, engine: &Engine<H>, mut f: impl FnMut(&Context) -> R) -> R {
        loop {
            let here = self.place.with(|place| match place.away {
                None => Ok(place.core.context(Ctx::Cpu).map(&mut f)),
                Some(cpu) => Err(cpu),
            });
            let seen = here.unwrap_or_else(|cpu| {
                engine.core(cpu)?.place.with(|place| {
                    let side = place.side_of(ContextKey::Cpu(cpu), self)?;
                    place.core.context(side).map(&mut f)
                })
            });
            if let Some(seen) = seen {
                return seen;
            }
            // It is just moving.
            core::hint::spin_loop();
        }
    }

    fn core_of<'a>(&self, engine: &'a Engine<H>) -> Option<&'a Arc<Self>> {
        self.place.with(|place| place.away).and_then(|cpu| engine.core(cpu))
    }

    /// Takes a step and carries out what it orders: where its counters can be reached.
    pub(super) fn step(self: &Arc<Self>, engine: &Engine<H>, f: impl FnMut(&mut Context, Step<'_>) + Send + 'static) {
        self.ask(engine, Purpose::Change, f, |_| ());
    }

    /// Takes a step, carries out what it orders, and looks at what has become of it.
    pub(super) fn ask<S>(
        self: &Arc<Self>,
        engine: &Engine<H>,
        purpose: Purpose,
        f: impl FnMut(&mut Context, Step<'_>) + Send + 'static,
        mut look: impl FnMut(&Context) -> S,
    ) -> S {
        let mut f = Some(f);
        let mut boxed: Option<Work> = None;
        loop {
            let core: &Self = self.core_of(engine).map_or(self, |core| core);
            if let ContextKey::Cpu(cpu) = core.key
                && !core.is_in_reach(&engine.host)
            {
                let work = boxed.take().or_else(|| f.take().map(|f| Box::new(f) as Work));
                let Some(work) = work else { return self.look(engine, look) };
                match core.send(&engine.host, cpu, self, RemoteOp::Step(work)) {
                    Err(NotDone::Missed(RemoteOp::Step(work)) | NotDone::Offline(RemoteOp::Step(work))) => {
                        boxed = Some(work);
                    }
                    _ => return self.look(engine, look),
                }
            } else {
                let step = |context: &mut Context, step: Step<'_>| match (&mut f, &mut boxed) {
                    (_, Some(work)) => work(context, step),
                    (Some(f), None) => f(context, step),
                    (None, None) => {}
                };
                if let Some(((), seen)) =
                    core.transact_in((purpose, None, ReachCheck::Asked), &engine.host, self, step, |(), context| {
                        look(context)
                    })
                {
                    return seen;
                }
            }
            // It is just moving.
            core::hint::spin_loop();
        }
    }

    /// Takes a step that touches no slot of a scarce PMU, from wherever the caller is.
    pub(super) fn step_here<R>(&self, engine: &Engine<H>, f: impl FnOnce(&mut Context, Step<'_>) -> R) -> R {
        self.ask_here(engine, f, |_, _| ()).0
    }

    /// [`Self::step_here`], and a look at what has become of it.
    pub(super) fn ask_here<R, S>(
        &self,
        engine: &Engine<H>,
        f: impl FnOnce(&mut Context, Step<'_>) -> R,
        look: impl FnMut(&R, &Context) -> S,
    ) -> (R, S) {
        self.ask_here_in(None, engine, f, look)
    }

    /// The same in scratch memory that is lent, by a caller that goes to many cores: none of them has to keep room of its own for it.
    pub(super) fn ask_here_in<R, S>(
        &self,
        mut scratch: Option<&mut Todo>,
        engine: &Engine<H>,
        f: impl FnOnce(&mut Context, Step<'_>) -> R,
        mut look: impl FnMut(&R, &Context) -> S,
    ) -> (R, S) {
        let mut f = Some(f);
        loop {
            let core: &Self = self.core_of(engine).map_or(self, |core| core);
            let step = |context: &mut Context, step: Step<'_>| f.take().map(|f| f(context, step));
            let look = |result: &Option<R>, context: &Context| result.as_ref().map(|result| look(result, context));
            let scratch = scratch.as_deref_mut();
            if let Some((Some(result), Some(seen))) =
                core.transact_in((Purpose::Change, scratch, ReachCheck::Given), &engine.host, self, step, look)
            {
                return (result, seen);
            }
            core::hint::spin_loop();
        }
    }

    /// One step of `whose` context on this core; `None` where that is not here.
    pub(super) fn transact<R, S>(
        &self,
        host: &H,
        whose: &Self,
        f: impl FnOnce(&mut Context, Step<'_>) -> R,
        look: impl FnOnce(&R, &Context) -> S,
    ) -> Option<(R, S)> {
        self.transact_in((Purpose::Change, None, ReachCheck::Given), host, whose, f, look)
    }

    /// The same, with orders and results in `scratch` where that is lent.
    fn transact_in<R, S>(
        &self,
        (purpose, scratch, reach): (Purpose, Option<&mut Todo>, ReachCheck),
        host: &H,
        whose: &Self,
        f: impl FnOnce(&mut Context, Step<'_>) -> R,
        look: impl FnOnce(&R, &Context) -> S,
    ) -> Option<(R, S)> {
        self.pmu_guard.with(|PmuGuard { banks, todo, steps }| {
            if reach == ReachCheck::Asked && !self.is_in_reach(host) {
                return None;
            }
            let parts = (banks, scratch.unwrap_or(todo), steps);
            let step = Step { now: host.now(), pmus: host };
            let take = |place: &mut CtxState<H>| {
                let side = place.side_of(self.key, whose)?;
                Some((side, place.core.step(side, step, f)?))
            };
            let (taken, seen) = self.drive(host, (purpose, step.now), parts, take, |place, taken| {
                let (side, result) = taken.as_ref()?;
                place.core.context(*side).map(|context| look(result, context))
            });
            Some((taken?.1, seen?))
        })
    }

    /// A step of the whole core.
    pub(super) fn step_core<R>(&self, host: &H, f: impl FnOnce(&mut CtxState<H>, Step<'_>) -> R) -> R {
        self.pmu_guard.with(|guard| {
            let step = Step { now: host.now(), pmus: host };
            self.drive(host, (Purpose::Change, step.now), guard.parts(), |place| f(place, step), |_, _| ()).0
        })
    }

    /// Takes a step with the `PmuGuard` held: `f`, then what that has ordered and what comes of it, until nothing is left
    /// to be done; then, before another caller can take a step, `last`. One visit to the lock for each.
    pub(super) fn drive<R, S>(
        &self,
        host: &H,
        (purpose, mut now): (Purpose, Nanos),
        (banks, todo, steps): (&mut Banks<H::Bank>, &mut Todo, &mut u64),
        f: impl FnOnce(&mut CtxState<H>) -> R,
        last: impl FnOnce(&mut CtxState<H>, &R) -> S,
    ) -> (R, S) {
        *steps += u64::from(purpose == Purpose::Change);
        let mut last = Some(last);
        let mut go_on = |place: &mut CtxState<H>, todo: &mut Todo, result: &R| {
            todo.collect(&mut place.core);
            last.take_if(|_| todo.tasks.is_empty()).map(|last| last(place, result))
        };
        let (result, mut seen) = self.place.with(|place| {
            let result = f(place);
            let seen = go_on(place, todo, &result);
            (result, seen)
        });
        loop {
            if let Some(seen) = seen {
                return (result, seen);
            }
            todo.tell(banks);
            // Something else was done, or went wrong.
            *steps += u64::from(todo.tasks.iter().any(|task| !task.has_read()));
            // Saves a look at the clock where no report needs the time.
            if todo.tasks.iter().any(|task| !matches!(task.report, Report::Done)) {
                now = host.now();
            }
            seen = self.place.with(|place| {
                let step = Step { now, pmus: host };
                for task in todo.tasks.iter().filter(|task| task.has_news()) {
                    place.core.complete(task.job, task.report, &todo.batch, step);
                }
                go_on(place, todo, &result)
            });
        }
    }
}

impl Todo {
    /// Room for the slots of a group, empty, and for so many readings.
    pub(super) fn group_of(&mut self, events: usize) -> (&mut Vec<Lease>, &mut [SlotReading]) {
        let Batch { leases, readings, .. } = &mut self.batch;
        leases.clear();
        readings.resize(events, SlotReading { raw: 0, time: SlotTime::Whole });
        (leases, readings)
    }

    /// Takes jobs from a core until there are no more, or as many as are carried out at once.
    fn collect(&mut self, core: &mut CpuContext) {
        self.tasks.clear();
        self.refused.clear();
        self.batch.programs.clear();
        while self.tasks.len() < BATCH {
            let Some(job) = core.next_job() else { return };
            let (whose, outcome) = core.prepare(job, &mut self.batch);
            if outcome != Outcome::Nothing || matches!(job.order, Order::Forget { .. }) {
                self.tasks.push(Task { job, whose, outcome, report: Report::Done });
            }
            if outcome == Outcome::ReadGroup {
                // There is room for the readings of one group.
                return;
            }
        }
    }

    fn tell<B: CounterBank>(&mut self, banks: &mut Banks<B>) {
        let mut programs = 0;
        for task in &mut self.tasks {
            let Some(bank) = banks.of(task.whose) else { continue };
            let skips = task.outcome.lease().is_some_and(|lease| self.refused.contains(&lease));
            let result = match task.outcome {
                Outcome::Program(lease) => {
                    if let Some(rest) = self.batch.programs.get(programs..) {
                        announce(bank, lease, rest);
                    }
                    let program = self.batch.programs.get_mut(programs);
                    programs += 1;
                    program.map_or(Ok(()), |program| {
                        program.leader = program.leader.filter(|leader| !self.refused.contains(leader));
                        bank.program(lease, program).inspect_err(|_| self.refused.push(lease))
                    })
                }
                Outcome::Prepare(leader) => {
                    let program = self.batch.programs.get(programs);
                    programs += 1;
                    program.map_or(Ok(()), |program| bank.prepare(leader, program))
                }
                Outcome::Dismiss(event) => {
                    bank.dismiss(event);
                    Ok(())
                }
                Outcome::Modify(lease) => {
                    let program = self.batch.programs.get(programs);
                    programs += 1;
                    match program {
                        Some(program) if !skips => bank.modify(lease, program),
                        _ => Ok(()),
                    }
                }
                _ if skips => Ok(()),
                Outcome::Nothing => Ok(()),
                Outcome::Start(lease) => bank.start(lease),
                Outcome::Stop(lease) => {
                    bank.stop(lease);
                    Ok(())
                }
                Outcome::Release(lease) => {
                    bank.release(lease);
                    Ok(())
                }
                Outcome::Read(lease) => reported(bank.read(lease).map(Report::Reading), &mut task.report),
                Outcome::HandOver(old, new) => match bank.hand_over(old, new) {
                    Ok(reading) => reported(Ok(Report::Reading(reading)), &mut task.report),
                    Err(_) => {
                        // At once: what follows may be meant for the slot.
                        self.refused.push(new);
                        bank.stop(old);
                        let reading = bank.read(old);
                        bank.release(old);
                        reported(reading.map(Report::Returned), &mut task.report)
                    }
                },
                Outcome::ReadGroup => {
                    let Batch { leases, readings, .. } = &mut self.batch;
                    reported(bank.read_group(leases, readings).map(|()| Report::Readings), &mut task.report)
                }
            };
            if let Err(error) = result {
                task.report = Report::Refused(error);
            }
        }
    }
}

/// Shows a bank the group that this slot begins, if it is the leader's.
fn announce<B: CounterBank>(bank: &mut B, lease: Lease, rest: &[Program]) {
    if let Some(first) = rest.first().filter(|first| first.leader.is_none()) {
        let beside = |program: &Program| program.leader == Some(lease);
        let others = rest.iter().skip(1).take(first.group_size.saturating_sub(1)).take_while(|program| beside(program));
        let count = 1 + others.count();
        bank.announce(rest.get(..count).unwrap_or_default());
    }
}

fn reported(result: Result<Report, BankError>, report: &mut Report) -> Result<(), BankError> {
    result.map(|answer| *report = answer)
}

impl Task {
    /// Whether it was a reading, and one that could be had.
    const fn has_read(&self) -> bool {
        matches!(self.report, Report::Reading(_) | Report::Readings) && !matches!(self.outcome, Outcome::HandOver(..))
    }

    const fn has_news(&self) -> bool {
        let always = matches!(self.job.order, Order::Forget { .. } | Order::Program { .. } | Order::Modify { .. });
        always || !matches!(self.report, Report::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PmuId;
    use crate::pmu::{EventSpec, Slot, SlotMask};
    use crate::target::{EventKey, Filter};
    use pmux_abi::attr::Attr;

    /// Remembers how many programs it was shown at once.
    #[derive(Default)]
    struct Shown(Vec<usize>);

    impl CounterBank for Shown {
        fn announce(&mut self, programs: &[Program]) {
            self.0.push(programs.len());
        }
        fn program(&mut self, _: Lease, _: &Program) -> Result<(), BankError> {
            Ok(())
        }
        fn start(&mut self, _: Lease) -> Result<(), BankError> {
            Ok(())
        }
        fn stop(&mut self, _: Lease) {}
        fn read(&mut self, _: Lease) -> Result<SlotReading, BankError> {
            Err(BankError::Invalid)
        }
        fn release(&mut self, _: Lease) {}
    }

    const fn lease(slot: u32) -> Lease {
        Lease { pmu: PmuId(0), slot: Slot(slot), generation: 1 }
    }

    fn program(event: EventKey, leader: Option<u32>, group_size: usize) -> Program {
        let spec = EventSpec {
            pmu: PmuId(0),
            attr: Attr::default(),
            allowed: SlotMask::ALL,
            claim: None,
            cred: crate::id::Cred::HOST,
        };
        Program { event, spec, filter: Filter::Everything, leader: leader.map(lease), group_size, start: 0 }
    }

    #[test]
    fn a_group_is_shown_once_and_nothing_of_the_next_one() {
        let mut keys = crate::arena::Arena::default();
        let event: EventKey = keys.insert(());
        let program = |leader, group_size| program(event, leader, group_size);
        // A group of three, one alone, and a group of which only a part is there.
        let programs = [
            program(None, 3),
            program(Some(0), 3),
            program(Some(0), 3),
            program(None, 1),
            program(None, 4),
            program(Some(4), 4),
        ];
        let mut bank = Shown::default();
        for slot in 0..6_u32 {
            announce(&mut bank, lease(slot), &programs[slot as usize..]);
        }
        assert_eq!(bank.0, [3, 1, 2]);
        announce(&mut bank, lease(0), &[]);
        assert_eq!(bank.0.len(), 3);
    }
}
