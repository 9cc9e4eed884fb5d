//! Event sets and triggers of a scenario, on the simulated machine.
//!
//! **Invariant:** what is due is looked at behind each statement that is no expectation, triggers first: what they promise may go on.

use super::super::ast::{EventSet, Name, Subject, Switching, Trigger};
use super::super::ast::{Part, SourceSpan};
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
        let subject = Subject { event: Name { place: SourceSpan::NOWHERE, ..event.clone() }, part: Part::Whole };
        Facts(self).count(&subject).ok()
    }

    /// Looks at all triggers, and switches what is due.
    pub(super) fn look_around(&mut self) -> Result<(), Refused> {
        for number in 0..self.trigger_watches.len() {
            let Some(event) =
                self.trigger_watches.get(number).map(|trigger_watch| trigger_watch.trigger().event.clone())
            else {
                continue;
            };
            let (count, now) = (self.count_of(&event), self.world.now());
            let Some(trigger_watch) = self.trigger_watches.get_mut(number) else { continue };
            if trigger_watch.look(now, count) {
                let switches = trigger_watch.trigger().switches.clone();
                self.switch_set(&switches)?;
            }
        }
        self.world.settle_event_sets().map_err(refused)
    }

    pub(super) fn fired(&self, name: &Name) -> Result<u64, String> {
        let found = self.trigger_watches.iter().rev().find(|trigger_watch| trigger_watch.trigger().name == *name);
        found.map(TriggerWatch::fired).ok_or_else(|| format!("there is no trigger `{name}`"))
    }
}

fn refused(error: SwitchError) -> Refused {
    match error {
        SwitchError::Member { error: why, .. } => Refused::errno(why.errno(), error.to_string()),
        SwitchError::Closed => Refused::Unusable(error.to_string()),
    }
}
