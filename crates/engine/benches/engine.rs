//! What the engine itself costs, on a machine whose counters are a few words of memory.
//!
//! What it is: forks, exits, readings and every other operation, with few and many tasks, relatives and exited children
//! about; medians of several rounds. The machine's own part (an uncontended lock and a few atomics for each call of a
//! bank or of the clock) is in the figures.
//!
//! `cargo bench -p pmux-engine` prints tables, with `-- --json` one JSON object. With `--test` (as `cargo test --benches`
//! passes) or `PMUX_BENCH_SMALL=1` everything runs once, small.

use pmux_abi::attr::AttrFlags;
use pmux_engine::inherit::Attribution;
use pmux_engine::{Engine, EventId, GroupId, GroupSpec, Opened, Target, TaskId};
use std::fmt::Write as _;
use std::time::Instant;

// The tests' machine says `crate::`, and means the engine.
pub(crate) use pmux_engine::{Sharing, cpu_mask, host, hw_breakpoint, id, lock, pmu, ring_buffer, target};

#[allow(dead_code)]
#[path = "../src/testing/mod.rs"]
mod testing;

use testing::locks::Plain;
use testing::{Machine, Near, PLENTY, event, flagged, group};

type Bench = Engine<Machine<Plain>>;

struct Size {
    rounds: usize,
    batch: usize,
    tasks: &'static [u64],
    exited: &'static [u64],
    live: &'static [u64],
}

const FULL: Size = Size {
    rounds: 15,
    batch: 1000,
    tasks: &[1, 10, 1_000, 100_000],
    exited: &[0, 10, 1_000, 100_000],
    live: &[0, 100, 4_000, 10_000],
};
const SMALL: Size = Size { rounds: 1, batch: 10, tasks: &[1, 10], exited: &[0, 10], live: &[0, 10] };
const EVENTS: [usize; 3] = [1, 8, 64];

/// One figure: what was measured, with how much of what about.
struct Figure {
    table: &'static str,
    row: String,
    column: String,
    ns: f64,
}

struct Report {
    size: Size,
    figures: Vec<Figure>,
}

impl Report {
    /// Takes the median of the rounds. `round` says how many nanoseconds one operation took.
    fn measure(&mut self, table: &'static str, row: &str, column: &str, mut round: impl FnMut() -> f64) {
        // The first round warms up.
        round();
        let rounds = (0..self.size.rounds).map(|_| round()).collect();
        self.note(table, row, column, rounds);
    }

    fn note(&mut self, table: &'static str, row: &str, column: &str, mut rounds: Vec<f64>) {
        rounds.sort_by(f64::total_cmp);
        self.figures.push(Figure {
            table,
            row: row.to_owned(),
            column: column.to_owned(),
            ns: rounds[rounds.len() / 2],
        });
    }

    fn print(&self) {
        let mut tables: Vec<_> = self.figures.iter().map(|figure| figure.table).collect();
        tables.dedup();
        for table in tables {
            let of_table = || self.figures.iter().filter(|figure| figure.table == table);
            let (mut rows, mut columns): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
            for figure in of_table() {
                if !rows.contains(&&*figure.row) {
                    rows.push(&figure.row);
                }
                if !columns.contains(&&*figure.column) {
                    columns.push(&figure.column);
                }
            }
            println!("\n{table}");
            let heads = columns.iter().fold(String::new(), |line, column| line + &format!("{column:>12}"));
            println!("{:24}{heads}", "");
            for row in rows {
                let cell = |column: &&str| of_table().find(|figure| figure.row == row && figure.column == *column);
                let cells = columns.iter().map(cell).map(|figure| figure.map(|figure| figure.ns));
                let text = |ns: Option<f64>| ns.map_or_else(|| format!("{:>12}", ""), |ns| format!("{ns:>12.0}"));
                println!("{row:24}{}", cells.map(text).collect::<String>());
            }
        }
    }

    fn print_json(&self) {
        let mut json = String::from("{\"unit\":\"ns\",\"figures\":[");
        for (index, figure) in self.figures.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let Figure { table, row, column, ns } = figure;
            // Writing into a string can't fail.
            let _ = write!(
                json,
                "{comma}{{\"table\":\"{table}\",\"row\":\"{row}\",\"column\":\"{column}\",\"ns\":{ns:.1}}}"
            );
        }
        println!("{json}]}}");
    }
}

/// Nanoseconds for each of `count` operations.
fn timed(count: usize, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64 / count.max(1) as f64
}

fn engine() -> Bench {
    Machine::<Plain>::engine_on(1, Near::Once)
}

fn inherited(events: usize) -> GroupSpec {
    group(PLENTY, &vec![flagged(1, AttrFlags::INHERIT); events])
}

fn opened(engine: &Bench, spec: &GroupSpec, task: u64) -> Opened {
    let opened = engine.open(spec, Target::task(TaskId(task))).unwrap_or_else(|error| panic!("{error}"));
    enable(engine, opened.group);
    opened
}

fn enable(engine: &Bench, group: GroupId) {
    engine.enable_group(group).unwrap_or_else(|error| panic!("{error}"));
}

