//! A program or library, as its file describes it.
//!
//! What it is: segments, symbols, what it is linked with, and where its debugging information is. Read first: [`Elf`].
//!
//! **Invariant:** the file may be anything. No number in it is believed before it has been held against the length of
//! the file, and what is kept is at most a few times as large as the file.
//!
//! Source: `elf(5)`.

mod packed;
mod plt;
mod symbols;

pub(super) use symbols::{Kind, Reach, Symbol, SymbolTable};

use crate::bytes::until_zero;
use object::read::elf::{Dyn, ElfFile, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::read::{Object, ObjectSection, ReadCache, ReadRef};
use object::{Endianness, elf};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// No section is larger: what says so is broken, or nothing that can be held in memory.
const LARGEST_SECTION_BYTES: u64 = 4 << 30;
/// Compressed data can't say that they are larger than this many times their size: what describes code is never packed that well.
const LARGEST_RATIO: u64 = 1 << 8;
/// What few bytes may become whatever the ratio.
const ANY_RATIO_BYTES: u64 = 1 << 20;

/// A program or library.
#[derive(Debug)]
pub(super) struct Elf {
    /// What is loaded into memory.
    pub(super) segments: Vec<Segment>,
    /// The libraries that it is linked with, by their own names.
    pub(super) needed: Vec<String>,
    /// Its own name, for those that are linked with it.
    pub(super) own_name: Option<String>,
    /// What tells this build from all others.
    pub(super) build_id: Vec<u8>,
    /// The file with its debugging information.
    pub(super) debug_link: Option<String>,
    /// Its functions and variables.
    pub(super) symbols: SymbolTable,
    /// Whether the linker's own table of symbols is there.
    pub(super) table: SymbolCoverage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SymbolCoverage {
    /// It has all.
    Full,
    /// It was stripped, but has the names of its functions.
    Functions,
    /// It was stripped: only what it gives to others and takes from them is known.
    Stripped,
}

/// A part of a file that is loaded into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Its address, as the file counts.
    pub(super) address: u64,
    /// Its length in memory, in bytes.
    pub(super) memory_bytes: u64,
    /// Where it is in the file.
    pub(super) offset: u64,
    /// Its length in the file, in bytes.
    pub(super) file_bytes: u64,
    pub(super) execute: bool,
}

impl Segment {
    /// Whether an address lies in it, as the file counts.
    pub(super) fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|behind| behind < self.memory_bytes)
    }
}

impl Elf {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, as half a sentence.
    pub(super) fn read(file: File) -> Result<Self, String> {
        Self::parse(&ReadCache::new(file))
    }

    /// As [`Elf::read`], from memory or wherever it is.
    pub(super) fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<Self, String> {
        let whole = object::File::parse(data).map_err(|error| error.to_string())?;
        match &whole {
            object::File::Elf32(file) => of(file),
            object::File::Elf64(file) => of(file),
            _ => Err("it is no ELF file".to_owned()),
        }
    }

    /// Whether an address, as the file counts, holds code.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| segment.execute && segment.holds(address))
    }

    /// The difference between the addresses of a mapping and those of the file.
    ///
    /// `start` and `offset` are the mapping's. `None` where no segment begins or goes on at that place of the file.
    pub(super) fn bias(&self, start: u64, offset: u64, execute: bool) -> Option<u64> {
        bias(&self.segments, start, offset, execute)
    }
}

/// As [`Elf::bias`], of segments.
pub(super) fn bias(segments: &[Segment], start: u64, offset: u64, execute: bool) -> Option<u64> {
    // A mapping begins at a page; pages of more than one segment are mapped for each of them.
    const PAGE: u64 = 0xffff;
    let fits = |segment: &&Segment| {
        let begin = segment.offset & !PAGE;
        segment.file_bytes > 0 && (begin..segment.offset.saturating_add(segment.file_bytes)).contains(&offset)
    };
    let same = segments.iter().filter(fits).filter(|segment| segment.execute == execute);
    let nearest = |segment: &&Segment| segment.offset.abs_diff(offset);
    let segment = same.min_by_key(nearest).or_else(|| segments.iter().filter(fits).min_by_key(nearest))?;
    Some(start.wrapping_sub(offset).wrapping_sub(segment.address.wrapping_sub(segment.offset)))
}

fn of<'data, E: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    file: &ElfFile<'data, E, R>,
) -> Result<Elf, String> {
    let segments = segments_of(file);
    let (needed, own_name) = linked_with(file).unwrap_or_default();
    let debug_link = file.gnu_debuglink().ok().flatten().map(|(name, _)| until_zero(name));
    let mut symbols = SymbolTable::default();
    let mut table = SymbolCoverage::Full;
    if !add_table(file, elf::SHT_SYMTAB, &segments, &mut symbols)? {
        table = SymbolCoverage::Stripped;
        add_table(file, elf::SHT_DYNSYM, &segments, &mut symbols)?;
        let packed = file.section_by_name(packed::SECTION).and_then(|section| section.data().ok());
        if let Some(unpacked) = packed.and_then(packed::unpacked)
            && let Ok(inside) = ElfFile::<E, &[u8]>::parse(&unpacked[..])
            && add_table(&inside, elf::SHT_SYMTAB, &segments, &mut symbols) == Ok(true)
        {
            table = SymbolCoverage::Functions;
        }
    }
    add_plt(file, &mut symbols);
    symbols.settle();
    let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
    Ok(Elf { segments, needed, own_name, build_id, debug_link, symbols, table })
}

