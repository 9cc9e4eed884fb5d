//! Random clients against a slow and obvious model.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Connect(u32),
    Gone(usize),
    Open(usize, usize),
    Close(usize, Vec<usize>),
    Control(usize, usize, u8),
    Read(usize, Vec<usize>),
    Fail(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let handles = || prop::collection::vec(0..40_usize, 1..4);
    prop_oneof![
        (0..3_u32).prop_map(Step::Connect),
        (0..4_usize).prop_map(Step::Gone),
        (0..4_usize, 1..5_usize).prop_map(|(client, events)| Step::Open(client, events)),
        (0..4_usize, 1..5_usize).prop_map(|(client, events)| Step::Open(client, events)),
        (0..4_usize, handles()).prop_map(|(client, handles)| Step::Close(client, handles)),
        (0..4_usize, 0..40_usize, 0..5_u8).prop_map(|(client, handle, op)| Step::Control(client, handle, op)),
        (0..4_usize, handles()).prop_map(|(client, handles)| Step::Read(client, handles)),
        any::<bool>().prop_map(Step::Fail),
    ]
}

/// What each client has: for each handle its group and its place in it.
#[derive(Default)]
struct Model {
    clients: Vec<ClientId>,
    /// No handle up to this one is given again.
    last: u64,
    held: BTreeMap<u64, (ClientId, u64, bool)>,
    /// Members that were closed, of groups that are open: their events are open as well.
    kept: BTreeMap<u64, (ClientId, u64)>,
}

impl Model {
    fn owns(&self, client: ClientId, handle: u64) -> bool {
        self.held.get(&handle).is_some_and(|held| held.0 == client)
    }

    fn close(&mut self, handle: u64) {
        let Some(&(_, leader, _)) = self.held.get(&handle) else { return };
        if leader == handle {
            self.held.retain(|_, held| held.1 != leader);
            self.kept.retain(|_, kept| kept.1 != leader);
        } else if let Some((client, leader, _)) = self.held.remove(&handle) {
            self.kept.insert(handle, (client, leader));
        }
    }

    fn count(&self, client: ClientId) -> usize {
        self.held.values().filter(|held| held.0 == client).count()
    }

    /// Events of the kernel, of one client or of all.
    fn charged(&self, client: Option<ClientId>) -> usize {
        let of = |id: ClientId| client.is_none_or(|client| client == id);
        let held = self.held.values().filter(|held| of(held.0)).count();
        held + self.kept.values().filter(|kept| of(kept.0)).count()
    }
}

fn play(steps: Vec<Step>) {
    let mut scene = Scene::new();
    let mut model = Model::default();
    for step in steps {
        // Long enough for everybody to have paid.
        scene.now += 10_000_000_000;
        let pick = |client: usize, model: &Model| model.clients.get(client % model.clients.len().max(1)).copied();
        match step {
            Step::Connect(user) => {
                let Ok(id) = scene.service.connect((peer(user), user), Membership::None, scene.now) else { continue };
                scene.ask(id, hello());
                model.clients.push(id);
            }
            Step::Gone(client) => {
                let Some(id) = pick(client, &model) else { continue };
                let closed = scene.gone(id);
                assert_eq!(closed, model.count(id));
                model.held.retain(|_, held| held.0 != id);
                model.kept.retain(|_, kept| kept.0 != id);
                model.clients.retain(|&known| known != id);
            }
            Step::Open(client, events) => {
                let Some(id) = pick(client, &model) else { continue };
                let fits = model.charged(Some(id)) + events <= MOST_EVENTS as usize
                    && model.charged(None) + events <= ALL_EVENTS as usize;
                match scene.ask(id, open(events)) {
                    Reply::Opened(opened) => {
                        assert!(fits && !scene.list.fails && opened.handles.len() == events);
                        let leader = opened.handles[0].0;
                        assert!(leader > std::mem::replace(&mut model.last, opened.handles[events - 1].0));
                        model.held.extend(opened.handles.iter().map(|handle| (handle.0, (id, leader, false))));
                    }
                    Reply::Refused(_) => assert!(!fits || scene.list.fails),
                    other => panic!("{other:?}"),
                }
            }
            Step::Close(client, handles) => {
                let Some(id) = pick(client, &model) else { continue };
                let request = handles.iter().map(|&handle| Handle(handle as u64)).collect();
                let known = handles.iter().all(|&handle| model.owns(id, handle as u64));
                let done = matches!(scene.ask(id, Request::Close { handles: request }), Reply::Done);
                assert_eq!(done, known);
                if known {
                    handles.iter().for_each(|&handle| model.close(handle as u64));
                }
            }
            Step::Control(client, handle, op) => {
                let Some(id) = pick(client, &model) else { continue };
                let handle = handle as u64;
                let op =
                    [EventOp::Enable, EventOp::Disable, EventOp::Reset, EventOp::EnableGroup, EventOp::DisableGroup]
                        [usize::from(op)]
                    .clone();
                let known = model.owns(id, handle);
                let leads = model.held.get(&handle).is_some_and(|held| held.1 == handle);
                let whole = matches!(op, EventOp::EnableGroup | EventOp::DisableGroup);
                let done = scene.ask(id, Request::Control { handle: Handle(handle), op: op.clone() });
                assert_eq!(matches!(done, Reply::Done), known && (leads || !whole));
                if known && (leads || !whole) {
                    let leader = model.held[&handle].1;
                    for (&one, held) in &mut model.held {
                        let meant = if whole { held.1 == leader } else { one == handle };
                        match op {
                            EventOp::Enable | EventOp::EnableGroup if meant => held.2 = true,
                            EventOp::Disable | EventOp::DisableGroup if meant => held.2 = false,
                            _ => {}
                        }
                    }
                }
            }
            Step::Read(client, handles) => {
                let Some(id) = pick(client, &model) else { continue };
                let request = handles.iter().map(|&handle| Handle(handle as u64)).collect();
                let known = handles.iter().all(|&handle| model.owns(id, handle as u64));
                match scene.ask(id, Request::Read { handles: request }) {
                    Reply::Values { values } => {
                        assert!(known && values.len() == handles.len());
                        for (value, &handle) in values.iter().zip(&handles) {
                            let (_, leader, on) = model.held[&(handle as u64)];
                            let totals = value.unwrap().totals;
                            assert_eq!(totals.enabled_ns, u64::from(on), "whose event it is");
                            assert_eq!(totals.running_ns, handle as u64 - leader);
                        }
                    }
                    Reply::Refused(_) => assert!(!known),
                    other => panic!("{other:?}"),
                }
            }
            Step::Fail(fails) => scene.list.fails = fails,
        }
        assert_eq!(scene.service.charge.events as usize, model.charged(None));
        let leaders: BTreeSet<_> = model.held.values().map(|held| held.1).collect();
        assert_eq!(scene.list.open.len(), leaders.len());
    }
    for id in model.clients {
        scene.gone(id);
    }
    assert!(scene.list.open.is_empty() && scene.list.entries.is_empty());
    assert_eq!((scene.service.charge.events, scene.service.clients(), scene.service.users.len()), (0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_clients_get_what_is_theirs_and_leave_nothing(steps in prop::collection::vec(step(), 0..60)) {
        play(steps);
    }
}
