//! The ledger for many threads at once: locks around the books.
//!
//! What it is: one book for the CPUs, and many for the tasks; each task stands in one of them. Whatever concerns a CPU is decided
//! under the lock of the CPUs' book, and then under that of one task's book at a time. What a task wants wherever it is is granted
//! under the lock of its own book alone, where the [`Summary`] says that it fits. A book that can't grant it so asks again with
//! both locks; nothing is refused without.
//!
//! A claim of CPUs is granted at once where it leaves room for what tasks need at most by the summary. Otherwise it raises the
//! summary's ceiling, and learns what tasks need from each book on the shelves that may matter. A task's claim that is granted behind
//! it has left room for it; one that was granted before it has been seen. One that finds no room meanwhile waits for the lock of the
//! CPUs' book, and so for what becomes of the claim. So no other claim sees half of it.
//!
//! **Invariant:** the ceiling of the summary is that of the CPUs' book whenever no thread holds that one's lock, and never lower. No
//! task needs more wherever it is than the summary says, but while that is being counted.
//!
//! Linux: `toggle_bp_slot`, `__reserve_bp_slot`, `bp_cpuinfo_sem` (kernel/events/hw_breakpoint.c).

use super::books::Books;
use super::cpus::{ClaimChange, ClaimId, CpuBook, CpuClaim};
use super::summary::{LedgerWord, Summary};
use super::tasks::{TaskBook, mixed};
use super::token::{ClaimRef, Reservation, Token};
use super::{BpTarget, Claim, EngineNumber, Full, Holder, Holding, Kind, Registers, ReserveError};
use crate::cpu_mask::CpuMask;
use crate::id::{CpuId, TaskId};
use crate::lock::{LockCell, Rank};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Which locks a ledger is made with.
pub trait Locks {
    /// One lock. It may be taken by threads only, and is held for a few steps.
    type Cell<T: Send>: LockCell<T>;
    /// What is read without one.
    type Word: LedgerWord;
}

/// A book on lines of the cache of its own, so that threads which use different books don't disturb each other.
#[repr(align(128))]
struct Shard<B>(B);

/// Fewest and most books for tasks, and how many for each CPU. Many more than threads: two threads that go through many tasks should
/// hardly ever come to a book that the other one has used last.
const BOOKS: (u32, u32) = (64, 8192);
const BOOKS_PER_CPU: u32 = 16;
/// On so many shelves the books stand, where there are as many.
const SHELVES: usize = 64;

/// What all claims look at, on lines that nothing else is on.
#[repr(align(128))]
struct Aside<T>(T);

/// Who holds which debug registers. See [`super`] for the rule.
pub struct Ledger<L: Locks> {
    registers: Registers,
    /// How many CPUs there may ever be.
    number: u32,
    summary: Aside<Summary<L::Word>>,
    cpus: L::Cell<CpuBook>,
    tasks: Vec<Shard<L::Cell<TaskBook>>>,
}

impl<L: Locks> Ledger<L> {
    /// Nothing is held. `cpus` is how many the machine may ever have, those included that are offline, by number from 0.
    #[must_use]
    pub fn new(registers: Registers, cpus: u32) -> Self {
        Self::with_books(registers, cpus, cpus.saturating_mul(BOOKS_PER_CPU).clamp(BOOKS.0, BOOKS.1))
    }

    /// As [`Ledger::new`], with so many books for the tasks: a power of two, and no more than there ever are.
    #[must_use]
    pub fn with_books(registers: Registers, cpus: u32, books: u32) -> Self {
        let totals = match registers {
            Registers::Shared(count) => [count, 0],
            Registers::Separate { execute, data } => [execute, data],
        };
        let books = books.min(BOOKS.1).next_power_of_two() as usize;
        let on_shelf = books.div_ceil(SHELVES);
        let book = |number| Shard(LockCell::ranked(Rank::TaskLedger, TaskBook::new(totals, number / on_shelf)));
        Self {
            registers,
            number: cpus,
            summary: Aside(Summary::new(books / on_shelf)),
            cpus: LockCell::ranked(Rank::CpuLedger, CpuBook::new(registers, totals, cpus)),
            tasks: (0..books).map(book).collect(),
        }
    }

