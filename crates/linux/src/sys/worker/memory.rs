//! The memory of a worker.
//!
//! What it is: pages to be accessed at a fixed place, stacks for children, fresh pages to be touched, and having everything
//! there before it counts.
//!
//! **Invariant:** a page that a worker uses by itself was touched before the first order; a page that it is told to touch was
//! not.

use std::ptr;

use super::Touching;
use super::arch::{CODE, publish_code};
use crate::sys::{Errno, check, page_bytes};

/// Bytes of a child's stack: far more than it uses.
const STACK_BYTES: usize = 64 << 10;
/// Pages that are touched between mapping them and giving them back.
const BATCH_PAGES: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryPlan {
    /// Where the pages for accesses begin: a multiple of the page size.
    pub(crate) base: usize,
    pub(crate) pages: usize,
    pub(crate) executable: bool,
    pub(crate) stacks: usize,
}

/// What was mapped, for as long as the process lives.
#[derive(Debug)]
pub(crate) struct Memory {
    base: usize,
    bytes: usize,
    executable: bool,
    stacks: usize,
    stacks_base: usize,
    page: usize,
}

impl Memory {
    /// Maps everything, and touches it.
    ///
    /// Errors: `EEXIST` where something is there already; `EPERM` where the address is too low for this user; `ENOMEM`;
    /// `EACCES` where memory can't be executable.
    pub(crate) fn map(plan: MemoryPlan) -> Result<Self, Errno> {
        let page = page_bytes();
        let bytes = plan.pages.checked_mul(page).ok_or(Errno::ENOMEM)?;
        if bytes > 0 {
            let mut access = libc::PROT_READ | libc::PROT_WRITE;
            if plan.executable {
                access |= libc::PROT_EXEC;
            }
            let there = map(plan.base, bytes, access, libc::MAP_FIXED_NOREPLACE)?;
            if there != plan.base {
                // A kernel before 4.17 takes the address for a wish.
                return Err(Errno::EEXIST);
            }
            for at in there..there + bytes {
                // SAFETY: (1) The byte is in the mapping just made, which is writable and used by no other code.
                unsafe { ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(code_at(at)) };
            }
            if plan.executable {
                publish_code(there, bytes);
            }
        }
        let stacks_bytes = plan.stacks.checked_mul(STACK_BYTES).ok_or(Errno::ENOMEM)?;
        let stacks_base = if stacks_bytes > 0 {
            map(0, stacks_bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_POPULATE)?
        } else {
            0
        };
        let MemoryPlan { base, executable, stacks, .. } = plan;
        Ok(Self { base, bytes, executable, stacks, stacks_base, page })
    }

    /// The upper end of a child's stack, aligned as calls want it; `None` where there are not so many.
    pub(super) fn stack_top(&self, stack: u32) -> Option<usize> {
        let stack = usize::try_from(stack).ok().filter(|&stack| stack < self.stacks)?;
        Some(self.stacks_base + (stack + 1) * STACK_BYTES)
    }

    /// Accesses a byte.
    ///
    /// Errors: `EFAULT` where the byte is not in the memory for accesses, or can't be executed.
    pub(super) fn access(&self, offset: u64, how: Touching) -> Result<(), Errno> {
        let offset = usize::try_from(offset).ok().filter(|&offset| offset < self.bytes).ok_or(Errno::EFAULT)?;
        let at = self.base + offset;
        match how {
            Touching::Read => {
                // SAFETY: (1) The byte is in the mapping, see above, which is readable for ever.
                unsafe { ptr::with_exposed_provenance::<u8>(at).read_volatile() };
            }
            Touching::Write => {
                // SAFETY: (1) As above, and writable. The byte keeps its value, so what is executed stays what it was.
                unsafe { ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(code_at(at)) };
            }
            Touching::Execute if self.executable && !CODE.is_empty() && at.is_multiple_of(CODE.len()) => {
                // SAFETY: (1) The mapping is executable, and at every multiple of its length stands a return, which takes and
                // gives nothing back.
                let code = unsafe {
                    std::mem::transmute::<*const u8, extern "C" fn()>(ptr::with_exposed_provenance::<u8>(at))
                };
                code();
            }
            Touching::Execute => return Err(Errno::EFAULT),
        }
        Ok(())
    }

