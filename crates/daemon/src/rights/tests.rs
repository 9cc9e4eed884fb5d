//! The rules, one by one. `tests/it/serve_rights.rs` of the command compares what the service does with the kernel.

use super::*;
use pmux::abi::{AttrFlags, SampleFormat, Sampling};
use pmux::server_api::PeerCred;

fn user(id: u32) -> Peer {
    able(id, 0)
}

fn able(id: u32, capabilities: u64) -> Peer {
    let credentials =
        Credentials { user: id, group: id, permitted: capabilities, effective: capabilities, user_namespace: None };
    Peer {
        connected: PeerCred { process: 100, user: id, group: id, ..PeerCred::default() },
        process: Some(100),
        credentials: Some(credentials),
        task_ids: PidNamespace::Ours,
        ..Peer::default()
    }
}

fn event(kind: EventType, flags: AttrFlags) -> Attr {
    Attr { kind, flags, ..Attr::default() }
}

fn in_user_mode() -> Attr {
    event(EventType::HARDWARE, AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV)
}

fn ask(peer: &Peer, attr: &Attr, target_scope: TargetScope) -> Result<(), Denied> {
    may_count(peer, attr, PmuKind::Other, target_scope)
}

/// Only a client that has every right of the service is served with the service's own credentials.
#[test]
fn a_client_with_fewer_rights_than_the_service_is_served_with_its_own() {
    let all = !0 >> 23;
    let root = able(0, all).credentials.unwrap();
    let as_service = |peer: &Peer| access(peer, Some(&root)) == Ok(Access::AsService);
    assert!(as_service(&able(0, all)));
    for capability in [PERFMON, SYS_ADMIN, all & !PERFMON, all & !1] {
        assert!(!as_service(&able(0, capability)), "root without some capability");
    }
    // One capability is not all of them, and another user is not root.
    for peer in [able(7, PERFMON), able(7, all), user(7), user(0)] {
        assert_eq!(access(&peer, Some(&root)), Ok(Access::AsClient(peer.credentials.unwrap())));
    }
    // Permitted is not effective.
    let mut asleep = able(0, all);
    asleep.credentials.as_mut().unwrap().effective = 0;
    assert!(!as_service(&asleep));
    // All capabilities of another user namespace.
    let mut elsewhere = able(0, all);
    elsewhere.credentials.as_mut().unwrap().user_namespace = Some(5);
    assert!(!as_service(&elsewhere));
    assert!(!is_privileged(&elsewhere));
    // A service of an ordinary user serves that user, whose groups may decide.
    let own = user(7).credentials.unwrap();
    assert_eq!(access(&user(7), Some(&own)), Ok(Access::AsService));
    let other_group = Credentials { group: 8, ..own };
    let peer = Peer { credentials: Some(other_group), ..user(7) };
    assert_eq!(access(&peer, Some(&own)), Ok(Access::AsClient(other_group)));
    // A client of which nothing is known has no rights.
    assert_eq!(access(&Peer { credentials: None, ..able(0, all) }, Some(&root)), Err(Denied::NotKnown));
    assert!(matches!(access(&able(0, all), None), Ok(Access::AsClient(_))));
}

#[test]
fn what_is_more_than_counting_is_not_shared() {
    let peer = able(0, !0);
    let refused = |attr: Attr| ask(&peer, &attr, TargetScope::WholeCpu) == Err(Denied::NotCounting);
    for flag in AttrFlags::all().iter() {
        let attr = event(EventType::SOFTWARE, flag);
        assert_eq!(refused(attr), !only_counts(&attr), "{flag:?}");
    }
    let does_more = AttrFlags::MMAP | AttrFlags::TASK | AttrFlags::ENABLE_ON_EXEC | AttrFlags::SIGTRAP;
    assert!(does_more.iter().all(|flag| refused(event(EventType::SOFTWARE, flag))));
    assert!(refused(Attr { sampling: Sampling::Period(1), ..Attr::default() }));
    assert!(refused(Attr { sampling: Sampling::Frequency(1), ..Attr::default() }));
    assert!(refused(Attr { aux_action: 1, ..Attr::default() }));
    assert_eq!(ask(&peer, &in_user_mode(), TargetScope::WholeCpu), Ok(()));
}

/// The name of a probe is an address in the memory of the process that asks.
#[test]
fn probes_are_for_their_own_process() {
    for target_scope in [TargetScope::Task, TargetScope::WholeCpu] {
        assert_eq!(may_count(&able(0, !0), &in_user_mode(), PmuKind::Probe, target_scope), Err(Denied::Probe));
    }
    assert_eq!(may_record(&able(0, !0), &sampling(SampleFormat::empty()), PmuKind::Probe), Err(Denied::Probe));
}

