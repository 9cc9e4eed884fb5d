//! Which part of waits lies in a stretch of time.
//!
//! What it is: a wait is told when it has ended, and while it goes on at each moment at which it was looked for. [`WaitCut`] leaves of these
//! samples what lies between two times, each wait once. Read first: [`WaitCut::records`].
//!
//! **Invariant:** pure. No part of a wait is told twice.

use super::wait_samples::{WaitSample, WaitSamples};
use crate::profile::TimeKind;
use pmux_abi::record::RecordKind;
use std::borrow::Cow;
use std::collections::HashSet;

/// A stretch of time, and which samples of waits tell of it.
#[derive(Debug)]
pub struct WaitCut<'s> {
    samples: &'s WaitSamples,
    begin_ns: u64,
    end_ns: u64,
    /// When it was looked for waits that go on at the end: then, or a little later.
    seen_ns: Option<u64>,
    /// When it was looked for others.
    other_ns: HashSet<u64>,
    /// Waits that were seen to go on at the end, by thread and beginning.
    go_on: HashSet<(u32, u64)>,
}

impl<'s> WaitCut<'s> {
    /// From `begin_ns` to `end_ns`, on the recording's clock, of these records, which are in the order in which the recorder wrote them. It
    /// was looked for waits that go on at `looks_ns` ([`super::WaitsUntil::at_ns`]); those of the end were seen at `seen_ns`, if they were.
    #[must_use]
    pub fn new(
        samples: &'s WaitSamples,
        records: &[&[u8]],
        (begin_ns, end_ns): (u64, u64),
        seen_ns: Option<u64>,
        looks_ns: impl IntoIterator<Item = u64>,
    ) -> Self {
        let other_ns = looks_ns.into_iter().filter(|at_ns| Some(*at_ns) != seen_ns).collect();
        let mut cut = Self { samples, begin_ns, end_ns, seen_ns, other_ns, go_on: HashSet::new() };
        for at in 0..records.len() {
            if let Some((wait, from_ns, _)) = cut.wait(records, at).filter(|(wait, ..)| Some(wait.time_ns) == seen_ns) {
                cut.go_on.insert((wait.tid, from_ns));
            }
        }
        cut
    }

    /// The wait that a record tells of, when it began, and when what was waited for had come. Where it waited for a CPU then, the next
    /// record tells that.
    fn wait(&self, records: &[&[u8]], at: usize) -> Option<(WaitSample, u64, u64)> {
        let wait = self.samples.read(records.get(at)?).filter(|wait| !wait.is_sum)?;
        let of_pair = |other: &WaitSample| (other.tid, other.time_ns) == (wait.tid, wait.time_ns);
        let read = |at: usize| self.samples.read(records.get(at)?).filter(of_pair);
        match wait.kind {
            TimeKind::Waited => {
                let next = read(at + 1).filter(|next| next.kind == TimeKind::WaitedForCpu);
                let runnable_ns = wait.time_ns.saturating_sub(next.map_or(0, |next| next.period_ns));
                Some((wait, runnable_ns.saturating_sub(wait.period_ns), runnable_ns))
            }
            TimeKind::WaitedForCpu => {
                let runnable_ns = wait.time_ns.saturating_sub(wait.period_ns);
                let before = at.checked_sub(1).and_then(read).filter(|before| before.kind == TimeKind::Waited);
                Some((wait, runnable_ns.saturating_sub(before.map_or(0, |before| before.period_ns)), runnable_ns))
            }
            _ => None,
        }
    }

    /// Hands over the records that belong to it, of waits with what lies in it; of other samples those up to the end, and all that are none.
    pub fn records<'r>(&self, records: &[&'r [u8]], mut put: impl FnMut(Cow<'r, [u8]>)) {
        let within = |from_ns: u64, to_ns: u64| to_ns.min(self.end_ns).saturating_sub(from_ns.max(self.begin_ns));
        for (at, &record) in records.iter().enumerate() {
            let is_sample = record.first_chunk().is_some_and(|kind| u32::from_ne_bytes(*kind) == RecordKind::SAMPLE.0);
            let changed = match (self.wait(records, at), self.samples.read(record)) {
                _ if !is_sample => {
                    put(Cow::Borrowed(record));
                    continue;
                }
                (Some((wait, from_ns, runnable_ns)), _) => {
                    let is_at_other = self.other_ns.contains(&wait.time_ns);
                    let is_twice = Some(wait.time_ns) > self.seen_ns && self.go_on.contains(&(wait.tid, from_ns));
                    let ns = match wait.kind {
                        _ if is_at_other || is_twice => 0,
                        TimeKind::Waited => within(from_ns, runnable_ns),
                        _ => within(runnable_ns, wait.time_ns),
                    };
                    (ns, wait.time_ns.min(self.end_ns), wait)
                }
                // Of short waits it is told in sums, and of who has ended waits at that time.
                (None, Some(other)) if other.time_ns <= self.end_ns => {
                    (other.period_ns.min(other.time_ns.saturating_sub(self.begin_ns)), other.time_ns, other)
                }
                (None, Some(_)) => continue,
                (None, None) => {
                    if self.samples.time_ns(record).is_none_or(|time_ns| time_ns <= self.end_ns) {
                        put(Cow::Borrowed(record));
                    }
                    continue;
                }
            };
            match changed {
                (0, ..) => {}
                (ns, time_ns, wait) if (ns, time_ns) == (wait.period_ns, wait.time_ns) => put(Cow::Borrowed(record)),
                (ns, time_ns, _) => {
                    self.samples.with(record, time_ns, ns).into_iter().for_each(|changed| put(Cow::Owned(changed)));
                }
            }
        }
    }
}
