//! Whole records: header, body, id.
//!
//! Read first: [`decode_record`] for the order of the checks.
//!
//! **Invariant:** the id is split off from the end before the body is looked at, so no body can reach into it.

use super::{
    Aux, AuxOutputHwId, BpfEvent, CallchainDeferred, Cgroup, Comm, ItraceStart, Ksymbol, Lost, LostSamples, Misc, Mmap,
    Mmap2, Namespaces, Read, Record, RecordError, RecordHeader, RecordKind, Sample, SampleId, SampleLayout,
    SwitchCpuWide, SwitchDirection, Task, TextPoke, Throttle, sample_codec,
};
use crate::bytes::{Reader, Writer};

/// Reads the record at the start of the bytes, and the id at its end.
///
/// What follows the record is not looked at. The id is there exactly if the layout has `sample_id_all` and the record
/// is one that the kernel writes, other than a sample. Fields that a newer kernel put after the known ones of a
/// record, other than a sample, are left out.
///
/// # Errors
///
/// In this order: those of [`RecordHeader::split`]: [`RecordError::Truncated`], [`RecordError::BadSize`]; [`RecordError::Malformed`].
///
/// ```
/// use pmux_abi::attr::{Attr, AttrFlags, SampleFormat};
/// use pmux_abi::record::{
///     Comm, CommCause, Misc, Record, SampleId, SampleLayout, decode_record, encode_record,
/// };
///
/// let layout = SampleLayout::new(&Attr {
///     sample: SampleFormat::TIME,
///     flags: AttrFlags::COMM | AttrFlags::SAMPLE_ID_ALL,
///     ..Attr::default()
/// });
/// let comm = Record::Comm(Comm { pid: 7, tid: 7, cause: CommCause::Exec, comm: b"ls" });
/// let id = SampleId { time: Some(1234), ..SampleId::default() };
///
/// let mut bytes = [0; 64];
/// let len = encode_record(&comm, Some(&id), Misc::USER, &layout, &mut bytes)?;
/// assert_eq!(len, 8 + 8 + 8 + 8);
/// assert_eq!(decode_record(&bytes, &layout)?, (comm, Some(id)));
/// # Ok::<(), pmux_abi::record::RecordError>(())
/// ```
pub fn decode_record<'a>(
    bytes: &'a [u8],
    layout: &SampleLayout,
) -> Result<(Record<'a>, Option<SampleId>), RecordError> {
    let (header, payload, _) = RecordHeader::split(bytes)?;
    if header.kind == RecordKind::SAMPLE {
        let sample = sample_codec::decode(payload, layout).ok_or(RecordError::Malformed)?;
        return Ok((Record::Sample(sample), None));
    }
    let has_id = header.kind.has_sample_id() && layout.has_sample_id();
    let decoded = match has_id {
        true => decode_with_id(header, payload, layout),
        false => decode_body(header, payload, layout).map(|record| (record, None)),
    };
    decoded.ok_or(RecordError::Malformed)
}

type Decoded<'a> = (Record<'a>, Option<SampleId>);

/// The id is split off first, so no body can reach into it.
fn decode_with_id<'a>(header: RecordHeader, payload: &'a [u8], layout: &SampleLayout) -> Option<Decoded<'a>> {
    let payload = layout.own_payload(header, payload);
    let (body, tail) = payload.split_at_checked(payload.len().checked_sub(layout.sample_id_size())?)?;
    let record = decode_body(header, body, layout)?;
    Some((record, Some(SampleId::read(tail, layout)?)))
}

/// Reads what a sample at the start of the bytes has up to its period, and leaves the rest out.
///
/// `None` for what is no sample, for one that [`decode_record`] refuses, and for layouts with a field of any length other than a call
/// chain and raw data: these are to be decoded as a whole.
#[must_use]
pub fn decode_sample_front<'a>(bytes: &'a [u8], layout: &SampleLayout) -> Option<Sample<'a>> {
    let (header, payload, _) = RecordHeader::split(bytes).ok()?;
    (header.kind == RecordKind::SAMPLE).then(|| sample_codec::decode_front(payload, layout))?
}

