//! Regions of a program, as samples of an event `region-time`: one for each time that a thread was in one.
//!
//! What it is: a command marks when its threads enter and leave regions ([`pmux_linux::regions`]); here two marks become a sample. Its
//! time is when the region was left, its period is how long the thread was in it and in none within it, and its call chain is the
//! region and those around it. So the periods of a tree of them add up to the time in the outermost one. Each region is a symbol, told as
//! a kernel's (KSYMBOL), at an address that no code has: every reader of `perf.data` finds its name.
//!
//! **Invariant:** a region that was not left, or whose marks were lost, has no sample and is in a note.

use super::existing::empty_id;
use super::off_cpu::Taken;
use crate::perf_data::EventDesc;
use pmux_abi::Array;
use pmux_abi::attr::{Attr, SampleFormat};
use pmux_abi::record::{
    Ksymbol, Misc, Record, RecordHeader, Sample, SampleId, SampleLayout, TaskId, callchain, encode_record,
};
use pmux_linux::regions::{Mark, MarkKind, MarkReader, RegionSlot, RegionTable};
use std::collections::{HashMap, HashSet};

/// The event.
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
/// Most regions that one thread is in, and most threads that are in any.
const MOST_OPEN: usize = 1024;
const MOST_THREADS: usize = 1 << 16;

/// What it is in the file.
pub(super) fn attr(like: &Attr) -> Attr {
    let attr = super::off_cpu::attr(like);
    Attr { sample: attr.sample.difference(SampleFormat::ADDR), ..attr }
}

/// Regions that are recorded.
pub(super) struct MarkedRegions {
    table: RegionTable,
    reader: MarkReader,
    threads: HashMap<TaskId, Vec<OpenRegion>>,
    /// Whose name is in the file.
    named: HashSet<RegionSlot>,
    layout: SampleLayout,
    /// How often a region was left that was not seen to be entered.
    unmatched: u64,
    scratch: Box<[u8]>,
}

/// A region that a thread is in.
struct OpenRegion {
    slot: RegionSlot,
    since_ns: u64,
    /// How long it was in regions within.
    within_ns: u64,
}

impl MarkedRegions {
    pub(super) fn new(table: RegionTable, desc: &EventDesc) -> Self {
        Self {
            table,
            reader: MarkReader::default(),
            threads: HashMap::new(),
            named: HashSet::new(),
            layout: SampleLayout::new(&desc.attr),
            unmatched: 0,
            scratch: vec![0; RecordHeader::MAX_RECORD].into_boxed_slice(),
        }
    }

    /// From now on regions are recorded, or are not.
    pub(super) fn switch(&mut self, on: bool) {
        self.table.switch_marks(on);
        if on {
            // What was entered before may have been left meanwhile.
            self.threads.clear();
        }
    }

    /// Another file is begun, which has no names yet.
    pub(super) fn begin_file(&mut self) {
        self.named.clear();
    }

