//! Slots that a service keeps: another process that opens the event, once for all who ask the same.
//!
//! What it is: *program* asks the service to open, start and stop are requests, *read* is a `read(2)` of a file that the service
//! passed, or a request where it passed none.
//! Read first: [`ServedSlots`], then `group`.
//!
//! **Invariant:** whatever a service can't do, or may not, or is away for, is opened by this process itself; the engine sees no
//! difference but the times.

mod cached;
mod files;
mod group;

pub(super) use cached::CachedSlots;

use super::kernel_slots::has_output;
use super::models::clock_of;
use super::opener::{EventOpener, bytes_of};
use super::{KERNEL, LinuxHost, Switch, put};
use crate::filter::filter_of;
use crate::shared::client::{AskError, Service, SocketPath};
use crate::shared::wire::{Context, GROUP_EVENTS, Narrowing, Open, OptIn, RefusalKind, Totals};
use group::{ServedGroup, Unread};
use pmux_abi::attr::{Attr, AttrFlags, ReadFormat};
use pmux_engine::pmu::{BankError, Lease, Program, SlotReading, SlotTime};
use pmux_engine::target::{ContextKey, EventKey, Filter};
use pmux_engine::{CgroupId, Nanos};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The service that is asked for what can be shared, if there is one.
#[derive(Default)]
pub(super) struct Sharing {
    /// What came of looking for the service.
    found: OnceLock<Option<Arc<Service>>>,
    /// Where to look, and how long, when there is something to ask.
    looks: OnceLock<(SocketPath, Duration)>,
    /// The kernel opens nothing for this process, so that the service is asked also for what is otherwise opened directly.
    alone: OnceLock<()>,
}

impl LinuxHost {
    /// From now on asks this service for what it can share, instead of the kernel.
    ///
    /// # Errors
    /// The service comes back where one is asked already: that is for all time.
    pub fn share_with(&self, service: Arc<Service>) -> Result<(), Arc<Service>> {
        let is_first = self.shared.sharing.found.set(Some(Arc::clone(&service))).is_ok();
        if is_first { Ok(()) } else { Err(service) }
    }

    /// Looks for a service here when there is something to share for the first time, with so much patience; where there is
    /// none, the kernel is asked for ever.
    pub fn share_if_possible(&self, place: SocketPath, patience: Duration) {
        // A host that has looked already has found a service or not.
        let _ = self.shared.sharing.looks.set((place, patience));
    }

    /// From now on the service is asked also for what is otherwise better opened directly: the kernel opens nothing.
    pub fn share_all(&self) {
        let _ = self.shared.sharing.alone.set(());
    }

    /// The service that is asked, if one has been found.
    pub fn service(&self) -> Option<&Arc<Service>> {
        self.shared.sharing.found()
    }

    /// The service that is asked, looked for now where none has been asked yet.
    pub fn find_service(&self) -> Option<&Arc<Service>> {
        self.shared.sharing.find()
    }
}

impl Sharing {
    fn found(&self) -> Option<&Arc<Service>> {
        self.found.get()?.as_ref()
    }

    /// Whether there is no service to ask, and none to look for.
    pub(super) fn is_off(&self) -> bool {
        self.found.get().map_or_else(|| self.looks.get().is_none(), Option::is_none)
    }

    /// Looks for the service, once.
    fn find(&self) -> Option<&Arc<Service>> {
        let look = || {
            let (place, patience) = self.looks.get()?;
            Service::connect(place.clone(), *patience).ok().map(Arc::new)
        };
        self.found.get_or_init(look).as_ref()
    }
}

/// What is asked of a slot that isn't there.
const STALE: BankError = BankError::Other(libc::EBADF);

/// The slots of one context that a service keeps.
pub(super) struct ServedSlots {
    opener: EventOpener,
    groups: Vec<Option<ServedGroup>>,
    slots: Vec<Option<Slot>>,
    /// What was announced and isn't programmed yet.
    announced: HashMap<EventKey, Announced>,
}

struct Slot {
    generation: u64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// This event of a group.
    Event(usize, usize),
    /// Of a group that was refused because of another event: the engine takes it back at once.
    Nothing,
}

/// What has come of an event of a group that was asked for.
#[derive(Clone, Copy)]
enum Announced {
    Open(usize, usize),
    Refused(BankError),
    /// Another one of its group was.
    Besides,
}

impl ServedSlots {
    pub(super) fn new(opener: EventOpener) -> Self {
        let (groups, slots, announced) = Default::default();
        Self { opener, groups, slots, announced }
    }

    fn service(&self) -> Option<Arc<Service>> {
        self.opener.shared.sharing.found().cloned()
    }

