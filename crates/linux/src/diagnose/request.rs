//! `EINVAL` and its relatives: which part of the request the kernel cannot have meant.
//!
//! The kernel has some fifty places that answer `EINVAL`. The checks here go through those that can be told from the
//! request, in the order in which they are most likely to be the answer.
//!
//! **Invariant:** a check that matches only *may* be the cause says `probably`.

use pmux_abi::attr::{Attr, AttrFlags, BranchSample, EventType, ReadFormat, SampleFormat, Sampling};

use super::facts::{Facts, PmuScope};
use super::{GroupRole, Reason, ReasonKind, RefusedRequest, TargetKind, support};

/// Flags by the kernel that brought them. Source: `perf_event_open(2)`.
const NEWER_FLAGS: [(AttrFlags, &str, (u32, u32)); 11] = [
    (AttrFlags::INHERIT_THREAD, "inherit_thread", (5, 13)),
    (AttrFlags::REMOVE_ON_EXEC, "remove_on_exec", (5, 13)),
    (AttrFlags::SIGTRAP, "sigtrap", (5, 13)),
    (AttrFlags::BUILD_ID, "build_id", (5, 12)),
    (AttrFlags::TEXT_POKE, "text_poke", (5, 8)),
    (AttrFlags::CGROUP, "cgroup", (5, 7)),
    (AttrFlags::AUX_OUTPUT, "aux_output", (5, 4)),
    (AttrFlags::BPF_EVENT, "bpf_event", (5, 0)),
    (AttrFlags::KSYMBOL, "ksymbol", (5, 0)),
    (AttrFlags::NAMESPACES, "namespaces", (4, 11)),
    (AttrFlags::WRITE_BACKWARD, "write_backward", (4, 6)),
];

pub(super) fn invalid(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    target(refusal)
        .or_else(|| newer_than_kernel(attr, facts))
        .or_else(|| sampling(attr, facts))
        .or_else(|| contradiction(attr))
        .or_else(|| breakpoint(attr, facts))
        .or_else(|| pmu(refusal))
        .or_else(|| group(refusal))
        .unwrap_or_else(|| any(refusal))
}

pub(super) fn because(summary: impl Into<String>) -> Reason {
    Reason::new(ReasonKind::Invalid, summary)
}

fn target(refusal: &RefusedRequest<'_>) -> Option<Reason> {
    let facts = refusal.facts;
    let TargetKind::Cpu(cpu) = refusal.target else { return None };
    if facts.possible.is_empty() || facts.online.contains(cpu) {
        return None;
    }
    if facts.possible.contains(cpu) {
        return Some(support::offline(cpu, facts));
    }
    let summary = format!("this machine has no CPU {cpu}; it has {}", facts.possible);
    Some(Reason::new(ReasonKind::NotPresent, summary))
}

fn newer_than_kernel(attr: &Attr, facts: &Facts) -> Option<Reason> {
    let (major, minor) = facts.kernel?;
    let flag = NEWER_FLAGS.iter().find(|(flag, _, since)| attr.flags.contains(*flag) && facts.is_older_than(*since));
    let lost = attr.read_format.contains(ReadFormat::LOST) && facts.is_older_than((6, 0));
    let weight = attr.sample.contains(SampleFormat::WEIGHT_STRUCT) && facts.is_older_than((5, 12));
    let (name, since) = match flag {
        Some((_, name, since)) => (*name, *since),
        None if lost => ("the number of lost samples", (6, 0)),
        None if weight => ("weights in three parts", (5, 12)),
        None => return None,
    };
    let summary = format!("{name} needs Linux {}.{}; this is {major}.{minor}", since.0, since.1);
    Some(Reason::new(ReasonKind::NotSupported, summary))
}

fn sampling(attr: &Attr, facts: &Facts) -> Option<Reason> {
    match (attr.sampling, facts.max_sample_rate) {
        (Sampling::Frequency(wanted), Some(most)) if wanted > most => Some(
            because(format!(
                "{wanted} samples a second are more than kernel.perf_event_max_sample_rate allows: {most}"
            ))
            .help(format!("sample at {most} a second or less"))
            .help("the kernel lowers this limit by itself when samples take too long; as root it can be raised again"),
        ),
        (Sampling::Period(period), _) if period >> 63 != 0 => Some(because("a sampling period must be below 2^63")),
        _ => None,
    }
}

