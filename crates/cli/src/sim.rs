//! `pmux sim`: starts the program `pmux-sim`, which is installed by itself.
//!
//! **Invariant:** the options were understood here, and mean the same there.

use crate::options::exit_status;
use crate::stderr::report_error;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "pmux-sim";

/// Becomes `pmux-sim` with the words behind `pmux sim`; returns the exit status where that cannot be.
pub(crate) fn sim(words: impl Iterator<Item = OsString>) -> u8 {
    let error = Command::new(program()).args(words).exec();
    let why = match error.kind() {
        ErrorKind::NotFound => {
            "the simulator is a program of its own, pmux-sim, and is neither beside this one nor in PATH: cargo install --locked --path \
             crates/sim-cli, or cargo build --release -p pmux-sim-cli"
                .to_owned()
        }
        _ => format!("{NAME}: {error}"),
    };
    report_error(&why, exit_status::FAILED)
}

/// The one beside this program, which is of the same build; or that of `PATH`.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(NAME));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| NAME.into())
}
