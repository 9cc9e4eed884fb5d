//! Mappings: MMAP and MMAP2.
//!
//! **Invariant:** a path is bytes; whether it is a file, and which, is for the reader.

use super::Misc;
use super::wire::{read_string, write_string};
use crate::bytes::{Reader, Writer};

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MapKind {
    /// Executable.
    #[default]
    Code,
    /// Not executable.
    Data,
}

impl MapKind {
    const fn from_misc(misc: Misc) -> Self {
        if misc.contains(Misc::MMAP_DATA) { Self::Data } else { Self::Code }
    }

    pub(super) const fn to_misc(self, misc: Misc) -> Misc {
        match self {
            Self::Code => misc.without(Misc::MMAP_DATA),
            Self::Data => misc.with(Misc::MMAP_DATA),
        }
    }
}

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mmap<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The first address.
    pub addr: u64,
    /// The bytes.
    pub len: u64,
    /// Where in the file it starts, in bytes.
    pub pgoff: u64,
    /// What is mapped.
    pub kind: MapKind,
    /// The file's path, or a name in brackets or after two slashes.
    pub filename: &'a [u8],
}

impl<'a> Mmap<'a> {
    pub(super) fn read(r: &mut Reader<'a>, misc: Misc) -> Option<Self> {
        Some(Self {
            pid: r.u32()?,
            tid: r.u32()?,
            addr: r.u64()?,
            len: r.u64()?,
            pgoff: r.u64()?,
            kind: MapKind::from_misc(misc),
            filename: read_string(r)?,
        })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) -> Option<()> {
        w.u32(self.pid);
        w.u32(self.tid);
        w.u64(self.addr);
        w.u64(self.len);
        w.u64(self.pgoff);
        write_string(w, self.filename)
    }
}

/// The build id of an ELF file: up to 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BuildId {
    len: u8,
    bytes: [u8; Self::MAX_LEN],
}

impl BuildId {
    /// The most bytes that a build id has.
    pub const MAX_LEN: usize = 20;

    /// Makes a build id, or `None` of more than 20 bytes.
    #[must_use]
    pub fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { len: u8::try_from(id.len()).ok()?, bytes })
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }
}

/// Which file is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapSource {
    /// The file's identity in its file system.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// The inode.
        inode: u64,
        /// The generation of the inode.
        generation: u64,
    },
    /// The identity of its contents.
    BuildId(BuildId),
}

impl Default for MapSource {
    fn default() -> Self {
        Self::Inode { major: 0, minor: 0, inode: 0, generation: 0 }
    }
}

impl MapSource {
    fn read(r: &mut Reader<'_>, misc: Misc) -> Option<Self> {
        if misc.contains(Misc::MMAP_BUILD_ID) {
            let bytes = r.take(24)?;
            let size = bytes.first().copied().unwrap_or(0);
            bytes.get(4..4 + usize::from(size)).and_then(BuildId::new).map(Self::BuildId)
        } else {
            Some(Self::Inode { major: r.u32()?, minor: r.u32()?, inode: r.u64()?, generation: r.u64()? })
        }
    }

    fn write(&self, w: &mut Writer<'_>) {
        match self {
            Self::Inode { major, minor, inode, generation } => {
                w.u32(*major);
                w.u32(*minor);
                w.u64(*inode);
                w.u64(*generation);
            }
            Self::BuildId(id) => {
                w.put(&[id.len, 0, 0, 0]);
                w.put(&id.bytes);
            }
        }
    }
}

/// A mapping, with the identity of its file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mmap2<'a> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The first address.
    pub addr: u64,
    /// The bytes.
    pub len: u64,
    /// Where in the file it starts, in bytes.
    pub pgoff: u64,
    /// Which file.
    pub source: MapSource,
    /// Protection, as given to `mmap(2)`.
    pub prot: u32,
    /// Flags, as given to `mmap(2)`.
    pub flags: u32,
    /// What is mapped.
    pub kind: MapKind,
    /// The file's path, or a name in brackets or after two slashes.
    pub filename: &'a [u8],
}

impl<'a> Mmap2<'a> {
    pub(super) fn read(r: &mut Reader<'a>, misc: Misc) -> Option<Self> {
        Some(Self {
            pid: r.u32()?,
            tid: r.u32()?,
            addr: r.u64()?,
            len: r.u64()?,
            pgoff: r.u64()?,
            source: MapSource::read(r, misc)?,
            prot: r.u32()?,
            flags: r.u32()?,
            kind: MapKind::from_misc(misc),
            filename: read_string(r)?,
        })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) -> Option<()> {
        w.u32(self.pid);
        w.u32(self.tid);
        w.u64(self.addr);
        w.u64(self.len);
        w.u64(self.pgoff);
        self.source.write(w);
        w.u32(self.prot);
        w.u32(self.flags);
        write_string(w, self.filename)
    }

    pub(super) const fn to_misc(self, misc: Misc) -> Misc {
        let misc = self.kind.to_misc(misc);
        match self.source {
            MapSource::Inode { .. } => misc.without(Misc::MMAP_BUILD_ID),
            MapSource::BuildId(_) => misc.with(Misc::MMAP_BUILD_ID),
        }
    }
}
