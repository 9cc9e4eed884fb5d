//! The openers, as root makes them for users: what the kernel then allows, and what their users can do to them.

use super::state::OPENERS_PER_USER;
use super::*;
use crate::host::bytes_of;
use crate::peer::user_namespace_of;
use crate::sys::PollEntry;
use pmux_abi::attr::{Attr, AttrFlags, EventType, sw};
use pmux_testkit::Killed;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const USER: u32 = 65_531;
const OTHER: u32 = 65_530;

/// A program that runs until the test ends, as this user.
fn sleeper(user: u32) -> Killed {
    let mut command = Command::new("sleep");
    command.arg("1000").uid(user).gid(user).current_dir("/").stdout(Stdio::null());
    Killed(command.spawn().unwrap())
}

fn attr(flags: AttrFlags) -> Vec<u8> {
    bytes_of(&Attr { kind: EventType::SOFTWARE, config: sw::PAGE_FAULTS, flags, ..Attr::default() })
}

fn in_user_mode() -> Vec<u8> {
    attr(AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::DISABLED)
}

fn task(sleeper: &Killed) -> EventTarget {
    EventTarget { task: Some(sleeper.0.id()), cpu: None }
}

fn of(user: u32) -> Credentials {
    Credentials { user, group: user, ..Credentials::default() }
}

/// Openers whose answers can be waited for; `None` where they can't be tried.
fn usable() -> Option<Arc<Openers>> {
    let root = Credentials::own().is_some_and(|own| own.user == 0);
    let own = sys::perf::TargetTask::Task(crate::current_tid().unsigned_abs());
    if !root || sys::perf::open(&in_user_mode(), own, None, None).is_err() {
        println!("skipped: needs root and performance events");
        return None;
    }
    Some(followed())
}

/// The same with a program of [`USER`] and that one's registered credentials.
fn with_user() -> Option<(Arc<Openers>, Killed, Arc<OnBehalf>)> {
    let openers = usable()?;
    let user = openers.on_behalf_of(0, of(USER));
    Some((openers, sleeper(USER), user))
}

#[test]
fn the_kernel_decides_by_the_credentials_that_were_taken() {
    let Some((openers, own, user)) = with_user() else { return };
    let other = sleeper(OTHER);
    assert_eq!(user.answered(&in_user_mode(), task(&own)), Ok(()));
    assert_eq!(user.answered(&in_user_mode(), task(&other)), Err(ActError::Refused(Errno::EACCES)));
    assert_eq!(
        user.answered(&in_user_mode(), EventTarget { task: Some(1), cpu: None }),
        Err(ActError::Refused(Errno::EACCES))
    );
    let open = |group: Option<&OwnedFd>| {
        let group = group.map(AsFd::as_fd);
        answered(&openers, USER, || openers.open(user.cred(), &in_user_mode(), task(&own), group, None)).unwrap()
    };
    let file = open(None);
    // It is an event, and a leader for another one.
    let member = open(Some(&file));
    sys::perf::enable(file.as_fd()).unwrap();
    assert_eq!(sys::perf::count(member.as_fd()), Ok(Some(0)));
    // The right to look into all tasks is a capability, and so is the one to count all that runs.
    let traces = openers.on_behalf_of(0, Credentials { permitted: 1 << 19, effective: 1 << 19, ..of(USER) });
    assert_eq!(traces.answered(&in_user_mode(), task(&other)), Ok(()));
    let perfmon = openers.on_behalf_of(0, Credentials { permitted: 1 << 38, effective: 1 << 38, ..of(USER) });
    let cpu = EventTarget { task: None, cpu: Some(0) };
    assert_eq!(perfmon.answered(&attr(AttrFlags::DISABLED), cpu), Ok(()));
    // Permitted is not effective.
    let idle = openers.on_behalf_of(0, Credentials { permitted: 1 << 38, ..of(USER) });
    let refused = Err(ActError::Refused(Errno::EACCES));
    assert_eq!(
        idle.answered(&attr(AttrFlags::DISABLED), cpu),
        if pmux_testkit::paranoid() > 0 { refused } else { Ok(()) }
    );
}

