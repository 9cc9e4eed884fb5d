//! Samples: what a machine writes down each time an event has happened so many times.
//!
//! What it is: an interrupt for each period of an event in each place where it is counted, and the record that is made of it.
//! Read first: [`State::take_samples`] and [`super::Machine::deliver`].
//!
//! **Invariant:** how many samples there are follows from the truth: from what happened while a register was started for the
//! event. What became of them is asked of the engine, one by one.

use super::Machine;
use super::faults::InjectedFault;
use super::ledger::Event;
use super::locks::lock;
use super::model::CountedEvent;
use super::registers::RegisterKey;
use super::state::State;
use pmux_abi::attr::{Attr, SampleFormat, Sampling};
use pmux_abi::record::{Misc, Record, RecordHeader, Sample, SampleLayout, TaskId as RecordTask, encode_record};
use pmux_engine::engine::{Audience, Overflow, Sampled};
use pmux_engine::ring_buffer::Wake;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Engine, EventId, Nanos};

/// The fields that this machine can fill.
const FIELDS: SampleFormat = SampleFormat::IDENTIFIER
    .union(SampleFormat::TID)
    .union(SampleFormat::TIME)
    .union(SampleFormat::ADDR)
    .union(SampleFormat::ID)
    .union(SampleFormat::STREAM_ID)
    .union(SampleFormat::CPU)
    .union(SampleFormat::PERIOD);

/// The period of an event that samples; 0 of one that doesn't. `None` where this machine can't sample like that.
pub(crate) fn period_of(attr: &Attr) -> Option<u64> {
    match attr.sampling {
        Sampling::None => Some(0),
        Sampling::Period(period) if period > 0 && FIELDS.contains(attr.sample) => Some(period),
        _ => None,
    }
}

/// An interrupt that asks for samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    event: Event,
    place: ContextKey,
    at: Nanos,
    /// Its number among the samples of the event, from 0.
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SampleStats {
    pub(crate) next: u64,
    /// How many there were.
    pub(crate) taken: u64,
    /// How many the engine wrote.
    pub(crate) written: u64,
    /// How many found no room.
    pub(crate) lost: u64,
    /// How many it dropped: the event was off by then, or its set not armed.
    pub(crate) dropped: u64,
    /// Of an event that shares its records: how many it is still to get; fewer than none, where it got what it was not to.
    pub(crate) waiting: i64,
}

impl State {
    /// So much of an event has happened in a place: is it time for samples? Only of events that have a ring.
    pub(crate) fn take_samples(&mut self, key: RegisterKey) {
        let Some(register) = self.register(key).filter(|register| register.period > 0) else { return };
        let (tag, site, period) = (register.tag, register.site, register.period);
        let (now, Some(event)) = (self.now(), self.ledger.event_at(tag)) else { return };
        let Some(site_key) = site else { return };
        let Some(site) = self.ledger.site_mut(site_key) else { return };
        let due = site.ran.occurrences / period;
        let (place, more) = (site.place, due - site.sampled);
        site.sampled = due;
        let first = match self.sample_stats.get_mut(&event) {
            Some(sample_stats) => {
                let first = sample_stats.next;
                (sample_stats.next, sample_stats.taken) = (first + more, sample_stats.taken + more);
                first
            }
            None => {
                let Some(first) = self.owe_samples(event, site_key, more) else { return };
                first
            }
        };
        self.samples.extend((first..first + more).map(|number| Taken { event, place, at: now, number }));
    }

    /// So many samples of a master were taken in a place: each event that sees it there and has a ring is to get them. Returns the
    /// number of the first one; `None` where there is no such event.
    fn owe_samples(&mut self, master: Event, site: u32, more: u64) -> Option<u64> {
        let next = self.numbers.entry(master).or_default();
        let first = *next;
        *next += more;
        let sees = |&viewer: &u32| {
            let viewer = self.ledger.site(viewer).filter(|viewer| viewer.seen.is_open())?;
            self.ledger.event_at(viewer.tag)
        };
        let seeing: Vec<Event> = self.ledger.site(site)?.viewers.iter().filter_map(sees).collect();
        let mut owed = false;
        for event in seeing {
            if let Some(sample_stats) = self.sample_stats.get_mut(&event) {
                (sample_stats.taken, sample_stats.waiting) =
                    (sample_stats.taken + more, sample_stats.waiting + more.cast_signed());
                owed = true;
            }
        }
        owed.then_some(first)
    }

    /// What the engine calls a master's event in a place, which for children is their root's, and those who see it anywhere.
    fn listeners(&self, master: Event, place: ContextKey) -> Option<(EventId, Vec<(EventId, Event)>)> {
        let tag = self.ledger.tag(master)?;
        let sites = || tag.sites.iter().filter_map(|&site| self.ledger.site(site));
        let source = sites().find(|site| site.place == place).and_then(|site| site.id);
        let source = source.or_else(|| sites().find_map(|site| site.id))?;
        let named = |&viewer: &u32| {
            let site = self.ledger.site(viewer)?;
            let event = self.ledger.event_at(site.tag)?;
            Some((site.id.or(self.ledger.tag(event)?.id)?, event))
        };
        Some((source, sites().flat_map(|site| &site.viewers).filter_map(named).collect()))
    }

