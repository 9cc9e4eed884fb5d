//! The values of one read.
//!
//! Read first: [`ReadValues`].
//!
//! **Invariant:** members are read from the bytes one at a time, and never before they are asked for.

use core::fmt;

use super::ReadLayout;

/// One event of a read: its count, and who it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ReadMember {
    /// What it counted while running, not scaled.
    pub value: u64,
    /// Its id, with `PERF_FORMAT_ID`.
    pub id: Option<u64>,
    /// Samples that it lost, with `PERF_FORMAT_LOST`.
    pub lost: Option<u64>,
}

/// Everything that one read returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadValues<'a> {
    /// Time enabled, ns.
    pub time_enabled: Option<u64>,
    /// Time running, ns.
    pub time_running: Option<u64>,
    /// The events: one if read alone, else the whole group with its leader first.
    pub members: Members<'a>,
}

impl<'a> ReadValues<'a> {
    /// Returns the first member: the event itself, or the leader of its group.
    ///
    /// `None` only for a group of no members, which no kernel writes.
    #[must_use]
    pub fn first(&self) -> Option<ReadMember> {
        self.members.iter().next()
    }

    /// Makes values of members, to be encoded.
    #[must_use]
    pub fn of(members: &'a [ReadMember]) -> Self {
        Self { time_enabled: None, time_running: None, members: members.into() }
    }
}

#[derive(Clone, Copy)]
enum Source<'a> {
    /// Members laid out one after the other.
    Packed(&'a [u8], ReadLayout),
    /// A single member, which is not in one piece in the bytes.
    One(ReadMember),
    Items(&'a [ReadMember]),
}

/// The members of a read: a view of bytes when decoded, a slice when about to be encoded.
///
/// Two are equal when their members are.
#[derive(Clone, Copy)]
pub struct Members<'a> {
    source: Source<'a>,
}

impl<'a> Members<'a> {
    pub(super) fn packed(bytes: &'a [u8], layout: ReadLayout) -> Self {
        Self { source: Source::Packed(bytes, layout) }
    }

    pub(super) fn one(member: ReadMember) -> Self {
        Self { source: Source::One(member) }
    }

    fn len(&self) -> usize {
        match self.source {
            Source::Packed(bytes, layout) => bytes.len() / layout.member_size(),
            Source::One(_) => 1,
            Source::Items(items) => items.len(),
        }
    }

    /// Returns the member at `index`, or `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<ReadMember> {
        match self.source {
            Source::Packed(bytes, layout) => {
                let start = index.checked_mul(layout.member_size())?;
                let end = start.checked_add(layout.member_size())?;
                bytes.get(start..end).map(|bytes| layout.member_from(bytes))
            }
            Source::One(member) => (index == 0).then_some(member),
            Source::Items(items) => items.get(index).copied(),
        }
    }

    /// Iterates over the members.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ReadMember> + Clone + use<'a> {
        let members = *self;
        (0..self.len()).map(move |index| members.get(index).unwrap_or_default())
    }
}

impl Default for Members<'_> {
    fn default() -> Self {
        Self { source: Source::Items(&[]) }
    }
}

impl<'a> From<&'a [ReadMember]> for Members<'a> {
    fn from(items: &'a [ReadMember]) -> Self {
        Self { source: Source::Items(items) }
    }
}

impl PartialEq for Members<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Members<'_> {}

impl fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
