//! What stands at an address, in words.
//!
//! **Invariant:** it only tells; what isn't known is left open, and never made up.

use std::fmt;
use std::sync::Arc;

/// What stands at an address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ResolvedAddress {
    /// The address.
    pub address: u64,
    /// The functions that it belongs to: the innermost inlined one first, the one that is in the symbol table last. At
    /// least one.
    pub frames: Vec<ResolvedFrame>,
    /// The path of the program or library, `[kernel]`, `[vdso]`, or the name of a kernel module in brackets.
    pub module: Option<Arc<str>>,
    /// The address as that file counts; the address itself in the kernel and where there is no file.
    pub module_address: u64,
}

/// A function, and where in its source.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ResolvedFrame {
    /// Its name, readable and without parameters.
    pub function: Option<Arc<str>>,
    /// Bytes behind its beginning; only of the outermost, where the symbol table knows it.
    pub offset: Option<u64>,
    /// The path of the source file, as the compiler was given it.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
}

impl ResolvedAddress {
    /// An address of which nothing is known.
    #[must_use]
    pub fn unknown(address: u64) -> Self {
        Self { address, frames: vec![ResolvedFrame::default()], module: None, module_address: address }
    }

    /// The innermost function.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        self.frames.first().and_then(|frame| frame.function.as_deref())
    }

    /// The source file's path and the line of the innermost function.
    #[must_use]
    pub fn source(&self) -> Option<(&str, u32)> {
        let frame = self.frames.first()?;
        Some((frame.file.as_deref()?, frame.line?))
    }

    /// Whether one of the functions has this name, as a whole or from one of its parts on: `add` is in `writer::add`.
    #[must_use]
    pub fn is_in(&self, function: &str) -> bool {
        self.frames
            .iter()
            .filter_map(|frame| frame.function.as_deref())
            .any(|name| name.strip_suffix(function).is_some_and(|path| path.is_empty() || path.ends_with("::")))
    }

    /// The last part of the module's path.
    #[must_use]
    pub fn module_name(&self) -> Option<&str> {
        self.module.as_deref().map(file_name)
    }
}

pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path)
}

/// `add at writer.rs:12`, `main+0x1c (writer)`, `[unknown] (libfoo.so+0x1234)`.
impl fmt::Display for ResolvedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let module = self.module_name();
        match (self.function(), self.source()) {
            (Some(function), Some((file, line))) => write!(f, "{function} at {}:{line}", file_name(file)),
            (Some(function), None) => {
                f.write_str(function)?;
                if let Some(offset @ 1..) = self.frames.first().and_then(|frame| frame.offset) {
                    write!(f, "+{offset:#x}")?;
                }
                module.map_or(Ok(()), |module| write!(f, " ({module})"))
            }
            (None, Some((file, line))) => write!(f, "{}:{line}", file_name(file)),
            (None, None) => match module {
                Some(module) => write!(f, "[unknown] ({module}+{:#x})", self.module_address),
                None => write!(f, "[unknown] ({:#x})", self.address),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_well() {
        let mut place = ResolvedAddress::unknown(0x1234);
        assert_eq!(place.to_string(), "[unknown] (0x1234)");
        place.module = Some("/usr/lib/libfoo.so".into());
        place.module_address = 0x34;
        assert_eq!(place.to_string(), "[unknown] (libfoo.so+0x34)");
        place.frames[0] = ResolvedFrame { function: Some("a::add".into()), offset: Some(0x1c), file: None, line: None };
        assert_eq!(place.to_string(), "a::add+0x1c (libfoo.so)");
        place.frames[0].file = Some("/x/writer.rs".into());
        place.frames[0].line = Some(12);
        assert_eq!(place.to_string(), "a::add at writer.rs:12");
        assert_eq!(place.source(), Some(("/x/writer.rs", 12)));
        assert!(place.is_in("add") && place.is_in("a::add") && !place.is_in("dd") && !place.is_in("b::add"));
    }
}
