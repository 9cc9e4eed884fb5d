//! What explains samples, as it stands at a moment: what tasks are called, and what they have mapped.
//!
//! What it is: records about tasks, taken in one after another, leave a table; told again, the table is records once more, as if
//! everything in it had begun just now. Who has ended is in it no more. Read first: [`TaskTable::take`], [`TaskTable::encode_records`].
//!
//! **Invariant:** pure. It grows with what is alive, not with time.

use pmux_abi::record::{
    BpfEvent, Cgroup, Comm, CommCause, Ksymbol, Misc, Mmap2, Namespaces, Record, RecordHeader, SampleId, SampleLayout,
    Task, decode_record, encode_record,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// A process has no more mappings than that in the table: no record tells what is unmapped.
const MOST_MAPPINGS: usize = 4096;
/// The process of what the kernel has mapped.
const KERNEL: u32 = u32::MAX;

/// A record, with an id that is all zero.
type Bytes = Arc<[u8]>;

#[derive(Clone)]
struct MappingRecord {
    start: u64,
    end: u64,
    record: Bytes,
}

#[derive(Clone, Default)]
struct ProcessState {
    parent: u32,
    threads: BTreeMap<u32, Bytes>,
    /// In the order in which they were made; none is covered by a younger one.
    mappings: VecDeque<MappingRecord>,
    namespaces: Option<Bytes>,
}

pub(super) struct TaskTable {
    /// Of the records that it tells.
    layout: SampleLayout,
    id: SampleId,
    processes: HashMap<u32, ProcessState>,
    kernel: Vec<MappingRecord>,
    /// Symbols that came, by address; programs, by number.
    symbols: BTreeMap<u64, Bytes>,
    programs: BTreeMap<u32, Bytes>,
    cgroups: BTreeMap<u64, Bytes>,
    scratch: Box<[u8]>,
}

impl TaskTable {
    /// Of no process. What it tells is of this layout, and has this id.
    pub(super) fn new(layout: SampleLayout, id: SampleId) -> Self {
        let scratch = vec![0; RecordHeader::MAX_RECORD].into_boxed_slice();
        let (processes, kernel) = (HashMap::new(), Vec::new());
        let (symbols, programs, cgroups) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { layout, id, processes, kernel, symbols, programs, cgroups, scratch }
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
                self.kernel.push(MappingRecord { start: mapping.addr, end, record });
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
            Record::Cgroup(Cgroup { id, .. }) => {
                let record = self.keep(&decoded, misc);
                self.cgroups.insert(id, record);
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
        // A process that is told of afterwards has its own mappings told as well, and perhaps its threads were told of before.
        let is_new = task.pid != task.ppid && !misc.contains(Misc::FORK_EXEC);
        let inherited = parent.filter(|_| is_new).map(|parent| (parent.mappings.clone(), parent.namespaces.clone()));
        if is_new {
            // The process that had this number before has ended.
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
        mappings.push_back(MappingRecord { start, end, record });
    }

    /// Forgets processes that are not there any more: what told of their end was lost.
    pub(super) fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.processes.retain(|&pid, _| is_alive(pid));
    }

    pub(super) fn encode_records(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let kernel = self.kernel.iter().map(|mapping| &mapping.record);
        let machine = kernel.chain(self.symbols.values()).chain(self.programs.values()).chain(self.cgroups.values());
        machine.for_each(|record| out.extend(&record[..]));
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        for pid in pids {
            let Some(process) = self.processes.get(&pid).cloned() else { continue };
            self.put_process(pid, &process, &mut out);
        }
        out
    }

    fn put_process(&mut self, pid: u32, process: &ProcessState, out: &mut Vec<u8>) {
        // The first thread first: the others are its.
        let mut threads: Vec<_> = process.threads.iter().collect();
        crate::order::sort_by_key(&mut threads, |(tid, _)| **tid != pid);
        for (&tid, name) in threads {
            let (ppid, ptid) = if tid == pid { (process.parent, process.parent) } else { (pid, pid) };
            self.put(Record::Fork(Task { pid, ppid, tid, ptid, time: 0 }), Misc::FORK_EXEC, out);
            self.put_again(name, pid, tid, out);
        }
        for record in process.mappings.iter().map(|mapping| &mapping.record).chain(&process.namespaces) {
            self.put_again(record, pid, pid, out);
        }
    }

    /// Tells a record of a task, which may have been another task's first.
    fn put_again(&mut self, record: &Bytes, pid: u32, tid: u32, out: &mut Vec<u8>) {
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
        let of = |process: &ProcessState| {
            let mapped = process.mappings.iter().map(|mapping| &mapping.record);
            let records = mapped.chain(process.threads.values()).chain(&process.namespaces);
            records.map(|record| record.len() as u64).sum::<u64>()
        };
        self.processes.values().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::attr::{Attr, AttrFlags, SampleFormat};
    use pmux_abi::record::{MapKind, Records};

    fn layout() -> SampleLayout {
        let sample = SampleFormat::TID | SampleFormat::TIME | SampleFormat::IDENTIFIER;
        SampleLayout::new(&Attr { sample, flags: AttrFlags::SAMPLE_ID_ALL, ..Attr::default() })
    }

    fn id() -> SampleId {
        SampleId { task: Some(Default::default()), time: Some(0), identifier: Some(0), ..SampleId::default() }
    }

    struct Table(TaskTable);

    impl Table {
        fn new() -> Self {
            Self(TaskTable::new(layout(), id()))
        }

        fn take(&mut self, record: Record<'_>, misc: Misc) -> &mut Self {
            let mut bytes = [0; 512];
            let size = encode_record(&record, Some(&id()), misc, &layout(), &mut bytes).unwrap();
            self.0.take(&bytes[..size], &layout());
            self
        }

        fn fork(&mut self, (pid, tid): (u32, u32), (ppid, ptid): (u32, u32)) -> &mut Self {
            self.take(Record::Fork(Task { pid, tid, ppid, ptid, time: 5 }), Misc::default())
        }

        fn exit(&mut self, (pid, tid): (u32, u32)) -> &mut Self {
            self.take(Record::Exit(Task { pid, tid, ppid: 1, ptid: 1, time: 5 }), Misc::default())
        }

        fn comm(&mut self, (pid, tid): (u32, u32), comm: &str, cause: CommCause) -> &mut Self {
            self.take(Record::Comm(Comm { pid, tid, cause, comm: comm.as_bytes() }), Misc::USER)
        }

        fn map(&mut self, pid: u32, addr: u64, len: u64, name: &str) -> &mut Self {
            let (kind, filename) = (MapKind::Code, name.as_bytes());
            let mapping = Mmap2 { pid, tid: pid, addr, len, prot: 5, flags: 2, kind, filename, ..Mmap2::default() };
            self.take(Record::Mmap2(mapping), Misc::USER)
        }

        /// What it tells, a line for each record.
        fn lines(&mut self) -> Vec<String> {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let records = self.0.encode_records();
            let line = |record: &[u8]| match decode_record(record, &layout()).unwrap().0 {
                Record::Fork(task) => format!("{}/{} of {}/{}", task.pid, task.tid, task.ppid, task.ptid),
                Record::Comm(comm) => format!("{}/{} is {}", comm.pid, comm.tid, text(comm.comm)),
                Record::Mmap2(map) => format!("{} maps {} at {}", map.pid, text(map.filename), map.addr),
                other => format!("{other:?}"),
            };
            Records::new(&records).map(|record| line(record.unwrap())).collect()
        }
    }

    #[test]
    fn live_tasks_have_records_with_their_names_and_mappings() {
        let mut table = Table::new();
        table.fork((10, 10), (1, 1)).comm((10, 10), "sh", CommCause::Exec).map(10, 0, 4096, "/bin/sh");
        // A child has what its parent has, and its name; then it is another program.
        table.fork((11, 11), (10, 10)).fork((12, 12), (10, 10));
        table.comm((12, 12), "ls", CommCause::Exec).map(12, 0, 8192, "/bin/ls");
        table.fork((12, 9), (12, 12)).comm((12, 9), "helper", CommCause::Rename);
        let expected = [
            "10/10 of 1/1",
            "10/10 is sh",
            "10 maps /bin/sh at 0",
            "11/11 of 10/10",
            "11/11 is sh",
            "11 maps /bin/sh at 0",
            "12/12 of 10/10",
            "12/12 is ls",
            "12/9 of 12/12",
            "12/9 is helper",
            "12 maps /bin/ls at 0",
        ];
        assert_eq!(table.lines(), expected);
        // What it tells makes the same table, in whatever order threads come.
        let bytes = table.0.encode_records();
        let mut again = Table::new();
        Records::new(&bytes).for_each(|record| again.0.take(record.unwrap(), &layout()));
        assert_eq!(again.lines(), expected);
        // The first thread of a process may end first.
        table.exit((12, 12)).exit((10, 10)).exit((11, 11));
        assert_eq!(table.lines(), ["12/9 of 12/12", "12/9 is helper", "12 maps /bin/ls at 0"]);
        table.exit((12, 9));
        assert_eq!((table.lines().len(), table.0.bytes()), (0, 0));
    }

    #[test]
    fn a_number_that_is_another_process_now_has_nothing_of_the_first() {
        let mut table = Table::new();
        table.fork((10, 10), (1, 1)).comm((10, 10), "old", CommCause::Exec).map(10, 0, 4096, "/old");
        // No record has told of its end.
        table.fork((10, 10), (2, 2)).comm((10, 10), "new", CommCause::Rename);
        assert_eq!(table.lines(), ["10/10 of 2/2", "10/10 is new"]);
        table.0.sweep(|pid| pid != 10);
        assert!(table.lines().is_empty());
    }

    #[test]
    fn threads_whose_records_come_before_the_first_one_stay() {
        let mut table = Table::new();
        let task = |tid| Record::Fork(Task { pid: 10, tid, ppid: if tid == 10 { 1 } else { 10 }, ptid: 1, time: 0 });
        table.take(task(9), Misc::FORK_EXEC).comm((10, 9), "late", CommCause::Rename);
        table.take(task(10), Misc::FORK_EXEC).comm((10, 10), "first", CommCause::Rename);
        assert_eq!(table.lines(), ["10/10 of 1/1", "10/10 is first", "10/9 of 10/10", "10/9 is late"]);
    }

    #[test]
    fn mappings_go_with_those_that_cover_them_and_never_grow_without_end() {
        let mut table = Table::new();
        table.fork((10, 10), (1, 1)).comm((10, 10), "x", CommCause::Exec);
        table.map(10, 0, 4096, "a").map(10, 4096, 4096, "b").map(10, 4096, 8192, "c").map(10, 2048, 4096, "d");
        let lines = table.lines();
        assert_eq!(lines[2..], ["10 maps a at 0", "10 maps c at 4096", "10 maps d at 2048"]);
        for place in 0..2 * MOST_MAPPINGS as u64 {
            table.map(10, place << 20, 4096, "jit");
        }
        assert_eq!(table.lines().len(), 2 + MOST_MAPPINGS);
    }

    #[test]
    fn what_is_no_record_of_a_task_changes_nothing() {
        let mut table = Table::new();
        for bytes in
            [&[][..], &[9, 0, 0, 0, 0, 0, 8, 0], &[7, 0, 0, 0, 0, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8], &[255; 64]]
        {
            table.0.take(bytes, &layout());
        }
        assert!(table.lines().is_empty());
    }
}
