//! One measurement: open, let go, wait, read.
//!
//! Read first: [`StatRun::measure`]. What is under way is a [`Live`], which also makes the reports.
//!
//! **Invariant:** whatever ends a measurement (exit, signal, time), what was counted until then is reported. An error
//! after the command was let go ends the command too.

use super::live::Live;
use super::mux;
use super::names::Names;
use super::output::{StatOutput, State};
use super::plan::Plan;
use super::regions;
use super::report::StatReport;
use crate::control::{Channel, ControlCommand};
use crate::failure::{Failure, failed, failure};
use crate::foreground::{SIGTERM, pass_on};
use crate::options::control::Delay;
use crate::options::exit_status;
use crate::options::stat::{MuxChoice, StatOptions};
use crate::options::target::TargetSpec;
use crate::sampling::{self, EventEndWatch};
use crate::stderr::write_stderr;
use pmux::wait::{Token, Waiter, Wake};
use pmux::{
    Attribution, Backend, Command, CommandOutput, Counters, Inherit, Multiplexing, Options, ServiceTurn, Session,
    Start, Target,
};
use std::cell::{OnceCell, RefCell};
use std::time::{Duration, Instant};

const HOTPLUG: Token = Token(0);
const TREE: Token = Token(1);
const ENDS: Token = Token(2);
const SERVICE: Token = Token(3);
const CONTROL: Token = Token(4);
/// How often it is looked whether the processes of `-p` still live.
const LOOK: Duration = Duration::from_millis(50);

/// How often it is looked whether the sharing service is back.
const AWAY_LOOK: Duration = Duration::from_millis(20);

/// What one run found.
pub(crate) struct Outcome {
    /// The report of the whole run; with intervals, of what came after the last one, if there is any such.
    pub(crate) report: Option<StatReport>,
    /// With `--summary`, what all intervals were together.
    pub(crate) summary: Option<StatReport>,
    pub(crate) status: u8,
    /// Whether a signal asked for the end.
    pub(crate) interrupted: bool,
}

/// Everything that the runs of one command line share.
pub(crate) struct StatRun<'a> {
    pub(crate) session: &'a Session,
    pub(crate) options: &'a StatOptions,
    pub(crate) plan: &'a Plan,
    /// Whether it was said how many counters there are.
    pub(crate) counters_announced: OnceCell<()>,
    /// What says when events count.
    pub(crate) control: RefCell<Option<Channel>>,
}