fn segments_of<'data, E: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    file: &ElfFile<'data, E, R>,
) -> Vec<Segment> {
    let endian = file.endian();
    let loaded = file.elf_program_headers().iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
    let segment = |header: &E::ProgramHeader| Segment {
        address: header.p_vaddr(endian).into(),
        memory_bytes: header.p_memsz(endian).into(),
        offset: header.p_offset(endian).into(),
        file_bytes: header.p_filesz(endian).into(),
        execute: header.p_flags(endian).contains(elf::PF_X),
    };
    loaded.map(segment).collect()
}

/// Adds the symbols of a file's table of this type. Returns whether it has one.
fn add_table<'data, E: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    file: &ElfFile<'data, E, R>,
    wanted: elf::SectionType,
    segments: &[Segment],
    symbols: &mut SymbolTable,
) -> Result<bool, String> {
    let endian = file.endian();
    let text = |error: object::Error| error.to_string();
    let sections = file.elf_section_table();
    let Some(header) = sections.iter().find(|header| header.sh_type(endian) == wanted) else { return Ok(false) };
    let strings = sections.section(object::SectionIndex(header.sh_link(endian) as usize)).map_err(text)?;
    if strings.sh_size(endian).into() > LARGEST_SECTION_BYTES || header.sh_size(endian).into() > LARGEST_SECTION_BYTES {
        return Err("its table of symbols is larger than any".to_owned());
    }
    let names = strings.data(endian, file.data()).map_err(text)?;
    let entries: &[E::Sym] = header.data_as_array(endian, file.data()).map_err(text)?;
    symbols.add::<E>(entries, names, endian, |address| {
        segments.iter().any(|segment| segment.execute && segment.holds(address))
    });
    Ok(true)
}

/// Adds the functions of other libraries, as the file calls them. One that is broken has none.
fn add_plt<'data, E: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    file: &ElfFile<'data, E, R>,
    symbols: &mut SymbolTable,
) {
    let (endian, machine) = (file.endian(), file.elf_header().e_machine(file.endian()));
    let code = |name| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    };
    let tables: Vec<_> = [".plt", ".plt.sec", ".plt.got"].into_iter().filter_map(code).collect();
    if tables.is_empty() {
        return;
    }
    let sections = file.elf_section_table();
    let mut slots = Vec::new();
    let Some(dynamic) = sections.iter().find(|header| header.sh_type(endian) == elf::SHT_DYNSYM) else { return };
    for name in [".rela.plt", ".rela.dyn"] {
        let Some((_, header)) = sections.section_by_name(endian, name.as_bytes()) else { continue };
        let Ok(Some((relocations, _))) = header.rela(endian, file.data()) else { continue };
        slots.extend(relocations.iter().filter_map(|one: &E::Rela| {
            let symbol = one.r_sym(endian, false) as usize;
            (symbol > 0).then(|| plt::Slot { address: one.r_offset(endian).into(), symbol })
        }));
    }
    slots.sort_unstable_by_key(|slot| slot.address);
    let Ok(strings) = sections.section(object::SectionIndex(dynamic.sh_link(endian) as usize)) else { return };
    let (Ok(names), Ok(entries)) = (strings.data(endian, file.data()), dynamic.data_as_array(endian, file.data()))
    else {
        return;
    };
    let entries: &[E::Sym] = entries;
    // Each function once or twice: a file in which many entries have one long name is none that a linker wrote.
    let mut left = names.len().saturating_mul(4);
    for (address, code) in tables {
        for plt::PltEntry { address, size, symbol } in plt::entries(machine, address, code, &slots) {
            let from = entries.get(symbol).and_then(|entry| names.get(entry.st_name(endian) as usize..));
            let name = from.and_then(|from| from.split(|&byte| byte == 0).next()).filter(|name| !name.is_empty());
            let Some(name) = name.filter(|name| name.len() <= left) else { continue };
            left -= name.len();
            symbols.add_jump(name, address, size);
        }
    }
}

