//! Counts of the regions of a program, or marks of when it was in them: memory that a measured command writes into.
//!
//! What it is: a file without a name, which the command inherits with all that it starts, and a slot in it for each region.
//! Read first: [`RegionTable`].
//!
//! **Invariant:** a command can spoil the numbers of its own regions, and nothing else: what it writes is taken for numbers and for
//! names, and the file keeps its size.

mod marks;

pub use marks::{Mark, MarkKind, MarkReader, TakeMarks};

use crate::spawn::Inherited;
use crate::sys::{Errno, SharedWords, copy_above, has_rights_of_its_own};
use pmux_engine::{Count, Nanos};
use std::fs::{File, OpenOptions};
use std::hint::spin_loop;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::yield_now;

/// The environment variable that says where a measured program finds the table, and which events are counted.
pub const REGIONS_VARIABLE: &str = "PMUX_REGIONS";
/// Most events that are counted in regions.
pub const MOST_EVENTS: usize = 16;
/// Most names of regions.
pub const MOST_REGIONS: usize = 1024;
/// Bytes of a name by which regions are told apart.
pub const NAME_BYTES: usize = 64;

/// What the first word is: another layout has another one.
const MAGIC: u64 = u64::from_le_bytes(*b"pmuxreg1");
/// Behind the magic: how many events each slot has counts of.
const EVENTS: usize = 1;
/// How often a region was entered that found no slot, or by a thread that could not look for one.
const MISSED: usize = 2;
/// How many threads could not open the events.
const UNCOUNTED_THREADS: usize = 3;
/// How many threads have fewer rights than the events ask for, and counted a part of what they count.
const LIMITED_THREADS: usize = 9;
// Words from 4 to 8 are of [`marks`].
const HEAD_WORDS: usize = 16;

// A slot: its state, the length of its name, and the name.
const STATE: usize = 0;
const NAME_LENGTH: usize = 1;
const NAME: usize = 2;
const NAME_WORDS: usize = NAME_BYTES / 8;
const ENTERED: usize = NAME + NAME_WORDS;
const LEFT: usize = ENTERED + 1;
const ELAPSED: usize = LEFT + 1;
/// For each event its value, and for how long it was enabled and on a counter.
const COUNTS: usize = ELAPSED + 1;
const SLOT_WORDS: usize = COUNTS + 3 * MOST_EVENTS;
/// Of a table of counts; marks come on top.
const TABLE_WORDS: usize = HEAD_WORDS + MOST_REGIONS * SLOT_WORDS;

const FREE: u64 = 0;
/// A thread writes the name.
const CLAIMED: u64 = 1;
const NAMED: u64 = 2;
/// How often one looks again at a slot whose name is being written, before it is left to itself: its writer may be dead.
const LOOKS: u32 = 200;
/// So often of these the CPU is given up.
const TURNS: u32 = 50;

/// Descriptors from this number on are used by no shell and no service by number.
const FIRST_INHERITED: i32 = 200;
/// From this number on they are no standard streams, and not those that shells take first.
const FIRST_FREE: i32 = 10;

/// The regions of a command and of all that it starts.
#[derive(Debug)]
pub struct RegionTable {
    words: SharedWords,
    /// What a command inherits; `None` in the command.
    inherited: Option<Inherited>,
}

/// Where the counts of one region are added up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionSlot(usize);

impl RegionSlot {
    /// Which one it is, below [`MOST_REGIONS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// What one region has cost, over all threads and processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionCounts {
    /// Its name, at most [`NAME_BYTES`] bytes of it.
    pub name: String,
    /// How often it was entered.
    pub entered: u64,
    /// How often it was left; what follows is of these times.
    pub left: u64,
    /// The time between the two, added up. Of a region within itself, only the outer one counts.
    pub elapsed: Nanos,
    /// One count for each event.
    pub counts: Vec<Count>,
}

/// All regions, and what is missing in them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Regions {
    /// In the order in which they found their places, which means nothing.
    pub regions: Vec<RegionCounts>,
    /// How often a region was entered that is not among them: there were more than [`MOST_REGIONS`] names, or it was in a signal's handler
    /// or an allocator that interrupted another one.
    pub missed: u64,
    /// How many threads could not open the events: their regions have times and no counts.
    pub uncounted_threads: u64,
    /// How many threads have fewer rights than the events ask for: what they did in the kernel is not in their counts.
    pub limited_threads: u64,
}

