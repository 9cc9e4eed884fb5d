//! System-wide sets: opening on every CPU or on none, arming when all is open, reading, closing.
//!
//! What it is: steps of one set, each with the set's turn. CPUs that come and go are in `hotplug`.
//!
//! **Invariant:** a set that was refused on one CPU has left nothing on any other.

mod hotplug;

use super::bp_reserve::Asked;
use super::control::Op;
use super::read::GroupReading;
use super::{Armed, Engine, Gate, Opened, SetCell, SetRecord};
use crate::count::Count;
use crate::cpu_mask::CpuMask;
use crate::error::{ControlError, OpenError, ReadError};
use crate::group::{GroupSpec, resolve};
use crate::host::Host;
use crate::id::{CpuId, EventId, GroupId, Nanos, SetId};
use crate::lock::{LockCell, Rank};
use crate::pmu::BankError;
use crate::share::SharingScope;
use crate::system_wide::{Absent, CpuCoverage, SetCpu, SetScope, SetState, SystemWideSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// What a host says that would have to wait, and is to be asked again.
const EAGAIN: i32 = 11;

/// What to open on which CPUs.
#[derive(Clone, Debug)]
pub struct SetRequest {
    /// The groups, the same on each CPU.
    pub groups: Vec<GroupSpec>,
    /// What is counted on each CPU.
    pub scope: SetScope,
    /// The CPUs.
    pub mask: CpuMask,
    /// What happens with those that are not online.
    pub absent: Absent,
}

/// Why a set was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetError {
    /// On which CPU.
    pub cpu: CpuId,
    /// Which group of the request.
    pub group: usize,
    /// Why.
    pub error: OpenError,
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on CPU {}: {}", self.cpu, self.error)
    }
}

impl core::error::Error for SetError {}

/// What one CPU of a set has counted, all its lives together.
#[derive(Clone, Debug)]
pub struct CpuReading {
    /// The CPU.
    pub cpu: CpuId,
    /// Its counts, event by event through all groups.
    pub counts: GroupReading,
    /// Why it is not counted although it is online, if it is so.
    pub refused: Option<OpenError>,
}

/// What a set has counted.
#[derive(Clone, Debug)]
pub struct SetReading {
    /// CPU by CPU, in ascending order.
    pub cpus: Vec<CpuReading>,
    /// For how long each CPU was covered.
    pub coverage: Vec<CpuCoverage>,
    /// For how long the set was armed.
    pub span: Nanos,
}

impl<H: Host> Engine<H> {
    /// Opens the same groups on every CPU of a mask, disabled; all or nothing.
    ///
    /// # Errors
    /// Checked in this order: what is wrong with a group on any CPU, refused with the first CPU of the mask, though it be offline;
    /// CPUs that are not there and must be; whether there are debug registers on all CPUs, unless the host decides that; then the
    /// first refusal with its CPU, in ascending order of CPUs. Everything that was open already is closed again.
    pub fn open_set(&self, request: SetRequest) -> Result<SetId, SetError> {
        self.open_set_in(SharingScope::default(), request)
    }

