//! From the bytes of a recording to its records, in the order of time.
//!
//! What it is: a [`Reader`] finds where records begin and when they were written, unpacks what is packed, and leaves the order to
//! `rounds`. It runs beside the code that understands the records, on a thread of its own where there are CPUs for it. Read first:
//! [`Reader::step`], [`Ahead`].
//!
//! **Invariant:** it understands nothing but what tells the time of a record and its event: what a record means is not asked here.

use super::error::ProfileError;
use super::folder::Overlap;
use super::head::{EventInfo, Head};
use super::input::{Input, Records};
use super::rounds::{Met, OrderedRecords, Queue};
use super::unpack::Unpacker;
use super::{Losses, Progress};
use crate::bytes::Fields;
use crate::perf_data::kind;
use pmux_abi::attr::SampleFormat;
use pmux_abi::record::{self, RecordHeader, SampleLayout};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// So much is read at once.
const BLOCK_BYTES: usize = 1 << 20;
/// So many unpacked bytes are put into order before those that can go are passed on.
const UNPACKED_BYTES: usize = 8 << 20;
/// So many records that can't be right, and more of them than of others: what comes is nonsense.
const MOST_NONSENSE: u64 = 1 << 20;
/// So many parts wait for who understands them.
const WAITING: usize = 4;
/// Kinds of records that tools write.
const AUXTRACE: u32 = 71;
const COMPRESSED_2: u32 = 83;

#[derive(Default)]
pub(super) struct ReadPart {
    /// What describes another recording of the same machine, which begins here.
    pub(super) again: Option<Box<Head>>,
    /// Records that describe the recording, as they are in a pipe: they come before the others.
    pub(super) head_records: Vec<u8>,
    /// What the fields of tracepoints mean.
    pub(super) tracing: Option<Vec<u8>>,
    /// Records in the order of time.
    pub(super) batch: OrderedRecords,
    pub(super) progress: Option<Progress>,
}

#[derive(Default)]
pub(super) struct ReadEnd {
    pub(super) losses: Losses,
    pub(super) notes: Vec<String>,
}

/// Bytes that are read one after another, and what is known of what comes next in them.
struct InputStream {
    records: Records,
    unpacker: Unpacker,
    /// What was unpacked, from the first record that is not whole.
    unpacked: Vec<u8>,
    /// Whether packed bytes wait, which come before the rest.
    is_packed: bool,
    /// The bytes behind the last whole record.
    rest: Vec<u8>,
    last_ns: u64,
}

impl InputStream {
    fn new(records: Records) -> Self {
        let (unpacked, rest) = (Vec::new(), Vec::new());
        Self { records, unpacker: Unpacker::default(), unpacked, is_packed: false, rest, last_ns: 0 }
    }
}

pub(super) struct Reader {
    stream: InputStream,
    /// What threads of the recorder wrote at the same time.
    beside: Vec<InputStream>,
    /// What is to be read after this one, the last one first.
    next: Vec<PathBuf>,
    /// How much was read of other recordings.
    before: Progress,
    /// What other recordings had, where several are read as one.
    overlap: Option<Overlap>,
    /// Until then a recording has nothing but what another one before it has, too.
    resume_ns: u64,
    queue: Queue,
    /// How many records were met that can be right.
    good: u64,
    /// Bytes of AUX areas, which no reader here decodes.
    aux_bytes: u64,
    /// The events, and which of them an id is of.
    head: Head,
    /// The event of this recording that says where a record has its id.
    first_event: usize,
    /// The id of the last record and its event: most have the same as the one before.
    last_id: (u64, u32),
    /// Of the block that is being read.
    met: Vec<Met>,
    part: ReadPart,
    is_at_end: bool,
    end: ReadEnd,
}

impl Reader {
    /// Reads the records of what `head` describes, those `beside` them in the order of time, and then those of other recordings.
    pub(super) fn new(records: Records, beside: Vec<Records>, head: &Head, mut next: Vec<PathBuf>) -> Self {
        next.reverse();
        Self {
            stream: InputStream::new(records),
            beside: beside.into_iter().map(InputStream::new).collect(),
            overlap: (!next.is_empty()).then(Overlap::default),
            next,
            before: Progress::default(),
            resume_ns: 0,
            queue: Queue::default(),
            good: 0,
            aux_bytes: 0,
            head: Head { events: head.events.clone(), by_id: head.by_id.clone(), ..Head::default() },
            first_event: 0,
            last_id: (0, 0),
            met: Vec::new(),
            part: ReadPart::default(),
            is_at_end: false,
            end: ReadEnd::default(),
        }
    }

