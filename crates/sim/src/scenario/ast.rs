//! What a scenario says, as data.
//!
//! What it is: the head (what it shows, the machine, what it needs) and the statements in their order. Shared by the
//! parser, the printer, the minimiser and every runner.
//! Read first: [`Scenario`], then [`Statement`]; expectations are in [`Expectation`].
//!
//! **Invariant:** plain data, compared by what it says and not by where it stood. Whatever [`crate::scenario::parse()`]
//! accepts has names that are defined, CPUs that exist, and so on, only after [`crate::scenario::check()`].

mod basic;
mod event_set;
mod expect;
mod header;

pub use basic::{CpuList, Decimal, Errno, MAX_CPUS, Name, SourceSpan, duration_text};
pub use event_set::{EventSet, Switching, Trigger};
pub use expect::{
    Attribute, Comparison, Expectation, Expr, Operator, Part, Relation, StateExpectation, StateRelation, Subject,
    Tolerance, Window,
};
pub use header::{Constraint, DebugRegisters, Header, MachineSpec, Required, Requirement, SimOnly};

use std::collections::BTreeSet;

use pmux_engine::{CpuId, Nanos};

pub use crate::machine::{Access as AccessKind, MachineFault as Fault};
pub use crate::oracle::ring::Mode as RingMode;
pub use pmux_engine::engine::Exec;

/// A whole file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scenario {
    /// What stands before the statements.
    pub header: Header,
    /// The statements, in their order.
    pub steps: Vec<Step>,
}

/// The CPUs of the simulated machine where neither the file nor its requirements say a number.
pub const DEFAULT_CPUS: u32 = 2;

/// The CPUs of the lab, where no requirement asks for more.
pub const LAB_CPUS: u32 = 4;

impl Scenario {
    /// How many CPUs the simulated machine has: what `machine cpus=` says; else what `requires:` asks for, and at least
    /// [`DEFAULT_CPUS`].
    #[must_use]
    pub fn cpus(&self) -> u32 {
        let required = self.requirements().filter_map(|requirement| match requirement {
            Requirement::Cpus(cpus) => Some(cpus),
            Requirement::Lab => Some(LAB_CPUS),
            _ => None,
        });
        self.header.machine.cpus.unwrap_or_else(|| required.max().unwrap_or(0).max(DEFAULT_CPUS))
    }

    /// The machine that the simulator builds: what the `machine` line says, and where it says nothing, what `requires:`
    /// asks for.
    #[must_use]
    pub fn simulated_machine(&self) -> MachineSpec {
        let mut machine = self.header.machine.clone();
        machine.cpus = Some(self.cpus());
        for requirement in self.requirements() {
            match requirement {
                Requirement::Counters(counters) if machine.counters.is_none() => {
                    machine.counters = u8::try_from(counters).ok();
                }
                Requirement::BreakpointSlots(slots) if machine.breakpoints.is_none() => {
                    machine.breakpoints = Some(DebugRegisters::Shared(slots));
                }
                _ => {}
            }
        }
        machine
    }

    fn requirements(&self) -> impl Iterator<Item = Requirement> + '_ {
        self.header.requires.iter().map(|required| required.requirement)
    }
}

/// One statement, where it stood, and whether it is meant to fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is done.
    pub statement: Statement,
    /// `… fails ENOSPC`: it must fail, and so. Only opening, control, and taking a CPU offline or online can be meant to fail.
    pub fails: Option<Errno>,
    /// All of the statement.
    pub place: SourceSpan,
}

impl Step {
    /// A statement that is meant to succeed and stands nowhere.
    #[must_use]
    pub fn new(statement: Statement) -> Self {
        Self { statement, fails: None, place: SourceSpan::NOWHERE }
    }
}

