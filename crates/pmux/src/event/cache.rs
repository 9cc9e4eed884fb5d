//! Generalised cache events: a cache, an operation and a result, as in `L1-dcache-load-misses`.
//!
//! **Invariant:** pure.
//!
//! Source: `perf_event_open(2)`, `PERF_TYPE_HW_CACHE`; `perf-list(1)` for the names.

use std::fmt;

/// A cache, or a unit that behaves like one. This and the next two, and their tables, are in the order of the kernel's numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cache {
    /// Level-1 data cache.
    L1d,
    /// Level-1 instruction cache.
    L1i,
    /// Last-level cache.
    Ll,
    /// Translations of data addresses.
    Dtlb,
    /// Translations of instruction addresses.
    Itlb,
    /// Branch prediction.
    Branch,
    /// Memory of another node.
    Node,
}

/// What is done with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CacheOp {
    /// A load; for instructions, a fetch.
    Load,
    /// A store.
    Store,
    /// A prefetch.
    Prefetch,
}

/// Which of these operations count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CacheResult {
    /// Each.
    Access,
    /// Those that missed.
    Miss,
}

const CACHES: [(Cache, &[&str], &str); 7] = [
    (Cache::L1d, &["L1-dcache", "L1-data", "L1-d", "L1d"], "the level-1 data cache"),
    (Cache::L1i, &["L1-icache", "L1-instruction", "L1-i", "L1i"], "the level-1 instruction cache"),
    (Cache::Ll, &["LLC", "LL", "L2"], "the last-level cache"),
    (Cache::Dtlb, &["dTLB", "d-tlb", "Data-TLB"], "the data TLB"),
    (Cache::Itlb, &["iTLB", "i-tlb", "Instruction-TLB"], "the instruction TLB"),
    (Cache::Branch, &["branch", "branches", "bpu", "btb", "bpc"], "the branch predictor"),
    (Cache::Node, &["node"], "the memory of other nodes"),
];

const OPS: [(CacheOp, &[&str]); 3] = [
    (CacheOp::Load, &["load", "loads", "read"]),
    (CacheOp::Store, &["store", "stores", "write"]),
    (CacheOp::Prefetch, &["prefetch", "prefetches", "speculative-read", "speculative-load"]),
];

const RESULTS: [(CacheResult, &[&str]); 2] =
    [(CacheResult::Access, &["refs", "Reference", "ops", "access"]), (CacheResult::Miss, &["misses", "miss"])];

impl Cache {
    /// Whether the kernel has such operations for this cache at all.
    #[must_use]
    pub fn can(self, op: CacheOp) -> bool {
        match self {
            Self::L1d | Self::Ll | Self::Dtlb | Self::Node => true,
            Self::L1i => op != CacheOp::Store,
            Self::Itlb | Self::Branch => op == CacheOp::Load,
        }
    }

    fn entry(self) -> (&'static str, &'static str) {
        let (_, names, about) = CACHES[self as usize];
        (names[0], about)
    }

    /// Its main name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().0
    }
}

impl CacheOp {
    /// Its main name: `load`, `store`, `prefetch`.
    #[must_use]
    pub fn name(self) -> &'static str {
        OPS[self as usize].1[0]
    }
}

/// A generalised cache event. It may be one that the kernel doesn't have: see [`Cache::can`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CacheEvent {
    /// The cache.
    pub cache: Cache,
    /// The operation.
    pub op: CacheOp,
    /// Its result.
    pub result: CacheResult,
}

