//! `pmux bench`: what breakpoints cost.

use crate::common;
use crate::common::{Start, kernel, perf, pmux, skip_unless, start};
use serde_json::json;

fn bench(line: &str) -> Start {
    pmux(["bench"]).args(line.split_whitespace())
}

/// Whether a breakpoint is granted here. The machine's registers are locked.
fn breakpoints() -> bool {
    kernel() && common::needs("breakpoints", "a debug register", common::opens("mem:0x1000:w:u"))
}

/// The output with each number that was measured replaced, whatever its width.
fn without_figures(text: &str) -> Vec<String> {
    let line = |line: &str| match line.trim_start().split_once(' ') {
        Some((figure, unit)) if figure.parse::<f64>().is_ok() => format!("FIGURE {unit}"),
        _ if line.contains("Total time:") => "Total time".to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect()
}

#[test]
fn the_output_is_that_of_perf() {
    let Some(_registers) = common::debug_registers() else { return };
    skip_unless!(breakpoints());
    let lines: [(&[&str], &str); 4] = [
        (&["thread"], "10 threads with 1 breakpoints and 1 parallelism"),
        (&["thread", "-b", "2", "-p", "3", "-t", "4"], "10 threads with 2 breakpoints and 3 parallelism"),
        (&["enable"], "10 time with 0 passive and 0 active threads"),
        (&["enable", "-p", "2", "-a", "1"], "10 time with 2 passive and 1 active threads"),
    ];
    let perf = perf();
    for (line, title) in lines {
        let ours = pmux(["bench", "breakpoint"]).args(line).run().good().text();
        assert!(ours.contains(title), "{ours}");
        if perf {
            let theirs = start("perf", ["bench", "breakpoint"]).args(line).run().text();
            // A perf of another distribution may lack it.
            if theirs.contains("usecs/op") {
                assert_eq!(without_figures(&ours), without_figures(&theirs), "{line:?}\n{ours}\n{theirs}");
            }
        }
    }
}

#[test]
fn each_benchmark_is_an_object_for_programs() {
    let Some(_registers) = common::debug_registers() else { return };
    skip_unless!(breakpoints());
    // As with perf, how often may stand before the benchmark.
    for line in ["breakpoint thread -b 1 -p 2 -t 3 -r 5 -j", "-r 5 --json breakpoint thread -b 1 -p 2 -t 3"] {
        let found = bench(line).run().good().document();
        for (name, value) in [("breakpoints", 1), ("parallelism", 2), ("threads", 3), ("repeat", 5), ("operations", 15)]
        {
            assert_eq!(found[name], json!(value), "{name} of {found}");
        }
        assert_eq!((&found["benchmark"], &found["engine"]), (&json!("breakpoint/thread"), &json!("kernel")));
        let number = |name: &str| found[name].as_f64().unwrap();
        let (total, op, per_cpu) = (number("total_usecs"), number("usecs_per_op"), number("usecs_per_op_per_cpu"));
        assert!(op > 0.0 && (op * 15.0 - total).abs() < 1.0 && (op * 2.0 - per_cpu).abs() < 1.0, "{found}");
    }
    let found = bench("breakpoint enable -p 1 -r 3 -j").run().good().document();
    assert_eq!((&found["benchmark"], &found["passive"]), (&json!("breakpoint/enable"), &json!(1)));
    assert_eq!((&found["active"], &found["operations"]), (&json!(0), &json!(3)));
}

#[test]
fn the_ledger_needs_no_kernel_and_is_compared_with_a_list() {
    let line = "breakpoint thread -b 2 -p 4 -t 8 -r 6 --engine ledger --cpus 16";
    let found = bench(line).args(["-j"]).env("PMUX_BACKEND", "usage").run().good().document();
    assert_eq!((&found["engine"], &found["cpus"], &found["operations"]), (&json!("ledger"), &json!(16), &json!(48)));
    assert_eq!(found.get("baseline"), None);
    let both = bench(line).args(["--baseline", "list", "--json"]).run().good().document();
    let list = &both["baseline"];
    assert_eq!(
        (&list["algorithm"], &list["operations"], &list["wanted_operations"]),
        (&json!("list"), &json!(48), &json!(48))
    );
    let slower = list["times_slower"].as_f64().unwrap();
    let ratio = list["usecs_per_op"].as_f64().unwrap() / both["usecs_per_op"].as_f64().unwrap();
    assert!((slower / ratio - 1.0).abs() < 1e-6, "{both}");
    let text = bench(line).args(["--baseline", "list"]).run().good().text();
    assert!(text.contains("# In the ledger of a machine with 16 CPUs; median of "), "{text}");
    assert_eq!(text.matches(" usecs/op\n").count(), 2, "{text}");
    assert!(text.trim_end().ends_with("times faster"), "{text}");
    // Without --cpus it is as large as this machine.
    let here = bench("breakpoint thread --engine ledger -j").run().good().document();
    assert_eq!(here["cpus"], json!(pmux::Session::new().unwrap().online().len()));
}

#[test]
fn what_is_not_granted_is_said() {
    let Some(_registers) = common::debug_registers() else { return };
    let asked = "breakpoint thread -b 5 --engine ledger";
    bench(asked).run().bad(125, &["a task can't have 5 breakpoints", "4 of 4 debug registers"]);
    let without = ["breakpoint thread", "breakpoint enable -p 2 -a 1"];
    for line in without {
        let why = ["performance events can't be opened here", "PMUX_BACKEND=usage", "--engine ledger"];
        bench(line).env("PMUX_BACKEND", "usage").run().bad(125, &why);
    }
    skip_unless!(breakpoints());
    let ran = bench("breakpoint thread -b 64").run();
    assert_eq!((ran.code(), ran.text().as_str()), (125, ""));
    assert!(
        ran.err.contains(" of 64 breakpoints were granted: ") && ran.err.contains("debug registers"),
        "{}",
        ran.err
    );
}

#[test]
fn holders_of_the_registers_are_named() {
    let Some(_registers) = common::debug_registers() else { return };
    skip_unless!(breakpoints());
    // This process takes what there is, for every task on a CPU.
    let session = pmux::Session::new().unwrap();
    let many = (0..64).map(|n| format!("mem:{:#x}:w:u", 0x1000 * (n + 1))).collect::<Vec<_>>().join(",");
    let events = pmux::EventList::parse(&[&many], session.catalog()).unwrap();
    let options = pmux::Options { start: pmux::Start::Later, ..pmux::Options::default() };
    let first = pmux::Target::Cpus(pmux::CpuChoice::Only(session.online().iter().take(1).collect()));
    let Ok(_held) = session.open(&events, &first, options) else {
        common::needs("root", "the right to count whole CPUs", false);
        return;
    };
    for line in ["breakpoint thread", "breakpoint enable"] {
        let me = format!("({})", std::process::id());
        bench(line).run().bad(125, &["0 of 1 breakpoints were granted", "debug registers", &me]);
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let usage = "Usage: pmux bench breakpoint thread";
    bench("breakpoint thread --cpus 4").run().bad(125, &["--cpus is for --engine ledger", usage]);
    bench("breakpoint thread --baseline list").run().bad(125, &["give --engine ledger", usage]);
    bench("breakpoint thread --engine ledger --limit 3").run().bad(125, &["give --baseline", usage]);
    bench("breakpoint thread -t 0").run().bad(125, &["--threads"]);
    bench("breakpoint thread -r 0").run().bad(125, &["--repeat"]);
    bench("breakpoint enable -t 3").run().bad(125, &["-t"]);
    bench("breakpoint thread --engine ledger --baseline tree").run().bad(125, &["list"]);
    bench("breakpoints thread").run().bad(125, &["breakpoint"]);
    assert!(bench("breakpoint enable --help").run().good().text().contains("perf bench breakpoint enable"));
}
