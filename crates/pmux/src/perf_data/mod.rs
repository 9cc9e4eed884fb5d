//! `perf.data`: the file that `perf report` and many other tools read, written.
//!
//! What it is: [`Writer`] puts records behind a description of the events that wrote them, into a file (`file`) or a pipe
//! ([`pipe`]); [`feature`] encodes what is told of the machine, [`tracing`] what tracepoints' fields mean, [`pack`] compresses.
//! Read first: [`Writer`], then [`file::FileWriter`].
//!
//! **Invariant:** a file is readable at any time, up to what was last sealed, whatever ends the writer. Records are bytes here;
//! numbers are in the order of this machine's bytes, which the format leaves to the writer.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt`.

pub mod feature;
pub mod file;
pub mod pack;
pub mod pipe;
pub mod tracing;

use feature::Feature;
use pmux_abi::attr::{Attr, AttrSize};
use pmux_linux::filter::without_filter;
use pmux_linux::ring::Batch;
use std::io;

/// The kinds of records that tools write, not the kernel.
pub mod kind {
    /// An attribute with its ids, in pipes.
    pub const HEADER_ATTR: u32 = 64;
    /// What the fields of tracepoints mean, in pipes.
    pub const HEADER_TRACING_DATA: u32 = 66;
    /// A build id, in pipes and in the feature.
    pub const HEADER_BUILD_ID: u32 = 67;
    /// What comes after the next one of these is younger than what came before this one.
    pub const FINISHED_ROUND: u32 = 68;
    /// What an event is called, in pipes.
    pub const EVENT_UPDATE: u32 = 78;
    /// A feature, in pipes.
    pub const HEADER_FEATURE: u32 = 80;
    /// Other records, compressed.
    pub const COMPRESSED: u32 = 81;
    /// What tells of the time before the recording ends here.
    pub const FINISHED_INIT: u32 = 82;
}

/// An event whose records are written.
#[derive(Clone, PartialEq, Debug)]
pub struct EventDesc {
    /// What it was opened with.
    pub attr: Attr,
    /// Its name.
    pub name: String,
    /// The kernel's ids of it, one for each CPU or thread.
    pub ids: Vec<u64>,
}

/// A feature and its bytes.
pub type FeatureBytes = (Feature, Vec<u8>);

/// Where records are written to.
pub enum Writer {
    /// A file.
    File(file::FileWriter),
    /// A pipe.
    Pipe(pipe::PipeWriter),
}

impl Writer {
    /// Adds whole records.
    ///
    /// # Errors
    /// What the system says; the file is then as it was when it was last sealed.
    pub fn put(&mut self, records: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.put(records),
            Self::Pipe(pipe) => pipe.put(records),
        }
    }

    /// Adds what waits in a ring.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn put_batch(&mut self, batch: &mut Batch<'_>) -> io::Result<()> {
        match self {
            Self::File(file) => file.put_batch(batch),
            Self::Pipe(pipe) => pipe.put_batch(batch),
        }
    }

    /// Makes sure that what was added can be read.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn seal(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.seal(),
            Self::Pipe(pipe) => pipe.flush(),
        }
    }

    /// One more id of an event: a CPU came back.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn add_id(&mut self, event: usize, id: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.add_id(event, id),
            Self::Pipe(pipe) => pipe.add_id(event, id),
        }
    }

    /// Adds what is known only at the end.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn finish(&mut self, late: &[FeatureBytes]) -> io::Result<()> {
        match self {
            Self::File(file) => file.finish(late),
            Self::Pipe(pipe) => pipe.finish(late),
        }
    }

    /// How many bytes of records were added, as they are written.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::File(file) => file.data_bytes(),
            Self::Pipe(pipe) => pipe.data_bytes(),
        }
    }
}

/// Bytes of an attribute in a file: the same for all events, and as few as older readers know.
fn attr_bytes(events: &[EventDesc]) -> usize {
    let needed = |event: &EventDesc| without_filter(&event.attr).encode(&mut [0; Attr::MAX_SIZE]);
    events.iter().map(needed).fold(AttrSize::Ver7.bytes(), usize::max)
}

/// An attribute in so many bytes, which it states as its size.
fn encoded(attr: &Attr, bytes: usize) -> Vec<u8> {
    let mut all = [0; Attr::MAX_SIZE];
    let _ = without_filter(attr).encode(&mut all);
    let mut out = all.to_vec();
    out.resize(bytes, 0);
    if let Some(size) = out.get_mut(4..8) {
        size.copy_from_slice(&(bytes as u32).to_ne_bytes());
    }
    out
}

/// A record of a tool, padded to whole words.
fn record(kind: u32, misc: u16, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(kind.to_ne_bytes());
    out.extend(misc.to_ne_bytes());
    out.extend([0; 2]);
    parts.iter().for_each(|part| out.extend(*part));
    out.resize(out.len().next_multiple_of(8), 0);
    // Who has more cuts it into several.
    let size = u16::try_from(out.len()).unwrap_or(!7);
    out[6..8].copy_from_slice(&size.to_ne_bytes());
    out
}

/// The record between two rounds.
#[must_use]
pub fn finished_round() -> Vec<u8> {
    record(kind::FINISHED_ROUND, 0, &[])
}

/// The record behind what tells of the time before.
#[must_use]
pub fn finished_init() -> Vec<u8> {
    record(kind::FINISHED_INIT, 0, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::attr::EventType;
    use pmux_abi::record::RecordHeader;

    #[test]
    fn attributes_state_the_size_that_they_have_in_the_file() {
        let events = [EventDesc { attr: Attr::default(), name: String::new(), ids: Vec::new() }];
        let bytes = attr_bytes(&events);
        assert_eq!(bytes, 128);
        let encoded = encoded(&Attr { config: 7, ..Attr::default() }, bytes);
        assert_eq!(encoded.len(), 128);
        assert_eq!(Attr::decode(&encoded).map(|attr| attr.config), Ok(7));
        let tracepoint = Attr { kind: EventType::TRACEPOINT, ..Attr::default() };
        let filtered = pmux_linux::filter::with_filter(&tracepoint, "count == 7").unwrap();
        let events = [EventDesc { attr: filtered, name: String::new(), ids: Vec::new() }];
        assert_eq!(attr_bytes(&events), 128);
        let decoded = Attr::decode(&super::encoded(&filtered, bytes));
        assert_eq!(decoded.map(|attr| attr.config3), Ok(0), "an address of this process says nothing elsewhere");
        let newer = [EventDesc { attr: Attr { config3: 1, ..Attr::default() }, name: String::new(), ids: Vec::new() }];
        assert_eq!(attr_bytes(&newer), 136);
    }

    #[test]
    fn records_of_tools_are_whole_words() {
        let bytes = record(kind::HEADER_BUILD_ID, 1, &[b"abc"]);
        let split = RecordHeader::split(&bytes);
        assert_eq!(split.map(|(header, payload, _)| (header.kind.0, payload.len())), Ok((67, 8)));
        assert_eq!(finished_round().len(), 8);
    }
}
