//! Writing a snapshot.
//!
//! What it is: a thread of its own gets what was copied, merges it by time with what explains it, and writes a `perf.data` file and its
//! manifest. Read first: [`Writing`], then [`Job::run`].
//!
//! The records of a ring are in the order of their times, but for those that interrupted another one. The file is written in rounds:
//! what comes after the end of a round is no older than what was in the round before, so that readers needn't keep all of it.
//!
//! **Invariant:** a file that has its name is whole. What can't be written is gone, and is an error that says why.

use super::copy::{Copies, CpuRingCopy};
use super::manifest::manifest;
use super::store::{Draft, Store};
use super::waits::SnapshotWaits;
use super::{Keeping, SnapshotCause};
use crate::error::Error;
use crate::perf_data::feature::{self, Feature};
use crate::perf_data::file::FileWriter;
use crate::perf_data::{EventDesc, FeatureBytes, finished_init, finished_round};
use crate::record::{Absence, MappedBuildIds, Mend, TaskRecords};
use pmux_abi::record::{RecordKind, SampleLayout};
use pmux_engine::Nanos;
use pmux_linux::wait::{FILE_TOO_LARGE, Signals};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::iter::Peekable;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// About so many bytes of records are a round.
const ROUND_BYTES: u64 = 4 << 20;
const SAMPLE: u32 = RecordKind::SAMPLE.0;
const THROTTLE: u32 = RecordKind::THROTTLE.0;

/// A snapshot that is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlightSnapshot {
    /// Which one, from 1 on.
    pub number: u64,
    /// The records, as `perf.data`.
    pub path: PathBuf,
    /// What it is, as JSON.
    pub manifest: PathBuf,
    /// Why it was taken.
    pub causes: Vec<SnapshotCause>,
    /// Bytes of both files.
    pub bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Records from the rings and of waits, samples included.
    pub records: u64,
    /// The times of the first and the last record of the rings; a wait begins before its record.
    pub window: Option<(Nanos, Nanos)>,
    /// From when to when everything is there, of all CPUs.
    pub covers: Option<(Nanos, Nanos)>,
    /// What it has of each CPU.
    pub cpus: Vec<CpuWindow>,
    /// Records about tasks that were lost since the recording began.
    pub lost: u64,
    /// Which one came before it, and when that ended.
    pub previous: Option<(u64, Nanos)>,
    /// How long it took from the copy to the name.
    pub took: Duration,
    /// Older ones that were removed for it.
    pub deleted: Vec<PathBuf>,
}

/// What a snapshot has of a CPU.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuWindow {
    /// The CPU.
    pub cpu: u32,
    /// When the first record was.
    pub first: Option<Nanos>,
    /// When the last record was.
    pub last: Option<Nanos>,
    /// Since when everything is there.
    pub whole_since: Option<Nanos>,
    /// Samples.
    pub samples: u64,
    /// Records, samples included.
    pub records: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// How often the kernel held an event back.
    pub throttled: u64,
    /// Bytes that were overwritten while the snapshot went on.
    pub missing_bytes: u64,
    /// Bytes that came after the snapshot before this one ended, and were overwritten before this one; `None` where there was none before.
    pub gap_bytes: Option<u64>,
    /// Bytes that are in the snapshot before this one as well.
    pub overlap_bytes: u64,
    /// Records that were there and are left out, because those of another CPU of that time were overwritten; samples included.
    pub left_out: u64,
    /// Samples that are left out, because the kernel gave them the id of another recorder's event.
    pub unknown_ids: u64,
    /// When the CPU was away, in the time that the snapshot is about.
    pub away: Vec<Absence>,
}

/// A snapshot that could not be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotError {
    /// Which one.
    pub number: u64,
    /// Why, and what helps.
    pub why: String,
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot {} was not written: {}", self.number, self.why)
    }
}

