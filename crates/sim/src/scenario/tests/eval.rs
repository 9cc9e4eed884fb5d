//! What expectations mean.

use pmux_engine::{Count, EventState, Nanos};
use proptest::prelude::*;

use super::super::ast::{Expectation, Name, Part, Statement, Subject, Window};
use super::super::eval::{Gap, Observe, evaluate};
use super::read;

/// `e` counted 150 of 200 in 15 of 20 ms; `c` (its child) 50 of 50; `n` never ran.
struct FixedValues;

impl Observe for FixedValues {
    fn count(&mut self, subject: &Subject) -> Result<Count, String> {
        let (value, enabled, running) = match (subject.event.as_str(), &subject.part) {
            ("e", Part::Whole) => (150, 20_000_000, 15_000_000),
            ("e", Part::Child(_)) => (50, 5_000_000, 5_000_000),
            ("n", _) => (0, 0, 0),
            _ => return Err("it can't be read".into()),
        };
        Ok(Count { value, enabled: Nanos(enabled), running: Nanos(running) })
    }

    fn states(&mut self, subject: &Subject) -> Result<Vec<EventState>, String> {
        Ok(match subject.event.as_str() {
            "e" => vec![EventState::Active],
            "n" => vec![EventState::Active, EventState::Off],
            _ => vec![],
        })
    }

    fn truth(&mut self, _: &Subject, window: Window) -> Result<u64, String> {
        Ok(if window == Window::Running { 150 } else { 200 })
    }

    fn gap(&mut self, _: &Subject) -> Result<Gap, String> {
        Ok(Gap { missed: Nanos(5_000_000), times: 2 })
    }

    fn fired(&mut self, _: &Name) -> Result<u64, String> {
        Ok(4)
    }

    fn lost(&mut self, subject: Option<&Subject>) -> Result<u64, String> {
        Ok(if subject.is_some() { 1 } else { 3 })
    }
}

fn expected(text: &str) -> Expectation {
    let scenario = read(&format!("expect {text}"));
    match scenario.steps.first().map(|step| step.statement.clone()) {
        Some(Statement::Expect(expectation)) => expectation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_so() {
    for text in [
        "e.count == truth",
        "e.count == e.truth",
        "e.count != truth(enabled)",
        "e.estimate == truth(enabled)",
        "e.running <= e.enabled",
        "e.running < e.enabled",
        "e.enabled > e.running",
        "e.share == 0.75",
        "e.share >= 0.75",
        "e.running == 15ms",
        "e.count == 3 * e.children[C].count",
        "e.count - 100 == e.children[C].count",
        "100 - e.count == 0 - 50",
        "e.count / 4 == 37.5",
        "e.enabled / e.running * 3 == 4",
        "e.count ~ 148 within 2%",
        "e.count ~ 152 within 2",
        "e.running ~ 14ms within 1ms",
        "e.state == active|off",
        "e.state != error",
        "n.state == active|off",
        "n.running == 0",
        "e.gap == 5ms",
        "e.gaps == 2",
        "e.lost == 1",
        "lost == 3",
    ] {
        assert_eq!(evaluate(&expected(text), &mut FixedValues), Ok(()), "{text}");
    }
}

#[test]
fn what_is_not_so_says_what_is() {
    for (text, said) in [
        ("e.count == truth(enabled)", "but e.count is 150 and truth(enabled) is 200"),
        ("e.running >= 16ms", "expected e.running >= 16ms, but e.running is 15ms"),
        ("e.share > 0.8", "e.share is 0.750000"),
        ("e.count ~ 147 within 2%", "e.count is 150"),
        ("e.count ~ 152 within 1.9", "e.count is 150"),
        ("2 * e.count == truth", "2 * e.count is 300 and truth is 150"),
        ("e.running + 500us == e.enabled", "e.running + 500us is 15.5ms"),
        ("e.state == off", "but it is active"),
        ("n.state == active", "one of 2 events is off"),
        ("x.state == active", "stands for no event"),
        ("x.count == 1", "it can't be read"),
        ("n.share == 1", "n was never enabled"),
        ("n.estimate == 0", "n was not counted"),
        ("e.count / n.count == 1", "divides by zero"),
        ("1 == 2", "it is not so"),
        ("e.count * 9999999999999999999 * 9999999999999999999 * 999 == 1", "too large"),
    ] {
        match evaluate(&expected(text), &mut FixedValues) {
            Err(unmet) => assert!(unmet.contains(said), "{text}: {unmet}"),
            Ok(()) => panic!("{text} is said to be so"),
        }
    }
}

proptest! {
    #[test]
    fn percent_is_of_the_right_side(off in 0_u64..100, percent in 0_u64..100) {
        // The right side is 100, so that percent are numbers.
        let met = evaluate(&expected(&format!("lost + {} ~ 100 within {percent}%", 97 + off)), &mut FixedValues).is_ok();
        prop_assert_eq!(met, off <= percent);
    }
}
