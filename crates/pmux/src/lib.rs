//! Counts what programs cost: on a thread, a process tree, a CPU or a whole machine.
//!
//! What it is: the library behind the `pmux` command, for programs. One engine owns the events; this crate says what to
//! count (events and targets), waits, and reads.
//! Read first: [`Session`], then [`Counters`]; for one number [`Counter`].
//!
//! Count a closure:
//!
//! ```
//! # fn main() -> Result<(), pmux::Error> {
//! let session = pmux::Session::new()?;
//! let (_, counts) = session.count_closure(&["page-faults"], || vec![1_u8; 1 << 22].len())?;
//! println!("{} page faults", counts.total(0));
//! # Ok(())
//! # }
//! ```
//!
//! A child process, with everything that it starts:
//!
//! ```
//! use pmux::{Command, EventList, Options, Session, Start, Target};
//! # fn main() -> Result<(), pmux::Error> {
//! let session = Session::new()?;
//! let events = EventList::parse(&["task-clock,page-faults"], session.catalog())?;
//! let command = Command::hold(["sh", "-c", "echo counted > /dev/null"])?;
//! let options = Options { start: Start::OnExec, ..Options::default() };
//! let counters = session.open(&events, &Target::Command(&command), options)?;
//! let exited = command.release(&[&counters])?.wait(&session)?;
//! assert!(exited.status.success());
//! for (event, reading) in counters.read().totals() {
//!     println!("{reading} {}", event.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The machine for a while:
//!
//! ```
//! use pmux::{CpuChoice, EventList, Options, Session, Target};
//! # fn main() -> Result<(), pmux::Error> {
//! let session = Session::new()?;
//! let events = EventList::parse(&["cpu-clock"], session.catalog())?;
//! match session.open(&events, &Target::Cpus(CpuChoice::All), Options::default()) {
//!     Ok(counters) => {
//!         std::thread::sleep(std::time::Duration::from_millis(10));
//!         for row in counters.read().rows {
//!             println!("CPU {:?}: {}", row.who.cpu, row.readings[0]);
//!         }
//!     }
//!     Err(error) => println!("not allowed here: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Counters that are shared with other processes, through `pmux serve`: equal questions cost the machine one counter, and
//! no process notices the others. [`Session::new`] does it by itself where the service runs; here it must, at the place that the
//! environment's `PMUX_SOCKET` says, or the usual one:
//!
//! ```no_run
//! use pmux::{CpuChoice, EventList, Options, Session, SharedChoice, Target};
//! # fn main() -> Result<(), pmux::Error> {
//! let session = Session::with_shared(SharedChoice::Always)?;
//! let events = EventList::parse(&["cycles,instructions"], session.catalog())?;
//! let counters = session.open(&events, &Target::Cpus(CpuChoice::All), Options::default())?;
//! loop {
//!     std::thread::sleep(std::time::Duration::from_secs(1));
//!     println!("now: {} cycles", counters.read().total(0));
//!     // No process is asked: some nanoseconds for each event.
//!     let (snapshot, age) = counters.read_cached();
//!     println!("{} ms ago: {} instructions", age.0 / 1_000_000, snapshot.total(1));
//!     // The service may stop or die. The session connects again, and what is open goes on.
//!     if let Some(why) = session.service_away() {
//!         println!("the service {why}; nothing was counted for {:?} so far", session.service_gap());
//!     }
//! }
//! # }
//! ```
//!
//! # Features
//!
//! A program that only counts takes the crate with `default-features = false`, and gets sessions, events, targets, counters, the
//! process tree and overflows. The feature `record`, on by default, adds recordings and what reads them, symbols, the flight recorder,
//! watching addresses and triggers. Without it, `uprobe:` events take offsets in a file and no names
//! of functions. The feature `server` adds the modules `supervisor` and `server_api`, of which the command and its service are
//! built: they may change with any version.
//!
//! # Reading without a system call
//!
//! There is no read by `rdpmc`. `perf_event_open(2)` allows it where `cap_user_rdpmc` is set in the event's mapped page: to the thread
//! that the event counts, for an event of its own PMU that is on a counter at that moment and is not inherited, and only on machines
//! that have such a PMU. Counts that are shared, inherited, of other threads or of CPUs need `read(2)` all the same, and so do software
//! events. So [`Counter::read`] is one `read(2)` everywhere, and what needs no system call is [`Counters::read_cached`].
//!
//! **Invariant:** every event goes through the engine; this crate makes no system call of its own.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "server"), allow(dead_code, unused_imports, reason = "what is left out uses it"))]

