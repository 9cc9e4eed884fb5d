//! `pmux completions` and `pmux man`: text made from the definitions of the options.
//!
//! **Invariant:** the tree of commands is built once for all pages, and never on the way
//! to a measurement.

use super::{Pmux, man, timec};
use clap::{Args, CommandFactory};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct CompletionsOptions {
    /// Shell to print completions for
    #[arg(value_name = "SHELL", value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ManOptions {
    /// Directory to write pmux.1, pmux-stat.1, … into; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// Returns the completions for one shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Pmux::command(), "pmux", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes every manual page into a directory and returns the paths.
///
/// # Errors
///
/// The directory cannot be made, or a page cannot be written; the error names the path.
pub(crate) fn write_manual(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let about = |path: &Path, error: &io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| about(directory, &error))?;
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_gets_completions() {
        for shell in clap_complete::Shell::value_variants() {
            let text = completions(*shell);
            assert!(text.contains("interval-print"), "{shell}");
            assert!(text.contains("explain"), "{shell}");
        }
    }

    #[test]
    fn every_command_gets_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("man1");
        let paths = write_manual(&inside).unwrap();
        let names: Vec<String> =
            paths.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(
            names,
            [
                "pmux.1",
                "pmux-stat.1",
                "pmux-timec.1",
                "pmux-list.1",
                "pmux-explain.1",
                "pmux-plan.1",
                "pmux-sim.1",
                "pmux-watch.1",
                "pmux-record.1",
                "pmux-flight.1",
                "pmux-flight-dump.1",
                "pmux-flight-list.1",
                "pmux-flight-status.1",
                "pmux-report.1",
                "pmux-script.1",
                "pmux-flame.1",
                "pmux-convert.1",
                "pmux-view.1",
                "pmux-diff.1",
                "pmux-timeline.1",
                "pmux-bench.1",
                "pmux-bench-breakpoint.1",
                "pmux-bench-breakpoint-thread.1",
                "pmux-bench-breakpoint-enable.1",
                "pmux-serve.1",
                "pmux-status.1",
                "pmux-completions.1",
                "pmux-man.1",
                "timec.1"
            ]
        );
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

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write_manual(&file.join("man")).unwrap_err();
        assert!(error.to_string().contains("file/man"), "{error}");
    }
}
