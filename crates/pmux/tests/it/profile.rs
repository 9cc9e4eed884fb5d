//! Recordings that were made up, read: what order, lives and losses come to; and recordings that are broken in any way.

use pmux::perf_data::feature::Feature;
use pmux::perf_data::file::FileWriter;
use pmux::perf_data::{EventDesc, finished_round, pack::Packer};
use pmux::profile::records::{
    Branch, BranchStack, Comm, CommCause, Lost, Misc, Mmap, Record, Sample as Fields, SampleId, SampleLayout, Task,
    TaskId, encode_record,
};
use pmux::profile::{Hot, Input, Profile, ProfileError, Sample, Sink, SortKey, Symbols, Tally, TreeSide, apart, read};
use pmux_abi::Array;
use pmux_abi::attr::{Attr, AttrFlags, BranchSample, EventType, SampleFormat};
use proptest::prelude::*;
use std::fs::File;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

/// A recording under construction.
struct Made {
    descs: Vec<EventDesc>,
    layout: SampleLayout,
    records: Vec<u8>,
}

impl Made {
    fn new() -> Self {
        let attr = Attr {
            kind: EventType::SOFTWARE,
            sample: SampleFormat::IDENTIFIER
                | SampleFormat::IP
                | SampleFormat::TID
                | SampleFormat::TIME
                | SampleFormat::CALLCHAIN
                | SampleFormat::PERIOD,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let event = |name: &str, id| EventDesc { attr, name: name.to_owned(), ids: vec![id] };
        Self {
            descs: vec![event("one", 11), event("other", 12)],
            layout: SampleLayout::new(&attr),
            records: Vec::new(),
        }
    }

    fn put(&mut self, record: &Record<'_>, id: Option<&SampleId>, misc: Misc) {
        let mut bytes = [0; 4096];
        let length = encode_record(record, id, misc, &self.layout, &mut bytes).unwrap();
        self.records.extend(&bytes[..length]);
    }

    fn put_with_time(&mut self, record: &Record<'_>, time: u64, tid: u32) {
        let id = SampleId {
            task: Some(TaskId { pid: tid, tid }),
            time: Some(time),
            identifier: Some(11),
            ..SampleId::default()
        };
        self.put(record, Some(&id), Misc::USER);
    }

    fn sample(&mut self, event: u64, time: u64, tid: u32, chain: &[u64]) {
        let marked: Vec<u64> = [u64::MAX - 511].into_iter().chain(chain.iter().copied()).collect();
        let fields = Fields {
            identifier: Some(event),
            ip: chain.first().copied(),
            task: Some(TaskId { pid: tid, tid }),
            time: Some(time),
            period: Some(10),
            callchain: Some(Array::from(&marked[..])),
            ..Fields::default()
        };
        self.put(&Record::Sample(fields), None, Misc::USER);
    }

    fn comm(&mut self, time: u64, tid: u32, name: &str, cause: CommCause) {
        self.put_with_time(&Record::Comm(Comm { pid: tid, tid, cause, comm: name.as_bytes() }), time, tid);
    }

    fn map(&mut self, time: u64, tid: u32, addr: u64, path: &str) {
        let map = Mmap { pid: tid, tid, addr, len: 0x1000, filename: path.as_bytes(), ..Mmap::default() };
        self.put_with_time(&Record::Mmap(map), time, tid);
    }

    fn round(&mut self) {
        self.records.extend(finished_round());
    }

    fn file(&self) -> File {
        let file = tempfile::tempfile().unwrap();
        let mut writer = FileWriter::create(file.try_clone().unwrap(), &self.descs, 0, &[]).unwrap();
        writer.put(&self.records).unwrap();
        writer.finish(&[pmux::perf_data::feature::events(&self.descs)]).unwrap();
        file
    }

    fn bytes(&self) -> Vec<u8> {
        use std::io::{Read, Seek};
        let (mut file, mut all) = (self.file(), Vec::new());
        file.rewind().unwrap();
        file.read_to_end(&mut all).unwrap();
        all
    }
}

fn task(time: u64, pid: u32, ppid: u32) -> Task {
    Task { pid, tid: pid, ppid, ptid: ppid, time }
}

/// Samples as text: event, time, name, the life of the process, and where it was.
#[derive(Default)]
struct SampleLines(Vec<String>);

impl Sink for SampleLines {
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let frames: Vec<String> = profile
            .stacks
            .walk(sample.stack)
            .map(|frame| {
                let frame = profile.stacks.frame(frame);
                let module = profile.modules.get(frame.module);
                format!("{}+{:x}", profile.names.get(module.short), frame.address)
            })
            .collect();
        self.0.push(format!(
            "{} {} {}#{} {}",
            profile.events[sample.event].name,
            sample.time_ns,
            profile.names.get(sample.comm),
            profile.tasks.process_of(sample.thread).generation,
            frames.join("<")
        ));
        ControlFlow::Continue(())
    }
}

