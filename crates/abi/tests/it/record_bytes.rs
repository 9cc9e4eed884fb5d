//! Records, byte by byte: hand-made bytes for the layouts, the checks and their order.

use pmux_abi::Array;
use pmux_abi::attr::{Attr, AttrFlags, BranchSample, ReadFormat, SampleFormat};
use pmux_abi::read::{ReadMember, ReadValues};
use pmux_abi::record::*;

/// A record of words, with its header.
pub(crate) fn record(kind: RecordKind, misc: u16, words: &[u64]) -> Vec<u8> {
    let size = u16::try_from(8 + 8 * words.len()).unwrap();
    let mut bytes = kind.0.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// Two halves of a word, in the order of the bytes.
fn pair(first: u32, second: u32) -> u64 {
    u64::from_le_bytes([first.to_le_bytes(), second.to_le_bytes()].concat().try_into().unwrap())
}

/// Eight bytes of text.
fn text(text: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*text)
}

fn layout(sample: SampleFormat, flags: AttrFlags) -> SampleLayout {
    SampleLayout::new(&Attr { sample, flags, ..Attr::default() })
}

/// Decodes and encodes again: both must be as expected.
fn check(bytes: &[u8], layout: &SampleLayout, expected: Record<'_>, id: Option<SampleId>) {
    let (seen, seen_id) = decode_record(bytes, layout).unwrap();
    assert_eq!(seen, expected);
    assert_eq!(seen_id, id);
    let misc = RecordHeader::decode(bytes).unwrap().misc;
    let mut out = vec![0xff; bytes.len() + 8];
    let len = encode_record(&expected, id.as_ref(), misc, layout, &mut out).unwrap();
    assert_eq!(out[..len], *bytes);
    // The misc bits that the record stands for don't depend on those given.
    let other = encode_record(&expected, id.as_ref(), Misc(!misc.0), layout, &mut out).unwrap();
    assert_eq!(decode_record(&out[..other], layout).unwrap(), (expected, id));
}

fn check_plain(kind: RecordKind, misc: u16, words: &[u64], expected: Record<'_>) {
    let layout = layout(SampleFormat::empty(), AttrFlags::empty());
    check(&record(kind, misc, words), &layout, expected, None);
}

#[test]
fn records_of_a_fixed_size() {
    use RecordKind as K;
    let lost = Lost { id: 1, lost: 2 };
    check_plain(K::LOST, 0, &[1, 2], Record::Lost(lost));
    let task = Task { pid: 1, ppid: 2, tid: 3, ptid: 4, time: 5 };
    let words = [pair(1, 2), pair(3, 4), 5];
    check_plain(K::EXIT, 0, &words, Record::Exit(task));
    check_plain(K::FORK, 0, &words, Record::Fork(task));
    let throttle = Throttle { time: 1, id: 2, stream_id: 3 };
    check_plain(K::THROTTLE, 0, &[1, 2, 3], Record::Throttle(throttle));
    check_plain(K::UNTHROTTLE, 0, &[1, 2, 3], Record::Unthrottle(throttle));
    let aux = Aux { aux_offset: 1, aux_size: 2, flags: 4 };
    check_plain(K::AUX, 0, &[1, 2, 4], Record::Aux(aux));
    let start = ItraceStart { pid: 1, tid: 2 };
    check_plain(K::ITRACE_START, 0, &[pair(1, 2)], Record::ItraceStart(start));
    check_plain(K::LOST_SAMPLES, 0, &[9], Record::LostSamples(LostSamples { lost: 9 }));
    let hw_id = AuxOutputHwId { hw_id: 9 };
    check_plain(K::AUX_OUTPUT_HW_ID, 0, &[9], Record::AuxOutputHwId(hw_id));
    let tag = *b"12345678";
    let bpf = BpfEvent { event_type: BpfEvent::PROG_UNLOAD, flags: 3, id: 4, tag };
    let words = [2 | 3 << 16 | 4 << 32, text(&tag)];
    check_plain(K::BPF_EVENT, 0, &words, Record::BpfEvent(bpf));
}

#[test]
fn switches_take_their_direction_from_misc() {
    use SwitchDirection::*;
    for (misc, direction) in [(0, In), (1 << 13, Out), (3 << 13, OutPreempted)] {
        check_plain(RecordKind::SWITCH, misc, &[], Record::Switch(direction));
        let wide = SwitchCpuWide { direction, next_prev_pid: 1, next_prev_tid: 2 };
        let words = [pair(1, 2)];
        check_plain(RecordKind::SWITCH_CPU_WIDE, misc, &words, Record::SwitchCpuWide(wide));
    }
}

