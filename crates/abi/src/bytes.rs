//! A cursor for reading and one for writing, neither of which can panic.
//!
//! **Invariant:** knows integers in native byte order and nothing of any format.

/// Copies `N` bytes at `at`; bytes that are not there count as zero.
#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// Reads a `u16` at `at`; 0 past the end.
#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array_at(bytes, at))
}

/// Reads a `u32` at `at`; 0 past the end.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array_at(bytes, at))
}

/// Reads a `u64` at `at`; 0 past the end.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(array_at(bytes, at))
}

/// Writes words to the front of a slice, or nothing if they don't fit.
pub(crate) fn put_words<const N: usize>(out: &mut [u8], words: [u64; N]) {
    if let Some(out) = out.get_mut(..8 * N) {
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

/// Reads from the front of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes `len` bytes, or nothing at all.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes as many bytes as a `u64` from the wire says.
    ///
    /// The number may be larger than the address space, hence not a `usize`.
    pub(crate) fn take_u64(&mut self, len: u64) -> Option<&'a [u8]> {
        self.take(usize::try_from(len).ok()?)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16_at(bytes, 0))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32_at(bytes, 0))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64_at(bytes, 0))
    }
}

/// Writes to the front of a slice and counts what it would have needed.
///
/// Past the end it writes nothing but goes on counting, so that one pass both measures and writes.
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Bytes put so far, whether or not they had room.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Hands out the place of the next `len` bytes, if there is room for them.
    pub(crate) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.len;
        self.len = self.len.saturating_add(len);
        self.out.get_mut(start..self.len)
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room(bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// Puts a word that is there exactly if the layout has it; `None` where the two differ.
    #[inline]
    pub(crate) fn optional(&mut self, asked: bool, word: Option<u64>) -> Option<()> {
        matching(asked, word).map(|word| word.into_iter().for_each(|word| self.u64(word)))
    }

    /// Puts zeros up to the next multiple of 8, counted from the start of the slice.
    pub(crate) fn pad8(&mut self) {
        let pad = self.len.next_multiple_of(8) - self.len;
        if let Some(room) = self.room(pad) {
            room.fill(0);
        }
    }
}

/// A value that is there exactly if the layout has it; `None` where the two differ.
pub(crate) fn matching<T>(asked: bool, value: Option<T>) -> Option<Option<T>> {
    (asked == value.is_some()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_take_takes_nothing() {
        let mut reader = Reader::new(&[1, 0, 2]);
        assert_eq!(reader.u32(), None);
        assert_eq!(reader.u16(), Some(u16::from_ne_bytes([1, 0])));
        assert_eq!(reader.take_u64(u64::MAX), None);
        assert_eq!(reader.rest(), [2]);
    }

    #[test]
    fn a_full_writer_goes_on_counting() {
        let mut out = [0xff; 6];
        let mut writer = Writer::new(&mut out);
        writer.u32(0);
        writer.u32(7);
        writer.u16(7);
        assert_eq!(writer.len(), 10);
        writer.pad8();
        assert_eq!(writer.len(), 16);
        assert_eq!(out, [0, 0, 0, 0, 0xff, 0xff]);
    }

    #[test]
    fn bytes_past_the_end_count_as_zero() {
        assert_eq!(u64_at(&[1; 7], 0), 0);
        assert_eq!(u16_at(&[1; 4], usize::MAX), 0);
        assert_eq!(u32_at(&[1; 5], 1), 0x0101_0101);
    }
}
