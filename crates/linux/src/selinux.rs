//! What SELinux lets a process do with performance events.
//!
//! What it is: the class `perf_event` of the policy that is loaded, asked through selinuxfs. The kernel asks it for the process
//! that opens an event; where a service opens one for another process, the service has to ask.
//! Read first: [`Selinux::rights_of`].
//!
//! **Invariant:** nothing is kept: a policy may be loaded, and enforced or not, at any moment.
//!
//! Source: Linux 6.18, `security/selinux/selinuxfs.c` (`sel_write_access`), `security/selinux/hooks.c`
//! (`selinux_perf_event_open`), `security/selinux/include/classmap.h`; `include/linux/perf_event.h` (`perf_allow_kernel`,
//! `perf_allow_cpu`, `perf_allow_tracepoint`). Whether an event may be read is asked at each reading, of who reads the file.

use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, tracepoint};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// That a domain only reports what it would refuse.
const PERMISSIVE_DOMAIN: u32 = 1;

/// What may be allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PerfPermission {
    /// To open events at all.
    Open,
    /// To count what a CPU does, for whomever.
    Cpu,
    /// To count in the kernel.
    Kernel,
    /// To learn what tracepoints say.
    Tracepoint,
}

impl PerfPermission {
    /// All of them, in the order in which the kernel asks for them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Cpu, Self::Kernel, Self::Tracepoint];

    /// Its name in policies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Cpu => "cpu",
            Self::Kernel => "kernel",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// Whether the kernel asks for it when a process opens such an event: one of root's too.
    #[must_use]
    pub fn is_needed_for(self, attr: &Attr, target_scope: TargetScope) -> bool {
        match self {
            Self::Open => true,
            Self::Cpu => target_scope == TargetScope::WholeCpu,
            Self::Kernel => !attr.flags.contains(AttrFlags::EXCLUDE_KERNEL),
            Self::Tracepoint => {
                let tells = attr.sample.contains(SampleFormat::RAW) || attr.config == tracepoint::FUNCTIONS;
                attr.kind == EventType::TRACEPOINT && tells
            }
        }
    }
}

/// How much of the machine an event sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetScope {
    /// A task.
    Task,
    /// All that runs on a CPU, or of a cgroup on it.
    WholeCpu,
}

/// What is allowed to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerfRights(u8);

impl PerfRights {
    /// Everything.
    pub const ALL: Self = Self(0b1111);
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Whether this is among them.
    #[must_use]
    pub const fn allow(self, permission: PerfPermission) -> bool {
        self.0 & 1 << permission as u8 != 0
    }

    /// What is missing to open such an event, if anything.
    #[must_use]
    pub fn lack_for(self, attr: &Attr, target_scope: TargetScope) -> Option<PerfPermission> {
        let lacks =
            |permission: &PerfPermission| permission.is_needed_for(attr, target_scope) && !self.allow(*permission);
        PerfPermission::ALL.into_iter().find(lacks)
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, permission: PerfPermission) -> Self {
        Self(self.0 | 1 << permission as u8)
    }
}

/// SELinux, where it is at work.
#[derive(Clone, Debug)]
pub struct Selinux {
    root: PathBuf,
}

impl Selinux {
    /// That of this machine, if it has one.
    #[must_use]
    pub fn system() -> Option<Self> {
        Self::at(Path::new("/sys/fs/selinux"))
    }

    /// The one whose selinuxfs is mounted here.
    pub(crate) fn at(root: &Path) -> Option<Self> {
        root.join("enforce").exists().then(|| Self { root: root.to_owned() })
    }

    /// What the policy in force allows to a process that has this label.
    ///
    /// # Errors
    /// It can't be asked: `EACCES` where this process may not; `EINVAL` for what is no label of the policy; a file of selinuxfs says
    /// something else than expected.
    pub fn rights_of(&self, label: &str) -> io::Result<PerfRights> {
        if self.number("enforce")? == 0 {
            return Ok(PerfRights::ALL);
        }
        let class = match self.number("class/perf_event/index") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Before a policy is loaded nothing is refused.
                let has_policy = fs::read_dir(self.root.join("class"))?.next().is_some();
                return if has_policy { self.rights_to_the_unknown() } else { Ok(PerfRights::ALL) };
            }
            class => class?,
        };
        let (allowed, flags) = self.ask(label, class)?;
        if flags & PERMISSIVE_DOMAIN != 0 {
            return Ok(PerfRights::ALL);
        }
        let mut rights = PerfRights::NONE;
        for permission in PerfPermission::ALL {
            let allows = match self.number(&format!("class/perf_event/perms/{}", permission.name())) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.rights_to_the_unknown()?.allow(permission)
                }
                // They are numbered from 1 on.
                number => number?.checked_sub(1).and_then(|bit| allowed.checked_shr(bit)).unwrap_or(0) & 1 != 0,
            };
            if allows {
                rights = rights.with(permission);
            }
        }
        Ok(rights)
    }

    /// What is allowed of what the policy doesn't know.
    fn rights_to_the_unknown(&self) -> io::Result<PerfRights> {
        Ok(if self.number("deny_unknown")? == 0 { PerfRights::ALL } else { PerfRights::NONE })
    }

    /// What a label may do to itself, which is how the kernel asks for the process that opens an event: a bit for each permission, and
    /// flags.
    fn ask(&self, label: &str, class: u32) -> io::Result<(u32, u32)> {
        // It is one word among others.
        if label.is_empty() || label.contains(|letter: char| letter.is_whitespace() || letter == '\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{label:?} is no label")));
        }
        let mut file = OpenOptions::new().read(true).write(true).open(self.root.join("access"))?;
        // In one write, and the answer in one read: it is a transaction.
        file.write_all(format!("{label} {label} {class} {:x}", u32::MAX).as_bytes())?;
        let mut answer = [0; 128];
        let bytes = file.read(&mut answer)?;
        let text = String::from_utf8_lossy(&answer[..bytes]);
        let mut words = text.split_ascii_whitespace();
        let mut word = |at: usize| words.nth(at).and_then(|word| u32::from_str_radix(word, 16).ok());
        // Behind the first: what was decided, two kinds of audits, and a number that isn't in hex.
        match (word(0), word(4)) {
            (Some(allowed), flags) => Ok((allowed, flags.unwrap_or(0))),
            (None, _) => Err(wrong("access", &text)),
        }
    }

    fn number(&self, file: &str) -> io::Result<u32> {
        let text = fs::read_to_string(self.root.join(file))?;
        text.trim().parse().map_err(|_| wrong(file, &text))
    }
}

