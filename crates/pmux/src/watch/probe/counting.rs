//! The program that counts hits.
//!
//! What it is: it looks for the slot of a thread and place in the [`super::table`], and counts. The first hits there are written
//! as records, with their callers; then only some, ever fewer, so that it is known from where the others come. What comes before all
//! is armed is counted together, in a slot whose instruction is [`EARLY`]: a program that hits all the time would fill the ring.
//!
//! **Invariant:** a hit is counted or written, never both. Where neither can be done, the kernel writes it.

use super::hit_sample::{ADDRESS, FLAGS, STANDS_FOR, VALUE, lay_out, write, write_and_end};
use super::maps::{PIECE, ProbeMaps};
use super::table::{EARLY, HEAD, SLOT, Shape, tag_bits};
use pmux_linux::bpf::{Alu, Assembler, Bytecode, Compare, EventContext, Helper, Label, Map, Reg, Size};

/// In so many slots, one behind the other, a thread and place may be.
const WAYS: i32 = 4;
/// Spreads numbers over the slots: 2 to the power of 64, divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// At first each hit is written. In sixteenths, as all gaps.
const FIRST_GAP: i32 = 16;
/// The gap grows by its eighth with each hit that is written: the first eight are written one by one, and about eight whenever their
/// number has doubled.
const GROWTH_BITS: i32 = 3;
/// It grows up to this: of more hits, one of a thousand is written.
const MOST_GAP: i32 = 1024 * 16;
/// Where a record finds no room, it is tried again so many hits later.
const RETRY: i32 = 64;

// The stack, below the hit sample.
/// Which of a CPU's slots is the first for this thread and place.
const PLACE: i16 = -48;
/// The first slot of this CPU.
const OWN: i16 = -56;
/// A slot by its number, to look it up.
const NUMBER: i16 = -60;
const HEAD_NUMBER: i16 = -64;
/// A slot that was looked up.
const FOUND: i16 = -72;

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountingSpec {
    pub(super) tag: u32,
    pub(super) context: EventContext,
    pub(super) shape: Shape,
}

/// Looks up the slot or head whose number is at a place of the stack: `R0` points to it, or the program goes on elsewhere.
fn look_up<'m>(asm: &mut Assembler<'m>, table: &'m Map, number: i16, or_else: Label) {
    asm.look_up(table, number).jump_if(Reg::R0, Compare::Equal, 0, or_else);
}

