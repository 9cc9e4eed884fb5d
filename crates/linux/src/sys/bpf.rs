//! `bpf(2)`: maps and programs.
//!
//! **Invariant:** a map remembers how long its keys and values are, so that the kernel never writes behind a slice. What the
//! instructions of a program mean is the kernel's to check.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Errno, check, descriptor};
use crate::cpus::Cpus;

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP: libc::c_int = 1;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const MAP_NEXT_KEY: libc::c_int = 4;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const MAP_LOOKUP_BATCH: libc::c_int = 24;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;

/// A map's values can be mapped into memory. Source: `BPF_F_MMAPABLE` in `include/uapi/linux/bpf.h`.
const MAPPABLE: u32 = 1 << 10;

/// The longest name of a map or a program, with its zero byte.
const NAME_BYTES: usize = 16;

/// Bytes that a batch keeps its place in: a bucket's number, or a key of an array.
const PLACE_BYTES: usize = 8;

/// What a map is. Source: `enum bpf_map_type` in `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// Keys of any bytes; full means full.
    Hash,
    /// Values by number; all are there from the beginning.
    Array,
    /// As [`MapKind::Array`], and its values can be mapped ([`crate::bpf::Map::values`]). Since Linux 5.5.
    SharedArray,
    /// Events by number, for programs that read them or write into their rings.
    PerfEventArray,
    /// As [`MapKind::Hash`], each value once for each CPU.
    PerCpuHash,
    /// As [`MapKind::Array`], each value once for each CPU.
    PerCpuArray,
    /// As [`MapKind::Hash`], but a full one drops what was not used for longest.
    LruHash,
}

impl MapKind {
    const fn number(self) -> u32 {
        match self {
            Self::Hash => 1,
            Self::Array | Self::SharedArray => 2,
            Self::PerfEventArray => 4,
            Self::PerCpuHash => 5,
            Self::PerCpuArray => 6,
            Self::LruHash => 9,
        }
    }

    const fn flags(self) -> u32 {
        if matches!(self, Self::SharedArray) { MAPPABLE } else { 0 }
    }

    const fn is_per_cpu(self) -> bool {
        matches!(self, Self::PerCpuHash | Self::PerCpuArray)
    }
}

/// The head of `union bpf_attr` for making a map.
#[derive(Default)]
#[repr(C)]
struct CreateAttr {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    most_entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
struct EntryAttr {
    map: u32,
    hole: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// That for many entries.
#[repr(C)]
struct BatchAttr {
    from: u64,
    place: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    entry_flags: u64,
    flags: u64,
}

#[derive(Default)]
#[repr(C)]
struct LoadAttr {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    interface: u32,
    attach_type: u32,
    own_types: u32,
    function_bytes: u32,
    functions: u64,
    function_count: u32,
    line_bytes: u32,
    lines: u64,
    line_count: u32,
    attach_id: u32,
}

#[repr(C)]
struct RawTracepointAttr {
    name: u64,
    program: u32,
    hole: u32,
}

/// For what is run by a link. Source: `link_create` and `iter_create` of `union bpf_attr`.
#[repr(C)]
struct LinkAttr {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct IterAttr {
    link: u32,
    flags: u32,
}

#[derive(Default)]
#[repr(C)]
struct RunAttr {
    program: u32,
    answer: u32,
    data_bytes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration_ns: u32,
    context_bytes: [u32; 2],
    context: [u64; 2],
    flags: u32,
    cpu: u32,
    batch: u32,
    hole: u32,
}

/// Calls `bpf(2)`.
///
/// # Safety
/// `attr` is what the command takes, without holes that aren't named, and every pointer in it is null, or points to as many
/// bytes as the kernel reads or writes there.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> Result<libc::c_int, Errno> {
    // SAFETY: (1) `attr` is readable and writable for the size that is given. (2) What its pointers point to is the caller's
    // promise.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) } as libc::c_int)
}

/// The name as the kernel takes it: letters, digits, `_` and `.`; cut where it is too long.
fn name_bytes(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    let letters = name.bytes().filter(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    for (into, letter) in bytes.iter_mut().zip(letters.take(NAME_BYTES - 1)) {
        *into = letter;
    }
    bytes
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    // A borrowed descriptor is never negative.
    fd.as_raw_fd().unsigned_abs()
}

/// A map, and how long its entries are.
#[derive(Debug)]
pub(crate) struct MapFd {
    fd: OwnedFd,
    kind: MapKind,
    key_bytes: usize,
    /// What user space reads and writes of one entry: for all CPUs, where there is a value for each.
    entry_bytes: usize,
    /// Words of 8 bytes of all values.
    words: usize,
}

/// What an update does where the key is there already, or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Sets it in any case.
    Set = 0,
    /// Refuses with `EEXIST` where it is there.
    New = 1,
    /// Refuses with `ENOENT` where it is not.
    Present = 2,
}

/// A batch of entries, or where the last one ended.
#[derive(Debug, Default)]
pub(crate) struct MapBatch {
    pub(crate) keys: Vec<u8>,
    pub(crate) values: Vec<u8>,
    pub(crate) entries: usize,
    place: Option<[u8; PLACE_BYTES]>,
}

impl MapFd {
    /// Makes a map (`BPF_MAP_CREATE`); the descriptor is close-on-exec.
    ///
    /// Errors: `EPERM` without the right; `EINVAL` for sizes that the kind doesn't take, or that the number of CPUs isn't known;
    /// `E2BIG`, `ENOMEM`.
    pub(crate) fn create(
        kind: MapKind,
        key_bytes: u32,
        value_bytes: u32,
        most_entries: u32,
        name: &str,
    ) -> Result<Self, Errno> {
        let bytes = |bytes: u32| usize::try_from(bytes).map_err(|_| Errno::EINVAL);
        let copies = if kind.is_per_cpu() { Cpus::system().possible().map_err(|_| Errno::EINVAL)?.len() } else { 1 };
        // A value for each CPU is as long as whole words. For the others it costs nothing to be on the safe side.
        let entry_bytes = bytes(value_bytes)?.checked_next_multiple_of(if kind.is_per_cpu() { 8 } else { 1 });
        let entry_bytes = entry_bytes.and_then(|bytes| bytes.checked_mul(copies)).ok_or(Errno::EINVAL)?;
        let mut attr = CreateAttr {
            kind: kind.number(),
            key_bytes,
            value_bytes,
            most_entries,
            flags: kind.flags(),
            name: name_bytes(name),
            ..CreateAttr::default()
        };
        // SAFETY: (1) The structure is that of the command. (2) It holds no pointer. (3) The kernel's answer is a descriptor that
        // no other code knows yet; descriptors of bpf are close-on-exec.
        let fd = unsafe { descriptor(bpf(MAP_CREATE, &mut attr)?)? };
        let words = bytes(most_entries)?.checked_mul(entry_bytes.div_ceil(8)).ok_or(Errno::EINVAL)?;
        Ok(Self { fd, kind, key_bytes: bytes(key_bytes)?, entry_bytes, words })
    }

