//! Which events use one counter, and what each of them counts all the same.
//!
//! What it is: the model of sharing. Two events share if they are in the same context and ask the same question, and if
//! both may share at all: one that samples, or that is pinned or exclusive, has a counter of its own, so that its
//! demand is nobody else's. What is the same question is for the caller to say: the canonical attribute as a whole,
//! the cgroup included.
//! Read first: [`Sharing::pass`]: each event is counted as if it were alone with its counter.
//!
//! **Invariant:** no event's count depends on another event: there is no master, no baseline and no hand-over here,
//! because none of them may be seen in a count. Which events share decides only how many counters are needed, and so
//! when each of them runs.

use pmux_engine::context::ContextKey;
use pmux_engine::{Count, Nanos};
use std::collections::BTreeMap;

/// Names an event; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventKey(u64);

/// Whether an event may use a counter together with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Company {
    /// It only counts, and takes its turn.
    Shares,
    /// It samples, or it is pinned or exclusive.
    Alone,
}

/// An event that is open.
#[derive(Clone, Debug)]
struct Event<Q> {
    context: ContextKey,
    question: Q,
    company: Company,
    on: bool,
    count: Count,
}

/// Everything that is open. `Q` is the question that an event asks; `F` says whether two are the same.
pub struct Sharing<Q, F> {
    same: F,
    events: BTreeMap<EventKey, Event<Q>>,
    next: u64,
}

impl<Q, F: Fn(&Q, &Q) -> bool> Sharing<Q, F> {
    /// Nothing is open. `same` must be an equivalence: whatever is the same as a third thing is the same.
    pub const fn new(same: F) -> Self {
        Self { same, events: BTreeMap::new(), next: 0 }
    }

    /// Opens an event, disabled.
    pub fn open(&mut self, context: ContextKey, question: Q, company: Company) -> EventKey {
        let key = EventKey(self.next);
        self.next += 1;
        self.events.insert(key, Event { context, question, company, on: false, count: Count::default() });
        key
    }

    /// Closes an event; touches nobody else.
    pub fn close(&mut self, key: EventKey) {
        self.events.remove(&key);
    }

    /// Enables an event; touches nobody else.
    pub fn enable(&mut self, key: EventKey) {
        self.events.entry(key).and_modify(|event| event.on = true);
    }

    /// Disables an event; touches nobody else.
    pub fn disable(&mut self, key: EventKey) {
        self.events.entry(key).and_modify(|event| event.on = false);
    }

    /// Sets an event's value to 0; its times stay. Touches nobody else.
    pub fn reset(&mut self, key: EventKey) {
        self.events.entry(key).and_modify(|event| event.count.value = 0);
    }

    /// An event goes to another context: from now on it shares with those there.
    pub fn move_to(&mut self, key: EventKey, context: ContextKey) {
        self.events.entry(key).and_modify(|event| event.context = context);
    }

    /// Whether two open events may use one counter.
    #[must_use]
    pub fn may_share(&self, one: EventKey, other: EventKey) -> bool {
        let (Some(a), Some(b)) = (self.events.get(&one), self.events.get(&other)) else { return false };
        let both_may = a.company == Company::Shares && b.company == Company::Shares;
        one == other || (both_may && a.context == b.context && (self.same)(&a.question, &b.question))
    }

    /// The counters that a context needs now: for each the enabled events that use it, in the order of opening.
    #[must_use]
    pub fn counters(&self, context: ContextKey) -> Vec<Vec<EventKey>> {
        let mut counters: Vec<Vec<EventKey>> = Vec::new();
        for (&key, event) in &self.events {
            if event.on && event.context == context {
                match counters.iter().position(|users| self.may_share(users[0], key)) {
                    Some(counter) => counters[counter].push(key),
                    None => counters.push(vec![key]),
                }
            }
        }
        counters
    }

    /// Lets `ns` pass in a context. `happened` says how often what a question asks for happened meanwhile, and `is_on`
    /// which of [`Sharing::counters`] were on a register.
    pub fn pass(
        &mut self,
        context: ContextKey,
        ns: u64,
        happened: impl Fn(&Q) -> u64,
        is_on: impl Fn(&[EventKey]) -> bool,
    ) {
        for users in self.counters(context) {
            let on = is_on(&users);
            for key in users {
                let Some(event) = self.events.get_mut(&key) else { continue };
                event.count.enabled += Nanos(ns);
                if on {
                    event.count.running += Nanos(ns);
                    event.count.value += happened(&event.question);
                }
            }
        }
    }

    /// What an event has counted; `None` where it is closed.
    #[must_use]
    pub fn count(&self, key: EventKey) -> Option<Count> {
        self.events.get(&key).map(|event| event.count)
    }
}

#[cfg(test)]
mod tests;
