//! Who may still open a breakpoint.
//!
//! What it is: what a kernel does before it opens one. A debug register is reserved when the breakpoint is opened, even if that
//! is disabled, and kept until it is closed; it is never taken in turns. The rule is that of
//! [`crate::oracle::breakpoint`], which says it in full.
//! Read first: [`DebugRegisters::reserve`].
//!
//! **Invariant:** a refusal changes nothing. The cost of a reservation does not grow with the number of tasks.

use pmux_engine::{CpuId, TaskId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most breakpoints of one task that are told apart; more than any machine has registers.
const MOST: usize = 65;

/// What a breakpoint waits for: which registers it wants, where they are separate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Watched {
    Code,
    Data,
}

/// On which CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum On {
    All,
    These(Vec<CpuId>),
}

/// Whether children get it too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heirs {
    Children,
    Nobody,
}

/// A wish for a register on each of some CPUs.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) watched: Watched,
    /// `None`: for whatever runs there.
    pub(super) task: Option<TaskId>,
    pub(super) on: On,
    pub(super) heirs: Heirs,
}

/// What was reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reservation(usize);

/// Here there is none left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full {
    pub(super) cpu: CpuId,
    pub(super) total: u32,
}

struct Held {
    sort: usize,
    on: On,
    /// Who holds it; nobody where it is the CPUs' own.
    holders: BTreeSet<TaskId>,
    root: Option<TaskId>,
    heirs: Heirs,
}

/// What a task may need.
#[derive(Default)]
struct Needs {
    /// Wherever it is.
    everywhere: u32,
    /// On top of that, on one CPU.
    on: BTreeMap<CpuId, u32>,
}

/// Registers of one sort.
struct Registers {
    total: u32,
    own: Vec<u32>,
    tasks: HashMap<TaskId, Needs>,
    /// How many tasks need so many everywhere.
    tasks_needing: [u32; MOST],
    /// Which tasks need more on one CPU.
    more_on: HashMap<CpuId, BTreeSet<TaskId>>,
}

/// The debug registers of all CPUs.
pub(super) struct DebugRegisters {
    /// One sort, or those for code and those for data.
    sorts: Vec<Registers>,
    held: Vec<Option<Held>>,
    free: Vec<usize>,
    of_task: HashMap<TaskId, Vec<usize>>,
}

impl DebugRegisters {
    /// Registers for code, and for data; the same ones where `shared`.
    pub(super) fn new(cpus: u32, code: u32, data: u32, shared: bool) -> Self {
        let sort = |total| Registers {
            total,
            own: vec![0; cpus as usize],
            tasks: HashMap::new(),
            tasks_needing: [0; MOST],
            more_on: HashMap::new(),
        };
        let sorts = if shared { vec![sort(data)] } else { vec![sort(code), sort(data)] };
        Self { sorts, held: Vec::new(), free: Vec::new(), of_task: HashMap::new() }
    }

    /// Reserves a register on all CPUs of a wish, or on none.
    ///
    /// # Errors
    /// A CPU that has none left.
    pub(super) fn reserve(&mut self, wish: Wish) -> Result<Reservation, Full> {
        let sort = if wish.watched == Watched::Data { self.sorts.len() - 1 } else { 0 };
        self.sorts[sort].fits(wish.task, &wish.on)?;
        self.sorts[sort].change(wish.task, &wish.on, 1);
        let held =
            Held { sort, on: wish.on, holders: wish.task.into_iter().collect(), root: wish.task, heirs: wish.heirs };
        let index = self.free.pop().unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[index] = Some(held);
        if let Some(task) = wish.task {
            self.of_task.entry(task).or_default().push(index);
        }
        Ok(Reservation(index))
    }

    /// Gives back what was reserved, with what children hold of it.
    pub(super) fn release(&mut self, reservation: Reservation) {
        let Some(held) = self.held.get_mut(reservation.0).and_then(Option::take) else { return };
        self.free.push(reservation.0);
        if held.root.is_none() {
            self.sorts[held.sort].change(None, &held.on, -1);
        }
        for &task in &held.holders {
            self.sorts[held.sort].change(Some(task), &held.on, -1);
            if let Some(mine) = self.of_task.get_mut(&task) {
                mine.retain(|&index| index != reservation.0);
            }
        }
    }

