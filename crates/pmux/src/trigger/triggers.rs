//! Rules at work.
//!
//! What it is: [`Triggers`] opens what the rules listen to, is waited for, and tells what has happened. What follows from that is for its
//! caller. Read next: `open` (what becomes of each source), `engine` (the engine's side).
//!
//! **Invariant:** what does not work on this machine is an error before anything is waited for; what goes away later is told.

use super::engine::{TermId, TriggerEngine};
use super::events::TriggerEvent;
use super::language::{Level, Rule, TermSource};
use super::open::{SourceOpener, why};
use super::sources::levels::Levels;
use super::sources::{After, Live};
use crate::error::Error;
use crate::session::Session;
use crate::symbol::ProcessImage;
use crate::target::Target;
use pmux_engine::{Host as _, Nanos};
use pmux_linux::cpus::CpuList;
use pmux_linux::trace::Stop;
use pmux_linux::wait::{Token, Waiter, Wake};
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often numbers are read where nothing else is said.
pub const USUAL_INTERVAL: Duration = Duration::from_millis(100);
/// The shortest interval that a short `for` leads to.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// What rules are about.
#[derive(Debug)]
pub struct TriggerOptions<'a> {
    /// Whose rates and ratios, and whose addresses. Tracepoints, crashes and exits are those of all CPUs.
    pub target: Target<'a>,
    /// How often rates and ratios are read; more often where a `for` is shorter than that.
    pub interval: Duration,
    /// For how long a trigger does not fire again after it has.
    pub cool_down: Duration,
    /// Where lines come from; `None`: the standard input.
    pub lines: Option<OwnedFd>,
}

impl<'a> TriggerOptions<'a> {
    /// Usual intervals, no cool-down, and lines from the standard input.
    #[must_use]
    pub const fn of(target: Target<'a>) -> Self {
        Self { target, interval: USUAL_INTERVAL, cool_down: Duration::ZERO, lines: None }
    }
}

/// Why a rule does not work on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TriggerError {
    /// Which rule, by number from 0.
    pub rule: usize,
    /// The term at fault.
    pub term: String,
    /// Why, and what helps.
    pub why: String,
}

impl fmt::Display for TriggerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.term, self.why)
    }
}

impl std::error::Error for TriggerError {}

/// Rules at work.
///
/// ```
/// use pmux::trigger::{Rule, TriggerEvent, TriggerOptions, Triggers};
/// use pmux::{Session, Target};
/// use std::time::{Duration, Instant};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = Rule::parse("rate(page-faults) > 10/s", Some("mark busy"))?;
/// let mut triggers = Triggers::open(&Session::new()?, &[rule], TriggerOptions::of(Target::CurrentThread))?;
/// let pages = vec![1_u8; 16 << 20];
/// for event in triggers.wait(Some(Instant::now() + Duration::from_millis(150)))? {
///     if let TriggerEvent::Fired(fired) = event {
///         println!("{fired}"); // rate(page-faults) is 37215/s (> 10/s)
///     }
/// }
/// # assert!(pages[0] == 1);
/// # Ok(())
/// # }
/// ```
pub struct Triggers {
    session: Session,
    engine: TriggerEngine,
    levels: Option<Levels>,
    sources: Vec<Option<Box<dyn Live>>>,
    /// The CPUs on which the sources listen.
    online: CpuList,
}

impl Triggers {
    /// Opens everything that the rules listen to.
    ///
    /// # Errors
    /// The first rule that does not work here, with the reason and what helps. Nothing is open then.
    pub fn open(session: &Session, rules: &[Rule], setting: TriggerOptions<'_>) -> Result<Self, TriggerError> {
        let now = session.engine().host().now();
        let mut engine = TriggerEngine::of(&setting.target);
        let mut levels: Vec<(TermId, Level)> = Vec::new();
        let mut interval = setting.interval;
        let mut sources_opener = SourceOpener::new(session, &setting.target, setting.lines);
        for (rule, Rule { trigger, .. }) in rules.iter().enumerate() {
            engine.add(trigger, setting.cool_down, now);
            for (index, term) in trigger.terms.iter().enumerate() {
                let term_id = TermId { rule, term: index, scope: term.scope };
                match &term.source {
                    TermSource::Level(level) => {
                        levels.push((term_id, level.clone()));
                        if !term.held.is_zero() {
                            interval = interval.min(term.held.max(SHORTEST_INTERVAL));
                        }
                    }
                    source => sources_opener.listen(source, term_id).map_err(|error| why(rules, term_id, error))?,
                }
            }
        }
        let levels = (!levels.is_empty()).then(|| Levels::open(session, &levels, &setting.target, interval));
        let levels = levels.transpose().map_err(|(term_id, error)| why(rules, term_id, error))?;
        let sources = sources_opener.finish().into_iter().map(Some).collect();
        Ok(Self { session: session.clone(), engine, levels, sources, online: session.online() })
    }

