//! What is shown without a terminal: tables one after the other, or lines of JSON.
//!
//! **Invariant:** one interval is one table, or one line.

use super::facts::{Facts, is_waits, per_second};
use super::interval::{Choice, Interval, Row, RowId, WAITS};
use crate::options::top::TopKey;
use crate::report::share;
use crate::stderr::visible;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A rate for people: `1.2M`.
fn rate_text(per_second: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "G"), (1e6, "M"), (1e3, "K")];
    let unit = UNITS.into_iter().find(|(unit, _)| per_second >= *unit);
    unit.map_or_else(|| format!("{per_second:.1}"), |(unit, name)| format!("{:.1}{name}", per_second / unit))
}

/// What is said above rows, on the left and on the right.
pub(super) fn headline(facts: &Facts, interval: &Interval, choice: &Choice) -> (String, String) {
    let totals = interval.totals(choice);
    let left = format!("pmux top: {} of {}", facts.event(choice.event), facts.target);
    let cpus = facts.cpus_of(choice.event, totals.busy_period, interval);
    if is_waits(choice.event) {
        let waiting = format!("{:.1} threads waited at a time", cpus.unwrap_or(0.0));
        let idle = match totals.idle_threads {
            0 => String::new(),
            idle => format!(", {idle} all the time (i)"),
        };
        return (left, format!("{waiting}{idle}, in {:.1} s", interval.took.as_secs_f64()));
    }
    let busy = cpus.map(|cpus| match facts.cpus {
        Some(all) => format!("{:.1} % of {all} CPUs busy, ", 100.0 * cpus / all.max(1) as f64),
        None => format!("{:.1} % of a CPU, ", 100.0 * cpus),
    });
    let busy = busy.unwrap_or_else(|| format!("{} a second, ", rate_text(per_second(totals.busy_period, interval))));
    (left, format!("{busy}{} samples in {:.1} s", totals.samples, interval.took.as_secs_f64()))
}

/// What it costs, and what is missing.
pub(super) fn remark(facts: &Facts, interval: &Interval) -> String {
    let mut text = format!("pmux itself takes {:.2} % of a CPU", 100.0 * facts.own_cpus);
    if facts.by_service {
        text.push_str(", through the service");
    }
    if !facts.gap.is_zero() {
        let _ = write!(text, ", which was away for {:.1} s", facts.gap.as_secs_f64());
    }
    if facts.lost > 0 {
        let _ = write!(text, ", {} records were lost", facts.lost);
    }
    if facts.unseen > 0 {
        let _ = write!(text, ", waits not seen as a whole: {}", facts.unseen);
    }
    if interval.waits_left_out > 0 {
        let _ = write!(text, ", {} waits had no room: tell fewer with --off-cpu=10ms", interval.waits_left_out);
    }
    if interval.left_out > 0 {
        let _ = write!(text, ", {} samples had no room: take fewer with -F", interval.left_out);
    }
    text
}

/// The headings of rows: of the share, of time, and of names.
pub(super) fn headings(facts: &Facts, choice: &Choice) -> String {
    let is_waits = is_waits(choice.event);
    let time = match (is_waits, facts.is_clock(choice.event)) {
        (true, _) => "   Wait%",
        (_, true) => "    CPU%",
        _ => "  Rate/s",
    };
    let name = match choice.key {
        TopKey::Symbol if is_waits => "For what, and where",
        TopKey::Symbol => "   Symbol",
        TopKey::Process => "    PID  Process",
        TopKey::Thread => "    TID  Thread",
        TopKey::Cgroup => "Control group",
        TopKey::Dso => "Shared object",
        TopKey::Cpu if is_waits => "For what",
        TopKey::Cpu => "CPU",
    };
    format!("   Share{time}  {name}")
}

