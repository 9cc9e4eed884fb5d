//! What each event is asked.
//!
//! What it is: from an event as it was written to the attribute that samples. Read first: [`sampling`], [`tracking`].
//!
//! **Invariant:** pure. Every sample begins with its event's id, instruction, task and time, in this order, so that they are
//! found without a look at the event; all records end with an id of the same layout.

use super::RecordOptions;
use crate::event::{Event, Modifier};
use crate::ring_owner::CLOCK_MONOTONIC;
use crate::target::Inherit;
use pmux_abi::attr::{Attr, AttrFlags, BranchSample, EventType, Precise, ReadFormat, SampleFormat, Sampling, Wakeup};

/// Where the time of a sample stands, in bytes: behind header, id, instruction and task.
pub(super) const TIME_AT: u16 = 8 + 3 * 8;
/// How often a sample is taken where nothing is said, per second.
pub(super) const USUAL_FREQUENCY: u64 = 4000;

/// How often a sample is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rate {
    /// 4000 times a second; each hit of what is a hit by itself (a tracepoint, a breakpoint).
    #[default]
    Usual,
    /// So many times a second, or as often as the kernel allows; each hit of what is a hit by itself.
    ButEachHit(u64),
    /// So many times a second; the kernel adapts the period.
    Frequency(u64),
    /// After so many occurrences.
    Period(u64),
}

/// How call chains are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CallChain {
    /// Not.
    #[default]
    None,
    /// By frame pointers.
    FramePointers,
    /// From registers and so many bytes of the stack, by the program that reads the file.
    Dwarf {
        /// The bytes: a multiple of 8, at most 65,528.
        stack_bytes: u32,
    },
    /// From the hardware's record of calls.
    LastBranches,
}

/// Whether something is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// No.
    #[default]
    LeaveOut,
    /// Yes.
    Record,
}

impl Keep {
    /// Yes, if so.
    #[must_use]
    pub fn when(wanted: bool) -> Self {
        if wanted { Self::Record } else { Self::LeaveOut }
    }

