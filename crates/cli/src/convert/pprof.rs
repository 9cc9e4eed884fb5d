//! pprof: stacks with what they weigh in each event, as a protocol buffer.
//!
//! What it is: the messages that are needed, with their published numbers; a sentence names those of each. Read first: [`write`].
//!
//! **Invariant:** ids begin with 1, and each that is used stands in its table; the first string is empty.
//!
//! Source: `proto/profile.proto` of <https://github.com/google/pprof>.

use super::protobuf::Message;
use crate::picture::{Drawn, Unit, unit};
use pmux::profile::{CodeKind, FrameId, ModuleId, Tally, Weight};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Strings by number, the empty one first.
struct Strings {
    list: Vec<String>,
    known: HashMap<String, u64>,
}

impl Strings {
    fn new() -> Self {
        Self { list: vec![String::new()], known: HashMap::from([(String::new(), 0)]) }
    }

    fn id(&mut self, text: &str) -> u64 {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.list.len() as u64;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), id);
        id
    }
}

/// A number as the format has it: nothing is so large that the sign is needed.
fn unsigned(value: u64) -> u64 {
    value.min(i64::MAX as u64)
}

/// A comment of each profile.
pub(super) const WRITTEN_BY: &str = "written by: pmux";

/// `Profile`: 1 sample_type, 2 sample, 3 mapping, 4 location, 5 function, 6 string_table, 9 time_nanos, 10 duration_nanos, 13 comment,
/// 14 default_sample_type.
pub(super) fn write(drawn: &Drawn<Tally>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let mut strings = Strings::new();
    let events = drawn.events();
    let mut types = vec![(strings.id("samples"), strings.id("count"))];
    for &event in &events {
        let name = &profile.events[event].name;
        let unit = if unit(&profile.events[event]) == Unit::Nanoseconds { "nanoseconds" } else { "count" };
        types.push((strings.id(name), strings.id(unit)));
    }
    // `ValueType`: 1 type, 2 unit.
    let add =
        |all: Message, &(kind, unit): &(u64, u64)| all.message(1, &Message::new().number(1, kind).number(2, unit));
    let mut encoded = types.iter().fold(Message::new(), add);
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
    for ((stack, thread, comm), weights) in rows {
        let samples: u64 = weights.iter().map(|weight| weight.samples).sum();
        let values = [samples].into_iter().chain(weights.iter().map(|weight| weight.period)).map(unsigned);
        // `Label`: 1 key, 2 str, 3 num.
        let label = |key: u64| Message::new().number(1, key);
        let mut labels = vec![label(strings.id("thread")).number(2, strings.id(profile.names.get(comm)))];
        if let Some(thread) = thread {
            let (tid, pid) = (profile.tasks.thread(thread).tid, profile.tasks.process_of(thread).pid);
            labels.extend([("tid", tid), ("pid", pid)].map(|(key, id)| label(strings.id(key)).signed(3, id)));
        }
        let locations: Vec<u64> =
            profile.stacks.walk(stack).map(|frame| tables.location(drawn, frame, &mut strings)).collect();
        // `Sample`: 1 location_id, 2 value, 3 label.
        let sample = Message::new().packed(1, locations).packed(2, values);
        let sample = labels.iter().fold(sample, |all, label| all.message(3, label));
        encoded = encoded.message(2, &sample);
    }
    let mappings = tables.mappings(drawn, &mut strings);
    let about = &profile.about;
    let since_1970 =
        about.clock_moment_ns.map(|(since_1970, clock)| drawn.first_ns.wrapping_sub(clock).wrapping_add(since_1970));
    let mut comment = vec![strings.id(WRITTEN_BY)];
    comment.extend(about.host.iter().map(|host| strings.id(&format!("host: {host}"))));
    if !about.command_line.is_empty() {
        comment.push(strings.id(&format!("recorded by: {}", about.command_line.join(" "))));
    }
    encoded = mappings.iter().fold(encoded, |all, mapping| all.message(3, mapping));
    encoded = tables.locations.iter().fold(encoded, |all, location| all.message(4, &location.encoded));
    encoded = tables.functions.iter().fold(encoded, |all, function| all.message(5, function));
    encoded = strings.list.iter().fold(encoded, |all, text| all.item(6, text.as_bytes()));
    encoded = encoded
        .number(9, since_1970.map_or(0, unsigned))
        .number(10, drawn.span_ns().map_or(0, unsigned))
        .packed(13, comment)
        .number(14, types.get(1).map_or(0, |(kind, _)| *kind));
    out.write_all(encoded.as_bytes())
}

