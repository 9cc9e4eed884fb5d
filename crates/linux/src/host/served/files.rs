//! Files of the kernel that the service passed, and what of their counts is ours.
//!
//! What it is: a file counts for identical requests; the page says what to take off for one of them.
//! Read first: [`PassedFiles::read`].
//!
//! What the page said is kept with the place of each value: one look at the entry's number after the read says whether it was
//! written again.
//!
//! **Invariant:** a number from a file and a number from the page are put together only if the page said that number before the
//! file was read, and nothing else until it had been.

use crate::host::opener::{TIMES, enabled_with};
use crate::shared::page::{Base, Mark, Page, Seen};
use crate::shared::wire::{GROUP_EVENTS, Handle, PassedFile, Totals};
use crate::sys;
use pmux_abi::attr::ReadFormat;
use pmux_abi::read::{TimedLayout, TimedRead, ValuePlace};
use std::os::fd::{AsFd, OwnedFd};

/// How often a reading is tried where the page changes in between.
const TRIES: u32 = 8;

#[derive(Default)]
pub(super) struct PassedFiles {
    read: Vec<File>,
    /// Those that are only held.
    _held: Vec<OwnedFd>,
}

struct File {
    fd: OwnedFd,
    number: u64,
    brings: Brings,
    layout: TimedLayout,
    /// As long as what a read brings.
    bytes: Box<[u8]>,
    /// For each of our events that it tells of.
    places: Vec<EventInFile>,
    page_says: PageSays,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Brings {
    /// One count and its two times, and nothing else.
    OneCount,
    /// As its layout says.
    More,
}

/// What the page said at the last look at all places of a file; it may have been written again since.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageSays {
    /// There was no look yet, or what was seen isn't so any more.
    Unknown,
    /// All of its events stand still: there is no need to look at the counter.
    Stopped,
    Counting,
}

struct EventInFile {
    event: usize,
    /// Which of the file's values.
    value: ValuePlace,
    ours: Ours,
    /// Since when that is so.
    mark: Mark,
}

/// What of a file's count is ours: all bits of it or none, and what is to be added. One sum says both without a question, because it is
/// asked at each reading.
#[derive(Clone, Copy, Default)]
struct Ours {
    of_file: u64,
    add: Totals,
}

impl Ours {
    /// None of what it counts now; and we have this.
    const fn stopped(totals: Totals) -> Self {
        Self { of_file: 0, add: totals }
    }

    /// All but this.
    fn without(less: Totals) -> Self {
        Self { of_file: u64::MAX, add: Totals::default().less(less) }
    }

    #[inline]
    const fn of(self, Totals { value, enabled_ns, running_ns }: Totals) -> Totals {
        let all = self.of_file;
        Totals { value: value & all, enabled_ns: enabled_ns & all, running_ns: running_ns & all }.plus(self.add)
    }
}

/// Where the page says what to take off.
#[derive(Clone, Copy)]
pub(super) struct PageEntries<'k> {
    pub(super) page: &'k Page,
    pub(super) entries: &'k [u32],
    pub(super) handles: &'k [Handle],
}

/// Why the files say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoUse {
    /// There are none, or only the service can say at present.
    Ask,
    Moved,
    /// A pinned event has lost its counter.
    Unscheduled,
}

impl PassedFiles {
    /// The files of a group, if what the service says about them makes sense.
    pub(super) fn of(passed: &[PassedFile], fds: Vec<OwnedFd>, events: usize) -> Option<Self> {
        let mut files = Self::default();
        if passed.is_empty() {
            return Some(files);
        }
        let mut found = vec![0_u32; events];
        for (file, fd) in passed.iter().zip(fds) {
            if file.places.is_empty() {
                files._held.push(fd);
                continue;
            }
            let values = usize::try_from(file.values).ok().filter(|&values| (1..=GROUP_EVENTS).contains(&values))?;
            let format = ReadFormat::from_bits(file.read_format)?;
            let layout = TimedLayout::new(format)?;
            if values > 1 && !format.contains(ReadFormat::GROUP) {
                return None;
            }
            let mut places = Vec::with_capacity(file.places.len());
            for place in &file.places {
                let (event, value) = (usize::try_from(place.event).ok()?, usize::try_from(place.value).ok()?);
                *found.get_mut(event)? += 1;
                if value >= values {
                    return None;
                }
                let (value, ours, mark) = (layout.place(value)?, Ours::default(), Mark::default());
                places.push(EventInFile { event, value, ours, mark });
            }
            let brings = if format == TIMES { Brings::OneCount } else { Brings::More };
            let (number, bytes) = (file.number, vec![0; layout.size(values)].into_boxed_slice());
            files.read.push(File { fd, number, brings, layout, bytes, places, page_says: PageSays::Unknown });
        }
        found.iter().all(|&count| count == 1).then_some(files)
    }

