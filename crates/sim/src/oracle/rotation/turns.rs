//! Turns: what a tick changes, and a task that leaves or comes.
//!
//! What it is: each side's cursor, and which side is first. A cursor moves past a head that has had its chance since it
//! became the head. Where both sides want counters, each is first for as long as the other, counted over the
//! time in which a group waited.
//! Read first: [`Core::tick`].
//!
//! **Invariant:** a group that fits beside the pinned groups is on again and again, whatever the rhythm is in which ticks
//! come and tasks leave.

use super::{Core, PlannedState, Priority, Side, TaskPresence};
use pmux_engine::pmu::SlotMask;

/// For how long each side was first while a group waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Clock {
    now_ns: u64,
    /// Since when time is counted for the side that is first.
    since_ns: u64,
    /// For how much longer the CPU was first than the task; below 0: the task was.
    lead_ns: i64,
}

impl Core {
    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        self.clock.now_ns += ns;
    }

    fn waits(&self, side: Side, plan: &[PlannedState]) -> bool {
        self.all(side, Priority::Flexible).iter().any(|&group| plan[group] == PlannedState::Waits)
    }

    /// The next turn. On each side on which a group waits, the cursor moves past the head if that has had its
    /// chance; and it is decided who is first from now on.
    pub fn tick(&mut self) {
        self.note_chances();
        let plan = self.plan();
        let waiting = Side::BOTH.map(|side| self.waits(side, &plan));
        Side::BOTH.iter().for_each(|&side| self.pass_on(side, &plan));
        if waiting == [false; 2] {
            self.clock.since_ns = self.clock.now_ns;
        } else {
            self.decide();
        }
    }

    /// The turn of that number, for cores that go in step: where a group waits, it is the turn of the flexible group
    /// with that number, counted round among those that want counters.
    ///
    /// Where more compete for the same few slots than there are, and others want more, then in the turns of those who
    /// don't compete with them they are first one after the other, from turn 0 on.
    pub fn take_turn(&mut self, number: usize) {
        let plan = self.plan();
        if Side::BOTH.iter().any(|&side| self.waits(side, &plan)) {
            for side in Side::BOTH {
                let all = self.all(side, Priority::Flexible);
                self.cursors[side as usize] = if all.is_empty() { 0 } else { all[number % all.len()] };
                self.tried[side as usize] = self.tried_in(&all, number);
            }
        }
    }

    /// Who of these is tried when in the turn of that number.
    fn tried_in(&self, all: &[usize], number: usize) -> Vec<usize> {
        let head = |turn: usize| all[turn % all.len()];
        let mut tried: Vec<usize> = (0..all.len()).map(|place| head(number + place)).collect();
        let most = all.iter().map(|&group| self.narrowest(group).len()).max().unwrap_or(0);
        let rivals = |group: usize| all.iter().copied().filter(move |&it| self.narrowest(it) == self.narrowest(group));
        let foremost = |&group: &usize| rivals(group).next() == Some(group);
        for group in all.iter().copied().filter(foremost) {
            let (slots, rivals) = (self.narrowest(group), rivals(group).collect::<Vec<_>>());
            if slots.len() == most || rivals.len() <= slots.len() as usize || rivals.contains(&head(number)) {
                continue;
            }
            let turns_of_others = (0..number).filter(|&turn| !rivals.contains(&head(turn))).count();
            let places = (0..tried.len()).filter(|&place| rivals.contains(&tried[place])).collect::<Vec<_>>();
            for (nth, place) in places.into_iter().enumerate() {
                tried[place] = rivals[(turns_of_others + nth) % rivals.len()];
            }
        }
        tried
    }

    /// The slots of that event of a group that has the fewest.
    fn narrowest(&self, group: usize) -> SlotMask {
        self.groups[group].events.iter().copied().min_by_key(|mask| (mask.len(), mask.0)).unwrap_or(SlotMask::ALL)
    }

    /// The task leaves the CPU: for its own groups this is a tick, and where a group waits, it is decided which side is
    /// first from now on.
    pub fn task_leaves(&mut self) {
        self.note_chances();
        let plan = self.plan();
        let waiting = Side::BOTH.map(|side| self.waits(side, &plan));
        self.pass_on(Side::Task, &plan);
        if waiting != [false; 2] {
            self.decide();
        }
        self.task = TaskPresence::Away;
    }

    /// The task comes onto the CPU again.
    pub fn task_comes_back(&mut self) {
        self.note_chances();
        self.come();
    }

    fn come(&mut self) {
        self.task = TaskPresence::Here;
        if self.has_flexible_task() {
            self.clock.since_ns = self.clock.now_ns;
        }
    }

    /// The task leaves the CPU and another one comes at the same moment, whose groups are those of `next`. The CPU's
    /// own groups are the same in both, and go on. Who is first is each task's own affair with the CPU.
    pub fn give_way(&mut self, next: &mut Self) {
        self.task_leaves();
        next.clock.now_ns = self.clock.now_ns;
        next.cursors[Side::Cpu as usize] = self.cursors[Side::Cpu as usize];
        next.had_chance[Side::Cpu as usize] = self.had_chance[Side::Cpu as usize];
        next.come();
    }

    /// Whether the task has flexible groups, and is here.
    fn has_flexible_task(&self) -> bool {
        let flexible = self.groups.iter().any(|it| it.side == Side::Task && it.priority == Priority::Flexible);
        flexible && self.task == TaskPresence::Here
    }

    /// The side that was first for less time so far is first from now on; after the same time, the other side. No side is
    /// second where only one is there.
    fn decide(&mut self) {
        let passed_ns = (self.clock.now_ns - self.clock.since_ns) as i64;
        self.clock.since_ns = self.clock.now_ns;
        if !self.has_flexible_task() {
            return;
        }
        self.clock.lead_ns += if self.first == Side::Cpu { passed_ns } else { -passed_ns };
        self.first = match self.clock.lead_ns {
            1.. => Side::Task,
            0 => self.first.other(),
            _ => Side::Cpu,
        };
    }

    /// The cursor of a side on which a group waits moves past the head, if that has had its chance.
    fn pass_on(&mut self, side: Side, plan: &[PlannedState]) {
        let Some(&head) = self.lane(side).first() else { return };
        if self.waits(side, plan) && self.had_chance[side as usize] {
            self.cursors[side as usize] = head + 1;
            self.had_chance[side as usize] = false;
        }
    }

    /// A head has its chance whenever it is on, and whenever it is tried before all other flexible groups. Asked before
    /// anything changes.
    fn note_chances(&mut self) {
        let plan = self.plan();
        for side in Side::BOTH {
            let head_is_on = self.lane(side).first().is_some_and(|&head| plan[head] == PlannedState::On);
            let is_first = self.first == side || !self.is_here(side.other());
            self.had_chance[side as usize] |= self.is_here(side) && (head_is_on || is_first);
        }
    }

    /// Within so many turns of equal length, without comings and goings before, every flexible group that could be on
    /// was: each side on which a group waits is first at least every second turn, and then its cursor moves on.
    #[must_use]
    pub fn patience(&self) -> usize {
        let longest = Side::BOTH.map(|side| self.lane(side).len()).into_iter().max().unwrap_or(0);
        2 * longest + 1
    }
}
