//! What is looked at: the state of the view.
//!
//! What it is: keys ([`Action`]) and answers of the reader ([`ReaderMessage`]) change it; what it wants to see is [`State::request`].
//! Read first: [`State`], then [`State::act`].
//!
//! **Invariant:** no terminal, no clock, no file: the same actions and answers give the same screen.

mod pick;
mod scroll;
mod source;
mod table;

#[cfg(test)]
mod tests;

pub(super) use pick::{Choice, Pick};
pub(super) use scroll::Scroll;
pub(super) use source::SourceScreen;
pub(super) use table::{Expansion, Item, Sort, Table};

use super::messages::{CallStep, Chains, Overview, ReaderMessage, RowKey, TableQuery, ViewRequest, Zoom, ZoomTarget};
use super::text_screens;
use crate::columns::width;
use pmux::profile::{Progress, SortKey, Spot};

/// Above the list: a title, where one is, headings; below it: what is to be said, keys.
pub(super) const LINES_ABOVE: u16 = 3;
pub(super) const LINES_BELOW: u16 = 2;
/// Names move sideways by so many columns.
const SIDEWAYS: usize = 8;
/// The wheel moves so many lines.
const WHEEL: isize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Quit,
    /// Leaves a screen that stands before the table; there, quits.
    Close,
    Suspend,
    /// By lines.
    Move(isize),
    /// Names, by so many steps to the right.
    Sideways(isize),
    /// By screens.
    Page(isize),
    Wheel(isize),
    Top,
    Bottom,
    Expand,
    Collapse,
    Toggle,
    ExpandAll,
    /// Shows the source; in a list, picks.
    Enter,
    Source,
    Filter,
    Type(char),
    Erase,
    EraseAll,
    Escape,
    Threads,
    Events,
    /// Another event, so many further.
    Event(isize),
    ZoomFunction,
    ZoomProgram,
    Sort,
    Columns,
    Follow,
    /// The next line by weight, lighter or heavier.
    Rank(isize),
    Info,
    Help,
    /// A click on this row of the screen.
    Click(u16),
    Resize(u16, u16),
}

/// What has to be done beside drawing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Nothing,
    Quit,
    /// The program stops until the shell lets it go on.
    Suspend,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Screen {
    #[default]
    Table,
    Pick(Pick),
    Source(Box<SourceScreen>),
    /// What the recording tells of itself, and what is missing.
    Info(Scroll),
    Help(Scroll),
}

/// Whether letters are text or keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Typing {
    #[default]
    Keys,
    Text,
}

/// How far the reader is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    #[default]
    Beginning,
    /// With the number of samples so far.
    Reading(Progress, u64),
    Finished,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) stage: Stage,
    pub(super) overview: Overview,
    pub(super) query: TableQuery,
    pub(super) table: Table,
    pub(super) screen: Screen,
    pub(super) typing: Typing,
    /// What the last action came to, where that is not seen.
    pub(super) message: Option<String>,
    /// Why nothing can be read.
    pub(super) failure: Option<String>,
    pub(super) size: (u16, u16),
    /// So many columns of names are left out on the left.
    pub(super) shift: usize,
    /// What rows may be told apart by.
    columns: Vec<Vec<SortKey>>,
    /// For each zoom the filter before it, and the row that the cursor was on.
    before: Vec<(String, Option<RowKey>)>,
    /// The user has picked an event.
    has_picked_event: bool,
}

impl State {
    /// The first one; `keys` say what rows are told apart by.
    pub(super) fn new(name: String, keys: Vec<SortKey>, sort: Sort, size: (u16, u16)) -> Self {
        let mut columns = vec![keys.clone()];
        let others =
            [vec![SortKey::Dso, SortKey::Symbol], vec![SortKey::Dso], vec![SortKey::Comm], vec![SortKey::Thread]];
        columns.extend(others.into_iter().filter(|other| *other != keys));
        let mut state = Self {
            name,
            query: TableQuery { keys, ..TableQuery::default() },
            table: Table::new(sort),
            columns,
            ..Self::default()
        };
        state.act(Action::Resize(size.0, size.1));
        state
    }

    /// All that should be seen.
    pub(super) fn request(&self) -> ViewRequest {
        let source = match &self.screen {
            Screen::Source(screen) => Some((screen.spot, screen.by)),
            _ => None,
        };
        ViewRequest { query: self.query.clone(), open: self.table.open().to_vec(), source }
    }

