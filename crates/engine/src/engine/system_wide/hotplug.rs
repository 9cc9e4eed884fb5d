//! CPUs that come and go.
//!
//! What it is: one step for the list of CPUs that are online, then one for each set that is meant for the CPU, with that
//! set's turn: a set that is being opened, armed or closed at the moment is waited for. A set that is opened later sees
//! the new list.
//!
//! **Invariant:** a set is open on a CPU of its mask if and only if that is online, or it was refused there and says so.
//!
//! Linux: `perf_event_init_cpu`, `perf_event_exit_cpu` (kernel/events/core.c).

use super::{EAGAIN, SetError};
use crate::context::{Context, Gone};
use crate::cpu_mask::CpuMask;
use crate::engine::sharing::not_opened;
use crate::engine::{Engine, Gate, SetCell};
use crate::error::{ModifyError, OpenError};
use crate::group::{GroupSpec, Plan, resolve};
use crate::host::Host;
use crate::id::{CpuId, Cred, SetId};
use crate::lock::LockCell;
use crate::pmu::BankError;
use crate::system_wide::{SetCpu, SetScope, SetState, SystemWideSet};
use crate::target::Opened;
use crate::target::{ContextKey, Presence};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The task of a set has exited.
const NO_TASK: OpenError = OpenError::Bank { index: 0, error: BankError::NoSuchTask };

impl<H: Host> Engine<H> {
    /// A CPU went offline: its last values are kept, and its events are closed at once, so that no slot stays taken.
    ///
    /// Call it while the CPU's counters can still be read, if that can be had; otherwise the last values that were read
    /// count. It waits for sets that are being opened or switched.
    ///
    /// On a host with [`Host::cpus`] the CPU calls it itself, as a task. Other threads may call the engine meanwhile: calls
    /// for this CPU's counters are served until those are closed, and find it offline afterwards. A task that is still there goes home.
    pub fn cpu_offline(&self, cpu: CpuId) {
        self.hotplug.with(|()| {
            self.registry.with(|registry| registry.online.remove(cpu));
            for (_, cell) in self.sets_meant_for(cpu) {
                cell.turn.with(|set| self.vacate(set, cpu));
            }
            // Events that were opened on the CPU without a set stay open, dead.
            if let Some(cell) = self.context(ContextKey::Cpu(cpu)) {
                cell.step(self, |context: &mut Context, step| context.retire(Gone::Everything, step));
            }
            self.set_presence(cpu, Presence::Out);
        });
    }

    /// A CPU came online: every set that is meant for it is opened there too, and counts if it is armed.
    ///
    /// A refusal is kept with the set and shows in its readings. On a host with [`Host::cpus`] the CPU calls it itself, as a task, before
    /// any other task is switched in there.
    pub fn cpu_online(&self, cpu: CpuId) {
        self.hotplug.with(|()| {
            self.registry.with(|registry| registry.online.insert(cpu));
            self.set_presence(cpu, Presence::On(cpu));
            for (id, cell) in self.sets_meant_for(cpu) {
                cell.turn.with(|set| self.occupy(id, set, cpu));
            }
        });
    }

    /// Opens sets with such credentials where a host that would have had to wait (`EAGAIN`) refused them when a CPU came. What is refused
    /// again stays so.
    pub fn retry_late(&self, whose: impl Fn(Cred) -> bool) {
        let retry = |id, state: &mut SystemWideSet| {
            if !whose(state.domain.cred()) {
                return;
            }
            let is_late = |cpu: &SetCpu| cpu.refused.is_some_and(|error| error.errno() == EAGAIN);
            let late: Vec<_> = state.cpus.iter().filter(|(_, cpu)| is_late(cpu)).map(|(&cpu, _)| cpu).collect();
            late.into_iter().filter(|&cpu| self.is_online(cpu)).for_each(|cpu| self.occupy(id, state, cpu));
        };
        self.hotplug.with(|()| {
            let sets: Vec<_> = self
                .registry
                .with(|registry| registry.sets.iter().map(|(id, record)| (id, Arc::clone(&record.cell))).collect());
            sets.into_iter().for_each(|(id, cell)| cell.turn.with(|set| retry(id, set)));
        });
    }

