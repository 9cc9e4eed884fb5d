//! What is printed of scenarios: a line for each, what was wrong, and the sum.
//!
//! **Invariant:** results go to standard output, what is wrong with a file or a run to standard error.

use crate::outcome::{Failure, Outcome, Ran, is_required};
use pmux_ui::exit_status;
use pmux_ui::sim_options::{On, SimOptions};
use pmux_ui::stderr::{visible, write_stderr};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

pub(super) struct Printer {
    json: bool,
    timeline: bool,
    verbose: bool,
    on: On,
    /// Whether there are several: then each line begins with its file.
    several: bool,
    /// How many have had each result.
    sum: BTreeMap<&'static str, usize>,
    rows: Vec<serde_json::Value>,
    last: Option<Outcome>,
}

impl Printer {
    pub(super) fn new(options: &SimOptions, files: usize) -> Self {
        Self {
            json: options.json,
            timeline: options.wants_timeline(),
            verbose: options.verbose,
            on: options.on,
            several: files > 1,
            sum: BTreeMap::new(),
            rows: Vec::new(),
            last: None,
        }
    }

    /// Prints one, and answers what came of it in the end: a skip may be a failure here.
    pub(super) fn add(&mut self, mut ran: Ran) -> &Outcome {
        if let Outcome::Skipped(lack) = &ran.outcome
            && is_required(lack.class)
        {
            let message = format!("it needs {}, which PMUX_REQUIRE says that this machine has", lack.what);
            let failure = Failure { place: Default::default(), statement: String::new(), message };
            ran.outcome = Outcome::Failed(vec![failure]);
        }
        *self.sum.entry(result(&ran.outcome).0).or_default() += 1;
        if let Some(remarks) = &ran.remarks {
            write_stderr(remarks.trim_end());
        }
        if self.json {
            self.rows.push(row(&ran));
        } else {
            self.print(&ran);
        }
        self.last.insert(ran.outcome)
    }

    fn print(&self, ran: &Ran) {
        if let (true, Some(timeline)) = (self.timeline, &ran.timeline) {
            put(timeline);
        }
        let mut line = String::new();
        if self.several {
            line.push_str(&visible(&ran.file));
            line.push_str(": ");
        }
        line.push_str(&sentence(&ran.outcome));
        if self.verbose {
            // Writing to a text does not fail.
            let _ = write!(line, " ({} ms)", ran.took.as_millis());
        }
        line.push('\n');
        put(&line);
        match &ran.outcome {
            Outcome::Broken(text) => write_stderr(text.trim_end()),
            Outcome::Failed(failures) => {
                failures.iter().for_each(|failure| write_stderr(&failure_text(&ran.file, failure)));
            }
            _ => {}
        }
    }

    /// Prints the sum, and returns the exit status.
    pub(super) fn finish(&mut self) -> u8 {
        let of = |result: &str| self.sum.get(result).copied().unwrap_or_default();
        let (failed, broken, skipped, sim_only) = (of("failed"), of("broken"), of("skipped"), of("sim only"));
        let passed = of("passed");
        if self.json {
            let on = match self.on {
                On::Sim => "sim",
                On::Kernel => "kernel",
            };
            let scenarios = std::mem::take(&mut self.rows);
            let document = serde_json::json!({
                "on": on,
                "scenarios": scenarios,
                "passed": passed,
                "failed": failed,
                "broken": broken,
                "skipped": skipped,
                "sim_only": sim_only,
            });
            put(&format!("{document:#}\n"));
        } else if self.several {
            let mut line = format!("{passed} passed, {} failed, {skipped} skipped", failed + broken);
            if sim_only > 0 {
                // Writing to a text does not fail.
                let _ = write!(line, ", {sim_only} for the simulator only");
            }
            put(&format!("{line}\n"));
        }
        match (broken, failed) {
            (0, 0) => exit_status::SUCCESS,
            (0, _) => exit_status::SCENARIO_FAILED,
            _ => exit_status::FAILED,
        }
    }
}

/// What came of a scenario in a word, and why.
fn result(outcome: &Outcome) -> (&'static str, Option<String>) {
    match outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Failed(_) => ("failed", None),
        Outcome::Broken(text) => ("broken", Some(text.clone())),
        Outcome::Skipped(lack) => ("skipped", Some(format!("needs {}", lack.what))),
        Outcome::SimOnly(reason) => ("sim only", Some(reason.clone())),
        Outcome::Interrupted(signal) => ("interrupted", Some(format!("signal {signal}"))),
    }
}

fn sentence(outcome: &Outcome) -> String {
    match result(outcome) {
        ("broken", _) => "failed: it can't be understood".to_owned(),
        ("interrupted", Some(signal)) => format!("stopped by {signal}"),
        (result, Some(reason)) => format!("{result}: {}", visible(&reason)),
        (result, None) => result.to_owned(),
    }
}

/// Place, statement, and below it what was wrong.
fn failure_text(file: &str, failure: &Failure) -> String {
    let Failure { place, statement, message } = failure;
    if place.line == 0 {
        return format!("{file}: {message}");
    }
    format!("{file}:{}:{}: {statement}\n  {message}", place.line, place.column)
}

fn row(ran: &Ran) -> serde_json::Value {
    let (result, reason) = result(&ran.outcome);
    let failures = if let Outcome::Failed(failures) = &ran.outcome { failures.as_slice() } else { &[] };
    let failure = |Failure { place, statement, message }: &Failure| serde_json::json!({ "line": place.line, "column": place.column, "statement": statement, "message": message });
    serde_json::json!({
        "file": ran.file,
        "result": result,
        "reason": reason,
        "failures": failures.iter().map(failure).collect::<Vec<_>>(),
        "timeline": ran.timeline,
        "ms": u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX),
    })
}

/// Writes to standard output. Where no process reads it any more (`| head`), the rest is not printed; the status still tells.
fn put(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Lack;

    #[test]
    fn words_for_outcomes() {
        assert_eq!(sentence(&Outcome::Skipped(Lack::new("cpus", "4 CPUs"))), "skipped: needs 4 CPUs");
        assert_eq!(sentence(&Outcome::SimOnly("faults".into())), "sim only: faults");
    }
}
