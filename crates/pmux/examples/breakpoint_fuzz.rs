//! Random breakpoints on this kernel, on the model of its rule and on the engine's ledger, side by side.
//!
//! What it is: the command around `tests/common/breakpoints`: `cargo run --release -p pmux --example breakpoint_fuzz -- --help`.
//!
//! **Invariant:** time and the terminal are here only; a sequence depends on its seed and its options.

#[path = "../tests/it/common/breakpoints/mod.rs"]
mod breakpoints;

use breakpoints::Alone;
use breakpoints::compare::{Difference, Parties, Tally, minimise, random, replay};
use breakpoints::draw::Draw;
use breakpoints::engine::Engine;
use breakpoints::kernel::Kernel;
use breakpoints::party::{Books, Model};
use breakpoints::step::{Step, parse};
use pmux_engine::CpuId;
use pmux_linux::cpus::Cpus;
use pmux_sim::oracle::breakpoint::Registers;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

const HELP: &str = "\
Opens, changes and closes random breakpoints on this kernel, and does the same with the model of its rule and with the engine's
ledger. All must grant the same and refuse the same.

usage: breakpoint_fuzz [OPTIONS]
       breakpoint_fuzz --replay FILE

  --operations N  at least so many operations (if nothing is said: 100000)
  --seed N        the seed of the first sequence; the others follow. If nothing is said, it is another one each time
  --steps N       steps of a sequence (if nothing is said: 2000)
  --threads N     threads that are watched at a time (if nothing is said: 3)
  --cpus N        CPUs that are used, the first ones that are online (if nothing is said: 4)
  --patience N    seconds for making small what was found (if nothing is said: 60)
  --engine        tries the engine's account on this kernel, which then may exchange the events of tasks and their children: where
                  the two differ, it must be said that children may have inherited registers
  --replay FILE   carries out the steps of a file, as they are printed when something was found
  --help          this text

It needs the right to open breakpoints for whole CPUs, and debug registers that nobody else uses meanwhile. A sequence that
differs is carried out again: only what differs three times counts. What is found is printed with the command that does it
again and with a small sequence. The exit status is 0 if nothing was found, 1 if something was, 2 if it can't be tried here or
the command makes no sense.";

/// How often a sequence may be disturbed by somebody else.
const ATTEMPTS: usize = 3;

struct Asked {
    operations: u64,
    seed: u64,
    steps: usize,
    threads: usize,
    cpus: usize,
    patience: Duration,
    replay: Option<PathBuf>,
    whom: Whom,
}

/// Who is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// The kernel, the model and the ledger, side by side.
    Rules,
    /// The engine on this kernel.
    Engine,
}

/// The machine, with its registers to ourselves.
struct Machine {
    registers: Registers,
    online: Vec<CpuId>,
    possible: Vec<CpuId>,
    _alone: Alone,
}

impl Machine {
    fn look(cpus: usize) -> Result<Self, String> {
        let session = pmux::Session::with_backend(pmux::BackendChoice::Kernel).map_err(|error| error.to_string())?;
        let online: Vec<_> = session.online().iter().take(cpus).map(CpuId).collect();
        let possible = Cpus::system().possible().map_err(|error| error.to_string())?.iter().map(CpuId).collect();
        let first = pmux::Target::Cpus(pmux::CpuChoice::Only(online.iter().take(1).map(|cpu| cpu.0).collect()));
        let clock = pmux::Event::parse("cpu-clock").map_err(|error| error.to_string())?;
        session.open(&clock.into(), &first, pmux::Options::default()).map_err(|error| error.to_string())?;
        let alone = Alone::wait();
        let registers = Kernel::registers(&online)?;
        Ok(Self { registers, online, possible, _alone: alone })
    }

    fn parties(&self, threads: usize, whom: Whom) -> Parties {
        if whom == Whom::Engine {
            return vec![Box::new(Engine::new(&self.online, threads))];
        }
        let model = Model::new(self.registers, &self.possible, threads);
        let books = Books::new(self.registers, &self.possible, threads);
        vec![Box::new(Kernel::new(threads)), Box::new(model), Box::new(books)]
    }
}

fn main() -> ExitCode {
    let asked = match parse_options(std::env::args().skip(1)) {
        Ok(Some(asked)) => asked,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(wrong) => return complain(&format!("{wrong}; see --help")),
    };
    let machine = match Machine::look(asked.cpus) {
        Ok(machine) => machine,
        Err(why) => return complain(&format!("it can't be tried here: {why}")),
    };
    match &asked.replay {
        Some(file) => again(&machine, file, asked.whom),
        None => hunt(&machine, &asked),
    }
}

