//! Counters that the host, or an exec, has ended although their task lives.

use super::{close_all, count, run};
use crate::target::{ContextKey, Presence};
use crate::testing::{Machine, PLENTY, event, group};
use crate::{EventState, Target, TaskId};

#[test]
fn a_counter_that_the_host_has_ended_is_not_shared_any_more() {
    let engine = Machine::sharing(1);
    let task = ContextKey::Task(TaskId(1));
    for attrs in [&[event(1)][..], &[event(1), event(2)]] {
        let open = || engine.open_enabled(&group(PLENTY, attrs), Target::task(TaskId(1)));
        let before = open();
        engine.host().run(&[task], 5);
        engine.host().end_counters(task);
        let (after, again) = (open(), open());
        assert_eq!(engine.census().masters, 2, "those who came after its end share with one another");
        engine.host().run(&[task], 7);
        let counts = [&before, &after, &again].map(|opened| engine.read(opened.events[0]).map(|count| count.value));
        assert_eq!(counts, [Ok(5), Ok(7), Ok(7)]);
        close_all(&engine, [&before, &after, &again]);
    }
}

#[test]
fn an_exec_that_changes_rights_ends_it_for_all() {
    let engine = Machine::sharing(1);
    engine.host().place(ContextKey::Task(TaskId(1)), Presence::In);
    let open = || engine.open(&group(PLENTY, &[event(1)]), Target::task(TaskId(1))).unwrap();
    let (one, other) = (open(), open());
    engine.enable_group(one.group).unwrap();
    run(&engine, 10);
    engine.task_exec(TaskId(1), crate::engine::Exec::ChangesRights);
    run(&engine, 10);
    assert_eq!(
        (engine.state(one.events[0]), engine.state(other.events[0])),
        (Ok(EventState::Dead), Ok(EventState::Dead))
    );
    assert_eq!(engine.read(one.events[0]), Ok(count(10, 10)));
}
