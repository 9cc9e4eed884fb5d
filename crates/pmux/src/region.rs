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
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// It is not known yet whether regions are counted.
const UNKNOWN: i32 = 0;
const OFF: i32 = -1;
const ON: i32 = -2;
/// For so long others wait for the thread that finds out. In a child that is a copy of the process it may never end.
const PATIENCE: Duration = Duration::from_secs(1);

/// One of the above, or the number of the thread that finds out.
static STATE: AtomicI32 = AtomicI32::new(UNKNOWN);
static MEASURED: OnceLock<Measured> = OnceLock::new();

thread_local! {
    static THREAD: RefCell<Option<ThreadRegions>> = const { RefCell::new(None) };
}

/// Enters a part of the program; it is left when the answer is dropped.
///
/// `pmux stat --regions` says for each name how often it was entered, how long it took and what it has cost: what the thread that
/// entered it has counted in between, over all threads and processes of the command. What other threads do for it meanwhile is not in
/// it. Regions may be within others, whose costs then include theirs; what is in a region twice, within itself, counts once. Names are
/// told apart by their first 64 bytes, and there may be 1,024 of them. A guard that is forgotten ([`std::mem::forget`]) leaves its region
/// never.
///
/// Any thread may call it, at any time. Where nothing measures, it costs about a nanosecond and makes no system call. Otherwise entering
/// and leaving are a `getpid(2)` and a `read(2)` of each event (software events that follow each other are read at once) each; the first
/// region of a thread also opens its events. `pmux record --regions` opens none, and records when a region was entered and left: samples of
/// `region-time`. A signal's handler that interrupts this function may call it, and is not counted.
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
    // Relaxed: what is measured is found by way of its cell.
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

#[derive(Debug)]
struct Entered {
    /// A child that is a copy of this process has a copy of it, and no events.
    process: u32,
    /// Its place among those of the thread.
    place: usize,
}

struct Measured {
    table: RegionTable,
    events: String,
    process: u32,
    /// `None` where regions are marked, or where it could not be had.
    session: Option<Session>,
}

struct ThreadRegions {
    process: u32,
    thread: u32,
    /// Whether regions are counted, and not marked.
    is_counted: bool,
    /// `None` where they could not be opened.
    counters: Option<Counters>,
    regions: Vec<KnownRegion>,
    /// The place of each name. One text may stand at several addresses.
    names: Vec<(&'static str, usize)>,
    /// Whether the next mark is the first one, or behind one that was not recorded.
    is_fresh: bool,
}

struct KnownRegion {
    /// `None` where there was no room for its name.
    slot: Option<RegionSlot>,
    /// How often the thread is in it.
    depth: u32,
    /// Since when, if it is.
    began: Option<Began>,
}

#[derive(Debug)]
struct Began {
    at_ns: u64,
    counts: Vec<Count>,
}

impl Drop for Region {
    #[inline]
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            leave(&entered);
        }
    }
}

/// What is measured, if anything is.
#[cold]
fn find() -> Option<&'static Measured> {
    let thread = pmux_linux::current_tid();
    let state = STATE.compare_exchange(UNKNOWN, thread, Ordering::Relaxed, Ordering::Relaxed);
    if state.is_ok() {
        let found = RegionTable::of_environment().map(|(table, events)| {
            // What a service counts of a thread is known to it some time later.
            let session = if table.is_of_marks() { None } else { Session::with_shared(SharedChoice::Never).ok() };
            Measured { table, events, process: std::process::id(), session }
        });
        let is_on = found.is_some_and(|found| MEASURED.set(found).is_ok());
        // Pairs with the acquire in `measured`.
        STATE.store(if is_on { ON } else { OFF }, Ordering::Release);
    } else if state != Err(thread) {
        // This thread itself finds out where a signal's handler or an allocator has interrupted that.
        let until = Instant::now() + PATIENCE;
        while STATE.load(Ordering::Acquire) > UNKNOWN && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        if let state @ 1.. = STATE.load(Ordering::Relaxed) {
            let _ = STATE.compare_exchange(state, OFF, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
    MEASURED.get()
}

fn measured() -> Option<&'static Measured> {
    if STATE.load(Ordering::Acquire) == ON { MEASURED.get() } else { find() }
}

#[cold]
fn enter(name: &'static str) -> Option<Entered> {
    let measured = measured()?;
    let entered = THREAD.try_with(|thread| {
        // Not where it is borrowed: this is a signal's handler, or an allocator, that interrupts this very function.
        let mut thread = thread.try_borrow_mut().ok()?;
        let process = std::process::id();
        if thread.as_ref().is_some_and(|thread| thread.process != process) {
            // This is a copy of that process.
            *thread = None;
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
        if entered.process == std::process::id() {
            thread.leave(measured, entered.place);
        }
        Some(())
    });
}

impl Drop for ThreadRegions {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Of a process that this one is a copy of: closing the events is up to it, and another thread may have held a lock.
            std::mem::forget(self.counters.take());
        }
    }
}

