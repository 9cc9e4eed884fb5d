//! Opening events.
//!
//! What it is: the events of an `open` statement as attributes of the machine's PMUs, opened on their targets.
//!
//! **Invariant:** a statement that fails leaves nothing open, but single events that were opened before the one that failed
//! keep their names.

use super::super::ast::{
    Breakpoint, CpuList, Event, Flag, Name, Open, OpenForm, RingMode, RingOwnership, Samples, Target, Watch,
};
use super::super::names::{EventClass, canonical_event, event_class};
use super::execution::{Execution, Refused};
use super::naming::Bound;
use crate::machine::{Kind, Start, World};
use pmux_abi::attr::{Attr, AttrFlags, SampleFormat, Sampling, breakpoint};
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::pmu::BankError;
use pmux_engine::share::{Sharing, SharingScope};
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, PmuId, Target as Aim, TaskId};
use std::rc::Rc;

type EventRequest = (PmuId, Attr);

impl Execution {
    pub(super) fn open(&mut self, open: &Open) -> Result<(), Refused> {
        let asked = open.events.iter().map(|new| self.resolve(&new.event)).collect::<Result<Vec<_>, _>>()?;
        if is_shared(open) && self.world.sharing() == Sharing::Off {
            return Err(Refused::Unusable("samples are shared on machines that share only".to_owned()));
        }
        let asked = with_samples(with_flags(asked, open), open);
        match (&open.target, open.form) {
            (Target::SystemWide(cpus), form) => self.open_set(open, &asked, cpus.as_ref(), form),
            (_, OpenForm::Group) => self.open_group(open, &asked),
            (_, OpenForm::Singles) => open.events.iter().zip(&asked).try_for_each(|(new, asked)| {
                let alone = Open { events: vec![new.clone()], ..open.clone() };
                self.open_group(&alone, std::slice::from_ref(asked))
            }),
        }
    }

    /// One group, on a task or on each of some CPUs.
    fn open_group(&mut self, open: &Open, asked: &[EventRequest]) -> Result<(), Refused> {
        let start = if open.flags.contains(&Flag::Disabled) { Start::LeaderOff } else { Start::Enabled };
        let domain = domain(open);
        let task = match &open.target {
            Target::Task(task) | Target::TaskOnCpu(task, _) => Some(self.names.task(task)?),
            Target::Cpus(_) | Target::SystemWide(_) => None,
        };
        if let Some(gone) = task.filter(|&task| !self.world.lives(task)) {
            let name = self.names.name_of_task(gone);
            return Err(Refused::errno(BankError::NoSuchTask.errno(), format!("task {name} has exited")));
        }
        let bound = match (task, &open.target) {
            (Some(task), Target::TaskOnCpu(_, cpu)) => {
                let aim = Aim { context: ContextKey::Task(task), filter: Filter::OnCpu(*cpu) };
                self.open_on_task(asked, aim, task, (domain, start))?
            }
            (Some(task), _) => self.open_on_task(asked, Aim::task(task), task, (domain, start))?,
            (None, Target::Cpus(cpus)) => {
                self.open_on_cpus(asked, &cpus.iter().collect::<Vec<_>>(), (domain, start))?
            }
            // A set: it is opened elsewhere.
            (None, _) => return Ok(()),
        };
        if let Some(samples) = open.samples {
            self.give_rings(samples, &bound)?;
        }
        self.names.enter(&Rc::new(open.clone()), bound);
        Ok(())
    }

    /// A ring for each name; the events of a name on several CPUs have one in common. Closes everything where that can't be.
    fn give_rings(&mut self, samples: Samples, bound: &[Bound]) -> Result<(), Refused> {
        for bound in bound {
            let events = bound.events();
            let Some((&first, others)) = events.split_first() else { continue };
            let led = self.world.attach_ring(first, samples.mode, samples.ring_bytes as usize);
            let led = led.and_then(|()| others.iter().try_for_each(|&other| self.world.redirect(other, first)));
            if let Err(error) = led {
                bound.events().into_iter().for_each(|event| self.world.close(event));
                return Err(Refused::errno(error.errno(), error.to_string()));
            }
        }
        Ok(())
    }

