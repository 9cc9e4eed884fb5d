//! Files of the kernel that the service passed, and what of their counts is ours.
//!
//! What it is: a file counts for everybody who asks the same question; the page says what to take off for one of them.
//! Read first: [`read`].
//!
//! **Invariant:** a number from a file and a number from the page are put together only if the page said the same before and
//! after the file was read.

use crate::shared::page::{Base, Page, Seen};
use crate::shared::wire::{GROUP_EVENTS, Handle, PassedFile, Totals};
use crate::sys;
use pmux_abi::attr::ReadFormat;
use pmux_abi::read::ReadLayout;
use std::os::fd::{AsFd, OwnedFd};

/// How often a reading is tried where the page changes in between.
const TRIES: u32 = 8;

pub(super) struct File {
    fd: OwnedFd,
    number: u64,
    layout: ReadLayout,
    values: usize,
    /// The event and its place among the values, for each of ours.
    places: Vec<(usize, usize)>,
}

/// What reading takes; kept, so that it allocates nothing.
#[derive(Default)]
pub(super) struct Scratch {
    bytes: Vec<u8>,
    seen: Vec<Seen>,
    /// What the events of a group have counted, in their order.
    pub(super) totals: Vec<Totals>,
}

/// Why the files say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoUse {
    /// There are none, or only the service can say at present.
    Ask,
    /// They tell of something else now.
    Moved,
    /// A pinned event has lost its counter.
    Unscheduled,
}

impl File {
    /// The files of a group, if what the service says about them makes sense.
    pub(super) fn all(told: &[PassedFile], fds: Vec<OwnedFd>, events: usize) -> Option<Vec<Self>> {
        if told.is_empty() {
            return Some(Vec::new());
        }
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let mut found = vec![0_u32; events];
        let mut files = Vec::with_capacity(told.len());
        for (file, fd) in told.iter().zip(fds) {
            if file.places.is_empty() {
                // Only to be held.
                files.push(Self { fd, number: 0, layout: ReadLayout::default(), values: 0, places: Vec::new() });
                continue;
            }
            let format = ReadFormat::from_bits(file.read_format).filter(|format| format.contains(times))?;
            let values = usize::try_from(file.values).ok().filter(|&values| (1..=GROUP_EVENTS).contains(&values))?;
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
                places.push((event, value));
            }
            files.push(Self { fd, number: file.number, layout: ReadLayout::new(format), values, places });
        }
        found.iter().all(|&count| count == 1).then_some(files)
    }

    /// The values and the two times of one read.
    fn read<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<pmux_abi::read::ReadValues<'b>, NoUse> {
        let need = self.layout.size(self.values);
        if buffer.len() < need {
            buffer.resize(need, 0);
        }
        match sys::read(self.fd.as_fd(), buffer) {
            Ok(0) => Err(NoUse::Unscheduled),
            Ok(bytes) => {
                let bytes = buffer.get(..bytes).ok_or(NoUse::Ask)?;
                self.layout.decode(bytes).map_err(|_| NoUse::Ask)
            }
            // What was passed is no event, or one that can't be read: the service may know better.
            Err(_) => Err(NoUse::Ask),
        }
    }
}

/// Reads what the events of a group have counted in this life, into [`Scratch::totals`].
pub(super) fn read(
    files: &[File],
    page: &Page,
    entries: &[u32],
    handles: &[Handle],
    scratch: &mut Scratch,
) -> Result<(), NoUse> {
    if files.is_empty() || entries.len() != handles.len() {
        return Err(NoUse::Ask);
    }
    scratch.totals.clear();
    scratch.totals.resize(handles.len(), Totals::default());
    for file in files.iter().filter(|file| !file.places.is_empty()) {
        let mut tries = 0..TRIES;
        while !read_one(file, page, entries, handles, scratch)? {
            tries.next().ok_or(NoUse::Ask)?;
        }
    }
    Ok(())
}

