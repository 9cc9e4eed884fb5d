//! An event whose counter others use as well comes to ask something else.
//!
//! What it is: two ways of it. Where a group is the only one to use its master, it takes that along, and has it for itself from
//! then on. Otherwise it gets another master, which may be there already, and sees what that counts; what it has seen stays.
//! Read first: [`World::future_of`].
//!
//! **Invariant:** which way it goes is foretold from the books, and which master an event has got is asked of the engine.

use super::super::ledger::{Event, Kin, Window};
use super::super::state::State;
use super::super::views::Sight;
use super::events::home_of;
use super::{BookKind, World};
use crate::check::is_alone;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::pmu::BankError;
use pmux_engine::{EventId, ModifyError, PmuId, Target};

/// What becomes of an event's counter when the event comes to ask something else.
pub(super) enum Future {
    /// It goes on with it; it is programmed under this name.
    Stays(Event),
    /// It gets another one.
    Moves,
}

/// A change's result, and what it had to find debug registers for.
pub(super) type Changed = (Result<(), ModifyError>, Vec<(PmuId, Attr)>);

impl World {
    /// What becomes of an event's counter when the event comes to ask something else.
    pub(super) fn future_of(&self, number: u32, event: Event) -> Future {
        if !self.is_shared(event) {
            return Future::Stays(event);
        }
        let stays = || {
            let book = self.books.get(number)?;
            let index = book.tags.iter().position(|&tag| tag == event)?;
            let masters = self.state(|state| state.masters_of(&book.tags));
            let master = self.books.get(self.number_of(*masters.first()?)?)?;
            let counted = *master.tags.get(index)?;
            let place = book.root().map(|root| root.context);
            let alone = self.state(|state| state.groups_that_see(&master.tags, place)) == [number];
            let whole = master.tags.len() == book.tags.len();
            (is_alone(self, master) || (alone && whole)).then_some(counted)
        };
        stays().map_or(Future::Moves, Future::Stays)
    }

    /// Whether the books can follow an event that comes to ask something else: not one of a set that shares, nor where it would take
    /// along a master under whose name a set has opened others, or may open more. A name is what a register is known by.
    #[must_use]
    pub fn can_follow(&self, event: Event) -> bool {
        let Some(number) = self.number_of(event) else { return true };
        if self.set_of(event).is_some() {
            return !self.is_shared(event);
        }
        let Future::Stays(counted) = self.future_of(number, event) else { return true };
        let of_set = self.number_of(counted).and_then(|master| self.books.get(master)).filter(|book| book.is_of_set());
        let is_only_one = |master: &super::Book| self.state(|state| state.places(&master.tags).len()) == 1;
        of_set.is_none_or(|master| master.is_left_by_set() && is_only_one(master))
    }

    /// A group that is the only one to use a master was to take it along.
    pub(super) fn note_taken_along(&mut self, master: Event, result: Result<(), ModifyError>) {
        // Whatever else is wrong is seen before it is taken.
        let taken = match result {
            Ok(()) | Err(ModifyError::DebugRegisters { .. }) => true,
            Err(ModifyError::Bank(error)) => error != BankError::NoSuchTask,
            Err(_) => false,
        };
        if taken && let Some(number) = self.number_of(master) {
            self.books.belongs_to_one(number);
        }
    }

    /// Lets an event ask something else whose master is not its own: its group gets another one.
    pub(super) fn change_master(&mut self, (number, event, id): (u32, Event, EventId), after: Attr) -> Changed {
        let Some(book) = self.books.get(number) else { return (Err(ModifyError::Closed), Vec::new()) };
        let BookKind::Group { events, target, .. } = &book.kind else {
            return (Err(ModifyError::Closed), Vec::new());
        };
        let (tags, events, target) = (book.tags.clone(), events.clone(), *target);
        let asks = |&tag: &Event| {
            let (pmu, attr) = self.attr(tag)?;
            Some((pmu, if tag == event { after } else { attr }))
        };
        let asked: Vec<_> = tags.iter().filter_map(asks).collect();
        // A master of the group would be opened under these names.
        let offered_number = self.books.reserve();
        let (offered, _) = self.tag(&asked, home_of(target.context), offered_number);
        let names = events
            .iter()
            .zip(&offered)
            .filter_map(|(&event, offered)| Some((self.counted_as(event)?.to_word(), offered.to_word())));
        let names: Vec<_> = names.collect();
        let word = tags.iter().position(|&tag| tag == event).map_or(0, |index| offered[index].to_word());
        let (struck, unread) = (self.refusals(), self.refused_readings());
        self.machine.shared.pmus.iter().for_each(|pmu| pmu.rename(&names));
        let result = self.call(|engine| engine.modify(id, &Attr { sig_data: word, ..after }));
        self.machine.shared.pmus.iter().for_each(|pmu| pmu.rename(&[]));
        if result.is_err() {
            self.drop_tags(&offered);
            self.books.give_up(offered_number);
            return (result, asked);
        }
        self.with(|state| state.ledger.ask_anew(event, &after));
        self.see_another(number, (offered_number, offered), &asked, &events, target);
        self.note_unread(&tags, unread);
        if self.refusals() > struck {
            self.with(|state| tags.iter().for_each(|&tag| state.each_kin(tag, |kin| kin.doubtful = true)));
        }
        (result, asked)
    }

