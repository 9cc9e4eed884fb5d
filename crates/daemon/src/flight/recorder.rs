//! What is done when something happens.
//!
//! What it is: [`FlightRecorder`] has a flight, what its rules listen to, its sets, the commands that rules run, and those who ask.
//! The code that has it waits for all of that with a waiter of its own, and tells what comes of it.
//! Read first: [`FlightRecorder::take`]; then `throttle`, which says who gets a snapshot and who is held back.
//!
//! **Invariant:** nothing here waits. What floods (triggers, commands) is left out and counted, and a direct request for a
//! snapshot gets one.

use super::ask::ControlCommand;
use super::control::{Control, ControlClientId, ControlRequest};
use super::recorder_event::{RecorderEvent, snapshot_value};
use super::throttle::{SnapshotRequest, SnapshotThrottle};
use pmux::flight::{Flight, FlightOptions, FlightSnapshot, Requested, SnapshotCause, SnapshotError};
use pmux::trigger::{
    Action, Commands, EventSets, Fired, Position, Rule, SetText, SwitchRequest, Switched, TriggerEvent, TriggerOptions,
    Triggers,
};
use pmux::wait::{Token, Waiter, Wake};
use pmux::{Command, CpuList, Error, EventList, Followed, Running, Session, Start, Step, Stop, Target};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FLIGHT: u64 = 0;
const CONTROL: u64 = 1;
const TRIGGERS: u64 = 2;
/// How often it is looked whether commands have ended.
const REAP: Duration = Duration::from_millis(100);
const MOST_COMMANDS: usize = 16;

/// What a recorder is to do.
#[derive(Clone, Debug)]
pub struct RecorderPlan {
    /// What it is called, in what it says of itself; nothing for one in the foreground.
    pub name: Option<String>,
    /// What is sampled.
    pub events: EventList,
    /// Sets of events.
    pub sets: Vec<SetText>,
    /// When what is done.
    pub rules: Vec<Rule>,
    /// For how long no trigger takes another snapshot.
    pub cool_down: Duration,
    /// What is kept, and where snapshots go.
    pub options: FlightOptions,
}

/// Why a recorder does not start.
#[derive(Debug)]
pub enum RecorderError {
    /// Events can't be recorded, or snapshots not be written.
    Flight(Error),
    /// A trigger does not work here, or an address is not in the program, or can't be watched there.
    Trigger(String),
    /// A set is not understood.
    Set(String, Box<Error>),
}

impl fmt::Display for RecorderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flight(error) => error.fmt(f),
            Self::Trigger(why) => write!(f, "trigger {why}"),
            Self::Set(name, error) => write!(f, "set {name}: {error}"),
        }
    }
}

impl std::error::Error for RecorderError {}

/// A command that runs, which can be waited for and killed, whether it is followed or not.
#[derive(Debug)]
pub enum Child {
    /// It stops when something is mapped, because a trigger looks for an address there.
    Followed(Box<Followed>),
    /// It is not followed.
    Running(Running),
}

impl Child {
    /// The command.
    pub fn running(&mut self) -> &mut Running {
        match self {
            Self::Followed(followed) => followed.running(),
            Self::Running(running) => running,
        }
    }
}

#[derive(Default)]
struct SnapshotWaiters {
    clients: Vec<ControlClientId>,
    runs: Vec<(String, Fired)>,
}

/// A recorder at work.
pub struct FlightRecorder {
    // Before the flight, whose events it switches.
    sets: EventSets,
    flight: Flight,
    triggers: Triggers,
    rules: Vec<Rule>,
    plan_sets: Vec<SetText>,
    control: Option<Control>,
    commands: Commands,
    throttle: SnapshotThrottle,
    /// The CPUs whose events are led into rings.
    online: CpuList,
    /// Who asked since the last snapshot was asked for.
    clients: Vec<ControlClientId>,
    /// What waits for each snapshot, by its number.
    waiting: HashMap<u64, SnapshotWaiters>,
    directory: PathBuf,
    keep: String,
    start: Start,
    name: Option<String>,
    last: Option<PathBuf>,
    taken: u64,
    failed: u64,
    not_run: u64,
    began: Instant,
    /// What was told last of what is wrong.
    trouble: Option<String>,
    /// How many of the flight's notes are told.
    notes: usize,
    messages: Vec<RecorderEvent>,
}

