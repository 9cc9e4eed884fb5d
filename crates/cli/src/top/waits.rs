//! What threads wait for: which part of each wait lies in an interval.
//!
//! What it is: the recorder tells of each wait when it has ended, and of those that go on at one moment after the other. Intervals end at
//! these moments: [`Waits::cut`] takes of each wait what lies between two of them. Read first: [`Waits::cut`].
//!
//! **Invariant:** no part of a wait is in two intervals. Of short waits only sums are known, which belong to where they were told.

use super::interval::{LiveSample, WAITS};
use pmux::profile::{TimeKind, WaitKind};
use pmux::record::WaitsUntil;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// So many waits of an interval are kept.
const MOST_WAITS: usize = 1 << 16;
/// Both samples of a wait stand one behind the other, but for those of other threads at the same ns.
const NEAR: usize = 8;

struct LiveWait {
    /// Whose.
    sample: LiveSample,
    /// Functions by number, the innermost first.
    stack: Vec<u32>,
    kind: WaitKind,
    from_ns: u64,
    /// When what was waited for had come: between the others.
    runnable_ns: u64,
    to_ns: u64,
    /// How many samples have told of it.
    samples: u64,
    /// Whether it is the sum of many.
    is_sum: bool,
}

#[derive(Default)]
pub(super) struct Waits {
    told: Vec<LiveWait>,
    /// By thread: after which time its wait was ended last, and by what.
    woken: HashMap<i32, (u64, Arc<str>)>,
    /// How many had no room.
    left_out: u64,
    /// Where the interval begins, ns of the recording's clock; `None` before the first moment.
    began_ns: Option<u64>,
    /// Where it ends, once it does, and whether all has come that tells of it.
    until: Option<WaitsUntil>,
    pub(super) are_here: bool,
    /// Whether all that was read was told.
    is_settled: bool,
    /// Moments at which it was to end, and did not: another one came before it was cut.
    passed_ns: Vec<u64>,
}

/// What an interval had of them.
#[derive(Default)]
pub(super) struct CutWaits {
    /// Each part, with its functions. The period is how long it was.
    pub(super) parts: Vec<(LiveSample, Vec<u32>)>,
    /// From when to when, ns of the recording's clock; `None` if it has no end.
    pub(super) window_ns: Option<(u64, u64)>,
    pub(super) left_out: u64,
}

impl Waits {
    /// Takes in who has ended the wait of a thread, which was so long. The wait is told later.
    pub(super) fn take_wake(&mut self, tid: i32, waited_ns: u64, waker: &str) {
        self.is_settled = false;
        match self.woken.get_mut(&tid) {
            Some((ns, known)) if **known == *waker => *ns = waited_ns,
            _ => drop(self.woken.insert(tid, (waited_ns, waker.into()))),
        }
    }

    /// Takes in what a sample tells: of a wait of this kind, or of one for a CPU. A sum has no stack.
    pub(super) fn take(
        &mut self,
        part: TimeKind,
        kind: WaitKind,
        (time_ns, is_sum): (u64, bool),
        mut sample: LiveSample,
        stack: &[u32],
    ) {
        self.is_settled = false;
        let from_ns = time_ns.saturating_sub(sample.period);
        if part == TimeKind::WaitedForCpu && !is_sum {
            let is_first = |wait: &&mut LiveWait| {
                (wait.to_ns, wait.runnable_ns, wait.sample.tid, wait.is_sum) == (time_ns, time_ns, sample.tid, false)
            };
            if let Some(first) = self.told.iter_mut().rev().take(NEAR).find(is_first) {
                // What was waited for came when this part began: both are told when the thread had a CPU again.
                first.runnable_ns = from_ns;
                first.from_ns = first.from_ns.saturating_sub(sample.period);
                first.samples += 1;
                return;
            }
        }
        if self.told.len() >= MOST_WAITS {
            self.left_out += 1;
            return;
        }
        let runnable_ns = if part == TimeKind::WaitedForCpu { from_ns } else { time_ns };
        // Both know how long it was: what does not fit belongs to a wait that was not told.
        let waker =
            self.woken.get(&sample.tid).filter(|(ns, _)| part == TimeKind::Waited && !is_sum && *ns == sample.period);
        sample.waker = waker.map(|(_, waker)| Arc::clone(waker));
        let stack = stack.to_vec();
        self.told.push(LiveWait { sample, stack, kind, from_ns, runnable_ns, to_ns: time_ns, samples: 1, is_sum });
    }

