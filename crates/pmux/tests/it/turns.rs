//! Events that take turns. Software events stand in for hardware, so that every kernel can be asked; what hardware makes
//! of it is shown in the lab.
//!
//! Turns are as long as the machine makes them. What is compared is what was counted beside each other, never a time.

use crate::common::{self, SyncDir, events, eventually, needs, own_process, role as roles, skip_unless};
use pmux::abi::{Attr, AttrFlags, EventType, sw};
use pmux::server_api::{Acting, EventAction, ServeRequest, ServedTarget};
use pmux::{
    Attribution, Census, Command, Count, Counters, CpuChoice, CpuList, Error, Estimate, Inherit, Multiplexing, Options,
    Reading, Session, Slice, Snapshot, Start, Target,
};
use std::time::Duration;

pub(crate) fn role(name: &str, arguments: &str) {
    match name {
        // slow:ROUNDS,PAGES: some pages at a time, with pauses
        "slow" => slow(arguments),
        // slow-until:FOLDER: 8 pages at a time, 100 times and then until it is told that it is enough; says at the end that it is done
        "slow-until" => {
            slow("100,8");
            let sync_dir = SyncDir::at(arguments);
            while !sync_dir.path("enough").exists() {
                // The test has failed.
                if !std::path::Path::new(arguments).exists() {
                    return;
                }
                few_new_pages();
                std::thread::sleep(Duration::from_millis(1));
            }
            sync_dir.post("done");
        }
        _ => panic!("there is no role {name}"),
    }
}

