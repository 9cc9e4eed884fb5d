//! What the events of other processes count.
//!
//! What it is: [`ForeignEvents`], a program in the kernel that goes from the folder of a process, which this one has open, to the task, to
//! one of its files, to the event. Where the kernel's structures have what is looked for, the kernel itself says (`crate::btf`).
//!
//! **Invariant:** it only looks, without taking part in anything: a file of another process that is taken over would have to be closed
//! here, and its owner may decide how long that takes. What changes meanwhile makes the answer wrong, or none, and does no harm.

use crate::bpf::{Alu, Assembler, Compare, Helper, Map, MapKind, Program, ProgramKind, Reg, Size, Update};
use crate::btf::Btf;
use crate::procfs::Proc;
use pmux_abi::attr::{Attr, EventType, sw};
use std::fs::File;
use std::os::fd::AsRawFd as _;

/// What an event counts, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignEvent {
    /// Its attribute. The kernel has put the number of another PMU into that of a clock: then it is that of the clock's event here.
    pub attr: Attr,
    /// Its task, as the first PID namespace numbers it; `None`: all that run on a CPU.
    pub task: Option<i32>,
    /// Its CPU; `None`: any.
    pub cpu: Option<u32>,
}

/// Looks at events of other processes.
pub struct ForeignEvents {
    map: Map,
    program: Program,
}

/// The only entry of the map: the number of the folder here, and of the event there; the CPU, the task, the name of the PMU, the attribute.
const FILE_AT: usize = 8;
const CPU_AT: usize = 16;
const TASK_AT: usize = 20;
const PMU_AT: usize = 24;
const PMU_BYTES: usize = 16;
const ATTR_AT: usize = PMU_AT + PMU_BYTES;
const ENTRY_BYTES: usize = ATTR_AT + Attr::MAX_SIZE;

impl ForeignEvents {
    /// `None` where the kernel takes no such program from this user, or does not describe itself.
    #[must_use]
    pub fn open() -> Option<Self> {
        let map = Map::new(MapKind::Array, 4, ENTRY_BYTES as u32, 1, "pmux_foreign").ok()?;
        let program = {
            let mut asm = Assembler::new();
            assemble(&mut asm, &map, &Btf::system()?)?;
            Program::load(ProgramKind::RawTracepoint, &asm.finish()?, "pmux_foreign").ok()?
        };
        Some(Self { map, program })
    }

    /// What an event of a process counts, by its descriptor there; `None` where it has gone, or may not be looked at.
    #[must_use]
    pub fn look(&self, process: i32, fd: i32) -> Option<ForeignEvent> {
        let folder = File::open(Proc::system().root().join(process.to_string())).ok()?;
        let mut entry = vec![0; ENTRY_BYTES];
        entry[..FILE_AT].copy_from_slice(&u64::try_from(folder.as_raw_fd()).ok()?.to_ne_bytes());
        entry[FILE_AT..CPU_AT].copy_from_slice(&u64::try_from(fd).ok()?.to_ne_bytes());
        self.map.set(&[0; 4], &entry, Update::Set).ok()?;
        self.program.run().ok().filter(|&found| found == 1)?;
        let entry = self.map.get(&[0; 4]).ok()??;
        let number = |at: usize| Some(i32::from_ne_bytes(entry.get(at..at + 4)?.try_into().ok()?));
        let size = number(ATTR_AT + 4).and_then(|size| usize::try_from(size).ok())?.min(Attr::MAX_SIZE);
        let mut attr = Attr::decode(entry.get(ATTR_AT..ATTR_AT + size)?).ok()?;
        let clock = match entry.get(PMU_AT..ATTR_AT)?.split(|&byte| byte == 0).next()? {
            b"cpu_clock" => Some(sw::CPU_CLOCK),
            b"task_clock" => Some(sw::TASK_CLOCK),
            _ => None,
        };
        if let Some(config) = clock {
            (attr.kind, attr.config) = (EventType::SOFTWARE, config);
        }
        let task = number(TASK_AT).filter(|&task| task > 0);
        let cpu = number(CPU_AT).and_then(|cpu| u32::try_from(cpu).ok());
        Some(ForeignEvent { attr, task, cpu })
    }
}

