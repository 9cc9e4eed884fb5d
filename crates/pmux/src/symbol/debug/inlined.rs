//! Functions that have no code of their own, because they were inlined wherever they are called.
//!
//! **Invariant:** it is looked for one only when a name was not found; what is looked at has an end.

use super::Reader;
use super::lines::LineTable;
use gimli::{AttributeValue, DebuggingInformationEntry, Reader as _, Unit, constants};

/// So many entries are looked at: about a second's work.
const LOOKED_AT: usize = 5_000_000;

impl LineTable<'_> {
    /// Where functions of this name are declared that were inlined: the file, as the compiler was given it, and the line of the name.
    pub(in super::super) fn inlined(&self, name: &str) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        let mut left = LOOKED_AT;
        let mut units = self.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Ok(unit) = self.dwarf.unit(header) else { continue };
            let Some(program) = &unit.line_program else { continue };
            let mut paths = None;
            let mut entries = unit.entries();
            while let Ok(Some(entry)) = entries.next_dfs() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return found;
                }
                let value = |which| attribute(&unit, entry, which);
                let has_name =
                    || value(constants::DW_AT_name).and_then(|value| self.text(&unit, value)).as_deref() == Some(name);
                if entry.tag() != constants::DW_TAG_subprogram || !is_inlined(entry) || !has_name() {
                    continue;
                }
                let line = value(constants::DW_AT_decl_line).and_then(|value| value.udata_value());
                let file = value(constants::DW_AT_decl_file).and_then(|value| match value {
                    AttributeValue::FileIndex(index) => Some(index),
                    value => value.udata_value(),
                });
                let paths = paths.get_or_insert_with(|| self.paths(&unit, program.header()));
                let path = paths.iter().find(|(index, _)| Some(*index) == file);
                if let (Some((_, path)), Some(line)) = (path, line.and_then(|line| u32::try_from(line).ok())) {
                    let declared = (path.clone(), line);
                    if !found.contains(&declared) {
                        found.push(declared);
                    }
                }
            }
        }
        found
    }

    fn text(&self, unit: &Unit<Reader>, value: AttributeValue<Reader>) -> Option<String> {
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(text.to_slice().ok()?.iter().map(|&byte| char::from(byte)).collect())
    }
}

/// An attribute of an entry, or of the declaration that it completes.
fn attribute(
    unit: &Unit<Reader>,
    entry: &DebuggingInformationEntry<Reader>,
    which: constants::DwAt,
) -> Option<AttributeValue<Reader>> {
    entry.attr_value(which).or_else(|| match entry.attr_value(constants::DW_AT_specification)? {
        AttributeValue::UnitRef(declaration) => unit.entry(declaration).ok()?.attr_value(which),
        _ => None,
    })
}

fn is_inlined(entry: &DebuggingInformationEntry<Reader>) -> bool {
    let inlining = entry.attr_value(constants::DW_AT_inline);
    matches!(inlining, Some(AttributeValue::Inline(constants::DW_INL_inlined | constants::DW_INL_declared_inlined)))
}