/// What a file says it is linked with, and its own name.
fn linked_with<'data, E: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    file: &ElfFile<'data, E, R>,
) -> Option<(Vec<String>, Option<String>)> {
    let endian = file.endian();
    let sections = file.elf_section_table();
    let header = sections.iter().find(|header| header.sh_type(endian) == elf::SHT_DYNAMIC)?;
    let strings = sections.section(object::SectionIndex(header.sh_link(endian) as usize)).ok()?;
    let names = strings.data(endian, file.data()).ok()?;
    let entries: &[E::Dyn] = header.data_as_array(endian, file.data()).ok()?;
    let name = |entry: &E::Dyn| names.get(usize::try_from(entry.val(endian)).ok()?..).map(until_zero);
    let with = |tag| entries.iter().filter(move |entry| entry.tag(endian) == tag).filter_map(name);
    Some((with(elf::DT_NEEDED).collect(), with(elf::DT_SONAME).next()))
}

/// The libraries that a file is linked with; none where it is no program or library.
pub(super) fn needed_by(file: File) -> Vec<String> {
    let data = ReadCache::new(file);
    let linked = match object::File::parse(&data) {
        Ok(object::File::Elf32(file)) => linked_with(&file),
        Ok(object::File::Elf64(file)) => linked_with(&file),
        _ => None,
    };
    linked.map(|(needed, _)| needed).unwrap_or_default()
}

/// The beginning of a section of a program or library of this machine, at most so many bytes, and its address as the file counts. Of the rest
/// of the file the list of sections is read.
pub(super) fn table_of(file: &File, name: &str, most_bytes: u64) -> Option<(u64, Vec<u8>)> {
    // No linker makes more sections of a program.
    const MOST_SECTIONS: u32 = 1 << 12;
    let data = ReadCache::new(file);
    let head = elf::FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = head.endian().ok()?;
    let own = match () {
        () if cfg!(target_arch = "x86_64") => elf::EM_X86_64,
        () if cfg!(target_arch = "aarch64") => elf::EM_AARCH64,
        () => return None,
    };
    if head.e_machine(endian) != own || head.shnum(endian, &data).ok()? > MOST_SECTIONS {
        return None;
    }
    let sections = head.sections(endian, &data).ok()?;
    let (_, section) = sections.section_by_name(endian, name.as_bytes())?;
    let (at, bytes) = section.file_range(endian)?;
    let mut table = vec![0; usize::try_from(bytes.min(most_bytes)).ok()?];
    file.read_exact_at(&mut table, at).ok()?;
    Some((section.sh_addr(endian), table))
}

/// Named sections of a file, each of them unpacked and kept on its own.
pub(super) struct Sections {
    /// The opened file, read piece by piece.
    data: ReadCache<File>,
}

/// A section that is loaded into memory, or that debuggers read.
pub(super) struct ElfSection {
    /// Its address, as the file counts.
    pub(super) address: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// What is loaded of a file, and its sections of these names: `None` where there is none, or it is empty or broken.
///
/// # Errors
/// What is wrong with the file, as half a sentence.
pub(super) fn loaded<'data, R: ReadRef<'data>, const N: usize>(
    data: R,
    names: [&str; N],
) -> Result<(Vec<Segment>, [Option<ElfSection>; N]), String> {
    let file = object::File::parse(data).map_err(|error| error.to_string())?;
    let segments = match &file {
        object::File::Elf32(file) => segments_of(file),
        object::File::Elf64(file) => segments_of(file),
        _ => return Err("it is no ELF file".to_owned()),
    };
    let one = |name: &str| {
        let bytes = section(&file, name).filter(|bytes| !bytes.is_empty())?;
        Some(ElfSection { address: file.section_by_name(name)?.address(), bytes })
    };
    Ok((segments, names.map(one)))
}

impl Sections {
    pub(super) fn of(file: File) -> Self {
        Self { data: ReadCache::new(file) }
    }

    /// Calls `f` with a way to get sections by their names; one that is missing or broken is empty.
    pub(super) fn with<T>(&self, f: impl FnOnce(&dyn Fn(&str) -> Arc<[u8]>, Endianness) -> T) -> Option<T> {
        let file = object::File::parse(&self.data).ok()?;
        let is_elf = matches!(file, object::File::Elf32(_) | object::File::Elf64(_));
        is_elf.then(|| f(&|name| section(&file, name).unwrap_or_default(), file.endianness()))
    }

    /// The file with parts that several files share: its path and build id.
    pub(super) fn shared_part(&self) -> Option<(String, Vec<u8>)> {
        let file = object::File::parse(&self.data).ok()?;
        let (path, id) = file.gnu_debugaltlink().ok()??;
        Some((String::from_utf8_lossy(path).into_owned(), id.to_vec()))
    }
}

fn section<'data, R: ReadRef<'data>>(file: &object::File<'data, R>, name: &str) -> Option<Arc<[u8]>> {
    let section = file.section_by_name(name)?;
    let packed = section.compressed_file_range().ok()?;
    let limit =
        packed.compressed_size.saturating_mul(LARGEST_RATIO).saturating_add(ANY_RATIO_BYTES).min(LARGEST_SECTION_BYTES);
    if packed.compressed_size > LARGEST_SECTION_BYTES || packed.uncompressed_size > limit {
        return None;
    }
    Some(Arc::from(section.uncompressed_data().ok()?))
}

#[cfg(test)]
mod tests;
