//! `pmux convert` and `pmux view`: a recording for other tools.
//!
//! **Invariant:** plain data.

use super::picture::{FilterOptions, InputOptions, PartOptions, time_ns};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct ConvertOptions {
    /// What to make of it
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) to: Format,

    #[command(flatten)]
    pub(crate) input: InputOptions,

    /// Write to FILE, compressed if its name ends in .gz; `-` is standard output (default: standard output, and on a terminal a file
    /// that is called as the tool expects it)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Only these events, by name with or without modifiers; separated by commas, may be given again
    #[arg(short, long = "event", value_name = "EVENT,…", value_delimiter = ',')]
    pub(crate) events: Vec<String>,

    /// Only from so long after the first sample: seconds, or with ms, us or ns
    #[arg(long = "since", value_name = "TIME", value_parser = time_ns)]
    pub(crate) since_ns: Option<u64>,

    /// Only until so long after the first sample
    #[arg(long = "until", value_name = "TIME", value_parser = time_ns)]
    pub(crate) until_ns: Option<u64>,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,

    /// Leave out functions that were inlined, and lines of source: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}

impl ConvertOptions {
    /// Which part is meant.
    pub(crate) fn part(&self) -> PartOptions {
        let filter = self.filter.clone();
        PartOptions { events: self.events.clone(), from_ns: self.since_ns, to_ns: self.until_ns, filter }
    }

    /// Checks what clap can't.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.part().check().map_err(|_| "--until must be later than --since".to_owned())
    }
}

/// What others read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The Firefox Profiler (profiler.firefox.com), JSON
    Firefox,
    /// pprof, a compressed protocol buffer
    Pprof,
    /// speedscope (www.speedscope.app), JSON
    Speedscope,
    /// A line for each stack, as flame graph scripts take it
    Folded,
    /// Perfetto (ui.perfetto.dev), a protocol buffer
    Perfetto,
    /// Trace events, as chrome://tracing takes them, JSON
    Chrome,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ViewOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    /// Listen on this port of 127.0.0.1 (default: one that is free)
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}
