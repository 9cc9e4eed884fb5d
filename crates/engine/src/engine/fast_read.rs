//! FastReads: reading again what was read before.
//!
//! What it is: what stands behind an event's id ([`FastRead`]), and what must be known to say, from one reading of its slot, what it
//! has counted ([`SlotFacts`]). As long as nothing else is done to its context or its view, a reading costs one lock and one call of
//! the bank. Its context need not be told: the next reading that it asks for itself covers all that came before. A caller that
//! looks at what was read last, without asking the bank, looks at the [`LastReading`] as well.
//! Read first: [`FastRead`], then [`Engine::read_fast`].
//!
//! **Invariant:** a fast read returns what the read through the context would return, or nothing. SlotFacts are made and used with the `PmuGuard` of the
//! context only; whatever could make them wrong counts itself in [`PmuGuard::steps`] or in the changes of the view.

use super::Engine;
use super::ctx_lock::{ContextCell, CtxState, PmuGuard};
use super::read::GroupReading;
use super::sharing::EventSubscription;
use crate::context::{Context, Ctx};
use crate::count::Count;
use crate::error::ReadError;
use crate::event::{Event, Last};
use crate::host::Host;
use crate::id::{EventId, GroupId, Nanos, PmuId};
use crate::lock::LockCell;
use crate::pmu::{BankError, CounterBank, Lease, Slot, SlotReading, SlotTime};
use crate::seqlock::{Words, read, write};
use crate::share::Share;
use crate::target::EventKey;
use alloc::sync::Arc;
use core::array;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// What stands behind an event's id, from its opening to its closing.
pub(super) struct FastRead<H: Host> {
    pub(super) cell: Arc<ContextCell<H>>,
    pub(super) member: EventKey,
    /// Where it is part of a view: cell and member are the master's then.
    pub(super) view: Option<EventSubscription<H>>,
    /// Its master's, where it is part of a view.
    pub(super) last_reading: Arc<LastReading>,
    facts: SlotFacts,
}

impl<H: Host> FastRead<H> {
    /// Of an event with counters of its own.
    pub(super) fn own(cell: Arc<ContextCell<H>>, member: EventKey) -> Self {
        Self { cell, member, view: None, last_reading: Arc::default(), facts: SlotFacts::default() }
    }

    /// Of an event that sees this master.
    pub(super) fn shared(master: &Self, view: EventSubscription<H>) -> Self {
        let (cell, last_reading) = (Arc::clone(&master.cell), Arc::clone(&master.last_reading));
        Self { cell, member: master.member, view: Some(view), last_reading, facts: SlotFacts::default() }
    }

    /// How often its view has changed. Relaxed: a thread that relies on it holds the `PmuGuard`, and a thread that changes a view either
    /// reads the master with the guard held after that, or has not returned to its caller yet.
    fn changes(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.whole.changes())
    }

    /// The count of its event, as far as it can be relied on, with what was read past it. Only with the `PmuGuard` held.
    pub(super) fn reading(&self, context: &Context) -> Result<Count, ReadError> {
        let member = context.member(self.member).ok_or(ReadError::Closed)?;
        let count = member.reading().map_err(ReadError::Error)?;
        // Where its slot is gone, that may have been the last one.
        let shown = self.last_reading.shown().flatten();
        Ok(shown.map_or(count, |(lease, reading, at)| member.last_with(lease, reading, at).count))
    }

    /// The slot to be read, if all is as it was when that was noted.
    fn lease(&self, guard: &PmuGuard<H::Bank>) -> Option<Lease> {
        self.facts.lease(guard.steps, self.changes())
    }

    /// Notes what must be known to read it without asking another CPU. Returns whether that is possible at all.
    fn note(&self) -> bool {
        self.cell.pmu_guard.with(|guard| {
            let look = |place: &mut CtxState<H>| {
                let context = place.core.context(Ctx::Cpu).filter(|_| place.away.is_none())?;
                let member = context.member(self.member)?;
                member.grows_with().map(|lease| (lease, member.last()))
            };
            let Some((lease, Last { count, reading, .. })) = self.cell.place.with(look) else { return false };
            let (changes, held, begun) = match &self.view {
                None => (0, ReadWords::from(count), ReadWords::of(reading)),
                Some(view) => {
                    // No view changes while a thread looks into the book.
                    let baseline = |book: &Share| (self.changes(), book.baseline(view.whole.key, view.index));
                    let (changes, Some((held, begun))) = view.whole.book(baseline) else { return false };
                    // What the slot shows where the master has counted nothing.
                    let zero = ReadWords::of(reading).less(ReadWords::from(count));
                    (changes, ReadWords::from(held), ReadWords::from(begun).plus(zero))
                }
            };
            self.facts.note(lease, (guard.steps, changes), held, begun);
            true
        })
    }
}

