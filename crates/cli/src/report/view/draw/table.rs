//! The table: shares, a bar, names, and the calls beside open rows.
//!
//! **Invariant:** a column is as wide as what stands in it, up to a limit; the last one has what is left.

use super::super::messages::{CallLine, CallStep, Chains, TableData, TableRow};
use super::super::state::{Expansion, Item, Sort, Stage, State};
use super::{Pen, SHARE, Theme, bar, share};
use crate::columns::{fit, shifted, width};
use crate::report::table::heading;
use pmux::profile::SortKey;
use ratatui::layout::Rect;
use ratatui::text::Span;

/// So many rows decide how wide a column is.
const LOOKED_AT: usize = 500;
/// What a bar has at most.
const WIDEST_BAR: usize = 24;
/// So many columns names of functions have at least, where they are that long: others give way.
const LEAST_NAME: usize = 20;
/// A column that has to give way is shortened to this before it is left out.
const SHORT: usize = 8;

/// Where things stand in a line.
struct Columns<'a> {
    data: &'a TableData,
    bar: usize,
    /// By key; 0 of a column that is left out.
    widths: Vec<usize>,
    /// Which column has the marks of what can be opened.
    tree: usize,
}

impl<'a> Columns<'a> {
    fn of(data: &'a TableData, chains: Chains, screen: usize) -> Self {
        let keys = &data.query.keys;
        let shares = if chains == Chains::Recorded { 2 * SHARE } else { SHARE };
        let bar = screen.saturating_sub(58).min(WIDEST_BAR * 3) / 3;
        let tree = keys.iter().position(|key| *key == SortKey::Symbol).unwrap_or(keys.len() - 1);
        let wanted = |column: usize| {
            let cells = data.lines.iter().take(LOOKED_AT).map(|line| width(&line.cells[column]));
            cells.chain([width(heading(keys[column]))]).max().unwrap_or(0)
        };
        let left = screen.saturating_sub(shares);
        let most = |key: &SortKey| match key {
            SortKey::Symbol => left / 2,
            SortKey::Cgroup => left / 3,
            SortKey::Parallelism => 11,
            // Names of functions are what is looked for.
            SortKey::Comm => (left / 6).clamp(10, 16),
            SortKey::Dso => (left / 5).clamp(14, 28),
            _ => 24,
        };
        let widths = keys.iter().enumerate().map(|(column, key)| match column {
            _ if column == tree => 0,
            _ => wanted(column).min(most(key)),
        });
        let mut columns = Self { data, bar, widths: widths.collect(), tree };
        // Marks and rails of calls stand before names.
        let enough = (wanted(tree) + 4).min((screen / 2).max(LEAST_NAME));
        let others = (0..keys.len()).filter(|column| *column != tree);
        let shorter = others.clone().map(|column| (column, SHORT)).chain(others.map(|column| (column, 0)));
        for (column, most) in [(tree, 0)].into_iter().chain(shorter) {
            if columns.room(left) >= enough {
                break;
            }
            if column == tree {
                columns.bar = 0;
            } else {
                columns.widths[column] = columns.widths[column].min(most);
            }
        }
        columns.widths[tree] = columns.room(left);
        columns
    }

    /// What stands in the columns that are not left out, with their places and widths.
    fn shown<'b, T>(&'b self, cells: &'b [T]) -> impl Iterator<Item = (usize, (&'b T, &'b usize))> {
        cells.iter().zip(&self.widths).enumerate().filter(|(_, (_, width))| **width > 0)
    }

    /// What is left for names.
    fn room(&self, left: usize) -> usize {
        let others = self.widths.iter().enumerate().filter(|(column, width)| *column != self.tree && **width > 0);
        let used: usize = others.map(|(_, width)| width + 2).sum();
        left.saturating_sub(used + 2 + if self.bar > 0 { self.bar + 2 } else { 0 })
    }
}

pub(super) fn draw(pen: &mut Pen<'_>, state: &State, list: Rect) {
    let chains = state.chains();
    let Some(data) = &state.table.data else {
        let text = if state.stage == Stage::Finished { "there is no sample in the recording" } else { "reading…" };
        return pen.instead(list, &[text]);
    };
    let columns = Columns::of(data, chains, usize::from(pen.width));
    draw_headings(pen, state, &columns);
    if state.table.items.is_empty() {
        let texts: &[&str] = match (state.stage, data.lines.is_empty()) {
            (_, false) => &["no row has all of these words", "Esc takes the filter away"],
            (Stage::Finished, true) if state.overview.events.iter().all(|event| event.total.samples == 0) => &[
                "there is no sample in the recording",
                "nothing happened that it counts, or all of it was lost: i tells",
            ],
            (Stage::Finished, true) => &["there is no sample here", "Esc goes back"],
            (_, true) => &["no sample so far"],
        };
        return pen.instead(list, texts);
    }
    let items = state.table.items.iter().enumerate().skip(state.table.scroll.top);
    for (y, (at, &item)) in (list.y..list.bottom()).zip(items) {
        let spans = match item {
            Item::Row(row) => row_spans(pen.theme, state, &columns, item, &data.lines[row]),
            Item::Call { row, call } => match state.table.call_of(row, call) {
                Some(call) => call_spans(pen.theme, state, &columns, item, call),
                None => Vec::new(),
            },
            Item::Nothing(row) => {
                let text = match (data.calls.contains_key(&data.lines[row].key), chains) {
                    // They are being looked for.
                    (false, _) => "…",
                    (true, Chains::Missing) => "no call chains were recorded: `pmux record -g` records them",
                    (true, Chains::Recorded) => "nothing called it, and it called nothing",
                };
                vec![Span::raw(" ".repeat(2 * SHARE + 2)), Span::styled(text, Theme::faint())]
            }
        };
        pen.line(y, spans);
        if at == state.table.scroll.cursor {
            pen.select(y);
        }
    }
}

