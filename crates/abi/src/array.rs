//! Arrays of fixed-size elements, either still as bytes or as a slice of values.
//!
//! What it is: what a decoded record hands out instead of a `Vec`. An encoder gives a slice of values, a decoder
//! gets a view of bytes, and both are the same type, so that a decoded record can be encoded again.
//! Read first: [`Array`].
//!
//! **Invariant:** knows no record; elements are read one at a time, and never before they are asked for.

use core::fmt;

use crate::bytes::{put_words, u64_at};

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for crate::record::Branch {}
    impl Sealed for crate::record::Namespace {}
}

/// One element of an [`Array`]: a `u64`, a [`crate::record::Branch`] or a [`crate::record::Namespace`].
pub trait Element: sealed::Sealed + Copy + PartialEq + fmt::Debug {
    /// Bytes that one element takes.
    const SIZE: usize;

    /// Reads an element from its [`Self::SIZE`] bytes; bytes that are missing count as zero.
    fn from_wire(bytes: &[u8]) -> Self;

    /// Writes the element to the first [`Self::SIZE`] bytes of `out`; writes nothing if `out` is shorter.
    fn to_wire(self, out: &mut [u8]);
}

impl Element for u64 {
    const SIZE: usize = 8;

    fn from_wire(bytes: &[u8]) -> Self {
        u64_at(bytes, 0)
    }

    fn to_wire(self, out: &mut [u8]) {
        put_words(out, [self]);
    }
}

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Bytes(&'a [u8]),
    Items(&'a [T]),
}

/// An array of elements: a view of bytes when decoded, a slice when about to be encoded.
///
/// Two arrays are equal when their elements are.
///
/// ```
/// use pmux_abi::Array;
///
/// let array = Array::from(&[3_u64, 5, 8][..]);
/// assert_eq!(array.len(), 3);
/// assert_eq!(array.get(1), Some(5));
/// assert_eq!(array.iter().sum::<u64>(), 16);
/// ```
#[derive(Clone, Copy)]
pub struct Array<'a, T> {
    source: Source<'a, T>,
}

impl<'a, T: Element> Array<'a, T> {
    /// Views bytes as elements; an incomplete element at the end is left out.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> Self {
        Self { source: Source::Bytes(bytes) }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.source {
            Source::Bytes(bytes) => bytes.len() / T::SIZE,
            Source::Items(items) => items.len(),
        }
    }

    /// Returns true if there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element at `index`, or `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        match self.source {
            Source::Bytes(bytes) => {
                let start = index.checked_mul(T::SIZE)?;
                let end = start.checked_add(T::SIZE)?;
                bytes.get(start..end).map(T::from_wire)
            }
            Source::Items(items) => items.get(index).copied(),
        }
    }

    /// Iterates over the elements.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator + Clone + use<'a, T> {
        let array = *self;
        (0..self.len()).map(move |index| array.get(index).unwrap_or_else(|| T::from_wire(&[])))
    }
}

impl<T> Default for Array<'_, T> {
    fn default() -> Self {
        Self { source: Source::Items(&[]) }
    }
}

impl<'a, T> From<&'a [T]> for Array<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self { source: Source::Items(items) }
    }
}

impl<T: Element> PartialEq for Array<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Element + Eq> Eq for Array<'_, T> {}

impl<T: Element> fmt::Debug for Array<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_items_are_equal() {
        let mut bytes = [0xff; 19];
        7_u64.to_wire(&mut bytes);
        9_u64.to_wire(&mut bytes[8..]);
        let seen = Array::<u64>::from_bytes(&bytes);
        assert_eq!(seen.len(), 2, "the incomplete third element is left out");
        assert_eq!(seen, Array::from(&[7, 9][..]));
        assert_ne!(seen, Array::from(&[7, 9, 0][..]));
        assert_eq!(seen.get(2), None);
        assert_eq!(seen.get(usize::MAX), None);
    }

    #[test]
    fn iterates_from_both_ends() {
        let array = Array::from(&[1_u64, 2, 3][..]);
        let mut iter = array.iter();
        assert_eq!(iter.next_back(), Some(3));
        assert_eq!(iter.len(), 2);
        assert_eq!(iter.next(), Some(1));
        assert_eq!(iter.next(), Some(2));
        assert!(iter.next().is_none() && iter.next_back().is_none());
    }
}