    /// The same, where its events share with those of this domain only.
    ///
    /// # Errors
    /// As [`Engine::open_set`].
    pub fn open_set_in(&self, domain: SharingScope, request: SetRequest) -> Result<SetId, SetError> {
        let SetRequest { groups, scope, mask, absent } = request;
        let mut plans = Vec::with_capacity(groups.len());
        for (group, spec) in groups.iter().enumerate() {
            match (resolve(spec, domain.cred(), &self.host), mask.iter().next()) {
                (Ok(plan), _) => plans.push(plan),
                (Err(error), Some(cpu)) => return Err(SetError { cpu, group, error }),
                // No CPU will ever ask for it.
                (Err(_), None) => {}
            }
        }
        let turn = LockCell::ranked(Rank::Set, SystemWideSet::new(plans, (scope, mask), domain, self.host.now()));
        let cell = Arc::new(SetCell::<H> { turn });
        cell.turn.with(|set| {
            // From here on hotplug sees it, and waits for its turn.
            let record =
                SetRecord { cell: Arc::clone(&cell), armed: Armed::NotYet, output: None, meant: set.mask.clone() };
            let (id, online) = self.registry.with(|registry| (registry.sets.insert(record), registry.online.clone()));
            let here: CpuMask = set.mask.iter().filter(|&cpu| online.contains(cpu)).collect();
            let give_up = |set: &mut SystemWideSet, error| {
                drop(self.registry.with(|registry| registry.sets.remove(id)));
                self.close_all(set.close());
                Err(error)
            };
            let missing = set.mask.iter().find(|&cpu| absent == Absent::Refuse && !here.contains(cpu));
            if let Some(cpu) = missing {
                return give_up(set, SetError { cpu, group: 0, error: OpenError::CpuOffline { cpu } });
            }
            let mut asked = match self.reserve_set(&set.plans, (set.scope, set.domain), &here) {
                Ok(asked) => asked.map(Vec::into_iter),
                Err(error) => return give_up(set, error),
            };
            let mut not_yet = None;
            for cpu in here.iter() {
                let asked = asked.as_mut().and_then(Iterator::next);
                let result = self.open_on(cpu, set, Gate::With(id), asked);
                match result {
                    Ok(groups) => {
                        set.cpus.insert(cpu, SetCpu { groups, ..SetCpu::default() });
                    }
                    // It went away just now: as good as not there.
                    Err(_) if absent == Absent::Await && !self.is_online(cpu) => {}
                    // A host that would have to wait is asked for all of them at once.
                    Err(error) if error.error.errno() == EAGAIN => not_yet = not_yet.or(Some(error)),
                    Err(error) => return give_up(set, error),
                }
            }
            if let Some(error) = not_yet {
                return give_up(set, error);
            }
            Ok(id)
        })
    }

    pub(super) fn open_on(
        &self,
        cpu: CpuId,
        set: &SystemWideSet,
        gate: Gate,
        asked: Option<Vec<Asked<H>>>,
    ) -> Result<Vec<Opened>, SetError> {
        let mut asked = asked.map(Vec::into_iter);
        let mut opened = Vec::with_capacity(set.plans.len());
        let mut failed = None;
        self.near(cpu, || {
            for (group, plan) in set.plans.iter().enumerate() {
                match self.open_plan(plan, set.scope.on(cpu), gate, set.domain, asked.as_mut().and_then(Iterator::next))
                {
                    Ok(group) => opened.push(group),
                    Err(error) => {
                        let is_final = error.errno() != EAGAIN;
                        failed = Some(SetError { cpu, group, error });
                        if is_final {
                            return;
                        }
                    }
                }
            }
        });
        match failed {
            None => Ok(opened),
            Some(error) => {
                self.close_all(opened);
                Err(error)
            }
        }
    }

    fn set_cell(&self, set: SetId) -> Option<Arc<SetCell<H>>> {
        self.registry.with(|registry| registry.sets.get(set).map(|record| Arc::clone(&record.cell)))
    }

    /// Takes a step of a set with its turn; `None` where it is closed.
    pub(super) fn with_set<R>(&self, set: SetId, f: impl FnOnce(&mut SystemWideSet) -> R) -> Option<R> {
        self.set_cell(set)?.turn.with(|set| (set.state != SetState::Closed).then(|| f(set)))
    }

    fn mark_armed(&self, set: SetId, armed: Armed) {
        self.registry.with(|registry| {
            if let Some(record) = registry.sets.get_mut(set) {
                record.armed = armed;
            }
        });
    }

    /// Has groups of a set count on one CPU.
    ///
    /// # Errors
    /// The first group that is refused; those before it count.
    pub(super) fn enable_on(&self, cpu: CpuId, groups: &[Opened]) -> Result<(), SetError> {
        let mut refused = None;
        self.near(cpu, || {
            refused = groups
                .iter()
                .enumerate()
                .find_map(|(group, opened)| Some((group, self.enable_group(opened.group).err()?)));
        });
        let Some((group, error)) = refused else { return Ok(()) };
        let error = match error {
            ControlError::Bank(error) => error,
            ControlError::Closed => BankError::NoSuchCpu,
        };
        Err(SetError { cpu, group, error: OpenError::Bank { index: 0, error } })
    }

