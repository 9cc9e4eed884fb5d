//! This kernel as a party.
//!
//! What it is: each breakpoint is an event that a bank opens, one for each CPU that it is for. No ledger of ours is asked.
//! Read first: [`Kernel`].
//!
//! **Invariant:** a breakpoint is open on all of its CPUs or on none, and waits for the same everywhere.

use super::address;
use super::crew::{Crew, Exchange};
use super::party::{Answer, Party, change_all};
use super::step::{ChildKind, Counting, Heirs, Watch, Whose};
use pmux::Event;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::arena::Arena;
use pmux_engine::pmu::{BankError, CounterBank as _, Lease, PmuTable as _, Program, Slot};
use pmux_engine::target::{ContextKey, EventKey, Filter};
use pmux_engine::{CpuId, Host as _};
use pmux_linux::host::{KERNEL, LinuxBank, LinuxHost};
use pmux_sim::oracle::breakpoint::{Kind, Registers};
use std::collections::HashMap;

/// The only event of a bank.
pub const LEASE: Lease = Lease { pmu: KERNEL, slot: Slot(0), generation: 1 };
/// More than any machine has.
const MANY: usize = 64;

/// A bank with one event, under [`LEASE`]; stopped.
pub fn open(host: &LinuxHost, key: ContextKey, filter: Filter, attr: &Attr) -> Result<LinuxBank, BankError> {
    let event: EventKey = Arena::default().insert(());
    let spec = host.pmu(KERNEL).unwrap().parse(KERNEL, attr).unwrap();
    let mut bank = host.bank(key);
    bank.program(LEASE, &Program { event, spec, filter, leader: None, group_size: 1, start: 0 })?;
    Ok(bank)
}

/// Breakpoints of this kernel, closed when it is dropped.
pub struct Kernel {
    host: LinuxHost,
    crew: Crew,
    held: HashMap<u32, (Vec<LinuxBank>, Watch)>,
}

impl Kernel {
    pub fn new(threads: usize) -> Self {
        Self { host: LinuxHost::new(), crew: Crew::new(threads, Exchange::Never), held: HashMap::new() }
    }

    /// What is opened for a breakpoint.
    pub fn attr(watch: Watch) -> Attr {
        Event::breakpoint(address(watch.kind(), watch.at), watch.len, watch.access).attr
    }

    /// The same, for children too where they inherit it.
    pub fn attr_with(watch: Watch, heirs: Heirs) -> Attr {
        let mut attr = Self::attr(watch);
        attr.flags.set(AttrFlags::INHERIT, heirs == Heirs::Children);
        attr
    }

    /// On all or, where one refuses, on none.
    fn open_all(&self, whose: &Whose, watch: Watch, heirs: Heirs) -> Result<Vec<LinuxBank>, BankError> {
        let task = |thread: usize| ContextKey::Task(LinuxHost::task(self.crew.tid(thread)));
        let attr = Self::attr_with(watch, heirs);
        let open = |key, filter| open(&self.host, key, filter, &attr);
        match whose {
            Whose::Thread(thread) => Ok(vec![open(task(*thread), Filter::Everything)?]),
            Whose::ThreadOn(thread, cpus) => cpus.iter().map(|&cpu| open(task(*thread), Filter::OnCpu(cpu))).collect(),
            Whose::Cpus(cpus) => cpus.iter().map(|&cpu| open(ContextKey::Cpu(cpu), Filter::Everything)).collect(),
        }
    }

    /// How many of a kind are granted beside what is held; they stay open.
    fn fill(&mut self, kind: Kind, whose: &Whose) -> u32 {
        let watch = if kind == Kind::Execute { Watch::execute(0) } else { Watch::SIMPLEST };
        let first = self.held.len() as u32;
        let mut numbers = first..first + MANY as u32;
        numbers
            .position(|number| self.open(number, whose, watch, Counting::Off, Heirs::NoTask) != Answer::Granted)
            .unwrap() as u32
    }

    /// Learns how many registers there are by taking them all, for a thread and on each of these CPUs.
    ///
    /// Errors: there are none, or another process holds some.
    pub fn registers(cpus: &[CpuId]) -> Result<Registers, String> {
        let count = |first: Kind, then: Kind| {
            let mut kernel = Self::new(1);
            let first = kernel.fill(first, &Whose::Thread(0));
            (first, kernel.fill(then, &Whose::Thread(0)))
        };
        let (data, execute_beside) = count(Kind::Data, Kind::Execute);
        let (execute, data_beside) = count(Kind::Execute, Kind::Data);
        let registers = match (execute_beside, data_beside) {
            _ if data == 0 => return Err("this machine has no debug registers, or others hold them all".to_owned()),
            (0, 0) if execute == data => Registers::Shared(data),
            beside if beside == (execute, data) => Registers::Separate { execute, data },
            _ => return Err("others take and give back debug registers at this moment".to_owned()),
        };
        // A register that another process holds for a task or for a CPU is missing on a CPU.
        for &cpu in cpus {
            for (kind, all) in [(Kind::Data, data), (Kind::Execute, execute)] {
                let free = Self::new(0).fill(kind, &Whose::Cpus([cpu].into()));
                if free != all {
                    return Err(format!("{} of {all} debug registers of CPU {cpu} are held by others", all - free));
                }
            }
        }
        Ok(registers)
    }
}

fn answer(result: Result<(), BankError>) -> Answer {
    match result {
        Ok(()) => Answer::Granted,
        Err(BankError::SlotsExhausted) => Answer::Full,
        Err(BankError::Invalid) => Answer::Invalid,
        Err(error) => panic!("{error}"),
    }
}

fn switch(banks: &mut [LinuxBank], counting: Counting) {
    for bank in banks {
        match counting {
            Counting::On => bank.start(LEASE).unwrap(),
            Counting::Off => bank.stop(LEASE),
        }
    }
}

impl Party for Kernel {
    fn name(&self) -> &'static str {
        "the kernel"
    }

    fn replace(&mut self, thread: usize) {
        self.crew.replace(thread);
    }

    fn fork(&mut self, parent: usize, child: usize, child_kind: ChildKind) -> Answer {
        self.crew.fork(parent, child, child_kind)
    }

    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, counting: Counting, heirs: Heirs) -> Answer {
        let opened = self.open_all(whose, watch, heirs).map(|mut banks| {
            if counting == Counting::On {
                switch(&mut banks, counting);
            }
            self.held.insert(number, (banks, watch));
        });
        answer(opened)
    }

    fn modify(&mut self, number: u32, watch: Watch) -> Answer {
        let (banks, held) = self.held.get_mut(&number).unwrap();
        answer(change_all(banks, held, watch, |bank, watch| bank.modify(LEASE, &Self::attr(watch))))
    }

    fn switch(&mut self, number: u32, counting: Counting) {
        switch(&mut self.held.get_mut(&number).unwrap().0, counting);
    }

    fn close(&mut self, number: u32) {
        self.held.remove(&number).unwrap();
    }
}
