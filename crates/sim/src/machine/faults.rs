//! What goes wrong on a machine.
//!
//! What it is: faults that real machines have ([`MachineFault`]), and faults that no machine may have, planted to see whether the
//! checks find them ([`InjectedFault`]).
//!
//! **Invariant:** a fault strikes at a moment that was said, never by chance; without faults nothing here costs more than
//! one look.

use pmux_engine::pmu::{BankError, Lease, Slot};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, Nanos, PmuId};

/// Something that goes wrong, and how a scenario says it. Numbers count from here and from 1; each strikes once. Those of
/// doorbells and interrupts, and counters that others hold, last until [`super::World::heal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineFault {
    /// `fault alloc N`: the N-th time that a slot needs memory (that of a PMU with plenty), there is none.
    Alloc(u32),
    /// `fault program N`: the N-th programming of a counter is refused.
    Program(u32),
    /// `fault start N`: the N-th start of a counter is refused.
    Start(u32),
    /// `fault read N`: the N-th reading of a counter is refused.
    Read(u32),
    /// `fault hand-over N`: the N-th time that a counter is to be handed from one event to another one, it can't be.
    HandOver(u32),
    /// `fault held cpu0 counter 2`: another owner has this hardware counter of that CPU: programming it is refused.
    Held(CpuId, u8),
    /// `fault interrupt late 50us`: counter interrupts come so much later, but before a counter can wrap twice.
    InterruptLate(Nanos),
    /// `fault doorbell late 50us`: doorbells ring so much later.
    DoorbellLate(Nanos),
    /// `fault doorbell twice`: each doorbell rings twice.
    DoorbellTwice,
    /// `fault doorbell spurious cpu1`: the doorbell of that CPU rings for nothing, now.
    DoorbellSpurious(CpuId),
    /// `fault storm cpu0 1000`: that CPU gets so many counter interrupts for nothing, now.
    Storm(CpuId, u32),
    /// `fault none`: from here on, nothing goes wrong any more.
    None,
}

/// Something that a machine must not do, so that a check has something to find.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum InjectedFault {
    /// What was counted up to a hand-over is gone with it.
    LoseHandedOver,
    /// A counter that stops forgets what was not read yet.
    LoseWhatWasNotRead,
    /// Counters wrap, and the engine is not told.
    WrapUnnoticed,
    /// A counter is programmed into a slot that another one has.
    DoubleLease,
    /// Counters that are given back stay programmed.
    IgnoreRelease,
    /// Counters that are stopped go on, and those that are given back as well.
    KeepGoing,
    /// Doorbells never ring.
    DeafDoorbell,
    /// Half of the counters of a group do not start, and say that they did.
    StartHalfAGroup,
    /// Pinned counters do not start, and say that they did.
    StartNoPinned,
    /// Counters start at the next tick, and say that they did at once.
    StartLate,
    /// The clock jumps ahead while the engine looks, and back again.
    ClockJumps,
    /// The engine is not told of forks.
    SilentFork,
    /// Refusals go on after all was healed.
    HealNothing,
    /// The machine takes a lock of the engine's out of order.
    LockBackwards,
    /// The machine is called under a lock.
    CallUnderLock,
    /// Every other access is seen by no debug register, though it be on.
    MissAccesses,
    /// The engine is not told that a CPU comes back.
    SilentOnline,
    /// A PMU says that there is no room for what would take the last of its counters.
    HideACounter,
    /// Debug registers take lengths that none can watch.
    TakeAnyLength,
    /// Debug registers of what is closed are not given out again.
    KeepDebugRegisters,
    /// A PMU says that all its events ask the same.
    ConfuseQuestions,
    /// A PMU says that no two events ask the same.
    ShareNothing,
    /// Where counters are shared, tasks touch one page more each time: only a check that sees how it is without can know.
    TouchMoreWhereShared,
    /// Every fourth sample is written nowhere, and said to be.
    SwallowSamples,
}

/// Strikes once, at the n-th time.
#[derive(Default)]
struct Nth(Vec<u32>);

impl Nth {
    fn add(&mut self, n: u32) {
        self.0.push(n.max(1));
    }

