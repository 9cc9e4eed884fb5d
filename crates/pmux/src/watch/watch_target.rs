//! What is watched, and how many registers that takes.
//!
//! **Invariant:** pure; whether a register is left, only the kernel knows.

use crate::event::Access;
use std::fmt;

/// The most bytes that one register watches.
const REGISTER_BYTES: u64 = size_of::<std::ffi::c_long>() as u64;
/// More registers than any machine hands out in turns within a useful time.
const MOST_PIECES: usize = 256;

/// Some bytes of data, or an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchTarget {
    /// What the user calls it.
    pub name: String,
    /// Where it begins.
    pub address: u64,
    /// How many bytes; for execution, what the machine wants is taken.
    pub len: u64,
    /// Which accesses are hits.
    pub access: Access,
}

/// Why a spot can't be watched, whatever the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchTargetError {
    /// It has no bytes.
    Empty {
        /// The spot.
        name: String,
    },
    /// It goes beyond the last address.
    BeyondEnd {
        /// The spot.
        name: String,
    },
    /// It asks for execution and for data at once.
    TwoKinds {
        /// The spot.
        name: String,
    },
    /// It needs more registers than can take turns.
    TooLong {
        /// The spot.
        name: String,
        /// Its bytes.
        len: u64,
        /// The most bytes that could be watched there.
        most: u64,
    },
}

impl fmt::Display for WatchTargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { name } => write!(f, "{name} has a length of 0 bytes: there is nothing to watch"),
            Self::BeyondEnd { name } => write!(f, "{name} goes beyond the end of the address space"),
            Self::TwoKinds { name } => {
                write!(f, "{name}: a register waits for execution or for data, not for both; name it twice, :x and :rw")
            }
            Self::TooLong { name, len, most } => write!(
                f,
                "{name} has {len} bytes, and one register watches at most {REGISTER_BYTES}; watch a part of it, such as \
                 /{REGISTER_BYTES} (at most {most} bytes can take turns)"
            ),
        }
    }
}

impl std::error::Error for WatchTargetError {}

/// What one register watches of a spot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatchPiece {
    /// Which spot.
    pub watch_target: usize,
    /// Its first byte: what a sample says was hit.
    pub address: u64,
    /// 1, 2, 4 or 8 bytes.
    pub len: u64,
}

impl WatchTarget {
    /// The pieces, from the first byte to the last.
    ///
    /// A register watches 1, 2, 4 or 8 bytes from a multiple of that number: a range that is longer, or begins elsewhere,
    /// takes several.
    ///
    /// # Errors
    /// [`WatchTargetError`].
    pub fn pieces(&self, watch_target: usize) -> Result<Vec<WatchPiece>, WatchTargetError> {
        let name = || self.name.clone();
        let execute = self.access.bits() & Access::EXECUTE.bits() != 0;
        if execute {
            if self.access != Access::EXECUTE {
                return Err(WatchTargetError::TwoKinds { name: name() });
            }
            return Ok(vec![WatchPiece { watch_target, address: self.address, len: Access::EXECUTE.default_len() }]);
        }
        if self.len == 0 {
            return Err(WatchTargetError::Empty { name: name() });
        }
        let most = MOST_PIECES as u64 * REGISTER_BYTES;
        if self.len > most {
            return Err(WatchTargetError::TooLong { name: name(), len: self.len, most });
        }
        // The last byte, not the one behind it: that may be 0.
        let Some(last) = self.address.checked_add(self.len - 1) else {
            return Err(WatchTargetError::BeyondEnd { name: name() });
        };
        let mut pieces = Vec::new();
        let mut address = self.address;
        loop {
            let left = last - address;
            let mut len = REGISTER_BYTES;
            while !address.is_multiple_of(len) || len - 1 > left {
                len /= 2;
            }
            pieces.push(WatchPiece { watch_target, address, len });
            if len - 1 == left {
                return Ok(pieces);
            }
            address += len;
        }
    }

    /// Whether it lies in the kernel.
    #[must_use]
    pub fn is_in_kernel(&self) -> bool {
        // The upper half, on every architecture with 64-bit addresses that is supported.
        self.address >> 63 != 0
    }

    /// Whether hits are executions.
    #[must_use]
    pub fn is_code(&self) -> bool {
        self.access == Access::EXECUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn watch_target(address: u64, len: u64, access: Access) -> WatchTarget {
        WatchTarget { name: "it".to_owned(), address, len, access }
    }

    fn lens(address: u64, len: u64) -> Vec<u64> {
        watch_target(address, len, Access::WRITE).pieces(0).unwrap().iter().map(|piece| piece.len).collect()
    }

    #[test]
    fn an_aligned_word_takes_one_register() {
        for len in [1, 2, 4, 8] {
            assert_eq!(lens(0x1000, len), [len]);
        }
        assert_eq!(lens(0x1000, 16), [8, 8]);
        assert_eq!(lens(0x1000, 12), [8, 4]);
        assert_eq!(lens(0x1004, 8), [4, 4]);
        assert_eq!(lens(0x1001, 8), [1, 2, 4, 1]);
        assert_eq!(lens(u64::MAX, 1), [1]);
    }

    #[test]
    fn what_cant_be_is_a_sentence() {
        let error = |address, len, access| watch_target(address, len, access).pieces(0).unwrap_err();
        assert_eq!(error(16, 0, Access::WRITE), WatchTargetError::Empty { name: "it".to_owned() });
        assert_eq!(error(u64::MAX, 2, Access::WRITE), WatchTargetError::BeyondEnd { name: "it".to_owned() });
        let both = error(16, 8, Access::WRITE | Access::EXECUTE);
        assert!(both.to_string().contains("name it twice"), "{both}");
        let long = error(0, 1 << 20, Access::WRITE);
        assert!(long.to_string().contains("1048576 bytes"), "{long}");
    }

    #[test]
    fn code_takes_one_whatever_its_length() {
        let pieces = watch_target(0x1001, 400, Access::EXECUTE).pieces(3).unwrap();
        assert_eq!(pieces, [WatchPiece { watch_target: 3, address: 0x1001, len: Access::EXECUTE.default_len() }]);
    }

    proptest! {
        #[test]
        fn pieces_are_aligned_and_cover_each_byte_once(address in any::<u64>(), len in 1_u64..200) {
            prop_assume!(address.checked_add(len - 1).is_some());
            let pieces = watch_target(address, len, Access::WRITE).pieces(0).unwrap();
            let mut next = address;
            for piece in &pieces {
                prop_assert_eq!(piece.address, next);
                prop_assert!(matches!(piece.len, 1 | 2 | 4 | 8) && piece.address % piece.len == 0);
                next = next.wrapping_add(piece.len);
            }
            prop_assert_eq!(next, address.wrapping_add(len));
            // Growing to the middle and shrinking from there: never more than 6 beside the whole words.
            prop_assert!(pieces.len() as u64 <= len / 8 + 6);
        }
    }
}
