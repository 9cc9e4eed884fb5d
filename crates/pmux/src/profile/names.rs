//! Strings that are kept once: names of commands, of files, of events.
//!
//! **Invariant:** a [`Name`] stays valid and means the same text for ever.

use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::HashTable;
use std::hash::BuildHasher;

number! {
    /// A text that is kept in [`Names`].
    #[derive(Default)]
    Name, "Its place in the order in which texts came: for arrays beside [`Names`]."
}

/// Texts by number, each kept once.
#[derive(Debug, Default)]
pub struct Names {
    texts: Vec<Box<str>>,
    known: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
    /// The number of a text. What is no UTF-8 is replaced.
    pub fn intern(&mut self, text: &[u8]) -> Name {
        let text = String::from_utf8_lossy(text);
        let hash = self.hasher.hash_one(&*text);
        let Self { texts, known, hasher } = self;
        let is_same = |&index: &u32| texts.get(index as usize).is_some_and(|other| **other == *text);
        if let Some(&index) = known.find(hash, is_same) {
            return Name(index);
        }
        let index = texts.len() as u32;
        texts.push(text.into());
        known.insert_unique(hash, index, |&index| hasher.hash_one(texts.get(index as usize).map_or("", |text| text)));
        Name(index)
    }

    /// The text of a number.
    #[must_use]
    pub fn get(&self, name: Name) -> &str {
        self.texts.get(name.index()).map_or("", |text| text)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_kept_once() {
        let mut names = Names::default();
        let (a, b) = (names.intern(b"a"), names.intern(b"b\xff"));
        assert_eq!((names.intern(b"a"), names.len()), (a, 2));
        assert_eq!(names.get(b), "b\u{fffd}");
        assert!((0..10_000).all(|n: u32| names.intern(n.to_string().as_bytes()).index() == n as usize + 2));
        assert_eq!(names.intern(b"77").index(), 79);
    }
}
