//! How much what a client counts weighs.

use super::*;

#[test]
fn what_a_client_counts_weighs_what_it_may() {
    let mut scene = Scene::new();
    let (id, other) = (scene.greeted(7), scene.greeted(8));
    scene.opened(id, 2);
    scene.opened(other, 1);
    let weights = |scene: &Scene| scene.list.weights.values().copied().collect::<Vec<_>>();
    assert_eq!(weights(&scene), [2, 2], "what the configuration says");
    assert!(matches!(scene.ask(id, Request::Weigh { weight: 5 }), Reply::Done));
    scene.opened(id, 1);
    assert_eq!(weights(&scene), [5, 2, 5], "what is open and what comes, of nobody else");
    for (weight, what) in [(6, "1 to 5"), (0, "1 to 5"), (u16::MAX, "`weights`")] {
        let Reply::Refused(refusal) = scene.ask(id, Request::Weigh { weight }) else { panic!("{weight}") };
        assert_eq!((refusal.kind(), refusal.errno), (RefusalKind::Rights, errno::EACCES));
        assert!(refusal.text.contains(what), "{}", refusal.text);
    }
    assert_eq!(weights(&scene), [5, 2, 5]);
    // The configuration may change its mind; what was asked for is remembered.
    let allow = |weight, most| move |_: &Asker| Standing { allowance: Allowance { weight, most }, ..STANDING };
    scene.service.set_standings(&mut scene.list, allow(1, 3));
    assert_eq!(weights(&scene), [3, 1, 3]);
    scene.service.set_standings(&mut scene.list, allow(1, 9));
    assert_eq!(weights(&scene), [5, 1, 5]);
    assert_eq!(scene.service.accounts().map(|(_, account)| account.weight).collect::<Vec<_>>(), [5, 1]);
    scene.service.set_rules(Rules { turns: Turns::Kernel, ..rules() });
    let Reply::Refused(refusal) = scene.ask(id, Request::Weigh { weight: 2 }) else { panic!("nobody takes turns") };
    assert!(refusal.text.contains("counting.turns"), "{}", refusal.text);
}
