//! The catalog on fabricated trees, and on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use pmux_testkit::put;

fn machine() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let devices = "bus/event_source/devices";
    for (path, text) in [
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/events/cpu-cycles", "event=0x3c\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("power/type", "23\n"),
        ("power/cpumask", "0,18\n"),
        ("power/events/energy-pkg", "event=0x02\n"),
        ("power/events/energy-pkg.scale", "2.3283064365386962890625e-10\n"),
        ("power/events/energy-pkg.unit", "Joules\n"),
        ("power/events/energy-pkg.per-pkg", "1\n"),
        ("power/events/level", "event=0x03\n"),
        ("power/events/level.snapshot", "1\n"),
        ("uncore_imc_10/type", "42\n"),
        ("uncore_imc_9/type", "41\n"),
        ("uncore_imc_9/events/clockticks", "event=0x00\n"),
        ("cpu_atom/type", "10\n"),
        ("cpu_atom/cpus", "16-17\n"),
        ("bad/type", "x\n"),
        ("bad_format/type", "50\n"),
        ("bad_format/format/f", "nonsense\n"),
    ] {
        put(root, &format!("{devices}/{path}"), text);
    }
    for (path, text) in [
        ("sched/sched_switch/id", "316\n"),
        ("sched/sched_wakeup/id", "317\n"),
        ("sched/enable", "0\n"),
        ("skb/kfree_skb/id", "9\n"),
        ("enable", "0\n"),
    ] {
        put(root, &format!("kernel/tracing/events/{path}"), text);
    }
    let catalog = Catalog::at(root);
    (dir, catalog)
}

#[test]
fn a_pmu_with_its_fields_and_names() {
    let (_dir, catalog) = machine();
    let cpu = catalog.pmu("cpu").unwrap();
    assert_eq!((cpu.kind(), cpu.role().unwrap(), cpu.cpus().unwrap()), (4, PmuRole::Core, &PmuCpus::Any));
    assert_eq!(cpu.formats().unwrap()["umask"].scatter(1), Ok(0x100));
    assert_eq!(cpu.alias_names().unwrap(), ["cpu-cycles", "mem-loads"]);
    let loads = cpu.alias("MEM-loads").unwrap();
    assert_eq!(loads.name, "mem-loads");
    assert_eq!(loads.terms.len(), 3);
    assert_eq!(loads.terms[2], ("ldlat".to_owned(), AliasValue::Number(3)));
}

#[test]
fn what_stands_beside_an_alias() {
    let (_dir, catalog) = machine();
    let power = catalog.pmu("power").unwrap();
    assert_eq!(power.cpus().unwrap(), &PmuCpus::OnePerPackage(vec![0, 18]));
    assert_eq!(power.role().unwrap(), PmuRole::Other);
    assert_eq!(power.alias_names().unwrap(), ["energy-pkg", "level"]);
    let energy = power.alias("energy-pkg").unwrap();
    assert_eq!(energy.unit.as_deref(), Some("Joules"));
    assert_eq!(energy.scale, Some(2.328_306_436_538_696_3e-10));
    assert_eq!((energy.kind, energy.extent), (AliasKind::Sum, AliasExtent::Package));
    assert_eq!(power.alias("level").unwrap().kind, AliasKind::Snapshot);
}

#[test]
fn core_pmus_of_mixed_machines_name_their_cpus() {
    let (_dir, catalog) = machine();
    let atom = catalog.pmu("cpu_atom").unwrap();
    assert_eq!(atom.cpus().unwrap(), &PmuCpus::Only(vec![16, 17]));
    assert_eq!(atom.role().unwrap(), PmuRole::Core);
}

#[test]
fn a_name_can_stand_for_several_pmus() {
    let (_dir, catalog) = machine();
    let names = |given: &str| -> Vec<String> {
        catalog
            .pmus_named(given)
            .map(|found| found.iter().map(|pmu| pmu.name().to_owned()).collect())
            .unwrap_or_default()
    };
    assert_eq!(names("uncore_imc"), ["uncore_imc_9", "uncore_imc_10"]);
    assert_eq!(names("imc"), ["uncore_imc_9", "uncore_imc_10"]);
    assert_eq!(names("imc_9"), ["uncore_imc_9"]);
    assert_eq!(names("uncore_*"), ["uncore_imc_9", "uncore_imc_10"]);
    assert_eq!(names("cpu"), ["cpu"], "an exact name wins over cpu_atom");
    assert_eq!(names("im"), [""; 0]);
    let with = catalog.pmus_with_alias("clockticks").unwrap();
    assert_eq!(with.iter().map(|pmu| pmu.name()).collect::<Vec<_>>(), ["uncore_imc_9"]);
}

