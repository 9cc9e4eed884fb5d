//! What is held on CPUs: by the CPUs themselves, and by tasks for the time that they are there.
//!
//! **Invariant:** for each CPU, one look says what it holds itself, and what that task needs there that needs most of those
//! which hold something for this CPU.
//!
//! Linux: `cpu_pinned`, `max_bp_pinned_slots` (kernel/events/hw_breakpoint.c).

use super::histogram::Histogram;
use super::{BpTarget, Claim, Full, Holder, Holding, Registers, ReserveError, SORTS};
use crate::arena::{Arena, Id};
use crate::cpu_mask::CpuMask;
use crate::id::{CpuId, TaskId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashMap;

#[derive(Debug)]
struct CpuNeeds {
    own: [u8; SORTS],
    /// What tasks need here that hold something for this CPU: that, and what they need wherever they are.
    needs: [Histogram; SORTS],
}

/// Tells ids of claims from others.
#[derive(Debug)]
pub(super) enum ClaimTag {}
pub(super) type ClaimId = Id<ClaimTag>;

#[derive(Debug)]
pub(super) struct CpuClaim {
    pub(super) claim: Claim,
    pub(super) holder: Holder,
    pub(super) cpus: CpuMask,
}

pub(super) struct CpuBook {
    registers: Registers,
    cpus: Vec<CpuNeeds>,
    /// How many CPUs hold so many themselves.
    own: [Histogram; SORTS],
    /// What tasks hold for one CPU, those that do.
    limited: HashMap<TaskId, BTreeMap<CpuId, [u8; SORTS]>>,
    pub(super) claims: Arena<CpuClaim, ClaimTag>,
    /// How many engines have a number.
    pub(super) engines: u32,
}

impl CpuBook {
    pub(super) fn new(registers: Registers, totals: [u8; SORTS], cpus: u32) -> Self {
        let cpu = |_| CpuNeeds { own: [0; SORTS], needs: totals.map(Histogram::new) };
        Self {
            registers,
            cpus: (0..cpus).map(cpu).collect(),
            own: totals.map(Histogram::new),
            limited: HashMap::new(),
            claims: Arena::default(),
            engines: 0,
        }
    }

    /// What that CPU holds itself that holds most.
    pub(super) fn ceiling(&self, sort: usize) -> u8 {
        self.own[sort].top()
    }

    /// What the CPU of a mask will hold itself that will hold most, with so many more on each.
    pub(super) fn ceiling_with(&self, sort: usize, cpus: &CpuMask, weight: u8) -> u32 {
        let most = cpus.iter().map(|cpu| self.own(sort, cpu)).max();
        most.map_or(0, |most| u32::from(most) + u32::from(weight)).max(u32::from(self.ceiling(sort)))
    }

    pub(super) fn own(&self, sort: usize, cpu: CpuId) -> u8 {
        self.cpus.get(cpu.0 as usize).map_or(0, |cpu| cpu.own[sort])
    }

    /// Whether a claim of CPUs fits, where a task needs at most `most_needed` wherever it is.
    pub(super) fn fits(&self, claim: Claim, cpus: &CpuMask, most_needed: u8) -> Result<(), ReserveError> {
        let sort = self.registers.sort(claim.kind);
        for cpu in cpus.iter() {
            let here = self.cpus.get(cpu.0 as usize).ok_or(ReserveError::NoSuchCpu(cpu))?;
            let in_use = u32::from(here.own[sort]) + u32::from(most_needed.max(here.needs[sort].top()));
            check(self.registers, claim, None, cpu, in_use)?;
        }
        Ok(())
    }

    /// Whether a claim of a task fits that needs `everywhere` wherever it is.
    pub(super) fn fits_task(
        &self,
        task: TaskId,
        everywhere: u8,
        claim: Claim,
        place: &BpTarget,
    ) -> Result<(), ReserveError> {
        let sort = self.registers.sort(claim.kind);
        let limited = self.limited.get(&task);
        let here = |cpu: CpuId| limited.and_then(|on| on.get(&cpu)).map_or(0, |on| on[sort]);
        let fits = |cpu: CpuId| {
            let in_use = u32::from(self.own(sort, cpu)) + u32::from(here(cpu)) + u32::from(everywhere);
            check(self.registers, claim, Some(task), cpu, in_use)
        };
        let Some(cpus) = place.cpus() else {
            let most = limited.into_iter().flat_map(BTreeMap::values).map(|on| on[sort]).max().unwrap_or(0);
            let at_most = u32::from(self.ceiling(sort)) + u32::from(most) + u32::from(everywhere);
            if at_most + u32::from(claim.weight.get()) <= u32::from(self.registers.for_kind(claim.kind)) {
                return Ok(());
            }
            return (0..self.cpus.len() as u32).map(CpuId).try_for_each(fits);
        };
        cpus.iter().try_for_each(fits)
    }

    /// How many registers of a CPU a task needs for this CPU only.
    pub(super) fn limited(&self, task: TaskId, sort: usize, cpu: CpuId) -> u8 {
        self.limited.get(&task).and_then(|on| on.get(&cpu)).map_or(0, |on| on[sort])
    }

    /// What that task needs on a CPU that needs most of those which hold something for it.
    pub(super) fn most_limited(&self, sort: usize, cpu: CpuId) -> u8 {
        self.cpus.get(cpu.0 as usize).map_or(0, |cpu| cpu.needs[sort].top())
    }

    /// The CPUs of a mask hold so many more themselves, or so many fewer.
    pub(super) fn change_own(&mut self, claim: Claim, cpus: &CpuMask, change: ClaimChange) {
        let sort = self.registers.sort(claim.kind);
        for cpu in cpus.iter() {
            let Some(cpu) = self.cpus.get_mut(cpu.0 as usize) else { continue };
            let before = cpu.own[sort];
            cpu.own[sort] = change.of(before, claim.weight.get());
            self.own[sort].change(before, cpu.own[sort]);
        }
    }

    /// A task holds so many more, or so many fewer, for each CPU of a mask, and needs `everywhere` wherever it is.
    pub(super) fn change_limited(
        &mut self,
        task: TaskId,
        everywhere: u8,
        claim: Claim,
        cpus: &CpuMask,
        change: ClaimChange,
    ) {
        let sort = self.registers.sort(claim.kind);
        let on = self.limited.entry(task).or_default();
        for cpu in cpus.iter() {
            let here = on.entry(cpu).or_default();
            let before = here[sort];
            here[sort] = change.of(before, claim.weight.get());
            let after = here[sort];
            if *here == [0; SORTS] {
                on.remove(&cpu);
            }
            let need = |limited: u8| if limited == 0 { 0 } else { limited.saturating_add(everywhere) };
            if let Some(cpu) = self.cpus.get_mut(cpu.0 as usize) {
                cpu.needs[sort].change(need(before), need(after));
            }
        }
        if on.is_empty() {
            self.limited.remove(&task);
        }
    }

    /// A task that needed `before` wherever it is needs `after`.
    pub(super) fn change_everywhere(&mut self, task: TaskId, sort: usize, before: u8, after: u8) {
        for (cpu, on) in self.limited.get(&task).into_iter().flatten() {
            let here = on[sort];
            if let Some(cpu) = self.cpus.get_mut(cpu.0 as usize).filter(|_| here > 0) {
                cpu.needs[sort].change(here.saturating_add(before), here.saturating_add(after));
            }
        }
    }

    /// What CPUs themselves hold on a CPU.
    pub(super) fn holdings(&self, sort: usize, cpu: CpuId) -> impl Iterator<Item = Holding> + '_ {
        let there = move |claim: &&CpuClaim| self.registers.sort(claim.claim.kind) == sort && claim.cpus.contains(cpu);
        self.claims.iter().map(|(_, claim)| claim).filter(there).map(|claim| Holding {
            holder: claim.holder,
            claim: claim.claim,
            place: BpTarget::Cpus(claim.cpus.clone()),
        })
    }
}

/// In which direction an account changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClaimChange {
    More,
    Less,
}

impl ClaimChange {
    pub(super) const fn of(self, before: u8, weight: u8) -> u8 {
        match self {
            Self::More => before.saturating_add(weight),
            Self::Less => before.saturating_sub(weight),
        }
    }
}

fn check(
    registers: Registers,
    claim: Claim,
    task: Option<TaskId>,
    cpu: CpuId,
    in_use: u32,
) -> Result<(), ReserveError> {
    let (kind, total) = (claim.kind, registers.for_kind(claim.kind));
    match in_use + u32::from(claim.weight.get()) <= u32::from(total) {
        true => Ok(()),
        false => Err(ReserveError::Full(Full { kind, task, cpu, in_use, total })),
    }
}
