//! Random runs of the engine on simulated machines, for seconds or for hours.
//!
//! What it is: the command around [`pmux_sim::swarm`]: `cargo run --release -p pmux-sim --example swarm -- --help`.
//!
//! **Invariant:** time, threads and the terminal are here only; a run depends on its seed and its options.

use pmux_sim::scenario::ast::Step;
use pmux_sim::scenario::{Outcome, Progress};
use pmux_sim::swarm::{
    Conduct, Found, GoOn, Machines, Manner, Options, Shared, Tally, Trouble, Zeal, minimise, replay, run,
};
use std::cell::Cell;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

const HELP: &str = "\
Runs random scenarios on simulated machines and checks everything, until the time is over.

usage: swarm [OPTIONS]
       swarm --replay FILE [--rough] [--steps-only] [--sharing both]

  --seconds N   for so long (if nothing is said: 60)
  --hours N     for so long
  --runs N      so many runs, however long they take
  --seed N      the seed of the first run; the others follow. If nothing is said, it is another one each time
  --steps N     statements of a run (if nothing is said: 300)
  --cpus N      CPUs of the machines, 1 to 1024 (if nothing is said: as chance has it)
  --tasks N     about so many tasks live at a time (if nothing is said: as chance has it)
  --sharing W   on or off: whether equal events use one counter (if nothing is said: as chance has it); both: each run is
                told to a machine that shares and to one that doesn't, and what they count is compared
  --jobs N      runs at the same time (if nothing is said: 1)
  --patience N  seconds for making small what was found (if nothing is said: 60)
  --replay FILE runs a scenario file as random runs are run, with everything checked after each statement
  --rough       with --replay: tasks that ran stay on their CPUs, and events are read from where callers are
  --steps-only  with --replay: after each statement it is checked only what that can have broken
  --print       prints each statement before it is carried out
  --help        this text

What is found is printed with the command that does it again and with a small scenario, which is also written to a file
below target/swarm. The exit status is 0 if nothing was found, 1 if something was, 2 if the command makes no sense.";

/// What is asked for.
struct Asked {
    limit: Limit,
    seed: Option<u64>,
    options: Options,
    jobs: u64,
    patience: Duration,
    replay: Option<PathBuf>,
    manner: Manner,
    print: Print,
}

/// Whether runs are printed as they go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Print {
    Nothing,
    Statements,
}

enum Limit {
    Time(Duration),
    Runs(u64),
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("swarm: {wrong}; see --help");
            return ExitCode::from(2);
        }
    };
    speak_of_panics(asked.options);
    match &asked.replay {
        Some(file) => again(file, asked.manner),
        None => hunt(&asked),
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Asked>, String> {
    let mut asked = Asked {
        limit: Limit::Time(Duration::from_secs(60)),
        seed: None,
        options: Options::default(),
        jobs: 1,
        patience: Duration::from_secs(60),
        replay: None,
        manner: Manner::default(),
        print: Print::Nothing,
    };
    while let Some(arg) = args.next() {
        if matches!(arg.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        match arg.as_str() {
            "--print" => asked.print = Print::Statements,
            "--rough" => asked.manner.conduct = Conduct::Rough,
            "--steps-only" => asked.manner.zeal = Zeal::Steps,
            _ => with_value(&mut asked, &arg, args.next())?,
        }
    }
    Ok(Some(asked))
}

fn with_value(asked: &mut Asked, arg: &str, value: Option<String>) -> Result<(), String> {
    let value = value.ok_or_else(|| format!("`{arg}` needs a value, or is unknown"))?;
    if arg == "--replay" {
        asked.replay = Some(value.into());
        return Ok(());
    }
    if arg == "--sharing" {
        asked.options.sharing = Some(match value.as_str() {
            "on" => Shared::On,
            "off" => Shared::Off,
            "both" => Shared::Both,
            _ => return Err(format!("`--sharing` is on, off or both, not `{value}`")),
        });
        if asked.options.sharing == Some(Shared::Both) {
            asked.manner.machines = Machines::Two;
        }
        return Ok(());
    }
    let number: u64 = value.parse().map_err(|_| format!("`{arg}` needs a whole number, not `{value}`"))?;
    match arg {
        "--seconds" => asked.limit = Limit::Time(Duration::from_secs(number)),
        "--hours" => asked.limit = Limit::Time(Duration::from_secs(number.saturating_mul(3600))),
        "--runs" => asked.limit = Limit::Runs(number),
        "--seed" => asked.seed = Some(number),
        "--steps" => asked.options.steps = number,
        "--cpus" if (1..=1024).contains(&number) => asked.options.cpus = Some(number as u32),
        "--cpus" => return Err(format!("a machine has 1 to 1024 CPUs, not {number}")),
        "--tasks" => asked.options.tasks = Some(number),
        "--jobs" => asked.jobs = number.clamp(1, 1024),
        "--patience" => asked.patience = Duration::from_secs(number),
        _ => return Err(format!("`{arg}` is unknown")),
    }
    Ok(())
}

/// The command that does a run again.
fn command(seed: u64, options: &Options) -> String {
    let mut command = format!("cargo run --release -p pmux-sim --example swarm -- --runs 1 --seed {seed}");
    if options.steps != Options::default().steps {
        command.push_str(&format!(" --steps {}", options.steps));
    }
    if let Some(cpus) = options.cpus {
        command.push_str(&format!(" --cpus {cpus}"));
    }
    if let Some(tasks) = options.tasks {
        command.push_str(&format!(" --tasks {tasks}"));
    }
    if let Some(sharing) = options.sharing {
        command.push_str(match sharing {
            Shared::On => " --sharing on",
            Shared::Off => " --sharing off",
            Shared::Both => " --sharing both",
        });
    }
    command
}

thread_local! {
    /// The seed of the run that this thread does.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// Where panics end the program (as in release builds), they must say how to get there again. Elsewhere they are caught, and
/// reported like anything else.
fn speak_of_panics(options: Options) {
    if cfg!(panic = "unwind") {
        std::panic::set_hook(Box::new(|_| {}));
        return;
    }
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = SEED.get();
        usual(info);
        eprintln!("\nseed {seed}: panic. To do it again:\n  {}", command(seed, &options));
        eprintln!("To make it small, use a build in which panics unwind: the same without --release.");
    }));
}

