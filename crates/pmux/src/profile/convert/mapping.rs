//! Records that tell what is mapped.
//!
//! Read first: [`Converter::map`].
//!
//! **Invariant:** a name decides what a mapping is, as the kernel and the tools write it; nothing is looked up on this machine.

use super::Converter;
use crate::profile::maps::{Counting, Mapping};
use crate::profile::modules::{Module, ModuleId, ModuleKind};
use crate::profile::{Name, Profile};
use pmux_abi::record::{BuildId, CpuMode, Ksymbol, MapKind, MapSource, Mmap, Mmap2, RecordHeader};

/// What both kinds of records tell.
pub(super) struct Told<'a> {
    start: u64,
    end: u64,
    offset: u64,
    kind: MapKind,
    path: &'a [u8],
    build_id: Option<BuildId>,
}

impl<'a> Told<'a> {
    pub(super) fn of_mmap(map: &Mmap<'a>) -> Self {
        let end = map.addr.saturating_add(map.len);
        Self { start: map.addr, end, offset: map.pgoff, kind: map.kind, path: map.filename, build_id: None }
    }

    pub(super) fn of_mmap2(map: &Mmap2<'a>) -> Self {
        let build_id = match map.source {
            MapSource::BuildId(id) => Some(id),
            MapSource::Inode { .. } => None,
        };
        let end = map.addr.saturating_add(map.len);
        Self { start: map.addr, end, offset: map.pgoff, kind: map.kind, path: map.filename, build_id }
    }
}

/// What a user's mapping is, by its name.
fn kind_of(path: &[u8], pid: i32) -> ModuleKind {
    let begins = |text: &str| path.starts_with(text.as_bytes());
    if path == b"[vdso]" {
        ModuleKind::Vdso
    } else if path.is_empty() || begins("//anon") || begins("/anon_hugepage") || begins("/dev/zero") || begins("[anon")
    {
        ModuleKind::Jit { pid }
    } else if begins("//") || begins("[") || begins("/SYSV") {
        ModuleKind::Memory
    } else {
        ModuleKind::File
    }
}

/// Whether a mapping only tells where a program writes what it says of the code that it makes: `jit-PID.dump`.
fn is_dump(path: &[u8], pid: i32) -> bool {
    last_part(path) == format!("jit-{pid}.dump").as_bytes()
}

/// The last part of a path.
fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().filter(|part| !part.is_empty()).unwrap_or(path)
}

/// `[xfs]` of `/lib/modules/6.1/kernel/fs/xfs/xfs.ko.xz`; `None` of what is no module of the kernel.
fn kernel_module(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"[") {
        return Some(path.to_vec());
    }
    let name = last_part(path);
    let end = name.windows(3).position(|part| part == b".ko")?;
    let name = name[..end].iter().map(|&byte| if byte == b'-' { b'_' } else { byte });
    Some([b'['].into_iter().chain(name).chain([b']']).collect())
}

impl Converter {
    /// Takes a mapping of a process, or of the kernel.
    pub(super) fn map(&mut self, header: RecordHeader, pid: u32, told: &Told<'_>) {
        let mode = header.misc.cpu_mode();
        if pid == u32::MAX || mode == CpuMode::Kernel {
            return self.map_kernel(told);
        }
        if told.kind == MapKind::Data || matches!(mode, CpuMode::GuestKernel | CpuMode::GuestUser) {
            return;
        }
        let pid = pid.cast_signed();
        let kind = kind_of(told.path, pid);
        let names = &mut self.profile.names;
        let (path, short) = match kind {
            ModuleKind::Jit { .. } => (
                names.intern(format!("/tmp/perf-{pid}.map").as_bytes()),
                names.intern(format!("[JIT] tid {pid}").as_bytes()),
            ),
            _ => (names.intern(told.path), names.intern(last_part(told.path))),
        };
        if is_dump(told.path, pid) {
            let path = self.profile.names.intern(told.path);
            self.profile.dumps.insert(pid, path);
            return;
        }
        let build_id =
            told.build_id.or_else(|| self.head.build_ids.iter().find(|(of, _)| of == told.path).map(|of| of.1));
        let module = self.profile.modules.add(Module { kind, path, short, build_id, start: 0, pid: Some(pid) });
        let counting = match kind {
            ModuleKind::File => Counting::From(told.offset),
            ModuleKind::Vdso => Counting::From(0),
            _ => Counting::AsTheyAre,
        };
        self.profile.tasks.change_maps(pid).add(told.start, Mapping { end: told.end, module, counting });
    }

    fn map_kernel(&mut self, told: &Told<'_>) {
        let is_kernel = told.path.starts_with(b"[kernel.kallsyms]");
        if told.path.starts_with(b"[guest") {
            return;
        }
        let build_id =
            |head: &super::Head, path: &[u8]| head.build_ids.iter().find(|(of, _)| of == path).map(|(_, id)| *id);
        let module = if is_kernel {
            if self.profile.about.kernel_text.is_none() {
                // Behind the brackets stands the symbol whose address it is.
                let name = told.path.split(|&byte| byte == b']').nth(1).filter(|name| !name.is_empty());
                let name = String::from_utf8_lossy(name.unwrap_or(b"_text")).into_owned();
                self.profile.about.kernel_text = Some((name, told.offset));
            }
            let id = told.build_id.or_else(|| build_id(&self.head, b"[kernel.kallsyms]"));
            if let Some(id) = id {
                let name = self.profile.modules.get(ModuleId::KERNEL).path;
                self.profile.modules.tell_build_id(name, id);
            }
            ModuleId::KERNEL
        } else {
            let Some(short) = kernel_module(told.path) else { return };
            let id = told.build_id.or_else(|| build_id(&self.head, told.path));
            self.kernel_module(ModuleKind::KernelModule, told.path, &short, id, told.start)
        };
        self.kernel_stamp = self.kernel_stamp.wrapping_add(1);
        self.kernel.add(told.start, Mapping { end: told.end, module, counting: Counting::AsTheyAre });
    }

    fn kernel_module(
        &mut self,
        kind: ModuleKind,
        path: &[u8],
        short: &[u8],
        build_id: Option<BuildId>,
        start: u64,
    ) -> ModuleId {
        let Profile { names, modules, .. } = &mut self.profile;
        let [path, short]: [Name; 2] = [path, short].map(|text| names.intern(text));
        modules.add(Module { kind, path, short, build_id, start, pid: None })
    }

    /// A symbol of the kernel comes or goes.
    pub(super) fn kernel_symbol(&mut self, symbol: &Ksymbol<'_>) {
        self.kernel_stamp = self.kernel_stamp.wrapping_add(1);
        if symbol.flags & Ksymbol::UNREGISTER != 0 {
            self.kernel.remove(symbol.addr);
            return;
        }
        let module = self.kernel_module(ModuleKind::KernelSymbol, symbol.name, symbol.name, None, symbol.addr);
        let end = symbol.addr.saturating_add(symbol.len.into());
        self.kernel.add(symbol.addr, Mapping { end, module, counting: Counting::AsTheyAre });
    }
}
