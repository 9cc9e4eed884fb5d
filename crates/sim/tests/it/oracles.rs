//! The engine beside its slow and obvious models: the same steps, the same answers.
//!
//! What it is: for small sizes every case there is, for larger ones random cases. Each exhaustive test prints how
//! many cases it has covered.
//!
//! **Invariant:** the models know nothing of the engine's way; the engine is asked only for what a host or a caller
//! sees.

mod cgroups;
mod event_set;
mod host;
mod inheritance;
mod ledger;
mod placement;
mod ring;
mod rotation;
mod sharing;
mod turns;
