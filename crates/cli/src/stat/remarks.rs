//! What has to be said under the table: refusals, changes, and what was not covered.
//!
//! Read first: [`notes`].
//!
//! **Invariant:** every event that has no count has a reason here.

use super::assemble::Taken;
use super::plan::Plan;
use super::process_tree::ProcessTreeReport;
use super::report::{About, Note, Row, StatReport, Value};
use super::run::StatRun;
use crate::options::target::TargetSpec;
use crate::sampling::EventEndWatch;
use pmux::server_api::shared::client::Away;
use pmux::{
    Backend, Counters, CpuSource, Disagreements, Nanos, ProcessTree, Reading, Reporting, Session, SetCoverage, Snapshot,
};
use std::time::Duration;

/// Less than this is the time that switching takes, not a gap.
const SMALLEST_GAP: Nanos = Nanos(1_000_000);

impl Note {
    pub(crate) fn measurement(text: impl Into<String>) -> Self {
        Self { about: About::Measurement, text: text.into(), help: Vec::new() }
    }

    /// The same about an event.
    pub(super) fn of(self, event: usize) -> Self {
        Self { about: About::Event(event), ..self }
    }

    /// The same with what helps.
    pub(super) fn with_help(self, help: &[&str]) -> Self {
        Self { help: help.iter().map(|&help| help.to_owned()).collect(), ..self }
    }
}

/// What has to be said about each event, given the rows that it has, and the tasks whose events an exec has ended.
pub(crate) fn notes(run: &StatRun<'_>, taken: &[Taken<'_>], rows: &[Row], ends: &EventEndWatch) -> Vec<Note> {
    let (plan, session) = (run.plan, run.session);
    let mut notes = Vec::new();
    for (part, taken) in plan.parts.iter().zip(taken) {
        for (local, &event) in part.columns.iter().enumerate() {
            if let Some(regrouping) = taken.counters.regrouping(local) {
                notes.push(Note::measurement(regrouping));
            }
            if let Some(refusal) = taken.counters.refusal(local) {
                let help = match session.backend() {
                    // What keeps all events away is what can be helped.
                    Backend::Usage { why } if refusal.help.is_empty() => why.help.clone(),
                    _ => refusal.help.clone(),
                };
                notes.push(Note { help, ..Note::measurement(&refusal.summary).of(event) });
                continue;
            }
            let own: Vec<_> = rows.iter().filter(|row| row.event == event).collect();
            let has_count = own.is_empty() || own.iter().any(|row| row.value.raw().is_some());
            // Of what was not counted, only the reason is of interest.
            if let Some(adjustment) = taken.counters.adjustment(local).filter(|_| has_count) {
                notes.push(Note::measurement(adjustment).of(event));
            }
            let failed = |row: &pmux::RowReading| match row.readings.get(local) {
                Some(Reading::Failed(error)) => Some(error.to_string()),
                _ => None,
            };
            let failures: Vec<String> = taken.snapshot.rows.iter().filter_map(failed).collect();
            if failures.is_empty() {
                let lost = |note: Note| lost_to_exec(ends).map_or(note, |lost| lost.of(event));
                notes.extend(waiting(plan, session, event, rows, taken.counters).map(lost));
            }
            notes.extend(failures.into_iter().map(|text| Note::measurement(text).of(event)));
        }
    }
    if taken.iter().any(|taken| !taken.counters.is_settled()) {
        let text = "threads came and went faster than they could be listed: some may not be counted";
        let help = ["start the program under pmux stat, or count its cgroup (-a -G)"];
        notes.push(Note { about: About::Loss, ..Note::measurement(text).with_help(&help) });
    }
    notes.extend(disagreements(session.register_disagreements()).map(Note::measurement));
    notes
}

/// That the kernel has ended the events of tasks, where it has.
pub(crate) fn lost_to_exec(ends: &EventEndWatch) -> Option<Note> {
    ends.sentence("counting").map(|text| Note::measurement(text).with_help(&[EXEC_HELP]))
}

