//! Who may ask for what.
//!
//! What it is: the kernel decides who may open an event: a client's events are opened by a process that has taken the client's
//! credentials (`pmux_linux::credentials`). Here is what the kernel can't say for the service: which attributes mean nothing outside
//! of their own process, what a group of the configuration allows beyond the kernel's rules, and what SELinux says of the client's
//! label, because an opener has the service's.
//! Read first: [`access`], then [`may_count`] and [`may_record`].
//!
//! **Invariant:** no I/O. No answer here allows what the kernel would refuse, but for [`Membership::Named`].
//!
//! Source: Linux 6.18, `kernel/events/core.c` (`perf_event_open`), `kernel/ptrace.c` (`ptrace_may_access`).

use pmux::abi::{Attr, EventType};
use pmux::server_api::{
    Credentials, Peer, PerfPermission, PerfRights, PidNamespace, TargetScope, counting_part_of_records, only_counts,
};
use std::fmt;

/// Capabilities by their numbers. Source: `capabilities(7)`.
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;

/// What the service needs to know of a PMU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmuKind {
    /// One that sets probes: its attributes hold addresses in the memory of the process that made them.
    Probe,
    /// Any other.
    Other,
}

/// With which credentials a client's events are opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The service's: the client has no fewer rights.
    AsService,
    /// The client's, by an opener.
    AsClient(Credentials),
}

/// Why a client gets what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The kernel opened it for the client.
    AsKernel,
    /// The kernel would not; a group of the client is named in the configuration. Such an event's fd is never passed.
    ByGroup,
}

/// Whether a group of the configuration allows a client to count system-wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// It does.
    Named,
    /// It does not.
    None,
}

/// Why a client doesn't get what it asks for, beside what the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// It samples, or writes records, or acts on its task: nothing that can be counted for another process.
    NotCounting,
    /// Its records are of no use to another process.
    OwnRecords,
    /// SELinux's policy doesn't allow it to the client's label.
    Module(PerfPermission),
    /// SELinux doesn't tell what it allows to the client.
    ModuleUnknown,
    /// It sets a probe: its attribute holds addresses in the memory of the client.
    Probe,
    /// The task's numbers mean something else to the client.
    OtherNamespace,
    /// The process that connected has exited, or its users and groups differ from those that it had then.
    NotKnown,
    /// The event was opened with other credentials than the client has now.
    Changed,
    /// The client's own process may not be looked into by others, not even by those of its user.
    OwnProcess,
}

impl Denied {
    /// The errno that the kernel gives in this case; 0 where it would decide by itself: then the client may get the event when it opens
    /// it without the service.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotCounting | Self::OwnRecords | Self::OtherNamespace | Self::Probe => 0,
            Self::ModuleUnknown | Self::OwnProcess => 0,
            Self::Module(_) | Self::NotKnown | Self::Changed => 13,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotCounting => f.write_str("only events that count are shared; open it without the service"),
            Self::OwnRecords => f.write_str(
                "records with counts or data of their own buffer, from an exec on, or with signals are not shared; open it without the service",
            ),
            Self::Module(permission) => {
                let name = permission.name();
                write!(f, "SELinux's policy doesn't allow perf_event {{ {name} }} to the label of the client: see `ausearch -m avc`")
            }
            Self::ModuleUnknown => {
                f.write_str("SELinux doesn't tell the service what it allows to the client; open it without the service")
            }
            Self::Probe => f.write_str("probes are not shared; open it without the service"),
            Self::OtherNamespace => {
                f.write_str("numbers of tasks mean something else in this PID namespace; open it without the service")
            }
            Self::NotKnown => f.write_str(
                "the process that connected has exited, or runs with other users and groups than it connected with: connect again",
            ),
            Self::Changed => {
                f.write_str("the event was opened with other credentials than the client has now: open it again")
            }
            Self::OwnProcess => f.write_str(
                "the client's process is not dumpable, so only it may look into itself; open it without the service",
            ),
        }
    }
}

/// Whether the kernel would let a client count anything.
#[must_use]
pub fn is_privileged(peer: &Peer) -> bool {
    peer.capabilities() & (PERFMON | SYS_ADMIN) != 0
}

/// With which credentials a client's events are opened; `own` are the service's.
///
/// # Errors
/// [`Denied::NotKnown`].
pub fn access(peer: &Peer, own: Option<&Credentials>) -> Result<Access, Denied> {
    let credentials = peer.credentials.ok_or(Denied::NotKnown)?;
    match own {
        Some(own) if credentials.cover(own) => Ok(Access::AsService),
        _ => Ok(Access::AsClient(credentials)),
    }
}

/// Whether an event can be counted for a client at all.
///
/// # Errors
/// Checked in this order: [`Denied::NotCounting`], [`Denied::Probe`], of a task [`Denied::OtherNamespace`]. What a security module
/// says is asked apart: [`allowed_by`].
pub fn may_count(peer: &Peer, attr: &Attr, pmu: PmuKind, target_scope: TargetScope) -> Result<(), Denied> {
    if !only_counts(attr) {
        return Err(Denied::NotCounting);
    }
    // Even root's: the kernel would look for the probe's name in the opener's own memory.
    if pmu == PmuKind::Probe {
        return Err(Denied::Probe);
    }
    if target_scope == TargetScope::Task && peer.task_ids != PidNamespace::Ours {
        return Err(Denied::OtherNamespace);
    }
    Ok(())
}

/// Whether the records of an event can be passed to a client at all. They tell numbers of tasks as the service sees them.
///
/// # Errors
/// Checked in this order: [`Denied::OwnRecords`], [`Denied::OtherNamespace`], then as [`may_count`].
pub fn may_record(peer: &Peer, attr: &Attr, pmu: PmuKind) -> Result<(), Denied> {
    let counting = counting_part_of_records(attr).ok_or(Denied::OwnRecords)?;
    may_count(peer, &counting, pmu, TargetScope::Task)
}

/// Whether the kernel has a say before a group of the configuration allows a client to count an event on a CPU. What it has to say is
/// that the event itself, in user mode, is refused because it is about a whole CPU (`EACCES`) and for no other reason: addresses of the
/// kernel and the tracepoint of all functions need more (`EPERM`). Any other event is a count of what runs, and tells nothing else.
#[must_use]
pub const fn kernel_has_a_say(attr: &Attr) -> bool {
    matches!(attr.kind, EventType::BREAKPOINT | EventType::TRACEPOINT)
}

/// What a security module that the kernel asks about events, SELinux, has to say, as far as one asker is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// There is none that has a say.
    None,
    /// It allows the client this.
    Allows(PerfRights),
    /// It is there, and doesn't tell.
    Silent,
}

/// Whether a security module lets an asker have an event.
///
/// # Errors
/// [`Denied::Module`] with the first permission that the asker lacks; [`Denied::ModuleUnknown`].
pub fn allowed_by(module: Module, attr: &Attr, target_scope: TargetScope) -> Result<(), Denied> {
    match module {
        Module::None => Ok(()),
        Module::Silent => Err(Denied::ModuleUnknown),
        Module::Allows(rights) => {
            rights.lack_for(attr, target_scope).map_or(Ok(()), |lacks| Err(Denied::Module(lacks)))
        }
    }
}

#[cfg(test)]
mod tests;
