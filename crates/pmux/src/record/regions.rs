//! Regions of a program, as samples of an event `region-time`: one for each time that a thread was in one.
//!
//! What it is: a command marks when its threads enter and leave regions ([`pmux_linux::regions`]); here two marks become a sample. Its
//! time is when the region was left, its period is how long the thread was in it and in none within it, and its call chain is the
//! region and those around it. So the periods of a tree of them add up to the time in the outermost one. Each region is a symbol, told as
//! a kernel's (KSYMBOL), at an address that no code has: every reader of `perf.data` finds its name.
//!
//! **Invariant:** a region that was not left, or whose marks were lost, has no sample and is in a note.

use super::existing::id_of;
use super::ours::{OurSample, Taken};
use crate::error::Error;
use crate::perf_data::EventDesc;
use pmux_abi::attr::{Attr, SampleFormat};
use pmux_abi::record::{Ksymbol, Misc, Record, RecordHeader, SampleLayout, TaskId, callchain, encode_record};
use pmux_linux::regions::{Mark, MarkKind, MarkReader, RegionSlot, RegionTable, TakeMarks};
use std::collections::{HashMap, HashSet};

pub(super) const EVENT: &str = "region-time";
/// Its id in the file: no event of the kernel has so large a number.
pub(super) const ID: u64 = 1 << 62;
/// The symbol of the first slot, in the kernel's half of addresses, where no kernel has code.
const FIRST_ADDRESS: u64 = 0xffff_ee00_0000_0000;
const SYMBOL_BYTES: u32 = 16;
/// A reader looks for what stands in front of an address that is returned to.
const WITHIN: u64 = 8;
/// What a symbol is: code out of line. perf looks for no program of the kernel then.
const OUT_OF_LINE: u16 = 2;
/// Regions within each other that a call chain has; more are left out, the outermost first.
const MOST_DEPTH: usize = 64;
/// Most regions that all threads together are in.
const MOST_OPEN: usize = 1 << 18;
/// So many marks are taken at once: what they become is as long as their call chains.
const MOST_AT_ONCE: u64 = 1 << 15;
/// And so often at most: a command may mark faster than they are written.
pub(super) const ROUNDS: u32 = 8;

pub(super) fn attr(like: &Attr) -> Attr {
    let attr = super::off_cpu::attr(like, super::CallChain::None);
    Attr { sample: attr.sample.difference(SampleFormat::ADDR), ..attr }
}

pub(super) struct MarkedRegions {
    table: RegionTable,
    reader: MarkReader,
    threads: HashMap<TaskId, Vec<OpenRegion>>,
    /// How many there are in all threads together.
    open: usize,
    /// Whose name is in the file.
    pub(super) named: HashSet<RegionSlot>,
    layout: SampleLayout,
    is_on: bool,
    /// Whether marks wait behind one that is being written: they come later than others of their time.
    pub(super) is_held_up: bool,
    /// What was taken before it was switched off.
    before: Taken,
    /// How often a region was left that was not seen to be entered, or the reverse.
    unmatched: u64,
    /// How many were under way when it was switched off.
    cut: u64,
    /// No mark is older: when marks were taken the last time but one, and the last time.
    taken_ns: [u64; 2],
    scratch: Box<[u8]>,
}

struct OpenRegion {
    slot: RegionSlot,
    since_ns: u64,
    within_ns: u64,
}

impl MarkedRegions {
    /// # Errors
    /// [`Error::Options`] for a table of counts.
    pub(super) fn new(table: RegionTable, desc: &EventDesc) -> Result<Self, Error> {
        if !table.is_of_marks() {
            return Err(Error::Options("this table is for counts: a recording takes `RegionTable::for_marks`"));
        }
        Ok(Self {
            table,
            reader: MarkReader::default(),
            threads: HashMap::new(),
            open: 0,
            named: HashSet::new(),
            layout: SampleLayout::new(&desc.attr),
            is_on: false,
            is_held_up: false,
            before: Taken::default(),
            unmatched: 0,
            cut: 0,
            taken_ns: [pmux_linux::now_ns(); 2],
            scratch: vec![0; RecordHeader::MAX_RECORD].into_boxed_slice(),
        })
    }