#[test]
fn strings_end_with_a_zero_and_are_padded() {
    for (misc, cause) in [(0, CommCause::Rename), (1 << 13, CommCause::Exec)] {
        let comm = Comm { pid: 1, tid: 2, cause, comm: b"sevenby" };
        let words = [pair(1, 2), text(b"sevenby\0")];
        check_plain(RecordKind::COMM, misc, &words, Record::Comm(comm));
        let comm = Comm { comm: b"eightbyt", ..comm };
        let words = [pair(1, 2), text(b"eightbyt"), 0];
        check_plain(RecordKind::COMM, misc, &words, Record::Comm(comm));
        let comm = Comm { comm: b"", ..comm };
        check_plain(RecordKind::COMM, misc, &[pair(1, 2), 0], Record::Comm(comm));
    }
    let cgroup = Cgroup { id: 7, path: b"/" };
    check_plain(RecordKind::CGROUP, 0, &[7, text(b"/\0\0\0\0\0\0\0")], Record::Cgroup(cgroup));
    let symbol = Ksymbol { addr: 1, len: 2, ksym_type: 3, flags: Ksymbol::UNREGISTER, name: b"f" };
    let words = [1, 2 | 3 << 32 | 1 << 48, text(b"f\0\0\0\0\0\0\0")];
    check_plain(RecordKind::KSYMBOL, 0, &words, Record::Ksymbol(symbol));
}

#[test]
fn mappings() {
    for (misc, kind) in [(0, MapKind::Code), (1 << 13, MapKind::Data)] {
        let mmap = Mmap { pid: 1, tid: 2, addr: 3, len: 4, pgoff: 5, kind, filename: b"/bin/sh" };
        let words = [pair(1, 2), 3, 4, 5, text(b"/bin/sh\0")];
        check_plain(RecordKind::MMAP, misc, &words, Record::Mmap(mmap));

        let source = MapSource::Inode { major: 6, minor: 7, inode: 8, generation: 9 };
        let mmap =
            Mmap2 { pid: 1, tid: 2, addr: 3, len: 4, pgoff: 5, source, prot: 10, flags: 11, kind, filename: b"[heap]" };
        let name = text(b"[heap]\0\0");
        let words = [pair(1, 2), 3, 4, 5, pair(6, 7), 8, 9, pair(10, 11), name];
        check_plain(RecordKind::MMAP2, misc, &words, Record::Mmap2(mmap));

        let id = BuildId::new(b"abcdefghij").unwrap();
        assert_eq!(id.as_bytes(), b"abcdefghij");
        let mmap = Mmap2 { source: MapSource::BuildId(id), ..mmap };
        let id = [text(b"\x0a\0\0\0abcd"), text(b"efghij\0\0"), 0];
        let words = [pair(1, 2), 3, 4, 5, id[0], id[1], id[2], pair(10, 11), name];
        check_plain(RecordKind::MMAP2, misc | 1 << 14, &words, Record::Mmap2(mmap));

        let layout = layout(SampleFormat::empty(), AttrFlags::empty());
        let mut bytes = record(RecordKind::MMAP2, misc | 1 << 14, &words);
        bytes[40] = 21;
        assert_eq!(decode_record(&bytes, &layout), Err(RecordError::Malformed));
    }
    assert_eq!(BuildId::new(&[0; 21]), None);
    assert_eq!(BuildId::new(&[7; 20]).unwrap().as_bytes(), [7; 20]);
}

#[test]
fn records_with_arrays() {
    let items = [Namespace { dev: 3, inode: 4 }, Namespace { dev: 5, inode: 6 }];
    let namespaces = Namespaces { pid: 1, tid: 2, namespaces: Array::from(&items[..]) };
    let words = [pair(1, 2), 2, 3, 4, 5, 6];
    check_plain(RecordKind::NAMESPACES, 0, &words, Record::Namespaces(namespaces));

    let ips = Array::from(&[callchain::USER, 8][..]);
    let deferred = CallchainDeferred { cookie: 5, ips };
    let words = [5, 2, callchain::USER, 8];
    check_plain(RecordKind::CALLCHAIN_DEFERRED, 0, &words, Record::CallchainDeferred(deferred));

    let poke = TextPoke { addr: 1, old: &[9, 8], new: &[7] };
    let words = [1, text(&[2, 0, 1, 0, 9, 8, 7, 0])];
    check_plain(RecordKind::TEXT_POKE, 0, &words, Record::TextPoke(poke));
    let poke = TextPoke { addr: 1, old: &[], new: &[1, 2, 3, 4, 5] };
    let words = [1, text(&[0, 0, 5, 0, 1, 2, 3, 4]), 5];
    check_plain(RecordKind::TEXT_POKE, 0, &words, Record::TextPoke(poke));
}

