//! The program that runs at a hit.
//!
//! What it is: it finds the spot that an address belongs to, reads what stands there, remembers it for the next hit, asks the
//! condition, and writes a record of its own into the ring of the CPU. Read next: [`super::hit_sample`], the part of that record which
//! is ours.
//!
//! **Invariant:** a hit that it can't judge is written. Where it can't write one either, it lets the kernel's sample pass.

use super::super::condition::{Condition, StackPlaces};
use super::hit_sample::{ADDRESS, FLAGS, HAS_OLD, HAS_VALUE, OLD, OLD_AT, VALUE, lay_out, write_and_end};
use super::maps::{PIECE, ProbeMaps};
use pmux_linux::bpf::{Alu, Assembler, Bytecode, Compare, EventContext, Helper, Label, Map, Reg, Size};

/// Whether an access was done when the machine reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watch) enum HitMoment {
    /// What stands there then is what it left.
    Behind,
    /// What stands there then is what it found.
    InFront,
}

/// Whether tasks have the same numbers in the kernel's own books as here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbers {
    /// They have.
    Ours,
    /// This is a PID namespace of its own.
    Others,
}

// The stack, from the top: the hit sample, then what is looked up and what the condition asks for.
/// The key of what stood somewhere: process and address.
const PLACE: i16 = -56;
/// What is remembered: value and time.
const MEMORY: i16 = -72;
const MASK: i16 = -80;
const TASK: i16 = -88;
const CPU: i16 = -96;
const IP: i16 = -104;
const SCRATCH: i16 = -112;

#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramSpec<'c> {
    pub(super) tag: u32,
    pub(super) context: EventContext,
    pub(super) moment: HitMoment,
    pub(super) numbers: Numbers,
    /// Hits of which it is certain that this doesn't hold are not written.
    pub(super) condition: Option<&'c Condition>,
}

impl ProgramSpec<'_> {
    fn places(&self) -> StackPlaces {
        let behind = self.moment == HitMoment::Behind;
        StackPlaces {
            value: behind.then_some(VALUE),
            old: if behind { OLD } else { VALUE },
            mask: MASK,
            task: (self.numbers == Numbers::Ours).then_some(TASK),
            cpu: CPU,
            ip: IP,
            scratch: SCRATCH,
        }
    }
}

/// The program; `None` where the condition can't be asked at the hit.
pub(super) fn assemble<'m>(look: &ProgramSpec<'_>, maps: &'m ProbeMaps, last: &'m Map) -> Option<Bytecode<'m>> {
    let mut asm = Assembler::new();
    let (judge, write) = (asm.label(), asm.label());
    // Kept: R6 the context, R7 the address of what is read, R8 the piece, R9 the time.
    asm.set(Reg::R6, Reg::R1).load(Size::Double, Reg::R7, Reg::R6, look.context.address);
    lay_out(&mut asm, look.tag, Reg::R7);
    asm.look_up(&maps.pieces, ADDRESS).jump_if(Reg::R0, Compare::Equal, 0, write).set(Reg::R8, Reg::R0);
    asm.load(Size::Double, Reg::R7, Reg::R8, PIECE.address);

    // What stands there. Code has no value.
    let (user, read) = (asm.label(), asm.label());
    asm.load(Size::Word, Reg::R2, Reg::R8, PIECE.bytes).jump_if(Reg::R2, Compare::Equal, 0, judge);
    asm.jump_if(Reg::R2, Compare::Greater, 8, write);
    asm.stack(Reg::R1, VALUE).set(Reg::R3, Reg::R7).set(Reg::R4, Reg::R7).alu(Alu::ShiftRight, Reg::R4, 63);
    asm.jump_if(Reg::R4, Compare::Equal, 0, user).call(Helper::ProbeReadKernel).jump(read);
    asm.place(user).call(Helper::ProbeReadUser);
    asm.place(read).jump_if(Reg::R0, Compare::Unequal, 0, write);
    asm.store(Size::Word, Reg::R10, FLAGS, HAS_VALUE.cast_signed());
    if look.moment == HitMoment::Behind {
        remember(&mut asm, last);
    }

    asm.place(judge);
    if let Some(condition) = look.condition {
        ask(&mut asm, condition, look, write)?;
        match look.moment {
            HitMoment::Behind => {
                asm.jump_if(Reg::R0, Compare::Unequal, 0, write);
            }
            HitMoment::InFront => follow_up(&mut asm, last, write),
        }
        // It doesn't hold: the hit is counted, here and by the kernel, and that is all.
        asm.set(Reg::R1, 1).atomic_add(Reg::R8, PIECE.missed, Reg::R1).set(Reg::R0, 0).exit();
    }

    write_and_end(&mut asm, write, maps);
    // All labels stand somewhere, and no condition that fits is as long as a jump.
    asm.finish()
}

