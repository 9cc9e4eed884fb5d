//! Each case pairs a request with the error number that kernel 6.18 gave for it, where a machine could show it.

use libc::{
    E2BIG, EACCES, EBADF, EBUSY, EINVAL, EMFILE, ENODEV, ENOENT, ENOMEM, ENOSPC, ENOSYS, EOPNOTSUPP, EOVERFLOW, EPERM,
    ESRCH,
};
use pmux_abi::attr::{AttrFlags, BranchSample, EventType, Precise, ReadFormat, SampleFormat, Sampling};

use super::ReasonKind::*;
use super::*;
use crate::cpus::CpuList;
use crate::procfs::SeccompMode;
use crate::selinux::{PerfPermission, PerfRights};

const OWN: TargetKind = TargetKind::Task(Whose::Own);
const USER: AttrFlags = AttrFlags::EXCLUDE_KERNEL.union(AttrFlags::EXCLUDE_HV);
const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

fn pmu(name: &str, number: u32) -> PmuFacts {
    PmuFacts { name: name.into(), number, ..PmuFacts::default() }
}

/// A virtual machine without a hardware PMU.
fn machine(capabilities: u64, paranoid: i32) -> Facts {
    Facts {
        paranoid: Some(paranoid),
        capabilities,
        machine: MachineKind::Virtual,
        architecture: "x86_64".into(),
        kernel: Some((6, 18)),
        pmus: Some(vec![
            pmu("breakpoint", 5),
            pmu("msr", 9),
            pmu("software", 1),
            pmu("tracepoint", 2),
            pmu("uprobe", 8),
        ]),
        online: CpuList::new([0, 1]),
        possible: CpuList::new([0, 1, 2]),
        max_sample_rate: Some(100_000),
        max_stack: Some(127),
        nmi_watchdog: Some(false),
        open_files: Some(OpenFiles { soft: 1024, hard: 4096, ceiling: Some(1_048_576) }),
        ..Facts::default()
    }
}

fn root() -> Facts {
    machine(ALL_CAPABILITIES, 2)
}

fn unprivileged() -> Facts {
    machine(0, 2)
}

fn bare() -> Facts {
    let mut facts = root();
    facts.machine = MachineKind::Unknown;
    facts.pmus.as_mut().unwrap().push(PmuFacts { max_precise: Some(3), ..pmu("cpu", 4) });
    facts
}

fn event(kind: u32, config: u64) -> Attr {
    Attr { kind: EventType(kind), config, ..Attr::default() }
}

fn user(attr: Attr) -> Attr {
    Attr { flags: attr.flags | USER, ..attr }
}

fn why(facts: &Facts, target: TargetKind, errno: i32, attr: &Attr) -> Reason {
    explain(&RefusedRequest { errno, attr, target, role: GroupRole::Leader, facts })
}

fn check(reason: &Reason, kind: ReasonKind, summary: &str, help: &str) {
    assert_eq!(reason.kind, kind, "{reason}");
    assert!(reason.summary.contains(summary), "{reason}");
    assert!(help.is_empty() || reason.help.iter().any(|line| line.contains(help)), "no {help:?} in:\n{reason}");
}

#[test]
fn a_machine_without_counters_says_so() {
    for attr in [event(0, 0), event(3, 0x1_0000), event(4, 0x3c)] {
        let reason = why(&root(), OWN, ENOENT, &attr);
        check(&reason, NotSupported, "no hardware PMU (there is no `cpu`", "-cpu host,pmu=on");
        check(&reason, NotSupported, "", "software events and tracepoints work");
    }
    let arm = Facts { architecture: "aarch64".into(), ..root() };
    check(&why(&arm, OWN, ENOENT, &event(0, 0)), NotSupported, "armv8_pmuv3", "");
}

