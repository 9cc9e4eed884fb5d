//! What the commands that read a recording have in common: which recording, and which part of it.
//!
//! **Invariant:** plain data.

use super::refuse_first;
use super::symbols::SymbolOptions;
use clap::Args;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

// Which recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct InputOptions {
    /// Read this recording: a file, a folder, whose recordings (*.data) become one or which `perf record --threads` wrote, or `-` for
    /// standard input (default: what is piped in, or perf.data)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// The same as -i FILE
    #[arg(value_name = "FILE", conflicts_with = "input")]
    pub(crate) file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) symbols: SymbolOptions,
}

impl InputOptions {
    /// The recording that was named, if one was.
    pub(crate) fn named(&self) -> Option<&Path> {
        self.input.as_ref().or(self.file.as_ref()).map(PathBuf::as_path)
    }
}

// Where what is made of it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct OutputOptions {
    /// Write to FILE, compressed if its name ends in .gz; `-` is standard output (default: standard output, and on a terminal
    /// flame.svg, timeline.html, or the usual name of the format)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Replace a file that is there, whatever it is (files that pmux wrote are replaced without it, but for folded stacks)
    #[arg(long)]
    pub(crate) force: bool,

    /// Write a file, and print its name and size as JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

// Which part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct PartOptions {
    /// Only these events, by name with or without modifiers; separated by commas, may be given again
    #[arg(short, long = "event", value_name = "EVENT,…", value_delimiter = ',')]
    pub(crate) events: Vec<String>,

    /// Only from TIME after the first sample on: seconds, or 100ms, 2s, 1m
    #[arg(long = "from", value_name = "TIME", value_parser = time_ns)]
    pub(crate) from_ns: Option<u64>,

    /// Only until TIME after the first sample
    #[arg(long = "to", value_name = "TIME", value_parser = time_ns)]
    pub(crate) to_ns: Option<u64>,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// So deep are call chains read, as by perf.
const MAX_STACK: usize = 127;

// Which samples of it, and how deep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Which samples")]
pub(crate) struct FilterOptions {
    /// Only threads of these names; this and the following are separated by commas, and may be given again
    #[arg(short = 'c', long = "comm", visible_alias = "comms", value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) comms: Vec<String>,

    /// Only these processes
    #[arg(long = "pid", value_name = "PID,…", value_delimiter = ',', value_parser = task)]
    pub(crate) pids: Vec<i32>,

    /// Only these threads
    #[arg(long = "tid", value_name = "TID,…", value_delimiter = ',', value_parser = task)]
    pub(crate) tids: Vec<i32>,

    /// Only these CPUs, such as 0,4-7
    #[arg(short = 'C', long = "cpu", value_name = "CPU,…", value_delimiter = ',', value_parser = cpus)]
    pub(crate) cpus: Vec<RangeInclusive<u32>>,

    /// Only what was sampled in these programs or libraries: path, or name in the table
    #[arg(short = 'd', long = "dso", visible_alias = "dsos", value_name = "DSO,…", value_delimiter = ',')]
    pub(crate) dsos: Vec<String>,

    /// Only what was sampled in these functions: whole names
    #[arg(short = 'S', long = "symbol", visible_alias = "symbols", value_name = "SYMBOL,…", value_delimiter = ',')]
    pub(crate) symbols: Vec<String>,

    /// Read so many frames of each call chain, from the innermost one on; 0 reads all (default: 127, as perf)
    #[arg(long, value_name = "N")]
    pub(crate) max_stack: Option<usize>,
}

fn task(text: &str) -> Result<i32, String> {
    // Samples of the idle task have the id 0; those of a task that has ended have -1.
    let wrong = || "expected ids separated by commas, such as 1234,1250".to_owned();
    text.trim().parse().ok().filter(|id| *id >= -1).ok_or_else(wrong)
}

fn cpus(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("expected CPUs separated by commas, such as 0,4-7".to_owned()),
    }
}

impl PartOptions {
    /// Checks what clap can't.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_empty = self.to_ns.is_some_and(|to| self.from_ns.unwrap_or(0) >= to);
        refuse_first(&[(is_empty, "--to must be later than --from")])
    }

    /// The same, as the library is asked.
    pub(crate) fn wanted(&self) -> pmux::profile::SampleFilter {
        let FilterOptions { comms, pids, tids, cpus, dsos, symbols, max_stack } = self.filter.clone();
        let max_stack = Some(max_stack.unwrap_or(MAX_STACK)).filter(|most| *most > 0);
        let (events, from_ns, to_ns) = (self.events.clone(), self.from_ns, self.to_ns);
        pmux::profile::SampleFilter { events, from_ns, to_ns, comms, pids, tids, cpus, dsos, symbols, max_stack }
    }
}

/// `1.5`, `1.5s`, `200ms`, `2m`, in ns.
pub(crate) fn time_ns(text: &str) -> Result<u64, String> {
    let time = pmux::units::seconds(text)?;
    u64::try_from(time.as_nanos()).map_err(|_| "it is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time_ns("1.5"), Ok(1_500_000_000));
        assert_eq!(time_ns("200ms"), Ok(200_000_000));
        assert_eq!(time_ns("7us"), Ok(7_000));
        assert_eq!((time_ns("2m"), time_ns("0")), (Ok(120_000_000_000), Ok(0)));
        assert!(time_ns("-1").is_err() && time_ns("1x").is_err() && time_ns("").is_err() && time_ns("inf").is_err());
    }

    #[test]
    fn cpus_are_lists_of_ranges() {
        assert_eq!((cpus("3"), cpus("4-7")), (Ok(3..=3), Ok(4..=7)));
        assert!(cpus("7-4").is_err() && cpus("").is_err() && cpus("a").is_err() && cpus("-1").is_err());
        assert!(task("0").is_ok() && task("x").is_err());
    }

    #[test]
    fn chains_are_as_deep_as_perf_reads_them() {
        let asked = |max_stack| {
            let filter = FilterOptions { max_stack, ..FilterOptions::default() };
            PartOptions { filter, ..PartOptions::default() }.wanted().max_stack
        };
        assert_eq!([None, Some(0), Some(5)].map(asked), [Some(127), None, Some(5)]);
        assert!(!PartOptions::default().wanted().is_part());
    }

    #[test]
    fn a_part_has_some_length() {
        let part = |from_ns, to_ns| PartOptions { from_ns, to_ns, ..PartOptions::default() };
        assert!(part(None, None).check().is_ok() && part(Some(5), None).check().is_ok());
        assert!(part(Some(5), Some(6)).check().is_ok());
        assert!(part(Some(5), Some(5)).check().is_err() && part(None, Some(0)).check().is_err());
    }
}