/// What a recording tells, and its samples.
fn read_lines(input: Input) -> (Profile, Vec<String>) {
    let mut lines = SampleLines::default();
    let profile = read(input, &mut lines).unwrap();
    (profile, lines.0)
}

/// A shell starts two programs that have the same number one after the other; two CPUs tell of it.
fn story() -> Made {
    let mut made = Made::new();
    made.comm(1, 5, "sh", CommCause::Rename);
    made.map(2, 5, 0x1000, "/bin/sh");
    // The other CPU is behind.
    made.sample(11, 40, 5, &[0x1010, 0x1021]);
    made.put_with_time(&Record::Fork(task(10, 9, 5)), 10, 5);
    made.sample(12, 11, 9, &[0x1010]);
    made.round();
    made.comm(12, 9, "ls", CommCause::Exec);
    made.sample(11, 13, 9, &[0x1010]);
    made.map(14, 9, 0x1000, "/bin/ls");
    made.sample(11, 15, 9, &[0x1010, 0x2001]);
    made.put_with_time(&Record::Exit(task(16, 9, 5)), 16, 9);
    made.put_with_time(&Record::Lost(Lost { id: 11, lost: 3 }), 17, 9);
    made.round();
    made.put_with_time(&Record::Fork(task(50, 9, 5)), 50, 5);
    made.sample(11, 51, 9, &[0x1010]);
    // Of an unknown event.
    made.sample(99, 52, 9, &[0x1010]);
    made
}

const STORY: [&str; 5] = [
    "other 11 sh#0 sh+10",
    "one 13 ls#0 [unknown]+1010",
    "one 15 ls#0 ls+10<[unknown]+2001",
    "one 40 sh#0 sh+10<sh+21",
    "one 51 sh#1 sh+10",
];

#[test]
fn order_lives_and_programs() {
    let (profile, lines) = read_lines(Input::file(story().file()));
    assert_eq!(lines, STORY);
    assert_eq!((profile.losses.lost, profile.losses.of_no_event, profile.losses.late), (3, 1, 0));
    assert_eq!(profile.losses.broken + profile.losses.cut_off_bytes, 0);
    let ls = profile.tasks.threads().iter().find(|thread| thread.tid == 9).unwrap();
    assert_eq!((ls.born_ns, ls.ended_ns), (Some(10), Some(16)));
    assert_eq!(profile.tasks.process(ls.process).execs_ns, [12]);
}

#[test]
fn packed_and_through_a_pipe_it_is_the_same() {
    let mut made = story();
    let mut packed = Vec::new();
    // Rounds stand between packed records.
    let (mut packer, mut run) = (Packer::default(), Vec::new());
    let round = finished_round();
    let mut rest = &made.records[..];
    while !rest.is_empty() {
        let (header, _, behind) = pmux::profile::records::RecordHeader::split(rest).unwrap();
        let (record, _) = rest.split_at(header.size.into());
        if record == round {
            packer.pack(&std::mem::take(&mut run), &mut packed);
            packed.extend(record);
        } else {
            run.extend(record);
        }
        rest = behind;
    }
    packer.pack(&run, &mut packed);
    assert!(packed.len() < made.records.len());
    made.records = packed;
    let (_, lines) = read_lines(Input::stream(Cursor::new(made.bytes())));
    assert_eq!(lines, STORY);
}

