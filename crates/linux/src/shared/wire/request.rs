//! What a client says.
//!
//! **Invariant:** see the module above.

use super::codec::{at_most, bounded_lists, bounded_text};
use super::{
    ATTR_BYTES, CGROUP_PATH_BYTES, GROUP_EVENTS, Handle, NAME_BYTES, REQUEST_HANDLES, SCOPE_NUMBERS, SUBSCRIBED_EVENTS,
};
use serde::{Deserialize, Serialize};

/// A request. New ones are added at the end, in a new version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first one of a client, and only that. Answer: [`super::Reply::Welcome`], with the page's file where it has one.
    Hello(Hello),
    /// Opens a group whole, or nothing of it. Answer: [`super::Reply::Opened`].
    Open(Open),
    /// Does something to one event, or to all of a group. Answer: [`super::Reply::Done`], when it is done and the page says so.
    Control {
        /// The event; for what concerns a group, its leader.
        handle: Handle,
        /// What is to be done.
        op: EventOp,
    },
    /// Reads events, those of one group at one moment. Answer: [`super::Reply::Values`].
    Read {
        /// Which.
        #[serde(deserialize_with = "at_most::<_, _, REQUEST_HANDLES>")]
        handles: Vec<Handle>,
    },
    /// Asks anew for the files of a group, after [`super::Notice::Moved`]. Answer: [`super::Reply::Opened`] with what holds now.
    Renew {
        /// The leader.
        handle: Handle,
    },
    /// Closes events. A group goes with its leader. Answer: [`super::Reply::Done`].
    Close {
        /// Which.
        #[serde(deserialize_with = "at_most::<_, _, REQUEST_HANDLES>")]
        handles: Vec<Handle>,
    },
    /// Asks how the service is. Answer: any number of [`super::Reply::StatusReport`].
    Status {
        /// How much of it.
        detail: Detail,
    },
    /// Asks whether the service answers. Answer: [`super::Reply::Done`].
    Ping,
    /// Asks for so many times as many turns. Clients of the versions 2 to 4 may send it, and its place in this list is taken. Answer:
    /// [`super::Reply::Refused`].
    Weigh {
        /// How many times.
        weight: u16,
    },
    /// Asks for the records of events, in a ring of the client's own. Since version [`super::RECORDS_SINCE`], as the next one.
    /// Answer: [`super::Reply::Subscribed`], with the ring's files.
    ///
    /// It is off at first; what switches and closes events switches and closes it, by its one handle.
    Subscribe(Subscribe),
    /// Asks which event of the kernel has which number in the records. A client that meets a number that it doesn't know asks: CPUs
    /// that come back have events with new ones. Answer: any number of [`super::Reply::Numbers`].
    Numbers {
        /// The subscription.
        handle: Handle,
    },
    /// As [`Request::Open`], of the tasks of a cgroup. Since version [`super::CGROUPS_SINCE`].
    OpenCgroup(OpenCgroup),
}

/// A group of events of a cgroup that is to be opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenCgroup {
    /// What is to be opened, with [`Narrowing::Cgroup`].
    pub open: Open,
    /// The cgroup.
    pub cgroup: CgroupName,
}

/// A cgroup, named so that nothing has to be passed: the service opens its folder by itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CgroupName {
    /// The device of its file system (`st_dev`).
    pub device: u64,
    /// The number of its folder (`st_ino`).
    pub inode: u64,
    /// Its path below the mount, for a service that may not open files by number.
    #[serde(deserialize_with = "bounded_text::<_, CGROUP_PATH_BYTES>")]
    pub path: String,
}

/// How a client introduces itself. The same in every version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest version that it speaks.
    pub oldest_version: u16,
    /// The newest one.
    pub newest_version: u16,
    /// What it calls itself, for people. Who it is says the kernel.
    #[serde(deserialize_with = "bounded_text::<_, NAME_BYTES>")]
    pub name: String,
    /// The inode of its `/proc/self/ns/pid`: where that is not the service's, its numbers of tasks name others.
    pub pid_namespace: u64,
}

/// A group to be opened, all disabled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Open {
    /// Whose events are counted.
    pub context: Context,
    /// Which part of them.
    pub narrowing: Narrowing,
    /// The bytes of `perf_event_attr`, the leader's first; [`pmux_abi::attr::Attr::decode`] reads them.
    ///
    /// An attribute of the PMUs `kprobe` and `uprobe` may hold an address in its opener's memory. It means nothing to
    /// the service, which must refuse it: the kernel would read the service's own memory there.
    #[serde(deserialize_with = "bounded_lists::<_, GROUP_EVENTS, ATTR_BYTES>")]
    pub attrs: Vec<Vec<u8>>,
    /// Whether the kernel's files are wanted.
    pub files: OptIn,
    /// Whether entries of the page are wanted. Without them no files are passed.
    pub entries: OptIn,
}

/// Records that are to be written into one ring.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Subscribe {
    /// Where events are opened.
    pub scope: Scope,
    /// The bytes of `perf_event_attr` of each event, as in [`Open::attrs`]; each stands for itself.
    #[serde(deserialize_with = "bounded_lists::<_, SUBSCRIBED_EVENTS, ATTR_BYTES>")]
    pub attrs: Vec<Vec<u8>>,
    /// Bytes of the ring: a power of two.
    pub ring_bytes: u64,
    /// The bell is rung with each so many bytes, at most half of the ring.
    pub wake_bytes: u64,
}

/// Where events are opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Scope {
    /// On these CPUs; on all, and those that come, where none is named.
    Cpus(#[serde(deserialize_with = "at_most::<_, _, SCOPE_NUMBERS>")] Vec<u32>),
    /// On these threads, on each CPU.
    Tasks(#[serde(deserialize_with = "at_most::<_, _, SCOPE_NUMBERS>")] Vec<u32>),
}

/// Whose events are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Context {
    /// A thread's, by its id.
    Task(u32),
    /// A CPU's, by its number.
    Cpu(u32),
}

/// Which part of a context is meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Narrowing {
    /// All of it.
    Everything,
    /// A thread's time on this CPU.
    OnCpu(u32),
    /// A CPU's time with the tasks of a cgroup: see [`OpenCgroup`].
    Cgroup,
}

/// Whether a client wants something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum OptIn {
    /// It does, where it may have it.
    Wanted,
    /// It has no use for it.
    Unwanted,
}

/// What is to be done to an event. The events of other clients notice nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventOp {
    /// Let it count from now on. A group's other events wait for its leader. A subscription that is on is given what the kernel has
    /// written by now.
    Enable,
    /// Let it stop.
    Disable,
    /// Set its count to 0; its times go on.
    Reset,
    /// Let all of its group count from now on.
    EnableGroup,
    /// Let all of its group stop.
    DisableGroup,
    /// Let it count what this attribute says from now on, its count going on: only breakpoints.
    Modify(#[serde(deserialize_with = "at_most::<_, _, ATTR_BYTES>")] Vec<u8>),
}

/// How much is asked of the state of the service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Detail {
    /// Numbers for the whole.
    Summary,
    /// Every client with its questions.
    Full,
}
