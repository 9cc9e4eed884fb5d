//! Records at random: what is encoded decodes to itself, what decodes encodes to the same bytes, no bytes panic.

use pmux_abi::Array;
use pmux_abi::attr::{Attr, AttrFlags, BranchSample, ReadFormat, SampleFormat as F};
use pmux_abi::read::{ReadMember, ReadValues};
use pmux_abi::record::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// An attribute of which only what shapes records is set.
fn shape() -> impl Strategy<Value = Attr> {
    // Few fields at a time reach the later ones more often; now and then all of them.
    let format = prop_oneof![
        4 => (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| a & b & c),
        1 => any::<u64>(),
    ];
    let words = (format, any::<u64>(), any::<u64>(), any::<[u64; 2]>());
    (words, any::<bool>()).prop_map(|((format, read, branch, regs), id_all)| Attr {
        sample: F::from_bits_truncate(format),
        read_format: ReadFormat::from_bits_truncate(read),
        branch_sample: BranchSample::from_bits_truncate(branch),
        sample_regs_user: regs[0] & 0xff,
        sample_regs_intr: regs[1] & 0x1f,
        flags: if id_all { AttrFlags::SAMPLE_ID_ALL } else { AttrFlags::empty() },
        ..Attr::default()
    })
}

/// What records are made of: they only borrow.
#[derive(Debug, Clone)]
struct Parts {
    n: [u64; 20],
    text: Vec<u8>,
    bytes: Vec<u8>,
    words: Vec<u64>,
    members: Vec<ReadMember>,
    branches: Vec<Branch>,
    counters: Vec<u64>,
    namespaces: Vec<Namespace>,
    regs: Vec<u64>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let member = any::<(u64, u64, u64)>();
    let branch = any::<(u64, u64, u64)>();
    (
        any::<[u64; 20]>(),
        vec(1..=u8::MAX, 0..40),
        vec(any::<u8>(), 0..40),
        vec(any::<u64>(), 0..8),
        vec(member, 1..4),
        vec(branch, 0..4),
        vec(any::<u64>(), 16),
    )
        .prop_map(|(n, text, bytes, words, members, branches, regs)| Parts {
            n,
            text,
            bytes,
            words,
            members: members
                .into_iter()
                .map(|(value, id, lost)| ReadMember { value, id: Some(id), lost: Some(lost) })
                .collect(),
            counters: branches.iter().map(|&(from, ..)| !from).collect(),
            namespaces: branches.iter().map(|&(dev, inode, _)| Namespace { dev, inode }).collect(),
            branches: branches
                .into_iter()
                .map(|(from, to, info)| Branch { from, to, info: BranchInfo(info) })
                .collect(),
            regs,
        })
}

impl Parts {
    /// Leaves out of the members what the read format lacks.
    fn fit(&mut self, format: ReadFormat) {
        if !format.contains(ReadFormat::GROUP) {
            self.members.truncate(1);
        }
        for member in &mut self.members {
            member.id = member.id.filter(|_| format.contains(ReadFormat::ID));
            member.lost = member.lost.filter(|_| format.contains(ReadFormat::LOST));
        }
    }

    fn half(&self, index: usize) -> u32 {
        (self.n[index] >> 32) as u32
    }