/// The program; `None` where it can't be assembled.
pub(super) fn assemble<'m>(counting: &CountingSpec, maps: &'m ProbeMaps, table: &'m Map) -> Option<Bytecode<'m>> {
    let CountingSpec { tag, context, shape } = *counting;
    let mut asm = Assembler::new();
    let (found, free, count, due, alone) = (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    let (early, early_found, early_free) = (asm.label(), asm.label(), asm.label());
    // Kept: R6 the context, R7 the task and then its slot, R8 the address, R9 the instruction.
    asm.set(Reg::R6, Reg::R1).load(Size::Double, Reg::R8, Reg::R6, context.address);
    asm.load(Size::Double, Reg::R9, Reg::R6, context.ip);
    asm.call(Helper::GetCurrentPidTgid).set(Reg::R7, Reg::R0).alu(Alu::Or, Reg::R7, tag_bits(tag));

    search(&mut asm, shape, table, &Ways { found, free, alone });

    asm.place(found).set(Reg::R7, Reg::R0).load(Size::Word, Reg::R1, Reg::R7, SLOT.left).alu(Alu::Sub, Reg::R1, 1);
    asm.store(Size::Word, Reg::R7, SLOT.left, Reg::R1).jump_if(Reg::R1, Compare::Equal, 0, due);
    asm.place(count).load(Size::Double, Reg::R1, Reg::R7, SLOT.hits).alu(Alu::Add, Reg::R1, 1);
    asm.store(Size::Double, Reg::R7, SLOT.hits, Reg::R1).call(Helper::KtimeGetNs);
    asm.store(Size::Double, Reg::R7, SLOT.last, Reg::R0).set(Reg::R0, 0).exit();

    asm.place(free);
    ask_whether_armed(&mut asm, maps, early, alone);
    claim(&mut asm, counting, table, alone);
    asm.place(due);
    write_one(&mut asm, tag, maps, count);

    // Whatever the task and the instruction were, the hit was too early.
    asm.place(early).set(Reg::R7, tag_bits(tag)).set(Reg::R9, EARLY);
    search(&mut asm, shape, table, &Ways { found: early_found, free: early_free, alone });
    asm.place(early_free).store(Size::Double, Reg::R10, FOUND, Reg::R0);
    claim(&mut asm, counting, table, alone);
    asm.jump(count).place(early_found).set(Reg::R7, Reg::R0).jump(count);
    // Where there is no slot: as if no program counted.
    let written = asm.label();
    asm.place(alone);
    lay_out(&mut asm, tag, Reg::R8);
    write_and_end(&mut asm, written, maps);
    asm.finish()
}

/// Where the search for a slot goes on. `R0` is the slot in the first two.
struct Ways {
    found: Label,
    free: Label,
    /// There is neither.
    alone: Label,
}

/// Looks for the slot of the task (`R7`), the address (`R8`) and the instruction (`R9`) on this CPU.
fn search<'m>(asm: &mut Assembler<'m>, shape: Shape, table: &'m Map, &Ways { found, free, alone }: &Ways) {
    let (slot_bits, cpus) = (shape.slot_bits.cast_signed(), shape.cpus.cast_signed());
    // Where it would be: numbers that are near each other are spread.
    asm.set_wide(Reg::R1, SPREAD).set(Reg::R2, Reg::R7).alu(Alu::Mul, Reg::R2, Reg::R1);
    asm.set(Reg::R3, Reg::R8).alu(Alu::ShiftLeft, Reg::R3, 24).alu(Alu::Add, Reg::R2, Reg::R9);
    asm.alu(Alu::Xor, Reg::R2, Reg::R3).alu(Alu::Mul, Reg::R2, Reg::R1).alu(Alu::ShiftRight, Reg::R2, 64 - slot_bits);
    asm.store(Size::Double, Reg::R10, PLACE, Reg::R2);
    asm.call(Helper::GetSmpProcessorId).jump_if(Reg::R0, Compare::GreaterOrEqual, cpus, alone);
    asm.alu(Alu::ShiftLeft, Reg::R0, slot_bits).store(Size::Double, Reg::R10, OWN, Reg::R0);
    for way in 0..WAYS {
        let (elsewhere, next) = (asm.label(), asm.label());
        asm.load(Size::Double, Reg::R1, Reg::R10, PLACE).load(Size::Double, Reg::R2, Reg::R10, OWN);
        if way > 0 {
            asm.alu(Alu::Add, Reg::R1, way).alu(Alu::And, Reg::R1, (1 << slot_bits) - 1);
        }
        asm.alu(Alu::Add, Reg::R1, Reg::R2).store(Size::Word, Reg::R10, NUMBER, Reg::R1);
        look_up(asm, table, NUMBER, alone);
        asm.load(Size::Double, Reg::R1, Reg::R0, SLOT.ip).jump_if(Reg::R1, Compare::Unequal, Reg::R9, elsewhere);
        asm.load(Size::Double, Reg::R1, Reg::R0, SLOT.task).jump_if(Reg::R1, Compare::Unequal, Reg::R7, next);
        asm.load(Size::Double, Reg::R1, Reg::R0, SLOT.address).jump_if(Reg::R1, Compare::Equal, Reg::R8, found);
        asm.jump(next);
        asm.place(elsewhere).jump_if(Reg::R1, Compare::Equal, 0, free);
        asm.place(next);
    }
    asm.jump(alone);
}

/// Puts the free slot `R0` aside, and asks whether hits on the address (`R8`) count already.
fn ask_whether_armed<'m>(asm: &mut Assembler<'m>, maps: &'m ProbeMaps, early: Label, alone: Label) {
    asm.store(Size::Double, Reg::R10, FOUND, Reg::R0).store(Size::Double, Reg::R10, ADDRESS, Reg::R8);
    look_up(asm, &maps.pieces, ADDRESS, alone);
    asm.load(Size::Word, Reg::R1, Reg::R0, PIECE.judged).jump_if(Reg::R1, Compare::Equal, 0, early);
}