    /// Takes out what the command has marked, as records.
    pub(super) fn take(&mut self) -> Taken {
        let mut marks = Vec::new();
        self.table.take_marks(&mut self.reader, |mark| marks.push(mark));
        let mut taken = Taken::default();
        for mark in marks {
            let task = TaskId { pid: mark.pid, tid: mark.tid };
            // A command may write whatever it wants: it does not grow here.
            if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&task) {
                self.unmatched += 1;
                continue;
            }
            let open = self.threads.entry(task).or_default();
            if mark.kind == MarkKind::Enter && open.len() < MOST_OPEN {
                open.push(OpenRegion { slot: mark.slot, since_ns: mark.at_ns, within_ns: 0 });
                continue;
            }
            let Some(at) = open.iter().rposition(|region| region.slot == mark.slot) else {
                self.unmatched += 1;
                continue;
            };
            // Where those within it were not seen to be left, their marks are lost.
            self.unmatched += (open.len() - at - 1) as u64;
            open.truncate(at + 1);
            let Some(left) = open.pop() else { continue };
            let whole_ns = mark.at_ns.saturating_sub(left.since_ns);
            if let Some(around) = open.last_mut() {
                around.within_ns = around.within_ns.saturating_add(whole_ns);
            }
            let around = open.iter().rev().map(|region| region.slot);
            let slots: Vec<RegionSlot> = std::iter::once(mark.slot).chain(around).take(MOST_DEPTH).collect();
            if open.is_empty() {
                // A thread that ends leaves nothing behind.
                self.threads.remove(&task);
            }
            self.sample(&mark, &slots, whole_ns.saturating_sub(left.within_ns), &mut taken);
        }
        taken
    }

    fn sample(&mut self, mark: &Mark, slots: &[RegionSlot], own_ns: u64, taken: &mut Taken) {
        for &slot in slots {
            if self.named.insert(slot) {
                self.name(mark, slot, taken);
            }
        }
        let chain: Vec<u64> =
            std::iter::once(callchain::KERNEL).chain(slots.iter().map(|&slot| address(slot))).collect();
        let format = self.layout.format();
        let word = |bit, value: u64| format.contains(bit).then_some(value);
        let sample = Sample {
            identifier: word(SampleFormat::IDENTIFIER, ID),
            ip: word(SampleFormat::IP, chain[1]),
            task: format.contains(SampleFormat::TID).then_some(TaskId { pid: mark.pid, tid: mark.tid }),
            time: word(SampleFormat::TIME, mark.at_ns),
            id: word(SampleFormat::ID, ID),
            stream_id: word(SampleFormat::STREAM_ID, ID),
            cpu: format.contains(SampleFormat::CPU).then_some(mark.cpu),
            period: Some(own_ns),
            callchain: Some(Array::from(&chain[..])),
            ..Sample::default()
        };
        if self.put(&Record::Sample(sample), None, taken) {
            taken.samples += 1;
            taken.last_ns = Some(mark.at_ns);
        }
    }

    /// Tells how a region is called, at the time of its first sample.
    fn name(&mut self, mark: &Mark, slot: RegionSlot, taken: &mut Taken) {
        let name = self.table.name_of(slot);
        let symbol = Ksymbol {
            addr: address(slot) - WITHIN,
            len: SYMBOL_BYTES,
            ksym_type: OUT_OF_LINE,
            flags: 0,
            name: name.as_bytes(),
        };
        let empty = empty_id(&self.layout);
        let id = SampleId {
            task: empty.task.map(|_| TaskId { pid: mark.pid, tid: mark.tid }),
            time: empty.time.map(|_| mark.at_ns),
            id: empty.id.map(|_| ID),
            stream_id: empty.stream_id.map(|_| ID),
            cpu: empty.cpu.map(|_| mark.cpu),
            identifier: empty.identifier.map(|_| ID),
        };
        self.put(&Record::Ksymbol(symbol), Some(&id), taken);
    }

    fn put(&mut self, record: &Record<'_>, id: Option<&SampleId>, taken: &mut Taken) -> bool {
        let Ok(bytes) = encode_record(record, id, Misc::KERNEL, &self.layout, &mut self.scratch) else { return false };
        taken.records.extend_from_slice(&self.scratch[..bytes]);
        true
    }

    /// What is missing, in sentences.
    pub(super) fn notes(&self) -> Vec<String> {
        let open = self.threads.values().map(Vec::len).sum::<usize>() as u64;
        let notes = [
            (open, "regions had not been left at the end: they are not in the file"),
            (self.unmatched, "times a region was left or entered, and not the other: these are not in the file"),
            (self.table.lost_marks(), "times a region was entered or left found no room: these are not in the file"),
            (self.table.read().missed, "times a region was entered for which there was no room: too many names"),
        ];
        let notes = notes.into_iter().filter(|(count, _)| *count > 0);
        notes.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// An address within the symbol of a region.
fn address(slot: RegionSlot) -> u64 {
    FIRST_ADDRESS + slot.index() as u64 * u64::from(SYMBOL_BYTES) + WITHIN
}
