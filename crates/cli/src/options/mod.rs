//! The command line of every command, as plain data.
//!
//! Read first: [`Invocation`] and [`parse`]. Each command has a file; `stat_rules` holds
//! what clap cannot say about `pmux stat`. Help, shell completions and man pages come from
//! these same definitions (`generate`, `man`).
//!
//! **Invariant:** nothing here opens an event or looks at the machine. The options of a
//! measured command are never read as ours: parsing stops at the first word that is not an
//! option.

pub(crate) mod bench;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod diff;
pub(crate) mod filters;
pub(crate) mod flame;
pub(crate) mod flight;
mod front;
pub(crate) mod generate;
pub(crate) mod inspect;
mod man;
mod mistakes;
pub(crate) mod picture;
pub(crate) mod plan;
pub(crate) mod reading;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod sampling;
pub(crate) mod serve;
pub(crate) mod shared;
pub(crate) mod stat;
mod stat_rules;
pub(crate) mod symbols;
pub(crate) mod target;
pub(crate) mod timec;
pub(crate) mod timeline;
pub(crate) mod top;
pub(crate) mod watch;

#[cfg(test)]
mod documents;
#[cfg(test)]
mod tests;

pub(crate) use pmux_ui::exit_status;
use pmux_ui::sim_options::SimOptions;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;

/// Measure what programs and machines do: exact event counts, process by process.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(
    name = "pmux",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    args_override_self = true,
    after_help = "`pmux help COMMAND` shows the options of a command and examples."
)]
pub(crate) struct Pmux {
    #[command(subcommand)]
    pub(crate) command: Invocation,
}

/// One command with its options. Those of the other commands are not made: it would cost a run as much as the start of the program.
/// So the structs of options have no documentation comment: it would become the description of the command.
#[derive(Clone, Debug, PartialEq, Subcommand)]
#[command(defer = true)]
pub(crate) enum Invocation {
    /// Count events of a command, of processes, of CPUs or of the whole machine
    Stat(Box<stat::StatOptions>),
    /// Count events of a command and print one number and name per line
    Timec(timec::TimecOptions),
    /// List the events of this machine and which of them can be opened now
    List(inspect::ListOptions),
    /// Show how an event is encoded, what counts it, and why it cannot be opened
    Explain(inspect::ExplainOptions),
    /// Show how events would fit on the counters of a machine, without opening them
    Plan(plan::PlanOptions),
    /// Run scenario files on a simulated machine or on this kernel
    Sim(SimOptions),
    /// Run a command so that its events share counters with those of other programs
    Run(run::RunOptions),
    /// Find what reads, writes or executes a variable, a function or a line of code
    Watch(Box<watch::WatchOptions>),
    /// Record samples into a perf.data file
    Record(Box<record::RecordOptions>),
    /// Show live which functions, processes or containers run now, and their callers
    Top(Box<top::TopOptions>),
    /// Keep the last seconds in memory and write them when a condition holds
    Flight(Box<flight::FlightOptions>),
    /// Show the hottest functions of a recording and their callers
    Report(Box<reading::ReportOptions>),
    /// Print every sample of a recording, one per line
    Script(Box<reading::ScriptOptions>),
    /// Draw a recording as a flame graph
    Flame(Box<flame::FlameOptions>),
    /// Convert a recording for Firefox Profiler, pprof, speedscope, Perfetto or Chrome
    Convert(Box<convert::ConvertOptions>),
    /// Show a recording in the Firefox Profiler
    View(Box<convert::ViewOptions>),
    /// Show what changed between recordings, and what of that is chance
    Diff(Box<diff::DiffOptions>),
    /// Draw a recording over time: CPUs, processes, counters
    Timeline(Box<timeline::TimelineOptions>),
    /// Measure what breakpoints cost, in this kernel or in the ledger
    Bench(bench::BenchOptions),
    /// Run the daemon that shares counters between processes
    Serve(serve::ServeOptions),
    /// Show what the daemon counts, for which clients, and what sharing saves
    Status(serve::StatusOptions),
    /// Print completions for a shell
    Completions(generate::CompletionsOptions),
    /// Write the manual pages to a directory
    Man(generate::ManOptions),
}

/// Prints to standard output (help, version) or standard error (complaints), in colour
/// on a terminal, and returns the exit status that belongs to it.
pub(crate) fn show(shown: &clap::Error) -> u8 {
    // When the text cannot be written, no reader is left to tell.
    let _ = match pmux_ui::text::in_locale(&shown.render().to_string()) {
        Cow::Borrowed(_) => shown.print(),
        Cow::Owned(text) if shown.use_stderr() => io::stderr().write_all(text.as_bytes()),
        Cow::Owned(text) => io::stdout().write_all(text.as_bytes()),
    };
    if shown.use_stderr() { exit_status::FAILED } else { exit_status::SUCCESS }
}

