//! Where samples come from: a recorder that writes into a pipe, and a reader at its other end, in threads of their own.
//!
//! What it is: what `pmux record -o - | pmux report` does, without an end. A profile remembers all stacks and names that it met, so it
//! is begun anew when it has met [`MOST_STACKS`] or [`MOST_THREADS`]. Read first: [`Feed::begin`].
//!
//! **Invariant:** the screen waits for neither of them; rings are emptied four times in an interval and in a second, or when they fill up.

use super::facts::Facts;
use super::kept::{Keeping, Kept, Passing};
use super::live::Live;
use crate::failure::{Failure, failed, failure};
use crate::options::target::TargetSpec;
use crate::options::top::TopOptions;
use crate::sampling::{self, EventEndWatch};
use pmux::abi::{EventType, Sampling};
use pmux::profile::{Input, Profile, Progress, Sample, Sink, Symbols, TimeKind, read};
use pmux::record::{Form, Keep, RecordOptions, Recorder, RecorderInfo, WaitSamples};
use pmux::wait::{Token, Waiter, Wake};
use pmux::{CpuChoice, Error, Event, Session, SharedChoice, Target};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const RINGS: Token = Token(0);
const ENDS: Token = Token(1);
const ASKED: Token = Token(2);
/// How often rings are emptied, where none fills up.
const FLUSH: Duration = Duration::from_millis(250);
/// A profile that has met so many stacks, or so many threads that came later, is begun anew: some 16 MB.
const MOST_STACKS: usize = 1 << 18;
const MOST_THREADS: usize = 1 << 16;

pub(super) struct Feed {
    live: Arc<Mutex<Live>>,
    kept: Arc<Mutex<Kept>>,
    stop: Arc<AtomicBool>,
    /// Wakes what moves records.
    asks: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Opens the events, and lets samples come. The facts are what is known from the beginning.
    pub(super) fn begin(options: &TopOptions, keeping: Keeping) -> Result<(Self, Facts), Failure> {
        let session = crate::session::open(&options.shared, None).map_err(|error| failure(&error))?;
        let typed = options.sampling();
        let target_spec = typed.target_spec().map_err(failed)?;
        let mut events = sampling::events(&typed, &session)?;
        if options.frequency.is_none() && options.period.is_none() {
            // The kernel's frequencies of events that come in bursts say nothing of how many there were.
            let all = events.groups.iter_mut().flat_map(|group| &mut group.events);
            let each = all.filter(|event| event.sampling == Sampling::None && is_occurrence(event));
            each.for_each(|event| event.sampling = Sampling::Period(1));
        }
        let target = sampling::target(&target_spec, &typed.cgroups, None)?;
        sampling::check_target_alive(&target, &target_spec)?;
        let off_cpu = options.off_cpu.map(pmux::units::nanos);
        let (how, note) = sampling::record_options(&typed, &target_spec)?;
        let how = RecordOptions { cpus: Keep::Record, off_cpu, ..how };
        let shared = options.shared.shared_when().map(SharedChoice::from);
        let shared = shared.map_or_else(SharedChoice::of_environment, Ok).map_err(|error| failure(&error))?;
        let opened = sampling::open_recorder(&session, shared, events, &target, how);
        let (recorder, by_service) = opened.map_err(|error| failure(&error))?;
        // The last one only tracks.
        let sampled = recorder.events().split_last().map_or(&[][..], |(_, sampled)| sampled);
        // Waits have events of their own, the last ones.
        let waits = sampled.iter().position(|desc| TimeKind::of_name(&desc.name).is_some());
        let sampled = sampled.get(..waits.unwrap_or(sampled.len())).unwrap_or_default();
        let events = sampled.iter().map(|desc| (desc.name.clone(), desc.attr.is_clock())).collect();
        let cpus = match &target {
            Target::Cpus(CpuChoice::Only(list)) | Target::Cgroups { cpus: CpuChoice::Only(list), .. } => {
                Some(list.len())
            }
            Target::Cpus(CpuChoice::All) | Target::Cgroups { .. } => Some(session.online().len()),
            _ => None,
        };
        let (asked, asks) = io::pipe().map_err(|error| failed(no_pipe(&error)))?;
        let (live, stop) = (Arc::new(Mutex::new(Live::default())), Arc::new(AtomicBool::new(false)));
        let kept = Arc::new(Mutex::new(Kept::new(keeping)));
        lock(&live).notes.extend(note.into_iter().chain(recorder.notes().iter().cloned()));
        let ends = (recorder.session().clone(), target_spec.clone());
        let pump = Pump {
            recorder,
            is_on: false,
            live: Arc::clone(&live),
            kept: Arc::clone(&kept),
            stop: Arc::clone(&stop),
            asked,
            awaited: sampling::awaited_target(&target_spec),
            ends,
            flush: FLUSH.min(options.delay / 4),
            has_waits: off_cpu.is_some(),
        };
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(move || pump.run());
        let thread = thread.map_err(|error| failed(format!("no thread can be started: {error}")))?;
        let facts = Facts { events, cpus, by_service, has_waits: off_cpu.is_some(), ..Facts::default() };
        Ok((Self { live, kept, stop, asks, thread: Some(thread) }, facts))
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        lock(&self.live)
    }

