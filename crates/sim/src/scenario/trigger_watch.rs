//! Triggers of a scenario at work.
//!
//! What it is: a trigger of the engine, and the last reading of its event. The runner of the scenario looks after each statement.
//!
//! **Invariant:** an event that has not run since the last look has no rate, which is neither high nor low.

use super::ast::{Name, Trigger};
use pmux_engine::event_set::{self, Happening, Lasting, Reach, Repeat, Term, TermValue, TriggerSpec, TriggerTarget};
use pmux_engine::{Count, Nanos};
use std::num::NonZeroU32;

/// A trigger that is waited for.
#[derive(Clone, Debug)]
pub struct TriggerWatch {
    trigger: Trigger,
    machine: event_set::Trigger,
    last: Option<(Nanos, Count)>,
}

impl TriggerWatch {
    /// Begins to wait; `count` is what its event has counted by now, where that is known.
    #[must_use]
    pub fn new(trigger: &Trigger, now: Nanos, count: Option<Count>) -> Self {
        let spec = TriggerSpec {
            terms: vec![Term { lasting: Lasting::Level, held: trigger.held, reach: Reach::Common }],
            every: NonZeroU32::new(trigger.every).unwrap_or(NonZeroU32::MIN),
            repeat: Repeat::OnEdge,
            rounds: trigger.rounds,
            cool_down: Nanos::ZERO,
        };
        let machine = event_set::Trigger::new(spec, now);
        Self { trigger: trigger.clone(), machine, last: count.map(|count| (now, count)) }
    }

    /// What it waits for.
    #[must_use]
    pub const fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// Looks at its event; answers whether it fires. Where no time has passed there is no rate, and nothing is looked at.
    pub fn look(&mut self, now: Nanos, count: Option<Count>) -> bool {
        let Some((then, before)) = self.last else {
            self.last = count.map(|count| (now, count));
            return false;
        };
        if now <= then {
            return false;
        }
        let since = count.map(|count| count.less(&before));
        let value = TermValue::of_rate(since, now.since(then), self.trigger.amount, self.trigger.per);
        if let Some(count) = count {
            self.last = Some((now, count));
        }
        let mut said = Vec::new();
        self.machine.observe(0, TriggerTarget::All, value, now, &mut said);
        said.iter().any(|happening| matches!(happening, Happening::Fired { .. }))
    }
}

/// How often a trigger has fired.
///
/// # Errors
/// There is none of that name.
pub fn fired(trigger_watches: &[TriggerWatch], name: &Name) -> Result<u64, String> {
    let found = trigger_watches.iter().rev().find(|trigger_watch| trigger_watch.trigger.name == *name);
    found.map(|trigger_watch| trigger_watch.machine.fired()).ok_or_else(|| format!("there is no trigger `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::super::ast::Switching;
    use super::*;
    use pmux_engine::event_set::{Position, Rounds};

    #[test]
    fn a_rate_is_what_came_since_the_last_look() {
        let switches = Switching { set: Name::new("s"), to: Position::On, span: None };
        let (per, held) = (Nanos(1_000), Nanos(0));
        let (name, event) = (Name::new("t"), Name::new("e"));
        let trigger = Trigger { name, event, amount: 10, per, held, every: 1, rounds: Rounds::Always, switches };
        let count = |value, enabled, running| Some(Count { value, enabled: Nanos(enabled), running: Nanos(running) });
        let mut trigger_watch = TriggerWatch::new(&trigger, Nanos(0), count(0, 0, 0));
        assert!(!trigger_watch.look(Nanos(1_000), count(10, 1_000, 1_000)), "ten are not more than ten");
        assert!(trigger_watch.look(Nanos(2_000), count(21, 2_000, 2_000)));
        assert!(!trigger_watch.look(Nanos(2_000), count(99, 2_000, 2_000)), "no time has passed");
        // It has not run: that is no end.
        assert!(!trigger_watch.look(Nanos(3_000), count(21, 3_000, 2_000)));
        assert!(!trigger_watch.look(Nanos(4_000), count(40, 4_000, 3_000)));
        assert!(!trigger_watch.look(Nanos(5_000), count(40, 5_000, 4_000)));
        assert!(trigger_watch.look(Nanos(6_000), count(60, 6_000, 5_000)));
        assert_eq!(fired(&[trigger_watch], &Name::new("t")), Ok(2));
    }
}