/// What helps where [`ended_by_exec`] is said.
pub(crate) const EXEC_HELP: &str = "start pmux as the user that the program runs as";

/// That the kernel has ended the events of a task, which ends `what_ended`.
pub(crate) fn ended_by_exec(what_ended: &str, task: &str) -> String {
    format!(
        "{what_ended} ended when {task} executed a set-user-id program, or one that this user may not read: the kernel ends the \
         events of such a task"
    )
}

/// That descendants of a command ran in user mode for longer than its events were on.
pub(crate) fn lost_to_descendants(rows: &[Row], user_ns: u64) -> Option<Note> {
    // Of the CPU time of an exit not all is counted, but that is in the kernel; the kernel may know the modes by its ticks only.
    const TICKS_NS: u64 = 20_000_000;
    let enabled = rows.iter().filter_map(|row| match row.value {
        Value::Counted { enabled_ns, .. } => Some(enabled_ns),
        _ => None,
    });
    let enabled = enabled.max()?;
    let missing = user_ns.saturating_sub(enabled);
    (missing > TICKS_NS.max(enabled / 10)).then(|| {
        let ms = |ns: u64| ns as f64 / 1e6;
        let text = format!(
            "{:.1} ms of the {:.1} ms that it ran in user mode were not counted: the kernel ends the events of a child that \
             executes a set-user-id program, or one that this user may not read",
            ms(missing),
            ms(user_ns)
        );
        Note::measurement(text)
    })
}

/// For how long something was not counted, and what has become of the service.
pub(crate) fn service_gap(session: &Session, gap: Duration) -> Option<Note> {
    service_was_away(session, gap).map(|text| Note { about: About::Loss, ..Note::measurement(text) })
}

/// The same in words, for other reports than these.
pub(crate) fn service_was_away(session: &Session, gap: Duration) -> Option<String> {
    let why = match session.service_away() {
        Some(refuses @ Away::Refuses(_)) => refuses.to_string(),
        _ => "was away".to_owned(),
    };
    (!gap.is_zero()).then(|| format!("not counted for {} s: the sharing service {why}", seconds(gap)))
}

/// That a command was not counted from its exec on.
pub(crate) fn begun_early(session: &Session, plan: &Plan) -> Option<Note> {
    (plan.target == TargetSpec::Command && session.counts_through_service_only()).then(|| {
        Note::measurement(
            "counted through the sharing service alone, which does not see the exec: what the command's process did just before \
             it is counted too",
        )
    })
}

/// That not all CPUs may be known.
pub(crate) fn unknown_cpus(session: &Session, plan: &Plan) -> Option<Note> {
    (plan.target == TargetSpec::Cpus(None) && session.cpu_source() == CpuSource::Affinity).then(|| {
        let cpus = session.online();
        let text =
            format!("counted on the CPUs {cpus}, on which pmux may run: without /sys and /proc no others are known");
        Note::measurement(text)
    })
}

/// So many digits that it is not 0.
fn seconds(time: Duration) -> String {
    let digits = if time.as_millis() >= 10 { 2 } else { 6 };
    format!("{:.digits$}", time.as_secs_f64())
}

/// Where the kernel has given out debug registers otherwise than our account of them says.
fn disagreements(Disagreements { refused, granted, inherited }: Disagreements) -> Option<String> {
    let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let by_others = (refused > 0).then(|| format!("{} another program held one", times(refused)));
    let more = (granted > 0).then(|| format!("{} there was one more than expected", times(granted)));
    let by_children = (inherited > 0).then(|| format!("{} a child may have inherited one", times(inherited)));
    let all: Vec<String> = by_others.into_iter().chain(by_children).chain(more).collect();
    (!all.is_empty()).then(|| format!("debug registers: the kernel and pmux's account differed; {}", all.join(", ")))
}

