//! The debug registers of events: reserved before an event is opened, given back when it is closed.
//!
//! What it is: the engine's ledger, made when the first event claims a register, and what each group has reserved in it.
//! Read first: [`Ledger`], then `Engine::reserve`. What a reservation is good for is said by the host ([`Authority`]).
//!
//! **Invariant:** what a group has reserved goes back with the group's record, on every way out.

use super::Engine;
use super::open::Target;
use super::sets::SetError;
use crate::breakpoint::{
    Authority, Claim, Full, Holder, Holding, Ledger, Locks, Place, Refused, Reservation, Taken, Token,
};
use crate::context::{ContextKey, Filter};
use crate::error::OpenError;
use crate::event::NewMember;
use crate::group::Plan;
use crate::host::{Host, LockCell};
use crate::id::{CpuId, EventId, TaskId};
use crate::pmu::BankError;
use crate::system_wide::{CpuMask, SetScope};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;

/// The locks of a host, for its ledger.
pub struct HostLocks<H>(PhantomData<fn() -> H>);

impl<H: Host> Locks for HostLocks<H> {
    type Cell<T: Send> = H::TaskLock<T>;
}

/// How often the ledger and the host have not agreed. The host is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disagreements {
    /// The ledger had a register left, the host none: somebody whom the ledger doesn't know holds it.
    pub refused: u64,
    /// The ledger had none left, the host one.
    pub granted: u64,
}

/// The ledger, and what its word is good for.
pub(super) struct Registers<H: Host> {
    ledger: Arc<Ledger<HostLocks<H>>>,
    authority: Authority,
}

impl<H: Host> Clone for Registers<H> {
    fn clone(&self) -> Self {
        Self { ledger: Arc::clone(&self.ledger), authority: self.authority }
    }
}

/// What one event has reserved: given back when it is dropped.
pub(super) struct Held<H: Host> {
    ledger: Arc<Ledger<HostLocks<H>>>,
    /// There until it is dropped.
    reservation: Option<Reservation>,
}

/// What a group has reserved, by the number of the event.
pub(super) type Reserved<H> = Vec<(usize, Arc<Held<H>>)>;

impl<H: Host> Held<H> {
    fn new(ledger: &Arc<Ledger<HostLocks<H>>>, reservation: Reservation) -> Arc<Self> {
        Arc::new(Self { ledger: Arc::clone(ledger), reservation: Some(reservation) })
    }

    /// Says which event it is.
    pub(super) fn name(&self, event: EventId) {
        if let Some(reservation) = &self.reservation {
            self.ledger.name(reservation, Holder::Event(event));
        }
    }

    /// Lets it stand for another claim of the same event.
    pub(super) fn modify(&self, claim: Claim, target: Target) -> Result<(), Refused> {
        let reservation = self.reservation.as_ref().ok_or(Refused::Stale)?;
        self.ledger.modify(reservation, claim, place(target))
    }
}

impl<H: Host> Drop for Held<H> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.ledger.release(reservation);
        }
    }
}

/// What came of asking for registers.
pub(super) enum Asked<H: Host> {
    /// None are claimed, or nobody keeps account of them.
    Nothing,
    /// They are reserved.
    Granted(Reserved<H>),
    /// The ledger has none for this event of the group. The host may have.
    Refused(usize, Full),
}

/// The same for each group of a set, on one CPU.
pub(super) type OfGroups<H> = Vec<Asked<H>>;

impl<H: Host> Asked<H> {
    pub(super) fn reserved(self) -> Reserved<H> {
        match self {
            Self::Granted(reserved) => reserved,
            Self::Nothing | Self::Refused(..) => Vec::new(),
        }
    }
}

impl<H: Host> Engine<H> {
    /// Who holds which debug registers; `None` where the host keeps no account of them. Somebody who takes registers by another
    /// way than opening an event of the engine is made known by a reservation for [`Holder::Outside`].
    pub fn ledger(&self) -> Option<Arc<Ledger<HostLocks<H>>>> {
        self.registers().map(|registers| registers.ledger)
    }

    /// How often the ledger and the host have not agreed about a debug register so far.
    pub fn ledger_disagreements(&self) -> Disagreements {
        self.registry.with(|registry| registry.disagreements)
    }

