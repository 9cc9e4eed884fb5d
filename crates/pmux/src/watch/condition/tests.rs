//! What conditions say of hits, and what is no condition.

use super::*;
use crate::watch::hit::{HitSide, HitValue};
use pmux_engine::Nanos;
use proptest::prelude::*;

fn hit(now: Option<u64>, before: Option<u64>) -> Hit {
    let value = now.map_or(HitValue::Overtaken, |now| HitValue::Read { now, before, late: Nanos(1) });
    Hit {
        at: Nanos(5),
        pid: 100,
        tid: 101,
        cpu: 3,
        watch_target: 0,
        address: 0x1000,
        ip: 0x40_0000,
        side: HitSide::User,
        callers: Box::default(),
        value,
        stands_for: 1,
    }
}

fn ask(text: &str, now: Option<u64>, before: Option<u64>) -> ConditionAnswer {
    text.parse::<Condition>().unwrap().ask(&hit(now, before), 4)
}

#[test]
fn comparisons() {
    for (text, answer) in [
        ("value == 42", ConditionAnswer::Yes),
        ("value==0x2a", ConditionAnswer::Yes),
        ("value != 42", ConditionAnswer::No),
        ("value == '*'", ConditionAnswer::Yes),
        ("value < 43 && value >= 42", ConditionAnswer::Yes),
        ("value > old", ConditionAnswer::Yes),
        ("value == old + 1", ConditionAnswer::Yes),
        ("value - old == 1", ConditionAnswer::Yes),
        ("value & 1", ConditionAnswer::No),
        ("value & 2", ConditionAnswer::Yes),
        ("value & 0b10 == 2", ConditionAnswer::Yes),
        ("!(value == 42)", ConditionAnswer::No),
        ("tid == 101 && pid == 100 && cpu == 3", ConditionAnswer::Yes),
        ("tid == 1 || cpu == 3", ConditionAnswer::Yes),
        ("changed", ConditionAnswer::Yes),
        ("kernel", ConditionAnswer::No),
        ("ip == 0x40_0000", ConditionAnswer::Yes),
    ] {
        assert_eq!(ask(text, Some(42), Some(41)), answer, "{text}");
    }
}

#[test]
fn numbers_are_as_wide_as_the_data() {
    assert_eq!(ask("value == -1", Some(u64::from(u32::MAX)), None), ConditionAnswer::Yes);
    assert_eq!(ask("value == -(1)", Some(u64::from(u32::MAX)), None), ConditionAnswer::Yes);
    assert_eq!(ask("old - 1 == value", Some(u64::from(u32::MAX)), Some(0)), ConditionAnswer::Yes);
}

#[test]
fn what_is_not_known_is_neither_yes_nor_no() {
    assert_eq!(ask("value == 42", None, None), ConditionAnswer::Unknown);
    assert_eq!(ask("!(value == 42)", None, None), ConditionAnswer::Unknown);
    assert_eq!(ask("old == 1", Some(42), None), ConditionAnswer::Unknown);
    assert_eq!(ask("value == 42 && cpu == 4", None, None), ConditionAnswer::No, "the CPU decides alone");
    assert_eq!(ask("value == 42 || cpu == 3", None, None), ConditionAnswer::Yes);
    assert_eq!(ask("value == 42 || cpu == 4", None, None), ConditionAnswer::Unknown);
}

#[test]
fn conditions_that_ask_for_values() {
    let asks = |text: &str| text.parse::<Condition>().unwrap().asks_for_values();
    assert!(asks("cpu == 1 && !(old & 3)") && asks("changed"));
    assert!(!asks("cpu == 1 || tid > 7"));
}

#[test]
fn errors_point_at_the_place() {
    for (text, column, words) in [
        ("", 0, "expected a number"),
        ("value ==", 8, "expected a number"),
        ("vale == 42", 0, "`vale` is not known of a hit; known are value, old"),
        ("value = 42", 6, "expected an operator"),
        ("(value == 42", 12, "expected `)`"),
        ("value == 0x", 9, "is no number"),
        ("value == 99999999999999999999", 9, "is no number"),
        ("value == 1 == 1", 11, "expected an operator"),
        ("value == 'ab'", 9, "one character"),
    ] {
        let error = text.parse::<Condition>().unwrap_err();
        assert_eq!(error.column(), column, "{text}: {error}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    assert!("(".repeat(10_000).parse::<Condition>().is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        if let Ok(condition) = text.parse::<Condition>() {
            let _ = condition.ask(&hit(Some(1), None), 8);
        }
    }

    #[test]
    fn comparisons_are_those_of_numbers(a in any::<u32>(), b in any::<u32>()) {
        let yes = |holds: bool| if holds { ConditionAnswer::Yes } else { ConditionAnswer::No };
        let at = |text: &str| ask(text, Some(a.into()), Some(b.into()));
        prop_assert_eq!(at("value < old"), yes(a < b));
        prop_assert_eq!(at("value >= old"), yes(a >= b));
        prop_assert_eq!(at("value & old"), yes(a & b != 0));
        prop_assert_eq!(at("value - old == 5"), yes(a.wrapping_sub(b) == 5));
    }
}
