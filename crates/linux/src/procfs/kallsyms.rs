//! The names of the kernel: `/proc/kallsyms`.
//!
//! **Invariant:** the kernel's own words; who may see addresses is for the kernel to decide.

use std::path::PathBuf;

use super::{Proc, ProcError};

impl Proc {
    /// The kernel's symbols as it writes them: `ADDRESS KIND NAME[<tab>[MODULE]]`, one a line. About 10 MB.
    ///
    /// Without the right to see them all addresses are 0 ([`Proc::pointer_restriction`]).
    ///
    /// # Errors
    /// [`ProcError::Unsupported`] in a kernel without the list; [`ProcError::Denied`].
    pub fn kernel_symbols(&self) -> Result<Vec<u8>, ProcError> {
        let path: PathBuf = self.root().join("kallsyms");
        std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ProcError::Unsupported { path },
            _ => super::plain_error(path, &error),
        })
    }

    /// `kernel.kptr_restrict`: 0 and 1 let those see the kernel's addresses who have a right to, 2 nobody.
    #[must_use]
    pub fn pointer_restriction(&self) -> Option<u32> {
        self.read_global("sys/kernel/kptr_restrict").ok()?.trim().parse().ok()
    }
}
