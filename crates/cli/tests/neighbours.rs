//! What `pmux record` does to others who record.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Door, PMUX, kernel, perf, root, start};
use std::path::Path;

fn perf_says(subcommand: &[&str], file: &Path) -> String {
    start("perf", subcommand).args(["-i"]).args([file]).run().good().text()
}

/// Kernels that let build ids show in what they tell to others ended their recording when somebody came who asked for them.
#[test]
fn who_records_already_is_not_disturbed() {
    if !(kernel() && root() && perf()) {
        return;
    }
    let door = Door::new();
    let [theirs, ours] = ["perf.data", "pmux.data"].map(|name| door.path(name));
    let both = format!(
        "sleep 0.2; {PMUX} record -q -a -e cpu-clock -o {} -- sh -c 'ls / >/dev/null; ls / >/dev/null'",
        ours.display()
    );
    let words = ["record", "-q", "-a", "-e", "cpu-clock", "-o"];
    start("perf", words).args([&theirs]).args(["--", "sh", "-c", &both]).run().good();
    for file in [&theirs, &ours] {
        let names = perf_says(&["report", "--stdio", "--sort", "comm"], file);
        assert!(names.contains("ls") || names.contains("sh"), "{names}");
    }
    // What was mapped meanwhile is known by its build id all the same.
    assert!(perf_says(&["buildid-list"], &ours).contains("/ls"));
}
