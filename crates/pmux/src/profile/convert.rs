//! From records to the model.
//!
//! What it is: [`read`] brings the records of a recording into the order of time (`rounds`) and hands them to a [`Converter`], which is
//! the same for records that come from anywhere. Read first: [`Converter::take`].
//!
//! **Invariant:** a record that is not understood is counted and left out; it never ends the reading.

use super::error::ProfileError;
use super::folder::Overlap;
use super::head::Head;
use super::input::{Input, Records};
use super::maps::Maps;
use super::modules::Modules;
use super::names::Names;
use super::rounds::Queue;
use super::stacks::{FrameId, StackId, Stacks};
use super::tasks::{Tasks, ThreadId};
use super::unpack::Unpacker;
use super::{Detail, Happening, Losses, Profile, Progress, Sample, Sink, Sources};
use crate::perf_data::kind;
use hashbrown::{DefaultHashBuilder, HashMap};
use pmux_abi::attr::Sampling;
use pmux_abi::record::{self, CommCause, Record, RecordHeader, SampleId, decode_record};
use std::ops::ControlFlow;

mod chain;
mod mapping;
mod unwind;

/// So much is read at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Kinds of records that tools write.
const AUXTRACE: u32 = 71;
const COMPRESSED_2: u32 = 83;

/// Reads a recording, and tells `sink` of it.
///
/// What is kept of the whole is the result, also where the sink ended the reading.
///
/// # Errors
/// [`ProfileError`]: nothing can be read. What is wrong behind the beginning is in [`Profile::losses`] and [`Profile::notes`].
pub fn read(mut input: Input, sink: &mut dyn Sink) -> Result<Profile, ProfileError> {
    let sources = input.sources.clone();
    let (next, notes) = input.take_rest();
    let (mut head, records) = input.begin()?;
    head.notes.extend(notes);
    let mut reading = Reading {
        records,
        before: Progress::default(),
        queue: Queue::default(),
        unpacker: Unpacker::default(),
        unpacked: Vec::new(),
        converter: Converter::new(head, sink.wants(), sources),
        times: Vec::new(),
        last_ns: 0,
        resume_ns: 0,
    };
    if !next.is_empty() {
        reading.converter.overlap = Some(Overlap::default());
    }
    reading.run(sink)?;
    for path in next {
        if reading.converter.ended {
            break;
        }
        match Input::open(&path).and_then(Input::begin) {
            Ok((head, records)) => reading.go_on(head, records, sink)?,
            // Its recorder may have removed it for a newer one.
            Err(error) => reading.converter.profile.notes.push(format!("{} is left out: {error}", path.display())),
        }
    }
    let Reading { mut queue, mut converter, .. } = reading;
    queue.finish(|record, time| converter.take(record, time, sink));
    Ok(converter.finish(queue.late))
}

struct Reading {
    records: Records,
    /// How much was read of other recordings.
    before: Progress,
    queue: Queue,
    unpacker: Unpacker,
    /// What was unpacked, from the first record that is not whole.
    unpacked: Vec<u8>,
    converter: Converter,
    /// Of the block that is being read.
    times: Vec<(u64, u32)>,
    last_ns: u64,
    /// Until then a recording has nothing but what another one before it has, too.
    resume_ns: u64,
}

impl Reading {
    /// Reads another recording of the same machine.
    fn go_on(&mut self, head: Head, records: Records, sink: &mut dyn Sink) -> Result<(), ProfileError> {
        self.before.bytes += self.records.taken;
        self.before.of_bytes = Some(self.before.bytes);
        self.records = records;
        self.unpacker = Unpacker::default();
        self.unpacked.clear();
        self.last_ns = 0;
        let goes_on = self.converter.goes_on(&head);
        if !goes_on {
            let Self { queue, converter, .. } = self;
            queue.finish(|record, time| converter.take(record, time, sink));
        }
        // What told of tasks may be in the one before, and the samples that it explains in this one: they are brought into one order.
        self.resume_ns = if goes_on { self.queue.newest_ns() } else { 0 };
        self.converter.begin_again(head);
        self.run(sink)
    }

