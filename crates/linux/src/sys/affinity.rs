//! On which CPUs a thread may run.
//!
//! **Invariant:** no largest number of CPUs: a mask grows until the kernel's own fits.

use super::{Errno, check};

const WORD_BITS: usize = libc::c_ulong::BITS as usize;
/// Where growing stops: 2^20 CPUs, far over what any kernel is built for.
const MOST_WORDS: usize = (1 << 20) / WORD_BITS;

/// A set of CPUs of any size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CpuMask(Vec<libc::c_ulong>);

impl CpuMask {
    /// The set of this one CPU.
    ///
    /// Errors: `EINVAL` for a number that no kernel has.
    pub(crate) fn of(cpu: u32) -> Result<Self, Errno> {
        let cpu = usize::try_from(cpu).map_err(|_| Errno::EINVAL)?;
        let word = cpu / WORD_BITS;
        if word >= MOST_WORDS {
            return Err(Errno::EINVAL);
        }
        let mut words = vec![0; word + 1];
        words[word] = 1 << (cpu % WORD_BITS);
        Ok(Self(words))
    }

    /// Takes a CPU in. Numbers that no kernel has are left out.
    pub(crate) fn insert(&mut self, cpu: u32) {
        let Ok(Self(one)) = Self::of(cpu) else { return };
        if self.0.len() < one.len() {
            self.0.resize(one.len(), 0);
        }
        for (word, bit) in self.0.iter_mut().zip(one) {
            *word |= bit;
        }
    }

    pub(crate) fn contains(&self, cpu: u32) -> bool {
        let Ok(cpu) = usize::try_from(cpu) else { return false };
        self.0.get(cpu / WORD_BITS).is_some_and(|word| word >> (cpu % WORD_BITS) & 1 == 1)
    }

    /// The CPUs of the set, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = u32::try_from(self.0.len() * WORD_BITS).unwrap_or(u32::MAX);
        (0..bits).filter(|&cpu| self.contains(cpu))
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Where the calling thread may run.
pub(crate) fn thread_affinity() -> Result<CpuMask, Errno> {
    // 1024 CPUs at first; a kernel with more answers `EINVAL` until its mask fits.
    let mut words = 1024 / WORD_BITS;
    loop {
        let mut mask = vec![0; words];
        let bytes = mask.len() * size_of::<libc::c_ulong>();
        // SAFETY: (1) `mask` is writable for `bytes`. (2) The kernel writes whole words of this type; the C type is
        // only another name for such an array.
        match check(unsafe { libc::sched_getaffinity(0, bytes, mask.as_mut_ptr().cast()) }) {
            Ok(_) => return Ok(CpuMask(mask)),
            Err(Errno::EINVAL) if words < MOST_WORDS => words *= 2,
            Err(error) => return Err(error),
        }
    }
}

/// Lets the calling thread run on these CPUs only; it is on one of them when the call returns.
///
/// Errors: `EINVAL` where none of them is online and allowed to this thread; `EPERM`.
pub(crate) fn set_thread_affinity(mask: &CpuMask) -> Result<(), Errno> {
    let bytes = mask.0.len() * size_of::<libc::c_ulong>();
    // SAFETY: (1) The mask is readable for `bytes`.
    check(unsafe { libc::sched_setaffinity(0, bytes, mask.0.as_ptr().cast()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_high_numbers() {
        let mask = CpuMask::of(5000).unwrap();
        assert!(mask.contains(5000) && !mask.contains(4999) && !mask.contains(u32::MAX));
        assert_eq!((mask.len(), mask.iter().next()), (1, Some(5000)));
        assert_eq!(CpuMask::of(u32::MAX), Err(Errno::EINVAL));
        let mut mask = CpuMask::of(3).unwrap();
        mask.insert(5000);
        mask.insert(u32::MAX);
        assert!(mask.contains(3) && mask.contains(5000) && mask.len() == 2);
    }

    #[test]
    fn the_kernel_answers_at_least_one_cpu() {
        assert!(thread_affinity().unwrap().len() >= 1);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        assert_eq!(set_thread_affinity(&CpuMask::of(500_000).unwrap()), Err(Errno::EINVAL));
    }
}
