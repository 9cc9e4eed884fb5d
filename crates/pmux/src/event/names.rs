//! The events that every Linux knows by name: hardware, software, and what pmux measures itself.
//!
//! What it is: small tables of names, numbers and descriptions. The cache events, which are built from parts, are in
//! [`super::cache`].
//!
//! **Invariant:** pure; a name here never needs a look at the machine.
//!
//! Source: `include/uapi/linux/perf_event.h` for the numbers, `perf-list(1)` for the names.

use pmux_abi::attr::EventType;

use super::cache::CacheEvent;

/// Makes an enum of events out of a table: number, names (the first is the main one), kernel constant, description.
macro_rules! events {
    ($(#[$doc:meta])* $kind:ident { $($variant:ident = $config:literal, $canonical:literal, [$($name:literal),+], $constant:literal, $about:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $kind {
            $(#[doc = $about] $variant,)+
        }

        impl $kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The number for the `config` of an attribute.
            #[must_use]
            pub fn config(self) -> u64 {
                match self { $(Self::$variant => $config,)+ }
            }

            /// The one name by which programs know it, whatever alias was typed.
            #[must_use]
            pub fn canonical(self) -> &'static str {
                match self { $(Self::$variant => $canonical,)+ }
            }

            /// Every name that it has; the first is the main one.
            #[must_use]
            pub fn names(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($name),+],)+ }
            }

            /// The kernel's constant for it.
            #[must_use]
            pub fn constant(self) -> &'static str {
                match self { $(Self::$variant => $constant,)+ }
            }

            /// What it counts, in one line.
            #[must_use]
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }

            /// The event of that name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|event| event.names().contains(&name))
            }
        }
    };
}

events! {
    /// The generalised hardware events.
    Hardware {
        Cycles = 0, "cycles", ["cpu-cycles", "cycles"], "PERF_COUNT_HW_CPU_CYCLES",
            "Cycles that the core was not halted; changes with its frequency";
        Instructions = 1, "instructions", ["instructions"], "PERF_COUNT_HW_INSTRUCTIONS",
            "Instructions retired";
        CacheReferences = 2, "cache-references", ["cache-references"], "PERF_COUNT_HW_CACHE_REFERENCES",
            "Accesses to the last-level cache (on most CPUs)";
        CacheMisses = 3, "cache-misses", ["cache-misses"], "PERF_COUNT_HW_CACHE_MISSES",
            "Accesses that the last-level cache could not serve (on most CPUs)";
        Branches = 4, "branches", ["branch-instructions", "branches"], "PERF_COUNT_HW_BRANCH_INSTRUCTIONS",
            "Branch instructions retired";
        BranchMisses = 5, "branch-misses", ["branch-misses"], "PERF_COUNT_HW_BRANCH_MISSES",
            "Branches that were predicted wrongly";
        BusCycles = 6, "bus-cycles", ["bus-cycles"], "PERF_COUNT_HW_BUS_CYCLES",
            "Cycles of the bus clock, which does not follow the core's frequency";
        StalledFrontend = 7, "stalled-cycles-frontend", ["stalled-cycles-frontend", "idle-cycles-frontend"],
            "PERF_COUNT_HW_STALLED_CYCLES_FRONTEND",
            "Cycles in which no instruction could be fetched or decoded";
        StalledBackend = 8, "stalled-cycles-backend", ["stalled-cycles-backend", "idle-cycles-backend"],
            "PERF_COUNT_HW_STALLED_CYCLES_BACKEND",
            "Cycles in which no instruction could be executed or retired";
        RefCycles = 9, "ref-cycles", ["ref-cycles"], "PERF_COUNT_HW_REF_CPU_CYCLES",
            "Cycles not halted, at a fixed reference frequency";
    }
}

events! {
    /// The events that the kernel counts without hardware.
    Software {
        CpuClock = 0, "cpu-clock", ["cpu-clock"], "PERF_COUNT_SW_CPU_CLOCK",
            "Time that the event was on a CPU, by the CPU's high-resolution clock";
        TaskClock = 1, "task-clock", ["task-clock"], "PERF_COUNT_SW_TASK_CLOCK",
            "Time that the task ran on a CPU";
        PageFaults = 2, "page-faults", ["page-faults", "faults"], "PERF_COUNT_SW_PAGE_FAULTS",
            "Page faults, minor and major";
        ContextSwitches = 3, "context-switches", ["context-switches", "cs"], "PERF_COUNT_SW_CONTEXT_SWITCHES",
            "Switches from one task to another";
        CpuMigrations = 4, "cpu-migrations", ["cpu-migrations", "migrations"], "PERF_COUNT_SW_CPU_MIGRATIONS",
            "Moves of a task to another CPU";
        MinorFaults = 5, "minor-faults", ["minor-faults"], "PERF_COUNT_SW_PAGE_FAULTS_MIN",
            "Page faults served without reading from a disk";
        MajorFaults = 6, "major-faults", ["major-faults"], "PERF_COUNT_SW_PAGE_FAULTS_MAJ",
            "Page faults that had to read from a disk";
        AlignmentFaults = 7, "alignment-faults", ["alignment-faults"], "PERF_COUNT_SW_ALIGNMENT_FAULTS",
            "Unaligned accesses that the kernel had to mend; never on x86";
        EmulationFaults = 8, "emulation-faults", ["emulation-faults"], "PERF_COUNT_SW_EMULATION_FAULTS",
            "Instructions that the kernel had to emulate";
        Dummy = 9, "dummy", ["dummy"], "PERF_COUNT_SW_DUMMY",
            "Counts nothing; carries records about mappings, names and forks";
        BpfOutput = 10, "bpf-output", ["bpf-output"], "PERF_COUNT_SW_BPF_OUTPUT",
            "Samples that BPF programs write";
        CgroupSwitches = 11, "cgroup-switches", ["cgroup-switches"], "PERF_COUNT_SW_CGROUP_SWITCHES",
            "Switches to a task of another cgroup";
    }
}

