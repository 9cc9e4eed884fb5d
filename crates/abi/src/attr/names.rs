//! The numbers of the generic events.
//!
//! **Invariant:** only numbers that every kernel shares; names of events are for whoever parses text.

/// `config` of [`super::EventType::HARDWARE`].
///
/// Source: `perf_event_open(2)`.
pub mod hw {
    /// CPU cycles, at the speed the CPU runs at.
    pub const CPU_CYCLES: u64 = 0;
    /// Retired instructions.
    pub const INSTRUCTIONS: u64 = 1;
    /// Cache accesses, usually of the last level.
    pub const CACHE_REFERENCES: u64 = 2;
    /// Cache misses, usually of the last level.
    pub const CACHE_MISSES: u64 = 3;
    /// Retired branches.
    pub const BRANCH_INSTRUCTIONS: u64 = 4;
    /// Mispredicted branches.
    pub const BRANCH_MISSES: u64 = 5;
    /// Bus cycles.
    pub const BUS_CYCLES: u64 = 6;
    /// Cycles stalled in issue.
    pub const STALLED_CYCLES_FRONTEND: u64 = 7;
    /// Cycles stalled in retirement.
    pub const STALLED_CYCLES_BACKEND: u64 = 8;
    /// CPU cycles at a constant speed.
    pub const REF_CPU_CYCLES: u64 = 9;
    /// How many there are.
    pub const COUNT: u64 = 10;

    /// Where the number of a PMU stands in `config`, on machines with several kinds of core.
    pub const PMU_TYPE_SHIFT: u32 = 32;

    /// Binds a hardware or cache event to one PMU of a machine with several kinds of core.
    #[must_use]
    pub const fn on_pmu(config: u64, pmu: super::super::EventType) -> u64 {
        (config & 0xffff_ffff) | ((pmu.0 as u64) << PMU_TYPE_SHIFT)
    }
}

/// `config` of [`super::EventType::TRACEPOINT`], where that is the same on every machine.
///
/// Source: Linux 6.18, `kernel/trace/trace.h` (`TRACE_FN`).
pub mod tracepoint {
    /// All functions of the kernel: `ftrace:function`.
    pub const FUNCTIONS: u64 = 1;
}

/// `config` of [`super::EventType::SOFTWARE`].
///
/// Source: `perf_event_open(2)`.
pub mod sw {
    /// Time of the CPU's clock, ns.
    pub const CPU_CLOCK: u64 = 0;
    /// Time that the task ran, ns.
    pub const TASK_CLOCK: u64 = 1;
    /// Page faults.
    pub const PAGE_FAULTS: u64 = 2;
    /// Context switches.
    pub const CONTEXT_SWITCHES: u64 = 3;
    /// Moves to another CPU.
    pub const CPU_MIGRATIONS: u64 = 4;
    /// Page faults without disk access.
    pub const PAGE_FAULTS_MIN: u64 = 5;
    /// Page faults with disk access.
    pub const PAGE_FAULTS_MAJ: u64 = 6;
    /// Accesses whose alignment the kernel had to mend.
    pub const ALIGNMENT_FAULTS: u64 = 7;
    /// Instructions that the kernel emulated.
    pub const EMULATION_FAULTS: u64 = 8;
    /// Counts nothing: a carrier of side records.
    pub const DUMMY: u64 = 9;
    /// What a BPF program writes.
    pub const BPF_OUTPUT: u64 = 10;
    /// Context switches to a task of another cgroup (5.13).
    pub const CGROUP_SWITCHES: u64 = 11;
    /// How many there are.
    pub const COUNT: u64 = 12;
}

/// `config` of [`super::EventType::HW_CACHE`]: which cache, what is done to it, how it goes.
///
/// Source: `perf_event_open(2)`.
pub mod cache {
    /// Which cache.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Cache {
        /// First level, data.
        L1d = 0,
        /// First level, instructions.
        L1i = 1,
        /// Last level.
        Ll = 2,
        /// Data translations.
        Dtlb = 3,
        /// Instruction translations.
        Itlb = 4,
        /// Branch prediction.
        Bpu = 5,
        /// Memory of the node.
        Node = 6,
    }

    /// What is done to the cache.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum CacheOp {
        /// A load.
        Read = 0,
        /// A store.
        Write = 1,
        /// A prefetch.
        Prefetch = 2,
    }

    /// How it goes.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum CacheResult {
        /// Any access.
        Access = 0,
        /// Accesses that missed.
        Miss = 1,
    }

    impl Cache {
        /// Every cache, in order of its number.
        pub const ALL: [Self; 7] = [Self::L1d, Self::L1i, Self::Ll, Self::Dtlb, Self::Itlb, Self::Bpu, Self::Node];
    }

    impl CacheOp {
        /// Every operation, in order of its number.
        pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Prefetch];
    }

    impl CacheResult {
        /// Every result, in order of its number.
        pub const ALL: [Self; 2] = [Self::Access, Self::Miss];
    }

    /// Returns the `config` of a cache event.
    ///
    /// ```
    /// use pmux_abi::attr::cache::{Cache, CacheOp, CacheResult, cache_config};
    ///
    /// let dtlb_store_misses = cache_config(Cache::Dtlb, CacheOp::Write, CacheResult::Miss);
    /// assert_eq!(dtlb_store_misses, 0x1_01_03);
    /// ```
    #[must_use]
    pub const fn cache_config(cache: Cache, op: CacheOp, result: CacheResult) -> u64 {
        (cache as u64) | ((op as u64) << 8) | ((result as u64) << 16)
    }

    /// Returns what a cache event's `config` means, or `None` if a part of it has no name.
    ///
    /// The upper half, which may bind the event to a PMU, is not looked at.
    #[must_use]
    pub fn parse_config(config: u64) -> Option<(Cache, CacheOp, CacheResult)> {
        let part = |shift: u32| ((config >> shift) & 0xff) as usize;
        if part(24) != 0 {
            return None;
        }
        Some((*Cache::ALL.get(part(0))?, *CacheOp::ALL.get(part(8))?, *CacheResult::ALL.get(part(16))?))
    }
}

/// `bp_type` and `bp_len` of [`super::EventType::BREAKPOINT`].
///
/// Source: `perf_event_open(2)`.
pub mod breakpoint {
    /// No access: reserves nothing.
    pub const EMPTY: u32 = 0;
    /// Reads of the address.
    pub const R: u32 = 1;
    /// Writes to the address.
    pub const W: u32 = 2;
    /// Reads and writes.
    pub const RW: u32 = R | W;
    /// Execution of the address.
    pub const X: u32 = 4;
    /// The longest length that any machine takes, in bytes.
    pub const MAX_LEN: u64 = 8;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::cache::{Cache, CacheOp, CacheResult, cache_config, parse_config};
    use super::hw;
    use crate::attr::EventType;

    #[test]
    fn cache_configs_are_inverse() {
        for cache in Cache::ALL {
            for op in CacheOp::ALL {
                for result in CacheResult::ALL {
                    let config = cache_config(cache, op, result);
                    assert_eq!(parse_config(config), Some((cache, op, result)));
                    let bound = hw::on_pmu(config, EventType(10));
                    assert_eq!(bound >> 32, 10);
                    assert_eq!(parse_config(bound).unwrap(), (cache, op, result));
                }
            }
        }
        assert_eq!(parse_config(7), None);
        assert_eq!(parse_config(3 << 8), None);
        assert_eq!(parse_config(2 << 16), None);
        assert_eq!(parse_config(1 << 24), None);
    }
}
