//! The rules, one by one. `tests/serve_rights.rs` of the command compares them with the kernel.
#![allow(clippy::unwrap_used)]

use super::*;
use pmux::serving::abi::{BranchSample, SampleFormat, Sampling};
use pmux::serving::{Breadth, Capabilities, Connected, Namespace, PerfRights};

const NORMAL: Machine = Machine { paranoid: 2, kernel_from: 1 << 63 };

fn machine(paranoid: i32) -> Machine {
    Machine { paranoid, ..NORMAL }
}

fn user(id: u32) -> Asker {
    Asker {
        connected: Connected { process: 100, user: id, group: id, ..Connected::default() },
        process: Some(100),
        task_ids: Namespace::Ours,
        user_namespace: Some(1),
        ..Asker::default()
    }
}

fn able(id: u32, capabilities: u64) -> Asker {
    Asker { capabilities: Capabilities { effective: capabilities, permitted: capabilities }, ..user(id) }
}

fn task_of(id: u32) -> Subject {
    let ids = pmux_linux::procfs::Ids { real: id, effective: id, saved: id };
    Subject { process: 200, users: ids, groups: ids, permitted: 0, user_namespace: Some(1), dumpable: true }
}

fn event(kind: EventType, flags: AttrFlags) -> Attr {
    Attr { kind, flags, ..Attr::default() }
}

fn in_user_mode() -> Attr {
    event(EventType::HARDWARE, AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV)
}

fn ask(asker: &Asker, attr: &Attr, wanted: Wanted<'_>, machine: Machine) -> Result<Grant, Denied> {
    decide(asker, attr, PmuKind::Other, wanted, machine, Membership::None)
}

#[test]
fn own_tasks_in_user_mode_are_for_everybody() {
    let own = task_of(7);
    assert_eq!(ask(&user(7), &in_user_mode(), Wanted::Task(&own), NORMAL), Ok(Grant::AsKernel));
    assert_eq!(ask(&user(8), &in_user_mode(), Wanted::Task(&own), NORMAL), Err(Denied::OtherTask));
}

#[test]
fn the_level_decides_about_the_kernel_and_whole_cpus() {
    let own = task_of(7);
    let all = event(EventType::HARDWARE, AttrFlags::empty());
    for paranoid in -1..=3 {
        let machine = machine(paranoid);
        let kernel = ask(&user(7), &all, Wanted::Task(&own), machine);
        assert_eq!(kernel, if paranoid > 1 { Err(Denied::Kernel { paranoid }) } else { Ok(Grant::AsKernel) });
        for wanted in [Wanted::Cpu, Wanted::Cgroup] {
            let whole = ask(&user(7), &in_user_mode(), wanted, machine);
            assert_eq!(whole, if paranoid > 0 { Err(Denied::WholeCpu { paranoid }) } else { Ok(Grant::AsKernel) });
        }
    }
}

#[test]
fn capabilities_open_everything_that_counts() {
    let all = event(EventType(77), AttrFlags::empty());
    for capability in [PERFMON, SYS_ADMIN] {
        for wanted in [Wanted::Cpu, Wanted::Cgroup, Wanted::AnyTask] {
            assert_eq!(ask(&able(7, capability), &all, wanted, NORMAL), Ok(Grant::AsKernel));
        }
    }
    let traced = task_of(9);
    assert_eq!(ask(&able(7, SYS_PTRACE), &in_user_mode(), Wanted::Task(&traced), NORMAL), Ok(Grant::AsKernel));
    assert_eq!(ask(&able(7, SYS_PTRACE), &in_user_mode(), Wanted::Cpu, NORMAL), Err(Denied::WholeCpu { paranoid: 2 }));
    // To be root by name alone is nothing.
    assert_eq!(ask(&user(0), &in_user_mode(), Wanted::Cpu, NORMAL), Err(Denied::WholeCpu { paranoid: 2 }));
}

