//! `EACCES` and `EPERM`: what the request needs, and what the caller has.
//!
//! **Invariant:** a remedy names the mildest setting that is enough, not the widest.

use pmux_abi::attr::{Attr, AttrFlags, BranchSample, EventType, SampleFormat};

use super::facts::{Capability, Facts, Lockdown, PmuFacts, UserNamespace};
use super::{Reason, ReasonKind, RefusedRequest, TargetKind, Whose};
use crate::procfs::SeccompMode;
use crate::selinux::PerfPermission;

/// Something that a request needs and that few callers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// To count what happens in the kernel: level 1.
    Kernel,
    /// To record branches in the kernel or the hypervisor: level 1.
    Branches,
    /// To see physical addresses: level 1.
    PhysicalAddresses,
    /// To see all tasks of a CPU: level 0.
    WholeCpu,
    /// To read the fields of a tracepoint: level -1.
    RawTracepoint,
    /// To count at all, with a distribution's level above 2.
    Anything,
    /// To see a task of another user.
    OtherTask,
    /// Probes that the kernel sets: no level is enough.
    Probe,
    /// Records about namespaces: no level is enough.
    Namespaces,
}

impl Need {
    /// The highest setting of `kernel.perf_event_paranoid` that grants it, if any does.
    fn level(self) -> Option<i32> {
        match self {
            Self::Anything => Some(2),
            Self::Kernel | Self::Branches | Self::PhysicalAddresses => Some(1),
            Self::WholeCpu => Some(0),
            Self::RawTracepoint => Some(-1),
            Self::OtherTask | Self::Probe | Self::Namespaces => None,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Anything => "opening any event",
            Self::Kernel => "counting in the kernel",
            Self::Branches => "recording branches of the kernel or the hypervisor",
            Self::PhysicalAddresses => "recording physical addresses",
            Self::WholeCpu => "counting a whole CPU or a cgroup",
            Self::RawTracepoint => "reading the fields of a tracepoint",
            Self::OtherTask => "counting a task of another user",
            Self::Probe => "a probe on a function",
            Self::Namespaces => "recording namespaces",
        }
    }
}

fn forbidden(summary: impl Into<String>) -> Reason {
    Reason::new(ReasonKind::NotPermitted, summary)
}

pub(super) fn denied(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { errno, attr, facts, .. } = *refusal;
    // Programs end at `TASK_SIZE_MAX`, which is nowhere below this (x86 with page tables of four levels); the kernel itself knows where it
    // is here.
    let is_kernel_address = attr.config1 >= (1 << 47) - 4096;
    let kernel = attr.kind == EventType::BREAKPOINT && is_kernel_address && errno == libc::EPERM;
    if kernel && !facts.can(Capability::SysAdmin) {
        return kernel_breakpoint(facts);
    }
    if attr.sample.contains(SampleFormat::REGS_INTR) && facts.lockdown == Lockdown::Confidentiality {
        return forbidden("the kernel is locked down for confidentiality, so samples may not hold registers")
            .help("leave the registers out of the samples, or boot without `lockdown=confidentiality`");
    }
    let unmet = unmet(refusal);
    // The kernel itself says EPERM only for the cases above and for raw tracepoints.
    let from_kernel = errno == libc::EACCES || unmet.contains(&Need::RawTracepoint);
    if facts.seccomp == SeccompMode::Filter && !from_kernel {
        return filtered(facts);
    }
    match (strictest(&unmet), facts.selinux_withholds(attr, refusal.target)) {
        (Some(need), _) => lacking(refusal, need, &unmet),
        (None, Some((label, permission))) => withheld(label, permission, facts),
        (None, None) => unexplained(refusal),
    }
}

