//! Who is on the counters of a CPU.
//!
//! **Invariant:** who is enabled is taken from the books and who is on from the machine; the engine is asked only whether a
//! group that is not on is in error.

use super::{Checker, Violation, refusals};
use crate::machine::{Book, BookKind, Event, World};
use pmux_engine::pmu::{PmuTable, SlotMask, Slots};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, EventId, EventState, PmuId};

#[derive(Clone, Copy)]
struct Member {
    event: Event,
    enabled: bool,
    on: bool,
    doubtful: bool,
    unknown: bool,
}

/// All groups on one CPU: its own, and those of the task on it.
pub(super) fn on_cpu(world: &World, cpu: CpuId) -> Result<(), Violation> {
    let task = world.running_on(cpu);
    let mut exclusive = false;
    let mut waiting = Vec::new();
    for place in [Some(ContextKey::Cpu(cpu)), task.map(ContextKey::Task)].into_iter().flatten() {
        for (number, only_on) in groups_at(world, place) {
            let Some(book) = world.books().get(number) else { continue };
            let members = members(world, &book.tags, place, only_on);
            exclusive |= book.exclusive;
            let here = only_on.is_none_or(|only| only == cpu) && world.is_online(cpu);
            whole(world, (number, book), place, &members, here)?;
            if here && book.pinned {
                pinned(world, (number, book), place, &members)?;
            }
            let waits = |member: &Member| member.enabled && !member.on && !member.doubtful && !member.unknown;
            if here && !book.pinned && !members.is_empty() && members.iter().any(|member| member.enabled) {
                let all = members.iter().filter(|member| member.enabled).all(waits);
                waiting.extend(all.then_some((number, only_on, place)));
            }
        }
    }
    // An exclusive group may keep others off counters that are free; a group that was refused a counter waits for the next look.
    if exclusive || !world.is_quiet() {
        return Ok(());
    }
    waiting.into_iter().try_for_each(|(number, only_on, place)| finds_no_room(world, (number, only_on), place, cpu))
}

