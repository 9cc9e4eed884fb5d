//! What the programs of the kernel have in common: system calls, and how they begin and end.
#![no_std]

#[path = "../../abi.rs"]
pub mod abi;

use core::arch::asm;
use core::fmt::{self, Write};

/// A system call.
pub fn call(number: u64, [first, second, third]: [u64; 3]) -> u64 {
    let result;
    // SAFETY: (1) The kernel changes `x0` only, and reads memory only where it is told to.
    unsafe {
        asm!("svc #0", in("x8") number, inlateout("x0") first => result, in("x1") second, in("x2") third, options(nostack));
    }
    result
}

/// Ends the program.
pub fn exit(status: u64) -> ! {
    loop {
        call(abi::EXIT, [status, 0, 0]);
    }
}

/// A copy of the program: `None` in the copy, the number of the copy otherwise.
pub fn fork() -> Option<u64> {
    match call(abi::FORK, [0; 3]) {
        0 => None,
        pid => Some(pid),
    }
}

/// Goes on as another program; returns where there is none.
pub fn exec(name: &str, argument: u64) {
    call(abi::EXEC, [name.as_ptr() as u64, name.len() as u64, argument]);
}

/// The same, as a program that has other rights.
pub fn exec_setuid(name: &str, argument: u64) {
    call(abi::EXEC_SETUID, [name.as_ptr() as u64, name.len() as u64, argument]);
}

/// Answers the order before, and waits for the next one.
pub fn next_order(answer: u64) -> [u64; 4] {
    let mut order = [answer, 0, 0, 0];
    let [first, second, third, fourth] = &mut order;
    // SAFETY: (1) The kernel changes `x0` to `x3` only.
    unsafe {
        asm!("svc #0", in("x8") abi::NEXT_ORDER, inlateout("x0") *first, lateout("x1") *second, lateout("x2") *third,
            lateout("x3") *fourth, options(nostack));
    }
    order
}

/// The number and status of a child that has ended.
pub fn wait() -> Option<(u64, u64)> {
    match call(abi::WAIT, [0; 3]) {
        abi::FAILED => None,
        result => Some((result & 0xffff_ffff, result >> 32)),
    }
}

/// Comes to a fresh page for the first time, by its number.
pub fn touch(page: u64) {
    let word = core::ptr::with_exposed_provenance_mut::<u64>((abi::FRESH + page * 4096) as usize);
    // SAFETY: (1) The kernel maps a page there, which nothing else comes to.
    unsafe { word.write_volatile(page) };
}

/// Makes a software increment, which each counter of them counts.
pub fn increment() {
    // SAFETY: (1) It changes no memory; the kernel lets EL0 do it.
    unsafe { asm!("msr pmswinc_el0, {}", in(reg) 0x7fff_ffff_u64, options(nomem, nostack)) };
}

/// Executes two instructions a round, `rounds` times.
pub fn rounds(rounds: u64) {
    // SAFETY: (1) It changes one register.
    unsafe { asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) rounds => _, options(nomem, nostack)) };
}

/// The time, in ns.
pub fn clock() -> u64 {
    call(abi::CLOCK, [0; 3])
}

/// Text to the console.
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        call(abi::WRITE, [text.as_ptr() as u64, text.len() as u64, 0]);
        Ok(())
    }
}

/// Makes a function of the argument, which returns the status, a program.
#[macro_export]
macro_rules! program {
    ($main:expr) => {
        core::arch::global_asm!(".section .text.start, \"ax\"", ".global _start", "_start:", "b program_main");

        // SAFETY: (1) The name is that which the program begins with; there is no other of it.
        #[unsafe(no_mangle)]
        extern "C" fn program_main(argument: u64) -> ! {
            let main: fn(u64) -> u64 = $main;
            $crate::exit(main(argument))
        }

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            $crate::exit(101)
        }
    };
}
