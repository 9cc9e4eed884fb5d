//! `pmux flame`: a recording as a flame graph, or two recordings as their difference.
//!
//! What it is: the stacks as text (`picture::folded`) are drawn by `inferno`. Read first: [`flame`].
//!
//! **Invariant:** the picture says what it is of: the event, how many samples, how long, which machine.

pub(crate) mod colours;

use crate::failure::{Failure, failed};
use crate::input::{self, InputSpec};
use crate::options::flame::{FlameOptions, GroupStacksBy};
use crate::picture::folded::{Marks, lines};
use crate::picture::output::{self, Kind, Packing, Place};
use crate::picture::{self, Drawn, Unit, Weighing, base_name, unit};
use crate::stderr::visible;
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};
use pmux::profile::{Apart, EventInfo, LookupDetail, Tally};
use std::collections::BTreeMap;
use std::io;

/// Stands in the remarks of the picture.
const MARK: &str = "NOTES: written by pmux flame";

const KIND: Kind = Kind {
    name: "a flame graph",
    begins: "<?xml",
    mark: Some(MARK),
    packing: Packing::ByName,
    opens: "Open it in a web browser: a click on a function shows it alone, Ctrl-F searches",
};

pub(crate) fn flame(options: &FlameOptions) -> Result<(), Failure> {
    let to = output::place(&options.output, "flame.svg", KIND)?;
    let asked = input::spec(&options.input)?;
    let (after, stacks, title) = match options.diff.as_deref() {
        Some([before, after]) => difference(options, &asked.at(before), &asked.at(after))?,
        _ => {
            let drawn = read(options, &asked)?;
            let event = drawn.one_event();
            let stacks = lines(&drawn, event, options.by, Marks::Shown);
            let title = drawn.profile.events[event].name.clone();
            let stacks = stacks.into_iter().map(|(stack, weight)| format!("{stack} {weight}")).collect();
            (drawn, stacks, title)
        }
    };
    draw(options, &after, &stacks, &title, &to)
}

fn read(options: &FlameOptions, asked: &InputSpec) -> Result<Drawn<Tally>, Failure> {
    let look = if options.no_inline { LookupDetail::Functions } else { LookupDetail::Lines };
    let apart = Apart {
        threads: matches!(options.by, GroupStacksBy::Thread | GroupStacksBy::Process),
        cpus: options.by == GroupStacksBy::Cpu,
        ..Apart::default()
    };
    let weighing = match options {
        FlameOptions { wall: true, .. } => Weighing::WallTime,
        FlameOptions { latency: true, .. } => Weighing::Latency,
        _ => Weighing::Recorded,
    };
    picture::sums(asked, &options.part.wanted(), apart, weighing, look)
}

/// The stacks of two recordings, each with both weights. Those of the first are scaled, so that both come to the same.
fn difference(
    options: &FlameOptions,
    before: &InputSpec,
    after: &InputSpec,
) -> Result<(Drawn<Tally>, Vec<String>, String), Failure> {
    let (old, new) = (read(options, before)?, read(options, after)?);
    let event = new.one_event();
    let name = new.profile.events[event].name.clone();
    let same = old.events().into_iter().find(|&event| old.profile.events[event].name == name);
    let Some(old_event) = same else {
        return Err(failed(format!("{}: there is no sample of {name}, which {} has", old.name, new.name)));
    };
    let totals = (old.kept.total(old_event).period.max(1), new.kept.total(event).period);
    let mut both: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (stack, weight) in lines(&old, old_event, options.by, Marks::Shown) {
        let scaled = u128::from(weight) * u128::from(totals.1) / u128::from(totals.0);
        both.entry(stack).or_default().0 = scaled as u64;
    }
    for (stack, weight) in lines(&new, event, options.by, Marks::Shown) {
        both.entry(stack).or_default().1 = weight;
    }
    let title = format!("{name}: {} against {}", new.name, old.name);
    let stacks = both.into_iter().map(|(stack, (old, new))| format!("{stack} {old} {new}")).collect();
    Ok((new, stacks, title))
}

fn draw(
    options: &FlameOptions,
    drawn: &Drawn<Tally>,
    stacks: &[String],
    title: &str,
    to: &Place,
) -> Result<(), Failure> {
    let mut palette = colours::of(&drawn.places);
    // What holds all stacks has no name.
    palette.insert("", colours::ROOT);
    for stack in stacks {
        // A stack of a root alone has its weight behind it.
        let root = stack.split_once(';').or_else(|| stack.rsplit_once(' ')).map_or(stack.as_str(), |(root, _)| root);
        if palette.get(root).is_none() {
            palette.insert(root, colours::ROOT);
        }
    }
    let mut how = Options::default();
    how.title = visible(title);
    how.notes = MARK.trim_start_matches("NOTES: ").to_owned();
    how.subtitle = Some(visible(&subtitle(options, drawn)));
    how.count_name = weight_name(&drawn.profile.events[event_of(drawn)]);
    how.direction = if options.icicle { Direction::Inverted } else { Direction::Straight };
    how.text_truncate_direction = TextTruncateDirection::Right;
    if let Some(least) = options.percent_limit {
        how.min_width = least;
    }
    if options.diff.is_none() {
        how.palette_map = Some(&mut palette);
    }
    output::write(to, KIND, |out| {
        from_lines(&mut how, stacks.iter().map(String::as_str), out).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => error,
            _ => io::Error::other(format!("the picture can't be drawn: {error}")),
        })
    })
}

fn event_of(drawn: &Drawn<Tally>) -> usize {
    drawn.events().first().copied().unwrap_or(0)
}

fn weight_name(event: &EventInfo) -> String {
    match unit(event) {
        Unit::Nanoseconds => "ns".to_owned(),
        Unit::Hits => "hits".to_owned(),
        Unit::Named => visible(base_name(&event.name)),
    }
}

/// How much it is of, how long, and where.
fn subtitle(options: &FlameOptions, drawn: &Drawn<Tally>) -> String {
    let about = &drawn.profile.about;
    let samples = drawn.kept.total(event_of(drawn)).samples;
    let mut parts = vec![format!("{samples} samples")];
    let (from, to) = (options.part.from_ns, options.part.to_ns);
    if from.is_some() || to.is_some() {
        let to = to.map_or_else(|| "the end".to_owned(), picture::duration);
        parts.push(format!("from {} to {to}", picture::duration(from.unwrap_or(0))));
    } else if let Some(span) = drawn.span_ns() {
        parts.push(picture::duration(span));
    }
    parts.extend(about.host.clone());
    parts.extend(about.kernel.as_ref().map(|kernel| format!("Linux {kernel}")));
    parts.join(" · ")
}
