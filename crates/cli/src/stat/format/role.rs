//! What an event is to the metrics, and in which contexts it counts.
//!
//! **Invariant:** decided by the event's name alone; no count is looked at here.

use crate::stat::report::EventColumn;

/// What an event is to the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Clock,
    Cycles,
    Instructions,
    Branches,
    BranchMisses,
    CacheRefs,
    CacheMisses,
    FrontStalls,
    BackStalls,
    Loads(Cache),
    LoadMisses(Cache),
    Other,
}

/// A cache whose loads and load misses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cache {
    L1d,
    L1i,
    Dtlb,
    Itlb,
    Last,
}

impl Role {
    pub(super) fn of(canonical: &str) -> Self {
        match canonical {
            "task-clock" | "cpu-clock" => Self::Clock,
            "cycles" | "cpu-cycles" => Self::Cycles,
            "instructions" => Self::Instructions,
            "branches" | "branch-instructions" => Self::Branches,
            "branch-misses" => Self::BranchMisses,
            "cache-references" => Self::CacheRefs,
            "cache-misses" => Self::CacheMisses,
            "stalled-cycles-frontend" | "idle-cycles-frontend" => Self::FrontStalls,
            "stalled-cycles-backend" | "idle-cycles-backend" => Self::BackStalls,
            "L1-dcache-loads" => Self::Loads(Cache::L1d),
            "L1-dcache-load-misses" => Self::LoadMisses(Cache::L1d),
            "L1-icache-loads" => Self::Loads(Cache::L1i),
            "L1-icache-load-misses" => Self::LoadMisses(Cache::L1i),
            "dTLB-loads" => Self::Loads(Cache::Dtlb),
            "dTLB-load-misses" => Self::LoadMisses(Cache::Dtlb),
            "iTLB-loads" => Self::Loads(Cache::Itlb),
            "iTLB-load-misses" => Self::LoadMisses(Cache::Itlb),
            "LLC-loads" => Self::Loads(Cache::Last),
            "LLC-load-misses" => Self::LoadMisses(Cache::Last),
            _ => Self::Other,
        }
    }

    /// Returns whether this event's count is kept as a divisor for others.
    pub(super) const fn is_basis(self) -> bool {
        let is_stall = matches!(self, Self::FrontStalls | Self::BackStalls);
        is_stall || matches!(self, Self::Clock | Self::Cycles | Self::Branches | Self::CacheRefs | Self::Loads(_))
    }
}

impl Cache {
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::L1d => "of all L1-dcache accesses",
            Self::L1i => "of all L1-icache accesses",
            Self::Dtlb => "of all dTLB cache accesses",
            Self::Itlb => "of all iTLB cache accesses",
            Self::Last => "of all LL-cache accesses",
        }
    }
}

/// Execution contexts that an event counts, one bit for each modifier letter.
pub(super) type Contexts = u8;

/// Clocks are kept under this mark: they match every context.
pub(super) const ANY_CONTEXT: Contexts = u8::MAX;

/// Returns the contexts that an event counts, read from the modifiers of its name.
pub(super) fn contexts(name: &str) -> Contexts {
    let Some((_, letters)) = name.rsplit_once([':', '/']) else { return 0 };
    const COUNTED: &str = "ukhGHI";
    // Other letters (`p`, `D`, `S`, …) do not change what is counted.
    const SILENT: &str = "pPDeSW";
    let mut bits = 0;
    for letter in letters.chars() {
        match COUNTED.find(letter) {
            Some(bit) => bits |= 1 << bit,
            None if SILENT.contains(letter) => {}
            // Not modifiers at all: the second half of `sched:sched_switch`.
            None => return 0,
        }
    }
    bits
}

/// Returns the name of the metric that stands in a column of its own with
/// `--metric-only`, or `None` for events whose metric does not fit there (rates, CPUs
/// utilized).
pub(super) fn column_name(event: &EventColumn) -> Option<String> {
    let of_all = |unit: &str| Some(format!("{} {unit}", event.name));
    match Role::of(&event.canonical) {
        Role::Cycles => Some("GHz".to_owned()),
        Role::Instructions => Some("insn per cycle".to_owned()),
        Role::BranchMisses => of_all("of all branches"),
        Role::LoadMisses(cache) => of_all(cache.unit()),
        Role::CacheMisses => of_all("of all cache refs"),
        Role::FrontStalls => Some("frontend cycles idle".to_owned()),
        Role::BackStalls => Some("backend cycles idle".to_owned()),
        Role::Clock | Role::Branches | Role::CacheRefs | Role::Loads(_) | Role::Other => None,
    }
}
