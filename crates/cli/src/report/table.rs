//! The table, as `perf report --stdio` has it: a heading of comments, a line a row, and below it the calls.
//!
//! **Invariant:** names come without control characters; a column is as wide as its widest cell, but the last.

use super::{Children, View, percent};
use crate::say::visible;
use crate::style::{Ink, Style};
use pmux::profile::{Call, Profile, Row, SortKey, Spot, Tree, level};
use std::fmt::Write as _;
use std::io::{self, Write};

/// A longer cell is not lined up with.
const WIDEST: usize = 48;
/// The heading is underlined so far.
const LONGEST_LINE: usize = 60;
const HOT: f64 = 5.0;
const WARM: f64 = 0.5;

/// What a row says in its columns.
pub(super) fn cells(view: &View<'_>, row: &Row) -> Vec<String> {
    view.keys.iter().map(|key| cell(view, row, *key)).collect()
}

fn cell(view: &View<'_>, row: &Row, key: SortKey) -> String {
    let group = view.hot.group(row.group);
    let names = &view.profile.names;
    match key {
        SortKey::Comm => visible(group.comm.map_or("", |name| names.get(name))),
        SortKey::Dso => match row.spot {
            Spot::Function(id) => visible(names.get(view.profile.modules.get(view.symbols.function(id).module).short)),
            Spot::Program(name) => visible(names.get(name)),
            Spot::Any => "[unknown]".to_owned(),
        },
        SortKey::Symbol => match row.spot {
            Spot::Function(id) => {
                let module = view.symbols.function(id).module;
                format!("[{}] {}", level(view.profile, module), spot_name(view, row.spot))
            }
            _ => "[.] [unknown]".to_owned(),
        },
        SortKey::Cpu => group.cpu.map_or_else(|| "?".to_owned(), |cpu| format!("{cpu:03}")),
        SortKey::Thread => group.thread.map_or_else(String::new, |thread| {
            let thread = view.profile.tasks.thread(thread);
            format!("{:>7}:{}", thread.tid, visible(names.get(thread.name())))
        }),
        SortKey::Cgroup => match group.cgroup {
            None => "N/A".to_owned(),
            Some(id) => {
                let path = view.profile.cgroups.get(&id).map(|path| visible(names.get(*path)));
                path.unwrap_or_else(|| format!("id {id}"))
            }
        },
    }
}

/// What a place in a stack is called.
pub(super) fn spot_name(view: &View<'_>, spot: Spot) -> String {
    match spot {
        Spot::Function(id) => {
            let function = view.symbols.function(id);
            if function.name.is_empty() { format!("{:#018x}", function.start) } else { visible(&function.name) }
        }
        Spot::Program(name) => visible(view.profile.names.get(name)),
        Spot::Any => "[all]".to_owned(),
    }
}

pub(super) fn heading(key: SortKey) -> &'static str {
    match key {
        SortKey::Comm => "Command",
        SortKey::Dso => "Shared Object",
        SortKey::Symbol => "Symbol",
        SortKey::Cpu => "CPU",
        SortKey::Thread => "    Pid:Command",
        SortKey::Cgroup => "Cgroup",
    }
}

/// Prints everything.
pub(super) fn print(view: &View<'_>, style: Style, header_only: bool, out: &mut dyn Write) -> io::Result<()> {
    if header_only {
        return about(view, out);
    }
    let losses = view.profile.losses;
    for manifest in view.manifests {
        writeln!(out, "# {}", manifest.sentence())?;
    }
    writeln!(out, "# Total Lost Samples: {}\n#", losses.lost.max(losses.lost_samples))?;
    let mut any = false;
    for event in view.events() {
        if any {
            writeln!(out)?;
        }
        any = true;
        print_event(view, style, event, out)?;
    }
    if !any {
        writeln!(out, "# There is no sample in the recording.")?;
    }
    Ok(())
}

fn about(view: &View<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (name, text) in about_lines(view.profile) {
        writeln!(out, "# {name} : {text}")?;
    }
    Ok(())
}

/// What a recording tells of itself: what it is, and the text.
pub(super) fn about_lines(profile: &Profile) -> Vec<(&'static str, String)> {
    let about = &profile.about;
    let texts = [
        ("hostname", &about.host),
        ("os release", &about.kernel),
        ("written by", &about.writer),
        ("arch", &about.architecture),
        ("cpudesc", &about.processor),
    ];
    let known = texts.into_iter().filter_map(|(name, text)| Some((name, visible(text.as_ref()?))));
    let mut lines: Vec<(&'static str, String)> = known.collect();
    if let (Some(online), Some(present)) = (about.cpus_online, about.cpus_present) {
        lines.extend([("nrcpus online", online.to_string()), ("nrcpus avail", present.to_string())]);
    }
    if let Some(kib) = about.memory_kib {
        lines.push(("total memory", format!("{kib} kB")));
    }
    if !about.command_line.is_empty() {
        lines.push(("cmdline", visible(&about.command_line.join(" "))));
    }
    for event in &profile.events {
        lines.push(("event", format!("name = {}, {} ids", visible(&event.name), event.ids.len())));
    }
    if let Some((first, last)) = about.sampled_ns {
        let seconds = |ns: u64| format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1000);
        lines.extend([("time of first sample", seconds(first)), ("time of last sample", seconds(last))]);
    }
    lines
}

