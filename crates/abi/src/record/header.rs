//! The header of a record, and walking over records.
//!
//! Read first: [`RecordHeader`], [`Records`].
//!
//! **Invariant:** a record has at least its header, and a size that is a multiple of 8. Nothing here looks past `size`.

use core::iter::FusedIterator;

use super::{Misc, RecordError};
use crate::bytes::{u16_at, u32_at};

/// The `type` of a record (`PERF_RECORD_*`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RecordKind(pub u32);

impl RecordKind {
    /// A mapping.
    pub const MMAP: Self = Self(1);
    /// Records that found no room.
    pub const LOST: Self = Self(2);
    /// A command name.
    pub const COMM: Self = Self(3);
    /// A task's end.
    pub const EXIT: Self = Self(4);
    /// An event that interrupts too often is held back.
    pub const THROTTLE: Self = Self(5);
    /// It is no longer held back.
    pub const UNTHROTTLE: Self = Self(6);
    /// A task's start.
    pub const FORK: Self = Self(7);
    /// The counts of an exiting task.
    pub const READ: Self = Self(8);
    /// A sample.
    pub const SAMPLE: Self = Self(9);
    /// A mapping, with the identity of its file.
    pub const MMAP2: Self = Self(10);
    /// New data in the AUX area.
    pub const AUX: Self = Self(11);
    /// An instruction trace begins.
    pub const ITRACE_START: Self = Self(12);
    /// Samples that were lost.
    pub const LOST_SAMPLES: Self = Self(13);
    /// A context switch.
    pub const SWITCH: Self = Self(14);
    /// A context switch, with the other task.
    pub const SWITCH_CPU_WIDE: Self = Self(15);
    /// The namespaces of a task.
    pub const NAMESPACES: Self = Self(16);
    /// A kernel symbol comes or goes.
    pub const KSYMBOL: Self = Self(17);
    /// A BPF program comes or goes.
    pub const BPF_EVENT: Self = Self(18);
    /// A cgroup's id and path.
    pub const CGROUP: Self = Self(19);
    /// Kernel text changes.
    pub const TEXT_POKE: Self = Self(20);
    /// The hardware's id for AUX output.
    pub const AUX_OUTPUT_HW_ID: Self = Self(21);
    /// A user call chain taken later (6.19).
    pub const CALLCHAIN_DEFERRED: Self = Self(22);
    /// The first number that tools use for records of their own, which no kernel writes.
    pub const FIRST_USER: Self = Self(64);

    /// Returns true if records of this kind end with a [`super::SampleId`], where the attribute asks for it.
    #[must_use]
    pub const fn has_sample_id(self) -> bool {
        self.0 != 0 && self.0 < Self::FIRST_USER.0 && self.0 != Self::SAMPLE.0
    }
}

/// The first 8 bytes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RecordHeader {
    /// What the record is.
    pub kind: RecordKind,
    /// Where it comes from, and bits of its own.
    pub misc: Misc,
    /// Its bytes, with this header.
    pub size: u16,
}

impl RecordHeader {
    /// Bytes of a header.
    pub const SIZE: usize = 8;
    /// The largest size of a record: the last multiple of 8 that the size field can say.
    pub const MAX_RECORD: usize = 65_528;

    /// Reads a header. The rest of the record need not be there.
    ///
    /// # Errors
    ///
    /// In this order:
    ///
    /// 1. [`RecordError::Truncated`]: fewer than 8 bytes.
    /// 2. [`RecordError::BadSize`]: the size is below 8 or not a multiple of 8.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() < Self::SIZE {
            return Err(RecordError::Truncated { need: Self::SIZE, have: bytes.len() });
        }
        let size = u16_at(bytes, 6);
        if usize::from(size) < Self::SIZE || !size.is_multiple_of(8) {
            return Err(RecordError::BadSize { size });
        }
        Ok(Self { kind: RecordKind(u32_at(bytes, 0)), misc: Misc(u16_at(bytes, 4)), size })
    }

    /// Splits the first record off: its header, its payload, and the bytes after it.
    ///
    /// # Errors
    ///
    /// Those of [`RecordHeader::decode`], then [`RecordError::Truncated`] if the bytes end before the record does.
    #[inline]
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8], &[u8]), RecordError> {
        let header = Self::decode(bytes)?;
        let need = usize::from(header.size);
        let truncated = RecordError::Truncated { need, have: bytes.len() };
        let (record, rest) = bytes.split_at_checked(need).ok_or(truncated)?;
        let (_, payload) = record.split_at_checked(Self::SIZE).ok_or(truncated)?;
        Ok((header, payload, rest))
    }
}

/// Walks over records that lie one after the other, as in a ring or a file.
///
/// Gives each record with its header. After an error it ends, since it is not known where the next record would start.
///
/// ```
/// use pmux_abi::record::{RecordKind, Records};
///
/// let mut bytes = [0_u8; 24];
/// bytes[..4].copy_from_slice(&RecordKind::SWITCH.0.to_ne_bytes());
/// bytes[6..8].copy_from_slice(&8_u16.to_ne_bytes());
/// bytes[8..12].copy_from_slice(&RecordKind::LOST_SAMPLES.0.to_ne_bytes());
/// bytes[14..16].copy_from_slice(&16_u16.to_ne_bytes());
///
/// let mut records = Records::new(&bytes);
/// assert_eq!(records.next().map(|record| record.map(<[u8]>::len)), Some(Ok(8)));
/// assert_eq!(records.next().map(|record| record.map(<[u8]>::len)), Some(Ok(16)));
/// assert_eq!(records.next(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Records<'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, failed: false }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let split = RecordHeader::split(self.rest);
        self.failed = split.is_err();
        Some(split.map(|(header, _, rest)| {
            let all = core::mem::replace(&mut self.rest, rest);
            all.get(..usize::from(header.size)).unwrap_or(all)
        }))
    }
}

impl FusedIterator for Records<'_> {}
