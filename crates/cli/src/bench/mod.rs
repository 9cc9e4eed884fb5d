//! `pmux bench`: what breakpoints cost, on this kernel or in the ledger.
//!
//! What it is: the options become a load of [`pmux::bench`], and its cost is printed as `perf bench` prints it.
//! Read first: [`bench()`]; then [`report`].
//!
//! **Invariant:** nothing is measured here, and nothing is printed while something is measured.

mod report;

use crate::inspect::{print, print_page};
use crate::options::bench::{Accountant, BenchOptions, Benchmark, Collection, EnableOptions, ThreadOptions};
use crate::options::exit_status;
use crate::stderr::report_error;
use pmux::Session;
use pmux::bench::{Accounts, Allowance, BenchError, EnableLoad, ThreadLoad};
use report::{BenchReport, Beside, MeasuredOn};
use std::time::Duration;

/// How long a baseline may take where nothing is said.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn bench(options: &BenchOptions) -> u8 {
    let Collection::Breakpoint(breakpoint) = &options.collection;
    let report = match &breakpoint.benchmark {
        Benchmark::Thread(thread) => threads(thread, options.repeat),
        Benchmark::Enable(enable) => switching(*enable, options.repeat),
    };
    match report {
        Ok(report) if options.json => print(&report.json()),
        Ok(report) => print_page(&report.text()),
        Err(message) => report_error(&message, exit_status::FAILED),
    }
}

fn session() -> Result<Session, String> {
    Session::new().map_err(|error| crate::stat::error_message(&error))
}

fn words(error: BenchError) -> String {
    match error {
        BenchError::Session(error) => crate::stat::error_message(&error),
        other => other.to_string(),
    }
}

fn threads(options: &ThreadOptions, repeat: u32) -> Result<BenchReport, String> {
    let ThreadOptions { breakpoints, parallelism, threads, .. } = *options;
    let load = ThreadLoad { breakpoints, parallelism, threads, repeat };
    let measured = match options.engine {
        Accountant::Kernel => MeasuredOn::Kernel(pmux::bench::threads(&session()?, load).map_err(words)?),
        Accountant::Ledger => {
            let cpus = match options.cpus {
                Some(cpus) => cpus,
                None => u32::try_from(session()?.online().len()).map_err(|error| error.to_string())?,
            };
            let ask = |accounts, allowance| pmux::bench::books(accounts, cpus, load, allowance).map_err(words);
            let found = ask(Accounts::Ledger, Allowance::Whole)?;
            let limit = options.limit.unwrap_or(PATIENCE);
            let list = options.baseline.map(|_| ask(Accounts::List, Allowance::UpTo(limit))).transpose()?;
            MeasuredOn::Ledger { cpus, found, list: list.map(|found| Beside { found, limit }) }
        }
    };
    Ok(BenchReport::Threads { load, measured })
}

fn switching(options: EnableOptions, repeat: u32) -> Result<BenchReport, String> {
    let EnableOptions { passive, active } = options;
    let load = EnableLoad { passive, active, repeat };
    let cost = pmux::bench::enable(&session()?, load).map_err(words)?;
    Ok(BenchReport::Switching { load, cost })
}
