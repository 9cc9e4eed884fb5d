//! The `misc` half word of a record's header.
//!
//! **Invariant:** the upper bits mean different things in different records, so they are plain constants here and
//! fields of the records that own them.

/// Where a record comes from: the lowest three bits of `misc`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CpuMode {
    /// Not said.
    Unknown,
    /// The kernel.
    Kernel,
    /// User mode.
    User,
    /// The hypervisor.
    Hypervisor,
    /// The kernel of a guest.
    GuestKernel,
    /// User mode of a guest.
    GuestUser,
    /// A number without a name: 6 or 7.
    Other(u8),
}

/// The `misc` half word of a record's header (`PERF_RECORD_MISC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Misc(pub u16);

impl Misc {
    /// The bits of [`Self::cpu_mode`].
    pub const CPUMODE_MASK: Self = Self(7);
    /// From the kernel.
    pub const KERNEL: Self = Self(1);
    /// From user mode.
    pub const USER: Self = Self(2);
    /// From the hypervisor.
    pub const HYPERVISOR: Self = Self(3);
    /// From the kernel of a guest.
    pub const GUEST_KERNEL: Self = Self(4);
    /// From user mode of a guest.
    pub const GUEST_USER: Self = Self(5);
    /// The program that listed the mappings of a process ran out of time.
    pub const PROC_MAP_PARSE_TIMEOUT: Self = Self(1 << 12);
    /// MMAP, MMAP2: the mapping isn't executable. See [`super::MapKind`].
    pub const MMAP_DATA: Self = Self(1 << 13);
    /// COMM: the name comes from an exec. See [`super::CommCause`].
    pub const COMM_EXEC: Self = Self(1 << 13);
    /// FORK: made up by a tool, for a task that was there before it.
    pub const FORK_EXEC: Self = Self(1 << 13);
    /// SWITCH, SWITCH_CPU_WIDE: away from the task. See [`super::SwitchDirection`].
    pub const SWITCH_OUT: Self = Self(1 << 13);
    /// SAMPLE: the instruction pointer is the instruction that caused the event.
    pub const EXACT_IP: Self = Self(1 << 14);
    /// SWITCH, SWITCH_CPU_WIDE: away from a task that could have gone on.
    pub const SWITCH_OUT_PREEMPT: Self = Self(1 << 14);
    /// MMAP2: carries a build id. See [`super::MapSource`].
    pub const MMAP_BUILD_ID: Self = Self(1 << 14);
    /// Kept free by the kernel for an extension.
    pub const EXT_RESERVED: Self = Self(1 << 15);

    /// Returns true if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns where the record comes from.
    #[must_use]
    pub const fn cpu_mode(self) -> CpuMode {
        match self.0 & Self::CPUMODE_MASK.0 {
            0 => CpuMode::Unknown,
            1 => CpuMode::Kernel,
            2 => CpuMode::User,
            3 => CpuMode::Hypervisor,
            4 => CpuMode::GuestKernel,
            5 => CpuMode::GuestUser,
            other => CpuMode::Other(other as u8),
        }
    }
}
