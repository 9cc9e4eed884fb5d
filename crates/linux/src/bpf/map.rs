//! Maps: what programs share with us.
//!
//! **Invariant:** keys and values are bytes of the lengths that the map was made with; other lengths are `EINVAL`.

use crate::sys::Errno;
use crate::sys::ReadableWords;
use crate::sys::bpf::{MapBatch, MapFd, MapKind, Update};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::atomic::Ordering;

/// How many entries are read with one call.
const BATCH: u32 = 512;

/// A map of the kernel. It goes when it is dropped, and all programs that name it are gone.
#[derive(Debug)]
pub struct Map(MapFd);

/// All entries of a map, as they were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapEntries {
    keys: Vec<u8>,
    values: Vec<u8>,
    key_bytes: usize,
    entry_bytes: usize,
}

impl MapEntries {
    /// Walks over them: key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys.chunks_exact(self.key_bytes.max(1)).zip(self.values.chunks_exact(self.entry_bytes.max(1)))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len() / self.key_bytes.max(1)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Map {
    /// Makes a map. Arrays have keys of 4 bytes, and a [`MapKind::PerfEventArray`] values of 4 bytes.
    ///
    /// # Errors
    /// `EPERM` without the right (see [`super::why_not`]); `EINVAL` for sizes that the kind doesn't take; `E2BIG`, `ENOMEM`.
    pub fn new(kind: MapKind, key_bytes: u32, value_bytes: u32, most_entries: u32, name: &str) -> Result<Self, Errno> {
        MapFd::create(kind, key_bytes, value_bytes, most_entries, name).map(Self)
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> MapKind {
        self.0.kind()
    }

    /// Bytes of a value as it is read and written here: where there is one for each CPU, all of them, each as long as whole words
    /// of 8 bytes, in the order of the CPUs that are possible.
    #[must_use]
    pub fn entry_bytes(&self) -> usize {
        self.0.entry_bytes()
    }

    /// The value of a key; `None` where it isn't there.
    ///
    /// # Errors
    /// `EINVAL` where the key has another length; `EOPNOTSUPP` for a [`MapKind::PerfEventArray`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let mut value = vec![0; self.entry_bytes()];
        match self.0.lookup(key, &mut value) {
            Ok(()) => Ok(Some(value)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// `EINVAL` for other lengths; `E2BIG` where it is full; `EEXIST` and `ENOENT` as [`Update`] says.
    pub fn set(&self, key: &[u8], value: &[u8], how: Update) -> Result<(), Errno> {
        self.0.update(key, value, how)
    }

    /// Puts an event into a [`MapKind::PerfEventArray`]; the map keeps it open.
    ///
    /// # Errors
    /// `EINVAL` for another kind of map, or what is no event; `E2BIG` behind the end.
    pub fn set_event(&self, index: u32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.kind() != MapKind::PerfEventArray {
            return Err(Errno::EINVAL);
        }
        self.0.update(&index.to_ne_bytes(), &event.as_raw_fd().to_ne_bytes(), Update::Set)
    }

    /// Removes a key; answers whether it was there.
    ///
    /// # Errors
    /// `EINVAL` for another length, and for arrays.
    pub fn remove(&self, key: &[u8]) -> Result<bool, Errno> {
        match self.0.delete(key) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Maps the values of a [`MapKind::SharedArray`], one behind the other, each as long as whole words of 8 bytes.
    ///
    /// # Errors
    /// `EINVAL` for another kind of map; `ENOMEM`.
    pub fn values(&self) -> Result<Values, Errno> {
        if self.kind() != MapKind::SharedArray {
            return Err(Errno::EINVAL);
        }
        ReadableWords::of_map(&self.0, self.0.words()).map(Values)
    }

    /// All entries. One that comes or goes meanwhile is among them or not.
    ///
    /// # Errors
    /// `EOPNOTSUPP` or `EINVAL` for a kind whose values can't be read; `ENOMEM`.
    pub fn entries(&self) -> Result<MapEntries, Errno> {
        let (key_bytes, entry_bytes) = (self.0.key_bytes(), self.0.entry_bytes());
        let mut all = MapEntries { keys: Vec::new(), values: Vec::new(), key_bytes, entry_bytes };
        let (mut batch, mut most) = (MapBatch::default(), BATCH);
        loop {
            match self.0.lookup_batch(most, &mut batch) {
                Ok(more) => {
                    all.keys.extend_from_slice(batch.keys.get(..batch.entries * key_bytes).unwrap_or_default());
                    all.values.extend_from_slice(batch.values.get(..batch.entries * entry_bytes).unwrap_or_default());
                    if !more || batch.entries == 0 {
                        return Ok(all);
                    }
                }
                // One bucket holds more than fits.
                Err(Errno::ENOSPC) if most < u32::MAX / 2 && all.is_empty() => most *= 2,
                // This kernel has no batches for this kind.
                Err(_) => return self.entries_one_by_one(),
            }
        }
    }

    fn entries_one_by_one(&self) -> Result<MapEntries, Errno> {
        let (key_bytes, entry_bytes) = (self.0.key_bytes(), self.0.entry_bytes());
        let mut all = MapEntries { keys: Vec::new(), values: Vec::new(), key_bytes, entry_bytes };
        let (mut key, mut value): (Option<Vec<u8>>, _) = (None, vec![0; entry_bytes]);
        loop {
            let mut next = vec![0; key_bytes];
            match self.0.next_key(key.as_deref(), &mut next) {
                Ok(()) => {}
                Err(Errno::ENOENT) => return Ok(all),
                Err(errno) => return Err(errno),
            }
            match self.0.lookup(&next, &mut value) {
                Ok(()) => {
                    all.keys.extend_from_slice(&next);
                    all.values.extend_from_slice(&value);
                }
                // It has gone meanwhile.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
            key = Some(next);
        }
    }
}

/// The values of a [`MapKind::SharedArray`], as they are now: reading them is no call.
#[derive(Debug)]
pub struct Values(ReadableWords);

impl Values {
    /// A word of 8 bytes, by its number from the beginning of the first value; 0 where there is none. Of two words that a program
    /// writes, the one that it writes later may be seen first.
    #[must_use]
    pub fn load(&self, word: usize) -> u64 {
        // Relaxed: a program has no store that this could pair with.
        self.0.load(word, Ordering::Relaxed)
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
