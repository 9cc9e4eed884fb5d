//! The memory that an event shares with the kernel: one control page, then the data area.
//!
//! **Invariant:** this memory belongs to two writers. It is only touched with atomics, never borrowed as a slice, and
//! nothing read from it is believed: sizes are those that were mapped.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{Errno, check_size, page_bytes, uninterrupted};

/// Where the control page keeps the position up to which the kernel has written. Source: `perf_event_mmap_page`.
const HEAD_OFFSET: usize = 1024;
/// Where the control page keeps the position up to which the reader has read.
const TAIL_OFFSET: usize = 1032;

/// A mapped forward ring; unmapped on drop.
#[derive(Debug)]
pub(crate) struct PerfMap {
    base: NonNull<u8>,
    page: usize,
    data: usize,
}

// SAFETY: (1) The mapping belongs to the process, not to a thread. (2) All access goes through atomics.
unsafe impl Send for PerfMap {}

// SAFETY: (1) Every access is a load or a store of an atomic, so several threads at once are no data race.
// (2) Unmapping takes the value itself, so no other code has a reference then.
unsafe impl Sync for PerfMap {}

impl PerfMap {
    /// Maps the ring of an event: readable and writable, so that the kernel never overwrites what wasn't read.
    ///
    /// Errors: `EINVAL` where `data_pages` isn't a power of two, or the event has a ring of another size;
    /// `EPERM` over the limit of locked memory; `ENOMEM`; `ENODEV` or `EACCES` where the descriptor isn't an event's.
    pub(crate) fn new(fd: BorrowedFd<'_>, data_pages: u32) -> Result<Self, Errno> {
        Self::map(fd, data_pages, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map(fd: BorrowedFd<'_>, data_pages: u32, rights: libc::c_int) -> Result<Self, Errno> {
        let page = page_bytes();
        if !data_pages.is_power_of_two() || page <= TAIL_OFFSET {
            return Err(Errno::EINVAL);
        }
        let pages = usize::try_from(data_pages).map_err(|_| Errno::EINVAL)?;
        let data = pages.checked_mul(page).ok_or(Errno::EINVAL)?;
        let bytes = data.checked_add(page).ok_or(Errno::EINVAL)?;
        // SAFETY: (1) A null address lets the kernel choose a free place, so no memory in use is replaced.
        // (2) The borrow keeps the descriptor open.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::EFAULT)?;
        Ok(Self { base, page, data })
    }

    /// Bytes of the data area, a power of two.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data as u64
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= self.page + self.data);
        // SAFETY: (1) Both callers pass an offset that is a multiple of 8 and lies, with its 8 bytes, inside the
        // mapping: the two control words lie in the first page (checked when mapped), data offsets are masked.
        // (2) The mapping starts at a page, so the address is aligned. (3) It lives as long as `self`. (4) In this
        // process the memory is only ever accessed through this function, so with atomics.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The position up to which the kernel has written.
    pub(crate) fn head(&self) -> u64 {
        // Relaxed, then a fence: of memory that may only be read, as that of a `PerfView`, the language allows no other atomic load.
        let head = self.word(HEAD_OFFSET).load(Ordering::Relaxed);
        // Acquire: pairs with the kernel's barrier between the record's bytes and its store of `data_head`; what was
        // written before that store is visible to the copy after this fence.
        fence(Ordering::Acquire);
        head
    }

    /// The position up to which some reader has read.
    pub(crate) fn tail(&self) -> u64 {
        // Relaxed: read once when the ring is taken over, by the only side that writes it.
        self.word(TAIL_OFFSET).load(Ordering::Relaxed)
    }

    /// Gives the space before `tail` back to the kernel.
    pub(crate) fn publish_tail(&self, tail: u64) {
        // Release: pairs with the kernel's barrier after its load of `data_tail`; the copy before this store is
        // finished before the kernel can write there again.
        self.word(TAIL_OFFSET).store(tail, Ordering::Release);
    }

    /// Copies from the data area at `position`, counted for ever and wrapped here, in whole words.
    ///
    /// A rest of `into` shorter than 8 bytes, and the low bits of `position`, are ignored.
    pub(crate) fn copy(&self, position: u64, into: &mut [u8]) {
        let mask = self.data - 1;
        // Cut short on 32 bits: the data area is smaller than that, and only the position in it matters.
        let mut at = (position as usize) & mask & !7;
        for chunk in into.as_chunks_mut::<8>().0 {
            // Relaxed: ordered after the kernel's stores by the fence in `head`, and before its next stores by the
            // release in `publish_tail`; of a ring that is overwritten, by the fence in `BackwardSource::settled_head`.
            *chunk = self.word(self.page + at).load(Ordering::Relaxed).to_ne_bytes();
            at = (at + 8) & mask;
        }
    }

    /// The word of the data area at `position`, counted for ever and wrapped here; its low bits are ignored.
    pub(crate) fn data_word(&self, position: u64) -> u64 {
        // Cut short on 32 bits: the data area is smaller than that, and only the position in it matters.
        let at = (position as usize) & (self.data - 1) & !7;
        // Relaxed: as in `copy`.
        self.word(self.page + at).load(Ordering::Relaxed)
    }

    /// Lets the kernel write `bytes` of the data area from `position` on to a file, without a copy of ours; answers how many it
    /// has written. Repeated when interrupted.
    ///
    /// Errors: those of `writev(2)`; `EINVAL` for more bytes than the data area has.
    pub(crate) fn write_out(&self, position: u64, bytes: usize, file: BorrowedFd<'_>) -> Result<usize, Errno> {
        if bytes > self.data {
            return Err(Errno::EINVAL);
        }
        let at = (position as usize) & (self.data - 1);
        let first = bytes.min(self.data - at);
        let part = |at: usize, bytes: usize| libc::iovec {
            iov_base: self.base.as_ptr().wrapping_add(self.page + at).cast(),
            iov_len: bytes,
        };
        let parts = [part(at, first), part(0, bytes - first)];
        let count = if first == bytes { 1 } else { 2 };
        uninterrupted(|| {
            // SAFETY: (1) Both parts lie in the data area, which is mapped as long as `self` lives: `at` is masked, the first
            // ends at the area's end at the latest, and the second begins at its start and is no longer than the area. (2) Only
            // the kernel reads the memory, so that another writer of it is no data race of ours. (3) The borrow keeps the file
            // open. (4) `count` is at most the length of `parts`.
            check_size(unsafe { libc::writev(file.as_raw_fd(), parts.as_ptr(), count) })
        })
    }
}

/// A mapped ring that the kernel overwrites, for reading only.
///
/// It has no way to the tail: a store there would be a fault.
#[derive(Debug)]
pub(crate) struct PerfView(pub(crate) PerfMap);

impl PerfView {
    /// Maps the ring of an event that overwrites what is oldest.
    ///
    /// Errors: as [`PerfMap::new`].
    pub(crate) fn new(fd: BorrowedFd<'_>, data_pages: u32) -> Result<Self, Errno> {
        PerfMap::map(fd, data_pages, libc::PROT_READ).map(Self)
    }
}

impl Drop for PerfMap {
    fn drop(&mut self) {
        // SAFETY: (1) Address and length are those of the mapping made in `new`. (2) No reference into it outlives
        // `self`: `word` ties them to it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.data) };
    }
}
