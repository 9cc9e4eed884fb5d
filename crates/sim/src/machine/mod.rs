//! The simulated machine: a host of the engine whose truth is known.
//!
//! What it is: CPUs, tasks, PMUs described by data, virtual time and faults; and [`World`], which drives a
//! machine together with an engine and keeps its own books of what should be.
//! Read first: [`World`] (what a test or a runner uses), [`Description`] (what a machine is), then `state` and `registers`.
//!
//! **Invariant:** one seed and one list of operations give one run, to the nanosecond.

mod accounts;
mod bank;
mod breaches;
mod faults;
mod host;
mod ledger;
mod locks;
mod model;
mod registers;
mod samples;
mod state;
#[cfg(test)]
mod tests;
mod time;
mod trace;
mod views;
mod world;
mod wraps;

pub use bank::Bank;
pub use faults::{InjectedFault, MachineFault};
pub(crate) use ledger::CountSite;
pub use ledger::{Activity, Event};
pub(crate) use locks::any_faults;
pub use locks::{LockFault, SimLock, take_faults};
pub use pmux_plan::machine::{
    Access, Counts, Description, DescriptionError, KINDS, Kind, MAX_CPUS, PmuDescription, Rate, Rates, Reach, Trace,
    profiles,
};
pub use trace::{Happening, Mark, Refusal, SlotSpan, Timeline, Turn};
pub(crate) use world::{Book, BookKind, RingBook};
pub use world::{CpuError, Set, Start, SwitchTarget, TaskError, Truth, World};

pub(crate) use model::CountedEvent;
use model::SimPmu;
use pmux_engine::Engine;
use state::State;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The engine's host.
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

struct Shared {
    description: Description,
    pmus: Vec<SimPmu>,
    state: Mutex<State>,
    /// The time, for callers that ask for nothing else.
    clock: AtomicU64,
    /// On which CPU the caller of the engine is.
    here: AtomicU32,
    /// For a clock that must not be: whether it jumps, and how far it has.
    jumps: AtomicBool,
    jumped: AtomicU64,
    engine: OnceLock<Weak<Engine<Machine>>>,
}

impl Machine {
    fn new(description: Description, seed: u64) -> Self {
        let shared = Shared {
            pmus: description.pmus.iter().map(SimPmu::new).collect(),
            state: Mutex::new(State::new(&description, seed)),
            clock: AtomicU64::new(0),
            here: AtomicU32::new(0),
            jumps: AtomicBool::new(false),
            jumped: AtomicU64::new(0),
            engine: OnceLock::new(),
            description,
        };
        Self { shared: Arc::new(shared) }
    }
}
