//! A set of sums, one for each quantity that may be known.
//!
//! **Invariant:** unknown stays unknown: a sum with an unknown part is unknown.

use std::time::Duration;

use super::UsageKind;
use crate::spawn::Usage;

/// What a target has used. `None` means unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
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
        // A peak of one of them is still a peak that was reached.
        self.zip(other, |a, b| a.zip(b).map(|(a, b)| a.saturating_add(b)), Option::max)
    }

    /// What was used since an earlier reading; a memory peak belongs to no span and stays as it is.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, |now, before| now.zip(before).map(|(now, before)| now.saturating_sub(before)), Option::or)
    }

    /// The larger of two readings of the same target, value by value.
    pub(super) fn at_least(&self, other: &Self) -> Self {
        self.zip(other, Option::max, Option::max)
    }

    fn zip(
        &self,
        other: &Self,
        join: impl Fn(Option<u64>, Option<u64>) -> Option<u64>,
        peak: impl Fn(Option<u64>, Option<u64>) -> Option<u64>,
    ) -> Self {
        Self {
            cpu_ns: join(self.cpu_ns, other.cpu_ns),
            user_ns: join(self.user_ns, other.user_ns),
            system_ns: join(self.system_ns, other.system_ns),
            faults: join(self.faults, other.faults),
            minor: join(self.minor, other.minor),
            major: join(self.major, other.major),
            switches: join(self.switches, other.switches),
            migrations: join(self.migrations, other.migrations),
            max_rss_bytes: peak(self.max_rss_bytes, other.max_rss_bytes),
        }
    }
}

/// Times in user mode and in the kernel, and both kinds of faults: everything else is 0.
pub(super) fn times_and_faults((user_ns, system_ns): (u64, u64), (minor, major): (u64, u64)) -> Tally {
    Tally {
        cpu_ns: Some(user_ns.saturating_add(system_ns)),
        user_ns: Some(user_ns),
        system_ns: Some(system_ns),
        faults: Some(minor.saturating_add(major)),
        minor: Some(minor),
        major: Some(major),
        ..Tally::ZERO
    }
}

impl From<Usage> for Tally {
    fn from(usage: Usage) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            switches: Some(usage.voluntary_switches.saturating_add(usage.involuntary_switches)),
            migrations: None,
            max_rss_bytes: Some(usage.max_rss_kib.saturating_mul(1024)),
            ..times_and_faults((nanos(usage.user), nanos(usage.system)), (usage.minor_faults, usage.major_faults))
        }
    }
}