    /// Whether there are none that say anything.
    pub(super) const fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// Reads what the events of a group have counted in this life, into `out`.
    #[inline]
    pub(super) fn read(&mut self, from: PageEntries<'_>, mut out: impl FnMut(usize, Totals)) -> Result<(), NoUse> {
        if self.is_empty() {
            return Err(NoUse::Ask);
        }
        for file in &mut self.read {
            let mut tries = 0..TRIES;
            while !file.read(from, &mut out)? {
                tries.next().ok_or(NoUse::Ask)?;
            }
        }
        Ok(())
    }

    /// Reads the file of an event that has one to itself, if it is known already what the page says of it; `None` where more has to be
    /// done.
    #[inline]
    pub(super) fn read_alone(&mut self, page: &Page, event: usize) -> Option<Totals> {
        let [file] = &mut self.read[..] else { return None };
        let File { fd, brings: Brings::OneCount, page_says: PageSays::Counting, places, .. } = file else {
            return None;
        };
        let [place] = &places[..] else { return None };
        if place.event != event {
            return None;
        }
        let mut words = [[0; 8]; 3];
        let bytes = sys::read(fd.as_fd(), words.as_flattened_mut()).ok()?;
        if bytes != size_of_val(&words) || !page.is_still(place.mark) {
            return None;
        }
        let [value, enabled_ns, running_ns] = words.map(u64::from_ne_bytes);
        let enabled_ns = enabled_with(running_ns, enabled_ns);
        Some(place.ours.of(Totals { value, enabled_ns, running_ns }))
    }

    /// Whether the page says of these events that their files count for them.
    pub(super) fn count(&mut self, from: PageEntries<'_>, these: impl Fn(usize) -> bool) -> bool {
        let counts = |place: &EventInFile| !these(place.event) || place.ours.of_file != 0;
        !self.is_empty() && self.read.iter_mut().all(|file| file.look(from).is_ok() && file.places.iter().all(counts))
    }

    /// Whether the page says that the file of some event tells of something else now.
    pub(super) fn have_moved(&mut self, from: PageEntries<'_>) -> bool {
        self.read.iter_mut().any(|file| file.look(from) == Err(NoUse::Moved))
    }
}

impl File {
    /// Reads what its events have counted; `false` where the page has changed since the last look at it.
    #[inline]
    fn read(&mut self, from: PageEntries<'_>, out: &mut impl FnMut(usize, Totals)) -> Result<bool, NoUse> {
        if self.page_says == PageSays::Unknown {
            self.look(from)?;
        }
        let Self { fd, layout, bytes, places, page_says, .. } = self;
        let values = match page_says {
            PageSays::Stopped => None,
            PageSays::Counting | PageSays::Unknown => Some(read_values(fd, *layout, bytes)),
        };
        if !places.iter().all(|place| from.page.is_still(place.mark)) {
            self.page_says = PageSays::Unknown;
            return Ok(false);
        }
        let Some(values) = values.transpose()? else {
            places.iter().for_each(|place| out(place.event, place.ours.add));
            return Ok(true);
        };
        let running_ns = values.running();
        let enabled_ns = enabled_with(running_ns, values.enabled());
        for place in places {
            let value = values.at(place.value).ok_or(NoUse::Ask)?;
            out(place.event, place.ours.of(Totals { value, enabled_ns, running_ns }));
        }
        Ok(true)
    }

