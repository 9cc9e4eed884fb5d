//! What is known about the machine and the caller.
//!
//! **Invariant:** plain data. An unknown fact is `None` or empty, and no sentence is built on it.

use std::path::PathBuf;

use pmux_abi::attr::{Attr, EventType};

use crate::cpus::CpuList;
use crate::procfs::SeccompMode;
use crate::selinux::{PerfPermission, PerfRights, TargetScope};

use super::TargetKind;

/// A capability that matters here, by its number. Source: `capabilities(7)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Capability {
    /// Look into the tasks of others.
    SysPtrace = 19,
    /// Nearly everything.
    SysAdmin = 21,
    /// Performance events (Linux 5.8).
    Perfmon = 38,
    /// BPF programs and maps (Linux 5.8).
    Bpf = 39,
}

/// In which user namespace the caller lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum UserNamespace {
    /// The first: its capabilities count everywhere.
    #[default]
    Initial,
    /// One inside: its capabilities do not count for performance events.
    Nested,
}

/// What the kernel's lockdown forbids even to root. Source: `kernel_lockdown(7)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Lockdown {
    /// Nothing, or it is not built in.
    #[default]
    None,
    /// Changes of the kernel.
    Integrity,
    /// Changes, and looking into its memory.
    Confidentiality,
}

/// What kind of machine it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MachineKind {
    /// Nothing tells.
    #[default]
    Unknown,
    /// A virtual one.
    Virtual,
}

/// Limits on open files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpenFiles {
    /// The limit in force, which the process may raise.
    pub soft: u64,
    /// The limit to which it may raise it.
    pub hard: u64,
    /// The limit to which root may raise that one (`fs.nr_open`), if known.
    pub ceiling: Option<u64>,
}

/// Where a PMU can count.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum PmuScope {
    /// For tasks and for CPUs.
    #[default]
    Anywhere,
    /// For whole CPUs only, on these: it counts something that the CPUs share.
    Shared(CpuList),
}

/// A PMU as sysfs shows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PmuFacts {
    /// Its name.
    pub name: String,
    /// The number that stands in an attribute's type.
    pub number: u32,
    /// Where it can count.
    pub scope: PmuScope,
    /// The highest precision of its samples, if it says so.
    pub max_precise: Option<u8>,
}

impl PmuFacts {
    /// Whether it is the PMU of the CPU cores, which takes the generalised hardware events.
    #[must_use]
    pub fn is_core(&self) -> bool {
        const NAMES: [&str; 4] = ["cpu", "cpu_core", "cpu_atom", "cpum_cf"];
        const FAMILIES: [&str; 4] = ["armv7", "armv8", "armv9", "apple_"];
        // On x86, POWER and RISC-V it owns the type of raw events.
        self.number == EventType::RAW.0
            || NAMES.contains(&self.name.as_str())
            || FAMILIES.iter().any(|family| self.name.starts_with(family))
    }
}

/// Whether, and where, the cgroups are to which events can be bound.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum CgroupEvents {
    /// Nothing tells.
    #[default]
    Unknown,
    /// Nowhere: the kernel was booted with `cgroup_disable=perf_event`.
    Disabled,
    /// In a v1 hierarchy, which is mounted here, or not.
    V1 {
        /// Where it is mounted.
        mounted: Option<PathBuf>,
    },
    /// In v2.
    V2 {
        /// Where it is mounted.
        mounted: PathBuf,
        /// What its root passes on to the cgroups below.
        below: Controllers,
    },
}

/// What the root of cgroup v2 passes on (`cgroup.subtree_control`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Controllers {
    /// Nothing. As long as nothing has ever been written there, the cgroups below carry no events either, although
    /// the controller for events needs no switching on: the kernel works out what they have at the first change only. Seen
    /// with 6.1, 6.12 and 7.2.
    None,
    /// Some.
    Some,
}

/// The lowest setting of `kernel.perf_event_paranoid` at which some distributions refuse everything.
pub(super) const REFUSE_ALL: i32 = 3;