#[test]
fn packed_records_of_older_tools_end_where_they_end() {
    let mut made = story();
    let mut packed = Vec::new();
    Packer::default().pack(&made.records, &mut packed);
    let (mut odd, mut rest) = (false, &packed[..]);
    made.records.clear();
    while let Ok((header, payload, behind)) = pmux::profile::records::RecordHeader::split(rest) {
        assert_eq!(header.kind.0, 81);
        // Without what fills it up: the record is as long as what is packed, to the byte.
        let filling = payload.windows(4).rposition(|bytes| bytes == [0x50, 0x2a, 0x4d, 0x18]);
        let payload = &payload[..filling.unwrap_or(payload.len())];
        let size = 8 + payload.len() as u16;
        made.records.extend(81_u32.to_ne_bytes());
        made.records.extend([0, 0]);
        made.records.extend(size.to_ne_bytes());
        made.records.extend(payload);
        odd |= !size.is_multiple_of(8);
        rest = behind;
    }
    assert!(odd, "all records are of whole words: this tests nothing");
    made.round();
    for input in [Input::file(made.file()), Input::stream(Cursor::new(made.bytes()))] {
        let (profile, lines) = read_lines(input);
        assert_eq!(lines, STORY);
        assert_eq!((profile.losses.cut_off_bytes, profile.losses.broken), (0, 0));
    }
}

#[test]
fn a_sink_that_breaks_gets_no_more() {
    struct First(u32);
    impl Sink for First {
        fn sample(&mut self, _: &Profile, _: &Sample<'_>) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Break(())
        }
    }
    let mut first = First(0);
    read(Input::file(story().file()), &mut first).unwrap();
    assert_eq!(first.0, 1);
}

#[test]
fn what_is_cut_off_is_said() {
    let whole = story().bytes();
    for length in (0..whole.len()).step_by(5) {
        let mut lines = SampleLines::default();
        match read(Input::stream(Cursor::new(whole[..length].to_vec())), &mut lines) {
            Ok(profile) => {
                assert!(lines.0.len() <= STORY.len());
                assert!(
                    lines.0.len() == STORY.len() || !profile.notes.is_empty(),
                    "of {length} bytes {} samples, and nothing was said",
                    lines.0.len()
                );
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("recording"), "{text}");
            }
        }
    }
    let refused = |bytes: Vec<u8>| read(Input::stream(Cursor::new(bytes)), &mut SampleLines::default()).unwrap_err();
    assert!(matches!(refused(b"#!/bin/sh\necho".to_vec()), ProfileError::NoRecording));
    assert!(matches!(refused(Vec::new()), ProfileError::Empty));
    let mut swapped = whole.clone();
    swapped[..8].reverse();
    assert!(matches!(refused(swapped), ProfileError::OtherByteOrder));
    assert!(matches!(Input::open("/nonexistent".as_ref()), Err(ProfileError::Open(..))));
    assert!(matches!(Input::open("/".as_ref()), Err(ProfileError::Folder(_))));
}

