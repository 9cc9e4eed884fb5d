//! How lanes are put side by side.
//!
//! **Invariant:** every lane of every CPU is in a band; where the lanes of a CPU are torn apart, its tasks stand before each part.

use super::Began;
use super::lanes::{Lane, LaneKind, LaneSpan, SpanSort, View};
use super::line::width;
use super::page::HANDED;
use super::units::several;
use crate::scenario::ast::CpuList;
use pmux_engine::CpuId;

/// Columns between the lanes of a CPU, and between CPUs.
pub(super) const GAP: usize = 2;
const CPU_GAP: usize = 4;

/// Lanes that stand side by side, with the columns at which they begin.
pub(super) struct Band<'v> {
    /// The CPUs, where their lanes begin, and the columns that they take.
    pub(super) heads: Vec<(&'v View, usize, usize)>,
    pub(super) lanes: Vec<(&'v Lane, usize)>,
}

/// The width of a lane.
fn lane_width(lane: &Lane) -> usize {
    let span = |span: &LaneSpan| {
        let handed = matches!(span.sort, SpanSort::Event(_, Began::HandedOver));
        width(&span.label) + if handed { width(HANDED) } else { 0 }
    };
    lane.spans.iter().map(span).max().unwrap_or(0).max(width(&lane.title))
}

/// What a CPU, or several, are called.
pub(super) fn cpus_text(cpus: &[CpuId]) -> String {
    match cpus {
        [cpu] => format!("cpu{cpu}"),
        _ => CpuList::new(cpus.iter().copied()).map_or_else(String::new, |list| format!("cpus {list}")),
    }
}

/// Longer names of CPUs stand in the legend.
pub(super) const LONGEST_HEAD: usize = 28;

pub(super) fn head(view: &View) -> String {
    let text = cpus_text(&view.cpus);
    if width(&text) <= LONGEST_HEAD { text } else { format!("{} alike", several(view.cpus.len() as u64, "CPU")) }
}

/// Puts as many lanes side by side as fit. Where the lanes of a CPU are torn apart, its task stands before each part.
pub(super) fn bands(views: &[View], room: usize) -> Vec<Band<'_>> {
    let mut bands = vec![Band { heads: Vec::new(), lanes: Vec::new() }];
    let mut column = 0;
    for view in views {
        let mut rest: &[Lane] = &view.lanes;
        let tasks = rest.first().filter(|lane| lane.kind == LaneKind::Tasks);
        while !rest.is_empty() {
            let start = if column == 0 { 0 } else { column + CPU_GAP };
            let torn = rest.len() < view.lanes.len();
            let again = tasks.filter(|_| torn);
            let first = again.map_or(0, |lane| lane_width(lane) + GAP);
            let mut end = start + first;
            let fits = |lane: &&Lane| {
                let fits = end + lane_width(lane) <= room;
                end += lane_width(lane) + GAP;
                fits
            };
            let mut count = rest.iter().take_while(fits).count();
            let whole = count == rest.len() && start + width(&head(view)) <= room;
            // A CPU is torn apart only where it would not fit on a line of its own either.
            if column > 0 && !whole {
                bands.push(Band { heads: Vec::new(), lanes: Vec::new() });
                column = 0;
                continue;
            }
            count = count.max(if tasks.is_some() && !torn { 2 } else { 1 }).min(rest.len());
            let (now, later) = rest.split_at(count);
            let Some(band) = bands.last_mut() else { return bands };
            let mut at = start;
            for lane in again.into_iter().chain(now) {
                band.lanes.push((lane, at));
                at += lane_width(lane) + GAP;
            }
            let taken = (at - GAP - start).max(width(&head(view)));
            band.heads.push((view, start, taken));
            column = start + taken;
            rest = later;
            if !rest.is_empty() {
                bands.push(Band { heads: Vec::new(), lanes: Vec::new() });
                column = 0;
            }
        }
    }
    bands
}
