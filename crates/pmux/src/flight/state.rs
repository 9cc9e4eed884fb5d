//! What explains samples, as it stands at a moment: who is called what, and what he has mapped.
//!
//! What it is: records about tasks, taken in one after another, leave a table; told again, the table is records once more, as if
//! everything in it had begun just now. Who has ended is in it no more. Read first: [`State::take`], [`State::tell`].
//!
//! **Invariant:** pure. It grows with what is alive, not with time.

use pmux_abi::record::{
    BpfEvent, Comm, CommCause, Ksymbol, Misc, Mmap2, Namespaces, Record, RecordHeader, SampleId, SampleLayout, Task,
    decode_record, encode_record,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// A process has no more mappings than that in the table: what is unmapped is told by nobody.
const MOST_MAPPINGS: usize = 4096;
/// The process of what the kernel has mapped.
const KERNEL: u32 = u32::MAX;

/// A record, with an id that is all zero.
type Bytes = Arc<[u8]>;

#[derive(Clone)]
struct Mapping {
    start: u64,
    end: u64,
    record: Bytes,
}

#[derive(Clone, Default)]
struct Process {
    parent: u32,
    /// Each thread's name.
    threads: BTreeMap<u32, Bytes>,
    /// In the order in which they were made; none is covered by a younger one.
    mappings: VecDeque<Mapping>,
    namespaces: Option<Bytes>,
}

/// The table.
pub(super) struct State {
    /// Of the records that it tells.
    layout: SampleLayout,
    id: SampleId,
    processes: HashMap<u32, Process>,
    kernel: Vec<Mapping>,
    /// Symbols that came, by address; programs, by number.
    symbols: BTreeMap<u64, Bytes>,
    programs: BTreeMap<u32, Bytes>,
    /// Room for one record.
    scratch: Box<[u8]>,
}

impl State {
    /// Of nobody. What it tells is of this layout, and has this id.
    pub(super) fn new(layout: SampleLayout, id: SampleId) -> Self {
        let scratch = vec![0; RecordHeader::MAX_RECORD].into_boxed_slice();
        let (processes, kernel) = (HashMap::new(), Vec::new());
        let (symbols, programs) = (BTreeMap::new(), BTreeMap::new());
        Self { layout, id, processes, kernel, symbols, programs, scratch }
    }

    fn keep(&mut self, record: &Record<'_>, misc: Misc) -> Bytes {
        let bytes = encode_record(record, Some(&self.id), misc, &self.layout, &mut self.scratch).unwrap_or(0);
        self.scratch[..bytes].into()
    }

    fn name(&mut self, pid: u32, tid: u32, comm: &[u8]) -> Bytes {
        self.keep(&Record::Comm(Comm { pid, tid, cause: CommCause::Rename, comm }), Misc::USER)
    }

    /// Takes in a record of this layout. What says nothing about tasks changes nothing.
    pub(super) fn take(&mut self, record: &[u8], layout: &SampleLayout) {
        let Ok((decoded, _)) = decode_record(record, layout) else { return };
        let misc = RecordHeader::decode(record).map_or(Misc::default(), |header| header.misc);
        match decoded {
            Record::Comm(comm) => self.comm(&comm),
            Record::Fork(task) => self.fork(&task, misc),
            Record::Exit(task) => self.exit(&task),
            Record::Mmap2(mapping) => self.map(&mapping, misc),
            Record::Mmap(mapping) if mapping.pid == KERNEL => {
                let end = mapping.addr.saturating_add(mapping.len);
                let record = self.keep(&Record::Mmap(mapping), misc);
                self.kernel.retain(|known| known.start != mapping.addr);
                self.kernel.push(Mapping { start: mapping.addr, end, record });
            }
            Record::Namespaces(namespaces) => {
                let record = self.keep(&Record::Namespaces(namespaces), misc);
                self.processes.entry(namespaces.pid).or_default().namespaces = Some(record);
            }
            Record::Ksymbol(symbol) if symbol.flags & Ksymbol::UNREGISTER != 0 => {
                self.symbols.remove(&symbol.addr);
            }
            Record::Ksymbol(symbol) => {
                let record = self.keep(&Record::Ksymbol(symbol), misc);
                self.symbols.insert(symbol.addr, record);
            }
            Record::BpfEvent(program) if program.event_type == BpfEvent::PROG_UNLOAD => {
                self.programs.remove(&program.id);
            }
            Record::BpfEvent(program) => {
                let record = self.keep(&Record::BpfEvent(program), misc);
                self.programs.insert(program.id, record);
            }
            _ => {}
        }
    }

    fn comm(&mut self, comm: &Comm<'_>) {
        let record = self.name(comm.pid, comm.tid, comm.comm);
        let process = self.processes.entry(comm.pid).or_default();
        if comm.cause == CommCause::Exec {
            // Another program: its threads and what was mapped are gone.
            process.threads.clear();
            process.mappings.clear();
        }
        process.threads.insert(comm.tid, record);
    }

    fn fork(&mut self, task: &Task, misc: Misc) {
        let parent = self.processes.get(&task.ppid);
        let name = parent.and_then(|parent| parent.threads.get(&task.ptid).or(parent.threads.values().next())).cloned();
        // Who is told of afterwards has his own mappings told as well.
        let copies = task.pid != task.ppid && !misc.contains(Misc::FORK_EXEC);
        let inherited = parent.filter(|_| copies).map(|parent| (parent.mappings.clone(), parent.namespaces.clone()));
        if task.pid == task.tid {
            // Whoever had this number before has ended.
            self.processes.remove(&task.pid);
        }
        let process = self.processes.entry(task.pid).or_default();
        if task.pid != task.ppid {
            process.parent = task.ppid;
        }
        if let Some((mappings, namespaces)) = inherited {
            (process.mappings, process.namespaces) = (mappings, namespaces);
        }
        if let Some(name) = name {
            process.threads.insert(task.tid, name);
        }
    }

    fn exit(&mut self, task: &Task) {
        if let Some(process) = self.processes.get_mut(&task.pid) {
            process.threads.remove(&task.tid);
            if process.threads.is_empty() {
                self.processes.remove(&task.pid);
            }
        }
    }

    fn map(&mut self, mapping: &Mmap2<'_>, misc: Misc) {
        let (start, end) = (mapping.addr, mapping.addr.saturating_add(mapping.len));
        let record = self.keep(&Record::Mmap2(*mapping), misc);
        let mappings = &mut self.processes.entry(mapping.pid).or_default().mappings;
        mappings.retain(|known| known.start < start || known.end > end);
        if mappings.len() >= MOST_MAPPINGS {
            mappings.pop_front();
        }
        mappings.push_back(Mapping { start, end, record });
    }

    /// Forgets processes that are not there any more: what told of their end was lost.
    pub(super) fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.processes.retain(|&pid, _| is_alive(pid));
    }

    /// The whole table, as records.
    pub(super) fn tell(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let kernel = self.kernel.iter().map(|mapping| &mapping.record);
        kernel.chain(self.symbols.values()).chain(self.programs.values()).for_each(|record| out.extend(&record[..]));
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        for pid in pids {
            let Some(process) = self.processes.get(&pid).cloned() else { continue };
            self.tell_process(pid, &process, &mut out);
        }
        out
    }

    fn tell_process(&mut self, pid: u32, process: &Process, out: &mut Vec<u8>) {
        // The first thread first: the others are its.
        let mut threads: Vec<_> = process.threads.iter().collect();
        threads.sort_by_key(|(tid, _)| **tid != pid);
        for (&tid, name) in threads {
            let (ppid, ptid) = if tid == pid { (process.parent, process.parent) } else { (pid, pid) };
            self.put(Record::Fork(Task { pid, ppid, tid, ptid, time: 0 }), Misc::FORK_EXEC, out);
            self.tell_again(name, pid, tid, out);
        }
        for record in process.mappings.iter().map(|mapping| &mapping.record).chain(&process.namespaces) {
            self.tell_again(record, pid, pid, out);
        }
    }

    /// Tells a record of a task, which may have been another task's first.
    fn tell_again(&mut self, record: &Bytes, pid: u32, tid: u32, out: &mut Vec<u8>) {
        let layout = self.layout;
        let misc = RecordHeader::decode(record).map_or(Misc::default(), |header| header.misc);
        match decode_record(record, &layout) {
            Ok((Record::Comm(comm), _)) => self.put(Record::Comm(Comm { pid, tid, ..comm }), misc, out),
            Ok((Record::Mmap2(mapping), _)) => self.put(Record::Mmap2(Mmap2 { pid, tid, ..mapping }), misc, out),
            Ok((Record::Namespaces(of), _)) => self.put(Record::Namespaces(Namespaces { pid, tid, ..of }), misc, out),
            _ => {}
        }
    }

    fn put(&mut self, record: Record<'_>, misc: Misc, out: &mut Vec<u8>) {
        let bytes = encode_record(&record, Some(&self.id), misc, &self.layout, &mut self.scratch).unwrap_or(0);
        out.extend(&self.scratch[..bytes]);
    }

    /// About how many bytes it takes. Mappings that a child has of its parent count for both.
    pub(super) fn bytes(&self) -> u64 {
        let of = |process: &Process| {
            let mapped = process.mappings.iter().map(|mapping| &mapping.record);
            let records = mapped.chain(process.threads.values()).chain(&process.namespaces);
            records.map(|record| record.len() as u64).sum::<u64>()
        };
        self.processes.values().map(of).sum()
    }
}
