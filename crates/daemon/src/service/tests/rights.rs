//! Who may change an event, and who is given files of the kernel's.

use super::*;

#[test]
fn whoever_changes_an_event_is_asked_for_his_rights_anew() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    let handles = scene.opened(id, 2);
    let mut bytes = [0; Attr::MAX_SIZE];
    let other = Attr { config: 7, ..Attr::default() };
    let size = other.encode(&mut bytes);
    let modify = || Request::Control { handle: handles[1], verb: Verb::Modify(bytes[..size].to_vec()) };
    let asks = |scene: &Scene| scene.service.accounts().next().unwrap().1.groups[&handles[0].0].attrs[1].config;
    scene.list.denied = Some(Denied::Kernel { paranoid: 2 });
    assert_eq!(scene.refused(id, modify()), (RefusalKind::Rights, 13));
    scene.list.denied = Some(Denied::Probe);
    assert_eq!(scene.refused(id, modify()), (RefusalKind::NotShared, errno::EOPNOTSUPP));
    assert_eq!((asks(&scene), scene.list.modified), (0, 0));
    scene.list.denied = None;
    assert_eq!(scene.ask(id, modify()), Reply::Done);
    assert_eq!((asks(&scene), scene.list.modified), (7, 1));
}

#[test]
fn files_go_to_whoever_could_have_them() {
    let files = |scene: &mut Scene, id| match scene.ask(id, open(2)) {
        Reply::Opened(opened) => opened.files.len(),
        other => panic!("{other:?}"),
    };
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    assert_eq!(files(&mut scene, id), 1);
    // Nobody else depends on what an ordinary user can stop.
    assert_eq!(scene.list.holders, [6]);
    scene.list.grant = Some(Grant::ByGroup);
    assert_eq!(files(&mut scene, id), 0);
    scene.list.grant = None;
    scene.service.set_rules(Rules { files: Files::Privileged, ..rules() });
    assert_eq!(files(&mut scene, id), 0);
    let able = Capabilities { effective: 1 << 38, permitted: 1 << 38 };
    let root = Asker { capabilities: able, ..asker(0) };
    let id = scene.service.connect(root, STANDING, 0).unwrap();
    scene.ask(id, hello());
    assert_eq!(files(&mut scene, id), 1);
    assert_eq!(scene.list.holders.last(), Some(&0));
    // Without an entry nothing says what of a file is whose.
    let entries = |scene: &mut Scene, id| match scene.ask(id, open(2)) {
        Reply::Opened(opened) => (opened.entries.len(), opened.files.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(entries(&mut scene, id), (2, 1));
    assert_eq!(entries(&mut scene, id), (2, 1));
    scene.service.set_rules(Rules { files: Files::Never, ..rules() });
    assert_eq!(scene.refused(id, open(4)).0, RefusalKind::Limit);
}

#[test]
fn who_holds_a_file_is_told_when_it_moves() {
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    let handles = scene.opened(id, 2);
    assert!(scene.service.refresh(&mut scene.list).is_empty());
    scene.list.moves = true;
    let told = scene.service.refresh(&mut scene.list);
    assert_eq!(told, [(id, Reply::Notice(Notice::Moved { handles: vec![handles[0]] }))]);
    assert!(scene.service.refresh(&mut scene.list).is_empty());
    let renewed = scene.ask(id, Request::Renew { handle: handles[0] });
    assert!(matches!(renewed, Reply::Opened(opened) if opened.handles == handles && opened.files.len() == 1));
    let member = Request::Renew { handle: handles[1] };
    assert_eq!(scene.refused(id, member).0, RefusalKind::Request);
}

#[test]
fn who_was_given_no_file_gets_none_by_asking_again() {
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    scene.list.grant = Some(Grant::ByGroup);
    let handles = scene.opened(id, 2);
    let renewed = scene.ask(id, Request::Renew { handle: handles[0] });
    assert!(matches!(renewed, Reply::Opened(opened) if opened.handles == handles && opened.files.is_empty()));
}
