//! The meaning of sharing, on examples that were worked out by hand; and a counter with a master, to see that nobody
//! can tell.

use super::*;
use pmux_engine::TaskId;

const T: ContextKey = ContextKey::Task(TaskId(1));
const U: ContextKey = ContextKey::Task(TaskId(2));

/// A question: what is counted, and a detail that makes no difference to the count.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ask {
    what: u64,
    detail: u64,
}

const CYCLES: Ask = Ask { what: 3, detail: 0 };
const CYCLES_TOO: Ask = Ask { detail: 1, ..CYCLES };
const FAULTS: Ask = Ask { what: 5, detail: 0 };

fn same(one: &Ask, other: &Ask) -> bool {
    one.what == other.what
}

/// In each nanosecond as much happens as the number of the question says.
fn rate(ns: u64) -> impl Fn(&Ask) -> u64 {
    move |ask| ask.what * ns
}

fn sharing() -> Sharing<Ask, fn(&Ask, &Ask) -> bool> {
    Sharing::new(same)
}

fn count(value: u64, enabled: u64, running: u64) -> Option<Count> {
    Some(Count { value, enabled: Nanos(enabled), running: Nanos(running) })
}

#[test]
fn the_same_question_in_one_context_is_one_counter() {
    assert!(CYCLES != CYCLES_TOO && same(&CYCLES, &CYCLES_TOO));
    let mut all = sharing();
    let asked = [(T, CYCLES), (T, CYCLES_TOO), (T, FAULTS), (U, CYCLES)];
    let keys = asked.map(|(context, ask)| all.open(context, ask, Company::Shares));
    assert!(all.counters(T).is_empty(), "who is off needs no counter");
    keys.iter().for_each(|&key| all.enable(key));
    assert_eq!(all.counters(T), [vec![keys[0], keys[1]], vec![keys[2]]]);
    assert_eq!(all.counters(U), [[keys[3]]]);
    all.disable(keys[0]);
    assert_eq!(all.counters(T), [vec![keys[1]], vec![keys[2]]]);
    all.move_to(keys[3], T);
    assert_eq!((all.counters(T), all.counters(U)), (vec![vec![keys[1], keys[3]], vec![keys[2]]], vec![]));
}

#[test]
fn a_demand_of_its_own_means_a_counter_of_its_own() {
    let mut all = sharing();
    let keys = [Company::Shares, Company::Alone, Company::Shares, Company::Alone].map(|it| all.open(T, CYCLES, it));
    keys.iter().for_each(|&key| all.enable(key));
    assert_eq!(all.counters(T), [vec![keys[0], keys[2]], vec![keys[1]], vec![keys[3]]]);
    assert!(all.may_share(keys[0], keys[2]) && !all.may_share(keys[1], keys[3]));
}

#[test]
fn each_counts_as_if_it_were_alone() {
    let mut all = sharing();
    let first = all.open(T, CYCLES, Company::Shares);
    all.enable(first);
    all.pass(T, 10, rate(10), |_| true);
    let second = all.open(T, CYCLES_TOO, Company::Shares);
    all.enable(second);
    all.pass(T, 10, rate(10), |_| true);
    assert_eq!((all.count(first), all.count(second)), (count(60, 20, 20), count(30, 10, 10)));
    all.reset(first);
    all.pass(T, 1, rate(1), |_| true);
    assert_eq!((all.count(first), all.count(second)), (count(3, 21, 21), count(33, 11, 11)));
    all.disable(first);
    all.pass(T, 1, rate(1), |_| true);
    // The one that opened the counter goes; the other counts on.
    all.close(first);
    all.pass(T, 1, rate(1), |_| true);
    assert_eq!((all.count(first), all.count(second)), (None, count(39, 13, 13)));
    all.pass(U, 100, rate(100), |_| true);
    assert_eq!(all.count(second), count(39, 13, 13), "nothing of another context");
}

#[test]
fn sharers_run_at_the_same_moments() {
    let mut all = sharing();
    let keys = [CYCLES, FAULTS, CYCLES_TOO].map(|ask| all.open(T, ask, Company::Shares));
    keys.iter().for_each(|&key| all.enable(key));
    // One register: the two counters take turns.
    for turn in 0..4 {
        let on = all.counters(T)[turn % 2].clone();
        all.pass(T, 10, rate(10), |users| users == on);
    }
    assert_eq!(keys.map(|key| all.count(key)), [count(60, 40, 20), count(100, 40, 20), count(60, 40, 20)]);
}

/// One register with a master and baselines, as an engine might do it.
#[derive(Default)]
struct Register {
    raw: u64,
    /// Who counts on it, from which value on, and what it had before; the first one is the master.
    users: Vec<(EventKey, u64, u64)>,
}

impl Register {
    fn fold(&mut self) {
        for (_, baseline, before) in &mut self.users {
            *before += self.raw - *baseline;
            *baseline = self.raw;
        }
    }
}

#[test]
fn who_is_master_can_not_be_seen() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut all = sharing();
    let mut register = Register::default();
    let mut handed_over = 0;
    for _ in 0..5000 {
        let user = (!register.users.is_empty()).then(|| random.usize(0..register.users.len()));
        match (random.u8(0..6), user) {
            (0 | 1, _) | (_, None) if register.users.len() < 8 => {
                let key = all.open(T, CYCLES, Company::Shares);
                all.enable(key);
                register.users.push((key, register.raw, 0));
            }
            (2, Some(user)) => {
                let (key, ..) = register.users.remove(user);
                handed_over += u32::from(user == 0 && !register.users.is_empty());
                all.close(key);
            }
            (3, Some(user)) => {
                register.fold();
                register.users[user].2 = 0;
                all.reset(register.users[user].0);
            }
            (4, Some(user)) => register.users.rotate_left(user),
            _ => {
                let ns = random.u64(0..100);
                register.raw += CYCLES.what * ns;
                all.pass(T, ns, rate(ns), |_| true);
            }
        }
        register.fold();
        for &(key, _, value) in &register.users {
            assert_eq!(all.count(key).map(|count| count.value), Some(value));
        }
    }
    assert!(handed_over > 20, "the master left {handed_over} times");
}
