//! What the service says.
//!
//! **Invariant:** see the module above.

use super::codec::{at_most, bounded_text};
use super::{GROUP_EVENTS, Handle, PACKET_FILES, PART_BYTES, PART_NUMBERS, REQUEST_HANDLES, SENTENCE_BYTES, Totals};
use serde::{Deserialize, Serialize};

/// An answer, or a notice. New ones are added at the end, in a new version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To [`super::Request::Hello`]. Beside it is the page's file, where [`Welcome::page`] says so.
    Welcome(Welcome),
    /// The request was not carried out, and nothing has changed.
    Refused(Refusal),
    /// To [`super::Request::Open`] and [`super::Request::Renew`]. Beside it are the files, in the order of [`Opened::files`].
    Opened(Opened),
    /// It was carried out.
    Done,
    /// To [`super::Request::Read`], in the order of its handles.
    Values {
        /// What each has counted, or why that can't be said.
        #[serde(deserialize_with = "at_most::<_, _, REQUEST_HANDLES>")]
        values: Vec<Result<TimedTotals, i32>>,
    },
    /// To [`super::Request::Status`]: a text in JSON, in as many parts as it takes. A part may end within a character.
    StatusReport {
        /// Whether more follows.
        part: Part,
        /// The text.
        #[serde(deserialize_with = "at_most::<_, _, PART_BYTES>")]
        text: Vec<u8>,
    },
    /// Something that no request asked about; its number is 0.
    Notice(Notice),
    /// To [`super::Request::Subscribe`]. Beside it are three files: the records, the word of who takes them out
    /// ([`crate::ring::TakingFile`]), and a pipe into which a byte comes where there is something to read ([`crate::shared::Bell`]).
    Subscribed(Subscribed),
    /// To [`super::Request::Numbers`], in as many parts as it takes.
    Numbers {
        /// Whether more follows.
        part: Part,
        /// The events that are open now.
        #[serde(deserialize_with = "at_most::<_, _, PART_NUMBERS>")]
        numbers: Vec<EventNumber>,
    },
}

/// A subscription that is open, and off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subscribed {
    /// Its name.
    pub handle: Handle,
    /// Bytes of its ring.
    pub ring_bytes: u64,
}

/// An event of the kernel that writes into a subscription's ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct EventNumber {
    /// Which of [`super::Subscribe::attrs`].
    pub event: u32,
    /// On which CPU it is.
    pub cpu: u32,
    /// Its number (`PERF_EVENT_IOC_ID`).
    pub number: u64,
}

/// What a client may expect.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u16,
    /// Another number at each start of the service: handles of one mean nothing in another.
    pub epoch: u64,
    /// How much a client may ask for.
    pub limits: Limits,
    /// What this one may.
    pub rights: Rights,
    /// The page, whose file is beside the reply.
    pub page: Option<ServedPage>,
}

/// How much a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Events that it may have open.
    pub events: u32,
    /// Requests in a second; more are answered later.
    pub requests_per_second: u32,
}

/// What a client may. The service says so for the client's convenience, and checks all the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Rights {
    /// Whether it can be given files.
    pub files: bool,
    /// Whether it may count whole CPUs.
    pub system_wide: bool,
    /// Whether its numbers of tasks name the same tasks here.
    pub tasks: bool,
}

/// The page of a client: see [`crate::shared::page`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ServedPage {
    /// How many entries it has.
    pub entries: u32,
    /// How often the service writes what its events have counted, in milliseconds; 0 where it doesn't.
    pub refresh_ms: u32,
}

/// A group that is open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Its events, in the order in which they were asked for.
    #[serde(deserialize_with = "at_most::<_, _, GROUP_EVENTS>")]
    pub handles: Vec<Handle>,
    /// The entry of the page for each; empty without a page.
    #[serde(deserialize_with = "at_most::<_, _, GROUP_EVENTS>")]
    pub entries: Vec<u32>,
    /// The files beside the reply: which of the events each of them tells of. Empty where the client gets none; never only
    /// some of the events.
    #[serde(deserialize_with = "at_most::<_, _, PACKET_FILES>")]
    pub files: Vec<PassedFile>,
}

