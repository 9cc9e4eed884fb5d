//! The debug registers of events: reserved before an event is opened, given back when it is closed.
//!
//! What it is: the engine's ledger, made when the first event claims a register or shared with the host's other engines, and what
//! each group has reserved in it.
//! Read first: [`Ledger`], then `Engine::reserve`. What a reservation is good for is said by the host ([`Authority`]).
//!
//! **Invariant:** what a group has reserved goes back with the group's record, on every way out.
//!
//! Linux: `reserve_bp_slot`, `release_bp_slot`, `modify_bp_slot` (kernel/events/hw_breakpoint.c).

use super::Engine;
use super::system_wide::SetError;
use crate::cpu_mask::CpuMask;
use crate::error::OpenError;
use crate::event::NewEvent;
use crate::group::Plan;
use crate::host::{Host, HostLocks};
use crate::hw_breakpoint::Registers as PerCpu;
use crate::hw_breakpoint::{
    Authority, BpTarget, Claim, EngineNumber, Full, Holder, Holding, Ledger, Reservation, ReserveError, Taken, Token,
};
use crate::id::{CpuId, EventId, TaskId};
use crate::lock::LockCell;
use crate::pmu::{BankError, Delegated, EventSpec, PmuCaps};
use crate::share::SharingScope;
use crate::system_wide::SetScope;
use crate::target::Target;
use crate::target::{ContextKey, Filter};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;

/// How often the ledger and the host have not agreed. The host is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Disagreements {
    /// The ledger had a register left, the host none: a holder that the ledger doesn't know has it.
    pub refused: u64,
    /// The ledger had none left, the host one.
    pub granted: u64,
    /// The ledger had a register left, the host none, and children may have inherited as many: see [`Taken::Inherited`].
    pub inherited: u64,
}

/// Whether the host lets children of a task inherit a breakpoint, so that they hold registers of which the ledger is not told.
///
/// The kernel below exchanges the events of a task and its child on a switch where all of them are inherited, and gives back the
/// registers of the one when the other exits. So who was forked and who exited does not tell who holds what: the account knows how
/// many a child may hold, and the host's word counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InheritedBy {
    NoTask,
    Children,
}

impl InheritedBy {
    pub(super) fn of(spec: &EventSpec, caps: &PmuCaps, target: Target) -> Self {
        let inherits = spec.attr.flags.contains(AttrFlags::INHERIT) && caps.delegated.contains(Delegated::INHERITANCE);
        if inherits && task_of(target).is_some() { Self::Children } else { Self::NoTask }
    }
}

#[derive(Clone, Copy)]
pub(super) struct BpRequest {
    pub(super) index: usize,
    pub(super) claim: Claim,
    pub(super) inherited_by: InheritedBy,
}

/// The ledger, and what its word is good for.
pub(super) struct LedgerHandle<H: Host> {
    ledger: Arc<Ledger<HostLocks<H>>>,
    authority: Authority,
    /// Which of the engines that share the ledger this one is.
    number: EngineNumber,
}

impl<H: Host> Clone for LedgerHandle<H> {
    fn clone(&self) -> Self {
        Self { ledger: Arc::clone(&self.ledger), ..*self }
    }
}

/// What one event has reserved: given back when it is dropped.
pub(super) struct HeldRegisters<H: Host> {
    ledger: Arc<Ledger<HostLocks<H>>>,
    /// There until it is dropped.
    reservation: Option<Reservation>,
    inherited_by: InheritedBy,
    /// Whose it is.
    number: EngineNumber,
}

/// What a group has reserved, by the number of the event.
pub(super) type Reserved<H> = Vec<(usize, Arc<HeldRegisters<H>>)>;

impl<H: Host> HeldRegisters<H> {
    fn new(registers: &LedgerHandle<H>, reservation: Reservation, inherited_by: InheritedBy) -> Arc<Self> {
        let LedgerHandle { ledger, number, .. } = registers;
        Arc::new(Self { ledger: Arc::clone(ledger), reservation: Some(reservation), inherited_by, number: *number })
    }

    fn holding(&self) -> Option<Holding> {
        self.ledger.holding(self.reservation.as_ref()?)
    }

