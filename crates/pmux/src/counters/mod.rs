//! Counters: events that are open on a target.
//!
//! What it is: rows (threads, or CPUs) times events; enabled, disabled and read together.
//! Read first: [`Counters`]; how they are opened is in `open`.
//!
//! **Invariant:** dropping them closes everything that they hold.

mod column;
mod open;
mod reading;
mod threads;
mod together;
mod turns;

pub(crate) use column::Column;
pub use reading::{Reading, RowReading, SetCoverage, Snapshot, Who};
pub use turns::Contention;

use crate::error::Error;
use crate::event::Event;
use crate::mux::Slice;
use crate::mux::turns::Turning;
use crate::owned_group::{Owned, OwnedGroup};
use crate::refusal::Refusal;
use crate::session::Session;
use crate::tree::{ProcessTree, TreeFollower};
use pmux_engine::engine::{GroupReading, SetReading};
use pmux_engine::event_set::Member;
use pmux_engine::system_wide::CpuCoverage;
use pmux_engine::{CgroupId, Count, EventId, Host as _, LockCell as _, Nanos, ReadError, SetId, TaskId};
use pmux_linux::host::SleepLock;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A group on one task, with the column of each of its events.
struct TaskGroup {
    own: OwnedGroup,
    columns: Vec<usize>,
}

struct TaskRow {
    who: Who,
    groups: Vec<TaskGroup>,
}

impl TaskRow {
    /// All events, each with its column.
    fn events(&self) -> impl Iterator<Item = (usize, EventId)> {
        self.groups.iter().flat_map(|group| group.columns.iter().copied().zip(group.own.opened.events.iter().copied()))
    }
}

/// A set over CPUs, with the column of each of its events.
struct CpuRows {
    /// Which cgroup; `None` for everything, or for a task.
    cgroup: Option<usize>,
    /// Whether each CPU is a row of its own, or only a way to count one task.
    per_cpu: bool,
    set: Owned<SetId>,
    columns: Vec<usize>,
}

/// Events that are open on a target.
pub struct Counters {
    session: Session,
    columns: Vec<Column>,
    events: Arc<[Event]>,
    tasks: Vec<TaskRow>,
    sets: Vec<CpuRows>,
    /// Closed behind the sets that count them.
    _cgroups: Vec<Owned<CgroupId>>,
    /// What the sets had counted when they were last read, for [`Counters::read_cached`].
    last: SleepLock<Option<LastSets>>,
    tree: Option<TreeFollower>,
    /// The last column, where that only keeps the time.
    clock: Option<usize>,
    slice: Slice,
    /// Lets events take turns as long as it lives.
    turning: SleepLock<Option<Arc<Turning>>>,
    /// Whether all threads of the target are counted, as far as they were there.
    settled: bool,
    /// Whether tasks were enabled when they were opened, and are set to 0 when they are to begin.
    counts_already: AtomicBool,
    /// A command that waits for its first exec, with events that begin then.
    held: SleepLock<Option<TaskId>>,
}

#[derive(Clone)]
struct LastSets {
    at: Nanos,
    rows: Vec<RowReading>,
    coverage: SetCoverage,
}

impl Counters {
    /// The events, in the order in which they were asked for.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Why an event is not counted; `None` where it is.
    #[must_use]
    pub fn refusal(&self, event: usize) -> Option<&Refusal> {
        self.columns.get(event)?.refusal.as_ref()
    }

    /// What had to be changed in an event so that it could be opened, in a sentence.
    #[must_use]
    pub fn adjustment(&self, event: usize) -> Option<&str> {
        self.columns.get(event)?.adjustment.as_deref()
    }

    /// What became of the weak group that an event led, in a sentence: `None` where it is whole, or there is none.
    #[must_use]
    pub fn regrouping(&self, event: usize) -> Option<&str> {
        self.columns.get(event)?.regrouping.as_deref()
    }

    /// Whether it is known that all threads of the processes are counted that were there when this was opened. Where threads come and
    /// go faster than they can be listed, it is not.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// The session that they belong to.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Lets everything count.
    ///
    /// # Errors
    /// [`Error::Control`] where a counter refuses, for example because a pinned event finds no counter.
    pub fn enable(&self) -> Result<(), Error> {
        let engine = self.session.engine();
        // Relaxed: calls from several threads at once have no order.
        if self.counts_already.swap(false, Ordering::Relaxed) {
            self.reset()?;
        }
        self.task_groups().try_for_each(|group| group.own.enable_all::<Error>())?;
        for rows in &self.sets {
            engine.enable_set(*rows.set)?;
        }
        self.begin_turns()
    }

