//! A timeline as lines of a terminal.
//!
//! What it is: the machine in one line; then the run from top to bottom, statements as they came, and below each in which
//! time passed a row for every change; then what each event has counted; then what the signs mean.
//! Read first: [`page`]. `bands` puts lanes side by side, `figures` is the lower part.
//!
//! **Invariant:** whatever is written has a role; nobody here knows a colour.

use super::bands::{Band, GAP, LONGEST_HEAD, bands, cpus_text, head};
use super::figures;
use super::lanes::{LaneKind, SpanSort, View, views};
use super::line::{Line, Role, width, wrap};
use super::repeat::{Piece as Repeated, pieces};
use super::rows::{Cell, Row, Rows, Segment, segments};
use super::units::{Scale, several, span};
use super::{Mark, Marked, PmuKind, Refusal, StatementSpan, Timeline};
use pmux_engine::{CpuId, Nanos};
use std::collections::HashSet;
use std::ops::Range;

/// How a page is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// How many columns there are. Less than 40 is taken for 40.
    pub width: usize,
    /// So many rows of one statement are shown, of those that are left after what is repeated has been told once; what comes
    /// between the first and the last ones is counted.
    pub most_rows: usize,
}

impl Default for Style {
    /// 100 columns, 40 rows for a statement.
    fn default() -> Self {
        Self { width: 100, most_rows: 40 }
    }
}

/// Signs of the page.
pub(super) const GOES_ON: &str = "│";
const NOBODY: &str = "·";
const AWAY: &str = "┆";
pub(super) const HANDED: &str = "»";
const STATEMENT: &str = "▸";
const MET: &str = "✓";
pub(super) const WRONG: &str = "✗";
const MORE: &str = "⋮";

/// Repetitions that save fewer rows are written out.
const LEAST_SAVED: usize = 3;

/// A timeline as plain text, each line with a newline.
#[must_use]
pub fn render(timeline: &Timeline, style: &Style) -> String {
    page(timeline, style).iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}

/// A timeline as lines.
#[must_use]
pub fn page(timeline: &Timeline, style: &Style) -> Vec<Line> {
    let style = Style { width: style.width.max(40), most_rows: style.most_rows.max(2) };
    let views = views(timeline);
    let segments = segments(timeline);
    let mut page = Page { timeline, style, lines: Vec::new(), signs: Signs::default() };
    page.machine();
    let times = timeline.statements.iter().flat_map(|statement| [statement.from, statement.to]);
    let spans = views.iter().flat_map(|view| view.lanes.iter()).flat_map(|lane| &lane.spans);
    let scale = Scale::of(times.chain(spans.flat_map(|span| [span.from, span.to])));
    let gutter = width(&scale.text(timeline.end)).max(width(scale.unit)).max(3) + 2;
    for (index, band) in bands(&views, style.width.saturating_sub(gutter)).into_iter().enumerate() {
        page.lines.push(Line::default());
        page.band(&band, &segments, scale, gutter, if index == 0 { Story::Told } else { Story::Known });
    }
    page.lines.push(Line::default());
    figures::lines(timeline, style, &mut page.lines);
    page.legend(&views);
    page.lines
}

/// Whether statements are told that take no time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Story {
    Told,
    /// They stand above already.
    Known,
}

/// Which signs were used.
#[derive(Default)]
struct Signs {
    goes_on: bool,
    nobody: bool,
    away: bool,
    handed: bool,
    doorbells: bool,
}

struct Page<'t> {
    timeline: &'t Timeline,
    style: Style,
    lines: Vec<Line>,
    signs: Signs,
}

/// Which pieces are left out, so that not more than so many rows are shown.
fn middle(pieces: &[Repeated], most_rows: usize) -> Range<usize> {
    let all: usize = pieces.iter().map(|piece| piece.len).sum();
    if all <= most_rows {
        return 0..0;
    }
    let fit = |pieces: &mut dyn Iterator<Item = &Repeated>, mut room: usize| {
        pieces
            .take_while(|piece| {
                let fits = piece.len <= room;
                room = room.saturating_sub(piece.len);
                fits
            })
            .count()
    };
    let first = fit(&mut pieces.iter(), most_rows.div_ceil(2));
    let last = fit(&mut pieces[first..].iter().rev(), most_rows / 2);
    first..pieces.len() - last
}

