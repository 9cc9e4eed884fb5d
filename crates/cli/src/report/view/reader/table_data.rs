//! Tables, as texts and weights.
//!
//! What it is: what [`Hot`](pmux::profile::Hot) knows, in the words of the printed table. Read first: [`make`].
//!
//! **Invariant:** a row has the same texts here as in the printed table.

use super::super::messages::{
    CallLine, CallStep, Chains, EventLine, Overview, RowKey, TableData, TableRow, ThreadLine,
};
use super::Made;
use crate::report::{View, percent, table};
use crate::stderr::visible;
use pmux::profile::{Call, Name, Profile, Row, Spot, Symbols, Tally, ThreadId, TreeSide, Weight};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Calls that weigh less are not shown.
const LEAST_CALL_PERCENT: f64 = 0.1;

/// The table of what was made, with the calls beside the rows that are open.
pub(super) fn make(
    profile: &Profile,
    symbols: &Symbols,
    made: &Made,
    open: &[RowKey],
    least_percent: f64,
) -> TableData {
    let view = made.view(profile, symbols);
    let event = made.query.event;
    let total = made.part.total(event);
    let key_of = |row: &Row| RowKey { group: made.hot.group(row.group), spot: row.spot };
    let rows = made.hot.rows(event).iter().filter(|row| percent(row.total, total) >= least_percent);
    let line = |row: &Row| {
        let program = program_of(&view, row.spot);
        TableRow { key: key_of(row), cells: table::cells(&view, row), own: row.own, total: row.total, program }
    };
    let mut lines: Vec<TableRow> = rows.map(line).collect();
    pmux::order::sort_by(&mut lines, |a, b| {
        let heavy = |line: &TableRow| Reverse((line.total.period, line.own.period));
        heavy(a).cmp(&heavy(b)).then_with(|| a.cells.cmp(&b.cells))
    });
    let least_period = (total.period as f64 * LEAST_CALL_PERCENT / 100.0).ceil() as u64;
    let mut calls = HashMap::new();
    let mut trees = made.hot.trees();
    for row in made.hot.rows(event).iter().filter(|row| open.contains(&key_of(row))) {
        let sides = [(TreeSide::Callees, "calls"), (TreeSide::Callers, "called by")]
            .map(|(side, name)| (side, name, trees.beside(event, row, side, least_period)));
        let mut flat = Flat { view: &view, lines: Vec::new(), rails: Vec::new() };
        let there: Vec<_> = sides.iter().filter(|(.., tree)| !tree.roots.is_empty()).collect();
        for (place, (side, name, tree)) in there.iter().enumerate() {
            let what = (CallStep::Side(*side), (*name).to_owned(), None);
            flat.add(what, row.total, &tree.roots, place + 1 < there.len());
        }
        calls.insert(key_of(row), flat.lines);
    }
    TableData { query: made.query.clone(), total, lines, calls }
}

fn program_of(view: &View<'_>, spot: Spot) -> Option<(Name, String)> {
    let name = match spot {
        Spot::Function(id) => Some(view.profile.modules.get(view.symbols.function(id).module).short),
        Spot::Program(name) => Some(name),
        Spot::Any => None,
    }?;
    Some((name, visible(view.profile.names.get(name))))
}

/// A step, its name and its program.
type CallLabel = (CallStep, String, Option<(Name, String)>);

/// A tree on its way into lines.
struct Flat<'a> {
    view: &'a View<'a>,
    lines: Vec<CallLine>,
    rails: Vec<bool>,
}

impl Flat<'_> {
    fn add(&mut self, (step, name, program): CallLabel, weight: Weight, next: &[Call], has_more: bool) {
        let (place, depth) = (self.lines.len(), self.rails.len());
        self.rails.push(has_more);
        let rails = self.rails.clone();
        self.lines.push(CallLine { step, name, program, weight, depth, end: 0, next: next.len(), rails });
        for (at, call) in next.iter().enumerate() {
            let program = program_of(self.view, call.spot);
            let what = (CallStep::Call(call.spot), table::spot_name(self.view, call.spot), program);
            self.add(what, call.weight, &call.next, at + 1 < next.len());
        }
        self.rails.pop();
        self.lines[place].end = self.lines.len();
    }
}

/// What there is in the recording so far; `remarks` say what is missing.
pub(super) fn overview(profile: &Profile, tally: &Tally, remarks: &[String]) -> Overview {
    let event = |(index, event): (usize, &pmux::profile::EventInfo)| EventLine {
        name: visible(&event.name),
        total: tally.total(index),
        chains: if event.has_call_chains() { Chains::Recorded } else { Chains::Missing },
    };
    let events: Vec<EventLine> = profile.events.iter().enumerate().map(event).collect();
    let mut weights: HashMap<ThreadId, Vec<Weight>> = HashMap::new();
    for (key, weight) in tally.rows() {
        let Some(thread) = key.thread else { continue };
        let of_thread = weights.entry(thread).or_insert_with(|| vec![Weight::default(); events.len()]);
        if let Some(of_event) = of_thread.get_mut(key.event as usize) {
            of_event.add(*weight);
        }
    }
    let thread = |(id, weights): (ThreadId, Vec<Weight>)| {
        let thread = profile.tasks.thread(id);
        let pid = profile.tasks.process_of(id).pid;
        ThreadLine { id, pid, tid: thread.tid, name: visible(profile.names.get(thread.name())), weights }
    };
    let mut threads: Vec<ThreadLine> = weights.into_iter().map(thread).collect();
    pmux::order::sort_by_key(&mut threads, |thread| (thread.pid, thread.tid, thread.id));
    let remarks = remarks.iter().map(|remark| visible(remark)).collect();
    Overview { events, threads, about: table::about_lines(profile), remarks }
}
