//! How many debug registers this machine has, and which breakpoint wants which.
//!
//! What it is: where the architecture says it, that; elsewhere the kernel tells only a debugger, and it is tried out on the
//! calling thread, with breakpoints that never run, in the time of some system calls.
//!
//! **Invariant:** the kernel decides who gets a register. What is said here is for the engine's account only, and where it can't be
//! found out, none is kept.

use super::opener::{EventFile, EventOpener, kernel_attr};
use super::{LinuxHost, Shared, lock};
use crate::cpus::Cpus;
use crate::sys;
use pmux_abi::attr::{Attr, AttrFlags, EventType, breakpoint};
use pmux_engine::host::HostLocks;
use pmux_engine::hw_breakpoint::{Authority, Claim, DebugRegisters, Kind, Ledger, Registers};
use pmux_engine::pmu::BankError;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{Cred, TaskId};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// More than any machine has of one kind.
const MOST: usize = 64;

/// What a breakpoint claims; the kernel counts one that waits for execution and for data with the latter.
pub(super) fn claim(attr: &Attr) -> Option<Claim> {
    let kind = if attr.bp_type & breakpoint::RW != 0 { Kind::Data } else { Kind::Execute };
    (attr.kind == EventType::BREAKPOINT).then_some(Claim::one(kind))
}

/// Those of this machine, on all CPUs that it may ever have.
pub(super) fn of_this_machine(shared: &Arc<Shared>) -> Option<DebugRegisters> {
    let cpus = Cpus::system().possible().ok()?.last()? + 1;
    let registers = match std::env::consts::ARCH {
        // DR0 to DR3.
        "x86" | "x86_64" => Registers::Shared(4),
        _ => tried_out(shared)?,
    };
    Some(DebugRegisters { registers, cpus, authority: Authority::Host })
}

/// The account of all sessions of this process: one machine, one account. It is begun anew where no session holds anything, and others
/// had held some when the registers were counted.
pub(super) fn ledger_of_this_process(found: &DebugRegisters) -> Arc<Ledger<HostLocks<LinuxHost>>> {
    static LEDGER: Mutex<Option<Arc<Ledger<HostLocks<LinuxHost>>>>> = Mutex::new(None);
    let mut ledger = lock(&LEDGER);
    let known = ledger.take().filter(|known| known.registers() == found.registers || !known.is_empty());
    let known = known.unwrap_or_else(|| Arc::new(Ledger::new(found.registers, found.cpus)));
    Arc::clone(ledger.insert(known))
}

/// Takes all that there are for this thread, and gives them back. Only a process that wants one for a whole CPU at the same
/// moment misses them. `None` where there are none, or the kernel says anything else.
fn tried_out(shared: &Arc<Shared>) -> Option<Registers> {
    let task = TaskId(u64::from(sys::current_tid().unsigned_abs()));
    let opener = EventOpener { key: ContextKey::Task(task), shared: Arc::clone(shared) };
    let all = |kind: Kind, held: &mut Vec<EventFile>| {
        let before = held.len();
        while held.len() - before < MOST {
            match opener.open(&idle(kind), (Filter::Everything, Cred::HOST), None) {
                Ok(file) => held.push(file),
                Err(BankError::SlotsExhausted) => return u8::try_from(held.len() - before).ok(),
                Err(_) => return None,
            }
        }
        None
    };
    let mut held = Vec::new();
    let data = all(Kind::Data, &mut held)?;
    let execute_beside = all(Kind::Execute, &mut held)?;
    held.clear();
    registers_of(data, execute_beside, all(Kind::Execute, &mut held)?)
}

/// What it means that there were so many for data, so many for code beside these, and so many for code alone. Where they are shared, those
/// alone are more; another process may have held some at each of these moments.
fn registers_of(data: u8, execute_beside: u8, execute_alone: u8) -> Option<Registers> {
    match (data, execute_alone) {
        (0, 0) => None,
        (_, alone) if alone > execute_beside => Some(Registers::Shared(data.max(alone))),
        _ => Some(Registers::Separate { execute: execute_beside, data }),
    }
}

/// What the breakpoints are on that never run.
static NOTHING: AtomicU64 = AtomicU64::new(0);

fn idle(kind: Kind) -> Attr {
    let address = (&raw const NOTHING) as u64;
    let (bp_type, len_bytes) = match kind {
        // Every architecture's instructions may begin at a multiple of 8, and are at least 4 long where that matters.
        Kind::Execute => (breakpoint::X, if cfg!(target_arch = "x86_64") { 8 } else { 4 }),
        Kind::Data => (breakpoint::W, 4),
    };
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    let watched =
        Attr { kind: EventType::BREAKPOINT, bp_type, config1: address, config2: len_bytes, ..Attr::default() };
    kernel_attr(&Attr { flags, ..watched }, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_by_trying_is_what_the_architecture_says() {
        let shared = Arc::default();
        // Another process may hold some for a CPU at this moment.
        let tried = tried_out(&shared);
        println!("{tried:?}; {:?}", of_this_machine(&shared));
        match (std::env::consts::ARCH, tried) {
            (_, None) => println!("skipped: needs debug registers"),
            ("x86_64", Some(Registers::Shared(count))) => assert!(count <= 4),
            ("x86_64", found) => panic!("{found:?}"),
            _ => {}
        }
    }

    #[test]
    fn what_another_process_holds_meanwhile_makes_no_kinds_of_their_own() {
        for (data, execute_beside, execute_alone, found) in [
            (4, 0, 4, Some(Registers::Shared(4))),
            (3, 0, 4, Some(Registers::Shared(4))),
            (4, 0, 3, Some(Registers::Shared(4))),
            (3, 1, 4, Some(Registers::Shared(4))),
            (4, 6, 6, Some(Registers::Separate { execute: 6, data: 4 })),
            (4, 0, 0, Some(Registers::Separate { execute: 0, data: 4 })),
            (0, 0, 0, None),
        ] {
            assert_eq!(registers_of(data, execute_beside, execute_alone), found);
        }
    }

    #[test]
    fn a_breakpoint_claims_one_register_and_nothing_else_does() {
        let watch = |bp_type| Attr { kind: EventType::BREAKPOINT, bp_type, ..Attr::default() };
        let kind = |bp_type| claim(&watch(bp_type)).map(|claim| claim.kind);
        assert_eq!(kind(breakpoint::X), Some(Kind::Execute));
        assert_eq!(kind(breakpoint::R), Some(Kind::Data));
        assert_eq!(kind(breakpoint::X | breakpoint::W), Some(Kind::Data));
        assert_eq!(claim(&Attr::default()), None);
    }
}
