//! What is true of all intervals: events, what is watched, and what watching costs.
//!
//! **Invariant:** what pmux takes is what the kernel says of its threads.

use super::interval::{Interval, WAITS};
use std::time::{Duration, Instant};

/// What is known beside samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Their names, and whether each is a clock.
    pub(super) events: Vec<(String, bool)>,
    /// Whose, in words.
    pub(super) target: String,
    /// How many CPUs are watched; `None` where tasks are.
    pub(super) cpus: Option<usize>,
    pub(super) by_service: bool,
    pub(super) has_waits: bool,
    /// How many CPUs pmux took in the last interval.
    pub(super) own_cpus: f64,
    pub(super) lost: u64,
    /// Waits that were not seen as a whole.
    pub(super) unseen: u64,
    /// For how long the service was away.
    pub(super) gap: Duration,
    /// What is to be said beside: the newest.
    pub(super) note: Option<String>,
}

impl Facts {
    pub(super) fn event(&self, event: usize) -> &str {
        let name = self.events.get(event).map_or("", |(name, _)| name);
        if is_waits(event) { "waits" } else { name }
    }

    pub(super) fn is_clock(&self, event: usize) -> bool {
        self.events.get(event).is_some_and(|(_, is_clock)| *is_clock)
    }

    /// How many CPUs a period is worth, or how many threads that waited all the time; `None` of events that are no times.
    pub(super) fn cpus_of(&self, event: usize, period: u64, interval: &Interval) -> Option<f64> {
        let took_ns = interval.took.as_nanos().max(1) as f64;
        (is_waits(event) || self.is_clock(event)).then(|| period as f64 / took_ns)
    }
}

/// How much a period is in a second.
pub(super) fn per_second(period: u64, interval: &Interval) -> f64 {
    period as f64 / interval.took.as_secs_f64().max(1e-9)
}

/// Whether this place of an event is that of waits.
pub(super) fn is_waits(event: usize) -> bool {
    event == usize::from(WAITS)
}

pub(super) struct OwnCost {
    since: Instant,
    ran_ns: u64,
}

impl OwnCost {
    pub(super) fn begin() -> Self {
        Self { since: Instant::now(), ran_ns: ran_ns() }
    }

    /// How many CPUs since it was asked last.
    pub(super) fn cpus(&mut self) -> f64 {
        let now = Self::begin();
        let took_ns = (now.since - self.since).as_nanos().max(1) as f64;
        // What a thread that has ended had taken is gone.
        let cpus = now.ran_ns.saturating_sub(self.ran_ns) as f64 / took_ns;
        *self = now;
        cpus
    }
}

/// For how long the threads of this process ran, ns. Source: the first number of `/proc/PID/schedstat`.
fn ran_ns() -> u64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let texts = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    texts.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn facts() -> Facts {
        Facts {
            events: vec![("cpu-clock".to_owned(), true), ("page-faults".to_owned(), false)],
            target: "all CPUs".to_owned(),
            cpus: Some(2),
            own_cpus: 0.0025,
            ..Facts::default()
        }
    }
}
