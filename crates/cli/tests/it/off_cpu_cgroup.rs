//! Waits of a control group: `pmux record --off-cpu -G`.

use crate::common::stolen::Stolen;
use crate::common::{linux_is_at_least, needs, new_file, pmux, sleeping};
use crate::off_cpu::{are_as_long_as_they_were, are_for_what_they_are_made, example, report, sees_waits, waits};
use pmux_linux::cgroup::Mounts;
use pmux_testkit::Cgroup;
use std::path::Path;

/// A group, and one below it; `None` where events are in groups of version 1, or programs see no waits.
fn groups(name: &str) -> Option<(Cgroup, Cgroup)> {
    let is_v2 = Mounts::system().is_ok_and(|mounts| !mounts.events_are_in_v1());
    let is_new = || needs("bpf", "Linux 6.1", linux_is_at_least(6, 1));
    if !sees_waits() || !is_new() || !needs("cgroup", "control groups of version 2", is_v2) {
        return None;
    }
    let outer = Cgroup::make(name)?;
    let inner = outer.below("inner");
    Some((outer, inner))
}

/// What comes into the group, and what is born there, is recorded, as exactly as without a group.
#[test]
fn waits_are_as_long_as_the_program_says() {
    let Some((_dir, example, file)) = example("all.data") else { return };
    let Some((outer, inner)) = groups("waits") else { return };
    let _other = sleeping();
    let before = Stolen::now();
    let enter = "echo $$ > $0/cgroup.procs && exec $1 all";
    let mut record = pmux(["record", "--off-cpu=0", "-m", "8M", "-G", outer.name(), "-o"]).args([&file]);
    record.command.current_dir(file.parent().unwrap());
    let ran = record.args(["--", "sh", "-c", enter]).args([&inner.path, &example]).run().good();
    let (stolen, seen) = (before.since_ns(), waits(&file));
    are_as_long_as_they_were(&seen, &ran, stolen, 1_000);
    are_for_what_they_are_made(&seen);
    assert!(!seen.contains_key("sleep"), "what is in no such group: {seen:?}");
    inner.remove();
}

/// What slept before, and sleeps on, has waited all the time; what is in a group beside it is not recorded.
#[test]
fn what_slept_before_is_recorded() {
    let Some((outer, inner)) = groups("slept") else { return };
    let beside = outer.below("beside");
    let (within, other, third) = (sleeping(), sleeping(), sleeping());
    inner.take_in(within.pid().cast_signed());
    [&other, &third].iter().for_each(|of| beside.take_in(of.pid().cast_signed()));
    let (_dir, file) = new_file("w.data");
    let group = format!("{}/inner", outer.name());
    let words = pmux(["record", "--off-cpu", "-G", &group, "-o"]).args([&file, Path::new("--")]);
    let ran = words.args(["sleep", "0.3"]).run().good();
    let told = report(&file, &["--wall", "-s", "tid,symbol"]);
    let rows = told["events"][0]["rows"].as_array().unwrap();
    let slept = rows.iter().filter(|row| row["symbol"] == "[sleep]");
    let slept: Vec<_> = slept.map(|row| (row["tid"].as_i64().unwrap(), row["children"]["period"].as_u64())).collect();
    assert!(
        matches!(slept[..], [(tid, Some(290_000_000..))] if tid == i64::from(within.pid())),
        "{slept:?} {}",
        ran.err
    );
    // What comes into it while it sleeps has waited there for no time that is known.
    let (other_pid, third_pid) = (other.pid(), third.pid());
    let come = format!(
        "sleep 0.1; for pid in {other_pid} {third_pid}; do echo $pid > $0/cgroup.procs; done; sleep 0.1; kill {other_pid}"
    );
    let words = pmux(["record", "--off-cpu", "-G", &group, "-o"]).args([&file, Path::new("--")]);
    words.args(["sh", "-c", &come]).args([&inner.path]).run().good();
    let told = report(&file, &["--wall", "-s", "tid,symbol"]);
    let rows = told["events"][0]["rows"].as_array().unwrap();
    let slept: Vec<_> = rows.iter().filter(|row| row["symbol"] == "[sleep]").map(|row| &row["tid"]).collect();
    assert_eq!(slept, [within.pid()], "{told}");
    drop((within, other, third));
    [inner, beside].iter().for_each(Cgroup::remove);
}

#[test]
fn several_groups_are_refused() {
    let Some((outer, inner)) = groups("several") else { return };
    let (_dir, file) = new_file("none.data");
    let names = format!("{0},{0}/inner", outer.name());
    let ran = pmux(["record", "--off-cpu", "-G", &names, "-o"]).args([&file]).args(["--", "true"]).run();
    ran.bad(125, &["waits are of threads: --off-cpu goes with", "one -G"]);
    inner.remove();
}
