//! A timeline out of what the machine wrote down.
//!
//! **Invariant:** one hold is one event on one counter for one place: a counter that was read and begun anew, because it
//! wrapped, is the same hold.

use super::units::{several, span};
use super::{Absence, Began, EventFigures, Hold, Mark, Marked, StatementSpan, Timeline, Turn};
use crate::machine::{self, Counts, Description, Event, Happening, Kind, PmuDescription, World};
use crate::scenario::canonical_event;
use pmux_engine::pmu::{SlotMask, Slots};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Nanos, TaskId};
use std::collections::{HashMap, HashSet};

impl Timeline {
    /// The timeline of a world up to now. `event` says which of `events` an event of the machine is.
    pub(crate) fn new(
        world: &World,
        seed: u64,
        statements: Vec<StatementSpan>,
        tasks: Vec<(TaskId, String)>,
        events: Vec<EventFigures>,
        event: &dyn Fn(Event) -> Option<usize>,
    ) -> Self {
        let (description, recorded, end) = (world.description(), world.timeline(), world.now());
        let numbers: HashMap<TaskId, usize> =
            tasks.iter().enumerate().map(|(number, (task, _))| (*task, number)).collect();
        let mut turns: Vec<Turn> = recorded
            .turns
            .iter()
            .filter_map(|turn| {
                Some(Turn { task: *numbers.get(&turn.task)?, cpu: turn.cpu, from: turn.from, to: turn.to })
            })
            .collect();
        turns.sort_by_key(|turn| (turn.from, turn.cpu));
        let holds = holds(&recorded, description, &numbers, event);
        let during = |index: usize| {
            let statement = statements.partition_point(|statement| statement.marks_by_then <= index);
            (statement < statements.len()).then_some(statement)
        };
        let marks = recorded.marks.iter().enumerate().filter_map(|(index, mark)| marked(mark, during(index), event));
        let marks = marks.collect();
        Self {
            cpus: description.cpus,
            machine: machine(description, &holds, seed),
            debug_registers: description.pmus.iter().position(|pmu| matches!(pmu.counts, Counts::Accesses { .. })),
            end,
            statements,
            tasks: tasks.into_iter().map(|(_, name)| name).collect(),
            events,
            turns: joined(turns),
            holds,
            absences: absences(&recorded, end),
            marks,
        }
    }
}

/// `2 CPUs · 4 counters of 48 bits · fixed: #4 cycles`; debug registers only where they were used.
fn machine(description: &Description, holds: &[Hold], seed: u64) -> String {
    let mut parts = vec![several(description.cpus.into(), "CPU")];
    for (number, pmu) in description.pmus.iter().enumerate() {
        let Slots::Scarce(count) = pmu.slots else { continue };
        match &pmu.counts {
            Counts::Kinds(kinds) => {
                parts.push(format!("{} of {} bits", several(count.into(), "counter"), pmu.width_bits));
                let fixed: Vec<String> = (0..count).filter_map(|slot| fixed_to(slot, kinds)).collect();
                if !fixed.is_empty() {
                    parts.push(format!("fixed: {}", fixed.join(", ")));
                }
            }
            Counts::Accesses { .. } if holds.iter().any(|hold| hold.pmu == number) => {
                parts.push(several(count.into(), "debug register"));
            }
            Counts::Accesses { .. } => {}
        }
    }
    parts.push(format!("a tick every {}", span(description.tick)));
    parts.push(format!("seed {seed}"));
    parts.join(" · ")
}

/// `#4 cycles`, for a counter that one event only can be on.
fn fixed_to(slot: u8, kinds: &[(Kind, SlotMask)]) -> Option<String> {
    let mut takers = kinds.iter().filter(|(_, mask)| mask.0 & 1 << slot != 0);
    let (kind, _) = takers.next()?;
    let name = canonical_event(kind.name()).unwrap_or_else(|| kind.name());
    takers.next().is_none().then(|| format!("#{slot} {name}"))
}

