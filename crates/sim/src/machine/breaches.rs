//! What the machine itself sees going wrong, as it happens.
//!
//! What it is: leases that are stale or doubled, counters that go on for a context that is not there; and the misdeeds of a
//! machine that was told to misbehave.
//!
//! **Invariant:** what is seen is noted and the run goes on, so that the first step that went wrong is the one that is
//! reported.

use super::faults::InjectedFault;
use super::ledger::{CountSite, Event};
use super::registers::{RegisterKey, bit};
use super::state::State;
use crate::check::{Checker, Violation};
use pmux_engine::pmu::{Lease, Slot, SlotMask};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, TaskId};

impl State {
    #[cold]
    pub(crate) fn stale(&mut self, bank: u32, lease: Lease) {
        let now = self.now();
        let held = RegisterKey { bank, pmu: lease.pmu, slot: lease.slot };
        let held = self.register(held).map(|register| register.generation);
        let place = self.bank(bank).map(|bank| bank.key);
        let violation = Violation::new(Checker::Leases, now, "a stale lease reached the counters").place(place);
        self.breach(violation.slot(lease.pmu, lease.slot).numbers(held.unwrap_or(0), lease.generation));
    }

    /// A slot has one tenant at a time, is there, and takes the event.
    pub(crate) fn check_slot(&mut self, key: RegisterKey, lease: Lease, allowed: SlotMask, event: Event) {
        let now = self.now();
        let place = self.bank(key.bank).map(|bank| bank.key);
        let new = |what| Violation::new(Checker::Leases, now, what).place(place).event(event).slot(key.pmu, key.slot);
        if let Some(held) = self.register(key).map(|register| register.generation) {
            self.breach(new("a counter is programmed for two").numbers(held, lease.generation));
            self.vacate(key);
        }
        let scarce = self.width(key.pmu).and_then(|width| width.scarce);
        if scarce.is_some_and(|count| key.slot.0 >= u32::from(count) || allowed.0 & bit(key.slot) == 0) {
            self.breach(
                new("an event is on a counter that does not take it").numbers(allowed.0, u64::from(key.slot.0)),
            );
        }
    }

    /// An event is on one counter at a time, and its context is there.
    pub(crate) fn check_going(&mut self, key: RegisterKey, place: ContextKey, twice: Option<RegisterKey>) {
        let there = match place {
            ContextKey::Cpu(cpu) => self.cpu(cpu).online,
            ContextKey::Task(task) => self.task(task).is_some_and(|task| task.on.is_some()),
        };
        if there && twice.is_none() {
            return;
        }
        let event = self.register(key).and_then(|register| self.ledger.event_at(register.tag));
        let what =
            if there { "an event is on two counters at once" } else { "a counter starts where its context is not" };
        let checker = if there { Checker::Leases } else { Checker::Foreign };
        let violation = Violation::new(checker, self.now(), what).place(Some(place)).slot(key.pmu, key.slot);
        self.breach(violation.maybe_event(event));
    }

    /// After a switch: nothing counts for a task that is not there any more.
    pub(crate) fn check_switched(&mut self, cpu: CpuId, out: Option<TaskId>, next: Option<TaskId>) {
        let is_foreign = |state: &Self, key: &RegisterKey| {
            let site = state.register(*key).and_then(|register| state.ledger.site(register.site?));
            site.and_then(CountSite::task).is_some_and(|owner| Some(owner) != next)
        };
        let foreign: Vec<_> = self.going(cpu).filter(|key| is_foreign(self, key)).collect();
        for key in foreign {
            let event = self.register(key).and_then(|register| self.ledger.event_at(register.tag));
            let violation = Violation::new(Checker::Foreign, self.now(), "a counter goes on for a task that has left");
            self.breach(violation.maybe_task(out).cpu(cpu).maybe_event(event).slot(key.pmu, key.slot));
            self.fold(key);
            let site = self.register_mut(key).and_then(|register| register.site.take());
            if let Some(site) = site.and_then(|site| self.ledger.site_mut(site)) {
                site.running = None;
            }
        }
        let left_on = |state: &Self, out: TaskId| Some(state.bank(state.task(out)?.bank?)?.started);
        if let Some(out) = out
            && let Some(started) = left_on(self, out).filter(|&started| started > 0)
        {
            let violation =
                Violation::new(Checker::Foreign, self.now(), "counters of a task go on while it is on no CPU");
            self.breach(violation.task(out).cpu(cpu).numbers(0, u64::from(started)));
        }
    }

    /// A machine that does not do what it says: whether it has said so, and does not start this one.
    #[cold]
    pub(crate) fn start_is_swallowed(&mut self, key: RegisterKey) -> bool {
        let Some((pinned, in_group)) = self.register(key).map(|register| (register.pinned, register.in_group)) else {
            return false;
        };
        match self.injected {
            Some(InjectedFault::StartNoPinned) => pinned,
            Some(InjectedFault::StartHalfAGroup) if in_group => {
                self.half = !self.half;
                self.half
            }
            Some(InjectedFault::StartLate) => {
                self.late.push(key);
                true
            }
            _ => false,
        }
    }

    /// Another slot of the same PMU that is taken, if there is one.
    #[cold]
    pub(crate) fn another_slot(&self, key: RegisterKey) -> Slot {
        let registers = self.bank(key.bank).and_then(|bank| bank.pmus.get(usize::from(key.pmu.0)));
        let taken = registers.and_then(|registers| registers.slots.iter().position(Option::is_some));
        taken.map_or(key.slot, |slot| Slot(slot as u32))
    }
}
