//! What the tasks really did, event by event.
//!
//! What it is: after each statement, what each task says that it did is added to every event that was counting it. What an
//! event counts of what a task did is its [`Measure`].
//!
//! **Invariant:** nothing here is taken from a counter.

use pmux::workers::{INSTRUCTIONS_PER_ROUND, WorkDone};
use pmux_sim::scenario::ast::{AccessKind, Breakpoint, Event};
use pmux_sim::scenario::canonical_event;
use std::collections::BTreeMap;

/// What an event counts of what a task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Measure {
    /// Fresh pages.
    Pages,
    /// Nanoseconds of CPU time.
    CpuTime,
    /// Instructions of the known loop.
    Instructions,
    /// Accesses to some bytes.
    Accesses(Breakpoint),
    /// Something that no task knows of itself.
    Unknown,
}

impl Measure {
    pub(super) fn of(event: &Event) -> Self {
        match event {
            Event::Breakpoint(breakpoint) => Self::Accesses(*breakpoint),
            Event::Named(text) => match canonical_event(text) {
                Some("page-faults" | "minor-faults") => Self::Pages,
                Some("task-clock" | "cpu-clock") => Self::CpuTime,
                Some("instructions") if INSTRUCTIONS_PER_ROUND.is_some() => Self::Instructions,
                _ => Self::Unknown,
            },
        }
    }

    /// How much of what a task did an event with this measure counts; `Err` with why that is not known.
    fn amount(self, act: &Act) -> Result<u64, &'static str> {
        match (self, act.kind) {
            (Self::Unknown, _) => Err("no task knows how often that happened"),
            (Self::Pages | Self::Instructions, ActKind::Exec) => {
                Err("what it takes to begin another program is not known: count something else over an exec")
            }
            (Self::CpuTime, _) => Ok(act.work_done.cpu_ns),
            (Self::Pages, _) => Ok(act.work_done.pages),
            (Self::Instructions, _) => {
                Ok(act.work_done.rounds.saturating_mul(INSTRUCTIONS_PER_ROUND.unwrap_or_default()))
            }
            (Self::Accesses(watched), ActKind::Access { address, kind }) => {
                let inside = address.checked_sub(watched.address).is_some_and(|at| at < u64::from(watched.len_bytes));
                Ok(if inside && watched.watch.counts(kind) { act.work_done.accesses } else { 0 })
            }
            (Self::Accesses(_), _) => Ok(0),
        }
    }
}

/// Something that a task did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Act {
    pub(super) task: String,
    pub(super) cpu: u32,
    /// By what statement.
    pub(super) kind: ActKind,
    /// What, by its own knowledge.
    pub(super) work_done: WorkDone,
}

/// By what statement something was done, as far as that matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ActKind {
    /// An access to an address of the scenario.
    Access {
        address: u64,
        kind: AccessKind,
    },
    Exec,
    Other,
}

/// What really happened for one event of a task.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Truth {
    /// Since it was opened, or reset: by task.
    now: BTreeMap<String, u64>,
    /// The same for tasks that exited before it was reset: what each of them counted is kept.
    before: BTreeMap<String, u64>,
    /// Why some of it is not known.
    unknown: Option<&'static str>,
}

impl Truth {
    /// Adds what an act means to an event with this measure.
    pub(super) fn add(&mut self, measure: Measure, act: &Act) {
        match measure.amount(act) {
            Ok(0) => {}
            Ok(amount) => {
                let sum = self.now.entry(act.task.clone()).or_default();
                *sum = sum.saturating_add(amount);
            }
            Err(why) => self.unknown = Some(why),
        }
    }

    /// The event is reset, while some of its tasks have exited.
    pub(super) fn reset(&mut self, has_exited: impl Fn(&str) -> bool) {
        let kept = std::mem::take(&mut self.now).into_iter().filter(|(task, _)| has_exited(task));
        self.before.extend(kept);
        self.unknown = None;
    }

    /// What happened in the tasks that `of` wants.
    pub(super) fn sum(&self, of: impl Fn(&str) -> bool) -> Result<u64, &'static str> {
        match self.unknown {
            Some(why) => Err(why),
            None => Ok(self.now.iter().filter(|(task, _)| of(task)).map(|(_, amount)| amount).sum()),
        }
    }

    /// What happened in one child, since it was born or reset.
    pub(super) fn of_child(&self, child: &str) -> Result<u64, &'static str> {
        match (self.unknown, self.before.get(child)) {
            (Some(why), _) => Err(why),
            (None, Some(&amount)) => Ok(amount),
            (None, None) => Ok(self.now.get(child).copied().unwrap_or_default()),
        }
    }
}

