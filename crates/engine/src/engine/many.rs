//! The same groups on many targets: opened on all of them or on none, and switched together.
//!
//! What it is: what [`Engine::open`] and [`Engine::enable_group`] do, with a turn or two of the registry's lock for all targets
//! instead of some for each, one look at the ledger, and one workspace that goes from core to core.
//! Read first: `open`.
//!
//! **Invariant:** an open either gives everything, but for the targets that its caller can do without, or leaves nothing behind.

use super::bp_reserve::{Asked, LedgerHandle, bp_requests, known};
use super::control::{Op, outcome};
use super::ctx_lock::{ContextCell, Todo};
use super::open::{Attached, Begin, How, claim_fresh, claim_known, register_group, root_of};
use super::{Engine, Gate, Opened, Target};
use crate::context::{Context, Step};
use crate::cpu_mask::CpuMask;
use crate::error::{ControlError, OpenError};
use crate::group::{GroupSpec, Plan, resolve};
use crate::host::Host;
use crate::id::{CpuId, Cred, EventId, GroupId};
use crate::lock::LockCell;
use crate::target::GroupKey;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One of the groups, on one of the targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedOn {
    /// Which target, by number from 0.
    pub target: usize,
    /// Which group of the request.
    pub index: usize,
    /// The group.
    pub group: GroupId,
    /// Its first event.
    pub leader: EventId,
}

/// A target on which one of the groups was refused: there is none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedOn {
    /// Which target, by number from 0.
    pub target: usize,
    /// Which group of the request.
    pub index: usize,
    /// Why.
    pub error: OpenError,
}

/// What was opened on many targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OnMany {
    /// Target by target, the groups in their order.
    pub opened: Vec<OpenedOn>,
    /// The targets that the caller can do without.
    pub left_out: Vec<RefusedOn>,
}

/// The cell of a target.
enum Claimed<H: Host> {
    /// The target's CPU is not online.
    Offline(CpuId),
    /// It has none yet.
    Missing,
    Cell(Arc<ContextCell<H>>),
}

/// A group that has no ids yet, and where it is.
struct Placed<H: Host> {
    target: usize,
    index: usize,
    attached: Attached<H>,
}

impl<H: Host> Engine<H> {
    /// Opens the same groups on each of these targets: on all of them or on none, but for those whose refusal `tolerates` says
    /// yes to; a target has all groups or none.
    ///
    /// They share with no other event, as with [`crate::share::SharingScope::ALONE`].
    ///
    /// With [`Begin::On`] a target's groups count as soon as they are there, some of them before the last target has its own.
    ///
    /// # Errors
    /// The first refusal that is not tolerated; the order of the checks is that of [`Engine::open`], target by target. What was
    /// opened until then is closed.
    pub fn open_each(
        &self,
        groups: &[GroupSpec],
        targets: &[Target],
        begin: Begin,
        tolerates: impl Fn(&OpenError) -> bool,
    ) -> Result<OnMany, RefusedOn> {
        let mut wanted = Vec::with_capacity(groups.len());
        for (index, spec) in groups.iter().enumerate() {
            let plan = resolve(spec, Cred::HOST, &self.host).map_err(|error| RefusedOn { target: 0, index, error })?;
            self.introduce_all(&plan.members);
            wanted.push(plan);
        }
        if wanted.is_empty() {
            return Ok(OnMany::default());
        }
        let claims = |plan: &Plan| plan.members.iter().any(|member| member.spec.claim.is_some());
        let registers = if wanted.iter().any(claims) { self.registers() } else { None };
        let mut scratch = Todo::default();
        let mut placed = Vec::with_capacity(targets.len() * wanted.len());
        let mut left_out = Vec::new();
        let mut failed = None;
        for (number, claimed) in self.claim_each(targets, wanted.len()).into_iter().enumerate() {
            let target = targets[number];
            let refused = match (claimed, failed) {
                (Claimed::Cell(cell), None) => self.attach_each(
                    &wanted,
                    (number, target),
                    &cell,
                    registers.as_ref(),
                    begin,
                    &mut scratch,
                    &mut placed,
                ),
                (Claimed::Cell(_), Some(_)) => {
                    wanted.iter().for_each(|_| self.leave(target.context));
                    Ok(())
                }
                (Claimed::Offline(cpu), _) => Err((0, OpenError::CpuOffline { cpu })),
                // There is none any more.
                (Claimed::Missing, _) => Ok(()),
            };
            if let Err((index, error)) = refused {
                let refused = RefusedOn { target: number, index, error };
                if tolerates(&error) {
                    left_out.push(refused);
                } else {
                    failed.get_or_insert(refused);
                }
            }
        }
        if let Some(failed) = failed {
            placed.iter().rev().for_each(|one| self.detach(&one.attached));
            return Err(failed);
        }
        self.register_each(&wanted, targets, (placed, left_out), begin, tolerates)
    }

