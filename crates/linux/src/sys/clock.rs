//! The clocks of the kernel.
//!
//! **Invariant:** they never go back.

/// Nanoseconds of `CLOCK_MONOTONIC`: stops while the machine is suspended.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// What [`monotonic_ns`] was at the kernel's last tick, for a quarter of its price.
pub(crate) fn monotonic_at_tick_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds of `CLOCK_BOOTTIME`: goes on while the machine is suspended; the kernel notes the beginnings of tasks by it.
pub(crate) fn since_boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: (1) `now` is a valid, writable `timespec` for the whole call.
    let answer = unsafe { libc::clock_gettime(clock, &raw mut now) };
    // Every Linux has these clocks, so the call can't fail; 0 would be the honest start all the same.
    if answer != 0 {
        return 0;
    }
    // Neither is negative, and 584 years fit.
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let first = monotonic_ns();
        assert!(first > 0);
        assert!(monotonic_ns() >= first);
        assert!(since_boot_ns() >= first, "suspended time is added");
    }

    #[test]
    fn a_tick_is_never_ahead_and_not_far_behind() {
        let (tick, now) = (monotonic_at_tick_ns(), monotonic_ns());
        assert!(tick <= now, "{tick} was said before {now}");
        let (now, tick) = (monotonic_ns(), monotonic_at_tick_ns());
        // A tick is 10 ms at most; a thread that lost its CPU in between saw a later one.
        assert!(now.saturating_sub(tick) < 1_000_000_000, "{tick} was said after {now}");
    }
}