fn slow(arguments: &str) {
    let (rounds, pages) = arguments.split_once(',').unwrap();
    let (rounds, pages): (usize, usize) = (rounds.parse().unwrap(), pages.parse().unwrap());
    for round in 0..rounds {
        roles::touch(round * pages, pages);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// 8 page faults. So large a piece is a mapping of its own in each C library, and pages that lie so far apart share no huge page.
fn few_new_pages() {
    let apart = 4 << 20;
    let mut room = vec![0_u8; 10 * apart];
    (0..8).for_each(|page| *std::hint::black_box(&mut room[page * apart]) = 1);
}

/// A program that touches pages until each event has counted: how long that takes is the machine's affair.
struct UntilCounted(SyncDir);

impl UntilCounted {
    fn role(&self) -> String {
        format!("turns/slow-until:{}", self.0.text(""))
    }

    fn let_it_end(&self, counters: &Counters, before: &Snapshot) {
        let counted = |reading: Reading| reading.count().is_none_or(|count| count.value > 0 && count.running.0 > 0);
        let all = || counters.read().since(before).totals().all(|(_, reading)| counted(reading));
        eventually("each event has counted", || all().then_some(()));
        self.0.post("enough");
    }
}

/// A session that lets so many software events run at once.
fn session(counters: u8) -> Option<Session> {
    let session = Session::with_scarce_software(counters).unwrap();
    let kernel = matches!(session.backend(), pmux::Backend::Kernel);
    needs("kernel", "performance events", kernel).then_some(session)
}

fn engine(start: Start) -> Options {
    let slice = Slice::from_millis(1).unwrap();
    Options { multiplexing: Multiplexing::Engine, slice, start, ..Options::default() }
}

/// Events of a command that take turns from its exec on.
fn of_command(session: &Session, list: &str, command: &Command) -> Counters {
    session.open(&events(session, list), &Target::Command(command), engine(Start::OnExec)).unwrap()
}

/// Page faults, by an event that has a counter all the time.
fn by_kernel(session: &Session, target: &Target<'_>, start: Start) -> Counters {
    let kernel = Options { multiplexing: Multiplexing::Kernel, ..engine(start) };
    session.open(&events(session, "page-faults"), target, kernel).unwrap()
}

fn shell(line: &str) -> Command {
    Command::hold(["sh", "-c", line]).unwrap()
}

fn counted(snapshot: &Snapshot, event: usize) -> Count {
    let reading = snapshot.total(event);
    reading.count().unwrap_or_else(|| panic!("event {event}: {reading:?}"))
}

/// What holds for events that take turns with so many counters, if `whole` is one that counts all the time.
fn check(counters: &Counters, slots: u64, whole: &Count) {
    let snapshot = counters.read();
    let counts: Vec<_> = (0..counters.events().len()).map(|event| counted(&snapshot, event)).collect();
    for count in &counts {
        assert!(count.running <= count.enabled, "{counts:?}");
        assert!(count.value > 0 && matches!(count.estimate(), Estimate::Scaled { .. }), "{counts:?}");
        assert!(count.value <= whole.value, "{counts:?} {whole:?}");
    }
    let running: u64 = counts.iter().map(|count| count.running.0).sum();
    let enabled = counts[0].enabled.0;
    assert!(counts.iter().all(|count| count.enabled.0.abs_diff(enabled) <= enabled / 1000), "one clock: {counts:?}");
    assert!(running <= slots * enabled + enabled / 100, "never more than fit: {counts:?}");
    assert!(running >= slots * enabled / 2, "the counters are in use: {counts:?}");
    let value: u64 = counts.iter().map(|count| count.value).sum();
    assert!(value <= slots * whole.value, "{counts:?} {whole:?}");
    assert!(value >= slots * whole.value / 2, "{counts:?} {whole:?}");
}

#[test]
fn children_are_counted_in_every_turn_also_those_that_started_before_it() {
    let Some(session) = session(1) else { return };
    // All pages are touched by a grandchild that is there from the beginning, and lives through many turns.
    let until_counted = UntilCounted(SyncDir::new());
    let command = shell(&format!("{} & wait", roles::line(&until_counted.role())));
    let counters = of_command(&session, "page-faults,page-faults,page-faults", &command);
    let reference = by_kernel(&session, &Target::Command(&command), Start::OnExec);
    assert!(!counters.takes_turns() && counters.pmu_capacities()[0].limit == 1);
    let before = counters.read();
    let mut running = command.release(&[&counters, &reference]).unwrap();
    assert!(counters.takes_turns());
    until_counted.let_it_end(&counters, &before);
    assert!(running.wait(&session).unwrap().status.success());
    let whole = counted(&reference.read(), 0);
    assert!(whole.value >= 100 * 8);
    // Each of them has counted: how much depends on when the grandchild had a CPU.
    check(&counters, 1, &whole);
}

#[test]
fn children_go_on_when_the_command_has_ended() {
    let Some(session) = session(1) else { return };
    let until_counted = UntilCounted(SyncDir::new());
    let command = shell(&format!("{} > /dev/null 2>&1 & exit 0", roles::line(&until_counted.role())));
    let counters = of_command(&session, "page-faults,page-faults", &command);
    let mut running = command.release(&[&counters]).unwrap();
    running.wait(&session).unwrap();
    let at_end = counters.read();
    until_counted.let_it_end(&counters, &at_end);
    until_counted.0.read("done");
    let later = counters.read();
    for event in 0..2 {
        let (before, after) = (counted(&at_end, event), counted(&later, event));
        assert!(after.value > before.value && after.running > before.running, "{before:?} {after:?}");
        assert!(after.running < after.enabled);
    }
}

#[test]
fn an_exec_starts_those_that_have_a_counter_and_no_others() {
    let Some(session) = session(2) else { return };
    let command = Command::hold(roles::words("touch:300")).unwrap();
    let counters = of_command(&session, "page-faults,minor-faults", &command);
    let reference = by_kernel(&session, &Target::Command(&command), Start::OnExec);
    assert!((0..2).all(|event| counted(&counters.read(), event).value == 0), "nothing has begun");
    let mut running = command.release(&[&counters, &reference]).unwrap();
    assert!(!counters.takes_turns(), "both have a counter all the time");
    assert!(running.wait(&session).unwrap().status.success());
    let (snapshot, whole) = (counters.read(), counted(&reference.read(), 0));
    let faults = counted(&snapshot, 0);
    // What the kernel starts at one moment counts the same.
    assert_eq!(faults.value, whole.value);
    assert_eq!(faults.estimate(), Estimate::Exact(whole.value));
    assert!(faults.value >= 300);
}

#[test]
fn a_command_that_never_runs_leaves_nothing_behind() {
    let Some(session) = session(1) else { return };
    let command = shell("exit 0");
    let list = events(&session, "page-faults,page-faults");
    let pid = command.pid();
    let counters = session.open(&list, &Target::Command(&command), engine(Start::OnExec)).unwrap();
    // Other counters take turns while it waits.
    let own = session.open(&list, &Target::CurrentThread, engine(Start::AtOnce)).unwrap();
    assert!(own.takes_turns());
    while !(0..2).all(|event| counted(&own.read(), event).running.0 > 0) {
        std::hint::black_box(vec![0_u8; 1 << 16]);
    }
    assert!((0..2).all(|event| counted(&counters.read(), event).running.0 == 0), "{:?}", counters.read());
    drop(counters);
    drop(command);
    assert!(!Target::Processes(vec![pid]).is_alive());
    drop(own);
    assert_eq!(session.census(), Census::default());
}

#[test]
fn turns_end_with_the_events_that_take_them() {
    let Some(session) = session(1) else { return };
    let list = |count| events(&session, &vec!["page-faults"; count].join(","));
    let fits = session.open(&list(1), &Target::CurrentThread, engine(Start::AtOnce)).unwrap();
    assert!(!fits.takes_turns(), "no event waits");
    drop(fits);
    let open = |count| session.open(&list(count), &Target::CurrentThread, engine(Start::AtOnce)).unwrap();
    let (first, second) = (open(2), open(3));
    assert!(first.takes_turns() && second.takes_turns());
    drop(first);
    // The others go on, with one waiting less.
    let before = second.read();
    let ran = |snapshot: &Snapshot| (0..3).map(|event| counted(snapshot, event).running.0).collect::<Vec<_>>();
    while ran(&second.read()).iter().zip(ran(&before)).any(|(now, before)| *now <= before) {
        std::hint::black_box(vec![0_u8; 1 << 16]);
    }
    drop(second);
    assert_eq!(session.census(), Census::default());
}

#[test]
fn a_thread_is_there_as_long_as_an_event_waits() {
    skip_unless!(own_process() && session(1).is_some());
    let session = Session::with_scarce_software(2).unwrap();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let open = |count: usize| {
        let list = events(&session, &vec!["page-faults"; count].join(","));
        session.open(&list, &Target::CurrentThread, engine(Start::AtOnce)).unwrap()
    };
    let fits = open(2);
    assert_eq!(threads(), before, "no event waits");
    drop(fits);
    let (first, second) = (open(3), open(4));
    assert_eq!(threads(), before + 1, "one for all");
    drop(first);
    assert_eq!(threads(), before + 1);
    drop(second);
    // A thread that has ended is still listed for a moment.
    eventually("the thread is gone", || (threads() == before).then_some(()));
}

#[test]
fn groups_take_their_turns_whole() {
    let Some(session) = session(2) else { return };
    let until_counted = UntilCounted(SyncDir::new());
    let command = Command::hold(roles::words(&until_counted.role())).unwrap();
    let list = "{page-faults,page-faults},page-faults,{page-faults,page-faults,page-faults}";
    let counters = of_command(&session, list, &command);
    let refusal = counters.refusal(5).unwrap();
    assert!(refusal.summary.contains("3 events of software at once, and 2 run"), "{refusal}");
    assert!(counters.refusal(4).is_none(), "the rest of the group goes on");
    let before = counters.read();
    let mut running = command.release(&[&counters]).unwrap();
    until_counted.let_it_end(&counters, &before);
    running.wait(&session).unwrap();
    let snapshot = counters.read();
    let pair = [counted(&snapshot, 0), counted(&snapshot, 1)];
    assert_eq!(pair[0].value, pair[1].value, "{pair:?}");
    assert!(pair[0].running == pair[1].running && pair[0].value > 0, "{pair:?}");
}

#[test]
fn a_weak_group_that_never_fits_is_broken_up_and_others_are_not() {
    let Some(session) = session(2) else { return };
    let until_counted = UntilCounted(SyncDir::new());
    let command = Command::hold(roles::words(&until_counted.role())).unwrap();
    let list = "{page-faults,page-faults,page-faults}:W,{page-faults,page-faults}:W";
    let counters = of_command(&session, list, &command);
    let why = "the weak group {page-faults,page-faults,page-faults} of 3 events can't be counted together (there are not so many \
               counters): its events are counted each by itself";
    let said: Vec<_> = (0..5).map(|event| counters.regrouping(event)).collect();
    assert_eq!(said, [Some(why), None, None, None, None]);
    assert!((0..5).all(|event| counters.refusal(event).is_none()));
    let before = counters.read();
    let mut running = command.release(&[&counters]).unwrap();
    until_counted.let_it_end(&counters, &before);
    running.wait(&session).unwrap();
    let snapshot = counters.read();
    let counts: Vec<_> = (0..5).map(|event| counted(&snapshot, event)).collect();
    assert!(counts.iter().all(|count| count.value > 0), "{counts:?}");
    assert_eq!((counts[3].value, counts[3].running), (counts[4].value, counts[4].running), "a group is whole");
}

#[test]
fn a_weak_group_keeps_its_members_while_one_of_them_is_unknown_here() {
    let Some(session) = common::session() else { return };
    // A software event of a number that no kernel has.
    let list = events(&session, "{page-faults,software/config=0x7fff/,task-clock}:W");
    let counters = session.open(&list, &Target::CurrentThread, Options::default()).unwrap();
    assert_eq!(counters.regrouping(0), None);
    assert!(counters.refusal(1).is_some() && counters.refusal(0).is_none() && counters.refusal(2).is_none());
}

#[test]
fn software_events_beside_them_are_counted_whole() {
    let Some(session) = common::session() else { return };
    let list = events(&session, "page-faults,task-clock,duration_time");
    let options = Options { inherit: Inherit::None, ..engine(Start::AtOnce) };
    let counters = session.open(&list, &Target::CurrentThread, options).unwrap();
    assert!(!counters.takes_turns() && counters.pmu_capacities().is_empty());
    let snapshot = counters.read();
    assert_eq!(snapshot.rows[0].readings.len(), 3);
    let count = counted(&snapshot, 1);
    assert_eq!(count.estimate(), Estimate::Exact(count.value));
    assert_eq!(counters.contention(0), None);
}

#[test]
fn cpus_are_rows_of_their_own() {
    let Some(session) = session(1) else { return };
    skip_unless!(needs("root", "the right to count CPUs", common::may_count_cpus(&session)));
    let cpus: CpuList = session.online().iter().take(2).collect();
    let list = events(&session, "cpu-clock,task-clock,cpu-clock:u");
    let counters = session.open(&list, &Target::Cpus(CpuChoice::Only(cpus.clone())), engine(Start::AtOnce)).unwrap();
    assert!(counters.takes_turns());
    let ran = |snapshot: &Snapshot| {
        let counts = snapshot.rows.iter().flat_map(|row| row.readings.iter().filter_map(|reading| reading.count()));
        counts.filter(|count| count.running.0 > 0).count()
    };
    let all_ran = |snapshot: &Snapshot| ran(snapshot) >= 3 * cpus.len();
    let snapshot = eventually("all have had a turn", || Some(counters.read()).filter(all_ran));
    for row in &snapshot.rows {
        let counts: Vec<_> = row.readings.iter().map(|reading| reading.count().unwrap()).collect();
        let running: u64 = counts.iter().map(|count| count.running.0).sum();
        let enabled = || counts.iter().map(|count| count.enabled.0);
        let (least, most) = (enabled().min().unwrap(), enabled().max().unwrap());
        // They are read one after the other: meanwhile another one may have had a turn.
        let between = most - least;
        assert!(running <= most + most / 100 + between, "one at a time: {counts:?}");
        // The clock counts the time that it runs.
        assert!(counts.iter().all(|count| count.value.abs_diff(count.running.0) <= count.running.0 / 10), "{counts:?}");
    }
}

#[test]
fn what_does_not_go_with_turns_is_refused() {
    let Some(session) = session(1) else { return };
    let command = shell("exit 0");
    let options = Options { attribution: Attribution::EachProcess, ..engine(Start::OnExec) };
    let opened = session.open(&events(&session, "page-faults"), &Target::Command(&command), options);
    assert!(matches!(opened, Err(Error::Options(text)) if text.contains("tree")));
    assert_eq!((Slice::from_millis(0), Slice::from_millis(1001)), (None, None));
    assert_eq!(Slice::default().length(), Duration::from_millis(4));
}

#[test]
fn a_reading_from_memory_has_the_same_times() {
    let Some(session) = session(1) else { return };
    let command = Command::hold(roles::words("turns/slow:60,8")).unwrap();
    let counters = of_command(&session, "page-faults,page-faults", &command);
    let mut running = command.release(&[&counters]).unwrap();
    running.wait(&session).unwrap();
    let exact = counters.read();
    let (cached, _) = counters.read_cached();
    for event in 0..2 {
        assert_eq!(counted(&cached, event), counted(&exact, event));
    }
    assert_eq!(cached.rows[0].readings.len(), 2, "the clock is no client's event");
}

/// A task that sleeps most of the time waits for a counter only while it is there.
#[test]
fn a_client_gets_for_how_long_a_task_was_there() {
    let Some(session) = session(1) else { return };
    let command = Command::hold(roles::words("turns/slow:150,4")).unwrap();
    let attr = Attr {
        kind: EventType::SOFTWARE,
        config: sw::PAGE_FAULTS,
        flags: AttrFlags::DISABLED | AttrFlags::INHERIT,
        ..Attr::default()
    };
    let serve = |config: u64| {
        let question = ServeRequest { target: ServedTarget::Task(command.pid()), attrs: vec![Attr { config, ..attr }] };
        session.serve(&Acting::default(), question, Multiplexing::Engine).unwrap()
    };
    let served = [sw::PAGE_FAULTS, sw::PAGE_FAULTS_MIN, sw::CONTEXT_SWITCHES].map(serve);
    let reference = by_kernel(&session, &Target::Threads(vec![command.pid()]), Start::AtOnce);
    served.iter().for_each(|group| group.control(0, EventAction::EnableGroup).unwrap());
    let mut running = command.release(&[]).unwrap();
    assert!(running.wait(&session).unwrap().status.success());
    let whole = counted(&reference.read(), 0);
    for (index, group) in served.iter().enumerate() {
        let count = group.read(0).unwrap();
        // It naps for 150 ms and more.
        assert!(count.enabled.0 <= whole.enabled.0 + whole.enabled.0 / 10, "{index}: {count:?} {whole:?}");
        assert!(count.running <= count.enabled, "{index}: {count:?} {whole:?}");
        assert_eq!(group.find(0).unwrap().count.enabled, count.enabled, "{index}: the page says the same");
    }
    let ran: u64 = served.iter().map(|group| group.read(0).unwrap().running.0).sum();
    assert!(ran > whole.enabled.0 / 2 && ran <= whole.enabled.0 + whole.enabled.0 / 10, "{ran} {whole:?}");
    drop(reference);
    let questions = session.shared_questions();
    assert_eq!(questions.len(), 3, "clocks are no client's request");
    for (question, group) in questions.iter().zip(&served) {
        assert_eq!(question.events[0].count, group.read(0).unwrap(), "what is shown of it is what its client is told");
    }
    drop(served);
    assert_eq!(session.census(), Census::default());
}
