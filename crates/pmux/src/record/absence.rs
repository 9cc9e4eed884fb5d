//! CPUs that were away, and for how long nothing was recorded there.
//!
//! What it is: made of what the engine's coverage of a set tells now and then: for how long each CPU was missed.
//! Read first: [`Absences::note`].
//!
//! **Invariant:** pure. What was away between two looks, however short, is an absence as long as the engine says.

use pmux_engine::Nanos;
use pmux_engine::system_wide::CpuCoverage;

/// So many are kept of all CPUs together.
const MOST: usize = 1000;

/// A time in which a CPU was not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// The CPU.
    pub cpu: u32,
    /// From then on.
    pub from: Nanos,
    /// Until then; `None`: it is away still.
    pub to: Option<Nanos>,
}

impl Absence {
    /// As it is written into a recording.
    pub(crate) fn fields(&self) -> (u32, u64, Option<u64>) {
        (self.cpu, self.from.0, self.to.map(|to| to.0))
    }
}

/// All of them, in the order in which they were noticed.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    pub(super) all: Vec<Absence>,
    /// For how long each CPU had been missed before it went away last.
    known: Vec<(u32, Nanos)>,
}

impl Absences {
    /// Takes in what the coverage says by now; answers how many CPUs have come back since it was looked last.
    pub(super) fn note(&mut self, coverage: &[CpuCoverage], now: Nanos) -> usize {
        let mut back = 0;
        for of in coverage {
            let cpu = of.cpu.0;
            let place = self.known.iter().position(|(known, _)| *known == cpu).unwrap_or_else(|| {
                self.known.push((cpu, Nanos::ZERO));
                self.known.len() - 1
            });
            let known = &mut self.known[place].1;
            let missed = of.missed.since(*known);
            let open = self.all.iter_mut().rfind(|absence| absence.cpu == cpu && absence.to.is_none());
            match (open, of.present) {
                (Some(_), false) => continue,
                (Some(absence), true) => absence.to = Some(absence.from + missed),
                (None, _) if missed == Nanos::ZERO => {}
                (None, true) => self.all.push(Absence { cpu, from: now - missed, to: Some(now) }),
                (None, false) => {
                    self.all.push(Absence { cpu, from: now - missed, to: None });
                    continue;
                }
            }
            back += usize::from(missed > Nanos::ZERO);
            *known = of.missed;
        }
        let too_many = self.all.len().saturating_sub(MOST);
        self.all.drain(..too_many);
        back
    }

    /// Forgets those that were over before a time.
    pub(crate) fn forget(&mut self, before: Nanos) {
        self.all.retain(|absence| absence.to.is_none_or(|to| to >= before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_engine::CpuId;

    fn of(missed: u64, present: bool) -> CpuCoverage {
        let missed = Nanos(missed);
        CpuCoverage { cpu: CpuId(1), covered: Nanos(5), missed, gaps: 1, present, from: None, until: None }
    }

    #[test]
    fn each_time_away_is_as_long_as_it_was() {
        let mut absences = Absences::default();
        let spans = |absences: &Absences| -> Vec<_> {
            absences.all.iter().map(|absence| (absence.from.0, absence.to.map(|to| to.0))).collect()
        };
        assert_eq!(absences.note(&[of(0, true)], Nanos(100)), 0);
        assert_eq!(spans(&absences), []);
        // Away since 190, looked at twice, and back after 45.
        assert_eq!(absences.note(&[of(10, false)], Nanos(200)), 0);
        assert_eq!(absences.note(&[of(30, false)], Nanos(220)), 0);
        assert_eq!(spans(&absences), [(190, None)]);
        assert_eq!(absences.note(&[of(45, true)], Nanos(300)), 1);
        assert_eq!(spans(&absences), [(190, Some(235))]);
        // Away and back between two looks; and then nothing new.
        assert_eq!(absences.note(&[of(52, true)], Nanos(400)), 1);
        assert_eq!(absences.note(&[of(52, true)], Nanos(500)), 0);
        assert_eq!(spans(&absences), [(190, Some(235)), (393, Some(400))]);
        // Who is away stays in memory.
        absences.note(&[of(60, false)], Nanos(600));
        absences.forget(Nanos(1000));
        assert_eq!(spans(&absences), [(592, None)]);
    }

    #[test]
    fn a_cpu_that_was_never_there_was_away_from_the_beginning() {
        let mut absences = Absences::default();
        absences.note(&[of(80, true)], Nanos(100));
        assert_eq!(absences.all, [Absence { cpu: 1, from: Nanos(20), to: Some(Nanos(100)) }]);
    }

    #[test]
    fn they_are_not_more_than_so_many() {
        let mut absences = Absences::default();
        let back: usize = (1..=5000).map(|look| absences.note(&[of(look, true)], Nanos(look * 10))).sum();
        assert_eq!(back, 5000);
        assert_eq!(absences.all.len(), MOST);
        assert_eq!(absences.all.last().and_then(|absence| absence.to), Some(Nanos(50_000)));
    }
}