#[test]
fn with_counters_it_is_the_event() {
    let facts = bare();
    let because = |attr, summary, help| check(&why(&facts, OWN, ENOENT, &attr), NotSupported, summary, help);
    because(event(0, 8), "generalised hardware event 8", "");
    because(event(3, 0x1_0206), "combination of cache", "pmux list cache");
    because(event(1, 99), "no software event number 99", "");
    because(event(77, 0), "no PMU of this machine has the number 77", "it has these: breakpoint");
    because(event(8, 0), "the file or function that the uprobe should watch", "");
    because(event(9, 3), "`msr` has no event 0x3", "pmux list msr");
    let v1 = why(&facts, TargetKind::Cgroup, ENOENT, &event(1, 0));
    check(&v1, Invalid, "hierarchy that carries no events", "perf_event");
}

#[test]
fn a_cgroup_without_events_says_which_case_it_is() {
    let v2 = |below| CgroupEvents::V2 { mounted: "/cg".into(), below };
    let v1 = |mounted: Option<&str>| CgroupEvents::V1 { mounted: mounted.map(Into::into) };
    let because = |cgroups, kind, summary, help| {
        let facts = Facts { cgroups, ..bare() };
        check(&why(&facts, TargetKind::Cgroup, ENOENT, &event(1, 0)), kind, summary, help);
    };
    let touch = "echo +pids > /cg/cgroup.subtree_control";
    because(v2(Controllers::None), Invalid, "no cgroup below /cg carries events yet", touch);
    because(v1(Some("/v1/perf")), Invalid, "hierarchy that carries no events", "below /v1/perf");
    because(v1(None), Invalid, "v1 hierarchy that is not mounted here", "mount -t cgroup -o perf_event");
    because(CgroupEvents::Disabled, NotSupported, "cgroup_disable=perf_event", "boot it without");
    let facts = Facts { cgroups: v2(Controllers::Some), ..bare() };
    let event = why(&facts, TargetKind::Cgroup, ENOENT, &event(0, 8));
    check(&event, NotSupported, "generalised hardware event 8", "pmux list");
}

