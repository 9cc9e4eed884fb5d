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
    Word,
    /// 8.
    Double,
}

impl Size {
    const fn bits(self) -> u8 {
        match self {
            Self::Word => 0x00,
            Self::Double => 0x18,
        }
    }
}

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are what they are everywhere")]
pub enum Alu {
    Add,
    Sub,
    Mul,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Xor,
}

impl Alu {
    const fn bits(self) -> u8 {
        match self {
            Self::Add => 0x00,
            Self::Sub => 0x10,
            Self::Mul => 0x20,
            Self::Or => 0x40,
            Self::And => 0x50,
            Self::ShiftLeft => 0x60,
            Self::ShiftRight => 0x70,
            Self::Xor => 0xa0,
        }
    }
}

/// When a jump is taken; numbers have 64 bits and no sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// They are the same.
    Equal,
    /// They are not.
    Unequal,
    /// The left one is greater.
    Greater,
    /// It is greater, or the same.
    GreaterOrEqual,
    /// It is less.
    Less,
    /// It is less, or the same.
    LessOrEqual,
    /// They have a bit in common.
    Common,
}

impl Compare {
    const fn bits(self) -> u8 {
        match self {
            Self::Equal => 0x10,
            Self::Greater => 0x20,
            Self::GreaterOrEqual => 0x30,
            Self::Common => 0x40,
            Self::Unequal => 0x50,
            Self::Less => 0xa0,
            Self::LessOrEqual => 0xb0,
        }
    }
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
    MapLookup,
    /// `(map, *key, *value, flags)`: 0, or an error.
    MapUpdate,
    /// `()`: nanoseconds of the monotonic clock.
    KtimeGetNs,
    /// `()`: a random number of 32 bits.
    GetPrandomU32,
    /// `()`: the CPU.
    GetSmpProcessorId,
    /// `()`: the process in the upper half, the thread in the lower one; as the first PID namespace numbers them.
    GetCurrentPidTgid,
    /// `(context, map, flags or CPU, *data, bytes)`: a record in the ring of an event of a [`super::MapKind::PerfEventArray`].
    PerfEventOutput,
    /// `(map, flags or CPU, *counts, 24)`: count, time enabled, time running of such an event.
    PerfEventReadValue,
    /// `()`: the address of the task's structure.
    GetCurrentTask,
    /// `()`: the id of the task's cgroup.
    GetCurrentCgroupId,
    /// `(*into, bytes, address)`: 0, or an error; from the memory of the task.
    ProbeReadUser,
    /// `(*into, bytes, address)`: 0, or an error; from the kernel's memory.
    ProbeReadKernel,
    /// `(level)`: the id of the ancestor of the task's cgroup at that level; 0 where there is none.
    GetCurrentAncestorCgroupId,
    /// `(context, *into, bytes, flags)`: how many bytes of addresses, or an error; the call chain of the task that runs.
    GetStack,
    /// `(task, *into, bytes, flags)`: the same of a task that sleeps: its part in the kernel.
    GetTaskStack,
    /// `(map, *key)`: 0, or an error.
    MapDelete,
    /// `()`: the task, as the verifier knows it.
    GetCurrentTaskBtf,
    /// `(sequence, *data, bytes)`: 0, or an error; adds to what an iterator writes.
    SeqWrite,
    /// `(task)`: the registers that it had when it entered the kernel, as the verifier knows them. Since Linux 5.15.
    TaskPtRegs,
}

impl Helper {
    const fn number(self) -> i32 {
        match self {
            Self::MapLookup => 1,
            Self::MapUpdate => 2,
            Self::MapDelete => 3,
            Self::KtimeGetNs => 5,
            Self::GetPrandomU32 => 7,
            Self::GetSmpProcessorId => 8,
            Self::GetCurrentPidTgid => 14,
            Self::PerfEventOutput => 25,
            Self::GetCurrentTask => 35,
            Self::GetStack => 67,
            Self::PerfEventReadValue => 55,
            Self::GetCurrentCgroupId => 80,
            Self::ProbeReadUser => 112,
            Self::ProbeReadKernel => 113,
            Self::GetCurrentAncestorCgroupId => 123,
            Self::SeqWrite => 127,
            Self::GetTaskStack => 141,
            Self::GetCurrentTaskBtf => 158,
            Self::TaskPtRegs => 175,
        }
    }
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
const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
/// A source "register" that says: the number is the descriptor of a map.
const PSEUDO_MAP: u8 = 1;

impl Instruction {
    const fn new(opcode: u8, to: Reg, from: u8, offset: i16, number: i32) -> Self {
        Self { opcode, to: to as u8, from, offset, number }
    }