#[test]
fn rows_count_each_sample_once() {
    let mut made = Made::new();
    made.comm(1, 5, "sh", CommCause::Rename);
    made.map(2, 5, 0x1000, "/nonexistent/sh");
    // `a` is met twice in one stack, and once by itself.
    made.sample(11, 3, 5, &[0x1010, 0x1021, 0x1011]);
    made.sample(11, 4, 5, &[0x1010]);
    made.sample(11, 5, 5, &[0x1030, 0x1021]);
    let keys = [SortKey::Comm, SortKey::Dso];
    let mut tally = Tally::new(apart(&keys));
    let profile = read(Input::file(made.file()), &mut tally).unwrap();
    assert_eq!((tally.total(0).samples, tally.total(0).period), (3, 30));
    let symbols = resolved(&profile);
    assert_eq!(symbols.notes().len(), 1, "{:?}", symbols.notes());
    let hot = Hot::new(&profile, &symbols, &tally, &keys);
    let [row] = hot.rows(0) else { panic!("{:?}", hot.rows(0)) };
    assert_eq!((row.own.samples, row.total.samples), (3, 3));
    let keys = [SortKey::Symbol];
    let hot = Hot::new(&profile, &symbols, &tally, &keys);
    let mut weights: Vec<_> = hot.rows(0).iter().map(|row| (row.own.samples, row.total.samples)).collect();
    weights.sort_unstable();
    // 0x1010 twice, 0x1030 once, the calls 0x1021 and 0x1011.
    assert_eq!(weights, [(0, 1), (0, 2), (1, 1), (2, 2)]);
    let most = hot.rows(0).iter().find(|row| row.total.samples == 2 && row.own.samples == 0).unwrap();
    let tree = hot.tree(0, most, pmux::profile::Order::Caller, 1);
    assert_eq!((tree.roots.len(), tree.roots[0].weight.samples, tree.roots[0].next.len()), (1, 2, 2));
    // It was met twice, always on the way to something else, and once with a caller.
    let total = |side| {
        let roots = hot.calls(0, most, side, 1).roots;
        roots.iter().map(|call| call.weight.samples).sum::<u64>()
    };
    assert_eq!((total(TreeSide::Callees), total(TreeSide::Callers)), (2, 1));
    let called = hot.calls(0, most, TreeSide::Callees, 1).roots;
    let (inner, outer) = (called[0].spot, most.spot);
    let row = hot.rows(0).iter().find(|row| row.spot == inner).unwrap();
    let callers = hot.calls(0, row, TreeSide::Callers, 1).roots;
    assert!(callers.iter().any(|call| call.spot == outer), "{callers:?}");
    // A part is what is left of the whole.
    let one = tally.rows().next().map(|(key, weight)| (*key, *weight)).unwrap();
    let part = tally.part(apart(&keys), |key| *key == one.0);
    assert_eq!((part.rows().count(), part.total(0)), (1, one.1));
    let part = tally.part(apart(&keys), |_| true);
    assert_eq!((part.rows().len(), part.total(0)), (tally.rows().len(), tally.total(0)));
}

#[test]
fn what_is_added_up_side_by_side_is_all_of_it() {
    // Each process somewhere else, so often that it is worth a thread.
    let mut made = Made::new();
    for tid in 5..8 {
        made.comm(1, tid, &format!("task{tid}"), CommCause::Rename);
    }
    for time in 0..9_000 {
        made.sample(11 + time % 2, 2 + time, 5 + time as u32 % 3, &[0x1_0000 + 16 * time, 0x1000]);
    }
    let keys = [SortKey::Comm, SortKey::Symbol];
    let mut tally = Tally::new(apart(&keys));
    let profile = read(Input::file(made.file()), &mut tally).unwrap();
    let symbols = resolved(&profile);
    let hot = Hot::new(&profile, &symbols, &tally, &keys);
    for event in 0..2 {
        for tid in 5..8 {
            let name = format!("task{tid}");
            let is_its = |row: &&pmux::profile::Row| {
                hot.group(row.group).comm.is_some_and(|comm| profile.names.get(comm) == name)
            };
            let rows: Vec<_> = hot.rows(event).iter().filter(is_its).collect();
            assert_eq!(rows.iter().map(|row| row.own.samples).sum::<u64>(), 1500, "{name}");
            // One more for the caller of all.
            assert_eq!((rows.len(), rows.iter().map(|row| row.total.samples).max()), (1501, Some(1500)), "{name}");
        }
    }
}

