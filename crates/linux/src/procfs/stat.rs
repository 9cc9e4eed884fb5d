//! `/proc/PID/stat`: one line of numbers about a process or a thread.
//!
//! **Invariant:** pure parsing; the name in the middle may hold spaces, brackets and line ends.

use super::{Proc, ProcError};

/// The flag of a task that is on its way out (`PF_EXITING`).
const EXITING: u64 = 1 << 2;
/// `PF_KTHREAD` there.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// One reading of a `stat` file. Times are clock ticks ([`Proc::ticks_per_second`]), cut off, not rounded.
///
/// Source: `proc_pid_stat(5)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The process or thread.
    pub id: i32,
    /// Its name, at most 15 bytes for a user task.
    pub comm: String,
    /// Its state, one letter: `R` runs, `S` sleeps, `Z` waits to be reaped.
    pub state: char,
    /// Its parent, 0 for none that is visible here.
    pub parent: i32,
    /// The kernel's flags.
    flags: u64,
    /// Faults served without reading from a device.
    pub minor_faults: u64,
    /// The same, of children that were waited for, and of theirs.
    pub children_minor_faults: u64,
    /// Faults that had to read from a device.
    pub major_faults: u64,
    /// The same, of children that were waited for, and of theirs.
    pub children_major_faults: u64,
    /// Ticks in user mode.
    pub user_ticks: u64,
    /// Ticks in the kernel.
    pub system_ticks: u64,
    /// Ticks in user mode of children that were waited for, and of theirs.
    pub children_user_ticks: u64,
    /// Ticks in the kernel of children that were waited for, and of theirs.
    pub children_system_ticks: u64,
    /// How many threads it has.
    pub threads: u64,
    /// When it began: ticks since boot.
    pub start_ticks: u64,
}

impl Stat {
    /// Whether it has ended and only waits to be reaped.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it is one of the kernel's own.
    #[must_use]
    pub fn is_of_kernel(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether it has ended or is about to: its memory may be gone already.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_zombie() || self.flags & EXITING != 0
    }

    /// Parses the line; `None` where a field is missing or is no number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // The name is the only field that may hold a bracket, so the last closing one ends it.
        let open = text.find('(')?;
        let close = text.rfind(')').filter(|&close| close > open)?;
        let id = text.get(..open)?.trim().parse().ok()?;
        let comm = text.get(open + 1..close)?.to_owned();
        let fields: Vec<&str> = text.get(close + 1..)?.split_ascii_whitespace().collect();
        // The manual page numbers the fields from 1; the state is number 3 and comes first here.
        let field = |number: usize| fields.get(number - 3).copied();
        let count = |number: usize| field(number).and_then(|word| word.parse::<u64>().ok());
        // The waited-for ticks are printed as signed numbers; a negative one can only be a defect.
        let ticks = |number: usize| {
            field(number).and_then(|word| word.parse::<i64>().ok()).map(|ticks| u64::try_from(ticks).unwrap_or(0))
        };
        Some(Self {
            id,
            comm,
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            flags: count(9)?,
            minor_faults: count(10)?,
            children_minor_faults: count(11)?,
            major_faults: count(12)?,
            children_major_faults: count(13)?,
            user_ticks: count(14)?,
            system_ticks: count(15)?,
            children_user_ticks: ticks(16)?,
            children_system_ticks: ticks(17)?,
            threads: count(20)?,
            start_ticks: count(22)?,
        })
    }
}

impl Proc {
    /// Reads a process as a whole: the sums over all its threads, ended ones included.
    ///
    /// # Errors
    /// [`ProcError::Gone`], [`ProcError::Denied`], [`ProcError::Malformed`].
    pub fn stat(&self, pid: i32) -> Result<Stat, ProcError> {
        self.stat_file(pid, "stat")
    }

    /// Reads one thread alone. The fields about children are those of its whole process.
    ///
    /// # Errors
    /// As [`Proc::stat`].
    pub fn thread_stat(&self, tid: i32) -> Result<Stat, ProcError> {
        self.stat_file(tid, &format!("task/{tid}/stat"))
    }

    fn stat_file(&self, id: i32, name: &str) -> Result<Stat, ProcError> {
        let text = self.read_task(id, name)?;
        Stat::parse(&text)
            .ok_or_else(|| ProcError::Malformed { path: self.task_path(id, name), expected: "line of a task" })
    }
}
