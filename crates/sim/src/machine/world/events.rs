//! Opening, closing, and switching events.

use super::super::faults::InjectedFault;
use super::super::ledger::{Event, Home};
use super::super::state::State;
use super::{BookKind, World};
use crate::check::{Checker, Violation, debug_registers, refusals};
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling};
use pmux_engine::hw_breakpoint::{BpTarget, Claim, Holder, Kind, OutsideId};
use pmux_engine::inherit::Attribution;
use pmux_engine::pmu::BankError;
use pmux_engine::share::SharingScope;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{ControlError, CpuId, EventId, EventState, GroupSpec, OpenError, PmuId, ReadError, Target};

/// Whether an event counts as soon as it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// It does, if there is room.
    Enabled,
    /// Its leader is off until it is enabled; the siblings are on, and count when the leader does.
    LeaderOff,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SwitchOp {
    Enable,
    Disable,
    Reset,
}

impl World {
    /// Opens a group, the leader first; a single event is a group of one. How it is opened stands in its attributes
    /// (`PINNED`, `EXCLUSIVE`, `INHERIT`, `ENABLE_ON_EXEC`); `sig_data` is taken by the machine.
    ///
    /// # Errors
    /// The engine's; [`BankError::NoSuchTask`] for a task that does not live, which the engine leaves to its host. Where a
    /// group can't be enabled, it is open all the same: its state says so.
    pub fn open(&mut self, events: &[(PmuId, Attr)], target: Target, start: Start) -> Result<Vec<Event>, OpenError> {
        self.open_in(SharingScope::default(), events, target, start)
    }

    /// The same, sharing with what was opened in the same domain. In [`SharingScope::RECORDS`] an event gets its samples when it has a ring.
    ///
    /// # Errors
    /// As [`World::open`].
    pub fn open_in(
        &mut self,
        domain: SharingScope,
        events: &[(PmuId, Attr)],
        target: Target,
        start: Start,
    ) -> Result<Vec<Event>, OpenError> {
        if let ContextKey::Task(task) = target.context
            && !self.lives(task)
        {
            return Err(OpenError::Bank { index: 0, error: BankError::NoSuchTask });
        }
        let home = home_of(target.context);
        let number = self.books.reserve();
        let (tags, spec) = self.tag(events, home, number);
        let struck = self.refusals();
        let opened = match self.call(|engine| engine.open_in(domain, &spec, target)) {
            Ok(opened) => opened,
            Err(error) => {
                let refused = refusals::refused(self, events, target.bound_to(), error, struck);
                let wanted = debug_registers::RegisterDemand::of_group(self, events, target);
                let violations = refused.into_iter().chain(debug_registers::refused(self, &wanted, error));
                violations.for_each(|violation| self.report(violation));
                self.drop_tags(&tags);
                self.books.give_up(number);
                return Err(error);
            }
        };
        // An event that takes samples has a counter for itself, but where it shares them.
        let counts_only = events.iter().all(|(_, attr)| attr.sampling == Sampling::None);
        if self.shares() && (counts_only || domain == SharingScope::RECORDS) {
            let tags = self.enter_view((number, tags), (events, home), opened, target);
            let wanted = debug_registers::RegisterDemand::of_group(self, events, target);
            debug_registers::granted(self, &wanted).into_iter().for_each(|violation| self.report(violation));
            self.begin(&tags, start);
            return Ok(tags);
        }
        let flags = events.first().map_or(AttrFlags::empty(), |(_, attr)| attr.flags);
        let family = match target.context {
            ContextKey::Task(task) if flags.contains(AttrFlags::INHERIT) => {
                let roots = opened.events.iter().map(|&event| vec![event]).collect();
                self.call(|engine| engine.create_tree(task, roots, self.attribution))
            }
            _ => None,
        };
        let (opened_at, keeps_each) = (self.now(), self.attribution == Attribution::EachTask);
        let only_on = if let Filter::OnCpu(cpu) = target.filter { Some(cpu) } else { None };
        self.with(|state| {
            for (&tag, &id) in tags.iter().zip(&opened.events) {
                state.ledger.tag_mut(tag).into_iter().for_each(|tag| tag.id = Some(id));
            }
            state.note_place(&tags, events, target.context, only_on);
            state.want(target.context, 1);
        });
        let kind = BookKind::Group { id: opened.group, events: opened.events, target, family, keeps_each };
        self.books.enter(number, tags.clone(), kind, flags, opened_at);
        let wanted = debug_registers::RegisterDemand::of_group(self, events, target);
        debug_registers::granted(self, &wanted).into_iter().for_each(|violation| self.report(violation));
        self.begin(&tags, start);
        Ok(tags)
    }

    fn begin(&mut self, tags: &[Event], start: Start) {
        match start {
            Start::LeaderOff => tags.iter().skip(1).for_each(|&tag| {
                // Off as it is, it can't be refused a counter.
                let _ = self.enable(tag);
            }),
            Start::Enabled => {
                if let Some(&leader) = tags.first() {
                    // Whether it is in error then, its state says.
                    let _ = self.enable_group(leader);
                }
            }
        }
    }

