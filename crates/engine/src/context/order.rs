//! Orders for the bank, and what comes back.
//!
//! What it is: the effects of the context's steps, carried out by the engine one after the other.
//!
//! **Invariant:** an order holds a lease; when it is carried out after the lease went stale, it does nothing.

use super::slots::SlotTable;
use super::{Context, Ctx, EventKey, GroupKey, Step};
use crate::event::{EventState, Fault};
use crate::pmu::{BankError, Lease, Program, SlotReading, SlotTime, Slots};
use alloc::vec::Vec;

/// One thing for the bank to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Get what the member needs from the beginning.
    Prepare {
        /// The event.
        member: EventKey,
    },
    /// Let go of what was prepared.
    Dismiss {
        /// The event, which may be detached.
        member: EventKey,
    },
    /// Program the slot for the member.
    Program {
        /// The event.
        member: EventKey,
        /// Its slot.
        lease: Lease,
        /// The leader of its group, where that is another event.
        leader: Option<EventKey>,
    },
    /// Let the slot count.
    Start {
        /// The event.
        member: EventKey,
        /// Its slot.
        lease: Lease,
    },
    /// Stop the slot.
    Stop {
        /// Its slot.
        lease: Lease,
    },
    /// Read the slot.
    Read {
        /// The event.
        member: EventKey,
        /// Its slot.
        lease: Lease,
    },
    /// Read all slots of a group.
    ReadGroup {
        /// The group.
        group: GroupKey,
    },
    /// Set the count to 0; nothing for the bank.
    Forget {
        /// The event.
        member: EventKey,
    },
    /// Let the slot count what the member counts now.
    Modify {
        /// The event.
        member: EventKey,
        /// Its slot.
        lease: Lease,
    },
    /// Give the slot back.
    Release {
        /// The event.
        member: EventKey,
        /// Its slot.
        lease: Lease,
    },
    /// Let the running slot of a task that leaves go on for one that comes: see [`super::CpuContext`].
    HandOver {
        /// The event of the task that leaves.
        from: EventKey,
        /// Its slot.
        old: Lease,
        /// The event of the task that comes.
        to: EventKey,
        /// Its slot, which is the same.
        new: Lease,
    },
}

/// An order, and for which of a core's contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Whose order it is.
    pub side: Ctx,
    /// What is to be done.
    pub order: Order,
}

/// What the bank is told; what is too large for here is in the [`Batch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing to do for the bank.
    Nothing,
    /// Prepare the next of [`Batch::programs`], of the group that this event leads.
    Prepare(EventKey),
    /// Let go of what was prepared for this.
    Dismiss(EventKey),
    /// Program this with the next of [`Batch::programs`].
    Program(Lease),
    /// Let this count the next of [`Batch::programs`].
    Modify(Lease),
    /// Start this.
    Start(Lease),
    /// Stop this.
    Stop(Lease),
    /// Read this.
    Read(Lease),
    /// Read [`Batch::leases`] at one moment.
    ReadGroup,
    /// Release this.
    Release(Lease),
    /// Let this go on as that.
    HandOver(Lease, Lease),
}

impl Outcome {
    /// The slot that it is about.
    #[must_use]
    pub const fn lease(self) -> Option<Lease> {
        match self {
            Self::Program(lease)
            | Self::Modify(lease)
            | Self::Start(lease)
            | Self::Stop(lease)
            | Self::Read(lease)
            | Self::Release(lease)
            | Self::HandOver(lease, _) => Some(lease),
            Self::Nothing | Self::ReadGroup | Self::Prepare(_) | Self::Dismiss(_) => None,
        }
    }
}

/// What the bank answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// It did as told.
    Done,
    /// It refused.
    Refused(BankError),
    /// One reading.
    Reading(SlotReading),
    /// The readings of a group are in [`Batch::readings`].
    Readings,
    /// A slot could not be handed over: it was stopped, read and released instead.
    Returned(SlotReading),
}

/// The large parts of orders and their answers; kept from order to order, so that reading does not allocate.
#[derive(Debug, Default)]
pub struct Batch {
    /// What to program, in the order of the jobs that say so.
    pub programs: Vec<Program>,
    /// The slots of a group.
    pub leases: Vec<Lease>,
    /// Their readings.
    pub readings: Vec<SlotReading>,
    members: Vec<EventKey>,
}

