//! What is true of an event in one place.
//!
//! What it is: how much of what it counts has happened there, and how much of that while a register was started for it.
//!
//! **Invariant:** asked at any moment, the answer is exact to that moment: what registers have not been asked for yet is
//! counted in.

use super::faults::Planted;
use super::ledger::{Event, Shelf, Window};
use super::model::Question;
use super::registers::RegisterKey;
use super::state::State;
use crate::machine::Kind;
use pmux_engine::context::ContextKey;
use pmux_engine::{CpuId, Nanos, TaskId};

impl State {
    /// The kin of an event in a place, made if there is none.
    pub(crate) fn kin(&mut self, event: Event, place: ContextKey, only_on: Option<CpuId>) -> u32 {
        if let Some(kin) = self.kin_at(event, place, only_on) {
            return kin;
        }
        let kin = self.ledger.new_kin(event.index, place, only_on);
        let question = self.ledger.tag(event).map(|tag| tag.question);
        let special = only_on.is_some() || matches!(question, Some(Question::Access(_)));
        let there = match place {
            ContextKey::Task(task) => self.task(task).and_then(|task| task.on).filter(|&cpu| Some(cpu) == only_on),
            ContextKey::Cpu(_) => None,
        };
        if there.is_some() {
            self.come_there(kin);
        }
        if let Some(shelf) = self.shelf_mut(place) {
            shelf.insert(event.index, only_on, kin);
            if special {
                shelf.mark_special(kin);
            }
        }
        kin
    }

    /// The kin of an event in a place, though the task that the place was be gone.
    pub(crate) fn kin_at(&self, event: Event, place: ContextKey, only_on: Option<CpuId>) -> Option<u32> {
        if let Some(shelf) = self.shelf(place) {
            return shelf.find(event.index, only_on);
        }
        let is_it = |&&kin: &&u32| self.ledger.kin(kin).is_some_and(|kin| (kin.place, kin.only_on) == (place, only_on));
        self.ledger.tag(event)?.kins.iter().find(is_it).copied()
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

    /// Something happens on a CPU in no time: each event that is enabled and on no counter misses it.
    pub(crate) fn note_missed(&mut self, cpu: CpuId, task: Option<TaskId>) {
        for place in [Some(ContextKey::Cpu(cpu)), task.map(ContextKey::Task)].into_iter().flatten() {
            let kins: Vec<_> = self.shelf(place).map(|shelf| shelf.kins().collect()).unwrap_or_default();
            for kin in kins {
                let is_on = self.counter_of(kin).is_some();
                if let Some(kin) = self.ledger.kin_mut(kin) {
                    kin.missed |= kin.most.is_open() && !is_on;
                }
            }
        }
    }

    /// Something was accessed: debug registers see it.
    pub(crate) fn see_access(&mut self, cpu: CpuId, address: u64, bp_type: u32, times: u64) {
        let sees = |question| matches!(question, Question::Access(watch) if watch.sees(address, bp_type));
        let seeing: Vec<_> =
            self.going(cpu).filter(|&key| self.register(key).is_some_and(|it| sees(it.question))).collect();
        let seen = if self.planted == Some(Planted::MissAccesses) { times / 2 } else { times };
        for key in seeing {
            self.fold(key);
            self.add(key, Window { occurrences: seen, time: Nanos::ZERO });
        }
        let current = self.cpu(cpu).current;
        self.note_missed(cpu, current);
        for place in [Some(ContextKey::Cpu(cpu)), current.map(ContextKey::Task)].into_iter().flatten() {
            let mut index = 0;
            while let Some(kin) = self.shelf(place).and_then(|shelf| shelf.special(index)) {
                index += 1;
                let question = self.question_of(kin);
                if question.is_some_and(sees)
                    && let Some(kin) = self.ledger.kin_mut(kin).filter(|kin| kin.only_on.is_none_or(|only| only == cpu))
                {
                    kin.own_total += times;
                }
            }
        }
    }

    fn question_of(&self, kin: u32) -> Option<Question> {
        let kin = self.ledger.kin(kin)?;
        Some(self.ledger.tag(self.ledger.event_at(kin.tag)?)?.question)
    }

    /// How much of what it counts a kin has seen so far, and how long its context was there.
    pub(crate) fn kin_total(&self, kin: u32) -> Window {
        let (Some(it), Some(question)) = (self.ledger.kin(kin), self.question_of(kin)) else {
            return Window::default();
        };
        let occurrences = match (question, it.only_on) {
            (Question::Access(_), _) => it.own_total,
            (Question::Kind(kind), None) => self.total(it.place, kind),
            (Question::Kind(kind), Some(_)) => {
                let here = it.there_since.map_or(0, |since| self.total(it.place, kind).wrapping_sub(since));
                it.own_total.wrapping_add(here)
            }
        };
        Window { occurrences, time: Nanos(self.total(it.place, Kind::CPU_CLOCK)) }
    }

    /// A task comes to the one CPU that a kin of it looks at.
    fn come_there(&mut self, kin: u32) {
        let total = match (self.question_of(kin), self.ledger.kin(kin)) {
            (Some(Question::Kind(kind)), Some(it)) => self.total(it.place, kind),
            _ => return,
        };
        if let Some(kin) = self.ledger.kin_mut(kin) {
            kin.there_since = Some(total);
        }
    }

    /// A task comes onto a CPU, or leaves: kins that look at one CPU see it.
    pub(crate) fn tell_special(&mut self, task: TaskId, on: Option<CpuId>) {
        let mut index = 0;
        while let Some(kin) = self.shelf(ContextKey::Task(task)).and_then(|shelf| shelf.special(index)) {
            index += 1;
            let only_on = self.ledger.kin(kin).and_then(|kin| kin.only_on);
            let total = self.kin_total(kin).occurrences;
            if let Some(it) = self.ledger.kin_mut(kin)
                && it.there_since.take().is_some()
            {
                it.own_total = total;
            }
            if only_on.is_some() && only_on == on {
                self.come_there(kin);
            }
        }
    }

    /// What happened while registers were started for a kin, until now.
    pub(crate) fn ran(&self, kin: u32) -> Window {
        let Some(it) = self.ledger.kin(kin) else { return Window::default() };
        if self.is_view(kin) {
            return self.seen(kin);
        }
        let mut ran = it.ran;
        if let Some(key) = it.running {
            ran += self.unsettled(key);
        }
        ran
    }

    /// What happened while registers were started for an event anywhere, until now.
    pub(crate) fn ran_anywhere(&self, event: Event) -> Window {
        let Some(tag) = self.ledger.tag(event) else { return Window::default() };
        if let Some(view) = tag.view {
            return self.seen_anywhere(tag, &view);
        }
        let mut ran = tag.ran;
        for &key in &tag.running {
            if self.register(key).is_some_and(|register| register.kin.is_some()) {
                ran += self.unsettled(key);
            }
        }
        ran
    }

    fn unsettled(&self, key: RegisterKey) -> Window {
        let (Some(bank), Some(register)) = (self.bank(key.bank), self.register(key)) else { return Window::default() };
        let mark = self.mark(bank.key, register.question);
        Window {
            occurrences: mark.occurrences.wrapping_sub(register.mark.occurrences),
            time: mark.time.since(register.mark.time),
        }
    }
}
