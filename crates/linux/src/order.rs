//! Sorting, with one piece of code for all types.
//!
//! The standard library's sort is made anew for each type and each comparison, 5 KB of the program each time. Where a list is short, or is
//! sorted once, the functions here do the same with a call for each comparison.
//!
//! **Invariant:** stable: what is alike stays in its order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// As [`slice::sort_by`]; takes memory for a number of each item.
pub fn sort_by<T>(list: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let mut order: Vec<usize> = (0..list.len()).collect();
    sort_places(&mut order, &mut |one, other| compare(&list[one], &list[other]));
    // Each cycle of places is gone through once.
    for start in 0..order.len() {
        let mut at = start;
        loop {
            let from = std::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            list.swap(at, from);
            at = from;
        }
    }
}

/// As [`slice::sort_by_key`].
pub fn sort_by_key<T, K: Ord>(list: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(list, |one, other| key(one).cmp(&key(other)));
}

/// As [`slice::sort`].
pub fn sort<T: Ord>(list: &mut [T]) {
    sort_by(list, T::cmp);
}

/// As collecting into a set, which sorts first.
pub fn set<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

/// As collecting into a map, which sorts first.
pub fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

#[inline(never)]
fn sort_places(places: &mut [usize], compare: &mut dyn FnMut(usize, usize) -> Ordering) {
    places.sort_by(|&one, &other| compare(one, other));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_order_of_the_standard_library() {
        let mut random = fastrand::Rng::with_seed(1);
        for length in 0..200 {
            let list: Vec<(u8, usize)> = (0..length).map(|at| (random.u8(0..20), at)).collect();
            let (mut one, mut other) = (list.clone(), list);
            sort_by_key(&mut one, |item| item.0);
            other.sort_by_key(|item| item.0);
            assert_eq!(one, other);
        }
    }
}
