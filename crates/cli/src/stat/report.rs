//! What a measurement found, as plain data: the one value that every format prints.
//!
//! Read first: [`StatReport`], then [`Row`] and [`Value`]. The process tree is in
//! [`super::process_tree`].
//!
//! **Invariant:** nothing here opens, reads or prints anything, and nothing here knows a
//! format. A count that was not taken has its own variant and is never the number 0.

use super::process_tree::ProcessTreeReport;
use crate::options::target::TargetSpec;

/// One complete result: a whole run, one interval, or the summary after intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StatReport {
    pub(crate) measured: TargetSpec,
    /// The command with its arguments, where there is one.
    pub(crate) command: String,
    pub(crate) period: ReportPeriod,
    /// The events, in the order of the command line.
    pub(crate) events: Vec<EventColumn>,
    /// The threads that [`RowScope::thread`] indexes.
    pub(crate) threads: Vec<ThreadName>,
    /// The control groups that [`RowScope::cgroup`] indexes. Empty: no cgroup field is printed.
    pub(crate) cgroups: Vec<String>,
    /// The counts, in printing order: event by event, within it CPU by CPU or thread by thread.
    pub(crate) rows: Vec<Row>,
    /// Wall time that the counts cover: the mean over runs, or the length of this interval.
    pub(crate) elapsed_ns: u64,
    /// Standard error of the mean of the wall time over several runs, in nanoseconds.
    pub(crate) elapsed_error_ns: Option<f64>,
    /// User time of the command and its children that were waited for.
    pub(crate) user_ns: Option<u64>,
    /// System time of the command and its children that were waited for.
    pub(crate) system_ns: Option<u64>,
    /// Number of runs that this is the mean of. 1 prints no deviation.
    pub(crate) runs: u32,
    /// Reasons, gaps and hints that belong under the table.
    pub(crate) notes: Vec<Note>,
    /// Whether all of what helps is shown to people (`-v`); otherwise it is only said that there is some.
    pub(crate) shows_help: bool,
    /// The processes of the command with their own counts, when asked for.
    pub(crate) tree: Option<ProcessTreeReport>,
    /// The regions of the command, when asked for: the one that took longest comes first.
    pub(crate) regions: Vec<RegionRow>,
}

/// What a region of the command has cost, in all its threads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RegionRow {
    /// Its name, as the command gave it.
    pub(crate) name: String,
    /// How often it was entered and left.
    pub(crate) calls: u64,
    /// The time in between, added up.
    pub(crate) elapsed_ns: u64,
    /// For each of [`StatReport::events`] what was counted.
    pub(crate) values: Vec<Value>,
}

impl StatReport {
    /// Returns the words after "Performance counter stats for", quotes included.
    pub(crate) fn title(&self) -> String {
        let ids = |ids: &[i32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match &self.measured {
            TargetSpec::Command => format!("'{}'", self.command),
            TargetSpec::Pids(pids) => format!("process id '{}'", ids(pids)),
            TargetSpec::Tids(tids) => format!("thread id '{}'", ids(tids)),
            TargetSpec::Cpus(None) => "'system wide'".to_owned(),
            TargetSpec::Cpus(Some(list)) => format!("'CPU(s) {list}'"),
        }
    }
}

/// Which stretch of time a report covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReportPeriod {
    #[default]
    Whole,
    /// One interval of `-I`.
    Interval {
        /// Time since the start of the measurement, at the end of this interval.
        at_ns: u64,
        /// 0 for the first interval; headers are repeated from time to time.
        number: u64,
    },
    /// The total that follows a series of intervals.
    Summary,
}

/// One event as the user asked for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventColumn {
    /// The name as it was written, modifiers included: `cycles:u`.
    pub(crate) name: String,
    /// The event's own name without modifiers, from which metrics are derived: `cycles`,
    /// `L1-dcache-load-misses`. Empty for events that take part in none.
    pub(crate) canonical: String,
    /// Unit of the scaled value, empty when it is a plain number.
    pub(crate) unit: String,
    /// Factor from the raw count to the unit, for example 1e-6 from nanoseconds to `msec`.
    pub(crate) scale: f64,
}