impl RegionTable {
    /// Makes an empty table for this many events; `events` is their text, as `-e` takes it.
    ///
    /// # Errors
    /// `EINVAL` for more than [`MOST_EVENTS`]; `EMFILE`, `ENFILE`, `ENOMEM` where there is no room for it.
    pub fn make(events: &str, count: usize) -> Result<Self, Errno> {
        if count > MOST_EVENTS {
            return Err(Errno::EINVAL);
        }
        Self::make_sized(events, count, TABLE_WORDS)
    }

    fn make_sized(events: &str, count: usize, words: usize) -> Result<Self, Errno> {
        let (words, file) = SharedWords::make(words)?;
        // Where the limit of open files is lower, somewhat lower.
        let file = copy_above(file.as_fd(), FIRST_INHERITED).or_else(|_| copy_above(file.as_fd(), FIRST_FREE))?;
        let value = format!("{}:{}:{events}", std::process::id(), file.as_raw_fd());
        let inherited = Inherited { file: Arc::new(file), variable: REGIONS_VARIABLE, value };
        let table = Self { words, inherited: Some(inherited) };
        table.word(EVENTS).store(count as u64, Ordering::Relaxed);
        table.word(0).store(MAGIC, Ordering::Relaxed);
        Ok(table)
    }

    /// As [`RegionTable::make`], for marks of when regions are entered and left ([`RegionTable::take_marks`]), and no counts.
    ///
    /// # Errors
    /// As [`RegionTable::make`].
    pub fn for_marks() -> Result<Self, Errno> {
        let table = Self::make_sized("", 0, TABLE_WORDS + marks::WORDS)?;
        table.marks_instead_of_counts();
        Ok(table)
    }

    /// What a command inherits so that its regions are counted here; `None` of a table that was found and not made.
    #[must_use]
    pub fn inherited(&self) -> Option<Inherited> {
        self.inherited.clone()
    }

    /// Finds the table that the environment names, and the text of the events; `None` where there is none, and in a program with rights of its
    /// own (`AT_SECURE`).
    #[must_use]
    pub fn of_environment() -> Option<(Self, String)> {
        if has_rights_of_its_own() {
            // Which events it opens is not up to those who start it.
            return None;
        }
        let value = std::env::var(REGIONS_VARIABLE).ok()?;
        let (pid, rest) = value.split_once(':')?;
        let (number, events) = rest.split_once(':')?;
        let (pid, number) = (pid.parse::<u32>().ok()?, number.parse::<u32>().ok()?);
        // Inherited; or where a program on the way here has closed what it did not know, as the one that measures has it.
        let mut places = [format!("/proc/self/fd/{number}"), format!("/proc/{pid}/fd/{number}")].into_iter();
        let table = places.find_map(|place| Self::open(place.into()))?;
        Some((table, events.to_owned()))
    }

    fn open(place: PathBuf) -> Option<Self> {
        // Another file of that number is not even opened: that might have an effect.
        let name = std::fs::read_link(&place).ok()?;
        name.to_str().filter(|name| name.starts_with("/memfd:pmux"))?;
        let file: OwnedFd = File::into(OpenOptions::new().read(true).write(true).open(place).ok()?);
        let map = |words| Some(Self { words: SharedWords::map(file.as_fd(), words).ok()?, inherited: None });
        let table = map(TABLE_WORDS).filter(|table| table.word(0).load(Ordering::Relaxed) == MAGIC)?;
        if table.is_of_marks() { map(TABLE_WORDS + marks::WORDS) } else { Some(table) }
    }

    /// How many events have counts here.
    #[must_use]
    pub fn events(&self) -> usize {
        usize::try_from(self.word(EVENTS).load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(MOST_EVENTS)
    }

    /// The slot of a name; `None` where all are of other names.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<RegionSlot> {
        let mut end = name.len().min(NAME_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let name = &name[..end];
        let mut text = [0; NAME_BYTES];
        text[..name.len()].copy_from_slice(name.as_bytes());
        // FNV-1a: names are short, and only have to differ.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let first = (hash % MOST_REGIONS as u64) as usize;
        (0..MOST_REGIONS).map(|step| RegionSlot((first + step) % MOST_REGIONS)).find(|&slot| {
            let state = &self.slot_words(slot)[STATE];
            // Pairs with the release below: who sees that a slot is named sees its name.
            if state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, Ordering::Acquire).is_ok() {
                let words = self.slot_words(slot);
                words[NAME_LENGTH].store(name.len() as u64, Ordering::Relaxed);
                for (word, bytes) in words[NAME..].iter().zip(text.as_chunks::<8>().0) {
                    word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
                }
                state.store(NAMED, Ordering::Release);
                return true;
            }
            for look in 0..LOOKS {
                if state.load(Ordering::Acquire) == NAMED {
                    break;
                }
                // It may have lost its CPU to this very thread. Where many threads want one, each turn may cost a slice.
                if look < LOOKS - TURNS { spin_loop() } else { yield_now() }
            }
            self.name(slot) == Some(text)
        })
    }

