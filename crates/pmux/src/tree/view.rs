//! The tree as people see it: processes, not tasks.
//!
//! What it is: threads are folded into their process, names are added, and the numbers of the engine's family are laid
//! out.
//!
//! **Invariant:** every task's numbers are in exactly one process.

use super::follow::LAG;
use pmux_engine::engine::FamilyTally;
use pmux_engine::inherit::{Family, FamilyTask, FamilyTaskId};
use pmux_engine::{Count, FamilyId, Nanos};
use pmux_linux::host::{LinuxEngine, LinuxHost};
use std::collections::{HashMap, HashSet};

/// One process of a tree.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its command name, as the kernel knew it last (at most 15 bytes).
    pub command: String,
    /// Its parent, an index into [`ProcessTree::processes`]; `None` for the root.
    pub parent: Option<usize>,
    /// Its children, in the order in which they were started.
    pub children: Vec<usize>,
    /// When it was started, on the monotonic clock (the root: when it executed its program).
    pub started: Nanos,
    /// When its last thread exited; `None` if it was still running.
    pub ended: Option<Nanos>,
    /// How many threads it has had, the first one included.
    pub threads: usize,
    /// Its own counts, without its children's, in the order of [`crate::Counters::events`]; `None` for events that
    /// are not counted.
    pub counts: Vec<Option<Count>>,
    /// Whether all of its tasks that have exited have reported all of their counts.
    pub complete: bool,
    /// Whether an exec has ended its events, as that of a set-user-id program does: what it did from then on was not counted. (One that was
    /// killed while its program was being loaded looks the same.) Never told where records were lost.
    pub ended_by_exec: bool,
}

/// A command with everything that it started.
#[derive(Clone, Debug)]
pub struct ProcessTree {
    /// The processes, the root first, parents before their children.
    pub processes: Vec<Process>,
    /// The sum over everything, as the counters themselves say.
    pub totals: Vec<Option<Count>>,
    /// What is in the totals but in no process: reports that were lost, and children whose forks were.
    pub unattributed: Vec<Option<Count>>,
    /// How many records the kernel had no room for, or wrote over one another.
    pub lost_records: u64,
    /// Whether this kernel tells what processes have counted when they exit.
    pub reporting: Reporting,
    /// When the tree was read.
    pub read_at: Nanos,
}

/// Whether a kernel tells what tasks have counted when they exit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Reporting {
    /// Tasks report, as far as is known: nothing speaks against it.
    #[default]
    Known,
    /// It doesn't: tasks have exited, nothing was lost, and no task has reported anything. Linux 5.13 to 6.17.11 and 6.18.0
    /// are so (since commit ef54c1a476ae, until c418d8b4d7a4). The counts of all processes are the first one's, and
    /// those that have exited have none.
    Never,
}

impl Process {
    /// For how long it ran, up to `now` if it still does.
    #[must_use]
    pub fn wall(&self, now: Nanos) -> Nanos {
        self.ended.unwrap_or(now).since(self.started)
    }
}

#[derive(Clone, Debug)]
struct TaskName {
    pid: i32,
    command: String,
    /// The first task of its process.
    process: FamilyTaskId,
}

/// What the engine doesn't know of its relatives.
#[derive(Default)]
pub(super) struct TaskNames {
    root_pid: i32,
    root_name: String,
    root_started: Option<Nanos>,
    by_task: HashMap<FamilyTaskId, TaskName>,
    /// The threads of a process beside its first, by that one.
    threads: HashMap<FamilyTaskId, Vec<FamilyTaskId>>,
    /// Threads that have become the first of their process by an exec, and when.
    merged: HashMap<FamilyTaskId, Nanos>,
    /// First threads that have exited and were replaced so.
    replaced: HashMap<FamilyTaskId, Replaced>,
    /// Tasks that have executed a program of which nothing is mapped yet.
    loading: HashSet<FamilyTaskId>,
    /// Tasks whose events ended while a program was executed. The kernel ends them before it maps anything of a program with other
    /// rights, and writes that they have exited (`perf_event_exit_task` in `begin_new_exec`, fs/exec.c).
    ended_by_exec: HashSet<FamilyTaskId>,
}

/// A first thread under whose number others have gone on.
#[derive(Clone, Copy, Debug, Default)]
struct Replaced {
    /// How many others.
    times: u32,
    /// When the last of them has exited, if it has.
    ended: Option<Nanos>,
}

impl TaskNames {
    pub(super) fn new(root_pid: i32) -> Self {
        Self { root_pid, ..Self::default() }
    }

