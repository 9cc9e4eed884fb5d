//! From records to the model.
//!
//! What it is: [`read`] hands the records of a recording, which a `reader` brings into the order of time, to a [`Converter`]. Read first:
//! [`Converter::take`].
//!
//! **Invariant:** a record that is not understood is counted and left out; it never ends the reading.

use super::error::ProfileError;
use super::head::Head;
use super::input::Input;
use super::maps::Maps;
use super::modules::Modules;
use super::names::Names;
use super::parallel::Running;
use super::reader::{Ahead, ReadEnd, ReadPart, ReadStep, Reader, split_any};
use super::rounds::Met;
use super::stacks::{FrameId, StackId, Stacks};
use super::tasks::Tasks;
use super::{Detail, Happening, Losses, Profile, Sample, Sink, Sources};
use pmux_abi::attr::{AttrFlags, Sampling};
use pmux_abi::record::{
    self, CommCause, CpuMode, MapSource, Misc, Mmap, Mmap2, Record, RecordHeader, RecordKind, SampleId, decode_record,
    decode_sample_front,
};
use std::ops::ControlFlow;

mod chain;
mod known;
mod mapping;
mod members;
mod unwind;

/// Reads a recording, and tells `sink` of it.
///
/// What is kept of the whole is the result, also where the sink ended the reading. The sink is called on this thread; the bytes are read
/// on another one, which ends with its next read at the latest.
///
/// # Errors
/// [`ProfileError`]: nothing can be read. What is wrong behind the beginning is in [`Profile::losses`] and [`Profile::notes`].
pub fn read(mut input: Input, sink: &mut dyn Sink) -> Result<Profile, ProfileError> {
    let sources = input.sources.clone();
    let written = input.written();
    let (next, notes) = (std::mem::take(&mut input.next), std::mem::take(&mut input.notes));
    let beside = input.take_beside()?;
    let (mut on_progress, by_branches) = (input.on_progress.take(), input.by_branches);
    let (mut head, records) = input.begin()?;
    head.notes.extend(notes);
    let mut ahead = Ahead::new(Reader::new(records, beside, &head, next));
    let tracing = std::mem::take(&mut head.tracing);
    head.name_tracepoints(&tracing);
    head.tracing = tracing;
    let mut converter = Converter::new(head, (sink.wants(), sink.max_stack()), sources);
    converter.profile.written = written;
    converter.by_branches = by_branches;
    loop {
        match ahead.next()? {
            ReadStep::Part(mut part) => {
                if let Some((on_progress, progress)) = on_progress.as_mut().zip(part.progress) {
                    on_progress(progress);
                }
                converter.take_part(&mut part, sink)?;
                if converter.ended {
                    return Ok(converter.finish(ReadEnd::default()));
                }
                ahead.give_back(part);
            }
            ReadStep::End(_) if converter.profile.events.is_empty() => return Err(ProfileError::NoEvents),
            ReadStep::End(end) => return Ok(converter.finish(end)),
        }
    }
}

/// Takes records in the order of time into the model.
struct Converter {
    pub(super) profile: Profile,
    head: Head,
    kernel: Maps,
    /// Changes with each change of the kernel's mappings.
    kernel_stamp: u32,
    detail: Detail,
    by_branches: bool,
    /// So many frames of a call chain are read.
    max_stack: usize,
    words: Vec<u64>,
    addresses: Vec<(u64, FrameId)>,
    known: known::ChainCache,
    members: members::Members,
    unwinding: unwind::Unwinding,
    /// Where context switches are recorded.
    running: Option<Running>,
    ended: bool,
}

impl Converter {
    fn new(mut head: Head, (detail, max_stack): (Detail, usize), sources: Sources) -> Self {
        let mut names = Names::default();
        let modules = Modules::new(&mut names);
        let profile = Profile {
            about: std::mem::take(&mut head.about),
            events: std::mem::take(&mut head.events),
            names,
            tasks: Tasks::default(),
            modules,
            stacks: Stacks::default(),
            cgroups: std::collections::HashMap::new(),
            losses: Losses::default(),
            notes: std::mem::take(&mut head.notes),
            tracing: std::mem::take(&mut head.tracing),
            dumps: std::collections::HashMap::new(),
            sources,
            written: None,
        };
        Self {
            profile,
            head,
            kernel: Maps::default(),
            kernel_stamp: 0,
            detail,
            by_branches: false,
            max_stack,
            words: Vec::new(),
            addresses: Vec::new(),
            known: known::ChainCache::default(),
            members: members::Members::default(),
            unwinding: unwind::Unwinding::default(),
            running: None,
            ended: false,
        }
    }