#[cfg(feature = "record")]
pub mod bench;
mod bytes;
mod cached;
mod cgroup_paths;
mod clones;
mod command;
mod counter;
mod counters;
pub mod date;
mod ends;
mod error;
pub mod event;
#[cfg(feature = "record")]
pub mod exact;
mod filter;
#[cfg(feature = "record")]
pub mod flight;
mod hotplug;
mod mux;
mod overflow;
mod owned_group;
#[cfg(feature = "record")]
pub mod perf_data;
mod probe;
#[cfg(feature = "record")]
pub mod profile;
#[cfg(feature = "record")]
pub mod record;
mod refusal;
mod region;
mod ring_owner;
#[cfg(feature = "server")]
pub mod server_api;
mod session;
#[cfg(feature = "record")]
mod subscription;
#[cfg(feature = "server")]
pub mod supervisor;
#[cfg(feature = "record")]
pub mod symbol;
mod target;
mod text;
mod tree;
#[cfg(feature = "record")]
pub mod trigger;
pub mod units;
#[cfg(feature = "record")]
pub mod watch;

/// Attributes of events, as `perf_event_open(2)` has them, for [`Subscription`]s and for files.
pub mod abi {
    pub use pmux_abi::attr::{
        Attr, AttrError, AttrFlags, BranchSample, EventType, ReadFormat, SampleFormat, Sampling, breakpoint, hw, sw,
        tracepoint,
    };
}

pub use command::{Command, Running};
pub use counter::{Counter, Group};
pub use counters::{Contention, Counters, Reading, RowReading, SetCoverage, Snapshot, Who};
pub use ends::EventEnds;
pub use error::Error;
pub use event::{Event, EventList};
pub use mux::{Multiplexing, PmuCapacity, Slice};
pub use overflow::{Overflow, OverflowCounter};
pub use pmux_engine::engine::{Census, Disagreements};
pub use pmux_engine::system_wide::CpuCoverage;
pub use pmux_engine::{Count, CpuId, Estimate, Nanos, Sharing};
pub use pmux_linux::capacity::EventCapacity;
pub use pmux_linux::capacity::holders::{Holder, holders, survey as holders_and_unseen, watchdog_counts};
pub use pmux_linux::cpus::{CpuList, CpuListError, CpuSource};
pub use pmux_linux::diagnose::ReasonKind;
pub use pmux_linux::execs::{Exec, Execs};
#[doc(hidden)]
pub use pmux_linux::order;
pub use pmux_linux::page_bytes;
pub use pmux_linux::regions::{MOST_EVENTS as MOST_EVENTS_OF_REGIONS, RegionCounts, RegionTable, Regions};
pub use pmux_linux::spawn::{ExitedChild, Output as CommandOutput, SpawnError};
pub use pmux_linux::trace::{Cause, FollowError, Step, Stop};
pub use pmux_linux::wait;
pub use pmux_linux::worker as workers;
pub use probe::Probe;
pub use refusal::Refusal;
pub use region::{Region, region};
pub use session::{BACKEND_VARIABLE, Backend, BackendChoice, SHARED_VARIABLE, ServiceTurn, Session, SharedChoice};
#[cfg(feature = "record")]
pub use subscription::{StreamRequest, StreamScope, Subscription};
#[cfg(feature = "record")]
pub use symbol::Followed;
pub use target::{Attribution, CpuChoice, Inherit, Options, Start, Target};
pub use tree::{Process, ProcessTree, Reporting};

/// Handles go to other threads, and sessions and counters may be used by several at once.
const _: () = {
    const fn moves<T: Send>() {}
    const fn is_shared<T: Sync>() {}
    moves::<Session>();
    is_shared::<Session>();
    moves::<Counters>();
    is_shared::<Counters>();
    moves::<OverflowCounter>();
    #[cfg(feature = "record")]
    {
        moves::<Followed>();
        moves::<symbol::Symbolizer>();
    }
};

/// The examples of these pages are compiled and run as documentation tests.
#[cfg(all(doctest, feature = "record"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
}
