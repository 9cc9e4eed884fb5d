//! `pmux completions` and `pmux man`: text made from the definitions of the options.
//!
//! **Invariant:** the tree of commands is built once for all pages, and never on the way
//! to a measurement.

use super::{Pmux, man, timec};
use clap::{Args, CommandFactory};
use clap_complete::shells;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct CompletionsOptions {
    /// Shell to print completions for
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: Shell,
}

/// Shells of Linux that people have; further ones cost 6 KB each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ManOptions {
    /// Directory to write pmux.1, pmux-stat.1, … into; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Returns the completions for one shell.
pub(crate) fn completions(shell: Shell) -> String {
    let (mut text, mut command) = (Vec::new(), Pmux::command());
    match shell {
        Shell::Bash => clap_complete::generate(shells::Bash, &mut command, "pmux", &mut text),
        Shell::Fish => clap_complete::generate(shells::Fish, &mut command, "pmux", &mut text),
        Shell::Zsh => clap_complete::generate(shells::Zsh, &mut command, "pmux", &mut text),
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes every manual page into a directory and returns the paths.
///
/// # Errors
/// The directory cannot be made, or a page cannot be written; the error names the path.
pub(crate) fn write_manual(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let about = |path: &Path, error: &io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| match error.kind() {
        kind @ io::ErrorKind::AlreadyExists => {
            io::Error::new(kind, format!("{} is a file: name a folder", directory.display()))
        }
        _ => about(directory, &error),
    })?;
    let mut paths = Vec::new();
    for (name, page) in man::pages(Pmux::command(), timec::Timec::command())? {
        let path = directory.join(name);
        std::fs::write(&path, page).map_err(|error| about(&path, &error))?;
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_gets_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("man1");
        let paths = write_manual(&inside).unwrap();
        for path in &paths {
            let page = std::fs::read_to_string(path).unwrap();
            for section in ["NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "EXAMPLES"] {
                let plain = format!(".SH {section}");
                let quoted = format!(".SH \"{section}\"");
                let there = page.lines().any(|line| line == plain || line == quoted);
                assert!(there, "{} has no {section}:\n{page}", path.display());
            }
        }
        let page = std::fs::read_to_string(&paths[1]).unwrap();
        assert!(page.contains("NO_COLOR"));
        assert!(page.contains("pmux\\-stat") || page.contains("pmux-stat"));
    }
}
