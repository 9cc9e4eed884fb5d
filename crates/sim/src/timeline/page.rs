//! A timeline as text.
//!
//! What it is: the machine in one line; then the run from top to bottom, statements as they came, and below each in which
//! time passed a row for every change; then what each event has counted; then what the signs mean.
//! Read first: [`render`]. `lanes` says what stands side by side, `figures` is the lower part.
//!
//! **Invariant:** rows that are left out are counted, and so is what happened in them.

use super::lanes::{Column, CpuView, Lane, cpus_text, views};
use super::units::{Scale, pad, several, width};
use super::{Began, Mark, Marked, Refusal, StatementSpan, Timeline, figures};
use pmux_engine::{CpuId, Nanos};
use std::collections::BTreeSet;

/// So many rows of one statement are shown: the first and the last ones.
const MOST_ROWS: usize = 24;

/// Columns between the lanes of a CPU; between CPUs there are twice as many.
const GAP: usize = 2;

const GOES_ON: &str = "│";
const IDLE: &str = "·";
const HANDED: &str = "»";
const STATEMENT: &str = "▸";
const MET: &str = "✓";
pub(super) const WRONG: &str = "✗";
const MORE: &str = "⋮";

/// A timeline as text, each line with a newline. A row is as wide as its lanes are.
#[must_use]
pub fn render(timeline: &Timeline) -> String {
    let views = views(timeline);
    let spans = views.iter().flat_map(|view| &view.lanes).flat_map(|lane| &lane.spans);
    let cuts: BTreeSet<Nanos> = spans.flat_map(|span| [span.from, span.to]).collect();
    let times = timeline.statements.iter().flat_map(|statement| [statement.from, statement.to]);
    let scale = Scale::of(times.chain(cuts.iter().copied()));
    let gutter = width(&scale.text(timeline.end)).max(width(scale.unit)).max(3);
    let mut page = Page {
        timeline,
        views: &views,
        lanes: Vec::new(),
        cuts,
        scale,
        gutter,
        text: format!("{}\n\n", timeline.machine),
    };
    page.heads();
    page.run();
    page.text.push('\n');
    figures::put(timeline, &mut page.text);
    page.legend();
    page.text
}

struct Page<'t> {
    timeline: &'t Timeline,
    views: &'t [CpuView],
    /// All lanes, with the columns at which they begin.
    lanes: Vec<(&'t Lane, usize)>,
    /// When anything in any lane changes.
    cuts: BTreeSet<Nanos>,
    scale: Scale,
    /// How wide times are.
    gutter: usize,
    text: String,
}

/// What happened beside the lanes.
#[derive(Default)]
struct Beside {
    interrupts: u64,
    doorbells: u64,
    /// What was refused or lost.
    remarks: Vec<String>,
}

impl Beside {
    fn add(&mut self, mark: &Mark, timeline: &Timeline) {
        let name = |event: usize| timeline.events.get(event).map_or("?", |event| event.name.as_str());
        match mark.what {
            Marked::Interrupt => self.interrupts += 1,
            Marked::Doorbell => self.doorbells += 1,
            Marked::Refused(event, what) => {
                let name = name(event);
                let what = match what {
                    Refusal::Program => format!("no counter for {name}"),
                    Refusal::Start => format!("the counter of {name} does not start"),
                    Refusal::Read => format!("the counter of {name} can't be read"),
                    Refusal::HandOver => format!("{name} can't be handed over, and is programmed anew"),
                };
                let on = mark.cpu.map_or_else(String::new, |cpu| format!(" on cpu{cpu}"));
                self.remarks.push(format!("! refused{on}: {what}"));
            }
            Marked::Lost(event, times) => {
                let what = several(times, "occurrence");
                self.remarks.push(format!("! {what} of {} lost: the counter could not be read", name(event)));
            }
        }
    }

