//! The inside of a worker: a task that does what it is told, and nothing beside.
//!
//! What it is: orders come through a socket, are carried out, and answered. Everything that a worker does is known before it
//! does it, so that what is counted of it can be compared with what happened.
//! Read first: [`serve()`]; what goes over the socket is in `message`, what is done with memory in `memory`, how time is spent
//! in `spin`.
//!
//! Children of a worker, processes too, share its memory (`CLONE_VM`): a fork that copies it would cost page faults in the
//! parent and in the child, an unknown number of them. Each runs on a stack of its own that was touched before.
//!
//! **Invariant:** after [`serve()`] has begun, a worker's memory is touched as ordered and not otherwise: no allocation, no
//! page that was not there before, nothing of the standard library (children have no thread-local storage of their own).

mod arch;
mod channel;
mod memory;
mod message;
mod serve;
mod spin;

pub use arch::INSTRUCTIONS_PER_ROUND;
pub(crate) use channel::{WorkerPacket, receive, send};
pub(crate) use memory::{Memory, MemoryPlan, fault_in, lock_in};
pub use message::{ChildKind, Order, Touching};
pub(crate) use message::{Message, WorkerAnswer};
pub(crate) use serve::{Plan, serve};