/// Reads one file; `false` where the page changed meanwhile.
fn read_one(
    file: &File,
    page: &Page,
    entries: &[u32],
    handles: &[Handle],
    scratch: &mut Scratch,
) -> Result<bool, NoUse> {
    let Scratch { bytes, seen, totals } = scratch;
    seen.clear();
    // What stands still needs no look at the counter.
    let mut standing = true;
    for &(event, _) in &file.places {
        let (&entry, &handle) = entries.get(event).zip(handles.get(event)).ok_or(NoUse::Ask)?;
        let one = page.read(entry, handle).ok_or(NoUse::Ask)?;
        match one.entry.base {
            Base::Ask => return Err(NoUse::Ask),
            Base::File(number, _) if number != file.number => return Err(NoUse::Moved),
            Base::File(..) => standing = false,
            Base::Standing(_) => {}
        }
        seen.push(one);
    }
    let values = if standing { None } else { Some(file.read(bytes)?) };
    for (&(event, value), seen) in file.places.iter().zip(&*seen) {
        let out = totals.get_mut(event).ok_or(NoUse::Ask)?;
        *out = match (seen.entry.base, &values) {
            (Base::Standing(totals), _) => totals,
            (Base::File(_, less), Some(values)) => {
                let member = values.members.iter().nth(value).ok_or(NoUse::Ask)?;
                Totals {
                    value: member.value.wrapping_sub(less.value),
                    enabled_ns: values.time_enabled.unwrap_or_default().wrapping_sub(less.enabled_ns),
                    running_ns: values.time_running.unwrap_or_default().wrapping_sub(less.running_ns),
                }
            }
            _ => return Err(NoUse::Ask),
        };
    }
    Ok(seen.iter().all(|seen| page.is_still(seen)))
}

/// Whether the page says that the files of some event tell of something else now.
pub(super) fn have_moved(files: &[File], page: Option<&Page>, entries: &[u32], handles: &[Handle]) -> bool {
    let Some(page) = page else { return false };
    files.iter().any(|file| {
        file.places.iter().any(|&(event, _)| {
            let place = entries.get(event).zip(handles.get(event));
            let seen = place.and_then(|(&entry, &handle)| page.read(entry, handle));
            seen.is_some_and(|seen| matches!(seen.entry.base, Base::File(number, _) if number != file.number))
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::shared::page::{Entry, FIRST_FILE, PageWriter};
    use crate::shared::wire::{Moment, Place};

    const TIMES: u64 = 0b11;
    const GROUP: u64 = 0b1011;

    fn file(read_format: u64, values: u32, places: &[(u32, u32)]) -> PassedFile {
        let places = places.iter().map(|&(event, value)| Place { event, value }).collect();
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

    fn makes_sense(told: &[PassedFile], events: usize) -> bool {
        let fds = told.iter().map(|_| content(&[])).collect();
        File::all(told, fds, events).is_some()
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
            (vec![file(u64::MAX, 1, &[(0, 0)])], 1, "nobody knows such a format"),
            (vec![file(GROUP, 0, &[(0, 0)])], 1, "no values"),
            (vec![file(GROUP, u32::MAX, &[(0, 0)])], 1, "more than a group has"),
        ];
        for (told, events, why) in bad {
            assert!(!makes_sense(&told, events), "{why}");
        }
    }

    /// What one read of a group's file brings, and the page says.
    fn reads(words: &[u64], bases: [Base; 2]) -> Result<Vec<Totals>, NoUse> {
        let (mut writer, page) = PageWriter::make(2).unwrap();
        let page = Page::map(&page, 2).unwrap();
        let handles = [Handle(7), Handle(8)];
        for (index, base) in (0..).zip(bases) {
            let handle = handles[index as usize];
            writer.write(index, &Entry { handle, moment: Moment::default(), base });
        }
        let files = File::all(&[file(GROUP, 2, &[(0, 0), (1, 1)])], vec![content(words)], 2).unwrap();
        let mut scratch = Scratch::default();
        read(&files, &page, &[0, 1], &handles, &mut scratch).map(|()| scratch.totals)
    }

    #[test]
    fn what_is_ours_is_what_is_left() {
        let less = |value, enabled_ns, running_ns| Totals { value, enabled_ns, running_ns };
        let ours = |less| Base::File(FIRST_FILE, less);
        // Two values, the two times before them.
        let words = [2, 1000, 900, 50, 60];
        let both = reads(&words, [ours(less(10, 100, 200)), ours(less(u64::MAX, 0, 0))]);
        assert_eq!(both, Ok(vec![less(40, 900, 700), less(61, 1000, 900)]));
        let one_stands = reads(&words, [ours(less(0, 0, 0)), Base::Standing(less(7, 8, 9))]);
        assert_eq!(one_stands, Ok(vec![less(50, 1000, 900), less(7, 8, 9)]));
        // What stands still is not looked at.
        let none = reads(&[], [Base::Standing(less(1, 2, 3)); 2]);
        assert_eq!(none, Ok(vec![less(1, 2, 3); 2]));
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