/// What the request needs and the caller does not have.
fn unmet(refusal: &RefusedRequest<'_>) -> Vec<Need> {
    let RefusedRequest { attr, target, facts, .. } = *refusal;
    let mut needs = Vec::new();
    if facts.may_refuse_all() && !facts.can(Capability::SysAdmin) {
        // These patches ask for CAP_SYS_ADMIN in some kernels and take CAP_PERFMON in others.
        needs.push(Need::Anything);
    }
    if facts.is_privileged() {
        return needs;
    }
    let whole_cpu = !matches!(target, TargetKind::Task(_));
    let wanted = [
        (!attr.flags.contains(AttrFlags::EXCLUDE_KERNEL), Need::Kernel),
        (asks_privileged_branches(attr), Need::Branches),
        (attr.sample.contains(SampleFormat::PHYS_ADDR), Need::PhysicalAddresses),
        (whole_cpu, Need::WholeCpu),
        (attr.kind == EventType::TRACEPOINT && attr.sample.contains(SampleFormat::RAW), Need::RawTracepoint),
    ];
    // Without a known level it is the usual one, 2.
    let level = facts.paranoid.unwrap_or(2);
    let refused = wanted.into_iter().filter(|(asked, need)| *asked && need.level().is_some_and(|most| level > most));
    needs.extend(refused.map(|(_, need)| need));
    let probe = facts.pmu(attr.kind.0).is_some_and(|pmu| matches!(pmu.name.as_str(), "kprobe" | "uprobe"));
    let without_level = [
        (probe, Need::Probe),
        (attr.flags.contains(AttrFlags::NAMESPACES), Need::Namespaces),
        (target == TargetKind::Task(Whose::Other) && !facts.can(Capability::SysPtrace), Need::OtherTask),
    ];
    needs.extend(without_level.into_iter().filter(|(asked, _)| *asked).map(|(_, need)| need));
    needs
}

/// The need with the lowest level; one that no level grants comes last, since it may be met in other ways.
fn strictest(needs: &[Need]) -> Option<Need> {
    let certain = |need: &Need| matches!(need, Need::Probe | Need::Namespaces);
    let by_level = || needs.iter().copied().filter(|need| need.level().is_some()).min_by_key(|need| need.level());
    needs.iter().copied().find(certain).or_else(by_level).or_else(|| needs.first().copied())
}

fn lacking(refusal: &RefusedRequest<'_>, need: Need, unmet: &[Need]) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    let what = need.what();
    let capability = capability_name(facts);
    let mut reason = forbidden(match (need.level(), facts.paranoid) {
        (Some(most), Some(level)) => {
            format!("{what} needs {capability} or kernel.perf_event_paranoid at most {most}; it is {level}")
        }
        (Some(most), None) => format!("{what} needs {capability} or kernel.perf_event_paranoid at most {most}"),
        (None, _) => format!("{what} needs {capability}, whatever kernel.perf_event_paranoid is"),
    });
    let only_kernel = unmet.iter().all(|need| matches!(need, Need::Kernel | Need::OtherTask));
    let in_user_mode = (need == Need::Kernel && only_kernel).then(|| user_mode_only(attr, facts)).flatten();
    reason = reason.help_if(in_user_mode.map(Into::into));
    if need == Need::Branches {
        reason =
            reason.help("restrict the branches to user mode: branch filter `u`, or the modifiers `:u` and not `:h`");
    }
    if need == Need::OtherTask {
        reason = reason.help("run as the user who owns the task, or as root");
    }
    if let Some(most) = need.level() {
        reason = reason.help(format!("as root, until the next boot: `sysctl kernel.perf_event_paranoid={most}`"));
    }
    reason = reason.help(grant(facts)).help_if(grant_container(facts));
    if facts.namespace == UserNamespace::Nested && facts.capabilities != 0 {
        reason = reason.help(
            "the capabilities that this process has do not count: they belong to a user namespace, as of a rootless container",
        );
    }
    let another = need != Need::OtherTask && unmet.contains(&Need::OtherTask);
    let reason = reason
        .help_if(another.then(|| "the task must belong to the same user as well, or the capability is needed".into()));
    let hardware = matches!(attr.kind, EventType::HARDWARE | EventType::HW_CACHE | EventType::RAW);
    reason.help_if(
        (hardware && facts.lacks_core_pmu())
            .then(|| "that opens software events only, such as cpu-clock: this machine shows no hardware PMU".into()),
    )
}

/// That an event can be restricted to user mode. Some happen in the kernel only: then they open, and their number is 0. Some PMUs cannot
/// be restricted.
fn user_mode_only(attr: &Attr, facts: &Facts) -> Option<&'static str> {
    let in_kernel = match attr.kind {
        EventType::TRACEPOINT => true,
        EventType::SOFTWARE => matches!(attr.config, 3 | 4 | 11),
        kind if kind >= EventType::FIRST_DYNAMIC => {
            if !facts.pmu(kind.0).is_some_and(PmuFacts::is_core) {
                return None;
            }
            false
        }
        _ => false,
    };
    (!in_kernel).then_some("count user mode only, with the modifier `:u`")
}

