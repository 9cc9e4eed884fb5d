//! `pmux script`: every record of a recording, a line each.
//!
//! What it is: [`Lines`] is told of the samples in the order of time and prints them as `perf script` does, [`json`] as objects;
//! [`fields`] says what belongs to a line. Read first: [`script`].
//!
//! **Invariant:** memory is bounded: nothing of a line that was printed is kept but the text of each distinct frame.

mod branches;
mod fields;
mod frames;
mod json;
mod lines;
mod memory;
mod registers;

use crate::failure::{Failure, failed};
use crate::input::{self, OpenedInput};
use crate::options::reading::ScriptOptions;
use crate::picture;
use crate::report::{missing, written};
use crate::stderr::write_stderr;
use fields::FieldSelection;
use json::JsonLines;
use lines::Lines;
use pmux::profile::formats::Formats;
use pmux::profile::{self, BrokenChains, Chosen, Profile, ProfileError, StackId, Symbols};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// So much text is written at once.
const WRITTEN_BYTES: usize = 1 << 17;

/// Text on its way to standard output.
struct Out {
    text: String,
    /// Whether there was any.
    has_written: bool,
    error: Option<io::Error>,
}

impl Out {
    fn new() -> Self {
        Self { text: String::with_capacity(WRITTEN_BYTES + (1 << 12)), has_written: false, error: None }
    }

    /// Writes if there is enough.
    fn pass_on(&mut self) -> ControlFlow<()> {
        if self.text.len() >= WRITTEN_BYTES { self.write() } else { ControlFlow::Continue(()) }
    }

    fn write(&mut self) -> ControlFlow<()> {
        self.has_written |= !self.text.is_empty();
        let written = io::stdout().lock().write_all(self.text.as_bytes());
        self.text.clear();
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// What is known once the first sample comes: a pipe tells it on the way.
struct Resolvers {
    symbols: Symbols,
    formats: Formats,
    /// By event and by stack: how many call chains were printed.
    chains: Vec<Vec<u64>>,
}

impl Resolvers {
    fn of(profile: &Profile) -> Self {
        Self { symbols: Symbols::new(profile), formats: Formats::parse(&profile.tracing), chains: Vec::new() }
    }

    fn count_chain(&mut self, event: usize, stack: StackId) {
        *for_place(for_place(&mut self.chains, event), stack.index()) += 1;
    }

    /// What is said of chains that break off.
    fn broken_chains(&self, profile: &Profile) -> Option<String> {
        let of_event = |(event, stacks): (usize, &'_ Vec<u64>)| {
            let stacks =
                profile.stacks.nodes().filter_map(|(stack, ..)| Some((event, stack, *stacks.get(stack.index())?)));
            stacks.filter(|(.., count)| *count > 0).collect::<Vec<_>>()
        };
        let chains: Vec<_> = self.chains.iter().enumerate().flat_map(of_event).collect();
        missing::broken_chains(profile, &BrokenChains::of(profile, &self.symbols, &mut chains.into_iter()))
    }
}

/// A place in a list, which is made longer for it.
fn for_place<T: Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize_with(place + 1, T::default);
    }
    &mut list[place]
}

pub(crate) fn script(options: &ScriptOptions) -> Result<(), Failure> {
    let asked = FieldSelection::parse(options.fields.as_deref()).map_err(failed)?;
    let opened = input::open(&input::spec(&options.input)?)?;
    let (notes, OpenedInput { input, name, .. }) = (opened.notes(), opened);
    let wrong = |error: ProfileError| input::about(&name, &error);
    let input = input::progress::on_stderr_beside_output(input);
    let wanted = options.part.wanted();
    let (profile, first_ns, mut out, known) = if options.json_lines {
        let mut lines = Chosen::new(wanted.clone(), JsonLines::new(options));
        let profile = profile::read(input, &mut lines).map_err(wrong)?;
        if lines.sink.out.error.is_none() {
            let _ = lines.sink.write(&profile);
        }
        (profile, lines.first_ns, lines.sink.out, lines.sink.known)
    } else {
        let mut lines = Chosen::new(wanted.clone(), Lines::new(options, asked));
        let profile = profile::read(input, &mut lines).map_err(wrong)?;
        if lines.sink.out.error.is_none() {
            let _ = lines.sink.write(&profile);
        }
        (profile, lines.first_ns, lines.sink.out, lines.sink.known)
    };
    if out.error.is_none() {
        let _ = out.write();
    }
    if let Some(error) = out.error {
        return written(Err(error), "the lines");
    }
    // A recording without samples has no lines; a part of one without any is a mistake.
    let matches = if wanted.is_part() && !out.has_written {
        picture::begin(&profile, &wanted, first_ns, false).map(drop)
    } else {
        picture::has_event(&profile, &wanted)
    };
    matches.map_err(|text| input::about(&name, &text))?;
    let missing = missing::notes(&profile, known.as_ref().map_or(&[], |known| known.symbols.notes()));
    let broken = known.as_ref().and_then(|known| known.broken_chains(&profile));
    for note in notes.into_iter().chain(missing).chain(broken) {
        write_stderr(&format!("pmux: {note}"));
    }
    Ok(())
}
