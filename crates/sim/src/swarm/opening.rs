//! `open` statements.
//!
//! **Invariant:** a statement opens things that can fail one by one only where it opens one.

use super::expected_result::{ExpectedResult, of_group};
use super::generate::{Effect, Generator, Planned};
use super::generator_state::Opened;
use super::rng::Rng;
use super::shape::Known;
use super::weights::{FaultKind, Op};
use crate::scenario::ast::{
    Breakpoint, CpuList, Event, Flag, Flags, Name, NewEvent, Open, OpenForm, RingMode, RingOwnership, Samples,
    SourceSpan, Statement, Target, Watch,
};
use pmux_engine::CpuId;

/// Addresses are near each other, so that accesses meet breakpoints.
const FIRST_ADDRESS: u64 = 0x1000;
const ADDRESSES: u64 = 32;

/// An address that a breakpoint may watch.
pub(super) fn address(rng: &mut Rng) -> u64 {
    FIRST_ADDRESS + rng.below(ADDRESSES)
}

/// More samples than with this period would take the simulator too long.
const LEAST_PERIOD: u64 = 5_000;

struct GroupDraft {
    known: Vec<Known>,
    breakpoints: Vec<Breakpoint>,
}

impl Generator {
    pub(super) fn open(&mut self, op: Op) -> Option<Planned> {
        let draft = self.draft();
        let expected = of_group(&self.shape, &draft.known, draft.breakpoints.len());
        let (target, expected) = match op {
            Op::OpenOnTask => (Target::Task(self.task()?), expected),
            Op::OpenOnTaskAndCpu => {
                let task = self.task()?;
                let cpu = self.any_cpu();
                let gone = self.state.offline.contains(&cpu);
                (Target::TaskOnCpu(task, cpu), if gone { expected.and_fails("ENODEV") } else { expected })
            }
            Op::OpenOnCpus => (Target::Cpus(self.some_online()?), expected),
            _ => (Target::SystemWide(self.mask()), expected),
        };
        let flags = self.flags(&target);
        let may_not_arm = matches!(target, Target::SystemWide(_))
            && flags.contains(&Flag::Pinned)
            && !flags.contains(&Flag::Disabled);
        let expected = if may_not_arm { expected.or_fails("ENODATA") } else { expected };
        Some(self.opening(draft, target, flags, expected))
    }

    /// The statement that opens this, by names of its own.
    fn opening(&mut self, draft: GroupDraft, target: Target, flags: Flags, expected: ExpectedResult) -> Planned {
        // Counters that are scarce take samples.
        let can_sample = draft.breakpoints.is_empty() && draft.known.iter().all(|known| known.is_scarce);
        let named = draft.known.iter().map(|known| Event::Named(known.name.to_owned()));
        let mut events: Vec<Event> = named.chain(draft.breakpoints.into_iter().map(Event::Breakpoint)).collect();
        self.rng.shuffle(&mut events);
        let singles = expected == ExpectedResult::Succeeds && self.can_open_singles(&events) && self.rng.one_in(3);
        let is_group = events.len() > 1 && !singles;
        let form = if is_group { OpenForm::Group } else { OpenForm::Singles };
        let new = |event| NewEvent { name: self.state.new_name('e'), event, place: SourceSpan::NOWHERE };
        let events: Vec<NewEvent> = events.into_iter().map(new).collect();
        let names: Vec<Name> = events.iter().map(|new| new.name.clone()).collect();
        let is_breakpoint = |new: &&NewEvent| matches!(new.event, Event::Breakpoint(_));
        let breakpoints = events.iter().filter(is_breakpoint).map(|new| new.name.clone()).collect();
        let is_set = matches!(target, Target::SystemWide(_));
        let samples = if is_group || !can_sample { None } else { self.samples() };
        // A set has one ring, for samples that it shares.
        let samples =
            samples.filter(|samples| !is_set || (samples.ownership == RingOwnership::Shared && events.len() == 1));
        // A ring is memory, too.
        let expected = if samples.is_some() && self.weights.fault_kinds.contains(&FaultKind::Alloc) {
            expected.or_fails("ENOMEM")
        } else {
            expected
        };
        let open = Open { events, form, target: target.clone(), flags: flags.clone(), samples };
        let opened = Opened { names, breakpoints, form, target, flags, samples };
        Planned::new(Statement::Open(open), expected, Effect::Opened(opened))
    }

    /// Now and then: samples, and where they go. Few or many, into rings that are soon full or never.
    fn samples(&mut self) -> Option<Samples> {
        if !self.weights.rings {
            return None;
        }
        let mode = *self.rng.pick(&[RingMode::Forward, RingMode::Overwrite]);
        let ring_bytes = 256 << self.rng.below(7);
        let period = self.rng.any_size(LEAST_PERIOD, 10_000_000);
        // Few periods, so that some are asked for again; and no caller that waits, because what is taken meanwhile may be either's.
        let may_share = self.shape.shares() && !self.shape.is_differential() && !self.shape.has_doorbells();
        let (period, ownership) = match may_share && self.rng.one_in(2) {
            true => (*self.rng.pick(&[50_000, 200_000, 1_000_000]), RingOwnership::Shared),
            false => (period, RingOwnership::Own),
        };
        self.rng.one_in(3).then_some(Samples { period, ring_bytes, mode, ownership })
    }