    /// Has a waiter wait for everything that wakes. Tokens from `first` on are used: [`Triggers::tokens`] of them.
    ///
    /// What there is to wait for changes with the CPUs that are there: a new waiter each time is the simplest way.
    pub fn watch(&self, waiter: &mut Waiter, first: Token) {
        for (token, source) in (first.0..).zip(&self.sources) {
            if let Some(source) = source {
                source.watch(waiter, Token(token));
            }
        }
        let hotplug = Token(first.0 + self.sources.len() as u64);
        self.session.with_hotplug_fd(|fd| fd.into_iter().for_each(|fd| waiter.watch(fd, hotplug)));
    }

    /// How many tokens [`Triggers::watch`] uses.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.sources.len() as u64 + 1
    }

    /// When [`Triggers::take`] is to be called although nothing wakes, on the monotonic clock.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        let levels = self.levels.as_ref().map(Levels::next);
        let sources = self.sources.iter().flatten().filter_map(|source| source.next());
        sources.chain(levels).chain(self.engine.next()).min()
    }

    /// As [`Triggers::next`], for [`Waiter::wait`].
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let left = self.next()?.since(self.session.engine().host().now());
        Instant::now().checked_add(Duration::from_nanos(left.0))
    }

    /// What has happened, by what a waiter said that [`Triggers::watch`] was given, and by the time.
    pub fn take(&mut self, wakes: &[Wake], first: Token) -> Vec<TriggerEvent> {
        let now = self.session.engine().host().now();
        self.session.follow_hotplug();
        let online = self.session.online();
        let changed = online != self.online;
        self.online = online;
        // What happens meets the newest numbers.
        if let Some(levels) = &mut self.levels {
            levels.take(&mut self.engine, now);
        }
        for (token, place) in (first.0..).zip(&mut self.sources) {
            let Some(source) = place else { continue };
            let woken = wakes.contains(&Wake::Fd(Token(token)));
            let hangup = wakes.contains(&Wake::Hangup(Token(token)));
            if changed && source.follow_cpus(&mut self.engine, now) == After::Ended {
                *place = None;
                continue;
            }
            if !woken && !hangup && source.next().is_none_or(|at| at > now) {
                continue;
            }
            if source.take(&mut self.engine, hangup, now) == After::Ended {
                *place = None;
            }
        }
        self.engine.pass(now);
        self.engine.take()
    }

    /// Nothing follows for so long when a rule fires. The hits of a tracepoint with very many of them, which no other rule listens to, are
    /// only counted meanwhile ([`TriggerEvent::HeldBack`] at the end), which slows down the tasks that are hit much less. All else is
    /// told as ever.
    pub fn hold_back(&mut self, rule: usize, span: Duration) {
        let span = Nanos(crate::units::nanos(span));
        self.engine.hold_back_until(rule, self.session.engine().host().now() + span);
    }

    /// What has happened and was not told yet, where nothing more will happen: after the end of the target. [`Triggers::take`] holds
    /// hits back for a moment, in which older ones of other CPUs may come.
    pub fn finish(&mut self) -> Vec<TriggerEvent> {
        let now = self.session.engine().host().now();
        for source in self.sources.iter_mut().flatten() {
            source.finish(&mut self.engine, now);
        }
        self.engine.pass(now);
        self.engine.take()
    }

    /// Waits until there is something to tell, or until a time; `None`: for ever.
    ///
    /// # Errors
    /// [`Error::Wait`]; also where nothing will ever be told any more and there is no time.
    pub fn wait(&mut self, until: Option<Instant>) -> Result<Vec<TriggerEvent>, Error> {
        loop {
            let mut waiter = Waiter::new();
            self.watch(&mut waiter, Token(0));
            let deadline = self.deadline().into_iter().chain(until).min();
            let wakes = waiter.wait(deadline).map_err(Error::Wait)?;
            let events = self.take(&wakes, Token(0));
            if !events.is_empty() || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(events);
            }
        }
    }

    /// Whether something has to be looked for in the programs of a command as they are mapped. Then the command is to be followed
    /// ([`crate::Command::follow`]), with [`Triggers::look_into`] at each stop, until this is no more the case.
    #[must_use]
    pub fn awaits_program(&self) -> bool {
        self.sources.iter().flatten().any(|source| source.awaits_program())
    }

    /// Looks for what is not found yet in a command that stands.
    ///
    /// # Errors
    /// A sentence: something is not there and won't come, or can't be watched. A process that has ended meanwhile is none.
    pub fn look_into(&mut self, stop: &Stop) -> Result<(), String> {
        // It may have been killed while it stood.
        let Ok(image) = ProcessImage::read(stop.pid()) else { return Ok(()) };
        let target = Target::Threads(stop.tasks().to_vec());
        let mut awaiting = self.sources.iter_mut().flatten().filter(|source| source.awaits_program());
        awaiting.try_for_each(|source| source.look_into(&self.session, &image, &target))
    }

    /// No program of the command is mapped any more: what was not found is told as lost.
    pub fn miss(&mut self) {
        for place in &mut self.sources {
            if let Some(source) = place
                && source.miss(&mut self.engine) == After::Ended
            {
                *place = None;
            }
        }
    }

    /// How often a rule has fired.
    #[must_use]
    pub fn fired(&self, rule: usize) -> u64 {
        self.engine.fired(rule)
    }

    /// How many things that wake are still there.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.sources.iter().flatten().count() + usize::from(self.levels.is_some())
    }
}
