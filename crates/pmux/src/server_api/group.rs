//! A group that a service has opened for a client.
//!
//! **Invariant:** what is opened is what was asked for, word by word; nothing is made milder.

use super::acting::Acting;
use super::cgroups::CgroupUse;
use super::clocks::GroupClocks;
use crate::mux::turns::Turning;
use crate::mux::{Multiplexing, Slice};
use crate::owned_group::OwnedGroup;
use crate::session::Session;
use pmux_abi::attr::Attr;
use pmux_engine::engine::SlotView;
use pmux_engine::pmu::SlotTime;
use pmux_engine::share::SharingScope;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{
    ControlError, Count, CpuId, EventState, GroupSpec, ModifyError, Nanos, OpenError, ReadError, Target,
};
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost};
use pmux_linux::procfs::Proc;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Whose events are counted.
pub enum ServedTarget {
    /// A thread's, wherever it runs.
    Task(i32),
    /// A thread's while it runs on a CPU.
    TaskOnCpu(i32, u32),
    /// A CPU's.
    Cpu(u32),
    /// A CPU's while it runs tasks of a cgroup.
    Cgroup(CgroupUse, u32),
}

impl ServedTarget {
    fn target(&self) -> Target {
        let (context, filter) = match *self {
            Self::Task(tid) => (ContextKey::Task(LinuxHost::task(tid)), Filter::Everything),
            Self::TaskOnCpu(tid, cpu) => (ContextKey::Task(LinuxHost::task(tid)), Filter::OnCpu(CpuId(cpu))),
            Self::Cpu(cpu) => (ContextKey::Cpu(CpuId(cpu)), Filter::Everything),
            Self::Cgroup(ref cgroup, cpu) => (ContextKey::Cpu(CpuId(cpu)), Filter::Cgroup(cgroup.id)),
        };
        Target { context, filter }
    }

    /// What it is for the reasons of a refusal.
    #[must_use]
    pub const fn kind(&self) -> TargetKind {
        match *self {
            Self::Task(_) | Self::TaskOnCpu(..) => TargetKind::Task(Whose::Other),
            Self::Cpu(cpu) => TargetKind::Cpu(cpu),
            Self::Cgroup(..) => TargetKind::Cgroup,
        }
    }

    const fn cpu(&self) -> Option<u32> {
        match *self {
            Self::Task(_) => None,
            Self::TaskOnCpu(_, cpu) | Self::Cpu(cpu) | Self::Cgroup(_, cpu) => Some(cpu),
        }
    }
}

impl fmt::Display for ServedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(tid) => write!(f, "task {tid}"),
            Self::TaskOnCpu(tid, cpu) => write!(f, "task {tid} on CPU {cpu}"),
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Cgroup(cgroup, cpu) => write!(f, "cgroup {} on CPU {cpu}", cgroup.name()),
        }
    }
}

/// What a client asks.
pub struct ServeRequest {
    /// Whose events.
    pub target: ServedTarget,
    /// Which, the leader first.
    pub attrs: Vec<Attr>,
}

/// What is to be done to an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventAction {
    /// Let it count.
    Enable,
    /// Let it stop.
    Disable,
    /// Set its count to 0; its times stay.
    Reset,
    /// Let all of its group count.
    EnableGroup,
    /// Let all of its group stop.
    DisableGroup,
}

/// Why something was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeError {
    /// Which event of the group.
    pub index: usize,
    /// The error's number on Linux.
    pub errno: i32,
    /// A sentence.
    pub text: String,
}

impl ServeError {
    pub(super) fn new(errno: i32, error: impl fmt::Display) -> Self {
        Self { index: 0, errno, text: error.to_string() }
    }
}

impl From<ControlError> for ServeError {
    fn from(error: ControlError) -> Self {
        Self::new(error.errno(), error)
    }
}

impl From<ModifyError> for ServeError {
    fn from(error: ModifyError) -> Self {
        Self::new(error.errno(), error)
    }
}

impl From<ReadError> for ServeError {
    fn from(error: ReadError) -> Self {
        Self::new(error.errno(), error)
    }
}

/// What is said where the service, and not who asks, has as many files open as it may.
pub const NO_FILES: &str =
    "the service has no open file left: allow it more, with LimitNOFILE= in its unit, or `ulimit -n`";

