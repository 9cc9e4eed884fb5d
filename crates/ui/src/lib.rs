//! What the programs of pmux share towards their users: how text looks, how messages are written, what the exit statuses mean, and the
//! options of `pmux sim`, which `pmux` describes and `pmux-sim` obeys.
//!
//! **Invariant:** nothing here knows events.
#![forbid(unsafe_code)]

pub mod exit_status;
pub mod sim_options;
pub mod stderr;
pub mod style;
pub mod text;
