//! Memory in a file that has no name, for one process to write and others to read; or for programs in the kernel to write.
//!
//! **Invariant:** this memory belongs to several processes. It is only touched with atomics, never borrowed as bytes; and
//! it is only mapped where no process can make its file shorter.

use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::bpf::MapFd;
use super::{Errno, check, descriptor};

/// No program can be run from it (Linux 6.3).
const MFD_NOEXEC_SEAL: libc::c_uint = 8;
/// What keeps the size as it is.
const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// What keeps all other processes from writing, and from changing the seals.
const ALL_SEALS: libc::c_int = SIZE_SEALS | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
/// What keeps the size as it is, for ever; every process with the file writes.
const SHARED_SEALS: libc::c_int = SIZE_SEALS | libc::F_SEAL_SEAL;

/// Words that this process writes.
#[derive(Debug)]
pub(crate) struct WritableWords(WordMapping);

/// Words that another writer writes: another process, or programs in the kernel.
#[derive(Debug)]
pub(crate) struct ReadableWords(WordMapping);

/// Words that every process with the file writes.
#[derive(Debug)]
pub(crate) struct SharedWords(WordMapping);

#[derive(Debug)]
struct WordMapping {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: (1) The mapping belongs to the process, not to a thread. (2) All access goes through atomics.
unsafe impl Send for WordMapping {}

// SAFETY: (1) Every access is a load or a store of an atomic, so several threads at once are no data race.
// (2) Unmapping takes the value itself, so no other code has a reference then.
unsafe impl Sync for WordMapping {}

impl WordMapping {
    fn new(file: BorrowedFd<'_>, words: usize, rights: libc::c_int) -> Result<Self, Errno> {
        let bytes = words.checked_mul(size_of::<u64>()).filter(|&bytes| bytes > 0).ok_or(Errno::EINVAL)?;
        // SAFETY: (1) A null address lets the kernel choose a free place, so no memory in use is replaced.
        // (2) The borrow keeps the descriptor open.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::EFAULT)?, words })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: (1) So many words were mapped, from a page on, so the address is aligned. (2) They live as long as `self`.
        // (3) In this process the memory is only ever accessed through this function, so with atomics. (4) All of the
        // mapping is in the file, whose size is sealed, or in a map, whose size never changes: an access raises no signal,
        // but for a store where only reading is allowed, and `ReadableWords` gives no words away.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    #[inline]
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.words().get(at)
    }
}

impl Drop for WordMapping {
    fn drop(&mut self) {
        // SAFETY: (1) Address and length are those of the mapping made in `new`. (2) No reference into it outlives
        // `self`: `words` ties them to it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}

fn make_file() -> Result<OwnedFd, Errno> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let ask = |flags| {
        // SAFETY: (1) The name ends with a zero byte. (2) The call makes the descriptor.
        unsafe { descriptor(libc::memfd_create(c"pmux".as_ptr(), flags)) }
    };
    match ask(flags | MFD_NOEXEC_SEAL) {
        Err(Errno::EINVAL) => ask(flags),
        other => other,
    }
}

/// A file of so many words, whose size is sealed.
fn make_sized(words: usize, seals: libc::c_int) -> Result<OwnedFd, Errno> {
    let file = make_file()?;
    let bytes = words.checked_mul(size_of::<u64>()).and_then(|bytes| libc::off_t::try_from(bytes).ok());
    // SAFETY: (1) The call touches no memory.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), bytes.ok_or(Errno::EFBIG)?) })?;
    // SAFETY: (1) The call touches no memory. First the size, on which the mapping relies.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Whether a file has so many words, now and for ever.
fn check_size(file: BorrowedFd<'_>, words: usize) -> Result<(), Errno> {
    // SAFETY: (1) The call touches no memory. (2) The borrow keeps the descriptor open.
    let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
    if seals & libc::F_SEAL_SHRINK == 0 {
        return Err(Errno::EPERM);
    }
    // After the seals: from now on it gets no shorter.
    // SAFETY: (1) `stat` is plain numbers: all zeroes is a value of it.
    let mut seen: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: (1) `seen` is writable. (2) The borrow keeps the descriptor open.
    check(unsafe { libc::fstat(file.as_raw_fd(), &raw mut seen) })?;
    let wanted = words.checked_mul(size_of::<u64>()).and_then(|bytes| i64::try_from(bytes).ok());
    if wanted.is_none_or(|wanted| wanted > seen.st_size as i64) {
        return Err(Errno::EOVERFLOW);
    }
    Ok(())
}

impl WritableWords {
    /// Makes a file of so many words, all 0, which can be written through this mapping only, and its size is for ever.
    ///
    /// Errors: `EINVAL` before Linux 5.1, or for no words at all; `EMFILE`, `ENFILE`, `ENOMEM`, `EFBIG`.
    pub(crate) fn make(words: usize) -> Result<(Self, OwnedFd), Errno> {
        let file = make_sized(words, SIZE_SEALS)?;
        let mapping = WordMapping::new(file.as_fd(), words, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: (1) The call touches no memory. What is mapped already stays writable.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, ALL_SEALS) })?;
        Ok((Self(mapping), file))
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    /// Loads a word; 0 where there is none.
    #[inline]
    pub(crate) fn load(&self, at: usize, ordering: Ordering) -> u64 {
        self.0.word(at).map_or(0, |word| word.load(ordering))
    }

    /// Stores a word, if there is such a one.
    pub(crate) fn store(&self, at: usize, value: u64, ordering: Ordering) {
        if let Some(word) = self.0.word(at) {
            word.store(value, ordering);
        }
    }
}

impl ReadableWords {
    /// Maps the first words of a file.
    ///
    /// Errors: `EPERM` where its size isn't sealed; `EOVERFLOW` where it is shorter; `EINVAL` where it is no such file;
    /// `EACCES` where it may not be read; `ENOMEM`.
    pub(crate) fn map(file: BorrowedFd<'_>, words: usize) -> Result<Self, Errno> {
        check_size(file, words)?;
        WordMapping::new(file, words, libc::PROT_READ).map(Self)
    }

