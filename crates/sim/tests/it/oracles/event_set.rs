//! Triggers and event sets beside their model.

use pmux_engine::event_set::{
    EventSet, Happening, Lasting, Order, Place, Position, Reach, Repeat, Rounds, Term, Trigger, TriggerSpec, Verdict,
    Wish,
};
use pmux_engine::{CpuId, Nanos};
use pmux_sim::oracle::event_set::{Told, happenings, position};
use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroU32;

const VERDICTS: [Verdict; 3] = [Verdict::Holds, Verdict::Fails, Verdict::Unknown];

fn told(trigger: &mut Trigger, at: u64, told: Told, out: &mut Vec<Happening>) {
    let now = Nanos(at);
    match told {
        Told::Reads(term, place, verdict) => trigger.observe(term, place, verdict, now, out),
        Told::Happens(term, place) => trigger.happen(term, place, now, out),
        Told::Leaves(place) => trigger.leave(place, now, out),
    }
}

/// What the engine says of a story. `passes`: whether it is woken when it wants to be, or only when something is told.
fn engine(spec: &TriggerSpec, story: &[(u64, Told)], end: u64, woken: bool) -> Vec<Happening> {
    let (mut trigger, mut out) = (Trigger::new(spec.clone(), Nanos(0)), Vec::new());
    for &(at, what) in story {
        while let Some(next) = trigger.next().filter(|next| woken && next.0 <= at) {
            let before = out.len();
            trigger.pass(Nanos(next.0 - 1), &mut out);
            assert_eq!(out.len(), before, "nothing happens before the time that was announced");
            trigger.pass(next, &mut out);
        }
        told(&mut trigger, at, what, &mut out);
    }
    trigger.pass(Nanos(end), &mut out);
    let fired = out.iter().filter(|said| matches!(said, Happening::Fired { .. })).count() as u64;
    let held_back = out.iter().filter(|said| matches!(said, Happening::HeldBack { .. })).count() as u64;
    assert_eq!((trigger.fired(), trigger.held_back()), (fired, held_back));
    out
}

fn compare(spec: &TriggerSpec, story: &[(u64, Told)], end: u64) {
    let model = happenings(spec, story, end);
    assert_eq!(engine(spec, story, end, false), model, "{spec:?}\n{story:?}");
    assert_eq!(engine(spec, story, end, true), model, "woken: {spec:?}\n{story:?}");
}

fn lasting() -> impl Strategy<Value = Lasting> {
    prop_oneof![
        4 => Just(Lasting::Level),
        2 => Just(Lasting::Moment),
        2 => (0..9_u64).prop_map(|span| Lasting::Window(Nanos(span))),
    ]
}

