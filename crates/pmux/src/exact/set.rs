//! One group on many CPUs, which follows them as they come and go.
//!
//! **Invariant:** dropping it closes all that it has opened.

use super::{EventState, SetReading, Switchable};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::session::Session;
use pmux_engine::engine::SetRequest;
use pmux_engine::event_set::Member;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::{CpuId, GroupSpec, SetId};
use pmux_linux::cpus::Cpus;
use pmux_linux::diagnose::TargetKind;

/// A group that is open on CPUs.
pub struct ExactSet {
    set: Owned<SetId>,
}

impl ExactSet {
    pub(super) fn open(session: &Session, spec: &GroupSpec, cpus: Option<&[u32]>) -> Result<Self, Error> {
        let mask = match cpus {
            Some(cpus) => cpus.iter().copied().map(CpuId).collect(),
            // All that the machine may ever have.
            None => Cpus::system().possible().unwrap_or_else(|_| session.online()).iter().map(CpuId).collect(),
        };
        let request =
            SetRequest { groups: vec![spec.clone()], scope: SetScope::Everything, mask, absent: Absent::Await };
        let opened = session.hold_set(request).map(|set| Self { set });
        opened.map_err(|error| session.refused(error.error, spec, TargetKind::Cpu(error.cpu.0)))
    }

    /// All of it, for an event set.
    #[must_use]
    pub fn switchable(&self) -> Switchable {
        Switchable(Member::Set(*self.set))
    }

    /// Lets all events count on all CPUs.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn arm(&self) -> Result<(), Error> {
        Ok(self.set.session.engine().enable_set(*self.set)?)
    }

    /// Stops all events.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disarm(&self) -> Result<(), Error> {
        Ok(self.set.session.engine().disable_set(*self.set)?)
    }

    /// Sets all counts to 0; the times stay.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn reset(&self) -> Result<(), Error> {
        Ok(self.set.session.engine().reset_set(*self.set)?)
    }

    /// Reads all events on all CPUs, after CPUs that came or went were taken into account.
    ///
    /// # Errors
    /// [`Error::Read`]; each count has its own result.
    pub fn read(&self) -> Result<SetReading, Error> {
        self.set.session.follow_hotplug();
        Ok(self.set.session.engine().read_set(*self.set)?)
    }

    /// Where one of its events is in its life, on each CPU where it is open now.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn states(&self, index: usize) -> Result<Vec<(u32, EventState)>, Error> {
        self.read()?;
        let engine = self.set.session.engine();
        let mut states = Vec::new();
        for (cpu, events) in engine.set_events(*self.set)? {
            if let Some(&event) = events.get(index) {
                states.push((cpu.0, engine.state(event)?));
            }
        }
        Ok(states)
    }
}