impl FlightRecorder {
    /// Opens everything; nothing samples yet.
    ///
    /// # Errors
    /// [`RecorderError`]: nothing is open then.
    pub fn open(session: &Session, plan: RecorderPlan, target: &Target<'_>) -> Result<Self, RecorderError> {
        let events = |set: &SetText| match EventList::parse(&[&set.events], session.catalog()) {
            Ok(events) => Ok((set.name.clone(), events)),
            Err(error) => Err(RecorderError::Set(set.name.clone(), Box::new(Error::Parse(error)))),
        };
        let set_events = plan.sets.iter().map(events).collect::<Result<Vec<_>, _>>()?;
        // Paths are told to others, who may be elsewhere.
        let directory = std::path::absolute(&plan.options.directory).unwrap_or(plan.options.directory);
        let options = FlightOptions { directory: directory.clone(), ..plan.options };
        let start = options.record.start;
        let keep = super::recorder_event::keep(options.keep);
        let throttle = SnapshotThrottle::new(&plan.rules, plan.cool_down);
        let mut flight =
            Flight::open(session, plan.events, &set_events, target, options).map_err(RecorderError::Flight)?;
        let mut sets = EventSets::new(session);
        flight.gather(&mut sets);
        let triggers = Triggers::open(session, &plan.rules, TriggerOptions::of(target.clone()));
        let triggers = triggers.map_err(|error| RecorderError::Trigger(error.to_string()))?;
        Ok(Self {
            notes: flight.notes().len(),
            sets,
            flight,
            triggers,
            rules: plan.rules,
            plan_sets: plan.sets,
            control: None,
            commands: Commands::default(),
            throttle,
            online: session.online(),
            clients: Vec::new(),
            waiting: HashMap::new(),
            directory,
            keep,
            start,
            name: plan.name,
            last: None,
            taken: 0,
            failed: 0,
            not_run: 0,
            began: Instant::now(),
            trouble: None,
            messages: Vec::new(),
        })
    }

    /// From now on it can be asked.
    pub fn set_control(&mut self, control: Control) {
        self.control = Some(control);
    }