    /// Several single events are opened by one statement only where none can be refused.
    fn can_open_singles(&self, events: &[Event]) -> bool {
        let refuses =
            |fault_kind: &FaultKind| matches!(fault_kind, FaultKind::Alloc | FaultKind::Program | FaultKind::Start);
        let is_breakpoint = |event: &Event| matches!(event, Event::Breakpoint(_));
        !self.weights.fault_kinds.iter().any(refuses) && !events.iter().any(is_breakpoint)
    }

    fn draft(&mut self) -> GroupDraft {
        let rng = &mut self.rng;
        let mut left = match rng.below(8) {
            0..4 => 1,
            4..7 => rng.between(2, 3),
            _ => rng.between(2, 5),
        };
        let mut draft = GroupDraft { known: Vec::new(), breakpoints: Vec::new() };
        while self.weights.breakpoints && left > 0 && rng.one_in(3) {
            draft.breakpoints.push(breakpoint(rng));
            left -= 1;
        }
        // Beside breakpoints there are no counters: that is for those statements that are to fail.
        let beside = |known: &Known| draft.breakpoints.is_empty() || !known.is_scarce;
        for _ in 0..left {
            draft.known.extend(rng.pick_any(&self.weights.events).copied().filter(beside));
        }
        if draft.known.is_empty() && draft.breakpoints.is_empty() {
            draft.known.extend(rng.pick_any(&self.weights.events));
        }
        draft
    }

    fn flags(&mut self, target: &Target) -> Flags {
        let on_task = matches!(target, Target::Task(_) | Target::TaskOnCpu(..));
        let all = [Flag::Inherit, Flag::Pinned, Flag::Exclusive, Flag::Disabled, Flag::EnableOnExec];
        let takes = |flag: &Flag| on_task || !matches!(flag, Flag::Inherit | Flag::EnableOnExec);
        all.into_iter().filter(takes).filter(|&flag| self.weights.sets(&mut self.rng, flag)).collect()
    }

    fn some_online(&mut self) -> Option<CpuList> {
        let count = if self.rng.one_in(3) { self.rng.between(2, 4) } else { 1 };
        CpuList::new((0..count).filter_map(|_| self.rng.pick_any(&self.state.online).copied()))
    }

    /// The CPUs of a set, those that are offline among them; `None` for all.
    pub(super) fn mask(&mut self) -> Option<CpuList> {
        if self.rng.one_in(2) {
            return None;
        }
        let count = self.rng.any_size(1, u64::from(self.shape.description.cpus).min(32));
        CpuList::new((0..count).map(|_| self.any_cpu()))
    }

    pub(super) fn open_wrongly(&mut self) -> Option<Planned> {
        let target = Target::Task(self.task()?);
        let known = |known: Option<&Known>| known.copied().into_iter().collect::<Vec<_>>();
        let scarce = known(self.shape.events.iter().find(|known| known.is_scarce));
        let plain = GroupDraft { known: known(self.shape.events.first()), breakpoints: Vec::new() };
        let watch = breakpoint(&mut self.rng);
        let (draft, target, expected) = match self.rng.below(5) {
            0 => {
                let gone = self.rng.pick_any(self.state.exited.make_contiguous())?.clone();
                (plain, Target::Task(gone), ExpectedResult::fails(&["ESRCH"]))
            }
            1 => {
                let gone = *self.rng.pick_any(&self.state.offline)?;
                (plain, Target::Cpus(CpuList::new([gone])?), ExpectedResult::fails(&["ENODEV"]))
            }
            2 if !scarce.is_empty() => {
                let expected = of_group(&self.shape, &scarce, 1);
                (GroupDraft { known: scarce, breakpoints: vec![watch] }, target, expected)
            }
            3 if !scarce.is_empty() => {
                // More than there are counters.
                let too_many = scarce.repeat(usize::from(self.shape.counters) + 1);
                let expected = ExpectedResult::fails(&["EINVAL"]);
                (GroupDraft { known: too_many, breakpoints: Vec::new() }, target, expected)
            }
            _ => {
                let watch = Breakpoint { len_bytes: 3, ..watch };
                (
                    GroupDraft { known: Vec::new(), breakpoints: vec![watch] },
                    target,
                    ExpectedResult::fails(&["EOPNOTSUPP", "ENOSPC"]),
                )
            }
        };
        Some(self.opening(draft, target, Flags::default(), expected))
    }

    pub(super) fn any_cpu(&mut self) -> CpuId {
        CpuId(self.rng.below(u64::from(self.shape.description.cpus)) as u32)
    }
}

/// Any breakpoint that can be.
pub(super) fn breakpoint(rng: &mut Rng) -> Breakpoint {
    let len_bytes = *rng.pick(&[1, 2, 4, 8]);
    let watch = *rng.pick(&[Watch::Read, Watch::Write, Watch::ReadWrite, Watch::Execute]);
    let address = address(rng);
    Breakpoint { address: address - address % u64::from(len_bytes), len_bytes, watch }
}
