//! What threads that inherit breakpoints ask of the accounts of debug registers, without threads and without a kernel.
//!
//! What it is: the load of [`super::threads`] on the accounts alone. Where a thread starts, a task reserves; where it ends,
//! it releases. No task is bound to a CPU.
//! Read first: [`books`].
//!
//! **Invariant:** the accounts can't tell the load from a kernel's: any number of lanes, each with so many tasks at once.

use super::{BenchError, Cost, ThreadLoad};
use pmux_engine::TaskId;
use pmux_engine::hw_breakpoint::baseline::List;
use pmux_engine::hw_breakpoint::{BpTarget, Claim, Holder, Kind, Ledger, Locks, Registers, Reservation, ReserveError};
use pmux_linux::host::SleepLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The registers of the machine that is imagined: four, for both kinds, as on x86.
const REGISTERS: Registers = Registers::Shared(4);

/// Which accounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accounts {
    /// The engine's ledger.
    Ledger,
    /// One lock, one list that is scanned for each request, and a loop over all CPUs.
    List,
}

/// For how long a load may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowance {
    /// Until it is through.
    Whole,
    /// When the time is over no task comes any more, and those that are there go.
    UpTo(Duration),
}

/// What the accounts cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BooksCost {
    /// Of what was done.
    pub cost: Cost,
    /// How many operations there were to be done.
    pub wanted: u64,
    /// How often all of it was done: the cost is the median of that.
    pub runs: u32,
}

/// For how long a load is done again and again: a single one can be over before the machine is, for once, left alone.
const AGAIN_FOR: Duration = Duration::from_millis(250);

/// Measures the accounts of a machine with so many CPUs, several times where a load is short.
///
/// # Errors
/// [`BenchError::Accounts`] where a task needs more registers than there are.
pub fn books(accounts: Accounts, cpus: u32, load: ThreadLoad, allowance: Allowance) -> Result<BooksCost, BenchError> {
    let began = Instant::now();
    let mut costs = Vec::new();
    while costs.is_empty() || (began.elapsed() < AGAIN_FOR && allowance == Allowance::Whole) {
        let cost = match accounts {
            Accounts::Ledger => run(&Ledger::<SleepLocks>::new(REGISTERS, cpus), load, allowance),
            Accounts::List => run(&List::<SleepLocks>::new(REGISTERS, cpus), load, allowance),
        };
        costs.push(cost.map_err(|refused| BenchError::Accounts { breakpoints: load.breakpoints, refused })?);
    }
    crate::order::sort_by_key(&mut costs, |cost| cost.total);
    let wanted = u64::from(load.repeat) * u64::from(load.threads);
    Ok(BooksCost { cost: costs[costs.len() / 2], wanted, runs: costs.len() as u32 })
}

struct SleepLocks;

impl Locks for SleepLocks {
    type Cell<T: Send> = SleepLock<T>;
    type Word = AtomicU32;
}

trait Books: Sync {
    type Held;
    fn reserve(&self, task: TaskId) -> Result<Self::Held, ReserveError>;
    fn release(&self, held: Self::Held);
}

impl<L: Locks> Books for Ledger<L> {
    type Held = Reservation;

    fn reserve(&self, task: TaskId) -> Result<Reservation, ReserveError> {
        self.reserve(Claim::one(Kind::Data), BpTarget::TaskEverywhere(task), Holder::Opening)
            .map(|token| token.commit())
    }

    fn release(&self, held: Reservation) {
        self.release(held);
    }
}

impl<L: Locks> Books for List<L> {
    type Held = u64;

    fn reserve(&self, task: TaskId) -> Result<u64, ReserveError> {
        self.reserve(Claim::one(Kind::Data), BpTarget::TaskEverywhere(task))
    }

    fn release(&self, held: u64) {
        self.release(held);
    }
}

struct Track<'b, B> {
    books: &'b B,
    load: ThreadLoad,
    allowance: Allowance,
    /// Batches that no thread has begun. Relaxed: it hands out numbers.
    left: AtomicU32,
    start: Barrier,
}

