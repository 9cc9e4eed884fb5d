//! The options of `pmux stat`. Letters and meanings are those of `perf stat` wherever it
//! has them.
//!
//! Read next: `stat_rules`, for what the options mean together.
//!
//! **Invariant:** plain data; a field is what the user typed.

use super::control::{ControlPlace, Delay, control_place, delay};
use super::filters::EventFilters;
use super::shared::SharedOptions;
use super::target;
use crate::style::ColorChoice;
use clap::{ArgAction, Args, ValueEnum};
use pmux::units::milliseconds;
use std::ffi::OsString;
use std::path::PathBuf;

/// What rotates events where counters are fewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum MuxChoice {
    /// The kernel, on each CPU by itself
    #[default]
    Kernel,
    /// pmux: on all CPUs in step, never more events than fit
    Engine,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = "Without COMMAND, -p and -t, the whole machine is counted until Ctrl-C.")]
pub(crate) struct StatOptions {
    #[command(flatten)]
    pub(crate) filters: EventFilters,

    /// Events to count, separated by commas; may be given again. {A,B} is a group, counted at
    /// the same time; {A,B}:W falls back to single events. See `pmux list`
    #[arg(short, long = "event", value_name = "EVENT,…", allow_hyphen_values = true, help_heading = "What to count")]
    pub(crate) events: Vec<String>,

    /// Count more caches; -dd and -ddd count still more
    #[arg(short, long, action = ArgAction::Count, help_heading = "What to count")]
    pub(crate) detailed: u8,

    /// Count nothing, show the time only
    #[arg(short, long, help_heading = "What to count")]
    pub(crate) null: bool,

    /// Do not count children of the command or of the processes
    #[arg(short = 'i', long, help_heading = "What to count")]
    pub(crate) no_inherit: bool,

    /// Count these processes
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to count")]
    pub(crate) pid: Vec<i32>,

    /// Count these threads
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to count")]
    pub(crate) tid: Vec<i32>,

    /// Count everything on every CPU, while COMMAND runs or until Ctrl-C
    #[arg(short, long = "all-cpus", help_heading = "What to count")]
    pub(crate) all_cpus: bool,

    /// Count everything on these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = target::cpus, help_heading = "What to count")]
    pub(crate) cpu: Option<String>,

    /// Count in these control groups: the first for the first event, and so on; a single
    /// name is for all events, an empty one for none. Needs -a or -C
    #[arg(short = 'G', long, value_name = "NAME,…", help_heading = "What to count")]
    pub(crate) cgroup: Option<String>,

