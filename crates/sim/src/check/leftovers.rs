//! Nothing too much, nothing too little.

use super::{Checker, Violation};
use crate::machine::{BookKind, World};
use pmux_engine::pmu::{Slot, Slots};
use pmux_engine::{EventState, PmuId};

/// What the engine holds open is what the books say.
pub(super) fn census(world: &World) -> Result<(), Violation> {
    let (mut events, mut groups, mut families) = (0, 0, 0);
    for (_, book) in world.books().iter() {
        let places = match &book.kind {
            BookKind::Group { .. } if world.state(|state| state.is_view_event(book.tags[0])) => 1,
            BookKind::Master { root, family, .. } => {
                families += u64::from(family.is_some());
                // Its own group does not count among the groups; those of children do.
                let root = root.map(|root| root.context);
                world.state(|state| {
                    let live = state.ledger.sites_of(book.tags[0]).filter(|site| !site.retired);
                    live.filter(|site| root.is_some_and(|root| site.place != root)).count() as u64
                })
            }
            BookKind::Group { family, .. } => {
                families += u64::from(family.is_some());
                world.state(|state| state.ledger.sites_of(book.tags[0]).filter(|site| !site.retired).count() as u64)
            }
            BookKind::OfSet { set, .. } => {
                let open = world.books().set(*set).and_then(|set| world.engine().set_events(set.id).ok());
                open.into_iter().flatten().filter(|(_, events)| !events.is_empty()).count() as u64
            }
        };
        groups += places;
        events += places * book.tags.len() as u64;
    }
    let census = world.engine().census();
    let sets = world.books().sets().count() as u64;
    let found = [census.events, census.groups, census.families, census.sets].map(|count| count as u64);
    let expected = [events, groups, families, sets];
    for ((what, expected), found) in ["events", "groups", "families", "sets"].into_iter().zip(expected).zip(found) {
        if expected != found {
            let what = format!("the engine holds more or fewer {what} than are open");
            return Err(Violation::new(Checker::Leftovers, world.now(), what).numbers(expected, found));
        }
    }
    if events == 0 && census.contexts > 0 {
        let violation = Violation::new(Checker::Leftovers, world.now(), "contexts are left, and no event");
        return Err(violation.numbers(0, census.contexts as u64));
    }
    Ok(())
}

/// What is programmed belongs to an open event, and each event that the engine calls active is on the slot that it leases.
pub(super) fn registers(world: &World) -> Result<(), Violation> {
    world.state(|state| {
        for bank in state.banks.iter().flatten() {
            for (pmu, registers) in bank.pmus.iter().enumerate() {
                let new = |what| Violation::new(Checker::Leftovers, state.now(), what).place(Some(bank.key));
                for (slot, register) in registers.slots.iter().enumerate() {
                    let Some(register) = register else { continue };
                    let at = (PmuId(pmu as u16), Slot(slot as u32));
                    if state.ledger.event_at(register.tag).is_none() {
                        return Err(new("a counter is programmed for an event that is closed").slot(at.0, at.1));
                    }
                }
            }
        }
        Ok(())
    })?;
    for (_, book) in world.books().iter() {
        let BookKind::Group { events, target, .. } = &book.kind else { continue };
        for (&tag, &event) in book.tags.iter().zip(events) {
            if world.engine().state(event) != Ok(EventState::Active) {
                continue;
            }
            let Ok((place, lease)) = world.engine().lease(event) else { continue };
            let new = |what| Violation::new(Checker::Leases, world.now(), what).event(tag).place(Some(place));
            let running = world.state(|state| {
                let site = state.shelf(target.context)?.find(tag.index, book.only_on())?;
                let register = state.register(state.counter_of(site)?)?;
                Some(register.generation)
            });
            if running != Some(lease.generation) {
                let violation = new("an active event is not on the counter that it leases").slot(lease.pmu, lease.slot);
                return Err(violation.numbers(lease.generation, running.unwrap_or(0)));
            }
        }
    }
    scarce(world)
}

/// No CPU has more counters programmed than it has.
fn scarce(world: &World) -> Result<(), Violation> {
    for (index, pmu) in world.description().pmus.iter().enumerate() {
        let Slots::Scarce(count) = pmu.slots else { continue };
        let pmu = PmuId(index as u16);
        for cpu in (0..world.description().cpus).map(pmux_engine::CpuId) {
            let used = world.used(cpu, pmu);
            if used.len() > u32::from(count) {
                let violation =
                    Violation::new(Checker::Leases, world.now(), "more counters are programmed than there are");
                return Err(violation.cpu(cpu).numbers(count.into(), used.len().into()));
            }
        }
    }
    Ok(())
}
