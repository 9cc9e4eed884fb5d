//! Recording through a service: events that others record as well are opened once.
//!
//! What it is: [`Recorder::subscribe`] asks a service for the same events that [`Recorder::open`] opens, all into one ring
//! ([`crate::Subscription`]); the rest of the recorder goes on as with rings of its own.
//! Read first: [`Recorder::subscribe`], then [`Recorder::take_shared`].
//!
//! Names and mappings come in the same ring as samples, so both begin together: samples of before [`Recorder::enable`] are left out.
//!
//! **Invariant:** a number that a record carries is in the file before the record.

use super::attrs::{PRIVILEGED, RecordScope, TIME_AT};
use super::drain::{LOST, MMAP2, SAMPLE, THROTTLE};
use super::mend::{Mend, may_have_excess, put_own};
use super::off_cpu::EVENTS;
use super::open::{RecordMode, Switch, UNSETTLED};
use super::plan::{Plan, able};
use super::rings::Rings;
use super::{RecordOptions, Recorder};
use crate::clones::Cloning;
use crate::error::Error;
use crate::event::EventList;
use crate::perf_data::Writer;
use crate::perf_data::kind::FINISHED_ROUND;
use crate::session::Session;
use crate::subscription::{StreamRequest, StreamScope, Subscription};
use crate::target::{CpuChoice, Start, Target, threads_of};
use pmux_abi::attr::EventType;
use pmux_abi::record::SampleLayout;
use pmux_linux::Errno;
use pmux_linux::procfs::Proc;
use pmux_linux::shared::client::AskError;
use pmux_linux::shared::wire::{Refusal, RefusalKind};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Bytes of the ring, where the caller does not say.
const USUAL_BYTES: u64 = 4 << 20;
const LEAST_BYTES: u64 = 4096;
/// How often the threads of a process are asked for again where some came or went meanwhile.
const MOST_ROUNDS: u32 = 8;

/// Where records come from, where a service opens the events.
pub(super) struct Shared {
    subscription: Subscription,
    ring_bytes: u64,
    /// When samples are wanted.
    wanted: Windows,
    numbers: HashSet<u64>,
    /// Numbers in samples that it does not know either: where others count the same, Linux 6.18 writes those of their events.
    in_vain: HashSet<u64>,
    /// In which life of the service they were asked for.
    life: u64,
    /// Kept for its memory.
    records: Vec<u8>,
}

/// What has become of a service since it was looked last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServiceNews {
    Nothing,
    /// There are events that were not known: a CPU has come.
    Events,
    /// It was away, or another one has taken its place.
    AnotherLife,
    /// It is away.
    Away,
}

/// Times in which samples are wanted. The service sends names and mappings at all times, and records that are older than what was sent
/// already.
#[derive(Default)]
struct Windows {
    /// Those that have ended, from when to when, in order.
    ended: VecDeque<(u64, u64)>,
    /// From when on they are wanted now.
    since_ns: Option<u64>,
}

impl Windows {
    /// By then the service has sent everything.
    const LATE_NS: u64 = 30_000_000_000;

    fn open(&mut self, now_ns: u64) {
        self.since_ns.get_or_insert(now_ns);
    }

    fn close(&mut self, now_ns: u64) {
        while self.ended.front().is_some_and(|&(_, until_ns)| until_ns + Self::LATE_NS < now_ns) {
            self.ended.pop_front();
        }
        self.ended.extend(self.since_ns.take().map(|since_ns| (since_ns, now_ns)));
    }

    fn contain(&self, time_ns: u64) -> bool {
        let after = self.ended.partition_point(|&(_, until_ns)| until_ns <= time_ns);
        self.since_ns.is_some_and(|since_ns| time_ns >= since_ns)
            || self.ended.get(after).is_some_and(|&(since_ns, _)| time_ns >= since_ns)
    }
}