impl std::error::Error for SnapshotError {}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) causes: Vec<SnapshotCause>,
    pub(super) marks: Vec<(Nanos, String)>,
    pub(super) copies: Copies,
    /// When CPUs were away.
    pub(super) absences: Vec<Absence>,
    pub(super) task_records: TaskRecords,
    /// Where waits are recorded.
    pub(super) waits: Option<SnapshotWaits>,
    pub(super) descs: Vec<EventDesc>,
    pub(super) early: Vec<FeatureBytes>,
    /// What is older is left out.
    pub(super) cut_ns: u64,
    /// Everything before it was copied; what is younger is left out, because it was copied of some CPUs only.
    pub(super) ended_ns: u64,
    pub(super) opened_ns: u64,
    pub(super) keep: Keeping,
    pub(super) after: Duration,
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) previous: Option<(u64, Nanos)>,
}

#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) cpus: Vec<CpuWindow>,
    pub(super) waits: Option<WrittenWaits>,
    pub(super) corrupt: u64,
    pub(super) clock: Nanos,
    pub(super) since_1970_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenWaits {
    /// When the first one began, and when the last one ended, which may go on.
    times: Option<(Nanos, Nanos)>,
    pub(super) samples: u64,
    /// From when on none was left out; `None` where there is no such time.
    pub(super) whole_since: Option<Nanos>,
    /// How many were not seen as a whole since recording began.
    pub(super) unseen: u64,
}

impl Written {
    pub(super) fn first(&self) -> Option<Nanos> {
        let of_waits = self.waits.and_then(|waits| waits.times);
        self.cpus.iter().filter_map(|window| window.first).chain(of_waits.map(|(first, _)| first)).min()
    }

    pub(super) fn last(&self) -> Option<Nanos> {
        let of_waits = self.waits.and_then(|waits| waits.times);
        self.cpus.iter().filter_map(|window| window.last).chain(of_waits.map(|(_, last)| last)).max()
    }

    /// From when to when everything is there, of all CPUs.
    pub(super) fn covers(&self, ended_ns: u64) -> Option<(Nanos, Nanos)> {
        let of_waits = self.waits.and_then(|waits| waits.whole_since);
        let since = self.cpus.iter().filter_map(|window| window.whole_since).chain(of_waits).max()?;
        Some((since, Nanos(ended_ns.max(since.0))))
    }

    pub(super) fn samples(&self) -> u64 {
        self.cpus.iter().map(|window| window.samples).sum::<u64>() + self.waits.map_or(0, |waits| waits.samples)
    }

    pub(super) fn records(&self) -> u64 {
        self.cpus.iter().map(|window| window.records).sum::<u64>() + self.waits.map_or(0, |waits| waits.samples)
    }
}

type Done = Result<FlightSnapshot, SnapshotError>;

pub(super) struct Writing {
    send: Sender<Done>,
    receive: Receiver<Done>,
    /// A byte for each that is done, so that another thread can wait for it.
    pub(super) done: PipeReader,
    done_writer: PipeWriter,
    pub(super) running: usize,
    /// What is answered with the next ones.
    pub(super) kept_back: Vec<Done>,
}

impl Writing {
    pub(super) fn new() -> Result<Self, Error> {
        let (send, receive) = channel();
        let (done, done_writer) = io::pipe().map_err(Error::Output)?;
        Ok(Self { send, receive, done, done_writer, running: 0, kept_back: Vec::new() })
    }

    pub(super) fn begin(&mut self, job: Job, store: &Store) {
        let number = job.number;
        let (send, store) = (self.send.clone(), store.clone());
        let began = Instant::now();
        let cloned = self.done_writer.try_clone();
        let started = cloned.and_then(|mut done_writer| {
            let work = move || {
                // A limit of files is an error then, not the end of the process. Without it, it is as it was.
                let _signals = Signals::receive(&[FILE_TOO_LARGE]);
                let done = job.run(&store, began);
                let _ = send.send(done.map_err(|why| SnapshotError { number, why }));
                // A receiver that has gone doesn't wait.
                let _ = done_writer.write_all(&[1]);
            };
            std::thread::Builder::new().name("pmux-snapshot".to_owned()).spawn(work)
        });
        match started {
            Ok(_) => self.running += 1,
            Err(error) => {
                let why = format!("no thread could be started for it: {error}");
                self.kept_back.push(Err(SnapshotError { number, why }));
            }
        }
    }

    pub(super) fn take(&mut self) -> Vec<Done> {
        let mut all = std::mem::take(&mut self.kept_back);
        while let Ok(done) = self.receive.try_recv() {
            self.count_off();
            all.push(done);
        }
        all
    }

