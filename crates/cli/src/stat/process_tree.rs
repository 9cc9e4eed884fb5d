//! The processes of a command with their own counts (`--tree`), as plain data.
//!
//! Read first: [`ProcessTreeReport`]. The drawing is in `format::tree`.
//!
//! **Invariant:** a parent has a smaller index than its children. So the tree has no
//! cycle, and no walk over it needs recursion.

use super::report::Value;

/// All processes that were seen, in order of their start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProcessTreeReport {
    /// The processes; a parent comes before its children.
    pub(crate) processes: Vec<Process>,
    /// What all of them counted together, one value per event of the report; empty: the sum over all processes. It is
    /// more than that where some processes were not seen, and all there is for what is known of the command only.
    pub(crate) totals: Vec<Value>,
    /// What belongs to no process that was seen, one value per event of the report; empty where all is known.
    pub(crate) unattributed: Vec<Value>,
}

/// One process with what it counted itself, its children not included.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    /// Index of the parent in [`ProcessTreeReport::processes`]. An index that is not smaller than the
    /// process's own is taken as "no parent".
    pub(crate) parent: Option<usize>,
    /// The command with its arguments, or the command name alone where that is all there is.
    pub(crate) command: String,
    pub(crate) pid: i32,
    /// Number of threads it had in all, at least 1. Their counts are in `values`.
    pub(crate) threads: u32,
    /// Start, in nanoseconds since the start of the measurement.
    pub(crate) start_ns: u64,
    /// Time from start to exit, or to the end of the measurement.
    pub(crate) wall_ns: u64,
    pub(crate) exit: Exit,
    /// One value per event of the report.
    pub(crate) values: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It exited, but only its parent was told how.
    Unknown,
    /// It was still running when the measurement ended.
    Running,
    Code(i32),
    Signal(i32),
}

impl ProcessTreeReport {
    /// Returns the children of every process and the roots, each in order of start.
    pub(crate) fn children(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut children = vec![Vec::new(); self.processes.len()];
        let mut roots = Vec::new();
        for (at, process) in self.processes.iter().enumerate() {
            match process.parent.filter(|&parent| parent < at) {
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }
        for siblings in &mut children {
            pmux::order::sort_by_key(siblings, |&process| self.processes[process].start_ns);
        }
        (children, roots)
    }

    pub(crate) fn total(&self, event: usize) -> Option<Value> {
        self.totals.get(event).copied().or_else(|| self.sum(event, 0..self.processes.len()))
    }

    /// Whether there is a total of an event, and nothing of any process.
    pub(crate) fn is_of_the_whole_only(&self, event: usize) -> bool {
        let has_none = |process: &Process| process.values.get(event).is_none_or(|&one| one == Value::NotSupported);
        self.total(event).is_some_and(|total| total != Value::NotSupported) && self.processes.iter().all(has_none)
    }

    /// Returns the sum of one event over the given processes, `None` for no process.
    pub(crate) fn sum(&self, event: usize, members: impl IntoIterator<Item = usize>) -> Option<Value> {
        members
            .into_iter()
            .filter_map(|process| self.processes.get(process)?.values.get(event).copied())
            .reduce(Value::plus)
    }
}