    /// Looks what the page says of its events.
    #[cold]
    fn look(&mut self, PageEntries { page, entries, handles }: PageEntries<'_>) -> Result<(), NoUse> {
        self.page_says = PageSays::Unknown;
        let mut says = PageSays::Stopped;
        for place in &mut self.places {
            let (&entry, &handle) = entries.get(place.event).zip(handles.get(place.event)).ok_or(NoUse::Ask)?;
            let Seen { entry, mark } = page.read(entry, handle).ok_or(NoUse::Ask)?;
            place.mark = mark;
            place.ours = match entry.base {
                Base::Ask => return Err(NoUse::Ask),
                Base::File(number, _) if number != self.number => return Err(NoUse::Moved),
                Base::File(_, less) => {
                    says = PageSays::Counting;
                    Ours::without(less)
                }
                Base::Stopped(totals) => Ours::stopped(totals),
            };
        }
        self.page_says = says;
        Ok(())
    }
}

/// The values and the two times of one read.
#[inline]
fn read_values<'b>(fd: &OwnedFd, layout: TimedLayout, into: &'b mut [u8]) -> Result<TimedRead<'b>, NoUse> {
    match sys::read(fd.as_fd(), into) {
        Ok(0) => Err(NoUse::Unscheduled),
        Ok(bytes) => into.get(..bytes).and_then(|bytes| layout.read(bytes)).ok_or(NoUse::Ask),
        // What was passed is no event, or one that can't be read: the service may know better.
        Err(_) => Err(NoUse::Ask),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::page::{Entry, FIRST_FILE, PageWriter};
    use crate::shared::wire::{TimedTotals, ValueIndex};

    const TIMES: u64 = 0b11;
    const GROUP: u64 = 0b1011;

    fn file(read_format: u64, values: u32, places: &[(u32, u32)]) -> PassedFile {
        let places = places.iter().map(|&(event, value)| ValueIndex { event, value }).collect();
        PassedFile { number: FIRST_FILE, read_format, values, places }
    }

    /// What stands in such a file, as an event would say it.
    fn content(words: &[u64]) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        file.into()
    }

    fn makes_sense(passed: &[PassedFile], events: usize) -> bool {
        let fds = passed.iter().map(|_| content(&[])).collect();
        PassedFiles::of(passed, fds, events).is_some()
    }

    #[test]
    fn files_that_make_no_sense_are_refused() {
        assert!(makes_sense(&[], 3));
        assert!(makes_sense(&[file(TIMES, 1, &[(0, 0)])], 1));
        assert!(makes_sense(&[file(GROUP, 2, &[(1, 1), (0, 0)])], 2));
        assert!(makes_sense(&[file(GROUP, 2, &[(0, 0), (1, 1)]), file(0, 0, &[])], 2), "one is only held");
        let bad = [
            (vec![file(TIMES, 1, &[(0, 0)])], 2, "an event has none"),
            (vec![file(GROUP, 2, &[(0, 0), (0, 1)])], 2, "an event has two"),
            (vec![file(TIMES, 1, &[(1, 0)])], 1, "there is no such event"),
            (vec![file(TIMES, 1, &[(u32::MAX, 0)])], 1, "nor such a one"),
            (vec![file(TIMES, 1, &[(0, 1)])], 1, "there is no such value"),
            (vec![file(TIMES, 2, &[(0, 1)])], 1, "one that is read alone has one value"),
            (vec![file(0, 1, &[(0, 0)])], 1, "the times are missing"),
            (vec![file(u64::MAX, 1, &[(0, 0)])], 1, "an unknown format"),
            (vec![file(GROUP, 0, &[(0, 0)])], 1, "no values"),
            (vec![file(GROUP, u32::MAX, &[(0, 0)])], 1, "more than a group has"),
        ];
        for (passed, events, why) in bad {
            assert!(!makes_sense(&passed, events), "{why}");
        }
    }

    /// What one read of a group's file brings, and the page says.
    fn reads(words: &[u64], bases: [Base; 2]) -> Result<Vec<Totals>, NoUse> {
        let (mut writer, page) = PageWriter::make(2).unwrap();
        let page = Page::map(&page, 2).unwrap();
        let handles = [Handle(7), Handle(8)];
        for (index, base) in (0..).zip(bases) {
            let handle = handles[index as usize];
            writer.write(index, &Entry { handle, moment: TimedTotals::default(), base });
        }
        let mut files = PassedFiles::of(&[file(GROUP, 2, &[(0, 0), (1, 1)])], vec![content(words)], 2).unwrap();
        let mut all = vec![Totals::default(); 2];
        let from = PageEntries { page: &page, entries: &[0, 1], handles: &handles };
        files.read(from, |at, totals| all[at] = totals).map(|()| all)
    }

    #[test]
    fn what_is_ours_is_what_is_left() {
        let less = |value, enabled_ns, running_ns| Totals { value, enabled_ns, running_ns };
        let ours = |less| Base::File(FIRST_FILE, less);
        // Two values, the two times before them.
        let words = [2, 1000, 900, 50, 60];
        let both = reads(&words, [ours(less(10, 100, 200)), ours(less(u64::MAX, 0, 0))]);
        assert_eq!(both, Ok(vec![less(40, 900, 700), less(61, 1000, 900)]));
        let one_stands = reads(&words, [ours(less(0, 0, 0)), Base::Stopped(less(7, 8, 9))]);
        assert_eq!(one_stands, Ok(vec![less(50, 1000, 900), less(7, 8, 9)]));
        // What stands still is not looked at.
        let none = reads(&[], [Base::Stopped(less(1, 2, 3)); 2]);
        assert_eq!(none, Ok(vec![less(1, 2, 3); 2]));
    }

    /// The short way says what the long one says, or nothing.
    #[test]
    fn one_event_of_its_own_is_read_the_short_way() {
        let (mut writer, page) = PageWriter::make(1).unwrap();
        let page = Page::map(&page, 1).unwrap();
        let mut write = |base| writer.write(0, &Entry { handle: Handle(7), moment: TimedTotals::default(), base });
        let total = |value, enabled_ns, running_ns| Totals { value, enabled_ns, running_ns };
        // Three reads, and a fourth that brings less.
        let words = [50, 1000, 900, 60, 2000, 1900, 70, 3000, 2900, 80, 4000];
        let mut files = PassedFiles::of(&[file(TIMES, 1, &[(0, 0)])], vec![content(&words)], 1).unwrap();
        let from = PageEntries { page: &page, entries: &[0], handles: &[Handle(7)] };
        let long = |files: &mut PassedFiles| {
            let mut seen = None;
            files.read(from, |_, totals| seen = Some(totals)).map(|()| seen.unwrap())
        };
        write(Base::File(FIRST_FILE, total(10, 100, 200)));
        assert_eq!(files.read_alone(&page, 0), None, "the page was not looked at");
        assert_eq!(long(&mut files), Ok(total(40, 900, 700)));
        assert_eq!(files.read_alone(&page, 1), None, "another event");
        assert_eq!(files.read_alone(&page, 0), Some(total(50, 1900, 1700)));
        write(Base::File(FIRST_FILE, total(20, 100, 200)));
        assert_eq!(files.read_alone(&page, 0), None, "the page says something else by now");
        write(Base::Stopped(total(1, 2, 3)));
        assert_eq!(long(&mut files), Ok(total(1, 2, 3)));
        assert_eq!(files.read_alone(&page, 0), None, "it stands still");
        let mut two = PassedFiles::of(&[file(GROUP, 2, &[(0, 0), (1, 1)])], vec![content(&[])], 2).unwrap();
        assert_eq!(two.read_alone(&page, 0), None, "a group");
    }

    #[test]
    fn what_says_nothing_is_told_apart() {
        let ours = Base::File(FIRST_FILE, Totals::default());
        let words = [2, 1000, 900, 50, 60];
        assert_eq!(reads(&words, [ours, Base::Ask]), Err(NoUse::Ask));
        assert_eq!(reads(&words, [ours, Base::File(FIRST_FILE + 1, Totals::default())]), Err(NoUse::Moved));
        assert_eq!(reads(&[], [ours; 2]), Err(NoUse::Unscheduled), "the end of the file");
        for broken in [&[2, 1000][..], &[1, 1000, 900, 50], &[3, 1000, 900, 50, 60], &[u64::MAX, 1000, 900, 50, 60]] {
            assert_eq!(reads(broken, [ours; 2]), Err(NoUse::Ask), "{broken:?}");
        }
    }
}
