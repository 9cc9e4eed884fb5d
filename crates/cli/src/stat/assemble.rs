//! From readings to rows.
//!
//! Read first: [`rows`]. What has to be said about them is in [`super::remarks`].
//!
//! **Invariant:** a reading that is no count never becomes a number, and every event has a row.

use super::names::Names;
use super::plan::Plan;
use super::process_tree::{Exit, Process, ProcessTreeReport};
use super::report::{EventColumn, Row, RowScope, ThreadName, Value, sort_threads};
use super::run::StatRun;
use crate::options::target::TargetSpec;
use pmux::{Counters, Estimate, Nanos, ProcessTree, Reading, ReasonKind, Snapshot};
use std::collections::HashMap;

/// The counters of one part of the plan, with what was read.
pub(crate) struct Taken<'a> {
    pub(crate) counters: &'a Counters,
    pub(crate) snapshot: Snapshot,
}

/// One row before it is judged.
struct RowSum {
    event: usize,
    scope: RowScope,
    reading: Reading,
    refused_for: Option<ReasonKind>,
}

/// The sums, each in its place.
#[derive(Default)]
struct RowSums {
    sums: Vec<RowSum>,
    place: HashMap<(usize, RowScope), usize>,
}

impl RowSums {
    fn add(&mut self, sum: RowSum, column: &EventColumn) {
        match self.place.get(&(sum.event, sum.scope)) {
            Some(&at) => {
                let before = self.sums[at].reading;
                self.sums[at].reading =
                    if column.is_peak() { higher(before, sum.reading) } else { before.plus(sum.reading) };
            }
            None => {
                self.place.insert((sum.event, sum.scope), self.sums.len());
                self.sums.push(sum);
            }
        }
    }
}

/// Peaks are not added up.
fn higher(a: Reading, b: Reading) -> Reading {
    match (a.count(), b.count()) {
        (Some(one), Some(other)) if other.value > one.value => b,
        (None, Some(_)) => b,
        _ => a,
    }
}

/// Lays the readings of all parts (in the plan's order) out as rows, in printing order: one for each event and cgroup, and each CPU (`-A`)
/// or thread (`--per-thread`).
pub(crate) fn rows(run: &StatRun<'_>, names: &Names, taken: &[Taken<'_>]) -> (Vec<Row>, Vec<ThreadName>) {
    let (plan, per_cpu, per_thread) = (run.plan, run.options.no_aggr, run.options.per_thread);
    let mut threads: Vec<ThreadName> = Vec::new();
    let mut index: HashMap<i32, usize> = HashMap::new();
    let mut index_of = |tid: i32| {
        *index.entry(tid).or_insert_with(|| {
            threads.push(ThreadName { comm: names.of(tid), tid });
            threads.len() - 1
        })
    };
    // The CPUs that have rows, also where nothing could be opened on them.
    let cpus: Vec<Option<u32>> =
        if per_cpu { plan.rows_of_cpus(run.session).into_iter().map(Some).collect() } else { vec![None] };
    let mut sums = RowSums::default();
    for (part, taken) in plan.parts.iter().zip(taken) {
        for (local, &event) in part.columns.iter().enumerate() {
            let refused_for = taken.counters.refusal(local).map(|refusal| refusal.kind);
            let mut add =
                |scope, reading| sums.add(RowSum { event, scope, reading, refused_for }, &plan.columns[event]);
            for row in &taken.snapshot.rows {
                let reading = row.readings.get(local).copied().unwrap_or(Reading::Refused);
                if reading == Reading::Elsewhere && per_cpu {
                    continue;
                }
                let scope = RowScope {
                    cpu: row.who.cpu.filter(|_| per_cpu),
                    thread: row.who.thread.filter(|_| per_thread).map(&mut index_of),
                    cgroup: row.who.cgroup.and_then(|local| part.cgroups.get(local).copied()),
                };
                add(scope, reading);
            }
            if refused_for.is_some() && !per_thread {
                // Where nothing at all could be opened there is no reading either. Threads have rows in any case.
                places(&cpus, &part.cgroups).into_iter().for_each(|scope| add(scope, Reading::Refused));
            }
        }
    }
    // `--for-each-cgroup` shows one cgroup after the other; everything else goes event by event.
    let cgroup_first = plan.parts.iter().any(|part| part.cgroups.len() > 1);
    let mut sums = sums.sums;
    pmux::order::sort_by_key(&mut sums, |sum| {
        let first = sum.scope.cgroup.filter(|_| cgroup_first);
        (first, sum.event, sum.scope.cpu, sum.scope.cgroup)
    });
    let mut rows: Vec<Row> = sums
        .into_iter()
        .map(|sum| {
            let value = value(sum.reading, sum.refused_for);
            Row { scope: sum.scope, event: sum.event, value, deviation_pct: None }
        })
        .collect();
    for (part, _) in plan.parts.iter().zip(taken).filter(|(_, taken)| !taken.counters.is_settled()) {
        part.columns.iter().for_each(|&event| doubt_zero(&mut rows, event));
    }
    if per_thread {
        sort_threads(&mut rows);
        if matches!(plan.target, TargetSpec::Cpus(_)) {
            // Of all threads of a machine, those that did nothing are many.
            rows.retain(|row| row.value.raw() != Some(0.0) && row.value != Value::NotCounted { enabled_ns: 0 });
        }
    }
    (rows, threads)
}

