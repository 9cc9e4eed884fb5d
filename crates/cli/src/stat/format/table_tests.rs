//! Tests of the table, as whole pages.

use super::*;
use crate::options::target::TargetSpec;
use crate::stat::format::sample;
use crate::stat::report::Note;
use crate::style::Color;

#[test]
fn a_plain_run() {
    let mut report = sample::plain();
    let note = Note::measurement("this machine has no hardware PMU").of(2);
    report.notes = vec![note.with_help(&["run on a machine with one"])];
    assert_eq!(
        compose(&report, sample::PLAIN),
        "
 Performance counter stats for 'ls -lR':

        636,876.00 msec task-clock                       #    0.529 CPUs utilized
                50      page-faults                      #    0.079 /sec
   <not supported>      cycles
     <not counted>      cache-misses
             3,000      msr/tsc/                         #    4.710 /sec                     (25.00%)

    1204.714000000 seconds time elapsed

       0.001992000 seconds user
       0.000000000 seconds sys

 cycles: not supported: this machine has no hardware PMU
   what helps: run on a machine with one

"
    );
}

#[test]
fn several_runs_show_deviations() {
    let mut report = sample::counted(&[("task-clock", 480_000.0), ("page-faults", 49.67)]);
    report.runs = 3;
    report.elapsed_ns = 1_036_800;
    report.elapsed_error_ns = Some(32_000.0);
    report.rows[0].deviation_pct = Some(2.79);
    report.rows[1].deviation_pct = Some(0.0);
    assert_eq!(
        compose(&report, sample::PLAIN),
        "
 Performance counter stats for 'ls -lR' (3 runs):

              0.48 msec task-clock                       #    0.463 CPUs utilized            ( +-  2.79% )
                50      page-faults                      #  103.479 K/sec

         0.0010368 +- 0.0000320 seconds time elapsed  ( +-  3.09% )

"
    );
}

#[test]
fn intervals_have_a_time_column_and_a_header_now_and_then() {
    let mut report = sample::counted(&[("page-faults", 80.0)]);
    report.period = ReportPeriod::Interval { at_ns: 100_222_309, number: 0 };
    assert_eq!(
        compose(&report, sample::PLAIN),
        "\
#           time             counts unit events
     0.100222309                 80      page-faults
"
    );
    report.period = ReportPeriod::Interval { at_ns: 200_000_000, number: 1 };
    report.notes = vec![Note::measurement("CPU 1 is offline")];
    assert_eq!(
        compose(&report, sample::PLAIN),
        concat!("     0.200000000                 80      page-faults\n", "# CPU 1 is offline\n")
    );
    report.period = ReportPeriod::Interval { at_ns: 200_000_000, number: 25 };
    assert!(compose(&report, sample::PLAIN).starts_with("#           time "));
}

#[test]
fn cpus_have_a_column() {
    let mut report = sample::per_cpu();
    assert_eq!(
        compose(&report, sample::PLAIN),
        "
 Performance counter stats for 'system wide':

CPU0                        5      page-faults
CPU1            <not counted>      page-faults

       1.000000000 seconds time elapsed

"
    );
    report.period = ReportPeriod::Interval { at_ns: 1_000_000_000, number: 0 };
    assert_eq!(
        compose(&report, sample::PLAIN),
        "\
#           time CPU                    counts unit events
     1.000000000 CPU0                        5      page-faults
     1.000000000 CPU1            <not counted>      page-faults
"
    );
}

#[test]
fn threads_have_a_column() {
    let mut report = sample::per_thread();
    assert_eq!(
        compose(&report, sample::PLAIN),
        "
 Performance counter stats for process id '7011':

              sh-7011                      9      page-faults

       1.000000000 seconds time elapsed

"
    );
    report.period = ReportPeriod::Interval { at_ns: 1_000_000_000, number: 0 };
    assert_eq!(
        compose(&report, sample::PLAIN),
        "\
#           time             comm-tid                  counts unit events
     1.000000000               sh-7011                      9      page-faults
"
    );
}

#[test]
fn cgroups_stand_between_name_and_metric() {
    let mut report = sample::counted(&[("task-clock", 1e9), ("task-clock", 2e9)]);
    report.measured = TargetSpec::Cpus(None);
    report.cgroups = vec!["web".to_owned(), "database".to_owned()];
    report.rows[0].scope.cgroup = Some(0);
    report.rows[1].scope.cgroup = Some(1);
    assert_eq!(
        compose(&report, sample::PLAIN),
        "
 Performance counter stats for 'system wide':

          1,000.00 msec task-clock                       web      #    1.000 CPUs utilized
          2,000.00 msec task-clock                       database #    2.000 CPUs utilized

       1.000000000 seconds time elapsed

"
    );
}

#[test]
fn a_second_metric_has_its_own_line() {
    let report = sample::counted(&[("instructions", 1e9), ("cycles", 5e8), ("stalled-cycles-frontend", 2.5e8)]);
    let page = compose(&report, sample::PLAIN);
    let lines: Vec<&str> = page.lines().skip(3).take(4).collect();
    assert_eq!(
        lines,
        [
            "     1,000,000,000      instructions                     #    2.00  insn per cycle",
            "                                                         #    0.25  stalled cycles per insn",
            "       500,000,000      cycles",
            "       250,000,000      stalled-cycles-frontend          #   50.00% frontend cycles idle",
        ]
    );
}

#[test]
fn nothing_counted_shows_the_time_only() {
    assert_eq!(
        compose(&sample::counted(&[]), sample::PLAIN),
        "\n Performance counter stats for 'ls -lR':\n\n       1.000000000 seconds time elapsed\n\n"
    );
}

#[test]
fn a_terminal_of_eighty_columns_has_room() {
    let report =
        sample::counted(&[("context-switches", 1e9), ("task-clock", 1e6), ("branch-misses", 5.0), ("branches", 9.0)]);
    let page = compose(&report, Style { width: Some(80), ..sample::PLAIN });
    for line in page.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(page.contains("context-switches #"), "{page}");
}

#[test]
fn long_names_keep_the_other_columns_straight() {
    let name = "cpu/event=0x3c,umask=0x0,name=a_rather_long_one/";
    let report = sample::counted(&[(name, 1.0), ("task-clock", 1e6)]);
    let page = compose(&report, sample::PLAIN);
    let marks: Vec<Option<usize>> = page.lines().skip(3).take(2).map(|l| l.find('#')).collect();
    assert_eq!(marks[0], marks[1]);
    assert!(marks[0].is_some());
}

#[test]
fn colour_marks_bad_ratios_and_does_not_move_columns() {
    let report = sample::counted(&[("branches", 10.0), ("branch-misses", 5.0)]);
    let page = compose(&report, Style { color: Color::On, ..sample::PLAIN });
    assert!(page.contains("\u{1b}[31m  50.00%\u{1b}[0m of all branches"));
    let plain = crate::without_colour(&page);
    let trimmed: Vec<&str> = plain.lines().map(str::trim_end).collect();
    let expected = compose(&report, sample::PLAIN);
    assert_eq!(trimmed, expected.lines().collect::<Vec<_>>());
}

#[test]
fn escape_sequences_in_names_do_not_reach_the_terminal() {
    let mut report = sample::per_thread();
    report.threads[0].comm = "\u{1b}[2J".to_owned();
    report.measured = TargetSpec::Command;
    report.command = "sh a\nb\u{7}".to_owned();
    let page = compose(&report, sample::PLAIN);
    assert!(!page.contains('\u{1b}') && !page.contains('\u{7}'));
    assert!(page.contains("'sh a\\nb\\u{7}'"));
}
