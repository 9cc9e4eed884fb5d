//! The events of a scenario, by their names.
//!
//! What it is: a *holding* is what one `open` has opened: a group on a task, the same group on some CPUs, or a set. A name is
//! one event of a holding. A holding is closed with the last of its names.
//!
//! **Invariant:** a name stands for one event (on each CPU), and what really happened is kept with the name.

use super::StatementError;
use super::truth::{Act, Clock, Measure, Truth};
use pmux::exact::{EventState, ExactGroup, ExactSet};
use pmux_sim::scenario::ast::{Breakpoint, Event, Flag, Flags, Target};
use std::collections::{BTreeMap, BTreeSet};

/// What one `open` has opened.
pub(super) enum Holding {
    Task(Box<ExactGroup>),
    /// The same group on CPUs.
    Cpus(Vec<(u32, ExactGroup)>),
    Set(ExactSet),
}

impl Holding {
    /// The state of one of its events, by CPU where it has such.
    pub(super) fn states(&self, index: usize) -> Result<Vec<(Option<u32>, EventState)>, StatementError> {
        Ok(match self {
            Self::Task(group) => vec![(None, group.state(index)?)],
            Self::Cpus(groups) => {
                let state = |(cpu, group): &(u32, ExactGroup)| Ok((Some(*cpu), group.state(index)?));
                groups.iter().map(state).collect::<Result<_, StatementError>>()?
            }
            Self::Set(set) => set.states(index)?.into_iter().map(|(cpu, state)| (Some(cpu), state)).collect(),
        })
    }

    /// Records that were lost; only groups on tasks have any.
    pub(super) fn lost(&mut self) -> u64 {
        if let Self::Task(group) = self { group.lost() } else { 0 }
    }

    /// Where one of its events counts now: it is enabled, and so is its leader.
    fn counting(&self, index: usize) -> Result<Vec<Option<u32>>, StatementError> {
        let (leader, own) = (self.states(0)?, self.states(index)?);
        let both = leader.into_iter().zip(own).filter(|((_, leader), (_, own))| leader.ages() && own.ages());
        Ok(both.map(|(_, (cpu, _))| cpu).collect())
    }
}

/// An event by its name.
pub(super) struct Entry {
    pub(super) holding: usize,
    /// Which event of its group.
    pub(super) index: usize,
    target: Target,
    flags: Flags,
    /// What it counts of that.
    pub(super) measure: Measure,
    /// What it watches, if it is a breakpoint.
    pub(super) breakpoint: Option<Breakpoint>,
    /// The tasks that it counts: its own, and those that have inherited it.
    pub(super) tasks: BTreeSet<String>,
    pub(super) truth: Truth,
    pub(super) clocks: BTreeMap<u32, Clock>,
    /// The children that lived when it was reset: what they had counted until then, a kernel reports with the rest.
    pub(super) mixed: BTreeSet<String>,
}

impl Entry {
    pub(super) fn new(holding: usize, index: usize, event: &Event, target: &Target, flags: &Flags) -> Self {
        let tasks = match target {
            Target::Task(task) | Target::TaskOnCpu(task, _) => BTreeSet::from([task.text.clone()]),
            _ => BTreeSet::new(),
        };
        Self {
            holding,
            index,
            target: target.clone(),
            flags: flags.clone(),
            measure: Measure::of(event),
            breakpoint: if let Event::Breakpoint(breakpoint) = event { Some(*breakpoint) } else { None },
            tasks,
            truth: Truth::default(),
            clocks: BTreeMap::new(),
            mixed: BTreeSet::new(),
        }
    }

    /// The task that it was opened on.
    pub(super) fn root(&self) -> Option<&str> {
        if let Target::Task(task) | Target::TaskOnCpu(task, _) = &self.target { Some(task.as_str()) } else { None }
    }

    /// From now on it counts accesses to something else.
    pub(super) fn becomes(&mut self, breakpoint: Breakpoint) {
        self.measure = Measure::of(&Event::Breakpoint(breakpoint));
        self.breakpoint = Some(breakpoint);
    }

    /// Whether it counts what a task does on a CPU.
    fn covers(&self, act: &Act) -> bool {
        let elsewhere = matches!(self.target, Target::TaskOnCpu(_, cpu) if cpu.0 != act.cpu);
        !elsewhere && self.tasks.contains(&act.task)
    }
}

#[derive(Default)]
pub(super) struct Opened {
    entries: BTreeMap<String, Entry>,
    holdings: Vec<Option<Holding>>,
    /// Records that were lost in what is closed.
    lost: u64,
}

