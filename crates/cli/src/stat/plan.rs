//! What is opened for a `pmux stat`: which events on which targets, and where their numbers go in the report.
//!
//! Read first: [`Plan`].
//!
//! **Invariant:** the order of the report's events is that of the command line; a plan is made once and serves every run.

use super::report::EventColumn;
use crate::failure::Failure;
use crate::options::stat::StatOptions;
use crate::options::target::TargetSpec;
use crate::sampling;
use pmux::event::{EventList, ParsedGroup};
use pmux::{Backend, Command, CpuChoice, CpuList, Error, Event, Session, Target};
use std::collections::HashMap;

/// What is counted when nothing is asked for.
const DEFAULT: &str =
    "task-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses";
/// The same for whole CPUs, whose tasks' clocks say nothing.
const DEFAULT_CPUS: &str =
    "cpu-clock,context-switches,cpu-migrations,page-faults,cycles,instructions,branches,branch-misses";
/// What is left of it without performance events.
const DEFAULT_USAGE: &str = "task-clock,context-switches,page-faults,major-faults,user_time,system_time,max_rss";
/// The same for whole CPUs.
const DEFAULT_USAGE_CPUS: &str = "cpu-clock,context-switches,page-faults,major-faults,user_time,system_time";
/// What is added where there is such a counter.
const STALLS: [&str; 2] = ["stalled-cycles-frontend", "stalled-cycles-backend"];
/// What each `-d` adds.
const DETAILED: [&str; 3] = [
    "L1-dcache-loads,L1-dcache-load-misses,LLC-loads,LLC-load-misses",
    "L1-icache-loads,L1-icache-load-misses,dTLB-loads,dTLB-load-misses,iTLB-loads,iTLB-load-misses",
    "L1-dcache-prefetches,L1-dcache-prefetch-misses",
];

/// Events that are opened together, and the report's event for each of theirs.
pub(crate) struct PlanPart {
    pub(crate) events: EventList,
    /// The cgroups that they are counted in, as indices into [`Plan::cgroups`]; none: they are not limited to any.
    pub(crate) cgroups: Vec<usize>,
    /// For each event its index in [`Plan::columns`].
    pub(crate) columns: Vec<usize>,
}

/// What is opened.
pub(crate) struct Plan {
    pub(crate) parts: Vec<PlanPart>,
    /// The report's events.
    pub(crate) columns: Vec<EventColumn>,
    pub(crate) cgroups: Vec<String>,
    pub(crate) target: TargetSpec,
    /// The text of the events.
    pub(crate) text: String,
}

impl Plan {
    /// Makes the plan.
    ///
    /// # Errors
    /// A text for the user: an event that is not understood, or CPUs, or cgroups for more events than there are.
    pub(crate) fn new(session: &Session, options: &StatOptions) -> Result<Self, String> {
        let target = options.target();
        let texts = texts(session, options, &target);
        let list = crate::filters::parse(session, &texts, &options.filters)?;
        let mut columns = Vec::new();
        let column_of = columns_of(&list, &mut columns);
        let (parts, cgroups) = if options.cgroup.is_some() {
            by_cgroup(list, &column_of, &options.cgroup_of_events(columns.len())?)
        } else {
            let cgroups = options.for_each_cgroup.clone();
            let part = PlanPart { events: list, cgroups: (0..cgroups.len()).collect(), columns: column_of };
            (vec![part], cgroups)
        };
        Ok(Self { parts, columns, cgroups, target, text: texts.join(",") })
    }

    /// The CPUs that have rows of their own, whether anything could be opened on them or not.
    pub(crate) fn rows_of_cpus(&self, session: &Session) -> Vec<u32> {
        match &self.target {
            TargetSpec::Cpus(list) => match cpu_choice(list.as_deref()) {
                Ok(CpuChoice::Only(cpus)) => cpus.iter().collect(),
                _ => session.online().iter().collect(),
            },
            TargetSpec::Command | TargetSpec::Pids(_) | TargetSpec::Tids(_) => Vec::new(),
        }
    }

    /// The target of a part. `per_thread`: each thread is a row; `held` is the command, where there is one.
    pub(crate) fn target<'c>(
        &self,
        part: &PlanPart,
        per_thread: bool,
        held: Option<&'c Command>,
    ) -> Result<Target<'c>, Failure> {
        if per_thread && matches!(self.target, TargetSpec::Cpus(_)) {
            return Ok(Target::Threads(all_threads()));
        }
        let cgroups: Vec<String> = part.cgroups.iter().map(|&index| self.cgroups[index].clone()).collect();
        sampling::target(&self.target, &cgroups, held)
    }
}

