//! The table as it is looked at: which rows, in what order, with what opened.
//!
//! What it is: a [`TableData`] becomes a list of [`Item`]s, each a line of the screen. Read first: [`Table::arrange`].
//!
//! **Invariant:** the cursor stays with what it is on when rows move, are filtered, or open; on the first line it stays there.

use super::super::messages::{CallLine, CallStep, RowKey, TableData, TableRow};
use super::scroll::Scroll;
use pmux::profile::Weight;
use std::cmp::Reverse;
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) enum Sort {
    /// With what was called.
    #[default]
    Total,
    /// What was met in it.
    Own,
    /// The text of a column.
    Cell(usize),
}

/// A line of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Item {
    /// A row of the sheet.
    Row(usize),
    /// A call beside a row.
    Call { row: usize, call: usize },
    /// Nothing can be shown beside a row: it is open, and has no calls, or not yet.
    Nothing(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Expansion {
    Open,
    Closed,
    /// There is nothing below it.
    Leaf,
}

#[derive(Clone, Debug, Default)]
pub(in super::super) struct Table {
    pub(in super::super) data: Option<TableData>,
    pub(in super::super) scroll: Scroll,
    pub(in super::super) sort: Sort,
    pub(in super::super) filter: String,
    pub(in super::super) items: Vec<Item>,
    /// How many rows the filter lets through, and what was met in them.
    pub(in super::super) shown: (usize, Weight),
    /// Rows whose calls are seen.
    open: Vec<RowKey>,
    /// Calls that are not as they would be without having been touched.
    toggled: HashSet<(RowKey, Vec<CallStep>)>,
    /// The row that the cursor should come back to.
    wanted: Option<RowKey>,
}

impl Table {
    pub(super) fn new(sort: Sort) -> Self {
        Self { sort, ..Self::default() }
    }

    pub(super) fn open(&self) -> &[RowKey] {
        &self.open
    }

    /// Shows other numbers, or the calls that were asked for.
    pub(super) fn take(&mut self, data: TableData) {
        self.change(|table| table.data = Some(data));
    }

    /// Another part of the recording is looked at: with this filter, and the cursor on that row.
    pub(super) fn leave(&mut self, filter: String, row: Option<RowKey>) {
        self.filter = filter;
        self.open.clear();
        self.toggled.clear();
        self.wanted = row;
        self.scroll.to(0);
    }

    pub(super) fn set_filter(&mut self, filter: String) {
        self.change(|table| table.filter = filter);
    }

    pub(super) fn set_sort(&mut self, sort: Sort) {
        self.sort = sort;
        self.wanted = None;
        self.arrange();
        self.scroll.to(0);
    }

    /// The row that the cursor is on, or beside whose calls it is.
    pub(in super::super) fn row(&self) -> Option<&TableRow> {
        let at = match *self.items.get(self.scroll.cursor)? {
            Item::Row(row) | Item::Call { row, .. } | Item::Nothing(row) => row,
        };
        self.data.as_ref()?.lines.get(at)
    }

    pub(super) fn row_key(&self) -> Option<RowKey> {
        self.row().map(|line| line.key)
    }

    fn calls_of(&self, key: RowKey) -> Option<&[CallLine]> {
        self.data.as_ref()?.calls.get(&key).map(Vec::as_slice)
    }

    /// The call that the cursor is on.
    pub(in super::super) fn call(&self) -> Option<&CallLine> {
        match *self.items.get(self.scroll.cursor)? {
            Item::Call { row, call } => self.call_of(row, call),
            _ => None,
        }
    }

    pub(in super::super) fn call_of(&self, row: usize, call: usize) -> Option<&CallLine> {
        self.calls_of(self.data.as_ref()?.lines.get(row)?.key)?.get(call)
    }

    pub(in super::super) fn expansion(&self, item: Item) -> Expansion {
        let Some(data) = &self.data else { return Expansion::Leaf };
        match item {
            Item::Row(row) => match data.lines.get(row) {
                Some(line) if self.open.contains(&line.key) => Expansion::Open,
                _ => Expansion::Closed,
            },
            Item::Nothing(_) => Expansion::Leaf,
            Item::Call { row, call } => {
                let Some(line) = data.lines.get(row) else { return Expansion::Leaf };
                let Some(calls) = data.calls.get(&line.key) else { return Expansion::Leaf };
                match calls.get(call) {
                    Some(one) if one.next > 0 => {
                        let is_toggled = self.toggled.contains(&(line.key, way_to(calls, call)));
                        if is_usually_open(one) != is_toggled { Expansion::Open } else { Expansion::Closed }
                    }
                    _ => Expansion::Leaf,
                }
            }
        }
    }

    /// Opens or closes what the cursor is on.
    pub(super) fn toggle(&mut self) {
        let Some(&item) = self.items.get(self.scroll.cursor) else { return };
        let Some(key) = self.row_key() else { return };
        match item {
            Item::Row(_) => match self.open.iter().position(|open| *open == key) {
                Some(place) => {
                    self.open.remove(place);
                    self.toggled.retain(|(row, _)| *row != key);
                }
                None => self.open.push(key),
            },
            Item::Call { call, .. } if self.expansion(item) != Expansion::Leaf => {
                let way = (key, self.calls_of(key).map(|calls| way_to(calls, call)).unwrap_or_default());
                if !self.toggled.remove(&way) {
                    self.toggled.insert(way);
                }
            }
            _ => {}
        }
        self.arrange();
    }

    /// Opens what the cursor is on, or goes to what is below it.
    pub(super) fn expand(&mut self) {
        match self.items.get(self.scroll.cursor).map(|item| self.expansion(*item)) {
            Some(Expansion::Closed) => self.toggle(),
            Some(Expansion::Open) => self.scroll.by(1),
            _ => {}
        }
    }

    /// Closes what the cursor is on, or goes to what is above it.
    pub(super) fn collapse(&mut self) {
        let Some(&item) = self.items.get(self.scroll.cursor) else { return };
        if self.expansion(item) == Expansion::Open {
            return self.toggle();
        }
        let depth = |item: &Item| match *item {
            Item::Row(_) => None,
            Item::Call { row, call } => self.call_of(row, call).map(|call| call.depth),
            Item::Nothing(_) => Some(0),
        };
        let own = depth(&item);
        let above = self.items[..self.scroll.cursor].iter().rposition(|item| depth(item) < own);
        if let Some(above) = above.filter(|_| own.is_some()) {
            self.scroll.to(above);
        }
    }

    /// Opens everything below what the cursor is on.
    pub(super) fn expand_all(&mut self) {
        let Some(&item) = self.items.get(self.scroll.cursor) else { return };
        if self.expansion(item) == Expansion::Closed {
            self.toggle();
        }
        let Some(key) = self.row_key() else { return };
        let Some(calls) = self.calls_of(key) else { return };
        let within = match item {
            Item::Call { call, .. } => call..calls.get(call).map_or(call, |call| call.end),
            _ => 0..calls.len(),
        };
        let touch = within.filter(|&call| calls[call].next > 0);
        let touch = touch.map(|call| ((key, way_to(calls, call)), is_usually_open(&calls[call])));
        for (way, usual) in touch.collect::<Vec<_>>() {
            if usual {
                self.toggled.remove(&way);
            } else {
                self.toggled.insert(way);
            }
        }
        self.arrange();
    }

    /// Goes to the row of a call. Returns whether there is one.
    pub(super) fn follow(&mut self) -> bool {
        let Some((line, CallStep::Call(spot))) = self.row().zip(self.call().map(|call| call.step)) else {
            return false;
        };
        let key = RowKey { spot, ..line.key };
        let mut found = self.place_of(key);
        if found.is_none() && !self.filter.is_empty() {
            self.filter.clear();
            self.arrange();
            found = self.place_of(key);
        }
        found.inspect(|&line| self.scroll.centre(line)).is_some()
    }

    /// The line of the screen that has a row.
    fn place_of(&self, key: RowKey) -> Option<usize> {
        let data = self.data.as_ref()?;
        self.items.iter().position(|item| matches!(item, Item::Row(row) if data.lines[*row].key == key))
    }

    /// Changes something, and leaves the cursor where it is in what is shown.
    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let before = (self.scroll.cursor > 0).then(|| self.row_key().zip(self.way())).flatten();
        let above = self.scroll.cursor - self.scroll.top;
        change(self);
        self.arrange();
        let Some(data) = &self.data else { return };
        if let Some(key) = self.wanted.take() {
            if let Some(place) = self.place_of(key) {
                self.scroll.centre(place);
            }
            return;
        }
        let Some((key, way)) = before else { return };
        let is_it = |item: &Item| match *item {
            Item::Row(row) => way.is_empty() && data.lines[row].key == key,
            Item::Call { row, call } => {
                !way.is_empty()
                    && data.lines[row].key == key
                    && data.calls.get(&key).is_some_and(|calls| way_to(calls, call) == way)
            }
            Item::Nothing(_) => false,
        };
        let same = self.items.iter().position(is_it);
        if let Some(place) = same.or_else(|| self.place_of(key)) {
            self.scroll.top = place.saturating_sub(above);
            self.scroll.to(place);
        }
    }

    /// The way to the call that the cursor is on; empty on a row.
    fn way(&self) -> Option<Vec<CallStep>> {
        let data = self.data.as_ref()?;
        Some(match *self.items.get(self.scroll.cursor)? {
            Item::Call { row, call } => way_to(self.calls_of(data.lines.get(row)?.key)?, call),
            _ => Vec::new(),
        })
    }

    /// Makes the lines of the screen.
    fn arrange(&mut self) {
        self.items.clear();
        self.shown = (0, Weight::default());
        if let Some(data) = &self.data {
            let mut rows: Vec<usize> = (0..data.lines.len()).collect();
            let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
            rows.retain(|&row| words.iter().all(|word| has_word(&data.lines[row], word)));
            // The sheet has the order of the whole weights.
            match self.sort {
                Sort::Total => {}
                Sort::Own => pmux::order::sort_by_key(&mut rows, |&row| Reverse(data.lines[row].own.period)),
                Sort::Cell(column) => {
                    pmux::order::sort_by(&mut rows, |&a, &b| {
                        data.lines[a].cells.get(column).cmp(&data.lines[b].cells.get(column))
                    });
                }
            }
            let mut items = Vec::new();
            for row in rows {
                let line = &data.lines[row];
                self.shown.0 += 1;
                self.shown.1.add(line.own);
                items.push(Item::Row(row));
                if !self.open.contains(&line.key) {
                    continue;
                }
                let calls = self.calls_of(line.key).unwrap_or_default();
                if calls.is_empty() {
                    items.push(Item::Nothing(row));
                }
                let mut call = 0;
                while call < calls.len() {
                    let item = Item::Call { row, call };
                    items.push(item);
                    call = if self.expansion(item) == Expansion::Open { call + 1 } else { calls[call].end };
                }
            }
            self.items = items;
        }
        self.scroll.set_len(self.items.len());
    }
}

fn has_word(line: &TableRow, word: &str) -> bool {
    line.cells.iter().any(|cell| cell.to_lowercase().contains(word))
}

/// Whether what is below a call is seen without having been touched: that of a heading is, and what leads to one thing only.
fn is_usually_open(call: &CallLine) -> bool {
    call.depth == 0 || call.next == 1
}

/// The steps from the row to a call.
fn way_to(calls: &[CallLine], call: usize) -> Vec<CallStep> {
    let Some(last) = calls.get(call) else { return Vec::new() };
    let (mut way, mut depth) = (vec![last.step], last.depth);
    for above in calls[..call].iter().rev() {
        if above.depth < depth {
            depth = above.depth;
            way.push(above.step);
        }
    }
    way.reverse();
    way
}
