//! A measurement under way, and the reports that are made of it.
//!
//! Read first: [`Live::interval`] and [`Live::end`].
//!
//! **Invariant:** nothing is waited for here.

use super::assemble::{self, Taken};
use super::mux;
use super::names::Names;
use super::process_tree::Exit;
use super::regions;
use super::remarks;
use super::report::{Note, ReportPeriod, Row, StatReport, Value};
use super::run::StatRun;
use super::windows;
use crate::failure::{Failure, failure};
use crate::options::control::Delay;
use crate::options::target::TargetSpec;
use crate::sampling::EventEndWatch;
use pmux::units::nanos;
use pmux::{Counters, ExitedChild, RegionTable, Running, Snapshot};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// The end of the last interval is not worth a report of its own if it is shorter than this and nothing happened.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// A command whose events were on for less than this and then ended by an exec has run no instruction with them: events that the
/// exec enables it ends 9 to 17 us later (Linux 6.18).
const EXEC_NS: u64 = 100_000;

/// A measurement under way.
pub(crate) struct Live {
    /// The counters of each part of the plan.
    pub(crate) counters: Vec<Counters>,
    /// The command, where there is one.
    pub(crate) child: Option<Running>,
    /// When the command was let go, or counting began; with `-D` the later of the two.
    pub(crate) started: Instant,
    /// Whether counting has begun.
    pub(crate) counting: bool,
    /// How the command ended, and how long after [`Live::started`].
    pub(crate) ended: Option<(Duration, ExitedChild)>,
    /// Tells of tasks whose events an exec has ended.
    pub(crate) ends: EventEndWatch,
    /// Whether that was said.
    pub(super) ends_reported: bool,
    /// The signal that asked for the end.
    pub(crate) signal: Option<i32>,
    /// Whether `--timeout` has ended it.
    pub(crate) timed_out: bool,
    /// Whether all intervals that were asked for are printed.
    pub(crate) silent: bool,
    /// How many intervals were printed.
    pub(crate) intervals: u64,
    /// What was read at the end of the last interval, or before it began, and when that was.
    pub(super) last: Vec<Snapshot>,
    pub(super) last_at: Duration,
    pub(super) reported: Vec<Note>,
    /// For how long the service had been away when it began, and when the last interval ended.
    pub(super) gaps: (Duration, Duration),
    pub(super) names: Names,
    /// What the regions of the command have cost, where that is asked for.
    pub(crate) regions: Option<RegionTable>,
}

impl Live {
    fn read(&mut self, run: &StatRun<'_>) -> Vec<Snapshot> {
        let snapshots: Vec<_> = self.counters.iter().map(Counters::read).collect();
        if run.options.per_thread {
            snapshots.iter().for_each(|snapshot| self.names.learn(snapshot));
        }
        snapshots
    }

    /// Ends an interval.
    pub(crate) fn interval(&mut self, run: &StatRun<'_>) -> StatReport {
        let now = self.read(run);
        let at = self.started.elapsed();
        self.since_last(run, now, at)
    }

    fn since_last(&mut self, run: &StatRun<'_>, now: Vec<Snapshot>, at: Duration) -> StatReport {
        let since = run.plan.parts.iter().zip(now.iter().zip(&self.last)).map(|(part, (now, last))| {
            let mut since = now.since(last);
            for (local, &event) in part.columns.iter().enumerate() {
                if run.plan.columns[event].is_peak() {
                    // A peak has no difference.
                    for (row, now) in since.rows.iter_mut().zip(&now.rows) {
                        row.readings[local] = now.readings[local];
                    }
                }
            }
            since
        });
        let since = since.collect();
        let mut report = self.report(run, since, at - self.last_at);
        report.period = ReportPeriod::Interval { at_ns: nanos(at), number: self.intervals };
        remarks::drop_repeated(&mut report, &mut self.reported);
        report.notes.extend(remarks::gaps_since(&remarks::coverage(&now), &remarks::coverage(&self.last)));
        let gap = run.session.service_gap();
        report.notes.extend(remarks::service_gap(run.session, gap.saturating_sub(self.gaps.1)));
        self.gaps.1 = gap;
        report.notes.extend(self.lost_to_exec());
        self.last = now;
        self.last_at = at;
        self.intervals += 1;
        report
    }

    /// Makes a report of readings that cover `elapsed`. What is said of CPUs that came and went is up to the caller.
    fn report(&self, run: &StatRun<'_>, snapshots: Vec<Snapshot>, elapsed: Duration) -> StatReport {
        let taken: Vec<_> =
            self.counters.iter().zip(snapshots).map(|(counters, snapshot)| Taken { counters, snapshot }).collect();
        let (mut rows, threads) = assemble::rows(run, &self.names, &taken);
        let is_wall_time = |row: &&mut Row| run.plan.columns[row.event].is_wall_time() && row.value.raw().is_some();
        for row in rows.iter_mut().filter(is_wall_time) {
            // The same time as the one under the table.
            row.value = Value::exact(nanos(elapsed) as f64, nanos(elapsed));
        }
        if !self.ends.ended().is_empty() {
            let at_least = if run.plan.target == TargetSpec::Command { EXEC_NS } else { 0 };
            rows.iter_mut().for_each(|row| row.value = row.value.until_its_end(at_least));
        }
        let mut events = run.plan.columns.clone();
        for (part, taken) in run.plan.parts.iter().zip(&taken) {
            for (local, (&column, event)) in part.columns.iter().zip(taken.counters.events()).enumerate() {
                // What could only be counted in part says so in its name.
                if taken.counters.adjustment(local).is_some() && taken.counters.refusal(local).is_none() {
                    events[column].name.clone_from(&event.name);
                }
            }
        }
        StatReport {
            shows_help: run.options.verbose > 0,
            measured: run.plan.target.clone(),
            command: run.options.command.join(OsStr::new(" ")).to_string_lossy().into_owned(),
            events,
            threads,
            cgroups: run.plan.cgroups.clone(),
            // What was never switched on needs one reason, not one for each event.
            notes: remarks::notes(run, &taken, if self.counting { &rows } else { &[] }, &self.ends),
            rows,
            elapsed_ns: nanos(elapsed),
            runs: 1,
            ..StatReport::default()
        }
    }

