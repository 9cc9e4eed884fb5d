//! What a benchmark found, for people and for programs.
//!
//! What it is: [`BenchReport`], with the text of `perf bench` and one JSON object.
//!
//! **Invariant:** pure.

use pmux::bench::{BooksCost, Cost, EnableLoad, ThreadLoad};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

pub(super) enum BenchReport {
    /// Threads start and end.
    Threads { load: ThreadLoad, measured: MeasuredOn },
    /// A breakpoint is switched off and on.
    Switching { load: EnableLoad, cost: Cost },
}

pub(super) enum MeasuredOn {
    /// This kernel.
    Kernel(Cost),
    /// The ledger of a machine with so many CPUs; and the list, where it was to be compared with that.
    Ledger { cpus: u32, found: BooksCost, list: Option<Beside> },
}

/// What the ledger is compared with.
pub(super) struct Beside {
    pub(super) found: BooksCost,
    /// How long it was to take at most.
    pub(super) limit: Duration,
}

impl MeasuredOn {
    fn cost(&self) -> Cost {
        match self {
            Self::Kernel(cost) => *cost,
            Self::Ledger { found, .. } => found.cost,
        }
    }
}

/// How many times faster the ledger is.
fn times(ledger: Cost, list: Cost) -> f64 {
    list.usecs_per_op() / ledger.usecs_per_op()
}

fn total(out: &mut String, cost: Cost) {
    let _ = write!(out, " {:>14}: {}.{:03} [sec]\n\n", "Total time", cost.total.as_secs(), cost.total.subsec_millis());
}

fn both(out: &mut String, cost: Cost) {
    total(out, cost);
    let _ = writeln!(out, " {:14.6} usecs/op", cost.usecs_per_op());
    let _ = writeln!(out, " {:14.6} usecs/op/cpu", cost.usecs_per_op_per_cpu());
}

impl BenchReport {
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Threads { load, measured } => {
                out.push_str("# Running 'breakpoint/thread' benchmark:\n");
                let ThreadLoad { breakpoints, parallelism, repeat, .. } = load;
                let _ = writeln!(
                    out,
                    "# Created/joined {repeat} threads with {breakpoints} breakpoints and {parallelism} parallelism"
                );
                if let MeasuredOn::Ledger { cpus, found: BooksCost { runs, .. }, .. } = measured {
                    let _ = writeln!(out, "# In the ledger of a machine with {cpus} CPUs; median of {runs} runs");
                }
                both(&mut out, measured.cost());
                if let MeasuredOn::Ledger { found, list: Some(list), .. } = measured {
                    compared(&mut out, found.cost, list);
                }
            }
            Self::Switching { load, cost } => {
                let EnableLoad { passive, active, repeat } = load;
                let _ = writeln!(
                    out,
                    "# Running 'breakpoint/enable' benchmark:\n# Enabled/disabled breakpoint {repeat} time with {passive} passive \
                     and {active} active threads"
                );
                total(&mut out, *cost);
                let _ = writeln!(out, " {:14.6} usecs/op", cost.usecs_per_op());
            }
        }
        out
    }

    pub(super) fn json(&self) -> String {
        let (mut object, cost) = match self {
            Self::Threads { load, measured } => {
                let ThreadLoad { breakpoints, parallelism, threads, repeat } = load;
                let mut object = json!({
                    "benchmark": "breakpoint/thread",
                    "engine": "kernel",
                    "breakpoints": breakpoints,
                    "parallelism": parallelism,
                    "threads": threads,
                    "repeat": repeat,
                });
                if let MeasuredOn::Ledger { cpus, found: ledger, list } = measured {
                    object["engine"] = json!("ledger");
                    object["cpus"] = json!(cpus);
                    object["runs"] = json!(ledger.runs);
                    if let Some(Beside { found, .. }) = list {
                        let mut beside = json!({
                            "algorithm": "list",
                            "wanted_operations": found.wanted,
                            "times_slower": times(ledger.cost, found.cost),
                        });
                        add(&mut beside, found.cost);
                        object["baseline"] = beside;
                    }
                }
                (object, measured.cost())
            }
            Self::Switching { load, cost } => {
                let EnableLoad { passive, active, repeat } = load;
                let object = json!({
                    "benchmark": "breakpoint/enable",
                    "engine": "kernel",
                    "passive": passive,
                    "active": active,
                    "repeat": repeat,
                });
                (object, *cost)
            }
        };
        add(&mut object, cost);
        format!("{object}\n")
    }
}

