//! What is true of an event in one place.
//!
//! What it is: how much of what it counts has happened there, and how much of that while a register was started for it.
//!
//! **Invariant:** asked at any moment, the answer is exact to that moment: what registers have not been asked for yet is
//! counted in.

use super::faults::InjectedFault;
use super::ledger::{Activity, CountSite, Event, Shelf};
use super::model::CountedEvent;
use super::registers::RegisterKey;
use super::state::State;
use crate::machine::Kind;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Nanos, TaskId};

impl State {
    /// The site of an event in a place, made if there is none.
    pub(crate) fn site(&mut self, event: Event, place: ContextKey, only_on: Option<CpuId>) -> u32 {
        if let Some(site) = self.site_at(event, place, only_on) {
            return site;
        }
        let site = self.ledger.new_site(event.index, place, only_on);
        let counted = self.ledger.tag(event).map(|tag| tag.counted);
        let special = only_on.is_some() || matches!(counted, Some(CountedEvent::Access(_)));
        let there = match place {
            ContextKey::Task(task) => self.task(task).and_then(|task| task.on).filter(|&cpu| Some(cpu) == only_on),
            ContextKey::Cpu(_) => None,
        };
        if there.is_some() {
            self.come_there(site);
        }
        if let Some(shelf) = self.shelf_mut(place) {
            shelf.insert(event.index, only_on, site);
            if special {
                shelf.special.push(site);
            }
        }
        site
    }

    /// The site of an event in a place, though the task that the place was be gone.
    pub(crate) fn site_at(&self, event: Event, place: ContextKey, only_on: Option<CpuId>) -> Option<u32> {
        if let Some(shelf) = self.shelf(place) {
            return shelf.find(event.index, only_on);
        }
        let is_it =
            |&&site: &&u32| self.ledger.site(site).is_some_and(|site| (site.place, site.only_on) == (place, only_on));
        self.ledger.tag(event)?.sites.iter().find(is_it).copied()
    }

    pub(crate) fn shelf(&self, place: ContextKey) -> Option<&Shelf> {
        match place {
            ContextKey::Cpu(cpu) => self.cpus.get(cpu.0 as usize).map(|cpu| &cpu.shelf),
            ContextKey::Task(task) => self.task(task).map(|task| &task.shelf),
        }
    }

    pub(crate) fn shelf_mut(&mut self, place: ContextKey) -> Option<&mut Shelf> {
        match place {
            ContextKey::Cpu(cpu) => self.cpus.get_mut(cpu.0 as usize).map(|cpu| &mut cpu.shelf),
            ContextKey::Task(task) => self.task_mut(task).map(|task| &mut task.shelf),
        }
    }

    pub(crate) fn sites_in(&self, place: ContextKey) -> Vec<u32> {
        self.shelf(place).map(|shelf| shelf.sites().collect()).unwrap_or_default()
    }

    /// Changes what is noted of a site, given how much it has seen so far.
    pub(crate) fn with_total(&mut self, site: u32, f: impl FnOnce(&mut CountSite, Activity)) {
        let total = self.site_total(site);
        if let Some(site) = self.ledger.site_mut(site) {
            f(site, total);
        }
    }

    /// Something happens on a CPU in no time: each event that is enabled and on no counter misses it.
    pub(crate) fn note_missed(&mut self, cpu: CpuId, task: Option<TaskId>) {
        for place in [Some(ContextKey::Cpu(cpu)), task.map(ContextKey::Task)].into_iter().flatten() {
            for site in self.sites_in(place) {
                let is_on = self.counter_of(site).is_some();
                if let Some(site) = self.ledger.site_mut(site) {
                    site.missed |= site.most.is_open() && !is_on;
                }
            }
        }
    }

