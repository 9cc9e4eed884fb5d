//! Why an event is not counted, and what would help.
//!
//! **Invariant:** every refusal has a sentence; no errno is shown alone.

use crate::error::Error;
use crate::session::Session;
use pmux_abi::attr::{Attr, breakpoint};
use pmux_engine::hw_breakpoint::{Claim, Full, Holder, Holding, Taken};
use pmux_engine::{CpuId, OpenError, PmuId};
use pmux_linux::Errno;
use pmux_linux::diagnose::{self, Facts, GroupRole, Reason, ReasonKind, TargetKind};
use pmux_linux::limits;
use pmux_linux::procfs::ProcError;
use pmux_linux::shared::client::Service;
use std::fmt;
use std::sync::Arc;

/// Why an event is not counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What is the matter, in one sentence without a full stop.
    pub summary: String,
    /// What would help; may be empty.
    pub help: Vec<String>,
    /// What sort of obstacle it is.
    pub kind: ReasonKind,
    /// The errno, where the kernel gave one.
    pub errno: Option<i32>,
    /// The CPU on which it happened, where it matters.
    pub cpu: Option<CpuId>,
}

impl Refusal {
    pub(crate) fn new(summary: impl Into<String>, kind: ReasonKind) -> Self {
        Self { summary: summary.into(), help: Vec::new(), kind, errno: None, cpu: None }
    }

    fn helped_by(self, help: &str) -> Self {
        Self { help: vec![help.to_owned()], ..self }
    }

    pub(crate) fn by_choice() -> Self {
        let variable = crate::session::BACKEND_VARIABLE;
        Self::new(format!("{variable}=usage or the caller asked for it"), ReasonKind::NotSupported)
    }

    pub(crate) fn needs_kernel_events() -> Self {
        Self::new("it needs the kernel's performance events, which can't be opened here", ReasonKind::NotSupported)
    }

    /// Children can't have an event that is to be attributed to them.
    pub(crate) fn cannot_be_inherited(why: &str) -> Self {
        Self::new(format!("children can't inherit it: {why}"), ReasonKind::NotSupported)
    }

    pub(crate) fn counts_packages() -> Self {
        let refusal = Self::new("its PMU counts a whole package and knows no tasks", ReasonKind::NotSupported);
        refusal.helped_by("count system-wide: -a")
    }

    /// A group that takes turns as a whole needs more counters than run at once.
    pub(crate) fn too_few_counters(session: &Session, pmu: PmuId, events: usize) -> Self {
        let name = session.pmu_name(pmu).unwrap_or_else(|| "its PMU".to_owned());
        let limit = session.engine().host().capacity(pmu).map_or(0, |room| room.limit);
        let summary =
            format!("its group needs counters for {events} events of {name} at once, and {limit} run at once");
        Self::new(summary, ReasonKind::NoResource).helped_by("put fewer events into one group")
    }

    /// What is counted without performance events can't tell this number.
    pub(crate) fn not_accounted(event: &str, target: TargetKind, errno: i32) -> Self {
        let whose = match target {
            TargetKind::Task(_) => "this task",
            TargetKind::Cpu(_) => "a CPU",
            TargetKind::Cgroup => "this cgroup",
        };
        let refusal = if matches!(Errno::from_raw(errno), Errno::EPERM | Errno::EACCES) {
            let summary = format!("{event} of {whose} stands in files that this user may not read");
            Self::new(summary, ReasonKind::NotPermitted).helped_by("run as root, or as the user who owns it")
        } else if errno == Errno::ENOSYS.raw() {
            let summary =
                format!("without performance events {event} of {whose} stands in /proc, which is not mounted here");
            Self::new(summary, ReasonKind::NotSupported).helped_by("mount it: `mount -t proc proc /proc`")
        } else {
            let summary = format!("without performance events the kernel tells no {event} of {whose}");
            Self::new(summary, ReasonKind::NotSupported)
        };
        Self { errno: Some(errno), ..refusal }
    }

    /// There was no file left for an event: says how many are needed. Call it when everything is closed again, for
    /// explaining needs files too.
    pub(crate) fn out_of_files(needed: u64, facts: impl FnOnce() -> Reason) -> Self {
        let Reason { summary, help, kind } = match limits::ensure_files(needed) {
            Err(limit) => {
                let text = limit.to_string();
                let (summary, help) = text.split_once("; ").unwrap_or((&text, ""));
                let mut help = vec![help.to_owned()];
                help.push("fewer events, CPUs or cgroups at a time need fewer files".to_owned());
                Reason { summary: summary.to_owned(), help, kind: ReasonKind::NoResource }
            }
            // Others have closed some meanwhile.
            Ok(()) => facts(),
        };
        Self { summary, help, kind, errno: Some(Errno::EMFILE.raw()), cpu: None }
    }