    /// `2 interrupts, 1 doorbell`; nothing where there were none.
    fn signals(&self) -> String {
        let parts = [(self.interrupts, "interrupt"), (self.doorbells, "doorbell")];
        let some = parts.into_iter().filter(|(times, _)| *times > 0).map(|(times, what)| several(times, what));
        some.collect::<Vec<_>>().join(", ")
    }
}

impl<'t> Page<'t> {
    /// A line with a time, or a sign, before it.
    fn line(&mut self, before: &str, text: &str) {
        let line = format!("{before:>w$}  {text}", w = self.gutter);
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// The names of CPUs and lanes; also says where lanes begin.
    fn heads(&mut self) {
        let (mut names, mut titles, mut rule) = (String::new(), String::new(), String::new());
        let mut column = 0;
        for view in self.views {
            let start = column;
            pad(&mut names, start);
            names.push_str(&view.head());
            for lane in &view.lanes {
                self.lanes.push((lane, column));
                pad(&mut titles, column);
                titles.push_str(&lane.title);
                column += lane.width() + GAP;
            }
            let end = width(&names).max(column - GAP);
            pad(&mut rule, start);
            rule.push_str(&"─".repeat(end - start));
            column = end + 2 * GAP;
        }
        if !self.views.is_empty() {
            self.line("", &names);
            self.line(self.scale.unit, &titles);
            self.line("", &rule);
        }
    }

    fn run(&mut self) {
        let timeline = self.timeline;
        let (mut now, mut printed, mut met) = (Nanos::ZERO, false, 0);
        for (index, statement) in timeline.statements.iter().enumerate() {
            let is_met = statement.expectation && statement.failure.is_none();
            if is_met {
                met += 1;
            } else {
                self.met(&mut met);
                let at = if printed { String::new() } else { self.scale.text(statement.from) };
                self.statement(&at, statement);
                printed = true;
            }
            // A reader on another CPU waits for a doorbell: an expectation may take time, too.
            if statement.to > statement.from {
                self.met(&mut met);
                self.rows(Some(index), statement.from, statement.to);
                (now, printed) = (statement.to, false);
            } else if !is_met {
                self.beside(Some(index));
            }
        }
        self.met(&mut met);
        if timeline.end > now {
            self.rows(None, now, timeline.end);
        } else {
            self.beside(None);
        }
        self.line(&self.scale.text(timeline.end), "end");
    }

    fn met(&mut self, met: &mut u64) {
        if *met > 0 {
            self.line("", &format!("{MET} {}", several(*met, "expectation")));
        }
        *met = 0;
    }

    fn statement(&mut self, at: &str, statement: &StatementSpan) {
        let sign = if statement.failure.is_some() { WRONG } else { STATEMENT };
        self.line(at, &format!("{sign} {}", statement.text));
        for more in statement.failure.iter().chain(&statement.note) {
            self.line("", &format!("  {more}"));
        }
    }

    /// What happened in a statement; `None`: behind the last one.
    fn marks(&self, statement: Option<usize>) -> &'t [Mark] {
        let number = |of: Option<usize>| of.unwrap_or(usize::MAX);
        let marks = &self.timeline.marks;
        let first = marks.partition_point(|mark| number(mark.statement) < number(statement));
        let last = marks.partition_point(|mark| number(mark.statement) <= number(statement));
        marks.get(first..last).unwrap_or_default()
    }

    /// What happened in a statement that took no time.
    fn beside(&mut self, statement: Option<usize>) {
        let mut beside = Beside::default();
        self.marks(statement).iter().for_each(|mark| beside.add(mark, self.timeline));
        beside.remarks.iter().for_each(|remark| self.line("", remark));
        if !beside.signals().is_empty() {
            self.line("", &format!("  {}", beside.signals()));
        }
    }