    pub(super) fn wait(&mut self) -> Vec<Done> {
        let mut all = std::mem::take(&mut self.kept_back);
        while self.running > 0 {
            let Ok(done) = self.receive.recv() else { break };
            self.count_off();
            all.push(done);
        }
        all
    }

    fn count_off(&mut self) {
        // It comes right behind the result.
        let _ = self.done.read_exact(&mut [0]);
        self.running -= 1;
    }
}

/// Records, each with its time.
type Timed<'a> = Box<dyn Iterator<Item = (u64, &'a [u8])> + 'a>;

/// Records in the order of their times.
struct RecordStream<'a> {
    records: Peekable<Timed<'a>>,
    /// Whose window they belong to; `None` for what explains samples.
    cpu: Option<usize>,
}

impl Job {
    /// Writes it, and removes older ones that are too many.
    fn run(self, store: &Store, began: Instant) -> Result<FlightSnapshot, String> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock_ns = pmux_linux::now_ns();
        let since_1970_ns = crate::units::nanos(since_1970);
        // The name says when its cause was.
        let ago_ns = clock_ns.saturating_sub(self.causes.first().map_or(clock_ns, |cause| cause.at.0));
        let draft = store.draft(since_1970_ns.saturating_sub(ago_ns) / 1_000_000);
        let draft = draft.map_err(|error| explained(&error))?;
        let mut written = Written { clock: Nanos(clock_ns), since_1970_ns, ..Written::default() };
        let kept = self.write(&draft, &mut written).and_then(|()| {
            let manifest = manifest(&self, &written, &draft.name());
            draft.keep(&manifest)
        });
        let kept = kept.map_err(|error| explained(&error))?;
        let deleted = store.tidy(&kept.data);
        Ok(FlightSnapshot {
            number: self.number,
            path: kept.data,
            manifest: kept.manifest,
            bytes: kept.bytes,
            samples: written.samples(),
            records: written.records(),
            window: written.first().zip(written.last()),
            covers: written.covers(self.ended_ns),
            lost: self.task_records.lost,
            previous: self.previous,
            took: began.elapsed(),
            deleted,
            cpus: written.cpus,
            causes: self.causes,
        })
    }

    fn write(&self, draft: &Draft, written: &mut Written) -> io::Result<()> {
        let mut writer = FileWriter::create(draft.data.try_clone()?, &self.descs, 0, &self.early)?;
        writer.put(&self.task_records.state)?;
        writer.put(&finished_init())?;
        let times = Times::new(&self.descs);
        let from_ns = self.covered_from(&times);
        let waits = self.waits.as_ref().map(|waits| waits.records(from_ns, self.ended_ns));
        written.waits = self.waits.as_ref().zip(waits.as_ref()).map(|(waits, records)| WrittenWaits {
            times: waits.times(records).map(|(first_ns, last_ns)| (Nanos(first_ns), Nanos(last_ns))),
            samples: records.len() as u64,
            whole_since: (waits.since_ns <= self.ended_ns).then_some(Nanos(from_ns)),
            unseen: waits.unseen,
        });
        let mut streams = self.streams(&times, from_ns, written);
        let of_waits: Timed<'_> = Box::new(waits.iter().flatten().map(|(at_ns, record)| (*at_ns, &**record)));
        streams.push(RecordStream { records: of_waits.peekable(), cpu: None });
        let bytes: u64 = self.copies.bytes()
            + self.task_records.records.len() as u64
            + self.waits.as_ref().map_or(0, SnapshotWaits::bytes);
        let firsts = streams.iter_mut().filter_map(|stream| Some(stream.records.peek()?.0));
        let first_ns = firsts.min().unwrap_or(0);
        // Whatever is younger than that goes into the last round.
        let round_ns = (pmux_linux::now_ns().saturating_sub(first_ns) / (bytes / ROUND_BYTES + 1)).max(1);
        let mut until_ns = first_ns;
        let (mend, mut room) = (Mend::new(&self.descs), Vec::new());
        loop {
            // An empty stretch has no rounds.
            let nexts = streams.iter_mut().filter_map(|stream| Some(stream.records.peek()?.0));
            let Some(next_ns) = nexts.min() else { break };
            until_ns = until_ns.max(next_ns).saturating_add(round_ns);
            for RecordStream { records, cpu } in &mut streams {
                let window = cpu.and_then(|place| written.cpus.get_mut(place));
                let mut none = CpuWindow::default();
                let window = window.unwrap_or(&mut none);
                while let Some((at_ns, record)) = records.next_if(|(at_ns, _)| *at_ns < until_ns) {
                    let Some(record) = mend.known(record, &mut room) else {
                        window.unknown_ids += 1;
                        continue;
                    };
                    window.count(at_ns, record);
                    writer.put(record)?;
                }
            }
            writer.put(&finished_round())?;
        }
        drop(streams);
        for (window, cpu_ring) in written.cpus.iter_mut().zip(&self.copies.cpu_rings) {
            let since_ns = cpu_ring.overwritten_until(|record| times.of(record)).max(cpu_ring.whole_since_ns);
            // What is younger than the end is there of no other CPU.
            let since_ns = since_ns.filter(|since_ns| *since_ns <= self.ended_ns);
            window.whole_since = since_ns.map(|since_ns| Nanos(since_ns.max(self.cut_ns)));
            let is_here = |absence: &&Absence| {
                let from_ns = window.whole_since.map_or(self.cut_ns, |since| since.0);
                absence.cpu == window.cpu
                    && absence.to.is_none_or(|to| to.0 >= from_ns)
                    && absence.from.0 <= self.ended_ns
            };
            window.away = self.absences.iter().filter(is_here).copied().collect();
        }
        writer.finish(&self.late_features(&times, written))
    }

    /// From when on no CPU's records were overwritten: what is older is there of some CPUs only, as what is younger than the end is. Where
    /// there is no such time, that says the window, and what is there stays.
    fn covered_from(&self, times: &Times) -> u64 {
        let of = |cpu_ring: &CpuRingCopy| cpu_ring.overwritten_until(|record| times.of(record));
        // Where none are there of that time, samples are.
        let of_waits = self.waits.as_ref().map(|waits| waits.since_ns).filter(|since_ns| *since_ns <= self.ended_ns);
        let all = self.copies.cpu_rings.iter().filter_map(of).chain(of_waits);
        let from_ns = all.max().filter(|from_ns| *from_ns <= self.ended_ns);
        from_ns.map_or(self.cut_ns, |from_ns| from_ns.max(self.cut_ns))
    }

    /// What is known of a CPU before its records are written: those that were asked for and are older than `from_ns` are left out.
    fn window(&self, cpu_ring: &CpuRingCopy, times: &Times, from_ns: u64) -> CpuWindow {
        let CpuRingCopy { cpu, missing_bytes, gap_bytes, overlap_bytes, .. } = *cpu_ring;
        let mut window = CpuWindow { cpu, missing_bytes, gap_bytes, overlap_bytes, ..CpuWindow::default() };
        for (at_ns, record) in cpu_ring.rings().flat_map(|ring| cpu_ring.timed(ring, times)) {
            if !(self.cut_ns..from_ns).contains(&at_ns) {
                continue;
            }
            window.left_out += 1;
            let bytes = record.len() as u64;
            match (self.previous, &mut window.gap_bytes) {
                (Some((_, ended)), Some(gap_bytes)) if at_ns > ended.0 => *gap_bytes += bytes,
                _ => window.overlap_bytes = window.overlap_bytes.saturating_sub(bytes),
            }
        }
        window
    }

    /// Every ring's records, and what explains them.
    fn streams<'a>(&'a self, times: &'a Times, from_ns: u64, written: &mut Written) -> Vec<RecordStream<'a>> {
        let mut streams = Vec::new();
        for cpu_ring in &self.copies.cpu_rings {
            let cpu = Some(written.cpus.len());
            written.cpus.push(self.window(cpu_ring, times, from_ns));
            written.corrupt += cpu_ring.corrupt;
            for ring in cpu_ring.rings() {
                let asked = from_ns..=self.ended_ns;
                let records: Timed<'a> =
                    Box::new(cpu_ring.timed(ring, times).filter(move |(at_ns, _)| asked.contains(at_ns)));
                streams.push(RecordStream { records: records.peekable(), cpu });
            }
        }
        let task_records = self
            .task_records
            .places
            .iter()
            .filter_map(|(at_ns, place)| Some((*at_ns, self.task_records.records.get(place.clone())?)));
        let task_records: Timed<'a> = Box::new(task_records);
        streams.push(RecordStream { records: task_records.peekable(), cpu: None });
        streams
    }

    fn late_features(&self, times: &Times, written: &Written) -> Vec<FeatureBytes> {
        let mut build_ids = MappedBuildIds::default();
        build_ids.note_all(&self.task_records.state, &times.first);
        build_ids.note_all(&self.task_records.records, &times.tracking);
        let mut features = vec![(Feature::BuildId, build_ids.records())];
        if let (Some(first), Some(last)) = (written.first(), written.last()) {
            features.push(feature::sample_time(first.0, last.0));
        }
        if !self.absences.is_empty() {
            features.push(feature::absences(self.absences.iter().map(Absence::fields)));
        }
        features
    }
}

