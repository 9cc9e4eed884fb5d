//! The program `pmux-sim`, which `pmux sim` starts: scenario files, run on a machine.
//!
//! What it is: finds the files, reads and checks them, has each run, and says what came of it. The language is in `pmux_sim`;
//! the machine that is this kernel in `kernel`, the other in `simulated`.
//! Read first: [`sim`], then [`outcome::Outcome`].
//!
//! **Invariant:** a file that can't be understood is run nowhere, and each file has one outcome.
#![forbid(unsafe_code)]

mod kernel;
mod outcome;
mod report;
mod simulated;

use clap::Parser;
use outcome::{Outcome, Ran};
use pmux_sim::scenario::{self, Bearing, Problem, files};
use pmux_ui::exit_status;
use pmux_ui::sim_options::{On, SimOptions};
use pmux_ui::stderr::report_error;
use report::Printer;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Run scenario files on a simulated machine or on this kernel
#[derive(Parser)]
#[command(name = "pmux-sim", version)]
struct Program {
    #[command(flatten)]
    options: SimOptions,
}

fn main() -> ExitCode {
    // A task of a scenario is this program, started again.
    pmux::workers::serve_if_asked();
    let options = match Program::try_parse() {
        Ok(program) => program.options,
        Err(error) => {
            // When it fails, there is no place left where the failure could be told.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit_status::FAILED } else { exit_status::SUCCESS });
        }
    };
    ExitCode::from(match options.check() {
        Ok(()) => sim(&options),
        Err(message) => report_error(&message, exit_status::FAILED),
    })
}

/// Runs the files and returns the exit status.
fn sim(options: &SimOptions) -> u8 {
    let files = match files::find(&options.files) {
        Ok(files) => files,
        Err(message) => return report_error(&message, exit_status::FAILED),
    };
    let mut machine = match Machine::new(options) {
        Ok(machine) => machine,
        Err(message) => return report_error(&message, exit_status::FAILED),
    };
    let mut printer = Printer::new(options, files.len());
    for file in &files {
        let started = Instant::now();
        let mut ran = run(file, &mut machine, options);
        ran.took = started.elapsed();
        let outcome = printer.add(ran);
        if let Outcome::Interrupted(signal) = outcome {
            let signal = *signal;
            printer.finish();
            return exit_status::killed_by(signal);
        }
    }
    printer.finish()
}

enum Machine {
    Simulated,
    Kernel(kernel::Kernel),
}

impl Machine {
    fn new(options: &SimOptions) -> Result<Self, String> {
        match options.on {
            On::Sim => Ok(Self::Simulated),
            On::Kernel => kernel::Kernel::new().map(Self::Kernel),
        }
    }
}

fn run(file: &Path, machine: &mut Machine, options: &SimOptions) -> Ran {
    let name = file.display().to_string();
    let broken = |text: String| Ran::new(name.clone(), Outcome::Broken(text));
    let text = match files::read(file) {
        Ok(text) => text,
        Err(message) => return broken(message),
    };
    let scenario = match scenario::parse(&text) {
        Ok(scenario) => scenario,
        Err(problems) => return broken(scenario::render(&name, &text, &problems)),
    };
    let (fatal, elsewhere): (Vec<Problem>, Vec<Problem>) =
        scenario::check(&scenario).into_iter().partition(|problem| match problem.bearing {
            Bearing::Everywhere => true,
            Bearing::OffTheSimulator => options.on == On::Kernel,
        });
    if !fatal.is_empty() {
        return broken(scenario::render(&name, &text, &fatal));
    }
    let mut ran = match machine {
        Machine::Simulated => simulated::simulate(&name, &scenario, options),
        Machine::Kernel(kernel) => match &scenario.header.sim_only {
            Some(only) => Ran::new(name.clone(), Outcome::SimOnly(only.reason.clone())),
            None => kernel.run(&name, &scenario),
        },
    };
    if options.verbose && !elsewhere.is_empty() {
        ran.remarks = Some(scenario::render(&name, &text, &elsewhere));
    }
    ran
}