    /// Who stands in the way of an event that found no debug register, as far as the ledger knows; see [`Ledger::holders`].
    pub fn holders(&self, full: &Full) -> Vec<Holding> {
        self.registers().map(|registers| registers.ledger.holders(full)).unwrap_or_default()
    }

    pub(super) fn registers(&self) -> Option<Registers<H>> {
        if let Some(known) = self.registers.with(|registers| registers.clone()) {
            return known;
        }
        // The host may have to try them out: without a lock. Where two threads do, the first one's ledger is taken.
        let found = self.host.debug_registers().map(|found| Registers {
            ledger: Arc::new(Ledger::new(found.registers, found.cpus)),
            authority: found.authority,
        });
        self.registers.with(|registers| registers.get_or_insert(found).clone())
    }

    /// Reserves what the events of a group claim, all or nothing.
    ///
    /// # Errors
    /// [`OpenError::DebugRegisters`] where the ledger decides.
    pub(super) fn reserve(&self, members: &[NewMember], target: Target) -> Result<Asked<H>, OpenError> {
        self.reserve_claims(&claims(members), target).map_err(known)
    }

    /// The same for claims, each of an event by number.
    ///
    /// # Errors
    /// Where the ledger decides: the first that it refuses.
    pub(super) fn reserve_claims(&self, claims: &[(usize, Claim)], target: Target) -> Result<Asked<H>, (usize, Full)> {
        let Some(registers) = (if claims.is_empty() { None } else { self.registers() }) else {
            return Ok(Asked::Nothing);
        };
        Self::reserve_in(&registers, claims, target)
    }