    /// A group looks at another master from now on: one that was opened under the names offered, or one that was there.
    fn see_another(
        &mut self,
        number: u32,
        (offered_number, offered): (u32, Vec<Event>),
        asked: &[(PmuId, Attr)],
        events: &[EventId],
        target: Target,
    ) {
        let Some(tags) = self.books.get(number).map(|book| book.tags.clone()) else { return };
        let only_on = if let Filter::OnCpu(cpu) = target.filter { Some(cpu) } else { None };
        let flags = asked.first().map_or(AttrFlags::empty(), |(_, attr)| attr.flags);
        let family = events.first().and_then(|&event| self.engine().family_of(event));
        let before = self.state(|state| state.masters_of(&tags));
        let left = self.with(|state| {
            let look_away = |&tag: &Event| (tag, state.look_away_everywhere(tag));
            tags.iter().map(look_away).collect::<Vec<_>>()
        });
        let leader = events.first().and_then(|&event| self.counted_as(event));
        if leader.is_some() && leader == offered.first().copied() {
            self.with(|state| state.note_place(&offered, asked, target.context, only_on));
            self.enter_master((offered_number, offered), flags, target, family);
        } else {
            self.drop_tags(&offered);
            self.books.give_up(offered_number);
        }
        for (&tag, &event) in tags.iter().zip(events) {
            self.link(tag, event, target.context, only_on);
            let master = family.and_then(|_| self.counted_as(event));
            self.with(|state| {
                let view = state.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut());
                view.into_iter().for_each(|view| view.master = master);
            });
        }
        if let Some(BookKind::Group { family: of_group, .. }) = self.books.kind_mut(number) {
            *of_group = family;
        }
        let switched = self.with(|state| state.settle_views(&tags));
        self.tell_moments(&switched, &left);
        self.settle_views(&tags);
        self.settle_masters(&before);
    }
}

impl State {
    /// The groups that look at one of these events where a group is, each once. A family is looked at as a whole.
    fn groups_that_see(&self, masters: &[Event], place: Option<ContextKey>) -> Vec<u32> {
        let kins = masters.iter().filter_map(|&master| self.ledger.tag(master)).flat_map(|tag| &tag.kins);
        let is_here = |kin: &&Kin| match (kin.place, place) {
            (ContextKey::Cpu(_), Some(here)) => kin.place == here,
            _ => true,
        };
        let viewers = kins.filter_map(|&kin| self.ledger.kin(kin)).filter(is_here).flat_map(|kin| &kin.viewers);
        let group = |&viewer: &u32| {
            let event = self.ledger.event_at(self.ledger.kin(viewer)?.tag)?;
            Some(self.ledger.tag(event)?.group)
        };
        let mut groups: Vec<_> = viewers.filter_map(group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// An event looks at no master any more, in no place: what it has seen stays. What it saw in the last call.
    fn look_away_everywhere(&mut self, tag: Event) -> Window {
        let kins = self.ledger.tag(tag).map(|tag| tag.kins.clone()).unwrap_or_default();
        let master = self.ledger.tag(tag).and_then(|tag| tag.view?.master);
        let is_open = |&&kin: &&u32| self.ledger.kin(kin).is_some_and(|kin| kin.seen.is_open());
        let mut seen = match self.ledger.tag(tag).and_then(|tag| tag.view.as_ref()) {
            Some(view) if master.is_some() && view.seen.is_open() => self.counted_in_call(Sight::Everywhere(tag)),
            _ => Window::default(),
        };
        if master.is_none() {
            kins.iter().filter(is_open).for_each(|&kin| seen += self.counted_in_call(Sight::Kin(kin)));
        }
        let now = master.map_or_else(Window::default, |master| self.counted_anywhere(master));
        if let Some(view) = self.ledger.tag_mut(tag).and_then(|tag| tag.view.as_mut()).filter(|_| master.is_some()) {
            view.seen.set(false, now);
        }
        kins.into_iter().for_each(|kin| self.look_away(kin));
        seen
    }
}
