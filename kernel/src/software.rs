//! Software events for the engine: what the kernel itself knows of each task and each CPU.
//!
//! Linux: `perf_swevent_event`, `task_clock_event_read` (kernel/events/core.c).
//!
//! What it is: the scheduler and the page-fault handler add to [`Totals`], whether an event counts or not. An event holds a
//! [`Word`] from its opening to its closing, which says where the total stood when it was started.

use crate::arch;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling, sw};
use pmux_engine::pmu::{
    Delegated, EventSpec, OverflowBy, ParseError, PmuCaps, PmuModel, Program, Slot, SlotMask, Slots,
};
use pmux_engine::{Cred, PmuId};

/// What can be counted.
pub struct Software;

impl PmuModel for Software {
    fn caps(&self) -> &PmuCaps {
        const CAPS: PmuCaps = PmuCaps {
            slots: Slots::Plenty,
            width_bits: 64,
            delegated: Delegated::empty(),
            overflow: OverflowBy::Interrupt,
        };
        &CAPS
    }

    fn parse(&self, pmu: PmuId, attr: &Attr) -> Result<EventSpec, ParseError> {
        let known = matches!(attr.config, sw::CPU_CLOCK | sw::TASK_CLOCK | sw::PAGE_FAULTS | sw::PAGE_FAULTS_MIN);
        if attr.kind != EventType::SOFTWARE || !known {
            return Err(ParseError::NoSuchEvent);
        }
        // The kernel has no page faults, and clocks do not stand still in it.
        if attr.sampling != Sampling::default() || attr.flags.contains(AttrFlags::EXCLUDE_USER) {
            return Err(ParseError::NotSupported);
        }
        Ok(EventSpec { pmu, attr: *attr, allowed: SlotMask::ALL, claim: None, cred: Cred::HOST })
    }
}

/// What has happened in a task since it began, or on a CPU since it came.
#[derive(Default)]
pub struct Totals {
    faults: AtomicU64,
    /// For how long it ran before it began to run last, in ns.
    ran_ns: AtomicU64,
    /// Since when it runs; 0 while it does not.
    since_ns: AtomicU64,
}

impl Totals {
    /// A CPU begins to run it. With interrupts off, on that CPU.
    pub fn runs(&self) {
        self.since_ns.store(arch::now_ns(), Ordering::Relaxed);
    }

    /// A CPU runs it no longer. With interrupts off, on that CPU.
    pub fn rests(&self) {
        let since_ns = self.since_ns.swap(0, Ordering::Relaxed);
        self.ran_ns.fetch_add(arch::now_ns() - since_ns, Ordering::Relaxed);
    }

    /// For how long it ran, in ns. Of the task that calls.
    pub fn ran_ns(&self) -> u64 {
        self.of(sw::TASK_CLOCK)
    }

    /// It came to a page that was not there.
    pub fn faults(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    /// Where the total of an event stands: looked at where it runs, or while it does not.
    fn of(&self, event: u64) -> u64 {
        match event {
            sw::PAGE_FAULTS | sw::PAGE_FAULTS_MIN => self.faults.load(Ordering::Relaxed),
            _ => {
                let since_ns = self.since_ns.load(Ordering::Relaxed);
                let running_ns = if since_ns == 0 { 0 } else { arch::now_ns() - since_ns };
                self.ran_ns.load(Ordering::Relaxed) + running_ns
            }
        }
    }
}

/// A counter of one event.
#[derive(Clone, Copy, Default)]
struct Word {
    event: u64,
    value: u64,
    /// Where the total stood when `value` was made, while it runs.
    from: Option<u64>,
}

/// The counters of a task, or of a CPU.
pub struct Words {
    totals: Arc<Totals>,
    words: Vec<Word>,
}

impl Words {
    /// Without counters yet.
    pub fn new(totals: Arc<Totals>) -> Self {
        Self { totals, words: Vec::new() }
    }

    /// [`pmux_engine::pmu::CounterBank::program`].
    pub fn program(&mut self, slot: Slot, program: &Program) {
        let at = slot.0 as usize;
        if self.words.len() <= at {
            self.words.resize(at + 1, Word::default());
        }
        self.words[at] = Word { event: program.spec.attr.config, value: program.start, from: None };
    }

    /// It counts from now on.
    pub fn start(&mut self, slot: Slot) {
        let word = &mut self.words[slot.0 as usize];
        word.from = Some(self.totals.of(word.event));
    }

    /// It counts no longer.
    pub fn stop(&mut self, slot: Slot) {
        self.value(slot);
        self.words[slot.0 as usize].from = None;
    }

    /// What it has counted.
    pub fn value(&mut self, slot: Slot) -> u64 {
        let word = &mut self.words[slot.0 as usize];
        if let Some(from) = &mut word.from {
            let total = self.totals.of(word.event);
            word.value += total - *from;
            *from = total;
        }
        word.value
    }

    /// It counts nothing.
    pub fn release(&mut self, slot: Slot) {
        self.words[slot.0 as usize] = Word::default();
    }
}
