//! A recording, ready to be drawn: what `flame`, `convert`, `view`, `diff` and `timeline` begin with.
//!
//! What it is: [`Drawn`] is a recording that was read, with the names of its functions; [`folded`] its stacks as text; [`output`] where
//! a picture goes. Read first: [`sums`] and [`whole`], which differ in whether each sample is kept.
//!
//! **Invariant:** nothing is drawn in silence: what is missing in the recording, and what could not be found out, is said.

pub(crate) mod folded;
pub(crate) mod output;

use crate::failure::Failure;
use crate::input::manifest::Manifest;
use crate::input::{self, InputSpec, OpenedInput};
use crate::report::missing::{CUT_CHAINS, broken_chains};
use crate::stderr::write_stderr;
use pmux::abi::{EventType, sw};
use pmux::profile::{
    Apart, BrokenChains, Chosen, EventInfo, LookupDetail, Profile, SampleFilter, Sink, SourceLines, StackId, Symbols,
    Tally, WaitSpan, Weight, Whole, read,
};

/// A recording that was read. `S` is what was kept of it.
pub(crate) struct Drawn<S> {
    pub(crate) profile: Profile,
    pub(crate) places: SourceLines,
    pub(crate) kept: S,
    /// When its first sample was, in ns of its clock.
    pub(crate) first_ns: u64,
    /// The file, or what stands for it.
    pub(crate) name: String,
    /// What its flight recorder tells of its parts, in the order of time.
    pub(crate) manifests: Vec<Manifest>,
}

/// What was kept, as far as all pictures need it.
pub(crate) trait Kept: Sink {
    fn stacks(&self) -> Vec<StackId>;
    /// What the samples of an event weigh.
    fn total(&self, event: usize) -> Weight;
    /// The event and the stack of samples, and how many they are.
    fn chains(&self) -> impl Iterator<Item = (usize, StackId, u64)>;
}

impl Kept for Tally {
    fn stacks(&self) -> Vec<StackId> {
        self.rows().map(|(key, _)| key.stack).collect()
    }

    fn total(&self, event: usize) -> Weight {
        Self::total(self, event)
    }

    fn chains(&self) -> impl Iterator<Item = (usize, StackId, u64)> {
        Self::chains(self)
    }
}

impl Kept for Whole {
    fn stacks(&self) -> Vec<StackId> {
        self.samples.iter().map(|sample| sample.stack).collect()
    }

    fn total(&self, event: usize) -> Weight {
        let mut total = Weight::default();
        for sample in self.samples.iter().filter(|sample| sample.event as usize == event) {
            total.add(Weight { period: sample.period, samples: 1 });
        }
        total
    }

    fn chains(&self) -> impl Iterator<Item = (usize, StackId, u64)> {
        self.samples.iter().map(|sample| (sample.event as usize, sample.stack, 1))
    }
}

/// What samples weigh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weighing {
    /// As it was recorded, each event by itself.
    Recorded,
    /// The time of what ran and of what waited, as one event.
    WallTime,
    /// What ran, by how many threads ran at once.
    Latency,
}

/// Reads a recording and adds its samples up.
///
/// # Errors
/// It can't be read, or nothing in it is wanted.
pub(crate) fn sums(
    input: &InputSpec,
    wanted: &SampleFilter,
    apart: Apart,
    weighing: Weighing,
    look: LookupDetail,
) -> Result<Drawn<Tally>, Failure> {
    let tally = Tally::new(Apart { parallelism: weighing == Weighing::Latency, ..apart });
    draw(input, wanted, tally, look, |tally, profile| match weighing {
        Weighing::Latency => {
            let both = tally.latency(profile, apart)?;
            Ok(both.part(apart, |key| profile.events[key.event as usize].group.is_some()))
        }
        Weighing::Recorded => Ok(tally),
        Weighing::WallTime => tally.wall(profile),
    })
}

/// Reads a recording and keeps each sample.
///
/// # Errors
/// It can't be read, or nothing in it is wanted.
pub(crate) fn whole(input: &InputSpec, wanted: &SampleFilter, look: LookupDetail) -> Result<Drawn<Whole>, Failure> {
    draw(input, wanted, Whole::default(), look, |whole, _| Ok(whole))
}

