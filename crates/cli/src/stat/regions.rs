//! The regions of a command: what they have cost, and what has to be said of them.
//!
//! Read first: [`region_rows`].
//!
//! **Invariant:** a region that was entered is in a row or in a note.

use super::assemble::value;
use super::plan::Plan;
use super::report::{EventColumn, Note, RegionRow, StatReport, Value};
use super::run::StatRun;
use crate::failure::{Failure, failed};
use pmux::{MOST_EVENTS_OF_REGIONS, Reading, RegionCounts, RegionTable, Regions};

/// More names than this are not listed.
const NAMES_LISTED: usize = 3;

/// The table that a command's regions are counted in, where that is asked for.
pub(super) fn table(run: &StatRun<'_>) -> Result<Option<RegionTable>, Failure> {
    if !run.options.regions {
        return Ok(None);
    }
    let count = run.plan.parts.iter().map(|part| part.columns.len()).sum();
    if count > MOST_EVENTS_OF_REGIONS {
        return Err(failed(format!("--regions counts at most {MOST_EVENTS_OF_REGIONS} events, and these are {count}")));
    }
    let table = RegionTable::make(&run.plan.text, count);
    table.map(Some).map_err(|errno| failed(format!("--regions: no memory can be shared with the command: {errno}")))
}

/// Adds what regions have cost to the report of a command.
pub(super) fn add(report: &mut StatReport, plan: &Plan, found: &Regions) {
    let unfinished: Vec<&RegionCounts> = found.regions.iter().filter(|region| region.entered > region.left).collect();
    let mut say = |text: String| report.notes.push(Note::measurement(text));
    if found.regions.is_empty() {
        say("no region was entered: a program marks them with `pmux::region`, of the same release as pmux".to_owned());
    }
    if !unfinished.is_empty() {
        let mut names: Vec<&str> = unfinished.iter().map(|region| &*region.name).collect();
        if names.len() > NAMES_LISTED {
            names.splice(NAMES_LISTED.., ["…"]);
        }
        // Whatever the command has written there.
        let times = unfinished.iter().fold(0, |sum: u64, region| sum.saturating_add(region.entered - region.left));
        say(format!("regions were entered {times} times and not left, which is not counted: {}", names.join(", ")));
    }
    if found.missed > 0 {
        let why = "there are more than 1,024 names, or they interrupted another region";
        say(format!("regions were entered {} times that are not counted: {why}", found.missed));
    }
    if found.uncounted_threads > 0 {
        say(format!(
            "in {} threads of the command the events could not be opened: their regions have times only",
            found.uncounted_threads
        ));
    }
    let is_limited = |(column, planned): (&EventColumn, &EventColumn)| column.name != planned.name;
    if found.limited_threads > 0 && !report.events.iter().zip(&plan.columns).all(is_limited) {
        report.notes.push(Note::measurement(format!(
            "in {} threads of the command, which has fewer rights than pmux, regions are counted in user mode only",
            found.limited_threads
        )));
    }
    report.regions = region_rows(plan, found);
    for row in report.rows.iter().filter(|row| row.value == Value::NotSupported) {
        report.regions.iter_mut().for_each(|region| region.values[row.event] = Value::NotSupported);
    }
    if report.regions.iter().flat_map(|region| &region.values).any(|value| value.is_estimate()) {
        let text = "~ marks estimates of regions: the event had a counter for a part of the time";
        report.notes.push(Note::measurement(text));
    }
}

/// A row for each region, the one that took longest first.
fn region_rows(plan: &Plan, found: &Regions) -> Vec<RegionRow> {
    let columns = || plan.parts.iter().flat_map(|part| &part.columns);
    let row = |region: &RegionCounts| {
        let mut values = vec![Value::NotSupported; plan.columns.len()];
        for (&column, count) in columns().zip(&region.counts) {
            values[column] = values[column].plus(value(Reading::Counted(*count), None));
        }
        RegionRow { name: region.name.clone(), calls: region.left, elapsed_ns: region.elapsed.0, values }
    };
    let mut rows: Vec<RegionRow> = found.regions.iter().map(row).collect();
    pmux::order::sort_by(&mut rows, |a, b| b.elapsed_ns.cmp(&a.elapsed_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}