    /// Reads for the last time: a report of the whole, or of what came after the last interval; and one of the whole after intervals,
    /// where that was asked for.
    pub(crate) fn end(&mut self, run: &StatRun<'_>) -> Result<(Option<StatReport>, Option<StatReport>), Failure> {
        let command = run.plan.target == TargetSpec::Command;
        let tree = if run.options.tree { self.counters[0].tree().map_err(|error| failure(&error))? } else { None };
        let snapshots = self.read(run);
        let elapsed = match &self.ended {
            // Its counts end when it does.
            Some((after, _)) if command => *after,
            _ => self.started.elapsed(),
        };
        let mut whole = self.report(run, snapshots.clone(), elapsed);
        whole.notes.extend(remarks::gaps(&remarks::coverage(&snapshots)));
        if let Some((_, exited)) = self.ended.as_ref().filter(|_| command) {
            whole.user_ns = Some(nanos(exited.usage.user));
            whole.system_ns = Some(nanos(exited.usage.system));
            whole.notes.extend(windows::cut_short(&whole.events, &whole.rows));
        }
        if let (Some(tree), Some((_, exited))) = (tree, &self.ended) {
            let exit = match (exited.status.code(), exited.status.signal()) {
                (Some(code), _) => Exit::Code(code),
                (_, Some(signal)) => Exit::Signal(signal),
                _ => Exit::Unknown,
            };
            let mut drawn = assemble::tree(run.plan, &tree, &whole.rows, &whole.command, exit);
            if !self.counting {
                let values = drawn.processes.iter_mut().flat_map(|process| &mut process.values);
                let open = values.filter(|value| **value != Value::NotSupported);
                open.for_each(|value| *value = Value::NotCounted { enabled_ns: 0 });
            }
            whole.notes.extend(remarks::of_tree(&tree));
            whole.notes.extend(remarks::of_the_whole_only(&drawn));
            whole.tree = Some(drawn);
        }
        if let Some(table) = &self.regions {
            regions::add(&mut whole, run.plan, &table.read());
        }
        let mut closing = self.closing(run);
        if whole.rows.iter().any(|row| row.value.raw().is_some()) {
            closing.extend(self.lost_to_exec());
            let whole_life = run.options.delay.is_none()
                && run.options.control.is_none()
                && !run.options.no_inherit
                && !run.options.per_thread;
            if let (Some(user_ns), true, []) = (whole.user_ns, whole_life, self.ends.ended()) {
                closing.extend(remarks::lost_to_descendants(&whole.rows, user_ns));
            }
        }
        if run.options.interval_ms.is_none() {
            whole.notes.extend(closing);
            return Ok((Some(whole), None));
        }
        let last = if self.silent { None } else { self.rest(run, snapshots, elapsed, closing.clone()) };
        whole.notes.extend(closing.into_iter().filter(|_| last.is_none()));
        whole.period = ReportPeriod::Summary;
        Ok((last, Some(whole).filter(|_| run.options.summary)))
    }

    /// What came after the last interval; `None` where that is nothing.
    fn rest(
        &mut self,
        run: &StatRun<'_>,
        now: Vec<Snapshot>,
        elapsed: Duration,
        closing: Vec<Note>,
    ) -> Option<StatReport> {
        let short = elapsed.saturating_sub(self.last_at) < SHORTEST_REST && self.intervals > 0;
        let mut report = self.since_last(run, now, elapsed.max(self.last_at));
        let nothing = report.rows.iter().all(|row| row.value.raw().unwrap_or_default() == 0.0);
        report.notes.extend(closing);
        (!(short && nothing && report.notes.is_empty())).then_some(report)
    }

    /// That an exec has ended the events of a task, once.
    fn lost_to_exec(&mut self) -> Option<Note> {
        let note = remarks::lost_to_exec(&self.ends)?;
        (!std::mem::replace(&mut self.ends_reported, true)).then_some(note)
    }

    /// What has to be said of how it ended.
    fn closing(&self, run: &StatRun<'_>) -> Vec<Note> {
        let killed_by = self.ended.as_ref().and_then(|(_, exited)| exited.status.signal());
        let killed = match (run.options.timeout_ms.filter(|_| self.timed_out), killed_by) {
            (Some(ms), Some(_)) => Some(format!("the command was ended after {ms} ms, as --timeout asks")),
            (_, Some(signal)) => Some(format!("the command was killed by signal {signal}")),
            _ => None,
        };
        let never = match run.options.delay.filter(|_| !self.counting) {
            Some(_) if run.options.control.is_some() => {
                Some("no `enable` came through --control: nothing was counted".to_owned())
            }
            Some(Delay::Ms(ms)) => {
                Some(format!("the end came before the delay of {ms} ms was over: nothing was counted"))
            }
            Some(Delay::UntilEnabled) | None => None,
        };
        let mut notes: Vec<Note> = killed.into_iter().chain(never).map(Note::measurement).collect();
        notes.extend(remarks::unknown_cpus(run.session, run.plan));
        notes.extend(mux::contention(run.plan, &self.counters));
        notes.extend(remarks::begun_early(run.session, run.plan));
        notes.extend(remarks::service_gap(run.session, run.session.service_gap().saturating_sub(self.gaps.0)));
        notes
    }
}
