//! Tasks that come onto CPUs and leave them, and whose turn it is there.
//!
//! What it is: on a host with [`Host::cpus`] the context of a task moves, with its bank, to the core of the CPU that the
//! task is on, and back home when it leaves. Elsewhere a kernel below does all this; there, contexts stay where they are.
//!
//! **Invariant:** a context is at home or with one core, never between: it moves while the locks of both are held, the core's first.
//!
//! Linux: `perf_event_task_sched_out`, `perf_event_task_sched_in`, `perf_event_task_tick` (kernel/events/core.c).

use super::Engine;
use super::ctx_lock::{Banks, ContextCell, CtxState, PmuGuard, Purpose};
use super::ipi::{NotDone, RemoteOp};
use crate::context::{Context, Ctx, Step};
use crate::host::Host;
use crate::id::{CpuId, PmuId, TaskId};
use crate::lock::LockCell;
use crate::pmu::{CounterBank, PmuCaps};
use crate::target::{ContextKey, Presence};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use once_cell::race::OnceBox;

/// The events of a task, for the host's own structure of that task: with it a switch looks nothing up.
///
/// One serves for the life of the task, whatever is opened, inherited and closed meanwhile. Until the task has its first event, it is a
/// word of memory.
///
/// Linux: `task_struct::perf_event_ctxp` (include/linux/sched.h).
pub struct TaskContext<H: Host>(Arc<OnceBox<Arc<ContextCell<H>>>>);

impl<H: Host> TaskContext<H> {
    fn empty() -> Self {
        Self(Arc::new(OnceBox::new()))
    }

    /// From now on the task has events, or has had some.
    pub(super) fn fill(&self, cell: &Arc<ContextCell<H>>) {
        // A task has one context for life: where there is one already, it is this one.
        let _ = self.0.set(Box::new(Arc::clone(cell)));
    }
}