fn holds(
    recorded: &machine::Timeline,
    description: &Description,
    tasks: &HashMap<TaskId, usize>,
    event: &dyn Fn(Event) -> Option<usize>,
) -> Vec<Hold> {
    let handed_over: HashSet<(Nanos, CpuId, usize, u32)> = recorded
        .marks
        .iter()
        .filter_map(|mark| match mark.what {
            Happening::HandedOver(cpu, pmu, slot) => Some((mark.at, cpu, usize::from(pmu.0), slot.0)),
            _ => None,
        })
        .collect();
    let hold = |span: &machine::SlotSpan| {
        let is_scarce = |pmu: &PmuDescription| matches!(pmu.slots, Slots::Scarce(_));
        let scarce = description.pmus.get(usize::from(span.pmu.0)).is_some_and(is_scarce);
        let task = if let ContextKey::Task(task) = span.place { Some(*tasks.get(&task)?) } else { None };
        Some(Hold {
            event: event(span.event)?,
            task,
            cpu: span.cpu?,
            pmu: usize::from(span.pmu.0),
            counter: scarce.then_some(span.slot.0),
            from: span.from,
            to: span.to,
            began: Began::Programmed,
        })
    };
    let mut holds: Vec<Hold> = recorded.spans.iter().filter_map(hold).collect();
    // Those of one counter one after the other.
    holds.sort_by_key(|hold| {
        (hold.cpu, hold.pmu, hold.counter, hold.counter.is_none().then_some((hold.event, hold.task)), hold.from)
    });
    let mut joined: Vec<Hold> = Vec::with_capacity(holds.len());
    for mut hold in holds {
        let before = joined.last_mut().filter(|before| {
            let lane = |hold: &Hold| (hold.cpu, hold.pmu, hold.counter, hold.event);
            lane(before) == lane(&hold) && before.to == hold.from
        });
        match before {
            Some(before) if before.task == hold.task => before.to = hold.to,
            _ => {
                let at = hold.counter.map(|counter| (hold.from, hold.cpu, hold.pmu, counter));
                if at.is_some_and(|at| handed_over.contains(&at)) {
                    hold.began = Began::HandedOver;
                }
                joined.push(hold);
            }
        }
    }
    joined.sort_by_key(|hold| (hold.from, hold.cpu, hold.pmu, hold.counter, hold.event));
    joined
}

/// Turns that follow one another without a break are one.
fn joined(turns: Vec<Turn>) -> Vec<Turn> {
    let mut last: HashMap<CpuId, usize> = HashMap::new();
    let mut joined: Vec<Turn> = Vec::with_capacity(turns.len());
    for turn in turns {
        let before = last.get(&turn.cpu).and_then(|&index| joined.get_mut(index));
        match before.filter(|before| before.task == turn.task && before.to == turn.from) {
            Some(before) => before.to = turn.to,
            None => {
                last.insert(turn.cpu, joined.len());
                joined.push(turn);
            }
        }
    }
    joined
}

fn absences(recorded: &machine::Timeline, end: Nanos) -> Vec<Absence> {
    let mut away: HashMap<CpuId, Nanos> = HashMap::new();
    let mut absences = Vec::new();
    for mark in &recorded.marks {
        match mark.what {
            Happening::Offline(cpu) => drop(away.insert(cpu, mark.at)),
            Happening::Online(cpu) => {
                absences.extend(away.remove(&cpu).map(|from| Absence { cpu, from, to: mark.at }));
            }
            _ => {}
        }
    }
    absences.extend(away.into_iter().map(|(cpu, from)| Absence { cpu, from, to: end }));
    absences.retain(|absence| absence.to > absence.from);
    absences.sort_by_key(|absence| (absence.from, absence.cpu));
    absences
}

/// What no statement says.
fn marked(mark: &machine::Mark, statement: Option<usize>, event: &dyn Fn(Event) -> Option<usize>) -> Option<Mark> {
    let (cpu, what) = match mark.what {
        Happening::Interrupt(cpu) => (Some(cpu), Marked::Interrupt),
        Happening::Doorbell(cpu) => (Some(cpu), Marked::Doorbell),
        Happening::Refused(refused, cpu, what) => (cpu, Marked::Refused(event(refused)?, what)),
        Happening::Lost(lost, times) => (None, Marked::Lost(event(lost)?, times)),
        // The span that it begins shows the last one.
        Happening::Offline(_) | Happening::Online(_) | Happening::HandedOver(..) => return None,
    };
    Some(Mark { at: mark.at, cpu, statement, what })
}