/// The words of a reading, or of a count: value, time enabled, time running.
#[derive(Clone, Copy)]
struct ReadWords([u64; 3]);

impl ReadWords {
    fn of(reading: SlotReading) -> Self {
        match reading.time {
            SlotTime::Measured { enabled, running } => Self([reading.raw, enabled.0, running.0]),
            // It was never read: its times begin with it.
            SlotTime::Whole => Self([reading.raw, 0, 0]),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self(array::from_fn(|word| self.0[word].wrapping_add(other.0[word])))
    }

    fn less(self, other: Self) -> Self {
        Self(array::from_fn(|word| self.0[word].wrapping_sub(other.0[word])))
    }
}

impl From<Count> for ReadWords {
    fn from(Count { value, enabled, running }: Count) -> Self {
        Self([value, enabled.0, running.0])
    }
}

impl From<ReadWords> for Count {
    fn from(ReadWords([value, enabled, running]): ReadWords) -> Self {
        Self { value, enabled: Nanos(enabled), running: Nanos(running) }
    }
}

/// What must be known of an event to read it by its slot alone: the slot, what it shows when the event begins, and what the event
/// had counted by then.
///
/// Relaxed throughout: it is touched with the `PmuGuard` of the event's context only. Atomics, because that lock is not around it.
struct SlotFacts([AtomicU64; 10]);

impl Default for SlotFacts {
    /// Such numbers of steps and changes are never reached.
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(u64::MAX)))
    }
}

impl SlotFacts {
    fn word(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn note(&self, lease: Lease, (steps, changes): (u64, u64), held: ReadWords, begun: ReadWords) {
        let [slot, generation] = words_of(lease);
        let all = [steps, changes, slot, generation].into_iter().chain(held.0).chain(begun.0);
        self.0.iter().zip(all).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }

    #[inline]
    fn lease(&self, steps: u64, changes: u64) -> Option<Lease> {
        (self.word(0) == steps && self.word(1) == changes).then(|| self.slot())
    }

    #[inline]
    fn slot(&self) -> Lease {
        lease_of([self.word(2), self.word(3)])
    }

    /// What the event has counted when its slot shows this. Whatever is behind the beginning says nothing.
    #[inline]
    fn count(&self, reading: SlotReading) -> Count {
        let now = ReadWords::of(reading);
        let word = |at: usize| {
            let grown = now.0[at].wrapping_sub(self.word(7 + at));
            self.word(4 + at).wrapping_add(if grown > i64::MAX.unsigned_abs() { 0 } else { grown })
        };
        Count::from(ReadWords(array::from_fn(word)))
    }
}

const fn words_of(lease: Lease) -> [u64; 2] {
    [(lease.pmu.0 as u64) << 32 | lease.slot.0 as u64, lease.generation]
}

const fn lease_of([slot, generation]: [u64; 2]) -> Lease {
    Lease { pmu: PmuId((slot >> 32) as u16), slot: Slot(slot as u32), generation }
}

/// A slot, its reading, and when it was read.
type Shown = (Lease, SlotReading, Nanos);

/// The last reading of a slot that was taken past its context, and when: written with the `PmuGuard` held, read without it.
pub(super) struct LastReading([AtomicU64; 7]);

impl Default for LastReading {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Words for LastReading {
    const TRIES: u32 = 200;

