//! A machine and an engine, driven together.
//!
//! What it is: every operation that a test, a scenario or a random run does to a machine. Each goes to the engine as a host
//! would bring it there, and into books of its own, which say what should be so afterwards.
//! Read first: [`World`], then `books` (what should be) and `running` (who runs where); [`crate::check`] compares.
//!
//! **Invariant:** the books are kept from what the driver asked for. The engine is asked only what it alone can know:
//! whether it refused.

mod books;
mod changes;
mod cpus;
mod event_sets;
mod events;
mod moments;
mod resets;
mod rings;
mod running;
mod sets;
mod tasks;
mod truth;
mod views;

pub(crate) use books::{Book, BookKind, Books};
pub use cpus::CpuError;
pub use event_sets::SwitchTarget;
pub use events::Start;
pub(crate) use rings::RingBook;
pub use sets::Set;
pub use tasks::TaskError;
pub use truth::Truth;

use super::locks::lock;
use super::state::State;
use super::trace::Timeline;
use super::{Event, Machine};
use crate::check::Violation;
use crate::machine::{Description, DescriptionError};
use pmux_abi::attr::Attr;
use pmux_engine::inherit::Attribution;
use pmux_engine::share::Sharing;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Engine, Nanos, PmuId, TaskId};
use std::sync::Arc;

/// A simulated machine with an engine on it.
///
/// It is driven from one thread. Times are virtual: they pass in [`World::run`] and [`World::pass`], and while a caller
/// waits for a doorbell.
pub struct World {
    engine: Arc<Engine<Machine>>,
    machine: Machine,
    books: Books,
    /// Where callers are.
    here: CpuId,
    attribution: Attribution,
    /// How many refusals there had been when all was healed last.
    healed_at: u64,
    rings: Vec<RingBook>,
    event_sets: Vec<event_sets::EventSetBook>,
}

impl World {
    /// A machine on which nothing has happened yet. Whatever is left to chance comes from `seed`.
    ///
    /// # Errors
    /// What can't be: see [`Description::check`].
    pub fn new(description: Description, seed: u64) -> Result<Self, DescriptionError> {
        Self::with_sharing(description, seed, Sharing::Off)
    }

    /// The same, with an engine that lets equal questions share a counter, or not.
    ///
    /// # Errors
    /// As [`World::new`].
    pub fn with_sharing(description: Description, seed: u64, sharing: Sharing) -> Result<Self, DescriptionError> {
        description.check()?;
        let online = (0..description.cpus).map(CpuId).collect();
        // What another world on this thread has left is not this one's.
        let _ = super::take_faults();
        let machine = Machine::new(description, seed);
        let engine = Arc::new(Engine::new(machine.clone(), online).with_sharing(sharing));
        machine.bind(&engine);
        let (books, here, attribution) = (Books::default(), CpuId(0), Attribution::EachTask);
        let (rings, event_sets) = (Vec::new(), Vec::new());
        Ok(Self { engine, machine, books, here, attribution, healed_at: 0, rings, event_sets })
    }

    /// The engine, to ask it what this type does not.
    #[must_use]
    pub fn engine(&self) -> &Engine<Machine> {
        &self.engine
    }

