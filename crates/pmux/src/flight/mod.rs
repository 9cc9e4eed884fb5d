//! The flight recorder: events are always recorded, nothing is written, and a snapshot has what happened just before.
//!
//! What it is: [`Flight`] opens events as a [`crate::record::Recorder`] does, but lets what samples overwrite itself, in rings of
//! the kernel (`cpu_rings`, `marks`). What explains samples is taken out of rings of its own all the time and kept as far back as the
//! oldest sample (`record/past.rs`), and so are waits (`waits`). A snapshot copies the rings while everything goes on (`copy`), and is
//! written by a thread of its own (`write`, `manifest`) into a folder that is kept in order (`store`). Read first: [`Flight`].
//!
//! **Invariant:** a task that is recorded is never stopped, and nothing is switched off for a snapshot. What is not in a snapshot, and
//! why, is a number in its manifest.

mod copy;
mod cpu_rings;
mod manifest;
mod marks;
mod pending;
mod status;
mod store;
mod waits;
mod write;

pub(crate) use cpu_rings::CpuRings;
pub use status::{Lasted, RingSpan, Status};
pub use store::is_snapshot;
pub use write::{CpuWindow, FlightSnapshot, SnapshotError};

use crate::command::{Command, Running};
use crate::error::Error;
use crate::event::EventList;
use crate::perf_data::EventDesc;
use crate::record::{Keep, Past, RecordMode, RecordOptions, Recorder, WaitSamples, is_alive};
use crate::session::Session;
use crate::symbol::Followed;
use crate::target::Target;
use crate::trigger::EventSets;
use crate::units::nanos;
use pending::Pending;
use pmux_abi::record::{Records, SampleLayout};
use pmux_engine::Nanos;
use pmux_linux::machine::Machine;
use pmux_linux::ring::Ring;
use status::too_short;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::Store;
use waits::KeptWaits;
use write::Writing;

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// What happened in so much time. Rings grow until they hold it, as far as they may.
    Span(Duration),
    /// So many bytes of each CPU, rounded up to what a ring can have.
    Bytes(u64),
}

impl Default for Keeping {
    fn default() -> Self {
        Self::Span(Duration::from_secs(30))
    }
}

/// How many snapshots are kept. The oldest ones go first; the newest one stays in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// So many.
    pub max_snapshots: Option<u32>,
    /// So many bytes of all together.
    pub max_disk_bytes: Option<u64>,
}

/// How to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlightOptions {
    /// Rate, call chains, addresses, inheritance and start, as of a recording. Exit counts and switches are not for this: ask for
    /// an event (`sched:sched_switch`). `ring_bytes` is about the rings of what explains samples.
    pub record: RecordOptions,
    /// How much is kept.
    pub keep: Keeping,
    /// The most bytes that all rings may have, where [`Keeping::Span`] makes them grow. `None`: 64 MiB a CPU, and an eighth of the memory.
    /// Waits ([`RecordOptions::off_cpu`]) may have as much again.
    pub most_ring_bytes: Option<u64>,
    /// For how long a snapshot goes on after its cause.
    pub after: Duration,
    /// Where snapshots go. It is made where it is not there.
    pub directory: PathBuf,
    /// How many of them are kept.
    pub limits: Limits,
    /// The words of the command line, for the files.
    pub words: Vec<Vec<u8>>,
}

impl FlightOptions {
    /// Thirty seconds, into a directory.
    #[must_use]
    pub fn into_directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            record: RecordOptions::default(),
            keep: Keeping::Span(Duration::from_secs(30)),
            most_ring_bytes: None,
            after: Duration::ZERO,
            directory: directory.into(),
            limits: Limits::default(),
            words: Vec::new(),
        }
    }
}

/// Why a snapshot is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotCause {
    /// In words.
    pub what: String,
    /// When it was, on the monotonic clock.
    pub at: Nanos,
}

impl SnapshotCause {
    /// Just now.
    #[must_use]
    pub fn now(what: impl Into<String>) -> Self {
        Self { what: what.into(), at: Nanos(pmux_linux::now_ns()) }
    }
}

/// What became of a request for a snapshot. The number is the snapshot's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requested {
    /// The rings are copied; it goes on until [`FlightOptions::after`] is over.
    Begun(u64),
    /// A snapshot that is not over yet has this as one more cause.
    Joined(u64),
    /// Two others are being written. It is begun when one of them is done, with what the rings hold then.
    Waits(u64),
}

