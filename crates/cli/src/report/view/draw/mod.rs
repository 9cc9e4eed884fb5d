//! The screen, drawn.
//!
//! What it is: [`draw`] puts a [`State`] on a terminal: a title, where one is, headings, a list ([`table`], [`source`], or texts), what is
//! to be said, and keys. Read first: [`draw`].
//!
//! **Invariant:** nothing is remembered from one screen to the next: it is a function of the state, the size and the theme.

mod source;
mod table;

#[cfg(test)]
mod tests;

use crate::theme::{Theme, left_and_right};

use super::state::{LINES_ABOVE, LINES_BELOW, Pick, Screen, Scroll, Stage, State, Typing};
use super::text_screens::{self, TextLine};
use crate::columns::{fit, width};
use crate::report::{percent, table::short_count};
use pmux::profile::Weight;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Less than this is no use.
const LEAST_COLUMNS: u16 = 40;
const LEAST_LINES: u16 = 8;

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, theme: Theme) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < LEAST_COLUMNS || area.height < LEAST_LINES {
        too_small(buffer, area);
        return;
    }
    let mut pen = Pen { buffer, width: area.width, theme };
    pen.both(0, title(state), progress(state, theme));
    let list = Rect { y: LINES_ABOVE, height: area.height - LINES_ABOVE - LINES_BELOW, ..area };
    match &state.screen {
        Screen::Table => {
            pen.both(1, zooms(state, theme), filtered(state, theme));
            table::draw(&mut pen, state, list);
        }
        Screen::Pick(pick) => {
            let question = format!(" Which {}? Enter picks it, Esc goes back", pick.what);
            pen.both(1, vec![Span::styled(question, Theme::strong())], Vec::new());
            draw_pick(&mut pen, pick, list);
        }
        Screen::Source(screen) => source::draw(&mut pen, state, screen, list),
        Screen::Info(scroll) => draw_text(&mut pen, " About the recording", state, scroll, list),
        Screen::Help(scroll) => draw_text(&mut pen, " Keys", state, scroll, list),
    }
    status(&mut pen, state, area.height - 2);
    keys(&mut pen, &state.screen, area.height - 1);
}

fn too_small(buffer: &mut Buffer, area: Rect) {
    let lines = [
        format!("Too small: {} columns and {} lines.", area.width, area.height),
        format!("{LEAST_COLUMNS} and {LEAST_LINES} are needed; q quits."),
    ];
    for (y, line) in (area.y..area.bottom()).zip(&lines) {
        buffer.set_stringn(area.x, y, line, usize::from(area.width), Style::new());
    }
}

/// Writes lines.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    width: u16,
    theme: Theme,
}

impl Pen<'_> {
    fn line(&mut self, y: u16, spans: Vec<Span<'_>>) {
        self.buffer.set_line(0, y, &Line::from(spans), self.width);
    }

    /// Writes on the left, and as far as there is room on the right.
    fn both(&mut self, y: u16, left: Vec<Span<'_>>, right: Vec<Span<'_>>) {
        left_and_right(self.buffer, self.width, y, left, right);
    }

    /// Marks the line that the cursor is on.
    fn select(&mut self, y: u16) {
        self.buffer.set_style(Rect { x: 0, y, width: self.width, height: 1 }, Theme::selected());
    }

    /// A text in the middle of where a list would be.
    fn instead(&mut self, list: Rect, texts: &[&str]) {
        let top = list.y + list.height.saturating_sub(texts.len() as u16) / 2;
        for (y, text) in (top..list.bottom()).zip(texts) {
            let text = fit(text, width(text).min(usize::from(self.width)));
            let x = (usize::from(self.width) - width(&text)) / 2;
            self.buffer.set_string(x as u16, y, text, Theme::plain());
        }
    }
}

/// What a share takes of a line.
const SHARE: usize = 9;

/// `12.34%`, of as many columns.
fn share(part: Weight, whole: Weight, theme: Theme) -> Span<'static> {
    let percent = percent(part, whole);
    Span::styled(format!("{:>SHARE$}", format!("{percent:.2}%")), theme.share(percent))
}