#[test]
fn a_named_group_may_count_whole_cpus_and_nothing_more() {
    let all = event(EventType::SOFTWARE, AttrFlags::empty());
    let named = |wanted| decide(&user(7), &all, PmuKind::Other, wanted, NORMAL, Membership::Named);
    assert_eq!(named(Wanted::Cpu), Ok(Grant::ByGroup));
    assert_eq!(named(Wanted::Cgroup), Ok(Grant::ByGroup));
    let own = task_of(7);
    assert_eq!(named(Wanted::Task(&own)), Err(Denied::Kernel { paranoid: 2 }));
    let watched = Attr { config1: 1 << 63, ..event(EventType::BREAKPOINT, AttrFlags::empty()) };
    let kernel = decide(&user(7), &watched, PmuKind::Other, Wanted::Cpu, NORMAL, Membership::Named);
    assert_eq!(kernel, Err(Denied::KernelAddress));
}

#[test]
fn a_task_that_has_more_rights_is_nobody_elses() {
    let ask = |asker: &Asker, subject: Subject| ask(asker, &in_user_mode(), Wanted::Task(&subject), NORMAL).is_ok();
    let own = task_of(7);
    assert!(ask(&user(7), own));
    let mut ids = own.users;
    ids.saved = 0;
    assert!(!ask(&user(7), Subject { users: ids, ..own }));
    assert!(!ask(&user(7), Subject { groups: ids, ..own }));
    assert!(!ask(&user(7), Subject { permitted: 1 << 12, ..own }));
    assert!(ask(&able(7, 1 << 12), Subject { permitted: 1 << 12, ..own }));
    assert!(!ask(&user(7), Subject { dumpable: false, ..own }));
    assert!(ask(&user(7), Subject { dumpable: false, process: 100, ..own }), "its own process");
    assert!(!ask(&user(7), Subject { user_namespace: Some(2), ..own }));
    assert!(!ask(&user(7), Subject { user_namespace: None, ..own }));
}

#[test]
fn what_is_more_than_counting_is_not_shared() {
    let asker = able(0, !0);
    let refused = |attr: Attr| ask(&asker, &attr, Wanted::Cpu, NORMAL) == Err(Denied::NotCounting);
    for flag in AttrFlags::all().iter() {
        let attr = event(EventType::SOFTWARE, flag);
        assert_eq!(refused(attr), !only_counts(&attr), "{flag:?}");
    }
    let does_more = AttrFlags::MMAP | AttrFlags::TASK | AttrFlags::ENABLE_ON_EXEC | AttrFlags::SIGTRAP;
    assert!(does_more.iter().all(|flag| refused(event(EventType::SOFTWARE, flag))));
    assert!(refused(Attr { sampling: Sampling::Period(1), ..Attr::default() }));
    assert!(refused(Attr { sampling: Sampling::Frequency(1), ..Attr::default() }));
    assert!(refused(Attr { aux_action: 1, ..Attr::default() }));
}

#[test]
fn pmus_with_rules_of_their_own_are_left_to_the_kernel() {
    let own = task_of(7);
    let odd = event(EventType(77), AttrFlags::EXCLUDE_KERNEL);
    let ask = |asker: &Asker, pmu, wanted| decide(asker, &odd, pmu, wanted, machine(0), Membership::None);
    assert_eq!(ask(&user(7), PmuKind::Other, Wanted::Task(&own)), Err(Denied::UnknownPmu(EventType(77))));
    assert_eq!(ask(&user(7), PmuKind::Core, Wanted::Task(&own)), Ok(Grant::AsKernel));
    assert_eq!(ask(&user(7), PmuKind::Other, Wanted::Cpu), Ok(Grant::AsKernel));
    // The name of a probe is an address in the memory of whoever asks.
    assert_eq!(ask(&able(0, !0), PmuKind::Probe, Wanted::Cpu), Err(Denied::Probe));
    let both_threads = Attr { config: ANY_THREAD, ..event(EventType::RAW, AttrFlags::EXCLUDE_KERNEL) };
    let ask =
        |level| decide(&user(7), &both_threads, PmuKind::Core, Wanted::Task(&own), machine(level), Membership::None);
    assert_eq!(ask(1), Err(Denied::WholeCpu { paranoid: 1 }));
    assert_eq!(ask(0), Ok(Grant::AsKernel));
}

