//! An open set comes to count on other CPUs.
//!
//! What it is: one step of a set, with its turn. What joins is reserved, opened and armed as when a set is opened (`sets`);
//! what leaves is folded and closed as when a CPU goes (`hotplug`).
//!
//! **Invariant:** reserve, then swap: nothing is given up before everything new counts. A change that was refused has left the
//! set as it was, and nothing anywhere else.

use super::sets::SetError;
use super::{Engine, Gate, Opened};
use crate::error::OpenError;
use crate::host::{Host, LockCell};
use crate::id::{CpuId, SetId};
use crate::system_wide::{Absent, CpuMask, SetState, SystemWideSet};
use alloc::vec::Vec;
use core::fmt;

/// Why a set is still on the CPUs that it was on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemaskError {
    /// The set is closed.
    Closed,
    /// A CPU that was to join.
    Refused(SetError),
}

impl RemaskError {
    /// The errno that Linux gives in this case.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Closed => 9,
            Self::Refused(error) => error.error.errno(),
        }
    }
}

impl fmt::Display for RemaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the set is closed"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RemaskError {}

/// The groups of a set on CPUs that join it.
type Joined = Vec<(CpuId, Vec<Opened>)>;

impl<H: Host> Engine<H> {
    /// Moves a set to the CPUs of another mask. On CPUs that are in both it counts on; on those that join it counts at once if it
    /// is armed; those that leave are closed when all that join count, and what they have counted stays in the set's readings, as
    /// their time does in its coverage.
    ///
    /// With [`Absent::Await`] a CPU that is offline joins all the same: it is counted from when it comes.
    ///
    /// # Errors
    /// Then everything is as it was. Checked in this order: [`RemaskError::Closed`]; CPUs that join, are not there and must be;
    /// whether there are debug registers on all CPUs that join, unless the host decides that; then the first refusal to open with its
    /// CPU, in ascending order of CPUs, and the first refusal to count. Who holds the registers says [`Engine::holders`].
    pub fn remask(&self, set: SetId, mask: &CpuMask, absent: Absent) -> Result<(), RemaskError> {
        let remask = |state: &mut SystemWideSet| self.remask_in_turn(set, state, mask, absent);
        match self.with_set(set, remask) {
            Some(result) => result.map_err(RemaskError::Refused),
            None => Err(RemaskError::Closed),
        }
    }

    fn remask_in_turn(
        &self,
        id: SetId,
        set: &mut SystemWideSet,
        mask: &CpuMask,
        absent: Absent,
    ) -> Result<(), SetError> {
        let without =
            |one: &CpuMask, other: &CpuMask| -> CpuMask { one.iter().filter(|&cpu| !other.contains(cpu)).collect() };
        let (joining, leaving) = (without(mask, &set.mask), without(&set.mask, mask));
        let joined = match self.join(id, set, &joining, absent) {
            Ok(joined) => joined,
            Err(error) => {
                self.mean(id, &set.mask);
                return Err(error);
            }
        };
        // All that could refuse has been asked.
        self.admit(id, joined.iter().flat_map(|(_, groups)| groups));
        let now = self.host.now();
        joining.iter().for_each(|cpu| set.join(cpu, now));
        for (cpu, groups) in joined {
            set.online(cpu, Ok(groups), now);
        }
        for cpu in leaving.iter() {
            self.near(cpu, || {
                let last = set.cpus.get(&cpu).map(|state| self.last_counts(&state.groups)).unwrap_or_default();
                let gone = set.leave(cpu, &last, self.host.now());
                self.close_all(gone);
            });
        }
        self.mean(id, &set.mask);
        Ok(())
    }

    /// Opens a set on more CPUs, and has it count there if it counts; on all that are there, or on none.
    fn join(&self, id: SetId, set: &SystemWideSet, joining: &CpuMask, absent: Absent) -> Result<Joined, SetError> {
        // From here on hotplug waits for the set's turn with these CPUs as well.
        let online = self.registry.with(|registry| {
            if let Some(record) = registry.sets.get_mut(id) {
                joining.iter().for_each(|cpu| record.meant.insert(cpu));
            }
            registry.online.clone()
        });
        let here: CpuMask = joining.iter().filter(|&cpu| online.contains(cpu)).collect();
        if let Some(cpu) = joining.iter().find(|&cpu| absent == Absent::Refuse && !here.contains(cpu)) {
            return Err(SetError { cpu, group: 0, error: OpenError::CpuOffline { cpu } });
        }
        let mut asked = self.reserve_set(&set.plans, (set.scope, set.domain), &here)?.map(Vec::into_iter);
        let counts = set.state == SetState::Armed;
        let gate = if counts { Gate::Closed } else { Gate::With(id) };
        // It went away just now: as good as not there.
        let gone = |cpu| absent == Absent::Await && !self.is_online(cpu);
        let mut joined = Joined::with_capacity(here.len());
        let mut refused = None;
        for cpu in here.iter() {
            match self.open_on(cpu, set, gate, asked.as_mut().and_then(Iterator::next)) {
                Ok(groups) => joined.push((cpu, groups)),
                Err(_) if gone(cpu) => {}
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if counts && refused.is_none() {
            refused = joined.iter().find_map(|(cpu, groups)| self.arm_on(*cpu, groups).err().filter(|_| !gone(*cpu)));
        }
        match refused {
            None => Ok(joined),
            Some(error) => {
                self.close_all(joined.into_iter().flat_map(|(_, groups)| groups));
                Err(error)
            }
        }
    }

    /// The CPUs whose coming and going concerns a set.
    fn mean(&self, set: SetId, mask: &CpuMask) {
        self.registry.with(|registry| {
            if let Some(record) = registry.sets.get_mut(set) {
                record.meant.clone_from(mask);
            }
        });
    }
}
