//! Counting through a service is counting: the same numbers, whatever becomes of the service.
//!
//! What it is: what the engine counts over a service is compared with what it counts directly, of a worker that does only what it
//! is told: page faults, one for each page.
//!
//! **Invariant:** no test knows how long anything takes.

mod fake;

use fake::{Fake, FakeBehavior, engine, faults, software};
use pmux_abi::attr::{Attr, AttrFlags, sw};
use pmux_engine::target::{Filter, Opened};
use pmux_engine::{Count, GroupSpec, OpenError, Target};
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_linux::shared::client::{AskError, Away, ConnectError, Service, SocketPath};
use pmux_linux::shared::wire::{Detail, Handle, Opened as WireOpened, Refusal, RefusalKind, Reply};
use pmux_linux::worker::{Code, Order, Stage, Worker};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const STAGE: Stage = Stage { pages: 2, code: Code::Runs, children: 1 };
/// Long enough for anybody.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const TESTS: [crate::Test; 17] = [
    ("served::counts_are_the_same_with_files", || counts_are_the_same(&FakeBehavior::default())),
    ("served::counts_are_the_same_without_files", || counts_are_the_same(&no_files())),
    ("served::counts_are_the_same_without_a_page", || counts_are_the_same(&no_page())),
    ("served::reading_a_passed_file_sends_no_request", reading_a_passed_file_sends_no_request),
    ("served::what_is_off_does_not_count", what_is_off_does_not_count),
    ("served::files_that_move_lose_nothing", files_that_move_lose_nothing),
    ("served::who_has_files_reads_on_when_the_service_dies", who_has_files_reads_on_when_the_service_dies),
    ("served::what_counts_for_a_cpu_goes_over", what_counts_for_a_cpu_goes_over),
    ("served::what_is_refused_anew_is_read_on", what_is_refused_anew_is_read_on),
    ("served::who_has_none_goes_on_where_he_was", who_has_none_goes_on_where_he_was),
    ("served::refusals_name_the_event_at_fault", refusals_name_the_event_at_fault),
    ("served::what_the_service_will_not_do_is_done_directly", what_the_service_will_not_do_is_done_directly),
    ("served::lies_are_answered_by_doing_it_directly", lies_are_answered_by_doing_it_directly),
    ("served::a_service_that_says_nothing_is_none", a_service_that_says_nothing_is_none),
    ("served::status_comes_in_parts", status_comes_in_parts),
    ("served::what_the_service_shows_is_seen", what_the_service_shows_is_seen),
    ("served::a_service_is_looked_for_when_there_is_something_to_share", looked_for),
];

/// Whether this user may count tasks; where `PMUX_REQUIRE` lists `kernel`, it must be so.
pub(crate) fn needs_kernel() -> bool {
    let engine = engine();
    let own = Target::task(LinuxHost::task(pmux_linux::current_tid()));
    let opened = engine.open(&GroupSpec::single(KERNEL, faults()), own).map(|opened| engine.close(opened.group));
    pmux_testkit::needs("kernel", "performance events", opened.is_ok())
}

fn no_files() -> FakeBehavior {
    FakeBehavior { no_files: true, ..FakeBehavior::default() }
}

fn no_page() -> FakeBehavior {
    FakeBehavior { no_page: true, ..FakeBehavior::default() }
}

/// A worker, a place for a socket, an engine that asks there, and one that asks the kernel.
struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    worker: Worker,
    service: Arc<Service>,
    served: LinuxEngine,
    direct: LinuxEngine,
}

