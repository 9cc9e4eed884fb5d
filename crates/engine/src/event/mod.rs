//! One event in its context: its state, its count, its times.
//!
//! What it is: the lifecycle that every kind of event goes through, hardware, software, tracepoint or breakpoint.
//! Read first: [`EventState`]. In Linux: `enum perf_event_state`, `perf_event_set_state` and `perf_event_update_time` of
//! `kernel/events/core.c`.
//!
//! **Invariant:** nothing here looks at what kind of event it is, and nothing here touches a counter.

mod member;
mod state;

pub(crate) use member::{Clock, Fault, ModifyState};
pub use member::{Event, Last, Lineage, NewEvent};
pub use state::{EventState, OnExec};
