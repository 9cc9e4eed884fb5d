//! Who waited for what, and who ended it.
//!
//! What it is: [`WaitLinks`] is a sink that joins each wait (a sample of `offcpu-time`) with the sample of `waker-time` that stands before it:
//! the thread that ran when it was ended. Read first: [`WaitLinks::rows`].
//!
//! **Invariant:** each wait is in one row, whether or not it was seen who ended it.

use super::choose::{Chosen, SampleFilter};
use super::maps::DataPlace;
use super::names::Name;
use super::stacks::StackId;
use super::tasks::ThreadId;
use super::times::{TimeKind, TimeKinds};
use super::{Profile, Sample, Sink};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Who was where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitEnd {
    /// The thread.
    pub thread: ThreadId,
    /// What it was called.
    pub comm: Name,
    /// Where it was.
    pub stack: StackId,
}

/// Waits that are alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitLink {
    /// Who waited, and where.
    pub waiter: WaitEnd,
    /// The address of the futex that it waited for; 0 where it waited for something else, or where that was not recorded.
    pub lock: u64,
    /// Where it is, if it may be a variable of a program: [`super::Symbols::variable_of`] names it.
    pub lock_place: Option<DataPlace>,
    /// The thread that ran when the wait was ended, and where it was: in an interrupt, it has nothing to do with it. `None` where that was
    /// not recorded.
    pub waker: Option<WaitEnd>,
}

/// How much they waited. Of short waits, which were recorded as a sum, only the time is known ([`super::Stacks::is_nowhere`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WaitSum {
    /// How often.
    pub waits: u64,
    /// For how long, ns: until they were woken.
    pub total_ns: u64,
    /// The longest one, ns.
    pub longest_ns: u64,
}

impl WaitSum {
    /// Adds others.
    pub fn add(&mut self, other: Self) {
        self.waits += other.waits;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// All waits of a recording, those that are alike added up.
#[derive(Default)]
pub struct WaitLinks {
    chosen: Chosen<Joined>,
    kinds: TimeKinds,
}

#[derive(Default)]
struct Joined {
    rows: HashMap<WaitLink, WaitSum>,
    woken: Woken<WaitEnd>,
}

/// The threads that were woken and have not come back yet, by number: after how many ns, and by what.
pub(super) struct Woken<T>(HashMap<i32, (u64, T)>);

impl<T> Default for Woken<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Woken<T> {
    /// A thread was woken after it had waited for so many ns.
    pub(super) fn wake(&mut self, tid: i32, waited_ns: u64, by: T) {
        self.0.insert(tid, (waited_ns, by));
    }

    /// What ended the wait of a thread that comes back. Both know how long it was: what does not fit belongs to a wait that was lost.
    pub(super) fn end(&mut self, tid: i32, waited_ns: u64) -> Option<T> {
        self.0.remove(&tid).filter(|(known_ns, _)| *known_ns == waited_ns).map(|(_, by)| by)
    }
}

impl WaitLinks {
    /// Of the waits that are wanted. A filter says who waits, and not who ends it.
    #[must_use]
    pub fn new(wanted: SampleFilter) -> Self {
        Self { chosen: Chosen::new(wanted, Joined::default()), kinds: TimeKinds::default() }
    }

    /// Waits that are alike, in no order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (&WaitLink, &WaitSum)> {
        self.chosen.sink.rows.iter()
    }

    /// Whether a recording tells of waits.
    #[must_use]
    pub fn has_waits(profile: &Profile) -> bool {
        TimeKind::Waited.is_in(profile)
    }

    /// Whether a recording tells who ended waits.
    #[must_use]
    pub fn has_wakers(profile: &Profile) -> bool {
        TimeKind::Woke.is_in(profile)
    }
}

impl Sink for WaitLinks {
    fn max_stack(&self) -> usize {
        self.chosen.max_stack()
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        self.chosen.first_ns.get_or_insert(sample.time_ns);
        match self.kinds.of(profile, sample.event) {
            TimeKind::Waited => return self.chosen.sample(profile, sample),
            TimeKind::Woke => {
                if let Some(tid) = sample.fields.addr.and_then(|tid| i32::try_from(tid).ok()) {
                    self.chosen.sink.woken.wake(tid, sample.period, WaitEnd::of(sample));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl WaitEnd {
    fn of(sample: &Sample<'_>) -> Self {
        Self { thread: sample.thread, comm: sample.comm, stack: sample.stack }
    }
}

impl Sink for Joined {
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        if profile.stacks.is_nowhere(sample.stack) {
            let link = WaitLink { waiter: WaitEnd::of(sample), lock: 0, lock_place: None, waker: None };
            self.rows.entry(link).or_default().add(WaitSum { total_ns: sample.period, ..WaitSum::default() });
            return ControlFlow::Continue(());
        }
        let thread = profile.tasks.thread(sample.thread);
        let waker = self.woken.end(thread.tid, sample.period);
        let lock = sample.fields.addr.unwrap_or(0);
        // Where it is now: the mappings of a process that has ended are gone.
        let lock_place = profile.tasks.process(thread.process).maps.find_data(lock);
        let link = WaitLink { waiter: WaitEnd::of(sample), lock, lock_place, waker };
        let sum = WaitSum { waits: 1, total_ns: sample.period, longest_ns: sample.period };
        self.rows.entry(link).or_default().add(sum);
        ControlFlow::Continue(())
    }
}
