//! What stands side by side.
//!
//! What it is: for each CPU a lane for its tasks, one for each counter that was ever used there, and one for the events that need
//! none. CPUs on which the same happened at the same times stand as one.
//! Read first: [`views`].
//!
//! **Invariant:** the spans of a lane are by time and do not overlap; of two lanes with the same spans and titles, the labels
//! are the same.

use super::{Began, Hold, PmuKind, Timeline};
use pmux_engine::{CpuId, Nanos};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Some CPUs, on all of which the same happened.
pub(super) struct View {
    /// The CPUs, ascending.
    pub(super) cpus: Vec<CpuId>,
    /// Their lanes, from left to right.
    pub(super) lanes: Rc<[Lane]>,
}

/// What was in one place, one thing after the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lane {
    /// What stands above it.
    pub(super) title: String,
    pub(super) kind: LaneKind,
    pub(super) spans: Vec<LaneSpan>,
}

/// What a lane shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum LaneKind {
    /// The task on the CPU, or that the CPU is away.
    Tasks,
    /// The event on a counter.
    Counter,
    /// Events that need no counter.
    Software,
}

/// Something that was there for a while.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LaneSpan {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) label: Rc<str>,
    pub(super) sort: SpanSort,
}

/// What it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum SpanSort {
    /// A task, by its number.
    Task(usize),
    /// The CPU was away.
    Away,
    /// An event, by its number; of several, the first one.
    Event(usize, Began),
}

/// More events than fit into a lane with their names are counted.
const LONGEST_LABEL: usize = 28;

/// The CPUs on which something happened, ascending by the first of those that are alike.
pub(super) fn views(timeline: &Timeline) -> Vec<View> {
    let mut of_cpu: BTreeMap<CpuId, Parts<'_>> = BTreeMap::new();
    for turn in &timeline.turns {
        of_cpu.entry(turn.cpu).or_default().tasks.push((turn.from, turn.to, Some(turn.task)));
    }
    for absence in &timeline.absences {
        of_cpu.entry(absence.cpu).or_default().tasks.push((absence.from, absence.to, None));
    }
    for hold in &timeline.holds {
        let parts = of_cpu.entry(hold.cpu).or_default();
        match hold.counter {
            Some(counter) => parts.counters.entry((hold.pmu, counter)).or_default().push(hold),
            None => parts.software.push(hold),
        }
    }
    let mut labels = Labels { timeline, known: HashMap::new() };
    let mut alike: HashMap<Rc<[Lane]>, usize> = HashMap::new();
    let mut views: Vec<View> = Vec::new();
    for (cpu, parts) in of_cpu {
        let lanes: Rc<[Lane]> = parts.lanes(&mut labels).into();
        match alike.get(&lanes) {
            Some(&index) => views[index].cpus.push(cpu),
            None => {
                alike.insert(Rc::clone(&lanes), views.len());
                views.push(View { cpus: vec![cpu], lanes });
            }
        }
    }
    views
}

/// What happened on one CPU.
#[derive(Default)]
struct Parts<'t> {
    tasks: Vec<(Nanos, Nanos, Option<usize>)>,
    counters: BTreeMap<(usize, u32), Vec<&'t Hold>>,
    software: Vec<&'t Hold>,
}

struct Labels<'t> {
    timeline: &'t Timeline,
    known: HashMap<String, Rc<str>>,
}

impl Labels<'_> {
    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.known.get(text) {
            return Rc::clone(known);
        }
        let label: Rc<str> = text.into();
        self.known.insert(text.to_owned(), Rc::clone(&label));
        label
    }

    fn event(&mut self, event: usize) -> Rc<str> {
        let timeline = self.timeline;
        self.text(timeline.events.get(event).map_or("?", |event| event.name.as_str()))
    }

    fn task(&mut self, task: usize) -> Rc<str> {
        let timeline = self.timeline;
        self.text(timeline.tasks.get(task).map_or("?", String::as_str))
    }
}

