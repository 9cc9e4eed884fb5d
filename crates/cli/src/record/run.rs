//! One recording: open, let go, pass records on, end.
//!
//! Read first: [`RecordRun::run`].
//!
//! **Invariant:** rings are emptied at least once a second. An error after the command was let go ends the command too.

use super::files::Files;
use super::messages::{self, Ended};
use crate::control::{Channel, ControlCommand};
use crate::failure::{Failure, failed, failure};
use crate::foreground::{SIGTERM, StatusLine, pass_on};
use crate::options::control::Delay;
use crate::options::exit_status;
use crate::options::record::RecordOptions as Options;
use crate::options::target::TargetSpec;
use crate::sampling::{self, EventEndWatch};
use crate::stderr::write_stderr;
use pmux::perf_data::Writer;
use pmux::record::{Form, Keep, RecordOptions, Recorder, RecorderInfo};
use pmux::wait::{INTERRUPTS, Token, Waiter, Wake};
use pmux::{Command, CommandOutput, Error, EventList, RegionTable, Running, Session, SharedChoice, Start, Target};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

const RINGS: Token = Token(0);
const HOTPLUG: Token = Token(1);
const ENDS: Token = Token(2);
const CONTROL: Token = Token(3);
/// How often rings are emptied, where none fills up: this is what a crash may cost.
const FLUSH: Duration = Duration::from_secs(1);
/// How often it is looked whether those are alive that are recorded, and the service that records.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is shown how far it is.
const SHOW: Duration = Duration::from_millis(500);
/// The signal that begins the next file, as a number of Linux.
const SIGUSR2: i32 = 12;

/// Whether only failures, losses and the line of JSON are told.
fn is_quiet(options: &Options) -> bool {
    options.quiet || options.json
}

pub(super) struct RecordRun<'a> {
    options: &'a Options,
    session: &'a Session,
    target_spec: TargetSpec,
    waiter: Waiter,
    files: Files,
    about: RecorderInfo,
    began: Instant,
    signal: Option<i32>,
    /// Bytes in files that are finished.
    before_bytes: u64,
    /// Bytes in front of what was recorded, in all files: what was there before.
    preamble_bytes: u64,
    /// The same of this file.
    begun_bytes: u64,
    /// How many notes were told.
    notes: usize,
    ends: Option<EventEndWatch>,
    /// What says when events sample.
    control: Option<Channel>,
    line: StatusLine,
}

impl<'a> RecordRun<'a> {
    pub(super) fn new(options: &'a Options, session: &'a Session) -> Result<Self, Failure> {
        let files = Files::new(options);
        if files.is_stdout() && std::io::stdout().is_terminal() {
            return Err(failed(
                "standard output is a terminal, and what is recorded is no text: -o FILE, or a pipe behind it",
            ));
        }
        let mut signals = INTERRUPTS.to_vec();
        if options.switch_output.is_some() {
            signals.push(SIGUSR2);
        }
        let waiter = Waiter::with_these_signals(&signals);
        let target_spec = options.sampling.target_spec().map_err(failed)?;
        let form = if files.is_stdout() { Form::Stream } else { Form::File };
        Ok(Self {
            options,
            session,
            waiter: waiter.map_err(|errno| failed(format!("can't receive signals: {errno}")))?,
            files,
            about: RecorderInfo {
                words: std::env::args_os().map(|word| word.as_bytes().to_vec()).collect(),
                compress: Keep::when(options.compress.is_some_and(|level| level > 0)),
                form,
                past: Keep::when(options.switch_output.is_some()),
            },
            began: Instant::now(),
            signal: None,
            before_bytes: 0,
            preamble_bytes: 0,
            begun_bytes: 0,
            notes: 0,
            ends: None,
            control: Channel::open(options.control.as_ref())?,
            // What a command of ours writes is not written over.
            line: StatusLine::when(
                std::io::stderr().is_terminal() && !is_quiet(options) && !matches!(target_spec, TargetSpec::Command),
            ),
            target_spec,
        })
    }

