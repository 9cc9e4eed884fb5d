//! Requests for records.

use super::*;
use pmux::server_api::shared::wire::{EventNumber, PART_NUMBERS, Part, Subscribe};

const RING_BYTES: u64 = 8192;

/// Streams that are a list, too: which are on.
#[derive(Default)]
pub(super) struct Streamed {
    next: u64,
    pub(super) open: BTreeMap<u64, bool>,
    fails: bool,
    /// What a user may lock, where that is limited.
    pub(super) locked_bytes: Option<u64>,
    /// The kernel's ring of each subscription that was opened.
    pub(super) rings: Vec<u64>,
}

impl Streaming for List {
    type Stream = u64;
    type File = &'static str;

    fn places(&self, scope: &Scope) -> u32 {
        match scope {
            Scope::Cpus(cpus) => cpus.len().max(2) as u32,
            Scope::Tasks(tasks) => 2 * tasks.len() as u32,
        }
    }

    fn kernel_bytes(&self) -> u64 {
        // All ask for the same.
        if self.streams.open.is_empty() { 0 } else { 2 * KERNEL_RING_BYTES }
    }

    fn locked_bytes(&mut self, _: &Peer) -> u64 {
        self.streams.locked_bytes.unwrap_or(u64::MAX)
    }

    fn subscribe(&mut self, _: &Peer, wanted: &Subscription) -> Result<(u64, Vec<&'static str>), Refused> {
        self.decide()?;
        if self.streams.fails {
            return Err(ServeError { index: wanted.attrs.len() - 1, errno: 12, text: "no room".to_owned() }.into());
        }
        self.streams.next += 1;
        self.streams.rings.push(wanted.kernel_ring_bytes);
        self.streams.open.insert(self.streams.next, false);
        Ok((self.streams.next, vec!["records", "taken", "bell"]))
    }

    fn switch(&mut self, stream: &u64, flow: Flow) -> Result<(), ServeError> {
        *self.streams.open.get_mut(stream).unwrap() = flow == Flow::On;
        Ok(())
    }

    fn numbers(&self, stream: &u64) -> Vec<EventNumber> {
        // More than fit in one part.
        (0..5000).map(|cpu| EventNumber { event: 0, cpu, number: *stream }).collect()
    }

    fn unsubscribe(&mut self, stream: u64) {
        assert!(self.streams.open.remove(&stream).is_some(), "closed twice");
    }
}

pub(super) fn wish(scope: Scope, attrs: usize) -> Subscribe {
    let mut bytes = [0; Attr::MAX_SIZE];
    let size = Attr::default().encode(&mut bytes);
    Subscribe { scope, attrs: vec![bytes[..size].to_vec(); attrs], ring_bytes: RING_BYTES, wake_bytes: 64 }
}

pub(super) fn all_cpus() -> Request {
    Request::Subscribe(wish(Scope::Cpus(Vec::new()), 1))
}

pub(super) fn subscribed(scene: &mut Scene, id: ClientId, request: Request) -> Handle {
    match scene.ask(id, request) {
        Reply::Subscribed(subscribed) => subscribed.handle,
        other => panic!("{other:?}"),
    }
}

fn with_limits(change: impl Fn(&mut LimitsConfig)) -> Scene {
    let mut scene = Scene::new();
    let mut rules = rules();
    change(&mut rules.limits);
    scene.service.set_rules(rules);
    scene
}

#[test]
fn a_subscription_is_switched_counted_and_given_back() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    let effects = scene.effects(id, all_cpus());
    let Some(Effect::Send { reply: Reply::Subscribed(reply), files, .. }) = effects.last() else {
        panic!("{effects:?}")
    };
    assert_eq!((files.len(), reply.ring_bytes, scene.service.charge.events), (3, RING_BYTES, 2));
    let handle = reply.handle;
    for (op, on) in [(EventOp::Enable, true), (EventOp::DisableGroup, false), (EventOp::EnableGroup, true)] {
        assert!(matches!(scene.ask(id, Request::Control { handle, op }), Reply::Done));
        assert_eq!(scene.list.streams.open.values().copied().collect::<Vec<_>>(), [on]);
    }
    for op in [EventOp::Reset, EventOp::Modify(Vec::new())] {
        assert_eq!(scene.refused(id, Request::Control { handle, op }), (RefusalKind::Request, errno::EINVAL));
    }
    assert_eq!(scene.refused(id, Request::Read { handles: vec![handle] }), (RefusalKind::Request, errno::EBADF));
    let group = scene.opened(id, 1)[0];
    assert!(matches!(scene.ask(id, Request::Close { handles: vec![handle, group] }), Reply::Done));
    assert_eq!((scene.service.charge, scene.list.streams.open.len()), (Charge::default(), 0));
    subscribed(&mut scene, id, all_cpus());
    assert_eq!(scene.gone(id), 2);
    assert_eq!((scene.service.charge, scene.list.streams.open.len()), (Charge::default(), 0));
}

