//! Which events compete for the counters of which PMU, and how many of them there are.
//!
//! What it is: events that the engine multiplexes move from the host's `KERNEL` PMU to a scarce one, which was tried first.
//! Read first: [`Session::assign_counters`].
//!
//! **Invariant:** an event whose PMU has plenty, or that can't be tried, stays where it was.

use super::turns::Turning;
use crate::counters::Column;
use crate::event::{EventSource, pmu_by_number};
use crate::session::Session;
use pmux_abi::attr::{Attr, EventType, Sampling, hw};
use pmux_engine::pmu::{PmuTable as _, Slot, SlotMask};
use pmux_engine::{LockCell as _, PmuId};
use pmux_linux::capacity::probe::{TrialTarget, openable, probe};
use pmux_linux::capacity::{EventCapacity, ProbedCapacity};
use pmux_linux::catalog::{Catalog, PmuCpus, PmuRole};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::{CapacitySnapshot, KERNEL, Reach, SleepLock, capacity_key};
use std::sync::{OnceLock, Weak};

/// The low word of the configuration of a generic event names it, the high word the PMU that is meant, where there are
/// several kinds of core (`PERF_PMU_TYPE_SHIFT` of the kernel's header).
const PMU_SHIFT: u32 = 32;
/// PMUs without counters: nothing there is ever scarce, and what they open has effects.
const NO_COUNTERS: [&str; 2] = ["kprobe", "uprobe"];

/// What a session knows of scarce counters, and who takes turns.
pub(crate) struct Mux {
    units: SleepLock<Vec<Unit>>,
    core: OnceLock<CorePmu>,
    /// Held by the thread that changes what a turn means, or takes one.
    pub(crate) turn: SleepLock<()>,
    pub(crate) turning: SleepLock<Weak<Turning>>,
    /// For tests: so many of the software events are let run together.
    pretended: Option<u8>,
}

struct Unit {
    kind: EventType,
    pmu: PmuId,
    name: String,
    cpus: PmuCpus,
    reach: Reach,
    /// What was tried, as it opens here.
    tried: Vec<Attr>,
    /// What does not open here.
    unopenable: Vec<Attr>,
    supply: Supply,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Supply {
    /// It was not found out.
    Unknown,
    Scarce,
    Plenty,
}

struct CorePmu {
    kind: EventType,
    name: String,
}

/// How many events of a PMU run at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PmuCapacity {
    /// The PMU's name.
    pub pmu: String,
    /// How many run together, of the events that were tried; as many copies of each as run.
    pub counters: u8,
    /// How many are let run together now: less than `counters` where another user of the PMU was seen to have some.
    pub limit: u8,
    /// Of each event by its name, what is known of it.
    pub events: Vec<(String, EventCapacity)>,
    /// How many of the counters several events can use.
    pub shared: u8,
}

impl Mux {
    pub(crate) fn new(pretended: Option<u8>) -> Self {
        let (units, turn) = (SleepLock::new(Vec::new()), SleepLock::new(()));
        Self { units, core: OnceLock::new(), turn, turning: SleepLock::new(Weak::new()), pretended }
    }
}

impl Session {
    /// Moves events to the PMUs whose counters the engine hands out. Tries them before, for some milliseconds, where
    /// there are new ones among them.
    pub(crate) fn assign_counters(&self, columns: &mut [Column]) {
        let kinds: Vec<_> = columns.iter().map(|column| self.counters_of(column)).collect();
        let mut done: Vec<EventType> = Vec::new();
        for kind in kinds.iter().flatten().copied() {
            if done.contains(&kind) {
                continue;
            }
            done.push(kind);
            let same = |other: &Option<EventType>| *other == Some(kind);
            let wanted: Vec<_> = columns.iter().zip(&kinds).filter(|(_, of)| same(of)).map(|(c, _)| c.attr).collect();
            // No thread takes a turn while counters are tried, and no other thread tries.
            let unit = self.inner.mux.turn.with(|()| self.try_unit(kind, &wanted));
            let Some((pmu, unopenable)) = unit else { continue };
            for (column, _) in columns.iter_mut().zip(&kinds).filter(|(_, of)| same(of)) {
                if !unopenable.contains(&capacity_key(&column.attr)) {
                    column.move_to(pmu);
                }
            }
        }
    }

    /// The PMU of the kernel whose counters an event needs; `None` where there are always enough.
    fn counters_of(&self, column: &Column) -> Option<EventType> {
        let EventSource::Kernel { pmu } = &column.event.source else { return None };
        let attr = &column.attr;
        let eligible = column.pmu == KERNEL && column.refusal.is_none() && attr.sampling == Sampling::None;
        if !eligible || NO_COUNTERS.contains(&&pmu[..]) {
            return None;
        }
        self.counters_of_attr(attr)
    }

