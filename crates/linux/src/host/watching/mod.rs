//! Debug registers that write into rings.
//!
//! What it is: PMUs for breakpoints whose hits are wanted one by one. A slot of such a PMU has an event of the
//! kernel for each CPU, because one that is inherited and follows its task to every CPU has no ring of its own. All events
//! on a CPU write into the ring of one *ring owner* there. A breakpoint that only counts has one event.
//! So is one whose hits a program alone tells of, into a ring of its own: its samples would tell nothing (`sample_type` is empty).
//! Read next: `slots`, the slots of one context; `per_thread`, events of many threads.
//!
//! Where registers are handed out in turns ([`Registers`]), a slot keeps its kernel events while its owners change: they are
//! aimed at another address. So children that were forked long ago take turns too, and no other event can get the register
//! in between.
//!
//! A slot that keeps its registers is on from its opening, which saves a call and often an interrupt. One that only counts
//! leaves out what came before the engine starts it; of others, the caller that asked for them knows by the times of hits what came
//! too early. A slot that takes turns is on when the engine starts it.
//!
//! A program may run at each hit ([`crate::bpf`]), right behind the access or in front of it, as the machine reports it. It is
//! attached when an event is opened, and children that are forked later inherit it with the event. What it does is the business
//! of the caller that brought it; where it answers 0, the kernel counts the hit and writes no sample.
//!
//! **Invariant:** an event of a task that is opened here writes to the ring owners, or has its program, from its first hit on; only
//! children that are forked at that moment may have none. One of a CPU that came later and has no ring owner yet can be led into one.

mod per_thread;
mod slots;

pub use per_thread::{EnableTime, PerThreadEvents, PerThreadReport};
pub(super) use slots::WatchSlots;

use super::debug_registers::claim;
use super::models::caps_by_slots;
use super::opener::EventFile;
use super::{LinuxHost, lock};
use crate::bpf::Program;
use crate::sys::Errno;
use pmux_abi::attr::{Attr, EventType, breakpoint};
use pmux_engine::pmu::{
    Delegated, EventSpec, Lease, OverflowBy, ParseError, PmuCaps, PmuModel, Slot, SlotMask, Slots, place_on_allowed,
};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Cred, PmuId, TaskId};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// The first number of such a PMU; the ones before are [`super::KERNEL`] and [`super::USAGE`].
const FIRST: usize = 2;
/// How many there can be at once. A context keeps something for each number up to the last one that it has seen.
const MOST_PMUS: usize = 14;
/// The first number behind them.
pub(super) const BEHIND: usize = FIRST + MOST_PMUS;
/// The largest number of registers that is handed out.
const MOST_REGISTERS: u8 = 32;

/// How registers are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registers {
    /// Each event has one from its opening to its closing; the kernel says when there are no more.
    Kept,
    /// So many, in turns; those for execution and those for data are the same ones.
    Shared(u8),
    /// So many of each kind, in turns.
    Separate {
        /// For execution.
        execute: u8,
        /// For data.
        data: u8,
    },
}

impl Registers {
    /// The slots of both kinds: execution, data.
    fn masks(self) -> (SlotMask, SlotMask) {
        match self {
            Self::Kept => (SlotMask::ALL, SlotMask::ALL),
            Self::Shared(count) => {
                let all = SlotMask::first(count.min(MOST_REGISTERS));
                (all, all)
            }
            Self::Separate { execute, data } => {
                let (execute, data) = (execute.min(MOST_REGISTERS / 2), data.min(MOST_REGISTERS / 2));
                (SlotMask::first(execute), SlotMask(SlotMask::first(data).0 << execute))
            }
        }
    }
}

/// Capabilities by the number of slots; 0 stands for plenty.
static CAPS: [PmuCaps; MOST_REGISTERS as usize + 1] = caps_by_slots(PmuCaps {
    slots: Slots::Plenty,
    width_bits: 64,
    // Times are those of the engine.
    delegated: Delegated::INHERITANCE,
    overflow: OverflowBy::Interrupt,
});