    /// A fork was seen. A child has its parent's name until it gets another one.
    pub(super) fn born(&mut self, engine: &LinuxEngine, family: FamilyId, task_id: FamilyTaskId, pid: i32, tid: i32) {
        let parent = engine
            .with_family(family, |family| {
                let parent = family.task(task_id)?.parent?;
                Some((parent, parent == family.root()))
            })
            .flatten();
        let above = match parent {
            Some((parent, true)) => {
                Some(TaskName { pid: self.root_pid, command: self.root_name.clone(), process: parent })
            }
            Some((parent, false)) => self.by_task.get(&parent).cloned(),
            None => None,
        };
        let command = above.as_ref().map(|name| name.command.clone()).unwrap_or_default();
        let process = match above {
            Some(name) if name.pid == pid && pid != tid => name.process,
            _ => task_id,
        };
        self.by_task.insert(task_id, TaskName { pid, command, process });
        if process != task_id {
            self.threads.entry(process).or_default().push(task_id);
        }
    }

    pub(super) fn exiting(&mut self, family: &Family, tid: i32, at: Nanos) {
        let Some(task_id) = family.find(LinuxHost::task(tid)) else { return };
        if let Some(replaced) = self.replaced.get_mut(&task_id) {
            replaced.ended = Some(at);
        }
        if self.loading.remove(&task_id) {
            self.ended_by_exec.insert(task_id);
        }
    }

    /// A task has mapped something to be executed.
    pub(super) fn mapped(&mut self, family: &Family, tid: i32) {
        if let Some(task_id) = family.find(LinuxHost::task(tid)) {
            self.loading.remove(&task_id);
        }
    }

    /// A process has executed another program. All its threads but one have exited before; if the one is not the first,
    /// it goes on under the first one's number.
    fn unite(&mut self, family: &Family, first: FamilyTaskId, at: Nanos) {
        for thread in self.threads.remove(&first).unwrap_or_default() {
            if family.task(thread).is_some_and(|thread| thread.exited.is_none()) {
                self.merged.insert(thread, at);
                let replaced = self.replaced.entry(first).or_default();
                *replaced = Replaced { times: replaced.times + 1, ended: None };
            }
        }
    }

    /// When a task has exited, and how many times it makes its reports.
    fn end_of(&self, task_id: FamilyTaskId, relative: &FamilyTask) -> (Option<Nanos>, u32) {
        match (self.merged.get(&task_id), self.replaced.get(&task_id)) {
            (Some(&merged), _) => (Some(merged), 0),
            (None, Some(replaced)) => (replaced.ended, 1 + replaced.times),
            (None, None) => (relative.exited, 1),
        }
    }

    /// A task has got a name. A process is called what its first thread is called.
    pub(super) fn named(
        &mut self,
        engine: &LinuxEngine,
        family: FamilyId,
        tid: i32,
        name: String,
        exec: bool,
        at: Nanos,
    ) {
        if tid == self.root_pid {
            if exec {
                self.root_started.get_or_insert(at);
                engine.with_family(family, |family| {
                    self.unite(family, family.root(), at);
                    self.loading.insert(family.root());
                });
            }
            self.root_name = name;
            return;
        }
        engine.with_family(family, |family| {
            let Some(task_id) = family.find(LinuxHost::task(tid)) else { return };
            if let Some(known) = self.by_task.get_mut(&task_id) {
                known.command = name;
            }
            if exec {
                self.unite(family, task_id, at);
                self.loading.insert(task_id);
            }
        });
    }

    /// Lays the family out. `columns[i]` is where the family's i-th count goes in a row of `width`.
    pub(super) fn tree(
        &self,
        family: &Family,
        tallies: &[FamilyTally],
        layout: &Layout<'_>,
        now: Nanos,
    ) -> ProcessTree {
        let root = family.root();
        let mut relatives: Vec<(FamilyTaskId, &FamilyTask)> = family.tasks().collect();
        crate::order::sort_by_key(&mut relatives, |(task_id, relative)| (*task_id != root, relative.born));
        let process_of = |task_id: FamilyTaskId| self.by_task.get(&task_id).map_or(task_id, |name| name.process);
        let mut processes: Vec<Process> = Vec::new();
        let mut index_of: HashMap<FamilyTaskId, usize> = HashMap::new();
        let mut missing = 0;
        for &(task_id, relative) in &relatives {
            let first = process_of(task_id);
            let index = *index_of.entry(first).or_insert_with(|| {
                processes.push(self.process(first, relative.born, layout));
                processes.len() - 1
            });
            let process = &mut processes[index];
            process.threads += 1;
            let (exited, times) = self.end_of(task_id, relative);
            process.ended = match (process.ended, exited) {
                (Some(last), Some(exited)) => Some(last.max(exited)),
                _ => None,
            };
            if task_id != root && exited.is_some() {
                process.complete &= relative.reports == times * layout.reports;
                missing += u64::from((times * layout.reports).saturating_sub(relative.reports));
            }
            layout.add(&mut process.counts, relative.counts());
        }
        for &(task_id, relative) in &relatives {
            let (own, parent) =
                (index_of[&process_of(task_id)], relative.parent.map(|parent| index_of.get(&process_of(parent))));
            if let Some(Some(&parent)) = parent
                && parent != own
                && processes[own].parent.is_none()
            {
                processes[own].parent = Some(parent);
                processes[parent].children.push(own);
            }
        }
        let reporting = reporting(&relatives, root, layout, now);
        if reporting == Reporting::Never {
            // What was never said is no loss, and no count of 0 either.
            missing = 0;
            for process in processes.iter_mut().skip(1).filter(|process| !process.complete) {
                process.counts.fill(None);
            }
        }
        let (totals, unattributed) = complete(&mut processes, tallies, layout);
        ProcessTree { processes, totals, unattributed, lost_records: missing, reporting, read_at: now }
    }

