//! Numbers that are read now and then: rates and ratios.
//!
//! What it is: one [`Counters`] with all events that a rule names, read at even intervals; what was counted between two readings is
//! compared with the limits. The events are opened through the session, so that they are shared with clients that ask the same.
//!
//! What was not counted gives no number. A task or a cgroup that did not run has counted 0; a CPU that was not there has not counted.
//! Where the second event of a ratio did not occur, there is no ratio.
//!
//! **Invariant:** what is not known is [`TermValue::Unknown`], never 0.

use super::super::engine::{TermId, TriggerEngine};
use super::super::events::Reason;
use super::super::language::{Level, LevelQuantity, TermScope};
use super::rules;
use crate::cgroup_paths::CgroupPaths;
use crate::counters::{Counters, Reading, RowReading, Snapshot};
use crate::event::{Event, EventList};
use crate::session::Session;
use crate::target::{Inherit, Options, Target};
use pmux_engine::event_set::{TermValue, TriggerTarget};
use pmux_engine::{CgroupId, CpuId, Estimate, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// A level of a trigger, and where its events are.
struct OpenLevel {
    term_id: TermId,
    level: Level,
    of: Range<usize>,
    /// The second event of a ratio.
    to: Option<Range<usize>>,
}

pub(in crate::trigger) struct Levels {
    counters: Counters,
    asked: Vec<OpenLevel>,
    last: Snapshot,
    interval: Nanos,
    next: Nanos,
    online: BTreeSet<u32>,
    cgroups: CgroupPaths,
}

/// A number, or why there is none.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Number {
    Is(f64),
    NotCounted,
    /// Nothing was looked at.
    Nothing,
}

impl Number {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Is(one), Self::Is(other)) => Self::Is(one + other),
            (Self::NotCounted, _) | (_, Self::NotCounted) => Self::NotCounted,
            (Self::Nothing, other) | (other, Self::Nothing) => other,
        }
    }
}

/// Whether a row counts a CPU, whatever runs there: then time that is missing was not counted.
fn counts_cpu(row: &RowReading) -> bool {
    row.who.cpu.is_some() && row.who.cgroup.is_none() && row.who.thread.is_none()
}

fn number(row: &RowReading, column: usize, event: &Event) -> Number {
    match row.readings.get(column) {
        Some(Reading::Counted(count)) => match count.estimate() {
            Estimate::Exact(value) | Estimate::Scaled { value, .. } => Number::Is(value as f64 * event.scale),
            Estimate::NotCounted if count.enabled > Nanos::ZERO => Number::NotCounted,
            Estimate::NotCounted if counts_cpu(row) => Number::Nothing,
            Estimate::NotCounted => Number::Is(0.0),
        },
        Some(Reading::Refused | Reading::Failed(_)) => Number::NotCounted,
        Some(Reading::Elsewhere) | None => Number::Nothing,
    }
}

impl Levels {
    /// Opens the events of all levels on a target.
    ///
    /// # Errors
    /// The term that is at fault, and why.
    pub(in crate::trigger) fn open(
        session: &Session,
        levels: &[(TermId, Level)],
        target: &Target<'_>,
        interval: Duration,
    ) -> Result<Self, (TermId, String)> {
        let mut list = EventList::default();
        let mut places: BTreeMap<String, Range<usize>> = BTreeMap::new();
        let mut asked = Vec::with_capacity(levels.len());
        let mut column = |text: &String| {
            if let Some(known) = places.get(text) {
                return Ok(known.clone());
            }
            let first = list.events().count();
            list.groups.extend(EventList::parse(&[text], session.catalog()).map_err(|error| error.to_string())?.groups);
            places.insert(text.clone(), first..list.events().count());
            Ok(first..list.events().count())
        };
        for (term_id, level) in levels {
            fits(term_id.scope, target).map_err(|why| (*term_id, why.to_owned()))?;
            let (of, to) = match &level.quantity {
                LevelQuantity::Rate(event) => (column(event), None),
                LevelQuantity::Ratio(event, to) => (column(event), Some(column(to))),
            };
            let of = of.map_err(|why: String| (*term_id, why))?;
            let to = to.transpose().map_err(|why| (*term_id, why))?;
            asked.push(OpenLevel { term_id: *term_id, level: level.clone(), of, to });
        }
        let first = asked.first().map_or(TermId { rule: 0, term: 0, scope: TermScope::All }, |asked| asked.term_id);
        let options = Options { inherit: Inherit::Children, ..Options::default() };
        let counters = session.open(&list, target, options).map_err(|error| (first, error.to_string()))?;
        for asked in &asked {
            let columns = asked.of.clone().chain(asked.to.clone().into_iter().flatten());
            if let Some(refusal) = columns.filter_map(|column| counters.refusal(column)).next() {
                return Err((asked.term_id, refusal.to_string()));
            }
        }
        let last = counters.read();
        let interval = Nanos(crate::units::nanos(interval));
        let (next, online) = (last.at + interval, session.online().iter().collect());
        Ok(Self { counters, asked, last, interval, next, online, cgroups: CgroupPaths::of(target) })
    }

    pub(in crate::trigger) fn next(&self) -> Nanos {
        self.next
    }

