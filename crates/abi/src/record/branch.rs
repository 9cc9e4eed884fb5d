//! Branches in a sample.
//!
//! **Invariant:** the third word of a branch keeps all its bits, named or not.

use crate::array::{Array, Element};
use crate::bytes::{put_words, u64_at};

/// One branch that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Branch {
    /// Address of the branch.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// How it went.
    pub info: BranchInfo,
}

impl Element for Branch {
    const SIZE: usize = 24;

    fn from_wire(bytes: &[u8]) -> Self {
        Self { from: u64_at(bytes, 0), to: u64_at(bytes, 8), info: BranchInfo(u64_at(bytes, 16)) }
    }

    fn to_wire(self, out: &mut [u8]) {
        put_words(out, [self.from, self.to, self.info.0]);
    }
}

/// The third word of a branch: bits as a little-endian machine numbers them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BranchInfo(pub u64);

impl BranchInfo {
    /// Was predicted wrongly.
    pub const MISPREDICTED: Self = Self(1);
    /// Was predicted rightly. With neither bit the hardware doesn't tell.
    pub const PREDICTED: Self = Self(1 << 1);
    /// Inside a memory transaction.
    pub const IN_TX: Self = Self(1 << 2);
    /// Aborted a memory transaction.
    pub const ABORT: Self = Self(1 << 3);

    /// Returns true if all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the CPU cycles since the branch before; 0 if the hardware doesn't tell.
    #[must_use]
    pub const fn cycles(self) -> u16 {
        self.field(4, 16) as u16
    }

    /// Returns the type of the branch (`PERF_BR_*`); 15 means an extended type.
    #[must_use]
    pub const fn branch_type(self) -> u8 {
        self.field(20, 4) as u8
    }

    const fn field(self, shift: u32, bits: u32) -> u64 {
        (self.0 >> shift) & ((1 << bits) - 1)
    }
}

/// The branches of a sample, newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BranchStack<'a> {
    /// The hardware's index of the newest branch, with `BranchSample::HW_INDEX`.
    ///
    /// A kernel leaves it out where it has no branches to give at all.
    pub hw_idx: Option<u64>,
    /// The branches.
    pub branches: Array<'a, Branch>,
    /// Counts of events at each branch, packed as the PMU says, with `BranchSample::COUNTERS`.
    pub counters: Option<Array<'a, u64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_fields_lie_one_after_the_other() {
        let info = BranchInfo(0x2_u64 | 0x1234 << 4 | 0xf << 20 | 2 << 24);
        assert!(info.contains(BranchInfo::PREDICTED) && !info.contains(BranchInfo::MISPREDICTED));
        assert_eq!((info.cycles(), info.branch_type()), (0x1234, 15));
    }
}
