//! How many events of one PMU may be on at once.
//!
//! What it is: what was tried, as slots of the engine's model, and what was learnt since.
//! Read first: [`CapacityModel::learn`], then [`CapacityModel::observe`].
//!
//! **Invariant:** a slot that was made an event's own stays that event's, because leases may be out on it.

use super::CapacitySnapshot;
use crate::capacity::{EventCapacity, ProbedCapacity};
use crate::host::lock;
use pmux_abi::attr::Attr;
use pmux_engine::Nanos;
use pmux_engine::pmu::{Slot, SlotMask};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// Own slots are given from the last one down, the pool grows from the first one up.
const LAST_SLOT: u32 = 63;
/// So many slots are left to the pool.
const POOL: u32 = 32;
/// How long no other user of the counters must have been in the way before one more event is put on again; doubled each time that
/// this was too early.
const PATIENCE: Nanos = Nanos(1_000_000_000);
const LONGEST_PATIENCE: Nanos = Nanos(64_000_000_000);
/// How often the limit is lowered before that is given up.
const MOST_STEPS: u8 = 2;
/// The share of a slot's time, as a divisor, that it may be late without another event being in the way: starting takes a
/// moment, and a task that is moved to another CPU starts again.
const NOISE: u64 = 50;

/// What a slot has shown in the time since it was programmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotObservation {
    pub(super) enabled: Nanos,
    pub(super) running: Nanos,
    /// How many slots of the PMU were started beside each other, itself included, at most.
    pub(super) together: u8,
    /// [`CapacityModel::epoch`] when it was programmed.
    pub(super) epoch: u64,
}

impl SlotObservation {
    fn is_contended(&self) -> bool {
        self.enabled.since(self.running).0 > self.enabled.0 / NOISE
    }

    /// How many counters there were for all of them, as far as one of them can tell; at least 1.
    fn found(&self) -> u8 {
        let found = (u128::from(self.together) * u128::from(self.running.0) * 2 + u128::from(self.enabled.0))
            .checked_div(u128::from(self.enabled.0) * 2);
        found.and_then(|found| u8::try_from(found).ok()).unwrap_or(self.together).max(1)
    }
}

pub(super) struct CapacityModel {
    known: Mutex<CapacityState>,
    /// Copies for placement, which asks often. Relaxed: nothing else is published by them, and one that is late is put
    /// right with the next turn.
    counters: AtomicU8,
    limit: AtomicU8,
}

struct CapacityState {
    events: Vec<EventSlots>,
    pool: SlotMask,
    next_own: u32,
    counters: u8,
    limit: u8,
    /// Which period between two changes of the limit this is.
    epoch: u64,
    /// When another user of the counters was in the way last, or the limit was raised.
    last: Nanos,
    patience: Nanos,
    /// How often the limit was lowered since all was quiet.
    steps: u8,
    /// Until when the limit is left as it is.
    resigned: Option<Nanos>,
}

struct EventSlots {
    attr: Attr,
    capacity: EventCapacity,
    own: Vec<Slot>,
    slots: SlotMask,
}

impl Default for CapacityModel {
    /// Until something was tried, one event runs at a time.
    fn default() -> Self {
        let known = CapacityState {
            events: Vec::new(),
            pool: SlotMask::first(1),
            next_own: LAST_SLOT,
            counters: 1,
            limit: 1,
            epoch: 0,
            last: Nanos::ZERO,
            patience: PATIENCE,
            steps: 0,
            resigned: None,
        };
        Self { known: Mutex::new(known), counters: AtomicU8::new(1), limit: AtomicU8::new(1) }
    }
}

impl CapacityModel {
    pub(super) fn counters(&self) -> u8 {
        self.counters.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self) -> u8 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn any_event(&self) -> Option<Attr> {
        lock(&self.known).events.first().map(|event| event.attr)
    }

    pub(super) fn epoch(&self) -> u64 {
        lock(&self.known).epoch
    }