    /// A child holds what its parent hands down.
    pub(super) fn fork(&mut self, parent: TaskId, child: TaskId) {
        let mut inherited = Vec::new();
        for &index in self.of_task.get(&parent).into_iter().flatten() {
            let Some(held) = self.held[index].as_mut().filter(|held| held.heirs == Heirs::Children) else { continue };
            held.holders.insert(child);
            self.sorts[held.sort].change(Some(child), &held.on, 1);
            inherited.push(index);
        }
        if !inherited.is_empty() {
            self.of_task.insert(child, inherited);
        }
    }

    /// A task ends, or gains rights: it gives back what it inherited, and hands nothing down any more. What was opened on
    /// it is held until it is closed.
    pub(super) fn end(&mut self, task: TaskId) {
        let mine = self.of_task.remove(&task).unwrap_or_default();
        let mut kept = Vec::new();
        for index in mine {
            let Some(held) = self.held[index].as_mut() else { continue };
            if held.root == Some(task) {
                held.heirs = Heirs::Nobody;
                kept.push(index);
            } else {
                held.holders.remove(&task);
                self.sorts[held.sort].change(Some(task), &held.on, -1);
            }
        }
        if !kept.is_empty() {
            self.of_task.insert(task, kept);
        }
    }
}

impl Registers {
    fn fits(&self, task: Option<TaskId>, on: &On) -> Result<(), Full> {
        let full = |cpu: CpuId| {
            let own = self.own.get(cpu.0 as usize).copied().unwrap_or(0);
            let in_use = own + task.map_or_else(|| self.most_needed(cpu), |task| self.needed(task, cpu));
            (in_use >= self.total).then_some(Full { cpu, total: self.total })
        };
        let first = match on {
            On::All => (0..self.own.len() as u32).map(CpuId).find_map(full),
            On::These(cpus) => cpus.iter().copied().find_map(full),
        };
        first.map_or(Ok(()), Err)
    }

    /// How many a task may need on a CPU.
    fn needed(&self, task: TaskId, cpu: CpuId) -> u32 {
        self.tasks.get(&task).map_or(0, |needs| needs.everywhere + needs.on.get(&cpu).copied().unwrap_or(0))
    }

    /// How many that task may need there that may need most.
    fn most_needed(&self, cpu: CpuId) -> u32 {
        let everywhere = self.tasks_needing.iter().rposition(|&tasks| tasks > 0).unwrap_or(0) as u32;
        let here = self.more_on.get(&cpu).into_iter().flatten().map(|&task| self.needed(task, cpu)).max();
        everywhere.max(here.unwrap_or(0))
    }