#[test]
fn numbers_of_tasks_from_elsewhere_mean_nothing() {
    let peer = Peer { task_ids: PidNamespace::Other, ..able(0, !0) };
    assert_eq!(ask(&peer, &in_user_mode(), TargetScope::Task), Err(Denied::OtherNamespace));
    assert_eq!(ask(&peer, &in_user_mode(), TargetScope::WholeCpu), Ok(()));
    // Records tell numbers of tasks of the service's namespace.
    let plain = sampling(SampleFormat::empty());
    assert_eq!(may_record(&peer, &plain, PmuKind::Other), Err(Denied::OtherNamespace));
}

#[test]
fn a_group_allows_counts_and_not_addresses() {
    for kind in [EventType::HARDWARE, EventType::SOFTWARE, EventType::HW_CACHE, EventType::RAW, EventType(77)] {
        assert!(!kernel_has_a_say(&event(kind, AttrFlags::empty())));
    }
    for kind in [EventType::BREAKPOINT, EventType::TRACEPOINT] {
        assert!(kernel_has_a_say(&event(kind, AttrFlags::empty())));
    }
}

#[test]
fn a_security_module_is_asked_what_the_kernel_would_ask_it() {
    use PerfPermission::{Cpu, Kernel, Open, Tracepoint};
    let all = event(EventType::SOFTWARE, AttrFlags::empty());
    let functions = Attr { config: 1, ..event(EventType::TRACEPOINT, AttrFlags::EXCLUDE_KERNEL) };
    let cases = [
        (in_user_mode(), TargetScope::Task, &[Open][..]),
        (in_user_mode(), TargetScope::WholeCpu, &[Open, Cpu]),
        (all, TargetScope::Task, &[Open, Kernel]),
        (all, TargetScope::WholeCpu, &[Open, Cpu, Kernel]),
        (Attr { config: 300, ..functions }, TargetScope::Task, &[Open]),
        (functions, TargetScope::Task, &[Open, Tracepoint]),
        (Attr { sample: SampleFormat::RAW, config: 300, ..functions }, TargetScope::Task, &[Open, Tracepoint]),
    ];
    for (attr, target_scope, needed) in cases {
        for without in PerfPermission::ALL {
            let others = PerfPermission::ALL.into_iter().filter(|&permission| permission != without);
            let rights = others.fold(PerfRights::NONE, PerfRights::with);
            let answer = allowed_by(Module::Allows(rights), &attr, target_scope);
            assert_eq!(answer, if needed.contains(&without) { Err(Denied::Module(without)) } else { Ok(()) });
        }
        assert_eq!(allowed_by(Module::Allows(PerfRights::ALL), &attr, target_scope), Ok(()));
        assert_eq!(allowed_by(Module::None, &attr, target_scope), Ok(()));
        assert_eq!(allowed_by(Module::Silent, &attr, target_scope), Err(Denied::ModuleUnknown));
    }
}

#[test]
fn every_refusal_is_a_sentence() {
    let all = [
        Denied::NotCounting,
        Denied::OwnRecords,
        Denied::Module(PerfPermission::Cpu),
        Denied::ModuleUnknown,
        Denied::Probe,
        Denied::OtherNamespace,
        Denied::NotKnown,
        Denied::Changed,
        Denied::OwnProcess,
    ];
    for denied in all {
        let text = denied.to_string();
        assert!(text.len() > 20 && !text.ends_with('.'), "{text}");
    }
}

fn sampling(sample: SampleFormat) -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::SAMPLE_ID_ALL;
    let sample = sample | SampleFormat::IP | SampleFormat::TID;
    Attr { sampling: Sampling::Frequency(99), sample, ..event(EventType::SOFTWARE, flags) }
}

/// Of no use to anybody but the process that opens them.
#[test]
fn records_of_their_own_process_are_not_passed() {
    let privileged = able(7, PERFMON);
    let plain = sampling(SampleFormat::empty());
    let flagged = |flag| Attr { flags: plain.flags | flag, ..plain };
    let flags = [AttrFlags::ENABLE_ON_EXEC, AttrFlags::SIGTRAP, AttrFlags::WRITE_BACKWARD, AttrFlags::INHERIT_STAT];
    for alone in flags.map(flagged).into_iter().chain([sampling(SampleFormat::READ)]) {
        assert_eq!(may_record(&privileged, &alone, PmuKind::Other), Err(Denied::OwnRecords));
    }
    for open in [
        flagged(AttrFlags::MMAP | AttrFlags::MMAP2 | AttrFlags::COMM | AttrFlags::TASK | AttrFlags::CONTEXT_SWITCH),
        sampling(SampleFormat::CALLCHAIN | SampleFormat::REGS_USER | SampleFormat::STACK_USER | SampleFormat::ADDR),
    ] {
        assert_eq!(may_record(&user(7), &open, PmuKind::Other), Ok(()));
    }
}
