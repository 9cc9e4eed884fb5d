//! A read or a join while an event that could share comes to count something else, and a join while the counter loses its slot.
//!
//! What it is: a reader and an opener beside [`Engine::modify`], and an opener beside the end of the task, on locks at which a scheduler decides who
//! comes next. The clock stands, so each reading has one right answer, whenever it is taken.
//!
//! **Invariant:** a failure prints the scheduler's seed; `shuttle::replay` follows it.

use crate::target::ContextKey;
use crate::testing::scheduled::{Scheduled, schedules};
use crate::testing::{Machine, Near, PLENTY, flagged, group};
use crate::{Engine, EventId, GroupId, ModifyError, Sharing, Target, TaskId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::{Attr, AttrFlags};

type Racer = Engine<Machine<Scheduled>>;

const PARENT: TaskId = TaskId(1);
const CHILD: TaskId = TaskId(2);

fn event(rate: u64) -> Attr {
    flagged(rate, AttrFlags::INHERIT)
}

/// A group of two whose master is older than it, and of whose count a child that has exited has a part; what its events have
/// counted.
fn latecomer(engine: &Racer) -> (GroupId, Vec<EventId>, [u64; 2]) {
    let open = || engine.open_enabled(&group(PLENTY, &[event(1), event(2)]), Target::task(PARENT));
    let run = |task, ns| engine.host().run(&[ContextKey::Task(task)], ns);
    let older = open();
    run(PARENT, 1000);
    let late = open();
    assert_eq!(engine.census().masters, 1);
    engine.task_fork(PARENT, CHILD).unwrap();
    run(CHILD, 100);
    engine.task_exit(CHILD);
    run(PARENT, 10);
    engine.close(older.group);
    (late.group, late.events, [110, 220])
}

fn race(read: fn(&Racer, GroupId, &[EventId]) -> Vec<u64>) {
    let story = move || {
        let engine: Racer = Machine::engine_on(1, Near::Once).with_sharing(Sharing::On);
        let (group, events, counted) = latecomer(&engine);
        // From now on it is known from memory, too.
        assert_eq!(read_all(&engine, group, &events), counted);
        let engine = Arc::new(engine);
        let reader = {
            let (engine, events) = (Arc::clone(&engine), events.clone());
            shuttle::thread::spawn(move || (0..3).for_each(|_| assert_eq!(read(&engine, group, &events), counted)))
        };
        engine.modify(events[1], &event(7)).unwrap();
        reader.join().unwrap();
        assert_eq!(read(&engine, group, &events), counted);
        engine.host().run(&[ContextKey::Task(PARENT)], 10);
        assert_eq!(read_all(&engine, group, &events), [counted[0] + 10, counted[1] + 70], "and it counts on");
        engine.close(group);
    };
    schedules(300, story);
}

fn read_all(engine: &Racer, _: GroupId, events: &[EventId]) -> Vec<u64> {
    events.iter().map(|&event| engine.read(event).unwrap().value).collect()
}

fn read_group(engine: &Racer, group: GroupId, _: &[EventId]) -> Vec<u64> {
    engine.read_group(group).unwrap().into_iter().map(|count| count.unwrap().value).collect()
}

fn read_cached(engine: &Racer, _: GroupId, events: &[EventId]) -> Vec<u64> {
    events.iter().map(|&event| engine.read_cached(event).unwrap().0.value).collect()
}

#[test]
fn a_read_while_an_event_changes_returns_what_it_counted() {
    for read in [read_all, read_group, read_cached] {
        race(read);
    }
}

/// An event that joins during a change counts what its open asked for, or the change is refused.
#[test]
fn no_client_joins_what_comes_to_count_something_else() {
    let story = || {
        let engine: Arc<Racer> = Arc::new(Machine::engine_on(1, Near::Once).with_sharing(Sharing::On));
        let open = |engine: &Racer| engine.open(&group(PLENTY, &[event(1)]), Target::task(PARENT)).unwrap();
        let first = open(&engine);
        let opener = {
            let engine = Arc::clone(&engine);
            shuttle::thread::spawn(move || open(&engine))
        };
        let changed = engine.modify(first.events[0], &event(7));
        let second = opener.join().unwrap();
        engine.enable_groups([&first, &second]);
        engine.host().run(&[ContextKey::Task(PARENT)], 10);
        let expected = match changed {
            Ok(()) => [70, 10],
            Err(error) => {
                assert_eq!(error, ModifyError::Shared);
                [10, 10]
            }
        };
        assert_eq!([&first, &second].map(|opened| engine.read(opened.events[0]).unwrap().value), expected);
    };
    schedules(500, story);
}

/// The bank of the machine panics when it is asked about a slot that it does not hold.
#[test]
fn a_join_asks_only_about_slots_that_are_held() {
    let story = || {
        let engine: Arc<Racer> = Arc::new(Machine::engine_on(1, Near::Once).with_sharing(Sharing::On));
        let first = engine.open_enabled(&group(PLENTY, &[event(1)]), Target::task(PARENT));
        let opener = {
            let engine = Arc::clone(&engine);
            shuttle::thread::spawn(move || {
                if let Ok(joined) = engine.open(&group(PLENTY, &[event(1)]), Target::task(PARENT)) {
                    engine.close(joined.group);
                }
            })
        };
        engine.disable_group(first.group).unwrap();
        engine.enable_group(first.group).unwrap();
        engine.task_exit(PARENT);
        opener.join().unwrap();
        engine.close(first.group);
        assert_eq!(engine.host().leased(), 0);
    };
    schedules(500, story);
}
