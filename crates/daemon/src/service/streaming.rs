//! What passes records on, as the service sees it.
//!
//! **Invariant:** nothing here knows a client.

use super::counting::Refused;
use pmux::abi::Attr;
use pmux::server_api::shared::wire::{EventNumber, Scope};
use pmux::server_api::{Peer, ServeError};

/// Whether a stream gets records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// It does, from now on.
    On,
    /// It doesn't any more.
    Off,
}

/// What a client asks records of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// Where events are opened.
    pub scope: Scope,
    /// Which.
    pub attrs: Vec<Attr>,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// The bell is rung with each so many bytes.
    pub wake_bytes: u64,
    /// Bytes of the kernel's ring of each event.
    pub kernel_ring_bytes: u64,
}

/// What passes records on.
pub trait Streaming {
    /// A stream that is open.
    type Stream;
    /// A file that is passed to or by a client.
    type File;

    /// How many events of the kernel one event of this scope is, before any is shared.
    fn places(&self, scope: &Scope) -> u32;

    /// How many bytes the kernel's rings have that are open for all streams.
    fn kernel_bytes(&self) -> u64;

    /// How many bytes the kernel lets this user lock for rings of events (`perf_mmap` in kernel/events/core.c): all of them where the
    /// limit does not hold.
    fn locked_bytes(&mut self, peer: &Peer) -> u64;

    /// Opens a stream for a client with the client's rights, off; with the files of its ring and its bell.
    ///
    /// # Errors
    /// [`Refused`]: then nothing is open.
    fn subscribe(&mut self, peer: &Peer, wanted: &Subscription) -> Result<(Self::Stream, Vec<Self::File>), Refused>;

    /// Lets a stream get records, or no more of them: what was written until now is in its ring then.
    ///
    /// # Errors
    /// [`ServeError`]: then it gets none.
    fn switch(&mut self, stream: &Self::Stream, flow: Flow) -> Result<(), ServeError>;

    /// Which event of the kernel has which number in the records of a stream.
    fn numbers(&self, stream: &Self::Stream) -> Vec<EventNumber>;

    /// Closes a stream.
    fn unsubscribe(&mut self, stream: Self::Stream);
}
