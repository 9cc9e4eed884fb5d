//! Regions: parts of a program with names, which `pmux stat --regions` counts and `pmux record --regions` records.
//!
//! What it is: [`region`] and its guard. Read first: [`region`].
//!
//! **Invariant:** where nothing measures, entering a region is a load and a branch. Where something counts, each thread has events of its
//! own, which are read when the thread enters a region and when it leaves it.

use crate::counters::Counters;
use crate::error::Error;
use crate::event::{EventList, GroupKind, GroupStrength, ParsedGroup};
use crate::session::{Session, SharedChoice};
use crate::target::{Inherit, Options, Start, Target};
use pmux_abi::attr::EventType;
use pmux_engine::{Count, Nanos};
use pmux_linux::regions::{MarkKind, RegionSlot, RegionTable};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// It is not known yet whether regions are counted.
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
static MEASURED: OnceLock<Option<Measured>> = OnceLock::new();

thread_local! {
    static THREAD: RefCell<Option<ThreadRegions>> = const { RefCell::new(None) };
}

/// Enters a part of the program; it is left when the answer is dropped.
///
/// `pmux stat --regions` says for each name how often it was entered, how long it took and what it has cost: what the thread that
/// entered it has counted in between, over all threads and processes of the command. What other threads do for it meanwhile is not in
/// it. Regions may be within others, whose costs then include theirs; of a region within itself only the outer one counts. Names are
/// told apart by their first 64 bytes, and there may be 1,024 of them.
///
/// Any thread may call it, at any time. Where nothing measures, it costs about a nanosecond and makes no system call. Otherwise each
/// event is read twice, each time with one `read(2)`; the first region of a thread also opens its events. `pmux record --regions` opens none,
/// and records when a region was entered and left: samples of `region-time`. A signal's handler that
/// interrupts this function may call it, and is not counted.
///
/// ```
/// fn parse(text: &str) -> usize {
///     let _region = pmux::region("parse");
///     text.split(',').count()
/// }
/// assert_eq!(parse("a,b"), 2);
/// ```
#[inline]
pub fn region(name: &'static str) -> Region {
    // Relaxed: what is measured is found by way of the lock.
    let entered = if STATE.load(Ordering::Relaxed) == OFF { None } else { enter(name) };
    Region { entered, _of_a_thread: PhantomData }
}

/// A part of the program that was entered with [`region`], by the thread that has it.
#[must_use = "a region is left when this is dropped: bind it to a name, such as `_region`"]
#[derive(Debug)]
pub struct Region {
    entered: Option<Entered>,
    /// It counts a thread, and is of no use to others.
    _of_a_thread: PhantomData<*const ()>,
}

/// A region that is being counted.
#[derive(Debug)]
struct Entered {
    /// A child of this process has a copy of it, and no events.
    process: u32,
    /// Its place among those of the thread.
    place: usize,
    /// `None` for a region within itself.
    began: Option<Began>,
}

#[derive(Debug)]
struct Began {
    at: u64,
    counts: Vec<Count>,
}

/// What is measured.
struct Measured {
    table: RegionTable,
    events: String,
}

/// The regions of a thread.
struct ThreadRegions {
    process: u32,
    thread: u32,
    /// Whether regions are counted, and not marked.
    is_counted: bool,
    /// `None` where they could not be opened.
    counters: Option<Counters>,
    regions: Vec<KnownRegion>,
}

struct KnownRegion {
    name: &'static str,
    slot: Option<RegionSlot>,
    /// How often the thread is in it.
    depth: u32,
}

impl Drop for Region {
    #[inline]
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            leave(&entered);
        }
    }
}

fn measured() -> Option<&'static Measured> {
    let found = MEASURED.get_or_init(|| {
        let (table, events) = RegionTable::of_environment()?;
        Some(Measured { table, events })
    });
    STATE.store(if found.is_some() { ON } else { OFF }, Ordering::Relaxed);
    found.as_ref()
}

#[cold]
fn enter(name: &'static str) -> Option<Entered> {
    let measured = measured()?;
    let entered = THREAD.try_with(|thread| {
        // Not where it is borrowed: this is a signal's handler, or an allocator, that interrupts this very function.
        let mut thread = thread.try_borrow_mut().ok()?;
        let process = std::process::id();
        if thread.as_ref().is_some_and(|thread| thread.process != process) {
            // This is a child of that process. The events count a thread of the parent, and closing them is up to it.
            std::mem::forget(thread.take());
        }
        thread.get_or_insert_with(|| ThreadRegions::new(measured, process)).enter(measured, name)
    });
    match entered {
        Ok(Some(entered)) => Some(entered),
        Ok(None) | Err(_) => {
            measured.table.missed();
            None
        }
    }
}

