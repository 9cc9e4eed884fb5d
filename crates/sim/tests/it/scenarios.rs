//! Every file in `scenarios/` on the simulated machine.
//!
//! What it is: each file runs with several seeds and all checks, twice, with and without a timeline. Then it runs where callers
//! reach the registers of their own CPU only: time passes there while they wait for doorbells, so what a file expects of
//! times need not be met, but everything must be carried out, and all checks must pass.
//!
//! **Invariant:** a file that is there is run, or named as skipped; a folder without files fails.

use pmux_sim::machine::{Reach, Trace};
use pmux_sim::scenario::ast::{Requirement, Scenario};
use pmux_sim::scenario::files::{find, read};
use pmux_sim::scenario::run::{Checks, Outcome, RunOptions, RunResult, run};
use pmux_sim::scenario::{Bearing, check, parse, render};
use std::path::PathBuf;

const SEEDS: [u64; 4] = [0, 1, 2, 0xdead_beef];

struct File {
    name: String,
    scenario: Scenario,
}

/// The files, by name, without those that show nothing on the simulator.
fn files() -> Vec<File> {
    let mut files = Vec::new();
    for path in find(&[PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")]).unwrap() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = read(&path).unwrap();
        let scenario = parse(&text).unwrap_or_else(|problems| panic!("{}", render(&name, &text, &problems)));
        let problems: Vec<_> =
            check(&scenario).into_iter().filter(|problem| problem.bearing == Bearing::Everywhere).collect();
        assert!(problems.is_empty(), "{}", render(&name, &text, &problems));
        if scenario.header.requires.iter().any(|required| required.requirement == Requirement::Kernel) {
            println!("skipped: needs a kernel: {name}");
            continue;
        }
        files.push(File { name, scenario });
    }
    files
}

fn failures(name: &str, outcome: &Outcome) -> Option<String> {
    match &outcome.result {
        RunResult::Passed => None,
        RunResult::Unusable(why) => Some(format!("{name}: {why}")),
        RunResult::Failed(failures) => {
            Some(failures.iter().map(|failure| format!("{name}, seed {}: {failure}\n", outcome.figures.seed)).collect())
        }
    }
}

#[test]
fn every_file_passes_with_every_seed() {
    let (files, mut wrong) = (files(), Vec::new());
    for File { name, scenario } in &files {
        match &scenario.header.sim_only {
            Some(only) => println!("{name} (sim only: {})", only.reason),
            None => println!("{name}"),
        }
        for seed in SEEDS {
            let options = RunOptions { seed: Some(seed), ..RunOptions::default() };
            wrong.extend(failures(name, &run(scenario, &options)));
        }
    }
    println!("{} scenarios ran on the simulator, each with {} seeds", files.len(), SEEDS.len());
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn one_seed_gives_one_run_with_or_without_a_trace() {
    for File { name, scenario } in files() {
        let options = RunOptions { seed: Some(7), timeline: Trace::On, ..RunOptions::default() };
        let first = run(&scenario, &options);
        assert!(first.timeline.is_some(), "{name} has no timeline");
        assert!(first == run(&scenario, &options), "{name}: two runs with one seed differ");
        let unseen = run(&scenario, &RunOptions { timeline: Trace::Off, checks: Checks::Nothing, ..options });
        let told = |outcome: &Outcome| (outcome.result.clone(), outcome.figures.virtual_time, outcome.figures.refusals);
        assert_eq!(told(&first), told(&unseen), "{name} runs otherwise without a trace");
    }
}

#[test]
fn every_file_is_carried_out_where_callers_reach_their_own_cpu_only() {
    let mut wrong = Vec::new();
    for File { name, scenario } in files() {
        for seed in SEEDS {
            let options = RunOptions { seed: Some(seed), reach: Some(Reach::OwnCpu), ..RunOptions::default() };
            let outcome = run(&scenario, &options);
            let said = outcome.failures().iter().filter(|failure| failure.ends_the_run());
            wrong.extend(said.map(|failure| format!("{name}, seed {seed}: {failure}")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
