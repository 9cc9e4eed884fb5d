//! What all clients of a user together may have, and what is kept back for root.

use super::records::{subscribed, wish};
use super::*;
use pmux::server_api::shared::wire::Scope;

fn with_limits(change: impl Fn(&mut LimitsConfig)) -> Scene {
    let mut rules = rules();
    (rules.limits.clients_per_user, rules.limits.clients) = (100, 100);
    (rules.limits.events_per_client, rules.limits.events) = (1000, 1000);
    change(&mut rules.limits);
    let mut scene = Scene::new();
    scene.service.set_rules(rules);
    scene
}

#[test]
fn a_user_has_one_budget_however_many_clients_it_has() {
    let mut scene = with_limits(|limits| limits.events_per_user = 10);
    let (one, two, other, root, own) =
        (scene.greeted(5), scene.greeted(5), scene.greeted(6), scene.greeted(0), scene.greeted(999));
    let first = scene.opened(one, 6);
    assert_eq!(scene.refused(two, open(5)), (RefusalKind::Limit, errno::EMFILE));
    scene.opened(two, 4);
    assert_eq!(scene.refused(one, open(1)), (RefusalKind::Limit, errno::EMFILE));
    for id in [other, root, own] {
        scene.opened(id, 10);
    }
    for id in [root, own] {
        scene.opened(id, 10);
    }
    assert!(matches!(scene.ask(one, Request::Close { handles: vec![first[0]] }), Reply::Done));
    scene.opened(two, 6);
    // What a client that has gone held is given back when it is closed.
    scene.service.gone(two);
    assert_eq!(scene.refused(one, open(1)), (RefusalKind::Limit, errno::EMFILE));
    assert!(scene.service.close_some(&mut scene.list, || false), "one group at a time");
    assert!(!scene.service.close_some(&mut scene.list, || true));
    scene.opened(one, 10);
    let held = Charge { events: 10, files: 12, ..Charge::default() };
    let usage = Usage { clients: 1, held, closing: 0, waits: false, bound: true };
    assert_eq!(scene.service.of_users(0, scene.now)[&5], usage);
}

#[test]
fn a_member_that_was_closed_is_paid_for_as_long_as_its_event_is_open() {
    let mut scene = with_limits(|limits| limits.events_per_user = 128);
    let id = scene.greeted(5);
    let mut held = 0;
    // Groups of which all but the leader are closed: the kernel has all of their events.
    while let Reply::Opened(opened) = scene.ask(id, open(32)) {
        held += 32;
        assert!(held <= 128, "{held} events where 128 are allowed");
        let handles = opened.handles[1..].to_vec();
        assert!(matches!(scene.ask(id, Request::Close { handles }), Reply::Done));
    }
    assert_eq!((held, scene.service.charge.events), (128, 128));
}

#[test]
fn what_a_thread_closes_is_paid_for_until_it_is_closed() {
    let mut scene = with_limits(|limits| limits.events_per_user = 8);
    scene.list.slow = true;
    let (id, other) = (scene.greeted(5), scene.greeted(6));
    for _ in 0..2 {
        let handles = scene.opened(id, 4);
        assert!(matches!(scene.ask(id, Request::Close { handles: vec![handles[0]] }), Reply::Done));
    }
    let Reply::Refused(refusal) = scene.ask(id, open(1)) else { panic!("there is room") };
    assert!(refusal.text.contains("8 events are still being closed"), "{}", refusal.text);
    scene.opened(other, 8);
    scene.list.closing.closed = 4;
    scene.opened(id, 4);
    assert_eq!(scene.refused(id, open(1)), (RefusalKind::Limit, errno::EMFILE));
}

#[test]
fn some_is_kept_back_for_root() {
    let mut scene = with_limits(|limits| {
        (limits.clients, limits.clients_for_root) = (8, 100);
        (limits.events, limits.events_for_root) = (40, 10);
        limits.files_for_root = 64;
    });
    let ids: Vec<_> = (1..7).map(|user| scene.greeted(user)).collect();
    let full = scene.service.connect((peer(7), 7), Membership::None, 0).unwrap_err();
    assert!(full.text.contains("6 is the most"), "at most a quarter: {}", full.text);
    let root = scene.greeted(0);
    scene.opened(ids[0], 30);
    assert_eq!(scene.refused(ids[1], open(1)), (RefusalKind::Limit, errno::EMFILE));
    scene.opened(root, 5);
    scene.list.files_left = Some(64 + 2);
    assert!(matches!(scene.ask(ids[0], Request::Ping), Reply::Done));
    assert_eq!(scene.refused(ids[0], open(3)), (RefusalKind::Limit, errno::EMFILE));
    scene.opened(root, 3);
}

#[test]
fn descriptors_and_rings_have_a_budget() {
    let mut scene = with_limits(|limits| limits.files_per_user = 12);
    let id = scene.greeted(5);
    // Two for the client.
    scene.opened(id, 10);
    let Reply::Refused(refusal) = scene.ask(id, open(1)) else { panic!("there is room") };
    assert!(refusal.text.contains("files_per_user"), "{}", refusal.text);
    let mut scene = with_limits(|limits| limits.rings_kib_per_user = 16);
    let (one, two) = (scene.greeted(5), scene.greeted(5));
    let records = || Request::Subscribe(wish(Scope::Cpus(Vec::new()), 1));
    let first = subscribed(&mut scene, one, records());
    subscribed(&mut scene, two, records());
    assert_eq!(scene.refused(one, records()), (RefusalKind::Limit, errno::EMFILE));
    assert!(matches!(scene.ask(one, Request::Close { handles: vec![first] }), Reply::Done));
    subscribed(&mut scene, two, records());
}

#[test]
fn rings_of_the_kernel_are_what_the_kernel_lets_the_user_lock() {
    let mut scene = with_limits(|_| ());
    scene.service.set_rules(Rules { kernel_ring_bytes: 512 << 10, ..scene.service.rules });
    // Two events of 516 KiB, and of the next ones two of 16 KiB, each with its first page.
    scene.list.streams.locked_bytes = Some((2 * 516 + 2 * 20 + 10) << 10);
    let (one, two, root) = (scene.greeted(5), scene.greeted(5), scene.greeted(0));
    let records = || Request::Subscribe(wish(Scope::Cpus(Vec::new()), 1));
    subscribed(&mut scene, one, records());
    subscribed(&mut scene, two, records());
    assert_eq!(scene.refused(two, records()), (RefusalKind::Limit, errno::EPERM));
    subscribed(&mut scene, root, records());
    assert_eq!(scene.list.streams.rings, [512 << 10, 16 << 10, 512 << 10]);
}

#[test]
fn all_clients_of_a_user_together_ask_no_faster() {
    let mut scene = with_limits(|limits| {
        (limits.requests_per_second, limits.requests_per_second_per_user) = (1000, 10);
    });
    let (one, two, other) = (scene.greeted(5), scene.greeted(5), scene.greeted(6));
    let mut asked = 2;
    while scene.service.ready_at(one, 0).is_none() {
        scene.ask(one, Request::Ping);
        asked += 1;
    }
    assert_eq!(asked, 3, "a quarter of a second's worth, with the greetings");
    assert!(scene.service.ready_at(two, 0).is_some() && scene.service.ready_at(other, 0).is_none());
}
