//! What it is: a program for the lab's guest that executes a number of instructions which is known to the digit. Read
//! first: `lab/README.md`. **Invariant:** in the modes `instructions` and `steady` nothing but one loop depends on the
//! number, so two runs differ by exactly the difference of their numbers; nothing is printed unless the arguments are wrong.
//!
//! `known instructions N` is one loop of additions. `known steady N` is one loop that also loads, stores and branches: the
//! rate of every event is constant. `known bursty N` has phases of its own code, phases of system calls, and pauses, some
//! shorter and some longer than the kernel's rotation interval: an event that sees only part of the time sees the wrong
//! part. A phase costs some dozen instructions more than its loop.
//!
//! It has neither Rust's runtime nor a C library: what these do at the start depends on how long the arguments are.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char};

#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
compile_error!("known is for the guest of the lab: build it with --target aarch64-unknown-linux-musl");

const USAGE: &str = "usage: known instructions|steady|bursty N
Executes N instructions, and a constant number more. N is a multiple of 8, and at least 8.
";

/// How many instructions one pass through each of the loops executes.
const PASS: u64 = 8;

/// What a phase of a bursty run does.
enum Phase {
    /// Passes through a loop of the program's own code.
    Own(u64),
    /// Passes through a loop with a system call: most of the time is the kernel's.
    Calls(u64),
    /// Leaves the CPU for so many milliseconds.
    PauseMs(u64),
}

/// One round of a bursty run. In the lab an instruction takes 2 ns, so the own phases take 40, 0.8 and 10.6 ms.
const ROUND: [Phase; 8] = [
    Phase::Own(2_500_000),
    Phase::Calls(2_000),
    Phase::PauseMs(3),
    Phase::Own(50_000),
    Phase::Calls(30_000),
    Phase::Own(662_500),
    Phase::PauseMs(17),
    Phase::Calls(11_000),
];

// A program begins with the number of its arguments on the stack, and pointers to them above it.
global_asm!(".globl _start", "_start:", "mov x0, sp", "bl {main}", main = sym main);

/// Runs the program, and ends it.
///
/// # Safety
///
/// `stack` points to the number of arguments and then to as many strings that end with a zero.
unsafe extern "C" fn main(stack: *const usize) -> ! {
    // SAFETY: as the caller promises.
    if unsafe { *stack } != 3 {
        wrong_usage();
    }
    let arguments = stack.cast::<*const c_char>();
    // SAFETY: there are three strings, as just checked, the first of which is the program's name.
    let (mode, number) = unsafe { (*arguments.add(2), *arguments.add(3)) };
    // SAFETY: the caller promises that they are strings.
    let passes = match unsafe { parse(number) } {
        Some(number) if number >= PASS && number % PASS == 0 => number / PASS,
        _ => wrong_usage(),
    };
    // SAFETY: as above.
    let is = |name| unsafe { equal(mode, name) };
    if is(c"instructions") {
        additions(passes);
    } else if is(c"steady") {
        mixed(passes);
    } else if is(c"bursty") {
        bursty(passes);
    } else {
        wrong_usage();
    }
    exit(0)
}

fn wrong_usage() -> ! {
    // SAFETY: the text is as long as is said.
    unsafe { system_call(WRITE, 2, USAGE.as_ptr() as usize, USAGE.len()) };
    exit(64)
}

fn exit(status: usize) -> ! {
    loop {
        // SAFETY: it takes a number, and does not return.
        unsafe { system_call(EXIT_GROUP, status, 0, 0) };
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(70)
}

/// The core library refers to it, for unwinding, which there is not here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

// The numbers of system calls of aarch64 (`asm-generic/unistd.h`).
const WRITE: usize = 64;
const EXIT_GROUP: usize = 94;
const NANOSLEEP: usize = 101;

/// Makes a system call.
///
/// # Safety
///
/// What the arguments point to must be as the system call demands, and it must not change other memory of Rust's.
unsafe fn system_call(number: usize, first: usize, second: usize, third: usize) {
    // SAFETY: the kernel changes no register but x0; for memory the caller stands in.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inout("x0") first => _,
            in("x1") second,
            in("x2") third,
            options(nostack),
        );
    }
}

fn pause(pause_ns: u64) {
    // `struct timespec`: seconds and nanoseconds.
    let time = [0, pause_ns];
    // SAFETY: the time lives until after the call, which reads it and nothing else.
    unsafe { system_call(NANOSLEEP, (&raw const time) as usize, 0, 0) };
}