    /// Whether files are left for what comes later, once everything is open.
    ///
    /// # Errors
    /// [`Session::with_file_numbers`] completes it.
    pub(crate) fn files_for_later() -> Result<(), Error> {
        if limits::has_files_for_later() {
            return Ok(());
        }
        let refusal = Self::new("too many files are open", ReasonKind::NoResource);
        Err(Error::Refused(vec![Self { errno: Some(Errno::EMFILE.raw()), ..refusal }]))
    }

    /// The attribute states a size that none has.
    pub(crate) fn of_size(bytes: u32) -> Self {
        let summary = format!("its attribute states {bytes} bytes, and has between 64 and 4096");
        Self { errno: Some(Errno::E2BIG.raw()), ..Self::new(summary, ReasonKind::Invalid) }
    }

    /// The attribute is at no address.
    pub(crate) fn of_address() -> Self {
        let refusal = Self::new("there is no memory where its attribute is said to be", ReasonKind::Invalid);
        Self { errno: Some(Errno::EFAULT.raw()), ..refusal }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.errno == Some(Errno::ESRCH.raw())
    }

    pub(crate) fn is_about_files(&self) -> bool {
        self.errno == Some(Errno::EMFILE.raw())
    }

    pub(crate) fn is_fatal(&self) -> bool {
        // EMFILE and ENOMEM hit whichever event comes next; a target that is gone has nothing to count at all.
        matches!(self.errno.map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::ESRCH))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        for help in &self.help {
            write!(f, "\n  {help}")?;
        }
        Ok(())
    }
}

impl Session {
    /// The refusal behind an error of the engine on the kernel's PMU.
    pub(crate) fn refusal(&self, error: OpenError, attr: &Attr, target: TargetKind) -> Refusal {
        if error.errno() == Errno::EMFILE.raw() {
            // What is known about the machine is gathered once, and from files: not now.
            let refusal = Refusal::new("this process has no open file left", ReasonKind::NoResource);
            return Refusal { errno: Some(Errno::EMFILE.raw()), ..refusal };
        }
        let of_machine = diagnose::is_about_the_machine(error.errno(), target);
        let facts = if of_machine { self.machine_facts() } else { self.facts() };
        let mut refusal = of_kernel(error, attr, target, facts);
        if let (ReasonKind::NotPermitted, TargetKind::Cpu(_) | TargetKind::Cgroup) = (refusal.kind, target)
            && self.a_group_would_help(attr, target)
        {
            let help =
                "the sharing service counts it for members of the groups that its configuration names in `system_wide`";
            refusal.help.push(help.to_owned());
        }
        if let OpenError::DebugRegisters { full, taken, .. } = error {
            let known = self.known_holders(&full, taken);
            match taken {
                // Then no other holder is the cause.
                Taken::Known => refusal.help = vec![known],
                Taken::Outside | Taken::Inherited => refusal.help.insert(0, known),
            }
        }
        refusal
    }

    /// The refusal behind an error of the kernel that did not come through the engine.
    pub(crate) fn refusal_of(&self, errno: i32, attr: &Attr, target: TargetKind, role: GroupRole) -> Refusal {
        let facts = self.facts();
        let request = diagnose::RefusedRequest { errno, attr, target, role, facts };
        let Reason { summary, help, kind } = diagnose::explain(&request);
        Refusal { summary, help, kind, errno: Some(errno), cpu: None }
    }

    /// Whether this process could count an event of a CPU through the service if its user were in a group of `system_wide`: a
    /// member is allowed already, and no group is given records.
    fn a_group_would_help(&self, attr: &Attr, target: TargetKind) -> bool {
        let outside = |service: &Arc<Service>| service.terms().is_none_or(|terms| !terms.rights.system_wide);
        pmux_engine::pmu::share_key::canonical(attr).is_some()
            && self.engine().host().find_service().is_some_and(outside)
            && self.facts().selinux_withholds(attr, target).is_none()
    }

