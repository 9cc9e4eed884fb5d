//! Many small things, done by several threads side by side.
//!
//! **Invariant:** who does what makes no difference to what comes of it, but for the order.

use std::sync::atomic::{AtomicUsize, Ordering};

/// So many things are done in the time that it takes to start one that helps, many times over.
const WORTH_A_HAND: usize = 128;
/// More that help get into each other's way.
const MOST_HANDS: usize = 4;
/// So many are done at a time: few enough that all hands end together.
const AT_A_TIME: usize = 64;

/// Does something with all of these, a part at a time, with as many threads as are worth it. What each has made is added up.
///
/// For what is mostly waiting for other CPUs.
pub fn in_parts<T: Sync, R: Send>(
    items: &[T],
    empty: impl Fn() -> R + Sync,
    mut add: impl FnMut(&mut R, R),
    work: impl Fn(&mut R, &[T]) + Sync,
) -> R {
    // Relaxed: nothing is published by it.
    let next = AtomicUsize::new(0);
    let hand = || {
        let mut result = empty();
        loop {
            let begin = next.fetch_add(AT_A_TIME, Ordering::Relaxed);
            let end = begin.saturating_add(AT_A_TIME).min(items.len());
            let Some(part) = items.get(begin..end).filter(|part| !part.is_empty()) else { return result };
            work(&mut result, part);
        }
    };
    let hands = hands_for(items.len());
    if hands == 1 {
        return hand();
    }
    std::thread::scope(|scope| {
        // Where no thread can be had, one hand less does it.
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, hand).ok();
        let others: Vec<_> = (1..hands).filter_map(start).collect();
        let mut result = hand();
        for other in others {
            match other.join() {
                Ok(other) => add(&mut result, other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

fn hands_for(items: usize) -> usize {
    if items < 2 * WORTH_A_HAND {
        return 1;
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cpus.min(MOST_HANDS).min(items / WORTH_A_HAND).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once() {
        for count in [0, 1, 63, 64, 65, 255, 256, 5000] {
            let items: Vec<usize> = (0..count).collect();
            let all = in_parts(&items, Vec::new, |all, more| all.extend(more), |all, part| all.extend_from_slice(part));
            let mut sorted = all;
            sorted.sort_unstable();
            assert_eq!(sorted, items);
        }
    }

    #[test]
    fn few_things_are_done_by_one() {
        let own = std::thread::current().id();
        let only = |others: &mut bool, _: &[u8]| *others |= std::thread::current().id() != own;
        assert!(!in_parts(&[0; WORTH_A_HAND], || false, |all, more| *all |= more, only));
        assert_eq!(hands_for(2 * WORTH_A_HAND - 1), 1);
        assert!(hands_for(100_000) <= MOST_HANDS);
    }
}
