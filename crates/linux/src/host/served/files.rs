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
