//! Which breakpoints find a debug register, and whether the engine's ledger says the same.
//!
//! What it is: the truth about debug registers, by walking over all that is open; judgements of what was granted and refused.
//! A register is held from the opening of a breakpoint to its closing, on each CPU by the CPU itself or by the tasks that may
//! need it there, and there must be as many as a CPU's own breakpoints hold and that task needs that needs most.
//!
//! **Invariant:** the ledger is not asked. What children hold is read off the truth about what they count; where the machine has
//! ever refused something, that may be less than they should have, and nothing is judged.

use super::{Checker, Violation};
use crate::machine::{BookKind, CountSite, CountedEvent, Counts, Event, World};
use pmux_abi::attr::{Attr, breakpoint};
use pmux_engine::hw_breakpoint::Taken;
use pmux_engine::pmu::SlotMask;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, ModifyError, OpenError, PmuId, Target, TaskId};

/// So many open groups are few: then all that is granted is looked at.
const LITTLE: usize = 64;

/// Breakpoints that are asked for as one.
pub(crate) struct RegisterDemand {
    /// Each with whether it is for code.
    breakpoints: Vec<bool>,
    task: Option<TaskId>,
    /// The CPUs that they are for; `None` for all.
    on: Option<Vec<CpuId>>,
}

impl RegisterDemand {
    pub(crate) fn of_group(world: &World, events: &[(PmuId, Attr)], target: Target) -> Self {
        let task = if let ContextKey::Task(task) = target.context { Some(task) } else { None };
        Self { breakpoints: breakpoints(world, events), task, on: target.bound_to().map(|cpu| vec![cpu]) }
    }

    /// Those of a set, on the CPUs of its mask that are there.
    pub(crate) fn of_set(world: &World, groups: &[Vec<(PmuId, Attr)>], cpus: impl Iterator<Item = CpuId>) -> Self {
        let breakpoints = groups.iter().flat_map(|group| breakpoints(world, group)).collect();
        Self { breakpoints, task: None, on: Some(cpus.filter(|&cpu| world.is_online(cpu)).collect()) }
    }

    /// The first CPU that has not enough for them, where there is one; one more each time, as they are reserved.
    fn short(&self, world: &World) -> Option<CpuId> {
        let held = holders(world);
        (1..=self.breakpoints.len()).find_map(|count| {
            [true, false].into_iter().find_map(|sort| {
                let wanted = self.breakpoints[..count].iter().filter(|&&it| world.same_registers(it, sort)).count();
                // Only that sort is short which the last one wants.
                let is_last = world.same_registers(self.breakpoints[count - 1], sort);
                let total = world.debug_registers(sort);
                let all = (0..world.description().cpus).map(CpuId);
                let cpus: Vec<_> = self.on.clone().unwrap_or_else(|| all.collect());
                is_last.then(|| {
                    let short = |&cpu: &CpuId| in_use(world, &held, self.task, sort, cpu) + wanted > total;
                    cpus.into_iter().find(short)
                })?
            })
        })
    }
}

/// Which of some events are breakpoints, and of those which are for code.
fn breakpoints(world: &World, events: &[(PmuId, Attr)]) -> Vec<bool> {
    let watches = |pmu: &PmuId| {
        let pmu = world.description().pmus.get(usize::from(pmu.0));
        pmu.is_some_and(|pmu| matches!(pmu.counts, Counts::Accesses { .. }))
    };
    events.iter().filter(|(pmu, _)| watches(pmu)).map(|(_, attr)| is_for_code(attr)).collect()
}

fn is_for_code(attr: &Attr) -> bool {
    attr.bp_type & breakpoint::X != 0
}

impl World {
    fn masks(&self) -> (SlotMask, SlotMask) {
        let found = self.description().pmus.iter().find_map(|pmu| match pmu.counts {
            Counts::Accesses { execute, data } => Some((execute, data)),
            Counts::Kinds(_) => None,
        });
        found.unwrap_or_default()
    }

    /// Whether breakpoints for code and for data want the same registers.
    fn same_registers(&self, for_code: bool, other: bool) -> bool {
        let (execute, data) = self.masks();
        for_code == other || execute == data
    }

    fn debug_registers(&self, for_code: bool) -> usize {
        let (execute, data) = self.masks();
        (if for_code { execute } else { data }).len() as usize
    }
}

/// How many registers of a sort are taken on a CPU for a task, or for the CPU itself.
fn in_use(world: &World, held: &[Holder], task: Option<TaskId>, sort: bool, cpu: CpuId) -> usize {
    let here: Vec<_> = held.iter().filter(|it| it.is_on(cpu) && world.same_registers(it.for_code, sort)).collect();
    let of = |task: Option<TaskId>| here.iter().filter(|it| it.task == task).count();
    let most = match task {
        Some(_) => of(task),
        None => here.iter().filter(|it| it.task.is_some()).map(|it| of(it.task)).max().unwrap_or(0),
    };
    of(None) + most
}

struct Holder {
    for_code: bool,
    task: Option<TaskId>,
    on: Option<Vec<CpuId>>,
}

impl Holder {
    fn is_on(&self, cpu: CpuId) -> bool {
        self.on.as_ref().is_none_or(|on| on.contains(&cpu))
    }
}