    pub(super) fn switch(&mut self, on: bool) {
        if std::mem::replace(&mut self.is_on, on) == on {
            return;
        }
        self.table.switch_marks(on);
        if !on {
            for _ in 0..ROUNDS {
                let (more, taken) = self.take_marks(TakeMarks::AtMost(MOST_AT_ONCE));
                self.before.append(taken);
                if !more {
                    break;
                }
            }
            // Whether they are left meanwhile is not known.
            self.cut += self.open as u64;
            self.threads.clear();
            self.open = 0;
        }
    }

    /// Takes out what the command has marked, as records; whether there may be more. At the end, all of it.
    pub(super) fn take(&mut self, is_last: bool) -> (bool, Taken) {
        let mut before = std::mem::take(&mut self.before);
        let (more, taken) = self.take_marks(if is_last { TakeMarks::TheLast } else { TakeMarks::AtMost(MOST_AT_ONCE) });
        before.append(taken);
        (more, before)
    }

    fn take_marks(&mut self, which: TakeMarks) -> (bool, Taken) {
        let mut marks = Vec::new();
        self.is_held_up = self.table.take_marks(&mut self.reader, which, |mark| marks.push(mark));
        let now_ns = pmux_linux::now_ns();
        marks.iter_mut().for_each(|mark| mark.at_ns = self.within_reason(mark.at_ns, now_ns));
        let more = marks.len() as u64 >= MOST_AT_ONCE;
        // What was held up is as old as it says.
        if !more && !self.is_held_up {
            self.taken_ns = [self.taken_ns[1], now_ns];
        }
        // Marks of several threads are not quite in the order of time, and a name stands before all samples that have it.
        let first_ns = marks.iter().map(|mark| mark.at_ns).min().unwrap_or(now_ns);
        let mut taken = Taken::default();
        for mark in &marks {
            self.follow(mark, first_ns, &mut taken);
        }
        (more, taken)
    }

    /// A time that a mark can have. A command may write whatever it wants: readers put the samples of others in order by it, too.
    fn within_reason(&self, at_ns: u64, now_ns: u64) -> u64 {
        at_ns.clamp(self.taken_ns[0].min(now_ns), now_ns)
    }

    /// Follows a thread into a region, or out of one.
    fn follow(&mut self, mark: &Mark, first_ns: u64, taken: &mut Taken) {
        let task = TaskId { pid: mark.pid, tid: mark.tid };
        if mark.is_fresh
            && let Some(open) = self.threads.remove(&task)
        {
            // Another program by now, another thread of that number, or one whose marks are lost.
            self.unmatched += open.len() as u64;
            self.open -= open.len();
        }
        if mark.kind == MarkKind::Enter {
            if self.open >= MOST_OPEN {
                self.unmatched += 1;
                return;
            }
            let region = OpenRegion { slot: mark.slot, since_ns: mark.at_ns, within_ns: 0 };
            self.threads.entry(task).or_default().push(region);
            self.open += 1;
            return;
        }
        let found = self.threads.get_mut(&task).and_then(|open| {
            let at = open.iter().rposition(|region| region.slot == mark.slot)?;
            Some((at, open))
        });
        let Some((at, open)) = found else {
            self.unmatched += 1;
            return;
        };
        // Those within it may go on: guards can be dropped in any order.
        let left = open.remove(at);
        self.open -= 1;
        let whole_ns = mark.at_ns.saturating_sub(left.since_ns);
        let around = &mut open[..at];
        if let Some(around) = around.last_mut() {
            around.within_ns = around.within_ns.saturating_add(whole_ns);
        }
        let around = around.iter().rev().map(|region| region.slot);
        let slots: Vec<RegionSlot> = std::iter::once(mark.slot).chain(around).take(MOST_DEPTH).collect();
        if open.is_empty() {
            // A thread that ends leaves nothing behind.
            self.threads.remove(&task);
        }
        self.sample(mark, &slots, whole_ns.saturating_sub(left.within_ns), first_ns, taken);
    }

