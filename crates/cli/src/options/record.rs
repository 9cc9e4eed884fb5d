//! The options of `pmux record`. Letters and meanings are those of `perf record` wherever it has them.
//!
//! **Invariant:** plain data; a field is what the user typed, as far as it can be understood without a look at the machine.

use super::control::{ControlPlace, Delay, check_delay, control_place, delay};
use super::refuse_first;
use super::sampling::Sampling;
use super::shared::SharedOptions;
use super::target::TargetSpec;
use clap::Args;
use pmux::units::{BYTE_UNITS, scaled, size_bytes, span};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RecordOptions {
    #[command(flatten)]
    pub(crate) sampling: Sampling,

    /// Record what each task has counted when it exits
    #[arg(short, long = "stat", help_heading = "What to record")]
    pub(crate) stat: bool,

    /// Record context switches, which `pmux report --latency` needs
    #[arg(long, visible_alias = "latency", help_heading = "What to record")]
    pub(crate) switch_events: bool,

    /// Record also where threads wait, how long, and who ends it: each wait of MIN or longer with its stack (default 10us), shorter ones
    /// as a sum of each thread. Call chains are recorded, and cpu-clock where no event is given
    #[arg(long, value_name = "MIN", value_parser = span, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "10us", help_heading = "What to record")]
    pub(crate) off_cpu: Option<Duration>,

    /// Record also when threads are in regions that the command marks with `pmux::region`, as samples of `region-time`. Call chains are
    /// recorded, and cpu-clock where no event is given
    #[arg(long, help_heading = "What to record")]
    pub(crate) regions: bool,

    /// Begin TIME (milliseconds, or 100ms, 2s, 1m) after the command; -1: when --control says so
    #[arg(short = 'D', long = "delay", value_name = "TIME", value_parser = delay)]
    #[arg(allow_hyphen_values = true, help_heading = "When to record")]
    pub(crate) delay: Option<Delay>,

    /// Read commands (enable, disable, ping, stop, snapshot) from COMMANDS, one a line; write `ack` to ANSWERS:
    /// fifo:COMMANDS[,ANSWERS], or fd: with numbers of descriptors. After `snapshot` recording goes on in another file (--switch-output)
    #[arg(long, value_name = "WHERE", value_parser = control_place, help_heading = "When to record")]
    pub(crate) control: Option<ControlPlace>,

    /// Write to FILE (default perf.data); `-` is standard output
    #[arg(short, long, value_name = "FILE", help_heading = "How to write")]
    pub(crate) output: Option<PathBuf>,

    /// Size of each CPU's ring buffer: pages, or bytes with B, K, M, G; rounded up to a power of two
    #[arg(short = 'm', long = "mmap-pages", value_name = "SIZE", value_parser = ring_bytes, help_heading = "How to write")]
    pub(crate) ring_bytes: Option<u64>,

    /// Compress with zstd. A LEVEL from 1 to 22 may follow at once (-z3), as with perf; all compress at the fastest. -z0 does not compress
    #[arg(short = 'z', long = "compression-level", alias = "compress", value_name = "LEVEL")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=22), num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", help_heading = "How to write")]
    pub(crate) compress: Option<u8>,

    /// End when so much is written: bytes, or with K, M or G. What describes it (events, mappings of before, build ids) comes on top
    #[arg(long = "max-size", value_name = "SIZE", value_parser = size_bytes, help_heading = "How to write")]
    pub(crate) max_bytes: Option<u64>,

    /// Go on in another file when this one has SIZE (bytes, or with K, M or G), when TIME has passed (100ms, 2s, 1m), or at
    /// SIGUSR2: `signal`, which is also the default
    #[arg(long, value_name = "WHEN", value_parser = switch, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "signal", help_heading = "How to write")]
    pub(crate) switch_output: Option<SwitchWhen>,

    /// Keep the newest N files of --switch-output only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "How to write")]
    pub(crate) switch_max_files: Option<u32>,

    #[command(flatten)]
    pub(crate) shared: SharedOptions,

    /// Print warnings and errors only
    #[arg(short, long, help_heading = "How to write")]
    pub(crate) quiet: bool,

    /// Say at the end, in one line of JSON on standard error, what was written and what was lost, and nothing before it
    #[arg(long, help_heading = "How to write")]
    pub(crate) json: bool,
}

/// When a recording goes on in another file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwitchWhen {
    /// At SIGUSR2.
    Signal,
    Bytes(u64),
    Time(Duration),
}

/// Bytes of a ring, from a number of pages or of bytes.
pub(super) fn ring_bytes(text: &str) -> Result<u64, String> {
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
    const LEAST: Duration = Duration::from_millis(100);
    let wrong = || "expected signal, a size such as 100M, or a time of 100ms or more, such as 30s, 5m, 1h".to_owned();
    if text == "signal" {
        return Ok(SwitchWhen::Signal);
    }
    let found = match text.chars().last() {
        // As with perf, minutes are lower case.
        Some('s' | 'm' | 'h') => span(text).ok().filter(|time| *time >= LEAST).map(SwitchWhen::Time),
        _ => scaled(text, &BYTE_UNITS).map(SwitchWhen::Bytes),
    };
    found.filter(|when| !matches!(when, SwitchWhen::Bytes(0) | SwitchWhen::Time(Duration::ZERO))).ok_or_else(wrong)
}

