//! The service on counters that are a list: what each request leads to, and random clients against a slow and obvious model.

mod budget;
mod random;
mod records;
mod rights;

use super::*;
use crate::config::{Files, LimitsConfig};
use crate::rights::{Denied, Grant};
use pmux::abi::Attr;
use pmux::server_api::shared::wire::{
    CgroupName, Context, EventOp, Hello, NEWEST_VERSION, Narrowing, OLDEST_VERSION, Open, Opened, OptIn, PassedFile,
    TimedTotals, Totals, ValueIndex,
};
use pmux::server_api::{Credentials, EventAction, PeerCred, PidNamespace, ServeError};
use std::collections::{BTreeMap, BTreeSet};

const MOST_EVENTS: u32 = 8;
const ALL_EVENTS: u32 = 12;
const ENTRIES: u32 = 6;
const KERNEL_RING_BYTES: u64 = 16 * 1024;

#[derive(Default)]
struct List {
    next: u64,
    open: BTreeMap<u64, Vec<bool>>,
    pages: u64,
    /// Which entries of which page stand for something.
    entries: BTreeSet<(u64, u32)>,
    denied: Option<Denied>,
    /// Whether the kernel says that the client lacks a right.
    lacks: bool,
    grant: Option<Grant>,
    fails: bool,
    /// Whether an opener has not answered yet.
    waiting: bool,
    moves: bool,
    rounds: u64,
    /// For which users groups were opened.
    peers: Vec<u32>,
    modified: u32,
    streams: records::Streamed,
    closing: Closing,
    slow: bool,
    files_left: Option<u64>,
}

impl List {
    fn decide(&self) -> Result<(), Refused> {
        if self.lacks {
            return Err(Refused::Rights(ServeError { index: 0, errno: 13, text: "a right is missing".to_owned() }));
        }
        self.denied.map_or(Ok(()), |denied| Err(Refused::Denied(0, denied)))
    }
}

impl Counting for List {
    type Group = (u64, usize);
    type Page = u64;

    fn may_count_cpus(&mut self, requester: Requester<'_>) -> bool {
        requester.membership == Membership::Named
    }

    fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn open(
        &mut self,
        requester: Requester<'_>,
        _: Target,
        _: Option<(&CgroupName, &Peer)>,
        attrs: &[Attr],
    ) -> Result<((u64, usize), Grant), Refused> {
        self.decide()?;
        if self.waiting {
            return Err(Refused::Late(ServeError { index: 0, errno: 11, text: "not yet".to_owned() }));
        }
        if self.fails {
            return Err(ServeError { index: attrs.len() - 1, errno: 28, text: "no room".to_owned() }.into());
        }
        self.next += 1;
        self.peers.push(requester.peer.connected.user);
        self.open.insert(self.next, vec![false; attrs.len()]);
        Ok(((self.next, attrs.len()), self.grant.unwrap_or(Grant::AsKernel)))
    }

    fn modify(&mut self, _: Requester<'_>, group: &mut (u64, usize), index: usize, _: &Attr) -> Result<(), Refused> {
        self.decide()?;
        assert!(index < self.open[&group.0].len());
        self.modified += 1;
        Ok(())
    }

    fn control(&mut self, group: &mut (u64, usize), index: usize, action: EventAction) -> Result<(), ServeError> {
        let on = self.open.get_mut(&group.0).unwrap();
        match action {
            EventAction::Enable => on[index] = true,
            EventAction::Disable => on[index] = false,
            EventAction::EnableGroup => on.fill(true),
            EventAction::DisableGroup => on.fill(false),
            EventAction::Reset => assert!(index < on.len()),
        }
        Ok(())
    }

    fn read(&mut self, group: &(u64, usize), indices: &[usize], out: &mut Vec<Result<TimedTotals, i32>>) {
        let on = &self.open[&group.0];
        for &index in indices {
            let totals = Totals { value: group.0, enabled_ns: u64::from(on[index]), running_ns: index as u64 };
            out.push(Ok(TimedTotals { totals, time_ns: 0 }));
        }
    }

    fn closing(&self) -> Closing {
        self.closing
    }

    fn files_left(&self) -> u64 {
        self.files_left.unwrap_or(u64::MAX)
    }

    fn close(&mut self, group: (u64, usize)) {
        // A thread closes it when the test says so.
        self.closing.handed_over += if self.slow { group.1 as u64 } else { 0 };
        assert!(self.open.remove(&group.0).is_some(), "closed twice");
    }