    /// Takes a part of what was read.
    ///
    /// # Errors
    /// What describes the recording is not understood.
    fn take_part(&mut self, part: &mut ReadPart, sink: &mut dyn Sink) -> Result<(), ProfileError> {
        if let Some(again) = part.again.take() {
            self.begin_again(*again);
        }
        let mut records = &part.head_records[..];
        while let Ok((header, payload, behind)) = split_any(records) {
            self.with_head(|head| head.take_record(header.kind.0, header.misc.0, payload))?;
            if !self.head.tracing.is_empty() {
                self.profile.tracing = std::mem::take(&mut self.head.tracing);
            }
            records = behind;
        }
        if let Some(tracing) = part.tracing.take() {
            self.with_head(|head| head.name_tracepoints(&tracing));
            self.profile.tracing = tracing;
        }
        if let Some(progress) = part.progress {
            self.profile.tasks.allow(progress.bytes);
        }
        if self.running.is_none() && Running::is_told(&self.profile.events) {
            self.running = Some(Running::default());
        }
        for (record, met) in part.batch.records() {
            self.take(record, met, sink);
        }
        if let Some(progress) = part.progress
            && !self.ended
        {
            self.ended = sink.progress(&self.profile, progress).is_break();
        }
        Ok(())
    }

    /// Another recording of the same machine begins.
    fn begin_again(&mut self, mut other: Head) {
        // Who runs now is told anew: by its samples at the latest.
        self.running = None;
        let known = &mut self.profile.about;
        let away =
            other.about.absences.drain(..).filter(|absence| !known.absences.contains(absence)).collect::<Vec<_>>();
        known.absences.extend(away);
        let known = &mut known.sampled_ns;
        *known = match (*known, other.about.sampled_ns) {
            (Some((first, last)), Some((other_first, other_last))) => {
                Some((first.min(other_first), last.max(other_last)))
            }
            (one, other) => one.or(other),
        };
        self.with_head(|head| head.join(other.events));
        self.profile.notes.append(&mut other.notes);
        self.head.build_ids.join(other.build_ids);
    }

    /// Lends the description to where it is understood.
    fn with_head<R>(&mut self, take: impl FnOnce(&mut Head) -> R) -> R {
        let Self { head, profile, .. } = self;
        let mut lend = |head: &mut Head| {
            std::mem::swap(&mut head.events, &mut profile.events);
            std::mem::swap(&mut head.about, &mut profile.about);
        };
        lend(head);
        let taken = take(head);
        lend(head);
        taken
    }

    fn take(&mut self, bytes: &[u8], met: Met, sink: &mut dyn Sink) {
        if self.ended {
            return;
        }
        let Met { time_ns, event, .. } = met;
        let Some(event) = event.map(|event| event as usize) else {
            self.profile.losses.of_no_event += 1;
            return;
        };
        let Some(layout) = self.profile.events.get(event).map(|event| event.layout) else { return };
        let Ok(mut header) = RecordHeader::decode(bytes) else { return };
        let unmarked;
        let bytes = if header.kind == RecordKind::MMAP2
            && header.misc.contains(Misc::MMAP_BUILD_ID)
            && !mapping::has_build_id(bytes, || {
                self.profile.events.iter().any(|event| event.attr.flags.contains(AttrFlags::BUILD_ID))
            }) {
            // Linux (6.18, at least) leaves the mark in place for events that did not ask for build ids, if another one did.
            header.misc = header.misc.without(Misc::MMAP_BUILD_ID);
            unmarked = [&bytes[..4], &header.misc.0.to_ne_bytes(), &bytes[6..]].concat();
            unmarked.as_slice()
        } else {
            bytes
        };
        if self.detail == Detail::Innermost
            && !self.by_branches
            && header.misc.cpu_mode() != CpuMode::Unknown
            && let Some(front) = decode_sample_front(bytes, &layout).filter(|front| front.ip.is_some())
        {
            self.ended |= self.sample(header, &front, event, time_ns, sink).is_break();
            return;
        }
        let go_on = match decode_record(bytes, &layout) {
            Ok((Record::Sample(sample), _)) => self.sample(header, &sample, event, time_ns, sink),
            Ok((record, id)) => self.other(header, &record, id.as_ref(), event, time_ns, sink),
            Err(_) => {
                self.profile.losses.broken += 1;
                ControlFlow::Continue(())
            }
        };
        self.ended |= go_on.is_break();
    }

