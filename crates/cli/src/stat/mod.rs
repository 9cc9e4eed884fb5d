//! `pmux stat`: measure, then report.
//!
//! What it is: [`plan`] says what is opened, [`run`] and [`live`] measure, [`assemble`] makes a [`report::StatReport`] of the
//! readings, [`remarks`] says what has to be said about it, [`format`] prints it, [`output`] knows where.
//! Read first: [`stat`], then [`report::StatReport`].
//!
//! **Invariant:** the formats see reports only, and the measurement knows no format.

mod assemble;
pub(crate) mod format;
mod live;
mod mean;
mod mux;
mod names;
mod output;
mod plan;
pub(crate) mod process_tree;
mod regions;
mod remarks;
pub(crate) mod report;
mod run;
pub(crate) mod spread;
mod windows;

use crate::control::Channel;
use crate::failure::{Failure, failed};
use crate::foreground::waiter;
use crate::options::exit_status;
use crate::options::stat::StatOptions;
use crate::options::timec::TimecOptions;
use crate::stderr::write_stderr;
use mean::Mean;
use output::{StatOutput, State};
use plan::Plan;
pub(crate) use plan::{cpu_choice, error_message};
use pmux::Backend;
pub(crate) use remarks::{EXEC_HELP, ended_by_exec, gaps, service_was_away};
use report::{Note, StatReport};
pub(crate) use run::backend_line;
use run::{Outcome, StatRun};
use std::cell::{OnceCell, RefCell};
use std::io::Write;

pub(crate) fn stat(options: &StatOptions) -> Result<u8, Failure> {
    for warning in options.warnings() {
        write_stderr(&format!("pmux: {warning}"));
    }
    let session = crate::session::open(&options.shared, None).map_err(|error| failed(error_message(&error)))?;
    if let (true, Backend::Usage { why }) = (options.tree, session.backend()) {
        let why = error_message(&pmux::Error::Refused(vec![(**why).clone()]));
        return Err(failed(format!("--tree needs performance events; without it, the totals are counted: {why}")));
    }
    let plan = Plan::new(&session, options).map_err(failed)?;
    let mut waiter = waiter()?;
    let mut output = StatOutput::open(options).map_err(failed)?;
    if let Some(line) = backend_line(&session).filter(|_| !plan.columns.is_empty()) {
        output.announce(line);
    }
    if options.verbose > 0 {
        for event in plan.parts.iter().flat_map(|part| part.events.events()) {
            write_stderr(&format!("{}: {}", event.name, event.encoding_on(session.catalog())));
        }
    }
    let control = RefCell::new(Channel::open(options.control.as_ref())?);
    let run = StatRun { session: &session, options, plan: &plan, counters_announced: OnceCell::new(), control };
    let mut measure = |output: &mut StatOutput| {
        if options.sync {
            // `sync` can't fail; that the command is missing is no reason not to measure.
            let _ = std::process::Command::new("sync").status();
        }
        run.measure(&mut waiter, output)
    };
    let status = match options.repeat {
        Some(0) => for_ever(&mut output, &mut measure)?,
        Some(runs) => several(runs, &mut output, &mut measure)?,
        None => {
            let Outcome { report, summary, status, .. } = measure(&mut output)?;
            report.iter().chain(&summary).for_each(|report| output.write(report));
            status
        }
    };
    Ok(if output.state == State::Good { status } else { exit_status::FAILED })
}

/// Measures once.
type Measure<'a> = dyn FnMut(&mut StatOutput) -> Result<Outcome, Failure> + 'a;

/// `-r 0`: a report for each run, until a signal comes. The run in which it comes is reported only if it is the first.
fn for_ever(output: &mut StatOutput, measure: &mut Measure<'_>) -> Result<u8, Failure> {
    let mut first = true;
    loop {
        let outcome = measure(output)?;
        if first || !outcome.interrupted {
            outcome.report.iter().for_each(|report| output.write(report));
        }
        if outcome.interrupted || output.state == State::Lost {
            return Ok(outcome.status);
        }
        first = false;
    }
}

/// `-r N`: one report with means. What was measured before something goes wrong is reported.
fn several(runs: u32, output: &mut StatOutput, measure: &mut Measure<'_>) -> Result<u8, Failure> {
    let mut mean = Mean::default();
    let mut left_out = None;
    let result = loop {
        match measure(output) {
            Err(failure) => break Err(failure),
            Ok(outcome) => {
                let number = mean.runs() + 1;
                match outcome.report {
                    Some(_) if outcome.interrupted && number > 1 => {
                        left_out = Some(format!("run {number} of {runs} was interrupted, and is left out"));
                    }
                    report => report.into_iter().for_each(|report| mean.add(report)),
                }
                if outcome.interrupted || number >= runs {
                    break Ok(outcome.status);
                }
            }
        }
    };
    if let Some(report) = mean.into_report() {
        let notes = report.notes.iter().cloned().chain(left_out.map(Note::measurement)).collect();
        output.write(&StatReport { notes, ..report });
    }
    result
}

pub(crate) fn timec(options: &TimecOptions) -> Result<u8, Failure> {
    let TimecOptions { events, json, shared, command } = options.clone();
    let options = &StatOptions { events, json, shared, command, ..Default::default() };
    let session = crate::session::open(&options.shared, None).map_err(|error| failed(error_message(&error)))?;
    let plan = Plan::new(&session, options).map_err(failed)?;
    let mut output = StatOutput::open(options).map_err(failed)?;
    backend_line(&session).filter(|_| options.json).into_iter().for_each(|line| output.announce(line));
    let control = RefCell::new(None);
    let run = StatRun { session: &session, options, plan: &plan, counters_announced: OnceCell::new(), control };
    let outcome = run.measure(&mut waiter()?, &mut output)?;
    let program = options.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if options.json {
        outcome.report.iter().for_each(|report| output.write(report));
        return Ok(outcome.status);
    }
    let text = outcome.report.map(|mut report| {
        report.notes.extend(backend_line(&session).map(Note::measurement));
        format::timec::compose(&report, &program)
    });
    let written = std::io::stderr().write_all(text.unwrap_or_default().as_bytes()).is_ok();
    Ok(if written { outcome.status } else { exit_status::FAILED })
}