/// `R0` points to what is remembered of this place, or is 0; its key is in [`PLACE`].
fn recall<'m>(asm: &mut Assembler<'m>, last: &'m Map) {
    let keyed = asm.label();
    // All processes see the same memory of the kernel.
    asm.set(Reg::R0, Reg::R7).alu(Alu::ShiftRight, Reg::R0, 63).store(Size::Double, Reg::R10, PLACE, 0);
    asm.jump_if(Reg::R0, Compare::Unequal, 0, keyed);
    asm.call(Helper::GetCurrentPidTgid).alu(Alu::ShiftRight, Reg::R0, 32).store(Size::Double, Reg::R10, PLACE, Reg::R0);
    asm.place(keyed).store(Size::Double, Reg::R10, PLACE + 8, Reg::R7).look_up(last, PLACE);
}

/// Remembers what is in [`MEMORY`] for the key in [`PLACE`].
fn store<'m>(asm: &mut Assembler<'m>, last: &'m Map) {
    asm.set_map(Reg::R1, last).stack(Reg::R2, PLACE).stack(Reg::R3, MEMORY).set(Reg::R4, 0).call(Helper::MapUpdate);
}

/// Swaps the value with what stood there at the hit before.
fn remember<'m>(asm: &mut Assembler<'m>, last: &'m Map) {
    let (first, done) = (asm.label(), asm.label());
    asm.call(Helper::KtimeGetNs).set(Reg::R9, Reg::R0);
    recall(asm, last);
    asm.jump_if(Reg::R0, Compare::Equal, 0, first);
    // In one step: where two hit at once, each has the other's value as the old one, or neither.
    asm.load(Size::Double, Reg::R1, Reg::R10, VALUE).atomic_swap(Reg::R0, 0, Reg::R1);
    asm.store(Size::Double, Reg::R10, OLD, Reg::R1).load(Size::Double, Reg::R1, Reg::R0, 8);
    asm.store(Size::Double, Reg::R10, OLD_AT, Reg::R1).store(Size::Double, Reg::R0, 8, Reg::R9);
    asm.store(Size::Word, Reg::R10, FLAGS, (HAS_VALUE | HAS_OLD).cast_signed()).jump(done);
    asm.place(first).load(Size::Double, Reg::R1, Reg::R10, VALUE).store(Size::Double, Reg::R10, MEMORY, Reg::R1);
    asm.store(Size::Double, Reg::R10, MEMORY + 8, Reg::R9);
    store(asm, last);
    asm.place(done);
}

/// Goes to `write` where the condition holds (`R0`), or held for the hit before: only from what this one found is it known what that
/// one left.
fn follow_up<'m>(asm: &mut Assembler<'m>, last: &'m Map, write: Label) {
    let (there, miss) = (asm.label(), asm.label());
    asm.set(Reg::R9, Reg::R0);
    recall(asm, last);
    asm.jump_if(Reg::R0, Compare::Unequal, 0, there).jump_if(Reg::R9, Compare::Equal, 0, miss);
    asm.store(Size::Double, Reg::R10, MEMORY, Reg::R9).store(Size::Double, Reg::R10, MEMORY + 8, 0);
    store(asm, last);
    asm.jump(write);
    asm.place(there).load(Size::Double, Reg::R1, Reg::R0, 0).store(Size::Double, Reg::R0, 0, Reg::R9);
    asm.jump_if(Reg::R9, Compare::Unequal, 0, write).jump_if(Reg::R1, Compare::Unequal, 0, write);
    asm.place(miss);
}

/// `R0` is 0 where the condition doesn't hold; where that can't be said, it goes to `write`.
fn ask(asm: &mut Assembler<'_>, condition: &Condition, look: &ProgramSpec<'_>, write: Label) -> Option<()> {
    let (asked, places) = (condition.asked(), look.places());
    asm.load(Size::Word, Reg::R1, Reg::R8, PIECE.judged).jump_if(Reg::R1, Compare::Equal, 0, write);
    let old = if look.moment == HitMoment::Behind { HAS_OLD } else { HAS_VALUE };
    let needed = if asked.value { HAS_VALUE } else { 0 } | if asked.old { old } else { 0 };
    if needed != 0 {
        asm.load(Size::Word, Reg::R1, Reg::R10, FLAGS).alu(Alu::And, Reg::R1, needed.cast_signed());
        asm.jump_if(Reg::R1, Compare::Unequal, needed.cast_signed(), write);
    }
    asm.load(Size::Double, Reg::R1, Reg::R8, PIECE.mask).store(Size::Double, Reg::R10, MASK, Reg::R1);
    if asked.task && places.task.is_some() {
        asm.call(Helper::GetCurrentPidTgid).store(Size::Double, Reg::R10, TASK, Reg::R0);
    }
    if asked.cpu {
        asm.call(Helper::GetSmpProcessorId).store(Size::Double, Reg::R10, CPU, Reg::R0);
    }
    if asked.ip {
        asm.load(Size::Double, Reg::R1, Reg::R6, look.context.ip).store(Size::Double, Reg::R10, IP, Reg::R1);
    }
    condition.compile(asm, &places)
}
