//! The table, as `perf report --stdio` has it: a heading of comments, a line a row, and below it the calls.
//!
//! **Invariant:** names come without control characters; a column is as wide as its widest cell, but the last.

use super::rows::{RowLine, Rows, in_order, rows};
use super::{Calls, Column, View, percent};
use crate::options::reading::{CallForm, NumberColumn};
use crate::stderr::{push_visible, visible};
use crate::style::{Ink, Style};
use pmux::profile::{Call, Inlining, Order, Profile, Row, SortKey, Spot, Tree, Trees, Weight, level};
use pmux_ui::text::columns;
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
        SortKey::Parallelism => match group.parallelism {
            Some(running) => write_to(out, format_args!("{running:>11}")),
            None => out.push('?'),
        },
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
        SortKey::Parallelism => "Parallelism",
    }
}

/// The heading of a number, and its width.
fn number_heading(view: &View<'_>, number: NumberColumn) -> (&'static str, usize) {
    let has_children = view.columns.contains(&Column::Number(NumberColumn::Children));
    match (number, view.is_latency) {
        (NumberColumn::Children, true) => ("Latency  Children", 8),
        (NumberColumn::Children, false) => ("Children", 8),
        (NumberColumn::Own, true) if has_children => ("Latency      Self", 8),
        (NumberColumn::Own, true) => ("Latency  Overhead", 8),
        (NumberColumn::Own, false) if has_children => ("Self", 8),
        (NumberColumn::Own, false) => ("Overhead", 8),
        (NumberColumn::Samples, _) => ("Samples", 12),
        (NumberColumn::Period, _) => ("Period", 12),
    }
}

