//! What reasons of triggers are made of, as text.

use super::parser::{COMPARISONS, RESOURCES};
use super::{Comparison, Pressure, Resource, StalledTasks};
use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

/// A time in the largest unit in which it is whole.
fn whole(span: Duration) -> String {
    let ns = span.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let (unit, in_ns) = units.into_iter().find(|(_, in_ns)| ns.is_multiple_of(*in_ns)).unwrap_or(("ns", 1));
    format!("{}{unit}", ns / in_ns)
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(COMPARISONS.iter().find(|(_, of)| of == self).map_or("", |(sign, _)| sign))
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(RESOURCES.iter().find(|(_, of)| of == self).map_or("", |(name, _)| name))
    }
}

impl Display for StalledTasks {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Some => "some",
            Self::Full => "full",
        })
    }
}

impl Display for Pressure {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { resource, cgroup, tasks, stalled, window } = self;
        write!(f, "psi:{resource}")?;
        if let Some(cgroup) = cgroup {
            write!(f, ":{cgroup}")?;
        }
        write!(f, " {tasks} {}/{}", whole(*stalled), whole(*window))
    }
}