/// How far one thread is.
#[derive(Default)]
struct Job {
    seed: AtomicU64,
    /// Statements that it has begun, of all runs.
    steps: AtomicU64,
    /// Those of this run.
    step: AtomicU64,
}

/// All that the threads have in common.
struct Hunt<'a> {
    asked: &'a Asked,
    first_seed: u64,
    began: Instant,
    next: AtomicU64,
    runs: AtomicU64,
    jobs: Vec<Job>,
    last_seed: AtomicU64,
    /// Counts that two machines said alike.
    compared: AtomicU64,
    over: AtomicBool,
    found: Mutex<Vec<Trouble>>,
}

/// So many different things are enough to look at.
const ENOUGH: usize = 10;

fn hunt(asked: &Asked) -> ExitCode {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Short enough to be copied by hand.
    let first_seed = asked.seed.unwrap_or((now.as_nanos() % 1_000_000_000) as u64);
    let hunt = Hunt {
        asked,
        first_seed,
        began: Instant::now(),
        next: AtomicU64::new(0),
        runs: AtomicU64::new(0),
        jobs: (0..asked.jobs).map(|_| Job::default()).collect(),
        last_seed: AtomicU64::new(first_seed),
        compared: AtomicU64::new(0),
        over: AtomicBool::new(false),
        found: Mutex::new(Vec::new()),
    };
    println!("seeds from {first_seed}");
    std::thread::scope(|scope| {
        let jobs: Vec<_> = hunt.jobs.iter().map(|job| scope.spawn(|| hunt.work(job))).collect();
        let teller = scope.spawn(|| hunt.tell());
        for job in jobs {
            // A panic of a run is caught; one of the command itself is shown by the scope.
            let _ = job.join();
        }
        hunt.over.store(true, Relaxed);
        teller.thread().unpark();
    });
    println!("{}", hunt.line());
    let found = hunt.found.lock().unwrap_or_else(PoisonError::into_inner).len();
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Hunt<'_> {
    fn work(&self, job: &Job) {
        while !self.over.load(Relaxed) {
            let number = self.next.fetch_add(1, Relaxed);
            let is_over = match self.asked.limit {
                Limit::Time(time) => self.began.elapsed() >= time,
                Limit::Runs(runs) => number >= runs,
            };
            if is_over {
                return;
            }
            let seed = self.first_seed.wrapping_add(number);
            SEED.set(seed);
            job.seed.store(seed, Relaxed);
            let result = run(seed, &self.asked.options, &mut |tally: &Tally, step: &Step| {
                job.steps.fetch_add(1, Relaxed);
                job.step.store(tally.steps + 1, Relaxed);
                if self.asked.print == Print::Statements {
                    println!("{step}");
                }
            });
            self.runs.fetch_add(1, Relaxed);
            self.last_seed.store(seed, Relaxed);
            match result {
                Ok(tally) => drop(self.compared.fetch_add(tally.compared, Relaxed)),
                Err(found) => self.report(&found),
            }
        }
    }

    fn report(&self, found: &Found) {
        {
            let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            let is_known = all.iter().any(|other| other.is_like(&found.trouble));
            all.push(found.trouble.clone());
            if all.len() >= 100 * ENOUGH {
                self.over.store(true, Relaxed);
            }
            if is_known {
                say(&format!("seed {}: once more {}", found.seed, found.trouble));
                return;
            }
            let mut different: Vec<&Trouble> = Vec::new();
            for trouble in all.iter() {
                if !different.iter().any(|other| other.is_like(trouble)) {
                    different.push(trouble);
                }
            }
            if different.len() >= ENOUGH {
                self.over.store(true, Relaxed);
            }
        }
        let options = &self.asked.options;
        say(&format!("seed {}: {}\nTo do it again:\n  {}", found.seed, found.trouble, command(found.seed, options)));
        let until = Instant::now() + self.asked.patience;
        let mut shown = Instant::now();
        let small = minimise(found, options.planted, usize::MAX, &mut |progress: Progress| {
            if shown.elapsed() > Duration::from_millis(500) && std::io::stderr().is_terminal() {
                shown = Instant::now();
                eprint!("\r\x1b[Kmaking it small: {} statements, {} tries", progress.statements, progress.calls);
            }
            if Instant::now() < until { GoOn::Yes } else { GoOn::Enough }
        });
        let text = small.to_text();
        let mut lines = match small.outcome {
            Outcome::DoesNotFail => "Its statements alone do not show it again; the run does.\n".to_owned(),
            _ => format!("Made small in {} tries ({:?}):\n\n{text}\n", small.calls, small.outcome),
        };
        match write(found.seed, &text) {
            Ok(file) => lines.push_str(&format!("It is also in {}\n", file.display())),
            Err(error) => lines.push_str(&format!("It could not be written to a file: {error}\n")),
        }
        say(&lines);
    }

    fn line(&self) -> String {
        let runs = self.runs.load(Relaxed);
        let steps: u64 = self.jobs.iter().map(|job| job.steps.load(Relaxed)).sum();
        let seconds = self.began.elapsed().as_secs_f64();
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).len();
        let compared = match self.compared.load(Relaxed) {
            0 => String::new(),
            compared => format!("{compared} counts compared, "),
        };
        format!(
            "{runs} runs, {steps} steps in {seconds:.0} s, {:.0} steps/s, last seed {}, {compared}{found} found",
            steps as f64 / seconds.max(0.001),
            self.last_seed.load(Relaxed)
        )
    }

    /// Says of a thread that it does not go on; what it does may go on for ever.
    fn watch(&self, job: &Job, stuck: &mut Stuck) {
        let steps = job.steps.load(Relaxed);
        if steps != stuck.steps || stuck.since.is_none() {
            *stuck = Stuck { steps, since: Some(Instant::now()), said: false };
        } else if !stuck.said && stuck.since.is_some_and(|since| since.elapsed() >= LONG) {
            stuck.said = true;
            let options = Options { steps: job.step.load(Relaxed), ..self.asked.options };
            let command = command(job.seed.load(Relaxed), &options);
            say(&format!("no statement has ended for {} s. To see it:\n  {command} --print", LONG.as_secs()));
        }
    }

    /// Shows how far it is: on a terminal all the time, elsewhere once a minute.
    fn tell(&self) {
        let is_terminal = std::io::stderr().is_terminal();
        let every = if is_terminal { Duration::from_millis(500) } else { Duration::from_secs(60) };
        let mut stuck: Vec<Stuck> = self.jobs.iter().map(|_| Stuck::default()).collect();
        while !self.over.load(Relaxed) {
            std::thread::park_timeout(every);
            self.jobs.iter().zip(&mut stuck).for_each(|(job, stuck)| self.watch(job, stuck));
            if self.over.load(Relaxed) {
                break;
            }
            if is_terminal {
                eprint!("\r\x1b[K{}", self.line());
            } else {
                say(&self.line());
            }
        }
        if is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Where a thread was seen last, since when, and whether that was said.
#[derive(Default)]
struct Stuck {
    steps: u64,
    since: Option<Instant>,
    said: bool,
}

/// No statement takes so long, and no end of a run.
const LONG: Duration = Duration::from_secs(120);

fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    println!("{text}");
    // Whoever does not listen any more misses it.
    let _ = std::io::stdout().flush();
}

fn write(seed: u64, text: &str) -> std::io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder = target.join("swarm");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("seed-{seed}.scn"));
    std::fs::write(&file, text)?;
    Ok(file)
}

/// Runs a file as random runs are run.
fn again(file: &PathBuf, manner: Manner) -> ExitCode {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("swarm: {} can't be read: {error}", file.display());
            return ExitCode::from(2);
        }
    };
    let scenario = match pmux_sim::scenario::parse(&text) {
        Ok(scenario) => scenario,
        Err(problems) => {
            eprint!("{}", pmux_sim::scenario::render(&file.display().to_string(), &text, &problems));
            return ExitCode::from(2);
        }
    };
    match replay(&scenario, manner) {
        Ok(()) => {
            println!("nothing was found");
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            println!("{trouble}");
            ExitCode::FAILURE
        }
    }
}
