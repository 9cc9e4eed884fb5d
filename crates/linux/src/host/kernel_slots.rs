//! Slots that are kernel event fds.
//!
//! What it is: program opens the fd, start and stop are ioctls, read is `read(2)`. The kernel keeps groups together,
//! multiplexes, and adds up children.
//!
//! **Invariant:** an fd is closed when its slot is released or its bank dropped, never before.

use super::models::clock_of;
use super::opener::{EventFile, EventOpener, TIMES, can_read_as_group, enabled_with, kernel_attr, refused};
use super::{KERNEL, Switch, lock, put};
use crate::sys;
use pmux_abi::attr::{Attr, AttrFlags, Sampling};
use pmux_abi::read::TimedLayout;
use pmux_engine::pmu::{BankError, Lease, Program, Slot, SlotReading, SlotTime};
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{Cred, Nanos, PmuId};
use std::os::fd::AsFd;
use std::sync::Arc;

struct KernelSlot {
    generation: u64,
    fd: Arc<EventFile>,
    attr: Attr,
    /// The credentials that it was opened with.
    cred: Cred,
    filter: Filter,
    /// Open for what it does to the other one.
    _anchor: Option<EventFile>,
    /// How often its task and the tasks that inherited it have forked since before it was opened.
    forks: Option<EventFile>,
    layout: TimedLayout,
    reads: Reads,
    /// How many events a read of it brings.
    members: usize,
    /// How many of them are open.
    opened: usize,
    output: bool,
    /// Whether the first exec of its task starts it.
    on_exec: bool,
    state: Switch,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Its count and its times, and nothing else.
    Alone,
    /// More than those of its count.
    WithMore,
    /// Its whole group.
    Group,
}

impl KernelSlot {
    fn read_alone(&self) -> Result<SlotReading, BankError> {
        let mut words = [[0; 8]; 3];
        match sys::read(self.fd.as_fd(), words.as_flattened_mut()) {
            Ok(24) => {
                let [raw, enabled, running] = words.map(u64::from_ne_bytes);
                let enabled = Nanos(enabled_with(running, enabled));
                let time = SlotTime::Measured { enabled, running: Nanos(running) };
                Ok(SlotReading { raw, time })
            }
            // End of file: a pinned event that could not be kept on its counter.
            Ok(0) => Err(BankError::Unscheduled),
            Ok(_) => Err(BankError::Invalid),
            Err(errno) => Err(refused(errno)),
        }
    }
}

pub(super) struct KernelSlots {
    opener: EventOpener,
    slots: Vec<Option<KernelSlot>>,
    buffer: Vec<u8>,
}

impl KernelSlots {
    pub(super) fn new(opener: EventOpener) -> Self {
        Self { opener, slots: Vec::new(), buffer: Vec::new() }
    }

    fn slot(&self, lease: Lease) -> Result<&KernelSlot, BankError> {
        let slot = self.slots.get(lease.slot.0 as usize).and_then(Option::as_ref);
        slot.filter(|slot| slot.generation == lease.generation).ok_or(BankError::Other(libc::EBADF))
    }

    pub(super) fn program(&mut self, lease: Lease, program: &Program) -> Result<(), BankError> {
        let leader = match program.leader {
            Some(leader) if leader.pmu == lease.pmu => Some(Arc::clone(&self.slot(leader)?.fd)),
            _ => None,
        };
        let grouped = program.leader.is_none() && program.group_size > 1 && can_read_as_group(&program.spec.attr);
        let clock = clock_of(&program.spec.attr);
        let attr = kernel_attr(clock.as_ref().map_or(&program.spec.attr, |(_, attr)| attr), grouped);
        let layout = TimedLayout::new(attr.read_format).ok_or(BankError::Invalid)?;
        // It comes first, so that no fork is missed.
        let inherits = attr.flags.contains(AttrFlags::INHERIT);
        let forks = if inherits { self.opener.fork_counter(program.filter) } else { None };
        let fd = self.opener.open(&attr, (program.filter, program.spec.cred), leader.as_ref().map(|fd| fd.as_fd()))?;
        let anchor = clock.map_or(Ok(None), |(pmu, _)| self.anchor(pmu, &attr, program, &fd))?;
        let fd = Arc::new(fd);
        // Programs of the kernel may read what counts a whole CPU: see `LinuxHost::lend`.
        let output = has_output(&attr) || matches!(self.opener.key, ContextKey::Cpu(_));
        if output {
            lock(&self.opener.shared.outputs).insert((self.opener.key, lease), Arc::clone(&fd));
        }
        let reads = match (grouped, attr.read_format == TIMES) {
            (true, _) => Reads::Group,
            (false, true) => Reads::Alone,
            (false, false) => Reads::WithMore,
        };
        let members = if grouped { program.group_size } else { 1 };
        let on_exec = attr.flags.contains(AttrFlags::ENABLE_ON_EXEC);
        let place = self.place_beside(program.leader.filter(|leader| leader.pmu == lease.pmu));
        if let Some(passable) = self.opener.shared.passable.get() {
            let (key, mut passable) = (self.opener.key, lock(passable));
            match place {
                Some((leader, place)) => passable.add_beside((key, lease), &fd, ((key, leader), place)),
                None => passable.add((key, lease), &fd, attr.read_format.bits(), members),
            }
        }
        let slot = KernelSlot {
            generation: lease.generation,
            fd,
            attr,
            cred: program.spec.cred,
            filter: program.filter,
            _anchor: anchor,
            forks,
            layout,
            reads,
            members,
            opened: 1,
            output,
            on_exec,
            state: Switch::Off,
        };
        put(&mut self.slots, lease.slot.0 as usize, slot);
        Ok(())
    }