#[test]
fn each_failure_says_what_is_missing() {
    let (_dir, catalog) = machine();
    assert_eq!(catalog.pmu("nope").unwrap_err(), CatalogError::NoSuchPmu { pmu: "nope".into() });
    assert!(matches!(catalog.pmu("../devices/cpu").unwrap_err(), CatalogError::NoSuchPmu { .. }));
    assert!(matches!(catalog.pmu("bad").unwrap_err(), CatalogError::Malformed { .. }));
    assert!(matches!(catalog.pmu("bad_format").unwrap().formats().unwrap_err(), CatalogError::Malformed { .. }));
    assert!(matches!(catalog.pmu("cpu").unwrap().alias("x").unwrap_err(), CatalogError::NoSuchEvent { .. }));
    assert!(matches!(catalog.pmu("cpu").unwrap().alias("../type").unwrap_err(), CatalogError::NoSuchEvent { .. }));
    assert!(matches!(catalog.tracepoint("sched", "x").unwrap_err(), CatalogError::NoSuchTracepoint { .. }));
    assert!(matches!(catalog.tracepoint("..", "sched").unwrap_err(), CatalogError::NoSuchTracepoint { .. }));
    let empty = tempfile::tempdir().unwrap();
    let nothing = Catalog::at(empty.path());
    assert!(matches!(nothing.pmu_names().unwrap_err(), CatalogError::NoSysfs { .. }));
    assert!(matches!(nothing.tracepoint("sched", "x").unwrap_err(), CatalogError::NoTracefs { .. }));
    assert_eq!(nothing.pmus_with_alias("x").unwrap().len(), 0);
}

#[test]
fn tracepoints_and_patterns() {
    let (_dir, catalog) = machine();
    assert_eq!(catalog.tracepoint("sched", "sched_switch"), Ok(316));
    assert_eq!(catalog.tracepoint_systems().unwrap(), ["sched", "skb"]);
    assert_eq!(catalog.tracepoint_names("sched").unwrap(), ["sched_switch", "sched_wakeup"]);
    let found = catalog.tracepoints_matching("s*", "*s?*_s*").unwrap();
    assert_eq!(found, [("sched".to_owned(), "sched_switch".to_owned())]);
    assert_eq!(catalog.tracepoints_matching("*", "*").unwrap().len(), 3);
}

#[test]
fn tracefs_under_debugfs_is_the_second_place() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("kernel/tracing")).unwrap();
    put(dir.path(), "kernel/debug/tracing/events/a/b/id", "7\n");
    assert_eq!(Catalog::at(dir.path()).tracepoint("a", "b"), Ok(7));
}

#[test]
fn unreadable_is_not_missing() {
    let (dir, catalog) = machine();
    let tracing = dir.path().join("kernel/tracing");
    fs::set_permissions(&tracing, fs::Permissions::from_mode(0o000)).unwrap();
    let answer = catalog.tracepoint("sched", "sched_switch");
    let as_root = fs::read_dir(&tracing).is_ok();
    fs::set_permissions(&tracing, fs::Permissions::from_mode(0o755)).unwrap();
    if as_root {
        return println!("skipped: needs a user that file permissions can stop");
    }
    assert!(matches!(answer.unwrap_err(), CatalogError::Denied { .. }));
}

#[test]
fn nothing_is_read_before_it_is_asked_for() {
    let (dir, catalog) = machine();
    // Files that appear after the catalog was made are seen: so none was read when it was made.
    put(dir.path(), "bus/event_source/devices/late/type", "77\n");
    put(dir.path(), "kernel/tracing/events/late/one/id", "78\n");
    assert_eq!(catalog.pmu("late").unwrap().kind(), 77);
    assert_eq!(catalog.tracepoint("late", "one"), Ok(78));
}

#[test]
fn this_machine() {
    let catalog = Catalog::system();
    let Ok(names) = catalog.pmu_names() else { return println!("skipped: needs sysfs") };
    assert!(names.iter().any(|name| name == "software"), "{names:?}");
    for name in names {
        let pmu = catalog.pmu(name).unwrap();
        pmu.formats().unwrap();
        pmu.cpus().unwrap();
        for alias in pmu.alias_names().unwrap() {
            pmu.alias(alias).unwrap();
        }
    }
    assert_eq!(catalog.pmu("software").unwrap().kind(), 1);
    match catalog.tracepoint("sched", "sched_switch") {
        Ok(id) => assert!(id > 0),
        Err(error) => println!("skipped: needs a readable tracefs: {error}"),
    }
}
