//! `perf.data` in a pipe: everything is a record, so that it can be read as it is written.
//!
//! **Invariant:** what was written once is never looked back at.

use super::feature::Feature;
use super::{EventDesc, FeatureBytes, attr_bytes, encoded, kind, record};
use pmux_linux::ring::Batch;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// Bytes of the header, which states them.
const HEADER_BYTES: u64 = 16;
/// So many bytes of small records are written together.
const PENDING_BYTES: usize = 1 << 16;

/// Writes into a pipe, or whatever can't be gone back in.
pub struct PipeWriter {
    file: File,
    attrs: Vec<Vec<u8>>,
    pending: Vec<u8>,
    bytes: u64,
}

impl PipeWriter {
    /// Begins: events, then what is known from the start.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(file: File, events: &[EventDesc], early: &[FeatureBytes]) -> io::Result<Self> {
        let attr_bytes = attr_bytes(events);
        let attrs = events.iter().map(|event| encoded(&event.attr, attr_bytes)).collect();
        let mut pipe = Self { file, attrs, pending: b"PERFILE2".to_vec(), bytes: 0 };
        pipe.pending.extend(HEADER_BYTES.to_ne_bytes());
        for (index, event) in events.iter().enumerate() {
            pipe.put_attr(index, &event.ids);
        }
        for (feature, bytes) in early {
            pipe.put_feature(*feature, bytes);
        }
        pipe.flush()?;
        Ok(pipe)
    }

    fn put_attr(&mut self, event: usize, ids: &[u64]) {
        let Some(attr) = self.attrs.get(event) else { return };
        let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
        self.pending.extend(record(kind::HEADER_ATTR, 0, &[attr, &ids]));
    }

    fn put_feature(&mut self, feature: Feature, bytes: &[u8]) {
        match feature {
            // The record states the bytes behind it.
            Feature::TracingData => {
                let padded = bytes.len().next_multiple_of(8);
                let mut head = record(kind::HEADER_TRACING_DATA, 0, &[&(padded as u32).to_ne_bytes()]);
                // As others write it: without padding.
                head.truncate(12);
                head[6..8].copy_from_slice(&12_u16.to_ne_bytes());
                self.pending.extend(head);
                self.pending.extend(bytes);
                self.pending.extend(vec![0; padded - bytes.len()]);
            }
            // These are records already.
            Feature::BuildId => self.pending.extend(bytes),
            feature => {
                let number = u64::from(feature as u8).to_ne_bytes();
                self.pending.extend(record(kind::HEADER_FEATURE, 0, &[&number, bytes]));
            }
        }
    }

    /// Adds whole records.
    ///
    /// # Errors
    /// What the system says; `EPIPE` where no process reads any more.
    pub fn put(&mut self, records: &[u8]) -> io::Result<()> {
        self.bytes += records.len() as u64;
        self.pending.extend(records);
        if self.pending.len() > PENDING_BYTES { self.flush() } else { Ok(()) }
    }

    /// Adds what waits in a ring.
    ///
    /// # Errors
    /// As [`PipeWriter::put`].
    pub fn put_batch(&mut self, batch: &mut Batch<'_>) -> io::Result<()> {
        self.flush()?;
        self.bytes += batch.left_bytes();
        batch.write_to(self.file.as_fd()).map_err(|errno| io::Error::from_raw_os_error(errno.raw()))
    }

    /// Writes what was kept together.
    ///
    /// # Errors
    /// As [`PipeWriter::put`].
    pub fn flush(&mut self) -> io::Result<()> {
        let result = self.file.write_all(&self.pending);
        self.pending.clear();
        result
    }

    /// One more id of an event: the event again, with that id.
    ///
    /// # Errors
    /// As [`PipeWriter::put`].
    pub fn add_id(&mut self, event: usize, id: u64) -> io::Result<()> {
        self.put_attr(event, &[id]);
        self.flush()
    }

    /// Adds what is known only at the end and is of use there: build ids.
    ///
    /// # Errors
    /// As [`PipeWriter::put`].
    pub fn finish(&mut self, late: &[FeatureBytes]) -> io::Result<()> {
        late.iter()
            .filter(|(feature, _)| *feature == Feature::BuildId)
            .for_each(|(of, bytes)| self.put_feature(*of, bytes));
        self.flush()
    }

    /// How many bytes of records were added.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.bytes
    }
}
