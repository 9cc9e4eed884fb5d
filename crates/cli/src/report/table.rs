//! The table, as `perf report --stdio` has it: a heading of comments, a line a row, and below it the calls.
//!
//! **Invariant:** names come without control characters; a column is as wide as its widest cell, but the last.

use super::rows::{Line, Rows, columns, in_order, rows};
use super::{Children, View, percent};
use crate::say::{push_visible, visible};
use crate::style::{Ink, Style};
use pmux::profile::{Call, Inlining, Profile, Row, SortKey, Spot, Tree, Trees, Weight, level};
use std::fmt::Write as _;
use std::io::{self, Write};

/// A longer cell is not lined up with.
const WIDEST: usize = 48;
/// The heading is underlined so far.
const LONGEST_LINE: usize = 60;
/// So many rows without calls are printed by one thread before it takes others.
const TOGETHER: usize = 1 << 11;
const HOT: f64 = 5.0;
const WARM: f64 = 0.5;

/// What a row says in its columns.
pub(super) fn cells(view: &View<'_>, row: &Row) -> Vec<String> {
    let one = |key: &SortKey| {
        let mut text = String::new();
        cell(view, row, *key, &mut text);
        text
    };
    view.keys.iter().map(one).collect()
}

/// Appends what a row says in one column.
pub(super) fn cell(view: &View<'_>, row: &Row, key: SortKey, out: &mut String) {
    let group = view.hot.group(row.group);
    let names = &view.profile.names;
    match key {
        SortKey::Comm => push_visible(out, group.comm.map_or("", |name| names.get(name))),
        SortKey::Dso => match row.spot {
            Spot::Function(id) => {
                push_visible(out, names.get(view.profile.modules.get(view.symbols.function(id).module).short));
            }
            Spot::Program(name) => push_visible(out, names.get(name)),
            Spot::Any => out.push_str("[unknown]"),
        },
        SortKey::Symbol => match row.spot {
            Spot::Function(id) => {
                out.extend(['[', level(view.profile, view.symbols.function(id).module), ']', ' ']);
                push_spot_name(view, row.spot, out);
            }
            _ => out.push_str("[.] [unknown]"),
        },
        SortKey::Cpu => match group.cpu {
            Some(cpu) => write_to(out, format_args!("{cpu:03}")),
            None => out.push('?'),
        },
        SortKey::Thread => {
            if let Some(thread) = group.thread {
                let thread = view.profile.tasks.thread(thread);
                write_to(out, format_args!("{:>7}:", thread.tid));
                push_visible(out, names.get(thread.name()));
            }
        }
        SortKey::Cgroup => match group.cgroup {
            None => out.push_str("N/A"),
            Some(id) => match view.profile.cgroups.get(&id) {
                Some(path) => push_visible(out, names.get(*path)),
                None => write_to(out, format_args!("id {id}")),
            },
        },
    }
}

/// Appends to a text, which never fails.
fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// What a place in a stack is called.
pub(super) fn spot_name(view: &View<'_>, spot: Spot) -> String {
    let mut text = String::new();
    push_spot_name(view, spot, &mut text);
    text
}