/// `194K` of 194,350.
pub(super) fn short_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}K", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

fn print_event(view: &View<'_>, style: Style, event: usize, out: &mut dyn Write) -> io::Result<()> {
    let total = view.tally.total(event);
    let name = visible(&view.profile.events[event].name);
    writeln!(out, "# Samples: {} of event '{name}'", short_count(total.samples))?;
    writeln!(out, "# Event count (approx.): {}\n#", total.period)?;
    let rows = view.rows(event);
    let headings: Vec<&str> = view.keys.iter().map(|key| heading(*key)).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|(_, cells)| cells[column].chars().count());
        widths.chain([headings[column].len()]).max().unwrap_or(0).min(WIDEST)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let shares: &[&str] = if view.children == Children::Count { &["Children", "    Self"] } else { &["Overhead"] };
    let (mut line, mut under) = ("#".to_owned(), "#".to_owned());
    for share in shares {
        let _ = write!(line, " {share} ");
        let _ = write!(under, " {} ", ".".repeat(8));
    }
    for (column, (heading, &width)) in headings.iter().zip(&widths).enumerate() {
        let width = if column + 1 == headings.len() { width.min(LONGEST_LINE) } else { width };
        let _ = write!(line, " {heading:width$} ");
        let _ = write!(under, " {} ", ".".repeat(width));
    }
    writeln!(out, "{}\n{}\n#", line.trim_end(), under.trim_end())?;
    rows.iter().try_for_each(|(row, cells)| print_row(view, style, event, row, (cells, &widths), out))
}

/// Prints a row, and below it the calls.
fn print_row(
    view: &View<'_>,
    style: Style,
    event: usize,
    row: &Row,
    (cells, widths): (&[String], &[usize]),
    out: &mut dyn Write,
) -> io::Result<()> {
    let total = view.tally.total(event);
    let mut line = String::new();
    let weights: &[_] = if view.children == Children::Count { &[row.total, row.own] } else { &[row.own] };
    for weight in weights {
        let share = percent(*weight, total);
        line.push_str("  ");
        style.paint(&mut line, ink(share), &format!("{:>8}", format!("{share:.2}%")));
    }
    for (cell, &width) in cells.iter().zip(widths) {
        let _ = write!(line, "  {cell:width$}");
    }
    writeln!(out, "{}", line.trim_end())?;
    if let Some(order) = view.graph
        && percent(row.total, total) >= super::LEAST_CALL_PERCENT
    {
        let tree = view.hot.tree(event, row, order, view.least_period(event));
        print_tree(view, style, event, &tree, out)?;
    }
    Ok(())
}

fn ink(share: f64) -> Ink {
    match share {
        HOT.. => Ink::Bad,
        WARM.. => Ink::Notice,
        _ => Ink::Plain,
    }
}

fn print_tree(view: &View<'_>, style: Style, event: usize, tree: &Tree, out: &mut dyn Write) -> io::Result<()> {
    if tree.roots.is_empty() {
        return Ok(());
    }
    let mut rails = " ".repeat(12);
    print_calls(view, style, event, &tree.roots, None, &mut rails, out)?;
    writeln!(out)
}

/// Prints calls side by side; `above` is what goes through what is above them, in one line with which a single call stands.
fn print_calls(
    view: &View<'_>,
    style: Style,
    event: usize,
    calls: &[Call],
    above: Option<u64>,
    rails: &mut String,
    out: &mut dyn Write,
) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let total = view.tally.total(event);
    for (place, call) in calls.iter().enumerate() {
        let is_last = place + 1 == calls.len();
        // What is called by one only, and always, stands below it without a branch.
        let is_straight = calls.len() == 1 && above.is_some_and(|above| above == call.weight.period);
        let before = rails.len();
        if is_straight {
            writeln!(out, "{rails}{}", spot_name(view, call.spot))?;
        } else {
            let share = format!("{:.2}%", percent(call.weight, total));
            let mut line = format!("{rails}|--");
            style.paint(&mut line, ink(percent(call.weight, total)), &share);
            writeln!(out, "{line}--{}", spot_name(view, call.spot))?;
            rails.push(if is_last { ' ' } else { '|' });
            rails.push_str(&" ".repeat(4 + share.len()));
        }
        print_calls(view, style, event, &call.next, Some(call.weight.period), rails, out)?;
        rails.truncate(before);
        if !is_last && !is_straight {
            writeln!(out, "{rails}|")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        assert_eq!(short_count(9_999), "9999");
        assert_eq!(short_count(194_350), "194K");
        assert_eq!(short_count(12_345_678), "12M");
    }
}