#[test]
fn equal_credentials_are_one_number_until_the_last_leaves() {
    let openers = followed();
    let one = openers.on_behalf_of(0, of(USER));
    let same = openers.on_behalf_of(0, of(USER));
    let other = openers.on_behalf_of(0, Credentials { permitted: 1, ..of(USER) });
    assert_eq!(one.cred(), same.cred());
    assert_ne!(one.cred(), other.cred());
    assert_ne!(one.cred(), Cred::HOST);
    let before = one.cred();
    drop((one, same));
    assert!(matches!(
        openers.check(before, &in_user_mode(), EventTarget { task: None, cpu: Some(0) }),
        Err(ActError::NotTaken(_))
    ));
    assert_ne!(openers.on_behalf_of(0, of(USER)).cred(), before, "numbers are never used twice");
}

/// A client may kill what runs as its user: the next request gets another one.
#[test]
fn an_opener_that_was_killed_is_replaced() {
    let Some((openers, own, user)) = with_user() else { return };
    assert_eq!(user.answered(&in_user_mode(), task(&own)), Ok(()));
    let first = pid_of(&openers, &user);
    // Its user may kill it.
    signal(first, "-KILL");
    assert_eq!(user.answered(&in_user_mode(), task(&own)), Ok(()));
    let second = pid_of(&openers, &user);
    assert_ne!(second, first);
    // Nothing of it can be read, though it is the user's.
    let look =
        Command::new("cat").arg(format!("/proc/{second}/environ")).uid(USER).gid(USER).stderr(Stdio::null()).output();
    assert!(!look.unwrap().status.success());
}

fn signal(pid: i32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).uid(USER).gid(USER).status().unwrap().success());
}

/// Openers whose answers can be waited for.
fn followed() -> Arc<Openers> {
    let openers = Arc::new(Openers::default());
    openers.readable().unwrap();
    openers
}

fn pid_of(openers: &Openers, user: &OnBehalf) -> i32 {
    openers.state().registered[&user.cred()].opener.as_ref().unwrap().pid
}

/// What can be tried again, as soon as there is anything.
fn ready(openers: &Openers) -> Vec<Retry> {
    let mut ready = Vec::new();
    while ready.is_empty() {
        let mut entries = [PollEntry::new(openers.readable().unwrap().as_raw_fd())];
        let timeout = if openers.next_ns() == 0 { Duration::ZERO } else { Duration::from_secs(30) };
        assert!(sys::ppoll(&mut entries, Some(timeout)) != Ok(0) || timeout.is_zero(), "an answer comes");
        openers.go_on(&mut ready);
    }
    ready
}

/// What is asked for a user without a request, when it has been answered.
fn answered<T>(openers: &Openers, user: u32, ask: impl Fn() -> Result<T, ActError>) -> Result<T, ActError> {
    loop {
        let answer = openers.without_request(Some(user), &ask);
        if openers.state().requests.is_empty() {
            return answer;
        }
        assert_eq!(ready(openers), [Retry::OfUser(user)]);
    }
}

impl OnBehalf {
    /// As [`OnBehalf::check`], when it has been answered.
    fn answered(&self, attr: &[u8], target: EventTarget) -> Result<(), ActError> {
        answered(&self.openers, self.openers.user_of(self.cred).unwrap(), || self.check(attr, target))
    }
}

/// Tries a request that asks one thing; whether it is to be tried again.
fn attempt<T>(
    openers: &Openers,
    id: u64,
    user: u32,
    ask: impl Fn() -> Result<T, ActError>,
) -> Option<Result<T, ActError>> {
    assert!(openers.begin(RequestId(id), user));
    let answer = ask();
    assert_eq!(openers.is_waiting(), matches!(answer, Err(ActError::Late)));
    if openers.pause() { None } else { Some(answer) }
}