/// Tells whether two strings are equal, byte by byte: what the C library does depends on where in memory they are.
///
/// # Safety
///
/// `text` points to a string that ends with a zero.
unsafe fn equal(text: *const c_char, name: &CStr) -> bool {
    // SAFETY: `all` stops at the first difference, so `text` is read up to its zero at most.
    name.to_bytes_with_nul().iter().enumerate().all(|(at, &byte)| unsafe { text.add(at).cast::<u8>().read() } == byte)
}

/// Reads a decimal number of at most 19 digits, in the same number of instructions whatever it is.
///
/// # Safety
///
/// `text` points to a string that ends with a zero.
unsafe fn parse(text: *const c_char) -> Option<u64> {
    let value: u64;
    let end: *const c_char;
    // SAFETY: the loop reads the byte at `at`, which moves on only from a digit, so never past the zero that ends the
    // string. It uses the registers named here and the flags, and makes 19 passes.
    unsafe {
        asm!(
            "2:",
            "ldrb {digit:w}, [{at}]",
            "sub {digit:w}, {digit:w}, #48",
            "cmp {digit:w}, #9",
            "madd {digit}, {value}, {ten}, {digit}",
            "csel {value}, {digit}, {value}, ls",
            "cinc {at}, {at}, ls",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            at = inout(reg) text => end,
            value = inout(reg) 0_u64 => value,
            left = inout(reg) 19_u64 => _,
            ten = in(reg) 10_u64,
            digit = out(reg) _,
            options(readonly, nostack),
        );
    }
    // SAFETY: `end` is within the string, or at the zero that ends it.
    let rest = unsafe { *end };
    (rest == 0).then_some(value)
}

/// Runs phases until so many passes have been made, the last phase cut short.
fn bursty(mut passes: u64) {
    for phase in ROUND.iter().cycle() {
        match *phase {
            Phase::Own(most) => passes -= run_at_most(passes, most, additions),
            Phase::Calls(most) => passes -= run_at_most(passes, most, system_calls),
            Phase::PauseMs(pause_ms) => pause(pause_ms * 1_000_000),
        }
        if passes == 0 {
            return;
        }
    }
}

fn run_at_most(left: u64, most: u64, phase: fn(u64)) -> u64 {
    let passes = left.min(most);
    phase(passes);
    passes
}

/// Executes 8 instructions in each pass. At least one pass is made.
#[inline(never)]
fn additions(passes: u64) {
    // SAFETY: the loop uses the two registers named here and the flags, ends when the first of them reaches zero, which a
    // number that is counted down does, and touches no memory.
    unsafe {
        asm!(
            "2:",
            "add {sum}, {sum}, #1",
            "add {sum}, {sum}, #3",
            "add {sum}, {sum}, #5",
            "add {sum}, {sum}, #7",
            "add {sum}, {sum}, #11",
            "add {sum}, {sum}, #13",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            left = inout(reg) passes.max(1) => _,
            sum = inout(reg) 0_u64 => _,
            options(nomem, nostack),
        );
    }
}

/// Executes 8 instructions in each pass: two loads, a store, two branches. At least one pass is made.
#[inline(never)]
fn mixed(passes: u64) {
    let mut word = 0_u64;
    // SAFETY: the loop uses the registers named here and the flags, reads and writes only `word`, which lives until after
    // the block, and ends when the count that goes down reaches zero.
    unsafe {
        asm!(
            "2:",
            "ldr {value}, [{word}]",
            "add {value}, {value}, #1",
            "str {value}, [{word}]",
            "b 3f",
            "3:",
            "ldr {value}, [{word}]",
            "eor {value}, {value}, #1",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            left = inout(reg) passes.max(1) => _,
            word = in(reg) &raw mut word,
            value = out(reg) _,
            options(nostack),
        );
    }
}

/// Executes 8 instructions in each pass, one of them a system call (`getppid`). At least one pass is made.
#[inline(never)]
fn system_calls(passes: u64) {
    // SAFETY: system call 173 of aarch64 is getppid: it takes no argument, changes nothing, and returns its result in x0,
    // which is named as overwritten. The loop ends when the count that goes down reaches zero.
    unsafe {
        asm!(
            "2:",
            "mov x8, #173",
            "svc #0",
            "add {sum}, {sum}, #1",
            "add {sum}, {sum}, #3",
            "add {sum}, {sum}, #5",
            "add {sum}, {sum}, #7",
            "subs {left}, {left}, #1",
            "b.ne 2b",
            left = inout(reg) passes.max(1) => _,
            sum = inout(reg) 0_u64 => _,
            out("x0") _,
            out("x8") _,
            options(nostack),
        );
    }
}
