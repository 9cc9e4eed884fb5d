//! What was found, for people.
//!
//! **Invariant:** a pure function of the report; columns are padded before they are painted. What others have named is shown
//! without control characters.

use super::report::{ChainShare, HitRow, TargetReport, WatchReport, short};
use super::trace::number;
use crate::stderr::visible;
use crate::style::{Grouping, Ink, Style};
use pmux::units::number_text;
use pmux::{CpuList, Estimate, Nanos};
use pmux_ui::text::{columns, cut, wrap};

/// Names of threads are cut at this width.
const WIDEST_NAME: usize = 32;
/// So many columns are left for the place.
const LEAST_PLACE: usize = 24;
/// So many columns where the terminal doesn't say.
const USUAL_WIDTH: usize = 120;

pub(super) fn compose(report: &WatchReport, style: Style) -> String {
    let mut out = String::from("\n");
    for target in &report.targets {
        head(&mut out, report, target, style);
        if report.detailed {
            rows(&mut out, report, target, style);
        }
        out.push('\n');
    }
    for note in &report.notes {
        let width = style.width.map_or(usize::MAX, |width| width.saturating_sub(3).max(LEAST_PLACE));
        for line in note.lines().map(|line| wrap(&visible(line), width, "  ")) {
            for line in line.split('\n') {
                style.paint(&mut out, Ink::Faint, &format!(" # {line}"));
                out.push('\n');
            }
        }
    }
    out
}

/// A number of hits, with thousands separators where that is wanted.
pub(super) fn grouped(value: u64, style: Style) -> String {
    match style.grouping {
        Grouping::None => value.to_string(),
        Grouping::Thousands => number_text(value),
    }
}

fn hits(value: u64, style: Style) -> String {
    format!("{} {}", grouped(value, style), if value == 1 { "hit" } else { "hits" })
}

fn head(out: &mut String, report: &WatchReport, target: &TargetReport, style: Style) {
    /// What follows a name takes so many columns at least.
    const COUNT: usize = 24;
    out.push(' ');
    let name = visible(&target.name);
    let about = if target.about.is_empty() { String::new() } else { format!(" ({})", visible(&target.about)) };
    let taken = columns(&name) + columns(&about);
    style.paint(out, Ink::Strong, &name);
    if style.width.is_some_and(|width| taken + 2 > width) && !about.is_empty() {
        out.push_str("\n  ");
    }
    style.paint(out, Ink::Faint, &about);
    let fits = style.width.is_none_or(|width| taken + 3 + COUNT <= width);
    out.push_str(if fits { ": " } else { ":\n   " });
    match target.count.estimate() {
        _ if target.about.is_empty() => style.paint(out, Ink::Notice, "never found"),
        // A hit takes far longer while it is watched than while it is not: time does not tell how many were missed.
        Estimate::Scaled { share, .. } => {
            style.paint(out, Ink::Strong, &format!("at least {}", hits(target.count.value, style)));
            let ink = if share >= 0.5 { Ink::Notice } else { Ink::Poor };
            style.paint(out, ink, &format!(" (it was watched for {:.1} % of the time)", share * 100.0));
        }
        Estimate::NotCounted => style.paint(out, Ink::Notice, "never watched: its turn did not come"),
        Estimate::Exact(value) => style.paint(out, Ink::Strong, &hits(value, style)),
    }
    out.push_str(&format!(" in {} s", seconds(report.span, 3)));
    if report.filtered && report.detailed {
        out.push_str(&format!(", {} of them meant", grouped(target.hits_in_rows, style)));
    }
    out.push('\n');
}

fn seconds(time: Nanos, decimals: usize) -> String {
    format!("{:.decimals$}", time.0 as f64 / 1e9)
}

/// Cells before the place: text and whether it stands at the right.
type HitCells = [(String, Ink); 7];

fn cells(row: &HitRow, hits_in_rows: u64, style: Style) -> HitCells {
    let name = if row.command.is_empty() { "?" } else { &row.command };
    let name: String = visible(name).chars().take(WIDEST_NAME).collect();
    let id = if row.pid == row.tid { row.tid.to_string() } else { format!("{}/{}", row.pid, row.tid) };
    let share = if hits_in_rows == 0 {
        String::new()
    } else {
        format!("{:.1} %", row.hits as f64 * 100.0 / hits_in_rows as f64)
    };
    [
        (grouped(row.hits, style), Ink::Strong),
        (share, Ink::Plain),
        (name, Ink::Plain),
        (id, Ink::Faint),
        (row.cpus.iter().copied().collect::<CpuList>().to_string(), Ink::Faint),
        (seconds(row.first, 6), Ink::Faint),
        (seconds(row.last, 6), Ink::Faint),
    ]
}

