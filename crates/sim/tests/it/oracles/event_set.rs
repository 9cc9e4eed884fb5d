//! Triggers and event sets beside their model.

use pmux_engine::event_set::{
    EventSet, Happening, Lasting, Position, Reach, Repeat, Rounds, SetOp, SwitchRequest, Term, TermValue, Trigger,
    TriggerSpec, TriggerTarget,
};
use pmux_engine::{CpuId, Nanos};
use pmux_sim::oracle::event_set::{TermInput, happenings, position};
use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroU32;

const TERM_VALUES: [TermValue; 3] = [TermValue::Holds, TermValue::Fails, TermValue::Unknown];

fn send_input(trigger: &mut Trigger, at: u64, input: TermInput, out: &mut Vec<Happening>) {
    let now = Nanos(at);
    match input {
        TermInput::Reads(term, place, verdict) => trigger.observe(term, place, verdict, now, out),
        TermInput::Happens(term, place) => trigger.happen(term, place, now, out),
        TermInput::Leaves(place) => trigger.leave(place, now, out),
    }
}

/// What the engine says of a story. `passes`: whether it is woken when it wants to be, or only when something is told.
fn engine(spec: &TriggerSpec, log: &[(u64, TermInput)], end: u64, woken: bool) -> Vec<Happening> {
    let (mut trigger, mut out) = (Trigger::new(spec.clone(), Nanos(0)), Vec::new());
    for &(at, what) in log {
        while let Some(next) = trigger.next().filter(|next| woken && next.0 <= at) {
            let before = out.len();
            trigger.pass(Nanos(next.0 - 1), &mut out);
            assert_eq!(out.len(), before, "nothing happens before the time that was announced");
            trigger.pass(next, &mut out);
        }
        send_input(&mut trigger, at, what, &mut out);
    }
    trigger.pass(Nanos(end), &mut out);
    let fired = out.iter().filter(|said| matches!(said, Happening::Fired { .. })).count() as u64;
    let held_back = out.iter().filter(|said| matches!(said, Happening::HeldBack { .. })).count() as u64;
    assert_eq!((trigger.fired(), trigger.held_back()), (fired, held_back));
    out
}

fn compare(spec: &TriggerSpec, log: &[(u64, TermInput)], end: u64) {
    let model = happenings(spec, log, end);
    assert_eq!(engine(spec, log, end, false), model, "{spec:?}\n{log:?}");
    assert_eq!(engine(spec, log, end, true), model, "woken: {spec:?}\n{log:?}");
}

fn lasting() -> impl Strategy<Value = Lasting> {
    prop_oneof![
        4 => Just(Lasting::Level),
        2 => Just(Lasting::Moment),
        2 => (0..9_u64).prop_map(|span| Lasting::Window(Nanos(span))),
    ]
}

fn term() -> impl Strategy<Value = Term> {
    let reach = prop_oneof![Just(Reach::Common), Just(Reach::EachTarget)];
    let held = prop_oneof![Just(0), 0..8_u64].prop_map(Nanos);
    (lasting(), held, reach).prop_map(|(lasting, held, reach)| Term { lasting, held, reach })
}

fn spec() -> impl Strategy<Value = TriggerSpec> {
    let repeat = prop_oneof![Just(Repeat::OnEdge), (0..6_u64).prop_map(|span| Repeat::WhileHolds(Nanos(span)))];
    let rounds = prop_oneof![3 => Just(Rounds::Always), 1 => Just(Rounds::Once)];
    let cool_down = prop_oneof![Just(0), 0..12_u64].prop_map(Nanos);
    (vec(term(), 1..4), 1..4_u32, repeat, rounds, cool_down).prop_map(|(terms, every, repeat, rounds, cool_down)| {
        TriggerSpec { terms, every: NonZeroU32::new(every).unwrap(), repeat, rounds, cool_down }
    })
}

fn one_input() -> impl Strategy<Value = TermInput> {
    let place = || (0..3_u32).prop_map(|cpu| TriggerTarget::Cpu(CpuId(cpu)));
    prop_oneof![
        6 => (0..3_usize, place(), 0..3_usize).prop_map(|(term, place, said)| TermInput::Reads(term, place, TERM_VALUES[said])),
        4 => (0..3_usize, place()).prop_map(|(term, place)| TermInput::Happens(term, place)),
        1 => place().prop_map(TermInput::Leaves),
    ]
}

fn request() -> impl Strategy<Value = SwitchRequest> {
    let span = || (0..10_u64).prop_map(Nanos);
    prop_oneof![
        Just(SwitchRequest::On),
        Just(SwitchRequest::Off),
        span().prop_map(SwitchRequest::OnFor),
        span().prop_map(SwitchRequest::OffFor),
        (0..3_u32).prop_map(SwitchRequest::Hold),
        (0..3_u32).prop_map(SwitchRequest::Release),
    ]
}

