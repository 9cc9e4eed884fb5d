//! `pmux list` and `pmux explain`: ask about events without measuring.
//!
//! **Invariant:** plain data.

use super::target;
use crate::style::ColorChoice;
use clap::Args;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ListOptions {
    /// Show events whose name or description contains this, or matches it with * and ?
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,

    /// Print JSON
    #[arg(short, long = "json")]
    pub(crate) json: bool,

    /// When to use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: ColorChoice,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ExplainOptions {
    /// Event in any spelling that `pmux stat -e` takes
    #[arg(value_name = "EVENT", allow_negative_numbers = true)]
    pub(crate) event: String,

    /// Try it on these processes
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', value_parser = target::id, group = "where")]
    pub(crate) pid: Vec<i32>,

    /// Try it on these threads
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',', value_parser = target::id, group = "where")]
    pub(crate) tid: Vec<i32>,

    /// Try it on every CPU
    #[arg(short, long = "all-cpus", group = "where")]
    pub(crate) all_cpus: bool,

    /// Try it on these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = target::cpus, group = "where")]
    pub(crate) cpu: Option<String>,

    /// Print JSON: one object for each event, a line each
    #[arg(short, long = "json")]
    pub(crate) json: bool,

    /// When to use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: ColorChoice,
}