    /// What comes next; a part may have no record. `used` is one that is not needed any more.
    ///
    /// # Errors
    /// Nothing at all can be read.
    fn step(&mut self, used: Option<ReadPart>) -> Result<ReadStep, ProfileError> {
        if let Some(mut used) = used {
            used.batch.clear();
            self.part.batch = used.batch;
        }
        if !self.queue.fill(&mut self.part.batch) {
            if self.is_at_end {
                self.end.losses.late = self.queue.late;
                return Ok(ReadStep::End(std::mem::take(&mut self.end)));
            }
            self.read_block()?;
            self.queue.fill(&mut self.part.batch);
        }
        Ok(ReadStep::Part(std::mem::take(&mut self.part)))
    }

    fn read_block(&mut self) -> Result<(), ProfileError> {
        let behind = self.beside.iter_mut().min_by_key(|stream| stream.last_ns);
        if let Some(behind) = behind.filter(|stream| stream.last_ns < self.stream.last_ns) {
            std::mem::swap(behind, &mut self.stream);
        }
        let was_packed = std::mem::take(&mut self.stream.is_packed);
        if was_packed && self.unpack() >= BLOCK_BYTES {
            self.stream.is_packed = true;
            self.queue.settle();
            return self.stop_at_nonsense();
        }
        let mut block = self.queue.buffer();
        block.append(&mut self.stream.rest);
        let carried = block.len();
        match self.stream.records.read_more(&mut block, BLOCK_BYTES.saturating_sub(carried)) {
            // Behind packed records there may be others in what was read before.
            Ok(0) if carried < RecordHeader::SIZE || !was_packed => {
                self.end.losses.cut_off_bytes += carried as u64;
                self.at_end();
            }
            Ok(_) => {
                self.split(block)?;
                self.queue.settle();
            }
            // What was read so far is worth something.
            Err(error) if self.stream.records.taken > 0 => {
                self.end.notes.push(format!("reading ended early: {error}"));
                self.at_end();
            }
            Err(error) => return Err(error.into()),
        }
        self.stop_at_nonsense()?;
        let Progress { bytes, of_bytes } = self.before;
        let taken = self.streams().map(|stream| stream.records.taken).sum::<u64>();
        let total = self.streams().map(|stream| stream.records.total).sum::<Option<u64>>();
        let of_bytes = total.map(|total| total + of_bytes.unwrap_or(0));
        self.part.progress = Some(Progress { bytes: bytes + taken, of_bytes });
        Ok(())
    }

    fn streams(&self) -> impl Iterator<Item = &InputStream> {
        std::iter::once(&self.stream).chain(&self.beside)
    }

    /// Leaves the rest out if most of what comes can't be right.
    fn stop_at_nonsense(&mut self) -> Result<(), ProfileError> {
        if self.end.losses.broken > MOST_NONSENSE.max(self.good) && !self.is_at_end {
            self.end.notes.push(format!(
                "{} records can't be right, and {} can: the rest is left out",
                self.end.losses.broken, self.good
            ));
            self.stream.unpacker.give_up();
            (self.stream.is_packed, self.stream.rest, self.stream.unpacked) = (false, Vec::new(), Vec::new());
            self.beside.clear();
            self.stream.records.skip(u64::MAX)?;
        }
        Ok(())
    }

