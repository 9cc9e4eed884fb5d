//! Looking for a function or variable by its name.
//!
//! **Invariant:** of several that fit equally well one is taken only where the linker would take it: the one that all
//! files can use before those that belong to a single source file.

use super::super::elf::{Kind, Reach, Symbol, SymbolCoverage};
use super::super::names::{Fit, NameMatcher, Rough};
use super::super::{AddressSpec, ProcessImage, Symbolizer};
use super::error::{beyond, code_length};
use super::{Candidate, FindError, Finding, FoundAddress, FoundKind, Mapped, Others, Stripped};
use crate::event::Access;
use crate::event::nearest::nearest_by;
use crate::text::printable;
use std::sync::Arc;

/// How many names of a file are looked at for one that was misspelled: about a second's work, and more than most files have.
const LOOKED_AT: usize = 5_000_000;
/// How many of a file are taken apart and compared, of those that look like it.
const COMPARED: usize = 10_000;
/// How much of a large variable is watched from its middle on, where no length is given.
const WORD_BYTES: u64 = 8;

/// So many lines of inlined functions are named.
const MOST_LINES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct SymbolMatch {
    fit: Fit,
    mapped: Mapped,
    symbol: Symbol,
}

/// Whose name a symbol is called by.
#[derive(Clone, Copy)]
enum Spelling {
    Source,
    Linker,
}

/// A way to write one down, where it can be written so.
type NamedBy<'w> = dyn Fn(&SymbolMatch) -> Option<String> + 'w;

