//! `--shared`, `--socket`: whether counters are shared with other processes, and through which service.
//!
//! **Invariant:** plain data; without the options, the environment decides.

use super::refuse_first;
use clap::{Args, ValueEnum};
use pmux::SharedChoice;
use std::path::PathBuf;

// Whether counters are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Sharing")]
pub(crate) struct SharedOptions {
    /// Share counters with other processes through `pmux serve` (default: auto, or what PMUX_SHARED says; of `record`: never)
    #[arg(long, value_name = "WHEN", value_enum)]
    pub(crate) shared: Option<SharedWhen>,

    /// Share them through the service at this socket; without --shared, this option means --shared=always. PMUX_SOCKET names a socket,
    /// too, and leaves --shared as it is
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

impl SharedOptions {
    /// What was typed: a socket alone says that counters are shared.
    pub(crate) fn shared_when(&self) -> Option<SharedWhen> {
        self.shared.or(self.socket.as_ref().map(|_| SharedWhen::Always))
    }

    /// Checks what clap can't.
    pub(crate) fn check(&self) -> Result<(), String> {
        let has_none = self.socket.is_some() && self.shared == Some(SharedWhen::Never);
        refuse_first(&[(has_none, "--socket names a service, and --shared=never uses none")])
    }
}

/// The user's wish from `--shared`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SharedWhen {
    /// Where `pmux serve` runs
    Auto,
    /// Through `pmux serve`, and an error where there is none; a command that is started here is counted directly all the same
    Always,
    /// Open events directly
    Never,
}

impl From<SharedWhen> for SharedChoice {
    fn from(when: SharedWhen) -> Self {
        match when {
            SharedWhen::Auto => Self::Auto,
            SharedWhen::Always => Self::Always,
            SharedWhen::Never => Self::Never,
        }
    }
}
