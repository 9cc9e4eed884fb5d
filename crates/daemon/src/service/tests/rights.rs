//! Who may change an event, and who is given files of the kernel's.

use super::*;

#[test]
fn modify_checks_rights_again() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    let handles = scene.opened(id, 2);
    let mut bytes = [0; Attr::MAX_SIZE];
    let other = Attr { config: 7, ..Attr::default() };
    let size = other.encode(&mut bytes);
    let modify = || Request::Control { handle: handles[1], op: EventOp::Modify(bytes[..size].to_vec()) };
    let asks = |scene: &Scene| scene.service.accounts().next().unwrap().1.groups[&handles[0].0].attrs[1].config;
    scene.list.lacks = true;
    assert_eq!(scene.refused(id, modify()), (RefusalKind::Rights, 13));
    scene.list.lacks = false;
    scene.list.denied = Some(Denied::Probe);
    assert_eq!(scene.refused(id, modify()), (RefusalKind::NotShared, errno::EOPNOTSUPP));
    assert_eq!((asks(&scene), scene.list.modified), (0, 0));
    scene.list.denied = None;
    assert_eq!(scene.ask(id, modify()), Reply::Done);
    assert_eq!((asks(&scene), scene.list.modified), (7, 1));
}

#[test]
fn files_go_to_clients_that_could_open_the_event() {
    let files = |scene: &mut Scene, id| scene.granted(id, 2).files.len();
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    assert_eq!(files(&mut scene, id), 1);
    scene.list.grant = Some(Grant::ByGroup);
    assert_eq!(files(&mut scene, id), 0);
    scene.list.grant = None;
    scene.service.set_rules(Rules { files: Files::Privileged, ..rules() });
    assert_eq!(files(&mut scene, id), 0);
    let able = Credentials { permitted: 1 << 38, effective: 1 << 38, ..Credentials::default() };
    let root = Peer { credentials: Some(able), ..peer(0) };
    let id = scene.service.connect((root, 0), Membership::None, 0).unwrap();
    scene.ask(id, hello());
    assert_eq!(files(&mut scene, id), 1);
    // Without an entry nothing says what of a file is whose.
    for _ in 0..2 {
        let opened = scene.granted(id, 2);
        assert_eq!((opened.entries.len(), opened.files.len()), (2, 1));
    }
    scene.service.set_rules(Rules { files: Files::Never, ..rules() });
    assert_eq!(scene.refused(id, open(4)).0, RefusalKind::Limit);
}

#[test]
fn holders_of_event_files_are_notified_when_they_move() {
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    let handles = scene.opened(id, 2);
    assert!(scene.service.refresh(&mut scene.list, || true).0.is_empty());
    scene.list.moves = true;
    let notices = scene.service.refresh(&mut scene.list, || true).0;
    assert_eq!(notices, [(id, Reply::Notice(Notice::Moved { handles: vec![handles[0]] }))]);
    assert!(scene.service.refresh(&mut scene.list, || true).0.is_empty());
    let renewed = scene.ask(id, Request::Renew { handle: handles[0] });
    assert!(matches!(renewed, Reply::Opened(opened) if opened.handles == handles && opened.files.len() == 1));
    let member = Request::Renew { handle: handles[1] };
    assert_eq!(scene.refused(id, member).0, RefusalKind::Request);
}

#[test]
fn a_second_open_does_not_grant_files() {
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    scene.list.grant = Some(Grant::ByGroup);
    let handles = scene.opened(id, 2);
    let renewed = scene.ask(id, Request::Renew { handle: handles[0] });
    assert!(matches!(renewed, Reply::Opened(opened) if opened.handles == handles && opened.files.is_empty()));
}

/// What is known of a client is what it is when it asks, and not what it was when it connected.
#[test]
fn rights_are_those_of_the_moment() {
    let mut scene = Scene::new();
    scene.service.set_rules(Rules { files: Files::Privileged, ..rules() });
    let able = Credentials { permitted: 1 << 38, effective: 1 << 38, ..Credentials::default() };
    let root = Peer { credentials: Some(able), ..peer(0) };
    let id = scene.service.connect((root, 0), Membership::None, 0).unwrap();
    scene.ask(id, hello());
    assert_eq!(scene.granted(id, 1).files.len(), 1);
    scene.service.set_peer(id, peer(7), Membership::None);
    assert_eq!(scene.granted(id, 1).files.len(), 0);
    assert_eq!(scene.list.peers, [0, 7]);
}

/// A group that the configuration names no more gives nothing any more, and takes back what it gave.
#[test]
fn a_group_that_is_taken_out_ends_what_it_allowed() {
    let mut scene = Scene::new();
    let (id, other) = (scene.greeted(5), scene.greeted(6));
    let own = scene.opened(id, 1);
    scene.list.grant = Some(Grant::ByGroup);
    let granted = scene.opened(id, 2);
    scene.opened(other, 1);
    let named = |user: u32| {
        move |peer: &Peer| match peer.connected.user == user {
            true => Membership::Named,
            false => Membership::None,
        }
    };
    let notices = scene.service.set_memberships(&mut scene.list, |_| Membership::Named);
    assert!(notices.is_empty());
    let notices = scene.service.set_memberships(&mut scene.list, named(6));
    let [(of, Reply::Notice(Notice::Lost { handles, why }))] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!((*of, &handles[..]), (id, &granted[..1]));
    assert!(why.contains("system_wide"), "{why}");
    assert_eq!(scene.refused(id, Request::Read { handles: granted }), (RefusalKind::Request, errno::EBADF));
    assert!(matches!(scene.ask(id, Request::Read { handles: own }), Reply::Values { .. }));
    assert_eq!((scene.service.charge.events, scene.list.open.len()), (2, 2));
}
