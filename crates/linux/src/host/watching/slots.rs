//! The slots of one context, each with its kernel events.
//!
//! What it is: program opens the events of a slot, or aims spare ones at another address; start and stop switch all of them; a
//! reading is the sum.
//!
//! **Invariant:** the events of a slot are whole: opened on every CPU or on none, aimed at one address on every CPU. One that can't be
//! kept so is closed.

use crate::host::lock;
use crate::host::opener::{EventFile, EventFiles, EventOpener, bytes_of, kernel_attr, refused};
use crate::sys;
use pmux_abi::attr::{Attr, AttrFlags, ReadFormat, Sampling};
use pmux_engine::pmu::{BankError, Lease, Program, Slot, SlotReading, SlotTime};
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{Cred, PmuId};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SlotOwner {
    Lease(u64),
    /// No lease: it is kept for the next one.
    Spare,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchSlotState {
    Off,
    /// The kernel counts already, and no caller has asked for it yet.
    Early,
    On,
}

struct SlotEvents {
    owner: SlotOwner,
    filter: Filter,
    attr: Attr,
    files: EventFiles,
    /// An event without a ring owner: that may still come, or a program tells of its hits.
    late: Option<Arc<EventFile>>,
    switch: WatchSlotState,
    /// What they had counted when the owner began to count.
    base: u64,
}

pub(in crate::host) struct WatchSlots {
    opener: EventOpener,
    /// A handful, so that looking through them is the quickest way.
    slots: Vec<((PmuId, Slot), SlotEvents)>,
}

impl WatchSlots {
    pub(in crate::host) fn new(opener: EventOpener) -> Self {
        Self { opener, slots: Vec::new() }
    }

    fn slot_events(&mut self, lease: Lease) -> Result<&mut SlotEvents, BankError> {
        let key = (lease.pmu, lease.slot);
        let slot_events = self.slots.iter_mut().find(|(of, _)| *of == key).map(|(_, slot_events)| slot_events);
        slot_events
            .filter(|slot_events| slot_events.owner == SlotOwner::Lease(lease.generation))
            .ok_or(BankError::Other(libc::EBADF))
    }

    /// Takes out whatever stands for a slot.
    fn take(&mut self, key: (PmuId, Slot)) -> Option<SlotEvents> {
        let index = self.slots.iter().position(|(of, _)| *of == key)?;
        Some(self.slots.swap_remove(index).1)
    }

    pub(in crate::host) fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let mut attr = kernel_attr(&program.spec.attr, false);
        // Whose times would they be? The engine's are those of the slot.
        attr.read_format = ReadFormat::empty();
        let keeps = self.opener.shared.watching.get(lease.pmu).is_some_and(|pmu| !pmu.takes_turns());
        // A call less for each of thousands of events, and on another CPU's task an interrupt less there, is worth that some are
        // on a moment earlier: the caller that asked for them knows which hits are too early.
        attr.flags.set(AttrFlags::DISABLED, !keeps);
        let key = (lease.pmu, lease.slot);
        let spare = self.take(key).filter(|slot_events| slot_events.can_be_aimed(&attr, program.filter));
        let slot_events = match spare.and_then(|slot_events| slot_events.aim(&attr)) {
            Some(slot_events) => slot_events,
            None => self.open(lease, attr, program.filter)?,
        };
        if self.slots.is_empty() {
            // Most have one only.
            self.slots.reserve_exact(1);
        }
        self.slots.push((key, SlotEvents { owner: SlotOwner::Lease(lease.generation), ..slot_events }));
        Ok(())
    }

    fn open(&self, lease: Lease, attr: Attr, filter: Filter) -> Result<SlotEvents, BankError> {
        let watched = self.opener.shared.watching.get(lease.pmu).ok_or(BankError::NotSupported)?;
        let cpu = match (self.opener.key, filter) {
            (ContextKey::Cpu(cpu), _) | (_, Filter::OnCpu(cpu)) => Some(cpu.0),
            _ => None,
        };
        let ring_owners = watched.ring_owners();
        let samples = attr.sampling != Sampling::None;
        let program = watched.program().filter(|_| samples);
        // Where a program tells of hits and a sample would tell nothing, there is no ring: then one that follows its task does.
        let writes = samples && (program.is_none() || !attr.sample.is_empty());
        let ring_owners = ring_owners.iter().filter(|(of, _)| writes && cpu.is_none_or(|cpu| cpu == *of));
        let mut ring_owners = ring_owners.map(|(cpu, ring_owner)| (*cpu, &**ring_owner)).peekable();
        let count = &self.opener.shared.files;
        let mut late = None;
        let files = match (ring_owners.peek(), watched.per_thread_of(self.opener.key)) {
            (None, _) if writes && !matches!(self.opener.key, ContextKey::Cpu(_)) => {
                // Its hits could never be told.
                return Err(BankError::NoSuchCpu);
            }
            (_, Some(per_thread)) => {
                let files = per_thread.open(&attr, &ring_owners.collect::<Vec<_>>(), program.as_deref(), count)?;
                return Ok(SlotEvents::new(filter, attr, files, None));
            }
            (Some(_), None) => self.opener.open_into(&attr, filter, ring_owners)?,
            (None, None) => {
                // On a CPU that has just come: its ring owner follows, and until then its hits are only counted.
                let file = Arc::new(self.opener.open(&attr, (filter, Cred::HOST), None)?);
                if writes {
                    lock(&self.opener.shared.outputs).insert((self.opener.key, lease), Arc::clone(&file));
                }
                late = Some(file);
                EventFiles::new(Vec::new(), count)
            }
        };
        let slot_events = SlotEvents::new(filter, attr, files, late);
        // Until then its hits are samples as ever.
        if let Some(program) = program {
            slot_events.files().try_for_each(|file| program.attach(file)).map_err(refused)?;
        }
        Ok(slot_events)
    }

    pub(in crate::host) fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        let slot_events = self.slot_events(lease)?;
        match std::mem::replace(&mut slot_events.switch, WatchSlotState::On) {
            WatchSlotState::On => return Ok(()),
            WatchSlotState::Early => {
                if slot_events.attr.sampling == Sampling::None {
                    // No time tells the hits until now from later ones.
                    slot_events.base = slot_events.total().inspect_err(|_| slot_events.stop())?;
                }
                return Ok(());
            }
            WatchSlotState::Off => {}
        }
        let started = slot_events.files().try_for_each(sys::perf::enable);
        if started.is_err() {
            slot_events.stop();
        }
        started.map_err(refused)
    }

    pub(in crate::host) fn stop(&mut self, lease: Lease) {
        if let Ok(slot_events) = self.slot_events(lease) {
            slot_events.stop();
        }
    }

    pub(in crate::host) fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        let slot_events = self.slot_events(lease)?;
        let raw = if slot_events.switch == WatchSlotState::Early {
            0
        } else {
            slot_events.total()?.wrapping_sub(slot_events.base)
        };
        Ok(SlotReading { raw, time: SlotTime::Whole })
    }

    pub(in crate::host) fn release(&mut self, lease: Lease) {
        let keep = self.opener.shared.watching.get(lease.pmu).is_some_and(super::WatchPmu::takes_turns);
        let Ok(slot_events) = self.slot_events(lease) else { return };
        slot_events.owner = SlotOwner::Spare;
        if !keep {
            drop(self.take((lease.pmu, lease.slot)));
        }
        if matches!(self.opener.key, ContextKey::Cpu(_)) {
            lock(&self.opener.shared.outputs).remove(&(self.opener.key, lease));
        }
    }
}