    /// From now on a set opens these groups on CPUs that come, instead of its own, and at once where it was refused. Where it is open it
    /// stays as it is: what may differ is how often an event samples, where the host allows less than before.
    ///
    /// # Errors
    /// What is wrong with a group; [`ModifyError::Closed`], also where there are not as many groups and events as before. A refusal
    /// on a CPU is kept with the set, as at first.
    pub fn retry_set(&self, set: SetId, groups: &[GroupSpec]) -> Result<(), ModifyError> {
        let retry = |state: &mut SystemWideSet| {
            let plans = groups.iter().map(|spec| resolve(spec, state.domain.cred(), &self.host));
            let plans = plans.collect::<Result<Vec<_>, _>>().map_err(not_opened)?;
            let sizes = |plans: &[Plan]| plans.iter().map(|plan| plan.members.len()).collect::<Vec<_>>();
            if sizes(&plans) != sizes(&state.plans) {
                return Err(ModifyError::Closed);
            }
            state.plans = plans;
            let refused = state.cpus.iter().filter(|(_, cpu)| cpu.refused.is_some()).map(|(&cpu, _)| cpu);
            for cpu in refused.collect::<Vec<_>>() {
                self.occupy(set, state, cpu);
            }
            Ok(())
        };
        // As a CPU that comes: a caller that opens elsewhere meanwhile sees all of it or nothing.
        self.hotplug.with(|()| self.with_set(set, retry)).unwrap_or(Err(ModifyError::Closed))
    }

    /// The CPUs that are online, as far as the engine was told.
    pub fn online(&self) -> CpuMask {
        self.registry.with(|registry| registry.online.clone())
    }

    fn sets_meant_for(&self, cpu: CpuId) -> Vec<(SetId, Arc<SetCell<H>>)> {
        self.registry.with(|registry| {
            let meant = registry.sets.iter().filter(|(_, record)| record.meant.contains(cpu));
            meant.map(|(id, record)| (id, Arc::clone(&record.cell))).collect()
        })
    }

    fn vacate(&self, set: &mut SystemWideSet, cpu: CpuId) {
        if !set.scope.goes_with_cpu() {
            return;
        }
        let last = set.cpus.get(&cpu).map(|state| self.last_counts(&state.groups)).unwrap_or_default();
        let leaving = set.offline(cpu, &last, self.host.now());
        self.close_all(leaving);
    }

    fn occupy(&self, id: SetId, set: &mut SystemWideSet, cpu: CpuId) {
        if set.state == SetState::Closed || set.is_on(cpu) {
            return;
        }
        let opened = match set.state {
            // Its number may be another task's by now.
            _ if !self.is_still_there(set) => Err(SetError { cpu, group: 0, error: NO_TASK }),
            SetState::Armed => self.open_armed(id, set, cpu),
            _ => self.open_on(cpu, set, Gate::With(id), None),
        };
        set.online(cpu, opened.map_err(|error| error.error), self.host.now());
    }

    /// Whether the task of a set is the one that it was opened for.
    fn is_still_there(&self, set: &SystemWideSet) -> bool {
        match set.scope {
            SetScope::Task(task) => self.host.is_still(task, set.since),
            _ => true,
        }
    }

    /// No client is told of an overflow on the new CPU before all groups count there.
    fn open_armed(&self, id: SetId, set: &SystemWideSet, cpu: CpuId) -> Result<Vec<Opened>, SetError> {
        let opened = self.open_on(cpu, set, Gate::Closed, None)?;
        if let Err(error) = self.enable_on(cpu, &opened) {
            self.close_all(opened);
            return Err(error);
        }
        self.admit(id, &opened);
        Ok(opened)
    }
}
