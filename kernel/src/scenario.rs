//! Scenario files: `kernel/run FILE` (crates/sim/examples/kernel) sends what is to be done as lines, and compares what comes back with
//! what the simulator says.
//!
//! What it is: [`lines`] reads scenarios from the serial port, each to its line `end`, and then does them in one go, so that what
//! comes in takes no time of them. Tasks are programs that take orders ([`next_order`]); events are opened and read through the engine as any
//! part of a kernel would. Each line has one answer, which begins with `=`.
//!
//! **Invariant:** after `end` no program and no event of the scenario is left.

use crate::arch::lock::IrqLock;
use crate::arch::{self, CPUS, console};
use crate::report::{bring_back, soon};
use crate::sched::{self, Task};
use crate::{abi, host, println, program};
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use pmux_engine::engine::{SetReading, SetRequest, SwitchError};
use pmux_engine::event_set::{
    Happening, Lasting, Member, Reach, Repeat, Rounds, SwitchRequest, Term, TermValue, Trigger, TriggerSpec,
    TriggerTarget,
};
use pmux_engine::inherit::Attribution;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{
    Count, CpuId, EventId, EventSetId, FamilyId, GroupSpec, Nanos, Opened, PmuId, ReadError, SetId, Sharing, Target,
};

/// What was not done, and the answer that says so: `errno N` where the engine refused, else a sentence.
type Refused = String;

fn errno(number: i32) -> Refused {
    format!("errno {number}")
}

/// What a program is told, and what it answers.
#[derive(Default)]
struct Mailbox {
    order: Option<[u64; 4]>,
    waits: bool,
    answer: u64,
}

static MAILBOXES: IrqLock<BTreeMap<u64, Mailbox>> = IrqLock::new(BTreeMap::new());

/// The program that calls has done what it was told, with this answer. Waits for what it is to do next.
pub fn next_order(answer: u64) -> [u64; 4] {
    let pid = sched::current().pid;
    *MAILBOXES.lock().entry(pid).or_default() = Mailbox { order: None, waits: true, answer };
    loop {
        sched::park();
        let order = MAILBOXES.lock().get_mut(&pid).and_then(|mailbox| mailbox.order.take());
        if let Some(order) = order {
            sched::wake(&sched::current());
            return order;
        }
        sched::schedule();
    }
}

/// Has programs do something, all at once, and waits until they have; the answer of the last one.
fn tell(tasks: &[Arc<Task>], order: [u64; 4]) -> Result<u64, Refused> {
    for task in tasks {
        if let Some(mailbox) = MAILBOXES.lock().get_mut(&task.pid) {
            (mailbox.order, mailbox.waits) = (Some(order), false);
        }
        sched::wake(task);
    }
    tasks.iter().try_fold(0, |_, task| done(task))
}

fn done(task: &Arc<Task>) -> Result<u64, Refused> {
    let answer = || MAILBOXES.lock().get(&task.pid).filter(|mailbox| mailbox.waits).map(|mailbox| mailbox.answer);
    soon(|| answer().is_some() || task.status().is_some());
    answer().ok_or_else(|| "a program does not do what it is told".to_string())
}

/// What was opened, and is called by one number.
enum Held {
    Group(Opened, Option<FamilyId>),
    Set(SetId),
}

/// A trigger on the rate of an event.
struct RateTrigger {
    held: u64,
    index: u64,
    /// More than so many in so much time.
    amount: u64,
    per: Nanos,
    trigger: Trigger,
    /// When it was looked at last, and what had been counted then.
    last: (Nanos, Count),
    switches: (u64, SwitchRequest),
}

#[derive(Default)]
struct Scenario {
    tasks: BTreeMap<u64, Arc<Task>>,
    /// The numbers of all tasks, also of those that have ended.
    pids: BTreeMap<u64, u64>,
    held: BTreeMap<u64, Held>,
    event_sets: BTreeMap<u64, EventSetId>,
    triggers: BTreeMap<u64, RateTrigger>,
    /// What sets have counted, read once for each expectation, so that its parts are of one moment.
    read: BTreeMap<u64, SetReading>,
}