    /// From now on the overflows of groups that have come to a set are told as the set's own are.
    pub(super) fn admit<'a>(&self, set: SetId, groups: impl IntoIterator<Item = &'a Opened>) {
        self.registry.with(|registry| {
            let output = registry.sets.get(set).and_then(|record| record.output.clone());
            for &event in groups.into_iter().flat_map(|opened| &opened.events) {
                if let Some(record) = registry.events.get_mut(event) {
                    record.gate = Gate::With(set);
                    record.output.clone_from(&output);
                }
            }
        });
    }

    /// Lets a set count on all its CPUs.
    ///
    /// # Errors
    /// [`ControlError::Closed`]; the first refusal of the counters, after which the set is disarmed, also if it was
    /// armed before. A refusal on a CPU that is going away is none.
    pub fn enable_set(&self, set: SetId) -> Result<(), ControlError> {
        self.enable_set_on_cpus(set).map_err(|(_, error)| error)
    }

    /// As [`Engine::enable_set`], and says on which CPU it was refused.
    pub(super) fn enable_set_on_cpus(&self, set: SetId) -> Result<(), (Option<CpuId>, ControlError)> {
        let enable = |state: &mut SystemWideSet| {
            let result = self.switch_set(state, Op::Enable);
            if let Err((cpu, error)) = result {
                self.take_down(set, state);
                return Err((Some(cpu), error));
            }
            state.enable(self.host.now());
            self.mark_armed(set, Armed::Yes);
            Ok(())
        };
        self.with_set(set, enable).unwrap_or(Err((None, ControlError::Closed)))
    }

    /// The counters have armed a set by themselves (an exec has started its events).
    pub fn armed_by_exec(&self, set: SetId) {
        self.with_set(set, |state| {
            state.enable(self.host.now());
            self.mark_armed(set, Armed::Yes);
        });
    }

    /// Stops a set on all its CPUs.
    ///
    /// # Errors
    /// [`ControlError::Closed`].
    pub fn disable_set(&self, set: SetId) -> Result<(), ControlError> {
        self.with_set(set, |state| self.take_down(set, state)).ok_or(ControlError::Closed)
    }

    fn take_down(&self, set: SetId, state: &mut SystemWideSet) {
        self.mark_armed(set, Armed::NotYet);
        // Disabling fails for what is closed only, and what is closed does not count.
        let _ = self.switch_set(state, Op::Disable);
        state.disable(self.host.now());
    }

    /// Switches all that can be; answers what failed first.
    fn switch_set(&self, set: &SystemWideSet, op: Op) -> Result<(), (CpuId, ControlError)> {
        let mut result = Ok(());
        for (&cpu, state) in &set.cpus {
            let groups: Vec<GroupId> = state.groups.iter().map(|opened| opened.group).collect();
            let mut here = Ok(());
            self.near(cpu, || {
                let mut left = &groups[..];
                while let Err((number, error)) = self.switch_each(left, op) {
                    here = here.and(Err(error));
                    left = left.get(number + 1..).unwrap_or_default();
                }
            });
            if let Err(error) = here
                && self.is_online(cpu)
            {
                result = result.and(Err((cpu, error)));
            }
        }
        result
    }

    /// Reads a whole set, CPU by CPU.
    ///
    /// # Errors
    /// [`ReadError::Closed`]; each count has its own result.
    pub fn read_set(&self, set: SetId) -> Result<SetReading, ReadError> {
        self.read_set_by(set, |cpu, groups, counts| self.near(cpu, || self.read_all(groups, counts)))
    }

    /// As [`Engine::read_set`], from memory: what each of its events has counted says `look`, which asks no counter
    /// ([`Engine::read_cached`], or who knows better).
    ///
    /// # Errors
    /// [`ReadError::Closed`]; each count has its own result.
    pub fn recall_set(
        &self,
        set: SetId,
        look: impl Fn(EventId) -> Result<Count, ReadError>,
    ) -> Result<SetReading, ReadError> {
        self.read_set_by(set, |_, groups, counts| {
            counts.extend(groups.iter().flat_map(|opened| &opened.events).map(|&event| look(event)));
        })
    }

    fn read_set_by(
        &self,
        set: SetId,
        read: impl Fn(CpuId, &[Opened], &mut GroupReading),
    ) -> Result<SetReading, ReadError> {
        let read = |set: &mut SystemWideSet| {
            let events = set.events_per_cpu();
            let mut cpus = Vec::with_capacity(set.cpus.len());
            for (&cpu, state) in &set.cpus {
                let mut counts = GroupReading::with_capacity(events);
                read(cpu, &state.groups, &mut counts);
                // Nothing is open there now: what it has counted is what it had counted.
                counts.resize(events, Ok(Count::default()));
                for (count, retired) in counts.iter_mut().zip(&state.retired) {
                    if let Ok(count) = count {
                        *count += *retired;
                    }
                }
                cpus.push(CpuReading { cpu, counts, refused: state.refused });
            }
            let now = self.host.now();
            SetReading { cpus, coverage: set.coverage.cpus(now), span: set.coverage.span(now) }
        };
        self.with_set(set, read).ok_or(ReadError::Closed)
    }

    fn read_all(&self, groups: &[Opened], counts: &mut GroupReading) {
        for opened in groups {
            if let Err(error) = self.read_group_into(opened.group, counts) {
                counts.extend(opened.events.iter().map(|_| Err(error)));
            }
        }
    }

    /// The events of a set that are open now, CPU by CPU, through all its groups.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn set_events(&self, set: SetId) -> Result<Vec<(CpuId, Vec<EventId>)>, ReadError> {
        let on_cpu = |(&cpu, state): (&CpuId, &SetCpu)| {
            (cpu, state.groups.iter().flat_map(|opened| opened.events.iter().copied()).collect())
        };
        self.with_set(set, |set| set.cpus.iter().map(on_cpu).collect()).ok_or(ReadError::Closed)
    }

    /// Sets all counts of a set to 0, also what CPUs that went away had counted; times stay.
    ///
    /// # Errors
    /// [`ControlError::Closed`]; [`ControlError::Bank`] of the first counter that can't be read: its count stays, and all
    /// others are reset.
    pub fn reset_set(&self, set: SetId) -> Result<(), ControlError> {
        let reset = |set: &mut SystemWideSet| {
            let mut result = Ok(());
            for SetCpu { groups, retired, .. } in set.cpus.values_mut() {
                let mut events = groups.iter().flat_map(|opened| &opened.events);
                let reset = |event: Option<&EventId>| event.map_or(Ok(()), |&event| self.reset(event));
                // What it counted here before the CPU went belongs to its count: that is forgotten as a whole, or stays.
                for count in &mut *retired {
                    let done = reset(events.next());
                    if done.is_ok() {
                        count.value = 0;
                    }
                    result = result.and(done);
                }
                // Where the CPU never went.
                for event in events {
                    result = result.and(reset(Some(event)));
                }
            }
            result
        };
        self.with_set(set, reset).ok_or(ControlError::Closed)?
    }

    /// Closes a set.
    pub fn close_set(&self, set: SetId) {
        let Some(record) = self.registry.with(|registry| registry.sets.remove(set)) else { return };
        record.cell.turn.with(|set| self.close_all(set.close()));
    }

    /// What the groups of a set on one CPU have counted in the end, event by event.
    pub(super) fn last_counts(&self, groups: &[Opened]) -> Vec<Count> {
        // Going off reads them, for the last time where a slot is scarce or others go on with it: a refusal then must not be the first
        // answer.
        self.read_all(groups, &mut GroupReading::new());
        for opened in groups {
            let _ = self.disable_group(opened.group);
        }
        let mut counts = GroupReading::new();
        self.read_all(groups, &mut counts);
        let events = groups.iter().flat_map(|opened| &opened.events);
        // What can't be read any more has counted what was read last.
        let last = |(count, &event): (Result<Count, ReadError>, &EventId)| {
            count.or_else(|_| self.read_cached(event).map(|(count, _)| count)).unwrap_or_default()
        };
        counts.into_iter().zip(events).map(last).collect()
    }
}
