//! What happens in the midst of a step: each race once, at a chosen moment.

use super::everywhere;
use crate::engine::{Census, SetRequest};
use crate::system_wide::Absent;
use crate::target::{ContextKey, Presence};
use crate::testing::{Machine, Moment, PLENTY, SCARCE, event, flagged, group};
use crate::{CpuId, Engine, EventState, OpenError, Opened, SetId, Target, TaskId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use pmux_abi::attr::AttrFlags;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};

const ROOT: TaskId = TaskId(1);
const CHILD: TaskId = TaskId(2);

fn engine(cpus: u32) -> Arc<Engine<Machine>> {
    Arc::new(Machine::engine(cpus))
}

fn nothing_is_left(engine: &Engine<Machine>) {
    assert_eq!((engine.census(), engine.host().leased()), (Census::default(), 0));
}

#[test]
fn a_cpu_goes_while_an_event_is_opened_on_it() {
    let engine = engine(2);
    let other = Arc::clone(&engine);
    engine.host().interrupt(Moment::Presence, 0, move || other.cpu_offline(CpuId(1)));
    let opened = engine.open(&group(PLENTY, &[event(1)]), Target::cpu(CpuId(1)));
    assert_eq!(opened, Err(OpenError::CpuOffline { cpu: CpuId(1) }));
    nothing_is_left(&engine);
}

#[test]
fn a_task_is_switched_while_its_first_event_is_opened() {
    let engine = engine(1);
    for (before, after) in [(Presence::In, Presence::Out), (Presence::Out, Presence::On(CpuId(0)))] {
        let other = Arc::clone(&engine);
        engine.host().place(ContextKey::Task(ROOT), before);
        // The switch comes before the host's answer, which is then too old.
        engine.host().interrupt(Moment::Presence, 0, move || match after {
            Presence::Out => other.switch_out(ROOT),
            _ => other.switch_in(ROOT, CpuId(0)),
        });
        let opened = engine.open_enabled(&group(SCARCE, &[event(1)]), Target::task(ROOT));
        let on = after != Presence::Out;
        assert_eq!(engine.state(opened.events[0]) == Ok(EventState::Active), on);
        engine.close(opened.group);
    }
    nothing_is_left(&engine);
}

fn root(engine: &Engine<Machine>) -> Opened {
    let inherited = flagged(1, AttrFlags::INHERIT);
    engine.open_enabled(&group(PLENTY, &[inherited, inherited]), Target::task(ROOT))
}

/// Forks while something else happens to the root, then says what the child counts in 10 ns.
fn fork_while(f: impl FnOnce(&Engine<Machine>, &Opened) + Send + 'static) -> (Arc<Engine<Machine>>, Vec<u64>) {
    let engine = engine(1);
    let opened = root(&engine);
    let (other, of_root) = (Arc::clone(&engine), opened.clone());
    engine.host().interrupt(Moment::Presence, 0, move || f(&other, &of_root));
    engine.task_fork(ROOT, CHILD).unwrap();
    engine.host().run_task(CHILD.0, 10);
    let counted = opened.events.iter().filter_map(|&event| Some(engine.read(event).ok()?.value)).collect();
    (engine, counted)
}

#[test]
fn a_root_is_switched_while_it_forks() {
    let (_, counted) = fork_while(|engine, root| engine.disable(root.events[1]).unwrap());
    assert_eq!(counted, [10, 0]);
    let (_, counted) = fork_while(|engine, root| engine.disable_group(root.group).unwrap());
    assert_eq!(counted, [0, 0]);
    let (_, counted) = fork_while(|engine, root| {
        engine.disable_group(root.group).unwrap();
        engine.enable(root.events[0]).unwrap();
    });
    assert_eq!(counted, [10, 0]);
}

#[test]
fn a_root_is_closed_while_it_forks() {
    let (engine, counted) = fork_while(|engine, root| engine.close(root.group));
    assert!(counted.is_empty());
    nothing_is_left(&engine);
}

#[test]
fn a_child_exits_before_its_fork_is_done() {
    // Against the rules; still nothing is left.
    let (engine, counted) = fork_while(|engine, root| {
        let family = engine.registry_family(root.events[0]);
        engine.child_exited(family, CHILD, crate::Nanos(0)).unwrap();
    });
    assert_eq!((counted, engine.census().events), (vec![0, 0], 2));
}

