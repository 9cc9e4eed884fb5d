//! What each event has counted, below a timeline.
//!
//! **Invariant:** one line for each event, and below it whatever is not as people would think.

use super::line::{Line, Role, width, wrap};
use super::page::{Style, WRONG};
use super::units::{grouped, several, span};
use super::{EventFigures, Timeline};
use pmux_engine::count::Estimate;
use pmux_engine::{EventState, Nanos};

/// How long the bar of a share is.
const BAR: usize = 10;

/// The texts of a line.
struct Texts {
    left: [String; 3],
    right: [String; 4],
    bar: String,
}

pub(super) fn lines(timeline: &Timeline, style: Style, lines: &mut Vec<Line>) {
    if timeline.events.is_empty() {
        return;
    }
    let scaled = timeline.events.iter().any(|event| matches!(estimate(event), Some(Estimate::Scaled { .. })));
    let head = Texts {
        left: ["event", "counts", "where"].map(str::to_owned),
        right: ["count", if scaled { "estimate" } else { "" }, "enabled", "ran"].map(str::to_owned),
        bar: String::new(),
    };
    let mut texts: Vec<Texts> = timeline.events.iter().map(texts).collect();
    brace(timeline, &mut texts);
    let all = || texts.iter().chain([&head]);
    let left: [usize; 3] =
        std::array::from_fn(|column| all().map(|texts| width(&texts.left[column])).max().unwrap_or(0));
    let right: [usize; 4] =
        std::array::from_fn(|column| all().map(|texts| width(&texts.right[column])).max().unwrap_or(0));
    let columns = |widths: &[usize]| widths.iter().filter(|width| **width > 0).map(|width| width + 2).sum::<usize>();
    // Where names are long, the numbers stand below them.
    let below = columns(&left) + columns(&right) + BAR > style.width;
    let indent = if below { 4 } else { columns(&left) };
    let put = |lines: &mut Vec<Line>, texts: &Texts, role: Role, name: Role| {
        let mut line = Line::default();
        let mut end = 0;
        for (column, text) in texts.left.iter().enumerate() {
            line.put(if column == 0 { name } else { role }, text.clone());
            end += left[column] + 2;
            if column < 2 {
                line.pad_to(end);
            }
        }
        if below {
            lines.push(std::mem::take(&mut line));
        }
        line.pad_to(indent);
        for (column, text) in texts.right.iter().enumerate().filter(|(column, _)| right[*column] > 0) {
            line.put(role, format!("{text:>w$}  ", w = right[column]));
        }
        line.put(name, texts.bar.clone());
        lines.push(line);
    };
    put(lines, &head, Role::Faint, Role::Faint);
    for (number, (event, texts)) in timeline.events.iter().zip(&texts).enumerate() {
        put(lines, texts, Role::Plain, Role::Event(number));
        remarks(event, style, lines);
    }
}

/// Puts braces around the names of a group.
fn brace(timeline: &Timeline, texts: &mut [Texts]) {
    let group = |index: usize| timeline.events.get(index).and_then(|event| event.group);
    if (0..texts.len()).all(|index| group(index).is_none()) {
        return;
    }
    for (index, texts) in texts.iter_mut().enumerate() {
        let mine = group(index).is_some();
        let first = mine && index.checked_sub(1).is_none_or(|before| group(before) != group(index));
        let last = mine && group(index + 1) != group(index);
        let name = &texts.left[0];
        texts.left[0] = format!("{}{name}{}", if first { '{' } else { ' ' }, if last { "}" } else { "" });
    }
}

fn estimate(event: &EventFigures) -> Option<Estimate> {
    event.count.map(|count| count.estimate())
}

fn texts(event: &EventFigures) -> Texts {
    let flags: String = event.flags.iter().map(|flag| format!(" {flag}")).collect();
    let left = [event.name.clone(), event.event.clone(), format!("{}{flags}", event.target)];
    let Some(count) = event.count else {
        let right = ["not readable", "", "", ""].map(str::to_owned);
        return Texts { left, right, bar: String::new() };
    };
    let counted = match count.estimate() {
        // What takes no time has happened all the same.
        Estimate::NotCounted if count.value == 0 => "not counted".to_owned(),
        _ => grouped(count.value),
    };
    let scaled = match count.estimate() {
        Estimate::Scaled { value, .. } => format!("~ {}", grouped(value)),
        _ => String::new(),
    };
    let share = count.share();
    let percent = share.map_or_else(|| "-".to_owned(), percent);
    Texts { left, right: [counted, scaled, span(count.enabled), percent], bar: share.map_or_else(String::new, bar) }
}

/// A share that is not all is never called 100 %, one that is something never 0 %.
fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    match rounded {
        _ if share >= 1.0 => "100 %".to_owned(),
        _ if rounded >= 100.0 => "99.9 %".to_owned(),
        _ if rounded < 1.0 && share > 0.0 => "< 1 %".to_owned(),
        _ => format!("{rounded} %"),
    }
}

fn bar(share: f64) -> String {
    let full = (share * BAR as f64).round() as usize;
    let full = full.min(BAR).max(usize::from(share > 0.0));
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

fn remarks(event: &EventFigures, style: Style, lines: &mut Vec<Line>) {
    let mut say = |role: Role, text: String| {
        wrap(lines, style.width, Line::of(Role::Plain, "    "), role, &text);
    };
    if let Some(count) = event.count.filter(|count| count.value != event.truth) {
        let (value, truth) = (grouped(count.value), grouped(event.truth));
        say(Role::Bad, format!("{WRONG} it counted {value}, and {truth} happened while it ran"));
    }
    if event.lost > 0 {
        say(Role::Bad, format!("! {} lost: the counter could not be read", several(event.lost, "occurrence")));
    }
    match event.state {
        Some(EventState::Error) if event.closed.is_none() => {
            say(Role::Bad, "in error: it was to be on a counter, and is not".to_owned());
        }
        Some(EventState::Dead) if event.closed.is_none() => {
            say(Role::Faint, "dead: what it watched is gone, or it may not see it any more".to_owned());
        }
        _ => {}
    }
    if event.gaps.iter().any(|gap| gap.missed > Nanos::ZERO) {
        let gap = |gap: &super::CpuGap| {
            let times = if gap.times > 1 { format!(" ({})", several(gap.times, "gap")) } else { String::new() };
            format!("cpu{} for {}{times}", gap.cpu, span(gap.missed))
        };
        let gaps: Vec<String> = event.gaps.iter().filter(|gap| gap.missed > Nanos::ZERO).map(gap).collect();
        say(Role::Notice, format!("not counted on {}", gaps.join(", ")));
    }
    if let Some(closed) = event.closed {
        say(Role::Faint, format!("closed at {}", span(closed)));
    }
}