    /// What the machine is.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.machine.shared.description
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.state(|state| state.now())
    }

    /// An event by its name, for [`World::open`].
    #[must_use]
    pub fn event(&self, name: &str) -> Option<(PmuId, Attr)> {
        self.description().event(name)
    }

    /// Where callers are, now that CPUs have come or gone: on CPU 0, or the lowest one that is online. It matters where
    /// they reach their own CPU only.
    fn find_caller(&mut self) {
        self.here = self.state(State::first_online);
    }

    /// Whether families that are founded from now on keep what each child counted, or only their sum; at first, they keep
    /// it.
    pub fn attribute(&mut self, attribution: Attribution) {
        self.attribution = attribution;
    }

    /// The tasks that live.
    #[must_use]
    pub fn living(&self) -> Vec<TaskId> {
        self.state(|state| state.living().collect())
    }

    /// Whether a task lives.
    #[must_use]
    pub fn lives(&self, task: TaskId) -> bool {
        self.state(|state| state.task(task).is_some())
    }

    /// Where a task runs when it runs; `None` if it ended.
    #[must_use]
    pub fn home(&self, task: TaskId) -> Option<CpuId> {
        self.state(|state| state.task(task).map(|task| task.home))
    }

    /// How long a task has run; 0 if it ended.
    #[must_use]
    pub fn run_time(&self, task: TaskId) -> Nanos {
        self.state(|state| Nanos(state.run_time(task)))
    }

    /// Whether a CPU is there.
    #[must_use]
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.state(|state| state.cpus.get(cpu.0 as usize).is_some_and(|cpu| cpu.online))
    }

    /// Who is on a CPU.
    #[must_use]
    pub fn running_on(&self, cpu: CpuId) -> Option<TaskId> {
        self.state(|state| state.cpus.get(cpu.0 as usize)?.current)
    }

    /// How many times the machine has refused something because it was told to.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.state(|state| state.faults.struck)
    }

    /// How many of these were readings.
    pub(super) fn refused_readings(&self) -> u64 {
        self.state(|state| state.faults.unread)
    }

    /// Whether nothing was refused since all was healed last (or since the beginning).
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.refusals() == self.healed_at
    }

    /// What happened so far, where the description asks for it: what still lasts, ends now.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.state(|state| state.timeline_so_far())
    }

    pub(crate) fn marks_so_far(&self) -> usize {
        self.state(|state| state.timeline.as_ref().map_or(0, |timeline| timeline.marks.len()))
    }

    /// The events that are open, groups and sets, in no order that means anything.
    pub fn open_events(&self) -> impl Iterator<Item = Event> + '_ {
        self.books.iter().filter(|(_, book)| !book.is_master()).flat_map(|(_, book)| book.tags.iter().copied())
    }

    /// What the machine has seen going wrong by itself since the last question.
    pub(crate) fn take_breaches(&mut self) -> Vec<Violation> {
        self.with(|state| std::mem::take(&mut state.breaches))
    }

    pub(crate) const fn books(&self) -> &Books {
        &self.books
    }

    pub(crate) fn state<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&lock(&self.machine.shared.state))
    }

    /// Changes the machine, without the engine.
    fn with<R>(&mut self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut lock(&self.machine.shared.state))
    }

    /// Calls the engine from where callers are.
    fn call<R>(&self, f: impl FnOnce(&Engine<Machine>) -> R) -> R {
        self.call_on(self.here, f)
    }

    /// Asks the engine from nowhere: every register is reached, and no time passes.
    pub(crate) fn observe<R>(&self, f: impl FnOnce(&Engine<Machine>) -> R) -> R {
        self.machine.on_cpu(CpuId(super::host::OBSERVER), || f(&self.engine))
    }

    fn call_on<R>(&self, cpu: CpuId, f: impl FnOnce(&Engine<Machine>) -> R) -> R {
        let tells = self.must_tell_moments();
        if tells {
            lock(&self.machine.shared.state).note_masters();
        }
        let result = self.machine.on_cpu(cpu, || f(&self.engine));
        if tells {
            lock(&self.machine.shared.state).note_return();
        }
        result
    }

    fn known_cpu(&self, cpu: CpuId) -> Result<CpuId, CpuError> {
        if cpu.0 < self.description().cpus { Ok(cpu) } else { Err(CpuError::NoSuchCpu(cpu)) }
    }

    /// What happens to the events of a place from now on is worth a look.
    fn touch_place(&mut self, place: ContextKey) {
        self.books.touch_place(place);
    }

    /// The groups that something was done to since the last question.
    pub(crate) fn take_touched(&mut self) -> Vec<u32> {
        for place in self.books.take_places() {
            let groups: Vec<u32> = self.state(|state| {
                let Some(shelf) = state.shelf(place) else { return Vec::new() };
                shelf.sites().filter_map(|site| state.ledger.group_at(site)).take(crate::check::LOOKED_AT).collect()
            });
            groups.into_iter().for_each(|group| self.books.touch(group));
        }
        self.books.take_touched()
    }
}