impl ThreadRegions {
    fn new(measured: &Measured, process: u32) -> Self {
        let is_counted = !measured.table.is_of_marks();
        let counters = if is_counted { open(measured, process).ok().flatten() } else { None };
        if is_counted && counters.is_none() {
            measured.table.uncounted_thread();
        }
        let thread = pmux_linux::current_tid().cast_unsigned();
        Self { process, thread, is_counted, counters, regions: Vec::new(), names: Vec::new(), is_fresh: true }
    }

    fn place(&mut self, measured: &Measured, name: &'static str) -> usize {
        if let Some((_, place)) = self.names.iter().find(|(known, _)| std::ptr::eq(*known, name)) {
            return *place;
        }
        let slot = measured.table.slot(name);
        let known = self.regions.iter().position(|region| region.slot == slot);
        let place = known.unwrap_or_else(|| {
            self.regions.push(KnownRegion { slot, depth: 0, began: None });
            self.regions.len() - 1
        });
        self.names.push((name, place));
        place
    }

    fn enter(&mut self, measured: &Measured, name: &'static str) -> Option<Entered> {
        let place = self.place(measured, name);
        let slot = self.regions[place].slot?;
        if self.is_counted {
            measured.table.entered(slot);
            self.regions[place].depth += 1;
            if self.regions[place].depth == 1 {
                // Last, so that nothing of this is counted.
                let counts = self.read();
                self.regions[place].began = Some(Began { counts, at_ns: pmux_linux::now_ns() });
            }
        } else {
            self.mark(measured, slot, MarkKind::Enter);
        }
        Some(Entered { process: self.process, place })
    }

    fn leave(&mut self, measured: &Measured, place: usize) {
        let Some(KnownRegion { slot: Some(slot), depth, .. }) = self.regions.get(place) else { return };
        let (slot, depth) = (*slot, *depth);
        if !self.is_counted {
            self.mark(measured, slot, MarkKind::Leave);
            return;
        }
        let cost = (depth == 1).then(|| (pmux_linux::now_ns(), self.read()));
        let region = &mut self.regions[place];
        region.depth = depth.saturating_sub(1);
        match (cost, region.began.take_if(|_| depth == 1)) {
            (Some((now_ns, counts)), Some(began)) => {
                let spent: Vec<_> = counts.iter().zip(&began.counts).map(|(now, then)| now.less(then)).collect();
                measured.table.left(slot, Some((Nanos(now_ns.saturating_sub(began.at_ns)), &spent)));
            }
            _ => measured.table.left(slot, None),
        }
    }

    fn mark(&mut self, measured: &Measured, slot: RegionSlot, kind: MarkKind) {
        self.is_fresh = !measured.table.mark(slot, (self.process, self.thread), kind, self.is_fresh);
    }

    /// The counts of all events; those that are not there are 0, in no time.
    fn read(&self) -> Vec<Count> {
        let Some(counters) = &self.counters else { return Vec::new() };
        let snapshot = counters.read();
        snapshot.totals().map(|(_, reading)| reading.count().unwrap_or_default()).collect()
    }
}

/// Opens the events on the calling thread; `None` where these are not the ones that are meant.
fn open(measured: &Measured, process: u32) -> Result<Option<Counters>, Error> {
    let session = match &measured.session {
        Some(session) if measured.process == process => session.clone(),
        // A copy of the process has one of its own: another thread may have been about to use that one.
        _ => Session::with_shared(SharedChoice::Never)?,
    };
    let events = EventList::parse(&[&measured.events], session.catalog())?;
    let options = Options { inherit: Inherit::None, start: Start::AtOnce, ..Options::default() };
    if events.events().count() != measured.table.events() {
        // A text that means something else here: in another release, or in a container that has other devices.
        return Ok(None);
    }
    let events = read_at_once(events);
    let counters = session.open(&events, &Target::CurrentThread, options)?;
    // What this thread may count in part only has another name then.
    if counters.events().iter().zip(events.events()).any(|(opened, asked)| opened.name != asked.name) {
        measured.table.limited_thread();
    }
    Ok(Some(counters))
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
