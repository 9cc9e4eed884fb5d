//! What expectations see.
//!
//! What it is: [`Observe`] on a run. The engine is read as by an observer who is everywhere, so that no time passes between a
//! count and the truth that it is compared with.
//!
//! **Invariant:** looking changes nothing.

use super::super::ast::{Name, Part, Subject, Window};
use super::super::eval::{Gap, Observe};
use super::super::trigger_watch::fired;
use super::execution::{Execution, Refused};
use super::naming::{Bound, Record, RecordState};
use crate::machine::{Event, Set, Truth};
use crate::timeline::{CpuGap, EventFigures};
use pmux_engine::engine::SetReading;
use pmux_engine::target::ContextKey;
use pmux_engine::{Count, CpuId, EventState, Nanos, ReadError, TaskId};

/// A run, as expectations see it.
pub(super) struct Facts<'a>(pub(super) &'a Execution);

impl Observe for Facts<'_> {
    fn count(&mut self, subject: &Subject) -> Result<Count, String> {
        let count = match self.0.count_source(subject)? {
            CountSource::All(record) => self.0.count_all(record),
            CountSource::One(event) => self.0.count_one(event),
            CountSource::OnCpu(set, event, cpu) => self.0.count_on(set, event, cpu),
            CountSource::Own(event) => self.0.count_own(event),
            CountSource::Retired(event, _) => self.0.count_retired(event),
            CountSource::Child(event, task) => self.0.count_child(event, task),
        };
        count.map_err(|error| match error {
            ReadError::Closed => format!("{subject} is not counted"),
            _ => format!("{subject} can't be read: {error}"),
        })
    }

    fn states(&mut self, subject: &Subject) -> Result<Vec<EventState>, String> {
        let run = self.0;
        let state = |event| run.world.state_of(event).map_err(|error| format!("{subject} has no state: {error}"));
        match run.count_source(subject)? {
            CountSource::All(record) => match &record.bound {
                Bound::Task(event, _) => Ok(vec![state(*event)?]),
                Bound::Cpus(events) => events.iter().map(|&(_, event)| state(event)).collect(),
                Bound::Set(set, event) => Ok(run.states_of_set(*set, *event, None)),
            },
            CountSource::One(event) | CountSource::Own(event) => Ok(vec![state(event)?]),
            CountSource::OnCpu(set, event, cpu) => Ok(run.states_of_set(set, event, Some(cpu))),
            CountSource::Child(event, task) => Ok(vec![run.state_of_child(event, task)]),
            CountSource::Retired(..) => Err("children that have exited have no state".into()),
        }
    }

    fn truth(&mut self, subject: &Subject, window: Window) -> Result<u64, String> {
        let world = &self.0.world;
        let truths: Vec<Truth> = match self.0.count_source(subject)? {
            CountSource::All(record) => record.bound.events().iter().filter_map(|&event| world.truth(event)).collect(),
            CountSource::One(event) => world.truth(event).into_iter().collect(),
            CountSource::OnCpu(_, event, cpu) => world.truth_at(event, ContextKey::Cpu(cpu)).into_iter().collect(),
            CountSource::Own(event) => {
                let root = self.0.root_of(event);
                root.and_then(|root| world.truth_at(event, ContextKey::Task(root))).into_iter().collect()
            }
            CountSource::Retired(event, root) => {
                let exited = self.0.names.tasks().filter(|&task| task != root && !world.lives(task));
                exited.filter_map(|task| world.truth_at(event, ContextKey::Task(task))).collect()
            }
            CountSource::Child(event, task) => world.truth_at(event, ContextKey::Task(task)).into_iter().collect(),
        };
        match window {
            Window::Running => Ok(truths.iter().fold(0, |sum, truth| sum.wrapping_add(truth.counted))),
            Window::Enabled => {
                let sum = |of: fn(&Truth) -> u64| truths.iter().fold(0_u64, |sum, truth| sum.wrapping_add(of(truth)));
                let (least, most) = (sum(|truth| truth.enabled.0), sum(|truth| truth.enabled.1));
                if least != most {
                    let why = "callers waited while it was switched";
                    return Err(format!("what happened while {subject} was enabled is {least} to {most}: {why}"));
                }
                Ok(least)
            }
        }
    }

    fn gap(&mut self, subject: &Subject) -> Result<Gap, String> {
        let (set, cpu) = match self.0.count_source(subject)? {
            CountSource::All(Record { bound: Bound::Set(set, _), .. }) => (*set, None),
            CountSource::OnCpu(set, _, cpu) => (set, Some(cpu)),
            _ => return Err(format!("{subject} has no gaps: only system-wide sets follow CPUs")),
        };
        let gaps = self.0.gaps(set).map_err(|error| format!("{subject} can't be read: {error}"))?;
        let asked = gaps.iter().filter(|gap| cpu.is_none_or(|cpu| gap.cpu == cpu));
        Ok(asked.fold(Gap::default(), |sum, gap| Gap { missed: sum.missed + gap.missed, times: sum.times + gap.times }))
    }

    fn fired(&mut self, trigger: &Name) -> Result<u64, String> {
        fired(&self.0.trigger_watches, trigger)
    }

    fn lost(&mut self, subject: Option<&Subject>) -> Result<u64, String> {
        let Some(subject) = subject else { return Ok(self.0.lost_so_far()) };
        let number = self.0.names.open_number(&subject.event).map_err(|refused| said(&subject.event, &refused))?;
        Ok(self.0.lost_of(number))
    }
}