/// Scenarios until the line `quit`; the first line says whether the engine shares. A task of the kernel.
pub fn lines() {
    sched::current().set_affinity(1);
    sched::schedule();
    host::init(if console::line().as_deref() == Some("sharing on") { Sharing::On } else { Sharing::Off });
    println!("= ready");
    loop {
        let mut lines = Vec::new();
        loop {
            match console::line() {
                None => return,
                Some(line) if line == "quit" => return,
                Some(line) if line == "end" => break,
                Some(line) => lines.push(line),
            }
        }
        let before = host::with(|engine| engine.census());
        let mut scenario = Scenario::default();
        for line in &lines {
            match scenario.step(line) {
                Ok(answer) => println!("= {answer}"),
                Err(why) => println!("= {why}"),
            }
        }
        scenario.end();
        let left = host::with(|engine| engine.census()) != before || sched::tasks() != 1 + CPUS as u64;
        println!("= {}", if left { "something is left open" } else { "ok" });
    }
}

/// The words of a line.
struct Words<'l>(core::str::SplitWhitespace<'l>);

impl<'l> Words<'l> {
    fn word(&mut self) -> Result<&'l str, Refused> {
        self.0.next().ok_or_else(|| "a word is missing".to_string())
    }

    fn number(&mut self) -> Result<u64, Refused> {
        self.word()?.parse().map_err(|_| "a number is none".to_string())
    }

    fn numbers(&mut self) -> Result<Vec<u64>, Refused> {
        let mut numbers = Vec::new();
        for word in self.0.by_ref() {
            numbers.push(word.parse().map_err(|_| "a number is none".to_string())?);
        }
        Ok(numbers)
    }

    /// `on|off NS`, 0 where no time is said.
    fn request(&mut self) -> Result<SwitchRequest, Refused> {
        Ok(match (self.word()?, Nanos(self.number()?)) {
            ("on", Nanos(0)) => SwitchRequest::On,
            ("on", span) => SwitchRequest::OnFor(span),
            (_, Nanos(0)) => SwitchRequest::Off,
            (_, span) => SwitchRequest::OffFor(span),
        })
    }

    /// An address, which programs have a page for.
    fn address(number: u64) -> Result<u64, Refused> {
        if number >= abi::WATCH_BYTES {
            Err(format!("no program has address {number:#x}"))
        } else {
            Ok(abi::WATCH + number)
        }
    }

    /// Type, config, address, length, bp_type and flags, between commas.
    fn event(&mut self) -> Result<(PmuId, Attr), Refused> {
        let numbers: Vec<u64> = self.word()?.split(',').filter_map(|word| word.parse().ok()).collect();
        let [kind, config, address, config2, bp_type, flags] = numbers[..] else {
            return Err("that is no event".to_string());
        };
        let (kind, flags) = (EventType(kind as u32), AttrFlags::from_bits_retain(flags));
        let (pmu, config1) = match kind {
            EventType::BREAKPOINT => (host::BREAKPOINTS, Self::address(address)?),
            EventType::SOFTWARE => (host::SOFTWARE, 0),
            _ => (host::PMU, 0),
        };
        let attr = Attr { kind, config, config1, config2, bp_type: bp_type as u32, flags, ..Attr::default() };
        Ok((pmu, attr))
    }

    fn events(&mut self) -> Result<Vec<(PmuId, Attr)>, Refused> {
        let mut events = Vec::new();
        while self.0.clone().next().is_some() {
            events.push(self.event()?);
        }
        Ok(events)
    }
}