/// Where an event that was refused everywhere stands.
fn places(cpus: &[Option<u32>], cgroups: &[usize]) -> Vec<RowScope> {
    let cgroups: Vec<Option<usize>> =
        if cgroups.is_empty() { vec![None] } else { cgroups.iter().copied().map(Some).collect() };
    let cgroups = &cgroups;
    cpus.iter().flat_map(|&cpu| cgroups.iter().map(move |&cgroup| RowScope { cpu, thread: None, cgroup })).collect()
}

/// Where threads came and went that are not counted, that the others have counted nothing is no count of 0.
fn doubt_zero(rows: &mut [Row], event: usize) {
    if rows.iter().any(|row| row.event == event && row.value.raw().is_some_and(|raw| raw != 0.0)) {
        return;
    }
    for row in rows.iter_mut().filter(|row| row.event == event && row.value.raw().is_some()) {
        row.value = Value::NotCounted { enabled_ns: 0 };
    }
}

/// A reading as the report has it.
pub(super) fn value(reading: Reading, refused_for: Option<ReasonKind>) -> Value {
    let Some(count) = reading.count() else {
        return match (reading, refused_for) {
            // It can be counted here, only not now.
            (Reading::Failed(_), _) | (_, Some(ReasonKind::NoResource)) => Value::NotCounted { enabled_ns: 0 },
            _ => Value::NotSupported,
        };
    };
    let (enabled_ns, running_ns) = (count.enabled.0, count.running.0);
    match count.estimate() {
        Estimate::NotCounted => Value::NotCounted { enabled_ns },
        Estimate::Exact(value) | Estimate::Scaled { value, .. } => {
            Value::Counted { raw: value as f64, enabled_ns, running_ns }
        }
    }
}

/// The process tree as the formats want it. `whole` is what the command has counted as a whole.
pub(crate) fn tree(plan: &Plan, tree: &ProcessTree, whole: &[Row], command: &str, exit: Exit) -> ProcessTreeReport {
    let columns = &plan.parts[0].columns;
    let start = tree.processes.first().map_or(Nanos::ZERO, |root| root.started);
    let processes = tree
        .processes
        .iter()
        .enumerate()
        .map(|(index, process)| {
            let mut values = vec![Value::NotSupported; plan.columns.len()];
            for ((&column, count), total) in columns.iter().zip(&process.counts).zip(&tree.totals) {
                match (count, total) {
                    (Some(count), _) => {
                        // What it counted before it executed the program is no count of that.
                        let is_none = process.ended_by_exec && count.value == 0;
                        let own = if is_none { NOT_COUNTED } else { tree_value(Reading::Counted(*count)) };
                        values[column] = values[column].plus(own);
                    }
                    // It was counted, and no record says how much of it was this process's.
                    (None, Some(_)) => values[column] = values[column].plus(NOT_COUNTED),
                    (None, None) => {}
                }
            }
            Process {
                parent: process.parent,
                command: if index == 0 { command.to_owned() } else { process.command.clone() },
                pid: process.pid,
                threads: u32::try_from(process.threads).unwrap_or(u32::MAX),
                start_ns: process.started.since(start).0,
                wall_ns: process.wall(tree.read_at).0,
                exit: match (index, process.ended) {
                    (0, _) => exit,
                    (_, None) => Exit::Running,
                    _ => Exit::Unknown,
                },
                values,
            }
        })
        .collect();
    let mut unattributed = vec![Value::NotSupported; plan.columns.len()];
    for (&column, count) in columns.iter().zip(&tree.unattributed) {
        if let Some(count) = count.filter(|count| count.value > 0) {
            unattributed[column] = unattributed[column].plus(value(Reading::Counted(count), None));
        }
    }
    let mut totals = vec![Value::NotSupported; plan.columns.len()];
    for row in whole {
        totals[row.event] = row.value;
    }
    for (&column, count) in columns.iter().zip(&tree.totals) {
        // Read at the same moment as the processes.
        if let Some(count) = count {
            totals[column] = value(Reading::Counted(*count), None);
        }
    }
    ProcessTreeReport { processes, totals, unattributed }
}

const NOT_COUNTED: Value = Value::NotCounted { enabled_ns: 0 };

/// A process that exited before it ever ran with an event has counted 0: nothing happened in no time.
fn tree_value(reading: Reading) -> Value {
    match value(reading, None) {
        Value::NotCounted { enabled_ns: 0 } => Value::exact(0.0, 0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_of_some_threads_is_no_count_of_all() {
        let row = Row::all;
        let (none, some) = (Value::exact(0.0, 7), Value::exact(3.0, 7));
        let mut rows =
            [row(0, none), row(0, none), row(1, none), row(1, some), row(2, Value::NotSupported), row(3, none)];
        (0..3).for_each(|event| doubt_zero(&mut rows, event));
        let unknown = Value::NotCounted { enabled_ns: 0 };
        let values = rows.map(|row| row.value);
        assert_eq!(values, [unknown, unknown, none, some, Value::NotSupported, none]);
    }
}
