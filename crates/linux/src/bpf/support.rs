//! Whether programs can be had here, and why not.
//!
//! **Invariant:** the kernel is asked; facts only explain what it answered.

use super::{Assembler, Program, ProgramKind, Reg};
use crate::diagnose::{Capability, Facts, Lockdown, Roots, UserNamespace};
use crate::procfs::SeccompMode;
use crate::sys::Errno;

/// Why programs of this kind can't be loaded here, as a clause, with what would help: `this user may not …`; `None` where they can. Asks
/// the kernel each time.
#[must_use]
pub fn why_not(kind: ProgramKind) -> Option<String> {
    let mut asm = Assembler::new();
    asm.set(Reg::R0, 0).exit();
    let code = asm.finish()?;
    let error = Program::load(kind, &code, "pmux_probe").err()?;
    Some(explain(error.errno, &Facts::gather(&Roots::system())))
}

/// The reason for a refusal of the smallest program.
pub(super) fn explain(errno: Errno, facts: &Facts) -> String {
    let (reason, help) = match errno {
        Errno::ENOSYS => ("this kernel was built without BPF (CONFIG_BPF_SYSCALL)", ""),
        Errno::EINVAL => ("this kernel was built without BPF programs for events (CONFIG_BPF_EVENTS)", ""),
        Errno::EPERM | Errno::EACCES if facts.lockdown == Lockdown::Confidentiality => {
            ("the kernel is locked down for confidentiality", "boot without `lockdown=confidentiality`")
        }
        Errno::EPERM | Errno::EACCES if facts.namespace == UserNamespace::Nested => {
            ("BPF programs need capabilities outside of this user namespace", "run it outside of the container")
        }
        Errno::EPERM | Errno::EACCES if facts.seccomp == SeccompMode::Filter && may_load(facts) => {
            ("bpf(2) is refused by a filter of system calls", "let the container's seccomp profile allow bpf(2)")
        }
        Errno::EPERM | Errno::EACCES if may_load(facts) => (
            "the kernel refuses it although this user has the capabilities: a security module, or a limit on locked memory",
            "",
        ),
        Errno::EPERM | Errno::EACCES => (
            "this user may not load BPF programs",
            "that takes root, or CAP_BPF and CAP_PERFMON; before Linux 5.8 CAP_SYS_ADMIN",
        ),
        _ => return format!("the kernel refuses BPF programs: {errno}"),
    };
    if help.is_empty() { reason.to_owned() } else { format!("{reason} ({help})") }
}

fn may_load(facts: &Facts) -> bool {
    facts.can(Capability::SysAdmin) || (facts.can(Capability::Perfmon) && facts.can(Capability::Bpf))
}

#[cfg(test)]
mod unit {
    use super::*;

    fn facts(capabilities: u64) -> Facts {
        Facts { capabilities, kernel: Some((6, 1)), ..Facts::default() }
    }

    #[test]
    fn each_reason_has_its_words() {
        let all = u64::MAX;
        for (errno, facts, words) in [
            (Errno::ENOSYS, facts(all), "CONFIG_BPF_SYSCALL"),
            (Errno::EINVAL, facts(all), "CONFIG_BPF_EVENTS"),
            (Errno::EPERM, facts(0), "CAP_BPF and CAP_PERFMON"),
            (Errno::EPERM, facts(1 << 38), "CAP_BPF and CAP_PERFMON"),
            (Errno::EPERM, facts(1 << 38 | 1 << 39), "security module"),
            (Errno::EPERM, Facts { seccomp: SeccompMode::Filter, ..facts(all) }, "seccomp"),
            (Errno::EPERM, Facts { lockdown: Lockdown::Confidentiality, ..facts(all) }, "locked down"),
            (Errno::EPERM, Facts { namespace: UserNamespace::Nested, ..facts(0) }, "user namespace"),
            (Errno::ENOMEM, facts(all), "ENOMEM"),
        ] {
            let text = explain(errno, &facts);
            assert!(text.contains(words), "{text}");
        }
    }
}