/// What is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// `task A [on cpu1]`: a task begins to exist. It does not run by itself.
    Task {
        /// Its name.
        name: Name,
        /// The CPU that it runs on when it runs; CPU 0 if nothing is said.
        on: Option<CpuId>,
    },
    /// `open …`: opens events.
    Open(Open),
    /// `run A, B 10ms [on cpu0] [rate …]`: tasks run.
    Run(Run),
    /// `migrate A to cpu1`: from now on, the task runs there.
    Migrate {
        /// The task.
        task: Name,
        /// The CPU.
        to: CpuId,
    },
    /// `touch A 20 pages`: the task touches so many pages that it has not touched before: a page fault each. No time passes
    /// on the simulator.
    Touch {
        /// The task.
        task: Name,
        /// How many.
        pages: u32,
    },
    /// `access A 0x1000 write [3 times]`: the task accesses one byte (or executes what is there). No time passes on the
    /// simulator. On a kernel, the address is one in a piece of memory that the runner gives the tasks.
    Access {
        /// The task.
        task: Name,
        /// The address, as breakpoints name it.
        address: u64,
        /// What is done there.
        kind: AccessKind,
        /// How many times, at least 1.
        times: u32,
    },
    /// `fork A as C`, `thread A as T`: a child begins to exist, on the CPU of its parent.
    Fork {
        /// Whose child.
        parent: Name,
        /// Its name.
        child: Name,
        /// A process or a thread.
        kind: ForkKind,
    },
    /// `exec C [setuid]`: the task becomes another program.
    Exec {
        /// The task.
        task: Name,
        /// Whether it gains rights by it (`setuid`): who counted it may not any more.
        kind: Exec,
    },
    /// `exit C`: the task ends.
    Exit {
        /// The task.
        task: Name,
    },
    /// `enable`, `disable`, `reset`, `close`.
    Control {
        /// What is done.
        verb: ControlOp,
        /// To what, in this order; at least one.
        targets: Vec<ControlTarget>,
    },
    /// `modify b to mem:0x2000/8:rw`: a breakpoint becomes another one, and nothing else of it changes: its count and its times go on.
    Modify {
        /// The event.
        event: Name,
        /// Into what.
        to: Breakpoint,
    },
    /// `take s [99]`: the reader of the ring of an event reads it, to its end: it takes samples out, or looks at them where the oldest
    /// ones give way (simulator only).
    Take {
        /// The event.
        event: Name,
        /// How many samples the reader must find that it has not met yet; anything, if nothing is said.
        samples: Option<u64>,
    },
    /// `set fine = s, {g1}`: an array of events that goes on and off together.
    Set(EventSet),
    /// `switch fine on for 5ms`: it goes on or off.
    Switch(Switching),
    /// `trigger hot = e over 10/ms switches fine on for 5ms`: from now on, a rate is waited for.
    Trigger(Box<Trigger>),
    /// `offline cpu1`: the CPU goes. Tasks that were to run there go to the lowest CPU that is online.
    Offline {
        /// The CPU.
        cpu: CpuId,
    },
    /// `online cpu1`: the CPU comes.
    Online {
        /// The CPU.
        cpu: CpuId,
    },
    /// `wait 5ms`: time passes, and none of the tasks runs.
    Wait {
        /// How long.
        span: Nanos,
    },
    /// `fault …`: from here on, something goes wrong (simulator only).
    Fault(Fault),
    /// `expect …`: something must be so now.
    Expect(Expectation),
}

impl Statement {
    /// Whether the statement can be meant to fail.
    #[must_use]
    pub fn can_fail(&self) -> bool {
        matches!(
            self,
            Self::Open(_)
                | Self::Control { .. }
                | Self::Modify { .. }
                | Self::Take { .. }
                | Self::Switch(_)
                | Self::Offline { .. }
                | Self::Online { .. }
        )
    }
}

/// Events to be opened: several single ones, or one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// The events, in their order; of a group, the leader first. At least one.
    pub events: Vec<NewEvent>,
    /// Singles or a group.
    pub form: OpenForm,
    /// What is counted.
    pub target: Target,
    /// How.
    pub flags: Flags,
    /// Where its samples go, if it takes any (simulator only).
    pub samples: Option<Samples>,
}

/// `each 30000 into 4096 overwriting shared`: samples of an event, in a ring that the events of one name have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Samples {
    /// After so many occurrences, at least 1.
    pub period: u64,
    /// Bytes of the ring: a power of two, or the statement fails.
    pub ring_bytes: u32,
    /// What becomes of what is not taken out in time.
    pub mode: RingMode,
    /// Who else gets them.
    pub ownership: RingOwnership,
}

/// Who gets the samples of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingOwnership {
    /// No other event: it has a counter for itself.
    Own,
    /// `shared`: all who ask for the same samples, each in a ring of its own.
    Shared,
}

/// Whether events are opened together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenForm {
    /// `open e1, e2 = cycles, instructions …`: each for itself, one after the other.
    Singles,
    /// `open {g1, g2} = {cycles, instructions} …`: one group.
    Group,
}

