//! What a thread's time was spent on, by it and by those that it waited for.
//!
//! What it is: [`critical_path`] goes through a thread's time. Where the thread waited for another one, it goes through what that one did
//! meanwhile, and so on: what is left are stretches in which a thread ran, or waited for what no recorded thread did. Read first:
//! [`Stretch`].
//!
//! **Invariant:** the stretches follow each other without a gap and without an overlap: together they are the time that was asked for.

use super::modules::ModuleKind;
use super::tasks::{Tasks, ThreadId};
use super::times::TimeKind;
use super::wall::{WaitKind, WaitSpan, Waker};
use super::{Profile, StackId, Whole};

/// Part of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// From when, in ns of the recording's clock.
    pub from_ns: u64,
    /// To when, in ns of the recording's clock.
    pub to_ns: u64,
    /// Who ran or waited.
    pub thread: ThreadId,
    /// What it waited for; `None` where it ran, or waited for so short that it was not recorded.
    pub wait: Option<PathWait>,
    /// The one that waited for this thread meanwhile, and for what; `None` of the thread that was asked for.
    pub awaited_by: Option<(ThreadId, WaitKind)>,
}

/// A wait that is on the path, for nothing that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathWait {
    /// For what.
    pub kind: WaitKind,
    /// Where it waited.
    pub stack: StackId,
    /// Who ended it, if that was recorded.
    pub waker: Option<Waker>,
}

/// Who waits for a thread, and for what.
type Waiter = (ThreadId, WaitKind);

/// So many threads wait for each other at most; what is behind is a wait like others.
const DEEPEST: u32 = 32;

/// What the time of a thread from one moment to another, in ns of the recording's clock, was spent on. `waits` are those of
/// [`Whole::waits`].
#[must_use]
pub fn critical_path(
    profile: &Profile,
    whole: &Whole,
    waits: &[WaitSpan],
    thread: ThreadId,
    (from_ns, to_ns): (u64, u64),
) -> Vec<Stretch> {
    let mut path = Path::new(&profile.tasks, waits);
    // One of which nothing is told may have waited, too: of threads of the kernel no waits are recorded.
    let kinds: Vec<TimeKind> = profile.events.iter().map(TimeKind::of).collect();
    for sample in &whole.samples {
        let known = &mut path.threads[sample.thread.index()];
        known.is_told |= match kinds.get(sample.event as usize) {
            Some(TimeKind::Waited | TimeKind::WaitedForCpu) => true,
            Some(TimeKind::Ran) => !known.is_told && is_of_program(profile, sample.stack),
            _ => false,
        };
    }
    path.explain(thread, (from_ns, to_ns), None, 0);
    path.stretches
}

/// Whether a stack has a function that is none of the kernel.
fn is_of_program(profile: &Profile, stack: StackId) -> bool {
    let kind = |frame| profile.modules.get(profile.stacks.frame(frame).module).kind;
    profile.stacks.walk(stack).any(|frame| !kind(frame).is_kernel() && kind(frame) != ModuleKind::Unknown)
}

/// What is known of a thread.
#[derive(Clone, Default)]
struct OfThread {
    is_told: bool,
    /// In the order of time, and without an overlap.
    waits: Vec<WaitSpan>,
}

struct Path<'a> {
    tasks: &'a Tasks,
    /// In the order of their ids.
    threads: Vec<OfThread>,
    stretches: Vec<Stretch>,
}

impl<'a> Path<'a> {
    fn new(tasks: &'a Tasks, waits: &[WaitSpan]) -> Self {
        let mut threads = vec![OfThread::default(); tasks.threads().len()];
        let mut in_order = waits.to_vec();
        crate::order::sort_by_key(&mut in_order, |wait| wait.from_ns);
        for wait in in_order {
            let known = &mut threads[wait.sample.thread.index()].waits;
            let from_ns = known.last().map_or(0, |before| before.to_ns).max(wait.from_ns);
            if from_ns < wait.to_ns {
                known.push(WaitSpan { from_ns, ..wait });
            }
        }
        Self { tasks, threads, stretches: Vec::new() }
    }

    fn explain(&mut self, thread: ThreadId, (from_ns, to_ns): (u64, u64), awaited_by: Option<Waiter>, depth: u32) {
        let mut place = self.threads[thread.index()].waits.partition_point(|wait| wait.to_ns <= from_ns);
        let mut at_ns = from_ns;
        while let Some(&wait) = self.threads[thread.index()].waits.get(place).filter(|wait| wait.from_ns < to_ns) {
            let (from_ns, to_ns) = (wait.from_ns.max(at_ns), wait.to_ns.min(to_ns));
            self.add(at_ns, from_ns, thread, None, awaited_by);
            self.wait(&wait, (from_ns, to_ns), awaited_by, depth);
            at_ns = to_ns;
            place += 1;
        }
        self.add(at_ns, to_ns, thread, None, awaited_by);
    }

