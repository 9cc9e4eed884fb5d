//! How many lines of the log one user may cause.
//!
//! What it is: [`LogLimiter`], a token bucket for each user. Lines beyond it are counted, and the count is said.
//!
//! **Invariant:** pure: the time is an argument. Memory grows with the users of the last seconds only.

use std::collections::HashMap;

/// Lines that one user causes at once.
const BURST: u64 = 64;
/// After them, one more line in so long.
const PACE_NS: u64 = 500_000_000;

#[derive(Debug, Default)]
pub(crate) struct LogLimiter(HashMap<u32, Bucket>);

#[derive(Debug)]
struct Bucket {
    /// When the bucket is full again; each line moves it on by [`PACE_NS`].
    full_at_ns: u64,
    /// Lines that were left out and not yet told of.
    left_out: u64,
}

impl LogLimiter {
    /// Whether a line about a user is written now.
    pub(crate) fn admits(&mut self, user: u32, now_ns: u64) -> bool {
        let bucket = self.0.entry(user).or_insert(Bucket { full_at_ns: now_ns, left_out: 0 });
        let full_at_ns = bucket.full_at_ns.max(now_ns) + PACE_NS;
        // First it is told how many were left out.
        let admitted = bucket.left_out == 0 && full_at_ns <= now_ns + BURST * PACE_NS;
        if admitted {
            bucket.full_at_ns = full_at_ns;
        } else {
            bucket.left_out += 1;
        }
        admitted
    }

    /// When [`LogLimiter::left_out`] has something to say; `None` where no line was left out.
    #[must_use]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let waiting = self.0.values().filter(|bucket| bucket.left_out > 0);
        waiting.map(|bucket| bucket.full_at_ns.saturating_sub((BURST - 2) * PACE_NS)).min()
    }

    /// Users with lines that may be written again, and how many were left out meanwhile. That line is paid for as well, and there is
    /// room for one behind it.
    pub(crate) fn left_out(&mut self, now_ns: u64) -> Vec<(u32, u64)> {
        self.0.retain(|_, bucket| bucket.left_out > 0 || bucket.full_at_ns > now_ns);
        let may_speak = |bucket: &Bucket| bucket.full_at_ns + 2 * PACE_NS <= now_ns + BURST * PACE_NS;
        let speaks = |(&user, bucket): (&u32, &mut Bucket)| {
            (bucket.left_out > 0 && may_speak(bucket)).then(|| {
                bucket.full_at_ns = bucket.full_at_ns.max(now_ns) + PACE_NS;
                (user, std::mem::take(&mut bucket.left_out))
            })
        };
        self.0.iter_mut().filter_map(speaks).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_limit_is_per_user_and_reported() {
        let mut log_limiter = LogLimiter::default();
        let start = 7_000_000_000_000;
        let admitted = (0..1000).filter(|_| log_limiter.admits(1, start)).count() as u64;
        assert_eq!(admitted, BURST);
        assert!(log_limiter.admits(2, start), "another user");
        assert_eq!(log_limiter.left_out(start), []);
        let next = log_limiter.next_ns().unwrap_or_default();
        assert_eq!(next, start + 2 * PACE_NS);
        assert_eq!(log_limiter.left_out(next), [(1, 1000 - BURST)]);
        assert_eq!((log_limiter.next_ns(), log_limiter.left_out(next)), (None, vec![]), "it is said once");
        assert!(log_limiter.admits(1, next) && !log_limiter.admits(1, next), "that line was one of its lines");
        // A flood that goes on: two lines a second, the sentence among them.
        let (mut lines, mut reported) = (0, 0);
        for ms in 0..10_000 {
            let now = next + ms * 1_000_000;
            lines += u64::from(log_limiter.admits(1, now));
            for (_, left_out) in log_limiter.left_out(now) {
                lines += 1;
                reported += left_out;
            }
        }
        assert!((18..=22).contains(&lines) && reported > 8_900, "{lines} {reported}");
        assert!(log_limiter.left_out(u64::MAX / 2).len() <= 1 && log_limiter.left_out(u64::MAX / 2).is_empty());
        assert!(
            log_limiter.left_out(u64::MAX).is_empty() && log_limiter.0.is_empty(),
            "nothing is kept of who was quiet"
        );
    }
}
