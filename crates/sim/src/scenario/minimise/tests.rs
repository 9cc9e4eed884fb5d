//! The minimiser finds the minimum that was planted.

use proptest::prelude::*;

use super::super::ast::{ControlOp, Flag, Scenario, Statement};
use super::super::tests::generate::many_steps;
use super::super::tests::read;
use super::super::{check, print};
use super::settle::settle;
use super::{Bearing, Minimised, Outcome, minimise};

fn minimised(scenario: &Scenario, mut fails: impl FnMut(&Scenario) -> bool) -> Minimised {
    minimise(scenario, 10_000, &mut fails)
}

fn statements(scenario: &Scenario) -> impl Iterator<Item = &Statement> {
    scenario.steps.iter().map(|step| &step.statement)
}

const LONG: &str = "# Shows what a long run looks like.
machine cpus=8 counters=4 width=48 fixed=cycles,instructions constrained=branches:0-1 tick=1ms seed=77
requires: pmu, cpus=8, root, hotplug
task A on cpu3; task B; task Q
open e1, e2 = cycles, instructions on A inherit
open {g1, g2, g3} = {cycles, page-faults, branches} on B inherit pinned exclusive
open s = cpu-clock system-wide cpus 0-7
run A, B, Q 10ms on cpu2 rate cycles=1234/us page-faults=9
touch A 200 pages; disable e1, e2, g1
migrate A to cpu5; offline cpu6; wait 12345678ns
fork A as C; fork B as D; thread Q as T
run C, D 5ms rate cycles=2/ns
enable {g1}, e1; access B 0x1000 write 100 times
fork D as E; run E 4ms; exit C; exit D
online cpu6; exec E; run A 7ms; exit E; expect e1.running <= e1.enabled
expect g1.state == active|inactive; close e1, e2, {g1}; wait 1ms; close s
";

#[test]
fn the_long_scenario_is_right() {
    assert_eq!(check(&read(LONG)), []);
}

/// Each is a fault that needs some of the statements: so many.
#[test]
fn planted_faults_are_found_with_nothing_else() {
    type Fault = fn(&Scenario) -> bool;
    let faults: [(Fault, usize); 5] = [
        (|scenario| statements(scenario).any(|s| matches!(s, Statement::Wait { .. })), 1),
        (
            // A task that was forked by a task that was forked; and the first one.
            |scenario| {
                let forks = || {
                    statements(scenario).filter_map(|s| match s {
                        Statement::Fork { parent, child, .. } => Some((parent, child)),
                        _ => None,
                    })
                };
                forks().any(|(_, child)| forks().any(|(parent, _)| parent == child))
            },
            3,
        ),
        (
            // The event, and its task.
            |scenario| {
                statements(scenario).any(|s| match s {
                    Statement::Open(open) => {
                        open.flags.contains(&Flag::Pinned) && open.events.iter().any(|e| e.name.text == "g3")
                    }
                    _ => false,
                })
            },
            2,
        ),
        (
            // An event is closed after a child that inherited it has exited.
            |scenario| {
                let at = |wanted: fn(&Statement) -> bool| statements(scenario).position(wanted);
                let open = at(|s| matches!(s, Statement::Open(open) if open.flags.contains(&Flag::Inherit)));
                let fork = at(|s| matches!(s, Statement::Fork { parent, .. } if parent.text == "A"));
                let exit = at(|s| matches!(s, Statement::Exit { task } if task.text == "C"));
                let close = at(|s| matches!(s, Statement::Control { verb: ControlOp::Close, .. }));
                matches!((open, fork, exit, close), (Some(a), Some(b), Some(c), Some(d)) if a < b && b < c && c < d)
            },
            5,
        ),
        (|scenario| statements(scenario).any(|s| matches!(s, Statement::Offline { .. })), 1),
    ];
    for (fails, least) in faults {
        let long = read(LONG);
        let found = minimised(&long, fails);
        assert_eq!(found.outcome, Outcome::Smallest);
        assert!(fails(&found.scenario));
        assert_eq!(found.scenario.steps.len(), least, "{}", print(&found.scenario));
        assert!(found.calls < 300, "{} calls for {least}", found.calls);
    }
}

#[test]
fn what_does_not_fail_comes_back_as_it_was() {
    let long = read(LONG);
    let found = minimised(&long, |_| false);
    assert_eq!((found.outcome, found.calls), (Outcome::DoesNotFail, 1));
    assert_eq!(found.scenario, long);
}

fn kinds(scenario: &Scenario) -> Vec<String> {
    let mut kinds: Vec<String> =
        statements(scenario).filter_map(|s| s.to_string().split(' ').next().map(String::from)).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The fault is that some kinds of statement are all there.
    #[test]
    fn what_is_found_is_valid_fails_and_loses_the_fault_with_any_statement((header, steps) in many_steps(), pick: u64) {
        let start = settle(&header, &steps);
        let all = kinds(&start);
        let wanted: Vec<String> =
            all.iter().enumerate().filter(|(index, _)| pick >> index & 1 == 1).map(|(_, kind)| kind.clone()).collect();
        let fails = |scenario: &Scenario| {
            let kinds = kinds(scenario);
            wanted.iter().all(|kind| kinds.contains(kind))
        };
        let found = minimised(&start, fails);
        prop_assert_eq!(found.outcome, Outcome::Smallest);
        prop_assert!(fails(&found.scenario));
        prop_assert!(check(&found.scenario).iter().all(|problem| problem.bearing != Bearing::Everywhere));
        for gone in 0..found.scenario.steps.len() {
            let mut steps = found.scenario.steps.clone();
            steps.remove(gone);
            let less = settle(&found.scenario.header, &steps);
            prop_assert!(!fails(&less), "statement {} was not needed:\n{}", gone, print(&found.scenario));
        }
        prop_assert_eq!(minimised(&start, fails), found, "it is not deterministic");
    }

    #[test]
    fn the_callers_limit_holds((header, steps) in many_steps(), most in 0_usize..30) {
        let start = settle(&header, &steps);
        let mut asked = 0;
        let mut fails = |scenario: &Scenario| {
            asked += 1;
            !scenario.steps.is_empty()
        };
        let found = minimise(&start, most, &mut fails);
        prop_assert_eq!(found.calls, asked);
        prop_assert!(asked <= most);
        prop_assert!(found.scenario.steps.len() <= start.steps.len());
    }

    #[test]
    fn settling_what_makes_sense_changes_nothing((header, steps) in many_steps()) {
        let once = settle(&header, &steps);
        prop_assert_eq!(settle(&once.header, &once.steps), once);
    }
}
