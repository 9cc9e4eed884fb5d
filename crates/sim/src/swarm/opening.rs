//! `open` statements.
//!
//! **Invariant:** a statement opens things that can fail one by one only where it opens one.

use super::dice::Dice;
use super::generate::{Effect, Generator, Planned};
use super::mix::{Deed, Mishap};
use super::outlook::{Outlook, of_group};
use super::shape::Known;
use super::stock::Opened;
use crate::scenario::ast::{
    Breakpoint, CpuList, Event, Flag, Flags, Name, NewEvent, Open, OpenForm, Place, RingMode, Samples, Statement,
    Target, Watch, Whose,
};
use pmux_engine::CpuId;

/// Addresses are near each other, so that accesses meet breakpoints.
const FIRST_ADDRESS: u64 = 0x1000;
const ADDRESSES: u64 = 32;

/// An address that a breakpoint may watch.
pub(super) fn address(dice: &mut Dice) -> u64 {
    FIRST_ADDRESS + dice.below(ADDRESSES)
}

/// More samples than with this period would take the simulator too long.
const LEAST_PERIOD: u64 = 5_000;

struct Wanted {
    known: Vec<Known>,
    breakpoints: Vec<Breakpoint>,
}

impl Generator {
    pub(super) fn open(&mut self, deed: Deed) -> Option<Planned> {
        let wanted = self.wanted();
        let outlook = of_group(&self.shape, &wanted.known, wanted.breakpoints.len());
        let (target, outlook) = match deed {
            Deed::OpenOnTask => (Target::Task(self.task()?), outlook),
            Deed::OpenOnTaskAndCpu => {
                let task = self.task()?;
                let cpu = self.any_cpu();
                let gone = self.stock.offline.contains(&cpu);
                (Target::TaskOnCpu(task, cpu), if gone { outlook.and_fails("ENODEV") } else { outlook })
            }
            Deed::OpenOnCpus => (Target::Cpus(self.some_online()?), outlook),
            _ => (Target::SystemWide(self.mask()), outlook),
        };
        let flags = self.flags(&target);
        let may_not_arm =
            matches!(target, Target::SystemWide(_)) && flags.has(Flag::Pinned) && !flags.has(Flag::Disabled);
        let outlook = if may_not_arm { outlook.or_fails("ENODATA") } else { outlook };
        Some(self.opening(wanted, target, flags, outlook))
    }

    /// The statement that opens this, by names of its own.
    fn opening(&mut self, wanted: Wanted, target: Target, flags: Flags, outlook: Outlook) -> Planned {
        // Counters that are scarce take samples.
        let can_sample = wanted.breakpoints.is_empty() && wanted.known.iter().all(|known| known.is_scarce);
        let named = wanted.known.iter().map(|known| Event::Named(known.name.to_owned()));
        let mut events: Vec<Event> = named.chain(wanted.breakpoints.into_iter().map(Event::Breakpoint)).collect();
        self.dice.shuffle(&mut events);
        let singles = outlook == Outlook::Succeeds && self.can_open_singles(&events) && self.dice.one_in(3);
        let is_group = events.len() > 1 && !singles;
        let form = if is_group { OpenForm::Group } else { OpenForm::Singles };
        let new = |event| NewEvent { name: self.stock.new_name('e'), event, place: Place::NOWHERE };
        let events: Vec<NewEvent> = events.into_iter().map(new).collect();
        let names: Vec<Name> = events.iter().map(|new| new.name.clone()).collect();
        let is_breakpoint = |new: &&NewEvent| matches!(new.event, Event::Breakpoint(_));
        let breakpoints = events.iter().filter(is_breakpoint).map(|new| new.name.clone()).collect();
        let is_set = matches!(target, Target::SystemWide(_));
        let samples = if is_group || !can_sample { None } else { self.samples() };
        // A set has one ring, for samples that it shares.
        let samples = samples.filter(|samples| !is_set || (samples.whose == Whose::Shared && events.len() == 1));
        // A ring is memory, too.
        let outlook = if samples.is_some() && self.mix.mishaps.contains(&Mishap::Alloc) {
            outlook.or_fails("ENOMEM")
        } else {
            outlook
        };
        let open = Open { events, form, target: target.clone(), flags: flags.clone(), samples };
        let opened = Opened { names, breakpoints, form, target, flags, samples };
        Planned::new(Statement::Open(open), outlook, Effect::Opened(opened))
    }

    /// Now and then: samples, and where they go. Few or many, into rings that are soon full or never.
    fn samples(&mut self) -> Option<Samples> {
        if !self.mix.rings {
            return None;
        }
        let mode = *self.dice.pick(&[RingMode::Forward, RingMode::Overwrite]);
        let ring_bytes = 256 << self.dice.below(7);
        let period = self.dice.any_size(LEAST_PERIOD, 10_000_000);
        // Few periods, so that some are asked for again; and no caller that waits, because what is taken meanwhile may be either's.
        let may_share = self.shape.shares() && !self.shape.has_twin() && !self.shape.has_doorbells();
        let (period, whose) = match may_share && self.dice.one_in(2) {
            true => (*self.dice.pick(&[50_000, 200_000, 1_000_000]), Whose::Shared),
            false => (period, Whose::Own),
        };
        self.dice.one_in(3).then_some(Samples { period, ring_bytes, mode, whose })
    }

