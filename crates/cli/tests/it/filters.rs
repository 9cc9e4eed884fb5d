//! `--filter`: of a tracepoint, some hits only.

use crate::common::{SyncDir, pmux, skip_unless, stat};
use pmux_testkit::hotplug::{CpuSwitch, SWITCH};
use pmux_testkit::needs;

const WRITES: &str = "syscalls:sys_enter_write";

/// Writes 40 times so many bytes, and 60 times others, each in a child. Tests run side by side: each has its own numbers.
fn copies(some: u32, others: u32) -> String {
    format!(
        "for how in 'bs={some} count=40' 'bs={others} count=60'; do dd if=/dev/zero of=/dev/null status=none $how; done"
    )
}

fn has_tracepoints() -> bool {
    let ran = stat(["-x,", "-e", WRITES, "true"]).run();
    needs("tracefs", "tracepoints of system calls", ran.code() == 0 && !ran.err.contains("not supported"))
}

#[test]
fn each_event_has_its_own_filter() {
    skip_unless!(has_tracepoints());
    let first = ["-e", WRITES, "--filter", "count == 7777"];
    let second = ["-e", WRITES, "--filter", "count > 4443", "--filter", "count < 4445"];
    let both = ["-e", WRITES, "--filter", "count == 7777 || count == 4444", "--", "sh", "-c", &copies(7777, 4444)];
    for whose in [&[][..], &["-a"], &["--no-inherit"]] {
        let ran = stat(["-x,"]).args(whose).args(first).args(second).args(both).run().good();
        let counts: Vec<_> = ran.err.lines().filter_map(|line| line.split(',').next()?.parse::<u64>().ok()).collect();
        // With -i the shell alone is counted, which writes nothing.
        assert_eq!(counts, if whose == ["--no-inherit"] { [0, 0, 0] } else { [40, 60, 100] }, "{whose:?}\n{}", ran.err);
    }
}

#[test]
fn what_a_filter_holds_back_is_not_recorded() {
    skip_unless!(has_tracepoints());
    let folder = SyncDir::new();
    let file = folder.text("data");
    let events = ["-e", WRITES, "--filter", "count == 6161", "-e", WRITES, "--filter", "count == 5151"];
    pmux(["record", "-q", "-o", &file]).args(events).args(["--", "sh", "-c", &copies(6161, 5151)]).run().good();
    let script = pmux(["script", "-i", &file]).run().good();
    let with = |size: &str| script.text().lines().filter(|line| line.contains(&format!("count: {size}"))).count();
    assert_eq!((with("0x00001811"), with("0x0000141f"), script.text().lines().count()), (40, 60, 100));
}

#[test]
fn a_filter_that_fits_nothing_is_explained() {
    skip_unless!(has_tracepoints());
    let wrong = |arguments: &[&str]| stat(arguments.iter().copied()).args(["true"]).run().err;
    let said = wrong(&["-e", WRITES, "--filter", "cuont == 7"]);
    assert!(said.contains("does not take the filter `cuont == 7`") && said.contains("did you mean count?"), "{said}");
    let said = wrong(&["-e", WRITES, "-e", "page-faults", "--filter", "count == 7"]);
    assert!(said.contains("page-faults of the -e before it is none"), "{said}");
}

/// Without its filter the event would count 1,000 more there.
#[test]
fn a_cpu_that_comes_has_the_filter_too() {
    let Some(_switch) = CpuSwitch::take() else { return };
    skip_unless!(has_tracepoints());
    let copy = |how: &str| format!("taskset -c 1 dd if=/dev/zero of=/dev/null status=none {how}");
    let (some, others) = (copy("bs=7333 count=30"), copy("bs=4333 count=1000"));
    let line = format!("sleep 0.2; echo 0 >{SWITCH}; sleep 0.2; echo 1 >{SWITCH}; sleep 0.4; {some}; {others}");
    let filter = ["-e", WRITES, "--filter", "count == 7333"];
    let ran = stat(["-a", "-A", "-x,"]).args(filter).args(["--", "sh", "-c", &line]).run().good();
    let row = ran.err.lines().find(|line| line.starts_with("CPU1,")).unwrap();
    let count: u64 = row.split(',').nth(1).unwrap().parse().unwrap();
    assert!(count <= 30, "{}", ran.err);
}
