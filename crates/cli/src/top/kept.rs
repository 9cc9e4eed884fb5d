//! The last seconds of the stream, kept so that they can be saved as a recording.
//!
//! What it is: what the reader gets passes by here ([`Passing`]). What explains samples is kept from the beginning on, samples for
//! [`SPAN`], round by round. Read first: [`Kept::take`].
//!
//! **Invariant:** memory is bounded ([`MOST_SAMPLE_BYTES`], [`MOST_TOLD_BYTES`]); what is saved is a whole stream, as `pmux record -o -` writes it.

use super::feed::lock;
use pmux::perf_data::kind::{FINISHED_ROUND, HEADER_TRACING_DATA};
use pmux::profile::records::{RecordKind, Records};
use pmux::record::{WaitCut, WaitSamples, WaitsUntil};
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// For so long samples are kept,
pub(super) const SPAN: Duration = Duration::from_secs(30);
/// unless they are so many bytes.
const MOST_SAMPLE_BYTES: usize = 64 << 20;
/// With so much that explains samples, and came behind the first one, the stream is to begin anew.
const MOST_TOLD_BYTES: usize = 64 << 20;
/// Bytes in front of the records of a stream, and of the head of a record.
const STREAM_HEADER: usize = 16;
const HEADER: usize = 8;
/// What stands in records for itself only: of what was lost in front of what is kept nothing is said.
const MOMENTARY: [RecordKind; 6] = [
    RecordKind::LOST,
    RecordKind::LOST_SAMPLES,
    RecordKind::THROTTLE,
    RecordKind::UNTHROTTLE,
    RecordKind::SWITCH,
    RecordKind::SWITCH_CPU_WIDE,
];

/// What came between two marks of the recorder.
struct Round {
    /// When the last of it came.
    at: Instant,
    bytes: Vec<u8>,
}

/// Whether anything is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Keeping {
    #[default]
    Seconds,
    /// No key can ask for it.
    Nothing,
}

#[derive(Default)]
pub(super) struct Kept {
    keeping: Keeping,
    /// Bytes that are no whole record yet.
    partial: Vec<u8>,
    /// How many bytes that come next belong to the record before.
    trailing: usize,
    has_begun: bool,
    /// What explains samples.
    told: Vec<u8>,
    /// How much that was before the first sample: the next stream begins with as much.
    told_first: Option<usize>,
    rounds: VecDeque<Round>,
    sample_bytes: usize,
    /// When waits were told that went on, ns of the recording's clock, and which samples these are.
    moments: VecDeque<(Instant, WaitsUntil)>,
    wait_samples: WaitSamples,
    /// Whether what there is stays, and samples that come are not kept; and how many bytes have come since that explain some.
    is_held: bool,
    held_bytes: usize,
}

impl Kept {
    pub(super) fn new(keeping: Keeping) -> Self {
        Self { keeping, ..Self::default() }
    }

    /// Another stream begins.
    pub(super) fn begin(&mut self) {
        *self = Self { is_held: self.is_held, ..Self::new(self.keeping) };
    }

    /// What there is stays, or no more.
    pub(super) fn hold(&mut self, is_held: bool) {
        if self.is_held && !is_held {
            // Between what stayed and what comes now is nothing.
            while let Some(round) = self.rounds.pop_front() {
                self.leave_behind(&round.bytes);
            }
            self.moments.clear();
        }
        if self.is_held != is_held {
            (self.is_held, self.held_bytes) = (is_held, 0);
        }
    }

    /// Whether so much is told of tasks that the stream should begin anew.
    pub(super) fn is_full(&self) -> bool {
        self.told_first.is_some_and(|first| self.told.len() + self.held_bytes > first + MOST_TOLD_BYTES)
    }

    pub(super) fn take(&mut self, bytes: &[u8], now: Instant) {
        if self.keeping == Keeping::Nothing {
            return;
        }
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let mut rest = &partial[..];
        while let Some((record, behind)) = self.first_of(rest) {
            self.put(record, now);
            rest = behind;
        }
        self.partial = rest.to_vec();
        self.drop_old(now);
    }

    /// Of waits that went on it was told at this moment, in these samples: what is saved ends there, and what was told at others is not in
    /// it.
    pub(super) fn waits_until(&mut self, until: WaitsUntil, wait_samples: WaitSamples, now: Instant) {
        if !self.is_held {
            self.moments.push_back((now, until));
            // CPUs that have come have ids of their own.
            self.wait_samples = wait_samples;
        }
    }