    /// Takes over what was tried with these events, as questions: all that were tried before among them.
    pub(super) fn learn(&self, events: &[Attr], found: &ProbedCapacity) {
        let mut known = lock(&self.known);
        let pool = SlotMask::first(found.pool().clamp(1, POOL as u8));
        known.pool = pool;
        for (attr, &capacity) in events.iter().zip(&found.events) {
            known.learn_event(attr, capacity);
        }
        known.counters = found.counters.max(1);
        known.limit = known.counters;
        known.epoch += 1;
        self.publish(&known);
    }

    /// The slots of an event; one that was not tried has the pool.
    pub(super) fn slots_of(&self, attr: &Attr) -> SlotMask {
        let known = lock(&self.known);
        known.events.iter().find(|event| event.attr == *attr).map_or(known.pool, |event| event.slots)
    }

    /// A slot was read. Where it did not run all the time, a user that the engine doesn't know has counters.
    ///
    /// Then as many are put on from now on as there seem to be counters left. If that doesn't help in two steps, the other
    /// one doesn't keep counters but takes turns too, and it is no use to ask for fewer. After a while of quiet, one more
    /// is tried.
    pub(super) fn observe(&self, slot: &SlotObservation, now: Nanos) {
        let mut known = lock(&self.known);
        // What was started before the last change tells of the time before it.
        let current = slot.epoch == known.epoch;
        if known.resigned.is_some_and(|until| until < now) {
            (known.resigned, known.steps) = (None, 0);
        }
        if slot.is_contended() {
            known.last = now;
            if current && known.resigned.is_none() && slot.together <= known.limit {
                known.give_way(slot, now);
            }
        } else if current {
            known.steps = 0;
            if known.limit < known.counters && now.since(known.last) > known.patience {
                let more = known.limit + 1;
                known.change_limit(more);
                known.last = now;
            }
        }
        self.publish(&known);
    }

    pub(super) fn now(&self) -> CapacitySnapshot {
        let known = lock(&self.known);
        let events = known.events.iter().map(|event| (event.attr, event.capacity)).collect();
        CapacitySnapshot { counters: known.counters, limit: known.limit, events }
    }

    fn publish(&self, known: &CapacityState) {
        self.counters.store(known.counters, Ordering::Relaxed);
        self.limit.store(known.limit, Ordering::Relaxed);
    }
}

impl CapacityState {
    fn change_limit(&mut self, limit: u8) {
        self.limit = limit;
        self.epoch += 1;
    }

    fn give_way(&mut self, slot: &SlotObservation, now: Nanos) {
        let fewer = slot.found().min(slot.together.saturating_sub(1)).max(1);
        let helps = self.steps < MOST_STEPS && fewer < self.limit;
        self.patience = Nanos((self.patience.0 * 2).min(LONGEST_PATIENCE.0));
        if helps {
            self.steps += 1;
            self.change_limit(fewer);
        } else {
            self.change_limit(self.counters);
            self.resigned = Some(now + self.patience);
        }
    }