fn complain(what: &str) -> ExitCode {
    eprintln!("breakpoint_fuzz: {what}");
    ExitCode::from(2)
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Result<Option<Asked>, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut asked = Asked {
        operations: 100_000,
        // Short enough to be typed.
        seed: now.as_micros() as u64 % 1_000_000_000,
        steps: 2000,
        threads: 3,
        cpus: 4,
        patience: Duration::from_secs(60),
        replay: None,
        whom: Whom::Rules,
    };
    while let Some(arg) = args.next() {
        if matches!(arg.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        if arg == "--engine" {
            asked.whom = Whom::Engine;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("`{arg}` needs a value, or is unknown"))?;
        if arg == "--replay" {
            asked.replay = Some(value.into());
            continue;
        }
        let number: u64 = value.parse().map_err(|_| format!("`{arg}` needs a whole number, not `{value}`"))?;
        let at_least_one = || match usize::try_from(number) {
            Ok(number @ 1..) => Ok(number),
            _ => Err(format!("`{arg}` needs 1 or more")),
        };
        match arg.as_str() {
            "--operations" => asked.operations = number,
            "--seed" => asked.seed = number,
            "--steps" => asked.steps = at_least_one()?,
            "--threads" => asked.threads = at_least_one()?,
            "--cpus" => asked.cpus = at_least_one()?,
            "--patience" => asked.patience = Duration::from_secs(number),
            _ => return Err(format!("`{arg}` is unknown")),
        }
    }
    Ok(Some(asked))
}

/// Random sequences, until there are enough operations or something is found.
fn hunt(machine: &Machine, asked: &Asked) -> ExitCode {
    let Asked { seed: first, steps, threads, whom, .. } = *asked;
    println!("{:?} on CPUs {:?}, {threads} threads, seed {first}", machine.registers, names(&machine.online));
    let (mut sum, mut disturbed) = (Tally::default(), 0_u64);
    let began = Instant::now();
    let mut told = began;
    for seed in first.. {
        if sum.operations >= asked.operations {
            break;
        }
        let mut found = Vec::new();
        let tally = loop {
            match random(machine.parties(threads, whom), Draw::new(seed, &machine.online, threads), steps) {
                Ok(tally) => break tally,
                Err(difference) => found.push(difference),
            }
            if found.len() == ATTEMPTS {
                return tell(machine, asked, seed, found.swap_remove(0));
            }
        };
        disturbed += found.len() as u64;
        sum += tally;
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            progress(&format!("seed {seed}: {sum}"));
        }
    }
    progress("");
    let seconds = began.elapsed().as_secs_f64();
    println!("{sum}\nno difference; {seconds:.1} s, disturbed {disturbed} times, seed {first}");
    ExitCode::SUCCESS
}

fn names(cpus: &[CpuId]) -> Vec<u32> {
    cpus.iter().map(|cpu| cpu.0).collect()
}

/// A line that is written over on a terminal.
fn progress(line: &str) {
    let mut out = std::io::stderr();
    let written = if out.is_terminal() {
        write!(out, "\r\x1b[K{line}").and_then(|()| out.flush())
    } else if line.is_empty() {
        Ok(())
    } else {
        writeln!(out, "{line}")
    };
    // Nobody to tell is no reason to stop.
    drop(written);
}

/// Says what was found, made small.
fn tell(machine: &Machine, asked: &Asked, seed: u64, found: Difference) -> ExitCode {
    progress("");
    let Asked { steps, threads, cpus, whom, .. } = asked;
    let engine = if *whom == Whom::Engine { " --engine" } else { "" };
    println!("seed {seed}: {found}");
    println!(
        "again: cargo run --release -p pmux --example breakpoint_fuzz -- --operations 1 --seed {seed} --steps {steps} \
         --threads {threads} --cpus {cpus}{engine}"
    );
    let small = minimise(&|| machine.parties(*threads, *whom), found, asked.patience);
    println!("made small, for --replay ({small}):");
    small.steps.iter().for_each(|step| println!("{step}"));
    ExitCode::from(1)
}

/// Carries out the steps of a file.
fn again(machine: &Machine, file: &PathBuf, whom: Whom) -> ExitCode {
    let steps = match std::fs::read_to_string(file).map_err(|error| error.to_string()).and_then(|text| parse(&text)) {
        Ok(steps) => steps,
        Err(error) => return complain(&format!("{}: {error}", file.display())),
    };
    let strange = steps.iter().filter_map(|step| match step {
        Step::Open { whose, .. } => whose.cpus(),
        _ => None,
    });
    if let Some(cpu) = strange.flatten().find(|cpu| !machine.online.contains(cpu)) {
        return complain(&format!("CPU {cpu} is not one of those that are used: {:?}", names(&machine.online)));
    }
    let thread = |step: &Step| match step {
        Step::Replace(thread) => Some(*thread),
        Step::Fork { parent, child, .. } => Some(*parent.max(child)),
        Step::Open { whose, .. } => whose.thread(),
        _ => None,
    };
    let threads = steps.iter().filter_map(thread).max().map_or(0, |most| most + 1);
    match replay(machine.parties(threads, whom), &steps) {
        Ok(tally) => {
            println!("{tally}\nno difference");
            ExitCode::SUCCESS
        }
        Err(difference) => {
            println!("{difference}");
            ExitCode::from(1)
        }
    }
}
