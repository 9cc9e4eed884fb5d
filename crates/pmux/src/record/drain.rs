//! From the rings to the file.
//!
//! What it is: [`Recorder::drain`] passes on what waits in each ring, looking at no more than the headers on the way, and seals
//! the file behind it. Read first: [`Recorder::drain`].
//!
//! **Invariant:** after a pass, what comes later is no older than what was in the rings when the pass before began: readers sort
//! by that.

use super::Recorder;
use super::attrs::TIME_AT;
use super::existing::{empty_id, is_alive};
use super::mend::Mend;
use super::ours::Taken;
use super::regions;
use crate::error::Error;
use crate::perf_data::pack::Packer;
use crate::perf_data::{Writer, finished_round};
use pmux_abi::record::{LostSamples, Misc, Record, RecordKind, Records, SampleId, SampleLayout, encode_record};
use pmux_linux::ring::Peek;
use std::collections::HashSet;
use std::os::fd::BorrowedFd;

/// What was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Samples.
    pub samples: u64,
    /// Records of all kinds.
    pub records: u64,
    /// Records that found no room in their ring, as far as it is known.
    pub lost: u64,
    /// How often the kernel held an event back.
    pub throttled: u64,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Progress {
    /// When the first and the last sample was taken.
    #[must_use]
    pub fn sampled_ns(&self) -> Option<(u64, u64)> {
        Some((self.first_ns?, self.last_ns))
    }

    pub(super) fn sampled_at(&mut self, time_ns: u64) {
        self.first_ns = Some(self.first_ns.map_or(time_ns, |first| first.min(time_ns)));
        self.last_ns = self.last_ns.max(time_ns);
    }
}

/// Up to when waits were told ([`Recorder::drain_with_waits`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitsUntil {
    /// The time of all samples of waits that go on, ns of the recording's clock; sums of short waits are told as of the ns before.
    pub at_ns: u64,
    /// How many samples tell of both.
    pub samples: u64,
    /// How many waits were not seen as a whole since recording began: they are missing, or have no stack.
    pub unseen: u64,
}

#[derive(Default)]
pub(super) struct Packing {
    pub(super) packer: Packer,
    raw: Vec<u8>,
    packed: Vec<u8>,
}

/// How often rings are emptied before anything else is looked at: a recorder that is slower than its rings fill up must hear of its
/// end, too.
const MOST_PASSES: usize = 4;

/// So much of what was told of tasks is kept as it came, for the next file.
const MUCH_TRACKING_BYTES: usize = 1 << 20;

pub(super) const SAMPLE: u32 = RecordKind::SAMPLE.0;
pub(super) const LOST: u32 = RecordKind::LOST.0;
pub(super) const MMAP2: u32 = RecordKind::MMAP2.0;
const FORK: u32 = RecordKind::FORK.0;
pub(super) const THROTTLE: u32 = RecordKind::THROTTLE.0;

/// Whether a record says something about tasks, or that such a record may be lost.
fn explains(kind: u32) -> bool {
    const KINDS: [RecordKind; 9] = [
        RecordKind::COMM,
        RecordKind::FORK,
        RecordKind::EXIT,
        RecordKind::MMAP2,
        RecordKind::NAMESPACES,
        RecordKind::KSYMBOL,
        RecordKind::BPF_EVENT,
        RecordKind::CGROUP,
        RecordKind::LOST,
    ];
    KINDS.iter().any(|known| known.0 == kind)
}