    pub(super) fn name(&self, event: EventId) {
        if let Some(reservation) = &self.reservation {
            self.ledger.name(reservation, Holder::Elsewhere(self.number, event));
        }
    }

    /// Lets it stand for another claim of the same event.
    pub(super) fn modify(&self, claim: Claim, target: Target) -> Result<(), ReserveError> {
        let reservation = self.reservation.as_ref().ok_or(ReserveError::Stale)?;
        self.ledger.modify(reservation, claim, place(target))
    }
}

impl<H: Host> Drop for HeldRegisters<H> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.ledger.release(reservation);
        }
    }
}

pub(super) enum Asked<H: Host> {
    /// None are claimed, or no ledger keeps account of them.
    Nothing,
    Granted(Reserved<H>),
    /// The ledger has none for this event of the group. The host may have.
    Refused(usize, Full),
}

/// The same for each group of a set, on one CPU.
pub(super) type OfGroups<H> = Vec<Asked<H>>;

impl<H: Host> Asked<H> {
    /// What is reserved already.
    pub(super) fn of(reserved: Reserved<H>) -> Self {
        if reserved.is_empty() { Self::Nothing } else { Self::Granted(reserved) }
    }

    pub(super) fn reserved(self) -> Reserved<H> {
        match self {
            Self::Granted(reserved) => reserved,
            Self::Nothing | Self::Refused(..) => Vec::new(),
        }
    }
}

impl<H: Host> Engine<H> {
    /// Who holds which debug registers; `None` where the host keeps no account of them. A holder that takes registers by another
    /// way than opening an event of the engine is made known by a reservation for [`Holder::Outside`].
    pub fn ledger(&self) -> Option<Arc<Ledger<HostLocks<H>>>> {
        self.registers().map(|registers| registers.ledger)
    }

    /// How often the ledger and the host have not agreed about a debug register so far.
    pub fn ledger_disagreements(&self) -> Disagreements {
        self.registry.with(|registry| registry.disagreements)
    }

    /// Who stands in the way of an event that found no debug register, as far as the ledger knows; see [`Ledger::holders`].
    ///
    /// Its own events are [`Holder::Event`], those of other engines that share the ledger [`Holder::Elsewhere`].
    pub fn holders(&self, full: &Full) -> Vec<Holding> {
        let Some(LedgerHandle { ledger, number, .. }) = self.registers() else { return Vec::new() };
        let mut holders = ledger.holders(full);
        for held in &mut holders {
            if let Holder::Elsewhere(of, event) = held.holder
                && of == number
            {
                held.holder = Holder::Event(event);
            }
        }
        holders
    }

    pub(super) fn registers(&self) -> Option<LedgerHandle<H>> {
        if let Some(known) = self.registers.with(|registers| registers.clone()) {
            return known;
        }
        // The host may have to try them out: without a lock. Where two threads do, the first one's ledger is taken.
        let found = self.host.debug_registers().map(|found| {
            let shared = self.host.shared_ledger(&found);
            let ledger = shared.unwrap_or_else(|| Arc::new(Ledger::new(found.registers, found.cpus)));
            let number = ledger.enroll();
            LedgerHandle { ledger, authority: found.authority, number }
        });
        self.registers.with(|registers| registers.get_or_insert(found).clone())
    }

    /// Reserves what the events of a group claim, all or nothing.
    ///
    /// # Errors
    /// [`OpenError::DebugRegisters`] where the ledger decides.
    pub(super) fn reserve(&self, members: &[NewEvent], target: Target) -> Result<Asked<H>, OpenError> {
        self.reserve_claims(&bp_requests(members, target), target).map_err(known)
    }

    /// The same for claims, each of an event by number.
    ///
    /// # Errors
    /// Where the ledger decides: the first that it refuses.
    pub(super) fn reserve_claims(&self, requests: &[BpRequest], target: Target) -> Result<Asked<H>, (usize, Full)> {
        let Some(registers) = (if requests.is_empty() { None } else { self.registers() }) else {
            return Ok(Asked::Nothing);
        };
        Self::reserve_in(&registers, requests, target)
    }