/// A file of the kernel that others may read.
pub struct SharedFile {
    /// A copy of it.
    pub file: OwnedFd,
    /// Its number: no other file has it.
    pub number: u64,
    /// The bits of `read_format` that it was opened with.
    pub read_format: u64,
    /// How many values a read of it brings: 1, or all of a group.
    pub values: usize,
    /// Which of the group's events is which of the values. None for a file that must only be held: without it, its event leaves
    /// the group when this process dies.
    pub places: Vec<(usize, usize)>,
}

/// How an event's count is found by a process that has its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountSource {
    /// It is off, and its count is this.
    Standing(Count),
    /// It is what the file with this number says, less this.
    InFile(u64, Count),
    /// It has to be asked for.
    Nowhere,
}

/// What is known of an event without asking its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedCount {
    /// What it had counted when it was read last.
    pub count: Count,
    /// When that was, on the clock of the counts, or up to one tick of the kernel before.
    pub at_ns: u64,
    /// How its count is found now.
    pub found: CountSource,
}

/// A group that is open for another process. It is closed when it is dropped.
pub struct ServedGroup {
    own: OwnedGroup,
    clocks: GroupClocks,
    /// Keeps a cgroup known.
    question: ServeRequest,
    /// Keeps the rights registered that its counters are opened with, also later.
    acting: Acting,
    /// Turns are taken as long as an event needs them.
    _turning: Option<Arc<Turning>>,
}

impl Session {
    /// Opens a group for a client, disabled, with these rights. It shares counters with equal groups that have the same rights.
    ///
    /// # Errors
    /// [`ServeError`], with the kernel's own number.
    pub fn serve(
        &self,
        acting: &Acting,
        question: ServeRequest,
        multiplexing: Multiplexing,
    ) -> Result<ServedGroup, ServeError> {
        let pmus = match multiplexing {
            Multiplexing::Kernel => {
                // No group here has a counter of theirs yet.
                self.learn_capacities(&question.attrs);
                vec![KERNEL; question.attrs.len()]
            }
            Multiplexing::Engine => self.pmus_of(&question.attrs),
        };
        // The thread that takes turns sleeps until there is something scarce.
        let scarce = pmus.iter().any(|&pmu| pmu != KERNEL);
        let turning = if scarce { self.turning(Slice::default()).ok() } else { None };
        let spec = GroupSpec { events: pmus.into_iter().zip(question.attrs.iter().copied()).collect() };
        let target = question.target.target();
        let scope = acting.sharing_scope(SharingScope::default());
        let mut opened = self.engine().open_in(scope, &spec, target);
        // A CPU may have come a moment ago, and the client that asks may have heard of it sooner.
        if let (Err(OpenError::CpuOffline { .. }), Some(_)) = (&opened, question.target.cpu()) {
            self.update_cpus();
            opened = self.engine().open_in(scope, &spec, target);
        }
        match opened {
            Ok(opened) => {
                if let Some(turning) = &turning {
                    turning.begin();
                }
                let clocks = GroupClocks::open(self, scope, target, &spec.events);
                let (own, acting) = (OwnedGroup::new(self, opened), acting.clone());
                Ok(ServedGroup { own, clocks, question, acting, _turning: turning })
            }
            Err(error) => {
                let index = error.index().unwrap_or_default();
                let attr = question.attrs.get(index).copied().unwrap_or_default();
                let text = acting.reason(self, error, &attr, question.target.kind());
                Err(ServeError { index, errno: error.errno(), text })
            }
        }
    }

    /// A task has exited: nothing that is opened from now on has to do with what was open on its number.
    pub fn served_task_exited(&self, tid: i32) {
        self.engine().task_exit(LinuxHost::task(tid));
    }

    /// The same where the kernel has said so some time ago, to an opener: the number may be another task's by now.
    pub fn served_task_was_gone(&self, tid: i32) {
        if !Proc::system().thread_stat(tid).is_ok_and(|stat| !stat.is_ending()) {
            self.served_task_exited(tid);
        }
    }
}

impl ServedGroup {
    /// With whose rights it is open.
    #[must_use]
    pub const fn acting(&self) -> &Acting {
        &self.acting
    }

