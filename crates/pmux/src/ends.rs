//! Events that the kernel ends while their task lives on.
//!
//! What it is: a task that executes a set-user-id program, or one that its user may not read, keeps its number and loses its
//! events (Linux: `begin_new_exec` calls `perf_event_exit_task` where the new program is not dumpable). Their counts stand still and
//! no read of them fails, so one more event of the task says so: its file hangs up. The kernel ends
//! all events of the task, also those that a service has opened. Where this process can open no event itself, only the ids of a task tell.
//! Read first: [`EventEnds::look`].
//!
//! **Invariant:** a task that exits is no such case.

use crate::command::Command;
use crate::owned_group::Owned;
use crate::session::{Backend, EventOpener, Session};
use pmux_abi::attr::{Attr, AttrFlags, EventType, sw};
use pmux_engine::pmu::BankError;
use pmux_engine::target::{Filter, Opened};
use pmux_engine::{GroupSpec, OpenError, Target};
use pmux_linux::host::{KERNEL, LinuxHost, MappedRing};
use pmux_linux::procfs::{Proc, Status};
use pmux_linux::wait::{Token, Waiter, Wake};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Tells which of some tasks have lost their events by an exec. Made by [`Session::watch_event_ends`].
pub struct EventEnds {
    session: Session,
    /// The tasks that have their events, as far as is known.
    watched: Vec<WatchedTask>,
    /// The same, of which only their ids tell: ordinary users' tasks with equal ids, which nothing but an exec makes different.
    by_ids: Vec<i32>,
    ended: Vec<i32>,
    /// A command whose program its user may not read: the kernel ends the events of a task that executes one.
    unreadable: Option<i32>,
}

/// A task with an event that counts nothing. Its ring makes `poll(2)` tell of its end: a file without one always hangs up.
struct WatchedTask {
    tid: i32,
    _opened: Owned<Opened>,
    ring: MappedRing,
}

impl Session {
    /// Watches for the moment when the kernel ends the events of a task that lives on. Called after the events were opened: where the
    /// kernel refuses by now, it has ended them. A task that can't be watched for another reason is left out. It takes a file and two
    /// locked pages for each task.
    #[must_use]
    pub fn watch_event_ends(&self, tasks: &[i32]) -> EventEnds {
        let (watched, by_ids, ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut ends = EventEnds { session: self.clone(), watched, by_ids, ended, unreadable: None };
        match (self.backend(), self.inner.source) {
            (Backend::Kernel, EventOpener::Own) => {
                for &tid in tasks {
                    match self.watch_task(tid) {
                        Ok(one) => ends.watched.extend(one),
                        Err(error) if is_refused(&error) => ends.ended.push(tid),
                        Err(_) => {}
                    }
                }
            }
            (Backend::Kernel, EventOpener::Service) => {
                let proc = Proc::system();
                let ordinary = |status: Status| status.users.real != 0 && !has_other_ids(&status);
                let is_ordinary = |&tid: &i32| proc.status(tid).is_ok_and(ordinary);
                ends.by_ids.extend(tasks.iter().copied().filter(is_ordinary));
            }
            (Backend::Usage { .. }, _) => {}
        }
        ends
    }

    /// As [`Session::watch_event_ends`], for a command that is held.
    #[must_use]
    pub fn watch_event_ends_of(&self, command: &Command) -> EventEnds {
        let unreadable = (!command.held.is_readable()).then(|| command.pid());
        EventEnds { unreadable, ..self.watch_event_ends(&[command.pid()]) }
    }

    /// `None` where there is no room for its ring.
    fn watch_task(&self, tid: i32) -> Result<Option<WatchedTask>, OpenError> {
        // Threads inherit it, or the kernel could not swap their events when it switches between them, but would take all off the CPU
        // and put others on. No child process does: the file hangs up when nothing lives that has inherited, and an exec ends the
        // other threads before it ends the events. What is inherited has a ring on one CPU only, and none without records: of names
        // there are fewest.
        let threads = AttrFlags::INHERIT | AttrFlags::INHERIT_THREAD | AttrFlags::COMM;
        let on_one = self.engine().online().iter().next().map_or(Filter::Everything, Filter::OnCpu);
        match self.watch_with(tid, threads, on_one) {
            // Before Linux 5.13 threads can't inherit alone. Without inheritance the flag does nothing, but that it marks an event
            // with records.
            Err(error) if !is_refused(&error) => self.watch_with(tid, AttrFlags::INHERIT_STAT, Filter::Everything),
            opened => opened,
        }
    }

    fn watch_with(&self, tid: i32, flags: AttrFlags, filter: Filter) -> Result<Option<WatchedTask>, OpenError> {
        let flags = flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        // A clock, because opening an event that counts nothing makes the kernel change code of its own on every CPU.
        let attr = Attr { kind: EventType::SOFTWARE, config: sw::TASK_CLOCK, flags, ..Attr::default() };
        let engine = self.engine();
        let target = Target { filter, ..Target::task(LinuxHost::task(tid)) };
        let opened = self.hold(&GroupSpec::single(KERNEL, attr), target)?;
        let ring = engine.lease(opened.events[0]).ok().and_then(|of| engine.host().map_ring(of, 1).ok());
        Ok(ring.map(|ring| WatchedTask { tid, _opened: opened, ring }))
    }
}

impl EventEnds {
    /// The files that hang up when [`EventEnds::look`] should be called.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watched.iter().map(|watched| watched.ring.fd())
    }

