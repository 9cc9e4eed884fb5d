//! A recorder in the foreground: open, let go, do what happens, end.
//!
//! Read first: [`Run::run`].
//!
//! **Invariant:** an error after the command was let go ends the command too. What triggers say until the end is heard.

use super::words;
use crate::failure::{Failure, failed, failure};
use crate::foreground::{Line, SIGTERM, pass_on};
use crate::options::exit_status;
use crate::options::flight::{AtEnd, FlightOptions as Options, MostDisk};
use crate::options::target::Whom;
use crate::sampling::{self, Ends};
use crate::say::say;
use pmux::flight::{FlightOptions, Limits};
use pmux::record::{Rate, RecordOptions};
use pmux::trigger::{Rule, SignalName, Source};
use pmux::units::bytes_text;
use pmux::wait::{INTERRUPTS, Token, Waiter, Wake, signal_number};
use pmux::{Command, CommandOutput, Error, Running, Session, Target};
use pmux_daemon::config::USUAL_FREQUENCY;
use pmux_daemon::flight::{Askers, Called, Child, Control, Folder, Pilot, PilotError, Plan, Told};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Those of the pilot begin here.
const PILOT: Token = Token(0);
/// A command that is followed stands.
const FOLLOW: Token = Token(u64::MAX);
const ENDS: Token = Token(u64::MAX - 1);
/// Where snapshots go, where no option says it.
const USUAL_FOLDER: &str = "pmux-flight";
const USUAL_COOL_DOWN: Duration = Duration::from_secs(10);
/// How often it is looked whether those are alive that are recorded.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is shown how it goes.
const SHOW: Duration = Duration::from_millis(500);

/// Everything about one flight.
pub(super) struct Run<'a> {
    options: &'a Options,
    session: &'a Session,
    whom: Whom,
    waiter: Waiter,
    signal: Option<i32>,
    line: Line,
    failures: u64,
    ends: Option<Ends>,
}

impl<'a> Run<'a> {
    pub(super) fn new(options: &'a Options, session: &'a Session) -> Result<Self, Failure> {
        let listens = signals_of(&options.rules().map_err(failed)?);
        let ends: Vec<i32> = INTERRUPTS.into_iter().filter(|signal| !listens.contains(signal)).collect();
        let waiter = Waiter::with_these_signals(&ends);
        let whom = options.sampling.whom().map_err(failed)?;
        Ok(Self {
            options,
            session,
            waiter: waiter.map_err(|errno| failed(format!("can't receive signals: {errno}")))?,
            signal: None,
            // What a command of ours writes is not written over.
            line: Line::when(std::io::stderr().is_terminal() && !options.quiet && options.sampling.command.is_empty()),
            whom,
            failures: 0,
            ends: None,
        })
    }

