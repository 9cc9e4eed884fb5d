//! CPUs that come and go.
//!
//! What it is: the kernel's uevents, brought to the engine in their order; and a look at the list of online CPUs, for
//! where there are no uevents (network namespaces other than the first).
//!
//! **Invariant:** a CPU that went away and came back is two steps for the engine, never none.

use crate::session::Session;
use pmux_engine::{CpuId, LockCell as _};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::LinuxEngine;
use pmux_linux::uevent::{CpuUevent, UeventSocket};
use std::os::fd::{AsFd, BorrowedFd};

pub(crate) struct Hotplug {
    socket: Option<UeventSocket>,
    cpus: Cpus,
    by: Follower,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Follower {
    /// Any code that reads counters.
    AnyReader,
    /// One loop, which also tells others: it must not miss any. Other code that must know at once looks at the list of CPUs, and
    /// leaves the news where they are.
    Loop,
}

impl Session {
    /// From now on CPUs that come and go are seen; what has happened so far is taken into account.
    pub(crate) fn watch_hotplug(&self) {
        let new = self.inner.hotplug.with(|hotplug| {
            // Without a socket the list of online CPUs is all that there is; the gap is then known less exactly.
            let make = || Hotplug { socket: UeventSocket::open().ok(), cpus: Cpus::system(), by: Follower::AnyReader };
            let new = hotplug.is_none();
            hotplug.get_or_insert_with(make);
            new
        });
        // The session's list of CPUs is older than the socket.
        if new { self.look_at_cpus() } else { self.keep_up_with_cpus() }
    }

    /// Brings what has happened to the engine.
    pub fn follow_hotplug(&self) {
        let follow = |hotplug: &mut Hotplug| hotplug.follow(self.engine(), CpuListRead::IfNeeded);
        self.inner.hotplug.with(|hotplug| hotplug.iter_mut().for_each(follow));
    }

    /// As [`Session::follow_hotplug`], but for who leaves that to a loop.
    pub(crate) fn keep_up_with_cpus(&self) {
        self.inner.hotplug.with(|hotplug| match hotplug {
            Some(hotplug) if hotplug.by == Follower::AnyReader => hotplug.follow(self.engine(), CpuListRead::IfNeeded),
            _ => {}
        });
    }

    /// From now on only [`Session::follow_hotplug`] takes in news; readings don't.
    pub(crate) fn follow_by_loop(&self) {
        self.inner.hotplug.with(|hotplug| hotplug.iter_mut().for_each(|hotplug| hotplug.by = Follower::Loop));
    }

    /// As [`Session::follow_hotplug`], and compares with the CPUs that are there: news may be late.
    pub(crate) fn look_at_cpus(&self) {
        self.inner.hotplug.with(|hotplug| {
            let Some(hotplug) = hotplug else { return };
            let look = if hotplug.by == Follower::Loop { CpuListRead::AtTheListOnly } else { CpuListRead::InAnyCase };
            hotplug.follow(self.engine(), look);
        });
    }

    /// Runs `f` with the fd that becomes readable when a CPU comes or goes, where there is one.
    pub fn with_hotplug_fd<R>(&self, f: impl FnOnce(Option<BorrowedFd<'_>>) -> R) -> R {
        self.inner
            .hotplug
            .with(|hotplug| f(hotplug.as_ref().and_then(|hotplug| hotplug.socket.as_ref()).map(AsFd::as_fd)))
    }
}

/// When the list of online CPUs is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CpuListRead {
    /// Where there are no news, or some were lost.
    IfNeeded,
    InAnyCase,
    /// Always; the news stay.
    AtTheListOnly,
}

impl Hotplug {
    fn follow(&mut self, engine: &LinuxEngine, look: CpuListRead) {
        let mut rescan = self.socket.is_none() || look != CpuListRead::IfNeeded;
        let mut news = Vec::new();
        if let Some(socket) = self.socket.as_mut().filter(|_| look != CpuListRead::AtTheListOnly) {
            let drained = socket.drain(&mut |event| match event {
                CpuUevent::Rescan => rescan = true,
                event => news.push(event),
            });
            rescan |= drained.is_err();
        }
        apply(engine, &news);
        if rescan && let Ok(online) = self.cpus.online() {
            let known = engine.online();
            let gone = known.iter().filter(|cpu| !online.contains(cpu.0)).map(|cpu| CpuUevent::Offline(cpu.0));
            let came = online.iter().filter(|&cpu| !known.contains(CpuId(cpu))).map(CpuUevent::Online);
            apply(engine, &gone.chain(came).collect::<Vec<_>>());
        }
    }
}

/// What is opened on a CPU that came is no request's: a client that asks for something meanwhile does not wait for it.
fn apply(engine: &LinuxEngine, news: &[CpuUevent]) {
    let openers = engine.host().openers();
    let are_online =
        |one: &CpuUevent, next: &CpuUevent| matches!((one, next), (CpuUevent::Online(_), CpuUevent::Online(_)));
    for news in news.chunk_by(are_online) {
        if let [CpuUevent::Offline(cpu)] = *news {
            engine.cpu_offline(CpuId(cpu));
            // What was opened there is dead when the CPU comes back.
            openers.end_without_request();
        }
        openers.without_request(None, || {
            // Each thing is asked for once in a run.
            engine.retry_late(|_| true);
            for event in news {
                if let CpuUevent::Online(cpu) = *event {
                    engine.cpu_online(CpuId(cpu));
                }
            }
        });
    }
}
