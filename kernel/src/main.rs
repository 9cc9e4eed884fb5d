//! A small kernel: four CPUs, preemptive tasks at EL0, `fork`, `exec`, `exit`. pmux's engine counts in it.
//!
//! What it is: [`arch`] is the machine, [`sched`] decides which task runs where, [`trap`] is where exceptions and system calls come
//! in, [`program`] loads programs, [`report`] tries all of it and prints what it found. Read first: [`start`].
#![no_std]
#![no_main]

extern crate alloc;

#[path = "../abi.rs"]
mod abi;
mod arch;
mod counting;
mod host;
mod hw_breakpoint;
mod pmu;
mod program;
mod report;
mod scenario;
mod sched;
mod software;
mod stress;
mod trap;

use core::panic::PanicInfo;

/// Where each CPU comes, when the machine begins and after each CPU_ON: interrupts are off.
fn start(cpu: usize) -> ! {
    if cpu == 0 {
        println!("pmux kernel: QEMU virt, {} CPUs", arch::CPUS);
    }
    sched::begin(cpu);
    if cpu == 0 {
        for other in 1..arch::CPUS {
            assert!(arch::cpu_on(other), "CPU {other} does not start");
        }
        sched::spawn_kernel(report::run_all);
    }
    sched::idle(cpu)
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    println!("kernel panic on CPU {}: {info}", arch::cpu());
    arch::exit(2)
}