    fn strikes(&mut self) -> bool {
        let mut strikes = false;
        self.0.retain_mut(|left| {
            *left -= 1;
            strikes |= *left == 0;
            *left > 0
        });
        strikes
    }
}

#[derive(Default)]
pub(super) struct Faults {
    any: bool,
    allocs: Nth,
    programs: Nth,
    starts: Nth,
    reads: Nth,
    hand_overs: Nth,
    pub(super) held: Vec<(CpuId, PmuId, Slot)>,
    pub(super) doorbell_late: u64,
    pub(super) doorbell_twice: bool,
    pub(super) interrupt_late: u64,
    /// A caller that is asked to go near a CPU stays where it is.
    pub(super) stay_put: bool,
    /// How many times something was refused so far.
    pub(super) struck: u64,
    /// How many of these times it was a reading.
    pub(super) unread: u64,
}

impl Faults {
    /// Whether anything may go wrong with counters.
    #[inline]
    pub(super) const fn any(&self) -> bool {
        self.any
    }

    /// Notes what goes wrong later; what happens now is the world's.
    pub(super) fn add(&mut self, fault: MachineFault) {
        self.any = true;
        match fault {
            MachineFault::Alloc(n) => self.allocs.add(n),
            MachineFault::Program(n) => self.programs.add(n),
            MachineFault::Start(n) => self.starts.add(n),
            MachineFault::Read(n) => self.reads.add(n),
            MachineFault::HandOver(n) => self.hand_overs.add(n),
            MachineFault::DoorbellLate(by) => self.doorbell_late = by.0,
            MachineFault::DoorbellTwice => self.doorbell_twice = true,
            MachineFault::InterruptLate(by) => self.interrupt_late = by.0,
            MachineFault::Held(..)
            | MachineFault::DoorbellSpurious(_)
            | MachineFault::Storm(..)
            | MachineFault::None => {}
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { struck: self.struck, unread: self.unread, ..Self::default() };
    }

    fn strike(&mut self, strikes: bool, error: BankError) -> Option<BankError> {
        self.struck += u64::from(strikes);
        strikes.then_some(error)
    }

    pub(super) fn program(&mut self, place: ContextKey, lease: Lease, plenty: bool) -> Option<BankError> {
        let no_memory = plenty && self.allocs.strikes();
        let refused = self.programs.strikes();
        let held = matches!(place, ContextKey::Cpu(cpu) if self.held.contains(&(cpu, lease.pmu, lease.slot)));
        let error = if no_memory { BankError::OutOfMemory } else { BankError::Busy };
        self.strike(no_memory || refused || held, error)
    }

    pub(super) fn start(&mut self) -> Option<BankError> {
        let strikes = self.starts.strikes();
        self.strike(strikes, BankError::Busy)
    }

    pub(super) fn read(&mut self) -> Option<BankError> {
        let strikes = self.reads.strikes();
        self.unread += u64::from(strikes);
        self.strike(strikes, BankError::Busy)
    }

    pub(super) fn hand_over(&mut self) -> Option<BankError> {
        let strikes = self.hand_overs.strikes();
        self.strike(strikes, BankError::NotSupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strikes_once_at_its_time() {
        let mut nth = Nth::default();
        nth.add(2);
        nth.add(4);
        nth.add(0);
        let struck: Vec<_> = (0..6).map(|_| nth.strikes()).collect();
        assert_eq!(struck, [true, true, false, true, false, false]);
    }

    #[test]
    fn a_slot_is_held_until_it_is_healed() {
        let (cpu, lease) = (CpuId(1), Lease { pmu: PmuId(0), slot: Slot(2), generation: 9 });
        let mut faults = Faults::default();
        faults.add(MachineFault::Held(cpu, 2));
        faults.held.push((cpu, PmuId(0), Slot(2)));
        assert_eq!(faults.program(ContextKey::Cpu(cpu), lease, false), Some(BankError::Busy));
        assert_eq!(faults.program(ContextKey::Cpu(CpuId(0)), lease, false), None);
        faults.clear();
        assert!(!faults.any() && faults.held.is_empty() && faults.struck == 1);
    }
}