    fn counters_of_attr(&self, attr: &Attr) -> Option<EventType> {
        match attr.kind {
            EventType::SOFTWARE if self.inner.mux.pretended.is_some() => Some(attr.kind),
            EventType::SOFTWARE | EventType::TRACEPOINT | EventType::BREAKPOINT => None,
            EventType::RAW => Some(self.core().kind),
            EventType::HARDWARE | EventType::HW_CACHE => match (attr.config >> PMU_SHIFT) as u32 {
                0 => Some(self.core().kind),
                kind => Some(EventType(kind)),
            },
            kind => Some(kind),
        }
    }

    /// Where bare attributes are counted, in their order, when the engine hands out counters: as
    /// [`Session::assign_counters`] does it with whole columns.
    pub(crate) fn pmus_of(&self, attrs: &[Attr]) -> Vec<PmuId> {
        let place = |attr: &Attr| {
            let kind = self.counters_of_attr(attr)?;
            let (pmu, unopenable) = self.inner.mux.turn.with(|()| self.try_unit(kind, std::slice::from_ref(attr)))?;
            (!unopenable.contains(&capacity_key(attr))).then_some(pmu)
        };
        attrs.iter().map(|attr| place(attr).unwrap_or(KERNEL)).collect()
    }

    /// Finds out how many events run at once of the PMUs that these need, once for each PMU, so that it can be told. Takes some
    /// milliseconds, and counters from others meanwhile: so before anything is counted there.
    pub(crate) fn learn_capacities(&self, attrs: &[Attr]) {
        for attr in attrs {
            let Some(kind) = self.counters_of_attr(attr) else { continue };
            if self.inner.mux.units.with(|units| units.iter().any(|unit| unit.kind == kind)) {
                continue;
            }
            let mut tried = vec![*attr];
            if kind == self.core().kind {
                // Those for which there may be counters that others can't use.
                let generic = |config| Attr { kind: EventType::HARDWARE, config, flags: attr.flags, ..Attr::default() };
                tried.extend([hw::CPU_CYCLES, hw::INSTRUCTIONS, hw::BRANCH_INSTRUCTIONS].map(generic));
            }
            self.inner.mux.turn.with(|()| self.try_unit(kind, &tried));
        }
    }

    pub(crate) fn all_capacities(&self) -> Vec<PmuCapacity> {
        self.inner.mux.units.with(|units| units.iter().filter_map(|unit| Some(self.capacity(unit)?.0)).collect())
    }

    /// How many events of a PMU run at once; and of each question what is known.
    fn capacity(&self, unit: &Unit) -> Option<(PmuCapacity, Vec<(Attr, EventCapacity)>)> {
        let CapacitySnapshot { counters, limit, events: tried } = self.engine().host().capacity(unit.pmu)?;
        let own: u8 = tried.iter().map(|(_, capacity)| capacity.own).sum();
        let (events, shared) = (Vec::new(), counters.saturating_sub(own));
        Some((PmuCapacity { pmu: unit.name.clone(), counters, limit, events, shared }, tried))
    }

    /// The name of the PMU that counts generic events: not the same everywhere.
    pub(crate) fn core_pmu_name(&self) -> &str {
        &self.core().name
    }

    fn core(&self) -> &CorePmu {
        self.inner.mux.core.get_or_init(|| find_core(self.catalog()))
    }

    /// Tries events of a PMU, beside all that were tried before. Answers where they are counted, and which of them (as
    /// questions) don't open here; `None` where there are always enough counters.
    fn try_unit(&self, kind: EventType, wanted: &[Attr]) -> Option<(PmuId, Vec<Attr>)> {
        self.inner.mux.units.with(|units| {
            let index = match units.iter().position(|unit| unit.kind == kind) {
                Some(index) => index,
                None => {
                    units.push(self.new_unit(kind)?);
                    units.len() - 1
                }
            };
            let unit = units.get_mut(index)?;
            let is_new = |attr: &&Attr| {
                let asked = capacity_key(attr);
                !unit.unopenable.contains(&asked) && unit.tried.iter().all(|known| capacity_key(known) != asked)
            };
            let mut new: Vec<_> = wanted.iter().filter(is_new).copied().collect();
            crate::order::sort_by_key(&mut new, |attr| {
                (attr.kind, attr.config, attr.config1, attr.config2, attr.config3)
            });
            new.dedup_by_key(|attr| capacity_key(attr));
            if !new.is_empty() || unit.supply == Supply::Unknown {
                self.try_events(unit, &new);
            }
            (unit.supply == Supply::Scarce).then(|| (unit.pmu, unit.unopenable.clone()))
        })
    }

    fn new_unit(&self, kind: EventType) -> Option<Unit> {
        let (name, cpus) = match pmu_by_number(self.catalog(), kind) {
            Some(pmu) => (pmu.name().to_owned(), pmu.cpus().cloned().unwrap_or_default()),
            None => (self.core().name.clone(), PmuCpus::Any),
        };
        let everywhere = Cpus::system().possible().unwrap_or_else(|_| self.online());
        let reach = match &cpus {
            PmuCpus::Only(cpus) if cpus.len() < everywhere.len() => Reach::SomeCpus,
            _ => Reach::EveryCpu,
        };
        let pmu = self.engine().host().scarce_pmu(kind, reach)?;
        let (tried, unopenable) = (Vec::new(), Vec::new());
        Some(Unit { kind, pmu, name, cpus, reach, tried, unopenable, supply: Supply::Unknown })
    }