#[test]
fn read_records_follow_the_read_format() {
    let format = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID;
    let attr = Attr {
        read_format: format,
        sample: SampleFormat::TID | SampleFormat::TIME,
        flags: AttrFlags::INHERIT_STAT | AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    let members = [ReadMember { value: 100, id: Some(3), lost: None }];
    let values = ReadValues { time_enabled: Some(20), time_running: Some(10), ..ReadValues::of(&members) };
    let read = Record::Read(Read { pid: 1, tid: 2, values });
    let id = SampleId { task: Some(TaskId { pid: 1, tid: 2 }), time: Some(77), ..SampleId::default() };
    let bytes = record(RecordKind::READ, 0, &[pair(1, 2), 100, 20, 10, 3, pair(1, 2), 77]);
    check(&bytes, &SampleLayout::new(&attr), read, Some(id));
}

#[test]
fn the_id_stands_at_the_end_in_the_kernels_order() {
    use SampleFormat as F;
    let format = F::TID | F::TIME | F::ID | F::STREAM_ID | F::CPU | F::IDENTIFIER | F::IP | F::READ;
    let layout = layout(format, AttrFlags::SAMPLE_ID_ALL);
    assert_eq!(layout.sample_id_size(), 48);
    let task = Some(TaskId { pid: 1, tid: 2 });
    let id = SampleId { task, time: Some(3), id: Some(4), stream_id: Some(5), cpu: Some(6), identifier: Some(4) };
    let bytes = record(RecordKind::LOST_SAMPLES, 0, &[99, pair(1, 2), 3, 4, 5, pair(6, 0), 4]);
    check(&bytes, &layout, Record::LostSamples(LostSamples { lost: 99 }), Some(id));
    assert_eq!(layout.event_id(&bytes), Some(4));
    assert_eq!(layout.time(&bytes), Some(3));
    assert_eq!(layout.time(&bytes[..bytes.len() - 8]), None, "not a whole record");

    // The id is split off first: without room for it nothing else is looked at.
    let short = record(RecordKind::COMM, 0, &[1, 2, 3, 4, 5]);
    assert_eq!(decode_record(&short, &layout), Err(RecordError::Malformed));
    // A body never reaches into the id: here the string's zero would be in it.
    let words = [pair(1, 2), u64::MAX, pair(1, 2), 3, 4, 5, pair(6, 0), 4];
    let open = record(RecordKind::COMM, 0, &words);
    assert_eq!(decode_record(&open, &layout), Err(RecordError::Malformed));
}

#[test]
fn ids_and_times_are_found_without_decoding() {
    let ip_time_id = SampleFormat::IP | SampleFormat::TIME | SampleFormat::ID | SampleFormat::CPU;
    let fields = layout(ip_time_id, AttrFlags::SAMPLE_ID_ALL);
    let sample = record(RecordKind::SAMPLE, 0, &[1, 2, 3, pair(4, 0)]);
    assert_eq!((fields.time(&sample), fields.event_id(&sample)), (Some(2), Some(3)));
    let lost = record(RecordKind::LOST_SAMPLES, 0, &[9, 2, 3, pair(4, 0)]);
    assert_eq!((fields.time(&lost), fields.event_id(&lost)), (Some(2), Some(3)));
    // Too short for its id: the answer is none, not the header.
    let short = record(RecordKind::SWITCH, 0, &[1, 2]);
    assert_eq!(fields.time(&short), None);
    let tool = record(RecordKind(80), 0, &[9, 2, 3, 4]);
    assert_eq!((fields.time(&tool), fields.event_id(&tool)), (None, None));

    let without_id_all = layout(ip_time_id, AttrFlags::empty());
    assert_eq!(without_id_all.time(&sample), Some(2));
    assert_eq!(without_id_all.time(&lost), None);
    let nothing = layout(SampleFormat::IP, AttrFlags::SAMPLE_ID_ALL);
    assert_eq!((nothing.time(&sample), nothing.event_id(&sample)), (None, None));
}

#[test]
fn a_sample_with_every_field() {
    let attr = Attr {
        // WEIGHT and WEIGHT_STRUCT are one place with two names.
        sample: SampleFormat::all() - SampleFormat::WEIGHT,
        read_format: ReadFormat::GROUP,
        branch_sample: BranchSample::ANY | BranchSample::HW_INDEX | BranchSample::COUNTERS,
        sample_regs_user: 0b101,
        sample_regs_intr: 0b10,
        ..Attr::default()
    };
    let members = [ReadMember { value: 50, ..ReadMember::default() }];
    let branches = [Branch { from: 61, to: 62, info: BranchInfo(63) }];
    let sample = Sample {
        identifier: Some(1),
        ip: Some(2),
        task: Some(TaskId { pid: 3, tid: 4 }),
        time: Some(5),
        addr: Some(6),
        id: Some(7),
        stream_id: Some(8),
        cpu: Some(9),
        period: Some(10),
        read: Some(ReadValues::of(&members)),
        callchain: Some(Array::from(&[callchain::KERNEL, 52][..])),
        raw: Some(&[1, 2, 3, 4]),
        branch_stack: Some(BranchStack {
            hw_idx: Some(60),
            branches: Array::from(&branches[..]),
            counters: Some(Array::from(&[64][..])),
        }),
        regs_user: Some(Regs { abi: RegsAbi::BITS_64, values: Array::from(&[70, 71][..]) }),
        stack_user: Some(UserStack { data: &[5; 16], dyn_size: 8 }),
        weight: Some(Weight(72 | 73 << 32 | 74 << 48)),
        data_src: Some(75),
        transaction: Some(76),
        regs_intr: Some(Regs { abi: RegsAbi::NONE, values: Array::default() }),
        phys_addr: Some(77),
        cgroup: Some(78),
        data_page_size: Some(79),
        code_page_size: Some(80),
        aux: Some(&[6; 8]),
    };
    let words = [
        &[1, 2, pair(3, 4), 5, 6, 7, 8, pair(9, 0), 10][..],
        &[1, 50],
        &[2, callchain::KERNEL, 52],
        &[text(&[4, 0, 0, 0, 1, 2, 3, 4])],
        &[1, 60, 61, 62, 63, 64],
        &[2, 70, 71],
        &[16, text(&[5; 8]), text(&[5; 8]), 8],
        &[72 | 73 << 32 | 74 << 48, 75, 76],
        &[0],
        &[77, 78, 79, 80],
        &[8, text(&[6; 8])],
    ]
    .concat();
    let bytes = record(RecordKind::SAMPLE, 1 << 14 | 2, &words);
    check(&bytes, &SampleLayout::new(&attr), Record::Sample(sample), None);
}

#[test]
fn an_empty_branch_stack_has_an_index_or_not() {
    let attr = Attr {
        sample: SampleFormat::BRANCH_STACK | SampleFormat::PHYS_ADDR,
        branch_sample: BranchSample::HW_INDEX,
        ..Attr::default()
    };
    let layout = SampleLayout::new(&attr);
    for (hw_idx, words) in [(Some(5), &[0, 5, 9][..]), (None, &[0, 9])] {
        let branch_stack = Some(BranchStack { hw_idx, ..BranchStack::default() });
        let sample = Sample { branch_stack, phys_addr: Some(9), ..Sample::default() };
        let bytes = record(RecordKind::SAMPLE, 0, words);
        check(&bytes, &layout, Record::Sample(sample), None);
    }
    // With branches there is no second way.
    let bytes = record(RecordKind::SAMPLE, 0, &[1, 5, 9]);
    assert_eq!(decode_record(&bytes, &layout), Err(RecordError::Malformed));
}

#[test]
fn samples_are_checked_to_the_last_byte() {
    for (sample, words) in [
        (SampleFormat::IP, &[][..]),
        (SampleFormat::IP, &[1, 2]),
        (SampleFormat::CALLCHAIN, &[]),
        (SampleFormat::CALLCHAIN, &[2, 5]),
        (SampleFormat::CALLCHAIN, &[1 << 61, 5]),
        (SampleFormat::CALLCHAIN, &[u64::MAX, 5]),
        (SampleFormat::BRANCH_STACK, &[2, 1, 2, 3]),
        (SampleFormat::BRANCH_STACK, &[1 << 61, 1, 2, 3]),
        (SampleFormat::BRANCH_STACK, &[u64::MAX, 1, 2, 3]),
        (SampleFormat::RAW, &[pair(5, 0)]),
        (SampleFormat::RAW, &[pair(12, 0)]),
        (SampleFormat::STACK_USER, &[4, 0]),
        (SampleFormat::STACK_USER, &[8, 0]),
        (SampleFormat::AUX, &[u64::MAX - 7]),
    ] {
        let bytes = record(RecordKind::SAMPLE, 0, words);
        let layout = layout(sample, AttrFlags::SAMPLE_ID_ALL);
        assert_eq!(decode_record(&bytes, &layout), Err(RecordError::Malformed), "{sample:?} {words:?}");
    }
}

#[test]
fn headers_are_checked_first() {
    let layout = SampleLayout::default();
    let truncated = |need, have| Err(RecordError::Truncated { need, have });
    assert_eq!(decode_record(&[0; 7], &layout), truncated(8, 7));
    let mut bytes = record(RecordKind::LOST, 0, &[1, 2]);
    for size in [0_u16, 7, 12, 23, 65_535] {
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        assert_eq!(decode_record(&bytes, &layout), Err(RecordError::BadSize { size }));
    }
    bytes[6..8].copy_from_slice(&32_u16.to_ne_bytes());
    assert_eq!(decode_record(&bytes, &layout), truncated(32, 24));
    bytes[6..8].copy_from_slice(&16_u16.to_ne_bytes());
    assert_eq!(decode_record(&bytes, &layout), Err(RecordError::Malformed), "what follows is not of this record");
}

#[test]
fn newer_fields_are_left_out_and_unknown_kinds_kept() {
    let layout = layout(SampleFormat::TIME, AttrFlags::SAMPLE_ID_ALL);
    let id = SampleId { time: Some(8), ..SampleId::default() };
    let bytes = record(RecordKind::LOST, 0, &[1, 2, 999, 8]);
    let lost = Record::Lost(Lost { id: 1, lost: 2 });
    assert_eq!(decode_record(&bytes, &layout), Ok((lost, Some(id))));

    let payload = 5_u64.to_ne_bytes();
    let newer = Record::Unknown { kind: RecordKind(40), payload: &payload };
    check(&record(RecordKind(40), 0, &[5, 8]), &layout, newer, Some(id));
    let tool = Record::Unknown { kind: RecordKind(68), payload: &payload };
    check(&record(RecordKind(68), 0, &[5]), &layout, tool, None);
}

#[test]
fn encoding_checks_fields_then_the_id_then_sizes() {
    use RecordError::*;
    let layout = layout(SampleFormat::IP | SampleFormat::TIME, AttrFlags::SAMPLE_ID_ALL);
    let id = SampleId { time: Some(1), ..SampleId::default() };
    let encode = |record: Record<'_>, id: Option<&SampleId>, len: usize| {
        let mut out = vec![0; len];
        encode_record(&record, id, Misc::default(), &layout, &mut out)
    };
    let comm = |comm| Record::Comm(Comm { comm, ..Comm::default() });
    let no_time = SampleId::default();
    let cpu = SampleId { cpu: Some(1), ..id };
    for (text, id) in [(&b"a\0b"[..], Some(&id)), (b"ab", None), (b"ab", Some(&no_time)), (b"ab", Some(&cpu))] {
        assert_eq!(encode(comm(text), id, 0), Err(Mismatch), "{id:?}");
    }
    let long = vec![b'x'; 65_528 - 8 - 8 - 8];
    assert_eq!(encode(comm(&long), Some(&id), 0), Err(TooLong { need: 65_536 }));
    let longest = &long[..long.len() - 1];
    assert_eq!(encode(comm(longest), Some(&id), 0), Err(NoSpace { need: 65_528, have: 0 }));
    assert_eq!(encode(comm(longest), Some(&id), 65_528), Ok(65_528));
    assert_eq!(encode(comm(b"ab"), Some(&id), 31), Err(NoSpace { need: 32, have: 31 }));
    assert_eq!(encode(comm(b"ab"), Some(&id), 32), Ok(32));
    let huge = vec![0; 70_000];
    let poke = TextPoke { new: &huge, ..TextPoke::default() };
    assert!(matches!(encode(Record::TextPoke(poke), Some(&id), 80_000), Err(TooLong { .. })));

    let sample = Sample { ip: Some(1), time: Some(2), ..Sample::default() };
    let of = Record::Sample;
    assert_eq!(encode(of(sample), None, 24), Ok(24));
    let (no_ip, addr) = (Sample { ip: None, ..sample }, Sample { addr: Some(1), ..sample });
    let odd = Record::Unknown { kind: RecordKind(70), payload: &[1] };
    for (record, id) in [(of(sample), Some(&id)), (of(no_ip), None), (of(addr), None), (odd, None)] {
        assert_eq!(encode(record, id, 24), Err(Mismatch), "{record:?}");
    }
}

