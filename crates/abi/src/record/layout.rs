//! What an attribute says about the layout of its records.
//!
//! Read first: [`SampleLayout`].
//!
//! **Invariant:** computed once from an attribute, then never again; finding an id or a time takes no search.

use super::RecordHeader;
use crate::attr::{Attr, AttrFlags, BranchSample, ReadFormat, SampleFormat};
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
    branch: BranchSample,
    regs_user: u8,
    regs_intr: u8,
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
const OF_ANY_LENGTH: SampleFormat = SampleFormat::READ
    .union(SampleFormat::BRANCH_STACK)
    .union(SampleFormat::REGS_USER)
    .union(SampleFormat::STACK_USER)
    .union(SampleFormat::REGS_INTR)
    .union(SampleFormat::AUX);

/// The fields of one word each that come behind the raw data; the two weights are one.
const BEHIND: SampleFormat = SampleFormat::DATA_SRC
    .union(SampleFormat::TRANSACTION)
    .union(SampleFormat::PHYS_ADDR)
    .union(SampleFormat::CGROUP)
    .union(SampleFormat::DATA_PAGE_SIZE)
    .union(SampleFormat::CODE_PAGE_SIZE);

/// The fields that can come before an id or a time in a sample, in order.
const SAMPLE_HEAD: [SampleFormat; 6] = [
    SampleFormat::IDENTIFIER,
    SampleFormat::IP,
    SampleFormat::TID,
    SampleFormat::TIME,
    SampleFormat::ADDR,
    SampleFormat::ID,
];

/// The fields of the trailing id, in order.
const TAIL: [SampleFormat; 6] = [
    SampleFormat::TID,
    SampleFormat::TIME,
    SampleFormat::ID,
    SampleFormat::STREAM_ID,
    SampleFormat::CPU,
    SampleFormat::IDENTIFIER,
];

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
        Self::peek(record, self.id_in_sample, self.id_from_end)
    }

    /// Returns a record's time in ns, without decoding the record.
    ///
    /// `None` if the layout has no time there, or the bytes are no whole record.
    #[must_use]
    #[inline]
    pub fn time(&self, record: &[u8]) -> Option<u64> {
        Self::peek(record, self.time_in_sample, self.time_from_end)
    }

    #[inline]
    fn peek(record: &[u8], in_sample: Option<u8>, from_end: Option<u8>) -> Option<u64> {
        let (header, payload, _) = RecordHeader::split(record).ok()?;
        let size = RecordHeader::SIZE + payload.len();
        let at = if header.kind == super::RecordKind::SAMPLE {
            usize::from(in_sample?)
        } else if header.kind.has_sample_id() {
            let at = size.checked_sub(usize::from(from_end?))?;
            if at < RecordHeader::SIZE {
                return None;
            }
            at
        } else {
            return None;
        };
        (at + 8 <= size).then(|| u64_at(record, at))
    }

    pub(super) const fn has(&self, field: SampleFormat) -> bool {
        self.format.contains(field)
    }

    pub(super) const fn branch(&self) -> BranchSample {
        self.branch
    }

    pub(super) const fn regs_user(&self) -> usize {
        self.regs_user as usize
    }

    pub(super) const fn regs_intr(&self) -> usize {
        self.regs_intr as usize
    }
}
