//! What was there before: names, parents and mappings of tasks, and where the kernel's code lies, as records.
//!
//! What it is: records of the kernel's kinds, which it would have written had the recording begun earlier. Their time is 0. Where events
//! are opened on a CPU that came, they tell once more how things stand, each process as of the moment in which it is looked at: what
//! happened on the CPU before, no event has told. Read first: [`Existing::records`].
//!
//! **Invariant:** who has ended meanwhile is left out; what can't be read is left out.

use super::attrs::Keep;
use super::build_ids::MappedBuildIds;
use pmux_abi::attr::SampleFormat;
use pmux_abi::record::{
    Cgroup, Comm, CommCause, MapKind, MapSource, Misc, Mmap, Mmap2, Record, SampleId, SampleLayout, Task, TaskId,
    encode_record,
};
use pmux_linux::cgroup::Mounts;
use pmux_linux::cgroup_counts::{Pattern, find};
use pmux_linux::machine::Machine;
use pmux_linux::procfs::{Backing, Mapping, Proc, ProcError};

pub(super) struct Existing<'a> {
    pub(super) layout: SampleLayout,
    /// The id of each record.
    pub(super) id: SampleId,
    /// Whether each process is told of as of the moment in which it is looked at.
    pub(super) is_now: bool,
    pub(super) build_ids: &'a mut MappedBuildIds,
    /// Whether samples say in which cgroup they were taken.
    pub(super) with_cgroups: Keep,
    pub(super) data: Keep,
    pub(super) out: Vec<u8>,
    pub(super) scratch: Box<[u8]>,
}

impl Existing<'_> {
    /// The records of the kernel and of the processes of these threads; of all, where there are none, for CPUs are recorded then.
    /// `meanwhile` is called between two processes.
    pub(super) fn records(mut self, tids: &[i32], meanwhile: impl FnMut()) -> Vec<u8> {
        self.kernel();
        self.records_of_tasks(tids, meanwhile)
    }

    /// As [`Existing::records`], without the kernel.
    pub(super) fn records_of_tasks(mut self, tids: &[i32], mut meanwhile: impl FnMut()) -> Vec<u8> {
        if self.with_cgroups == Keep::Record {
            self.cgroups();
        }
        let proc = Proc::system();
        let mut pids: Vec<i32> = match tids {
            [] => proc.processes().unwrap_or_default(),
            tids => tids.iter().filter_map(|&tid| proc.process_of(tid).ok()).collect(),
        };
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            self.process(&proc, pid);
            meanwhile();
        }
        self.out
    }

    fn kernel(&mut self) {
        let machine = Machine::this();
        let Some(text) = machine.kernel_text() else { return };
        let name = format!("[kernel.kallsyms]{}", text.name);
        self.kernel_range(text.start, text.end - text.start, text.start, &name);
        for module in machine.modules() {
            let path = format!("[{}]", module.name);
            self.kernel_range(module.start, module.bytes, 0, &path);
        }
    }

    fn kernel_range(&mut self, addr: u64, len: u64, pgoff: u64, name: &str) {
        let filename = name.as_bytes();
        let mapping = Mmap { pid: u32::MAX, tid: 0, addr, len, pgoff, kind: MapKind::Code, filename };
        self.put(&Record::Mmap(mapping), Misc::KERNEL);
    }

    /// All that there are: a task may be in one below those that are recorded.
    fn cgroups(&mut self) {
        let mounts = Mounts::system().unwrap_or_default();
        let (Some(root), Ok(any)) = (mounts.for_events(), Pattern::parse("**")) else { return };
        for cgroup in find(root, &[any], usize::MAX).cgroups {
            self.put(&Record::Cgroup(Cgroup { id: cgroup.inode, path: cgroup.name.as_bytes() }), Misc::default());
        }
    }

    fn process(&mut self, proc: &Proc, pid: i32) {
        if self.is_now {
            self.id.time = self.id.time.map(|_| pmux_linux::now_ns());
        }
        let Ok(stat) = proc.stat(pid) else { return };
        let number = |id: i32| id.cast_unsigned();
        let parent = number(stat.parent);
        for tid in proc.threads_of(pid).unwrap_or_default() {
            let Ok(comm) = proc.comm(tid) else { continue };
            let (pid, tid) = (number(pid), number(tid));
            let (ppid, ptid) = if pid == tid { (parent, parent) } else { (pid, pid) };
            self.put(&Record::Fork(Task { pid, ppid, tid, ptid, time: 0 }), Misc::FORK_EXEC);
            let comm = Comm { pid, tid, cause: CommCause::Rename, comm: comm.as_bytes() };
            self.put(&Record::Comm(comm), Misc::USER);
        }
        for mapping in proc.maps(pid).unwrap_or_default() {
            let kind = if mapping.rights.execute { MapKind::Code } else { MapKind::Data };
            if kind == MapKind::Code || (self.data == Keep::Record && mapping.rights.read) {
                self.mapping(proc, pid, &mapping, kind);
            }
        }
    }

    fn mapping(&mut self, proc: &Proc, pid: i32, mapping: &Mapping, kind: MapKind) {
        let mut source = MapSource::default();
        let filename = match &mapping.backing {
            Backing::File(file) => {
                let (major, minor) = file.device;
                source = MapSource::Inode { major, minor, inode: file.inode, generation: 0 };
                if kind == MapKind::Code {
                    self.build_ids.look_into(proc, pid, mapping);
                }
                file.path.as_os_str().as_encoded_bytes()
            }
            Backing::Special(name) => name.as_bytes(),
            Backing::Anonymous => b"//anon",
        };
        let rights = mapping.rights;
        let prot = u32::from(rights.read) | u32::from(rights.write) << 1 | u32::from(rights.execute) << 2;
        let number = pid.cast_unsigned();
        /// `MAP_PRIVATE`.
        const PRIVATE: u32 = 2;
        let (addr, len, pgoff) = (mapping.start, mapping.end - mapping.start, mapping.offset);
        let mapping =
            Mmap2 { pid: number, tid: number, addr, len, pgoff, source, prot, flags: PRIVATE, kind, filename };
        self.put(&Record::Mmap2(mapping), Misc::USER);
    }

    fn put(&mut self, record: &Record<'_>, misc: Misc) {
        // A name that holds a zero byte, or is longer than a record, is no name.
        let bytes = encode_record(record, Some(&self.id), misc, &self.layout, &mut self.scratch).unwrap_or(0);
        self.out.extend(&self.scratch[..bytes]);
    }
}

pub(crate) fn is_alive(pid: u32) -> bool {
    // What can't be read, as for want of a file, is kept.
    !matches!(Proc::system().stat(pid.cast_signed()), Err(ProcError::Gone { .. }))
}

/// The id of records that no event wrote: all zero.
pub(crate) fn empty_id(layout: &SampleLayout) -> SampleId {
    id_of(layout, 0, TaskId::default(), 0, 0)
}

/// The id of a record of an event, as the kernel would write it.
pub(super) fn id_of(layout: &SampleLayout, id: u64, task: TaskId, cpu: u32, at_ns: u64) -> SampleId {
    let format = layout.format();
    let word = |bit, value: u64| format.contains(bit).then_some(value);
    SampleId {
        task: format.contains(SampleFormat::TID).then_some(task),
        time: word(SampleFormat::TIME, at_ns),
        id: word(SampleFormat::ID, id),
        stream_id: word(SampleFormat::STREAM_ID, id),
        cpu: format.contains(SampleFormat::CPU).then_some(cpu),
        identifier: word(SampleFormat::IDENTIFIER, id),
    }
}
