//! `pmux flame`: a flame graph.
//!
//! **Invariant:** plain data, and the rules that clap can't say.

use super::picture::{InputOptions, OutputOptions, PartOptions};
use super::reading::percent;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct FlameOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,

    /// Compare two recordings: the second one is drawn, what grew is red and what shrank is blue
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 2, conflicts_with_all = ["input", "file"])]
    pub(crate) diff: Option<Vec<PathBuf>>,

    /// Draw wall time: what ran and what waited, coloured by what was waited for (`pmux record --off-cpu`)
    #[arg(long, conflicts_with = "diff")]
    pub(crate) wall: bool,

    /// Draw time that passes: a sample counts 1/N where N threads of the command (of the process, with -a) ran at once
    /// (`pmux record --latency`)
    #[arg(long, conflicts_with_all = ["diff", "wall"])]
    pub(crate) latency: bool,

    /// Draw the root at the top
    #[arg(long)]
    pub(crate) icicle: bool,

    /// What stands at the bottom of each stack
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    pub(crate) by: GroupStacksBy,

    /// Leave functions out that weigh less than PERCENT, with all that they called
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) percent_limit: Option<f64>,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}

/// What stacks are told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum GroupStacksBy {
    /// The name of the thread
    #[default]
    Command,
    /// The thread
    Thread,
    /// The process
    Process,
    /// The CPU
    Cpu,
}