    /// The interval ends there, or the first one begins; whether one ends. What tells of it may still be on its way.
    pub(super) fn end_at(&mut self, until: WaitsUntil) -> bool {
        let is_end = self.began_ns.is_some();
        if is_end {
            self.passed_ns.extend(self.until.replace(until).map(|until| until.at_ns));
            self.are_here = false;
        } else {
            self.began_ns = Some(until.at_ns);
        }
        if self.is_settled {
            self.look();
        }
        is_end
    }

    /// All that was read was told: with what tells of the end of the interval comes all that was seen before it.
    pub(super) fn look(&mut self) {
        self.is_settled = true;
        let Some(until) = self.until.filter(|_| !self.are_here) else { return };
        let of_end = self.told.iter().filter(|wait| wait.is_sum || wait.to_ns == until.at_ns);
        self.are_here = of_end.map(|wait| wait.samples).sum::<u64>() + self.left_out >= until.samples;
    }

    /// Ends the interval, and takes what it had.
    pub(super) fn cut(&mut self) -> CutWaits {
        let (Some(began_ns), Some(WaitsUntil { at_ns, .. })) = (self.began_ns, self.until.take()) else {
            return CutWaits::default();
        };
        self.began_ns = Some(at_ns);
        self.are_here = false;
        let passed_ns = std::mem::take(&mut self.passed_ns);
        // Between the moment and the look at a thread its wait may have ended: it is told twice then.
        let over: HashSet<(i32, u64)> =
            self.told.iter().filter(|wait| wait.to_ns > at_ns).map(|wait| (wait.sample.tid, wait.from_ns)).collect();
        let took_ns = at_ns.saturating_sub(began_ns);
        // What pmux waits for is of no interest.
        let own_pid = std::process::id().cast_signed();
        let mut cut = CutWaits {
            parts: Vec::new(),
            window_ns: Some((began_ns, at_ns)),
            left_out: std::mem::take(&mut self.left_out),
        };
        // How long each thread was told to wait. Sums come last: they have what is left.
        let mut told_ns: HashMap<i32, u64> = HashMap::new();
        self.told.sort_by_key(|wait| wait.is_sum);
        self.told.retain(|wait| {
            let is_twice = wait.to_ns == at_ns && over.contains(&(wait.sample.tid, wait.from_ns));
            // Of what went on at a moment that passed it was told again.
            let is_passed = !wait.is_sum && passed_ns.contains(&wait.to_ns);
            // The first moment tells of what was before it, too.
            let is_of_before = wait.is_sum && wait.to_ns < began_ns;
            if is_twice || is_passed || is_of_before || wait.sample.pid == own_pid {
                return false;
            }
            let told_ns = told_ns.entry(wait.sample.tid).or_default();
            let before_ns = *told_ns;
            let mut put = |kind, is_idle, period| {
                if period > 0 {
                    *told_ns += period;
                    let mut sample =
                        LiveSample { event: WAITS, wait: Some(kind), is_idle, period, ..wait.sample.clone() };
                    if kind == WaitKind::RunQueue {
                        sample.waker = None;
                    }
                    cut.parts.push((sample, wait.stack.clone()));
                }
            };
            if wait.is_sum {
                let kind = if wait.runnable_ns < wait.to_ns { WaitKind::RunQueue } else { wait.kind };
                // A wait whose end was not seen is in a sum, too: what of it was before has been shown.
                let is_of_thread = wait.sample.pid >= 0;
                let left_ns = if is_of_thread { took_ns.saturating_sub(before_ns) } else { u64::MAX };
                put(kind, is_of_thread && wait.sample.period >= took_ns, wait.sample.period.min(left_ns));
                return false;
            }
            let within = |from_ns: u64, to_ns: u64| to_ns.min(at_ns).saturating_sub(from_ns.max(began_ns));
            // Who waits for a disk is not idle.
            let is_idle = wait.from_ns <= began_ns
                && wait.runnable_ns >= at_ns
                && !matches!(wait.kind, WaitKind::Io | WaitKind::PageFault);
            put(wait.kind, is_idle, within(wait.from_ns, wait.runnable_ns));
            put(WaitKind::RunQueue, false, within(wait.runnable_ns, wait.to_ns));
            wait.to_ns > at_ns
        });
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tid: i32, ns: u64) -> LiveSample {
        LiveSample { tid, pid: 7, period: ns, ..LiveSample::default() }
    }

