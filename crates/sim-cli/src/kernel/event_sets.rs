//! Event sets and triggers of a scenario, on this kernel.
//!
//! **Invariant:** what is due is looked at behind each statement, triggers first: what they promise may go on.

use super::opened::Holding;
use super::{Run, StatementError, Stop};
use pmux::trigger::{SwitchError, Switched};
use pmux::{Count, Nanos};
use pmux_sim::scenario::ast::{EventSet, Name, Part, Subject, Switching, Trigger};
use pmux_sim::scenario::eval::Observe as _;
use pmux_sim::scenario::trigger_watch::TriggerWatch;

impl Run<'_> {
    pub(super) fn gather(&mut self, set: &EventSet) -> Result<(), StatementError> {
        let mut members = Vec::new();
        for target in &set.members {
            match self.opened.both(target.name().as_str())?.1 {
                Holding::Task(group) => members.push(group.switchable()),
                Holding::Cpus(groups) => members.extend(groups.iter().map(|(_, group)| group.switchable())),
                Holding::Set(set) => members.push(set.switchable()),
            }
        }
        self.event_sets.add_exactly(set.name.as_str(), members);
        Ok(())
    }

    pub(super) fn switch_set(&mut self, switching: &Switching) -> Result<(), StatementError> {
        done(&self.event_sets.request(switching.set.as_str(), switching.request()))
    }

    pub(super) fn await_trigger(&mut self, trigger: &Trigger) {
        let count = self.count_of(&trigger.event);
        self.trigger_watches.push(TriggerWatch::new(trigger, now(), count));
    }

    fn count_of(&mut self, event: &Name) -> Option<Count> {
        self.facts().count(&Subject { event: event.clone(), part: Part::Whole }).ok()
    }

    /// Looks at all triggers, and switches what is due.
    pub(super) fn look_around(&mut self) -> Result<(), Stop> {
        let mut trigger_watches = std::mem::take(&mut self.trigger_watches);
        let switched = trigger_watches.iter_mut().try_for_each(|trigger_watch| {
            let (count, now) = (self.count_of(&trigger_watch.trigger().event), now());
            if trigger_watch.look(now, count) { self.switch_set(&trigger_watch.trigger().switches) } else { Ok(()) }
        });
        self.trigger_watches = trigger_watches;
        switched?;
        Ok(self.event_sets.settle().iter().try_for_each(done)?)
    }
}

fn now() -> Nanos {
    Nanos(pmux::workers::monotonic_ns())
}

fn done(switched: &Switched) -> Result<(), StatementError> {
    match switched.result {
        Ok(_) => Ok(()),
        Err(error) => {
            let errno = match error {
                SwitchError::Member { error, .. } => Some(error.errno()),
                SwitchError::Closed => None,
            };
            Err(StatementError { errno, message: format!("event set `{}`: {error}", switched.name) })
        }
    }
}
