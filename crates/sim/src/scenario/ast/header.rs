//! The head of a scenario: what it shows, the machine, and what it needs.
//!
//! **Invariant:** plain data. What a profile stands for, and what is taken where a part is not said, the simulated machine
//! knows (`crate::machine`).

use pmux_engine::Nanos;
use pmux_engine::pmu::OverflowBy;
use pmux_engine::share::Sharing;

use super::SourceSpan;
use crate::machine::Reach;

/// Everything before the first statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The comment lines at the top of the file, without `#` and the blank behind it: what the scenario shows.
    pub about: Vec<String>,
    /// The machine that the simulator builds. On a kernel it is what it is, and this line says nothing.
    pub machine: MachineSpec,
    /// What the scenario needs, as written.
    pub requires: Vec<Required>,
    /// Why it runs on the simulator only, if it does.
    pub sim_only: Option<SimOnly>,
}

/// `sim only: REASON`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimOnly {
    /// The reason, one line, never empty.
    pub reason: String,
    /// Where it is said.
    pub place: SourceSpan,
}

/// One word of the `requires:` line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Required {
    /// What is needed.
    pub requirement: Requirement,
    /// Where it is said.
    pub place: SourceSpan,
}

/// Something that a machine has or has not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Requirement {
    /// `pmu`: hardware counters.
    Pmu,
    /// `counters=N`: exactly so many counters that take the events of the scenario.
    Counters(u32),
    /// `breakpoints`: debug registers for data, however many.
    Breakpoints,
    /// `breakpoints=N`: exactly so many debug registers for data on each CPU.
    BreakpointSlots(u32),
    /// `cpus=N`: at least so many CPUs online.
    Cpus(u32),
    /// `root`: the right to count whole CPUs and the kernel.
    Root,
    /// `hotplug`: the right and the means to take CPUs offline (never CPU 0).
    Hotplug,
    /// `kernel`: a kernel whose `perf_event_open` works. Every scenario that is not `sim only` needs it there anyway; the
    /// word says that the scenario shows nothing on the simulator, which skips it.
    Kernel,
    /// `lab`: the virtual machine with a known PMU.
    Lab,
}

/// `machine KEY=VALUE …`: what the simulator builds. `None` and empty lists are what was not said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MachineSpec {
    /// `profile=NAME`: one of [`crate::machine::profiles::NAMES`], on which the other keys are changes.
    pub profile: Option<String>,
    /// `cpus=N`: CPUs, 1 to [`super::MAX_CPUS`].
    pub cpus: Option<u32>,
    /// `counters=N`: general counters on each CPU, 0 to 64.
    pub counters: Option<u8>,
    /// `width=N`: bits of a counter, 1 to 64.
    pub width_bits: Option<u8>,
    /// `fixed=cycles,instructions`: events that have a counter of their own beside the general ones, which no other event
    /// can take.
    pub fixed: Vec<String>,
    /// `constrained=cache-misses:0-1,branches:3`: events that only some of the general counters take.
    pub constrained: Vec<Constraint>,
    /// `overflow=interrupt|nmi|poll`: how the engine learns that a counter wrapped.
    pub overflow: Option<OverflowBy>,
    /// `callers=everywhere|own-cpu`: whose registers a caller reaches.
    pub callers: Option<Reach>,
    /// `sharing=on|off`: whether equal events use one counter.
    pub sharing: Option<Sharing>,
    /// `breakpoints=4` or `breakpoints=6x+4rw`: debug registers on each CPU.
    pub breakpoints: Option<DebugRegisters>,
    /// `tick=1ms`: the time between two ticks of a CPU's timer.
    pub tick: Option<Nanos>,
    /// `seed=N`: where whatever is random begins.
    pub seed: Option<u64>,
    /// Where it is said.
    pub place: SourceSpan,
}

/// An event and the general counters that take it, ascending, each once, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Constraint {
    /// The event, by its name.
    pub event: String,
    /// The counters, from 0.
    pub slots: Vec<u8>,
}

/// The debug registers of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugRegisters {
    /// So many, each for code or for data.
    Shared(u32),
    /// Some for code, some for data.
    Separate {
        /// How many watch code.
        execute: u32,
        /// How many watch data.
        data: u32,
    },
}