/// Why an event that was open has no count.
fn waiting(plan: &Plan, session: &Session, event: usize, rows: &[Row], counters: &Counters) -> Option<Note> {
    let mut own = rows.iter().filter(|row| row.event == event).map(|row| row.value);
    let first = own.next()?;
    // A client that was given the kernel's files counts all the same, and misses nothing.
    let away = session.service_away().filter(|_| !session.service_gap().is_zero());
    let note = match (own.fold(first, Value::plus), away) {
        (Value::NotCounted { enabled_ns: 0 }, Some(away)) => Note::measurement(format!("the sharing service {away}")),
        (Value::NotCounted { enabled_ns: 0 }, None) => Note::measurement(match &plan.target {
            TargetSpec::Command => "the command did not run while this was enabled",
            TargetSpec::Pids(_) | TargetSpec::Tids(_) if !counters.is_settled() => {
                "the threads that were found counted nothing, and others came and went"
            }
            TargetSpec::Pids(_) | TargetSpec::Tids(_) => "nothing of it ran meanwhile",
            TargetSpec::Cpus(_) if !plan.cgroups.is_empty() => "nothing ran in the cgroup meanwhile",
            TargetSpec::Cpus(_) => "it was not enabled on any CPU that was online",
        }),
        (Value::NotCounted { .. }, _) => {
            let text = "all counters that it can use were taken by other events all the time";
            Note::measurement(text).with_help(&[
                "count fewer events at once, or put fewer into one group",
                "as root, `sysctl kernel.nmi_watchdog=0` frees the counter that the watchdog holds",
            ])
        }
        (Value::Counted { .. } | Value::NotSupported, _) => return None,
    };
    Some(note.of(event))
}

/// Which CPUs were covered. All parts are on the same CPUs, so one of them speaks for all.
pub(crate) fn coverage(snapshots: &[Snapshot]) -> SetCoverage {
    let mut all = snapshots.iter().map(|snapshot| &snapshot.coverage);
    let mut coverage = all.clone().find(|coverage| !coverage.cpus.is_empty()).cloned().unwrap_or_default();
    coverage.refused = Vec::new();
    for refused in all.by_ref().flat_map(|coverage| &coverage.refused) {
        if !coverage.refused.contains(refused) {
            coverage.refused.push(refused.clone());
        }
    }
    coverage
}

/// Where a measurement of CPUs has gaps.
pub(crate) fn gaps(coverage: &SetCoverage) -> Vec<Note> {
    let mut notes = Vec::new();
    for cpu in coverage.cpus.iter().filter(|cpu| cpu.missed >= SMALLEST_GAP || cpu.gaps > 0) {
        let how = match (cpu.gaps, cpu.present) {
            (0, _) => "it came online late".to_owned(),
            (1, true) => "it was offline once, and is counted again".to_owned(),
            (times, true) => format!("it was offline {times} times, and is counted again"),
            (1, false) => "it went offline".to_owned(),
            (times, false) => format!("it went offline {times} times, and is offline now"),
        };
        let (covered, missed) = (cpu.covered.as_secs_f64(), cpu.missed.as_secs_f64());
        notes.push(Note::measurement(format!(
            "CPU {} was counted for {covered:.3} s of {:.3} s and missed for {missed:.3} s: {how}",
            cpu.cpu,
            coverage.span.as_secs_f64()
        )));
    }
    notes.extend(refused(coverage));
    notes
}

