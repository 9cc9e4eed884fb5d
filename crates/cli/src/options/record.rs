//! The options of `pmux record`. Letters and meanings are those of `perf record` wherever it has them.
//!
//! **Invariant:** plain data; a field is what the user typed, as far as it can be understood without a look at the machine.

use super::target::{self, Typed, Whom};
use clap::Args;
use pmux::record::CallChain;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `pmux record`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RecordOptions {
    /// Events to record, separated by commas; may be given again (default: cycles, or where there are no counters, cpu-clock)
    #[arg(short, long = "event", value_name = "EVENT,…", allow_hyphen_values = true, help_heading = "What to record")]
    pub(crate) events: Vec<String>,

    /// Take HZ samples a second, or as many as the kernel allows: `max` (default 4000)
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = frequency, conflicts_with = "period", help_heading = "What to record")]
    pub(crate) frequency: Option<Frequency>,

    /// Take a sample after every N occurrences
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What to record")]
    pub(crate) period: Option<u64>,

    /// Record call chains, by frame pointers
    #[arg(short = 'g', help_heading = "What to record")]
    pub(crate) frame_pointers: bool,

    /// Record call chains: `fp`, `dwarf` with or without the bytes of stack (default 8192), or `lbr`
    #[arg(long, value_name = "HOW", value_parser = call_graph, help_heading = "What to record")]
    pub(crate) call_graph: Option<CallGraph>,

    /// Record addresses of data, and mappings of data
    #[arg(short, long = "data", help_heading = "What to record")]
    pub(crate) data: bool,

    /// Record what each task has counted when it exits
    #[arg(short, long = "stat", help_heading = "What to record")]
    pub(crate) stat: bool,

    /// Record context switches
    #[arg(long, help_heading = "What to record")]
    pub(crate) switch_events: bool,

    /// Do not record children of the command or of the processes
    #[arg(short = 'i', long, help_heading = "What to record")]
    pub(crate) no_inherit: bool,

    /// Record these processes
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', value_parser = target::id, help_heading = "Whom to record")]
    pub(crate) pid: Vec<i32>,

    /// Record these threads
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',', value_parser = target::id, help_heading = "Whom to record")]
    pub(crate) tid: Vec<i32>,

    /// Record everything on every CPU, while COMMAND runs or until Ctrl-C
    #[arg(short, long = "all-cpus", help_heading = "Whom to record")]
    pub(crate) all_cpus: bool,

    /// Record everything on these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = target::cpus, help_heading = "Whom to record")]
    pub(crate) cpu: Option<String>,

    /// Record in these control groups; of several, samples say in which they were taken. Needs -a or -C
    #[arg(short = 'G', long = "cgroup", value_name = "NAME,…", value_delimiter = ',', help_heading = "Whom to record")]
    pub(crate) cgroups: Vec<String>,

    /// Begin MS milliseconds after the command
    #[arg(short = 'D', long = "delay", value_name = "MS", help_heading = "When to record")]
    pub(crate) delay_ms: Option<u64>,

    /// Write to FILE (default perf.data); `-` is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "How to write")]
    pub(crate) output: Option<PathBuf>,

    /// Make each CPU's ring so large: a number of pages, or with B, K, M or G of bytes; the next power of two is taken
    #[arg(short = 'm', long = "mmap-pages", value_name = "SIZE", value_parser = ring_bytes, help_heading = "How to write")]
    pub(crate) ring_bytes: Option<u64>,

    /// Compress with zstd, at its fastest
    #[arg(short = 'z', long = "compress", help_heading = "How to write")]
    pub(crate) compress: bool,

    /// End when so much is written: bytes, or with K, M or G
    #[arg(long = "max-size", value_name = "SIZE", value_parser = size_bytes, help_heading = "How to write")]
    pub(crate) max_bytes: Option<u64>,

    /// Go on in another file when this one has SIZE (bytes, or with K, M or G), when TIME has passed (with s, m or h), or at
    /// SIGUSR2: `signal`, which is also the default
    #[arg(
        long,
        value_name = "WHEN",
        value_parser = switch,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "signal",
        help_heading = "How to write"
    )]
    pub(crate) switch_output: Option<SwitchWhen>,

    /// Keep the newest N files of --switch-output only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "How to write")]
    pub(crate) switch_max_files: Option<u32>,

    /// Say less: nothing but what is wrong
    #[arg(short, long, help_heading = "How to write")]
    pub(crate) quiet: bool,

    /// Command to record, with its own options
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// How many samples a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frequency {
    /// So many.
    PerSecond(u64),
    /// As many as the kernel allows.
    Most,
}

