//! What is open changes: a breakpoint comes to watch something else, a set moves to other CPUs.
//!
//! **Invariant:** a change that was refused has changed nothing, and what was counted while it was tried counts for nobody.

use super::super::ledger::{Event, Gate, Window};
use super::super::state::State;
use super::moves::Future;
use super::sets::{Set, place_on};
use super::{BookKind, World};
use crate::check::{debug_registers, refusals};
use pmux_abi::attr::Attr;
use pmux_engine::context::ContextKey;
use pmux_engine::shell::{RemaskError, SetError};
use pmux_engine::system_wide::{Absent, CpuMask};
use pmux_engine::{CpuId, EventId, ModifyError, OpenError, SetId};

/// What is noted of an event in one place.
struct Kept {
    event: Event,
    kin: u32,
    ran: Window,
    lost: u64,
    least: Gate,
    most: Gate,
}

/// An event, as the engine knows it.
#[derive(Clone, Copy)]
enum Which {
    Single(EventId),
    /// By its set and its place in it: it has no id of its own.
    OfSet(SetId, usize),
}

impl World {
    /// Lets a breakpoint watch what `attr` says, one of a set on all its CPUs; its flags stay.
    ///
    /// # Errors
    /// The engine's; it then watches what it watched.
    pub fn modify(&mut self, event: Event, attr: Attr) -> Result<(), ModifyError> {
        let number = self.number_of(event).ok_or(ModifyError::Closed)?;
        let (pmu, before) = self.attr(event).ok_or(ModifyError::Closed)?;
        let after = Attr { flags: before.flags, ..attr };
        let struck = self.refusals();
        self.books.touch(number);
        let set = self.set_of(event).and_then(|(set, index)| Some((self.set_id(set)?, index)));
        let which = match (set, self.id_of(event)) {
            (Some((set, index)), _) => Which::OfSet(set, index),
            (None, Some((_, id))) => Which::Single(id),
            (None, None) => return Err(ModifyError::Closed),
        };
        let future = match which {
            Which::Single(_) => self.future_of(number, event),
            Which::OfSet(..) => Future::Stays(event),
        };
        let (result, needs) = match (which, future) {
            (Which::Single(id), Future::Moves) => self.change_master((number, event, id), after),
            (_, Future::Moves) => return Err(ModifyError::Closed),
            (_, Future::Stays(counted)) => {
                let result = self.change_in_place((event, counted), which, (before, after));
                // What it has serves the new question as well.
                (result, debug_registers::more(self, pmu, before, after))
            }
        };
        let violations = [
            refusals::of_change(self, event, (pmu, after), result, struck),
            debug_registers::changed(self, event, &needs, (pmu, after), result),
        ];
        violations.into_iter().flatten().for_each(|violation| self.report(violation));
        result
    }

    /// Lets what counts for an event, which may be a master that is its own, count something else.
    fn change_in_place(
        &mut self,
        (event, counted): (Event, Event),
        which: Which,
        (before, after): (Attr, Attr),
    ) -> Result<(), ModifyError> {
        self.with(|state| state.changing = Some(counted));
        let attr = Attr { sig_data: counted.to_word(), ..after };
        let result = match which {
            Which::Single(id) => self.call(|engine| engine.modify(id, &attr)),
            Which::OfSet(set, index) => {
                self.call(|engine| engine.modify_set(set, index, &attr)).map_err(|refused| refused.error)
            }
        };
        let asks = if result.is_ok() { after } else { before };
        self.with(|state| {
            state.changing = None;
            state.ledger.ask_anew(counted, &asks);
            state.ledger.ask_anew(event, &asks);
        });
        if counted != event {
            self.note_taken_along(counted, result);
        }
        result
    }

    /// Moves a set to the CPUs of another mask; it waits for those that are offline.
    ///
    /// # Errors
    /// The engine's; it is then where it was.
    pub fn remask(&mut self, set: Set, mask: &CpuMask) -> Result<(), RemaskError> {
        let number = self.set_number(set).ok_or(RemaskError::Closed)?;
        let Some(book) = self.books.set(number) else { return Err(RemaskError::Closed) };
        let (id, before) = (book.id, book.mask.clone());
        let without =
            |one: &CpuMask, other: &CpuMask| -> Vec<CpuId> { one.iter().filter(|&cpu| !other.contains(cpu)).collect() };
        let (joining, leaving) = (without(mask, &before), without(&before, mask));
        self.bring_samples();
        let kept = self.keep(number, &joining);
        for &cpu in joining.iter().filter(|&&cpu| self.is_online(cpu)).collect::<Vec<_>>() {
            self.expect_set_on(number, cpu);
        }
        leaving.iter().for_each(|&cpu| self.expect_set_off(number, cpu));
        let open_before = self.set_is_on(number).into_iter().collect();
        let struck = self.refusals();
        let result = self.call(|engine| engine.remask(id, mask, Absent::Await));
        if result.is_ok()
            && let Some(book) = self.books.set_mut(number)
        {
            book.mask.clone_from(mask);
        }
        self.revive_set_on(number, &joining, &open_before);
        self.settle_set_on(number, &[&joining[..], &leaving].concat());
        match result {
            Ok(()) => {
                let want = |state: &mut State, cpus: &[CpuId], more| {
                    cpus.iter().for_each(|&cpu| state.want(ContextKey::Cpu(cpu), more));
                };
                self.with(|state| {
                    want(state, &joining, 1);
                    want(state, &leaving, -1);
                });
                let wanted = self.wanted_by(number, &joining);
                debug_registers::granted(self, &wanted).into_iter().for_each(|violation| self.report(violation));
            }
            Err(RemaskError::Refused(error)) => {
                self.with(|state| kept.iter().for_each(|kept| state.restore(kept)));
                self.judge_remask(number, &joining, error, struck);
            }
            Err(_) => {}
        }
        result
    }

