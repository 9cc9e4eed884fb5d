//! The values of a file that is read again and again.
//!
//! What it is: [`super::ReadLayout`] where both times are among the values, worked out before the first read.
//! Read first: [`TimedLayout`].
//!
//! **Invariant:** bytes that [`super::ReadLayout::decode`] would refuse are refused here.

use super::ReadLayout;
use crate::attr::ReadFormat;

/// Where each value is in a read that brings both times.
///
/// ```
/// use pmux_abi::attr::ReadFormat;
/// use pmux_abi::read::TimedLayout;
///
/// let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
/// let layout = TimedLayout::new(times | ReadFormat::GROUP).unwrap();
/// let bytes = [2_u64, 90, 80, 1000, 2500].map(u64::to_ne_bytes);
/// let read = layout.read(bytes.as_flattened()).unwrap();
/// assert_eq!((read.enabled(), read.running(), read.value(1), read.value(2)), (90, 80, Some(2500), None));
/// assert!(TimedLayout::new(ReadFormat::GROUP).is_none(), "the times are missing");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimedLayout {
    reads: Reads,
    /// Words of one member.
    member: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Reads {
    /// One event: its value, the times, and what else the member has.
    Alone,
    /// The number of members, the times, and the members.
    Group,
}

/// Where one event's count is in every read of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePlace(usize);

/// The values of one read.
#[derive(Clone, Copy, Debug)]
pub struct TimedRead<'b> {
    words: &'b [[u8; 8]],
    layout: TimedLayout,
}

impl TimedLayout {
    /// The layout of a format; `None` where one of the times is missing.
    #[must_use]
    pub fn new(format: ReadFormat) -> Option<Self> {
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let reads = if format.contains(ReadFormat::GROUP) { Reads::Group } else { Reads::Alone };
        let member = ReadLayout::new(format).member_size() / 8;
        format.contains(times).then_some(Self { reads, member })
    }

    /// How many bytes a read of `members` events brings: [`ReadLayout::size`].
    #[must_use]
    #[inline]
    pub const fn size(self, members: usize) -> usize {
        match self.reads {
            Reads::Alone => 8 * (2 + self.member),
            Reads::Group => self.member.saturating_mul(members).saturating_add(3).saturating_mul(8),
        }
    }

    /// Where the count of the event at `index` is; `None` where there can't be so many.
    #[must_use]
    #[inline]
    pub fn place(self, index: usize) -> Option<ValuePlace> {
        let at = match self.reads {
            Reads::Alone => (index == 0).then_some(0)?,
            Reads::Group => index.checked_mul(self.member)?.checked_add(3)?,
        };
        Some(ValuePlace(at))
    }

    /// Looks at what a read brought; `None` where that is not of this layout.
    #[must_use]
    #[inline]
    pub fn read(self, bytes: &[u8]) -> Option<TimedRead<'_>> {
        let (words, rest) = bytes.as_chunks();
        let read = TimedRead { words, layout: self };
        let expected = match self.reads {
            Reads::Alone => 2 + self.member,
            Reads::Group => usize::try_from(read.word(0)).ok()?.checked_mul(self.member)?.checked_add(3)?,
        };
        (words.len() == expected && rest.is_empty()).then_some(read)
    }
}

impl TimedRead<'_> {
    #[inline]
    fn word(self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |&word| u64::from_ne_bytes(word))
    }

    /// Time enabled, ns.
    #[must_use]
    #[inline]
    pub fn enabled(self) -> u64 {
        self.word(1)
    }

    /// Time running, ns.
    #[must_use]
    #[inline]
    pub fn running(self) -> u64 {
        self.word(2)
    }

    /// What the event at `index` counted, not scaled; `None` past the end.
    #[must_use]
    #[inline]
    pub fn value(self, index: usize) -> Option<u64> {
        self.at(self.layout.place(index)?)
    }

    /// The same, of the event at a place that was looked up before.
    #[must_use]
    #[inline]
    pub fn at(self, place: ValuePlace) -> Option<u64> {
        self.words.get(place.0).map(|&word| u64::from_ne_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::read::{ReadMember, ReadValues};
    use std::vec::Vec;

    /// Every format, small groups: it sees what [`ReadLayout`] sees, and takes what this takes.
    #[test]
    fn it_says_what_the_layout_says() {
        let mut seen = 0;
        for format in (0..32).filter_map(ReadFormat::from_bits) {
            let Some(timed) = TimedLayout::new(format) else { continue };
            let layout = ReadLayout::new(format);
            let is_group = format.contains(ReadFormat::GROUP);
            for count in if is_group { 0..4_u64 } else { 1..2 } {
                seen += 1;
                let has = |bit, value| format.contains(bit).then_some(value);
                let member = |at| ReadMember {
                    value: 100 + at,
                    id: has(ReadFormat::ID, 200 + at),
                    lost: has(ReadFormat::LOST, 300 + at),
                };
                let members: Vec<ReadMember> = (0..count).map(member).collect();
                let values = ReadValues { time_enabled: Some(7), time_running: Some(6), ..ReadValues::of(&members) };
                let mut bytes = [0; 256];
                layout.write(&values, &mut crate::bytes::Writer::new(&mut bytes)).unwrap();
                let size = layout.size(members.len());
                assert_eq!(size, timed.size(members.len()));
                let read = timed.read(&bytes[..size]).unwrap();
                assert_eq!((read.enabled(), read.running()), (7, 6));
                let values: Vec<u64> = (0..9).map_while(|at| read.value(at)).collect();
                assert_eq!(values, members.iter().map(|member| member.value).collect::<Vec<_>>(), "{format:?}");
                assert_eq!(read.value(usize::MAX), None);
                for claimed in [0, 1, count, count + 1, 28, u64::MAX / 8, u64::MAX] {
                    bytes[..8].copy_from_slice(&claimed.to_ne_bytes());
                    for bytes in (0..256).map(|size| &bytes[..size]) {
                        let agreed = timed.read(bytes).is_some() == layout.decode(bytes).is_some();
                        assert!(agreed, "{format:?}: {} bytes that claim {claimed}", bytes.len());
                    }
                }
            }
        }
        // Eight formats have both times, one half of them for groups.
        assert_eq!(seen, 4 * 4 + 4);
    }
}
