//! Mistakes on the command line, told so that the next try works.
//!
//! What it is: clap says what it did not understand. [`explained`] says what to write instead, where that is known: options that only
//! `perf` has, long options with one dash, numbers that are none.
//!
//! **Invariant:** what is advised works.

use super::find_command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _};
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
    (
        "record",
        &["-B", "-N", "--no-buildid", "--no-buildid-cache"],
        "build ids are always recorded, and ~/.debug is never written",
    ),
    ("record", &["-R", "--raw-samples"], "tracepoints are always recorded with their fields"),
    ("record", &["-P", "-T", "--sample-identifier"], "time and identifier are always recorded, and the period with -F"),
    (
        "record",
        &["-v", "--verbose"],
        "`pmux explain EVENT` says what an event is, `pmux report --header-only` what was recorded",
    ),
    ("record", &["--per-thread", "--sample-cpu"], "samples have the CPU with -a, -C and for tracepoints"),
    ("record", &["--timestamp-filename"], "--switch-output puts a time into the name"),
    ("record", &["--group"], "a group is written as -e '{A,B}:S'"),
    ("record", &["-r", "--realtime"], "chrt -f PRIORITY pmux record … gives it a priority"),
    ("report", &["-G", "--inverted"], "-g caller shows callers first"),
    ("report", &["--header"], "--header-only prints the header"),
    ("report", &["--inline"], "inlined functions are shown; --no-inline leaves them out"),
    ("report", &["--group"], "groups of a file are shown together; --no-group separates them"),
    ("report", &["-v", "--verbose"], "`pmux script` prints each sample, --header-only what is known of the recording"),
    ("report", &["-q", "--quiet"], "notes go to standard error: 2>/dev/null leaves them out"),
    ("report", &["-f", "--force"], "it reads files of any owner"),
    ("report", &["--stdio-color"], "--color auto, always or never says it"),
    ("report", &["-t", "--field-separator"], "-j prints JSON, for programs"),
    ("report", &["--gtk"], "it shows a view on a terminal, and a table elsewhere"),
    ("report", &["--time"], "--from TIME and --to TIME choose a part, after the first sample"),
    ("script", &["-G", "--hide-call-graph"], "-F -callchain leaves call chains out"),
    ("script", &["--header", "--header-only"], "pmux report --header-only prints the header"),
    ("script", &["--inline"], "inlined functions are printed; --no-inline leaves them out"),
    ("script", &["--time"], "--from TIME and --to TIME choose a part, after the first sample"),
    ("stat", &["--table"], "-j prints the time of each run, for programs"),
    ("top", &["-g", "--children"], "callers are always recorded: Enter shows them"),
    ("top", &["-z", "--zero"], "each interval is shown by itself"),
];

/// Commands of perf that pmux does not have, and what to do instead.
const COMMANDS_OF_PERF: &[(&str, &str)] = &[
    ("annotate", "Enter in the view of `pmux report` shows the source of a function, `a` there its instructions"),
    ("archive", "`--debuginfod` and `--symfs` of the commands that read find symbols on another machine"),
    ("buildid-list", "`pmux report --header-only` prints build ids"),
    ("c2c", "`pmux script -F data_src` prints what a recording of perf has"),
    ("data", "`pmux convert` writes the formats of other viewers"),
    ("evlist", "`pmux report --header-only` prints the events of a recording"),
    ("ftrace", "`pmux record -e 'sched:*'` records tracepoints"),
    ("kmem", "`pmux record -e 'kmem:*' -g` records them"),
    ("lock", "`pmux record --off-cpu` and `pmux report --locks` tell who waited for which lock"),
    ("mem", "`pmux script -F data_src` prints what a recording of perf has"),
    ("probe", "`-e uprobe:FILE:FUNCTION` needs no probe beforehand"),
    (
        "sched",
        "`pmux record --off-cpu` and `pmux report --runqueue` tell who waited for a CPU, `pmux timeline` draws it",
    ),
    ("timechart", "`pmux timeline` draws it"),
    ("trace", "`pmux record -e 'syscalls:*'` and `pmux script` show system calls"),
];

/// So many letters of a long option or command at most may be wrong for another one to be offered.
const NEAR: usize = 2;

/// The same mistake with a better explanation, where there is one.
pub(super) fn explained(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let (known, command) = find_command(words.iter().skip(1).copied());
    let path = words.get(1..=known).unwrap_or_default();
    let text = match error.kind() {
        ErrorKind::UnknownArgument => unknown(&error, &words, path, &command),
        ErrorKind::ValueValidation => {
            let value = as_text(&error, ContextKind::InvalidValue);
            let is_it = |word: &str| !value.is_empty() && word.get(2..) == Some(&*value);
            one_dash(&words, path, &command, is_it).or_else(|| no_number(&error))
        }
        _ => None,
    };
    if let Some(text) = text {
        return command.clone().error(error.kind(), text);
    }
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = as_text(&error, ContextKind::InvalidSubcommand);
            let above: String = path.iter().map(|word| format!(" {word}")).collect();
            let of_perf = COMMANDS_OF_PERF.iter().find(|(name, _)| *name == typed && path.is_empty());
            let tip = match of_perf {
                Some((_, advice)) => (*advice).to_owned(),
                None => format!("`pmux help{above}` lists the commands"),
            };
            keep_near(&mut error, &typed, ContextKind::SuggestedSubcommand);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        ErrorKind::UnknownArgument => {
            // It advises to write `--` before an option that is none: then it is taken for the command.
            error.remove(ContextKind::Suggested);
            let typed = as_text(&error, ContextKind::InvalidArg);
            keep_near(&mut error, &typed, ContextKind::SuggestedArg);
            // That of clap has the option in it which it took for the nearest.
            error.insert(ContextKind::Usage, ContextValue::StyledStr(command.clone().render_usage()));
        }
        _ => {}
    }
    error
}

