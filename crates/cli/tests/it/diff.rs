//! `pmux diff` as a user meets it.

use crate::common::{SyncDir, kernel, pmux, record_faults, role, skip_unless};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn record(file: &Path, work: &str) -> PathBuf {
    record_faults(file, &[], role::words(work));
    file.to_owned()
}

fn json(before: &[PathBuf], after: &[PathBuf]) -> Value {
    pmux(["diff", "-j"]).args(before).args(["--"]).args(after).run().good().document()
}

#[test]
fn what_was_changed_is_marked_and_nothing_else() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let side = |name: &str, pages: usize| -> Vec<PathBuf> {
        (0..3).map(|run| record(&sync_dir.path(&format!("{name}{run}")), &format!("touch:{pages}"))).collect()
    };
    let (before, after) = (side("before", 100), side("after", 1000));
    let changed = json(&before, &after);
    let event = &changed["events"][0];
    assert_eq!(event["event"], "page-faults:u");
    assert_eq!(event["count"]["beyond_noise"], true, "{}", event["count"]);
    let functions = event["functions"].as_array().unwrap();
    let marked: Vec<&Value> = functions.iter().filter(|one| one["share"]["beyond_noise"] == true).collect();
    // What writes to the pages stands first: it has most of them now.
    assert!(marked[0]["share"]["change"].as_f64().unwrap() > 0.3, "{}", marked[0]);
    assert_eq!(functions[0]["share"]["beyond_noise"], true);
    let same = json(&before[..1], &before[1..]);
    let functions = same["events"][0]["functions"].as_array().unwrap();
    assert!(functions.iter().all(|one| one["share"]["beyond_noise"] == false), "{same}");
    assert_eq!(same["events"][0]["recordings"]["after"], 2);
}

#[test]
fn the_table_says_what_is_known() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let (before, after) = (record(&sync_dir.path("a"), "touch:100"), record(&sync_dir.path("b"), "touch:1000"));
    let text = pmux(["diff", "--rows", "2"]).args([&before, &after]).run().good().text();
    assert!(text.contains("two recordings or more of each side would tell how much runs differ"), "{text}");
    assert!(text.contains("beyond noise (*)") && text.contains("\n  * "), "{text}");
    assert!(text.contains("more: --rows 0 shows all"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" ± ")).count(), 2, "{text}");
    let none = sync_dir.path("none");
    pmux(["diff"]).args([&before, &none]).run().bad(125, &["there is no such file"]);
    pmux(["diff"]).args([&before]).run().bad(125, &["name two recordings"]);
    pmux(["diff", "-e", "cycles"]).args([&before, &after]).run().bad(125, &["there is no event cycles in it; it has"]);
}