/// The CPUs of `-a` and `-C`.
pub(crate) fn cpu_choice(list: Option<&str>) -> Result<CpuChoice, String> {
    match list {
        None => Ok(CpuChoice::All),
        Some(text) => text.parse::<CpuList>().map(CpuChoice::Only).map_err(|error| format!("-C {text}: {error}")),
    }
}

fn texts(session: &Session, options: &StatOptions, target: &TargetSpec) -> Vec<String> {
    if options.null {
        return Vec::new();
    }
    let mut texts = options.events.clone();
    if texts.is_empty() {
        let cpus = matches!(target, TargetSpec::Cpus(_)) && !options.per_thread;
        let text = match (session.backend(), cpus) {
            (Backend::Kernel, false) => DEFAULT,
            (Backend::Kernel, true) => DEFAULT_CPUS,
            (Backend::Usage { .. }, false) => DEFAULT_USAGE,
            (Backend::Usage { .. }, true) => DEFAULT_USAGE_CPUS,
        };
        texts.push(with_stalls(session, text));
    }
    texts.extend(DETAILED.iter().take(usize::from(options.detailed)).map(|&text| text.to_owned()));
    texts
}

/// Stalled cycles stand beside cycles, as with `perf`, where the cores' PMU says that it has them.
fn with_stalls(session: &Session, text: &str) -> String {
    let known = session.catalog().pmu("cpu").ok();
    let names = known.as_ref().and_then(|pmu| pmu.alias_names().ok()).unwrap_or_default();
    let stalls = STALLS.into_iter().filter(|stall| names.iter().any(|name| name == stall));
    stalls.rev().fold(text.to_owned(), |text, stall| text.replace(",cycles,", &format!(",cycles,{stall},")))
}

/// Gives each event its column; events that stand for one name on several PMUs share one.
fn columns_of(list: &EventList, columns: &mut Vec<EventColumn>) -> Vec<usize> {
    let mut shared: HashMap<u32, usize> = HashMap::new();
    let mut of = Vec::new();
    for event in list.events() {
        let mut add = || {
            columns.push(EventColumn::new(&event.name, &event.canonical).with_unit(&event.unit, event.scale));
            columns.len() - 1
        };
        of.push(match event.spread {
            Some(number) => *shared.entry(number).or_insert_with(add),
            None => add(),
        });
    }
    of
}

/// `-G`: each event in its own cgroup. Groups stay together where all members have the same.
fn by_cgroup(list: EventList, column_of: &[usize], names: &[Option<String>]) -> (Vec<PlanPart>, Vec<String>) {
    let mut cgroups: Vec<String> = Vec::new();
    let mut parts: Vec<PlanPart> = Vec::new();
    let mut next = column_of.iter().copied();
    for group in list.groups {
        let ParsedGroup { name, events, kind, strength } = group;
        let of_cgroup = |(event, column): (Event, usize)| (names.get(column).and_then(Option::as_ref), column, event);
        let members: Vec<_> = events.into_iter().zip(&mut next).map(of_cgroup).collect();
        for run in members.chunk_by(|(one, ..), (other, ..)| one == other) {
            let cgroups = run[0].0.map(|name| {
                cgroups.iter().position(|other| other == name).unwrap_or_else(|| {
                    cgroups.push(name.clone());
                    cgroups.len() - 1
                })
            });
            let (columns, events) = run.iter().map(|(_, column, event)| (*column, event.clone())).unzip();
            let groups = vec![ParsedGroup { name: name.clone(), events, kind, strength }];
            parts.push(PlanPart { events: EventList { groups }, cgroups: cgroups.into_iter().collect(), columns });
        }
    }
    (parts, cgroups)
}

/// Every thread that there is now; those that end before they are opened are left out then.
fn all_threads() -> Vec<i32> {
    let numbers = |path: &str| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect::<Vec<i32>>()
    };
    numbers("/proc").into_iter().flat_map(|pid| numbers(&format!("/proc/{pid}/task"))).collect()
}

/// The words of an error of the library, for the user.
pub(crate) fn error_message(error: &Error) -> String {
    match error {
        Error::Refused(refusals) => {
            let text = |refusal: &pmux::Refusal| {
                let help = refusal.help.iter().map(|help| format!("\n  what helps: {help}"));
                refusal.summary.clone() + &help.collect::<String>()
            };
            refusals.iter().map(text).collect::<Vec<_>>().join("\nand: ")
        }
        other => other.to_string(),
    }
}