fn fork(engine: &Bench, parent: u64, child: u64) {
    engine.task_fork(TaskId(parent), TaskId(child)).unwrap_or_else(|error| panic!("{error}"));
}

/// Fork and exit of a task whose parent has k inheriting events, with other relatives alive.
fn forks(report: &mut Report) {
    for (shape, grouped) in [("each alone", false), ("one group", true)] {
        for &live in report.size.live {
            for events in EVENTS {
                let engine = engine();
                let groups: Vec<_> = if grouped {
                    vec![opened(&engine, &inherited(events), 1)]
                } else {
                    (0..events).map(|_| opened(&engine, &inherited(1), 1)).collect()
                };
                let mut next = 2;
                // Relatives of one family are enough to see whether they cost anything.
                for _ in 0..live / events as u64 {
                    fork(&engine, 1, next);
                    next += 1;
                }
                let batch = report.size.batch / events + 1;
                let row = format!("{shape}, {live} live");
                report.measure(
                    "fork + exit of a task with k events, ns for the pair",
                    &row,
                    &format!("k={events}"),
                    || {
                        timed(batch, || {
                            for _ in 0..batch {
                                fork(&engine, 1, next);
                                engine.task_exit(TaskId(next));
                                next += 1;
                            }
                        })
                    },
                );
                groups.iter().for_each(|opened| engine.close(opened.group));
            }
        }
    }
}

/// Reading a root whose children have exited.
fn roots(report: &mut Report) {
    for (row, attribution) in [("totals", Attribution::Totals), ("each task kept", Attribution::EachTask)] {
        for &exited in report.size.exited {
            let engine = engine();
            let root = opened(&engine, &inherited(1), 1);
            engine.create_tree(TaskId(1), vec![root.events.clone()], attribution);
            for child in 2..exited + 2 {
                fork(&engine, 1, child);
                engine.task_exit(TaskId(child));
            }
            let batch = report.size.batch;
            report.measure("reading a root with so many exited children, ns", row, &exited.to_string(), || {
                timed(batch, || {
                    for _ in 0..batch {
                        read(&engine, root.events[0]);
                    }
                })
            });
        }
    }
    for &live in report.size.live {
        let engine = engine();
        let root = opened(&engine, &inherited(1), 1);
        (2..live + 2).for_each(|child| fork(&engine, 1, child));
        let batch = report.size.batch / (live as usize + 1) + 1;
        report.measure("reading a root with so many live children, ns", "totals", &live.to_string(), || {
            timed(batch, || (0..batch).for_each(|_| read(&engine, root.events[0])))
        });
    }
}

fn read(engine: &Bench, event: EventId) {
    let count = engine.read(event);
    assert!(std::hint::black_box(count).is_ok());
}

/// Every operation with so many tasks that have an event already.
fn operations(report: &mut Report) {
    const TABLE: &str = "one operation with so many tasks existing, ns";
    for &tasks in report.size.tasks {
        let engine = engine();
        let held: Vec<_> = (1..=tasks).map(|task| opened(&engine, &inherited(1), task)).collect();
        // Scattered over all tasks, so that memory is met as in life.
        let scattered = |index: usize| (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % tasks + 1;
        let batch = report.size.batch;
        let spec = group(PLENTY, &[event(1)]);
        let mut next = tasks + 1;
        let mut phases = [(); 7].map(|()| Vec::new());
        // The first round warms up.
        for round in 0..=report.size.rounds {
            let mut some: Vec<Opened> = Vec::with_capacity(batch);
            let open = |index| engine.open(&spec, Target::task(TaskId(scattered(index))));
            let ns = [
                timed(batch, || some.extend((0..batch).filter_map(|index| open(index).ok()))),
                timed(batch, || some.iter().for_each(|opened| enable(&engine, opened.group))),
                timed(batch, || some.iter().for_each(|opened| read(&engine, opened.events[0]))),
                timed(batch, || some.iter().for_each(|opened| assert!(engine.disable_group(opened.group).is_ok()))),
                timed(batch, || some.iter().for_each(|opened| engine.close(opened.group))),
                timed(batch, || (0..batch).for_each(|index| fork(&engine, scattered(index), next + index as u64))),
                timed(batch, || (0..batch).for_each(|index| engine.task_exit(TaskId(next + index as u64)))),
            ];
            assert_eq!(some.len(), batch);
            next += batch as u64;
            if round > 0 {
                phases.iter_mut().zip(ns).for_each(|(phase, ns)| phase.push(ns));
            }
        }
        for (row, rounds) in ["open", "enable", "read", "disable", "close", "fork", "exit"].into_iter().zip(phases) {
            report.note(TABLE, row, &tasks.to_string(), rounds);
        }
        held.iter().for_each(|opened| engine.close(opened.group));
    }
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    let small = has("--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some_and(|value| value != "0");
    let mut report = Report { size: if small { SMALL } else { FULL }, figures: Vec::new() };
    forks(&mut report);
    roots(&mut report);
    operations(&mut report);
    if has("--json") { report.print_json() } else { report.print() }
}
