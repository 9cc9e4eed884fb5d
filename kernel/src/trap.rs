//! Where exceptions come in: interrupts, system calls, faults.

use crate::abi;
use crate::arch::{self, Exception, Frame, gic};
use crate::{host, hw_breakpoint, println, program, scenario, sched};
use alloc::vec;
use pmux_engine::engine::Exec;

/// Longest text and name that a program may give.
const MOST_BYTES: u64 = 4096;

/// An exception. Interrupts are off.
pub fn exception(frame: &mut Frame, what: Exception, from_user: bool) {
    if from_user {
        hw_breakpoint::stepped(frame);
    }
    match what {
        Exception::Interrupt => gic::serve(|interrupt| match interrupt {
            gic::TIMER => {
                sched::tick();
                host::tick();
            }
            gic::COUNTERS => host::overflowed(),
            gic::CALL => {
                host::called();
                sched::called();
            }
            other => panic!("interrupt {other:?} was not asked for"),
        }),
        Exception::SystemCall => arch::with_interrupts(|| system_call(frame)),
        Exception::Watchpoint { address } => {
            let slots = hw_breakpoint::hit(address);
            arch::with_interrupts(|| slots.for_each(|slot| host::hit(slot, frame.pc, address)));
            return hw_breakpoint::step_over(frame);
        }
        Exception::Step => {}
        Exception::PageFault { address } if sched::page_fault(address) => {}
        Exception::PageFault { address } => faulted(frame, 0x24, address),
        Exception::Fault { class, address } if from_user => faulted(frame, class, address),
        Exception::Fault { class, address } => {
            panic!("fault of class {class:#x} at {:#x}, address {address:#x}", frame.pc)
        }
    }
    if from_user {
        sched::preempt();
    }
}

/// The program that runs here has done what it must not.
fn faulted(frame: &Frame, class: u64, address: u64) -> ! {
    let pid = sched::current().pid;
    println!("task {pid}: fault of class {class:#x} at {:#x}, address {address:#x}", frame.pc);
    sched::exit(abi::FAULTED)
}

/// A system call. Interrupts are on.
fn system_call(frame: &mut Frame) {
    let [first, second, third] = [frame.x[0], frame.x[1], frame.x[2]];
    let result = match frame.x[8] {
        abi::EXIT => sched::exit(first as u32),
        abi::FORK => sched::fork(frame).pid,
        abi::EXEC | abi::EXEC_SETUID => {
            let rights = if frame.x[8] == abi::EXEC { Exec::Plain } else { Exec::ChangesRights };
            let name = text(first, second).and_then(|name| alloc::string::String::from_utf8(name).ok());
            match name.and_then(|name| program::load(&name)) {
                Some(program) => return sched::exec(program, third, rights, frame),
                None => abi::FAILED,
            }
        }
        abi::WAIT => sched::wait().map_or(abi::FAILED, |(pid, status)| pid | u64::from(status) << 32),
        abi::YIELD => {
            sched::schedule();
            0
        }
        abi::WRITE => match text(first, second) {
            Some(bytes) => {
                arch::console::CONSOLE.lock().bytes(&bytes);
                second
            }
            None => abi::FAILED,
        },
        abi::SET_AFFINITY if first as u32 & sched::ALL != 0 => {
            sched::current().set_affinity(first as u32 & sched::ALL);
            sched::schedule();
            0
        }
        abi::GET_CPU => {
            let _off = arch::InterruptsOff::new();
            arch::cpu() as u64
        }
        abi::CLOCK => arch::now_ns(),
        abi::CPU_TIME => sched::current().totals.ran_ns(),
        abi::NEXT_ORDER => {
            let order = scenario::next_order(first);
            frame.x[..4].copy_from_slice(&order);
            order[0]
        }
        abi::GET_PID => sched::current().pid,
        _ => abi::FAILED,
    };
    frame.x[0] = result;
}

/// Bytes of the memory of the task that calls.
fn text(at: u64, length: u64) -> Option<vec::Vec<u8>> {
    if length > MOST_BYTES {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    sched::current().space()?.read(at, &mut bytes)?;
    Some(bytes)
}
