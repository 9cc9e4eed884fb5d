//! Hits: tracepoints on all CPUs, and addresses that are watched.
//!
//! **Invariant:** a hit is told with its own time, and once for each term that listens; hits that the kernel had no room for are told as
//! lost.

use super::super::engine::{TermId, TriggerEngine};
use super::super::events::{Reason, TriggerHit};
use super::{After, Live, rules};
use crate::error::Error;
use crate::event::{Access, Event};
use crate::overflow::{Overflow, OverflowCounter};
use crate::ring_owner::is_too_large;
use crate::session::Session;
use crate::symbol::{AddressSpec, FindError, Finding, FoundAddress, FoundKind, ProcessImage, SearchScope, Symbolizer};
use crate::target::{CpuChoice, Target};
use crate::watch::{ValueTiming, Wakes, Watch, WatchDetail, WatchEvent, WatchOptions, WatchTarget};
use pmux_abi::attr::Wakeup;
use pmux_engine::Nanos;
use pmux_linux::wait::{Token, Waiter};
use std::time::Duration;

/// A watch tells hits when no older one can come any more: so much later.
const LATER: Nanos = Nanos(2_500_000);
/// How often it is looked at where hits don't wake.
const LOOK: Nanos = Nanos(10_000_000);
/// The same for a hit that is being written.
const SOON: Nanos = Nanos(1_000_000);
/// Pages of a ring for hits: 4 KiB of data hold some 80.
const RING_PAGES: u32 = 128;
const FEWEST_PAGES: u32 = 8;
/// A tracepoint with so many hits between two looks is hot: these are counted only while its rules are held back.
const HOT: usize = 100;
/// A period that never passes.
const NEVER: u64 = i64::MAX as u64;
/// What is lost is told so often at the most.
const REPORT_LOST_EVERY: Nanos = Nanos(1_000_000_000);

/// Which hits of a tracepoint are meant, beside its filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::trigger) enum Threads {
    All,
    /// Those of the first thread of a process.
    First,
}

/// What the events of a tracepoint are opened from, on all CPUs.
struct Origin {
    session: Session,
    event: Event,
}

impl Origin {
    fn open(&self, period: u64, pages: u32, wakeup: Wakeup) -> Result<OverflowCounter, Error> {
        let cpus = Target::Cpus(CpuChoice::All);
        OverflowCounter::open_with(&self.session, &self.event, period, &cpus, (pages, wakeup))
    }
}

pub(in crate::trigger) struct Tracepoint {
    pub(in crate::trigger) counter: OverflowCounter,
    /// As the trigger calls it.
    pub(in crate::trigger) what: String,
    pub(in crate::trigger) threads: Threads,
    pub(in crate::trigger) term_ids: Vec<TermId>,
    /// How many hits were told as lost, and when last.
    lost: u64,
    lost_at: Nanos,
    /// A second event of the tracepoint, whose hits wake. While it is off, hits are looked at together: to wake for each costs the
    /// task that is hit many times what the hit costs.
    wakeup_counter: OverflowCounter,
    /// While the bell is off.
    look_at: Option<Nanos>,
    origin: Origin,
    /// A third event of the tracepoint, which counts while the others are off.
    tally: Option<OverflowCounter>,
    /// While it counts: until when, and what it had counted before.
    held_back: Option<(Nanos, u64)>,
    /// Whether that can be had.
    may_hold_back: bool,
}

impl Tracepoint {
    /// Listens on all CPUs from now on.
    pub(in crate::trigger) fn open(
        session: &Session,
        event: &Event,
        (what, threads, term_id): (&str, Threads, TermId),
    ) -> Result<Self, Error> {
        let origin = Origin { session: session.clone(), event: event.clone() };
        let hits = |pages: u32| origin.open(1, pages, Wakeup::Bytes(pages * (pmux_linux::page_bytes() / 2)));
        let counter = match hits(RING_PAGES) {
            Err(error) if is_too_large(&error) => hits(FEWEST_PAGES)?,
            other => other?,
        };
        // What the bell's rings have no room for is in the others.
        let wakeup_counter = origin.open(1, 1, Wakeup::Events(1))?;
        Ok(Self {
            counter,
            what: what.to_owned(),
            threads,
            term_ids: vec![term_id],
            lost: 0,
            lost_at: Nanos::ZERO,
            wakeup_counter,
            look_at: None,
            origin,
            tally: None,
            held_back: None,
            // The tally can't tell threads apart.
            may_hold_back: threads == Threads::All,
        })
    }

    /// Counts hits until then, and samples none: a hit that is only counted costs the task that is hit much less.
    fn hold_back(&mut self, until: Nanos) -> Result<(), Error> {
        if self.tally.is_none() {
            let opened = self.origin.open(NEVER, 1, Wakeup::Events(1));
            let Ok(tally) = opened.and_then(|tally| tally.disable().map(|()| tally)) else {
                self.may_hold_back = false;
                return Ok(());
            };
            self.tally = Some(tally);
        }
        let Some(tally) = &self.tally else { return Ok(()) };
        self.counter.disable()?;
        self.wakeup_counter.disable()?;
        let before = tally.read()?.value;
        tally.enable()?;
        (self.held_back, self.look_at) = (Some((until, before)), None);
        Ok(())
    }

