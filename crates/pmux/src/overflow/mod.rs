//! A callback at every overflow of a counter.
//!
//! What it is: an event with a period, on threads, on CPUs or on all of them, and a closure that is called each time
//! the period has passed. Read next: `source`, one event with its ring.
//!
//! **Invariant:** the closure is called by [`OverflowCounter::dispatch`] only, never before the event is complete on
//! all of its CPUs and never after it was closed or disabled: the engine judges each overflow.

mod source;

use crate::error::Error;
use crate::event::Event;
use crate::owned_group::Owned;
use crate::ring_owner::CLOCK_MONOTONIC;
use crate::session::{Backend, Session};
use crate::target::{Target, threads_of};
use pmux_abi::attr::{Attr, AttrFlags, ReadFormat, SampleFormat, Sampling, Wakeup};
use pmux_abi::record::SampleLayout;
use pmux_engine::engine::SetRequest;
use pmux_engine::system_wide::SetScope;
use pmux_engine::target::Opened;
use pmux_engine::{Count, GroupSpec, SetId, Target as EngineTarget};
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost};
use pmux_linux::wait::{Token, Waiter, Wake};
use source::OverflowSource;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// One overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// Where the program was.
    pub instruction: u64,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The CPU.
    pub cpu: u32,
    /// When, ns on the monotonic clock.
    pub at_ns: u64,
}

/// A counter that calls back.
///
/// ```
/// use pmux::{Event, OverflowCounter, Session, Target};
/// use std::time::Duration;
/// # fn main() -> Result<(), pmux::Error> {
/// let session = Session::new()?;
/// let every_tenth = OverflowCounter::open(&session, &Event::parse("page-faults:u")?, 10, &Target::CurrentThread);
/// let Ok(mut counter) = every_tenth else { return Ok(()) }; // no performance events here
/// let pages = vec![1_u8; 1 << 20];
/// let mut calls = 0;
/// counter.dispatch(Duration::ZERO, &mut |overflow| calls += u32::from(overflow.tid != 0))?;
/// assert!(calls > 0, "{} bytes were touched", pages.len());
/// # Ok(())
/// # }
/// ```
pub struct OverflowCounter {
    session: Session,
    held: OverflowEvents,
    sources: Vec<OverflowSource>,
    layout: SampleLayout,
    period: u64,
    /// What a read of an event tells.
    asked: ReadFormat,
    ring_pages: u32,
    /// What sources that are gone have lost.
    lost: u64,
}

enum OverflowEvents {
    /// An event of each of some threads.
    Threads(Vec<Owned<Opened>>),
    /// An event on each of some CPUs.
    Cpus(Owned<SetId>),
}

/// Pages of a ring: 4 KiB of data hold some 80 overflows.
const RING_PAGES: u32 = 8;

impl OverflowCounter {
    /// Opens an event on threads, on the threads that processes have now, or on CPUs, with an overflow each time it has occurred
    /// `period` times on one of them, and enables it when all of it is open. Threads and children that start later don't
    /// overflow: an event that is inherited has no ring of its own. Each thread takes a ring of 9 pages, of which the kernel
    /// gives a user so many (`kernel.perf_event_mlock_kb`).
    ///
    /// # Errors
    /// [`Error::Options`] where there are no performance events, for a period of 0, an empty list, and for cgroups;
    /// [`Error::Process`], [`Error::NoSuchCpu`] for a target that is not there; [`Error::Refused`]; [`Error::Ring`]; [`Error::Control`].
    pub fn open(session: &Session, event: &Event, period: u64, target: &Target<'_>) -> Result<Self, Error> {
        Self::open_with(session, event, period, target, (RING_PAGES, Wakeup::Events(1)))
    }

    /// As [`OverflowCounter::open`], with rings of so many pages, which wake then.
    pub(crate) fn open_with(
        session: &Session,
        event: &Event,
        period: u64,
        target: &Target<'_>,
        (ring_pages, wakeup): (u32, Wakeup),
    ) -> Result<Self, Error> {
        let Backend::Kernel = session.backend() else {
            return Err(Error::Options("overflows need the kernel's performance events, which can't be opened here"));
        };
        if period == 0 {
            return Err(Error::Options("a period of 0 never passes; the least is 1"));
        }
        let older = session.facts().is_older_than((6, 0));
        let asked = if older { ReadFormat::empty() } else { ReadFormat::LOST };
        let attr = Attr {
            sampling: Sampling::Period(period),
            read_format: asked,
            sample: SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU,
            flags: event.attr.flags | AttrFlags::USE_CLOCKID,
            clock_id: CLOCK_MONOTONIC,
            wakeup,
            ..event.attr
        };
        let held = hold(session, attr, target)?;
        let layout = SampleLayout::new(&attr);
        let (session, sources) = (session.clone(), Vec::new());
        let mut counter = Self { session, held, sources, layout, period, asked, ring_pages, lost: 0 };
        counter.follow_cpus()?;
        counter.enable()?;
        Ok(counter)
    }

    /// Calls `callback` for every overflow that is waiting; waits up to `patience` for the first one. Returns how many
    /// there were. CPUs that came or went since the last call are taken into account first.
    ///
    /// # Errors
    /// [`Error::Wait`]; [`Error::Ring`] for a CPU that came.
    pub fn dispatch(&mut self, patience: Duration, callback: &mut dyn FnMut(Overflow)) -> Result<u64, Error> {
        let deadline = Instant::now() + patience;
        self.session.follow_hotplug();
        self.follow_cpus()?;
        let mut waiter = Waiter::new();
        let mut waits_for = self.sources.len();
        for source in &self.sources {
            waiter.watch(source.ring.fd(), Token(0));
        }
        loop {
            let calls = self.deliver(callback);
            if calls > 0 || Instant::now() >= deadline {
                return Ok(calls);
            }
            let wakes = waiter.wait(Some(deadline)).map_err(Error::Wait)?;
            let gone = wakes.iter().filter(|wake| matches!(wake, Wake::Hangup(_))).count();
            waits_for = waits_for.saturating_sub(gone);
            if gone > 0 && (waits_for == 0 || matches!(self.held, OverflowEvents::Cpus(_))) {
                // All threads or a CPU have gone: what is in the rings is all that there will be.
                return Ok(self.deliver(callback));
            }
        }
    }

