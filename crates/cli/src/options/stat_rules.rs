//! What the options of `pmux stat` mean together: which combinations make no sense, what is
//! measured, how it is printed, and what deserves a warning.
//!
//! **Invariant:** every complaint names the options and says what to do instead. Nothing is
//! overridden in silence.

use super::control::check_delay;
use super::filters::EventFilters;
use super::refuse_first;
use super::stat::{MuxChoice, StatOptions};
use super::target::TargetSpec;
use crate::stat::format::{Columns, Layout};
use pmux::Slice;
use std::collections::HashSet;

/// Intervals below this cost a noticeable share of a CPU.
const INTERVAL_COSTLY_MS: u64 = 10;
/// The shortest `--timeout`: below it the command has hardly started.
const TIMEOUT_MIN_MS: u64 = 10;

impl StatOptions {
    /// Checks the combination of options.
    ///
    /// # Errors
    /// A sentence for the user, about the first thing that is wrong: times, then target,
    /// then what is shown, then how it is printed.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.shared.check()?;
        self.filters.check()?;
        self.check_times()?;
        self.check_turns()?;
        self.check_target()?;
        self.check_rows()?;
        self.check_tree()?;
        self.check_regions()?;
        self.check_output()
    }

    fn check_times(&self) -> Result<(), String> {
        check_delay(self.delay, self.control.as_ref())?;
        let interval = self.interval_ms.is_some();
        refuse_first(&[
            (self.interval_ms == Some(0), "-I needs an interval of at least 1 ms"),
            (self.interval_count == Some(0), "--interval-count needs at least 1 interval"),
            (self.interval_count.is_some() && !interval, "--interval-count counts intervals: give -I as well"),
            (self.timeout_ms.is_some_and(|ms| ms < TIMEOUT_MIN_MS), "--timeout needs at least 10 ms"),
            (
                self.timeout_ms.is_some() && interval,
                "--timeout and -I cannot be combined: use --interval-count to stop",
            ),
            (
                self.events.iter().any(|text| text.trim().is_empty()),
                "-e names no event: `pmux list` shows what there is",
            ),
        ])
    }

    fn check_target(&self) -> Result<(), String> {
        let given = [
            ("-p", !self.pid.is_empty()),
            ("-t", !self.tid.is_empty()),
            ("-a", self.all_cpus),
            ("-C", self.cpu.is_some()),
        ];
        let tasks = given[..2].iter().filter(|(_, given)| *given);
        let names: Vec<&str> = given.iter().filter(|g| g.1).map(|g| g.0).collect();
        // -a with -C counts the CPUs of -C, as it always has.
        if tasks.count() > 0 && names.len() > 1 {
            return Err(format!("{} name different things to count: give one of them", names.join(" and ")));
        }
        let (repeat, runs) = (self.repeat.is_some(), self.repeat.unwrap_or(1));
        refuse_first(&[
            (repeat && self.command.is_empty(), "-r repeats a command: give a COMMAND"),
            (
                repeat && self.interval_ms.is_some(),
                "-r and -I cannot be combined: runs are averaged, intervals are not",
            ),
            (runs != 1 && self.metric_only, "--metric-only cannot be combined with -r"),
        ])
    }

    fn check_turns(&self) -> Result<(), String> {
        let is_alone = self.mux_interval_ms.is_some() && self.mux != MuxChoice::Engine;
        refuse_first(&[(is_alone, "--mux-interval is the length of pmux's own turns: give --mux=engine as well")])?;
        let why = || format!("--mux-interval takes 1 to {} milliseconds", Slice::LONGEST_MS);
        self.slice().map(drop).ok_or_else(why)
    }

    /// Returns the length of a turn; `None` where it is out of range.
    pub(crate) fn slice(&self) -> Option<Slice> {
        self.mux_interval_ms.map_or(Some(Slice::default()), Slice::from_millis)
    }

    fn check_rows(&self) -> Result<(), String> {
        let target = self.target();
        let is_command = target == TargetSpec::Command;
        let by_cpu = matches!(target, TargetSpec::Cpus(_));
        let (one, each) = (self.cgroup.is_some(), !self.for_each_cgroup.is_empty());
        refuse_first(&[
            (self.no_aggr && !by_cpu, "-A shows CPUs: give -a or -C as well"),
            (one && !by_cpu, "-G counts on CPUs: give -a or -C as well"),
            (each && !by_cpu, "--for-each-cgroup counts on CPUs: give -a or -C as well"),
            (one && each, "-G and --for-each-cgroup cannot be combined"),
            (one && self.events.is_empty(), "-G names a group for each event: give the events with -e as well"),
            (self.for_each_cgroup.iter().any(String::is_empty), "--for-each-cgroup has an empty name in its list"),
            (self.per_thread && self.no_aggr, "--per-thread and -A cannot be combined"),
            (self.per_thread && is_command, "--per-thread needs -p, -t or -a; for the threads of a command use --tree"),
            (self.per_thread && (one || each), "--per-thread cannot be combined with control groups"),
        ])
    }

    fn check_tree(&self) -> Result<(), String> {
        if !self.tree {
            return Ok(());
        }
        let with = |name: &str| format!("--tree cannot be combined with {name}");
        refuse_first(&[
            (self.target() != TargetSpec::Command, "--tree follows the processes of a command: give a COMMAND alone"),
            (self.no_inherit, &with("-i")),
            (self.repeat.is_some_and(|runs| runs != 1), &with("-r")),
            (self.interval_ms.is_some(), &with("-I")),
            (self.null, &with("-n")),
            (self.metric_only, &with("--metric-only")),
            (
                self.mux == MuxChoice::Engine,
                &with(
                    "--mux=engine: a process that exits reports for how long its events were on, and not how long they waited for \
                     their turns, so its counts could not be scaled; --mux=kernel can",
                ),
            ),
            (self.separator.is_some(), "--tree has no form with separated fields: use -j"),
        ])
    }

    fn check_regions(&self) -> Result<(), String> {
        if !self.regions {
            return Ok(());
        }
        let with = |name: &str| format!("--regions cannot be combined with {name}");
        refuse_first(&[
            (self.target() != TargetSpec::Command, "--regions are those of a command: give a COMMAND alone"),
            (self.no_inherit, &with("-i")),
            (self.repeat.is_some_and(|runs| runs != 1), &with("-r")),
            (self.interval_ms.is_some(), &with("-I")),
            (
                self.delay.is_some() || self.control.is_some(),
                &with("-D and --control: regions count from the beginning"),
            ),
            (self.null, &with("-n")),
            (self.metric_only, &with("--metric-only")),
            (self.filters != EventFilters::default(), &with("--filter")),
            (
                self.mux == MuxChoice::Engine,
                &with("--mux=engine: threads that enter regions open events by themselves"),
            ),
        ])
    }

    fn check_output(&self) -> Result<(), String> {
        let separated = self.separator.is_some();
        refuse_first(&[
            (self.json && separated, "-j and -x cannot be combined"),
            (self.big_num && separated, "-B is for people and -x for programs: give one of them"),
            (self.output.is_some() && self.log_fd.is_some(), "-o and --log-fd cannot be combined"),
            (self.append && self.output.is_none(), "--append appends to a file: give -o as well"),
        ])
    }

    /// Returns what is measured; what is no command is measured while a command runs, or until Ctrl-C. Without a command and a target
    /// that is the whole machine.
    pub(crate) fn target(&self) -> TargetSpec {
        if !self.pid.is_empty() {
            TargetSpec::Pids(each_once(&self.pid))
        } else if !self.tid.is_empty() {
            TargetSpec::Tids(each_once(&self.tid))
        } else if self.command.is_empty() || self.all_cpus || self.cpu.is_some() {
            TargetSpec::Cpus(self.cpu.clone())
        } else {
            TargetSpec::Command
        }
    }

    /// Returns how the report is printed.
    pub(crate) fn format(&self) -> (Layout, Columns) {
        let layout = match &self.separator {
            Some(separator) if separator == "\\t" => Layout::Csv("\t".to_owned()),
            Some(separator) => Layout::Csv(separator.clone()),
            None if self.json => Layout::Json,
            None => Layout::Table,
        };
        let columns = if self.metric_only { Columns::MetricsOnly } else { Columns::All };
        (layout, columns)
    }

    /// Returns the control groups of `-G` for the given number of events, `None` where an
    /// event is not bound to one. A single name is for all events.
    ///
    /// # Errors
    /// A sentence for the user: more names than events.
    pub(crate) fn cgroup_of_events(&self, events: usize) -> Result<Vec<Option<String>>, String> {
        let Some(list) = &self.cgroup else {
            return Ok(vec![None; events]);
        };
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let mut names: Vec<Option<String>> = list.split(',').map(name).collect();
        if names.len() == 1 {
            return Ok(vec![name(list); events]);
        }
        if names.len() > events {
            return Err(format!("-G names {} groups for {events} events", names.len()));
        }
        names.resize(events, None);
        Ok(names)
    }

    /// Returns what works and may not be what was meant, in a fixed order.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(ms) = self.interval_ms.filter(|&ms| ms < INTERVAL_COSTLY_MS) {
            warnings.push(format!("an interval of {ms} ms: reading the counters may disturb what is measured"));
        }
        if self.summary && self.interval_ms.is_none() {
            warnings.push("--summary has no effect without -I".to_owned());
        }
        if self.null && !(self.events.is_empty() && self.detailed == 0) {
            warnings.push("-n counts nothing: -e and -d have no effect".to_owned());
        }
        warnings
    }
}

/// Returns the ids in their order, each once: a thread that is named twice is counted once.
fn each_once(ids: &[i32]) -> Vec<i32> {
    let mut seen = HashSet::new();
    ids.iter().copied().filter(|&id| seen.insert(id)).collect()
}