    fn words_of_bytes(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() / 8 * 8]
    }

    fn values(&self, format: ReadFormat) -> ReadValues<'_> {
        ReadValues {
            time_enabled: format.contains(ReadFormat::TOTAL_TIME_ENABLED).then_some(self.n[0]),
            time_running: format.contains(ReadFormat::TOTAL_TIME_RUNNING).then_some(self.n[1]),
            ..ReadValues::of(&self.members)
        }
    }

    fn task_id(&self) -> TaskId {
        let (pid, tid) = (self.half(2), self.half(3));
        TaskId { pid, tid }
    }

    fn sample_id(&self, layout: &SampleLayout) -> SampleId {
        let has = |bit| layout.format().contains(bit);
        SampleId {
            task: has(F::TID).then(|| self.task_id()),
            time: has(F::TIME).then_some(self.n[4]),
            id: has(F::ID).then_some(self.n[5]),
            stream_id: has(F::STREAM_ID).then_some(self.n[6]),
            cpu: has(F::CPU).then_some(self.half(7)),
            identifier: has(F::IDENTIFIER).then_some(self.n[8]),
        }
    }

    fn regs(&self, mask: u64) -> Regs<'_> {
        let abi = RegsAbi(self.n[9] % 3);
        let count = if abi == RegsAbi::NONE { 0 } else { mask.count_ones() as usize };
        Regs { abi, values: Array::from(&self.regs[..count]) }
    }

    fn branch_stack(&self, branch: BranchSample) -> BranchStack<'_> {
        let has = |bit| branch.contains(bit);
        BranchStack {
            hw_idx: has(BranchSample::HW_INDEX).then_some(self.n[10]),
            branches: Array::from(&self.branches[..]),
            counters: has(BranchSample::COUNTERS).then_some(Array::from(&self.counters[..])),
        }
    }

    fn sample(&self, attr: &Attr, layout: &SampleLayout) -> Sample<'_> {
        let has = |bit| layout.format().contains(bit);
        let id = self.sample_id(layout);
        let stack = self.words_of_bytes();
        let raw = &self.bytes[..(self.bytes.len() / 8 * 8).saturating_sub(4)];
        let raw = if raw.is_empty() { &[0; 4][..] } else { raw };
        Sample {
            identifier: id.identifier,
            ip: has(F::IP).then_some(self.n[11]),
            task: id.task,
            time: id.time,
            addr: has(F::ADDR).then_some(self.n[12]),
            id: id.id,
            stream_id: id.stream_id,
            cpu: id.cpu,
            period: has(F::PERIOD).then_some(self.n[13]),
            read: has(F::READ).then(|| self.values(attr.read_format)),
            callchain: has(F::CALLCHAIN).then_some(Array::from(&self.words[..])),
            raw: has(F::RAW).then_some(raw),
            branch_stack: has(F::BRANCH_STACK).then(|| self.branch_stack(attr.branch_sample)),
            regs_user: has(F::REGS_USER).then(|| self.regs(attr.sample_regs_user)),
            stack_user: has(F::STACK_USER)
                .then_some(UserStack { data: stack, dyn_size: if stack.is_empty() { 0 } else { self.n[14] } }),
            weight: (has(F::WEIGHT) || has(F::WEIGHT_STRUCT)).then_some(Weight(self.n[15])),
            data_src: has(F::DATA_SRC).then_some(self.n[16]),
            transaction: has(F::TRANSACTION).then_some(self.n[17]),
            regs_intr: has(F::REGS_INTR).then(|| self.regs(attr.sample_regs_intr)),
            phys_addr: has(F::PHYS_ADDR).then_some(self.n[18]),
            cgroup: has(F::CGROUP).then_some(self.n[19]),
            data_page_size: has(F::DATA_PAGE_SIZE).then_some(self.n[0]),
            code_page_size: has(F::CODE_PAGE_SIZE).then_some(self.n[1]),
            aux: has(F::AUX).then_some(stack),
        }
    }

    /// Makes the record of a number from 1 to 22 as the kernel numbers them, and of any other an unknown one.
    fn record(&self, number: u32, attr: &Attr, layout: &SampleLayout) -> Record<'_> {
        let n = &self.n;
        let TaskId { pid, tid } = self.task_id();
        let task = Task { pid, ppid: self.half(4), tid, ptid: self.half(5), time: n[6] };
        let throttle = Throttle { time: n[0], id: n[1], stream_id: n[2] };
        let cause = if n[0].is_multiple_of(2) { CommCause::Rename } else { CommCause::Exec };
        let direction = match n[0] % 3 {
            0 => SwitchDirection::In,
            1 => SwitchDirection::Out,
            _ => SwitchDirection::OutPreempted,
        };
        let kind = if n[1].is_multiple_of(2) { MapKind::Code } else { MapKind::Data };
        let (addr, len, pgoff, filename) = (n[4], n[5], n[6], &self.text[..]);
        let source = match BuildId::new(&self.text) {
            Some(id) => MapSource::BuildId(id),
            None => MapSource::Inode { major: self.half(7), minor: self.half(8), inode: n[9], generation: n[10] },
        };
        let (prot, flags) = (self.half(11), self.half(12));
        let (low, high) = (tid as u16, (tid >> 16) as u16);
        match number {
            1 => Record::Mmap(Mmap { pid, tid, addr, len, pgoff, kind, filename }),
            2 => Record::Lost(Lost { id: n[0], lost: n[1] }),
            3 => Record::Comm(Comm { pid, tid, cause, comm: &self.text }),
            4 => Record::Exit(task),
            5 => Record::Throttle(throttle),
            6 => Record::Unthrottle(throttle),
            7 => Record::Fork(task),
            8 => Record::Read(Read { pid, tid, values: self.values(attr.read_format) }),
            9 => Record::Sample(self.sample(attr, layout)),
            10 => Record::Mmap2(Mmap2 { pid, tid, addr, len, pgoff, source, prot, flags, kind, filename }),
            11 => Record::Aux(Aux { aux_offset: n[0], aux_size: n[1], flags: n[2] }),
            12 => Record::ItraceStart(ItraceStart { pid, tid }),
            13 => Record::LostSamples(LostSamples { lost: n[0] }),
            14 => Record::Switch(direction),
            15 => Record::SwitchCpuWide(SwitchCpuWide { direction, next_prev_pid: pid, next_prev_tid: tid }),
            16 => Record::Namespaces(Namespaces { pid, tid, namespaces: Array::from(&self.namespaces[..]) }),
            17 => Record::Ksymbol(Ksymbol { addr: n[0], len: pid, ksym_type: low, flags: high, name: &self.text }),
            18 => Record::BpfEvent(BpfEvent { event_type: low, flags: high, id: pid, tag: n[0].to_ne_bytes() }),
            19 => Record::Cgroup(Cgroup { id: n[0], path: &self.text }),
            20 => Record::TextPoke(TextPoke { addr: n[0], old: &self.bytes, new: &self.text }),
            21 => Record::AuxOutputHwId(AuxOutputHwId { hw_id: n[0] }),
            22 => Record::CallchainDeferred(CallchainDeferred { cookie: n[0], ips: Array::from(&self.words[..]) }),
            number => Record::Unknown { kind: RecordKind(number), payload: self.words_of_bytes() },
        }
    }
}

