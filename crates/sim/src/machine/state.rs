//! What a machine remembers: CPUs, tasks, and how much of everything has happened.
//!
//! What it is: for each CPU and each task a running total of each kind of occurrence, which is not counted up but computed
//! when it is asked for: so much until the last change, and since then rate times time.
//! Read first: [`State::cpu_total`], then `registers` (what counters make of it) and `ledger` (what is true of it).
//!
//! **Invariant:** letting time pass costs nothing; a switch costs as much as the kinds that happen, whatever the numbers of
//! CPUs and tasks.

use super::faults::{Faults, InjectedFault};
use super::ledger::{Event, EventLedger, Shelf};
use super::registers::{Banks, RegisterKey};
use super::samples::{SampleStats, Taken};
use super::time::Attention;
use super::trace::Timeline;
use super::views::AtCall;
use crate::check::Violation;
use crate::machine::{Description, KINDS, Kind, Rates};
use pmux_engine::{CpuId, Nanos, PmuId, TaskId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Rates that tasks have, each once.
pub(crate) struct RateTable {
    tables: Vec<(Rates, Vec<Kind>)>,
    by_rates: HashMap<Rates, u32>,
}

/// Rates, as an index into the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RatesId(u32);

impl RatesId {
    /// Not even time goes by.
    pub(crate) const GONE: Self = Self(0);
    /// Only time goes by.
    pub(crate) const IDLE: Self = Self(1);
}

impl RateTable {
    fn new() -> Self {
        let mut table = Self { tables: Vec::new(), by_rates: HashMap::new() };
        table.intern(&Rates::GONE);
        table.intern(&Rates::idle());
        table
    }

    pub(crate) fn intern(&mut self, rates: &Rates) -> RatesId {
        if let Some(&id) = self.by_rates.get(rates) {
            return RatesId(id);
        }
        let id = self.tables.len() as u32;
        self.tables.push((rates.clone(), rates.active().collect()));
        self.by_rates.insert(rates.clone(), id);
        RatesId(id)
    }

    #[inline]
    pub(crate) fn get(&self, id: RatesId) -> &Rates {
        &self.tables[id.0 as usize].0
    }

    fn active(&self, id: RatesId) -> &[Kind] {
        &self.tables[id.0 as usize].1
    }
}

#[derive(Default)]
pub(crate) struct Cpu {
    pub(crate) online: bool,
    /// Whether it is about to go: its registers can still be read, but no task comes here any more.
    pub(crate) going: bool,
    /// The task that runs here: what happens is counted for it.
    pub(crate) current: Option<TaskId>,
    /// Who will run here when the switch is done; `current` at all other times.
    pub(crate) incoming: Option<TaskId>,
    /// When totals were settled last.
    since: u64,
    /// For how long the current task had run at its rates then.
    elapsed: u64,
    rates: RatesId,
    base: [u64; KINDS],
    pub(crate) bank: Option<u32>,
    pub(crate) shelf: Shelf,
    /// When something may happen here by itself: never later, perhaps sooner.
    pub(crate) due: u64,
    /// When the last interrupt of its counters comes that is on its way, if that is still to be.
    pub(crate) interrupt_at: u64,
    /// How many open groups want this CPU, whatever runs on it.
    pub(crate) wanted: u32,
    /// Who waits for a turn here, beside the current task.
    pub(super) queue: std::collections::VecDeque<TaskId>,
}

impl Cpu {
    fn new() -> Self {
        Self { online: true, rates: RatesId::IDLE, due: u64::MAX, ..Self::default() }
    }

    /// Whether its timer ticks: an idle CPU that no open group wants gets no ticks.
    pub(crate) fn ticks(&self) -> bool {
        self.online && (self.current.is_some() || self.wanted > 0)
    }
}

pub(crate) struct SimTask {
    /// Where it is, as the host says: a switch changes it before the engine is told.
    pub(crate) on: Option<CpuId>,
    /// Where it runs when it runs.
    pub(crate) home: CpuId,
    pub(crate) last: Option<CpuId>,
    pub(super) rates: RatesId,
    base: [u64; KINDS],
    /// For how long it has run at its rates, while it is no CPU's `current`.
    elapsed: u64,
    /// Which CPU it is `current` on.
    runs_on: Option<CpuId>,
    /// At which of its own times its turn ends.
    pub(crate) turn_end: Option<u64>,
    /// Whether it has, and the driver has not done anything about it yet.
    pub(crate) turn_over: bool,
    /// In how many places of queues it waits for a turn.
    waits: u32,
    pub(crate) shelf: Shelf,
    pub(crate) bank: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueueEnd {
    Tail,
    Head,
}

/// Something that will come by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum PendingIrq {
    Doorbell(CpuId),
    /// An interrupt of counters, held up on its way.
    Counters(CpuId),
}

pub(crate) struct State {
    pub(crate) now: u64,
    pub(crate) cpus: Vec<Cpu>,
    tasks: Vec<Option<Box<SimTask>>>,
    pub(crate) rates: RateTable,
    pub(crate) banks: Banks,
    pub(crate) ledger: EventLedger,
    /// When something may happen by itself on any CPU: never later, perhaps sooner.
    pub(crate) due: u64,
    pub(crate) next_tick: u64,
    pub(crate) rings: BinaryHeap<Reverse<(u64, u64, PendingIrq)>>,
    rings_so_far: u64,
    pub(super) faults: Faults,
    pub(crate) injected: Option<InjectedFault>,
    /// The event that is told to count something else at the moment.
    pub(crate) changing: Option<Event>,
    pub(crate) timeline: Option<Timeline>,
    /// What the machine itself has seen going wrong.
    pub(crate) breaches: Vec<Violation>,
    pub(crate) widths: Vec<Width>,
    pub(crate) random: fastrand::Rng,
    /// What the driver must be asked.
    pub(super) attention: Vec<Attention>,
    /// Samples that the engine has not been told of yet; and what became of those of events that have a ring.
    pub(crate) samples: Vec<Taken>,
    pub(crate) sample_stats: HashMap<Event, SampleStats>,
    /// How many samples masters have taken.
    pub(super) numbers: HashMap<Event, u64>,
    /// Counters that a machine that does not do what it says has not started yet.
    pub(crate) late: Vec<RegisterKey>,
    /// Where callers wait and counters are shared: see [`State::note_masters`].
    pub(crate) at_call: AtCall,
    pub(crate) half: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Width {
    pub(crate) mask: u64,
    /// How many slots, where they are scarce.
    pub(crate) scarce: Option<u8>,
    pub(crate) overflow: pmux_engine::pmu::OverflowBy,
}

impl State {
    pub(crate) fn new(description: &Description, seed: u64) -> Self {
        let width = |pmu: &crate::machine::PmuDescription| Width {
            mask: pmu.capacity().map_or(u64::MAX, |capacity| capacity - 1),
            scarce: if let pmux_engine::pmu::Slots::Scarce(count) = pmu.slots { Some(count) } else { None },
            overflow: pmu.overflow,
        };
        Self {
            now: 0,
            cpus: (0..description.cpus).map(|_| Cpu::new()).collect(),
            tasks: Vec::new(),
            rates: RateTable::new(),
            banks: Banks::default(),
            ledger: EventLedger::default(),
            due: u64::MAX,
            next_tick: description.tick.0,
            rings: BinaryHeap::new(),
            rings_so_far: 0,
            faults: Faults::default(),
            injected: None,
            changing: None,
            timeline: (description.trace == crate::machine::Trace::On).then(Timeline::default),
            breaches: Vec::new(),
            widths: description.pmus.iter().map(width).collect(),
            random: fastrand::Rng::with_seed(seed),
            attention: Vec::new(),
            samples: Vec::new(),
            sample_stats: HashMap::new(),
            numbers: HashMap::new(),
            late: Vec::new(),
            at_call: AtCall::default(),
            half: false,
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    #[inline]
    pub(crate) fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.0 as usize]
    }

    #[inline]
    pub(crate) fn cpu_mut(&mut self, cpu: CpuId) -> &mut Cpu {
        &mut self.cpus[cpu.0 as usize]
    }

    #[inline]
    pub(crate) fn task(&self, task: TaskId) -> Option<&SimTask> {
        self.tasks.get(task.0 as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn task_mut(&mut self, task: TaskId) -> Option<&mut SimTask> {
        self.tasks.get_mut(task.0 as usize)?.as_deref_mut()
    }

    /// A task that begins to exist, with a number that was never used.
    pub(crate) fn new_task(&mut self, home: CpuId, rates: RatesId) -> TaskId {
        let id = TaskId(self.tasks.len() as u64);
        self.tasks.push(Some(Box::new(SimTask {
            on: None,
            home,
            last: None,
            rates,
            base: [0; KINDS],
            elapsed: 0,
            runs_on: None,
            turn_end: None,
            turn_over: false,
            waits: 0,
            shelf: Shelf::default(),
            bank: None,
        })));
        id
    }

    /// A task waits for a turn on a CPU: at the end of the queue there, or at its head.
    pub(crate) fn queue_up(&mut self, cpu: CpuId, task: TaskId, whereto: QueueEnd) {
        if let Some(task) = self.task_mut(task) {
            task.waits += 1;
        }
        let queue = &mut self.cpu_mut(cpu).queue;
        match whereto {
            QueueEnd::Tail => queue.push_back(task),
            QueueEnd::Head => queue.push_front(task),
        }
    }

    /// Takes the next one out of the queue of a CPU.
    pub(crate) fn next_in_queue(&mut self, cpu: CpuId) -> Option<TaskId> {
        let next = self.cpu_mut(cpu).queue.pop_front()?;
        if let Some(task) = self.task_mut(next) {
            task.waits -= 1;
        }
        Some(next)
    }

    /// No task waits for a turn on a CPU any more.
    pub(crate) fn clear_queue(&mut self, cpu: CpuId) {
        while self.next_in_queue(cpu).is_some() {}
    }

    /// A task waits for no turn any more.
    fn leave_queues(&mut self, task: TaskId) {
        if self.task(task).is_none_or(|task| task.waits == 0) {
            return;
        }
        for cpu in &mut self.cpus {
            cpu.queue.retain(|&other| other != task);
        }
    }

    /// A task ends; it must be on no CPU.
    pub(crate) fn end_task(&mut self, task: TaskId) {
        self.leave_queues(task);
        if let Some(slot) = self.tasks.get_mut(task.0 as usize) {
            *slot = None;
        }
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().enumerate().filter(|(_, task)| task.is_some()).map(|(id, _)| TaskId(id as u64))
    }

    /// How often a kind has happened on a CPU so far.
    #[inline]
    pub(crate) fn cpu_total(&self, cpu: CpuId, kind: Kind) -> u64 {
        let it = self.cpu(cpu);
        let rate = self.rates.get(it.rates).of(kind);
        let (before, after) = (it.elapsed, it.elapsed + (self.now - it.since));
        it.base[kind.index()].wrapping_add(rate.after(after)).wrapping_sub(rate.after(before))
    }

    /// How often a kind has happened to a task so far; 0 for one that ended.
    #[inline]
    pub(crate) fn task_total(&self, task: TaskId, kind: Kind) -> u64 {
        let Some(it) = self.task(task) else { return 0 };
        let elapsed = it.runs_on.map_or(it.elapsed, |cpu| self.at_these_rates(cpu));
        it.base[kind.index()].wrapping_add(self.rates.get(it.rates).of(kind).after(elapsed))
    }

    /// For how long the task on a CPU has run at its rates.
    pub(crate) fn at_these_rates(&self, cpu: CpuId) -> u64 {
        let it = self.cpu(cpu);
        it.elapsed + (self.now - it.since)
    }

    pub(crate) fn run_time(&self, task: TaskId) -> u64 {
        self.task_total(task, Kind::CPU_CLOCK)
    }

    fn settle(&mut self, cpu: CpuId) {
        let (now, table) = (self.now, &self.rates);
        let it = &mut self.cpus[cpu.0 as usize];
        let passed = now - it.since;
        if passed == 0 {
            return;
        }
        let rates = table.get(it.rates);
        for &kind in table.active(it.rates) {
            let rate = rates.of(kind);
            let happened = rate.after(it.elapsed + passed).wrapping_sub(rate.after(it.elapsed));
            it.base[kind.index()] = it.base[kind.index()].wrapping_add(happened);
        }
        it.elapsed += passed;
        it.since = now;
    }

    /// Another task runs on a CPU from now on, or none.
    pub(crate) fn set_current(&mut self, cpu: CpuId, next: Option<TaskId>) {
        self.settle(cpu);
        let elapsed = self.cpu(cpu).elapsed;
        if let Some(out) = self.cpu(cpu).current.and_then(|out| self.task_mut(out)) {
            out.elapsed = elapsed;
            out.runs_on = None;
        }
        let comes = next.and_then(|next| self.task_mut(next)).map(|next| {
            next.runs_on = Some(cpu);
            next.last = Some(cpu);
            (next.elapsed, next.rates)
        });
        let it = self.cpu_mut(cpu);
        let no_task = if it.online { RatesId::IDLE } else { RatesId::GONE };
        (it.elapsed, it.rates) = comes.unwrap_or((0, no_task));
        it.current = next;
        it.incoming = next;
    }

    pub(crate) fn set_rates(&mut self, task: TaskId, rates: RatesId) {
        let Some(runs_on) = self.task(task).map(|task| task.runs_on) else { return };
        if let Some(cpu) = runs_on {
            self.settle(cpu);
        }
        let elapsed = runs_on.map(|cpu| self.cpu(cpu).elapsed);
        let table = &self.rates;
        let Some(it) = self.tasks.get_mut(task.0 as usize).and_then(|task| task.as_deref_mut()) else { return };
        let elapsed = elapsed.unwrap_or(it.elapsed);
        for &kind in table.active(it.rates) {
            let happened = table.get(it.rates).of(kind).after(elapsed);
            it.base[kind.index()] = it.base[kind.index()].wrapping_add(happened);
        }
        (it.elapsed, it.rates) = (0, rates);
        if let Some(cpu) = runs_on {
            let it = self.cpu_mut(cpu);
            (it.elapsed, it.rates) = (0, rates);
            self.plan(cpu);
        }
    }

    pub(crate) fn rates_on(&self, cpu: CpuId) -> &Rates {
        self.rates.get(self.cpu(cpu).rates)
    }

    /// Something happens now, so many times, on a CPU, and to the task that runs there if there is one.
    pub(crate) fn happen(&mut self, cpu: CpuId, task: Option<TaskId>, kind: Kind, times: u64) {
        let add = |base: &mut [u64; KINDS]| base[kind.index()] = base[kind.index()].wrapping_add(times);
        add(&mut self.cpu_mut(cpu).base);
        if let Some(task) = task.and_then(|task| self.task_mut(task)) {
            add(&mut task.base);
        }
    }

    /// A CPU comes or goes; no task may run on it.
    pub(crate) fn set_online(&mut self, cpu: CpuId, online: bool) {
        self.settle(cpu);
        let it = self.cpu_mut(cpu);
        it.online = online;
        it.rates = if online { RatesId::IDLE } else { RatesId::GONE };
        it.elapsed = 0;
        self.plan(cpu);
    }

    /// Finds out when something may happen on a CPU by itself: a turn ends, a counter wraps.
    pub(crate) fn plan(&mut self, cpu: CpuId) {
        let mut due = self.next_wrap(cpu);
        if let Some(id) = self.cpu(cpu).current
            && let Some(end) = self.task(id).and_then(|task| task.turn_end)
        {
            due = due.min(self.now.saturating_add(end.saturating_sub(self.run_time(id))));
        }
        self.cpu_mut(cpu).due = due;
        self.due = self.due.min(due);
        self.hurry_interrupt(cpu);
    }

    /// Lets the counters of a CPU interrupt so much later, but before one of them has gone round.
    pub(crate) fn interrupt_later(&mut self, cpu: CpuId, delay: u64) {
        let delay = delay.min(self.slack(cpu));
        self.ring_later(PendingIrq::Counters(cpu), delay);
        let at = self.now.saturating_add(delay);
        let last = &mut self.cpu_mut(cpu).interrupt_at;
        *last = at.max(*last);
    }

    /// An interrupt that is on its way comes sooner where counters have become faster since.
    fn hurry_interrupt(&mut self, cpu: CpuId) {
        let at = self.cpu(cpu).interrupt_at;
        if at > self.now {
            let slack = self.slack(cpu);
            if self.now.saturating_add(slack) < at {
                self.ring_later(PendingIrq::Counters(cpu), slack);
                self.cpu_mut(cpu).interrupt_at = self.now + slack;
            }
        }
    }

    pub(crate) fn turn_ended(&self, cpu: CpuId) -> Option<TaskId> {
        let id = self.cpu(cpu).current?;
        self.task(id)?.turn_end.is_some_and(|end| self.run_time(id) >= end).then_some(id)
    }

    /// Something will come by itself after `delay`.
    pub(crate) fn ring_later(&mut self, ring: PendingIrq, delay: u64) {
        self.rings_so_far += 1;
        self.rings.push(Reverse((self.now.saturating_add(delay), self.rings_so_far, ring)));
    }

    pub(crate) fn breach(&mut self, violation: Violation) {
        // The first ones tell the most.
        if self.breaches.len() < 64 {
            self.breaches.push(violation);
        }
    }

    pub(crate) fn first_online(&self) -> CpuId {
        CpuId(self.cpus.iter().position(|cpu| cpu.online).unwrap_or(0) as u32)
    }

    /// The capacity of the widest gap that the narrowest of a PMU's counters leaves: none where it never wraps.
    pub(crate) fn width(&self, pmu: PmuId) -> Option<Width> {
        self.widths.get(usize::from(pmu.0)).copied()
    }
}
