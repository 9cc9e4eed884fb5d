//! Why `perf_event_open` refused, in words, and what would help.
//!
//! What it is: the kernel answers with one number for many causes. [`explain`] takes that number, the request and what
//! is known about the machine, and names the cause.
//! Read first: [`RefusedRequest`], [`Reason`], [`Facts`].
//!
//! **Invariant:** [`explain`] is pure: all that it knows about the machine is in [`Facts`]. Where it has to guess, its
//! words say so.

mod facts;
mod gather;
mod permission;
mod request;
mod resources;
mod support;
#[cfg(test)]
mod tests;

use std::fmt;

use pmux_abi::attr::Attr;

pub use facts::{
    Capability, CgroupEvents, Controllers, Facts, Lockdown, MachineKind, OpenFiles, PmuFacts, PmuScope, UserNamespace,
};
pub use gather::Roots;
pub(crate) use gather::version;

/// Whose task it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Whose {
    /// The caller itself, or a child that it started.
    Own,
    /// Any other task, of the same user or of another one.
    Other,
}

/// What the event was to be bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TargetKind {
    /// A task.
    Task(Whose),
    /// All tasks on a CPU.
    Cpu(u32),
    /// The tasks of a cgroup on a CPU.
    Cgroup,
}

/// The place of the event in a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GroupRole {
    /// Alone, or first.
    #[default]
    Leader,
    /// Added to a leader that is open.
    Member,
}

/// A refused request.
#[derive(Clone, Copy, Debug)]
pub struct RefusedRequest<'a> {
    /// The error number.
    pub errno: i32,
    /// What was asked for.
    pub attr: &'a Attr,
    /// What it was to be bound to.
    pub target: TargetKind,
    /// Whether it was to join a group.
    pub role: GroupRole,
    /// The machine.
    pub facts: &'a Facts,
}

/// What kind of refusal it is, for programs.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReasonKind {
    /// This machine or kernel cannot do it.
    NotSupported,
    /// This user may not do it.
    NotPermitted,
    /// Something that is needed has run out, or is in use.
    NoResource,
    /// The request contradicts itself, or a part of it is out of range.
    Invalid,
    /// The target has ended.
    Gone,
    /// The target is not there: no such CPU, or it is offline.
    NotPresent,
}

/// Why an event was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reason {
    /// The kind.
    pub kind: ReasonKind,
    /// One sentence, without a full stop at its end.
    pub summary: String,
    /// What would help, the most promising first. May be empty.
    pub help: Vec<String>,
}

impl Reason {
    fn new(kind: ReasonKind, summary: impl Into<String>) -> Self {
        Self { kind, summary: summary.into(), help: Vec::new() }
    }

    fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }

    fn help_if(mut self, line: Option<String>) -> Self {
        self.help.extend(line);
        self
    }
}

impl fmt::Display for Reason {
    /// Writes the summary, and each help on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        self.help.iter().try_for_each(|line| write!(f, "\n  help: {line}"))
    }
}

/// Whether [`explain`] looks at nothing but [`Facts::of_machine`] for such a refusal.
#[must_use]
pub const fn is_about_the_machine(errno: i32, target: TargetKind) -> bool {
    errno == libc::ENOENT && matches!(target, TargetKind::Task(_))
}

/// Names the cause of a refusal.
///
/// Causes were checked against kernel 6.18 where a machine could show them; the rest follows `perf_event_open(2)` and
/// `Documentation/admin-guide/perf-security.rst`.
#[must_use]
pub fn explain(refusal: &RefusedRequest<'_>) -> Reason {
    match refusal.errno {
        libc::EACCES | libc::EPERM => permission::denied(refusal),
        libc::ENOENT => support::no_such_event(refusal),
        libc::EOPNOTSUPP => support::no_such_feature(refusal),
        libc::ENOSYS => support::no_such_call(refusal),
        libc::ENODEV | libc::ENXIO => support::no_such_device(refusal),
        libc::E2BIG => support::kernel_too_old(refusal),
        libc::ESRCH => resources::gone(refusal),
        libc::EMFILE => resources::too_many_files(refusal.facts),
        libc::ENFILE => resources::too_many_files_of_all(),
        libc::ENOSPC => resources::no_slot(refusal),
        libc::EBUSY => resources::busy(refusal),
        libc::ENOMEM => resources::no_memory(),
        libc::EINVAL => request::invalid(refusal),
        libc::EOVERFLOW => request::call_chain_too_long(refusal),
        libc::EBADF => request::bad_file(refusal),
        libc::EFAULT => request::bad_address(refusal),
        libc::EINTR => resources::interrupted(),
        other => {
            let error = std::io::Error::from_raw_os_error(other);
            Reason::new(ReasonKind::NotSupported, format!("the kernel refused the event: {error}"))
        }
    }
}