fn rows(out: &mut String, report: &WatchReport, target: &TargetReport, style: Style) {
    if target.rows.is_empty() {
        return;
    }
    let titles = ["hits", "share", "thread", "id", "CPU", "first s", "last s"];
    let shown = &target.rows[..target.rows.len().min(report.most_rows)];
    let mut lines: Vec<HitCells> = vec![titles.map(|title| (title.to_owned(), Ink::Faint))];
    lines.extend(shown.iter().map(|row| cells(row, target.hits_in_rows, style)));
    let width = |column: usize| lines.iter().map(|line| line[column].0.chars().count()).max().unwrap_or(0);
    let columns = style.width.unwrap_or(USUAL_WIDTH);
    let mut widths: [usize; 7] = std::array::from_fn(width);
    let indent_of =
        |widths: &[usize; 7]| widths.iter().filter(|width| **width > 0).map(|width| width + 2).sum::<usize>() + 1;
    // A narrow terminal has no room for all: when, and on which CPU, is what can be missed first.
    for column in [6, 5, 4, 1] {
        if indent_of(&widths) + LEAST_PLACE > columns {
            widths[column] = 0;
        }
    }
    let indent = indent_of(&widths);
    out.push('\n');
    for (line, row) in lines.iter().zip([None].into_iter().chain(shown.iter().map(Some))) {
        out.push(' ');
        for (column, ((text, ink), width)) in line.iter().zip(widths).enumerate() {
            if width == 0 {
                continue;
            }
            // Names and ids are read from the left.
            let left = matches!(column, 2..=4);
            style.paint(out, *ink, &if left { format!("{text:<width$}  ") } else { format!("{text:>width$}  ") });
        }
        match row {
            None => {
                style.paint(out, Ink::Faint, "where");
                out.push('\n');
            }
            Some(row) => place(out, row, indent, columns, style),
        }
    }
    rest(out, target, shown.len(), style);
}

fn place(out: &mut String, row: &HitRow, indent: usize, columns: usize, style: Style) {
    let place = visible(&row.place.to_string());
    let value = row.value.map_or_else(String::new, |value| format!("  (then {})", number(value)));
    let room = style.width.map_or(usize::MAX, |columns| columns.saturating_sub(indent).max(LEAST_PLACE));
    style.paint(out, Ink::OneOf(0), &cut(&place, room.saturating_sub(value.len()).max(LEAST_PLACE)));
    style.paint(out, Ink::Faint, &value);
    out.push('\n');
    let mut line = String::new();
    let ways = match row.that_way {
        ChainShare::One => None,
        ChainShare::Several(hits) => Some(format!("({} this way)", grouped(hits, style))),
        ChainShare::About(hits) => Some(format!("(about {} this way)", grouped(hits, style))),
    };
    for caller in row.callers.iter().map(|caller| short(caller)).chain(ways) {
        let link = if caller.starts_with('(') { caller } else { format!("\u{2190} {}", visible(&caller)) };
        let link = cut(&link, room);
        // Broken between frames; a frame that is longer than the line stands alone.
        let fits = indent + line.chars().count() + link.chars().count() < columns.max(indent + 24);
        if !line.is_empty() && !fits {
            flush(out, &mut line, indent, style);
        }
        line.push_str(&link);
        line.push(' ');
    }
    flush(out, &mut line, indent, style);
}

fn flush(out: &mut String, line: &mut String, indent: usize, style: Style) {
    if !line.is_empty() {
        out.push_str(&" ".repeat(indent));
        style.paint(out, Ink::Faint, line.trim_end());
        out.push('\n');
        line.clear();
    }
}

fn rest(out: &mut String, target: &TargetReport, shown: usize, style: Style) {
    let rest = &target.rows[shown..];
    if rest.is_empty() {
        return;
    }
    let sum: u64 = rest.iter().map(|row| row.hits).sum();
    let rows = if rest.len() == 1 { "row" } else { "rows" };
    let text = format!(" \u{2026} {} in {} more {rows} (-v)\n", hits(sum, style), grouped(rest.len() as u64, style));
    style.paint(out, Ink::Faint, &text);
}

/// The line that shows that something is going on.
pub(super) fn progress(matched: u64, threads: usize, elapsed: std::time::Duration, style: Style) -> String {
    let by = if threads == 1 { "1 thread".to_owned() } else { format!("{} threads", grouped(threads as u64, style)) };
    format!(" {} by {by} in {} s; Ctrl-C ends", hits(matched, style), elapsed.as_secs())
}