/// What samples refer to.
#[derive(Default)]
struct Tables {
    locations: Vec<Location>,
    by_frame: HashMap<FrameId, u64>,
    functions: Vec<Message>,
    by_function: HashMap<(u64, u64), u64>,
    /// The highest address of each module that is met.
    modules: BTreeMap<ModuleId, u64>,
}

struct Location {
    module: ModuleId,
    has_inlined: bool,
    encoded: Message,
}

/// Modules are given their numbers as they are: theirs begin with 0.
fn mapping_id(module: ModuleId) -> u64 {
    module.index() as u64 + 1
}

impl Tables {
    /// `Location`: 1 id, 2 mapping_id, 3 address, 4 line. `Line`: 1 function_id, 2 line. `Function`: 1 id, 2 name, 3 system_name,
    /// 4 filename.
    fn location(&mut self, drawn: &Drawn<Tally>, frame: FrameId, strings: &mut Strings) -> u64 {
        if let Some(&id) = self.by_frame.get(&frame) {
            return id;
        }
        let id = self.locations.len() as u64 + 1;
        self.by_frame.insert(frame, id);
        let about = drawn.profile.stacks.frame(frame);
        let (module, address) = (about.module, about.lookup());
        let highest = self.modules.entry(module).or_default();
        *highest = address.max(*highest);
        let mut encoded = Message::new().number(1, id).number(2, mapping_id(module)).number(3, address);
        let places = drawn.places.of_frame(frame);
        for &place in places {
            let place = drawn.places.get(place);
            let (name, filename) = (strings.id(&place.function), strings.id(place.file.as_deref().unwrap_or("")));
            let next = self.functions.len() as u64 + 1;
            let function = *self.by_function.entry((name, filename)).or_insert(next);
            if function == next {
                let named = Message::new().number(1, next).number(2, name).number(3, name);
                self.functions.push(named.number(4, filename));
            }
            encoded = encoded.message(4, &Message::new().number(1, function).number(2, place.line.unwrap_or(0)));
        }
        self.locations.push(Location { module, has_inlined: places.len() > 1, encoded });
        id
    }

    /// The modules; the program with most code in it comes first, as the format wants it.
    ///
    /// `Mapping`: 1 id, 3 memory_limit, 5 filename, 6 build_id, 7 has_functions, 8 has_filenames, 9 has_line_numbers,
    /// 10 has_inline_frames.
    fn mappings(&self, drawn: &Drawn<Tally>, strings: &mut Strings) -> Vec<Message> {
        let profile = &drawn.profile;
        let has_inlined = self.locations.iter().any(|location| location.has_inlined);
        let mapping = |(&id, &highest): (&ModuleId, &u64)| {
            let module = profile.modules.get(id);
            let places = || drawn.places.all().iter().filter(|place| place.module == id);
            let has_lines = places().any(|place| place.line.is_some());
            let bytes = module.build_id.iter().flat_map(|id| id.as_bytes());
            let build_id: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            let mapping = Message::new()
                .number(1, mapping_id(id))
                .number(3, highest.saturating_add(1))
                .number(5, strings.id(profile.names.get(module.path)))
                .number(6, strings.id(&build_id))
                .number(7, true)
                .number(8, has_lines)
                .number(9, has_lines)
                .number(10, has_inlined);
            let is_program = places().any(|place| place.kind == CodeKind::Program);
            let locations = self.locations.iter().filter(|location| location.module == id).count();
            (if is_program { locations } else { 0 }, mapping)
        };
        let mut mappings: Vec<(usize, Message)> = self.modules.iter().map(mapping).collect();
        // The sort is stable: equal ones stay in the order of their ids.
        pmux::order::sort_by_key(&mut mappings, |(locations, _)| std::cmp::Reverse(*locations));
        mappings.into_iter().map(|(_, mapping)| mapping).collect()
    }
}