impl EventColumn {
    pub(crate) fn new(name: &str, canonical: &str) -> Self {
        Self { name: name.to_owned(), canonical: canonical.to_owned(), unit: String::new(), scale: 1.0 }
    }

    /// Whether it is the peak of something, which is not added up.
    pub(crate) fn is_peak(&self) -> bool {
        self.canonical == "max_rss"
    }

    /// Whether it is the time that the measurement took.
    pub(crate) fn is_wall_time(&self) -> bool {
        self.canonical == "duration_time"
    }

    pub(crate) fn with_unit(self, unit: &str, scale: f64) -> Self {
        Self { unit: unit.to_owned(), scale, ..self }
    }
}

/// A thread with the name it had when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadName {
    /// Its command name, at most 15 bytes from the kernel.
    pub(crate) comm: String,
    pub(crate) tid: i32,
}

/// Which CPU, thread or control group a row counts: all parts `None` is the sum over everything measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RowScope {
    /// One CPU (`-A`).
    pub(crate) cpu: Option<u32>,
    /// One thread (`--per-thread`), an index into [`StatReport::threads`]; the same index in
    /// every row of the thread, because metrics combine rows of equal `RowScope`.
    pub(crate) thread: Option<usize>,
    /// One control group (`-G`), an index into [`StatReport::cgroups`].
    pub(crate) cgroup: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) scope: RowScope,
    /// Which event, an index into [`StatReport::events`].
    pub(crate) event: usize,
    pub(crate) value: Value,
    /// Standard error of the mean over several runs, in percent of the mean.
    pub(crate) deviation_pct: Option<f64>,
}

#[cfg(test)]
impl Row {
    /// Makes a row for the sum over everything, without a deviation.
    pub(crate) fn all(event: usize, value: Value) -> Self {
        Self { scope: RowScope::default(), event, value, deviation_pct: None }
    }
}

/// A count, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// The event was counted for at least part of the time.
    Counted {
        /// The count, already extrapolated when `running_ns < enabled_ns`; the mean over
        /// runs; before [`EventColumn::scale`]. Exact up to 2^53.
        raw: f64,
        /// Time during which the event was enabled.
        enabled_ns: u64,
        /// Time during which it had a counter.
        running_ns: u64,
    },
    /// The event was open but never had a counter.
    NotCounted {
        /// Time during which it was enabled and waited.
        enabled_ns: u64,
    },
    /// The event could not be opened here.
    NotSupported,
}

impl Value {
    /// Makes a count that had its counter all the time.
    pub(crate) const fn exact(raw: f64, ns: u64) -> Self {
        Self::Counted { raw, enabled_ns: ns, running_ns: ns }
    }

    pub(crate) const fn raw(self) -> Option<f64> {
        match self {
            Self::Counted { raw, .. } => Some(raw),
            Self::NotCounted { .. } | Self::NotSupported => None,
        }
    }

    /// Returns the words printed in place of a number.
    pub(crate) const fn absent_text(self) -> &'static str {
        match self {
            Self::Counted { .. } => "",
            Self::NotCounted { .. } => "<not counted>",
            Self::NotSupported => "<not supported>",
        }
    }

    pub(crate) const fn running_ns(self) -> u64 {
        match self {
            Self::Counted { running_ns, .. } => running_ns,
            Self::NotCounted { .. } | Self::NotSupported => 0,
        }
    }

    /// Returns the share of the enabled time on a counter, in percent. An event that was
    /// never enabled has missed nothing: 100.
    pub(crate) fn running_pct(self) -> f64 {
        let (enabled, running) = match self {
            Self::Counted { enabled_ns, running_ns, .. } => (enabled_ns, running_ns),
            Self::NotCounted { enabled_ns } => (enabled_ns, 0),
            Self::NotSupported => (0, 0),
        };
        if enabled == running || enabled == 0 { 100.0 } else { 100.0 * running as f64 / enabled as f64 }
    }

    /// Returns whether it is a count that had a counter for a part of the time only.
    pub(crate) fn is_estimate(self) -> bool {
        self.raw().is_some() && self.running_pct() < 100.0
    }

    /// Returns what is known where the kernel has ended the event before its task: a 0, or a count of no longer time than this, is none.
    pub(crate) fn until_its_end(self, ns: u64) -> Self {
        match self {
            Self::Counted { raw, enabled_ns, .. } if raw == 0.0 || enabled_ns <= ns => Self::NotCounted { enabled_ns },
            value => value,
        }
    }

    /// Returns the sum of two values of the same event. A count and no count make a count:
    /// the one that is missing is reported in its own row.
    pub(crate) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Counted { raw, enabled_ns, running_ns },
                Self::Counted { raw: raw2, enabled_ns: enabled2, running_ns: running2 },
            ) => Self::Counted {
                raw: raw + raw2,
                enabled_ns: enabled_ns.saturating_add(enabled2),
                running_ns: running_ns.saturating_add(running2),
            },
            (counted @ Self::Counted { .. }, _) | (_, counted @ Self::Counted { .. }) => counted,
            (Self::NotCounted { enabled_ns: a }, Self::NotCounted { enabled_ns: b }) => {
                Self::NotCounted { enabled_ns: a.saturating_add(b) }
            }
            (Self::NotSupported, other) | (other, Self::NotSupported) => other,
        }
    }
}