#[test]
fn encoding_checks_the_values_of_a_read() {
    let two = [ReadMember { value: 1, id: Some(2), lost: None }; 2];
    let one = ReadValues::of(&two[..1]);
    let timed = ReadValues { time_enabled: Some(1), ..one };
    let alone = ReadValues::of(&two);
    for (format, values) in
        [(1, alone), (4, ReadValues::default()), (5, one), (4, timed), (6, one), (0, one), (8 | 4 | 16, one)]
    {
        let read_format = ReadFormat::from_bits_truncate(format);
        let layout = SampleLayout::new(&Attr { read_format, ..Attr::default() });
        let read = Record::Read(Read { values, ..Read::default() });
        let refused = encode_record(&read, None, Misc::default(), &layout, &mut [0; 64]);
        assert_eq!(refused, Err(RecordError::Mismatch), "{format} {values:?}");
    }
}

#[test]
fn encoding_checks_the_arrays_of_a_sample() {
    let attr = Attr {
        sample: SampleFormat::BRANCH_STACK | SampleFormat::REGS_USER | SampleFormat::STACK_USER,
        branch_sample: BranchSample::HW_INDEX | BranchSample::COUNTERS,
        sample_regs_user: 3,
        ..Attr::default()
    };
    let layout = SampleLayout::new(&attr);
    let one = [Branch::default()];
    let stack = BranchStack { hw_idx: Some(1), branches: Array::from(&one[..]), counters: Some(Array::from(&[1][..])) };
    let regs = Regs { abi: RegsAbi::BITS_64, values: Array::from(&[1, 2][..]) };
    let user = UserStack { data: &[0; 8], dyn_size: 8 };
    let encode = |stack, regs, user| {
        let sample =
            Sample { branch_stack: Some(stack), regs_user: Some(regs), stack_user: Some(user), ..Sample::default() };
        encode_record(&Record::Sample(sample), None, Misc::default(), &layout, &mut [0; 128])
    };
    assert_eq!(encode(stack, regs, user), Ok(8 + 48 + 24 + 24));
    let refused = Err(RecordError::Mismatch);
    for stack in [
        BranchStack { hw_idx: None, ..stack },
        BranchStack { counters: None, ..stack },
        BranchStack { counters: Some(Array::from(&[1, 2][..])), ..stack },
    ] {
        assert_eq!(encode(stack, regs, user), refused, "{stack:?}");
    }
    assert_eq!(encode(stack, Regs { abi: RegsAbi::NONE, ..regs }, user), refused);
    assert_eq!(encode(stack, regs, UserStack { data: &[0; 7], ..user }), refused);
    assert_eq!(encode(stack, regs, UserStack { data: &[], ..user }), refused);
}

