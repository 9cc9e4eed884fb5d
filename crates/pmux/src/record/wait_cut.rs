//! Which part of waits lies in a stretch of time.
//!
//! What it is: a wait is told when it has ended, and while it goes on at each moment at which it was looked for. [`WaitCut`] leaves of these
//! samples what lies between two times, each wait once. Read first: [`WaitCut::records`].
//!
//! **Invariant:** pure. No part of a wait is told twice, and no thread waits for longer than the time is.

use super::ours::OTHERS;
use super::wait_samples::{WaitSample, WaitSamples};
use crate::profile::TimeKind;
use pmux_abi::record::RecordKind;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// A stretch of time, and what tells of its waits.
#[derive(Debug)]
pub struct WaitCut<'s> {
    samples: &'s WaitSamples,
    begin_ns: u64,
    end_ns: u64,
    /// When it was looked for waits that go on at the end: then, or a little later.
    seen_ns: Option<u64>,
    /// When it was looked for others.
    other_ns: HashSet<u64>,
}

/// What is known of a wait.
#[derive(Clone, Copy)]
struct Part {
    wait: WaitSample,
    /// When it began, and when what was waited for had come.
    from_ns: u64,
    runnable_ns: u64,
}

impl<'s> WaitCut<'s> {
    /// From `begin_ns` to `end_ns`, on the recording's clock. It was looked for waits that go on at `looks_ns`
    /// ([`super::WaitsUntil::at_ns`]); those of the end were seen at `seen_ns`, if they were.
    #[must_use]
    pub fn new(
        samples: &'s WaitSamples,
        (begin_ns, end_ns): (u64, u64),
        seen_ns: Option<u64>,
        looks_ns: impl IntoIterator<Item = u64>,
    ) -> Self {
        let other_ns = looks_ns.into_iter().filter(|at_ns| Some(*at_ns) != seen_ns).collect();
        Self { samples, begin_ns, end_ns, seen_ns, other_ns }
    }

    /// Hands over the records that belong to it, of waits with what lies in it; of other samples those up to the end, and all that are none.
    /// They are in the order in which the recorder wrote them.
    pub fn records<'r>(&self, records: &[&'r [u8]], mut put: impl FnMut(Cow<'r, [u8]>)) {
        let waits: Vec<Option<WaitSample>> = records.iter().map(|record| self.samples.read(record)).collect();
        let parts: Vec<Option<Part>> = (0..waits.len()).map(|at| part(&waits, at)).collect();
        let is_seen = |part: &&Part| Some(part.wait.time_ns) == self.seen_ns;
        let go_on = parts.iter().flatten().filter(is_seen).map(|part| (part.wait.tid, part.from_ns)).collect();
        let lengths_ns: Vec<u64> =
            parts.iter().map(|part| part.map_or(0, |part| self.length_ns(part, &go_on))).collect();
        // Sums have what is left of the time: also waits are in them that had no room, or whose end was not seen.
        let mut left_ns: HashMap<u32, u64> = HashMap::new();
        let all_ns = self.end_ns.saturating_sub(self.begin_ns);
        for (part, ns) in parts.iter().zip(&lengths_ns) {
            if let Some(part) = part.filter(|part| part.wait.kind != TimeKind::Woke) {
                let left_ns = left_ns.entry(part.wait.tid).or_insert(all_ns);
                *left_ns = left_ns.saturating_sub(*ns);
            }
        }
        for (at, &record) in records.iter().enumerate() {
            let is_sample = record.first_chunk().is_some_and(|kind| u32::from_ne_bytes(*kind) == RecordKind::SAMPLE.0);
            let Some(wait) = waits.get(at).copied().flatten() else {
                if !is_sample || self.samples.time_ns(record).is_none_or(|time_ns| time_ns <= self.end_ns) {
                    put(Cow::Borrowed(record));
                }
                continue;
            };
            let ns = match parts.get(at).copied().flatten() {
                Some(_) => lengths_ns.get(at).copied().unwrap_or(0),
                // Of short waits it is told in sums, and of who has ended waits at that time.
                None if wait.time_ns > self.end_ns || wait.time_ns < self.begin_ns => 0,
                None if wait.kind == TimeKind::Woke => wait.period_ns.min(wait.time_ns - self.begin_ns),
                // Of many threads.
                None if wait.tid == OTHERS.tid => wait.period_ns,
                None => {
                    let left_ns = left_ns.entry(wait.tid).or_insert(all_ns);
                    let ns = wait.period_ns.min(wait.time_ns - self.begin_ns).min(*left_ns);
                    *left_ns -= ns;
                    ns
                }
            };
            let time_ns = wait.time_ns.min(self.end_ns);
            if ns > 0 && (ns, time_ns) == (wait.period_ns, wait.time_ns) {
                put(Cow::Borrowed(record));
            } else if ns > 0 {
                self.samples.with(record, time_ns, ns).into_iter().for_each(|changed| put(Cow::Owned(changed)));
            }
        }
    }

    /// How much of a wait lies in it, ns; 0 of what is told by another record, too.
    fn length_ns(&self, Part { wait, from_ns, runnable_ns }: Part, go_on: &HashSet<(u32, u64)>) -> u64 {
        let within = |from_ns: u64, to_ns: u64| to_ns.min(self.end_ns).saturating_sub(from_ns.max(self.begin_ns));
        let is_at_other = self.other_ns.contains(&wait.time_ns);
        let is_twice = Some(wait.time_ns) > self.seen_ns && go_on.contains(&(wait.tid, from_ns));
        match wait.kind {
            _ if is_at_other || is_twice => 0,
            TimeKind::Waited => within(from_ns, runnable_ns),
            _ => within(runnable_ns, wait.time_ns),
        }
    }
}

/// The wait that a record tells of, if it is no sum. Where it waited for a CPU at the end, the next record tells that.
fn part(waits: &[Option<WaitSample>], at: usize) -> Option<Part> {
    let wait = waits.get(at).copied().flatten().filter(|wait| !wait.is_sum)?;
    let of_pair = |other: &WaitSample| (other.tid, other.time_ns) == (wait.tid, wait.time_ns);
    let other = |at: usize| waits.get(at).copied().flatten().filter(of_pair);
    let (from_ns, runnable_ns) = match wait.kind {
        TimeKind::Waited => {
            let next = other(at + 1).filter(|next| next.kind == TimeKind::WaitedForCpu);
            let runnable_ns = wait.time_ns.saturating_sub(next.map_or(0, |next| next.period_ns));
            (runnable_ns.saturating_sub(wait.period_ns), runnable_ns)
        }
        TimeKind::WaitedForCpu => {
            let runnable_ns = wait.time_ns.saturating_sub(wait.period_ns);
            let before = at.checked_sub(1).and_then(other).filter(|before| before.kind == TimeKind::Waited);
            (runnable_ns.saturating_sub(before.map_or(0, |before| before.period_ns)), runnable_ns)
        }
        _ => return None,
    };
    Some(Part { wait, from_ns, runnable_ns })
}