impl CpuRingCopy {
    fn rings(&self) -> impl Iterator<Item = u64> {
        let mut rings: Vec<u64> = self.pieces.iter().map(|(ring, _)| *ring).collect();
        crate::order::sort(&mut rings);
        rings.dedup();
        rings.into_iter()
    }

    /// A ring's records, each with its time: of those that tell none, that of the one before.
    fn timed<'a>(&'a self, ring: u64, times: &'a Times) -> impl Iterator<Item = (u64, &'a [u8])> {
        let mut last_ns = 0;
        let timed = move |record: &'a [u8]| {
            last_ns = times.of(record).unwrap_or(last_ns);
            (last_ns, record)
        };
        let pieces = self.pieces.iter().filter(move |(of, _)| *of == ring);
        pieces.flat_map(|(_, excerpt)| excerpt.records()).map(timed)
    }
}

impl CpuWindow {
    fn count(&mut self, at_ns: u64, record: &[u8]) {
        let at = Nanos(at_ns);
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
        self.records += 1;
        self.bytes += record.len() as u64;
        match record.first_chunk::<4>().map(|kind| u32::from_ne_bytes(*kind)) {
            Some(SAMPLE) => self.samples += 1,
            Some(THROTTLE) => self.throttled += 1,
            _ => {}
        }
    }
}