impl Batch {
    /// Makes room for a reading of a group of so many events.
    pub fn reserve_group(&mut self, events: usize) {
        self.members.reserve(events);
        self.leases.reserve(events);
        self.readings.reserve(events);
    }
}

impl Context {
    /// Turns an order into what the bank is told; `table` is where the slots of the order are kept.
    pub(super) fn prepare(&mut self, order: Order, table: &mut SlotTable, batch: &mut Batch) -> Outcome {
        match order {
            Order::Prepare { member } => self.prepare_event(member, batch),
            Order::Dismiss { member } => Outcome::Dismiss(member),
            Order::Program { member, lease, leader } => self.prepare_program(member, lease, leader, table, batch),
            // A slot whose programming was refused has no lease any more.
            Order::Start { member, lease } => match self.members.get(member) {
                Some(member) if member.lease == Some(lease) && table.is_programmed(lease) => Outcome::Start(lease),
                _ => Outcome::Nothing,
            },
            Order::Stop { lease } if table.is_programmed(lease) => Outcome::Stop(lease),
            // An event that was detached has no client that could be told.
            Order::Read { member, lease } if self.holds(member, lease) => Outcome::Read(lease),
            Order::Modify { member, lease } => self.prepare_modify(member, lease, batch),
            Order::ReadGroup { group } => self.prepare_read_group(group, batch),
            Order::Release { member, lease } => {
                if let Some(member) = self.members.get_mut(member)
                    && member.programmed == Some(lease)
                {
                    member.programmed = None;
                }
                if table.unprogrammed(lease) { Outcome::Release(lease) } else { Outcome::Nothing }
            }
            Order::Stop { .. } | Order::Read { .. } | Order::Forget { .. } | Order::HandOver { .. } => Outcome::Nothing,
        }
    }

    /// Whether this slot is still meant for this event.
    fn plans(&self, member: EventKey, lease: Lease) -> bool {
        self.members.get(member).is_some_and(|member| member.lease == Some(lease))
    }

    fn counts_with(&self, member: EventKey, lease: Lease) -> bool {
        self.members.get(member).is_some_and(|member| member.counts_with(lease))
    }

    /// Whether the bank holds this slot for this event.
    fn holds(&self, member: EventKey, lease: Lease) -> bool {
        self.members.get(member).is_some_and(|member| member.programmed == Some(lease))
    }

    fn prepare_event(&self, event: EventKey, batch: &mut Batch) -> Outcome {
        let Some(member) = self.members.get(event) else { return Outcome::Nothing };
        let Some(leader) = self.member_at(member.group, 0) else { return Outcome::Nothing };
        let (spec, filter, group_size) = (*member.spec, member.filter, self.group_len(member.group));
        batch.programs.push(Program { event, spec, filter, leader: None, group_size, start: 0 });
        Outcome::Prepare(leader)
    }

    fn prepare_program(
        &mut self,
        key: EventKey,
        lease: Lease,
        leader: Option<EventKey>,
        table: &mut SlotTable,
        batch: &mut Batch,
    ) -> Outcome {
        let leader = leader.and_then(|key| self.members.get(key)?.programmed);
        let group_size = self.members.get(key).map_or(1, |member| self.group_len(member.group));
        match self.members.get_mut(key) {
            // An order may be waiting when its group is detached.
            Some(member) if member.lease == Some(lease) => {
                member.programmed = Some(lease);
                let (spec, filter, start) = (*member.spec, member.filter, member.start());
                batch.programs.push(Program { event: key, spec, filter, leader, group_size, start });
                table.programmed(lease);
                Outcome::Program(lease)
            }
            _ => Outcome::Nothing,
        }
    }

    fn prepare_modify(&self, event: EventKey, lease: Lease, batch: &mut Batch) -> Outcome {
        let Some(member) = self.members.get(event).filter(|member| member.programmed == Some(lease)) else {
            return Outcome::Nothing;
        };
        let (spec, filter, group_size) = (*member.spec, member.filter, self.group_len(member.group));
        batch.programs.push(Program { event, spec, filter, leader: None, group_size, start: 0 });
        Outcome::Modify(lease)
    }

    fn prepare_read_group(&self, group: GroupKey, batch: &mut Batch) -> Outcome {
        batch.members.clear();
        batch.leases.clear();
        batch.readings.clear();
        for &key in self.groups.get(group).map(|group| &group.members[..]).unwrap_or_default() {
            if let Some(lease) = self.members.get(key).and_then(|member| member.programmed) {
                batch.members.push(key);
                batch.leases.push(lease);
                batch.readings.push(SlotReading { raw: 0, time: SlotTime::Whole });
            }
        }
        if batch.leases.is_empty() { Outcome::Nothing } else { Outcome::ReadGroup }
    }

