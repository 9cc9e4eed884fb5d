//! Instructions and their bytes.
//!
//! **Invariant:** pure. Only those that are needed have a name. Source: `Documentation/bpf/standardization/instruction-set.rst`
//! (RFC 9669).

/// A register. `R0` is what a call or the program answers, `R1` to `R5` are what a call is given (and lost in it), `R6` to `R9`
/// are kept, `R10` is the end of the stack of 512 bytes. At the beginning `R1` points to what the program is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the numbers say it")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// How many bytes are loaded or stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// 4.
    Word = 0x00,
    /// 8.
    Double = 0x18,
}

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are what they are everywhere")]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
}

/// When a jump is taken; numbers have 64 bits and no sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// They are the same.
    Equal = 0x10,
    /// They are not.
    Unequal = 0x50,
    /// The left one is greater.
    Greater = 0x20,
    /// It is greater, or the same.
    GreaterOrEqual = 0x30,
    /// It is less.
    Less = 0xa0,
    /// It is less, or the same.
    LessOrEqual = 0xb0,
    /// They have a bit in common.
    Common = 0x40,
}

/// The right side of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A number, which becomes one of 64 bits with its sign.
    Number(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Number(number)
    }
}

/// A function of the kernel that a program may call. Source: `bpf-helpers(7)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Helper {
    /// `(map, *key)`: a pointer to the value, or 0.
    MapLookup = 1,
    /// `(map, *key, *value, flags)`: 0, or an error.
    MapUpdate = 2,
    /// `()`: nanoseconds of the monotonic clock.
    KtimeGetNs = 5,
    /// `()`: a random number of 32 bits.
    GetPrandomU32 = 7,
    /// `()`: the CPU.
    GetSmpProcessorId = 8,
    /// `()`: the process in the upper half, the thread in the lower one; as the first PID namespace numbers them.
    GetCurrentPidTgid = 14,
    /// `(context, map, flags or CPU, *data, bytes)`: a record in the ring of an event of a [`super::MapKind::PerfEventArray`].
    PerfEventOutput = 25,
    /// `(map, flags or CPU, *counts, 24)`: count, time enabled, time running of such an event.
    PerfEventReadValue = 55,
    /// `()`: the address of the task's structure.
    GetCurrentTask = 35,
    /// `()`: the id of the task's cgroup.
    GetCurrentCgroupId = 80,
    /// `(*into, bytes, address)`: 0, or an error; from the memory of the task.
    ProbeReadUser = 112,
    /// `(*into, bytes, address)`: 0, or an error; from the kernel's memory.
    ProbeReadKernel = 113,
    /// `(level)`: the id of the ancestor of the task's cgroup at that level; 0 where there is none.
    GetCurrentAncestorCgroupId = 123,
    /// `(context, *into, bytes, flags)`: how many bytes of addresses, or an error; the call chain of the task that runs.
    GetStack = 67,
    /// `(task, *into, bytes, flags)`: the same of a task that sleeps: its part in the kernel.
    GetTaskStack = 141,
    /// `(map, *key)`: 0, or an error.
    MapDelete = 3,
    /// `()`: the task, as the verifier knows it.
    GetCurrentTaskBtf = 158,
    /// `(sequence, *data, bytes)`: 0, or an error; adds to what an iterator writes.
    SeqWrite = 127,
    /// `(task)`: the registers that it had when it entered the kernel, as the verifier knows them. Since Linux 5.15.
    TaskPtRegs = 175,
}

/// One instruction, or half of a wide one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    opcode: u8,
    to: u8,
    from: u8,
    pub(super) offset: i16,
    number: i32,
}

/// The right side is a register.
const FROM_REG: u8 = 0x08;
/// Computes with 64 bits.
pub(super) const ALU64: u8 = 0x07;
pub(super) const JUMP: u8 = 0x05;
/// A source "register" that says: the number is the descriptor of a map.
pub(super) const PSEUDO_MAP: u8 = 1;

impl Instruction {
    pub(super) const fn new(opcode: u8, to: Reg, from: u8, offset: i16, number: i32) -> Self {
        Self { opcode, to: to as u8, from, offset, number }
    }

    pub(super) fn with(opcode: u8, to: Reg, operand: Operand) -> Self {
        match operand {
            Operand::Reg(from) => Self::new(opcode | FROM_REG, to, from as u8, 0, 0),
            Operand::Number(number) => Self::new(opcode, to, 0, 0, number),
        }
    }

    pub(super) fn bytes(self) -> [u8; 8] {
        let registers =
            if cfg!(target_endian = "little") { self.to | self.from << 4 } else { self.to << 4 | self.from };
        let (offset, number) = (self.offset.to_ne_bytes(), self.number.to_ne_bytes());
        [self.opcode, registers, offset[0], offset[1], number[0], number[1], number[2], number[3]]
    }
}
