//! Threads: which there are, and everything on each of them.
//!
//! What it is: [`Roll`], who is known and who is new; [`open_on`], all events on each of many threads, by several hands.
//!
//! **Invariant:** a thread has all events or none.

use super::{Held, Piece};
use crate::error::Error;
use crate::session::Session;
use pmux_engine::shell::{Begin, OnMany};
use pmux_engine::{GroupId, GroupSpec, OpenError, Target};
use pmux_linux::host::LinuxHost;
use pmux_linux::procfs::{Proc, ProcError};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// So many threads are armed in the time that it takes to start one that helps, many times over.
const WORTH_A_HAND: usize = 128;
/// More that help get into each other's way.
const MOST_HANDS: usize = 4;
/// So many are armed at a time: enough that nobody waits for a lock, few enough that all hands end together.
const AT_A_TIME: usize = 64;

/// Who is watched.
pub(super) enum Tasks<'t> {
    /// These threads.
    Threads(Vec<i32>),
    /// All threads of these processes.
    Processes(&'t [i32]),
}

/// Who is known, and what tells that nobody has come since.
///
/// To list thousands of threads takes as long as to arm a good part of them. So they are guessed where their numbers are in a
/// row, which is exact where as many are found as there are; and they are looked for once more only where that may find somebody:
/// where a task was born anywhere since, or the number of threads is not what it was before. A thread that was just being
/// born then is missed only if it came as another one ended, between two looks at the number.
#[derive(Default)]
pub(super) struct Roll {
    /// Ascending.
    known: Vec<i32>,
    last: Option<Moment>,
}

/// What is known without a list.
#[derive(Clone, PartialEq, Eq)]
struct Moment {
    newest_task: i32,
    /// How many threads each process had.
    threads: Vec<u64>,
}

impl Moment {
    fn now(pids: &[i32]) -> Option<Self> {
        let proc = Proc::system();
        let threads = pids.iter().map(|&pid| proc.thread_count(pid).ok()).collect::<Option<_>>()?;
        Some(Self { newest_task: proc.newest_task()?, threads })
    }
}

impl Roll {
    /// The threads that were not known yet. `own` is how many threads we have started since the last call.
    pub(super) fn fresh(&mut self, tasks: &Tasks<'_>, own: usize) -> Result<Vec<i32>, Error> {
        let pids = match tasks {
            Tasks::Threads(tids) => return Ok(self.unknown(tids.clone())),
            Tasks::Processes(pids) => *pids,
        };
        let now = Moment::now(pids);
        if let (Some(last), Some(now)) = (&self.last, &now) {
            let ours = i32::try_from(own).unwrap_or(i32::MAX);
            if last.threads == now.threads && last.newest_task.checked_add(ours) == Some(now.newest_task) {
                return Ok(Vec::new());
            }
        }
        let proc = Proc::system();
        let mut all = Vec::new();
        let mut threads = Vec::new();
        for (number, &pid) in pids.iter().enumerate() {
            let guess = || pmux_linux::threads::in_a_row(pid, *now.as_ref()?.threads.get(number)?);
            match guess().map_or_else(|| proc.threads_of(pid), Ok) {
                Ok(tids) => {
                    threads.push(tids.len() as u64);
                    all.extend(tids);
                }
                // It was there before.
                Err(ProcError::Gone { .. }) if !self.known.is_empty() => {}
                Err(error) => return Err(Error::Process(error)),
            }
        }
        // Where somebody came or left while they were listed, the list may have missed another one.
        self.last = now.filter(|now| now.threads == threads);
        Ok(self.unknown(all))
    }

    fn unknown(&mut self, mut tids: Vec<i32>) -> Vec<i32> {
        tids.sort_unstable();
        tids.dedup();
        tids.retain(|tid| self.known.binary_search(tid).is_err());
        self.known.extend_from_slice(&tids);
        self.known.sort_unstable();
        tids
    }
}