    /// The first record, and what is behind it.
    fn first_of<'b>(&self, bytes: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
        match (self.has_begun, self.trailing) {
            (false, _) => bytes.split_at_checked(STREAM_HEADER),
            (true, 0) => {
                let size = u16::from_ne_bytes(*bytes.get(6..)?.first_chunk()?);
                bytes.split_at_checked(usize::from(size).max(HEADER))
            }
            (true, trailing) => bytes.split_at_checked(trailing.min(bytes.len()).max(1)),
        }
    }

    fn put(&mut self, record: &[u8], now: Instant) {
        if !self.has_begun || self.trailing > 0 {
            self.has_begun = true;
            self.trailing = self.trailing.saturating_sub(record.len());
            self.told.extend_from_slice(record);
            return;
        }
        let kind = kind(record);
        if kind == HEADER_TRACING_DATA {
            // How many bytes stand behind it.
            let size =
                record.get(HEADER..).and_then(|bytes| bytes.first_chunk()).map_or(0, |size| u32::from_ne_bytes(*size));
            self.trailing = (size as usize).next_multiple_of(8);
        }
        if is_momentary(kind) {
            self.told_first.get_or_insert(self.told.len());
        }
        // What is told before the first sample holds for all.
        if self.rounds.is_empty() && !is_momentary(kind) {
            self.told.extend_from_slice(record);
        } else if !(self.is_held && (is_momentary(kind) || kind == FINISHED_ROUND)) {
            if self.rounds.is_empty() {
                self.rounds.push_back(Round { at: now, bytes: Vec::new() });
            }
            let Some(round) = self.rounds.back_mut() else { return };
            if self.is_held {
                self.held_bytes += record.len();
            } else {
                round.at = now;
            }
            round.bytes.extend_from_slice(record);
            self.sample_bytes += record.len();
            if kind == FINISHED_ROUND {
                self.rounds.push_back(Round { at: now, bytes: Vec::new() });
            }
        }
    }

    /// Of rounds that are too old what explains samples is kept.
    fn drop_old(&mut self, now: Instant) {
        let is_old = |round: &Round| now.saturating_duration_since(round.at) > SPAN;
        while self.rounds.len() > 1
            && !self.is_held
            && (self.sample_bytes > MOST_SAMPLE_BYTES || self.rounds.front().is_some_and(is_old))
        {
            let Some(Round { bytes, at }) = self.rounds.pop_front() else { return };
            // The reader may be behind the one who tells of moments.
            while self.moments.len() > 1 && self.moments.front().is_some_and(|&(then, _)| then + SPAN < at) {
                self.moments.pop_front();
            }
            self.leave_behind(&bytes);
        }
    }

    fn leave_behind(&mut self, round: &[u8]) {
        self.sample_bytes -= round.len();
        for record in Records::new(round).flatten() {
            let kind = kind(record);
            if !is_momentary(kind) && kind != FINISHED_ROUND {
                self.told.extend_from_slice(record);
            }
        }
    }

    /// What there is, as a recording; `None` if there is no sample.
    pub(super) fn recording(&self) -> Option<Recording> {
        let (first, last) = (self.rounds.front()?, self.rounds.back()?);
        let all: Vec<&[u8]> = self.rounds.iter().flat_map(|round| Records::new(&round.bytes).flatten()).collect();
        let (mut bytes, mut samples) = (self.told.clone(), 0);
        let mut put = |record: &[u8]| {
            bytes.extend_from_slice(record);
            samples += u64::from(is_sample(record));
        };
        match cut(&all, &self.moments, &self.wait_samples) {
            Some(cut) => cut.records(&all, |record| put(&record)),
            None => all.iter().for_each(|record| put(record)),
        }
        Some(Recording { bytes, samples, span: last.at.saturating_duration_since(first.at) })
    }
}

/// The time that is saved, where there are waits: up to the last moment of which all has come; `None` where there is none.
fn cut<'s>(
    all: &[&[u8]],
    moments: &VecDeque<(Instant, WaitsUntil)>,
    wait_samples: &'s WaitSamples,
) -> Option<WaitCut<'s>> {
    let mut come: HashMap<u64, u64> = HashMap::new();
    for wait in all.iter().filter_map(|record| wait_samples.read(record)) {
        *come.entry(wait.time_ns + u64::from(wait.is_sum)).or_default() += 1;
    }
    let is_whole = |until: &WaitsUntil| come.get(&until.at_ns).copied().unwrap_or(0) >= until.samples;
    let end_ns = moments.iter().rev().find(|(_, until)| is_whole(until))?.1.at_ns;
    let times = all.iter().filter(|record| is_sample(record)).filter_map(|record| wait_samples.time_ns(record));
    let begin_ns = times.min().unwrap_or(0);
    let looks_ns = moments.iter().map(|(_, until)| until.at_ns);
    Some(WaitCut::new(wait_samples, (begin_ns, end_ns), Some(end_ns), looks_ns))
}

