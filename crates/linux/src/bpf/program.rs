//! Programs: loaded, and attached to events.
//!
//! **Invariant:** what the verifier refuses comes with its words.

use super::assembler::Bytecode;
use crate::sys::bpf::ProgramType;
use crate::sys::{self, Errno};
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes for what the verifier says: the last lines tell what is wrong.
const LOG_BYTES: usize = 256 << 10;
const LOG_LINES: usize = 12;

/// What a program is for. Source: `enum bpf_prog_type` in `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramKind {
    /// Runs at an overflow of an event that is no tracepoint; its context is `struct bpf_perf_event_data`: registers, the period,
    /// the address. It answers 0 for: no sample.
    PerfEvent,
    /// Runs at a tracepoint of the kernel by its name, on every CPU; its context are the tracepoint's arguments, 8 bytes each.
    RawTracepoint,
    /// As [`ProgramKind::RawTracepoint`], at the tracepoint with this number among the kernel's types: the verifier knows
    /// what its arguments point to. Since Linux 5.5.
    TypedTracepoint(u32),
    /// Runs once for each task, where [`Program::iterate`] says so; its context points to what is written with
    /// [`super::Helper::SeqWrite`] first, then to the task. The number is that of `bpf_iter_task` among the kernel's types. Since Linux 5.8.
    TaskIterator(u32),
}

/// `BPF_TRACE_ITER`.
const ITERATOR: u32 = 28;

impl ProgramKind {
    const fn number(self) -> ProgramType {
        let (kind, attach_type, attach_id) = match self {
            Self::PerfEvent => (7, 0, 0),
            Self::RawTracepoint => (17, 0, 0),
            // `BPF_PROG_TYPE_TRACING`, `BPF_TRACE_RAW_TP`.
            Self::TypedTracepoint(id) => (26, 23, id),
            Self::TaskIterator(id) => (26, ITERATOR, id),
        };
        ProgramType { kind, attach_type, attach_id }
    }
}

/// Where the context of a [`ProgramKind::PerfEvent`] holds things, in bytes from its beginning. The registers come first, and have
/// another length on each architecture. Source: `struct bpf_perf_event_data`, and `bpf_user_pt_regs_t` of each architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventContext {
    /// The instruction pointer, 8 bytes.
    pub ip: i16,
    /// The period of the event, 8 bytes.
    pub period: i16,
    /// The address that was touched, 8 bytes: of a breakpoint its own. Since Linux 4.17.
    pub address: i16,
}

impl EventContext {
    /// That of this machine; `None` for an architecture that was not looked at.
    pub const HERE: Option<Self> = match () {
        () if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) => Some(Self::of(16 * 8, 21 * 8)),
        () if cfg!(target_arch = "aarch64") => Some(Self::of(32 * 8, 34 * 8)),
        () if cfg!(target_arch = "riscv64") => Some(Self::of(0, 32 * 8)),
        () => None,
    };

    const fn of(ip: i16, registers_bytes: i16) -> Self {
        Self { ip, period: registers_bytes, address: registers_bytes + 8 }
    }
}

/// Why a program wasn't loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError {
    /// What the kernel answered.
    pub errno: Errno,
    /// What the verifier said, its last lines; empty where it wasn't asked.
    pub log: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refused a program: {}", self.errno)?;
        if !self.log.is_empty() {
            write!(f, "\n{}", self.log)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// A program in the kernel. It stays there while it is attached, also when this is dropped.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Loads it. `name` is what tools show; 15 letters are kept.
    ///
    /// # Errors
    /// [`LoadError`]: `EPERM` without the right (see [`super::why_not`]); otherwise what the verifier says.
    pub fn load(kind: ProgramKind, code: &Bytecode<'_>, name: &str) -> Result<Self, LoadError> {
        match sys::bpf::load(kind.number(), code.bytes(), name, &mut []) {
            Ok(fd) => Ok(Self { fd }),
            Err(errno @ (Errno::EPERM | Errno::ENOSYS)) => Err(LoadError { errno, log: String::new() }),
            Err(errno) => {
                // Once more, for its words: writing them takes time that a program that is right doesn't need.
                let mut log = vec![0; LOG_BYTES];
                let again = sys::bpf::load(kind.number(), code.bytes(), name, &mut log);
                again.map(|fd| Self { fd }).map_err(|_| LoadError { errno, log: last_lines(&log) })
            }
        }
    }

    /// Runs it at each overflow of an event, also of those that inherit from the event from now on.
    ///
    /// # Errors
    /// `EINVAL` where the program is for another kind of event; `EEXIST` where the event has one already.
    pub fn attach(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        sys::bpf::attach(event, self.fd.as_fd())
    }

    /// Runs a [`ProgramKind::RawTracepoint`] at a tracepoint, such as `sched_switch`, on every CPU, until what is answered is
    /// dropped.
    ///
    /// # Errors
    /// `ENOENT` where there is no such tracepoint; `EINVAL` for another kind of program.
    pub fn attach_raw_tracepoint(&self, name: &str) -> Result<Attached, Errno> {
        let name = CString::new(name).map_err(|_| Errno::ENOENT)?;
        sys::bpf::open_raw_tracepoint(Some(&name), self.fd.as_fd()).map(Attached)
    }

    /// Runs a [`ProgramKind::TypedTracepoint`] at its tracepoint, on every CPU, until what is answered is dropped.
    ///
    /// # Errors
    /// `EINVAL` for another kind of program.
    pub fn attach_typed_tracepoint(&self) -> Result<Attached, Errno> {
        sys::bpf::open_raw_tracepoint(None, self.fd.as_fd()).map(Attached)
    }

    /// Runs a [`ProgramKind::TaskIterator`] for each task of this PID namespace, in the order of their numbers. Answers what it wrote.
    ///
    /// # Errors
    /// `EINVAL` for another kind of program.
    pub fn iterate(&self) -> Result<Vec<u8>, Errno> {
        let mut written = Vec::new();
        let mut file = File::from(sys::bpf::open_iterator(self.fd.as_fd(), ITERATOR)?);
        file.read_to_end(&mut written).map_err(|error| Errno::from(&error))?;
        Ok(written)
    }

    /// Runs a [`ProgramKind::RawTracepoint`] that doesn't look at its context once, on a CPU, interrupting the task that runs
    /// there: that one is the program's current task. Answers what the program answered. Since Linux 5.10.
    ///
    /// # Errors
    /// `ENXIO` where the CPU is offline; `EINVAL` for another program, and on older kernels.
    pub fn run_on(&self, cpu: u32) -> Result<u32, Errno> {
        sys::bpf::run(self.fd.as_fd(), Some(cpu))
    }

    /// Runs such a program once, as the task that calls. Answers what the program answered. Since Linux 5.10.
    ///
    /// # Errors
    /// `EINVAL` for another program, and on older kernels.
    pub fn run(&self) -> Result<u32, Errno> {
        sys::bpf::run(self.fd.as_fd(), None)
    }
}

/// A program that is attached; it runs until this is dropped.
#[derive(Debug)]
pub struct Attached(#[allow(dead_code, reason = "dropping it is what it is for")] OwnedFd);

fn last_lines(log: &[u8]) -> String {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_kept() {
        let log: String = (0..40).map(|line| format!("line {line}\n")).collect();
        let mut bytes = log.into_bytes();
        bytes.extend([0; 9]);
        let kept = last_lines(&bytes);
        assert!(kept.starts_with("line 28\n") && kept.ends_with("line 39"), "{kept}");
        assert_eq!(last_lines(&[0; 8]), "");
    }
}