/// `--call-graph`, as a value of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallGraph(pub(crate) CallChain);

/// When a recording goes on in another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwitchWhen {
    /// At SIGUSR2.
    Signal,
    /// At so many bytes.
    Bytes(u64),
    /// After so long.
    Time(Duration),
}

fn frequency(text: &str) -> Result<Frequency, String> {
    match text {
        "max" => Ok(Frequency::Most),
        text => match scaled(text, &[('K', 1000), ('M', 1_000_000)]) {
            Some(hz) if hz > 0 => Ok(Frequency::PerSecond(hz)),
            _ => Err("expected samples per second, such as 99, 4k or max".to_owned()),
        },
    }
}

fn call_graph(text: &str) -> Result<CallGraph, String> {
    const USUAL: u32 = 8192;
    const MOST: u32 = 65_528;
    let (how, bytes) = text.split_once(',').map_or((text, None), |(how, bytes)| (how, Some(bytes)));
    let chain = match (how, bytes) {
        ("fp", None) => CallChain::FramePointers,
        ("lbr", None) => CallChain::LastBranches,
        ("dwarf", None) => CallChain::Dwarf { stack_bytes: USUAL },
        ("dwarf", Some(bytes)) => match bytes.parse::<u32>() {
            Ok(bytes @ 1..=MOST) => CallChain::Dwarf { stack_bytes: bytes.next_multiple_of(8) },
            _ => return Err(format!("the bytes of stack are a number up to {MOST}, such as dwarf,16384")),
        },
        _ => return Err("expected fp, dwarf, dwarf,BYTES or lbr".to_owned()),
    };
    Ok(CallGraph(chain))
}

const BYTE_UNITS: [(char, u64); 4] = [('B', 1), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

fn size_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected bytes, such as 100M or 2G".to_owned();
    scaled(text, &BYTE_UNITS).filter(|&bytes| bytes > 0).ok_or_else(wrong)
}

fn ring_bytes(text: &str) -> Result<u64, String> {
    const MOST: u64 = 1 << 40;
    let wrong = || "expected a number of pages, such as 1024, or bytes, such as 4M".to_owned();
    let page = u64::from(pmux::page_bytes());
    let bytes = match text.parse::<u64>() {
        Ok(pages) => pages.checked_mul(page),
        Err(_) => scaled(text, &BYTE_UNITS),
    };
    bytes.filter(|bytes| (1..MOST).contains(bytes)).ok_or_else(wrong)
}

fn switch(text: &str) -> Result<SwitchWhen, String> {
    const SECONDS: [(char, u64); 3] = [('S', 1), ('M', 60), ('H', 3600)];
    let wrong = || "expected signal, a size such as 100M, or a time such as 30s, 5m, 1h".to_owned();
    if text == "signal" {
        return Ok(SwitchWhen::Signal);
    }
    let found = match text.chars().last() {
        // As with perf, minutes are lower case.
        Some('s' | 'm' | 'h') => scaled(text, &SECONDS).map(|seconds| SwitchWhen::Time(Duration::from_secs(seconds))),
        _ => scaled(text, &BYTE_UNITS).map(SwitchWhen::Bytes),
    };
    found.filter(|when| !matches!(when, SwitchWhen::Bytes(0) | SwitchWhen::Time(Duration::ZERO))).ok_or_else(wrong)
}

/// A number, with one of these units or without.
fn scaled(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let last = text.chars().last()?.to_ascii_uppercase();
    match units.iter().find(|(unit, _)| *unit == last) {
        Some((_, factor)) => text.get(..text.len() - 1)?.parse::<u64>().ok()?.checked_mul(*factor),
        None => text.parse().ok(),
    }
}

