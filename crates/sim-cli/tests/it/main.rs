//! The integration tests of `pmux-sim`, in one executable.
#![allow(clippy::unwrap_used)]

mod sim;