/// The groups that are counted in a place, by number.
pub(super) fn groups_at(world: &World, place: ContextKey) -> Vec<(u32, Option<CpuId>)> {
    let mut groups: Vec<_> = world.state(|state| {
        let Some(shelf) = state.shelf(place) else { return Vec::new() };
        let group = |site| {
            // A view of a master is on no counter itself.
            if state.is_view(site) {
                return None;
            }
            let site = state.ledger.site(site).filter(|site| !site.dead)?;
            Some((state.ledger.tag_of(site)?.group, site.only_on))
        };
        shelf.sites().filter_map(group).collect()
    });
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn members(world: &World, tags: &[Event], place: ContextKey, only_on: Option<CpuId>) -> Vec<Member> {
    world.state(|state| {
        let member = |(index, &event): (usize, &Event)| {
            let site = state.ledger.site(state.shelf(place)?.find(event.index, only_on)?)?;
            let enabled = state.is_enabled(tags, index, place, only_on);
            Some(Member { event, enabled, on: site.running.is_some(), doubtful: site.doubtful, unknown: site.unknown })
        };
        tags.iter().enumerate().filter_map(member).collect()
    })
}

/// An event that is off does not count; one that is on counts with its group, or not at all.
fn whole(
    world: &World,
    (number, book): (u32, &Book),
    place: ContextKey,
    members: &[Member],
    here: bool,
) -> Result<(), Violation> {
    if members.iter().any(|member| member.unknown) {
        return Ok(());
    }
    let new = |what, event| Violation::new(Checker::Groups, world.now(), what).event(event).place(Some(place));
    if let Some(member) = members.iter().find(|member| member.on && !(member.enabled && here)) {
        return Err(new("an event counts that is off, or not here", member.event));
    }
    let someone_on = members.iter().any(|member| member.on);
    // One that was refused its counter may be in error, without the others.
    let is_off = |(index, member): &(usize, &Member)| {
        let in_error = || is_in_error(world, (number, book), place, *index);
        member.enabled && !member.on && !(member.doubtful && in_error())
    };
    match members.iter().enumerate().find(|it| someone_on && is_off(it)) {
        Some((_, member)) => Err(new("half of a group is on counters", member.event)),
        None => Ok(()),
    }
}

/// A pinned group that is enabled is on, or in error.
fn pinned(world: &World, (number, book): (u32, &Book), place: ContextKey, members: &[Member]) -> Result<(), Violation> {
    let Some(leader) = members.first().filter(|leader| leader.enabled && !leader.on && !leader.unknown) else {
        return Ok(());
    };
    if is_in_error(world, (number, book), place, 0) {
        return Ok(());
    }
    let what = "a pinned group is neither on counters nor in error";
    Err(Violation::new(Checker::Pinned, world.now(), what).event(leader.event).place(Some(place)))
}

/// Whether an event of a group is in error in a place, as the engine says.
fn is_in_error(world: &World, (number, book): (u32, &Book), place: ContextKey, index: usize) -> bool {
    let errs = |event: Option<EventId>| event.is_some_and(|event| world.engine().state(event) == Ok(EventState::Error));
    match (&book.kind, place) {
        (BookKind::Group { events, target, .. }, _) if target.context == place => errs(events.get(index).copied()),
        (BookKind::Group { .. }, ContextKey::Task(task)) => {
            let counts =
                world.group_in(number, task).and_then(|group| world.observe(|engine| engine.read_group(group)).ok());
            counts.is_some_and(|counts| counts.get(index).is_some_and(Result::is_err))
        }
        (BookKind::OfSet { set, first }, ContextKey::Cpu(cpu)) => {
            let events = world.books().set(*set).and_then(|set| world.engine().set_events(set.id).ok());
            let here = events.into_iter().flatten().find(|(other, _)| *other == cpu).map(|(_, events)| events);
            errs(here.and_then(|events| events.get(first + index).copied()))
        }
        (BookKind::Master { .. }, _) => world.master_errors(number, place).get(index).copied().unwrap_or(true),
        _ => true,
    }
}

/// A group that waits would not fit beside what is on.
fn finds_no_room(
    world: &World,
    (number, only_on): (u32, Option<CpuId>),
    place: ContextKey,
    cpu: CpuId,
) -> Result<(), Violation> {
    let Some(book) = world.books().get(number) else { return Ok(()) };
    let (mut wanted, mut pmu) = (Vec::new(), None);
    for member in members(world, &book.tags, place, only_on).iter().filter(|member| member.enabled) {
        if let Some((on, allowed)) = world.where_may(member.event) {
            pmu = Some(on);
            wanted.push(allowed);
        }
    }
    let room = pmu.is_none_or(|pmu| fits(world, pmu, &wanted, world.used(cpu, pmu)));
    if !room {
        return Ok(());
    }
    let what = "a group waits for counters that are free";
    Err(Violation::new(Checker::Waiting, world.now(), what).event(book.tags[0]).place(Some(place)).cpu(cpu))
}

/// Whether events could be placed beside slots that are taken.
pub(super) fn fits(world: &World, pmu: PmuId, wanted: &[SlotMask], used: SlotMask) -> bool {
    let slots = world.description().pmus.get(usize::from(pmu.0)).map(|pmu| pmu.slots);
    matches!(slots, Some(Slots::Scarce(count)) if refusals::fit(wanted, used, count))
}

impl World {
    /// Where an event may be placed, if its counters are scarce.
    pub(super) fn where_may(&self, event: Event) -> Option<(PmuId, SlotMask)> {
        let attr = self.attr(event)?;
        let host = self.engine().host();
        let model = host.pmu(attr.0)?;
        let spec = model.parse(attr.0, &attr.1).ok()?;
        matches!(model.caps().slots, Slots::Scarce(_)).then_some((attr.0, spec.allowed))
    }

    /// The slots of a scarce PMU that are programmed on a CPU.
    pub(super) fn used(&self, cpu: CpuId, pmu: PmuId) -> SlotMask {
        self.state(|state| {
            let bank = state.cpus.get(cpu.0 as usize).and_then(|cpu| state.bank(cpu.bank?));
            let slots = bank.map(|bank| &bank.pmus[usize::from(pmu.0)].slots[..]).unwrap_or_default();
            let taken = slots.iter().enumerate().filter(|(_, register)| register.is_some());
            taken.fold(SlotMask::default(), |mask, (slot, _)| mask.with(pmux_engine::pmu::Slot(slot as u32)))
        })
    }
}