impl Execution {
    /// What is to be seen now.
    #[must_use]
    pub const fn observe(&self) -> impl Observe + '_ {
        Facts(self)
    }
}

enum CountSource<'a> {
    All(&'a Record),
    One(Event),
    OnCpu(Set, Event, CpuId),
    Own(Event),
    Retired(Event, TaskId),
    Child(Event, TaskId),
}

fn said(name: &Name, refused: &Refused) -> String {
    match refused {
        Refused::Unusable(why) | Refused::Unmet(why) => why.clone(),
        Refused::Errno { .. } => format!("event `{name}` is closed"),
    }
}

impl Execution {
    fn count_source(&self, subject: &Subject) -> Result<CountSource<'_>, String> {
        let name = &subject.event;
        let number = self.names.open_number(name).map_err(|refused| said(name, &refused))?;
        let record = self.names.records.get(number).ok_or_else(|| format!("there is no event `{name}`"))?;
        match (&subject.part, &record.bound) {
            (Part::Whole, _) => Ok(CountSource::All(record)),
            (Part::Cpu(cpu), Bound::Set(set, event)) => Ok(CountSource::OnCpu(*set, *event, *cpu)),
            (Part::Cpu(cpu), Bound::Cpus(events)) => {
                let here = events.iter().find(|(other, _)| other == cpu);
                here.map(|&(_, event)| CountSource::One(event))
                    .ok_or_else(|| format!("`{name}` is not open on cpu{cpu}"))
            }
            (Part::Cpu(_), Bound::Task(..)) => {
                Err(format!("`{name}` counts a task: what it counted on one CPU is not kept"))
            }
            (Part::Own | Part::Retired | Part::Child(_), Bound::Task(event, _)) if self.world.is_shared(*event) => {
                Err(format!("`{name}` shares its counter: who counted what is not told apart"))
            }
            (Part::Own, Bound::Task(event, _)) => Ok(CountSource::Own(*event)),
            (Part::Retired, Bound::Task(event, root)) => Ok(CountSource::Retired(*event, *root)),
            (Part::Child(child), Bound::Task(event, _)) => {
                let task = self.names.task(child).map_err(|refused| said(child, &refused))?;
                Ok(CountSource::Child(*event, task))
            }
            (Part::Own | Part::Retired | Part::Child(_), _) => Err(format!("`{name}` has no children")),
        }
    }

    fn root_of(&self, event: Event) -> Option<TaskId> {
        match self.names.records.get(self.names.number_of(event)?)?.bound {
            Bound::Task(_, root) => Some(root),
            _ => None,
        }
    }

    fn index_in_group(&self, event: Event) -> usize {
        let number = self.world.number_of(event);
        let book = number.and_then(|number| self.world.books().get(number));
        book.and_then(|book| book.tags.iter().position(|&tag| tag == event)).unwrap_or(0)
    }

    fn count_all(&self, record: &Record) -> Result<Count, ReadError> {
        match &record.bound {
            Bound::Task(event, _) => self.count_one(*event),
            Bound::Cpus(events) => events.iter().try_fold(Count::default(), |mut sum, &(_, event)| {
                sum += self.count_one(event)?;
                Ok(sum)
            }),
            Bound::Set(set, event) => {
                let index = self.world.set_of(*event).map_or(0, |(_, index)| index);
                self.read_set(*set)?.cpus.iter().try_fold(Count::default(), |mut sum, cpu| {
                    sum += cpu.counts.get(index).copied().unwrap_or(Err(ReadError::Closed))?;
                    Ok(sum)
                })
            }
        }
    }

    /// An event with its children. One that is in error has counted what it had counted when it came to that.
    fn count_one(&self, event: Event) -> Result<Count, ReadError> {
        let (_, id) = self.world.id_of(event).ok_or(ReadError::Closed)?;
        match self.world.observe(|engine| engine.read(id)) {
            Err(ReadError::Error(_)) if self.is_in_error(event) && self.world.is_shared(event) => {
                // Its children, who count with its master's, are read all the same, and are in what is remembered of it.
                let group = self.world.group_of(event).ok_or(ReadError::Closed)?;
                self.world
                    .observe(|engine| engine.read_group(group).and_then(|_| engine.read_cached(id)))
                    .map(|it| it.0)
            }
            Err(ReadError::Error(_)) if self.is_in_error(event) => {
                let mut sum = self.count_own(event)?;
                if self.has_family(event) {
                    sum += self.count_retired(event)?;
                    for child in self.world.living() {
                        match self.count_child(event, child) {
                            Ok(count) => sum += count,
                            // No child of it.
                            Err(ReadError::Closed) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Ok(sum)
            }
            result => result,
        }
    }

    fn is_in_error(&self, event: Event) -> bool {
        self.world.state_of(event) == Ok(EventState::Error)
    }

    fn has_family(&self, event: Event) -> bool {
        let number = self.world.number_of(event);
        number.and_then(|number| self.world.books().get(number)?.family()).is_some()
    }

    fn count_own(&self, event: Event) -> Result<Count, ReadError> {
        let (number, id) = self.world.id_of(event).ok_or(ReadError::Closed)?;
        if self.is_in_error(event) {
            return self.world.engine().read_cached(id).map(|(count, _)| count);
        }
        let book = self.world.books().get(number).ok_or(ReadError::Closed)?;
        let Some(family) = book.family() else { return self.world.observe(|engine| engine.read(id)) };
        let index = self.index_in_group(event);
        let tallies = self.world.observe(|engine| engine.read_family(family))?;
        tallies.get(index).map(|tally| tally.own).ok_or(ReadError::Closed)
    }

    fn count_retired(&self, event: Event) -> Result<Count, ReadError> {
        let number = self.world.number_of(event).ok_or(ReadError::Closed)?;
        let family = self.world.books().get(number).and_then(|book| book.family()).ok_or(ReadError::Closed)?;
        let index = self.index_in_group(event);
        self.world.engine().with_family(family, |family| family.retired(index)).ok_or(ReadError::Closed)
    }

    fn count_child(&self, event: Event, child: TaskId) -> Result<Count, ReadError> {
        let number = self.world.number_of(event).ok_or(ReadError::Closed)?;
        if self.root_of(event) == Some(child) {
            return Err(ReadError::Closed);
        }
        let Some(group) = self.world.group_in(number, child) else { return self.world.read_child(event, child) };
        let index = self.index_in_group(event);
        let counts = self.world.observe(|engine| engine.read_group(group))?;
        match counts.get(index).copied().unwrap_or(Err(ReadError::Closed)) {
            Err(ReadError::Error(_)) if self.state_of_child(event, child) == EventState::Error => {
                let events = self.world.engine().events(group).unwrap_or_default();
                let id = events.get(index).copied().ok_or(ReadError::Closed)?;
                self.world.engine().read_cached(id).map(|(count, _)| count)
            }
            result => result,
        }
    }

    /// A child that has exited is dead.
    fn state_of_child(&self, event: Event, child: TaskId) -> EventState {
        let group = self.world.number_of(event).and_then(|number| self.world.group_in(number, child));
        let events = group.and_then(|group| self.world.engine().events(group)).unwrap_or_default();
        let id = events.get(self.index_in_group(event)).copied();
        id.and_then(|id| self.world.engine().state(id).ok()).unwrap_or(EventState::Dead)
    }

    fn read_set(&self, set: Set) -> Result<SetReading, ReadError> {
        let number = self.world.set_number(set).ok_or(ReadError::Closed)?;
        let id = self.world.books().set(number).ok_or(ReadError::Closed)?.id;
        self.world.observe(|engine| engine.read_set(id))
    }

    fn count_on(&self, set: Set, event: Event, cpu: CpuId) -> Result<Count, ReadError> {
        let index = self.world.set_of(event).map_or(0, |(_, index)| index);
        let reading = self.read_set(set)?;
        let here = reading.cpus.iter().find(|reading| reading.cpu == cpu).ok_or(ReadError::Closed)?;
        here.counts.get(index).copied().unwrap_or(Err(ReadError::Closed))
    }

    /// The states of an event of a set, on each CPU where it is open.
    fn states_of_set(&self, set: Set, event: Event, cpu: Option<CpuId>) -> Vec<EventState> {
        let index = self.world.set_of(event).map_or(0, |(_, index)| index);
        let id = self.world.set_number(set).and_then(|number| Some(self.world.books().set(number)?.id));
        let open = id.and_then(|id| self.world.engine().set_events(id).ok()).unwrap_or_default();
        let here = open.into_iter().filter(|(other, _)| cpu.is_none_or(|cpu| cpu == *other));
        here.filter_map(|(_, events)| self.world.engine().state(*events.get(index)?).ok()).collect()
    }

    /// For how long each CPU of a set was not counted, where it was so at all.
    fn gaps(&self, set: Set) -> Result<Vec<CpuGap>, ReadError> {
        let reading = self.read_set(set)?;
        let missed = reading.coverage.iter().filter(|cpu| cpu.missed > Nanos::ZERO || cpu.gaps > 0);
        Ok(missed.map(|it| CpuGap { cpu: it.cpu, missed: it.missed, times: it.gaps.into() }).collect())
    }

    /// What the machine withheld of an event that is open.
    pub(super) fn lost_of(&self, number: usize) -> u64 {
        let events = self.names.records.get(number).map(|record| record.bound.events()).unwrap_or_default();
        events.into_iter().filter_map(|event| self.world.truth(event)).map(|truth| truth.lost).sum()
    }

    /// What the machine withheld so far, of all events.
    pub(super) fn lost_so_far(&self) -> u64 {
        let open =
            self.names.records.iter().enumerate().filter(|(_, record)| matches!(record.state, RecordState::Open));
        self.figures.lost + open.map(|(number, _)| self.lost_of(number)).sum::<u64>()
    }

    /// What an event has counted by now, or had when it was closed.
    pub(super) fn figures_of(&self, number: usize) -> EventFigures {
        let Some(record) = self.names.records.get(number) else { return EventFigures::default() };
        if let RecordState::Closed(Some(figures)) = &record.state {
            return (**figures).clone();
        }
        let (event, flags) = (record.open.events.get(record.index), &record.open.flags);
        let truths: Vec<Truth> = record.bound.events().iter().filter_map(|&event| self.world.truth(event)).collect();
        let leader = record.bound.events().first().copied();
        EventFigures {
            name: record.name.clone(),
            event: event.map(|new| new.event.to_string()).unwrap_or_default(),
            target: record.open.target.to_string(),
            flags: flags.iter().map(ToString::to_string).collect(),
            count: self.count_all(record).ok(),
            truth: truths.iter().fold(0, |sum, truth| sum.wrapping_add(truth.counted)),
            lost: self.lost_of(number),
            state: leader.and_then(|leader| self.world.state_of(leader).ok()),
            gaps: if let Bound::Set(set, _) = record.bound { self.gaps(set).unwrap_or_default() } else { Vec::new() },
            closed: None,
        }
    }
}
