//! Runs that must go right, and runs that must go wrong.

use super::super::ast::{Errno, Scenario, Step};
use super::super::parse;
use super::{Cause, Checks, Execution, Failure, Outcome, Refused, RunOptions, RunResult, run};
use crate::check::Checker;
use crate::machine::{InjectedFault, Reach, Trace};
use pmux_engine::Nanos;

fn scenario(text: &str) -> Scenario {
    parse(text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
}

fn ran(text: &str) -> Outcome {
    run(&scenario(text), &RunOptions::default())
}

fn passes(text: &str) {
    let outcome = ran(text);
    assert!(outcome.passed(), "{:#?}", outcome.result);
}

fn causes(text: &str) -> Vec<Cause> {
    ran(text).failures().iter().map(|failure| failure.cause.clone()).collect()
}

#[test]
fn an_expectation_that_is_not_met_says_what_was_found_and_the_run_goes_on() {
    let outcome = ran("task A\nopen f = page-faults on A\ntouch A 3 pages\nexpect f.count == 4\nexpect f.count == 5\n");
    let texts: Vec<String> = outcome.failures().iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_eq!(texts[0], "line 4: expect f.count == 4\n  expected f.count == 4, but f.count is 3");
}

#[test]
fn a_statement_that_fails_otherwise_than_it_says_ends_the_run() {
    let refused = causes("machine counters=1\ntask A\nopen {a, b} = {cycles, instructions} on A\ntask B\n");
    assert!(matches!(refused.as_slice(), [Cause::Refused { errno: 22, .. }]), "{refused:?}");
    let not = causes("task A\nopen a = page-faults on A fails ENOSPC\n");
    let enospc = Errno::from_name("ENOSPC");
    assert!(matches!(not.as_slice(), [Cause::NotRefused { expected }] if Some(*expected) == enospc), "{not:?}");
    let other = causes("task A\nopen a = cylces on A fails ENOSPC\n");
    assert!(matches!(other.as_slice(), [Cause::RefusedOtherwise { errno: 2, .. }]), "{other:?}");
}

#[test]
fn what_the_simulator_cannot_do_is_no_failure() {
    for text in [
        "requires: kernel\ntask A\n",
        "task A\nopen e = sched:sched_switch on A\n",
        "task A\nopen e = LLC-loads on A\n",
        "task A\nopen e = cycles:k on A\n",
        "task A\nopen {e, f} = {cycles, page-faults} on A\nclose e\n",
        "machine width=8\ntask A\nrun A 1ms rate cycles=300/ns\n",
        "machine tick=1ns\nwait 10s\n",
        "run A 1ms\n",
        "task A on cpu7\n",
    ] {
        let outcome = ran(text);
        assert!(matches!(outcome.result, RunResult::Unusable(_)), "{text}: {:?}", outcome.result);
    }
}

#[test]
fn a_machine_without_counters_has_no_cycles() {
    passes("machine counters=0\ntask A\nopen c = cycles on A fails ENOENT\nopen f = page-faults on A\n");
    passes("machine breakpoints=0\ntask A\nopen b = mem:0x1000:w on A fails ENOSPC\n");
}

#[test]
fn closed_events_and_exited_tasks_are_errors_of_their_own() {
    passes("task A\nopen e = page-faults on A\nclose e\nenable e fails EBADF\nclose e fails EBADF\n");
    passes("task A\nexit A\nopen e = page-faults on A fails ESRCH\n");
    passes("machine cpus=2\nsim only: CPU 0\noffline cpu0\noffline cpu1 fails EBUSY\nonline cpu0\n");
}

#[test]
fn a_rate_is_what_happens_in_a_run_and_no_longer() {
    passes(
        "task A\nopen c, f, m = cycles, page-faults, minor-faults on A\n\
         run A 10ms rate cycles=7/10us page-faults=9\n\
         expect c.count == 7000\nexpect f.count == 9\nexpect m.count == 9\n\
         run A 1ms\nexpect c.count == 7000 + 3_000_000\nexpect f.count == 9\n",
    );
}

#[test]
fn parts_of_a_family_add_up_and_each_has_its_truth() {
    passes(
        "task A\nopen c = cycles on A inherit\nrun A 2ms\nfork A as C\nfork C as D\nrun C, D 3ms\nexit D\nrun A 1ms\n\
         expect c.own.count == truth\nexpect c.children[C].count == truth\nexpect c.children[D].count == truth\n\
         expect c.retired.count == truth\nexpect c.count == truth\nexpect c.own.enabled == 3ms\n\
         expect c.count == c.own.count + c.retired.count + c.children[C].count\n\
         expect c.children[C].state == inactive\nexpect c.children[D].state == dead\n",
    );
}

#[test]
fn a_group_of_a_set_is_switched_and_closed_whole() {
    passes(
        "machine cpus=2\nopen a, b = cycles, page-faults system-wide disabled\nwait 1ms\nexpect a.enabled == 0\n\
         enable b\nwait 1ms\nexpect a.enabled == 2ms\nreset a\nclose b\nopen a = cycles system-wide\n",
    );
}

/// An event in error shows what it had counted before.
#[test]
fn an_event_in_error_has_the_count_that_it_had() {
    passes(
        "machine cpus=1 counters=1\nsim only: one counter\ntask A\nopen a = cycles on A pinned inherit\nrun A 1ms\n\
         open b = instructions on cpu0 pinned\nexpect b.state == active\nrun A 1ms\nexpect a.state == error\n\
         expect a.count == 3_000_000\nexpect a.own.count == truth\n",
    );
}

#[test]
fn a_check_that_finds_something_names_the_event_and_the_task() {
    let text = "machine cpus=1\nsim only: planted\ntask A\nopen mine = cycles on A\nrun A 1ms\nrun A 1ms\n";
    let (scenario, options) = (scenario(text), RunOptions::default());
    let mut execution = Execution::new(&scenario, &options).unwrap_or_else(|why| panic!("{why}"));
    execution.world_mut().inject(Some(InjectedFault::LoseWhatWasNotRead));
    let failed: Vec<Failure> = scenario.steps.iter().filter_map(|step| execution.statement(step).err()).collect();
    let found = failed.first().map(|failure| (failure.step, failure.cause.clone()));
    let Some((Some(2), Cause::Violation { checker: Checker::Counts, what })) = found else { panic!("{found:?}") };
    assert!(what.contains("mine"), "{what}");
    assert!(!execution.finish().passed());
}

#[test]
fn what_is_left_at_the_end_is_found() {
    let text = "task A\nopen c = cycles on A\nrun A 1ms\n";
    let (scenario, options) = (scenario(text), RunOptions { checks: Checks::Steps, ..RunOptions::default() });
    let mut execution = Execution::new(&scenario, &options).unwrap_or_else(|why| panic!("{why}"));
    scenario.steps.iter().for_each(|step| assert_eq!(execution.statement(step), Ok(())));
    execution.world_mut().inject(Some(InjectedFault::IgnoreRelease));
    let outcome = execution.finish();
    let failure = outcome.failures().first().map(|failure| (failure.step, failure.statement.clone()));
    let Some((None, statement)) = failure else { panic!("{outcome:?}") };
    assert!(statement.starts_with("at the end"), "{statement}");
}

#[test]
fn statements_can_be_tried_one_by_one() {
    let scenario =
        scenario("machine counters=1\ntask A\nopen {a, b} = {cycles, instructions} on A\nopen a = cycles on A\n");
    let mut execution = Execution::new(&scenario, &RunOptions::default()).unwrap_or_else(|why| panic!("{why}"));
    let tried: Vec<_> = scenario.steps.iter().map(|step: &Step| execution.attempt(&step.statement)).collect();
    assert!(matches!(tried.as_slice(), [Ok(()), Err(Refused::Errno { errno: 22, .. }), Ok(())]), "{tried:?}");
    assert_eq!(execution.check(Checks::Everything), Ok(()));
    assert!(execution.finish().passed());
}

#[test]
fn where_callers_reach_their_own_cpu_only_doorbells_take_time() {
    let scenario = scenario("machine cpus=4\nopen s = cycles system-wide\nexpect s.count == truth\n");
    let options = RunOptions { reach: Some(Reach::OwnCpu), timeline: Trace::On, ..RunOptions::default() };
    let outcome = run(&scenario, &options);
    assert!(outcome.passed(), "{:?}", outcome.result);
    assert!(outcome.figures.virtual_time > Nanos::ZERO);
    let other = run(&scenario, &RunOptions { seed: Some(1), ..options });
    assert_ne!(other.figures.virtual_time, outcome.figures.virtual_time, "another seed, other doorbells");
}

#[test]
fn what_was_lost_is_a_number() {
    let outcome = ran(
        "machine cpus=1\nsim only: faults\ntask A\nopen c = cycles on A\nfault read 1\nrun A 1ms\nexpect lost == 3_000_000\n\
         expect c.lost == lost\nrun A 1ms\nexpect c.count == truth\nexpect c.count == 3_000_000\nclose c\nexpect lost > 0\n",
    );
    assert!(outcome.passed(), "{:#?}", outcome.result);
    assert_eq!((outcome.figures.lost, outcome.figures.refusals), (3_000_000, 1));
}

#[test]
fn a_set_loses_nothing_to_one_refused_reading_when_its_cpu_goes() {
    let faults = ["fault read 1", "fault read 2", "fault read 3", "fault read 4", "fault read 1; fault read 2"];
    for faults in faults {
        let scenario = scenario(&format!(
            "machine cpus=2 sharing=on\nsim only: faults\ntask A on cpu0\nopen s = cycles system-wide\n\
             open t = cycles system-wide\nrun A 100ns\n{faults}\noffline cpu0\n"
        ));
        // Checks read, so that nothing would be left to lose.
        let options = RunOptions { checks: Checks::Nothing, ..RunOptions::default() };
        let mut execution = Execution::new(&scenario, &options).unwrap_or_else(|unusable| panic!("{unusable}"));
        for step in &scenario.steps {
            execution.statement(step).unwrap_or_else(|failure| panic!("{faults}: {failure}"));
        }
        assert_eq!(execution.world_mut().check(), Ok(()), "{faults}");
    }
}