    /// A number for one more engine that shares it.
    pub fn enroll(&self) -> EngineNumber {
        self.cpus.with(|book| {
            book.engines += 1;
            EngineNumber(book.engines)
        })
    }

    /// The registers of each CPU.
    #[must_use]
    pub const fn registers(&self) -> Registers {
        self.registers
    }

    /// Reserves on all CPUs of a place, or on none. A token that is not committed gives it back.
    ///
    /// For a task wherever it is and which holds nothing for some CPUs only: O(1), under a lock that it shares with few other
    /// tasks. Otherwise O(CPUs of the place), one at a time.
    ///
    /// # Errors
    /// [`ReserveError::NoSuchCpu`]; then [`ReserveError::Full`] with the first CPU that has not enough.
    pub fn reserve(&self, claim: Claim, place: BpTarget, holder: Holder) -> Result<Token<'_, L>, ReserveError> {
        if let BpTarget::TaskEverywhere(task) = place
            && let Some(number) =
                self.book(task).with(|book| book.grant(self.registers, &self.summary.0, (task, claim, holder)))
        {
            return Ok(Token::new(self, Reservation(ClaimRef::Task(task, number))));
        }
        self.check(&place)?;
        self.cpus.with(|cpus| self.reserve_with(cpus, claim, place, holder)).map(|held| Token::new(self, held))
    }

    /// Reserves all that is asked for, or nothing, as one.
    ///
    /// # Errors
    /// The first of them that is refused, by number from 0, and why: as [`Ledger::reserve`].
    pub fn reserve_all(
        &self,
        wanted: Vec<(Claim, BpTarget, Holder)>,
    ) -> Result<Vec<Token<'_, L>>, (usize, ReserveError)> {
        for (index, (_, place, _)) in wanted.iter().enumerate() {
            self.check(place).map_err(|refused| (index, refused))?;
        }
        let granted = self.cpus.with(|cpus| {
            let mut granted = Vec::with_capacity(wanted.len());
            for (index, (claim, place, holder)) in wanted.into_iter().enumerate() {
                match self.reserve_with(cpus, claim, place, holder) {
                    Ok(reservation) => granted.push(reservation),
                    Err(refused) => {
                        for reservation in granted {
                            self.release_with(cpus, reservation.0);
                        }
                        return Err((index, refused));
                    }
                }
            }
            Ok(granted)
        })?;
        Ok(granted.into_iter().map(|reservation| Token::new(self, reservation)).collect())
    }

    /// Gives back what is held; its task or CPUs may be gone since. `false`: it was given back before, or is another ledger's.
    #[allow(clippy::needless_pass_by_value)] // no caller can use it afterwards
    pub fn release(&self, reservation: Reservation) -> bool {
        let Reservation(entry) = reservation;
        if let ClaimRef::Task(task, number) = entry
            && self.book(task).with(|book| book.take_back(self.registers, task, number)).is_some()
        {
            return true;
        }
        self.cpus.with(|cpus| self.release_with(cpus, entry))
    }

    /// Reserves `claim` on `place` and gives back what was held, as one: what is held already serves the new claim where
    /// both want the same registers, and no other claim can take it in between.
    ///
    /// # Errors
    /// What was held is still held then. [`ReserveError::NoSuchCpu`], [`ReserveError::Stale`], [`ReserveError::OtherOwner`],
    /// [`ReserveError::Full`].
    pub fn modify(&self, reservation: &Reservation, claim: Claim, place: BpTarget) -> Result<(), ReserveError> {
        self.check(&place)?;
        let (task, number) = match reservation.0 {
            ClaimRef::Task(task, number) => (task, number),
            ClaimRef::Cpus(id) => return self.cpus.with(|cpus| self.modify_cpus(cpus, id, claim, place)),
        };
        if place.task() != Some(task) {
            return Err(ReserveError::OtherOwner);
        }
        self.cpus.with(|cpus| self.book(task).with(|tasks| self.both(cpus, tasks).modify(task, number, claim, place)))
    }

    /// Says who holds it from now on. `false`: it is stale.
    pub fn name(&self, reservation: &Reservation, holder: Holder) -> bool {
        match reservation.0 {
            ClaimRef::Task(task, number) => self.book(task).with(|book| {
                let held = book.claim_mut(task, number);
                held.map(|held| held.holder = holder).is_some()
            }),
            ClaimRef::Cpus(id) => {
                self.cpus.with(|book| book.claims.get_mut(id).map(|held| held.holder = holder).is_some())
            }
        }
    }

    /// Makes one reservation for each of its CPUs, in ascending order, of one that is limited to CPUs. The same registers stay
    /// held throughout.
    ///
    /// # Errors
    /// The reservation itself, where it is not limited to CPUs, or stale.
    pub fn split(&self, reservation: Reservation) -> Result<Vec<(CpuId, Reservation)>, Reservation> {
        let one = |cpu: CpuId| [cpu].into_iter().collect::<CpuMask>();
        let parts = match reservation.0 {
            ClaimRef::Task(task, number) => self.book(task).with(|book| {
                let held = book.claim(task, number)?;
                let (claim, holder, cpus) = (held.claim, held.holder, held.cpus.as_deref()?.clone());
                let part = |cpu: CpuId| {
                    let number = book.insert(task, claim, holder, Some(Box::new(one(cpu))));
                    book.change_limited(task, 1);
                    (cpu, Reservation(ClaimRef::Task(task, number)))
                };
                let parts = cpus.iter().map(part).collect();
                book.change_limited(task, -1);
                book.remove(task, number);
                Some(parts)
            }),
            ClaimRef::Cpus(id) => self.cpus.with(|book| {
                let CpuClaim { claim, holder, cpus } = book.claims.remove(id)?;
                let part = |cpu: CpuId| {
                    (cpu, Reservation(ClaimRef::Cpus(book.claims.insert(CpuClaim { claim, holder, cpus: one(cpu) }))))
                };
                Some(cpus.iter().map(part).collect())
            }),
        };
        parts.ok_or(reservation)
    }

    /// How many registers of a CPU count as taken for a claim of `task`, or of the CPU itself.
    pub fn in_use(&self, kind: Kind, cpu: CpuId, task: Option<TaskId>) -> u32 {
        self.usage(kind, Some(cpu), task).first().map_or(0, |full| full.in_use)
    }

    /// The same on `cpu`, or on each CPU that there may ever be, in their order. O(CPUs).
    pub fn usage(&self, kind: Kind, cpu: Option<CpuId>, task: Option<TaskId>) -> Vec<Full> {
        let (sort, total) = (self.registers.sort(kind), self.registers.for_kind(kind));
        self.cpus.with(|cpus| {
            let everywhere = match task {
                Some(task) => self.book(task).with(|book| book.everywhere(task, sort)),
                None => self.tasks.iter().map(|book| book.0.with(|book| book.most_needed(sort))).max().unwrap_or(0),
            };
            let needed = |cpu| match task {
                Some(task) => everywhere.saturating_add(cpus.limited(task, sort, cpu)),
                None => everywhere.max(cpus.most_limited(sort, cpu)),
            };
            let at = |cpu| {
                let in_use = u32::from(cpus.own(sort, cpu)) + u32::from(needed(cpu));
                Full { kind, task, cpu, in_use, total }
            };
            self.all_cpus(cpu).map(at).collect()
        })
    }

    /// The CPU, among all or at `cpu`, where most counts as taken for a claim of `task`, or of a CPU itself. O(CPUs).
    pub fn fullest(&self, kind: Kind, cpu: Option<CpuId>, task: Option<TaskId>) -> Full {
        let fuller = |most: Full, next: Full| if next.in_use > most.in_use { next } else { most };
        let none = Full { kind, task, cpu: CpuId(0), in_use: 0, total: self.registers.for_kind(kind) };
        self.usage(kind, cpu, task).into_iter().reduce(fuller).unwrap_or(none)
    }

    /// One CPU, or all that there may ever be.
    fn all_cpus(&self, cpu: Option<CpuId>) -> impl Iterator<Item = CpuId> + use<L> {
        let (first, end) = cpu.map_or((0, self.number), |cpu| (cpu.0, cpu.0 + 1));
        (first..end).map(CpuId)
    }

    /// Who stands in the way of a claim that was refused: the holders on the CPU that it names, first what is the CPU's own,
    /// then what is the task's, or, where the claim was for CPUs, that task's which needs most there. O(held): for the report of a
    /// failure.
    pub fn holders(&self, full: &Full) -> Vec<Holding> {
        let (sort, cpu) = (self.registers.sort(full.kind), full.cpu);
        self.cpus.with(|cpus| {
            let mut found: Vec<_> = cpus.holdings(sort, cpu).collect();
            let most = || {
                let mut most = None;
                for book in &self.tasks {
                    let need =
                        |book: &TaskBook, task| (book.everywhere(task, sort) + cpus.limited(task, sort, cpu), task);
                    let here = book.0.with(|book| book.tasks().map(|task| need(book, task)).max());
                    most = most.max(here.filter(|&(need, _)| need > 0));
                }
                most.map(|(_, task)| task)
            };
            if let Some(task) = full.task.or_else(most) {
                let there = |held: &Holding| held.place.cpus().is_none_or(|cpus| cpus.contains(cpu));
                self.book(task).with(|book| found.extend(book.holdings(self.registers, task, sort).filter(there)));
            }
            found
        })
    }

    /// What a reservation stands for; `None`: it is stale.
    pub fn holding(&self, reservation: &Reservation) -> Option<Holding> {
        match reservation.0 {
            ClaimRef::Task(task, number) => self.book(task).with(|book| {
                let held = book.claim(task, number)?;
                Some(Holding { holder: held.holder, claim: held.claim, place: held.place(task) })
            }),
            ClaimRef::Cpus(id) => self.cpus.with(|book| {
                let CpuClaim { claim, holder, cpus } = book.claims.get(id)?;
                Some(Holding { holder: *holder, claim: *claim, place: BpTarget::Cpus(cpus.clone()) })
            }),
        }
    }

    /// How many reservations there are.
    pub fn len(&self) -> usize {
        let of_tasks = |book: &mut TaskBook| book.len();
        self.cpus.with(|cpus| cpus.claims.len() + self.tasks.iter().map(|book| book.0.with(of_tasks)).sum::<usize>())
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn book(&self, task: TaskId) -> &L::Cell<TaskBook> {
        // Its table of the book looks at the lowest and the highest bits.
        let middle = (mixed(task) >> 32) as usize;
        &self.tasks[middle & (self.tasks.len() - 1)].0
    }

    fn check(&self, place: &BpTarget) -> Result<(), ReserveError> {
        let unknown = place.cpus().and_then(|cpus| cpus.iter().find(|cpu| cpu.0 >= self.number));
        unknown.map_or(Ok(()), |cpu| Err(ReserveError::NoSuchCpu(cpu)))
    }

    fn reserve_with(
        &self,
        cpus: &mut CpuBook,
        claim: Claim,
        place: BpTarget,
        holder: Holder,
    ) -> Result<Reservation, ReserveError> {
        match place {
            BpTarget::TaskEverywhere(task) | BpTarget::TaskOn(task, _) => self.book(task).with(|tasks| {
                let number = self.both(cpus, tasks).reserve(task, claim, place, holder)?;
                Ok(Reservation(ClaimRef::Task(task, number)))
            }),
            BpTarget::Cpus(mask) => {
                let granted = self.grant_cpus(cpus, claim, &mask);
                self.settle(cpus);
                granted?;
                let id = cpus.claims.insert(CpuClaim { claim, holder, cpus: mask });
                Ok(Reservation(ClaimRef::Cpus(id)))
            }
        }
    }

    fn release_with(&self, cpus: &mut CpuBook, entry: ClaimRef) -> bool {
        match entry {
            ClaimRef::Task(task, number) => {
                self.book(task).with(|tasks| self.both(cpus, tasks).release(task, number).is_ok())
            }
            ClaimRef::Cpus(id) => {
                let Some(CpuClaim { claim, cpus: mask, .. }) = cpus.claims.remove(id) else { return false };
                cpus.change_own(claim, &mask, ClaimChange::Less);
                self.settle(cpus);
                true
            }
        }
    }

    fn modify_cpus(&self, cpus: &mut CpuBook, id: ClaimId, claim: Claim, place: BpTarget) -> Result<(), ReserveError> {
        let held = cpus.claims.get(id).ok_or(ReserveError::Stale)?;
        let BpTarget::Cpus(mask) = place else { return Err(ReserveError::OtherOwner) };
        let (old_claim, old_mask) = (held.claim, held.cpus.clone());
        // The tasks' books keep the ceiling that it has with the old claim, until it is settled.
        cpus.change_own(old_claim, &old_mask, ClaimChange::Less);
        let granted = self.grant_cpus(cpus, claim, &mask);
        if granted.is_err() {
            cpus.change_own(old_claim, &old_mask, ClaimChange::More);
        } else if let Some(held) = cpus.claims.get_mut(id) {
            (held.claim, held.cpus) = (claim, mask);
        }
        self.settle(cpus);
        granted
    }

    /// Accounts for a claim of CPUs, if it fits. The ceiling must be settled afterwards.
    fn grant_cpus(&self, cpus: &mut CpuBook, claim: Claim, mask: &CpuMask) -> Result<(), ReserveError> {
        let (sort, total) = (self.registers.sort(claim.kind), self.registers.for_kind(claim.kind));
        let ceiling = cpus.ceiling_with(sort, mask, claim.weight.get());
        // What is more than there is never fits: then there is no need to make room.
        let ceiling = u8::try_from(ceiling).ok().filter(|&ceiling| ceiling <= total).unwrap_or(0);
        let summary = &self.summary.0;
        if !summary.raise_ceiling(sort, ceiling, |most| cpus.fits(claim, mask, most).is_ok()) {
            // Perhaps no task needs so many any more.
            summary.begin_count(sort, ceiling);
            let mut most = 0;
            for (shelf, books) in self.tasks.chunks(self.tasks.len().div_ceil(SHELVES)).enumerate() {
                if !summary.begin_shelf(shelf, sort, most) {
                    continue;
                }
                for book in books {
                    let need = book.0.with(|book| {
                        let need = book.most_needed(sort);
                        summary.raise_most(shelf, sort, need);
                        need
                    });
                    most = most.max(need);
                }
            }
            cpus.fits(claim, mask, summary.most(sort))?;
        }
        cpus.change_own(claim, mask, ClaimChange::More);
        Ok(())
    }

    /// Tells the tasks what is so.
    fn settle(&self, cpus: &CpuBook) {
        self.summary.0.set_ceilings(core::array::from_fn(|sort| cpus.ceiling(sort)));
    }

    fn both<'a>(&'a self, cpus: &'a mut CpuBook, tasks: &'a mut TaskBook) -> Books<'a, L::Word> {
        Books { registers: self.registers, summary: &self.summary.0, cpus, tasks }
    }
}

impl<L: Locks> fmt::Debug for Ledger<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("registers", &self.registers).field("cpus", &self.number).finish_non_exhaustive()
    }
}
