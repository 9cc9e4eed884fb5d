//! What is mapped into a process, seen as programs and libraries.
//!
//! What it is: the mappings of one moment, and the files whose code is among them. Read first: [`ProcessImage::read`].
//!
//! **Invariant:** it opens no file; a process that has ended keeps the image that was last read.

use crate::error::Error;
use pmux_abi::record::{MapSource, Mmap2};
use pmux_linux::procfs::{Backing, MappedFile, Mapping, MappingPerms, Proc};
use std::path::PathBuf;

/// What a record of the kernel says about a mapping, for [`super::Symbolizer::note`]. `None` where it is empty.
#[must_use]
pub fn mapping_of(record: &Mmap2<'_>) -> Option<Mapping> {
    let end = record.addr.checked_add(record.len).filter(|&end| end > record.addr)?;
    let (inode, device) = match record.source {
        MapSource::Inode { major, minor, inode, .. } => (inode, (major, minor)),
        MapSource::BuildId(_) => (0, (0, 0)),
    };
    // As `mmap(2)` was given them: read, write, execute.
    let may = |bit: u32| record.prot & bit != 0;
    let rights = MappingPerms { read: may(1), write: may(2), execute: may(4) };
    let backing = Backing::named(record.filename, inode, device);
    Some(Mapping { start: record.addr, end, rights, offset: record.pgoff, backing })
}

/// What is mapped into a process.
#[derive(Clone, Debug)]
pub struct ProcessImage {
    pid: i32,
    /// By address.
    maps: Vec<Mapping>,
    program: Option<PathBuf>,
}

impl ProcessImage {
    /// Reads what is mapped now.
    ///
    /// # Errors
    /// [`Error::Process`] where there is no such process, or this user may not look at it.
    pub fn read(pid: i32) -> Result<Self, Error> {
        let proc = Proc::system();
        let maps = proc.maps(pid).map_err(Error::Process)?;
        Ok(Self { pid, maps, program: proc.program(pid) })
    }

    /// Of a process that has ended.
    pub(super) fn empty(pid: i32) -> Self {
        Self { pid, maps: Vec::new(), program: None }
    }

    /// Reads again; answers whether a file with code is there that wasn't.
    ///
    /// # Errors
    /// As [`ProcessImage::read`]; the image stays as it was.
    pub fn refresh(&mut self) -> Result<bool, Error> {
        let now = Self::read(self.pid)?;
        let new = now.files().any(|(file, _)| !self.files().any(|(known, _)| known == file));
        *self = now;
        Ok(new)
    }