    /// Records to the end, and returns the exit status.
    pub(super) fn run(mut self) -> Result<u8, Failure> {
        let typed = &self.options.sampling;
        let events = sampling::events(typed, self.session)?;
        let regions = self.options.regions.then(RegionTable::for_marks).transpose();
        let regions =
            regions.map_err(|errno| failed(format!("--regions: no memory can be shared with the command: {errno}")))?;
        let held = match typed.command.as_slice() {
            [] => None,
            words => {
                let output = if self.files.is_stdout() { CommandOutput::StandardError } else { CommandOutput::Ours };
                let held = match &regions {
                    Some(table) => Command::hold_with_regions(words.to_vec(), output, table),
                    None => Command::hold_with(words.to_vec(), output),
                };
                Some(held.map_err(|error| failure(&error))?)
            }
        };
        let target = sampling::target(&self.target_spec, &typed.cgroups, held.as_ref())?;
        sampling::check_target_alive(&target, &self.target_spec)?;
        let how = self.how()?;
        let mut recorder = self.open(events, &target, how)?;
        regions.map_or(Ok(()), |table| recorder.take_regions_from(table)).map_err(|error| failure(&error))?;
        self.tell_notes(&recorder);
        self.ends =
            Some(EventEndWatch::watch(recorder.session(), &self.target_spec, held.as_ref(), (&mut self.waiter, ENDS)));
        if let Some(level @ 2..) = self.options.compress {
            self.tell(&format!("-z{level} compresses as -z1 does: there is one level, the fastest"));
        }
        let file = self.files.open().map_err(failed)?;
        let mut writer = recorder.begin(file, &self.about).map_err(|error| self.not_written(&error))?;
        self.begun(&writer);
        self.watch_fds(&recorder);
        let awaited = sampling::awaited_target(&self.target_spec);
        let on_exec = recorder.options().start == Start::OnExec;
        if !on_exec && self.options.delay.is_none() {
            recorder.enable().map_err(|error| failure(&error))?;
        }
        self.began = Instant::now();
        let child = held.map(|command| recorder.release(command)).transpose();
        let mut child = child.map_err(|error| failure(&error))?;
        let result = self.follow(&mut recorder, &mut writer, child.as_mut(), awaited.as_ref());
        let result = result.and_then(|ended| self.finish(&mut recorder, &mut writer, ended));
        if result.is_err()
            && let Some(child) = &mut child
        {
            // No code would wait for the child any more.
            let _ = child.kill(SIGTERM);
        }
        result
    }

    /// Opens the events, through the service or here.
    fn open(&self, events: EventList, target: &Target<'_>, how: RecordOptions) -> Result<Recorder, Failure> {
        let shared = self.options.shared.shared_when().map_or(SharedChoice::Never, SharedChoice::from);
        let opened = sampling::open_recorder(self.session, shared, events, target, how);
        let (recorder, by_service) = opened.map_err(|error| sampling::not_opened(&error, "-m 128"))?;
        if let Some(path) = self.session.shared_through().filter(|_| by_service) {
            self.tell(&format!("records through the service at {}", path.display()));
        }
        Ok(recorder)
    }

    /// Says what differs from what was asked, each thing once.
    fn tell_notes(&mut self, recorder: &Recorder) {
        let notes = recorder.notes();
        notes.iter().skip(self.notes).for_each(|note| self.tell(note));
        self.notes = notes.len();
    }

    /// A line for people.
    fn tell(&self, text: &str) {
        if !is_quiet(self.options) {
            write_stderr(&format!("pmux: {text}"));
        }
    }

    fn how(&self) -> Result<RecordOptions, Failure> {
        let options = self.options;
        let (how, note) = sampling::record_options(&options.sampling, &self.target_spec)?;
        note.iter().for_each(|note| self.tell(note));
        // A wait without its place says little, and samples are to be seen beside waits; and perf takes the chain of a region for that
        // of the next sample where that has none.
        let call_chain = sampling::needed_chain(how.call_chain, options.off_cpu.is_some() || options.regions);
        Ok(RecordOptions {
            call_chain,
            off_cpu: options.off_cpu.map(pmux::units::nanos),
            regions: Keep::when(options.regions),
            exit_counts: Keep::when(options.stat),
            switches: Keep::when(options.switch_events),
            start: if options.delay.is_some() { Start::Later } else { how.start },
            ring_bytes: options.ring_bytes,
            ..how
        })
    }

    fn watch_fds(&mut self, recorder: &Recorder) {
        self.waiter.forget(RINGS);
        self.waiter.forget(HOTPLUG);
        recorder.fds().into_iter().for_each(|fd| self.waiter.watch(fd, RINGS));
        recorder.session().with_hotplug_fd(|fd| fd.into_iter().for_each(|fd| self.waiter.watch(fd, HOTPLUG)));
    }