    fn at_end(&mut self) {
        let mut last = Vec::new();
        self.stream.unpacker.finish(&mut last);
        if !last.is_empty() {
            self.add_unpacked(&last);
        }
        self.end.losses.cut_off_bytes += self.stream.unpacked.len() as u64;
        if let Some(stream) = self.beside.pop() {
            return self.take_up(stream);
        }
        while let Some(path) = self.next.pop() {
            match Input::open(&path).and_then(Input::begin) {
                Ok((head, records)) => return self.begin_again(head, records),
                // Its recorder may have removed it for a newer one.
                Err(error) => self.end.notes.push(format!("{} is left out: {error}", path.display())),
            }
        }
        if self.aux_bytes > 0 {
            self.end.notes.push(format!(
                "{} bytes of AUX data (instruction traces, SPE) are not decoded: `perf script` can do that",
                self.aux_bytes
            ));
        }
        self.queue.settle_all();
        self.is_at_end = true;
    }

    /// Goes on with other bytes.
    fn take_up(&mut self, stream: InputStream) {
        self.before.bytes += self.stream.records.taken;
        self.before.of_bytes = Some(self.before.bytes);
        self.stream = stream;
    }

    /// Goes on with another recording of the same machine.
    fn begin_again(&mut self, head: Head, records: Records) {
        self.take_up(InputStream::new(records));
        // What told of tasks may be in the one before, and the samples that it explains in this one: they are brought into one order.
        let goes_on = self.goes_on(&head);
        if !goes_on {
            self.queue.settle_all();
        }
        self.resume_ns = if goes_on { self.queue.newest_ns } else { 0 };
        if let Some(overlap) = &mut self.overlap {
            overlap.begin(head.about.sampled_ns.map(|(first, _)| first));
        }
        self.first_event = self.head.join(head.events.clone()).unwrap_or(self.first_event);
        self.last_id = (0, self.first_event as u32);
        self.part.again = Some(Box::new(head));
    }

    /// Whether a recording begins before the one that was read ends, and its events are the same.
    fn goes_on(&self, head: &Head) -> bool {
        let known = head.events.first().and_then(|first| first.ids.first()).and_then(|id| self.head.by_id.get(id));
        let first_ns = head.about.sampled_ns.map(|(first, _)| first);
        let goes_on = self.overlap.as_ref().is_some_and(|overlap| overlap.goes_on(first_ns));
        goes_on && known.is_some_and(|&place| place as usize == self.first_event)
    }

    /// Takes the whole records of a block, and leaves what is behind them.
    fn split(&mut self, mut block: Vec<u8>) -> Result<(), ProfileError> {
        let (mut at, mut unpacked_bytes) = (0, 0);
        self.met.clear();
        loop {
            let bytes = block.get(at..).unwrap_or_default();
            let (header, payload) = match split_any(bytes) {
                Ok((header, payload, _)) => (header, payload),
                Err(record::RecordError::BadSize { .. }) => {
                    // Where the next record begins is not to be known.
                    self.end.losses.cut_off_bytes += bytes.len() as u64;
                    self.end.notes.push(format!(
                        "the recording is broken: after {} bytes of records comes something that is none",
                        self.stream.records.taken - bytes.len() as u64
                    ));
                    self.stream.records.skip(u64::MAX)?;
                    break;
                }
                Err(_) => {
                    self.stream.rest.extend_from_slice(bytes);
                    break;
                }
            };
            let next = at + usize::from(header.size);
            match header.kind.0 {
                // What one stream holds back comes out later than it should.
                kind::FINISHED_ROUND
                    if self.stream.unpacker.holds_back()
                        || self.stream.last_ns < self.resume_ns
                        || !self.beside.is_empty() => {}
                kind::FINISHED_ROUND => self.queue.end_round(),
                kind::COMPRESSED | COMPRESSED_2 => {
                    let packed = match header.kind.0 {
                        COMPRESSED_2 => payload.split_at_checked(8).map_or(&[][..], |(size, packed)| {
                            let size = u64::from_ne_bytes(size.try_into().unwrap_or_default());
                            packed.get(..usize::try_from(size).unwrap_or(usize::MAX)).unwrap_or(packed)
                        }),
                        _ => payload,
                    };
                    self.stream.unpacker.feed(packed);
                    let count = self.unpack();
                    unpacked_bytes += count;
                    if count >= BLOCK_BYTES || unpacked_bytes >= UNPACKED_BYTES {
                        self.stream.rest.extend_from_slice(block.get(next..).unwrap_or_default());
                        self.stream.is_packed = true;
                        at = next;
                        break;
                    }
                }
                AUXTRACE | kind::HEADER_TRACING_DATA => {
                    let mut size = Fields(payload);
                    let bytes = match header.kind.0 {
                        AUXTRACE => size.u64().unwrap_or(0),
                        _ => u64::from(size.u32().unwrap_or(0)).next_multiple_of(8),
                    };
                    let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(block.len() - next);
                    let keeps = header.kind.0 == kind::HEADER_TRACING_DATA && bytes < 1 << 28;
                    if keeps {
                        let mut data = block[next..next + here].to_vec();
                        loop {
                            let left = bytes as usize - data.len();
                            if left == 0 || self.stream.records.read_more(&mut data, left)? == 0 {
                                break;
                            }
                        }
                        self.part.tracing = Some(data);
                    } else {
                        self.aux_bytes = self.aux_bytes.saturating_add(bytes);
                        self.stream.records.skip(bytes - here as u64)?;
                    }
                    at = next + here;
                    continue;
                }
                64.. => {
                    // The code that understands the records takes it as well, and says what is wrong with it.
                    let _ = self.head.take_record(header.kind.0, header.misc.0, payload);
                    self.part.head_records.extend_from_slice(&block[at..next]);
                }
                _ => {
                    let met = self.meet(&block[at..next], at);
                    self.met.extend(met);
                }
            }
            at = next;
        }
        block.truncate(at);
        self.queue.add(block, &self.met);
        Ok(())
    }

