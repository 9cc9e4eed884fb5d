//! The tasks that are followed, and how each of them stands.
//!
//! **Invariant:** no call to the kernel: what it said is put in, what has to be asked of it is read off.

use std::collections::{BTreeMap, BTreeSet};

use crate::procfs::MappedFile;
use crate::sys::ptrace::Resume;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TaskState {
    /// It runs, as far as is known.
    Running,
    /// It was made by a followed task and has not been heard of yet: it stops before its first instruction.
    Expected,
    /// It stands, and would go on like this.
    Stopped(Resume),
    /// Its process is stopped, and it waits for that to end.
    Listening,
    /// It waits inside the kernel for a child that borrowed its memory.
    Vforking,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) process: i32,
    pub(super) state: TaskState,
    /// Whether the system call that it is in may map code.
    pub(super) mapping: bool,
}

/// Files with code that are mapped into a process.
pub(super) type CodeFiles = BTreeSet<MappedFile>;

#[derive(Debug, Default)]
pub(super) struct Tracees {
    pub(super) tasks: BTreeMap<i32, Task>,
    /// For each process, what was mapped when it was last looked at.
    pub(super) files: BTreeMap<i32, CodeFiles>,
    /// For each process that was forked and has executed nothing since, whose copy it is.
    pub(super) parents: BTreeMap<i32, i32>,
    /// Processes in which nothing more is looked for.
    pub(super) fast: BTreeSet<i32>,
}

impl Tracees {
    /// Enters a task, or says to which process a task belongs that was heard of before.
    pub(super) fn enter(&mut self, tid: i32, process: i32, state: TaskState) -> &mut Task {
        self.tasks.entry(tid).or_insert(Task { process, state, mapping: false })
    }

    pub(super) fn remove(&mut self, tid: i32) {
        if let Some(task) = self.tasks.remove(&tid)
            && !self.tasks.values().any(|other| other.process == task.process)
        {
            self.forget(task.process);
        }
    }

    /// What is known of a process's memory is over.
    fn forget(&mut self, process: i32) {
        self.files.remove(&process);
        self.parents.remove(&process);
        self.fast.remove(&process);
    }

    /// A process has been forked: its memory is a copy, or the same.
    pub(super) fn forked(&mut self, parent: i32, process: i32) {
        if let Some(files) = self.files.get(&parent).cloned() {
            self.files.entry(process).or_insert(files);
        }
        self.parents.insert(process, parent);
        if self.fast.contains(&parent) {
            self.speed_up(process);
        }
    }

    /// Nothing more is looked for in a process: its tasks don't stop at system calls.
    pub(super) fn speed_up(&mut self, process: i32) {
        self.fast.insert(process);
        for task in self.tasks.values_mut().filter(|task| task.process == process) {
            task.mapping = false;
            if let TaskState::Stopped(Resume::ToSyscall(signal)) = task.state {
                task.state = TaskState::Stopped(Resume::Run(signal));
            }
        }
    }

    /// Whether a task is of such a process.
    pub(super) fn is_fast(&self, tid: i32) -> bool {
        self.tasks.get(&tid).is_some_and(|task| self.fast.contains(&task.process))
    }

    /// A process has executed a program: of its threads only the first is left.
    pub(super) fn executed(&mut self, process: i32) {
        self.tasks.retain(|&tid, task| task.process != process || tid == process);
        self.forget(process);
    }

    /// The threads of a process, sorted.
    pub(super) fn threads(&self, process: i32) -> Vec<i32> {
        self.tasks.iter().filter(|(_, task)| task.process == process).map(|(&tid, _)| tid).collect()
    }

    /// Tasks in a state, sorted.
    pub(super) fn in_state(&self, wanted: impl Fn(TaskState) -> bool) -> Vec<i32> {
        self.tasks.iter().filter(|(_, task)| wanted(task.state)).map(|(&tid, _)| tid).collect()
    }

    /// Processes, sorted.
    pub(super) fn processes(&self) -> BTreeSet<i32> {
        self.tasks.values().map(|task| task.process).collect()
    }
}
