//! Asking the kernel which events run at once.
//!
//! What it is: a [`Trial`] with *pinned* events: such an event is on a counter or in error, at once, and goes before
//! whatever only wants a counter sometimes. So it is seen what is left beside those that others have pinned (as the
//! watchdog of the kernel does), and others who take turns are in the way for a moment only.
//! Read first: [`probe`].
//!
//! **Invariant:** everything is opened through the engine, and closed when this returns.

use super::{ProbedCapacity, Trial};
use crate::affinity::{CpuVisitor, Placement};
use crate::current_tid;
use crate::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::pmu::BankError;
use pmux_engine::share::SharingScope;
use pmux_engine::target::Opened;
use pmux_engine::{CpuId, GroupSpec, OpenError, ReadError, Target};

/// Where events are tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrialTarget<'a> {
    /// On the calling thread, wherever it runs.
    Thread,
    /// On the calling thread, on one of these CPUs: others have another PMU.
    ThreadOn(&'a [u32]),
    /// On a CPU: a PMU that does not follow tasks.
    Cpu(u32),
}

/// Why it was not found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeError {
    /// The calling thread may not go to any of the CPUs.
    OutOfReach,
    /// An event does not open.
    Open(OpenError),
}

/// How many of these events run at once, now. Tries for some milliseconds.
///
/// # Errors
/// [`ProbeError::OutOfReach`]; [`ProbeError::Open`] where an event can't be opened any more.
pub fn probe(engine: &LinuxEngine, events: &[Attr], place: TrialTarget<'_>) -> Result<ProbedCapacity, ProbeError> {
    at(place, |target| {
        ProbedCapacity::find(&mut KernelTrial { engine, events, target, open: Vec::new() }, events.len())
    })?
    .map_err(ProbeError::Open)
}

/// An attribute as it can be tried: as it is, or in user mode only where more is not permitted; `None` where it does not
/// open here at all.
pub fn openable(engine: &LinuxEngine, event: &Attr, place: TrialTarget<'_>) -> Option<Attr> {
    let opens = |attr: &Attr| {
        at(place, |target| {
            let opened = engine.open_in(SharingScope::ALONE, &GroupSpec::single(KERNEL, *attr), target)?;
            engine.close(opened.group);
            Ok::<(), OpenError>(())
        })
    };
    let attr = pinned(event);
    match opens(&attr).ok()? {
        Ok(()) => Some(attr),
        Err(OpenError::Bank { error: BankError::NotPermitted | BankError::Other(libc::EPERM), .. }) => {
            let milder = Attr { flags: attr.flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV, ..attr };
            opens(&milder).ok()?.ok().map(|()| milder)
        }
        Err(_) => None,
    }
}

/// Runs `f` with the target of a place.
fn at<R>(place: TrialTarget<'_>, f: impl FnOnce(Target) -> R) -> Result<R, ProbeError> {
    let own = Target::task(LinuxHost::task(current_tid()));
    match place {
        TrialTarget::Thread => Ok(f(own)),
        TrialTarget::ThreadOn(cpus) => {
            let mut visitor = CpuVisitor::new();
            let there = cpus.iter().any(|&cpu| visitor.visit(cpu) == Placement::Moved);
            if there { Ok(f(own)) } else { Err(ProbeError::OutOfReach) }
        }
        TrialTarget::Cpu(cpu) => Ok(f(Target::cpu(CpuId(cpu)))),
    }
}

/// The event alone, always on or in error.
fn pinned(event: &Attr) -> Attr {
    let mut attr = *event;
    attr.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT | AttrFlags::ENABLE_ON_EXEC | AttrFlags::EXCLUSIVE);
    attr.flags |= AttrFlags::PINNED;
    attr
}

struct KernelTrial<'e> {
    engine: &'e LinuxEngine,
    events: &'e [Attr],
    target: Target,
    open: Vec<Opened>,
}

impl KernelTrial<'_> {
    fn runs(&self, opened: &Opened) -> bool {
        opened.events.iter().all(|&event| !matches!(self.engine.read(event), Err(ReadError::Error(_))))
    }

    fn enable(&self, opened: &Opened) -> bool {
        self.engine.enable_group(opened.group).is_ok() && self.runs(opened)
    }
}

impl Trial for KernelTrial<'_> {
    type Error = OpenError;

    fn add(&mut self, event: usize) -> Result<bool, OpenError> {
        let Some(&attr) = self.events.get(event) else { return Ok(false) };
        let opened = match self.engine.open_in(SharingScope::ALONE, &GroupSpec::single(KERNEL, attr), self.target) {
            Ok(opened) => opened,
            // Some PMUs say so at once.
            Err(
                OpenError::Bank { error: BankError::SlotsExhausted | BankError::Busy, .. }
                | OpenError::DebugRegisters { .. },
            ) => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.enable(&opened) && self.open.iter().all(|earlier| self.runs(earlier)) {
            self.open.push(opened);
            return Ok(true);
        }
        self.engine.close(opened.group);
        // Those before it have their counters back, if one of them had to go.
        for earlier in &self.open {
            if !self.runs(earlier) {
                self.enable(earlier);
            }
        }
        Ok(false)
    }

    fn clear(&mut self) {
        for opened in self.open.drain(..) {
            self.engine.close(opened.group);
        }
    }
}

impl Drop for KernelTrial<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