    fn deliver(&mut self, callback: &mut dyn FnMut(Overflow)) -> u64 {
        let (engine, layout, period, asked) = (self.session.engine(), &self.layout, self.period, self.asked);
        self.sources.iter_mut().map(|source| source.deliver(engine, layout, period, asked, callback)).sum()
    }

    /// Maps a ring on each event that is open, and lets go of those of CPUs that went away.
    fn follow_cpus(&mut self) -> Result<(), Error> {
        let engine = self.session.engine();
        let open: Vec<_> = match &self.held {
            OverflowEvents::Threads(threads) => {
                threads.iter().flat_map(|opened| opened.events.iter().copied()).collect()
            }
            OverflowEvents::Cpus(set) => engine.set_events(**set)?.into_iter().flat_map(|(_, events)| events).collect(),
        };
        let lost = &mut self.lost;
        self.sources.retain(|source| {
            let stays = open.contains(&source.event);
            *lost += if stays { 0 } else { source.lost };
            stays
        });
        for event in open {
            if !self.sources.iter().any(|source| source.event == event) {
                self.sources.push(OverflowSource::new(engine, event, self.ring_pages)?);
            }
        }
        Ok(())
    }

    /// How many overflows the rings had no room for, as of the last [`OverflowCounter::dispatch`].
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost + self.sources.iter().map(|source| source.lost).sum::<u64>()
    }

    /// How often the event has occurred, on all CPUs together.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn read(&self) -> Result<Count, Error> {
        let engine = self.session.engine();
        let mut sum = Count::default();
        match &self.held {
            OverflowEvents::Threads(threads) => {
                for &event in threads.iter().flat_map(|opened| &opened.events) {
                    sum += engine.read(event)?;
                }
            }
            OverflowEvents::Cpus(set) => {
                for count in engine.read_set(**set)?.cpus.into_iter().flat_map(|cpu| cpu.counts) {
                    sum += count?;
                }
            }
        }
        Ok(sum)
    }

    /// Lets it count, and overflow, again.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable(&self) -> Result<(), Error> {
        let engine = self.session.engine();
        let done = match &self.held {
            OverflowEvents::Threads(threads) => threads.iter().try_for_each(|opened| engine.enable_group(opened.group)),
            OverflowEvents::Cpus(set) => engine.enable_set(**set),
        };
        Ok(done?)
    }

    /// Stops it: overflows that still wait are dropped.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&self) -> Result<(), Error> {
        let engine = self.session.engine();
        let done = match &self.held {
            OverflowEvents::Threads(threads) => {
                threads.iter().try_for_each(|opened| engine.disable_group(opened.group))
            }
            OverflowEvents::Cpus(set) => engine.disable_set(**set),
        };
        Ok(done?)
    }

    /// The fds of which one becomes readable when an overflow waits.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.sources.iter().map(|source| source.ring.fd()).collect()
    }
}

/// Opens the event, disabled: on each of the threads, or of the CPUs.
fn hold(session: &Session, attr: Attr, target: &Target<'_>) -> Result<OverflowEvents, Error> {
    let refused = |error, kind, files| {
        session.with_file_numbers(Error::Refused(vec![session.refusal(error, &attr, kind)]), files)
    };
    let group = GroupSpec::single(KERNEL, attr);
    let (tids, whose) = match target {
        Target::CurrentThread => (vec![pmux_linux::current_tid()], Whose::Own),
        Target::Command(command) => (vec![command.pid()], Whose::Own),
        Target::Threads(tids) => (tids.clone(), Whose::Other),
        Target::Processes(pids) => (threads_of(pids)?, Whose::Other),
        Target::Cpus(cpus) => {
            session.watch_hotplug();
            let (mask, absent) = cpus.mask(session)?;
            let files = mask.len() as u64;
            let request = SetRequest { groups: vec![group], scope: SetScope::Everything, mask, absent };
            let opened = session.hold_set(request);
            let set = opened.map_err(|error| refused(error.error, TargetKind::Cpu(error.cpu.0), files))?;
            return Ok(OverflowEvents::Cpus(set));
        }
        Target::Cgroups { .. } => return Err(Error::Options("overflows are delivered for threads, processes or CPUs")),
    };
    if tids.is_empty() {
        return Err(Error::Options("there is nothing to count: the list of threads or processes is empty"));
    }
    let (mut threads, mut gone) = (Vec::new(), None);
    for &tid in &tids {
        match session.hold(&group, EngineTarget::task(LinuxHost::task(tid))) {
            Ok(opened) => threads.push(opened),
            // A thread that exits meanwhile is left out, as long as one remains.
            Err(error) if error.errno() == pmux_linux::Errno::ESRCH.raw() => gone = Some(error),
            Err(error) => {
                // Only what is closed is counted once.
                drop(threads);
                return Err(refused(error, TargetKind::Task(whose), tids.len() as u64));
            }
        }
    }
    match gone {
        Some(error) if threads.is_empty() => Err(refused(error, TargetKind::Task(whose), 1)),
        _ => Ok(OverflowEvents::Threads(threads)),
    }
}
