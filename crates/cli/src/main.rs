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

use options::{Invocation, Parsed};
use pmux_ui::{stderr, style};
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(match options::parse(std::env::args_os().collect()) {
        Parsed::Show(shown) => shown.print(),
        Parsed::Run(Invocation::Stat(options)) => stat::stat(&options),
        Parsed::Run(Invocation::Timec(options)) => stat::timec(&options),
        Parsed::Run(Invocation::List(options)) => inspect::list(&options),
        Parsed::Run(Invocation::Explain(options)) => inspect::explain(&options),
        Parsed::Run(Invocation::Plan(options)) => plan::plan(&options),
        Parsed::Run(Invocation::Sim(_)) => sim::sim(std::env::args_os().skip(2)),
        Parsed::Run(Invocation::Bench(options)) => bench::bench(&options),
        Parsed::Run(Invocation::Run(options)) => run::run(&options),
        Parsed::Run(Invocation::Watch(options)) => watch::watch(&options),
        Parsed::Run(Invocation::Record(options)) => record::record(&options),
        Parsed::Run(Invocation::Top(options)) => top::top(&options),
        Parsed::Run(Invocation::Flight(options)) => flight::flight(&options),
        Parsed::Run(Invocation::Report(options)) => report::report(&options),
        Parsed::Run(Invocation::Script(options)) => script::script(&options),
        Parsed::Run(Invocation::Flame(options)) => flame::flame(&options),
        Parsed::Run(Invocation::Convert(options)) => convert::convert(&options),
        Parsed::Run(Invocation::View(options)) => view::view(&options),
        Parsed::Run(Invocation::Diff(options)) => diff::diff(&options),
        Parsed::Run(Invocation::Timeline(options)) => timeline::timeline(&options),
        Parsed::Run(Invocation::Serve(options)) => service::serve(&options),
        Parsed::Run(Invocation::Status(options)) => service::status(&options),
        Parsed::Run(Invocation::Completions(options)) => inspect::completions(&options),
        Parsed::Run(Invocation::Man(options)) => inspect::manual(&options),
    })
}

/// A text without its escape sequences.
#[cfg(test)]
fn without_colour(painted: &str) -> String {
    let mut parts = painted.split('\u{1b}');
    let plain = parts.next().unwrap_or_default().to_owned();
    plain + &parts.filter_map(|part| Some(part.split_once('m')?.1)).collect::<String>()
}
