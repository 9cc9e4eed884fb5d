//! Threads: which there are, and everything on each of them.
//!
//! What it is: [`Roll`], who is known and who is new; [`open_together`] and [`open_apart`], all events on each
//! of many threads.
//!
//! **Invariant:** a thread has all events or none.

use super::arm::{ESRCH, HitReporter};
use super::{OpenBreakpoints, WatchPiece};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::session::Session;
use pmux_engine::engine::{Begin, OnMany};
use pmux_engine::pmu::BankError;
use pmux_engine::{GroupSpec, OpenError, PmuId, Target};
use pmux_linux::host::{EnableTime, LinuxHost, PerThreadEvents};
use pmux_linux::procfs::{Proc, ProcError};
use pmux_linux::{Errno, threads};

/// Where more tasks were born meanwhile, all threads are looked for.
const MOST_BORN: i32 = 256;

pub(super) enum TasksToWatch<'t> {
    Threads(Vec<i32>),
    Processes(&'t [i32]),
}

/// Which threads are known, and what tells that none has come since.
///
/// To list thousands of threads takes as long as to arm a good part of them. So they are guessed where their numbers are in a
/// row, which is exact where as many are found as there are; and they are looked for once more only where that may find a new one:
/// where the number of threads is not what it was, or one of the tasks that were born anywhere since is theirs. A thread that was
/// just being born at the first look is missed only if it came as another one ended, between the two looks.
#[derive(Default)]
pub(super) struct Roll {
    /// Ascending.
    known: Vec<i32>,
    last: Option<ThreadCounts>,
}

/// What is known without a list.
#[derive(Clone, PartialEq, Eq)]
struct ThreadCounts {
    newest_task: i32,
    threads: Vec<u64>,
}

impl ThreadCounts {
    fn now(pids: &[i32]) -> Option<Self> {
        let proc = Proc::system();
        let threads = pids.iter().map(|&pid| proc.thread_count(pid).ok()).collect::<Option<_>>()?;
        Some(Self { newest_task: proc.newest_task()?, threads })
    }

    /// Whether none of these processes can have a thread more than it had.
    fn is_as(&self, before: &Self, pids: &[i32]) -> bool {
        // Numbers begin anew at the end: then nothing is known.
        let born = self.newest_task.checked_sub(before.newest_task).filter(|born| (0..=MOST_BORN).contains(born));
        let theirs = |tid: i32| pids.iter().any(|&pid| threads::has(pid, tid));
        self.threads == before.threads
            && born.is_some_and(|born| !(0..born).any(|back| theirs(self.newest_task - back)))
    }
}

impl Roll {
    /// The threads that were not known yet.
    pub(super) fn fresh(&mut self, tasks: &TasksToWatch<'_>) -> Result<Vec<i32>, Error> {
        let pids = match tasks {
            TasksToWatch::Threads(tids) => return Ok(self.unknown(tids.clone())),
            TasksToWatch::Processes(pids) => *pids,
        };
        let now = ThreadCounts::now(pids);
        if let (Some(last), Some(now)) = (&self.last, &now)
            && now.is_as(last, pids)
        {
            return Ok(Vec::new());
        }
        let proc = Proc::system();
        let mut all = Vec::new();
        let mut counts = Vec::new();
        for (number, &pid) in pids.iter().enumerate() {
            let guess = || threads::in_a_row(pid, *now.as_ref()?.threads.get(number)?);
            match guess().map_or_else(|| proc.threads_of(pid), Ok) {
                Ok(tids) => {
                    counts.push(tids.len() as u64);
                    all.extend(tids);
                }
                // It was there before.
                Err(ProcError::Gone { .. }) if !self.known.is_empty() => {}
                Err(error) => return Err(Error::Process(error)),
            }
        }
        // Where a thread came or left while they were listed, the list may have missed another one.
        self.last = now.filter(|now| now.threads == counts);
        Ok(self.unknown(all))
    }

