//! The records of a ring or of perf.data, in both directions.
//!
//! What it is: every record that the kernel writes, typed; bytes to records and back.
//! Read first: [`SampleLayout`], computed once from an attribute; then [`decode_record`] and [`encode_record`].
//! [`Records`] walks over many.
//!
//! Source: `perf_event_open(2)`; `include/uapi/linux/perf_event.h` up to 6.19.
//!
//! **Invariant:** records are views of the bytes they were decoded from. Nothing is copied, nothing is allocated, and
//! no number in the bytes is believed before it has been checked against their length.

mod branch;
mod codec;
mod error;
mod fixed;
mod header;
mod layout;
mod map;
mod misc;
mod named;
mod sample;
mod sample_codec;
mod sample_id;
mod wire;

pub use branch::{Branch, BranchInfo, BranchStack};
pub use codec::{decode_record, decode_sample_front, encode_record};
pub use error::RecordError;
pub use fixed::{Aux, AuxOutputHwId, ItraceStart, Lost, LostSamples, SwitchCpuWide, SwitchDirection, Task, Throttle};
pub use header::{RecordHeader, RecordKind, Records};
pub use layout::SampleLayout;
pub use map::{BuildId, MapKind, MapSource, Mmap, Mmap2};
pub use misc::{CpuMode, Misc};
pub use named::{BpfEvent, CallchainDeferred, Cgroup, Comm, CommCause, Ksymbol, Namespace, Namespaces, Read, TextPoke};
pub use sample::{Regs, RegsAbi, Sample, UserStack, Weight, callchain};
pub use sample_id::{SampleId, TaskId};

/// One record, without its header and without the id at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
// A sample is large, but without an allocator it can't be put elsewhere; records live on the stack, one at a time.
#[allow(clippy::large_enum_variant)]
pub enum Record<'a> {
    /// A mapping.
    Mmap(Mmap<'a>),
    /// Records that found no room.
    Lost(Lost),
    /// A command name.
    Comm(Comm<'a>),
    /// A task's end.
    Exit(Task),
    /// An event that interrupts too often is held back.
    Throttle(Throttle),
    /// It is no longer held back.
    Unthrottle(Throttle),
    /// A task's start.
    Fork(Task),
    /// The counts of an exiting task.
    Read(Read<'a>),
    /// A sample.
    Sample(Sample<'a>),
    /// A mapping, with the identity of its file.
    Mmap2(Mmap2<'a>),
    /// New data in the AUX area.
    Aux(Aux),
    /// An instruction trace begins.
    ItraceStart(ItraceStart),
    /// Samples that were lost.
    LostSamples(LostSamples),
    /// A context switch.
    Switch(SwitchDirection),
    /// A context switch, with the other task.
    SwitchCpuWide(SwitchCpuWide),
    /// The namespaces of a task.
    Namespaces(Namespaces<'a>),
    /// A kernel symbol comes or goes.
    Ksymbol(Ksymbol<'a>),
    /// A BPF program comes or goes.
    BpfEvent(BpfEvent),
    /// A cgroup's id and path.
    Cgroup(Cgroup<'a>),
    /// Kernel text changes.
    TextPoke(TextPoke<'a>),
    /// The hardware's id for AUX output.
    AuxOutputHwId(AuxOutputHwId),
    /// A user call chain taken later.
    CallchainDeferred(CallchainDeferred<'a>),
    /// A record of a kind that has no name here: of a newer kernel, or of a tool.
    Unknown {
        /// Its kind.
        kind: RecordKind,
        /// What is between its header and its id.
        payload: &'a [u8],
    },
}

impl Record<'_> {
    /// Returns the kind that stands in the header.
    #[must_use]
    pub const fn kind(&self) -> RecordKind {
        match self {
            Self::Mmap(_) => RecordKind::MMAP,
            Self::Lost(_) => RecordKind::LOST,
            Self::Comm(_) => RecordKind::COMM,
            Self::Exit(_) => RecordKind::EXIT,
            Self::Throttle(_) => RecordKind::THROTTLE,
            Self::Unthrottle(_) => RecordKind::UNTHROTTLE,
            Self::Fork(_) => RecordKind::FORK,
            Self::Read(_) => RecordKind::READ,
            Self::Sample(_) => RecordKind::SAMPLE,
            Self::Mmap2(_) => RecordKind::MMAP2,
            Self::Aux(_) => RecordKind::AUX,
            Self::ItraceStart(_) => RecordKind::ITRACE_START,
            Self::LostSamples(_) => RecordKind::LOST_SAMPLES,
            Self::Switch(_) => RecordKind::SWITCH,
            Self::SwitchCpuWide(_) => RecordKind::SWITCH_CPU_WIDE,
            Self::Namespaces(_) => RecordKind::NAMESPACES,
            Self::Ksymbol(_) => RecordKind::KSYMBOL,
            Self::BpfEvent(_) => RecordKind::BPF_EVENT,
            Self::Cgroup(_) => RecordKind::CGROUP,
            Self::TextPoke(_) => RecordKind::TEXT_POKE,
            Self::AuxOutputHwId(_) => RecordKind::AUX_OUTPUT_HW_ID,
            Self::CallchainDeferred(_) => RecordKind::CALLCHAIN_DEFERRED,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Returns `misc` with those bits that a field of the record stands for set as that field says.
    #[must_use]
    pub const fn misc(&self, misc: Misc) -> Misc {
        match self {
            Self::Mmap(mmap) => mmap.kind.to_misc(misc),
            Self::Mmap2(mmap) => mmap.to_misc(misc),
            Self::Comm(comm) => comm.to_misc(misc),
            Self::Switch(direction) => direction.to_misc(misc),
            Self::SwitchCpuWide(switch) => switch.direction.to_misc(misc),
            _ => misc,
        }
    }
}
