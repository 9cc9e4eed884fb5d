//! The functions and variables of a file, by name and by address.
//!
//! What it is: a sorted list of small entries over one block of names. Read first: [`SymbolTable::at`].
//!
//! **Invariant:** symbols that are somewhere else (undefined ones) or nowhere (sections, marks of the assembler) are not
//! in it.

use super::super::names::PLT;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};
use std::ffi::CStr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// A function.
    Code,
    /// A function that chooses, when the program starts, which of several it will be.
    Chooser,
    /// A variable.
    Data,
    /// A variable that each thread has for itself; its address is an offset.
    PerThread,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Symbol {
    /// Its address, as the file counts.
    pub(crate) address: u64,
    /// Its length in bytes; 0 where it is not stated.
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    /// Whether other files can use it.
    pub(crate) reach: Reach,
    name: u32,
    /// The source file it is from, as the linker was told: an index that is 1 too high; 0 for none.
    source: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reach {
    /// All source files.
    Global,
    /// Its own source file only.
    Local,
}

#[derive(Default, Debug)]
pub(crate) struct SymbolTable {
    /// By address.
    symbols: Vec<Symbol>,
    names: Vec<u8>,
    /// Names of source files, as places in `names`.
    sources: Vec<u32>,
}

impl SymbolTable {
    pub(super) fn add<E: FileHeader<Endian = Endianness>>(
        &mut self,
        entries: &[E::Sym],
        names: &[u8],
        endian: Endianness,
        is_code: impl Fn(u64) -> bool,
    ) {
        let Ok(base) = u32::try_from(self.names.len()) else { return };
        if u32::try_from(self.names.len() + names.len() + 1).is_err() {
            return;
        }
        self.names.extend_from_slice(names);
        // So that the last name ends, whatever the file says.
        self.names.push(0);
        let mut source = 0;
        for entry in entries {
            let Some(name) = entry.st_name(endian).checked_add(base).filter(|&at| (at as usize) < self.names.len())
            else {
                continue;
            };
            let kind = entry.st_type();
            if kind == elf::STT_FILE {
                self.sources.push(name);
                source = u32::try_from(self.sources.len()).unwrap_or(0);
                continue;
            }
            let text = name_at(&self.names, name);
            let address: u64 = entry.st_value(endian).into();
            if entry.is_undefined(endian) || entry.is_absolute(endian) || entry.is_common(endian) || text.is_empty() {
                continue;
            }
            let kind = match kind {
                elf::STT_FUNC => Kind::Code,
                elf::STT_GNU_IFUNC => Kind::Chooser,
                elf::STT_OBJECT => Kind::Data,
                elf::STT_TLS => Kind::PerThread,
                // Marks of the assembler on arm: where code and where data begin.
                elf::STT_NOTYPE if text[0] == b'$' => continue,
                elf::STT_NOTYPE if is_code(address) => Kind::Code,
                elf::STT_NOTYPE => Kind::Data,
                _ => continue,
            };
            let reach = if entry.is_local() { Reach::Local } else { Reach::Global };
            // The linker puts those of no file in particular behind all others.
            let source = if reach == Reach::Local { source } else { 0 };
            self.symbols.push(Symbol { address, size: entry.st_size(endian).into(), kind, reach, name, source });
        }
    }

    /// Adds an entry of a procedure linkage table, by the name of the function that it jumps to.
    pub(super) fn add_jump(&mut self, function: &[u8], address: u64, size: u64) {
        let Ok(name) = u32::try_from(self.names.len()) else { return };
        self.names.extend_from_slice(function);
        self.names.extend_from_slice(PLT.as_bytes());
        self.names.push(0);
        self.symbols.push(Symbol { address, size, kind: Kind::Code, reach: Reach::Local, name, source: 0 });
    }

    /// Sorts what was added.
    pub(super) fn settle(&mut self) {
        let names = &self.names;
        let beauty = |symbol: &Symbol| {
            let name = name_at(names, symbol.name);
            let ugly = name.iter().take_while(|&&byte| byte == b'_').count();
            (symbol.size > 0, symbol.reach == Reach::Global, std::cmp::Reverse((ugly, name.len())))
        };
        // Of several names for one address the best comes last: it is met first on the way down.
        self.symbols.sort_by(|a, b| a.address.cmp(&b.address).then_with(|| beauty(a).cmp(&beauty(b))));
        self.symbols.shrink_to_fit();
    }

    /// All symbols, by address.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Symbol> {
        self.symbols.iter()
    }

    /// A symbol's name as the linker knows it.
    pub(crate) fn name(&self, symbol: &Symbol) -> &[u8] {
        name_at(&self.names, symbol.name)
    }

    /// The name of the source file of a symbol that only that file can use.
    pub(crate) fn source(&self, symbol: &Symbol) -> Option<String> {
        let at = *self.sources.get(usize::try_from(symbol.source.checked_sub(1)?).ok()?)?;
        Some(String::from_utf8_lossy(name_at(&self.names, at)).into_owned())
    }

    /// The symbol that an address belongs to, as the file counts addresses.
    ///
    /// A symbol without a size reaches up to the next one.
    pub(crate) fn at(&self, address: u64) -> Option<&Symbol> {
        /// One symbol in another is rare, and never deep.
        const STEPS: usize = 32;
        let end = self.symbols.partition_point(|symbol| symbol.address <= address);
        let before = || self.symbols[..end].iter().rev().filter(|symbol| symbol.kind != Kind::PerThread).take(STEPS);
        let sized = before().find(|symbol| address - symbol.address < symbol.size);
        // Nothing with a size may lie between.
        sized.or_else(|| before().next().filter(|symbol| symbol.size == 0))
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    CStr::from_bytes_until_nul(rest).map_or(rest, CStr::to_bytes)
}