    /// Passes records on until the end; how the command ended, if there is one.
    fn follow(
        &mut self,
        recorder: &mut Recorder,
        writer: &mut Writer,
        mut child: Option<&mut Running>,
        awaited: Option<&Target<'_>>,
    ) -> Result<Option<ExitStatus>, Failure> {
        if let Some(running) = &child {
            let watched = self.waiter.watch_child(running.child());
            watched.map_err(|errno| failed(format!("can't wait for the command: {errno}")))?;
        }
        let mut delay = self.options.delay.and_then(Delay::time).map(|after| self.began + after);
        self.control.iter().for_each(|channel| channel.watch(&mut self.waiter, CONTROL));
        // No ring says that there are many marks of regions.
        let flush = if self.options.regions { LOOK } else { FLUSH };
        let (mut flush_at, mut show_at) = (self.began + flush, self.began);
        let mut switch = false;
        loop {
            let looks = self.ends.as_ref().is_some_and(EventEndWatch::wants_looks);
            let look = (awaited.is_some() || recorder.lives() > 0 || looks).then(|| Instant::now() + LOOK);
            let show = (self.line == StatusLine::Shown).then_some(show_at);
            let alarms = [Some(flush_at), delay, look, show, self.files.turn_at()];
            let wakes = self.waiter.wait(alarms.into_iter().flatten().min());
            let wakes = wakes.map_err(|errno| failed(format!("waiting failed: {errno}")))?;
            if let Some(ends) = &mut self.ends {
                ends.take(&wakes, &mut self.waiter);
            }
            let mut drain = false;
            for wake in wakes {
                match wake {
                    Wake::Fd(RINGS) => drain = true,
                    Wake::Fd(HOTPLUG) => {
                        self.follow_cpus(recorder)?;
                        // How tasks stand on a CPU that came is written with it: the sooner, the more samples have names.
                        drain = true;
                    }
                    Wake::Fd(CONTROL) => self.controlled(recorder, writer, child.as_deref_mut(), &mut delay)?,
                    Wake::Signal(SIGUSR2) => switch = true,
                    Wake::Signal(signal) => self.interrupted(signal, child.as_deref_mut()),
                    _ => {}
                }
            }
            let watched = (recorder.lives(), recorder.fds().len());
            recorder.look_for_service();
            let now = Instant::now();
            if now >= flush_at {
                // News of CPUs may have been missed.
                self.follow_cpus(recorder)?;
                drain = true;
            }
            if drain {
                flush_at = now + flush;
                recorder.drain_until(writer, self.enough_bytes()).map_err(|error| self.not_written(&error))?;
            }
            if (recorder.lives(), recorder.fds().len()) != watched {
                self.watch_fds(recorder);
            }
            if delay.is_some_and(|at| at <= now) {
                delay = None;
                recorder.enable().map_err(|error| failure(&error))?;
            }
            if let Some(running) = &mut child
                && let Some(exited) = running.try_wait(self.session).map_err(|error| failure(&error))?
            {
                return Ok(Some(exited.status));
            }
            let written = self.before_bytes + writer.data_bytes();
            if child.is_none() && (self.signal.is_some() || awaited.is_some_and(|awaited| !awaited.is_alive())) {
                return Ok(None);
            }
            if writer.data_bytes() >= self.enough_bytes() {
                // Enough was written: that is also the end of the command, as with `perf record`.
                self.tell("the size of --max-size is reached");
                if let Some(child) = child {
                    // If it has ended just now, that is what is wanted.
                    let _ = child.kill(SIGTERM);
                }
                return Ok(None);
            }
            if switch || self.files.is_full(writer.data_bytes() - self.begun_bytes) {
                switch = false;
                *writer = self.next_file(recorder, writer)?;
            }
            if self.line == StatusLine::Shown && now >= show_at {
                show_at = now + SHOW;
                let text = messages::so_far(self.began.elapsed().as_secs(), &recorder.progress(), written);
                self.line.show(&text);
            }
        }
    }

    /// Does what was asked for through `--control`.
    fn controlled(
        &mut self,
        recorder: &mut Recorder,
        writer: &mut Writer,
        mut child: Option<&mut Running>,
        delay: &mut Option<Instant>,
    ) -> Result<(), Failure> {
        for command in self.control.as_mut().map(Channel::take).unwrap_or_default() {
            match command {
                ControlCommand::Enable => {
                    *delay = None;
                    recorder.enable().map_err(|error| failure(&error))?;
                }
                ControlCommand::Disable => {
                    // Also what was to come by itself.
                    *delay = None;
                    recorder.disable().map_err(|error| failure(&error))?;
                }
                ControlCommand::Ping => {}
                ControlCommand::Stop => self.interrupted(SIGTERM, child.as_deref_mut()),
                ControlCommand::Snapshot if self.options.switch_output.is_some() => {
                    *writer = self.next_file(recorder, writer)?;
                }
                ControlCommand::Snapshot => {
                    write_stderr("pmux: --control: a snapshot goes on in another file: give --switch-output");
                    continue;
                }
            }
            self.control.iter_mut().for_each(Channel::answer);
        }
        Ok(())
    }

