//! CPUs that come and go, and what goes wrong.

use super::super::faults::{InjectedFault, MachineFault};
use super::super::state::{PendingIrq, State};
use super::super::trace::Happening;
use super::World;
use crate::machine::{Counts, PmuDescription};
use pmux_engine::pmu::{Slot, Slots};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, PmuId, TaskId};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// Why nothing was done with a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuError {
    /// The machine has no such CPU.
    NoSuchCpu(CpuId),
    /// It is offline.
    Offline(CpuId),
    /// It is online.
    Online(CpuId),
    /// It is the last one that is online.
    Last(CpuId),
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchCpu(cpu) => write!(f, "there is no CPU {cpu}"),
            Self::Offline(cpu) => write!(f, "CPU {cpu} is offline"),
            Self::Online(cpu) => write!(f, "CPU {cpu} is online already"),
            Self::Last(cpu) => write!(f, "CPU {cpu} is the last one online; one must stay"),
        }
    }
}

impl std::error::Error for CpuError {}

impl World {
    /// A CPU goes. Tasks on it leave it, and those that were to run there go to the lowest CPU that is online.
    ///
    /// # Errors
    /// In this order: there is no such CPU, it is offline already, it is the last.
    pub fn offline(&mut self, cpu: CpuId) -> Result<(), CpuError> {
        if !self.is_online(self.known_cpu(cpu)?) {
            return Err(CpuError::Offline(cpu));
        }
        if self.state(|state| state.cpus.iter().filter(|cpu| cpu.online).count()) == 1 {
            return Err(CpuError::Last(cpu));
        }
        // It is online, so this cannot be refused.
        let _ = self.place(cpu, None);
        self.with(|state| {
            state.cpu_mut(cpu).going = true;
            state.clear_queue(cpu);
            state.flag_cpu(cpu, Going::Goes);
            state.note(Happening::Offline(cpu));
        });
        self.touch_place(ContextKey::Cpu(cpu));
        self.bring_samples();
        let unread = self.refused_readings();
        self.call_on(cpu, |engine| engine.cpu_offline(cpu));
        self.with(|state| {
            state.set_online(cpu, false);
            state.cpu_mut(cpu).going = false;
            state.flag_cpu(cpu, Going::Gone);
            let refuge = state.first_online();
            for task in state.living().collect::<Vec<TaskId>>() {
                if let Some(task) = state.task_mut(task).filter(|task| task.home == cpu) {
                    task.home = refuge;
                }
            }
        });
        self.find_caller();
        // Events that were on it without a set are dead.
        let dead: Vec<_> = self
            .books
            .iter()
            .filter(|(_, book)| book.root().is_some_and(|target| target.context == ContextKey::Cpu(cpu)))
            .flat_map(|(_, book)| book.tags.clone())
            .collect();
        self.with(|state| dead.into_iter().for_each(|tag| state.each_site(tag, |site| site.dead = true)));
        let sets: Vec<_> =
            self.books.sets().filter(|(_, set)| set.mask.contains(cpu)).map(|(number, _)| number).collect();
        for set in sets {
            // Each count is read twice at least, so that one refusal loses nothing.
            self.note_unread(&self.events_of_set(set), unread + 1);
            self.link_set_on(set, &[cpu]);
        }
        self.orphan_views(cpu);
        Ok(())
    }

    /// A CPU comes.
    ///
    /// # Errors
    /// In this order: there is no such CPU, it is online already.
    pub fn online(&mut self, cpu: CpuId) -> Result<(), CpuError> {
        if self.is_online(self.known_cpu(cpu)?) {
            return Err(CpuError::Online(cpu));
        }
        self.with(|state| {
            state.set_online(cpu, true);
            state.note(Happening::Online(cpu));
        });
        self.find_caller();
        // Sets that count there from now on may do so before the call returns.
        let sets: Vec<_> =
            self.books.sets().filter(|(_, set)| set.mask.contains(cpu)).map(|(number, _)| number).collect();
        for &set in &sets {
            self.expect_set_on(set, cpu);
        }
        let open_before: Vec<_> = sets.iter().map(|&set| self.set_is_on(set).into_iter().collect()).collect();
        if !self.is_injected(InjectedFault::SilentOnline) {
            self.call_on(cpu, |engine| engine.cpu_online(cpu));
        }
        for (set, before) in sets.into_iter().zip(&open_before) {
            self.revive_set_on(set, &[cpu], before);
            self.settle_set_on(set, &[cpu]);
        }
        self.touch_place(ContextKey::Cpu(cpu));
        Ok(())
    }

    /// The PMU that has this hardware counter.
    #[must_use]
    pub fn pmu_with(&self, counter: u8) -> Option<PmuId> {
        let has = |pmu: &PmuDescription| match (&pmu.counts, pmu.slots) {
            (Counts::Kinds(_), Slots::Scarce(count)) => counter < count,
            _ => false,
        };
        self.description().pmus.iter().position(has).map(|pmu| PmuId(pmu as u16))
    }

    /// Callers that are asked to go near a CPU stay where they are, until [`World::heal`].
    pub fn stay_put(&mut self) {
        self.with(|state| state.faults.stay_put = true);
    }

    /// Something goes wrong, now or later.
    pub fn fault(&mut self, fault: MachineFault) {
        if fault == MachineFault::None {
            return self.heal();
        }
        self.with(|state| state.faults.add(fault));
        match fault {
            MachineFault::Held(cpu, counter) => {
                let held = self.pmu_with(counter).map(|pmu| (cpu, pmu, Slot(counter.into())));
                self.with(|state| state.faults.held.extend(held));
            }
            MachineFault::DoorbellSpurious(cpu) => self.with(|state| state.ring_later(PendingIrq::Doorbell(cpu), 0)),
            MachineFault::Storm(cpu, interrupts) if self.is_online(cpu) => {
                for _ in 0..interrupts {
                    self.with(|state| state.note(Happening::Interrupt(cpu)));
                    self.call_on(cpu, |engine| engine.counters_interrupted(cpu));
                }
            }
            _ => {}
        }
    }

    /// Nothing goes wrong from now on.
    pub fn heal(&mut self) {
        self.with(|state| {
            if state.injected != Some(InjectedFault::HealNothing) {
                state.faults.clear();
            }
        });
        self.healed_at = self.refusals();
    }

    /// The machine does something from now on that no machine may do; `None` ends it.
    pub fn inject(&mut self, injected: Option<InjectedFault>) {
        self.with(|state| state.injected = injected);
        self.machine.shared.jumps.store(injected == Some(InjectedFault::ClockJumps), Relaxed);
        self.machine.shared.pmus.iter().for_each(|pmu| pmu.inject(injected));
    }

    pub(crate) fn is_injected(&self, injected: InjectedFault) -> bool {
        self.state(|state| state.injected == Some(injected))
    }
}

/// How far a CPU is in going.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    Goes,
    Gone,
}

impl State {
    /// What is counted on a CPU counts no more: for certain not from when it goes, and certainly not when it is gone.
    fn flag_cpu(&mut self, cpu: CpuId, going: Going) {
        for site in self.sites_in(ContextKey::Cpu(cpu)) {
            self.with_total(site, |site, total| {
                site.on = false;
                match going {
                    Going::Goes => site.least.set(false, total),
                    Going::Gone => site.most.set(false, total),
                }
            });
        }
    }
}
