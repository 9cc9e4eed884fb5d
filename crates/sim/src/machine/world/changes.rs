//! A breakpoint that is open comes to watch something else.
//!
//! What it is: one that has its counter for itself is changed, and one that shares it with others is refused. A master that only one
//! group uses is that group's own from then on.
//! Read first: [`World::modify`].
//!
//! **Invariant:** whether an event has its counter for itself is foretold from the books.

use super::super::ledger::{CountSite, Event};
use super::super::state::State;
use super::views::MasterUsers;
use super::{BookKind, World};
use crate::check::{debug_registers, is_alone, refusals};
use pmux_abi::attr::Attr;
use pmux_engine::ModifyError;
use pmux_engine::pmu::BankError;
use pmux_engine::target::ContextKey;
use std::collections::BTreeSet;

impl World {
    /// Lets a breakpoint watch what `attr` says; its flags stay.
    ///
    /// # Errors
    /// The engine's; it then watches what it watched.
    pub fn modify(&mut self, event: Event, attr: Attr) -> Result<(), ModifyError> {
        let (number, id) = self.id_of(event).ok_or(ModifyError::Closed)?;
        let (pmu, before) = self.attr(event).ok_or(ModifyError::Closed)?;
        let after = Attr { flags: before.flags, ..attr };
        let struck = self.refusals();
        self.books.touch(number);
        let own = self.own_counter(number, event);
        let counted = own.unwrap_or(event);
        self.with(|state| state.changing = Some(counted));
        let attr = Attr { sig_data: counted.to_word(), ..after };
        let result = self.call(|engine| engine.modify(id, &attr));
        let asks = if result.is_ok() { after } else { before };
        self.with(|state| {
            state.changing = None;
            state.ledger.ask_anew(counted, &asks);
            state.ledger.ask_anew(event, &asks);
        });
        if counted != event {
            self.note_kept(counted, result);
        }
        // What it has serves the new question as well.
        let needs = debug_registers::more(self, pmu, before, after);
        let violations = [
            refusals::of_change(self, event, (pmu, after), own.is_none(), result, struck),
            debug_registers::changed(self, event, &needs, (pmu, after), result),
        ];
        violations.into_iter().flatten().for_each(|violation| self.report(violation));
        result
    }

    /// Under which name the counter of an event is programmed; `None` where others use it, too.
    fn own_counter(&self, number: u32, event: Event) -> Option<Event> {
        if !self.is_shared(event) {
            return Some(event);
        }
        let counted = *self.state(|state| state.masters_of(&[event])).first()?;
        let master = self.books.get(self.number_of(counted)?)?;
        let place = self.books.get(number)?.root().map(|root| root.context);
        let alone = || self.state(|state| state.groups_that_see(&master.tags, place)) == [number];
        (is_alone(self, master) || alone()).then_some(counted)
    }

    /// Whether the books can follow an event that comes to ask something else: not where its master would be its own under whose name
    /// a set has opened others, or may open more. A name is what a register is known by.
    #[must_use]
    pub fn can_follow(&self, event: Event) -> bool {
        let own = self.number_of(event).and_then(|number| self.own_counter(number, event));
        let master = own.and_then(|counted| self.books.get(self.number_of(counted)?)).filter(|book| book.is_of_set());
        let is_only_one = |master: &super::Book| self.state(|state| state.places(&master.tags).len()) == 1;
        master.is_none_or(|master| master.is_left_by_set() && is_only_one(master))
    }

    /// A master was to become the own one of the only group that uses it.
    fn note_kept(&mut self, master: Event, result: Result<(), ModifyError>) {
        // Whatever else is wrong is seen before.
        let kept = match result {
            Ok(()) | Err(ModifyError::DebugRegisters { .. }) => true,
            Err(ModifyError::Bank(error)) => error != BankError::NoSuchTask,
            Err(_) => false,
        };
        if kept
            && let Some(number) = self.number_of(master)
            && let Some(BookKind::Master { users, .. }) = self.books.kind_mut(number)
        {
            *users = MasterUsers::OneGroup;
        }
    }

    pub(crate) fn has_live_children(&self, event: Event) -> bool {
        let number = self.number_of(event);
        let Some(BookKind::Group { target, .. }) = number.and_then(|it| self.books.get(it)).map(|book| &book.kind)
        else {
            return false;
        };
        let root = target.context;
        self.state(|state| state.ledger.sites_of(event).any(|site| !site.retired && site.place != root))
    }
}

impl State {
    /// The groups that look at one of these events where a group is, each once. A family is looked at as a whole.
    fn groups_that_see(&self, masters: &[Event], place: Option<ContextKey>) -> Vec<u32> {
        let sites = masters.iter().flat_map(|&master| self.ledger.sites_of(master));
        let is_here = |site: &&CountSite| match (site.place, place) {
            (ContextKey::Cpu(_), Some(here)) => site.place == here,
            _ => true,
        };
        let viewers = sites.filter(is_here).flat_map(|site| &site.viewers);
        let groups = viewers.filter_map(|&viewer| self.ledger.group_at(viewer));
        groups.collect::<BTreeSet<_>>().into_iter().collect()
    }
}