/// The first two columns of a row, of all that was not idle.
pub(super) fn numbers(
    facts: &Facts,
    interval: &Interval,
    choice: &Choice,
    busy_period: u64,
    row: &Row,
) -> (f64, String) {
    let share = share(row.period, busy_period);
    let time = facts.cpus_of(choice.event, row.period, interval).map(|cpus| format!("{:7.1}%", 100.0 * cpus));
    (share, time.unwrap_or_else(|| format!("{:>8}", rate_text(per_second(row.period, interval)))))
}

/// What stands in front of the name of a row.
pub(super) fn before_name(choice: &Choice, row: &Row) -> String {
    match choice.key {
        TopKey::Symbol if is_waits(choice.event) => String::new(),
        TopKey::Symbol => if row.is_kernel { "[k] " } else { "[.] " }.to_owned(),
        TopKey::Process | TopKey::Thread => format!("{:>7}  ", row.number),
        TopKey::Cgroup | TopKey::Dso | TopKey::Cpu => String::new(),
    }
}

/// What stands behind the name of a row: where it is, or for what a process waits.
pub(super) fn behind_name(choice: &Choice, row: &Row) -> String {
    if choice.key != TopKey::Process || row.kinds.is_empty() {
        return row.place.clone();
    }
    let shares = row.kinds.iter().map(|&(kind, period)| (kind.name(), share(period, row.period)));
    let much = shares.filter(|&(_, share)| share >= 0.5).take(2);
    much.map(|(kind, share)| format!("{kind} {share:.0} %")).collect::<Vec<_>>().join(", ")
}

/// What runs, and what waits where that is watched.
fn both(facts: &Facts, choice: &Choice) -> impl Iterator<Item = Choice> {
    let waits = facts.has_waits.then(|| Choice { event: WAITS.into(), ..choice.clone() });
    std::iter::once(choice.clone()).chain(waits)
}

/// A table, with at most so many rows; and one of waits.
pub(super) fn table(facts: &Facts, interval: &Interval, choice: &Choice, most: usize) -> String {
    let mut out = String::new();
    for choice in &both(facts, choice).collect::<Vec<_>>() {
        let (left, right) = headline(facts, interval, choice);
        let _ = writeln!(out, "# {left}: {right}");
        if !is_waits(choice.event) {
            let _ = writeln!(out, "# {}", remark(facts, interval));
        }
        let _ = writeln!(out, "#\n# {}", &headings(facts, choice)[2..]);
        let busy_period = interval.totals(choice).busy_period;
        for row in interval.rows(choice).iter().take(most) {
            let (share, time) = numbers(facts, interval, choice, busy_period, row);
            let (before, behind) = (before_name(choice, row), behind_name(choice, row));
            let line = format!("{share:7.2}%{time}  {before}{}  {behind}", row.name);
            let _ = writeln!(out, "{}", visible(line.trim_end()));
        }
        out.push('\n');
    }
    out
}

/// The name of a kind of wait without its brackets, for programs.
fn bare(kind: &str) -> &str {
    kind.trim_matches(['[', ']'])
}

fn row_json(facts: &Facts, interval: &Interval, choice: &Choice, busy_period: u64, row: &Row) -> Value {
    let is_waits = is_waits(choice.event);
    let mut object = match (choice.key, &row.id) {
        (TopKey::Symbol, RowId::Function(Some(kind), name, dso)) => {
            json!({ "wait": bare(kind.name()), "symbol": **name, "dso": **dso })
        }
        (TopKey::Symbol, _) => json!({ "symbol": row.name, "dso": row.place, "kernel": row.is_kernel }),
        (TopKey::Process, _) => json!({ "pid": row.number, "comm": row.name }),
        (TopKey::Thread, _) => {
            let (pid, process) = row.place.split_once(' ').unwrap_or_default();
            json!({ "tid": row.number, "comm": row.name, "pid": pid.parse::<i32>().ok(), "process": process })
        }
        (TopKey::Cgroup, _) => json!({ "cgroup": row.place, "name": row.name }),
        (TopKey::Dso, _) => json!({ "dso": row.name }),
        (TopKey::Cpu, _) if is_waits => json!({ "wait": bare(&row.name) }),
        (TopKey::Cpu, _) => json!({ "cpu": row.number }),
    };
    let of_all = facts.cpus_of(choice.event, row.period, interval);
    let share = share(row.period, busy_period) / 100.0;
    if is_waits {
        let kinds = row.kinds.iter().map(|&(kind, ns)| (bare(kind.name()).to_owned(), json!(ns)));
        object["ns"] = json!(row.period);
        object["kinds_ns"] = Value::Object(kinds.collect());
        object["share"] = json!(share);
        object["threads"] = json!(of_all);
    } else {
        object["period"] = json!(row.period);
        object["samples"] = json!(row.samples);
        object["share"] = json!(share);
        object["cpus"] = json!(of_all);
        object["per_second"] = json!(per_second(row.period, interval));
    }
    object
}

