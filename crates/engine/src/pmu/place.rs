//! What fits together.
//!
//! What it is: sets of slots, and the plain placement for PMUs whose events may sit on any allowed counter.
//!
//! **Invariant:** pure; it never touches a counter.
//!
//! Linux: `perf_assign_events`, `x86_schedule_events` (arch/x86/events/core.c).

use super::Slot;

/// A set of slots of one scarce PMU, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlotMask(pub u64);

impl SlotMask {
    /// Every slot.
    pub const ALL: Self = Self(u64::MAX);

    /// The first `count` slots.
    #[must_use]
    pub const fn first(count: u8) -> Self {
        if count >= 64 { Self::ALL } else { Self((1 << count) - 1) }
    }

    /// With `slot` added.
    #[must_use]
    pub const fn with(self, slot: Slot) -> Self {
        Self(self.0 | 1 << (slot.0 & 63))
    }

    /// With `slot` taken away.
    #[must_use]
    pub const fn without(self, slot: Slot) -> Self {
        Self(self.0 & !(1 << (slot.0 & 63)))
    }

    /// How many slots it holds.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Places `wanted` on a PMU of `count` slots, each event on one of its allowed slots; all or none.
///
/// Augmenting paths: an event may push another one aside, so a placement is found whenever there is one, and events that
/// are at home on few slots do not lose them to events that fit anywhere. Where wishes can't all be granted, they are
/// granted in the order of the events, each one that leaves a placement for all.
pub fn place_on_allowed(wanted: &[SlotMask], used: SlotMask, count: u8, out: &mut [Slot]) -> bool {
    let free = SlotMask(SlotMask::first(count).0 & !used.0);
    if wanted.len() > free.len() as usize {
        return false;
    }
    if all_at_once(wanted, free, out) {
        return true;
    }
    let mut allowed = [SlotMask::default(); 64];
    for (allowed, wanted) in allowed.iter_mut().zip(wanted) {
        *allowed = SlotMask(wanted.0 & free.0);
    }
    let allowed = &mut allowed[..wanted.len()];
    let Some(mut holder) = assign(allowed, out) else { return false };
    let preferred = |event: usize, allowed: SlotMask| {
        out.get(event).filter(|slot| slot.0 < 64 && allowed.0 & (1 << slot.0) != 0).copied()
    };
    let has = |holder: &Holders, event, slot: Slot| holder[slot.0 as usize] == event;
    if (0..wanted.len()).any(|event| preferred(event, allowed[event]).is_some_and(|slot| !has(&holder, event, slot))) {
        for event in 0..wanted.len() {
            let before = allowed[event];
            let Some(slot) = preferred(event, before) else { continue };
            allowed[event] = SlotMask::default().with(slot);
            match assign(allowed, out) {
                Some(granted) => holder = granted,
                None => allowed[event] = before,
            }
        }
    }
    for (slot, &event) in holder.iter().enumerate() {
        if let Some(out) = out.get_mut(event) {
            *out = Slot(slot as u32);
        }
    }
    true
}

/// The short way, for most questions: all wishes can be granted, and the others find vacant slots.
fn all_at_once(wanted: &[SlotMask], free: SlotMask, out: &mut [Slot]) -> bool {
    let mut vacant = free.0;
    for (allowed, preferred) in wanted.iter().zip(&*out).filter(|(_, preferred)| preferred.0 < 64) {
        let bit = 1 << preferred.0;
        if allowed.0 & vacant & bit == 0 {
            return false;
        }
        vacant &= !bit;
    }
    let mut left = vacant;
    for allowed in wanted.iter().zip(&*out).filter(|(_, preferred)| preferred.0 >= 64).map(|(allowed, _)| allowed) {
        match allowed.0 & left {
            0 => return false,
            slots => left &= !(slots & slots.wrapping_neg()),
        }
    }
    let mut left = vacant;
    for (allowed, out) in wanted.iter().zip(out).filter(|(_, preferred)| preferred.0 >= 64) {
        let slot = (allowed.0 & left).trailing_zeros();
        left &= !(1 << slot);
        *out = Slot(slot);
    }
    true
}

type Holders = [usize; 64];

/// Gives each event one of its slots, wishes first where they are in no other event's way.
fn assign(allowed: &[SlotMask], preferences: &[Slot]) -> Option<Holders> {
    let mut holder = [FREE; 64];
    for (event, (allowed, preferred)) in allowed.iter().zip(preferences).enumerate() {
        if preferred.0 < 64 && allowed.0 & (1 << preferred.0) != 0 && holder[preferred.0 as usize] == FREE {
            holder[preferred.0 as usize] = event;
        }
    }
    for event in 0..allowed.len() {
        let mut tried = SlotMask::default();
        if !holder.contains(&event) && !augment(allowed, event, &mut tried, &mut holder) {
            return None;
        }
    }
    Some(holder)
}

const FREE: usize = usize::MAX;

/// Finds a slot for `event`, moving others along; the depth is bounded by the number of slots, at most 64.
fn augment(allowed: &[SlotMask], event: usize, tried: &mut SlotMask, holder: &mut Holders) -> bool {
    // A slot that no event holds, if there is one: an event that has a slot keeps it.
    let vacant = |tried: SlotMask, holder: &Holders| {
        let mut candidates = allowed[event].0 & !tried.0;
        let first = candidates.trailing_zeros();
        while candidates != 0 {
            let slot = candidates.trailing_zeros();
            if holder[slot as usize] == FREE {
                return Some(slot);
            }
            candidates &= candidates - 1;
        }
        (first < 64).then_some(first)
    };
    while let Some(slot) = vacant(*tried, holder) {
        *tried = tried.with(Slot(slot));
        let other = holder[slot as usize];
        if other == FREE || augment(allowed, other, tried, holder) {
            holder[slot as usize] = event;
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The slow way: tries every assignment.
    fn fits(masks: &[u64], free: u64) -> bool {
        let Some((&mask, rest)) = masks.split_first() else { return true };
        (0..64).any(|slot| mask & free & (1 << slot) != 0 && fits(rest, free & !(1 << slot)))
    }

    proptest! {
        #[test]
        fn finds_a_placement_whenever_there_is_one(
            events in prop::collection::vec((0_u64..64, 0_u32..8), 0..6),
            used in 0_u64..64,
        ) {
            let masks: Vec<_> = events.iter().map(|event| event.0).collect();
            let wanted: Vec<_> = masks.iter().map(|&mask| SlotMask(mask)).collect();
            let preferences: Vec<_> = events.iter().map(|&(_, preferred)| if preferred < 6 { Slot(preferred) } else { Slot::NONE }).collect();
            let mut out = preferences.clone();
            let placed = place_on_allowed(&wanted, SlotMask(used), 6, &mut out);
            prop_assert_eq!(placed, fits(&masks, 63 & !used));
            if placed {
                let mut seen = used;
                for (mask, slot) in masks.iter().zip(out) {
                    let bit = 1_u64 << slot.0;
                    prop_assert!(mask & bit != 0 && seen & bit == 0);
                    seen |= bit;
                }
            } else {
                prop_assert_eq!(out, preferences);
            }
        }

        #[test]
        fn an_event_with_a_slot_keeps_it_where_all_can_have_one(
            masks in prop::collection::vec(1_u64..64, 1..6),
            more in 1_u64..64,
        ) {
            let wanted: Vec<_> = masks.iter().map(|&mask| SlotMask(mask)).collect();
            let mut placed = alloc::vec![Slot::NONE; wanted.len()];
            prop_assume!(place_on_allowed(&wanted, SlotMask::default(), 6, &mut placed));
            let mut again = placed.clone();
            prop_assert!(place_on_allowed(&wanted, SlotMask::default(), 6, &mut again));
            prop_assert_eq!(&again, &placed);
            // A newcomer that finds a vacant slot moves no other event.
            let taken = placed.iter().fold(SlotMask::default(), |mask, &slot| mask.with(slot));
            prop_assume!(more & !taken.0 != 0);
            let with_more: Vec<_> = wanted.iter().copied().chain([SlotMask(more)]).collect();
            let mut wider: Vec<_> = placed.iter().copied().chain([Slot::NONE]).collect();
            prop_assert!(place_on_allowed(&with_more, SlotMask::default(), 6, &mut wider));
            prop_assert_eq!(&wider[..placed.len()], &placed[..]);
        }
    }
}
