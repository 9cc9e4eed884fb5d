//! Why records are refused.
//!
//! **Invariant:** each variant names one field or fact; none carries text of its own.

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

impl From<ReadError> for RecordError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}
