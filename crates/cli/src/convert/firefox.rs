//! The processed format of the Firefox Profiler, by `fxprof-processed-profile`.
//!
//! What it is: the samples of one event are the samples of its threads; those of the others, and what happened, are markers; that a
//! thread had a CPU is a marker with a beginning and an end. Read first: [`write`].
//!
//! **Invariant:** times are those of the recording, from its first sample on.

use crate::picture::Drawn;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags,
    MarkerFieldFormat, MarkerLocations, MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval,
    StackHandle, StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp, WeightType,
};
use pmux::profile::{CodeKind, ModuleId, NotedKind, SourceLineId, StackId, ThreadId, Whole, interval_ns, spans};
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

/// A profile has room for so many programs; what comes later has none of its own.
const MOST_MODULES: usize = 1 << 15;

/// Something that happened to a thread.
struct Note {
    name: StringHandle,
    text: StringHandle,
}

impl StaticSchemaMarker for Note {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Note";
    const LOCATIONS: MarkerLocations = MarkerLocations::MARKER_CHART.union(MarkerLocations::MARKER_TABLE);
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "text",
        label: "What",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.text
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        0.0
    }
}

struct Maker<'a> {
    drawn: &'a Drawn<Whole>,
    made: Profile,
    kinds: HashMap<CodeKind, CategoryHandle>,
    modules: HashMap<ModuleId, CategoryPairHandle>,
    processes: HashMap<pmux::profile::ProcessId, ProcessHandle>,
    threads: HashMap<ThreadId, ThreadHandle>,
    frames: HashMap<SourceLineId, FrameInfo>,
    stacks: HashMap<(ThreadId, StackId), Option<StackHandle>>,
    begin_ns: u64,
}

pub(crate) fn write(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(out, &make(drawn)).map_err(io::Error::from)
}

/// The recording as the profiler has it.
pub(crate) fn make(drawn: &Drawn<Whole>) -> Profile {
    let event = drawn.one_event();
    let (name, clock) = (&drawn.profile.events[event].name, drawn.profile.about.clock_moment_ns);
    let begin_ns = drawn.kept.span_ns().map_or(drawn.first_ns, |(first, _)| first);
    let since_1970 = clock.map_or(0, |(since_1970, clock)| begin_ns.wrapping_sub(clock).wrapping_add(since_1970));
    let reference = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(since_1970));
    let own = drawn.kept.samples.iter().filter(|sample| sample.event as usize == event);
    let interval = interval_ns(own.clone());
    let host = drawn.profile.about.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
    let product = format!("pmux: {name}{host}, {}", drawn.name);
    let made = Profile::new(&product, reference, SamplingInterval::from_nanos(interval));
    let (kinds, modules, processes, threads, frames, stacks) = Default::default();
    let mut maker = Maker { drawn, made, kinds, modules, processes, threads, frames, stacks, begin_ns };
    maker.made.set_symbolicated(true);
    if let Some(kernel) = &drawn.profile.about.kernel {
        maker.made.set_os_name(&format!("Linux {kernel}"));
    }
    let mut last: HashMap<ThreadId, u64> = HashMap::new();
    for sample in own {
        let (thread, stack) = (maker.thread(sample.thread), maker.stack(sample.thread, sample.stack));
        // A sample is taken while its thread runs: so it ran since the last one, or for as long as samples are apart.
        let before = last.insert(sample.thread, sample.time_ns);
        let apart = before.map_or(interval, |before| sample.time_ns.saturating_sub(before)).min(interval * 2);
        let ran = if drawn.profile.events[event].attr.is_clock() { sample.period } else { apart };
        let time = maker.time(sample.time_ns);
        maker.made.add_sample(thread, time, stack, CpuDelta::from_nanos(ran), 1);
    }
    maker.add_markers(event);
    for &thread in maker.threads.values() {
        maker.made.set_thread_samples_weight_type(thread, WeightType::Samples);
    }
    maker.made
}

