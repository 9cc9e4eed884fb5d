//! The memory of a ring, whatever supplies it.
//!
//! What it is: the words that a writer and its readers have in common: what the writer shows, what the exclusive reader has
//! taken, and the records. Read first: [`RingView`], [`RingEnd`], [`RingPages`]: what one may do with them.
//!
//! **Invariant:** no borrowed bytes, only atomic words: the other side writes at the same time. What each side may write is a
//! matter of the host's page rights; nothing here relies on the other side keeping to it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// How many words a writer shows.
pub const SHOWN_WORDS: usize = 16;

/// The words that a writer shows, by number. Those of one cache line change together.
pub(super) mod shown {
    /// Up to where records are complete, in bytes since the ring was made.
    pub(in super::super) const HEAD: usize = 0;
    /// How many records there are before the head. Stored before it.
    pub(in super::super) const RECORDS_BEFORE: usize = 1;
    /// The same, stored behind it: where the two are equal, they belong to it.
    pub(in super::super) const RECORDS_BEHIND: usize = 2;
    /// Where the oldest record begins that is not (being) overwritten.
    pub(in super::super) const TAIL: usize = 8;
    pub(in super::super) const LOST_RECORDS: usize = 9;
    /// How many bytes they had.
    pub(in super::super) const LOST_BYTES: usize = 10;
}

/// An atomic word. There is one kind of it, and those of a model checker.
pub trait Word: Send + Sync {
    /// How often a reader looks again while a writer is showing something new, which takes it some nanoseconds.
    const TRIES: u32 = 20;

    /// A word with this value.
    fn new(value: u64) -> Self;
    /// As [`AtomicU64::load`].
    fn load(&self, ordering: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, ordering: Ordering);
    /// As [`AtomicU64::compare_exchange`].
    ///
    /// # Errors
    /// The value that was there instead.
    fn compare_exchange(&self, from: u64, to: u64, success: Ordering, failure: Ordering) -> Result<u64, u64>;
    /// As [`AtomicU64::fetch_add`].
    fn fetch_add(&self, value: u64, ordering: Ordering) -> u64;
    /// As [`AtomicU64::fetch_max`].
    fn fetch_max(&self, value: u64, ordering: Ordering) -> u64;
    /// As [`AtomicU64::swap`].
    fn swap(&self, value: u64, ordering: Ordering) -> u64;
    /// As [`fence`].
    fn fence(ordering: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }
    #[inline]
    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }
    #[inline]
    fn compare_exchange(&self, from: u64, to: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.compare_exchange(from, to, success, failure)
    }
    #[inline]
    fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
        self.fetch_add(value, ordering)
    }
    #[inline]
    fn fetch_max(&self, value: u64, ordering: Ordering) -> u64 {
        self.fetch_max(value, ordering)
    }
    #[inline]
    fn swap(&self, value: u64, ordering: Ordering) -> u64 {
        self.swap(value, ordering)
    }
    #[inline]
    fn fence(ordering: Ordering) {
        fence(ordering);
    }
}

/// The memory of a ring, to be looked at.
///
/// What the functions answer stays the same as long as the value lives: the same words, and as many of them.
pub trait RingView: Send + Sync {
    /// Its words.
    type Word: Word;

    /// Loads one of the [`SHOWN_WORDS`] words that the writer shows, with acquire: what is loaded after it is not older.
    fn look(&self, word: usize) -> u64;

    /// How many words of records there are: a power of two.
    fn data_words(&self) -> usize;

    /// Copies whole words of records from the place `at`, up to the end at most. The order in which bytes arrive, and whether
    /// whole words arrive at once, doesn't matter.
    fn get(&self, at: usize, into: &mut [u8]);
}

/// The memory of a ring, for the one who takes records out.
pub trait RingEnd: RingView {
    /// Up to where records were taken. The only word that a reader writes. 0 when the ring is made.
    fn taken(&self) -> &Self::Word;
}

/// The memory of a ring, to be written.
pub trait RingPages: RingEnd {
    /// What the writer shows. No other side need write it. All 0 when the ring is made.
    fn shown(&self) -> &[Self::Word; SHOWN_WORDS];

    /// Copies whole words to the place `at`, up to the end at most. A host that can copy faster than word by word does so; the
    /// order in which bytes arrive, and whether whole words arrive at once, doesn't matter.
    fn put(&self, at: usize, bytes: &[u8]);
}