#[test]
fn all_functions_of_the_kernel_are_not_for_everybody() {
    let own = task_of(7);
    let functions = Attr { config: 1, ..event(EventType::TRACEPOINT, AttrFlags::EXCLUDE_KERNEL) };
    for paranoid in 0..=2 {
        let answer = ask(&user(7), &functions, Wanted::Task(&own), machine(paranoid));
        assert_eq!(answer, Err(Denied::Functions { paranoid }));
    }
    assert_eq!(ask(&user(7), &functions, Wanted::Task(&own), machine(-1)), Ok(Grant::AsKernel));
    assert_eq!(ask(&able(7, PERFMON), &functions, Wanted::Task(&own), NORMAL), Ok(Grant::AsKernel));
    let group = decide(&user(7), &functions, PmuKind::Other, Wanted::Cpu, NORMAL, Membership::Named);
    assert_eq!(group, Err(Denied::Functions { paranoid: 2 }), "it says more than a count of what runs");
    let other = Attr { config: 300, ..functions };
    assert_eq!(ask(&user(7), &other, Wanted::Task(&own), NORMAL), Ok(Grant::AsKernel));
}

#[test]
fn a_security_module_is_asked_what_the_kernel_would_ask_it() {
    use PerfPermission::{Cpu, Kernel, Open, Tracepoint};
    let all = event(EventType::SOFTWARE, AttrFlags::empty());
    let functions = Attr { config: 1, ..event(EventType::TRACEPOINT, AttrFlags::EXCLUDE_KERNEL) };
    let cases = [
        (in_user_mode(), Breadth::Task, &[Open][..]),
        (in_user_mode(), Breadth::WholeCpu, &[Open, Cpu]),
        (all, Breadth::Task, &[Open, Kernel]),
        (all, Breadth::WholeCpu, &[Open, Cpu, Kernel]),
        (Attr { config: 300, ..functions }, Breadth::Task, &[Open]),
        (functions, Breadth::Task, &[Open, Tracepoint]),
        (Attr { sample: SampleFormat::RAW, config: 300, ..functions }, Breadth::Task, &[Open, Tracepoint]),
    ];
    for (attr, breadth, needed) in cases {
        for without in PerfPermission::ALL {
            let others = PerfPermission::ALL.into_iter().filter(|&permission| permission != without);
            let rights = others.fold(PerfRights::NONE, PerfRights::with);
            let answer = allowed_by(Module::Allows(rights), &attr, breadth);
            assert_eq!(answer, if needed.contains(&without) { Err(Denied::Module(without)) } else { Ok(()) });
        }
        assert_eq!(allowed_by(Module::Allows(PerfRights::ALL), &attr, breadth), Ok(()));
        assert_eq!(allowed_by(Module::None, &attr, breadth), Ok(()));
        assert_eq!(allowed_by(Module::Silent, &attr, breadth), Err(Denied::ModuleUnknown));
    }
}

#[test]
fn numbers_of_tasks_from_elsewhere_mean_nothing() {
    let asker = Asker { task_ids: Namespace::Other, ..able(0, !0) };
    assert_eq!(ask(&asker, &in_user_mode(), Wanted::AnyTask, NORMAL), Err(Denied::OtherNamespace));
    assert_eq!(ask(&asker, &in_user_mode(), Wanted::Cpu, NORMAL), Ok(Grant::AsKernel));
}

#[test]
fn every_refusal_is_a_sentence() {
    let all = [
        Denied::NotCounting,
        Denied::UnknownPmu(EventType(9)),
        Denied::Functions { paranoid: 2 },
        Denied::Module(PerfPermission::Cpu),
        Denied::ModuleUnknown,
        Denied::Kernel { paranoid: 2 },
        Denied::WholeCpu { paranoid: 2 },
        Denied::Probe,
        Denied::KernelAddress,
        Denied::OtherTask,
        Denied::OtherNamespace,
    ];
    for denied in all {
        let text = denied.to_string();
        assert!(text.len() > 20 && !text.ends_with('.'), "{text}");
        assert_eq!(denied.may_try_himself(), denied.errno() == 0);
    }
}

fn records(attr: &Attr, asker: &Asker, wanted: Wanted<'_>, machine: Machine) -> Result<(), Denied> {
    decide_records(asker, attr, PmuKind::Other, wanted, machine)
}

fn sampling(sample: SampleFormat) -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::SAMPLE_ID_ALL;
    let sample = sample | SampleFormat::IP | SampleFormat::TID;
    Attr { sampling: Sampling::Frequency(99), sample, ..event(EventType::SOFTWARE, flags) }
}