#[test]
fn each_limit_holds() {
    let mut scene = with_limits(|limits| limits.subscriptions_per_client = 1);
    let id = scene.greeted(1);
    subscribed(&mut scene, id, all_cpus());
    assert_eq!(scene.refused(id, all_cpus()), (RefusalKind::Limit, errno::EMFILE));
    for change in [
        |limits: &mut LimitsConfig| limits.rings_kib = 20,
        |limits: &mut LimitsConfig| limits.rings_kib_per_client = 20,
        |limits: &mut LimitsConfig| limits.events_per_client = 5,
        |limits: &mut LimitsConfig| limits.events = 5,
        |limits: &mut LimitsConfig| limits.kernel_rings_kib_per_client = 5 * 16,
    ] {
        let mut scene = with_limits(change);
        let id = scene.greeted(1);
        let first = subscribed(&mut scene, id, all_cpus());
        subscribed(&mut scene, id, all_cpus());
        assert_eq!(scene.refused(id, all_cpus()), (RefusalKind::Limit, errno::EMFILE));
        assert!(matches!(scene.ask(id, Request::Close { handles: vec![first] }), Reply::Done));
        subscribed(&mut scene, id, all_cpus());
    }
    // The kernel's rings are there once for all who ask for the same.
    let mut scene = with_limits(|limits| limits.kernel_rings_kib = 4 * 16);
    for user in 1..3 {
        let id = scene.greeted(user);
        subscribed(&mut scene, id, all_cpus());
    }
    let mut scene = with_limits(|limits| limits.kernel_rings_kib = 3 * 16);
    let (one, other) = (scene.greeted(1), scene.greeted(2));
    subscribed(&mut scene, one, all_cpus());
    assert_eq!(scene.refused(other, all_cpus()), (RefusalKind::Limit, errno::EMFILE));
    let mut scene = with_limits(|limits| limits.events_per_subscription = 1);
    let id = scene.greeted(1);
    assert_eq!(scene.refused(id, all_cpus()), (RefusalKind::Limit, errno::EMFILE));
    // A client that names a thousand threads asks for as many events.
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    let many = Request::Subscribe(wish(Scope::Tasks((1..1000).collect()), 16));
    assert_eq!(scene.refused(id, many), (RefusalKind::Limit, errno::EMFILE));
    // Named twice it is one.
    subscribed(&mut scene, id, Request::Subscribe(wish(Scope::Tasks(vec![7; 1000]), 1)));
    assert_eq!(scene.service.charge.events, 2);
}

#[test]
fn what_is_refused_has_changed_nothing() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    scene.list.streams.fails = true;
    assert_eq!(scene.refused(id, all_cpus()), (RefusalKind::Kernel, 12));
    scene.list.streams.fails = false;
    scene.list.lacks = true;
    assert_eq!(scene.refused(id, all_cpus()), (RefusalKind::Rights, 13));
    scene.list.lacks = false;
    scene.list.denied = Some(Denied::OwnRecords);
    assert_eq!(scene.refused(id, all_cpus()), (RefusalKind::NotShared, errno::EOPNOTSUPP));
    scene.list.denied = None;
    let good = wish(Scope::Cpus(Vec::new()), 1);
    for wrong in [
        wish(Scope::Cpus(Vec::new()), 0),
        wish(Scope::Tasks(Vec::new()), 1),
        wish(Scope::Tasks(vec![3, 0]), 1),
        Subscribe { attrs: vec![vec![1; 3]], ..good.clone() },
        Subscribe { ring_bytes: 0, ..good.clone() },
        Subscribe { ring_bytes: 2048, ..good.clone() },
        Subscribe { ring_bytes: 4097, ..good.clone() },
        Subscribe { ring_bytes: 1 << 62, ..good },
    ] {
        let refused = scene.refused(id, Request::Subscribe(wrong.clone()));
        assert_eq!(refused, (RefusalKind::Request, errno::EINVAL), "{wrong:?}");
    }
    assert_eq!((scene.service.charge, scene.list.streams.open.len()), (Charge::default(), 0));
}

#[test]
fn numbers_come_in_parts() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    let handle = subscribed(&mut scene, id, all_cpus());
    let parts = scene.effects(id, Request::Numbers { handle }).into_iter().map(|effect| match effect {
        Effect::Send { reply: Reply::Numbers { part, numbers }, .. } => (part, numbers.len()),
        other => panic!("{other:?}"),
    });
    let parts: Vec<_> = parts.collect();
    assert_eq!(parts, [(Part::More, PART_NUMBERS), (Part::More, PART_NUMBERS), (Part::Last, 5000 - 2 * PART_NUMBERS)]);
}