    /// The cells of the targets, each with so many more groups counted as attached.
    fn claim_each(&self, targets: &[Target], groups: usize) -> Vec<Claimed<H>> {
        let mut cells: Vec<Claimed<H>> = self.registry.with(|registry| {
            let known = targets.iter().map(|target| {
                if let Some(cpu) = gone(&registry.online, *target) {
                    return Claimed::Offline(cpu);
                }
                claim_known(registry, target.context, groups).map_or(Claimed::Missing, Claimed::Cell)
            });
            known.collect()
        });
        let mut fresh: Vec<_> = targets
            .iter()
            .zip(&mut cells)
            .filter(|(_, cell)| matches!(cell, Claimed::Missing))
            .map(|(target, cell)| (cell, self.fresh_cell(target.context)))
            .collect();
        if !fresh.is_empty() {
            self.registry.with(|registry| {
                registry.contexts.reserve(fresh.len());
                for (cell, fresh) in &mut fresh {
                    **cell = Claimed::Cell(claim_fresh(registry, fresh, groups));
                }
            });
        }
        drop(fresh);
        cells
    }

    /// Attaches all groups to one target, or none.
    #[allow(clippy::too_many_arguments)] // all of it is of one caller
    fn attach_each(
        &self,
        wanted: &[Plan],
        (number, target): (usize, Target),
        cell: &Arc<ContextCell<H>>,
        registers: Option<&LedgerHandle<H>>,
        begin: Begin,
        scratch: &mut Todo,
        placed: &mut Vec<Placed<H>>,
    ) -> Result<(), (usize, OpenError)> {
        // Where contexts stay where they are, that is said together with the first group.
        let presence = if self.cores.is_empty() {
            Some(self.host.presence(target.context))
        } else {
            self.meet(cell);
            None
        };
        let first = placed.len();
        for (index, plan) in wanted.iter().enumerate() {
            let asked = root_of(plan, target).and_then(|root| match registers {
                Some(registers) => {
                    let requests = bp_requests(&plan.members, target);
                    Ok((root, Self::reserve_in(registers, &requests, target).map_err(known)?))
                }
                None => Ok((root, Asked::Nothing)),
            });
            let (reached, attached) = match asked {
                Err(error) => (false, Err(error)),
                Ok((root, asked)) => {
                    // A child that is forked before there is a family would not be counted.
                    let begin = if root.is_some() { Begin::Off } else { begin };
                    let how = How { begin, presence, scratch: Some(&mut *scratch) };
                    let group = (plan.demand, &plan.members[..]);
                    (true, self.attach_to(Arc::clone(cell), target, group, asked, how))
                }
            };
            match attached {
                Ok(attached) => placed.push(Placed { target: number, index, attached }),
                Err(error) => {
                    placed.drain(first..).rev().for_each(|one| self.detach(&one.attached));
                    // What was attached has left with that; the others were counted too.
                    (index + usize::from(reached)..wanted.len()).for_each(|_| self.leave(target.context));
                    return Err((index, error));
                }
            }
        }
        Ok(())
    }

    /// Gives ids to all of them. A CPU may have gone meanwhile: the thread that took it away has not seen them.
    fn register_each(
        &self,
        wanted: &[Plan],
        targets: &[Target],
        (mut placed, mut left_out): (Vec<Placed<H>>, Vec<RefusedOn>),
        begin: Begin,
        tolerates: impl Fn(&OpenError) -> bool,
    ) -> Result<OnMany, RefusedOn> {
        let enrolled = self.registry.with(|registry| {
            let refused = |one: &Placed<H>| {
                let error = OpenError::CpuOffline { cpu: gone(&registry.online, targets[one.target])? };
                Some(RefusedOn { target: one.target, index: one.index, error })
            };
            if let Some(refused) = placed.iter().filter_map(refused).find(|refused| !tolerates(&refused.error)) {
                return Err(refused);
            }
            let ids = |one: &mut Placed<H>| match gone(&registry.online, targets[one.target]) {
                Some(cpu) => Err(cpu),
                None => {
                    let group = register_group(registry, &mut one.attached, Gate::Open);
                    Ok((group, registry.groups.get(group).and_then(|record| record.events.first().copied())))
                }
            };
            Ok(placed.iter_mut().map(ids).collect::<Vec<Result<(GroupId, Option<EventId>), CpuId>>>())
        });
        let enrolled = enrolled.inspect_err(|_| placed.iter().rev().for_each(|one| self.detach(&one.attached)))?;
        let mut opened = Vec::with_capacity(placed.len());
        let mut families = Vec::new();
        for (Placed { target, index, attached }, ids) in placed.iter().zip(enrolled) {
            let (number, index) = (*target, *index);
            match ids {
                Ok((group, leader)) => {
                    if let Ok(Some(task)) = root_of(&wanted[index], targets[number]) {
                        let events = self.events(group).unwrap_or_default();
                        self.found_by_engine(task, &Opened { group, events });
                        families.push((number, index, group));
                    }
                    opened.extend(leader.map(|leader| OpenedOn { target: number, index, group, leader }));
                }
                Err(cpu) => {
                    self.detach(attached);
                    if index == 0 {
                        left_out.push(RefusedOn { target: number, index, error: OpenError::CpuOffline { cpu } });
                    }
                }
            }
        }
        if begin == Begin::On {
            for (target, index, group) in families {
                if let Err(ControlError::Bank(error)) = self.enable_group(group) {
                    opened.iter().for_each(|one| self.close(one.group));
                    return Err(RefusedOn { target, index, error: OpenError::Bank { index: 0, error } });
                }
            }
        }
        Ok(OnMany { opened, left_out })
    }

