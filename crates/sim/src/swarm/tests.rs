//! What is made up, and what is done with it.

use super::checked_run::{CheckedRun, Done};
use super::generate::Generator;
use super::{CheckLevel, Conduct, Finding, Options, RunMode, minimise, replay, run};
use crate::machine::InjectedFault;
use crate::scenario::ast::{Scenario, Statement, Step};
use crate::scenario::{Bearing, Outcome, check, parse, print};
use pmux_engine::CpuId;
use std::collections::{BTreeMap, BTreeSet};

/// So many statements for a seed, as if each had come to what was foretold.
fn made_up(seed: u64, steps: usize) -> Scenario {
    let mut generator = Generator::new(seed, &Options::default());
    let mut scenario = generator.start().clone();
    for _ in 0..steps {
        let planned = generator.plan();
        scenario.steps.push(planned.step.clone());
        if planned.step.fails.is_none() {
            generator.settle(planned);
        }
    }
    scenario
}

fn parsed(text: &str) -> Scenario {
    parse(text).unwrap_or_else(|problems| panic!("{problems:?}"))
}

#[test]
fn what_is_made_up_makes_sense_and_can_be_pasted() {
    for seed in 0..60 {
        let scenario = made_up(seed, 150);
        let text = print(&scenario);
        let senseless: Vec<_> = check(&scenario).into_iter().filter(|it| it.bearing == Bearing::Everywhere).collect();
        assert_eq!(senseless, [], "seed {seed}:\n{text}");
        assert_eq!(parse(&text).as_ref(), Ok(&scenario), "seed {seed}");
    }
}

fn op(step: &Step) -> String {
    let text = step.statement.to_string();
    let words = if matches!(step.statement, Statement::Fault(_)) { 2 } else { 1 };
    text.split(' ').take(words).collect::<Vec<_>>().join(" ")
}

#[test]
fn everything_is_done_in_some_runs_and_nothing_in_all() {
    let mut runs_with: BTreeMap<String, u64> = BTreeMap::new();
    let seeds = 200;
    for seed in 0..seeds {
        let scenario = made_up(seed, 100);
        let ops: BTreeSet<String> = scenario.steps.iter().map(op).collect();
        ops.into_iter().for_each(|op| *runs_with.entry(op).or_default() += 1);
    }
    let ops = "task fork thread exit exec open run migrate touch access enable disable reset close";
    for op in ops.split(' ').chain(["offline", "online", "wait", "expect", "fault none"]) {
        assert!(runs_with.contains_key(op), "no run does `{op}`: {runs_with:?}");
    }
    for fault in ["alloc", "program", "start", "read", "hand-over", "held", "interrupt", "doorbell", "storm"] {
        let runs = runs_with.get(&format!("fault {fault}")).copied().unwrap_or(0);
        assert!(runs > 0 && runs < seeds, "{runs} of {seeds} runs make the fault `{fault}`");
    }
    for left_out in ["fork", "close", "disable", "exec", "offline", "wait"] {
        assert!(runs_with[left_out] < seeds, "every run does `{left_out}`");
    }
}

#[test]
fn statements_that_must_fail_are_among_them() {
    let fails: Vec<_> = (0..150).flat_map(|seed| made_up(seed, 150).steps).filter_map(|step| step.fails).collect();
    for errno in ["ESRCH", "EBADF", "EINVAL", "ENODEV", "EBUSY", "EOPNOTSUPP"] {
        assert!(fails.iter().any(|failed| failed.name() == errno), "nothing fails with {errno}");
    }
}

#[test]
fn tasks_stay_on_their_cpus_only_where_it_is_rough() {
    let text = "machine cpus=2\nsim only: a test\ntask A on cpu1\nrun A 1ms\nwait 1ms\n";
    let scenario = parsed(text);
    for (conduct, on_it, run_time_ms) in [(Conduct::Plain, false, 1), (Conduct::Rough, true, 2)] {
        let mode = RunMode { conduct, ..RunMode::default() };
        let mut checked_run = CheckedRun::new(&scenario, mode).unwrap_or_else(|finding| panic!("{finding}"));
        scenario.steps.iter().for_each(|step| assert_eq!(checked_run.step(&step.statement), Ok(Done::Carried)));
        let task = checked_run.world().running_on(CpuId(1));
        assert_eq!(task.is_some(), on_it, "{conduct:?}");
        let all: u64 = checked_run.world().living().into_iter().map(|task| checked_run.world().run_time(task).0).sum();
        assert_eq!(all, run_time_ms * 1_000_000, "{conduct:?}");
    }
}

