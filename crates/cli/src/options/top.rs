//! The options of `pmux top`. Letters and meanings are those of `perf top` wherever it has them.
//!
//! **Invariant:** plain data; a field is what the user typed, as far as it can be understood without a look at the machine.

use super::sampling::{CallGraph, Frequency, Sampling, call_graph, frequency};
use super::serve::interval;
use super::shared::SharedOptions;
use super::target;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Samples a second on each CPU, where nothing was typed: so few that it may stay open.
const USUAL_HZ: u64 = 99;

#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct TopOptions {
    /// Events to sample, separated by commas; may be given again. The first is shown (default: cycles, or where there are no
    /// counters, cpu-clock)
    #[arg(short, long = "event", value_name = "EVENT,…", allow_hyphen_values = true, help_heading = "What to watch")]
    pub(crate) events: Vec<String>,

    /// Take HZ samples a second of each CPU (default 99; of page faults, switches, tracepoints and the like each occurrence)
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = frequency, conflicts_with = "period", help_heading = "What to watch")]
    pub(crate) frequency: Option<Frequency>,

    /// Take a sample after every N occurrences
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What to watch")]
    pub(crate) period: Option<u64>,

    /// Find callers by `fp` (usual), `dwarf` or `lbr`, or `auto`: as the programs need it
    #[arg(long, value_name = "HOW", value_parser = call_graph, help_heading = "What to watch")]
    pub(crate) call_graph: Option<CallGraph>,

    /// Watch also what threads wait for: each wait of MIN or longer (default 100us) with its functions, shorter ones as a sum of each
    /// thread. -j and tables tell of both; in the live view, w changes between them
    #[arg(long, value_name = "MIN", value_parser = pmux::units::span, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "100us", help_heading = "What to watch")]
    pub(crate) off_cpu: Option<Duration>,

    /// Watch these processes, and the children that they start from now on
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to watch")]
    pub(crate) pid: Vec<i32>,

    /// Watch these threads
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to watch")]
    pub(crate) tid: Vec<i32>,

    /// Watch all CPUs: this is what is watched where nothing else is named
    #[arg(short, long = "all-cpus", help_heading = "What to watch")]
    pub(crate) all_cpus: bool,

    /// Watch these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = target::cpus, help_heading = "What to watch")]
    pub(crate) cpu: Option<String>,

    /// Watch these control groups, on all CPUs or those of -C
    #[arg(short = 'G', long = "cgroup", value_name = "NAME,…", value_delimiter = ',', help_heading = "What to watch")]
    pub(crate) cgroups: Vec<String>,

    /// Make a line of each of these
    #[arg(short, long, value_name = "KEY", value_enum, default_value_t = TopKey::Symbol, help_heading = "How to show")]
    pub(crate) sort: TopKey,

    /// Show what the last TIME had, and again after as long: seconds, or 100ms, 2s, 1m
    #[arg(short, long, value_name = "TIME", value_parser = interval, default_value = "2", help_heading = "How to show")]
    pub(crate) delay: Duration,

    /// Leave out the functions of the kernel
    #[arg(short = 'K', long, conflicts_with = "hide_user_symbols", help_heading = "How to show")]
    pub(crate) hide_kernel_symbols: bool,

    /// Leave out the functions of programs
    #[arg(short = 'U', long, help_heading = "How to show")]
    pub(crate) hide_user_symbols: bool,

    /// Of waits, show also threads that did nothing else in the time that is shown (without -p and -t they are only counted)
    #[arg(long, requires = "off_cpu", help_heading = "How to show")]
    pub(crate) idle: bool,

    /// Show this many lines without a terminal (default 20, with -j all; 0 is all)
    #[arg(short = 'E', long, value_name = "N", help_heading = "How to show")]
    pub(crate) entries: Option<usize>,

    /// End after showing it N times
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "How to show")]
    pub(crate) iterations: Option<u64>,

    /// Write one table after the other, as where standard output is no terminal
    #[arg(long, help_heading = "How to show")]
    pub(crate) stdio: bool,

    /// Write one line of JSON each time
    #[arg(short, long, conflicts_with = "stdio", help_heading = "How to show")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) shared: SharedOptions,
}

/// What a line stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum TopKey {
    /// A function
    #[default]
    #[value(alias = "sym", alias = "function")]
    Symbol,
    /// A process
    #[value(alias = "pid")]
    Process,
    /// A thread
    #[value(alias = "tid")]
    Thread,
    /// A control group, by the name of its container or pod where its path has one
    #[value(alias = "container")]
    Cgroup,
    /// A program or library
    Dso,
    /// A CPU; of waits, what they are for
    Cpu,
}

impl TopOptions {
    /// What is sampled, as for a recording.
    pub(crate) fn sampling(&self) -> Sampling {
        let names_something = !self.pid.is_empty() || !self.tid.is_empty() || self.cpu.is_some();
        Sampling {
            events: self.events.clone(),
            frequency: self.frequency.or_else(|| self.period.is_none().then_some(Frequency::PerSecond(USUAL_HZ))),
            period: self.period,
            frame_pointers: self.call_graph.is_none(),
            call_graph: self.call_graph,
            pid: self.pid.clone(),
            tid: self.tid.clone(),
            all_cpus: self.all_cpus || !names_something,
            cpu: self.cpu.clone(),
            cgroups: self.cgroups.clone(),
            ..Sampling::default()
        }
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        self.sampling().check()?;
        self.shared.check()
    }
}

const AFTER_HELP: &str = "\
Keys: arrows move, Enter shows callers (or what a process runs), s takes the next of -s, / filters, Space freezes, K and U hide kernel \
and programs, w shows waits (--off-cpu), i also idle threads, o saves the last 30 seconds as a recording, r also ends and opens it with pmux report, ? explains all of them, q quits.

CPU% is of one CPU: a process with two busy threads has 200 %. It is shown where a clock is sampled; other events \
have a rate there. Idle CPUs are in neither. pmux shows what it takes itself, reading its samples included.

Wait% is of one thread: ten threads that wait all the time have 1000 %. Of all CPUs, threads that did nothing else in the time that is shown \
are not in it, but counted (--idle). --off-cpu needs what `pmux record --off-cpu` needs.

Where `pmux serve` runs, samples come through it, and several that watch the same share one event (--shared=never opens events directly).

Exit status: 0, also when it is ended by a key or the watched processes end.";

#[cfg(test)]
mod tests {
    use super::super::target::TargetSpec;
    use super::*;

    #[test]
    fn all_cpus_are_watched_where_nothing_is_named() {
        let of = |options: TopOptions| options.sampling().target_spec().unwrap();
        assert_eq!(of(TopOptions::default()), TargetSpec::Cpus(None));
        assert_eq!(of(TopOptions { pid: vec![7], ..TopOptions::default() }), TargetSpec::Pids(vec![7]));
        assert_eq!(of(TopOptions { cgroups: vec!["a".to_owned()], ..TopOptions::default() }), TargetSpec::Cpus(None));
        let both = TopOptions { pid: vec![7], all_cpus: true, ..TopOptions::default() };
        assert!(both.check().unwrap_err().contains("-p and -a name"));
    }

    #[test]
    fn seconds_may_be_parts() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        assert!(["0", "-1", "nan", "soon"].map(interval).iter().all(Result::is_err));
    }
}
