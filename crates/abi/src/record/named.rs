//! Records that name something or list something: command, symbol, BPF program, cgroup, namespaces, changed text,
//! counts, deferred call chain.
//!
//! **Invariant:** names are bytes without their zero; lists are views of the record.

use super::wire::{read_counted, read_string, write_counted, write_string};
use super::{Misc, SampleLayout};
use crate::array::{Array, Element};
use crate::bytes::{Reader, Writer, put_words, u64_at};
use crate::read::ReadValues;

/// Why a command has a new name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CommCause {
    /// The task renamed itself, or the event doesn't tell (`comm_exec` not set).
    #[default]
    Rename,
    /// An exec.
    Exec,
}

/// A command name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Comm<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Why there is a new name.
    pub cause: CommCause,
    /// The name.
    pub comm: &'a [u8],
}

impl<'a> Comm<'a> {
    pub(super) fn read(r: &mut Reader<'a>, misc: Misc) -> Option<Self> {
        Some(Self {
            pid: r.u32()?,
            tid: r.u32()?,
            cause: if misc.contains(Misc::COMM_EXEC) { CommCause::Exec } else { CommCause::Rename },
            comm: read_string(r)?,
        })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) -> Option<()> {
        w.u32(self.pid);
        w.u32(self.tid);
        write_string(w, self.comm)
    }

    pub(super) const fn to_misc(self, misc: Misc) -> Misc {
        match self.cause {
            CommCause::Rename => misc.without(Misc::COMM_EXEC),
            CommCause::Exec => misc.with(Misc::COMM_EXEC),
        }
    }
}

/// The counts of an exiting task, with `inherit_stat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Read<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its counts.
    pub values: ReadValues<'a>,
}

impl<'a> Read<'a> {
    pub(super) fn read_from(r: &mut Reader<'a>, layout: &SampleLayout) -> Option<Self> {
        Some(Self { pid: r.u32()?, tid: r.u32()?, values: layout.read().read(r)? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>, layout: &SampleLayout) -> Option<()> {
        w.u32(self.pid);
        w.u32(self.tid);
        layout.read().write(&self.values, w)
    }
}

/// One namespace of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Namespace {
    /// The device of its file.
    pub dev: u64,
    /// The inode of its file.
    pub inode: u64,
}

impl Element for Namespace {
    const SIZE: usize = 16;

    fn from_wire(bytes: &[u8]) -> Self {
        Self { dev: u64_at(bytes, 0), inode: u64_at(bytes, 8) }
    }

    fn to_wire(self, out: &mut [u8]) {
        put_words(out, [self.dev, self.inode]);
    }
}

/// The namespaces of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Namespaces<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its namespaces: network, UTS, IPC, processes, users, mounts, cgroups.
    pub namespaces: Array<'a, Namespace>,
}

impl<'a> Namespaces<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(Self { pid: r.u32()?, tid: r.u32()?, namespaces: read_counted(r)? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(self.pid);
        w.u32(self.tid);
        write_counted(w, self.namespaces);
    }
}

/// A kernel symbol that comes or goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ksymbol<'a> {
    /// Its address.
    pub addr: u64,
    /// Its bytes.
    pub len: u32,
    /// What it is: 0 unknown, 1 a BPF program, 2 code out of line such as a kprobe's.
    pub ksym_type: u16,
    /// Bit 0: it goes.
    pub flags: u16,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Ksymbol<'a> {
    /// The bit of `flags` of a symbol that goes.
    pub const UNREGISTER: u16 = 1;

    pub(super) fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(Self { addr: r.u64()?, len: r.u32()?, ksym_type: r.u16()?, flags: r.u16()?, name: read_string(r)? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) -> Option<()> {
        w.u64(self.addr);
        w.u32(self.len);
        w.u16(self.ksym_type);
        w.u16(self.flags);
        write_string(w, self.name)
    }
}

/// A BPF program that comes or goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BpfEvent {
    /// What happens: 1 the program comes, 2 it goes.
    pub event_type: u16,
    /// Bits without a meaning yet.
    pub flags: u16,
    /// The program's id.
    pub id: u32,
    /// The program's tag, a hash of its instructions.
    pub tag: [u8; 8],
}

impl BpfEvent {
    /// The program comes.
    pub const PROG_LOAD: u16 = 1;
    /// The program goes.
    pub const PROG_UNLOAD: u16 = 2;

    pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { event_type: r.u16()?, flags: r.u16()?, id: r.u32()?, tag: r.u64()?.to_ne_bytes() })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u16(self.event_type);
        w.u16(self.flags);
        w.u32(self.id);
        w.put(&self.tag);
    }
}

/// A cgroup's id and path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cgroup<'a> {
    /// Its id, as in samples with `PERF_SAMPLE_CGROUP`.
    pub id: u64,
    /// Its path from the root of its hierarchy.
    pub path: &'a [u8],
}

impl<'a> Cgroup<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(Self { id: r.u64()?, path: read_string(r)? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) -> Option<()> {
        w.u64(self.id);
        write_string(w, self.path)
    }
}

/// Kernel text that changes. Text that appears has no old bytes, text that goes has no new ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TextPoke<'a> {
    /// Its address.
    pub addr: u64,
    /// The bytes before.
    pub old: &'a [u8],
    /// The bytes after.
    pub new: &'a [u8],
}

impl<'a> TextPoke<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Option<Self> {
        let addr = r.u64()?;
        let old_len = r.u16()?;
        let new_len = r.u16()?;
        Some(Self { addr, old: r.take(old_len.into())?, new: r.take(new_len.into())? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u64(self.addr);
        // Longer ones make the record too long, which is an error of its own.
        w.u16(u16::try_from(self.old.len()).unwrap_or(u16::MAX));
        w.u16(u16::try_from(self.new.len()).unwrap_or(u16::MAX));
        w.put(self.old);
        w.put(self.new);
        w.pad8();
    }
}

/// A user call chain that was taken later than its samples (6.19).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallchainDeferred<'a> {
    /// What its samples have after [`super::callchain::USER_DEFERRED`].
    pub cookie: u64,
    /// The addresses, innermost first.
    pub ips: Array<'a, u64>,
}

impl<'a> CallchainDeferred<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Option<Self> {
        Some(Self { cookie: r.u64()?, ips: read_counted(r)? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u64(self.cookie);
        write_counted(w, self.ips);
    }
}