impl StatRun<'_> {
    /// Measures once; `output` gets the intervals.
    pub(crate) fn measure(&self, waiter: &mut Waiter, output: &mut StatOutput) -> Result<Outcome, Failure> {
        self.check_alive()?;
        let words = &self.options.command;
        let regions = regions::table(self)?;
        let hold = || match &regions {
            Some(table) => Command::hold_with_regions(words, CommandOutput::Ours, table),
            None => Command::hold(words),
        };
        let held = (!words.is_empty()).then(hold).transpose().map_err(|error| failure(&error))?;
        let counters = self.open(held.as_ref())?;
        [HOTPLUG, TREE, CONTROL].into_iter().for_each(|token| waiter.forget(token));
        self.control.borrow().iter().for_each(|channel| channel.watch(waiter, CONTROL));
        let ends = EventEndWatch::new(self.session, &self.plan.target, held.as_ref(), ENDS);
        ends.await_next(waiter);
        self.session.with_hotplug_fd(|fd| fd.into_iter().for_each(|fd| waiter.watch(fd, HOTPLUG)));
        for counters in &counters {
            counters.tree_fds().into_iter().for_each(|fd| waiter.watch(fd, TREE));
        }
        let mut names = Names::default();
        if self.options.per_thread {
            counters.iter().for_each(|counters| names.learn(&counters.read()));
            if let (Some(held), Some(program)) = (&held, words.first()) {
                names.expect(held.pid(), program);
            }
        }
        let signal = self.asked_to_end(waiter)?;
        if let (Some(signal), Some(_)) = (signal, &held) {
            // The command was not started: it is killed at its gate.
            return Err(("interrupted before the command was started".to_owned(), exit_status::killed_by(signal)));
        }
        // Read before anything counts, so that the first interval misses nothing.
        let intervals = self.options.interval_ms.is_some();
        let zero = counters.iter().filter(|_| intervals).map(Counters::read).collect();
        let started = Instant::now();
        let delay = self.options.delay.is_some();
        if !delay && self.plan.target != TargetSpec::Command {
            enable(&counters)?;
        }
        let release = |command: Command| command.release(&counters.iter().collect::<Vec<_>>());
        let child = held.map(release).transpose().map_err(|error| failure(&error))?;
        output.begin();
        let gap = self.session.service_gap();
        let mut live = Live {
            counters,
            child,
            started,
            counting: !delay,
            ended: None,
            ends,
            ends_reported: false,
            signal,
            timed_out: false,
            silent: false,
            intervals: 0,
            last: zero,
            last_at: Duration::ZERO,
            reported: Vec::new(),
            gaps: (gap, gap),
            names,
            regions,
        };
        let result = self.await_end(&mut live, waiter, output).and_then(|()| self.finish(&mut live));
        if let (Err(_), Some(child)) = (&result, &mut live.child) {
            // No code would wait for the child any more.
            let _ = child.kill(SIGTERM);
        }
        result
    }

    /// Ids that are not there are named, before a command is started in vain.
    fn check_alive(&self) -> Result<(), Failure> {
        let (what, ids, target): (_, _, fn(Vec<i32>) -> Target<'static>) = match &self.plan.target {
            TargetSpec::Pids(pids) => ("process", pids, Target::Processes),
            TargetSpec::Tids(tids) => ("thread", tids, Target::Threads),
            TargetSpec::Command | TargetSpec::Cpus(_) => return Ok(()),
        };
        let dead = ids.iter().find(|&&id| !target(vec![id]).is_alive());
        dead.map_or(Ok(()), |id| Err(failed(format!("there is no {what} {id} (any more)"))))
    }

    fn open(&self, held: Option<&Command>) -> Result<Vec<Counters>, Failure> {
        let mut counters = Vec::new();
        for part in &self.plan.parts {
            let target = self.plan.target(part, self.options.per_thread, held)?;
            let opened = self.session.open(&part.events, &target, self.how(&target));
            counters.push(opened.map_err(|error| failure(&error))?);
        }
        if self.options.verbose > 0 && self.counters_announced.set(()).is_ok() {
            counters.iter().flat_map(mux::capacities).for_each(|line| write_stderr(&line));
        }
        Ok(counters)
    }

    fn how(&self, target: &Target<'_>) -> Options {
        let start = match target {
            Target::Command(_) if self.options.delay.is_none() => Start::OnExec,
            _ => Start::Later,
        };
        Options {
            inherit: if self.options.no_inherit { Inherit::None } else { Inherit::Children },
            start,
            attribution: if self.options.tree { Attribution::EachProcess } else { Attribution::Totals },
            multiplexing: match self.options.mux {
                MuxChoice::Kernel => Multiplexing::Kernel,
                MuxChoice::Engine => Multiplexing::Engine,
            },
            slice: self.options.slice().unwrap_or_default(),
        }
    }

    /// A signal that came while events were being opened.
    fn asked_to_end(&self, waiter: &mut Waiter) -> Result<Option<i32>, Failure> {
        let wakes = waiter.wait(Some(Instant::now())).map_err(|errno| failed(format!("waiting failed: {errno}")))?;
        Ok(wakes.iter().find_map(|wake| match wake {
            Wake::Signal(signal) => Some(*signal),
            _ => None,
        }))
    }

    /// Waits for the end, and does on the way what its time has come for.
    fn await_end(&self, live: &mut Live, waiter: &mut Waiter, output: &mut StatOutput) -> Result<(), Failure> {
        if let Some(child) = &live.child {
            let watched = waiter.watch_child(child.child());
            watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
        }
        let options = self.options;
        let mut delay = options.delay.and_then(Delay::time);
        let mut timeout = options.timeout_ms.map(Duration::from_millis);
        let interval = options.interval_ms.map(Duration::from_millis);
        let mut next = interval;
        let watched = sampling::awaited_target(&self.plan.target);
        if live.child.is_none() && live.signal.is_some() {
            return Ok(());
        }
        let mut life = 0;
        loop {
            let service = self.session.attend_service(waiter, SERVICE, &mut life);
            if service == ServiceTurn::IsBack {
                // Events of a former life go on at their next reading.
                live.counters.iter().for_each(|counters| _ = counters.read());
            }
            let back = (service == ServiceTurn::IsAway).then(|| live.started.elapsed() + AWAY_LOOK);
            let look = watched.as_ref().map(|_| live.started.elapsed() + LOOK);
            // Times run from when counting begins.
            let alarms = if delay.is_some() { [delay, look, None] } else { [timeout, next, look] };
            let nearest = alarms.into_iter().flatten().chain(back).min();
            let wakes = waiter.wait(nearest.map(|after| live.started + after));
            for wake in wakes.map_err(|errno| failed(format!("waiting failed: {errno}")))? {
                match wake {
                    // It can be told apart from an exit only until the task is reaped.
                    Wake::Child | Wake::Hangup(ENDS) => live.ends.look(waiter),
                    Wake::Deadline if live.ends.wants_looks() => live.ends.look(waiter),
                    Wake::Deadline | Wake::Fd(SERVICE) | Wake::Hangup(SERVICE | CONTROL) => {}
                    Wake::Fd(CONTROL) => self.controlled(live, &mut delay)?,
                    Wake::Signal(signal) => interrupted(live, signal),
                    Wake::Fd(HOTPLUG) => self.session.follow_hotplug(),
                    Wake::Fd(_) | Wake::Hangup(_) => {
                        for counters in &mut live.counters {
                            counters.follow_tree().map_err(|error| failure(&error))?;
                        }
                    }
                }
            }
            if let Some(child) = &mut live.child
                && let Some(exited) = child.try_wait(self.session).map_err(|error| failure(&error))?
            {
                live.ended = Some((live.started.elapsed(), exited));
                return Ok(());
            }
            if live.child.is_none() && (live.signal.is_some() || output.state == State::Lost) {
                return Ok(());
            }
            let now = live.started.elapsed();
            if let Some(at) = delay {
                if at <= now {
                    begin(live, &mut delay)?;
                }
                // What follows has its own times.
            } else {
                if timeout.is_some_and(|at| at <= now) {
                    timeout = None;
                    live.timed_out = true;
                    let Some(child) = &mut live.child else { return Ok(()) };
                    // If it has ended just now, the next look finds it.
                    let _ = child.kill(SIGTERM);
                }
                if let (Some(at), Some(interval)) = (next, interval)
                    && at <= now
                {
                    let report = live.interval(self);
                    output.write(&report);
                    // Where writing takes longer than an interval, intervals become longer.
                    next = Some((at + interval).max(live.started.elapsed()));
                    if options.interval_count.is_some_and(|count| live.intervals >= count) {
                        next = None;
                        live.silent = true;
                        if live.child.is_none() {
                            return Ok(());
                        }
                    }
                }
            }
            if live.child.is_none() && watched.as_ref().is_some_and(|target| !target.is_alive()) {
                return Ok(());
            }
        }
    }

    /// Does what was asked for through `--control`.
    fn controlled(&self, live: &mut Live, delay: &mut Option<Duration>) -> Result<(), Failure> {
        let mut control = self.control.borrow_mut();
        let Some(channel) = control.as_mut() else { return Ok(()) };
        for command in channel.take() {
            match command {
                ControlCommand::Enable => begin(live, delay)?,
                ControlCommand::Disable => {
                    // Also what was to come by itself.
                    *delay = None;
                    live.counters.iter().try_for_each(Counters::disable).map_err(|error| failure(&error))?;
                }
                ControlCommand::Ping => {}
                ControlCommand::Stop => interrupted(live, SIGTERM),
                ControlCommand::Snapshot => {
                    write_stderr(
                        "pmux: --control: a snapshot is for `pmux record --switch-output`; -I prints counts meanwhile",
                    );
                    continue;
                }
            }
            channel.answer();
        }
        Ok(())
    }

    fn finish(&self, live: &mut Live) -> Result<Outcome, Failure> {
        let (report, summary) = live.end(self)?;
        let ended = live.ended.as_ref().map(|(_, exited)| exited.status);
        let status = ended.map_or(exit_status::SUCCESS, exit_status::of_command);
        Ok(Outcome { report, summary, status, interrupted: live.signal.is_some() })
    }
}

/// A signal asks for the end: the command is told, unless the terminal has told it already.
fn interrupted(live: &mut Live, signal: i32) {
    live.signal = Some(signal);
    pass_on(signal, live.child.as_mut());
}

/// Lets events count. Where that was waited for some time, times run from now on.
fn begin(live: &mut Live, delay: &mut Option<Duration>) -> Result<(), Failure> {
    if delay.take().is_some() {
        live.started = Instant::now();
    }
    enable(&live.counters)?;
    live.counting = true;
    Ok(())
}

fn enable(counters: &[Counters]) -> Result<(), Failure> {
    counters.iter().try_for_each(Counters::enable).map_err(|error| failure(&error))
}

/// The line that says where counts come from when they are not the kernel's events.
pub(crate) fn backend_line(session: &Session) -> Option<String> {
    match session.backend() {
        Backend::Kernel => None,
        Backend::Usage { why } => {
            let asked = std::env::var_os(pmux::BACKEND_VARIABLE).is_some_and(|name| name == "usage");
            let why = if asked { format!("{}=usage", pmux::BACKEND_VARIABLE) } else { why.summary.clone() };
            Some(format!("no performance events ({why}): counting from wait4, /proc and cgroup files instead"))
        }
    }
}
