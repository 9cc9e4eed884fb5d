//! What an administrator lets containers open on their own tasks, though the kernel's rule for all users does not.
//!
//! What it is: an event is granted where it asks for no more than `kernel.perf_event_paranoid` of some level allows to every user on tasks
//! of their own. Whose task that is, `pmux_linux::seccomp` finds out (`Listener::open_within`).
//!
//! **Invariant:** what a field, a flag or a part of a sample could tell beyond that is on no list here, so one that is new is not granted.
//!
//! Source: Linux 6.18, `kernel/events/core.c` (`perf_event_open`, `perf_copy_attr`).

use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, sw};

/// The highest `kernel.perf_event_paranoid` at which every user may open an event on a task of their own.
pub(super) fn highest_level(attr: &Attr) -> i32 {
    if attr.flags.contains(AttrFlags::EXCLUDE_KERNEL) { 2 } else { 1 }
}

/// Whether an event may be granted at a level.
pub(super) fn is_covered(attr: &Attr, level: i32) -> bool {
    let is_plain = match attr.kind {
        EventType::HARDWARE | EventType::HW_CACHE => true,
        EventType::RAW => attr.config & !RAW == 0,
        EventType::SOFTWARE => attr.config != sw::BPF_OUTPUT,
        _ => false,
    };
    let takes_none = [attr.config1, attr.config2, attr.config3, attr.config4] == [0; 4]
        && attr.aux_sample_size == 0
        && attr.aux_action == 0
        && attr.sig_data == 0;
    is_plain && takes_none && level <= highest_level(attr) && FLAGS.contains(attr.flags) && SAMPLE.contains(attr.sample)
}

/// What a raw event may say: which event, its unit mask, edges, inversion and threshold. Other bits may need more rights: on Intel's, bit 21
/// counts the neighbour on the same core as well.
const RAW: u64 = 0xf_ff84_ffff;

/// All of these bits.
macro_rules! all_of {
    ($of:ident: $($bit:ident)+) => { $of::empty()$(.union($of::$bit))+ };
}

const FLAGS: AttrFlags = all_of!(AttrFlags:
    DISABLED INHERIT INHERIT_THREAD INHERIT_STAT PINNED EXCLUSIVE EXCLUDE_USER EXCLUDE_KERNEL EXCLUDE_HV
    EXCLUDE_IDLE EXCLUDE_HOST EXCLUDE_GUEST EXCLUDE_CALLCHAIN_KERNEL EXCLUDE_CALLCHAIN_USER MMAP MMAP_DATA MMAP2
    BUILD_ID COMM COMM_EXEC TASK ENABLE_ON_EXEC REMOVE_ON_EXEC SAMPLE_ID_ALL USE_CLOCKID CONTEXT_SWITCH KSYMBOL
    BPF_EVENT WRITE_BACKWARD
);

const SAMPLE: SampleFormat = all_of!(SampleFormat:
    IP TID TIME ADDR READ CALLCHAIN ID CPU PERIOD STREAM_ID REGS_USER STACK_USER WEIGHT WEIGHT_STRUCT DATA_SRC
    IDENTIFIER TRANSACTION
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_more_is_not_granted() {
        let user = AttrFlags::EXCLUDE_KERNEL;
        let cycles = Attr { flags: user, ..Attr::default() };
        let kernel = Attr { flags: AttrFlags::empty(), ..cycles };
        assert!(is_covered(&cycles, 2) && is_covered(&cycles, 1) && is_covered(&kernel, 1) && !is_covered(&kernel, 2));
        let of = |kind, config| Attr { kind, config, ..cycles };
        for attr in [
            of(EventType::TRACEPOINT, 1),
            of(EventType::BREAKPOINT, 0),
            of(EventType::FIRST_DYNAMIC, 0),
            of(EventType::SOFTWARE, sw::BPF_OUTPUT),
            Attr { flags: user | AttrFlags::NAMESPACES, ..cycles },
            Attr { flags: user | AttrFlags::SIGTRAP, ..cycles },
            Attr { sample: SampleFormat::IP | SampleFormat::PHYS_ADDR, ..cycles },
            Attr { sample: SampleFormat::REGS_INTR, ..cycles },
            Attr { sample: SampleFormat::BRANCH_STACK, ..cycles },
            Attr { aux_sample_size: 8, ..cycles },
            of(EventType::RAW, 1 << 21 | 0x3c),
            Attr { config1: 1, ..of(EventType::RAW, 0x3c) },
        ] {
            assert!(!is_covered(&attr, 1), "{attr:?}");
        }
    }
}
