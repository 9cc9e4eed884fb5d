//! Who may ask for what.
//!
//! What it is: the rules of `perf_event_open(2)` as one pure function, [`decide`], because the kernel, which sees only the
//! service, can't apply them. What only a group of the configuration allows is told apart from what the kernel would allow:
//! see [`Grant`].
//! Read first: [`decide`], for the order of the checks.
//!
//! **Invariant:** no I/O; and never more than the kernel would allow this asker himself, but for [`Grant::ByGroup`]. Where a
//! PMU could have rules of its own that are not known here, the answer is that the asker may try by himself.
//!
//! Source: Linux 6.18, `kernel/events/core.c` (`perf_event_open`, `perf_check_permission`), `kernel/ptrace.c`
//! (`ptrace_may_access`), `security/commoncap.c` (`cap_ptrace_access_check`), `include/linux/perf_event.h`
//! (`perf_allow_kernel`, `perf_allow_cpu`), `kernel/trace/trace_event_perf.c` (`perf_trace_event_perm`). Rules of other security
//! modules than SELinux, were there any for performance events, are not known here.

use pmux::serving::abi::{Attr, AttrFlags, EventType, tracepoint};
use pmux::serving::{Asker, PerfPermission, Subject, only_counts};
use std::fmt;

mod module;
mod records;

pub use module::{Module, allowed_by};
pub use records::decide_records;

/// Capabilities by their numbers. Source: `capabilities(7)`.
const SYS_PTRACE: u64 = 1 << 19;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;

/// Raw events of Intel with this bit count for both threads of a core.
const ANY_THREAD: u64 = 1 << 21;

/// What this machine is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// `kernel.perf_event_paranoid`.
    pub paranoid: i32,
    /// Whether addresses from here up are the kernel's.
    pub kernel_from: u64,
}

/// What the service needs to know of a PMU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmuKind {
    /// The PMU of the CPU cores: its events are like raw ones.
    Core,
    /// One that sets probes.
    Probe,
    /// Any other, or one that is not known.
    Other,
}

/// Whose events are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted<'a> {
    /// Those of a task.
    Task(&'a Subject),
    /// Those of a task, of which nothing has to be known because the asker may look into all.
    AnyTask,
    /// Those of whatever runs on a CPU.
    Cpu,
    /// Those of a cgroup on a CPU.
    Cgroup,
}

/// Why somebody gets what he asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The kernel would open it for him.
    AsKernel,
    /// The kernel would not; a group of his is named in the configuration. Such an event's fd is never passed.
    ByGroup,
}

/// Whether a group of the configuration allows him to count system-wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// It does.
    Named,
    /// It does not.
    None,
}

/// Why somebody doesn't get what he asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// It samples, or writes records, or acts on its task: nothing that can be counted for somebody else.
    NotCounting,
    /// Its records are nobody else's.
    OwnRecords,
    /// Its records tell of the kernel, or of more than one user may know.
    PrivilegedRecords,
    /// Its records hold what a tracepoint says.
    TracepointData {
        /// What `kernel.perf_event_paranoid` is.
        paranoid: i32,
    },
    /// It is about all functions of the kernel.
    Functions {
        /// What `kernel.perf_event_paranoid` is.
        paranoid: i32,
    },
    /// SELinux's policy doesn't allow it to whoever has the asker's label.
    Module(PerfPermission),
    /// SELinux doesn't tell what it allows to the asker.
    ModuleUnknown,
    /// Its PMU may have rules of its own.
    UnknownPmu(EventType),
    /// It counts in the kernel.
    Kernel {
        /// What `kernel.perf_event_paranoid` is.
        paranoid: i32,
    },
    /// It counts all tasks.
    WholeCpu {
        /// What `kernel.perf_event_paranoid` is.
        paranoid: i32,
    },
    /// It sets a probe: its attribute holds addresses in the memory of whoever made it.
    Probe,
    /// It watches an address of the kernel.
    KernelAddress,
    /// The task is somebody else's.
    OtherTask,
    /// The task's numbers mean something else to the asker.
    OtherNamespace,
}

impl Denied {
    /// The errno that the kernel gives in this case; 0 where it would decide by itself.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotCounting | Self::OwnRecords | Self::UnknownPmu(_) | Self::OtherNamespace | Self::Probe => 0,
            Self::ModuleUnknown => 0,
            Self::KernelAddress | Self::TracepointData { .. } | Self::Functions { .. } => 1,
            Self::PrivilegedRecords | Self::Kernel { .. } | Self::WholeCpu { .. } | Self::OtherTask => 13,
            Self::Module(_) => 13,
        }
    }

    /// Whether the asker may get it when he opens it by himself.
    #[must_use]
    pub const fn may_try_himself(self) -> bool {
        self.errno() == 0
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needs = |f: &mut fmt::Formatter<'_>, what, most, paranoid| {
            write!(f, "{what} needs CAP_PERFMON or kernel.perf_event_paranoid at most {most}; it is {paranoid}")
        };
        match *self {
            Self::NotCounting => f.write_str("only events that count are shared; open it without the service"),
            Self::OwnRecords => f.write_str(
                "records with counts or data of their own buffer, from an exec on, or with signals are not shared; open it without the service",
            ),
            Self::PrivilegedRecords => f.write_str(
                "records with physical addresses, registers or branches of the kernel, namespaces or the kernel's symbols need CAP_PERFMON",
            ),
            Self::TracepointData { paranoid } => needs(f, "what tracepoints say", -1, paranoid),
            Self::Functions { paranoid } => needs(f, "the tracepoint of the kernel's functions", -1, paranoid),
            Self::Module(permission) => {
                let name = permission.name();
                write!(f, "SELinux's policy doesn't allow perf_event {{ {name} }} to the label of who asks: see `ausearch -m avc`")
            }
            Self::ModuleUnknown => {
                f.write_str("SELinux doesn't tell the service what it allows to who asks; open it without the service")
            }
            Self::UnknownPmu(kind) => {
                write!(f, "the PMU with the number {} may have rules of its own; open it without the service", kind.0)
            }
            Self::Kernel { paranoid } => needs(f, "counting in the kernel", 1, paranoid),
            Self::WholeCpu { paranoid } => {
                needs(f, "counting a whole CPU or a cgroup", 0, paranoid)?;
                f.write_str(", or a group that the service's configuration names in `system_wide`")
            }
            Self::Probe => f.write_str("probes are not shared; open it without the service"),
            Self::KernelAddress => f.write_str("a breakpoint in the kernel needs CAP_SYS_ADMIN"),
            Self::OtherTask => {
                f.write_str("the task belongs to somebody else; that needs CAP_PERFMON or CAP_SYS_PTRACE")
            }
            Self::OtherNamespace => {
                f.write_str("numbers of tasks mean something else in this PID namespace; open it without the service")
            }
        }
    }
}

