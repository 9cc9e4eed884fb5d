//! Waits, put together from switches: when a thread left its CPU and came back, and what woke it in between.
//!
//! What it is: [`SwitchMatch`] takes in what the kernel told, in the order of its times, and tells of each wait when it is over. Read first:
//! [`SwitchMatch::take`].
//!
//! **Invariant:** pure, but for a look at threads that are met for the first time. No time is in two waits.

use super::ours::OTHERS;
use pmux_abi::record::{TaskId, callchain};
use std::collections::HashMap;

/// So many threads are added up by themselves.
const MOST_SUMS: usize = 16 << 10;
/// So many threads that have ended are remembered: what they still do is no wait.
const MOST_ENDED: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SwitchItem {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    pub(super) what: SwitchWhat,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SwitchWhat {
    /// A thread is about to leave its CPU, here: what has no part of a program is the kernel's own.
    Where(TaskId, Vec<u64>),
    /// It leaves.
    Left { task: TaskId, is_preempted: bool },
    /// It has a CPU again.
    Came(TaskId),
    /// A thread is woken by another one, or by what interrupted that, there.
    Woken { tid: u32, waker: TaskId, chain: Vec<u64> },
    /// A thread is born.
    Born(TaskId),
    /// It ends.
    Ended(TaskId),
    /// A process executes another program.
    Executed(u32),
    /// Records were lost.
    Lost,
    /// A CPU has come on which nothing was seen before.
    CpuCame,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SwitchTold {
    /// A wait is over: when the thread left, when what it waited for had come, and when it had a CPU again.
    Wait { task: TaskId, cpu: u32, left_ns: u64, runnable_ns: u64, came_ns: u64, chain: Vec<u64> },
    /// A thread has ended the wait of another one.
    Wake { task: TaskId, cpu: u32, woken_tid: u32, left_ns: u64, woken_ns: u64, chain: Vec<u64> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Position {
    /// Where it was when recording began.
    #[default]
    AsBefore,
    HasCpu,
    /// Away since then; whether it could have gone on.
    Away {
        since_ns: u64,
        is_preempted: bool,
    },
    /// It is the kernel's own, until it executes a program.
    OfKernel,
    Ended,
}

#[derive(Default)]
struct Thread {
    task: TaskId,
    position: Position,
    /// When it was woken since it left; 0: not yet.
    woken_ns: u64,
    /// Where it left.
    chain: Vec<u64>,
}

impl Thread {
    /// Whether its waits are of interest.
    fn waits(&self) -> bool {
        !matches!(self.position, Position::OfKernel | Position::Ended)
    }

    /// Whether it was away, as far as it was seen.
    fn is_away(&self) -> bool {
        match self.position {
            Position::Away { .. } => true,
            Position::AsBefore => self.woken_ns > 0,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SwitchSum {
    pub(super) blocked_ns: u64,
    pub(super) runnable_ns: u64,
}

/// Whose switches are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SwitchTarget {
    All,
    /// Of some, and of those that are born of them.
    WithChildren,
    WithoutChildren,
}

/// What is known of all threads.
pub(super) struct SwitchMatch {
    target: SwitchTarget,
    threads: HashMap<u32, Thread>,
    ended: usize,
    since_ns: u64,
    least_ns: u64,
    sums: HashMap<TaskId, SwitchSum>,
    pub(super) missed: u64,
    pub(super) lost: u64,
    /// Whether a thread that is met for the first time belongs to a program.
    is_of_program: fn(u32) -> bool,
}

impl SwitchMatch {
    /// Of no thread. Waits that are shorter are added up.
    pub(super) fn new(target: SwitchTarget, least_ns: u64, is_of_program: fn(u32) -> bool) -> Self {
        let (threads, sums) = (HashMap::new(), HashMap::new());
        Self { target, threads, ended: 0, since_ns: 0, least_ns, sums, missed: 0, lost: 0, is_of_program }
    }

    /// Recording begins, or goes on: where threads are is not known.
    pub(super) fn begin(&mut self, since_ns: u64) {
        self.since_ns = since_ns;
        for thread in self.threads.values_mut().filter(|thread| thread.waits()) {
            *thread = Thread { task: thread.task, ..Thread::default() };
        }
    }

    pub(super) fn know(&mut self, task: TaskId) {
        self.threads.insert(task.tid, Thread { task, ..Thread::default() });
    }

    pub(super) fn forget(&mut self, task: TaskId) {
        self.threads.remove(&task.tid);
    }

    pub(super) fn follows_children(&self) -> bool {
        self.target != SwitchTarget::WithoutChildren
    }

    /// The thread, which is looked at where it is new.
    fn thread(&mut self, tid: u32) -> &mut Thread {
        let is_of_program = self.is_of_program;
        self.threads.entry(tid).or_insert_with(|| {
            let position = if is_of_program(tid) { Position::AsBefore } else { Position::OfKernel };
            Thread { position, ..Thread::default() }
        })
    }

    pub(super) fn take(&mut self, item: SwitchItem, tell: &mut dyn FnMut(SwitchTold)) {
        let SwitchItem { at_ns, cpu, what } = item;
        let (since_ns, least_ns) = (self.since_ns, self.least_ns);
        match what {
            SwitchWhat::Where(task, chain) => {
                let thread = self.threads.entry(task.tid).or_default();
                match (chain.contains(&callchain::USER), thread.position) {
                    (_, Position::Ended) => {}
                    (false, _) => thread.position = Position::OfKernel,
                    (true, Position::OfKernel) => (thread.position, thread.chain) = (Position::HasCpu, chain),
                    (true, _) if thread.is_away() => self.come_unseen(task, cpu, chain, tell),
                    (true, _) => thread.chain = chain,
                }
            }
            SwitchWhat::Left { task, is_preempted } => {
                if self.thread(task.tid).is_away() {
                    self.come_unseen(task, cpu, Vec::new(), tell);
                }
                let thread = self.thread(task.tid);
                if thread.waits() {
                    thread.task = task;
                    (thread.position, thread.woken_ns) = (Position::Away { since_ns: at_ns, is_preempted }, 0);
                }
            }
            SwitchWhat::Woken { tid, waker, chain } => {
                // Those that are recorded wake also others.
                if self.target != SwitchTarget::All && !self.threads.contains_key(&tid) {
                    return;
                }
                let thread = self.thread(tid);
                let left_ns = match thread.position {
                    Position::AsBefore => since_ns,
                    Position::Away { since_ns, is_preempted: false } => since_ns,
                    _ => return,
                };
                if thread.woken_ns == 0 && at_ns > left_ns {
                    thread.woken_ns = at_ns;
                    if at_ns - left_ns >= least_ns {
                        tell(SwitchTold::Wake { task: waker, cpu, woken_tid: tid, left_ns, woken_ns: at_ns, chain });
                    }
                }
            }
            SwitchWhat::Came(task) => self.come(task, cpu, at_ns, tell),
            // It waits for its first CPU.
            SwitchWhat::Born(task) => {
                if self.follows_children() {
                    let position = Position::Away { since_ns: at_ns, is_preempted: true };
                    self.threads.insert(task.tid, Thread { task, position, ..Thread::default() });
                }
            }
            SwitchWhat::Ended(task) => {
                self.ended += 1;
                if self.ended > MOST_ENDED {
                    // Those of the kernel are met again.
                    self.threads.retain(|_, thread| thread.waits());
                    self.ended = 0;
                }
                self.threads.insert(task.tid, Thread { position: Position::Ended, ..Thread::default() });
            }
            // Whichever of its threads does, it is the first one then.
            SwitchWhat::Executed(pid) => {
                let task = TaskId { pid, tid: pid };
                self.threads.insert(pid, Thread { task, position: Position::HasCpu, ..Thread::default() });
            }
            SwitchWhat::Lost | SwitchWhat::CpuCame => {
                self.lost += u64::from(what == SwitchWhat::Lost);
                // Where threads are is not known any more, as when recording began.
                self.begin(at_ns);
            }
        }
    }

    /// A thread leaves that was not seen to come back: it waited until it was woken, as far as is known. It leaves there.
    fn come_unseen(&mut self, task: TaskId, cpu: u32, leaves: Vec<u64>, tell: &mut dyn FnMut(SwitchTold)) {
        self.missed += 1;
        let woken_ns = self.thread(task.tid).woken_ns;
        if woken_ns > 0 {
            self.come(task, cpu, woken_ns, tell);
        }
        let thread = self.thread(task.tid);
        (thread.position, thread.chain) = (Position::HasCpu, leaves);
    }

    fn come(&mut self, task: TaskId, cpu: u32, at_ns: u64, tell: &mut dyn FnMut(SwitchTold)) {
        let (since_ns, least_ns) = (self.since_ns, self.least_ns);
        let thread = self.thread(task.tid);
        let away = match thread.position {
            Position::OfKernel | Position::Ended => return,
            Position::HasCpu => None,
            // It slept: what could go on had a CPU before long.
            Position::AsBefore => Some((since_ns, false)),
            Position::Away { since_ns, is_preempted } => Some((since_ns, is_preempted)),
        };
        let chain = std::mem::take(&mut thread.chain);
        let woken_ns = std::mem::take(&mut thread.woken_ns);
        (thread.position, thread.task) = (Position::HasCpu, task);
        let Some((left_ns, is_preempted)) = away else {
            self.missed += 1;
            return;
        };
        let runnable_ns = runnable((left_ns, is_preempted), woken_ns, at_ns);
        if at_ns.saturating_sub(left_ns) >= least_ns {
            tell(SwitchTold::Wait { task, cpu, left_ns, runnable_ns, came_ns: at_ns.max(left_ns), chain });
            return;
        }
        let is_known = self.sums.len() < MOST_SUMS || self.sums.contains_key(&task);
        let sum = self.sums.entry(if is_known { task } else { OTHERS }).or_default();
        sum.blocked_ns += runnable_ns - left_ns;
        sum.runnable_ns += at_ns.saturating_sub(runnable_ns);
    }

    /// Tells of waits that go on, as if they ended then; of named threads that were not met since recording began, of those that sleep.
    pub(super) fn under_way(&self, at_ns: u64, sleeps: impl Fn(u32) -> bool, tell: &mut dyn FnMut(SwitchTold)) {
        for thread in self.threads.values() {
            let away = match thread.position {
                Position::Away { since_ns, is_preempted } => (since_ns, is_preempted),
                Position::AsBefore if thread.task.tid != 0 && sleeps(thread.task.tid) => (self.since_ns, false),
                _ => continue,
            };
            if away.0 < at_ns {
                let (task, left_ns, chain) = (thread.task, away.0, thread.chain.clone());
                let runnable_ns = runnable(away, thread.woken_ns, at_ns);
                tell(SwitchTold::Wait { task, cpu: 0, left_ns, runnable_ns, came_ns: at_ns, chain });
            }
        }
    }

    /// What short waits came to since the last call.
    pub(super) fn take_sums(&mut self) -> impl Iterator<Item = (TaskId, SwitchSum)> + use<> {
        std::mem::take(&mut self.sums).into_iter()
    }
}

/// Until when a thread that is away since then waited for something else than a CPU.
fn runnable((left_ns, is_preempted): (u64, bool), woken_ns: u64, came_ns: u64) -> u64 {
    match woken_ns {
        _ if is_preempted => left_ns,
        // That it was woken was not seen.
        0 => came_ns.max(left_ns),
        woken_ns => woken_ns.clamp(left_ns, came_ns.max(left_ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::SwitchWhat::{Born, Came, Ended, Executed, Left, Lost, Where, Woken};
    use super::*;

    const OF_KERNEL: u32 = 2;

    fn task(tid: u32) -> TaskId {
        TaskId { pid: 7, tid }
    }

    fn left(tid: u32, is_preempted: bool) -> SwitchWhat {
        Left { task: task(tid), is_preempted }
    }

    fn at(tid: u32) -> SwitchWhat {
        Where(task(tid), vec![callchain::KERNEL, 1, callchain::USER, u64::from(tid)])
    }

    fn woken(tid: u32) -> SwitchWhat {
        Woken { tid, waker: task(99), chain: vec![callchain::KERNEL, 5] }
    }

    /// What is told of these, as (thread, left, runnable, came, whether it is known where); of wakes the second is 0.
    fn told(waits: &mut SwitchMatch, items: &[(u64, SwitchWhat)]) -> Vec<(u32, u64, u64, u64, bool)> {
        let mut all = Vec::new();
        for (at_ns, what) in items {
            waits.take(SwitchItem { at_ns: *at_ns, cpu: 0, what: what.clone() }, &mut |told| all.push(row(told)));
        }
        all
    }

    fn row(told: SwitchTold) -> (u32, u64, u64, u64, bool) {
        match told {
            SwitchTold::Wait { task, left_ns, runnable_ns, came_ns, chain, .. } => {
                (task.tid, left_ns, runnable_ns, came_ns, !chain.is_empty())
            }
            SwitchTold::Wake { woken_tid, left_ns, woken_ns, chain, .. } => {
                (woken_tid, 0, left_ns, woken_ns, !chain.is_empty())
            }
        }
    }

    fn begun() -> SwitchMatch {
        begun_of(SwitchTarget::All)
    }

    fn begun_of(target: SwitchTarget) -> SwitchMatch {
        let mut waits = SwitchMatch::new(target, 10, |tid| tid != OF_KERNEL);
        waits.begin(1000);
        waits
    }

    #[test]
    fn a_wait_ends_when_its_thread_has_a_cpu() {
        let mut waits = begun();
        let items = [
            (1100, at(1)),
            (1101, left(1, false)),
            (1150, woken(1)),
            // A second one changes nothing.
            (1155, woken(1)),
            (1160, Came(task(1))),
            // It had to give its CPU away, and nothing else was waited for.
            (1200, at(1)),
            (1201, left(1, true)),
            (1205, woken(1)),
            (1230, Came(task(1))),
        ];
        let expected = [(1, 0, 1101, 1150, true), (1, 1101, 1150, 1160, true), (1, 1201, 1201, 1230, true)];
        assert_eq!(told(&mut waits, &items), expected);
        // Short ones are added up.
        let items = [
            (1300, left(1, false)),
            (1304, woken(1)),
            (1309, Came(task(1))),
            (1310, left(1, true)),
            (1319, Came(task(1))),
        ];
        assert_eq!(told(&mut waits, &items), []);
        assert_eq!(waits.take_sums().collect::<Vec<_>>(), [(task(1), SwitchSum { blocked_ns: 4, runnable_ns: 14 })]);
        assert_eq!(waits.take_sums().count(), 0);
    }

    #[test]
    fn what_was_away_when_recording_began_and_what_is_born() {
        let mut waits = begun();
        let items = [
            (1050, woken(1)),
            (1060, Came(task(1))),
            (1070, Came(task(3))),
            // Of one of the kernel's own nothing is told, whichever way it is met.
            (1080, Came(task(OF_KERNEL))),
            (1081, Where(task(4), vec![callchain::KERNEL, 1])),
            (1082, left(4, false)),
            (1099, Came(task(4))),
            (1100, Born(task(5))),
            (1120, Came(task(5))),
        ];
        let expected = [
            (1, 0, 1000, 1050, true),
            (1, 1000, 1050, 1060, false),
            (3, 1000, 1070, 1070, false),
            (5, 1100, 1100, 1120, false),
        ];
        assert_eq!((told(&mut waits, &items), waits.missed), (expected.to_vec(), 0));
    }

    #[test]
    fn who_was_not_seen_to_come_back_has_waited_until_it_was_woken() {
        let mut waits = begun();
        let items = [
            (1100, at(1)),
            (1101, left(1, false)),
            (1150, woken(1)),
            (1200, at(1)),
            (1201, left(1, false)),
            // And where that was not seen either, nothing is known.
            (1300, left(1, false)),
            (1400, Came(task(1))),
            // It was seen to sleep since recording began.
            (1410, woken(3)),
            (1420, left(3, false)),
        ];
        let expected = [
            (1, 0, 1101, 1150, true),
            (1, 1101, 1150, 1150, true),
            (1, 1300, 1400, 1400, false),
            (3, 0, 1000, 1410, true),
            (3, 1000, 1410, 1410, false),
        ];
        assert_eq!((told(&mut waits, &items), waits.missed), (expected.to_vec(), 3));
    }

    #[test]
    fn who_executes_has_a_cpu_and_the_number_of_its_process() {
        let mut waits = begun();
        // The first thread ends when another one executes, and a thread of the kernel's becomes a program.
        let items = [
            (1100, Ended(task(7))),
            (1101, Executed(7)),
            (1102, at(7)),
            (1103, left(7, false)),
            (1200, Came(task(7))),
            (1210, Where(task(4), vec![callchain::KERNEL])),
            (1211, left(4, false)),
            (1250, at(4)),
            (1251, left(4, false)),
            (1300, Came(task(4))),
        ];
        assert_eq!(told(&mut waits, &items), [(7, 1103, 1200, 1200, true), (4, 1251, 1300, 1300, true)]);
        // Children that are not recorded wait for nothing.
        let mut waits = begun_of(SwitchTarget::WithoutChildren);
        assert_eq!(told(&mut waits, &[(1100, Born(task(5)))]), []);
        waits.under_way(1200, |_| false, &mut |told| panic!("{told:?}"));
    }

    #[test]
    fn what_goes_on_is_told_until_then() {
        let mut waits = begun_of(SwitchTarget::WithChildren);
        [5, 6, 8].map(task).into_iter().for_each(|task| waits.know(task));
        let items = [
            (1100, at(1)),
            (1101, left(1, false)),
            // Of the second one it is not known whether it is recorded.
            (1110, woken(6)),
            (1111, woken(7)),
            (1120, left(3, true)),
            (1130, at(4)),
            (1131, Ended(task(4))),
            (1132, left(4, false)),
            (1140, Came(task(5))),
        ];
        assert_eq!(told(&mut waits, &items), [(6, 0, 1000, 1110, true), (5, 1000, 1140, 1140, false)]);
        let mut all = Vec::new();
        waits.under_way(1200, |tid| tid == 6 || tid == 8, &mut |told| all.push(row(told)));
        all.sort_unstable();
        let expected = [
            (1, 1101, 1200, 1200, true),
            (3, 1120, 1120, 1200, false),
            (6, 1000, 1110, 1200, false),
            (8, 1000, 1200, 1200, false),
        ];
        assert_eq!(all, expected);
        // Another thread gets the number.
        assert_eq!(told(&mut waits, &[(1300, Born(task(4))), (1320, Came(task(4)))]), [(4, 1300, 1300, 1320, false)]);
    }

    #[test]
    fn what_was_lost_makes_no_wait() {
        let mut waits = begun();
        let items = [(1100, left(1, false)), (1150, Lost), (1400, Came(task(1))), (1500, Came(task(3)))];
        // Where threads are is not known then, and who comes back has slept since.
        assert_eq!(told(&mut waits, &items), [(1, 1150, 1400, 1400, false), (3, 1150, 1500, 1500, false)]);
        assert_eq!((waits.missed, waits.lost), (0, 1));
        // What was begun anew does not know where threads were before, but which there are.
        waits.begin(2000);
        assert_eq!(told(&mut waits, &[(2100, Came(task(1)))]), [(1, 2000, 2100, 2100, false)]);
        for tid in [8, 9] {
            waits.know(task(tid));
        }
        waits.forget(task(9));
        let mut all = Vec::new();
        waits.under_way(2200, |_| true, &mut |told| all.push(row(told)));
        all.sort_unstable();
        assert_eq!(all, [(3, 2000, 2200, 2200, false), (8, 2000, 2200, 2200, false)]);
    }

    #[test]
    fn memory_has_an_end() {
        let mut waits = begun();
        for tid in 10..10 + 2 * MOST_SUMS as u32 {
            let items = [(1100, left(tid, false)), (1105, Came(task(tid))), (1106, Ended(task(tid)))];
            assert_eq!(told(&mut waits, &items), []);
        }
        assert!(waits.threads.len() <= MOST_ENDED + 1);
        let sums: Vec<_> = waits.take_sums().collect();
        assert_eq!(sums.len(), MOST_SUMS + 1);
        assert_eq!(sums.iter().map(|(_, sum)| sum.blocked_ns).sum::<u64>(), 5 * 2 * MOST_SUMS as u64);
    }
}
