//! Why an event is never on a counter.
//!
//! **Invariant:** the engine has said so already; here it is only found out whose fault it is.

use crate::Capacity;
use crate::needs::{Need, PlannedPmu};
use pmux_engine::OpenError;
use pmux_engine::pmu::{BankError, Slot, SlotMask, place_on_allowed};

/// Why an event is never on a counter. Events and groups are indices into the plan's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NeverReason {
    /// The machine has no PMU for this event of its group.
    NoPmu {
        /// The event.
        event: usize,
    },
    /// The PMU does not count this event of its group.
    NotCounted {
        /// The event.
        event: usize,
    },
    /// Its group has events on two PMUs with counters of their own: these two, for example.
    MixedPmus {
        /// The two.
        events: [usize; 2],
    },
    /// Events of its group need as many counters at once, and there are fewer that they may use. Without any one of them,
    /// the others would fit.
    TooFew {
        /// The events.
        events: Vec<usize>,
        /// The counters that they may use.
        counters: u32,
    },
    /// All debug registers that it could have are taken by these events, which are opened before it.
    RegistersTaken {
        /// The events.
        by: Vec<usize>,
    },
    /// These pinned groups are always on, and leave it no room.
    PinnedFirst {
        /// The groups.
        groups: Vec<usize>,
    },
    /// The engine does not take the group.
    Refused(OpenError),
}

impl NeverReason {
    /// Whether the event is not even opened.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::PinnedFirst { .. })
    }

    /// Whether the events of the group would have a better chance one by one.
    pub(super) const fn is_about_the_group(&self) -> bool {
        matches!(self, Self::MixedPmus { .. } | Self::TooFew { .. } | Self::RegistersTaken { .. })
    }
}

/// What is known when a group is refused.
pub(super) struct Refusal<'a> {
    pub(super) pmus: &'a [PlannedPmu],
    pub(super) needs: &'a [Option<Need>],
    /// The events of the group.
    pub(super) members: &'a [usize],
    pub(super) open: &'a [usize],
}

impl Refusal<'_> {
    pub(super) fn explain(&self, error: OpenError) -> NeverReason {
        let at = |index: usize| self.members.get(index).copied();
        match error {
            OpenError::NoSuchPmu { index } => at(index).map(|event| NeverReason::NoPmu { event }),
            OpenError::Parse { index, .. } => at(index).map(|event| NeverReason::NotCounted { event }),
            OpenError::MixedPmus { index } => at(index).and_then(|second| self.mixed(second)),
            OpenError::NeverFits { pmu, .. } => self.too_few(usize::from(pmu.0)),
            OpenError::Bank { index, error: BankError::SlotsExhausted } => at(index).and_then(|event| {
                let need = self.needs[event]?;
                self.too_few(need.pmu).or_else(|| Some(NeverReason::RegistersTaken { by: self.rivals(need) }))
            }),
            _ => None,
        }
        .unwrap_or(NeverReason::Refused(error))
    }

    fn mixed(&self, second: usize) -> Option<NeverReason> {
        let pmu = self.needs[second]?.pmu;
        let is_scarce = |pmu: usize| matches!(self.pmus[pmu].capacity, Capacity::Counters { .. } | Capacity::Unknown);
        let is_other = |need: Need| need.pmu != pmu && is_scarce(need.pmu);
        let first = self.members.iter().copied().find(|&event| self.needs[event].is_some_and(is_other))?;
        Some(NeverReason::MixedPmus { events: [first, second] })
    }

    /// The fewest events of the group that don't fit on a PMU together.
    fn too_few(&self, pmu: usize) -> Option<NeverReason> {
        let total = self.pmus.get(pmu)?.capacity.total()?.min(64) as u8;
        let need = |event: usize| self.needs[event].filter(|need| need.pmu == pmu);
        let mask = |event: usize| need(event).map_or_else(SlotMask::default, |need| need.allowed);
        let fit = |events: &[usize]| {
            let wanted: Vec<_> = events.iter().map(|&event| mask(event)).collect();
            fits(&wanted, total)
        };
        let mut events: Vec<usize> = self.members.iter().copied().filter(|&event| need(event).is_some()).collect();
        if fit(&events) {
            return None;
        }
        // The last ones go first, so that what is left are the first that don't fit.
        for index in (0..events.len()).rev() {
            let without: Vec<_> = events.iter().enumerate().filter(|&(at, _)| at != index).map(|(_, &e)| e).collect();
            if !fit(&without) {
                events = without;
            }
        }
        let counters = SlotMask(events.iter().fold(0, |all, &event| all | mask(event).0) & SlotMask::first(total).0);
        Some(NeverReason::TooFew { events, counters: counters.len() })
    }

    /// The open events that hold what this one could have.
    fn rivals(&self, need: Need) -> Vec<usize> {
        let is_rival = |other: Need| other.pmu == need.pmu && other.allowed.0 & need.allowed.0 != 0;
        self.open.iter().copied().filter(|&event| self.needs[event].is_some_and(is_rival)).collect()
    }
}

/// Whether so many events fit on a PMU at once.
pub(super) fn fits(wanted: &[SlotMask], total: u8) -> bool {
    place_on_allowed(wanted, SlotMask::default(), total, &mut vec![Slot::NONE; wanted.len()])
}
