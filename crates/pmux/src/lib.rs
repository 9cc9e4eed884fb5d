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
//! nobody notices the others. [`Session::new`] does it by itself where the service runs; here it must, at the place that the
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
//!     // Nobody is asked: some nanoseconds for each event.
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
//! **Invariant:** every event goes through the engine; this crate makes no system call of its own.
#![forbid(unsafe_code)]

pub mod bench;
mod bytes;
mod cgroup_paths;
mod command;
mod counter;
mod counters;
pub mod date;
mod error;
pub mod event;
pub mod exact;
pub mod flight;
mod hotplug;
mod mux;
mod outlet;
mod overflow;
mod own_group;
pub mod perf_data;
mod probe;
pub mod profile;
pub mod record;
mod refusal;
pub mod serving;
mod session;
mod shown;
mod subscription;
pub mod symbol;
mod target;
mod tree;
pub mod trigger;
pub mod watch;

pub use command::{Command, Running};
pub use counter::{Counter, Group};
pub use counters::{Contention, Counters, Reading, RowReading, SetCoverage, Snapshot, Who};
pub use error::Error;
pub use event::{Event, EventList};
pub use mux::{Multiplexing, PmuRoom, Slice};
pub use overflow::{Overflow, OverflowCounter};
pub use pmux_engine::shell::{Census, Disagreements};
pub use pmux_engine::system_wide::CpuCoverage;
pub use pmux_engine::{Count, CpuId, Estimate, Nanos, Sharing};
pub use pmux_linux::capacity::EventRoom;
pub use pmux_linux::capacity::holders::{Holder, holders, watchdog_counts};
pub use pmux_linux::cpus::{CpuList, CpuListError};
pub use pmux_linux::diagnose::ReasonKind;
pub use pmux_linux::page_bytes;
pub use pmux_linux::spawn::{ExitedChild, Output as CommandOutput, SpawnError};
pub use pmux_linux::trace::{Cause, FollowError, Step, Stop};
pub use pmux_linux::wait;
pub use pmux_linux::worker as workers;
pub use probe::Probe;
pub use refusal::Refusal;
pub use session::{BACKEND_VARIABLE, Backend, BackendChoice, SHARED_VARIABLE, Session, SharedChoice, Weighed};
pub use subscription::Subscription;
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
    moves::<Followed>();
    moves::<symbol::Symbolizer>();
};
