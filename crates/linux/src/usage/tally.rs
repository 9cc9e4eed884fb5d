//! A set of sums, one for each quantity that may be known.
//!
//! **Invariant:** unknown stays unknown: a sum with an unknown part is unknown.

use super::{FinalUsage, UsageKind};

/// What a target has used. `None` means unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    /// CPU time, ns.
    pub(super) cpu_ns: Option<u64>,
    pub(super) user_ns: Option<u64>,
    pub(super) system_ns: Option<u64>,
    pub(super) faults: Option<u64>,
    pub(super) minor: Option<u64>,
    pub(super) major: Option<u64>,
    pub(super) switches: Option<u64>,
    pub(super) migrations: Option<u64>,
    pub(super) max_rss_bytes: Option<u64>,
}

impl Tally {
    /// Nothing used, and everything known.
    pub(super) const ZERO: Self = Self {
        cpu_ns: Some(0),
        user_ns: Some(0),
        system_ns: Some(0),
        faults: Some(0),
        minor: Some(0),
        major: Some(0),
        switches: Some(0),
        migrations: Some(0),
        max_rss_bytes: Some(0),
    };

    /// The value of a kind. Time that passed is not known here.
    pub(super) fn value(&self, kind: UsageKind) -> Option<u64> {
        match kind {
            UsageKind::TaskClock | UsageKind::CpuClock => self.cpu_ns,
            UsageKind::UserTime => self.user_ns,
            UsageKind::SystemTime => self.system_ns,
            UsageKind::PageFaults => self.faults,
            UsageKind::MinorFaults => self.minor,
            UsageKind::MajorFaults => self.major,
            UsageKind::ContextSwitches => self.switches,
            UsageKind::CpuMigrations => self.migrations,
            UsageKind::MaxRss => self.max_rss_bytes,
            UsageKind::DurationTime => None,
        }
    }

    /// Adds up the counts and times of two targets; of the memory peaks the larger one stays.
    pub(super) fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add, u64::max)
    }

    /// What was used since an earlier reading; a memory peak belongs to no span and stays as it is.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, u64::saturating_sub, |now, _| now)
    }

    /// The larger of two readings of the same target, value by value.
    pub(super) fn at_least(&self, other: &Self) -> Self {
        let pick = |a: Option<u64>, b: Option<u64>| a.max(b);
        Self {
            cpu_ns: pick(self.cpu_ns, other.cpu_ns),
            user_ns: pick(self.user_ns, other.user_ns),
            system_ns: pick(self.system_ns, other.system_ns),
            faults: pick(self.faults, other.faults),
            minor: pick(self.minor, other.minor),
            major: pick(self.major, other.major),
            switches: pick(self.switches, other.switches),
            migrations: pick(self.migrations, other.migrations),
            max_rss_bytes: pick(self.max_rss_bytes, other.max_rss_bytes),
        }
    }

    fn zip(&self, other: &Self, join: fn(u64, u64) -> u64, peak: fn(u64, u64) -> u64) -> Self {
        let pair = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| join(a, b));
        Self {
            cpu_ns: pair(self.cpu_ns, other.cpu_ns),
            user_ns: pair(self.user_ns, other.user_ns),
            system_ns: pair(self.system_ns, other.system_ns),
            faults: pair(self.faults, other.faults),
            minor: pair(self.minor, other.minor),
            major: pair(self.major, other.major),
            switches: pair(self.switches, other.switches),
            migrations: pair(self.migrations, other.migrations),
            max_rss_bytes: match (self.max_rss_bytes, other.max_rss_bytes) {
                (Some(a), Some(b)) => Some(peak(a, b)),
                // A peak of one of them is still a peak that was reached.
                (a, b) => a.or(b),
            },
        }
    }
}

impl From<FinalUsage> for Tally {
    fn from(usage: FinalUsage) -> Self {
        Self {
            cpu_ns: Some(usage.user_ns.saturating_add(usage.system_ns)),
            user_ns: Some(usage.user_ns),
            system_ns: Some(usage.system_ns),
            faults: Some(usage.minor.saturating_add(usage.major)),
            minor: Some(usage.minor),
            major: Some(usage.major),
            switches: Some(usage.voluntary.saturating_add(usage.involuntary)),
            migrations: None,
            max_rss_bytes: Some(usage.max_rss_bytes),
        }
    }
}
