//! Who is on the counters of one CPU, turn by turn.
//!
//! What it is: the groups of a CPU and of the task on it, the plan of each turn, and what must be true of plans in the
//! long run. One scarce PMU; what fits is asked of [`super::placement`].
//! Read first: [`Core::order`] (which group is tried before which) and [`Core::plan`]; then `turns` (what a tick changes).
//!
//! **Invariant:** a plan follows from the order and from what fits, never from the plan before it; only the cursors and
//! the side whose turn it is go from one turn to the next.

mod turns;

use super::placement;
use pmux_engine::pmu::SlotMask;
use std::collections::BTreeSet;
use turns::Clock;

/// Whose groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Side {
    /// The CPU's own.
    Cpu,
    /// Those of the task on it.
    Task,
}

impl Side {
    /// Both, the CPU first.
    pub const BOTH: [Self; 2] = [Self::Cpu, Self::Task];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Cpu => Self::Task,
            Self::Task => Self::Cpu,
        }
    }
}

/// Whether a group takes turns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// Always on, or in error.
    Pinned,
    /// Takes turns.
    Flexible,
}

/// Whether a group shares the PMU with others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PmuUse {
    /// It does.
    Shared,
    /// It is alone or not on at all.
    Exclusive,
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Whose it is.
    pub side: Side,
    /// Whether it takes turns.
    pub priority: Priority,
    /// Whether it shares the PMU.
    pub pmu_use: PmuUse,
    /// On which slots each of its events may be.
    pub events: Vec<SlotMask>,
}

/// What a plan has for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlannedState {
    /// All of it is on a counter.
    On,
    /// It waits for its turn.
    Waits,
    /// It is pinned and can't be on.
    Error,
    /// Its task is not on the CPU.
    Away,
    /// It is disabled.
    Off,
}