    /// Takes in waits as (thread, when each of the three came), as the recorder tells of them.
    fn tell(waits: &mut Waits, told: &[(i32, u64, u64, u64)]) {
        for &(tid, from_ns, runnable_ns, to_ns) in told {
            for (part, ns) in [(TimeKind::Waited, runnable_ns - from_ns), (TimeKind::WaitedForCpu, to_ns - runnable_ns)]
            {
                if ns > 0 {
                    waits.take(part, WaitKind::Lock, (to_ns, false), of(tid, ns), &[1]);
                }
            }
        }
    }

    /// Ends an interval, and answers what it had as (thread, for what, how long, whether it did nothing else).
    fn cut(waits: &mut Waits, at_ns: u64, samples: u64) -> Vec<(i32, WaitKind, u64, bool)> {
        waits.end_at(until(at_ns, samples));
        waits.look();
        assert!(waits.are_here);
        let part = |(part, _): (LiveSample, Vec<u32>)| (part.tid, part.wait.unwrap(), part.period, part.is_idle);
        waits.cut().parts.into_iter().map(part).collect()
    }

    fn until(at_ns: u64, samples: u64) -> WaitsUntil {
        WaitsUntil { at_ns, samples, unseen: 0 }
    }

    fn begun_at(at_ns: u64) -> Waits {
        let mut waits = Waits::default();
        assert!(!waits.end_at(until(at_ns, 0)));
        waits
    }

    #[test]
    fn a_moment_that_passed_ends_nothing() {
        let mut waits = begun_at(100);
        tell(&mut waits, &[(1, 90, 200, 200), (2, 150, 200, 200), (3, 120, 130, 130)]);
        assert!(waits.end_at(until(200, 2)));
        tell(&mut waits, &[(1, 90, 300, 300), (2, 150, 250, 250)]);
        let parts = [(3, 10, false), (1, 200, true), (2, 100, false)];
        assert_eq!(cut(&mut waits, 300, 1), parts.map(|(tid, ns, is_idle)| (tid, WaitKind::Lock, ns, is_idle)));
    }

    #[test]
    fn a_wait_is_in_each_interval_with_its_part() {
        let mut waits = begun_at(100);
        // One that ended, one that had begun before, and one that goes on.
        tell(&mut waits, &[(1, 110, 150, 160), (2, 90, 120, 120), (3, 180, 200, 200)]);
        let first = cut(&mut waits, 200, 1);
        let expected =
            [(1, WaitKind::Lock, 40), (1, WaitKind::RunQueue, 10), (2, WaitKind::Lock, 20), (3, WaitKind::Lock, 20)];
        assert_eq!(first, expected.map(|(tid, kind, ns)| (tid, kind, ns, false)));
        tell(&mut waits, &[(3, 180, 300, 300)]);
        assert_eq!(cut(&mut waits, 300, 1), [(3, WaitKind::Lock, 100, true)], "it did nothing else");
        tell(&mut waits, &[(3, 180, 330, 335)]);
        assert_eq!(cut(&mut waits, 400, 0), [(3, WaitKind::Lock, 30, false), (3, WaitKind::RunQueue, 5, false)]);
        assert!(cut(&mut waits, 500, 0).is_empty());
    }

