//! The live view on a terminal: what keys do, and how it is drawn.
//!
//! What it is: [`View`] is what is looked at; [`View::press`] changes it, [`draw`] puts it on a screen. Read first: [`View`].
//!
//! **Invariant:** drawing changes nothing but where the list begins; each key that does something stands in [`KEYS`].

use super::facts::{Facts, is_waits};
use super::interval::{Choice, Interval, Row, RowId, WAITS};
use super::text::{before_name, behind_name, headings, headline, numbers, remark};
use crate::columns::{fit, width};
use crate::options::top::TopKey;
use crate::stderr::visible;
use crate::theme::{Theme, left_and_right};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEventKind};
use ratatui::text::{Line, Span};
use std::time::{Duration, Instant};

/// What keys do.
const KEYS: [(&str, &str); 17] = [
    ("Up Down, j k", "to the next line"),
    ("PgUp PgDn", "a page of lines"),
    ("g G, Home End", "to the first line, to the last one"),
    ("Enter, Right", "show who called a function, or what anything else ran, and who ended waits; again: hide it"),
    ("s S", "make lines of something else: functions, processes, threads, control groups, programs, CPUs"),
    ("e", "show the next event"),
    ("w", "show what threads wait for (with --off-cpu), and what runs"),
    ("i", "of waits, show also threads that did nothing else"),
    ("/", "show only lines with a text; Esc shows all again"),
    ("K U", "of what runs, hide what is in the kernel, or in programs"),
    ("Space, f", "freeze what is shown, and go on"),
    ("o", "save the last 30 seconds as a recording; of what is frozen, those before"),
    ("r", "the same, and end: pmux report opens it"),
    ("+ -", "show longer intervals, or shorter ones"),
    ("?, F1", "this page"),
    ("Ctrl-Z", "stop pmux; fg goes on"),
    ("q, Ctrl-C", "quit"),
];
/// Lines above the list, and below it.
const ABOVE: u16 = 3;
const BELOW: u16 = 1;
const SORTS: [TopKey; 6] = [TopKey::Symbol, TopKey::Process, TopKey::Thread, TopKey::Cgroup, TopKey::Dso, TopKey::Cpu];

/// So long the answer to a key is seen.
const ANSWERS: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(super) struct View {
    choice: Choice,
    /// The event that is shown when waits are not.
    event: usize,
    interval: Interval,
    /// Whether the interval stays.
    pub(super) is_frozen: bool,
    rows: Vec<Row>,
    selected: usize,
    /// The first line of the list that is seen.
    top: usize,
    /// The row that shows what it has inside.
    open: Option<RowId>,
    inside: Vec<(f64, String)>,
    /// The text that is typed for the filter.
    typing: bool,
    shows_help: bool,
    /// What is answered to the last key, and when that was.
    said: Option<(String, Instant)>,
    /// How many lines of the list there were room for.
    page: usize,
}

/// What a key asks of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Nothing,
    Quit,
    Suspend,
    /// A recording of the last seconds, and to look at it.
    Save,
    Report,
    /// Another interval: twice as long, or half.
    Longer,
    Shorter,
}

impl View {
    /// One that has nothing to show yet.
    pub(super) fn new(choice: Choice) -> Self {
        Self { choice, ..Self::default() }
    }

    /// Shows another interval, and returns the one before.
    pub(super) fn show(&mut self, interval: Interval) -> Interval {
        let before = std::mem::replace(&mut self.interval, interval);
        self.refresh();
        before
    }

    /// Makes the rows anew. The cursor stays on its row while it is among the first; the row that is open stays open.
    fn refresh(&mut self) {
        self.interval.prepare(&self.choice);
        let on = self.rows.get(self.selected).map(|row| row.id.clone()).filter(|_| self.selected > 0);
        self.rows = self.interval.rows(&self.choice);
        let place = on.and_then(|on| self.rows.iter().position(|row| row.id == on));
        self.selected = place.unwrap_or(self.selected).min(self.rows.len().saturating_sub(1));
        self.look_inside();
    }