/// What is wrong with a plan, whatever the order was. Groups are named by their index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanViolation {
    /// A pinned group waits.
    PinnedWaits(usize),
    /// A flexible group is in error.
    FlexibleInError(usize),
    /// An exclusive group is on, and so is another one.
    ExclusiveNotAlone(usize),
    /// The groups that are on do not fit together.
    TooMany,
    /// A pinned group is in error though it fits beside the pinned groups before it.
    ErrorForNothing(usize),
    /// A group waits though it fits beside all that are on.
    WaitsForNothing(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskPresence {
    Here,
    /// Elsewhere: its groups want nothing here.
    Away,
}

/// The counters of one CPU, and all groups that want them.
#[derive(Clone, Debug)]
pub struct Core {
    count: u8,
    groups: Vec<Group>,
    /// Whose flexible groups are tried first.
    first: Side,
    task: TaskPresence,
    /// Groups that are disabled.
    off: BTreeSet<usize>,
    /// Whose turn it is on each side: the first flexible group from this number on, or, where there is none, the
    /// first of all.
    cursors: [usize; 2],
    /// Whether that group has had its chance since its turn began.
    had_chance: [bool; 2],
    /// Who is tried when on each side in the last turn that all cores took in step: see [`Core::take_turn`].
    tried: [Vec<usize>; 2],
    clock: Clock,
}

impl Core {
    /// `count` slots, and groups in the order in which they were opened, all enabled. The task is on the CPU.
    #[must_use]
    pub fn new(count: u8, groups: Vec<Group>) -> Self {
        Self {
            count,
            groups,
            first: Side::Cpu,
            task: TaskPresence::Here,
            off: BTreeSet::new(),
            cursors: [0; 2],
            had_chance: [false; 2],
            tried: [Vec::new(), Vec::new()],
            clock: Clock::default(),
        }
    }

    /// The same while the task has not come yet.
    #[must_use]
    pub fn awaiting(count: u8, groups: Vec<Group>) -> Self {
        Self { task: TaskPresence::Away, ..Self::new(count, groups) }
    }

    /// The groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Enables a flexible group.
    pub fn enable(&mut self, group: usize) {
        self.off.remove(&group);
    }

    /// Disables a flexible group.
    pub fn disable(&mut self, group: usize) {
        self.off.insert(group);
    }

    fn is_here(&self, side: Side) -> bool {
        side == Side::Cpu || self.task == TaskPresence::Here
    }

    /// The groups of one side and priority that want counters here, in the order in which they were opened.
    fn all(&self, side: Side, priority: Priority) -> Vec<usize> {
        let wanted = |&index: &usize| self.groups[index].side == side && self.groups[index].priority == priority;
        let groups = (0..self.groups.len()).filter(wanted);
        groups.filter(|index| self.is_here(side) && !self.off.contains(index)).collect()
    }

    /// The flexible groups of one side, from the one whose turn it is: those of a turn in step as it says, the others behind them.
    fn lane(&self, side: Side) -> Vec<usize> {
        let all = self.all(side, Priority::Flexible);
        let tried = &self.tried[side as usize];
        let (before, from): (Vec<_>, Vec<_>) = all.iter().partition(|&&group| group < self.cursors[side as usize]);
        let in_turn = tried.iter().copied().filter(|group| all.contains(group));
        let others = from.into_iter().chain(before).filter(|group| !tried.contains(group));
        in_turn.chain(others).collect()
    }

    /// The order in which groups are tried: the CPU's pinned ones, the task's pinned ones, then the flexible ones,
    /// those of the side first whose turn it is, each side from its cursor.
    #[must_use]
    pub fn order(&self) -> Vec<usize> {
        let pinned = Side::BOTH.map(|side| self.all(side, Priority::Pinned));
        let flexible = [self.first, self.first.other()].map(|side| self.lane(side));
        [pinned, flexible].concat().concat()
    }

    /// Whether these groups can be on at once: each exclusive one only alone, and their events all on slots of their
    /// own.
    #[must_use]
    pub fn fit(&self, groups: &[usize]) -> bool {
        let lonely = groups.iter().any(|&group| self.groups[group].pmu_use == PmuUse::Exclusive);
        let events: Vec<_> = groups.iter().flat_map(|&group| self.groups[group].events.clone()).collect();
        (groups.len() <= 1 || !lonely) && placement::fits(&events, SlotMask(0), self.count)
    }

    /// What each group gets in this turn: in their order, each is on if it fits beside those before it that are on.
    #[must_use]
    pub fn plan(&self) -> Vec<PlannedState> {
        let mut on = Vec::new();
        for group in self.order() {
            if self.fit(&[&on[..], &[group]].concat()) {
                on.push(group);
            }
        }
        let state = |(index, group): (usize, &Group)| match group.priority {
            _ if self.off.contains(&index) => PlannedState::Off,
            _ if !self.is_here(group.side) => PlannedState::Away,
            _ if on.contains(&index) => PlannedState::On,
            Priority::Pinned => PlannedState::Error,
            Priority::Flexible => PlannedState::Waits,
        };
        self.groups.iter().enumerate().map(state).collect()
    }

    /// Whether a flexible group can ever be on: it fits beside the pinned ones that are on.
    #[must_use]
    pub fn has_room(&self, group: usize) -> bool {
        let plan = self.plan();
        let pinned =
            |&index: &usize| self.groups[index].priority == Priority::Pinned && plan[index] == PlannedState::On;
        let mut with_it: Vec<_> = (0..self.groups.len()).filter(pinned).collect();
        with_it.push(group);
        self.all(self.groups[group].side, Priority::Flexible).contains(&group) && self.fit(&with_it)
    }

    /// Whether a plan keeps the rules that hold in every turn, whatever the cursors are.
    ///
    /// # Errors
    /// The first rule that is broken, in the order of [`PlanViolation`].
    pub fn is_lawful(&self, plan: &[PlannedState]) -> Result<(), PlanViolation> {
        let groups = || self.groups.iter().zip(plan).enumerate();
        let on: Vec<_> =
            groups().filter(|(_, (_, state))| **state == PlannedState::On).map(|(index, _)| index).collect();
        let find = |priority: Priority, state: PlannedState| {
            groups().find(|(_, (group, its))| group.priority == priority && **its == state).map(|(index, _)| index)
        };
        if let Some(index) = find(Priority::Pinned, PlannedState::Waits) {
            return Err(PlanViolation::PinnedWaits(index));
        }
        if let Some(index) = find(Priority::Flexible, PlannedState::Error) {
            return Err(PlanViolation::FlexibleInError(index));
        }
        let exclusive = |index: &&usize| self.groups[**index].pmu_use == PmuUse::Exclusive;
        if let Some(&index) = on.iter().find(exclusive).filter(|_| on.len() > 1) {
            return Err(PlanViolation::ExclusiveNotAlone(index));
        }
        if !self.fit(&on) {
            return Err(PlanViolation::TooMany);
        }
        let mut pinned = Vec::new();
        for index in Side::BOTH.iter().flat_map(|&side| self.all(side, Priority::Pinned)) {
            if plan[index] == PlannedState::On {
                pinned.push(index);
            } else if self.fit(&[&pinned[..], &[index]].concat()) {
                return Err(PlanViolation::ErrorForNothing(index));
            }
        }
        let fits_too = |index: &usize| self.fit(&[&on[..], &[*index]].concat());
        let waits =
            groups().filter(|(_, (_, state))| **state == PlannedState::Waits).map(|(index, _)| index).find(fits_too);
        waits.map_or(Ok(()), |index| Err(PlanViolation::WaitsForNothing(index)))
    }
}

#[cfg(test)]
mod tests;