    /// How many bytes of records this file may have, by `--max-size`.
    fn enough_bytes(&self) -> u64 {
        let enough = |most: u64| most.saturating_add(self.preamble_bytes).saturating_sub(self.before_bytes);
        self.options.max_bytes.map_or(u64::MAX, enough)
    }

    fn follow_cpus(&mut self, recorder: &mut Recorder) -> Result<(), Failure> {
        let rings = recorder.ring_bytes().1;
        recorder.follow_cpus().map_err(|error| failure(&error))?;
        self.tell_notes(recorder);
        if recorder.ring_bytes().1 != rings {
            self.watch_fds(recorder);
        }
        Ok(())
    }

    fn next_file(&mut self, recorder: &mut Recorder, writer: &mut Writer) -> Result<Writer, Failure> {
        recorder.close_file(writer).map_err(|error| self.not_written(&error))?;
        self.before_bytes += writer.data_bytes();
        self.files.finished();
        let file = self.files.open().map_err(failed)?;
        let next = recorder.begin(file, &self.about).map_err(|error| self.not_written(&error))?;
        self.begun(&next);
        Ok(next)
    }

    /// A file was begun: what is in it already does not count for its size, or a small one would be full before anything came.
    fn begun(&mut self, writer: &Writer) {
        self.begun_bytes = writer.data_bytes();
        self.preamble_bytes += self.begun_bytes;
    }

    /// A signal asks for the end: the command is told, unless the terminal has told it already.
    fn interrupted(&mut self, signal: i32, child: Option<&mut Running>) {
        self.signal = Some(signal);
        pass_on(signal, child);
    }

    fn finish(
        &mut self,
        recorder: &mut Recorder,
        writer: &mut Writer,
        ended: Option<ExitStatus>,
    ) -> Result<u8, Failure> {
        recorder.disable().map_err(|error| failure(&error))?;
        recorder.finish_until(writer, self.enough_bytes()).map_err(|error| self.not_written(&error))?;
        self.files.finished();
        self.line.show("");
        self.tell_notes(recorder);
        let written = self.before_bytes + writer.data_bytes();
        let status = ended.map_or(exit_status::SUCCESS, exit_status::of_command);
        let file = (!self.files.is_stdout()).then_some(self.files.current.as_path());
        let (ring_bytes, rings) = recorder.ring_bytes();
        let by_service = recorder.lives() > 0;
        let gap = recorder.gap();
        let target_ended = self.ends.as_ref().and_then(EventEndWatch::message);
        let (progress, files) = (recorder.progress(), self.files.finished.len());
        if self.options.json {
            let ended = Ended {
                progress,
                written_bytes: written,
                file,
                files,
                ring_bytes,
                service: self.session.shared_through().filter(|_| by_service),
                gap,
                absences: recorder.absences(),
                notes: recorder.notes(),
                target_ended: target_ended.as_deref(),
                status,
            };
            // As it is: for programs, in any locale.
            let written = std::io::stderr().write_all(messages::to_json(&ended).as_bytes()).is_ok();
            return Ok(if written { status } else { exit_status::FAILED });
        }
        let place = file.unwrap_or(Path::new("standard output"));
        let on_cpus = (!by_service).then_some(rings);
        let lines = messages::summary(&progress, written, place, files, (ring_bytes, on_cpus));
        if !gap.is_zero() {
            let seconds = gap.as_secs_f64();
            let what = if self.options.off_cpu.is_some() { "no samples were" } else { "nothing was" };
            write_stderr(&format!("pmux record: the service was away: {what} recorded for {seconds:.1} s"));
        }
        if let Some(ended) = target_ended {
            write_stderr(&format!("pmux record: {ended}"));
        }
        let away = messages::away(recorder.absences(), pmux::server_api::now_ns());
        for line in lines.into_iter().skip(usize::from(self.options.quiet)).chain(away) {
            write_stderr(&format!("pmux record: {line}"));
        }
        Ok(status)
    }

    fn not_written(&self, error: &Error) -> Failure {
        self.line.show("");
        let (text, status) = failure(error);
        match error {
            Error::Output(_) => {
                let path = self.files.current.display();
                (format!("{path}: {text}; what was written before can be read"), status)
            }
            _ => (text, status),
        }
    }
}