fn decode_body<'a>(header: RecordHeader, body: &'a [u8], layout: &SampleLayout) -> Option<Record<'a>> {
    let RecordHeader { kind, misc, .. } = header;
    let r = &mut Reader::new(body);
    Some(match kind {
        RecordKind::MMAP => Record::Mmap(Mmap::read(r, misc)?),
        RecordKind::LOST => Record::Lost(Lost::read(r)?),
        RecordKind::COMM => Record::Comm(Comm::read(r, misc)?),
        RecordKind::EXIT => Record::Exit(Task::read(r)?),
        RecordKind::THROTTLE => Record::Throttle(Throttle::read(r)?),
        RecordKind::UNTHROTTLE => Record::Unthrottle(Throttle::read(r)?),
        RecordKind::FORK => Record::Fork(Task::read(r)?),
        RecordKind::READ => Record::Read(Read::read_from(r, layout)?),
        RecordKind::MMAP2 => Record::Mmap2(Mmap2::read(r, misc)?),
        RecordKind::AUX => Record::Aux(Aux::read(r)?),
        RecordKind::ITRACE_START => Record::ItraceStart(ItraceStart::read(r)?),
        RecordKind::LOST_SAMPLES => Record::LostSamples(LostSamples::read(r)?),
        RecordKind::SWITCH => Record::Switch(SwitchDirection::from_misc(misc)),
        RecordKind::SWITCH_CPU_WIDE => Record::SwitchCpuWide(SwitchCpuWide::read(r, misc)?),
        RecordKind::NAMESPACES => Record::Namespaces(Namespaces::read(r)?),
        RecordKind::KSYMBOL => Record::Ksymbol(Ksymbol::read(r)?),
        RecordKind::BPF_EVENT => Record::BpfEvent(BpfEvent::read(r)?),
        RecordKind::CGROUP => Record::Cgroup(Cgroup::read(r)?),
        RecordKind::TEXT_POKE => Record::TextPoke(TextPoke::read(r)?),
        RecordKind::AUX_OUTPUT_HW_ID => Record::AuxOutputHwId(AuxOutputHwId::read(r)?),
        RecordKind::CALLCHAIN_DEFERRED => Record::CallchainDeferred(CallchainDeferred::read(r)?),
        kind => Record::Unknown { kind, payload: body },
    })
}

/// Writes a record with its header and its id, and returns its bytes, a multiple of 8.
///
/// The bits of `misc` that a field of the record stands for are set as that field says; see [`Record::misc`]. Strings
/// get a zero byte and are padded to 8 bytes with zeros. [`super::Sample::raw`] is padded with zeros, which become
/// part of it. Fields that the decoder doesn't show are zero.
///
/// # Errors
///
/// In this order: [`RecordError::Mismatch`] of a field or of the id; [`RecordError::TooLong`]: more than 65,528 bytes;
/// [`RecordError::NoSpace`]: more bytes than `out` has. After an error the contents of `out` mean nothing.
pub fn encode_record(
    record: &Record<'_>,
    id: Option<&SampleId>,
    misc: Misc,
    layout: &SampleLayout,
    out: &mut [u8],
) -> Result<usize, RecordError> {
    let have = out.len();
    let mut w = Writer::new(out);
    w.u32(record.kind().0);
    w.u16(record.misc(misc).0);
    w.u16(0);
    encode_body(record, &mut w, layout).ok_or(RecordError::Mismatch)?;
    encode_id(record.kind(), id, &mut w, layout).ok_or(RecordError::Mismatch)?;

    let need = w.len();
    if need > RecordHeader::MAX_RECORD {
        return Err(RecordError::TooLong { need });
    }
    let size = u16::try_from(need).map_err(|_| RecordError::TooLong { need })?;
    if need > have {
        return Err(RecordError::NoSpace { need, have });
    }
    // The size is known only now, and belongs near the front.
    let mut head = Writer::new(out);
    let _kind_and_misc = head.room(6);
    head.u16(size);
    Ok(need)
}

fn encode_body(record: &Record<'_>, w: &mut Writer<'_>, layout: &SampleLayout) -> Option<()> {
    match record {
        Record::Mmap(mmap) => mmap.write(w)?,
        Record::Lost(lost) => lost.write(w),
        Record::Comm(comm) => comm.write(w)?,
        Record::Exit(task) | Record::Fork(task) => task.write(w),
        Record::Throttle(throttle) | Record::Unthrottle(throttle) => throttle.write(w),
        Record::Read(read) => read.write(w, layout)?,
        Record::Sample(sample) => sample_codec::encode(sample, w, layout)?,
        Record::Mmap2(mmap) => mmap.write(w)?,
        Record::Aux(aux) => aux.write(w),
        Record::ItraceStart(start) => start.write(w),
        Record::LostSamples(lost) => lost.write(w),
        Record::Switch(_) => {}
        Record::SwitchCpuWide(switch) => switch.write(w),
        Record::Namespaces(namespaces) => namespaces.write(w),
        Record::Ksymbol(symbol) => symbol.write(w)?,
        Record::BpfEvent(event) => event.write(w),
        Record::Cgroup(cgroup) => cgroup.write(w)?,
        Record::TextPoke(poke) => poke.write(w),
        Record::AuxOutputHwId(id) => id.write(w),
        Record::CallchainDeferred(chain) => chain.write(w),
        Record::Unknown { payload, .. } => {
            w.put(payload);
            return payload.len().is_multiple_of(8).then_some(());
        }
    }
    Some(())
}

fn encode_id(kind: RecordKind, id: Option<&SampleId>, w: &mut Writer<'_>, layout: &SampleLayout) -> Option<()> {
    match (kind.has_sample_id() && layout.has_sample_id(), id) {
        (true, Some(id)) => id.write(w, layout),
        // An id without fields is as good as none.
        (true, None) => (layout.sample_id_size() == 0).then_some(()),
        (false, id) => id.is_none().then_some(()),
    }
}
