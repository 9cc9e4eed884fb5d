//! `pmux timeline`: a recording as a page.
//!
//! **Invariant:** plain data.

use super::picture::{InputOptions, PartOptions};
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TimelineOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    /// Write the page to FILE; `-` is standard output (default: standard output, and on a terminal timeline.html)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace a file that is there, whatever it is
    #[arg(long)]
    pub(crate) force: bool,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}