    /// Samples hits again, and tells how many have been counted only.
    fn go_on(&mut self, engine: &mut TriggerEngine, now: Nanos) -> Result<(), Error> {
        let (Some((_, before)), Some(tally)) = (self.held_back.take(), &self.tally) else { return Ok(()) };
        tally.disable()?;
        let hits = tally.read()?.value.saturating_sub(before);
        // What is in the rings is from before.
        self.counter.dispatch(Duration::ZERO, &mut |_| ())?;
        self.wakeup_counter.dispatch(Duration::ZERO, &mut |_| ())?;
        self.counter.enable()?;
        self.wakeup_counter.enable()?;
        self.term_ids.iter().for_each(|term_id| engine.hold_back(term_id.rule, hits, now));
        Ok(())
    }

    /// Takes the hits out of the rings, and lets the next one wake where there was none.
    fn take_hits(&mut self, now: Nanos) -> Result<Vec<Overflow>, Error> {
        let rang = self.wakeup_counter.dispatch(Duration::ZERO, &mut |_| ())? > 0;
        let mut hits: Vec<Overflow> = Vec::new();
        self.counter.dispatch(Duration::ZERO, &mut |hit| hits.push(hit))?;
        if hits.is_empty() && !rang && self.look_at.take().is_some() {
            self.wakeup_counter.enable()?;
            // What came in between has not rung.
            self.counter.dispatch(Duration::ZERO, &mut |hit| hits.push(hit))?;
        }
        if !hits.is_empty() || rang {
            if self.look_at.is_none() {
                self.wakeup_counter.disable()?;
            }
            // The bell may ring before the hit itself is written.
            self.look_at = Some(now + if hits.is_empty() { SOON } else { LOOK });
        }
        Ok(hits)
    }

    fn end(&self, engine: &mut TriggerEngine, error: &Error) -> After {
        engine.lose(rules(self.term_ids.iter().copied()), format!("{}: {error}", self.what));
        After::Ended
    }

    fn report_lost(&mut self, engine: &mut TriggerEngine, now: Nanos) {
        let lost = self.counter.lost();
        if lost > self.lost {
            let what =
                format!("{}: {} hits came faster than they were read, and are not told", self.what, lost - self.lost);
            engine.lose(rules(self.term_ids.iter().copied()), what);
            (self.lost, self.lost_at) = (lost, now);
        }
    }
}

impl Live for Tracepoint {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        if self.held_back.is_some() {
            return;
        }
        if self.look_at.is_none() {
            self.wakeup_counter.fds().into_iter().for_each(|fd| waiter.watch(fd, token));
        }
        // One that fills up is not left waiting.
        self.counter.fds().into_iter().for_each(|fd| waiter.watch(fd, token));
    }

    fn take(&mut self, engine: &mut TriggerEngine, _: bool, now: Nanos) -> After {
        if self.held_back.is_some_and(|(until, _)| now < until) {
            return After::Stays;
        }
        let mut hits = match self.go_on(engine, now).and_then(|()| self.take_hits(now)) {
            Ok(hits) => hits,
            Err(error) => return self.end(engine, &error),
        };
        let is_hot = hits.len() >= HOT;
        // The rings of several CPUs.
        crate::order::sort_by_key(&mut hits, |hit| hit.at_ns);
        for hit in hits {
            if self.threads == Threads::First && hit.pid != hit.tid {
                continue;
            }
            for &term_id in &self.term_ids {
                let (what, at) = (self.what.clone(), Nanos(hit.at_ns));
                let reason = TriggerHit { what, pid: hit.pid, tid: hit.tid, cpu: hit.cpu, at };
                engine.happen(term_id, term_id.place_of(hit.cpu), Reason::Hit(reason), at);
            }
        }
        if now.since(self.lost_at) >= REPORT_LOST_EVERY {
            self.report_lost(engine, now);
        }
        if is_hot
            && self.may_hold_back
            && let Some(until) = engine.held_back_until(&self.term_ids).filter(|until| *until > now)
            && let Err(error) = self.hold_back(until)
        {
            return self.end(engine, &error);
        }
        After::Stays
    }

    fn finish(&mut self, engine: &mut TriggerEngine, now: Nanos) {
        self.held_back.iter_mut().for_each(|(until, _)| *until = now);
        self.take(engine, false, now);
        self.report_lost(engine, now);
    }

    fn next(&self) -> Option<Nanos> {
        self.held_back.map(|(until, _)| until).or(self.look_at)
    }

    /// An event that has just come has no ring yet.
    fn follow_cpus(&mut self, engine: &mut TriggerEngine, now: Nanos) -> After {
        match self.tally.as_mut().map(|tally| tally.dispatch(Duration::ZERO, &mut |_| ())) {
            Some(Err(error)) => self.end(engine, &error),
            _ => self.take(engine, false, now),
        }
    }
}

