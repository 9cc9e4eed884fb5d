//! Compares CSV and JSON with the real `perf stat`, where it is installed.
//!
//! perf measures something; its output is read back into a report; the report is printed
//! by this crate; both texts must have the same shape: the same fields in the same order
//! with the same number formats. Values are not compared, only how they are written.
//!
//! **Invariant:** nothing here is timed, and nothing is left behind on the machine.

#![allow(clippy::unwrap_used)]

use super::{Columns, Layout, Look, TreeDetail, compose, sample};
use crate::stat::report::{EventColumn, Moment, Report, Row, ThreadName, Value, Who};
use std::process::Command;

/// Runs `perf stat` with the C locale and returns what it wrote, or `None` with a printed
/// reason when it cannot measure here.
fn perf(arguments: &[&str]) -> Option<String> {
    let version = Command::new("perf").arg("--version").output();
    let version = match version {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(_) => {
            println!("skipped: needs perf");
            return None;
        }
    };
    if !version.contains("version 6.1.") {
        println!("skipped: needs perf 6.1, found {}", version.trim());
        return None;
    }
    let output = Command::new("perf").arg("stat").args(arguments).env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    if !output.status.success() {
        println!("skipped: needs the right to run perf stat {arguments:?}: {text}");
        return None;
    }
    Some(text)
}

/// Every run of digits becomes `9`, so that only the way numbers are written is left.
/// Decimals keep their count, units of rates lose their prefix.
fn shape(text: &str) -> String {
    let mut out = String::new();
    let mut fraction = false;
    let mut previous = ' ';
    for c in text.chars() {
        if c.is_ascii_digit() {
            if fraction || !previous.is_ascii_digit() {
                out.push('9');
            }
        } else {
            fraction = c == '.' && previous.is_ascii_digit();
            out.push(c);
        }
        previous = c;
    }
    for prefix in ["K/sec", "M/sec", "G/sec"] {
        out = out.replace(prefix, "/sec");
    }
    // Leading spaces of a number depend on its size.
    let lines: Vec<&str> = out.lines().map(str::trim_start).collect();
    lines.join("\n")
}

/// Reads the lines of `perf stat -j` back into reports, one for each interval.
fn reports_of(text: &str, cgroups: &[&str]) -> Vec<Report> {
    let mut reports: Vec<Report> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let fields: serde_json::Value = serde_json::from_str(line).unwrap();
        if fields.get("event").is_none() {
            // A second metric of the event before.
            continue;
        }
        let at_ns = fields["interval"].as_f64().map(|s| (s * 1e9) as u64);
        let moment = at_ns.map_or(Moment::Whole, |at_ns| Moment::Interval { at_ns, number: 0 });
        if reports.last().is_none_or(|last| last.moment != moment) {
            let mut report = sample::counted(&[]);
            report.moment = moment;
            report.cgroups = cgroups.iter().map(|&name| name.to_owned()).collect();
            report.runs = if fields.get("variance").is_some() { 3 } else { 1 };
            reports.push(report);
        }
        let report = reports.last_mut().unwrap();
        push_row(report, &fields);
    }
    reports
}

fn push_row(report: &mut Report, fields: &serde_json::Value) {
    let name = fields["event"].as_str().unwrap();
    let unit = fields["unit"].as_str().unwrap();
    let scale = if unit == "msec" { 1e-6 } else { 1.0 };
    let canonical = name.split(':').next().unwrap();
    let column = EventColumn::new(name, canonical).with_unit(unit, scale);
    let event = report.events.iter().position(|e| *e == column);
    let event = event.unwrap_or_else(|| {
        report.events.push(column);
        report.events.len() - 1
    });
    let running_ns = fields["event-runtime"].as_u64().unwrap();
    let value = match fields["counter-value"].as_str().unwrap() {
        "<not supported>" => Value::NotSupported,
        "<not counted>" => Value::NotCounted { enabled_ns: 0 },
        number => Value::Counted { raw: number.parse::<f64>().unwrap() / scale, enabled_ns: running_ns, running_ns },
    };
    let thread = fields["thread"].as_str().map(|name| {
        let (comm, tid) = name.rsplit_once('-').unwrap();
        report.threads.push(ThreadName { comm: comm.to_owned(), tid: tid.parse().unwrap() });
        report.threads.len() - 1
    });
    let cgroup = fields["cgroup"].as_str();
    let who = Who {
        cpu: fields["cpu"].as_str().map(|cpu| cpu.parse().unwrap()),
        thread,
        cgroup: cgroup.and_then(|name| report.cgroups.iter().position(|c| c == name)),
    };
    report.rows.push(Row { who, event, value, deviation_pct: fields["variance"].as_f64() });
}

fn ours(reports: &[Report], layout: &Layout, columns: Columns) -> String {
    let look = Look { layout: layout.clone(), columns, tree: TreeDetail::Folded, style: sample::PLAIN };
    reports.iter().map(|report| compose(report, &look)).collect()
}

