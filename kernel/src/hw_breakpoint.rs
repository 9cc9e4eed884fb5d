//! Watchpoints for the engine: the model, the registers of each CPU, and hits.
//!
//! Linux: arch/arm64/kernel/hw_breakpoint.c.
//!
//! What it is: a hit is an exception before the access. It is counted, its event is told ([`crate::host::hit`]), and the program goes on
//! for one instruction without watchpoints ([`step_over`], [`stepped`]).
//!
//! **Invariant:** the watchpoints of a CPU are touched on that CPU only. While a program is stepped, it has no interrupts, so no other
//! task runs there.

use crate::arch::lock::IrqLock;
use crate::arch::watch::{self, Range, STEP, WATCHPOINTS};
use crate::arch::{self, CPUS, Frame};
use pmux_abi::attr::{Attr, EventType, breakpoint};
use pmux_engine::hw_breakpoint::{Authority, Claim, DebugRegisters, Kind, Registers};
use pmux_engine::pmu::{
    BankError, Delegated, EventSpec, OverflowBy, ParseError, PmuCaps, PmuModel, Program, Slot, SlotMask, Slots,
};
use pmux_engine::{Cred, PmuId};

/// The registers, for the ledger.
pub const REGISTERS: DebugRegisters = DebugRegisters {
    registers: Registers::Separate { execute: 0, data: WATCHPOINTS as u8 },
    cpus: CPUS as u32,
    authority: Authority::Ledger,
};

/// What can be watched.
pub struct Watchpoints;

impl PmuModel for Watchpoints {
    fn caps(&self) -> &PmuCaps {
        const CAPS: PmuCaps = PmuCaps {
            slots: Slots::Scarce(WATCHPOINTS as u8),
            width_bits: 64,
            delegated: Delegated::empty(),
            overflow: OverflowBy::Interrupt,
        };
        &CAPS
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        if attr.kind != EventType::BREAKPOINT {
            return Err(ParseError::NoSuchEvent);
        }
        range(attr).ok_or(ParseError::NotSupported)?;
        let claim = Some(Claim::one(Kind::Data));
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask((1 << WATCHPOINTS) - 1), claim, cred: Cred::HOST })
    }
}

/// What a breakpoint watches; `None` for what a watchpoint can't.
fn range(attr: &Attr) -> Option<Range> {
    let (address, length) = (attr.config1, attr.config2);
    let (reads, writes) = (attr.bp_type & breakpoint::R != 0, attr.bp_type & breakpoint::W != 0);
    let fits = matches!(length, 1..=8) && address % 8 + length <= 8;
    (fits && (reads || writes) && attr.bp_type & !breakpoint::RW == 0).then_some(Range {
        address,
        length,
        reads,
        writes,
    })
}

/// A watchpoint of a CPU.
#[derive(Clone, Copy)]
struct Watchpoint {
    range: Option<Range>,
    runs: bool,
    hits: u64,
}

static WATCHED: [IrqLock<[Watchpoint; WATCHPOINTS]>; CPUS] =
    [const { IrqLock::new([Watchpoint { range: None, runs: false, hits: 0 }; WATCHPOINTS]) }; CPUS];

fn with<R>(slot: Slot, work: impl FnOnce(&mut Watchpoint) -> R) -> R {
    let mut watched = WATCHED[arch::cpu()].lock();
    let watchpoint = &mut watched[slot.0 as usize];
    let result = work(watchpoint);
    watch::set(slot.0 as usize, watchpoint.range.filter(|_| watchpoint.runs));
    result
}

/// [`pmux_engine::pmu::CounterBank::program`], for a watchpoint of this CPU.
///
/// # Errors
/// [`BankError::NotSupported`] for what [`Watchpoints`] does not take.
pub fn program(slot: Slot, program: &Program) -> Result<(), BankError> {
    let range = range(&program.spec.attr).ok_or(BankError::NotSupported)?;
    with(slot, |watchpoint| *watchpoint = Watchpoint { range: Some(range), runs: false, hits: program.start });
    Ok(())
}

/// It watches, or it does not.
pub fn run(slot: Slot, runs: bool) {
    with(slot, |watchpoint| watchpoint.runs = runs);
}

/// How many hits there were.
pub fn hits(slot: Slot) -> u64 {
    with(slot, |watchpoint| watchpoint.hits)
}

/// It watches nothing.
pub fn release(slot: Slot) {
    with(slot, |watchpoint| *watchpoint = Watchpoint { range: None, runs: false, hits: 0 });
}

/// A program comes to an address that is watched; answers for which slots. With interrupts off.
pub fn hit(address: u64) -> impl Iterator<Item = Slot> {
    let mut watched = WATCHED[arch::cpu()].lock();
    let mut hit = [false; WATCHPOINTS];
    for (watchpoint, hit) in watched.iter_mut().zip(&mut hit) {
        *hit = watchpoint.runs && watchpoint.range.is_some_and(|range| range.has(address));
        watchpoint.hits += u64::from(*hit);
    }
    (0..WATCHPOINTS as u32).filter(move |&slot| hit[slot as usize]).map(Slot)
}

/// The program goes on for one instruction, without watchpoints. With interrupts off, last before it goes on.
pub fn step_over(frame: &mut Frame) {
    (0..WATCHPOINTS).for_each(|number| watch::set(number, None));
    frame.state |= STEP;
    watch::step(true);
}

/// An exception has come from a program that was stepped, or not: watchpoints are as they were. With interrupts off.
pub fn stepped(frame: &mut Frame) {
    if frame.state & STEP == 0 {
        return;
    }
    frame.state &= !STEP;
    watch::step(false);
    let watched = WATCHED[arch::cpu()].lock();
    for (number, watchpoint) in watched.iter().enumerate() {
        watch::set(number, watchpoint.range.filter(|_| watchpoint.runs));
    }
}
