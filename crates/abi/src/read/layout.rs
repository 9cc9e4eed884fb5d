//! The layout that a `read_format` chooses.
//!
//! Read first: [`ReadLayout`].

use super::{Members, ReadError, ReadMember, ReadValues};
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
/// let seen = layout.decode(bytes.as_flattened())?;
/// assert_eq!(seen.time_enabled, Some(90));
/// assert_eq!(seen.members.get(1), Some(ReadMember { value: 2500, id: Some(8), lost: None }));
/// # Ok::<(), pmux_abi::read::ReadError>(())
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

    /// Reads values that take all of the bytes.
    ///
    /// # Errors
    ///
    /// In this order: [`ReadError::Truncated`], [`ReadError::TooManyMembers`], [`ReadError::Trailing`].
    pub fn decode(self, bytes: &[u8]) -> Result<ReadValues<'_>, ReadError> {
        let mut reader = Reader::new(bytes);
        let values = self.read(&mut reader)?;
        match reader.rest().len() {
            0 => Ok(values),
            left => Err(ReadError::Trailing { bytes: left }),
        }
    }

    pub(crate) fn read<'a>(self, reader: &mut Reader<'a>) -> Result<ReadValues<'a>, ReadError> {
        let have = reader.rest().len();
        let truncated = ReadError::Truncated {
            // A group has at least the head; how many members, only the bytes tell.
            need: self.size(0),
            have,
        };
        let optional = |reader: &mut Reader<'a>, bit| -> Result<Option<u64>, ReadError> {
            if self.format.contains(bit) { reader.u64().map(Some).ok_or(truncated) } else { Ok(None) }
        };
        let first = reader.u64().ok_or(truncated)?;
        let time_enabled = optional(reader, ReadFormat::TOTAL_TIME_ENABLED)?;
        let time_running = optional(reader, ReadFormat::TOTAL_TIME_RUNNING)?;
        let members = if self.is_group() {
            let too_many = ReadError::TooManyMembers { claimed: first, fit: reader.rest().len() / self.member_size() };
            let bytes =
                first.checked_mul(self.member_size() as u64).and_then(|len| reader.take_u64(len)).ok_or(too_many)?;
            Members::packed(bytes, self)
        } else {
            Members::one(ReadMember {
                value: first,
                id: optional(reader, ReadFormat::ID)?,
                lost: optional(reader, ReadFormat::LOST)?,
            })
        };
        Ok(ReadValues { time_enabled, time_running, members })
    }

    pub(crate) fn write(self, values: &ReadValues<'_>, writer: &mut Writer<'_>) -> Result<(), ReadError> {
        let members = values.members.iter();
        if self.is_group() {
            writer.u64(members.len() as u64);
        } else {
            match (values.first(), members.len()) {
                (Some(member), 1) => writer.u64(member.value),
                (_, members) => return Err(ReadError::NotAlone { members }),
            }
        }
        let enabled = (ReadFormat::TOTAL_TIME_ENABLED, "time_enabled");
        let running = (ReadFormat::TOTAL_TIME_RUNNING, "time_running");
        self.write_optional(enabled, values.time_enabled, writer)?;
        self.write_optional(running, values.time_running, writer)?;
        for member in members {
            if self.is_group() {
                writer.u64(member.value);
            }
            self.write_optional((ReadFormat::ID, "id"), member.id, writer)?;
            self.write_optional((ReadFormat::LOST, "lost"), member.lost, writer)?;
        }
        Ok(())
    }

    fn write_optional(
        self,
        (bit, field): (ReadFormat, &'static str),
        value: Option<u64>,
        writer: &mut Writer<'_>,
    ) -> Result<(), ReadError> {
        match (self.format.contains(bit), value) {
            (true, Some(value)) => writer.u64(value),
            (false, None) => {}
            (true, None) => return Err(ReadError::Missing { field }),
            (false, Some(_)) => return Err(ReadError::Unexpected { field }),
        }
        Ok(())
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