/// A bar of so many columns: what was met in it, and what was met below it.
fn bar(own: Weight, total: Weight, whole: Weight, columns: usize, theme: Theme) -> Vec<Span<'static>> {
    let cells = |weight: Weight| (percent(weight, whole) / 100.0 * columns as f64).round().min(columns as f64) as usize;
    let more = if total.period >= own.period { total } else { own };
    let (own_cells, total_cells) = (cells(own), cells(more));
    vec![
        Span::styled("█".repeat(own_cells), theme.share(percent(own, whole))),
        Span::styled("░".repeat(total_cells - own_cells), theme.share(percent(total, whole))),
        Span::raw(" ".repeat(columns - total_cells)),
    ]
}

fn title(state: &State) -> Vec<Span<'_>> {
    let mut spans = vec![Span::styled(format!(" {}", state.name), Theme::strong())];
    if let Some(event) = state.overview.events.get(state.query.event) {
        let events = state.events();
        let which = match events.iter().position(|&event| event == state.query.event) {
            Some(place) if events.len() > 1 => format!(" ({} of {})", place + 1, events.len()),
            _ => String::new(),
        };
        spans.push(Span::styled("  ", Theme::plain()));
        spans.push(Span::styled(format!("{}{which}", event.name), Theme::strong()));
        let total = state.table.data.as_ref().filter(|data| data.query == state.query);
        let total = total.map_or(event.total, |data| data.total);
        let text = format!("  {} samples, {}", short_count(total.samples), short_count(total.period));
        spans.push(Span::styled(text, Theme::faint()));
    }
    spans
}

fn progress(state: &State, theme: Theme) -> Vec<Span<'_>> {
    const BAR: usize = 10;
    match state.stage {
        Stage::Beginning => vec![Span::styled(" reading… ", theme.remark())],
        Stage::Reading(progress, _) => {
            let mib = progress.bytes >> 20;
            let text = match progress.of_bytes {
                Some(all) if all > 0 => {
                    let done = (progress.bytes * BAR as u64 / all).min(BAR as u64) as usize;
                    let bar = format!("{}{}", "█".repeat(done), "░".repeat(BAR - done));
                    format!(" reading {bar} {:>2} % of {} MiB ", 100 * progress.bytes / all, (all >> 20).max(1))
                }
                _ => format!(" reading: {mib} MiB "),
            };
            vec![Span::styled(text, theme.remark())]
        }
        Stage::Finished if state.is_waiting() => vec![Span::styled(" … ", theme.remark())],
        Stage::Finished => Vec::new(),
    }
}

fn zooms(state: &State, theme: Theme) -> Vec<Span<'_>> {
    let mut spans =
        vec![Span::styled(" everything", if state.query.zooms.is_empty() { Theme::faint() } else { Theme::plain() })];
    for zoom in &state.query.zooms {
        spans.push(Span::styled(" › ", Theme::faint()));
        spans.push(Span::styled(zoom.label.as_str(), theme.zoom()));
    }
    let data = state.table.data.as_ref().filter(|data| data.query == state.query);
    if let (false, Some(data), Some(event)) =
        (state.query.zooms.is_empty(), data, state.overview.events.get(state.query.event))
    {
        let text = format!("  {:.2}% of everything", percent(data.total, event.total));
        spans.push(Span::styled(text, Theme::faint()));
    }
    spans
}

fn filtered(state: &State, theme: Theme) -> Vec<Span<'_>> {
    let Some(data) = state.table.data.as_ref().filter(|_| !state.table.filter.is_empty()) else { return Vec::new() };
    let (rows, own) = state.table.shown;
    let text = format!(" {rows} of {} rows, {:.2}% ", data.lines.len(), percent(own, data.total));
    vec![Span::styled(format!(" filter: {}", state.table.filter), theme.found()), Span::styled(text, Theme::faint())]
}