    /// Takes the bank's answer to an order.
    pub(super) fn complete(&mut self, order: Order, report: Report, batch: &Batch, step: Step<'_>) {
        match (order, report) {
            (Order::Modify { member, .. }, Report::Refused(error)) => self.modified(member, Err(error)),
            (Order::Modify { member, .. }, _) => self.modified(member, Ok(())),
            (Order::Prepare { member }, Report::Refused(error)) => {
                if let Some(member) = self.members.get_mut(member) {
                    member.fault = Some(Fault::Refused(error));
                }
            }
            (Order::Program { member, lease, .. }, Report::Refused(error)) => {
                self.program_refused(member, lease, error, step);
            }
            (Order::Start { member, lease }, Report::Refused(error)) if self.plans(member, lease) => {
                self.refuse(member, error, step);
            }
            (Order::Program { member, lease, .. }, _) => {
                if let Some(member) = self.members.get_mut(member) {
                    member.begin(lease);
                }
            }
            (Order::Read { member, lease }, Report::Reading(reading)) => {
                if let Some(member) = self.members.get_mut(member) {
                    member.fold(lease, reading, step.now);
                }
            }
            (Order::Read { member, lease }, Report::Refused(error)) if self.counts_with(member, lease) => {
                self.reading_refused(member, error, step);
            }
            (Order::ReadGroup { .. }, Report::Readings) => {
                for ((&key, &lease), &reading) in batch.members.iter().zip(&batch.leases).zip(&batch.readings) {
                    if let Some(member) = self.members.get_mut(key) {
                        member.fold(lease, reading, step.now);
                    }
                }
            }
            (Order::ReadGroup { .. }, Report::Refused(error)) => {
                for &key in &batch.members {
                    self.reading_refused(key, error, step);
                }
            }
            // What could not be read before would come back with the next reading: then nothing is forgotten. Where the
            // slot is gone, so is what it held.
            (Order::Forget { member }, _) => {
                if let Some(member) = self.members.get_mut(member) {
                    match member.fault {
                        Some(Fault::Unread(_)) if member.lease.is_some() => {}
                        Some(Fault::Unread(_)) => {
                            member.fault = None;
                            member.reset();
                        }
                        _ => member.reset(),
                    }
                }
            }
            _ => {}
        }
    }

    fn program_refused(&mut self, key: EventKey, lease: Lease, error: BankError, step: Step<'_>) {
        let Some(slots) = self.members.get(key).map(|member| member.caps().slots) else { return };
        let Some(member) = self.members.get_mut(key) else { return };
        member.programmed = None;
        // The member may have been taken off meanwhile: then its lease is given back already.
        if member.lease == Some(lease) {
            member.lease = None;
            self.table(slots).give_back(lease, slots);
            self.refuse(key, error, step);
        }
    }

    pub(crate) fn reading_refused(&mut self, key: EventKey, error: BankError, step: Step<'_>) {
        let Some(member) = self.members.get_mut(key) else { return };
        if error == BankError::Unscheduled && member.state() == EventState::Active {
            self.fail(key, error, step);
        } else if member.fault.is_none() {
            member.fault = Some(Fault::Unread(error));
        }
    }

    /// The bank refused to program or to start the slot that an event has: the group leaves the counters with the event.
    fn refuse(&mut self, key: EventKey, error: BankError, step: Step<'_>) {
        let Some(member) = self.members.get_mut(key) else { return };
        member.fault = Some(Fault::Refused(error));
        if member.state() != EventState::Active {
            return;
        }
        let held_for_life = member.caps().slots == Slots::Plenty;
        let group = member.group;
        if self.groups.get(group).is_some_and(|group| group.demand.pinned) {
            self.fail_group(group, error, step);
        } else if held_for_life {
            // A slot that is held from open to close never comes back by itself. The others go on without it.
            self.fail(key, error, step);
            self.displace(group, step);
        } else {
            // A scarce slot may be had another time.
            self.deactivate(key, EventState::Inactive, step);
            self.displace(group, step);
        }
        // No group has been given a slot, but the group itself may go on again.
        self.cpu_pmu.freed = true;
    }
}
