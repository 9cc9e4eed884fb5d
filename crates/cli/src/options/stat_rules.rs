//! What the options of `pmux stat` mean together: which combinations make no sense, what is
//! measured, how it is printed, and what deserves a warning.
//!
//! **Invariant:** every complaint names the options and says what to do instead. Nothing is
//! overridden in silence.

use super::stat::{MuxChoice, StatOptions};
use crate::stat::format::{Columns, Layout};
use pmux::Slice;
use std::collections::HashSet;
use std::ffi::OsString;

/// Intervals below this cost a noticeable share of a CPU.
const INTERVAL_COSTLY_MS: u64 = 10;
/// The shortest `--timeout`: below it the command has hardly started.
const TIMEOUT_MIN_MS: u64 = 10;

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatTarget {
    /// A command and, unless `-i` is given, its children.
    Command(Vec<OsString>),
    /// Processes, while `during` runs or until Ctrl-C.
    Pids {
        /// Process ids.
        pids: Vec<i32>,
        /// The command that sets the time.
        during: Option<Vec<OsString>>,
    },
    /// Threads, while `during` runs or until Ctrl-C.
    Tids {
        /// Thread ids.
        tids: Vec<i32>,
        /// The command that sets the time.
        during: Option<Vec<OsString>>,
    },
    /// CPUs, while `during` runs or until Ctrl-C.
    Cpus {
        /// The list of `-C`; `None` for every CPU.
        list: Option<String>,
        /// The command that sets the time.
        during: Option<Vec<OsString>>,
    },
}

/// How the report is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatFormat {
    /// The layout.
    pub(crate) layout: Layout,
    /// Which numbers.
    pub(crate) columns: Columns,
}

/// Something that works and may not be what was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warning {
    /// The interval is so short that measuring disturbs.
    ShortInterval(u64),
    /// `--summary` has no effect without `-I`.
    SummaryWithoutInterval,
    /// `-n` counts none of the events that are named.
    EventsNotCounted,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ShortInterval(ms) => {
                write!(f, "an interval of {ms} ms: reading the counters may disturb what is measured")
            }
            Self::SummaryWithoutInterval => {
                write!(f, "--summary has no effect without -I")
            }
            Self::EventsNotCounted => f.write_str("-n counts nothing: -e and -d have no effect"),
        }
    }
}

