//! `EMFILE`, `ENOSPC`, `EBUSY`, `ENOMEM`, `ESRCH`: what has run out, is in use or has ended.
//!
//! **Invariant:** limits are told with their numbers.

use pmux_abi::attr::{AttrFlags, EventType};

use super::facts::Facts;
use super::{Reason, ReasonKind, RefusedRequest, TargetKind};

pub(super) fn gone(refusal: &RefusedRequest<'_>) -> Reason {
    let summary = match refusal.target {
        TargetKind::Task(_) => "there is no such task: it has ended, or never was",
        TargetKind::Cpu(_) | TargetKind::Cgroup => "the target went away while the event was opened",
    };
    Reason::new(ReasonKind::Gone, summary)
}

fn used_up(summary: impl Into<String>) -> Reason {
    Reason::new(ReasonKind::NoResource, summary)
}

pub(super) fn too_many_files(facts: &Facts) -> Reason {
    let Some(files) = facts.open_files else {
        return used_up("this process has as many open files as it may have")
            .help("raise the limit: `ulimit -n`, or LimitNOFILE= in a systemd unit");
    };
    let reason = used_up(format!(
        "each event needs an open file, and this process may have {} (at most {})",
        files.soft, files.hard
    ));
    let reason = if files.soft < files.hard {
        reason.help(format!("in the shell: `ulimit -n {}`", files.hard))
    } else {
        reason.help("as root: `ulimit -Hn NUMBER`, or LimitNOFILE= in a systemd unit, or /etc/security/limits.conf")
    };
    let at_ceiling = files.ceiling.filter(|&ceiling| files.hard >= ceiling);
    reason
        .help_if(
            at_ceiling.map(|ceiling| format!("that is the ceiling of the machine: `sysctl fs.nr_open` is {ceiling}")),
        )
        .help("fewer events, CPUs or cgroups at a time need fewer files: one for each of their combinations")
}

pub(super) fn too_many_files_of_all() -> Reason {
    used_up("the machine as a whole has no open file left")
        .help("as root: raise `sysctl fs.file-max`; /proc/sys/fs/file-nr shows how many are in use")
}

pub(super) fn no_slot(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, target, .. } = *refusal;
    if attr.kind != EventType::BREAKPOINT {
        return used_up("the PMU has no room for one more event of this kind")
            .help("close other events on it, or open fewer at a time");
    }
    let place = match target {
        TargetKind::Task(_) => "for this task".to_owned(),
        TargetKind::Cpu(cpu) => format!("on CPU {cpu}"),
        TargetKind::Cgroup => "on this CPU".to_owned(),
    };
    let slots = match refusal.facts.architecture.as_str() {
        "x86" | "x86_64" => "all debug registers (x86 has 4 for each CPU)",
        "aarch64" => "all debug registers of this kind (the CPU has some for execution and fewer for data)",
        _ => "all debug registers",
    };
    used_up(format!("{slots} are reserved {place}"))
        .help("a debugger, another profiler or a disabled breakpoint event may hold them: each counts from its opening on")
        .help("breakpoints on a CPU take a slot from every task there: close those first")
}

pub(super) fn busy(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    let name = facts.pmu(attr.kind.0).map(|pmu| format!(" `{}`", pmu.name)).unwrap_or_default();
    let reason = used_up(format!("another program holds the PMU{name} alone"));
    let reason = if attr.flags.intersects(AttrFlags::EXCLUSIVE | AttrFlags::PINNED) {
        reason.help("leave out the modifiers `:e` and `:D`: the event need not be alone or always on")
    } else {
        reason.help("another profiler or tracer must let go of it: it may use the event exclusively, or trace with it")
    };
    reason.help_if(
        (facts.nmi_watchdog == Some(true))
            .then(|| "the NMI watchdog holds a counter of every CPU; as root: `sysctl kernel.nmi_watchdog=0`".into()),
    )
}

pub(super) fn no_memory() -> Reason {
    used_up("the kernel has no memory for one more event")
        .help("an event takes about 3 KB of kernel memory, and a cgroup's limit counts it: see memory.max and `dmesg`")
}

pub(super) fn interrupted() -> Reason {
    used_up("the probe is in use by both ftrace and performance events, which exclude each other")
        .help("remove the probe from /sys/kernel/tracing, or open it there only")
}