    #[inline]
    fn load(&self, at: usize, ordering: Ordering) -> u64 {
        self.0[at].load(ordering)
    }

    #[inline]
    fn store(&self, at: usize, value: u64, ordering: Ordering) {
        self.0[at].store(value, ordering);
    }

    #[inline]
    fn fence(ordering: Ordering) {
        fence(ordering);
    }

    fn pause() {
        core::hint::spin_loop();
    }
}

impl LastReading {
    #[inline]
    fn show(&self, lease: Lease, reading: SlotReading, at: Nanos) {
        let ([slot, generation], ReadWords([value, enabled, running])) = (words_of(lease), ReadWords::of(reading));
        write(self, 0, &[slot, generation, value, enabled, running, at.0]);
    }

    /// What it shows, if anything was ever shown. `None`: a thread has been showing something for a long time.
    fn shown(&self) -> Option<Option<Shown>> {
        let ([slot, generation, raw, enabled, running, at], sequence) = read::<_, 6>(self, 0)?;
        let time = SlotTime::Measured { enabled: Nanos(enabled), running: Nanos(running) };
        Some((sequence > 0).then(|| (lease_of([slot, generation]), SlotReading { raw, time }, Nanos(at))))
    }
}

/// What is missing to read an event by its slot alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    /// It was not noted what its slot says, or something has happened since.
    SlotFacts,
    /// The bank would not read the slot.
    Reading(BankError),
}

/// A group that is read often: with it no call has to look up what the group's id names.
pub struct GroupHandle<H: Host> {
    group: GroupId,
    pub(super) fast_reads: FastReads<H>,
}

/// Those of a group, the leader first.
pub(super) type FastReads<H> = Arc<[FastRead<H>]>;

impl<H: Host> GroupHandle<H> {
    /// Which group it is.
    #[must_use]
    pub const fn id(&self) -> GroupId {
        self.group
    }
}

impl<H: Host> Engine<H> {
    /// For reading a group often; `None` where it is closed. It keeps the memory of what the group was opened on, so it should not
    /// outlive the group by much.
    pub fn group_handle(&self, group: GroupId) -> Option<GroupHandle<H>> {
        let fast_reads =
            self.registry.with(|registry| registry.groups.get(group).map(|record| Arc::clone(&record.fast_reads)))?;
        Some(GroupHandle { group, fast_reads })
    }

    /// Reads an event by its slot alone; `None` where its context has to be asked.
    #[inline]
    pub(super) fn read_fast(&self, fast_read: &FastRead<H>) -> Option<Result<Count, ReadError>> {
        match self.read_noted(fast_read) {
            Ok(count) => Some(Ok(count)),
            Err(missing) => self.note_and_read(fast_read, missing),
        }
    }

    #[cold]
    fn note_and_read(&self, fast_read: &FastRead<H>, missing: Missing) -> Option<Result<Count, ReadError>> {
        let read =
            if missing == Missing::SlotFacts && fast_read.note() { self.read_noted(fast_read) } else { Err(missing) };
        match read {
            Ok(count) => Some(Ok(count)),
            Err(Missing::Reading(error)) => {
                self.tell_refused(core::slice::from_ref(fast_read), error);
                Some(Err(ReadError::Error(error)))
            }
            Err(Missing::SlotFacts) => None,
        }
    }

    /// The bank would not read these: their context makes of it what it would have made of it itself.
    fn tell_refused(&self, fast_reads: &[FastRead<H>], error: BankError) {
        let Some(first) = fast_reads.first() else { return };
        first.cell.step_here(self, |context, step| {
            for fast_read in fast_reads {
                // Another slot, by now, was not asked.
                if context.member(fast_read.member).is_some_and(|member| member.counts_with(fast_read.facts.slot())) {
                    context.reading_refused(fast_read.member, error, step);
                }
            }
        });
    }

