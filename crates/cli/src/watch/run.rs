//! One run: hold, find, arm, let go, wait, tell.
//!
//! Read first: [`WatchRun::run`]. What is done with a hit is in [`super::hits`].
//!
//! **Invariant:** whatever ends it (exit, signal, time, enough hits), what was seen until then is reported. An error after the
//! command was let go ends the command too.

use super::hits::Hits;
use super::output::WatchOutput;
use super::programs::Programs;
use super::targets::{self, Missing, TargetArg};
use super::{failure, table};
use crate::failure::{Failure, failed};
use crate::foreground::{SIGTERM, pass_on};
use crate::options::exit_status;
use crate::options::shared::SharedWhen;
use crate::options::target::TargetSpec;
use crate::options::watch::{SLICE_MS, STACK, WatchOptions as Options};
use crate::sampling::awaited_target;
use crate::stat::{cpu_choice, service_was_away};
use crate::stderr::write_stderr;
use pmux::symbol::{ProcessImage, SearchScope};
use pmux::wait::{Token, Waiter, Wake};
use pmux::watch::{
    AcrossExec, NameCause, RegisterSharing, Wakes, Watch, WatchDetail, WatchEvent, WatchOptions, WatchTarget,
};
use pmux::{Command, Error, Inherit, Session, Slice, Step, Target};
use pmux_daemon::flight::Child;
use signal_hook::consts::SIGTRAP;
use std::collections::{HashMap, HashSet};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

const RINGS: Token = Token(0);
const HOTPLUG: Token = Token(1);
const FOLLOW: Token = Token(2);
/// How often the rings are looked at, where nothing wakes: far more often than they fill up.
const LOOK: Duration = Duration::from_millis(50);
/// How often at the beginning: a program that soon ends again is to be looked at while it lives.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// So many processes are named that are not watched.
const MOST_UNWATCHED: usize = 8;
/// How often it is shown how far it is.
const SHOW: Duration = Duration::from_millis(250);

const BY_SIGTRAP: &str = "the command was ended by SIGTRAP: some virtual machines report a hit after its thread has lost the CPU, and \
    the kernel gives such a hit to the program. It is not in the counts";

pub(super) struct WatchRun<'a> {
    options: &'a Options,
    session: &'a Session,
    target_spec: TargetSpec,
    args: Vec<TargetArg>,
    /// What is still looked for, by process.
    missing: HashMap<i32, HashSet<usize>>,
    /// Processes that have a target and are not watched, with the reason; and how many more there are.
    unwatched: Vec<String>,
    more_unwatched: u64,
    output: WatchOutput,
    hits: Hits<'a>,
    programs: Programs,
    watch: Option<Watch>,
    /// The command, if there is one. It is followed as long as something that is looked for may still come.
    child: Option<Child>,
    waiter: Waiter,
    began: Instant,
    signal: Option<i32>,
    asked_to_end: bool,
}

impl<'a> WatchRun<'a> {
    pub(super) fn new(
        options: &'a Options,
        session: &'a Session,
        args: Vec<TargetArg>,
        output: WatchOutput,
    ) -> Result<Self, Failure> {
        let waiter = crate::foreground::waiter()?;
        Ok(Self {
            options,
            session,
            target_spec: options.target_spec().map_err(failed)?,
            args,
            missing: HashMap::new(),
            unwatched: Vec::new(),
            more_unwatched: 0,
            output,
            hits: Hits::new(options),
            programs: Programs::default(),
            watch: None,
            child: None,
            waiter,
            began: Instant::now(),
            signal: None,
            asked_to_end: false,
        })
    }