    /// The leader with which an event is read, and its place there.
    fn place_beside(&mut self, leader: Option<Lease>) -> Option<(Lease, usize)> {
        let leader = leader?;
        let slot = self.slot_mut(leader).ok().filter(|slot| slot.reads == Reads::Group)?;
        slot.opened += 1;
        Some((leader, slot.opened - 1))
    }

    /// An event of a scarce PMU that is never on. With it in its group, a clock goes by the time of that PMU's events.
    /// Where there is none, or it is refused, the clock goes by itself.
    ///
    /// # Errors
    /// `EAGAIN` where an opener has not answered yet.
    fn anchor(
        &self,
        pmu: PmuId,
        clock: &Attr,
        program: &Program,
        leader: &EventFile,
    ) -> Result<Option<EventFile>, BankError> {
        let Some(anchor) = self.opener.shared.scarce.get(pmu).and_then(|pmu| pmu.anchor()) else { return Ok(None) };
        let mut anchor = kernel_attr(&anchor, false);
        anchor.flags |= clock.flags & (AttrFlags::INHERIT | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV);
        match self.opener.open(&anchor, (program.filter, program.spec.cred), Some(leader.as_fd())) {
            Err(error @ BankError::Other(libc::EAGAIN)) => Err(error),
            opened => Ok(opened.ok()),
        }
    }

    fn slot_mut(&mut self, lease: Lease) -> Result<&mut KernelSlot, BankError> {
        let slot = self.slots.get_mut(lease.slot.0 as usize).and_then(Option::as_mut);
        slot.filter(|slot| slot.generation == lease.generation).ok_or(BankError::Other(libc::EBADF))
    }

