//! `pmux convert`: a recording for the tools that people already have.
//!
//! What it is: each format has a file, which takes a recording that was read and writes. Read first: [`convert`].
//!
//! **Invariant:** what a format has no room for is left out, and nothing is made up: the numbers are those of the recording.

pub(crate) mod chrome;
pub(crate) mod firefox;
mod folded;
mod perfetto;
mod pprof;
pub(crate) mod protobuf;
mod speedscope;

use crate::failure::{Failure, failed};
use crate::input;
use crate::options::convert::{ConvertOptions, Format};
use crate::picture::output::{self, Kind, Packing};
use crate::picture::{self, Weighing};
use pmux::profile::{Apart, LookupDetail, NotedKind, Profile};

/// Names that the tools know.
fn file_name(format: Format) -> &'static str {
    match format {
        Format::Firefox => "profile.json.gz",
        Format::Pprof => "profile.pb.gz",
        Format::Speedscope => "profile.speedscope.json",
        Format::Folded => "profile.folded",
        Format::Perfetto => "profile.perfetto-trace",
        Format::Chrome => "profile.trace.json",
    }
}

fn kind(format: Format) -> Kind {
    let (name, begins, mark, opens) = match format {
        Format::Firefox => (
            "a profile for Firefox Profiler",
            "{\"meta\":{",
            Some("\"product\":\"pmux: "),
            "Load it at https://profiler.firefox.com, or use pmux view",
        ),
        Format::Pprof => {
            ("a pprof profile", "\n\u{4}\u{8}", Some(pprof::WRITTEN_BY), "`go tool pprof -http=: FILE` shows it")
        }
        Format::Speedscope => (
            "a speedscope profile",
            "{\"$schema\":",
            Some("\"exporter\":\"pmux "),
            "Drop it on https://www.speedscope.app",
        ),
        Format::Folded => ("folded stacks", "", None, "flamegraph.pl and inferno-flamegraph read them"),
        Format::Perfetto => ("a Perfetto trace", "\n", Some(perfetto::SESSION), "Load it at https://ui.perfetto.dev"),
        Format::Chrome => (
            "a Chrome trace",
            "{\"otherData\":",
            Some("\"written by\":\"pmux "),
            "Load it at chrome://tracing or https://ui.perfetto.dev",
        ),
    };
    let packing = if format == Format::Pprof { Packing::Always } else { Packing::ByName };
    Kind { name, begins, mark, packing, opens }
}

pub(crate) fn convert(options: &ConvertOptions) -> Result<(), Failure> {
    let input = &input::spec(&options.input)?;
    let format = options.format().ok_or_else(|| failed("no format"))?;
    let kind = kind(format);
    let to = output::place(&options.output, file_name(format), kind)?;
    let wanted = options.part().wanted();
    let look = if options.no_inline { LookupDetail::Functions } else { LookupDetail::Lines };
    if matches!(format, Format::Folded | Format::Pprof) {
        let apart = Apart { threads: format == Format::Pprof, ..Apart::default() };
        let weighing = if options.wall { Weighing::WallTime } else { Weighing::Recorded };
        let drawn = picture::sums(input, &wanted, apart, weighing, look)?;
        return match format {
            Format::Folded => output::write(&to, kind, |out| folded::write(&drawn, out)),
            _ => output::write(&to, kind, |out| pprof::write(&drawn, out)),
        };
    }
    let drawn = picture::whole(input, &wanted, look)?;
    output::write(&to, kind, |out| match format {
        Format::Firefox => firefox::write(&drawn, out),
        Format::Speedscope => speedscope::write(&drawn, out),
        Format::Perfetto => perfetto::write(&drawn, out),
        _ => chrome::write(&drawn, out),
    })
}

/// What a format calls something that happened at a moment, where it shows it.
fn happening(profile: &Profile, what: NotedKind) -> Option<String> {
    match what {
        NotedKind::Lost(count) => Some(format!("{count} records lost")),
        NotedKind::Throttled => Some("throttled: too many samples".to_owned()),
        NotedKind::Named(name) => Some(format!("is called {}", profile.names.get(name))),
        _ => None,
    }
}
