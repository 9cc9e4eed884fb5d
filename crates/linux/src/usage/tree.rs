//! What processes have used: one by one, and a command together with everything that it starts.
//!
//! How the tree of a command adds up without counting twice: the kernel moves what a child used to its parent's *waited*
//! fields when the parent waits for it. So the sum over all living processes of own and waited is complete at any
//! moment, for the quantities that have waited fields (times, faults). The walk reads every parent before its
//! children: a child that is reaped meanwhile is missed by this reading, and never counted both as a child and in
//! its parent.
//!
//! **Invariant:** a process is known by number *and* start time.

use std::collections::{BTreeMap, VecDeque};

use super::tally::{Tally, times_and_faults};
use crate::procfs::{Proc, ProcError};
use crate::spawn::Usage;

/// Reads single processes and threads as tallies.
#[derive(Debug)]
pub(super) struct UsageReader {
    pub(super) proc: Proc,
    ns_per_tick: u64,
}

/// Whether of two counts of a thread, in which only what is told thread by thread is not 0, this one can be the earlier: a count that
/// fell belongs to another thread with the same number.
fn is_older_than(earlier: &Tally, later: &Tally) -> bool {
    earlier.switches <= later.switches && earlier.cpu_ns <= later.cpu_ns
}

/// What is remembered of a process between readings.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) start_ticks: u64,
    parent: i32,
    pub(super) own: Tally,
    /// What the children used that it has waited for.
    waited: Tally,
    threads: BTreeMap<i32, Tally>,
    /// The sum over the threads that ended, as last seen.
    ended: Tally,
    /// How many were known before it: parents have lower numbers than their children.
    order: u64,
}

impl UsageReader {
    pub(super) fn new(proc: Proc) -> Self {
        let ns_per_tick = 1_000_000_000 / proc.ticks_per_second().max(1);
        Self { proc, ns_per_tick }
    }

