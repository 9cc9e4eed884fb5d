//! PMUs: what can be counted, what fits together, and the registers that do it.
//!
//! What it is: the boundary to the counters. [`PmuModel`] is pure knowledge, [`CounterBank`] touches hardware (or, on
//! Linux, kernel fds).
//! Read first: [`PmuCaps`], then [`CounterBank`].
//!
//! **Invariant:** nothing above this module asks what *kind* of event it holds.

mod bank;
mod cgroup_tree;
mod place;
pub mod share_key;

pub use bank::{BankError, CounterBank, Lease, Program, Slot, SlotReading, SlotTime};
pub use cgroup_tree::{CgroupNode, CgroupPath, CgroupTree};
pub use place::{SlotMask, place_on_allowed};

use crate::hw_breakpoint::Claim;
use crate::id::{Cred, PmuId};
use bitflags::bitflags;
use pmux_abi::attr::Attr;

bitflags! {
    /// What the counters of a PMU do by themselves, so that the engine must not do it a second time.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Delegated: u8 {
        /// They share the hardware in time: a slot that was started may not run, and its reading says for how long it did.
        const MULTIPLEXING = 1 << 0;
        /// Their slots follow fork: a reading holds the counts of children too.
        const INHERITANCE = 1 << 1;
        /// They start at exec where the attribute says so.
        const ENABLE_ON_EXEC = 1 << 2;
        /// They know for how long they were started and ran, in the time that counts for their context: a reading says it.
        /// The engine adds only the time that an event waits for a slot.
        const TIMES = 1 << 3;
        /// They keep something for an event as long as it is attached, also while it has no slot:
        /// [`CounterBank::prepare`] is called. Only for hosts whose contexts are each on a core of their own.
        const PREPARATION = 1 << 4;
        /// On which counter an event is is decided below, anew whenever a task of another cgroup comes: a slot is a name only, of
        /// which there are as many as wanted, and [`PmuModel::place`] is asked of each path of cgroups by itself whether it
        /// finds room: see [`crate::Host::cgroup_path`]. Only for counters of 64 bits, on hosts whose contexts are each on a core
        /// of their own.
        const PLACEMENT = 1 << 5;
    }
}

/// How many slots a PMU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slots {
    /// So many registers (at most 64); an event holds one only while it runs.
    Scarce(u8),
    /// As many as wanted: an event holds its slot from open to close.
    Plenty,
}

/// How the engine learns that a counter of fewer than 64 bits has wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverflowBy {
    /// The counter interrupts: the host calls [`crate::Engine::counters_interrupted`] from there.
    Interrupt,
    /// The counter interrupts where no lock may be taken: the host only notes it there, and calls
    /// [`crate::Engine::counters_interrupted`] as soon as it may.
    Nmi,
    /// Never: the engine looks at each tick ([`crate::Engine::tick`]), which must come before a counter can wrap twice.
    Poll,
}

/// What a PMU can do, as data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmuCaps {
    /// How many slots it has.
    pub slots: Slots,
    /// Bits of a counter; 64 where it never wraps.
    pub width_bits: u8,
    /// What it does by itself.
    pub delegated: Delegated,
    /// How its overflows are learnt.
    pub overflow: OverflowBy,
}

/// An event as a PMU understands it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventSpec {
    /// Which PMU takes it.
    pub pmu: PmuId,
    /// The question as asked.
    pub attr: Attr,
    /// On which slots it may be placed (ignored where slots are plenty).
    pub allowed: SlotMask,
    /// The debug registers that it keeps from its opening to its closing, enabled or not: see [`crate::hw_breakpoint`]. None for
    /// what needs no debug register, or takes turns on one.
    pub claim: Option<Claim>,
    /// The credentials with which its counters are opened, now and later: when its CPU comes back, when it changes, when it takes
    /// its turn. [`PmuModel::parse`] leaves it at [`Cred::HOST`]; the engine sets it to those of the event's domain.
    pub cred: Cred,
}

/// Why a PMU doesn't take an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// This PMU has no such event.
    NoSuchEvent,
    /// It can't do this with the event (sampling, for example).
    NotSupported,
}

/// The PMUs of a host, by number.
pub trait PmuTable {
    /// The PMU by that number, if there is one.
    fn pmu(&self, pmu: PmuId) -> Option<&dyn PmuModel>;
}

/// The knowledge about one PMU; pure.
pub trait PmuModel: Send + Sync {
    /// What it can do.
    fn caps(&self) -> &PmuCaps;

    /// Understands an attribute.
    ///
    /// # Errors
    /// [`ParseError`] where the PMU doesn't take the event.
    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError>;

    /// What an event asks, whatever its attribute looks like: events with equal questions may share one slot. `None`: this one
    /// shares with no other event.
    ///
    /// By default as [`crate::pmu::share_key::canonical`] says. A PMU whose attributes hold pointers can't compare them.
    fn share_key(&self, attr: &Attr) -> Option<Attr> {
        share_key::canonical(attr)
    }

    /// What an event asks whose records go to all that ask the same: see [`crate::share::SharingScope::RECORDS`]. `None`: no other event
    /// could use them.
    ///
    /// By default as [`crate::pmu::share_key::canonical_of_records`] says, where [`PmuModel::share_key`] can compare the rest.
    fn share_key_of_records(&self, attr: &Attr) -> Option<Attr> {
        use share_key::{canonical_of_records, counting_part};
        self.share_key(&counting_part(attr)).and_then(|_| canonical_of_records(attr))
    }

    /// Finds slots for all of `wanted` (on which slots each may be) beside those `used`, or for none; `true` if all fit.
    ///
    /// `out` is as long as `wanted`. It comes with the slot that each event would like, [`Slot::NONE`] where it has no
    /// wish; wishes are granted in the order of the events, each one that leaves a slot for all others. Where not all fit,
    /// `out` stays as it came.
    fn place(&self, wanted: &[SlotMask], used: SlotMask, out: &mut [Slot]) -> bool {
        match self.caps().slots {
            Slots::Scarce(count) => place_on_allowed(wanted, used, count, out),
            Slots::Plenty => true,
        }
    }
}
