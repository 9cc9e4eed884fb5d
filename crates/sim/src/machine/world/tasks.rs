//! Tasks: how they begin, what they do, how they end.

use super::super::faults::InjectedFault;
use super::super::locks::lock;
use super::super::state::State;
use super::super::{DescriptionError, Event};
use super::books::Which;
use super::{BookKind, CpuError, World};
use crate::check::{Checker, Violation, refusals};
use crate::machine::{Kind, Rates};
use pmux_engine::engine::Exec;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, FamilyId, OpenError, TaskId};
use std::fmt;

/// Why nothing was done with a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskError {
    /// Something is wrong with the CPU.
    Cpu(CpuError),
    /// No such task lives.
    NoSuchTask(TaskId),
    /// It would do more than the machine's counters can follow.
    TooFast(DescriptionError),
}

impl From<CpuError> for TaskError {
    fn from(error: CpuError) -> Self {
        Self::Cpu(error)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(error) => error.fmt(f),
            Self::NoSuchTask(task) => write!(f, "no task {} lives", task.0),
            Self::TooFast(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TaskError {}

struct Heirloom {
    book: u32,
    family: FamilyId,
    tags: Vec<Event>,
    only_on: Option<CpuId>,
    /// Which of the parent's events are in error, as far as a reading tells.
    in_error: Vec<bool>,
}

impl World {
    /// A task begins to exist. It runs when it is let run, on CPU 0 if nothing else is said, and does what is typical.
    pub fn task(&mut self) -> TaskId {
        self.task_on(CpuId(0))
    }

    /// A task begins to exist, whose CPU this is.
    pub fn task_on(&mut self, cpu: CpuId) -> TaskId {
        self.with(|state| {
            let rates = state.rates.intern(&Rates::typical());
            state.new_task(cpu, rates)
        })
    }

    /// A task goes on at other rates.
    ///
    /// # Errors
    /// In this order: no such task lives; counters would wrap twice before they can be read.
    pub fn set_rates(&mut self, task: TaskId, rates: &Rates) -> Result<(), TaskError> {
        if !self.lives(task) {
            return Err(TaskError::NoSuchTask(task));
        }
        self.check_rates(rates)?;
        self.with(|state| {
            let id = state.rates.intern(rates);
            state.set_rates(task, id);
        });
        Ok(())
    }

    fn check_rates(&self, rates: &Rates) -> Result<(), TaskError> {
        let description = self.description();
        for pmu in &description.pmus {
            // Half of it has passed already when a counter that began in the middle wraps.
            let Some(capacity) = pmu.capacity().map(|capacity| capacity / 2) else { continue };
            let within = description.notice(pmu);
            let too_fast = |&kind: &Kind| rates.of(kind).ceiling_per_ns().saturating_mul(within) >= capacity;
            if let Some(kind) = Kind::hardware().find(too_fast) {
                return Err(TaskError::TooFast(DescriptionError::TooFast(pmu.name.clone(), kind)));
            }
        }
        Ok(())
    }

    /// A task forks. Returns the child, and what the engine refused: groups that it refused are not inherited.
    ///
    /// The child does what the parent does at this moment.
    ///
    /// # Errors
    /// No such task lives.
    pub fn fork(&mut self, parent: TaskId) -> Result<(TaskId, Result<(), OpenError>), TaskError> {
        let (home, rates) = self
            .state(|state| state.task(parent).map(|parent| (parent.home, parent.rates)))
            .ok_or(TaskError::NoSuchTask(parent))?;
        let child = self.with(|state| state.new_task(home, rates));
        let heirlooms = self.heirlooms(parent);
        self.touch_place(ContextKey::Task(parent));
        let silent = self.state(|state| state.injected == Some(InjectedFault::SilentFork));
        let struck = self.refusals();
        let result = if silent { Ok(()) } else { self.call_as(parent, |engine| engine.task_fork(parent, child)) };
        if let Err(error) = result {
            refusals::of_fork(self, parent, error, struck).into_iter().for_each(|violation| self.report(violation));
        }
        for heirloom in heirlooms {
            self.inherit(&heirloom, (parent, child), result.is_err());
        }
        Ok((child, result))
    }

    fn call_as<R>(&self, task: TaskId, f: impl FnOnce(&pmux_engine::Engine<super::super::Machine>) -> R) -> R {
        match self.state(|state| state.task(task).and_then(|task| task.on)) {
            Some(cpu) => self.call_on(cpu, f),
            None => self.call(f),
        }
    }

    /// What a child of this task inherits, if the engine is given the counters.
    fn heirlooms(&self, parent: TaskId) -> Vec<Heirloom> {
        let heirlooms: Vec<_> = self.state(|state| {
            let Some(shelf) = state.shelf(ContextKey::Task(parent)) else { return Vec::new() };
            let heirloom = |site| {
                let site = state.ledger.site(site).filter(|site| !site.dead)?;
                let event = state.ledger.event_at(site.tag)?;
                let number = state.ledger.tag(event)?.group;
                let book = self.books.get(number).filter(|book| book.tags.first() == Some(&event))?;
                let (tags, only_on) = (book.tags.clone(), site.only_on);
                let heirloom = Heirloom { book: number, family: book.family()?, tags, only_on, in_error: Vec::new() };
                // A group that demands nothing and was never refused anything is in no error.
                Some((heirloom, book.pinned || state.faults.struck > 0))
            };
            shelf.sites().filter_map(heirloom).collect()
        });
        let looked_at = |(heirloom, may_err): (Heirloom, bool)| {
            let in_error = if may_err { self.errors_in(heirloom.book, parent) } else { Vec::new() };
            Heirloom { in_error, ..heirloom }
        };
        heirlooms.into_iter().map(looked_at).collect()
    }

    /// Which events of a group are in error in a task. One whose last reading was refused is not: it goes on.
    fn errors_in(&self, number: u32, task: TaskId) -> Vec<bool> {
        if self.books.get(number).is_some_and(super::Book::is_master) {
            return self.master_errors(number, ContextKey::Task(task));
        }
        let Some(group) = self.group_in(number, task) else { return Vec::new() };
        self.errors_of(self.engine().events(group).unwrap_or_default())
    }

    /// Whether the engine counts a child with a group of its own.
    pub(crate) fn is_counted(&self, family: FamilyId, child: TaskId) -> bool {
        self.child_group(family, child).is_some()
    }

    fn inherit(&mut self, heirloom: &Heirloom, (parent, child): (TaskId, TaskId), refused: bool) {
        let &Heirloom { book, family, ref tags, only_on, ref in_error } = heirloom;
        // A group that shares is on in a child whatever the state of its master is there, and that state is not known.
        let shares = self.shares() && tags.first().is_some_and(|&tag| self.is_shared(tag));
        let guess = shares || !self.is_quiet() || self.books.get(book).is_some_and(super::Book::is_master);
        self.books.touch(book);
        let place = ContextKey::Task(child);
        if !self.is_counted(family, child) {
            self.with(|state| {
                for tag in tags {
                    if let Some(site) = state.shelf(place).and_then(|shelf| shelf.find(tag.index, only_on)) {
                        state.drop_site(site);
                    }
                }
                if !refused {
                    let what = "a child that was not refused is not counted";
                    let violation = Violation::new(Checker::Families, state.now(), what).task(child);
                    state.breach(violation.maybe_event(tags.first().copied()));
                }
            });
            return;
        }
        self.with(|state| {
            for (index, tag) in tags.iter().enumerate() {
                let in_error = in_error.get(index).copied().unwrap_or(false);
                let of_parent = state.shelf(ContextKey::Task(parent)).and_then(|shelf| shelf.find(tag.index, only_on));
                let flags = of_parent
                    .and_then(|site| state.ledger.site(site))
                    .map(|site| (site.on, site.on_exec, site.doubtful, site.unknown));
                let site = state.site(*tag, place, only_on);
                if let (Some(site), Some((on, on_exec, doubtful, unknown))) = (state.ledger.site_mut(site), flags) {
                    site.on = on && (guess || !in_error);
                    site.unknown = unknown || (in_error && guess);
                    site.on_exec = on_exec;
                    site.doubtful |= doubtful || site.unknown;
                }
            }
            state.gate_place(tags, place, only_on, Which::Both);
        });
        if self.shares() {
            self.inherit_view(tags, place, only_on);
        }
    }

    /// A task executes another file.
    ///
    /// # Errors
    /// No such task lives.
    pub fn exec(&mut self, task: TaskId, exec: Exec) -> Result<(), TaskError> {
        if !self.lives(task) {
            return Err(TaskError::NoSuchTask(task));
        }
        self.touch_place(ContextKey::Task(task));
        self.change_task(task, |site| match exec {
            Exec::Plain => {
                site.on |= std::mem::take(&mut site.on_exec);
            }
            Exec::ChangesRights => site.dead = true,
        });
        self.call_as(task, |engine| engine.task_exec(task, exec));
        self.gate_task(task);
        self.settle_place(ContextKey::Task(task));
        Ok(())
    }

    /// Changes what is noted of all events of a task: wide gates of those who will be enabled open, narrow ones of those who
    /// will not close.
    fn change_task(&mut self, task: TaskId, change: impl Fn(&mut super::super::ledger::CountSite)) {
        self.with(|state| {
            for site in state.sites_in(ContextKey::Task(task)) {
                state.with_total(site, |site, total| {
                    let was_on = site.on && !site.dead;
                    change(site);
                    let is_on = site.on && !site.dead;
                    match (was_on, is_on) {
                        (true, false) => site.least.set(false, total),
                        // Whether its leader is on, too, is seen when it is done; until then it may be.
                        (false, true) => site.most.set(true, total),
                        _ => {}
                    }
                });
            }
        });
    }

    /// Opens and closes gates of all groups of a task, as its flags say.
    fn gate_task(&mut self, task: TaskId) {
        let place = ContextKey::Task(task);
        let mut state = lock(&self.machine.shared.state);
        let mut groups: Vec<_> = state.shelf(place).map_or_else(Vec::new, |shelf| {
            let group = |site| Some((state.ledger.group_at(site)?, state.ledger.site(site)?.only_on));
            shelf.sites().filter_map(group).collect()
        });
        groups.sort_unstable();
        groups.dedup();
        for (number, only_on) in groups {
            let Some(book) = self.books.get(number) else { continue };
            state.gate_place(&book.tags, place, only_on, Which::Both);
        }
    }

    /// A task ends: what it counted goes home to its parents. Root events stay readable.
    ///
    /// # Errors
    /// No such task lives.
    pub fn exit(&mut self, task: TaskId) -> Result<(), TaskError> {
        let on = self.state(|state| state.task(task).map(|task| task.on)).ok_or(TaskError::NoSuchTask(task))?;
        self.touch_place(ContextKey::Task(task));
        self.change_task(task, |site| site.dead = true);
        self.call_as(task, |engine| engine.task_exit(task));
        self.gate_task(task);
        if let Some(cpu) = on {
            self.machine.switch(&self.engine, cpu, None);
        }
        self.bury(task);
        Ok(())
    }

    /// Takes a task that has exited out of the books.
    fn bury(&mut self, task: TaskId) {
        let mut state = lock(&self.machine.shared.state);
        for site in state.sites_in(ContextKey::Task(task)) {
            let number = state.ledger.group_at(site);
            let (is_root, keeps) = match number.and_then(|number| self.books.get(number)).map(|book| &book.kind) {
                Some(BookKind::Group { target, keeps_each, .. }) => {
                    (target.context == ContextKey::Task(task), *keeps_each)
                }
                Some(BookKind::Master { root: Some(target), .. }) => (target.context == ContextKey::Task(task), false),
                Some(BookKind::OfSet { .. } | BookKind::Master { root: None, .. }) => (true, true),
                None => continue,
            };
            if let Some(site) = state.ledger.site_mut(site) {
                site.retired = !is_root;
            }
            if !keeps && !is_root {
                state.drop_site(site);
            }
        }
        state.end_task(task);
    }
}

impl State {
    /// A place is counted no more.
    pub(super) fn drop_site(&mut self, site: u32) {
        self.part(site);
        if let Some(gone) = self.ledger.take_site(site)
            && let Some(shelf) = self.shelf_mut(gone.place)
        {
            shelf.remove(gone.tag, gone.only_on);
        }
    }
}
