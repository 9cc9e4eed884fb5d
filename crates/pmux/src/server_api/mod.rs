//! What a service needs of the library: groups by their attributes, and facts about those who ask.
//!
//! What it is: [`Session::serve`] opens a group for another process, exactly as it says. Everything else here is what
//! `pmux serve` is built of, under one roof.
//! Read first: [`ServedGroup`].
//!
//! **Invariant:** nothing here decides who may ask for what. A group is closed when it is dropped.

mod acting;
mod by_cgroup;
mod cgroups;
mod clocks;
mod group;
mod names;
mod state;
mod streams;

pub use crate::subscription::{StreamRequest, StreamScope};
pub use acting::Acting;
pub use by_cgroup::{ByCgroup, CgroupMethod, CgroupReading, CgroupReadings};
pub use cgroups::Cgroups;
pub use group::{
    CachedCount, CountSource, EventAction, NO_FILES, ServeError, ServeRequest, ServedGroup, ServedTarget, SharedFile,
};
pub use names::describe;
pub use pmux_engine::ReadError;
pub use pmux_engine::hw_breakpoint::Kind;
pub use pmux_linux::capacity::foreign;
pub use pmux_linux::cgroup::{CgroupInode, NamedCgroup, ReaderIds};
pub use pmux_linux::cgroup_counts::{Pattern, PatternError};
pub use pmux_linux::credentials::{ActError, Credentials, EventTarget, Openers, RequestId, Retry};
pub use pmux_linux::diagnose::{TargetKind, Whose};
pub use pmux_linux::filter::without_filter;
pub use pmux_linux::host::Closing;
pub use pmux_linux::limits::{files_left, locked_memory_of, most_files, ring_memory_per_cpu, trim_memory};
pub use pmux_linux::peer::{Peer, PeerCred, PidNamespace, group_number, user_namespace_of};
pub use pmux_linux::plain_file::open as open_plain_file;
pub use pmux_linux::procfs::{Proc, ProcError};
pub use pmux_linux::ring::MOST_RING_BYTES;
pub use pmux_linux::selinux::{PerfPermission, PerfRights, Selinux, TargetScope};
pub use pmux_linux::shared;
pub use pmux_linux::{now_ns, tick_ns};
pub use state::{QuestionScan, RegisterUse, SharedCounter, SharedQuestion};
pub use streams::{RoundRemainder, StreamId, StreamTally, Streams, StreamsTally};

use crate::abi;
use crate::session::Session;

/// Whether an event counts and does nothing else, so that it can be counted for another process.
#[must_use]
pub fn only_counts(attr: &abi::Attr) -> bool {
    pmux_engine::pmu::share_key::canonical(attr).is_some()
}

/// The part of an attribute that counts, where its records can be handed to several; `None` where they are for no other reader.
#[must_use]
pub fn counting_part_of_records(attr: &abi::Attr) -> Option<abi::Attr> {
    use pmux_engine::pmu::share_key::{canonical_of_records, counting_part};
    canonical_of_records(attr).map(|attr| counting_part(&attr))
}

/// Whether this process acts as root.
#[must_use]
pub fn is_root() -> bool {
    Proc::system().own_status().is_ok_and(|status| status.users.effective == 0)
}

/// Lets this process have as many files as it may.
pub fn raise_file_limit() {
    // What can't be raised stays; code that needs more is told then.
    let _ = pmux_linux::limits::raise_soft_limit();
}

impl Session {
    /// From now on [`ServedGroup::files`] has files.
    pub fn let_files_be_passed(&self) {
        self.engine().host().let_files_be_passed();
    }

    /// How many events of the kernel it has opened so far, and how many of them are closed again.
    #[must_use]
    pub fn kernel_events(&self) -> (u64, u64) {
        self.engine().host().kernel_events()
    }

    /// From now on events that take long to close are closed by a thread, and the thread that drops one does not wait.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn close_elsewhere(&self) -> std::io::Result<()> {
        self.engine().host().close_elsewhere()
    }

    /// This process is about to exit: events that take long to close are closed by a child, after it.
    pub fn leave_to_child(&self) {
        self.engine().host().leave_to_child();
    }

    /// How many events that thread was given, and how many of them are closed.
    #[must_use]
    pub fn closing(&self) -> Closing {
        self.engine().host().closing()
    }

    /// `kernel.perf_event_paranoid` as it is now; the usual 2 where the kernel doesn't tell.
    #[must_use]
    pub fn paranoid(&self) -> i32 {
        let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
        text.trim().parse().unwrap_or(2)
    }

    /// The name of the PMU with this number, and whether it is that of the CPU cores.
    #[must_use]
    pub fn pmu_named_by(&self, kind: abi::EventType) -> Option<(String, bool)> {
        let pmu = crate::event::pmu_by_number(self.catalog(), kind)?;
        let core = pmu.role().is_ok_and(|role| role == pmux_linux::catalog::PmuRole::Core);
        Some((pmu.name().to_owned(), core))
    }

    /// Whether a PMU sets probes: its attributes hold addresses in the memory of the process that made them.
    #[must_use]
    pub fn is_probe(&self, kind: abi::EventType) -> bool {
        let named =
            |kind| matches!(self.pmu_named_by(kind), Some((name, _)) if matches!(&name[..], "kprobe" | "uprobe"));
        kind >= abi::EventType::FIRST_DYNAMIC && named(kind)
    }

    /// From now on CPUs that come and go are seen. Wait for [`Session::with_hotplug_fd`] and call
    /// [`Session::follow_hotplug`]: nothing else takes in the news.
    pub fn follow_cpus(&self) {
        self.watch_hotplug();
        self.follow_by_loop();
    }
}