impl CacheEvent {
    /// Reads a name: a cache, then at most one operation and one result, in any order. Without an operation it counts
    /// loads, without a result accesses. Upper and lower case are the same. `None` if it isn't such a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        // The longest name first: `L1-d` is also the beginning of `L1-dcache`.
        let mut found: Option<(Cache, &str, usize)> = None;
        for (cache, names, _) in CACHES {
            for known in names {
                if let Some(rest) = strip_word(name, known)
                    && found.is_none_or(|(.., longest)| known.len() > longest)
                {
                    found = Some((cache, rest, known.len()));
                }
            }
        }
        let (cache, mut rest, _) = found?;
        let (mut op, mut result) = (None, None);
        while !rest.is_empty() {
            rest = rest.strip_prefix('-')?;
            if op.is_none()
                && let Some((found, after)) = take(rest, &OPS)
            {
                (op, rest) = (Some(found), after);
            } else if result.is_none()
                && let Some((found, after)) = take(rest, &RESULTS)
            {
                (result, rest) = (Some(found), after);
            } else {
                return None;
            }
        }
        Some(Self { cache, op: op.unwrap_or(CacheOp::Load), result: result.unwrap_or(CacheResult::Access) })
    }

    /// Every event that the kernel has.
    pub fn all() -> impl Iterator<Item = Self> {
        CACHES.iter().flat_map(|(cache, ..)| {
            OPS.iter().filter(|(op, _)| cache.can(*op)).flat_map(move |(op, _)| {
                RESULTS.iter().map(move |(result, _)| Self { cache: *cache, op: *op, result: *result })
            })
        })
    }

    /// The number for the `config` of an attribute.
    #[must_use]
    pub fn config(self) -> u64 {
        let (cache, op, result) = (self.cache as u64, self.op as u64, self.result as u64);
        cache | op << 8 | result << 16
    }

    /// Its main name: `L1-dcache-loads`, `L1-dcache-load-misses`.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }

    /// What it counts, in one line.
    #[must_use]
    pub fn description(self) -> String {
        let what = match self.op {
            CacheOp::Load => "Loads",
            CacheOp::Store => "Stores",
            CacheOp::Prefetch => "Prefetches",
        };
        let about = self.cache.entry().1;
        match self.result {
            CacheResult::Access => format!("{what} that went to {about}"),
            CacheResult::Miss => format!("{what} that missed {about}"),
        }
    }
}

impl fmt::Display for CacheEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cache, op) = (self.cache.name(), self.op.name());
        let plural = if self.op == CacheOp::Prefetch { "es" } else { "s" };
        match self.result {
            CacheResult::Access => write!(f, "{cache}-{op}{plural}"),
            CacheResult::Miss => write!(f, "{cache}-{op}-misses"),
        }
    }
}

/// Takes a whole word off the front: what follows is nothing, or begins with `-`.
fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    (head.eq_ignore_ascii_case(word) && (rest.is_empty() || rest.starts_with('-'))).then_some(rest)
}

fn take<'a, T: Copy>(text: &'a str, table: &[(T, &[&str])]) -> Option<(T, &'a str)> {
    table
        .iter()
        .find_map(|(value, names)| names.iter().find_map(|name| strip_word(text, name)).map(|rest| (*value, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (name, config) in [
            ("L1-dcache-loads", 0),
            ("L1-dcache-load-misses", 0x1_0000),
            ("L1-dcache-loads-misses", 0x1_0000),
            ("l1d", 0),
            ("L1-d-stores", 0x100),
            ("L1-icache-prefetch-misses", 0x1_0201),
            ("LLC-misses", 0x1_0002),
            ("LL-loads", 2),
            ("dTLB-store-misses", 0x1_0103),
            ("d-tlb-speculative-read-miss", 0x1_0203),
            ("iTLB-misses-load", 0x1_0004),
            ("branch-loads", 5),
            ("bpu-load-miss", 0x1_0005),
            ("node-prefetches", 0x206),
        ] {
            assert_eq!(CacheEvent::from_name(name).map(CacheEvent::config), Some(config), "{name}");
        }
    }

    #[test]
    fn what_is_no_cache_event() {
        let names = "L1 L1-dcache- L1-dcache-foo L1-dcache-loads-stores LLC-misses-misses nodes branch-misse é LLé";
        for name in names.split(' ').chain([""]) {
            assert_eq!(CacheEvent::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_event_reads_its_own_name() {
        let all: Vec<_> = CacheEvent::all().collect();
        assert_eq!(all.len(), 32);
        for event in all {
            assert_eq!(CacheEvent::from_name(&event.name()), Some(event));
        }
    }
}
