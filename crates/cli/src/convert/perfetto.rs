//! A Perfetto trace: the samples of each event, who ran on which CPU, and what happened.
//!
//! What it is: the messages that are needed, with their published numbers. Each event is a sequence of packets of its own, because a
//! sequence has one time base. Read first: [`write`].
//!
//! **Invariant:** what a packet refers to was defined by the first packet of its sequence. Packets are written one by one: a trace is
//! never whole in memory.
//!
//! Source: `protos/perfetto/trace` of <https://github.com/google/perfetto>.

use super::happening;
use crate::picture::Drawn;
use pmux::profile::{Inlining, StackId, ThreadId, Whole, spans};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    sequence: u32,
    #[prost(uint32, optional, tag = "13")]
    flags: Option<u32>,
    #[prost(message, optional, tag = "6")]
    clocks: Option<Clocks>,
    #[prost(message, optional, tag = "12")]
    interned: Option<Interned>,
    #[prost(message, optional, tag = "59")]
    defaults: Option<Defaults>,
    #[prost(message, optional, tag = "60")]
    track: Option<Track>,
    #[prost(message, optional, tag = "11")]
    event: Option<Event>,
    #[prost(message, optional, tag = "66")]
    sample: Option<Sample>,
}

/// The state of the sequence begins here; it needs its state.
const CLEARED: u32 = 1;
const NEEDED: u32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Clocks {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Clock {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(uint64, tag = "2")]
    timestamp: u64,
}

const REALTIME: u32 = 1;
const BOOTTIME: u32 = 6;

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(message, repeated, tag = "5")]
    function_names: Vec<Text>,
    #[prost(message, repeated, tag = "6")]
    frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "16")]
    build_ids: Vec<Text>,
    #[prost(message, repeated, tag = "17")]
    mapping_paths: Vec<Text>,
    #[prost(message, repeated, tag = "18")]
    source_paths: Vec<Text>,
    #[prost(message, repeated, tag = "19")]
    mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(bytes = "vec", tag = "2")]
    str: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Frame {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, tag = "2")]
    function_name: u64,
    #[prost(uint64, tag = "3")]
    mapping: u64,
    #[prost(uint64, optional, tag = "5")]
    source_path: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    line: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Callstack {
    #[prost(uint64, tag = "1")]
    iid: u64,
    /// The outermost first. This one is not packed: the format is of the second version.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    frames: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, tag = "2")]
    build_id: u64,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    path: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Defaults {
    #[prost(message, optional, tag = "12")]
    sample: Option<SampleDefaults>,
}

#[derive(Clone, PartialEq, Message)]
struct SampleDefaults {
    #[prost(message, optional, tag = "1")]
    timebase: Option<Timebase>,
}

#[derive(Clone, PartialEq, Message)]
struct Timebase {
    #[prost(string, tag = "10")]
    name: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(uint32, tag = "2")]
    pid: u32,
    #[prost(uint32, tag = "3")]
    tid: u32,
    #[prost(uint64, tag = "4")]
    callstack: u64,
    #[prost(uint64, tag = "6")]
    timebase_count: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Track {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(uint64, optional, tag = "5")]
    parent: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessTrack>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadTrack>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessTrack {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadTrack {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int64, tag = "2")]
    tid: i64,
    #[prost(string, tag = "5")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(int32, tag = "9")]
    kind: i32,
    #[prost(uint64, tag = "11")]
    track: u64,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
}

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;

/// The sequence of tracks and what is on them; events have those behind it.
const TRACKS: u32 = 1;
/// The numbers of tracks: of processes, threads and CPUs.
const PROCESSES: u64 = 1 << 40;
const THREADS: u64 = 2 << 40;
const CPUS: u64 = 3 << 40;

fn put(out: &mut dyn Write, packet: Packet) -> io::Result<()> {
    // A trace is a message with packets in it: traces one after another are one.
    out.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
}

pub(super) fn write(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let about = &drawn.profile.about;
    if let Some((since_1970, clock)) = about.clock_moment_ns {
        let clocks = vec![Clock { id: REALTIME, timestamp: since_1970 }, Clock { id: BOOTTIME, timestamp: clock }];
        put(out, Packet { sequence: TRACKS, clocks: Some(Clocks { clocks }), ..Packet::default() })?;
    }
    put(out, Packet { sequence: TRACKS, flags: Some(CLEARED), ..Packet::default() })?;
    tracks(drawn, out)?;
    for event in drawn.events() {
        samples(drawn, event, out)?;
    }
    on_tracks(drawn, out)
}