    pub(crate) fn kind(&self) -> MapKind {
        self.kind
    }

    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of an entry as it is read and written here.
    pub(crate) fn entry_bytes(&self) -> usize {
        self.entry_bytes
    }

    /// How many words of 8 bytes all its values are, one behind the other.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    fn entry(
        &self,
        command: libc::c_int,
        key: Option<&[u8]>,
        value: *mut u8,
        value_bytes: usize,
        flags: u64,
    ) -> Result<(), Errno> {
        let needed = match command {
            MAP_DELETE => 0,
            MAP_NEXT_KEY => self.key_bytes,
            _ => self.entry_bytes,
        };
        if key.is_some_and(|key| key.len() != self.key_bytes) || value_bytes != needed {
            return Err(Errno::EINVAL);
        }
        let mut attr = EntryAttr {
            map: number(self.fd.as_fd()),
            hole: 0,
            key: key.map_or(0, |key| key.as_ptr() as u64),
            value: value as u64,
            flags,
        };
        // SAFETY: (1) The structure is that of the command. (2) `key` is null, which the kernel answers or refuses, or has the
        // bytes that the map's keys have, and the kernel only reads them. (3) `value` points to as many bytes as the command reads or writes (checked above; the callers pass the
        // pointer and the length of one slice, writable where the command writes). (4) The map is open, and its sizes never
        // change; how many CPUs are possible is settled when the machine starts.
        unsafe { bpf(command, &mut attr) }.map(drop)
    }

    /// Reads an entry (`BPF_MAP_LOOKUP_ELEM`).
    ///
    /// Errors: `EINVAL` where the lengths are not those of the map; `ENOENT`; `EOPNOTSUPP`.
    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
        self.entry(MAP_LOOKUP, Some(key), value.as_mut_ptr(), value.len(), 0)
    }

    /// Writes an entry (`BPF_MAP_UPDATE_ELEM`).
    ///
    /// Errors: `EINVAL` where the lengths are not those of the map; `E2BIG` where it is full; `EEXIST`, `ENOENT`: see [`Update`].
    pub(crate) fn update(&self, key: &[u8], value: &[u8], how: Update) -> Result<(), Errno> {
        // The kernel only reads the value.
        self.entry(MAP_UPDATE, Some(key), value.as_ptr().cast_mut(), value.len(), how as u64)
    }

