//! Registers that are narrow: when they wrap, and how long they need no look.
//!
//! Read first: `registers`.
//!
//! **Invariant:** what is asked here changes no count; a look brings a register up to date and no more.

use super::model::CountedEvent;
use super::registers::RegisterKey;
use super::state::State;
use crate::machine::Kind;
use pmux_engine::pmu::{Slot, SlotMask};
use pmux_engine::{CpuId, PmuId};

impl State {
    pub(crate) fn take_overflows(&mut self, bank: u32, pmu: PmuId) -> SlotMask {
        self.fold_all(bank, pmu);
        self.registers(bank, pmu)
            .map_or_else(SlotMask::default, |registers| SlotMask(std::mem::take(&mut registers.wrapped)))
    }

    fn fold_all(&mut self, bank: u32, pmu: PmuId) {
        let mut started = self.registers(bank, pmu).map_or(0, |registers| registers.started);
        while started != 0 {
            let slot = Slot(started.trailing_zeros());
            started &= started - 1;
            self.fold(RegisterKey { bank, pmu, slot });
        }
    }

    /// The started registers of a CPU whose slots are scarce.
    pub(crate) fn going(&self, cpu: CpuId) -> impl Iterator<Item = RegisterKey> + '_ {
        let bank = self.cpu(cpu).bank.filter(|&bank| self.bank(bank).is_some_and(|bank| bank.started > 0));
        let scarce = self.widths.iter().enumerate().filter(|(_, width)| width.scarce.is_some());
        scarce.map(|(pmu, _)| PmuId(pmu as u16)).flat_map(move |pmu| {
            let state = bank.and_then(|bank| self.bank(bank));
            let started = state.map_or(0, |state| state.pmus[usize::from(pmu.0)].started);
            let slots = (0..64).filter(move |slot| started & 1 << slot != 0).map(Slot);
            bank.into_iter().flat_map(move |bank| slots.clone().map(move |slot| RegisterKey { bank, pmu, slot }))
        })
    }

    /// When a register wraps at the soonest, at the rates of now.
    pub(super) fn wrap_of(&self, key: RegisterKey, cpu: CpuId) -> u64 {
        let Some(width) = self.width(key.pmu).filter(|width| width.mask != u64::MAX) else { return u64::MAX };
        let Some(register) = self.register(key) else { return u64::MAX };
        let CountedEvent::Kind(kind) = register.counted else { return u64::MAX };
        let since = self.cpu_total(cpu, kind).wrapping_sub(register.mark.occurrences);
        let left = (width.mask - register.value).saturating_sub(since).saturating_add(1);
        self.now.saturating_add(self.rates_on(cpu).of(kind).time_for(left))
    }

    /// When a counter of a CPU wraps, or asks for a sample, at the soonest.
    pub(crate) fn next_wrap(&self, cpu: CpuId) -> u64 {
        self.going(cpu).map(|key| self.wrap_of(key, cpu).min(self.sample_due(key, cpu))).min().unwrap_or(u64::MAX)
    }

    /// How long the registers of a CPU can go unread at most, halved to be safe: then one of them has gone round since its
    /// last reading, and it cannot be known how often.
    pub(crate) fn slack(&self, cpu: CpuId) -> u64 {
        let slack = |key: RegisterKey| {
            let width = self.width(key.pmu).filter(|width| width.mask != u64::MAX)?;
            let register = self.register(key)?;
            let CountedEvent::Kind(kind) = register.counted else { return None };
            let since = self.cpu_total(cpu, kind).wrapping_sub(register.mark.occurrences);
            let left = width.mask.saturating_sub(register.unread.saturating_add(since));
            Some(self.rates_on(cpu).of(kind).time_for(left) / 2)
        };
        self.going(cpu).filter_map(slack).min().unwrap_or(u64::MAX)
    }

    /// Brings the registers of a CPU up to date; says on which PMUs some have wrapped and the engine has not asked yet.
    pub(crate) fn wrapped_on(&mut self, cpu: CpuId) -> Vec<PmuId> {
        let Some(bank) = self.cpu(cpu).bank else { return Vec::new() };
        let mut wrapped = Vec::new();
        for pmu in 0..self.widths.len() {
            let pmu = PmuId(pmu as u16);
            if self.widths[usize::from(pmu.0)].mask != u64::MAX {
                self.fold_all(bank, pmu);
                if self.registers(bank, pmu).is_some_and(|registers| registers.wrapped != 0) {
                    wrapped.push(pmu);
                }
            }
        }
        wrapped
    }

    /// How many more occurrences of a kind the counters of a CPU take before one of them wraps.
    pub(crate) fn room_for(&self, cpu: CpuId, kind: Kind) -> u64 {
        let room = |key: RegisterKey| {
            let register = self.register(key).filter(|register| register.counted == CountedEvent::Kind(kind))?;
            let since = self.cpu_total(cpu, kind).wrapping_sub(register.mark.occurrences);
            Some((self.width(key.pmu)?.mask - register.value).saturating_sub(since).saturating_add(1))
        };
        self.going(cpu).filter_map(room).min().unwrap_or(u64::MAX)
    }
}
