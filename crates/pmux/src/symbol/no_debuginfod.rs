//! What stands for `debuginfod` where that is left out: no server is asked.
//!
//! **Invariant:** a server that was named is an error, not silence.

use super::sources::Sources;
use std::path::PathBuf;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// The program or library itself.
    Executable,
    /// Its debugging information.
    Debuginfo,
}

/// Finds nothing.
///
/// # Errors
/// A sentence where a server was named.
pub(crate) fn fetch(sources: &Sources, _: &[u8], _: What) -> Result<Option<PathBuf>, String> {
    if sources.debuginfod.is_empty() {
        return Ok(None);
    }
    Err("debuginfod: this program was built without pmux's feature `debuginfod`".to_owned())
}