fn tracks(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let threads: BTreeSet<ThreadId> = (drawn.kept.samples.iter().map(|sample| sample.thread))
        .chain(drawn.kept.notes.iter().filter_map(|note| note.thread))
        .collect();
    let mut processes = BTreeSet::new();
    let track = |track| Packet { sequence: TRACKS, track: Some(track), ..Packet::default() };
    for id in threads {
        let thread = profile.tasks.thread(id);
        let process = profile.tasks.process(thread.process);
        let process_uuid = PROCESSES + thread.process.index() as u64;
        let name = profile.names.get(thread.name()).to_owned();
        if processes.insert(thread.process) {
            let main = process.main.map_or(thread.name(), |main| profile.tasks.thread(main).name());
            let about = ProcessTrack { pid: process.pid, name: profile.names.get(main).to_owned() };
            put(out, track(Track { uuid: process_uuid, process: Some(about), ..Track::default() }))?;
        }
        let about = ThreadTrack { pid: process.pid, tid: thread.tid.into(), name };
        let uuid = THREADS + id.index() as u64;
        put(out, track(Track { uuid, parent: Some(process_uuid), thread: Some(about), ..Track::default() }))?;
    }
    let cpus: BTreeSet<u32> = drawn.kept.notes.iter().filter_map(|note| note.cpu).collect();
    for cpu in cpus {
        let name = Some(format!("CPU {cpu}"));
        put(out, track(Track { uuid: CPUS + u64::from(cpu), name, ..Track::default() }))?;
    }
    Ok(())
}

/// All that the samples of an event refer to. Numbers begin with 1.
fn interned(drawn: &Drawn<Whole>, stacks: &BTreeSet<StackId>) -> Interned {
    let (profile, places) = (&drawn.profile, &drawn.places);
    let mut interned = Interned::default();
    let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
    let mut sources: BTreeMap<&str, u64> = BTreeMap::new();
    let mut modules = BTreeSet::new();
    let text = |iid: u64, text: &str| Text { iid, str: text.as_bytes().to_vec() };
    for (index, place) in places.all().iter().enumerate() {
        let next = functions.len() as u64 + 1;
        let function_name = *functions.entry(&place.function).or_insert(next);
        let source_path = place.file.as_deref().map(|file| {
            let next = sources.len() as u64 + 1;
            *sources.entry(file).or_insert(next)
        });
        let mapping = place.module.index() as u64 + 1;
        if modules.insert(place.module) {
            let module = profile.modules.get(place.module);
            let id = module.build_id.as_ref().map(|id| id.as_bytes().to_vec()).unwrap_or_default();
            interned.mapping_paths.push(text(mapping, profile.names.get(module.path)));
            interned.build_ids.push(Text { iid: mapping, str: id });
            interned.mappings.push(Mapping { iid: mapping, build_id: mapping, path: vec![mapping] });
        }
        // An inlined function has no line of its own here: the tool puts the name in its place.
        let line = place.line.filter(|_| place.inlining == Inlining::Called);
        interned.frames.push(Frame { iid: index as u64 + 1, function_name, mapping, source_path, line });
    }
    interned.function_names = functions.into_iter().map(|(name, iid)| text(iid, name)).collect();
    interned.source_paths = sources.into_iter().map(|(path, iid)| text(iid, path)).collect();
    interned.callstacks = stacks
        .iter()
        .map(|&stack| {
            let mut frames: Vec<u64> = places.of_stack(profile, stack).map(|place| place.index() as u64 + 1).collect();
            frames.reverse();
            Callstack { iid: stack.index() as u64 + 1, frames }
        })
        .collect();
    interned
}

fn samples(drawn: &Drawn<Whole>, event: usize, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let sequence = TRACKS + 1 + event as u32;
    let own = || drawn.kept.samples.iter().filter(move |sample| sample.event as usize == event);
    let timebase = Timebase { name: profile.events[event].name.clone() };
    put(
        out,
        Packet {
            sequence,
            flags: Some(CLEARED),
            interned: Some(interned(drawn, &own().map(|sample| sample.stack).collect())),
            defaults: Some(Defaults { sample: Some(SampleDefaults { timebase: Some(timebase) }) }),
            ..Packet::default()
        },
    )?;
    // What was sampled is told as a running count.
    let mut count: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for sample in own() {
        let counted = count.entry(sample.cpu).or_default();
        *counted = counted.saturating_add(sample.period);
        let (thread, process) = (profile.tasks.thread(sample.thread), profile.tasks.process_of(sample.thread));
        let told = Sample {
            cpu: sample.cpu,
            pid: process.pid.cast_unsigned(),
            tid: thread.tid.cast_unsigned(),
            callstack: sample.stack.index() as u64 + 1,
            timebase_count: *counted,
        };
        let timestamp = Some(sample.time_ns);
        put(out, Packet { timestamp, sequence, flags: Some(NEEDED), sample: Some(told), ..Packet::default() })?;
    }
    Ok(())
}

/// Who had a CPU, and what happened.
fn on_tracks(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let event = |time_ns: u64, kind: i32, track: u64, category: &str, name: Option<String>| Packet {
        timestamp: Some(time_ns),
        sequence: TRACKS,
        flags: Some(NEEDED),
        event: Some(Event { kind, track, categories: vec![category.to_owned()], name }),
        ..Packet::default()
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
    // What ends comes before what begins at the same time.
    packets.sort_by_key(|packet| (packet.timestamp, packet.event.as_ref().map(|event| event.kind != SLICE_END)));
    packets.into_iter().try_for_each(|packet| put(out, packet))
}
