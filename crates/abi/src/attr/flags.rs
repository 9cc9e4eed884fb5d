//! The bit sets of an attribute.
//!
//! **Invariant:** every published bit has a name here; what has no name is reserved.

use bitflags::bitflags;

bitflags! {
    /// The single-bit fields of `perf_event_attr`, at their places in its flag word.
    ///
    /// `freq` (10), `watermark` (14) and `precise_ip` (15, 16) are left out: see [`super::Attr`].
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct AttrFlags: u64 {
        /// Off when opened.
        const DISABLED = 1 << 0;
        /// Children inherit it.
        const INHERIT = 1 << 1;
        /// Always on the PMU, or in error.
        const PINNED = 1 << 2;
        /// Alone on the PMU.
        const EXCLUSIVE = 1 << 3;
        /// Doesn't count user mode.
        const EXCLUDE_USER = 1 << 4;
        /// Doesn't count the kernel.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Doesn't count the hypervisor.
        const EXCLUDE_HV = 1 << 6;
        /// Doesn't count the idle task.
        const EXCLUDE_IDLE = 1 << 7;
        /// Records executable mappings.
        const MMAP = 1 << 8;
        /// Records command names.
        const COMM = 1 << 9;
        /// Each exiting task reports its own counts (`PERF_RECORD_READ`).
        const INHERIT_STAT = 1 << 11;
        /// Enabled by the next exec.
        const ENABLE_ON_EXEC = 1 << 12;
        /// Records fork and exit.
        const TASK = 1 << 13;
        /// Records data mappings.
        const MMAP_DATA = 1 << 17;
        /// Every record ends with its sample id fields.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Doesn't count in the host.
        const EXCLUDE_HOST = 1 << 19;
        /// Doesn't count in the guest.
        const EXCLUDE_GUEST = 1 << 20;
        /// Call chains without kernel frames.
        const EXCLUDE_CALLCHAIN_KERNEL = 1 << 21;
        /// Call chains without user frames.
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        /// Mapping records carry device, inode, protection.
        const MMAP2 = 1 << 23;
        /// Command records tell an exec apart.
        const COMM_EXEC = 1 << 24;
        /// `clock_id` is meant.
        const USE_CLOCKID = 1 << 25;
        /// Records context switches.
        const CONTEXT_SWITCH = 1 << 26;
        /// The ring is written from its end (overwrite mode).
        const WRITE_BACKWARD = 1 << 27;
        /// Records namespaces.
        const NAMESPACES = 1 << 28;
        /// Records kernel symbols that come and go.
        const KSYMBOL = 1 << 29;
        /// Records BPF programs that come and go.
        const BPF_EVENT = 1 << 30;
        /// Its AUX output goes to the leader's area.
        const AUX_OUTPUT = 1 << 31;
        /// Records cgroups.
        const CGROUP = 1 << 32;
        /// Records changes of kernel text.
        const TEXT_POKE = 1 << 33;
        /// Mapping records carry build ids.
        const BUILD_ID = 1 << 34;
        /// Inherited by threads only, not by processes.
        const INHERIT_THREAD = 1 << 35;
        /// Removed by exec.
        const REMOVE_ON_EXEC = 1 << 36;
        /// Overflow sends SIGTRAP to the task itself.
        const SIGTRAP = 1 << 37;
        /// User call chains are taken later, on the way back to user mode (6.19).
        const DEFER_CALLCHAIN = 1 << 38;
        /// Its ring receives the call chains taken later (6.19).
        const DEFER_OUTPUT = 1 << 39;
    }
}

bitflags! {
    /// What a read returns beside the value (`read_format`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct ReadFormat: u64 {
        /// The time enabled, ns.
        const TOTAL_TIME_ENABLED = 1 << 0;
        /// The time running, ns.
        const TOTAL_TIME_RUNNING = 1 << 1;
        /// The event's id.
        const ID = 1 << 2;
        /// The whole group at once.
        const GROUP = 1 << 3;
        /// The number of lost samples.
        const LOST = 1 << 4;
    }
}