fn is_sample(record: &[u8]) -> bool {
    kind(record) == RecordKind::SAMPLE.0
}

/// The last seconds, as a recording.
pub(super) struct Recording {
    bytes: Vec<u8>,
    pub(super) samples: u64,
    /// From when to when, about.
    pub(super) span: Duration,
}

impl Recording {
    /// Writes it into a new file of a folder, and answers which.
    pub(super) fn save(&self, folder: &Path, now: SystemTime) -> io::Result<PathBuf> {
        let (path, mut file) = create(folder, now)?;
        if let Err(error) = file.write_all(&self.bytes) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(path)
    }
}

fn kind(record: &[u8]) -> u32 {
    record.first_chunk().map_or(0, |kind| u32::from_ne_bytes(*kind))
}

/// Whether a record says nothing of others.
fn is_momentary(kind: u32) -> bool {
    kind == RecordKind::SAMPLE.0 || MOMENTARY.iter().any(|known| known.0 == kind)
}

/// A new file whose name says when, in UTC; only its owner reads it.
fn create(folder: &Path, now: SystemTime) -> io::Result<(PathBuf, File)> {
    let hundredths = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() / 10;
    let mut number = hundredths;
    loop {
        let path = folder.join(format!("perf.data.{}", crate::record::timestamp(number)));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (path, file)),
        }
    }
}

/// What reads a stream, and lets it be kept.
pub(super) struct Passing<R> {
    pub(super) from: R,
    pub(super) kept: Arc<Mutex<Kept>>,
}

