//! Places in a program or library that are hit when a task comes by: `uprobe:PATH:SYMBOL`.
//!
//! What it is: from what was written to the place in the file that the kernel wants. Read first: [`Event::probe`].
//!
//! **Invariant:** nothing is written to tracefs: the probe goes with its event.

use super::error::ParseFault;
use super::printable;
use super::syntax::EventNode;
use super::{Event, EventType};
#[cfg(feature = "record")]
use crate::symbol::code_in_file;
use pmux_linux::catalog::Catalog;
use pmux_linux::probe::{AT_RETURN, address_of_path};
use std::path::Path;

/// The PMU of these events, by its name.
pub(crate) const UPROBE: &str = "uprobe";

/// Where code stands in a file, without the tables of symbols.
#[cfg(not(feature = "record"))]
fn code_in_file(_: &Path, place: &str) -> Result<u64, (String, Vec<String>)> {
    let offset = place.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    offset.ok_or_else(|| {
        let text = format!(
            "`{place}` is no offset such as 0x1234, and this program was built without pmux's feature `record`"
        );
        (text, Vec::new())
    })
}

/// When a place is hit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeAt {
    /// When a task gets there.
    Entry,
    /// When the function that begins there returns.
    Return,
}

impl ProbeAt {
    /// As an event begins.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Entry => "uprobe",
            Self::Return => "uretprobe",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Entry, Self::Return].into_iter().find(|at| at.word() == word)
    }
}

impl Event {
    /// Each time when a task comes to a place in the code of a file: `place` is a function, `FUNCTION+OFFSET`, or `0x…` as the
    /// file counts addresses.
    ///
    /// # Errors
    /// A sentence: the file can't be read, has no such code, or several; this kernel has no uprobes. And the names that were perhaps
    /// meant.
    pub fn probe(catalog: &Catalog, path: &Path, place: &str, at: ProbeAt) -> Result<Self, (String, Vec<String>)> {
        let plain = |text: String| (text, Vec::new());
        let pmu = catalog.pmu(UPROBE).map_err(|error| plain(format!("this kernel has no uprobes ({error})")))?;
        let shown = path.display();
        let path = std::fs::canonicalize(path).map_err(|error| plain(format!("{shown} can't be read: {error}")))?;
        let offset = code_in_file(&path, place)?;
        let name = format!("{}:{shown}:{place}", at.word());
        let mut event = Self::new(name, EventType(pmu.kind()), 0, UPROBE);
        event.attr.config = if at == ProbeAt::Return { AT_RETURN } else { 0 };
        event.attr.config1 = address_of_path(&path).ok_or_else(|| plain(format!("{shown} is no path")))?;
        event.attr.config2 = offset;
        event.set_modifiers(super::Modifiers::NONE);
        Ok(event)
    }

    /// Whether each hit counts by itself, so that a sample is taken of each where nothing else is said.
    pub(crate) fn is_hit(&self) -> bool {
        let probe = matches!(&self.source, super::EventSource::Kernel { pmu } if pmu == UPROBE || pmu == "kprobe");
        probe || matches!(self.attr.kind, EventType::TRACEPOINT | EventType::BREAKPOINT)
    }
}

/// As [`Event::probe`], for an event of a list.
pub(super) fn resolve(
    catalog: &Catalog,
    node: &EventNode,
    name: String,
    (path, place, at): (&str, &str, ProbeAt),
) -> Result<Event, ParseFault> {
    let wrong = |(why, near): (String, Vec<String>)| {
        let near = near.into_iter().map(|name| format!("{}:{path}:{name}", at.word())).collect();
        ParseFault::new(node.at.start, printable(&why)).suggesting(near)
    };
    Ok(Event { name, ..Event::probe(catalog, Path::new(path), place, at).map_err(wrong)? })
}
