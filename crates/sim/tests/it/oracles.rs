//! The engine beside its slow and obvious models: the same steps, the same answers.
//!
//! What it is: for small sizes every case there is, for larger ones random cases. Each exhaustive test prints how
//! many cases it has covered.
//!
//! **Invariant:** the models know nothing of the engine's way; the engine is asked only for what a host or a caller
//! sees.
#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "oracles/cgroups.rs"]
mod cgroups;
#[path = "oracles/event_set.rs"]
mod event_set;
#[path = "oracles/host.rs"]
mod host;
#[path = "oracles/inheritance.rs"]
mod inheritance;
#[path = "oracles/ledger.rs"]
mod ledger;
#[path = "oracles/placement.rs"]
mod placement;
#[path = "oracles/ring.rs"]
mod ring;
#[path = "oracles/rotation.rs"]
mod rotation;
#[path = "oracles/sharing.rs"]
mod sharing;
#[path = "oracles/turns.rs"]
mod turns;