    /// Asks what waits now: the interval is to end.
    pub(super) fn ask(&self) {
        self.live().is_asked = true;
        self.wake();
    }

    fn wake(&self) {
        // It is woken from time to time anyway.
        let _ = (&self.asks).write(&[0]);
    }

    /// The last seconds of what came.
    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether an event tells of single things that happen, and not of what goes on all the time.
fn is_occurrence(event: &Event) -> bool {
    const KINDS: [EventType; 3] = [EventType::SOFTWARE, EventType::TRACEPOINT, EventType::BREAKPOINT];
    KINDS.contains(&event.attr.kind) && !event.attr.is_clock()
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A sample that was taken in by half does no harm.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_pipe(error: &io::Error) -> String {
    format!("no pipe can be made: {error}")
}

/// What moves records from the rings into the pipe.
struct Pump {
    recorder: Recorder,
    is_on: bool,
    live: Arc<Mutex<Live>>,
    kept: Arc<Mutex<Kept>>,
    stop: Arc<AtomicBool>,
    asked: PipeReader,
    awaited: Option<Target<'static>>,
    /// For what tells that an exec has ended events.
    ends: (Session, TargetSpec),
    flush: Duration,
    has_waits: bool,
}

enum PipeEnd {
    /// The reader has met too much: another one begins.
    Reader,
    /// There is no more to come.
    Target,
    Stopped,
}

impl Pump {
    fn run(mut self) {
        let result = loop {
            match self.fill() {
                Ok(PipeEnd::Reader) if !self.stop.load(Ordering::Relaxed) => {}
                end => break end.map(drop),
            }
        };
        lock(&self.live).ended = Some(result);
    }

    /// Fills one pipe.
    fn fill(&mut self) -> Result<PipeEnd, String> {
        let (from, to) = io::pipe().map_err(|error| no_pipe(&error))?;
        lock(&self.live).begin_profile();
        lock(&self.kept).begin();
        let from = Passing { from, kept: Arc::clone(&self.kept) };
        let mut sink = LiveSink {
            live: Arc::clone(&self.live),
            kept: Arc::clone(&self.kept),
            stop: Arc::clone(&self.stop),
            symbols: None,
            events: self.recorder.events().len(),
            threads: None,
            functions: Vec::new(),
        };
        let reader = thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read(Input::live(from), &mut sink).map(drop).map_err(|error| error.to_string()));
        let reader = reader.map_err(|error| format!("no thread can be started: {error}"))?;
        let end = self.write_into(File::from(OwnedFd::from(to)), &|| reader.is_finished());
        let read = reader.join().unwrap_or_else(|_| Err("reading has failed".to_owned()));
        match (end, read) {
            (Ok(PipeEnd::Reader | PipeEnd::Target), Err(why)) => Err(why),
            (end, _) => end,
        }
    }

    fn write_into(&mut self, file: File, reader_is_gone: &dyn Fn() -> bool) -> Result<PipeEnd, String> {
        let text = |error: &Error| failure(error).0;
        // Of who is born meanwhile the next profile is told, too.
        let about = RecorderInfo { form: Form::Stream, past: Keep::Record, ..RecorderInfo::default() };
        let is_pipe =
            |error: &Error| matches!(error, Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe);
        let mut writer = match self.recorder.begin(file, &about) {
            Ok(writer) => writer,
            Err(error) if is_pipe(&error) => return Ok(PipeEnd::Reader),
            Err(error) => return Err(text(&error)),
        };
        if !std::mem::replace(&mut self.is_on, true) {
            self.recorder.enable().map_err(|error| text(&error))?;
        }
        lock(&self.live).begin_interval(Instant::now());
        let mut looks_for_waits = self.has_waits;
        let mut waiter = Waiter::new();
        waiter.watch(&self.asked, ASKED);
        let mut ends = EventEndWatch::watch(&self.ends.0, &self.ends.1, None, (&mut waiter, ENDS));
        let mut watched = (u64::MAX, 0);
        loop {
            let now = (self.recorder.lives(), self.recorder.fds().len());
            if watched != now {
                watched = now;
                waiter.forget(RINGS);
                self.recorder.fds().into_iter().for_each(|fd| waiter.watch(fd, RINGS));
            }
            let wakes = waiter.wait(Some(Instant::now() + self.flush));
            let wakes = wakes.map_err(|errno| format!("waiting failed: {errno}"))?;
            if wakes.contains(&Wake::Fd(ASKED)) {
                let _ = self.asked.read(&mut [0; 64]);
            }
            ends.take(&wakes, &mut waiter);
            if reader_is_gone() {
                return Ok(PipeEnd::Reader);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(PipeEnd::Stopped);
            }
            self.recorder.look_for_service();
            self.recorder.follow_cpus().map_err(|error| text(&error))?;
            let until = Instant::now();
            looks_for_waits |= lock(&self.live).is_asked;
            let drained = match std::mem::take(&mut looks_for_waits) {
                true => self.recorder.drain_with_waits(&mut writer).map(Some),
                false => self.recorder.drain(&mut writer).map(|_| None),
            };
            let ended = drained.and_then(|waits| self.recorder.end_round(&mut writer).map(|()| waits));
            let waits = match ended {
                Ok(waits) => waits,
                Err(error) if is_pipe(&error) => return Ok(PipeEnd::Reader),
                Err(error) => return Err(text(&error)),
            };
            if let Some(Some(waits)) = waits {
                lock(&self.kept).waits_until(waits, WaitSamples::of(self.recorder.events()), until);
            }
            {
                let mut live = lock(&self.live);
                waits.into_iter().for_each(|waits| live.waits_until(waits));
                live.lost = self.recorder.progress().lost;
                live.gap = self.recorder.gap();
                live.until = Some(until);
                live.notes = self.recorder.notes().iter().cloned().chain(ends.message()).collect();
            }
            if self.awaited.as_ref().is_some_and(|awaited| !awaited.is_alive()) {
                // What it did last is in the rings. Whether the reader takes it is all the same then.
                let waits = self.recorder.drain_with_waits(&mut writer);
                let waits = waits.and_then(|waits| self.recorder.end_round(&mut writer).map(|()| waits));
                waits.into_iter().for_each(|waits| lock(&self.live).waits_until(waits));
                return Ok(PipeEnd::Target);
            }
        }
    }
}

/// Takes samples out of a profile.
struct LiveSink {
    live: Arc<Mutex<Live>>,
    kept: Arc<Mutex<Kept>>,
    stop: Arc<AtomicBool>,
    symbols: Option<Symbols>,
    /// How many there are at the beginning, the one that tells of tasks included.
    events: usize,
    /// How many threads there were when the first sample came.
    threads: Option<usize>,
    /// Kept for its memory.
    functions: Vec<u32>,
}

impl Sink for LiveSink {
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let symbols = self.symbols.get_or_insert_with(|| Symbols::new(profile));
        self.threads.get_or_insert(profile.tasks.threads().len());
        self.functions.clear();
        // Reading a table of symbols takes time: the screen can be drawn meanwhile.
        self.functions
            .extend(profile.stacks.walk(sample.stack).map(|frame| symbols.id_of(profile, frame).0.index() as u32));
        // Ids that came later (of a CPU, or of the service after its restart) come in a stream with the event once more.
        let event = match profile.events.get(sample.event) {
            Some(later) if sample.event >= self.events => {
                profile.events.iter().position(|event| event.attr == later.attr).unwrap_or(sample.event)
            }
            _ => sample.event,
        };
        let sample = &Sample { event, ..*sample };
        lock(&self.live).take(profile, symbols, sample, &self.functions);
        ControlFlow::Continue(())
    }

    fn progress(&mut self, profile: &Profile, _progress: Progress) -> ControlFlow<()> {
        lock(&self.live).waits.look();
        // What is told of before the first sample is told to the next profile, too.
        let has_many = self.threads.is_some_and(|before| profile.tasks.threads().len() > before + MOST_THREADS);
        let is_full = profile.stacks.len() > MOST_STACKS || has_many || lock(&self.kept).is_full();
        if is_full || self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
