//! Probes that are opened without tracefs: what their attributes point to, and what their children need.
//!
//! What it is: the PMU `uprobe` wants the address of a path in the memory of the process that opens the event.
//! [`address_of_path`] keeps paths where they are, so that an attribute that holds their address means the same as long as the
//! process lives. `traced` has the events that are inherited.
//!
//! **Invariant:** what was given away once stays; each path is kept once. No event of these PMUs is inherited as it is.
//!
//! Source: `kernel/events/core.c` and `kernel/trace/trace_event_perf.c` of Linux 6.18 (`perf_uprobe_init`).

mod traced;

use pmux_abi::attr::EventType;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::catalog::Catalog;
use crate::kept_text;
pub(crate) use traced::Traced;
pub use traced::cannot_be_inherited;

/// The bit of `config` of a probe at a function's return.
pub const AT_RETURN: u64 = 1;

/// The PMUs of probes that are opened without tracefs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbePmu {
    /// Code of the kernel.
    Kprobe,
    /// Code of a file.
    Uprobe,
}

impl ProbePmu {
    /// Which of them has an event of that type, by the numbers that this kernel gave them.
    #[must_use]
    pub fn of(kind: EventType) -> Option<Self> {
        static PROBES: OnceLock<Vec<(EventType, ProbePmu)>> = OnceLock::new();
        if kind < EventType::FIRST_DYNAMIC {
            return None;
        }
        let known = PROBES.get_or_init(|| {
            let catalog = Catalog::system();
            let kind = |probe: Self| Some((EventType(catalog.pmu(probe.name()).ok()?.kind()), probe));
            [Self::Kprobe, Self::Uprobe].into_iter().filter_map(kind).collect()
        });
        known.iter().find(|(known, _)| *known == kind).map(|&(_, probe)| probe)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Uprobe => "uprobe",
        }
    }
}

/// The path that [`address_of_path`] has put there.
fn path_at(address: u64) -> Option<PathBuf> {
    kept_text::text_at(address).map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// Where a path stands in memory, for `config1` of a probe; `None` where it holds a zero byte.
#[must_use]
pub fn address_of_path(path: &Path) -> Option<u64> {
    kept_text::address_of(path.as_os_str().as_bytes())
}