/// From the task that runs to its files, to the folder among them, to the process, to its files, to the event among them. It answers 1
/// where all was there.
fn assemble<'m>(asm: &mut Assembler<'m>, map: &'m Map, btf: &Btf) -> Option<()> {
    let of = |structure: &str, member: &str| btf.offset(structure, member);
    let (files, table, array) = (of("task_struct", "files")?, of("files_struct", "fdt")?, of("fdtable", "fd")?);
    let (inode, in_proc, pid_of) = (of("file", "f_inode")?, of("proc_inode", "vfs_inode")?, of("proc_inode", "pid")?);
    let (tasks, link, most) = (of("pid", "tasks")?, of("task_struct", "pid_links")?, of("fdtable", "max_fds")?);
    let (event, attr, cpu) = (of("file", "private_data")?, of("perf_event", "attr")?, of("perf_event", "cpu")?);
    let target = of("perf_event", "hw")?.checked_add(of("hw_perf_event", "target")?)?;
    let pid = of("task_struct", "pid")?;
    let (pmu, name) = (of("perf_event", "pmu")?, of("pmu", "name")?);
    let end = asm.label();
    // R9: the entry. R6: where the next pointer stands.
    asm.store(Size::Word, Reg::R10, -4, 0).look_up(map, -4);
    asm.jump_if(Reg::R0, Compare::Equal, 0, end).set(Reg::R9, Reg::R0);
    asm.call(Helper::GetCurrentTask).set(Reg::R6, Reg::R0);
    // So many bytes that stand so far behind a pointer go to a place so far behind another one, which is ours.
    let read = |asm: &mut Assembler<'m>, (from, offset): (Reg, i32), (into, at): (Reg, i32), bytes: usize| {
        asm.set(Reg::R3, from).alu(Alu::Add, Reg::R3, offset).set(Reg::R2, bytes as i32);
        asm.set(Reg::R1, into).alu(Alu::Add, Reg::R1, at).call(Helper::ProbeReadKernel);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, end);
    };
    let copy = |asm: &mut Assembler<'m>, from: Reg, offset: i32, at: usize, bytes: usize| {
        read(asm, (from, offset), (Reg::R9, at as i32), bytes);
    };
    // The pointer that stands so far behind one becomes R6.
    let load = |asm: &mut Assembler<'m>, from: Reg, offset: i32| {
        read(asm, (from, offset), (Reg::R10, -16), 8);
        asm.load(Size::Double, Reg::R6, Reg::R10, -16);
    };
    // The same behind R6; where there is none, it is over.
    let follow = |asm: &mut Assembler<'m>, offset: i32| {
        load(asm, Reg::R6, offset);
        asm.jump_if(Reg::R6, Compare::Equal, 0, end);
    };
    // The file of a task with the number that stands in the entry, whose task's files stand so far behind R6.
    let file = |asm: &mut Assembler<'m>, files: i32, number_at: i16| {
        follow(asm, files);
        follow(asm, table);
        read(asm, (Reg::R6, most), (Reg::R10, -8), 4);
        asm.load(Size::Word, Reg::R8, Reg::R10, -8);
        asm.load(Size::Double, Reg::R7, Reg::R9, number_at).jump_if(Reg::R7, Compare::GreaterOrEqual, Reg::R8, end);
        follow(asm, array);
        asm.alu(Alu::ShiftLeft, Reg::R7, 3).alu(Alu::Add, Reg::R6, Reg::R7);
        follow(asm, 0);
    };
    file(asm, files, 0);
    follow(asm, inode);
    follow(asm, pid_of - in_proc);
    // The first link of the number leads into the task that has it.
    follow(asm, tasks);
    file(asm, files - link, FILE_AT as i16);
    follow(asm, event);
    asm.set(Reg::R8, Reg::R6);
    copy(asm, Reg::R8, attr, ATTR_AT, Attr::MAX_SIZE);
    copy(asm, Reg::R8, cpu, CPU_AT, 4);
    follow(asm, pmu);
    follow(asm, name);
    copy(asm, Reg::R6, 0, PMU_AT, PMU_BYTES);
    // One of a CPU has no task, and is whole.
    let whole = asm.label();
    load(asm, Reg::R8, target);
    asm.jump_if(Reg::R6, Compare::Equal, 0, whole);
    copy(asm, Reg::R6, pid, TASK_AT, 4);
    asm.place(whole).set(Reg::R0, 1).exit();
    asm.place(end).set(Reg::R0, 0).exit();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_perf_event::ReadableEvent;
    use pmux_abi::attr::AttrFlags;

    /// The own process's, by the same way as any other.
    #[test]
    fn an_event_is_found_by_its_file() {
        let Some(foreign) = ForeignEvents::open() else {
            return println!("skipped: needs the right to load BPF programs, and a kernel with CONFIG_DEBUG_INFO_BTF");
        };
        let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let faults = Attr { kind: EventType::SOFTWARE, config: sw::PAGE_FAULTS, flags, ..Attr::default() };
        let own = std::process::id().cast_signed();
        let _open = ReadableEvent::open(&faults);
        let (holders, _) = super::super::holders::survey_in(std::path::Path::new("/proc"), None);
        let mine = holders.into_iter().find(|holder| holder.pid == own).map(|holder| holder.events).unwrap_or_default();
        let seen: Vec<_> = mine.iter().filter_map(|&fd| foreign.look(own, fd)).collect();
        let is_ours = |event: &ForeignEvent| event.attr.config == sw::PAGE_FAULTS && event.attr.flags.contains(flags);
        let ours = seen.iter().find(|event| is_ours(event)).cloned();
        assert!(
            ours.as_ref().is_some_and(|event| event.task.is_some_and(|task| task > 0) && event.cpu.is_none()),
            "{seen:?}"
        );
        assert_eq!(foreign.look(own, -1), None);
        assert_eq!(foreign.look(own, 1 << 30), None);
        assert_eq!(foreign.look(i32::MAX, 3), None);
    }
}