    /// Removes an entry (`BPF_MAP_DELETE_ELEM`).
    ///
    /// Errors: `EINVAL` where the length is not that of the map, or an array's entries can't go; `ENOENT`.
    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.entry(MAP_DELETE, Some(key), std::ptr::null_mut(), 0, 0)
    }

    /// The key behind this one (`BPF_MAP_GET_NEXT_KEY`), or the first one, also where this one isn't there.
    ///
    /// Errors: `EINVAL` where the lengths are not those of the map; `ENOENT` behind the last one.
    pub(crate) fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        self.entry(MAP_NEXT_KEY, key, next.as_mut_ptr(), next.len(), 0)
    }

    /// Reads the next entries, at most so many (`BPF_MAP_LOOKUP_BATCH`); answers whether there may be more.
    ///
    /// Errors: `EINVAL` where the kernel knows no batches for this kind (before 5.6); `ENOSPC` where so many are too few for one
    /// bucket of a hash.
    pub(crate) fn lookup_batch(&self, most: u32, batch: &mut MapBatch) -> Result<bool, Errno> {
        let entries = usize::try_from(most).map_err(|_| Errno::EINVAL)?;
        if self.key_bytes > PLACE_BYTES && !matches!(self.kind, MapKind::Hash | MapKind::LruHash | MapKind::PerCpuHash)
        {
            // Other kinds keep their place in a key.
            return Err(Errno::EINVAL);
        }
        let bytes = |each: usize| each.checked_mul(entries).ok_or(Errno::EINVAL);
        batch.keys.resize(bytes(self.key_bytes)?, 0);
        batch.values.resize(bytes(self.entry_bytes)?, 0);
        let before = batch.place;
        let mut place = [0_u8; PLACE_BYTES];
        let mut attr = BatchAttr {
            from: before.as_ref().map_or(0, |place| place.as_ptr() as u64),
            place: place.as_mut_ptr() as u64,
            keys: batch.keys.as_mut_ptr() as u64,
            values: batch.values.as_mut_ptr() as u64,
            count: most,
            map: number(self.fd.as_fd()),
            entry_flags: 0,
            flags: 0,
        };
        // SAFETY: (1) The structure is that of the command. (2) `keys` and `values` have room for `count` entries of the map's
        // sizes. (3) Hashes keep their place in four bytes, others in a key: both are no longer than `place` (checked above), and
        // `before` is null or was filled by the same command. (4) All of them live until the end of this function.
        let answer = unsafe { bpf(MAP_LOOKUP_BATCH, &mut attr) };
        batch.entries = usize::try_from(attr.count).map_err(|_| Errno::EINVAL)?.min(entries);
        batch.place = Some(place);
        match answer {
            Ok(_) => Ok(true),
            // The end, with the last entries.
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => {
                batch.entries = 0;
                Err(errno)
            }
        }
    }
}

impl AsFd for MapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What kind of program it is, in the kernel's numbers: the type, how it is attached, and to which of the kernel's types; 0 where the
/// type says it all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProgramType {
    pub(crate) kind: u32,
    pub(crate) attach_type: u32,
    pub(crate) attach_id: u32,
}

/// Loads a program (`BPF_PROG_LOAD`); the descriptor is close-on-exec. Where `log` has bytes, the verifier writes there why it
/// refuses, with a zero at the end.
///
/// Errors: `EPERM` without the right; `EACCES` or `EINVAL` where the verifier refuses; `ENOSPC` where the log doesn't fit; `EINVAL`
/// for a type that the kernel doesn't know.
pub(crate) fn load(of: ProgramType, code: &[[u8; 8]], name: &str, log: &mut [u8]) -> Result<OwnedFd, Errno> {
    // Half of what a program may call is for programs under a licence that goes with the kernel's.
    const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";
    let mut attr = LoadAttr {
        kind: of.kind,
        instructions: u32::try_from(code.len()).map_err(|_| Errno::E2BIG)?,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: u32::try_from(log.len()).map_err(|_| Errno::EINVAL)?,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name: name_bytes(name),
        attach_type: of.attach_type,
        attach_id: of.attach_id,
        ..LoadAttr::default()
    };
    // SAFETY: (1) The structure is that of the command. (2) `code` has as many instructions as it says, 8 bytes each; the licence
    // ends with a zero; `log` is null, or writable for the length that it says. (3) Whatever the instructions are, the kernel
    // verifies them, and descriptors among them are only looked up. (4) The answer is a descriptor that no other code knows
    // yet.
    unsafe { descriptor(bpf(PROG_LOAD, &mut attr)?) }
}

