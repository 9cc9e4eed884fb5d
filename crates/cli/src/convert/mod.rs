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
mod protobuf;
mod speedscope;

use crate::failure::Failure;
use crate::input;
use crate::options::convert::{ConvertOptions, Format};
use crate::options::exit_status;
use crate::picture;
use crate::picture::output::{self, Packing};
use crate::say::complain;
use pmux::profile::{Apart, Look, Profile, What};

/// Runs `pmux convert` and returns the exit status.
pub(crate) fn convert(options: &ConvertOptions) -> u8 {
    match run(options) {
        Ok(()) => exit_status::SUCCESS,
        Err((text, status)) => complain(&text, status),
    }
}

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

fn run(options: &ConvertOptions) -> Result<(), Failure> {
    let input = &input::asked(&options.input)?;
    let to = output::place(options.output.as_deref(), file_name(options.to));
    let wanted = options.part().wanted();
    let look = if options.no_inline { Look::Functions } else { Look::Lines };
    let packing = if options.to == Format::Pprof { Packing::Always } else { Packing::ByName };
    if matches!(options.to, Format::Folded | Format::Pprof) {
        let apart = Apart { threads: options.to == Format::Pprof, ..Apart::default() };
        let drawn = picture::sums(input, &wanted, apart, look)?;
        return match options.to {
            Format::Folded => output::write(&to, packing, |out| folded::write(&drawn, out)),
            _ => output::write(&to, packing, |out| pprof::write(&drawn, out)),
        };
    }
    let drawn = picture::whole(input, &wanted, look)?;
    output::write(&to, packing, |out| match options.to {
        Format::Firefox => firefox::write(&drawn, out),
        Format::Speedscope => speedscope::write(&drawn, out),
        Format::Perfetto => perfetto::write(&drawn, out),
        _ => chrome::write(&drawn, out),
    })
}

/// What a format calls something that happened at a moment, where it shows it.
fn happening(profile: &Profile, what: What) -> Option<String> {
    match what {
        What::Lost(count) => Some(format!("{count} records lost")),
        What::Throttled => Some("throttled: too many samples".to_owned()),
        What::Named(name) => Some(format!("is called {}", profile.names.get(name))),
        _ => None,
    }
}