    pub(super) fn take(&mut self, message: ReaderMessage) {
        match message {
            ReaderMessage::Progress(progress, samples) => self.stage = Stage::Reading(progress, samples),
            ReaderMessage::Overview(overview) => {
                self.overview = overview;
                let events = self.events();
                if !self.has_picked_event && !events.contains(&self.query.event) {
                    self.query.event = events.first().copied().unwrap_or(self.query.event);
                }
                self.settle_sort();
            }
            ReaderMessage::TableData(data) if data.query == self.query => self.table.take(data),
            ReaderMessage::Source(query, spot, source) => match &mut self.screen {
                Screen::Source(screen) if query == self.query && screen.spot == spot => screen.take(source),
                _ => {}
            },
            // Something else is looked at meanwhile.
            ReaderMessage::TableData(_) => {}
            ReaderMessage::Finished => self.stage = Stage::Finished,
            ReaderMessage::Failed(text) => self.failure = Some(text),
        }
    }

    /// Whether rows have what they called beside them.
    pub(super) fn chains(&self) -> Chains {
        self.overview.events.get(self.query.event).map_or(Chains::Recorded, |event| event.chains)
    }

    /// Whether what is shown is not what is wanted, yet.
    pub(super) fn is_waiting(&self) -> bool {
        match &self.screen {
            Screen::Source(screen) => screen.source.is_none(),
            _ => self.table.data.as_ref().is_none_or(|data| data.query != self.query),
        }
    }

    fn settle_sort(&mut self) {
        if self.chains() == Chains::Missing && self.table.sort == Sort::Total {
            self.table.set_sort(Sort::Own);
        }
    }

    pub(super) fn act(&mut self, action: Action) -> Effect {
        if !matches!(action, Action::Resize(..)) {
            self.message = None;
        }
        match action {
            Action::Quit => return Effect::Quit,
            Action::Close if matches!(self.screen, Screen::Table) => return Effect::Quit,
            Action::Close => {
                self.typing = Typing::Keys;
                self.screen = Screen::Table;
            }
            Action::Sideways(by) => self.sideways(by),
            Action::Suspend => return Effect::Suspend,
            Action::Resize(width, height) => {
                self.size = (width, height);
                let page = self.page();
                self.table.scroll.set_page(page);
                self.scroll(|scroll| scroll.set_page(page));
            }
            Action::Move(lines) => self.scroll(|scroll| scroll.by(lines)),
            Action::Page(pages) => self.scroll(|scroll| scroll.by_pages(pages)),
            Action::Wheel(turns) => self.scroll(|scroll| scroll.wheel(turns * WHEEL)),
            Action::Top => self.scroll(|scroll| scroll.to(0)),
            Action::Bottom => self.scroll(|scroll| scroll.to(usize::MAX)),
            Action::Escape => self.escape(),
            Action::Help => self.switch(matches!(self.screen, Screen::Help(_)), Screen::Help(Scroll::default())),
            Action::Info => self.switch(matches!(self.screen, Screen::Info(_)), Screen::Info(Scroll::default())),
            Action::Filter => {
                if matches!(self.screen, Screen::Table | Screen::Pick(_)) {
                    self.typing = Typing::Text;
                }
            }
            Action::Type(letter) => self.filter(|filter| filter.push(letter)),
            Action::Erase => self.filter(|filter| _ = filter.pop()),
            Action::EraseAll => self.filter(String::clear),
            Action::Enter if self.typing == Typing::Text => self.typing = Typing::Keys,
            Action::Threads => self.threads(),
            Action::Events => self.screen = Screen::Pick(Pick::events(&self.overview, self.page())),
            Action::Event(by) => self.next_event(by),
            Action::Click(row) => self.click(row),
            _ => match &mut self.screen {
                Screen::Table => self.act_on_table(action),
                Screen::Pick(pick) if matches!(action, Action::Enter | Action::Source | Action::Toggle) => {
                    let picked = pick.picked().map(|entry| (entry.choice, entry.text.clone()));
                    self.screen = Screen::Table;
                    if let Some((choice, text)) = picked {
                        self.pick(choice, text);
                    }
                }
                Screen::Source(screen) => match action {
                    Action::Rank(by) => screen.by_rank(by),
                    Action::Source | Action::Toggle => screen.switch(),
                    Action::Collapse | Action::Enter => self.screen = Screen::Table,
                    _ => {}
                },
                Screen::Info(_) | Screen::Help(_) if action == Action::Enter => self.screen = Screen::Table,
                _ => {}
            },
        }
        Effect::Nothing
    }

