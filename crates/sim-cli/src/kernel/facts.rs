//! What is seen of the events of a scenario.
//!
//! **Invariant:** counts and states come from the library, what really happened from the tasks; the two never meet here.

use super::opened::{Holding, Opened};
use super::truth::{Clock, Measure};
use super::{Run, StatementError};
use crate::kernel::tasks::Tasks;
use pmux::exact::{EventState, SetReading};
use pmux::{Count, CpuId, Nanos};
use pmux_sim::scenario::ast::{Name, Part, Subject, Window};
use pmux_sim::scenario::eval::{Gap, Observe};
use pmux_sim::scenario::trigger_watch::{TriggerWatch, fired};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

pub(super) struct Facts<'a> {
    opened: &'a mut Opened,
    tasks: &'a Tasks,
    trigger_watches: &'a [TriggerWatch],
    /// What was counted on CPUs, by holding: read once, so that its parts are of one moment.
    seen: HashMap<usize, SetReading>,
}

impl Run<'_> {
    pub(super) fn facts(&mut self) -> Facts<'_> {
        Facts {
            opened: &mut self.opened,
            tasks: &self.tasks,
            trigger_watches: &self.trigger_watches,
            seen: HashMap::new(),
        }
    }
}

impl From<StatementError> for String {
    fn from(statement_error: StatementError) -> Self {
        statement_error.message
    }
}

fn read_error(error: pmux::Error) -> String {
    StatementError::from(error).message
}

impl Facts<'_> {
    fn of_child(&mut self, name: &Name, child: &Name) -> Result<Count, String> {
        let tid = self.tasks.task(child.as_str())?.tid();
        let alive = !self.tasks.has_exited(child.as_str());
        let (entry, holding) = self.opened.both(name.as_str())?;
        let index = entry.index;
        is_apart(&entry.mixed, child.as_str())?;
        let Holding::Task(group) = holding else { return Err(no_children(name)) };
        group.child(index, tid).ok_or_else(|| {
            if alive {
                format!("`{child}` lives: a kernel tells what a child has counted when it exits")
            } else {
                format!("`{child}` has not reported what it has counted")
            }
        })
    }

    fn of_family(&mut self, name: &Name, part: &Part) -> Result<Count, String> {
        let (entry, holding) = self.opened.both(name.as_str())?;
        if let Some(child) = entry.mixed.iter().next() {
            is_apart(&entry.mixed, child)?;
        }
        let Holding::Task(group) = holding else { return Err(no_children(name)) };
        let tally = group.tally(entry.index).map_err(read_error)?.ok_or_else(|| no_children(name))?;
        Ok(if *part == Part::Own { tally.own } else { tally.retired })
    }
}

/// What a child had counted before a reset, it reports together with the rest.
fn is_apart(mixed: &std::collections::BTreeSet<String>, child: &str) -> Result<(), String> {
    if mixed.contains(child) {
        return Err(format!("`{child}` lived when it was reset: a kernel does not tell what it had counted before"));
    }
    Ok(())
}

fn no_children(name: &Name) -> String {
    format!("children do not report to `{name}`")
}

/// What a set has counted of one event, on one CPU or on all.
fn in_set(reading: &SetReading, index: usize, cpu: Option<CpuId>) -> Result<Count, String> {
    let mut sum = Count::default();
    for row in reading.cpus.iter().filter(|row| cpu.is_none_or(|cpu| row.cpu == cpu)) {
        match row.counts.get(index) {
            Some(Ok(count)) => sum += *count,
            Some(Err(error)) => return Err(format!("on cpu{}: {error}", row.cpu)),
            None => {}
        }
    }
    Ok(sum)
}

fn wanted(part: &Part) -> Option<CpuId> {
    if let Part::Cpu(cpu) = part { Some(*cpu) } else { None }
}