fn term() -> impl Strategy<Value = Term> {
    let reach = prop_oneof![Just(Reach::Common), Just(Reach::EachPlace)];
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

fn one_told() -> impl Strategy<Value = Told> {
    let place = || (0..3_u32).prop_map(|cpu| Place::Cpu(CpuId(cpu)));
    prop_oneof![
        6 => (0..3_usize, place(), 0..3_usize).prop_map(|(term, place, said)| Told::Reads(term, place, VERDICTS[said])),
        4 => (0..3_usize, place()).prop_map(|(term, place)| Told::Happens(term, place)),
        1 => place().prop_map(Told::Leaves),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let span = || (0..10_u64).prop_map(Nanos);
    prop_oneof![
        Just(Wish::On),
        Just(Wish::Off),
        span().prop_map(Wish::OnFor),
        span().prop_map(Wish::OffFor),
        (0..3_u32).prop_map(Wish::Hold),
        (0..3_u32).prop_map(Wish::LetGo),
    ]
}

/// A window that ended before any place was there has not held since.
#[test]
fn a_window_that_nobody_saw_end_is_over() {
    let term = |lasting, held, reach| Term { lasting, held: Nanos(held), reach };
    let terms = vec![term(Lasting::Window(Nanos(6)), 5, Reach::Common), term(Lasting::Level, 3, Reach::EachPlace)];
    let (every, rounds) = (NonZeroU32::MIN, Rounds::Always);
    let spec = TriggerSpec { terms, every, repeat: Repeat::OnEdge, rounds, cool_down: Nanos(0) };
    let place = Place::Cpu(CpuId(2));
    let story =
        [(2, Told::Happens(0, place)), (9, Told::Happens(0, place)), (10, Told::Reads(1, place, Verdict::Holds))];
    compare(&spec, &story, 24);
    assert!(engine(&spec, &story, 24, true).contains(&Happening::Fired { place, at: Nanos(14) }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_trigger_says_what_the_model_says(spec in spec(), steps in vec((0..3_u64, one_told()), 0..14)) {
        let mut at = 0;
        let story: Vec<_> = steps.into_iter().map(|(wait, told)| { at += wait; (at, told) }).collect();
        compare(&spec, &story, at + 14);
    }

    #[test]
    fn a_set_is_where_the_model_says(steps in vec((0..5_u64, wish()), 0..20)) {
        let (mut set, mut at, mut told) = (EventSet::new(Vec::new()), 0, Vec::new());
        let carry = |set: &mut EventSet, order: Option<Order>| order.into_iter().for_each(|order| set.done(order));
        for (wait, wish) in steps {
            for now in at..at + wait {
                let order = set.settle(Nanos(now));
                carry(&mut set, order);
                prop_assert_eq!(set.position(), position(&told, now), "{:?} at {}", told, now);
                let here = set.position();
                let next = (now + 1..now + 40).find(|&later| position(&told, later) != here);
                prop_assert_eq!(set.next(Nanos(now)), next.map(Nanos), "{:?} at {}", told, now);
            }
            at += wait;
            let order = set.settle(Nanos(at));
            carry(&mut set, order);
            told.push((at, wish));
            let order = set.wish(wish, Nanos(at));
            carry(&mut set, order);
            prop_assert_eq!(set.position(), position(&told, at), "{:?} at {}", told, at);
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
                    let (mut at, mut rest, mut story) = (0, number, Vec::new());
                    for _ in 0..5 {
                        match VERDICTS.get(rest as usize % 4) {
                            Some(&said) => story.push((at, Told::Reads(0, Place::All, said))),
                            None => at += 1,
                        }
                        rest /= 4;
                    }
                    compare(&spec, &story, at + 8);
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
    let story: Vec<(u64, Told)> = (0..60)
        .map(|_| {
            at += random.u64(0..2);
            let place = Place::Cpu(CpuId(random.u32(0..4)));
            let told = match random.u8(0..3) {
                0 => Told::Happens(random.usize(0..2), place),
                _ => Told::Reads(random.usize(0..2), place, VERDICTS[random.usize(0..3)]),
            };
            (at, told)
        })
        .collect();
    let specs: Vec<TriggerSpec> = (0..100)
        .map(|number| TriggerSpec {
            terms: vec![
                Term { lasting: Lasting::Level, held: Nanos(number % 5), reach: Reach::EachPlace },
                Term { lasting: Lasting::Window(Nanos(number % 7)), held: Nanos(0), reach: Reach::Common },
            ],
            every: NonZeroU32::new(1 + number as u32 % 3).unwrap(),
            repeat: Repeat::OnEdge,
            rounds: if number % 10 == 9 { Rounds::Once } else { Rounds::Always },
            cool_down: Nanos(number / 10),
        })
        .collect();
    let mut triggers: Vec<_> = specs.iter().map(|spec| (Trigger::new(spec.clone(), Nanos(0)), Vec::new())).collect();
    for &(at, what) in &story {
        triggers.iter_mut().for_each(|(trigger, out)| told(trigger, at, what, out));
    }
    let mut fired = 0;
    for ((trigger, out), spec) in triggers.iter_mut().zip(&specs) {
        trigger.pass(Nanos(at + 10), out);
        assert_eq!(*out, happenings(spec, &story, at + 10));
        fired += trigger.fired();
    }
    assert!(fired > 50, "{fired} is too few to say anything");
}