/// The numbers of all records, of one that is not known yet, and of one that tools use.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![20 => 1..=22_u32, 3 => Just(9), 1 => Just(40), 1 => Just(70)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn records_round_trip(attr in shape(), parts in parts(), number in number(), misc in any::<u16>()) {
        let mut parts = parts;
        parts.fit(attr.read_format);
        let layout = SampleLayout::new(&attr);
        let record = parts.record(number, &attr, &layout);
        prop_assert_eq!(record.kind(), RecordKind(number));
        let has_id = layout.has_sample_id() && record.kind().has_sample_id();
        let id = has_id.then(|| parts.sample_id(&layout));

        let mut out = [0xa5; 4096];
        let len = encode_record(&record, id.as_ref(), Misc(misc), &layout, &mut out).unwrap();
        prop_assert_eq!(len % 8, 0);
        prop_assert!(out[len..].iter().all(|&byte| byte == 0xa5));
        let header = RecordHeader::decode(&out).unwrap();
        prop_assert_eq!(usize::from(header.size), len);
        prop_assert_eq!(header.misc.cpu_mode(), Misc(misc).cpu_mode());
        prop_assert_eq!(decode_record(&out, &layout), Ok((record, id)));

        // What is found without decoding is what decoding finds.
        let (event_id, time) = match (record, id) {
            (Record::Sample(sample), _) => (sample.event_id(), sample.time),
            (_, Some(id)) => (id.event_id(), id.time),
            _ => (None, None),
        };
        prop_assert_eq!(layout.event_id(&out), event_id);
        prop_assert_eq!(layout.time(&out), time);

        // Cut anywhere, it is an error and no panic; so is a buffer too small.
        for end in (0..len).step_by(8) {
            prop_assert!(decode_record(&out[..end], &layout).is_err());
            let have = end;
            let mut small = vec![0; have];
            let encoded = encode_record(&record, id.as_ref(), Misc(misc), &layout, &mut small);
            prop_assert_eq!(encoded, Err(RecordError::NoSpace { need: len, have }));
        }
    }

    #[test]
    fn what_is_decoded_encodes_to_the_same_bytes(
        attr in shape(),
        number in number(),
        misc in any::<u16>(),
        words in vec(prop_oneof![3 => 0..4_u64, 1 => any::<u64>()], 0..40),
    ) {
        let raw = super::record_bytes::record(RecordKind(number), misc, &words);
        let layout = SampleLayout::new(&attr);
        let Ok((record, id)) = decode_record(&raw, &layout) else { return Ok(()) };

        let mut once = [0; 512];
        let len = encode_record(&record, id.as_ref(), Misc(misc), &layout, &mut once).unwrap();
        // Padding, reserved halves and fields of newer kernels are not kept; all the rest is.
        prop_assert!(len <= raw.len());
        prop_assert_eq!(decode_record(&once, &layout), Ok((record, id)));
        let has_reserved_half = layout.format().contains(F::CPU);
        let is_exact = matches!(record, Record::Sample(_) | Record::Unknown { .. });
        if is_exact && !has_reserved_half {
            prop_assert_eq!(&once[..len], &raw[..]);
        }
        let mut twice = [0; 512];
        let again = encode_record(&record, id.as_ref(), Misc(misc), &layout, &mut twice);
        prop_assert_eq!(again, Ok(len));
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn no_bytes_panic(attr in shape(), number in any::<Option<u8>>(), raw in vec(any::<u8>(), 8..300)) {
        let mut raw = raw;
        if let Some(number) = number {
            // A header that is right, so that the random bytes get as far as the fields.
            let size = (raw.len() / 8 * 8) as u16;
            raw[..4].copy_from_slice(&u32::from(number % 24).to_ne_bytes());
            raw[6..8].copy_from_slice(&size.to_ne_bytes());
        }
        let layout = SampleLayout::new(&attr);
        let _whatever = (layout.event_id(&raw), layout.time(&raw));
        for record in Records::new(&raw).flatten() {
            if let Ok((record, id)) = decode_record(record, &layout) {
                let again = encode_record(&record, id.as_ref(), Misc::default(), &layout, &mut [0; 512]);
                prop_assert!(again.is_ok_and(|len| len <= raw.len()), "{record:?}: {again:?}");
            }
        }
    }
}
