//! One group that the service keeps for this process.
//!
//! What it is: the question, so that it can be asked again of a service that came back; and the answer for the life that is on
//! ([`Kept`]): handles, entries of the page, passed files.
//! Read first: [`ServedGroup::settle`], then [`ServedGroup::totals`].
//!
//! **Invariant:** a count never goes back: what one life has counted is added to what the next one counts.

use super::cached::{CachedEntry, EntryLocation};
use super::files::{NoUse, PageEntries, PassedFiles};
use crate::cgroup::Cgroup;
use crate::host::opener::EventOpener;
use crate::host::{Switch, lock};
use crate::shared::client::{AskError, ConnectionId, Service, ServiceAnswer};
use crate::shared::page::Page;
use crate::shared::wire::{
    CgroupName, Context, EventOp, Handle, Narrowing, Open, OpenCgroup, Opened, Refusal, RefusalKind, Reply, Request,
    TimedTotals, Totals,
};
use crate::sys::clock::monotonic_ns;
use pmux_abi::attr::{Attr, EventType};
use pmux_engine::CgroupId;
use pmux_engine::pmu::Lease;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) struct ServedGroup {
    question: Open,
    cgroup: Option<CgroupId>,
    events: Vec<ServedEvent>,
    kept: Option<Kept>,
    /// When it was read last, or somewhat before that, on the monotonic clock.
    read_ns: u64,
    /// The last life, and since when nothing is counted because it has ended.
    away: Option<(ConnectionId, u64)>,
    /// The life in which opening anew was refused, and why.
    refused: Option<(ConnectionId, Refusal)>,
    /// The life beside which the one before is read on, because it [counts on](Self::counts_on).
    beside: Option<ConnectionId>,
}

#[derive(Default)]
struct ServedEvent {
    wanted: Switch,
    /// It was switched off after its life had ended: its file counts on, and not for it.
    stopped: bool,
    released: bool,
    /// Its slot, as long as it has one.
    lease: Option<Lease>,
    /// What lives before this one have counted.
    before: Totals,
    /// What it had counted when it was read last, all lives together.
    last: Totals,
    cached: Arc<CachedEntry>,
}

/// What holds in one life.
struct Kept {
    connection_id: ConnectionId,
    handles: Vec<Handle>,
    page: Option<Arc<Page>>,
    entries: Vec<u32>,
    files: PassedFiles,
}

/// A cgroup in the service's words.
fn name_of(cgroup: &Cgroup) -> Option<CgroupName> {
    let seen = cgroup.file().metadata().ok()?;
    let path = cgroup.relative().to_str().unwrap_or_default().to_owned();
    Some(CgroupName { device: seen.dev(), inode: seen.ino(), path })
}

impl ServedGroup {
    pub(super) fn open(
        service: &Service,
        opener: &EventOpener,
        question: Open,
        cgroup: Option<CgroupId>,
    ) -> Result<Self, AskError> {
        let events = question.attrs.iter().map(|_| ServedEvent::default()).collect();
        let read_ns = monotonic_ns();
        let mut group = Self { question, cgroup, events, kept: None, read_ns, away: None, refused: None, beside: None };
        group.kept = Some(group.ask(service, opener)?);
        group.show();
        Ok(group)
    }

    fn show(&self) {
        for (at, event) in self.events.iter().enumerate() {
            event.cached.set(self.kept.as_ref().and_then(|kept| {
                let (page, &index, &handle) = (kept.page.clone()?, kept.entries.get(at)?, kept.handles.get(at)?);
                Some(EntryLocation { page, index, handle, before: event.before })
            }));
        }
    }

    /// Gives an event its slot. Answers where it is shown.
    pub(super) fn program(&mut self, at: usize, lease: Lease) -> Option<Arc<CachedEntry>> {
        let event = self.events.get_mut(at)?;
        event.lease = Some(lease);
        Some(Arc::clone(&event.cached))
    }

