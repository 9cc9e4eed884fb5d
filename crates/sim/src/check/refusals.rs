//! What is refused, and what is granted.
//!
//! What it is: what a machine can count at all, out of its description ([`open_result`]). The code that opens something compares what
//! came of it. For debug registers see [`super::debug_registers`].
//!
//! **Invariant:** neither the engine nor the machine's PMUs are asked: which events fit together is found by counting them, not
//! by placing them.

use super::{Checker, Violation};
use crate::machine::{Counts, Description, Event, Kind, PmuDescription, World};
use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, Sampling, breakpoint};
use pmux_engine::group::MAX_GROUP;
use pmux_engine::pmu::{ParseError, SlotMask, Slots};
use pmux_engine::{ControlError, CpuId, EventState, ModifyError, OpenError, PmuId, TaskId};

/// Whether a machine can count a group, if that is alone on it.
///
/// # Errors
/// Why it never can, in the order of [`pmux_engine::Engine::open`].
pub(crate) fn open_result(machine: &Description, events: &[(PmuId, Attr)]) -> Result<(), OpenError> {
    if events.is_empty() {
        return Err(OpenError::EmptyGroup);
    }
    if events.len() > MAX_GROUP {
        return Err(OpenError::GroupTooLong { events: events.len(), most: MAX_GROUP });
    }
    let demands = |(_, attr): &(PmuId, Attr)| attr.flags.intersects(AttrFlags::PINNED | AttrFlags::EXCLUSIVE);
    if let Some(sibling) = events.iter().skip(1).position(demands) {
        return Err(OpenError::DemandOfSibling { index: sibling + 1 });
    }
    let mut scarce: Option<(PmuId, u8)> = None;
    let mut wanted = Vec::new();
    for (index, (id, attr)) in events.iter().enumerate() {
        let pmu = machine.pmus.get(usize::from(id.0)).ok_or(OpenError::NoSuchPmu { index })?;
        let allowed = takes(pmu, attr).map_err(|error| OpenError::Parse { index, error })?;
        let Slots::Scarce(count) = pmu.slots else { continue };
        if scarce.is_some_and(|(other, _)| other != *id) {
            return Err(OpenError::MixedPmus { index });
        }
        scarce = Some((*id, count));
        // Debug registers are not given out by turns: whether there are enough is no matter of the machine alone.
        if let Counts::Kinds(_) = pmu.counts {
            wanted.push(allowed);
        }
    }
    match scarce {
        Some((pmu, count)) if !fit(&wanted, SlotMask::default(), count) => {
            Err(OpenError::NeverFits { pmu, events: wanted.len() })
        }
        _ => Ok(()),
    }
}

fn takes(pmu: &PmuDescription, attr: &Attr) -> Result<SlotMask, ParseError> {
    let on = match &pmu.counts {
        Counts::Kinds(kinds) => {
            let asked = Kind::from_config(attr.kind, attr.config);
            let known = kinds.iter().find(|(kind, _)| Some(*kind) == asked);
            known.map(|&(_, on)| on).filter(|on| !on.is_empty())
        }
        // Whether there is one left is another question.
        Counts::Accesses { execute, data } if attr.kind == EventType::BREAKPOINT => {
            let code = attr.bp_type & breakpoint::X != 0;
            let memory = attr.bp_type & breakpoint::RW != 0;
            if !matches!(attr.config2, 1 | 2 | 4 | 8) || (code && memory) {
                return Err(ParseError::NotSupported);
            }
            if code { Some(*execute) } else { memory.then_some(*data) }
        }
        Counts::Accesses { .. } => None,
    };
    // What this machine knows to write into a sample, and counters that ask for one.
    let known = SampleFormat::IDENTIFIER | SampleFormat::TID | SampleFormat::TIME | SampleFormat::ADDR;
    let known = known | SampleFormat::ID | SampleFormat::STREAM_ID | SampleFormat::CPU | SampleFormat::PERIOD;
    let asks = matches!(pmu.slots, Slots::Scarce(_)) && matches!(pmu.counts, Counts::Kinds(_));
    match (on, attr.sampling) {
        (None, _) => Err(ParseError::NoSuchEvent),
        (Some(on), Sampling::None) => Ok(on),
        (Some(on), Sampling::Period(1..)) if asks && known.contains(attr.sample) => Ok(on),
        (Some(_), _) => Err(ParseError::NotSupported),
    }
}

