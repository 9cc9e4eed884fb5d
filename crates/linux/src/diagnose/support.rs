//! `ENOENT`, `EOPNOTSUPP`, `ENOSYS`, `ENODEV`, `E2BIG`: what this machine or kernel does not have.
//!
//! **Invariant:** what is missing is named: the PMU, the feature, the CPU or the kernel version.

use pmux_abi::attr::{Attr, AttrFlags, EventType, Precise, SampleFormat, Sampling};

use super::facts::{CgroupEvents, Controllers, Facts, MachineKind};
use super::request::because;
use super::{Reason, ReasonKind, RefusedRequest, TargetKind};
use crate::probe::cannot_be_inherited;
use crate::procfs::SeccompMode;

/// How many generalised software events there are, and since which kernel the newest one.
const SOFTWARE_EVENTS: u64 = 12;

fn unsupported(summary: impl Into<String>) -> Reason {
    Reason::new(ReasonKind::NotSupported, summary)
}

pub(super) fn no_such_event(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    match attr.kind {
        EventType::HARDWARE | EventType::HW_CACHE | EventType::RAW if facts.lacks_core_pmu() => no_core_pmu(facts),
        // Where a cgroup carries events for sure, it is the event that isn't there.
        _ if refusal.target == TargetKind::Cgroup
            && !matches!(facts.cgroups, CgroupEvents::V2 { below: Controllers::Some, .. }) =>
        {
            no_events_in_cgroup(&facts.cgroups)
        }
        EventType::HARDWARE | EventType::HW_CACHE | EventType::RAW if facts.pmus.is_none() => unsupported(
            "the kernel has no PMU for this event, and which PMUs there are stands in /sys/bus/event_source/devices, which can't be \
             read here",
        )
        .help("if it is not mounted: `mount -t sysfs sysfs /sys`"),
        EventType::HARDWARE => unsupported(format!(
            "the PMU of this CPU has no counterpart for the generalised hardware event {}",
            attr.config & 0xffff_ffff
        ))
        .help("`pmux list` shows the events that open here; the CPU's own events are under its PMU"),
        EventType::HW_CACHE => {
            unsupported("this CPU does not count that combination of cache, operation and result")
                .help("`pmux list cache` shows the combinations that open here")
        }
        EventType::RAW => unsupported(format!("no PMU of this machine takes the raw event {:#x}", attr.config)),
        EventType::SOFTWARE if attr.config >= SOFTWARE_EVENTS || facts.is_older_than((5, 13)) => {
            unsupported(format!("this kernel has no software event number {}", attr.config))
        }
        EventType::TRACEPOINT => unsupported("this kernel was built without events on tracepoints"),
        EventType::BREAKPOINT => {
            unsupported("this kernel or this architecture has no hardware breakpoints for events")
        }
        kind => match facts.pmu(kind.0) {
            Some(pmu) if matches!(pmu.name.as_str(), "uprobe" | "kprobe") => {
                if attr.flags.contains(AttrFlags::INHERIT)
                    && let Some(why) = cannot_be_inherited(attr)
                {
                    return unsupported(format!("it can't be inherited: {why}")).help("count without inheritance");
                }
                unsupported(format!("the file or function that the {} should watch does not exist", pmu.name))
            }
            Some(pmu) => unsupported(format!("the PMU `{}` has no event {:#x}", pmu.name, attr.config))
                .help(format!("its events are listed by `pmux list {}`", pmu.name)),
            None => unsupported(format!("no PMU of this machine has the number {}", kind.0)).help(known_pmus(facts)),
        },
    }
}

fn no_events_in_cgroup(cgroups: &CgroupEvents) -> Reason {
    let explain = "whether the event is there at all, `pmux explain` says, without a cgroup";
    match cgroups {
        CgroupEvents::Disabled => {
            unsupported("this kernel was booted with cgroup_disable=perf_event")
                .help("boot it without that to count the events of cgroups")
        }
        CgroupEvents::V2 { mounted, below: Controllers::None } => because(format!(
            "no cgroup below {} carries events yet, because nothing was ever written to its cgroup.subtree_control \
             (or the event does not exist here)",
            mounted.display()
        ))
        .help(format!(
            "as root: `echo +pids > {}/cgroup.subtree_control`, or any other controller: from then on all cgroups carry events",
            mounted.display()
        ))
        .help(explain),
        CgroupEvents::V1 { mounted: Some(mounted) } => {
            because("the event does not exist here, or the cgroup is in a hierarchy that carries no events")
                .help(format!("take a cgroup below {}: the controller perf_event is there", mounted.display()))
                .help(explain)
        }
        CgroupEvents::V1 { mounted: None } => because(
            "the controller perf_event is in a cgroup v1 hierarchy that is not mounted here, so cgroup v2 carries no \
             events (or the event does not exist here)",
        )
        .help("as root: `mount -t cgroup -o perf_event none DIRECTORY`, and take the cgroup from there")
        .help("boot with `cgroup_no_v1=perf_event`: then it is in cgroup v2"),
        CgroupEvents::V2 { .. } | CgroupEvents::Unknown => {
            because("the event does not exist here, or the cgroup is in a hierarchy that carries no events")
                .help("take the cgroup from cgroup v2, or from the v1 hierarchy with the controller perf_event")
                .help(explain)
        }
    }
}

