//! Rows with what they say, in order, and the work on many of them side by side.
//!
//! What it is: [`rows`] finds what is shown and sorts it, [`in_order`] makes texts on all CPUs and hands them over one after the other.
//! Read first: [`rows`].
//!
//! **Invariant:** what comes out is the same however many CPUs there are.

use super::{Children, View, percent, table};
use pmux::profile::{Row, Weight};
use pmux_ui::text::columns;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering as AtomicOrdering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// It is worth a thread to make the texts of so many rows.
const MANY: usize = 1 << 10;
/// Calls go as deep as a hostile recording says.
const STACK_BYTES: usize = 256 << 20;

/// What a row says in its columns. No cell has a control character, so one of them stands between two cells.
pub(super) struct RowCells(String);

impl RowCells {
    const BETWEEN: char = '\0';

    fn of(view: &View<'_>, row: &Row) -> Self {
        let mut text = String::with_capacity(64);
        for (place, key) in view.keys.iter().enumerate() {
            if place > 0 {
                text.push(Self::BETWEEN);
            }
            table::cell(view, row, *key, &mut text);
        }
        Self(text)
    }

    /// The cells, one for each column.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(Self::BETWEEN)
    }
}

/// A row of one event or of a group of events.
pub(super) struct RowLine {
    /// The first event's; it weighs nothing where only others have it.
    pub(super) row: Row,
    /// What it weighs for the other events: what was met in it, and with what it called.
    pub(super) others: Vec<(Weight, Weight)>,
    pub(super) cells: RowCells,
}

/// Rows with what they say, the heaviest first.
pub(super) struct Rows {
    pub(super) list: Vec<RowLine>,
    /// How many characters the widest cell of each column has.
    pub(super) widths: Vec<usize>,
}

/// What a row weighs for each event of a group but the first, by its place among the rows of the first.
type Others = HashMap<usize, Vec<(Weight, Weight)>>;

/// Rows of several events, each once.
fn joined(view: &View<'_>, events: &[usize]) -> (Vec<Row>, Others) {
    let Some((&first, others)) = events.split_first() else { return Default::default() };
    let mut rows = view.hot.rows(first).to_vec();
    let mut weights = Others::new();
    if others.is_empty() {
        return (rows, weights);
    }
    let mut places: HashMap<_, _> = rows.iter().zip(0..).map(|(row, place)| ((row.group, row.spot), place)).collect();
    for (column, &event) in others.iter().enumerate() {
        for row in view.hot.rows(event) {
            let place = *places.entry((row.group, row.spot)).or_insert(rows.len());
            if place == rows.len() {
                let mut empty = *row;
                (empty.own, empty.total) = Default::default();
                rows.push(empty);
            }
            let of_row = weights.entry(place).or_insert_with(|| vec![Default::default(); others.len()]);
            of_row[column] = (row.own, row.total);
        }
    }
    (rows, weights)
}