    /// Moves names sideways, as far as there is more of them.
    fn sideways(&mut self, by: isize) {
        let longest = match &self.screen {
            Screen::Table => {
                let tree = self.tree_column();
                let lines = self.table.data.iter().flat_map(|data| &data.lines);
                let names = lines.filter_map(|line| line.cells.get(tree)).map(|name| width(name));
                let calls = self.table.data.iter().flat_map(|data| data.calls.values().flatten());
                names.chain(calls.map(|call| width(&call.name))).max()
            }
            Screen::Source(screen) => screen.lines().iter().map(|line| width(&line.text)).max(),
            _ => return,
        };
        let most = longest.unwrap_or(0).saturating_sub(SIDEWAYS);
        self.shift = self.shift.saturating_add_signed(by * SIDEWAYS as isize).min(most);
    }

    /// The column whose rows are opened: of functions, where there is one.
    pub(super) fn tree_column(&self) -> usize {
        let keys = self.table_keys();
        keys.iter().position(|key| *key == SortKey::Symbol).unwrap_or(keys.len().saturating_sub(1))
    }

    fn act_on_table(&mut self, action: Action) {
        match action {
            Action::Expand => self.table.expand(),
            Action::Collapse => self.table.collapse(),
            Action::Toggle => self.table.toggle(),
            Action::ExpandAll => self.table.expand_all(),
            Action::Enter | Action::Source => self.show_source(),
            Action::Sort => self.next_sort(),
            Action::Columns => self.next_columns(),
            Action::Follow if self.table.follow() => {}
            Action::Follow => {
                self.message = Some("f goes from a call to the row of its function; → opens a row".to_owned());
            }
            Action::ZoomFunction => match self.spot() {
                Some((spot, name)) if spot != Spot::Any => self.zoom(ZoomTarget::Function(spot), name),
                _ => self.message = Some("there is no function here: Tab has other columns".to_owned()),
            },
            Action::ZoomProgram => {
                let program = match self.table.call() {
                    Some(call) => call.program.clone(),
                    None => self.table.row().and_then(|line| line.program.clone()),
                };
                match program {
                    Some((name, label)) => self.zoom(ZoomTarget::Program(name), label),
                    None => self.message = Some("there is no program here: Tab has other columns".to_owned()),
                }
            }
            _ => {}
        }
    }

    /// What the cursor is on, and what it is called.
    fn spot(&self) -> Option<(Spot, String)> {
        if let Some(call) = self.table.call() {
            let CallStep::Call(spot) = call.step else { return None };
            return Some((spot, call.name.clone()));
        }
        let line = self.table.row()?;
        let is_function = matches!(line.key.spot, Spot::Function(_));
        let named_by = if is_function { SortKey::Symbol } else { SortKey::Dso };
        let column = self.table_keys().iter().position(|key| *key == named_by);
        let cell = column.and_then(|column| line.cells.get(column)).map_or("", String::as_str);
        // Without the letter of the level.
        let name = cell.split_once("] ").filter(|_| is_function).map_or(cell, |(_, name)| name);
        Some((line.key.spot, name.to_owned()))
    }

    /// What the rows that are seen are told apart by.
    pub(super) fn table_keys(&self) -> &[SortKey] {
        self.table.data.as_ref().map_or(&self.query.keys, |data| &data.query.keys)
    }

    fn show_source(&mut self) {
        match self.spot() {
            Some((spot @ Spot::Function(_), name)) => {
                self.screen = Screen::Source(Box::new(SourceScreen::new(spot, name, self.page())));
            }
            _ => self.message = Some("source is shown of functions: go to one, or press Tab for others".to_owned()),
        }
    }

    fn zoom(&mut self, part: ZoomTarget, label: String) {
        if self.query.zooms.last().is_some_and(|zoom| zoom.part == part) {
            self.message = Some(format!("this is {label} already; Esc goes back"));
            return;
        }
        let row = self.table.row_key();
        self.before.push((self.table.filter.clone(), row));
        self.query.zooms.push(Zoom { part, label });
        // What was looked for is wanted there, too.
        self.table.leave(String::new(), row);
    }

    fn pick(&mut self, choice: Choice, label: String) {
        match choice {
            Choice::Event(event) => self.show_event(event),
            Choice::Thread(thread) => {
                let is_thread = |zoom: &Zoom| matches!(zoom.part, ZoomTarget::Thread(_));
                if let Some(place) = self.query.zooms.iter().position(is_thread) {
                    self.query.zooms.remove(place);
                    self.before.remove(place);
                    self.table.leave(self.table.filter.clone(), self.table.row_key());
                }
                if let Some(thread) = thread {
                    self.zoom(ZoomTarget::Thread(thread), label);
                }
            }
        }
    }

    fn threads(&mut self) {
        if self.overview.threads.is_empty() {
            self.message = Some("no thread was met so far".to_owned());
            return;
        }
        self.screen = Screen::Pick(Pick::threads(&self.overview, self.query.event, self.page()));
    }