fn capability_name(facts: &Facts) -> &'static str {
    if facts.is_older_than((5, 8)) || (facts.may_refuse_all() && facts.can(Capability::Perfmon)) {
        "CAP_SYS_ADMIN"
    } else {
        "CAP_PERFMON"
    }
}

/// How to get the capability.
fn grant(facts: &Facts) -> String {
    let name = capability_name(facts).to_lowercase();
    let is_plain = |path: &&String| path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let program = facts.program.as_ref().filter(is_plain).map_or("\"$(command -v pmux)\"", String::as_str);
    format!("run as root, or once as root: `setcap {name}=ep {program}`")
}

/// In a container root may lack the capability too.
fn grant_container(facts: &Facts) -> Option<String> {
    let container = facts.container.as_ref()?;
    let name = capability_name(facts).trim_start_matches("CAP_");
    let needed = if name == "PERFMON" { Capability::Perfmon } else { Capability::SysAdmin };
    if facts.bounding & (1 << needed as u32) != 0 {
        return None;
    }
    Some(format!("this looks like a container ({container}): it may have to be started with `--cap-add {name}`"))
}

fn filtered(facts: &Facts) -> Reason {
    let place = facts.container.as_deref().map_or(String::new(), |name| format!(" of this container ({name})"));
    forbidden(format!("a seccomp filter{place} forbids perf_event_open, so the kernel never saw the request"))
    .help("Docker and Podman: `--cap-add PERFMON`, or `--security-opt seccomp=PROFILE` with a profile that allows perf_event_open")
    .help("Kubernetes: `capabilities.add: [PERFMON]` in the securityContext, or another seccompProfile")
}

fn kernel_breakpoint(facts: &Facts) -> Reason {
    forbidden("a breakpoint on an address in the kernel needs CAP_SYS_ADMIN").help(match facts.namespace {
        UserNamespace::Initial => "run as root",
        UserNamespace::Nested => "run as root outside of any user namespace",
    })
}

fn withheld(label: &str, permission: PerfPermission, facts: &Facts) -> Reason {
    let name = permission.name();
    let reason = forbidden(format!("SELinux's policy doesn't allow perf_event {{ {name} }} to {label}"));
    let domain = label.split(':').nth(2).unwrap_or("DOMAIN");
    let missing = PerfPermission::ALL.into_iter().filter(|&other| {
        other == permission
            || facts.selinux.as_ref().and_then(|(_, rights)| *rights).is_some_and(|rights| !rights.allow(other))
    });
    let all: Vec<&str> = missing.map(PerfPermission::name).collect();
    reason.help("its denial is in the audit log: `ausearch -m avc` or `dmesg`").help(format!(
        "run it in another domain, or extend the policy: `allow {domain} self:perf_event {{ {} }};`",
        all.join(" ")
    ))
}

/// Nothing that is known forbids it.
fn unexplained(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    if attr.kind == EventType::TRACEPOINT {
        return forbidden("the kernel keeps this tracepoint to itself; those of the group `ftrace` cannot be counted");
    }
    let reason = forbidden(
        "the kernel refused the event although neither a capability nor kernel.perf_event_paranoid forbids it",
    );
    if let Some((label, None)) = &facts.selinux {
        return reason.help(format!(
            "SELinux may not allow it to {label}; its denial is in the audit log: `ausearch -m avc` or `dmesg`"
        ));
    }
    let modules: Vec<&str> = facts
        .security_modules
        .iter()
        .map(String::as_str)
        .filter(|name| matches!(*name, "selinux" | "apparmor" | "smack" | "tomoyo" | "lockdown" | "bpf"))
        .collect();
    let modules = modules.join(", ");
    let reason = reason.help_if((!modules.is_empty()).then(|| {
        format!("a security module may forbid it (active: {modules}); its denial is in the audit log: `ausearch -m avc` or `dmesg`")
    }));
    reason.help_if(
        (facts.seccomp == SeccompMode::Filter)
            .then(|| "a seccomp filter is active and may answer in the kernel's place".into()),
    )
}

/// Without a level of their own, branches are recorded where the event counts.
fn asks_privileged_branches(attr: &Attr) -> bool {
    let levels = attr.branch_sample & BranchSample::LEVELS;
    let asked = if levels.is_empty() {
        !attr.flags.contains(AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV)
    } else {
        levels.intersects(BranchSample::KERNEL | BranchSample::HV)
    };
    asked && attr.sample.contains(SampleFormat::BRANCH_STACK)
}