    /// A set may stop counting on a CPU from now on.
    fn expect_set_off(&mut self, number: u32, cpu: CpuId) {
        let Some(scope) = self.books.set(number).map(|set| set.scope) else { return };
        let (place, only_on) = place_on(scope, cpu);
        for tag in self.events_of_set(number) {
            self.with(|state| {
                let Some(kin) = state.kin_at(tag, place, only_on) else { return };
                let total = state.kin_total(kin);
                if let Some(kin) = state.ledger.kin_mut(kin) {
                    kin.least.set(false, total);
                }
            });
        }
    }

    fn wanted_by(&self, number: u32, cpus: &[CpuId]) -> debug_registers::Wanted {
        let Some(set) = self.books.set(number) else { return debug_registers::Wanted::nothing() };
        let group = |&book: &u32| {
            let tags = self.books.get(book).map(|book| &book.tags[..]).unwrap_or_default();
            tags.iter().filter_map(|&tag| self.attr(tag)).collect()
        };
        let groups: Vec<Vec<_>> = set.books.iter().map(group).collect();
        debug_registers::Wanted::of_set(self, &groups, set.scope, cpus.iter().copied())
    }

    fn judge_remask(&mut self, number: u32, joining: &[CpuId], error: SetError, struck: u64) {
        let SetError { group, error, .. } = error;
        let book = self.books.set(number).and_then(|set| self.books.get(*set.books.get(group)?));
        let Some(book) = book else { return };
        // What is pinned finds no counter where others are.
        if !(book.pinned && matches!(error, OpenError::Bank { .. })) {
            let asked: Vec<_> = book.tags.iter().filter_map(|&tag| self.attr(tag)).collect();
            self.judge_refusal(&asked, None, error, struck);
        }
        let wanted = self.wanted_by(number, joining);
        debug_registers::refused(self, &wanted, error).into_iter().for_each(|violation| self.report(violation));
    }

    /// What is noted of a set's events on these CPUs.
    fn keep(&mut self, number: u32, cpus: &[CpuId]) -> Vec<Kept> {
        let Some(scope) = self.books.set(number).map(|set| set.scope) else { return Vec::new() };
        let events = self.events_of_set(number);
        self.with(|state| {
            let places = cpus.iter().map(|&cpu| place_on(scope, cpu));
            let mut kept = Vec::with_capacity(cpus.len() * events.len());
            for (place, only_on) in places {
                for &event in &events {
                    let kin = state.kin(event, place, only_on);
                    if let Some(it) = state.ledger.kin(kin) {
                        let (ran, lost, least, most) = (it.ran, it.lost, it.least, it.most);
                        kept.push(Kept { event, kin, ran, lost, least, most });
                    }
                }
            }
            kept
        })
    }

    /// Whether the children of an event are counted now.
    pub(crate) fn has_live_children(&self, event: Event) -> bool {
        let number = self.number_of(event);
        let Some(BookKind::Group { target, .. }) = number.and_then(|it| self.books.get(it)).map(|book| &book.kind)
        else {
            return false;
        };
        let root = target.context;
        self.state(|state| {
            let kins = state.ledger.tag(event).map(|tag| &tag.kins[..]).unwrap_or_default();
            kins.iter().filter_map(|&kin| state.ledger.kin(kin)).any(|kin| !kin.retired && kin.place != root)
        })
    }
}

impl State {
    /// What was noted since is forgotten.
    fn restore(&mut self, kept: &Kept) {
        let Kept { event, kin, ran, lost, least, most } = *kept;
        let Some(it) = self.ledger.kin_mut(kin) else { return };
        let (mut since, lost_since) = (it.ran, it.lost.wrapping_sub(lost));
        since -= ran;
        (it.ran, it.lost, it.least, it.most) = (ran, lost, least, most);
        if let Some(tag) = self.ledger.tag_mut(event) {
            tag.ran -= since;
            tag.lost = tag.lost.wrapping_sub(lost_since);
        }
    }
}
