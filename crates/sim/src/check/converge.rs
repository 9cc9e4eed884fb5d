//! After the faults stop.
//!
//! What it is: everything is healed, each event that is in error is enabled again, all tasks run for a while; then each event
//! that can have a counter must have had one, and all checks must pass.

use super::groups::fits;
use super::{Checker, Violation};
use crate::machine::{BookKind, Event, World};
use pmux_engine::pmu::SlotMask;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, EventState, Nanos, TaskId};

const TASKS: usize = 64;

/// Who runs together: each CPU has one of its tasks in each round, until none has one left. A round costs a walk over all
/// CPUs for each of its ticks, so few are better than one for each task.
fn rounds(tasks: impl Iterator<Item = (CpuId, TaskId)>) -> Vec<Vec<(CpuId, TaskId)>> {
    let mut rounds: Vec<Vec<(CpuId, TaskId)>> = Vec::new();
    for (home, task) in tasks {
        match rounds.iter_mut().find(|round| round.iter().all(|&(cpu, _)| cpu != home)) {
            Some(round) => round.push((home, task)),
            None => rounds.push(vec![(home, task)]),
        }
    }
    rounds
}

impl World {
    /// Heals the machine, lets all tasks run, and checks that all is well again.
    ///
    /// It enables what is on already once more, as a user would whose event is in error. Time passes: some ticks for each
    /// task, of at most 64 tasks, those with the oldest numbers.
    ///
    /// # Errors
    /// The first violation.
    pub fn check_convergence(&mut self) -> Result<(), Violation> {
        self.heal();
        for cpu in (0..self.description().cpus).map(CpuId).filter(|&cpu| self.is_online(cpu)).collect::<Vec<_>>() {
            // It is online, so this cannot be refused.
            let _ = self.place(cpu, None);
        }
        self.enable_again();
        let tasks: Vec<_> = self.living().into_iter().filter(|&task| self.has_events(task)).take(TASKS).collect();
        let cpus: Vec<_> = (0..self.description().cpus).map(CpuId).filter(|&cpu| self.is_online(cpu)).collect();
        let most = cpus.iter().map(|&cpu| self.groups_in(ContextKey::Cpu(cpu))).max().unwrap_or(0);
        let before = self.ran_so_far();
        self.idle(self.turns(most));
        for round in rounds(tasks.iter().filter_map(|&task| Some((self.home(task)?, task)))) {
            let turns = |&(home, task): &(CpuId, TaskId)| {
                self.turns(self.groups_in(ContextKey::Task(task)) + self.groups_in(ContextKey::Cpu(home)))
            };
            let longest = round.iter().map(turns).max().unwrap_or_default();
            let there: Vec<_> =
                round.into_iter().filter(|&(home, task)| self.place(home, Some(task)).is_ok()).collect();
            self.pass(longest);
            for (home, task) in there {
                self.all_ran(ContextKey::Task(task), home, &before)?;
                if self.running_on(home) == Some(task) {
                    let _ = self.place(home, None);
                }
            }
        }
        for cpu in cpus {
            self.all_ran(ContextKey::Cpu(cpu), cpu, &before)?;
        }
        self.check()
    }

    /// Time for so many groups to take turns, twice.
    fn turns(&self, groups: usize) -> Nanos {
        Nanos(self.description().tick.0 * (4 * groups as u64 + 4))
    }

    fn has_events(&self, task: TaskId) -> bool {
        self.state(|state| state.shelf(ContextKey::Task(task)).is_some_and(|shelf| shelf.sites().next().is_some()))
    }

    fn groups_in(&self, place: ContextKey) -> usize {
        self.state(|state| state.shelf(place).map_or(0, |shelf| shelf.sites().count()))
    }

