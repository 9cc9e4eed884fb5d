//! From a line of source code to the addresses where its code begins.
//!
//! What it is: all line tables are looked through, of which only those are unpacked that mention the file. Read first:
//! [`LineTable::find`].
//!
//! **Invariant:** an address is given only where a table says that a statement begins there.

use super::Reader;
use gimli::Reader as _;
use std::collections::{BTreeMap, BTreeSet};

/// A longer path is none.
const LONGEST_PATH: usize = 4096;

/// The line tables of a file.
pub(in super::super) struct LineTable<'d> {
    pub(super) dwarf: &'d gimli::Dwarf<Reader>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) enum LineHit {
    /// Code begins here for this line, which is the one that was asked for or the next one that has code.
    Code {
        line: u32,
        /// The file, as the compiler was given it.
        path: String,
        /// As the file counts addresses, sorted.
        addresses: Vec<u64>,
    },
    /// Several files end like this.
    Several(Vec<String>),
    /// The file is there, and has no code at or behind that line.
    Behind {
        /// The last line that has code.
        last: u32,
    },
    /// No such file. These are the names of those that there are.
    NoFile(Vec<String>),
}

impl LineTable<'_> {
    /// Looks for a line of a file whose path ends with `file`, at places that `is_code` takes for code.
    pub(in super::super) fn find(&self, file: &str, line: u32, is_code: impl Fn(u64) -> bool) -> LineHit {
        let wanted: Vec<&str> = parts(file);
        // For each path, for each line, where it begins.
        let mut found: BTreeMap<String, BTreeMap<u32, BTreeSet<u64>>> = BTreeMap::new();
        let mut others: BTreeSet<String> = BTreeSet::new();
        let mut units = self.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = self.dwarf.unit(header) else { continue };
            let Some(program) = unit.line_program.clone() else { continue };
            let paths = self.paths(&unit, program.header());
            let ours = paths.iter().filter(|(_, path)| parts(path).ends_with(&wanted));
            let ours = crate::order::map(ours.map(|(index, path)| (*index, path)));
            if ours.is_empty() {
                others.extend(paths.iter().filter_map(|(_, path)| parts(path).last().map(|&name| name.to_owned())));
                continue;
            }
            for &path in ours.values() {
                found.entry(path.clone()).or_default();
            }
            collect(program, &ours, &mut found, &is_code);
        }
        if found.is_empty() {
            return LineHit::NoFile(others.into_iter().collect());
        }
        // The same end of a path may be that of files without code: headers.
        let with_code: Vec<_> = found.iter().filter(|(_, lines)| !lines.is_empty()).collect();
        let at_line = with_code.iter().filter_map(|(path, lines)| Some((*path, lines.range(line..).next()?)));
        let at_line: Vec<_> = at_line.collect();
        match at_line[..] {
            [] => {
                let last =
                    with_code.iter().filter_map(|(_, lines)| lines.keys().next_back().copied()).max().unwrap_or(0);
                LineHit::Behind { last }
            }
            [(path, (&line, addresses))] => {
                LineHit::Code { line, path: path.clone(), addresses: addresses.iter().copied().collect() }
            }
            _ => LineHit::Several(at_line.iter().map(|(path, _)| (*path).clone()).collect()),
        }
    }

    /// The files of a table, by their numbers.
    pub(super) fn paths(
        &self,
        unit: &gimli::Unit<Reader>,
        header: &gimli::LineProgramHeader<Reader>,
    ) -> Vec<(u64, String)> {
        let string = |value| -> Option<String> {
            let bytes = self.dwarf.attr_string(unit, value).ok()?;
            let bytes = bytes.to_slice().ok().filter(|bytes| bytes.len() <= LONGEST_PATH)?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let home = unit.comp_dir.as_ref().and_then(|home| home.to_slice().ok());
        let home = home.map(|home| String::from_utf8_lossy(&home).into_owned()).unwrap_or_default();
        let first = if header.version() >= 5 { 0 } else { 1 };
        let entries = (first..).zip(header.file_names());
        let path = |entry: &gimli::FileEntry<Reader>| {
            let name = string(entry.path_name())?;
            let folder = entry.directory(header).and_then(string).unwrap_or_default();
            Some(normal(&[&home, &folder, &name]))
        };
        entries.filter_map(|(index, entry)| Some((index, path(entry)?))).collect()
    }
}

/// Notes where in a table lines of our files begin.
fn collect(
    program: gimli::IncompleteLineProgram<Reader>,
    ours: &BTreeMap<u64, &String>,
    found: &mut BTreeMap<String, BTreeMap<u32, BTreeSet<u64>>>,
    is_code: impl Fn(u64) -> bool,
) {
    let mut rows = program.rows();
    let mut before = None;
    while let Ok(Some((_, row))) = rows.next_row() {
        if row.end_sequence() {
            before = None;
            continue;
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        let here = line.map(|line| (row.file_index(), line));
        // Rows in the middle of a line only say that something about it changes.
        if here != before
            && row.is_stmt()
            && let Some((file, line)) = here
            && let Some(&path) = ours.get(&file)
            // What the linker threw away begins at 0.
            && is_code(row.address())
            && let Some(lines) = found.get_mut(path)
        {
            lines.entry(line).or_default().insert(row.address());
        }
        before = here;
    }
}

/// A path out of parts, the last absolute one of which is its beginning.
fn normal(all: &[&str]) -> String {
    let begin = all.iter().rposition(|part| part.starts_with('/')).unwrap_or(0);
    let mut kept: Vec<&str> = Vec::new();
    for part in all[begin..].iter().flat_map(|part| part.split('/')) {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|&last| last != "..") => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    let root = if all[begin].starts_with('/') { "/" } else { "" };
    format!("{root}{}", kept.join("/"))
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_together() {
        assert_eq!(normal(&["/home/x", "src", "a.c"]), "/home/x/src/a.c");
        assert_eq!(normal(&["/home/x", "/usr/include", "./b.h"]), "/usr/include/b.h");
        assert_eq!(normal(&["/home/x", "../y", "a.c"]), "/home/y/a.c");
        assert_eq!(normal(&["", "../y", "a.c"]), "../y/a.c");
        assert!(parts("/home/x/src/a.c").ends_with(&parts("src/a.c")));
        assert!(parts("/home/x/src/a.c").ends_with(&parts("./a.c")));
        assert!(!parts("/home/x/src/aa.c").ends_with(&parts("a.c")));
    }
}