    /// Which of the debug registers that are in the way this session itself holds, and which others of this program do.
    fn known_holders(&self, full: &Full, taken: Taken) -> String {
        let Full { kind, cpu, in_use, total, .. } = *full;
        let name = |held: &Holding| match held.holder {
            Holder::Event(event) => self.engine().attr(event).ok().map(|attr| breakpoint_name(&attr)),
            Holder::Opening | Holder::Outside(_) | Holder::Elsewhere(..) => None,
        };
        let holders = self.engine().holders(full);
        let elsewhere: Vec<_> = holders.iter().filter(|held| matches!(held.holder, Holder::Elsewhere(..))).collect();
        let by_others: u32 = elsewhere.iter().map(|held| u32::from(held.claim.weight.get())).sum();
        let in_use = in_use.saturating_sub(by_others);
        let names: Vec<_> = holders.iter().filter_map(name).collect();
        // What is closed again meanwhile has no name any more: all, or none.
        let are_all = !names.is_empty() && names.len() == in_use as usize;
        let mut names = if are_all { format!(" ({})", names.join(", ")) } else { String::new() };
        if by_others > 0 {
            let places: Vec<_> = elsewhere.iter().map(|held| held_where(held)).collect();
            names.push_str(&format!(" and other sessions of this program {by_others} ({})", places.join(", ")));
        }
        let held = format!("of the {total} for {kind} breakpoints on CPU {cpu} this session holds");
        match (taken, in_use) {
            (Taken::Known, _) => format!("{held} {in_use}{names}: count fewer at a time"),
            (Taken::Outside, 0) if by_others == 0 => format!("{held} none: another program does"),
            (Taken::Outside, _) => format!("{held} {in_use}{names}, another program the others"),
            (Taken::Inherited, _) => {
                format!("{held} {in_use}{names}; children may have inherited the others, or another program holds them")
            }
        }
    }

    /// Completes a refusal for want of files with the numbers; any other error stays. Everything must be closed again.
    pub(crate) fn with_file_numbers(&self, error: Error, needed: u64) -> Error {
        let is_about_files = match &error {
            Error::Refused(refusals) => refusals.iter().any(Refusal::is_about_files),
            Error::Process(ProcError::Io { errno, .. }) => *errno == Errno::EMFILE.raw(),
            _ => false,
        };
        if !is_about_files {
            return error;
        }
        let facts = || {
            let attr = Attr::default();
            let target = TargetKind::Task(diagnose::Whose::Own);
            let (errno, role) = (Errno::EMFILE.raw(), GroupRole::Leader);
            diagnose::explain(&diagnose::RefusedRequest { errno, attr: &attr, target, role, facts: self.facts() })
        };
        Error::Refused(vec![Refusal::out_of_files(needed, facts)])
    }
}

/// The refusal behind an error of the engine on the kernel's PMU.
pub(crate) fn of_kernel(error: OpenError, attr: &Attr, target: TargetKind, facts: &Facts) -> Refusal {
    let errno = error.errno();
    let cpu = match (error, target) {
        (OpenError::CpuOffline { cpu }, _) => Some(cpu),
        (_, TargetKind::Cpu(cpu)) => Some(CpuId(cpu)),
        _ => None,
    };
    let Reason { summary, help, kind } = match error {
        OpenError::Bank { .. }
        | OpenError::DebugRegisters { .. }
        | OpenError::CpuOffline { .. }
        | OpenError::Parse { .. } => {
            let role = if error.index().is_some_and(|index| index > 0) { GroupRole::Member } else { GroupRole::Leader };
            diagnose::explain(&diagnose::RefusedRequest { errno, attr, target, role, facts })
        }
        other => Reason { summary: other.to_string(), help: Vec::new(), kind: ReasonKind::Invalid },
    };
    Refusal { summary, help, kind, errno: Some(errno), cpu }
}

/// What another session holds: its events have no names here.
fn held_where(held: &Holding) -> String {
    let Holding { claim: Claim { kind, .. }, place, .. } = held;
    match place.task() {
        Some(task) => format!("{kind} of thread {}", task.0),
        None => format!("{kind} of the CPU itself"),
    }
}

pub(crate) fn breakpoint_name(attr: &Attr) -> String {
    let letters = [(breakpoint::R, 'r'), (breakpoint::W, 'w'), (breakpoint::X, 'x')];
    let access: String = letters.iter().filter(|(bit, _)| attr.bp_type & bit != 0).map(|&(_, letter)| letter).collect();
    format!("mem:{:#x}/{}:{access}", attr.config1, attr.config2)
}
