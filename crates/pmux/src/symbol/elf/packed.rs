//! The names that a stripped file may still carry: a second file inside of it, packed, with those of its functions.
//!
//! **Invariant:** what is unpacked takes bounded memory, whatever the packed data say.
//!
//! Source: GDB's manual, *MiniDebugInfo*; the xz file format.

use std::io::{Cursor, Read};
use std::num::NonZeroUsize;
use xz4rust::{XzDecoder, XzReader};

pub(super) const SECTION: &str = ".gnu_debugdata";

/// No file's table of functions is larger; those of the largest programs take some tens of these.
const LARGEST_BYTES: u64 = 256 << 20;
/// No such file is packed better; the format itself would let a byte become some 7,000.
const LARGEST_RATIO: u64 = 256;
/// What few bytes may become whatever the ratio.
const ANY_RATIO_BYTES: u64 = 1 << 20;
/// What the packer may look back to, at most: more than `xz -9` does.
const LARGEST_WINDOW_BYTES: usize = 64 << 20;
/// What most packers look back to.
const USUAL_WINDOW_BYTES: usize = 1 << 20;
const BUFFER_BYTES: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

/// What was packed; `None` where that is broken, or too large.
pub(super) fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let believed = ANY_RATIO_BYTES + LARGEST_RATIO * packed.len() as u64;
    unpacked_up_to(packed, LARGEST_BYTES.min(believed))
}

fn unpacked_up_to(packed: &[u8], largest_bytes: u64) -> Option<Vec<u8>> {
    let decoder = XzDecoder::in_heap_with_alloc_dict_size(USUAL_WINDOW_BYTES, LARGEST_WINDOW_BYTES);
    if packed.len() as u64 > largest_bytes {
        return None;
    }
    // The reader takes no borrowed data.
    let packed = Cursor::new(packed.to_vec());
    let mut reader = XzReader::new_with_buffer_size_and_decoder(packed, BUFFER_BYTES, decoder).take(largest_bytes);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).ok()?;
    (reader.limit() > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `functions, functions, functions`, by `xz -9e`.
    const PACKED: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 2, 0, 33, 1, 28, 0, 0, 0, 16, 207, 88, 204, 224, 0, 30, 0,
        18, 93, 0, 51, 29, 73, 255, 169, 97, 251, 19, 8, 76, 115, 206, 55, 155, 143, 191, 0, 0, 0, 0, 0, 209, 164, 12,
        47, 214, 15, 137, 225, 0, 1, 46, 31, 242, 177, 137, 166, 31, 182, 243, 125, 1, 0, 0, 0, 0, 4, 89, 90,
    ];

    #[test]
    fn what_was_packed_comes_back() {
        assert_eq!(unpacked(PACKED).as_deref(), Some(&b"functions, functions, functions"[..]));
        for length in 0..PACKED.len() {
            assert_eq!(unpacked(&PACKED[..length]), None, "{length}");
        }
    }

    #[test]
    fn what_would_grow_too_large_is_refused() {
        // One byte more than it holds has to be left to see that it ends there.
        assert_eq!(unpacked_up_to(PACKED, 31), None);
        assert!(unpacked_up_to(PACKED, PACKED.len() as u64).is_some());
    }

    proptest! {
        #[test]
        fn anything_is_bearable(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut packed = PACKED.to_vec();
            for (index, value) in changes {
                let at = index.index(packed.len());
                packed[at] = value;
            }
            let _ = unpacked(&packed);
        }
    }
}
