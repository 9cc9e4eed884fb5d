//! A `perf.data` file.
//!
//! What it is: header, attributes and ids; what is known of the machine from the start; the records; and behind them the *index*,
//! which says where each feature stands. The format wants the index exactly there, so it moves as the file grows.
//!
//! How the file stays readable ([`FileWriter::seal`]): what is added goes *behind* the index that the header knows, but for as
//! many bytes as would stand where it lies. Those (the *gap*) are kept back. When a new index stands behind the new records, three
//! short writes swap them: the header without features, the gap, the header with the new size. A writer that is killed leaves
//! the last sealed state; if it is killed at the moment of the swap, that state without its features.
//!
//! **Invariant:** the header never claims a byte that is not there.

use super::feature::Feature;
use super::{EventDesc, FeatureBytes, attr_bytes, encoded};
use pmux_linux::ring::Batch;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const MAGIC: &[u8; 8] = b"PERFILE2";
const HEADER_BYTES: u64 = 104;
/// An entry of the index, or where an attribute's ids stand: an offset and a size.
const SECTION_BYTES: u64 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct FileSection {
    offset: u64,
    bytes: u64,
}

impl FileSection {
    fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.offset.to_ne_bytes());
        out[8..].copy_from_slice(&self.bytes.to_ne_bytes());
        out
    }
}

/// Where the ids of an event stand.
struct IdTable {
    /// Where the file says so.
    entry: u64,
    table: FileSection,
    room_bytes: u64,
    /// Those that found no room, until the end.
    rest: Vec<u64>,
}

/// Writes a file.
pub struct FileWriter {
    file: File,
    attr_bytes: usize,
    attrs: FileSection,
    ids: Vec<IdTable>,
    early: Vec<(Feature, FileSection)>,
    data: u64,
    /// How many bytes of them the header claims.
    sealed: u64,
    /// What belongs where the index of the sealed state stands.
    gap: Vec<u8>,
    gap_bytes: usize,
    /// Behind the gap, records that are not written yet.
    pending: Vec<u8>,
    /// How many bytes behind the gap are written.
    written: u64,
}

/// So many bytes of records are given up for the index where a disk is full.
const INDEX_ROOM_BYTES: u64 = 8 << 10;
/// So many bytes of small records are written together.
const PENDING_BYTES: usize = 1 << 16;

