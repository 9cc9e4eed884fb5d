//! Where code stands in a file, without a process that has it mapped.
//!
//! **Invariant:** the file may be anything; several places for one name are an error, and none of them is taken.

use super::debug::files::FOLDER;
use super::elf::{Kind, Symbol, SymbolCoverage};
use super::module::LoadedModule;
use super::names::{Fit, NameMatcher, Rough};
use crate::event::nearest::nearest_by;
use pmux_linux::plain_file;
use std::path::Path;

/// How many places of one name are told.
const MOST_LISTED: usize = 4;

/// The offset in a file of a place in its code: `FUNCTION`, `FUNCTION+OFFSET`, or `0x…` as the file counts addresses.
///
/// # Errors
/// A sentence, and names that were perhaps meant.
pub(crate) fn code_in_file(path: &Path, place: &str) -> Result<u64, (String, Vec<String>)> {
    let plain = |text: String| (text, Vec::new());
    let shown = path.display();
    let unreadable = |error: String| plain(format!("{shown} can't be read: {error}"));
    let file = plain_file::open(path).map_err(|error| unreadable(error.to_string()))?;
    let module = LoadedModule::read(file, path, Path::new(FOLDER)).map_err(unreadable)?;
    let address = match hexadecimal(place) {
        Some(address) => address,
        None => address_of(&module, place)?,
    };
    let segment = module.elf.segments.iter().find(|segment| segment.execute && segment.holds(address));
    let offset = segment.map(|segment| (address - segment.address, segment)).filter(|(at, it)| *at < it.file_bytes);
    match offset {
        Some((at, segment)) => Ok(segment.offset.saturating_add(at)),
        None => Err(plain(format!("{shown} has no code at {address:#x}"))),
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn address_of(module: &LoadedModule, place: &str) -> Result<u64, (String, Vec<String>)> {
    // What stands behind the last plus is an offset if it is a number; `operator+` is a name.
    let split = place.rsplit_once('+').and_then(|(name, offset)| {
        let offset = hexadecimal(offset).or_else(|| offset.parse().ok())?;
        Some((name, offset))
    });
    let (name, offset) = split.unwrap_or((place, 0));
    let symbols = &module.elf.symbols;
    let matcher = NameMatcher::new(name);
    let mut found: Vec<(Fit, &Symbol)> = symbols
        .iter()
        .filter(|symbol| symbol.kind == Kind::Code)
        .filter_map(|symbol| Some((matcher.fit(symbols.name(symbol))?, symbol)))
        .collect();
    crate::order::sort_by_key(&mut found, |(fit, symbol)| (*fit, symbol.address));
    let best = found.first().map(|(fit, _)| *fit);
    found.retain(|(fit, _)| Some(*fit) == best);
    found.dedup_by_key(|(_, symbol)| symbol.address);
    match &found[..] {
        [] => {
            let rough = Rough::new(name);
            let near = symbols.iter().filter(|symbol| symbol.kind == Kind::Code);
            let near = near.filter(|symbol| rough.may_be_near(symbols.name(symbol)));
            // Without the path, too: who misspells a name rarely types all of it.
            let both = |name: String| {
                let last = name.rsplit("::").next().unwrap_or_default().to_owned();
                [(last, name.clone()), (name.clone(), name)]
            };
            let near = nearest_by(name, near.flat_map(|symbol| both(module.readable(symbol))));
            let chooser = symbols
                .iter()
                .any(|symbol| symbol.kind == Kind::Chooser && matcher.fit(symbols.name(symbol)) == Some(Fit::Exact));
            let why = if chooser {
                format!(
                    "`{name}` of {} is chosen among several functions when a program starts: name one of those",
                    module.path
                )
            } else {
                let stripped = match module.elf.table {
                    SymbolCoverage::Full => "",
                    _ => {
                        ", as far as it tells: it was stripped of names. Its debugging information has them; an address will do"
                    }
                };
                format!("{} has no function `{name}`{stripped}", module.path)
            };
            Err((why, near))
        }
        [(_, symbol)] => match symbol.address.checked_add(offset) {
            Some(address) if offset < symbol.size.max(1) => Ok(address),
            _ => Err((format!("`{name}` has {} bytes: there is no byte {offset} of it", symbol.size), Vec::new())),
        },
        several => {
            let places = several.iter().take(MOST_LISTED);
            let places: Vec<_> =
                places.map(|(_, symbol)| format!("{:#x} {}", symbol.address, module.readable(symbol))).collect();
            let more = if several.len() > MOST_LISTED { ", …" } else { "" };
            let (path, count, places) = (&module.path, several.len(), places.join(", "));
            let why = format!("{path} has {count} functions `{name}`: name one by its address ({places}{more})");
            Err((why, Vec::new()))
        }
    }
}
