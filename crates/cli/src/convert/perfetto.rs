//! A Perfetto trace: the samples of each event, who ran on which CPU, and what happened.
//!
//! What it is: the messages that are needed, with their published numbers; a sentence names those of each. Each event is a sequence of packets of its own, because a
//! sequence has one time base. Read first: [`write`].
//!
//! **Invariant:** what a packet refers to was defined by the first packet of its sequence. Packets are written one by one: a trace is
//! never whole in memory.
//!
//! Source: `protos/perfetto/trace` of <https://github.com/google/perfetto>.

use super::happening;
use super::protobuf::Message;
use crate::picture::Drawn;
use pmux::profile::{Inlining, StackId, ThreadId, Whole, spans};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The state of the sequence begins here; it needs its state.
const CLEARED: u32 = 1;
const NEEDED: u32 = 2;

/// Clocks.
const REALTIME: u32 = 1;
const BOOTTIME: u32 = 6;

/// Kinds of events.
const SLICE_BEGIN: u32 = 1;
const SLICE_END: u32 = 2;
const INSTANT: u32 = 3;

/// The sequence of tracks and what is on them; events have those behind it.
const TRACKS: u32 = 1;
/// The numbers of tracks: of processes, threads and CPUs.
const PROCESSES: u64 = 1 << 40;
const THREADS: u64 = 2 << 40;
const CPUS: u64 = 3 << 40;

/// `TracePacket`: 6 clock_snapshot, 8 timestamp, 10 trusted_packet_sequence_id, 11 track_event, 12 interned_data, 13 sequence_flags,
/// 59 trace_packet_defaults, 60 track_descriptor, 66 perf_sample.
fn put(out: &mut dyn Write, packet: &Message) -> io::Result<()> {
    // A trace is a message with packets in it: traces one after another are one.
    out.write_all(Message::new().message(1, packet).as_bytes())
}

/// The name of the session in which a trace was made.
pub(super) const SESSION: &str = "written by pmux convert";

pub(super) fn write(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let about = &drawn.profile.about;
    // `TracePacket`: 33 trace_config. `TraceConfig`: 22 unique_session_name.
    let session = Message::new().bytes(22, SESSION.as_bytes());
    put(out, &Message::new().message(33, &session).number(10, TRACKS))?;
    if let Some((since_1970, clock_ns)) = about.clock_moment_ns {
        // `Clock`: 1 clock_id, 2 timestamp.
        let clock = |id: u32, at: u64| Message::new().number(1, id).number(2, at);
        let clocks = [clock(REALTIME, since_1970), clock(BOOTTIME, clock_ns)];
        let clocks = clocks.iter().fold(Message::new(), |all, clock| all.message(1, clock));
        put(out, &Message::new().message(6, &clocks).number(10, TRACKS))?;
    }
    put(out, &Message::new().number(10, TRACKS).number(13, CLEARED))?;
    tracks(drawn, out)?;
    for event in drawn.events() {
        samples(drawn, event, out)?;
    }
    on_tracks(drawn, out)
}

/// `TrackDescriptor`: 1 uuid, 2 name, 3 process, 4 thread, 5 parent_uuid. `ProcessDescriptor`: 1 pid, 6 process_name.
/// `ThreadDescriptor`: 1 pid, 2 tid, 5 thread_name.
fn tracks(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let threads: BTreeSet<ThreadId> = (drawn.kept.samples.iter().map(|sample| sample.thread))
        .chain(drawn.kept.notes.iter().filter_map(|note| note.thread))
        .collect();
    let mut processes = BTreeSet::new();
    let mut put_track = |track: &Message| put(out, &Message::new().number(10, TRACKS).message(60, track));
    for id in threads {
        let thread = profile.tasks.thread(id);
        let process = profile.tasks.process(thread.process);
        let process_uuid = PROCESSES + thread.process.index() as u64;
        if processes.insert(thread.process) {
            let main = process.main.map_or(thread.name(), |main| profile.tasks.thread(main).name());
            let about = Message::new().signed(1, process.pid).bytes(6, profile.names.get(main).as_bytes());
            put_track(&Message::new().number(1, process_uuid).message(3, &about))?;
        }
        let about = Message::new().signed(1, process.pid).signed(2, thread.tid);
        let about = about.bytes(5, profile.names.get(thread.name()).as_bytes());
        let uuid = THREADS + id.index() as u64;
        put_track(&Message::new().number(1, uuid).message(4, &about).number(5, process_uuid))?;
    }
    let cpus: BTreeSet<u32> = drawn.kept.notes.iter().filter_map(|note| note.cpu).collect();
    for cpu in cpus {
        put_track(&Message::new().number(1, CPUS + u64::from(cpu)).item(2, format!("CPU {cpu}").as_bytes()))?;
    }
    Ok(())
}

