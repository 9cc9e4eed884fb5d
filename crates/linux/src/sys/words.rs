//! Copying many words at once into memory that others look at meanwhile.
//!
//! What it is: what storing word by word does, in moves of two words where the processor has them.
//!
//! **Invariant:** the memory is only touched in whole words; in which order they arrive is left open.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a block.
#[cfg(target_arch = "x86_64")]
const BLOCK_WORDS: usize = 8;

/// Copies whole words to words, as many as there are on both sides. Like relaxed stores: who wants an order makes one.
#[inline]
pub(crate) fn put(words: &[AtomicU64], bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    let (words, bytes) = put_blocks(words, bytes);
    for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

/// Copies all whole blocks; answers what is left.
#[cfg(target_arch = "x86_64")]
#[inline]
fn put_blocks<'w, 'b>(words: &'w [AtomicU64], bytes: &'b [u8]) -> (&'w [AtomicU64], &'b [u8]) {
    let blocks = (words.len() / BLOCK_WORDS).min(bytes.len() / (8 * BLOCK_WORDS));
    let ((into, words), (from, bytes)) =
        (words.split_at(blocks * BLOCK_WORDS), bytes.split_at(blocks * BLOCK_WORDS * 8));
    if blocks > 0 {
        // SAFETY: (1) `from` and `into` both have `blocks` blocks of 64 bytes, at least one, and no other memory is touched: each
        // round moves one block, and `left` counts them down to 0. (2) `into` are atomics, which may change behind a shared
        // reference; a move of 16 bytes to words that are aligned is, for whoever looks, a relaxed store of each of the two.
        // (3) Only the registers that are named, and the flags, are changed; the stack is not touched.
        unsafe {
            std::arch::asm!(
                "2:",
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{into}], {a}",
                "movups [{into} + 16], {b}",
                "movups [{into} + 32], {c}",
                "movups [{into} + 48], {d}",
                "add {from}, 64",
                "add {into}, 64",
                "dec {left}",
                "jnz 2b",
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                from = inout(reg) from.as_ptr() => _,
                into = inout(reg) into.as_ptr() => _,
                left = inout(reg) blocks => _,
                options(nostack),
            );
        }
    }
    (words, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every length around blocks, from every place in a word of the source, and nothing beside it is touched.
    #[test]
    fn what_is_put_is_what_was_given() {
        let source: Vec<u8> = (0..600_u32).map(|at| (at * 7 + 1) as u8).collect();
        for words in 0..40 {
            for long in 0..48 {
                let target: Vec<AtomicU64> = (0..words + 2).map(|_| AtomicU64::new(u64::MAX)).collect();
                let bytes = &source[long % 8..long % 8 + 8 * long + long % 3];
                put(&target[1..=words], bytes);
                for (at, word) in target.iter().enumerate() {
                    let stored = at.checked_sub(1).filter(|&at| at < words.min(long));
                    let expected = stored.map_or(u64::MAX, |at| {
                        u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap_or_default())
                    });
                    assert_eq!(word.load(Ordering::Relaxed), expected, "{words} words, {long} given, at {at}");
                }
            }
        }
    }
}
