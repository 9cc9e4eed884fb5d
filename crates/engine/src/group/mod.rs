//! Groups: events that count at the same moments, or not at all.
//!
//! What it is: the request for a group, and its checks.
//!
//! **Invariant:** a group is placed, programmed and inherited whole.
//!
//! Linux: `group_fd` of `perf_event_open(2)`, `perf_group_attach`, `perf_event_validate_size` (kernel/events/core.c).

use crate::error::OpenError;
use crate::event::NewEvent;
use crate::id::{Cred, PmuId};
use crate::pmu::share_key::ALONE;
use crate::pmu::{Delegated, EventSpec, ParseError, PmuModel, PmuTable, Slots};
pub use crate::target::Demand;
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

/// The longest group that is accepted, in events; the kernel's read format would carry more, but no host can place it.
pub const MAX_GROUP: usize = 4096;

/// A group to be opened: the leader first. A single event is a group of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSpec {
    /// The PMU and the attribute of each event.
    pub events: Vec<(PmuId, Attr)>,
}

impl GroupSpec {
    /// A group of one.
    #[must_use]
    pub fn single(pmu: PmuId, attr: Attr) -> Self {
        Self { events: alloc::vec![(pmu, attr)] }
    }
}

/// A group that was understood: what is opened for it, wherever.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) demand: Demand,
    pub(crate) members: Vec<NewEvent>,
}

impl Plan {
    /// Whether its leader is inherited, and then whether the counters below do it or the engine; `Err` with the first
    /// event that would be inherited in the other way.
    ///
    /// A child would count such an event twice, or not at all.
    pub(crate) fn inheritance(&self) -> Result<Inheritance, usize> {
        let Some(leader) = self.members.first().filter(|leader| leader.spec.attr.flags.contains(AttrFlags::INHERIT))
        else {
            return Ok(Inheritance::None);
        };
        let by_itself = |member: &NewEvent| member.caps.delegated.contains(Delegated::INHERITANCE);
        let way = by_itself(leader);
        match self.members.iter().position(|member| by_itself(member) != way) {
            Some(index) => Err(index),
            None if way => Ok(Inheritance::Below),
            None => Ok(Inheritance::Engine),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inheritance {
    /// It doesn't.
    None,
    /// The counters.
    Below,
    /// The engine, with a family.
    Engine,
}

/// What only counters do that are events of a kernel below: children by threads only, counts of each child at its exit, signals, and records
/// of what else happens.
const NOT_OURS: AttrFlags = ALONE.difference(AttrFlags::ENABLE_ON_EXEC).union(AttrFlags::INHERIT_THREAD);

/// Understands and checks a group.
///
/// Checked in this order: not empty, not too long, `pinned` and `exclusive` on the leader only, each PMU exists, each PMU takes its
/// event, at most one scarce PMU, and that PMU could hold the group if it were alone.
/// Its counters will be opened with `cred`.
pub(crate) fn resolve(spec: &GroupSpec, cred: Cred, pmus: &dyn PmuTable) -> Result<Plan, OpenError> {
    let Some((_, leader)) = spec.events.first() else { return Err(OpenError::EmptyGroup) };
    if spec.events.len() > MAX_GROUP {
        return Err(OpenError::GroupTooLong { events: spec.events.len(), most: MAX_GROUP });
    }
    let demand = Demand {
        pinned: leader.flags.contains(AttrFlags::PINNED),
        exclusive: leader.flags.contains(AttrFlags::EXCLUSIVE),
    };
    for (index, (_, attr)) in spec.events.iter().enumerate().skip(1) {
        if attr.flags.intersects(AttrFlags::PINNED | AttrFlags::EXCLUSIVE) {
            return Err(OpenError::DemandOfSibling { index });
        }
    }
    let mut members = Vec::with_capacity(spec.events.len());
    let mut scarce: Option<(PmuId, &dyn PmuModel)> = None;
    for (index, (id, attr)) in spec.events.iter().enumerate() {
        let model = pmus.pmu(*id).ok_or(OpenError::NoSuchPmu { index })?;
        let spec = model.parse(*id, attr).map_err(|error| OpenError::Parse { index, error })?;
        // What neither the engine nor the counters do would be missing in silence.
        if attr.flags.intersects(NOT_OURS) && !model.caps().delegated.contains(Delegated::INHERITANCE) {
            return Err(OpenError::Parse { index, error: ParseError::NotSupported });
        }
        members.push(NewEvent { spec: Arc::new(EventSpec { cred, ..spec }), caps: *model.caps(), lineage: None });
        if matches!(model.caps().slots, Slots::Scarce(_)) {
            match scarce {
                Some((other, _)) if other != *id => return Err(OpenError::MixedPmus { index }),
                _ => scarce = Some((*id, model)),
            }
        }
    }
    if let Some((id, model)) = scarce {
        // Whether there are enough debug registers is for their ledger to say, with who has them.
        let on_it = members.iter().map(|member| &*member.spec).filter(|spec| spec.pmu == id && spec.claim.is_none());
        let wanted: Vec<_> = on_it.map(|spec| spec.allowed).collect();
        let mut out = alloc::vec![crate::pmu::Slot::NONE; wanted.len()];
        if !model.place(&wanted, crate::pmu::SlotMask::default(), &mut out) {
            return Err(OpenError::NeverFits { pmu: id, events: wanted.len() });
        }
    }
    Ok(Plan { demand, members })
}