impl<H: Host> Clone for TaskContext<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What [`Engine::rotate`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rotation {
    /// Which turn it was.
    pub turn: u64,
    /// How many contexts took it: those in which a group waits for a counter.
    pub contexts: usize,
}

/// The caller is not on the CPU whose counters it wanted.
pub(super) struct OutOfReach;

impl<H: Host> Engine<H> {
    /// The context of a task, for [`Engine::switch`]: a host asks for it when the task begins, and keeps it until it has told of its end
    /// ([`Engine::task_exit`]). Asked again meanwhile, it is the same. Called by a task.
    pub fn task(&self, task: TaskId) -> TaskContext<H> {
        let fresh = TaskContext::empty();
        self.registry.with(|registry| {
            let kept = registry.tasks.entry(task).or_insert(fresh);
            if let Some(shared) = registry.contexts.get(&ContextKey::Task(task)) {
                kept.fill(&shared.cell);
            }
            kept.clone()
        })
    }

    /// One task leaves a CPU, another one comes; `None` for one that can have no events. Called by the host on that CPU.
    ///
    /// It neither sleeps nor allocates, and costs as much as the two have events: next to nothing while there is no
    /// task that has, or has had, any. Not for hosts whose kernel switches by itself. A task that is still on another CPU stays there.
    pub fn switch(&self, cpu: CpuId, out: Option<&TaskContext<H>>, next: Option<&TaskContext<H>>) {
        if self.task_contexts.are_none() {
            return;
        }
        self.switch_cells(cpu, out.and_then(|task| task.0.get()), next.and_then(|task| task.0.get()));
    }

    /// A context that is not on a core of a CPU: its task is out.
    fn note_absence(&self, cell: &Arc<ContextCell<H>>) {
        cell.transact(&self.host, cell, |context, step| context.arrive(Presence::Out, step), |_, _| ());
    }

    pub(super) fn switch_cells(
        &self,
        cpu: CpuId,
        out: Option<&Arc<ContextCell<H>>>,
        next: Option<&Arc<ContextCell<H>>>,
    ) {
        let Some(core) = self.core(cpu) else {
            // Each context is on a core of its own.
            let arrive = |cell: &Arc<ContextCell<H>>, presence| {
                cell.transact(&self.host, cell, |context, step| context.arrive(presence, step), |_, _| ());
            };
            out.into_iter().for_each(|cell| arrive(cell, Presence::Out));
            next.into_iter().for_each(|cell| arrive(cell, Presence::On(cpu)));
            return;
        };
        // The caller is on that CPU.
        let done =
            core.pmu_guard.with(|guard| exchange(self, core, cpu, guard, next.map(|next| (next, Entry::Switched))));
        let Exchanged::Done { gone, .. } = done else { return };
        if let Some(out) = out.filter(|out| gone.as_ref().is_none_or(|gone| !Arc::ptr_eq(gone, out))) {
            self.note_absence(out);
        }
    }

    /// Whether a new context is there: asks the host, unless a switch has told it already.
    pub(super) fn meet(&self, cell: &Arc<ContextCell<H>>) {
        let known = |context: &Context| context.presence().is_some();
        if cell.look(self, known) {
            return;
        }
        loop {
            let presence = self.host.presence(cell.key);
            let core = match (cell.key, presence) {
                (ContextKey::Task(_), Presence::On(cpu)) => self.core(cpu).map(|core| (cpu, core)),
                _ => None,
            };
            let Some((cpu, core)) = core else {
                cell.step_here(self, |context, step| context.meet(presence, step));
                return;
            };
            // A task that is on a CPU already has its first event. Where it is not let in, the switch that came in between has said
            // where the task is. Where the caller or the CPU is not where it was, that is asked once more.
            let answered = match self.host.reaches(cpu) {
                true => self.enter_here(cpu, cell).is_ok(),
                false => !matches!(core.send(&self.host, cpu, cell, RemoteOp::Enter), Err(NotDone::Offline(_))),
            };
            if answered {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Lets a context in, unless a switch has told of its task meanwhile; returns whether it did.
    ///
    /// # Errors
    /// The caller is not on that CPU any more.
    pub(super) fn enter_here(&self, cpu: CpuId, cell: &Arc<ContextCell<H>>) -> Result<bool, OutOfReach> {
        let Some(core) = self.core(cpu) else { return Ok(false) };
        core.pmu_guard.with(|guard| {
            // No task comes onto a CPU that is offline.
            if !self.host.reaches(cpu) {
                return Err(OutOfReach);
            }
            // Another task there: the switch that the host is about to tell of will bring this one in. Unless it is the same
            // task, whose former events are gone.
            let stranger = core.place.with(|place| place.guest.as_ref().is_some_and(|guest| guest.key != cell.key));
            let mut enters = || exchange(self, core, cpu, guard, Some((cell, Entry::IfUnmet)));
            Ok(!stranger && matches!(enters(), Exchanged::Done { entered: true, .. }))
        })
    }

    /// A context without events goes home, if it is a guest.
    pub(super) fn evict(&self, cell: &Arc<ContextCell<H>>) {
        while let Some((cpu, core)) = cell.place.with(|place| place.away).and_then(|cpu| Some((cpu, self.core(cpu)?))) {
            if core.is_in_reach(&self.host) {
                self.leave_here(cpu, cell);
            } else {
                let _ = core.send(&self.host, cpu, cell, RemoteOp::Leave);
            }
        }
    }

    /// A CPU of shared counters comes or goes: no task is left on one that goes.
    pub(super) fn set_presence(&self, cpu: CpuId, presence: Presence) {
        let Some(core) = self.core(cpu) else { return };
        if presence != Presence::Out {
            core.open_queue();
        }
        self.handle_ipi(cpu);
        if presence == Presence::Out {
            self.send_guest_home(cpu);
        }
        core.transact(&self.host, core, |context, step| context.arrive(presence, step), |_, _| ());
        if presence == Presence::Out {
            self.stop_serving(cpu);
        }
    }

    /// No task is on a CPU. Called on that CPU.
    pub(super) fn send_guest_home(&self, cpu: CpuId) {
        if let Some(core) = self.core(cpu) {
            core.pmu_guard.with(|guard| exchange(self, core, cpu, guard, None));
        }
    }

    /// A context goes home from that CPU; returns whether it was there, and the caller is.
    pub(super) fn leave_here(&self, cpu: CpuId, cell: &Arc<ContextCell<H>>) -> bool {
        let Some(core) = self.core(cpu) else { return false };
        core.pmu_guard.with(|guard| {
            let may = core.is_in_reach(&self.host) && is_guest(core, cell);
            if may {
                exchange(self, core, cpu, guard, None);
            }
            may
        })
    }

    /// The timer of a CPU: groups that wait for a counter take turns, and counters that are polled are read before they can wrap
    /// twice. Called by the host on that CPU; neither sleeps nor allocates.
    pub fn tick(&self, cpu: CpuId) {
        let Some(core) = self.core(cpu) else { return };
        core.step_core(&self.host, |place, step| {
            place.core.rotate(step);
            let mut next = place.core.scarce_after(None);
            while let Some((pmu, polled)) = next {
                if polled {
                    place.core.order_reading(pmu, step);
                }
                next = place.core.scarce_after(Some(pmu));
            }
        });
    }

    /// Counters of a CPU have wrapped, and said so: they are read, so that no wrap is missed. Called by the host on that
    /// CPU, from the interrupt, or as soon after an NMI as it may take locks; neither sleeps nor allocates.
    pub fn counters_interrupted(&self, cpu: CpuId) {
        let Some(core) = self.core(cpu) else { return };
        let mut next = core.place.with(|place| place.core.scarce_after(None));
        while let Some((pmu, _)) = next {
            let wrapped = core.pmu_guard.with(|guard| guard.banks.own.as_mut().map(|bank| bank.take_overflows(pmu)));
            if let Some(wrapped) = wrapped.filter(|wrapped| !wrapped.is_empty()) {
                core.step_core(&self.host, |place, _| place.core.renew(pmu, wrapped));
            }
            next = core.place.with(|place| place.core.scarce_after(Some(pmu)));
        }
    }

    /// The next turn in every context that is on a core of its own, all in step: contexts with the same groups have the
    /// same groups on, whenever they began. For hosts whose kernel switches, but does not multiplex.
    pub fn rotate(&self) -> Rotation {
        let (turn, cells): (u64, Vec<_>) = self.registry.with(|registry| {
            registry.turn += 1;
            (registry.turn, registry.contexts.values().map(|shared| Arc::clone(&shared.cell)).collect())
        });
        let mut rotation = Rotation { turn, contexts: 0 };
        for cell in cells.iter().filter(|cell| !self.is_core(cell)) {
            let took = cell.step_core(&self.host, |place, step: Step<'_>| place.core.take_turn(turn, step));
            rotation.contexts += usize::from(took);
        }
        rotation
    }

    /// Every core has room for a group of so many events before a task with it can come.
    pub(super) fn make_room(&self, events: usize) {
        if self.cores.is_empty() {
            return;
        }
        if self.registry.with(|registry| registry.largest_group) < events {
            self.cores.iter().for_each(|cell| cell.reserve(events));
            // Not before: another caller relies on it.
            self.registry.with(|registry| registry.largest_group = registry.largest_group.max(events));
        }
    }

    /// Every core learns of a scarce PMU before a task with its events can come.
    pub(super) fn introduce(&self, pmu: PmuId, caps: &PmuCaps) {
        if self.cores.is_empty() {
            return;
        }
        let index = usize::from(pmu.0);
        if !self.registry.with(|registry| registry.introduced.get(index).copied().unwrap_or_default()) {
            self.cores.iter().for_each(|cell| cell.place.with(|place| place.core.ensure(pmu, caps)));
            // Not before: another caller relies on it.
            self.registry.with(|registry| {
                if registry.introduced.len() <= index {
                    registry.introduced.resize(index + 1, false);
                }
                registry.introduced[index] = true;
            });
        }
    }
}

fn is_guest<H: Host>(core: &ContextCell<H>, cell: &Arc<ContextCell<H>>) -> bool {
    core.place.with(|place| place.guest.as_ref().is_some_and(|guest| Arc::ptr_eq(guest, cell)))
}

/// On which condition a context is let in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The host has told of its task.
    Switched,
    /// No switch has told of its task yet.
    IfUnmet,
}

/// A context at home, and its bank there.
type AtHome<'a, H> = (&'a Arc<ContextCell<H>>, &'a mut PmuGuard<<H as Host>::Bank>);

/// What a switch has done.
enum Exchanged<H: Host> {
    /// Nothing: the context that was to come is there already, or was not to come.
    Nothing,
    /// It has changed who is there.
    Done {
        /// Whether the context that was to come has come.
        entered: bool,
        /// The one that has gone home.
        gone: Option<Arc<ContextCell<H>>>,
    },
}

/// Lets a context in, or none, and brings the one that was there home. Called on that CPU, with the `PmuGuard` of its core. One that was to come
/// only if it is unmet, and is met, changes nothing.
fn exchange<H: Host>(
    engine: &Engine<H>,
    core: &ContextCell<H>,
    cpu: CpuId,
    guard: &mut PmuGuard<H::Bank>,
    coming: Option<(&Arc<ContextCell<H>>, Entry)>,
) -> Exchanged<H> {
    let is_unmet = |cell: &ContextCell<H>| {
        cell.place.with(|place| place.core.context(Ctx::Cpu).is_some_and(|own| own.presence().is_none()))
    };
    let replaced = match coming {
        // While its guard is held it stays where it is.
        Some((cell, entry)) => cell.pmu_guard.with(|home| {
            // Its bank is where it is: one that is at home is no guest.
            let is_here = home.banks.own.is_none() && is_guest(core, cell);
            let comes = !is_here && (entry == Entry::Switched || is_unmet(cell));
            comes.then(|| replace_guest(engine, core, cpu, guard, Some((cell, home))))
        }),
        None => Some(replace_guest(engine, core, cpu, guard, None)),
    };
    let Some((entered, gone)) = replaced else { return Exchanged::Nothing };
    if let Some(gone) = &gone {
        gone.pmu_guard.with(|home| {
            home.banks.own = guard.banks.leaving.take();
            // Whatever was done to it where it was.
            home.steps += 1;
            core.place.with(|place| {
                place.leaving = None;
                let context = place.core.dismiss();
                gone.place.with(|home| {
                    context.into_iter().for_each(|context| home.core.fold_child(context));
                    home.away = None;
                });
            });
        });
    }
    Exchanged::Done { entered, gone }
}

/// Puts a context in the place of the guest, unless it is with another core; returns whether it did, and which one leaves.
fn replace_guest<H: Host>(
    Engine { host, .. }: &Engine<H>,
    core: &ContextCell<H>,
    cpu: CpuId,
    guard: &mut PmuGuard<H::Bank>,
    coming: Option<AtHome<'_, H>>,
) -> (bool, Option<Arc<ContextCell<H>>>) {
    // A context that is with another core has its bank there.
    let (cell, bank) = match coming {
        Some((cell, home)) => (Some(cell), home.banks.own.take()),
        None => (None, None),
    };
    let step = Step { now: host.now(), pmus: host };
    let Banks { guest, leaving, .. } = &mut guard.banks;
    *leaving = core::mem::replace(guest, bank);
    let switch = |place: &mut CtxState<H>| {
        let context = cell.and_then(|cell| {
            cell.place.with(|home| {
                let context = home.core.depart()?;
                home.away = Some(cpu);
                Some(context)
            })
        });
        let comes = cell.filter(|_| context.is_some());
        place.leaving = core::mem::replace(&mut place.guest, comes.map(Arc::clone));
        place.core.switch(cpu, context, step);
        comes.is_some()
    };
    core.drive(host, (Purpose::Change, step.now), guard.parts(), switch, |place, _| place.leaving.clone())
}