    /// Asks the service for a group that is about to be programmed, if that is something for it.
    pub(super) fn announce(&mut self, programs: &[Program]) {
        if self.opener.shared.sharing.is_off() {
            return;
        }
        if let Some(service) = self.service() {
            self.forget_announced(&service);
        }
        let Some((question, cgroup)) = self.shared_open(programs) else { return };
        let Some(service) = self.opener.shared.sharing.find().cloned() else { return };
        if !self.may_ask(&service) {
            return;
        }
        match ServedGroup::open(&service, &self.opener, question, cgroup) {
            Ok(group) => {
                let free = self.groups.iter().position(Option::is_none);
                let id = free.unwrap_or(self.groups.len());
                put(&mut self.groups, id, group);
                let events = programs.iter().enumerate();
                self.announced.extend(events.map(|(at, program)| (program.event, Announced::Open(id, at))));
            }
            Err(AskError::Refused(refusal)) if !(AskError::Refused(refusal.clone())).may_be_had_directly() => {
                debug_assert_eq!(refusal.kind(), RefusalKind::Kernel);
                let at_fault = usize::try_from(refusal.index).unwrap_or_default().min(programs.len() - 1);
                let error = BankError::from_errno(refusal.errno);
                for (at, program) in programs.iter().enumerate() {
                    let what = if at == at_fault { Announced::Refused(error) } else { Announced::Besides };
                    self.announced.insert(program.event, what);
                }
            }
            Err(_) => {}
        }
    }

    /// What was announced and never programmed.
    fn forget_announced(&mut self, service: &Service) {
        for (_, what) in self.announced.drain() {
            if let Announced::Open(id, at) = what {
                release(&mut self.groups, id, service, at);
            }
        }
    }

    /// The group in the service's words; `None` for what this process does better itself.
    fn shared_open(&self, programs: &[Program]) -> Option<(Open, Option<CgroupId>)> {
        let first = programs.first()?;
        if programs.len() != first.group_size || programs.len() > GROUP_EVENTS {
            return None;
        }
        if !programs.iter().all(|program| program.spec.pmu == KERNEL && is_shareable(&program.spec.attr)) {
            return None;
        }
        let (context, narrowing, cgroup) = match (self.opener.key, first.filter) {
            (ContextKey::Task(task), filter) => {
                let tid = u32::try_from(task.0).ok()?;
                // What this process counts of itself would count the talk with the service as well, and what waits for its
                // exec would begin too soon.
                if self.opener.shared.sharing.alone.get().is_none() && (self.opener.is_held() || is_own_thread(tid)) {
                    return None;
                }
                let narrowing = match filter {
                    Filter::Everything => Narrowing::Everything,
                    Filter::OnCpu(cpu) => Narrowing::OnCpu(cpu.0),
                    Filter::Cgroup(_) => return None,
                };
                (Context::Task(tid), narrowing, None)
            }
            (ContextKey::Cpu(cpu), Filter::Cgroup(id)) => (Context::Cpu(cpu.0), Narrowing::Cgroup, Some(id)),
            (ContextKey::Cpu(cpu), _) => (Context::Cpu(cpu.0), Narrowing::Everything, None),
        };
        let attrs = programs.iter().map(|program| attr_bytes(&program.spec.attr)).collect();
        Some((Open { context, narrowing, attrs, files: OptIn::Wanted, entries: OptIn::Wanted }, cgroup))
    }

    /// Whether the service has said that this is of any use.
    fn may_ask(&self, service: &Service) -> bool {
        service.terms().is_some_and(|terms| match self.opener.key {
            ContextKey::Task(_) => terms.rights.tasks,
            ContextKey::Cpu(_) => terms.rights.system_wide,
        })
    }

    pub(super) fn has(&self, lease: Lease) -> bool {
        self.slot(lease).is_some()
    }

    #[inline]
    fn slot(&self, lease: Lease) -> Option<What> {
        let slot = self.slots.get(lease.slot.0 as usize)?.as_ref()?;
        (slot.generation == lease.generation).then_some(slot.what)
    }

    /// Programs what was announced; `None` where that wasn't taken.
    pub(super) fn program(&mut self, lease: Lease, program: &Program) -> Option<Result<(), BankError>> {
        let what = match self.announced.remove(&program.event)? {
            Announced::Open(group, at) => What::Event(group, at),
            Announced::Besides => What::Nothing,
            Announced::Refused(error) => return Some(Err(error)),
        };
        put(&mut self.slots, lease.slot.0 as usize, Slot { generation: lease.generation, what });
        if let What::Event(id, at) = what
            && let Some(group) = self.groups.get_mut(id).and_then(Option::as_mut)
            && let Some(cached) = group.program(at, lease)
        {
            self.opener.shared.cached.add((self.opener.key, lease), cached);
        }
        Some(Ok(()))
    }