    /// The same for a caller that knows the ledger already.
    pub(super) fn reserve_in(
        registers: &LedgerHandle<H>,
        requests: &[BpRequest],
        target: Target,
    ) -> Result<Asked<H>, (usize, Full)> {
        let Some((&BpRequest { index: first, claim, inherited_by }, more)) = requests.split_first() else {
            return Ok(Asked::Nothing);
        };
        let (ledger, authority) = (&registers.ledger, registers.authority);
        let place = || place(target);
        let granted = if more.is_empty() {
            let granted = ledger.reserve(claim, place(), Holder::Opening);
            let held =
                granted.map(|token| alloc::vec![(first, HeldRegisters::new(registers, token.commit(), inherited_by))]);
            held.map_err(|refused| (first, refused))
        } else {
            let granted =
                ledger.reserve_all(requests.iter().map(|request| (request.claim, place(), Holder::Opening)).collect());
            let held = |tokens: Vec<_>| {
                let held = requests.iter().zip(tokens);
                held.map(|(request, token): (_, Token<'_, _>)| {
                    let BpRequest { index, inherited_by, .. } = *request;
                    (index, HeldRegisters::new(registers, token.commit(), inherited_by))
                })
                .collect()
            };
            granted
                .map(held)
                .map_err(|(which, refused)| (requests.get(which).map_or(first, |request| request.index), refused))
        };
        match granted {
            Ok(reserved) => Ok(Asked::Granted(reserved)),
            Err((index, ReserveError::Full(full))) if authority == Authority::Host => Ok(Asked::Refused(index, full)),
            Err((index, ReserveError::Full(full))) => Err((index, full)),
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
        (scope, domain): (SetScope, SharingScope),
        cpus: &CpuMask,
    ) -> Result<Option<Vec<OfGroups<H>>>, SetError> {
        let Some(first) = cpus.iter().next() else { return Ok(None) };
        let of_group = |(group, plan): (usize, &Plan)| {
            bp_requests(&plan.members, scope.on(first)).into_iter().map(move |request| (group, request))
        };
        let requests: Vec<_> = plans.iter().enumerate().flat_map(of_group).collect();
        if requests.is_empty() {
            return Ok(None);
        }
        let shares = |plan: &Plan| cpus.iter().all(|cpu| self.is_asked(plan, scope.on(cpu), domain));
        if plans.iter().all(shares) {
            // Events that are open already hold them for all of it. Where one closes just now, each CPU asks for itself.
            return Ok(None);
        }
        let Some(registers) = self.registers() else { return Ok(None) };
        let (ledger, authority) = (&registers.ledger, registers.authority);
        let place = || match scope {
            SetScope::Task(task) => BpTarget::TaskOn(task, cpus.clone()),
            SetScope::Everything | SetScope::Cgroup(_) => BpTarget::Cpus(cpus.clone()),
        };
        let wanted = requests.iter().map(|&(_, request)| (request.claim, place(), Holder::Opening)).collect();
        let granted: Vec<_> = match ledger.reserve_all(wanted) {
            Ok(tokens) => tokens.into_iter().map(|token| token.commit()).collect(),
            Err((which, ReserveError::Full(full))) if authority == Authority::Ledger => {
                let (group, index) = requests.get(which).map_or((0, 0), |&(group, request)| (group, request.index));
                return Err(SetError { cpu: full.cpu, group, error: known((index, full)) });
            }
            Err(_) => return Ok(None),
        };
        let mut of_cpus: Vec<Vec<Reserved<H>>> =
            cpus.iter().map(|_| plans.iter().map(|_| Vec::new()).collect()).collect();
        for (&(group, BpRequest { index, inherited_by, .. }), reservation) in requests.iter().zip(granted) {
            // It is limited to CPUs, so it can be split.
            for (groups, (_, part)) in of_cpus.iter_mut().zip(ledger.split(reservation).unwrap_or_default()) {
                groups[group].push((index, HeldRegisters::new(&registers, part, inherited_by)));
            }
        }
        Ok(Some(of_cpus.into_iter().map(|groups| groups.into_iter().map(Asked::of).collect()).collect()))
    }

    /// Compares what the ledger has said with what the bank did. Says of a bank's refusal for want of a register who has it.
    pub(super) fn agree(
        &self,
        asked: &Asked<H>,
        members: &[NewEvent],
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
        let own: Vec<_> = members.iter().filter_map(|member| member.spec.claim).collect();
        // What was not open yet has no children.
        let others = self.note_refused(claim, &own, target, InheritedBy::NoTask);
        others.map(|(full, taken)| OpenError::DebugRegisters { index, full, taken }).or(refusal)
    }

    /// The host has granted what the ledger would not.
    pub(super) fn note_granted(&self) {
        self.registry.with(|registry| registry.disagreements.granted += 1);
    }

    /// The host has refused what the ledger granted: how many the ledger knows of, without `own`, which was to be opened; and who
    /// may have the others. `inherited_by`: those of the event that was to get another register.
    pub(super) fn note_refused(
        &self,
        claim: Claim,
        own: &[Claim],
        target: Target,
        inherited_by: InheritedBy,
    ) -> Option<(Full, Taken)> {
        let ledger = self.registers()?.ledger;
        let same = own.iter().filter(|own| ledger.registers().compete(own.kind, claim.kind));
        let own: u32 = same.map(|own| u32::from(own.weight.get())).sum();
        let usage = ledger.usage(claim.kind, target.bound_to(), task_of(target));
        let fuller = |most: Full, next: Full| if next.in_use > most.in_use { next } else { most };
        let mut full = usage.iter().copied().reduce(fuller)?;
        full.in_use = full.in_use.saturating_sub(own);
        let passed_on = self.passed_on();
        let explains = usage.iter().any(|here| {
            let inherited = inheritable(&passed_on, ledger.registers(), here);
            // What was to be opened is in use by the account, but where it is to get another register.
            here.in_use + inherited > u32::from(full.total)
        });
        let taken = if explains || inherited_by == InheritedBy::Children { Taken::Inherited } else { Taken::Outside };
        self.registry.with(|registry| match taken {
            Taken::Inherited => registry.disagreements.inherited += 1,
            Taken::Known | Taken::Outside => registry.disagreements.refused += 1,
        });
        Some((full, taken))
    }

    /// What is held by tasks whose children inherit it. O(groups): for the report of a failure.
    fn passed_on(&self) -> Vec<Holding> {
        let passed_on: Vec<_> = self.registry.with(|registry| {
            let all = registry.groups.iter().flat_map(|(_, group)| &group.reserved);
            all.filter(|(_, held)| held.inherited_by == InheritedBy::Children)
                .map(|(_, held)| Arc::clone(held))
                .collect()
        });
        passed_on.iter().filter_map(|held| held.holding()).collect()
    }
}

/// How many registers children may have inherited that count on a CPU for a task, or for the CPU: as many as are passed on by
/// other tasks.
fn inheritable(passed_on: &[Holding], registers: PerCpu, full: &Full) -> u32 {
    let counts = |held: &&Holding| {
        let is_there = held.place.cpus().is_none_or(|cpus| cpus.contains(full.cpu));
        let is_of_others = full.task.is_none() || held.place.task() != full.task;
        registers.compete(held.claim.kind, full.kind) && is_there && is_of_others
    };
    passed_on.iter().filter(counts).map(|held| u32::from(held.claim.weight.get())).sum()
}

pub(super) const fn known((index, full): (usize, Full)) -> OpenError {
    OpenError::DebugRegisters { index, full, taken: Taken::Known }
}

pub(super) fn bp_requests(members: &[NewEvent], target: Target) -> Vec<BpRequest> {
    let request = |(index, member): (usize, &NewEvent)| {
        let inherited_by = InheritedBy::of(&member.spec, &member.caps, target);
        Some(BpRequest { index, claim: member.spec.claim?, inherited_by })
    };
    members.iter().enumerate().filter_map(request).collect()
}

const fn task_of(target: Target) -> Option<TaskId> {
    match target.context {
        ContextKey::Task(task) => Some(task),
        ContextKey::Cpu(_) => None,
    }
}

fn place(target: Target) -> BpTarget {
    let only = |cpu: CpuId| [cpu].into_iter().collect();
    match (target.context, target.filter) {
        (ContextKey::Task(task), Filter::OnCpu(cpu)) => BpTarget::TaskOn(task, only(cpu)),
        (ContextKey::Task(task), _) => BpTarget::TaskEverywhere(task),
        (ContextKey::Cpu(cpu), _) => BpTarget::Cpus(only(cpu)),
    }
}
