//! An event as a member of a context.
//!
//! What it is: state, lease and count of one event; every change of state settles the times first.
//!
//! **Invariant:** `running <= enabled`, and both only grow until the event is closed.

use super::{EventState, OnExec};
use crate::context::{Filter, GroupKey};
use crate::count::{Count, register_delta};
use crate::id::{FamilyId, Nanos};
use crate::pmu::{BankError, Delegated, EventSpec, Lease, OverflowBy, PmuCaps, SlotReading, SlotTime};
use crate::share::Seen;
use alloc::sync::Arc;
use pmux_abi::attr::AttrFlags;

/// The place of an event in a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// The family.
    pub family: FamilyId,
    /// Which of the family's events it is.
    pub index: usize,
}

/// One new event for [`crate::context::Context::attach`].
#[derive(Clone, Debug)]
pub struct NewMember {
    /// What it counts.
    pub spec: Arc<EventSpec>,
    /// What its PMU can do.
    pub caps: PmuCaps,
    /// The family it reports to.
    pub lineage: Option<Lineage>,
}

/// What went wrong last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It was not given a slot, or its slot was not programmed or started. It goes when the event is on a counter again,
    /// or disabled.
    Refused(BankError),
    /// Its slot could not be read. It goes with the next reading.
    Unread(BankError),
}

/// Whether time passes for an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// Its context is there, and the leader of its group is enabled.
    Runs,
    /// One of them is not.
    Stands,
}

/// What becomes of a wish that an event counts something else.
#[derive(Clone, Default, Debug)]
pub(crate) enum Change {
    /// It does, or nobody has wished for it.
    #[default]
    Done,
    /// The bank has not answered yet; this is what it counted before.
    UnderWay(Arc<EventSpec>),
    /// It counts what it counted.
    Refused(BankError),
}

/// One event of a context.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its group.
    pub group: GroupKey,
    /// What it counts. It is long, looked at when a slot is programmed only, and the same in all children.
    pub spec: Arc<EventSpec>,
    /// When it counts.
    pub filter: Filter,
    /// Whether an exec enables it.
    pub on_exec: OnExec,
    /// The family it reports to.
    pub lineage: Option<Lineage>,
    /// Its right to a slot, from the moment that the slot is planned for it.
    pub lease: Option<Lease>,
    /// The slot that the bank has been told to program; orders that are still under way make the two differ.
    pub(crate) programmed: Option<Lease>,
    /// The slot that `seen` was read from.
    counted: Option<Lease>,
    pub(crate) fault: Option<Fault>,
    pub(crate) change: Change,
    caps: PmuCaps,
    state: EventState,
    count: Count,
    /// Until when times are settled.
    settled: Nanos,
    /// The reading that `count` is up to date with.
    seen: SlotReading,
    read_at: Nanos,
    waited: Nanos,
    contended: Nanos,
}

