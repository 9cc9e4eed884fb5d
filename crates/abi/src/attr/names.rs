//! The numbers of the generic events.
//!
//! **Invariant:** only numbers that every kernel shares; names of events are for the code that parses text.

/// `config` of [`super::EventType::HARDWARE`].
///
/// Source: `perf_event_open(2)`.
pub mod hw {
    /// CPU cycles, at the speed the CPU runs at.
    pub const CPU_CYCLES: u64 = 0;
    /// Retired instructions.
    pub const INSTRUCTIONS: u64 = 1;
    /// Cache accesses, usually of the last level.
    pub const CACHE_REFERENCES: u64 = 2;
    /// Cache misses, usually of the last level.
    pub const CACHE_MISSES: u64 = 3;
    /// Retired branches.
    pub const BRANCH_INSTRUCTIONS: u64 = 4;
    /// Mispredicted branches.
    pub const BRANCH_MISSES: u64 = 5;
    /// Bus cycles.
    pub const BUS_CYCLES: u64 = 6;
    /// Cycles stalled in issue.
    pub const STALLED_CYCLES_FRONTEND: u64 = 7;
    /// Cycles stalled in retirement.
    pub const STALLED_CYCLES_BACKEND: u64 = 8;
    /// CPU cycles at a constant speed.
    pub const REF_CPU_CYCLES: u64 = 9;
    /// How many there are.
    pub const COUNT: u64 = 10;
}

/// `config` of [`super::EventType::TRACEPOINT`], where that is the same on every machine.
///
/// Source: Linux 6.18, `kernel/trace/trace.h` (`TRACE_FN`).
pub mod tracepoint {
    /// All functions of the kernel: `ftrace:function`.
    pub const FUNCTIONS: u64 = 1;
}

/// `config` of [`super::EventType::SOFTWARE`].
///
/// Source: `perf_event_open(2)`.
pub mod sw {
    /// Time of the CPU's clock, ns.
    pub const CPU_CLOCK: u64 = 0;
    /// Time that the task ran, ns.
    pub const TASK_CLOCK: u64 = 1;
    /// Page faults.
    pub const PAGE_FAULTS: u64 = 2;
    /// Context switches.
    pub const CONTEXT_SWITCHES: u64 = 3;
    /// Moves to another CPU.
    pub const CPU_MIGRATIONS: u64 = 4;
    /// Page faults without disk access.
    pub const PAGE_FAULTS_MIN: u64 = 5;
    /// Page faults with disk access.
    pub const PAGE_FAULTS_MAJ: u64 = 6;
    /// Accesses whose alignment the kernel had to mend.
    pub const ALIGNMENT_FAULTS: u64 = 7;
    /// Instructions that the kernel emulated.
    pub const EMULATION_FAULTS: u64 = 8;
    /// Counts nothing: a carrier of side records.
    pub const DUMMY: u64 = 9;
    /// What a BPF program writes.
    pub const BPF_OUTPUT: u64 = 10;
    /// Context switches to a task of another cgroup (5.13).
    pub const CGROUP_SWITCHES: u64 = 11;
    /// How many there are.
    pub const COUNT: u64 = 12;
}

/// `bp_type` and `bp_len` of [`super::EventType::BREAKPOINT`].
///
/// Source: `perf_event_open(2)`.
pub mod breakpoint {
    /// No access: reserves nothing.
    pub const EMPTY: u32 = 0;
    /// Reads of the address.
    pub const R: u32 = 1;
    /// Writes to the address.
    pub const W: u32 = 2;
    /// Reads and writes.
    pub const RW: u32 = R | W;
    /// Execution of the address.
    pub const X: u32 = 4;
    /// The longest length that any machine takes, in bytes.
    pub const MAX_LEN: u64 = 8;
}