/// All that the samples of an event refer to. Numbers begin with 1.
///
/// `InternedData`: 5 function_names, 6 frames, 7 callstacks, 16 build_ids, 17 mapping_paths, 18 source_paths, 19 mappings.
/// `InternedString`: 1 iid, 2 str. `Frame`: 1 iid, 2 function_name_id, 3 mapping_id, 5 source_path_iid, 6 line_number.
/// `Mapping`: 1 iid, 2 build_id, 7 path_string_ids. `Callstack`: 1 iid, 2 frame_ids. Lists of numbers are not packed: the format is of
/// the second version.
fn interned(drawn: &Drawn<Whole>, stacks: &BTreeSet<StackId>) -> Message {
    let (profile, places) = (&drawn.profile, &drawn.places);
    let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sources: BTreeMap<&str, u64> = BTreeMap::new();
    let mut modules = BTreeSet::new();
    let mut tables: BTreeMap<u32, Vec<Message>> = BTreeMap::new();
    let mut add = |table: u32, row: Message| tables.entry(table).or_default().push(row);
    let text = |iid: u64, text: &[u8]| Message::new().number(1, iid).bytes(2, text);
    for (index, place) in places.all().iter().enumerate() {
        let next = functions.len() as u64 + 1;
        let function = *functions.entry(&place.function).or_insert(next);
        let source = place.file.as_deref().map(|file| {
            let next = sources.len() as u64 + 1;
            *sources.entry(file).or_insert(next)
        });
        let mapping = place.module.index() as u64 + 1;
        if modules.insert(place.module) {
            let module = profile.modules.get(place.module);
            add(16, text(mapping, module.build_id.as_ref().map_or(&[], |id| id.as_bytes())));
            add(17, text(mapping, profile.names.get(module.path).as_bytes()));
            add(19, Message::new().number(1, mapping).number(2, mapping).number(7, mapping));
        }
        // An inlined function has no line of its own here: the tool puts the name in its place.
        let line = place.line.filter(|_| place.inlining == Inlining::Called).map(u64::from);
        let frame = Message::new().number(1, index as u64 + 1).number(2, function).number(3, mapping);
        add(6, frame.optional(5, source).optional(6, line));
    }
    functions.into_iter().for_each(|(name, iid)| add(5, text(iid, name.as_bytes())));
    sources.into_iter().for_each(|(path, iid)| add(18, text(iid, path.as_bytes())));
    for &stack in stacks {
        let mut frames: Vec<u64> = places.of_stack(profile, stack).map(|place| place.index() as u64 + 1).collect();
        // The outermost first.
        frames.reverse();
        let callstack = Message::new().number(1, stack.index() as u64 + 1);
        add(7, frames.into_iter().fold(callstack, |all, frame| all.number(2, frame)));
    }
    let rows = tables.iter().flat_map(|(&table, rows)| rows.iter().map(move |row| (table, row)));
    rows.fold(Message::new(), |all, (table, row)| all.message(table, row))
}

/// `TracePacketDefaults`: 12 perf_sample_defaults. `PerfSampleDefaults`: 1 timebase. `Timebase`: 10 name. `PerfSample`: 1 cpu, 2 pid,
/// 3 tid, 4 callstack_iid, 6 timebase_count.
fn samples(drawn: &Drawn<Whole>, event: usize, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let sequence = TRACKS + 1 + event as u32;
    let own = || drawn.kept.samples.iter().filter(move |sample| sample.event as usize == event);
    let timebase = Message::new().bytes(10, profile.events[event].name.as_bytes());
    let defaults = Message::new().message(12, &Message::new().message(1, &timebase));
    let interned = interned(drawn, &own().map(|sample| sample.stack).collect());
    let first = Message::new().number(10, sequence).message(12, &interned).number(13, CLEARED);
    put(out, &first.message(59, &defaults))?;
    // What was sampled is told as a running count.
    let mut count: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for sample in own() {
        let counted = count.entry(sample.cpu).or_default();
        *counted = counted.saturating_add(sample.period);
        let (thread, process) = (profile.tasks.thread(sample.thread), profile.tasks.process_of(sample.thread));
        let perf_sample = Message::new()
            .optional(1, sample.cpu.map(u64::from))
            .number(2, process.pid.cast_unsigned())
            .number(3, thread.tid.cast_unsigned())
            .number(4, sample.stack.index() as u64 + 1)
            .number(6, *counted);
        let packet = Message::new().optional(8, Some(sample.time_ns)).number(10, sequence);
        put(out, &packet.number(13, NEEDED).message(66, &perf_sample))?;
    }
    Ok(())
}

/// Who had a CPU, and what happened.
///
/// `TrackEvent`: 9 type, 11 track_uuid, 22 categories, 23 name.
fn on_tracks(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let event = |time_ns: u64, kind: u32, track: u64, category: &str, name: Option<String>| {
        let event = Message::new().number(9, kind).number(11, track).item(22, category.as_bytes());
        let event = name.iter().fold(event, |event, name| event.item(23, name.as_bytes()));
        let packet = Message::new().optional(8, Some(time_ns)).number(10, TRACKS);
        // What ends comes before what begins at the same time.
        ((time_ns, kind != SLICE_END), packet.message(11, &event).number(13, NEEDED))
    };
    let mut packets = Vec::new();
    for span in spans(&drawn.kept) {
        let thread = profile.tasks.thread(span.thread);
        let who = format!("{} {}", profile.names.get(thread.name()), thread.tid);
        let name = span.cpu.map_or_else(|| "on a CPU".to_owned(), |cpu| format!("on CPU {cpu}"));
        let on_thread = (THREADS + span.thread.index() as u64, name);
        let on_cpu = span.cpu.map(|cpu| (CPUS + u64::from(cpu), who));
        for (track, name) in [on_thread].into_iter().chain(on_cpu) {
            packets.push(event(span.from_ns, SLICE_BEGIN, track, "cpu", Some(name)));
            packets.push(event(span.to_ns, SLICE_END, track, "cpu", None));
        }
    }
    for note in &drawn.kept.notes {
        let Some(name) = happening(profile, note.what) else { continue };
        let on_thread = note.thread.map(|thread| THREADS + thread.index() as u64);
        if let Some(track) = on_thread.or(note.cpu.map(|cpu| CPUS + u64::from(cpu))) {
            packets.push(event(note.time_ns, INSTANT, track, "happening", Some(name)));
        }
    }
    pmux::order::sort_by_key(&mut packets, |(order, _)| *order);
    packets.iter().try_for_each(|(_, packet)| put(out, packet))
}
