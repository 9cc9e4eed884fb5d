//! A list that is longer than the screen.
//!
//! **Invariant:** the cursor is on a line, if there is one, and the line is on the screen.

/// Where the cursor is, and which lines are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Scroll {
    pub(in super::super) cursor: usize,
    /// The first line on the screen.
    pub(in super::super) top: usize,
    len: usize,
    page: usize,
}

impl Scroll {
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len;
        self.settle();
    }

    /// So many lines are on the screen.
    pub(super) fn set_page(&mut self, page: usize) {
        self.page = page;
        self.settle();
    }

    pub(super) fn by(&mut self, lines: isize) {
        self.cursor = self.cursor.saturating_add_signed(lines);
        self.settle();
    }

    pub(super) fn by_pages(&mut self, pages: isize) {
        let lines = self.page.saturating_sub(1).max(1) as isize * pages;
        self.top = self.top.saturating_add_signed(lines);
        self.by(lines);
    }

    /// Moves what is seen, and the cursor only if it would not be seen any more.
    pub(super) fn wheel(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines).min(self.last_top());
        let seen = self.top..self.top + self.page.max(1);
        self.cursor = self.cursor.clamp(seen.start, seen.end - 1);
        self.settle();
    }

    pub(super) fn to(&mut self, line: usize) {
        self.cursor = line;
        self.settle();
    }

    /// Puts the cursor on a line, with that line in the middle.
    pub(super) fn centre(&mut self, line: usize) {
        self.top = line.saturating_sub(self.page / 2);
        self.to(line);
    }

    /// The line that is at this place of the screen.
    pub(super) fn at(&self, place: usize) -> Option<usize> {
        let line = self.top + place;
        (place < self.page && line < self.len).then_some(line)
    }

    fn last_top(&self) -> usize {
        self.len.saturating_sub(self.page)
    }

    fn settle(&mut self) {
        self.cursor = self.cursor.min(self.len.saturating_sub(1));
        self.top = self.top.min(self.last_top()).min(self.cursor);
        if self.page > 0 && self.cursor >= self.top + self.page {
            self.top = self.cursor + 1 - self.page;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_always_seen() {
        let mut scroll = Scroll::default();
        scroll.set_page(10);
        scroll.set_len(100);
        scroll.by(-1);
        assert_eq!((scroll.cursor, scroll.top), (0, 0));
        scroll.by(12);
        assert_eq!((scroll.cursor, scroll.top), (12, 3));
        scroll.by_pages(1);
        assert_eq!((scroll.cursor, scroll.top), (21, 12));
        scroll.to(usize::MAX);
        assert_eq!((scroll.cursor, scroll.top), (99, 90));
        scroll.wheel(-3);
        assert_eq!((scroll.cursor, scroll.top), (96, 87));
        scroll.wheel(isize::MIN / 2);
        assert_eq!((scroll.cursor, scroll.top), (9, 0));
        assert_eq!((scroll.at(9), scroll.at(10)), (Some(9), None));
        scroll.set_len(3);
        assert_eq!((scroll.cursor, scroll.top, scroll.at(3)), (2, 0, None));
        scroll.set_page(0);
        scroll.set_len(0);
        assert_eq!((scroll.cursor, scroll.at(0)), (0, None));
    }
}
