//! Counting for metrics.
//!
//! What it is: [`Collector`] has the configured events open, for all CPUs and for cgroups, and reads them when it is asked.
//!
//! **Invariant:** a number never becomes less, whatever comes and goes: CPUs, configurations. The events are opened in the session of
//! the service, where clients that ask the same share them.

use super::{Health, word};
use crate::config::{CpuLabels, Level, MetricsConfig};
use crate::log::Log;
use pmux::server_api::{ByCgroup, CgroupMethod, CgroupReadings};
use pmux::{Count, Counters, CpuChoice, EventList, Multiplexing, Options, Session, Target};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

/// Sentences are logged when they are new, and the last so many are known.
const TROUBLES: usize = 64;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Series {
    pub(super) event: String,
    /// Its path and its inode; `None` for all that runs.
    pub(super) cgroup: Option<(String, u64)>,
    /// `None` for all CPUs together.
    pub(super) cpu: Option<u32>,
}

/// What was counted under former configurations.
pub(super) type Carried = HashMap<Series, Count>;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RefusedEvent {
    pub(super) event: String,
    pub(super) scope: &'static str,
    pub(super) reason: String,
}

/// Everything at one time.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    pub(super) health: Health,
    /// What was counted; what was not is not among them.
    pub(super) counts: BTreeMap<Series, Count>,
    /// Events that have not had a counter all the time.
    pub(super) multiplexed: BTreeSet<String>,
    /// Whether counts have the names of node_exporter, too.
    pub(super) node_exporter_names: bool,
    pub(super) refused: Vec<RefusedEvent>,
    /// `bpf` or `events`, and why.
    pub(super) way: Option<(&'static str, String)>,
    pub(super) cgroups: usize,
    pub(super) cgroups_left_out: usize,
    /// What was given to no cgroup, by event.
    pub(super) unattributed: BTreeMap<String, u64>,
    /// Time that a CPU was online and not counted, with how often, by CPU.
    pub(super) missed: BTreeMap<u32, (u64, u32)>,
    pub(super) kernel_events: (u64, u64),
    pub(super) masters: usize,
    pub(super) views: usize,
    pub(super) cpus: usize,
    pub(super) taken_ns: u64,
    /// Seconds since 1970.
    pub(super) at_s: f64,
}

pub(super) struct Collector {
    session: Session,
    events: Option<Counters>,
    by_cgroup: Option<ByCgroup>,
    cpus: CpuLabels,
    node_exporter_names: bool,
    carried: Carried,
    last: Carried,
    multiplexed: BTreeSet<String>,
    refused: Vec<RefusedEvent>,
    logged: Vec<String>,
    log: Log,
}

impl Collector {
    /// Opens everything. What can't be counted here is told of in the log.
    pub(super) fn open(
        (config, turns): (&MetricsConfig, Multiplexing),
        session: &Session,
        log: &Log,
        carried: Carried,
    ) -> Result<Self, String> {
        let parse = |key: &str, texts: &[String]| {
            let list = EventList::parse(texts, session.catalog());
            list.map_err(|error| format!("`metrics.{key}`: {error}"))
        };
        let mut refused = Vec::new();
        let mut events = None;
        if !config.events.is_empty() {
            let list = parse("events", &config.events)?;
            // As clients are counted, so that those who ask the same share with it.
            let options = Options { multiplexing: turns, ..Options::default() };
            match session.open(&list, &Target::Cpus(CpuChoice::All), options) {
                Ok(counters) => {
                    for (index, event) in counters.events().iter().enumerate() {
                        let reason = counters.refusal(index).map(|refusal| refusal.summary.clone());
                        let (event, scope) = (event.name.clone(), "cpus");
                        refused.extend(reason.map(|reason| RefusedEvent { event, scope, reason }));
                    }
                    events = Some(counters);
                }
                Err(error) => refused.extend(all_refused(&list, "cpus", &error)),
            }
        }
        let mut by_cgroup = None;
        if !config.cgroup_events.is_empty() && !config.cgroups.is_empty() {
            let list = parse("cgroup_events", &config.cgroup_events)?;
            let patterns = config.cgroups.iter().map(|pattern| pattern.0.clone()).collect();
            match ByCgroup::open(session, &list, patterns, config.most_cgroups as usize, turns) {
                Ok(counts) => {
                    for (index, event) in counts.events().iter().enumerate() {
                        let reason = counts.refusal(index).map(str::to_owned);
                        let (event, scope) = (event.clone(), "cgroups");
                        refused.extend(reason.map(|reason| RefusedEvent { event, scope, reason }));
                    }
                    log.write(Level::Info, format_args!("metrics: cgroups are counted {}", counts.way()));
                    by_cgroup = Some(counts);
                }
                Err(error) => refused.extend(all_refused(&list, "cgroups", &error)),
            }
        }
        for RefusedEvent { event, scope, reason } in &refused {
            log.write(Level::Warning, format_args!("metrics: {event} is not counted for {scope}: {reason}"));
        }
        Ok(Self {
            session: session.clone(),
            events,
            by_cgroup,
            cpus: config.cpus,
            node_exporter_names: config.node_exporter_names,
            carried,
            last: Carried::default(),
            multiplexed: BTreeSet::new(),
            refused,
            logged: Vec::new(),
            log: log.clone(),
        })
    }

