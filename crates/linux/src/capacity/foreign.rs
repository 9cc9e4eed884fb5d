//! What the events of other processes count.
//!
//! What it is: [`ForeignEvents`], a program in the kernel that looks at an event by its file. A file of another process is taken over for
//! the moment (`pidfd_getfd(2)`), so that the program finds it among the files of this one; where the kernel's structures have what
//! is looked for, the kernel itself says (`crate::btf`).
//!
//! **Invariant:** it only looks: nothing is changed, and the file is closed again.

use crate::bpf::{Alu, Assembler, Compare, Helper, Map, MapKind, Program, ProgramKind, Reg, Size, Update};
use crate::btf::Btf;
use crate::procfs::Proc;
use crate::sys;
use pmux_abi::attr::{Attr, EventType, sw};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

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

/// The only entry of the map: the number of a file, the CPU, the task, the name of the PMU, and the attribute.
const CPU_AT: usize = 8;
const TASK_AT: usize = 12;
const PMU_AT: usize = 16;
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
        let file = sys::pidfd_getfd(sys::pidfd_open(process).ok()?.as_fd(), fd).ok()?;
        if !is_event(&file) {
            return None;
        }
        let mut entry = vec![0; ENTRY_BYTES];
        entry[..8].copy_from_slice(&u64::try_from(file.as_raw_fd()).ok()?.to_ne_bytes());
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
        Some(ForeignEvent {
            attr,
            task: number(TASK_AT).filter(|&task| task > 0),
            cpu: number(CPU_AT).and_then(|cpu| u32::try_from(cpu).ok()),
        })
    }
}

/// The number of a file means another one by now where its owner has closed it.
fn is_event(file: &OwnedFd) -> bool {
    let link = Proc::system().root().join(format!("self/fd/{}", file.as_raw_fd()));
    std::fs::read_link(link).is_ok_and(|link| link.as_os_str() == super::holders::EVENT)
}

/// From the task that runs to its files, to one of them, to its event. It answers 1 where all was there.
fn assemble<'m>(asm: &mut Assembler<'m>, map: &'m Map, btf: &Btf) -> Option<()> {
    let (files, table, array) =
        (btf.offset("task_struct", "files")?, btf.offset("files_struct", "fdt")?, btf.offset("fdtable", "fd")?);
    let (event, attr, cpu) =
        (btf.offset("file", "private_data")?, btf.offset("perf_event", "attr")?, btf.offset("perf_event", "cpu")?);
    let target = btf.offset("perf_event", "hw")?.checked_add(btf.offset("hw_perf_event", "target")?)?;
    let pid = btf.offset("task_struct", "pid")?;
    let (pmu, name) = (btf.offset("perf_event", "pmu")?, btf.offset("pmu", "name")?);
    let end = asm.label();
    // R9: the entry. R6: where the next pointer stands.
    asm.store(Size::Word, Reg::R10, -4, 0).set(Reg::R2, Reg::R10).alu(Alu::Add, Reg::R2, -4);
    asm.set_map(Reg::R1, map).call(Helper::MapLookup).jump_if(Reg::R0, Compare::Equal, 0, end).set(Reg::R9, Reg::R0);
    asm.call(Helper::GetCurrentTask).set(Reg::R6, Reg::R0);
    // The pointer that stands so far behind R6 becomes R6; where there is none, it is over.
    let follow = |asm: &mut Assembler<'m>, offset: i32| {
        asm.alu(Alu::Add, Reg::R6, offset).set(Reg::R3, Reg::R6).set(Reg::R2, 8);
        asm.set(Reg::R1, Reg::R10).alu(Alu::Add, Reg::R1, -16).call(Helper::ProbeReadKernel);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, end).load(Size::Double, Reg::R6, Reg::R10, -16);
        asm.jump_if(Reg::R6, Compare::Equal, 0, end);
    };
    // So many bytes that stand so far behind a pointer go into the entry.
    let copy = |asm: &mut Assembler<'m>, from: Reg, offset: i32, at: usize, bytes: usize| {
        asm.set(Reg::R3, from).alu(Alu::Add, Reg::R3, offset).set(Reg::R2, bytes as i32);
        asm.set(Reg::R1, Reg::R9).alu(Alu::Add, Reg::R1, at as i32).call(Helper::ProbeReadKernel);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, end);
    };
    follow(asm, files);
    follow(asm, table);
    follow(asm, array);
    asm.load(Size::Double, Reg::R7, Reg::R9, 0).alu(Alu::ShiftLeft, Reg::R7, 3).alu(Alu::Add, Reg::R6, Reg::R7);
    follow(asm, 0);
    follow(asm, event);
    asm.set(Reg::R8, Reg::R6);
    copy(asm, Reg::R8, attr, ATTR_AT, Attr::MAX_SIZE);
    copy(asm, Reg::R8, cpu, CPU_AT, 4);
    follow(asm, pmu);
    follow(asm, name);
    copy(asm, Reg::R6, 0, PMU_AT, PMU_BYTES);
    // One of a CPU has no task, and is whole.
    let whole = asm.label();
    asm.set(Reg::R3, Reg::R8).alu(Alu::Add, Reg::R3, target).set(Reg::R2, 8);
    asm.set(Reg::R1, Reg::R10).alu(Alu::Add, Reg::R1, -16).call(Helper::ProbeReadKernel);
    asm.jump_if(Reg::R0, Compare::Unequal, 0, end).load(Size::Double, Reg::R6, Reg::R10, -16);
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
            println!("skipped: needs the right to load BPF programs, and a kernel with CONFIG_DEBUG_INFO_BTF");
            return;
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
        assert_eq!(foreign.look(own, 0), None);
        assert_eq!(foreign.look(i32::MAX, 3), None);
    }
}
