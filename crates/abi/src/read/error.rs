//! Why read values are refused.

use core::fmt;

/// Why [`super::ReadLayout::decode`] or [`super::ReadLayout::encode`] refused.
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
    /// The buffer is too small for the values.
    NoSpace {
        /// Bytes that are needed.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
}

impl ReadError {
    /// Returns the Linux error number closest to this: `ENOSPC` (28) for space, else `EINVAL` (22).
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NoSpace { .. } => 28,
            Self::Truncated { .. }
            | Self::TooManyMembers { .. }
            | Self::Trailing { .. }
            | Self::Missing { .. }
            | Self::Unexpected { .. }
            | Self::NotAlone { .. } => 22,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { have: 0, .. } => f.write_str("end of file instead of a count"),
            Self::Truncated { need, have } => {
                write!(f, "a count takes {need} bytes, only {have} are there")
            }
            Self::TooManyMembers { claimed, fit } => {
                write!(f, "a group claims {claimed} members, the bytes hold {fit}")
            }
            Self::Trailing { bytes } => write!(f, "{bytes} bytes are left after a count"),
            Self::Missing { field } => {
                write!(f, "read_format asks for {field}, the count has none")
            }
            Self::Unexpected { field } => {
                write!(f, "the count has {field}, read_format doesn't ask for it")
            }
            Self::NotAlone { members } => {
                write!(f, "an event read alone has 1 member, not {members}")
            }
            Self::NoSpace { need, have } => {
                write!(f, "the count takes {need} bytes, the buffer has {have}")
            }
        }
    }
}

impl core::error::Error for ReadError {}
