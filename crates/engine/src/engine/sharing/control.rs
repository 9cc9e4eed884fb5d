//! What is asked of a view: enable, disable, reset, read.
//!
//! **Invariant:** what is asked of one view reaches the master only where it is the first, or the last, that counts with an
//! event.

use super::super::control::Op;
use super::super::fast_read::FastRead;
use super::super::read::GroupReading;
use super::super::{Engine, EventRecord};
use super::{EventSubscription, GroupSubscription, Life, Master, ShareCell, seen_by_then};
use crate::count::Count;
use crate::error::{ControlError, ReadError};
use crate::event::{Event, EventState, Last};
use crate::host::Host;
use crate::id::{GroupId, Nanos};
use crate::lock::LockCell;
use crate::pmu::BankError;
use crate::share::{Seen, Share, SubscriberKey, Which};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

/// How well what a master has seen must be known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It counts: its counters are asked.
    Exact,
    /// It has stopped since they were asked.
    Memory,
}

/// What becomes of a master's events that are in error, or were refused a counter.
pub(super) enum Failed {
    /// A client enables these of them, by number: they are tried again. With one that joined a group singly goes the leader,
    /// without which it does not count.
    AreTried(Range<usize>, RetryScope, EnableReason),
    /// Another client stops counting, which is no reason to try.
    Stay,
}

/// With which other events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryScope {
    Own,
    Leader,
}

/// What the client that enables them means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnableReason {
    /// That they count for it.
    Counting,
    /// That they count again where they do not: they count for it already. What is wrong in a child, only the child knows.
    Mending,
}

impl Failed {
    const fn mends(&self) -> bool {
        matches!(self, Self::AreTried(_, _, EnableReason::Mending))
    }

    fn is_tried(&self, index: usize) -> bool {
        match self {
            Self::AreTried(events, scope, _) => events.contains(&index) || (index == 0 && *scope == RetryScope::Leader),
            Self::Stay => false,
        }
    }
}

impl<H: Host> Engine<H> {
    pub(in crate::engine) fn control_view(
        &self,
        view: &GroupSubscription<H>,
        which: Which,
        op: Op,
    ) -> Result<(), ControlError> {
        let GroupSubscription { share, key, .. } = view;
        share.turn.with(|life| {
            let Life::Counts(master) = life else { return Err(ControlError::Closed) };
            match op {
                Op::Enable => {
                    let idle = share.book.with(|book| book.is_idle());
                    let now = self.seen_by_master(master, if idle { Look::Memory } else { Look::Exact });
                    // A client that does not know what was counted before it begins would count that as its own.
                    if let Some(error) = if idle { None } else { self.unread(master) } {
                        return Err(ControlError::Bank(error));
                    }
                    let again = view.book(|book| book.counts_with(*key, which));
                    let reason = if again { EnableReason::Mending } else { EnableReason::Counting };
                    let asked = view.change(|book| {
                        book.enable(*key, which, &now);
                        book.span(*key, which)
                    });
                    let whole = share.book.with(|book| book.place(*key)) == Some((0, master.opened.events.len()));
                    let scope = if whole { RetryScope::Own } else { RetryScope::Leader };
                    self.align(share, master, &Failed::AreTried(asked, scope, reason))
                }
                Op::Disable => {
                    view.change(|book| book.disable(*key, which));
                    let result = self.align(share, master, &Failed::Stay);
                    let others = share.book.with(|book| book.must_read(*key));
                    let now = self.seen_by_master(master, if others { Look::Exact } else { Look::Memory });
                    view.change(|book| book.settle(*key, &now));
                    result
                }
                Op::Reset => self.reset_view(view, master, which),
            }
        })
    }

    fn reset_view(&self, view: &GroupSubscription<H>, master: &Master<H>, which: Which) -> Result<(), ControlError> {
        let (first, events) = view.book(|book| book.place(view.key)).ok_or(ControlError::Closed)?;
        let indices = match which {
            Which::One(index) => index..(index + 1).min(events),
            Which::All => 0..events,
        };
        for index in indices {
            let runs = view.book(|book| book.is_running(view.key, index));
            let event = master.opened.events.get(first + index).copied().ok_or(ControlError::Closed)?;
            let now = match self.read(event) {
                Ok(count) => count,
                // What is on no counter counts nothing that could be read later.
                Err(ReadError::Error(error)) if runs && self.state(event) == Ok(EventState::Active) => {
                    return Err(ControlError::Bank(error));
                }
                Err(_) => self.counted_in_memory(event),
            };
            view.change(|book| book.reset(view.key, index, &now));
        }
        Ok(())
    }

    /// Lets the events of a master count that are wanted, and no others.
    ///
    /// # Errors
    /// The first of them that can't.
    pub(super) fn align(
        &self,
        share: &ShareCell<H>,
        master: &mut Master<H>,
        failed: &Failed,
    ) -> Result<(), ControlError> {
        let Master { opened, on, .. } = master;
        let events = &opened.events;
        let wanted = |index: usize| share.book.with(|book| book.is_wanted(index));
        if !wanted(0) {
            let any = on.contains(&true);
            on.fill(false);
            return if any { self.disable_group(opened.group) } else { Ok(()) };
        }
        for index in 1..events.len() {
            if on[index] && !wanted(index) {
                on[index] = false;
                self.disable(events[index])?;
            }
        }
        let wrong = |event| {
            self.state(event) == Ok(EventState::Error)
                || self.fault(event).is_ok_and(|fault| fault.is_some())
                || (failed.mends() && self.family_of(event).is_some())
        };
        let fails = |index: usize| failed.is_tried(index) && wrong(events[index]);
        let starts = |on: &[bool], index: usize| wanted(index) && (!on[index] || fails(index));
        if (0..events.len()).all(|index| starts(on, index)) {
            on.fill(true);
            return self.enable_group(opened.group);
        }
        let mut result = Ok(());
        // The leader last, so that the group starts as one.
        for index in (0..events.len()).rev() {
            if starts(on, index) {
                on[index] = true;
                result = result.and(self.enable(events[index]));
            }
        }
        result
    }

