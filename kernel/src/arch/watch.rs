//! The watchpoints of a CPU: its debug registers for data.
//!
//! Each call is about the CPU that it runs on. Only accesses of EL0 are watched for.

use aarch64_cpu::asm::barrier;
use core::arch::asm;

/// How many of them are used: each CPU has as many at least that can be used by number here.
pub const WATCHPOINTS: usize = 4;

/// A range of addresses that is watched, within 8 bytes that are aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its first address.
    pub address: u64,
    /// Bytes: 1 to 8.
    pub length: u64,
    /// Whether reads are meant.
    pub reads: bool,
    /// Whether writes are meant.
    pub writes: bool,
}

impl Range {
    /// Whether an access to this address is meant.
    pub fn has(&self, address: u64) -> bool {
        (self.address..self.address + self.length).contains(&address)
    }

    fn control(&self) -> u64 {
        /// E, and EL0 only.
        const ON: u64 = 1 | 0b10 << 1;
        let bytes = ((1 << self.length) - 1) << (self.address % 8);
        ON | u64::from(self.reads) << 3 | u64::from(self.writes) << 4 | bytes << 5
    }
}

macro_rules! registers {
    ($number:expr, $value:expr, $control:expr; $($n:literal),*) => {
        match $number {
            // SAFETY: (1) A debug register changes no memory.
            $($n => unsafe {
                asm!(
                    concat!("msr dbgwvr", $n, "_el1, {}"),
                    concat!("msr dbgwcr", $n, "_el1, {}"),
                    in(reg) $value, in(reg) $control, options(nomem, nostack)
                )
            },)*
            number => panic!("there is no watchpoint {number}"),
        }
    };
}

/// Watches a range with a watchpoint, or nothing.
pub fn set(number: usize, range: Option<Range>) {
    let (value, control): (u64, u64) = range.map_or((0, 0), |range| (range.address & !7, range.control()));
    registers!(number, value, control; 0, 1, 2, 3);
    barrier::isb(barrier::SY);
}

/// Sets this CPU up, with nothing watched.
pub fn init() {
    // SAFETY: (1) The registers change no memory: the OS lock goes, so that debug exceptions come at all.
    unsafe { asm!("msr oslar_el1, xzr", options(nomem, nostack)) };
    (0..WATCHPOINTS).for_each(|number| set(number, None));
    set_control(MONITOR);
}

/// Debug exceptions come.
const MONITOR: u64 = 1 << 15;
/// EL0 is stepped, where its state says so ([`STEP`]).
const SINGLE_STEP: u64 = 1;

fn set_control(value: u64) {
    // SAFETY: (1) As above.
    unsafe { asm!("msr mdscr_el1, {}", in(reg) value, options(nomem, nostack)) };
    barrier::isb(barrier::SY);
}

/// In a [`super::Frame`]'s state: one instruction, then an exception; without interrupts before that.
pub const STEP: u64 = 1 << 21 | 1 << 7 | 1 << 6;

/// Whether EL0 is stepped on this CPU.
pub fn step(on: bool) {
    set_control(if on { MONITOR | SINGLE_STEP } else { MONITOR });
}
