//! Tests of the drawn process tree, and trees for the tests of its JSON.

use super::*;
use crate::stat::format::sample;

fn process(parent: Option<usize>, command: &str, pid: i32, values: Vec<Value>) -> Process {
    Process {
        parent,
        command: command.to_owned(),
        pid,
        threads: 1,
        start_ns: 0,
        wall_ns: 1_000_000,
        exit: Exit::Unknown,
        values,
    }
}

fn values(clock_us: f64, faults: f64) -> Vec<Value> {
    vec![Value::exact(clock_us * 1e3, 1_000_000), Value::exact(faults, 1_000_000), Value::NotSupported]
}

/// A shell with three children.
pub(in crate::stat::format) fn pipeline() -> (StatReport, ProcessTreeReport) {
    let mut report = sample::counted(&[("task-clock", 0.0), ("page-faults", 0.0), ("cycles", 0.0)]);
    let shell = "sh -c ls / | wc; sleep 0.1";
    report.command = shell.to_owned();
    report.elapsed_ns = 103_000_000;
    report.user_ns = Some(1_000_000);
    report.rows.clear();
    let mut root = process(None, shell, 100, values(1000.0, 120.0));
    root.wall_ns = 103_000_000;
    root.exit = Exit::Code(0);
    let mut ls = process(Some(0), "ls /", 101, values(700.0, 90.0));
    (ls.start_ns, ls.wall_ns) = (1, 1_500_000);
    let mut wc = process(Some(0), "wc", 102, values(0.0, 30.0));
    (wc.start_ns, wc.wall_ns) = (2, 1_600_000);
    wc.threads = 4;
    wc.exit = Exit::Signal(13);
    wc.values[0] = Value::Counted { raw: 1_800_000.0, enabled_ns: 1_000_000, running_ns: 500_000 };
    let mut sleep = process(Some(0), "sleep 0.1", 103, values(500.0, 50.0));
    (sleep.start_ns, sleep.wall_ns) = (3, 100_900_000);
    sleep.exit = Exit::Running;
    let tree = ProcessTreeReport { processes: vec![root, ls, wc, sleep], totals: Vec::new(), unattributed: Vec::new() };
    (report, tree)
}

/// A shell with this many equal children.
pub(in crate::stat::format) fn wide(count: i32) -> (StatReport, ProcessTreeReport) {
    let (report, mut tree) = pipeline();
    tree.processes.truncate(1);
    for at in 0..count {
        let pid = 1000 + at;
        tree.processes.push(process(Some(0), "true", pid, values(100.0, 2.0)));
    }
    (report, tree)
}

/// Every process the child of the one before.
pub(in crate::stat::format) fn chain(count: usize) -> (StatReport, ProcessTreeReport) {
    let (report, mut tree) = pipeline();
    tree.processes.truncate(1);
    for at in 1..count {
        let pid = i32::try_from(at).unwrap_or(i32::MAX);
        tree.processes.push(process(Some(at - 1), "nest", pid, values(1.0, 1.0)));
    }
    (report, tree)
}

fn page(report: &StatReport, tree: &ProcessTreeReport, detail: TreeDetail) -> String {
    compose(report, tree, detail, sample::PLAIN)
}

#[test]
fn a_pipeline_is_drawn() {
    let (report, tree) = pipeline();
    assert_eq!(
        page(&report, &tree, TreeDetail::Folded),
        "
 Performance counter stats for 'sh -c ls / | wc; sleep 0.1':

 command                        pid  wall ms  task-clock msec  page-faults
 sh -c ls / | wc; sleep 0.1     100   103.00             1.00          120
 ├─ ls /                        101     1.50             0.70           90
 ├─ wc [4 threads] [signal 13]  102     1.60       1.80 (50%)           30
 └─ sleep 0.1 [still running]   103   100.90             0.50           50
 total of 4 processes                 103.00       4.00 (88%)          290

       0.103000000 seconds time elapsed

"
    );
}

#[test]
fn equal_siblings_are_folded_with_their_children() {
    let (mut report, mut tree) = wide(4_998);
    report.command = "make".to_owned();
    report.user_ns = None;
    "make".clone_into(&mut tree.processes[0].command);
    for at in 1..=20 {
        let pid = 90_000 + at as i32;
        tree.processes.push(process(Some(at), "cc1", pid, values(10.0, 1.0)));
    }
    tree.processes.push(process(Some(0), "ld", 99_999, values(5.0, 5.0)));
    tree.processes[3].exit = Exit::Signal(9);
    tree.processes[4].exit = Exit::Signal(9);
    tree.processes[5].exit = Exit::Code(1);
    assert_eq!(
        page(&report, &tree, TreeDetail::Folded),
        "
 Performance counter stats for 'make':

 command                        pid   wall ms  task-clock msec  page-faults
 make                           100    103.00             1.00          120
 ├─ true ×4998 [signal 9 ×2]         4,998.00           499.80        9,996
 │  └─ cc1 ×20                          20.00             0.20           20
 └─ ld                        99999      1.00             0.01            5
 total of 5020 processes               103.00           501.00       10,141

       0.103000000 seconds time elapsed

"
    );
}