pub(in crate::trigger) struct WatchedAddress {
    /// What is watched, as it was typed.
    pub(in crate::trigger) wanted: AddressSpec,
    pub(in crate::trigger) term_ids: Vec<TermId>,
    /// `None` until a program was mapped that has it.
    watch: Option<Watch>,
    look_at: Option<Nanos>,
}

impl WatchedAddress {
    /// One that is not found yet.
    pub(in crate::trigger) fn new(wanted: AddressSpec, term_id: TermId) -> Self {
        Self { wanted, term_ids: vec![term_id], watch: None, look_at: None }
    }

    /// Watches it from now on, if it is there. If not, something that is still to be mapped may have it: returns what to say if nothing
    /// comes.
    ///
    /// # Errors
    /// It is not in this program, or can't be watched.
    pub(in crate::trigger) fn look(
        &mut self,
        session: &Session,
        scope: SearchScope<'_>,
        target: &Target<'_>,
    ) -> Result<Option<FindError>, String> {
        let found = match Symbolizer::new().find(&self.wanted, scope).map_err(|error| error.to_string())? {
            Finding::Found(found) => found,
            Finding::NotYet(why) => return Ok(Some(why)),
        };
        let watch_targets = found.into_iter().map(watch_target).collect();
        // Asked for values that are read behind the hit, each hit wakes, where that can be; others are told when a ring fills up.
        let (detail, timing) = (WatchDetail::Values { max_stack: 0 }, ValueTiming::Later);
        let options = WatchOptions { detail, timing, ..WatchOptions::default() };
        let watch = Watch::open(session, watch_targets, target, options).map_err(|error| error.to_string())?;
        // Where nothing wakes, it is looked at from the beginning on.
        self.look_at = (watch.wakes() == Wakes::WhenFull).then_some(Nanos::ZERO);
        self.watch = Some(watch);
        Ok(None)
    }

    fn report_hits(&self, engine: &mut TriggerEngine, events: Result<Vec<WatchEvent>, Error>) -> After {
        match events {
            Err(error) => {
                engine.lose(rules(self.term_ids.iter().copied()), format!("{}: {error}", self.wanted));
                After::Ended
            }
            Ok(events) => {
                for event in events {
                    let WatchEvent::Hit(hit) = event else { continue };
                    for &term_id in &self.term_ids {
                        let (what, at) = (self.wanted.to_string(), hit.at);
                        let reason = TriggerHit { what, pid: hit.pid, tid: hit.tid, cpu: hit.cpu, at };
                        engine.happen(term_id, term_id.place_of(hit.cpu), Reason::Hit(reason), at);
                    }
                }
                After::Stays
            }
        }
    }
}

fn watch_target(found: FoundAddress) -> WatchTarget {
    let FoundAddress { address, len, access, kind, name, .. } = found;
    let len = if kind == FoundKind::Code && access == Access::EXECUTE { Access::EXECUTE.default_len() } else { len };
    WatchTarget { name, address, len, access }
}

impl Live for WatchedAddress {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        self.watch.iter().flat_map(Watch::fds).for_each(|fd| waiter.watch(fd, token));
    }

    fn awaits_program(&self) -> bool {
        self.watch.is_none()
    }

    fn look_into(&mut self, session: &Session, image: &ProcessImage, target: &Target<'_>) -> Result<(), String> {
        let why = match self.look(session, SearchScope::Process(image), target) {
            // Something that is no access is hardly a symbol of a library that is still to come.
            Ok(Some(why @ FindError::UnknownModule { letter: Some(_), .. })) => why.to_string(),
            Ok(_) => return Ok(()),
            Err(why) => why,
        };
        Err(format!("`watch:{}`: {why}", self.wanted))
    }

    fn miss(&mut self, engine: &mut TriggerEngine) -> After {
        if !self.awaits_program() {
            return After::Stays;
        }
        let what = "no program or library was mapped that has it".to_owned();
        engine.lose(rules(self.term_ids.iter().copied()), what);
        After::Ended
    }

    fn take(&mut self, engine: &mut TriggerEngine, _: bool, now: Nanos) -> After {
        let Some(watch) = &mut self.watch else { return After::Stays };
        // Woken by the kernel, or by the time that was set then.
        self.look_at = match (watch.wakes(), self.look_at) {
            (Wakes::WhenFull, _) => Some(now + LOOK),
            (Wakes::EachHit, Some(at)) if at <= now => None,
            (Wakes::EachHit, _) => Some(now + LATER),
        };
        let events = watch.take();
        self.report_hits(engine, events)
    }

    /// The last hits of a task that ends wake like all others, but are held back for a moment, in which it is over.
    fn finish(&mut self, engine: &mut TriggerEngine, _: Nanos) {
        if let Some(watch) = &mut self.watch {
            let events = watch.finish();
            self.report_hits(engine, events);
        }
    }

    fn next(&self) -> Option<Nanos> {
        self.look_at
    }
}
