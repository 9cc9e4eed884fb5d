//! What an attribute says about the layout of its records.
//!
//! Read first: [`SampleLayout`].
//!
//! **Invariant:** computed once from an attribute, then never again; finding an id or a time takes no search.

use super::{RecordHeader, RecordKind};
use crate::attr::{Attr, AttrFlags, BranchSample, ReadFormat, SampleFormat, SampleFormat as F};
use crate::bytes::u64_at;
use crate::read::ReadLayout;

/// Where the fields of an event's records are, computed once from its attribute.
///
/// ```
/// use pmux_abi::attr::{Attr, AttrFlags, SampleFormat};
/// use pmux_abi::record::SampleLayout;
///
/// let layout = SampleLayout::new(&Attr {
///     sample: SampleFormat::TID | SampleFormat::TIME | SampleFormat::IDENTIFIER,
///     flags: AttrFlags::SAMPLE_ID_ALL,
///     ..Attr::default()
/// });
/// assert_eq!(layout.sample_id_size(), 24);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SampleLayout {
    format: SampleFormat,
    read: ReadLayout,
    pub(super) branch: BranchSample,
    pub(super) regs_user: u8,
    pub(super) regs_intr: u8,
    /// Bytes of the trailing id; `None` without `sample_id_all`.
    id_size: Option<u8>,
    /// Where the event's id and the time are in a sample, from the start of the record.
    id_in_sample: Option<u8>,
    time_in_sample: Option<u8>,
    /// Where they are in any other record, back from its end.
    id_from_end: Option<u8>,
    time_from_end: Option<u8>,
    /// Words behind the raw data of a sample; `None` if other fields than that and the call chain can be of any length.
    pub(super) words_behind: Option<u8>,
}

/// The fields of a sample that can be of any length, but for the call chain and the raw data.
const OF_ANY_LENGTH: SampleFormat =
    F::READ.union(F::BRANCH_STACK).union(F::REGS_USER).union(F::STACK_USER).union(F::REGS_INTR).union(F::AUX);

/// The fields of one word each that come behind the raw data; the two weights are one.
const BEHIND: SampleFormat = F::DATA_SRC
    .union(F::TRANSACTION)
    .union(F::PHYS_ADDR)
    .union(F::CGROUP)
    .union(F::DATA_PAGE_SIZE)
    .union(F::CODE_PAGE_SIZE);

/// The fields that can come before an id or a time in a sample, in order.
const SAMPLE_HEAD: [SampleFormat; 6] = [F::IDENTIFIER, F::IP, F::TID, F::TIME, F::ADDR, F::ID];

/// The fields of the trailing id, in order.
const TAIL: [SampleFormat; 6] = [F::TID, F::TIME, F::ID, F::STREAM_ID, F::CPU, F::IDENTIFIER];

/// Bytes of those of the fields that the format has; each takes 8.
const fn bytes_of(format: SampleFormat, fields: &[SampleFormat]) -> u8 {
    let mut bytes = 0;
    let mut rest = fields;
    while let [field, others @ ..] = rest {
        if format.contains(*field) {
            bytes += 8;
        }
        rest = others;
    }
    bytes
}

impl SampleLayout {
    /// Returns true for records that can be longer than what is written of them: see [`SampleLayout::own_size`].
    #[must_use]
    pub const fn may_have_excess(kind: RecordKind) -> bool {
        matches!(kind, RecordKind::KSYMBOL | RecordKind::BPF_EVENT | RecordKind::TEXT_POKE)
    }

    /// Computes the layout of an attribute; bits without a name are ignored.
    #[must_use]
    pub const fn new(attr: &Attr) -> Self {
        let format = SampleFormat::from_bits_truncate(attr.sample.bits());
        let has_id_all = attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let [_, from_time @ ..] = &TAIL;
        let [_, from_id @ ..] = from_time;
        let [ident, ip, tid, time, addr, _] = SAMPLE_HEAD;
        let header = RecordHeader::SIZE as u8;

        // An IDENTIFIER is preferred: it is at the same place whatever else was asked for.
        let (id_in_sample, id_from_end) = if format.contains(SampleFormat::IDENTIFIER) {
            (Some(header), Some(8))
        } else if format.contains(SampleFormat::ID) {
            let before = bytes_of(format, &[ident, ip, tid, time, addr]);
            (Some(header + before), Some(bytes_of(format, from_id)))
        } else {
            (None, None)
        };
        let (time_in_sample, time_from_end) = if format.contains(SampleFormat::TIME) {
            let before = bytes_of(format, &[ident, ip, tid]);
            (Some(header + before), Some(bytes_of(format, from_time)))
        } else {
            (None, None)
        };
        let has_weight = format.intersects(SampleFormat::WEIGHT.union(SampleFormat::WEIGHT_STRUCT));
        let words_behind = format.intersection(BEHIND).bits().count_ones() as u8 + has_weight as u8;
        Self {
            format,
            words_behind: if format.intersects(OF_ANY_LENGTH) { None } else { Some(words_behind) },
            read: ReadLayout::new(ReadFormat::from_bits_truncate(attr.read_format.bits())),
            branch: BranchSample::from_bits_truncate(attr.branch_sample.bits()),
            regs_user: attr.sample_regs_user.count_ones() as u8,
            regs_intr: attr.sample_regs_intr.count_ones() as u8,
            id_size: if has_id_all { Some(bytes_of(format, &TAIL)) } else { None },
            id_in_sample,
            time_in_sample,
            id_from_end: if has_id_all { id_from_end } else { None },
            time_from_end: if has_id_all { time_from_end } else { None },
        }
    }

