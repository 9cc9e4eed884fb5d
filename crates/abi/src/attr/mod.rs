//! `perf_event_attr`, typed.
//!
//! What it is: the question that an event asks, as one plain value.
//! Read first: [`Attr`], then [`Attr::decode`] for the order of the checks.
//!
//! **Invariant:** an [`Attr`] holds what was asked, not what a PMU makes of it.

mod codec;
mod error;
mod flags;
mod names;
mod size;

pub use error::AttrError;
pub use flags::{AttrFlags, BranchSample, Precise, ReadFormat, SampleFormat};
pub use names::{breakpoint, hw, sw, tracepoint};
pub use size::AttrSize;

/// The `type` of an event: one of the kernel's fixed types, or the number that a PMU shows in sysfs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EventType(pub u32);

impl EventType {
    /// Generalised hardware events (`PERF_TYPE_HARDWARE`).
    pub const HARDWARE: Self = Self(0);
    /// Events that the kernel counts itself (`PERF_TYPE_SOFTWARE`).
    pub const SOFTWARE: Self = Self(1);
    /// Tracepoints (`PERF_TYPE_TRACEPOINT`).
    pub const TRACEPOINT: Self = Self(2);
    /// Generalised cache events (`PERF_TYPE_HW_CACHE`).
    pub const HW_CACHE: Self = Self(3);
    /// Raw hardware events (`PERF_TYPE_RAW`).
    pub const RAW: Self = Self(4);
    /// Breakpoints on an address (`PERF_TYPE_BREAKPOINT`).
    pub const BREAKPOINT: Self = Self(5);
    /// The first number that the kernel hands to a PMU found at run time.
    pub const FIRST_DYNAMIC: Self = Self(6);
}

/// Whether an event only counts, or also samples.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sampling {
    /// It only counts (`sample_period` is 0).
    #[default]
    None,
    /// A sample after so many occurrences. `Period(0)` encodes as [`Sampling::None`], and is decoded as that.
    Period(u64),
    /// So many samples a second; the kernel adapts the period (`freq`).
    Frequency(u64),
}

/// When a reader of the ring is woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wakeup {
    /// After so many samples (`wakeup_events`).
    Events(u32),
    /// After so many bytes (`wakeup_watermark`, with the `watermark` flag).
    Bytes(u32),
}

impl Default for Wakeup {
    fn default() -> Self {
        Self::Events(0)
    }
}

/// One event as asked for: the typed form of `struct perf_event_attr`.
///
/// `size` is not a field: it belongs to the encoding. The bits `freq`, `watermark` and `precise_ip` are not in
/// [`AttrFlags`]: [`Sampling`], [`Wakeup`] and [`Precise`] carry them, so that they can't contradict each other.
///
/// Source: `perf_event_open(2)`; `include/uapi/linux/perf_event.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attr {
    /// The kind of event, or the PMU.
    pub kind: EventType,
    /// Which event of that kind.
    pub config: u64,
    /// Counting only, or sampling.
    pub sampling: Sampling,
    /// What each sample holds (`sample_type`).
    pub sample: SampleFormat,
    /// What a read returns.
    pub read_format: ReadFormat,
    /// The single bits.
    pub flags: AttrFlags,
    /// How precise the instruction pointer must be (`precise_ip`).
    pub precise: Precise,
    /// When a reader is woken.
    pub wakeup: Wakeup,
    /// Breakpoint access: bits of [`breakpoint`].
    pub bp_type: u32,
    /// Second configuration word: also the breakpoint's address, or a pointer to a probe's name.
    pub config1: u64,
    /// Third configuration word: also the breakpoint's length, or a probe's offset.
    pub config2: u64,
    /// Which branches are recorded.
    pub branch_sample: BranchSample,
    /// User registers in a sample, a bit for each.
    pub sample_regs_user: u64,
    /// Bytes of user stack in a sample.
    pub sample_stack_user: u32,
    /// The clock for timestamps, with [`AttrFlags::USE_CLOCKID`].
    pub clock_id: i32,
    /// Registers at the interrupt in a sample, a bit for each.
    pub sample_regs_intr: u64,
    /// Wake-up mark of the AUX area, in bytes.
    pub aux_watermark: u32,
    /// Longest call chain, in frames; 0 for the system's own limit.
    pub sample_max_stack: u16,
    /// Bytes of AUX data in a sample.
    pub aux_sample_size: u32,
    /// What the event does to AUX tracing (`aux_start_paused` 1, `aux_pause` 2, `aux_resume` 4).
    pub aux_action: u32,
    /// Data for the signal of [`AttrFlags::SIGTRAP`].
    pub sig_data: u64,
    /// Fourth configuration word (kernel 6.3).
    pub config3: u64,
    /// Fifth configuration word (kernel 6.19).
    pub config4: u64,
}