impl RecordOptions {
    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        self.sampling.check()?;
        self.shared.check()?;
        check_delay(self.delay, self.control.as_ref())?;
        let cpus = matches!(self.sampling.target_spec()?, TargetSpec::Cpus(_));
        let to_stdout = self.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
        let switches = self.switch_output.is_some();
        refuse_first(&[
            (
                self.stat && (cpus || self.sampling.no_inherit),
                "-s tells what children have counted: it goes with a command, -p or -t, without -i",
            ),
            (self.regions && self.sampling.command.is_empty(), "--regions are those of a command: give a COMMAND"),
            (to_stdout && switches, "--switch-output needs files: give another one with -o"),
            (self.switch_max_files.is_some() && !switches, "--switch-max-files goes with --switch-output"),
        ])
    }
}

const AFTER_HELP: &str = "\
The file is read by perf report, perf script, Hotspot, and importers of the Firefox Profiler. Whatever ends the recording, it can \
be read up to what was written last: that is at most a second ago. An older FILE is renamed to FILE.old.

CPUs that come back are recorded again. What found no room in the rings is counted, and told at the end.

With --shared=auto or always, -a, -C, -p and -t record through `pmux serve`: identical recordings share one kernel event, and each \
gets every sample from its beginning on. -m is then the size of the one ring into which the service writes (waits take as much again). A recording that is too \
slow loses its own samples only. Where the service goes away, the recording waits until it is back, and says for how long nothing \
was recorded. Waits (--off-cpu) are recorded by BPF programs of this process where it may load them, else by events that are shared, too. \
A command, cgroups (-G), groups of events, --regions and -s are not shared.

Exit status: that of the command, as with pmux stat.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn rings_are_pages_or_bytes() {
        assert_eq!(ring_bytes("4M"), Ok(4 << 20));
        assert_eq!(ring_bytes("2"), Ok(2 * u64::from(pmux::page_bytes())));
        assert!(ring_bytes("0").is_err());
    }

    #[test]
    fn times_are_lower_case_and_sizes_upper_case() {
        assert_eq!(switch("signal"), Ok(SwitchWhen::Signal));
        assert_eq!(switch("5m"), Ok(SwitchWhen::Time(Duration::from_secs(300))));
        assert_eq!(switch("5M"), Ok(SwitchWhen::Bytes(5 << 20)));
        assert_eq!(switch("100ms"), Ok(SwitchWhen::Time(Duration::from_millis(100))));
        assert!(["0s", "soon", "1ns", "99ms", "-1s"].map(switch).iter().all(Result::is_err));
    }

    #[test]
    fn a_level_stands_behind_its_letter() {
        use super::super::{Invocation, parse};
        let level = |words: &str| {
            let words = ["pmux", "record"].into_iter().chain(words.split(' ')).map(OsString::from).collect();
            match parse(words) {
                Ok(Invocation::Record(options)) => Ok((options.compress, options.sampling.command)),
                other => Err(format!("{other:?}")),
            }
        };
        let command = |words: &str| words.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(level("ls"), Ok((None, command("ls"))));
        assert_eq!(level("-z ls"), Ok((Some(1), command("ls"))));
        assert_eq!(level("-o x -z12 ls -z3"), Ok((Some(12), command("ls -z3"))));
        assert_eq!(level("-z0 -- ls -z3"), Ok((Some(0), command("ls -z3"))));
        assert_eq!(level("--compression-level=3 -- -z3"), Ok((Some(3), command("-z3"))));
        assert_eq!(level("-z=4 ls"), Ok((Some(4), command("ls"))));
        assert!(level("-z23 ls").is_err() && level("-z3x ls").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let command = || Sampling { command: vec![OsString::from("true")], ..Sampling::default() };
        let of = |sampling| RecordOptions { sampling, ..RecordOptions::default() };
        for (options, words) in [
            (of(Sampling::default()), "nothing to record:"),
            (of(Sampling { pid: vec![1], all_cpus: true, ..Sampling::default() }), "-p and -a name"),
            (of(Sampling { cgroups: vec!["x".to_owned()], pid: vec![1], ..Sampling::default() }), "-G and -p"),
            (RecordOptions { stat: true, ..of(Sampling { all_cpus: true, ..Sampling::default() }) }, "-s tells"),
            (RecordOptions { switch_max_files: Some(1), ..of(command()) }, "goes with"),
        ] {
            assert!(options.check().unwrap_err().contains(words), "{options:?}");
        }
        assert_eq!(of(command()).check(), Ok(()));
    }
}