const LOOK: Duration = Duration::from_secs(1);
/// How often they are copied while a snapshot goes on, where they are large or little is written.
const FOLLOW: Duration = Duration::from_millis(50);
/// So many snapshots are written at a time, each with a copy of the rings.
const MOST_WRITING: usize = 2;
const MOST_MARKS: usize = 10_000;
/// Bytes of a ring of the tracking event, where the caller does not say.
const TRACKING_RING_BYTES: u64 = 512 << 10;
/// The most bytes of a CPU's ring, where the caller does not say.
const MOST_EACH: u64 = 64 << 20;

/// A flight recorder.
///
/// It has no thread that looks after it: its owner waits for [`Flight::fds`] until [`Flight::next`] and calls [`Flight::tick`]. The
/// calling thread holds the rings: it is to live as long.
///
/// ```
/// use pmux::flight::{Flight, FlightOptions, Keeping, SnapshotCause};
/// use pmux::{EventList, Session, Target};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let session = Session::new()?;
/// let events = EventList::parse(&["page-faults:u"], session.catalog())?;
/// let options = FlightOptions { keep: Keeping::Bytes(64 << 10), ..FlightOptions::into_directory(folder) };
/// let mut flight = match Flight::open(&session, events, &[], &Target::CurrentThread, options) {
///     Ok(flight) => flight,
///     Err(error) => return Ok(println!("not allowed here: {error}")),
/// };
/// flight.enable()?;
/// let pages = vec![1_u8; 1 << 22];
/// flight.request(SnapshotCause::now("enough pages"));
/// for snapshot in flight.finish() {
///     let snapshot = snapshot?;
///     println!("{}: {} records", snapshot.path.display(), snapshot.records);
/// }
/// # assert!(pages[7] == 1);
/// # Ok(())
/// # }
/// ```
pub struct Flight {
    session: Session,
    recorder: Recorder,
    options: FlightOptions,
    sets: Vec<String>,
    past: Past,
    /// Where waits are recorded.
    waits: Option<KeptWaits>,
    store: Store,
    writing: Writing,
    /// The one that is not over yet, or waits.
    pending: Option<Pending>,
    begun: u64,
    marks: VecDeque<(Nanos, String)>,
    opened_ns: u64,
    looked_ns: u64,
    /// The last snapshot that was begun to be written, and when it ended.
    previous: Option<(u64, Nanos)>,
}

impl Flight {
    /// Opens events on a target, as [`Recorder::open`] does, and sets of more events that are off at first: [`Flight::gather`]
    /// says who switches them. Those that are asked for sample as [`RecordOptions::start`] says, or from [`Flight::enable`] on.
    ///
    /// Left-overs of recorders that were killed are removed from the directory.
    ///
    /// # Errors
    /// [`Error::Directory`]; then those of [`Recorder::open`].
    pub fn open(
        session: &Session,
        events: EventList,
        sets: &[(String, EventList)],
        target: &Target<'_>,
        options: FlightOptions,
    ) -> Result<Self, Error> {
        if options.record.switches == Keep::Record || options.record.exit_counts == Keep::Record {
            return Err(Error::Options(
                "switches and exit counts are not kept by a flight recorder: ask for an event, such as sched:sched_switch",
            ));
        }
        let directory = options.directory.clone();
        let store =
            Store::open(&directory, options.limits).map_err(|error| Error::Directory { path: directory, error })?;
        let online = session.online().len();
        let usual = (Machine::this().memory_kib().unwrap_or(1 << 20) * 1024 / 8).min(MOST_EACH * online as u64);
        let most = options.most_ring_bytes.unwrap_or(usual);
        let mode = || RecordMode {
            cpu_rings: Some(CpuRings::new(session, options.keep, most, online)),
            sets: sets.iter().map(|(_, events)| events.clone()).collect(),
        };
        let tracking_bytes = options.record.ring_bytes.or((online < 64).then_some(TRACKING_RING_BYTES));
        let record = RecordOptions { ring_bytes: tracking_bytes, ..options.record.clone() };
        let opened_ns = pmux_linux::now_ns();
        let mut recorder = match Recorder::open_as(session, events.clone(), target, record, mode()) {
            Err(error) if options.record.ring_bytes.is_none() && crate::ring_owner::is_too_large(&error) => {
                // As much as is allowed, then.
                Recorder::open_as(session, events, target, options.record.clone(), mode())?
            }
            other => other?,
        };
        let (first, tracking) = match recorder.events() {
            [first, .., tracking] => (SampleLayout::new(&first.attr), tracking.attr),
            _ => return Err(Error::Options("no event to record")),
        };
        let mut past = Past::new(&tracking, first, crate::record::empty_id(&first), opened_ns);
        recorder.take_what_came_early(|record| past.take(record));
        // Looking at all processes takes a while, in which more happens than a ring holds.
        let existing = recorder.existing_while(|rings| listen(rings.each(), &mut past));
        past.begin(&existing, &first);
        let most_waits_bytes = match options.keep {
            Keeping::Span(_) => most,
            Keeping::Bytes(of_cpu) => of_cpu.saturating_mul(online as u64),
        };
        let waits = options.record.off_cpu.map(|_| KeptWaits::new(most_waits_bytes, first));
        Ok(Self {
            session: session.clone(),
            recorder,
            options,
            sets: sets.iter().map(|(name, _)| name.clone()).collect(),
            past,
            waits,
            store,
            writing: Writing::new()?,
            pending: None,
            begun: 0,
            marks: VecDeque::new(),
            opened_ns,
            looked_ns: opened_ns,
            previous: None,
        })
    }

