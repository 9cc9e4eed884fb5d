//! Reading the facts from `/proc` and `/sys`.
//!
//! **Invariant:** gathering never fails: what cannot be read stays unknown.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use pmux_abi::attr::{Attr, AttrFlags, EventType, sw};

use super::facts::{
    CgroupEvents, Controllers, Facts, Lockdown, MachineKind, OpenFiles, PmuFacts, PmuScope, REFUSE_ALL, UserNamespace,
};
use crate::cgroup::Mounts;
use crate::cpus::{CpuList, Cpus};
use crate::limits::limits_of;
use crate::procfs::{Proc, read_whole};
use crate::raw_perf_event;
use crate::selinux::{PerfRights, Selinux};

/// Files whose presence hints at a container, and what it is then called.
const CONTAINER_MARKS: [(&str, &str); 3] =
    [(".dockerenv", "Docker"), ("run/.containerenv", "Podman"), ("run/systemd/container", "systemd-nspawn or similar")];

/// The tops of the trees that the facts are read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roots {
    /// In place of `/`.
    pub files: PathBuf,
    /// In place of `/proc`.
    pub proc: PathBuf,
    /// In place of `/sys`.
    pub sys: PathBuf,
}

impl Roots {
    /// Those of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self::at(Path::new("/"))
    }

    /// Those below a folder.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { files: root.to_owned(), proc: root.join("proc"), sys: root.join("sys") }
    }
}