#[test]
fn verbose_draws_every_process() {
    let (report, tree) = wide(5_000);
    let text = page(&report, &tree, TreeDetail::Complete);
    assert_eq!(text.matches("─ true ").count(), 5_000);
    assert_eq!(text.matches("└─").count(), 1);
    let few = wide(8);
    let text = page(&few.0, &few.1, TreeDetail::Folded);
    assert_eq!(text.matches("─ true ").count(), 8);
}

#[test]
fn the_lines_add_up_to_the_total() {
    let (mut report, mut tree) = wide(3_000);
    report.events.truncate(2);
    report.events.remove(0);
    for (at, process) in tree.processes.iter_mut().enumerate() {
        process.values = vec![Value::exact(at as f64, 1)];
        process.command = format!("c{}", at % 7);
        process.parent = at.checked_sub(1).map(|below| below / 3);
    }
    let faults = |line: &str| {
        let last = line.split_whitespace().last().unwrap_or_default();
        last.replace(',', "").parse::<u64>().unwrap_or_default()
    };
    for detail in [TreeDetail::Folded, TreeDetail::Complete] {
        let text = page(&report, &tree, detail);
        let body: Vec<&str> = text.lines().skip(4).collect();
        let total_at = body.iter().position(|l| l.starts_with(" total of"));
        let (lines, rest) = body.split_at(total_at.unwrap_or(0));
        let sum: u64 = lines.iter().map(|line| faults(line)).sum();
        assert_eq!(sum, 3000 * 3001 / 2);
        assert_eq!(faults(rest[0]), sum);
    }
}

#[test]
fn a_long_chain_is_drawn_without_endless_rails() {
    let (report, tree) = chain(20_000);
    let text = page(&report, &tree, TreeDetail::Folded);
    assert_eq!(text.matches("└─ nest").count(), 19_999);
    assert!(text.contains("└─ nest [depth 19999]"));
    let longest = text.lines().map(text::columns).max();
    assert!(longest < Some(200), "{longest:?}");
}

#[test]
fn a_narrow_terminal_cuts_commands_only() {
    let (report, mut tree) = pipeline();
    tree.processes[1].command = "x".repeat(300);
    tree.processes[2].command = "y".repeat(300);
    let style = Style { width: Some(110), ..sample::PLAIN };
    let text = compose(&report, &tree, TreeDetail::Folded, style);
    for line in text.lines().skip(3).take(6) {
        assert!(text::columns(line) <= 110, "{line}");
    }
    assert!(text.contains("x… "));
    assert!(text.contains("y… [4 threads] [signal 13]"));
    // Even a useless width shows every number.
    let style = Style { width: Some(1), ..sample::PLAIN };
    let text = compose(&report, &tree, TreeDetail::Folded, style);
    assert!(text.contains("100.90"));
}

#[test]
fn a_parent_out_of_order_is_no_parent() {
    let (report, mut tree) = pipeline();
    tree.processes[0].parent = Some(3);
    tree.processes[1].parent = Some(1);
    tree.processes[2].parent = Some(77);
    let text = page(&report, &tree, TreeDetail::Folded);
    assert!(text.contains("\n wc "), "{text}");
    assert!(text.contains("\n ls / "), "{text}");
    assert_eq!(text.matches("─ ").count(), 1);
}

#[test]
fn an_empty_tree_has_a_total() {
    let (report, _) = pipeline();
    let text = page(&report, &ProcessTreeReport::default(), TreeDetail::Folded);
    assert!(text.contains(" total of 0 processes"), "{text}");
}

#[test]
fn a_narrow_terminal_keeps_the_numbers() {
    let (report, tree) = pipeline();
    let at = |width| {
        let page = compose(&report, &tree, TreeDetail::Folded, Style { width: Some(width), ..sample::PLAIN });
        let lines: Vec<String> = page.lines().skip(3).take_while(|line| !line.is_empty()).map(str::to_owned).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{page}");
        lines.join("\n")
    };
    assert_eq!(
        at(64),
        "                                              task-clock   page-
 command                        pid  wall ms        msec  faults
 sh -c ls / | wc; sleep 0.1     100   103.00        1.00     120
 ├─ ls /                        101     1.50        0.70      90
 ├─ wc [4 threads] [signal 13]  102     1.60  1.80 (50%)      30
 └─ sleep 0.1 [still running]   103   100.90        0.50      50
 total of 4 processes                 103.00  4.00 (88%)     290"
    );
    assert!(!at(46).contains("pid"));
}

#[test]
fn unattributed_counts_are_in_the_total() {
    let (report, mut tree) = pipeline();
    tree.unattributed = vec![Value::NotSupported, Value::exact(1000.0, 1), Value::NotSupported];
    tree.totals = vec![Value::exact(4e6, 1), Value::exact(1290.0, 1), Value::exact(7.0, 1)];
    let page = page(&report, &tree, TreeDetail::Folded);
    assert!(page.contains("            4.00        1,290       7\n"), "{page}");
    assert!(page.contains("            0.70           90       -\n"), "known of the whole only: {page}");
}