/// The list beside the ledger.
fn compared(out: &mut String, ledger: Cost, list: &Beside) {
    let Beside { found, limit } = list;
    let _ = writeln!(out, "\n# The same with one lock, one list that is scanned, and a loop over all CPUs");
    if found.cost.operations < found.wanted {
        let (done, wanted) = (found.cost.operations, found.wanted);
        let _ = writeln!(out, "# Ended after {} s (--limit): {done} of {wanted} operations were done", limit.as_secs());
    }
    both(out, found.cost);
    let _ = writeln!(out, "\n# The ledger is {:.0} times faster", times(ledger, found.cost));
}

fn add(object: &mut Value, cost: Cost) {
    object["operations"] = json!(cost.operations);
    // As many digits as the text has.
    let rounded = |usecs: f64| json!((usecs * 1e6).round() / 1e6);
    object["total_usecs"] = rounded(cost.total.as_secs_f64() * 1e6);
    object["usecs_per_op"] = rounded(cost.usecs_per_op());
    object["usecs_per_op_per_cpu"] = rounded(cost.usecs_per_op_per_cpu());
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { total: Duration::from_millis(1500), operations: 1000, parallelism: 4 };
    const LOAD: ThreadLoad = ThreadLoad { breakpoints: 2, parallelism: 4, threads: 100, repeat: 10 };

    #[test]
    fn the_text_is_that_of_perf() {
        let report = BenchReport::Threads { load: LOAD, measured: MeasuredOn::Kernel(COST) };
        let expected = "\
# Running 'breakpoint/thread' benchmark:
# Created/joined 10 threads with 2 breakpoints and 4 parallelism
     Total time: 1.500 [sec]

    1500.000000 usecs/op
    6000.000000 usecs/op/cpu
";
        assert_eq!(report.text(), expected);
        let load = EnableLoad { passive: 1, active: 2, repeat: 1000 };
        let expected = "\
# Running 'breakpoint/enable' benchmark:
# Enabled/disabled breakpoint 1000 time with 1 passive and 2 active threads
     Total time: 1.500 [sec]

    1500.000000 usecs/op
";
        assert_eq!(BenchReport::Switching { load, cost: COST }.text(), expected);
    }

    #[test]
    fn what_was_not_done_is_said() {
        let slow = Cost { total: Duration::from_secs(60), operations: 10, parallelism: 4 };
        let found = BooksCost { cost: slow, wanted: 1000, runs: 1 };
        let list = Some(Beside { found, limit: Duration::from_secs(60) });
        let found = BooksCost { cost: COST, wanted: 1000, runs: 7 };
        let report = BenchReport::Threads { load: LOAD, measured: MeasuredOn::Ledger { cpus: 256, found, list } };
        let text = report.text();
        assert!(text.contains("# In the ledger of a machine with 256 CPUs; median of 7 runs\n"), "{text}");
        assert!(text.contains("# Ended after 60 s (--limit): 10 of 1000 operations were done\n"), "{text}");
        assert!(text.ends_with(
            " 6000000.000000 usecs/op\n 24000000.000000 usecs/op/cpu\n\n# The ledger is 4000 times faster\n"
        ));
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!((&json["engine"], &json["cpus"]), (&json!("ledger"), &json!(256)));
        assert_eq!((&json["usecs_per_op"], &json["usecs_per_op_per_cpu"]), (&json!(1500.0), &json!(6000.0)));
        assert_eq!((&json["baseline"]["times_slower"], &json["baseline"]["operations"]), (&json!(4000.0), &json!(10)));
    }
}
