//! All threads of processes, though they start others meanwhile.
//!
//! What it is: threads are listed until nothing new appears. What a thread has inherited from one whose events are open is counted
//! there; opened on it once more, it would count twice. Where threads come while others are opened, all are opened anew with marks
//! ([`Lineage`]) that tell which threads have inherited.
//!
//! Then events also count from their opening on, between the two marks, and are set to 0 when they are to begin. For a task that is born
//! while its parent's events are being enabled may stay disabled, with all that it starts: the kernel copies the state before it adds
//! the new event to those that are switched together (seen with 6.18; `inherit_event`, kernel/events/core.c).
//!
//! A thread may be in clone(2) while events are opened on it: the new one has none of them, and is listed only later. So threads are
//! listed once more when none can be in a call of clone that began before ([`await_clones`]).
//!
//! **Invariant:** no thread is counted twice. Where it is not known that all are counted, [`Counters::is_settled`] says so.

use super::open::Opening;
use super::{Counters, TaskRow};
use crate::clones::{PATIENCE, await_clones};
use crate::error::Error;
use crate::refusal::Refusal;
use crate::session::Backend;
use crate::target::{Inherit, Options};
use pmux_linux::Errno;
use pmux_linux::host::LinuxHost;
use pmux_linux::lineage::{Inherited, Lineage, MarkTime};
use pmux_linux::procfs::{Proc, ProcError};
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Where threads come and go without end, it ends.
const MOST_ROUNDS: usize = 64;
/// So long all is opened anew where threads were born meanwhile.
const TRIES_FOR: Duration = Duration::from_millis(500);
/// A record may be written so much later than what it tells.
const LAG: Duration = Duration::from_millis(2);

impl Opening<'_> {
    /// All threads of some processes. What the kernel accounts for anyway is told for a process as a whole: a row each.
    pub(super) fn processes(&mut self, pids: &[i32], options: Options) -> Result<Counters, Error> {
        let session = self.session;
        if !matches!(session.backend(), Backend::Kernel) {
            let tasks: Vec<_> = pids.iter().map(|&pid| LinuxHost::task(pid)).collect();
            pids.iter().try_for_each(|&pid| Proc::system().threads_of(pid).map(drop)).map_err(Error::Process)?;
            return session.engine().host().as_processes(&tasks, || self.tasks(pids));
        }
        let first = ThreadListing::of(pids, MustLive::Yes)?;
        let mut counters = match self.tasks(&first.tids) {
            Ok(counters) => Some(counters),
            // All that were listed have ended; others may be there.
            Err(Error::Refused(refusals)) if refusals.iter().all(Refusal::is_gone) => {
                if ThreadListing::of(pids, MustLive::No)?.tids.is_empty() {
                    return Err(Error::Refused(refusals));
                }
                None
            }
            Err(error) => return Err(error),
        };
        await_clones(&first.tids);
        let is_known = |tid: &i32| first.tids.binary_search(tid).is_ok();
        let now = ThreadListing::of(pids, MustLive::No)?;
        if let Some(counters) = counters.take_if(|_| now.whole && now.tids.iter().all(is_known)) {
            return Ok(counters);
        }
        let adds_up = options.inherit == Inherit::Children;
        let cpus = session.online();
        let mut unsettled = counters;
        let until = Instant::now() + TRIES_FOR;
        while Instant::now() < until {
            // It would be counted twice.
            drop(unsettled.take());
            let Ok(mut lineage) = Lineage::open(cpus.iter()) else { break };
            let (rows, settled) = match self.marked(pids, &mut lineage, adds_up) {
                Ok(Some(opened)) => opened,
                Ok(None) => continue,
                // Marks take files, too. What fails without them fails below.
                Err(_) => break,
            };
            let mut counters = self.counters(rows, Vec::new());
            counters.settled = settled && lineage.lost() == 0;
            counters.counts_already = AtomicBool::new(adds_up);
            if counters.settled {
                return Ok(counters);
            }
            unsettled = Some(counters);
        }
        if let Some(counters) = unsettled {
            return Ok(counters);
        }
        // Without marks: those that are there now.
        let mut counters = self.tasks(&ThreadListing::of(pids, MustLive::Yes)?.tids)?;
        counters.settled = false;
        Ok(counters)
    }

    /// Opens everything on threads until none is new, and closes again what was there already. The rows, and whether none was new in
    /// the end; `None` where a thread was born while its parent's events were opened.
    fn marked(
        &mut self,
        pids: &[i32],
        lineage: &mut Lineage,
        inherits: bool,
    ) -> Result<Option<(Vec<TaskRow>, bool)>, Error> {
        let (mut rows, mut known) = (Vec::new(), HashSet::new());
        let changes = self.changes;
        let (mut settled, mut awaited) = (false, false);
        for round in 0..MOST_ROUNDS {
            lineage.follow();
            let ThreadListing { tids: mut fresh, whole } =
                ThreadListing::of(pids, if round == 0 { MustLive::Yes } else { MustLive::No })?;
            fresh.retain(|tid| !known.contains(tid) && lineage.inherited(*tid) != Inherited::Everything);
            for &tid in &fresh {
                known.insert(tid);
                rows.extend(self.marked_row(tid, lineage, inherits, rows.is_empty())?);
            }
            if inherits && !fresh.is_empty() {
                await_first_run(&fresh);
                lineage.follow();
            }
            // Rows that were opened before a column changed have it as it was.
            let is = |tid: &i32, what| lineage.inherited(*tid) == what;
            if self.changes != changes || fresh.iter().any(|tid| is(tid, Inherited::Perhaps)) {
                return Ok(None);
            }
            let nothing_new = whole && fresh.iter().all(|tid| is(tid, Inherited::Everything));
            if nothing_new && awaited {
                settled = true;
                break;
            }
            if nothing_new {
                await_clones(&threads_of(&rows));
            }
            awaited = nothing_new;
        }
        if inherits {
            await_first_run(&threads_of(&rows));
            lineage.follow();
            if rows.iter().any(|row| has(row, lineage) == Inherited::Perhaps) {
                return Ok(None);
            }
            rows.retain(|row| has(row, lineage) != Inherited::Everything);
        }
        Ok(Some((rows, settled)))
    }

    /// The row of a thread; `None` where it has ended.
    fn marked_row(
        &mut self,
        tid: i32,
        lineage: &mut Lineage,
        inherits: bool,
        first: bool,
    ) -> Result<Option<TaskRow>, Error> {
        let marked = |lineage: &mut Lineage, moment| match inherits.then(|| lineage.mark(tid, moment)) {
            Some(Err(Errno::ESRCH)) => Ok(false),
            Some(Err(errno)) => Err(Error::Ring { what: "following the threads of a process", errno }),
            None | Some(Ok(())) => Ok(true),
        };
        if !marked(lineage, MarkTime::Before)? {
            return Ok(None);
        }
        let Some(row) = self.task_row(tid, first)? else { return Ok(None) };
        if inherits {
            row.groups.iter().try_for_each(|group| group.own.enable_all::<Error>())?;
        }
        // One that has ended starts nothing more.
        marked(lineage, MarkTime::After)?;
        Ok(Some(row))
    }
}