    fn files(&mut self, group: &mut (u64, usize)) -> Option<Vec<(PassedFile, &'static str)>> {
        let values = group.1 as u32;
        let places = (0..values).map(|event| ValueIndex { event, value: event }).collect();
        Some(vec![(PassedFile { number: group.0, read_format: 11, values, places }, "fd")])
    }

    fn has_moved(&mut self, _: &mut (u64, usize)) -> bool {
        std::mem::take(&mut self.moves)
    }

    fn page(&mut self, _: u32) -> Option<(u64, &'static str)> {
        self.pages += 1;
        Some((self.pages, "page"))
    }

    fn name(&mut self, attr: &Attr) -> String {
        pmux::server_api::describe(attr)
    }

    fn begin_round(&mut self) {
        self.rounds += 1;
    }

    fn publish(&mut self, page: &mut u64, what: &Published<'_>, group: &mut (u64, usize)) {
        assert!(what.read_when == ReadWhen::Now || self.rounds > 0, "a round is begun");
        assert_eq!(what.entries.len(), group.1);
        self.entries.extend(what.entries.iter().map(|&entry| (*page, entry)));
    }

    fn retract(&mut self, page: &mut u64, entry: u32) {
        assert!(self.entries.remove(&(*page, entry)));
    }
}

fn rules() -> Rules {
    let limits = LimitsConfig {
        clients: 4,
        clients_per_user: 2,
        events_per_client: MOST_EVENTS,
        events: ALL_EVENTS,
        page_entries: ENTRIES,
        requests_per_second: 10,
        clients_for_root: 0,
        events_for_root: 0,
        ..LimitsConfig::default()
    };
    let (most_files, own_user) = (100_000, 999);
    let kernel_ring_bytes = KERNEL_RING_BYTES;
    Rules { limits, files: Files::Own, refresh_ms: 100, kernel_ring_bytes, most_files, own_user }
}

fn peer(user: u32) -> Peer {
    Peer { connected: PeerCred { user, ..PeerCred::default() }, task_ids: PidNamespace::Ours, ..Peer::default() }
}

struct Scene {
    service: Service<List>,
    list: List,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        Self { service: Service::new(rules(), 1), list: List::default(), now: 0 }
    }

    fn connect(&mut self, user: u32) -> ClientId {
        self.service.connect((peer(user), user), Membership::None, self.now).unwrap()
    }

    fn greeted(&mut self, user: u32) -> ClientId {
        let id = self.connect(user);
        assert!(matches!(self.ask(id, hello()), Reply::Welcome(_)));
        id
    }

    fn effects(&mut self, id: ClientId, request: Request) -> Vec<Effect<&'static str>> {
        let mut out = Vec::new();
        self.service.request(id, &mut self.list, self.now, (7, request), &mut out);
        out
    }

    fn ask(&mut self, id: ClientId, request: Request) -> Reply {
        let mut replies = self.effects(id, request).into_iter().filter_map(|effect| match effect {
            Effect::Send { number: 7, reply, .. } => Some(reply),
            _ => None,
        });
        let reply = replies.next().unwrap();
        assert!(replies.next().is_none());
        reply
    }

    fn granted(&mut self, id: ClientId, events: usize) -> Opened {
        match self.ask(id, open(events)) {
            Reply::Opened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    fn opened(&mut self, id: ClientId, events: usize) -> Vec<Handle> {
        self.granted(id, events).handles
    }

    /// A client has gone, and all that it held is closed.
    fn gone(&mut self, id: ClientId) -> usize {
        let events = self.service.gone(id);
        assert!(!self.service.close_some(&mut self.list, || true));
        events
    }

    fn refused(&mut self, id: ClientId, request: Request) -> (RefusalKind, i32) {
        match self.ask(id, request) {
            Reply::Refused(refusal) => (refusal.kind(), refusal.errno),
            other => panic!("{other:?}"),
        }
    }
}

fn hello() -> Request {
    let (oldest_version, newest_version) = (OLDEST_VERSION, NEWEST_VERSION);
    Request::Hello(Hello { oldest_version, newest_version, name: "test".to_owned(), pid_namespace: 0 })
}

/// What an opener has not answered yet changes nothing, says nothing, and is asked again as it was.
#[test]
fn a_request_that_waits_comes_back() {
    let mut scene = Scene::new();
    let id = scene.greeted(7);
    let Scene { service, list, .. } = &mut scene;
    list.waiting = true;
    let before = (service.tallies, service.charge.events);
    let mut effects = Vec::new();
    let left = service.request(id, list, 0, (7, open(2)), &mut effects);
    assert_eq!(left, Some((7, open(2))));
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!((service.tallies, service.charge.events), (before.0, before.1 + 2), "what is kept for it has its price");
    list.waiting = false;
    assert_eq!(service.request(id, list, 0, (7, open(2)), &mut effects), None);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Send { number: 7, reply: Reply::Opened(_), .. })));
    assert_eq!(service.charge.events, 2);
    list.waiting = true;
    assert!(service.request(id, list, 0, (8, open(3)), &mut effects).is_some());
    assert_eq!(service.charge.events, 5);
    scene.gone(id);
    assert_eq!(scene.service.charge.events, 0);
}