#[test]
fn what_must_fail_and_does_not_is_trouble() {
    let head = "machine cpus=2 counters=1\nsim only: a test\ntask A\n";
    let scenario = parsed(&format!("{head}open {{e, f}} = {{cycles, instructions}} on A fails EINVAL\n"));
    assert_eq!(replay(&scenario, RunMode::default()), Ok(()));
    let scenario = parsed(&format!("{head}open e = cycles on A fails EINVAL\n"));
    assert!(matches!(replay(&scenario, RunMode::default()), Err(Finding::NotRefused { .. })));
    let scenario = parsed(&format!("{head}open {{e, f}} = {{cycles, instructions}} on A\n"));
    assert!(matches!(replay(&scenario, RunMode::default()), Err(Finding::Refused { errno: 22, .. })));
    // Where the machine was told to refuse something, opening may fail.
    let scenario = parsed(&format!("{head}fault alloc 1\nopen e = page-faults on A\n"));
    assert_eq!(replay(&scenario, RunMode::default()), Ok(()));
}

#[test]
fn a_panic_is_caught_with_what_led_to_it() {
    let options = Options { steps: 20, cpus: Some(2), ..Options::default() };
    let found = run(4, &options, &mut |stats, _| assert!(stats.steps < 7, "a panic after {} statements", stats.steps));
    let Err(found) = found else { panic!("the panic was not noticed") };
    assert_eq!(found.finding, Finding::Panic("a panic after 7 statements".to_owned()));
    // A machine with doorbells begins with two statements of its own.
    let recorded = found.scenario.steps.len();
    assert!(recorded == 8 || recorded == 10, "what was about to be carried out is recorded, too: {recorded}");
    // It was no statement that made it, so the statements alone don't show it.
    let small = minimise(&found, None, 100, &mut || true);
    assert_eq!((small.outcome, &small.scenario), (Outcome::DoesNotFail, &found.scenario));
}

#[test]
fn making_small_ends_when_it_is_enough() {
    let options = Options { steps: 100, cpus: Some(2), injected: Some(InjectedFault::KeepGoing), ..Options::default() };
    let found = (0..20).find_map(|seed| run(seed, &options, &mut |_, _| ()).err());
    let Some(found) = found else { panic!("the injected fault was not found") };
    let mut calls = 0;
    let small = minimise(&found, options.injected, 1_000, &mut || {
        calls += 1;
        calls < 3
    });
    assert_eq!((calls, small.outcome), (3, Outcome::OutOfCalls));
    assert!(small.finding.is_like(&found.finding));
    assert!(replay(&small.scenario, small.mode).is_err_and(|finding| finding.is_like(&found.finding)));
}

#[test]
fn the_text_says_what_it_needs() {
    let options =
        Options { steps: 100, cpus: Some(2), injected: Some(InjectedFault::LoseWhatWasNotRead), ..Options::default() };
    let found = (0..20).find_map(|seed| run(seed, &options, &mut |_, _| ()).err());
    let Some(found) = found else { panic!("the injected fault was not found") };
    let mut small = minimise(&found, options.injected, 1_000, &mut || true);
    small.mode = RunMode { conduct: Conduct::Rough, check_level: CheckLevel::Steps, ..RunMode::default() };
    let text = small.to_text();
    assert!(
        text.starts_with("# Shows: Counts at ") && text.contains("--rough") && text.contains("--steps-only"),
        "{text}"
    );
    assert_eq!(parsed(&text).steps, small.scenario.steps);
}

#[test]
fn troubles_are_alike_whatever_their_numbers() {
    let panic = |text: &str| Finding::Panic(text.to_owned());
    assert!(panic("index 3 of 2").is_like(&panic("index 17 of 9")));
    assert!(!panic("index 3 of 2").is_like(&panic("overflow")));
    assert!(!panic("a").is_like(&Finding::Senseless("a".to_owned())));
}
