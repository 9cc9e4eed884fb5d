//! Time goes by.
//!
//! What it is: the machine goes from one moment at which something happens by itself to the next (a tick, a counter that
//! wraps, a doorbell, the end of a turn), and calls the engine there as a kernel would.
//! Read first: [`Machine::pass`].
//!
//! **Invariant:** at one moment things happen in one order: interrupts, doorbells, ticks; then the driver is asked about
//! turns. The machine's lock is not held while the engine is called.

use super::Machine;
use super::faults::InjectedFault;
use super::locks::lock;
use super::samples::Taken;
use super::state::{PendingIrq, State};
use super::trace::Happening;
use crate::check::{Checker, Violation};
use pmux_engine::pmu::OverflowBy;
use pmux_engine::{CpuId, Engine, TaskId};
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Why time stands still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stopped {
    /// It has come as far as it should.
    There,
    /// A turn has ended somewhere, or a tick came where several tasks want a turn: see
    /// [`State::attention`].
    Attention,
}

/// How long a caller waits at most before something must be wrong.
const PATIENCE_NS: u64 = 1_000_000_000;

#[derive(Default)]
struct Due {
    rings: Vec<PendingIrq>,
    samples: Vec<Taken>,
    ticks: Vec<CpuId>,
}

impl Machine {
    /// Lets time pass up to `until`, or until the driver is needed.
    pub(super) fn pass(&self, engine: &Engine<Self>, until: u64) -> Stopped {
        let mut due = Due::default();
        loop {
            let arrived = self.advance(until, &mut due);
            self.carry_out(engine, &mut due);
            if !lock(&self.shared.state).attention.is_empty() {
                return Stopped::Attention;
            }
            if arrived {
                return Stopped::There;
            }
        }
    }

    /// Lets time pass while a task waits for something that the engine does.
    pub(super) fn pass_until_done(&self, done: &mut dyn FnMut() -> bool) {
        let Some(engine) = self.shared.engine.get().and_then(std::sync::Weak::upgrade) else { return };
        let mut due = Due::default();
        let patience = lock(&self.shared.state).now.saturating_add(PATIENCE_NS);
        while !done() {
            // The ticks go on, so there is always a next moment.
            let gave_up = self.advance(patience, &mut due);
            self.carry_out(&engine, &mut due);
            if gave_up && !done() {
                let mut state = lock(&self.shared.state);
                let violation = Violation::new(Checker::Doorbells, state.now(), "a caller waits for ever");
                state.breach(violation);
                return;
            }
        }
    }

    /// Goes to the next moment at which something happens, `until` at most; whether it is there.
    fn advance(&self, until: u64, due: &mut Due) -> bool {
        let mut state = lock(&self.shared.state);
        let ring = state.rings.peek().map_or(u64::MAX, |Reverse((at, _, _))| *at);
        let next = until.min(state.next_tick).min(state.due).min(ring).max(state.now);
        state.now = next;
        self.shared.clock.store(next, Relaxed);
        if state.due <= next {
            look_around(&mut state, due, self.shared.description.nmi.0);
        }
        while let Some(&Reverse((at, _, ring))) = state.rings.peek()
            && at <= next
        {
            state.rings.pop();
            due.rings.push(ring);
        }
        due.samples.append(&mut state.samples);
        if state.next_tick <= next {
            state.next_tick += self.shared.description.tick.0;
            due.ticks.extend((0..state.cpus.len()).filter(|&cpu| state.cpus[cpu].ticks()).map(|cpu| CpuId(cpu as u32)));
            if state.injected == Some(InjectedFault::StartLate) {
                state.start_the_late();
            }
            let crowded = |cpu: &&CpuId| !state.cpu(**cpu).queue.is_empty() && state.cpu(**cpu).current.is_some();
            let turns: Vec<_> = due.ticks.iter().filter(crowded).map(|&cpu| Attention::Turn(cpu)).collect();
            state.attention.extend(turns);
        }
        next >= until
    }

    fn carry_out(&self, engine: &Engine<Self>, due: &mut Due) {
        self.deliver(engine, std::mem::take(&mut due.samples));
        for ring in due.rings.drain(..) {
            let (PendingIrq::Doorbell(cpu) | PendingIrq::Counters(cpu)) = ring;
            // What is sent to a CPU that is gone is lost.
            if !lock(&self.shared.state).cpus.get(cpu.0 as usize).is_some_and(|cpu| cpu.online) {
                continue;
            }
            if matches!(ring, PendingIrq::Doorbell(_)) {
                lock(&self.shared.state).note(Happening::Doorbell(cpu));
            }
            self.on_cpu(cpu, || match ring {
                PendingIrq::Doorbell(_) => engine.handle_ipi(cpu),
                PendingIrq::Counters(_) => engine.counters_interrupted(cpu),
            });
        }
        due.ticks.drain(..).for_each(|cpu| self.on_cpu(cpu, || engine.tick(cpu)));
    }

