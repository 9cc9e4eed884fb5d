//! Which events share a counter with which, and whether they may.
//!
//! What it is: the rules of sharing, out of what was asked for: an event that looks at a master asks what that asks, of the same
//! place, as a whole group or alone; an event that demands more than counting looks at a master of its own; and there are no more
//! masters than questions, but for events that come too late.
//!
//! **Invariant:** what is the same question is found here by comparing what was asked for, field by field; the engine's keys are
//! not used.

use super::{Checker, Violation};
use crate::machine::{Book, Event, World};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::PmuId;
use pmux_engine::target::ContextKey;

fn same(one: &(PmuId, Attr), other: &(PmuId, Attr)) -> bool {
    let ((pmu, a), (other_pmu, b)) = (one, other);
    let of = |attr: &Attr| (attr.kind, attr.config, attr.config1, attr.config2, attr.bp_type, attr.flags);
    // Who takes samples shares what is in them.
    pmu == other_pmu && of(a) == of(b) && (a.sampling, a.sample) == (b.sampling, b.sample)
}

/// Whether a master is shared with no other group: for what was asked for, or because it came to ask something else.
pub(crate) fn is_alone(world: &World, master: &Book) -> bool {
    master.is_taken() || was_alone(world, master)
}

/// Whether it is so for what was asked for: then its events are those of the one that asked.
pub(crate) fn was_alone(world: &World, master: &Book) -> bool {
    let alone = AttrFlags::EXCLUSIVE | AttrFlags::ENABLE_ON_EXEC;
    asked(world, &master.tags).iter().any(|(_, attr)| attr.flags.intersects(alone))
}

fn asked(world: &World, tags: &[Event]) -> Vec<(PmuId, Attr)> {
    tags.iter().filter_map(|&tag| world.attr(tag)).collect()
}

/// A place where events look at a master: for each of its events the events that do, with their groups.
struct Viewers {
    place: ContextKey,
    by: Vec<Vec<(Event, u32)>>,
}

fn seen(world: &World, book: &Book) -> Vec<Viewers> {
    world.state(|state| {
        let at = |(place, only_on)| {
            let by = book.tags.iter().map(|&tag| {
                let site = state.site_at(tag, place, only_on).and_then(|site| state.ledger.site(site));
                let viewers = site.map(|site| &site.viewers[..]).unwrap_or_default();
                let viewer = |&viewer: &u32| {
                    let event = state.ledger.event_at(state.ledger.site(viewer)?.tag)?;
                    Some((event, state.ledger.tag(event)?.group))
                };
                viewers.iter().filter_map(viewer).collect()
            });
            Viewers { place, by: by.collect() }
        };
        state.places(&book.tags).into_iter().map(at).collect()
    })
}

/// Each event that looks at a master may do so.
pub(super) fn master(world: &World, number: u32) -> Result<(), Violation> {
    let Some(book) = world.books().get(number).filter(|book| book.is_master()) else { return Ok(()) };
    let of_master = asked(world, &book.tags);
    for Viewers { place, by } in seen(world, book) {
        let new = |what, event| Violation::new(Checker::Sharing, world.now(), what).event(event).place(Some(place));
        for (index, (event, group)) in
            by.iter().enumerate().flat_map(|(index, viewers)| viewers.iter().map(move |&viewer| (index, viewer)))
        {
            let Some(viewer) = world.books().get(group) else {
                return Err(new("a closed event looks at a master", event));
            };
            let wanted = world.attr(event);
            if !wanted.is_some_and(|wanted| same(&wanted, &of_master[index])) {
                return Err(new("an event shares with one that asks something else", event));
            }
            let whole = viewer.tags.len() == book.tags.len()
                && asked(world, &viewer.tags).iter().zip(&of_master).all(|(one, other)| same(one, other))
                && viewer.tags.get(index) == Some(&event);
            let singly = viewer.tags.len() == 1 && !book.pinned && !book.exclusive;
            if !whole && !singly {
                return Err(new("a part of a group shares with a part of another", event));
            }
        }
        if is_alone(world, book)
            && let Some((event, _)) = by.first().and_then(|viewers| viewers.get(1))
        {
            return Err(new("an event shares that must be alone", *event));
        }
    }
    Ok(())
}

/// What is asked where, on which CPU only.
type ShareQuestion = (ContextKey, Option<pmux_engine::CpuId>, Vec<(PmuId, Attr)>);

/// No group that asks the same as others has a counter of its own, unless it came too late for theirs.
pub(super) fn as_few_as_questions(world: &World) -> Result<(), Violation> {
    // What can still be joined, place by place.
    let mut questions: Vec<ShareQuestion> = Vec::new();
    let mut masters = 0;
    for (_, book) in world.books().iter().filter(|(_, book)| book.is_master()) {
        let asked = asked(world, &book.tags);
        if was_alone(world, book) {
            continue;
        }
        let root = book.root().map(|root| root.context);
        let places: Vec<_> = world.state(|state| {
            let places = state.places(&book.tags).into_iter();
            let here = places.filter_map(|(place, only_on)| {
                let site = state.ledger.site(state.site_at(book.tags[0], place, only_on)?)?;
                let is_root = root.is_none_or(|root| root == place);
                let watched = book.tags.iter().any(|&tag| {
                    let site = state.site_at(tag, place, only_on).and_then(|site| state.ledger.site(site));
                    site.is_some_and(|site| !site.viewers.is_empty())
                });
                (is_root && watched).then_some((place, only_on, site.dead))
            });
            here.collect()
        });
        masters += places.len();
        // Once it has had children, no group joins it any more.
        let forked = book
            .family()
            .is_some_and(|family| world.engine().with_family(family, |family| family.forks() > 0).unwrap_or(true));
        for (place, only_on, dead) in places {
            if dead || forked || book.is_taken() {
                continue;
            }
            let again = questions.iter().any(|(other, filter, question)| {
                (*other, *filter) == (place, only_on)
                    && question.len() == asked.len()
                    && question.iter().zip(&asked).all(|(one, other)| same(one, other))
            });
            if again {
                let what = "two counters are programmed for one question";
                return Err(Violation::new(Checker::Sharing, world.now(), what).event(book.tags[0]).place(Some(place)));
            }
            questions.push((place, only_on, asked.clone()));
        }
    }
    let found = world.engine().census().masters;
    if found == masters {
        return Ok(());
    }
    let what = "the engine has more or fewer masters than are looked at";
    Err(Violation::new(Checker::Sharing, world.now(), what).numbers(masters as u64, found as u64))
}