    fn wait(&mut self, wait: &WaitSpan, (from_ns, to_ns): (u64, u64), awaited_by: Option<Waiter>, depth: u32) {
        let thread = wait.sample.thread;
        let waker = match wait.waker {
            Some(Waker::Thread(waker)) if waker != thread && depth < DEEPEST => Some(waker),
            _ => None,
        };
        let waker = waker.filter(|waker| self.threads[waker.index()].is_told);
        // Before it was there, others were waited for.
        let known_from_ns =
            waker.map_or(to_ns, |waker| self.tasks.thread(waker).born_ns.unwrap_or(0).clamp(from_ns, to_ns));
        let leaf = PathWait { kind: wait.kind, stack: wait.sample.stack, waker: wait.waker };
        self.add(from_ns, known_from_ns, thread, Some(leaf), awaited_by);
        if let Some(waker) = waker.filter(|_| known_from_ns < to_ns) {
            self.explain(waker, (known_from_ns, to_ns), Some((thread, wait.kind)), depth + 1);
        }
    }

    fn add(&mut self, from_ns: u64, to_ns: u64, thread: ThreadId, wait: Option<PathWait>, awaited_by: Option<Waiter>) {
        if from_ns < to_ns {
            self.stretches.push(Stretch { from_ns, to_ns, thread, wait, awaited_by });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Name, Names, Taken};
    use super::*;

    fn wait(thread: ThreadId, from_ns: u64, to_ns: u64, kind: WaitKind, waker: Option<Waker>) -> WaitSpan {
        let (stack, comm) = (StackId::EMPTY, Name::default());
        let sample = Taken { time_ns: to_ns, period: to_ns - from_ns, stack, thread, comm, event: 0, cpu: None };
        WaitSpan { sample, place: 0, from_ns, to_ns, kind, waker }
    }

    /// Of a thread, from 0 to 100: from, to, thread, what it waited for.
    fn path(waits: &[WaitSpan], thread: ThreadId, tasks: &Tasks) -> Vec<(u64, u64, ThreadId, Option<WaitKind>)> {
        let mut path = Path::new(tasks, waits);
        waits.iter().for_each(|wait| path.threads[wait.sample.thread.index()].is_told = true);
        path.explain(thread, (0, 100), None, 0);
        let mut at_ns = 0;
        for stretch in &path.stretches {
            assert_eq!(stretch.from_ns, at_ns, "no gap and no overlap: {:?}", path.stretches);
            at_ns = stretch.to_ns;
        }
        assert_eq!(at_ns, 100);
        let line =
            |stretch: &Stretch| (stretch.from_ns, stretch.to_ns, stretch.thread, stretch.wait.map(|wait| wait.kind));
        path.stretches.iter().map(line).collect()
    }

    #[test]
    fn what_was_waited_for_is_what_others_did_meanwhile() {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        let [main, worker, other] = [1, 2, 3].map(|tid| tasks.find(1, tid, &mut names));
        let by = |thread| Some(Waker::Thread(thread));
        let waits = [
            wait(worker, 10, 30, WaitKind::Sleep, None),
            wait(worker, 40, 60, WaitKind::Lock, by(other)),
            wait(main, 20, 80, WaitKind::Lock, by(worker)),
            wait(main, 80, 85, WaitKind::RunQueue, None),
        ];
        let expected = [
            (0, 20, main, None),
            (20, 30, worker, Some(WaitKind::Sleep)),
            (30, 40, worker, None),
            // Nothing is known of the other one.
            (40, 60, worker, Some(WaitKind::Lock)),
            (60, 80, worker, None),
            (80, 85, main, Some(WaitKind::RunQueue)),
            (85, 100, main, None),
        ];
        assert_eq!(path(&waits, main, &tasks), expected);
        assert_eq!(path(&waits, other, &tasks), [(0, 100, other, None)]);
    }

    #[test]
    fn threads_that_wait_for_each_other_and_overlaps_come_to_an_end() {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        let [one, other] = [1, 2].map(|tid| tasks.find(1, tid, &mut names));
        let by = |thread| Some(Waker::Thread(thread));
        let mut waits =
            vec![wait(one, 0, 100, WaitKind::Lock, by(other)), wait(other, 0, 100, WaitKind::Lock, by(one))];
        assert_eq!(path(&waits, one, &tasks), [(0, 100, one, Some(WaitKind::Lock))]);
        waits = vec![wait(one, 0, 50, WaitKind::Io, None), wait(one, 20, 60, WaitKind::Io, None)];
        let expected = [(0, 50, one, Some(WaitKind::Io)), (50, 60, one, Some(WaitKind::Io)), (60, 100, one, None)];
        assert_eq!(path(&waits, one, &tasks), expected);
    }

    #[test]
    fn before_a_thread_was_there_it_was_not_waited_for() {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        let main = tasks.find(1, 1, &mut names);
        let child = tasks.fork((2, 2), (1, 1), Some(40), &mut names);
        let waits =
            [wait(child, 90, 95, WaitKind::Io, None), wait(main, 10, 100, WaitKind::Child, Some(Waker::Thread(child)))];
        let expected = [
            (0, 10, main, None),
            (10, 40, main, Some(WaitKind::Child)),
            (40, 90, child, None),
            (90, 95, child, Some(WaitKind::Io)),
            (95, 100, child, None),
        ];
        assert_eq!(path(&waits, main, &tasks), expected);
    }
}