    pub(super) fn ticks_ns(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.ns_per_tick)
    }

    /// Reads one thread alone, and when it began.
    pub(super) fn thread(&self, tid: i32) -> Result<(u64, Tally), ProcError> {
        let stat = self.proc.thread_stat(tid)?;
        let counts = self.thread_counts(tid)?;
        let ticks = (self.ticks_ns(stat.user_ticks), self.ticks_ns(stat.system_ticks));
        let all = times_and_faults(ticks, (stat.minor_faults, stat.major_faults));
        let tally = Tally {
            cpu_ns: counts.cpu_ns.or(all.cpu_ns),
            switches: counts.switches,
            migrations: counts.migrations,
            max_rss_bytes: counts.max_rss_bytes,
            ..all
        };
        Ok((stat.start_ticks, tally))
    }

    /// Reads what the kernel tells only thread by thread, so that it goes when the thread ends, and the peak of the memory of its process.
    fn thread_counts(&self, tid: i32) -> Result<Tally, ProcError> {
        let status = self.proc.status(tid)?;
        Ok(Tally {
            cpu_ns: optional(self.proc.schedstat(tid))?,
            switches: status.switches(),
            migrations: optional(self.proc.migrations(tid))?,
            max_rss_bytes: status.peak_resident_bytes,
            ..Tally::ZERO
        })
    }

    /// Reads a process; what an earlier reading of the same process knew about ended threads is kept.
    pub(super) fn process(&self, pid: i32, earlier: Option<&Process>) -> Result<Process, ProcError> {
        let stat = self.proc.stat(pid)?;
        let earlier = earlier.filter(|earlier| earlier.start_ticks == stat.start_ticks);
        let (threads, peak) = self.threads(pid)?;
        let ended = earlier.map_or(Tally::ZERO, |earlier| ended(earlier, &threads));
        let counts = threads.values().fold(ended, |sum, thread| sum.plus(thread));
        let ticks = (self.ticks_ns(stat.user_ticks), self.ticks_ns(stat.system_ticks));
        let own = times_and_faults(ticks, (stat.minor_faults, stat.major_faults));
        let own = Tally {
            // The ticks hold ended threads as well; the threads' own times are finer. Neither is ever too large.
            cpu_ns: own.cpu_ns.max(counts.cpu_ns),
            switches: counts.switches,
            migrations: counts.migrations,
            max_rss_bytes: peak.or(earlier.and_then(|earlier| earlier.own.max_rss_bytes)),
            ..own
        };
        let ticks = (self.ticks_ns(stat.children_user_ticks), self.ticks_ns(stat.children_system_ticks));
        // Switches, moves and memory are not among the waited fields: remembered by the tree from its own readings.
        let waited = times_and_faults(ticks, (stat.children_minor_faults, stat.children_major_faults));
        let order = earlier.map_or(0, |earlier| earlier.order);
        Ok(Process { start_ticks: stat.start_ticks, parent: stat.parent, own, waited, threads, ended, order })
    }

    /// Reads the threads of a process, and the peak of its memory.
    fn threads(&self, pid: i32) -> Result<(BTreeMap<i32, Tally>, Option<u64>), ProcError> {
        let mut threads = BTreeMap::new();
        let mut peak = None;
        for tid in self.proc.threads_of(pid)? {
            // A thread that ends between two of its files is left out whole: half a reading would look like a new thread.
            match self.thread_counts(tid) {
                Ok(counts) => {
                    peak = peak.max(counts.max_rss_bytes);
                    threads.insert(tid, counts);
                }
                Err(ProcError::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((threads, peak))
    }

    /// Lists the children of a process, the slow way where the kernel keeps no list.
    fn children(&self, pid: i32) -> Result<Vec<i32>, ProcError> {
        match self.proc.children(pid) {
            Err(ProcError::Unsupported { .. }) => {
                let all = self.proc.processes()?;
                Ok(all.into_iter().filter(|&id| self.proc.parent(id) == Ok(pid)).collect())
            }
            result => result,
        }
    }
}

/// The sum over the threads that were there and no longer are.
fn ended(earlier: &Process, now: &BTreeMap<i32, Tally>) -> Tally {
    let gone =
        earlier.threads.iter().filter(|(tid, before)| !now.get(tid).is_some_and(|later| is_older_than(before, later)));
    gone.fold(earlier.ended, |sum, (_, thread)| sum.plus(thread))
}

/// A file that the kernel lacks or hides is an unknown number.
fn optional(result: Result<u64, ProcError>) -> Result<Option<u64>, ProcError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ProcError::Unsupported { .. } | ProcError::Denied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A command and everything that it started.
#[derive(Debug)]
pub(super) struct Tree {
    root: i32,
    known: BTreeMap<i32, Process>,
    next_order: u64,
    /// What ended children used that no waited field tells (switches, memory), until `wait4` tells all.
    ended_children: Tally,
    /// What ended processes used whose parent had gone before them: no process in the tree has waited for them.
    ended_orphans: Tally,
    last_word: Option<LastWord>,
}

/// What `wait4` said about the root.
#[derive(Clone, Copy, Debug)]
struct LastWord {
    tally: Tally,
    /// Whether the tree has been walked since.
    walked: bool,
}

impl Tree {
    pub(super) fn new(root: i32) -> Self {
        Self {
            root,
            known: BTreeMap::new(),
            next_order: 0,
            ended_children: Tally::ZERO,
            ended_orphans: Tally::ZERO,
            last_word: None,
        }
    }

    pub(super) fn is_retired(&self) -> bool {
        self.last_word.is_some()
    }

    /// Takes what `wait4` said about the root. What lives on from now is added to it.
    pub(super) fn retire(&mut self, last_word: Usage) {
        if self.last_word.is_none() {
            self.last_word = Some(LastWord { tally: last_word.into(), walked: false });
            self.ended_children = Tally::ZERO;
        }
    }

    /// Walks the tree once and returns what it has used since it began.
    pub(super) fn read(&mut self, reader: &UsageReader) -> Result<Tally, ProcError> {
        let mut now = BTreeMap::new();
        if self.last_word.is_none() {
            self.walk(self.root, reader, &mut now)?;
        }
        // Those that no process above lists any more: their parent is gone, or the list was made while it changed.
        let mut unlisted: Vec<_> = self.known.iter().map(|(&pid, process)| (process.order, pid)).collect();
        unlisted.retain(|(_, pid)| self.last_word.is_none() || *pid != self.root);
        unlisted.sort_unstable();
        for (_, pid) in unlisted {
            if !now.contains_key(&pid) {
                self.walk(pid, reader, &mut now)?;
            }
        }
        let before = std::mem::replace(&mut self.known, now);
        self.bury(&before);
        let living = self.known.values().fold(Tally::ZERO, |sum, process| sum.plus(&process.own).plus(&process.waited));
        let ended = self.ended_children.plus(&self.ended_orphans);
        let mut total = living.plus(&ended);
        if let Some(last_word) = &mut self.last_word {
            last_word.walked = true;
            total = total.plus(&last_word.tally);
        }
        // Nothing tells how often a child moved that has ended, so the tree as a whole does not know either.
        total.migrations = None;
        Ok(total)
    }

    /// Reads a process and all below it, parents first. One that is gone is left out.
    fn walk(&mut self, top: i32, reader: &UsageReader, now: &mut BTreeMap<i32, Process>) -> Result<(), ProcError> {
        let mut queue = VecDeque::from([top]);
        while let Some(pid) = queue.pop_front() {
            if now.contains_key(&pid) {
                continue;
            }
            let earlier = self.known.get(&pid);
            let mut process = match reader.process(pid, earlier) {
                Ok(process) => process,
                Err(ProcError::Gone { .. }) => continue,
                Err(error) => return Err(error),
            };
            let is_known = earlier.is_some_and(|earlier| earlier.start_ticks == process.start_ticks);
            if !is_known {
                // Only the top can be a stranger with a number that has been used again.
                if pid == top && self.next_order > 0 {
                    continue;
                }
                process.order = self.next_order;
                self.next_order += 1;
            }
            now.insert(pid, process);
            match reader.children(pid) {
                Ok(children) => queue.extend(children),
                Err(ProcError::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Keeps what the living no longer tell of those that were there before.
    fn bury(&mut self, before: &BTreeMap<i32, Process>) {
        for (pid, process) in before {
            let lives = self.known.get(pid).is_some_and(|now| now.start_ticks == process.start_ticks);
            if lives || (*pid == self.root && self.last_word.is_some()) {
                continue;
            }
            let had_parent_here = *pid == self.root || before.contains_key(&process.parent);
            if had_parent_here {
                // What ended before the root did is in its last word.
                if self.last_word.is_some_and(|last_word| !last_word.walked) {
                    continue;
                }
                let untold = Tally {
                    switches: process.own.switches,
                    migrations: process.own.migrations,
                    max_rss_bytes: process.own.max_rss_bytes,
                    ..Tally::ZERO
                };
                self.ended_children = self.ended_children.plus(&untold);
            } else {
                self.ended_orphans = self.ended_orphans.plus(&process.own).plus(&process.waited);
            }
        }
    }
}