#[cold]
fn leave(entered: &Entered) {
    let Some(measured) = measured() else { return };
    // Where the thread's own memory is gone, or is in use, the region stays one that was not left.
    let _ = THREAD.try_with(|thread| {
        let mut thread = thread.try_borrow_mut().ok()?;
        let thread = thread.as_mut().filter(|thread| thread.process == entered.process)?;
        // A child that is a copy of the process has no events until it enters a region.
        if entered.process == std::process::id() {
            thread.leave(measured, entered);
        }
        Some(())
    });
}

impl ThreadRegions {
    fn new(measured: &Measured, process: u32) -> Self {
        let is_counted = !measured.table.is_of_marks();
        let counters = if is_counted { open(measured).ok().flatten() } else { None };
        if is_counted && counters.is_none() {
            measured.table.uncounted_thread();
        }
        let thread = pmux_linux::current_tid().cast_unsigned();
        Self { process, thread, is_counted, counters, regions: Vec::new() }
    }

    fn enter(&mut self, measured: &Measured, name: &'static str) -> Option<Entered> {
        let known = self.regions.iter().position(|known| std::ptr::eq(known.name, name));
        let place = known.unwrap_or_else(|| {
            self.regions.push(KnownRegion { name, slot: measured.table.slot(name), depth: 0 });
            self.regions.len() - 1
        });
        let region = &mut self.regions[place];
        let slot = region.slot?;
        region.depth += 1;
        let is_outer = region.depth == 1;
        let process = self.process;
        if !self.is_counted {
            measured.table.mark(slot, (process, self.thread), MarkKind::Enter);
            return Some(Entered { process, place, began: None });
        }
        measured.table.entered(slot);
        // Last, so that nothing of this is counted.
        let began = is_outer.then(|| Began { counts: self.read(), at: pmux_linux::now_ns() });
        Some(Entered { process, place, began })
    }

    fn leave(&mut self, measured: &Measured, entered: &Entered) {
        // First, for the same reason.
        let now = pmux_linux::now_ns();
        let counts = entered.began.as_ref().map(|_| self.read()).unwrap_or_default();
        let Some(region) = self.regions.get_mut(entered.place) else { return };
        region.depth = region.depth.saturating_sub(1);
        let Some(slot) = region.slot else { return };
        match &entered.began {
            _ if !self.is_counted => measured.table.mark(slot, (self.process, self.thread), MarkKind::Leave),
            Some(began) => {
                let spent: Vec<_> = counts.iter().zip(&began.counts).map(|(now, then)| now.less(then)).collect();
                measured.table.left(slot, Some((Nanos(now.saturating_sub(began.at)), &spent)));
            }
            None => measured.table.left(slot, None),
        }
    }

    /// The counts of all events; those that are not there are 0, in no time.
    fn read(&self) -> Vec<Count> {
        let Some(counters) = &self.counters else { return Vec::new() };
        let snapshot = counters.read();
        snapshot.totals().map(|(_, reading)| reading.count().unwrap_or_default()).collect()
    }
}

/// Opens the events on the calling thread; `None` where these are not the ones that are meant.
fn open(measured: &Measured) -> Result<Option<Counters>, Error> {
    // What a service counts of a thread is known to it some time later.
    let session = Session::with_shared(SharedChoice::Never)?;
    let events = EventList::parse(&[&measured.events], session.catalog())?;
    let options = Options { inherit: Inherit::None, start: Start::AtOnce, ..Options::default() };
    if events.events().count() != measured.table.events() {
        // A text that means something else here: in another release, or in a container that has other devices.
        return Ok(None);
    }
    session.open(&read_at_once(events), &Target::CurrentThread, options).map(Some)
}

/// The same events, with software events that follow each other in one group: they need no counters, and a group is one `read(2)`.
fn read_at_once(list: EventList) -> EventList {
    let is_software = |group: &ParsedGroup| {
        group.kind == GroupKind::Single && group.events.iter().all(|event| event.attr.kind == EventType::SOFTWARE)
    };
    let mut groups: Vec<ParsedGroup> = Vec::new();
    let mut joins = false;
    for group in list.groups {
        let joined = std::mem::replace(&mut joins, is_software(&group));
        match groups.last_mut().filter(|_| joined && joins) {
            Some(before) => {
                before.events.extend(group.events);
                (before.kind, before.strength) = (GroupKind::Braced, GroupStrength::Weak);
            }
            None => groups.push(group),
        }
    }
    EventList { groups }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn software_events_are_read_at_once() {
        let session = Session::with_shared(SharedChoice::Never).unwrap();
        let text = "task-clock,page-faults,{cpu-clock,cs}:u,faults,r1,cs,migrations";
        let list = read_at_once(EventList::parse(&[text], session.catalog()).unwrap());
        let groups: Vec<Vec<&str>> =
            list.groups.iter().map(|group| group.events.iter().map(|event| &*event.name).collect()).collect();
        let names: [&[&str]; 5] =
            [&["task-clock", "page-faults"], &["cpu-clock", "cs"], &["faults"], &["r1"], &["cs", "migrations"]];
        assert_eq!(groups, names);
    }
}