    fn try_events(&self, unit: &mut Unit, new: &[Attr]) {
        let engine = self.engine();
        if let (EventType::SOFTWARE, Some(counters)) = (unit.kind, self.inner.mux.pretended) {
            engine.host().learn_capacity(unit.pmu, &[], &ProbedCapacity { counters, events: Vec::new() });
            unit.supply = Supply::Scarce;
            return;
        }
        let online = self.online();
        let place = match (&unit.cpus, unit.reach) {
            (PmuCpus::OnePerPackage(cpus), _) => match cpus.iter().find(|&&cpu| online.contains(cpu)) {
                Some(&cpu) => TrialTarget::Cpu(cpu),
                None => return,
            },
            (PmuCpus::Only(cpus), Reach::SomeCpus) => TrialTarget::ThreadOn(cpus),
            _ => TrialTarget::Thread,
        };
        for attr in new {
            match openable(engine, attr, place) {
                Some(attr) => unit.tried.push(attr),
                None => unit.unopenable.push(capacity_key(attr)),
            }
        }
        if unit.tried.is_empty() {
            return;
        }
        // What can't be found out is left to the kernel.
        let Ok(found) = probe(engine, &unit.tried, place) else { return };
        if found.is_plenty() {
            // Once it was scarce, events are out there that take turns.
            if unit.supply == Supply::Unknown {
                unit.supply = Supply::Plenty;
            }
            return;
        }
        let questions: Vec<_> = unit.tried.iter().map(capacity_key).collect();
        engine.host().learn_capacity(unit.pmu, &questions, &found);
        unit.supply = Supply::Scarce;
    }

    /// Whether all these events find counters beside each other.
    pub(crate) fn all_fit(&self, columns: &[Column]) -> bool {
        let mut pmus: Vec<PmuId> = columns.iter().map(|column| column.pmu).collect();
        pmus.sort_unstable();
        pmus.dedup();
        pmus.into_iter().all(|pmu| {
            let Some(model) = self.engine().host().pmu(pmu) else { return true };
            let on_it = columns.iter().filter(|column| column.pmu == pmu && column.refusal.is_none());
            let slots = on_it.filter_map(|column| Some(model.parse(pmu, &column.attr).ok()?.allowed));
            let wanted: Vec<_> = slots.collect();
            model.place(&wanted, SlotMask::default(), &mut vec![Slot::NONE; wanted.len()])
        })
    }

    /// Whether a task may be where a PMU doesn't count.
    pub(crate) fn is_partial(&self, pmu: PmuId) -> bool {
        let partial = |unit: &Unit| unit.pmu == pmu && unit.reach == Reach::SomeCpus;
        self.inner.mux.units.with(|units| units.iter().any(partial))
    }

    pub(crate) fn pmu_name(&self, pmu: PmuId) -> Option<String> {
        let name = |units: &mut Vec<Unit>| Some(units.iter().find(|unit| unit.pmu == pmu)?.name.clone());
        self.inner.mux.units.with(name)
    }

    pub(crate) fn pmu_capacities(&self, columns: &[Column]) -> Vec<PmuCapacity> {
        let capacity = |unit: &Unit| {
            let mut asked = columns.iter().filter(|column| column.is_scarce() && column.pmu == unit.pmu).peekable();
            asked.peek()?;
            let (mut known, tried) = self.capacity(unit)?;
            let of = |column: &Column| {
                let (_, capacity) = tried.iter().find(|(tried, _)| *tried == capacity_key(&column.attr))?;
                Some((column.event.name.clone(), *capacity))
            };
            for (name, capacity) in asked.filter_map(of) {
                if known.events.iter().all(|(other, _)| *other != name) {
                    known.events.push((name, capacity));
                }
            }
            Some(known)
        };
        self.inner.mux.units.with(|units| units.iter().filter_map(capacity).collect())
    }
}

/// The PMU of the cores: type 4 belongs to it, or to the first of several kinds; some architectures give it a number
/// like any other.
fn find_core(catalog: &Catalog) -> CorePmu {
    let pmus = catalog.pmu_names().into_iter().flatten().filter_map(|name| catalog.pmu(name).ok());
    let cores: Vec<_> = pmus.filter(|pmu| pmu.role().is_ok_and(|role| role == PmuRole::Core)).collect();
    let raw = EventType::RAW;
    let core = cores.iter().find(|pmu| pmu.kind() == raw.0).or_else(|| cores.first());
    match core {
        Some(pmu) => CorePmu { kind: EventType(pmu.kind()), name: pmu.name().to_owned() },
        None => CorePmu { kind: raw, name: "cpu".to_owned() },
    }
}