    /// Gives the sets to the code that switches them. What is opened later, on CPUs that come, stands as what is there.
    pub fn gather(&mut self, sets: &mut EventSets) {
        for (index, name) in self.sets.iter().enumerate() {
            self.recorder.give_set(index, |members| sets.gather(name, members));
        }
    }

    /// What differs from what was asked, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        self.recorder.notes()
    }

    /// The events, as they were opened: the one that tells of tasks last.
    #[must_use]
    pub fn events(&self) -> &[EventDesc] {
        self.recorder.events()
    }

    /// Lets the command go for which this was opened, or another one that runs meanwhile.
    ///
    /// # Errors
    /// [`Error::Spawn`].
    pub fn release(&mut self, command: Command) -> Result<Running, Error> {
        self.recorder.release(command)
    }

    /// As [`Flight::release`], but the command is followed: it stops when something is mapped.
    ///
    /// # Errors
    /// [`Error::Follow`], [`Error::Spawn`].
    pub fn follow(&mut self, command: Command) -> Result<Followed, Error> {
        self.recorder.follow(command)
    }

    /// Lets events sample that were opened with [`crate::Start::Later`]; sets stay as they are.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable(&mut self) -> Result<(), Error> {
        self.recorder.enable()
    }

    /// Stops sampling; sets stay as they are.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&mut self) -> Result<(), Error> {
        self.recorder.disable()
    }

    /// Takes CPUs into account that came or went: for when the session's fd for hotplug is readable. [`Flight::tick`] does it from time
    /// to time.
    ///
    /// # Errors
    /// [`Error::Ring`] for a CPU that came.
    pub fn follow_cpus(&mut self) -> Result<(), Error> {
        let followed = self.recorder.follow_cpus();
        let past = &mut self.past;
        let again = self.recorder.existing_again_while(|rings| listen(rings.each(), past));
        Records::new(&again).flatten().for_each(|record| past.take(record));
        followed
    }

    /// What becomes readable when [`Flight::tick`] is to be called. A CPU that came adds one.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = self.recorder.fds();
        fds.push(self.writing.done.as_fd());
        fds
    }

    /// When [`Flight::tick`] is to be called although nothing is readable.
    #[must_use]
    pub fn next(&self) -> Instant {
        let now_ns = pmux_linux::now_ns();
        let look_ns = self.looked_ns.saturating_add(nanos(LOOK));
        let next_ns = self.pending.as_ref().and_then(Pending::next_ns).map_or(look_ns, |pending| pending.min(look_ns));
        Instant::now() + Duration::from_nanos(next_ns.saturating_sub(now_ns))
    }

    /// Does what is to be done now: takes in what explains samples, lets rings grow, goes on with a snapshot. Answers snapshots that
    /// are finished. It waits for nothing but, where waits are recorded and a snapshot ends, some ms for the look at all threads, and where a
    /// CPU came, as long as it takes to read of all tasks in `/proc`.
    ///
    /// # Errors
    /// [`Error::Ring`] for a CPU that came. Everything else goes on.
    pub fn tick(&mut self) -> Result<Vec<Result<FlightSnapshot, SnapshotError>>, Error> {
        let now_ns = pmux_linux::now_ns();
        self.listen();
        let mut followed = Ok(());
        if now_ns.saturating_sub(self.looked_ns) >= nanos(LOOK) {
            self.looked_ns = now_ns;
            followed = self.follow_cpus();
            self.look(now_ns);
        }
        let mut done = self.writing.take();
        self.go_on(&mut done);
        // A snapshot is not lost with a CPU.
        if done.is_empty() { followed.map(|()| done) } else { Ok(done) }
    }

    /// Takes in what explains samples.
    fn listen(&mut self) {
        listen(self.recorder.rings.each(), &mut self.past);
        if let (Some(waits), Some(off_cpu)) = (&mut self.waits, &mut self.recorder.off_cpu) {
            off_cpu.since_ns().into_iter().for_each(|since_ns| waits.begin(since_ns));
            waits.put(off_cpu.take(u64::MAX));
        }
    }

    /// Looks how far the rings reach, and forgets what is older.
    fn look(&mut self, now_ns: u64) {
        let Some(cpu_rings) = &mut self.recorder.rings.cpu_rings else { return };
        cpu_rings.watch(now_ns);
        let oldest_ns = cpu_rings.oldest_ns().max(self.cut_ns(now_ns));
        // A snapshot that is not over has older samples.
        let taken = self.pending.as_ref().and_then(|pending| pending.taken);
        let oldest_ns = taken.map_or(oldest_ns, |taken| taken.cut_ns.min(oldest_ns));
        self.past.forget(oldest_ns, now_ns, is_alive);
        if let (Some(waits), Some(off_cpu)) = (&mut self.waits, &mut self.recorder.off_cpu) {
            waits.put(off_cpu.sums_at(now_ns));
            waits.forget(oldest_ns);
        }
        self.recorder.absences.forget(Nanos(oldest_ns));
        let covered = |(at, _): &(Nanos, String)| at.0 < oldest_ns;
        let over = self.marks.iter().take_while(|mark| covered(mark)).count();
        self.marks.drain(..over.max(self.marks.len().saturating_sub(MOST_MARKS)));
    }

    /// What is older is not asked for.
    fn cut_ns(&self, now_ns: u64) -> u64 {
        match self.options.keep {
            Keeping::Span(span) => now_ns.saturating_sub(nanos(span)),
            Keeping::Bytes(_) => 0,
        }
    }

    /// Asks for a snapshot: the rings are copied now. It comes out of [`Flight::tick`] when it is written.
    pub fn request(&mut self, cause: SnapshotCause) -> Requested {
        let after = self.options.after;
        if let Some(pending) = &mut self.pending {
            return pending.join(cause, nanos(after));
        }
        self.begun += 1;
        let number = self.begun;
        let mut pending = Pending::new(number, cause);
        if self.writing.running >= MOST_WRITING {
            self.pending = Some(pending);
            return Requested::Waits(number);
        }
        self.begin(&mut pending);
        self.pending = Some(pending);
        let mut none = Vec::new();
        self.go_on(&mut none);
        self.writing.kept_back.extend(none);
        Requested::Begun(number)
    }

    fn begin(&mut self, pending: &mut Pending) {
        let now_ns = pmux_linux::now_ns();
        let cut_ns = self.cut_ns(now_ns);
        let Some(cpu_rings) = &mut self.recorder.rings.cpu_rings else { return };
        pending.begin(cpu_rings, cut_ns, now_ns, nanos(self.options.after));
    }

    fn go_on(&mut self, done: &mut Vec<Result<FlightSnapshot, SnapshotError>>) {
        let Some(mut pending) = self.pending.take() else { return };
        if pending.taken.is_none() {
            if self.writing.running >= MOST_WRITING {
                self.pending = Some(pending);
                return;
            }
            self.begin(&mut pending);
        }
        let now_ns = pmux_linux::now_ns();
        let times = pending.is_over(now_ns).then(|| write::Times::new(self.recorder.events()));
        let Some(cpu_rings) = &mut self.recorder.rings.cpu_rings else { return };
        if let Some(times) = times {
            pending.end(cpu_rings, &times);
            self.write(pending, done);
            return;
        }
        pending.follow(cpu_rings, now_ns, nanos(FOLLOW));
        self.pending = Some(pending);
    }

    fn write(&mut self, pending: Pending, done: &mut Vec<Result<FlightSnapshot, SnapshotError>>) {
        self.listen();
        let number = pending.number;
        match self.job(pending) {
            Ok(job) => self.writing.begin(job, &self.store),
            Err(why) => done.push(Err(SnapshotError { number, why })),
        }
    }

    fn job(&mut self, pending: Pending) -> Result<write::Job, String> {
        let early = self.recorder.features_of(&self.options.words).map_err(|error| error.to_string())?;
        let Pending { number, causes, copies, taken } = pending;
        let taken = taken.unwrap_or_default();
        let cut_ns = taken.cut_ns;
        let waits = self.waits_until(taken.ended_ns).map_err(|error| error.to_string())?;
        let previous = self.previous.replace((number, Nanos(taken.ended_ns)));
        let marks = self.marks.iter().filter(|(at, _)| at.0 >= cut_ns).cloned().collect();
        Ok(write::Job {
            number,
            causes,
            marks,
            copies,
            absences: self.recorder.absences().to_vec(),
            task_records: self.past.snapshot(),
            waits,
            descs: self.recorder.events().to_vec(),
            early,
            cut_ns,
            ended_ns: taken.ended_ns,
            opened_ns: self.opened_ns,
            keep: self.options.keep,
            after: self.options.after,
            host: Machine::this().host_name().unwrap_or_default(),
            kernel: Machine::this().kernel_release().unwrap_or_default(),
            previous,
        })
    }

    /// Waits that ended up to that time, and those that go on.
    fn waits_until(&mut self, ended_ns: u64) -> Result<Option<waits::SnapshotWaits>, Error> {
        let samples = WaitSamples::of(self.recorder.events());
        let (Some(waits), Some(off_cpu)) = (&mut self.waits, &mut self.recorder.off_cpu) else { return Ok(None) };
        waits.put(off_cpu.sums_at(ended_ns));
        let under_way = off_cpu.waits_under_way()?;
        // What has ended before it was looked is in the rings.
        waits.put(off_cpu.take(u64::MAX));
        Ok(Some(waits.snapshot(samples, under_way, off_cpu.unseen())))
    }

    /// Notes that something happened: every snapshot that covers the time tells it.
    pub fn mark(&mut self, at: Nanos, text: impl Into<String>) {
        let place = self.marks.partition_point(|(marked, _)| *marked <= at);
        self.marks.insert(place, (at, text.into()));
        if self.marks.len() > MOST_MARKS {
            self.marks.pop_front();
        }
    }

    /// How it goes. Cheap enough to be asked a few times a second.
    #[must_use]
    pub fn status(&mut self) -> Status {
        let now_ns = pmux_linux::now_ns();
        let (past_bytes, lost) = (self.past.bytes(), self.past.lost);
        let (begun, writing) = (self.begun, self.writing.running);
        let keep = self.options.keep;
        let warnings = self.recorder.off_cpu.as_ref().map(|off_cpu| off_cpu.losses()).unwrap_or_default();
        let waits_bytes = self.waits.as_ref().map_or(0, |waits| waits.bytes);
        let mut status = Status { held: Vec::new(), warnings, past_bytes, waits_bytes, lost, begun, writing };
        let Some(cpu_rings) = &mut self.recorder.rings.cpu_rings else { return status };
        cpu_rings.watch(now_ns);
        status.held = cpu_rings.held(now_ns);
        if let Keeping::Span(span) = keep {
            // How long something is there is known to a second.
            let due = span.min(Duration::from_nanos(now_ns.saturating_sub(self.opened_ns)));
            let is_short = |held: &&RingSpan| held.lasted == Lasted::Overwritten && held.span + 2 * LOOK < due;
            let short = status.held.iter().filter(is_short);
            if let Some(shortest) = short.min_by_key(|held| held.span) {
                status.warnings.push(too_short(shortest, span, cpu_rings.stuck.as_deref(), cpu_rings.most_bytes));
            }
            let due_ns = now_ns.saturating_sub(nanos(due));
            if let Some((waits, since_ns)) =
                self.waits.as_ref().and_then(|waits| Some((waits, waits.shortened(due_ns)?)))
            {
                status.warnings.push(format!(
                    "waits are kept for {:.1} s of the {:.1} s that were asked for, in {} KiB; what helps: recording longer ones \
                     only (--off-cpu=1ms)",
                    Duration::from_nanos(now_ns.saturating_sub(since_ns)).as_secs_f64(),
                    span.as_secs_f64(),
                    waits.bytes >> 10
                ));
            }
        }
        if cpu_rings.corrupt > 0 {
            status.warnings.push(format!("a ring contradicted itself {} times", cpu_rings.corrupt));
        }
        if lost > 0 {
            status.warnings.push(format!(
                "{lost} records about tasks were lost: some names may be missing; what helps: larger rings for them (pmux flight -m 4M)"
            ));
        }
        status
    }

    /// Ends what is not over yet and waits until everything is written.
    #[must_use]
    pub fn finish(&mut self) -> Vec<Result<FlightSnapshot, SnapshotError>> {
        let mut done = Vec::new();
        while self.pending.is_some() || self.writing.running > 0 {
            if let Some(pending) = &mut self.pending {
                pending.end_now();
            }
            self.go_on(&mut done);
            done.extend(self.writing.wait());
        }
        done
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }
}

fn listen<'r>(rings: impl Iterator<Item = &'r mut Ring>, past: &mut Past) {
    for ring in rings {
        if ring.drain(&mut |record| past.take(record)).is_err() {
            past.lose(1);
        }
    }
}