#[test]
fn calls_that_the_hardware_recorded_are_callers() {
    const CHAIN: [u64; 4] = [u64::MAX - 127, 0xffff_ffff_8100_0000, u64::MAX - 511, 0x1900];
    let branch = |from, to| Branch { from, to, ..Branch::default() };
    let calls = [branch(0x1021, 0x1000), branch(0x1442, 0x1020)];
    for (kind, expected) in [
        (
            BranchSample::USER | BranchSample::CALL_STACK,
            ["sh+10<sh+21<sh+442", "[unknown]+ffffffff81000000<sh+0<sh+21<sh+442"],
        ),
        // Any other branches are no callers.
        (BranchSample::USER | BranchSample::ANY, ["sh+10", "[unknown]+ffffffff81000000<sh+900"]),
    ] {
        let mut made = Made::new();
        for desc in &mut made.descs {
            desc.attr.sample |= SampleFormat::BRANCH_STACK;
            desc.attr.branch_sample = kind;
        }
        made.layout = SampleLayout::new(&made.descs[0].attr);
        made.comm(1, 5, "sh", CommCause::Rename);
        made.map(2, 5, 0x1000, "/bin/sh");
        for (time, mode, chain) in [(3, Misc::USER, &[][..]), (4, Misc::KERNEL, &CHAIN)] {
            let fields = Fields {
                identifier: Some(11),
                ip: Some(if mode == Misc::USER { 0x1010 } else { CHAIN[1] }),
                task: Some(TaskId { pid: 5, tid: 5 }),
                time: Some(time),
                period: Some(10),
                callchain: Some(Array::from(chain)),
                branch_stack: Some(BranchStack { branches: Array::from(&calls[..]), ..BranchStack::default() }),
                ..Fields::default()
            };
            made.put(&Record::Sample(fields), None, mode);
        }
        let (profile, lines) = read_lines(Input::file(made.file()));
        assert_eq!(lines, [format!("one 3 sh#0 {}", expected[0]), format!("one 4 sh#0 {}", expected[1])]);
        assert_eq!(profile.events[0].has_branches(), expected[0] == "sh+10");
        let (_, lines) = read_lines(Input::file(made.file()).by_branches());
        let each = ["sh+0<sh+21", "sh+20<sh+442"];
        let branches: Vec<_> = [3, 4].iter().flat_map(|time| each.map(|to| format!("one {time} sh#0 {to}"))).collect();
        assert_eq!(lines, branches);
    }
}

#[test]
fn what_is_not_decoded_is_said() {
    let mut made = story();
    // 32 bytes of an instruction trace, behind their record.
    let mut record = vec![0; 48];
    (record[0], record[6], record[8]) = (71, 48, 32);
    record.extend([0xa5; 32]);
    made.records.extend(record);
    made.comm(60, 5, "behind", CommCause::Rename);
    let file = tempfile::tempfile().unwrap();
    let mut writer = FileWriter::create(file.try_clone().unwrap(), &made.descs, 0, &[]).unwrap();
    writer.put(&made.records).unwrap();
    // A record of build ids that claims more than is there.
    let mut ids = vec![0; 40];
    ids[6] = 100;
    writer.finish(&[pmux::perf_data::feature::events(&made.descs), (Feature::BuildId, ids)]).unwrap();
    let (profile, lines) = read_lines(Input::file(file));
    assert_eq!(lines, STORY);
    assert!(profile.tasks.threads().iter().any(|thread| profile.names.get(thread.name()) == "behind"));
    for said in ["32 bytes of AUX data", "build ids is cut off"] {
        assert!(profile.notes.iter().any(|note| note.contains(said)), "{said}: {:?}", profile.notes);
    }
}

fn resolved(profile: &Profile) -> Symbols {
    let mut symbols = Symbols::new(profile);
    symbols.resolve_all(profile);
    symbols
}