    pub(super) fn way(&self) -> Option<CgroupMethod> {
        self.by_cgroup.as_ref().map(ByCgroup::way)
    }

    pub(super) fn follow_cpus(&mut self) {
        if let Some(by_cgroup) = &mut self.by_cgroup {
            by_cgroup.follow_cpus();
        }
    }

    /// To be called every few seconds: cgroups that are new are counted from now on, and those that are gone are let go.
    pub(super) fn follow_cgroups(&mut self) {
        let trouble = self.by_cgroup.as_mut().and_then(ByCgroup::keep_up);
        self.log_once(trouble);
    }

    fn log_once(&mut self, troubles: impl IntoIterator<Item = String>) {
        for trouble in troubles {
            if !self.logged.contains(&trouble) {
                self.log.write(Level::Warning, format_args!("metrics: {trouble}"));
                self.logged.push(trouble);
                if self.logged.len() > TROUBLES {
                    self.logged.remove(0);
                }
            }
        }
    }

    pub(super) fn end(mut self) -> Carried {
        self.collect(Health::default());
        for (series, count) in self.last {
            *self.carried.entry(series).or_default() += count;
        }
        self.carried
    }

    pub(super) fn collect(&mut self, health: Health) -> Sample {
        let started = pmux::server_api::now_ns();
        let mut sample = Sample { health, ..Sample::default() };
        let mut now = Carried::default();
        self.read_cpus(&mut now, &mut sample);
        self.read_cgroups(&mut now, &mut sample);
        for (series, count) in &now {
            let mut all = self.carried.get(series).copied().unwrap_or_default();
            all += *count;
            // It was never on a counter: its count is not known.
            if all.running.0 == 0 {
                continue;
            }
            if all.running < all.enabled {
                self.multiplexed.insert(series.event.clone());
            }
            sample.counts.insert(series.clone(), all);
        }
        self.last = now;
        sample.multiplexed = self.multiplexed.clone();
        sample.node_exporter_names = self.node_exporter_names;
        sample.refused = self.refused.clone();
        sample.way = self.way().map(|way| (word(&way), way.to_string()));
        sample.kernel_events = self.session.kernel_events();
        let questions = self.session.shared_questions();
        sample.masters = questions.len();
        sample.views = questions.iter().map(|question| question.views).sum();
        sample.cpus = self.session.online().len();
        sample.taken_ns = pmux::server_api::now_ns() - started;
        let today = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        sample.at_s = today.map_or(0.0, |time| time.as_secs_f64());
        sample
    }

    fn read_cpus(&self, now: &mut Carried, sample: &mut Sample) {
        let Some(counters) = &self.events else { return };
        let snapshot = counters.read();
        for row in &snapshot.rows {
            let cpu = row.who.cpu.filter(|_| self.cpus != CpuLabels::None);
            for (event, reading) in counters.events().iter().zip(&row.readings) {
                if let Some(count) = reading.count() {
                    let series = Series { event: event.name.clone(), cgroup: None, cpu };
                    *now.entry(series).or_default() += count;
                }
            }
        }
        for cpu in snapshot.coverage.cpus {
            sample.missed.insert(cpu.cpu.0, (cpu.missed.0, cpu.gaps));
        }
    }

    fn read_cgroups(&mut self, now: &mut Carried, sample: &mut Sample) {
        let Some(by_cgroup) = &mut self.by_cgroup else { return };
        let CgroupReadings { cgroups, left_out, unattributed, troubles } = by_cgroup.read();
        (sample.cgroups, sample.cgroups_left_out) = (cgroups.len(), left_out);
        sample.unattributed = pmux::order::map(by_cgroup.events().iter().cloned().zip(unattributed));
        for cgroup in cgroups {
            let of = Some((cgroup.name, cgroup.inode));
            for (cpu, row) in cgroup.cpus {
                let cpu = Some(cpu).filter(|_| self.cpus == CpuLabels::All);
                for (event, reading) in by_cgroup.events().iter().zip(row) {
                    if let Some(count) = reading.count() {
                        let series = Series { event: event.clone(), cgroup: of.clone(), cpu };
                        *now.entry(series).or_default() += count;
                    }
                }
            }
        }
        self.log_once(troubles);
    }
}

fn all_refused(list: &EventList, scope: &'static str, error: &pmux::Error) -> Vec<RefusedEvent> {
    let refused = |event: &pmux::Event| RefusedEvent { event: event.name.clone(), scope, reason: error.to_string() };
    list.events().map(refused).collect()
}
