//! Rings of events, and who reads them.
//!
//! What it is: the rings that were attached to events, each with a reader that takes records out when it is told to (slow, or
//! not at all), and one that only looks.
//!
//! **Invariant:** a reader believes nothing but the records: which sample it is stands in each of them.

use super::super::ledger::Event;
use super::{Set, World};
use crate::oracle::ring::Mode;
use pmux_abi::attr::{Attr, SampleFormat};
use pmux_abi::record::{Record, Records, SampleLayout, decode_record};
use pmux_engine::ring_buffer::{
    self, Forward, HeapPages, Output, Overwrite, Piece, Reader, RingError, RingSetup, SnapshotReader, Taking, Writer,
};
use pmux_engine::{CpuId, EventId, OutputError};
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct RingBook {
    /// Whose samples go there, closed events among them.
    pub(crate) events: Vec<Event>,
    /// How many samples were written and lost there, of events that went elsewhere.
    pub(crate) left: (u64, u64),
    pub(crate) output: Arc<dyn Output>,
    pub(crate) mode: Mode,
    pages: Arc<HeapPages>,
    layout: SampleLayout,
    /// Takes records out of a forward ring.
    taking: Reader<Taking<Arc<HeapPages>>>,
    pub(crate) taken: RingTotals,
    /// Looks at either, from the beginning.
    looking: SnapshotReader<Arc<HeapPages>>,
    pub(crate) seen: RingTotals,
}

#[derive(Debug, Default)]
pub(crate) struct RingTotals {
    /// How many samples.
    pub(crate) samples: u64,
    /// Of each event, by what the records call it: the number of its next sample at the least.
    next: HashMap<u64, u64>,
    /// How many samples of an event came twice, or before one with a smaller number; or were none.
    pub(crate) wrong: u64,
}

impl RingTotals {
    fn note(&mut self, record: &[u8], layout: &SampleLayout) {
        let sample = match decode_record(record, layout) {
            Ok((Record::Sample(sample), _)) => sample.identifier.zip(sample.addr),
            _ => None,
        };
        let Some((event, number)) = sample else {
            self.wrong += 1;
            return;
        };
        let next = self.next.entry(event).or_default();
        self.wrong += u64::from(number < *next);
        self.samples += 1;
        *next = number + 1;
    }
}

impl RingBook {
    fn new(events: Vec<Event>, mode: Mode, output: Arc<dyn Output>, pages: Arc<HeapPages>, attr: &Attr) -> Self {
        let taking = Reader::new(Taking(Arc::clone(&pages)));
        let looking = SnapshotReader::from_oldest(Arc::clone(&pages));
        let (taken, seen, layout) = (RingTotals::default(), RingTotals::default(), SampleLayout::new(attr));
        Self { events, output, mode, pages, layout, taking, taken, looking, seen, left: (0, 0) }
    }

    fn look(&mut self) -> Result<(), RingError> {
        let (seen, layout) = (&mut self.seen, self.layout);
        self.looking.read(&mut |piece| {
            if let Piece::Records { bytes, .. } = piece {
                Records::new(bytes).flatten().for_each(|record| seen.note(record, &layout));
            }
        })?;
        Ok(())
    }

    /// How many samples the reader who looks has missed.
    pub(crate) fn missed(&self) -> Option<u64> {
        self.looking.missed_records()
    }

    /// How many samples are in it now, and what is wrong with them.
    pub(crate) fn content(&self) -> (u64, Option<RingError>) {
        let mut samples = 0;
        let read = SnapshotReader::from_oldest(&*self.pages).read(&mut |piece| {
            if let Piece::Records { bytes, .. } = piece {
                samples += Records::new(bytes).count() as u64;
            }
        });
        (samples, read.err())
    }
}

/// A ring, and its memory for those who read it.
fn parts<M: ring_buffer::Mode>(ring: Arc<Writer<Arc<HeapPages>, M>>) -> (Arc<dyn Output>, Arc<HeapPages>) {
    let pages = Arc::clone(ring.pages());
    (ring, pages)
}

impl World {
    /// What each sample of an event must have, for the code that looks at rings.
    pub const IN_SAMPLES: SampleFormat = SampleFormat::IDENTIFIER.union(SampleFormat::ADDR);

    /// Gives an event that samples ([`World::IN_SAMPLES`]) a ring of so many bytes; several share it where they are led into it
    /// ([`World::redirect`]). Only [`World::take_samples`] and [`World::look_at_samples`] read it.
    ///
    /// # Errors
    /// The engine's; [`OutputError::Closed`] also for an event of a set.
    pub fn attach_ring(&mut self, event: Event, mode: Mode, data_bytes: usize) -> Result<(), OutputError> {
        let (id, attr) = self.id_of_sampler(event)?;
        let setup = RingSetup::default();
        let (output, pages) = match mode {
            Mode::Forward => parts(self.call(|engine| engine.attach_ring::<Forward>(id, data_bytes, setup))?),
            Mode::Overwrite => parts(self.call(|engine| engine.attach_ring::<Overwrite>(id, data_bytes, setup))?),
        };
        self.leave_ring(event);
        self.rings.push(RingBook::new(vec![event], mode, output, pages, &attr));
        Ok(())
    }

