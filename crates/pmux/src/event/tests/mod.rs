//! Resolution on fabricated machines, and against `perf` on this one.

mod listing;
mod perf;
mod resolution;

use std::fs;
use std::path::Path;

use super::*;

/// Two fabricated core PMUs, uncore PMUs, and a few tracepoints.
pub(super) fn machine() -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7,32-35\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/edge", "config:18\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/events/cpu-cycles", "event=0x3c\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("cpu_atom/type", "10\n"),
        ("cpu_atom/cpus", "2-3\n"),
        ("cpu_atom/format/event", "config:0-7\n"),
        ("cpu_atom/events/cpu-cycles", "event=0x3c\n"),
        ("msr/type", "9\n"),
        ("msr/format/event", "config:0-63\n"),
        ("msr/events/tsc", "event=0x00\n"),
        ("power/type", "23\n"),
        ("power/cpumask", "0,18\n"),
        ("power/format/event", "config:0-7\n"),
        ("power/events/energy-pkg", "event=0x02\n"),
        ("power/events/energy-pkg.scale", "2.5e-10\n"),
        ("power/events/energy-pkg.unit", "Joules\n"),
        ("power/events/energy-pkg.per-pkg", "1\n"),
        ("power/events/energy-pkg.snapshot", "1\n"),
        ("power/events/energy-ram", "event=0x03\n"),
        ("power/events/energy-ram.unit", "Joules\n"),
        ("hv/type", "30\n"),
        ("hv/format/core", "config:16-23\n"),
        ("hv/format/event", "config:0-7\n"),
        ("hv/events/open", "event=0x7,core=?\n"),
        ("uncore_imc_0/type", "41\n"),
        ("uncore_imc_0/cpumask", "0\n"),
        ("uncore_imc_0/format/event", "config:0-7\n"),
        ("uncore_imc_0/events/clockticks", "event=0x01\n"),
        ("uncore_imc_1/type", "42\n"),
        ("uncore_imc_1/cpumask", "0\n"),
        ("uncore_imc_1/format/event", "config:0-7\n"),
        ("uncore_imc_1/events/clockticks", "event=0x01\n"),
        ("software/type", "1\n"),
    ] {
        write(dir.path(), &format!("bus/event_source/devices/{path}"), text);
    }
    for (path, id) in [
        ("sched/sched_switch", 316),
        ("sched/sched_wakeup", 317),
        ("raw_syscalls/sys_enter", 18),
        ("raw_syscalls/sys_exit", 19),
    ] {
        write(dir.path(), &format!("kernel/tracing/events/{path}/id"), &format!("{id}\n"));
    }
    let catalog = Catalog::at(dir.path());
    (dir, catalog)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
