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

#[test]
fn a_single_event_joins_a_group_and_takes_its_leader_along() {
    let (mut all, none) = (Sharing::default(), AttrFlags::empty());
    let group = open(&mut all, T, &[3, 5], none);
    let single = open(&mut all, T, &[5], none);
    assert_eq!(users(&all), [2]);
    all.disable(group, Part::Event(0));
    assert_eq!(all.stance(group, 1), Some(Stance::Waits));
    pass(&mut all, T, 2);
    assert_eq!((all.counts(group), all.counts(single)), (&[count(0, 0); 2][..], &[count(10, 2)][..]));
    assert_eq!(all.registers(TaskId(1), CPU), 2);
    let pinned = open(&mut all, T, &[3, 5], AttrFlags::PINNED);
    assert!(open(&mut all, T, &[5], AttrFlags::PINNED) > pinned);
    assert_eq!(users(&all), [1, 1, 2], "what is always on is joined as a whole only");
}

#[test]
fn who_comes_when_children_count_has_come_too_late() {
    let (mut all, inherit) = (Sharing::default(), AttrFlags::INHERIT);
    let early = open(&mut all, T, &[3], inherit);
    all.fork(TaskId(1), TaskId(2));
    let late = open(&mut all, T, &[3], inherit);
    pass(&mut all, ContextKey::Task(TaskId(2)), 4);
    assert_eq!((all.counts(early), all.counts(late)), (&[count(12, 4)][..], &[count(0, 0)][..]));
    assert_eq!((users(&all), all.shared()), (vec![1], 2), "nobody finds the first one any more");
    assert_eq!(all.modify(early, 0, Attr::default()), Err(Refusal::HasChildren));
    all.exit(TaskId(2));
    assert_eq!(all.modify(early, 0, Attr { flags: inherit, ..Attr::default() }), Ok(()));
}

#[test]
fn who_asks_something_else_leaves_or_takes_the_counter_along() {
    let (mut all, none) = (Sharing::default(), AttrFlags::empty());
    let [one, other] = [0, 1].map(|_| open(&mut all, T, &[3], none));
    let five = Attr { config: 5, ..Attr::default() };
    assert_eq!(all.modify(one, 0, five), Ok(()));
    assert_eq!(users(&all), [1, 1]);
    pass(&mut all, T, 2);
    assert_eq!((all.counts(one), all.counts(other)), (&[count(10, 2)][..], &[count(6, 2)][..]));
    assert_eq!(all.modify(other, 0, five), Ok(()));
    assert_eq!((users(&all), all.shared()), (vec![1], 1), "it was alone, and has its own from now on");
}

#[test]
fn what_watched_a_cpu_that_goes_is_dead() {
    let (mut all, none) = (Sharing::default(), AttrFlags::empty());
    let old = open(&mut all, C, &[3], none);
    all.offline(CPU);
    assert_eq!(all.open(asks(C, &[3], none)), Err(Refusal::Gone));
    all.online(CPU);
    let new = open(&mut all, C, &[3], none);
    pass(&mut all, C, 2);
    assert_eq!((all.stance(old, 0), all.counts(old)), (Some(Stance::Dead), &[count(0, 0)][..]));
    assert_eq!((all.counts(new), users(&all)), (&[count(6, 2)][..], vec![1]));
}