impl Opened {
    pub(super) fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub(super) fn hold(&mut self, holding: Holding) -> usize {
        self.holdings.push(Some(holding));
        self.holdings.len() - 1
    }

    pub(super) fn name(&mut self, name: &str, entry: Entry) {
        self.entries.insert(name.to_owned(), entry);
    }

    /// An event by its name.
    pub(super) fn entry(&self, name: &str) -> Result<&Entry, StatementError> {
        self.entries.get(name).ok_or_else(|| not_open(name))
    }

    /// An event, and what it is in.
    pub(super) fn both(&mut self, name: &str) -> Result<(&mut Entry, &mut Holding), StatementError> {
        let entry = self.entries.get_mut(name).ok_or_else(|| not_open(name))?;
        let holding = self.holdings.get_mut(entry.holding).and_then(Option::as_mut);
        holding.map(|holding| (entry, holding)).ok_or_else(|| not_open(name))
    }

    /// The names of all events that are in the same holding.
    pub(super) fn together(&self, name: &str) -> Result<Vec<String>, StatementError> {
        let holding = self.entry(name)?.holding;
        let same = self.entries.iter().filter(|(_, entry)| entry.holding == holding);
        Ok(same.map(|(name, _)| name.clone()).collect())
    }

    /// Takes a name away, and closes its holding with the last one. A member of a group that stays stops counting.
    pub(super) fn close(&mut self, name: &str) -> Result<(), StatementError> {
        let Some(entry) = self.entries.remove(name) else { return Err(not_open(name)) };
        let in_use = self.entries.values().any(|other| other.holding == entry.holding);
        let Some(place) = self.holdings.get_mut(entry.holding) else { return Ok(()) };
        if !in_use {
            self.lost += place.take().map_or(0, |mut holding| holding.lost());
            return Ok(());
        }
        match place {
            Some(Holding::Task(group)) if entry.index > 0 => group.disable(entry.index)?,
            Some(Holding::Cpus(groups)) if entry.index > 0 => {
                groups.iter().try_for_each(|(_, group)| group.disable(entry.index))?;
            }
            // What the leader's name stood for goes on: the group needs it.
            _ => {}
        }
        Ok(())
    }

    /// Takes what tasks did into account.
    pub(super) fn happened(&mut self, acts: &[Act]) -> Result<(), StatementError> {
        for entry in self.entries.values_mut() {
            if !acts.iter().any(|act| entry.covers(act)) {
                continue;
            }
            let Some(Some(holding)) = self.holdings.get(entry.holding) else { continue };
            if holding.counting(entry.index)?.is_empty() {
                continue;
            }
            for act in acts {
                if entry.covers(act) {
                    entry.truth.add(entry.measure, act);
                }
            }
        }
        Ok(())
    }

    /// A task was forked: it inherits what its parent counts for.
    pub(super) fn inherit(&mut self, parent: &str, child: &str) {
        for entry in self.entries.values_mut() {
            if entry.flags.contains(&Flag::Inherit) && entry.tasks.contains(parent) {
                entry.tasks.insert(child.to_owned());
            }
        }
    }

    /// No event may count a task any more.
    pub(super) fn disown(&mut self, task: &str) {
        for entry in self.entries.values_mut() {
            entry.tasks.remove(task);
        }
    }

    /// Lets the clocks of CPUs go where events count now.
    pub(super) fn set_clocks(&mut self, now_ns: u64) -> Result<(), StatementError> {
        for entry in self.entries.values_mut().filter(|entry| entry.root().is_none()) {
            let Some(Some(holding)) = self.holdings.get(entry.holding) else { continue };
            let counting: BTreeSet<u32> = holding.counting(entry.index)?.into_iter().flatten().collect();
            for &cpu in &counting {
                entry.clocks.entry(cpu).or_default().set(true, now_ns);
            }
            for (cpu, clock) in &mut entry.clocks {
                if !counting.contains(cpu) {
                    clock.set(false, now_ns);
                }
            }
        }
        Ok(())
    }

    /// Records that were lost, of all that is and was open.
    pub(super) fn lost(&mut self) -> u64 {
        self.holdings.iter_mut().flatten().map(Holding::lost).sum::<u64>() + self.lost
    }
}

fn not_open(name: &str) -> StatementError {
    const EBADF: i32 = 9;
    StatementError { errno: Some(EBADF), message: format!("event {name} is not open") }
}