    fn process(&self, first: FamilyTaskId, born: Nanos, layout: &Layout<'_>) -> Process {
        let (pid, command, started) = match self.by_task.get(&first) {
            Some(name) => (name.pid, name.command.clone(), born),
            None => (self.root_pid, self.root_name.clone(), self.root_started.unwrap_or(born)),
        };
        Process {
            pid,
            command,
            parent: None,
            children: Vec::new(),
            started,
            ended: Some(Nanos::ZERO),
            threads: 0,
            counts: layout.blank(),
            complete: true,
            ended_by_exec: layout.mappings == Loss::None && self.ended_by_exec.contains(&first),
        }
    }
}

/// Adds what no record says, the root's own part. Answers the totals, and what of them is in no process.
fn complete(
    processes: &mut [Process],
    tallies: &[FamilyTally],
    layout: &Layout<'_>,
) -> (Vec<Option<Count>>, Vec<Option<Count>>) {
    let mut known = layout.blank();
    for process in &*processes {
        for (sum, count) in known.iter_mut().zip(&process.counts) {
            if let (Some(sum), Some(count)) = (sum, count) {
                *sum += *count;
            }
        }
    }
    let mut totals = layout.blank();
    let mut unattributed = layout.blank();
    for (&column, tally) in layout.columns.iter().zip(tallies) {
        totals[column] = Some(tally.total);
        unattributed[column] = Some(tally.retired.less(&known[column].unwrap_or_default()));
        if let Some(own) = processes.first_mut().and_then(|root| root.counts[column].as_mut()) {
            *own += tally.own;
        }
    }
    let all_reported = processes.iter().all(|process| process.complete);
    if let Some(root) = processes.first_mut() {
        // What is missing elsewhere stands in the root's part.
        root.complete = all_reported;
    }
    (totals, unattributed)
}

/// Judges the kernel by what it did: its version alone does not tell what a distribution has mended.
fn reporting(
    relatives: &[(FamilyTaskId, &FamilyTask)],
    root: FamilyTaskId,
    layout: &Layout<'_>,
    now: Nanos,
) -> Reporting {
    let silent = relatives.iter().all(|(_, relative)| relative.reports == 0);
    let end = relatives.iter().find(|(task_id, _)| *task_id == root).and_then(|(_, root)| root.exited);
    // A task reports a little after the record of its exit. A process that waited for it has seen it do so.
    let exited_before = |(task_id, relative): &(FamilyTaskId, &FamilyTask)| {
        let exited = relative.exited.filter(|_| *task_id != root);
        exited.is_some_and(|exited| end.is_some_and(|end| exited < end) || now.since(exited) > LAG)
    };
    match layout.loss {
        Loss::None if layout.reports > 0 && silent && relatives.iter().any(exited_before) => Reporting::Never,
        _ => Reporting::Known,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// None was.
    None,
    /// Some were, so that a record is missing proves nothing.
    Some,
}

/// Where the family's counts go.
pub(super) struct Layout<'a> {
    pub(super) columns: &'a [usize],
    /// How many columns a row has.
    pub(super) width: usize,
    /// How many reports each exiting task makes.
    pub(super) reports: u32,
    pub(super) loss: Loss,
    /// Of records of mappings.
    pub(super) mappings: Loss,
}

impl Layout<'_> {
    fn blank(&self) -> Vec<Option<Count>> {
        let mut counts = vec![None; self.width];
        for &column in self.columns {
            counts[column] = Some(Count::default());
        }
        counts
    }

    fn add(&self, counts: &mut [Option<Count>], more: &[Count]) {
        for (&column, count) in self.columns.iter().zip(more) {
            if let Some(sum) = &mut counts[column] {
                *sum += *count;
            }
        }
    }
}
