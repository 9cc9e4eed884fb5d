//! Why records are refused.
//!
//! **Invariant:** each variant names one field or fact; none carries text of its own.

use core::fmt;

use crate::read::ReadError;

/// Why a record was not decoded or not encoded. `field` is the kernel's name of the field at fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes end before the record does.
    Truncated {
        /// Bytes that are needed.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// The header's size is below 8 or not a multiple of 8.
    BadSize {
        /// The size.
        size: u16,
    },
    /// The record ends before a field does.
    Short {
        /// That field.
        field: &'static str,
    },
    /// A field claims more elements or bytes than there can be.
    TooMany {
        /// That field.
        field: &'static str,
        /// How many it claims.
        claimed: u64,
    },
    /// A field of bytes has a length that would leave the next field unaligned.
    Misaligned {
        /// That field.
        field: &'static str,
        /// Its length in bytes.
        len: u64,
    },
    /// A string has no end.
    Unterminated {
        /// That field.
        field: &'static str,
    },
    /// A sample goes on after its last field: it has another layout.
    Trailing {
        /// How many bytes are left.
        bytes: usize,
    },
    /// The counter values in the record are at fault.
    Read(ReadError),
    /// A record to encode lacks a field that its layout has.
    Missing {
        /// That field.
        field: &'static str,
    },
    /// A record to encode has a field that its layout lacks.
    Unexpected {
        /// That field.
        field: &'static str,
    },
    /// An array to encode has another length than its layout says.
    WrongLength {
        /// That field.
        field: &'static str,
        /// How many elements the layout says.
        expected: usize,
        /// How many there are.
        given: usize,
    },
    /// A string to encode has a zero byte inside.
    EmbeddedNul {
        /// That field.
        field: &'static str,
    },
    /// A record to encode is larger than any record can be.
    TooLong {
        /// Its bytes.
        need: usize,
    },
    /// The buffer is too small for the record.
    NoSpace {
        /// Bytes that are needed.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
}

impl RecordError {
    /// Returns the Linux error number closest to this: `E2BIG` (7) for records too large, `ENOSPC` (28) for buffers
    /// too small, else `EINVAL` (22).
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::TooLong { .. } => 7,
            Self::NoSpace { .. } => 28,
            Self::Read(error) => error.errno(),
            Self::Truncated { .. }
            | Self::BadSize { .. }
            | Self::Short { .. }
            | Self::TooMany { .. }
            | Self::Misaligned { .. }
            | Self::Unterminated { .. }
            | Self::Trailing { .. }
            | Self::Missing { .. }
            | Self::Unexpected { .. }
            | Self::WrongLength { .. }
            | Self::EmbeddedNul { .. } => 22,
        }
    }
}

impl From<ReadError> for RecordError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { need, have } => {
                write!(f, "a record takes {need} bytes, only {have} are there")
            }
            Self::BadSize { size } => write!(f, "{size} is no size of a record"),
            Self::Short { field } => write!(f, "the record ends before its field {field} does"),
            Self::TooMany { field, claimed } => {
                write!(f, "{field} claims {claimed}, more than the record holds")
            }
            Self::Misaligned { field, len } => {
                write!(f, "{field} has {len} bytes, which leaves the next field unaligned")
            }
            Self::Unterminated { field } => write!(f, "the string {field} has no end"),
            Self::Trailing { bytes } => write!(f, "{bytes} bytes are left after a sample"),
            Self::Read(error) => error.fmt(f),
            Self::Missing { field } => write!(f, "the layout has {field}, the record has none"),
            Self::Unexpected { field } => write!(f, "the record has {field}, the layout has none"),
            Self::WrongLength { field, expected, given } => {
                write!(f, "{field} has {given} elements instead of {expected}")
            }
            Self::EmbeddedNul { field } => write!(f, "the string {field} has a zero byte inside"),
            Self::TooLong { need } => write!(f, "a record of {need} bytes is too large"),
            Self::NoSpace { need, have } => {
                write!(f, "the record takes {need} bytes, the buffer has {have}")
            }
        }
    }
}

impl core::error::Error for RecordError {}
