//! How many events of a PMU run at once.
//!
//! What it is: [`ProbedCapacity`], found by trying: events are added one by one until one does not run any more. Nothing is
//! assumed of how many counters there are, which of them are fixed, or who holds some.
//! Read first: [`ProbedCapacity::find`]; how the kernel is asked is in [`probe`].
//!
//! # What is found, and what can't be
//!
//! For each event, how many copies of it run at once (`alone`), and how many of those counters no other event of the list
//! can use (`own`). From that follow the slots of the engine's model: own ones for each event, and a pool that the others
//! share, of which each event may use the first `alone - own`.
//!
//! Every set that fits these slots fits the counters: an event's real counters that others can use too are at least as
//! many as its share of the pool, and shares of one pool that all begin with the first slot overlap more than any real
//! ones. The reverse doesn't hold: two events that are at home on different halves of the counters share a half here.
//! Nor can it be known who else opens events later; that is learnt while counting: see `crate::host`.
//!
//! **Invariant:** pure; what runs is asked of the [`Trial`].

pub mod foreign;
pub mod holders;
pub mod probe;

/// A PMU that runs this many events at once has no scarce counters.
pub const PLENTY: u8 = 24;

/// A place where events are tried together.
pub trait Trial {
    /// What can go wrong with trying.
    type Error;

    /// Adds one more copy of an event, by its number, to those that run; `false`, and nothing added, where not all of them
    /// run then.
    ///
    /// # Errors
    /// Where that can't be found out.
    fn add(&mut self, event: usize) -> Result<bool, Self::Error>;

    /// Takes all of them away.
    fn clear(&mut self);
}

/// What is known of one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventCapacity {
    /// How many copies of it run at once.
    pub alone: u8,
    /// How many counters only it can use.
    pub own: u8,
}

/// How many events of a PMU run at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbedCapacity {
    /// All events together, as many copies of each as run.
    pub counters: u8,
    /// Event by event.
    pub events: Vec<EventCapacity>,
}

impl ProbedCapacity {
    /// Finds it for events with the numbers from 0 to `events - 1`.
    ///
    /// # Errors
    /// Those of the trial.
    pub fn find<T: Trial>(trial: &mut T, events: usize) -> Result<Self, T::Error> {
        let counters = most(trial, 0..events)?;
        let mut alone = Vec::with_capacity(events);
        for event in 0..events {
            alone.push(if events == 1 || counters >= PLENTY { counters } else { most(trial, event..event + 1)? });
        }
        let mut found = Vec::with_capacity(events);
        for event in 0..events {
            let others = || (0..events).filter(move |&other| other != event);
            // Where another event alone fills all counters, none is left for this one only.
            let none = counters >= PLENTY || others().any(|other| alone[other] >= counters);
            let own = if none { 0 } else { counters.saturating_sub(most(trial, others())?) };
            found.push(EventCapacity { alone: alone[event], own: own.min(alone[event]) });
        }
        Ok(Self { counters, events: found })
    }

    /// Whether the counters are so many that no event ever waits for one.
    #[must_use]
    pub const fn is_plenty(&self) -> bool {
        self.counters >= PLENTY
    }

    /// How many counters several events can use.
    #[must_use]
    pub fn pool(&self) -> u8 {
        self.counters.saturating_sub(self.events.iter().map(|event| event.own).sum())
    }
}

/// As many copies of each event as run together; the order makes no difference to how many that are.
fn most<T: Trial>(trial: &mut T, events: impl Iterator<Item = usize>) -> Result<u8, T::Error> {
    trial.clear();
    let mut running = 0;
    for event in events {
        while running < PLENTY && trial.add(event)? {
            running += 1;
        }
    }
    trial.clear();
    Ok(running)
}

#[cfg(test)]
mod tests;
