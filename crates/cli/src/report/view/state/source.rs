//! The source of a function as it is looked at.
//!
//! **Invariant:** until the user moves it, the cursor is on the heaviest line.

use super::super::messages::{Source, SourceBy, SourceLine, SourcePlace};
use super::scroll::Scroll;
use pmux::profile::Spot;
use std::cmp::Reverse;

#[derive(Clone, Debug)]
pub(in super::super) struct SourceScreen {
    pub(in super::super) spot: Spot,
    /// What it is called, as long as its source is not there.
    pub(in super::super) name: String,
    pub(in super::super) source: Option<Source>,
    pub(in super::super) by: SourceBy,
    pub(in super::super) scroll: Scroll,
    was_moved: bool,
}

impl SourceScreen {
    pub(super) fn new(spot: Spot, name: String, page: usize) -> Self {
        let mut scroll = Scroll::default();
        scroll.set_page(page);
        Self { spot, name, source: None, by: SourceBy::Lines, scroll, was_moved: false }
    }

    pub(in super::super) fn lines(&self) -> &[SourceLine] {
        match (&self.source, self.by) {
            (None, _) => &[],
            (Some(source), SourceBy::Lines) => &source.lines,
            (Some(source), SourceBy::Addresses) => &source.addresses,
        }
    }

    pub(super) fn take(&mut self, source: Source) {
        let is_first = self.source.is_none();
        if is_first && source.lines.is_empty() {
            self.by = SourceBy::Addresses;
        }
        self.source = Some(source);
        self.settle();
    }

    fn settle(&mut self) {
        self.scroll.set_len(self.lines().len());
        if !self.was_moved
            && let Some(&heaviest) = self.ranks().first()
        {
            self.scroll.centre(heaviest);
        }
    }

    pub(super) fn scroll(&mut self, by: impl FnOnce(&mut Scroll)) {
        self.was_moved = true;
        by(&mut self.scroll);
    }

    /// Lines that weigh something, the heaviest first.
    fn ranks(&self) -> Vec<usize> {
        let lines = self.lines();
        let weighs = |&at: &usize| lines[at].total.samples > 0 && lines[at].place != SourcePlace::Inlined;
        let mut ranks: Vec<usize> = (0..lines.len()).filter(weighs).collect();
        pmux::order::sort_by_key(&mut ranks, |&at| Reverse((lines[at].own.period, lines[at].total.period)));
        ranks
    }

    /// Goes to the line that comes next by weight, lighter or heavier.
    pub(super) fn by_rank(&mut self, by: isize) {
        let ranks = self.ranks();
        let here = ranks.iter().position(|&at| at == self.scroll.cursor);
        let next = here.map_or(0, |here| here.saturating_add_signed(by).min(ranks.len().saturating_sub(1)));
        if let Some(&line) = ranks.get(next) {
            self.scroll(|scroll| scroll.centre(line));
        }
    }

    /// Shows addresses instead of lines, and lines again.
    pub(super) fn switch(&mut self) {
        let has_lines = self.source.as_ref().is_some_and(|source| !source.lines.is_empty());
        self.by = match self.by {
            SourceBy::Addresses if has_lines => SourceBy::Lines,
            _ => SourceBy::Addresses,
        };
        self.was_moved = false;
        self.settle();
    }
}
