//! Events exactly as asked: opened one by one or as one group, and each with its own name.
//!
//! What it is: [`ExactGroup`] and [`ExactSet`], for programs that must say *this* event and not *these events*: tools that test a
//! machine, and scenarios. Nothing is made milder so that it can be opened, nothing is substituted, and every event can be
//! switched, reset, read, and asked for its state.
//! Read first: [`Session::open_exactly`]; for counting programs, [`Session::open`] is the way.
//!
//! **Invariant:** what is refused is refused with the kernel's own number, and leaves nothing open.

mod group;
mod set;

pub use group::ExactGroup;
pub use pmux_engine::EventState;
pub use pmux_engine::engine::{Exec, FamilyTally, SetReading};
pub use set::ExactSet;

/// What an event set switches of what was opened exactly: for [`crate::trigger::EventSets::add_exactly`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switchable(pub(crate) pmux_engine::event_set::Member);

use crate::error::Error;
use crate::event::{Event, EventSource};
use crate::session::Session;
use crate::target::{Attribution, Inherit};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::{CpuId, GroupSpec, OpenError};
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost};

/// What a group counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExactTarget {
    /// A thread, by its number, wherever it runs.
    Task(i32),
    /// A thread while it runs on a CPU.
    TaskOnCpu(i32, u32),
    /// Whatever runs on a CPU. When the CPU goes, the events are dead.
    Cpu(u32),
}

impl ExactTarget {
    fn target(self) -> pmux_engine::Target {
        use pmux_engine::{Target, target::Filter};
        match self {
            Self::Task(tid) => Target::task(LinuxHost::task(tid)),
            Self::TaskOnCpu(tid, cpu) => {
                Target { filter: Filter::OnCpu(CpuId(cpu)), ..Target::task(LinuxHost::task(tid)) }
            }
            Self::Cpu(cpu) => Target::cpu(CpuId(cpu)),
        }
    }

    fn kind(self) -> TargetKind {
        match self {
            Self::Task(tid) | Self::TaskOnCpu(tid, _) => {
                TargetKind::Task(if tid == pmux_linux::current_tid() { Whose::Own } else { Whose::Other })
            }
            Self::Cpu(cpu) => TargetKind::Cpu(cpu),
        }
    }
}

/// Whether a group can lose its counters to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// It takes turns with others.
    #[default]
    Flexible,
    /// It is always on its counters, or in error.
    Pinned,
}

/// Whether others may be on the PMU together with a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Exclusivity {
    /// They may.
    #[default]
    Any,
    /// They may not.
    Exclusive,
}

/// What an exec of its task does to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtExec {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is enabled.
    Enable,
}

/// How a group is opened. `inherit` is set on all of its events, the others on its leader, which is where the kernel takes
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMode {
    /// Whether children are counted in.
    pub inherit: Inherit,
    /// Whether each child that exits gets numbers of its own. Needs [`Inherit::Children`].
    pub attribution: Attribution,
    /// Whether it can lose its counters.
    pub priority: Priority,
    /// Whether others may be there.
    pub exclusivity: Exclusivity,
    /// What an exec does to it.
    pub at_exec: AtExec,
}

impl Default for GroupMode {
    fn default() -> Self {
        let (priority, exclusivity, at_exec) = (Priority::default(), Exclusivity::default(), AtExec::default());
        Self { inherit: Inherit::None, attribution: Attribution::Totals, priority, exclusivity, at_exec }
    }
}

impl Session {
    /// Opens one group, the leader first, disabled.
    ///
    /// # Errors
    /// [`Error::Options`] for events that the kernel doesn't count; [`Error::Refused`], with one refusal that carries the
    /// errno; [`Error::Ring`] where children can't report.
    pub fn open_exactly(&self, events: &[Event], target: ExactTarget, mode: GroupMode) -> Result<ExactGroup, Error> {
        let spec = spec(events, mode)?;
        if let ExactTarget::Cpu(_) = target {
            self.watch_hotplug();
        }
        let opened = self.engine().open(&spec, target.target());
        let opened = opened.map_err(|error| self.refused(error, &spec, target.kind()))?;
        ExactGroup::new(self, opened, target, mode)
    }

    /// Opens one group on each of some CPUs, or on all (`None`), disabled. CPUs that come are counted, too, and those that
    /// go leave what they have counted.
    ///
    /// # Errors
    /// As [`Session::open_exactly`]; it is then open on no CPU.
    pub fn open_set_exactly(&self, events: &[Event], cpus: Option<&[u32]>, mode: GroupMode) -> Result<ExactSet, Error> {
        let spec = spec(events, mode)?;
        self.watch_hotplug();
        ExactSet::open(self, &spec, cpus)
    }

    /// A task of which events are open has executed another program.
    pub fn task_executed(&self, tid: i32, exec: Exec) {
        self.engine().task_exec(LinuxHost::task(tid), exec);
    }

    /// A task of which events are open has exited.
    pub fn task_exited(&self, tid: i32) {
        self.engine().task_exit(LinuxHost::task(tid));
    }

    /// Brings the session's list of CPUs up to date, whether or not the kernel has told of a change.
    pub fn update_cpus(&self) {
        self.watch_hotplug();
        self.look_at_cpus();
    }

    fn refused(&self, error: OpenError, spec: &GroupSpec, kind: TargetKind) -> Error {
        let at = error.index().unwrap_or_default();
        let attr = spec.events.get(at).map_or_else(Attr::default, |(_, attr)| *attr);
        Error::Refused(vec![self.refusal(error, &attr, kind)])
    }
}

fn spec(events: &[Event], mode: GroupMode) -> Result<GroupSpec, Error> {
    let mut spec = GroupSpec { events: Vec::with_capacity(events.len()) };
    for (index, event) in events.iter().enumerate() {
        if !matches!(event.source, EventSource::Kernel { .. }) {
            return Err(Error::Options("only events of the kernel can be opened exactly"));
        }
        let mut attr = event.attr;
        attr.flags.set(AttrFlags::INHERIT, mode.inherit == Inherit::Children);
        if index == 0 {
            let leader = [
                (AttrFlags::PINNED, mode.priority == Priority::Pinned),
                (AttrFlags::EXCLUSIVE, mode.exclusivity == Exclusivity::Exclusive),
                (AttrFlags::ENABLE_ON_EXEC, mode.at_exec == AtExec::Enable),
            ];
            leader.into_iter().filter(|(_, wanted)| *wanted).for_each(|(flag, _)| attr.flags |= flag);
        }
        if mode.attribution == Attribution::EachProcess {
            crate::tree::make_reporting(&mut attr);
        }
        spec.events.push((KERNEL, attr));
    }
    Ok(spec)
}
