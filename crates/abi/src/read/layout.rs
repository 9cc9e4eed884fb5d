//! The layout that a `read_format` chooses.
//!
//! Read first: [`ReadLayout`].

use super::{Members, ReadMember, ReadValues};
use crate::attr::ReadFormat;
use crate::bytes::{Reader, Writer};

/// Where a `read_format` puts each value.
///
/// ```
/// use pmux_abi::attr::ReadFormat;
/// use pmux_abi::read::{ReadLayout, ReadMember};
///
/// let layout = ReadLayout::new(ReadFormat::GROUP | ReadFormat::ID | ReadFormat::TOTAL_TIME_ENABLED);
/// let bytes = [2_u64, 90, 1000, 7, 2500, 8].map(u64::to_ne_bytes);
/// assert_eq!(bytes.as_flattened().len(), layout.size(2));
///
/// let seen = layout.decode(bytes.as_flattened()).unwrap();
/// assert_eq!(seen.time_enabled, Some(90));
/// assert_eq!(seen.members.get(1), Some(ReadMember { value: 2500, id: Some(8), lost: None }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReadLayout {
    format: ReadFormat,
}

impl ReadLayout {
    /// Makes the layout of a format; bits without a name are ignored.
    #[must_use]
    pub const fn new(format: ReadFormat) -> Self {
        Self { format: ReadFormat::from_bits_truncate(format.bits()) }
    }

    /// Returns the format.
    #[must_use]
    pub const fn format(self) -> ReadFormat {
        self.format
    }

    /// Returns the bytes that a read of `members` events takes, at most `usize::MAX`.
    ///
    /// Without `GROUP` the number doesn't matter: an event is read alone.
    #[must_use]
    pub const fn size(self, members: usize) -> usize {
        let head = 8
            * (self.has(ReadFormat::TOTAL_TIME_ENABLED)
                + self.has(ReadFormat::TOTAL_TIME_RUNNING)
                + self.has(ReadFormat::GROUP));
        let members = if self.is_group() { members } else { 1 };
        self.member_size().saturating_mul(members).saturating_add(head)
    }

    /// Reads values that take all of the bytes; `None` where the bytes are fewer or more than the values.
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Option<ReadValues<'_>> {
        let mut reader = Reader::new(bytes);
        self.read(&mut reader).filter(|_| reader.rest().is_empty())
    }

    /// Reads values from the front; `None` where there are fewer bytes than they need, or than a group claims members.
    pub(crate) fn read<'a>(self, reader: &mut Reader<'a>) -> Option<ReadValues<'a>> {
        let optional = |reader: &mut Reader<'a>, bit| -> Option<Option<u64>> {
            if self.format.contains(bit) { reader.u64().map(Some) } else { Some(None) }
        };
        let first = reader.u64()?;
        let time_enabled = optional(reader, ReadFormat::TOTAL_TIME_ENABLED)?;
        let time_running = optional(reader, ReadFormat::TOTAL_TIME_RUNNING)?;
        let members = if self.is_group() {
            Members::packed(reader.take_u64(first.checked_mul(self.member_size() as u64)?)?, self)
        } else {
            Members::one(ReadMember {
                value: first,
                id: optional(reader, ReadFormat::ID)?,
                lost: optional(reader, ReadFormat::LOST)?,
            })
        };
        Some(ReadValues { time_enabled, time_running, members })
    }

    /// Writes values into `out` and returns how many bytes they take; `None` where they don't fit the format, or `out` is shorter
    /// than [`ReadLayout::size`].
    #[must_use]
    pub fn encode(self, values: &ReadValues<'_>, out: &mut [u8]) -> Option<usize> {
        let room = out.len();
        let mut writer = Writer::new(out);
        self.write(values, &mut writer)?;
        Some(writer.len()).filter(|&bytes| bytes <= room)
    }

    /// Writes values; `None` where they lack a field that the format has, or have one that it lacks, or are not exactly one where an event
    /// is read alone.
    pub(crate) fn write(self, values: &ReadValues<'_>, writer: &mut Writer<'_>) -> Option<()> {
        let members = values.members.iter();
        if self.is_group() {
            writer.u64(members.len() as u64);
        } else {
            writer.u64(values.first().filter(|_| members.len() == 1)?.value);
        }
        let asked = |bit| self.format.contains(bit);
        writer.optional(asked(ReadFormat::TOTAL_TIME_ENABLED), values.time_enabled)?;
        writer.optional(asked(ReadFormat::TOTAL_TIME_RUNNING), values.time_running)?;
        for member in members {
            if self.is_group() {
                writer.u64(member.value);
            }
            writer.optional(asked(ReadFormat::ID), member.id)?;
            writer.optional(asked(ReadFormat::LOST), member.lost)?;
        }
        Some(())
    }

    /// Reads a member of a group from its own bytes.
    pub(super) fn member_from(self, bytes: &[u8]) -> ReadMember {
        let mut reader = Reader::new(bytes);
        let value = reader.u64().unwrap_or(0);
        let mut optional = |bit| self.format.contains(bit).then(|| reader.u64().unwrap_or(0));
        ReadMember { value, id: optional(ReadFormat::ID), lost: optional(ReadFormat::LOST) }
    }

    /// Bytes of one member: at least 8, so it may be divided by.
    pub(super) const fn member_size(self) -> usize {
        8 * (1 + self.has(ReadFormat::ID) + self.has(ReadFormat::LOST))
    }

    const fn is_group(self) -> bool {
        self.format.contains(ReadFormat::GROUP)
    }

    const fn has(self, bit: ReadFormat) -> usize {
        self.format.contains(bit) as usize
    }
}
