//! A condition as instructions, for a program that runs at the hit.
//!
//! What it is: the tree, computed the way that `number` does it, but where everything that is asked for is known. No jumps: the
//! kernel's verifier looks at each way through a program, and a condition of twenty comparisons would have a million.
//!
//! **Invariant:** the instructions say what [`Condition::ask`] says, for all values. Registers from `R6` on are left alone.

use super::{Condition, ConditionNode, HitField, Operator};
use pmux_linux::bpf::{Alu, Assembler, Operand, Reg, Size};

/// Where a program has what a condition can ask for: places on its stack, 8 bytes each, counted from `R10`.
#[derive(Clone, Copy, Debug)]
pub(in crate::watch) struct StackPlaces {
    /// What stands there after the hit; `None` where that can't be known at the hit.
    pub(in crate::watch) value: Option<i16>,
    pub(in crate::watch) old: i16,
    /// The bits that the data has.
    pub(in crate::watch) mask: i16,
    /// The process in the upper half, the thread in the lower one; `None` where the kernel numbers them otherwise than we do.
    pub(in crate::watch) task: Option<i16>,
    pub(in crate::watch) cpu: i16,
    pub(in crate::watch) ip: i16,
    /// The highest place for what is computed; from here down to `-512` all is free.
    pub(in crate::watch) scratch: i16,
}

/// What has to be in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::watch) struct Asked {
    pub(in crate::watch) value: bool,
    pub(in crate::watch) old: bool,
    pub(in crate::watch) task: bool,
    pub(in crate::watch) cpu: bool,
    pub(in crate::watch) ip: bool,
}

/// The end of a program's stack.
const STACK_END: i16 = -512;

impl Condition {
    /// What it asks for.
    pub(in crate::watch) fn asked(&self) -> Asked {
        let asks = |names: &[HitField]| {
            self.root.any(&|node| matches!(node, ConditionNode::Name(name) if names.contains(name)))
        };
        Asked {
            value: asks(&[HitField::Value, HitField::Changed]),
            old: asks(&[HitField::Old, HitField::Changed]),
            task: asks(&[HitField::Tid, HitField::Pid]),
            cpu: asks(&[HitField::Cpu]),
            ip: asks(&[HitField::Ip, HitField::Kernel]),
        }
    }

    /// Appends instructions after which `R0` is 0 where the condition doesn't hold; `R0` to `R5` are lost. `None` where it asks
    /// for something that has no place, or is nested too deep; then what was appended is of no use.
    pub(in crate::watch) fn compile(&self, asm: &mut Assembler<'_>, places: &StackPlaces) -> Option<()> {
        Compiler { asm, places }.node(&self.root, places.scratch)
    }
}

struct Compiler<'c, 'm> {
    asm: &'c mut Assembler<'m>,
    places: &'c StackPlaces,
}

impl Compiler<'_, '_> {
    /// `R0` is the number of the node; `free` and what is below it may be used.
    fn node(&mut self, node: &ConditionNode, free: i16) -> Option<()> {
        match node {
            ConditionNode::Number(number) => {
                match i32::try_from(*number) {
                    Ok(number) => self.asm.set(Reg::R0, number),
                    Err(_) => self.asm.set_wide(Reg::R0, *number),
                };
            }
            ConditionNode::Name(name) => return self.name(*name),
            ConditionNode::Not(node) => {
                self.node(node, free)?;
                self.nonzero(Reg::R0).alu(Alu::Xor, Reg::R0, 1);
            }
            ConditionNode::Negative(node) => {
                self.node(node, free)?;
                self.asm.negate(Reg::R0);
                self.masked();
            }
            ConditionNode::Pair(operator, left, right) => {
                if free - 8 < STACK_END {
                    return None;
                }
                self.node(left, free)?;
                self.asm.store(Size::Double, Reg::R10, free, Reg::R0);
                self.node(right, free - 8)?;
                self.asm.set(Reg::R1, Reg::R0).load(Size::Double, Reg::R0, Reg::R10, free);
                self.pair(*operator);
            }
        }
        Some(())
    }