impl Recorder {
    /// As [`Recorder::open`], through the session's service, which opens each event once for all who record the same.
    ///
    /// A command can't be recorded so, from its exec on, nor can groups, cgroups and counts at exit: all that is one's own alone. Of
    /// processes those threads are recorded that are there now, and who is born of them. Waits are seen by programs of this process, or
    /// where these can't be loaded by events through the service; then [`Recorder::drain`] waits for the service, for some seconds at most.
    ///
    /// # Errors
    /// [`Error::NoService`]; [`Error::Options`] for what is not shared; [`Error::ServiceRefused`]; as [`Recorder::open`].
    pub fn subscribe(
        session: &Session,
        events: EventList,
        target: &Target<'_>,
        options: RecordOptions,
    ) -> Result<Self, Error> {
        let (mut scope, mut tids) = scope_of(target)?;
        if options.start == Start::OnExec || options.exit_counts == super::Keep::Record {
            return Err(Error::Options(
                "what begins with an exec or tells counts at exit is not shared: --shared=never",
            ));
        }
        if options.regions == super::Keep::Record {
            return Err(Error::Options("regions are not recorded through the service: --shared=never"));
        }
        if events.groups.iter().any(|group| group.events.len() > 1) {
            return Err(Error::Options("groups of events are not recorded through the service: --shared=never"));
        }
        if events.groups.iter().flat_map(|group| &group.events).any(|event| event.filter().is_some()) {
            return Err(Error::Options("filters of tracepoints are not recorded through the service: --shared=never"));
        }
        let kind = if tids.is_empty() { RecordScope::Cpus } else { RecordScope::Tasks };
        let able = able(session);
        let mut plan = Plan::new(events, &mut RecordMode::default(), &options, kind, able)?;
        let page_bytes = u64::from(pmux_linux::page_bytes()).max(LEAST_BYTES);
        let ring_bytes = options.ring_bytes.unwrap_or(USUAL_BYTES).max(page_bytes).next_power_of_two();
        let (pids, mut rounds) = match target {
            Target::Processes(pids) => (pids.as_slice(), MOST_ROUNDS),
            _ => (&[][..], 0),
        };
        // One that lacks threads stays until there is another: that may be refused.
        let mut kept = None;
        let subscription = loop {
            let mut attrs = plan.attrs.clone();
            attrs.push(plan.tracking);
            let wake_bytes = ring_bytes / 4;
            let question = StreamRequest { scope: scope.clone(), attrs, ring_bytes, wake_bytes };
            match Subscription::ask(session, &question) {
                Ok(subscription) => match more_threads(pids, &tids) {
                    None => break subscription,
                    Some(_) if rounds == 0 => {
                        plan.notes.push(UNSETTLED.to_owned());
                        break subscription;
                    }
                    // The events of all are opened anew, before anything is recorded.
                    Some(now) => {
                        rounds -= 1;
                        kept = Some((subscription, std::mem::replace(&mut tids, now)));
                        scope = StreamScope::Tasks(tids.clone());
                    }
                },
                Err(AskError::Away) => return Err(Error::NoService),
                // One that was listed has gone.
                Err(AskError::Refused(refusal)) if refusal.errno == Errno::ESRCH.raw() && rounds > 0 => {
                    rounds -= 1;
                    (scope, tids) = scope_of(target)?;
                }
                Err(AskError::Refused(refusal)) => match kept.take() {
                    Some((subscription, opened)) => {
                        plan.notes.push(UNSETTLED.to_owned());
                        tids = opened;
                        break subscription;
                    }
                    None => give_in(&mut plan, &refusal, &options, kind, session)?,
                },
            }
        };
        let (wanted, numbers, in_vain, records) = (Windows::default(), HashSet::new(), HashSet::new(), Vec::new());
        let shared = Shared { subscription, ring_bytes, wanted, numbers, in_vain, life: 0, records };
        let mut recorder = Self::new(session, options, &plan, Rings::open(session, &[], None, None)?);
        recorder.descs = plan.descs();
        recorder.notes = plan.notes;
        recorder.tids = tids.into_iter().collect();
        recorder.shared = Some(shared);
        recorder.learn_numbers()?;
        recorder.hold_waits(target)?;
        for (event, id) in std::mem::take(&mut recorder.fresh) {
            recorder.descs[event].ids.push(id);
        }
        // What happens from now on is told; what was before is told when the file is begun.
        recorder.shared.iter_mut().try_for_each(|shared| shared.subscription.enable())?;
        Ok(recorder)
    }