impl RecordOptions {
    /// Whom to record.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn whom(&self) -> Result<Whom, String> {
        let Self { pid, tid, all_cpus, cpu, command, .. } = self;
        let typed = Typed { pids: pid, tids: tid, cpus: (*all_cpus, cpu.as_ref()), command };
        typed.whom("whom to record?", "")
    }

    /// How call chains are found.
    pub(crate) fn call_chain(&self) -> CallChain {
        match self.call_graph {
            Some(CallGraph(chain)) => chain,
            None if self.frame_pointers => CallChain::FramePointers,
            None => CallChain::None,
        }
    }

    /// Checks what clap cannot.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let whom = self.whom()?;
        let cpus = matches!(whom, Whom::Cpus(_));
        if !self.cgroups.is_empty() && !cpus {
            return Err("-G needs -a or -C: a control group is recorded on CPUs".to_owned());
        }
        if self.no_inherit && cpus {
            return Err("-a and -C record everything: leave out -i".to_owned());
        }
        if self.stat && (cpus || self.no_inherit) {
            return Err("-s tells what children have counted: it goes with a command, -p or -t, without -i".to_owned());
        }
        let to_stdout = self.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
        if to_stdout && self.switch_output.is_some() {
            return Err("--switch-output needs files: give another one with -o".to_owned());
        }
        if self.switch_max_files.is_some() && self.switch_output.is_none() {
            return Err("--switch-max-files goes with --switch-output".to_owned());
        }
        Ok(())
    }
}

const AFTER_HELP: &str = "\
The file is read by perf report, perf script, Hotspot, and importers of the Firefox Profiler. Whatever ends the recording, it can \
be read up to what was written last: that is at most a second ago. An older FILE is renamed to FILE.old.

CPUs that come back are recorded again. What found no room in the rings is counted, and told at the end.

Exit status: that of the command, as with pmux stat.

Examples:
  pmux record -g -- make                 where a build spends its time
  pmux record -F 99 -a -g -- sleep 10    the whole machine, for 10 s
  pmux record -e 'sched:*' -p 1234       every scheduler event of a process
  pmux record -z --switch-output=100M --switch-max-files 5 -a";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(frequency("4k"), Ok(Frequency::PerSecond(4000)));
        assert_eq!(frequency("max"), Ok(Frequency::Most));
        assert!(frequency("0").is_err() && frequency("fast").is_err());
        assert_eq!(size_bytes("2G"), Ok(2 << 30));
        assert!(size_bytes("").is_err() && size_bytes("99999999999G").is_err() && size_bytes("0").is_err());
        assert_eq!(ring_bytes("4M"), Ok(4 << 20));
        assert_eq!(ring_bytes("2"), Ok(2 * u64::from(pmux::page_bytes())));
        assert!(ring_bytes("0").is_err());
    }

    #[test]
    fn times_are_lower_case_and_sizes_upper_case() {
        assert_eq!(switch("signal"), Ok(SwitchWhen::Signal));
        assert_eq!(switch("5m"), Ok(SwitchWhen::Time(Duration::from_secs(300))));
        assert_eq!(switch("5M"), Ok(SwitchWhen::Bytes(5 << 20)));
        assert!(switch("0s").is_err() && switch("soon").is_err());
    }

    #[test]
    fn call_graphs() {
        assert_eq!(call_graph("dwarf,4093").unwrap().0, CallChain::Dwarf { stack_bytes: 4096 });
        assert_eq!(call_graph("lbr").unwrap().0, CallChain::LastBranches);
        assert!(call_graph("fp,1").is_err() && call_graph("dwarf,0").is_err() && call_graph("dwarf,70000").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let command = || vec![OsString::from("true")];
        for (options, words) in [
            (RecordOptions::default(), "whom to record?"),
            (RecordOptions { pid: vec![1], all_cpus: true, ..RecordOptions::default() }, "-p and -a exclude"),
            (
                RecordOptions { cgroups: vec!["x".to_owned()], command: command(), ..RecordOptions::default() },
                "-G needs",
            ),
            (RecordOptions { stat: true, all_cpus: true, ..RecordOptions::default() }, "-s tells"),
            (RecordOptions { switch_max_files: Some(1), command: command(), ..RecordOptions::default() }, "goes with"),
        ] {
            assert!(options.check().unwrap_err().contains(words), "{options:?}");
        }
        assert_eq!(RecordOptions { command: command(), ..RecordOptions::default() }.check(), Ok(()));
    }
}
