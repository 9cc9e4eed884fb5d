//! What a machine is: its CPUs, its PMUs, and at which rates they count.
//!
//! **Invariant:** plain data. What a machine does is `pmux_sim`'s; what fits on it is this crate's.

mod describe;
mod kind;
pub mod profiles;

pub use describe::{Access, Counts, Description, DescriptionError, MAX_CPUS, PmuDescription, Reach, Trace};
pub use kind::{KINDS, Kind, Rate, Rates};
