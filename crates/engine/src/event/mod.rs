//! One event in its context: its state, its count, its times.
//!
//! What it is: the lifecycle that every kind of event goes through, hardware, software, tracepoint or breakpoint.
//! Read first: [`EventState`].
//!
//! **Invariant:** nothing here looks at what kind of event it is, and nothing here touches a counter.

mod member;
mod state;

pub(crate) use member::{Clock, Fault, ModifyState};
pub use member::{Event, Last, Lineage, NewEvent};
pub use state::{EventState, OnExec};