    /// Why one of a master's events that count could not be read just now.
    fn unread(&self, master: &Master<H>) -> Option<BankError> {
        let unread = |member: &Event| member.fault().filter(|_| member.state() == EventState::Active);
        master.cell.look(self, |context| {
            master.fast_reads.iter().find_map(|fast_read| context.member(fast_read.member).and_then(unread))
        })
    }

    /// What a master's events have seen, with their children where the engine counts them.
    fn seen_by_master(&self, master: &Master<H>, look: Look) -> Vec<Seen> {
        let events = &master.opened.events;
        let mut counts = GroupReading::new();
        let family = self.registry.with(|registry| registry.groups.get(master.opened.group)?.family);
        if look == Look::Exact || family.is_some() {
            // What can't be read has seen what it had seen.
            let _ = self.read_group_into(master.opened.group, &mut counts);
        }
        let last = |fast_read: &FastRead<H>| self.look_at_last(fast_read, seen_by_then).unwrap_or_default();
        let mut seen: Vec<_> = master.fast_reads.iter().map(last).collect();
        for (index, seen) in seen.iter_mut().enumerate() {
            match (counts.get(index), family) {
                (Some(Ok(count)), _) => seen.count = *count,
                (Some(Err(_)), Some(family)) => {
                    let children = self.children_from_memory(family, index);
                    seen.count += children;
                }
                _ => {}
            }
        }
        debug_assert_eq!(seen.len(), events.len());
        seen
    }

    /// What a master's event has counted, with its children, as of their last readings.
    fn counted_in_memory(&self, event: crate::id::EventId) -> Count {
        let mut count = self.read_cached(event).map(|(count, _)| count).unwrap_or_default();
        let root_count = self.record(event).and_then(|record| record.root_count?.by_engine());
        if let Some((family, index)) = root_count {
            count += self.children_from_memory(family, index);
        }
        count
    }

    pub(in crate::engine) fn read_view(
        &self,
        record: &EventRecord<H>,
        view: &EventSubscription<H>,
    ) -> Result<Count, ReadError> {
        let reading = self.read_counted(record, view.root_count);
        view.whole.book(|book| counted_by(book, view.whole.key, view.index, reading))
    }

    /// Reads a whole view, one moment for all of it; `fast_reads` are those of its events.
    pub(in crate::engine) fn read_group_view(
        &self,
        view: &GroupSubscription<H>,
        fast_reads: &[FastRead<H>],
        out: &mut GroupReading,
    ) -> Result<(), ReadError> {
        let (first, events) = view.book(|book| book.place(view.key)).ok_or(ReadError::Closed)?;
        let event = fast_reads.first().and_then(|fast_read| fast_read.view.as_ref()).ok_or(ReadError::Closed)?.master;
        let master = self.record(event).ok_or(ReadError::Closed)?.group;
        let before = out.len();
        if first == 0 && events == view.share.question.events.len() {
            self.read_group_into(master, out)?;
        } else {
            // A single event that joined the group of another client.
            out.push(self.read(event));
        }
        let counted = view.book(|book| {
            out.iter_mut().skip(before).enumerate().try_for_each(|(index, reading)| {
                *reading = counted_by(book, view.key, index, *reading);
                if *reading == Err(ReadError::Closed) { Err(ReadError::Closed) } else { Ok(()) }
            })
        });
        counted.inspect_err(|_| out.truncate(before))
    }

    /// What an event of a view has seen, from memory.
    pub(in crate::engine) fn seen_in_memory(
        &self,
        fast_read: &FastRead<H>,
        view: &EventSubscription<H>,
    ) -> Result<(Seen, Nanos), ReadError> {
        let last = |member: &Event, last: Last| (seen_by_then(member, last), last.at);
        let (mut now, at) = self.look_at_last(fast_read, last).ok_or(ReadError::Closed)?;
        if let Some((family, index)) = view.root_count.and_then(super::super::RootCount::by_engine) {
            now.count += self.children_from_memory(family, index);
        }
        Ok((self.seen_by(view, &now)?, at))
    }

    /// Whether what was asked of a view has led to an error.
    pub(in crate::engine) fn fault_of_view(&self, view: &EventSubscription<H>) -> Result<Option<BankError>, ReadError> {
        let fault = self.fault(view.master)?;
        let runs = view.whole.book(|book| book.is_running(view.whole.key, view.index));
        Ok(fault.filter(|_| runs))
    }

    pub(in crate::engine) fn view_of(&self, group: GroupId) -> Option<Arc<GroupSubscription<H>>> {
        self.registry.with(|registry| registry.groups.get(group)?.view.clone())
    }
}

/// What an event of a view has counted, by a reading of its master's. One that failed is nothing to an event that doesn't count.
fn counted_by(
    book: &Share,
    key: SubscriberKey,
    index: usize,
    reading: Result<Count, ReadError>,
) -> Result<Count, ReadError> {
    let count = match reading {
        Err(error) if book.is_running(key, index) => return Err(error),
        reading => reading.unwrap_or_default(),
    };
    let seen = book.seen(key, index, &Seen { count, ..Seen::default() }).ok_or(ReadError::Closed)?;
    Ok(seen.count)
}