/// Whether a name is read as it was meant when it is typed.
fn is_plain(name: &str) -> bool {
    name.split("::").all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

pub(super) fn is_code(kind: Kind) -> bool {
    matches!(kind, Kind::Code | Kind::Chooser)
}

impl Symbolizer {
    /// Looks for a symbol in a process, and then in the kernel.
    pub(super) fn symbol(
        &mut self,
        called: Option<&str>,
        name: &str,
        offset: u64,
        wanted: &AddressSpec,
        image: &ProcessImage,
    ) -> Result<Finding, FindError> {
        let mapped = self.mapped(image)?;
        let matcher = NameMatcher::new(name);
        let Some(called) = called else { return self.anywhere(&matcher, name, offset, wanted, image, &mapped) };
        let named: Vec<Mapped> =
            mapped.iter().filter(|one| self.modules[one.module].is_called(called)).copied().collect();
        if named.is_empty() {
            // It may be the source file of a static variable.
            let from_file = |this: &Self, hit: &SymbolMatch| this.source_of(hit).as_deref() == Some(called);
            let hits: Vec<SymbolMatch> =
                self.hits(&matcher, &mapped).into_iter().filter(|hit| from_file(self, hit)).collect();
            return match hits.is_empty() {
                true => Ok(Finding::NotYet(self.unknown_module(called, name, &mapped, image))),
                false => self.choose(hits, name, offset, wanted, &mapped),
            };
        }
        let hits = self.hits(&matcher, &named);
        if hits.is_empty() {
            let error = self.unknown(name, called.to_owned(), (&named, &[]), Others::None);
            return Err(self.or_inlined(error, name, &named));
        }
        self.choose(hits, name, offset, wanted, &mapped)
    }

    /// The program first, then its libraries, then the kernel.
    fn anywhere(
        &mut self,
        matcher: &NameMatcher,
        name: &str,
        offset: u64,
        wanted: &AddressSpec,
        image: &ProcessImage,
        mapped: &[Mapped],
    ) -> Result<Finding, FindError> {
        let (program, libraries): (Vec<Mapped>, Vec<Mapped>) = mapped.iter().partition(|one| one.is_program);
        for part in [&program, &libraries] {
            let hits = self.hits(matcher, part);
            if !hits.is_empty() {
                return self.choose(hits, name, offset, wanted, mapped);
            }
        }
        let place = self.described(mapped, image);
        if !self.is_complete(mapped, image) {
            return Ok(Finding::NotYet(self.unknown(name, place, (&program, &libraries), Others::MayStart)));
        }
        // What it has as a copy of another name only is hardly what was meant; `kernel:` finds it.
        if self.kernel().map_or(true, |kernel| kernel.has(name)) {
            match self.in_kernel(name, None, offset, wanted) {
                Err(
                    FindError::UnknownSymbol { .. } | FindError::NoKernelNames { .. } | FindError::NoKernelData { .. },
                ) => {}
                found => return found,
            }
        }
        let error = self.unknown(name, place, (&program, &libraries), Others::MayStart);
        Err(self.or_inlined(error, name, &program))
    }

    fn hits(&self, matcher: &NameMatcher, among: &[Mapped]) -> Vec<SymbolMatch> {
        let mut hits = Vec::new();
        for &mapped in among {
            let table = &self.modules[mapped.module].elf.symbols;
            hits.extend(table.iter().filter_map(|symbol| {
                Some(SymbolMatch { fit: matcher.fit(table.name(symbol))?, mapped, symbol: *symbol })
            }));
        }
        let best = hits.iter().map(|hit| hit.fit).min();
        hits.retain(|hit| Some(hit.fit) == best);
        hits
    }

    fn source_of(&self, hit: &SymbolMatch) -> Option<String> {
        self.modules[hit.mapped.module].elf.symbols.source(&hit.symbol)
    }

    fn choose(
        &mut self,
        mut hits: Vec<SymbolMatch>,
        name: &str,
        offset: u64,
        wanted: &AddressSpec,
        mapped: &[Mapped],
    ) -> Result<Finding, FindError> {
        let mut notes = Vec::new();
        crate::order::sort_by_key(&mut hits, |hit| (hit.mapped.module, hit.symbol.address, hit.symbol.reach));
        hits.dedup_by_key(|hit| (hit.mapped.module, hit.symbol.address, hit.symbol.kind));
        // The access may say which of a function and a variable is meant.
        if let Some(access) = wanted.access {
            let fits = |hit: &SymbolMatch| is_code(hit.symbol.kind) == (access == Access::EXECUTE);
            if hits.iter().any(fits) {
                hits.retain(fits);
            }
        }
        let global = |hit: &SymbolMatch| hit.symbol.reach == Reach::Global;
        if hits.len() > 1 && hits.iter().filter(|hit| global(hit)).count() == 1 {
            let others = self.candidates(hits.iter().filter(|hit| !global(hit)));
            let others: Vec<String> = others.into_iter().map(|other| other.target).collect();
            notes.push(format!("there are also {}", others.join(", ")));
            hits.retain(global);
        }
        let [hit] = hits[..] else {
            return Err(FindError::Ambiguous { name: name.to_owned(), candidates: self.candidates(hits.iter()) });
        };
        let hit = self.in_use(hit, mapped, &mut notes);
        self.found(&hit, offset, wanted, notes).map(|found| Finding::Found(vec![found]))
    }

    /// The program's own copy of a library's variable, where it has one: then the library uses it as well.
    fn in_use(&self, hit: SymbolMatch, mapped: &[Mapped], notes: &mut Vec<String>) -> SymbolMatch {
        let library = &self.modules[hit.mapped.module];
        if hit.mapped.is_program || hit.symbol.kind != Kind::Data || hit.symbol.reach != Reach::Global {
            return hit;
        }
        let Some(&program) = mapped.iter().find(|one| one.is_program) else { return hit };
        let table = &self.modules[program.module].elf.symbols;
        let raw = library.elf.symbols.name(&hit.symbol);
        let copy = table
            .iter()
            .find(|symbol| symbol.kind == Kind::Data && symbol.reach == Reach::Global && table.name(symbol) == raw);
        let Some(&symbol) = copy else { return hit };
        notes.push(format!(
            "{} keeps the variable of {} at an address of its own, which both use",
            self.modules[program.module].name(),
            library.name()
        ));
        SymbolMatch { mapped: program, symbol, ..hit }
    }

    fn found(
        &self,
        hit: &SymbolMatch,
        offset: u64,
        wanted: &AddressSpec,
        mut notes: Vec<String>,
    ) -> Result<FoundAddress, FindError> {
        let module = &self.modules[hit.mapped.module];
        let symbol = &hit.symbol;
        let name = module.readable(symbol);
        if symbol.kind == Kind::PerThread {
            return Err(FindError::Other(format!(
                "each thread has its own '{}', at an address of its own: give the address of one (0xADDR/LEN), which the \
                 program can print",
                printable(&name)
            )));
        }
        let extent = Extent { name: &name, size: symbol.size, kind: FoundKind::of(is_code(symbol.kind)), offset };
        let (access, len) = extent.measure(wanted, &mut notes)?;
        if symbol.kind == Kind::Chooser {
            notes.push(format!("{name} is chosen from several when the program starts: this is the code that chooses"));
        }
        let address = symbol.address.wrapping_add(hit.mapped.bias).wrapping_add(offset);
        let module = Some(Arc::clone(&module.path));
        Ok(FoundAddress { address, len, access, kind: extent.kind, name: extent.shown(), module, notes })
    }

    /// What to write for each of several.
    fn candidates<'h>(&self, hits: impl Iterator<Item = &'h SymbolMatch>) -> Vec<Candidate> {
        let hits: Vec<&SymbolMatch> = hits.collect();
        let once =
            |text: &str, of: &NamedBy<'_>| hits.iter().filter(|hit| of(hit).as_deref() == Some(text)).count() == 1;
        // As the source has it, if that tells it from the others and can be typed; else as the linker has it.
        let name = |hit: &SymbolMatch, spelling| {
            let module = &self.modules[hit.mapped.module];
            match spelling {
                Spelling::Linker => Some(String::from_utf8_lossy(module.elf.symbols.name(&hit.symbol)).into_owned()),
                Spelling::Source => Some(module.readable(&hit.symbol)).filter(|name| is_plain(name)),
            }
        };
        let by_source = |hit: &SymbolMatch, spelling| {
            let name = name(hit, spelling).filter(|name| !name.contains("::"))?;
            (hit.symbol.reach == Reach::Local).then(|| Some(format!("{}:{name}", self.source_of(hit)?)))?
        };
        let by_module = |hit: &SymbolMatch, spelling| {
            Some(format!("{}:{}", self.modules[hit.mapped.module].name(), name(hit, spelling)?))
        };
        let candidate = |hit: &&SymbolMatch| {
            let module = &self.modules[hit.mapped.module];
            let ways: [&NamedBy<'_>; 6] = [
                &|hit| by_source(hit, Spelling::Source),
                &|hit| name(hit, Spelling::Source),
                &|hit| by_module(hit, Spelling::Source).filter(|text| !text.contains("::")),
                &|hit| by_source(hit, Spelling::Linker),
                &|hit| name(hit, Spelling::Linker),
                &|hit| by_module(hit, Spelling::Linker),
            ];
            let target = ways.iter().find_map(|way| way(hit).filter(|text| once(text, way)));
            let target = target.unwrap_or_else(|| module.target(hit.symbol.address));
            Candidate { name: module.readable(&hit.symbol), source: self.source_of(hit), target }
        };
        hits.iter().map(candidate).collect()
    }

    /// Names that were perhaps meant, best first.
    fn near(&mut self, name: &str, among: &[Mapped]) -> Vec<String> {
        let rough = Rough::new(name);
        let mut candidates = Vec::new();
        for one in among {
            let module = &self.modules[one.module];
            let table = &module.elf.symbols;
            let look = || {
                let near = table.iter().take(LOOKED_AT).filter(|symbol| rough.may_be_near(table.name(symbol)));
                near.take(COMPARED).copied().collect()
            };
            for symbol in self.near.entry((name.to_owned(), one.module)).or_insert_with(look) {
                let readable = module.readable(symbol);
                if let Some((_, last)) = readable.rsplit_once("::") {
                    candidates.push((last.to_owned(), readable.clone()));
                }
                candidates.push((readable.clone(), readable));
            }
        }
        nearest_by(name, candidates)
    }

    /// Says of a function that has no code of its own where that was put. Only where it is final that there is none: it takes a
    /// walk through the debugging information.
    fn or_inlined(&mut self, mut error: FindError, name: &str, among: &[Mapped]) -> FindError {
        if let FindError::UnknownSymbol { inlined, .. } = &mut error {
            for one in among {
                inlined.extend(self.modules[one.module].inlined(name));
            }
            inlined.truncate(MOST_LINES);
        }
        error
    }

    /// What is near is looked for in `libraries` where nothing `among` these is.
    fn unknown(
        &mut self,
        name: &str,
        place: String,
        (among, libraries): (&[Mapped], &[Mapped]),
        others: Others,
    ) -> FindError {
        let modules = || among.iter().map(|one| &self.modules[one.module]);
        let stripped = modules().filter_map(|module| {
            let kept = match module.elf.table {
                SymbolCoverage::Full => return None,
                SymbolCoverage::Functions => "functions and exported ones",
                SymbolCoverage::Stripped => "exported ones",
            };
            Some(Stripped { module: module.name().to_owned(), kept })
        });
        let stripped: Vec<_> = stripped.collect();
        let mut suggestions = self.near(name, among);
        // What stands in another class or namespace than was thought.
        if let Some((_, last)) = name.rsplit_once("::").filter(|_| suggestions.is_empty()) {
            suggestions = self.near(last, among);
        }
        if suggestions.is_empty() {
            suggestions = self.near(name, libraries);
        }
        FindError::UnknownSymbol { name: name.to_owned(), place, stripped, suggestions, inlined: Vec::new(), others }
    }
}