    fn learn_event(&mut self, attr: &Attr, capacity: EventCapacity) {
        let index = self.events.iter().position(|event| event.attr == *attr).unwrap_or_else(|| {
            self.events.push(EventSlots { attr: *attr, capacity, own: Vec::new(), slots: SlotMask::default() });
            self.events.len() - 1
        });
        let Some(event) = self.events.get_mut(index) else { return };
        event.capacity = capacity;
        while event.own.len() < usize::from(capacity.own) && self.next_own >= POOL {
            event.own.push(Slot(self.next_own));
            self.next_own -= 1;
        }
        let shared = SlotMask(SlotMask::first(capacity.alone - capacity.own.min(capacity.alone)).0 & self.pool.0);
        let own = event.own.iter().take(usize::from(capacity.own));
        event.slots = own.fold(shared, |slots, &slot| slots.with(slot));
        if event.slots.is_empty() {
            // It did not run just now; it may when another user has left.
            event.slots = SlotMask::first(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::attr::EventType;

    const MS: u64 = 1_000_000;

    fn attr(config: u64) -> Attr {
        Attr { kind: EventType::RAW, config, ..Attr::default() }
    }

    fn seven() -> CapacityModel {
        let capacity = CapacityModel::default();
        let capacities = [(6, 0), (7, 1)].map(|(alone, own)| EventCapacity { alone, own });
        capacity.learn(&[attr(1), attr(2)], &ProbedCapacity { counters: 7, events: capacities.to_vec() });
        capacity
    }

    /// A slot that was on for 4 ms.
    fn observation(capacity: &CapacityModel, running_us: u64, together: u8) -> SlotObservation {
        SlotObservation {
            enabled: Nanos(4 * MS),
            running: Nanos(running_us * 1_000),
            together,
            epoch: capacity.epoch(),
        }
    }

    #[test]
    fn own_slots_lie_outside_the_pool_and_stay() {
        let capacity = seven();
        assert_eq!(capacity.slots_of(&attr(1)), SlotMask::first(6));
        let cycles = capacity.slots_of(&attr(2));
        assert_eq!(cycles, SlotMask::first(6).with(Slot(63)));
        assert_eq!(capacity.slots_of(&attr(99)), SlotMask::first(6), "what was not tried has the pool");
        let capacities = [(6, 0), (7, 1), (1, 1)].map(|(alone, own)| EventCapacity { alone, own });
        capacity.learn(&[attr(1), attr(2), attr(3)], &ProbedCapacity { counters: 8, events: capacities.to_vec() });
        assert_eq!(capacity.slots_of(&attr(2)), cycles);
        assert_eq!(capacity.slots_of(&attr(3)), SlotMask::default().with(Slot(62)));
    }

    #[test]
    fn one_that_did_not_run_may_run_later() {
        let capacity = CapacityModel::default();
        capacity.learn(&[attr(1)], &ProbedCapacity { counters: 0, events: vec![EventCapacity { alone: 0, own: 0 }] });
        assert_eq!((capacity.limit(), capacity.slots_of(&attr(1))), (1, SlotMask::first(1)));
    }

    #[test]
    fn the_limit_falls_for_a_user_that_keeps_counters() {
        let capacity = seven();
        capacity.observe(&observation(&capacity, 4_000, 7), Nanos(1));
        assert_eq!(capacity.limit(), 7, "no other user has counters");
        // Three of seven are gone, for half of this slot's time.
        let all = observation(&capacity, 3_143, 7);
        capacity.observe(&all, Nanos(2));
        assert_eq!((capacity.limit(), capacity.counters()), (6, 7));
        capacity.observe(&all, Nanos(3));
        capacity.observe(&observation(&capacity, 2_000, 7), Nanos(3));
        assert_eq!(capacity.limit(), 6, "what stood beside it tells the same story");
        capacity.observe(&observation(&capacity, 2_667, 6), Nanos(4));
        assert_eq!(capacity.limit(), 4, "one less was not enough");
        for at in 0..100 {
            capacity.observe(&observation(&capacity, 4_000, 4), Nanos(5 + at));
        }
        assert_eq!(capacity.limit(), 4);
    }

    #[test]
    fn the_limit_stays_for_a_user_that_takes_turns() {
        let capacity = seven();
        let mut limits = Vec::new();
        for at in 0..6 {
            capacity.observe(&observation(&capacity, 2_000, capacity.limit()), Nanos(at));
            limits.push(capacity.limit());
        }
        assert_eq!(limits, [4, 2, 7, 7, 7, 7], "asking for fewer has not helped");
        // Much later it is tried again.
        capacity.observe(&observation(&capacity, 2_000, 7), Nanos(3_600_000 * MS));
        assert_eq!(capacity.limit(), 4);
    }

    #[test]
    fn one_is_always_tried() {
        let capacity = seven();
        capacity.observe(&observation(&capacity, 0, 7), Nanos(1));
        assert_eq!(capacity.limit(), 1);
    }

    #[test]
    fn after_a_while_it_is_tried_again_and_less_and_less_often() {
        let capacity = seven();
        capacity.observe(&observation(&capacity, 3_500, 7), Nanos(0));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..4 {
            let before = now;
            while capacity.limit() < 7 {
                now += 100 * MS;
                capacity.observe(&observation(&capacity, 4_000, 6), Nanos(now));
            }
            waits.push((now - before) / 1_000_000_000);
            capacity.observe(&observation(&capacity, 3_500, 7), Nanos(now));
        }
        assert_eq!(waits, [2, 4, 8, 16]);
    }
}