    /// Takes some of what is packed. Returns how many bytes it was; a block or more if there may be more.
    fn unpack(&mut self) -> usize {
        let mut out = Vec::new();
        if let Err(why) = self.stream.unpacker.unpack(&mut out, BLOCK_BYTES) {
            self.end.notes.push(format!("compressed records can't be unpacked: {why}"));
        }
        self.add_unpacked(&out);
        out.len()
    }

    fn add_unpacked(&mut self, more: &[u8]) {
        self.stream.unpacked.extend_from_slice(more);
        let (mut at, mut found) = (0, Vec::new());
        loop {
            match RecordHeader::split(&self.stream.unpacked[at..]) {
                Ok((header, _, _)) => {
                    let next = at + usize::from(header.size);
                    if header.kind.0 < 64 {
                        let unpacked = std::mem::take(&mut self.stream.unpacked);
                        found.extend(self.meet(&unpacked[at..next], at));
                        self.stream.unpacked = unpacked;
                    }
                    at = next;
                }
                Err(record::RecordError::BadSize { .. }) => {
                    self.end.losses.broken += 1;
                    self.stream.unpacked.clear();
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
        block.extend(self.stream.unpacked.drain(..at));
        self.queue.add(block, &found);
    }

    /// A record of the kernel: when it was written, and of which event it is. `None` if another recording had it.
    fn meet(&mut self, record: &[u8], at: usize) -> Option<Met> {
        let event = self.event_of(record);
        let layout = event.and_then(|event| self.head.events.get(event as usize)).map(|event| event.layout);
        let time = layout.and_then(|layout| layout.time(record));
        if layout.is_some_and(|layout| is_nonsense(record, &layout, time)) {
            self.end.losses.broken += 1;
            return None;
        }
        self.good += 1;
        // Where it doesn't tell, when the one before it was: only what tells of the time before, or what can't tell.
        if let Some(time) = time.filter(|time| *time != u64::MAX) {
            self.stream.last_ns = time;
        }
        let mut time_ns = self.stream.last_ns;
        if let Some(overlap) = &mut self.overlap {
            let layout = self.head.events.get(self.first_event)?.layout;
            time_ns = overlap.time(layout.event_id(record).unwrap_or(0), time_ns)?;
        }
        self.queue.meet(time_ns);
        Some(Met { time_ns, at: at as u32, event })
    }

    /// The event that a record is of.
    fn event_of(&mut self, record: &[u8]) -> Option<u32> {
        let first = self.head.events.get(self.first_event)?;
        // Where the layout of its event says where a record ends ([`SampleLayout::own_size`]), its id is not found without it.
        let kind = record.first_chunk().map(|kind| record::RecordKind(u32::from_ne_bytes(*kind)));
        if kind.is_some_and(SampleLayout::may_have_excess) {
            let of_event = |(index, event): (usize, &EventInfo)| {
                let id = event.layout.event_id(record)?;
                (self.head.by_id.get(&id) == Some(&(index as u32))).then_some(index as u32)
            };
            if let Some(found) = self.head.events.iter().enumerate().skip(self.first_event).find_map(of_event) {
                return Some(found);
            }
        }
        let Some(id) = first.layout.event_id(record) else { return Some(self.first_event as u32) };
        if self.last_id.0 == id && id != 0 {
            return Some(self.last_id.1);
        }
        let event = match self.head.by_id.get(&id) {
            Some(&event) => event,
            // What a tool made up has no id.
            None if id == 0 || self.head.events.len() == 1 => self.first_event as u32,
            None => return None,
        };
        self.last_id = (id, event);
        Some(event)
    }
}

/// Whether a record can't be what it says: no kernel writes that kind, or it is too short for what each of them has.
fn is_nonsense(record: &[u8], layout: &SampleLayout, time: Option<u64>) -> bool {
    let kind = record.first_chunk().map(|kind| u32::from_ne_bytes(*kind));
    match kind.map(record::RecordKind) {
        None | Some(record::RecordKind(0)) => true,
        Some(record::RecordKind::SAMPLE) => time.is_none() && layout.format().contains(SampleFormat::TIME),
        Some(_) => record.len() < RecordHeader::SIZE + layout.sample_id_size(),
    }
}

/// As [`RecordHeader::split`]. The records that tools write need not be of whole words: those of features in a pipe are as long as
/// their text.
pub(super) fn split_any(bytes: &[u8]) -> Result<(RecordHeader, &[u8], &[u8]), record::RecordError> {
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

/// Parts that are read before they are asked for.
pub(super) enum Ahead {
    /// By a thread of its own, which is given back what is not needed any more.
    Beside { parts: Receiver<Result<ReadStep, ProfileError>>, used: Sender<ReadPart> },
    /// When they are asked for: there is one CPU only, or no thread is to be had.
    Here { reader: Box<Reader>, used: Option<ReadPart> },
}

pub(super) enum ReadStep {
    Part(ReadPart),
    End(ReadEnd),
}

impl Ahead {
    pub(super) fn new(reader: Reader) -> Self {
        let here = |reader| Self::Here { reader: Box::new(reader), used: None };
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return here(reader);
        }
        // Started without the reader, which is still here if that fails.
        let (to_thread, from_here) = channel::<Reader>();
        let (parts_to, parts) = sync_channel(WAITING);
        let (used, used_from) = channel();
        let thread = std::thread::Builder::new().name("reader".to_owned());
        let started = thread.spawn(move || {
            if let Ok(reader) = from_here.recv() {
                run(reader, &parts_to, &used_from);
            }
        });
        let Ok(_) = started else { return here(reader) };
        to_thread.send(reader).map_or_else(|unsent| here(unsent.0), |()| Self::Beside { parts, used })
    }

    /// What comes next.
    ///
    /// # Errors
    /// Nothing at all can be read.
    pub(super) fn next(&mut self) -> Result<ReadStep, ProfileError> {
        match self {
            Self::Beside { parts, .. } => {
                let gone = || std::io::Error::other("the thread that reads has ended").into();
                parts.recv().unwrap_or_else(|_| Err(gone()))
            }
            Self::Here { reader, used } => reader.step(used.take()),
        }
    }

    /// Gives back a part that is not needed any more: its memory is used again.
    pub(super) fn give_back(&mut self, part: ReadPart) {
        match self {
            // A reader that has ended needs no memory.
            Self::Beside { used, .. } => drop(used.send(part)),
            Self::Here { used, .. } => *used = Some(part),
        }
    }
}

/// Reads until the end, or until the receiver wants no more.
fn run(mut reader: Reader, parts: &SyncSender<Result<ReadStep, ProfileError>>, used: &Receiver<ReadPart>) {
    loop {
        let step = reader.step(used.try_recv().ok());
        let is_last = !matches!(step, Ok(ReadStep::Part(_)));
        if parts.send(step).is_err() || is_last {
            return;
        }
    }
}