fn push_spot_name(view: &View<'_>, spot: Spot, out: &mut String) {
    match spot {
        Spot::Function(id) => {
            let function = view.symbols.function(id);
            if function.name.is_empty() {
                write_to(out, format_args!("{:#018x}", function.start));
            } else {
                push_visible(out, &function.name);
            }
            if function.inlining == Inlining::Inlined {
                out.push_str(" (inlined)");
            }
        }
        Spot::Program(name) => push_visible(out, view.profile.names.get(name)),
        Spot::Any => out.push_str("[all]"),
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
    for events in view.tables() {
        if any {
            writeln!(out)?;
        }
        any = true;
        print_events(view, style, &events, out)?;
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

/// What the events of a table are called.
fn title(view: &View<'_>, events: &[usize]) -> String {
    let names: Vec<String> = events.iter().map(|&event| visible(&view.profile.events[event].name)).collect();
    let [first, ..] = events else { return String::new() };
    match &view.profile.events[*first].group {
        Some(group) if events.len() > 1 => {
            let name = if group.name.is_empty() { "anon group" } else { &group.name };
            format!("events '{} {{ {} }}'", visible(name), names.join(", "))
        }
        _ => format!("event '{}'", names.join(", ")),
    }
}

/// Prints the table of an event, or of a group with a column for each event.
fn print_events(view: &View<'_>, style: Style, events: &[usize], out: &mut dyn Write) -> io::Result<()> {
    let totals: Vec<Weight> = events.iter().map(|&event| view.tally.total(event)).collect();
    let mut all = Weight::default();
    totals.iter().for_each(|total| all.add(*total));
    writeln!(out, "# Samples: {} of {}", short_count(all.samples), title(view, events))?;
    writeln!(out, "# Event count (approx.): {}\n#", all.period)?;
    let Rows { list, widths } = rows(view, events);
    let headings: Vec<&str> = view.keys.iter().map(|key| heading(*key)).collect();
    let widths: Vec<usize> =
        widths.iter().zip(&headings).map(|(&width, heading)| width.max(heading.len()).min(WIDEST)).collect();
    let shares: &[&str] = if view.children == Children::Count { &["Children", "Self"] } else { &["Overhead"] };
    // So wide are the columns of all events, for which there is one heading.
    let share_width = 10 * events.len() - 2;
    let (mut line, mut under) = ("#".to_owned(), "#".to_owned());
    for share in shares {
        let _ = write!(line, " {share:>share_width$} ");
        let _ = write!(under, " {} ", ".".repeat(share_width));
    }
    for (column, (heading, &width)) in headings.iter().zip(&widths).enumerate() {
        let width = if column + 1 == headings.len() { width.min(LONGEST_LINE) } else { width };
        let _ = write!(line, " {heading:width$} ");
        let _ = write!(under, " {} ", ".".repeat(width));
    }
    writeln!(out, "{}\n{}\n#", line.trim_end(), under.trim_end())?;
    // What has calls below it takes long by itself.
    let has_calls =
        |line: &Line| view.graph.is_some() && percent(line.row.total, totals[0]) >= super::LEAST_CALL_PERCENT;
    let mut parts: Vec<&[Line]> = Vec::new();
    let mut rest = &list[..];
    while !rest.is_empty() {
        let plain = rest.iter().take(TOGETHER).take_while(|line| !has_calls(line)).count();
        let (part, behind) = rest.split_at(plain.max(1));
        parts.push(part);
        rest = behind;
    }
    let printer = || Printer {
        view,
        style,
        event: events[0],
        widths: &widths,
        totals: &totals,
        trees: None,
        last: vec![None; shares.len() * events.len()],
    };
    let part = |printer: &mut Printer<'_>, at: usize| {
        let mut out = String::new();
        for line in parts[at] {
            printer.line(line, has_calls(line), &mut out);
        }
        out
    };
    in_order(parts.len(), printer, part, |text| out.write_all(text.as_bytes()))
}

/// Prints rows of one table.
struct Printer<'a> {
    view: &'a View<'a>,
    style: Style,
    /// Whose calls are printed: the first one.
    event: usize,
    widths: &'a [usize],
    /// Of each event.
    totals: &'a [Weight],
    trees: Option<Trees<'a>>,
    /// The last share in each column, as it was printed: most rows weigh what the one above them weighs.
    last: Vec<Option<(u64, String)>>,
}

impl Printer<'_> {
    /// Prints a row, and below it the calls.
    fn line(&mut self, line: &Line, has_calls: bool, out: &mut String) {
        let Line { row, others, cells } = line;
        let weights = || std::iter::once((row.own, row.total)).chain(others.iter().copied()).zip(self.totals);
        let with_called =
            (self.view.children == Children::Count).then(|| weights().map(|((_, all), total)| (all, total)));
        let shares = with_called.into_iter().flatten().chain(weights().map(|((own, _), total)| (own, total)));
        for ((weight, total), last) in shares.zip(&mut self.last) {
            let (_, text) = match last.take().filter(|(period, _)| *period == weight.period) {
                Some(same) => last.insert(same),
                None => {
                    let share = percent(weight, *total);
                    let mut text = "  ".to_owned();
                    self.style.paint(&mut text, ink(share), &format!("{:>8}", format!("{share:.2}%")));
                    last.insert((weight.period, text))
                }
            };
            out.push_str(text);
        }
        for (cell, &width) in cells.iter().zip(self.widths) {
            out.push_str("  ");
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', width.saturating_sub(columns(cell))));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        if let Some(order) = self.view.graph.filter(|_| has_calls) {
            let trees = self.trees.get_or_insert_with(|| self.view.hot.trees());
            let tree = trees.tree(self.event, row, order, self.view.least_period(self.event));
            self.tree(&tree, out);
        }
    }

    fn tree(&self, tree: &Tree, out: &mut String) {
        if tree.roots.is_empty() {
            return;
        }
        let mut rails = " ".repeat(12);
        self.calls(&tree.roots, None, &mut rails, out);
        out.push('\n');
    }

    /// Prints calls side by side; `above` is what goes through what is above them, in one line with which a single call stands.
    fn calls(&self, calls: &[Call], above: Option<u64>, rails: &mut String, out: &mut String) {
        for (place, call) in calls.iter().enumerate() {
            let is_last = place + 1 == calls.len();
            // What is called by one only, and always, stands below it without a branch.
            let is_straight = calls.len() == 1 && above.is_some_and(|above| above == call.weight.period);
            let before = rails.len();
            out.push_str(rails);
            if !is_straight {
                let share = percent(call.weight, self.totals[0]);
                let text = format!("{share:.2}%");
                out.push_str("|--");
                self.style.paint(out, ink(share), &text);
                out.push_str("--");
                rails.push(if is_last { ' ' } else { '|' });
                rails.extend(std::iter::repeat_n(' ', 4 + text.len()));
            }
            push_spot_name(self.view, call.spot, out);
            out.push('\n');
            self.calls(&call.next, Some(call.weight.period), rails, out);
            rails.truncate(before);
            if !is_last && !is_straight {
                out.push_str(rails);
                out.push_str("|\n");
            }
        }
    }
}

fn ink(share: f64) -> Ink {
    match share {
        HOT.. => Ink::Bad,
        WARM.. => Ink::Notice,
        _ => Ink::Plain,
    }
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