impl Facts {
    /// Reads what can be read. Costs a few dozen small files: for the path of an error, not for every event.
    #[must_use]
    pub fn gather(roots: &Roots) -> Self {
        let proc = Proc::at(&roots.proc);
        let status = proc.own_status().unwrap_or_default();
        let kernel = |name: &str| roots.proc.join("sys/kernel").join(name);
        let security = roots.sys.join("kernel/security");
        let cpus = Cpus::with(roots.sys.join("devices/system/cpu"), proc.clone());
        let paranoid = number(&kernel("perf_event_paranoid"));
        Self {
            paranoid,
            opens_least: paranoid
                .filter(|&level: &i32| level >= REFUSE_ALL && roots.files == Path::new("/"))
                .map(|_| opens_least()),
            effective_uid: status.users.effective,
            capabilities: status.effective_capabilities,
            bounding: status.bounding_capabilities,
            program: std::fs::read_link(roots.proc.join("self/exe"))
                .ok()
                .and_then(|path| path.to_str().map(str::to_owned)),
            namespace: namespace(&roots.proc.join("self/uid_map")),
            seccomp: status.seccomp,
            container: container(&roots.files),
            online: cpus.online().unwrap_or_default(),
            possible: cpus.possible().unwrap_or_default(),
            max_sample_rate: number(&kernel("perf_event_max_sample_rate")),
            max_stack: number(&kernel("perf_event_max_stack")),
            lockdown: text(&security.join("lockdown")).map_or(Lockdown::None, |text| lockdown(&text)),
            security_modules: text(&security.join("lsm"))
                .map(|list| list.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            selinux: selinux(roots),
            nmi_watchdog: number::<u8>(&kernel("nmi_watchdog")).map(|value| value != 0),
            open_files: text(&roots.proc.join("self/limits")).and_then(|limits| {
                let (soft, hard) = limits_of(&limits, "Max open files")?;
                Some(OpenFiles { soft, hard, ceiling: number(&roots.proc.join("sys/fs/nr_open")) })
            }),
            cgroups: cgroups(roots).unwrap_or_default(),
            ..Self::of_machine(roots)
        }
    }

    /// Only what explains why a task's event is not there at all: the PMUs, the kind of machine, the kernel. It is a third of the
    /// files, and on a machine without a PMU every `pmux stat` asks for it.
    #[must_use]
    pub fn of_machine(roots: &Roots) -> Self {
        Self {
            machine: machine(roots),
            architecture: std::env::consts::ARCH.to_owned(),
            kernel: text(&roots.proc.join("sys/kernel/osrelease")).and_then(|release| version(&release)),
            pmus: pmus(&roots.sys.join("bus/event_source/devices")),
            ..Self::default()
        }
    }
}

/// Whether the least that can be asked for is opened.
fn opens_least() -> bool {
    let flags = AttrFlags::DISABLED | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    raw_perf_event::can_open(&Attr { kind: EventType::SOFTWARE, config: sw::TASK_CLOCK, flags, ..Attr::default() })
        .is_ok()
}

fn text(path: &Path) -> Option<String> {
    String::from_utf8(read_whole(path).ok()?).ok().map(|text| text.trim().to_owned())
}

fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

fn selinux(roots: &Roots) -> Option<(String, Option<PerfRights>)> {
    let selinux = Selinux::at(&roots.sys.join("fs/selinux"))?;
    let label = text(&roots.proc.join("self/attr/current"))?.trim_end_matches('\0').to_owned();
    // Few may ask what the policy says.
    let rights = selinux.rights_of(&label).ok();
    Some((label, rights))
}

/// The first namespace maps every user to itself.
fn namespace(uid_map: &Path) -> UserNamespace {
    let Some(map) = text(uid_map) else { return UserNamespace::Initial };
    let words: Vec<&str> = map.split_ascii_whitespace().collect();
    if words == ["0", "0", "4294967295"] { UserNamespace::Initial } else { UserNamespace::Nested }
}

fn container(files: &Path) -> Option<String> {
    let mark = CONTAINER_MARKS.iter().find(|(mark, _)| files.join(mark).exists());
    mark.map(|(_, name)| (*name).to_owned())
}

/// x86 has a CPU flag for it; elsewhere the firmware's names give it away.
fn machine(roots: &Roots) -> MachineKind {
    const MAKERS: [&str; 8] =
        ["QEMU", "KVM", "VMware", "Xen", "innotek", "Microsoft Corporation", "Amazon EC2", "Google"];
    let flags = text(&roots.proc.join("cpuinfo")).unwrap_or_default();
    let flagged = flags
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    let maker = text(&roots.sys.join("class/dmi/id/sys_vendor")).unwrap_or_default();
    let made = MAKERS.iter().any(|name| maker.contains(name));
    let product = text(&roots.sys.join("class/dmi/id/product_name")).unwrap_or_default();
    let named = product.contains("Virtual") || product.contains("KVM");
    // Where CPUs have flags, a maker alone proves nothing: some of these sell bare machines as well.
    let has_flags = flags.lines().any(|line| line.starts_with("flags"));
    if flagged || (!has_flags && (made || named)) || roots.sys.join("hypervisor/type").exists() {
        MachineKind::Virtual
    } else {
        MachineKind::Unknown
    }
}

pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|sign: char| !sign.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The mode in force stands in brackets.
fn lockdown(text: &str) -> Lockdown {
    if text.contains("[confidentiality]") {
        Lockdown::Confidentiality
    } else if text.contains("[integrity]") {
        Lockdown::Integrity
    } else {
        Lockdown::None
    }
}

/// What the kernel says of the controller `perf_event`: its hierarchy is 0 where it is with v2 (see `cgroups(7)`).
fn cgroups(roots: &Roots) -> Option<CgroupEvents> {
    let mounts = Mounts::at(&roots.proc.join("self/mountinfo")).ok()?;
    let table = text(&roots.proc.join("cgroups"));
    let line = table.iter().flat_map(|table| table.lines()).find_map(|line| line.strip_prefix("perf_event"));
    let words: Vec<&str> = line.unwrap_or_default().split_ascii_whitespace().collect();
    let place = mounts.for_events();
    if let [_, _, "0"] = words[..] {
        return Some(CgroupEvents::Disabled);
    }
    if words.first().is_some_and(|&hierarchy| hierarchy != "0") || mounts.events_are_in_v1() {
        let mounted = place.filter(|_| mounts.events_are_in_v1()).map(Path::to_owned);
        return Some(CgroupEvents::V1 { mounted });
    }
    let mounted = place?.to_owned();
    let below = text(&mounted.join("cgroup.subtree_control"))?;
    let below = if below.is_empty() { Controllers::None } else { Controllers::Some };
    Some(CgroupEvents::V2 { mounted, below })
}

fn pmus(devices: &Path) -> Option<Vec<PmuFacts>> {
    let mut pmus: Vec<PmuFacts> = std::fs::read_dir(devices)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let folder = entry.path();
            let mask = text(&folder.join("cpumask")).and_then(|mask| CpuList::parse_kernel(&mask).ok());
            Some(PmuFacts {
                name: entry.file_name().to_str()?.to_owned(),
                number: number(&folder.join("type"))?,
                scope: mask.map_or(PmuScope::Anywhere, PmuScope::Shared),
                max_precise: number(&folder.join("caps/max_precise")),
            })
        })
        .collect();
    crate::order::sort_by(&mut pmus, |a, b| a.name.cmp(&b.name));
    Some(pmus)
}