    /// What differs from what was asked, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.flight.notes()
    }

    /// Where snapshots are written.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Lets it begin, and the command go, where there is one.
    ///
    /// # Errors
    /// [`RecorderError::Flight`], [`RecorderError::Trigger`]: the command has ended then.
    pub fn begin(&mut self, command: Option<Command>) -> Result<Option<Child>, RecorderError> {
        let on: Vec<String> =
            self.plan_sets.iter().filter(|set| set.at_first == Position::On).map(|set| set.name.clone()).collect();
        for name in on {
            let switched = self.sets.request(&name, SwitchRequest::On);
            if switched.result.is_err() {
                self.messages.push(RecorderEvent::Switched(switched));
            }
        }
        if self.start != Start::OnExec {
            self.flight.enable().map_err(RecorderError::Flight)?;
        }
        self.began = Instant::now();
        let Some(command) = command else { return Ok(None) };
        if !self.triggers.awaits_program() {
            let running = self.flight.release(command).map_err(RecorderError::Flight)?;
            return Ok(Some(Child::Running(running)));
        }
        let mut followed = self.flight.follow(command).map_err(RecorderError::Flight)?;
        let step = followed.next_step();
        self.step(followed, &step).map(Some)
    }

    /// Looks for addresses in what a followed command has mapped, if it stands.
    ///
    /// # Errors
    /// [`RecorderError::Trigger`]: the command has ended then.
    pub fn look_into(&mut self, child: Child) -> Result<Child, RecorderError> {
        let Child::Followed(mut followed) = child else { return Ok(child) };
        match followed.try_step() {
            Some(step) => self.step(*followed, &step),
            None => Ok(Child::Followed(followed)),
        }
    }

    fn step(&mut self, mut followed: Followed, step: &Step) -> Result<Child, RecorderError> {
        match step {
            Step::Ended => self.triggers.miss(),
            Step::Mapped(stop) => {
                self.messages.extend(ran_without_its_rights(stop).map(|what| RecorderEvent::Trouble { what }));
                if let Err(why) = self.triggers.look_into(stop) {
                    // It has done nothing yet that would be missed.
                    let _ = followed.kill().wait(self.flight.session());
                    return Err(RecorderError::Trigger(why));
                }
                if self.triggers.awaits_program() {
                    followed.go_on();
                    return Ok(Child::Followed(Box::new(followed)));
                }
            }
        }
        Ok(Child::Running(followed.finish()))
    }

    /// Has a waiter wait for all that wakes, with tokens from `first` on, instead of what it waited for there before.
    pub fn watch(&self, waiter: &mut Waiter, first: Token) {
        for token in 0..TRIGGERS + self.triggers.tokens() {
            waiter.forget(Token(first.0 + token));
        }
        self.flight.fds().into_iter().for_each(|fd| waiter.watch(fd, Token(first.0 + FLIGHT)));
        if let Some(control) = &self.control {
            control.watch(waiter, Token(first.0 + CONTROL));
        }
        self.triggers.watch(waiter, Token(first.0 + TRIGGERS));
    }

    /// When [`FlightRecorder::take`] is to be called although nothing wakes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let reap = (self.commands.running() > 0).then(|| Instant::now() + REAP);
        let settle = self
            .sets
            .next()
            .map(|at| Instant::now() + Duration::from_nanos(at.0.saturating_sub(pmux::server_api::now_ns())));
        let control = self.control.as_ref().and_then(Control::deadline);
        let others = [self.triggers.deadline(), reap, settle, control, self.throttle.deadline()];
        others.into_iter().flatten().fold(self.flight.next(), Instant::min)
    }

    /// What has happened, after a waiter has woken that [`FlightRecorder::watch`] was given. What follows from it is done.
    pub fn take(&mut self, wakes: &[Wake], first: Token) -> Vec<RecorderEvent> {
        let trigger_events = self.triggers.take(wakes, Token(first.0 + TRIGGERS));
        let online = self.flight.session().online();
        if online != self.online {
            // Triggers have taken the news; whatever came is recorded from now on.
            self.online = online;
            let followed = self.flight.follow_cpus();
            self.note_trouble(followed.err());
            let notes = self.flight.notes();
            let new = notes.iter().skip(self.notes).map(|note| RecorderEvent::Trouble { what: note.clone() });
            self.messages.extend(new);
            self.notes = self.flight.notes().len();
        }
        for trigger_event in trigger_events {
            self.handle(trigger_event);
        }
        self.messages.extend(self.throttle.take_suppressed());
        self.messages.extend(self.sets.settle().into_iter().map(RecorderEvent::Switched));
        if let Some(mut control) = self.control.take() {
            for asked in control.take(wakes, Token(first.0 + CONTROL)) {
                self.reply(&mut control, &asked);
            }
            self.control = Some(control);
        }
        self.request_snapshot();
        match self.flight.tick() {
            Ok(done) => done.into_iter().for_each(|snapshot| self.finish_snapshot(snapshot)),
            Err(error) => self.note_trouble(Some(error)),
        }
        for (command, ended) in self.commands.reap() {
            self.messages.extend(RecorderEvent::of_command(command, ended));
        }
        std::mem::take(&mut self.messages)
    }

    /// What is wrong with the recording is told once; it goes on with what it has.
    fn note_trouble(&mut self, error: Option<Error>) {
        let Some(what) = error.map(|error| error.to_string()) else { return };
        if self.trouble.as_ref() != Some(&what) {
            self.trouble = Some(what.clone());
            self.messages.push(RecorderEvent::Trouble { what });
        }
    }

    /// Asks for a snapshot by hand.
    pub fn dump(&mut self, why: &str) {
        self.flight.request(SnapshotCause::now(why));
    }

    /// How many snapshots were begun.
    #[must_use]
    pub fn snapshots_begun(&mut self) -> u64 {
        self.flight.status().begun
    }

    /// Whether something waits for a snapshot that is not finished.
    #[must_use]
    pub fn is_busy(&mut self) -> bool {
        let status = self.flight.status();
        status.begun > self.taken + self.failed
    }

    /// Nothing more will happen: what triggers have not told yet is done, as far as it can be begun now.
    pub fn drain(&mut self) -> Vec<RecorderEvent> {
        for trigger_event in self.triggers.finish() {
            self.handle(trigger_event);
        }
        self.request_snapshot();
        std::mem::take(&mut self.messages)
    }

    /// Ends: what was begun is finished at once, and told.
    pub fn finish(&mut self) -> Vec<RecorderEvent> {
        let heard = self.drain();
        self.messages.extend(heard);
        // What samples on would not be in the last snapshot anyway.
        for snapshot in self.flight.finish() {
            self.finish_snapshot(snapshot);
        }
        self.messages.extend(self.throttle.end());
        std::mem::take(&mut self.messages)
    }

    /// How it goes.
    #[must_use]
    pub fn status(&mut self) -> Value {
        let status = self.flight.status();
        let rule = |(index, rule): (usize, &Rule)| {
            let (trigger, fired) = (rule.trigger.to_string(), self.triggers.fired(index));
            json!({ "trigger": trigger, "fired": fired })
        };
        let rules: Value = self.rules.iter().enumerate().map(rule).collect();
        let sets = self.sets.names();
        let sets = sets.map(|name| json!({ "name": name, "on": self.sets.position(name) == Some(Position::On) }));
        let sets: Value = sets.collect();
        let events: Vec<&str> = {
            let all = self.flight.events();
            all.split_last().map_or(&[][..], |(_, events)| events).iter().map(|event| event.name.as_str()).collect()
        };
        json!({
            "process": std::process::id(),
            "name": self.name,
            "directory": self.directory.display().to_string(),
            "up_s": self.began.elapsed().as_secs_f64(),
            "events": events,
            "keep": self.keep,
            "held": super::recorder_event::held(&status),
            "warnings": status.warnings,
            "metadata_bytes": status.past_bytes,
            "waits_bytes": status.waits_bytes,
            "lost": status.lost,
            "triggers": rules,
            "sets": sets,
            "snapshots": self.taken,
            "failed": self.failed,
            "held_back": self.throttle.held_back,
            "not_run": self.not_run,
            "last_snapshot": self.last.as_ref().map(|path| path.display().to_string()),
        })
    }

    fn handle(&mut self, trigger_event: TriggerEvent) {
        let switched = self.sets.follow(&self.rules, &trigger_event);
        self.messages.extend(switched.into_iter().map(RecorderEvent::Switched));
        match trigger_event {
            TriggerEvent::Fired(fired) => {
                self.act(&fired);
                if let Some(left) = self.throttle.cooldown_left_for(fired.rule) {
                    self.triggers.hold_back(fired.rule, left);
                }
            }
            TriggerEvent::HeldBack { rule, times, .. } => {
                let event = self.throttle.hold_back(rule, times);
                self.messages.extend(event);
            }
            TriggerEvent::Lost { rules, what } => {
                let of = rules.iter().filter_map(|&rule| self.rules.get(rule)).map(|rule| rule.trigger.to_string());
                self.messages.push(RecorderEvent::SourceLost { triggers: of.collect(), what });
            }
            TriggerEvent::Begins { .. } | TriggerEvent::Ends { .. } => {}
        }
    }

    /// Does what a rule says. Sets and marks are done at once; commands behind a snapshot wait for it.
    fn act(&mut self, fired: &Fired) {
        let Some(rule) = self.rules.get(fired.rule) else { return };
        let may_report = self.throttle.may_report(fired.rule);
        if may_report {
            let (trigger, why) = (rule.trigger.to_string(), fired.to_string());
            self.messages.push(RecorderEvent::Fired { trigger, why, at: fired.at });
        }
        let actions = rule.actions.clone();
        let mut snapshot = false;
        let mut runs = Vec::new();
        for action in &actions {
            match action {
                Action::Snapshot => snapshot = true,
                Action::Set { name, .. } => {
                    let before = self.sets.position(name);
                    let switched = self.sets.carry_out(action);
                    // Longer on than it was to be is no news.
                    let is_news = |switched: &Switched| match switched.result {
                        Ok(position) => may_report && Some(position) != before,
                        Err(_) => true,
                    };
                    self.messages.extend(switched.filter(is_news).map(RecorderEvent::Switched));
                }
                Action::Mark(text) => {
                    let text = if text.is_empty() { fired.to_string() } else { text.clone() };
                    self.flight.mark(fired.at, text);
                }
                Action::Run(command) if snapshot => runs.push(command.clone()),
                Action::Run(command) => {
                    let event = self.run(command, fired);
                    // Why not is said as often as what happened.
                    self.messages.extend(event.filter(|_| may_report));
                }
            }
        }
        if snapshot {
            let event = self.throttle.request(fired, runs);
            self.messages.extend(event);
        }
    }

    fn request_snapshot(&mut self) {
        let Some(SnapshotRequest { cause, runs }) = self.throttle.take_request() else { return };
        let number = match self.flight.request(cause) {
            Requested::Begun(number) | Requested::Joined(number) | Requested::Waits(number) => number,
        };
        let waiting = self.waiting.entry(number).or_default();
        waiting.runs.extend(runs);
        waiting.clients.append(&mut self.clients);
    }

    fn reply(&mut self, control: &mut Control, asked: &ControlRequest) {
        match asked.command {
            ControlCommand::Status => {
                let status = self.status();
                control.answer(asked.client, &status);
            }
            ControlCommand::Dump => {
                self.messages.push(RecorderEvent::Asked { who: asked.description.clone() });
                // Those who ask at the same moment get the same one.
                self.throttle.request_by_hand(&asked.description);
                self.clients.push(asked.client);
            }
        }
    }

    fn finish_snapshot(&mut self, snapshot: Result<FlightSnapshot, SnapshotError>) {
        let (number, answer) = match &snapshot {
            Ok(snapshot) => {
                self.taken += 1;
                self.last = Some(snapshot.path.clone());
                (snapshot.number, snapshot_value(snapshot))
            }
            Err(error) => {
                self.failed += 1;
                (error.number, json!({ "refused": format!("no snapshot: {error}") }))
            }
        };
        let waiting = self.waiting.remove(&number).unwrap_or_default();
        if let Some(control) = &mut self.control {
            waiting.clients.iter().for_each(|client| control.answer(*client, &answer));
        }
        let good = snapshot.is_ok();
        self.messages.push(match snapshot {
            Ok(snapshot) => RecorderEvent::Snapshot(Box::new(snapshot)),
            Err(error) => RecorderEvent::NoSnapshot { why: error.to_string() },
        });
        for (command, fired) in waiting.runs {
            let event = if good {
                self.run(&command, &fired)
            } else {
                self.not_run += 1;
                Some(RecorderEvent::NotRun { command, why: "there is no snapshot for it".to_owned() })
            };
            self.messages.extend(event);
        }
    }

    /// Starts a command; why not, where that is so.
    fn run(&mut self, command: &str, fired: &Fired) -> Option<RecorderEvent> {
        let started = if self.commands.running() >= MOST_COMMANDS {
            Err(format!("{MOST_COMMANDS} run already"))
        } else {
            self.commands.start(command, self.last.as_deref(), fired).map_err(|error| error.to_string())
        };
        let why = started.err()?;
        self.not_run += 1;
        Some(RecorderEvent::NotRun { command: command.to_owned(), why })
    }
}

/// What to say of a program that runs with fewer rights because it was looked into.
#[must_use]
pub fn ran_without_its_rights(stop: &Stop) -> Option<String> {
    let path = stop.program_without_its_rights()?;
    Some(format!(
        "{} ran without the rights that its file gives (set-user-id, set-group-id or capabilities): the kernel leaves them out where \
         a program is held by ptrace(2), as it is here to find addresses in it; root keeps them",
        path.display()
    ))
}
