//! Random runs of the engine on simulated machines, for seconds or for hours.
//!
//! What it is: the command around [`pmux_sim::swarm`]: `cargo run --release -p pmux-sim --example swarm -- --help`.
//!
//! **Invariant:** time and the terminal are here only; a run depends on its seed and its options.

use pmux_sim::swarm::{CheckLevel, Conduct, FailedRun, Machines, Options, RunMode, Shared, minimise, replay, run};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

const HELP: &str = "\
Runs random scenarios on simulated machines and checks everything, until the time is over or something is found.

usage: swarm [OPTIONS]
       swarm --replay FILE [--rough] [--steps-only] [--sharing both]

  --seconds N   for so long (if nothing is said: 60)
  --runs N      so many runs, however long they take
  --seed N      the seed of the first run; the others follow. If nothing is said, it is another one each time
  --steps N     statements of a run (if nothing is said: 300)
  --cpus N      CPUs of the machines, 1 to 1024 (if nothing is said: as chance has it)
  --tasks N     about so many tasks live at a time (if nothing is said: as chance has it)
  --sharing W   on or off: whether equal events use one counter (if nothing is said: as chance has it); both: each run is
                told to a machine that shares and to one that doesn't, and what they count is compared
  --replay FILE runs a scenario file as random runs are run, with everything checked after each statement
  --rough       with --replay: tasks that ran stay on their CPUs, and events are read from where callers are
  --steps-only  with --replay: after each statement it is checked only what that can have broken
  --print       prints each statement before it is carried out, and each seed
  --help        this text

What is found is printed with the command that does it again and with a small scenario. The exit status is 0 if nothing was
found, 1 if something was, 2 if the command makes no sense. In a release build a panic ends the program: `--print` shows
where it was.";

#[derive(Default)]
struct Cli {
    seconds: Option<u64>,
    runs: Option<u64>,
    seed: Option<u64>,
    options: Options,
    replay: Option<String>,
    mode: RunMode,
    print: bool,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Some(Cli { replay: Some(file), mode, .. })) => again(&file, mode),
        Ok(Some(cli)) => hunt(&cli),
        Ok(None) => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(wrong) => senseless(&format!("{wrong}; see --help")),
    }
}

fn senseless(why: &str) -> ExitCode {
    eprintln!("swarm: {why}");
    ExitCode::from(2)
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Cli>, String> {
    let mut cli = Cli::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--print" => cli.print = true,
            "--rough" => cli.mode.conduct = Conduct::Rough,
            "--steps-only" => cli.mode.check_level = CheckLevel::Steps,
            "--replay" => cli.replay = Some(args.next().ok_or("`--replay` needs a file")?),
            "--sharing" => {
                let shared = match args.next().as_deref() {
                    Some("on") => Shared::On,
                    Some("off") => Shared::Off,
                    Some("both") => Shared::Both,
                    _ => return Err("`--sharing` is on, off or both".to_owned()),
                };
                cli.options.sharing = Some(shared);
                cli.mode.machines = if shared == Shared::Both { Machines::Two } else { Machines::One };
            }
            _ => {
                let number = args.next().and_then(|value| value.parse().ok());
                let number: u64 = number.ok_or_else(|| format!("`{arg}` needs a whole number, or is unknown"))?;
                match arg.as_str() {
                    "--seconds" => cli.seconds = Some(number),
                    "--runs" => cli.runs = Some(number),
                    "--seed" => cli.seed = Some(number),
                    "--steps" => cli.options.steps = number,
                    "--cpus" if (1..=1024).contains(&number) => cli.options.cpus = Some(number as u32),
                    "--cpus" => return Err(format!("a machine has 1 to 1024 CPUs, not {number}")),
                    "--tasks" => cli.options.tasks = Some(number),
                    _ => return Err(format!("`{arg}` is unknown")),
                }
            }
        }
    }
    Ok(Some(cli))
}

/// The command that does a run again.
fn command(seed: u64, Options { steps, cpus, tasks, sharing, .. }: Options) -> String {
    let mut command =
        format!("cargo run --release -p pmux-sim --example swarm -- --runs 1 --seed {seed} --steps {steps}");
    let numbers = [("--cpus", cpus.map(u64::from)), ("--tasks", tasks)];
    for (option, number) in numbers.into_iter().filter_map(|(option, number)| Some((option, number?))) {
        command.push_str(&format!(" {option} {number}"));
    }
    if let Some(sharing) = sharing {
        command.push_str(&format!(" --sharing {}", format!("{sharing:?}").to_lowercase()));
    }
    command
}

fn hunt(cli: &Cli) -> ExitCode {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Short enough to be copied by hand.
    let first = cli.seed.unwrap_or((now.as_nanos() % 1_000_000_000) as u64);
    let (began, seconds) = (Instant::now(), cli.seconds.unwrap_or(60));
    let (mut runs, mut steps, mut compared) = (0_u64, 0_u64, 0_u64);
    let goes_on = |runs: u64| match cli.runs {
        Some(most) => runs < most,
        None => began.elapsed() < Duration::from_secs(seconds),
    };
    println!("seeds from {first}");
    while goes_on(runs) {
        let seed = first.wrapping_add(runs);
        if cli.print {
            println!("seed {seed}");
        }
        let stats = run(seed, &cli.options, &mut |_, step| {
            if cli.print {
                println!("{step}");
            }
        });
        match stats {
            Ok(stats) => (runs, steps, compared) = (runs + 1, steps + stats.steps, compared + stats.compared),
            Err(found) => {
                report(&found, cli.options);
                return ExitCode::FAILURE;
            }
        }
    }
    let time = began.elapsed().as_secs_f64();
    let pace = steps as f64 / time.max(0.001);
    println!("{runs} runs, {steps} steps in {time:.0} s, {pace:.0} steps/s, {compared} counts compared, nothing found");
    ExitCode::SUCCESS
}

/// So long is tried to make small what was found.
const PATIENCE: Duration = Duration::from_secs(60);

fn report(found: &FailedRun, options: Options) {
    println!("seed {}: {}\nTo do it again:\n  {}", found.seed, found.finding, command(found.seed, options));
    let until = Instant::now() + PATIENCE;
    let small = minimise(found, options.injected, usize::MAX, &mut || Instant::now() < until);
    println!("Made small in {} tries ({:?}):\n\n{}", small.calls, small.outcome, small.to_text());
}

/// Runs a file as random runs are run.
fn again(file: &str, mode: RunMode) -> ExitCode {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => return senseless(&format!("{file} can't be read: {error}")),
    };
    let scenario = match pmux_sim::scenario::parse(&text) {
        Ok(scenario) => scenario,
        Err(problems) => return senseless(&pmux_sim::scenario::render(file, &text, &problems)),
    };
    match replay(&scenario, mode) {
        Ok(()) => {
            println!("nothing was found");
            ExitCode::SUCCESS
        }
        Err(finding) => {
            println!("{finding}");
            ExitCode::FAILURE
        }
    }
}
