//! Which CPU was counted when.
//!
//! **Invariant:** for each CPU that is listed, covered + missed = the time for which the set was armed.

use crate::id::{CpuId, Nanos};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What the time of a CPU is, while the set is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CpuTime {
    Counted,
    #[default]
    Missed,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuTimes {
    covered: Nanos,
    missed: Nanos,
    gaps: u32,
    since: Nanos,
    time: CpuTime,
    /// Whether it was ever counted, or was there and should have been.
    listed: bool,
    /// When it was counted for the first time, and up to when at least.
    counted: Option<(Nanos, Nanos)>,
}

/// For how long a set counted, and where it did not.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    span: Nanos,
    armed_at: Option<Nanos>,
    /// Those that are not here were never there.
    cpus: BTreeMap<CpuId, CpuTimes>,
}

/// The coverage of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuCoverage {
    /// The CPU.
    pub cpu: CpuId,
    /// For how long it was counted.
    pub covered: Nanos,
    /// For how long it was not, between or after times when it was, or before it first came.
    pub missed: Nanos,
    /// How many times it went away.
    pub gaps: u32,
    /// Whether it is counted now.
    pub present: bool,
    /// When it was counted for the first time; `None`: never.
    pub from: Option<Nanos>,
    /// When it was counted for the last time, if it isn't now.
    pub until: Option<Nanos>,
}

impl Coverage {
    pub(super) const fn new() -> Self {
        Self { span: Nanos::ZERO, armed_at: None, cpus: BTreeMap::new() }
    }

    pub(super) fn start(&mut self, now: Nanos) {
        if self.armed_at.is_none() {
            self.armed_at = Some(now);
            // The time that passed since the set was disarmed counts for no CPU.
            self.cpus.values_mut().for_each(|cpu| cpu.since = now);
        }
    }

    pub(super) fn stop(&mut self, now: Nanos) {
        let Some(armed_at) = self.armed_at.take() else { return };
        self.span += now.since(armed_at);
        for cpu in self.cpus.values_mut() {
            cpu.settle(now);
            if cpu.time == CpuTime::Counted {
                cpu.time = CpuTime::Missed;
            }
        }
    }

    /// A CPU that should be counted, but is not: from now on it is listed, with all that it has missed.
    pub(super) fn expect(&mut self, id: CpuId) {
        let Some(armed_at) = self.armed_at else { return };
        let new = || CpuTimes { missed: self.span, since: armed_at, ..CpuTimes::default() };
        self.cpus.entry(id).or_insert_with(new).listed = true;
    }

    pub(super) fn gain(&mut self, id: CpuId, now: Nanos) {
        self.expect(id);
        if self.armed_at.is_some()
            && let Some(cpu) = self.cpus.get_mut(&id)
        {
            cpu.settle(now);
            cpu.time = CpuTime::Counted;
            cpu.counted.get_or_insert((now, now));
        }
    }

    pub(super) fn lose(&mut self, id: CpuId, now: Nanos) {
        if self.armed_at.is_none() {
            return;
        }
        if let Some(cpu) = self.cpus.get_mut(&id)
            && cpu.time == CpuTime::Counted
        {
            cpu.settle(now);
            cpu.time = CpuTime::Missed;
            cpu.gaps += 1;
        }
    }

    /// For how long the set has been armed, by `now`.
    #[must_use]
    pub fn span(&self, now: Nanos) -> Nanos {
        self.span + self.armed_at.map_or(Nanos::ZERO, |armed_at| now.since(armed_at))
    }

    /// Each CPU that was ever counted, or should have been, by `now`.
    #[must_use]
    pub fn cpus(&self, now: Nanos) -> Vec<CpuCoverage> {
        self.cpus
            .iter()
            .filter(|(_, cpu)| cpu.listed)
            .map(|(&id, &cpu)| {
                let mut cpu = cpu;
                if self.armed_at.is_some() {
                    cpu.settle(now);
                }
                let CpuTimes { covered, missed, gaps, .. } = cpu;
                let present = cpu.time == CpuTime::Counted;
                let from = cpu.counted.map(|(from, _)| from);
                let until = cpu.counted.filter(|_| !present).map(|(_, until)| until);
                CpuCoverage { cpu: id, covered, missed, gaps, present, from, until }
            })
            .collect()
    }
}

impl CpuTimes {
    fn settle(&mut self, now: Nanos) {
        let passed = now.since(self.since);
        self.since = self.since.max(now);
        match self.time {
            CpuTime::Counted => {
                self.covered += passed;
                if let Some((_, until)) = &mut self.counted {
                    *until = now;
                }
            }
            CpuTime::Missed => self.missed += passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_counted_to_the_nanosecond() {
        let mut coverage = Coverage::default();
        coverage.start(Nanos(100));
        coverage.gain(CpuId(0), Nanos(100));
        coverage.gain(CpuId(1), Nanos(100));
        coverage.lose(CpuId(1), Nanos(130));
        coverage.gain(CpuId(1), Nanos(150));
        coverage.gain(CpuId(7), Nanos(180));
        let all = coverage.cpus(Nanos(200));
        assert_eq!(
            (all[0].covered, all[0].missed, all[0].gaps),
            (Nanos(100), Nanos::ZERO, 0),
            "a CPU that stayed is covered all the time"
        );
        assert_eq!((all[1].covered, all[1].missed, all[1].gaps), (Nanos(80), Nanos(20), 1));
        assert_eq!((all[2].covered, all[2].missed), (Nanos(20), Nanos(80)), "a newcomer was missed before it came");
        coverage.stop(Nanos(210));
        assert_eq!(coverage.span(Nanos(999)), Nanos(110));
        assert_eq!(coverage.cpus(Nanos(999))[0].covered, Nanos(110), "a set that stopped does not age");
    }

    #[test]
    fn covered_and_missed_are_the_span_for_every_cpu() {
        let mut coverage = Coverage::default();
        coverage.start(Nanos(100));
        coverage.gain(CpuId(0), Nanos(100));
        coverage.gain(CpuId(1), Nanos(100));
        coverage.stop(Nanos(150));
        // CPU 1 went while nothing was armed; CPU 2 comes and is refused, CPU 3 comes for the first time.
        coverage.start(Nanos(1000));
        coverage.gain(CpuId(0), Nanos(1000));
        coverage.expect(CpuId(2));
        coverage.gain(CpuId(3), Nanos(1010));
        coverage.start(Nanos(1020));
        let check = |coverage: &Coverage, now| {
            let all = coverage.cpus(now);
            assert!(all.iter().all(|cpu| cpu.covered + cpu.missed == coverage.span(now)), "{all:?}");
            all.iter().map(|cpu| cpu.covered.0).collect::<Vec<_>>()
        };
        assert_eq!(check(&coverage, Nanos(1050)), [100, 50, 0, 40]);
        coverage.stop(Nanos(1060));
        assert_eq!(check(&coverage, Nanos(9999)), [110, 50, 0, 50]);
    }
}
