//! The command `pmux`.
//!
//! What it is: glue. [`options`] reads the command line, [`stat`], [`inspect`], [`mod@plan`], [`sim`],
//! [`mod@watch`], [`mod@record`], [`mod@top`], [`mod@flight`], [`mod@run`], [`mod@report`], [`mod@script`], [`mod@bench`] and [`service`] do what it says.
//! What draws a recording ([`mod@flame`], [`mod@convert`], [`mod@view`], [`mod@diff`], [`mod@timeline`]) begins with [`picture`];
//! [`input`] says for all who read one which recording is meant.
//!
//! **Invariant:** everything that touches events goes through the `pmux` library.
#![forbid(unsafe_code)]

mod bench;
mod columns;
mod control;
mod convert;
mod descriptor;
mod diff;
mod failure;
mod filters;
mod flame;
mod flight;
mod foreground;
mod input;
mod inspect;
mod loopback;
mod options;
mod picture;
mod plan;
mod record;
mod report;
mod run;
mod sampling;
mod script;
mod service;
mod session;
mod sim;
mod stat;
mod terminal;
mod theme;
mod timeline;
mod top;
mod view;
mod watch;

use failure::{done, ended};
use options::Invocation;
use pmux_ui::{stderr, style};
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(match options::parse(std::env::args_os().collect()) {
        Err(shown) => options::show(&shown),
        Ok(Invocation::Stat(options)) => ended(stat::stat(&options)),
        Ok(Invocation::Timec(options)) => ended(stat::timec(&options)),
        Ok(Invocation::List(options)) => inspect::list(&options),
        Ok(Invocation::Explain(options)) => inspect::explain(&options),
        Ok(Invocation::Plan(options)) => plan::plan(&options),
        Ok(Invocation::Sim(_)) => sim::sim(std::env::args_os().skip(2)),
        Ok(Invocation::Bench(options)) => bench::bench(&options),
        Ok(Invocation::Run(options)) => run::run(&options),
        Ok(Invocation::Watch(options)) => ended(watch::watch(&options)),
        Ok(Invocation::Record(options)) => ended(record::record(&options)),
        Ok(Invocation::Top(options)) => done(top::top(&options)),
        Ok(Invocation::Flight(options)) => ended(flight::flight(&options)),
        Ok(Invocation::Report(options)) => done(report::report(&options)),
        Ok(Invocation::Script(options)) => done(script::script(&options)),
        Ok(Invocation::Flame(options)) => done(flame::flame(&options)),
        Ok(Invocation::Convert(options)) => done(convert::convert(&options)),
        Ok(Invocation::View(options)) => view::view(&options),
        Ok(Invocation::Diff(options)) => diff::diff(&options),
        Ok(Invocation::Timeline(options)) => done(timeline::timeline(&options)),
        Ok(Invocation::Serve(options)) => service::serve(&options),
        Ok(Invocation::Status(options)) => service::status(&options),
        Ok(Invocation::Completions(options)) => inspect::completions(&options),
        Ok(Invocation::Man(options)) => inspect::manual(&options),
    })
}

/// A text without its escape sequences.
#[cfg(test)]
fn without_colour(painted: &str) -> String {
    let mut parts = painted.split('\u{1b}');
    let plain = parts.next().unwrap_or_default().to_owned();
    plain + &parts.filter_map(|part| Some(part.split_once('m')?.1)).collect::<String>()
}
