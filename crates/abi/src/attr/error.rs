//! Why attribute bytes are refused.
//!
//! **Invariant:** each variant names one field or fact; none carries text.

use core::fmt;

use super::AttrSize;

/// Why [`super::Attr::decode`] refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AttrError {
    /// The bytes end before the attribute does.
    Truncated {
        /// Bytes that the attribute needs.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// `size` is below 64, the first published size, and not 0.
    TooSmall {
        /// The `size` field.
        size: u32,
    },
    /// `size` is above 4096.
    TooBig {
        /// The `size` field.
        size: u32,
    },
    /// There is something but zeros beyond the largest size that is known here.
    UnknownFields {
        /// The `size` field.
        size: u32,
        /// The largest known size.
        largest: AttrSize,
    },
    /// Reserved bits of the flag word are set.
    ReservedFlags {
        /// Those bits.
        bits: u64,
    },
    /// The reserved half word after `sample_max_stack` is not zero.
    Reserved2 {
        /// Its value.
        value: u16,
    },
    /// Reserved bits of `aux_action` are set.
    Reserved3 {
        /// Those bits.
        bits: u32,
    },
    /// `sample_type` has bits without a name.
    SampleType {
        /// Those bits.
        bits: u64,
    },
    /// `read_format` has bits without a name.
    ReadFormat {
        /// Those bits.
        bits: u64,
    },
    /// `branch_sample_type` has bits without a name, and `sample_type` asks for branches.
    BranchSampleType {
        /// Those bits.
        bits: u64,
    },
}

impl fmt::Display for AttrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { need, have } => write!(f, "the attribute takes {need} bytes, only {have} are there"),
            Self::TooSmall { size } => write!(f, "attr.size is {size}, the smallest is 64"),
            Self::TooBig { size } => write!(f, "attr.size is {size}, the limit is 4096"),
            Self::UnknownFields { size, largest } => {
                write!(f, "attr.size is {size}, with fields set beyond the {} bytes that are known", largest.bytes())
            }
            Self::ReservedFlags { bits } => write!(f, "reserved attr flags {bits:#x} are set"),
            Self::Reserved2 { value } => write!(f, "attr.__reserved_2 is {value:#x}, not 0"),
            Self::Reserved3 { bits } => write!(f, "reserved bits {bits:#x} of attr.aux_action are set"),
            Self::SampleType { bits } => write!(f, "attr.sample_type has unknown bits {bits:#x}"),
            Self::ReadFormat { bits } => write!(f, "attr.read_format has unknown bits {bits:#x}"),
            Self::BranchSampleType { bits } => write!(f, "attr.branch_sample_type has unknown bits {bits:#x}"),
        }
    }
}

impl core::error::Error for AttrError {}