    fn next_event(&mut self, by: isize) {
        let events = self.events();
        let here = events.iter().position(|&event| event == self.query.event).unwrap_or(0);
        match events.len() {
            0 | 1 => self.message = Some("samples are of one event only".to_owned()),
            count => self.show_event(events[(here as isize + by).rem_euclid(count as isize) as usize]),
        }
    }

    /// The events that have samples.
    pub(super) fn events(&self) -> Vec<usize> {
        let events = self.overview.events.iter().enumerate();
        events.filter(|(_, event)| event.total.samples > 0).map(|(at, _)| at).collect()
    }

    fn show_event(&mut self, event: usize) {
        self.has_picked_event = true;
        self.query.event = event;
        self.table.leave(self.table.filter.clone(), self.table.row_key());
        self.settle_sort();
    }

    fn next_sort(&mut self) {
        let columns = self.table_keys().len();
        let sort = match self.table.sort {
            Sort::Total => Sort::Own,
            Sort::Own => Sort::Cell(0),
            Sort::Cell(column) if column + 1 < columns => Sort::Cell(column + 1),
            Sort::Cell(_) if self.chains() == Chains::Missing => Sort::Own,
            Sort::Cell(_) => Sort::Total,
        };
        self.table.set_sort(sort);
    }

    fn next_columns(&mut self) {
        let here = self.columns.iter().position(|keys| *keys == self.query.keys).unwrap_or(0);
        self.query.keys = self.columns[(here + 1) % self.columns.len()].clone();
        self.table.leave(String::new(), None);
        if matches!(self.table.sort, Sort::Cell(_)) {
            self.table.set_sort(Sort::Total);
            self.settle_sort();
        }
    }

    fn switch(&mut self, is_there: bool, screen: Screen) {
        self.screen = if is_there { Screen::Table } else { screen };
        let page = self.page();
        self.scroll(|scroll| scroll.set_page(page));
    }

    fn escape(&mut self) {
        let was_typing = std::mem::replace(&mut self.typing, Typing::Keys) == Typing::Text;
        match &mut self.screen {
            Screen::Pick(pick) if was_typing || !pick.filter.is_empty() => pick.set_filter(String::new()),
            Screen::Table if was_typing || !self.table.filter.is_empty() => self.table.set_filter(String::new()),
            Screen::Table => match self.query.zooms.pop() {
                Some(_) => {
                    let (filter, row) = self.before.pop().unwrap_or_default();
                    self.table.leave(filter, row);
                }
                None => self.message = Some("this is everything; q quits".to_owned()),
            },
            _ => self.screen = Screen::Table,
        }
    }

    fn filter(&mut self, change: impl FnOnce(&mut String)) {
        let changed = |mut filter: String| {
            change(&mut filter);
            filter
        };
        match &mut self.screen {
            Screen::Table => self.table.set_filter(changed(self.table.filter.clone())),
            Screen::Pick(pick) => pick.set_filter(changed(pick.filter.clone())),
            _ => {}
        }
    }

    fn click(&mut self, row: u16) {
        let Some(place) = usize::from(row).checked_sub(usize::from(LINES_ABOVE)) else {
            if row + 1 == LINES_ABOVE && matches!(self.screen, Screen::Table) {
                self.next_sort();
            }
            return;
        };
        let before = match &self.screen {
            Screen::Table => self.table.scroll,
            Screen::Pick(pick) => pick.scroll,
            Screen::Source(screen) => screen.scroll,
            Screen::Info(_) | Screen::Help(_) => return,
        };
        let Some(line) = before.at(place) else { return };
        self.scroll(|scroll| scroll.to(line));
        match self.screen {
            Screen::Table if line == before.cursor => self.table.toggle(),
            Screen::Pick(_) if line == before.cursor => _ = self.act(Action::Enter),
            _ => {}
        }
    }

    /// The list that is shown, changed.
    fn scroll(&mut self, change: impl FnOnce(&mut Scroll)) {
        let text_lines = text_screens::lines(&self.screen, &self.overview, usize::from(self.size.0)).len();
        match &mut self.screen {
            Screen::Table => change(&mut self.table.scroll),
            Screen::Pick(pick) => change(&mut pick.scroll),
            Screen::Source(screen) => screen.scroll(change),
            Screen::Info(scroll) | Screen::Help(scroll) => {
                // A screen of text ends where its text does.
                scroll.set_len(text_lines);
                change(scroll);
            }
        }
    }

    /// How many lines of a list are seen.
    pub(super) fn page(&self) -> usize {
        usize::from(self.size.1.saturating_sub(LINES_ABOVE + LINES_BELOW))
    }
}