/// Parts that exclude each other, whatever the machine.
fn contradiction(attr: &Attr) -> Option<Reason> {
    let has = |flags: AttrFlags| attr.flags.contains(flags);
    let samples = |fields: SampleFormat| attr.sample.contains(fields);
    let reason = if has(AttrFlags::INHERIT) && samples(SampleFormat::READ) && !samples(SampleFormat::TID) {
        because("an inherited event can put counts into its samples only together with the task's number")
            .help("add the task's number (PERF_SAMPLE_TID); older kernels refuse the combination in any case")
            .help("or do not inherit, or leave the counts out of the samples")
    } else if has(AttrFlags::INHERIT_THREAD) && !has(AttrFlags::INHERIT) {
        because("inherit_thread without inherit means nothing").help("set inherit as well")
    } else if has(AttrFlags::REMOVE_ON_EXEC | AttrFlags::ENABLE_ON_EXEC) {
        because("an event cannot both begin and end with exec").help("leave out remove_on_exec or enable_on_exec")
    } else if has(AttrFlags::SIGTRAP) && !has(AttrFlags::REMOVE_ON_EXEC) {
        because("sigtrap needs remove_on_exec: the next program must not get the signals")
    } else if samples(SampleFormat::BRANCH_STACK) && attr.branch_sample.difference(BranchSample::LEVELS).is_empty() {
        because("branch records need at least one kind of branch").help("ask for `any`")
    } else if samples(SampleFormat::REGS_INTR) && attr.sample_regs_intr == 0
        || samples(SampleFormat::REGS_USER) && attr.sample_regs_user == 0
    {
        because("samples with registers need at least one register")
    } else if samples(SampleFormat::STACK_USER)
        && (!attr.sample_stack_user.is_multiple_of(8) || attr.sample_stack_user > u32::from(u16::MAX))
    {
        because("the copied user stack must be a multiple of 8 bytes, at most 65,528")
    } else {
        return None;
    };
    Some(reason)
}

fn breakpoint(attr: &Attr, facts: &Facts) -> Option<Reason> {
    if attr.kind != EventType::BREAKPOINT {
        return None;
    }
    let (read, write, execute) = (attr.bp_type & 1 != 0, attr.bp_type & 2 != 0, attr.bp_type & 4 != 0);
    let x86 = matches!(facts.architecture.as_str(), "x86" | "x86_64");
    let word = if facts.architecture == "x86_64" { 8 } else { 4 };
    let (address, length) = (attr.config1, attr.config2);
    let reason = if !(read || write || execute) {
        because("a breakpoint needs an access to wait for: r, w or x")
    } else if execute && (read || write) {
        because("one breakpoint cannot wait for execution and for data").help("open two")
    } else if x86 && read && !write {
        because("x86 cannot wait for reads alone").help("wait for reads and writes: `:rw`")
    } else if execute && x86 && length != word {
        because(format!("a breakpoint on execution has the length of a machine word here: {word}"))
    } else if x86 && !execute && !matches!(length, 1 | 2 | 4 | 8) {
        because(format!("a breakpoint covers 1, 2, 4 or 8 bytes, not {length}"))
    } else if x86 && !execute && length.is_power_of_two() && !address.is_multiple_of(length) {
        because(format!("the address {address:#x} is not a multiple of the length {length}"))
    } else if address >> 63 != 0 && attr.flags.contains(AttrFlags::EXCLUDE_KERNEL) {
        because("the address lies in the kernel, which the event leaves out").help("leave out the modifier `:u`")
    } else {
        return None;
    };
    Some(reason)
}