    /// Count all events in each of these control groups. Needs -a or -C
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "What to count")]
    pub(crate) for_each_cgroup: Vec<String>,

    /// Run COMMAND this many times, show mean and deviation (0: until Ctrl-C)
    #[arg(short, long, value_name = "N", help_heading = "When to count")]
    pub(crate) repeat: Option<u32>,

    /// Print counts every TIME: milliseconds, or 100ms, 2s, 1m
    #[arg(short = 'I', long = "interval-print", value_name = "TIME", value_parser = milliseconds, help_heading = "When to count")]
    pub(crate) interval_ms: Option<u64>,

    /// Print N intervals only; without COMMAND, that is the end
    #[arg(long, value_name = "N", help_heading = "When to count")]
    pub(crate) interval_count: Option<u64>,

    /// Start counting TIME (milliseconds, or 100ms, 2s, 1m) after the command; times are shown from then on. -1: when --control says so, with
    /// times from the beginning
    #[arg(short = 'D', long = "delay", value_name = "TIME", value_parser = delay)]
    #[arg(allow_hyphen_values = true, help_heading = "When to count")]
    pub(crate) delay: Option<Delay>,

    /// Read commands (enable, disable, ping, stop) from COMMANDS, one a line; write `ack` to ANSWERS: fifo:COMMANDS[,ANSWERS],
    /// or fd: with numbers of descriptors
    #[arg(long, value_name = "WHERE", value_parser = control_place, help_heading = "When to count")]
    pub(crate) control: Option<ControlPlace>,

    /// End the command with SIGTERM after TIME (milliseconds, or 100ms, 2s, 1m; at least 10ms), and print
    #[arg(long = "timeout", value_name = "TIME", value_parser = milliseconds, help_heading = "When to count")]
    pub(crate) timeout_ms: Option<u64>,

    /// Flush file systems to disk before each run
    #[arg(short = 'S', long, help_heading = "When to count")]
    pub(crate) sync: bool,

    /// What rotates events where counters are fewer
    #[arg(long, value_name = "WHO", value_enum, default_value_t, help_heading = "When to count")]
    pub(crate) mux: MuxChoice,

    /// Length of a turn with --mux=engine: milliseconds, or 2ms, 1s (default 4ms)
    #[arg(long = "mux-interval", value_name = "TIME", value_parser = short_ms, help_heading = "When to count")]
    pub(crate) mux_interval_ms: Option<u32>,

    #[command(flatten)]
    pub(crate) shared: SharedOptions,

    /// Show each process of the command with its own counts
    #[arg(long, help_heading = "What to print")]
    pub(crate) tree: bool,

    /// Show also what each region costs that the command marks with `pmux::region`
    #[arg(long, help_heading = "What to print")]
    pub(crate) regions: bool,

    /// Show each CPU. Needs -a or -C
    #[arg(short = 'A', long, help_heading = "What to print")]
    pub(crate) no_aggr: bool,

    /// Show each thread. Needs -p, -t or -a
    #[arg(long, help_heading = "What to print")]
    pub(crate) per_thread: bool,

    /// Show derived metrics without the counts
    #[arg(long, help_heading = "What to print")]
    pub(crate) metric_only: bool,

    /// Show the total after the intervals
    #[arg(long, overrides_with = "no_summary", help_heading = "What to print")]
    pub(crate) summary: bool,

    /// Do not show the total after the intervals (the default)
    #[arg(long, hide = true)]
    pub(crate) no_summary: bool,

    /// Say more: encodings, what was opened, each process of a tree
    #[arg(short, long, action = ArgAction::Count, help_heading = "What to print")]
    pub(crate) verbose: u8,

    /// Print fields separated by SEP, for programs; the fields are those of perf stat
    #[arg(short = 'x', long = "field-separator", value_name = "SEP")]
    #[arg(allow_hyphen_values = true, help_heading = "How to print")]
    pub(crate) separator: Option<String>,

    /// Print JSON, an object a line; the fields are those of perf stat
    #[arg(short, long = "json-output", visible_alias = "json", help_heading = "How to print")]
    pub(crate) json: bool,

    /// Write to FILE instead of standard error
    #[arg(short, long, value_name = "FILE", help_heading = "How to print")]
    pub(crate) output: Option<PathBuf>,

    /// Append to FILE instead of replacing it. Needs -o
    #[arg(long, help_heading = "How to print")]
    pub(crate) append: bool,

    /// Write to this open file descriptor instead of standard error
    #[arg(long, value_name = "FD", help_heading = "How to print")]
    pub(crate) log_fd: Option<u32>,

    /// Print large numbers with thousands separators (the default)
    #[arg(short = 'B', long, overrides_with = "no_big_num", help_heading = "How to print")]
    pub(crate) big_num: bool,

    /// Print large numbers without separators
    #[arg(long, overrides_with = "big_num", help_heading = "How to print")]
    pub(crate) no_big_num: bool,

    /// When to use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, help_heading = "How to print")]
    pub(crate) color: ColorChoice,

    /// Command to measure, with its own options
    #[arg(value_name = "COMMAND", help_heading = None, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

fn short_ms(text: &str) -> Result<u32, String> {
    u32::try_from(milliseconds(text)?).map_err(|_| "this is too long".to_owned())
}
