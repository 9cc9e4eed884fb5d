//! Breakpoints of this kernel beside those who say which ones it grants.
//!
//! What it is: what tests share that take debug registers: waiting for one's turn, threads to watch, and the comparison of
//! sequences. A sequence is a list of steps ([`step`]), drawn at random from a seed ([`draw`]); several parties ([`party`],
//! [`kernel`]) carry it out side by side ([`compare`]).
//! Read first: [`step::Step`], then [`compare`].
//!
//! **Invariant:** a sequence is data. What it comes to depends on the steps alone, as long as no other process takes registers.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod compare;
pub mod crew;
pub mod draw;
pub mod engine;
pub mod kernel;
pub mod party;
pub mod step;

#[allow(unused_imports)] // not all who share this have threads of their own
pub use crew::Idle;
use pmux_sim::oracle::breakpoint::Kind;
use pmux_testkit::{DEBUG_REGISTERS, HOTPLUG, lock};
use std::fs::File;
use std::sync::atomic::AtomicU64;

/// What is waited for; no code writes to it.
static DATA: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// No code calls it.
fn never() {
    std::hint::black_box(());
}

/// An address that no code touches: aligned to 8 bytes for data, to 4 for code.
pub fn address(kind: Kind, which: usize) -> u64 {
    match kind {
        Kind::Data => (&raw const DATA[which % DATA.len()]) as u64,
        Kind::Execute => (never as fn() as usize as u64).next_multiple_of(4) + 4 * (which % DATA.len()) as u64,
    }
}

/// The registers of the machine, and its CPUs, which stay as they are.
pub struct Alone {
    _hotplug: File,
    _breakpoints: File,
}

impl Alone {
    pub fn wait() -> Self {
        // Always in this order.
        Self { _hotplug: lock(HOTPLUG), _breakpoints: lock(DEBUG_REGISTERS) }
    }
}