    /// Something was accessed: debug registers see it.
    pub(crate) fn see_access(&mut self, cpu: CpuId, address: u64, bp_type: u32, times: u64) {
        let sees = |counted| matches!(counted, CountedEvent::Access(watch) if watch.sees(address, bp_type));
        let seeing: Vec<_> =
            self.going(cpu).filter(|&key| self.register(key).is_some_and(|it| sees(it.counted))).collect();
        let seen = if self.injected == Some(InjectedFault::MissAccesses) { times / 2 } else { times };
        for key in seeing {
            self.fold(key);
            self.add(key, Activity { occurrences: seen, time: Nanos::ZERO });
        }
        let current = self.cpu(cpu).current;
        self.note_missed(cpu, current);
        for place in [Some(ContextKey::Cpu(cpu)), current.map(ContextKey::Task)].into_iter().flatten() {
            let mut index = 0;
            while let Some(site) = self.shelf(place).and_then(|shelf| shelf.special(index)) {
                index += 1;
                let counted = self.question_of(site);
                if counted.is_some_and(sees)
                    && let Some(site) =
                        self.ledger.site_mut(site).filter(|site| site.only_on.is_none_or(|only| only == cpu))
                {
                    site.own_total += times;
                }
            }
        }
    }

    fn question_of(&self, site: u32) -> Option<CountedEvent> {
        self.ledger.tag_of(self.ledger.site(site)?).map(|tag| tag.counted)
    }

    /// How much of what it counts a site has seen so far, and how long its context was there.
    pub(crate) fn site_total(&self, site: u32) -> Activity {
        let (Some(it), Some(counted)) = (self.ledger.site(site), self.question_of(site)) else {
            return Activity::default();
        };
        let occurrences = match (counted, it.only_on) {
            (CountedEvent::Access(_), _) => it.own_total,
            (CountedEvent::Kind(kind), None) => self.total(it.place, kind),
            (CountedEvent::Kind(kind), Some(_)) => {
                let here = it.there_since.map_or(0, |since| self.total(it.place, kind).wrapping_sub(since));
                it.own_total.wrapping_add(here)
            }
        };
        Activity { occurrences, time: Nanos(self.total(it.place, Kind::CPU_CLOCK)) }
    }

    /// A task comes to the one CPU that a site of it looks at.
    fn come_there(&mut self, site: u32) {
        let total = match (self.question_of(site), self.ledger.site(site)) {
            (Some(CountedEvent::Kind(kind)), Some(it)) => self.total(it.place, kind),
            _ => return,
        };
        if let Some(site) = self.ledger.site_mut(site) {
            site.there_since = Some(total);
        }
    }

    /// A task comes onto a CPU, or leaves: sites that look at one CPU see it.
    pub(crate) fn tell_special(&mut self, task: TaskId, on: Option<CpuId>) {
        let mut index = 0;
        while let Some(site) = self.shelf(ContextKey::Task(task)).and_then(|shelf| shelf.special(index)) {
            index += 1;
            let only_on = self.ledger.site(site).and_then(|site| site.only_on);
            let total = self.site_total(site).occurrences;
            if let Some(it) = self.ledger.site_mut(site)
                && it.there_since.take().is_some()
            {
                it.own_total = total;
            }
            if only_on.is_some() && only_on == on {
                self.come_there(site);
            }
        }
    }

    /// What happened while registers were started for a site, until now.
    pub(crate) fn ran(&self, site: u32) -> Activity {
        let Some(it) = self.ledger.site(site) else { return Activity::default() };
        if self.is_view(site) {
            return self.seen(site);
        }
        let mut ran = it.ran;
        if let Some(key) = it.running {
            ran += self.unsettled(key);
        }
        ran
    }

    /// What happened while registers were started for an event anywhere, until now.
    pub(crate) fn ran_anywhere(&self, event: Event) -> Activity {
        let Some(tag) = self.ledger.tag(event) else { return Activity::default() };
        if let Some(view) = tag.view {
            return self.seen_anywhere(tag, &view);
        }
        let mut ran = tag.ran;
        for &key in &tag.running {
            if self.register(key).is_some_and(|register| register.site.is_some()) {
                ran += self.unsettled(key);
            }
        }
        ran
    }

    fn unsettled(&self, key: RegisterKey) -> Activity {
        let (Some(bank), Some(register)) = (self.bank(key.bank), self.register(key)) else {
            return Activity::default();
        };
        self.mark(bank.key, register.counted) - register.mark
    }
}