/// A sentence under the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) about: About,
    /// One sentence without a final full stop.
    pub(crate) text: String,
    /// What would help: ways to choose from; may be empty.
    pub(crate) help: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// One event, an index into [`StatReport::events`]. Equal notes are printed once for all
    /// their events.
    Event(usize),
    Measurement,
    /// What the whole measurement lacks: the numbers say nothing of it, so that programs are told, too.
    Loss,
}

/// Puts the rows of each event in the order in which threads are shown: largest count first.
/// The sort is stable, and rows without a count come last.
pub(crate) fn sort_threads(rows: &mut [Row]) {
    pmux::order::sort_by(rows, |a, b| {
        let key = |row: &Row| row.value.raw().unwrap_or(-1.0);
        a.event.cmp(&b.event).then(key(b).total_cmp(&key(a)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::sample;

    #[test]
    fn titles_name_the_subject() {
        let title = |measured| StatReport { measured, ..sample::counted(&[]) }.title();
        assert_eq!(title(TargetSpec::Command), "'ls -lR'");
        assert_eq!(title(TargetSpec::Pids(vec![1, 22])), "process id '1,22'");
        assert_eq!(title(TargetSpec::Tids(vec![7])), "thread id '7'");
        assert_eq!(title(TargetSpec::Cpus(Some("0-3".to_owned()))), "'CPU(s) 0-3'");
        assert_eq!(title(TargetSpec::Cpus(None)), "'system wide'");
    }

    #[test]
    fn share_is_of_the_enabled_time() {
        let value = Value::Counted { raw: 5.0, enabled_ns: 200, running_ns: 50 };
        assert!((value.running_pct() - 25.0).abs() < 1e-9);
        assert!((Value::NotSupported.running_pct() - 100.0).abs() < 1e-9);
        let waited = Value::NotCounted { enabled_ns: 9 };
        assert!(waited.running_pct().abs() < 1e-9);
    }

    #[test]
    fn a_missing_part_does_not_hide_a_count() {
        let count = Value::exact(3.0, 10);
        assert_eq!(count.plus(Value::NotSupported), count);
        assert_eq!(Value::NotCounted { enabled_ns: 4 }.plus(count), count);
        assert_eq!(count.plus(count), Value::exact(6.0, 20));
        assert_eq!(Value::NotSupported.plus(Value::NotSupported), Value::NotSupported);
        let waited = Value::NotCounted { enabled_ns: 4 };
        assert_eq!(waited.plus(waited), Value::NotCounted { enabled_ns: 8 });
    }

    #[test]
    fn threads_are_sorted_by_count_within_an_event() {
        let mut rows = vec![
            Row::all(1, Value::exact(1.0, 1)),
            Row::all(0, Value::NotSupported),
            Row::all(0, Value::exact(2.0, 1)),
            Row::all(0, Value::exact(9.0, 1)),
        ];
        sort_threads(&mut rows);
        let order: Vec<_> = rows.iter().map(|r| (r.event, r.value.raw())).collect();
        assert_eq!(order, [(0, Some(9.0)), (0, Some(2.0)), (0, None), (1, Some(1.0))]);
    }
}