fn wrong(file: &str, text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("selinuxfs says {text:?} in {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &str = "u:r:agent_t:s0-s0:c1.c9";

    /// A selinuxfs of plain files: what is written is put over the beginning of `access`, and the answer stands behind that.
    fn of(answer: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Selinux) {
        let folder = tempfile::tempdir().unwrap();
        let usual = [
            ("enforce", "1"),
            ("deny_unknown", "1"),
            ("class/perf_event/index", "131"),
            ("class/perf_event/perms/open", "1"),
            ("class/perf_event/perms/cpu", "2"),
            ("class/perf_event/perms/kernel", "3"),
            ("class/perf_event/perms/tracepoint", "4"),
            ("class/perf_event/perms/read", "5"),
        ];
        let asked = format!("{LABEL} {LABEL} 131 ffffffff");
        let access = format!("{}{answer}", " ".repeat(asked.len()));
        for (name, text) in usual.into_iter().chain([("access", &access[..])]).chain(files.iter().copied()) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if text.is_empty() { fs::remove_file(path).unwrap() } else { fs::write(path, text).unwrap() }
        }
        let selinux = Selinux::at(folder.path()).unwrap();
        (folder, selinux)
    }

    fn rights(answer: &str, files: &[(&str, &str)]) -> Vec<PerfPermission> {
        let (_folder, selinux) = of(answer, files);
        let rights = selinux.rights_of(LABEL).unwrap();
        PerfPermission::ALL.into_iter().filter(|&permission| rights.allow(permission)).collect()
    }

    #[test]
    fn the_policy_is_asked() {
        use PerfPermission::{Cpu, Kernel, Open, Tracepoint};
        assert_eq!(rights("1 ffffffff 0 ffffffff 12 0\0", &[]), [Open]);
        assert_eq!(rights("3b ffffffff 0 ffffffff 12 0", &[]), [Open, Cpu, Tracepoint]);
        assert_eq!(rights("0 ffffffff 0 ffffffff 12 0", &[]), []);
        assert_eq!(rights("1 ffffffff 0 ffffffff 12 1", &[]), PerfPermission::ALL, "a permissive domain");
        assert_eq!(rights("0 ffffffff 0 ffffffff 12 0", &[("enforce", "0")]), PerfPermission::ALL);
        // In another order.
        let swapped = [("class/perf_event/perms/open", "3"), ("class/perf_event/perms/kernel", "1")];
        assert_eq!(rights("1 ffffffff 0 ffffffff 12 0", &swapped), [Kernel]);
        let (folder, selinux) = of("1 ffffffff 0 0 1 0", &[]);
        selinux.rights_of(LABEL).unwrap();
        let access = fs::read_to_string(folder.path().join("access")).unwrap();
        assert!(access.starts_with("u:r:agent_t:s0-s0:c1.c9 u:r:agent_t:s0-s0:c1.c9 131 "), "{access}");
    }

    #[test]
    fn what_a_policy_does_not_know_is_as_it_says() {
        use PerfPermission::{Cpu, Open};
        let old = [("class/perf_event/index", "")];
        assert_eq!(rights("0 0 0 0 0 0", &old), []);
        assert_eq!(rights("0 0 0 0 0 0", &[old[0], ("deny_unknown", "0")]), PerfPermission::ALL);
        let (folder, selinux) = of("0 0 0 0 0 0", &old);
        fs::remove_dir_all(folder.path().join("class")).unwrap();
        fs::create_dir(folder.path().join("class")).unwrap();
        assert_eq!(selinux.rights_of(LABEL).unwrap(), PerfRights::ALL, "no policy has been loaded");
        let younger = [("class/perf_event/perms/cpu", "")];
        assert_eq!(rights("1 ffffffff 0 ffffffff 12 0", &younger), [Open]);
        assert_eq!(rights("1 ffffffff 0 ffffffff 12 0", &[younger[0], ("deny_unknown", "0")]), [Open, Cpu]);
    }

    #[test]
    fn what_makes_no_sense_allows_nothing() {
        for answer in ["", "x", "-1 0 0 0 0 0", "123456789 0 0 0 0 0"] {
            let (_folder, selinux) = of(answer, &[]);
            assert!(selinux.rights_of(LABEL).is_err(), "{answer:?}");
        }
        let (_folder, selinux) = of("f f 0 0 0 0", &[]);
        for label in ["", "a b", "a\n", "a\0"] {
            assert!(selinux.rights_of(label).is_err(), "{label:?}");
        }
        let (_folder, selinux) = of("f f 0 0 0 0", &[("enforce", "perhaps")]);
        assert!(selinux.rights_of(LABEL).is_err());
        let far = [("class/perf_event/perms/open", "77"), ("class/perf_event/perms/cpu", "0")];
        assert_eq!(rights("ffffffff 0 0 0 0 0", &far).len(), 2, "no such bits");
        assert!(Selinux::at(Path::new("/nonexistent")).is_none());
    }
}
