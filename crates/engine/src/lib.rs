//! The pmux engine: it owns performance events.
//!
//! What it is: one `no_std` subsystem that opens, places, counts, inherits and closes events, whatever supplies the counters: the
//! Linux kernel through its event fds, a simulator, or the registers of a machine.
//! Read first: [`Engine`] (what a host calls), then [`context`] (the state machine behind it) and [`pmu`]
//! (what a host must supply).
//!
//! **Invariant:** the engine knows no fd, no path, no signal, no clock and no `unsafe`. Time, CPUs and counters are
//! arguments. Decisions are plain `&mut self` steps without a host call; the engine carries their effects out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arena;
pub mod context;
pub mod count;
pub mod cpu_mask;
pub mod engine;
pub mod error;
pub mod event;
pub mod event_set;
pub mod group;
pub mod host;
pub mod hw_breakpoint;
pub mod id;
pub mod inherit;
pub mod lock;
pub mod pmu;
pub mod ring_buffer;
pub mod seqlock;
pub mod share;
pub mod system_wide;
pub mod target;

#[cfg(test)]
#[macro_use]
extern crate std;

#[cfg(test)]
mod testing;

pub use count::{Count, Estimate};
pub use engine::{Engine, Rotation, TaskContext};
pub use error::{ControlError, ModifyError, OpenError, OutputError, ReadError};
pub use event::EventState;
pub use group::GroupSpec;
pub use host::Host;
pub use id::{CgroupId, CpuId, Cred, EventId, EventSetId, FamilyId, GroupId, Nanos, PmuId, SetId, TaskId};
pub use lock::LockCell;
pub use share::Sharing;
pub use target::{Opened, Target};