impl FileWriter {
    /// Begins a file: `early` is what is known from the start. There is room for `room` more ids of each event.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(mut file: File, events: &[EventDesc], room: usize, early: &[FeatureBytes]) -> io::Result<Self> {
        let attr_bytes = attr_bytes(events);
        let entry_bytes = attr_bytes as u64 + SECTION_BYTES;
        let attrs = FileSection { offset: HEADER_BYTES, bytes: entry_bytes * events.len() as u64 };
        let mut at = attrs.offset + attrs.bytes;
        let (mut head, mut tables, mut ids) = (vec![0; HEADER_BYTES as usize], Vec::new(), Vec::new());
        for (index, event) in events.iter().enumerate() {
            let table = FileSection { offset: at, bytes: 8 * event.ids.len() as u64 };
            let room_bytes = table.bytes + 8 * room as u64;
            at += room_bytes;
            head.extend(encoded(&event.attr, attr_bytes));
            head.extend(table.encode());
            event.ids.iter().for_each(|id| tables.extend(id.to_ne_bytes()));
            tables.resize(tables.len() + 8 * room, 0);
            let entry = attrs.offset + entry_bytes * index as u64 + attr_bytes as u64;
            ids.push(IdTable { entry, table, room_bytes, rest: Vec::new() });
        }
        head.append(&mut tables);
        let mut sections = Vec::new();
        for (feature, bytes) in early {
            sections.push((*feature, FileSection { offset: at, bytes: bytes.len() as u64 }));
            head.extend(bytes);
            head.resize(head.len().next_multiple_of(8), 0);
            at = head.len() as u64;
        }
        crate::order::sort_by_key(&mut sections, |(feature, _)| *feature);
        let mut writer = Self {
            file: file.try_clone()?,
            attr_bytes,
            attrs,
            ids,
            early: sections,
            data: at,
            sealed: 0,
            gap: Vec::new(),
            gap_bytes: 0,
            pending: Vec::new(),
            written: 0,
        };
        // The header comes last, with the first seal: until then it is no perf.data.
        file.write_all(&head)?;
        writer.seal_with(&writer.early.clone())?;
        Ok(writer)
    }

    /// Adds whole records.
    ///
    /// # Errors
    /// What the system says; what was added since the last seal is gone then.
    pub fn put(&mut self, records: &[u8]) -> io::Result<()> {
        let (gap, rest) = records.split_at(self.gap_room().min(records.len()));
        self.gap.extend(gap);
        self.pending.extend(rest);
        if self.pending.len() > PENDING_BYTES { self.write_pending() } else { Ok(()) }
    }

    /// Adds what waits in a ring.
    ///
    /// # Errors
    /// As [`FileWriter::put`].
    pub fn put_batch(&mut self, batch: &mut Batch<'_>) -> io::Result<()> {
        let room = self.gap_room();
        let in_gap = self.gap.len();
        if room > 0 {
            batch.copy_to(&mut self.gap, room);
        }
        if batch.left_bytes() == 0 {
            return Ok(());
        }
        self.write_pending()?;
        let bytes = batch.left_bytes();
        let copied = (self.gap.len() - in_gap) as u64;
        let Err(errno) = batch.write_to(self.file.as_fd()) else {
            self.written += bytes;
            return Ok(());
        };
        // A full disk: what fits stays, less a little for the index.
        let kept = batch.written_whole_bytes(INDEX_ROOM_BYTES);
        if kept > copied {
            self.written += kept - copied;
            let end = self.end();
            // If this fails, the last state stays.
            let _ = self.file.set_len(end).and_then(|()| self.seal_with(&self.early.clone()));
        }
        Err(self.step_back(io::Error::from_raw_os_error(errno.raw())))
    }

    /// What is added next belongs into the gap, up to so many bytes.
    fn gap_room(&self) -> usize {
        self.gap_bytes - self.gap.len()
    }

    fn write_pending(&mut self) -> io::Result<()> {
        self.file.write_all(&self.pending).map_err(|error| self.step_back(error))?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Where what comes next is written.
    fn end(&self) -> u64 {
        self.data + self.sealed + self.gap_bytes as u64 + self.written
    }

    /// Goes back to the last sealed state.
    fn step_back(&mut self, why: io::Error) -> io::Error {
        self.gap.clear();
        self.pending.clear();
        self.written = 0;
        let end = self.end();
        // If this fails too, the header still says how far the file goes.
        let _ = self.file.set_len(end).and_then(|()| self.file.seek(SeekFrom::Start(end)));
        why
    }

    /// What was added can be read from here on.
    ///
    /// # Errors
    /// As [`FileWriter::put`].
    pub fn seal(&mut self) -> io::Result<()> {
        if self.data_bytes() == self.sealed { Ok(()) } else { self.seal_with(&self.early.clone()) }
    }

    fn seal_with(&mut self, features: &[(Feature, FileSection)]) -> io::Result<()> {
        let index: Vec<u8> = features.iter().flat_map(|(_, section)| section.encode()).collect();
        // Where the gap is not full, the records end in it.
        let data_bytes = self.data_bytes();
        let index_at = self.data + data_bytes;
        let mut tail = std::mem::take(&mut self.pending);
        tail.extend(&index);
        let result = if self.gap.len() < self.gap_bytes {
            // All of it stands where the old index is.
            let mut gap = std::mem::take(&mut self.gap);
            gap.extend(&tail);
            self.swap(&gap, data_bytes, features)
        } else {
            let behind = index_at + index.len() as u64 - tail.len() as u64;
            let gap = std::mem::take(&mut self.gap);
            self.file.write_all_at(&tail, behind).and_then(|()| self.swap(&gap, data_bytes, features))
        };
        result.map_err(|error| self.step_back(error))?;
        (self.sealed, self.written, self.gap_bytes) = (data_bytes, 0, index.len());
        // The next records go behind this index.
        let end = self.end();
        self.file.seek(SeekFrom::Start(end)).map(drop)
    }

    /// The moment in which the file changes from one state to the next.
    fn swap(&self, gap: &[u8], data_bytes: u64, features: &[(Feature, FileSection)]) -> io::Result<()> {
        self.file.write_all_at(&self.header(self.sealed, &[]), 0)?;
        self.file.write_all_at(gap, self.data + self.sealed)?;
        self.file.write_all_at(&self.header(data_bytes, features), 0)
    }

    fn header(&self, data_bytes: u64, features: &[(Feature, FileSection)]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(HEADER_BYTES.to_ne_bytes());
        out.extend((self.attr_bytes as u64 + SECTION_BYTES).to_ne_bytes());
        out.extend(self.attrs.encode());
        out.extend(FileSection { offset: self.data, bytes: data_bytes }.encode());
        out.extend(FileSection::default().encode());
        let bits = features.iter().fold(0_u64, |bits, (feature, _)| bits | 1 << *feature as u8);
        out.extend(bits.to_ne_bytes());
        out.resize(HEADER_BYTES as usize, 0);
        out
    }

    /// One more id of an event.
    ///
    /// # Errors
    /// As [`FileWriter::put`].
    pub fn add_id(&mut self, event: usize, id: u64) -> io::Result<()> {
        let Some(ids) = self.ids.get_mut(event) else { return Ok(()) };
        if ids.table.bytes + 8 > ids.room_bytes {
            ids.rest.push(id);
            return Ok(());
        }
        self.file.write_all_at(&id.to_ne_bytes(), ids.table.offset + ids.table.bytes)?;
        ids.table.bytes += 8;
        // Only now that it stands there.
        self.file.write_all_at(&ids.table.encode(), ids.entry)
    }

    /// Adds what is known only at the end: features that replace those from the start, and ids that had found no room.
    ///
    /// # Errors
    /// As [`FileWriter::put`].
    pub fn finish(&mut self, late: &[FeatureBytes]) -> io::Result<()> {
        self.seal()?;
        let mut features: Vec<_> =
            self.early.iter().copied().filter(|(of, _)| !late.iter().any(|(feature, _)| feature == of)).collect();
        features.extend(late.iter().map(|(feature, _)| (*feature, FileSection::default())));
        crate::order::sort_by_key(&mut features, |(feature, _)| *feature);
        let mut at = self.data + self.sealed + SECTION_BYTES * features.len() as u64;
        for (feature, bytes) in late {
            self.file.write_all_at(bytes, at)?;
            if let Some((_, section)) = features.iter_mut().find(|(of, _)| of == feature) {
                *section = FileSection { offset: at, bytes: bytes.len() as u64 };
            }
            at += bytes.len() as u64;
        }
        self.move_full_tables(at)?;
        self.seal_with(&features)
    }

    /// Tables that found no room are written anew, whole, from a position on.
    fn move_full_tables(&mut self, mut at: u64) -> io::Result<()> {
        for ids in self.ids.iter_mut().filter(|ids| !ids.rest.is_empty()) {
            let mut table = vec![0; ids.table.bytes as usize];
            self.file.read_exact_at(&mut table, ids.table.offset)?;
            ids.rest.drain(..).for_each(|id| table.extend(id.to_ne_bytes()));
            self.file.write_all_at(&table, at)?;
            ids.table = FileSection { offset: at, bytes: table.len() as u64 };
            ids.room_bytes = ids.table.bytes;
            at += ids.table.bytes;
            self.file.write_all_at(&ids.table.encode(), ids.entry)?;
        }
        Ok(())
    }

    /// How many bytes of records were added.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.sealed + self.gap.len() as u64 + self.pending.len() as u64 + self.written
    }
}