    fn sample(&mut self, mark: &Mark, slots: &[RegionSlot], own_ns: u64, first_ns: u64, taken: &mut Taken) {
        for &slot in slots {
            if self.named.insert(slot) {
                self.name(mark, slot, first_ns, taken);
            }
        }
        let chain: Vec<u64> =
            std::iter::once(callchain::KERNEL).chain(slots.iter().map(|&slot| address(slot))).collect();
        let Mark { at_ns, pid, tid, cpu, .. } = *mark;
        let task = TaskId { pid, tid };
        let sample =
            OurSample { id: ID, task, cpu, at_ns, ns: own_ns, address: 0, weight: 0, chain: &chain, user: None };
        taken.add(&sample, &self.layout, &mut self.scratch);
    }

    fn name(&mut self, mark: &Mark, slot: RegionSlot, at_ns: u64, taken: &mut Taken) {
        // It goes to terminals.
        let name = self.table.name_of(slot).replace(char::is_control, "?");
        let name = if name.is_empty() { "[no name]" } else { &name };
        let (addr, name) = (address(slot) - WITHIN, name.as_bytes());
        let symbol = Ksymbol { addr, len: SYMBOL_BYTES, ksym_type: OUT_OF_LINE, flags: 0, name };
        let id = id_of(&self.layout, ID, TaskId { pid: mark.pid, tid: mark.tid }, mark.cpu, at_ns);
        let record = Record::Ksymbol(symbol);
        if let Ok(bytes) = encode_record(&record, Some(&id), Misc::KERNEL, &self.layout, &mut self.scratch) {
            taken.records.extend_from_slice(&self.scratch[..bytes]);
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let open = self.cut + self.open as u64;
        let notes = [
            (open, "regions were under way at the end, or when recording was switched off: they are not in the file"),
            (
                self.unmatched,
                "times a region was only seen to be entered, or only to be left: these are not in the file",
            ),
            (self.table.lost_marks(), "times a region was entered or left found no room: these are not in the file"),
            (
                self.table.read().missed,
                "times a region was entered that is not in the file: there are more than 1,024 names, or it interrupted another",
            ),
        ];
        let notes = notes.into_iter().filter(|(count, _)| *count > 0);
        notes.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// An address within the symbol of a region.
fn address(slot: RegionSlot) -> u64 {
    FIRST_ADDRESS + slot.index() as u64 * u64::from(SYMBOL_BYTES) + WITHIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::record::{Records, decode_record};

    const THREAD: (u32, u32) = (7, 8);

    /// A recording of regions, and its table as a command has it.
    fn recording() -> MarkedRegions {
        let sample = SampleFormat::IDENTIFIER | SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME;
        let like = Attr { sample, flags: pmux_abi::attr::AttrFlags::SAMPLE_ID_ALL, ..Attr::default() };
        let desc = EventDesc { attr: attr(&like), name: EVENT.to_owned(), ids: vec![ID] };
        let mut regions = MarkedRegions::new(RegionTable::for_marks().unwrap(), &desc).unwrap();
        regions.switch(true);
        regions
    }

    impl MarkedRegions {
        fn enters(&self, name: &str, is_fresh: bool) -> bool {
            self.table.mark(self.table.slot(name).unwrap(), THREAD, MarkKind::Enter, is_fresh)
        }

        fn leaves(&self, name: &str, is_fresh: bool) -> bool {
            self.table.mark(self.table.slot(name).unwrap(), THREAD, MarkKind::Leave, is_fresh)
        }

        /// What is written: the names of each call chain, innermost first, and the period.
        fn written(&mut self) -> Vec<(Vec<String>, u64)> {
            let (_, taken) = self.take(true);
            let (mut names, mut samples) = (HashMap::new(), Vec::new());
            for record in Records::new(&taken.records).flatten() {
                match decode_record(record, &self.layout).unwrap().0 {
                    Record::Ksymbol(symbol) => {
                        names.insert(symbol.addr, String::from_utf8(symbol.name.to_vec()).unwrap());
                    }
                    Record::Sample(sample) => {
                        let chain: Vec<u64> = sample.callchain.unwrap().iter().skip(1).collect();
                        let name = |address: &u64| names.get(&(address - WITHIN)).cloned().unwrap_or("?".to_owned());
                        samples.push((chain.iter().map(name).collect(), sample.period.unwrap()));
                    }
                    other => panic!("{other:?}"),
                }
            }
            samples
        }

        fn chains(&mut self) -> Vec<Vec<String>> {
            self.written().into_iter().map(|(chain, _)| chain).collect()
        }
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let mut regions = recording();
        for (enters, name) in [(true, "a"), (true, "b"), (true, "c"), (false, "a"), (false, "c"), (false, "b")] {
            assert!(if enters { regions.enters(name, false) } else { regions.leaves(name, false) });
        }
        assert_eq!(regions.chains(), [vec!["a"], vec!["c", "b"], vec!["b"]]);
        assert_eq!(regions.notes(), [""; 0]);
    }

    #[test]
    fn what_was_missed_makes_no_long_sample() {
        let mut regions = recording();
        regions.enters("outer", true);
        regions.enters("inner", false);
        // Two marks are lost here, as where there is no room; or it is another program by now.
        regions.enters("later", true);
        regions.leaves("inner", false);
        regions.leaves("later", false);
        assert_eq!(regions.chains(), [["later"]]);
        assert_eq!(regions.notes().len(), 1);
        assert!(regions.notes()[0].starts_with("3 times a region was only seen"), "{:?}", regions.notes());
    }

    #[test]
    fn what_was_begun_before_a_pause_has_no_sample() {
        let mut regions = recording();
        regions.enters("done", true);
        regions.leaves("done", false);
        regions.enters("cut", false);
        regions.switch(false);
        assert!(!regions.leaves("cut", false));
        regions.switch(true);
        // Once more changes nothing.
        regions.enters("cut", true);
        regions.switch(true);
        regions.leaves("cut", false);
        let written = regions.written();
        let chains: Vec<_> = written.iter().map(|(chain, _)| chain.join(" ")).collect();
        assert_eq!(chains, ["done", "cut"]);
    }

    #[test]
    fn a_command_tells_no_time_but_its_own() {
        let mut regions = recording();
        let began = pmux_linux::now_ns();
        let slot = regions.table.slot("x").unwrap();
        for (kind, at_ns) in [(MarkKind::Enter, 0), (MarkKind::Leave, u64::MAX)] {
            let mark = Mark { at_ns, pid: 1, tid: 1, cpu: 0, slot, kind, is_fresh: false };
            let at_ns = regions.within_reason(mark.at_ns, pmux_linux::now_ns());
            regions.follow(&Mark { at_ns, ..mark }, began, &mut Taken::default());
        }
        assert!(regions.within_reason(u64::MAX, began) <= began && regions.within_reason(0, began) > 0);
        // Nor does it grow.
        for tid in 0..MOST_OPEN as u32 + 9 {
            let mark = Mark { at_ns: began, pid: 1, tid, cpu: 0, slot, kind: MarkKind::Enter, is_fresh: false };
            regions.follow(&mark, began, &mut Taken::default());
        }
        assert_eq!((regions.open, regions.unmatched), (MOST_OPEN, 9));
    }

    #[test]
    fn names_are_for_terminals() {
        let mut regions = recording();
        for name in ["a\u{1b}[2Jb\u{9b}\n", ""] {
            regions.enters(name, false);
            regions.leaves(name, false);
        }
        assert_eq!(regions.chains(), [["a?[2Jb??"], ["[no name]"]]);
        let desc = EventDesc { attr: Attr::default(), name: String::new(), ids: Vec::new() };
        assert!(MarkedRegions::new(RegionTable::make("", 0).unwrap(), &desc).is_err());
    }
}