/// A program that was written between two recordings of a folder was not written after them.
#[test]
fn a_folder_was_written_with_its_last_recording() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    for (name, time, written) in [("a.data", 10, now - hour), ("b.data", 100, now + hour)] {
        let mut made = Made::new();
        made.map(time, 5, 0x1000, program.to_str().unwrap());
        made.sample(11, time + 1, 5, &[0x1010]);
        let path = folder.path().join(name);
        std::fs::write(&path, made.bytes()).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    }
    let is_doubted = |path: &std::path::Path| {
        let (profile, _) = read_lines(Input::open(path).unwrap());
        resolved(&profile).notes().iter().any(|note| note.contains("after the recording"))
    };
    assert!(is_doubted(&folder.path().join("a.data")));
    assert!(!is_doubted(folder.path()));
}

fn everything(bytes: Vec<u8>) {
    let mut tally = Tally::default();
    if let Ok(profile) = read(Input::stream(Cursor::new(bytes)), &mut tally) {
        let symbols = resolved(&profile);
        let hot = Hot::new(&profile, &symbols, &tally, &[SortKey::Comm, SortKey::Symbol]);
        for event in 0..profile.events.len() {
            for row in hot.rows(event) {
                let _ = hot.tree(event, row, pmux::profile::Order::Callee, 1);
            }
        }
    }
}

proptest! {
    // Each may read the names of the kernel.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_broken_recording_is_read_as_far_as_it_goes(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = story().bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let length = cut.index(bytes.len() * 2).min(bytes.len());
        bytes.truncate(length);
        everything(bytes);
    }

    #[test]
    fn a_chain_among_others_means_what_it_means_alone(
        story in prop::collection::vec((0_u8..8, 0_usize..4, 0_usize..4, 0_usize..4), 1..24),
    ) {
        const PLACES: [u64; 4] = [0x1010, 0x1021, 0x2010, 0xffff_ffff_8100_0000];
        // Maps, programs that are executed, and samples, of two processes that are called alike.
        let put = |made: &mut Made, time: u64, (what, a, b, c): (u8, usize, usize, usize)| {
            let tid = 5 + a as u32 % 2;
            match what {
                0 => made.map(time, tid, 0x1000, ["/bin/sh", "/bin/ls"][b % 2]),
                1 => made.map(time, tid, 0x2000 - 0x800 * (b as u64 % 2), "/lib/libc.so"),
                2 => made.comm(time, tid, "x", CommCause::Exec),
                _ => {
                    let chain = [PLACES[a], PLACES[b], PLACES[c], PLACES[0]];
                    made.sample(11, time, tid, &chain[..2 + usize::from(what) % 3]);
                }
            }
        };
        let (mut whole, mut before, mut alone) = (Made::new(), Made::new(), Vec::new());
        for (place, &step) in story.iter().enumerate() {
            put(&mut whole, 1 + place as u64, step);
            if step.0 < 3 {
                put(&mut before, 1 + place as u64, step);
            } else {
                let mut one = Made { records: before.records.clone(), ..Made::new() };
                put(&mut one, 1 + place as u64, step);
                let (_, lines) = read_lines(Input::file(one.file()));
                alone.extend(lines);
            }
        }
        let (_, lines) = read_lines(Input::file(whole.file()));
        prop_assert_eq!(lines, alone);
    }

    #[test]
    fn records_that_are_any_bytes(junk in prop::collection::vec(any::<u8>(), 0..400), at in any::<prop::sample::Index>()) {
        let mut made = story();
        let mut record = vec![0; 8];
        record[0] = junk.first().copied().unwrap_or(0) % 100;
        record[4] = junk.get(1).copied().unwrap_or(0);
        record.extend(&junk);
        record.resize(record.len().next_multiple_of(8), 0);
        let size = record.len() as u16;
        record[6..8].copy_from_slice(&size.to_ne_bytes());
        let mut ends = vec![0];
        let mut rest = &made.records[..];
        while let Ok((_, _, behind)) = pmux::profile::records::RecordHeader::split(rest) {
            rest = behind;
            ends.push(made.records.len() - rest.len());
        }
        let place = ends[at.index(ends.len())];
        made.records.splice(place..place, record);
        everything(made.bytes());
    }
}
