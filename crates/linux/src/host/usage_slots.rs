//! Slots that are `/proc`, `wait4` and cgroup files: what is left where `perf_event_open` is refused.
//!
//! What it is: one [`UsageSource`] for the context, and in each slot what it has counted while it was started.
//!
//! **Invariant:** a stopped slot stands still, though the source goes on.

use super::models::{is_of_machine, usage_kind};
use super::{Shared, lock, put};
use crate::cgroup::{CgroupError, Mounts};
use crate::procfs::{Proc, ProcError};
use crate::usage::{UsageError, UsageKind, UsageSource, UsageTarget};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::pmu::{BankError, Lease, Program, SlotReading, SlotTime};
use pmux_engine::target::{ContextKey, Filter};
use std::sync::Arc;

/// What a source is opened on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UsageScope {
    filter: Filter,
    extent: Extent,
}

/// How much of the world belongs to a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// A thread alone; or the context is no task.
    Itself,
    /// All threads of its process.
    Process,
    /// It is a child of ours, with all its descendants.
    Command,
    /// The whole machine, whichever CPU it was opened on.
    Machine,
}

struct UsageSlot {
    generation: u64,
    place: UsageScope,
    kind: UsageKind,
    /// Counted in earlier periods.
    done: u64,
    /// The source's value at the start of this period; `None` while it is stopped.
    since: Option<u64>,
}

pub(super) struct UsageSlots {
    key: ContextKey,
    shared: Arc<Shared>,
    proc: Proc,
    sources: Vec<(UsageScope, UsageSource)>,
    slots: Vec<Option<UsageSlot>>,
}

impl UsageSlots {
    pub(super) fn new(key: ContextKey, shared: Arc<Shared>, proc: Proc) -> Self {
        Self { key, shared, proc, sources: Vec::new(), slots: Vec::new() }
    }

    /// What a slot that is programmed now is meant for.
    fn place(&self, filter: Filter, attr: &Attr) -> UsageScope {
        let extent = match self.key {
            _ if is_of_machine(attr) => Extent::Machine,
            ContextKey::Task(task) if lock(&self.shared.commands).contains(&task) => Extent::Command,
            ContextKey::Task(task) if lock(&self.shared.processes).contains(&task) => Extent::Process,
            _ => Extent::Itself,
        };
        UsageScope { filter, extent }
    }

    fn target(&self, place: UsageScope) -> Result<UsageTarget, BankError> {
        match (self.key, place.filter) {
            (ContextKey::Task(task), Filter::Everything) => {
                let tid = i32::try_from(task.0).map_err(|_| BankError::NoSuchTask)?;
                Ok(match place.extent {
                    Extent::Itself | Extent::Machine => UsageTarget::Thread(tid),
                    Extent::Process => UsageTarget::Process(tid),
                    Extent::Command => UsageTarget::Command(tid),
                })
            }
            (ContextKey::Cpu(_), Filter::Everything) if place.extent == Extent::Machine => Ok(UsageTarget::Machine),
            (ContextKey::Cpu(cpu), Filter::Everything) => Ok(UsageTarget::Cpu(cpu.0)),
            // Its files tell of all CPUs together: a caller that opens this has to do so on one CPU only.
            (ContextKey::Cpu(_), Filter::Cgroup(id)) => {
                let path = lock(&self.shared.cgroups).get(&id).map(|known| known.cgroup.path().to_owned());
                let path = path.as_ref().and_then(|path| path.to_str()).ok_or(BankError::Other(libc::EBADF))?;
                let cgroup = Mounts::system().and_then(|mounts| mounts.open(path));
                Ok(UsageTarget::Cgroup(cgroup.map_err(|error| refusal(&UsageError::Cgroup(error)))?))
            }
            // What a task did on one CPU is written nowhere.
            _ => Err(BankError::NotSupported),
        }
    }

