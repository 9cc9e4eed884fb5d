//! Rings of events: where the records of an event go.
//!
//! What it is: attaching an event to a ring, leading others into the same one, and writing a sample that the host has taken.
//! For hosts that take samples themselves. Where a kernel below does (Linux), it writes into rings of its own: the host brings
//! their records to the [`Audience`] of the event, so that one event of the kernel serves any number of readers.
//!
//! **Invariant:** how a ring is written is settled when an event is attached to it; writing a record asks nothing more. No ring is
//! written, and no memory is given back, under a lock.
//!
//! Linux: `perf_event_set_output`, `perf_mmap` (kernel/events/core.c).

use super::{Armed, Engine, EventRecord, Gate, Overflow};
use crate::error::OutputError;
use crate::host::Host;
use crate::id::{EventId, Nanos, SetId};
use crate::lock::LockCell;
use crate::ring_buffer::{Mode, Output, RingSetup, Wake, WriteError, Writer};
use crate::share::SubscriberState;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The writing end of an event's ring. [`Writer::pages`] is what readers are made of.
pub type EventRing<H, M> = Writer<Arc<<H as Host>::Pages>, M>;

/// Who gets the records of an event, as of a moment.
#[derive(Default)]
pub struct Audience {
    outputs: Vec<(EventId, Arc<dyn Output>)>,
}

impl Audience {
    /// Whether no event gets them.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// How many events get them.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.outputs.len()
    }

    /// The events that get them.
    pub fn events(&self) -> impl Iterator<Item = EventId> + '_ {
        self.outputs.iter().map(|&(event, _)| event)
    }

    /// Writes one whole record into the ring of each. Who has no room has lost it, and has counted it; `wake` is called with each
    /// event whose reader is to be woken.
    pub fn write(&self, record: &[u8], now: Nanos, wake: impl FnMut(EventId)) {
        self.write_to(|_| true, record, now, wake);
    }

    /// As [`Audience::write`], into the rings of some.
    pub fn write_to(
        &self,
        selects: impl Fn(EventId) -> bool,
        record: &[u8],
        now: Nanos,
        mut wake: impl FnMut(EventId),
    ) {
        self.write_and_tell(selects, record, now, |event, written| {
            let (Ok(reader) | Err(WriteError { wake: reader, .. })) = written;
            if reader == Wake::Now {
                wake(event);
            }
        });
    }

    /// As [`Audience::write_to`]; `written` is called with what has become of it in the ring of each.
    pub fn write_and_tell(
        &self,
        selects: impl Fn(EventId) -> bool,
        record: &[u8],
        now: Nanos,
        mut written: impl FnMut(EventId, Result<Wake, WriteError>),
    ) {
        let some = self.outputs.iter().filter(|(event, _)| selects(*event));
        some.for_each(|(event, output)| written(*event, output.write(record, now)));
    }
}

/// What became of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Sampled {
    /// It is in the ring; whether its reader is to be woken.
    Written(Wake),
    /// The ring has not taken it, and has counted it.
    Lost(WriteError),
    /// The event has no ring: the client that opened it may be told.
    NoRing,
    /// It came when no client could be told; it has been counted ([`Engine::strays`]).
    Dropped(Overflow),
}

impl<H: Host> Engine<H> {
    /// Gives an event a ring of its own, in place of any that it had. The ring lives as long as an event or the caller has it.
    ///
    /// # Errors
    /// In this order: [`OutputError::BadSize`]; [`OutputError::OutOfMemory`]; [`OutputError::Closed`].
    pub fn attach_ring<M: Mode>(
        &self,
        event: EventId,
        data_bytes: usize,
        setup: RingSetup,
    ) -> Result<Arc<EventRing<H, M>>, OutputError> {
        let writer = self.make_ring(data_bytes, setup)?;
        self.set_output(event, Arc::<EventRing<H, M>>::clone(&writer))?;
        Ok(writer)
    }

    /// Gives all events of a set one ring, in place of any that they had; those too that come with a CPU later. A CPU that comes
    /// back goes on in it.
    ///
    /// # Errors
    /// As [`Engine::attach_ring`].
    pub fn attach_set_ring<M: Mode>(
        &self,
        set: SetId,
        data_bytes: usize,
        setup: RingSetup,
    ) -> Result<Arc<EventRing<H, M>>, OutputError> {
        let writer = self.make_ring(data_bytes, setup)?;
        self.set_output_of_set(set, &(Arc::<EventRing<H, M>>::clone(&writer) as Arc<dyn Output>))?;
        Ok(writer)
    }

    /// Leads the records of all events of a set into the ring of another one, in place of their own.
    ///
    /// # Errors
    /// As [`Engine::redirect`].
    pub fn redirect_set(&self, set: SetId, into: SetId) -> Result<(), OutputError> {
        let output = self.registry.with(|registry| registry.sets.get(into).map(|record| record.output.clone()));
        self.set_output_of_set(set, &output.ok_or(OutputError::Closed)?.ok_or(OutputError::NoRing)?)
    }

