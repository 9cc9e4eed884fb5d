//! What each event has counted, below a timeline.
//!
//! **Invariant:** one line for each event, and below it whatever is not as people would think.

use super::page::WRONG;
use super::units::{grouped, pad, several, span, width};
use super::{CpuGap, EventFigures, Timeline};
use pmux_engine::count::Estimate;
use pmux_engine::{EventState, Nanos};

/// How long the bar of a share is.
const BAR: usize = 10;

/// How many columns of a line are words, which begin below one another; numbers end so.
const WORDS: usize = 3;

pub(super) fn put(timeline: &Timeline, out: &mut String) {
    if timeline.events.is_empty() {
        return;
    }
    let estimate = |event: &EventFigures| event.count.map(|count| count.estimate());
    let scaled = timeline.events.iter().any(|event| matches!(estimate(event), Some(Estimate::Scaled { .. })));
    let estimate = if scaled { "estimate" } else { "" };
    let head = ["event", "counts", "where", "count", estimate, "enabled", "ran", ""].map(str::to_owned);
    let table: Vec<[String; 8]> = std::iter::once(head).chain(timeline.events.iter().map(texts)).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|column| table.iter().map(|line| width(&line[column])).max().unwrap_or(0));
    let mut remarks = std::iter::once(Vec::new()).chain(timeline.events.iter().map(remarks));
    for texts in &table {
        let (mut line, mut start) = (String::new(), 0);
        for (column, text) in texts.iter().enumerate().filter(|(column, _)| widths[*column] > 0) {
            pad(&mut line, start + if column < WORDS { 0 } else { widths[column] - width(text) });
            line.push_str(text);
            start += widths[column] + 2;
        }
        out.push_str(line.trim_end());
        out.push('\n');
        for remark in remarks.next().unwrap_or_default() {
            out.push_str(&format!("    {remark}\n"));
        }
    }
}

fn texts(event: &EventFigures) -> [String; 8] {
    let flags: String = event.flags.iter().map(|flag| format!(" {flag}")).collect();
    let [name, what, place] = [event.name.clone(), event.event.clone(), format!("{}{flags}", event.target)];
    let Some(count) = event.count else {
        let [count, estimate, enabled, ran, bar] = ["not readable", "", "", "", ""].map(str::to_owned);
        return [name, what, place, count, estimate, enabled, ran, bar];
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
    [name, what, place, counted, scaled, span(count.enabled), percent, share.map_or_else(String::new, bar)]
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

fn remarks(event: &EventFigures) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(count) = event.count.filter(|count| count.value != event.truth) {
        let (value, truth) = (grouped(count.value), grouped(event.truth));
        remarks.push(format!("{WRONG} it counted {value}, and {truth} happened while it ran"));
    }
    if event.lost > 0 {
        remarks.push(format!("! {} lost: the counter could not be read", several(event.lost, "occurrence")));
    }
    let text = match event.state {
        Some(EventState::Error) => Some("in error: it was to be on a counter, and is not"),
        Some(EventState::Dead) => Some("dead: what it watched is gone, or it may not see it any more"),
        _ => None,
    };
    remarks.extend(text.filter(|_| event.closed.is_none()).map(str::to_owned));
    let gap = |gap: &CpuGap| {
        let times = if gap.times > 1 { format!(" ({})", several(gap.times, "gap")) } else { String::new() };
        format!("cpu{} for {}{times}", gap.cpu, span(gap.missed))
    };
    let gaps: Vec<String> = event.gaps.iter().filter(|gap| gap.missed > Nanos::ZERO).map(gap).collect();
    if !gaps.is_empty() {
        remarks.push(format!("not counted on {}", gaps.join(", ")));
    }
    remarks.extend(event.closed.map(|closed| format!("closed at {}", span(closed))));
    remarks
}
