//! What counts, as the service sees it.
//!
//! **Invariant:** nothing here knows a connection.

use super::streaming::Streaming;
use crate::rights::{Denied, Grant, Membership};
use pmux::abi::Attr;
use pmux::server_api::shared::wire::{CgroupName, Handle, PassedFile, Refusal, RefusalKind, TimedTotals};
use pmux::server_api::{Closing, EventAction, Peer, ServeError};
use std::fmt;

/// Whose events a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A thread's.
    Task(u32),
    /// A thread's on a CPU.
    TaskOnCpu(u32, u32),
    /// A CPU's.
    Cpu(u32),
    /// Those of a cgroup on a CPU.
    Cgroup(u32),
}

impl Target {
    /// The thread that is meant, if it is one.
    #[must_use]
    pub const fn task(self) -> Option<u32> {
        match self {
            Self::Task(task) | Self::TaskOnCpu(task, _) => Some(task),
            Self::Cpu(_) | Self::Cgroup(_) => None,
        }
    }

    /// The CPU that it is bound to, if any.
    #[must_use]
    pub const fn cpu(self) -> Option<u32> {
        match self {
            Self::Task(_) => None,
            Self::TaskOnCpu(_, cpu) | Self::Cpu(cpu) | Self::Cgroup(cpu) => Some(cpu),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(task) => write!(f, "task {task}"),
            Self::TaskOnCpu(task, cpu) => write!(f, "task {task} on CPU {cpu}"),
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Cgroup(cpu) => write!(f, "a cgroup on CPU {cpu}"),
        }
    }
}

/// A client that asks for something that its rights decide about.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// What is known of it now.
    pub peer: &'a Peer,
    /// Whether a group of it is named in the configuration.
    pub membership: Membership,
}

/// Something that a client does not get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// By a rule of the service, for the event with this number.
    Denied(usize, Denied),
    /// The client lacks a right, by the kernel's own decision.
    Rights(ServeError),
    /// The client's opener did not answer in time: later it may.
    Late(ServeError),
    /// The kernel or the machine can't.
    Failed(ServeError),
}

impl From<ServeError> for Refused {
    fn from(failed: ServeError) -> Self {
        Self::Failed(failed)
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let of = |kind, ServeError { index, errno, text }| {
            Self::new(kind, u32::try_from(index).unwrap_or_default(), errno, text)
        };
        match refused {
            Refused::Denied(index, denied) => {
                let (kind, errno) = match denied.errno() {
                    0 => (RefusalKind::NotShared, super::errno::EOPNOTSUPP),
                    errno => (RefusalKind::Rights, errno),
                };
                of(kind, ServeError { index, errno, text: denied.to_string() })
            }
            Refused::Rights(failed) => of(RefusalKind::Rights, failed),
            Refused::Late(failed) => of(RefusalKind::Limit, failed),
            Refused::Failed(failed) => of(RefusalKind::Kernel, failed),
        }
    }
}

/// What counts.
pub trait Counting: Streaming {
    /// A group that is open.
    type Group;
    /// The page of a client.
    type Page;

    /// Whether a client may probably count whole CPUs: what it is told at its hello. Nothing is decided by it.
    fn may_count_cpus(&mut self, requester: Requester<'_>) -> bool;

    /// Whether the request that is tried has asked for something that is not known yet: it is refused now, and is to be tried again.
    fn is_waiting(&self) -> bool;

    /// Opens a group for a client, disabled, with the client's rights. `folder` is the cgroup's, with the process that passed it.
    ///
    /// # Errors
    /// [`Refused`]: then nothing is open.
    fn open(
        &mut self,
        requester: Requester<'_>,
        target: Target,
        cgroup: Option<(&CgroupName, &Peer)>,
        attrs: &[Attr],
    ) -> Result<(Self::Group, Grant), Refused>;

    /// Lets an event of a group count something else, with the client's rights as they are now.
    ///
    /// # Errors
    /// [`Refused`]: then it counts what it counted.
    fn modify(
        &mut self,
        requester: Requester<'_>,
        group: &mut Self::Group,
        index: usize,
        attr: &Attr,
    ) -> Result<(), Refused>;

    /// Does something to an event of a group.
    ///
    /// # Errors
    /// [`ServeError`].
    fn control(&mut self, group: &mut Self::Group, index: usize, action: EventAction) -> Result<(), ServeError>;

    /// Reads events of a group, at one moment where there are several; added to `out`.
    fn read(&mut self, group: &Self::Group, indices: &[usize], out: &mut Vec<Result<TimedTotals, i32>>);

    /// What the thread that closes events has been given, and what it has closed of it.
    fn closing(&self) -> Closing;

    /// How many files the service may still open.
    fn files_left(&self) -> u64;

    /// Closes a group.
    fn close(&mut self, group: Self::Group);

    /// Copies of the kernel's files of a group, which its client will hold. `None` where it can't be read so.
    fn files(&mut self, group: &mut Self::Group) -> Option<Vec<(PassedFile, Self::File)>>;

    /// Whether the client of a group holds files of it that tell of something else by now. Said once.
    fn has_moved(&mut self, group: &mut Self::Group) -> bool;

    /// Makes a page with so many entries, and the file that a client may read it by; `None` where that fails.
    fn page(&mut self, entries: u32) -> Option<(Self::Page, Self::File)>;

    /// What an attribute counts, for people.
    fn name(&mut self, attr: &Attr) -> String;

    /// The pages of all clients are written now: what is read from here on for one of them does for all.
    fn begin_round(&mut self);

    /// Writes into the entries of a page what a group has counted.
    fn publish(&mut self, page: &mut Self::Page, what: &Published<'_>, group: &mut Self::Group);

    /// An entry of a page belongs to no event any more.
    fn retract(&mut self, page: &mut Self::Page, entry: u32);
}

/// What stands in the page of a client for one of its groups.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// The entry of each event.
    pub entries: &'a [u32],
    /// The handle of the leader; the others follow it.
    pub leader: Handle,
    /// Whether its counters are asked.
    pub read_when: ReadWhen,
}

/// When the counters of a group are asked before its page is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadWhen {
    /// Now: something was done to it.
    Now,
    /// If they have not been asked since [`Counting::begin_round`].
    OnceARound,
}