#[derive(Default)]
pub(super) struct WatchPmu {
    /// Whether it is taken, and how it hands out registers.
    registers: Mutex<Option<Registers>>,
    /// The number of slots, 0 for plenty. Relaxed: written before the PMU's number is given to a caller.
    slots: AtomicU8,
    ring_owners: Mutex<RingOwners>,
    /// What is opened now on this task is meant for all of these threads.
    per_thread: Mutex<Option<(TaskId, Arc<PerThreadEvents>)>>,
    /// What runs at each hit of an event that samples and is opened from now on.
    program: Mutex<Option<Arc<Program>>>,
}

/// The events whose rings are written into, each with its CPU. Made anew when one comes: they are asked for often.
type RingOwners = Arc<Vec<(u32, Arc<EventFile>)>>;

impl WatchPmu {
    fn program(&self) -> Option<Arc<Program>> {
        lock(&self.program).clone()
    }

    fn ring_owners(&self) -> RingOwners {
        Arc::clone(&lock(&self.ring_owners))
    }

    /// Which threads a task stands for in what is opened now.
    fn per_thread_of(&self, key: ContextKey) -> Option<Arc<PerThreadEvents>> {
        let per_thread = lock(&self.per_thread);
        per_thread
            .as_ref()
            .filter(|(task, _)| ContextKey::Task(*task) == key)
            .map(|(_, per_thread)| Arc::clone(per_thread))
    }

    /// Whether a slot keeps its kernel events when its owner leaves.
    fn takes_turns(&self) -> bool {
        self.slots.load(Ordering::Relaxed) > 0
    }
}

impl PmuModel for WatchPmu {
    fn caps(&self) -> &PmuCaps {
        CAPS.get(usize::from(self.slots.load(Ordering::Relaxed))).unwrap_or(&CAPS[0])
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        if attr.kind != EventType::BREAKPOINT {
            return Err(ParseError::NoSuchEvent);
        }
        let registers = lock(&self.registers).unwrap_or(Registers::Kept);
        let (execute, data) = registers.masks();
        // What takes turns keeps no register of its own: the slots do.
        let claim = if registers == Registers::Kept { claim(attr) } else { None };
        let allowed = if attr.bp_type & breakpoint::X != 0 { execute } else { data };
        Ok(EventSpec { pmu, attr: *attr, allowed, claim, cred: Cred::HOST })
    }

    /// What it writes goes to the ring owners of this watch.
    fn share_key(&self, _: &Attr) -> Option<Attr> {
        None
    }

    fn place(&self, wanted: &[SlotMask], used: SlotMask, out: &mut [Slot]) -> bool {
        match self.slots.load(Ordering::Relaxed) {
            0 => true,
            slots => place_on_allowed(wanted, used, slots, out),
        }
    }
}

/// All of them; made as they are asked for, and kept.
#[derive(Default)]
pub(super) struct WatchPmus([OnceLock<Box<WatchPmu>>; MOST_PMUS]);

impl WatchPmus {
    pub(super) fn get(&self, pmu: PmuId) -> Option<&WatchPmu> {
        self.0.get(usize::from(pmu.0).checked_sub(FIRST)?)?.get().map(|pmu| &**pmu)
    }

    pub(super) const fn has(pmu: PmuId) -> bool {
        let number = pmu.0 as usize;
        number >= FIRST && number < BEHIND
    }
}

impl LinuxHost {
    /// A PMU for breakpoints that write into the rings of ring owners; `None` where there are too many. It is given back with
    /// [`LinuxHost::close_watch`].
    pub fn open_watch(&self, registers: Registers) -> Option<PmuId> {
        let index = self.shared.watching.0.iter().position(|cell| {
            let pmu = cell.get_or_init(Box::default);
            let mut taken = lock(&pmu.registers);
            let free = taken.is_none();
            if free {
                *taken = Some(registers);
                let slots = match registers {
                    Registers::Kept => 0,
                    _ => (registers.masks().0.0 | registers.masks().1.0).count_ones(),
                };
                pmu.slots.store(u8::try_from(slots).unwrap_or(MOST_REGISTERS), Ordering::Relaxed);
            }
            free
        })?;
        u16::try_from(FIRST + index).ok().map(PmuId)
    }

