//! Random runs: a fixed number of them, and some on machines that do what no machine may do.
//!
//! What it is: runs that must find nothing, whose seeds are printed (`PMUX_SWARM_SEED` says where they begin; if it is not
//! set they are always the same), and a planted fault for each checker, which the runs must find and make small.
//!
//! **Invariant:** how many runs there are is fixed, and never how long they may take.

use pmux_sim::check::Checker;
use pmux_sim::machine::InjectedFault;
use pmux_sim::scenario::{Bearing, check, parse, print};
use pmux_sim::swarm::{FailedRun, Finding, Options, RunMode, Shared, Small, minimise, replay, run};

/// Machines of so many CPUs get so many runs of so many statements.
const RUNS: [(u32, u64, u64); 8] =
    [(1, 12, 300), (2, 24, 300), (3, 12, 300), (4, 16, 300), (7, 8, 300), (16, 6, 300), (64, 2, 100), (256, 1, 40)];

fn first_seed() -> u64 {
    std::env::var("PMUX_SWARM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn small(found: &FailedRun, injected: Option<InjectedFault>) -> Small {
    minimise(found, injected, 1_000, &mut || true)
}

fn command(seed: u64, options: &Options) -> String {
    let (steps, cpus) = (options.steps, options.cpus.unwrap_or(0));
    format!("cargo run --release -p pmux-sim --example swarm -- --runs 1 --seed {seed} --steps {steps} --cpus {cpus}")
}

#[test]
fn random_runs_find_nothing() {
    let first = first_seed();
    let mut seed = first;
    let (mut steps, mut refused) = (0, 0);
    for (cpus, runs, steps_each) in RUNS {
        let options = Options { steps: steps_each, cpus: Some(cpus), ..Options::default() };
        for _ in 0..runs {
            match run(seed, &options, &mut |_, _| ()) {
                Ok(stats) => {
                    steps += stats.steps;
                    refused += stats.refused;
                }
                Err(found) => {
                    let text = small(&found, None).to_text();
                    panic!("seed {seed}: {}\n  {}\n\n{text}", found.finding, command(seed, &options));
                }
            }
            seed += 1;
        }
    }
    println!("seeds {first} to {}: {steps} statements, {refused} of them refused", seed - 1);
    assert!(refused > 0 && refused < steps / 4, "some statements are meant to fail, and few do: {refused}");
}

#[test]
fn sharing_changes_no_count_that_was_not_multiplexed() {
    let first = first_seed();
    let mut compared = 0;
    for (cpus, seed) in [1, 2, 2, 3, 4, 7].into_iter().zip(first..) {
        let options = Options { cpus: Some(cpus), sharing: Some(Shared::Both), ..Options::default() };
        match run(seed, &options, &mut |_, _| ()) {
            Ok(stats) => compared += stats.compared,
            Err(found) => {
                let text = small(&found, None).to_text();
                panic!("seed {seed}: {}\n  {} --sharing both\n\n{text}", found.finding, command(seed, &options));
            }
        }
    }
    println!("{compared} counts were compared");
    assert!(compared > 100, "{compared} counts are too few");
}

#[test]
fn a_seed_gives_one_run() {
    let options = Options { steps: 120, injected: Some(InjectedFault::LoseHandedOver), ..Options::default() };
    let twice = |seed| {
        let [one, other] = [0, 1].map(|_| run(seed, &options, &mut |_, _| ()));
        assert_eq!(one, other, "seed {seed}");
    };
    (0..12).for_each(twice);
}

/// So many runs at most until a planted fault must have been found.
const TRIES: u64 = 120;
/// So many statements are a few: one for each debug register of a machine, and two.
const FEW: usize = 9;

/// What comes to light by the length of a run alone can't be made small: then it is looked for again, this often.
const FINDS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum By {
    /// One that looks at one machine.
    Checker(Checker),
    /// The comparison of two.
    Comparing,
}

/// What runs on machines with a planted fault find by one checker, and how many runs that took.
fn find(injected: InjectedFault, by: By) -> impl Iterator<Item = (u64, Box<FailedRun>)> {
    let sharing = matches!(by, By::Comparing).then_some(Shared::Both);
    let run = move |seed: u64| {
        let cpus = Some([1, 2, 3, 4][(seed % 4) as usize]);
        let options = Options { steps: 150, cpus, sharing, injected: Some(injected), ..Options::default() };
        run(seed, &options, &mut |_, _| ()).err()
    };
    let is_by = move |found: &FailedRun| match (by, &found.finding) {
        (By::Checker(checker), Finding::Violation(violation)) => violation.checker == checker,
        (By::Comparing, Finding::Divergence(_)) => true,
        _ => false,
    };
    (1..=TRIES).filter_map(move |seed| run(seed).filter(|found| is_by(found)).map(|found| (seed, found)))
}

/// A planted fault is found by the checker that looks for it, and made small; without the fault, what is left finds nothing.
fn is_found(injected: InjectedFault, by: By) {
    let mut finds = find(injected, by).take(FINDS).map(|(runs, found)| (runs, small(&found, Some(injected)), found));
    let Some(mut best) = finds.next() else { panic!("{by:?} has not found {injected:?} in {TRIES} runs") };
    while best.1.scenario.steps.len() > FEW
        && let Some(next) = finds.next()
    {
        best = next;
    }
    let (runs, small, found) = best;
    let text = small.to_text();
    println!(
        "{injected:?}: found in run {runs} after {} statements, made small in {} tries",
        found.stats.steps, small.calls
    );
    println!("{text}");
    assert!(small.finding.is_like(&found.finding), "{} is not {}", small.finding, found.finding);
    assert!(small.scenario.steps.len() <= FEW, "{} statements are not a few:\n{text}", small.scenario.steps.len());
    let innocent = RunMode { injected: None, ..small.mode };
    assert_eq!(replay(&small.scenario, innocent), Ok(()), "without the injected fault there is nothing:\n{text}");
    assert_eq!(parse(&print(&small.scenario)).as_ref(), Ok(&small.scenario), "it can be pasted");
    let senseless: Vec<_> = check(&small.scenario).into_iter().filter(|it| it.bearing == Bearing::Everywhere).collect();
    assert_eq!(senseless, [], "{text}");
}

/// For each checker, the faults that it must find.
const INJECTED_FAULTS: [(Checker, &[InjectedFault]); 17] = {
    use Checker as C;
    use InjectedFault as P;
    [
        (C::Counts, &[P::LoseHandedOver, P::LoseWhatWasNotRead, P::WrapUnnoticed]),
        (C::Times, &[P::StartLate, P::ClockJumps]),
        (C::Families, &[P::SilentFork]),
        (C::Leases, &[P::DoubleLease]),
        (C::Foreign, &[P::KeepGoing]),
        (C::Groups, &[P::StartHalfAGroup]),
        (C::Pinned, &[P::StartNoPinned]),
        (C::Waiting, &[P::HideACounter]),
        (C::Exact, &[P::MissAccesses]),
        (C::Leftovers, &[P::IgnoreRelease]),
        (C::Locks, &[P::LockBackwards, P::CallUnderLock]),
        (C::Doorbells, &[P::DeafDoorbell]),
        (C::Coverage, &[P::SilentOnline]),
        (C::Convergence, &[P::HealNothing]),
        (C::Refusals, &[P::HideACounter, P::TakeAnyLength, P::KeepDebugRegisters]),
        (C::Sharing, &[P::ConfuseQuestions, P::ShareNothing]),
        (C::Samples, &[P::SwallowSamples]),
    ]
};

#[test]
fn for_each_checker_something_is_planted() {
    assert_eq!(INJECTED_FAULTS.map(|(checker, _)| checker), Checker::ALL);
}

fn all_are_found(checkers: &[Checker]) {
    for (by, injected) in INJECTED_FAULTS.iter().filter(|(by, _)| checkers.contains(by)) {
        injected.iter().for_each(|&injected| is_found(injected, By::Checker(*by)));
    }
}

#[test]
fn wrong_counts_and_times_are_found() {
    all_are_found(&[Checker::Counts, Checker::Times]);
}

#[test]
fn wrong_leases_are_found() {
    all_are_found(&[Checker::Leases, Checker::Leftovers, Checker::Foreign]);
}

#[test]
fn wrong_groups_and_families_are_found() {
    all_are_found(&[Checker::Groups, Checker::Pinned, Checker::Families]);
}

#[test]
fn what_waits_for_ever_is_found() {
    all_are_found(&[Checker::Doorbells, Checker::Convergence]);
}

#[test]
fn what_is_missed_is_found() {
    all_are_found(&[Checker::Exact, Checker::Coverage, Checker::Waiting, Checker::Samples]);
}

#[test]
fn wrong_refusals_are_found() {
    all_are_found(&[Checker::Refusals]);
}

#[test]
fn wrong_sharing_is_found() {
    all_are_found(&[Checker::Sharing]);
    is_found(InjectedFault::TouchMoreWhereShared, By::Comparing);
}

#[test]
fn wrong_locks_are_found() {
    all_are_found(&[Checker::Locks]);
}