impl StatOptions {
    /// Checks the combination of options.
    ///
    /// # Errors
    ///
    /// A sentence for the user, about the first thing that is wrong: times, then target,
    /// then what is shown, then how it is printed.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_times()?;
        self.check_events()?;
        self.check_turns()?;
        self.check_target()?;
        self.check_rows()?;
        self.check_tree()?;
        self.check_output()
    }

    fn check_times(&self) -> Result<(), String> {
        let interval = self.interval_ms.is_some();
        if self.interval_ms == Some(0) {
            return refuse("-I needs an interval of at least 1 ms");
        }
        if self.interval_count == Some(0) {
            return refuse("--interval-count needs at least 1 interval");
        }
        if self.interval_count.is_some() && !interval {
            return refuse("--interval-count counts intervals: give -I as well");
        }
        if self.timeout_ms.is_some_and(|ms| ms < TIMEOUT_MIN_MS) {
            return refuse("--timeout needs at least 10 ms");
        }
        if self.timeout_ms.is_some() && interval {
            return refuse("--timeout and -I cannot be combined: use --interval-count to stop");
        }
        match self.delay_ms {
            Some(-1) => refuse(
                "-D -1 starts with the events off and waits for somebody to switch them on; \
                 pmux has no control channel for that yet: give a delay of 0 ms or more",
            ),
            Some(ms) if ms < 0 => refuse("-D needs a delay of 0 ms or more"),
            _ => Ok(()),
        }
    }

    fn check_events(&self) -> Result<(), String> {
        if self.events.iter().any(|text| text.trim().is_empty()) {
            return refuse("-e names no event: `pmux list` shows what there is");
        }
        Ok(())
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
            return refuse(&format!("{} name different things to count: give one of them", names.join(" and ")));
        }
        if let Some(runs) = self.repeat {
            if self.command.is_empty() {
                return refuse("-r repeats a command: give a COMMAND");
            }
            if self.interval_ms.is_some() {
                return refuse("-r and -I cannot be combined: a mean over runs has no single moment");
            }
            if self.metric_only && runs != 1 {
                return refuse("--metric-only cannot be combined with -r");
            }
        }
        Ok(())
    }

    fn check_turns(&self) -> Result<(), String> {
        if self.mux_interval_ms.is_some() && self.mux != MuxChoice::Engine {
            return refuse("--mux-interval is the length of pmux's own turns: give --mux=engine as well");
        }
        match self.slice() {
            Some(_) => Ok(()),
            None => refuse(&format!("--mux-interval takes 1 to {} milliseconds", Slice::LONGEST_MS)),
        }
    }

    /// Returns the length of a turn; `None` where it is out of range.
    pub(crate) fn slice(&self) -> Option<Slice> {
        self.mux_interval_ms.map_or(Some(Slice::default()), Slice::from_millis)
    }

    fn check_rows(&self) -> Result<(), String> {
        let by_cpu =
            !matches!(self.target(), StatTarget::Command(_) | StatTarget::Pids { .. } | StatTarget::Tids { .. });
        let by_cpu_only = [
            ("-A shows CPUs", self.no_aggr),
            ("-G counts on CPUs", self.cgroup.is_some()),
            ("--for-each-cgroup counts on CPUs", !self.for_each_cgroup.is_empty()),
        ];
        for (what, given) in by_cpu_only {
            if given && !by_cpu {
                return refuse(&format!("{what}: give -a or -C as well"));
            }
        }
        if self.cgroup.is_some() && !self.for_each_cgroup.is_empty() {
            return refuse("-G and --for-each-cgroup cannot be combined");
        }
        if self.cgroup.is_some() && self.events.is_empty() {
            return refuse("-G names a group for each event: give the events with -e as well");
        }
        if self.for_each_cgroup.iter().any(String::is_empty) {
            return refuse("--for-each-cgroup has an empty name in its list");
        }
        if self.per_thread {
            if self.no_aggr {
                return refuse("--per-thread and -A cannot be combined");
            }
            if matches!(self.target(), StatTarget::Command(_)) {
                return refuse("--per-thread needs -p, -t or -a; for the threads of a command use --tree");
            }
            if self.cgroup.is_some() || !self.for_each_cgroup.is_empty() {
                return refuse("--per-thread cannot be combined with control groups");
            }
        }
        Ok(())
    }

    fn check_tree(&self) -> Result<(), String> {
        if !self.tree {
            return Ok(());
        }
        if !matches!(self.target(), StatTarget::Command(_)) {
            return refuse("--tree follows the processes of a command: give a COMMAND alone");
        }
        let against = [
            ("-i", self.no_inherit),
            ("-r", self.repeat.is_some_and(|runs| runs != 1)),
            ("-I", self.interval_ms.is_some()),
            ("-n", self.null),
            ("--metric-only", self.metric_only),
        ];
        for (name, given) in against {
            if given {
                return refuse(&format!("--tree cannot be combined with {name}"));
            }
        }
        if self.mux == MuxChoice::Engine {
            return refuse(
                "--tree cannot be combined with --mux=engine: a process that exits reports for how long its events were on, and not \
                 how long they waited for their turns, so its counts could not be scaled; --mux=kernel can",
            );
        }
        if self.separator.is_some() {
            return refuse("--tree has no form with separated fields: use -j");
        }
        Ok(())
    }

    fn check_output(&self) -> Result<(), String> {
        if self.json && self.separator.is_some() {
            return refuse("-j and -x cannot be combined");
        }
        if self.big_num && self.separator.is_some() {
            return refuse("-B is for people and -x for programs: give one of them");
        }
        if self.output.is_some() && self.log_fd.is_some() {
            return refuse("-o and --log-fd cannot be combined");
        }
        if self.append && self.output.is_none() {
            return refuse("--append appends to a file: give -o as well");
        }
        Ok(())
    }

    /// Returns what is measured. Without a command and a target that is the whole machine.
    pub(crate) fn target(&self) -> StatTarget {
        let during = (!self.command.is_empty()).then(|| self.command.clone());
        if !self.pid.is_empty() {
            let pids = each_once(&self.pid);
            return StatTarget::Pids { pids, during };
        }
        if !self.tid.is_empty() {
            let tids = each_once(&self.tid);
            return StatTarget::Tids { tids, during };
        }
        match during {
            Some(command) if !self.all_cpus && self.cpu.is_none() => StatTarget::Command(command),
            during => StatTarget::Cpus { list: self.cpu.clone(), during },
        }
    }

    /// Returns how the report is printed.
    pub(crate) fn format(&self) -> StatFormat {
        let layout = match &self.separator {
            Some(separator) if separator == "\\t" => Layout::Csv("\t".to_owned()),
            Some(separator) => Layout::Csv(separator.clone()),
            None if self.json => Layout::Json,
            None => Layout::Table,
        };
        let columns = if self.metric_only { Columns::MetricsOnly } else { Columns::All };
        StatFormat { layout, columns }
    }

    /// Returns the control groups of `-G` for the given number of events, `None` where an
    /// event is not bound to one. A single name is for all events.
    ///
    /// # Errors
    ///
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
            return refuse(&format!("-G names {} groups for {events} events", names.len()));
        }
        names.resize(events, None);
        Ok(names)
    }

    /// Returns what deserves a warning, in a fixed order.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if let Some(ms) = self.interval_ms.filter(|&ms| ms < INTERVAL_COSTLY_MS) {
            warnings.push(Warning::ShortInterval(ms));
        }
        if self.summary && self.interval_ms.is_none() {
            warnings.push(Warning::SummaryWithoutInterval);
        }
        if self.null && !(self.events.is_empty() && self.detailed == 0) {
            warnings.push(Warning::EventsNotCounted);
        }
        warnings
    }
}

/// Returns the ids in their order, each once: a thread that is named twice is counted once.
fn each_once(ids: &[i32]) -> Vec<i32> {
    let mut seen = HashSet::new();
    ids.iter().copied().filter(|&id| seen.insert(id)).collect()
}

fn refuse<T>(message: &str) -> Result<T, String> {
    Err(message.to_owned())
}