/// A user who stops openers has requests that wait; those of others, and the thread that tries them, go on.
#[test]
fn a_request_waits_for_its_opener_and_nothing_else_does() {
    let Some((openers, own, user)) = with_user() else { return };
    let (other, friend) = (sleeper(OTHER), openers.on_behalf_of(0, of(OTHER)));
    let check = || user.check(&in_user_mode(), task(&own));
    assert_eq!(attempt(&openers, 1, USER, check), None);
    assert_eq!(ready(&openers), [Retry::Request(RequestId(1))]);
    assert_eq!(attempt(&openers, 1, USER, check), Some(Ok(())));
    let pid = pid_of(&openers, &user);
    signal(pid, "-STOP");
    assert_eq!(attempt(&openers, 2, USER, check), None);
    assert!(!openers.begin(RequestId(2), USER), "its opener works for it");
    // Another one of the user comes behind it, and asks nothing so far.
    assert_eq!(attempt(&openers, 3, USER, check), None);
    assert!(openers.state().requests[&RequestId(3)].todo.is_empty());
    // Registered for the time of a try only, as a client's are of which nothing is open.
    drop(friend);
    let ask = || openers.on_behalf_of(0, of(OTHER)).check(&in_user_mode(), task(&other));
    assert_eq!(attempt(&openers, 4, OTHER, ask), None);
    assert_eq!(ready(&openers), [Retry::Request(RequestId(4))]);
    assert_eq!(attempt(&openers, 4, OTHER, ask), Some(Ok(())));
    signal(pid, "-CONT");
    assert_eq!(ready(&openers), [Retry::Request(RequestId(2))]);
    assert_eq!(attempt(&openers, 2, USER, check), Some(Ok(())));
    assert_eq!(ready(&openers), [Retry::Request(RequestId(3))]);
    assert_eq!(attempt(&openers, 3, USER, check), None);
    assert_eq!(ready(&openers), [Retry::Request(RequestId(3))]);
    assert_eq!(attempt(&openers, 3, USER, check), Some(Ok(())));
    assert!(openers.state().requests.is_empty() && openers.state().lines.is_empty());
}

#[test]
fn a_request_has_a_deadline_and_can_be_ended() {
    let Some((openers, own, user)) = with_user() else { return };
    let check = || user.check(&in_user_mode(), task(&own));
    assert_eq!(answered(&openers, USER, check), Ok(()));
    let pid = pid_of(&openers, &user);
    signal(pid, "-STOP");
    assert_eq!(attempt(&openers, 1, USER, check), None);
    let due_ns = openers.next_ns();
    assert!(due_ns > sys::clock::monotonic_ns() && due_ns < u64::MAX);
    openers.state().requests.get_mut(&RequestId(1)).unwrap().due_ns = Some(0);
    assert_eq!(ready(&openers), [Retry::Request(RequestId(1))]);
    assert!(openers.begin(RequestId(1), USER));
    assert_eq!(check(), Err(ActError::Late));
    assert!(!openers.is_waiting() && !openers.pause(), "it is over");
    assert!(openers.state().registered[&user.cred()].opener.is_none(), "the opener is killed");
    // The next one has another; that its client goes away ends it at any time.
    assert_eq!(attempt(&openers, 2, USER, check), None);
    assert_eq!(attempt(&openers, 3, USER, check), None);
    openers.end(RequestId(2));
    assert_eq!(ready(&openers), [Retry::Request(RequestId(3))]);
    assert_eq!(attempt(&openers, 3, USER, check), None);
    openers.end(RequestId(3));
    assert!(openers.state().requests.is_empty() && openers.state().lines.is_empty());
}

/// What is opened on a CPU that comes waits for its own user's opener only: no request does, that of the thread that opens it neither.
#[test]
fn what_no_request_asks_for_waits_alone() {
    let Some((openers, own, user)) = with_user() else { return };
    let (other, friend) = (sleeper(OTHER), openers.on_behalf_of(0, of(OTHER)));
    let open = || {
        let opened = openers.open(user.cred(), &in_user_mode(), task(&own), None, None);
        opened.map(|file| sys::perf::id(file.as_fd()).unwrap())
    };
    let both = || [open(), open()];
    let check = || friend.check(&in_user_mode(), task(&other));
    assert_eq!(user.answered(&in_user_mode(), task(&own)), Ok(()));
    let pid = pid_of(&openers, &user);
    signal(pid, "-STOP");
    let again = Retry::OfUser(USER);
    assert!(openers.begin(RequestId(1), OTHER));
    assert_eq!(openers.without_request(None, both), [Err(ActError::Late); 2]);
    assert!(!openers.is_waiting(), "the request of another user");
    assert!(!openers.pause());
    assert_eq!(attempt(&openers, 2, OTHER, check), None);
    assert_eq!(ready(&openers), [Retry::Request(RequestId(2))]);
    assert_eq!(attempt(&openers, 2, OTHER, check), Some(Ok(())));
    // While the opener is at work nothing is asked again, nor anything else.
    let orders = openers.state().orders;
    assert_eq!(openers.without_request(None, || [open(), open(), open()]), [Err(ActError::Late); 3]);
    assert_eq!(openers.state().orders, orders);
    signal(pid, "-CONT");
    assert_eq!(ready(&openers), [again]);
    let three = || [open(), open(), open()];
    let answers = loop {
        match openers.without_request(Some(USER), three) {
            [Ok(one), Ok(two), Ok(three)] => break [one, two, three],
            _ => assert_eq!(ready(&openers), [again]),
        }
    };
    assert!(answers[0] != answers[1] && answers[1] != answers[2] && answers[0] != answers[2], "{answers:?}");
    assert!(openers.state().requests.is_empty() && openers.state().lines.is_empty());
    // What is not wanted any more is over at once, and its number is not another's.
    signal(pid, "-STOP");
    assert_eq!(openers.without_request(None, open), Err(ActError::Late));
    openers.without_request(None, || ());
    assert_eq!(openers.without_request(None, open), Err(ActError::Late));
    openers.end_without_request();
    assert!(openers.state().requests.is_empty() && openers.state().lines.is_empty());
    signal(pid, "-CONT");
    assert!(answered(&openers, USER, open).is_ok());
    // One that never answers is killed when its time is over; then it is the answer that there is none.
    signal(pid, "-STOP");
    assert_eq!(openers.without_request(None, open), Err(ActError::Late));
    openers.state().requests.values_mut().next().unwrap().due_ns = Some(0);
    assert_eq!(ready(&openers), [again]);
    assert_eq!(openers.without_request(Some(USER), open), Err(ActError::Late));
    assert!(openers.state().requests.is_empty() && openers.state().lines.is_empty());
    assert!(openers.state().registered[&user.cred()].opener.is_none(), "it is killed");
}