    fn make_ring<M: Mode>(&self, data_bytes: usize, setup: RingSetup) -> Result<Arc<EventRing<H, M>>, OutputError> {
        if !data_bytes.is_power_of_two() || data_bytes < 8 {
            return Err(OutputError::BadSize { data_bytes });
        }
        let pages = self.host.alloc_ring(data_bytes).map_err(|_| OutputError::OutOfMemory)?;
        let writer = Writer::new(Arc::new(pages), setup).map_err(|_| OutputError::BadSize { data_bytes })?;
        Ok(Arc::new(writer))
    }

    fn set_output_of_set(&self, set: SetId, output: &Arc<dyn Output>) -> Result<(), OutputError> {
        // With the set's turn, so that no event comes to it meanwhile.
        let before = self.with_set(set, |state| {
            self.registry.with(|registry| {
                let mut before = Vec::new();
                before.extend(registry.sets.get_mut(set).map(|record| record.output.replace(Arc::clone(output))));
                let opened = state.cpus.values().flat_map(|on| &on.groups).flat_map(|opened| &opened.events);
                for &event in opened {
                    let record = registry.events.get_mut(event);
                    before.extend(record.map(|record| record.output.replace(Arc::clone(output))));
                }
                before
            })
        });
        // What they had is given back here, perhaps with its memory.
        before.map(drop).ok_or(OutputError::Closed)
    }

    /// Leads the records of an event into the ring of another one, in place of its own.
    ///
    /// # Errors
    /// [`OutputError::Closed`] for either; [`OutputError::NoRing`] where the other has none.
    pub fn redirect(&self, event: EventId, into: EventId) -> Result<(), OutputError> {
        let output = self.registry.with(|registry| registry.events.get(into).map(|record| record.output.clone()));
        let output = output.ok_or(OutputError::Closed)?.ok_or(OutputError::NoRing)?;
        self.set_output(event, output)
    }

    fn set_output(&self, event: EventId, output: Arc<dyn Output>) -> Result<(), OutputError> {
        let before = self.registry.with(|registry| {
            let record = registry.events.get_mut(event)?;
            Some(record.output.replace(output))
        });
        // What it had is given back here, perhaps with its memory.
        before.map(drop).ok_or(OutputError::Closed)
    }

    /// The event whose records an event gets: its master's where it shares, else its own.
    ///
    /// # Errors
    /// [`OutputError::Closed`].
    pub fn source_of(&self, event: EventId) -> Result<EventId, OutputError> {
        let record = self.record(event).ok_or(OutputError::Closed)?;
        Ok(record.fast_read().view.as_ref().map_or(event, |view| view.master))
    }

    /// Fills `audience` with those who get the records of an event now: of those who see it, where it is a master in
    /// [`crate::share::SharingScope::RECORDS`], those that are on and whose set is armed, as far as they have rings. One in error is
    /// on, and so is one that is on in a child only.
    ///
    /// The host asks once for many records. An event that is switched on, off or closed next gets those that were written before;
    /// so a host that switches an event brings first what its counter has written until then.
    pub fn audience(&self, event: EventId, audience: &mut Audience) {
        audience.outputs.clear();
        let listening = self.registry.with(|registry| {
            let own = registry.shares.listeners.get(&event).into_iter().flatten().copied();
            let open = |gate| match gate {
                Gate::Open => true,
                Gate::Closed => false,
                Gate::With(set) => registry.sets.get(set).is_some_and(|set| set.armed == Armed::Yes),
            };
            let listens = |event| {
                let record: &EventRecord<H> = registry.events.get(event)?;
                let output = record.output.clone().filter(|_| open(record.gate))?;
                Some((event, record.clone(), output))
            };
            own.chain([event]).filter_map(listens).collect::<Vec<_>>()
        });
        for (event, record, output) in listening {
            let on = match &record.fast_read().view {
                Some(view) => {
                    view.whole.book(|book| book.stance(view.whole.key, view.index)) == Some(SubscriberState::Counts)
                }
                None => self.is_on_anywhere(&record),
            };
            if on {
                audience.outputs.push((event, output));
            }
        }
    }

    /// Writes a sample, or another record, that the host has taken for an event: one whole record, as `pmux_abi` encodes it. It
    /// is judged as [`Engine::overflow`] judges, so the same is true for where it may be called.
    pub fn sample(&self, event: EventId, record: &[u8], now: Nanos) -> Sampled {
        match self.judge(event) {
            (Overflow::Deliver, Some(output)) => match output.write(record, now) {
                Ok(wake) => Sampled::Written(wake),
                Err(refused) => Sampled::Lost(refused),
            },
            (Overflow::Deliver, None) => Sampled::NoRing,
            (dropped, _) => Sampled::Dropped(dropped),
        }
    }
}
