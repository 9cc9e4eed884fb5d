//! Spending CPU time in a loop whose instructions are known.
//!
//! **Invariant:** no memory is touched but the stack.

use super::arch::turn;
use crate::sys::check_size;

/// The first part of a run: some microseconds, to see how fast the CPU is.
const FIRST_ROUNDS: u64 = 10_000;
/// Shorter parts are not worth a look at the clock.
const LEAST_ROUNDS: u64 = 500;
/// Longer parts would be wrong about a CPU that changes its speed.
const MOST_ROUNDS: u64 = 100_000_000;

/// The CPU time of the calling thread. Asked of the kernel itself: the page of the clock may not be there.
pub(super) fn cpu_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = libc::c_long::from(libc::CLOCK_THREAD_CPUTIME_ID);
    // SAFETY: (1) `now` is a valid, writable `timespec` for the whole call.
    let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut now) };
    if check_size(answer as isize).is_err() {
        return 0;
    }
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Spends time until the thread's CPU time has reached `until_ns`; answers the rounds that it took.
///
/// It looks at the clock a few times only: most of the instructions of a run are those of the loop.
pub(super) fn spin(until_ns: u64) -> u64 {
    let (mut part, mut total) = (FIRST_ROUNDS, 0_u64);
    let mut before = cpu_ns();
    while before < until_ns {
        turn(part);
        total = total.saturating_add(part);
        let now = cpu_ns();
        let took_ns = now.saturating_sub(before).max(1);
        // Three quarters of what is left, so that a CPU that became slower does not go past the end.
        let left_ns = until_ns.saturating_sub(now).saturating_mul(3) / 4;
        part = (part.saturating_mul(left_ns) / took_ns).clamp(LEAST_ROUNDS, MOST_ROUNDS);
        before = now;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_for_as_long_as_it_should() {
        let start = cpu_ns();
        let rounds = spin(start + 3_000_000);
        assert!(cpu_ns() - start >= 3_000_000);
        assert!(rounds >= FIRST_ROUNDS);
        assert_eq!(spin(start), 0, "that time is over");
    }

    #[test]
    fn no_round_is_no_endless_loop() {
        turn(0);
        turn(1);
    }
}