#[test]
fn each_thing_is_asked_once_and_equal_ones_are_several() {
    let Some((openers, own, user)) = with_user() else { return };
    let open =
        |group: Option<&OwnedFd>| openers.open(user.cred(), &in_user_mode(), task(&own), group.map(AsFd::as_fd), None);
    let group = || {
        let leader = open(None)?;
        let members = [open(Some(&leader)), open(Some(&leader))];
        let [one, other] = members;
        let files = [leader, one?, other?];
        Ok(files.map(|file| sys::perf::id(file.as_fd()).unwrap()))
    };
    let mut known = Vec::new();
    let files = loop {
        match attempt(&openers, 1, USER, group) {
            Some(files) => break files.unwrap(),
            None => assert_eq!(ready(&openers), [Retry::Request(RequestId(1))]),
        }
        let state = openers.state();
        let answers = state.requests[&RequestId(1)].files();
        known.push(answers.map(|file| sys::perf::id(file.as_fd()).unwrap()).collect::<Vec<_>>());
    };
    // First the leader, then both members, in one step.
    assert_eq!(known.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3]);
    let mut last = known.pop().unwrap();
    last.sort_unstable();
    let mut found = files;
    found.sort_unstable();
    assert_eq!(last, found);
    assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "{found:?}");
}

/// What an opener was asked when it was killed is asked of another one; a limit that its user sets on it is not the service's.
#[test]
fn a_request_survives_its_opener() {
    let Some((openers, own, user)) = with_user() else { return };
    let check = || user.check(&in_user_mode(), task(&own));
    assert_eq!(answered(&openers, USER, check), Ok(()));
    let pid = || pid_of(&openers, &user);
    let first = pid();
    signal(first, "-STOP");
    assert_eq!(attempt(&openers, 1, USER, check), None);
    signal(first, "-KILL");
    assert_eq!(ready(&openers), [Retry::Request(RequestId(1))]);
    assert_ne!(pid(), first);
    assert_eq!(attempt(&openers, 1, USER, check), Some(Ok(())));
    let mut limit = Command::new("prlimit");
    limit.args(["--nofile=1:1", "--pid", &pid().to_string()]).uid(USER).gid(USER);
    match limit.status() {
        Ok(status) => assert!(status.success(), "its user may limit it"),
        Err(_) => return println!("skipped: needs prlimit(1)"),
    }
    assert_eq!(attempt(&openers, 2, USER, check), None);
    assert_eq!(ready(&openers), [Retry::Request(RequestId(2))]);
    assert!(openers.begin(RequestId(2), USER));
    assert_eq!(check(), Err(ActError::Late));
    assert!(!openers.is_waiting() && !openers.pause());
}