    #[test]
    fn what_ends_while_it_is_looked_at_is_told_once_in_each_interval() {
        let mut waits = begun_at(100);
        // Thread 1 was seen to wait at 200 and came back at 205; thread 2 came back before it was looked at.
        tell(&mut waits, &[(1, 150, 200, 200), (1, 150, 204, 205), (2, 190, 203, 203)]);
        assert_eq!(cut(&mut waits, 200, 1), [(1, WaitKind::Lock, 50, false), (2, WaitKind::Lock, 10, false)]);
        let rest = [(1, WaitKind::Lock, 4), (1, WaitKind::RunQueue, 1), (2, WaitKind::Lock, 3)];
        assert_eq!(cut(&mut waits, 300, 0), rest.map(|(tid, kind, ns)| (tid, kind, ns, false)));
    }

    #[test]
    fn who_ended_a_wait_is_told_with_it() {
        let mut waits = begun_at(100);
        for (waited_ns, waker) in [(40, "holder"), (7, "other")] {
            waits.take_wake(1, waited_ns, "before");
            waits.take_wake(1, waited_ns, waker);
            tell(&mut waits, &[(1, 110, 150, 160)]);
        }
        waits.end_at(until(200, 0));
        let parts = waits.cut().parts;
        let wakers: Vec<_> = parts.iter().map(|(part, _)| (part.wait, part.waker.as_deref())).collect();
        let (lock, queue) = (Some(WaitKind::Lock), (Some(WaitKind::RunQueue), None));
        assert_eq!(wakers, [(lock, Some("holder")), queue, (lock, None), queue]);
    }

    #[test]
    fn an_interval_is_whole_when_all_of_it_has_come() {
        let mut waits = begun_at(100);
        waits.end_at(until(200, 3));
        waits.look();
        assert!(!waits.are_here);
        // Both samples of it, and a sum.
        tell(&mut waits, &[(1, 150, 180, 200)]);
        waits.take(TimeKind::Waited, WaitKind::Other, (199, true), of(1, 5), &[]);
        assert!(!waits.are_here, "more may come with them");
        waits.look();
        assert!(waits.are_here);
        assert_eq!(waits.cut().window_ns, Some((100, 200)));
        assert!(!waits.are_here && waits.cut().parts.is_empty());
        // Or what tells of it has come before it is known where the interval ends.
        tell(&mut waits, &[(1, 250, 300, 300)]);
        waits.look();
        assert!(waits.end_at(until(300, 1)) && waits.are_here);
    }

    #[test]
    fn sums_are_where_they_were_told() {
        let mut waits = begun_at(100);
        waits.take(TimeKind::Waited, WaitKind::Other, (99, true), of(1, 50), &[]);
        waits.take(TimeKind::Waited, WaitKind::Other, (199, true), of(1, 50), &[]);
        waits.take(TimeKind::WaitedForCpu, WaitKind::Other, (199, true), of(1, 7), &[]);
        // A long one whose end was not seen, and those of many threads.
        waits.take(TimeKind::Waited, WaitKind::Other, (199, true), of(2, 5_000), &[]);
        let others = LiveSample { pid: -1, ..of(-1, 5_000) };
        waits.take(TimeKind::Waited, WaitKind::Other, (199, true), others, &[]);
        // No thread waits for longer than the interval is.
        waits.take(TimeKind::Waited, WaitKind::Other, (199, true), of(3, 90), &[]);
        tell(&mut waits, &[(3, 160, 200, 200)]);
        let expected = [
            (3, WaitKind::Lock, 40, false),
            (1, WaitKind::Other, 50, false),
            (1, WaitKind::RunQueue, 7, false),
            (2, WaitKind::Other, 100, true),
            (-1, WaitKind::Other, 5_000, false),
            (3, WaitKind::Other, 60, false),
        ];
        assert_eq!(cut(&mut waits, 200, 7), expected);
        assert!(cut(&mut waits, 300, 0).is_empty());
    }
}