#[test]
fn raw_data_is_padded_into_its_length() {
    let layout = layout(SampleFormat::RAW, AttrFlags::empty());
    for len in 0..20_usize {
        let data = vec![0xff; len];
        let sample = Sample { raw: Some(&data), ..Sample::default() };
        let mut out = [0; 64];
        let record = Record::Sample(sample);
        let size = encode_record(&record, None, Misc::default(), &layout, &mut out).unwrap();
        let (seen, _) = decode_record(&out[..size], &layout).unwrap();
        let Record::Sample(Sample { raw: Some(raw), .. }) = seen else { panic!("no raw data in {seen:?}") };
        assert_eq!(raw[..len], data);
        assert!(raw.len() - len < 8 && raw[len..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn walking_ends_at_the_first_fault() {
    let mut bytes = record(RecordKind::LOST_SAMPLES, 0, &[1]);
    bytes.extend(record(RecordKind::SWITCH, 0, &[]));
    let good = bytes.len();
    bytes.extend(record(RecordKind::LOST, 0, &[1, 2]));
    let mut records = Records::new(&bytes[..good + 20]);
    assert_eq!(records.next().unwrap().unwrap().len(), 16);
    assert_eq!(records.next().unwrap().unwrap().len(), 8);
    let truncated = RecordError::Truncated { need: 24, have: 20 };
    assert_eq!(records.next(), Some(Err(truncated)));
    assert_eq!(records.next(), None);
}