    fn run(&mut self, sink: &mut dyn Sink) -> Result<(), ProfileError> {
        let mut rest = Vec::new();
        loop {
            let mut block = self.queue.buffer();
            block.append(&mut rest);
            let carried = block.len();
            match self.records.read_more(&mut block, BLOCK_BYTES) {
                Ok(0) => {
                    self.converter.profile.losses.cut_off_bytes += carried as u64;
                    break;
                }
                Ok(_) => {}
                // What was read so far is worth something.
                Err(error) if self.records.taken > 0 => {
                    self.converter.profile.notes.push(format!("reading ended early: {error}"));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            rest = self.split(block, sink)?;
            let Progress { bytes, of_bytes } = self.before;
            let progress = Progress {
                bytes: bytes + self.records.taken,
                of_bytes: self.records.total.map(|total| total + of_bytes.unwrap_or(0)),
            };
            let go_on = sink.progress(&self.converter.profile, progress);
            if go_on.is_break() || self.converter.ended {
                self.converter.ended = true;
                return Ok(());
            }
        }
        let mut last = Vec::new();
        self.unpacker.finish(&mut last);
        if !last.is_empty() {
            self.add_unpacked(&last);
        }
        self.converter.profile.losses.cut_off_bytes += self.unpacked.len() as u64;
        if self.converter.events_missing() { Err(ProfileError::NoEvents) } else { Ok(()) }
    }

    /// Takes the whole records of a block. Returns what is behind them.
    fn split(&mut self, mut block: Vec<u8>, sink: &mut dyn Sink) -> Result<Vec<u8>, ProfileError> {
        let (mut at, mut rest) = (0, Vec::new());
        self.times.clear();
        loop {
            let bytes = block.get(at..).unwrap_or_default();
            let (header, payload) = match split_any(bytes) {
                Ok((header, payload, _)) => (header, payload),
                Err(record::RecordError::BadSize { .. }) => {
                    // Where the next record begins is not to be known.
                    self.converter.profile.losses.cut_off_bytes += bytes.len() as u64;
                    self.converter.profile.notes.push(format!(
                        "the recording is broken: after {} bytes of records comes something that is none",
                        self.records.taken - bytes.len() as u64
                    ));
                    self.records.skip(u64::MAX)?;
                    break;
                }
                Err(_) => {
                    rest.extend_from_slice(bytes);
                    break;
                }
            };
            let next = at + usize::from(header.size);
            match header.kind.0 {
                // What a stream holds back comes out later than it should.
                kind::FINISHED_ROUND if self.unpacker.holds_back() || self.last_ns < self.resume_ns => {}
                kind::FINISHED_ROUND => self.queue.end_round(),
                kind::COMPRESSED | COMPRESSED_2 => {
                    let packed = match header.kind.0 {
                        COMPRESSED_2 => payload.split_at_checked(8).map_or(&[][..], |(size, packed)| {
                            let size = u64::from_ne_bytes(size.try_into().unwrap_or_default());
                            packed.get(..usize::try_from(size).unwrap_or(usize::MAX)).unwrap_or(packed)
                        }),
                        _ => payload,
                    };
                    let mut out = Vec::new();
                    if let Err(why) = self.unpacker.feed(packed, &mut out) {
                        self.converter.profile.notes.push(format!("compressed records can't be unpacked: {why}"));
                    }
                    self.add_unpacked(&out);
                }
                AUXTRACE | kind::HEADER_TRACING_DATA => {
                    let bytes = match header.kind.0 {
                        AUXTRACE => payload.first_chunk().map_or(0, |size| u64::from_ne_bytes(*size)),
                        _ => payload
                            .first_chunk()
                            .map_or(0, |size| u64::from(u32::from_ne_bytes(*size)).next_multiple_of(8)),
                    };
                    let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(block.len() - next);
                    let keeps = header.kind.0 == kind::HEADER_TRACING_DATA && bytes < 1 << 28;
                    let mut data = if keeps { block[next..next + here].to_vec() } else { Vec::new() };
                    if keeps {
                        self.records.read_more(&mut data, bytes as usize - here)?;
                        self.converter.profile.tracing = data;
                    } else {
                        self.records.skip(bytes - here as u64)?;
                    }
                    at = next + here;
                    continue;
                }
                64.. => self.converter.tool_record(header, payload)?,
                _ => {
                    if let Some(time_ns) = self.converter.arrival(&block[at..next], &mut self.last_ns) {
                        self.queue.meet(time_ns);
                        self.times.push((time_ns, at as u32));
                    }
                }
            }
            at = next;
        }
        block.truncate(at);
        self.queue.add(block, &self.times);
        let Self { queue, converter, .. } = self;
        queue.let_rounds_go(|record, time| converter.take(record, time, sink));
        queue.keep_small(|record, time| converter.take(record, time, sink));
        Ok(rest)
    }

    fn add_unpacked(&mut self, more: &[u8]) {
        self.unpacked.extend_from_slice(more);
        let (mut at, mut times) = (0, Vec::new());
        loop {
            match RecordHeader::split(&self.unpacked[at..]) {
                Ok((header, _, _)) => {
                    let next = at + usize::from(header.size);
                    if header.kind.0 < 64 {
                        if let Some(time_ns) = self.converter.arrival(&self.unpacked[at..next], &mut self.last_ns) {
                            self.queue.meet(time_ns);
                            times.push((time_ns, at as u32));
                        }
                    }
                    at = next;
                }
                Err(record::RecordError::BadSize { .. }) => {
                    self.converter.profile.losses.broken += 1;
                    self.unpacked.clear();
                    at = 0;
                    break;
                }
                Err(_) => break,
            }
        }
        if at == 0 {
            return;
        }
        let mut block = self.queue.buffer();
        block.extend(self.unpacked.drain(..at));
        self.queue.add(block, &times);
    }
}

/// As [`RecordHeader::split`]. The records that tools write need not be of whole words: those of features in a pipe are as long as
/// their text.
fn split_any(bytes: &[u8]) -> Result<(RecordHeader, &[u8], &[u8]), record::RecordError> {
    let found = RecordHeader::split(bytes);
    let Err(record::RecordError::BadSize { size }) = found else { return found };
    let kind = bytes.first_chunk::<4>().map_or(0, |kind| u32::from_ne_bytes(*kind));
    if kind < kind::HEADER_ATTR || usize::from(size) < RecordHeader::SIZE {
        return found;
    }
    let misc = bytes.get(4..6).and_then(|misc| misc.try_into().ok()).map_or(0, u16::from_ne_bytes);
    let need = usize::from(size);
    let (record, behind) =
        bytes.split_at_checked(need).ok_or(record::RecordError::Truncated { need, have: bytes.len() })?;
    let header = RecordHeader { kind: record::RecordKind(kind), misc: record::Misc(misc), size };
    Ok((header, &record[RecordHeader::SIZE..], behind))
}

/// Takes records in the order of time into the model.
pub(super) struct Converter {
    pub(super) profile: Profile,
    by_id: std::collections::HashMap<u64, u32>,
    /// The event of this recording that says where a record has its id.
    first_event: usize,
    /// What other recordings had, where several are read as one.
    overlap: Option<Overlap>,
    /// The id of the last record and its event: most have the same as the one before.
    last_id: (u64, usize),
    head: Head,
    kernel: Maps,
    /// Changes with each change of the kernel's mappings.
    kernel_stamp: u32,
    detail: Detail,
    words: Vec<u64>,
    addresses: Vec<(u64, FrameId)>,
    /// Chains that were met, by what they are a hash of.
    chains: HashMap<chain::Key, StackId>,
    hashers: [DefaultHashBuilder; 2],
    unwinding: unwind::Unwinding,
    ended: bool,
}

impl Converter {
    fn new(mut head: Head, detail: Detail, sources: Sources) -> Self {
        let mut names = Names::default();
        let modules = Modules::new(&mut names);
        let profile = Profile {
            about: std::mem::take(&mut head.about),
            events: std::mem::take(&mut head.events),
            names,
            tasks: Tasks::default(),
            modules,
            stacks: Stacks::default(),
            cgroups: std::collections::HashMap::new(),
            losses: Losses::default(),
            notes: std::mem::take(&mut head.notes),
            tracing: std::mem::take(&mut head.tracing),
            sources,
        };
        Self {
            profile,
            by_id: std::mem::take(&mut head.by_id),
            first_event: 0,
            overlap: None,
            last_id: (0, 0),
            head,
            kernel: Maps::default(),
            kernel_stamp: 0,
            detail,
            words: Vec::new(),
            addresses: Vec::new(),
            chains: HashMap::new(),
            hashers: Default::default(),
            unwinding: unwind::Unwinding::default(),
            ended: false,
        }
    }

    /// Whether a recording begins before the one that was read ends, and its events are the same.
    fn goes_on(&self, head: &Head) -> bool {
        let known = head.events.first().and_then(|first| first.ids.first()).and_then(|id| self.by_id.get(id));
        let first_ns = head.about.sampled_ns.map(|(first, _)| first);
        let goes_on = self.overlap.as_ref().is_some_and(|overlap| overlap.goes_on(first_ns));
        goes_on && known.is_some_and(|&place| place as usize == self.first_event)
    }

    /// Another recording of the same machine begins. Its events are those that are known, as far as they were opened with the same.
    fn begin_again(&mut self, mut head: Head) {
        let about = std::mem::take(&mut head.about);
        if let Some(overlap) = &mut self.overlap {
            overlap.begin(about.sampled_ns.map(|(first, _)| first));
        }
        let Profile { events, about: known, notes, .. } = &mut self.profile;
        known.sampled_ns = match (known.sampled_ns, about.sampled_ns) {
            (Some((first, last)), Some((other_first, other_last))) => {
                Some((first.min(other_first), last.max(other_last)))
            }
            (one, other) => one.or(other),
        };
        for (index, event) in head.events.into_iter().enumerate() {
            let same = events.iter().position(|known| known.name == event.name && known.attr == event.attr);
            let place = same.unwrap_or(events.len());
            self.by_id.extend(event.ids.iter().map(|id| (*id, place as u32)));
            match events.get_mut(place) {
                Some(known) => {
                    let fresh: Vec<u64> = event.ids.into_iter().filter(|id| !known.ids.contains(id)).collect();
                    known.ids.extend(fresh);
                }
                None => events.push(event),
            }
            if index == 0 {
                self.first_event = place;
            }
        }
        self.last_id = (0, self.first_event);
        notes.append(&mut head.notes);
        self.head.build_ids.append(&mut head.build_ids);
    }

    fn events_missing(&self) -> bool {
        self.profile.events.is_empty()
    }

    /// A record that a tool wrote.
    fn tool_record(&mut self, header: RecordHeader, payload: &[u8]) -> Result<(), ProfileError> {
        // The description of a pipe: it is lent to where it is understood.
        std::mem::swap(&mut self.head.events, &mut self.profile.events);
        std::mem::swap(&mut self.head.by_id, &mut self.by_id);
        std::mem::swap(&mut self.head.about, &mut self.profile.about);
        let taken = self.head.take_record(header.kind.0, header.misc.0, payload);
        std::mem::swap(&mut self.head.events, &mut self.profile.events);
        std::mem::swap(&mut self.head.by_id, &mut self.by_id);
        std::mem::swap(&mut self.head.about, &mut self.profile.about);
        if !self.head.tracing.is_empty() {
            self.profile.tracing = std::mem::take(&mut self.head.tracing);
        }
        taken.map(|_| ())
    }

    /// The event that a record is of.
    fn event_of(&mut self, record: &[u8]) -> Option<usize> {
        let first = self.profile.events.get(self.first_event)?;
        let Some(id) = first.layout.event_id(record) else { return Some(self.first_event) };
        if self.last_id.0 == id && id != 0 {
            return Some(self.last_id.1);
        }
        let event = match self.by_id.get(&id) {
            Some(&event) => event as usize,
            // What a tool made up has no id.
            None if id == 0 || self.profile.events.len() == 1 => self.first_event,
            None => return None,
        };
        self.last_id = (id, event);
        Some(event)
    }

    /// When a record is to be taken in; `None` if another recording had it.
    fn arrival(&mut self, record: &[u8], last_ns: &mut u64) -> Option<u64> {
        let time_ns = self.time_of(record, last_ns);
        let Some(overlap) = &mut self.overlap else { return Some(time_ns) };
        let layout = self.profile.events.get(self.first_event)?.layout;
        overlap.time(layout.event_id(record).unwrap_or(0), time_ns)
    }

    /// When a record was written; where it doesn't tell, when the one before it was.
    fn time_of(&mut self, record: &[u8], last_ns: &mut u64) -> u64 {
        let event = self.event_of(record);
        let time = event.and_then(|event| self.profile.events.get(event)?.layout.time(record));
        match time {
            // Only what tells of the time before, or what can't tell.
            Some(u64::MAX) | None => *last_ns,
            Some(time) => {
                *last_ns = time;
                time
            }
        }
    }

    /// Takes a record.
    pub(super) fn take(&mut self, bytes: &[u8], time_ns: u64, sink: &mut dyn Sink) {
        if self.ended {
            return;
        }
        let Some(event) = self.event_of(bytes) else {
            self.profile.losses.of_no_event += 1;
            return;
        };
        let Some(layout) = self.profile.events.get(event).map(|event| event.layout) else { return };
        let Ok((header, ..)) = RecordHeader::split(bytes) else { return };
        let go_on = match decode_record(bytes, &layout) {
            Ok((Record::Sample(sample), _)) => self.sample(header, &sample, event, time_ns, sink),
            Ok((record, id)) => self.other(header, &record, id.as_ref(), event, time_ns, sink),
            Err(_) => {
                self.profile.losses.broken += 1;
                ControlFlow::Continue(())
            }
        };
        self.ended |= go_on.is_break();
    }

    fn sample(
        &mut self,
        header: RecordHeader,
        fields: &record::Sample<'_>,
        event: usize,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> ControlFlow<()> {
        let task = fields.task.unwrap_or(record::TaskId { pid: u32::MAX, tid: u32::MAX });
        let Profile { tasks, names, .. } = &mut self.profile;
        let thread = tasks.find(task.pid.cast_signed(), task.tid.cast_signed(), names);
        let mode = header.misc.cpu_mode();
        let stack = self.stack(thread, mode, fields, event);
        let period =
            fields.period.unwrap_or_else(|| match self.profile.events.get(event).map(|event| event.attr.sampling) {
                Some(Sampling::Period(period)) => period,
                _ => 1,
            });
        let comm = self.profile.tasks.thread(thread).name();
        let addresses = &self.addresses;
        let sample = Sample { time_ns, cpu: fields.cpu, event, thread, comm, period, stack, addresses, mode, fields };
        sink.sample(&self.profile, &sample)
    }

    fn other(
        &mut self,
        header: RecordHeader,
        record: &Record<'_>,
        id: Option<&SampleId>,
        event: usize,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> ControlFlow<()> {
        let Profile { tasks, names, losses, cgroups, .. } = &mut self.profile;
        let signed = |number: u32| number.cast_signed();
        let mut thread = None;
        match record {
            Record::Mmap(map) => self.map(header, map.pid, &mapping::Told::of_mmap(map)),
            Record::Mmap2(map) => self.map(header, map.pid, &mapping::Told::of_mmap2(map)),
            Record::Ksymbol(symbol) => self.kernel_symbol(symbol),
            Record::Comm(comm) => {
                let id = tasks.find(signed(comm.pid), signed(comm.tid), names);
                if comm.cause == CommCause::Exec {
                    tasks.exec(id, time_ns);
                }
                let name = names.intern(comm.comm);
                tasks.rename(id, time_ns, name);
                thread = Some(id);
            }
            Record::Fork(task) => {
                let when = (task.time > 0 && time_ns > 0).then_some(time_ns);
                let (child, parent) = ((signed(task.pid), signed(task.tid)), (signed(task.ppid), signed(task.ptid)));
                thread = Some(tasks.fork(child, parent, when, names));
            }
            Record::Exit(task) => thread = tasks.exit(signed(task.pid), signed(task.tid), time_ns),
            Record::Lost(lost) => losses.lost = losses.lost.saturating_add(lost.lost),
            Record::LostSamples(lost) => losses.lost_samples = losses.lost_samples.saturating_add(lost.lost),
            Record::Cgroup(cgroup) => {
                let path = names.intern(cgroup.path);
                cgroups.insert(cgroup.id, path);
            }
            _ => {}
        }
        let thread = thread.or_else(|| self.thread_of(id));
        let cpu = id.and_then(|id| id.cpu);
        sink.happening(&self.profile, &Happening { time_ns, cpu, thread, event, header, record })
    }

    fn thread_of(&mut self, id: Option<&SampleId>) -> Option<ThreadId> {
        let task = id?.task?;
        let Profile { tasks, names, .. } = &mut self.profile;
        Some(tasks.find(task.pid.cast_signed(), task.tid.cast_signed(), names))
    }

    fn finish(mut self, late: u64) -> Profile {
        self.profile.losses.late = late;
        for (path, id) in std::mem::take(&mut self.head.build_ids) {
            let path = self.profile.names.intern(&path);
            self.profile.modules.tell_build_id(path, id);
        }
        self.profile.notes.append(&mut self.head.notes);
        let unwound = self.unwinding.notes(&self.profile);
        self.profile.notes.extend(unwound);
        self.profile
    }
}
