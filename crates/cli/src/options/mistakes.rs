//! Mistakes on the command line, told so that the next try works.
//!
//! What it is: clap says what it did not understand. [`explained`] says what to write instead, where that is known: options that only
//! `perf` has, long options with one dash, numbers that are none.
//!
//! **Invariant:** what is advised works.

use super::find_command;
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error as _;
use std::ffi::OsString;

/// Options of perf that pmux does not have, by the command, and what to do instead.
const OF_PERF: &[(&str, &[&str], &str)] = &[
    (
        "stat",
        &["--per-socket", "--per-die", "--per-core", "--per-cache", "--per-cluster", "--per-node"],
        "CPUs are not added up; -A counts CPU by CPU",
    ),
    (
        "stat",
        &["-M", "--metrics", "--topdown", "--td-level", "-T", "--transaction", "--smi-cost"],
        "-e counts the events of a metric, and `pmux list` shows which this machine has",
    ),
    ("stat", &["-b", "--bpf-prog", "--bpf-counters"], "it counts tasks, CPUs and cgroups, and no BPF programs"),
    ("stat", &["--pre", "--post"], "a script can run commands before and after it"),
    ("stat", &["-g", "--group"], "a group is written as -e '{A,B}'"),
    ("stat", &["--all-kernel", "--all-user"], "write `:k` or `:u` after each event"),
    ("stat", &["--scale", "--no-scale"], "counts are always scaled, and the share of time that an event ran is shown"),
    ("stat", &["--quiet"], "-o /dev/null writes the report nowhere"),
    ("record", &["-b", "-j", "--branch-any", "--branch-filter"], "it records no branches"),
    ("record", &["-k", "--clockid"], "the times of a recording are always those of CLOCK_MONOTONIC"),
    ("record", &["--all-kernel", "--all-user"], "write `:k` or `:u` after each event"),
    ("record", &["--overwrite", "--switch-output-event"], "`pmux flight` keeps the last seconds, and has triggers"),
    ("record", &["-r", "--realtime"], "chrt -f PRIORITY pmux record … gives it a priority"),
    ("report", &["-G", "--inverted"], "-g caller shows callers first"),
    ("report", &["--header"], "--header-only prints the header"),
    ("report", &["-t", "--field-separator"], "-j prints JSON, for programs"),
    ("report", &["--gtk"], "it shows a view on a terminal, and a table elsewhere"),
    ("report", &["--time"], "--from TIME and --to TIME choose a part, after the first sample"),
    ("script", &["-G", "--hide-call-graph"], "-F -callchain leaves call chains out"),
    ("script", &["--header", "--header-only"], "pmux report --header-only prints the header"),
    ("script", &["--time"], "--from TIME and --to TIME choose a part, after the first sample"),
];

/// The same mistake with a better explanation, where there is one.
pub(super) fn explained(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let (name, command) = (words.get(1).copied().unwrap_or_default(), find_command(words.iter().skip(1).copied()));
    let text = match error.kind() {
        ErrorKind::UnknownArgument => unknown(&error, name, &words, &command),
        ErrorKind::ValueValidation => one_dash(&words, &command).or_else(|| no_number(&error)),
        _ => None,
    };
    if let Some(text) = text {
        return command.clone().error(error.kind(), text);
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        let list = "`pmux help` lists the commands".to_owned().into();
        let mut tips = vec![list];
        if let Some(ContextValue::StyledStrs(others)) = error.get(ContextKind::Suggested) {
            tips.extend(others.iter().cloned());
        }
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    if error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::SuggestedArg).is_none() {
        // It advises to write `--` before an option that is none: then it is taken for the command.
        error.remove(ContextKind::Suggested);
    }
    error
}

fn unknown(error: &clap::Error, name: &str, words: &[&str], command: &Command) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let plain = unknown.split('=').next().unwrap_or(unknown);
    let of_perf = OF_PERF.iter().find(|(of, options, _)| *of == name && options.contains(&plain));
    if let Some((_, _, advice)) = of_perf {
        return Some(format!("pmux {name} has no '{plain}': {advice}"));
    }
    if let Some(text) = one_dash(words, command) {
        return Some(text);
    }
    let before = words.iter().position(|word| word == unknown).and_then(|at| words.get(at.checked_sub(1)?));
    if let (true, Some(option)) = (unknown.parse::<f64>().is_ok(), before.filter(|word| word.starts_with('-'))) {
        return Some(format!("'{unknown}' can't be the value of '{option}', which takes no negative number"));
    }
    None
}

/// A long option that was written with one dash, so that its letters were taken for options.
fn one_dash(words: &[&str], command: &Command) -> Option<String> {
    let is_long = |word: &&&str| {
        let long = word.strip_prefix('-').filter(|rest| rest.len() > 2 && !rest.starts_with('-'));
        let long = long.map(|rest| rest.split('=').next().unwrap_or(rest));
        long.is_some_and(|long| command.get_arguments().any(|argument| argument.get_long() == Some(long)))
    };
    let word = words.iter().skip(2).take_while(|word| **word != "--").find(is_long)?;
    Some(format!("'{word}' has one dash: write '-{word}'"))
}

fn no_number(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return None };
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return None };
    let source = error.source()?.to_string();
    let what = match source.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "it is not a whole number".to_owned()
        }
        "number too large to fit in target type" => "it is too large".to_owned(),
        "number too small to fit in target type" => "it is too small".to_owned(),
        // `0 is not in 1..=100`, of which the end may be the largest number that the machine has.
        range => {
            let (from, to) = range.split_once(" is not in ")?.1.split_once("..")?;
            let (first, last): (u64, u64) = (from.parse().ok()?, to.trim_start_matches('=').parse().ok()?);
            let is_less = value.parse::<u64>().is_ok_and(|value| value < first);
            match last {
                ..0xffff_ffff => format!("it must be {first} to {last}"),
                _ if is_less => format!("it must be at least {first}"),
                _ => "it is too large".to_owned(),
            }
        }
    };
    Some(format!("invalid value '{value}' for '{argument}': {what}"))
}
