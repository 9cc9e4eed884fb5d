//! `pmux report`: where time went, from any recording.
//!
//! What it is: [`report`] reads, [`table`] prints for people, [`json`] for programs; on a terminal [`mod@view`] shows it. Read first:
//! [`View`].
//!
//! **Invariant:** what is missing (lost records, files that have changed) is said on standard error, and in the JSON.

pub(crate) mod json;
pub(crate) mod missing;
mod rows;
mod table;
mod view;

use crate::failure::{Failure, failed};
use crate::input::manifest::Manifest;
use crate::input::{self, Opened};
use crate::options::exit_status::SUCCESS;
use crate::options::reading::{Graph, Percent, ReportOptions, SortChoice};
use crate::picture;
use crate::say::{complain, say};
use crate::style::{Destination, Grouping, Style};
use pmux::profile::{self, Chosen, Hot, Order, Profile, SortKey, Symbols, Tally, Wanted, Weight};
use std::io::{self, IsTerminal, Write};

/// Which trees are shown, of calls that weigh at least so much.
const LEAST_CALL_PERCENT: f64 = 0.5;

/// Whether what a function called counts for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Children {
    Count,
    Apart,
}

/// Whether the events of a group stand side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Groups {
    Together,
    Apart,
}

/// All that is printed.
struct View<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    tally: &'a Tally,
    hot: &'a Hot,
    keys: &'a [SortKey],
    children: Children,
    graph: Option<Order>,
    groups: Groups,
    least_percent: f64,
    /// What the flight recorder tells.
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
            let group = events[at].group.as_ref().filter(|_| self.groups == Groups::Together);
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
    fn least_period(&self, event: usize) -> u64 {
        (self.tally.total(event).period as f64 * LEAST_CALL_PERCENT / 100.0).ceil() as u64
    }
}

/// The share of a whole, in per cent.
fn percent(part: Weight, whole: Weight) -> f64 {
    100.0 * part.period as f64 / whole.period.max(1) as f64
}

/// Runs `pmux report` and returns the exit status.
pub(crate) fn report(options: &ReportOptions) -> u8 {
    match run(options) {
        Ok(()) => SUCCESS,
        Err((text, status)) => complain(&text, status),
    }
}

fn run(options: &ReportOptions) -> Result<(), Failure> {
    let opened = input::open(&input::asked(&options.input)?)?;
    let usual = [SortKey::Comm, SortKey::Dso, SortKey::Symbol];
    let asked: Vec<SortKey> = options.sort.iter().map(|SortChoice(key)| *key).collect();
    let keys = if asked.is_empty() { &usual[..] } else { &asked };
    if let Some(place) = view::place(options)? {
        return view::run(place, opened, keys, options);
    }
    let Opened { input, name, manifests, wrong } = opened;
    let mut tally = Tally::new(profile::apart(keys));
    if io::stderr().is_terminal() {
        tally.on_progress(progress());
    }
    let mut chosen = Chosen::new(options.part.wanted(), tally);
    let profile = profile::read(input, &mut chosen).map_err(|error| input::about(&name, &error))?;
    wanted_in(&profile, &chosen, &chosen.sink).map_err(|text| input::about(&name, &text))?;
    let tally = chosen.sink;
    let mut symbols = Symbols::new(&profile);
    symbols.resolve_all(&profile);
    if !options.no_inline && keys.contains(&SortKey::Symbol) {
        symbols.resolve_inlined(&profile);
    }
    clear_progress();
    let hot = Hot::new(&profile, &symbols, &tally, keys);
    let has_chains = profile.events.iter().any(|event| event.has_call_chains());
    let children =
        if options.no_children || !(has_chains || options.children) { Children::Apart } else { Children::Count };
    let order = if children == Children::Count { Order::Caller } else { Order::Callee };
    let graph = match options.graph {
        Some(Graph::None) => None,
        Some(Graph::In(order)) => Some(order),
        Some(Graph::Usual) => Some(order),
        // For programs it is long, so it has to be asked for.
        None => (has_chains && !options.json).then_some(order),
    };
    let least_percent = options.percent_limit.map_or(0.0, |Percent(limit)| limit);
    let view = View {
        profile: &profile,
        symbols: &symbols,
        tally: &tally,
        hot: &hot,
        keys,
        children,
        graph,
        groups: if options.no_group { Groups::Apart } else { Groups::Together },
        least_percent,
        manifests: &manifests,
    };
    let printed = print(&view, options);
    for note in wrong.into_iter().chain(missing::notes(&profile, symbols.notes())) {
        say(&format!("pmux: {note}"));
    }
    // What was found out is kept on disk now. The rest ends with the process: to give memory back piece by piece takes as long as to
    // print.
    drop(symbols);
    std::mem::forget((profile, tally, hot));
    match printed {
        // Who reads the output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(failed(format!("the report can't be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Whether there is what was asked for: a recording without samples has a report, a part of one without any is a mistake.
fn wanted_in<S>(profile: &Profile, chosen: &Chosen<S>, tally: &Tally) -> Result<(), String> {
    if chosen.wanted == Wanted::default() {
        return Ok(());
    }
    let any = (0..profile.events.len()).any(|event| tally.total(event).samples > 0);
    picture::begin(profile, &chosen.wanted, chosen.first_ns, any).map(drop)
}

fn print(view: &View<'_>, options: &ReportOptions) -> io::Result<()> {
    let stdout = io::stdout();
    let destination = if stdout.is_terminal() {
        Destination::Terminal(terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
    } else {
        Destination::Other
    };
    let no_color = std::env::var_os("NO_COLOR");
    let style = Style::resolve(options.color, destination, no_color.as_deref(), Grouping::None);
    let mut out = io::BufWriter::with_capacity(1 << 16, stdout.lock());
    if options.json {
        json::print(view, &mut out)?;
    } else {
        table::print(view, style, options.header_only, &mut out)?;
    }
    out.flush()
}

/// Shows on a terminal how far reading is.
fn progress() -> impl FnMut(profile::Progress) {
    let mut last = std::time::Instant::now();
    move |progress| {
        if last.elapsed().as_millis() < 100 {
            return;
        }
        last = std::time::Instant::now();
        let mib = progress.bytes >> 20;
        let text = match progress.of_bytes {
            Some(all) if all > 0 => format!("reading: {} %, {mib} MiB", 100 * progress.bytes / all),
            _ => format!("reading: {mib} MiB"),
        };
        let _ = write!(io::stderr(), "\r\u{1b}[K{text}");
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\u{1b}[K");
    }
}