impl Observe for Facts<'_> {
    fn count(&mut self, subject: &Subject) -> Result<Count, String> {
        match &subject.part {
            Part::Child(child) => return self.of_child(&subject.event, child),
            part @ (Part::Own | Part::Retired) => return self.of_family(&subject.event, part),
            Part::Whole | Part::Cpu(_) => {}
        }
        let (entry, holding) = self.opened.both(subject.event.as_str())?;
        let cpu = wanted(&subject.part);
        match holding {
            Holding::Task(group) => group.read(entry.index).map_err(read_error),
            Holding::Cpus(groups) => {
                let mut sum = Count::default();
                for (_, group) in groups.iter().filter(|(at, _)| cpu.is_none_or(|cpu| cpu.0 == *at)) {
                    sum += group.read(entry.index).map_err(read_error)?;
                }
                Ok(sum)
            }
            Holding::Set(set) => {
                let reading = match self.seen.entry(entry.holding) {
                    Slot::Occupied(seen) => seen.into_mut(),
                    Slot::Vacant(place) => place.insert(set.read().map_err(read_error)?),
                };
                in_set(reading, entry.index, cpu)
            }
        }
    }

    fn states(&mut self, subject: &Subject) -> Result<Vec<EventState>, String> {
        let name = subject.event.as_str();
        if let Part::Child(child) = &subject.part
            && !self.tasks.has_exited(child.as_str())
        {
            return Err(format!("a kernel does not tell the state of an event in `{child}`"));
        }
        let (entry, holding) = self.opened.both(name)?;
        let is_child = matches!(subject.part, Part::Child(_));
        if is_child || entry.root().is_some_and(|root| self.tasks.has_exited(root)) {
            // The library leaves it open: children may still count.
            return Ok(vec![EventState::Dead]);
        }
        let states = holding.states(entry.index)?;
        let cpu = wanted(&subject.part).map(|cpu| cpu.0);
        Ok(states.into_iter().filter(|(at, _)| cpu.is_none() || *at == cpu).map(|(_, state)| state).collect())
    }

    fn truth(&mut self, subject: &Subject, window: Window) -> Result<u64, String> {
        let name = subject.event.as_str();
        let entry = self.opened.entry(name)?;
        if entry.root().is_none() {
            if entry.measure != Measure::CpuTime {
                return Err(format!("the truth is not known of `{name}` on whole CPUs"));
            }
            let now_ns = pmux::workers::monotonic_ns();
            let cpu = wanted(&subject.part).map(|cpu| cpu.0);
            let clocks = entry.clocks.iter().filter(|(at, _)| cpu.is_none_or(|cpu| cpu == **at));
            return Ok(clocks.map(|(_, clock): (_, &Clock)| clock.value_ns(now_ns)).sum());
        }
        let root = entry.root().unwrap_or_default();
        let known = match &subject.part {
            Part::Child(child) => entry.truth.of_child(child.as_str()),
            Part::Own => entry.truth.sum(|task| task == root),
            Part::Retired => entry.truth.sum(|task| task != root && self.tasks.has_exited(task)),
            Part::Whole | Part::Cpu(_) => entry.truth.sum(|_| true),
        };
        let known = known.map_err(|why| format!("the truth of `{name}` is not known: {why}"))?;
        // What needs no counter of the CPU counts all the time.
        if window == Window::Running && entry.measure == Measure::Instructions {
            let count = self.count(subject)?;
            if count.running != count.enabled {
                let (running, enabled) = (count.running.0, count.enabled.0);
                return Err(format!(
                    "`{name}` ran for {running} of {enabled} ns, and it is not known when: compare its estimate with \
                     truth(enabled)"
                ));
            }
        }
        Ok(known)
    }

    fn gap(&mut self, subject: &Subject) -> Result<Gap, String> {
        let (_, holding) = self.opened.both(subject.event.as_str())?;
        let Holding::Set(set) = holding else {
            return Err(format!("`{}` is no system-wide set", subject.event));
        };
        let cpu = wanted(&subject.part);
        let mut gap = Gap { missed: Nanos(0), times: 0 };
        for covered in set.read().map_err(read_error)?.coverage {
            if cpu.is_none_or(|cpu| cpu == covered.cpu) {
                gap.missed += covered.missed;
                gap.times += u64::from(covered.gaps);
            }
        }
        Ok(gap)
    }

    fn fired(&mut self, trigger: &Name) -> Result<u64, String> {
        fired(self.trigger_watches, trigger)
    }

    fn lost(&mut self, subject: Option<&Subject>) -> Result<u64, String> {
        let Some(subject) = subject else { return Ok(self.opened.lost()) };
        Ok(self.opened.both(subject.event.as_str())?.1.lost())
    }
}