    /// Returns what each sample holds.
    #[must_use]
    pub const fn format(&self) -> SampleFormat {
        self.format
    }

    /// Returns the layout of counter values in samples and READ records.
    #[must_use]
    pub const fn read(&self) -> ReadLayout {
        self.read
    }

    /// Returns true if records other than samples end with a [`super::SampleId`].
    #[must_use]
    pub const fn has_sample_id(&self) -> bool {
        self.id_size.is_some()
    }

    /// Returns the bytes of the trailing [`super::SampleId`]: 0 without `sample_id_all`, at most 48.
    #[must_use]
    pub const fn sample_id_size(&self) -> usize {
        match self.id_size {
            Some(size) => size as usize,
            None => 0,
        }
    }

    /// Returns the id of the event that a record belongs to, without decoding the record.
    ///
    /// `None` if the layout has no id there, or the bytes are no whole record. When events of different layouts share
    /// a ring, the answer is right for all of them if all have `IDENTIFIER`.
    #[must_use]
    #[inline]
    pub fn event_id(&self, record: &[u8]) -> Option<u64> {
        self.peek(record, self.id_in_sample, self.id_from_end)
    }

    /// Returns a record's time in ns, without decoding the record.
    ///
    /// `None` if the layout has no time there, or the bytes are no whole record.
    #[must_use]
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        self.peek(record, self.time_in_sample, self.time_from_end)
    }

    /// Returns the bytes of a record that are its own, its header included: fewer than its size says, where the kernel counted
    /// the ids of other events, too.
    ///
    /// A KSYMBOL, BPF_EVENT or TEXT_POKE record that goes to several events grows by a [`super::SampleId`] with each of them, and
    /// only the first such id is written (`perf_event_ksymbol_output` of Linux 5.1 to 6.18 adds to a size that all share). Behind it
    /// is what the ring held before. Of other records, and of what is no record of this layout, the answer is the size.
    #[must_use]
    #[inline]
    pub fn own_size(&self, record: &[u8]) -> usize {
        let Ok((header, payload, _)) = RecordHeader::split(record) else { return record.len() };
        RecordHeader::SIZE + self.own_payload(header, payload).len()
    }

    /// The same, of what is behind the header.
    #[inline]
    pub(super) fn own_payload<'a>(&self, header: RecordHeader, payload: &'a [u8]) -> &'a [u8] {
        let body = match header.kind {
            RecordKind::BPF_EVENT => Some(16),
            RecordKind::KSYMBOL => {
                let name = payload.get(16..).unwrap_or_default();
                name.iter().position(|&byte| byte == 0).map(|end| (16 + end + 1).next_multiple_of(8))
            }
            RecordKind::TEXT_POKE => {
                let words = payload.get(8..).and_then(|words| words.first_chunk());
                words.map(|&[a, b, c, d]| {
                    let (old, new) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
                    (12 + usize::from(old) + usize::from(new)).next_multiple_of(8)
                })
            }
            _ => return payload,
        };
        body.and_then(|body| payload.get(..body + self.sample_id_size())).unwrap_or(payload)
    }

    #[inline]
    fn peek(&self, record: &[u8], in_sample: Option<u8>, from_end: Option<u8>) -> Option<u64> {
        let (header, payload, _) = RecordHeader::split(record).ok()?;
        let size = RecordHeader::SIZE + self.own_payload(header, payload).len();
        let at = if header.kind == RecordKind::SAMPLE {
            usize::from(in_sample?)
        } else if header.kind.has_sample_id() {
            size.checked_sub(usize::from(from_end?)).filter(|&at| at >= RecordHeader::SIZE)?
        } else {
            return None;
        };
        (at + 8 <= size).then(|| u64_at(record, at))
    }

    pub(super) const fn has(&self, field: SampleFormat) -> bool {
        self.format.contains(field)
    }
}