fn pmu(refusal: &RefusedRequest<'_>) -> Option<Reason> {
    let RefusedRequest { attr, target, facts, .. } = *refusal;
    if attr.kind == EventType::TRACEPOINT {
        return Some(
            because(format!("there is probably no tracepoint with the number {}", attr.config))
                .help("numbers change from boot to boot: take it from /sys/kernel/tracing/events/GROUP/NAME/id"),
        );
    }
    let pmu = facts.pmu(attr.kind.0).filter(|pmu| attr.kind >= EventType::FIRST_DYNAMIC && !pmu.is_core())?;
    let name = &pmu.name;
    let sides = AttrFlags::EXCLUDE_USER
        | AttrFlags::EXCLUDE_KERNEL
        | AttrFlags::EXCLUDE_HV
        | AttrFlags::EXCLUDE_IDLE
        | AttrFlags::EXCLUDE_HOST
        | AttrFlags::EXCLUDE_GUEST;
    let reason = if let PmuScope::Shared(cpus) = &pmu.scope
        && !matches!(target, TargetKind::Cpu(_))
    {
        because(format!("the PMU `{name}` counts for whole CPUs, not for a task or cgroup"))
            .help(format!("count the machine with `-a`, or CPU {} with `-C`", cpus.first().unwrap_or(0)))
    } else if matches!(name.as_str(), "uprobe" | "kprobe") {
        because(format!("the {name} names no place that can be probed"))
            .help("it needs a file and an offset, or a function of the kernel, where an instruction begins")
    } else if attr.flags.intersects(sides) {
        because(format!("the PMU `{name}` probably cannot tell user mode, kernel and guests apart"))
            .help("leave out the modifiers `u`, `k`, `h`, `H`, `G` and `I`")
    } else if attr.sampling != Sampling::None {
        because(format!("the PMU `{name}` probably counts only and cannot sample"))
    } else {
        because(format!("the PMU `{name}` takes no event {:#x} with these parameters", attr.config))
            .help(format!("its parameters and their ranges are under /sys/bus/event_source/devices/{name}/format"))
    };
    Some(reason)
}

fn group(refusal: &RefusedRequest<'_>) -> Option<Reason> {
    let RefusedRequest { attr, role, facts, .. } = *refusal;
    if role != GroupRole::Member {
        return None;
    }
    let hardware = !matches!(attr.kind, EventType::SOFTWARE | EventType::TRACEPOINT | EventType::BREAKPOINT);
    let watched = (facts.nmi_watchdog == Some(true))
        .then(|| "the NMI watchdog holds one counter; as root: `sysctl kernel.nmi_watchdog=0`".into());
    let reason = if attr.flags.intersects(AttrFlags::PINNED | AttrFlags::EXCLUSIVE) {
        because("only the leader of a group can be pinned or exclusive").help("put `D` or `e` on its first event")
    } else if !hardware {
        because("a group has one target, one CPU and one clock; this event differs from its leader in one of them")
    } else {
        because("the group is probably larger than the counters that can take it at once")
            .help("make the group smaller, or let it be broken up where it does not fit: `{…}:W`")
            .help_if(watched)
    };
    Some(reason)
}

/// Nothing in the request stands out.
fn any(refusal: &RefusedRequest<'_>) -> Reason {
    let RefusedRequest { attr, facts, .. } = *refusal;
    let reason = because("the kernel found something wrong with the event and does not say what");
    let reason = match attr.kind {
        EventType::HARDWARE | EventType::HW_CACHE | EventType::RAW => {
            reason.help("the CPU may not know this event or this combination of its fields")
        }
        _ => reason,
    };
    let clock = attr.flags.contains(AttrFlags::USE_CLOCKID);
    let reason =
        reason.help_if(clock.then(|| format!("the clock {} may not be one that samples can use", attr.clock_id)));
    let grouped = attr.flags.contains(AttrFlags::INHERIT) && attr.read_format.contains(ReadFormat::GROUP);
    let reason = reason.help_if(
        (grouped && facts.is_older_than((4, 14)))
            .then(|| "old kernels cannot read inherited events as a group: open them one by one".into()),
    );
    reason.help("leave out modifiers and options one by one to find the one at fault")
}

pub(super) fn call_chain_too_long(refusal: &RefusedRequest<'_>) -> Reason {
    let wanted = refusal.attr.sample_max_stack;
    match refusal.facts.max_stack {
        Some(most) => because(format!(
            "call chains of {wanted} frames are longer than kernel.perf_event_max_stack allows: {most}"
        ))
        .help(format!("ask for {most} frames or fewer, or as root, while no event with call chains is open: `sysctl kernel.perf_event_max_stack={wanted}`")),
        None => because(format!("call chains of {wanted} frames are longer than the kernel allows")),
    }
}

pub(super) fn bad_file(refusal: &RefusedRequest<'_>) -> Reason {
    match (refusal.target, refusal.role) {
        (TargetKind::Cgroup, _) => because("the folder is not a cgroup"),
        (_, GroupRole::Member) => because("the leader of the group is closed"),
        _ => because("a file that the event refers to is not open"),
    }
}

pub(super) fn bad_address(refusal: &RefusedRequest<'_>) -> Reason {
    match refusal.facts.pmu(refusal.attr.kind.0) {
        Some(pmu) => because(format!("the PMU `{}` was given an address that cannot be read", pmu.name)),
        None => because("the event holds an address that cannot be read"),
    }
}