    /// Gives a set of events that samples one ring for all of them, in [`SharingScope::RECORDS`](pmux_engine::share::SharingScope::RECORDS).
    ///
    /// # Errors
    /// The engine's.
    pub fn attach_set_ring(&mut self, set: Set, mode: Mode, data_bytes: usize) -> Result<(), OutputError> {
        let (id, number) = self.set_id(set).zip(self.set_number(set)).ok_or(OutputError::Closed)?;
        let events = self.events_of_set(number);
        let attr = events.first().and_then(|&event| self.attr(event)).ok_or(OutputError::Closed)?.1;
        let setup = RingSetup::default();
        let (output, pages) = match mode {
            Mode::Forward => parts(self.call(|engine| engine.attach_set_ring::<Forward>(id, data_bytes, setup))?),
            Mode::Overwrite => parts(self.call(|engine| engine.attach_set_ring::<Overwrite>(id, data_bytes, setup))?),
        };
        events.iter().for_each(|&event| self.leave_ring(event));
        self.rings.push(RingBook::new(events, mode, output, pages, &attr));
        Ok(())
    }

    /// An event may be switched whose samples other events get as well: what was taken until now is brought before, as an engine asks
    /// of its host.
    pub(super) fn bring_samples(&mut self) {
        if !self.shares() || self.rings.is_empty() {
            return;
        }
        let samples = self.with(|state| {
            (0..state.cpus.len() as u32).for_each(|cpu| state.look_for_samples(CpuId(cpu)));
            std::mem::take(&mut state.samples)
        });
        self.machine.deliver(&self.engine, samples);
    }

    /// Leads the samples of an event into that of another one.
    ///
    /// # Errors
    /// The engine's; [`OutputError::Closed`] also for an event of a set.
    pub fn redirect(&mut self, event: Event, into: Event) -> Result<(), OutputError> {
        let ((id, _), (into_id, _)) = (self.id_of_sampler(event)?, self.id_of_sampler(into)?);
        self.call(|engine| engine.redirect(id, into_id))?;
        self.leave_ring(event);
        if let Some(ring) = self.rings.iter_mut().find(|ring| ring.events.contains(&into)) {
            ring.events.push(event);
        }
        Ok(())
    }

    /// The reader of a forward ring takes out all that is there; how many samples. No reader takes anything out of another ring.
    ///
    /// # Errors
    /// What the reader says.
    pub fn take_samples(&mut self, event: Event) -> Result<u64, RingError> {
        let its = |ring: &&mut RingBook| ring.mode == Mode::Forward && ring.events.contains(&event);
        let Some(ring) = self.rings.iter_mut().find(its) else { return Ok(0) };
        let (taken, layout) = (&mut ring.taken, ring.layout);
        ring.taking.drain(&mut |record| taken.note(record, &layout))
    }

    /// The reader that only looks at a ring goes on to its end; how many samples it has seen so far, and how many missed.
    ///
    /// # Errors
    /// What the reader says.
    pub fn look_at_samples(&mut self, event: Event) -> Result<(u64, u64), RingError> {
        let Some(ring) = self.rings.iter_mut().find(|ring| ring.events.contains(&event)) else { return Ok((0, 0)) };
        ring.look()?;
        Ok((ring.seen.samples, ring.missed().unwrap_or(0)))
    }

    /// How many samples the reader who only looks at the ring of an event has seen so far.
    #[must_use]
    pub fn samples_seen(&self, event: Event) -> u64 {
        let ring = self.rings.iter().find(|ring| ring.events.contains(&event));
        ring.map_or(0, |ring| ring.seen.samples)
    }

    /// How many samples the ring of an event has lost.
    #[must_use]
    pub fn lost_samples(&self, event: Event) -> u64 {
        let ring = self.rings.iter().find(|ring| ring.events.contains(&event));
        ring.map_or(0, |ring| ring.output.tally().lost.records())
    }

    pub(crate) fn rings(&self) -> &[RingBook] {
        &self.rings
    }

    /// The samples of an event go elsewhere.
    fn leave_ring(&mut self, event: Event) {
        let sample_stats = self.with(|state| state.begin_samples(event));
        for ring in self.rings.iter_mut().filter(|ring| ring.events.contains(&event)) {
            ring.events.retain(|&other| other != event);
            ring.left = (ring.left.0 + sample_stats.written, ring.left.1 + sample_stats.lost);
        }
    }

    fn id_of_sampler(&self, event: Event) -> Result<(EventId, Attr), OutputError> {
        self.state(|state| {
            let id = state.ledger.tag(event).and_then(|tag| tag.id);
            id.zip(state.ledger.asked(event).map(|(_, attr)| attr)).ok_or(OutputError::Closed)
        })
    }
}
