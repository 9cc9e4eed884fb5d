//! Recorders of the service: each in a thread of its own.
//!
//! What it is: [`Recorders`] starts, changes and stops them as the configuration says. One that can't start (its control group is not
//! there yet, an event is not allowed) is tried again from time to time.
//! Read first: [`Recorders::apply`].
//!
//! **Invariant:** what a recorder does or can't do never holds up the service's loop, but for the end of the service. A recorder that
//! is to stop finishes its snapshots first; those that take its place wait for it, in their own threads.

use super::control::{Control, ControlAccess};
use super::recorder::{FlightRecorder, RecorderPlan};
use super::socket_dir::{RecorderId, SocketDir};
use crate::config::{Level, RecorderConfig, USUAL_FREQUENCY};
use crate::log::Log;
use pmux::flight::{FlightOptions, Limits};
use pmux::record::{Rate, RecordOptions};
use pmux::wait::{Token, Waiter, Wake};
use pmux::{CpuChoice, EventList, Session, Start, Target};
use serde_json::{Value, json};
use std::io::{PipeReader, PipeWriter};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const STOP: Token = Token(0);
const RECORDER: Token = Token(1);
/// When it is tried again to start one that can't.
const AGAIN: Duration = Duration::from_secs(10);
/// How old what is told of a recorder may be.
const FRESH: Duration = Duration::from_millis(500);

/// All recorders of a service.
pub struct Recorders {
    folder: SocketDir,
    log: Log,
    hosted: Vec<RecorderThread>,
    stopping: Vec<StoppingThreads>,
}

/// Threads that were told to stop at one time. Each is joined by the first that waits for it.
type StoppingThreads = Arc<Mutex<Vec<JoinHandle<()>>>>;

struct RecorderThread {
    config: RecorderConfig,
    groups: Vec<u32>,
    status: Arc<Mutex<Value>>,
    /// Dropped, it is told to stop.
    _stop: PipeWriter,
    thread: JoinHandle<()>,
}

struct RecorderTask {
    config: RecorderConfig,
    groups: Vec<u32>,
    folder: SocketDir,
    log: Log,
    status: Arc<Mutex<Value>>,
    stop: PipeReader,
    /// Recorders that were there before, which may have the same name and place.
    before: Vec<StoppingThreads>,
}

impl Recorders {
    /// None yet; those to come are asked in this folder.
    #[must_use]
    pub fn new(folder: SocketDir, log: &Log) -> Self {
        Self { folder, log: log.clone(), hosted: Vec::new(), stopping: Vec::new() }
    }

    /// Stops those that are not to be there any more or are to be different, and starts those that are missing. Members of these
    /// groups may ask them for snapshots.
    pub fn apply(&mut self, configs: &[RecorderConfig], groups: &[u32]) {
        let stays = |of: &RecorderThread| of.groups == groups && configs.contains(&of.config);
        let (stay, go) = std::mem::take(&mut self.hosted).into_iter().partition(stays);
        self.hosted = stay;
        self.stopping.retain(|of| of.try_lock().map_or(true, |threads| !threads.iter().all(JoinHandle::is_finished)));
        let go = signal_stop(go);
        if !go.is_empty() {
            self.stopping.push(Arc::new(Mutex::new(go)));
        }
        for config in configs {
            if self.hosted.iter().any(|of| of.config == *config) {
                continue;
            }
            match self.start(config, groups) {
                Ok(hosted) => self.hosted.push(hosted),
                Err(error) => {
                    self.log.write(Level::Error, format_args!("recorder {}: no thread for it: {error}", config.name));
                }
            }
        }
    }

    fn start(&self, config: &RecorderConfig, groups: &[u32]) -> std::io::Result<RecorderThread> {
        let (reader, stop) = std::io::pipe()?;
        let status = Arc::new(Mutex::new(json!({ "name": config.name, "state": "starting" })));
        let work = RecorderTask {
            config: config.clone(),
            groups: groups.to_vec(),
            folder: self.folder.clone(),
            log: self.log.clone(),
            status: Arc::clone(&status),
            stop: reader,
            before: self.stopping.clone(),
        };
        let thread = std::thread::Builder::new().name("pmux-flight".to_owned()).spawn(move || work.run())?;
        let (config, groups) = (config.clone(), groups.to_vec());
        Ok(RecorderThread { config, groups, status, _stop: stop, thread })
    }