fn run<B: Books>(books: &B, load: ThreadLoad, allowance: Allowance) -> Result<Cost, ReserveError> {
    let lanes = load.parallelism;
    let left = AtomicU32::new(load.repeat);
    let track = Track { books, load, allowance, left, start: Barrier::new(lanes as usize) };
    let laps = Mutex::new(Vec::with_capacity(lanes as usize));
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            let (track, laps) = (&track, &laps);
            scope.spawn(move || {
                let lap = track.lap(lane);
                laps.lock().unwrap_or_else(PoisonError::into_inner).push(lap);
            });
        }
    });
    let laps = laps.into_inner().unwrap_or_else(PoisonError::into_inner);
    let laps = laps.into_iter().collect::<Result<Vec<_>, _>>()?;
    let began = laps.iter().map(|(began, ..)| *began).min();
    let ended = laps.iter().map(|(_, ended, _)| *ended).max();
    let total = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended - began);
    let operations = laps.iter().map(|(.., operations)| operations).sum();
    Ok(Cost { total, operations, parallelism: lanes })
}

impl<B: Books> Track<'_, B> {
    /// What a lane has done, and when; or why it could not.
    fn lap(&self, lane: u32) -> Result<(Instant, Instant, u64), ReserveError> {
        let mut held = Vec::with_capacity(self.load.threads as usize * self.load.breakpoints as usize);
        // Each task that ever is has a name of its own.
        let mut names = (u64::from(lane) << 32..).map(TaskId);
        let mut done = 0;
        self.start.wait();
        let began = Instant::now();
        let next = |left: u32| left.checked_sub(1);
        while self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok() {
            let result = self.batch(began, &mut names, &mut held);
            held.drain(..).for_each(|held| self.books.release(held));
            match result {
                Ok(tasks) => done += tasks,
                Err(refused) => {
                    self.left.store(0, Ordering::Relaxed);
                    return Err(refused);
                }
            }
            if self.is_over(began) {
                break;
            }
        }
        Ok((began, Instant::now(), done))
    }

    /// Lets tasks come, as many as there may be, and says how many that are.
    fn batch(
        &self,
        began: Instant,
        names: &mut impl Iterator<Item = TaskId>,
        held: &mut Vec<B::Held>,
    ) -> Result<u64, ReserveError> {
        let mut came = 0;
        for task in names.take(self.load.threads as usize) {
            for _ in 0..self.load.breakpoints {
                held.push(self.books.reserve(task)?);
            }
            came += 1;
            if self.is_over(began) {
                break;
            }
        }
        Ok(came)
    }

    fn is_over(&self, began: Instant) -> bool {
        matches!(self.allowance, Allowance::UpTo(limit) if began.elapsed() >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: ThreadLoad = ThreadLoad { breakpoints: 4, parallelism: 3, threads: 5, repeat: 7 };

    #[test]
    fn every_operation_is_done_and_nothing_is_left() {
        let ledger = Ledger::<SleepLocks>::new(REGISTERS, 8);
        let found = run(&ledger, LOAD, Allowance::Whole).unwrap();
        assert_eq!((found.operations, found.parallelism), (35, 3));
        assert!(ledger.is_empty());
        let list = run(&List::<SleepLocks>::new(REGISTERS, 8), LOAD, Allowance::Whole).unwrap();
        assert_eq!(list.operations, 35);
        let often = books(Accounts::Ledger, 8, LOAD, Allowance::Whole).unwrap();
        assert_eq!((often.wanted, often.cost.operations), (35, 35));
        assert!(often.runs >= 1);
    }

    #[test]
    fn when_the_time_is_over_it_ends() {
        let many = ThreadLoad { threads: 1000, repeat: u32::MAX, ..LOAD };
        let found = books(Accounts::Ledger, 8, many, Allowance::UpTo(Duration::from_millis(1))).unwrap();
        assert!(found.cost.operations < found.wanted && found.cost.operations >= 3, "{found:?}");
        assert!(found.cost.total >= Duration::from_millis(1));
    }

    #[test]
    fn a_task_has_no_more_than_there_are() {
        let many = ThreadLoad { breakpoints: 5, ..LOAD };
        for accounts in [Accounts::Ledger, Accounts::List] {
            let error = books(accounts, 2, many, Allowance::Whole).unwrap_err().to_string();
            assert!(error.starts_with("a task can't have 5 breakpoints: 4 of 4 debug registers"), "{error}");
        }
    }

    #[test]
    fn costs_are_by_operation() {
        let cost = Cost { total: Duration::from_secs(2), operations: 1000, parallelism: 4 };
        assert_eq!((cost.usecs_per_op(), cost.usecs_per_op_per_cpu()), (2000.0, 8000.0));
    }
}