fn draw_pick(pen: &mut Pen<'_>, pick: &Pick, list: Rect) {
    let theme = pen.theme;
    pen.line(2, vec![Span::styled(fit("    Share  ", usize::from(pen.width)), theme.headings())]);
    if pick.entries.is_empty() {
        pen.instead(list, &["nothing of this name"]);
    }
    let entries = pick.entries.iter().enumerate().skip(pick.scroll.top);
    for (y, (at, entry)) in (list.y..list.bottom()).zip(entries) {
        let mut spans = vec![share(entry.weight, entry.of, theme), Span::raw("  ")];
        spans.extend(bar(entry.weight, entry.weight, entry.of, 12, theme));
        spans.push(Span::raw(format!("  {}", entry.text)));
        pen.line(y, spans);
        if at == pick.scroll.cursor {
            pen.select(y);
        }
    }
}

fn draw_text(pen: &mut Pen<'_>, title: &'static str, state: &State, scroll: &Scroll, list: Rect) {
    let theme = pen.theme;
    pen.line(1, vec![Span::styled(title, Theme::strong())]);
    let lines = text_screens::lines(&state.screen, &state.overview, usize::from(pen.width));
    for (y, line) in (list.y..list.bottom()).zip(lines.into_iter().skip(scroll.top)) {
        let spans = match line {
            TextLine::Heading(text) => vec![Span::styled(format!(" {text}"), theme.headings())],
            TextLine::Fact(what, text) => {
                vec![Span::styled(format!("  {what}  "), theme.key()), Span::styled(text, Theme::plain())]
            }
            TextLine::Plain(text) => vec![Span::styled(format!("  {text}"), Theme::plain())],
            TextLine::Remark(text) => vec![Span::styled(format!("  {text}"), theme.remark())],
        };
        pen.line(y, spans);
    }
}

fn status(pen: &mut Pen<'_>, state: &State, y: u16) {
    let theme = pen.theme;
    let filter = match &state.screen {
        Screen::Pick(pick) => &pick.filter,
        _ => &state.table.filter,
    };
    let left = match (&state.message, state.typing) {
        (_, Typing::Text) => vec![Span::styled(format!("/{filter}"), theme.found()), Span::raw("▏")],
        (Some(message), _) => vec![Span::styled(format!(" {message}"), Theme::strong())],
        (None, _) => match &state.screen {
            Screen::Table => vec![Span::raw(format!(" {}", table::selected(state)))],
            Screen::Source(screen) => {
                let remarks = screen.source.as_ref().map(|source| source.remarks.join("; ")).unwrap_or_default();
                vec![Span::styled(format!(" {remarks}"), theme.remark())]
            }
            _ => Vec::new(),
        },
    };
    let mut right = Vec::new();
    match state.overview.remarks.as_slice() {
        [] => {}
        [_] => right.push(Span::styled("  ! 1 remark: i ", theme.remark())),
        many => right.push(Span::styled(format!("  ! {} remarks: i ", many.len()), theme.remark())),
    }
    pen.both(y, left, right);
}

/// The keys that matter most, as many as there is room for.
fn keys(pen: &mut Pen<'_>, screen: &Screen, y: u16) {
    let keys: &[(&str, &str)] = match screen {
        Screen::Table => &[
            ("q", "quit"),
            ("?", "help"),
            ("→", "open"),
            ("Enter", "source"),
            ("/", "filter"),
            ("t", "thread"),
            ("z", "zoom"),
            ("Esc", "back"),
            ("< >", "sideways"),
            ("s", "sort"),
            ("Tab", "columns"),
            ("e", "event"),
            ("d", "program"),
            ("i", "info"),
        ],
        Screen::Source(_) => {
            &[("q", "back"), ("?", "help"), ("n N", "by weight"), ("a", "instructions"), ("< >", "sideways")]
        }
        Screen::Pick(_) => &[("q", "back"), ("Enter", "pick"), ("/", "filter")],
        Screen::Info(_) | Screen::Help(_) => &[("q", "back"), ("↑ ↓", "scroll")],
    };
    let (mut spans, mut used) = (Vec::new(), 0);
    for (key, what) in keys {
        let columns = width(key) + width(what) + 3;
        if used + columns > usize::from(pen.width) {
            break;
        }
        used += columns;
        spans.push(Span::styled(format!(" {key}"), pen.theme.key()));
        spans.push(Span::styled(format!(" {what} "), Theme::faint()));
    }
    pen.line(y, spans);
}