    /// A check outside has found something.
    pub(crate) fn report(&mut self, violation: Violation) {
        self.with(|state| state.breach(violation));
    }

    pub(super) fn tag(&mut self, events: &[(PmuId, Attr)], home: Home, number: u32) -> (Vec<Event>, GroupSpec) {
        self.with(|state| {
            let tags: Vec<_> = events.iter().map(|&asked| state.ledger.new_tag(asked, home, number)).collect();
            let named = |(&(pmu, attr), tag): (&(PmuId, Attr), &Event)| (pmu, Attr { sig_data: tag.to_word(), ..attr });
            let spec = GroupSpec { events: events.iter().zip(&tags).map(named).collect() };
            (tags, spec)
        })
    }

    /// No code asks about these events any more: nothing may be left of them.
    pub(super) fn drop_tags(&mut self, tags: &[Event]) {
        self.with(|state| {
            for &tag in tags {
                let programmed = state.ledger.tag(tag).map_or(0, |tag| tag.programmed);
                if programmed > 0 {
                    let violation =
                        Violation::new(Checker::Leftovers, state.now(), "counters are left of a closed event");
                    state.breach(violation.event(tag).numbers(0, u64::from(programmed)));
                }
                state.forget_tag(tag);
            }
        });
    }

    /// Closes the group of an event. Closing what is closed does nothing.
    pub fn close(&mut self, event: Event) {
        let Some(number) = self.number_of(event) else { return };
        let Some(BookKind::Group { id, target, .. }) = self.books.get(number).map(|book| &book.kind) else { return };
        let (id, target) = (*id, *target);
        self.bring_samples();
        self.call(|engine| engine.close(id));
        if let Some(book) = self.books.strike(number) {
            self.keep_debug_registers(&book.tags, target);
            let masters = self.state(|state| state.masters_of(&book.tags));
            self.drop_tags(&book.tags);
            self.settle_masters(&masters);
        }
        self.with(|state| state.want(target.context, -1));
    }

    /// What is planted: debug registers of what is closed stay taken.
    fn keep_debug_registers(&self, tags: &[Event], target: Target) {
        let Some(ledger) = self.engine.ledger().filter(|_| self.is_injected(InjectedFault::KeepDebugRegisters)) else {
            return;
        };
        let place = || match target.context {
            ContextKey::Task(task) => BpTarget::TaskEverywhere(task),
            ContextKey::Cpu(cpu) => BpTarget::Cpus([cpu].into_iter().collect()),
        };
        for attr in tags.iter().filter_map(|&tag| self.attr(tag)).map(|(_, attr)| attr) {
            if attr.kind == EventType::BREAKPOINT {
                let kept = ledger.reserve(Claim::one(Kind::Data), place(), Holder::Outside(OutsideId(0)));
                // For ever.
                drop(kept.map(|token| token.commit()));
            }
        }
    }

    /// Enables an event, in its children too.
    ///
    /// # Errors
    /// The engine's.
    pub fn enable(&mut self, event: Event) -> Result<(), ControlError> {
        self.control(event, SwitchOp::Enable)
    }

    /// Disables an event, in its children too.
    ///
    /// # Errors
    /// The engine's.
    pub fn disable(&mut self, event: Event) -> Result<(), ControlError> {
        self.control(event, SwitchOp::Disable)
    }

    /// Sets the count of an event to 0, in its children too.
    ///
    /// # Errors
    /// The engine's; the count then stays.
    pub fn reset(&mut self, event: Event) -> Result<(), ControlError> {
        self.control(event, SwitchOp::Reset)
    }

    /// Enables the whole group of an event.
    ///
    /// # Errors
    /// The engine's.
    pub fn enable_group(&mut self, event: Event) -> Result<(), ControlError> {
        self.control_group(event, SwitchOp::Enable)
    }

    /// Disables the whole group of an event.
    ///
    /// # Errors
    /// The engine's.
    pub fn disable_group(&mut self, event: Event) -> Result<(), ControlError> {
        self.control_group(event, SwitchOp::Disable)
    }

    fn control(&mut self, event: Event, op: SwitchOp) -> Result<(), ControlError> {
        let (number, id) = self.id_of(event).ok_or(ControlError::Closed)?;
        self.carry_out(number, &[event], op, |world| match op {
            SwitchOp::Enable => world.call(|engine| engine.enable(id)),
            SwitchOp::Disable => world.call(|engine| engine.disable(id)),
            SwitchOp::Reset => world.call(|engine| engine.reset(id)),
        })
    }

    fn control_group(&mut self, event: Event, op: SwitchOp) -> Result<(), ControlError> {
        let id = self.group_of(event).ok_or(ControlError::Closed)?;
        self.switch_group(event, op, |world| match op {
            SwitchOp::Enable => world.call(|engine| engine.enable_group(id)),
            _ => world.call(|engine| engine.disable_group(id)),
        })
    }

