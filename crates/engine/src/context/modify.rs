//! An event comes to count something else.
//!
//! What it is: a slot that an event keeps is told by the bank's [`crate::pmu::CounterBank::modify`]; a scarce one is given back
//! and programmed anew, perhaps on another counter, in one step.
//!
//! **Invariant:** an event that the bank refuses to change counts what it counted, and goes on.
//!
//! Linux: `perf_event_modify_attr`, `PERF_EVENT_IOC_MODIFY_ATTRIBUTES` (kernel/events/core.c).

use super::{Context, EventKey, Order, Step};
use crate::event::{EventState, ModifyState};
use crate::pmu::{BankError, Delegated, EventSpec, Slots};
use alloc::sync::Arc;

impl Context {
    /// Lets an event count what `spec` says from now on; its count and its times go on.
    pub fn modify(&mut self, key: EventKey, spec: &EventSpec, step: Step<'_>) {
        let Some(member) = self.members.get_mut(key) else { return };
        member.change = ModifyState::Done;
        let slots = member.caps().slots;
        match (slots, member.lease) {
            _ if member.state() == EventState::Dead => member.change = ModifyState::Refused(BankError::NoSuchTask),
            (Slots::Scarce(_), _) if member.delegates(Delegated::PREPARATION) => {
                member.change = ModifyState::Refused(BankError::NotSupported);
            }
            (Slots::Plenty, Some(lease)) => {
                let before = core::mem::replace(&mut member.spec, Arc::new(*spec));
                member.change = ModifyState::UnderWay(before);
                self.order(slots, Order::Modify { member: key, lease });
            }
            _ => {
                let group = member.group;
                if self.is_leader(key, group) {
                    self.displace(group, step);
                } else if self.is(key, EventState::Active) {
                    self.deactivate(key, EventState::Inactive, step);
                }
                if let Some(member) = self.members.get_mut(key) {
                    member.spec = Arc::new(*spec);
                }
                self.fill_group(group, step);
            }
        }
    }

    pub(super) fn modified(&mut self, key: EventKey, answer: Result<(), BankError>) {
        let Some(member) = self.members.get_mut(key) else { return };
        let ModifyState::UnderWay(before) = core::mem::take(&mut member.change) else { return };
        if let Err(error) = answer {
            member.spec = before;
            member.change = ModifyState::Refused(error);
        }
    }
}
