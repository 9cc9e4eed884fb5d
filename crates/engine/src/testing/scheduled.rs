//! Locks at which a scheduler decides which thread comes next.
//!
//! What it is: threads of `shuttle`, each of which may play a task that is moved from CPU to CPU between two locks.
//!
//! **Invariant:** a failure prints the scheduler's seed; `shuttle::replay` follows it.

use super::locks::LockKind;
use crate::id::CpuId;
use crate::lock::LockCell;
use core::cell::Cell;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::sync::PoisonError;

pub(crate) enum Scheduled {}

impl LockKind for Scheduled {
    type Spin<T: Send> = Lock<T, true>;
    type Sleep<T: Send> = Lock<T, false>;

    fn here() -> Option<CpuId> {
        CPU.with(Cell::get)
    }

    fn yield_now() {
        thread::yield_now();
    }
}

pub(crate) struct Lock<T, const SPINS: bool>(Mutex<T>);

impl<T: Send, const SPINS: bool> LockCell<T> for Lock<T, SPINS> {
    fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if SPINNING.with(Cell::get) == 0 {
            may_move();
        }
        let mut value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spinning = SPINNING.with(|it| it.replace(it.get() + u32::from(SPINS)));
        let result = f(&mut value);
        SPINNING.with(|it| it.set(spinning));
        result
    }
}

shuttle::thread_local! {
    /// The CPU that this thread is on; `None`: it reaches everything.
    static CPU: Cell<Option<CpuId>> = Cell::new(None);
    /// Among so many CPUs the thread may be moved.
    static MOVED_AMONG: Cell<u32> = Cell::new(1);
    /// Whether it may be held up for long between two locks.
    static HELD_UP: Cell<bool> = Cell::new(false);
    /// How many locks it holds that keep it on its CPU.
    static SPINNING: Cell<u32> = Cell::new(0);
}

/// This thread is on a CPU, and stays there.
pub(crate) fn stay_on(cpu: CpuId) {
    CPU.with(|it| it.set(Some(cpu)));
}

/// The same, and it may be held up for long between two locks, while others do much.
pub(crate) fn play(cpu: CpuId) {
    stay_on(cpu);
    HELD_UP.with(|it| it.set(true));
}

/// This thread plays a task that may be on any of these CPUs.
pub(crate) fn play_among(cpus: u32) {
    play(CpuId(0));
    MOVED_AMONG.with(|it| it.set(cpus));
}

fn may_move() {
    if HELD_UP.with(Cell::get) && thread_rng().gen_ratio(1, 20) {
        (0..thread_rng().gen_range(0..80)).for_each(|_| thread::yield_now());
    }
    let cpus = MOVED_AMONG.with(Cell::get);
    if cpus > 1 && thread_rng().gen_ratio(1, 4) {
        stay_on(CpuId(thread_rng().gen_range(0..cpus)));
    }
}

/// Plays a story in so many orders.
pub(crate) fn schedules(times: usize, story: impl Fn() + Send + Sync + 'static) {
    run(shuttle::scheduler::RandomScheduler::new(times), story);
}

/// Plays a story so often on a scheduler that lets a thread run alone for as long as it can: one that waits without a lock for another
/// waits for ever, which is a failure.
pub(crate) fn unfairly(times: usize, story: impl Fn() + Send + Sync + 'static) {
    run(shuttle::scheduler::PctScheduler::new(2, times), story);
}

fn run(scheduler: impl shuttle::scheduler::Scheduler + 'static, story: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    shuttle::Runner::new(scheduler, config).run(story);
}