    /// Touches fresh pages, one store each, and gives them back; answers how many it has touched.
    ///
    /// Errors: `ENOMEM`.
    pub(super) fn touch(&self, pages: u64) -> Result<(), Errno> {
        let mut left = pages;
        while left > 0 {
            let batch = usize::try_from(left).unwrap_or(BATCH_PAGES).min(BATCH_PAGES);
            let bytes = batch * self.page;
            let start = map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
            for page in 0..batch {
                // SAFETY: (1) The page is in the mapping just made, which is writable and used by no other code.
                unsafe { ptr::with_exposed_provenance_mut::<u8>(start + page * self.page).write_volatile(1) };
            }
            // SAFETY: (1) Exactly the mapping made above, of which nothing is used any more.
            check(unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start), bytes) })?;
            left -= batch as u64;
        }
        Ok(())
    }
}

/// Makes a private mapping of nothing; answers where it begins.
fn map(at: usize, bytes: usize, access: libc::c_int, flags: libc::c_int) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: (1) Where an address is given, `MAP_FIXED_NOREPLACE` is as well, or the address is a wish only: no mapping that
    // is in use is replaced.
    let start = unsafe { libc::mmap(ptr::with_exposed_provenance_mut(at), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(start.expose_provenance()) }
}

/// What stands at an address: part of a return.
fn code_at(at: usize) -> u8 {
    CODE.get(at % CODE.len().max(1)).copied().unwrap_or(0)
}

/// Has the pages of a mapping there, so that using them is no page fault. It may be the address of anything, or of nothing.
///
/// Errors: `EINVAL` before Linux 5.14, and for memory of devices; `ENOMEM` where there is a hole.
pub(crate) fn fault_in(start: usize, bytes: usize, for_writing: bool) -> Result<(), Errno> {
    let advice = if for_writing { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: (1) The advice changes no byte: it does what a read, or a write of what is there already, would do.
    check(unsafe { libc::madvise(ptr::with_exposed_provenance_mut(start), bytes, advice) }).map(drop)
}

/// Keeps what is there in memory, where this user may; and fresh memory comes page by page from now on, in no larger pieces.
pub(crate) fn lock_in() {
    let (off, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: (1) Numbers only. A kernel without huge pages refuses, and has none to be switched off.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, off, none, none, none) };
    // SAFETY: (1) A number only. A process that may not lock memory does without: pages are rarely taken away.
    unsafe { libc::mlockall(libc::MCL_CURRENT) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place for accesses that no other test has.
    fn memory(base: usize, executable: bool) -> Memory {
        Memory::map(MemoryPlan { base, pages: 2, executable, stacks: 3 }).unwrap()
    }

    #[test]
    fn accesses_stay_inside() {
        let memory = memory(0x11_0000_0000, false);
        let bytes = 2 * page_bytes() as u64;
        for how in [Touching::Read, Touching::Write] {
            assert_eq!(memory.access(0, how), Ok(()));
            assert_eq!(memory.access(bytes - 1, how), Ok(()));
            for offset in [bytes, u64::MAX] {
                assert_eq!(memory.access(offset, how), Err(Errno::EFAULT));
            }
        }
        assert_eq!(memory.access(0, Touching::Execute), Err(Errno::EFAULT), "it can't be executed");
    }

    #[test]
    fn code_can_be_called_also_after_a_write() {
        let memory = memory(0x12_0000_0000, true);
        for offset in [0, 0x100, 0x1ffc] {
            assert_eq!(memory.access(offset, Touching::Write), Ok(()));
            assert_eq!(memory.access(offset, Touching::Execute), Ok(()));
        }
    }

    #[test]
    fn what_is_there_is_not_replaced() {
        let first = memory(0x13_0000_0000, false);
        let again = Memory::map(MemoryPlan { base: first.base, pages: 1, executable: false, stacks: 0 });
        assert_eq!(again.err(), Some(Errno::EEXIST));
    }

    #[test]
    fn stacks_are_apart() {
        let memory = memory(0x14_0000_0000, false);
        let tops: Vec<_> = (0..4).map(|stack| memory.stack_top(stack)).collect();
        assert_eq!(tops[1].unwrap() - tops[0].unwrap(), STACK_BYTES);
        assert_eq!(tops[0].unwrap() % 16, 0);
        assert_eq!(tops[3], None, "there are three");
    }

    #[test]
    fn faulting_in_is_harmless() {
        assert!(fault_in(1 << 44, page_bytes(), false).is_err(), "nothing is there");
        let text = vec![7_u8; 1 << 16];
        // A kernel that is too old refuses.
        let _ = fault_in(text.as_ptr().addr() & !(page_bytes() - 1), page_bytes(), true);
        assert!(text.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn touching_many_pages_ends() {
        let memory = memory(0x15_0000_0000, false);
        for pages in [0, 1, 300] {
            assert_eq!(memory.touch(pages), Ok(()));
        }
    }
}
