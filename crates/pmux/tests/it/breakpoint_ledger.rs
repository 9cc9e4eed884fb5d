//! The engine's ledger of debug registers, with this kernel below it.
//!
//! What it is: random breakpoints are opened, changed and closed through one engine, for threads, for CPUs, for threads on a CPU
//! and as sets, which move to other CPUs. Ledger and kernel must never have differed. Then code outside the engine takes
//! registers, and the engine notices that.
//!
//! Read first: `breakpoint_fuzz`, which compares the kernel with the rule itself.

use crate::common::breakpoints::{Alone, Idle, address};
use crate::common::{self, breakpoints, needs, own_process};
use pmux_abi::attr::{Attr, AttrFlags, EventType, breakpoint};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::{Disagreements, SetError, SetRequest};
use pmux_engine::hw_breakpoint::{Holder, Kind, Registers, Taken};
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, EventId, GroupSpec, ModifyError, OpenError, Opened, SetId, Target, TaskId};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_sim::oracle::breakpoint::Kind as Sort;

const STEPS: usize = 1500;
/// How often another process may disturb a sequence.
const ATTEMPTS: usize = 3;

fn attr(kind: Kind, which: usize) -> Attr {
    let (bp_type, config1, len_bytes) = match kind {
        Kind::Data => (breakpoint::W, address(Sort::Data, which), 8),
        Kind::Execute => {
            let len_bytes = if cfg!(target_arch = "x86_64") { 8 } else { 4 };
            (breakpoint::X, address(Sort::Execute, which), len_bytes)
        }
    };
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    Attr { kind: EventType::BREAKPOINT, bp_type, config1, config2: len_bytes, flags, ..Attr::default() }
}

fn spec(kind: Kind, which: usize) -> GroupSpec {
    GroupSpec::single(KERNEL, attr(kind, which))
}

enum Held {
    One(Opened),
    Set(SetId),
}

fn close(engine: &LinuxEngine, held: &Held) {
    match held {
        Held::One(opened) => engine.close(opened.group),
        Held::Set(set) => engine.close_set(*set),
    }
}

type Machine = (LinuxEngine, Registers, Vec<CpuId>);

/// Root, and debug registers of which no other process holds any.
fn engine(what: &str) -> Option<Machine> {
    common::cpu_session()?;
    let online = Cpus::system().online().unwrap();
    let engine = LinuxHost::engine(online.iter());
    let registers = engine.ledger().map(|ledger| ledger.registers());
    let registers = registers.filter(|registers| registers.for_kind(Kind::Data) > 0);
    needs("breakpoints", &format!("debug registers: {what}"), registers.is_some());
    Some((engine, registers?, online.iter().take(4).map(CpuId).collect()))
}

/// The same for a test that has the registers of the machine for itself.
#[track_caller]
fn alone(what: &str) -> Option<(Alone, Machine)> {
    let alone = own_process().then(Alone::wait)?;
    Some((alone, engine(what)?))
}

#[derive(Default, Debug)]
struct Story {
    granted: u32,
    refused: u32,
    changed: u32,
    disagreements: Disagreements,
}