impl SlotEvents {
    fn new(filter: Filter, attr: Attr, files: EventFiles, late: Option<Arc<EventFile>>) -> Self {
        let switch = if attr.flags.contains(AttrFlags::DISABLED) { WatchSlotState::Off } else { WatchSlotState::Early };
        Self { owner: SlotOwner::Spare, filter, attr, files, late, switch, base: 0 }
    }

    /// Whether it is free, and differs from what is wanted in nothing that can't be changed.
    fn can_be_aimed(&self, attr: &Attr, filter: Filter) -> bool {
        let Attr { bp_type, config1, config2, .. } = *attr;
        self.owner == SlotOwner::Spare
            && self.filter == filter
            && Attr { bp_type, config1, config2, ..self.attr } == *attr
    }

    /// Aims it; `None`, and it is closed, where the kernel refuses that.
    fn aim(mut self, attr: &Attr) -> Option<Self> {
        if self.attr != *attr {
            let bytes = bytes_of(attr);
            self.files().try_for_each(|file| sys::perf::modify_attributes(file, &bytes)).ok()?;
            self.attr = *attr;
        }
        self.base = self.total().ok()?;
        Some(self)
    }

    fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.files.fds.iter().map(OwnedFd::as_fd).chain(self.late.as_ref().map(|file| file.as_fd()))
    }

    fn total(&self) -> Result<u64, BankError> {
        self.files().try_fold(0_u64, |sum, file| Ok(sum.wrapping_add(count_of(file)?)))
    }

    fn stop(&mut self) {
        self.switch = WatchSlotState::Off;
        for file in self.files() {
            // Disabling an open event can't fail; were it closed, it would not count either.
            let _ = sys::perf::disable(file);
        }
    }
}

/// What one of them has counted, with its children.
fn count_of(file: BorrowedFd<'_>) -> Result<u64, BankError> {
    sys::perf::count(file).map_err(refused)?.ok_or(BankError::Unscheduled)
}
