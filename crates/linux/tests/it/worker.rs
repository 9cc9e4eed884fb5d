//! Workers do what they are told, and nothing beside.
//!
//! What it is: what a worker did is compared with what `/proc` says of it.
//!
//! **Invariant:** no event is opened here.

use pmux_linux::Errno;
use pmux_linux::procfs::Proc;
use pmux_linux::worker::{ChildKind, Code, Order, Stage, Touching, WorkDone, Worker, WorkerError, page_bytes};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;

const STAGE: Stage = Stage { pages: 2, code: Code::Runs, children: 4 };

pub(crate) const TESTS: [crate::Test; 9] = [
    ("worker::it_runs_for_its_own_time", it_runs_for_its_own_time),
    ("worker::pages_are_faults_and_nothing_else_is", pages_are_faults_and_nothing_else_is),
    ("worker::children_cost_no_faults", children_cost_no_faults),
    ("worker::it_goes_where_it_is_told", it_goes_where_it_is_told),
    ("worker::an_exec_leaves_it_as_it_was", an_exec_leaves_it_as_it_was),
    ("worker::what_it_cannot_do_it_says", what_it_cannot_do_it_says),
    ("worker::no_process_is_left", no_process_is_left),
    ("worker::a_worker_that_is_killed_is_told", a_worker_that_is_killed_is_told),
    ("worker::a_process_lives_on_without_its_first_thread", a_process_lives_on_without_its_first_thread),
];

fn start() -> Worker {
    Worker::start(&STAGE).unwrap()
}

fn execute(worker: &mut Worker, order: Order) -> WorkDone {
    worker.tell(order).unwrap();
    worker.answer().unwrap()
}

/// The page faults of a thread since it was born.
fn faults(worker: &Worker) -> u64 {
    let stat = Proc::system().thread_stat(worker.tid()).unwrap();
    stat.minor_faults + stat.major_faults
}

fn lives(pid: i32) -> bool {
    Proc::system().stat(pid).is_ok_and(|stat| !stat.is_zombie())
}

fn it_runs_for_its_own_time() {
    let mut worker = start();
    let work_done = execute(&mut worker, Order::Run { cpu_ns: 5_000_000, pages: 0 });
    assert!(work_done.cpu_ns >= 5_000_000, "{work_done:?}");
    assert!(work_done.rounds > 0 && work_done.pages == 0 && work_done.accesses == 0, "{work_done:?}");
    // What is idle uses no time, but for the order itself.
    let idle = execute(&mut worker, Order::Touch { pages: 0 });
    assert!(idle.cpu_ns < work_done.cpu_ns && idle.rounds == 0, "{idle:?}");
}

fn pages_are_faults_and_nothing_else_is() {
    let mut worker = start();
    let before = faults(&worker);
    assert_eq!(execute(&mut worker, Order::Touch { pages: 20 }).pages, 20);
    assert_eq!(faults(&worker) - before, 20);
    assert_eq!(execute(&mut worker, Order::Touch { pages: 1000 }).pages, 1000);
    assert_eq!(faults(&worker) - before, 1020);
    assert_eq!(execute(&mut worker, Order::Run { cpu_ns: 1_000_000, pages: 7 }).pages, 7);
    assert_eq!(faults(&worker) - before, 1027);
    for how in [Touching::Read, Touching::Write, Touching::Execute] {
        let work_done = execute(&mut worker, Order::Access { offset: page_bytes() + 64, how, times: 3 });
        assert_eq!(work_done.accesses, 3);
    }
    execute(&mut worker, Order::Go { cpu: 0 });
    assert_eq!(faults(&worker) - before, 1027, "accesses and moves are no faults");
}

fn children_cost_no_faults() {
    let mut worker = start();
    let before = faults(&worker);
    let (mut process, _, _) = worker.fork(ChildKind::Process, 0).unwrap();
    let (mut thread, _, _) = worker.fork(ChildKind::Thread, 1).unwrap();
    let (mut grandchild, _, _) = process.fork(ChildKind::Process, 2).unwrap();
    assert_eq!(thread.pid(), worker.pid());
    assert_ne!(process.pid(), worker.pid());
    for child in [&mut process, &mut thread, &mut grandchild] {
        assert_eq!(faults(child), 0, "it was born without");
        execute(child, Order::Touch { pages: 12 });
        assert_eq!(faults(child), 12);
        child.exit().unwrap();
        assert!(!lives(child.tid()));
    }
    assert_eq!(faults(&worker), before);
}