    /// Copies words from `at`, as many as there are and fit; a rest of `into` shorter than a word is left.
    #[inline]
    pub(crate) fn copy(&self, at: usize, into: &mut [u8]) {
        let words = self.0.words().get(at..).unwrap_or_default();
        for (word, bytes) in words.iter().zip(into.as_chunks_mut::<8>().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// Maps the first words of a map's values.
    ///
    /// Errors: `EINVAL` where the map has fewer; `ENOTSUPP` for a map that can't be mapped; `ENOMEM`.
    pub(crate) fn of_map(map: &MapFd, words: usize) -> Result<Self, Errno> {
        // The kernel refuses what is longer than the map, whose size is settled when it is made.
        WordMapping::new(map.as_fd(), words, libc::PROT_READ).map(Self)
    }

    /// Loads a word; 0 where there is none. An acquire is a relaxed load and a fence: of memory that may only be read, the language
    /// allows no other atomic load.
    #[inline]
    pub(crate) fn load(&self, at: usize, ordering: Ordering) -> u64 {
        let value = self.0.word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        if ordering != Ordering::Relaxed {
            // Pairs with whatever the caller's ordering pairs with.
            fence(ordering);
        }
        value
    }
}

impl SharedWords {
    /// Makes a file of so many words, all 0, whose size is for ever.
    ///
    /// Errors: those of [`WritableWords::make`].
    pub(crate) fn make(words: usize) -> Result<(Self, OwnedFd), Errno> {
        let file = make_sized(words, SHARED_SEALS)?;
        let mapping = WordMapping::new(file.as_fd(), words, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok((Self(mapping), file))
    }

    /// Maps the first words of a file.
    ///
    /// Errors: those of [`ReadableWords::map`]; `EPERM` also where it may not be written.
    pub(crate) fn map(file: BorrowedFd<'_>, words: usize) -> Result<Self, Errno> {
        check_size(file, words)?;
        WordMapping::new(file, words, libc::PROT_READ | libc::PROT_WRITE).map(Self)
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Write as _;
    use std::os::fd::AsFd;

    fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
        result.err().map(|error| Errno::from(&error))
    }

    #[test]
    fn what_is_written_here_is_read_there() {
        let (mine, file) = WritableWords::make(1000).unwrap();
        let theirs = ReadableWords::map(file.as_fd(), 1000).unwrap();
        mine.store(999, 17, Ordering::Relaxed);
        assert_eq!((theirs.load(999, Ordering::Relaxed), mine.load(999, Ordering::Relaxed)), (17, 17));
        mine.store(1000, 18, Ordering::Relaxed);
        assert_eq!(theirs.load(1000, Ordering::Relaxed), 0);
    }

    /// A process that has the file, as the same user or as root, can't harm it.
    #[test]
    fn only_the_owner_writes_and_the_size_is_fixed() {
        let (mine, file) = WritableWords::make(512).unwrap();
        let file = File::from(file);
        let again = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        for file in [&file, &again.unwrap()] {
            assert_eq!(errno((&*file).write(b"lies")), Some(Errno::EPERM));
            assert_eq!(errno(file.set_len(0)), Some(Errno::EPERM));
            assert_eq!(errno(file.set_len(1 << 20)), Some(Errno::EPERM));
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(WordMapping::new(file.as_fd(), 512, rights).err(), Some(Errno::EPERM));
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: (1) The call touches no memory of this process.
            let punched = check(unsafe { libc::fallocate(file.as_raw_fd(), hole, 0, 4096) });
            assert_eq!(punched, Err(Errno::EPERM));
            // SAFETY: (1) The call touches no memory.
            let sealed = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) });
            assert_eq!(sealed, Err(Errno::EPERM));
        }
        // A mapping to read can't be made one to write.
        let read_only = WordMapping::new(file.as_fd(), 512, libc::PROT_READ).unwrap();
        // SAFETY: (1) Address and length are those of a mapping of ours; more rights break no borrow.
        let more = unsafe { libc::mprotect(read_only.base.as_ptr().cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(check(more), Err(Errno::EACCES));
        mine.store(0, 5, Ordering::Relaxed);
        assert_eq!(mine.load(0, Ordering::Relaxed), 5, "its owner still writes");
    }

    #[test]
    fn files_that_could_shrink_are_not_mapped() {
        let file = make_file().unwrap();
        // SAFETY: (1) The call touches no memory.
        check(unsafe { libc::ftruncate(file.as_raw_fd(), 4096) }).unwrap();
        assert_eq!(ReadableWords::map(file.as_fd(), 512).err(), Some(Errno::EPERM));
        // SAFETY: (1) The call touches no memory.
        check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) }).unwrap();
        assert!(ReadableWords::map(file.as_fd(), 512).is_ok());
        assert_eq!(ReadableWords::map(file.as_fd(), 513).err(), Some(Errno::EOVERFLOW));
        assert_eq!(ReadableWords::map(file.as_fd(), usize::MAX).err(), Some(Errno::EOVERFLOW));
        assert_eq!(ReadableWords::map(file.as_fd(), 0).err(), Some(Errno::EINVAL));
        let (pipe, _writer) = super::super::pipe().unwrap();
        assert_eq!(ReadableWords::map(pipe.as_fd(), 1).err(), Some(Errno::EINVAL));
    }
}
