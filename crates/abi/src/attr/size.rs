//! The published sizes of `perf_event_attr`.
//!
//! **Invariant:** a size is never changed or removed, only added.

/// A published size of the attribute, named as in the kernel's header.
///
/// The kernel takes any size between 64 and 4096, but each larger size here is one that a kernel release gave a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u32)]
pub enum AttrSize {
    /// 64 bytes: up to `config1` or `bp_addr`.
    Ver0 = 64,
    /// 72 bytes: adds `config2` or `bp_len` (2.6.33).
    Ver1 = 72,
    /// 80 bytes: adds `branch_sample_type` (3.4).
    Ver2 = 80,
    /// 96 bytes: adds `sample_regs_user`, `sample_stack_user` and the place of `clockid` (3.7).
    Ver3 = 96,
    /// 104 bytes: adds `sample_regs_intr` (3.19).
    Ver4 = 104,
    /// 112 bytes: adds `aux_watermark` (4.1) and `sample_max_stack` (4.8).
    Ver5 = 112,
    /// 120 bytes: adds `aux_sample_size` (5.5) and `aux_action` (6.13).
    Ver6 = 120,
    /// 128 bytes: adds `sig_data` (5.13).
    Ver7 = 128,
    /// 136 bytes: adds `config3` (6.3).
    Ver8 = 136,
    /// 144 bytes: adds `config4` (6.19).
    Ver9 = 144,
}

impl AttrSize {
    /// Every published size, smallest first.
    pub const ALL: [Self; 10] = [
        Self::Ver0,
        Self::Ver1,
        Self::Ver2,
        Self::Ver3,
        Self::Ver4,
        Self::Ver5,
        Self::Ver6,
        Self::Ver7,
        Self::Ver8,
        Self::Ver9,
    ];

    /// The largest size that this crate knows.
    pub const LARGEST: Self = Self::Ver9;

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self as usize
    }

    /// Returns the published size of so many bytes, or `None` if that is none.
    ///
    /// ```
    /// use pmux_abi::attr::AttrSize;
    ///
    /// assert_eq!(AttrSize::from_bytes(136), Some(AttrSize::Ver8));
    /// assert_eq!(AttrSize::from_bytes(137), None);
    /// ```
    #[must_use]
    pub fn from_bytes(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.bytes() == bytes)
    }

    /// Returns the largest published size that fits into so many bytes, or `None` below 64.
    ///
    /// A kernel that answers `E2BIG` writes its own size back; this says what to encode for it.
    #[must_use]
    pub fn at_most(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|size| size.bytes() <= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_rounds_down() {
        assert_eq!(AttrSize::at_most(63), None);
        assert_eq!(AttrSize::at_most(64), Some(AttrSize::Ver0));
        assert_eq!(AttrSize::at_most(127), Some(AttrSize::Ver6));
        assert_eq!(AttrSize::at_most(usize::MAX), Some(AttrSize::LARGEST));
    }
}