/// All of them: breakpoints of CPUs and of sets, those of tasks, and what children hold of those.
fn holders(world: &World) -> Vec<Holder> {
    let mut held = Vec::new();
    for (_, book) in world.books().iter() {
        // Who looks at a master holds none: the master does.
        if world.state(|state| state.is_view_event(book.tags[0])) {
            continue;
        }
        for &tag in &book.tags {
            let watches = world.state(|state| {
                let (tag, (_, attr)) = (state.ledger.tag(tag)?, state.ledger.asked(tag)?);
                let children = tag.sites.iter().filter_map(|&site| state.ledger.site(site));
                let children = children.filter(|site| !site.retired && !site.dead).filter_map(|site| site.task());
                let is_watch = matches!(tag.counted, CountedEvent::Access(_));
                is_watch.then(|| (is_for_code(&attr), children.collect::<Vec<_>>()))
            });
            let Some((for_code, children)) = watches else { continue };
            let mut hold = |task, on| held.push(Holder { for_code, task, on });
            match &book.kind {
                BookKind::OfSet { set, .. } => {
                    // A CPU that goes gives its registers back.
                    hold(None, Some(world.set_is_on(*set)));
                }
                BookKind::Group { target, .. } | BookKind::Master { root: Some(target), .. } => {
                    let on = if let Filter::OnCpu(cpu) = target.filter { Some(vec![cpu]) } else { None };
                    match target.context {
                        ContextKey::Cpu(cpu) => hold(None, Some(vec![cpu])),
                        ContextKey::Task(root) => {
                            // The root holds it until it is closed, though it be gone.
                            hold(Some(root), on.clone());
                            let children = children.into_iter().filter(|&child| child != root);
                            children.for_each(|child| hold(Some(child), on.clone()));
                        }
                    }
                }
                // Where a set has opened it, as long as an event looks at it there.
                BookKind::Master { root: None, .. } => seen_on(world, tag).into_iter().for_each(|(task, on)| {
                    hold(task, Some(vec![on]));
                }),
            }
        }
    }
    held
}

/// What is wrong with a refusal for want of a debug register, or with another one where registers are wanting.
pub(crate) fn refused(world: &World, wanted: &RegisterDemand, error: OpenError) -> Option<Violation> {
    let OpenError::DebugRegisters { full, .. } = error else { return None };
    if world.refusals() > 0 {
        return None;
    }
    let what = match wanted.short(world) {
        Some(cpu) if cpu == full.cpu => return None,
        Some(cpu) => {
            format!("a breakpoint is refused for CPU {}, and it is CPU {cpu} that has no debug register", full.cpu)
        }
        None => "a breakpoint is refused although there is a debug register for it".to_owned(),
    };
    Some(Violation::new(Checker::Refusals, world.now(), what).maybe_task(wanted.task))
}

/// What a breakpoint needs anew to become another one: it needs another register only where registers serve one kind.
pub(crate) fn more(world: &World, pmu: PmuId, before: Attr, after: Attr) -> Vec<(PmuId, Attr)> {
    let (was, is) = (is_for_code(&before), is_for_code(&after));
    if world.same_registers(was, is) { Vec::new() } else { vec![(pmu, after)] }
}

/// What is wrong with the answer to a breakpoint's change, for which so much is needed anew.
pub(crate) fn changed(
    world: &World,
    event: Event,
    needs: &[(PmuId, Attr)],
    after: (PmuId, Attr),
    result: Result<(), ModifyError>,
) -> Option<Violation> {
    let kind = world.number_of(event).and_then(|number| world.books().get(number)).map(|book| &book.kind)?;
    let wanted = |events: &[(PmuId, Attr)]| match kind {
        BookKind::Group { target, .. } => Some(RegisterDemand::of_group(world, events, *target)),
        BookKind::OfSet { .. } | BookKind::Master { .. } => None,
    };
    match result {
        Err(ModifyError::DebugRegisters { full, .. }) => {
            let taken = Taken::Known;
            refused(world, &wanted(needs)?, OpenError::DebugRegisters { index: 0, full, taken })
                .map(|it| it.event(event))
        }
        Err(_) => None,
        Ok(()) => granted(world, &wanted(&[after])?),
    }
}

/// What is wrong with what was just granted: on no CPU there may be more than it has.
pub(crate) fn granted(world: &World, wanted: &RegisterDemand) -> Option<Violation> {
    let is_seen = !wanted.breakpoints.is_empty() && world.books().iter().take(LITTLE + 1).count() <= LITTLE;
    if !is_seen || world.refusals() > 0 {
        return None;
    }
    let held = holders(world);
    let all: Vec<_> = (0..world.description().cpus).map(CpuId).collect();
    let over = |&cpu: &CpuId| {
        [true, false].iter().any(|&sort| in_use(world, &held, None, sort, cpu) > world.debug_registers(sort))
    };
    let cpu = wanted.on.as_ref().unwrap_or(&all).iter().copied().find(|cpu| over(cpu))?;
    let what = format!("a breakpoint is granted although no debug register of CPU {cpu} is left");
    Some(Violation::new(Checker::Refusals, world.now(), what).maybe_task(wanted.task))
}

/// Where events look at a master that a set has opened.
fn seen_on(world: &World, tag: Event) -> Vec<(Option<TaskId>, CpuId)> {
    world.state(|state| {
        let seen = state.ledger.sites_of(tag).filter(|site| !site.viewers.is_empty());
        let place = |site: &CountSite| match site.place {
            ContextKey::Cpu(cpu) => Some((None, cpu)),
            ContextKey::Task(task) => Some((Some(task), site.only_on?)),
        };
        seen.filter_map(place).collect()
    })
}