    /// Whether [`EventEnds::look`] should be called from time to time, because no file tells of all tasks.
    #[must_use]
    pub const fn wants_looks(&self) -> bool {
        !self.by_ids.is_empty()
    }

    /// The tasks of which [`EventEnds::look`] has seen so far that their events had ended before they did.
    #[must_use]
    pub fn ended(&self) -> &[i32] {
        &self.ended
    }

    /// Looks whose events have ended by now. Of a task that has ended too it is known only until it is reaped, and only where it ran
    /// as another user than it was started by, or is a command that was watched as such.
    pub fn look(&mut self) {
        let proc = Proc::system();
        let ended = |&mut tid: &mut i32| proc.status(tid).is_ok_and(|status| has_other_ids(&status));
        self.ended.extend(self.by_ids.extract_if(.., ended));
        let mut waiter = Waiter::new();
        for (fd, index) in self.fds().zip(0..) {
            waiter.watch(fd, Token(index));
        }
        // Where waiting fails nothing is known yet.
        let wakes = waiter.wait(Some(Instant::now())).unwrap_or_default();
        let hung_up = |index: u64| wakes.contains(&Wake::Hangup(Token(index)));
        for (index, watched) in (0..).zip(std::mem::take(&mut self.watched)) {
            if hung_up(index) {
                self.judge(watched.tid);
            } else {
                self.watched.push(watched);
            }
        }
    }

    /// The event of a task has ended: by an exec, or because the thread that it was opened on exits.
    fn judge(&mut self, tid: i32) {
        let proc = Proc::system();
        let Ok(stat) = proc.stat(tid) else { return };
        let status = proc.status(tid).unwrap_or_default();
        let as_another = has_other_ids(&status);
        let ended = if stat.is_ending() {
            // An ordinary user gets other ids from an exec only.
            let other_ids = || proc.own_status().is_ok_and(|own| own.users.are_equal() && own.users.real != 0);
            self.unreadable == Some(tid) || (as_another && other_ids())
        } else {
            match self.session.watch_task(tid) {
                // Root may watch every program. Where it was no such exec, another thread has become the process by an exec.
                Ok(again) => {
                    self.watched.extend(again);
                    let user = status.users.effective;
                    as_another || (user != 0 && !proc.is_dumpable(tid, user))
                }
                Err(error) => is_refused(&error),
            }
        };
        if ended {
            self.ended.push(tid);
        }
    }
}

fn is_refused(error: &OpenError) -> bool {
    matches!(error, OpenError::Bank { error: BankError::NotPermitted, .. })
}

/// Whether a task acts as another user or group than it was started by.
const fn has_other_ids(status: &Status) -> bool {
    !status.users.are_equal() || !status.groups.are_equal()
}