    /// Reads the slot of an event, if it was noted what that means, and nothing has happened since.
    #[inline]
    pub(super) fn read_noted(&self, fast_read: &FastRead<H>) -> Result<Count, Missing> {
        fast_read.cell.pmu_guard.with(|guard| {
            let lease = fast_read.lease(guard).ok_or(Missing::SlotFacts)?;
            let bank = guard.banks.own.as_mut().ok_or(Missing::SlotFacts)?;
            // No later than the reading: a thread may lose its CPU in between.
            let at = self.host.recently();
            let reading = bank.read(lease).map_err(Missing::Reading)?;
            fast_read.last_reading.show(lease, reading, at);
            Ok(fast_read.facts.count(reading))
        })
    }

    /// [`Engine::read_fast`] for all events of a group at one moment, added to `out`. Returns whether it could.
    pub(super) fn read_fast_group(&self, fast_reads: &[FastRead<H>], out: &mut GroupReading) -> bool {
        if let [fast_read] = fast_reads {
            return self.read_fast(fast_read).map(|count| out.push(count)).is_some();
        }
        let read = match self.read_all_noted(fast_reads, out) {
            Err(Missing::SlotFacts) if fast_reads.iter().all(FastRead::note) => self.read_all_noted(fast_reads, out),
            read => read,
        };
        if let Err(Missing::Reading(error)) = read {
            self.tell_refused(fast_reads, error);
            out.extend(fast_reads.iter().map(|_| Err(ReadError::Error(error))));
        }
        read != Err(Missing::SlotFacts)
    }

    pub(super) fn read_all_noted(&self, fast_reads: &[FastRead<H>], out: &mut GroupReading) -> Result<(), Missing> {
        let first = fast_reads.first().ok_or(Missing::SlotFacts)?;
        first.cell.pmu_guard.with(|guard| {
            let steps = guard.steps;
            let (banks, todo, _) = guard.parts();
            let (leases, readings) = todo.group_of(fast_reads.len());
            for fast_read in fast_reads {
                leases.push(fast_read.facts.lease(steps, fast_read.changes()).ok_or(Missing::SlotFacts)?);
            }
            let bank = banks.own.as_mut().ok_or(Missing::SlotFacts)?;
            let at = self.host.recently();
            bank.read_group(leases, readings).map_err(Missing::Reading)?;
            out.extend(fast_reads.iter().zip(&*leases).zip(&*readings).map(|((fast_read, &lease), &reading)| {
                fast_read.last_reading.show(lease, reading, at);
                Ok(fast_read.facts.count(reading))
            }));
            Ok(())
        })
    }

    #[cold]
    pub(super) fn event_of(&self, handle: &GroupHandle<H>, index: usize) -> Result<EventId, ReadError> {
        let event = |registry: &mut super::Registry<H>| registry.groups.get(handle.group)?.events.get(index).copied();
        self.registry.with(event).ok_or(ReadError::Closed)
    }

    /// Looks at an event, or at its master's, as of its last reading, whichever caller took it; `None` where it is closed.
    pub(super) fn look_at_last<R>(&self, fast_read: &FastRead<H>, f: impl Fn(&Event, Last) -> R) -> Option<R> {
        // A thread that lost its CPU while it was showing the reading holds the guard.
        let waited_for = || fast_read.cell.pmu_guard.with(|_| fast_read.last_reading.shown());
        let shown = fast_read.last_reading.shown().or_else(waited_for).flatten();
        fast_read.cell.look(self, |context: &Context| {
            let member = context.member(fast_read.member)?;
            let last = shown.map_or_else(|| member.last(), |(lease, reading, at)| member.last_with(lease, reading, at));
            Some(f(member, last))
        })
    }
}