/// Writes the `-z3` of `pmux record` as `-z=3`: clap takes what follows a letter that may stand alone for more letters. What belongs to
/// the command that is recorded, or to another option, stays as it is.
fn with_levels(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    for place in 2..end {
        let level = arguments[place].to_str().and_then(|word| word.strip_prefix("-z"));
        let Some(level) = level.filter(|level| level.starts_with(|letter: char| letter.is_ascii_digit())) else {
            continue;
        };
        let before = Pmux::try_parse_from(&arguments[..place]).map(|pmux| pmux.command);
        if matches!(before, Ok(Invocation::Record(options)) if options.sampling.command.is_empty()) {
            arguments[place] = format!("-z={level}").into();
        }
    }
    arguments
}

/// Reads a command line, the name of the program first.
///
/// A program that was called by the name `timec` takes the options of `pmux timec`.
///
/// # Errors
/// What is to be shown instead: help, version or a complaint.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Invocation, clap::Error> {
    let is_timec = arguments.first().is_some_and(|name| Path::new(name).file_stem() == Some("timec".as_ref()));
    let result = if is_timec {
        let command = man::with_examples(timec::Timec::command(), None);
        let matches = command.try_get_matches_from(arguments);
        matches
            .and_then(|matches| timec::Timec::from_arg_matches(&matches))
            .map(|timec| Invocation::Timec(timec.options))
    } else {
        let too_many = |text: String| Pmux::command().error(ErrorKind::TooManyValues, text);
        let arguments = front::as_options(arguments).map_err(too_many)?;
        let command = Pmux::command();
        let command = if front::is_asked_for(&arguments) { front::in_groups(command) } else { command };
        let mut matches = command.try_get_matches_from(with_levels(arguments.clone()));
        if matches.as_ref().is_err_and(is_help) && !front::is_asked_for(&arguments) {
            // Once more, with examples: what the options of a command say of it is known when it is built only.
            let mut command = Pmux::command();
            command.build();
            let command = command.mut_subcommands(|command| man::with_examples(command, None));
            matches = command.try_get_matches_from(&arguments);
        }
        let read = matches.and_then(|matches| Pmux::from_arg_matches(&matches)).map(|pmux| pmux.command);
        read.map_err(|error| mistakes::explained(error, &arguments))
    };
    result.and_then(|invocation| match invocation.check() {
        Ok(()) => Ok(invocation),
        Err((command, message)) => Err(usage_error(command, &message)),
    })
}

fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

impl Invocation {
    /// Checks what clap can't.
    ///
    /// Errors: the command, and a sentence.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let (command, checked) = match self {
            Self::Stat(options) => ("stat", options.check()),
            Self::Timec(options) => ("timec", options.shared.check()),
            Self::Plan(options) => ("plan", options.check()),
            Self::Sim(options) => ("sim", options.check()),
            Self::Watch(options) => ("watch", options.check()),
            Self::Record(options) => ("record", options.check()),
            Self::Top(options) => ("top", options.check()),
            Self::Flight(options) => ("flight", options.check()),
            Self::Report(options) => ("report", options.part.check()),
            Self::Script(options) => ("script", options.part.check()),
            Self::Flame(options) => ("flame", options.part.check()),
            Self::Convert(options) => ("convert", options.check()),
            Self::View(options) => ("view", options.part.check()),
            Self::Diff(options) => ("diff", options.sides().map(drop).and_then(|()| options.part.check())),
            Self::Timeline(options) => ("timeline", options.part.check()),
            Self::Bench(options) => ("bench breakpoint thread", options.check()),
            _ => return Ok(()),
        };
        checked.map_err(|message| (command, message))
    }
}

/// The first of these that is wrong, as a sentence for the user.
fn refuse_first(rules: &[(bool, &str)]) -> Result<(), String> {
    rules.iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, why)| Err((*why).to_owned()))
}

/// Makes a complaint that looks like clap's own, with the usage line of the command: its name, and those of commands
/// above it.
fn usage_error(command: &str, message: &str) -> clap::Error {
    find_command(command.split_whitespace()).1.error(ErrorKind::ArgumentConflict, message)
}

/// The definition of a command, by its words, as far as there are such, and how many those are.
fn find_command<'w>(words: impl IntoIterator<Item = &'w str>) -> (usize, clap::Command) {
    let mut found = Pmux::command();
    found.build();
    let mut known = 0;
    for name in words {
        match found.find_subcommand(name).cloned() {
            Some(inner) => found = inner,
            None => break,
        }
        known += 1;
    }
    (known, found)
}
