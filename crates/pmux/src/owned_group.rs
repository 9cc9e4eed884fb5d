//! A group that is closed with its owner.
//!
//! What it is: what all modules do with a group that say themselves what is opened: [`crate::exact`] for this program,
//! [`crate::server_api`] for another process. Each has errors of its own, made of the engine's.
//!
//! **Invariant:** dropping it closes all that it has opened.

use crate::session::Session;
use pmux_engine::engine::{GroupHandle, GroupReading};
use pmux_engine::target::Opened;
use pmux_engine::{ControlError, Count, EventId, Nanos, ReadError};
use pmux_linux::host::LinuxHost;

pub(crate) struct OwnedGroup {
    pub(crate) session: Session,
    pub(crate) opened: Opened,
    /// Reading is what is done most. `None` only while it is closed.
    handle: Option<GroupHandle<LinuxHost>>,
}

impl OwnedGroup {
    pub(crate) fn new(session: &Session, opened: Opened) -> Self {
        let handle = session.engine().group_handle(opened.group);
        Self { session: session.clone(), opened, handle }
    }

    pub(crate) const fn len(&self) -> usize {
        self.opened.events.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.opened.events.is_empty()
    }

    pub(crate) fn event(&self, index: usize) -> Result<EventId, ReadError> {
        self.opened.events.get(index).copied().ok_or(ReadError::Closed)
    }

    pub(crate) fn enable<E: From<ReadError> + From<ControlError>>(&self, index: usize) -> Result<(), E> {
        Ok(self.session.engine().enable(self.event(index)?)?)
    }

    pub(crate) fn disable<E: From<ReadError> + From<ControlError>>(&self, index: usize) -> Result<(), E> {
        Ok(self.session.engine().disable(self.event(index)?)?)
    }

    pub(crate) fn enable_all<E: From<ControlError>>(&self) -> Result<(), E> {
        Ok(self.session.engine().enable_group(self.opened.group)?)
    }

    pub(crate) fn disable_all<E: From<ControlError>>(&self) -> Result<(), E> {
        Ok(self.session.engine().disable_group(self.opened.group)?)
    }

    pub(crate) fn read(&self, index: usize) -> Result<Count, ReadError> {
        self.session.engine().read_by(self.handle()?, index)
    }

    /// Reads all events at one moment, added to `out`.
    pub(crate) fn read_all(&self, out: &mut GroupReading) -> Result<(), ReadError> {
        self.session.engine().read_group_by(self.handle()?, out)
    }

    pub(crate) fn read_cached(&self, index: usize) -> Result<(Count, Nanos), ReadError> {
        self.session.engine().read_cached_by(self.handle()?, index)
    }

    fn handle(&self) -> Result<&GroupHandle<LinuxHost>, ReadError> {
        self.handle.as_ref().ok_or(ReadError::Closed)
    }
}

impl Drop for OwnedGroup {
    fn drop(&mut self) {
        self.handle = None;
        self.session.engine().close(self.opened.group);
    }
}
