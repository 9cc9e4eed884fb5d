//! A recorder in the foreground: open, let go, do what happens, end.
//!
//! Read first: [`FlightRun::run`].
//!
//! **Invariant:** an error after the command was let go ends the command too. What triggers say until the end is heard.

use super::messages;
use crate::failure::{Failure, failed, failure};
use crate::foreground::{SIGTERM, StatusLine, pass_on};
use crate::options::exit_status;
use crate::options::flight::{AtEnd, FlightOptions as Options, MostDisk};
use crate::options::target::TargetSpec;
use crate::sampling::{self, EventEndWatch};
use crate::stderr::write_stderr;
use pmux::flight::{FlightOptions, Limits};
use pmux::record::{Rate, RecordOptions};
use pmux::trigger::{Rule, SignalName, TermSource};
use pmux::units::bytes_text;
use pmux::wait::{INTERRUPTS, Token, Waiter, Wake, signal_number};
use pmux::{Command, CommandOutput, Session, Target};
use pmux_daemon::config::USUAL_FREQUENCY;
use pmux_daemon::flight::{
    Child, Control, ControlAccess, FlightRecorder, RecorderError, RecorderEvent, RecorderId, RecorderPlan, SocketDir,
};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Those of the pilot begin here.
const RECORDER: Token = Token(0);
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

pub(super) struct FlightRun<'a> {
    options: &'a Options,
    session: &'a Session,
    target_spec: TargetSpec,
    waiter: Waiter,
    signal: Option<i32>,
    line: StatusLine,
    failures: u64,
    ends: Option<EventEndWatch>,
}

impl<'a> FlightRun<'a> {
    pub(super) fn new(options: &'a Options, session: &'a Session) -> Result<Self, Failure> {
        let listens = signals_of(&options.rules().map_err(failed)?);
        let ends: Vec<i32> = INTERRUPTS.into_iter().filter(|signal| !listens.contains(signal)).collect();
        let waiter = Waiter::with_these_signals(&ends);
        let target_spec = options.sampling.target_spec().map_err(failed)?;
        Ok(Self {
            options,
            session,
            waiter: waiter.map_err(|errno| failed(format!("can't receive signals: {errno}")))?,
            signal: None,
            // What a command of ours writes is not written over.
            line: StatusLine::when(
                std::io::stderr().is_terminal() && !options.quiet && options.sampling.command.is_empty(),
            ),
            target_spec,
            failures: 0,
            ends: None,
        })
    }