fn as_text(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.first().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}

/// Offers only what is hardly another word than what was typed, or a longer one.
fn keep_near(error: &mut clap::Error, typed: &str, kind: ContextKind) {
    let typed = typed.split('=').next().unwrap_or(typed);
    let most = (typed.trim_start_matches('-').len() / 3).min(NEAR);
    let is_near = |offered: &String| pmux::event::distance(typed, offered) <= most || offered.starts_with(typed);
    let offered = match error.remove(kind) {
        Some(ContextValue::String(offered)) => vec![offered],
        Some(ContextValue::Strings(offered)) => offered,
        _ => return,
    };
    let mut near: Vec<String> = offered.into_iter().filter(is_near).collect();
    match near.len() {
        0 => {}
        1 if kind == ContextKind::SuggestedArg => drop(error.insert(kind, ContextValue::String(near.remove(0)))),
        _ => drop(error.insert(kind, ContextValue::Strings(near))),
    }
}

fn unknown(error: &clap::Error, words: &[&str], path: &[&str], command: &Command) -> Option<String> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return None };
    let plain = unknown.split('=').next().unwrap_or(unknown);
    let of_perf = OF_PERF.iter().find(|(of, options, _)| path.first() == Some(of) && options.contains(&plain));
    if let Some((name, _, advice)) = of_perf {
        return Some(format!("pmux {name} has no '{plain}': {advice}"));
    }
    // Of a word with one dash a letter is told.
    let letter = unknown.strip_prefix('-').and_then(|rest| rest.chars().next()).filter(|&letter| letter != '-');
    let text = letter.and_then(|letter| one_dash(words, path, command, |word| word[1..].contains(letter)));
    if text.is_some() {
        return text;
    }
    // Of `-1s` the first letter is taken for an option.
    let is_number =
        unknown.strip_prefix('-').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    let takes_it = |option: &str| {
        let mut takes = command.get_arguments().filter(|argument| argument.is_allow_hyphen_values_set());
        takes.any(|argument| {
            let (short, long) = (argument.get_short(), argument.get_long());
            option.strip_prefix("--").is_some_and(|name| long == Some(name))
                || option.strip_prefix('-').is_some_and(|name| short.is_some_and(|short| name == short.to_string()))
        })
    };
    let mut pairs =
        words.iter().zip(words.iter().skip(1)).filter(|(option, _)| option.starts_with('-') && !takes_it(option));
    if let Some((option, value)) = pairs.find(|(_, word)| is_number && word.starts_with(unknown.as_str())) {
        return Some(format!("'{value}' can't be the value of '{option}', which takes no negative number"));
    }
    elsewhere(plain, path, words)
}

/// An option that another command has, or that stands before the command. `path` is what was typed of commands.
fn elsewhere(option: &str, path: &[&str], words: &[&str]) -> Option<String> {
    let mut pmux = super::Pmux::command();
    pmux.build();
    let takes = |command: &Command| match option.strip_prefix("--") {
        Some(long) => has_long(command, long),
        None => command.get_arguments().any(|argument| argument.get_short() == option.chars().nth(1)),
    };
    let mut names = Vec::new();
    for command in pmux.get_subcommands() {
        names.extend(takes(command).then(|| command.get_name().to_owned()));
        let below = command.get_subcommands().filter(|below| takes(below));
        names.extend(below.map(|below| format!("{} {}", command.get_name(), below.get_name())));
    }
    if path.is_empty() {
        let typed = names.iter().find(|name| words.contains(&name.as_str()));
        let name = typed.or(names.first())?;
        return Some(format!(
            "'{option}' stands before a command: write the command first, as in `pmux {name} {option} …`"
        ));
    }
    if !option.starts_with("--") {
        return None;
    }
    let path = path.join(" ");
    let names: Vec<_> = names.iter().filter(|name| **name != path).map(|name| format!("`pmux {name}`")).collect();
    let (last, others) = names.split_last()?;
    let names = if others.is_empty() { last.clone() } else { format!("{} and {last}", others.join(", ")) };
    let have = if others.is_empty() { "has" } else { "have" };
    Some(format!("pmux {path} has no '{option}'; {names} {have} one"))
}

fn has_long(command: &Command, long: &str) -> bool {
    command.get_arguments().any(|argument| {
        argument.get_long() == Some(long) || argument.get_all_aliases().is_some_and(|names| names.contains(&long))
    })
}

/// A long option that was written with one dash, so that its letters were taken for options, or its rest for a value: `is_it` finds the
/// word.
fn one_dash(words: &[&str], path: &[&str], command: &Command, is_it: impl Fn(&str) -> bool) -> Option<String> {
    let mut before = words.iter().skip(1).take_while(|word| **word != "--");
    let word = before.find(|word| word.starts_with('-') && !word.starts_with("--") && is_it(word))?;
    let long = word[1..].split('=').next().filter(|long| long.len() > 2)?;
    if has_long(command, long) {
        return Some(format!("'{word}' has one dash: write '-{word}'"));
    }
    elsewhere(&format!("--{long}"), path, words)
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
