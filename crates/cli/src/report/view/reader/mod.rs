//! The reader: reads a recording in a thread of its own, and shows what was read so far to the thread that asks.
//!
//! What it is: a sink that adds samples up, and between two blocks of the file makes the table that is wanted ([`sheet`]) or the source
//! of a function ([`source`]). When all was read it waits for questions. Read first: [`Reader::answer`].
//!
//! **Invariant:** it never waits for the screen. Of several questions only the last one is answered. While there is more to read, making
//! tables takes a small part of the time.

mod instructions;
mod sheet;
mod source;

use super::told::{Ask, Part, Subject, Told, Zoom};
use crate::report::{Children, Groups, View, missing, wanted_in};
use pmux::profile::{
    Apart, Chosen, Hot, Input, Key, Look, Profile, Progress, Sample, Sink, SortKey, Spot, StackId, Symbols, Tally,
    Wanted, apart, read,
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
pub(super) type Tell = Box<dyn Fn(Told) -> bool + Send>;

/// What to read, and how.
pub(super) struct Reading {
    pub(super) input: Input,
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
    /// What of it is wanted.
    pub(super) wanted: Wanted,
    /// Whether functions that were inlined have rows.
    pub(super) look: Look,
}

/// Reads all, and answers until no sender of questions is left.
pub(super) fn run(reading: Reading, asks: Receiver<Ask>, tell: Tell) {
    let Reading { input, name, snapshots, wrong, keys, least_percent, wanted, look } = reading;
    let tally = Tally::new(Apart { threads: true, ..apart(&keys) });
    let reader = Reader {
        asks,
        tell,
        tally,
        symbols: None,
        snapshots,
        wrong,
        least_percent,
        look,
        samples: 0,
        ask: None,
        made: None,
        next_table: Instant::now(),
        next_tick: Instant::now(),
    };
    let mut chosen = Chosen::new(wanted, reader);
    let read = read(input, &mut chosen).map_err(|error| error.to_string());
    let read = read.and_then(|profile| wanted_in(&profile, &chosen, &chosen.sink.tally).map(|()| profile));
    let mut reader = chosen.sink;
    let profile = match read {
        Ok(profile) => profile,
        Err(why) => {
            let (text, _) = crate::input::about(&name, &why);
            (reader.tell)(Told::Failed(text));
            return;
        }
    };
    if reader.finish(&profile).is_break() {
        return;
    }
    while let Ok(ask) = reader.asks.recv() {
        if reader.take_asks(Some(ask)).is_break() || reader.answer(&profile, News::Question).is_break() {
            return;
        }
    }
}

/// Why an answer is due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    /// Something else is wanted.
    Question,
    /// More was read.
    Samples,
}

/// The table that was made last.
struct Made {
    subject: Subject,
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
            keys: &self.subject.keys,
            children: Children::Count,
            columns: &[],
            order_by: Children::Count,
            graph: None,
            groups: Groups::Apart,
            least_percent: 0.0,
            manifests: &[],
        }
    }
}

struct Reader {
    asks: Receiver<Ask>,
    tell: Tell,
    tally: Tally,
    symbols: Option<Symbols>,
    snapshots: Vec<String>,
    wrong: Vec<String>,
    least_percent: f64,
    look: Look,
    samples: u64,
    ask: Option<Ask>,
    made: Option<Made>,
    next_table: Instant,
    next_tick: Instant,
}