impl Scenario {
    fn step(&mut self, line: &str) -> Result<String, Refused> {
        let mut words = Words(line.split_whitespace());
        match words.word()? {
            verb @ ("enable" | "disable" | "reset" | "close") => self.control(verb, &mut words)?,
            "expect" => self.read.clear(),
            "task" => self.begin(words.number()?, words.number()?)?,
            "go" => self.go(words.number()?, words.number()?)?,
            "touch" => self.order(words.number()?, [abi::TOUCH, words.number()?, 0, 0]).map(drop)?,
            "access" => {
                let task = words.number()?;
                let [address, writes, times] = [Words::address(words.number()?)?, words.number()?, words.number()?];
                self.order(task, [abi::ACCESS, address, writes, times])?;
            }
            "run" => {
                let (ns, pages) = (words.number()?, words.number()?);
                let tasks = words.numbers()?.into_iter().map(|task| self.task(task)).collect::<Result<Vec<_>, _>>()?;
                tell(&tasks, [abi::RUN, ns, pages, 0])?;
            }
            "fork" => self.fork(words.number()?, words.number()?)?,
            "exec" => self.order(words.number()?, [abi::EXECUTE, words.number()?, 0, 0]).map(drop)?,
            "exit" => self.exit(words.number()?)?,
            "open" => self.open(&mut words)?,
            "modify" => {
                let event = self.event(words.number()?, words.number()?)?;
                let (_, attr) = words.event()?;
                host::with(|engine| engine.modify(event, &attr)).map_err(|error| errno(error.errno()))?;
            }
            "gather" => self.gather(&mut words)?,
            "switch" => {
                let set = words.number()?;
                self.switch(set, words.request()?)?;
            }
            "trigger" => self.await_trigger(&mut words)?,
            "look" => self.look()?,
            "fired" => {
                let trigger = self.triggers.get(&words.number()?).ok_or("there is no such trigger")?;
                return Ok(trigger.trigger.fired().to_string());
            }
            "offline" => sched::offline(words.number()? as usize),
            "online" => {
                let cpu = words.number()? as usize;
                if !bring_back(cpu) {
                    return Err("the CPU does not come".to_string());
                }
            }
            "wait" => {
                let until = arch::now_ns() + words.number()?;
                while arch::now_ns() < until {
                    sched::give_way();
                }
            }
            "count" => {
                let count = self.count(&mut words)?;
                return Ok(format!("{} {} {}", count.value, count.enabled.0, count.running.0));
            }
            "states" => return self.states(&mut words),
            "gap" => return self.gap(&mut words),
            other => return Err(format!("there is no order {other}")),
        }
        Ok("ok".to_string())
    }

    fn task(&self, number: u64) -> Result<Arc<Task>, Refused> {
        self.tasks.get(&number).cloned().ok_or_else(|| errno(3))
    }

    fn order(&self, task: u64, order: [u64; 4]) -> Result<u64, Refused> {
        tell(&[self.task(task)?], order)
    }

    fn begin(&mut self, number: u64, cpu: u64) -> Result<(), Refused> {
        let program = program::load("obeys").ok_or("there is no program")?;
        let task = sched::spawn(program, 0, 1 << cpu);
        self.pids.insert(number, task.pid);
        self.tasks.insert(number, Arc::clone(&task));
        done(&task).map(drop)
    }

    fn go(&self, task: u64, cpu: u64) -> Result<(), Refused> {
        let task = self.task(task)?;
        task.set_affinity(1 << cpu);
        // It goes there when it runs next.
        tell(&[task], [abi::TOUCH, 0, 0, 0]).map(drop)
    }

    fn fork(&mut self, parent: u64, child: u64) -> Result<(), Refused> {
        let pid = self.order(parent, [abi::FORKS, 0, 0, 0])?;
        let task = sched::by_pid(pid).ok_or("there is no child")?;
        self.pids.insert(child, pid);
        self.tasks.insert(child, Arc::clone(&task));
        done(&task).map(drop)
    }

    fn exit(&mut self, number: u64) -> Result<(), Refused> {
        let task = self.tasks.remove(&number).ok_or("there is no such task")?;
        if let Some(mailbox) = MAILBOXES.lock().get_mut(&task.pid) {
            mailbox.order = Some([abi::ENDS, 0, 0, 0]);
        }
        sched::wake(&task);
        soon(|| task.status().is_some());
        MAILBOXES.lock().remove(&task.pid);
        Ok(())
    }

