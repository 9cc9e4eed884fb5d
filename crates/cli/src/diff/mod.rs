//! `pmux diff`: which functions and which counters changed, and what of that is chance.
//!
//! What it is: each recording as shares ([`shares`]), both sides compared ([`statistics`]), and a table. Read first: [`diff`].
//!
//! **Invariant:** a change is marked only where chance alone would seldom make one so large among all that were compared.

mod shares;
mod statistics;

use crate::failure::{Failure, ended};
use crate::input;
use crate::inspect::{print, print_page};
use crate::options::diff::DiffOptions;
use crate::options::exit_status;
use crate::stderr::{visible, write_stderr};
use crate::style::{ColorChoice, Style};
use pmux::profile::{Input, recordings_apart};
use pmux_ui::text::{cut, wrap};
use serde_json::{Value, json};
use shares::{EventShares, Name, Scope, Shares};
use statistics::{Change, Side, compare};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

pub(crate) fn diff(options: &DiffOptions) -> u8 {
    ended(run(options).map(|text| if options.json { print(&text) } else { print_page(&text) }))
}

fn run(options: &DiffOptions) -> Result<String, Failure> {
    let (before, after) = options.sides().map_err(|text| (text, exit_status::FAILED))?;
    let (before, after) = (read(options, &before)?, read(options, &after)?);
    let events = pmux::order::set(before.iter().chain(&after).flat_map(|shares| shares.events.keys()));
    let compared: Vec<Compared> = events.into_iter().map(|event| compare_event(event, &before, &after)).collect();
    Ok(if options.json {
        to_json(&compared)
    } else {
        to_text(&compared, options, Style::of_stdout(ColorChoice::Never).width)
    })
}

fn read(options: &DiffOptions, paths: &[PathBuf]) -> Result<Vec<Shares>, Failure> {
    let scope = if options.children { Scope::WithChildren } else { Scope::Own };
    let sources = input::sources(&options.symbols)?;
    let mut all = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        let apart = if path.is_dir() { recordings_apart(path) } else { Ok(vec![vec![path.clone()]]) };
        for files in apart.map_err(|error| input::about(&name, &error))? {
            // Of a pipe, and in words for what is not there.
            let input = if path.is_dir() { Input::of_files(files) } else { Input::open(path) };
            let input = input.map(|input| input::progress::on_stderr(input.with_sources(sources.clone())));
            let shares = input.and_then(|input| shares::of(input, options.part.wanted(), scope));
            let shares = shares.map_err(|error| input::about(&name, &error))?;
            shares.remarks.iter().for_each(|remark| write_stderr(&format!("{name}: {remark}")));
            if let Some(why) = &shares.why_empty {
                return Err(input::about(&name, why));
            }
            all.push(shares);
        }
    }
    Ok(all)
}

struct Compared {
    event: String,
    samples: (u64, u64),
    recordings: (usize, usize),
    count: Change,
    functions: Vec<(Name, Change)>,
}