    /// Whether these are the slots of all of its events, in their order.
    #[inline]
    pub(super) fn is(&self, leases: &[Lease]) -> bool {
        leases.len() == self.events.len()
            && self.events.iter().zip(leases).all(|(event, lease)| event.lease.as_ref() == Some(lease))
    }

    fn ask(&self, service: &Service, opener: &EventOpener) -> Result<Kept, AskError> {
        let open = self.question.clone();
        let request = match self.cgroup {
            Some(id) => {
                let cgroups = lock(&opener.shared.cgroups);
                let cgroup = cgroups.get(&id).and_then(|known| name_of(&known.cgroup)).ok_or(AskError::Away)?;
                Request::OpenCgroup(OpenCgroup { open, cgroup })
            }
            None => Request::Open(open),
        };
        let answer = service.ask_anew(&request)?;
        let connection_id = answer.connection_id;
        Kept::of(answer, self.events.len()).ok_or_else(|| {
            service.doubt(connection_id);
            AskError::Away
        })
    }

    fn wanted(&self) -> impl Iterator<Item = usize> + '_ {
        let wanted = |event: &ServedEvent| event.wanted == Switch::On && !event.released;
        // The leader last, so that a group begins as one.
        (0..self.events.len()).rev().filter(move |&at| wanted(&self.events[at]))
    }

    /// Sees to it that the group is open in the life that is on. Where there is none, what was passed is read on; where the
    /// next one has begun, it goes over to that, unless it [counts on](Self::counts_on) by itself.
    /// Answers about what time it is: no later than now.
    #[inline]
    pub(super) fn settle(&mut self, service: &Service, opener: &EventOpener) -> u64 {
        let about_ns = opener.shared.tick_ns.load(Ordering::Relaxed);
        if !self.kept.as_ref().is_some_and(|kept| service.is_on(kept.connection_id, about_ns)) {
            self.look(service, opener, about_ns);
        }
        about_ns
    }

    #[cold]
    fn look(&mut self, service: &Service, opener: &EventOpener, about_ns: u64) {
        service.look(about_ns);
        if self.kept.as_ref().is_none_or(|kept| Some(kept.connection_id) != service.connection_id()) {
            self.go_over(service, opener);
        }
    }

    /// As [`Self::settle`], before what only the service of today can do.
    fn settle_to_ask(&mut self, service: &Service, opener: &EventOpener) {
        self.settle(service, opener);
        if service.connection_id().is_some() && self.has_outlived(service) {
            self.leave();
            self.go_over(service, opener);
        }
    }

    /// Whether it is read on from a life that has ended.
    fn has_outlived(&self, service: &Service) -> bool {
        self.kept.as_ref().is_some_and(|kept| Some(kept.connection_id) != service.connection_id())
    }

    /// Whether what was passed counts on by itself, and takes no counter that the next life would share: software events and tracepoints of a
    /// whole task. Another event instead would miss what happens between the two, and what children do that run meanwhile.
    fn counts_on(&mut self) -> bool {
        let shares_nothing = |attr: &Vec<u8>| {
            Attr::decode(attr).is_ok_and(|attr| matches!(attr.kind, EventType::SOFTWARE | EventType::TRACEPOINT))
        };
        let question = &self.question;
        let is_for_it = matches!((question.context, question.narrowing), (Context::Task(_), Narrowing::Everything))
            && question.attrs.iter().all(shares_nothing);
        let wanted: Vec<_> = self.wanted().collect();
        // Where it has been away, not all may have been switched on.
        is_for_it
            && self.away.is_none()
            && !wanted.is_empty()
            && self
                .kept
                .as_mut()
                .and_then(Kept::parts)
                .is_some_and(|(files, from)| files.count(from, |event| wanted.contains(&event)))
    }

    /// The life that it was opened in has ended, or was never there.
    fn go_over(&mut self, service: &Service, opener: &EventOpener) {
        let on = service.connection_id();
        if on.is_some() && (on == self.beside || self.counts_on()) {
            self.beside = on;
            return;
        }
        if self.kept.as_ref().is_some_and(|kept| kept.files.is_empty()) {
            self.leave();
        }
        if let Some(life) = on.filter(|life| self.refused.as_ref().is_none_or(|(refused, _)| refused != life)) {
            match self.ask(service, opener) {
                Ok(kept) => {
                    self.leave();
                    self.enter(service, kept);
                }
                // What was passed before is read on.
                Err(AskError::Refused(refusal)) => self.refused = Some((life, refusal)),
                Err(AskError::Away) => {}
            }
        }
        if self.kept.is_none()
            && let Some((life, refusal)) = &self.refused
        {
            service.set_refusal(Some((*life, refusal)));
        }
        self.report_gap(service);
    }

    fn report_gap(&self, service: &Service) {
        if let Some((ended, since)) = self.away.filter(|_| self.wanted().next().is_some()) {
            service.missed(ended, Duration::from_nanos(monotonic_ns().saturating_sub(since)));
        }
    }

    /// Takes what the life that has ended has counted, as far as that can be known.
    fn leave(&mut self) {
        self.beside = None;
        let Some(mut kept) = self.kept.take() else { return };
        let events = &mut self.events;
        if kept.read_files(|at, totals| _ = count(events, at, totals)).is_ok() {
            self.read_ns = monotonic_ns();
        } else if let Some(moments) = kept.last_seen() {
            // The service may have read it after this process did: then it has been enabled for longer, if it was on.
            let oldest = moments.iter().map(|moment| moment.time_ns).min().unwrap_or_default();
            let pairs = || self.events.iter().zip(&moments);
            let later = |(event, moment): (&ServedEvent, &TimedTotals)| {
                let total = event.before.plus(moment.totals);
                total.enabled_ns >= event.last.enabled_ns && total.value >= event.last.value
            };
            if oldest > self.read_ns && pairs().all(later) {
                for (at, moment) in moments.iter().enumerate() {
                    count(&mut self.events, at, moment.totals);
                }
                self.read_ns = oldest;
            }
        }
        for event in &mut self.events {
            event.before = event.last;
            event.stopped = false;
        }
        self.away.get_or_insert((kept.connection_id, self.read_ns));
        self.show();
    }

    fn enter(&mut self, service: &Service, kept: Kept) {
        self.kept = Some(kept);
        self.refused = None;
        self.show();
        for at in self.wanted().collect::<Vec<_>>() {
            if self.control(service, at, EventOp::Enable).is_err() {
                // Away again, or it makes no sense: the next look will see.
                return;
            }
        }
        self.report_gap(service);
        self.away = None;
        self.read_ns = monotonic_ns();
    }

    fn control(&self, service: &Service, at: usize, op: EventOp) -> Result<(), AskError> {
        let kept = self.kept.as_ref().ok_or(AskError::Away)?;
        let &handle = kept.handles.get(at).ok_or(AskError::Away)?;
        let answer = service.ask(kept.connection_id, &Request::Control { handle, op })?;
        if answer.reply == Reply::Done {
            return Ok(());
        }
        service.doubt(kept.connection_id);
        Err(AskError::Away)
    }

    /// Switches an event on or off. Where the service is away, that is done when it comes back; and what is off doesn't
    /// grow meanwhile.
    pub(super) fn switch(
        &mut self,
        service: &Service,
        opener: &EventOpener,
        at: usize,
        wanted: Switch,
    ) -> Result<(), AskError> {
        let op = match wanted {
            Switch::On => {
                self.settle_to_ask(service, opener);
                EventOp::Enable
            }
            Switch::Off => {
                self.settle(service, opener);
                if self.has_outlived(service) {
                    self.stop(at);
                    return Ok(());
                }
                EventOp::Disable
            }
        };
        let answer = match self.control(service, at, op) {
            Err(AskError::Away) => {
                // What was passed counts on for no caller: no more of it than up to here.
                self.leave();
                Ok(())
            }
            other => other,
        };
        if answer.is_ok() {
            // Until now no caller waited for it.
            if self.wanted().next().is_none()
                && let Some((_, since)) = &mut self.away
            {
                *since = monotonic_ns();
            }
            if let Some(event) = self.events.get_mut(at) {
                event.wanted = wanted;
            }
        }
        answer
    }

    /// Switches an event off whose life has ended: what it has counted is what it has counted up to here.
    fn stop(&mut self, at: usize) {
        let events = &mut self.events;
        let read = self.kept.as_mut().map(|kept| kept.read_files(|at, totals| _ = count(events, at, totals)));
        if read == Some(Ok(())) {
            self.read_ns = monotonic_ns();
        }
        if let Some(event) = self.events.get_mut(at) {
            event.wanted = Switch::Off;
            event.stopped = read == Some(Ok(()));
        }
        if read != Some(Ok(())) || self.wanted().next().is_none() {
            self.leave();
        }
    }

    pub(super) fn modify(
        &mut self,
        service: &Service,
        opener: &EventOpener,
        at: usize,
        attr: Vec<u8>,
    ) -> Result<(), AskError> {
        self.settle_to_ask(service, opener);
        self.control(service, at, EventOp::Modify(attr.clone()))?;
        if let Some(asked) = self.question.attrs.get_mut(at) {
            *asked = attr;
        }
        Ok(())
    }

    /// Reads what its events have counted, all lives together, one moment for all, into `out`: in any order, and where a reading was
    /// tried again, the last time it says.
    ///
    /// Where the service is away, and nothing was passed, that is what was known last.
    #[inline]
    pub(super) fn read(
        &mut self,
        service: &Service,
        opener: &EventOpener,
        mut out: impl FnMut(usize, Totals),
    ) -> Result<(), Unread> {
        let about_ns = self.settle(service, opener);
        if let Some(kept) = &mut self.kept {
            let events = &mut self.events;
            // From here rather than from memory: code that loads what was just stored waits for it.
            match kept.read_files(|at, totals| out(at, count(events, at, totals))) {
                Ok(()) => {
                    self.read_ns = about_ns.max(self.read_ns);
                    return Ok(());
                }
                Err(NoUse::Unscheduled) => return Err(Unread::Unscheduled),
                Err(NoUse::Ask | NoUse::Moved) => {
                    // No life is left that could say more of it.
                    if service.connection_id().is_some() && self.has_outlived(service) {
                        self.leave();
                        self.settle(service, opener);
                    }
                    self.read_by_asking(service, opener)?;
                }
            }
        }
        self.events.iter().enumerate().for_each(|(at, event)| out(at, event.last));
        Ok(())
    }

    /// Reads what one of its events has counted, all lives together.
    #[inline]
    pub(super) fn read_one(
        &mut self,
        service: &Service,
        opener: &EventOpener,
        at: usize,
    ) -> Result<Option<Totals>, Unread> {
        let about_ns = self.settle(service, opener);
        if let Some(kept) = &mut self.kept
            && let Some(page) = &kept.page
            && let Some(totals) = kept.files.read_alone(page, at)
        {
            self.read_ns = about_ns.max(self.read_ns);
            return Ok(Some(count(&mut self.events, at, totals)));
        }
        self.read(service, opener, |_, _| {})?;
        Ok(self.total(at))
    }

    /// What an event had counted when it was read last, all lives together.
    fn total(&self, at: usize) -> Option<Totals> {
        self.events.get(at).map(|event| event.last)
    }

    #[cold]
    fn read_by_asking(&mut self, service: &Service, opener: &EventOpener) -> Result<(), Unread> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        // A moment ago, rather than a moment later.
        let (now, events) = (monotonic_ns(), &mut self.events);
        match kept.ask(service, |at, totals| _ = count(events, at, totals)) {
            Ok(()) => self.read_ns = now,
            Err(AskError::Away) => _ = self.settle(service, opener),
            Err(AskError::Refused(refusal)) => return Err(Unread::Errno(refusal.errno)),
        }
        Ok(())
    }

    /// No caller wants this event any more. The service is told when that is so of all; `true` then.
    pub(super) fn release(&mut self, service: &Service, at: usize) -> bool {
        if let Some(event) = self.events.get_mut(at) {
            event.released = true;
            event.lease = None;
        }
        let all = self.events.iter().all(|event| event.released);
        if all {
            self.close(service);
        }
        all
    }

    /// Gives everything back.
    pub(super) fn close(&mut self, service: &Service) {
        if self.refused.take().is_some() {
            // Another one that is refused says so again.
            service.set_refusal(None);
        }
        if let Some(kept) = self.kept.take() {
            // Where it is away there is nothing left to give back.
            let _ = service.ask(kept.connection_id, &Request::Close { handles: kept.handles });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// It was pinned and lost its counter.
    Unscheduled,
    Errno(i32),
}

/// Takes what an event has counted in the life that is on. Answers with what that is in all lives together.
#[inline]
fn count(events: &mut [ServedEvent], at: usize, totals: Totals) -> Totals {
    let Some(event) = events.get_mut(at) else { return totals };
    if event.stopped {
        return event.last;
    }
    let total = event.before.plus(totals);
    event.last = total;
    total
}

impl Kept {
    /// What an answer says, if it makes sense.
    fn of(answer: ServiceAnswer, events: usize) -> Option<Self> {
        let Reply::Opened(Opened { handles, entries, files }) = answer.reply else { return None };
        let all = |count| count == events;
        if !all(handles.len()) || !(entries.is_empty() || all(entries.len())) || files.len() != answer.files.len() {
            return None;
        }
        let files = PassedFiles::of(&files, answer.files, events)?;
        Some(Self { connection_id: answer.connection_id, handles, page: answer.page, entries, files })
    }

    /// Reads the files that were passed, and takes off what isn't ours, as the page says.
    #[inline]
    fn read_files(&mut self, out: impl FnMut(usize, Totals)) -> Result<(), NoUse> {
        let (files, from) = self.parts().ok_or(NoUse::Ask)?;
        files.read(from, out)
    }

    #[inline]
    fn parts(&mut self) -> Option<(&mut PassedFiles, PageEntries<'_>)> {
        let Self { page, entries, handles, files, .. } = self;
        Some((files, PageEntries { page: page.as_deref()?, entries, handles }))
    }

    /// What the service has read last.
    fn last_seen(&self) -> Option<Vec<TimedTotals>> {
        let page = self.page.as_ref()?;
        self.handles.iter().zip(&self.entries).map(|(&handle, &entry)| page.cached(entry, handle)).collect()
    }

    /// Asks the service; and for other files, where the ones that it passed tell of something else now.
    fn ask(&mut self, service: &Service, mut out: impl FnMut(usize, Totals)) -> Result<(), AskError> {
        let answer = service.ask(self.connection_id, &Request::Read { handles: self.handles.clone() })?;
        let values = match answer.reply {
            Reply::Values { values } if values.len() == self.handles.len() => values,
            _ => {
                service.doubt(self.connection_id);
                return Err(AskError::Away);
            }
        };
        for (index, value) in values.iter().enumerate() {
            if let Err(errno) = *value {
                let index = u32::try_from(index).unwrap_or_default();
                return Err(AskError::Refused(Refusal::new(RefusalKind::Kernel, index, errno, "")));
            }
        }
        values
            .iter()
            .enumerate()
            .for_each(|(at, value)| out(at, value.map_or_else(|_| Totals::default(), |it| it.totals)));
        if self.parts().is_some_and(|(files, from)| files.have_moved(from)) {
            self.renew(service);
        }
        Ok(())
    }

    fn renew(&mut self, service: &Service) {
        let Some(&handle) = self.handles.first() else { return };
        match service.ask(self.connection_id, &Request::Renew { handle }) {
            Ok(answer) => {
                let connection_id = self.connection_id;
                match Self::of(answer, self.handles.len()) {
                    // What is shown stays where it was.
                    Some(new) if new.handles == self.handles && new.entries == self.entries => *self = new,
                    _ => service.doubt(connection_id),
                }
            }
            // Then it is asked from now on.
            Err(AskError::Refused(_)) => self.files = PassedFiles::default(),
            Err(AskError::Away) => {}
        }
    }
}
