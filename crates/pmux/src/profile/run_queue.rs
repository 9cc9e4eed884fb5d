//! How long threads that could run waited for a CPU, and who ran meanwhile on the CPU that they got.
//!
//! What it is: [`RunQueue`] is a sink that adds up samples of `runqueue-time`. Samples of a clock say who ran on a CPU. Read first: [`RunQueue::worst`].
//!
//! **Invariant:** each wait is in the sum of its thread, of a CPU, and in the histogram; of short waits, which were recorded as a sum, and of
//! those without a stack only the time of the thread is known.

use super::choose::{Chosen, SampleFilter};
use super::names::Name;
use super::tasks::ThreadId;
use super::times::{TimeKind, TimeKinds, priority_of};
use super::wakes::WaitSum;
use super::{Profile, Sample, Sink};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::ControlFlow;

/// The longest waits that are told one by one.
const MOST_WORST: usize = 20;
/// So many samples of a clock are remembered on each CPU.
const MOST_REMEMBERED: usize = 1 << 14;

/// A thread, by number and by name.
pub type NamedThread = (ThreadId, Name);

/// How long a thread waited for CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuedSum {
    /// Waits that are known one by one.
    pub sum: WaitSum,
    /// Of others only how long they were together, ns.
    pub others_ns: u64,
}

/// A wait for a CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedWait {
    /// When it ended, ns after the first sample.
    pub end_ns: u64,
    /// For how long it was, ns.
    pub waited_ns: u64,
    /// Who waited.
    pub thread: NamedThread,
    /// Where it ran then, if that was recorded.
    pub cpu: Option<u32>,
    /// Who was seen to run there meanwhile, with the number of samples: the one with the most first.
    pub ran: Vec<(NamedThread, u64)>,
}

/// All waits for CPUs of a recording.
#[derive(Default)]
pub struct RunQueue {
    chosen: Chosen<Queued>,
    kinds: TimeKinds,
}

#[derive(Default)]
struct Queued {
    threads: HashMap<NamedThread, QueuedSum>,
    cpus: BTreeMap<Option<u32>, WaitSum>,
    priorities: BTreeMap<i32, WaitSum>,
    /// By the binary logarithm of ns.
    histogram: BTreeMap<u32, WaitSum>,
    worst: Vec<QueuedWait>,
    /// Who ran when.
    ran: HashMap<u32, VecDeque<(u64, NamedThread)>>,
    first_ns: u64,
}

impl RunQueue {
    /// Of the waits that are wanted. A filter says who waits, and not who runs meanwhile.
    #[must_use]
    pub fn new(wanted: SampleFilter) -> Self {
        Self { chosen: Chosen::new(wanted, Queued::default()), kinds: TimeKinds::default() }
    }

    /// Whether a recording tells of waits for CPUs.
    #[must_use]
    pub fn has_waits(profile: &Profile) -> bool {
        TimeKind::WaitedForCpu.is_in(profile)
    }

    /// Each thread that waited, in no order.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = (&NamedThread, &QueuedSum)> {
        self.chosen.sink.threads.iter()
    }

    /// Each CPU that was waited for; `None` for waits of which it was not recorded.
    pub fn cpus(&self) -> impl ExactSizeIterator<Item = (&Option<u32>, &WaitSum)> {
        self.chosen.sink.cpus.iter()
    }

    /// Each priority with which threads waited, as the kernel counts: less is before more; 120 is usual, 99 and less are real-time. Waits
    /// whose priority was not recorded are not among them.
    pub fn priorities(&self) -> impl ExactSizeIterator<Item = (&i32, &WaitSum)> {
        self.chosen.sink.priorities.iter()
    }

    /// Waits of like lengths: from so many ns to less than twice as many, the shortest first.
    pub fn histogram(&self) -> impl ExactSizeIterator<Item = (u64, &WaitSum)> {
        self.chosen.sink.histogram.iter().map(|(&log, sum)| (1 << log, sum))
    }

    /// The longest waits, the longest first: at most 20.
    #[must_use]
    pub fn worst(&self) -> &[QueuedWait] {
        &self.chosen.sink.worst
    }
}

impl Sink for RunQueue {
    fn max_stack(&self) -> usize {
        self.chosen.max_stack()
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        self.chosen.sink.first_ns = *self.chosen.first_ns.get_or_insert(sample.time_ns);
        match self.kinds.of(profile, sample.event) {
            TimeKind::WaitedForCpu => self.chosen.sample(profile, sample),
            TimeKind::Ran => {
                if let Some(cpu) = sample.cpu {
                    let ran = self.chosen.sink.ran.entry(cpu).or_default();
                    if ran.len() >= MOST_REMEMBERED {
                        ran.pop_front();
                    }
                    ran.push_back((sample.time_ns, (sample.thread, sample.comm)));
                }
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Queued {
    /// Who ran on a CPU while a thread waited.
    fn ran(&self, cpu: Option<u32>, (from_ns, to_ns): (u64, u64), waiting: NamedThread) -> Vec<(NamedThread, u64)> {
        let mut counts: Vec<(NamedThread, u64)> = Vec::new();
        let seen = cpu.and_then(|cpu| self.ran.get(&cpu)).into_iter().flatten().rev();
        let meanwhile = seen.skip_while(|(at, _)| *at > to_ns).take_while(|(at, _)| *at >= from_ns);
        for (_, thread) in meanwhile.filter(|(_, thread)| thread.0 != waiting.0) {
            match counts.iter_mut().find(|(known, _)| known == thread) {
                Some((_, count)) => *count += 1,
                None => counts.push((*thread, 1)),
            }
        }
        crate::order::sort_by_key(&mut counts, |(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

impl Sink for Queued {
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let (thread, waited_ns) = ((sample.thread, sample.comm), sample.period);
        if profile.stacks.is_nowhere(sample.stack) {
            let others_ns = &mut self.threads.entry(thread).or_default().others_ns;
            *others_ns = others_ns.saturating_add(waited_ns);
            return ControlFlow::Continue(());
        }
        let sum = WaitSum { waits: 1, total_ns: waited_ns, longest_ns: waited_ns };
        self.threads.entry(thread).or_default().sum.add(sum);
        self.cpus.entry(sample.cpu).or_default().add(sum);
        if let Some(priority) = sample.fields.weight.and_then(|weight| priority_of(weight.0)) {
            self.priorities.entry(priority).or_default().add(sum);
        }
        self.histogram.entry(waited_ns.max(1).ilog2()).or_default().add(sum);
        let place = self.worst.partition_point(|worse| worse.waited_ns >= waited_ns);
        if place < MOST_WORST {
            let during = (sample.time_ns.saturating_sub(waited_ns), sample.time_ns);
            let ran = self.ran(sample.cpu, during, thread);
            let end_ns = sample.time_ns.saturating_sub(self.first_ns);
            self.worst.truncate(MOST_WORST - 1);
            self.worst.insert(place, QueuedWait { end_ns, waited_ns, thread, cpu: sample.cpu, ran });
        }
        ControlFlow::Continue(())
    }
}
