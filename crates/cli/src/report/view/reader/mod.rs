//! The reader: reads a recording in a thread of its own, and shows what was read so far to the thread that asks.
//!
//! What it is: a sink that adds samples up, and between two blocks of the file makes the table that is wanted ([`table_data`]) or the
//! source of a function ([`source`]). When all was read it waits for questions. Read first: [`Reader::answer`].
//!
//! **Invariant:** it never waits for the screen. Of several questions only the last one is answered. While there is more to read, making
//! tables takes a small part of the time.

mod instructions;
mod source;
mod table_data;

use super::messages::{ReaderMessage, TableQuery, ViewRequest, Zoom, ZoomTarget};
use crate::report::{Children, View, missing, wanted_in};
use pmux::profile::{
    Apart, BrokenChains, Chosen, Hot, Input, Key, LookupDetail, Profile, Progress, Sample, SampleFilter, Sink, SortKey,
    Spot, StackId, Symbols, Tally, apart, read,
};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// So often at most a table is made anew while reading.
const PAUSE: Duration = Duration::from_millis(100);
/// So many times as long as a table took nothing is made.
const PATIENCE: u32 = 5;
/// So often it is told how far reading is.
const TICK: Duration = Duration::from_millis(40);

/// Where news is sent; `false` if no receiver is left.
pub(super) type MessageSender = Box<dyn Fn(ReaderMessage) -> bool + Send>;

/// How a recording is read, and what is told of it.
pub(super) struct ReadPlan {
    /// Stands before what went wrong.
    pub(super) name: String,
    /// What is known of each snapshot that it is made of.
    pub(super) snapshots: Vec<String>,
    /// What is wrong with what stands beside it.
    pub(super) wrong: Vec<String>,
    /// What rows may be told apart by.
    pub(super) keys: Vec<SortKey>,
    /// Rows that weigh less are left out.
    pub(super) least_percent: f64,
    pub(super) wanted: SampleFilter,
    /// Whether functions that were inlined have rows.
    pub(super) look: LookupDetail,
    /// Whether what ran and what waited becomes one event. That is known when all was read.
    pub(super) is_wall: bool,
}

/// Reads all, and answers until no sender of questions is left.
pub(super) fn run(input: Input, plan: ReadPlan, requests: Receiver<ViewRequest>, sender: MessageSender) {
    let wanted = plan.wanted.clone();
    let tally = Tally::new(Apart { threads: true, ..apart(&plan.keys) });
    let reader = Reader {
        plan,
        requests,
        sender,
        tally,
        symbols: None,
        samples: 0,
        request: None,
        made: None,
        next_table: Instant::now(),
        next_tick: Instant::now(),
    };
    let mut chosen = Chosen::new(wanted, reader);
    let read = read(input, &mut chosen).map_err(|error| error.to_string());
    let read = read.and_then(|mut profile| {
        wanted_in(&profile, &chosen, &chosen.sink.tally)?;
        if chosen.sink.plan.is_wall {
            chosen.sink.tally = chosen.sink.tally.wall(&mut profile)?;
        }
        Ok(profile)
    });
    let mut reader = chosen.sink;
    let profile = match read {
        Ok(profile) => profile,
        Err(why) => {
            let (text, _) = crate::input::about(&reader.plan.name, &why);
            (reader.sender)(ReaderMessage::Failed(text));
            return;
        }
    };
    if reader.finish(&profile).is_break() {
        return;
    }
    while let Ok(request) = reader.requests.recv() {
        if reader.take_requests(Some(request)).is_break() || reader.answer(&profile, AnswerCause::Question).is_break() {
            return;
        }
    }
}

/// Why an answer is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerCause {
    /// Something else is wanted.
    Question,
    /// More was read.
    Samples,
}

/// The table that was made last.
struct Made {
    query: TableQuery,
    /// The samples that belong to it.
    part: Tally,
    hot: Hot,
    /// How many samples had been read.
    samples: u64,
}

impl Made {
    /// What the functions of the printed table need; which rows are shown is decided here.
    fn view<'a>(&'a self, profile: &'a Profile, symbols: &'a Symbols) -> View<'a> {
        View {
            profile,
            symbols,
            tally: &self.part,
            hot: &self.hot,
            keys: &self.query.keys,
            children: Children::Count,
            columns: &[],
            order_by: Children::Count,
            graph: None,
            is_grouped: false,
            is_latency: false,
            least_percent: 0.0,
            manifests: &[],
        }
    }
}

struct Reader {
    plan: ReadPlan,
    requests: Receiver<ViewRequest>,
    sender: MessageSender,
    tally: Tally,
    symbols: Option<Symbols>,
    samples: u64,
    request: Option<ViewRequest>,
    made: Option<Made>,
    next_table: Instant,
    next_tick: Instant,
}