fn it_goes_where_it_is_told() {
    let mut worker = start();
    execute(&mut worker, Order::Go { cpu: 0 });
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid())).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(allowed.trim(), "0");
    worker.tell(Order::Go { cpu: 1000 }).unwrap();
    assert_eq!(worker.answer(), Err(WorkerError::Refused(Errno::EINVAL)));
}

fn an_exec_leaves_it_as_it_was() {
    let mut worker = start();
    execute(&mut worker, Order::Go { cpu: 0 });
    let (mut child, _, _) = worker.fork(ChildKind::Process, 0).unwrap();
    for (worker, name) in [(&mut worker, "the first"), (&mut child, "a child")] {
        let (pid, user) = (worker.pid(), execute(worker, Order::Touch { pages: 1 }).user);
        worker.tell_exec(None).unwrap();
        let work_done = worker.answer().unwrap();
        assert_eq!((worker.pid(), work_done.user), (pid, user), "{name}");
        assert!(work_done.cpu_ns > 0);
        let before = faults(worker);
        execute(worker, Order::Touch { pages: 5 });
        assert_eq!(faults(worker) - before, 5, "{name}: it is ready again");
        execute(worker, Order::Access { offset: 0, how: Touching::Write, times: 1 });
    }
    // Also those who came back can have children, and copies can be executed.
    let (mut next, _, _) = child.fork(ChildKind::Process, 0).unwrap();
    let itself = std::fs::File::open("/proc/self/exe").unwrap();
    next.tell_exec(Some(itself.as_fd())).unwrap();
    next.answer().unwrap();
}

fn what_it_cannot_do_it_says() {
    let mut worker = start();
    let wrong = [
        Order::Access { offset: 2 * page_bytes(), how: Touching::Read, times: 1 },
        Order::Fork { stack: 0, child_kind: ChildKind::Process },
    ];
    for order in wrong {
        worker.tell(order).unwrap();
        assert!(matches!(worker.answer(), Err(WorkerError::Refused(_))), "{order:?}");
    }
    assert!(
        matches!(worker.fork(ChildKind::Process, 4), Err(WorkerError::Refused(Errno::EINVAL))),
        "there are four stacks"
    );
    assert_eq!(execute(&mut worker, Order::Touch { pages: 2 }).pages, 2, "it goes on");
    let mut worker = Worker::start(&Stage { code: Code::No, ..STAGE }).unwrap();
    worker.tell(Order::Access { offset: 0, how: Touching::Execute, times: 1 }).unwrap();
    assert_eq!(worker.answer(), Err(WorkerError::Refused(Errno::EFAULT)));
}

fn no_process_is_left() {
    let mut worker = start();
    let (child, _, _) = worker.fork(ChildKind::Process, 0).unwrap();
    let pids = [worker.pid(), child.pid()];
    // Also in the middle of something.
    worker.tell(Order::Run { cpu_ns: 60_000_000_000, pages: 0 }).unwrap();
    assert!(pids.into_iter().all(lives));
    drop(worker);
    drop(child);
    assert!(!pids.into_iter().any(|pid| Proc::system().exists(pid)));
}

fn a_worker_that_is_killed_is_told() {
    let mut worker = start();
    let (mut thread, _, _) = worker.fork(ChildKind::Thread, 0).unwrap();
    worker.tell(Order::Run { cpu_ns: 60_000_000_000, pages: 0 }).unwrap();
    std::process::Command::new("kill").args(["-9", &worker.pid().to_string()]).status().unwrap();
    match worker.answer() {
        Err(WorkerError::Ended(Some(status))) => assert_eq!(status.signal(), Some(9)),
        other => panic!("{other:?}"),
    }
    assert_eq!(thread.answer(), Err(WorkerError::Ended(None)));
    assert!(matches!(worker.tell(Order::Exit), Err(WorkerError::Ended(Some(_)))));
}

fn a_process_lives_on_without_its_first_thread() {
    let mut worker = start();
    let (mut thread, _, _) = worker.fork(ChildKind::Thread, 0).unwrap();
    worker.exit().unwrap();
    let before = faults(&thread);
    execute(&mut thread, Order::Touch { pages: 9 });
    assert_eq!(faults(&thread) - before, 9);
    thread.exit().unwrap();
    assert!(!lives(worker.pid()));
}
