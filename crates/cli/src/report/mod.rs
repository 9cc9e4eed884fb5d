//! `pmux report`: where time went, from any recording.
//!
//! What it is: [`report`] reads, [`table`] prints for people, [`json`] for programs; on a terminal [`mod@view`] shows it; [`mod@waits`] says
//! what was waited for, and who ended it, [`mod@run_queue`] how long for a CPU. Read first:
//! [`View`].
//!
//! **Invariant:** what is missing (lost records, files that have changed) is said on standard error, and in the JSON.

mod critical;
pub(crate) mod json;
pub(crate) mod missing;
mod rows;
mod run_queue;
mod table;
mod view;
mod waits;

use crate::failure::{Failure, failed};
use crate::input::manifest::Manifest;
use crate::input::{self, OpenedInput};
use crate::options::reading::{CallForm, FieldChoice, Graph, NumberColumn, ReportOptions};
use crate::picture;
use crate::stderr::write_stderr;
use crate::style::Style;
use pmux::profile::{
    self, Apart, BrokenChains, Chosen, EventInfo, Hot, Order, Profile, SortKey, Symbols, Tally, Weight,
};
use std::io::{self, Write};

/// Calls that weigh at least so much are shown, if nothing else is asked for.
const LEAST_CALL_PERCENT: f64 = 0.5;

/// Whether what a function called counts for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Children {
    Count,
    Apart,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    /// A number, of each event.
    Number(NumberColumn),
    /// The text for the key at this place.
    Key(usize),
}

/// The calls that are printed below rows.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Calls {
    order: Order,
    form: CallForm,
    least_percent: f64,
}

/// All that is printed.
struct View<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    tally: &'a Tally,
    hot: &'a Hot,
    keys: &'a [SortKey],
    columns: &'a [Column],
    children: Children,
    /// What rows are in the order of.
    order_by: Children,
    graph: Option<Calls>,
    /// Whether the events of a group stand side by side.
    is_grouped: bool,
    /// Whether each event has its latency before it, in a group.
    is_latency: bool,
    least_percent: f64,
    manifests: &'a [Manifest],
}

impl View<'_> {
    /// The events that have samples.
    fn events(&self) -> impl Iterator<Item = usize> {
        (0..self.profile.events.len()).filter(|&event| self.tally.total(event).samples > 0)
    }

    /// The events that have samples, those of a group together.
    fn tables(&self) -> Vec<Vec<usize>> {
        let events = &self.profile.events;
        let (mut tables, mut at) = (Vec::new(), 0);
        while at < events.len() {
            let group = events[at].group.as_ref().filter(|_| self.is_grouped);
            let end = events.len().min(at + group.map_or(1, |group| group.events.max(1)));
            let members: Vec<usize> = (at..end).collect();
            if members.iter().any(|&event| self.tally.total(event).samples > 0) {
                tables.push(members);
            }
            at = end;
        }
        tables
    }

    /// Calls that weigh less are not shown.
    fn least_period(&self, event: usize, calls: Calls) -> u64 {
        (self.tally.total(event).period as f64 * calls.least_percent / 100.0).ceil() as u64
    }
}

fn percent(part: Weight, whole: Weight) -> f64 {
    share(part.period, whole.period)
}

/// The same of numbers.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// What rows are told apart by: what was asked for, or what is usual.
fn keys(options: &ReportOptions) -> Vec<SortKey> {
    let mut keys = options.sort.clone();
    for field in &options.fields {
        match field {
            FieldChoice::Key(key) if !keys.contains(key) => keys.push(*key),
            _ => {}
        }
    }
    if options.sort.is_empty() && options.fields.is_empty() {
        keys.extend([SortKey::Comm, SortKey::Dso, SortKey::Symbol]);
    }
    keys
}

/// Whether something is printed that depends on who called.
fn needs_callers(options: &ReportOptions) -> bool {
    let has_column = options.fields.contains(&FieldChoice::Number(NumberColumn::Children));
    options.json
        || options.wall
        || options.branch_stack
        || has_column
        || !options.no_children
        || options.graph != Some(Graph::None)
}

/// The columns: those that were asked for, and what rows are told apart by.
fn columns(options: &ReportOptions, keys: &[SortKey], children: Children) -> Vec<Column> {
    let usual = match children {
        Children::Count => &[NumberColumn::Children, NumberColumn::Own][..],
        Children::Apart => &[NumberColumn::Own],
    };
    let mut columns: Vec<Column> = Vec::new();
    if options.fields.is_empty() {
        columns.extend(usual.iter().copied().map(Column::Number));
    }
    for field in &options.fields {
        columns.extend(match field {
            FieldChoice::Number(number) => Some(Column::Number(*number)),
            FieldChoice::Key(key) => keys.iter().position(|known| known == key).map(Column::Key),
        });
    }
    if options.show_nr_samples && !columns.contains(&Column::Number(NumberColumn::Samples)) {
        let behind = columns.iter().rposition(|column| matches!(column, Column::Number(_))).map_or(0, |at| at + 1);
        columns.insert(behind, Column::Number(NumberColumn::Samples));
    }
    for key in (0..keys.len()).map(Column::Key) {
        if !columns.contains(&key) {
            columns.push(key);
        }
    }
    columns
}