fn open(events: usize) -> Request {
    let mut bytes = [0; Attr::MAX_SIZE];
    let size = Attr::default().encode(&mut bytes);
    let (context, narrowing) = (Context::Task(1), Narrowing::Everything);
    let attrs = vec![bytes[..size].to_vec(); events];
    Request::Open(Open { context, narrowing, attrs, files: OptIn::Wanted, entries: OptIn::Wanted })
}

#[test]
fn hello_comes_first_and_once() {
    let mut scene = Scene::new();
    let id = scene.connect(7);
    let effects = scene.effects(id, Request::Ping);
    assert!(matches!(effects.last(), Some(Effect::HangUp)), "{effects:?}");
    let id = scene.greeted(8);
    assert_eq!(scene.refused(id, hello()), (RefusalKind::Request, errno::EPROTO));
    // Of clients that know weights.
    assert_eq!(scene.refused(id, Request::Weigh { weight: 2 }), (RefusalKind::Rights, errno::EOPNOTSUPP));
    assert!(matches!(scene.ask(id, Request::Ping), Reply::Done));
}

#[test]
fn versions_that_do_not_fit_are_told() {
    let mut scene = Scene::new();
    for (oldest_version, newest_version) in [(NEWEST_VERSION + 1, NEWEST_VERSION + 3), (0, 0)] {
        let id = scene.connect(0);
        let hello = Hello { oldest_version, newest_version, name: String::new(), pid_namespace: 0 };
        assert_eq!(scene.refused(id, Request::Hello(hello)).0, RefusalKind::Version);
    }
    let id = scene.connect(0);
    let newer = Hello { oldest_version: 0, newest_version: u16::MAX, name: String::new(), pid_namespace: 0 };
    let Reply::Welcome(welcome) = scene.ask(id, Request::Hello(newer)) else { panic!("not welcome") };
    assert_eq!(welcome.version, NEWEST_VERSION);
}

#[test]
fn handles_of_other_clients_are_refused() {
    let mut scene = Scene::new();
    let (one, other) = (scene.greeted(1), scene.greeted(2));
    let handles = scene.opened(one, 2);
    let stream = records::subscribed(&mut scene, one, records::all_cpus());
    let requests = [
        Request::Read { handles: handles.clone() },
        Request::Close { handles: handles.clone() },
        Request::Control { handle: handles[0], op: EventOp::Disable },
        Request::Control { handle: handles[1], op: EventOp::Modify(Vec::new()) },
        Request::Renew { handle: handles[0] },
        Request::Control { handle: stream, op: EventOp::Enable },
        Request::Numbers { handle: stream },
        Request::Close { handles: vec![stream] },
    ];
    for request in requests {
        assert_eq!(scene.refused(other, request), (RefusalKind::Request, errno::EBADF));
    }
    assert!(matches!(scene.ask(one, Request::Read { handles }), Reply::Values { values } if values.len() == 2));
    assert_eq!(scene.list.streams.open.len(), 1);
}

#[test]
fn limits_hold_and_are_given_back() {
    let mut scene = Scene::new();
    let (one, other) = (scene.greeted(1), scene.greeted(2));
    let first = scene.opened(one, 5);
    assert_eq!(scene.refused(one, open(4)), (RefusalKind::Limit, errno::EMFILE));
    scene.opened(one, 3);
    assert_eq!(scene.refused(other, open(5)), (RefusalKind::Limit, errno::EMFILE));
    assert!(matches!(scene.ask(one, Request::Close { handles: vec![first[0]] }), Reply::Done));
    scene.opened(other, 5);
    // Users, and all together.
    scene.connect(1);
    let full = scene.service.connect((peer(1), 1), Membership::None, 0).unwrap_err();
    assert!(full.text.contains("user 1"), "{}", full.text);
    scene.connect(3);
    assert_eq!(scene.service.connect((peer(4), 4), Membership::None, 0).unwrap_err().kind(), RefusalKind::Limit);
    assert_eq!(scene.gone(one), 3);
    assert!(scene.service.connect((peer(4), 4), Membership::None, 0).is_ok());
}

