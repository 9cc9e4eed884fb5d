//! Event sets and triggers of a scenario, on the simulated machine.
//!
//! **Invariant:** what is due is looked at behind each statement that is no expectation, triggers first: what they promise may go on.

use super::super::ast::{EventSet, Name, Part, Subject, Switching, Trigger};
use super::super::eval::Observe as _;
use super::super::trigger_watch::TriggerWatch;
use super::execution::{Execution, Refused};
use super::naming::Bound;
use super::observe::Facts;
use crate::machine::SwitchTarget;
use pmux_engine::Count;
use pmux_engine::engine::SwitchError;

impl Execution {
    pub(super) fn gather(&mut self, set: &EventSet) -> Result<(), Refused> {
        let mut members = Vec::new();
        for target in &set.members {
            let number = self.names.open_number(target.name())?;
            let Some(record) = self.names.records.get(number) else { continue };
            match &record.bound {
                Bound::Task(event, _) => members.push(SwitchTarget::Group(*event)),
                Bound::Cpus(events) => members.extend(events.iter().map(|&(_, event)| SwitchTarget::Group(event))),
                Bound::Set(set, _) => members.push(SwitchTarget::Set(*set)),
            }
        }
        let id = self.world.gather(members).map_err(Refused::of_control)?;
        self.event_sets.insert(set.name.text.clone(), id);
        Ok(())
    }

    pub(super) fn switch_set(&mut self, switching: &Switching) -> Result<(), Refused> {
        let name = &switching.set;
        let id = self.event_sets.get(name.as_str()).copied();
        let id = id.ok_or_else(|| Refused::Unusable(format!("there is no event set `{name}`")))?;
        self.world.switch_event_set(id, switching.request()).map_err(refused)
    }

    pub(super) fn await_trigger(&mut self, trigger: &Trigger) {
        let count = self.count_of(&trigger.event);
        self.trigger_watches.push(TriggerWatch::new(trigger, self.world.now(), count));
    }

    fn count_of(&self, event: &Name) -> Option<Count> {
        Facts(self).count(&Subject { event: event.clone(), part: Part::Whole }).ok()
    }

    /// Looks at all triggers, and switches what is due.
    pub(super) fn look_around(&mut self) -> Result<(), Refused> {
        let mut trigger_watches = std::mem::take(&mut self.trigger_watches);
        let switched = trigger_watches.iter_mut().try_for_each(|trigger_watch| {
            let (count, now) = (self.count_of(&trigger_watch.trigger().event), self.world.now());
            if trigger_watch.look(now, count) { self.switch_set(&trigger_watch.trigger().switches) } else { Ok(()) }
        });
        self.trigger_watches = trigger_watches;
        switched?;
        self.world.settle_event_sets().map_err(refused)
    }
}

fn refused(error: SwitchError) -> Refused {
    match error {
        SwitchError::Member { error: why, .. } => Refused::errno(why.errno(), error.to_string()),
        SwitchError::Closed => Refused::Unusable(error.to_string()),
    }
}