    pub(in crate::trigger) fn take(&mut self, engine: &mut TriggerEngine, now: Nanos) {
        if now < self.next {
            return;
        }
        let snapshot = self.counters.read();
        // Late is late: what was missed is not made up for.
        self.next = now + self.interval;
        self.follow_places(engine, snapshot.at);
        let since = snapshot.since(&self.last);
        let seconds = snapshot.at.since(self.last.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        for asked in &self.asked {
            for (place, of, to) in self.numbers(asked, &since) {
                let value = match (of, to) {
                    (Number::Is(of), None) => Some(of / seconds),
                    (Number::Is(of), Some(Number::Is(to))) if to > 0.0 => Some(of / to),
                    _ => None,
                };
                let Level { quantity, comparison, limit } = &asked.level;
                let (comparison, limit) = (*comparison, *limit);
                let holds = value.map_or(TermValue::Unknown, |value| comparison.holds(value, limit).into());
                let reason = value.map(|value| Reason::Number { quantity: quantity.clone(), value, comparison, limit });
                engine.observe(asked.term_id, place, holds, reason, snapshot.at);
            }
        }
        self.last = snapshot;
    }

    /// What a level has counted, place by place.
    fn numbers(&self, asked: &OpenLevel, since: &Snapshot) -> Vec<(TriggerTarget, Number, Option<Number>)> {
        let mut places: BTreeMap<TriggerTarget, (Number, Option<Number>)> = BTreeMap::new();
        if asked.term_id.scope == TermScope::All {
            places.insert(TriggerTarget::All, (Number::Nothing, asked.to.as_ref().map(|_| Number::Nothing)));
        }
        let events = self.counters.events();
        let sum = |row: &RowReading, columns: &Range<usize>| {
            let of = |column: usize| events.get(column).map_or(Number::Nothing, |event| number(row, column, event));
            columns.clone().map(of).fold(Number::Nothing, Number::plus)
        };
        for row in &since.rows {
            let place = match (asked.term_id.scope, row.who.cpu, row.who.cgroup) {
                (TermScope::All, ..) => TriggerTarget::All,
                (TermScope::PerCpu, Some(cpu), _) if self.online.contains(&cpu) => TriggerTarget::Cpu(CpuId(cpu)),
                (TermScope::PerCgroup, _, Some(cgroup)) if !self.cgroups.is_gone(cgroup) => {
                    TriggerTarget::Cgroup(CgroupId(cgroup as u64))
                }
                _ => continue,
            };
            let blank = (Number::Nothing, asked.to.as_ref().map(|_| Number::Nothing));
            let (of, to) = places.entry(place).or_insert(blank);
            *of = of.plus(sum(row, &asked.of));
            if let (Some(sums), Some(columns)) = (to, &asked.to) {
                *sums = sums.plus(sum(row, columns));
            }
        }
        places.into_iter().map(|(place, (of, to))| (place, of, to)).collect()
    }

    /// CPUs that have gone, and cgroups: says so, and forgets them until they are back.
    fn follow_places(&mut self, engine: &mut TriggerEngine, now: Nanos) {
        let term_ids = || self.asked.iter().map(|asked| asked.term_id);
        let of = |scope: TermScope| term_ids().filter(move |term_id| term_id.scope == scope);
        let online: BTreeSet<u32> = self.counters.session().online().iter().collect();
        if self.last.rows.iter().any(|row| row.who.cpu.is_some()) {
            for &cpu in self.online.difference(&online) {
                rules(of(TermScope::PerCpu))
                    .into_iter()
                    .for_each(|rule| engine.leave(rule, TriggerTarget::Cpu(CpuId(cpu)), now));
                engine.lose(rules(term_ids()), format!("CPU {cpu} is offline: until it is back it counts for no rate"));
            }
        }
        for (index, name) in self.cgroups.newly_gone() {
            let place = TriggerTarget::Cgroup(CgroupId(index as u64));
            rules(of(TermScope::PerCgroup)).into_iter().for_each(|rule| engine.leave(rule, place, now));
            engine.lose(rules(term_ids()), format!("the cgroup {name} is not there any more: it counts for no rate"));
        }
        self.online = online;
    }
}

fn fits(scope: TermScope, target: &Target<'_>) -> Result<(), &'static str> {
    match (scope, target) {
        (TermScope::All, _) | (TermScope::PerCpu, Target::Cpus(_) | Target::Cgroups { .. }) => Ok(()),
        (TermScope::PerCgroup, Target::Cgroups { .. }) => Ok(()),
        (TermScope::PerCpu, _) => {
            Err("`per cpu` needs CPUs to look at: with -a or -C, not with processes or a command")
        }
        (TermScope::PerCgroup, _) => Err("`per cgroup` needs cgroups to look at: name them with -G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Who;
    use pmux_engine::Count;

    #[test]
    fn what_was_not_counted_is_no_number() {
        let event = Event::software(crate::event::Software::PageFaults);
        let count = |value, enabled, running| Count { value, enabled: Nanos(enabled), running: Nanos(running) };
        let row = |who, count| RowReading { who, readings: vec![Reading::Counted(count)] };
        let cpu = Who { cpu: Some(1), ..Who::default() };
        let task = Who { thread: Some(1), ..Who::default() };
        let of = |who, count| number(&row(who, count), 0, &event);
        assert_eq!(of(cpu, count(7, 10, 10)), Number::Is(7.0));
        assert_eq!(of(cpu, count(7, 10, 5)), Number::Is(14.0));
        assert_eq!(of(cpu, count(0, 10, 0)), Number::NotCounted);
        // A CPU that was offline has not counted; a task that slept has counted nothing.
        assert_eq!(of(cpu, count(0, 0, 0)), Number::Nothing);
        assert_eq!(of(task, count(0, 0, 0)), Number::Is(0.0));
        assert_eq!(of(task, count(0, 10, 0)), Number::NotCounted);
        assert_eq!(Number::Is(1.0).plus(Number::NotCounted), Number::NotCounted);
        assert_eq!(Number::Nothing.plus(Number::Is(2.0)), Number::Is(2.0));
    }
}
