//! The names of things.
//!
//! What it is: CPUs, tasks and PMUs as the host numbers them, events and groups as the engine numbers them, and time.
//!
//! **Invariant:** whatever the engine numbers carries a generation, so that an id that was closed never names what
//! took its place.

use crate::arena::Id;
use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A CPU, by the host's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u32);

/// A task (a thread), by a number of the host that it never uses twice while the engine runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u64);

/// A group of tasks that a CPU's events can be limited to, by the host's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CgroupId(pub u64);

/// The credentials that a counter is opened with, by a number that only the host understands. Linux: `struct cred`, by which
/// `perf_event_open` decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cred(pub u64);

impl Cred {
    /// The host's own.
    pub const HOST: Self = Self(0);
}

/// A PMU, as an index into the host's models.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PmuId(pub u16);

/// Names one event.
pub type EventId = Id<EventTag>;
/// Names one group.
pub type GroupId = Id<GroupTag>;
/// Names one system-wide set.
pub type SetId = Id<SetTag>;
/// Names one event set.
pub type EventSetId = Id<EventSetTag>;
/// Names one family.
pub type FamilyId = Id<FamilyTag>;

/// Tells event ids from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventTag {}
/// Tells group ids from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GroupTag {}
/// Tells set ids from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SetTag {}
/// Tells event set ids from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventSetTag {}
/// Tells family ids from others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FamilyTag {}

/// A time or a span, in nanoseconds of the host's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// The span since `earlier`; zero where the clock seems to have gone back.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// The span in seconds, for people.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
