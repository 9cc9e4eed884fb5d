//! Counters that a service keeps for several processes: what both sides have in common.
//!
//! What it is: the words of the two ([`wire`]), the socket that carries them ([`channel`]), its place in the file system
//! ([`listener`]), and the memory in which counts can be read without asking ([`page`]); and a client's end of it all ([`client`]).
//! Read first: [`wire`].
//!
//! **Invariant:** nothing here decides who may ask for what; and neither side believes what the other one says before it
//! has been checked.

mod bell;
pub mod channel;
pub mod client;
mod holders;
pub mod listener;
mod outbox;
pub mod page;
pub mod poll;
pub mod wire;

pub use bell::{Bell, Heard, hear};
pub use outbox::{Flushed, Outbox, OutboxError};