    /// Watches to the end, and returns the exit status.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        let result = self.begin().and_then(|()| self.wait());
        match result {
            Ok(ended) => self.finish(ended),
            Err(failure) => {
                // No code would wait for the child any more.
                match self.child.take() {
                    Some(Child::Followed(followed)) => drop(followed.kill().wait(self.session)),
                    Some(Child::Running(mut running)) => drop(running.kill(SIGTERM)),
                    None => {}
                }
                self.output.hide();
                Err(failure)
            }
        }
    }

    fn how(&self) -> WatchOptions {
        let Options { no_inherit, across_exec, share_time, trace, count_only, .. } = *self.options;
        let max_stack = self.options.max_stack.unwrap_or(STACK);
        let values = trace || self.options.condition.as_ref().is_some_and(pmux::watch::Condition::asks_for_values);
        let slice = Slice::from_millis(self.options.slice_ms.unwrap_or(SLICE_MS)).unwrap_or_default();
        WatchOptions {
            detail: match self.options {
                _ if count_only => WatchDetail::Counts,
                _ if values => WatchDetail::Values { max_stack },
                // Each hit is judged.
                Options { condition: Some(_), .. } | Options { stop: Some(_), .. } => WatchDetail::Hits { max_stack },
                Options { callers, .. } if !callers.is_empty() => WatchDetail::Hits { max_stack },
                _ => WatchDetail::Rows { max_stack },
            },
            inherit: if no_inherit { Inherit::None } else { Inherit::Children },
            across_exec: if across_exec { AcrossExec::Keep } else { AcrossExec::Drop },
            sharing: if share_time { RegisterSharing::InTurns(slice) } else { RegisterSharing::Refuse },
            timing: self.options.values.into(),
        }
    }

    /// Finds and arms what is there, and lets the command go.
    fn begin(&mut self) -> Result<(), Failure> {
        match self.target_spec.clone() {
            TargetSpec::Command => self.begin_command()?,
            TargetSpec::Pids(ids) | TargetSpec::Tids(ids) => {
                for id in ids {
                    self.arm_process(id)?;
                    self.follow_execs(id);
                }
            }
            TargetSpec::Cpus(list) => {
                let cpus = cpu_choice(list.as_deref()).map_err(failed)?;
                self.arm_addresses(&Target::Cpus(cpus))?;
            }
        }
        if !matches!(self.target_spec, TargetSpec::Command) && !self.options.command.is_empty() {
            let command = Command::hold(self.options.command.clone()).map_err(|error| failure(&error))?;
            self.child = Some(Child::Running(command.release(&[]).map_err(|error| failure(&error))?));
        }
        self.began = Instant::now();
        Ok(())
    }

    /// Of what goes on over an exec the watch's own events tell. In a process that ran already, programs are never looked for.
    fn follow_execs(&mut self, tid: i32) {
        let is_of_kernel = |what: &WatchTarget| what.address >> 63 == 1;
        // Where it lies in the kernel it is watched on.
        let goes_on = self.watch.as_ref().is_some_and(|watch| watch.watch_targets().all(is_of_kernel));
        if !self.options.across_exec && !goes_on {
            self.programs.follow(self.session, tid, self.how().inherit);
        }
    }

    /// Arms what is found without a look into a process.
    fn arm_addresses(&mut self, target: &Target<'_>) -> Result<(), Failure> {
        let (symbolizer, scope) = (&mut self.hits.resolver.symbolizer, SearchScope::Kernel);
        let places = targets::find(&mut self.args, |_| true, symbolizer, scope, Missing::Error);
        self.arm(places.map_err(failed)?, target)
    }

    /// Arms a process that runs. What may still be loaded is looked for again and again.
    fn arm_process(&mut self, id: i32) -> Result<(), Failure> {
        let target = self.target_of(id);
        if !target.is_alive() {
            let what = if matches!(target, Target::Threads(_)) { "thread" } else { "process" };
            return Err(failed(format!("there is no {what} {id} (any more)")));
        }
        let image = ProcessImage::read(id).map_err(|error| failure(&error))?;
        self.missing.insert(id, (0..self.args.len()).collect());
        // It may end before its first hit is looked at.
        self.hits.resolver.name(image.pid(), image.pid());
        self.look_into(id, &image, &target)
    }

    /// The thread that has this number, where threads are watched; the process otherwise.
    fn target_of(&self, id: i32) -> Target<'static> {
        match self.target_spec {
            TargetSpec::Tids(_) => Target::Threads(vec![id]),
            _ => Target::Processes(vec![id]),
        }
    }

    /// Looks for what is missing in a process, and arms what is found.
    fn look_into(&mut self, id: i32, image: &ProcessImage, target: &Target<'_>) -> Result<(), Failure> {
        let missing = self.missing.entry(id).or_default();
        self.hits.resolver.remember(image.pid());
        let how = match self.target_spec {
            _ if self.options.later => Missing::Later,
            TargetSpec::Command => Missing::Error,
            TargetSpec::Pids(_) | TargetSpec::Tids(_) | TargetSpec::Cpus(_) => Missing::Final,
        };
        let wants = |arg: usize| missing.contains(&arg);
        let (symbolizer, scope) = (&mut self.hits.resolver.symbolizer, SearchScope::Process(image));
        let places = targets::find(&mut self.args, wants, symbolizer, scope, how).map_err(failed)?;
        for doubt in places.iter().filter_map(|place| place.doubt.as_ref()) {
            self.output.hide();
            write_stderr(&format!("pmux: {doubt}"));
        }
        for place in &places {
            missing.remove(&place.target);
        }
        self.arm(places, target)
    }

    fn arm(&mut self, places: Vec<targets::ResolvedTarget>, target: &Target<'_>) -> Result<(), Failure> {
        if places.is_empty() {
            return Ok(());
        }
        let watch_targets: Vec<WatchTarget> = places.iter().map(|place| place.watch_target.clone()).collect();
        let how = self.how();
        match &mut self.watch {
            Some(watch) => watch.add(watch_targets, target).map_err(|error| failure(&error))?,
            None => {
                let watch = match self.options.condition.clone() {
                    Some(condition) => Watch::open_where(self.session, watch_targets, target, how, condition),
                    None => Watch::open(self.session, watch_targets, target, how),
                };
                let watch = watch.map_err(|error| failure(&error))?;
                watch.fds().into_iter().for_each(|fd| self.waiter.watch(fd, RINGS));
                self.session.with_hotplug_fd(|fd| fd.into_iter().for_each(|fd| self.waiter.watch(fd, HOTPLUG)));
                self.watch = Some(watch);
            }
        }
        let begin = self.watch.as_ref().and_then(|watch| watch.armed_at(0)).unwrap_or_default();
        self.hits.armed(places, begin);
        Ok(())
    }

    fn begin_command(&mut self) -> Result<(), Failure> {
        let command = Command::hold(self.options.command.clone()).map_err(|error| failure(&error))?;
        let pid = command.pid();
        if !self.options.later {
            self.programs.follow(self.session, pid, self.how().inherit);
        }
        let mut followed = match command.follow() {
            Ok(followed) => followed,
            Err(error @ Error::Follow(_)) => return self.begin_untraced(&error),
            Err(error) => return Err(failure(&error)),
        };
        self.waiter.watch(followed.ready(), FOLLOW);
        let step = followed.next_step();
        self.child = Some(Child::Followed(Box::new(followed)));
        self.hits.command(pid);
        self.follow(&step)
    }

    /// The command can't be held after its exec: what has an address can be armed before.
    fn begin_untraced(&mut self, why: &Error) -> Result<(), Failure> {
        let plain = self.args.iter().all(|arg| matches!(arg.wanted.what, pmux::symbol::AddressForm::Address(_)));
        if !plain {
            return Err(failed(format!("{why}\n  what helps: start the program, and watch it with -p PID")));
        }
        let command = Command::hold(self.options.command.clone()).map_err(|error| failure(&error))?;
        self.programs.follow(self.session, command.pid(), self.how().inherit);
        self.programs.looked_into(command.pid());
        self.arm_addresses(&Target::Command(&command))?;
        self.hits.command(command.pid());
        self.child = Some(Child::Running(command.release(&[]).map_err(|error| failure(&error))?));
        Ok(())
    }

    /// Everything stands because something was mapped: looks for what is missing there, and goes on.
    fn follow(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Ended => {}
            Step::Mapped(stop) => {
                let pid = stop.pid();
                self.programs.stopped(stop);
                if stop.cause() == pmux::Cause::Exec || !self.missing.contains_key(&pid) {
                    // What one has that was forked, it has inherited.
                    let inherited = stop.parent().and_then(|parent| self.missing.get(&parent).cloned());
                    let afresh = self.options.later && !self.options.across_exec;
                    let wanted = |(_, arg): &(usize, &TargetArg)| afresh || !arg.found;
                    let all = || self.args.iter().enumerate().filter(wanted).map(|(index, _)| index).collect();
                    self.missing.insert(pid, inherited.unwrap_or_else(all));
                }
                let looked = match ProcessImage::read(pid) {
                    Ok(image) => self.look_into(pid, &image, &Target::Threads(stop.tasks().to_vec())),
                    // It was killed while it stood.
                    Err(_) if !Target::Processes(vec![pid]).is_alive() => Ok(()),
                    Err(error) => Err(failed(format!(
                        "{error}\n  a program that this user may not read can't be looked at by its user"
                    ))),
                };
                match looked {
                    Ok(()) => {}
                    // The others are watched on.
                    Err((why, _)) if self.watch.is_some() && self.options.later => self.miss(pid, &why),
                    Err(failure) => return Err(failure),
                }
                let has_all = self.missing.get(&pid).is_some_and(HashSet::is_empty);
                if self.options.later || self.args.iter().any(|arg| !arg.found) {
                    // Another program may have it as well: each that is executed is looked into.
                    match &mut self.child {
                        Some(Child::Followed(followed)) if has_all => followed.go_on_at_full_speed(),
                        Some(Child::Followed(followed)) => followed.go_on(),
                        _ => {}
                    }
                    return Ok(());
                }
            }
        }
        self.waiter.forget(FOLLOW);
        self.child = self.child.take().map(|child| match child {
            Child::Followed(followed) => Child::Running(followed.finish()),
            running => running,
        });
        Ok(())
    }

    /// A process is not watched; that is told in the end.
    fn miss(&mut self, pid: i32, why: &str) {
        if let Some(missing) = self.missing.get_mut(&pid) {
            // It would be refused again.
            missing.clear();
        }
        if self.unwatched.len() < MOST_UNWATCHED {
            self.unwatched.push(format!("process {pid} is not watched: {why}"));
        } else {
            self.more_unwatched += 1;
        }
    }

    /// Waits for the end, and takes in what happens; how the command ended, if there is one and it did.
    fn wait(&mut self) -> Result<Option<ExitStatus>, Failure> {
        if let Some(child) = &mut self.child {
            let watched = self.waiter.watch_child(child.running().child());
            watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
        }
        let mut next_show = self.began;
        let awaited = awaited_target(&self.target_spec);
        let is_target_gone = || awaited.as_ref().is_some_and(|target| !target.is_alive());
        loop {
            let deadline = Instant::now() + (self.began.elapsed() / 8).clamp(FIRST_LOOK, self.longest_look());
            let wakes = self.waiter.wait(Some(deadline)).map_err(|errno| failed(format!("waiting failed: {errno}")))?;
            for wake in wakes {
                match wake {
                    Wake::Signal(signal) => {
                        self.signal = Some(signal);
                        pass_on(signal, self.child.as_mut().map(Child::running));
                    }
                    Wake::Fd(FOLLOW) => self.take_step()?,
                    _ => {}
                }
            }
            self.take_events()?;
            self.look_for_libraries()?;
            if let Some(child) = &mut self.child
                && let Some(exited) = child.running().try_wait(self.session).map_err(|error| failure(&error))?
            {
                return Ok(Some(exited.status));
            }
            let elapsed = self.began.elapsed();
            let late = self.options.timeout_ms.is_some_and(|ms| elapsed >= Duration::from_millis(ms));
            if late || self.hits.has_enough() || self.output.is_lost {
                let Some(child) = &mut self.child else { return Ok(None) };
                if !std::mem::replace(&mut self.asked_to_end, true) {
                    // If it has ended just now, the next look finds it.
                    let _ = child.running().kill(SIGTERM);
                }
            }
            if self.child.is_none() && (self.signal.is_some() || is_target_gone()) {
                return Ok(None);
            }
            if Instant::now() >= next_show {
                next_show = Instant::now() + SHOW;
                self.show();
            }
        }
    }

    /// How long the rings are left alone.
    fn longest_look(&self) -> Duration {
        let soon = |watch: &Watch| watch.reads_later() && watch.wakes() == Wakes::WhenFull;
        if self.watch.as_ref().is_some_and(soon) { FIRST_LOOK } else { LOOK }
    }

    fn take_step(&mut self) -> Result<(), Failure> {
        let Some(Child::Followed(followed)) = &mut self.child else { return Ok(()) };
        followed.try_step().map_or(Ok(()), |step| self.follow(&step))
    }

    fn take_events(&mut self) -> Result<(), Failure> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        watch.follow_cpus().map_err(|error| failure(&error))?;
        let events = watch.take().map_err(|error| failure(&error))?;
        self.take(events);
        self.programs.take();
        Ok(())
    }

    fn take(&mut self, events: Vec<WatchEvent>) {
        for event in events {
            if let (
                TargetSpec::Pids(_) | TargetSpec::Tids(_),
                true,
                WatchEvent::Name { pid, name, cause: NameCause::Exec, .. },
            ) = (&self.target_spec, self.options.across_exec, &event)
            {
                self.programs.executed(*pid, name.clone());
            }
            self.hits.take(event, &mut self.output);
        }
    }

    /// A library may have been loaded into a process that was there before us.
    fn look_for_libraries(&mut self) -> Result<(), Failure> {
        if matches!(self.target_spec, TargetSpec::Command | TargetSpec::Cpus(_))
            || self.missing.values().all(HashSet::is_empty)
        {
            return Ok(());
        }
        let ids: Vec<i32> = self.missing.iter().filter(|(_, missing)| !missing.is_empty()).map(|(&id, _)| id).collect();
        for id in ids {
            let Ok(image) = ProcessImage::read(id) else { continue };
            self.look_into(id, &image, &self.target_of(id))?;
        }
        Ok(())
    }

    fn show(&mut self) {
        let counted = || {
            let watch = self.watch.as_ref()?;
            (0..watch.watch_targets().len())
                .map(|watch_target| watch.count(watch_target).ok().map(|count| count.value))
                .sum::<Option<u64>>()
        };
        let hits = if self.options.count_only { counted().unwrap_or_default() } else { self.hits.matched };
        let text = table::progress(hits, self.hits.threads.len(), self.began.elapsed(), self.output.style);
        self.output.progress(&text);
    }

    fn finish(mut self, ended: Option<ExitStatus>) -> Result<u8, Failure> {
        self.output.hide();
        let missing: Vec<&TargetArg> = self.args.iter().filter(|arg| !arg.found).collect();
        let Some(mut watch) = self.watch.take() else {
            let why = |arg: &&TargetArg| match &arg.problem {
                Some(problem) => problem.clone(),
                None => format!("{} was never there: its library was not loaded", arg.text),
            };
            return Err(failed(missing.iter().map(why).collect::<Vec<_>>().join("\n")));
        };
        watch.disarm().map_err(|error| failure(&error))?;
        let events = watch.finish().map_err(|error| failure(&error))?;
        self.take(events);
        let mut report = self.hits.report(&self.args, &watch).map_err(|error| failure(&error))?;
        let later = matches!(self.target_spec, TargetSpec::Command)
            .then_some("--later looks for the targets in each program that is executed");
        report.notes.extend(std::mem::take(&mut self.programs).into_notes(self.how().across_exec, later));
        report.notes.append(&mut self.unwatched);
        if self.more_unwatched > 0 {
            report.notes.push(format!("{} more processes are not watched", self.more_unwatched));
        }
        if ended.is_some_and(|status| status.signal() == Some(SIGTRAP)) {
            report.notes.push(BY_SIGTRAP.to_owned());
        }
        report.notes.extend(service_was_away(self.session, self.session.service_gap()));
        if self.options.shared.shared_when() == Some(SharedWhen::Always) && !self.options.count_only {
            report.notes.push("what tells of hits can't be shared: this took registers of its own".to_owned());
        }
        self.hits.flush(&mut self.output);
        let style = self.output.style;
        let text = if self.options.json { super::json::compose(&report) } else { table::compose(&report, style) };
        self.output.put(&text);
        if self.output.is_lost {
            return Ok(exit_status::FAILED);
        }
        Ok(ended.map_or(exit_status::SUCCESS, exit_status::of_command))
    }
}