impl Maker<'_> {
    fn time(&self, time_ns: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(time_ns.saturating_sub(self.begin_ns))
    }

    fn thread(&mut self, id: ThreadId) -> ThreadHandle {
        if let Some(&known) = self.threads.get(&id) {
            return known;
        }
        let profile = &self.drawn.profile;
        let thread = profile.tasks.thread(id);
        let process = profile.tasks.process(thread.process);
        let name = profile.names.get(thread.name());
        let time = |time_ns: Option<u64>| self.time(time_ns.unwrap_or(0));
        let (born, ended, process_born, process_ended) =
            (time(thread.born_ns), time(thread.ended_ns), time(process.born_ns), time(process.ended_ns));
        let number = |id: i32| u32::try_from(id).unwrap_or(0);
        let handle = match self.processes.get(&thread.process) {
            Some(&handle) => handle,
            None => {
                let main = process.main.map_or(name, |main| profile.names.get(profile.tasks.thread(main).name()));
                let handle = self.made.add_process(main, number(process.pid), process_born);
                if process.ended_ns.is_some() {
                    self.made.set_process_end_time(handle, process_ended);
                }
                self.processes.insert(thread.process, handle);
                handle
            }
        };
        let made = self.made.add_thread(handle, number(thread.tid), born, process.main == Some(id));
        self.made.set_thread_name(made, name);
        if thread.ended_ns.is_some() {
            self.made.set_thread_end_time(made, ended);
        }
        self.threads.insert(id, made);
        made
    }

    /// The colour of a kind of code, and below it the program.
    fn category(&mut self, kind: CodeKind, module: ModuleId) -> CategoryPairHandle {
        if let Some(&known) = self.modules.get(&module) {
            return known;
        }
        let (name, color) = match kind {
            CodeKind::Kernel => ("Kernel", CategoryColor::Orange),
            CodeKind::Library => ("Library", CategoryColor::Yellow),
            CodeKind::Program => ("Program", CategoryColor::Blue),
            CodeKind::Jit => ("Made while it ran", CategoryColor::Green),
            CodeKind::Wait => ("Waits", CategoryColor::LightBlue),
            CodeKind::Unknown => ("Unknown", CategoryColor::DarkGray),
        };
        let category = *self.kinds.entry(kind).or_insert_with(|| self.made.add_category(name, color));
        let profile = &self.drawn.profile;
        let name = profile.names.get(profile.modules.get(module).short);
        let pair = match self.modules.len() {
            0..MOST_MODULES => self.made.add_subcategory(category, name),
            _ => category.into(),
        };
        self.modules.insert(module, pair);
        pair
    }

    fn frame(&mut self, id: SourceLineId) -> FrameInfo {
        if let Some(known) = self.frames.get(&id) {
            return known.clone();
        }
        let place = self.drawn.places.get(id);
        let frame = FrameInfo {
            frame: Frame::Label(self.made.intern_string(&place.function)),
            category_pair: self.category(place.kind, place.module),
            flags: FrameFlags::empty(),
        };
        self.frames.insert(id, frame.clone());
        frame
    }

    fn stack(&mut self, thread: ThreadId, stack: StackId) -> Option<StackHandle> {
        if let Some(&known) = self.stacks.get(&(thread, stack)) {
            return known;
        }
        let drawn = self.drawn;
        let mut places: Vec<SourceLineId> = drawn.places.of_stack(&drawn.profile, stack).collect();
        places.reverse();
        let frames: Vec<FrameInfo> = places.into_iter().map(|place| self.frame(place)).collect();
        let handle = self.thread(thread);
        let made = self.made.intern_stack_frames(handle, frames.into_iter());
        self.stacks.insert((thread, stack), made);
        made
    }

    fn add_note(&mut self, thread: ThreadId, timing: MarkerTiming, name: &str, text: &str, stack: Option<StackId>) {
        let note = Note { name: self.made.intern_string(name), text: self.made.intern_string(text) };
        let handle = self.thread(thread);
        let marker = self.made.add_marker(handle, timing, note);
        if let Some(stack) = stack {
            let stack = self.stack(thread, stack);
            self.made.set_marker_stack(handle, marker, stack);
        }
    }

    fn add_markers(&mut self, event: usize) {
        let drawn = self.drawn;
        for span in spans(&drawn.kept) {
            let timing = MarkerTiming::Interval(self.time(span.from_ns), self.time(span.to_ns));
            let place = span.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}"));
            self.add_note(span.thread, timing, "on a CPU", &place, None);
        }
        for sample in drawn.kept.samples.iter().filter(|sample| sample.event as usize != event) {
            let timing = MarkerTiming::Instant(self.time(sample.time_ns));
            let name = &drawn.profile.events[sample.event as usize].name;
            self.add_note(sample.thread, timing, name, &sample.period.to_string(), Some(sample.stack));
        }
        let first_thread = drawn.kept.samples.first().map(|sample| sample.thread);
        for note in &drawn.kept.notes {
            let Some(thread) = note.thread.or(first_thread) else { continue };
            let timing = MarkerTiming::Instant(self.time(note.time_ns));
            match note.what {
                NotedKind::Lost(count) => self.add_note(thread, timing, "lost", &format!("{count} records"), None),
                NotedKind::Throttled => self.add_note(thread, timing, "throttled", "too many samples", None),
                NotedKind::Named(name) => self.add_note(thread, timing, "name", drawn.profile.names.get(name), None),
                _ => {}
            }
        }
    }
}