/// Runs perf with `-j` and with `-x`, and compares both with our own texts. Lines are
/// compared as sets, because short intervals may come once more or less.
fn compare(arguments: &[&str], command: &[&str], cgroups: &[&str]) {
    let with = |format: &str| {
        let all: Vec<&str> = [format].iter().chain(arguments).chain(command).copied().collect();
        perf(&all)
    };
    let (Some(json), Some(csv)) = (with("-j"), with("-x,")) else {
        return;
    };
    let lines = |text: &str| {
        let mut lines: Vec<String> = shape(text).lines().map(str::to_owned).collect();
        lines.sort();
        lines.dedup();
        lines
    };
    let reports = reports_of(&json, cgroups);
    assert!(reports.iter().any(|report| !report.rows.is_empty()) || json.is_empty());
    let our_json = ours(&reports, &Layout::Json, Columns::All);
    assert_eq!(lines(&our_json), lines(&json), "-j {arguments:?}");
    let our_csv = ours(&reports, &Layout::Csv(",".to_owned()), Columns::All);
    assert_eq!(lines(&our_csv), lines(&csv), "-x {arguments:?}");
    // The order of the lines, too, where perf's own is fixed.
    assert_eq!(shape(&our_json).trim_end(), shape(&json).trim_end());
}

/// Events that are counted, that need a PMU, and that no machine has in a plain run.
const EVENTS: &str = "page-faults,task-clock,cycles,instructions,branch-misses,context-switches";

#[test]
fn a_command() {
    compare(&["-e", EVENTS], &["--", "true"], &[]);
    compare(&["-e", "page-faults"], &["--", "true"], &[]);
    compare(&["-e", "page-faults:u,cpu-clock,task-clock:u"], &["--", "true"], &[]);
    compare(&["-n"], &["--", "true"], &[]);
}

#[test]
fn several_runs() {
    compare(&["-r", "3", "-e", EVENTS], &["--", "true"], &[]);
}

#[test]
fn all_cpus() {
    compare(&["-a", "-e", EVENTS], &["--", "true"], &[]);
    compare(&["-a", "-A", "-e", EVENTS], &["--", "true"], &[]);
    compare(&["-C", "0", "-A", "-e", EVENTS], &["--", "true"], &[]);
}

#[test]
fn intervals() {
    let command = ["--", "sleep", "0.15"];
    compare(&["-I", "100", "-a", "-e", EVENTS], &command, &[]);
    compare(&["-I", "100", "-a", "-A", "-e", "page-faults"], &command, &[]);
}

#[test]
fn threads() {
    // A process of our own that does nothing: the same rows every time.
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    compare(&["--per-thread", "-p", &pid, "-e", EVENTS], &["--", "sleep", "0.02"], &[]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn control_groups() {
    let groups = ["/"];
    // Counters of a PMU follow a cgroup's tasks: whether one of them came in so short a time is another matter each time.
    let events = "page-faults,task-clock,context-switches,cpu-migrations";
    let arguments = ["-a", "--for-each-cgroup", "/", "-e", events];
    compare(&arguments, &["--", "true"], &groups);
    let arguments = ["-a", "-r", "2", "--for-each-cgroup", "/", "-e", events];
    compare(&arguments, &["--", "true"], &groups);
    let arguments = ["-a", "-A", "--for-each-cgroup", "/", "-e", events];
    compare(&arguments, &["--", "true"], &groups);
}

/// perf 6.1 prints the heads of `--metric-only` in `-A` mode only, and its lines have
/// fields too many for events without a count. The heads and the places are compared.
#[test]
fn heads_of_metrics() {
    let events = "cycles,instructions,branches,branch-misses,cache-misses";
    let arguments = ["-x,", "--metric-only", "-a", "-A", "-e", events, "--", "true"];
    let Some(theirs) = perf(&arguments) else {
        return;
    };
    let json = perf(&["-j", "-a", "-A", "-e", events, "--", "true"]).unwrap_or_default();
    let reports = reports_of(&json, &[]);
    let text = ours(&reports, &Layout::Csv(",".to_owned()), Columns::MetricsOnly);
    // perf spells the head "Ghz" as long as no clock has been counted.
    let head = theirs.lines().next().map(|head| head.replace("Ghz", "GHz"));
    assert_eq!(text.lines().next(), head.as_deref());
    let place = |text: &str| -> Vec<String> {
        let places = text.lines().map(|line| line.split(',').next().unwrap_or_default());
        places.map(str::to_owned).collect()
    };
    assert_eq!(place(&text), place(&theirs));
}

#[test]
fn the_first_lines_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out");
    let path_text = path.to_str().unwrap();
    let Some(_) = perf(&["-o", path_text, "-x,", "-e", "page-faults", "--", "true"]) else {
        return;
    };
    let theirs = std::fs::read_to_string(&path).unwrap();
    let head: Vec<&str> = theirs.lines().take(2).collect();
    let ours = super::started_on(1_795_218_166, 0);
    // Names of days and months have three letters each.
    let letters = |text: &str| -> String {
        let words = text.split_whitespace().enumerate();
        words
            .map(|(at, word)| match at {
                3 | 4 => "Abc ".to_owned(),
                _ => format!("{} ", shape(word)),
            })
            .collect()
    };
    assert_eq!(letters(&ours), letters(&head.join("\n")));
    assert_eq!(head[1], "");
}