    /// The region of a slot is entered.
    pub fn entered(&self, slot: RegionSlot) {
        self.slot_words(slot)[ENTERED].fetch_add(1, Ordering::Relaxed);
    }

    /// The region of a slot is left. `cost` is what it has cost: how long it took, and one count for each event; `None` for one within
    /// itself, whose cost is in that of the outer one.
    pub fn left(&self, slot: RegionSlot, cost: Option<(Nanos, &[Count])>) {
        let words = self.slot_words(slot);
        if let Some((elapsed, counts)) = cost {
            words[ELAPSED].fetch_add(elapsed.0, Ordering::Relaxed);
            for (words, count) in words[COUNTS..].as_chunks::<3>().0.iter().zip(counts) {
                for (word, part) in words.iter().zip([count.value, count.enabled.0, count.running.0]) {
                    word.fetch_add(part, Ordering::Relaxed);
                }
            }
        }
        words[LEFT].fetch_add(1, Ordering::Relaxed);
    }

    /// A region is entered that has no slot.
    pub fn missed(&self) {
        self.word(MISSED).fetch_add(1, Ordering::Relaxed);
    }

    /// A thread could not open the events.
    pub fn uncounted_thread(&self) {
        self.word(UNCOUNTED_THREADS).fetch_add(1, Ordering::Relaxed);
    }

    /// A thread counts a part of what the events ask for.
    pub fn limited_thread(&self) {
        self.word(LIMITED_THREADS).fetch_add(1, Ordering::Relaxed);
    }

    /// What all regions have cost so far.
    #[must_use]
    pub fn read(&self) -> Regions {
        let mut regions: Vec<RegionCounts> = Vec::new();
        for slot in (0..MOST_REGIONS).map(RegionSlot) {
            let Some(text) = self.name(slot) else { continue };
            let words = self.slot_words(slot);
            let load = |at: usize| words[at].load(Ordering::Relaxed);
            let count = |event: usize| {
                let at = COUNTS + 3 * event;
                Count { value: load(at), enabled: Nanos(load(at + 1)), running: Nanos(load(at + 2)) }
            };
            let found = RegionCounts {
                name: self.text(slot, &text),
                left: load(LEFT),
                entered: load(ENTERED),
                elapsed: Nanos(load(ELAPSED)),
                counts: (0..self.events()).map(count).collect(),
            };
            // A name has two slots where the thread that claimed the first one for it was stopped on the way.
            match regions.iter_mut().find(|region| region.name == found.name) {
                Some(region) => {
                    region.left = region.left.wrapping_add(found.left);
                    region.entered = region.entered.wrapping_add(found.entered);
                    region.elapsed = Nanos(region.elapsed.0.wrapping_add(found.elapsed.0));
                    region.counts.iter_mut().zip(found.counts).for_each(|(count, more)| *count += more);
                }
                None => regions.push(found),
            }
        }
        let word = |at: usize| self.word(at).load(Ordering::Relaxed);
        let (uncounted_threads, limited_threads) = (word(UNCOUNTED_THREADS), word(LIMITED_THREADS));
        Regions { regions, missed: word(MISSED), uncounted_threads, limited_threads }
    }

    /// The name of a region; empty where it has none.
    #[must_use]
    pub fn name_of(&self, slot: RegionSlot) -> String {
        self.name(slot).map(|text| self.text(slot, &text)).unwrap_or_default()
    }

    fn text(&self, slot: RegionSlot, text: &[u8; NAME_BYTES]) -> String {
        let length = self.slot_words(slot)[NAME_LENGTH].load(Ordering::Relaxed);
        let length = usize::try_from(length).unwrap_or(NAME_BYTES).min(NAME_BYTES);
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words.words()[at]
    }

    fn slot_words(&self, slot: RegionSlot) -> &[AtomicU64] {
        let at = HEAD_WORDS + slot.0 * SLOT_WORDS;
        &self.words.words()[at..at + SLOT_WORDS]
    }