    fn learn_numbers(&mut self) -> Result<(), Error> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let life = shared.subscription.lives();
        if std::mem::replace(&mut shared.life, life) != life {
            shared.in_vain.clear();
        }
        // Those of waits are not asked of it.
        let sampled = self.tracking_index - if self.options.off_cpu.is_some() { EVENTS.len() } else { 0 };
        for number in shared.subscription.numbers()? {
            let event = number.event as usize;
            if shared.numbers.insert(number.number) {
                self.fresh.push((if event < sampled { event } else { self.tracking_index }, number.number));
            }
        }
        Ok(())
    }

    /// Puts what the kernel has written by now behind these records; `None` where there is no service.
    pub(super) fn read_shared(&mut self, records: &mut Vec<u8>) -> Option<Result<ServiceNews, Error>> {
        let Shared { subscription, numbers, in_vain, life, .. } = self.shared.as_mut()?;
        let mut has_strangers = false;
        // What is refused now comes later, or not at all.
        let _ = subscription.flush();
        let drained = subscription.drain(&mut |record| {
            let id = record.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
            let is_sample = record.first_chunk().is_some_and(|kind| u32::from_ne_bytes(*kind) == SAMPLE);
            has_strangers |= is_sample && id.is_some_and(|id| !numbers.contains(&id) && in_vain.insert(id));
            records.extend_from_slice(record);
        });
        let (is_away, is_another_life) = (subscription.fd().is_none(), *life != subscription.lives());
        let learned =
            drained.and_then(|_| if has_strangers || is_another_life { self.learn_numbers() } else { Ok(()) });
        let news = match (is_away, is_another_life, self.fresh.is_empty()) {
            (true, ..) => ServiceNews::Away,
            (_, true, _) => ServiceNews::AnotherLife,
            (.., false) => ServiceNews::Events,
            (.., true) => ServiceNews::Nothing,
        };
        Some(learned.map(|()| news))
    }

    /// Why a service that came back records no more of it, if so.
    pub(super) fn refused_again(&self) -> Option<&str> {
        self.shared.as_ref()?.subscription.refusal()
    }

    /// Takes out of the ring what is in it, and writes it; answers how many bytes that were.
    pub(super) fn take_shared(&mut self, writer: &mut Writer) -> Result<u64, Error> {
        let layout = self.descs.last().map(|desc| SampleLayout::new(&desc.attr));
        let Some(shared) = &mut self.shared else { return Ok(0) };
        let (progress, build_ids) = (&mut self.progress, &mut self.build_ids);
        let Shared { subscription, records, numbers, in_vain, wanted, .. } = shared;
        records.clear();
        let (mut strange_ns, mut sampled, mut has_strangers) = (u64::MAX, None, false);
        let has_waits = self.off_cpu.is_some();
        if has_waits {
            // What is refused now comes later, or not at all: nothing can be done here.
            let _ = subscription.flush();
        }
        subscription.drain(&mut |record| {
            let word = |at: usize| {
                let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            match word(0) as u32 {
                SAMPLE => {
                    let time_ns = word(usize::from(TIME_AT));
                    if !wanted.contain(time_ns) {
                        return;
                    }
                    if !numbers.contains(&word(8)) {
                        strange_ns = strange_ns.min(time_ns);
                        has_strangers |= in_vain.insert(word(8));
                    }
                    progress.samples += 1;
                    if sampled.replace(time_ns).is_none() {
                        progress.sampled_at(time_ns);
                    }
                }
                MMAP2 => layout.iter().for_each(|layout| build_ids.note_whole(record, layout)),
                LOST => progress.lost += word(16),
                THROTTLE => progress.throttled += 1,
                // Its rounds are not those of waits.
                FINISHED_ROUND if has_waits => return,
                _ => {}
            }
            progress.records += 1;
            match &layout {
                Some(layout) if may_have_excess(word(0) as u32) => put_own(record, layout, records),
                _ => records.extend_from_slice(record),
            }
        })?;
        sampled.into_iter().for_each(|at| progress.sampled_at(at));
        let mut records = std::mem::take(records);
        if has_strangers || shared.life != shared.subscription.lives() {
            self.learn_numbers()?;
            // Of a CPU that came, or of a service that began anew: how tasks stand is told as of its first sample.
            if has_strangers && !self.fresh.is_empty() {
                self.cpu_came_ns = Some(strange_ns);
            }
            self.write_numbers(writer)?;
            self.put_existing_again(writer)?;
        }
        if strange_ns < u64::MAX {
            let mut right = Vec::with_capacity(records.len());
            Mend::new(&self.descs).put(&records, &mut right);
            records = right;
        }
        if !records.is_empty() {
            self.put(writer, &records)?;
            writer.seal().map_err(Error::Output)?;
        }
        let bytes = records.len() as u64;
        if let Some(shared) = &mut self.shared {
            shared.records = records;
        }
        Ok(bytes)
    }

    /// Lets samples of a service count from now on, or until now.
    pub(super) fn switch_shared(&mut self, switch: Switch) {
        let Some(shared) = &mut self.shared else { return };
        let now = pmux_linux::now_ns();
        match switch {
            Switch::On => shared.wanted.open(now),
            Switch::Off => shared.wanted.close(now),
        }
    }

    /// Has the service send nothing any more: what was recorded until now is in the ring then. Nothing to do where there is none.
    pub(super) fn end_shared(&mut self) -> Result<(), Error> {
        self.shared.iter_mut().try_for_each(|shared| shared.subscription.disable())
    }

    /// Of the ring that a service writes: what becomes readable, and its bytes.
    pub(super) fn shared_ring(&self) -> Option<(Option<std::os::fd::BorrowedFd<'_>>, u64)> {
        self.shared.as_ref().map(|shared| (shared.subscription.fd(), shared.ring_bytes))
    }

    /// Looks whether the service is there, and goes on with one that came back; nothing to do where there is none. Between drains it
    /// is to be called several times a second.
    pub fn look_for_service(&mut self) {
        self.shared.iter_mut().for_each(|shared| shared.subscription.look());
    }

    /// For how long nothing was recorded because the service was away.
    #[must_use]
    pub fn gap(&self) -> Duration {
        self.shared.as_ref().map_or(Duration::ZERO, |shared| shared.subscription.gap())
    }

    /// In how many lives of the service it has been recorded; 0 where there is none. With each, [`Recorder::fds`] are others.
    #[must_use]
    pub fn lives(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.subscription.lives())
    }
}