    fn sample(
        &mut self,
        header: RecordHeader,
        fields: &record::Sample<'_>,
        event: usize,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> ControlFlow<()> {
        let task = fields.task.unwrap_or(record::TaskId { pid: u32::MAX, tid: u32::MAX });
        let Profile { tasks, names, .. } = &mut self.profile;
        let thread = tasks.find(task.pid.cast_signed(), task.tid.cast_signed(), names);
        let mode = header.misc.cpu_mode();
        let stack = if self.by_branches { StackId::EMPTY } else { self.stack(thread, mode, fields, event) };
        let period =
            fields.period.unwrap_or_else(|| match self.profile.events.get(event).map(|event| event.attr.sampling) {
                Some(Sampling::Period(period)) => period,
                _ => 1,
            });
        let comm = self.profile.tasks.thread(thread).name();
        let profile = &self.profile;
        let parallelism = self.running.as_mut().and_then(|running| running.sampled(profile, event, thread, fields.cpu));
        let cpu = fields.cpu;
        let sample =
            Sample { time_ns, cpu, event, thread, comm, period, stack, addresses: &[], mode, parallelism, fields };
        if self.by_branches {
            return self.branches(&sample, sink);
        }
        let sample = Sample { addresses: &self.addresses, ..sample };
        let Some(read) = &fields.read else { return sink.sample(&self.profile, &sample) };
        let by_id = &self.head.by_id;
        self.members.take(read, (event, fields.event_id().unwrap_or(0)), |id| Some(*by_id.get(&id)? as usize));
        let mut parts = self.members.parts.iter();
        parts.try_for_each(|&(event, period)| sink.sample(&self.profile, &Sample { event, period, ..sample }))
    }

    /// Tells of each branch of a sample as one.
    fn branches(&mut self, sample: &Sample<'_>, sink: &mut dyn Sink) -> ControlFlow<()> {
        let branches = sample.fields.branch_stack.iter().flat_map(|stack| stack.branches.iter());
        for branch in branches.filter(|branch| branch.from != 0 && branch.to != 0) {
            let stack = self.branch(sample.thread, branch.from, branch.to);
            sink.sample(&self.profile, &Sample { stack, period: 1, ..*sample })?;
        }
        ControlFlow::Continue(())
    }

    fn other(
        &mut self,
        header: RecordHeader,
        record: &Record<'_>,
        id: Option<&SampleId>,
        event: usize,
        time_ns: u64,
        sink: &mut dyn Sink,
    ) -> ControlFlow<()> {
        let Profile { tasks, names, losses, cgroups, .. } = &mut self.profile;
        let signed = |number: u32| number.cast_signed();
        let mut thread = None;
        match record {
            Record::Mmap(map) => self.map(header, map, None),
            Record::Mmap2(map) => {
                let build_id = if let MapSource::BuildId(id) = map.source { Some(id) } else { None };
                let Mmap2 { pid, tid, addr, len, pgoff, kind, filename, .. } = *map;
                self.map(header, &Mmap { pid, tid, addr, len, pgoff, kind, filename }, build_id);
            }
            Record::Ksymbol(symbol) => self.kernel_symbol(symbol),
            Record::Comm(comm) => {
                let id = tasks.find(signed(comm.pid), signed(comm.tid), names);
                if comm.cause == CommCause::Exec {
                    tasks.exec(id, time_ns);
                }
                let name = names.intern(comm.comm);
                tasks.rename(id, time_ns, name);
                thread = Some(id);
            }
            Record::Fork(task) => {
                let when = (task.time > 0 && time_ns > 0).then_some(time_ns);
                let (child, parent) = ((signed(task.pid), signed(task.tid)), (signed(task.ppid), signed(task.ptid)));
                thread = Some(tasks.fork(child, parent, when, names));
            }
            Record::Exit(task) => thread = tasks.exit(signed(task.pid), signed(task.tid), time_ns),
            Record::Lost(lost) => losses.lost = losses.lost.saturating_add(lost.lost),
            Record::LostSamples(lost) => losses.lost_samples = losses.lost_samples.saturating_add(lost.lost),
            Record::Cgroup(cgroup) => {
                let path = names.intern(cgroup.path);
                cgroups.insert(cgroup.id, path);
            }
            _ => {}
        }
        let Profile { tasks, names, .. } = &mut self.profile;
        let thread = thread.or_else(|| {
            let task = id?.task?;
            Some(tasks.find(signed(task.pid), signed(task.tid), names))
        });
        let cpu = id.and_then(|id| id.cpu);
        if let (Some(running), Some(thread)) = (&mut self.running, thread) {
            running.happened(&self.profile.tasks, thread, cpu, record);
        }
        sink.happening(&self.profile, &Happening { time_ns, cpu, thread, event, header, record })
    }

    fn finish(mut self, mut end: ReadEnd) -> Profile {
        let losses = &mut self.profile.losses;
        losses.late = end.losses.late;
        losses.cut_off_bytes += end.losses.cut_off_bytes;
        losses.broken += end.losses.broken;
        self.profile.notes.append(&mut end.notes);
        if self.profile.tasks.left_out > 0 {
            self.profile.notes.push(format!(
                "{} lives, names and programs of tasks are left out: a recording of this size can't tell of so many",
                self.profile.tasks.left_out
            ));
        }
        let Profile { names, modules, .. } = &mut self.profile;
        modules.set_build_ids(names, &self.head.build_ids);
        self.profile.notes.append(&mut self.head.notes);
        let unwound = self.unwinding.notes(&self.profile);
        self.profile.notes.extend(unwound);
        self.profile
    }
}
