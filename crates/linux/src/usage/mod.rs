//! What can be measured where `perf_event_open` is refused: from `wait4`, `/proc` and cgroup files.
//!
//! What it is: a [`UsageSource`] for a target gives cumulative values of a few [`UsageKind`]s.
//! Read first: [`UsageKind`], [`UsageSource`].
//!
//! **Invariant:** it knows no event and no slot; the host puts an attribute in front of it with
//! [`UsageKind::for_attr`]. A count or time never runs backwards, and what is not known is an error, never 0.

mod others;
mod source;
mod tally;
#[cfg(test)]
mod tests;
mod tree;

use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling};

use crate::cgroup::CgroupError;
use crate::procfs::ProcError;

pub use source::{UsageSource, UsageTarget};

/// A quantity that the kernel accounts for without any event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UsageKind {
    /// CPU time of the target, ns. For the machine or for CPUs: time that passed on them, as the event counts it.
    TaskClock,
    /// The same for tasks; time that passed for CPUs.
    CpuClock,
    /// CPU time in user mode, ns.
    UserTime,
    /// CPU time in the kernel, ns.
    SystemTime,
    /// Minor and major page faults.
    PageFaults,
    /// Page faults served without reading from a device.
    MinorFaults,
    /// Page faults that had to read from a device.
    MajorFaults,
    /// Context switches, of own will or not.
    ContextSwitches,
    /// Moves to another CPU.
    CpuMigrations,
    /// The most memory that one process (or the cgroup) held at a time, bytes.
    MaxRss,
    /// Time that passed, ns.
    DurationTime,
}

impl UsageKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::TaskClock,
        Self::CpuClock,
        Self::UserTime,
        Self::SystemTime,
        Self::PageFaults,
        Self::MinorFaults,
        Self::MajorFaults,
        Self::ContextSwitches,
        Self::CpuMigrations,
        Self::MaxRss,
        Self::DurationTime,
    ];

    /// Returns the kind that counts what a software event counts.
    ///
    /// `None` for everything that has no such source: other events, samples, and faults, switches or migrations in user
    /// mode or in the kernel alone (the kernel accounts for both together). Clocks ignore that restriction, as the
    /// kernel's own clock events do.
    #[must_use]
    pub fn for_attr(attr: &Attr) -> Option<Self> {
        if attr.kind != EventType::SOFTWARE || attr.sampling != Sampling::None {
            return None;
        }
        let kind = match attr.config {
            0 => Self::CpuClock,
            1 => Self::TaskClock,
            2 => Self::PageFaults,
            3 => Self::ContextSwitches,
            4 => Self::CpuMigrations,
            5 => Self::MinorFaults,
            6 => Self::MajorFaults,
            _ => return None,
        };
        let one_side = attr.flags.intersects(AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_KERNEL);
        (!one_side || kind.is_clock()).then_some(kind)
    }

    /// Whether it is a time in nanoseconds.
    #[must_use]
    pub fn is_clock(self) -> bool {
        matches!(self, Self::TaskClock | Self::CpuClock | Self::UserTime | Self::SystemTime | Self::DurationTime)
    }
}

/// Why a usage could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UsageError {
    /// This target has no such number.
    Unavailable(UsageKind),
    /// `/proc` did not tell it.
    Proc(ProcError),
    /// The cgroup did not tell it.
    Cgroup(CgroupError),
}

impl From<ProcError> for UsageError {
    fn from(error: ProcError) -> Self {
        Self::Proc(error)
    }
}

impl From<CgroupError> for UsageError {
    fn from(error: CgroupError) -> Self {
        Self::Cgroup(error)
    }
}