/// Whether events fit on slots, each on one of those that it may be on: they do if no choice of them has fewer free slots
/// than events (Hall). Events that may be on the same slots are chosen together.
pub(super) fn fit(wanted: &[SlotMask], used: SlotMask, count: u8) -> bool {
    let free = SlotMask::first(count).0 & !used.0;
    let mut sorts: Vec<(u64, u32)> = Vec::new();
    for mask in wanted {
        let mask = mask.0 & free;
        match sorts.iter_mut().find(|(other, _)| *other == mask) {
            Some((_, events)) => *events += 1,
            None => sorts.push((mask, 1)),
        }
    }
    // A machine has no more constraints than kinds of events.
    (1_u64..1 << sorts.len().min(32)).all(|choice| {
        let chosen = sorts.iter().enumerate().filter(|(index, _)| choice & 1 << index != 0);
        let (slots, events) = chosen.fold((0, 0), |(slots, events), (_, &(mask, more))| (slots | mask, events + more));
        events <= slots.count_ones()
    })
}

/// A group that is open is one that the machine can count.
pub(super) fn granted(world: &World, number: u32) -> Result<(), Violation> {
    let Some(book) = world.books().get(number) else { return Ok(()) };
    let asked: Vec<_> = book.tags.iter().filter_map(|&tag| world.attr(tag)).collect();
    open_result(world.description(), &asked).map_err(|why| {
        let what = format!("the engine grants what the machine can't count: {why}");
        Violation::new(Checker::Refusals, world.now(), what).event(book.tags[0])
    })
}

/// What is wrong with a refusal, if anything is. `struck` is how often the machine had refused something before.
pub(crate) fn refused(
    world: &World,
    events: &[(PmuId, Attr)],
    bound_to: Option<CpuId>,
    error: OpenError,
    struck: u64,
) -> Option<Violation> {
    let is_excused = world.refusals() > struck;
    let offline = bound_to.filter(|&cpu| !world.is_online(cpu));
    let due = open_result(world.description(), events).err().or(offline.map(|cpu| OpenError::CpuOffline { cpu }));
    if due.is_none() && matches!(error, OpenError::DebugRegisters { .. }) {
        // That has a judge of its own.
        return None;
    }
    if due == Some(error) || (due.is_none() && is_excused && matches!(error, OpenError::Bank { .. })) {
        return None;
    }
    let what = match due {
        None => format!("the engine refuses what the machine can count: {error}"),
        Some(due) => format!("the engine refuses it for another reason than it has: {error}, but {due}"),
    };
    Some(Violation::new(Checker::Refusals, world.now(), what))
}

/// What is wrong where a child does not inherit everything.
pub(crate) fn of_fork(world: &World, parent: TaskId, error: OpenError, struck: u64) -> Option<Violation> {
    let what = format!("a child inherits less than the machine can count: {error}");
    let violation = Violation::new(Checker::Refusals, world.now(), what).task(parent);
    (world.refusals() == struck).then_some(violation)
}

/// What is wrong with the answer to a change of what an event counts; debug registers have a judge of their own.
pub(crate) fn of_change(
    world: &World,
    event: Event,
    after: (PmuId, Attr),
    is_shared: bool,
    result: Result<(), ModifyError>,
    struck: u64,
) -> Option<Violation> {
    let never = open_result(world.description(), &[after]).is_err();
    let (inherited, is_dead) = (world.has_live_children(event), world.state_of(event) == Ok(EventState::Dead));
    let fits = match result {
        Ok(()) => !never && !inherited && !is_dead && !is_shared,
        Err(ModifyError::Closed) => false,
        Err(ModifyError::Parse(_)) => never,
        Err(ModifyError::Inherited) => inherited,
        Err(ModifyError::Shared) => is_shared,
        Err(ModifyError::DebugRegisters { .. }) => !never && !is_shared,
        Err(_) => is_dead || world.refusals() > struck,
    };
    // A child that was refused something is not counted, and that is not known.
    if fits || (world.refusals() > 0 && matches!(result, Ok(()) | Err(ModifyError::Inherited))) {
        return None;
    }
    let what = match result {
        Ok(()) => "an event is changed that can't be".to_owned(),
        Err(error) => format!("an event is not changed, for a reason that it hasn't: {error}"),
    };
    Some(Violation::new(Checker::Refusals, world.now(), what).event(event))
}

/// What is wrong where an event of a group can't be switched: what is not pinned waits for a counter, and can't be refused
/// one unless the machine has ever refused something.
pub(crate) fn of_control(world: &World, number: u32, error: ControlError) -> Option<Violation> {
    let book = world.books().get(number).filter(|book| !book.pinned)?;
    let what = format!("an event that is open can't be switched: {error}");
    let violation = Violation::new(Checker::Refusals, world.now(), what).event(*book.tags.first()?);
    (world.refusals() == 0).then_some(violation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::placement;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counting_says_what_trying_says(
            wanted in proptest::collection::vec(0_u64..64, 0..7),
            used in 0_u64..64,
            count in 0_u8..7,
        ) {
            let (wanted, used): (Vec<_>, _) = (wanted.into_iter().map(SlotMask).collect(), SlotMask(used));
            prop_assert_eq!(fit(&wanted, used, count), placement::fits(&wanted, used, count));
        }
    }
}