/// The same, with what was waited for on the stacks of waits, and from when to when each was.
///
/// # Errors
/// It can't be read, or nothing in it is wanted.
pub(crate) fn whole_with_waits(
    input: &InputSpec,
    wanted: &SampleFilter,
    look: LookupDetail,
) -> Result<(Drawn<Whole>, Vec<WaitSpan>), Failure> {
    let mut waits = Vec::new();
    let drawn = draw(input, wanted, Whole::default(), look, |mut whole, profile| {
        waits = whole.waits(profile);
        Ok(whole)
    })?;
    Ok((drawn, waits))
}

fn draw<S: Kept>(
    input: &InputSpec,
    wanted: &SampleFilter,
    sink: S,
    look: LookupDetail,
    weigh: impl FnOnce(S, &mut Profile) -> Result<S, String>,
) -> Result<Drawn<S>, Failure> {
    let opened = input::open(input)?;
    let notes = opened.notes();
    let OpenedInput { input, name, manifests, .. } = opened;
    let about = |error: &dyn std::fmt::Display| input::about(&name, error);
    let mut chosen = Chosen::new(wanted.clone(), sink);
    let mut profile = read(input::progress::on_stderr(input), &mut chosen).map_err(|error| about(&error))?;
    let Chosen { sink: kept, first_ns, .. } = chosen;
    let any = (0..profile.events.len()).any(|event| kept.total(event).samples > 0);
    let first_ns = begin(&profile, wanted, first_ns, any).map_err(|text| about(&text))?;
    let kept = weigh(kept, &mut profile).map_err(|text| about(&text))?;
    let mut symbols = Symbols::new(&profile);
    symbols.resolve_all(&profile);
    let places = SourceLines::of(&profile, &mut symbols, kept.stacks(), look);
    let broken = broken_chains(&profile, &BrokenChains::of(&profile, &symbols, &mut kept.chains()));
    for remark in notes.iter().chain(&remarks(&profile)).chain(symbols.notes()).chain(&broken) {
        write_stderr(&format!("{name}: {remark}"));
    }
    Ok(Drawn { profile, places, kept, first_ns, name, manifests })
}

/// When the first sample was; `any` is one that is wanted.
///
/// # Errors
/// A sentence: nothing in the recording is wanted.
pub(crate) fn begin(profile: &Profile, wanted: &SampleFilter, first_ns: Option<u64>, any: bool) -> Result<u64, String> {
    has_event(profile, wanted)?;
    let first_ns = first_ns.ok_or("there is no sample in it: the recorder saw nothing, or all of it was lost")?;
    if any { Ok(first_ns) } else { Err(format!("no sample matches: leave out {}", asked(wanted).join(" or "))) }
}

/// The options that leave samples out, as far as they are given.
fn asked(wanted: &SampleFilter) -> Vec<&'static str> {
    let options = [
        ("-e", !wanted.events.is_empty()),
        ("--from, --to", wanted.from_ns.or(wanted.to_ns).is_some()),
        ("--comm", !wanted.comms.is_empty()),
        ("--pid", !wanted.pids.is_empty()),
        ("--tid", !wanted.tids.is_empty()),
        ("--cpu", !wanted.cpus.is_empty()),
        ("--dso", !wanted.dsos.is_empty()),
        ("--symbol", !wanted.symbols.is_empty()),
    ];
    options.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
}

/// Whether a recording has an event that is asked for by name.
///
/// # Errors
/// A sentence: which it has.
pub(crate) fn has_event(profile: &Profile, wanted: &SampleFilter) -> Result<(), String> {
    if wanted.events.is_empty() || profile.events.iter().any(|event| wanted.has_event(&event.name)) {
        return Ok(());
    }
    let names: Vec<&str> = profile.events.iter().map(|event| event.name.as_str()).collect();
    Err(format!("there is no event {} in it; it has {}", wanted.events.join(","), names.join(", ")))
}

const BRANCHES: &str =
    "its samples have the last branches that were taken, which only `pmux report -b` and `pmux script` show";