/// A line of JSON, with at most so many rows.
pub(super) fn json_line(facts: &Facts, interval: &Interval, choice: &Choice, most: usize) -> String {
    let rows = |choice: &Choice| {
        let totals = interval.totals(choice);
        let rows = interval.rows(choice);
        let shown = rows.iter().take(most);
        let shown: Vec<Value> = shown.map(|row| row_json(facts, interval, choice, totals.busy_period, row)).collect();
        (totals, facts.cpus_of(choice.event, totals.busy_period, interval), shown)
    };
    let (totals, busy_cpus, shown) = rows(choice);
    let mut line = json!({
        "event": facts.event(choice.event),
        "seconds": interval.took.as_secs_f64(),
        "samples": totals.samples,
        "busy_period": totals.busy_period,
        "busy_cpus": busy_cpus,
        "watched_cpus": facts.cpus,
        "own_cpus": facts.own_cpus,
        "through_service": facts.by_service,
        "service_gap_seconds": facts.gap.as_secs_f64(),
        "lost": facts.lost,
        "left_out": interval.left_out,
        "rows": shown,
    });
    for choice in both(facts, choice).skip(1) {
        let (totals, threads, shown) = rows(&choice);
        line["waits"] = json!({
            "threads": threads,
            "idle_threads": totals.idle_threads,
            "unseen": facts.unseen,
            "left_out": interval.waits_left_out,
            "rows": shown,
        });
    }
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::facts;
    use super::super::interval::tests::shop;
    use super::*;

    #[test]
    fn a_table_says_what_each_row_had() {
        let text = table(&facts(), &shop(), &Choice::default(), 2);
        let wanted = "\
# pmux top: cpu-clock of all CPUs: 33.0 % of 2 CPUs busy, 6 samples in 0.0 s
# pmux itself takes 0.25 % of a CPU
#
#  Share    CPU%     Symbol
  75.76%   50.0%  [k] read  [kernel.kallsyms]
  22.73%   15.0%  [.] serve  shop

";
        assert_eq!(text, wanted);
    }

    #[test]
    fn what_is_no_clock_has_a_rate() {
        let mut facts = facts();
        facts.events[0].1 = false;
        let text = table(&facts, &shop(), &Choice::default(), 1);
        assert!(text.contains("660.0M a second, 6 samples") && text.contains("#  Share  Rate/s  "), "{text}");
        assert!(text.contains("  75.76%  500.0M  [k] read"), "{text}");
        assert_eq!([999.0, 1_000.0, 2.5e9].map(rate_text), ["999.0", "1.0K", "2.5G"]);
    }

    #[test]
    fn a_line_is_for_programs() {
        let choice = Choice { key: TopKey::Thread, ..Choice::default() };
        let line: Value = serde_json::from_str(&json_line(&facts(), &shop(), &choice, usize::MAX)).unwrap();
        let first = &line["rows"][0];
        assert_eq!((&first["tid"], &first["pid"], &first["process"]), (&json!(8), &json!(7), &json!("p7")));
        assert_eq!((&first["cpus"], &line["busy_cpus"], &line["watched_cpus"]), (&json!(0.5), &json!(0.66), &json!(2)));
        assert_eq!(line["rows"].as_array().map(Vec::len), Some(3));
    }
}