/// CPU 1 goes or comes while a set's turn is taken: another thread has begun to say so, and waits for the turn. From then
/// on some starts are refused.
struct Hotplug(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Hotplug {
    fn during(engine: &Arc<Engine<Machine>>, skip: u32, refusals: u32) -> Self {
        let (other, cpu) = (Arc::clone(engine), CpuId(1));
        let threads = Arc::new(Mutex::new(Vec::new()));
        let started = Arc::clone(&threads);
        engine.host().interrupt(Moment::Near, skip, move || {
            let was = other.online().contains(cpu);
            let hotplug = Arc::clone(&other);
            let run = move || if was { hotplug.cpu_offline(cpu) } else { hotplug.cpu_online(cpu) };
            started.lock().unwrap().push(thread::spawn(run));
            while other.online().contains(cpu) == was {
                thread::yield_now();
            }
            other.host().refuse_starts(refusals);
        });
        Self(threads)
    }

    fn join(self) {
        let threads: Vec<_> = self.0.lock().unwrap().drain(..).collect();
        assert_eq!(threads.len(), 1, "it came to it");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn request(mask: core::ops::Range<u32>, absent: Absent) -> SetRequest {
    let groups = vec![group(PLENTY, &[event(1)]), group(SCARCE, &[event(1)])];
    SetRequest { absent, ..everywhere(groups, mask) }
}

fn open_on(engine: &Engine<Machine>, set: SetId) -> Vec<u32> {
    let events = engine.set_events(set).unwrap();
    events.iter().filter(|(_, events)| events.len() == 2).map(|(cpu, _)| cpu.0).collect()
}

#[test]
fn a_cpu_goes_or_comes_while_a_set_is_opened() {
    // Before, while, and after its own turn comes in the order of CPUs.
    for skip in 0..3 {
        let engine = engine(3);
        let hotplug = Hotplug::during(&engine, skip, 0);
        let set = engine.open_set(request(0..3, Absent::Await)).unwrap();
        hotplug.join();
        assert_eq!((open_on(&engine, set), engine.census().events), (vec![0, 2], 4), "skip {skip}");
        let hotplug = Hotplug::during(&engine, skip % 2, 0);
        let second = engine.open_set(request(0..3, Absent::Await)).unwrap();
        hotplug.join();
        assert_eq!((open_on(&engine, set), open_on(&engine, second)), (vec![0, 1, 2], vec![0, 1, 2]), "skip {skip}");
        engine.close_set(set);
        engine.close_set(second);
        nothing_is_left(&engine);
    }
}

#[test]
fn a_named_cpu_goes_while_a_set_is_opened() {
    let engine = engine(3);
    let hotplug = Hotplug::during(&engine, 0, 0);
    let error = engine.open_set(request(0..3, Absent::Refuse)).unwrap_err();
    assert_eq!((error.cpu, error.error), (CpuId(1), OpenError::CpuOffline { cpu: CpuId(1) }));
    hotplug.join();
    nothing_is_left(&engine);
}

#[test]
fn a_cpu_goes_while_a_set_is_armed() {
    for skip in 0..2 {
        let engine = engine(2);
        let set = engine.open_set(request(0..2, Absent::Await)).unwrap();
        // What a CPU refuses that is going away is no refusal.
        let hotplug = Hotplug::during(&engine, skip, skip);
        engine.enable_set(set).unwrap();
        engine.host().refuse_starts(0);
        hotplug.join();
        engine.host().run(&[0, 1].map(|cpu| ContextKey::Cpu(CpuId(cpu))), 5);
        let reading = engine.read_set(set).unwrap();
        let values: Vec<_> = reading.cpus.iter().map(|cpu| cpu.counts[0].unwrap().value).collect();
        assert_eq!(values, [5, 0]);
        assert_eq!(reading.coverage.iter().map(|cpu| cpu.covered.0).collect::<Vec<_>>(), [5, 0]);
        engine.cpu_online(CpuId(1));
        engine.host().run(&[0, 1].map(|cpu| ContextKey::Cpu(CpuId(cpu))), 5);
        assert_eq!(engine.read_set(set).unwrap().cpus[1].counts[0].unwrap().value, 5, "it was armed when it came back");
    }
}

#[test]
fn a_set_is_closed_while_a_cpu_comes() {
    let engine = engine(2);
    engine.cpu_offline(CpuId(1));
    let set = engine.open_set(request(0..2, Absent::Await)).unwrap();
    engine.enable_set(set).unwrap();
    let closer = Arc::new(Mutex::new(None));
    let (other, started) = (Arc::clone(&engine), Arc::clone(&closer));
    engine.host().interrupt(Moment::Near, 0, move || {
        let closing = Arc::clone(&other);
        *started.lock().unwrap() = Some(thread::spawn(move || closing.close_set(set)));
        while other.census().sets > 0 {
            thread::yield_now();
        }
    });
    engine.cpu_online(CpuId(1));
    closer.lock().unwrap().take().unwrap().join().unwrap();
    nothing_is_left(&engine);
}