    fn name(&mut self, name: HitField) -> Option<()> {
        let (asm, places) = (&mut *self.asm, self.places);
        match name {
            HitField::Value => asm.load(Size::Double, Reg::R0, Reg::R10, places.value?),
            HitField::Old => asm.load(Size::Double, Reg::R0, Reg::R10, places.old),
            HitField::Changed => {
                asm.load(Size::Double, Reg::R0, Reg::R10, places.value?);
                asm.load(Size::Double, Reg::R1, Reg::R10, places.old).alu(Alu::Xor, Reg::R0, Reg::R1);
                self.nonzero(Reg::R0);
                return Some(());
            }
            HitField::Tid => {
                asm.load(Size::Double, Reg::R0, Reg::R10, places.task?);
                asm.alu(Alu::ShiftLeft, Reg::R0, 32).alu(Alu::ShiftRight, Reg::R0, 32)
            }
            HitField::Pid => asm.load(Size::Double, Reg::R0, Reg::R10, places.task?).alu(Alu::ShiftRight, Reg::R0, 32),
            HitField::Cpu => asm.load(Size::Double, Reg::R0, Reg::R10, places.cpu),
            HitField::Ip => asm.load(Size::Double, Reg::R0, Reg::R10, places.ip),
            // The kernel has the upper half of all addresses.
            HitField::Kernel => asm.load(Size::Double, Reg::R0, Reg::R10, places.ip).alu(Alu::ShiftRight, Reg::R0, 63),
        };
        Some(())
    }

    /// 1 where a register is not 0; `R5` is lost.
    fn nonzero(&mut self, reg: Reg) -> &mut Self {
        // The highest bit of one of a number and its negative is set, unless it is 0.
        self.asm.set(Reg::R5, reg).negate(Reg::R5).alu(Alu::Or, reg, Reg::R5).alu(Alu::ShiftRight, reg, 63);
        self
    }

    fn alu(&mut self, what: Alu, to: Reg, operand: impl Into<Operand>) -> &mut Self {
        self.asm.alu(what, to, operand);
        self
    }

    /// `R0` has as many bits as the data.
    fn masked(&mut self) -> &mut Self {
        self.asm.load(Size::Double, Reg::R1, Reg::R10, self.places.mask).alu(Alu::And, Reg::R0, Reg::R1);
        self
    }

    /// `R0 = R0 < R1`, without signs.
    fn less(&mut self) -> &mut Self {
        // The borrow of the subtraction: out of the highest bits of both sides and of the difference.
        self.asm.set(Reg::R2, Reg::R0).alu(Alu::Xor, Reg::R2, -1).set(Reg::R3, Reg::R2);
        self.asm.alu(Alu::And, Reg::R2, Reg::R1).alu(Alu::Or, Reg::R3, Reg::R1).alu(Alu::Sub, Reg::R0, Reg::R1);
        self.asm.alu(Alu::And, Reg::R0, Reg::R3).alu(Alu::Or, Reg::R0, Reg::R2).alu(Alu::ShiftRight, Reg::R0, 63);
        self
    }

    /// `R0 = R1 < R0`.
    fn greater(&mut self) -> &mut Self {
        self.asm.set(Reg::R4, Reg::R0).set(Reg::R0, Reg::R1).set(Reg::R1, Reg::R4);
        self.less()
    }

    /// `R0 = R0 operator R1`.
    fn pair(&mut self, operator: Operator) -> &mut Self {
        match operator {
            Operator::Or => self.alu(Alu::Or, Reg::R0, Reg::R1).nonzero(Reg::R0),
            Operator::And => self.nonzero(Reg::R0).nonzero(Reg::R1).alu(Alu::And, Reg::R0, Reg::R1),
            Operator::Equal => self.alu(Alu::Xor, Reg::R0, Reg::R1).nonzero(Reg::R0).alu(Alu::Xor, Reg::R0, 1),
            Operator::Unequal => self.alu(Alu::Xor, Reg::R0, Reg::R1).nonzero(Reg::R0),
            Operator::Less => self.less(),
            Operator::GreaterOrEqual => self.less().alu(Alu::Xor, Reg::R0, 1),
            Operator::Greater => self.greater(),
            Operator::LessOrEqual => self.greater().alu(Alu::Xor, Reg::R0, 1),
            Operator::Plus => self.alu(Alu::Add, Reg::R0, Reg::R1).masked(),
            Operator::Minus => self.alu(Alu::Sub, Reg::R0, Reg::R1).masked(),
            Operator::Mask => self.alu(Alu::And, Reg::R0, Reg::R1),
        }
    }
}