#[test]
fn openers_are_bounded() {
    let Some(openers) = usable() else { return };
    let own = sleeper(USER);
    let sets = 0..OPENERS_PER_USER as u64 + 3;
    let all: Vec<_> = sets.map(|bits| openers.on_behalf_of(0, Credentials { permitted: bits, ..of(USER) })).collect();
    let running = || openers.state().registered.values().filter(|one| one.opener.is_some()).count();
    for round in 0..2 {
        for user in &all {
            assert_eq!(user.answered(&in_user_mode(), task(&own)), Ok(()), "{round}");
            assert!(running() <= OPENERS_PER_USER);
        }
    }
    drop(all);
    assert_eq!(running(), 0);
}

/// The numbers that a user may take beside its own are one user: what they have is counted together.
#[test]
fn openers_of_all_numbers_of_a_user_are_bounded_together() {
    let Some(openers) = usable() else { return };
    let mut all = Vec::new();
    for number in 0..OPENERS_PER_USER as u32 + 3 {
        let sleeper = sleeper(OTHER + number);
        let id = RequestId(number.into());
        assert!(openers.begin(id, USER));
        let subordinate = openers.on_behalf_of(0, of(OTHER + number));
        assert_eq!(subordinate.check(&in_user_mode(), task(&sleeper)), Err(ActError::Late));
        assert!(openers.pause());
        assert_eq!(ready(&openers), [Retry::Request(id)]);
        assert!(openers.begin(id, USER));
        assert_eq!(subordinate.check(&in_user_mode(), task(&sleeper)), Ok(()));
        assert!(!openers.pause());
        assert_eq!(openers.payer_of(subordinate.cred()), Some(USER));
        all.push(subordinate);
        let running = openers.state().registered.values().filter(|one| one.opener.is_some()).count();
        assert!(running <= OPENERS_PER_USER, "{running}");
    }
    // What no request asks for is one request for all of them, too.
    openers.without_request(None, || {
        for one in &all {
            assert_eq!(one.check(&in_user_mode(), EventTarget { task: None, cpu: Some(0) }), Err(ActError::Late));
        }
    });
    assert_eq!(openers.state().unasked.keys().collect::<Vec<_>>(), [&USER]);
    assert_eq!(ready(&openers), [Retry::OfUser(USER)]);
}

fn is_called(pid: u32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

/// A task of a user namespace is looked into by who is of the same one.
#[test]
fn another_user_namespace_is_entered() {
    let Some(openers) = usable() else { return };
    let inside = Command::new("unshare")
        .args(["--user", "--map-current-user", "sleep", "1000"])
        .uid(USER)
        .gid(USER)
        .current_dir("/")
        .spawn();
    let Ok(mut inside) = inside.map(Killed) else { return println!("skipped: needs unshare(1)") };
    let pid = inside.0.id();
    let own = user_namespace_of(std::process::id().cast_signed()).unwrap();
    let namespace = loop {
        match user_namespace_of(pid.cast_signed()) {
            // It has its namespace before any user is mapped into it: the program that unshare(1) executes runs when that is done.
            Some(inode) if inode != own && is_called(pid, "sleep") => break inode,
            _ if inside.0.try_wait().unwrap().is_some() => return println!("skipped: needs user namespaces"),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let member = openers.on_behalf_of(pid.cast_signed(), Credentials { user_namespace: Some(namespace), ..of(USER) });
    let outside = sleeper(USER);
    assert_eq!(member.answered(&in_user_mode(), task(&inside)), Ok(()));
    assert_eq!(member.answered(&in_user_mode(), task(&outside)), Err(ActError::Refused(Errno::EACCES)));
    // All capabilities of a namespace are none outside of it.
    let all = Credentials { user_namespace: Some(namespace), permitted: !0 >> 23, effective: !0 >> 23, ..of(USER) };
    let able = openers.on_behalf_of(pid.cast_signed(), all);
    assert_eq!(able.answered(&in_user_mode(), task(&outside)), Err(ActError::Refused(Errno::EACCES)));
    // It has gone into another one since.
    let moved = Credentials { user_namespace: Some(namespace + 1), ..of(USER) };
    let moved = openers.on_behalf_of(pid.cast_signed(), moved);
    assert_eq!(moved.answered(&in_user_mode(), task(&inside)), Err(ActError::NotTaken(Errno::ESRCH)));
    // Which does not say that the task has gone: what others count of it would be ended.
    assert_eq!(ActError::NotTaken(Errno::ESRCH).errno(), Errno::EPERM);
}
