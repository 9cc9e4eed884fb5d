//! `pmux watch`: who touches this address.
//!
//! **Invariant:** plain data, and the rules that clap can't say.

use super::refuse_first;
use super::shared::SharedOptions;
use super::target::{self, TargetSpec};
use crate::style::ColorChoice;
use clap::{Args, ValueEnum};
use pmux::units::milliseconds;
use pmux::watch::{Condition, ValueTiming};
use std::ffi::OsString;
use std::path::PathBuf;

/// Call chains are this long where nothing is said.
pub(crate) const STACK: u16 = 8;
/// So many hits a second are printed where nothing is said.
pub(crate) const RATE: u64 = 200;
/// How long each address is watched in a turn, where nothing is said, in milliseconds.
pub(crate) const SLICE_MS: u32 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct WatchOptions {
    /// What to watch: 0xADDR[/LEN][:ACCESS], [MODULE:]SYMBOL[+OFF][/LEN][:ACCESS], or FILE:LINE
    #[arg(value_name = "TARGET", required = true)]
    pub(crate) targets: Vec<String>,

    /// Watch these processes: all threads, and those that they start
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to watch")]
    pub(crate) pid: Vec<i32>,

    /// Watch these threads, and those that they start
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to watch")]
    pub(crate) tid: Vec<i32>,

    /// Watch everything on every CPU, also on those that come
    #[arg(short, long = "all-cpus", help_heading = "What to watch")]
    pub(crate) all_cpus: bool,

    /// Watch everything on these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = target::cpus, help_heading = "What to watch")]
    pub(crate) cpu: Option<String>,

    /// Do not watch threads and children that start later
    #[arg(short = 'i', long, help_heading = "What to watch")]
    pub(crate) no_inherit: bool,

    /// A target may be missing at first: look for it in each program and each library that comes, to the end. A process that
    /// does not have it stops at each of its system calls meanwhile
    #[arg(long, help_heading = "What to watch")]
    pub(crate) later: bool,

    /// Go on watching, at the same addresses, when a process executes another program
    #[arg(long, help_heading = "What to watch")]
    pub(crate) across_exec: bool,

    #[command(flatten)]
    pub(crate) shared: SharedOptions,

    /// Only hits of which this holds: `value == 42`, `changed && tid != 7`. Known are value, old, changed, tid, pid, cpu,
    /// ip, kernel; == != < <= > >= & + - && || ! ( )
    #[arg(long = "condition", visible_aliases = ["if", "filter"], value_name = "EXPR", value_parser = condition, allow_hyphen_values = true, help_heading = "Which hits")]
    pub(crate) condition: Option<Condition>,

    /// Only hits in FUNC, or called from it; may be given again
    #[arg(long, value_name = "FUNC", help_heading = "Which hits")]
    pub(crate) callers: Vec<String>,

    /// End after N hits: the command gets SIGTERM
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Which hits")]
    pub(crate) stop: Option<u64>,

    /// End after TIME (milliseconds, or 100ms, 2s, 1m): the command gets SIGTERM
    #[arg(long = "timeout", value_name = "TIME", value_parser = timeout_ms, help_heading = "Which hits")]
    pub(crate) timeout_ms: Option<u64>,

    /// Only count: no places, no call chains; a hit costs no more than any counted event
    #[arg(long, conflicts_with_all = ["trace", "condition", "callers", "stop"], help_heading = "How to watch")]
    pub(crate) count_only: bool,

    /// Watch more addresses than there are debug registers, in turns: each has its share of the time, and its count is a
    /// lower bound
    #[arg(long, help_heading = "How to watch")]
    pub(crate) share_time: bool,

    /// Length of a turn with --share-time: milliseconds, or 2ms, 1s (default 4ms)
    #[arg(long = "slice", value_name = "TIME", value_parser = slice_ms, requires = "share_time", help_heading = "How to watch")]
    pub(crate) slice_ms: Option<u32>,

    /// Length of call chains, in frames; 0 for none (default 8)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=127), help_heading = "How to watch")]
    pub(crate) max_stack: Option<u16>,

    /// Print each hit as it happens, with the value before and after
    #[arg(long, help_heading = "What to print")]
    pub(crate) trace: bool,

    /// When values are looked at: at the hit, by a BPF program (later where none can be had), or in any case later, by reading the
    /// memory of the process. Without a program hits are not counted by thread and place, but written one by one
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, help_heading = "How to watch")]
    pub(crate) values: ValuesWhen,

    /// Print at most N hits a second with --trace, and how many were left out; 0 for all (default 200)
    #[arg(long, value_name = "N", requires = "trace", help_heading = "What to print")]
    pub(crate) rate: Option<u64>,

    /// Say more: each place and each thread, registers, how late a value was read
    #[arg(short, long, help_heading = "What to print")]
    pub(crate) verbose: bool,

    /// Print JSON, an object a line
    #[arg(short, long = "json", help_heading = "How to print")]
    pub(crate) json: bool,

    /// Write to FILE instead of standard error; `-` is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "How to print")]
    pub(crate) output: Option<PathBuf>,

    /// When to use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, help_heading = "How to print")]
    pub(crate) color: ColorChoice,

    /// Command to watch from its first instruction on, with all that it starts; with -p, -t, -a or -C: how long to watch
    #[arg(last = true, value_name = "COMMAND", help_heading = None)]
    pub(crate) command: Vec<OsString>,
}

