//! Slow and obvious models of what the engine does.
//!
//! What it is: for each part of the engine the same thing once more, written to be checked by reading: every assignment
//! is tried, every count is a sum over all events, nothing is kept that could be counted anew.
//! Read first: [`placement`], then [`rotation`] and [`cgroups`], which ask it; the others stand alone.
//!
//! **Invariant:** no model calls the engine; of its crate they use names only (ids, times, slots), so that both can't
//! be wrong in the same way.

pub mod breakpoint;
pub mod cgroups;
pub mod event_set;
pub mod inheritance;
pub mod placement;
pub mod ring;
pub mod rotation;
pub mod sharing;
