//! One story, told to a machine that shares counters and to one that doesn't.
//!
//! What it is: the courses of a run, one or two. Both machines are told the same. Where an event was multiplexed on neither, its
//! count and its times are the same on both, to the digit; what is granted where counters are not shared is granted where they
//! are.
//! Read first: [`DifferentialRun::step`], then [`Unshared::compare`].
//!
//! **Invariant:** an event is compared as long as the same has happened to it on both machines. Where one machine refuses what the
//! other grants (there are debug registers for this one only), it is compared no more.

use super::checked_run::{Checked, CheckedRun, Done};
use super::finding::Divergence;
use super::{CheckLevel, Finding, Machines, RunMode};
use crate::check::is_doubtful;
use crate::machine::{Event, World};
use crate::scenario::ast::{ControlOp, ControlTarget, Name, OpenForm, Scenario, Statement, Target};
use pmux_engine::target::ContextKey;
use pmux_engine::{Count, CpuId};

pub(super) struct DifferentialRun {
    /// On the machine that the scenario describes.
    shared: CheckedRun,
    unshared: Option<Unshared>,
    check_level: CheckLevel,
}

/// The same on a machine that shares nothing.
struct Unshared {
    alone: CheckedRun,
    /// What was opened on both: by each statement so many names.
    opened: Vec<Vec<Name>>,
    /// Whether debug registers may be held by other events than there.
    registers: RegisterUse,
    compared: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RegisterUse {
    Alike,
    /// Something was refused on one of the machines only.
    Apart,
}

/// An event in one place: the CPU, where it is one of a set.
struct Reading {
    on: Option<CpuId>,
    count: Count,
}

impl DifferentialRun {
    /// Machines for a scenario, on which nothing has happened yet.
    ///
    /// # Errors
    /// There can't be such a machine.
    pub(super) fn new(start: &Scenario, mode: RunMode) -> Result<Self, Finding> {
        let unshared = match mode.machines {
            Machines::One => None,
            Machines::Two => {
                let mut start = start.clone();
                start.header.machine.sharing = None;
                let alone = CheckedRun::new(&start, mode)?;
                Some(Unshared { alone, opened: Vec::new(), registers: RegisterUse::Alike, compared: 0 })
            }
        };
        Ok(Self { shared: CheckedRun::new(start, mode)?, unshared, check_level: mode.check_level })
    }

    pub(super) fn world(&self) -> &World {
        self.shared.world()
    }

    pub(super) fn compared(&self) -> u64 {
        self.unshared.as_ref().map_or(0, |unshared| unshared.compared)
    }

    /// Carries out a statement on all machines. What one of them refuses counts as refused.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(super) fn step(&mut self, statement: &Statement) -> Result<Done, Finding> {
        let done = self.shared.step(statement)?;
        let Some(unshared) = self.unshared.as_mut().filter(|_| !matches!(done, Done::LeftOut)) else { return Ok(done) };
        let alone = unshared.alone.step(statement)?;
        let done = unshared.agree(&mut self.shared, statement, done, alone)?;
        match statement {
            // Where a CPU comes, there may be counters on one machine only.
            _ if self.check_level == CheckLevel::Everything => unshared.compare(&self.shared)?,
            Statement::Online { .. } | Statement::Offline { .. } | Statement::Modify { .. } => {
                unshared.compare(&self.shared)?;
            }
            Statement::Control { targets, .. } => {
                let mut names = targets.iter().map(ControlTarget::name);
                names.try_for_each(|name| unshared.compare_one(&self.shared, name))?;
            }
            _ => {}
        }
        Ok(done)
    }

    /// Checks and compares everything, if that has not been done for long.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(super) fn check_now_and_then(&mut self, size: u64) -> Result<(), Finding> {
        let checked = self.shared.check_now_and_then(size)?;
        if let Some(unshared) = &mut self.unshared {
            unshared.alone.check_now_and_then(size)?;
            if checked == Checked::Everything {
                unshared.compare(&self.shared)?;
            }
        }
        Ok(())
    }

    /// Compares everything, and lets all machines come to their ends; returns how many counts were compared.
    ///
    /// # Errors
    /// What is not as it must be.
    pub(super) fn finish(mut self) -> Result<u64, Finding> {
        let compared = match &mut self.unshared {
            Some(unshared) => {
                unshared.compare(&self.shared)?;
                unshared.compared
            }
            None => 0,
        };
        self.shared.finish()?;
        self.unshared.map_or(Ok(()), |unshared| unshared.alone.finish())?;
        Ok(compared)
    }
}

/// The errors of those who find others on what they want.
const TAKEN: [&str; 2] = ["ENOSPC", "ENODATA"];