/// What is known about the machine and the caller. [`Facts::gather`] reads it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// `kernel.perf_event_paranoid`; `None` where the kernel has no performance events, or hides them.
    pub paranoid: Option<i32>,
    /// Whether the kernel opens an event that counts nothing, in user mode, for the calling thread. Found out by trying only where
    /// `paranoid` is above 2: some distributions' kernels refuse everything then, the others take it for 2.
    pub opens_least: Option<bool>,
    /// The effective user.
    pub effective_uid: u32,
    /// The effective capabilities, a bit for each.
    pub capabilities: u64,
    /// Those that the caller's programs may be given, a bit for each.
    pub bounding: u64,
    /// The path of this program.
    pub program: Option<String>,
    /// The user namespace.
    pub namespace: UserNamespace,
    /// Whether system calls are filtered.
    pub seccomp: SeccompMode,
    /// What hints at a container, for the user to recognise it.
    pub container: Option<String>,
    /// The kind of machine.
    pub machine: MachineKind,
    /// The architecture, as Rust names it.
    pub architecture: String,
    /// The kernel's version: major and minor.
    pub kernel: Option<(u32, u32)>,
    /// The PMUs; `None` where sysfs could not be read.
    pub pmus: Option<Vec<PmuFacts>>,
    /// The CPUs that run.
    pub online: CpuList,
    /// The CPUs that there could be.
    pub possible: CpuList,
    /// `kernel.perf_event_max_sample_rate`, in samples a second.
    pub max_sample_rate: Option<u64>,
    /// `kernel.perf_event_max_stack`, in frames.
    pub max_stack: Option<u64>,
    /// The kernel's lockdown.
    pub lockdown: Lockdown,
    /// The security modules that are active.
    pub security_modules: Vec<String>,
    /// What SELinux calls the caller, and lets it do with performance events, if it tells; `None` where it is not at work.
    pub selinux: Option<(String, Option<PerfRights>)>,
    /// Whether the NMI watchdog holds a hardware counter on each CPU.
    pub nmi_watchdog: Option<bool>,
    /// The limits on open files.
    pub open_files: Option<OpenFiles>,
    /// Where cgroups carry events.
    pub cgroups: CgroupEvents,
}

impl Facts {
    /// Whether the caller has a capability that counts, that is, in the first user namespace.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        self.namespace == UserNamespace::Initial && self.capabilities & (1 << capability as u32) != 0
    }

    /// Whether `kernel.perf_event_paranoid` may be a level at which a distribution's kernel refuses everything to the caller.
    #[must_use]
    pub(super) fn may_refuse_all(&self) -> bool {
        self.paranoid.is_some_and(|level| level >= REFUSE_ALL) && self.opens_least != Some(true)
    }

    /// Whether the caller is above `kernel.perf_event_paranoid`.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.can(Capability::Perfmon) || self.can(Capability::SysAdmin)
    }

    /// What SELinux's policy withholds from the caller for such an event, and what it calls the caller.
    #[must_use]
    pub fn selinux_withholds(&self, attr: &Attr, target: TargetKind) -> Option<(&str, PerfPermission)> {
        let (label, rights) = self.selinux.as_ref()?;
        let target_scope = match target {
            TargetKind::Task(_) => TargetScope::Task,
            TargetKind::Cpu(_) | TargetKind::Cgroup => TargetScope::WholeCpu,
        };
        Some((label, rights.as_ref()?.lack_for(attr, target_scope)?))
    }

    /// The PMU with a number.
    #[must_use]
    pub fn pmu(&self, number: u32) -> Option<&PmuFacts> {
        self.pmus.iter().flatten().find(|pmu| pmu.number == number)
    }

    /// Whether it is known that the machine shows no PMU of its cores.
    #[must_use]
    pub fn lacks_core_pmu(&self) -> bool {
        self.pmus.as_ref().is_some_and(|pmus| !pmus.iter().any(PmuFacts::is_core))
    }

    /// Whether the kernel is known to be older than this version.
    #[must_use]
    pub fn is_older_than(&self, version: (u32, u32)) -> bool {
        self.kernel.is_some_and(|kernel| kernel < version)
    }
}
