//! pprof: stacks with what they weigh in each event, as a protocol buffer.
//!
//! What it is: the messages that are needed, with their published numbers. Read first: [`write`].
//!
//! **Invariant:** ids begin with 1, and each that is used stands in its table; the first string is empty.
//!
//! Source: `proto/profile.proto` of <https://github.com/google/pprof>.

use crate::picture::{Drawn, Unit, unit};
use pmux::profile::{CodeKind, FrameId, Tally, Weight};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
    #[prost(int64, tag = "3")]
    num: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Strings by number, the empty one first.
struct Strings {
    list: Vec<String>,
    known: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        Self { list: vec![String::new()], known: HashMap::from([(String::new(), 0)]) }
    }

    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), id);
        id
    }
}

/// A number as the format has it: nothing is so large that the sign is needed.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn write(drawn: &Drawn<Tally>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let mut strings = Strings::new();
    let events = drawn.events();
    let mut sample_type = vec![ValueType { kind: strings.id("samples"), unit: strings.id("count") }];
    for &event in &events {
        let name = &profile.events[event].name;
        let unit = if unit(&profile.events[event]) == Unit::Nanoseconds { "nanoseconds" } else { "count" };
        sample_type.push(ValueType { kind: strings.id(name), unit: strings.id(unit) });
    }
    // One sample for each stack of each thread, whatever events it has.
    let mut rows: BTreeMap<_, Vec<Weight>> = BTreeMap::new();
    for (key, weight) in drawn.kept.rows() {
        let row =
            rows.entry((key.stack, key.thread, key.comm)).or_insert_with(|| vec![Weight::default(); events.len()]);
        if let Some(at) = events.iter().position(|&event| event == key.event as usize) {
            row[at].add(*weight);
        }
    }
    let mut tables = Tables::default();
    let mut sample = Vec::with_capacity(rows.len());
    for ((stack, thread, comm), weights) in rows {
        let samples: u64 = weights.iter().map(|weight| weight.samples).sum();
        let value = [samples].into_iter().chain(weights.iter().map(|weight| weight.period)).map(signed).collect();
        let mut label = vec![Label { key: strings.id("thread"), str: strings.id(profile.names.get(comm)), num: 0 }];
        if let Some(thread) = thread {
            let (tid, pid) = (profile.tasks.thread(thread).tid, profile.tasks.process_of(thread).pid);
            label.push(Label { key: strings.id("tid"), str: 0, num: tid.into() });
            label.push(Label { key: strings.id("pid"), str: 0, num: pid.into() });
        }
        let location_id = profile.stacks.walk(stack).map(|frame| tables.location(drawn, frame, &mut strings)).collect();
        sample.push(Sample { location_id, value, label });
    }
    let mapping = tables.mappings(drawn, &mut strings);
    let about = &profile.about;
    let since_1970 =
        about.clock_moment_ns.map(|(since_1970, clock)| drawn.first_ns.wrapping_sub(clock).wrapping_add(since_1970));
    let mut comment: Vec<i64> = Vec::new();
    comment.extend(about.host.iter().map(|host| strings.id(&format!("host: {host}"))));
    if !about.command_line.is_empty() {
        comment.push(strings.id(&format!("recorded by: {}", about.command_line.join(" "))));
    }
    let default_sample_type = sample_type.get(1).map_or(0, |kind| kind.kind);
    let encoded = Profile {
        sample_type,
        sample,
        mapping,
        location: tables.locations,
        function: tables.functions,
        string_table: strings.list,
        time_nanos: since_1970.map_or(0, signed),
        duration_nanos: drawn.span_ns().map_or(0, signed),
        comment,
        default_sample_type,
    };
    out.write_all(&encoded.encode_to_vec())
}

/// What samples refer to.
#[derive(Default)]
struct Tables {
    locations: Vec<Location>,
    by_frame: HashMap<FrameId, u64>,
    functions: Vec<Function>,
    by_function: HashMap<(i64, i64), u64>,
    /// The highest address of each module that is met.
    modules: BTreeMap<pmux::profile::ModuleId, u64>,
}

impl Tables {
    fn location(&mut self, drawn: &Drawn<Tally>, frame: FrameId, strings: &mut Strings) -> u64 {
        if let Some(&id) = self.by_frame.get(&frame) {
            return id;
        }
        let id = self.locations.len() as u64 + 1;
        self.by_frame.insert(frame, id);
        let line = drawn.places.of_frame(frame).iter().map(|&place| {
            let place = drawn.places.get(place);
            let name = strings.id(&place.function);
            let filename = strings.id(place.file.as_deref().unwrap_or(""));
            let next = self.functions.len() as u64 + 1;
            let function_id = *self.by_function.entry((name, filename)).or_insert(next);
            if function_id == next {
                self.functions.push(Function { id: next, name, system_name: name, filename });
            }
            Line { function_id, line: place.line.unwrap_or(0).into() }
        });
        let line = line.collect();
        let about = drawn.profile.stacks.frame(frame);
        let address = about.lookup();
        let highest = self.modules.entry(about.module).or_default();
        *highest = address.max(*highest);
        // Modules are given their numbers as they are: theirs begin with 0.
        self.locations.push(Location { id, mapping_id: about.module.index() as u64 + 1, address, line });
        id
    }

    /// The modules; the program with most code in it comes first, as the format wants it.
    fn mappings(&self, drawn: &Drawn<Tally>, strings: &mut Strings) -> Vec<Mapping> {
        let profile = &drawn.profile;
        let has_inline_frames = self.locations.iter().any(|location| location.line.len() > 1);
        let mut mappings: Vec<(usize, Mapping)> =
            self.modules
                .iter()
                .map(|(&id, &highest)| {
                    let module = profile.modules.get(id);
                    let places = || drawn.places.all().iter().filter(|place| place.module == id);
                    let has_lines = places().any(|place| place.line.is_some());
                    let build_id = module.build_id.as_ref().map_or_else(String::new, |id| {
                        id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
                    });
                    let mapping = Mapping {
                        id: id.index() as u64 + 1,
                        memory_start: 0,
                        memory_limit: highest.saturating_add(1),
                        filename: strings.id(profile.names.get(module.path)),
                        build_id: strings.id(&build_id),
                        has_functions: true,
                        has_filenames: has_lines,
                        has_line_numbers: has_lines,
                        has_inline_frames,
                    };
                    let is_program = places().any(|place| place.kind == CodeKind::Program);
                    let locations = self.locations.iter().filter(|location| location.mapping_id == mapping.id).count();
                    (if is_program { locations } else { 0 }, mapping)
                })
                .collect();
        mappings.sort_by_key(|(locations, mapping)| (std::cmp::Reverse(*locations), mapping.id));
        mappings.into_iter().map(|(_, mapping)| mapping).collect()
    }
}