    /// The reader of the ring of an event reads it.
    pub(super) fn take_samples(&mut self, name: &Name, expected: Option<u64>) -> Result<(), Refused> {
        let number = self.names.open_number(name)?;
        let record = self.names.records.get(number);
        let Some(event) = record.and_then(|record| record.bound.events().first().copied()) else { return Ok(()) };
        let overwrites = record.and_then(|record| record.open.samples).is_some_and(|it| it.mode == RingMode::Overwrite);
        let broken = |error| Refused::Unmet(format!("the ring of {name} can't be read: {error}"));
        let found = if overwrites {
            let before = self.world.samples_seen(event);
            self.world.look_at_samples(event).map_err(broken)?.0 - before
        } else {
            self.world.take_samples(event).map_err(broken)?
        };
        match expected {
            Some(expected) if expected != found => {
                Err(Refused::Unmet(format!("expected {expected} samples in the ring of {name}, found {found}")))
            }
            _ => Ok(()),
        }
    }

    fn open_on_task(
        &mut self,
        asked: &[EventRequest],
        aim: Aim,
        task: TaskId,
        (domain, start): (SharingScope, Start),
    ) -> Result<Vec<Bound>, Refused> {
        let events = self.world.open_in(domain, asked, aim, start).map_err(Refused::of_open)?;
        Ok(events.into_iter().map(|event| Bound::Task(event, task)).collect())
    }

    fn open_on_cpus(
        &mut self,
        asked: &[EventRequest],
        cpus: &[CpuId],
        (domain, start): (SharingScope, Start),
    ) -> Result<Vec<Bound>, Refused> {
        let mut bound: Vec<Vec<_>> = vec![Vec::new(); asked.len()];
        for &cpu in cpus {
            match self.world.open_in(domain, asked, Aim::cpu(cpu), start) {
                Ok(events) => {
                    bound.iter_mut().zip(events).for_each(|(bound, event)| bound.push((cpu, event)));
                }
                Err(error) => {
                    for (_, leader) in bound.into_iter().next().unwrap_or_default() {
                        self.world.close(leader);
                    }
                    return Err(Refused::of_open(error));
                }
            }
        }
        Ok(bound.into_iter().map(Bound::Cpus).collect())
    }

    /// A set over some CPUs, those that are offline included: it waits for them.
    fn open_set(
        &mut self,
        open: &Open,
        asked: &[EventRequest],
        cpus: Option<&CpuList>,
        form: OpenForm,
    ) -> Result<(), Refused> {
        let all = (0..self.world.description().cpus).map(CpuId);
        let mask: CpuMask = cpus.map_or_else(|| all.collect(), |cpus| cpus.iter().collect());
        let groups: Vec<Vec<EventRequest>> = match form {
            OpenForm::Group => vec![asked.to_vec()],
            OpenForm::Singles => asked.iter().map(|&asked| vec![asked]).collect(),
        };
        let (set, events) = self
            .world
            .open_set(domain(open), &groups, &mask)
            .map_err(|error| Refused::errno(error.error.errno(), error.to_string()))?;
        if let Some(samples) = open.samples
            && let Err(error) = self.world.attach_set_ring(set, samples.mode, samples.ring_bytes as usize)
        {
            self.world.close_set(set);
            return Err(Refused::errno(error.errno(), error.to_string()));
        }
        if !open.flags.contains(&Flag::Disabled)
            && let Err(error) = self.world.enable_set(set)
        {
            self.world.close_set(set);
            return Err(Refused::of_control(error));
        }
        let bound = events.into_iter().map(|event| Bound::Set(set, event)).collect();
        self.names.enter(&Rc::new(open.clone()), bound);
        Ok(())
    }