    /// Does something to an event, or to all.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn control(&self, index: usize, action: EventAction) -> Result<(), ServeError> {
        match action {
            EventAction::Enable => {
                self.clocks.start(Some(index));
                self.own.enable(index)
            }
            EventAction::Disable => self.own.disable(index).inspect(|()| self.clocks.stop(Some(index))),
            EventAction::Reset => Ok(self.own.engine().reset(self.own.event(index)?)?),
            EventAction::EnableGroup => {
                self.clocks.start(None);
                self.own.enable_all()
            }
            EventAction::DisableGroup => self.own.disable_all().inspect(|()| self.clocks.stop(None)),
        }
    }

    /// Lets an event count something else from now on.
    ///
    /// # Errors
    /// [`ServeError`]; then it counts what it counted.
    pub fn modify(&mut self, index: usize, attr: &Attr) -> Result<(), ServeError> {
        self.own.engine().modify(self.own.event(index)?, attr)?;
        if let Some(known) = self.question.attrs.get_mut(index) {
            *known = *attr;
        }
        Ok(())
    }

    /// Reads one event.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(&self, index: usize) -> Result<Count, ReadError> {
        let mut count = self.own.read(index)?;
        self.clocks.set(&self.own, index, &mut count, Nanos(self.now_ns()));
        Ok(count)
    }

    /// Reads all events at one moment into `out`, which is emptied first.
    pub fn read_all(&self, out: &mut Vec<Result<Count, ReadError>>) {
        out.clear();
        if let Err(error) = self.own.read_all(out) {
            out.resize(self.own.opened.events.len(), Err(error));
        }
        let now = Nanos(self.now_ns());
        for (index, count) in out.iter_mut().enumerate() {
            count.iter_mut().for_each(|count| self.clocks.set(&self.own, index, count, now));
        }
    }

    /// Copies of the kernel's files that tell of all of its events; `None` where it has no such files, or no copy can be made.
    #[must_use]
    pub fn files(&self) -> Option<Vec<SharedFile>> {
        let mut files: Vec<SharedFile> = Vec::new();
        let mut held = Vec::new();
        for (index, &event) in self.own.opened.events.iter().enumerate() {
            let view = self.own.engine().slot_view(event).ok()?;
            let file = self.own.engine().host().passable(view.lease?)?;
            match files.iter_mut().find(|known| known.number == file.number) {
                Some(known) => known.places.push((index, file.place)),
                None => files.push(SharedFile {
                    file: file.as_fd().try_clone_to_owned().ok()?,
                    number: file.number,
                    read_format: file.read_format,
                    values: file.values,
                    places: vec![(index, file.place)],
                }),
            }
            if let Some(own) = file.own() {
                let (number, read_format) = (file.number, file.read_format);
                let file = own.try_clone_to_owned().ok()?;
                held.push(SharedFile { file, number, read_format, values: 1, places: Vec::new() });
            }
        }
        files.extend(held);
        Some(files)
    }

    /// What one event had counted when it was read last by any group that shares it, and how its count is found by a process
    /// that has its file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn find(&self, index: usize) -> Result<CachedCount, ReadError> {
        let engine = self.own.engine();
        let SlotView { lease, raw, at, mut count, state } = engine.slot_view(self.own.event(index)?)?;
        self.clocks.set(&self.own, index, &mut count, at);
        let found = match (state, lease, raw.time) {
            (EventState::Off, ..) => CountSource::Standing(count),
            (EventState::Active | EventState::Inactive, Some(lease), SlotTime::Measured { enabled, running }) => {
                match engine.host().passable_number(lease) {
                    Some(number) => {
                        let less = Count {
                            value: raw.raw.wrapping_sub(count.value),
                            enabled: enabled.since(count.enabled),
                            running: running.since(count.running),
                        };
                        CountSource::InFile(number, less)
                    }
                    None => CountSource::Nowhere,
                }
            }
            _ => CountSource::Nowhere,
        };
        Ok(CachedCount { count, at_ns: at.0, found })
    }

    /// When it is on the clock of the counts.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        pmux_engine::Host::now(self.own.engine().host()).0
    }
}