fn draw_headings(pen: &mut Pen<'_>, state: &State, columns: &Columns<'_>) {
    let sort = state.table.sort;
    let marked = |text: &str, is_sorted: bool| if is_sorted { format!("▼{text}") } else { text.to_owned() };
    let own = marked("Self", sort == Sort::Own);
    let mut line = match state.chains() {
        Chains::Recorded => format!("{:>SHARE$}{own:>SHARE$}", marked("Children", sort == Sort::Total)),
        Chains::Missing => format!("{own:>SHARE$}"),
    };
    if columns.bar > 0 {
        line.push_str(&" ".repeat(columns.bar + 2));
    }
    for (column, (key, &columns_of)) in columns.shown(&columns.data.query.keys) {
        let mark = if column == columns.tree { "  " } else { "" };
        let text = marked(heading(*key).trim_start(), sort == Sort::Cell(column));
        line.push_str(&format!("  {}", fit(&format!("{mark}{text}"), columns_of)));
    }
    let line = fit(&line, usize::from(pen.width));
    pen.line(2, vec![Span::styled(line, pen.theme.headings())]);
}

fn row_spans(theme: Theme, state: &State, columns: &Columns<'_>, item: Item, line: &TableRow) -> Vec<Span<'static>> {
    let whole = columns.data.total;
    let mut spans = Vec::new();
    if state.chains() == Chains::Recorded {
        spans.push(share(line.total, whole, theme));
    }
    spans.push(share(line.own, whole, theme));
    if columns.bar > 0 {
        spans.push(Span::raw("  "));
        spans.extend(bar(line.own, line.total, whole, columns.bar, theme));
    }
    let words: Vec<String> = state.table.filter.split_whitespace().map(str::to_lowercase).collect();
    for (column, (cell, &columns_of)) in columns.shown(&line.cells) {
        let mark = match state.table.expansion(item) {
            _ if column != columns.tree => "",
            Expansion::Open => "▾ ",
            _ => "▸ ",
        };
        spans.push(Span::raw("  "));
        let lower = cell.to_lowercase();
        let style = if words.iter().any(|word| lower.contains(word)) {
            theme.found()
        } else if cell.starts_with("[k]") {
            theme.kernel()
        } else {
            Theme::plain()
        };
        let cell = shifted(cell.trim_start(), if column == columns.tree { state.shift } else { 0 });
        spans.push(Span::styled(mark, Theme::faint()));
        spans.push(Span::styled(fit(&cell, columns_of - width(mark).min(columns_of)), style));
    }
    spans
}

fn call_spans(theme: Theme, state: &State, columns: &Columns<'_>, item: Item, call: &CallLine) -> Vec<Span<'static>> {
    let data = columns.data;
    let mut spans = Vec::new();
    let is_heading = matches!(call.step, CallStep::Side(_));
    let blank = " ".repeat(SHARE);
    spans.push(if is_heading { Span::raw(blank.clone()) } else { share(call.weight, data.total, theme) });
    if state.chains() == Chains::Recorded {
        spans.push(Span::raw(blank));
    }
    if columns.bar > 0 {
        spans.push(Span::raw("  "));
        let nothing = pmux::profile::Weight::default();
        let weight = if is_heading { nothing } else { call.weight };
        spans.extend(bar(nothing, weight, data.total, columns.bar, theme));
    }
    for (column, (key, &columns_of)) in columns.shown(&data.query.keys) {
        spans.push(Span::raw("  "));
        if column != columns.tree {
            let text = match (&call.program, key) {
                (Some((_, program)), SortKey::Dso) => program.as_str(),
                _ => "",
            };
            spans.push(Span::styled(fit(text, columns_of), Theme::faint()));
            continue;
        }
        let mut rails = String::from("  ");
        for (depth, has_more) in call.rails.iter().enumerate() {
            let is_own = depth + 1 == call.rails.len();
            rails.push_str(match (is_own, has_more) {
                (true, true) => "├╴",
                (true, false) => "└╴",
                (false, true) => "│ ",
                (false, false) => "  ",
            });
        }
        rails.push_str(match state.table.expansion(item) {
            Expansion::Open => "▾ ",
            Expansion::Closed => "▸ ",
            Expansion::Leaf => "  ",
        });
        let left = columns_of.saturating_sub(width(&rails));
        let style = if is_heading { theme.key() } else { Theme::plain() };
        spans.push(Span::styled(fit(&rails, columns_of.min(width(&rails))), Theme::faint()));
        spans.push(Span::styled(fit(&shifted(&call.name, state.shift), left), style));
    }
    spans
}

/// The name that the cursor is on, in full, and where the cursor is.
pub(super) fn selected(state: &State) -> String {
    let table = &state.table;
    let Some(line) = table.row() else { return String::new() };
    let name = match table.call() {
        Some(call) => call.name.clone(),
        None => line.cells.get(state.tree_column()).cloned().unwrap_or_default(),
    };
    format!("{}/{}  {}", table.scroll.cursor + 1, table.items.len(), name.trim_start())
}
