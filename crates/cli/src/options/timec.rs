//! `pmux timec`, and the same program called by the name `timec`.
//!
//! **Invariant:** takes what the first `timec` took: events by number or name, and a
//! command.

use super::shared::SharedOptions;
use clap::{Args, Parser};
use std::ffi::OsString;

/// Count events of a command and print a number and a name a line.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "timec", version)]
pub(crate) struct Timec {
    #[command(flatten)]
    pub(crate) options: TimecOptions,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct TimecOptions {
    /// Event by name or by its first number: 0 cycles, 1 instructions, 2 cache-references,
    /// 3 cache-misses, 4 branches, 5 branch-misses, -1 cpu-clock, -2 task-clock,
    /// -3 page-faults, -4 context-switches, -5 cpu-migrations; may be given again
    #[arg(short, long = "event", value_name = "EVENT", allow_hyphen_values = true)]
    pub(crate) events: Vec<String>,

    /// Print each count as a JSON object on a line of its own, as pmux stat does
    #[arg(short, long = "json-output", visible_alias = "json")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) shared: SharedOptions,

    /// Command to measure, with its own options
    #[arg(value_name = "COMMAND", help_heading = None, required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}
