//! Registers: what a counter holds, and what is true meanwhile.
//!
//! What it is: the banks of a machine. A register's value is as narrow as its PMU's counters; each time it is looked at, what
//! happened since the last look is added to it, and to the truth of the event that it is programmed for.
//! Read first: [`State::fold`].
//!
//! **Invariant:** a register counts all that happens on its CPU while it is started; the truth takes of that only what
//! belongs to the event. Where the engine lets the two differ, a breach is noted.

use super::faults::InjectedFault;
use super::ledger::{Activity, Event, Home};
use super::model::CountedEvent;
use super::samples;
use super::state::State;
use super::trace::{Happening, Refusal};
use crate::check::{Checker, Violation};
use crate::machine::Kind;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::pmu::{BankError, Lease, Program, Slot, SlotReading, SlotTime};
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, Nanos, PmuId};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct RegisterKey {
    pub(crate) bank: u32,
    pub(crate) pmu: PmuId,
    pub(crate) slot: Slot,
}

pub(crate) struct Register {
    pub(crate) generation: u64,
    pub(crate) tag: u32,
    /// The site for which what happens is noted; `None` where that would not be true.
    pub(crate) site: Option<u32>,
    pub(crate) counted: CountedEvent,
    /// After how often it asks for a sample; 0 if it doesn't.
    pub(crate) period: u64,
    only_on: Option<CpuId>,
    pub(super) value: u64,
    /// Where the total and the clock stood at the last look.
    pub(crate) mark: Activity,
    pub(crate) started: bool,
    /// What was added since the last successful reading.
    pub(super) unread: u64,
    /// Whether a reading was refused since.
    withheld: bool,
    pub(crate) pinned: bool,
    pub(crate) in_group: bool,
    /// Since when its span of the timeline lasts.
    pub(crate) span_from: u64,
}

#[derive(Default)]
pub(crate) struct PmuRegisters {
    pub(crate) slots: Vec<Option<Register>>,
    /// Those that are started, of the first 64.
    pub(crate) started: u64,
    pub(super) wrapped: u64,
}

pub(crate) struct BankState {
    pub(crate) key: ContextKey,
    pub(crate) pmus: Vec<PmuRegisters>,
    pub(crate) programmed: u32,
    pub(crate) started: u32,
}

impl BankState {
    fn new(key: ContextKey, pmus: usize) -> Self {
        let pmus = (0..pmus).map(|_| PmuRegisters::default()).collect();
        Self { key, pmus, programmed: 0, started: 0 }
    }
}

#[derive(Default)]
pub(crate) struct Banks {
    banks: Vec<Option<BankState>>,
    free: Vec<u32>,
    /// Empty ones, for their memory: tasks come and go.
    spare: Vec<BankState>,
}

impl Banks {
    fn add(&mut self, key: ContextKey, pmus: usize) -> u32 {
        let bank = match self.spare.pop() {
            Some(spare) => BankState { key, ..spare },
            None => BankState::new(key, pmus),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.banks.push(None);
            self.banks.len() as u32 - 1
        });
        self.banks[index as usize] = Some(bank);
        index
    }

    fn remove(&mut self, index: u32) {
        let Some(mut bank) = self.banks.get_mut(index as usize).and_then(Option::take) else { return };
        for registers in &mut bank.pmus {
            registers.slots.clear();
            (registers.started, registers.wrapped) = (0, 0);
        }
        (bank.programmed, bank.started) = (0, 0);
        self.spare.push(bank);
        self.free.push(index);
    }

    #[inline]
    fn get_mut(&mut self, index: u32) -> Option<&mut BankState> {
        self.banks.get_mut(index as usize)?.as_mut()
    }

    /// By number; `None` where there is none.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Option<BankState>> {
        self.banks.iter()
    }
}

pub(crate) const fn bit(slot: Slot) -> u64 {
    if slot.0 < 64 { 1 << slot.0 } else { 0 }
}

