//! What the ledger is measured against: one lock, one list.
//!
//! What it is: the same rule, as one would write it down first. Everything is under one lock; what tasks hold is one list; and a
//! request walks over all its CPUs, and for each of them over the whole list. No host uses it.
//!
//! **Invariant:** it grants and refuses what [`super::Ledger`] does.

use super::ledger::Locks;
use super::{BpTarget, Claim, Full, Registers, ReserveError, SORTS};
use crate::id::{CpuId, TaskId};
use crate::lock::{LockCell, Rank};
use alloc::vec::Vec;

struct ListedClaim {
    number: u64,
    sort: usize,
    claim: Claim,
    place: BpTarget,
}

impl ListedClaim {
    fn is_on(&self, cpu: CpuId) -> bool {
        self.place.cpus().is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// One CPU: what it holds itself, and how many tasks need so many there.
#[derive(Clone)]
struct CpuUse {
    own: [u32; SORTS],
    tasks: [Vec<u32>; SORTS],
}

struct ListState {
    cpus: Vec<CpuUse>,
    list: Vec<ListedClaim>,
    next: u64,
}

/// The list, and its lock.
pub struct List<L: Locks> {
    registers: Registers,
    books: L::Cell<ListState>,
}

impl<L: Locks> List<L> {
    /// Nothing is held.
    #[must_use]
    pub fn new(registers: Registers, cpus: u32) -> Self {
        let totals = match registers {
            Registers::Shared(count) => [count, 0],
            Registers::Separate { execute, data } => [execute, data],
        };
        let cpu = CpuUse { own: [0; SORTS], tasks: totals.map(|total| alloc::vec![0; usize::from(total) + 1]) };
        let books = ListState { cpus: alloc::vec![cpu; cpus as usize], list: Vec::new(), next: 0 };
        Self { registers, books: LockCell::ranked(Rank::CpuLedger, books) }
    }

    /// Reserves, and gives the number to release it by. O(CPUs of the place times all that tasks hold).
    ///
    /// # Errors
    /// As [`super::Ledger::reserve`].
    pub fn reserve(&self, claim: Claim, place: BpTarget) -> Result<u64, ReserveError> {
        let (sort, total) = (self.registers.sort(claim.kind), self.registers.for_kind(claim.kind));
        self.books.with(|books| {
            let cpus = books.cpus_of(&place);
            for &cpu in &cpus {
                let here = books.cpus.get(cpu.0 as usize).ok_or(ReserveError::NoSuchCpu(cpu))?;
                let of_tasks = match place.task() {
                    Some(task) => books.needed(task, sort, cpu),
                    None => here.tasks[sort].iter().rposition(|&tasks| tasks > 0).unwrap_or(0) as u32,
                };
                let in_use = here.own[sort] + of_tasks;
                if in_use + u32::from(claim.weight.get()) > u32::from(total) {
                    return Err(ReserveError::Full(Full { kind: claim.kind, task: place.task(), cpu, in_use, total }));
                }
            }
            let number = books.next;
            books.next += 1;
            let held = ListedClaim { number, sort, claim, place };
            books.account(&held, &cpus, 1);
            books.list.push(held);
            Ok(number)
        })
    }

    /// Gives back what has this number; `false` where nothing has.
    pub fn release(&self, number: u64) -> bool {
        self.books.with(|books| {
            let Some(at) = books.list.iter().position(|held| held.number == number) else { return false };
            let held = books.list.swap_remove(at);
            let cpus = books.cpus_of(&held.place);
            books.account(&held, &cpus, -1);
            true
        })
    }
}

impl ListState {
    fn cpus_of(&self, place: &BpTarget) -> Vec<CpuId> {
        match place.cpus() {
            None => (0..self.cpus.len() as u32).map(CpuId).collect(),
            Some(cpus) => cpus.iter().collect(),
        }
    }

    /// What a task may need on a CPU: the walk over the whole list.
    fn needed(&self, task: TaskId, sort: usize, cpu: CpuId) -> u32 {
        let of_task = |held: &&ListedClaim| held.place.task() == Some(task) && held.sort == sort && held.is_on(cpu);
        self.list.iter().filter(of_task).map(|held| u32::from(held.claim.weight.get())).sum()
    }

    /// `held` comes or goes; it is not on the list.
    fn account(&mut self, held: &ListedClaim, cpus: &[CpuId], more: i32) {
        let weight = u32::from(held.claim.weight.get());
        for &cpu in cpus {
            let without = held.place.task().map(|task| self.needed(task, held.sort, cpu));
            let Some(here) = self.cpus.get_mut(cpu.0 as usize) else { continue };
            let Some(without) = without else {
                let own = &mut here.own[held.sort];
                *own = own.saturating_add_signed(more * weight as i32);
                continue;
            };
            for (need, more) in [(without, -more), (without + weight, more)] {
                if let Some(tasks) = here.tasks[held.sort].get_mut(need as usize).filter(|_| need > 0) {
                    *tasks = tasks.saturating_add_signed(more);
                }
            }
        }
    }
}
