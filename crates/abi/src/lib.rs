//! The `perf_event` ABI: bytes to types and back.
//!
//! What it is: attributes, records and read formats as the kernel and its readers exchange them, in both directions.
//! Read first: [`attr::Attr`], then [`read::ReadLayout`], then [`record::SampleLayout`] and [`record::decode_record`].
//!
//! | bytes | type | in | out |
//! |---|---|---|---|
//! | `perf_event_attr` | [`attr::Attr`] | [`attr::Attr::decode`] | [`attr::Attr::encode`] |
//! | what `read(2)` returns | [`read::ReadValues`] | [`read::ReadLayout::decode`] | in records only |
//! | a record of a ring or of perf.data | [`record::Record`] | [`record::decode_record`] | [`record::encode_record`] |
//!
//! Integers have the byte order of the machine, as in the kernel. Only little-endian machines are supported: on the
//! others the kernel also numbers the bits of its flag words from the other end.
//!
//! **Invariant:** this crate knows no system call, no clock and no allocator. Producers and consumers of bytes use the
//! same code. No input panics.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("pmux-abi numbers the bits of flag words as little-endian machines do");

mod array;
mod bytes;

pub mod attr;
pub mod read;
pub mod record;

pub use array::{Array, Element};
