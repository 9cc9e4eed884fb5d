//! `pmux run`.
//!
//! **Invariant:** plain data.

use super::shared::SharedOptions;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct RunOptions {
    /// Print each call of perf_event_open by the command and what it starts: the event, the target, and whether the kernel opens
    /// it or why not, with what would help
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print each call as a JSON object on a line of its own, and a last one with their numbers
    #[arg(short, long = "json")]
    pub(crate) json: bool,

    /// Write the explanations to a file, instead of to standard error
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Give each program events of its own, instead of counters that equal events share
    #[arg(long)]
    pub(crate) own: bool,

    /// Instead of running a command, answer for a container: its runtime is at the other end of the socket at standard input, and
    /// passes the listener of its seccomp profile
    #[arg(long, conflicts_with = "command")]
    pub(crate) container: bool,

    /// Open events of the container's own tasks, of the caller's user, as if kernel.perf_event_paranoid were 2 (user mode) or 1
    /// (kernel mode as well), where it is higher
    #[arg(long, value_name = "LEVEL", requires = "container", value_parser = clap::value_parser!(i32).range(1..=2))]
    pub(crate) paranoid: Option<i32>,

    #[command(flatten)]
    pub(crate) shared: SharedOptions,

    /// Command to run, with its own options
    #[arg(value_name = "COMMAND", help_heading = None, required_unless_present = "container", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunOptions {
    /// Whether calls are explained.
    pub(crate) fn explains(&self) -> bool {
        self.explain || self.json || self.output.is_some()
    }
}