    /// Records to the end, and returns the exit status.
    ///
    /// # Errors
    /// A text for the user and the exit status.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        let typed = &self.options.sampling;
        let plan = self.plan()?;
        let held = match typed.command.as_slice() {
            [] => None,
            words => {
                let held = Command::hold_with(words.to_vec(), CommandOutput::Ours);
                Some(held.map_err(|error| failure(&error))?)
            }
        };
        let target = sampling::target(typed, &self.whom, held.as_ref())?;
        sampling::must_live(&target, &self.whom)?;
        let mut pilot = Pilot::open(self.session, plan, &target).map_err(|error| not_opened(&error))?;
        drop(target);
        self.ends = Some(Ends::watch(self.session, &self.whom, held.as_ref(), (&mut self.waiter, ENDS)));
        let asked = self.listen(&mut pilot);
        let whose = sampling::whose_end(&self.whom);
        let mut child = pilot.begin(held).map_err(|error| not_opened(&error))?;
        self.greet(&mut pilot, asked);
        let result = self.follow(&mut pilot, &mut child, whose.as_ref());
        if result.is_err()
            && let Some(child) = &mut child
        {
            // No code would see how it ends.
            let _ = child.running().kill(SIGTERM);
        }
        let ended = result?;
        self.end(&mut pilot);
        let status = ended.map_or(exit_status::SUCCESS, exit_status::of_command);
        if self.failures == 0 {
            return Ok(status);
        }
        // The snapshots are what this was for; a command that failed has more to say.
        let (are, why) = (words::plural(self.failures, "snapshot"), "for the reasons above");
        say(&format!("pmux flight: {are} could not be written, {why}"));
        Ok(if status == exit_status::SUCCESS { exit_status::FAILED } else { status })
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let options = self.options;
        let how = sampling::how(&options.sampling, &self.whom)?;
        // What is a hit by itself is worth a record, at whatever rate all else is sampled.
        let rate = match how.rate {
            Rate::Usual => Rate::ButEachHit(USUAL_FREQUENCY),
            Rate::Frequency(per_second) => Rate::ButEachHit(per_second),
            other => other,
        };
        let mut rules = options.rules().map_err(failed)?;
        let signal = Rule::parse("signal:USR2", None).map_err(|error| failed(error.to_string()))?;
        let is_signal =
            |rule: &Rule| rule.trigger.terms.iter().any(|term| term.source == signal.trigger.terms[0].source);
        if !rules.iter().any(is_signal) {
            rules.push(signal);
        }
        let directory = options.directory.clone().unwrap_or_else(|| PathBuf::from(USUAL_FOLDER));
        Ok(Plan {
            name: None,
            events: sampling::events(&options.sampling, self.session)?,
            sets: options.sets().map_err(failed)?,
            rules,
            cool_down: options.cool_down.unwrap_or(USUAL_COOL_DOWN),
            options: FlightOptions {
                record: RecordOptions { rate, ring_bytes: options.ring_bytes, ..how },
                keep: options.keep.unwrap_or_default(),
                after: options.after.unwrap_or_default(),
                limits: Limits { max_snapshots: options.max_snapshots, max_disk_bytes: self.max_disk_bytes() },
                words: std::env::args_os().map(|word| word.as_bytes().to_vec()).collect(),
                ..FlightOptions::into_directory(directory)
            },
        })
    }

    fn max_disk_bytes(&self) -> Option<u64> {
        match self.options.max_disk.unwrap_or_default() {
            MostDisk::Bytes(bytes) => Some(bytes),
            MostDisk::Unlimited => None,
        }
    }

    /// Lets it be asked; otherwise signals still work, and it is said why.
    fn listen(&self, pilot: &mut Pilot) -> bool {
        let listening = match Folder::own() {
            None => Err("XDG_RUNTIME_DIR is not set".to_owned()),
            Some(folder) => {
                let called = Called::Process(std::process::id());
                Control::listen(&folder, called, Askers::Own).map_err(|error| error.to_string())
            }
        };
        match listening {
            Ok(control) => {
                pilot.be_asked(control);
                true
            }
            Err(why) => {
                if !self.options.quiet {
                    say(&format!("pmux flight: pmux flight dump can't ask this one: {why}"));
                }
                false
            }
        }
    }

    fn greet(&self, pilot: &mut Pilot, asked: bool) {
        let pid = std::process::id();
        if self.options.json {
            let mut started = pilot.status();
            started["kind"] = json!("started");
            self.put(&started);
        }
        if self.options.quiet || self.options.json {
            return;
        }
        pilot.notes().iter().for_each(|note| say(&format!("pmux: {note}")));
        let status = pilot.status();
        let keep = status["keep"].as_str().unwrap_or_default();
        let directory = pilot.directory().display();
        let room = self
            .max_disk_bytes()
            .map_or_else(|| "all of them".to_owned(), |most| format!("the newest {}", bytes_text(most)));
        say(&format!("pmux flight: keeps the last {keep}; snapshots go to {directory}, {room} stay"));
        let dump = if asked { format!(", or pmux flight dump --to {pid}") } else { String::new() };
        let end = match (self.options.at_end, self.options.rules.on.is_empty()) {
            (AtEnd::Auto, true) => "; a last one at the end, if there was none before",
            (AtEnd::Always, _) => "; a last one at the end",
            _ => "",
        };
        say(&format!("pmux flight: for a snapshot: kill -USR2 {pid}{dump}{end}"));
    }

    /// Does what happens until the end; how the command ended, if there is one.
    fn follow(
        &mut self,
        pilot: &mut Pilot,
        child: &mut Option<Child>,
        whose: Option<&Target<'_>>,
    ) -> Result<Option<ExitStatus>, Failure> {
        if let Some(child) = child {
            let watched = self.waiter.watch_child(child.running().child());
            watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
        }
        let mut show_at = Instant::now();
        let (mut ended, mut heard) = (None, false);
        loop {
            let looks = self.ends.as_ref().is_some_and(Ends::wants_looks);
            let look = (whose.is_some() || looks).then(|| Instant::now() + LOOK);
            let show = (self.line == Line::Shown).then_some(show_at);
            let until = [look, show].into_iter().flatten().fold(pilot.deadline(), Instant::min);
            self.waiter.forget(FOLLOW);
            if let Some(Child::Followed(followed)) = child {
                self.waiter.watch(followed.ready(), FOLLOW);
            }
            for signal in self.step(pilot, Some(until))? {
                self.interrupted(signal, child.as_mut().map(Child::running));
            }
            if let Some(stands) = child.take_if(|child| matches!(child, Child::Followed(_))) {
                *child = Some(pilot.look_into(stands).map_err(|error| not_opened(&error))?);
            }
            if ended.is_none()
                && let Some(child) = child
                && let Some(exited) = child.running().try_wait(self.session).map_err(|error| failure(&error))?
            {
                ended = Some(exited.status);
                // What it did last may have fired a trigger.
                self.step(pilot, Some(Instant::now()))?;
            }
            let over = match child {
                Some(_) => ended.is_some(),
                None => self.signal.is_some() || whose.is_some_and(|whose| !whose.is_alive()),
            };
            // What was begun goes on to its own end, unless a signal asks to leave.
            if over && !std::mem::replace(&mut heard, true) {
                pilot.hear_out().iter().for_each(|told| self.tell(told));
            }
            if over && (self.signal.is_some() || !pilot.is_busy()) {
                self.step(pilot, Some(Instant::now()))?;
                return Ok(ended);
            }
            if self.line == Line::Shown && Instant::now() >= show_at {
                show_at = Instant::now() + SHOW;
                self.line.show(&words::progress(&pilot.status()));
            }
        }
    }

    /// Waits once, tells what has happened, and answers the signals that came.
    fn step(&mut self, pilot: &mut Pilot, until: Option<Instant>) -> Result<Vec<i32>, Failure> {
        pilot.watch(&mut self.waiter, PILOT);
        let wakes = self.waiter.wait(until).map_err(|errno| failed(format!("waiting failed: {errno}")))?;
        if let Some(ends) = &mut self.ends {
            ends.take(&wakes, &mut self.waiter);
        }
        pilot.take(&wakes, PILOT).iter().for_each(|told| self.tell(told));
        let signals = wakes.iter().filter_map(|wake| match wake {
            Wake::Signal(signal) => Some(*signal),
            _ => None,
        });
        Ok(signals.collect())
    }

    fn end(&mut self, pilot: &mut Pilot) {
        let last = match self.options.at_end {
            AtEnd::Always => true,
            AtEnd::Never => false,
            AtEnd::Auto => self.options.rules.on.is_empty() && pilot.begun() == 0,
        };
        if last {
            pilot.dump("the end");
        }
        let told = pilot.finish();
        told.iter().for_each(|told| self.tell(told));
        let status = pilot.status();
        self.line.show("");
        if self.options.json {
            let mut ended = status;
            ended["kind"] = json!("ended");
            self.put(&ended);
            return;
        }
        if let Some(ended) = self.ends.as_ref().and_then(Ends::told) {
            say(&format!("pmux flight: {ended}"));
        }
        let warnings = status["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        warnings.for_each(|warning| say(&format!("pmux flight: {warning}")));
        if !self.options.quiet && status["snapshots"] == 0 && status["failed"] == 0 {
            say("pmux flight: no snapshot was taken (--at-end always takes one at the end)");
        }
    }

    /// A signal asks for the end: the command is told, unless the terminal has told it already.
    fn interrupted(&mut self, signal: i32, child: Option<&mut Running>) {
        self.signal = Some(signal);
        pass_on(signal, child);
    }

    fn tell(&mut self, told: &Told) {
        self.failures += u64::from(matches!(told, Told::NoSnapshot { .. }));
        if self.options.json {
            self.put(&told.value());
        } else if !self.options.quiet || told.is_wrong() {
            self.line.show("");
            say(&format!("pmux flight: {told}"));
        }
    }

    fn put(&self, value: &Value) {
        let mut out = std::io::stdout().lock();
        // Who doesn't read it any more has the snapshots.
        let _ = writeln!(out, "{value}").and_then(|()| out.flush());
    }
}

/// The signals that rules listen to: they don't end a recorder.
fn signals_of(rules: &[Rule]) -> Vec<i32> {
    let terms = rules.iter().flat_map(|rule| &rule.trigger.terms);
    let signals = terms.filter_map(|term| match &term.source {
        Source::Signal(SignalName(name)) => signal_number(name),
        _ => None,
    });
    signals.collect()
}

fn not_opened(error: &PilotError) -> Failure {
    match error {
        PilotError::Flight(error) => {
            let (mut text, status) = failure(error);
            if matches!(error, Error::Ring { errno, .. } if matches!(errno.raw(), 1 | 12)) {
                text.push_str(
                    "\n  what helps: smaller rings (--keep 512K), a larger kernel.perf_event_mlock_kb, or the capability CAP_IPC_LOCK",
                );
            }
            (text, status)
        }
        other => failed(other.to_string()),
    }
}
