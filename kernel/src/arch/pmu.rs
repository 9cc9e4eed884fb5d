//! The counters of a CPU: PMUv3.
//!
//! Each call is about the CPU that it runs on. A counter has a number; the last one, [`counters`], is that of cycles.

use core::arch::asm;

/// The number of the counter of cycles in the registers of bits.
const CYCLES: u32 = 31;

macro_rules! write {
    ($register:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: (1) A register of the PMU changes no memory.
        unsafe { asm!(concat!("msr ", $register, ", {}"), in(reg) value, options(nomem, nostack)) }
    }};
}

macro_rules! read {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: (1) As above.
        unsafe { asm!(concat!("mrs {}, ", $register), out(reg) value, options(nomem, nostack)) }
        value
    }};
}

/// How many counters there are beside that of cycles.
pub fn counters() -> u32 {
    (read!("pmcr_el0") >> 11 & 0x1f) as u32
}

/// How wide counters are: 64 bits with PMUv3p5, which lets them overflow there.
pub fn width_bits() -> u8 {
    if read!("id_aa64dfr0_el1") >> 8 & 0xf >= 6 { 64 } else { 32 }
}

/// Whether this CPU can count an event by its number (below 64).
pub fn has_event(event: u64) -> bool {
    match event {
        0..32 => read!("pmceid0_el0") >> event & 1 == 1,
        32..64 => read!("pmceid1_el0") >> (event - 32) & 1 == 1,
        _ => false,
    }
}

/// Sets the PMU of this CPU up, with nothing counting. Programs may increment [`SW_INCR`]; nothing else is theirs.
pub fn init() {
    write!("pmcntenclr_el0", u64::from(u32::MAX));
    write!("pmintenclr_el1", u64::from(u32::MAX));
    write!("pmovsclr_el0", u64::from(u32::MAX));
    // E, LC, LP: counters count, those of cycles and of events overflow at 64 bits where they can.
    write!("pmcr_el0", 1 | 1 << 6 | if width_bits() == 64 { 1 << 7 } else { 0 });
    write!("pmuserenr_el0", 0b10);
    write!("pmccfiltr_el0", 0);
}

/// Software increment: a write of EL0 to `PMSWINC_EL0`.
pub const SW_INCR: u64 = 0;
/// Instructions that were executed.
pub const INST_RETIRED: u64 = 8;
/// Cycles.
pub const CPU_CYCLES: u64 = 0x11;

/// Not while the CPU is at EL1, not while it is at EL0: the bits of a counter's type.
#[derive(Clone, Copy, Default)]
pub struct Without {
    /// EL1.
    pub kernel: bool,
    /// EL0.
    pub user: bool,
}

/// The bit of a counter.
fn bit(counter: u32) -> u64 {
    1 << if counter == counters() { CYCLES } else { counter }
}

/// Chooses what a counter counts, from a value on. It does not run yet.
pub fn program(counter: u32, event: u64, without: Without, value: u64) {
    let kind = u64::from(without.kernel) << 31 | u64::from(without.user) << 30 | event;
    if counter == counters() {
        write!("pmccfiltr_el0", kind & 0xc000_0000);
        write!("pmccntr_el0", value);
    } else {
        write!("pmselr_el0", counter.into());
        barrier();
        write!("pmxevtyper_el0", kind);
        write!("pmxevcntr_el0", value);
    }
    write!("pmovsclr_el0", bit(counter));
    write!("pmintenset_el1", bit(counter));
    barrier();
}

/// Lets a counter run.
pub fn start(counter: u32) {
    write!("pmcntenset_el0", bit(counter));
    barrier();
}

/// Stops it; it keeps its value.
pub fn stop(counter: u32) {
    write!("pmcntenclr_el0", bit(counter));
    barrier();
}

/// Stops it, and it does not interrupt.
pub fn release(counter: u32) {
    stop(counter);
    write!("pmintenclr_el1", bit(counter));
    write!("pmovsclr_el0", bit(counter));
}

/// Its value.
pub fn value(counter: u32) -> u64 {
    barrier();
    if counter == counters() {
        return read!("pmccntr_el0");
    }
    write!("pmselr_el0", counter.into());
    barrier();
    read!("pmxevcntr_el0")
}

/// Which counters have wrapped since the last question, a bit for each.
pub fn take_overflows() -> u64 {
    let wrapped = read!("pmovsclr_el0");
    write!("pmovsclr_el0", wrapped);
    let cycles = wrapped >> CYCLES & 1;
    wrapped & !(1 << CYCLES) | cycles << counters()
}

fn barrier() {
    aarch64_cpu::asm::barrier::isb(aarch64_cpu::asm::barrier::SY);
}