    fn asked(self) -> bool {
        self == Self::Record
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordScope {
    /// Threads, and those that they start.
    Tasks,
    /// Whatever runs on CPUs.
    Cpus,
    /// What runs on CPUs in one of several cgroups: each sample says in which.
    Cgroups,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Able {
    /// Events tell what they lost (6.0).
    pub(super) lost: bool,
    /// Symbols and BPF programs that come and go are told (5.1).
    pub(super) symbols: bool,
    pub(super) precise: u8,
}

/// The registers that a reader needs to unwind: all that a sample can have, but segments that are no use.
const USER_REGISTERS: u64 = if cfg!(target_arch = "x86_64") { 0x00ff_0fff } else { (1 << 33) - 1 };

fn with_common(attr: &mut Attr, options: &RecordOptions, scope: RecordScope, able: Able) {
    attr.flags.set(AttrFlags::INHERIT, scope == RecordScope::Tasks && options.inherit == Inherit::Children);
    attr.flags |= AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID;
    attr.clock_id = CLOCK_MONOTONIC;
    attr.sample |= SampleFormat::IDENTIFIER | SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME;
    if scope != RecordScope::Tasks {
        attr.sample |= SampleFormat::CPU;
    }
    // These are what the host asks for anyway.
    attr.read_format |= ReadFormat::ID | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
    attr.read_format.set(ReadFormat::LOST, able.lost);
    // The ring's own mark says when a reader is woken.
    attr.wakeup = Wakeup::Bytes(0);
}

pub(super) fn sampling(event: &Event, options: &RecordOptions, scope: RecordScope, able: Able) -> Attr {
    let mut attr = event.attr;
    with_common(&mut attr, options, scope, able);
    attr.sample.set(SampleFormat::CPU, scope != RecordScope::Tasks || options.cpus == Keep::Record);
    attr.sampling = match (event.sampling, options.rate) {
        (Sampling::None, Rate::Usual | Rate::ButEachHit(_)) if event.is_hit() => Sampling::Period(1),
        (Sampling::None, Rate::Usual) => Sampling::Frequency(USUAL_FREQUENCY),
        (Sampling::None, Rate::ButEachHit(per_second) | Rate::Frequency(per_second)) => Sampling::Frequency(per_second),
        (Sampling::None, Rate::Period(period)) => Sampling::Period(period),
        (own, _) => own,
    };
    if matches!(attr.sampling, Sampling::Frequency(_)) {
        attr.sample |= SampleFormat::PERIOD;
    }
    if attr.kind == EventType::TRACEPOINT {
        attr.sample |= SampleFormat::RAW | SampleFormat::CPU;
    }
    if options.addresses.asked() || attr.kind == EventType::BREAKPOINT {
        attr.sample |= SampleFormat::ADDR;
    }
    if event.modifiers.has(Modifier::MaxPrecise) {
        attr.precise = Precise::from_bits_truncate(u64::from(able.precise));
    }
    attr.sample.set(SampleFormat::CGROUP, scope == RecordScope::Cgroups);
    with_call_chain(&mut attr, options.call_chain);
    attr.flags.set(AttrFlags::INHERIT_STAT, options.exit_counts.asked() && attr.flags.contains(AttrFlags::INHERIT));
    attr
}

pub(super) fn with_call_chain(attr: &mut Attr, chain: CallChain) {
    match chain {
        CallChain::None => {}
        CallChain::FramePointers => attr.sample |= SampleFormat::CALLCHAIN,
        CallChain::Dwarf { stack_bytes } => {
            attr.sample |= SampleFormat::CALLCHAIN | SampleFormat::REGS_USER | SampleFormat::STACK_USER;
            attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
            attr.sample_regs_user = USER_REGISTERS;
            attr.sample_stack_user = stack_bytes;
        }
        CallChain::LastBranches => {
            attr.sample |= SampleFormat::CALLCHAIN | SampleFormat::BRANCH_STACK;
            attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
            attr.branch_sample =
                BranchSample::USER | BranchSample::CALL_STACK | BranchSample::NO_FLAGS | BranchSample::NO_CYCLES;
        }
    }
}

/// The event that tells what explains samples.
///
/// It asks for no build ids: up to Linux 6.18 at least, mappings that a kernel has marked for an event that did keep the mark
/// when they are told to others that did not, and `perf record` ends with a failed assertion then.
pub(super) fn tracking(options: &RecordOptions, scope: RecordScope, able: Able) -> Attr {
    let told = AttrFlags::MMAP | AttrFlags::MMAP2 | AttrFlags::COMM | AttrFlags::COMM_EXEC | AttrFlags::TASK;
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | told;
    let mut attr = Attr { kind: EventType::SOFTWARE, config: pmux_abi::attr::sw::DUMMY, flags, ..Attr::default() };
    with_common(&mut attr, options, scope, able);
    attr.flags.set(AttrFlags::MMAP_DATA, options.maps_data().asked());
    attr.flags.set(AttrFlags::CGROUP, scope == RecordScope::Cgroups);
    attr.flags.set(AttrFlags::CONTEXT_SWITCH, options.switches.asked());
    attr.flags.set(PRIVILEGED.intersection(AttrFlags::NAMESPACES), true);
    attr.flags.set(PRIVILEGED.difference(AttrFlags::NAMESPACES), able.symbols);
    attr
}

/// Gives all events the same words behind their records (`sample_id` in perf_event_open(2)): what one of them asks for all do.
///
/// Readers such as Hotspot's take the layout of the first event for the records of all.
pub(super) fn with_one_sample_id<'a>(all: impl IntoIterator<Item = &'a mut Attr>) {
    const WORDS: SampleFormat = SampleFormat::TID
        .union(SampleFormat::TIME)
        .union(SampleFormat::ID)
        .union(SampleFormat::STREAM_ID)
        .union(SampleFormat::CPU)
        .union(SampleFormat::IDENTIFIER);
    let mut all: Vec<_> = all.into_iter().collect();
    let words = all.iter().fold(SampleFormat::empty(), |words, attr| words | (attr.sample & WORDS));
    all.iter_mut().for_each(|attr| attr.sample |= words);
}

/// What the tracking event tells to those only who may see everything.
pub(super) const PRIVILEGED: AttrFlags = AttrFlags::NAMESPACES.union(AttrFlags::KSYMBOL).union(AttrFlags::BPF_EVENT);