impl Recorder {
    /// What becomes readable when a ring is a quarter full.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings
            .fds()
            .chain(self.off_cpu.iter().flat_map(|off_cpu| off_cpu.fds()))
            .chain(self.shared_ring().and_then(|(fd, _)| fd))
            .collect()
    }

    /// Writes what waits in the rings, again while they fill up as fast; answers how many bytes that were. What was written can be
    /// read from then on.
    ///
    /// # Errors
    /// [`Error::Output`]: nothing of the last pass is in the file then. A ring that contradicts itself is counted as one loss.
    pub fn drain(&mut self, writer: &mut Writer) -> Result<u64, Error> {
        self.drain_until(writer, u64::MAX)
    }

    /// As [`Recorder::drain`], but no further record of a ring once so many bytes are in the file: the others stay where they are.
    ///
    /// # Errors
    /// As [`Recorder::drain`].
    pub fn drain_until(&mut self, writer: &mut Writer, enough_bytes: u64) -> Result<u64, Error> {
        let much = self.ring_bytes().0 / 8;
        let mut all = 0;
        for _ in 0..MOST_PASSES {
            let bytes = self.pass(writer, enough_bytes)?;
            all += bytes;
            if bytes < much || writer.data_bytes() >= enough_bytes {
                break;
            }
        }
        Ok(all)
    }

    /// As [`Recorder::drain`], and tells also of waits that go on, as if each ended at this moment, and what short waits came to since the
    /// last call. A wait is told again by the next call, and as a whole when it has ended: who adds up takes of each what is behind the
    /// moment before. `None` where waits are not recorded ([`super::RecordOptions::off_cpu`]), or not now. It takes some ms.
    ///
    /// # Errors
    /// As [`Recorder::drain`]; [`Error::Ring`].
    pub fn drain_with_waits(&mut self, writer: &mut Writer) -> Result<Option<WaitsUntil>, Error> {
        let now = self.off_cpu.as_mut().map(|off_cpu| off_cpu.waits_now()).transpose()?.flatten();
        let unseen = self.off_cpu.as_ref().map_or(0, |off_cpu| off_cpu.unseen());
        let until = now.as_ref().map(|(at_ns, taken)| WaitsUntil { at_ns: *at_ns, samples: taken.samples, unseen });
        // What has ended before that moment, or while it was looked, is in the rings: they are drained behind it.
        now.iter().try_for_each(|(_, taken)| self.put_ours(writer, taken))?;
        self.drain(writer)?;
        Ok(until)
    }

    /// Tells who reads the stream while it is written ([`crate::profile::Input::live`]) that nothing older comes any more: what was
    /// drained is told at once, and not when there is more.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn end_round(&mut self, writer: &mut Writer) -> Result<(), Error> {
        // A reader waits for the second mark behind a record.
        let put = (0..2).try_for_each(|_| writer.put(&finished_round()));
        put.and_then(|()| writer.seal()).map_err(Error::Output)
    }

    /// Writes what waits in the rings now, or as much as is enough.
    fn pass(&mut self, writer: &mut Writer, enough_bytes: u64) -> Result<u64, Error> {
        let before = writer.data_bytes();
        if self.shared.is_some() {
            let bytes = self.take_shared(writer)?;
            if self.off_cpu.is_none() {
                return Ok(bytes);
            }
        }
        self.write_numbers(writer)?;
        self.put_existing_again(writer)?;
        let layout = self.descs.last().map(|desc| SampleLayout::new(&desc.attr));
        let (progress, build_ids, past) = (&mut self.progress, &mut self.build_ids, &mut self.past);
        let mend = Mend::new(&self.descs);
        let mut record = Vec::new();
        for ring in self.rings.each() {
            let mut is_wrong = false;
            // Of what is compressed it is not known how long it becomes.
            let left_bytes = match (&self.packing, enough_bytes.saturating_sub(writer.data_bytes())) {
                (Some(_), 1..) => u64::MAX,
                (_, left_bytes) => left_bytes,
            };
            let mut time_ns = None;
            let batch = ring.batch_of(left_bytes, |peek| {
                progress.records += 1;
                match peek.kind() {
                    SAMPLE => {
                        progress.samples += 1;
                        let at = peek.word(TIME_AT);
                        if time_ns.replace(at).is_none() {
                            progress.sampled_at(at);
                        }
                    }
                    MMAP2 => layout.iter().for_each(|layout| build_ids.note(peek, layout)),
                    LOST => progress.lost += peek.word(16),
                    THROTTLE => progress.throttled += 1,
                    _ => {}
                }
                is_wrong |= mend.is_wanted(peek, &mut record);
                if let (Some(past), true) = (past.as_mut(), explains(peek.kind())) {
                    peek.copy_to(&mut record);
                    past.take(&record);
                }
            });
            // The samples of a ring are in their order, all but those that interrupted another one.
            time_ns.into_iter().for_each(|at| progress.sampled_at(at));
            let Ok(mut batch) = batch else {
                progress.lost += 1;
                continue;
            };
            if batch.left_bytes() == 0 {
                continue;
            }
            let mut copy_to = |into: &mut Vec<u8>| {
                into.clear();
                batch.copy_to(into, usize::MAX);
                if is_wrong {
                    mend.put(&std::mem::take(into), into);
                }
            };
            match &mut self.packing {
                None if is_wrong => {
                    copy_to(&mut record);
                    writer.put(&record)
                }
                None => writer.put_batch(&mut batch),
                Some(Packing { packer, raw, packed }) => {
                    copy_to(raw);
                    packed.clear();
                    // Its space is free again while we compress.
                    drop(batch);
                    packer.pack(raw, packed);
                    writer.put(packed)
                }
            }
            .map_err(Error::Output)?;
        }
        if let Some(off_cpu) = &mut self.off_cpu {
            // What a record becomes is not known before, but seldom more.
            let taken = off_cpu.take(enough_bytes.saturating_sub(writer.data_bytes()));
            self.put_ours(writer, &taken)?;
        }
        for _ in 0..regions::ROUNDS {
            let Some(regions) = self.regions.as_mut().filter(|_| writer.data_bytes() < enough_bytes) else { break };
            let (more, taken) = regions.take(false);
            self.put_ours(writer, &taken)?;
            if !more {
                break;
            }
        }
        if let Some(past) = self.past.as_mut().filter(|past| past.records.len() > MUCH_TRACKING_BYTES) {
            past.forget(u64::MAX, pmux_linux::now_ns(), is_alive);
        }
        if writer.data_bytes() > before {
            // A reader expects nothing older behind it.
            let is_whole = !self.regions.as_ref().is_some_and(|regions| regions.is_held_up);
            let round = if is_whole { writer.put(&finished_round()) } else { Ok(()) };
            round.and_then(|()| writer.seal()).map_err(Error::Output)?;
        }
        Ok(writer.data_bytes() - before)
    }

    /// Writes samples of waits or of regions.
    fn put_ours(&mut self, writer: &mut Writer, taken: &Taken) -> Result<(), Error> {
        self.progress.samples += taken.samples;
        self.progress.records += taken.samples;
        taken.last_ns.into_iter().for_each(|at_ns| self.progress.sampled_at(at_ns));
        if taken.records.is_empty() { Ok(()) } else { self.put(writer, &taken.records) }
    }

    /// Writes the ids that came after the file was begun.
    pub(super) fn write_numbers(&mut self, writer: &mut Writer) -> Result<(), Error> {
        for (event, id) in self.fresh.drain(..) {
            if let Some(desc) = self.descs.get_mut(event) {
                // The next file has it from the start.
                desc.ids.push(id);
            }
            writer.add_id(event, id).map_err(Error::Output)?;
        }
        Ok(())
    }

    pub(super) fn put(&mut self, writer: &mut Writer, records: &[u8]) -> Result<(), Error> {
        match &mut self.packing {
            None => writer.put(records),
            Some(Packing { packer, packed, .. }) => {
                packed.clear();
                packer.pack(records, packed);
                writer.put(packed)
            }
        }
        .map_err(Error::Output)
    }

    /// Keeps what waits in the rings, and notes who was born, while there is no file yet.
    pub(super) fn take_early(&mut self, born: &mut HashSet<i32>) {
        let progress = &mut self.progress;
        for ring in self.rings.each() {
            let note = |peek: &Peek<'_>| {
                progress.records += 1;
                match peek.kind() {
                    // The second half of the word is the parent's thread.
                    FORK => drop(born.insert((peek.word(16) as u32).cast_signed())),
                    LOST => progress.lost += peek.word(16),
                    _ => {}
                }
            };
            if let Ok(mut batch) = ring.batch(note) {
                batch.copy_to(&mut self.early, usize::MAX);
            }
        }
    }

    /// Hands over what waited in the rings while events were opened.
    pub(crate) fn take_what_came_early(&mut self, mut sink: impl FnMut(&[u8])) {
        let early = std::mem::take(&mut self.early);
        Records::new(&early).flatten().for_each(&mut sink);
    }

    /// Writes what is left in the rings and what is known only now, so that another file can be begun. Nothing is missed meanwhile:
    /// it stays in the rings.
    ///
    /// # Errors
    /// As [`Recorder::drain`].
    pub fn close_file(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.off_cpu.iter_mut().for_each(|off_cpu| off_cpu.settle());
        self.drain(writer)?;
        self.put_sums_of_waits(writer)?;
        // The next file has no names yet.
        self.regions.iter_mut().for_each(|regions| regions.named.clear());
        writer.finish(&self.late_features()).map_err(Error::Output)?;
        self.progress.first_ns = None;
        Ok(())
    }

    /// As [`Recorder::close_file`], for the last one: writes also what was lost. Right when nothing samples any more, after
    /// [`Recorder::disable`].
    ///
    /// # Errors
    /// As [`Recorder::drain`].
    pub fn finish(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.finish_until(writer, u64::MAX)
    }

    /// As [`Recorder::finish`], but what still waits in the rings is written only until so many bytes are in the file. If they are, what
    /// was lost behind its end is of no concern.
    ///
    /// # Errors
    /// As [`Recorder::drain`].
    pub fn finish_until(&mut self, writer: &mut Writer, enough_bytes: u64) -> Result<(), Error> {
        let ended = self.end_shared();
        self.drain_until(writer, enough_bytes)?;
        if writer.data_bytes() < enough_bytes {
            let losses = self.count_lost();
            self.put(writer, &losses)?;
            self.put_sums_of_waits(writer)?;
            if let Some(regions) = &mut self.regions {
                // What stood behind marks that were being written.
                let (_, taken) = regions.take(true);
                self.put_ours(writer, &taken)?;
            }
        } else if self.off_cpu.is_some() || self.regions.is_some() {
            let text =
                "waits that were only added up, and the last regions, are not in the file: it is as large as it may be";
            self.notes.push(text.to_owned());
        }
        let notes = self.off_cpu.as_ref().map(|off_cpu| off_cpu.losses().into_iter().chain(off_cpu.misses()));
        self.notes.extend(notes.into_iter().flatten());
        let notes = self.regions.as_ref().map(regions::MarkedRegions::notes);
        self.notes.extend(notes.into_iter().flatten());
        writer.finish(&self.late_features()).map_err(Error::Output)?;
        ended
    }

    /// Writes what is known of waits that have no samples of their own.
    fn put_sums_of_waits(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let Some(off_cpu) = &mut self.off_cpu else { return Ok(()) };
        let taken = off_cpu.take_sums();
        self.put_ours(writer, &taken)
    }

    /// Asks the events what they have lost: the kernel tells of it in a ring only in front of the next record. Answers that as
    /// records.
    fn count_lost(&mut self) -> Vec<u8> {
        let engine = self.session.engine();
        let (mut out, mut total, mut known) = (Vec::new(), 0, false);
        for (&event, &(which, id)) in &self.known {
            let Some(desc) = self.descs.get(which) else { continue };
            let lost = engine
                .lease(event)
                .ok()
                .and_then(|lease| engine.host().lost_records(lease, desc.attr.read_format).ok().flatten());
            let Some(lost) = lost else { continue };
            known = true;
            total += lost;
            let layout = SampleLayout::new(&desc.attr);
            let id = SampleId { identifier: Some(id), ..empty_id(&layout) };
            let (told, mut record) = (Record::LostSamples(LostSamples { lost }), [0; 128]);
            if lost > 0
                && let Ok(bytes) = encode_record(&told, Some(&id), Misc::default(), &layout, &mut record)
            {
                out.extend(&record[..bytes]);
            }
        }
        if known {
            self.progress.lost = self.progress.lost.max(total);
        }
        out
    }
}