    fn with(opcode: u8, to: Reg, operand: Operand, offset: i16) -> Self {
        match operand {
            Operand::Reg(from) => Self::new(opcode | FROM_REG, to, from as u8, offset, 0),
            Operand::Number(number) => Self::new(opcode, to, 0, offset, number),
        }
    }

    pub(super) fn alu(what: Alu, to: Reg, operand: Operand) -> Self {
        Self::with(ALU64 | what.bits(), to, operand, 0)
    }

    pub(super) fn set(to: Reg, operand: Operand) -> Self {
        Self::with(ALU64 | 0xb0, to, operand, 0)
    }

    pub(super) fn negate(to: Reg) -> Self {
        Self::new(ALU64 | 0x80, to, 0, 0, 0)
    }

    /// Sets a register to any number: two instructions.
    pub(super) fn wide(to: Reg, number: u64) -> [Self; 2] {
        let (low, high) = (number as u32, (number >> 32) as u32);
        [Self::new(0x18, to, 0, 0, low.cast_signed()), Self::new(0, Reg::R0, 0, 0, high.cast_signed())]
    }

    /// Sets a register to a map, by its descriptor.
    pub(super) fn map(to: Reg, fd: i32) -> [Self; 2] {
        [Self::new(0x18, to, PSEUDO_MAP, 0, fd), Self::new(0, Reg::R0, 0, 0, 0)]
    }

    pub(super) fn load(size: Size, to: Reg, base: Reg, offset: i16) -> Self {
        Self::new(0x61 | size.bits(), to, base as u8, offset, 0)
    }

    pub(super) fn store(size: Size, base: Reg, offset: i16, operand: Operand) -> Self {
        match operand {
            Operand::Reg(from) => Self::new(0x63 | size.bits(), base, from as u8, offset, 0),
            Operand::Number(number) => Self::new(0x62 | size.bits(), base, 0, offset, number),
        }
    }

    /// Adds a register to 8 bytes of memory, at once.
    pub(super) fn atomic_add(base: Reg, offset: i16, from: Reg) -> Self {
        Self::new(0xdb, base, from as u8, offset, 0)
    }

    /// Swaps a register with 8 bytes of memory, at once.
    pub(super) fn atomic_swap(base: Reg, offset: i16, with: Reg) -> Self {
        Self::new(0xdb, base, with as u8, offset, 0xe1)
    }

    /// Sets 8 bytes of memory to a register where they are what `R0` is, at once.
    pub(super) fn compare_exchange(base: Reg, offset: i16, with: Reg) -> Self {
        Self::new(0xdb, base, with as u8, offset, 0xf1)
    }

    /// The offset is set when the label's place is known.
    pub(super) fn jump() -> Self {
        Self::new(JUMP, Reg::R0, 0, 0, 0)
    }

    pub(super) fn jump_if(left: Reg, compare: Compare, right: Operand) -> Self {
        Self::with(JUMP | compare.bits(), left, right, 0)
    }

    pub(super) fn call(helper: Helper) -> Self {
        Self::new(JUMP | 0x80, Reg::R0, 0, 0, helper.number())
    }

    pub(super) fn exit() -> Self {
        Self::new(JUMP | 0x90, Reg::R0, 0, 0, 0)
    }

    pub(super) fn bytes(self) -> [u8; 8] {
        let registers =
            if cfg!(target_endian = "little") { self.to | self.from << 4 } else { self.to << 4 | self.from };
        let (offset, number) = (self.offset.to_ne_bytes(), self.number.to_ne_bytes());
        [self.opcode, registers, offset[0], offset[1], number[0], number[1], number[2], number[3]]
    }
}
