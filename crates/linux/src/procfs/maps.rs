//! What is mapped into a process: `/proc/PID/maps`.
//!
//! What it is: one [`Mapping`] for each line, and the file behind one. Read first: [`Proc::maps`].
//!
//! **Invariant:** it knows no file format: a mapping is a range, rights and a path.
//!
//! Source: `proc_pid_maps(5)`.

use crate::{plain_file, sys};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Proc, ProcError};

/// What the kernel appends to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// A list of so many bytes is of one moment: a longer one is read in several pieces, each of a page less a line.
const AT_ONCE: usize = 3072;

/// A range of a process's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// What may be done there.
    pub rights: MappingPerms,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// What is mapped.
    pub backing: Backing,
}

/// What may be done with a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MappingPerms {
    /// It can be read.
    pub read: bool,
    /// It can be written to.
    pub write: bool,
    /// It holds code.
    pub execute: bool,
}

/// What is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Memory without a file.
    Anonymous,
    /// Something that the kernel names in brackets: `[heap]`, `[stack]`, `[vdso]`, with the brackets.
    Special(String),
    /// A file.
    File(MappedFile),
}

/// A file, as a mapping names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MappedFile {
    /// Its path in the process's own file system, or its last one.
    pub path: PathBuf,
    /// Its number in its file system.
    pub inode: u64,
    /// The file system, as `MAJOR:MINOR`. Some file systems state another one in `stat(2)`.
    pub device: (u32, u32),
    /// Whether it still has this path.
    pub presence: Presence,
}

/// Whether a mapped file is still to be found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Presence {
    /// Under its path, as far as the kernel knows.
    Named,
    /// It was deleted, or another file took its place.
    Deleted,
}

impl Mapping {
    /// Reads a line; `None` where it is none.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        // Five fields with single spaces, then blanks up to the path, which may hold anything but a line end.
        let mut rest = line;
        let mut field = || {
            let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
            let (field, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            std::str::from_utf8(field).ok().filter(|field| !field.is_empty())
        };
        let (start, end) = field()?.split_once('-')?;
        let rights = field()?.as_bytes();
        let offset = field()?;
        let (major, minor) = field()?.split_once(':')?;
        let inode: u64 = field()?.parse().ok()?;
        let path = &rest[rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len())..];
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let part = |text: &str| u32::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        if start >= end || rights.len() < 3 {
            return None;
        }
        Some(Self {
            start,
            end,
            rights: MappingPerms { read: rights[0] == b'r', write: rights[1] == b'w', execute: rights[2] == b'x' },
            offset: hex(offset)?,
            backing: Backing::named(path, inode, (part(major)?, part(minor)?)),
        })
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The file, where it has one.
    #[must_use]
    pub fn file(&self) -> Option<&MappedFile> {
        match &self.backing {
            Backing::File(file) => Some(file),
            Backing::Anonymous | Backing::Special(_) => None,
        }
    }
}

impl Backing {
    /// What a path in the kernel's words means: that of a line of `maps`, or of a record about a mapping.
    #[must_use]
    pub fn named(path: &[u8], inode: u64, device: (u32, u32)) -> Self {
        match path {
            [] | b"//anon" => Self::Anonymous,
            // What stands in brackets; and shared memory without a name and the like has an inode, and no file to open.
            _ if path[0] != b'/' || path.starts_with(b"//") => {
                Self::Special(String::from_utf8_lossy(path).into_owned())
            }
            _ => {
                let (path, presence) = match path.strip_suffix(DELETED) {
                    Some(path) => (path, Presence::Deleted),
                    None => (path, Presence::Named),
                };
                Self::File(MappedFile { path: unescape(path), inode, device, presence })
            }
        }
    }
}

