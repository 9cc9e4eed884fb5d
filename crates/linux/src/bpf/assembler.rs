//! From instructions with labels to code.
//!
//! **Invariant:** pure. A jump leads to a label that stands somewhere, or there is no code.

use super::code::{ALU64, Alu, Compare, Helper, Instruction, JUMP, Operand, PSEUDO_MAP, Reg, Size};
use super::map::Map;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, AsRawFd as _};

/// A place in the code that can be jumped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(usize);

/// Assembles a program, one instruction after the other.
///
/// ```
/// use pmux_linux::bpf::{Alu, Assembler, Compare, Operand, Reg};
/// // Answers whether its context is at an odd address.
/// let mut asm = Assembler::new();
/// let even = asm.label();
/// asm.alu(Alu::And, Reg::R1, 1).jump_if(Reg::R1, Compare::Equal, 0, even);
/// asm.set(Reg::R0, 1).exit();
/// asm.place(even).set(Reg::R0, 0).exit();
/// assert_eq!(asm.finish().map(|code| code.len()), Some(6));
/// ```
#[derive(Debug, Default)]
pub struct Assembler<'m> {
    instructions: Vec<Instruction>,
    places: Vec<Option<usize>>,
    /// Which instruction jumps to which label.
    jumps: Vec<(usize, Label)>,
    maps: PhantomData<&'m Map>,
}

/// Assembled instructions, with the maps that they name.
#[derive(Clone, Debug)]
pub struct Bytecode<'m> {
    bytes: Vec<[u8; 8]>,
    maps: PhantomData<&'m Map>,
}

impl Bytecode<'_> {
    /// How many instructions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none: no program.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[[u8; 8]] {
        &self.bytes
    }
}

impl<'m> Assembler<'m> {
    /// Begins a program.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A label that stands nowhere yet: see [`Assembler::place`].
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label stands before the next instruction. Where it stood somewhere, it stands here now.
    pub fn place(&mut self, label: Label) -> &mut Self {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(self.instructions.len());
        }
        self
    }

    fn push(&mut self, instruction: Instruction) -> &mut Self {
        self.instructions.push(instruction);
        self
    }

    /// `to = operand`.
    pub fn set(&mut self, to: Reg, operand: impl Into<Operand>) -> &mut Self {
        self.push(Instruction::with(ALU64 | 0xb0, to, operand.into()))
    }

    /// `to = number`, of any size.
    pub fn set_wide(&mut self, to: Reg, number: u64) -> &mut Self {
        let (low, high) = (number as u32, (number >> 32) as u32);
        self.push(Instruction::new(0x18, to, 0, 0, low.cast_signed()));
        self.push(Instruction::new(0, Reg::R0, 0, 0, high.cast_signed()))
    }

    /// `to = map`, for helpers that take one.
    pub fn set_map(&mut self, to: Reg, map: &'m Map) -> &mut Self {
        self.push(Instruction::new(0x18, to, PSEUDO_MAP, 0, map.as_fd().as_raw_fd()));
        self.push(Instruction::new(0, Reg::R0, 0, 0, 0))
    }

    /// `to = R10 + place`: the address of a place on the stack.
    pub fn stack(&mut self, to: Reg, place: i16) -> &mut Self {
        self.set(to, Reg::R10).alu(Alu::Add, to, i32::from(place))
    }

    /// `R0 = the address of a map's value`, or 0, by the key at a place on the stack; `R1` to `R5` are lost.
    pub fn look_up(&mut self, map: &'m Map, key: i16) -> &mut Self {
        self.set_map(Reg::R1, map).stack(Reg::R2, key).call(Helper::MapLookup)
    }

    /// `to = to what operand`.
    pub fn alu(&mut self, what: Alu, to: Reg, operand: impl Into<Operand>) -> &mut Self {
        self.push(Instruction::with(ALU64 | what as u8, to, operand.into()))
    }

    /// `to = -to`.
    pub fn negate(&mut self, to: Reg) -> &mut Self {
        self.push(Instruction::new(ALU64 | 0x80, to, 0, 0, 0))
    }

    /// `to = *(base + offset)`, filled up with zeros.
    pub fn load(&mut self, size: Size, to: Reg, base: Reg, offset: i16) -> &mut Self {
        self.push(Instruction::new(0x61 | size as u8, to, base as u8, offset, 0))
    }

    /// `*(base + offset) = operand`.
    pub fn store(&mut self, size: Size, base: Reg, offset: i16, operand: impl Into<Operand>) -> &mut Self {
        let operand: Operand = operand.into();
        self.push(match operand {
            Operand::Reg(from) => Instruction::new(0x63 | size as u8, base, from as u8, offset, 0),
            Operand::Number(number) => Instruction::new(0x62 | size as u8, base, 0, offset, number),
        })
    }

    /// `*(base + offset) += from`, 8 bytes, in one step that no other CPU divides.
    pub fn atomic_add(&mut self, base: Reg, offset: i16, from: Reg) -> &mut Self {
        self.push(Instruction::new(0xdb, base, from as u8, offset, 0))
    }

    /// Swaps `with` and `*(base + offset)`, 8 bytes, in one step that no other CPU divides. Since Linux 5.12.
    pub fn atomic_swap(&mut self, base: Reg, offset: i16, with: Reg) -> &mut Self {
        self.push(Instruction::new(0xdb, base, with as u8, offset, 0xe1))
    }

    /// `*(base + offset) = with` where that is what `R0` is, 8 bytes, in one step that no other CPU divides; `R0` is then what was there.
    /// Since Linux 5.12.
    pub fn compare_exchange(&mut self, base: Reg, offset: i16, with: Reg) -> &mut Self {
        self.push(Instruction::new(0xdb, base, with as u8, offset, 0xf1))
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) -> &mut Self {
        self.jumps.push((self.instructions.len(), to));
        // The offset is set when the label's place is known.
        self.push(Instruction::new(JUMP, Reg::R0, 0, 0, 0))
    }

    /// Jumps where the comparison holds.
    pub fn jump_if(&mut self, left: Reg, compare: Compare, right: impl Into<Operand>, to: Label) -> &mut Self {
        self.jumps.push((self.instructions.len(), to));
        self.push(Instruction::with(JUMP | compare as u8, left, right.into()))
    }

    /// `R0 = helper(R1, …)`; `R1` to `R5` are lost.
    pub fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(Instruction::new(JUMP | 0x80, Reg::R0, 0, 0, helper as i32))
    }

    /// Ends the program, which answers `R0`.
    pub fn exit(&mut self) -> &mut Self {
        self.push(Instruction::new(JUMP | 0x90, Reg::R0, 0, 0, 0))
    }

    /// The code, with all jumps led to their labels; `None` where one leads to a label that stands nowhere, or further than 32,767
    /// instructions.
    #[must_use]
    pub fn finish(mut self) -> Option<Bytecode<'m>> {
        for (at, label) in self.jumps {
            let place = self.places.get(label.0).copied().flatten()?;
            // From the instruction behind the jump; neither is larger than a vector can be.
            let distance = place as i64 - (at as i64 + 1);
            let offset = i16::try_from(distance).ok()?;
            if let Some(instruction) = self.instructions.get_mut(at) {
                instruction.offset = offset;
            }
        }
        let bytes = self.instructions.into_iter().map(Instruction::bytes).collect();
        Some(Bytecode { bytes, maps: PhantomData })
    }
}
