//! Counts and times.
//!
//! What it is: 64-bit counts out of registers of any width, and what a count is worth when it ran only part of the time.
//!
//! **Invariant:** a count that never ran is *not counted*; it is never 0, and a scaled value never travels without its share.
//!
//! Linux: `total_time_enabled`, `total_time_running`, `perf_event_count` (kernel/events/core.c).

use crate::id::Nanos;
use core::ops::AddAssign;

/// What an event has counted, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Occurrences while it ran.
    pub value: u64,
    /// How long it was enabled and its context was there.
    pub enabled: Nanos,
    /// How long it ran on a counter; at most `enabled`.
    pub running: Nanos,
}

/// What a count says about the whole time that the event was enabled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Estimate {
    /// It ran whenever it was enabled: the value is the count.
    Exact(u64),
    /// It ran part of the time: the value is scaled up.
    Scaled {
        /// The value, scaled to the time enabled.
        value: u64,
        /// Running over enabled, above 0 and below 1.
        share: f64,
    },
    /// It never ran.
    NotCounted,
}

impl Count {
    /// The share of the enabled time that it ran, 0 to 1; `None` if it was never enabled.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.enabled > Nanos::ZERO).then(|| self.running.0 as f64 / self.enabled.0 as f64)
    }

    /// What the count says about the whole enabled time.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        if self.running == Nanos::ZERO {
            return Estimate::NotCounted;
        }
        if self.running >= self.enabled {
            return Estimate::Exact(self.value);
        }
        let scaled = u128::from(self.value) * u128::from(self.enabled.0) / u128::from(self.running.0);
        Estimate::Scaled {
            value: u64::try_from(scaled).unwrap_or(u64::MAX),
            share: self.running.0 as f64 / self.enabled.0 as f64,
        }
    }

    /// Adds what the same task has counted on another CPU, with an event of its own there.
    ///
    /// Such events are all enabled whenever the task runs, wherever that is, so their times enabled are one and the
    /// same; each runs on its CPU only, so their times running add up.
    pub fn add_other_cpu(&mut self, other: &Self) {
        self.value = self.value.wrapping_add(other.value);
        self.enabled = self.enabled.max(other.enabled);
        self.running += other.running;
    }

    /// This count without what `part` holds; saturates, because a part may have been read a moment later.
    #[must_use]
    pub fn less(&self, part: &Self) -> Self {
        Self {
            value: self.value.saturating_sub(part.value),
            enabled: self.enabled.since(part.enabled),
            running: self.running.since(part.running),
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.value = self.value.wrapping_add(other.value);
        self.enabled += other.enabled;
        self.running += other.running;
    }
}

/// How far a register of `width_bits` moved from `before` to `after`, if it wrapped at most once.
///
/// A width of 64 or more is a full word.
#[must_use]
pub const fn register_delta(width_bits: u8, before: u64, after: u64) -> u64 {
    let delta = after.wrapping_sub(before);
    if width_bits >= 64 { delta } else { delta & ((1 << width_bits) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_count_that_never_ran_is_not_counted() {
        let count = Count { value: 0, enabled: Nanos(10), running: Nanos::ZERO };
        assert_eq!(count.estimate(), Estimate::NotCounted);
    }

    #[test]
    fn half_the_time_doubles_the_value() {
        let count = Count { value: 21, enabled: Nanos(10), running: Nanos(5) };
        assert_eq!(count.estimate(), Estimate::Scaled { value: 42, share: 0.5 });
    }

    #[test]
    fn a_task_that_was_counted_on_two_cpus_was_counted_all_the_time() {
        let mut count = Count { value: 4, enabled: Nanos(10), running: Nanos(7) };
        count.add_other_cpu(&Count { value: 2, enabled: Nanos(10), running: Nanos(3) });
        assert_eq!(count.estimate(), Estimate::Exact(6));
    }

    #[test]
    fn scaling_does_not_overflow() {
        let count = Count { value: u64::MAX, enabled: Nanos(u64::MAX), running: Nanos(1) };
        assert!(matches!(count.estimate(), Estimate::Scaled { value: u64::MAX, .. }));
    }

    proptest! {
        #[test]
        fn a_delta_survives_any_wrap(width in 1_u8..=64, start: u64, step: u64) {
            let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
            let (start, step) = (start & mask, step & mask);
            prop_assert_eq!(register_delta(width, start, start.wrapping_add(step) & mask), step);
        }
    }
}