    /// `open HELD task|both|cpu|set TASK CPU LEADER_OFF EVENTS`: `CPU` is a mask for a set.
    fn open(&mut self, words: &mut Words<'_>) -> Result<(), Refused> {
        let (number, place) = (words.number()?, words.word()?);
        let (task, cpu, off) = (words.number()?, words.number()?, words.number()? != 0);
        let events = words.events()?;
        if place == "set" {
            return self.open_set(number, cpu, off, events);
        }
        let context = match place {
            "cpu" => ContextKey::Cpu(CpuId(cpu as u32)),
            _ => ContextKey::Task(host::task(self.task(task)?.pid)),
        };
        let filter = if place == "both" { Filter::OnCpu(CpuId(cpu as u32)) } else { Filter::Everything };
        let inherits = place != "cpu" && events[0].1.flags.contains(AttrFlags::INHERIT);
        let held = host::with(|engine| {
            let opened = engine.open(&GroupSpec { events }, Target { context, filter })?;
            // Of one that shares, it is not known who counted what.
            let apart = inherits && engine.sharing() == Sharing::Off;
            let roots = || opened.events.iter().map(|&event| alloc::vec![event]).collect();
            let family = match context {
                ContextKey::Task(root) if apart => engine.create_tree(root, roots(), Attribution::EachTask),
                _ => None,
            };
            Ok((opened, family))
        });
        let (opened, family) = held.map_err(|error: pmux_engine::OpenError| errno(error.errno()))?;
        let enabled = host::with(|engine| match off {
            false => engine.enable_group(opened.group),
            true => opened.events.iter().skip(1).try_for_each(|&event| engine.enable(event)),
        });
        self.held.insert(number, Held::Group(opened, family));
        enabled.map_err(|error| errno(error.errno()))
    }

    fn open_set(&mut self, number: u64, cpus: u64, off: bool, events: Vec<(PmuId, Attr)>) -> Result<(), Refused> {
        let mask = (0..CPUS as u32).filter(|cpu| cpus >> cpu & 1 == 1).map(CpuId).collect();
        let groups = alloc::vec![GroupSpec { events }];
        let request = SetRequest { groups, scope: SetScope::Everything, mask, absent: Absent::Await };
        let set = host::with(|engine| engine.open_set(request)).map_err(|error| errno(error.error.errno()))?;
        self.held.insert(number, Held::Set(set));
        if off { Ok(()) } else { host::with(|engine| engine.enable_set(set)).map_err(|error| errno(error.errno())) }
    }

    fn held(&self, number: u64) -> Result<&Held, Refused> {
        self.held.get(&number).ok_or_else(|| "nothing is open by this number".to_string())
    }

    fn event(&self, held: u64, index: u64) -> Result<EventId, Refused> {
        match self.held(held)? {
            Held::Group(opened, _) => Ok(opened.events[index as usize]),
            Held::Set(_) => Err("that is a set".to_string()),
        }
    }

    /// `VERB HELD INDEX`, or `VERB HELD` for the whole group.
    fn control(&mut self, verb: &str, words: &mut Words<'_>) -> Result<(), Refused> {
        let number = words.number()?;
        let index = words.number().ok();
        if verb == "close" {
            match self.held.remove(&number) {
                Some(Held::Group(opened, family)) => close(&opened, family),
                Some(Held::Set(set)) => host::with(|engine| engine.close_set(set)),
                None => return Err(errno(9)),
            }
            return Ok(());
        }
        let done = match (self.held(number)?, index) {
            (Held::Set(set), _) => host::with(|engine| match verb {
                "enable" => engine.enable_set(*set),
                "disable" => engine.disable_set(*set),
                _ => engine.reset_set(*set),
            }),
            (Held::Group(opened, _), None) => host::with(|engine| match verb {
                "enable" => engine.enable_group(opened.group),
                "disable" => engine.disable_group(opened.group),
                _ => opened.events.iter().try_for_each(|&event| engine.reset(event)),
            }),
            (Held::Group(opened, _), Some(index)) => {
                let event = opened.events[index as usize];
                host::with(|engine| match verb {
                    "enable" => engine.enable(event),
                    "disable" => engine.disable(event),
                    _ => engine.reset(event),
                })
            }
        };
        done.map_err(|error| errno(error.errno()))
    }

    /// `gather SET HELD...`: they go on and off together.
    fn gather(&mut self, words: &mut Words<'_>) -> Result<(), Refused> {
        let number = words.number()?;
        let mut members = Vec::new();
        for held in words.numbers()? {
            members.push(match self.held(held)? {
                Held::Group(opened, _) => Member::Group(opened.group),
                Held::Set(set) => Member::Set(*set),
            });
        }
        self.event_sets.insert(number, host::with(|engine| engine.gather(members)));
        Ok(())
    }

