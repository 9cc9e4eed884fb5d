//! What must hold after every step.
//!
//! What it is: checks of a [`World`] ([`Checker`] lists them), each for itself or all together. A violation names who found
//! it, the event, the place, and the numbers.
//! Read first: [`World::check_step`] (what a step can have broken, at a cost that does not grow with tasks) and
//! [`World::check`] (everything); then `counts`.
//!
//! **Invariant:** a check lets no time pass and takes nothing for true that the engine says of itself, but that it refused.

mod converge;
mod counts;
pub(crate) mod debug_registers;
mod families;
mod groups;
mod leftovers;
pub(crate) mod refusals;
mod samples;
mod sharing;

use crate::machine::{Event, World, any_faults, take_faults};
use counts::Depth;
pub(crate) use counts::is_doubtful;
use pmux_engine::pmu::Slot;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Nanos, PmuId, TaskId};
pub(crate) use sharing::{is_alone, was_alone};
use std::fmt;

/// Who found something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Checker {
    /// Reported counts equal the truth over the windows in which the event ran.
    Counts,
    /// running <= enabled <= now - opened, and each as long as it really was.
    Times,
    /// A parent is its own, its live children and those that retired; every event that should be in a family is.
    Families,
    /// A slot has one lease at most, an event one slot, on which it may be; no stale lease is used.
    Leases,
    /// Nothing counts for a task or CPU that is not there.
    Foreign,
    /// Groups are on counters whole or not at all.
    Groups,
    /// Pinned groups are on counters, or in error.
    Pinned,
    /// No group waits for a counter that is free.
    Waiting,
    /// What was not multiplexed has counted everything.
    Exact,
    /// Nothing is left when all is closed.
    Leftovers,
    /// Locks are taken in order, and nothing is done under the wrong one.
    Locks,
    /// A caller that waits for a doorbell is answered.
    Doorbells,
    /// CPUs of a set are covered, or missed, to the nanosecond.
    Coverage,
    /// After the faults stop, everything counts again.
    Convergence,
    /// What the machine can count is granted, and what it never can is refused, for the reason that it has; a breakpoint is
    /// refused where no debug register is left, and only there.
    Refusals,
    /// Events that share a counter ask the same, and events that ask the same share it.
    Sharing,
    /// What was sampled is in the ring, or counted as lost or dropped; readers see it once and in order.
    Samples,
}

impl Checker {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Counts,
        Self::Times,
        Self::Families,
        Self::Leases,
        Self::Foreign,
        Self::Groups,
        Self::Pinned,
        Self::Waiting,
        Self::Exact,
        Self::Leftovers,
        Self::Locks,
        Self::Doorbells,
        Self::Coverage,
        Self::Convergence,
        Self::Refusals,
        Self::Sharing,
        Self::Samples,
    ];
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Who found it.
    pub checker: Checker,
    /// When.
    pub at: Nanos,
    /// What is wrong, in words.
    pub what: String,
    /// The event.
    pub event: Option<Event>,
    /// Where: the task or the CPU.
    pub place: Option<ContextKey>,
    /// On which CPU.
    pub cpu: Option<CpuId>,
    /// In which slot.
    pub slot: Option<(PmuId, Slot)>,
    /// What should be, and what is.
    pub numbers: Option<(u64, u64)>,
}

impl Violation {
    pub(crate) fn new(checker: Checker, at: Nanos, what: impl Into<String>) -> Self {
        Self { checker, at, what: what.into(), event: None, place: None, cpu: None, slot: None, numbers: None }
    }

    pub(crate) fn event(self, event: Event) -> Self {
        Self { event: Some(event), ..self }
    }

    pub(crate) fn maybe_event(self, event: Option<Event>) -> Self {
        Self { event: event.or(self.event), ..self }
    }

    pub(crate) fn place(self, place: Option<ContextKey>) -> Self {
        Self { place, ..self }
    }

    pub(crate) fn task(self, task: TaskId) -> Self {
        self.place(Some(ContextKey::Task(task)))
    }

    pub(crate) fn maybe_task(self, task: Option<TaskId>) -> Self {
        self.place(task.map(ContextKey::Task))
    }

    pub(crate) fn cpu(self, cpu: CpuId) -> Self {
        Self { cpu: Some(cpu), ..self }
    }