impl Reader {
    fn send(&self, message: ReaderMessage) -> ControlFlow<()> {
        if (self.sender)(message) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Takes what was asked meanwhile. Breaks when no sender of questions is left.
    fn take_requests(&mut self, first: Option<ViewRequest>) -> ControlFlow<()> {
        self.request = first.or(self.request.take());
        loop {
            match self.requests.try_recv() {
                Ok(request) => self.request = Some(request),
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => return ControlFlow::Break(()),
            }
        }
    }

    /// All was read.
    fn finish(&mut self, profile: &Profile) -> ControlFlow<()> {
        self.take_requests(None)?;
        self.answer(profile, AnswerCause::Samples)?;
        // Looking into debugging information may take long: so the table is shown before, and here once more with what was inlined.
        let symbols = self.symbols.as_mut().filter(|_| self.plan.look == LookupDetail::Lines);
        if symbols.is_some_and(|symbols| symbols.resolve_inlined(profile)) {
            self.made = None;
            self.answer(profile, AnswerCause::Samples)?;
        }
        self.send(ReaderMessage::Finished)
    }

    /// Makes what is wanted, and shows it.
    fn answer(&mut self, profile: &Profile, cause: AnswerCause) -> ControlFlow<()> {
        let Some(request) = self.request.clone() else { return ControlFlow::Continue(()) };
        let began = Instant::now();
        let symbols = self.symbols.get_or_insert_with(|| Symbols::new(profile));
        symbols.resolve_all(profile);
        if cause == AnswerCause::Samples {
            let notes = missing::notes(profile, symbols.notes());
            let broken = missing::broken_chains(profile, &BrokenChains::of(profile, symbols, &mut self.tally.chains()));
            let remarks: Vec<String> = self.plan.wrong.iter().cloned().chain(notes).chain(broken).collect();
            let mut overview = table_data::overview(profile, &self.tally, &remarks);
            overview.about.splice(0..0, self.plan.snapshots.iter().map(|snapshot| ("snapshot", snapshot.clone())));
            self.send(ReaderMessage::Overview(overview))?;
        }
        let made = self.made.take().filter(|made| made.query == request.query && made.samples == self.samples);
        let made = made.unwrap_or_else(|| self.make(profile, &request.query));
        let Some(symbols) = &mut self.symbols else { return ControlFlow::Continue(()) };
        let data = table_data::make(profile, symbols, &made, &request.open, self.plan.least_percent);
        // Looking into debugging information may take long: the table is shown before.
        let sent = (self.sender)(ReaderMessage::TableData(data));
        let source = request.source.filter(|_| sent);
        let source = source.map(|(spot, by)| (spot, source::make(profile, symbols, &made, (spot, by))));
        self.made = Some(made);
        self.next_table = Instant::now() + PAUSE.max(began.elapsed() * PATIENCE);
        match source {
            Some((spot, source)) => self.send(ReaderMessage::Source(request.query, spot, source)),
            None if sent => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }

    fn make(&self, profile: &Profile, query: &TableQuery) -> Made {
        let empty = Symbols::new(profile);
        let symbols = self.symbols.as_ref().unwrap_or(&empty);
        let filters: Vec<Filter> = query.zooms.iter().map(|zoom| Filter::new(profile, symbols, zoom)).collect();
        let is_in = |key: &Key| filters.iter().all(|filter| filter.lets(profile, key));
        let part = self.tally.part(apart(&query.keys), is_in);
        let hot = Hot::new(profile, symbols, &part, &query.keys);
        Made { query: query.clone(), part, hot, samples: self.samples }
    }
}

impl Sink for Reader {
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        self.samples += 1;
        self.tally.sample(profile, sample)
    }

    fn progress(&mut self, profile: &Profile, progress: Progress) -> ControlFlow<()> {
        let now = Instant::now();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.send(ReaderMessage::Progress(progress, self.samples))?;
        }
        let before = self.request.clone();
        self.take_requests(None)?;
        if self.plan.is_wall {
            return ControlFlow::Continue(());
        }
        let has_more = self.made.as_ref().is_none_or(|made| made.samples < self.samples);
        if self.samples > 0 && has_more && now >= self.next_table {
            self.answer(profile, AnswerCause::Samples)
        } else if self.request != before {
            self.answer(profile, AnswerCause::Question)
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Whether samples belong to a part.
struct Filter {
    part: ZoomTarget,
    /// Of a function: which stacks go through it.
    passes: Vec<bool>,
}

impl Filter {
    fn new(profile: &Profile, symbols: &Symbols, zoom: &Zoom) -> Self {
        let mut passes = Vec::new();
        if let ZoomTarget::Function(spot) = zoom.part {
            passes.resize(profile.stacks.len(), false);
            // Callers come first.
            for (stack, frame, caller) in profile.stacks.nodes() {
                passes[stack.index()] = passes[caller.index()] || is_at(profile, symbols, frame, spot);
            }
        }
        Self { part: zoom.part, passes }
    }

    fn lets(&self, profile: &Profile, key: &Key) -> bool {
        match self.part {
            ZoomTarget::Thread(thread) => key.thread == Some(thread),
            ZoomTarget::Program(name) => program_of(profile, key.stack) == Some(name),
            ZoomTarget::Function(_) => self.passes.get(key.stack.index()).copied().unwrap_or(false),
        }
    }
}

fn program_of(profile: &Profile, stack: StackId) -> Option<pmux::profile::Name> {
    let frame = profile.stacks.frame(profile.stacks.innermost(stack)?);
    Some(profile.modules.get(frame.module).short)
}

/// Whether a frame is at a place of the table.
fn is_at(profile: &Profile, symbols: &Symbols, frame: pmux::profile::FrameId, spot: Spot) -> bool {
    match spot {
        Spot::Function(function) => {
            symbols.known_id_of(frame) == Some(function) || symbols.inlined_in(frame).contains(&function)
        }
        Spot::Program(name) => profile.modules.get(profile.stacks.frame(frame).module).short == name,
        Spot::Any => true,
    }
}