events! {
    /// What pmux measures itself, without an event of the kernel. Their numbers mean nothing to the kernel.
    ToolEvent {
        DurationTime = 0, "duration_time", ["duration_time"], "",
            "Wall-clock time of the measurement, in nanoseconds";
        UserTime = 1, "user_time", ["user_time"], "",
            "Time in user mode, in nanoseconds";
        SystemTime = 2, "system_time", ["system_time"], "",
            "Time in kernel mode, in nanoseconds";
        MaxRss = 3, "max_rss", ["max_rss", "memory_peak"], "",
            "The most memory that one process held at a time, in bytes (of commands, without performance events too)";
    }
}

/// An event that has the same name on every machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Generic {
    /// A generalised hardware event.
    Hardware(Hardware),
    /// A software event.
    Software(Software),
    /// A generalised cache event.
    Cache(CacheEvent),
    /// A raw hardware event: `rNNN` with a hexadecimal number.
    Raw(u64),
    /// What pmux measures itself.
    Tool(ToolEvent),
}

impl Generic {
    /// The event of that name, if the name is one that every machine knows.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Hardware::from_name(name)
            .map(Self::Hardware)
            .or_else(|| Software::from_name(name).map(Self::Software))
            .or_else(|| ToolEvent::from_name(name).map(Self::Tool))
            .or_else(|| CacheEvent::from_name(name).map(Self::Cache))
            .or_else(|| raw(name).map(Self::Raw))
    }

    /// The hardware, software or cache event with that type and number.
    #[must_use]
    pub fn from_config(kind: EventType, config: u64) -> Option<Self> {
        match kind {
            EventType::HARDWARE => {
                Hardware::ALL.iter().copied().find(|event| event.config() == config).map(Self::Hardware)
            }
            EventType::SOFTWARE => {
                Software::ALL.iter().copied().find(|event| event.config() == config).map(Self::Software)
            }
            EventType::HW_CACHE => CacheEvent::all().find(|event| event.config() == config).map(Self::Cache),
            _ => None,
        }
    }
}

/// Reads `r1a8` or `r0x1a8`. `None` if it is something else or has more than 64 bits.
pub(super) fn raw(name: &str) -> Option<u64> {
    u64::from_str_radix(raw_digits(name)?, 16).ok()
}

/// The digits of what is written like a raw event, whether or not the number fits.
pub(super) fn raw_digits(name: &str) -> Option<&str> {
    let digits = name.strip_prefix('r')?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(digits)
}

/// The event behind one of the plain numbers that the first `timec` took: 0 to 5 and -1 to -5,
/// which count the first events of the kernel's own numbers.
pub(super) fn from_plain_number(number: i64) -> Option<Generic> {
    match number {
        0..=5 => Generic::from_config(EventType::HARDWARE, number.unsigned_abs()),
        -5..=-1 => Generic::from_config(EventType::SOFTWARE, number.unsigned_abs() - 1),
        _ => None,
    }
}

/// Every generic name that can be suggested, aliases too. Raw events have no end and are left out.
pub(super) fn all() -> impl Iterator<Item = String> {
    let hardware = Hardware::ALL.iter().flat_map(|event| event.names());
    let software = Software::ALL.iter().flat_map(|event| event.names());
    let tools = ToolEvent::ALL.iter().flat_map(|event| event.names());
    hardware
        .chain(software)
        .chain(tools)
        .map(|name| (*name).to_owned())
        .chain(CacheEvent::all().map(|event| event.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_mean_the_same_event() {
        for (alias, main) in [
            ("cycles", "cpu-cycles"),
            ("branches", "branch-instructions"),
            ("cs", "context-switches"),
            ("faults", "page-faults"),
            ("idle-cycles-backend", "stalled-cycles-backend"),
        ] {
            assert_eq!(Generic::from_name(alias), Generic::from_name(main), "{alias}");
            assert!(Generic::from_name(alias).is_some());
        }
        assert_eq!(Generic::from_name("CS"), None);
    }

    #[test]
    fn numbers_count_up_from_zero() {
        assert!(Hardware::ALL.iter().map(|event| event.config()).eq(0..10_u64));
        assert!(Software::ALL.iter().map(|event| event.config()).eq(0..12_u64));
    }

    #[test]
    fn raw_events() {
        assert_eq!(raw("r1a8"), Some(0x1a8));
        assert_eq!(raw("r0x1A8"), Some(0x1a8));
        assert_eq!(raw("rffffffffffffffff"), Some(u64::MAX));
        for name in ["r", "r0x", "rzz", "R12", "r10000000000000000", "r+1"] {
            assert_eq!(raw(name), None, "{name}");
        }
    }

    #[test]
    fn no_name_means_two_events() {
        let mut names: Vec<String> = all().collect();
        let before = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), before);
        for name in names {
            assert!(Generic::from_name(&name).is_some(), "{name}");
        }
    }
}