pub(super) struct Times {
    first: SampleLayout,
    tracking: SampleLayout,
    by_id: HashMap<u64, SampleLayout>,
}

impl Times {
    pub(super) fn new(descs: &[EventDesc]) -> Self {
        let layout = |desc: Option<&EventDesc>| desc.map(|desc| SampleLayout::new(&desc.attr)).unwrap_or_default();
        let of = |desc: &EventDesc| {
            let layout = SampleLayout::new(&desc.attr);
            desc.ids.iter().map(move |id| (*id, layout)).collect::<Vec<_>>()
        };
        Self {
            first: layout(descs.first()),
            tracking: layout(descs.last()),
            by_id: descs.iter().flat_map(of).collect(),
        }
    }

    /// When a record was.
    pub(super) fn of(&self, record: &[u8]) -> Option<u64> {
        // Of a sample the time is at the same place whatever else there is; of others, the id says where.
        let is_sample = record.first_chunk::<4>().is_some_and(|kind| u32::from_ne_bytes(*kind) == SAMPLE);
        if is_sample {
            return self.first.time(record);
        }
        let layout = self.first.event_id(record).and_then(|id| self.by_id.get(&id));
        layout.unwrap_or(&self.first).time(record)
    }
}

impl Copies {
    fn bytes(&self) -> u64 {
        self.cpu_rings.iter().flat_map(|cpu_ring| &cpu_ring.pieces).map(|(_, excerpt)| excerpt.bytes()).sum()
    }
}

fn explained(error: &io::Error) -> String {
    let help = match error.kind() {
        io::ErrorKind::StorageFull => "; what helps: more room there, another directory, --max-disk or --max-snapshots",
        io::ErrorKind::QuotaExceeded => {
            "; what helps: a larger quota, another directory, --max-disk or --max-snapshots"
        }
        io::ErrorKind::FileTooLarge => "; what helps: a larger limit of files (ulimit -f), or less to keep",
        _ => "",
    };
    format!("{error}{help}")
}