/// The kernel writes a line end in a name as `\012`, and nothing else.
fn unescape(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        match rest.strip_prefix(br"\012") {
            Some(tail) => {
                bytes.push(b'\n');
                rest = tail;
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

impl Proc {
    /// Below this address no process without a special right maps anything (`vm.mmap_min_addr`); 0 where that can't be read.
    #[must_use]
    pub fn lowest_mapping(&self) -> u64 {
        let text = std::fs::read_to_string(self.root().join("sys/vm/mmap_min_addr")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Lists what is mapped into a process, by address. Lines that are not understood are left out.
    ///
    /// # Errors
    /// [`ProcError::Gone`] if it has ended, also if it has not been waited for; [`ProcError::Denied`] where it is not
    /// ours to see.
    pub fn maps(&self, pid: i32) -> Result<Vec<Mapping>, ProcError> {
        let path = self.task_path(pid, "maps");
        // With room from the beginning, or the first pieces would be a line each.
        let mut bytes = Vec::with_capacity(1 << 16);
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| self.task_error(pid, path, &error))?;
        let maps: Vec<_> = bytes.split(|&byte| byte == b'\n').filter_map(Mapping::parse).collect();
        // The memory of a process goes before the process: then nothing is mapped, or what one read gave before that is all.
        // Threads of the kernel never had any.
        let doubtful = maps.is_empty() || bytes.len() > AT_ONCE;
        if doubtful && self.stat(pid).map_or(true, |stat| stat.is_ending()) {
            return Err(ProcError::Gone { id: pid });
        }
        Ok(maps)
    }

    /// The program that a process runs, as its mappings name it; `None` where that can't be told.
    #[must_use]
    pub fn program(&self, pid: i32) -> Option<PathBuf> {
        let path = std::fs::read_link(self.task_path(pid, "exe")).ok()?.into_os_string().into_vec();
        Some(OsString::from_vec(path.strip_suffix(DELETED).map(<[u8]>::to_vec).unwrap_or(path)).into())
    }

    /// The program of a process that has just executed it, where its file would have given the process rights that it has not:
    /// it is set-user-id or set-group-id, or has capabilities. `execve(2)` leaves them out where a task is traced, by a tracer without
    /// `CAP_SYS_PTRACE`.
    #[must_use]
    pub fn program_without_its_rights(&self, pid: i32) -> Option<PathBuf> {
        const SET_USER_ID: u32 = 0o4000;
        const SET_GROUP_ID: u32 = 0o2010;
        let path = self.task_path(pid, "exe");
        let (file, status) = (std::fs::metadata(&path).ok()?, self.status(pid).ok()?);
        let lacks_user = file.mode() & SET_USER_ID != 0 && file.uid() != status.users.effective;
        let lacks_group = file.mode() & SET_GROUP_ID == SET_GROUP_ID && file.gid() != status.groups.effective;
        let has_capabilities = || {
            let path = std::ffi::CString::new(path.into_os_string().into_vec());
            path.is_ok_and(|path| sys::has_attribute(&path, c"security.capability"))
        };
        let lacks = lacks_user || lacks_group || (status.permitted_capabilities == 0 && has_capabilities());
        lacks.then(|| self.program(pid)).flatten()
    }

    /// Opens the file of a mapping: the very file, as far as it can be had, in the process's own file system.
    ///
    /// # Errors
    /// [`ProcError::Denied`], [`ProcError::Io`]; both name the path.
    pub fn open_mapped(&self, pid: i32, mapping: &Mapping) -> Result<File, ProcError> {
        let Some(file) = mapping.file() else {
            return Err(ProcError::Malformed { path: self.task_path(pid, "maps"), expected: "file" });
        };
        let below = |folder: &str| self.task_path(pid, folder);
        let inside = below("root").join(file.path.strip_prefix("/").unwrap_or(&file.path));
        let by_range = below("map_files").join(format!("{:x}-{:x}", mapping.start, mapping.end));
        // A file of another number took the place of the one that is mapped.
        let same = |opened: &File| opened.metadata().is_ok_and(|meta| meta.ino() == file.inode);
        let candidates: [&Path; 4] = [&inside, &file.path, &by_range, &below("exe")];
        if let Some(found) = candidates.into_iter().filter_map(|path| plain_file::open(path).ok()).find(same) {
            return Ok(found);
        }
        // Layered file systems state other numbers in the mapping than in the file.
        if file.presence == Presence::Named
            && let Ok(found) = plain_file::open(&inside)
        {
            return Ok(found);
        }
        plain_file::open(&file.path)
            .and_then(|_| Err(std::io::Error::from_raw_os_error(libc::ESTALE)))
            .map_err(|error| super::plain_error(file.path.clone(), &error))
    }

    /// Reads memory of a process through `/proc/PID/mem`: at most `bytes`, fewer where less is mapped.
    ///
    /// # Errors
    /// [`ProcError::Gone`]; [`ProcError::Denied`]; [`ProcError::Io`] where nothing can be read there.
    pub fn memory(&self, pid: i32, address: u64, bytes: usize) -> Result<Vec<u8>, ProcError> {
        use std::os::unix::fs::FileExt;
        let path = self.task_path(pid, "mem");
        let mut buffer = vec![0; bytes];
        let read = File::open(&path).and_then(|file| file.read_at(&mut buffer, address));
        let read = read.map_err(|error| self.task_error(pid, path, &error))?;
        buffer.truncate(read);
        Ok(buffer)
    }

    /// The memory of a process, to be written: it stays that of the program that runs now.
    ///
    /// # Errors
    /// As [`Proc::memory`].
    pub fn open_memory(&self, pid: i32) -> Result<File, ProcError> {
        let path = self.task_path(pid, "mem");
        File::options().write(true).open(&path).map_err(|error| self.task_error(pid, path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn lines_are_taken_apart() {
        let line = b"7f00-8000 r-xp 00001000 fd:0a 42                         /usr/lib/a b.so (deleted)";
        let found = Mapping::parse(line).unwrap();
        assert_eq!((found.start, found.end, found.offset), (0x7f00, 0x8000, 0x1000));
        assert_eq!(found.rights, MappingPerms { read: true, write: false, execute: true });
        let file = found.file().unwrap();
        assert_eq!((file.path.to_str().unwrap(), file.inode), ("/usr/lib/a b.so", 42));
        assert_eq!((file.device, file.presence), ((0xfd, 0x0a), Presence::Deleted));
        assert!(found.holds(0x7f00) && !found.holds(0x8000));
        let vdso = Mapping::parse(b"7ffe000-7fff000 r-xp 00000000 00:00 0   [vdso]").unwrap();
        assert_eq!(vdso.backing, Backing::Special("[vdso]".into()));
        let heap = Mapping::parse(b"1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!(heap.backing, Backing::Anonymous);
        assert_eq!(heap.rights, MappingPerms { read: true, write: true, execute: false });
        let guard = Mapping::parse(b"1000-2000 ---p 00000000 00:00 0 ").unwrap();
        assert_eq!(guard.rights, MappingPerms::default());
        let odd = Mapping::parse(br"1000-2000 r--p 00000000 00:01 9    /a\012b\134").unwrap();
        assert_eq!(odd.file().unwrap().path.to_str().unwrap(), "/a\nb\\134");
        for broken in [
            &b""[..],
            b"x",
            b"zz-10 r--p 0 0:0 0",
            b"2000-1000 r--p 0 0:0 0",
            b"1-2 r",
            b"1-2 rw-p 0 00 0",
            b"1-2 rw-p 0 00:00 x",
        ] {
            assert_eq!(Mapping::parse(broken), None, "{}", String::from_utf8_lossy(broken));
        }
    }

    #[test]
    fn this_process_is_mapped() {
        let proc = Proc::system();
        let me = std::process::id().cast_signed();
        let maps = proc.maps(me).unwrap();
        let code = this_process_is_mapped as fn() as usize as u64;
        let mine = maps.iter().find(|mapping| mapping.holds(code)).unwrap();
        assert!(mine.rights.execute && !mine.rights.write);
        let program = proc.program(me).unwrap();
        assert_eq!(mine.file().unwrap().path, program);
        let opened = proc.open_mapped(me, mine).unwrap();
        assert_eq!(opened.metadata().unwrap().ino(), std::fs::metadata(&program).unwrap().ino());
        let text = *b"what stands here";
        let address = text.as_ptr() as usize as u64;
        assert_eq!(proc.memory(me, address, text.len()).unwrap(), text);
        assert!(proc.memory(me, 0, 8).is_err());
        assert_eq!(proc.maps(i32::MAX), Err(ProcError::Gone { id: i32::MAX }));
    }

    /// Looked at from its beginning to its end, a program always has mappings, or is gone.
    #[test]
    fn a_process_that_is_about_to_end_has_no_empty_list() {
        let proc = Proc::system();
        let me = proc.maps(std::process::id().cast_signed()).unwrap();
        assert!(!me.is_empty());
        for _ in 0..100 {
            let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
            let pid = child.id().cast_signed();
            let seen = loop {
                match proc.maps(pid) {
                    // This process's own list stands there until the other program is executed.
                    Ok(maps) => assert!(!maps.is_empty(), "{:?}", proc.stat(pid)),
                    Err(error) => break error,
                }
            };
            assert_eq!(seen, ProcError::Gone { id: pid });
            child.wait().unwrap();
        }
        // Threads of the kernel have none, and are there.
        if let Ok(stat) = proc.stat(2)
            && stat.comm == "kthreadd"
        {
            assert_eq!(proc.maps(2), Ok(Vec::new()));
        }
    }

    #[test]
    fn a_deleted_program_is_still_opened_and_a_changed_one_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        // A program of many names has to know which one it is.
        let path = folder.path().join("cat");
        std::fs::copy("/bin/cat", &path).unwrap();
        let mut child = loop {
            let started = std::process::Command::new(&path)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn();
            match started {
                // Another test's fork may still hold it open for writing.
                Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => std::thread::yield_now(),
                started => break started.unwrap(),
            }
        };
        // When it has been started it need not be mapped yet; when it answers it is.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "not a program").unwrap();
        let proc = Proc::system();
        let pid = child.id().cast_signed();
        let maps = proc.maps(pid).unwrap();
        let mapping = maps.iter().find(|mapping| mapping.file().is_some_and(|file| file.path == path)).unwrap();
        assert_eq!(mapping.file().unwrap().presence, Presence::Deleted);
        assert_eq!(proc.open_mapped(pid, mapping).unwrap().metadata().unwrap().ino(), inode);
        assert_eq!(proc.program(pid).unwrap(), path);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(proc.open_mapped(pid, mapping).is_err());
    }
}