/// One event to be opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// The name that the rest of the scenario calls it by.
    pub name: Name,
    /// What it counts.
    pub event: Event,
    /// Where the event is written.
    pub place: SourceSpan,
}

/// What an event counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// An event by its name, as `pmux stat -e` takes it, with its modifiers: `cycles`, `page-faults:u`, `sched:sched_switch`.
    Named(String),
    /// `mem:ADDRESS/LENGTH:ACCESS`: accesses to an address.
    Breakpoint(Breakpoint),
}

/// A breakpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Breakpoint {
    /// The first byte.
    pub address: u64,
    /// How many bytes. If nothing is said: 4 for data, 8 for code.
    pub len_bytes: u32,
    /// Which accesses. If nothing is said: reads and writes.
    pub watch: Watch,
}

/// Which accesses a breakpoint counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Watch {
    /// `r`
    Read,
    /// `w`
    Write,
    /// `rw`
    ReadWrite,
    /// `x`
    Execute,
}

impl Watch {
    /// Whether such an access is counted.
    #[must_use]
    pub fn counts(self, kind: AccessKind) -> bool {
        match kind {
            AccessKind::Read => matches!(self, Self::Read | Self::ReadWrite),
            AccessKind::Write => matches!(self, Self::Write | Self::ReadWrite),
            AccessKind::Execute => self == Self::Execute,
        }
    }
}

/// What is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// `on A`: a task, wherever it runs.
    Task(Name),
    /// `on A cpu1`: a task while it runs on that CPU.
    TaskOnCpu(Name, CpuId),
    /// `on cpu 0`, `on cpus 0-1`: whatever runs on these CPUs: an event on each. When one of them goes, its event is dead.
    Cpus(CpuList),
    /// `system-wide [cpus 0-3]`: a set over these CPUs (or all), which opens everywhere or nowhere and follows hotplug.
    SystemWide(Option<CpuList>),
}

/// How events are opened. Printed in the order of [`Flag`].
pub type Flags = BTreeSet<Flag>;

/// How an event is opened.
///
/// Of a group, `inherit` is set on all events and the others on the leader only, which is where the kernel takes them; the
/// siblings are enabled, and count when the leader does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Flag {
    /// `inherit`: follows forks.
    Inherit,
    /// `pinned`: always on a counter, or in error.
    Pinned,
    /// `exclusive`: alone on its PMU.
    Exclusive,
    /// `disabled`: off until it is enabled.
    Disabled,
    /// `enable-on-exec`: the next exec of the task enables it.
    EnableOnExec,
}

/// Tasks that run.
///
/// Each of them runs for `span` of its own time: tasks on one CPU take turns from tick to tick, tasks on different CPUs run
/// at once, and the statement ends when the last one is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The tasks, each once, at least one.
    pub tasks: Vec<Name>,
    /// For how long each of them runs.
    pub span: Nanos,
    /// Where they run: all of them go there first, and stay. Without it, each runs where it was.
    pub on: Option<CpuId>,
    /// What they do meanwhile, where it is not what tasks do anyway. Each event once.
    pub rates: Vec<Rate>,
}

/// `cycles=2/ns`, `page-faults=5`: what a running task does. Each task does it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    /// The event, by its name.
    pub event: String,
    /// How many.
    pub amount: u64,
    /// In how much time (`/ns`, `/10us`), never zero; `None`: so many in this run, evenly.
    pub per: Option<Nanos>,
    /// Where it is written.
    pub place: SourceSpan,
}

/// A process or a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkKind {
    /// `fork`
    Process,
    /// `thread`
    Thread,
}

/// What is done to an open event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlOp {
    /// `enable`
    Enable,
    /// `disable`
    Disable,
    /// `reset`: the count becomes 0; the times stay.
    Reset,
    /// `close`: its name is free again.
    Close,
}

/// To what something is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlTarget {
    /// `e1`: this event, on all CPUs where its name stands for several. An event of a system-wide set stands for its whole set.
    Event(Name),
    /// `{g1}`: the whole group that this event is in, with the one call that does it for groups.
    Group(Name),
}

impl ControlTarget {
    /// The event that is named.
    #[must_use]
    pub fn name(&self) -> &Name {
        let (Self::Event(name) | Self::Group(name)) = self;
        name
    }
}