/// Whether the kernel would let the asker count anything.
#[must_use]
pub const fn is_privileged(asker: &Asker) -> bool {
    asker.capabilities.effective & (PERFMON | SYS_ADMIN) != 0
}

/// Whether the asker may count all that runs on a CPU.
///
/// # Errors
/// [`Denied::WholeCpu`].
pub const fn system_wide(asker: &Asker, machine: Machine, group: Membership) -> Result<Grant, Denied> {
    match (is_privileged(asker) || machine.paranoid <= 0, group) {
        (true, _) => Ok(Grant::AsKernel),
        (false, Membership::Named) => Ok(Grant::ByGroup),
        (false, Membership::None) => Err(Denied::WholeCpu { paranoid: machine.paranoid }),
    }
}

/// Whether somebody gets an event.
///
/// # Errors
/// Checked in this order: [`Denied::NotCounting`], [`Denied::Probe`], [`Denied::OtherNamespace`],
/// [`Denied::KernelAddress`]; for those without `CAP_PERFMON` [`Denied::Functions`], [`Denied::Kernel`],
/// [`Denied::UnknownPmu`], [`Denied::WholeCpu`], [`Denied::OtherTask`]. What a security module says is asked apart: [`allowed_by`].
pub fn decide(
    asker: &Asker,
    attr: &Attr,
    pmu: PmuKind,
    wanted: Wanted<'_>,
    machine: Machine,
    group: Membership,
) -> Result<Grant, Denied> {
    if !only_counts(attr) {
        return Err(Denied::NotCounting);
    }
    // Even root's: the kernel would look for the probe's name in the service's own memory.
    if pmu == PmuKind::Probe {
        return Err(Denied::Probe);
    }
    if matches!(wanted, Wanted::Task(_) | Wanted::AnyTask) && asker.task_ids != pmux::serving::Namespace::Ours {
        return Err(Denied::OtherNamespace);
    }
    let watched = if attr.kind == EventType::BREAKPOINT { attr.config1 } else { 0 };
    if watched >= machine.kernel_from && asker.capabilities.effective & SYS_ADMIN == 0 {
        return Err(Denied::KernelAddress);
    }
    if is_privileged(asker) {
        return Ok(Grant::AsKernel);
    }
    let whole = matches!(wanted, Wanted::Cpu | Wanted::Cgroup);
    if attr.kind == EventType::TRACEPOINT && attr.config == tracepoint::FUNCTIONS && machine.paranoid > -1 {
        return Err(Denied::Functions { paranoid: machine.paranoid });
    }
    // Whoever may count all that runs may count the kernel's part of it.
    let by_group = whole && group == Membership::Named;
    if !attr.flags.contains(AttrFlags::EXCLUDE_KERNEL) && machine.paranoid > 1 && !by_group {
        return Err(Denied::Kernel { paranoid: machine.paranoid });
    }
    let wide = system_wide(asker, machine, group);
    match (attr.kind, pmu) {
        (EventType::RAW, _) | (_, PmuKind::Core) if attr.config & ANY_THREAD != 0 => drop(wide?),
        (EventType::HARDWARE | EventType::SOFTWARE | EventType::TRACEPOINT, _) => {}
        (EventType::HW_CACHE | EventType::RAW | EventType::BREAKPOINT, _) | (_, PmuKind::Core) => {}
        // A PMU that counts for whole CPUs only has no further rule.
        _ if whole => {}
        (kind, _) => return Err(Denied::UnknownPmu(kind)),
    }
    match wanted {
        Wanted::Cpu | Wanted::Cgroup => wide,
        Wanted::Task(subject) if may_look(asker, subject) => Ok(Grant::AsKernel),
        Wanted::Task(_) | Wanted::AnyTask => Err(Denied::OtherTask),
    }
}

/// Whether the asker may look into a task, as `PTRACE_MODE_READ_REALCREDS` means it.
fn may_look(asker: &Asker, subject: &Subject) -> bool {
    let known = asker.user_namespace.is_some() && asker.user_namespace == subject.user_namespace;
    // Only ever believed where the asker is in the first user namespace.
    let traces = asker.capabilities.effective & SYS_PTRACE != 0;
    if traces {
        return true;
    }
    let (user, group) = (asker.connected.user, asker.connected.group);
    let same_user = subject.users.are_all(user) && subject.groups.are_all(group);
    let own = asker.process == Some(subject.process);
    let no_more_rights = subject.permitted & !asker.capabilities.permitted == 0;
    known && same_user && no_more_rights && (own || subject.dumpable)
}

#[cfg(test)]
mod tests;
