//! Which accesses to an address a breakpoint counts.
//!
//! **Invariant:** pure; whether a machine can do it, only its kernel knows.
//!
//! Source: `include/uapi/linux/hw_breakpoint.h`.

use std::fmt;
use std::ops::BitOr;

/// A set of accesses: never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Access(u32);

const LETTERS: [(Access, char); 3] = [(Access::READ, 'r'), (Access::WRITE, 'w'), (Access::EXECUTE, 'x')];

impl Access {
    /// Reads. x86 can't tell them from writes and refuses them alone.
    pub const READ: Self = Self(1);
    /// Writes.
    pub const WRITE: Self = Self(2);
    /// Reads and writes: what is meant when nothing is said.
    pub const READ_WRITE: Self = Self(3);
    /// Executions.
    pub const EXECUTE: Self = Self(4);

    /// Reads some of `r`, `w`, `x`, each at most once.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bits = 0;
        for letter in text.chars() {
            let (access, _) = LETTERS.into_iter().find(|(_, known)| *known == letter)?;
            if bits & access.0 != 0 {
                return None;
            }
            bits |= access.0;
        }
        (bits != 0).then_some(Self(bits))
    }

    /// The bits for the `bp_type` of an attribute.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The length that is meant when none is given, in bytes: 4 for data; for code what the kernel asks for, the size of
    /// a `long`.
    #[must_use]
    pub fn default_len(self) -> u64 {
        if self == Self::EXECUTE { size_of::<std::ffi::c_long>() as u64 } else { 4 }
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (access, letter) in LETTERS {
            if self.0 & access.0 != 0 {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Access;

    #[test]
    fn letters() {
        assert_eq!(Access::parse("rw"), Some(Access::READ_WRITE));
        assert_eq!(Access::parse("wr"), Some(Access::READ | Access::WRITE));
        assert_eq!(Access::parse("x").map(Access::bits), Some(4));
        for text in ["", "rr", "q", "rwxr"] {
            assert_eq!(Access::parse(text), None, "{text}");
        }
        assert_eq!((Access::READ_WRITE | Access::EXECUTE).to_string(), "rwx");
    }
}