/// Copies whole words to words, as many as there are on both sides: what [`RingPages::put`] does where nothing is faster.
#[inline]
pub fn put_words<W: Word>(words: &[W], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
        // Relaxed: the writer orders all of them (B, D).
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

/// Copies whole words from words, as many as there are on both sides: what [`RingView::get`] does where nothing is faster.
#[inline]
pub fn get_words<W: Word>(words: &[W], into: &mut [u8]) {
    for (word, bytes) in words.iter().zip(into.as_chunks_mut::<8>().0) {
        // Relaxed: the reader orders all of them (B, D).
        *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// A type that leads to pages is as good as they are.
macro_rules! lead_to_pages {
    ($($holder:ty),*) => {$(
        impl<P: RingView> RingView for $holder {
            type Word = P::Word;

            #[inline]
            fn look(&self, word: usize) -> u64 {
                (**self).look(word)
            }
            #[inline]
            fn data_words(&self) -> usize {
                (**self).data_words()
            }
            #[inline]
            fn get(&self, at: usize, into: &mut [u8]) {
                (**self).get(at, into);
            }
        }

        impl<P: RingEnd> RingEnd for $holder {
            #[inline]
            fn taken(&self) -> &P::Word {
                (**self).taken()
            }
        }

        impl<P: RingPages> RingPages for $holder {
            #[inline]
            fn shown(&self) -> &[P::Word; SHOWN_WORDS] {
                (**self).shown()
            }
            #[inline]
            fn put(&self, at: usize, bytes: &[u8]) {
                (**self).put(at, bytes);
            }
        }
    )*};
}

lead_to_pages!(&P, Arc<P>);

/// There is no memory for a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory;

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("there is no memory for the ring")
    }
}

impl core::error::Error for OutOfMemory {}

/// Memory of the engine's own allocator: for writers and readers of one program.
#[derive(Debug)]
pub struct HeapPages<W = AtomicU64> {
    shown: [W; SHOWN_WORDS],
    taken: W,
    data: Box<[W]>,
}

impl<W: Word> HeapPages<W> {
    /// So many words of records.
    #[must_use]
    pub fn new(data_words: usize) -> Self {
        let data = (0..data_words).map(|_| W::new(0)).collect();
        Self { shown: core::array::from_fn(|_| W::new(0)), taken: W::new(0), data }
    }
}

impl<W: Word> RingView for HeapPages<W> {
    type Word = W;

    #[inline]
    fn look(&self, word: usize) -> u64 {
        self.shown.get(word).map_or(0, |word| word.load(Ordering::Acquire))
    }
    #[inline]
    fn data_words(&self) -> usize {
        self.data.len()
    }
    #[inline]
    fn get(&self, at: usize, into: &mut [u8]) {
        get_words(self.data.get(at..).unwrap_or_default(), into);
    }
}

impl<W: Word> RingEnd for HeapPages<W> {
    #[inline]
    fn taken(&self) -> &W {
        &self.taken
    }
}

impl<W: Word> RingPages for HeapPages<W> {
    #[inline]
    fn shown(&self) -> &[W; SHOWN_WORDS] {
        &self.shown
    }
    #[inline]
    fn put(&self, at: usize, bytes: &[u8]) {
        put_words(self.data.get(at..).unwrap_or_default(), bytes);
    }
}

/// Copies whole words to a position, counted for ever, around the end.
#[inline]
pub(super) fn put<P: RingPages>(pages: &P, position: u64, bytes: &[u8]) {
    let words = pages.data_words();
    // Cut short on 32 bits: only the place in the area matters, and that is smaller.
    let at = (position / 8) as usize & words.wrapping_sub(1);
    match bytes.split_at_checked(words.saturating_sub(at) * 8) {
        None => pages.put(at, bytes),
        Some((first, rest)) => {
            pages.put(at, first);
            pages.put(0, rest);
        }
    }
}

/// Copies whole words from a position, around the end.
#[inline]
pub(super) fn get<P: RingView>(pages: &P, position: u64, into: &mut [u8]) {
    let words = pages.data_words();
    let at = (position / 8) as usize & words.wrapping_sub(1);
    match into.split_at_mut_checked(words.saturating_sub(at) * 8) {
        None => pages.get(at, into),
        Some((first, rest)) => {
            pages.get(at, first);
            pages.get(0, rest);
        }
    }
}