fn follow(cpus: &[CpuId], seed: u64) -> Story {
    let engine = LinuxHost::engine(Cpus::system().online().unwrap().iter());
    let mut random = fastrand::Rng::with_seed(seed);
    let mut threads: Vec<Idle> = (0..3).map(|_| Idle::start()).collect();
    // A thread id may come back: then the thread that had it before is still alive here.
    let mut gone = Vec::new();
    let mut held: Vec<Held> = Vec::new();
    let mut story = Story::default();
    for step in 0..STEPS {
        let kind = if random.u8(0..3) == 0 { Kind::Execute } else { Kind::Data };
        let thread = &threads[random.usize(0..threads.len())];
        let (task, cpu) = (LinuxHost::task(thread.tid), cpus[random.usize(0..cpus.len())]);
        let opened = match random.u32(0..100) {
            0 => {
                let index = random.usize(0..threads.len());
                gone.push(std::mem::replace(&mut threads[index], Idle::start()));
                continue;
            }
            1..=34 if !held.is_empty() => {
                close(&engine, &held.swap_remove(random.usize(0..held.len())));
                continue;
            }
            35..=54 if !held.is_empty() => {
                let Held::One(opened) = &held[random.usize(0..held.len())] else { continue };
                match engine.modify(opened.events[0], &attr(kind, step)) {
                    Ok(()) => story.changed += 1,
                    Err(ModifyError::DebugRegisters { taken: Taken::Known, .. }) => story.refused += 1,
                    Err(error) => panic!("step {step}: {error}"),
                }
                continue;
            }
            55..=60 => {
                let mask: CpuMask = cpus.iter().copied().collect();
                let scope = if random.bool() { SetScope::Everything } else { SetScope::Task(task) };
                let request = SetRequest { groups: vec![spec(kind, step)], scope, mask, absent: Absent::Await };
                engine.open_set(request).map(Held::Set).map_err(|SetError { error, .. }| error)
            }
            61..=80 => engine.open(&spec(kind, step), Target::task(task)).map(Held::One),
            81..=94 => {
                let target = Target { context: ContextKey::Task(task), filter: Filter::OnCpu(cpu) };
                engine.open(&spec(kind, step), target).map(Held::One)
            }
            _ => engine.open(&spec(kind, step), Target::cpu(cpu)).map(Held::One),
        };
        match opened {
            Ok(it) => {
                story.granted += 1;
                held.push(it);
            }
            Err(OpenError::DebugRegisters { .. }) => story.refused += 1,
            Err(error) => panic!("step {step}: {error}"),
        }
    }
    held.iter().for_each(|held| close(&engine, held));
    story.disagreements = engine.ledger_disagreements();
    assert_eq!(engine.census(), Default::default());
    assert!(engine.ledger().unwrap().is_empty());
    story
}

#[test]
fn ledger_and_kernel_agree() {
    let Some((_alone, (_, registers, cpus))) = alone("none of them taken by another process") else { return };
    println!("{registers:?} on {} CPUs", cpus.len());
    for seed in 1..=4 {
        let mut disturbed = Vec::new();
        let story = loop {
            let story = follow(&cpus, seed);
            if story.disagreements == Disagreements::default() {
                break story;
            }
            disturbed.push(story);
            assert!(disturbed.len() < ATTEMPTS, "seed {seed}: {disturbed:#?}");
        };
        println!("seed {seed}: {story:?}, disturbed {} times", disturbed.len());
        assert!(story.granted > 300 && story.refused > 50 && story.changed > 50, "{story:?}");
    }
}

fn fill(engine: &LinuxEngine, target: Target) -> Vec<Opened> {
    (0..64).map_while(|which| engine.open(&spec(Kind::Data, which), target).ok()).collect()
}

fn names(engine: &LinuxEngine, error: OpenError) -> (Taken, Vec<EventId>) {
    let OpenError::DebugRegisters { full, taken, .. } = error else { panic!("{error}") };
    let event = |holder| if let Holder::Event(event) = holder { Some(event) } else { None };
    (taken, engine.holders(&full).into_iter().filter_map(|held| event(held.holder)).collect())
}