/// A window that ended before any place was there has not held since.
#[test]
fn a_window_whose_end_was_not_seen_is_over() {
    let term = |lasting, held, reach| Term { lasting, held: Nanos(held), reach };
    let terms = vec![term(Lasting::Window(Nanos(6)), 5, Reach::Common), term(Lasting::Level, 3, Reach::EachTarget)];
    let (every, rounds) = (NonZeroU32::MIN, Rounds::Always);
    let spec = TriggerSpec { terms, every, repeat: Repeat::OnEdge, rounds, cool_down: Nanos(0) };
    let place = TriggerTarget::Cpu(CpuId(2));
    let log = [
        (2, TermInput::Happens(0, place)),
        (9, TermInput::Happens(0, place)),
        (10, TermInput::Reads(1, place, TermValue::Holds)),
    ];
    compare(&spec, &log, 24);
    assert!(engine(&spec, &log, 24, true).contains(&Happening::Fired { place, at: Nanos(14) }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trigger_says_what_the_model_says(spec in spec(), steps in vec((0..3_u64, one_input()), 0..14)) {
        let mut at = 0;
        let log: Vec<_> = steps.into_iter().map(|(wait, input)| { at += wait; (at, input) }).collect();
        compare(&spec, &log, at + 14);
    }

    #[test]
    fn a_set_is_where_the_model_says(steps in vec((0..5_u64, request()), 0..20)) {
        let (mut set, mut at, mut requests) = (EventSet::new(Vec::new()), 0, Vec::new());
        let carry = |set: &mut EventSet, order: Option<SetOp>| order.into_iter().for_each(|order| set.done(order));
        for (wait, request) in steps {
            for now in at..at + wait {
                let order = set.settle(Nanos(now));
                carry(&mut set, order);
                prop_assert_eq!(set.position(), position(&requests, now), "{:?} at {}", requests, now);
                let here = set.position();
                let next = (now + 1..now + 40).find(|&later| position(&requests, later) != here);
                prop_assert_eq!(set.next(Nanos(now)), next.map(Nanos), "{:?} at {}", requests, now);
            }
            at += wait;
            let order = set.settle(Nanos(at));
            carry(&mut set, order);
            requests.push((at, request));
            let order = set.request(request, Nanos(at));
            carry(&mut set, order);
            prop_assert_eq!(set.position(), position(&requests, at), "{:?} at {}", requests, at);
        }
        prop_assert!(matches!(set.position(), Position::On | Position::Off));
    }
}

/// All stories of one term with five steps, each of which is a reading or a nanosecond.
#[test]
fn every_short_story_of_one_term() {
    let mut cases = 0_u32;
    for held in [0, 2] {
        for repeat in [Repeat::OnEdge, Repeat::WhileHolds(Nanos(2))] {
            for cool_down in [0, 3] {
                let term = Term { lasting: Lasting::Level, held: Nanos(held), reach: Reach::Common };
                let spec = TriggerSpec {
                    terms: vec![term],
                    every: NonZeroU32::MIN,
                    repeat,
                    rounds: Rounds::Always,
                    cool_down: Nanos(cool_down),
                };
                for number in 0..4_u32.pow(5) {
                    let (mut at, mut rest, mut log) = (0, number, Vec::new());
                    for _ in 0..5 {
                        match TERM_VALUES.get(rest as usize % 4) {
                            Some(&said) => log.push((at, TermInput::Reads(0, TriggerTarget::All, said))),
                            None => at += 1,
                        }
                        rest /= 4;
                    }
                    compare(&spec, &log, at + 8);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} stories");
}

/// A hundred triggers that are told the same each fire as if they were alone.
#[test]
fn a_hundred_triggers_at_once() {
    let mut random = fastrand::Rng::with_seed(6);
    let mut at = 0;
    let log: Vec<(u64, TermInput)> = (0..60)
        .map(|_| {
            at += random.u64(0..2);
            let place = TriggerTarget::Cpu(CpuId(random.u32(0..4)));
            let input = match random.u8(0..3) {
                0 => TermInput::Happens(random.usize(0..2), place),
                _ => TermInput::Reads(random.usize(0..2), place, TERM_VALUES[random.usize(0..3)]),
            };
            (at, input)
        })
        .collect();
    let specs: Vec<TriggerSpec> = (0..100)
        .map(|number| TriggerSpec {
            terms: vec![
                Term { lasting: Lasting::Level, held: Nanos(number % 5), reach: Reach::EachTarget },
                Term { lasting: Lasting::Window(Nanos(number % 7)), held: Nanos(0), reach: Reach::Common },
            ],
            every: NonZeroU32::new(1 + number as u32 % 3).unwrap(),
            repeat: Repeat::OnEdge,
            rounds: if number % 10 == 9 { Rounds::Once } else { Rounds::Always },
            cool_down: Nanos(number / 10),
        })
        .collect();
    let mut triggers: Vec<_> = specs.iter().map(|spec| (Trigger::new(spec.clone(), Nanos(0)), Vec::new())).collect();
    for &(at, what) in &log {
        triggers.iter_mut().for_each(|(trigger, out)| send_input(trigger, at, what, out));
    }
    let mut fired = 0;
    for ((trigger, out), spec) in triggers.iter_mut().zip(&specs) {
        trigger.pass(Nanos(at + 10), out);
        assert_eq!(*out, happenings(spec, &log, at + 10));
        fired += trigger.fired();
    }
    assert!(fired > 50, "{fired} is too few to say anything");
}