impl Parts<'_> {
    fn lanes(mut self, labels: &mut Labels<'_>) -> Vec<Lane> {
        let mut lanes = Vec::new();
        self.tasks.sort_unstable();
        if !self.tasks.is_empty() {
            let span = |&(from, to, task): &(Nanos, Nanos, Option<usize>)| match task {
                Some(task) => LaneSpan { from, to, label: labels.task(task), sort: SpanSort::Task(task) },
                None => LaneSpan { from, to, label: labels.text("offline"), sort: SpanSort::Away },
            };
            let spans = self.tasks.iter().map(span).collect();
            lanes.push(Lane { title: "task".to_owned(), kind: LaneKind::Tasks, spans });
        }
        for ((pmu, counter), holds) in &self.counters {
            let debug = labels.timeline.pmus.get(*pmu).is_some_and(|pmu| pmu.kind == PmuKind::DebugRegisters);
            let title = if debug { format!("dr{counter}") } else { format!("#{counter}") };
            let span = |hold: &&Hold| {
                let sort = SpanSort::Event(hold.event, hold.began);
                LaneSpan { from: hold.from, to: hold.to, label: labels.event(hold.event), sort }
            };
            let spans = holds.iter().map(span).collect();
            lanes.push(Lane { title, kind: LaneKind::Counter, spans });
        }
        if !self.software.is_empty() {
            let spans = together(&self.software, labels);
            lanes.push(Lane { title: "software".to_owned(), kind: LaneKind::Software, spans });
        }
        lanes
    }
}

/// Events that may all be there at once, as spans of which each names all that are.
fn together(holds: &[&Hold], labels: &mut Labels<'_>) -> Vec<LaneSpan> {
    // Ends come before beginnings: what follows at once is no overlap.
    let mut changes: Vec<(Nanos, bool, usize)> =
        holds.iter().flat_map(|hold| [(hold.from, true, hold.event), (hold.to, false, hold.event)]).collect();
    changes.sort_unstable();
    let mut there: BTreeMap<usize, u32> = BTreeMap::new();
    let mut spans: Vec<LaneSpan> = Vec::new();
    let mut index = 0;
    while let Some(&(from, ..)) = changes.get(index) {
        while let Some(&(at, begins, event)) = changes.get(index).filter(|(at, ..)| *at == from) {
            debug_assert!(at == from);
            let times = there.entry(event).or_default();
            *times = if begins { *times + 1 } else { times.saturating_sub(1) };
            index += 1;
        }
        there.retain(|_, times| *times > 0);
        let (Some(&first), Some(&(to, ..))) = (there.keys().next(), changes.get(index)) else { continue };
        let label = all_of(there.keys().copied(), labels);
        match spans.last_mut() {
            Some(last) if last.to == from && last.label == label => last.to = to,
            _ => spans.push(LaneSpan { from, to, label, sort: SpanSort::Event(first, Began::Programmed) }),
        }
    }
    spans
}

fn all_of(events: impl Iterator<Item = usize> + Clone, labels: &mut Labels<'_>) -> Rc<str> {
    let names: Vec<_> = events.map(|event| labels.event(event)).collect();
    let all = names.join(" ");
    if all.chars().count() <= LONGEST_LABEL {
        return labels.text(&all);
    }
    labels.text(&format!("{} … ({} events)", names.first().map_or("", |name| &**name), names.len()))
}

#[cfg(test)]
mod tests {
    use super::super::EventFigures;
    use super::*;

    fn hold(event: usize, cpu: u32, from: u64, to: u64) -> Hold {
        let (from, to, cpu) = (Nanos(from), Nanos(to), CpuId(cpu));
        Hold { event, task: None, cpu, pmu: 0, counter: None, from, to, began: Began::Programmed }
    }

    fn timeline(holds: Vec<Hold>) -> Timeline {
        let events = ["a", "b"].map(|name| EventFigures { name: name.into(), ..EventFigures::default() });
        Timeline { holds, events: events.into(), ..Timeline::default() }
    }

    #[test]
    fn cpus_on_which_the_same_happened_are_one() {
        let timeline = timeline(vec![hold(0, 0, 0, 5), hold(0, 1, 0, 6), hold(0, 7, 0, 5)]);
        let cpus: Vec<Vec<u32>> =
            views(&timeline).iter().map(|view| view.cpus.iter().map(|cpu| cpu.0).collect()).collect();
        assert_eq!(cpus, [vec![0, 7], vec![1]]);
    }

    #[test]
    fn software_events_stand_beside_each_other_in_one_lane() {
        let views = views(&timeline(vec![hold(0, 0, 0, 10), hold(1, 0, 4, 6), hold(0, 0, 10, 12), hold(1, 0, 15, 16)]));
        let spans: Vec<_> =
            views[0].lanes[0].spans.iter().map(|span| (span.from.0, span.to.0, span.label.to_string())).collect();
        assert_eq!(spans, [(0, 4, "a".into()), (4, 6, "a b".into()), (6, 12, "a".into()), (15, 16, "b".to_string())]);
    }
}