/// A row, and what happened in it beside.
#[derive(PartialEq)]
struct Told {
    row: Row,
    signals: Signals,
    refused: Vec<(usize, Refusal, Option<CpuId>)>,
    lost: Vec<(usize, u64)>,
}

/// How often CPUs were called. Rows in which that was more and less often are the same.
#[derive(Clone, Copy, Default)]
struct Signals {
    interrupts: u64,
    doorbells: u64,
}

impl PartialEq for Signals {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Signals {
    /// `2 interrupts, 1 doorbell`; nothing where there were none.
    fn text(self) -> Option<String> {
        let parts = [(self.interrupts, "interrupt"), (self.doorbells, "doorbell")];
        let parts: Vec<_> =
            parts.into_iter().filter(|(times, _)| *times > 0).map(|(times, what)| several(times, what)).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl std::iter::Sum for Signals {
    fn sum<I: Iterator<Item = Self>>(signals: I) -> Self {
        signals.fold(Self::default(), |sum, more| Self {
            interrupts: sum.interrupts + more.interrupts,
            doorbells: sum.doorbells + more.doorbells,
        })
    }
}

impl Page<'_> {
    fn machine(&mut self) {
        let timeline = self.timeline;
        let mut parts = vec![several(timeline.cpus.into(), "CPU")];
        for (number, pmu) in timeline.pmus.iter().enumerate() {
            let used = timeline.holds.iter().any(|hold| hold.pmu == number);
            match (pmu.kind, pmu.counters) {
                (PmuKind::Hardware, Some(count)) => {
                    parts.push(format!("{} of {} bits", several(count.into(), "counter"), pmu.width_bits));
                    if !pmu.fixed.is_empty() {
                        let fixed = pmu.fixed.iter().map(|(slot, event)| format!("#{slot} {event}"));
                        parts.push(format!("fixed: {}", fixed.collect::<Vec<_>>().join(", ")));
                    }
                }
                (PmuKind::DebugRegisters, Some(count)) if used => {
                    parts.push(several(count.into(), "debug register"));
                }
                _ => {}
            }
        }
        parts.push(format!("a tick every {}", span(timeline.tick)));
        parts.push(format!("seed {}", timeline.seed));
        self.listed(&parts, " · ");
    }

    /// Parts side by side, none of them torn apart.
    fn listed(&mut self, parts: &[String], separator: &str) {
        let mut line = Line::default();
        for part in parts {
            if line.width() > 0 && line.width() + width(separator) + width(part) > self.style.width {
                self.lines.push(std::mem::take(&mut line));
            }
            line.put(Role::Faint, if line.width() > 0 { format!("{separator}{part}") } else { part.clone() });
        }
        self.lines.push(line);
    }

    fn band(&mut self, band: &Band<'_>, segments: &[Segment], scale: Scale, gutter: usize, story: Story) {
        self.heads(band, scale, gutter);
        let cpus: HashSet<CpuId> = band.heads.iter().flat_map(|(view, ..)| view.cpus.iter().copied()).collect();
        let timeline = self.timeline;
        // What happens in a statement that takes no time stands below that.
        let here = |mark: &&Mark| match mark.cpu {
            _ if mark.statement.is_some_and(|statement| !timeline.takes_time(statement)) => false,
            Some(cpu) => cpus.contains(&cpu),
            None => story == Story::Told,
        };
        let mut marks = timeline.marks.iter().filter(here).peekable();
        let mut rows = Rows::new(band.lanes.iter().map(|(lane, _)| *lane).collect());
        for segment in segments {
            self.statements(segment, scale, gutter, story);
            let told: Vec<Told> = rows
                .between(segment.from, segment.to)
                .into_iter()
                .map(|row| {
                    let mut told = Told { row, signals: Signals::default(), refused: Vec::new(), lost: Vec::new() };
                    while let Some(mark) = marks.next_if(|mark| mark.at < told.row.to) {
                        match mark.what {
                            Marked::Interrupt => told.signals.interrupts += 1,
                            Marked::Doorbell => told.signals.doorbells += 1,
                            Marked::Refused(event, what) => told.refused.push((event, what, mark.cpu)),
                            Marked::Lost(event, times) => told.lost.push((event, times)),
                        }
                    }
                    told
                })
                .collect();
            self.rows(band, &told, scale, gutter);
        }
        for mark in marks {
            match mark.what {
                Marked::Lost(event, times) => self.lost(event, times, gutter),
                Marked::Refused(event, what) => self.refused(event, what, mark.cpu, gutter),
                Marked::Interrupt | Marked::Doorbell => {}
            }
        }
        let end = format!("{:>w$}  end", scale.text(self.timeline.end), w = gutter - 2);
        self.lines.push(Line::of(Role::Faint, end));
    }

    fn heads(&mut self, band: &Band<'_>, scale: Scale, gutter: usize) {
        if band.heads.is_empty() {
            return;
        }
        let mut names = Line::default();
        let mut titles = Line::of(Role::Faint, format!("{:>w$}", scale.unit, w = gutter - 2));
        let mut rule = Line::default();
        for (view, start, taken) in &band.heads {
            names.pad_to(gutter + start);
            names.put(Role::Strong, head(view));
            rule.pad_to(gutter + start);
            rule.put(Role::Faint, "─".repeat(*taken));
        }
        for (lane, at) in &band.lanes {
            titles.pad_to(gutter + at);
            titles.put(Role::Faint, lane.title.clone());
        }
        self.lines.extend([names, titles, rule]);
    }

    fn statements(&mut self, segment: &Segment, scale: Scale, gutter: usize, story: Story) {
        let mut met = 0;
        let mut time = Some(segment.from);
        for &index in &segment.statements {
            let statement = &self.timeline.statements[index];
            let takes_time = self.timeline.takes_time(index);
            if story == Story::Known && !takes_time {
                continue;
            }
            if statement.expectation && statement.failure.is_none() {
                met += 1;
                continue;
            }
            self.met(&mut met, gutter);
            let at = time.take().map_or_else(String::new, |time| scale.text(time));
            self.statement(statement, &format!("{at:>w$}  ", w = gutter - 2));
            if !takes_time {
                self.beside(index, gutter);
            }
        }
        self.met(&mut met, gutter);
    }

    /// What happened in a statement that took no time.
    fn beside(&mut self, statement: usize, gutter: usize) {
        let timeline = self.timeline;
        let first = timeline.marks.partition_point(|mark| mark.statement.is_some_and(|it| it < statement));
        let mut signals = Signals::default();
        for mark in timeline.marks[first..].iter().take_while(|mark| mark.statement == Some(statement)) {
            match mark.what {
                Marked::Interrupt => signals.interrupts += 1,
                Marked::Doorbell => signals.doorbells += 1,
                Marked::Refused(event, what) => self.refused(event, what, mark.cpu, gutter),
                Marked::Lost(event, times) => self.lost(event, times, gutter),
            }
        }
        if let Some(text) = signals.text() {
            self.signs.doorbells |= signals.doorbells > 0;
            self.wrapped(&" ".repeat(gutter + 2), Role::Faint, "", &text);
        }
    }

    fn met(&mut self, met: &mut u64, gutter: usize) {
        if *met > 0 {
            let mut line = Line::default();
            line.pad_to(gutter);
            line.put(Role::Good, MET);
            line.put(Role::Faint, format!(" {}", several(*met, "expectation")));
            self.lines.push(line);
        }
        *met = 0;
    }

    fn statement(&mut self, statement: &StatementSpan, before: &str) {
        let (sign, role) = match statement.failure {
            Some(_) => (WRONG, Role::Bad),
            None => (STATEMENT, Role::Faint),
        };
        let text_role = if statement.failure.is_some() { Role::Bad } else { Role::Strong };
        self.wrapped_after(Line::of(Role::Faint, before).with(role, format!("{sign} ")), text_role, &statement.text);
        let indent = " ".repeat(width(before) + 2);
        if let Some(why) = &statement.failure {
            self.wrapped(&indent, Role::Bad, "", why);
        }
        if let Some(note) = &statement.note {
            self.wrapped(&indent, Role::Notice, "", note);
        }
    }

    fn rows(&mut self, band: &Band<'_>, told: &[Told], scale: Scale, gutter: usize) {
        // What is told once is shown or left out as a whole.
        let pieces: Vec<Repeated> = pieces(told, LEAST_SAVED)
            .into_iter()
            .flat_map(|piece| match piece.times {
                1 => (0..piece.len).map(|row| Repeated { start: piece.start + row, len: 1, times: 1 }).collect(),
                _ => vec![piece],
            })
            .collect();
        let left_out = middle(&pieces, self.style.most_rows);
        let mut anew = true;
        for (index, piece) in pieces.iter().enumerate() {
            if left_out.contains(&index) {
                if index + 1 == left_out.end {
                    let rows = pieces[left_out.clone()].iter().map(|piece| piece.len * piece.times).sum::<usize>();
                    let from = pieces.get(left_out.start).map_or(0, |piece| piece.start);
                    let what = format!("{} more", several(rows as u64, "row"));
                    self.more(&what, told.get(from..from + rows).unwrap_or_default(), (scale, gutter));
                    anew = true;
                }
                continue;
            }
            for told in &told[piece.start..piece.start + piece.len] {
                self.row(band, told, anew, (scale, gutter));
                anew = false;
            }
            if piece.times > 1 {
                let again = several(piece.times as u64 - 1, "time");
                let what = match piece.len {
                    1 => format!("the same {again} more"),
                    len => format!("these {len} rows {again} more"),
                };
                let repeated = &told[piece.start + piece.len..piece.start + piece.len * piece.times];
                self.more(&what, repeated, (scale, gutter));
                anew = true;
            }
        }
    }

    /// Says what is not written out, and how long that lasts.
    fn more(&mut self, what: &str, told: &[Told], (scale, gutter): (Scale, usize)) {
        let signals: Signals = told.iter().map(|told| told.signals).sum();
        let refusals = told.iter().map(|told| told.refused.len() as u64).sum();
        let until = told.last().map_or(Nanos::ZERO, |told| told.row.to);
        let mut line = Line::of(Role::Faint, format!("{MORE:>w$}", w = gutter - 2));
        line.pad_to(gutter);
        let mut text = format!("… {what}, until {}", scale.text(until));
        let refusals = (refusals > 0).then(|| several(refusals, "refusal"));
        let beside: Vec<String> = signals.text().into_iter().chain(refusals).collect();
        if !beside.is_empty() {
            text.push_str(&format!(", with {}", beside.join(", ")));
        }
        self.wrapped_after(line, Role::Faint, &text);
        for told in told {
            told.lost.iter().for_each(|&(event, times)| self.lost(event, times, gutter));
        }
    }

    /// A row; `anew` where what goes on must be told again, because something else stands between.
    fn row(&mut self, band: &Band<'_>, told: &Told, anew: bool, (scale, gutter): (Scale, usize)) {
        let mut line = Line::of(Role::Faint, format!("{:>w$}", scale.text(told.row.from), w = gutter - 2));
        for ((_, at), cell) in band.lanes.iter().zip(&told.row.cells) {
            line.pad_to(gutter + at);
            self.cell(&mut line, cell, anew);
        }
        if let Some(text) = told.signals.text() {
            self.signs.doorbells |= told.signals.doorbells > 0;
            let end = band.heads.iter().map(|(_, start, taken)| start + taken).max().unwrap_or(0);
            if gutter + end + GAP + width(&text) > self.style.width {
                self.lines.push(std::mem::take(&mut line));
                line.pad_to(gutter);
            } else {
                line.pad_to(gutter + end + GAP);
            }
            line.put(Role::Faint, text);
        }
        self.lines.push(line);
        for &(event, what, cpu) in &told.refused {
            self.refused(event, what, cpu, gutter);
        }
        for &(event, times) in &told.lost {
            self.lost(event, times, gutter);
        }
    }

    fn refused(&mut self, event: usize, what: Refusal, cpu: Option<CpuId>, gutter: usize) {
        let name = self.timeline.events.get(event).map_or("?", |event| event.name.as_str());
        let what = match what {
            Refusal::Program => format!("no counter for {name}"),
            Refusal::Start => format!("the counter of {name} does not start"),
            Refusal::Read => format!("the counter of {name} can't be read"),
            Refusal::HandOver => format!("{name} can't be handed over, and is programmed anew"),
        };
        let on = cpu.map_or_else(String::new, |cpu| format!(" on cpu{cpu}"));
        self.wrapped(&" ".repeat(gutter), Role::Notice, "! ", &format!("refused{on}: {what}"));
    }

    fn lost(&mut self, event: usize, times: u64, gutter: usize) {
        let name = self.timeline.events.get(event).map_or("?", |event| event.name.as_str());
        let text = format!("{} of {name} lost: the counter could not be read", several(times, "occurrence"));
        self.wrapped(&" ".repeat(gutter), Role::Bad, "! ", &text);
    }

    fn cell(&mut self, line: &mut Line, cell: &Cell, anew: bool) {
        let Some((label, sort)) = &cell.what else {
            self.signs.nobody = true;
            line.put(Role::Faint, NOBODY);
            return;
        };
        let role = match sort {
            SpanSort::Task(task) => Role::Task(*task),
            SpanSort::Event(event, _) => Role::Event(*event),
            SpanSort::Away => Role::Notice,
        };
        if cell.fresh || anew {
            if cell.handed_over() {
                self.signs.handed = true;
                line.put(Role::Faint, HANDED);
            }
            line.put(role, &**label);
        } else if *sort == SpanSort::Away {
            self.signs.away = true;
            line.put(role, AWAY);
        } else {
            self.signs.goes_on = true;
            line.put(role, GOES_ON);
        }
    }

    fn legend(&mut self, views: &[View]) {
        let mut parts = Vec::new();
        for (used, sign, meaning) in [
            (self.signs.goes_on, GOES_ON, "goes on"),
            (self.signs.nobody, NOBODY, "nobody"),
            (self.signs.handed, HANDED, "handed over, not programmed anew"),
            (self.signs.away, AWAY, "still away"),
        ] {
            if used {
                parts.push(format!("{sign} {meaning}"));
            }
        }
        if self.signs.doorbells {
            parts.push("doorbell: another CPU wants something done there".to_owned());
        }
        let has = |kind| views.iter().flat_map(|view| view.lanes.iter()).any(|lane| lane.kind == kind);
        if has(LaneKind::Counter) {
            parts.push("#0, #1, … counters of the CPU".to_owned());
        }
        if views.iter().flat_map(|view| view.lanes.iter()).any(|lane| lane.title.starts_with("dr")) {
            parts.push("dr0, dr1, … debug registers".to_owned());
        }
        if has(LaneKind::Software) {
            parts.push("software: events that need no counter".to_owned());
        }
        if !parts.is_empty() {
            self.lines.push(Line::default());
            self.listed(&parts, "   ");
        }
        let seen: HashSet<CpuId> = views.iter().flat_map(|view| view.cpus.iter().copied()).collect();
        let unseen: Vec<CpuId> = (0..self.timeline.cpus).map(CpuId).filter(|cpu| !seen.contains(cpu)).collect();
        if !unseen.is_empty() && !views.is_empty() {
            self.wrapped(
                "",
                Role::Faint,
                "",
                &format!("nothing ran or was counted on {}", cpus_text(&unseen).replace(',', ", ")),
            );
        }
        for view in views.iter().filter(|view| width(&cpus_text(&view.cpus)) > LONGEST_HEAD) {
            self.wrapped("", Role::Faint, &format!("{}: ", head(view)), &cpus_text(&view.cpus).replace(',', ", "));
        }
    }

    /// Text that goes on below where the line ends.
    fn wrapped(&mut self, indent: &str, role: Role, sign: &str, text: &str) {
        self.wrapped_after(Line::of(Role::Plain, indent).with(role, sign), role, text);
    }

    fn wrapped_after(&mut self, start: Line, role: Role, text: &str) {
        wrap(&mut self.lines, self.style.width, start, role, text);
    }
}