    fn change(&mut self, task: Option<TaskId>, on: &On, more: i32) {
        let Some(task) = task else {
            let all = 0..self.own.len() as u32;
            let cpus: Vec<u32> = match on {
                On::All => all.collect(),
                On::These(cpus) => cpus.iter().map(|cpu| cpu.0).collect(),
            };
            for cpu in cpus {
                if let Some(own) = self.own.get_mut(cpu as usize) {
                    *own = own.saturating_add_signed(more);
                }
            }
            return;
        };
        let needs = self.tasks.entry(task).or_default();
        match on {
            On::All => {
                let before = needs.everywhere;
                needs.everywhere = before.saturating_add_signed(more);
                let after = needs.everywhere;
                for (needed, change) in [(before, -1), (after, 1)] {
                    if let Some(tasks) = self.tasks_needing.get_mut(needed as usize).filter(|_| needed > 0) {
                        *tasks = tasks.saturating_add_signed(change);
                    }
                }
            }
            On::These(cpus) => {
                for &cpu in cpus {
                    let here = needs.on.entry(cpu).or_default();
                    *here = here.saturating_add_signed(more);
                    if *here == 0 {
                        needs.on.remove(&cpu);
                        if let Some(tasks) = self.more_on.get_mut(&cpu) {
                            tasks.remove(&task);
                        }
                    } else {
                        self.more_on.entry(cpu).or_default().insert(task);
                    }
                }
            }
        }
        if needs.everywhere == 0 && needs.on.is_empty() {
            self.tasks.remove(&task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::breakpoint as oracle;
    use proptest::prelude::*;

    const CPUS: u32 = 3;

    fn wish(watched: Watched, task: Option<u64>, on: On, heirs: Heirs) -> Wish {
        Wish { watched, task: task.map(TaskId), on, heirs }
    }

    #[test]
    fn the_fifth_finds_no_register_and_another_task_has_its_own() {
        let mut registers = DebugRegisters::new(CPUS, 4, 4, true);
        let ask = |registers: &mut DebugRegisters, task| {
            registers.reserve(wish(Watched::Data, Some(task), On::All, Heirs::Nobody))
        };
        let taken: Vec<_> = (0..4).map(|_| ask(&mut registers, 1)).collect();
        assert_eq!(ask(&mut registers, 1), Err(Full { cpu: CpuId(0), total: 4 }));
        assert!(ask(&mut registers, 2).is_ok());
        let on_cpu = wish(Watched::Code, None, On::These(vec![CpuId(2)]), Heirs::Nobody);
        assert_eq!(registers.reserve(on_cpu.clone()), Err(Full { cpu: CpuId(2), total: 4 }));
        if let Some(Ok(first)) = taken.first() {
            registers.release(*first);
        }
        assert!(registers.reserve(on_cpu).is_ok() && ask(&mut registers, 1).is_err());
    }

    #[test]
    fn children_hold_what_they_inherit_until_they_exit_or_it_is_closed() {
        let mut registers = DebugRegisters::new(CPUS, 2, 2, true);
        let of = |task, heirs| wish(Watched::Data, Some(task), On::All, heirs);
        let Ok(first) = registers.reserve(of(1, Heirs::Children)) else { panic!("the first fits") };
        registers.fork(TaskId(1), TaskId(2));
        registers.fork(TaskId(2), TaskId(3));
        assert!(registers.reserve(of(3, Heirs::Nobody)).is_ok());
        assert!(registers.reserve(of(3, Heirs::Nobody)).is_err());
        registers.end(TaskId(2));
        registers.fork(TaskId(2), TaskId(4));
        assert!((0..2).all(|_| registers.reserve(of(4, Heirs::Nobody)).is_ok()), "who exited hands nothing down");
        registers.release(first);
        assert!(registers.reserve(of(3, Heirs::Nobody)).is_ok());
    }

    #[derive(Clone, Debug)]
    enum Op {
        Reserve(Wish),
        Release(usize),
    }

    fn ops() -> impl Strategy<Value = Op> {
        let on = prop_oneof![
            Just(On::All),
            proptest::collection::btree_set(0..CPUS, 1..3)
                .prop_map(|cpus| On::These(cpus.into_iter().map(CpuId).collect()))
        ];
        let watched = prop_oneof![Just(Watched::Code), Just(Watched::Data)];
        let reserve = (watched, proptest::option::of(0_u64..3), on)
            .prop_map(|(watched, task, on)| Op::Reserve(wish(watched, task, on, Heirs::Nobody)));
        prop_oneof![3 => reserve, 1 => (0_usize..20).prop_map(Op::Release)]
    }

    proptest! {
        #[test]
        fn it_says_what_the_oracle_says(ops in proptest::collection::vec(ops(), 1..40), shared: bool) {
            let (code, data) = (2, if shared { 2 } else { 3 });
            let rule = if shared {
                oracle::Registers::Shared(data)
            } else {
                oracle::Registers::Separate { execute: code, data }
            };
            let mut model = oracle::Ledger::new((0..CPUS).map(CpuId), rule);
            let mut registers = DebugRegisters::new(CPUS, code, data, shared);
            let mut tokens = Vec::new();
            for op in ops {
                match op {
                    Op::Reserve(wish) => {
                        let request = oracle::Request {
                            kind: if wish.watched == Watched::Code { oracle::Kind::Execute } else { oracle::Kind::Data },
                            task: wish.task,
                            cpus: match &wish.on {
                                On::All => oracle::Where::Everywhere,
                                On::These(cpus) => oracle::Where::Only(cpus.iter().copied().collect()),
                            },
                            weight: 1,
                        };
                        match (registers.reserve(wish), model.reserve(request)) {
                            (Ok(mine), Ok(theirs)) => tokens.push((mine, theirs)),
                            (Err(mine), Err(oracle::Refused::Full { cpu, total, .. })) => {
                                prop_assert_eq!((mine.cpu, mine.total), (cpu, total));
                            }
                            (mine, theirs) => prop_assert!(false, "{mine:?}, and the oracle says {theirs:?}"),
                        }
                    }
                    Op::Release(index) if index < tokens.len() => {
                        let (mine, theirs) = tokens.swap_remove(index);
                        registers.release(mine);
                        prop_assert!(model.release(theirs).is_ok());
                    }
                    Op::Release(_) => {}
                }
            }
        }
    }
}