/// A file of the kernel beside a reply.
///
/// What a read of it brings is the service's own count, for identical requests. What of it belongs to an event is in
/// the entry of the page ([`crate::shared::page::Base`]), as long as that has the same number for the file.
///
/// A file without places tells of nothing that another one doesn't tell: it is the file of an event that is read with its
/// leader's, and to be held so that the event lives on when the service dies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PassedFile {
    /// Its number in the entries of the page, from [`crate::shared::page::FIRST_FILE`] on.
    pub number: u64,
    /// The bits of `read_format` that it was opened with.
    pub read_format: u64,
    /// How many values a read brings, at least 1.
    pub values: u32,
    /// Which of the events are among them.
    #[serde(deserialize_with = "at_most::<_, _, GROUP_EVENTS>")]
    pub places: Vec<ValueIndex>,
}

/// Where one event is in what a file says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ValueIndex {
    /// Which of [`Opened::handles`].
    pub event: u32,
    /// Which of the values.
    pub value: u32,
}

/// What an event had counted, and when.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct TimedTotals {
    /// What it had counted.
    pub totals: Totals,
    /// When that was read, on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// Whether a text goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Part {
    /// It does.
    More,
    /// This is its end.
    Last,
}

/// Why not. The same in every version; what kinds there are is not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Which event of the group, or which handle of the request; 0 where that says nothing.
    pub index: u32,
    /// The number of the error on Linux, never 0.
    pub errno: i32,
    /// Whose refusal it is: a number, so that any version can read it. See [`Refusal::kind`].
    pub by: u16,
    /// A sentence for people: what was wrong, and what to do.
    #[serde(deserialize_with = "bounded_text::<_, SENTENCE_BYTES>")]
    pub text: String,
}

/// Whose refusal it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum RefusalKind {
    /// The versions don't fit.
    Version = 1,
    /// The request makes no sense: unknown handle, broken attribute, out of order.
    Request = 2,
    /// The service doesn't allow this to this client.
    Rights = 3,
    /// The client has as much as it may, or the service has.
    Limit = 4,
    /// The service does this for no client: the client should do it itself.
    NotShared = 5,
    /// The kernel refused it to the service.
    Kernel = 6,
    /// The service is about to stop.
    Stopping = 7,
    /// Something that this version has no word for.
    Other = 0,
}

impl Refusal {
    /// A refusal; a sentence that is too long is cut.
    #[must_use]
    pub fn new(kind: RefusalKind, index: u32, errno: i32, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let end = (0..=SENTENCE_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or_default());
        Self { index, errno, by: kind as u16, text }
    }

    /// Whose refusal it is.
    #[must_use]
    pub const fn kind(&self) -> RefusalKind {
        match self.by {
            1 => RefusalKind::Version,
            2 => RefusalKind::Request,
            3 => RefusalKind::Rights,
            4 => RefusalKind::Limit,
            5 => RefusalKind::NotShared,
            6 => RefusalKind::Kernel,
            7 => RefusalKind::Stopping,
            _ => RefusalKind::Other,
        }
    }
}

/// What the service tells of its own accord.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// The files of these groups tell of something else now; [`super::Request::Renew`] brings others. Until then
    /// [`super::Request::Read`] is right, and the entries of the page say that the files aren't.
    Moved {
        /// Their leaders.
        #[serde(deserialize_with = "at_most::<_, _, REQUEST_HANDLES>")]
        handles: Vec<Handle>,
    },
    /// These don't count any more; what they had counted can still be read.
    Lost {
        /// Which.
        #[serde(deserialize_with = "at_most::<_, _, REQUEST_HANDLES>")]
        handles: Vec<Handle>,
        /// Why.
        #[serde(deserialize_with = "bounded_text::<_, SENTENCE_BYTES>")]
        why: String,
    },
    /// The client doesn't take its answers and is cut off.
    Slow {
        /// A sentence.
        #[serde(deserialize_with = "bounded_text::<_, SENTENCE_BYTES>")]
        text: String,
    },
    /// The service stops.
    Bye {
        /// A sentence.
        #[serde(deserialize_with = "bounded_text::<_, SENTENCE_BYTES>")]
        text: String,
    },
}
