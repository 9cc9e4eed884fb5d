//! Why read values are refused.

/// Why values are not decoded, or do not fit the layout of the record that they belong to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes end before the values do.
    ///
    /// `have` is 0 where `read(2)` returned end of file: a pinned event that lost its counter.
    Truncated {
        /// Bytes that the values need.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// A group claims more members than there are bytes for.
    TooManyMembers {
        /// The number claimed.
        claimed: u64,
        /// The number that fits.
        fit: usize,
    },
    /// Bytes are left after the last value.
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// Values to encode lack a field that the format has.
    Missing {
        /// The kernel's name of the field.
        field: &'static str,
    },
    /// Values to encode have a field that the format lacks.
    Unexpected {
        /// The kernel's name of the field.
        field: &'static str,
    },
    /// Values of an event that is read alone have not exactly one member.
    NotAlone {
        /// How many they have.
        members: usize,
    },
}
