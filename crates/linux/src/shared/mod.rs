//! Counters that a service keeps for several processes: what both sides have in common.
//!
//! What it is: the words of the two ([`wire`]), the socket that carries them ([`channel`]), its place in the file system
//! ([`listener`]), and who is at the other end ([`channel::Peer`]).
//! Read first: [`wire`].
//!
//! **Invariant:** nothing here decides who may ask for what; and neither side believes what the other one says before it
//! has been checked.

pub mod channel;
pub mod listener;
mod outbox;
pub mod poll;
pub mod wire;

pub use outbox::{Flushed, Outbox, OutboxError};