#[test]
fn where_cgroups_carry_events_is_read_from_the_kernel() {
    let mount = |place: &str, kind: &str, options: &str| format!("41 31 0:38 / {place} rw - {kind} {kind} {options}\n");
    let gather = |hierarchy: &str, mounts: &dyn Fn(&str) -> String, subtree: &str| {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().display().to_string();
        let put = |name: &str, text: &str| pmux_testkit::put(folder.path(), name, text);
        put("proc/self/mountinfo", &mounts(&top));
        put("proc/cgroups", &format!("#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t9\t1\n{hierarchy}"));
        put("v2/cgroup.subtree_control", subtree);
        let shown = format!("{:?}", Facts::gather(&Roots::at(folder.path())).cgroups);
        shown.replace(&top, "")
    };
    let v2 = |top: &str| mount(&format!("{top}/v2"), "cgroup2", "rw");
    let both = |top: &str| v2(top) + &mount(&format!("{top}/v1"), "cgroup", "rw,perf_event");
    let there = "perf_event\t0\t9\t1\n";
    assert_eq!(gather(there, &v2, "cpu io\n"), r#"V2 { mounted: "/v2", below: Some }"#);
    assert_eq!(gather(there, &v2, "\n"), r#"V2 { mounted: "/v2", below: None }"#);
    assert_eq!(gather("", &v2, "\n"), r#"V2 { mounted: "/v2", below: None }"#, "newer kernels list v1 only");
    assert_eq!(gather("perf_event\t6\t9\t1\n", &both, ""), r#"V1 { mounted: Some("/v1") }"#);
    assert_eq!(gather("perf_event\t6\t9\t1\n", &v2, ""), "V1 { mounted: None }");
    assert_eq!(gather("perf_event\t0\t1\t0\n", &v2, ""), "Disabled");
    assert_eq!(gather(there, &|_: &str| String::new(), ""), "Unknown", "nothing is mounted");
}

#[test]
fn each_permission_names_its_level() {
    let facts = unprivileged();
    let raw = Attr { sample: SampleFormat::RAW, sampling: Sampling::Period(1), ..event(2, 372) };
    let cases = [
        (
            EACCES,
            OWN,
            event(1, 1),
            "counting in the kernel needs CAP_PERFMON or kernel.perf_event_paranoid at most 1; it is 2",
            "perf_event_paranoid=1",
        ),
        (EACCES, OWN, event(1, 1), "", "with the modifier `:u`"),
        (EACCES, OWN, event(1, 3), "counting in the kernel", "perf_event_paranoid=1"),
        (EACCES, OWN, event(2, 372), "counting in the kernel", "perf_event_paranoid=1"),
        (EACCES, TargetKind::Cpu(0), user(event(1, 0)), "a whole CPU or a cgroup needs", "perf_event_paranoid=0"),
        (EACCES, TargetKind::Cgroup, event(1, 0), "at most 0", "cap_perfmon=ep"),
        (EPERM, OWN, user(raw), "the fields of a tracepoint", "perf_event_paranoid=-1"),
        (EACCES, OWN, raw, "at most -1", ""),
        (EACCES, TargetKind::Task(Whose::Other), user(event(1, 1)), "task of another user", "owns the task"),
        (EACCES, OWN, user(event(8, 0)), "a probe on a function needs CAP_PERFMON, whatever", "cap_perfmon"),
        (EACCES, OWN, Attr { flags: USER | AttrFlags::NAMESPACES, ..event(1, 9) }, "namespaces", ""),
        (EACCES, OWN, Attr { sample: SampleFormat::PHYS_ADDR, ..user(event(1, 0)) }, "physical addresses", "=1"),
        (
            EPERM,
            OWN,
            Attr { config1: 0xffff_ffff_8100_0000, config2: 8, bp_type: 2, ..event(5, 0) },
            "needs CAP_SYS_ADMIN",
            "root",
        ),
    ];
    for (errno, target, attr, summary, help) in cases {
        check(&why(&facts, target, errno, &attr), NotPermitted, summary, help);
    }
    let whole = why(&facts, TargetKind::Cpu(0), EACCES, &event(1, 0));
    assert!(!whole.to_string().contains(":u"), "user mode alone does not help a whole CPU:\n{whole}");
    let switches = why(&facts, OWN, EACCES, &event(1, 3));
    assert!(!switches.to_string().contains(":u"), "in user mode no switches are counted:\n{switches}");
    let hardware = why(&facts, OWN, EACCES, &event(0, 0));
    check(&hardware, NotPermitted, "counting in the kernel", "opens software events only");
}

#[test]
fn distributions_with_higher_levels() {
    check(
        &why(&machine(0, 3), OWN, EACCES, &user(event(1, 1))),
        NotPermitted,
        "any event needs CAP_PERFMON or kernel.perf_event_paranoid at most 2; it is 3",
        "=2",
    );
    // Others have no such level, and what stands in the way is said first.
    let mainline = Facts { opens_least: Some(true), ..machine(0, 4) };
    check(
        &why(&mainline, TargetKind::Task(Whose::Other), EACCES, &user(event(1, 1))),
        NotPermitted,
        "counting a task of another user needs CAP_PERFMON, whatever kernel.perf_event_paranoid is",
        "run as the user who owns the task",
    );
    let both = why(&mainline, TargetKind::Task(Whose::Other), EACCES, &event(1, 1));
    check(&both, NotPermitted, "counting in the kernel", "perf_event_paranoid=1");
    // The strictest need wins: level 2 would still not let a whole CPU be counted.
    check(&why(&machine(0, 4), TargetKind::Cpu(0), EACCES, &event(1, 0)), NotPermitted, "at most 0; it is 4", "=0");
    let perfmon = machine(1 << Capability::Perfmon as u32, 3);
    check(&why(&perfmon, OWN, EACCES, &event(1, 1)), NotPermitted, "needs CAP_SYS_ADMIN", "cap_sys_admin");
    let old = Facts { kernel: Some((5, 4)), ..unprivileged() };
    check(&why(&old, OWN, EACCES, &event(1, 1)), NotPermitted, "needs CAP_SYS_ADMIN", "cap_sys_admin=ep");
}

#[test]
fn sandboxes_and_containers() {
    let docker = Facts { seccomp: SeccompMode::Filter, container: Some("Docker".into()), ..root() };
    check(
        &why(&docker, OWN, EPERM, &event(1, 1)),
        NotPermitted,
        "a seccomp filter of this container (Docker)",
        "--cap-add PERFMON",
    );
    let inside = Facts { container: Some("Docker".into()), ..unprivileged() };
    check(&why(&inside, OWN, EACCES, &event(1, 1)), NotPermitted, "counting in the kernel", "`--cap-add PERFMON`");
    // A container that withholds nothing has no part in it. The program that runs is the one to be given the capability.
    let (bounding, program) = (ALL_CAPABILITIES, Some("/opt/bin/pmux".to_owned()));
    let free = why(&Facts { bounding, program, ..inside }, OWN, EACCES, &event(1, 1));
    let help = free.help.join("\n");
    assert!(!help.contains("--cap-add") && help.contains("`setcap cap_perfmon=ep /opt/bin/pmux`"), "{help}");
    let rootless = Facts { namespace: UserNamespace::Nested, ..root() };
    check(&why(&rootless, OWN, EACCES, &event(1, 1)), NotPermitted, "counting in the kernel", "do not count");
    let modules = Facts { security_modules: vec!["capability".into(), "selinux".into()], ..root() };
    check(&why(&modules, OWN, EACCES, &event(1, 1)), NotPermitted, "neither", "active: selinux");
    let label = || "system_u:system_r:agent_t:s0".to_owned();
    let confined = Facts { selinux: Some((label(), Some(PerfRights::NONE.with(PerfPermission::Open)))), ..root() };
    let why_confined = why(&confined, OWN, EACCES, &event(1, 1));
    let rule = "`allow agent_t self:perf_event { cpu kernel tracepoint };`";
    check(&why_confined, NotPermitted, "perf_event { kernel } to system_u:system_r:agent_t:s0", rule);
    let silent = Facts { selinux: Some((label(), None)), ..root() };
    check(&why(&silent, OWN, EACCES, &event(1, 1)), NotPermitted, "neither", "agent_t:s0; its denial");
    let free = Facts { selinux: Some((label(), Some(PerfRights::ALL))), ..modules };
    check(&why(&free, OWN, EACCES, &event(1, 1)), NotPermitted, "neither", "active: selinux");
    check(&why(&root(), OWN, EPERM, &event(2, 1)), NotPermitted, "`ftrace`", "");
    let locked = Facts { lockdown: Lockdown::Confidentiality, ..root() };
    let registers = Attr { sample: SampleFormat::REGS_INTR, sample_regs_intr: 1, ..event(1, 0) };
    check(&why(&locked, OWN, EPERM, &registers), NotPermitted, "locked down", "registers");
    check(&why(&docker, OWN, ENOSYS, &event(1, 1)), NotSupported, "a sandbox answers", "wait4");
    let none = Facts { paranoid: None, ..root() };
    check(&why(&none, OWN, ENOSYS, &event(1, 1)), NotSupported, "CONFIG_PERF_EVENTS", "wait4");
}

#[test]
fn contradictory_requests() {
    let read = Attr { sample: SampleFormat::READ, sampling: Sampling::Period(1000), ..event(1, 0) };
    let flags = |flags| Attr { flags, ..event(1, 0) };
    let point = |bp_type, config1, config2| Attr { bp_type, config1, config2, ..event(5, 0) };
    let cases = [
        (Attr { flags: AttrFlags::INHERIT, ..read }, "together with the task's number"),
        (flags(AttrFlags::INHERIT_THREAD), "inherit_thread without inherit"),
        (flags(AttrFlags::REMOVE_ON_EXEC | AttrFlags::ENABLE_ON_EXEC), "both begin and end with exec"),
        (flags(AttrFlags::SIGTRAP), "needs remove_on_exec"),
        (Attr { sampling: Sampling::Frequency(1_000_000), ..event(1, 0) }, "max_sample_rate allows: 100000"),
        (Attr { sampling: Sampling::Period(1 << 63), ..event(1, 0) }, "below 2^63"),
        (
            Attr { sample: SampleFormat::BRANCH_STACK, branch_sample: BranchSample::USER, ..event(1, 0) },
            "one kind of branch",
        ),
        (Attr { sample: SampleFormat::STACK_USER, sample_stack_user: 12, ..event(1, 0) }, "multiple of 8"),
        (user(event(8, 0)), "names no place"),
        (Attr { sample: SampleFormat::REGS_INTR, ..event(1, 0) }, "at least one register"),
        (point(0, 0x1000, 8), "needs an access"),
        (point(7, 0x1000, 8), "cannot wait for execution and for data"),
        (point(1, 0x1000, 8), "reads alone"),
        (point(2, 0x1000, 3), "not 3"),
        (point(2, 0x1001, 8), "not a multiple"),
        (point(4, 0x1000, 4), "machine word here: 8"),
        (event(2, 99_999), "no tracepoint with the number 99999"),
        (user(event(9, 0)), "`msr` probably cannot tell user mode"),
        (Attr { sampling: Sampling::Period(1000), ..event(9, 0) }, "cannot sample"),
        (event(9, 99), "`msr` takes no event 0x63"),
        (event(1, 0), "does not say what"),
    ];
    for (attr, summary) in cases {
        check(&why(&root(), OWN, EINVAL, &attr), Invalid, summary, "");
    }
    let inside = Attr { flags: USER, ..point(2, 1 << 63, 8) };
    check(&why(&root(), OWN, EINVAL, &inside), Invalid, "lies in the kernel", ":u");
}

#[test]
fn cpus_that_are_not_there() {
    for errno in [EINVAL, ENODEV] {
        let offline = why(&root(), TargetKind::Cpu(2), errno, &event(1, 0));
        check(&offline, NotPresent, "CPU 2 is offline; online are 0-1", "cpu2/online");
    }
    let missing = why(&root(), TargetKind::Cpu(999), EINVAL, &event(1, 0));
    check(&missing, NotPresent, "no CPU 999; it has 0-2", "");
    check(&why(&root(), OWN, ESRCH, &event(1, 0)), Gone, "it has ended", "");
}

#[test]
fn groups_and_shared_pmus() {
    let mut facts = bare();
    facts.nmi_watchdog = Some(true);
    let uncore = PmuFacts { scope: PmuScope::Shared(CpuList::new([4])), ..pmu("uncore_imc", 20) };
    facts.pmus.as_mut().unwrap().push(uncore);
    check(&why(&facts, OWN, EINVAL, &event(20, 1)), Invalid, "whole CPUs, not for a task", "CPU 4 with `-C`");
    let member = |attr: &Attr| {
        explain(&RefusedRequest { errno: EINVAL, attr, target: OWN, role: GroupRole::Member, facts: &facts })
    };
    check(&member(&event(0, 0)), Invalid, "larger than the counters", "nmi_watchdog=0");
    check(&member(&Attr { flags: AttrFlags::PINNED, ..event(1, 2) }), Invalid, "only the leader", "first event");
    check(&member(&event(1, 2)), Invalid, "one target, one CPU and one clock", "");
    let attr = event(1, 2);
    let closed =
        explain(&RefusedRequest { errno: EBADF, attr: &attr, target: OWN, role: GroupRole::Member, facts: &facts });
    check(&closed, Invalid, "leader of the group is closed", "");
    check(&why(&facts, TargetKind::Cgroup, EBADF, &attr), Invalid, "not a cgroup", "");
}

#[test]
fn old_kernels() {
    let old = Facts { kernel: Some((5, 10)), ..root() };
    let because = |attr, summary| check(&why(&old, OWN, EINVAL, &attr), NotSupported, summary, "");
    because(Attr { flags: AttrFlags::SIGTRAP, ..event(1, 0) }, "sigtrap needs Linux 5.13; this is 5.10");
    because(Attr { read_format: ReadFormat::LOST, ..event(1, 0) }, "Linux 6.0");
    check(&why(&old, OWN, E2BIG, &event(1, 0)), NotSupported, "newer than this kernel (Linux 5.10)", "config3");
}

#[test]
fn features_and_resources() {
    let precise = Attr { precise: Precise::MustHaveZeroSkid, sampling: Sampling::Period(1000), ..event(0, 0) };
    check(&why(&bare(), OWN, EOPNOTSUPP, &precise), NotSupported, "`cpu` places samples at precision 3", "");
    let branches = Attr { sample: SampleFormat::BRANCH_STACK, branch_sample: BranchSample::ANY, ..user(event(1, 0)) };
    check(&why(&root(), OWN, EOPNOTSUPP, &branches), NotSupported, "only hardware events", "");
    let half = Attr { flags: AttrFlags::EXCLUDE_KERNEL, ..branches };
    check(&why(&unprivileged(), OWN, EACCES, &half), NotPermitted, "branches of the kernel or the hyper", "=1");
    let msr = why(&unprivileged(), OWN, EACCES, &event(9, 0));
    assert!(!msr.to_string().contains(":u"), "that PMU cannot leave the kernel out:\n{msr}");
    let output = Attr { flags: AttrFlags::AUX_OUTPUT, ..event(1, 1) };
    check(&why(&root(), OWN, EOPNOTSUPP, &output), NotSupported, "AUX", "intel_pt");
    let sampled = Attr { sampling: Sampling::Period(1), ..event(0, 0) };
    check(&why(&bare(), OWN, EOPNOTSUPP, &sampled), NotSupported, "no interrupt", "cpu-clock");
    let files = why(&root(), OWN, EMFILE, &event(1, 1));
    check(&files, NoResource, "1024 (at most 4096)", "ulimit -n 4096");
    let full = Facts { open_files: Some(OpenFiles { soft: 10, hard: 10, ceiling: Some(10) }), ..root() };
    check(&why(&full, OWN, EMFILE, &event(1, 1)), NoResource, "(at most 10)", "fs.nr_open` is 10");
    check(
        &why(&root(), TargetKind::Cpu(1), ENOSPC, &event(5, 0)),
        NoResource,
        "x86 has 4 for each CPU) are reserved on CPU 1",
        "debugger",
    );
    let dog = Facts { nmi_watchdog: Some(true), ..bare() };
    check(&why(&dog, OWN, EBUSY, &event(4, 1)), NoResource, "holds the PMU `cpu` alone", "kernel.nmi_watchdog=0");
    check(&why(&root(), OWN, ENOMEM, &event(1, 1)), NoResource, "no memory", "");
    let chain = Attr { sample_max_stack: 10_000, ..event(1, 0) };
    check(&why(&root(), OWN, EOVERFLOW, &chain), Invalid, "allows: 127", "perf_event_max_stack=10000");
}

#[test]
fn every_number_has_an_answer() {
    let attrs = [event(0, 0), event(1, 1), event(2, 3), event(3, 9), event(5, 0), event(9, 1), event(500, 0)];
    let facts = [Facts::default(), root(), unprivileged(), bare()];
    for errno in 0..140 {
        for attr in &attrs {
            for facts in &facts {
                for target in [OWN, TargetKind::Task(Whose::Other), TargetKind::Cpu(u32::MAX), TargetKind::Cgroup] {
                    for role in [GroupRole::Leader, GroupRole::Member] {
                        let reason = explain(&RefusedRequest { errno, attr, target, role, facts });
                        assert!(!reason.summary.is_empty() && !reason.summary.ends_with('.'), "{reason}");
                        assert!(reason.help.iter().all(|line| !line.is_empty() && !line.contains("  ")), "{reason}");
                    }
                }
            }
        }
    }
}

#[test]
fn facts_of_a_fabricated_machine() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| pmux_testkit::put(folder.path(), name, text);
    put("proc/sys/kernel/perf_event_paranoid", "3\n");
    put("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n");
    put("proc/sys/kernel/nmi_watchdog", "1\n");
    put("proc/sys/fs/nr_open", "1048576\n");
    put("proc/self/status", "Tgid:\t7\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000004000000000\nSeccomp:\t2\n");
    put("proc/self/uid_map", "         0       1000          1\n");
    put(
        "proc/self/limits",
        "Limit  Soft  Hard  Units\nMax open files            1024                 unlimited            files\n",
    );
    put("proc/cpuinfo", "flags\t\t: fpu hypervisor sse\n");
    put("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    put("sys/kernel/security/lsm", "capability,selinux\n");
    put("sys/fs/selinux/enforce", "0");
    put("proc/self/attr/current", "u:r:agent_t:s0\0");
    put("sys/devices/system/cpu/online", "0-1\n");
    put("sys/bus/event_source/devices/cpu/type", "4\n");
    put("sys/bus/event_source/devices/cpu/caps/max_precise", "2\n");
    put("sys/bus/event_source/devices/uncore/type", "12\n");
    put("sys/bus/event_source/devices/uncore/cpumask", "0,4\n");
    put(".dockerenv", "");
    let facts = Facts::gather(&Roots::at(folder.path()));
    assert_eq!((facts.paranoid, facts.kernel, facts.nmi_watchdog), (Some(3), Some((5, 10)), Some(true)));
    assert_eq!((facts.effective_uid, facts.seccomp), (1000, SeccompMode::Filter));
    assert_eq!((facts.namespace, facts.machine), (UserNamespace::Nested, MachineKind::Virtual));
    assert!(!facts.can(Capability::Perfmon), "not in a nested namespace");
    assert_eq!(facts.open_files, Some(OpenFiles { soft: 1024, hard: u64::MAX, ceiling: Some(1_048_576) }));
    assert_eq!(facts.lockdown, Lockdown::Confidentiality);
    assert_eq!(facts.security_modules, ["capability", "selinux"]);
    assert_eq!(facts.selinux, Some(("u:r:agent_t:s0".to_owned(), Some(PerfRights::ALL))));
    assert_eq!(facts.container.as_deref(), Some("Docker"));
    let pmus = facts.pmus.as_deref().unwrap();
    assert_eq!((pmus[0].is_core(), pmus[0].max_precise), (true, Some(2)));
    assert_eq!(pmus[1].scope, PmuScope::Shared(CpuList::new([0, 4])));
    assert!(!facts.lacks_core_pmu() && facts.online.len() == 2 && facts.possible.is_empty());
    // A part of them says the same of a task's event that is not there.
    for root in [folder.path().to_owned(), folder.path().join("nothing")] {
        let (all, some) = (Facts::gather(&Roots::at(&root)), Facts::of_machine(&Roots::at(&root)));
        for (kind, config) in (0..16).flat_map(|kind| [(kind, 0), (kind, 99)]) {
            let attr = Attr { kind: EventType(kind), config, ..Attr::default() };
            let why = |facts: &Facts| {
                let (errno, target, role) = (ENOENT, TargetKind::Task(Whose::Own), GroupRole::Leader);
                assert!(is_about_the_machine(errno, target));
                explain(&RefusedRequest { errno, attr: &attr, target, role, facts })
            };
            assert_eq!(why(&all), why(&some), "{attr:?}");
        }
    }
    let empty = Facts::gather(&Roots::at(&folder.path().join("nothing")));
    assert_eq!((empty.paranoid, empty.pmus, empty.kernel), (None, None, None));
}

#[test]
fn facts_of_this_machine() {
    let facts = Facts::gather(&Roots::system());
    assert!(facts.kernel.is_some_and(|kernel| kernel >= (3, 0)));
    assert!(!facts.online.is_empty());
    assert!(facts.open_files.is_some_and(|files| files.soft <= files.hard));
    println!("{facts:?}");
}