    /// Takes in a mapping that was made since, in the place of what was there.
    pub(super) fn add(&mut self, new: Mapping) {
        let mut kept = Vec::with_capacity(self.maps.len() + 2);
        for old in self.maps.drain(..) {
            // What the new one covers is gone; what is left of an old one stays.
            if old.start < new.start {
                kept.push(Mapping { end: old.end.min(new.start), ..old.clone() });
            }
            if old.end > new.end {
                let start = old.start.max(new.end);
                let offset = old.offset.wrapping_add(start - old.start);
                kept.push(Mapping { start, offset, ..old });
            }
        }
        kept.push(new);
        crate::order::sort_by_key(&mut kept, |mapping| mapping.start);
        self.maps = kept;
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn mapping(&self, address: u64) -> Option<&Mapping> {
        let after = self.maps.partition_point(|mapping| mapping.start <= address);
        self.maps[..after].last().filter(|mapping| mapping.holds(address))
    }

    /// The range that the kernel gave this name: `[vdso]`.
    pub(super) fn special(&self, name: &str) -> Option<&Mapping> {
        self.maps.iter().find(|mapping| matches!(&mapping.backing, Backing::Special(found) if found == name))
    }

    /// The mapping with code that belongs to the same file as another mapping, the nearest one before it first.
    pub(super) fn code_of(&self, mapping: &Mapping) -> Option<&Mapping> {
        let file = mapping.file()?;
        let mut code = self.maps.iter().filter(|other| other.rights.execute && other.file() == Some(file));
        // A library that is there twice (dlmopen) is one after the other.
        let mut best = code.next()?;
        for other in code {
            if other.start <= mapping.start || other.start - mapping.start < mapping.start.abs_diff(best.start) {
                best = other;
            }
        }
        Some(best)
    }

    /// Every file whose code is mapped, with its first mapping that holds code: the program first, then by address.
    pub(super) fn files(&self) -> impl Iterator<Item = (&MappedFile, &Mapping)> {
        let mut all: Vec<(&MappedFile, &Mapping)> = Vec::new();
        for mapping in self.maps.iter().filter(|mapping| mapping.rights.execute) {
            let new = mapping.file().filter(|file| all.iter().all(|(known, _)| known != file));
            all.extend(new.map(|file| (file, mapping)));
        }
        crate::order::sort_by_key(&mut all, |(file, _)| !self.is_program(file));
        all.into_iter()
    }

    /// Whether a file of this name, or of this name with more of a version behind it, is mapped: some libraries have no
    /// code.
    pub(super) fn has_file(&self, name: &str) -> bool {
        let mut names = self.maps.iter().filter_map(|mapping| mapping.file()?.path.file_name()?.to_str());
        names.any(|found| found.strip_prefix(name).is_some_and(|end| end.is_empty() || end.starts_with('.')))
    }

    pub(super) fn is_program(&self, file: &MappedFile) -> bool {
        self.program.as_ref() == Some(&file.path)
    }

    /// The name of the program, for people.
    #[must_use]
    pub fn program_name(&self) -> String {
        let name = self.program.as_ref().and_then(|path| path.file_name());
        name.map_or_else(|| format!("process {}", self.pid), |name| name.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ProcessImage {
        let lines = [
            "1000-2000 r--p 00000000 00:01 7 /lib/a.so",
            "2000-3000 r-xp 00001000 00:01 7 /lib/a.so",
            "3000-4000 rw-p 00002000 00:01 7 /lib/a.so",
            "8000-9000 r-xp 00000000 00:01 9 /bin/prog",
            "9000-a000 rw-p 00000000 00:00 0 [heap]",
            "f000-11000 r--p 00000000 00:01 7 /lib/a.so",
            "11000-12000 r-xp 00001000 00:01 7 /lib/a.so",
            "20000-21000 r--p 00000000 00:01 3 /usr/share/data",
        ];
        let maps = lines.iter().map(|line| Mapping::parse(line.as_bytes()).unwrap()).collect();
        ProcessImage { pid: 1, maps, program: Some("/bin/prog".into()) }
    }

    #[test]
    fn files_come_with_the_program_first() {
        let image = image();
        let names: Vec<_> = image.files().map(|(file, mapping)| (file.path.to_str().unwrap(), mapping.start)).collect();
        assert_eq!(names, [("/bin/prog", 0x8000), ("/lib/a.so", 0x2000)]);
        assert!(image.has_module("a.so") && !image.has_module("data"));
        assert!(image.has_file("a.so") && image.has_file("data") && !image.has_file("dat"));
        assert_eq!(image.program_name(), "prog");
    }

    #[test]
    fn new_mappings_take_the_place_of_others() {
        let mut image = image();
        image.add(Mapping::parse(b"1800-3800 r-xp 00005000 00:01 11 /lib/new.so").unwrap());
        let ranges: Vec<_> = image.maps.iter().map(|mapping| (mapping.start, mapping.end, mapping.offset)).collect();
        assert_eq!(
            ranges[..4],
            [(0x1000, 0x1800, 0), (0x1800, 0x3800, 0x5000), (0x3800, 0x4000, 0x2800), (0x8000, 0x9000, 0)]
        );
        assert_eq!(image.mapping(0x2000).unwrap().file().unwrap().path.to_str(), Some("/lib/new.so"));
        image.add(Mapping::parse(b"8400-8500 rw-p 00000000 00:00 0 ").unwrap());
        assert_eq!(image.mapping(0x8500).map(|mapping| (mapping.start, mapping.offset)), Some((0x8500, 0x500)));
        image.add(Mapping::parse(b"0-100000 rw-p 00000000 00:00 0 ").unwrap());
        assert_eq!(image.maps.len(), 1);
    }

    #[test]
    fn addresses_are_in_their_mapping_and_its_code() {
        let image = image();
        assert_eq!(image.mapping(0x2fff).unwrap().start, 0x2000);
        assert_eq!(image.mapping(0x4000), None);
        assert_eq!(image.mapping(0), None);
        assert_eq!(image.mapping(0x21000), None);
        let code = |address| image.code_of(image.mapping(address).unwrap()).map(|mapping| mapping.start);
        assert_eq!(code(0x3000), Some(0x2000));
        assert_eq!(code(0x11000), Some(0x11000), "the second copy of a library");
        assert_eq!(code(0x20000), None);
        assert_eq!(code(0x9000), None);
        assert_eq!(image.special("[heap]").unwrap().start, 0x9000);
    }
}
