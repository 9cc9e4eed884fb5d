//! A program or library that is in use: its file, and its debugging information once a caller has asked for it.
//!
//! **Invariant:** addresses in here are as the file counts; where it is in memory is known elsewhere.

use super::debug::{Debug, LineHit, files};
use super::elf::{Elf, Sections, Symbol, SymbolCoverage};
use super::names;
use super::place::ResolvedFrame;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct LoadedModule {
    pub(super) path: Arc<str>,
    pub(super) elf: Elf,
    /// Until a caller asks: the file itself, or the one with its debugging information.
    source: Option<(File, PathBuf)>,
    debug: Option<Debug>,
    folder: PathBuf,
}

impl LoadedModule {
    /// Reads a file. `shown` is what the process calls it, `path` where it really is, for what is searched beside it.
    ///
    /// # Errors
    /// What is wrong with it, as half a sentence.
    pub(super) fn read(file: File, shown: &Path, folder: &Path) -> Result<Self, String> {
        Self::read_or_fetch(file, shown, folder, |_| None)
    }

    /// As [`LoadedModule::read`]; a file that was stripped, and whose debugging information is not here, is looked for by `fetch`.
    pub(super) fn read_or_fetch(
        file: File,
        shown: &Path,
        folder: &Path,
        fetch: impl FnOnce(&Elf) -> Option<PathBuf>,
    ) -> Result<Self, String> {
        let again = file.try_clone().map_err(|error| error.to_string())?;
        let mut elf = Elf::read(again)?;
        let mut source = (file, shown.to_owned());
        let mut separate = files::find(&elf, shown, folder);
        if separate.is_none() && elf.table != SymbolCoverage::Full {
            separate = fetch(&elf).and_then(|path| files::open(&elf, path));
        }
        if let Some(separate) = separate {
            // What was stripped from the one is in the other.
            if elf.table != SymbolCoverage::Full && separate.elf.table == SymbolCoverage::Full {
                elf.symbols = separate.elf.symbols;
                elf.table = SymbolCoverage::Full;
            }
            source = (separate.file, separate.path);
        }
        let path = shown.to_string_lossy().into();
        Ok(Self { path, elf, source: Some(source), debug: None, folder: folder.to_owned() })
    }

    /// The last part of its path.
    pub(super) fn name(&self) -> &str {
        super::place::file_name(&self.path)
    }

    /// Its debugging information, where it has any.
    fn debug(&mut self) -> Option<&mut Debug> {
        if let Some((file, path)) = self.source.take() {
            let sections = Sections::of(file);
            let shared = sections.shared_part().and_then(|(name, id)| files::shared(&path, &name, &id, &self.folder));
            self.debug = Debug::read(&sections, shared.map(Sections::of).as_ref());
        }
        self.debug.as_mut()
    }

    /// The functions that an address belongs to, innermost first; empty where none is known.
    pub(super) fn frames(&mut self, address: u64) -> Vec<ResolvedFrame> {
        let frames = self.debug().map(|debug| debug.frames(address)).unwrap_or_default();
        self.with_symbol(address, frames)
    }

    /// As [`LoadedModule::frames`] for each of many addresses, on as many CPUs as there are.
    pub(super) fn frames_of_each(&mut self, addresses: &[u64]) -> Vec<Vec<ResolvedFrame>> {
        let Some(debug) = self.debug() else { return addresses.iter().map(|&at| self.frames(at)).collect() };
        let found = debug.frames_of_each(addresses);
        addresses.iter().zip(found).map(|(&at, frames)| self.with_symbol(at, frames)).collect()
    }

    /// What debugging information tells, with what the symbol table has of the outermost function.
    fn with_symbol(&self, address: u64, mut frames: Vec<ResolvedFrame>) -> Vec<ResolvedFrame> {
        let symbol = self.elf.symbols.at(address);
        let name = symbol.map(|symbol| names::brief(self.elf.symbols.name(symbol)));
        let offset = symbol.map(|symbol| address - symbol.address);
        match frames.last_mut() {
            Some(outermost) => {
                if let Some(name) = name
                    && outermost.function.as_deref().is_none_or(|inside| is_better(&name, inside))
                {
                    outermost.function = Some(name.into());
                }
                outermost.offset = offset;
            }
            None => {
                let named =
                    |name: String| ResolvedFrame { function: Some(name.into()), offset, file: None, line: None };
                frames.extend(name.map(named));
            }
        }
        frames
    }