    /// Looks for all of them at the next time, whatever their number is.
    pub(super) fn doubt(&mut self) {
        self.last = None;
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

/// Opens all events on each of these threads, where registers take turns: each thread by itself, because it takes its own. On all
/// threads or on none, but for those that are refused with an errno that is `tolerated`: those are left out.
pub(super) fn open_apart(
    session: &Session,
    tids: &[i32],
    wanted: &PiecesToOpen<'_>,
    tolerated: &[i32],
    reporter: HitReporter,
) -> Armed {
    let targets: Vec<_> = tids.iter().map(|&tid| Target::task(LinuxHost::task(tid))).collect();
    let tolerates = |error: &OpenError| tolerated.contains(&error.errno());
    let OnMany { opened, left_out } = match session.engine().open_each(wanted.specs, &targets, Begin::Off, tolerates) {
        Ok(many) => many,
        Err(one) => return Err(ThreadRefusal { tid: tids[one.target], index: one.index, error: one.error }),
    };
    let held = opened.iter().map(|one| {
        let (tids, watch_target) = (vec![tids[one.target]], wanted.pieces[one.index].watch_target);
        let (group, event) = (Owned::new(session, one.group), one.leader);
        OpenBreakpoints::Tasks { tids, watch_target, group, event, reporter }
    });
    let gone = left_out.iter().filter(|one| one.error.errno() == ESRCH);
    Ok((held.collect(), gone.map(|one| (tids[one.target], one.error)).collect()))
}

/// The same where registers are kept: each event on all threads at once.
pub(super) fn open_together(
    session: &Session,
    pmu: PmuId,
    tids: &[i32],
    wanted: &PiecesToOpen<'_>,
    tolerated: &[i32],
    reporter: HitReporter,
) -> Armed {
    let engine = session.engine();
    let Some(&first) = tids.first() else { return Ok(Default::default()) };
    let task = LinuxHost::task(first);
    let begun = if let HitReporter::Program(begun) = reporter { begun } else { EnableTime::AtOpen };
    let per_thread = PerThreadEvents::new(tids.to_vec(), tolerated, begun);
    let mut held: Vec<OpenBreakpoints> = Vec::with_capacity(wanted.specs.len());
    let mut gone: Vec<(i32, OpenError)> = Vec::new();
    for (index, (piece, spec)) in wanted.pieces.iter().zip(wanted.specs).enumerate() {
        let opened = engine.host().open_per_thread(pmu, task, &per_thread, || engine.open(spec, Target::task(task)));
        let report = per_thread.report();
        for (tid, errno) in report.left_out {
            if errno == Errno::ESRCH && gone.iter().all(|(known, _)| *known != tid) {
                gone.push((tid, OpenError::Bank { index: 0, error: BankError::from_errno(errno.raw()) }));
            }
        }
        match opened {
            Ok(opened) => {
                let (group, event) = (Owned::new(session, opened.group), opened.events[0]);
                let (tids, watch_target) = (tids.to_vec(), piece.watch_target);
                held.push(OpenBreakpoints::Tasks { tids, watch_target, group, event, reporter });
            }
            // The threads that are left have none of them, and that may be tolerated.
            Err(error) if tolerated.contains(&error.errno()) && report.refused.is_some() => {}
            Err(error) => return Err(ThreadRefusal { tid: report.refused.unwrap_or(first), index, error }),
        }
    }
    for held in &mut held {
        if let OpenBreakpoints::Tasks { tids, .. } = held {
            tids.retain(|tid| gone.iter().all(|(other, _)| other != tid));
        }
    }
    Ok((held, gone))
}

pub(super) struct PiecesToOpen<'a> {
    pub(super) pieces: &'a [WatchPiece],
    pub(super) specs: &'a [GroupSpec],
}

/// A refusal that is not tolerated.
pub(super) struct ThreadRefusal {
    pub(super) tid: i32,
    pub(super) index: usize,
    pub(super) error: OpenError,
}

/// All events on many threads; and the threads that have ended meanwhile.
pub(super) type Armed = Result<(Vec<OpenBreakpoints>, Vec<(i32, OpenError)>), ThreadRefusal>;
