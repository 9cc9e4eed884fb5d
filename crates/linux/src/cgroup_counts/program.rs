//! The program that runs at each switch of tasks.
//!
//! It knows neither who comes nor how the kernel keeps its tasks: it asks for the cgroup of the task that still is the current one.
//! Interrupts are off while it runs, so on one CPU it never meets itself, and no other code writes what is that CPU's.
//!
//! Not every switch is told: on some kernels a few in a thousand pass by the tracepoint (seen on 6.18; `perf stat -a -e
//! '{sched:sched_switch,context-switches}'` shows it). So one more event is read, the one that counts switches: where it has gone
//! on by more than one, a task has run in between of which nothing is known, and what was counted belongs to no cgroup.
//!
//! **Invariant:** an event that can't be read is forgotten; the next reading of it is where its count begins. Nothing is given to a
//! cgroup that another one may have counted.

use super::{Maps, NO_CGROUP};
use crate::bpf::{Alu, Assembler, Bytecode, Compare, Helper, Label, Reg, Size};

/// How deep a cgroup may be and still be known to all above it: those deeper are given to the first so many.
pub(super) const LEVELS: usize = 16;
/// Count, time enabled, time running: what the kernel tells of an event, and what is added up.
pub(super) const SUM_BYTES: usize = 24;
/// The same as it was last, behind a word that says whether it was ever.
const LAST_BYTES: usize = 32;
/// Places of different CPUs share no line of a cache.
const LINE_BYTES: usize = 64;

/// How many events on how many CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) events: usize,
    pub(super) cpus: usize,
}

impl Shape {
    pub(super) const fn sum_bytes(self) -> usize {
        self.events * SUM_BYTES
    }

    pub(super) const fn place_bytes(self) -> usize {
        (self.read() * LAST_BYTES).next_multiple_of(LINE_BYTES)
    }

    /// How many events are read on a CPU: the last one counts switches.
    pub(super) const fn read(self) -> usize {
        self.events + 1
    }

    /// Where an event stands among all.
    pub(super) const fn index(self, cpu: u32, event: usize) -> u32 {
        cpu * self.read() as u32 + event as u32
    }
}

// What stands where on the stack, below R10.
const CPU: i16 = -4;
const ZERO: i16 = -8;
const CGROUP: i16 = -16;
const VALUE: i16 = CGROUP - SUM_BYTES as i16;
const LINEAGE: i16 = VALUE - 8 * LEVELS as i16;

const fn at(place: usize) -> i16 {
    // Events are few: see `MOST_EVENTS`.
    place as i16
}

pub(super) fn assemble(shape: Shape, maps: &Maps) -> Option<Bytecode<'_>> {
    let mut asm = Assembler::new();
    let (out, known) = (asm.label(), asm.label());
    asm.call(Helper::GetSmpProcessorId).set(Reg::R6, Reg::R0).store(Size::Word, Reg::R10, CPU, Reg::R6);
    asm.look_up(&maps.places, CPU).jump_if(Reg::R0, Compare::Equal, 0, out).set(Reg::R7, Reg::R0);
    asm.call(Helper::GetCurrentCgroupId).store(Size::Double, Reg::R10, CGROUP, Reg::R0);
    asm.look_up(&maps.sums, CGROUP).jump_if(Reg::R0, Compare::Unequal, 0, known);
    meet(&mut asm, maps, out);
    asm.look_up(&maps.sums, CGROUP).jump_if(Reg::R0, Compare::Unequal, 0, known);
    // There is no room for it.
    load_unattributed(&mut asm, maps, out);
    asm.place(known).set(Reg::R8, Reg::R0).alu(Alu::Mul, Reg::R6, shape.read() as i32);
    see_switches(&mut asm, maps, shape.events, out);
    for event in 0..shape.events {
        account(&mut asm, maps, event);
    }
    asm.place(out).set(Reg::R0, 0).exit();
    asm.finish()
}