    /// From now on the samples of an event go into another ring. What has become of them so far.
    pub(super) fn begin_samples(&mut self, event: Event) -> SampleStats {
        let before = self.sample_stats.get(&event).copied().unwrap_or_default();
        // Those that wait go there, too.
        let taken = self.samples_of(event);
        self.sample_stats.insert(event, SampleStats { next: before.next, taken, ..SampleStats::default() });
        before
    }

    /// How many samples of an event the engine has not been told of yet.
    pub(crate) fn samples_of(&self, event: Event) -> u64 {
        self.samples.iter().filter(|sample| sample.event == event).count() as u64
    }

    /// When the next sample of a register is due, at the rates of now.
    pub(super) fn sample_due(&self, key: RegisterKey, cpu: CpuId) -> u64 {
        let due = || {
            let register = self.register(key).filter(|register| register.period > 0 && register.started)?;
            let CountedEvent::Kind(kind) = register.counted else { return None };
            let ran = self.ledger.site(register.site?)?.ran.occurrences;
            let since = self.cpu_total(cpu, kind).wrapping_sub(register.mark.occurrences);
            let left = (register.period - ran % register.period).saturating_sub(since);
            Some(self.now.saturating_add(self.rates_on(cpu).of(kind).time_for(left)))
        };
        due().unwrap_or(u64::MAX)
    }

    /// Brings the registers of a CPU that sample up to date.
    pub(super) fn look_for_samples(&mut self, cpu: CpuId) {
        let sampling: Vec<_> =
            self.going(cpu).filter(|&key| self.register(key).is_some_and(|register| register.period > 0)).collect();
        sampling.into_iter().for_each(|key| self.fold(key));
    }
}

impl Machine {
    /// Brings the samples that were taken to the engine.
    pub(super) fn deliver(&self, engine: &Engine<Self>, samples: Vec<Taken>) {
        let mut room = [0; RecordHeader::SIZE + 8 * 16];
        let mut audience = Audience::default();
        for sample in samples {
            let (listeners, asked) = {
                let state = lock(&self.shared.state);
                (state.listeners(sample.event, sample.place), state.ledger.asked(sample.event))
            };
            if let (Some((source, listeners)), Some((_, attr))) = (listeners, asked) {
                engine.audience(source, &mut audience);
                let swallows =
                    lock(&self.shared.state).injected == Some(InjectedFault::SwallowSamples) && sample.number % 4 == 3;
                if swallows {
                    continue;
                }
                audience.write_and_tell(
                    |_| true,
                    record_of(&sample, &attr, &mut room),
                    sample.at,
                    |event, written| {
                        let event = listeners.iter().find(|(id, _)| *id == event).map(|&(_, event)| event);
                        let mut state = lock(&self.shared.state);
                        let Some(sample_stats) = event.and_then(|event| state.sample_stats.get_mut(&event)) else {
                            return;
                        };
                        sample_stats.waiting -= 1;
                        match written {
                            Ok(_) => sample_stats.written += 1,
                            Err(_) => sample_stats.lost += 1,
                        }
                    },
                );
                continue;
            }
            let (found, injected) = {
                let state = lock(&self.shared.state);
                let id = state.ledger.tag(sample.event).and_then(|tag| tag.id);
                (id.zip(state.ledger.asked(sample.event)), state.injected)
            };
            let sampled = match (found, injected) {
                (Some(_), Some(InjectedFault::SwallowSamples)) if sample.number % 4 == 3 => Sampled::Written(Wake::No),
                (Some((id, (_, attr))), _) => engine.sample(id, record_of(&sample, &attr, &mut room), sample.at),
                // It was closed before the interrupt came.
                (None, _) => Sampled::Dropped(Overflow::Stale),
            };
            if let Some(sample_stats) = lock(&self.shared.state).sample_stats.get_mut(&sample.event) {
                match sampled {
                    Sampled::Written(_) => sample_stats.written += 1,
                    Sampled::Lost(_) => sample_stats.lost += 1,
                    Sampled::Dropped(_) => sample_stats.dropped += 1,
                    Sampled::NoRing => {}
                }
            }
        }
    }
}

/// The record of a sample. Its address is its number among those of its event.
fn record_of<'a>(taken: &Taken, attr: &Attr, room: &'a mut [u8]) -> &'a [u8] {
    let has = |field, value: u64| attr.sample.contains(field).then_some(value);
    let (task, cpu) = match taken.place {
        ContextKey::Task(task) => (task.0 as u32, u32::MAX),
        ContextKey::Cpu(cpu) => (u32::MAX, cpu.0),
    };
    let id = taken.event.to_word();
    let sample = Sample {
        identifier: has(SampleFormat::IDENTIFIER, id),
        task: attr.sample.contains(SampleFormat::TID).then_some(RecordTask { pid: task, tid: task }),
        time: has(SampleFormat::TIME, taken.at.0),
        addr: has(SampleFormat::ADDR, taken.number),
        id: has(SampleFormat::ID, id),
        stream_id: has(SampleFormat::STREAM_ID, id),
        cpu: attr.sample.contains(SampleFormat::CPU).then_some(cpu),
        period: has(SampleFormat::PERIOD, period_of(attr).unwrap_or(0)),
        ..Sample::default()
    };
    // It fits: there are no more fields than FIELDS has, of a word each.
    let length = encode_record(&Record::Sample(sample), None, Misc::USER, &SampleLayout::new(attr), room);
    room.get(..length.unwrap_or(0)).unwrap_or_default()
}
