//! Every sample with its time, and what happened between them: for what draws time.
//!
//! What it is: [`Whole`] is a sink that keeps them. Read first: [`Taken`], [`Noted`].
//!
//! **Invariant:** the lists are in the order of time. They grow with the recording, 40 bytes a sample: who needs sums only takes
//! [`super::Tally`].

use super::times::{TimeKind, TimeKinds};
use super::{Happening, Name, Profile, Sample, Sink, StackId, Thread, ThreadId, WaitSpan};
use pmux_abi::record::{CommCause, Record, SwitchDirection};
use std::ops::ControlFlow;

/// A sample that was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// When, in ns of the recording's clock; 0 where that was not recorded.
    pub time_ns: u64,
    /// How many occurrences it stands for.
    pub period: u64,
    /// The stack.
    pub stack: StackId,
    /// Whose.
    pub thread: ThreadId,
    /// What the thread was called.
    pub comm: Name,
    /// The place of its event.
    pub event: u32,
    /// On which CPU, where that was recorded.
    pub cpu: Option<u32>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotedKind {
    /// The thread began.
    Born,
    /// The thread ended.
    Ended,
    /// It executes another program, or has another name.
    Named(Name),
    /// The thread got its CPU.
    SwitchedIn,
    /// It gave it up, and waits.
    SwitchedOut,
    /// It was taken from it.
    Preempted,
    /// So many records found no room.
    Lost(u64),
    /// The event was held back, for it came too often.
    Throttled,
    /// It was no longer.
    Unthrottled,
}

/// Something that happened, with its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// When, in ns of the recording's clock.
    pub time_ns: u64,
    /// On which CPU, where that was recorded.
    pub cpu: Option<u32>,
    /// To which thread, where that is known.
    pub thread: Option<ThreadId>,
    /// What.
    pub what: NotedKind,
}

/// All samples, and what happened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Whole {
    /// The samples.
    pub samples: Vec<Taken>,
    /// What happened.
    pub notes: Vec<Noted>,
    /// The samples that tell who ended a wait, by their places, and the number of the thread that was woken.
    pub(super) wakes: Vec<(usize, i32)>,
    pub(super) kinds: TimeKinds,
}

impl Whole {
    /// From the first sample to the last of all, in ns of the recording's clock. `None` if there is no sample.
    ///
    /// What happened before the first sample tells what was there: in a snapshot it may be hours older.
    #[must_use]
    pub fn span_ns(&self) -> Option<(u64, u64)> {
        let first = self.samples.first()?.time_ns;
        let last = self.samples.last().map_or(first, |sample| sample.time_ns);
        Some((first, self.notes.last().map_or(last, |note| note.time_ns.max(last))))
    }

    /// As [`Whole::span_ns`], from the beginning of the first wait on where that is earlier: what hangs may have no sample before its end.
    #[must_use]
    pub fn span_with(&self, waits: &[WaitSpan]) -> Option<(u64, u64)> {
        let (first, last) = self.span_ns()?;
        Some((waits.iter().map(|wait| wait.from_ns).fold(first, u64::min), last))
    }
}

impl Sink for Whole {
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        if let Some(woken) = sample.fields.addr
            && self.kinds.of(profile, sample.event) == TimeKind::Woke
        {
            self.wakes.extend(i32::try_from(woken).map(|tid| (self.samples.len(), tid)));
        }
        let Sample { time_ns, period, stack, thread, comm, cpu, .. } = *sample;
        self.samples.push(Taken { time_ns, period, stack, thread, comm, event: sample.event as u32, cpu });
        ControlFlow::Continue(())
    }

    fn happening(&mut self, profile: &Profile, happening: &Happening<'_>) -> ControlFlow<()> {
        let switched = |direction: &SwitchDirection| match direction {
            SwitchDirection::In => NotedKind::SwitchedIn,
            SwitchDirection::Out => NotedKind::SwitchedOut,
            SwitchDirection::OutPreempted => NotedKind::Preempted,
        };
        let what = match happening.record {
            // One that was there before has no time of its birth.
            Record::Fork(task) if task.time == 0 => return ControlFlow::Continue(()),
            Record::Fork(_) => NotedKind::Born,
            Record::Exit(_) => NotedKind::Ended,
            Record::Comm(comm) => {
                // Names that are told again, as where a CPU came, are no news.
                let is_new =
                    |thread: &&Thread| comm.cause == CommCause::Exec || thread.is_named_since(happening.time_ns);
                let thread = happening.thread.map(|thread| profile.tasks.thread(thread)).filter(is_new);
                let Some(thread) = thread else { return ControlFlow::Continue(()) };
                NotedKind::Named(thread.name())
            }
            Record::Switch(direction) => switched(direction),
            Record::SwitchCpuWide(switch) => switched(&switch.direction),
            Record::Lost(lost) => NotedKind::Lost(lost.lost),
            Record::LostSamples(lost) => NotedKind::Lost(lost.lost),
            Record::Throttle(_) => NotedKind::Throttled,
            Record::Unthrottle(_) => NotedKind::Unthrottled,
            _ => return ControlFlow::Continue(()),
        };
        // What was there before the recording has no time.
        if happening.time_ns > 0 {
            self.notes.push(Noted { time_ns: happening.time_ns, cpu: happening.cpu, thread: happening.thread, what });
        }
        ControlFlow::Continue(())
    }
}