/// The commonest case of all: a virtual machine without counters.
fn no_core_pmu(facts: &Facts) -> Reason {
    let expected = match facts.architecture.as_str() {
        "aarch64" | "arm" => "armv8_pmuv3 or the like",
        _ => "`cpu`",
    };
    let reason = unsupported(format!(
        "this machine has no hardware PMU (there is no {expected} under /sys/bus/event_source/devices)"
    ));
    let reason = match facts.machine {
        MachineKind::Virtual => reason.help(
            "this is a virtual machine, and its hypervisor shows it no counters; QEMU does with `-cpu host,pmu=on`, \
             clouds on metal or larger instance types",
        ),
        MachineKind::Unknown => reason.help(
            "in a virtual machine the hypervisor has to show the counters (QEMU: `-cpu host,pmu=on`); on a bare one, \
             look for `Performance Events` in `dmesg`",
        ),
    };
    reason.help("software events and tracepoints work without it: task-clock, page-faults, context-switches")
}

fn known_pmus(facts: &Facts) -> String {
    let names: Vec<&str> = facts.pmus.iter().flatten().map(|pmu| pmu.name.as_str()).collect();
    format!("it has these: {}", names.join(", "))
}

pub(super) fn no_such_feature(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    let name = pmu_name(attr, facts);
    if attr.precise > Precise::ArbitrarySkid && attr.sampling != Sampling::None {
        match core_or_named(attr, facts).and_then(|pmu| pmu.max_precise) {
            Some(0) => unsupported(format!("the PMU {name} cannot place samples precisely"))
                .help("leave out the modifier `:p`"),
            Some(most) => unsupported(format!(
                "the PMU {name} places samples at precision {most} at most, for events that allow it"
            ))
            .help(format!("use at most {most} times `p` in the modifier, or another event")),
            None => unsupported(format!("the PMU {name} cannot place samples that precisely"))
                .help("use fewer `p` in the modifier, or none"),
        }
    } else if attr.sample.contains(SampleFormat::BRANCH_STACK) {
        if matches!(attr.kind, EventType::SOFTWARE | EventType::TRACEPOINT | EventType::BREAKPOINT) {
            unsupported("only hardware events can record branches")
        } else {
            unsupported(format!("the PMU {name} does not record branches, or not with this filter"))
                .help("call chains need no branch records: leave out the branch stack")
        }
    } else if attr.flags.contains(AttrFlags::AUX_OUTPUT) || attr.aux_action != 0 {
        unsupported("this event cannot write into or steer an AUX area")
            .help("the leader of its group has to be a PMU that traces, such as intel_pt")
    } else if attr.sampling != Sampling::None {
        unsupported(format!("the PMU {name} raises no interrupt, so it can count but not sample"))
            .help("count without a period or frequency, or sample by the clock: `cpu-clock`")
    } else {
        unsupported(format!("the PMU {name} lacks a feature that the event asks for"))
            .help("leave out modifiers one by one to find it")
    }
}

fn core_or_named<'a>(attr: &Attr, facts: &'a Facts) -> Option<&'a super::PmuFacts> {
    facts.pmu(attr.kind.0).or_else(|| facts.pmus.iter().flatten().find(|pmu| pmu.is_core()))
}

fn pmu_name(attr: &Attr, facts: &Facts) -> String {
    match attr.kind {
        EventType::SOFTWARE => "`software`".into(),
        EventType::TRACEPOINT => "`tracepoint`".into(),
        EventType::BREAKPOINT => "`breakpoint`".into(),
        _ => core_or_named(attr, facts)
            .map_or_else(|| format!("number {}", attr.kind.0), |pmu| format!("`{}`", pmu.name)),
    }
}

pub(super) fn no_such_call(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    if attr.sample.contains(SampleFormat::STACK_USER) && facts.paranoid.is_some() && facts.seccomp == SeccompMode::None
    {
        return unsupported("this architecture cannot copy the user stack into samples")
            .help("leave the user stack out of the samples");
    }
    match facts.seccomp {
        SeccompMode::Filter => unsupported("a sandbox answers perf_event_open as if the kernel did not have it")
            .help("allow perf_event_open in the sandbox's seccomp filter"),
        _ if facts.paranoid.is_some() => {
            unsupported("the kernel has performance events, but something between answers that it has not")
                .help("a sandbox such as gVisor does this: run outside of it")
        }
        _ => unsupported(
            "this kernel has no performance events: it was built without CONFIG_PERF_EVENTS, or is no Linux",
        ),
    }
    .help("times, faults and context switches come from wait4 and /proc meanwhile")
}

pub(super) fn no_such_device(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, target, facts, .. } = *refusal;
    if let TargetKind::Cpu(cpu) = target
        && !facts.online.is_empty()
        && !facts.online.contains(cpu)
    {
        return offline(cpu, facts);
    }
    let name = pmu_name(attr, facts);
    let mut reason = unsupported(format!("the CPU lacks a feature that the PMU {name} needs for this event"));
    if let TargetKind::Cpu(cpu) = target {
        reason = reason.help(format!("CPU {cpu} may have gone offline at that moment: online are {}", facts.online));
    }
    reason
}

/// The sentence about a CPU that is there and does not run.
pub(super) fn offline(cpu: u32, facts: &Facts) -> Reason {
    Reason::new(ReasonKind::NotPresent, format!("CPU {cpu} is offline; online are {}", facts.online))
        .help(format!("as root: `echo 1 > /sys/devices/system/cpu/cpu{cpu}/online`"))
}

pub(super) fn kernel_too_old(refusal: &RefusedRequest<'_>) -> Reason {
    let version = match refusal.facts.kernel {
        Some((major, minor)) => format!(" (Linux {major}.{minor})"),
        None => String::new(),
    };
    unsupported(format!("the event uses a field that is newer than this kernel{version}"))
        .help("leave out the newest options: config3, config4 or the AUX actions")
}