#[test]
fn what_is_refused_has_changed_nothing() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    scene.list.fails = true;
    assert_eq!(scene.refused(id, open(2)), (RefusalKind::Kernel, 28));
    scene.list.fails = false;
    scene.list.lacks = true;
    assert_eq!(scene.refused(id, open(2)), (RefusalKind::Rights, 13));
    scene.list.lacks = false;
    scene.list.denied = Some(Denied::NotCounting);
    assert_eq!(scene.refused(id, open(2)), (RefusalKind::NotShared, errno::EOPNOTSUPP));
    assert_eq!((scene.service.charge.events, scene.list.open.len()), (0, 0));
    assert_eq!(scene.service.tallies.refused, 3);
}

#[test]
fn malformed_opens_are_told_what_is_wrong() {
    let mut scene = Scene::new();
    let id = scene.greeted(1);
    let Request::Open(good) = open(1) else { panic!("no open") };
    let wrong = [
        Open { attrs: Vec::new(), ..good.clone() },
        Open { attrs: vec![vec![1; 3]], ..good.clone() },
        Open { context: Context::Task(0), ..good.clone() },
        Open { context: Context::Cpu(0), narrowing: Narrowing::OnCpu(1), ..good.clone() },
        Open { narrowing: Narrowing::Cgroup, ..good.clone() },
    ];
    for open in wrong {
        let refused = scene.refused(id, Request::Open(open.clone()));
        assert_eq!(refused, (RefusalKind::Request, errno::EINVAL), "{open:?}");
    }
    let cgroup = CgroupName { device: 1, inode: 2, path: String::new() };
    let named = |open| Request::OpenCgroup(OpenCgroup { open, cgroup: cgroup.clone() });
    assert_eq!(scene.refused(id, named(good.clone())), (RefusalKind::Request, errno::EINVAL));
    let of_cgroup = Open { context: Context::Cpu(0), narrowing: Narrowing::Cgroup, ..good };
    assert_eq!(scene.refused(id, Request::Open(of_cgroup.clone())), (RefusalKind::NotShared, errno::EOPNOTSUPP));
    assert!(matches!(scene.ask(id, named(of_cgroup)), Reply::Opened(_)));
}

#[test]
fn only_clients_on_an_offline_cpu_are_notified() {
    let mut scene = Scene::new();
    let (on_cpu, in_task) = (scene.greeted(5), scene.greeted(6));
    let Request::Open(question) = open(2) else { panic!("no open") };
    let on = |cpu| Request::Open(Open { context: Context::Cpu(cpu), ..question.clone() });
    let Reply::Opened(one) = scene.ask(on_cpu, on(1)) else { panic!("not opened") };
    scene.ask(on_cpu, on(0));
    scene.opened(in_task, 2);
    let lost = Notice::Lost { handles: vec![one.handles[0]], why: "CPU 1 went offline".to_owned() };
    assert_eq!(scene.service.cpu_gone(1, &mut scene.list), [(on_cpu, Reply::Notice(lost))]);
    assert_eq!(scene.service.cpu_gone(2, &mut scene.list), []);
}

#[test]
fn entries_run_out_without_harm() {
    let mut scene = Scene::new();
    let id = scene.greeted(5);
    let entries = |scene: &mut Scene| {
        let opened = scene.granted(id, 4);
        (opened.entries, opened.files.len())
    };
    assert_eq!(entries(&mut scene), (vec![0, 1, 2, 3], 1));
    assert_eq!(entries(&mut scene), (Vec::new(), 0));
    // A client that closes gives them back, however often.
    for _ in 0..3 {
        let handles = scene.service.accounts().next().unwrap().1.groups.keys().map(|&leader| Handle(leader)).collect();
        assert_eq!(scene.ask(id, Request::Close { handles }), Reply::Done);
        assert!(!scene.service.has_entries());
        let (mut given, files) = entries(&mut scene);
        given.sort_unstable();
        assert_eq!((given, files), (vec![0, 1, 2, 3], 1));
    }
}
