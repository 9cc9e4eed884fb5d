//! Copies of registers and stacks of programs, for readers that find the callers in them.
//!
//! **Invariant:** what is kept of a task is no longer than 32 KiB: the map for each CPU takes no longer values.

use super::Place;
use super::program::{CONTEXT, NOW, Registers};
use crate::bpf::{Alu, Assembler, Compare, Helper, Reg, Size};
use crate::btf::Btf;

/// How the callers of a program are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserStacks {
    /// By frame pointers.
    Frames,
    /// Not here: registers and so many bytes of the stack are copied, at most 24 KiB.
    Copies(u32),
}

/// How much of a program is copied, where its frames are not looked for: its registers as they stand in the kernel, and then its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Copied {
    registers_bytes: i32,
    stack_bytes: i32,
}

impl Copied {
    pub(super) fn new(registers: &RegisterPlaces, stack_bytes: u32) -> Self {
        let stack_bytes = stack_bytes.min(MOST_COPIED).next_multiple_of(PIECE as u32) as i32;
        Self { registers_bytes: registers.bytes as i32, stack_bytes }
    }

    pub(super) fn bytes(self) -> i32 {
        self.registers_bytes + self.stack_bytes
    }

    /// Copies registers and stack of the program whose task is `R7` and leaves into the value that is `R9`: where the memory ends, less.
    pub(super) fn copy(self, asm: &mut Assembler<'_>, registers: Registers) {
        let end = asm.label();
        asm.store(Size::Double, Reg::R10, CONTEXT, Reg::R6).store(Size::Double, Reg::R10, NOW, Reg::R8);
        asm.set(Reg::R1, Reg::R7).call(Helper::TaskPtRegs);
        asm.load(Size::Double, Reg::R6, Reg::R0, registers.sp);
        registers.lock_unless_narrow(asm);
        self.copy_registers(asm);
        // R6 is where to read next, R8 how many bytes there are.
        asm.set(Reg::R8, self.registers_bytes);
        for at in (0..self.stack_bytes).step_by(PIECE as usize) {
            let behind = i32::from(Place::STACKS) + self.registers_bytes + at;
            asm.set(Reg::R1, Reg::R9).alu(Alu::Add, Reg::R1, behind).set(Reg::R2, PIECE).set(Reg::R3, Reg::R6);
            asm.call(Helper::ProbeReadUser).jump_if(Reg::R0, Compare::Unequal, 0, end);
            asm.alu(Alu::Add, Reg::R6, PIECE).alu(Alu::Add, Reg::R8, PIECE);
        }
        asm.place(end).store(Size::Word, Reg::R9, Place::USER_BYTES, Reg::R8);
        asm.load(Size::Double, Reg::R6, Reg::R10, CONTEXT).load(Size::Double, Reg::R8, Reg::R10, NOW);
    }

    /// Copies the registers that `R0` points to into the value that is `R9`.
    pub(super) fn copy_registers(self, asm: &mut Assembler<'_>) {
        asm.set(Reg::R3, Reg::R0).set(Reg::R1, Reg::R9).alu(Alu::Add, Reg::R1, i32::from(Place::STACKS));
        asm.set(Reg::R2, self.registers_bytes).call(Helper::ProbeReadKernel);
        asm.store(Size::Word, Reg::R9, Place::USER_BYTES, self.registers_bytes);
    }
}

/// How much of a stack is copied at once: all of it, or nothing.
const PIECE: i32 = 512;
/// How much of a stack is copied at most: what is kept of a task has to have room in 32 KiB.
const MOST_COPIED: u32 = 24 << 10;

/// Where the registers stand that a sample of perf's has (`PERF_SAMPLE_REGS_USER`), in their order there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisterPlaces {
    places: Vec<usize>,
    ip: usize,
    narrow: Option<(usize, u64)>,
    bytes: usize,
}

impl RegisterPlaces {
    /// Those of `arch/x86/include/uapi/asm/perf_regs.h` without the segments of data, or of `arch/arm64/include/uapi/asm/perf_regs.h`.
    pub(super) fn new(btf: &Btf) -> Option<Self> {
        const NAMES: [&str; 20] = [
            "ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip", "flags", "cs", "ss", "r8", "r9", "r10", "r11", "r12",
            "r13", "r14", "r15",
        ];
        let member = |name: &str| btf.offset("pt_regs", name).and_then(|at| usize::try_from(at).ok());
        let registers = Registers::new(btf)?;
        let places: Vec<usize> = if cfg!(target_arch = "x86_64") {
            NAMES.into_iter().map(member).collect::<Option<_>>()?
        } else {
            let first = member("regs")?;
            (0..31).map(|number| first + 8 * number).chain([member("sp")?, member("pc")?]).collect()
        };
        let narrow = registers.narrow.map(|(at, number)| (at as usize, number as u64));
        let bytes = places.iter().max()? + 8;
        Some(Self { places, ip: registers.ip as usize, narrow, bytes })
    }

    /// Takes apart what was copied; `None` where that is less than the registers.
    pub(super) fn read<'r>(&self, copied: &'r [u8]) -> Option<CopiedStack<'r>> {
        let (registers, memory) = copied.split_at_checked(self.bytes)?;
        let word = |at: usize| registers.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let is_narrow = self.narrow.is_some_and(|(at, number)| word(at).is_some_and(|word| word & 0xffff == number));
        let registers = self.places.iter().map(|&at| word(at)).collect::<Option<_>>()?;
        Some(CopiedStack { registers, ip: word(self.ip)?, is_narrow, memory })
    }
}

/// Registers and stack of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedStack<'r> {
    /// In the order in which a sample of perf's has them.
    pub registers: Vec<u64>,
    /// The instruction pointer among them.
    pub ip: u64,
    /// Whether the program is one of 32 bits.
    pub is_narrow: bool,
    /// From the stack pointer upwards, a multiple of 8.
    pub memory: &'r [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_is_taken_apart() {
        let places = RegisterPlaces { places: vec![8, 0], ip: 0, narrow: Some((8, 0x23)), bytes: 16 };
        let copied = [[7_u64, 0x23].map(u64::to_ne_bytes).concat(), vec![1; 8]].concat();
        let expected = CopiedStack { registers: vec![0x23, 7], ip: 7, is_narrow: true, memory: &[1; 8] };
        assert_eq!(places.read(&copied), Some(expected));
        assert!(places.read(&copied[..16]).is_some_and(|copied| copied.memory.is_empty()));
        // That of a thread of the kernel has nothing.
        assert_eq!((places.read(&copied[..15]), places.read(&[])), (None, None));
    }
}