pub(crate) fn report(options: &ReportOptions) -> Result<(), Failure> {
    let mut opened = input::open(&input::spec(&options.input)?)?;
    if options.branch_stack {
        opened.input = opened.input.by_branches();
    }
    if options.runqueue {
        return run_queue::run(opened, options);
    }
    if options.critical_path {
        return critical::run(opened, options);
    }
    if options.locks || options.wakers {
        return waits::run(opened, options);
    }
    let keys = &keys(options)[..];
    if let Some(place) = view::place(options)? {
        return view::run(place, opened, keys, options);
    }
    let OpenedInput { input, name, manifests, wrong } = opened;
    let apart = profile::apart(keys);
    let mut tally = Tally::new(Apart { parallelism: apart.parallelism || options.latency, ..apart });
    if !needs_callers(options) {
        tally = tally.innermost();
    }
    let mut chosen = Chosen::new(options.part.wanted(), tally);
    let mut profile =
        profile::read(input::progress::on_stderr(input), &mut chosen).map_err(|error| input::about(&name, &error))?;
    wanted_in(&profile, &chosen, &chosen.sink).map_err(|text| input::about(&name, &text))?;
    let mut tally = chosen.sink;
    if options.wall {
        tally = tally.wall(&mut profile).map_err(|text| input::about(&name, &text))?;
    }
    if options.latency {
        tally = tally.latency(&mut profile, apart).map_err(|text| input::about(&name, &text))?;
    }
    let mut symbols = Symbols::new(&profile);
    symbols.resolve_all(&profile);
    // Nothing is met in what was inlined: it has rows of its own only where callers count.
    if !options.no_inline && keys.contains(&SortKey::Symbol) && needs_callers(options) {
        symbols.resolve_inlined(&profile);
    }
    let hot = Hot::new(&profile, &symbols, &tally, keys);
    // The callers of a branch are where it came from.
    let has_chains = options.branch_stack || profile.events.iter().any(EventInfo::has_call_chains);
    let children = if options.no_children || options.branch_stack || !(has_chains || options.children) {
        Children::Apart
    } else {
        Children::Count
    };
    let order = if children == Children::Count { Order::Caller } else { Order::Callee };
    let usual = Calls { order, form: CallForm::Graph, least_percent: LEAST_CALL_PERCENT };
    let graph = match options.graph {
        Some(Graph::None) => None,
        Some(Graph::Shown(style)) => Some(Calls {
            order: style.order.unwrap_or(order),
            form: style.form,
            least_percent: style.least_percent.unwrap_or(LEAST_CALL_PERCENT),
        }),
        // For programs it is long, so it has to be asked for.
        None => (has_chains && !options.json).then_some(usual),
    };
    let columns = columns(options, keys, children);
    let order_of = |column: &Column| match column {
        Column::Number(NumberColumn::Children) => Some(Children::Count),
        Column::Number(_) => Some(Children::Apart),
        Column::Key(_) => None,
    };
    let order_by = columns.iter().find_map(order_of).unwrap_or(children);
    let least_percent = options.percent_limit.unwrap_or_default();
    let view = View {
        profile: &profile,
        symbols: &symbols,
        tally: &tally,
        hot: &hot,
        keys,
        columns: &columns,
        children,
        order_by,
        graph,
        is_grouped: !options.no_group,
        is_latency: options.latency,
        least_percent,
        manifests: &manifests,
    };
    let is_recorded = |event: usize| !options.latency || profile.events[event].group.is_none();
    let mut chains = tally.chains().filter(|&(event, ..)| is_recorded(event));
    let broken = BrokenChains::of(&profile, &symbols, &mut chains);
    drop(chains);
    let printed = print(&view, &broken, options);
    if !options.branch_stack && profile.events.iter().any(EventInfo::has_branches) {
        write_stderr("pmux: the samples have the last branches that were taken: `-b` adds these up");
    }
    let broken = missing::broken_chains(&profile, &broken).filter(|_| !options.branch_stack);
    for note in wrong.into_iter().chain(missing::notes(&profile, symbols.notes())).chain(broken) {
        write_stderr(&format!("pmux: {note}"));
    }
    // What was found out is kept on disk now. The rest ends with the process: to give memory back piece by piece takes as long as to
    // print.
    drop(symbols);
    std::mem::forget((profile, tally, hot));
    written(printed, "the report")
}

/// What came of writing to standard output. A reader that has seen enough is no error.
pub(crate) fn written(result: io::Result<()>, what: &str) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(failed(format!("{what} can't be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Whether there is what was asked for: a recording without samples has a report, a part of one without any is a mistake.
fn wanted_in<S>(profile: &Profile, chosen: &Chosen<S>, tally: &Tally) -> Result<(), String> {
    if !chosen.wanted().is_part() {
        return Ok(());
    }
    let any = (0..profile.events.len()).any(|event| tally.total(event).samples > 0);
    picture::begin(profile, chosen.wanted(), chosen.first_ns, any).map(drop)
}

fn print(view: &View<'_>, broken: &BrokenChains, options: &ReportOptions) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    if options.json {
        json::print(view, broken, &mut out)?;
    } else {
        table::print(view, Style::of_stdout(options.color), options.header_only, &mut out)?;
    }
    out.flush()
}
