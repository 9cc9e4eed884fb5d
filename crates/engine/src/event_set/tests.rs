//! Unit tests of triggers and switches. Against a slow model: `crates/sim/tests/oracles/trigger.rs`.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::id::{CpuId, Nanos};
use alloc::vec::Vec;
use core::num::NonZeroU32;

const LEVEL: Term = Term { lasting: Lasting::Level, held: Nanos(0), reach: Reach::Common };
const MOMENT: Term = Term { lasting: Lasting::Moment, held: Nanos(0), reach: Reach::Common };

fn spec(terms: &[Term]) -> TriggerSpec {
    TriggerSpec {
        terms: terms.to_vec(),
        every: NonZeroU32::MIN,
        repeat: Repeat::OnEdge,
        rounds: Rounds::Always,
        cool_down: Nanos::ZERO,
    }
}

/// When it has fired, by a story of `(time, term, value)`.
fn fires(spec: TriggerSpec, story: &[(u64, usize, TermValue)], end: u64) -> Vec<u64> {
    let (mut trigger, mut out) = (Trigger::new(spec, Nanos(0)), Vec::new());
    for &(at, term, value) in story {
        trigger.observe(term, TriggerTarget::All, value, Nanos(at), &mut out);
        if value == Holds {
            trigger.happen(term, TriggerTarget::All, Nanos(at), &mut out);
        }
    }
    trigger.pass(Nanos(end), &mut out);
    let at = |happening: &Happening| match happening {
        Happening::Fired { at, .. } => Some(at.0),
        _ => None,
    };
    out.iter().filter_map(at).collect()
}

use TermValue::{Fails, Holds, Unknown};

#[test]
fn it_fires_when_the_condition_begins_to_hold() {
    assert_eq!(
        fires(spec(&[LEVEL]), &[(1, 0, Fails), (2, 0, Holds), (3, 0, Holds), (4, 0, Fails), (5, 0, Holds)], 9),
        [2, 5]
    );
    assert_eq!(fires(spec(&[LEVEL, LEVEL]), &[(1, 0, Holds), (2, 1, Holds), (3, 0, Fails), (4, 0, Holds)], 9), [2, 4]);
    assert!(fires(spec(&[]), &[(1, 0, Holds)], 9).is_empty());
}

#[test]
fn what_must_be_held_fires_by_the_time_alone() {
    let held = Term { held: Nanos(5), ..LEVEL };
    assert_eq!(fires(spec(&[held]), &[(2, 0, Holds)], 100), [7]);
    assert_eq!(fires(spec(&[held]), &[(2, 0, Holds), (6, 0, Fails), (8, 0, Holds)], 100), [13]);
    // At one time, the time comes first.
    assert_eq!(fires(spec(&[held]), &[(2, 0, Holds), (7, 0, Fails)], 100), [7]);
}

#[test]
fn what_is_not_known_neither_holds_nor_fails() {
    let held = Term { held: Nanos(5), ..LEVEL };
    assert!(fires(spec(&[LEVEL]), &[(1, 0, Unknown), (5, 0, Unknown)], 9).is_empty());
    // It held before and after: it has not begun anew.
    assert_eq!(fires(spec(&[LEVEL]), &[(1, 0, Holds), (2, 0, Unknown), (3, 0, Holds)], 9), [1]);
    // The time in between does not count.
    assert_eq!(fires(spec(&[held]), &[(0, 0, Holds), (3, 0, Unknown), (10, 0, Holds)], 99), [12]);
    // What fails, fails, whatever else is not known.
    assert_eq!(
        fires(
            spec(&[LEVEL, LEVEL]),
            &[(1, 0, Holds), (1, 1, Holds), (2, 1, Unknown), (3, 0, Fails), (4, 0, Holds), (5, 1, Holds)],
            9
        ),
        [1, 5]
    );
}

#[test]
fn each_moment_counts_where_the_rest_holds() {
    let both = spec(&[LEVEL, MOMENT]);
    assert_eq!(
        fires(
            both.clone(),
            &[(1, 1, Holds), (2, 0, Holds), (3, 1, Holds), (3, 1, Holds), (4, 0, Fails), (5, 1, Holds)],
            9
        ),
        [3, 3]
    );
    let third = TriggerSpec { every: NonZeroU32::new(3).unwrap(), ..spec(&[MOMENT]) };
    let seven: Vec<_> = (1..8).map(|at| (at, 0, Holds)).collect();
    assert_eq!(fires(third, &seven, 9), [3, 6]);
    let once = TriggerSpec { rounds: Rounds::Once, ..spec(&[MOMENT]) };
    assert_eq!(fires(once, &seven, 9), [1]);
    let cool = TriggerSpec { cool_down: Nanos(3), ..spec(&[MOMENT]) };
    assert_eq!(fires(cool, &seven, 9), [1, 4, 7]);
}