impl Scene {
    fn new(behavior: &FakeBehavior) -> (Self, Fake) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let fake = Fake::start(&path, behavior.clone());
        let service = Arc::new(Service::connect(SocketPath::Named(path.clone()), PATIENCE).unwrap());
        let (served, direct) = (engine(), engine());
        assert!(served.host().share_with(Arc::clone(&service)).is_ok());
        let worker = Worker::start(&STAGE).unwrap();
        (Self { _folder: folder, path, worker, service, served, direct }, fake)
    }

    fn target(&self) -> Target {
        Target::task(LinuxHost::task(self.worker.tid()))
    }

    /// Opens the same both ways, and lets it count.
    fn open(&self, attrs: &[Attr]) -> [Opened; 2] {
        self.open_at(attrs, self.target()).unwrap()
    }

    fn open_at(&self, attrs: &[Attr], target: Target) -> Result<[Opened; 2], OpenError> {
        let spec = GroupSpec { events: attrs.iter().map(|&attr| (KERNEL, attr)).collect() };
        // What the kernel refuses is no matter of the service's.
        let direct = self.direct.open(&spec, target)?;
        let served = self.served.open(&spec, target).unwrap();
        self.served.enable_group(served.group).unwrap();
        self.direct.enable_group(direct.group).unwrap();
        Ok([served, direct])
    }

    fn touch(&mut self, pages: u64) {
        self.worker.tell(Order::Touch { pages }).unwrap();
        assert_eq!(self.worker.answer().unwrap().pages, pages);
    }

    /// What the groups have counted, served and directly.
    fn read(&self, groups: &[Opened; 2]) -> [Vec<Count>; 2] {
        let read = |engine: &LinuxEngine, opened: &Opened| {
            engine.read_group(opened.group).unwrap().into_iter().map(Result::unwrap).collect()
        };
        [read(&self.served, &groups[0]), read(&self.direct, &groups[1])]
    }

    /// The first event of each.
    fn values(&self, groups: &[Opened; 2]) -> [u64; 2] {
        self.read(groups).map(|counts| counts[0].value)
    }

    fn close(&self, groups: &[Opened; 2]) {
        self.served.close(groups[0].group);
        self.direct.close(groups[1].group);
    }
}

fn counts_are_the_same(behavior: &FakeBehavior) {
    let (mut scene, fake) = Scene::new(behavior);
    let before = scene.served.host().kernel_events();
    // The dummy counts nothing; minor faults are all of them here.
    let groups = scene.open(&[faults(), software(sw::DUMMY), software(sw::PAGE_FAULTS_MIN)]);
    assert_eq!(scene.served.host().kernel_events(), before, "the client opens nothing itself");
    assert_eq!(fake.census().0, 3);
    let mut last = 0;
    for pages in [1, 10, 100] {
        scene.touch(pages);
        last += pages;
        let [served, direct] = scene.read(&groups);
        let values = |counts: &[Count]| counts.iter().map(|count| count.value).collect::<Vec<_>>();
        assert_eq!(values(&served), [last, 0, last]);
        assert_eq!(values(&direct), [last, 0, last]);
        for count in served {
            assert!(count.enabled.0 > 0 && count.running == count.enabled, "{count:?}");
        }
        let single = scene.served.read(groups[0].events[2]).unwrap();
        assert_eq!(single.value, last, "one of a group, alone");
    }
    scene.served.reset(groups[0].events[0]).unwrap();
    scene.touch(3);
    assert_eq!(scene.values(&groups), [3, last + 3]);
    scene.close(&groups);
    assert_eq!(fake.census().0, 0, "what is closed is given back");
    let _left_open = scene.open(&[faults()]);
    assert_eq!(fake.census().0, 1);
    drop(scene.served);
    drop(scene.service);
    assert_eq!(fake.census().0, 0, "and what was not, with the client");
}

fn reading_a_passed_file_sends_no_request() {
    let (mut scene, fake) = Scene::new(&FakeBehavior::default());
    let groups = scene.open(&[faults()]);
    let before = fake.census().1;
    for _ in 0..50 {
        scene.touch(1);
        let [served, direct] = scene.values(&groups);
        assert_eq!(served, direct);
    }
    assert_eq!(fake.census().1, before);
    drop(scene);
    let (mut scene, fake) = Scene::new(&no_files());
    let groups = scene.open(&[faults()]);
    let before = fake.census().1;
    scene.touch(1);
    assert_eq!(scene.values(&groups), [1, 1]);
    assert!(fake.census().1 > before, "without one it must be asked for");
}

fn what_is_off_does_not_count() {
    for behavior in [FakeBehavior::default(), no_files(), no_page()] {
        let (mut scene, _fake) = Scene::new(&behavior);
        let groups = scene.open(&[faults(), software(sw::PAGE_FAULTS_MIN)]);
        scene.touch(5);
        scene.served.disable(groups[0].events[1]).unwrap();
        scene.touch(7);
        let counts = scene.read(&groups)[0].iter().map(|count| count.value).collect::<Vec<_>>();
        assert_eq!(counts, [12, 5], "one of a group is off");
        scene.served.disable_group(groups[0].group).unwrap();
        scene.touch(100);
        assert_eq!(scene.values(&groups), [12, 112]);
        scene.served.enable_group(groups[0].group).unwrap();
        scene.touch(1);
        let counts = scene.read(&groups)[0].iter().map(|count| count.value).collect::<Vec<_>>();
        assert_eq!(counts, [13, 6]);
    }
}

