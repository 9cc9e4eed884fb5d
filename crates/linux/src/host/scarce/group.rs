//! The fds of one group of the engine.
//!
//! What it is: events that the kernel keeps together, kept open from attach to detach and switched on for as long as the
//! engine gives the group its slots. The kernel's leader switches all of them at one moment.
//! Read first: [`FdGroup`].
//!
//! **Invariant:** while the engine has the leader stopped, none of them counts.

use crate::host::Switch;
use crate::host::opener::{EventFile, EventOpener, can_read_as_group, enabled_with, kernel_attr, refused};
use crate::sys;
use pmux_abi::attr::{Attr, AttrFlags, ReadFormat};
use pmux_abi::read::{ReadLayout, ReadValues};
use pmux_engine::pmu::{BankError, CgroupNode, Program, SlotReading, SlotTime};
use pmux_engine::target::{EventKey, Filter};
use pmux_engine::{Cred, Nanos, PmuId};
use std::os::fd::AsFd;

/// What the kernel says of an event, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EventTotals {
    pub(super) value: u64,
    pub(super) enabled: Nanos,
    pub(super) running: Nanos,
}

impl EventTotals {
    fn since(self, base: Self) -> Self {
        Self {
            value: self.value.wrapping_sub(base.value),
            enabled: self.enabled.since(base.enabled),
            running: self.running.since(base.running),
        }
    }

    pub(super) const fn reading(self) -> SlotReading {
        SlotReading { raw: self.value, time: SlotTime::Measured { enabled: self.enabled, running: self.running } }
    }
}

/// Whether the first exec of the task is to switch a group on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    ByHand,
    ByExec,
}

struct EventFd {
    event: EventKey,
    attr: Attr,
    /// The credentials that it was opened with, and is opened with anew.
    cred: Cred,
    fd: EventFile,
    layout: ReadLayout,
    wanted: Switch,
    /// What the kernel was told; of a sibling it means something while the leader is on.
    kernel_state: Switch,
    /// What it had counted when its slot was programmed last. The kernel's own reset would forget too little (what
    /// exited children had counted stays) and too much (others may count with the same event).
    base: EventTotals,
    /// Whether it has never been on.
    fresh: bool,
}

/// Events that the kernel keeps together: its leader first.
pub(super) struct FdGroup {
    filter: Filter,
    /// Of which PMU it is, and where it stands among the cgroups.
    pub(super) stand: (PmuId, CgroupNode),
    events: Vec<EventFd>,
    start: Start,
}