impl State {
    #[inline]
    pub(crate) fn bank(&self, bank: u32) -> Option<&BankState> {
        self.banks.banks.get(bank as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn registers(&mut self, bank: u32, pmu: PmuId) -> Option<&mut PmuRegisters> {
        self.banks.get_mut(bank)?.pmus.get_mut(usize::from(pmu.0))
    }

    #[inline]
    pub(crate) fn register(&self, key: RegisterKey) -> Option<&Register> {
        self.bank(key.bank)?.pmus.get(usize::from(key.pmu.0))?.slots.get(key.slot.0 as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn register_mut(&mut self, key: RegisterKey) -> Option<&mut Register> {
        self.registers(key.bank, key.pmu)?.slots.get_mut(key.slot.0 as usize)?.as_mut()
    }

    /// The register that a lease names; a stale one is a breach.
    #[inline]
    fn leased(&mut self, bank: u32, lease: Lease) -> Option<RegisterKey> {
        let key = RegisterKey { bank, pmu: lease.pmu, slot: lease.slot };
        if self.register(key).is_some_and(|register| register.generation == lease.generation) {
            return Some(key);
        }
        self.stale(bank, lease);
        None
    }

    /// Where the total that a register follows stands.
    #[inline]
    pub(crate) fn total(&self, place: ContextKey, kind: Kind) -> u64 {
        match place {
            ContextKey::Cpu(cpu) => self.cpu_total(cpu, kind),
            ContextKey::Task(task) => self.task_total(task, kind),
        }
    }

    #[inline]
    pub(crate) fn mark(&self, place: ContextKey, counted: CountedEvent) -> Activity {
        let occurrences = match counted {
            CountedEvent::Kind(kind) => self.total(place, kind),
            // Accesses are added as they happen.
            CountedEvent::Access(_) => 0,
        };
        Activity { occurrences, time: Nanos(self.now) }
    }

    /// Adds to a started register, and to the truth, what happened since the last look.
    #[inline]
    pub(crate) fn fold(&mut self, key: RegisterKey) {
        let Some(place) = self.bank(key.bank).map(|bank| bank.key) else { return };
        let Some((before, counted)) = self.register(key).filter(|it| it.started).map(|it| (it.mark, it.counted)) else {
            return;
        };
        let mark = self.mark(place, counted);
        let passed = mark - before;
        if let Some(register) = self.register_mut(key) {
            register.mark = mark;
        }
        if passed != Activity::default() {
            self.add(key, passed);
        }
    }

    pub(crate) fn add(&mut self, key: RegisterKey, passed: Activity) {
        let mask = self.width(key.pmu).map_or(u64::MAX, |width| width.mask);
        let Some(registers) = self.registers(key.bank, key.pmu) else { return };
        let Some(register) = registers.slots.get_mut(key.slot.0 as usize).and_then(Option::as_mut) else { return };
        if passed.occurrences > mask - register.value {
            registers.wrapped |= bit(key.slot);
        }
        register.value = register.value.wrapping_add(passed.occurrences) & mask;
        register.unread = register.unread.wrapping_add(passed.occurrences);
        let (tag, site, period) = (register.tag, register.site, register.period);
        if let Some(site) = site.and_then(|site| self.ledger.site_mut(site)) {
            site.ran += passed;
            if let Some(tag) = self.ledger.tag_at(tag) {
                tag.ran += passed;
            }
        }
        if period > 0 {
            self.take_samples(key);
        }
    }

    pub(crate) fn program(&mut self, bank: u32, lease: Lease, program: &Program) -> Result<(), BankError> {
        let Some(place) = self.bank(bank).map(|bank| bank.key) else { return Err(BankError::Invalid) };
        let mut key = RegisterKey { bank, pmu: lease.pmu, slot: lease.slot };
        let Some(counted) = CountedEvent::of(&program.spec.attr) else { return Err(BankError::NoSuchEvent) };
        let event = Event::from_word(program.spec.attr.sig_data);
        let only_on = match program.filter {
            Filter::Everything => None,
            Filter::OnCpu(cpu) => Some(cpu),
            Filter::Cgroup(_) => return Err(BankError::NotSupported),
        };
        self.check_question(event, &program.spec.attr, counted);
        let site = self.site_for(event, place, only_on);
        if self.faults.any() {
            let plenty = self.width(lease.pmu).is_some_and(|width| width.scarce.is_none());
            if let Some(error) = self.faults.program(place, lease, plenty) {
                self.mark_refused(Some(event), bank, Refusal::Program);
                self.doubt(site);
                return Err(error);
            }
        }
        if self.injected == Some(InjectedFault::DoubleLease) {
            key.slot = self.another_slot(key);
        }
        self.check_slot(key, lease, program.spec.allowed, event);
        let width = self.width(key.pmu).map_or(u64::MAX, |width| width.mask);
        let Some(registers) = self.registers(bank, key.pmu) else { return Err(BankError::NoSuchEvent) };
        if registers.slots.len() <= key.slot.0 as usize {
            registers.slots.resize_with(key.slot.0 as usize + 1, || None);
        }
        registers.wrapped &= !bit(key.slot);
        registers.slots[key.slot.0 as usize] = Some(Register {
            generation: lease.generation,
            tag: event.index,
            site,
            counted,
            period: samples::period_of(&program.spec.attr).unwrap_or(0),
            only_on,
            value: program.start & width,
            mark: Activity::default(),
            started: false,
            unread: 0,
            withheld: false,
            pinned: program.spec.attr.flags.contains(AttrFlags::PINNED),
            in_group: program.group_size > 1,
            span_from: 0,
        });
        if let Some(bank) = self.banks.get_mut(bank) {
            bank.programmed += 1;
        }
        if let Some(tag) = self.ledger.tag_mut(event) {
            tag.programmed += 1;
        }
        Ok(())
    }

    /// The place where an event is counted by a bank: its own, or that of the task on the bank's CPU.
    fn site_for(&mut self, event: Event, bank: ContextKey, only_on: Option<CpuId>) -> Option<u32> {
        let home = self.ledger.tag(event).map(|tag| tag.home);
        let place = match (bank, home) {
            (ContextKey::Cpu(cpu), Some(Home::Task)) => self.cpu(cpu).incoming.map(ContextKey::Task),
            (ContextKey::Task(_), Some(Home::Cpu)) | (_, None) => None,
            (place, Some(_)) => Some(place),
        };
        if let Some(place) = place {
            return Some(self.site(event, place, only_on));
        }
        let violation = Violation::new(
            Checker::Foreign,
            self.now(),
            "a counter is programmed for an event that has no place there",
        );
        self.breach(violation.place(Some(bank)).event(event));
        None
    }

    /// An event asks what it was opened for, but for the one that is being changed.
    fn check_question(&mut self, event: Event, attr: &Attr, counted: CountedEvent) {
        let known = self.ledger.tag(event).map(|tag| tag.counted);
        if known.is_none_or(|known| known == counted) {
            return;
        }
        if self.changing == Some(event) {
            self.ledger.ask_anew(event, attr);
            return;
        }
        let what = "a counter is programmed for something else than its event is to count";
        let violation = Violation::new(Checker::Counts, self.now(), what);
        self.breach(violation.event(event));
    }

    fn doubt(&mut self, site: Option<u32>) {
        if let Some(site) = site.and_then(|site| self.ledger.site_mut(site)) {
            site.doubtful = true;
        }
    }

    pub(crate) fn start(&mut self, bank: u32, lease: Lease) -> Result<(), BankError> {
        let Some(key) = self.leased(bank, lease) else { return Err(BankError::Invalid) };
        if self.faults.any()
            && let Some(error) = self.faults.start()
        {
            let site = self.register(key).and_then(|register| register.site);
            self.mark_refused(self.event_on(key), bank, Refusal::Start);
            self.doubt(site);
            return Err(error);
        }
        if self.injected.is_some() && self.start_is_swallowed(key) {
            return Ok(());
        }
        self.set_going(key);
        Ok(())
    }

    pub(crate) fn set_going(&mut self, key: RegisterKey) {
        let Some(place) = self.bank(key.bank).map(|bank| bank.key) else { return };
        let Some(counted) = self.register(key).filter(|register| !register.started).map(|it| it.counted) else {
            return;
        };
        let (mark, now) = (self.mark(place, counted), self.now);
        let Some(register) = self.register_mut(key) else { return };
        register.started = true;
        register.mark = mark;
        register.span_from = now;
        let (tag, site) = (register.tag, register.site);
        if let Some(bank) = self.banks.get_mut(key.bank) {
            bank.started += 1;
            bank.pmus[usize::from(key.pmu.0)].started |= bit(key.slot);
        }
        if let Some(tag) = self.ledger.tag_at(tag) {
            tag.running.push(key);
        }
        let twice = site.and_then(|site| self.ledger.site_mut(site)).and_then(|site| site.running.replace(key));
        self.check_going(key, place, twice);
        if let ContextKey::Cpu(cpu) = place {
            let due = self.wrap_of(key, cpu).min(self.sample_due(key, cpu));
            let it = self.cpu_mut(cpu);
            it.due = it.due.min(due);
            self.due = self.due.min(due);
        }
    }

    pub(crate) fn stop(&mut self, bank: u32, lease: Lease) {
        if self.injected == Some(InjectedFault::KeepGoing) {
            return;
        }
        if let Some(key) = self.leased(bank, lease) {
            self.halt(key);
            if self.injected == Some(InjectedFault::LoseWhatWasNotRead) {
                self.take_back_unread(key);
            }
        }
    }

    /// The engine has no use for a bank any more.
    pub(crate) fn drop_bank(&mut self, index: u32) {
        let Some(bank) = self.bank(index) else { return };
        let programmed = bank.pmus.iter().enumerate().flat_map(|(pmu, registers)| {
            let taken = registers.slots.iter().enumerate().filter(|(_, register)| register.is_some());
            taken.map(move |(slot, _)| RegisterKey { bank: index, pmu: PmuId(pmu as u16), slot: Slot(slot as u32) })
        });
        let (programmed, key): (Vec<_>, _) = (programmed.collect(), bank.key);
        for key in programmed {
            self.vacate(key);
        }
        if let Some(noted) = self.noted_bank(key).filter(|noted| **noted == Some(index)) {
            *noted = None;
        }
        self.banks.remove(index);
    }

    pub(crate) fn new_bank(&mut self, key: ContextKey) -> u32 {
        let index = self.banks.add(key, self.widths.len());
        if let Some(noted) = self.noted_bank(key) {
            *noted = Some(index);
        }
        index
    }

    /// Where it is noted which bank a task or a CPU has.
    fn noted_bank(&mut self, key: ContextKey) -> Option<&mut Option<u32>> {
        match key {
            ContextKey::Cpu(cpu) => self.cpus.get_mut(cpu.0 as usize).map(|cpu| &mut cpu.bank),
            ContextKey::Task(task) => self.task_mut(task).map(|task| &mut task.bank),
        }
    }

    fn take_back_unread(&mut self, key: RegisterKey) {
        let mask = self.width(key.pmu).map_or(u64::MAX, |width| width.mask);
        if let Some(register) = self.register_mut(key) {
            register.value = register.value.wrapping_sub(register.unread) & mask;
        }
    }

    pub(crate) fn halt(&mut self, key: RegisterKey) {
        self.fold(key);
        let Some(register) = self.register_mut(key).filter(|register| register.started) else { return };
        register.started = false;
        let (tag, site) = (register.tag, register.site);
        if let Some(bank) = self.banks.get_mut(key.bank) {
            bank.started -= 1;
            bank.pmus[usize::from(key.pmu.0)].started &= !bit(key.slot);
        }
        if let Some(tag) = self.ledger.tag_at(tag)
            && let Some(at) = tag.running.iter().position(|&running| running == key)
        {
            tag.running.swap_remove(at);
        }
        if let Some(site) = site.and_then(|site| self.ledger.site_mut(site)) {
            site.running = site.running.filter(|&running| running != key);
        }
        if self.timeline.is_some() {
            self.end_span(key);
        }
    }

    pub(crate) fn read(&mut self, bank: u32, lease: Lease, strikes: bool) -> Result<SlotReading, BankError> {
        let Some(key) = self.leased(bank, lease) else { return Err(BankError::Invalid) };
        self.fold(key);
        let refused = if strikes && self.faults.any() { self.faults.read() } else { None };
        if let Some(error) = refused {
            self.withhold(bank, lease);
            return Err(error);
        }
        let Some(register) = self.register_mut(key) else { return Err(BankError::Invalid) };
        register.unread = 0;
        register.withheld = false;
        Ok(SlotReading { raw: register.value, time: SlotTime::Whole })
    }

    /// Reads several; where one is refused, nothing is known of any.
    pub(crate) fn read_group(
        &mut self,
        bank: u32,
        leases: &[Lease],
        out: &mut [SlotReading],
        strikes: bool,
    ) -> Result<(), BankError> {
        let refused = if strikes && self.faults.any() { leases.iter().find_map(|_| self.faults.read()) } else { None };
        for (lease, out) in leases.iter().zip(out) {
            match refused {
                Some(_) => self.withhold(bank, *lease),
                None => *out = self.read(bank, *lease, false)?,
            }
        }
        refused.map_or(Ok(()), Err)
    }

    fn event_on(&self, key: RegisterKey) -> Option<Event> {
        self.ledger.event_at(self.register(key)?.tag)
    }

    fn withhold(&mut self, bank: u32, lease: Lease) {
        let Some(key) = self.leased(bank, lease) else { return };
        self.mark_refused(self.event_on(key), bank, Refusal::Read);
        let Some(register) = self.register_mut(key) else { return };
        register.withheld = true;
        if let Some(site) = register.site.and_then(|site| self.ledger.site_mut(site)) {
            site.withheld = true;
        }
    }

    pub(crate) fn release(&mut self, bank: u32, lease: Lease) {
        if matches!(self.injected, Some(InjectedFault::IgnoreRelease | InjectedFault::KeepGoing)) {
            return;
        }
        if let Some(key) = self.leased(bank, lease) {
            self.vacate(key);
        }
    }

    pub(crate) fn vacate(&mut self, key: RegisterKey) {
        self.halt(key);
        let Some(registers) = self.registers(key.bank, key.pmu) else { return };
        let Some(register) = registers.slots.get_mut(key.slot.0 as usize).and_then(Option::take) else { return };
        self.note_lost(&register);
        if let Some(bank) = self.banks.get_mut(key.bank) {
            bank.programmed -= 1;
        }
        if let Some(tag) = self.ledger.tag_at(register.tag) {
            tag.programmed -= 1;
        }
    }

    /// What the machine itself withheld can't be in any count.
    fn note_lost(&mut self, register: &Register) {
        if !register.withheld || register.unread == 0 {
            return;
        }
        if let Some(site) = register.site.and_then(|site| self.ledger.site_mut(site)) {
            site.lost += register.unread;
            if let Some(tag) = self.ledger.tag_at(register.tag) {
                tag.lost += register.unread;
            }
        }
        if let Some(event) = self.ledger.event_at(register.tag) {
            self.note(Happening::Lost(event, register.unread));
        }
    }

    pub(crate) fn hand_over(&mut self, bank: u32, from: Lease, to: Lease) -> Result<SlotReading, BankError> {
        let Some(key) = self.leased(bank, from) else { return Err(BankError::Invalid) };
        if self.faults.any()
            && let Some(error) = self.faults.hand_over()
        {
            self.mark_refused(self.event_on(key), bank, Refusal::HandOver);
            return Err(error);
        }
        self.fold(key);
        if self.injected == Some(InjectedFault::LoseHandedOver) {
            self.take_back_unread(key);
        }
        let Some((tag, only_on, started)) = self.register(key).map(|it| (it.tag, it.only_on, it.started)) else {
            return Err(BankError::Invalid);
        };
        // The truth changes hands with the register.
        let place = self.bank(bank).map(|bank| bank.key);
        let site = self.ledger.event_at(tag).zip(place).and_then(|(event, place)| self.site_for(event, place, only_on));
        if started {
            if self.timeline.is_some() {
                self.end_span(key);
            }
            let before = self.register(key).and_then(|register| register.site);
            if let Some(before) = before.and_then(|site| self.ledger.site_mut(site)) {
                before.running = before.running.filter(|&running| running != key);
            }
            let twice = site.and_then(|site| self.ledger.site_mut(site)).and_then(|site| site.running.replace(key));
            if let (Some(place), Some(_)) = (place, twice) {
                self.check_going(key, place, twice);
            }
        }
        let now = self.now;
        let Some(register) = self.register_mut(key) else { return Err(BankError::Invalid) };
        register.generation = to.generation;
        register.site = site;
        register.unread = 0;
        register.withheld = false;
        register.span_from = now;
        let reading = SlotReading { raw: register.value, time: SlotTime::Whole };
        if started {
            self.mark_handed_over(key);
        }
        Ok(reading)
    }
}
