//! `--shared`: whether counters are shared with other processes.
//!
//! **Invariant:** plain data; without the option, the environment decides.

use clap::ValueEnum;
use pmux::SharedChoice;

/// The user's wish from `--shared`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SharedWish {
    /// Where `pmux serve` runs
    Auto,
    /// Through `pmux serve`, and an error where there is none; a command that is started here is counted directly all the same
    Always,
    /// Not
    Never,
}

impl From<SharedWish> for SharedChoice {
    fn from(wish: SharedWish) -> Self {
        match wish {
            SharedWish::Auto => Self::Auto,
            SharedWish::Always => Self::Always,
            SharedWish::Never => Self::Never,
        }
    }
}