    /// Enables again what is enabled, wherever it may be in error.
    fn enable_again(&mut self) {
        let mut on: Vec<Event> = Vec::new();
        let mut sets = Vec::new();
        for (_, book) in self.books().iter() {
            match &book.kind {
                BookKind::Group { .. } => self.state(|state| {
                    // Though the root be gone, its children may live.
                    let is_on = |tag: &&Event| state.ledger.sites_of(**tag).any(|site| site.on && !site.dead);
                    // The leader last, so that a group comes back as one.
                    on.extend(book.tags.iter().rev().filter(is_on).copied());
                }),
                BookKind::Master { .. } => {}
                BookKind::OfSet { .. } => {
                    let set = book.tags.first().and_then(|&tag| self.set_of(tag)).map(|(set, _)| set);
                    let armed = matches!(book.kind, BookKind::OfSet { set, .. } if self.books().set(set).is_some_and(|set| set.armed));
                    sets.extend(set.filter(|_| armed));
                }
            }
        }
        for event in on {
            // What is in error for a reason stays there, and is looked at below.
            let _ = self.enable(event);
        }
        sets.sort_unstable();
        sets.dedup();
        for set in sets {
            let _ = self.enable_set(set);
        }
    }

    /// How long each event has run in each place.
    fn ran_so_far(&self) -> Vec<(u32, Nanos)> {
        self.state(|state| {
            let sites = state.ledger.all_sites();
            sites.map(|site| (site, state.ran(site).time)).collect()
        })
    }

    /// Each event that is enabled in a place has run since, unless there is never room for it.
    fn all_ran(&self, place: ContextKey, cpu: CpuId, before: &[(u32, Nanos)]) -> Result<(), Violation> {
        let ran_before =
            |site: u32| before.iter().find(|&&(other, _)| other == site).map_or(Nanos::ZERO, |&(_, ran)| ran);
        for (number, only_on) in super::groups::groups_at(self, place) {
            let Some(book) = self.books().get(number) else { continue };
            if only_on.is_some_and(|only| only != cpu) || self.may_starve(number, place, cpu) {
                continue;
            }
            for (index, &event) in book.tags.iter().enumerate() {
                let late = self.state(|state| {
                    let site = state.shelf(place)?.find(event.index, only_on)?;
                    let it = state.ledger.site(site)?;
                    let enabled = state.is_enabled(&book.tags, index, place, only_on) && !it.unknown;
                    (enabled && state.ran(site).time <= ran_before(site)).then_some(())
                });
                if late.is_some() {
                    let what = "the faults have stopped, and yet an event that is enabled gets no counter";
                    return Err(Violation::new(Checker::Convergence, self.now(), what).event(event).place(Some(place)));
                }
            }
        }
        Ok(())
    }

    /// Whether others that never give way may keep a group off: pinned groups, and exclusive ones.
    fn may_starve(&self, number: u32, place: ContextKey, cpu: CpuId) -> bool {
        let Some(book) = self.books().get(number) else { return true };
        if book.pinned {
            // In error, then: who comes first is for others to say.
            return self.pinned_in_error(number, place);
        }
        let asked: Vec<_> = book.tags.iter().filter_map(|&tag| self.where_may(tag)).collect();
        let Some(&(pmu, _)) = asked.first() else { return false };
        let wanted: Vec<_> = asked.iter().map(|&(_, allowed)| allowed).collect();
        let mut fixed = Vec::new();
        let mut others = false;
        let mut places = vec![ContextKey::Cpu(cpu), place];
        places.dedup();
        for other in places {
            for (number, _) in super::groups::groups_at(self, other) {
                let Some(book) = self.books().get(number).filter(|book| book.pinned) else { continue };
                let masks = book.tags.iter().filter_map(|&tag| self.where_may(tag)).filter(|&(on, _)| on == pmu);
                let before = fixed.len();
                fixed.extend(masks.map(|(_, allowed)| allowed));
                others |= fixed.len() > before && book.exclusive;
            }
        }
        let pinned_here = !fixed.is_empty();
        fixed.extend(wanted);
        others || (book.exclusive && pinned_here) || !fits(self, pmu, &fixed, SlotMask::default())
    }

    fn pinned_in_error(&self, number: u32, place: ContextKey) -> bool {
        let Some(book) = self.books().get(number) else { return true };
        match &book.kind {
            BookKind::Group { events, target, .. } if target.context == place => {
                // A leader that is on stays on where a sibling finds no room beside it.
                events.iter().any(|&event| self.engine().state(event) == Ok(EventState::Error))
            }
            BookKind::Master { .. } => self.master_errors(number, place).contains(&true),
            _ => true,
        }
    }
}