/// A symbol and the part of it that is meant.
pub(super) struct Extent<'n> {
    pub(super) name: &'n str,
    /// In bytes, 0 where it is not stated.
    pub(super) size: u64,
    pub(super) kind: FoundKind,
    pub(super) offset: u64,
}

impl Extent<'_> {
    /// The access, and how many bytes.
    pub(super) fn measure(&self, wanted: &AddressSpec, notes: &mut Vec<String>) -> Result<(Access, u64), FindError> {
        if self.size > 0 && self.offset >= self.size {
            return Err(beyond(self.name, self.size, self.offset));
        }
        let access = wanted.access.unwrap_or(self.kind.usual_access());
        if access == Access::EXECUTE {
            if wanted.len.is_some() {
                return Err(code_length(self.name));
            }
            if self.kind == FoundKind::Data {
                notes.push(format!("{} is data: nothing may ever execute it", self.name));
            }
            return Ok((access, access.default_len()));
        }
        // Without a size the offset may be anything.
        let rest = self.size.saturating_sub(self.offset);
        let len = match wanted.len {
            Some(len) => {
                if self.size > 0 && len > rest {
                    let (name, size, behind) = (self.name, self.size, len - rest);
                    notes.push(format!("{name} has {size} bytes: {behind} behind it are watched too"));
                }
                len
            }
            None if self.size == 0 || self.kind == FoundKind::Code => access.default_len(),
            None if self.offset == 0 => rest,
            None => rest.min(WORD_BYTES),
        };
        Ok((access, len))
    }

    /// The name, with the offset.
    pub(super) fn shown(&self) -> String {
        if self.offset == 0 { self.name.to_owned() } else { format!("{}+{:#x}", self.name, self.offset) }
    }
}