/// For how long something counted: what a clock of a CPU shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Clock {
    since_ns: Option<u64>,
    sum_ns: u64,
}

impl Clock {
    /// It counts from now on, or not.
    pub(super) fn set(&mut self, counts: bool, now_ns: u64) {
        match (self.since_ns, counts) {
            (None, true) => self.since_ns = Some(now_ns),
            (Some(since_ns), false) => {
                self.sum_ns = self.sum_ns.saturating_add(now_ns.saturating_sub(since_ns));
                self.since_ns = None;
            }
            _ => {}
        }
    }

    /// It begins at nothing again.
    pub(super) fn reset(&mut self, now_ns: u64) {
        self.sum_ns = 0;
        self.since_ns = self.since_ns.map(|_| now_ns);
    }

    pub(super) fn value_ns(self, now_ns: u64) -> u64 {
        self.sum_ns.saturating_add(self.since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_sim::scenario::ast::Watch;

    fn act(task: &str, kind: ActKind) -> Act {
        let work_done = WorkDone { cpu_ns: 1000, rounds: 7, pages: 3, accesses: 5, user: 0 };
        Act { task: task.into(), cpu: 0, kind, work_done }
    }

    fn named(name: &str) -> Measure {
        Measure::of(&Event::Named(name.into()))
    }

    #[test]
    fn each_event_has_its_measure() {
        let other = act("A", ActKind::Other);
        assert_eq!(named("faults:u").amount(&other), Ok(3));
        assert_eq!(named("task-clock").amount(&other), Ok(1000));
        assert!(named("cycles").amount(&other).is_err());
        if INSTRUCTIONS_PER_ROUND.is_some() {
            assert_eq!(named("instructions").amount(&other), Ok(14));
        }
    }

    #[test]
    fn breakpoints_count_their_bytes() {
        let watched = Breakpoint { address: 0x1000, len_bytes: 8, watch: Watch::Write };
        let measure = Measure::of(&Event::Breakpoint(watched));
        let access = |address, kind| measure.amount(&act("A", ActKind::Access { address, kind }));
        assert_eq!(access(0x1000, AccessKind::Write), Ok(5));
        assert_eq!(access(0x1007, AccessKind::Write), Ok(5));
        assert_eq!(access(0x1008, AccessKind::Write), Ok(0));
        assert_eq!(access(0xfff, AccessKind::Write), Ok(0));
        assert_eq!(access(0x1000, AccessKind::Read), Ok(0));
        assert_eq!(measure.amount(&act("A", ActKind::Exec)), Ok(0));
    }

    #[test]
    fn an_exec_hides_what_it_takes() {
        let mut truth = Truth::default();
        truth.add(Measure::Pages, &act("A", ActKind::Exec));
        assert!(truth.sum(|_| true).is_err());
        truth.reset(|_| false);
        assert_eq!(truth.sum(|_| true), Ok(0));
    }

    #[test]
    fn a_reset_keeps_those_who_have_exited_by_name() {
        let mut truth = Truth::default();
        for task in ["A", "C", "D"] {
            truth.add(Measure::Pages, &act(task, ActKind::Other));
        }
        truth.reset(|task| task == "C");
        truth.add(Measure::Pages, &act("D", ActKind::Other));
        assert_eq!(truth.sum(|_| true), Ok(3));
        assert_eq!(truth.of_child("C"), Ok(3));
        assert_eq!(truth.of_child("D"), Ok(3));
        assert_eq!(truth.of_child("A"), Ok(0));
    }

    #[test]
    fn clocks_go_while_they_are_set() {
        let mut clock = Clock::default();
        clock.set(true, 100);
        clock.set(true, 150);
        assert_eq!(clock.value_ns(200), 100);
        clock.set(false, 300);
        assert_eq!(clock.value_ns(900), 200);
        clock.set(true, 1000);
        clock.reset(1100);
        assert_eq!(clock.value_ns(1150), 50);
    }
}