    /// Where the code of a line begins; `None` where there are no lines at all.
    pub(super) fn lines_at(&mut self, file: &str, line: u32) -> Option<LineHit> {
        self.debug()?;
        // Asked for again: the call above only made sure that it is there.
        let lines = self.debug.as_ref()?.lines();
        Some(lines.find(file, line, |address| self.elf.is_code(address)))
    }

    /// What to write for the first lines with code of functions that were inlined wherever they are called: `FILE:LINE`.
    pub(super) fn inlined(&mut self, name: &str) -> Vec<String> {
        let last = name.rsplit("::").next().unwrap_or(name);
        let declared = self.debug().map(|debug| debug.lines().inlined(last)).unwrap_or_default();
        let mut targets = Vec::new();
        for (path, line) in declared {
            if let Some(LineHit::Code { line, .. }) = self.lines_at(&path, line) {
                let short = super::place::file_name(&path).to_owned();
                let is_clear = matches!(self.lines_at(&short, line), Some(LineHit::Code { .. }));
                targets.push(format!("{}:{line}", if is_clear { short } else { path }));
            }
        }
        targets
    }

    pub(super) fn readable(&self, symbol: &Symbol) -> String {
        names::short(self.elf.symbols.name(symbol))
    }

    /// Whether a name that was typed means this file: its path, its name, or its name without the version behind `.so`.
    pub(super) fn is_called(&self, typed: &str) -> bool {
        is_called(&self.path, typed)
    }
}

/// Whether the symbol table's name of a function says more than that of the debugging information.
///
/// The latter may lack the path, and libraries call their functions inside by names that are not known outside.
fn is_better(outside: &str, inside: &str) -> bool {
    let hidden = |name: &str| name.starts_with('_');
    hidden(inside) && !hidden(outside) || outside.strip_suffix(inside).is_some_and(|path| path.ends_with("::"))
}

/// As [`LoadedModule::is_called`], for a path.
pub(super) fn is_called(path: &str, typed: &str) -> bool {
    if typed.contains('/') {
        let is_end = !typed.starts_with('/') && path.strip_suffix(typed).is_some_and(|before| before.ends_with('/'));
        return path == typed || is_end || Path::new(typed).canonicalize().is_ok_and(|real| real.as_os_str() == path);
    }
    let name = super::place::file_name(path);
    if name == typed {
        return true;
    }
    // `libfoo.so.1` for `libfoo.so`, and for `libfoo`.
    let version = |rest: &str| {
        rest.is_empty()
            || rest.starts_with('.') && rest[1..].split('.').all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let Some((stem, rest)) = name.split_once(".so") else { return false };
    version(rest) && (typed == stem || typed.strip_suffix(".so") == Some(stem))
}

#[cfg(test)]
mod tests {
    use super::is_called;

    #[test]
    fn names_of_files() {
        for (path, typed, is) in [
            ("/usr/lib/libfoo.so.1.2", "libfoo.so", true),
            ("/usr/lib/libfoo.so.1.2", "libfoo.so.1.2", true),
            ("/usr/lib/libfoo.so.1.2", "libfoo", true),
            ("/usr/lib/libfoo.so.1.2", "foo", false),
            ("/usr/lib/libfoo.so.1.2", "libfoo.so.1", false),
            ("/usr/lib/libfoo.sonic", "libfoo", false),
            ("/usr/lib/libfoo.so.1.2", "lib/libfoo.so.1.2", true),
            ("/usr/lib/libfoo.so.1.2", "b/libfoo.so.1.2", false),
            ("/usr/lib/libfoo.so.1.2", "/usr/lib/libfoo.so.1.2", true),
            ("/usr/lib/libfoo.so.1.2", "/lib/libfoo.so.1.2", false),
            ("/home/x/writer", "writer", true),
            ("/home/x/writer", "write", false),
        ] {
            // A machine may have a link of that name; none has this file.
            assert_eq!(is_called(path, typed), is, "{typed} for {path}");
        }
    }
}