    /// What the machine is asked for an event.
    fn resolve(&self, event: &Event) -> Result<EventRequest, Refused> {
        match event {
            Event::Breakpoint(breakpoint) => self.resolve_breakpoint(*breakpoint),
            Event::Named(text) => {
                let (name, modifiers) = match canonical_event(text) {
                    Some(name) => (name, text.split_once(':').map_or("", |(_, modifiers)| modifiers)),
                    None => (text.as_str(), ""),
                };
                let Some(kind) = Kind::by_name(name) else { return Err(unknown(event)) };
                let (pmu, attr) = self.world.description().kind(kind).ok_or_else(|| {
                    let why = format!("the machine has no counter for {kind}");
                    Refused::errno(BankError::NoSuchEvent.errno(), why)
                })?;
                // What simulated tasks do, they do in user mode.
                let flags = match modifiers {
                    "" => AttrFlags::empty(),
                    "u" => AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
                    _ => {
                        let why = format!("the simulator knows no modifier of events but `:u`, and not `:{modifiers}`");
                        return Err(Refused::Unusable(why));
                    }
                };
                Ok((pmu, Attr { flags, ..attr }))
            }
        }
    }

    pub(super) fn resolve_breakpoint(&self, asked: Breakpoint) -> Result<EventRequest, Refused> {
        let bp_type = match asked.watch {
            Watch::Read => breakpoint::R,
            Watch::Write => breakpoint::W,
            Watch::ReadWrite => breakpoint::RW,
            Watch::Execute => breakpoint::X,
        };
        let found = self.world.description().breakpoint(asked.address, u64::from(asked.len_bytes), bp_type);
        found.ok_or_else(|| Refused::errno(BankError::NoSuchEvent.errno(), "the machine has no debug registers"))
    }
}

fn is_shared(open: &Open) -> bool {
    open.samples.is_some_and(|samples| samples.ownership == RingOwnership::Shared)
}

/// Who shares with it.
fn domain(open: &Open) -> SharingScope {
    if is_shared(open) { SharingScope::RECORDS } else { SharingScope::default() }
}

/// An event that the simulator has not: it may be one elsewhere, or nowhere.
fn unknown(event: &Event) -> Refused {
    match event_class(event) {
        None => Refused::errno(BankError::NoSuchEvent.errno(), format!("there is no event `{event}`")),
        Some(EventClass::Tracepoint) => {
            Refused::Unusable(format!("the simulator has no tracepoints, and no `{event}`"))
        }
        Some(_) => Refused::Unusable(format!(
            "the simulator has no event `{event}`; it has the generic hardware and software events, and r0 to r9"
        )),
    }
}

/// What the readers of rings need, where there are samples.
fn with_samples(mut asked: Vec<EventRequest>, open: &Open) -> Vec<EventRequest> {
    if let Some(samples) = open.samples {
        for (_, attr) in &mut asked {
            attr.sampling = Sampling::Period(samples.period);
            attr.sample = World::IN_SAMPLES | SampleFormat::TID | SampleFormat::TIME;
        }
    }
    asked
}

/// `inherit` on all events, what is asked of a whole group on its leader.
fn with_flags(mut asked: Vec<EventRequest>, open: &Open) -> Vec<EventRequest> {
    let has = |flag: Flag, bit| if open.flags.contains(&flag) { bit } else { AttrFlags::empty() };
    let of_leader = has(Flag::Pinned, AttrFlags::PINNED)
        | has(Flag::Exclusive, AttrFlags::EXCLUSIVE)
        | has(Flag::EnableOnExec, AttrFlags::ENABLE_ON_EXEC);
    for (index, (_, attr)) in asked.iter_mut().enumerate() {
        attr.flags |= has(Flag::Inherit, AttrFlags::INHERIT);
        if index == 0 || open.form == OpenForm::Singles {
            attr.flags |= of_leader;
        }
    }
    asked
}
