//! Whether a statement will succeed.
//!
//! What it is: what must come of a statement on a machine on which nothing goes wrong. It is asked of the slow and obvious
//! model of placement and of the machine's description, not of the engine.
//!
//! **Invariant:** where the outcome cannot be known, either is allowed; there are as few of these statements as can be.

use super::shape::{Known, Shape};
use crate::oracle::placement;
use crate::scenario::ast::Errno;
use pmux_engine::pmu::{SlotMask, Slots};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ExpectedResult {
    Succeeds,
    Fails(Vec<Errno>),
    /// It succeeds, or fails with one of these.
    Either(Vec<Errno>),
}

impl ExpectedResult {
    pub(super) fn fails(names: &[&str]) -> Self {
        Self::Fails(errnos(names))
    }

    pub(super) fn either(names: &[&str]) -> Self {
        Self::Either(errnos(names))
    }

    /// The same where it may also fail with this, and must if it would have to.
    pub(super) fn and_fails(self, name: &str) -> Self {
        match self {
            Self::Succeeds => Self::fails(&[name]),
            Self::Fails(known) | Self::Either(known) => Self::Fails([known, errnos(&[name])].concat()),
        }
    }

    /// The same where it may also fail with this, and need not.
    pub(super) fn or_fails(self, name: &str) -> Self {
        match self {
            Self::Succeeds => Self::either(&[name]),
            Self::Fails(known) => Self::Fails([known, errnos(&[name])].concat()),
            Self::Either(known) => Self::Either([known, errnos(&[name])].concat()),
        }
    }

    /// How it is said in advance that it fails.
    pub(super) fn foretold(&self) -> Option<Errno> {
        match self {
            Self::Fails(errnos) => errnos.first().copied(),
            Self::Succeeds | Self::Either(_) => None,
        }
    }

    /// Whether this may come of it: an error's number, or success.
    pub(super) fn allows(&self, failed: Option<i32>) -> bool {
        match (self, failed) {
            (Self::Succeeds | Self::Either(_), None) => true,
            (Self::Succeeds, Some(_)) | (Self::Fails(_), None) => false,
            (Self::Fails(errnos) | Self::Either(errnos), Some(failed)) => {
                errnos.iter().any(|errno| errno.number() == failed)
            }
        }
    }
}

fn errnos(names: &[&str]) -> Vec<Errno> {
    names.iter().filter_map(|name| Errno::from_name(name)).collect()
}

/// What comes of opening these and so many breakpoints as one group: it may need counters of one PMU at most, and must fit
/// there alone. Debug registers are asked for first.
pub(super) fn of_group(shape: &Shape, events: &[Known], breakpoints: usize) -> ExpectedResult {
    let scarce: Vec<&Known> = events.iter().filter(|event| event.is_scarce).collect();
    let Some(first) = scarce.first() else {
        // Who holds how many registers already, the ledger of the runner knows.
        return if breakpoints > 0 { ExpectedResult::either(&["ENOSPC"]) } else { ExpectedResult::Succeeds };
    };
    if breakpoints > 0 {
        return ExpectedResult::fails(&["EINVAL", "ENOSPC"]);
    }
    let count = match shape.description.pmus.get(usize::from(first.pmu.0)).map(|pmu| pmu.slots) {
        Some(Slots::Scarce(count)) => count,
        _ => u8::MAX,
    };
    let wanted: Vec<SlotMask> = scarce.iter().map(|event| event.allowed).collect();
    if placement::fits(&wanted, SlotMask::default(), count) {
        ExpectedResult::Succeeds
    } else {
        ExpectedResult::fails(&["EINVAL"])
    }
}