    /// The parts that are needed to do something to a slot.
    fn parts(&mut self, lease: Lease) -> Result<Parts<'_>, BankError> {
        let what = self.slot(lease).ok_or(STALE)?;
        self.parts_of(what)
    }

    #[inline]
    fn parts_of(&mut self, what: What) -> Result<Parts<'_>, BankError> {
        let What::Event(id, at) = what else { return Err(STALE) };
        let Self { opener, groups, .. } = self;
        let service = opener.shared.sharing.found().ok_or(STALE)?;
        let group = groups.get_mut(id).and_then(Option::as_mut).ok_or(STALE)?;
        Ok(Parts { service, opener, group, at })
    }

    pub(super) fn start(&mut self, lease: Lease) -> Result<(), BankError> {
        let Parts { service, opener, group, at, .. } = self.parts(lease)?;
        group.switch(service, opener, at, Switch::On).map_err(error_of)
    }

    pub(super) fn stop(&mut self, lease: Lease) {
        if let Ok(Parts { service, opener, group, at, .. }) = self.parts(lease) {
            // What can't be stopped was not running.
            let _ = group.switch(service, opener, at, Switch::Off);
        }
    }

    pub(super) fn modify(&mut self, lease: Lease, attr: &Attr) -> Result<(), BankError> {
        let Parts { service, opener, group, at, .. } = self.parts(lease)?;
        group.modify(service, opener, at, attr_bytes(attr)).map_err(error_of)
    }

    /// Reads a slot; `None` where it has no such one.
    #[inline]
    pub(super) fn read(&mut self, lease: Lease) -> Option<Result<SlotReading, BankError>> {
        let what = self.slot(lease)?;
        Some(self.parts_of(what).and_then(|Parts { service, opener, group, at }| {
            group.read_one(service, opener, at).map_err(unread)?.map(reading_of).ok_or(STALE)
        }))
    }

    /// One reading for a whole group; `None` where these are not all slots of one group in their order.
    #[inline]
    pub(super) fn read_group(&mut self, leases: &[Lease], out: &mut [SlotReading]) -> Option<Result<(), BankError>> {
        let What::Event(id, 0) = self.slot(*leases.first()?)? else { return None };
        let group = self.groups.get_mut(id)?.as_mut()?;
        if !group.is(leases) {
            return None;
        }
        let service = self.opener.shared.sharing.found()?;
        let out = |at, totals| {
            if let Some(out) = out.get_mut::<usize>(at) {
                *out = reading_of(totals);
            }
        };
        Some(group.read(service, &self.opener, out).map_err(unread))
    }

    pub(super) fn release(&mut self, lease: Lease) {
        let (Some(what), Some(service)) = (self.slot(lease), self.service()) else { return };
        self.slots[lease.slot.0 as usize] = None;
        if let What::Event(id, at) = what {
            self.opener.shared.cached.remove((self.opener.key, lease));
            release(&mut self.groups, id, &service, at);
        }
    }
}

/// No caller wants an event any more; its group goes with the last one.
fn release(groups: &mut [Option<ServedGroup>], id: usize, service: &Service, at: usize) {
    if let Some(place) = groups.get_mut(id)
        && place.as_mut().is_some_and(|group| group.release(service, at))
    {
        *place = None;
    }
}

struct Parts<'s> {
    service: &'s Service,
    opener: &'s EventOpener,
    group: &'s mut ServedGroup,
    at: usize,
}

impl Drop for ServedSlots {
    fn drop(&mut self) {
        if let Some(service) = self.service() {
            self.groups.iter_mut().flatten().for_each(|group| group.close(&service));
        }
    }
}

/// Whether an event only counts, and for no caller in particular.
fn is_shareable(attr: &Attr) -> bool {
    let is_plain = !has_output(attr) && !attr.flags.contains(AttrFlags::ENABLE_ON_EXEC);
    is_plain && clock_of(attr).is_none() && filter_of(attr).is_none()
}

fn is_own_thread(tid: u32) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/task/{tid}")).is_ok()
}

/// An attribute as it is asked for: off until it is started. How it is read is for who reads it.
fn attr_bytes(attr: &Attr) -> Vec<u8> {
    bytes_of(&Attr { read_format: ReadFormat::empty(), flags: attr.flags | AttrFlags::DISABLED, ..*attr })
}

const fn reading_of(totals: Totals) -> SlotReading {
    let Totals { value, enabled_ns, running_ns } = totals;
    SlotReading { raw: value, time: SlotTime::Measured { enabled: Nanos(enabled_ns), running: Nanos(running_ns) } }
}

fn error_of(error: AskError) -> BankError {
    match error {
        AskError::Refused(refusal) => BankError::from_errno(refusal.errno),
        AskError::Away => BankError::Other(libc::ECONNRESET),
    }
}

const fn unread(error: Unread) -> BankError {
    match error {
        Unread::Unscheduled => BankError::Unscheduled,
        Unread::Errno(errno) => BankError::from_errno(errno),
    }
}
