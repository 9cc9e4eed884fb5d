//! `pmux timeline`: a recording as a page.
//!
//! **Invariant:** plain data.

use super::picture::{InputOptions, OutputOptions, PartOptions};
use clap::Args;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct TimelineOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}