impl Unshared {
    /// What came of a statement on both machines, as one.
    fn agree(
        &mut self,
        checked_run: &mut CheckedRun,
        statement: &Statement,
        shared: Done,
        alone: Done,
    ) -> Result<Done, Finding> {
        if let (Done::Carried, Done::Carried, Statement::Open(open)) = (&shared, &alone, statement) {
            self.opened.push(open.events.iter().map(|new| new.name.clone()).collect());
        }
        let same = match (&shared, &alone) {
            (Done::Carried, Done::Carried) => true,
            (Done::Refused { errno: one, .. }, Done::Refused { errno: other, .. }) => one == other,
            (Done::Senseless(_), _) | (_, Done::Senseless(_)) => return Ok(shared),
            _ => false,
        };
        if same {
            // Of several targets, each may have been refused another one.
            if let (Done::Refused { .. }, Statement::Control { targets, .. }) = (&shared, statement)
                && targets.len() > 1
            {
                self.lose_sight(statement);
            }
            return Ok(shared);
        }
        let refused_only_where_shared = matches!(alone, Done::Carried);
        // What others see, too, stays as it is where it is shared.
        let more = if matches!(statement, Statement::Modify { .. }) { &["EBUSY"][..] } else { &[] };
        let is_taken = |done: &Done| match done {
            Done::Refused { errno, .. } => TAKEN.iter().chain(more).any(|name| super::case::is(*errno, name)),
            _ => true,
        };
        let is_due = is_taken(&shared) && is_taken(&alone);
        if !is_due || (refused_only_where_shared && self.is_unfair(&shared)) {
            let say = |done: &Done| match done {
                Done::Refused { errno, why, .. } => format!("errno {errno} ({why})"),
                _ => "it succeeds".to_owned(),
            };
            let (statement, shared, alone) = (statement.to_string(), say(&shared), say(&alone));
            return Err(Finding::Divergence(Divergence::Outcome { statement, shared, alone }));
        }
        self.registers = RegisterUse::Apart;
        let (carried, refused) =
            if refused_only_where_shared { (&mut self.alone, shared) } else { (checked_run, alone) };
        if let Statement::Open(open) = statement {
            // What is open on one machine only has no name.
            let whole = open.form == OpenForm::Group || matches!(open.target, Target::SystemWide(_));
            let names = open.events.iter().map(|new| new.name.clone()).take(if whole { 1 } else { usize::MAX });
            let target = |name| match open.form {
                OpenForm::Group if !matches!(open.target, Target::SystemWide(_)) => ControlTarget::Group(name),
                _ => ControlTarget::Event(name),
            };
            carried.step(&Statement::Control { verb: ControlOp::Close, targets: names.map(target).collect() })?;
        } else {
            self.lose_sight(statement);
        }
        Ok(refused)
    }

    /// Whether a machine that shares has no right to refuse what the other one grants: it needs no more debug registers, and
    /// no other holder has them.
    fn is_unfair(&self, refused: &Done) -> bool {
        let registers = matches!(refused, Done::Refused { errno, .. } if super::case::is(*errno, "ENOSPC"));
        registers && self.registers == RegisterUse::Alike
    }

    /// What a statement is about is compared no more.
    fn lose_sight(&mut self, statement: &Statement) {
        let names: Vec<&Name> = match statement {
            Statement::Control { targets, .. } => targets.iter().map(ControlTarget::name).collect(),
            Statement::Modify { event, .. } => vec![event],
            _ => Vec::new(),
        };
        self.opened.retain(|together| !together.iter().any(|name| names.contains(&name)));
    }

    fn compare(&mut self, shared: &CheckedRun) -> Result<(), Finding> {
        let mut opened = std::mem::take(&mut self.opened);
        opened.retain(|names| names.iter().any(|name| !shared.events_of(name).is_empty()));
        opened.retain(|names| !names.iter().any(|name| differs_in_places(shared, &self.alone, name)));
        let result = opened.iter().flatten().try_for_each(|name| self.compare_events(shared, name));
        self.opened = opened;
        result
    }

    /// Compares one event, if it is still compared.
    fn compare_one(&mut self, shared: &CheckedRun, name: &Name) -> Result<(), Finding> {
        let known = self.opened.iter().any(|names| names.contains(name));
        if known && !differs_in_places(shared, &self.alone, name) { self.compare_events(shared, name) } else { Ok(()) }
    }

    fn compare_events(&mut self, shared: &CheckedRun, name: &Name) -> Result<(), Finding> {
        for (&one, &other) in shared.events_of(name).iter().zip(&self.alone.events_of(name)) {
            let (ones, others) = (readings(shared.world(), one), readings(self.alone.world(), other));
            for reading in ones {
                let Some(other) = others.iter().find(|other| other.on == reading.on) else { continue };
                let ran = |count: &Count| count.running == count.enabled;
                if !ran(&reading.count) || !ran(&other.count) {
                    continue;
                }
                // What has not begun on either says little.
                self.compared += u64::from(reading.count != Count::default());
                if reading.count != other.count {
                    let on = reading.on.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
                    let (shared, alone) = (reading.count, other.count);
                    return Err(Finding::Divergence(Divergence::Count { event: format!("{name}{on}"), shared, alone }));
                }
            }
        }
        Ok(())
    }
}

/// What an event says in each place, as far as it may have been in error nowhere and has missed nothing.
fn readings(world: &World, event: Event) -> Vec<Reading> {
    let book = world.number_of(event).and_then(|number| world.books().get(number));
    if book.is_none_or(|book| is_doubtful(world, book)) {
        return Vec::new();
    }
    let known = |on: Option<CpuId>| {
        let truth = on.map_or_else(|| world.truth(event), |cpu| world.truth_at(event, ContextKey::Cpu(cpu)));
        truth.is_none_or(|truth| !truth.missed && !truth.withheld)
    };
    let all = world.look_at_counts(event).into_iter();
    all.filter_map(|(on, count)| Some(Reading { on, count: count? })).filter(|reading| known(reading.on)).collect()
}

/// Whether an event of a set was refused counters on one machine, on some CPU, and not on the other.
fn differs_in_places(shared: &CheckedRun, alone: &CheckedRun, name: &Name) -> bool {
    let refused = |checked_run: &CheckedRun| -> Vec<CpuId> {
        let sets = checked_run.events_of(name).into_iter().filter_map(|event| checked_run.world().set_of(event));
        let on = sets.flat_map(|(set, _)| checked_run.world().look_at_set(set));
        on.filter(|cpu| cpu.refused.is_some()).map(|cpu| cpu.cpu).collect()
    };
    refused(shared) != refused(alone)
}
