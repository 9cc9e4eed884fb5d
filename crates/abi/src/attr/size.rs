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
    /// The largest size that this crate knows.
    pub const LARGEST: Self = Self::Ver9;

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self as usize
    }
}