impl FdGroup {
    pub(super) const fn new(filter: Filter, stand: (PmuId, CgroupNode)) -> Self {
        Self { filter, stand, events: Vec::new(), start: Start::ByHand }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn index(&self, event: EventKey) -> Result<usize, BankError> {
        self.events.iter().position(|other| other.event == event).ok_or(BankError::Other(libc::EBADF))
    }

    fn leader(&self) -> Option<&EventFd> {
        self.events.first()
    }

    fn is_on(&self) -> bool {
        self.leader().is_some_and(|leader| leader.kernel_state == Switch::On)
    }

    /// Opens one more event, which doesn't count.
    pub(super) fn add(&mut self, opener: &EventOpener, program: &Program) -> Result<(), BankError> {
        let mut attr = program.spec.attr;
        // The exec starts the events that are on then, not those that are open.
        attr.flags.remove(AttrFlags::ENABLE_ON_EXEC);
        let leads = self.events.is_empty();
        let attr = kernel_attr(&attr, leads && program.group_size > 1 && can_read_as_group(&attr));
        let opened = self.open(opener, (program.event, program.spec.cred), attr, Switch::Off)?;
        self.events.push(opened);
        Ok(())
    }

    fn open(
        &self,
        opener: &EventOpener,
        (event, cred): (EventKey, Cred),
        attr: Attr,
        kernel_state: Switch,
    ) -> Result<EventFd, BankError> {
        let mut given = attr;
        given.flags.set(AttrFlags::DISABLED, kernel_state == Switch::Off);
        let fd = opener.open(&given, (self.filter, cred), self.leader().map(|leader| leader.fd.as_fd()))?;
        let layout = ReadLayout::new(attr.read_format);
        let base = EventTotals::default();
        Ok(EventFd { event, attr, cred, fd, layout, wanted: Switch::Off, kernel_state, base, fresh: true })
    }

    pub(super) fn remove(&mut self, event: EventKey) {
        self.events.retain(|other| other.event != event);
    }

    /// What the event counts from now on is its own.
    pub(super) fn rebase(&mut self, event: EventKey, buffer: &mut Vec<u8>) -> Result<(), BankError> {
        let index = self.index(event)?;
        // The times of a group are those of its leader.
        let fresh = self.events[index].fresh && (!self.is_read_whole() || self.events[0].fresh);
        if !fresh {
            self.events[index].base = self.totals(index, buffer)?;
        }
        Ok(())
    }

    /// Lets an event count; all of a group at once, when its leader is started.
    pub(super) fn start(&mut self, opener: &EventOpener, event: EventKey) -> Result<(), BankError> {
        let index = self.index(event)?;
        self.events[index].wanted = Switch::On;
        self.events[index].fresh = false;
        if index > 0 {
            return self.set_kernel_state(index, Switch::On);
        }
        for sibling in 1..self.events.len() {
            self.set_kernel_state(sibling, self.events[sibling].wanted)?;
        }
        if opener.is_held() {
            self.reopen(opener, Start::ByExec)?;
            self.events[0].kernel_state = Switch::On;
            return Ok(());
        }
        self.set_kernel_state(0, Switch::On)
    }

    pub(super) fn stop(&mut self, opener: &EventOpener, event: EventKey) {
        let Ok(index) = self.index(event) else { return };
        self.events[index].wanted = Switch::Off;
        if self.start == Start::ByExec {
            if index == 0 && opener.is_held() {
                // The exec is still to come, and must not find it.
                self.events[0].kernel_state = Switch::Off;
                let _ = self.reopen(opener, Start::ByHand);
                return;
            }
            // That exec was long ago.
            self.start = Start::ByHand;
        }
        // Siblings stop with their leader. One that stops alone is told; what is open can be disabled.
        if index == 0 || self.is_on() {
            let _ = self.set_kernel_state(index, Switch::Off);
        }
    }

    fn set_kernel_state(&mut self, index: usize, switch: Switch) -> Result<(), BankError> {
        let Some(event) = self.events.get_mut(index).filter(|event| event.kernel_state != switch) else {
            return Ok(());
        };
        let done = match switch {
            Switch::On => sys::perf::enable(event.fd.as_fd()),
            Switch::Off => sys::perf::disable(event.fd.as_fd()),
        };
        done.map_err(refused)?;
        event.kernel_state = switch;
        Ok(())
    }

    /// Opens everything anew, to be started in another way. Only for a task that has not run yet: what has been inherited
    /// would be lost.
    fn reopen(&mut self, opener: &EventOpener, start: Start) -> Result<(), BankError> {
        if self.start == start {
            return Ok(());
        }
        let mut anew = Self { filter: self.filter, stand: self.stand, events: Vec::new(), start };
        for old in &self.events {
            let mut attr = old.attr;
            let leads = anew.events.is_empty();
            attr.flags.set(AttrFlags::ENABLE_ON_EXEC, leads && start == Start::ByExec);
            let kernel_state = if leads { Switch::Off } else { old.kernel_state };
            let mut opened = anew.open(opener, (old.event, old.cred), attr, kernel_state)?;
            (opened.wanted, opened.fresh) = (old.wanted, old.fresh);
            anew.events.push(opened);
        }
        *self = anew;
        Ok(())
    }

    /// Whether the kernel has ended all of its events.
    pub(super) fn has_ended(&self, opener: &EventOpener) -> bool {
        self.leader().is_some_and(|leader| opener.has_ended(&leader.fd, &leader.attr, self.filter))
    }

    /// What an event has counted since its slot was programmed.
    pub(super) fn read(&self, event: EventKey, buffer: &mut Vec<u8>) -> Result<EventTotals, BankError> {
        let index = self.index(event)?;
        Ok(self.totals(index, buffer)?.since(self.events[index].base))
    }

    /// The same for several events, at one moment where the kernel can do that.
    pub(super) fn read_all(
        &self,
        events: &[EventKey],
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(usize, EventTotals),
    ) -> Result<(), BankError> {
        if !self.is_read_whole() {
            for (at, &event) in events.iter().enumerate() {
                each(at, self.read(event, buffer)?);
            }
            return Ok(());
        }
        self.read_into(0, buffer, |values| {
            for (at, &event) in events.iter().enumerate() {
                let index = self.index(event)?;
                each(at, totals(&values, index)?.since(self.events[index].base));
            }
            Ok(())
        })
    }

    /// Whether the kernel reads all of them together. All readings then come from there, so that they compare.
    fn is_read_whole(&self) -> bool {
        self.leader().is_some_and(|leader| leader.layout.format().contains(ReadFormat::GROUP))
    }

    fn totals(&self, index: usize, buffer: &mut Vec<u8>) -> Result<EventTotals, BankError> {
        match self.is_read_whole() {
            true => self.read_into(0, buffer, |values| totals(&values, index)),
            false => self.read_into(index, buffer, |values| totals(&values, 0)),
        }
    }

    fn read_into<R>(
        &self,
        index: usize,
        buffer: &mut Vec<u8>,
        f: impl FnOnce(ReadValues<'_>) -> Result<R, BankError>,
    ) -> Result<R, BankError> {
        let event = self.events.get(index).ok_or(BankError::Other(libc::EBADF))?;
        // A leader that is read as a group brings all of it.
        let need = event.layout.size(self.events.len());
        if buffer.len() < need {
            buffer.resize(need, 0);
        }
        let read = sys::read(event.fd.as_fd(), buffer).map_err(refused)?;
        if read == 0 {
            // End of file: a pinned event that could not be kept on its counter.
            return Err(BankError::Unscheduled);
        }
        let bytes = buffer.get(..read).ok_or(BankError::Invalid)?;
        f(event.layout.decode(bytes).ok_or(BankError::Invalid)?)
    }
}

fn totals(values: &ReadValues<'_>, index: usize) -> Result<EventTotals, BankError> {
    let value = values.members.iter().nth(index).ok_or(BankError::Invalid)?.value;
    let running_ns = values.time_running.unwrap_or_default();
    let enabled_ns = enabled_with(running_ns, values.time_enabled.unwrap_or_default());
    Ok(EventTotals { value, enabled: Nanos(enabled_ns), running: Nanos(running_ns) })
}