    fn look_inside(&mut self) {
        let row = self.rows.iter().find(|row| Some(&row.id) == self.open.as_ref());
        self.inside = row.map_or_else(Vec::new, |row| self.interval.inside(row, &self.choice));
    }

    fn move_by(&mut self, lines: isize) {
        self.selected = self.selected.saturating_add_signed(lines).min(self.rows.len().saturating_sub(1));
    }

    fn sort_by(&mut self, step: usize) {
        let at = SORTS.iter().position(|&key| key == self.choice.key).unwrap_or(0);
        self.choice.key = SORTS[(at + step) % SORTS.len()];
        (self.selected, self.top, self.open) = (0, 0, None);
        self.rows.clear();
        self.refresh();
    }

    /// Answers a key.
    pub(super) fn say(&mut self, text: String) {
        self.said = Some((text, Instant::now()));
    }

    pub(super) fn shows_waits(&self) -> bool {
        is_waits(self.choice.event)
    }

    fn show_event(&mut self, event: usize) {
        if is_waits(event) != is_waits(self.choice.event) {
            (self.selected, self.top, self.open) = (0, 0, None);
            self.rows.clear();
        }
        self.choice.event = event;
        self.refresh();
    }

    pub(super) fn press(&mut self, event: &Event, facts: &Facts) -> Asked {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.said = None;
                return self.key(*key, facts);
            }
            Event::Mouse(mouse) if mouse.kind == MouseEventKind::ScrollUp => self.move_by(-3),
            Event::Mouse(mouse) if mouse.kind == MouseEventKind::ScrollDown => self.move_by(3),
            _ => {}
        }
        Asked::Nothing
    }

    fn key(&mut self, key: KeyEvent, facts: &Facts) -> Asked {
        let page = self.page.max(1).cast_signed();
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Asked::Quit,
                KeyCode::Char('z') => return Asked::Suspend,
                KeyCode::Char('u') if self.typing => self.filter(String::clear),
                _ => {}
            }
            return Asked::Nothing;
        }
        match key.code {
            KeyCode::Esc if self.shows_help => self.shows_help = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter(String::clear);
            }
            KeyCode::Enter if self.typing => self.typing = false,
            KeyCode::Backspace if self.typing => {
                self.filter(|text| text.truncate(text.char_indices().next_back().map_or(0, |(at, _)| at)));
            }
            KeyCode::Char(letter) if self.typing => self.filter(|text| text.push(letter)),
            KeyCode::Char('q') if self.shows_help => self.shows_help = false,
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Char('?') | KeyCode::F(1) => self.shows_help = !self.shows_help,
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::PageDown => self.move_by(page),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = self.rows.len().saturating_sub(1),
            KeyCode::Enter | KeyCode::Right | KeyCode::Left => {
                let on = self.rows.get(self.selected).map(|row| row.id.clone());
                self.open = on.filter(|on| self.open.as_ref() != Some(on) && key.code != KeyCode::Left);
                self.look_inside();
            }
            KeyCode::Char('s') | KeyCode::Tab => self.sort_by(1),
            KeyCode::Char('S') | KeyCode::BackTab => self.sort_by(SORTS.len() - 1),
            KeyCode::Char('e' | 'w') if self.shows_waits() => self.show_event(self.event),
            KeyCode::Char('e') => self.show_event((self.choice.event + 1) % facts.events.len().max(1)),
            KeyCode::Char('w') if facts.has_waits => {
                self.event = self.choice.event;
                self.show_event(WAITS.into());
            }
            KeyCode::Char('i') => {
                self.choice.shows_idle = !self.choice.shows_idle;
                self.refresh();
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('K' | 'U') if self.shows_waits() => {}
            KeyCode::Char('K') => {
                self.choice.hides_kernel = !self.choice.hides_kernel;
                self.choice.hides_user = false;
                self.refresh();
            }
            KeyCode::Char('U') => {
                self.choice.hides_user = !self.choice.hides_user;
                self.choice.hides_kernel = false;
                self.refresh();
            }
            KeyCode::Char('o') => return Asked::Save,
            KeyCode::Char('r') => return Asked::Report,
            KeyCode::Char(' ' | 'f') => self.is_frozen = !self.is_frozen,
            KeyCode::Char('+') => return Asked::Longer,
            KeyCode::Char('-') => return Asked::Shorter,
            _ => {}
        }
        Asked::Nothing
    }

    fn filter(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.choice.filter);
        self.refresh();
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View, facts: &Facts, theme: Theme) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let columns = usize::from(area.width);
    if area.width < 40 || area.height < 8 {
        buffer.set_stringn(0, 0, "Too small: 40 columns and 8 lines are needed; q quits.", columns, Theme::plain());
        return;
    }
    let (left, right) = headline(facts, &view.interval, &view.choice);
    let title = Span::styled(format!(" {}", visible(&left)), Theme::strong());
    left_and_right(buffer, area.width, 0, vec![title], vec![Span::raw(right)]);
    let cost = remark(facts, &view.interval);
    view.said.take_if(|(_, since)| since.elapsed() > ANSWERS);
    let state = match (view.is_frozen, view.said.as_ref().map(|(text, _)| text).or(facts.note.as_ref())) {
        (_, Some(said)) if view.said.is_some() => Span::styled(format!(" {}", visible(said)), theme.remark()),
        (true, _) => Span::styled(" frozen: Space goes on".to_owned(), theme.remark()),
        (false, Some(note)) => Span::styled(format!(" {}", visible(note)), theme.remark()),
        (false, None) => Span::raw(String::new()),
    };
    left_and_right(buffer, area.width, 1, vec![state], vec![Span::styled(cost, Theme::faint())]);
    let room = usize::from(area.height - ABOVE - BELOW);
    view.page = room;
    if view.shows_help {
        draw_help(buffer, area.height);
        return;
    }
    let heads = fit(&headings(facts, &view.choice), columns);
    buffer.set_line(0, 2, &Line::from(Span::styled(heads, theme.headings())), area.width);
    draw_rows(buffer, view, facts, theme, room);
    draw_foot(buffer, view, facts, theme, area.height - 1);
}