    /// Several single events are opened by one statement only where none can be refused.
    fn can_open_singles(&self, events: &[Event]) -> bool {
        let refuses = |mishap: &Mishap| matches!(mishap, Mishap::Alloc | Mishap::Program | Mishap::Start);
        let is_breakpoint = |event: &Event| matches!(event, Event::Breakpoint(_));
        !self.mix.mishaps.iter().any(refuses) && !events.iter().any(is_breakpoint)
    }

    fn wanted(&mut self) -> Wanted {
        let dice = &mut self.dice;
        let mut left = match dice.below(8) {
            0..4 => 1,
            4..7 => dice.between(2, 3),
            _ => dice.between(2, 5),
        };
        let mut wanted = Wanted { known: Vec::new(), breakpoints: Vec::new() };
        while self.mix.breakpoints && left > 0 && dice.one_in(3) {
            wanted.breakpoints.push(breakpoint(dice));
            left -= 1;
        }
        // Beside breakpoints there are no counters: that is for those statements that are to fail.
        let beside = |known: &Known| wanted.breakpoints.is_empty() || !known.is_scarce;
        for _ in 0..left {
            wanted.known.extend(dice.pick_any(&self.mix.events).copied().filter(beside));
        }
        if wanted.known.is_empty() && wanted.breakpoints.is_empty() {
            wanted.known.extend(dice.pick_any(&self.mix.events));
        }
        wanted
    }

    fn flags(&mut self, target: &Target) -> Flags {
        let on_task = matches!(target, Target::Task(_) | Target::TaskOnCpu(..));
        let all = [Flag::Inherit, Flag::Pinned, Flag::Exclusive, Flag::Disabled, Flag::EnableOnExec];
        let takes = |flag: &Flag| on_task || !matches!(flag, Flag::Inherit | Flag::EnableOnExec);
        all.into_iter().filter(takes).filter(|&flag| self.mix.sets(&mut self.dice, flag)).collect()
    }

    fn some_online(&mut self) -> Option<CpuList> {
        let count = if self.dice.one_in(3) { self.dice.between(2, 4) } else { 1 };
        CpuList::new((0..count).filter_map(|_| self.dice.pick_any(&self.stock.online).copied()))
    }

    /// The CPUs of a set, those that are offline among them; `None` for all.
    pub(super) fn mask(&mut self) -> Option<CpuList> {
        if self.dice.one_in(2) {
            return None;
        }
        let count = self.dice.any_size(1, u64::from(self.shape.description.cpus).min(32));
        CpuList::new((0..count).map(|_| self.any_cpu()))
    }

    pub(super) fn open_wrongly(&mut self) -> Option<Planned> {
        let target = Target::Task(self.task()?);
        let known = |known: Option<&Known>| known.copied().into_iter().collect::<Vec<_>>();
        let scarce = known(self.shape.events.iter().find(|known| known.is_scarce));
        let plain = Wanted { known: known(self.shape.events.first()), breakpoints: Vec::new() };
        let watch = breakpoint(&mut self.dice);
        let (wanted, target, outlook) = match self.dice.below(5) {
            0 => {
                let gone = self.dice.pick_any(self.stock.exited.make_contiguous())?.clone();
                (plain, Target::Task(gone), Outlook::fails(&["ESRCH"]))
            }
            1 => {
                let gone = *self.dice.pick_any(&self.stock.offline)?;
                (plain, Target::Cpus(CpuList::new([gone])?), Outlook::fails(&["ENODEV"]))
            }
            2 if !scarce.is_empty() => {
                let outlook = of_group(&self.shape, &scarce, 1);
                (Wanted { known: scarce, breakpoints: vec![watch] }, target, outlook)
            }
            3 if !scarce.is_empty() => {
                // More than there are counters.
                let too_many = scarce.repeat(usize::from(self.shape.counters) + 1);
                let outlook = Outlook::fails(&["EINVAL"]);
                (Wanted { known: too_many, breakpoints: Vec::new() }, target, outlook)
            }
            _ => {
                let watch = Breakpoint { len_bytes: 3, ..watch };
                (
                    Wanted { known: Vec::new(), breakpoints: vec![watch] },
                    target,
                    Outlook::fails(&["EOPNOTSUPP", "ENOSPC"]),
                )
            }
        };
        Some(self.opening(wanted, target, Flags::default(), outlook))
    }

    pub(super) fn any_cpu(&mut self) -> CpuId {
        CpuId(self.dice.below(u64::from(self.shape.description.cpus)) as u32)
    }
}

/// Any breakpoint that can be.
pub(super) fn breakpoint(dice: &mut Dice) -> Breakpoint {
    let len_bytes = *dice.pick(&[1, 2, 4, 8]);
    let watch = *dice.pick(&[Watch::Read, Watch::Write, Watch::ReadWrite, Watch::Execute]);
    let address = address(dice);
    Breakpoint { address: address - address % u64::from(len_bytes), len_bytes, watch }
}
