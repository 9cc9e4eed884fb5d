//! Enabling, disabling, resetting, closing, and changing what is open.
//!
//! **Invariant:** the targets of a statement are dealt with one after the other, up to the first that is refused.

use super::super::ast::{Breakpoint, ControlOp, ControlTarget, Event as AstEvent, Name, OpenForm, Statement};
use super::execution::{Execution, Refused};
use super::naming::{Bound, RecordState};
use crate::machine::{Event, Trace};
use crate::timeline::EventFigures;
use std::rc::Rc;

impl Execution {
    pub(super) fn control(&mut self, verb: ControlOp, target: &ControlTarget) -> Result<(), Refused> {
        let number = self.names.open_number(target.name())?;
        if verb == ControlOp::Close {
            return self.close_target(number, target);
        }
        let Some(record) = self.names.records.get(number) else { return Ok(()) };
        let is_group = matches!(target, ControlTarget::Group(_)) && record.open.form == OpenForm::Group;
        let switched = if let Bound::Set(set, _) = record.bound {
            match verb {
                ControlOp::Enable => self.world.enable_set(set),
                ControlOp::Disable => self.world.disable_set(set),
                _ => self.world.reset_set(set),
            }
        } else {
            // There is no reset of whole groups: each of its events is.
            let each = is_group && verb == ControlOp::Reset;
            let numbers = if each { record.together.clone() } else { number..number + 1 };
            let records = self.names.records.get(numbers).unwrap_or_default();
            let events: Vec<Event> = records.iter().flat_map(|record| record.bound.events()).collect();
            events.into_iter().try_for_each(|event| match (verb, is_group) {
                (ControlOp::Enable, false) => self.world.enable(event),
                (ControlOp::Enable, true) => self.world.enable_group(event),
                (ControlOp::Disable, false) => self.world.disable(event),
                (ControlOp::Disable, true) => self.world.disable_group(event),
                _ => self.world.reset(event),
            })
        };
        switched.map_err(Refused::of_control)
    }

    /// Lets a breakpoint become another one, on all of its CPUs or on none.
    pub(super) fn modify(&mut self, name: &Name, to: Breakpoint) -> Result<(), Refused> {
        let number = self.names.open_number(name)?;
        let Some(record) = self.names.records.get(number) else { return Ok(()) };
        if matches!(record.bound, Bound::Set(..)) {
            return Err(Refused::Unusable(format!("`{name}` is of a system-wide set")));
        }
        let events = record.bound.events();
        self.become_breakpoint(&events, number, to)
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
        match bound {
            Bound::Set(set, _) => self.world.close_set(set),
            bound => bound.events().into_iter().for_each(|event| self.world.close(event)),
        }
    }
}