fn draw_help(buffer: &mut Buffer, height: u16) {
    let width_of = KEYS.iter().map(|(key, _)| width(key)).max().unwrap_or(0);
    for (y, (key, what)) in (ABOVE..height).zip(KEYS) {
        let line =
            Line::from(vec![Span::styled(format!("  {}  ", fit(key, width_of)), Theme::strong()), Span::raw(what)]);
        buffer.set_line(0, y, &line, buffer.area.width);
    }
}

fn draw_rows(buffer: &mut Buffer, view: &mut View, facts: &Facts, theme: Theme, room: usize) {
    let columns = usize::from(buffer.area.width);
    if view.rows.is_empty() {
        let text = match (view.interval.took.is_zero(), view.choice.filter.is_empty()) {
            (true, _) => "The first samples come in a moment.",
            (false, true) if is_waits(view.choice.event) => {
                "No thread waited for a part of the time only: i shows all."
            }
            (false, true) => "Nothing ran, or all of it is hidden.",
            (false, false) => "No line has this text: Esc shows all of them.",
        };
        buffer.set_stringn(2, ABOVE + 1, text, columns - 2, Theme::faint());
        return;
    }
    let is_open = |row: &Row| view.open.as_ref() == Some(&row.id);
    // What is inside a row stands below it: the cursor and as much of that as there is room for are seen.
    let before = |end: usize| end + if view.rows[..end].iter().any(is_open) { view.inside.len() } else { 0 };
    let at = before(view.selected);
    let end = at + if is_open(&view.rows[view.selected]) { view.inside.len() } else { 0 };
    view.top = view.top.max((end + 1).saturating_sub(room)).min(at);
    let program_columns = (columns / 3).min(28);
    let busy_period = view.interval.totals(&view.choice).busy_period;
    let mut y = 0_usize;
    for (index, row) in view.rows.iter().enumerate() {
        let (share, time) = numbers(facts, &view.interval, &view.choice, busy_period, row);
        let before_name = before_name(&view.choice, row);
        let used = 9 + width(&time) + 2 + width(&before_name);
        let place = behind_name(&view.choice, row);
        let has_place = !place.is_empty();
        let name_columns = columns.saturating_sub(used + if has_place { program_columns + 2 } else { 0 });
        let name_style = if row.is_kernel { theme.kernel() } else { Theme::plain() };
        let mut spans = vec![
            Span::styled(format!("{share:7.2}% "), theme.share(share)),
            Span::raw(format!("{time}  ")),
            Span::styled(before_name, Theme::faint()),
            Span::styled(fit(&visible(&row.name), name_columns), name_style),
        ];
        if has_place {
            spans.push(Span::styled(format!("  {}", fit(&visible(&place), program_columns)), Theme::faint()));
        }
        let mut lines = vec![Line::from(spans)];
        if is_open(row) {
            lines.extend(view.inside.iter().map(|(part, text)| {
                let text = fit(&visible(text), columns.saturating_sub(27));
                Line::from(vec![
                    Span::raw(" ".repeat(17)),
                    Span::styled(format!("{part:7.2}% "), theme.share(*part)),
                    Span::styled(text, Theme::plain()),
                ])
            }));
        }
        for (part, line) in lines.into_iter().enumerate() {
            if let Some(seen) = y.checked_sub(view.top).filter(|&seen| seen < room) {
                let line_y = ABOVE + seen as u16;
                buffer.set_line(0, line_y, &line, buffer.area.width);
                if index == view.selected && part == 0 {
                    let on = ratatui::layout::Rect { x: 0, y: line_y, width: buffer.area.width, height: 1 };
                    buffer.set_style(on, Theme::selected());
                }
            }
            y += 1;
        }
    }
}