fn threads_of(rows: &[TaskRow]) -> Vec<i32> {
    rows.iter().filter_map(|row| row.who.thread).collect()
}

/// Waits until these threads have run, and what they tell then is written. For [`PATIENCE`] at most.
fn await_first_run(tids: &[i32]) {
    let deadline = Instant::now() + PATIENCE;
    let proc = Proc::system();
    while tids.iter().any(|&tid| proc.schedstat(tid) == Ok(0)) && Instant::now() < deadline {
        std::thread::sleep(LAG);
    }
    std::thread::sleep(LAG);
}

fn has(row: &TaskRow, lineage: &Lineage) -> Inherited {
    row.who.thread.map_or(Inherited::Nothing, |tid| lineage.inherited(tid))
}

/// Whether a process that has ended is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MustLive {
    Yes,
    No,
}

struct ThreadListing {
    /// Ascending.
    tids: Vec<i32>,
    /// Whether they are as many as the kernel counts. A folder that is read while threads come and go may lack one that is there.
    whole: bool,
}

impl ThreadListing {
    fn of(pids: &[i32], must_live: MustLive) -> Result<Self, Error> {
        let proc = Proc::system();
        let (mut tids, mut whole) = (Vec::new(), true);
        for &pid in pids {
            let before = proc.thread_count(pid);
            match proc.threads_of(pid) {
                Ok(threads) => {
                    // Before and after: one may have come, and another one gone.
                    whole &= [before, proc.thread_count(pid)].iter().all(|count| *count == Ok(threads.len() as u64));
                    tids.extend(threads);
                }
                Err(ProcError::Gone { .. }) if must_live == MustLive::No => {}
                Err(error) => return Err(Error::Process(error)),
            }
        }
        tids.sort_unstable();
        tids.dedup();
        Ok(Self { tids, whole })
    }
}