    /// The name of a slot that has one.
    fn name(&self, slot: RegionSlot) -> Option<[u8; NAME_BYTES]> {
        let words = self.slot_words(slot);
        if words[STATE].load(Ordering::Acquire) != NAMED {
            return None;
        }
        let mut text = [0; NAME_BYTES];
        for (bytes, word) in text.as_chunks_mut::<8>().0.iter_mut().zip(&words[NAME..]) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// The same table as another process has it.
    fn theirs(table: &RegionTable) -> RegionTable {
        let number = table.inherited().unwrap().file.as_raw_fd();
        RegionTable::open(format!("/proc/self/fd/{number}").into()).unwrap()
    }

    #[test]
    fn threads_that_find_a_name_at_once_find_one_slot() {
        let table = RegionTable::make("a,b", 2).unwrap();
        // However long a thread is kept from writing a name, there is a slot for each.
        let names: Vec<String> = (0..MOST_REGIONS / 4).map(|number| format!("region {number}")).collect();
        let together = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let own = theirs(&table);
                    together.wait();
                    for name in &names {
                        let slot = own.slot(name).unwrap();
                        own.entered(slot);
                        let count = |value| Count { value, enabled: Nanos(4), running: Nanos(2) };
                        own.left(slot, Some((Nanos(10), &[count(1), count(u64::MAX)])));
                    }
                });
            }
        });
        let found = table.read();
        assert_eq!(found.regions.len(), names.len());
        let count = |value| Count { value, enabled: Nanos(16), running: Nanos(8) };
        for region in &found.regions {
            let counts = vec![count(4), count(u64::MAX - 3)];
            let expected = RegionCounts { name: region.name.clone(), entered: 4, left: 4, elapsed: Nanos(40), counts };
            assert_eq!(*region, expected);
        }
        assert_eq!(table.slot("region 5"), theirs(&table).slot("region 5"));
    }

    #[test]
    fn there_are_so_many_names_and_no_more() {
        let table = RegionTable::make("a,b", 2).unwrap();
        let mut slots: Vec<_> = (1..MOST_REGIONS).map(|number| table.slot(&format!("region {number}"))).collect();
        assert!(table.slot("the last one").is_some() && table.slot("one too many").is_none());
        assert_eq!(table.slot("region 5"), theirs(&table).slot("region 5"));
        slots.sort_by_key(|slot| slot.unwrap().index());
        slots.dedup();
        assert_eq!((slots.len(), table.read().regions.len()), (MOST_REGIONS - 1, MOST_REGIONS));
    }

    #[test]
    fn names_end_at_a_whole_letter() {
        let table = RegionTable::make("", 0).unwrap();
        let long = format!("{}ä", "x".repeat(NAME_BYTES - 1));
        assert_eq!(table.slot(&long), table.slot(&long[..NAME_BYTES - 1]));
        assert!(table.slot("").is_some());
        let mut names: Vec<_> = table.read().regions.into_iter().map(|region| region.name).collect();
        names.sort();
        assert_eq!(names, ["", &long[..NAME_BYTES - 1]]);
    }

    /// What a command writes is numbers, whatever it is.
    #[test]
    fn a_spoiled_table_is_read_all_the_same() {
        let table = RegionTable::make("a", 1).unwrap();
        for (at, word) in table.words.words().iter().enumerate() {
            word.store(if at % 3 == 0 { NAMED } else { u64::MAX - at as u64 % 7 }, Ordering::Relaxed);
        }
        let found = table.read();
        assert!(found.regions.iter().all(|region| region.counts.len() == MOST_EVENTS));
        assert_eq!(table.slot("x"), None);
    }

    /// A thread that has claimed a slot and was killed leaves it to no other.
    #[test]
    fn a_slot_without_a_name_is_passed_over() {
        let table = RegionTable::make("a", 1).unwrap();
        let slot = table.slot("x").unwrap();
        table.slot_words(slot)[STATE].store(CLAIMED, Ordering::Relaxed);
        let other = table.slot("x").unwrap();
        assert_ne!(slot, other);
        table.slot_words(slot)[STATE].store(NAMED, Ordering::Relaxed);
        table.entered(slot);
        table.entered(other);
        let found = table.read().regions;
        assert_eq!(found.iter().map(|region| (&*region.name, region.entered)).collect::<Vec<_>>(), [("x", 2)]);
    }

    #[test]
    fn another_file_is_no_table() {
        assert!(RegionTable::open("/proc/self/exe".into()).is_none());
        let (_words, file) = SharedWords::make(TABLE_WORDS).unwrap();
        assert!(RegionTable::open(format!("/proc/self/fd/{}", file.as_raw_fd()).into()).is_none());
        assert_eq!(RegionTable::make("", MOST_EVENTS + 1).err(), Some(Errno::EINVAL));
    }
}