    /// A row for each change from one moment to another.
    fn rows(&mut self, statement: Option<usize>, from: Nanos, to: Nanos) {
        let mut starts = vec![from];
        starts.extend(self.cuts.range(from..to).filter(|&&cut| cut > from));
        let mut marks = self.marks(statement).iter().peekable();
        let left_out = match starts.len() {
            all if all > MOST_ROWS => MOST_ROWS / 2..all - MOST_ROWS / 2,
            _ => 0..0,
        };
        let mut beside = Beside::default();
        for (index, &at) in starts.iter().enumerate() {
            let next = starts.get(index + 1).copied();
            while let Some(mark) = marks.next_if(|mark| next.is_none_or(|next| mark.at < next)) {
                beside.add(mark, self.timeline);
            }
            if left_out.contains(&index) {
                if index + 1 == left_out.end {
                    self.more(left_out.len(), next.unwrap_or(to), &std::mem::take(&mut beside));
                }
                continue;
            }
            self.row(at, index == 0 || index == left_out.end, &std::mem::take(&mut beside));
        }
    }

    /// Says what is not written out, and how long that lasts.
    fn more(&mut self, rows: usize, until: Nanos, beside: &Beside) {
        let mut text = format!("… {} more, until {}", several(rows as u64, "row"), self.scale.text(until));
        let remarks = (!beside.remarks.is_empty()).then(|| several(beside.remarks.len() as u64, "remark"));
        let with: Vec<String> = [beside.signals()].into_iter().filter(|text| !text.is_empty()).chain(remarks).collect();
        if !with.is_empty() {
            text.push_str(&format!(", with {}", with.join(", ")));
        }
        self.line(MORE, &text);
    }

    /// A row; `anew` where what goes on must be told again, because something else stands between.
    fn row(&mut self, at: Nanos, anew: bool, beside: &Beside) {
        let mut text = String::new();
        for &(lane, column) in &self.lanes {
            pad(&mut text, column);
            match lane.at(at) {
                None => text.push_str(IDLE),
                Some(span) if span.from < at && !anew => text.push_str(GOES_ON),
                Some(span) => {
                    if span.from == at && span.began == Began::HandedOver {
                        text.push_str(HANDED);
                    }
                    text.push_str(&span.label);
                }
            }
        }
        if !beside.signals().is_empty() {
            let end = self.lanes.last().map_or(0, |(lane, column)| column + lane.width() + GAP);
            pad(&mut text, end);
            text.push_str(&beside.signals());
        }
        self.line(&self.scale.text(at), &text);
        beside.remarks.iter().for_each(|remark| self.line("", remark));
    }

    fn legend(&mut self) {
        let spans = || self.lanes.iter().flat_map(|(lane, _)| &lane.spans);
        let has = |wanted: fn(Column) -> bool| self.lanes.iter().any(|(lane, _)| wanted(lane.column));
        let signs = [
            (!self.lanes.is_empty(), "│ goes on   · no task"),
            (spans().any(|span| span.began == Began::HandedOver), "» handed over, not programmed anew"),
            (
                self.timeline.marks.iter().any(|mark| mark.what == Marked::Doorbell),
                "doorbell: another CPU wants something done there",
            ),
            (has(|column| matches!(column, Column::Counter(..))), "#0, #1, … counters of the CPU"),
            (self.lanes.iter().any(|(lane, _)| lane.title.starts_with("dr")), "dr0, dr1, … debug registers"),
            (has(|column| matches!(column, Column::Software(_))), "sw: an event that needs no counter"),
        ];
        let used: Vec<&str> = signs.into_iter().filter(|(used, _)| *used).map(|(_, sign)| sign).collect();
        if !used.is_empty() {
            self.text.push_str(&format!("\n{}\n", used.join("   ")));
        }
        let seen: BTreeSet<CpuId> = self.views.iter().flat_map(|view| view.cpus.iter().copied()).collect();
        let unseen: Vec<CpuId> = (0..self.timeline.cpus).map(CpuId).filter(|cpu| !seen.contains(cpu)).collect();
        if !unseen.is_empty() && !self.views.is_empty() {
            self.text.push_str(&format!("nothing ran or was counted on {}\n", cpus_text(&unseen)));
        }
        for view in self.views.iter().filter(|view| view.is_long()) {
            self.text.push_str(&format!("{}: {}\n", view.head(), cpus_text(&view.cpus)));
        }
    }
}