#[test]
fn holders_of_registers_are_named_as_far_as_they_are_known() {
    let Some((_alone, (ours, ..))) = alone("to be taken") else { return };
    let thread = Idle::start();
    let task = LinuxHost::task(thread.tid);
    let target = Target::task(task);
    let mut mine = fill(&ours, target);
    let refused = ours.open(&spec(Kind::Data, 0), target).unwrap_err();
    let events: Vec<_> = mine.iter().map(|opened| opened.events[0]).collect();
    assert_eq!((refused.errno(), names(&ours, refused)), (28, (Taken::Known, events)));
    assert_eq!(ours.ledger_disagreements(), Disagreements::default());
    // Two go, and code outside the engine takes one of them: the ledger knows of one fewer than there are.
    mine.drain(..2).for_each(|opened| ours.close(opened.group));
    let theirs =
        breakpoints::kernel::open(&LinuxHost::new(), ContextKey::Task(task), Filter::Everything, &attr(Kind::Data, 0));
    mine.push(ours.open(&spec(Kind::Data, 0), target).unwrap());
    let refused = ours.open(&spec(Kind::Data, 0), target).unwrap_err();
    println!("{refused}");
    assert_eq!((refused.errno(), names(&ours, refused).0), (28, Taken::Outside));
    assert!(refused.to_string().contains("another program"), "{refused}");
    assert_eq!(ours.ledger_disagreements(), Disagreements { refused: 1, ..Disagreements::default() });
    drop(theirs.unwrap());
    mine.push(ours.open(&spec(Kind::Data, 0), target).unwrap());
    mine.iter().for_each(|opened| ours.close(opened.group));
    assert_eq!(ours.census(), Default::default());
    assert!(ours.open(&spec(Kind::Data, 0), Target::task(TaskId(u64::from(u32::MAX)))).is_err());
    assert!(ours.ledger().unwrap().is_empty(), "what the kernel refuses holds nothing");
}

#[test]
fn sessions_of_one_program_know_of_each_other() {
    let Some((_alone, (ours, ..))) = alone("to be taken") else { return };
    let Some((theirs, ..)) = engine("to be taken") else { return };
    let thread = Idle::start();
    let target = Target::task(LinuxHost::task(thread.tid));
    let (mine, other) =
        (ours.open(&spec(Kind::Data, 0), target).unwrap(), theirs.open(&spec(Kind::Data, 1), target).unwrap());
    let mut more = fill(&ours, target);
    let refused = ours.open(&spec(Kind::Data, 0), target).unwrap_err();
    let OpenError::DebugRegisters { full, taken: Taken::Known, .. } = refused else { panic!("{refused}") };
    let holders: Vec<_> = ours.holders(&full).into_iter().map(|held| held.holder).collect();
    assert_eq!(holders[0], Holder::Event(mine.events[0]));
    assert!(matches!(holders[1], Holder::Elsewhere(_, event) if event == other.events[0]), "{holders:?}");
    let of_theirs: Vec<_> = theirs.holders(&full).into_iter().map(|held| held.holder).collect();
    assert_eq!(of_theirs[1], Holder::Event(other.events[0]));
    assert!(matches!(of_theirs[0], Holder::Elsewhere(..)), "{of_theirs:?}");
    assert_eq!((ours.ledger_disagreements(), theirs.ledger_disagreements()), Default::default());
    // What one gives back, the other may have.
    theirs.close(other.group);
    more.push(ours.open(&spec(Kind::Data, 0), target).unwrap());
    more.push(mine);
    more.iter().for_each(|opened| ours.close(opened.group));
    assert!(ours.ledger().unwrap().is_empty() && theirs.ledger().unwrap().is_empty());
}

#[test]
fn a_refusal_names_the_other_session() {
    let Some((_alone, _)) = alone("to be taken") else { return };
    let [ours, theirs] = [(), ()].map(|()| pmux::Session::with_sharing(pmux::Sharing::Off).unwrap());
    let thread = Idle::start();
    let open = |session: &pmux::Session, which| {
        let event = pmux::Event::breakpoint(address(Sort::Data, which), 8, pmux::event::Access::WRITE);
        session.open_exactly(&[event], pmux::exact::ExactTarget::Task(thread.tid), pmux::exact::GroupMode::default())
    };
    let _one = open(&theirs, 0).unwrap();
    let mut mine = Vec::new();
    let refused = loop {
        match open(&ours, 1) {
            Ok(group) => mine.push(group),
            Err(error) => break error.to_string(),
        }
    };
    let said = format!("other sessions of this program 1 (data of thread {})", thread.tid);
    assert!(refused.contains(&format!("this session holds {}", mine.len())) && refused.contains(&said), "{refused}");
}
