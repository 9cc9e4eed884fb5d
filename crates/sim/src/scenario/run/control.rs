//! Enabling, disabling, resetting, closing, and changing what is open.
//!
//! **Invariant:** the targets of a statement are dealt with one after the other, up to the first that is refused.

use super::super::ast::{Breakpoint, ControlOp, ControlTarget, Event as AstEvent, Name, OpenForm, Statement};
use super::execution::{Execution, Refused};
use super::naming::{Bound, RecordState};
use crate::machine::{Event, Set, Trace};
use crate::timeline::EventFigures;
use pmux_engine::ControlError;
use std::rc::Rc;

#[derive(Clone, Copy)]
enum SwitchObject {
    Event(Event),
    Group(Event),
    Set(Set),
}

impl Execution {
    pub(super) fn control(&mut self, verb: ControlOp, target: &ControlTarget) -> Result<(), Refused> {
        let number = self.names.open_number(target.name())?;
        if verb == ControlOp::Close {
            return self.close_target(number, target);
        }
        let Some(record) = self.names.records.get(number) else { return Ok(()) };
        let is_group = matches!(target, ControlTarget::Group(_)) && record.open.form == OpenForm::Group;
        let one = |event| if is_group { SwitchObject::Group(event) } else { SwitchObject::Event(event) };
        let objects = match &record.bound {
            Bound::Task(event, _) => vec![one(*event)],
            Bound::Cpus(events) => events.iter().map(|&(_, event)| one(event)).collect(),
            Bound::Set(set, _) => vec![SwitchObject::Set(*set)],
        };
        // There is no reset of whole groups: each of its events is.
        let objects = match (verb, is_group, &record.bound) {
            (ControlOp::Reset, true, Bound::Task(..) | Bound::Cpus(_)) => {
                let together = self.names.records.get(record.together.clone()).unwrap_or_default();
                together.iter().flat_map(|record| record.bound.events()).map(SwitchObject::Event).collect()
            }
            _ => objects,
        };
        objects.into_iter().try_for_each(|object| self.switch(verb, object)).map_err(Refused::of_control)
    }

    fn switch(&mut self, verb: ControlOp, object: SwitchObject) -> Result<(), ControlError> {
        match (verb, object) {
            (ControlOp::Enable, SwitchObject::Event(event)) => self.world.enable(event),
            (ControlOp::Enable, SwitchObject::Group(event)) => self.world.enable_group(event),
            (ControlOp::Enable, SwitchObject::Set(set)) => self.world.enable_set(set),
            (ControlOp::Disable, SwitchObject::Event(event)) => self.world.disable(event),
            (ControlOp::Disable, SwitchObject::Group(event)) => self.world.disable_group(event),
            (ControlOp::Disable, SwitchObject::Set(set)) => self.world.disable_set(set),
            (ControlOp::Reset, SwitchObject::Event(event) | SwitchObject::Group(event)) => self.world.reset(event),
            (ControlOp::Reset, SwitchObject::Set(set)) => self.world.reset_set(set),
            (ControlOp::Close, SwitchObject::Event(event) | SwitchObject::Group(event)) => {
                self.world.close(event);
                Ok(())
            }
            (ControlOp::Close, SwitchObject::Set(set)) => {
                self.world.close_set(set);
                Ok(())
            }
        }
    }

    /// Lets a breakpoint become another one, on all of its CPUs or on none.
    pub(super) fn modify(&mut self, name: &Name, to: Breakpoint) -> Result<(), Refused> {
        let number = self.names.open_number(name)?;
        let Some(record) = self.names.records.get(number) else { return Ok(()) };
        match record.bound.clone() {
            Bound::Task(event, _) => self.become_breakpoint(&[event], number, to),
            Bound::Cpus(events) => {
                let events: Vec<Event> = events.iter().map(|&(_, event)| event).collect();
                self.become_breakpoint(&events, number, to)
            }
            Bound::Set(..) => Err(Refused::Unusable(format!("`{name}` is of a system-wide set"))),
        }
    }

    /// Whether the machine's books follow a statement: see [`World::can_follow`].
    pub(crate) fn can_follow(&self, statement: &Statement) -> bool {
        let Statement::Modify { event, .. } = statement else { return true };
        // A name that means nothing open is the statement's own affair.
        let record = self.names.open_number(event).ok().and_then(|number| self.names.records.get(number));
        record.is_none_or(|record| record.bound.events().iter().all(|&event| self.world.can_follow(event)))
    }

    /// All of these become it, or none.
    fn become_breakpoint(&mut self, events: &[Event], number: usize, breakpoint: Breakpoint) -> Result<(), Refused> {
        let (pmu, attr) = self.resolve_breakpoint(breakpoint)?;
        let before: Vec<_> = events.iter().filter_map(|&event| self.world.attr(event)).collect();
        if before.len() < events.len() || before.iter().any(|(of, _)| *of != pmu) {
            return Err(Refused::Unusable("only a breakpoint can become a breakpoint".into()));
        }
        if !events.iter().all(|&event| self.world.can_follow(event)) {
            let why = "it has the counter that a system-wide set has opened: the simulator can't follow an event that keeps that for itself";
            return Err(Refused::Unusable(why.into()));
        }
        for (at, &event) in events.iter().enumerate() {
            if let Err(error) = self.world.modify(event, attr) {
                for (&event, &(_, attr)) in events.iter().zip(&before).take(at) {
                    let back = self.world.modify(event, attr);
                    back.map_err(|error| Refused::Unusable(format!("it can't become what it was: {error}")))?;
                }
                return Err(Refused::errno(error.errno(), error.to_string()));
            }
        }
        if let Some(record) = self.names.records.get_mut(number)
            && let Some(new) = Rc::make_mut(&mut record.open).events.get_mut(record.index)
        {
            new.event = AstEvent::Breakpoint(breakpoint);
        }
        Ok(())
    }

    fn close_target(&mut self, number: usize, target: &ControlTarget) -> Result<(), Refused> {
        let Some(record) = self.names.records.get(number) else { return Ok(()) };
        let alone = matches!(target, ControlTarget::Event(_)) && !matches!(record.bound, Bound::Set(..));
        if alone && record.open.form == OpenForm::Group && record.open.events.len() > 1 {
            let why = format!("groups are closed whole: write close {{{}}}", record.name);
            return Err(Refused::Unusable(why));
        }
        self.close(number);
        Ok(())
    }

    /// Closes an event with its group or set, and all that it holds. Closing what is closed does nothing.
    pub(super) fn close(&mut self, number: usize) {
        let Some(record) = self.names.records.get(number).filter(|record| matches!(record.state, RecordState::Open))
        else {
            return;
        };
        let (together, bound) = (record.together.clone(), record.bound.clone());
        for number in together.clone() {
            self.figures.lost += self.lost_of(number);
            let figures = (self.options.timeline == Trace::On)
                .then(|| Box::new(EventFigures { closed: Some(self.world.now()), ..self.figures_of(number) }));
            let Some(record) = self.names.records.get_mut(number) else { continue };
            record.state = RecordState::Closed(figures);
        }
        let objects = match bound {
            Bound::Task(event, _) => vec![SwitchObject::Group(event)],
            Bound::Cpus(events) => events.into_iter().map(|(_, event)| SwitchObject::Group(event)).collect(),
            Bound::Set(set, _) => vec![SwitchObject::Set(set)],
        };
        for object in objects {
            // Closing is never refused.
            let _ = self.switch(ControlOp::Close, object);
        }
    }
}