/// A cgroup runs for the first time: who is above it, and that it has counted nothing.
fn meet<'m>(asm: &mut Assembler<'m>, maps: &'m Maps, out: Label) {
    for level in 0..LEVELS {
        asm.set(Reg::R1, level as i32).call(Helper::GetCurrentAncestorCgroupId);
        asm.store(Size::Double, Reg::R10, LINEAGE + at(8 * level), Reg::R0);
    }
    asm.set_map(Reg::R1, &maps.lineages).stack(Reg::R2, CGROUP).stack(Reg::R3, LINEAGE);
    asm.set(Reg::R4, 0).call(Helper::MapUpdate);
    asm.store(Size::Word, Reg::R10, ZERO, 0).look_up(&maps.zeros, ZERO);
    asm.jump_if(Reg::R0, Compare::Equal, 0, out).set(Reg::R3, Reg::R0);
    // Only where it isn't there: another CPU may have met it as well.
    asm.set_map(Reg::R1, &maps.sums).stack(Reg::R2, CGROUP).set(Reg::R4, 1).call(Helper::MapUpdate);
}

/// `R0` = the sums of what belongs to no cgroup.
fn load_unattributed<'m>(asm: &mut Assembler<'m>, maps: &'m Maps, out: Label) {
    asm.store(Size::Double, Reg::R10, CGROUP, NO_CGROUP as i32).look_up(&maps.sums, CGROUP);
    asm.jump_if(Reg::R0, Compare::Equal, 0, out);
}

/// The value of an event on the stack; jumps where there is none.
fn read<'m>(asm: &mut Assembler<'m>, maps: &'m Maps, event: usize, none: Label) {
    asm.set_map(Reg::R1, &maps.events).set(Reg::R2, Reg::R6).alu(Alu::Add, Reg::R2, event as i32);
    asm.stack(Reg::R3, VALUE).set(Reg::R4, SUM_BYTES as i32).call(Helper::PerfEventReadValue);
    asm.jump_if(Reg::R0, Compare::Unequal, 0, none);
}

/// `R8` becomes the sums of what belongs to no cgroup where switches have passed by since the last time. This one is counted only
/// when it has been made: there is at most the one before.
fn see_switches<'m>(asm: &mut Assembler<'m>, maps: &'m Maps, event: usize, out: Label) {
    let (none, seen, last) = (asm.label(), asm.label(), at(event * LAST_BYTES));
    read(asm, maps, event, none);
    asm.load(Size::Double, Reg::R1, Reg::R7, last).store(Size::Double, Reg::R7, last, 1);
    asm.load(Size::Double, Reg::R3, Reg::R10, VALUE).load(Size::Double, Reg::R4, Reg::R7, last + 8);
    asm.store(Size::Double, Reg::R7, last + 8, Reg::R3);
    asm.jump_if(Reg::R1, Compare::Equal, 0, seen).alu(Alu::Sub, Reg::R3, Reg::R4);
    asm.jump_if(Reg::R3, Compare::LessOrEqual, 1, seen);
    load_unattributed(asm, maps, out);
    asm.set(Reg::R8, Reg::R0).jump(seen);
    asm.place(none).store(Size::Double, Reg::R7, last, 0);
    asm.place(seen);
}

/// Reads an event, and adds what it has counted since the last time to the sums at `R8`.
fn account<'m>(asm: &mut Assembler<'m>, maps: &'m Maps, event: usize) {
    let (none, next) = (asm.label(), asm.label());
    let (last, sum) = (at(event * LAST_BYTES), at(event * SUM_BYTES));
    read(asm, maps, event, none);
    asm.load(Size::Double, Reg::R1, Reg::R7, last).store(Size::Double, Reg::R7, last, 1);
    for word in 0..3 {
        let (skip, offset) = (asm.label(), 8 * word);
        asm.load(Size::Double, Reg::R3, Reg::R10, VALUE + offset);
        asm.load(Size::Double, Reg::R4, Reg::R7, last + 8 + offset);
        asm.store(Size::Double, Reg::R7, last + 8 + offset, Reg::R3);
        asm.jump_if(Reg::R1, Compare::Equal, 0, skip).jump_if(Reg::R3, Compare::Less, Reg::R4, skip);
        asm.alu(Alu::Sub, Reg::R3, Reg::R4).load(Size::Double, Reg::R5, Reg::R8, sum + offset);
        asm.alu(Alu::Add, Reg::R5, Reg::R3).store(Size::Double, Reg::R8, sum + offset, Reg::R5);
        asm.place(skip);
    }
    asm.jump(next).place(none).store(Size::Double, Reg::R7, last, 0);
    asm.place(next);
}