    /// Stops everything; counts stay.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&self) -> Result<(), Error> {
        let engine = self.session.engine();
        self.task_groups().try_for_each(|group| group.own.disable_all::<Error>())?;
        for rows in &self.sets {
            engine.disable_set(*rows.set)?;
        }
        Ok(())
    }

    /// Sets all counts to 0; times stay.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn reset(&self) -> Result<(), Error> {
        let engine = self.session.engine();
        for (_, event) in self.tasks.iter().flat_map(TaskRow::events) {
            engine.reset(event)?;
        }
        for rows in &self.sets {
            engine.reset_set(*rows.set)?;
        }
        Ok(())
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        let groups = self.task_groups().map(|group| Member::Group(group.own.opened.group));
        groups.chain(self.sets.iter().map(|rows| Member::Set(*rows.set))).collect()
    }

    fn task_groups(&self) -> impl Iterator<Item = &TaskGroup> {
        self.tasks.iter().flat_map(|task| &task.groups)
    }

    /// The command has executed its program: counters that waited for that count now.
    pub(crate) fn started_by_exec(&self) -> Result<(), Error> {
        for rows in &self.sets {
            self.session.engine().armed_by_exec(*rows.set);
        }
        self.begin_turns()
    }

    /// Reads everything now. CPUs that came or went since the last call are taken into account first.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        self.session.keep_up_with_cpus();
        let mut counts = GroupReading::new();
        let mut rows: Vec<_> = self.tasks.iter().map(|task| self.read_task(task, &mut counts)).collect();
        let mut coverage = SetCoverage::default();
        if !self.sets.is_empty() {
            let sets = self.read_sets();
            merge(&mut rows, sets.rows);
            coverage = sets.coverage;
        }
        self.hide_clock(&mut rows);
        Snapshot { at: self.now(), rows, coverage, events: Arc::clone(&self.events) }
    }

    /// The events of all sets that are open now, by their CPUs, with their columns.
    pub(crate) fn events_of_cpus(&self) -> impl Iterator<Item = (u32, usize, EventId)> {
        self.sets.iter().flat_map(|rows| {
            let cpus = self.session.engine().set_events(*rows.set).unwrap_or_default();
            cpus.into_iter().flat_map(|(cpu, events)| {
                rows.columns.iter().zip(events).map(move |(&column, event)| (cpu.0, column, event)).collect::<Vec<_>>()
            })
        })
    }

    /// Reads all sets, and remembers what they said.
    fn read_sets(&self) -> LastSets {
        let (rows, coverage) = self.rows_of_sets(|set| self.session.engine().read_set(set));
        let last = LastSets { at: self.now(), rows, coverage };
        let kept = last.clone();
        self.last.with(|last| *last = Some(kept));
        last
    }

    /// Reads everything from memory, without asking a counter: as of the last [`Counters::read`], or where counters are shared
    /// with other processes as of the last time that the service has looked at the counters, whichever came later. The
    /// oldest age of what it returns is the second value.
    #[must_use]
    pub fn read_cached(&self) -> (Snapshot, Nanos) {
        let mut oldest = self.now();
        let mut rows = Vec::new();
        for task in &self.tasks {
            let mut readings = self.blank();
            for (column, event) in task.events() {
                readings[column] = match self.session.read_from_memory(event) {
                    Ok((count, at)) => {
                        oldest = oldest.min(at);
                        Reading::Counted(count)
                    }
                    Err(error) => Reading::Failed(error),
                };
            }
            self.set_task_clock(task, &mut readings);
            rows.push(RowReading { who: task.who, readings });
        }
        let mut coverage = SetCoverage::default();
        if !self.sets.is_empty() {
            // Before the first exact reading there is nothing in memory: that one is made now.
            let last = self.last.with(|last| last.clone()).unwrap_or_else(|| self.read_sets());
            let last = self.recall_sets(last);
            oldest = oldest.min(last.at);
            merge(&mut rows, last.rows);
            coverage = last.coverage;
        }
        self.hide_clock(&mut rows);
        let now = self.now();
        (Snapshot { at: oldest, rows, coverage, events: Arc::clone(&self.events) }, now.since(oldest))
    }

    /// The time on the clock of [`Snapshot::at`].
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.session.engine().host().now()
    }

    fn blank(&self) -> Vec<Reading> {
        let absent = |column: &Column| if column.refusal.is_some() { Reading::Refused } else { Reading::Elsewhere };
        self.columns.iter().map(absent).collect()
    }

    /// Reads the only event, where it is one of one task and nothing else has to be known: without a list of rows.
    pub(crate) fn read_sole(&self) -> Option<Result<Count, ReadError>> {
        let ([task], true, None) = (&self.tasks[..], self.sets.is_empty(), self.clock) else { return None };
        let [TaskGroup { own, columns }] = &task.groups[..] else { return None };
        (columns.len() == 1 && self.columns.len() == 1).then(|| own.read(0))
    }

    /// `counts` is room for the readings of a group.
    fn read_task(&self, task: &TaskRow, counts: &mut GroupReading) -> RowReading {
        let mut readings = self.blank();
        for group in &task.groups {
            counts.clear();
            match group.own.read_all(counts) {
                Ok(()) => {
                    for (count, &column) in counts.drain(..).zip(&group.columns) {
                        readings[column] = count.map_or_else(Reading::Failed, Reading::Counted);
                    }
                }
                Err(error) => group.columns.iter().for_each(|&column| readings[column] = Reading::Failed(error)),
            }
        }
        self.set_task_clock(task, &mut readings);
        RowReading { who: task.who, readings }
    }

    /// What was read of all sets last, or what a service has read of them since; with the age of the oldest count.
    fn recall_sets(&self, last: LastSets) -> LastSets {
        if self.session.engine().host().service().is_none() {
            return last;
        }
        let oldest = Cell::new(self.now());
        let look = |event| {
            let (count, at) = self.session.read_from_memory(event)?;
            oldest.set(oldest.get().min(at));
            Ok(count)
        };
        let (rows, coverage) = self.rows_of_sets(|set| self.session.engine().recall_set(set, look));
        LastSets { at: oldest.get(), rows, coverage }
    }

    /// What all sets say: their CPUs as rows of their own, or all of a set as one.
    fn rows_of_sets(&self, read: impl Fn(SetId) -> Result<SetReading, ReadError>) -> (Vec<RowReading>, SetCoverage) {
        let (mut out, mut places) = (Vec::<RowReading>::new(), HashMap::new());
        let mut coverage = SetCoverage::default();
        for rows in &self.sets {
            let Ok(set) = read(*rows.set) else { continue };
            for cpu in set.cpus {
                let who = Who { thread: None, cpu: rows.per_cpu.then_some(cpu.cpu.0), cgroup: rows.cgroup };
                let index = *places.entry(who).or_insert_with(|| {
                    out.push(RowReading { who, readings: self.blank() });
                    out.len() - 1
                });
                for (count, &column) in cpu.counts.into_iter().zip(&rows.columns) {
                    let reading = count.map_or_else(Reading::Failed, Reading::Counted);
                    out[index].readings[column] = out[index].readings[column].plus(reading);
                }
                if let Some(error) = cpu.refused {
                    coverage.refused.push((cpu.cpu.0, error.to_string()));
                }
            }
            if rows.per_cpu && coverage.cpus.is_empty() {
                coverage.span = set.span;
                coverage.cpus = set.coverage.into_iter().map(|cpu| measured(cpu, rows, &out)).collect();
            }
        }
        self.set_clock(&mut out);
        (out, coverage)
    }

    /// Brings the records of the rings into the process tree; see [`crate::Options::attribution`].
    ///
    /// The rings hold what some thousands of processes leave behind, less for users with a small
    /// `kernel.perf_event_mlock_kb`; what comes on top is lost, and counted as lost. So call it whenever one of
    /// [`Counters::tree_fds`] is readable.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn follow_tree(&mut self) -> Result<(), Error> {
        self.tree.as_mut().map_or(Ok(()), |tree| tree.follow(self.session.engine()))
    }

    /// The fds that become readable when [`Counters::follow_tree`] should be called.
    #[must_use]
    pub fn tree_fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.tree.as_ref().map(TreeFollower::fds).unwrap_or_default()
    }

    /// The process tree so far; `None` without [`crate::Attribution::EachProcess`].
    ///
    /// # Errors
    /// [`Error::Ring`], [`Error::Read`].
    pub fn tree(&mut self) -> Result<Option<ProcessTree>, Error> {
        let Some(tree) = &mut self.tree else { return Ok(None) };
        tree.finish(self.session.engine(), self.columns.len()).map(Some)
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Adds rows to others; those of the same [`Who`] become one.
fn merge(rows: &mut Vec<RowReading>, more: Vec<RowReading>) {
    if rows.is_empty() {
        // Most of the time; a machine with many CPUs and cgroups has thousands of rows.
        *rows = more;
        return;
    }
    for row in more {
        match rows.iter_mut().find(|known| known.who == row.who) {
            Some(known) => {
                for (reading, more) in known.readings.iter_mut().zip(row.readings) {
                    *reading = reading.plus(more);
                }
            }
            None => rows.push(row),
        }
    }
}

/// The news that a CPU went away come late, where no thread listens all the time. Its events know better for how long they
/// were enabled; but those of a cgroup are so only while it runs.
fn measured(mut cpu: CpuCoverage, rows: &CpuRows, read: &[RowReading]) -> CpuCoverage {
    if cpu.gaps == 0 || rows.cgroup.is_some() {
        return cpu;
    }
    let who = Who { cpu: Some(cpu.cpu.0), ..Who::default() };
    let row = read.iter().find(|row| row.who == who);
    let counts = row.into_iter().flat_map(|row| rows.columns.iter().filter_map(|&column| row.readings[column].count()));
    if let Some(enabled) = counts.map(|count| count.enabled).max() {
        let all = Nanos(cpu.covered.0 + cpu.missed.0);
        cpu.covered = cpu.covered.min(enabled);
        cpu.missed = all.since(cpu.covered);
    }
    cpu
}