    /// Records to the end, and returns the exit status.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        let typed = &self.options.sampling;
        let plan = self.plan()?;
        let held = (!typed.command.is_empty()).then(|| Command::hold_with(&typed.command, CommandOutput::Ours));
        let held = held.transpose().map_err(|error| failure(&error))?;
        let target = sampling::target(&self.target_spec, &typed.cgroups, held.as_ref())?;
        sampling::check_target_alive(&target, &self.target_spec)?;
        let mut recorder = FlightRecorder::open(self.session, plan, &target).map_err(|error| not_opened(&error))?;
        drop(target);
        self.ends =
            Some(EventEndWatch::watch(self.session, &self.target_spec, held.as_ref(), (&mut self.waiter, ENDS)));
        let asked = self.listen(&mut recorder);
        let awaited = sampling::awaited_target(&self.target_spec);
        let mut child = recorder.begin(held).map_err(|error| not_opened(&error))?;
        self.greet(&mut recorder, asked);
        let result = self.follow(&mut recorder, &mut child, awaited.as_ref());
        if result.is_err()
            && let Some(child) = &mut child
        {
            // No code would see how it ends.
            let _ = child.running().kill(SIGTERM);
        }
        let ended = result?;
        self.end(&mut recorder);
        let status = ended.map_or(exit_status::SUCCESS, exit_status::of_command);
        if self.failures == 0 {
            return Ok(status);
        }
        // The snapshots are what this was for; a command that failed has more to say.
        let (are, why) = (messages::plural(self.failures, "snapshot"), "for the reasons above");
        write_stderr(&format!("pmux flight: {are} could not be written, {why}"));
        Ok(if status == exit_status::SUCCESS { exit_status::FAILED } else { status })
    }

    fn plan(&self) -> Result<RecorderPlan, Failure> {
        let options = self.options;
        let (how, note) = sampling::record_options(&options.sampling, &self.target_spec)?;
        if let Some(note) = note.filter(|_| !options.quiet && !options.json) {
            write_stderr(&format!("pmux: {note}"));
        }
        // What is a hit by itself is worth a record, at whatever rate all else is sampled.
        let rate = match how.rate {
            Rate::Usual => Rate::ButEachHit(USUAL_FREQUENCY),
            Rate::Frequency(per_second) => Rate::ButEachHit(per_second),
            other => other,
        };
        // A wait without its place says little.
        let call_chain = sampling::needed_chain(how.call_chain, options.off_cpu.is_some());
        let off_cpu = options.off_cpu.map(pmux::units::nanos);
        let mut rules = options.rules().map_err(failed)?;
        let signal = Rule::parse("signal:USR2", None).map_err(|error| failed(error.to_string()))?;
        let is_signal =
            |rule: &Rule| rule.trigger.terms.iter().any(|term| term.source == signal.trigger.terms[0].source);
        if !rules.iter().any(is_signal) {
            rules.push(signal);
        }
        let directory = options.directory.clone().unwrap_or_else(|| PathBuf::from(USUAL_FOLDER));
        Ok(RecorderPlan {
            name: None,
            events: sampling::events(&options.sampling, self.session)?,
            sets: options.sets().map_err(failed)?,
            rules,
            cool_down: options.cool_down.unwrap_or(USUAL_COOL_DOWN),
            options: FlightOptions {
                record: RecordOptions { rate, call_chain, off_cpu, ring_bytes: options.ring_bytes, ..how },
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
    fn listen(&self, recorder: &mut FlightRecorder) -> bool {
        let folder = SocketDir::own().ok_or_else(|| "XDG_RUNTIME_DIR is not set".to_owned());
        let listening = folder.and_then(|folder| {
            let id = RecorderId::Process(std::process::id());
            Control::listen(&folder, id, ControlAccess::Own)
        });
        match listening {
            Ok(control) => {
                recorder.set_control(control);
                true
            }
            Err(why) => {
                if !self.options.quiet {
                    write_stderr(&format!("pmux flight: pmux flight dump can't ask this one: {why}"));
                }
                false
            }
        }
    }

    fn greet(&self, recorder: &mut FlightRecorder, asked: bool) {
        let pid = std::process::id();
        if self.options.json {
            let mut started = recorder.status();
            started["kind"] = json!("started");
            self.put(&started);
        }
        if self.options.quiet || self.options.json {
            return;
        }
        recorder.notes().iter().for_each(|note| write_stderr(&format!("pmux: {note}")));
        let status = recorder.status();
        let keep = status["keep"].as_str().unwrap_or_default();
        let directory = recorder.directory().display();
        let room = self
            .max_disk_bytes()
            .map_or_else(|| "all of them".to_owned(), |most| format!("the newest {}", bytes_text(most)));
        write_stderr(&format!("pmux flight: keeps the last {keep}; snapshots go to {directory}, {room} stay"));
        let dump = if asked { format!(", or pmux flight dump --to {pid}") } else { String::new() };
        let end = match (self.options.at_end, self.options.rules.on.is_empty()) {
            (AtEnd::Auto, true) => "; a last one at the end, if there was none before",
            (AtEnd::Always, _) => "; a last one at the end",
            _ => "",
        };
        write_stderr(&format!("pmux flight: for a snapshot: kill -USR2 {pid}{dump}{end}"));
    }

    /// Does what happens until the end; how the command ended, if there is one.
    fn follow(
        &mut self,
        recorder: &mut FlightRecorder,
        child: &mut Option<Child>,
        awaited: Option<&Target<'_>>,
    ) -> Result<Option<ExitStatus>, Failure> {
        if let Some(child) = child {
            let watched = self.waiter.watch_child(child.running().child());
            watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
        }
        let mut show_at = Instant::now();
        let (mut ended, mut heard) = (None, false);
        loop {
            let looks = self.ends.as_ref().is_some_and(EventEndWatch::wants_looks);
            let look = (awaited.is_some() || looks).then(|| Instant::now() + LOOK);
            let show = (self.line == StatusLine::Shown).then_some(show_at);
            let until = [look, show].into_iter().flatten().fold(recorder.deadline(), Instant::min);
            self.waiter.forget(FOLLOW);
            if let Some(Child::Followed(followed)) = child {
                self.waiter.watch(followed.ready(), FOLLOW);
            }
            for signal in self.step(recorder, Some(until))? {
                self.signal = Some(signal);
                pass_on(signal, child.as_mut().map(Child::running));
            }
            if let Some(stands) = child.take_if(|child| matches!(child, Child::Followed(_))) {
                *child = Some(recorder.look_into(stands).map_err(|error| not_opened(&error))?);
            }
            if ended.is_none()
                && let Some(child) = child
                && let Some(exited) = child.running().try_wait(self.session).map_err(|error| failure(&error))?
            {
                ended = Some(exited.status);
                // What it did last may have fired a trigger.
                self.step(recorder, Some(Instant::now()))?;
            }
            let over = match child {
                Some(_) => ended.is_some(),
                None => self.signal.is_some() || awaited.is_some_and(|awaited| !awaited.is_alive()),
            };
            // What was begun goes on to its own end, unless a signal asks to leave.
            if over && !std::mem::replace(&mut heard, true) {
                recorder.drain().iter().for_each(|event| self.report_event(event));
            }
            if over && (self.signal.is_some() || !recorder.is_busy()) {
                self.step(recorder, Some(Instant::now()))?;
                return Ok(ended);
            }
            if self.line == StatusLine::Shown && Instant::now() >= show_at {
                show_at = Instant::now() + SHOW;
                self.line.show(&messages::progress(&recorder.status()));
            }
        }
    }

    /// Waits once, tells what has happened, and answers the signals that came.
    fn step(&mut self, recorder: &mut FlightRecorder, until: Option<Instant>) -> Result<Vec<i32>, Failure> {
        recorder.watch(&mut self.waiter, RECORDER);
        let wakes = self.waiter.wait(until).map_err(|errno| failed(format!("waiting failed: {errno}")))?;
        if let Some(ends) = &mut self.ends {
            ends.take(&wakes, &mut self.waiter);
        }
        recorder.take(&wakes, RECORDER).iter().for_each(|event| self.report_event(event));
        let signal = |wake: &Wake| if let Wake::Signal(signal) = wake { Some(*signal) } else { None };
        Ok(wakes.iter().filter_map(signal).collect())
    }

    fn end(&mut self, recorder: &mut FlightRecorder) {
        let last = match self.options.at_end {
            AtEnd::Always => true,
            AtEnd::Never => false,
            AtEnd::Auto => self.options.rules.on.is_empty() && recorder.snapshots_begun() == 0,
        };
        if last {
            recorder.dump("the end");
        }
        recorder.finish().iter().for_each(|event| self.report_event(event));
        let status = recorder.status();
        self.line.show("");
        if self.options.json {
            let mut ended = status;
            ended["kind"] = json!("ended");
            self.put(&ended);
            return;
        }
        if let Some(ended) = self.ends.as_ref().and_then(EventEndWatch::message) {
            write_stderr(&format!("pmux flight: {ended}"));
        }
        let warnings = status["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        warnings.for_each(|warning| write_stderr(&format!("pmux flight: {warning}")));
        if !self.options.quiet && status["snapshots"] == 0 && status["failed"] == 0 {
            write_stderr("pmux flight: no snapshot was taken (--at-end always takes one at the end)");
        }
    }

    fn report_event(&mut self, event: &RecorderEvent) {
        self.failures += u64::from(matches!(event, RecorderEvent::NoSnapshot { .. }));
        if self.options.json {
            self.put(&event.value());
        } else if !self.options.quiet || event.is_wrong() {
            self.line.show("");
            write_stderr(&format!("pmux flight: {event}"));
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
        TermSource::Signal(SignalName(name)) => signal_number(name),
        _ => None,
    });
    signals.collect()
}

fn not_opened(error: &RecorderError) -> Failure {
    match error {
        RecorderError::Flight(error) => sampling::not_opened(error, "--keep 512K"),
        other => failed(other.to_string()),
    }
}