impl Member {
    /// A new event, off.
    #[must_use]
    pub fn new(new: &NewMember, group: GroupKey, filter: Filter, now: Nanos) -> Self {
        let NewMember { ref spec, caps, lineage } = *new;
        let on_exec = if spec.attr.flags.contains(AttrFlags::ENABLE_ON_EXEC) { OnExec::Enable } else { OnExec::Keep };
        Self {
            group,
            spec: Arc::clone(spec),
            filter,
            on_exec,
            lineage,
            lease: None,
            programmed: None,
            counted: None,
            fault: None,
            change: Change::Done,
            caps,
            state: EventState::Off,
            count: Count::default(),
            settled: now,
            seen: SlotReading { raw: 0, time: SlotTime::Whole },
            read_at: now,
            waited: Nanos::ZERO,
            contended: Nanos::ZERO,
        }
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> EventState {
        self.state
    }

    /// What its PMU can do.
    #[must_use]
    pub const fn caps(&self) -> &PmuCaps {
        &self.caps
    }

    /// Whether its PMU does `what` by itself.
    #[must_use]
    pub const fn delegates(&self, what: Delegated) -> bool {
        self.caps.delegated.contains(what)
    }

    /// The count as of the last reading, and when that was.
    #[must_use]
    pub const fn cached(&self) -> (Count, Nanos) {
        (self.count, self.read_at)
    }

    /// The last reading of the slot that it counts with.
    #[must_use]
    pub const fn last_reading(&self) -> SlotReading {
        self.seen
    }

    /// How long it was enabled without being on a slot.
    #[must_use]
    pub const fn waited(&self) -> Nanos {
        self.waited
    }

    /// Whether its readings say for how long it ran.
    const fn is_timed_below(&self) -> bool {
        self.caps.delegated.intersects(Delegated::MULTIPLEXING.union(Delegated::TIMES))
    }

    /// How long its slot was started and yet did not run: somebody whom the engine doesn't know had the counter.
    ///
    /// Only banks that measure ([`SlotTime::Measured`]) under a PMU that doesn't delegate multiplexing can tell.
    #[must_use]
    pub const fn contended(&self) -> Nanos {
        self.contended
    }

    /// Why it is in error, why it could not be put on a counter, or why its counter could not be read.
    #[must_use]
    pub const fn fault(&self) -> Option<BankError> {
        match self.fault {
            Some(Fault::Refused(error) | Fault::Unread(error)) => Some(error),
            None => None,
        }
    }

    /// The count, as far as it can be relied on.
    ///
    /// # Errors
    /// Why it is in error, or why its counter could not be read.
    pub const fn reading(&self) -> Result<Count, BankError> {
        match (self.state, self.fault) {
            (EventState::Error, Some(Fault::Refused(error))) | (_, Some(Fault::Unread(error))) => Err(error),
            (EventState::Error, None) => Err(BankError::Unscheduled),
            _ => Ok(self.count),
        }
    }

    /// Moves to another state; the times must be settled.
    pub(crate) fn set_state(&mut self, next: EventState) {
        let leaves_error = self.state == EventState::Error && next != EventState::Error;
        if leaves_error || matches!(next, EventState::Active | EventState::Off) {
            self.fault = None;
        }
        self.state = next;
    }

    /// Lets the times grow up to `now`. For the time on a slot, readings of the bank may say it better.
    pub(crate) fn settle(&mut self, now: Nanos, clock: Clock) {
        let passed = now.since(self.settled);
        self.settled = self.settled.max(now);
        if clock == Clock::Stands {
            return;
        }
        match self.state {
            EventState::Inactive => {
                self.waited += passed;
                self.count.enabled += passed;
            }
            EventState::Active if !self.is_timed_below() => {
                self.count.enabled += passed;
                self.count.running += passed;
            }
            _ => {}
        }
    }

    /// What a register is to start from. One that interrupts when it wraps does so after half of its range: then the
    /// engine reads it before it can have gone round, though the interrupt be late.
    pub(crate) const fn start(&self) -> u64 {
        match (self.caps.overflow, self.caps.width_bits) {
            (OverflowBy::Interrupt | OverflowBy::Nmi, width @ 1..64) => 1 << (width - 1),
            _ => 0,
        }
    }

    /// Counts from a fresh slot from now on.
    ///
    /// Called when the bank has answered, not when the slot is planned: the last reading of the slot before comes in
    /// between.
    pub(crate) fn begin(&mut self, lease: Lease) {
        // Where the bank measures, its times begin with the slot.
        self.seen = SlotReading { raw: self.start(), time: SlotTime::Whole };
        self.counted = Some(lease);
    }

    /// Whether this is the slot that it counts with, or counted with last.
    pub(crate) fn counts_with(&self, lease: Lease) -> bool {
        self.counted == Some(lease)
    }

    /// Goes on with a running slot, from what it holds now.
    pub(crate) fn take_over(&mut self, lease: Lease, reading: SlotReading) {
        self.seen = reading;
        self.counted = Some(lease);
    }

    /// Adds what happened since the last reading of that slot; a reading of another one says nothing.
    pub(crate) fn fold(&mut self, lease: Lease, reading: SlotReading, now: Nanos) {
        if self.counted != Some(lease) {
            return;
        }
        self.count.value =
            self.count.value.wrapping_add(register_delta(self.caps.width_bits, self.seen.raw, reading.raw));
        if let SlotTime::Measured { enabled, running } = reading.time {
            let (enabled_before, running_before) = match self.seen.time {
                SlotTime::Measured { enabled, running } => (enabled, running),
                SlotTime::Whole => (Nanos::ZERO, Nanos::ZERO),
            };
            let (enabled, running) = (enabled.since(enabled_before), running.since(running_before));
            // It was started, and yet somebody else had its counter.
            let away = enabled.since(running);
            if !self.delegates(Delegated::MULTIPLEXING) {
                self.contended += away;
            }
            if self.is_timed_below() {
                self.count.enabled += enabled;
                self.count.running += running;
            } else {
                self.count.running = self.count.running.since(away);
            }
        }
        self.seen = reading;
        self.read_at = self.read_at.max(now);
        if matches!(self.fault, Some(Fault::Unread(_))) {
            self.fault = None;
        }
    }

    /// Says what it has seen so far: it takes the place of another one.
    pub(crate) fn restate(&mut self, seen: Seen) {
        self.count = seen.count;
        self.waited = seen.waited;
        self.contended = seen.contended;
    }

    /// Forgets what was counted; times stay, as they do on Linux.
    pub(crate) fn reset(&mut self) {
        self.count.value = 0;
    }
}
