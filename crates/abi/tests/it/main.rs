//! The integration tests of the ABI, in one executable.
#![allow(clippy::unwrap_used)]

mod attr;
mod read;
mod record_bytes;
mod record_props;