/// The rows of an event that are shown, or of a group of events.
pub(super) fn rows(view: &View<'_>, events: &[usize]) -> Rows {
    let weight = |children: Children, own: Weight, total: Weight| match children {
        Children::Count => total,
        Children::Apart => own,
    };
    let totals: Vec<Weight> = events.iter().map(|&event| view.tally.total(event)).collect();
    let (all, mut others) = joined(view, events);
    let is_shown = |row: &Row, others: &[(Weight, Weight)]| {
        let weights = [(row.own, row.total)].into_iter().chain(others.iter().copied()).zip(&totals);
        weights
            .map(|((own, total), whole)| (weight(view.children, own, total), *whole))
            .any(|(weight, whole)| weight.samples > 0 && percent(weight, whole) >= view.least_percent)
    };
    let mut shown: Vec<(Row, Vec<(Weight, Weight)>)> = Vec::with_capacity(all.len());
    for (place, row) in all.into_iter().enumerate() {
        let others = others.remove(&place).unwrap_or_default();
        if is_shown(&row, &others) {
            shown.push((row, others));
        }
    }
    let period = |own: Weight, total: Weight| weight(view.order_by, own, total).period;
    let heavy = |line: &RowLine| Reverse((period(line.row.own, line.row.total), line.row.own.period));
    let heavy_of_others = |line: &RowLine| {
        let periods = line.others.iter().map(|&(own, total)| Reverse((period(own, total), own.period)));
        periods.collect::<Vec<_>>()
    };
    // Names decide between equals, so that two runs print the same.
    let order = |a: &RowLine, b: &RowLine| -> Ordering {
        let by_first = heavy(a).cmp(&heavy(b));
        let by_weight = by_first.then_with(|| match totals.len() {
            1 => Ordering::Equal,
            _ => heavy_of_others(a).cmp(&heavy_of_others(b)),
        });
        by_weight.then_with(|| a.cells.0.cmp(&b.cells.0))
    };
    let part = |rows: &mut [(Row, Vec<(Weight, Weight)>)]| {
        let mut widths = vec![0; view.keys.len()];
        let line = |(row, others): &mut (Row, Vec<(Weight, Weight)>)| {
            let cells = RowCells::of(view, row);
            for (width, cell) in widths.iter_mut().zip(cells.iter()) {
                *width = (*width).max(columns(cell));
            }
            let mut others = std::mem::take(others);
            others.resize(totals.len() - 1, Default::default());
            RowLine { row: *row, others, cells }
        };
        let mut list: Vec<RowLine> = rows.iter_mut().map(line).collect();
        list.sort_unstable_by(order);
        (list, widths)
    };
    let count = shown.len();
    let length = count.div_ceil(threads(count.div_ceil(MANY))).max(1);
    let parts = thread::scope(|scope| {
        let mut parts = shown.chunks_mut(length);
        let first = parts.next().unwrap_or_default();
        let beside: Vec<_> = parts.map(|rows| scope.spawn(|| part(rows))).collect();
        let mut done = vec![part(first)];
        let joined = beside.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        done.extend(joined);
        done
    });
    let mut rows = Rows { list: Vec::with_capacity(count), widths: vec![0; view.keys.len()] };
    for (list, widths) in parts {
        rows.list.extend(list);
        rows.widths.iter_mut().zip(widths).for_each(|(widest, width)| *widest = width.max(*widest));
    }
    // Parts that are in order are what this sort is good at.
    rows.list.sort_by(order);
    rows
}

/// How many threads share so many jobs.
fn threads(jobs: usize) -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(jobs).max(1)
}

/// Makes so many texts, and hands them to `take` in order. Each thread has something of its own to work with, and a stack that is large
/// enough for any recording.
///
/// # Errors
/// The first of `take`, which is then asked no more.
pub(super) fn in_order<S>(
    count: usize,
    begin: impl Fn() -> S + Sync,
    make: impl Fn(&mut S, usize) -> String + Sync,
    mut take: impl FnMut(&str) -> io::Result<()>,
) -> io::Result<()> {
    let threads = threads(count);
    let next = AtomicUsize::new(0);
    let work = |made: SyncSender<(usize, String)>| {
        let mut own = begin();
        // Each text is made by one thread: the counter alone says which. Who takes them may have seen enough.
        while let Some(at) = Some(next.fetch_add(1, AtomicOrdering::Relaxed)).filter(|at| *at < count) {
            if made.send((at, make(&mut own, at))).is_err() {
                return;
            }
        }
    };
    let work = &work;
    thread::scope(|scope| {
        let (made, texts) = sync_channel(threads);
        let mut started = 0;
        for _ in 0..threads {
            let made = made.clone();
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            started += usize::from(thread.spawn_scoped(scope, move || work(made)).is_ok());
        }
        drop(made);
        if started == 0 {
            let mut own = begin();
            return (0..count).try_for_each(|at| take(&make(&mut own, at)));
        }
        let (mut early, mut wanted) = (BTreeMap::new(), 0);
        for (at, text) in texts {
            early.insert(at, text);
            while let Some(text) = early.remove(&wanted) {
                take(&text)?;
                wanted += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_in_order_until_the_reader_stops() {
        let make = |made: &mut usize, at: usize| {
            *made += 1;
            format!("{at} ")
        };
        let mut all = String::new();
        let push = |text: &str| {
            all.push_str(text);
            Ok(())
        };
        assert!(in_order(1000, || 0, make, push).is_ok());
        assert_eq!(all, (0..1000).map(|at| format!("{at} ")).collect::<String>());
        let mut seen = 0;
        let stop = |_: &str| {
            seen += 1;
            if seen == 7 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        };
        let ended = in_order(1000, || 0, make, stop);
        assert_eq!((ended.map_err(|error| error.kind()), seen), (Err(io::ErrorKind::BrokenPipe), 7));
        assert!(in_order(0, || 0, make, |_| Err(io::ErrorKind::Other.into())).is_ok());
    }
}