fn compare_event(event: &str, before: &[Shares], after: &[Shares]) -> Compared {
    fn of<'a>(side: &'a [Shares], event: &'a str) -> impl Iterator<Item = &'a EventShares> {
        side.iter().filter_map(move |shares| shares.events.get(event))
    }
    let side = |shares: &[Shares], measure: &dyn Fn(&EventShares) -> statistics::Quantity| {
        Side::of(&of(shares, event).map(measure).collect::<Vec<_>>())
    };
    let both =
        |measure: &dyn Fn(&EventShares) -> statistics::Quantity| compare(side(before, measure), side(after, measure));
    let names: BTreeSet<&Name> =
        pmux::order::set(of(before, event).chain(of(after, event)).flat_map(|shares| shares.functions.keys()));
    let mut functions: Vec<(Name, Change)> =
        names.into_iter().map(|name| (name.clone(), both(&|shares| shares.share(name)))).collect();
    let count = functions.len();
    let is_marked = |change: &Change| change.is_beyond_noise(count) == Some(true);
    // What is beyond noise comes first, then what changed most; of what changed alike, what has most.
    let order = |change: &Change| (is_marked(change), change.by().abs(), change.before.max(change.after));
    pmux::order::sort_by(&mut functions, |(_, a), (_, b)| {
        order(b).partial_cmp(&order(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let samples = |side: &[Shares]| of(side, event).map(|shares| shares.all.samples).sum();
    Compared {
        event: event.to_owned(),
        samples: (samples(before), samples(after)),
        recordings: (of(before, event).count(), of(after, event).count()),
        count: both(&EventShares::count),
        functions,
    }
}

/// So many columns where the output is no terminal.
const USUAL_WIDTH: usize = 120;
/// Columns before the name of a function.
const NUMBERS: usize = 44;

fn to_text(compared: &[Compared], options: &DiffOptions, width: Option<usize>) -> String {
    let mut text = String::new();
    let wrapped = |line: &str| wrap(line, width.unwrap_or(USUAL_WIDTH), "    ") + "\n";
    for one in compared {
        let (before, after) = one.samples;
        text += &wrapped(&format!(
            "{}: {before} samples in {} before, {after} in {} after",
            visible(&one.event),
            recordings(one.recordings.0),
            recordings(one.recordings.1)
        ));
        let (before, after) = (one.count.before, one.count.after);
        text += &wrapped(&format!("  counted {before:.0} before, {after:.0} after: {}", counted(&one.count)));
        let marked = one.functions.iter().filter(|(_, change)| is_marked(one, change)).count();
        let among = one.functions.len();
        text += &wrapped(&match marked {
            0 => format!("  no function of {among} changed beyond noise"),
            1 => format!("  1 function of {among} changed beyond noise (*)"),
            marked => format!("  {marked} functions of {among} changed beyond noise (*)"),
        });
        let _ = writeln!(text, "\n    {:>8} {:>8} {:>8} {:>9}  function", "before", "after", "change", "noise");
        let rows = if options.rows == 0 { usize::MAX } else { options.rows };
        for ((function, module), change) in one.functions.iter().take(rows) {
            let mark = if is_marked(one, change) { "*" } else { " " };
            let noise = change.noise.map_or_else(|| "?".to_owned(), |noise| format!("± {:.2}", noise * 100.0));
            let name = format!("{} ({})", visible(function), visible(module));
            let name = width.map_or_else(|| name.clone(), |width| cut(&name, width.saturating_sub(NUMBERS).max(16)));
            let [before, after, by] = [change.before, change.after, change.by()].map(|part| part * 100.0);
            let _ = writeln!(text, "  {mark} {before:>6.2} % {after:>6.2} % {by:>+8.2} {noise:>9}  {name}");
        }
        let left = among.saturating_sub(rows);
        if left > 0 {
            let _ = writeln!(text, "    … and {left} more: --rows 0 shows all");
        }
        text.push('\n');
        // One would be marked if it were the only one.
        let is_likely = one.functions.iter().any(|(_, change)| change.is_beyond_noise(1) == Some(true));
        let noise = "  noise: where nothing has changed, 19 of 20 functions differ by less.";
        text += &wrapped(&format!(
            "{noise} Among {among} functions some differ by more, by chance: * marks a change that would be rare (1 in 20) as \
             the largest of all {among} (Bonferroni's correction){}.",
            if marked == 0 && is_likely { more_tells(one.recordings) } else { "" }
        ));
        text.push('\n');
    }
    text
}

fn more_tells((before, after): (usize, usize)) -> &'static str {
    if before.min(after) < 2 {
        "; longer recordings tell smaller changes"
    } else {
        "; more recordings of each side tell smaller changes"
    }
}

fn recordings(count: usize) -> String {
    if count == 1 { "1 recording".to_owned() } else { format!("{count} recordings") }
}

fn is_marked(one: &Compared, change: &Change) -> bool {
    change.is_beyond_noise(one.functions.len()) == Some(true)
}

fn counted(change: &Change) -> String {
    let percent = |value: f64| value * 100.0 / change.before;
    if change.before == 0.0 {
        return "there was nothing before".to_owned();
    }
    let by = percent(change.by());
    match (change.noise, change.is_beyond_noise(1)) {
        (Some(noise), Some(is_beyond)) => {
            let judged = if is_beyond { "beyond noise" } else { "within noise" };
            format!("{by:+.1} % ± {:.1}, {judged}", percent(noise))
        }
        _ => format!("{by:+.1} %; two recordings or more of each side would tell how much runs differ"),
    }
}

fn to_json(compared: &[Compared]) -> String {
    let change = |change: &Change, among: usize| {
        json!({
            "before": change.before, "after": change.after, "change": change.by(), "standard_error": change.error,
            "chance": change.chance, "beyond_noise": change.is_beyond_noise(among),
        })
    };
    let event = |one: &Compared| {
        let function = |((function, module), share): &(Name, Change)| {
            let share = change(share, one.functions.len());
            json!({ "function": function, "module": module, "share": share })
        };
        json!({
            "event": one.event,
            "samples": { "before": one.samples.0, "after": one.samples.1 },
            "recordings": { "before": one.recordings.0, "after": one.recordings.1 },
            "count": change(&one.count, 1),
            "functions": one.functions.iter().map(function).collect::<Vec<Value>>(),
        })
    };
    let events: Vec<Value> = compared.iter().map(event).collect();
    format!("{}\n", json!({ "level": statistics::LEVEL, "events": events }))
}