    /// Does something that switches the whole group of an event.
    pub(super) fn switch_group(
        &mut self,
        event: Event,
        op: SwitchOp,
        act: impl FnOnce(&mut Self) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let number = self.number_of(event).ok_or(ControlError::Closed)?;
        let tags = self.books.get(number).ok_or(ControlError::Closed)?.tags.clone();
        self.carry_out(number, &tags, op, act)
    }

    fn carry_out(
        &mut self,
        number: u32,
        targets: &[Event],
        op: SwitchOp,
        act: impl FnOnce(&mut Self) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        self.books.touch(number);
        self.bring_samples();
        let unread = self.refused_readings();
        if op == SwitchOp::Reset {
            let before = self.counted_by_now(targets);
            let own = self.masters_reset(targets);
            let before_own = self.counted_by_now(&own);
            let result = act(self);
            match result {
                Ok(()) => {
                    self.forget_counts(targets, &before);
                    self.forget_counts(&own, &before_own);
                }
                Err(error) => {
                    self.forget_what_was_reset(targets, &before);
                    refusals::of_control(self, number, error).into_iter().for_each(|violation| self.report(violation));
                }
            }
            self.note_unread(targets, unread);
            return result;
        }
        let tags = self.books.get(number).map(|book| book.tags.clone()).unwrap_or_default();
        let on = op == SwitchOp::Enable;
        let change = |state: &mut State| {
            for &tag in targets {
                state.each_site(tag, |site| (site.on, site.unknown) = (on, false));
            }
        };
        let tried = if on { self.masters_to_try(&tags, targets) } else { Vec::new() };
        if on && self.shares() {
            // A master begins in one place after the other, while the caller waits.
            self.with(|state| state.open_masters(&tags));
        }
        let result = self.switching(&tags, change, act);
        self.note_request(targets, on);
        // A leader switches all.
        self.note_unread(&tags, unread);
        self.settle_views(&tags);
        // Those that were in error somewhere were tried again.
        self.with(|state| tried.iter().for_each(|&master| state.each_site(master, |site| site.unknown = false)));
        if let Err(error) = result {
            refusals::of_control(self, number, error).into_iter().for_each(|violation| self.report(violation));
            self.with(|state| tags.iter().for_each(|&tag| state.each_site(tag, |site| site.doubtful = true)));
        }
        result
    }

    /// Where an event is in its life.
    ///
    /// # Errors
    /// [`ReadError::Closed`].
    pub fn state_of(&self, event: Event) -> Result<EventState, ReadError> {
        let (_, id) = self.id_of(event).ok_or(ReadError::Closed)?;
        self.call(|engine| engine.state(id))
    }

    /// What was asked for an event, and of which PMU.
    #[must_use]
    pub fn attr(&self, event: Event) -> Option<(PmuId, Attr)> {
        self.state(|state| state.ledger.asked(event))
    }

    pub(crate) fn number_of(&self, event: Event) -> Option<u32> {
        self.state(|state| state.ledger.tag(event).map(|tag| tag.group))
    }

    /// The engine's name for an event that is in no set.
    pub(crate) fn id_of(&self, event: Event) -> Option<(u32, EventId)> {
        self.state(|state| {
            let tag = state.ledger.tag(event)?;
            Some((tag.group, tag.id?))
        })
    }
}

pub(super) const fn home_of(context: ContextKey) -> Home {
    match context {
        ContextKey::Task(_) => Home::Task,
        ContextKey::Cpu(_) => Home::Cpu,
    }
}

impl State {
    /// A group is counted in a place from now on, off.
    pub(super) fn note_place(
        &mut self,
        tags: &[Event],
        events: &[(PmuId, Attr)],
        place: ContextKey,
        only_on: Option<CpuId>,
    ) {
        let pinned = events.first().is_some_and(|(_, attr)| attr.flags.contains(AttrFlags::PINNED));
        for (&tag, (_, attr)) in tags.iter().zip(events) {
            let site = self.site(tag, place, only_on);
            if let Some(site) = self.ledger.site_mut(site) {
                site.on_exec = attr.flags.contains(AttrFlags::ENABLE_ON_EXEC);
                site.doubtful |= pinned;
            }
        }
    }

    /// How many groups want a CPU, whatever runs there.
    pub(super) fn want(&mut self, context: ContextKey, more: i32) {
        if let ContextKey::Cpu(cpu) = context
            && let Some(cpu) = self.cpus.get_mut(cpu.0 as usize)
        {
            cpu.wanted = cpu.wanted.saturating_add_signed(more);
        }
    }

    /// An event and all its places are no more.
    fn forget_tag(&mut self, tag: Event) {
        let sites = self.ledger.tag(tag).map(|tag| tag.sites.clone()).unwrap_or_default();
        sites.into_iter().for_each(|site| self.part(site));
        for site in self.ledger.drop_tag(tag) {
            if let Some(shelf) = self.shelf_mut(site.place) {
                shelf.remove(tag.index, site.only_on);
            }
        }
    }
}