fn draw_foot(buffer: &mut Buffer, view: &View, facts: &Facts, theme: Theme, y: u16) {
    if view.typing || !view.choice.filter.is_empty() {
        let text = format!(" /{}{}", view.choice.filter, if view.typing { "_" } else { "" });
        buffer.set_line(0, y, &Line::from(Span::styled(visible(&text), theme.found())), buffer.area.width);
        return;
    }
    let hidden = match (view.choice.hides_kernel, view.choice.hides_user) {
        (true, _) => "K kernel is hidden",
        (_, true) => "U programs are hidden",
        _ => "K U hide",
    };
    let (waits, hidden) = match (facts.has_waits, is_waits(view.choice.event)) {
        (false, _) => (None, hidden),
        (true, false) => (Some("w waits"), hidden),
        (true, true) if view.choice.shows_idle => (Some("w what runs"), "i hide idle"),
        (true, true) => (Some("w what runs"), "i idle"),
    };
    let keys = ["Enter callers", "s lines of", "/ filter", "Space freeze", hidden, "? help", "q quit"];
    let mut keys: Vec<&str> = waits.into_iter().chain(keys).collect();
    // How to be helped, and how to leave, stay to the last.
    for least in ["Space freeze", "s lines of", "/ filter"] {
        if keys.iter().map(|key| width(key) + 3).sum::<usize>() > usize::from(buffer.area.width) {
            keys.retain(|key| *key != least);
        }
    }
    let mut spans = vec![Span::raw(" ")];
    for key in keys {
        let (letter, what) = key.split_once(' ').unwrap_or((key, ""));
        spans.push(Span::styled(letter, theme.key()));
        spans.push(Span::raw(format!(" {what}   ")));
    }
    buffer.set_line(0, y, &Line::from(spans), buffer.area.width);
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::facts;
    use super::super::interval::tests::shop;
    use super::*;
    use crate::style::Color;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn lines(view: &mut View, columns: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, &facts(), Theme { colours: Color::Off })).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    fn press(view: &mut View, keys: &[KeyCode]) -> Asked {
        let event = |code| Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        keys.iter().map(|&key| view.press(&event(key), &facts())).last().unwrap()
    }

    fn view() -> View {
        let mut view = View::default();
        view.show(shop());
        view
    }

    #[test]
    fn a_screen_has_all_of_it() {
        let seen = lines(&mut view(), 90, 10);
        assert!(seen[0].starts_with(" pmux top: cpu-clock of all CPUs  "), "{}", seen[0]);
        assert!(seen[0].ends_with("  33.0 % of 2 CPUs busy, 6 samples in 0.0 s") && seen[0].len() == 90, "{}", seen[0]);
        assert!(seen[1].ends_with("pmux itself takes 0.25 % of a CPU"), "{}", seen[1]);
        assert_eq!(seen[2], "   Share    CPU%     Symbol");
        assert!(
            seen[3].starts_with("  75.76%    50.0%  [k] read  ") && seen[3].contains("[kernel.kallsyms]"),
            "{}",
            seen[3]
        );
        assert!(seen[9].contains("Enter callers") && seen[9].contains("q quit"), "{}", seen[9]);
    }

    #[test]
    fn how_to_leave_is_seen_on_a_narrow_screen() {
        let mut terminal = Terminal::new(TestBackend::new(80, 10)).unwrap();
        let facts = Facts { has_waits: true, ..facts() };
        let mut view = view();
        for (press, foot) in [(None, " w waits "), (Some('w'), " w what runs "), (Some('i'), "i hide idle")] {
            let event = |letter| Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
            if let Some(letter) = press {
                view.press(&event(letter), &facts);
            }
            terminal.draw(|frame| draw(frame, &mut view, &facts, Theme { colours: Color::Off })).unwrap();
            let buffer = terminal.backend().buffer();
            let line = (0..80).map(|x| buffer[(x, 9)].symbol()).collect::<String>();
            assert!(line.contains(foot) && line.contains("? help   q quit"), "{line}");
        }
    }

    #[test]
    fn a_row_opens_and_closes() {
        let mut view = view();
        press(&mut view, &[KeyCode::Enter]);
        let seen = lines(&mut view, 90, 10);
        assert!(seen[4].ends_with("60.00% < serve < main") && seen[5].ends_with("40.00% < main"), "{seen:#?}");
        assert!(seen[6].contains("serve"), "{seen:#?}");
        press(&mut view, &[KeyCode::Enter]);
        assert!(lines(&mut view, 90, 10)[4].contains("serve"));
    }

    #[test]
    fn the_cursor_is_seen_on_a_small_screen() {
        let mut view = view();
        press(&mut view, &[KeyCode::Enter, KeyCode::End, KeyCode::Enter]);
        let seen = lines(&mut view, 60, 8);
        assert!(seen.iter().any(|line| line.contains("[unknown]")), "{seen:#?}");
        assert!(seen.iter().any(|line| line.contains("no caller")), "{seen:#?}");
        press(&mut view, &[KeyCode::Home]);
        assert!(lines(&mut view, 60, 8)[3].contains("read"));
        assert!(lines(&mut view, 39, 8)[0].starts_with("Too small"));
    }

    #[test]
    fn keys_choose_what_is_shown() {
        let mut view = view();
        press(&mut view, &[KeyCode::Char('s')]);
        assert!(lines(&mut view, 80, 10)[3].contains("      7  p7"), "{:#?}", lines(&mut view, 80, 10));
        press(&mut view, &[KeyCode::Char('S'), KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Char('x')]);
        let seen = lines(&mut view, 80, 10);
        assert!(seen[4].contains("No line has this text") && seen[9] == " /qx_", "{seen:#?}");
        assert_eq!(press(&mut view, &[KeyCode::Esc, KeyCode::Char('K')]), Asked::Nothing);
        assert!(lines(&mut view, 80, 10)[3].contains("serve"));
        assert_eq!(press(&mut view, &[KeyCode::Char('?')]), Asked::Nothing);
        assert!(lines(&mut view, 100, 22)[19].contains("quit"), "{:#?}", lines(&mut view, 100, 22));
        // The first one closes the page, the second one the view.
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Asked::Nothing);
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Asked::Quit);
    }
}