    fn switch(&self, set: u64, request: SwitchRequest) -> Result<(), Refused> {
        let set = *self.event_sets.get(&set).ok_or("there is no such event set")?;
        host::with(|engine| engine.switch_event_set(set, request)).map(drop).map_err(switch_error)
    }

    /// `trigger NUMBER HELD INDEX AMOUNT PER HOLDS EVERY once|always SET on|off NS`.
    fn await_trigger(&mut self, words: &mut Words<'_>) -> Result<(), Refused> {
        let (number, held, index) = (words.number()?, words.number()?, words.number()?);
        let (amount, per, holds) = (words.number()?, Nanos(words.number()?), Nanos(words.number()?));
        let every = NonZeroU32::new(words.number()? as u32).ok_or("each how many?")?;
        let rounds = if words.word()? == "once" { Rounds::Once } else { Rounds::Always };
        let switches = (words.number()?, words.request()?);
        let terms = alloc::vec![Term { lasting: Lasting::Level, held: holds, reach: Reach::Common }];
        let spec = TriggerSpec { terms, every, repeat: Repeat::OnEdge, rounds, cool_down: Nanos::ZERO };
        let now = Nanos(arch::now_ns());
        let last = (now, self.count_of(held, index)?);
        let trigger = Trigger::new(spec, now);
        self.triggers.insert(number, RateTrigger { held, index, amount, per, trigger, last, switches });
        Ok(())
    }

    fn count_of(&self, held: u64, index: u64) -> Result<Count, Refused> {
        let event = self.event(held, index)?;
        host::with(|engine| engine.read(event)).map_err(|error| error.to_string())
    }

    /// Looks at all triggers, and then at what is due. An event that is closed, or has not run since, has no rate.
    fn look(&mut self) -> Result<(), Refused> {
        for number in self.triggers.keys().copied().collect::<Vec<_>>() {
            let Some(&RateTrigger { held, index, amount, per, last: (then, before), switches, .. }) =
                self.triggers.get(&number)
            else {
                continue;
            };
            let (now, count) = (Nanos(arch::now_ns()), self.count_of(held, index).ok());
            let since = count.map(|count| count.less(&before));
            let value = TermValue::of_rate(since, now.since(then), amount, per);
            let mut said = Vec::new();
            if let Some(trigger) = self.triggers.get_mut(&number) {
                trigger.trigger.observe(0, TriggerTarget::All, value, now, &mut said);
                trigger.last = count.map_or(trigger.last, |count| (now, count));
            }
            if said.iter().any(|happening| matches!(happening, Happening::Fired { .. })) {
                self.switch(switches.0, switches.1)?;
            }
        }
        for &set in self.event_sets.values() {
            host::with(|engine| engine.settle_event_set(set)).map_err(switch_error)?;
        }
        Ok(())
    }

    /// `count HELD INDEX all|cpu|own|retired|child [WHICH]`.
    fn count(&mut self, words: &mut Words<'_>) -> Result<Count, Refused> {
        let (held, index, part) = (words.number()?, words.number()?, words.word()?);
        let which = words.number().unwrap_or(0);
        let failed = |error: ReadError| format!("it can't be read: {error}");
        match self.held(held)? {
            Held::Set(_) => {
                let reading = self.reading(held)?;
                let mut sum = Count::default();
                for cpu in reading.cpus.iter().filter(|cpu| part == "all" || u64::from(cpu.cpu.0) == which) {
                    sum += *cpu.counts[index as usize].as_ref().map_err(|error| failed(*error))?;
                }
                Ok(sum)
            }
            Held::Group(opened, family) => {
                let event = opened.events[index as usize];
                if part == "all" || part == "cpu" {
                    return host::with(|engine| engine.read(event)).map_err(failed);
                }
                let family = family.ok_or("who counted what is not told apart")?;
                let index = index as usize;
                if part == "child" {
                    return self.count_of_child(family, index, which);
                }
                let tallies = host::with(|engine| engine.read_family(family)).map_err(failed)?;
                Ok(if part == "own" { tallies[index].own } else { tallies[index].retired })
            }
        }
    }