#[cfg(test)]
mod tests {
    use super::super::feature::text;
    use super::*;
    use pmux_abi::attr::Attr;
    use std::path::{Path, PathBuf};

    fn begin(early: &[FeatureBytes]) -> (tempfile::TempDir, PathBuf, FileWriter) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let events = [EventDesc { attr: Attr::default(), name: "x".to_owned(), ids: vec![7] }];
        let writer = FileWriter::create(file, &events, 2, early).unwrap();
        (folder, path, writer)
    }

    fn word(bytes: &[u8], at: u64) -> u64 {
        u64::from_ne_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap())
    }

    /// What a reader finds: the records, and each feature by its number.
    fn look(path: &Path) -> (Vec<u8>, Vec<(u32, Vec<u8>)>) {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(&bytes[..8], MAGIC);
        let (data, data_bytes, bits) = (word(&bytes, 40), word(&bytes, 48), word(&bytes, 72));
        let part = |at: u64, long: u64| bytes[at as usize..(at + long) as usize].to_vec();
        let numbers = (0..64).filter(|bit| bits >> bit & 1 == 1);
        let features = numbers.enumerate().map(|(place, number)| {
            let entry = data + data_bytes + 16 * place as u64;
            (number, part(word(&bytes, entry), word(&bytes, entry + 8)))
        });
        (part(data, data_bytes), features.collect())
    }

    fn records(numbers: std::ops::Range<u64>) -> Vec<u8> {
        let one = |number: u64| [[9, 0, 0, 0, 0, 0, 16, 0], number.to_ne_bytes()].concat();
        numbers.flat_map(one).collect()
    }

    #[test]
    fn every_sealed_state_is_whole_and_others_do_not_show() {
        let early = [text(Feature::Arch, "a"), text(Feature::HostName, "h")];
        let (_folder, path, mut writer) = begin(&early);
        let expected: Vec<_> = [&early[1], &early[0]].iter().map(|(of, bytes)| (*of as u32, bytes.clone())).collect();
        assert_eq!(look(&path), (Vec::new(), expected.clone()));
        let (mut next, mut sealed) = (0, 0);
        // Fewer than fill the gap, exactly as many, more; and more than are kept together.
        for count in [1, 2, 3, 5, 1, 10_000, 1] {
            writer.put(&records(next..next + count)).unwrap();
            assert_eq!(look(&path), (records(0..sealed), expected.clone()), "before it is sealed");
            next += count;
            writer.seal().unwrap();
            sealed = next;
            assert_eq!(look(&path), (records(0..sealed), expected.clone()));
        }
        writer.seal().unwrap();
        let late = [(Feature::BuildId, vec![1; 100]), text(Feature::HostName, "new")];
        writer.finish(&late).unwrap();
        let (found, features) = look(&path);
        assert_eq!(found, records(0..sealed));
        let expected = vec![(2, late[0].1.clone()), (3, late[1].1.clone()), (6, early[0].1.clone())];
        assert_eq!(features, expected);
    }

    #[test]
    fn without_features_too() {
        let (_folder, path, mut writer) = begin(&[]);
        for round in 0..3 {
            writer.put(&records(round * 5000..(round + 1) * 5000)).unwrap();
            writer.seal().unwrap();
        }
        assert_eq!(look(&path), (records(0..15_000), Vec::new()));
    }

    #[test]
    fn ids_find_room_or_move() {
        let (_folder, path, mut writer) = begin(&[text(Feature::Arch, "a")]);
        let ids = || {
            let bytes = std::fs::read(&path).unwrap();
            let entry = HEADER_BYTES + 128;
            let (at, long) = (word(&bytes, entry), word(&bytes, entry + 8));
            (0..long / 8).map(|index| word(&bytes, at + 8 * index)).collect::<Vec<_>>()
        };
        assert_eq!(ids(), [7]);
        for id in 8..12 {
            writer.add_id(0, id).unwrap();
        }
        assert_eq!(ids(), [7, 8, 9]);
        writer.put(&records(0..3)).unwrap();
        writer.finish(&[text(Feature::HostName, "h")]).unwrap();
        assert_eq!(ids(), [7, 8, 9, 10, 11]);
        assert_eq!(look(&path).0, records(0..3));
    }
}
