//! Reports for the tests of all formats.

use crate::options::target::TargetSpec;
use crate::stat::report::{EventColumn, Row, RowScope, StatReport, ThreadName, Value};
use crate::style::{Color, Grouping, Style};

/// Plain text without a width.
pub(in crate::stat) const PLAIN: Style = Style { color: Color::Off, width: None, grouping: Grouping::Thousands };

const SECOND_NS: u64 = 1_000_000_000;

/// A report of 1 s with these events, each counted all the time.
pub(in crate::stat) fn counted(events: &[(&str, f64)]) -> StatReport {
    let column = |name: &str| match name {
        "task-clock" | "cpu-clock" => EventColumn::new(name, name).with_unit("msec", 1e-6),
        _ => EventColumn::new(name, name),
    };
    StatReport {
        command: "ls -lR".to_owned(),
        events: events.iter().map(|&(name, _)| column(name)).collect(),
        rows: (0..).zip(events).map(|(event, &(_, raw))| Row::all(event, Value::exact(raw, SECOND_NS))).collect(),
        elapsed_ns: SECOND_NS,
        runs: 1,
        shows_help: true,
        ..StatReport::default()
    }
}

/// A run with all kinds of values.
pub(super) fn plain() -> StatReport {
    let mut report = counted(&[
        ("task-clock", 636_876e6),
        ("page-faults", 50.0),
        ("cycles", 0.0),
        ("cache-misses", 0.0),
        ("msr/tsc/", 3000.0),
    ]);
    report.elapsed_ns = 1_204_714_000_000;
    report.user_ns = Some(1_992_000);
    report.system_ns = Some(0);
    report.rows[0].value = Value::exact(636_876e6, 636_876_000_000);
    report.rows[1].value = Value::exact(50.0, 636_876_000_000);
    report.rows[2].value = Value::NotSupported;
    report.rows[3].value = Value::NotCounted { enabled_ns: 700 };
    report.rows[4].value = Value::Counted { raw: 3000.0, enabled_ns: 1000, running_ns: 250 };
    report
}

/// One event on two CPUs, one of which counted.
pub(super) fn per_cpu() -> StatReport {
    let mut report = counted(&[("page-faults", 5.0), ("page-faults", 0.0)]);
    report.measured = TargetSpec::Cpus(None);
    report.events.truncate(1);
    report.rows[0].scope.cpu = Some(0);
    report.rows[1].scope.cpu = Some(1);
    report.rows[1].event = 0;
    report.rows[1].value = Value::NotCounted { enabled_ns: 0 };
    report
}

/// One event of one thread.
pub(super) fn per_thread() -> StatReport {
    let mut report = counted(&[("page-faults", 9.0)]);
    report.measured = TargetSpec::Pids(vec![7011]);
    report.threads = vec![ThreadName { comm: "sh".to_owned(), tid: 7011 }];
    report.rows[0].scope = RowScope { thread: Some(0), ..RowScope::default() };
    report
}