    /// Enables groups, as [`Engine::enable_group`] does. Those of one context that stand beside each other begin at the same time:
    /// where they take turns, none has a longer time than another of which its share would be said.
    ///
    /// # Errors
    /// The first that fails, by number from 0: those before it are enabled, those behind it are not.
    pub fn enable_each(&self, groups: &[GroupId]) -> Result<(), (usize, ControlError)> {
        self.switch_each(groups, Op::Enable)
    }

    /// Disables groups, as [`Engine::disable_group`] does. Those of one context that stand beside each other end at the same time,
    /// and none takes a counter that another has left.
    ///
    /// # Errors
    /// As for [`Engine::enable_each`].
    pub fn disable_each(&self, groups: &[GroupId]) -> Result<(), (usize, ControlError)> {
        self.switch_each(groups, Op::Disable)
    }

    pub(super) fn switch_each(&self, groups: &[GroupId], op: Op) -> Result<(), (usize, ControlError)> {
        // Where a core may be out of reach, a family goes along, or others share, each has a way of its own.
        let places: Vec<Option<(Arc<ContextCell<H>>, GroupKey)>> = self.registry.with(|registry| {
            let place = |&group: &GroupId| {
                let record =
                    registry.groups.get(group).filter(|record| record.family.is_none() && record.view.is_none())?;
                self.cores.is_empty().then(|| (Arc::clone(&record.cell), record.group))
            };
            groups.iter().map(place).collect()
        });
        let mut scratch = Todo::default();
        let mut keys = Vec::new();
        let mut first = 0;
        for run in places.chunk_by(
            |one, other| matches!((one, other), (Some((one, _)), Some((other, _))) if Arc::ptr_eq(one, other)),
        ) {
            let result = match run {
                [Some((cell, _)), ..] => {
                    keys.clear();
                    keys.extend(run.iter().flatten().map(|&(_, key)| key));
                    switch(self, cell, &keys, op, &mut scratch)
                }
                _ => groups.get(first).map_or(Ok(()), |&id| self.control_group(id, op).map_err(|error| (0, error))),
            };
            result.map_err(|(number, error)| (first + number, error))?;
            first += run.len();
        }
        Ok(())
    }
}

/// Switches groups of one context in one step.
fn switch<H: Host>(
    engine: &Engine<H>,
    cell: &ContextCell<H>,
    groups: &[GroupKey],
    op: Op,
    scratch: &mut Todo,
) -> Result<(), (usize, ControlError)> {
    let is_off = |context: &Context, key: GroupKey| {
        let leader = context.group(key).and_then(|group| context.member(*group.members.first()?));
        leader.is_none_or(|leader| !leader.state().ages())
    };
    let step = |context: &mut Context, step: Step<'_>| {
        let were_off: Vec<GroupKey> = match op {
            Op::Enable => groups.iter().copied().filter(|&key| is_off(context, key)).collect(),
            Op::Disable | Op::Reset => Vec::new(),
        };
        for &group in groups {
            match op {
                Op::Enable => context.enable_group(group, step),
                Op::Disable => context.disable_group(group, step),
                Op::Reset => context.reset_group(group, step),
            }
        }
        were_off
    };
    let done = |context: &Context, key: GroupKey| {
        let members = &context.group(key).ok_or(ControlError::Closed)?.members[..];
        members.iter().try_for_each(|&member| outcome(context.member(member).ok_or(ControlError::Closed)?, op))
    };
    let look = |_: &Vec<GroupKey>, context: &Context| {
        let failed = |(number, &key)| done(context, key).map_err(|error| (number, error));
        groups.iter().enumerate().try_for_each(failed)
    };
    let (were_off, result) = cell.ask_here_in(Some(&mut *scratch), engine, step, look);
    if let Err((number, _)) = result {
        let behind = |key: &&GroupKey| groups.get(number + 1..).is_some_and(|behind| behind.contains(key));
        let undo = |context: &mut Context, step: Step<'_>| {
            were_off.iter().filter(behind).for_each(|&key| context.disable_group(key, step));
        };
        cell.ask_here_in(Some(scratch), engine, undo, |&(), _| ());
    }
    result
}

/// The CPU of a target, where that is not online.
fn gone(online: &CpuMask, target: Target) -> Option<CpuId> {
    target.bound_to().filter(|&cpu| !online.contains(cpu))
}
