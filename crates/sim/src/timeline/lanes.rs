//! What stands side by side.
//!
//! What it is: for each CPU a lane for its tasks, one for each counter that was ever used there, and one for each event that
//! needs none. CPUs on which the same happened at the same times stand as one.
//! Read first: [`views`].
//!
//! **Invariant:** the spans of a lane are by time and do not overlap.

use super::units::{several, width};
use super::{Began, Timeline};
use crate::scenario::ast::CpuList;
use pmux_engine::{CpuId, Nanos};
use std::collections::BTreeMap;

/// Some CPUs, on all of which the same happened.
pub(super) struct CpuView {
    /// The CPUs, ascending.
    pub(super) cpus: Vec<CpuId>,
    /// Their lanes, from left to right.
    pub(super) lanes: Vec<Lane>,
}

/// What was in one place, one thing after the other.
#[derive(PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) column: Column,
    /// What stands above it.
    pub(super) title: String,
    pub(super) spans: Vec<LaneSpan>,
}

/// What a lane shows, in the order of the lanes of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    /// The task on the CPU, or that the CPU is away.
    Tasks,
    /// The event on this counter of a PMU.
    Counter(usize, u32),
    Software(usize),
}

/// Something that was there for a while.
#[derive(PartialEq, Eq)]
pub(super) struct LaneSpan {
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) label: String,
    pub(super) began: Began,
}

/// Longer lists of CPUs stand below the page.
const LONGEST_HEAD: usize = 28;

impl CpuView {
    pub(super) fn head(&self) -> String {
        if self.is_long() { format!("{} alike", several(self.cpus.len() as u64, "CPU")) } else { cpus_text(&self.cpus) }
    }

    /// Whether the head does not name its CPUs.
    pub(super) fn is_long(&self) -> bool {
        width(&cpus_text(&self.cpus)) > LONGEST_HEAD
    }
}

impl Lane {
    pub(super) fn width(&self) -> usize {
        // A hand-over has a sign before its name.
        let span = |span: &LaneSpan| width(&span.label) + usize::from(span.began == Began::HandedOver);
        self.spans.iter().map(span).max().unwrap_or(0).max(width(&self.title))
    }

    pub(super) fn at(&self, now: Nanos) -> Option<&LaneSpan> {
        let next = self.spans.partition_point(|span| span.to <= now);
        self.spans.get(next).filter(|span| span.from <= now)
    }
}

pub(super) fn cpus_text(cpus: &[CpuId]) -> String {
    match cpus {
        [cpu] => format!("cpu{cpu}"),
        _ => CpuList::new(cpus.iter().copied()).map_or_else(String::new, |list| format!("cpus {list}")),
    }
}

/// The CPUs on which something happened, ascending by the first of those that are alike.
pub(super) fn views(timeline: &Timeline) -> Vec<CpuView> {
    let task = |task: usize| timeline.tasks.get(task).map_or("?", String::as_str);
    let event = |event: usize| timeline.events.get(event).map_or("?", |event| event.name.as_str());
    let mut of_cpu: BTreeMap<CpuId, BTreeMap<Column, Vec<LaneSpan>>> = BTreeMap::new();
    let mut put = |cpu, column, from, to, label: &str, began| {
        let spans = of_cpu.entry(cpu).or_default().entry(column).or_default();
        spans.push(LaneSpan { from, to, label: label.to_owned(), began });
    };
    for turn in &timeline.turns {
        put(turn.cpu, Column::Tasks, turn.from, turn.to, task(turn.task), Began::Programmed);
    }
    for absence in &timeline.absences {
        put(absence.cpu, Column::Tasks, absence.from, absence.to, "offline", Began::Programmed);
    }
    for hold in &timeline.holds {
        let column = hold.counter.map_or(Column::Software(hold.event), |counter| Column::Counter(hold.pmu, counter));
        put(hold.cpu, column, hold.from, hold.to, event(hold.event), hold.began);
    }
    let title = |column| match column {
        Column::Tasks => "task".to_owned(),
        Column::Software(_) => "sw".to_owned(),
        Column::Counter(pmu, counter) if timeline.debug_registers == Some(pmu) => format!("dr{counter}"),
        Column::Counter(_, counter) => format!("#{counter}"),
    };
    let mut views: Vec<CpuView> = Vec::new();
    for (cpu, columns) in of_cpu {
        let lane = |(column, mut spans): (Column, Vec<LaneSpan>)| {
            spans.sort_by_key(|span| span.from);
            Lane { column, title: title(column), spans }
        };
        let lanes: Vec<Lane> = columns.into_iter().map(lane).collect();
        match views.iter_mut().find(|view| view.lanes == lanes) {
            Some(view) => view.cpus.push(cpu),
            None => views.push(CpuView { cpus: vec![cpu], lanes }),
        }
    }
    views
}
