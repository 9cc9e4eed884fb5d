//! A sample as text.
//!
//! What it is: the library writes the format of OpenMetrics; who asks for the older text of Prometheus gets the same with other
//! heads ([`Format`]). Source: the specification of OpenMetrics 1.0, and "Exposition formats" in Prometheus' documentation.
//!
//! **Invariant:** pure: one sample, one text. Each family has its HELP and TYPE once, in front of its samples.

use super::collect::{Sample, Series};
use pmux::Count;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`.
    OpenMetrics,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(super) fn text(sample: &Arc<Sample>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(Arc::clone(sample))));
    let mut text = String::new();
    // Writing into a string can't fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => older(&text),
    }
}

/// The older format names a family as its samples are named, knows no `info`, and no end.
fn older(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.rsplit_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let words = help.take().map_or("", |(_, words)| words);
            out.push_str(&format!("# HELP {name}{suffix} {words}\n# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Events by their names here, and what node_exporter's perf collector calls them, between `node_perf_` and `_total`. Source:
/// collector/perf_linux.go of node_exporter 1.3.
const NODE_EXPORTER: &[(&[&str], &str)] = &[
    (&["cycles", "cpu-cycles"], "cpucycles"),
    (&["instructions"], "instructions"),
    (&["branches", "branch-instructions"], "branch_instructions"),
    (&["branch-misses"], "branch_misses"),
    (&["cache-references"], "cache_refs"),
    (&["cache-misses"], "cache_misses"),
    (&["ref-cycles"], "ref_cpucycles"),
    (&["page-faults", "faults"], "page_faults"),
    (&["context-switches", "cs"], "context_switches"),
    (&["cpu-migrations", "migrations"], "cpu_migrations"),
    (&["minor-faults"], "minor_faults"),
    (&["major-faults"], "major_faults"),
];

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Exposition(Arc<Sample>);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        self.counts(out)?;
        self.cgroups(out)?;
        self.service(out)
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Exposition {
    fn counts(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sample = &*self.0;
        for (of_cgroups, prefix, what) in
            [(false, "pmux_event", "CPUs"), (true, "pmux_cgroup_event", "cgroups, with all below them")]
        {
            let series: Vec<_> =
                sample.counts.iter().filter(|(series, _)| series.cgroup.is_some() == of_cgroups).collect();
            let all = series.iter().map(|&(series, count)| (labels(series), Number::Whole(count.value)));
            let help =
                format!("Events that were counted on {what}; of events that take turns what they saw while they ran.");
            counter(out, prefix, &help, all)?;
            let multiplexed = |time: fn(&Count) -> u64| {
                let some = series.iter().filter(|(series, _)| sample.multiplexed.contains(&series.event));
                some.map(move |&(series, count)| (labels(series), Number::Real(seconds(time(count)))))
                    .collect::<Vec<_>>()
            };
            let enabled = "Time in which an event was to be counted, for events that do not always have a counter.";
            counter(out, &format!("{prefix}_enabled_seconds"), enabled, multiplexed(|count| count.enabled.0))?;
            let running = "Time in which an event was on a counter: its count divided by this share of the time enabled is an estimate.";
            counter(out, &format!("{prefix}_running_seconds"), running, multiplexed(|count| count.running.0))?;
        }
        if sample.node_exporter_names {
            self.by_other_names(out)?;
        }
        let refused = sample.refused.iter().map(|refused| {
            vec![("event", refused.event.clone()), ("of", refused.scope.to_owned()), ("reason", refused.reason.clone())]
        });
        info(out, "pmux_event_refused", "Events that are configured and can not be counted here.", refused)?;
        let missed = sample.missed.iter().map(|(cpu, (ns, _))| (cpu_label(*cpu), Number::Real(seconds(*ns))));
        let help = "Time in which a CPU was not counted, because it was offline.";
        counter(out, "pmux_cpu_missed_seconds", help, missed)?;
        let gaps = sample.missed.iter().map(|(cpu, (_, gaps))| (cpu_label(*cpu), Number::Whole(u64::from(*gaps))));
        counter(out, "pmux_cpu_gaps", "How often a CPU went offline while it was counted.", gaps)
    }

    /// What always had a counter, as node_exporter's perf collector calls it: it knows no turns.
    fn by_other_names(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sample = &*self.0;
        for &(names, name) in NODE_EXPORTER {
            let of_cpus: BTreeMap<u32, u64> = sample
                .counts
                .iter()
                .filter(|(series, _)| series.cgroup.is_none() && names.contains(&series.event.as_str()))
                .filter(|(series, _)| !sample.multiplexed.contains(&series.event))
                .filter_map(|(series, count)| Some((series.cpu?, count.value)))
                .collect();
            let help = format!("{}, as node_exporter's perf collector calls it.", names[0]);
            let samples = of_cpus.into_iter().map(|(cpu, count)| (cpu_label(cpu), Number::Whole(count)));
            counter(out, &format!("node_perf_{name}"), &help, samples)?;
        }
        Ok(())
    }

    fn cgroups(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sample = &*self.0;
        let Some((way, why)) = &sample.way else { return Ok(()) };
        let labels = vec![("way", (*way).to_owned()), ("text", why.clone())];
        let help = "How cgroups are counted: by a BPF program, or by events of their own, and why.";
        info(out, "pmux_cgroup_counting", help, [labels])?;
        gauge(out, "pmux_cgroups", "Cgroups that are counted.", sample.cgroups as f64)?;
        let left_out = "Cgroups that are not counted because there are more than may be.";
        gauge(out, "pmux_cgroups_left_out", left_out, sample.cgroups_left_out as f64)?;
        let unattributed =
            sample.unattributed.iter().map(|(event, count)| (vec![("event", event.clone())], Number::Whole(*count)));
        let help = "Events that could be given to no cgroup but the root: a switch of tasks passed by untold, or there was no room.";
        counter(out, "pmux_cgroup_unattributed", help, unattributed)
    }

    fn service(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sample = &*self.0;
        let (health, tallies) = (&sample.health, &sample.health.tallies);
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        info(out, "pmux_build", "The version of the service.", [version])?;
        let (opened, closed) = sample.kernel_events;
        let refreshed = "When these numbers were taken, in seconds since 1970.";
        for (name, help, value) in [
            ("pmux_clients", "Clients that are connected.", health.clients as f64),
            ("pmux_client_events", "Events that clients have open.", health.events as f64),
            ("pmux_masters", "Shared counters: clients with equal requests read the same one.", sample.masters as f64),
            ("pmux_views", "Groups and events of clients that read those counters.", sample.views as f64),
            ("pmux_kernel_events", "Events of the kernel that are open.", (opened - closed) as f64),
            ("pmux_cpus", "CPUs that are online.", sample.cpus as f64),
            ("pmux_last_refresh_timestamp_seconds", refreshed, sample.at_s),
            ("pmux_refresh_duration_seconds", "How long it took to take them.", seconds(sample.taken_ns)),
        ] {
            gauge(out, name, help, value)?;
        }
        let cut_off = "Clients that were cut off, because they did what they must not.";
        for (name, help, value) in [
            ("pmux_clients_connected", "Clients that have come.", tallies.clients),
            ("pmux_clients_cut_off", cut_off, tallies.cut_off),
            ("pmux_requests", "Requests of clients.", tallies.requests),
            ("pmux_requests_refused", "Requests that were refused.", tallies.refused),
            ("pmux_client_events_opened", "Events that clients have opened.", tallies.opened),
            ("pmux_kernel_events_opened", "Events of the kernel that were opened.", opened),
        ] {
            Number::Whole(value).encode(out.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

fn cpu_label(cpu: u32) -> Labels {
    vec![("cpu", cpu.to_string())]
}

fn labels(series: &Series) -> Labels {
    let mut labels = vec![("event", series.event.clone())];
    labels.extend(series.cgroup.iter().map(|(name, _)| ("cgroup", name.clone())));
    labels.extend(series.cpu.map(|cpu| ("cpu", cpu.to_string())));
    labels
}

enum Number {
    Whole(u64),
    Real(f64),
}

impl Number {
    fn encode(self, sample: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => ConstCounter::new(number).encode(sample),
            Self::Real(number) => ConstCounter::new(number).encode(sample),
        }
    }
}

fn counter(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels, Number)>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, number) in samples {
        number.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(out: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn info(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = Labels>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Info)?;
    for labels in samples {
        metric.encode_info(&labels)?;
    }
    Ok(())
}
