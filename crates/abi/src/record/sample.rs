//! A sample, field by field.
//!
//! Read first: [`Sample`].
//!
//! **Invariant:** a field is there exactly if the layout has it. Zero and absent are different.

use super::{BranchStack, TaskId};
use crate::array::Array;
use crate::read::ReadValues;

/// Marks in a call chain: the addresses after one belong to another mode (`PERF_CONTEXT_*`).
pub mod callchain {
    /// Hypervisor.
    pub const HV: u64 = -32_i64 as u64;
    /// Kernel.
    pub const KERNEL: u64 = -128_i64 as u64;
    /// User mode.
    pub const USER: u64 = -512_i64 as u64;
    /// The user part comes later, in a record with the cookie that follows this mark (6.19).
    pub const USER_DEFERRED: u64 = -640_i64 as u64;
    /// A guest.
    pub const GUEST: u64 = -2048_i64 as u64;
    /// The kernel of a guest.
    pub const GUEST_KERNEL: u64 = -2176_i64 as u64;
    /// User mode of a guest.
    pub const GUEST_USER: u64 = -2560_i64 as u64;
    /// The lowest mark; each value from here on is one, and no address.
    pub const MAX: u64 = -4095_i64 as u64;

    /// Returns true if an entry is a mark and no address.
    #[must_use]
    pub const fn is_mark(entry: u64) -> bool {
        entry >= MAX
    }
}

/// Which registers are in [`Regs`] (`PERF_SAMPLE_REGS_ABI_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RegsAbi(pub u64);

impl RegsAbi {
    /// None: there was no user mode, or it could not be read.
    pub const NONE: Self = Self(0);
    /// Those of a 32-bit task.
    pub const BITS_32: Self = Self(1);
    /// Those of a 64-bit task.
    pub const BITS_64: Self = Self(2);
}

/// Registers in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Regs<'a> {
    /// Which registers.
    pub abi: RegsAbi,
    /// Their values: one for each bit of the attribute's mask, lowest first; none at all with [`RegsAbi::NONE`].
    pub values: Array<'a, u64>,
}

impl Regs<'_> {
    /// Returns a register by its number, given the mask of the attribute.
    ///
    /// `None` if the mask lacks the register, or none were taken.
    #[must_use]
    pub fn register(&self, mask: u64, number: u32) -> Option<u64> {
        let bit = 1_u64.checked_shl(number)?;
        if mask & bit == 0 {
            return None;
        }
        self.values.get((mask & (bit - 1)).count_ones() as usize)
    }
}

/// A copy of the user stack in a sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UserStack<'a> {
    /// The bytes from the stack pointer upwards, a multiple of 8. Those from `dyn_size` on mean nothing.
    pub data: &'a [u8],
    /// How many bytes could be copied. 0 if `data` is empty.
    pub dyn_size: u64,
}

impl<'a> UserStack<'a> {
    /// Returns the bytes that could be copied.
    #[must_use]
    pub fn copied(&self) -> &'a [u8] {
        usize::try_from(self.dyn_size).ok().and_then(|len| self.data.get(..len)).unwrap_or(self.data)
    }
}

/// The weight of a sample: one word, or three parts with `WEIGHT_STRUCT`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Weight(pub u64);

impl Weight {
    /// Returns the lowest 32 bits, the next 16 and the highest 16: `var1_dw`, `var2_w` and `var3_w`.
    #[must_use]
    pub const fn parts(self) -> (u32, u16, u16) {
        (self.0 as u32, (self.0 >> 32) as u16, (self.0 >> 48) as u16)
    }
}

/// A sample: each field is there exactly if `sample_type` has its bit.
///
/// The fields stand in the order of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample<'a> {
    /// The id of the event, at a fixed place.
    pub identifier: Option<u64>,
    /// The instruction pointer; [`super::Misc::EXACT_IP`] in the header says whether it is exact.
    pub ip: Option<u64>,
    /// The task.
    pub task: Option<TaskId>,
    /// The time, ns.
    pub time: Option<u64>,
    /// The data address.
    pub addr: Option<u64>,
    /// The id of the event, or of the one it was inherited from.
    pub id: Option<u64>,
    /// The id of the event itself.
    pub stream_id: Option<u64>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The period that led to this sample.
    pub period: Option<u64>,
    /// Counter values.
    pub read: Option<ReadValues<'a>>,
    /// The call chain, innermost first, with marks of [`callchain`].
    pub callchain: Option<Array<'a, u64>>,
    /// Data of the PMU or tracepoint. The decoder gives it with its padding: its length plus 4 is a multiple of 8.
    pub raw: Option<&'a [u8]>,
    /// Branches.
    pub branch_stack: Option<BranchStack<'a>>,
    /// User registers.
    pub regs_user: Option<Regs<'a>>,
    /// The user stack.
    pub stack_user: Option<UserStack<'a>>,
    /// The weight.
    pub weight: Option<Weight>,
    /// Where the data came from (`union perf_mem_data_src`).
    pub data_src: Option<u64>,
    /// The memory transaction: flags (`PERF_TXN_*`), and the abort code in the upper half.
    pub transaction: Option<u64>,
    /// Registers at the interrupt, or at the instruction of a precise event.
    pub regs_intr: Option<Regs<'a>>,
    /// The physical data address.
    pub phys_addr: Option<u64>,
    /// The id of the cgroup.
    pub cgroup: Option<u64>,
    /// Page size at the data address, in bytes.
    pub data_page_size: Option<u64>,
    /// Page size at the instruction pointer, in bytes.
    pub code_page_size: Option<u64>,
    /// AUX data, a multiple of 8 bytes.
    pub aux: Option<&'a [u8]>,
}

impl Sample<'_> {
    /// Returns the id of the event, from either of its two fields.
    #[must_use]
    pub fn event_id(&self) -> Option<u64> {
        self.identifier.or(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_by_number() {
        let regs = Regs { abi: RegsAbi::BITS_64, values: Array::from(&[10, 20, 30][..]) };
        let mask = 1 << 2 | 1 << 5 | 1 << 63;
        assert_eq!(regs.register(mask, 2), Some(10));
        assert_eq!(regs.register(mask, 5), Some(20));
        assert_eq!(regs.register(mask, 63), Some(30));
        assert_eq!(regs.register(mask, 3), None);
        assert_eq!(regs.register(mask, 64), None);
        assert_eq!(Regs::default().register(mask, 2), None);
    }

    #[test]
    fn a_stack_never_claims_more_than_it_has() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        let stack = |dyn_size| UserStack { data: &data, dyn_size };
        assert_eq!(stack(3).copied(), [1, 2, 3]);
        assert_eq!(stack(u64::MAX).copied(), data);
    }

    #[test]
    fn the_parts_of_a_weight() {
        assert_eq!(Weight(0x4444_3333_2222_1111).parts(), (0x2222_1111, 0x3333, 0x4444));
    }
}