    /// Gives the number of a watch back. All of its events must be closed.
    pub fn close_watch(&self, watch: PmuId) {
        if let Some(pmu) = self.shared.watching.get(watch) {
            let ring_owners = std::mem::take(&mut *lock(&pmu.ring_owners));
            let program = lock(&pmu.program).take();
            // Closing is a system call: not under the lock.
            drop((ring_owners, program));
            *lock(&pmu.registers) = None;
        }
    }

    /// Calls `open`, in which a task stands for all of these threads in what is opened of a watch that keeps its registers: a slot
    /// is an event on each of them. [`PerThreadEvents::report`] says what came of it.
    ///
    /// What is opened of this watch by others meanwhile must be on other tasks.
    pub fn open_per_thread<R>(
        &self,
        watch: PmuId,
        task: TaskId,
        per_thread: &Arc<PerThreadEvents>,
        open: impl FnOnce() -> R,
    ) -> R {
        let set = |per_thread| {
            if let Some(pmu) = self.shared.watching.get(watch) {
                *lock(&pmu.per_thread) = per_thread;
            }
        };
        set(Some((task, Arc::clone(per_thread))));
        let result = open();
        set(None);
        result
    }

    /// From now on a program runs at each hit of what is opened of a watch and samples: see [`crate::bpf`].
    pub fn set_program(&self, watch: PmuId, program: Option<Arc<Program>>) {
        if let Some(pmu) = self.shared.watching.get(watch) {
            let before = std::mem::replace(&mut *lock(&pmu.program), program);
            drop(before);
        }
    }

    /// From now on what is opened of a watch on a CPU writes into the ring of this event, which must be of the same CPU and
    /// mapped. On a task, an event is opened for each CPU that has a ring owner then.
    ///
    /// # Errors
    /// `EBADF` where the event has no output.
    pub fn set_ring_owner(&self, watch: PmuId, cpu: CpuId, ring_owner: (ContextKey, Lease)) -> Result<(), Errno> {
        let ring_owner = self.output(ring_owner)?;
        if let Some(pmu) = self.shared.watching.get(watch) {
            let mut ring_owners = lock(&pmu.ring_owners);
            let others = ring_owners.iter().filter(|(of, _)| *of != cpu.0).cloned();
            *ring_owners = Arc::new(others.chain([(cpu.0, ring_owner)]).collect());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(bp_type: u32) -> Attr {
        Attr { kind: EventType::BREAKPOINT, bp_type, ..Attr::default() }
    }

    #[test]
    fn a_number_comes_back_with_other_registers() {
        let host = LinuxHost::new();
        let pmus = &host.shared.watching;
        let kept = host.open_watch(Registers::Kept).unwrap();
        let turns = host.open_watch(Registers::Separate { execute: 6, data: 4 }).unwrap();
        assert_ne!(kept, turns);
        assert_eq!(pmus.get(kept).unwrap().caps().slots, Slots::Plenty);
        let model = pmus.get(turns).unwrap();
        assert_eq!(model.caps().slots, Slots::Scarce(10));
        assert_eq!(model.parse(turns, &attr(breakpoint::X)).unwrap().allowed, SlotMask(0b11_1111));
        assert_eq!(model.parse(turns, &attr(breakpoint::W)).unwrap().allowed, SlotMask(0b11_1100_0000));
        host.close_watch(kept);
        assert_eq!(host.open_watch(Registers::Shared(4)), Some(kept));
        let model = pmus.get(kept).unwrap();
        assert_eq!(model.caps().slots, Slots::Scarce(4));
        assert_eq!(model.parse(kept, &attr(breakpoint::W)).unwrap().claim, None, "its slots take turns");
    }

    #[test]
    fn other_events_are_no_business_of_theirs() {
        let host = LinuxHost::new();
        let pmu = host.open_watch(Registers::Kept).unwrap();
        let model = host.shared.watching.get(pmu).unwrap();
        assert_eq!(model.parse(pmu, &Attr::default()), Err(ParseError::NoSuchEvent));
    }
}
