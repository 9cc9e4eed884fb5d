//! Hits: tracepoints on all CPUs, and addresses that are watched.
//!
//! **Invariant:** a hit is told with its own time, and once for each term that listens; hits that the kernel had no room for are told as
//! lost.

use super::super::board::{Board, Ear};
use super::super::news::{Hit, Reason};
use super::{After, Live, rules};
use crate::overflow::{Overflow, OverflowCounter};
use crate::watch::{News as Watched, Wakes, Watch};
use pmux_engine::Nanos;
use pmux_linux::wait::{Token, Waiter};
use std::time::Duration;

/// A watch tells hits when no older one can come any more: so much later.
const LATER: Nanos = Nanos(2_500_000);
/// How often it is looked at where hits don't wake.
const LOOK: Nanos = Nanos(10_000_000);

/// Which hits of a tracepoint are meant, beside its filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::trigger) enum Threads {
    All,
    /// Those of the first thread of a process.
    First,
}

/// A tracepoint.
pub(in crate::trigger) struct Tracepoint {
    pub(in crate::trigger) counter: OverflowCounter,
    /// As the trigger calls it.
    pub(in crate::trigger) what: String,
    pub(in crate::trigger) threads: Threads,
    pub(in crate::trigger) ears: Vec<Ear>,
    pub(in crate::trigger) lost: u64,
}

impl Live for Tracepoint {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        self.counter.fds().into_iter().for_each(|fd| waiter.watch(fd, token));
    }

    fn take(&mut self, board: &mut Board, _: bool, _: Nanos) -> After {
        let mut hits: Vec<Overflow> = Vec::new();
        if let Err(error) = self.counter.dispatch(Duration::ZERO, &mut |hit| hits.push(hit)) {
            board.lose(rules(self.ears.iter().copied()), format!("{}: {error}", self.what));
            return After::Ended;
        }
        // The rings of several CPUs.
        hits.sort_by_key(|hit| hit.at_ns);
        for hit in hits {
            if self.threads == Threads::First && hit.pid != hit.tid {
                continue;
            }
            for &ear in &self.ears {
                let (what, at) = (self.what.clone(), Nanos(hit.at_ns));
                let reason = Hit { what, pid: hit.pid, tid: hit.tid, cpu: hit.cpu, at };
                board.happen(ear, ear.place_of(hit.cpu), Reason::Hit(reason), at);
            }
        }
        let lost = self.counter.lost();
        if lost > self.lost {
            let what =
                format!("{}: {} hits came faster than they were read, and are not told", self.what, lost - self.lost);
            board.lose(rules(self.ears.iter().copied()), what);
            self.lost = lost;
        }
        After::Stays
    }

    /// An event that has just come has no ring yet.
    fn follow_cpus(&mut self, board: &mut Board, now: Nanos) -> After {
        self.take(board, false, now)
    }
}

/// A watched address.
pub(in crate::trigger) struct Address {
    pub(in crate::trigger) watch: Watch,
    pub(in crate::trigger) what: String,
    pub(in crate::trigger) ears: Vec<Ear>,
    pub(in crate::trigger) look_at: Option<Nanos>,
}

impl Live for Address {
    fn watch(&self, waiter: &mut Waiter, token: Token) {
        self.watch.fds().into_iter().for_each(|fd| waiter.watch(fd, token));
    }

    fn take(&mut self, board: &mut Board, _: bool, now: Nanos) -> After {
        // Woken by the kernel, or by the time that was set then.
        self.look_at = match (self.watch.wakes(), self.look_at) {
            (Wakes::WhenFull, _) => Some(now + LOOK),
            (Wakes::EachHit, Some(at)) if at <= now => None,
            (Wakes::EachHit, _) => Some(now + LATER),
        };
        match self.watch.take() {
            Err(error) => {
                board.lose(rules(self.ears.iter().copied()), format!("{}: {error}", self.what));
                return After::Ended;
            }
            Ok(news) => {
                for news in news {
                    let Watched::Hit(hit) = news else { continue };
                    for &ear in &self.ears {
                        let (what, at) = (self.what.clone(), hit.at);
                        let reason = Hit { what, pid: hit.pid, tid: hit.tid, cpu: hit.cpu, at };
                        board.happen(ear, ear.place_of(hit.cpu), Reason::Hit(reason), at);
                    }
                }
            }
        }
        After::Stays
    }

    fn next(&self) -> Option<Nanos> {
        self.look_at
    }
}
