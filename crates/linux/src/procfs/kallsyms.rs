//! The names of the kernel: `/proc/kallsyms`.
//!
//! **Invariant:** the kernel's own words; who may see addresses is for the kernel to decide.

use std::path::PathBuf;

use super::{Proc, ProcError};

/// So many bytes of the list are looked at. It may begin with symbols whose address is 0, of which there are few.
const LOOK_BYTES: u64 = 4096;

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

    /// Whether [`Proc::kernel_symbols`] has addresses, by a look at its beginning: the kernel makes the list while it is read.
    #[must_use]
    pub fn shows_kernel_addresses(&self) -> bool {
        use std::io::Read;
        let mut first = Vec::new();
        let read = std::fs::File::open(self.root().join("kallsyms"))
            .and_then(|list| list.take(LOOK_BYTES).read_to_end(&mut first));
        let is_address = |line: &[u8]| {
            let digits = line.split(|&byte| byte == b' ').next().unwrap_or_default();
            digits.len() >= 8 && digits.iter().any(|&digit| digit != b'0')
        };
        read.is_ok() && first.split(|&byte| byte == b'\n').any(is_address)
    }

    /// `kernel.kptr_restrict`: 0 and 1 show the kernel's addresses to processes that have a right to see them, 2 to none.
    #[must_use]
    pub fn pointer_restriction(&self) -> Option<u32> {
        self.read_global("sys/kernel/kptr_restrict").ok()?.trim().parse().ok()
    }
}