    pub(super) fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        let held = self.slot(lease)?.on_exec && self.opener.is_held();
        let slot = self.slot_mut(lease)?;
        if !held {
            sys::perf::enable(slot.fd.as_fd()).map_err(refused)?;
        }
        // Otherwise the exec will start it.
        slot.state = Switch::On;
        Ok(())
    }

    /// Changes what an open breakpoint waits for. Where that is refused it waits for what it waited for; and if it counted,
    /// it counts on. It misses what happens in between.
    ///
    /// # Errors
    /// [`BankError::SlotsExhausted`] where no register is left for another kind; [`BankError::Invalid`] for what the
    /// machine can't watch.
    pub(super) fn modify(&mut self, lease: Lease, watched: &Attr) -> Result<(), BankError> {
        let opener = self.opener.clone();
        let slot = self.slot_mut(lease)?;
        let Attr { bp_type, config1, config2, .. } = *watched;
        let mut attr = Attr { bp_type, config1, config2, ..slot.attr };
        attr.flags.set(AttrFlags::DISABLED, slot.state == Switch::Off);
        match opener.modify(&slot.fd, slot.cred, &attr) {
            Ok(()) => {
                slot.attr = attr;
                Ok(())
            }
            Err(errno) => {
                // The kernel stops an event before it looks at what is wanted. Whether it goes on afterwards, it reads off the
                // attribute that the event was opened with: disabled.
                // Of what an opener has not answered yet nothing has been done.
                if slot.attr.flags.contains(AttrFlags::INHERIT) && errno != sys::Errno::EAGAIN {
                    // Its own register and those of children come one after another: what has been changed is changed back,
                    // to what it has room for.
                    let mut before = slot.attr;
                    before.flags.set(AttrFlags::DISABLED, slot.state == Switch::Off);
                    let _ = opener.modify(&slot.fd, slot.cred, &before);
                }
                if slot.state == Switch::On {
                    sys::perf::enable(slot.fd.as_fd()).map_err(refused)?;
                }
                Err(refused(errno))
            }
        }
    }

    pub(super) fn stop(&mut self, lease: Lease) {
        if let Ok(slot) = self.slot_mut(lease) {
            // Disabling an open event can't fail; were it closed, it would not count either.
            let _ = sys::perf::disable(slot.fd.as_fd());
            slot.state = Switch::Off;
        }
    }

    pub(super) fn read(&mut self, lease: Lease) -> Result<SlotReading, BankError> {
        let slot = self.slot(lease)?;
        if slot.reads == Reads::Alone {
            return slot.read_alone();
        }
        let mut out = [SlotReading { raw: 0, time: SlotTime::Whole }];
        self.read_into(lease, &mut out)?;
        Ok(out[0])
    }

    /// One `read(2)` of the leader brings all members, in the order in which they were opened.
    pub(super) fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Result<(), BankError> {
        match leases.first() {
            Some(&leader) if self.slot(leader)?.reads == Reads::Group => self.read_into(leader, out),
            _ => {
                for (lease, out) in leases.iter().zip(out) {
                    *out = self.read(*lease)?;
                }
                Ok(())
            }
        }
    }

    fn read_into(&mut self, lease: Lease, out: &mut [SlotReading]) -> Result<(), BankError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.slot(lease).and_then(|slot| {
            // A leader that reads as a group answers with all its members, also when only it is asked for.
            let need = slot.layout.size(slot.members);
            if buffer.len() < need {
                buffer.resize(need, 0);
            }
            let read = sys::read(slot.fd.as_fd(), &mut buffer).map_err(refused)?;
            if read == 0 {
                // End of file: a pinned event that could not be kept on its counter.
                return Err(BankError::Unscheduled);
            }
            let values = buffer.get(..read).and_then(|bytes| slot.layout.read(bytes)).ok_or(BankError::Invalid)?;
            let enabled = Nanos(enabled_with(values.running(), values.enabled()));
            let time = SlotTime::Measured { enabled, running: Nanos(values.running()) };
            // Some of the group may be open no more, or another bank's.
            for (out, raw) in out.iter_mut().zip((0..).map_while(|index| values.value(index))) {
                *out = SlotReading { raw, time };
            }
            Ok(())
        });
        self.buffer = buffer;
        result
    }

    /// Whether a task may have inherited it.
    pub(super) fn may_have_heirs(&self, lease: Lease) -> bool {
        let Ok(KernelSlot { forks: Some(forks), .. }) = self.slot(lease) else { return true };
        let mut count = [0; 8];
        let read = sys::read(forks.as_fd(), &mut count);
        read != Ok(count.len()) || u64::from_ne_bytes(count) > 0
    }

    /// Whether the kernel has ended it; it is a leader, or alone.
    pub(super) fn has_ended(&self, lease: Lease) -> bool {
        self.slot(lease).is_ok_and(|slot| self.opener.has_ended(&slot.fd, &slot.attr, slot.filter))
    }

    pub(super) fn release(&mut self, lease: Lease) {
        if self.slot(lease).is_err() {
            return;
        }
        if let Some(passable) = self.opener.shared.passable.get() {
            lock(passable).remove((self.opener.key, lease));
        }
        if let Some(slot) = self.slots.get_mut(lease.slot.0 as usize).and_then(Option::take)
            && slot.output
        {
            lock(&self.opener.shared.outputs).remove(&(self.opener.key, lease));
        }
    }
}

impl Drop for KernelSlots {
    /// What others may find by a slot is closed with it.
    fn drop(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let of = |(slot, it): (usize, &Option<KernelSlot>)| {
            let generation = it.as_ref()?.generation;
            Some((self.opener.key, Lease { pmu: KERNEL, slot: Slot(slot as u32), generation }))
        };
        for key in slots.iter().enumerate().filter_map(of) {
            if let Some(passable) = self.opener.shared.passable.get() {
                lock(passable).remove(key);
            }
            lock(&self.opener.shared.outputs).remove(&key);
        }
    }
}

/// Whether it writes records.
pub(super) fn has_output(attr: &Attr) -> bool {
    let records = AttrFlags::INHERIT_STAT | AttrFlags::TASK | AttrFlags::COMM | AttrFlags::MMAP;
    // What says how a sample looks is meant to be told apart in one, though it be only read there.
    attr.sampling != Sampling::None || !attr.sample.is_empty() || attr.flags.intersects(records)
}