impl Reader {
    fn say(&self, told: Told) -> ControlFlow<()> {
        if (self.tell)(told) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Takes what was asked meanwhile. Breaks when no sender of questions is left.
    fn take_asks(&mut self, first: Option<Ask>) -> ControlFlow<()> {
        self.ask = first.or(self.ask.take());
        loop {
            match self.asks.try_recv() {
                Ok(ask) => self.ask = Some(ask),
                Err(TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(TryRecvError::Disconnected) => return ControlFlow::Break(()),
            }
        }
    }

    /// All was read.
    fn finish(&mut self, profile: &Profile) -> ControlFlow<()> {
        self.take_asks(None)?;
        self.answer(profile, News::Samples)?;
        // Looking into debugging information may take long: so the table is shown before, and here once more with what was inlined.
        let symbols = self.symbols.as_mut().filter(|_| self.look == Look::Lines);
        if symbols.is_some_and(|symbols| symbols.resolve_inlined(profile)) {
            self.made = None;
            self.answer(profile, News::Samples)?;
        }
        self.say(Told::Finished)
    }

    /// Makes what is wanted, and shows it.
    fn answer(&mut self, profile: &Profile, news: News) -> ControlFlow<()> {
        let Some(ask) = self.ask.clone() else { return ControlFlow::Continue(()) };
        let began = Instant::now();
        let symbols = self.symbols.get_or_insert_with(|| Symbols::new(profile));
        symbols.resolve_all(profile);
        if news == News::Samples {
            let notes = missing::notes(profile, symbols.notes());
            let remarks: Vec<String> = self.wrong.iter().cloned().chain(notes).collect();
            let mut overview = sheet::overview(profile, &self.tally, &remarks);
            overview.about.splice(0..0, self.snapshots.iter().map(|snapshot| ("snapshot", snapshot.clone())));
            self.say(Told::Overview(overview))?;
        }
        let made = self.made.take().filter(|made| made.subject == ask.subject && made.samples == self.samples);
        let made = made.unwrap_or_else(|| self.make(profile, &ask.subject));
        let Some(symbols) = &mut self.symbols else { return ControlFlow::Continue(()) };
        let sheet = sheet::make(profile, symbols, &made, &ask.open, self.least_percent);
        // Looking into debugging information may take long: the table is shown before.
        let told = (self.tell)(Told::Sheet(sheet));
        let source = ask.source.filter(|_| told);
        let source = source.map(|(spot, by)| (spot, source::make(profile, symbols, &made, (spot, by))));
        self.made = Some(made);
        self.next_table = Instant::now() + PAUSE.max(began.elapsed() * PATIENCE);
        match source {
            Some((spot, source)) => self.say(Told::Source(ask.subject, spot, source)),
            None if told => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }

    fn make(&self, profile: &Profile, subject: &Subject) -> Made {
        let empty = Symbols::new(profile);
        let symbols = self.symbols.as_ref().unwrap_or(&empty);
        let filters: Vec<Filter> = subject.zooms.iter().map(|zoom| Filter::new(profile, symbols, zoom)).collect();
        let is_in = |key: &Key| filters.iter().all(|filter| filter.lets(profile, key));
        let part = self.tally.part(apart(&subject.keys), is_in);
        let hot = Hot::new(profile, symbols, &part, &subject.keys);
        Made { subject: subject.clone(), part, hot, samples: self.samples }
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
            self.say(Told::Progress(progress, self.samples))?;
        }
        let before = self.ask.clone();
        self.take_asks(None)?;
        let has_more = self.made.as_ref().is_none_or(|made| made.samples < self.samples);
        if self.samples > 0 && has_more && now >= self.next_table {
            self.answer(profile, News::Samples)
        } else if self.ask != before {
            self.answer(profile, News::Question)
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Whether samples belong to a part.
struct Filter {
    part: Part,
    /// Of a function: which stacks go through it.
    passes: Vec<bool>,
}

impl Filter {
    fn new(profile: &Profile, symbols: &Symbols, zoom: &Zoom) -> Self {
        let mut passes = Vec::new();
        if let Part::Function(spot) = zoom.part {
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
            Part::Thread(thread) => key.thread == Some(thread),
            Part::Program(name) => program_of(profile, key.stack) == Some(name),
            Part::Function(_) => self.passes.get(key.stack.index()).copied().unwrap_or(false),
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