    /// How each of them is.
    #[must_use]
    pub fn status(&self) -> Vec<Value> {
        self.hosted.iter().map(|of| of.status.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    /// Stops all; snapshots that were begun are finished.
    pub fn stop(&mut self) {
        let go = signal_stop(std::mem::take(&mut self.hosted));
        self.stopping.push(Arc::new(Mutex::new(go)));
        wait_for(&std::mem::take(&mut self.stopping));
    }
}

impl Drop for Recorders {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells all to stop; they do it in their own time.
fn signal_stop(all: Vec<RecorderThread>) -> Vec<JoinHandle<()>> {
    all.into_iter().map(|of| of.thread).collect()
}

fn wait_for(stopping: &[StoppingThreads]) {
    for threads in stopping {
        for thread in threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl RecorderTask {
    fn run(mut self) {
        wait_for(&std::mem::take(&mut self.before));
        let mut last_error = None;
        loop {
            match self.open() {
                Ok(recorder) => {
                    last_error = None;
                    match self.run_recorder(recorder) {
                        Ok(()) => return,
                        Err(why) => self.log_line(Level::Error, &why),
                    }
                }
                Err(why) => {
                    self.publish(json!({ "name": self.config.name, "state": "can't start", "why": why }));
                    // Once is enough.
                    if last_error.as_ref() != Some(&why) {
                        self.log_line(Level::Error, &format!("can't start, and is tried again: {why}"));
                        last_error = Some(why);
                    }
                }
            }
            let mut waiter = Waiter::new();
            waiter.watch(&self.stop, STOP);
            let stops = waiter.wait(Some(Instant::now() + AGAIN)).map(|wakes| wakes.iter().any(is_stop));
            if stops.unwrap_or(true) {
                return;
            }
        }
    }

    fn open(&self) -> Result<FlightRecorder, String> {
        let session = Session::with_backend(pmux::BackendChoice::Kernel).map_err(|error| error.to_string())?;
        let plan = self.plan(&session)?;
        let target = self.target()?;
        let mut recorder = FlightRecorder::open(&session, plan, &target).map_err(|error| error.to_string())?;
        let id = RecorderId::Name(self.config.name.clone());
        match Control::listen(&self.folder, id, ControlAccess::Groups(self.groups.clone())) {
            Ok(control) => recorder.set_control(control),
            Err(error) => self.log_line(Level::Warning, &format!("pmux flight dump can't ask it: {error}")),
        }
        recorder.begin(None).map_err(|error| error.to_string())?;
        Ok(recorder)
    }

    fn plan(&self, session: &Session) -> Result<RecorderPlan, String> {
        let config = &self.config;
        let events = match &config.events[..] {
            [] => EventList::default(),
            events => EventList::parse(events, session.catalog()).map_err(|error| error.to_string())?,
        };
        let rate = match (config.period, config.frequency) {
            (Some(period), _) => Rate::Period(period),
            (None, frequency) => Rate::ButEachHit(frequency.unwrap_or(USUAL_FREQUENCY)),
        };
        let (call_chain, off_cpu) = (config.call_chain.into(), config.off_cpu.map(pmux::units::nanos));
        let limits = Limits { max_snapshots: Some(config.max_snapshots), max_disk_bytes: Some(config.max_disk) };
        Ok(RecorderPlan {
            name: Some(config.name.clone()),
            events,
            sets: config.sets()?,
            rules: config.rules()?,
            cool_down: config.cool_down,
            options: FlightOptions {
                record: RecordOptions { rate, call_chain, off_cpu, start: Start::Later, ..RecordOptions::default() },
                keep: config.keep,
                after: config.after,
                limits,
                words: vec![b"pmux".to_vec(), b"serve".to_vec()],
                ..FlightOptions::into_directory(config.directory())
            },
        })
    }

    fn target(&self) -> Result<Target<'static>, String> {
        let cpus = match &self.config.cpus {
            Some(list) => CpuChoice::Only(list.parse().map_err(|error| format!("cpus: {error}"))?),
            None => CpuChoice::All,
        };
        Ok(match &self.config.cgroup {
            Some(name) => Target::Cgroups { names: vec![name.clone()], cpus },
            None => Target::Cpus(cpus),
        })
    }

    /// Until it is to stop.
    fn run_recorder(&self, mut recorder: FlightRecorder) -> Result<(), String> {
        recorder.notes().iter().for_each(|note| self.log_line(Level::Info, note));
        self.log_line(Level::Info, &format!("keeps the past; snapshots go to {}", recorder.directory().display()));
        let mut waiter = Waiter::new();
        waiter.watch(&self.stop, STOP);
        let mut next = Instant::now();
        loop {
            recorder.watch(&mut waiter, RECORDER);
            let wakes = waiter.wait(Some(recorder.deadline())).map_err(|errno| format!("waiting failed: {errno}"))?;
            recorder.take(&wakes, RECORDER).iter().for_each(|event| self.log_event(event));
            if wakes.iter().any(is_stop) {
                recorder.finish().iter().for_each(|event| self.log_event(event));
                return Ok(());
            }
            if Instant::now() >= next {
                next = Instant::now() + FRESH;
                let mut status = recorder.status();
                status["state"] = json!("on");
                self.publish(status);
            }
        }
    }

    fn log_event(&self, event: &super::RecorderEvent) {
        self.log_line(if event.is_wrong() { Level::Warning } else { Level::Info }, &event.to_string());
    }

    fn log_line(&self, level: Level, text: &str) {
        self.log.write(level, format_args!("recorder {}: {text}", self.config.name));
    }

    fn publish(&self, status: Value) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

fn is_stop(wake: &Wake) -> bool {
    matches!(wake, Wake::Fd(STOP) | Wake::Hangup(STOP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// A recorder may be writing a snapshot to a slow disk when the configuration is read anew.
    #[test]
    fn a_recorder_that_takes_long_to_stop_is_waited_for_at_the_end_only() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::to_stderr(Level::Error);
        let mut recorders = Recorders::new(SocketDir::beside(&folder.path().join("p.sock")), &log);
        let (go, gate) = channel::<()>();
        let (reader, stop) = std::io::pipe().unwrap();
        let thread = std::thread::spawn(move || {
            // Told to stop, it goes on until the gate opens.
            let _ = std::io::read_to_string(reader);
            assert!(gate.recv_timeout(Duration::from_secs(30)).is_ok(), "it was waited for");
        });
        let config: RecorderConfig = toml::from_str("name = \"x\"\ndirectory = \"/tmp\"\n").unwrap();
        let (groups, status) = (Vec::new(), Arc::default());
        recorders.hosted.push(RecorderThread { config, groups, status, _stop: stop, thread });
        recorders.apply(&[], &[]);
        assert_eq!((recorders.hosted.len(), recorders.stopping.len()), (0, 1));
        let stopping = recorders.stopping.clone();
        go.send(()).unwrap();
        recorders.stop();
        assert!(stopping[0].lock().unwrap().is_empty(), "it was waited for at the end");
    }
}