/// When values are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum ValuesWhen {
    /// At the hit, where that can be had.
    #[default]
    Hit,
    /// Later.
    Later,
}

impl From<ValuesWhen> for ValueTiming {
    fn from(when: ValuesWhen) -> Self {
        match when {
            ValuesWhen::Hit => Self::AtHit,
            ValuesWhen::Later => Self::Later,
        }
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    text.parse::<Condition>().map_err(|error| error.to_string())
}

impl WatchOptions {
    /// The command, tasks or CPUs to watch.
    pub(crate) fn target_spec(&self) -> Result<TargetSpec, String> {
        let Self { pid, tid, all_cpus, cpu, command, .. } = self;
        target::target_spec((pid, tid), (*all_cpus, cpu.as_ref()), command, ("watch", " behind `--`"))
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        self.shared.check()?;
        let cpus = matches!(self.target_spec()?, TargetSpec::Cpus(_));
        let no_chains = self.max_stack == Some(0);
        refuse_first(&[
            (self.later && cpus, "--later is for commands and processes: CPUs load no libraries"),
            (self.across_exec && cpus, "-a and -C watch all programs anyway: leave out --across-exec"),
            (self.no_inherit && cpus, "-a and -C watch everything: leave out -i"),
            (no_chains && !self.callers.is_empty(), "--callers needs call chains: leave out --max-stack 0"),
        ])
    }
}

const AFTER_HELP: &str = "\
ACCESS is w (writes), r (reads), rw or x (executions). Data are watched for writes where nothing is said, code for \
executions. A variable is watched as a whole; one that is long or misaligned takes several of the few debug registers.

The command is held until everything is armed. Every hit is counted. Threads, places and numbers of hits are printed at \
the end, or hit by hit with --trace. For a table at the end the kernel itself counts hits by thread and place, where it may, which costs \
little more than counting alone; call chains are those of the first hits and of some of the others. Otherwise each hit is written \
into a ring of its CPU; all rings have 64 MiB together at most, and hits that come too fast for them are counted only.

The value is that of the variable at the hit, the old one that of the hit before. Reading it at the hit takes root, or CAP_BPF and \
CAP_PERFMON; otherwise pmux reads it a moment later, and says so.

With --count-only, debug registers can be shared with other processes through pmux serve (--shared). Hits that are \
shown one by one, or by thread and place, take registers of their own.

Exit status: that of the command, as with pmux stat.";

fn timeout_ms(text: &str) -> Result<u64, String> {
    match milliseconds(text)? {
        0 => Err("expected at least 1 ms".to_owned()),
        ms => Ok(ms),
    }
}

fn slice_ms(text: &str) -> Result<u32, String> {
    let ms = u32::try_from(milliseconds(text)?).ok().filter(|ms| (1..=1000).contains(ms));
    ms.ok_or_else(|| "expected 1 ms to 1 s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> WatchOptions {
        WatchOptions { targets: vec!["x".to_owned()], ..WatchOptions::default() }
    }

    #[test]
    fn a_target_is_required() {
        assert!(options().check().unwrap_err().contains("nothing to watch:"));
        let two = WatchOptions { pid: vec![1], all_cpus: true, ..options() };
        assert!(two.check().unwrap_err().starts_with("-p and -a name different things to watch"));
        let during = WatchOptions { all_cpus: true, command: vec!["sleep".into()], ..options() };
        assert_eq!(during.target_spec(), Ok(TargetSpec::Cpus(None)));
        let command = WatchOptions { command: vec!["true".into()], ..options() };
        assert_eq!(command.target_spec(), Ok(TargetSpec::Command));
        assert_eq!(command.check(), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (options, words) in [
            (WatchOptions { all_cpus: true, later: true, ..options() }, "--later"),
            (WatchOptions { all_cpus: true, across_exec: true, ..options() }, "--across-exec"),
            (WatchOptions { cpu: Some("0".to_owned()), no_inherit: true, ..options() }, "-i"),
            (
                WatchOptions { pid: vec![1], max_stack: Some(0), callers: vec!["f".to_owned()], ..options() },
                "--max-stack 0",
            ),
        ] {
            assert!(options.check().unwrap_err().contains(words), "{options:?}");
        }
    }
}
