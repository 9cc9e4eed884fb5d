//! Copying many words at once into memory that others look at meanwhile.
//!
//! What it is: what storing word by word does, in moves of four words or of two where the processor has them. Read first: [`put`].
//!
//! **Invariant:** the memory is only touched in whole words; in which order they arrive is left open.

use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a block: what one round moves.
#[cfg(target_arch = "x86_64")]
const BLOCK_WORDS: usize = 8;
/// The same, where moves are of four words.
#[cfg(target_arch = "x86_64")]
const WIDE_BLOCK_WORDS: usize = 16;

/// Copies whole words to words, as many as there are on both sides. Like relaxed stores: who wants an order makes one.
#[inline]
pub(crate) fn put(words: &[AtomicU64], bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    let (words, bytes) = put_wide_blocks(words, bytes);
    #[cfg(target_arch = "x86_64")]
    let (words, bytes) = put_blocks(words, bytes);
    for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

/// Words to be stored, and the bytes that go there.
#[cfg(target_arch = "x86_64")]
type Pair<'w, 'b> = (&'w [AtomicU64], &'b [u8]);

/// As many whole blocks of so many words as there are on both sides: how many, and those; then what is left.
#[cfg(target_arch = "x86_64")]
#[inline]
fn blocks_of<'w, 'b>(block_words: usize, (words, bytes): Pair<'w, 'b>) -> (usize, Pair<'w, 'b>, Pair<'w, 'b>) {
    let blocks = (words.len() / block_words).min(bytes.len() / (8 * block_words));
    let ((into, words), (from, bytes)) =
        (words.split_at(blocks * block_words), bytes.split_at(blocks * block_words * 8));
    (blocks, (into, from), (words, bytes))
}

/// Copies all whole blocks; answers what is left.
#[cfg(target_arch = "x86_64")]
#[inline]
fn put_blocks<'w, 'b>(words: &'w [AtomicU64], bytes: &'b [u8]) -> Pair<'w, 'b> {
    let (blocks, (into, from), left) = blocks_of(BLOCK_WORDS, (words, bytes));
    if blocks > 0 {
        // SAFETY: (1) `from` and `into` both have `blocks` blocks of 64 bytes, at least one, and no other memory is touched: each
        // round moves one block, and `left` counts them down to 0. (2) `into` are atomics, which may change behind a shared
        // reference; a move of 16 bytes to words that are aligned is, for code that looks, a relaxed store of each of the two.
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
    left
}

/// As `put_blocks`, in moves of four words, where the processor has them and there is enough for them to pay off.
#[cfg(target_arch = "x86_64")]
#[inline]
fn put_wide_blocks<'w, 'b>(words: &'w [AtomicU64], bytes: &'b [u8]) -> Pair<'w, 'b> {
    let (blocks, (into, from), left) = blocks_of(WIDE_BLOCK_WORDS, (words, bytes));
    if blocks == 0 || !std::arch::is_x86_feature_detected!("avx") {
        return (words, bytes);
    }
    // SAFETY: (1) As in `put_blocks`, with blocks of 128 bytes. (2) As there: a move of 32 bytes is a relaxed store of each of four
    // words, since no processor tears a word that is aligned. (3) As there; the upper halves of all such registers, which
    // `vzeroupper` clears, no code relies on: they are told as changed with their lower halves. (4) The processor has these moves:
    // it was asked, and the kernel saves their registers where that says so.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovdqu ymm2, [{from} + 64]",
            "vmovdqu ymm3, [{from} + 96]",
            "vmovdqu [{into}], ymm0",
            "vmovdqu [{into} + 32], ymm1",
            "vmovdqu [{into} + 64], ymm2",
            "vmovdqu [{into} + 96], ymm3",
            "sub {from}, -128",
            "sub {into}, -128",
            "dec {left}",
            "jnz 2b",
            "vzeroupper",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            from = inout(reg) from.as_ptr() => _,
            into = inout(reg) into.as_ptr() => _,
            left = inout(reg) blocks => _,
            options(nostack),
        );
    }
    left
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
