//! The engine on this kernel as a party: the kernel's answers, with the account that is kept of them.
//!
//! What it is: each breakpoint is opened through one engine, whose ledger is asked first. What it can't know is what the kernel
//! lets children inherit: there it must say so, and nowhere else may the two differ.
//!
//! **Invariant:** a difference that is not explained is an answer of its own.

use super::crew::{Crew, Exchange};
use super::kernel::Kernel;
use super::party::{Answer, Party, change_all};
use super::step::{ChildKind, Counting, Heirs, Watch, Whose};
use pmux_abi::attr::Attr;
use pmux_engine::engine::Disagreements;
use pmux_engine::hw_breakpoint::Taken;
use pmux_engine::pmu::BankError;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, GroupSpec, ModifyError, OpenError, Opened, Target};
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use std::collections::BTreeMap;

/// Breakpoints that one engine holds, closed when it is dropped.
pub struct Engine {
    engine: LinuxEngine,
    crew: Crew,
    held: BTreeMap<u32, (Vec<Opened>, Watch, Heirs)>,
    forks: u64,
}

impl Engine {
    pub fn new(online: &[CpuId], threads: usize) -> Self {
        let engine = LinuxHost::engine(online.iter().map(|cpu| cpu.0));
        Self { engine, crew: Crew::new(threads, Exchange::AsItHappens), held: BTreeMap::new(), forks: 0 }
    }

    /// How often the account and the kernel differed because of children.
    pub fn inherited(&self) -> u64 {
        self.engine.ledger_disagreements().inherited
    }

    /// On all or, where one is refused, on none.
    fn open_all(&self, whose: &Whose, attr: &Attr) -> Result<Vec<Opened>, OpenError> {
        let task = |thread: usize| LinuxHost::task(self.crew.tid(thread));
        let on = |thread, cpu| Target { context: ContextKey::Task(task(thread)), filter: Filter::OnCpu(cpu) };
        let targets: Vec<_> = match whose {
            Whose::Thread(thread) => vec![Target::task(task(*thread))],
            Whose::ThreadOn(thread, cpus) => cpus.iter().map(|&cpu| on(*thread, cpu)).collect(),
            Whose::Cpus(cpus) => cpus.iter().map(|&cpu| Target::cpu(cpu)).collect(),
        };
        let mut opened = Vec::new();
        for target in targets {
            match self.engine.open(&GroupSpec::single(KERNEL, *attr), target) {
                Ok(one) => opened.push(one),
                Err(error) => {
                    opened.iter().for_each(|one: &Opened| self.engine.close(one.group));
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// The answer, if the account and the kernel have not differed, or why is known.
    fn judge(&self, before: Disagreements, answer: Answer, taken: Option<Taken>) -> Answer {
        let now = self.engine.ledger_disagreements();
        let by_children = now.inherited > before.inherited;
        let someone_inherits = self.forks > 0 && self.held.values().any(|(_, _, heirs)| *heirs == Heirs::Children);
        let explained = (now.refused, now.granted) == (before.refused, before.granted)
            && by_children == (taken == Some(Taken::Inherited))
            && (!by_children || someone_inherits);
        if explained { answer } else { Answer::Unexplained }
    }
}

impl Party for Engine {
    fn name(&self) -> &'static str {
        "the engine on this kernel"
    }

    fn replace(&mut self, thread: usize) {
        self.crew.replace(thread);
    }

    fn fork(&mut self, parent: usize, child: usize, child_kind: ChildKind) -> Answer {
        self.forks += 1;
        // The kernel finds no register for a child, too, where one was given back for the wrong task before.
        self.crew.fork(parent, child, child_kind)
    }

    fn open(&mut self, number: u32, whose: &Whose, watch: Watch, counting: Counting, heirs: Heirs) -> Answer {
        let before = self.engine.ledger_disagreements();
        let (answer, taken) = match self.open_all(whose, &Kernel::attr_with(watch, heirs)) {
            Ok(opened) => {
                self.held.insert(number, (opened, watch, heirs));
                self.switch(number, counting);
                (Answer::Granted, None)
            }
            Err(OpenError::DebugRegisters { taken, .. }) => (Answer::Full, Some(taken)),
            Err(OpenError::Bank { error: BankError::Invalid, .. }) => (Answer::Invalid, None),
            Err(error) => panic!("{error}"),
        };
        self.judge(before, answer, taken)
    }

    fn modify(&mut self, number: u32, watch: Watch) -> Answer {
        let before = self.engine.ledger_disagreements();
        let (opened, held, heirs) = self.held.get_mut(&number).unwrap();
        let change = |one: &mut Opened, watch| self.engine.modify(one.events[0], &Kernel::attr_with(watch, *heirs));
        let (answer, taken) = match change_all(opened, held, watch, change) {
            Ok(()) => (Answer::Granted, None),
            Err(ModifyError::DebugRegisters { taken, .. }) => (Answer::Full, Some(taken)),
            Err(ModifyError::Bank(BankError::Invalid)) => (Answer::Invalid, None),
            Err(error) => panic!("{error}"),
        };
        self.judge(before, answer, taken)
    }

    fn switch(&mut self, number: u32, counting: Counting) {
        for one in &self.held[&number].0 {
            match counting {
                Counting::On => self.engine.enable_group(one.group).unwrap(),
                Counting::Off => self.engine.disable_group(one.group).unwrap(),
            }
        }
    }

    fn close(&mut self, number: u32) {
        let (opened, ..) = self.held.remove(&number).unwrap();
        opened.iter().for_each(|one| self.engine.close(one.group));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.held.values().flat_map(|(opened, ..)| opened).for_each(|one| self.engine.close(one.group));
    }
}