fn files_that_move_lose_nothing() {
    let (mut scene, fake) = Scene::new(&FakeBehavior::default());
    let groups = scene.open(&[faults(), software(sw::PAGE_FAULTS_MIN)]);
    for round in 1..=5 {
        scene.touch(10);
        if round % 2 == 0 {
            let [served, direct] = scene.values(&groups);
            assert_eq!(served, direct);
        }
        let before = scene.read(&groups)[0][0];
        // The worker waits meanwhile.
        fake.move_all();
        scene.touch(3);
        let [served, direct] = scene.values(&groups);
        assert_eq!((served, direct), (13 * round, 13 * round));
        let after = scene.read(&groups)[0][0];
        assert!(after.enabled >= before.enabled && after.running >= before.running);
        // It has other files now.
        let requests = fake.census().1;
        assert_eq!(scene.values(&groups)[0], 13 * round);
        assert_eq!(fake.census().1, requests);
    }
}

fn who_has_files_reads_on_when_the_service_dies() {
    let (mut scene, fake) = Scene::new(&FakeBehavior::default());
    let groups = scene.open(&[faults(), software(sw::PAGE_FAULTS_MIN)]);
    scene.touch(4);
    fake.kill();
    for pages in 1..20 {
        scene.touch(pages);
        let [served, direct] = scene.values(&groups);
        assert_eq!(served, direct, "what was passed counts on");
        // Longer than until the next look at the service.
        std::thread::sleep(Duration::from_millis(10));
    }
    let fake = Fake::start(&scene.path, FakeBehavior::default());
    while scene.service.terms().is_none() {
        let _ = scene.read(&groups);
        std::thread::sleep(Duration::from_millis(5));
    }
    let others = scene.open(&[faults()]);
    scene.touch(50);
    let [served, direct] = scene.values(&groups);
    assert_eq!(served, direct, "and goes on when another service is there: nothing is missed");
    assert_eq!((scene.service.gap(), fake.census().0), (Duration::ZERO, 1));
    // What is switched off belongs to no service, one event after the other; switched on again, it is the new one's.
    scene.served.disable(groups[0].events[1]).unwrap();
    scene.touch(3);
    scene.served.disable(groups[0].events[0]).unwrap();
    scene.touch(7);
    let [counts, _] = scene.read(&groups);
    assert_eq!((counts[0].value, counts[1].value), (served + 3, served), "both are of the same faults");
    let (served, direct) = (served + 3, direct + 3);
    scene.served.enable_group(groups[0].group).unwrap();
    scene.touch(5);
    assert_eq!(scene.values(&groups), [served + 5, direct + 12]);
    assert_eq!((scene.service.gap(), fake.census().0), (Duration::ZERO, 3));
    scene.close(&groups);
    scene.close(&others);
    assert_eq!(fake.census().0, 0);
}

/// What may stop counting with its CPU is the new service's as soon as that is there, and the moment between is told.
fn what_counts_for_a_cpu_goes_over() {
    let (scene, fake) = Scene::new(&FakeBehavior::default());
    let Ok(groups) = scene.open_at(&[faults()], Target::cpu(pmux_engine::CpuId(0))) else {
        return println!("skipped: needs events of CPUs");
    };
    fake.kill();
    let [before, _] = scene.values(&groups);
    let fake = Fake::start(&scene.path, FakeBehavior::default());
    wait_for(&scene, &groups, &fake, 1);
    assert!(scene.values(&groups)[0] >= before && scene.service.gap() > Duration::ZERO, "however short, it is told");
    scene.close(&groups);
    assert_eq!(fake.census().0, 0);
}

/// A service that will not have what it is asked for takes nothing away that the one before has passed.
fn what_is_refused_anew_is_read_on() {
    let (mut scene, fake) = Scene::new(&FakeBehavior::default());
    let online = pmux_linux::cpus::Cpus::system().online().unwrap();
    let on_cpu = |cpu| Target { filter: Filter::OnCpu(pmux_engine::CpuId(cpu)), ..scene.target() };
    let groups: Vec<_> = online.iter().map(|cpu| scene.open_at(&[faults()], on_cpu(cpu)).unwrap()).collect();
    assert_eq!(fake.census().0, groups.len());
    scene.touch(4);
    fake.kill();
    let refuses = Some(Refusal::new(RefusalKind::Limit, 0, 24, "there are too many"));
    let _fake = Fake::start(&scene.path, FakeBehavior { refuses, ..FakeBehavior::default() });
    while scene.service.terms().is_none() {
        groups.iter().for_each(|each| drop(scene.read(each)));
        std::thread::sleep(Duration::from_millis(5));
    }
    for pages in [1, 10, 100] {
        scene.touch(pages);
        let sum =
            groups.iter().map(|each| scene.values(each)).fold([0, 0], |all, one| [all[0] + one[0], all[1] + one[1]]);
        assert_eq!(sum[0], sum[1], "wherever it ran");
    }
    assert_eq!(scene.service.gap(), Duration::ZERO);
}