    /// The same for whoever knows the ledger already.
    pub(super) fn reserve_in(
        Registers { ledger, authority }: &Registers<H>,
        claims: &[(usize, Claim)],
        target: Target,
    ) -> Result<Asked<H>, (usize, Full)> {
        let Some((&(first, claim), more)) = claims.split_first() else { return Ok(Asked::Nothing) };
        let place = || place(target);
        let granted = if more.is_empty() {
            let granted = ledger.reserve(claim, place(), Holder::Opening);
            let held = granted.map(|token| alloc::vec![(first, Held::new(ledger, token.commit()))]);
            held.map_err(|refused| (first, refused))
        } else {
            let granted =
                ledger.reserve_all(claims.iter().map(|&(_, claim)| (claim, place(), Holder::Opening)).collect());
            let held = |tokens: Vec<_>| {
                let held = claims.iter().zip(tokens);
                held.map(|(&(index, _), token): (_, Token<'_, _>)| (index, Held::new(ledger, token.commit()))).collect()
            };
            granted
                .map(held)
                .map_err(|(which, refused)| (claims.get(which).map_or(first, |&(index, _)| index), refused))
        };
        match granted {
            Ok(reserved) => Ok(Asked::Granted(reserved)),
            Err((index, Refused::Full(full))) if *authority == Authority::Host => Ok(Asked::Refused(index, full)),
            Err((index, Refused::Full(full))) => Err((index, full)),
            // The host says what it thinks of such a CPU.
            Err(_) => Ok(Asked::Nothing),
        }
    }

    /// Reserves for the same groups on many CPUs, all or nothing: for each CPU, what each group gets. `None`: there is nothing
    /// to reserve, or the host decides, and each CPU asks for itself.
    ///
    /// # Errors
    /// The first CPU that has not enough, with the group.
    pub(super) fn reserve_set(
        &self,
        plans: &[Plan],
        scope: SetScope,
        cpus: &CpuMask,
    ) -> Result<Option<Vec<OfGroups<H>>>, SetError> {
        let of_group =
            |(group, plan): (usize, &Plan)| claims(&plan.members).into_iter().map(move |claim| (group, claim));
        let claims: Vec<_> = plans.iter().enumerate().flat_map(of_group).collect();
        if claims.is_empty() || cpus.is_empty() {
            return Ok(None);
        }
        let Some(Registers { ledger, authority }) = self.registers() else { return Ok(None) };
        let place = || match scope {
            SetScope::Task(task) => Place::TaskOn(task, cpus.clone()),
            SetScope::Everything | SetScope::Cgroup(_) => Place::Cpus(cpus.clone()),
        };
        let wanted = claims.iter().map(|&(_, (_, claim))| (claim, place(), Holder::Opening)).collect();
        let granted: Vec<_> = match ledger.reserve_all(wanted) {
            Ok(tokens) => tokens.into_iter().map(|token| token.commit()).collect(),
            Err((which, Refused::Full(full))) if authority == Authority::Ledger => {
                let (group, (index, _)) = claims.get(which).copied().unwrap_or((0, (0, Claim::one(full.kind))));
                return Err(SetError { cpu: full.cpu, group, error: known((index, full)) });
            }
            Err(_) => return Ok(None),
        };
        let mut of_cpus: Vec<Vec<Reserved<H>>> =
            cpus.iter().map(|_| plans.iter().map(|_| Vec::new()).collect()).collect();
        for (&(group, (index, _)), reservation) in claims.iter().zip(granted) {
            // It is limited to CPUs, so it can be split.
            for (groups, (_, part)) in of_cpus.iter_mut().zip(ledger.split(reservation).unwrap_or_default()) {
                groups[group].push((index, Held::new(&ledger, part)));
            }
        }
        let asked = |reserved: Reserved<H>| if reserved.is_empty() { Asked::Nothing } else { Asked::Granted(reserved) };
        Ok(Some(of_cpus.into_iter().map(|groups| groups.into_iter().map(asked).collect()).collect()))
    }

    /// Compares what the ledger has said with what the bank did. Says of a bank's refusal for want of a register who has it.
    pub(super) fn agree(
        &self,
        asked: &Asked<H>,
        members: &[NewMember],
        target: Target,
        refusal: Option<OpenError>,
    ) -> Option<OpenError> {
        let Some(OpenError::Bank { index, error: BankError::SlotsExhausted }) = refusal else {
            if let (Asked::Refused(..), None) = (asked, refusal) {
                self.note_granted();
            }
            return refusal;
        };
        let Some(claim) = members.get(index).and_then(|member| member.spec.claim) else { return refusal };
        if let Asked::Refused(index, full) = *asked {
            return Some(known((index, full)));
        }
        let own: Vec<_> = claims(members).into_iter().map(|(_, claim)| claim).collect();
        let outside = self.note_refused(claim, &own, target);
        outside.map(|full| OpenError::DebugRegisters { index, full, taken: Taken::Outside }).or(refusal)
    }

    /// The host has granted what the ledger would not.
    pub(super) fn note_granted(&self) {
        self.registry.with(|registry| registry.disagreements.granted += 1);
    }

    /// The host has refused what the ledger granted: how many the ledger knows of, without `own`, which was to be opened.
    pub(super) fn note_refused(&self, claim: Claim, own: &[Claim], target: Target) -> Option<Full> {
        let ledger = self.registers()?.ledger;
        self.registry.with(|registry| registry.disagreements.refused += 1);
        let same = own.iter().filter(|own| ledger.registers().compete(own.kind, claim.kind));
        let own: u32 = same.map(|own| u32::from(own.weight.get())).sum();
        let mut full = ledger.fullest(claim.kind, target.bound_to(), task_of(target));
        full.in_use = full.in_use.saturating_sub(own);
        Some(full)
    }
}

/// A refusal by the ledger.
pub(super) const fn known((index, full): (usize, Full)) -> OpenError {
    OpenError::DebugRegisters { index, full, taken: Taken::Known }
}

/// Which events of a group claim something.
pub(super) fn claims(members: &[NewMember]) -> Vec<(usize, Claim)> {
    members.iter().enumerate().filter_map(|(index, member)| Some((index, member.spec.claim?))).collect()
}

const fn task_of(target: Target) -> Option<TaskId> {
    match target.context {
        ContextKey::Task(task) => Some(task),
        ContextKey::Cpu(_) => None,
    }
}

/// Where the registers of a target are.
fn place(target: Target) -> Place {
    let only = |cpu: CpuId| [cpu].into_iter().collect();
    match (target.context, target.filter) {
        (ContextKey::Task(task), Filter::OnCpu(cpu)) => Place::TaskOn(task, only(cpu)),
        (ContextKey::Task(task), _) => Place::TaskEverywhere(task),
        (ContextKey::Cpu(cpu), _) => Place::Cpus(only(cpu)),
    }
}