impl<R: Read> Read for Passing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.from.read(buffer)?;
        lock(&self.kept).take(&buffer[..bytes], Instant::now());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    const COMM: u32 = RecordKind::COMM.0;
    const SAMPLE: u32 = RecordKind::SAMPLE.0;

    fn record(kind: u32, payload: &[u8]) -> Vec<u8> {
        let size = (HEADER + payload.len()) as u16;
        [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes(), payload].concat()
    }

    fn saved(kept: &Kept, folder: &Path) -> (Vec<u8>, Duration) {
        let recording = kept.recording().unwrap();
        let path = recording.save(folder, SystemTime::UNIX_EPOCH).unwrap();
        (std::fs::read(path).unwrap(), recording.span)
    }

    #[test]
    fn what_explains_samples_stays_and_old_samples_go() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let head = [&[7; STREAM_HEADER][..], &record(HEADER_TRACING_DATA, &3_u32.to_ne_bytes()), &[9; 8]].concat();
        let round = record(FINISHED_ROUND, &[]);
        let of = |name: u8| [record(SAMPLE, &[name; 16]), record(COMM, &[name; 8]), round.clone()].concat();
        let mut kept = Kept::default();
        assert!(kept.recording().is_none());
        // In pieces, as a pipe may have them.
        for piece in [head.clone(), record(COMM, &[1; 8]), of(2)].concat().chunks(5) {
            kept.take(piece, begun);
        }
        kept.take(&of(3), begun + SPAN / 2);
        kept.take(&of(4), begun + SPAN);
        let all = [head.clone(), record(COMM, &[1; 8]), of(2), of(3), of(4)].concat();
        assert_eq!(saved(&kept, folder.path()), (all, SPAN));
        kept.take(&record(RecordKind::LOST.0, &[0; 16]), begun + SPAN + SPAN / 4);
        let (bytes, long) = saved(&kept, folder.path());
        let names = [record(COMM, &[1; 8]), record(COMM, &[2; 8])].concat();
        assert_eq!(bytes, [head, names, of(3), of(4), record(RecordKind::LOST.0, &[0; 16])].concat());
        assert!(long < SPAN);
        // None was overwritten, and others can't read them.
        let files = std::fs::read_dir(folder.path()).unwrap();
        let modes: Vec<u32> = files.map(|file| file.unwrap().metadata().unwrap().mode() & 0o777).collect();
        assert_eq!(modes, [0o600; 2]);
        kept.begin();
        assert!(kept.recording().is_none());
    }

    #[test]
    fn what_is_held_stays() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let mut kept = Kept::default();
        let first = [&[7; STREAM_HEADER][..], &record(SAMPLE, &[1; 8])].concat();
        kept.take(&first, begun);
        kept.hold(true);
        kept.take(&[record(SAMPLE, &[2; 8]), record(COMM, &[2; 8])].concat(), begun + 2 * SPAN);
        assert_eq!(saved(&kept, folder.path()), ([&first[..], &record(COMM, &[2; 8])].concat(), Duration::ZERO));
        // When it goes on, what comes has nothing before it.
        kept.hold(false);
        let head = [&[7; STREAM_HEADER][..], &record(COMM, &[2; 8])].concat();
        assert!(kept.recording().is_none());
        kept.take(&record(SAMPLE, &[3; 8]), begun + 2 * SPAN);
        assert_eq!(saved(&kept, folder.path()), ([head, record(SAMPLE, &[3; 8])].concat(), Duration::ZERO));
    }

    #[test]
    fn what_is_told_of_tasks_has_an_end() {
        let names = |kept: &mut Kept, bytes: usize| {
            let one = record(COMM, &[1; 60_000]);
            (0..bytes / one.len()).for_each(|_| kept.take(&one, Instant::now()));
        };
        let mut kept = Kept::default();
        kept.take(&[7; STREAM_HEADER], Instant::now());
        names(&mut kept, 2 * MOST_TOLD_BYTES);
        assert!(!kept.is_full(), "the next stream begins with as much");
        // Also where samples are not kept.
        kept.hold(true);
        kept.take(&record(SAMPLE, &[1; 8]), Instant::now());
        names(&mut kept, MOST_TOLD_BYTES / 2);
        assert!(!kept.is_full());
        names(&mut kept, MOST_TOLD_BYTES);
        assert!(kept.is_full());
        let mut nothing = Kept::new(Keeping::Nothing);
        nothing.take(&[7; STREAM_HEADER], Instant::now());
        assert!(nothing.told.is_empty());
    }

    /// The record of a sample of the event with this id: (thread, time, period), with one function.
    fn sample(id: u64, (tid, time_ns, period_ns): (u64, u64, u64)) -> Vec<u8> {
        let words = [id, 0, tid << 32 | 7, time_ns, 0, 3, period_ns, 1, 0xabc];
        record(SAMPLE, &words.map(u64::to_ne_bytes).concat())
    }

    #[test]
    fn waits_are_saved_with_their_parts_of_the_time() {
        use pmux::abi::{Attr, SampleFormat};
        use pmux::perf_data::EventDesc;
        const CLOCK: u64 = 1;
        const WAITED: u64 = 2;
        const FOR_CPU: u64 = 3;
        const WOKE: u64 = 4;
        let format = [SampleFormat::IDENTIFIER, SampleFormat::IP, SampleFormat::TID, SampleFormat::TIME];
        let format = format.into_iter().chain([
            SampleFormat::ADDR,
            SampleFormat::CPU,
            SampleFormat::PERIOD,
            SampleFormat::CALLCHAIN,
        ]);
        let attr = Attr { sample: format.collect(), ..Attr::default() };
        let desc = |(id, name): (u64, &str)| EventDesc { attr, name: name.to_owned(), ids: vec![id] };
        let names = [(CLOCK, "cpu-clock"), (WAITED, "offcpu-time"), (FOR_CPU, "runqueue-time"), (WOKE, "waker-time")];
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let mut kept = Kept::default();
        let wait_samples = WaitSamples::of(&names.map(desc));
        let told = [
            sample(CLOCK, (1, 100, 1)),
            // Begun before the first sample, and ended by another thread; and then it had to wait for a CPU.
            sample(WOKE, (9, 150, 80)),
            sample(WAITED, (1, 160, 80)),
            sample(FOR_CPU, (1, 160, 10)),
            // At a moment, and at the next one.
            sample(WAITED, (2, 200, 20)),
            sample(WAITED, (2, 300, 120)),
            sample(CLOCK, (1, 250, 1)),
            // It was over before it was looked at; the other one was seen to wait, and ended then.
            sample(WAITED, (3, 302, 50)),
            sample(WAITED, (2, 305, 125)),
            sample(CLOCK, (1, 306, 1)),
        ];
        kept.take(&[vec![7; STREAM_HEADER], told.concat()].concat(), begun);
        let until = |at_ns, samples| WaitsUntil { at_ns, samples, unseen: 0 };
        // Of the last one not all has come.
        for (at_ns, samples) in [(200, 1), (300, 1), (305, 2)] {
            kept.waits_until(until(at_ns, samples), wait_samples.clone(), begun);
        }
        let expected = [
            sample(CLOCK, (1, 100, 1)),
            sample(WOKE, (9, 150, 50)),
            sample(WAITED, (1, 160, 50)),
            sample(FOR_CPU, (1, 160, 10)),
            sample(WAITED, (2, 300, 120)),
            sample(CLOCK, (1, 250, 1)),
            sample(WAITED, (3, 300, 48)),
        ];
        assert_eq!(saved(&kept, folder.path()).0, [vec![7; STREAM_HEADER], expected.concat()].concat());
    }
}