/// Reads until the service has so many events again.
fn wait_for(scene: &Scene, groups: &[Opened; 2], fake: &Fake, events: usize) {
    while fake.census().0 < events {
        let _ = scene.read(groups);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn who_has_none_goes_on_where_he_was() {
    for behavior in [no_files(), no_page()] {
        let (mut scene, fake) = Scene::new(&behavior);
        let groups = scene.open(&[faults()]);
        scene.touch(6);
        assert_eq!(scene.values(&groups), [6, 6]);
        fake.kill();
        scene.touch(100);
        assert_eq!(scene.values(&groups), [6, 106], "what was known last");
        assert!(scene.service.why_away().is_some());
        let fake = Fake::start(&scene.path, behavior.clone());
        wait_for(&scene, &groups, &fake, 1);
        scene.touch(7);
        assert_eq!(scene.values(&groups), [13, 113]);
        let gap = scene.service.gap();
        assert!(gap > Duration::ZERO);
        assert_eq!(scene.service.why_away(), None);
        // What is off misses nothing.
        scene.served.disable_group(groups[0].group).unwrap();
        fake.kill();
        let _ = scene.read(&groups);
        let fake = Fake::start(&scene.path, behavior);
        wait_for(&scene, &groups, &fake, 1);
        scene.touch(1);
        assert_eq!(scene.values(&groups), [13, 114]);
        assert_eq!(scene.service.gap(), gap);
    }
}

fn refusals_name_the_event_at_fault() {
    let (scene, fake) = Scene::new(&FakeBehavior::default());
    let nothing = Attr { config: 0xdead, ..faults() };
    for index in 0..3 {
        let mut attrs = [faults(); 3];
        attrs[index] = nothing;
        let spec = GroupSpec { events: attrs.iter().map(|&attr| (KERNEL, attr)).collect() };
        let before = scene.served.host().kernel_events();
        let errors = [&scene.served, &scene.direct].map(|engine| engine.open(&spec, scene.target()).unwrap_err());
        assert_eq!(errors[0], errors[1], "the same as the kernel's own");
        assert!(matches!(errors[0], OpenError::Bank { index: at, .. } if at == index), "{:?}", errors[0]);
        assert_eq!(scene.served.host().kernel_events(), before, "the kernel isn't asked twice");
        assert_eq!(fake.census().0, 0);
    }
}

/// The service is of no use to a client, which opens both events itself.
#[track_caller]
fn is_done_directly(behavior: &FakeBehavior) {
    let (mut scene, _fake) = Scene::new(behavior);
    let groups = scene.open(&[faults(), software(sw::DUMMY)]);
    scene.touch(2);
    assert_eq!((scene.values(&groups), scene.served.host().kernel_events().0), ([2, 2], 2));
}

fn what_the_service_will_not_do_is_done_directly() {
    for kind in [RefusalKind::Rights, RefusalKind::Limit, RefusalKind::NotShared, RefusalKind::Request] {
        let refuses = Some(Refusal::new(kind, 0, 13, "not by me"));
        is_done_directly(&FakeBehavior { refuses, ..FakeBehavior::default() });
    }
    // What samples doesn't concern the service, and what this process counts of itself neither.
    let (scene, fake) = Scene::new(&FakeBehavior::default());
    let own = Target::task(LinuxHost::task(pmux_linux::current_tid()));
    scene.served.open(&GroupSpec::single(KERNEL, faults()), own).unwrap();
    let on_exec = Attr { flags: faults().flags | AttrFlags::ENABLE_ON_EXEC, ..faults() };
    scene.served.open(&GroupSpec::single(KERNEL, on_exec), scene.target()).unwrap();
    let samples = Attr { sampling: pmux_abi::attr::Sampling::Period(100), ..faults() };
    scene.served.open(&GroupSpec::single(KERNEL, samples), scene.target()).unwrap();
    assert_eq!((fake.census().0, scene.served.host().kernel_events().0), (0, 3));
}

fn lies_are_answered_by_doing_it_directly() {
    let opened = |handles: u64, entries: u32| {
        let handles = (0..handles).map(Handle).collect();
        Reply::Opened(WireOpened { handles, entries: (0..entries).collect(), files: Vec::new() })
    };
    for lie in [Reply::Done, opened(0, 0), opened(1, 0), opened(3, 0), opened(2, 1)] {
        is_done_directly(&FakeBehavior { lies: Some(lie), ..FakeBehavior::default() });
    }
    // What makes sense, but as the answer to something else.
    is_done_directly(&FakeBehavior { renumbers: 1, ..FakeBehavior::default() });
    // No message at all, one that is cut off, one with another number, and one that is too long.
    let done = pmux_linux::shared::wire::encode_reply(77, &Reply::Done).unwrap();
    for babbles in [vec![0], vec![2, 0, 0, 0, 2, 9], vec![0xff; 300], done, vec![1; 65_537], vec![1; 66_000]] {
        is_done_directly(&FakeBehavior { babbles: Some(babbles), ..FakeBehavior::default() });
    }
}

fn a_service_that_says_nothing_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sock");
    let place = || SocketPath::Named(path.clone());
    let connect = || Service::connect(place(), Duration::from_millis(20)).unwrap_err();
    assert!(matches!(connect(), ConnectError::Socket(_, pmux_linux::Errno::ENOENT)));
    let _fake = Fake::start(&path, FakeBehavior { is_silent: true, ..FakeBehavior::default() });
    let error = connect();
    assert!(matches!(error, ConnectError::Away(_, Away::TooLate)), "{error}");
    assert!(error.to_string().contains("doesn't answer"), "{error}");
}

fn status_comes_in_parts() {
    let (scene, fake) = Scene::new(&FakeBehavior::default());
    assert_eq!(scene.service.status(Detail::Full).as_deref(), Ok("{\"events\": 1}"));
    let terms = scene.service.terms().unwrap();
    assert!(terms.rights.files && terms.limits.events == 100);
    fake.kill();
    assert_eq!(scene.service.status(Detail::Summary), Err(AskError::Away));
}

fn looked_for() {
    let (scene, fake) = Scene::new(&FakeBehavior::default());
    let engine = engine();
    engine.host().share_if_possible(SocketPath::Named(scene.path.clone()), PATIENCE);
    let own = Target::task(LinuxHost::task(pmux_linux::current_tid()));
    let opened = engine.open(&GroupSpec::single(KERNEL, faults()), own).unwrap();
    assert!(engine.host().service().is_none(), "nothing to share yet");
    engine.close(opened.group);
    engine.open(&GroupSpec::single(KERNEL, faults()), scene.target()).unwrap();
    assert!(engine.host().service().is_some());
    assert_eq!(fake.census().0, 1);
    let missing = fake::engine();
    missing.host().share_if_possible(SocketPath::Named(scene.path.with_extension("none")), PATIENCE);
    missing.open(&GroupSpec::single(KERNEL, faults()), scene.target()).unwrap();
    assert!(missing.host().service().is_none());
    assert_eq!(missing.host().kernel_events().0, 1);
}

fn what_the_service_shows_is_seen() {
    let (mut scene, fake) = Scene::new(&no_files());
    let groups = scene.open(&[faults(), software(sw::DUMMY)]);
    let of = |index: usize| scene.served.lease(groups[0].events[index]).unwrap();
    let (first, second) = (of(0), of(1));
    let before = scene.served.host().cached(first).unwrap();
    assert_eq!(before.totals.value, 0);
    scene.touch(5);
    assert_eq!(scene.served.host().cached(first), Some(before), "the service hasn't looked");
    fake.refresh();
    let requests = fake.census().1;
    let now = scene.served.host().cached(first).unwrap();
    assert!(now.totals.value == 5 && now.time_ns > before.time_ns && now.totals.enabled_ns > 0, "{now:?}");
    assert_eq!(scene.served.host().cached(second).unwrap().totals.value, 0);
    assert_eq!(fake.census().1, requests, "no request was sent");
    // The next life goes on where this one ended.
    fake.kill();
    let fake = Fake::start(&scene.path, no_files());
    wait_for(&scene, &groups, &fake, 2);
    scene.touch(2);
    fake.refresh();
    assert_eq!(scene.served.host().cached(first).unwrap().totals.value, 7);
    scene.close(&groups);
    assert_eq!(scene.served.host().cached(first), None);
}
