//! Looking for a symbol of the kernel.
//!
//! **Invariant:** a name whose address is hidden is told from one that isn't there.

use super::super::elf::Kind;
use super::super::kernel::{KernelSymbol, LOWEST};
use super::super::{AddressSpec, Symbolizer, names};
use super::error::beyond;
use super::symbol::{Extent, is_code};
use super::{Candidate, FindError, Finding, FoundAddress, FoundKind, Others};
use crate::event::nearest::nearest;
use crate::text::printable;

/// The kernel doesn't say how large a variable is: no more than a word is taken to be its own.
const WORD_BYTES: u64 = 8;

impl Symbolizer {
    /// Looks for a symbol of the kernel, or of one of its modules.
    pub(super) fn in_kernel(
        &mut self,
        name: &str,
        module: Option<&str>,
        offset: u64,
        wanted: &AddressSpec,
    ) -> Result<Finding, FindError> {
        let kernel = self.kernel().map_err(|reason| FindError::NoKernelNames { reason })?;
        if kernel.names().next().is_none() {
            let reason = "/proc/kallsyms is empty; watch an address".to_owned();
            return Err(FindError::NoKernelNames { reason });
        }
        let mut found = kernel.find(name, module);
        if found.is_empty() {
            let place =
                module.map_or_else(|| "the kernel".to_owned(), |module| format!("the kernel's module {module}"));
            let suggestions = nearest(name, kernel.names().map(str::to_owned));
            let (name, stripped, inlined) = (name.to_owned(), Vec::new(), Vec::new());
            if module.is_none() && !kernel.lists_data() {
                return Err(FindError::NoKernelData { name, suggestions });
            }
            return Err(FindError::UnknownSymbol { name, place, stripped, suggestions, inlined, others: Others::None });
        }
        if let Some(restriction) = kernel.hidden {
            return Err(FindError::KernelHidden { name: name.to_owned(), restriction });
        }
        found.dedup_by_key(|symbol| symbol.address);
        let [symbol] = &found[..] else {
            let candidates = found.iter().map(candidate).collect();
            return Err(FindError::Ambiguous { name: name.to_owned(), candidates });
        };
        let readable = names::readable(symbol.name.as_bytes()).into_owned();
        if symbol.address < LOWEST {
            return Err(FindError::Other(format!(
                "each CPU has its own '{}', at an address of its own, which the kernel's list doesn't give",
                printable(&readable)
            )));
        }
        let mut notes = Vec::new();
        let kind = FoundKind::of(is_code(symbol.kind));
        // What lies between it and the next symbol is at most its own.
        if symbol.room > 0 && offset >= symbol.room {
            return Err(beyond(&readable, symbol.room, offset));
        }
        let extent = Extent { name: &readable, size: 0, kind, offset };
        let (access, mut len) = extent.measure(wanted, &mut notes)?;
        if wanted.len.is_none() && kind == FoundKind::Data && access != crate::event::Access::EXECUTE {
            len = natural_bytes(symbol.address.wrapping_add(offset), symbol.room.saturating_sub(offset));
            notes.push(format!("the kernel doesn't say how large {readable} is: {len} bytes are watched"));
        }
        if symbol.kind == Kind::Chooser {
            notes.push(format!("{readable} is chosen from several: this is the code that chooses"));
        }
        let module = symbol.module.map_or_else(|| "[kernel]".to_owned(), |module| format!("[{module}]"));
        let address = symbol.address.wrapping_add(offset);
        let name = extent.shown();
        Ok(Finding::Found(vec![FoundAddress { address, len, access, kind, name, module: Some(module.into()), notes }]))
    }
}

fn candidate(symbol: &KernelSymbol<'_>) -> Candidate {
    let target = match symbol.module {
        Some(module) => format!("[{module}]:{}", symbol.name),
        None => format!("{:#x}", symbol.address),
    };
    Candidate { name: names::readable(symbol.name.as_bytes()).into_owned(), source: None, target }
}

/// The largest word that begins at an address and has room.
fn natural_bytes(address: u64, room: u64) -> u64 {
    let mut bytes = WORD_BYTES;
    while bytes > 1 && (!address.is_multiple_of(bytes) || (room > 0 && bytes > room)) {
        bytes /= 2;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::natural_bytes;

    #[test]
    fn words() {
        for (address, room, bytes) in [(0x1000, 100, 8), (0x1000, 0, 8), (0x1000, 5, 4), (0x1002, 8, 2), (0x1001, 8, 1)]
        {
            assert_eq!(natural_bytes(address, room), bytes, "{address:#x} {room}");
        }
    }
}
