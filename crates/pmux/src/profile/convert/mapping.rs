//! Records that tell what is mapped.
//!
//! Read first: [`Converter::map`].
//!
//! **Invariant:** a name decides what a mapping is, as the kernel and the tools write it; nothing is looked up on this machine.

use super::Converter;
use crate::profile::Profile;
use crate::profile::build_ids::KERNEL;
use crate::profile::maps::{AddressRule, Mapping};
use crate::profile::modules::{Module, ModuleId, ModuleKind};
use pmux_abi::record::{BuildId, CpuMode, Ksymbol, MapKind, Mmap, RecordHeader};

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

/// Whether a record of a mapping that is marked so has a build id, and not the numbers of an inode. `asked` says whether an event asked
/// for build ids; tools put them in afterwards, too (`perf inject --buildid-all`), without a word in the attributes.
pub(super) fn has_build_id(record: &[u8], asked: impl FnOnce() -> bool) -> bool {
    // Size, three bytes of nothing, 20 bytes filled up with zeros; or the major and the minor number of a device, an inode, its generation.
    let Some((&[size, a, b, c], id)) = record.get(40..64).and_then(|bytes| bytes.split_first_chunk::<4>()) else {
        return false;
    };
    let is_filled = id.get(usize::from(size)..).is_some_and(|rest| rest.iter().all(|&byte| byte == 0));
    // MD5, a UUID or SHA-1: what is shorter may be the number of a device.
    size > 0 && [a, b, c] == [0; 3] && is_filled && (size >= 16 || asked())
}

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
    /// Something is mapped, with this build id if its record has one.
    pub(super) fn map(&mut self, header: RecordHeader, mmap: &Mmap<'_>, build_id: Option<BuildId>) {
        let mode = header.misc.cpu_mode();
        if mmap.pid == u32::MAX || mode == CpuMode::Kernel {
            return self.map_kernel(mmap, build_id);
        }
        if mmap.kind == MapKind::Data || matches!(mode, CpuMode::GuestKernel | CpuMode::GuestUser) {
            return;
        }
        let pid = mmap.pid.cast_signed();
        let kind = kind_of(mmap.filename, pid);
        let names = &mut self.profile.names;
        let (path, short) = match kind {
            ModuleKind::Jit { .. } => (
                names.intern(format!("/tmp/perf-{pid}.map").as_bytes()),
                names.intern(format!("[JIT] tid {pid}").as_bytes()),
            ),
            _ => (names.intern(mmap.filename), names.intern(last_part(mmap.filename))),
        };
        // It only tells where a program writes what it says of the code that it makes.
        if last_part(mmap.filename) == format!("jit-{pid}.dump").as_bytes() {
            let path = names.intern(mmap.filename);
            self.profile.dumps.insert(pid, path);
            return;
        }
        let build_id = build_id.or_else(|| self.head.build_ids.of(mmap.filename));
        let module = self.profile.modules.add(Module { kind, path, short, build_id, start: 0, pid: Some(pid) });
        let counting = match kind {
            ModuleKind::File => AddressRule::From(mmap.pgoff),
            ModuleKind::Vdso => AddressRule::From(0),
            _ => AddressRule::AsTheyAre,
        };
        let end = mmap.addr.saturating_add(mmap.len);
        self.profile.tasks.change_maps(pid).add(mmap.addr, Mapping { end, module, counting });
    }

    fn map_kernel(&mut self, mmap: &Mmap<'_>, build_id: Option<BuildId>) {
        let is_kernel = mmap.filename.starts_with(KERNEL);
        if mmap.filename.starts_with(b"[guest") {
            return;
        }
        let module = if is_kernel {
            if self.profile.about.kernel_text.is_none() {
                // Behind the brackets stands the symbol whose address it is.
                let name = mmap.filename.split(|&byte| byte == b']').nth(1).filter(|name| !name.is_empty());
                let name = String::from_utf8_lossy(name.unwrap_or(b"_text")).into_owned();
                self.profile.about.kernel_text = Some((name, mmap.pgoff));
            }
            if let Some(id) = build_id.or(self.head.build_ids.kernel) {
                self.profile.modules.set_kernel_build_id(id);
            }
            ModuleId::KERNEL
        } else {
            let Some(short) = kernel_module(mmap.filename) else { return };
            let build_id = build_id.or_else(|| self.head.build_ids.of(mmap.filename));
            let Profile { names, modules, .. } = &mut self.profile;
            let (kind, path, short) = (ModuleKind::KernelModule, names.intern(mmap.filename), names.intern(&short));
            modules.add(Module { kind, path, short, build_id, start: mmap.addr, pid: None })
        };
        self.kernel_stamp = self.kernel_stamp.wrapping_add(1);
        let end = mmap.addr.saturating_add(mmap.len);
        self.kernel.add(mmap.addr, Mapping { end, module, counting: AddressRule::AsTheyAre });
    }

    pub(super) fn kernel_symbol(&mut self, symbol: &Ksymbol<'_>) {
        self.kernel_stamp = self.kernel_stamp.wrapping_add(1);
        if symbol.flags & Ksymbol::UNREGISTER != 0 {
            self.kernel.remove(symbol.addr);
            return;
        }
        let Profile { names, modules, .. } = &mut self.profile;
        let (kind, path, start) = (ModuleKind::KernelSymbol, names.intern(symbol.name), symbol.addr);
        let module = modules.add(Module { kind, path, short: path, build_id: None, start, pid: None });
        let end = symbol.addr.saturating_add(symbol.len.into());
        self.kernel.add(symbol.addr, Mapping { end, module, counting: AddressRule::AsTheyAre });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_was_left_behind_makes_no_build_id_of_an_inode() {
        let record = |union: &[u8]| {
            let mut bytes = vec![0; 80];
            bytes[40..40 + union.len()].copy_from_slice(union);
            bytes
        };
        let id = |size: u8| [vec![size, 0, 0, 0], vec![7; size.into()]].concat();
        // Those that are usual, also where no event asked for them.
        for size in [16, 20] {
            assert!(has_build_id(&record(&id(size)), || false), "{size}");
        }
        assert!(has_build_id(&record(&id(8)), || true) && !has_build_id(&record(&id(8)), || false));
        // Devices 8:1, 254:0, 259:3 and 0:40, with an inode and its generation.
        for (major, minor) in [(8_u32, 1_u32), (254, 0), (259, 3), (0, 40)] {
            let numbers = [major.to_ne_bytes(), minor.to_ne_bytes()].concat();
            let union = [numbers, 123_456_u64.to_ne_bytes().to_vec(), 987_u64.to_ne_bytes().to_vec()].concat();
            for asked in [false, true] {
                assert!(!has_build_id(&record(&union), || asked), "{major}:{minor}");
            }
        }
        assert!(!has_build_id(&[0; 50], || true), "it ends too early");
    }
}
