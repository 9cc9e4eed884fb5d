//! How often spots were hit, and for how long and where they were watched.
//!
//! **Invariant:** a count is the kernel's, less what is none of ours; what was counted and not told is a number.

use super::{OpenBreakpoints, Watch, WatchDetail};
use crate::counters::SetCoverage;
use crate::error::Error;
use pmux_engine::Count;
use pmux_engine::engine::CpuReading;
use std::collections::HashSet;

impl Watch {
    /// How often a spot was hit since it was armed, exactly, with children and new threads: asks the kernel. Where registers
    /// take turns, the count has the share of the time.
    ///
    /// A hit from before complete arming is not in it, as far as [`Watch::take`] has met it.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn count(&self, watch_target: usize) -> Result<Count, Error> {
        let engine = self.session.engine();
        let mut sum = Count::default();
        for held in &self.held {
            match held {
                OpenBreakpoints::Tasks { watch_target: of, event, .. } if *of == watch_target => {
                    sum += engine.read(*event)?;
                }
                OpenBreakpoints::Tasks { .. } => {}
                OpenBreakpoints::Cpus { watch_targets, set } => {
                    for cpu in engine.read_set(**set)?.cpus {
                        for (&of, count) in watch_targets.iter().zip(cpu.counts) {
                            if of == watch_target {
                                sum += count?;
                            }
                        }
                    }
                }
            }
        }
        let not_ours = self.watched.get(watch_target).map_or(0, |watched| watched.not_ours);
        sum.value = sum.value.saturating_sub(not_ours);
        Ok(sum)
    }

    /// For how long CPUs were watched, where CPUs are the target; empty for tasks. Until [`Watch::disarm`], if that was called.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn coverage(&self) -> Result<SetCoverage, Error> {
        if let Some(covered) = &self.covered {
            return Ok(covered.clone());
        }
        let mut coverage = SetCoverage::default();
        for held in &self.held {
            let OpenBreakpoints::Cpus { set, .. } = held else { continue };
            let read = self.session.engine().read_set(**set)?;
            let refused = |cpu: &CpuReading| Some((cpu.cpu.0, cpu.refused?.to_string()));
            coverage.refused.extend(read.cpus.iter().filter_map(refused));
            // What was armed first was watched for the longest time. All are on the same CPUs.
            if coverage.cpus.is_empty() {
                (coverage.span, coverage.cpus) = (read.span, read.coverage);
            }
        }
        crate::order::sort(&mut coverage.refused);
        coverage.refused.dedup();
        Ok(coverage)
    }

    /// How many hits the rings had no room for, as of the last [`Watch::take`]: they are counted, but it is not known whose
    /// they were. With [`WatchDetail::Rows`] it is known of most of them nevertheless, and [`Watch::unseen`] says of how many it is not.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// How many hits are counted and were not told: [`Watch::lost`], and those of which the kernel has not said so yet. It does
    /// that in front of the next record only. Right after [`Watch::disarm`] and [`Watch::finish`]; before, some are under way.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn unseen(&self) -> Result<u64, Error> {
        if self.options.detail == WatchDetail::Counts || self.only_counts {
            return Ok(0);
        }
        let mut unseen = 0;
        for (watch_target, watched) in self.watched.iter().enumerate() {
            unseen += self.count(watch_target)?.value.saturating_sub(watched.reported);
        }
        Ok(unseen.saturating_sub(self.missed()))
    }

    /// How many hits were not even written, because the condition did not hold.
    fn missed(&self) -> u64 {
        let Some(probe) = &self.probe else { return 0 };
        let registers: HashSet<u64> =
            self.watched.iter().flat_map(|watched| watched.pieces.iter().map(|piece| piece.address)).collect();
        registers.into_iter().map(|register| probe.maps.missed(register)).sum()
    }
}
