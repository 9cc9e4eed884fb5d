//! `pmux convert` and `pmux view`: a recording for other tools.
//!
//! **Invariant:** plain data, and the rules that clap can't say.

use super::picture::{FilterOptions, InputOptions, OutputOptions, PartOptions, time_ns};
use super::refuse_first;
use clap::{ArgAction, Args, ValueEnum};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ConvertOptions {
    /// What to make of it
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,

    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) output: OutputOptions,

    /// Only these events, by name with or without modifiers; separated by commas, may be given again
    #[arg(short, long = "event", value_name = "EVENT,…", value_delimiter = ',')]
    pub(crate) events: Vec<String>,

    /// Only from TIME after the first sample on: seconds, or 100ms, 2s, 1m
    #[arg(long = "from", alias = "since", value_name = "TIME", value_parser = time_ns)]
    pub(crate) from_ns: Option<u64>,

    /// Only until TIME after the first sample. The name of a format is understood as --format
    #[arg(long, alias = "until", value_name = "TIME", value_parser = to, action = ArgAction::Append)]
    pub(crate) to: Vec<To>,

    #[command(flatten)]
    pub(crate) filter: FilterOptions,

    /// With folded and pprof: wall time, what ran and what waited, by what was waited for (`pmux record --off-cpu`)
    #[arg(long)]
    pub(crate) wall: bool,

    /// Leave out functions that were inlined, and lines of source: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}

/// What `--to` says: it named the format once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Time(u64),
    Format(Format),
}

fn to(text: &str) -> Result<To, String> {
    let format = Format::from_str(text, true).map(To::Format);
    format.or_else(|_| time_ns(text).map(To::Time)).map_err(|error| format!("{error}; no format either: {}", names()))
}

/// The names of the formats.
fn names() -> String {
    let names = Format::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    names.map(|name| name.get_name().to_owned()).collect::<Vec<_>>().join(", ")
}

impl ConvertOptions {
    /// What to make, if that was said.
    pub(crate) fn format(&self) -> Option<Format> {
        let named = |to: &To| if let To::Format(format) = to { Some(*format) } else { None };
        self.format.or_else(|| self.to.iter().rev().find_map(named))
    }

    /// Which part is meant.
    pub(crate) fn part(&self) -> PartOptions {
        let time = |to: &To| if let To::Time(ns) = to { Some(*ns) } else { None };
        let to_ns = self.to.iter().rev().find_map(time);
        PartOptions { events: self.events.clone(), from_ns: self.from_ns, to_ns, filter: self.filter.clone() }
    }

    /// Checks what clap can't.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.format().is_none() {
            return Err(format!("say what to make with --format: {}", names()));
        }
        let is_wrong = self.wall && !matches!(self.format(), Some(Format::Folded | Format::Pprof));
        let text = "--wall goes with -f folded and -f pprof: `pmux timeline` and `pmux flame --wall` draw it";
        refuse_first(&[(is_wrong, text)])?;
        self.part().check()
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

    /// Listen on this port of 127.0.0.1; 0: one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_is_a_time_or_the_format_that_it_once_was() {
        let options = |words: &[&str]| {
            let to = words.iter().map(|word| to(word).unwrap()).collect();
            ConvertOptions { to, ..ConvertOptions::default() }
        };
        let both = options(&["pprof", "2s"]);
        assert_eq!((both.format(), both.part().to_ns), (Some(Format::Pprof), Some(2_000_000_000)));
        assert_eq!(both.check(), Ok(()));
        assert!(options(&["2s"]).check().unwrap_err().contains("--format: firefox, pprof"));
        assert!(to("webm").is_err());
    }
}