/// Where, and which threads that are.
fn scope_of(target: &Target<'_>) -> Result<(StreamScope, Vec<i32>), Error> {
    let tids = match target {
        Target::Cpus(CpuChoice::All) => return Ok((StreamScope::AllCpus, Vec::new())),
        Target::Cpus(CpuChoice::Only(list)) => return Ok((StreamScope::Cpus(list.clone()), Vec::new())),
        Target::Threads(tids) => tids.clone(),
        Target::CurrentThread => vec![pmux_linux::current_tid()],
        Target::Processes(pids) => threads_of(pids)?,
        Target::Command(_) => {
            return Err(Error::Options(
                "a command is recorded from its exec on, which no other client asks for: --shared=never",
            ));
        }
        Target::Cgroups { .. } => {
            return Err(Error::Options("cgroups are not recorded through the service: --shared=never"));
        }
    };
    Ok((StreamScope::Tasks(tids.clone()), tids))
}

/// The threads of processes, where there are others than those on which events were just opened: that were in clone(2) then, and did not
/// inherit them. Whatever began later has.
fn more_threads(pids: &[i32], opened: &[i32]) -> Option<Vec<i32>> {
    let until_ns = pmux_linux::since_boot_ns();
    let mut cloning = Cloning::default();
    if !pids.is_empty() {
        cloning.add(opened);
    }
    if !cloning.list_again() {
        return None;
    }
    let proc = Proc::system();
    let now: Vec<i32> = pids.iter().flat_map(|&pid| proc.threads_of(pid).unwrap_or_default()).collect();
    now.iter().any(|&tid| !opened.contains(&tid) && proc.lives_since(tid, until_ns)).then_some(now)
}

/// Changes the plan to what may be granted, or says why nothing helps.
fn give_in(
    plan: &mut Plan,
    refusal: &Refusal,
    options: &RecordOptions,
    scope: RecordScope,
    session: &Session,
) -> Result<(), Error> {
    let denied = refusal.kind() == RefusalKind::Rights;
    let index = refusal.index as usize;
    if denied && index == plan.attrs.len() && plan.tracking.flags.intersects(PRIVILEGED) {
        plan.tracking.flags.remove(PRIVILEGED);
        return Ok(());
    }
    if denied && plan.leave_kernel_out(index, scope, &refusal.text) {
        return Ok(());
    }
    let is_clock = plan.attrs.first().is_none_or(|attr| attr.kind == EventType::SOFTWARE);
    if plan.chosen_by_us && refusal.kind() == RefusalKind::Kernel && !is_clock {
        plan.take_clock(options, scope, able(session), &refusal.text);
        return Ok(());
    }
    Err(Error::ServiceRefused(refusal.text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_wanted_in_windows() {
        let mut windows = Windows::default();
        windows.close(5);
        windows.open(10);
        windows.open(15);
        windows.close(20);
        windows.close(25);
        windows.open(30);
        let wanted: Vec<u64> = (0..40).filter(|&at| windows.contain(at)).collect();
        assert_eq!(wanted, (10..20).chain(30..40).collect::<Vec<u64>>());
        // What is long over is forgotten.
        windows.close(40);
        windows.open(50);
        windows.close(41 + Windows::LATE_NS);
        assert_eq!((windows.ended.len(), windows.contain(15), windows.contain(60)), (1, false, true));
    }
}