/// The same for one interval: what is new since `before`.
pub(crate) fn gaps_since(coverage: &SetCoverage, before: &SetCoverage) -> Vec<Note> {
    let mut notes = Vec::new();
    for cpu in &coverage.cpus {
        let earlier = before.cpus.iter().find(|earlier| earlier.cpu == cpu.cpu);
        let missed = cpu.missed.since(earlier.map_or(Nanos::ZERO, |cpu| cpu.missed));
        let went = cpu.gaps > earlier.map_or(0, |cpu| cpu.gaps);
        if missed < SMALLEST_GAP && !went {
            continue;
        }
        let how = if cpu.present { "it is counted again" } else { "it is offline" };
        let missed = missed.as_secs_f64();
        notes.push(Note::measurement(format!("CPU {} was missed for {missed:.3} s of this interval: {how}", cpu.cpu)));
    }
    notes.extend(refused(coverage).filter(|note| !refused(before).any(|earlier| earlier == *note)));
    notes
}

fn refused(coverage: &SetCoverage) -> impl Iterator<Item = Note> {
    let text = |(cpu, error): &(u32, String)| format!("CPU {cpu} is back, but is not counted again: {error}");
    coverage.refused.iter().map(text).map(Note::measurement)
}

/// What has to be said about a process tree.
pub(crate) fn of_tree(tree: &ProcessTree) -> Vec<Note> {
    let mut notes = Vec::new();
    let incomplete = tree.processes.iter().skip(1).filter(|process| !process.complete).count();
    if tree.reporting == Reporting::Never {
        let text = "this kernel does not report what processes have counted when they exit: the first row has the counts of \
                    those that have none";
        notes.push(Note::measurement(text).with_help(&[
            "Linux 5.13 to 6.17.11 and 6.18.0 are so: with 6.17.12, 6.18.1 or a later one each process is counted",
            "`pmux stat -p PID` counts one process while it runs; without --tree there are the same totals",
        ]));
    } else if incomplete > 0 {
        notes.push(Note::measurement(format!(
            "{incomplete} of {} processes could not report all of their counts; what is missing there is in the first row",
            tree.processes.len()
        )));
    }
    if tree.lost_records > 0 {
        let text = format!("{} records about processes were lost", tree.lost_records);
        let help = ["count fewer events", "as root, a larger kernel.perf_event_mlock_kb"];
        notes.push(Note::measurement(text).with_help(&help));
    }
    match tree.processes.iter().skip(1).filter(|process| process.ended.is_none()).count() {
        0 => {}
        1 => notes.push(Note::measurement(
            "1 process was still running: its counts so far are in the first row, because it reports when it exits",
        )),
        running => notes.push(Note::measurement(format!(
            "{running} processes were still running: their counts so far are in the first row, because they report when \
             they exit"
        ))),
    }
    let ended: Vec<_> = tree.processes.iter().skip(1).filter(|process| process.ended_by_exec).collect();
    if let Some(first) = ended.first() {
        let text = match ended.len() {
            1 => ended_by_exec("counting", &format!("{} ({})", first.command, first.pid)),
            2 => ended_by_exec("counting", &format!("{} ({}) and another process", first.command, first.pid)),
            more => ended_by_exec("counting", &format!("{} ({}) and {} others", first.command, first.pid, more - 1)),
        };
        notes.push(Note::measurement(text).with_help(&[EXEC_HELP]));
    }
    if tree.unattributed.iter().flatten().any(|count| count.value > 0) {
        let text = "some counts belong to processes whose start was not seen: they are in the total only";
        notes.push(Note::measurement(text));
    }
    notes
}

/// Events that have a total and no numbers of processes.
pub(crate) fn of_the_whole_only(tree: &ProcessTreeReport) -> Vec<Note> {
    let events = (0..tree.totals.len()).filter(|&event| tree.is_of_the_whole_only(event));
    let text = "known of the command as a whole, not of each process";
    events.map(|event| Note::measurement(text).of(event)).collect()
}

/// Takes out of an interval's report what an earlier one has said.
pub(crate) fn drop_repeated(report: &mut StatReport, said: &mut Vec<Note>) {
    report.notes.retain(|note| match note.about {
        About::Event(_) if said.contains(note) => false,
        About::Event(_) => {
            said.push(note.clone());
            true
        }
        About::Measurement | About::Loss => true,
    });
}
