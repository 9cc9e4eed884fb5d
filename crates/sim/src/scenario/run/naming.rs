//! The names of a scenario, and what they stand for on the machine.
//!
//! **Invariant:** a name that was closed is still known, as closed; a task's name stands for its task for ever.

use super::super::ast::{Name, Open};
use super::execution::Refused;
use crate::machine::{Event, Set};
use crate::timeline::EventFigures;
use pmux_engine::{ControlError, CpuId, TaskId};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

#[derive(Clone, Debug)]
pub(super) enum Bound {
    Task(Event, TaskId),
    Cpus(Vec<(CpuId, Event)>),
    /// One of the events of a system-wide set.
    Set(Set, Event),
}

pub(super) struct Record {
    pub(super) name: String,
    pub(super) bound: Bound,
    /// The statement that opened it, and which of its events it is.
    pub(super) open: Rc<Open>,
    pub(super) index: usize,
    /// What else the statement opened: these records, this one among them.
    pub(super) together: std::ops::Range<usize>,
    pub(super) state: RecordState,
}

pub(super) enum RecordState {
    Open,
    /// What it had counted, if the timeline is to show it.
    Closed(Option<Box<EventFigures>>),
}

/// All that has a name.
#[derive(Default)]
pub(super) struct Names {
    tasks: HashMap<String, TaskId>,
    /// In the order in which they began: a machine numbers its tasks in that order.
    of_task: BTreeMap<TaskId, String>,
    events: HashMap<String, usize>,
    of_event: HashMap<Event, usize>,
    pub(super) records: Vec<Record>,
}

impl Names {
    pub(super) fn new_task(&mut self, name: &Name, task: TaskId) {
        self.tasks.insert(name.text.clone(), task);
        self.of_task.insert(task, name.text.clone());
    }

    /// The task of a name, alive or not.
    pub(super) fn task(&self, name: &Name) -> Result<TaskId, Refused> {
        self.tasks.get(name.as_str()).copied().ok_or_else(|| Refused::Unusable(format!("there is no task `{name}`")))
    }

    /// All tasks that ever were, in the order in which they began.
    pub(super) fn tasks(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.of_task.keys().copied()
    }

    pub(super) fn name_of_task(&self, task: TaskId) -> String {
        self.of_task.get(&task).cloned().unwrap_or_else(|| format!("task {}", task.0))
    }

    /// Enters what one statement has opened.
    pub(super) fn enter(&mut self, open: &Rc<Open>, bound: Vec<Bound>) {
        let first = self.records.len();
        for (index, (new, bound)) in open.events.iter().zip(bound).enumerate() {
            self.of_event.extend(bound.events().into_iter().map(|event| (event, first + index)));
            self.events.insert(new.name.text.clone(), first + index);
            self.records.push(Record {
                name: new.name.text.clone(),
                bound,
                open: Rc::clone(open),
                index,
                together: first..first + open.events.len(),
                state: RecordState::Open,
            });
        }
    }

    /// The number of an event's record, open or closed.
    pub(super) fn number(&self, name: &Name) -> Result<usize, Refused> {
        self.events.get(name.as_str()).copied().ok_or_else(|| Refused::Unusable(format!("there is no event `{name}`")))
    }

    pub(super) fn open_number(&self, name: &Name) -> Result<usize, Refused> {
        let number = self.number(name)?;
        match self.records.get(number).map(|record| &record.state) {
            Some(RecordState::Open) => Ok(number),
            _ => Err(Refused::of_control(ControlError::Closed)),
        }
    }

    /// The record of an event of the machine.
    pub(super) fn number_of(&self, event: Event) -> Option<usize> {
        self.of_event.get(&event).copied()
    }

    pub(super) fn name_of_event(&self, event: Event) -> String {
        let record = self.number_of(event).and_then(|number| self.records.get(number));
        record.map_or_else(|| event.to_string(), |record| record.name.clone())
    }
}

impl Bound {
    pub(super) fn events(&self) -> Vec<Event> {
        match self {
            Self::Task(event, _) | Self::Set(_, event) => vec![*event],
            Self::Cpus(events) => events.iter().map(|&(_, event)| event).collect(),
        }
    }
}