bitflags! {
    /// What each sample holds (`sample_type`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SampleFormat: u64 {
        /// Instruction pointer.
        const IP = 1 << 0;
        /// Process and thread.
        const TID = 1 << 1;
        /// Time, ns.
        const TIME = 1 << 2;
        /// Data address.
        const ADDR = 1 << 3;
        /// Counter values.
        const READ = 1 << 4;
        /// Call chain.
        const CALLCHAIN = 1 << 5;
        /// Id of the event.
        const ID = 1 << 6;
        /// CPU.
        const CPU = 1 << 7;
        /// Period.
        const PERIOD = 1 << 8;
        /// Id of the stream.
        const STREAM_ID = 1 << 9;
        /// Raw data of the PMU or tracepoint.
        const RAW = 1 << 10;
        /// Branches.
        const BRANCH_STACK = 1 << 11;
        /// User registers.
        const REGS_USER = 1 << 12;
        /// User stack.
        const STACK_USER = 1 << 13;
        /// Weight.
        const WEIGHT = 1 << 14;
        /// Source of the data.
        const DATA_SRC = 1 << 15;
        /// Id of the event, at a fixed place.
        const IDENTIFIER = 1 << 16;
        /// Transaction.
        const TRANSACTION = 1 << 17;
        /// Registers at the interrupt.
        const REGS_INTR = 1 << 18;
        /// Physical data address.
        const PHYS_ADDR = 1 << 19;
        /// AUX data.
        const AUX = 1 << 20;
        /// Cgroup.
        const CGROUP = 1 << 21;
        /// Page size of the data.
        const DATA_PAGE_SIZE = 1 << 22;
        /// Page size of the code.
        const CODE_PAGE_SIZE = 1 << 23;
        /// Weight, in three parts.
        const WEIGHT_STRUCT = 1 << 24;
    }
}

bitflags! {
    /// Which branches are recorded (`branch_sample_type`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct BranchSample: u64 {
        /// In user mode.
        const USER = 1 << 0;
        /// In the kernel.
        const KERNEL = 1 << 1;
        /// In the hypervisor.
        const HV = 1 << 2;
        /// Any branch.
        const ANY = 1 << 3;
        /// Any call.
        const ANY_CALL = 1 << 4;
        /// Any return.
        const ANY_RETURN = 1 << 5;
        /// Indirect calls.
        const IND_CALL = 1 << 6;
        /// Aborts of a memory transaction.
        const ABORT_TX = 1 << 7;
        /// Inside a memory transaction.
        const IN_TX = 1 << 8;
        /// Outside of a memory transaction.
        const NO_TX = 1 << 9;
        /// Conditional branches.
        const COND = 1 << 10;
        /// The hardware's own call stack.
        const CALL_STACK = 1 << 11;
        /// Indirect jumps.
        const IND_JUMP = 1 << 12;
        /// Direct calls.
        const CALL = 1 << 13;
        /// Leaves out the flags of each branch.
        const NO_FLAGS = 1 << 14;
        /// Leaves out the cycles of each branch.
        const NO_CYCLES = 1 << 15;
        /// Tells the type of each branch.
        const TYPE_SAVE = 1 << 16;
        /// Adds the hardware's index of the newest branch.
        const HW_INDEX = 1 << 17;
        /// Tells the privilege level of each branch (6.1).
        const PRIV_SAVE = 1 << 18;
        /// Adds how often events occurred at each branch (6.8).
        const COUNTERS = 1 << 19;

        /// The privilege levels; without any of them the event's own apply.
        const LEVELS = Self::USER.bits() | Self::KERNEL.bits() | Self::HV.bits();
    }
}

/// How close to the event the instruction pointer of a sample must be (`precise_ip`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Precise {
    /// May be anywhere after the event.
    #[default]
    ArbitrarySkid,
    /// Always the same distance away.
    ConstantSkid,
    /// Zero distance asked for.
    RequestZeroSkid,
    /// Zero distance, or the event fails.
    MustHaveZeroSkid,
}

impl Precise {
    /// Returns the two bits as they stand in the flag word, shifted down.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self as u64
    }

    /// Returns what the lowest two bits mean; higher bits are not looked at.
    #[must_use]
    pub const fn from_bits_truncate(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::ArbitrarySkid,
            1 => Self::ConstantSkid,
            2 => Self::RequestZeroSkid,
            _ => Self::MustHaveZeroSkid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flag_lies_on_a_typed_field() {
        let typed = (1 << 10) | (1 << 14) | (3 << 15);
        assert_eq!(AttrFlags::all().bits() & typed, 0);
        assert_eq!(AttrFlags::all().bits() | typed, (1 << 40) - 1);
    }

    #[test]
    fn every_bit_below_the_highest_has_a_name() {
        assert_eq!(SampleFormat::all().bits(), (1 << 25) - 1);
        assert_eq!(ReadFormat::all().bits(), (1 << 5) - 1);
        assert_eq!(BranchSample::all().bits(), (1 << 20) - 1);
    }

    #[test]
    fn precise_bits_are_inverse() {
        for bits in 0..4 {
            assert_eq!(Precise::from_bits_truncate(bits).bits(), bits);
        }
    }
}