    /// Another task comes onto a CPU, or none. It must be on no other.
    pub(super) fn switch(&self, engine: &Engine<Self>, cpu: CpuId, next: Option<TaskId>) {
        let out = {
            let mut state = lock(&self.shared.state);
            let out = state.cpu(cpu).current;
            if out == next || !state.cpu(cpu).online {
                return;
            }
            state.leave(cpu, out, next);
            out
        };
        let context = |task: Option<TaskId>| task.map(|task| engine.task(task));
        let (out_context, next_context) = (context(out), context(next));
        self.on_cpu(cpu, || engine.switch(cpu, out_context.as_ref(), next_context.as_ref()));
        lock(&self.shared.state).arrive(cpu, out, next);
    }

    /// The engine, for the code that it calls.
    pub(super) fn bind(&self, engine: &Arc<Engine<Self>>) {
        // Bound once, by the world that makes both.
        let _ = self.shared.engine.set(Arc::downgrade(engine));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attention {
    /// The turn of the task on a CPU has ended.
    End(CpuId),
    /// A tick has come where others wait for their turn.
    Turn(CpuId),
}

/// Looks at every CPU on which something may have happened by itself.
fn look_around(state: &mut State, due: &mut Due, nmi: u64) {
    let mut next = u64::MAX;
    for index in 0..state.cpus.len() {
        let cpu = CpuId(index as u32);
        if state.cpus[index].due <= state.now {
            state.look_for_samples(cpu);
            for pmu in state.wrapped_on(cpu) {
                let (late, overflow) = (state.faults.interrupt_late, state.widths[usize::from(pmu.0)].overflow);
                match overflow {
                    _ if state.injected == Some(InjectedFault::WrapUnnoticed) => {}
                    OverflowBy::Poll => {}
                    OverflowBy::Interrupt if late == 0 => {
                        state.note(Happening::Interrupt(cpu));
                        due.rings.push(PendingIrq::Counters(cpu));
                    }
                    OverflowBy::Interrupt | OverflowBy::Nmi => {
                        state.note(Happening::Interrupt(cpu));
                        let least = if overflow == OverflowBy::Nmi { nmi } else { 0 };
                        state.interrupt_later(cpu, late.max(least));
                    }
                }
            }
            if let Some(task) = state.turn_ended(cpu) {
                state.attention.push(Attention::End(cpu));
                // The driver has been asked; it need not be asked again.
                if let Some(task) = state.task_mut(task) {
                    (task.turn_end, task.turn_over) = (None, true);
                }
            }
            state.plan(cpu);
        }
        next = next.min(state.cpus[index].due);
    }
    state.due = next;
}

impl State {
    /// A task is about to leave a CPU, and another to come.
    fn leave(&mut self, cpu: CpuId, out: Option<TaskId>, next: Option<TaskId>) {
        if out.is_some() {
            // The switch itself happens to the task that leaves.
            self.happen(cpu, out, crate::machine::Kind::CONTEXT_SWITCHES, 1);
        }
        if let Some(out) = out {
            self.tell_special(out, None);
            if let Some(task) = self.task_mut(out) {
                task.on = None;
            }
        }
        if let Some(task) = next.and_then(|next| self.task_mut(next)) {
            task.on = Some(cpu);
        }
        self.cpu_mut(cpu).incoming = next;
    }

    /// The engine has switched.
    fn arrive(&mut self, cpu: CpuId, out: Option<TaskId>, next: Option<TaskId>) {
        self.check_switched(cpu, out, next);
        let moved = next.and_then(|next| self.task(next)?.last).is_some_and(|last| last != cpu);
        self.set_current(cpu, next);
        if let Some(next) = next {
            self.tell_special(next, Some(cpu));
        }
        if moved {
            self.happen(cpu, next, crate::machine::Kind::CPU_MIGRATIONS, 1);
        }
        self.note_turn(cpu, next);
        self.plan(cpu);
    }

    /// Counters that should have started, on a machine that starts them late.
    fn start_the_late(&mut self) {
        for key in std::mem::take(&mut self.late) {
            if self.register(key).is_some() {
                self.set_going(key);
            }
        }
    }
}
