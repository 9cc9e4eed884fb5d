//! The commands that print to standard output: what could be counted here, and why something can't; completions; manual.
//!
//! **Invariant:** what is said to open was opened a moment ago.

mod explain;
mod list;

pub(crate) use explain::explain;
pub(crate) use list::list;

use crate::options::exit_status;
use crate::options::generate::{self, CompletionsOptions, ManOptions};
use crate::stderr::report_error;
use pmux_ui::text::in_locale;
use std::io::{self, Write};

pub(crate) fn completions(options: &CompletionsOptions) -> u8 {
    print(&generate::completions(options.shell))
}

pub(crate) fn manual(options: &ManOptions) -> u8 {
    match generate::write_manual(&options.directory) {
        Ok(paths) => print(&paths.iter().map(|path| format!("{}\n", path.display())).collect::<String>()),
        Err(error) => report_error(&format!("can't write the manual: {error}"), exit_status::FAILED),
    }
}

/// Writes a page for people to standard output, as [`print`] does.
pub(crate) fn print_page(text: &str) -> u8 {
    print(&in_locale(text))
}

/// Writes text to standard output. A reader that has enough (`| head`) is no error.
pub(crate) fn print(text: &str) -> u8 {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => exit_status::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit_status::SUCCESS,
        Err(error) => report_error(&format!("can't write to standard output: {error}"), exit_status::FAILED),
    }
}