#[test]
fn a_window_lasts_and_is_extended() {
    let window = Term { lasting: Lasting::Window(Nanos(10)), ..LEVEL };
    let (mut trigger, mut out) = (Trigger::new(spec(&[window]), Nanos(0)), Vec::new());
    for at in [5, 12] {
        trigger.happen(0, TriggerTarget::All, Nanos(at), &mut out);
    }
    assert_eq!(trigger.next(), Some(Nanos(22)).filter(|_| trigger.holds()).or(trigger.next()));
    trigger.pass(Nanos(50), &mut out);
    let fired = Happening::Fired { place: TriggerTarget::All, at: Nanos(5) };
    assert_eq!(out, [Happening::Begins { at: Nanos(5) }, fired, Happening::Ends { at: Nanos(22) }]);
    let held = Term { held: Nanos(4), ..window };
    assert_eq!(fires(spec(&[held]), &[(5, 0, Holds)], 99), [9]);
    let longer = Term { held: Nanos(11), ..window };
    assert!(fires(spec(&[longer]), &[(5, 0, Holds)], 99).is_empty());
}

#[test]
fn it_says_again_what_goes_on() {
    let again = TriggerSpec { repeat: Repeat::WhileHolds(Nanos(10)), ..spec(&[LEVEL]) };
    assert_eq!(fires(again.clone(), &[(3, 0, Holds), (30, 0, Fails), (31, 0, Holds)], 45), [3, 13, 23, 31, 41]);
    let moments = TriggerSpec { repeat: Repeat::WhileHolds(Nanos(3)), ..spec(&[MOMENT]) };
    let seven: Vec<_> = (1..8).map(|at| (at, 0, Holds)).collect();
    assert_eq!(fires(moments, &seven, 9), [1, 4, 7]);
}

#[test]
fn places_are_apart_and_leave() {
    let own = Term { reach: Reach::EachTarget, ..LEVEL };
    let (mut trigger, mut out) = (Trigger::new(spec(&[own, LEVEL]), Nanos(0)), Vec::new());
    let cpu = |cpu| TriggerTarget::Cpu(CpuId(cpu));
    trigger.observe(0, cpu(0), Holds, Nanos(1), &mut out);
    trigger.observe(0, cpu(1), Fails, Nanos(1), &mut out);
    assert_eq!(out, []);
    trigger.observe(1, TriggerTarget::All, Holds, Nanos(2), &mut out);
    trigger.observe(0, cpu(1), Holds, Nanos(3), &mut out);
    trigger.leave(cpu(0), Nanos(4), &mut out);
    trigger.leave(cpu(1), Nanos(5), &mut out);
    trigger.observe(0, cpu(1), Holds, Nanos(6), &mut out);
    let fired = |on, at| Happening::Fired { place: cpu(on), at: Nanos(at) };
    let (begins, ends) = (|at| Happening::Begins { at: Nanos(at) }, |at| Happening::Ends { at: Nanos(at) });
    assert_eq!(out, [begins(2), fired(0, 2), fired(1, 3), ends(5), begins(6), fired(1, 6)]);
    assert_eq!((trigger.fired(), trigger.holds()), (3, true));
}

#[test]
fn promises_get_longer_and_never_shorter() {
    let mut switch = SwitchState::default();
    let at = |switch: &SwitchState, at| switch.position(Nanos(at)) == Position::On;
    switch.request(SwitchRequest::OnFor(Nanos(10)), Nanos(0));
    switch.request(SwitchRequest::OnFor(Nanos(2)), Nanos(1));
    assert!(at(&switch, 9) && !at(&switch, 10));
    assert_eq!(switch.next(Nanos(1)), Some(Nanos(10)));
    switch.request(SwitchRequest::OnFor(Nanos(10)), Nanos(5));
    assert_eq!(switch.next(Nanos(5)), Some(Nanos(15)));
    switch.request(SwitchRequest::Hold(1), Nanos(6));
    assert_eq!(switch.next(Nanos(6)), None);
    switch.request(SwitchRequest::Release(1), Nanos(20));
    assert!(!at(&switch, 20));
    switch.request(SwitchRequest::On, Nanos(21));
    switch.request(SwitchRequest::OffFor(Nanos(5)), Nanos(22));
    assert!(!at(&switch, 26) && at(&switch, 27));
    assert_eq!(switch.next(Nanos(22)), Some(Nanos(27)));
    switch.request(SwitchRequest::OnFor(Nanos(1)), Nanos(23));
    assert!(at(&switch, 24), "the last wish wins, and it was on before");
    switch.request(SwitchRequest::Off, Nanos(30));
    assert_eq!((at(&switch, 31), switch.next(Nanos(31))), (false, None));
}

#[test]
fn an_order_is_left_where_something_changes_only() {
    let mut set = EventSet::new(Vec::new());
    assert_eq!(set.request(SwitchRequest::Off, Nanos(0)), None);
    assert_eq!(set.request(SwitchRequest::OnFor(Nanos(5)), Nanos(1)), Some(SetOp::Enable));
    set.done(SetOp::Enable);
    assert_eq!((set.request(SwitchRequest::OnFor(Nanos(5)), Nanos(3)), set.next(Nanos(3))), (None, Some(Nanos(8))));
    assert_eq!((set.settle(Nanos(7)), set.settle(Nanos(8))), (None, Some(SetOp::Disable)));
    set.done(SetOp::Disable);
    assert_eq!(set.request(SwitchRequest::On, Nanos(9)), Some(SetOp::Enable));
    set.failed(Nanos(9));
    assert_eq!((set.settle(Nanos(10)), set.position()), (None, Position::Off));
}
