//! Looking for the code of a source line.
//!
//! **Invariant:** a line is watched once in each place where it is entered: in a function, and in each copy of it that
//! was inlined somewhere.

use super::super::debug::LineHit;
use super::super::place::file_name;
use super::super::{AddressSpec, ProcessImage, Symbolizer};
use super::error::LISTED;
use super::{FindError, Finding, FoundAddress, FoundKind, Mapped};
use crate::event::Access;
use crate::event::nearest::nearest;
use crate::text::printable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Looking for a line in files in turn: what was found so far that isn't it.
#[derive(Default)]
struct LineSearch {
    /// Source files of what is asked about first: the program, or what was named.
    files: Vec<String>,
    /// The last line with code of a file that has the name.
    behind: Option<u32>,
    /// Whether that has lines. Libraries of the system may have some where the program has none.
    any: bool,
}

impl Symbolizer {
    /// Looks for a line in the program, then in its libraries.
    pub(super) fn line(
        &mut self,
        called: Option<&str>,
        file: &str,
        line: u32,
        wanted: &AddressSpec,
        image: &ProcessImage,
    ) -> Result<Finding, FindError> {
        let mapped = self.mapped(image)?;
        let is_meant = |one: &&Mapped| called.is_none_or(|called| self.modules[one.module].is_called(called));
        let among: Vec<Mapped> = mapped.iter().filter(is_meant).copied().collect();
        if let Some(called) = called
            && among.is_empty()
        {
            return Ok(Finding::NotYet(self.unknown_module(called, "", &mapped, image)));
        }
        let mut search = LineSearch::default();
        for &one in &among {
            let mut other = LineSearch::default();
            let first = called.is_some() || one.is_program;
            let search = if first { &mut search } else { &mut other };
            if let Some(found) = self.line_in(one, file, line, wanted, search)? {
                return Ok(Finding::Found(found));
            }
        }
        let program: Vec<Mapped> = among.iter().filter(|one| one.is_program).copied().collect();
        let looked_at = if called.is_some() || program.is_empty() { &among } else { &program };
        let place = self.described(looked_at, image);
        let error = match search {
            LineSearch { behind: Some(last), .. } => {
                let others = match last {
                    0 => "and neither has any other line".to_owned(),
                    last => format!("and none behind it has: the last is {last}"),
                };
                FindError::Other(format!("line {line} of {} has no code, {others}", printable(file)))
            }
            LineSearch { any: false, .. } => FindError::NoLines { place },
            LineSearch { files, .. } => {
                let suggestions = nearest(file_name(file), files);
                FindError::UnknownFile { file: file.to_owned(), place, suggestions }
            }
        };
        if called.is_none() && !self.is_complete(&mapped, image) { Ok(Finding::NotYet(error)) } else { Err(error) }
    }

    fn line_in(
        &mut self,
        one: Mapped,
        file: &str,
        line: u32,
        wanted: &AddressSpec,
        search: &mut LineSearch,
    ) -> Result<Option<Vec<FoundAddress>>, FindError> {
        let module = &mut self.modules[one.module];
        let Some(hit) = module.lines_at(file, line) else { return Ok(None) };
        search.any = true;
        let (at, path, addresses) = match hit {
            LineHit::Code { line, path, addresses } => (line, path, addresses),
            LineHit::Several(paths) => {
                let mut problem = format!("'{}' is several files; write more of the path:", printable(file));
                paths.iter().take(LISTED).for_each(|path| problem.push_str(&format!("\n  {}", printable(path))));
                return Err(FindError::Other(problem));
            }
            LineHit::Behind { last } => {
                search.behind = search.behind.max(Some(last));
                return Ok(None);
            }
            LineHit::NoFile(files) => {
                search.files.extend(files);
                return Ok(None);
            }
        };
        // The lowest address of each copy of the line.
        let mut copies: BTreeMap<_, u64> = BTreeMap::new();
        for address in addresses {
            let frames = module.frames(address);
            let calls: Vec<_> = frames.iter().skip(1).map(|frame| (frame.function.clone(), frame.line)).collect();
            let function = module.elf.symbols.at(address).map(|symbol| symbol.address);
            let lowest = copies.entry((function, calls)).or_insert(address);
            *lowest = address.min(*lowest);
        }
        let access = wanted.access.unwrap_or(Access::EXECUTE);
        let mut addresses: Vec<u64> = copies.into_values().collect();
        addresses.sort_unstable();
        let name = format!("{}:{at}", file_name(&path));
        let found = addresses.iter().enumerate().map(|(index, address)| {
            let mut notes = Vec::new();
            if index == 0 && at != line {
                notes.push(format!("line {line} has no code: line {at} is the next that has"));
            }
            if index == 0 && addresses.len() > 1 {
                notes.push(format!("{name} is in {} places of {}", addresses.len(), module.name()));
            }
            let (address, len) = (address.wrapping_add(one.bias), access.default_len());
            let (name, module) = (name.clone(), Some(Arc::clone(&module.path)));
            FoundAddress { address, len, access, kind: FoundKind::Code, name, module, notes }
        });
        Ok(Some(found.collect()))
    }
}
