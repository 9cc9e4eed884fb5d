//! What was found, as plain data.
//!
//! **Invariant:** a count comes from the kernel, rows from the hits that were seen; where the two differ, the difference is a
//! number here.

use pmux::symbol::ResolvedAddress;
use pmux::{Count, Nanos};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(super) struct WatchReport {
    pub(super) targets: Vec<TargetReport>,
    /// For how long.
    pub(super) span: Nanos,
    pub(super) notes: Vec<String>,
    /// Whether rows are there at all: not with `--count-only`.
    pub(super) detailed: bool,
    /// How many rows are shown of each target.
    pub(super) most_rows: usize,
    /// Whether only some hits are told: a condition, callers.
    pub(super) filtered: bool,
}

/// One target: one line of the command line, in one process or in several.
#[derive(Clone, Debug, Default)]
pub(super) struct TargetReport {
    pub(super) name: String,
    /// Where it is and what is waited for: `0x4040a0, 8 bytes, writes`. Empty where it was never found.
    pub(super) about: String,
    /// Hits, counted by the kernel.
    pub(super) count: Count,
    /// Hits that were told: seen, and meant by the condition.
    pub(super) hits_in_rows: u64,
    /// Who and where, most hits first.
    pub(super) rows: Vec<HitRow>,
}

/// What one thread did at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HitRow {
    pub(super) hits: u64,
    /// The name of the thread.
    pub(super) command: String,
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) cpus: BTreeSet<u32>,
    /// When first, since the beginning.
    pub(super) first: Nanos,
    /// When last.
    pub(super) last: Nanos,
    pub(super) place: Arc<ResolvedAddress>,
    /// From where, the innermost first.
    pub(super) callers: Vec<Arc<ResolvedAddress>>,
    /// How many of the hits came that way.
    pub(super) that_way: ChainShare,
    /// What stood there after the last hit of which it is known.
    pub(super) value: Option<u64>,
}

/// How many hits came the way that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChainShare {
    /// All, as far as is known.
    One,
    /// So many.
    Several(u64),
    /// So many, as those of which the way is known let one suppose.
    About(u64),
}

/// A place as short as a call chain wants it.
pub(super) fn short(place: &ResolvedAddress) -> String {
    match (place.function(), place.source()) {
        (Some(function), Some((file, line))) => {
            format!("{function} {}:{line}", file.rsplit('/').next().unwrap_or(file))
        }
        (Some(function), None) => function.to_owned(),
        _ => place.to_string(),
    }
}

impl HitRow {
    /// A row without hits.
    pub(super) fn new(pid: i32, tid: i32, first: Nanos, place: Arc<ResolvedAddress>) -> Self {
        let (command, cpus, callers) = (String::new(), BTreeSet::new(), Vec::new());
        let (last, that_way, value) = (Nanos::ZERO, ChainShare::One, None);
        Self { hits: 0, command, pid, tid, cpus, first, last, place, callers, that_way, value }
    }
}
