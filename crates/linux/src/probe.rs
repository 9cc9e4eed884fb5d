//! Probes that are opened without tracefs: what their attributes point to.
//!
//! What it is: the PMU `uprobe` wants the address of a path in the memory of whoever opens the event. [`address_of_path`] keeps
//! paths where they are, so that an attribute that holds their address means the same as long as the process lives.
//!
//! **Invariant:** what was given away once stays; each path is kept once.
//!
//! Source: `kernel/events/core.c` and `kernel/trace/trace_event_perf.c` of Linux 6.18 (`perf_uprobe_init`).

use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The bit of `config` of a probe at a function's return.
pub const AT_RETURN: u64 = 1;

/// Where a path stands in memory, for `config1` of a probe; `None` where it holds a zero byte.
#[must_use]
pub fn address_of_path(path: &Path) -> Option<u64> {
    static PATHS: OnceLock<Mutex<HashMap<CString, u64>>> = OnceLock::new();
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut paths = PATHS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&address) = paths.get(&path) {
        return Some(address);
    }
    // Given away to the kernel: it must never be freed.
    let kept: &'static CString = Box::leak(Box::new(path.clone()));
    let address = kept.as_ptr().expose_provenance() as u64;
    paths.insert(path, address);
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_where_it_is() {
        let first = address_of_path(Path::new("/bin/x"));
        let other = address_of_path(Path::new("/bin/y"));
        assert!(first.is_some() && first != other);
        assert_eq!(address_of_path(Path::new("/bin/x")), first);
        assert_eq!(address_of_path(Path::new("/bin/\0")), None);
    }
}