/// What a reader of a picture should know of the recording, in sentences.
pub(crate) fn remarks(profile: &Profile) -> Vec<String> {
    let losses = &profile.losses;
    let counted = [
        (losses.lost + losses.lost_samples, "records were lost when it was recorded"),
        (losses.broken, "records in it are not understood"),
        (losses.of_no_event, "records are of events that it does not describe"),
        (losses.late, "records came too late to stand in their place"),
        (losses.cut_off_bytes, "bytes at its end are no whole record: it was cut off"),
        (losses.cut_chains, CUT_CHAINS),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    let branches = profile.events.iter().any(EventInfo::has_branches).then(|| BRANCHES.to_owned());
    counted
        .map(|(count, what)| format!("{count} {what}"))
        .chain(branches)
        .chain(profile.notes.iter().cloned())
        .collect()
}

impl<S: Kept> Drawn<S> {
    /// The events that have samples, by number.
    pub(crate) fn events(&self) -> Vec<usize> {
        (0..self.profile.events.len()).filter(|&event| self.kept.total(event).samples > 0).collect()
    }

    /// The one event of a picture that has room for one: the first that has samples; the others are named.
    pub(crate) fn one_event(&self) -> usize {
        let events = self.events();
        let name = |event: &usize| self.profile.events[*event].name.as_str();
        if let [first, others @ ..] = events.as_slice()
            && !others.is_empty()
        {
            let (first, others) = (name(first), others.iter().map(name).collect::<Vec<_>>().join(", "));
            write_stderr(&format!("{}: this is {first}; take another one with -e: {others}", self.name));
        }
        events.first().copied().unwrap_or(0)
    }

    /// How long it was recorded, as it stands in the file.
    pub(crate) fn span_ns(&self) -> Option<u64> {
        self.profile.about.sampled_ns.map(|(first, last)| last.saturating_sub(first))
    }
}

/// What an event counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Nanoseconds,
    /// Passes of a tracepoint.
    Hits,
    /// What its name says.
    Named,
}

pub(crate) fn unit(event: &EventInfo) -> Unit {
    // Beside clocks what recorders write themselves: `offcpu-time` and the like.
    match event.attr.kind {
        _ if event.attr.is_clock() => Unit::Nanoseconds,
        EventType::SOFTWARE if event.attr.config == sw::BPF_OUTPUT && base_name(&event.name).ends_with("-time") => {
            Unit::Nanoseconds
        }
        EventType::TRACEPOINT | EventType::BREAKPOINT => Unit::Hits,
        _ if ["uprobe", "kprobe"].contains(&base_name(&event.name)) => Unit::Hits,
        _ => Unit::Named,
    }
}

/// What an event is called without its modifiers and terms: `cycles` of `cycles/freq=99/u`.
pub(crate) fn base_name(event: &str) -> &str {
    event.split([':', '/']).next().unwrap_or(event)
}

pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux::abi::{Attr, BranchSample, SampleFormat};
    use pmux::perf_data::file::FileWriter;
    use pmux::perf_data::{EventDesc, feature};
    use pmux::profile::Input;

    #[test]
    fn durations_have_the_unit_that_fits() {
        let shown = [999, 1_500, 2_000_000, 3_250_000_000].map(duration);
        assert_eq!(shown, ["999 ns", "1.5 us", "2.0 ms", "3.25 s"]);
    }

    #[test]
    fn branches_are_in_no_picture() {
        let of = |branch_sample| {
            let sample = SampleFormat::IDENTIFIER | SampleFormat::BRANCH_STACK;
            let attr = Attr { sample, branch_sample, ..Attr::default() };
            let descs = [EventDesc { attr, name: "one".to_owned(), ids: vec![11] }];
            let file = tempfile::tempfile().unwrap();
            let mut writer = FileWriter::create(file.try_clone().unwrap(), &descs, 0, &[]).unwrap();
            writer.finish(&[feature::events(&descs)]).unwrap();
            let profile = read(Input::file(file), &mut Whole::default()).unwrap();
            remarks(&profile).iter().any(|remark| remark == BRANCHES)
        };
        assert!(of(BranchSample::ANY) && !of(BranchSample::CALL_STACK));
    }
}
