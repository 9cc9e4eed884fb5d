//! Why records are refused.

/// Why a record was not decoded or not encoded.
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
    /// The fields are not those that the layout says: one ends behind the record, claims more elements than there can be, leaves the next
    /// one unaligned, or has no end; or a sample goes on after its last field.
    Malformed,
    /// A record to encode is not of its layout: it lacks a field or has one too many, an array has another length, or a string has a zero
    /// byte inside.
    Mismatch,
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
