//! What was read.
//!
//! **Invariant:** a count that was not taken is never a number.

use crate::event::Event;
use pmux_engine::system_wide::CpuCoverage;
use pmux_engine::{Count, Estimate, Nanos, ReadError};
use std::fmt;

/// One event, read in one place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reading {
    /// It was open; the count says for how long it ran.
    Counted(Count),
    /// It could not be opened: see [`crate::Counters::refusal`].
    Refused,
    /// It is not counted in this row: its PMU has other CPUs.
    Elsewhere,
    /// It was open and could not be read.
    Failed(ReadError),
}

impl Reading {
    /// The count, where there is one.
    #[must_use]
    pub const fn count(&self) -> Option<Count> {
        match self {
            Self::Counted(count) => Some(*count),
            _ => None,
        }
    }

    /// What the count says about the whole time that the event was enabled; `None` where there is no count.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        self.count().map(|count| count.estimate())
    }

    /// The two together. Where only one of them is a count, it stays.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Counted(mut count), Self::Counted(more)) => {
                count += more;
                Self::Counted(count)
            }
            (counted @ Self::Counted(_), _) | (_, counted @ Self::Counted(_)) => counted,
            (Self::Elsewhere, other) => other,
            (this, _) => this,
        }
    }

    /// What was counted since `earlier`, a reading of the same event.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        match (self, earlier) {
            (Self::Counted(count), Self::Counted(before)) => Self::Counted(count.less(before)),
            (this, _) => this,
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted(count) => match count.estimate() {
                Estimate::Exact(value) => write!(f, "{value}"),
                Estimate::Scaled { value, share } => write!(f, "{value} ({:.2} %)", share * 100.0),
                Estimate::NotCounted => f.write_str("<not counted>"),
            },
            Self::Refused | Self::Elsewhere => f.write_str("<not supported>"),
            Self::Failed(_) => f.write_str("<not counted>"),
        }
    }
}

/// Which thread, CPU and cgroup a row counts; what is `None` is not told apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Who {
    /// One thread (and what it starts).
    pub thread: Option<i32>,
    /// One CPU.
    pub cpu: Option<u32>,
    /// One cgroup, an index into the names of the target.
    pub cgroup: Option<usize>,
}

/// All events of one row.
#[derive(Clone, PartialEq, Debug)]
pub struct RowReading {
    /// Which thread, CPU and cgroup it counts.
    pub who: Who,
    /// One reading per event, in the order of [`crate::Counters::events`].
    pub readings: Vec<Reading>,
}

/// For how long CPUs were covered, for system-wide counting.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetCoverage {
    /// For how long the set was armed.
    pub span: Nanos,
    /// Each CPU that was ever counted.
    pub cpus: Vec<CpuCoverage>,
    /// CPUs that are online but were refused when they came back, with the refusal's words.
    pub refused: Vec<(u32, String)>,
}

/// Everything at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// When it was read, on the monotonic clock.
    pub at: Nanos,
    /// The rows: threads in their order, or CPUs in ascending order.
    pub rows: Vec<RowReading>,
    /// For how long CPUs were covered; empty where no CPU was asked for.
    pub coverage: SetCoverage,
    pub(crate) events: std::sync::Arc<[Event]>,
}

impl Snapshot {
    /// Each event with the sum over all rows.
    pub fn totals(&self) -> impl Iterator<Item = (&Event, Reading)> {
        self.events.iter().enumerate().map(|(index, event)| (event, self.total(index)))
    }

    /// The sum over all rows for one event.
    #[must_use]
    pub fn total(&self, event: usize) -> Reading {
        let readings = self.rows.iter().filter_map(|row| row.readings.get(event).copied());
        readings.reduce(Reading::plus).unwrap_or(Reading::Refused)
    }

    /// What was counted since an earlier snapshot of the same counters. Rows that are new count from their start.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut result = self.clone();
        for row in &mut result.rows {
            let Some(before) = earlier.rows.iter().find(|before| before.who == row.who) else { continue };
            for (reading, before) in row.readings.iter_mut().zip(&before.readings) {
                *reading = reading.since(before);
            }
        }
        result
    }
}