    pub(crate) fn slot(self, pmu: PmuId, slot: Slot) -> Self {
        Self { slot: Some((pmu, slot)), ..self }
    }

    pub(crate) fn numbers(self, expected: u64, found: u64) -> Self {
        Self { numbers: Some((expected, found)), ..self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} ns: {}", self.checker, self.at.0, self.what)?;
        if let Some(event) = self.event {
            write!(f, ", event {event}")?;
        }
        match self.place {
            Some(ContextKey::Task(task)) => write!(f, ", task {}", task.0)?,
            Some(ContextKey::Cpu(cpu)) => write!(f, ", on CPU {cpu}")?,
            None => {}
        }
        if let Some(cpu) = self.cpu {
            write!(f, ", CPU {cpu}")?;
        }
        if let Some((pmu, slot)) = self.slot {
            write!(f, ", counter {} of PMU {}", slot.0, pmu.0)?;
        }
        if let Some((expected, found)) = self.numbers {
            write!(f, ": expected {expected}, found {found}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// How many groups, and how many CPUs, are looked at after a step.
pub(crate) const LOOKED_AT: usize = 8;

impl World {
    /// Checks what the steps since the last check can have broken: some of the groups that something was done to, and the
    /// CPUs that these are on. It costs the same however many tasks and CPUs there are.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_step(&mut self) -> Result<(), Violation> {
        self.check_machine()?;
        let touched = self.take_touched();
        let mut cpus = Vec::new();
        // What is counted means nothing where the wrong ones share.
        touched.iter().rev().take(LOOKED_AT).try_for_each(|&number| sharing::master(self, number))?;
        for &number in touched.iter().rev().take(LOOKED_AT) {
            refusals::granted(self, number)?;
            counts::group(self, number, Depth::Step)?;
            cpus.extend(self.cpus_of(number));
        }
        cpus.sort_unstable();
        cpus.dedup();
        cpus.into_iter().take(LOOKED_AT).try_for_each(|cpu| groups::on_cpu(self, cpu))?;
        // Reading has done something, too.
        self.check_machine()
    }

    /// Checks everything.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(&mut self) -> Result<(), Violation> {
        self.check_machine()?;
        let _ = self.take_touched();
        let numbers: Vec<u32> = self.books().iter().map(|(number, _)| number).collect();
        numbers.iter().try_for_each(|&number| refusals::granted(self, number))?;
        numbers.iter().try_for_each(|&number| sharing::master(self, number))?;
        sharing::as_few_as_questions(self)?;
        numbers.iter().try_for_each(|&number| counts::group(self, number, Depth::All))?;
        numbers.iter().try_for_each(|&number| families::group(self, number))?;
        (0..self.description().cpus).try_for_each(|cpu| groups::on_cpu(self, CpuId(cpu)))?;
        self.check_samples()?;
        leftovers::census(self)?;
        leftovers::registers(self)?;
        self.check_machine()
    }

    /// What the machine itself has seen since the last question: leases, strangers on counters, locks, doorbells.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_machine(&mut self) -> Result<(), Violation> {
        if any_faults() {
            let fault = take_faults().into_iter().next();
            let what = fault.map_or_else(String::new, |fault| fault.to_string());
            return Err(Violation::new(Checker::Locks, self.now(), what));
        }
        self.take_breaches().into_iter().next().map_or(Ok(()), Err)
    }

    /// What has become of samples ([`Checker::Samples`]).
    ///
    /// # Errors
    /// The first violation.
    pub fn check_samples(&self) -> Result<(), Violation> {
        self.rings().iter().try_for_each(|ring| samples::ring(self, ring))
    }

    /// The CPUs that a group is on now, some of them.
    fn cpus_of(&self, number: u32) -> Vec<CpuId> {
        let Some(book) = self.books().get(number) else { return Vec::new() };
        self.state(|state| {
            let sites = state.ledger.tag(book.tags[0]).map(|tag| &tag.sites[..]).unwrap_or_default();
            let cpu = |&site: &u32| match state.ledger.site(site)?.place {
                ContextKey::Cpu(cpu) => Some(cpu),
                ContextKey::Task(task) => state.task(task)?.on,
            };
            // The youngest are the last.
            sites.iter().rev().take(LOOKED_AT).filter_map(cpu).collect()
        })
    }
}