/// All events on many threads.
#[derive(Default)]
pub(super) struct Armed {
    pub(super) held: Vec<Held>,
    /// Threads that can be done without, which event was refused there, and why.
    pub(super) left_out: Vec<(i32, usize, OpenError)>,
    /// The first other refusal.
    pub(super) refused: Option<(i32, usize, OpenError)>,
    /// How many threads we have started for it.
    pub(super) hands: usize,
}

impl Armed {
    fn add(&mut self, other: Self) {
        self.held.extend(other.held);
        self.left_out.extend(other.left_out);
        self.refused = self.refused.take().or(other.refused);
    }
}

/// Opens all events on each of these threads. Where one is refused with an errno that is not tolerated, some of the others are not
/// tried any more.
pub(super) fn open_on(
    session: &Session,
    tids: &[i32],
    (pieces, specs): (&[Piece], &[GroupSpec]),
    begin: Begin,
    tolerated: &[i32],
) -> Armed {
    let failed = AtomicBool::new(false);
    let tolerates = |error: &OpenError| tolerated.contains(&error.errno());
    let mut armed = in_parts(tids, Armed::default, Armed::add, |armed: &mut Armed, tids| {
        // Relaxed: whoever sees it late opens a few in vain.
        if failed.load(Ordering::Relaxed) {
            return;
        }
        let targets: Vec<_> = tids.iter().map(|&tid| Target::task(LinuxHost::task(tid))).collect();
        match session.engine().open_each(specs, &targets, begin, tolerates) {
            Ok(OnMany { opened, left_out }) => {
                armed.held.extend(opened.iter().map(|one| Held::Thread {
                    tid: tids[one.target],
                    spot: pieces[one.index].spot,
                    group: one.group,
                    event: one.leader,
                }));
                armed.left_out.extend(left_out.iter().map(|one| (tids[one.target], one.index, one.error)));
            }
            Err(one) => {
                failed.store(true, Ordering::Relaxed);
                armed.refused.get_or_insert((tids[one.target], one.index, one.error));
            }
        }
    });
    armed.hands = hands_for(tids.len()) - 1;
    armed
}

/// Lets groups count.
pub(super) fn start(session: &Session, groups: &[GroupId]) -> Result<(), Error> {
    let first = |result: &mut Result<(), Error>, other: Result<(), Error>| {
        if result.is_ok() {
            *result = other;
        }
    };
    in_parts(
        groups,
        || Ok(()),
        first,
        |result, groups| {
            if result.is_ok() {
                *result = session.engine().enable_each(groups).map_err(|(_, error)| error.into());
            }
        },
    )
}

/// Does something with all of these, a part at a time, by as many hands as are worth it. Most of it is waiting for other CPUs: to be
/// done in less time, it is done side by side.
fn in_parts<T: Sync, R: Send>(
    items: &[T],
    empty: impl Fn() -> R + Sync,
    add: impl Fn(&mut R, R),
    work: impl Fn(&mut R, &[T]) + Sync,
) -> R {
    // Relaxed: nothing is published by it.
    let next = AtomicUsize::new(0);
    let hand = || {
        let mut result = empty();
        loop {
            let begin = next.fetch_add(AT_A_TIME, Ordering::Relaxed);
            let end = begin.saturating_add(AT_A_TIME).min(items.len());
            let Some(part) = items.get(begin..end).filter(|part| !part.is_empty()) else { return result };
            work(&mut result, part);
        }
    };
    let hands = hands_for(items.len());
    if hands == 1 {
        return hand();
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..hands).map(|_| scope.spawn(hand)).collect();
        let mut result = hand();
        // A panic over there has been printed, and what it had opened is closed with the session.
        others.into_iter().filter_map(|other| other.join().ok()).for_each(|other| add(&mut result, other));
        result
    })
}

fn hands_for(items: usize) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cpus.min(MOST_HANDS).min(items / WORTH_A_HAND).max(1)
}
