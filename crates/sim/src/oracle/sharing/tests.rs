//! The meaning of sharing, on examples that were worked out by hand.

use super::*;

const T: ContextKey = ContextKey::Task(TaskId(1));
const CPU: CpuId = CpuId(0);
const C: ContextKey = ContextKey::Cpu(CPU);

fn asks(place: ContextKey, rates: &[u64], flags: AttrFlags) -> Ask {
    let attrs = rates.iter().map(|&config| Attr { config, flags, ..Attr::default() }).collect();
    Ask { place, circle: 0, attrs }
}

fn open(all: &mut Sharing, place: ContextKey, rates: &[u64], flags: AttrFlags) -> GroupKey {
    let key = all.open(asks(place, rates, flags)).unwrap_or_else(|refusal| panic!("{refusal:?}"));
    all.enable(key, Part::Group);
    key
}

/// In each nanosecond as much happens as the number of the question says.
fn pass(all: &mut Sharing, place: ContextKey, ns: u64) {
    all.pass(place, ns, |attr| attr.config * ns);
}

fn count(value: u64, ns: u64) -> Count {
    Count { value, enabled: Nanos(ns), running: Nanos(ns) }
}

fn users(all: &Sharing) -> Vec<usize> {
    let mut users: Vec<_> = all.joinable().into_iter().map(|it| it.users).collect();
    users.sort_unstable();
    users
}

#[test]
fn the_same_question_in_one_place_is_one_counter() {
    let (mut all, none) = (Sharing::default(), AttrFlags::empty());
    for (place, flags) in [(T, none), (T, AttrFlags::SAMPLE_ID_ALL), (C, none), (T, AttrFlags::EXCLUDE_KERNEL)] {
        open(&mut all, place, &[3], flags);
    }
    assert_eq!((users(&all), all.shared()), (vec![1, 1, 2], 3));
    assert_eq!(all.registers(TaskId(1), CPU), 3);
    let alone = asks(T, &[3], AttrFlags::EXCLUSIVE);
    assert!(all.open(alone).is_ok());
    assert_eq!(all.shared(), 3, "who wants all counters shares with nobody");
}

#[test]
fn each_counts_as_if_it_were_alone() {
    let (mut all, none) = (Sharing::default(), AttrFlags::empty());
    let first = open(&mut all, T, &[3], none);
    pass(&mut all, T, 10);
    let second = open(&mut all, T, &[3], none);
    pass(&mut all, T, 10);
    assert_eq!((all.counts(first), all.counts(second)), (&[count(60, 20)][..], &[count(30, 10)][..]));
    all.reset(first, 0);
    all.disable(second, Part::Group);
    pass(&mut all, T, 1);
    assert_eq!((all.counts(first), all.counts(second)), (&[count(3, 21)][..], &[count(30, 10)][..]));
    all.close(first);
    assert_eq!((all.registers(TaskId(1), CPU), users(&all)), (0, vec![1]), "it is there, and nobody counts");
    all.enable(second, Part::Group);
    pass(&mut all, T, 1);
    pass(&mut all, C, 100);
    assert_eq!((all.counts(first), all.counts(second)), (&[][..], &[count(33, 11)][..]));
}
