//! What a client and the service say to each other, as types and as bytes.
//!
//! What it is: each message is one packet of a `SOCK_SEQPACKET` socket. A packet is a
//! number and a body; only replies have files beside them. A request has a number that its client chose, not 0, and each reply to it has the same one;
//! notices, which no request asked for, have the number 0. A client begins with [`Request::Hello`] and waits for the answer.
//! Read first: [`Request`], then [`Reply`]; bytes are in `codec`.
//!
//! **Invariant:** pure: no system call, no clock. No bytes make it panic, or allocate more than [`DECODED_BYTES`].
//!
//! **Invariant:** what [`Request::Hello`], [`Reply::Welcome`] and [`Reply::Refused`] look like is the same in every
//! version, so that any two can tell each other that they don't fit.

mod codec;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use codec::{WireError, decode_reply, decode_request, encode_reply, encode_request};
pub use reply::{
    EventNumber, Limits, Notice, Opened, Part, PassedFile, Refusal, RefusalKind, Reply, Rights, ServedPage, Subscribed,
    TimedTotals, ValueIndex, Welcome,
};
pub use request::{
    CgroupName, Context, Detail, EventOp, Hello, Narrowing, Open, OpenCgroup, OptIn, Request, Scope, Subscribe,
};

use serde::{Deserialize, Serialize};

/// The oldest version of the language that is understood here.
pub const OLDEST_VERSION: u16 = 1;
/// The newest one.
pub const NEWEST_VERSION: u16 = 4;
/// The version in which [`Request::Subscribe`] and [`Request::Numbers`] came.
pub const RECORDS_SINCE: u16 = 3;
/// The version in which [`Request::OpenCgroup`] came.
pub const CGROUPS_SINCE: u16 = 4;

/// Most bytes of a packet.
pub const PACKET_BYTES: usize = 64 * 1024;
/// Most file descriptors beside a packet.
pub const PACKET_FILES: usize = 64;
/// Most memory that the lists and texts of one decoded packet take.
pub const DECODED_BYTES: usize = 4 * PACKET_BYTES;
/// Most events of a group that is opened.
pub const GROUP_EVENTS: usize = 64;
/// Most events of one subscription, before they are opened on each CPU.
pub const SUBSCRIBED_EVENTS: usize = 16;
/// Most CPUs or threads that a subscription names.
pub const SCOPE_NUMBERS: usize = 1024;
/// Most numbers of events in one part of an answer.
pub const PART_NUMBERS: usize = 2048;
/// Most handles in one request.
pub const REQUEST_HANDLES: usize = 1024;
/// Most bytes of one attribute.
pub const ATTR_BYTES: usize = 256;
/// Most bytes of a cgroup's path.
pub const CGROUP_PATH_BYTES: usize = 4096;
/// Most bytes of a client's name.
pub const NAME_BYTES: usize = 64;
/// Most bytes of a sentence.
pub const SENTENCE_BYTES: usize = 2048;
/// Most bytes of one part of a long text.
pub const PART_BYTES: usize = 32 * 1024;

/// One event that a client has open; the service never uses a number twice between two starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Handle(pub u64);

/// What a client's event has counted at a moment, from its opening (or its last reset) on and only while it was enabled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The count.
    pub value: u64,
    /// For how long it was enabled.
    pub enabled_ns: u64,
    /// For how long it ran.
    pub running_ns: u64,
}

impl Totals {
    /// This and that together; the count goes round.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            value: self.value.wrapping_add(other.value),
            enabled_ns: self.enabled_ns.wrapping_add(other.enabled_ns),
            running_ns: self.running_ns.wrapping_add(other.running_ns),
        }
    }

    /// What is left of it without `other`; each goes round.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self {
            value: self.value.wrapping_sub(other.value),
            enabled_ns: self.enabled_ns.wrapping_sub(other.enabled_ns),
            running_ns: self.running_ns.wrapping_sub(other.running_ns),
        }
    }

    /// What came since `earlier`; times that seem to have gone back are 0.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            value: self.value.wrapping_sub(earlier.value),
            enabled_ns: self.enabled_ns.saturating_sub(earlier.enabled_ns),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
        }
    }
}
