//! Counters whose events take turns.
//!
//! What it is: what [`super::Counters`] does differently where the engine multiplexes: see [`crate::mux`].
//!
//! **Invariant:** nothing here matters for events that are multiplexed by the kernel.

use super::{Column, Counters, Reading, RowReading, TaskRow};
use crate::error::Error;
use crate::mux::{PmuCapacity, clock};
use pmux_engine::{EventId, EventState, LockCell as _, Nanos, TaskId};
use std::collections::HashMap;

/// Time in which another user of the PMU had a counter that an event was to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contention {
    /// How long the event was to run.
    pub wanted: Nanos,
    /// For how much of that it did not.
    pub lost: Nanos,
}

impl Counters {
    /// The scarce events that are open now, with their columns.
    fn scarce_events(&self) -> Vec<(usize, EventId)> {
        let is_scarce = |&(column, _): &(usize, EventId)| self.columns.get(column).is_some_and(Column::is_scarce);
        if !self.columns.iter().any(Column::is_scarce) {
            return Vec::new();
        }
        let sets = self.events_of_cpus().map(|(_, column, event)| (column, event));
        self.tasks.iter().flat_map(TaskRow::events).chain(sets).filter(is_scarce).collect()
    }

    /// Sees to it that turns are taken, if an event waits for a counter.
    pub(super) fn begin_turns(&self) -> Result<(), Error> {
        let engine = self.session.engine();
        let waits = |&(_, event): &(usize, EventId)| engine.state(event) == Ok(EventState::Inactive);
        if !self.scarce_events().iter().any(waits) {
            return Ok(());
        }
        let turning = match self.turning.with(|turning| turning.clone()) {
            Some(turning) => turning,
            None => self.session.turning(self.slice)?,
        };
        turning.begin();
        self.turning.with(|kept| *kept = Some(turning));
        Ok(())
    }

    /// The command waits for its first exec: events that have a counter now begin with that, and the others when it is
    /// their turn.
    pub(super) fn await_exec(&self, task: TaskId) {
        let engine = self.session.engine();
        let is_scarce = |&column: &usize| self.columns.get(column).is_some_and(Column::is_scarce);
        let mut scarce = self.task_groups().filter(|group| group.columns.iter().any(is_scarce)).peekable();
        if scarce.peek().is_none() {
            return;
        }
        self.held.with(|held| *held = Some(task));
        engine.host().hold(task);
        for group in scarce {
            // One that can't be had is in error, and says so when it is read.
            let _ = engine.enable_group(group.own.opened.group);
        }
    }

    /// The command waits no more.
    pub(crate) fn let_go(&self) {
        if let Some(task) = self.held.with(Option::take) {
            self.session.engine().host().executed(task);
        }
    }

    /// Gives the events of a task that have waited the time of the clock.
    pub(super) fn set_task_clock(&self, task: &TaskRow, readings: &mut [Reading]) {
        let Some(time) = self.clock.and_then(|clock| readings.get(clock).copied()) else { return };
        for (column, event) in task.events() {
            if let Some(reading) = readings.get_mut(column)
                && clock::has_waited(self.session.engine(), event)
            {
                clock::set(reading, time);
            }
        }
    }

    /// The same for the rows of CPUs, where each knows the time of its cgroup. Of what was counted before a CPU went
    /// away it isn't known any more whether it waited.
    pub(super) fn set_clock(&self, rows: &mut [RowReading]) {
        let Some(clock) = self.clock else { return };
        let engine = self.session.engine();
        let mut never_waited = HashMap::new();
        for set in &self.sets {
            for (cpu, events) in engine.set_events(*set.set).unwrap_or_default() {
                for (&column, event) in set.columns.iter().zip(events) {
                    let never = !clock::has_waited(engine, event);
                    never_waited.insert((set.cgroup, set.per_cpu.then_some(cpu.0), column), never);
                }
            }
        }
        for row in rows {
            let Some(time) = row.readings.get(clock).copied() else { continue };
            for (column, reading) in row.readings.iter_mut().enumerate() {
                let never = never_waited.get(&(row.who.cgroup, row.who.cpu, column)).copied().unwrap_or(false);
                if !never && column != clock {
                    clock::set(reading, time);
                }
            }
        }
    }

    /// The caller has not asked for the clock.
    pub(super) fn hide_clock(&self, rows: &mut [RowReading]) {
        if let Some(clock) = self.clock {
            rows.iter_mut().for_each(|row| row.readings.truncate(clock));
        }
    }

    /// For how much of its turns an event did not run, because another user of the PMU had the counter, although no more
    /// events were put on than fit: the kernel has multiplexed a second time. `None` where the kernel multiplexes alone, and
    /// where that can't be known.
    #[must_use]
    pub fn contention(&self, event: usize) -> Option<Contention> {
        let engine = self.session.engine();
        let pmu = self.columns.get(event)?.pmu;
        if !self.tasks.is_empty() && self.session.is_partial(pmu) {
            return None;
        }
        let mut sum: Option<Contention> = None;
        for (_, event) in self.scarce_events().into_iter().filter(|&(column, _)| column == event) {
            let (Ok((count, _)), Ok(lost)) = (engine.read_cached(event), engine.contended(event)) else { continue };
            let sum = sum.get_or_insert(Contention { wanted: Nanos::ZERO, lost: Nanos::ZERO });
            sum.wanted += count.running + lost;
            sum.lost += lost;
        }
        sum
    }

    /// How many counters were found in the PMUs that these events take turns on; empty with
    /// [`crate::Multiplexing::Kernel`].
    #[must_use]
    pub fn pmu_capacities(&self) -> Vec<PmuCapacity> {
        self.session.pmu_capacities(&self.columns)
    }

    /// Whether turns are being taken for these events.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.turning.with(|turning| turning.as_ref().is_some_and(|turning| turning.has_begun()))
    }
}