    /// What a set has counted.
    fn reading(&mut self, held: u64) -> Result<&SetReading, Refused> {
        let Held::Set(set) = *self.held(held)? else { return Err("that is no set".to_string()) };
        Ok(match self.read.entry(held) {
            Entry::Occupied(reading) => reading.into_mut(),
            Entry::Vacant(place) => {
                place.insert(host::with(|engine| engine.read_set(set)).map_err(|error| error.to_string())?)
            }
        })
    }

    /// What a child has counted, alive or not.
    fn count_of_child(&self, family: FamilyId, index: usize, child: u64) -> Result<Count, Refused> {
        let child = host::task(*self.pids.get(&child).ok_or("there is no such task")?);
        let found = host::with(|engine| {
            engine.with_family(family, |family| {
                let member = family.task(family.find(child)?)?;
                let kept = member.exited.and_then(|_| member.counts().get(index).copied());
                Some((member.group(), kept))
            })
        });
        let count = match found.flatten() {
            Some((Some(group), _)) => host::with(|engine| engine.read_group(group)).and_then(|counts| counts[index]),
            Some((None, Some(count))) => Ok(count),
            _ => Err(ReadError::Closed),
        };
        count.map_err(|error| format!("it can't be read: {error}"))
    }

    /// `states HELD INDEX all|cpu [CPU]`.
    fn states(&self, words: &mut Words<'_>) -> Result<String, Refused> {
        let (held, index, part) = (words.number()?, words.number()?, words.word()?);
        let which = words.number().unwrap_or(0);
        let events: Vec<EventId> = match self.held(held)? {
            Held::Group(opened, _) => alloc::vec![opened.events[index as usize]],
            Held::Set(set) => {
                let open = host::with(|engine| engine.set_events(*set)).map_err(|error| error.to_string())?;
                let here = open.into_iter().filter(|(cpu, _)| part == "all" || u64::from(cpu.0) == which);
                here.map(|(_, events)| events[index as usize]).collect()
            }
        };
        let word = |event| match host::with(|engine| engine.state(event)) {
            Ok(state) => Ok(format!("{state:?}")),
            Err(error) => Err(error.to_string()),
        };
        Ok(events.into_iter().map(word).collect::<Result<Vec<_>, Refused>>()?.join(" "))
    }

    /// `gap HELD all|cpu [CPU]`: ns, and how many.
    fn gap(&mut self, words: &mut Words<'_>) -> Result<String, Refused> {
        let (held, part, which) = (words.number()?, words.word()?, words.number().unwrap_or(0));
        let cpus = self.reading(held)?.coverage.iter().filter(|cpu| part == "all" || u64::from(cpu.cpu.0) == which);
        let (ns, times) = cpus.fold((0, 0), |(ns, times), cpu| (ns + cpu.missed.0, times + cpu.gaps));
        Ok(format!("{ns} {times}"))
    }

    /// Closes what is open, and ends all programs.
    fn end(mut self) {
        self.event_sets.values().for_each(|&set| host::with(|engine| engine.dissolve(set)));
        for (_, held) in core::mem::take(&mut self.held) {
            match held {
                Held::Group(opened, family) => close(&opened, family),
                Held::Set(set) => host::with(|engine| engine.close_set(set)),
            }
        }
        for number in self.tasks.keys().copied().collect::<Vec<_>>() {
            let _ended = self.exit(number);
        }
        for cpu in (1..CPUS).filter(|&cpu| !sched::is_online(cpu)) {
            let _came = bring_back(cpu);
        }
        while sched::try_wait().is_some() {}
        soon(|| sched::tasks() == 1 + CPUS as u64);
    }
}

fn switch_error(error: SwitchError) -> Refused {
    match error {
        SwitchError::Member { error, .. } => errno(error.errno()),
        SwitchError::Closed => error.to_string(),
    }
}

fn close(opened: &Opened, family: Option<FamilyId>) {
    host::with(|engine| {
        if let Some(family) = family {
            engine.destroy_tree(family);
        }
        engine.close(opened.group);
    });
}