/// Claims the slot that was put aside for the task (`R7`), the address (`R8`) and the instruction (`R9`); `R7` is the slot then.
fn claim<'m>(asm: &mut Assembler<'m>, counting: &CountingSpec, table: &'m Map, alone: Label) {
    let heads = counting.shape.heads().cast_signed();
    asm.call(Helper::GetSmpProcessorId).alu(Alu::Add, Reg::R0, heads);
    asm.store(Size::Word, Reg::R10, HEAD_NUMBER, Reg::R0).call(Helper::KtimeGetNs);
    asm.load(Size::Double, Reg::R1, Reg::R10, FOUND).store(Size::Double, Reg::R1, SLOT.first, Reg::R0);
    asm.store(Size::Word, Reg::R1, SLOT.gap, FIRST_GAP).store(Size::Word, Reg::R1, SLOT.weight, 1);
    look_up(asm, table, HEAD_NUMBER, alone);
    asm.load(Size::Double, Reg::R1, Reg::R10, FOUND).load(Size::Double, Reg::R2, Reg::R0, HEAD);
    asm.store(Size::Word, Reg::R1, SLOT.link, Reg::R2);
    asm.store(Size::Double, Reg::R1, SLOT.task, Reg::R7).store(Size::Double, Reg::R1, SLOT.address, Reg::R8);
    asm.store(Size::Double, Reg::R1, SLOT.ip, Reg::R9).set(Reg::R7, Reg::R1);
    asm.alu(Alu::ShiftRight, Reg::R2, 32).alu(Alu::Add, Reg::R2, 1).alu(Alu::ShiftLeft, Reg::R2, 32);
    asm.load(Size::Word, Reg::R1, Reg::R10, NUMBER).alu(Alu::Add, Reg::R1, 1).alu(Alu::Or, Reg::R1, Reg::R2);
    asm.store(Size::Double, Reg::R0, HEAD, Reg::R1);
}

/// Writes this hit, which stands for those of the slot (`R7`) that were counted before, and says when the next one will be
/// written. Where it can't be, it is counted.
fn write_one<'m>(asm: &mut Assembler<'m>, tag: u32, maps: &'m ProbeMaps, count: Label) {
    let (later, enough) = (asm.label(), asm.label());
    lay_out(asm, tag, Reg::R8);
    asm.store(Size::Word, Reg::R10, FLAGS, STANDS_FOR.cast_signed()).load(Size::Word, Reg::R1, Reg::R7, SLOT.weight);
    asm.store(Size::Double, Reg::R10, VALUE, Reg::R1);
    write(asm, maps);
    asm.jump_if(Reg::R0, Compare::Unequal, 0, later);
    // Somewhere between half of a gap and one and a half: what a program does in turns must not look as if it did one thing only.
    asm.call(Helper::GetPrandomU32).load(Size::Word, Reg::R1, Reg::R7, SLOT.gap).set(Reg::R2, Reg::R1);
    asm.alu(Alu::ShiftRight, Reg::R2, 4).alu(Alu::Mul, Reg::R0, Reg::R2).alu(Alu::ShiftRight, Reg::R0, 32);
    asm.set(Reg::R2, Reg::R1).alu(Alu::ShiftRight, Reg::R2, 5).alu(Alu::Add, Reg::R0, Reg::R2);
    asm.alu(Alu::Add, Reg::R0, 1);
    asm.store(Size::Word, Reg::R7, SLOT.left, Reg::R0).store(Size::Word, Reg::R7, SLOT.weight, Reg::R0);
    asm.jump_if(Reg::R1, Compare::GreaterOrEqual, MOST_GAP, enough);
    asm.set(Reg::R2, Reg::R1).alu(Alu::ShiftRight, Reg::R2, GROWTH_BITS).alu(Alu::Add, Reg::R1, Reg::R2);
    asm.store(Size::Word, Reg::R7, SLOT.gap, Reg::R1);
    asm.place(enough).set(Reg::R0, 0).exit();

    asm.place(later).load(Size::Word, Reg::R1, Reg::R7, SLOT.weight).alu(Alu::Add, Reg::R1, RETRY);
    asm.store(Size::Word, Reg::R7, SLOT.weight, Reg::R1).store(Size::Word, Reg::R7, SLOT.left, RETRY).jump(count);
}
