//! Rings of events: where the records of an event go.
//!
//! What it is: attaching an event to a ring, leading others into the same one, and writing a sample that the host has taken.
//! For hosts that take samples themselves: where a kernel below does (Linux), it writes into rings of its own.
//!
//! **Invariant:** how a ring is written is settled when an event is attached to it; a record that is written asks nobody. No
//! ring is written, and no memory is given back, under a lock.

use super::{Engine, Overflow};
use crate::error::OutputError;
use crate::host::{Host, LockCell};
use crate::id::{EventId, Nanos};
use crate::ring::{Mode, Output, Refused, RingSetup, Wake, Writer};
use alloc::sync::Arc;

/// The writing end of an event's ring. [`Writer::pages`] is what readers are made of.
pub type EventRing<H, M> = Writer<Arc<<H as Host>::Pages>, M>;

/// What became of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Sampled {
    /// It is in the ring; whether its reader is to be woken.
    Written(Wake),
    /// The ring has not taken it, and has counted it.
    Lost(Refused),
    /// The event has no ring: whoever opened it may be told.
    NoRing,
    /// It came when nobody could be told; it has been counted ([`Engine::strays`]).
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
        if !data_bytes.is_power_of_two() || data_bytes < 8 {
            return Err(OutputError::BadSize { data_bytes });
        }
        let pages = self.host.alloc_ring(data_bytes).map_err(|_| OutputError::OutOfMemory)?;
        let writer = Writer::new(Arc::new(pages), setup).map_err(|_| OutputError::BadSize { data_bytes })?;
        let writer = Arc::new(writer);
        self.set_output(event, Arc::<EventRing<H, M>>::clone(&writer))?;
        Ok(writer)
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