pub(super) fn print(view: &View<'_>, style: Style, header_only: bool, out: &mut dyn Write) -> io::Result<()> {
    if header_only {
        let mut lines = about_lines(view.profile).into_iter();
        return lines.try_for_each(|(name, text)| writeln!(out, "# {name} : {text}"));
    }
    let losses = view.profile.losses;
    for manifest in view.manifests {
        writeln!(out, "# {}", manifest.sentence())?;
    }
    writeln!(out, "# Total Lost Samples: {}\n#", losses.lost.max(losses.lost_samples))?;
    let tables = view.tables();
    for (place, events) in tables.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        print_events(view, style, events, out)?;
    }
    if tables.is_empty() {
        writeln!(out, "# There is no sample in the recording.")?;
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
    // What was recorded: latency is another sum of the same samples.
    let recorded = if view.is_latency { 1 } else { 0 };
    let mut all = Weight::default();
    totals.iter().skip(recorded).for_each(|total| all.add(*total));
    writeln!(out, "# Samples: {} of {}", short_count(all.samples), title(view, &events[recorded..]))?;
    writeln!(out, "# Event count (approx.): {}\n#", all.period)?;
    if view.is_latency {
        writeln!(out, "# Latency: a sample counts 1/N where N threads ran; in all: {}\n#", totals[0].period)?;
    }
    let Rows { list, widths } = rows(view, events);
    let headings: Vec<&str> = view.keys.iter().map(|key| heading(*key)).collect();
    let widths: Vec<usize> =
        widths.iter().zip(&headings).map(|(&width, heading)| width.max(heading.len()).min(WIDEST)).collect();
    let (mut line, mut under) = ("#".to_owned(), "#".to_owned());
    for (place, column) in view.columns.iter().enumerate() {
        match *column {
            Column::Number(number) => {
                let (heading, width) = number_heading(view, number);
                // So wide are the columns of all events, for which there is one heading.
                let width = (width + 2) * events.len() - 2;
                let _ = write!(line, " {heading:>width$} ");
                let _ = write!(under, " {} ", ".".repeat(width));
            }
            Column::Key(key) => {
                let is_last = place + 1 == view.columns.len();
                let width = if is_last { widths[key].min(LONGEST_LINE) } else { widths[key] };
                let _ = write!(line, " {:width$} ", headings[key]);
                let _ = write!(under, " {} ", ".".repeat(width));
            }
        }
    }
    writeln!(out, "{}\n{}\n#", line.trim_end(), under.trim_end())?;
    // What has calls below it takes long by itself.
    let has_calls = |line: &RowLine| {
        view.graph.is_some_and(|calls| percent(line.row.total, totals[0]) >= calls.least_percent)
            && line.row.total.samples > 0
    };
    let mut parts: Vec<&[RowLine]> = Vec::new();
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
        last: vec![None; view.columns.len() * events.len()],
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
    fn line(&mut self, line: &RowLine, has_calls: bool, out: &mut String) {
        let RowLine { row, others, cells } = line;
        let cells: Vec<&str> = cells.iter().collect();
        let weights = || std::iter::once((row.own, row.total)).chain(others.iter().copied()).zip(self.totals);
        let from = out.len();
        for (place, column) in self.view.columns.iter().enumerate() {
            match *column {
                Column::Key(key) => {
                    let (cell, width) = (cells.get(key).copied().unwrap_or_default(), self.widths[key]);
                    out.push_str("  ");
                    out.push_str(cell);
                    out.extend(std::iter::repeat_n(' ', width.saturating_sub(columns(cell))));
                }
                Column::Number(NumberColumn::Samples) => {
                    weights().for_each(|((own, _), _)| write_to(out, format_args!("  {:>12}", own.samples)));
                }
                Column::Number(NumberColumn::Period) => {
                    weights().for_each(|((own, _), _)| write_to(out, format_args!("  {:>12}", own.period)));
                }
                Column::Number(number) => {
                    let last = self.last[place * self.totals.len()..].iter_mut();
                    for (((own, all), total), last) in weights().zip(last) {
                        let weight = if number == NumberColumn::Children { all } else { own };
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
                }
            }
        }
        let used = out[from..].trim_end().len();
        out.truncate(from + used);
        out.push('\n');
        let Some(wanted) = self.view.graph.filter(|_| has_calls) else { return };
        let least_period = self.view.least_period(self.event, wanted);
        let trees = self.trees.get_or_insert_with(|| self.view.hot.trees());
        match wanted.form {
            CallForm::Graph | CallForm::Fractal => {
                let tree = trees.tree(self.event, row, wanted.order, least_period);
                self.tree(&tree, wanted, row, out);
            }
            CallForm::Flat | CallForm::Folded => {
                let tree = trees.tree(self.event, row, wanted.order, 1);
                for (weight, chain) in tree.chains() {
                    if weight.period >= least_period {
                        self.chain(weight, &chain, wanted.form, out);
                    }
                }
            }
        }
    }

    /// Prints a chain by itself.
    fn chain(&self, weight: Weight, chain: &[Spot], form: CallForm, out: &mut String) {
        let share = percent(weight, self.totals[0]);
        if form == CallForm::Folded {
            write_to(out, format_args!("{share:.2}% "));
            for (place, spot) in chain.iter().enumerate() {
                if place > 0 {
                    out.push(';');
                }
                let from = out.len();
                push_spot_name(self.view, *spot, out);
                if out[from..].contains(';') {
                    let name = out[from..].replace(';', ":");
                    out.truncate(from);
                    out.push_str(&name);
                }
            }
            out.push('\n');
            return;
        }
        out.push_str("           ");
        self.style.paint(out, ink(share), &format!("{share:.2}%"));
        out.push('\n');
        for spot in chain {
            out.push_str("                ");
            push_spot_name(self.view, *spot, out);
            out.push('\n');
        }
        out.push('\n');
    }

    fn tree(&self, tree: &Tree, wanted: Calls, row: &Row, out: &mut String) {
        if tree.roots.is_empty() {
            return;
        }
        let mut rails = " ".repeat(12);
        let whole = match (wanted.form, wanted.order) {
            (CallForm::Fractal, Order::Caller) => row.total,
            (CallForm::Fractal, Order::Callee) => row.own,
            _ => self.totals[0],
        };
        self.calls(&tree.roots, (None, whole), &mut rails, out);
        out.push('\n');
    }

    /// Prints calls side by side; `above` is what goes through what is above them, in one line with which a single call
    /// stands, and shares are of `whole`.
    fn calls(&self, calls: &[Call], (above, whole): (Option<u64>, Weight), rails: &mut String, out: &mut String) {
        let is_fractal = self.view.graph.is_some_and(|wanted| wanted.form == CallForm::Fractal);
        for (place, call) in calls.iter().enumerate() {
            let is_last = place + 1 == calls.len();
            // What is called by one only, and always, stands below it without a branch.
            let is_straight = calls.len() == 1 && above.is_some_and(|above| above == call.weight.period);
            let before = rails.len();
            out.push_str(rails);
            if !is_straight {
                let share = percent(call.weight, whole);
                let text = format!("{share:.2}%");
                out.push_str("|--");
                self.style.paint(out, ink(share), &text);
                out.push_str("--");
                rails.push(if is_last { ' ' } else { '|' });
                rails.extend(std::iter::repeat_n(' ', 4 + text.len()));
            }
            push_spot_name(self.view, call.spot, out);
            out.push('\n');
            let whole = if is_fractal { call.weight } else { whole };
            self.calls(&call.next, (Some(call.weight.period), whole), rails, out);
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
