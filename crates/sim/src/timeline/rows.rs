//! What stands below one another.
//!
//! What it is: a span of time cut wherever something changes in one of some lanes.
//!
//! **Invariant:** the rows of a span follow one another without a gap, and in none of them anything changes.

use super::lanes::{Lane, LaneSpan, SpanSort};
use super::{Began, Timeline};
use pmux_engine::Nanos;
use std::rc::Rc;

/// A span of time in which nothing changed.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    /// What was in each lane.
    pub(super) cells: Vec<Cell>,
}

/// What was in a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) what: Option<(Rc<str>, SpanSort)>,
    /// Whether it began with this row.
    pub(super) fresh: bool,
}

/// Two rows are the same if the same is there for as long. Whether it began there, the row before says.
impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: &Cell, other: &Cell| one.what == other.what && (one.handed_over() == other.handed_over());
        self.to.since(self.from) == other.to.since(other.from)
            && self.cells.len() == other.cells.len()
            && self.cells.iter().zip(&other.cells).all(|(one, other)| same(one, other))
    }
}

impl Cell {
    /// Whether it came there from the clone that left.
    pub(super) fn handed_over(&self) -> bool {
        self.fresh && matches!(self.what, Some((_, SpanSort::Event(_, Began::HandedOver))))
    }
}

/// Goes through lanes, from one span of time to the next.
pub(super) struct Rows<'l> {
    lanes: Vec<&'l Lane>,
    /// The next span of each lane that has not ended yet.
    at: Vec<usize>,
}

impl<'l> Rows<'l> {
    pub(super) fn new(lanes: Vec<&'l Lane>) -> Self {
        Self { at: vec![0; lanes.len()], lanes }
    }

    /// The rows of the time from `from` to `to`, which must not begin before the end of the last one.
    pub(super) fn between(&mut self, from: Nanos, to: Nanos) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut now = from;
        while now < to {
            let mut next = to;
            let cells = (0..self.lanes.len()).map(|lane| self.cell(lane, now, &mut next)).collect();
            rows.push(Row { from: now, to: next, cells });
            now = next;
        }
        rows
    }

    /// What is in a lane now; `next` becomes earlier if that changes before.
    fn cell(&mut self, lane: usize, now: Nanos, next: &mut Nanos) -> Cell {
        let (spans, at) = (&self.lanes[lane].spans, &mut self.at[lane]);
        while spans.get(*at).is_some_and(|span| span.to <= now) {
            *at += 1;
        }
        let Some(LaneSpan { from, to, label, sort }) = spans.get(*at) else { return Cell::default() };
        if *from > now {
            *next = (*next).min(*from);
            return Cell::default();
        }
        *next = (*next).min(*to);
        Cell { what: Some((Rc::clone(label), *sort)), fresh: *from == now }
    }
}

/// Spans of time, one after the other, each with the statements that stand before it.
pub(super) struct Segment {
    pub(super) statements: Vec<usize>,
    pub(super) from: Nanos,
    pub(super) to: Nanos,
}

/// The run as segments: each ends with the statement in which time passed.
pub(super) fn segments(timeline: &Timeline) -> Vec<Segment> {
    let mut segments = Vec::new();
    let (mut waiting, mut now) = (Vec::new(), Nanos::ZERO);
    for (index, statement) in timeline.statements.iter().enumerate() {
        waiting.push(index);
        if statement.to > statement.from {
            segments.push(Segment { statements: std::mem::take(&mut waiting), from: statement.from, to: statement.to });
            now = statement.to;
        }
    }
    if !waiting.is_empty() || timeline.end > now {
        segments.push(Segment { statements: waiting, from: now, to: timeline.end.max(now) });
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::super::lanes::LaneKind;
    use super::*;

    fn lane(spans: &[(u64, u64, &str)]) -> Lane {
        let span = |&(from, to, label): &(u64, u64, &str)| LaneSpan {
            from: Nanos(from),
            to: Nanos(to),
            label: label.into(),
            sort: SpanSort::Task(0),
        };
        Lane { title: String::new(), kind: LaneKind::Tasks, spans: spans.iter().map(span).collect() }
    }

    #[test]
    fn a_row_ends_where_something_changes() {
        let (one, two) = (lane(&[(0, 10, "a"), (10, 20, "b")]), lane(&[(5, 15, "c")]));
        let mut rows = Rows::new(vec![&one, &two]);
        let told = |rows: Vec<Row>| -> Vec<String> {
            let cell = |cell: &Cell| match &cell.what {
                Some((label, _)) if cell.fresh => label.to_string(),
                Some(_) => "|".into(),
                None => ".".into(),
            };
            let row = |row: &Row| format!("{} {}", row.from.0, row.cells.iter().map(cell).collect::<String>());
            rows.iter().map(row).collect()
        };
        assert_eq!(told(rows.between(Nanos(0), Nanos(12))), ["0 a.", "5 |c", "10 b|"]);
        assert_eq!(told(rows.between(Nanos(12), Nanos(30))), ["12 ||", "15 |.", "20 .."]);
    }
}