#[test]
fn records_follow_the_rules_of_counting() {
    let own = task_of(7);
    let plain = sampling(SampleFormat::empty());
    assert_eq!(records(&plain, &user(7), Wanted::Task(&own), NORMAL), Ok(()));
    assert_eq!(records(&plain, &user(8), Wanted::Task(&own), NORMAL), Err(Denied::OtherTask));
    assert_eq!(records(&plain, &user(7), Wanted::Cpu, NORMAL), Err(Denied::WholeCpu { paranoid: 2 }));
    assert_eq!(records(&plain, &user(7), Wanted::Cpu, machine(0)), Ok(()));
    let kernel = Attr { flags: AttrFlags::SAMPLE_ID_ALL, ..plain };
    assert_eq!(records(&kernel, &user(7), Wanted::Task(&own), NORMAL), Err(Denied::Kernel { paranoid: 2 }));
    assert_eq!(records(&kernel, &user(7), Wanted::Task(&own), machine(1)), Ok(()));
    assert_eq!(records(&kernel, &able(7, PERFMON), Wanted::Cpu, machine(3)), Ok(()));
}

/// Records tell numbers of tasks of the service's namespace.
#[test]
fn records_are_for_the_same_namespace() {
    let foreign = Asker { task_ids: Namespace::Other, ..able(0, PERFMON) };
    assert_eq!(records(&sampling(SampleFormat::empty()), &foreign, Wanted::Cpu, NORMAL), Err(Denied::OtherNamespace));
}

#[test]
fn what_records_tell_may_need_a_right_of_its_own() {
    let own = task_of(7);
    let privileged = able(7, PERFMON);
    let plain = sampling(SampleFormat::empty());
    let flagged = |flag| Attr { flags: plain.flags | flag, ..plain };
    for secret in [
        sampling(SampleFormat::PHYS_ADDR),
        sampling(SampleFormat::REGS_INTR),
        flagged(AttrFlags::NAMESPACES),
        flagged(AttrFlags::KSYMBOL),
        flagged(AttrFlags::BPF_EVENT),
        flagged(AttrFlags::TEXT_POKE),
        Attr { branch_sample: BranchSample::KERNEL, ..sampling(SampleFormat::BRANCH_STACK) },
    ] {
        assert_eq!(records(&secret, &user(7), Wanted::Task(&own), machine(0)), Err(Denied::PrivilegedRecords));
        assert_eq!(records(&secret, &privileged, Wanted::Task(&own), NORMAL), Ok(()));
    }
    for open in [
        flagged(AttrFlags::MMAP | AttrFlags::MMAP2 | AttrFlags::COMM | AttrFlags::TASK | AttrFlags::CONTEXT_SWITCH),
        sampling(SampleFormat::CALLCHAIN | SampleFormat::REGS_USER | SampleFormat::STACK_USER | SampleFormat::ADDR),
        Attr { branch_sample: BranchSample::USER, ..sampling(SampleFormat::BRANCH_STACK) },
    ] {
        assert_eq!(records(&open, &user(7), Wanted::Task(&own), NORMAL), Ok(()));
    }
    // What a tracepoint says.
    let hits = Attr { kind: EventType::TRACEPOINT, ..sampling(SampleFormat::RAW) };
    assert_eq!(records(&hits, &user(7), Wanted::Task(&own), NORMAL), Err(Denied::TracepointData { paranoid: 2 }));
    assert_eq!(records(&hits, &user(7), Wanted::Task(&own), machine(-1)), Ok(()));
    let hits = Attr { kind: EventType::TRACEPOINT, ..plain };
    assert_eq!(records(&hits, &user(7), Wanted::Task(&own), NORMAL), Ok(()));
    // Nobody's but the asker's own, whoever he is.
    for alone in [
        sampling(SampleFormat::READ),
        flagged(AttrFlags::ENABLE_ON_EXEC),
        flagged(AttrFlags::SIGTRAP),
        flagged(AttrFlags::WRITE_BACKWARD),
        flagged(AttrFlags::INHERIT_STAT),
    ] {
        assert_eq!(records(&alone, &privileged, Wanted::AnyTask, NORMAL), Err(Denied::OwnRecords));
    }
}
