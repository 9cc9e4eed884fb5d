//! The timeline: which event held which counter when, and what happened beside.
//!
//! What it is: plain lists, written down while the machine runs if its description says so.
//!
//! **Invariant:** the code that writes here decides nothing: a machine runs the same with and without a timeline.

use super::ledger::Event;
use super::registers::RegisterKey;
use super::state::State;
use pmux_engine::pmu::Slot;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Nanos, PmuId, TaskId};

/// An event that held a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSpan {
    /// The event.
    pub event: Event,
    /// The task or CPU that it counted for.
    pub place: ContextKey,
    /// On which CPU; for counters that follow a task, where that was when it started.
    pub cpu: Option<CpuId>,
    /// Which PMU's counter.
    pub pmu: PmuId,
    /// Which counter; the numbers of counters that are plenty say nothing.
    pub slot: Slot,
    /// Since when.
    pub from: Nanos,
    /// Until when.
    pub to: Nanos,
}

/// A task that was on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The task.
    pub task: TaskId,
    /// The CPU.
    pub cpu: CpuId,
    /// Since when.
    pub from: Nanos,
    /// Until when.
    pub to: Nanos,
}

/// Something that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// When.
    pub at: Nanos,
    /// What.
    pub what: Happening,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// A CPU went.
    Offline(CpuId),
    /// A CPU came.
    Online(CpuId),
    /// So many occurrences of an event are in no count, because the machine refused to say.
    Lost(Event, u64),
    /// Counters of a CPU interrupted it.
    Interrupt(CpuId),
    /// A doorbell rang on a CPU.
    Doorbell(CpuId),
    /// This counter of a CPU went from a task's event to the same one of the next task, without a stop.
    HandedOver(CpuId, PmuId, Slot),
    /// The machine refused something of an event, because it was told to; where that was, if it was on a CPU.
    Refused(Event, Option<CpuId>, Refusal),
}

/// What was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// A counter was to be programmed for an event.
    Program,
    /// A counter was to start.
    Start,
    /// A counter was to be read.
    Read,
    /// A counter was to be handed over; it was programmed anew instead.
    HandOver,
}

/// What happened on a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timeline {
    /// Which event held which counter when, in the order of their ends.
    pub spans: Vec<SlotSpan>,
    /// Which task was on which CPU when, in the order of their ends.
    pub turns: Vec<Turn>,
    /// What happened, in its order.
    pub marks: Vec<Mark>,
    on_since: Vec<Option<(TaskId, Nanos)>>,
}

impl State {
    pub(super) fn end_span(&mut self, key: RegisterKey) {
        let span = self.span(key);
        if let (Some(timeline), Some(span)) = (&mut self.timeline, span) {
            timeline.spans.push(span);
        }
    }

    fn span(&self, key: RegisterKey) -> Option<SlotSpan> {
        let register = self.register(key)?;
        let site = self.ledger.site(register.site?)?;
        let (from, to) = (Nanos(register.span_from), self.now());
        let event = self.ledger.event_at(register.tag)?;
        let cpu = self.cpu_of_bank(key.bank);
        (to > from).then_some(SlotSpan { event, place: site.place, cpu, pmu: key.pmu, slot: key.slot, from, to })
    }

    pub(super) fn note(&mut self, what: Happening) {
        let at = self.now();
        if let Some(timeline) = &mut self.timeline {
            timeline.marks.push(Mark { at, what });
        }
    }

    /// The CPU of a bank; of one that follows a task, where that is, or was last.
    fn cpu_of_bank(&self, bank: u32) -> Option<CpuId> {
        match self.bank(bank)?.key {
            ContextKey::Cpu(cpu) => Some(cpu),
            ContextKey::Task(task) => self.task(task).and_then(|task| task.on.or(task.last)),
        }
    }

    /// The machine refuses something now, because it was told to.
    #[cold]
    pub(super) fn mark_refused(&mut self, event: Option<Event>, bank: u32, what: Refusal) {
        if let (Some(event), true) = (event, self.timeline.is_some()) {
            let cpu = self.cpu_of_bank(bank);
            self.note(Happening::Refused(event, cpu, what));
        }
    }

    /// A counter goes on for the next task.
    pub(super) fn mark_handed_over(&mut self, key: RegisterKey) {
        if let (Some(cpu), true) = (self.cpu_of_bank(key.bank), self.timeline.is_some()) {
            self.note(Happening::HandedOver(cpu, key.pmu, key.slot));
        }
    }

    pub(super) fn note_turn(&mut self, cpu: CpuId, next: Option<TaskId>) {
        let to = self.now();
        let Some(timeline) = &mut self.timeline else { return };
        let index = cpu.0 as usize;
        if timeline.on_since.len() <= index {
            timeline.on_since.resize(index + 1, None);
        }
        let before = std::mem::replace(&mut timeline.on_since[index], next.map(|next| (next, to)));
        if let Some((task, from)) = before.filter(|&(_, from)| to > from) {
            timeline.turns.push(Turn { task, cpu, from, to });
        }
    }

    /// The timeline up to now: what still lasts, ends here.
    pub(super) fn timeline_so_far(&self) -> Timeline {
        let Some(mut timeline) = self.timeline.clone() else { return Timeline::default() };
        for (bank, state) in self.banks.iter().enumerate().filter_map(|(bank, state)| Some((bank, state.as_ref()?))) {
            for (pmu, registers) in state.pmus.iter().enumerate() {
                for (slot, register) in registers.slots.iter().enumerate() {
                    if register.as_ref().is_some_and(|register| register.started) {
                        let (pmu, slot) = (PmuId(pmu as u16), Slot(slot as u32));
                        timeline.spans.extend(self.span(RegisterKey { bank: bank as u32, pmu, slot }));
                    }
                }
            }
        }
        let to = self.now();
        for (cpu, on) in timeline.on_since.iter().enumerate() {
            if let Some((task, from)) = on.filter(|&(_, from)| to > from) {
                timeline.turns.push(Turn { task, cpu: CpuId(cpu as u32), from, to });
            }
        }
        timeline
    }
}