    fn source(&mut self, place: UsageScope) -> Result<&mut UsageSource, BankError> {
        let index = match self.sources.iter().position(|(other, _)| *other == place) {
            Some(index) => index,
            None => {
                let target = self.target(place)?;
                let source = UsageSource::open(target, self.proc.clone()).map_err(|error| refusal(&error))?;
                self.sources.push((place, source));
                self.sources.len() - 1
            }
        };
        Ok(&mut self.sources[index].1)
    }

    /// The source's value now; after the target was reaped, the exact one.
    fn value(&mut self, place: UsageScope, kind: UsageKind) -> Result<u64, BankError> {
        let (begun, last) = match self.key {
            ContextKey::Task(task) => {
                (lock(&self.shared.begun).get(&task).copied(), lock(&self.shared.finals).get(&task).copied())
            }
            ContextKey::Cpu(_) => (None, None),
        };
        let source = self.source(place)?;
        if let Some(begun) = begun {
            source.begin(begun);
        }
        if let Some(last) = last {
            source.retire(last);
        }
        source.read(kind).map_err(|error| refusal(&error))
    }

    pub(super) fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let kind = usage_kind(&program.spec.attr).ok_or(BankError::NoSuchEvent)?;
        let place = self.place(program.filter, &program.spec.attr);
        let starts = program.spec.attr.flags.contains(AttrFlags::ENABLE_ON_EXEC);
        let source = self.source(place)?;
        if !source.supports(kind) {
            return Err(BankError::NotSupported);
        }
        let begins = starts && kind != UsageKind::DurationTime && source.awaits_exec();
        // The child is held before its exec, and tells then what it has used so far: see `UsageSource::begin`.
        let since = match (begins, starts) {
            (true, _) => Some(0),
            (false, true) => Some(self.value(place, kind)?),
            (false, false) => None,
        };
        let slot = UsageSlot { generation: lease.generation, place, kind, done: 0, since };
        put(&mut self.slots, lease.slot.0 as usize, slot);
        Ok(())
    }

    fn slot(&mut self, lease: Lease) -> Option<&mut UsageSlot> {
        let slot = self.slots.get_mut(lease.slot.0 as usize).and_then(Option::as_mut);
        slot.filter(|slot| slot.generation == lease.generation)
    }

    pub(super) fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        let Some(slot) = self.slot(lease) else { return Err(BankError::Other(libc::EBADF)) };
        if slot.since.is_some() {
            return Ok(());
        }
        let (place, kind) = (slot.place, slot.kind);
        let now = self.value(place, kind)?;
        if let Some(slot) = self.slot(lease) {
            slot.since = Some(now);
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, lease: Lease) {
        // Where the files can't be read any more, what was counted up to the last reading stays.
        let counted = self.read(lease).map(|reading| reading.raw);
        if let Some(slot) = self.slot(lease) {
            slot.done = counted.unwrap_or(slot.done);
            slot.since = None;
        }
    }

    pub(super) fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        let Some(slot) = self.slot(lease) else { return Err(BankError::Other(libc::EBADF)) };
        let (place, kind, done, since) = (slot.place, slot.kind, slot.done, slot.since);
        let raw = match since {
            None => done,
            // A peak is a level, not a sum.
            Some(_) if kind == UsageKind::MaxRss => self.value(place, kind)?,
            Some(since) => done + self.value(place, kind)?.saturating_sub(since),
        };
        Ok(SlotReading { raw, time: SlotTime::Whole })
    }

    pub(super) fn release(&mut self, lease: Lease) {
        if self.slot(lease).is_some() {
            self.slots[lease.slot.0 as usize] = None;
        }
        if self.slots.iter().all(Option::is_none) {
            self.sources.clear();
        }
    }
}

fn refusal(error: &UsageError) -> BankError {
    match error {
        UsageError::Unavailable(_) => BankError::NotSupported,
        UsageError::Proc(ProcError::Gone { .. }) => BankError::NoSuchTask,
        UsageError::Proc(ProcError::NotMounted { .. }) => BankError::Other(libc::ENOSYS),
        UsageError::Proc(ProcError::Denied { .. }) | UsageError::Cgroup(CgroupError::Denied { .. }) => {
            BankError::NotPermitted
        }
        _ => BankError::Invalid,
    }
}
