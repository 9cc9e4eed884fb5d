//! What is closed with its owner.
//!
//! What it is: [`Owned`], whatever is open in a session; and [`OwnedGroup`], what all modules do with a group that say themselves what
//! is opened: [`crate::exact`] for this program, [`crate::server_api`] for another process. Each has errors of its own, made of the
//! engine's.
//!
//! **Invariant:** dropping it closes all that it has opened.

use crate::session::Session;
use pmux_engine::engine::{GroupHandle, GroupReading, SetError, SetRequest};
use pmux_engine::target::Opened;
use pmux_engine::{
    CgroupId, ControlError, Count, EventId, GroupId, GroupSpec, Nanos, OpenError, ReadError, SetId, Target,
};
use pmux_linux::cgroup::Cgroup;
use pmux_linux::host::{LinuxEngine, LinuxHost};
use std::ops::Deref;

/// Something that is open in a session, until this is dropped. A struct has it in front of what it must not outlive: the rings that it
/// writes into, the cgroup that it counts.
pub(crate) struct Owned<T: Closes> {
    pub(crate) session: Session,
    open: T,
}

/// What a session has to be told of when it is not needed any more.
pub(crate) trait Closes {
    fn close(&self, engine: &LinuxEngine);
}

impl Closes for Opened {
    fn close(&self, engine: &LinuxEngine) {
        engine.close(self.group);
    }
}

impl Closes for GroupId {
    fn close(&self, engine: &LinuxEngine) {
        engine.close(*self);
    }
}

impl Closes for SetId {
    fn close(&self, engine: &LinuxEngine) {
        engine.close_set(*self);
    }
}

impl Closes for CgroupId {
    fn close(&self, engine: &LinuxEngine) {
        engine.host().remove_cgroup(*self);
    }
}

impl<T: Closes> Owned<T> {
    pub(crate) fn new(session: &Session, open: T) -> Self {
        Self { session: session.clone(), open }
    }
}

impl<T: Closes> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.open
    }
}

impl<T: Closes> Drop for Owned<T> {
    fn drop(&mut self) {
        self.open.close(self.session.engine());
    }
}

impl Session {
    /// Opens a group, which is closed with what comes back.
    pub(crate) fn hold(&self, spec: &GroupSpec, target: Target) -> Result<Owned<Opened>, OpenError> {
        self.engine().open(spec, target).map(|opened| Owned::new(self, opened))
    }

    pub(crate) fn hold_set(&self, request: SetRequest) -> Result<Owned<SetId>, SetError> {
        self.engine().open_set(request).map(|set| Owned::new(self, set))
    }

    /// Makes a cgroup known, until what comes back is dropped.
    pub(crate) fn hold_cgroup(&self, cgroup: Cgroup) -> Owned<CgroupId> {
        Owned::new(self, self.engine().host().add_cgroup(cgroup))
    }
}

pub(crate) struct OwnedGroup {
    /// Reading is what is done most. It goes before the group.
    handle: Option<GroupHandle<LinuxHost>>,
    pub(crate) opened: Owned<Opened>,
}

impl OwnedGroup {
    pub(crate) fn new(session: &Session, opened: Opened) -> Self {
        Self { handle: session.engine().group_handle(opened.group), opened: Owned::new(session, opened) }
    }

    pub(crate) fn engine(&self) -> &LinuxEngine {
        self.opened.session.engine()
    }

    pub(crate) fn event(&self, index: usize) -> Result<EventId, ReadError> {
        self.opened.events.get(index).copied().ok_or(ReadError::Closed)
    }

    pub(crate) fn enable<E: From<ReadError> + From<ControlError>>(&self, index: usize) -> Result<(), E> {
        Ok(self.engine().enable(self.event(index)?)?)
    }

    pub(crate) fn disable<E: From<ReadError> + From<ControlError>>(&self, index: usize) -> Result<(), E> {
        Ok(self.engine().disable(self.event(index)?)?)
    }

    pub(crate) fn enable_all<E: From<ControlError>>(&self) -> Result<(), E> {
        Ok(self.engine().enable_group(self.opened.group)?)
    }

    pub(crate) fn disable_all<E: From<ControlError>>(&self) -> Result<(), E> {
        Ok(self.engine().disable_group(self.opened.group)?)
    }

    pub(crate) fn read(&self, index: usize) -> Result<Count, ReadError> {
        self.engine().read_by(self.handle()?, index)
    }

    /// Reads all events at one moment, added to `out`.
    pub(crate) fn read_all(&self, out: &mut GroupReading) -> Result<(), ReadError> {
        self.engine().read_group_by(self.handle()?, out)
    }

    pub(crate) fn read_cached(&self, index: usize) -> Result<(Count, Nanos), ReadError> {
        self.engine().read_cached_by(self.handle()?, index)
    }

    fn handle(&self) -> Result<&GroupHandle<LinuxHost>, ReadError> {
        self.handle.as_ref().ok_or(ReadError::Closed)
    }
}
