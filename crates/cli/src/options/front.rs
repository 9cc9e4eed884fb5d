//! The front page of the help, and the words `help` and `version`.
//!
//! **Invariant:** each command is in one group.

use clap::Command;
use std::ffi::OsString;
use std::fmt::Write as _;

const GROUPS: &[(&str, &[&str])] = &[
    ("Measure", &["stat", "watch", "run", "list", "explain"]),
    ("Record", &["top", "record", "flight"]),
    ("Look", &["report", "script", "flame", "timeline", "diff", "convert", "view"]),
    ("Service", &["serve", "status"]),
    ("Lab", &["timec", "plan", "sim", "bench"]),
    ("Set up", &["completions", "man"]),
];

/// Writes `help`, `help COMMAND…` and `version` as the options of these names.
///
/// # Errors
/// A sentence: there is a word too many.
pub(super) fn as_options(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let too_many = |before: &str, word: &OsString| {
        Err(format!("`pmux {before}` takes no further word: '{}'", word.to_string_lossy()))
    };
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            arguments.remove(1);
            // These two are words only.
            if arguments.get(1).is_some_and(|word| word == "help" || word == "version") {
                arguments.remove(1);
            }
            arguments.truncate(
                1 + arguments.iter().skip(1).take_while(|word| !word.as_encoded_bytes().starts_with(b"-")).count(),
            );
            // What stands behind a command that is measured would be executed.
            let words = arguments.iter().skip(1).map(|word| word.to_str().unwrap_or_default());
            let (known, _) = super::find_command(words);
            if let Some(word) = arguments.get(known + 1).filter(|_| known > 0) {
                let names: Vec<_> = arguments[1..=known].iter().map(|name| name.to_string_lossy()).collect();
                return too_many(&format!("help {}", names.join(" ")), word);
            }
            arguments.push("--help".into());
        }
        Some("version") => match arguments.get(2) {
            Some(word) => return too_many("version", word),
            None => arguments[1] = "--version".into(),
        },
        _ => {}
    }
    Ok(arguments)
}

/// Whether the front page may be shown.
pub(super) fn is_asked_for(arguments: &[OsString]) -> bool {
    arguments.get(1).is_none_or(|word| word == "-h" || word == "--help")
}

/// The commands in groups, instead of one list.
pub(super) fn in_groups(command: Command) -> Command {
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{group}:");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let _ = writeln!(text, "  {name:<11}  {}", about.unwrap_or_default());
        }
    }
    command.help_template(text + "\nOptions:\n{options}{after-help}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let pmux = super::super::Pmux::command();
        let mut all: Vec<_> = pmux.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let page = in_groups(super::super::Pmux::command()).render_help().to_string();
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }

    #[test]
    fn words_are_options() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect();
        let written = |line: &str| as_options(words(line)).unwrap().join(" ".as_ref());
        for (line, as_options) in [
            ("pmux help", "pmux --help"),
            ("pmux help stat", "pmux stat --help"),
            ("pmux help help", "pmux --help"),
            ("pmux help version", "pmux --help"),
            ("pmux help bench breakpoint", "pmux bench breakpoint --help"),
            ("pmux version", "pmux --version"),
            ("pmux stat help", "pmux stat help"),
            ("pmux", "pmux"),
        ] {
            assert_eq!(written(line), as_options);
        }
        for line in ["pmux help stat ls", "pmux help bench breakpoint exec x", "pmux version x"] {
            assert!(as_options(words(line)).is_err_and(|why| why.contains("takes no further word: ")), "{line}");
        }
    }
}