/// Runs a program at a tracepoint (`BPF_RAW_TRACEPOINT_OPEN`) until the descriptor is closed.
///
/// Errors: `ENOENT` for a name that there is not; `EINVAL` for a program of another type; `EPERM`.
/// `None`: the one that the program was loaded for.
pub(crate) fn open_raw_tracepoint(name: Option<&std::ffi::CStr>, program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut attr =
        RawTracepointAttr { name: name.map_or(0, |name| name.as_ptr() as u64), program: number(program), hole: 0 };
    // SAFETY: (1) The structure is that of the command. (2) `name` is null, or ends with a zero. (3) The borrow keeps the program open.
    // (4) The answer is a descriptor that no other code knows yet.
    unsafe { descriptor(bpf(RAW_TRACEPOINT_OPEN, &mut attr)?) }
}

/// Opens what a program of an iterator writes (`BPF_LINK_CREATE`, `BPF_ITER_CREATE`): reading it runs the program for one thing after the
/// other. Since Linux 5.8.
///
/// Errors: `EINVAL` for a program of another type, and on older kernels; `EPERM`.
pub(crate) fn open_iterator(program: BorrowedFd<'_>, attach_type: u32) -> Result<OwnedFd, Errno> {
    let mut link = LinkAttr { program: number(program), target: 0, attach_type, flags: 0 };
    // SAFETY: (1) The structure is the head of that of the command; what is behind it is 0 then. (2) It holds no pointer. (3) The borrow keeps
    // the program open. (4) The answer is a descriptor that no other code knows yet.
    let link = unsafe { descriptor(bpf(LINK_CREATE, &mut link)?)? };
    let mut attr = IterAttr { link: number(link.as_fd()), flags: 0 };
    // SAFETY: as above; the iterator keeps the link.
    unsafe { descriptor(bpf(ITER_CREATE, &mut attr)?) }
}

/// Runs a program of a raw tracepoint once (`BPF_PROG_TEST_RUN`): on a CPU and in the place of the task that runs there, or here. It gets
/// no context. Answers what it answered. Since Linux 5.10.
///
/// Errors: `ENXIO` where the CPU is offline; `EINVAL` for a program that looks at its context, or of another type, and on older
/// kernels; `EPERM`.
pub(crate) fn run(program: BorrowedFd<'_>, cpu: Option<u32>) -> Result<u32, Errno> {
    const ON_CPU: u32 = 1;
    let flags = if cpu.is_some() { ON_CPU } else { 0 };
    let mut attr = RunAttr { program: number(program), flags, cpu: cpu.unwrap_or(0), ..RunAttr::default() };
    // SAFETY: (1) The structure is that of the command. (2) All its pointers are null, with lengths of 0. (3) The borrow keeps the
    // program open.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.answer)
}

/// Waits until programs at tracepoints that run now have ended, and what writes a record of an event now has written it.
pub fn wait_for_programs() {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: the arguments are numbers. Source: `membarrier(2)`.
    let waited = check(unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } as libc::c_int);
    if waited.is_err() {
        // Where CPUs have no ticks the kernel refuses. Programs take some microseconds.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Runs a program whenever an event overflows (`PERF_EVENT_IOC_SET_BPF`): where it answers 0, no sample is written.
///
/// Errors: `EINVAL` for a program or an event of another type; `EEXIST` where the event has one.
pub(crate) fn attach(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let code = libc::_IOW::<u32>(b'$' as u32, 8);
    // SAFETY: (1) The argument is a number. (2) Both borrows keep their descriptors open; on a file that isn't an event the kernel
    // answers `ENOTTY`.
    check(unsafe { libc::ioctl(event.as_raw_fd(), code, libc::c_ulong::from(number(program))) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<CreateAttr>(), 44);
        assert_eq!(size_of::<EntryAttr>(), 32);
        assert_eq!(size_of::<BatchAttr>(), 56);
        assert_eq!(size_of::<LoadAttr>(), 112);
        assert_eq!(size_of::<RawTracepointAttr>(), 16);
        assert_eq!((size_of::<LinkAttr>(), size_of::<IterAttr>()), (16, 8));
        assert_eq!(size_of::<RunAttr>(), 80);
        assert_eq!((std::mem::offset_of!(RunAttr, context), std::mem::offset_of!(RunAttr, cpu)), (48, 68));
    }

    #[test]
    fn names_hold_what_the_kernel_takes() {
        assert_eq!(&name_bytes("pmux_watch")[..11], b"pmux_watch\0");
        assert_eq!(&name_bytes("a b/c-d.e"), b"abcd.e\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(name_bytes(&"x".repeat(40)), *b"xxxxxxxxxxxxxxx\0");
    }
}
