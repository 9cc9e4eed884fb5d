//! Counters that a service keeps for several processes: what both sides have in common.
//!
//! What it is: the language of the two ([`wire`]).
//! Read first: [`wire`].
//!
//! **Invariant:** nothing here decides who may ask for what; and neither side believes what the other one says before it
//! has been checked.

pub mod wire;
