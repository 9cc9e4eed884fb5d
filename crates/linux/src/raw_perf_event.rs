//! What the kernel's calls cost alone, for those who measure what is built on them.
//!
//! **Invariant:** no code believes an event that is opened here: nothing is measured with it but what its opening, its switching or
//! its reading costs.

use crate::host::bytes_of;
use crate::sys::Errno;
use crate::sys::perf::{self, TargetTask};
use crate::{current_tid, limits};
use pmux_abi::attr::{Attr, AttrFlags};
use std::os::fd::{AsFd as _, OwnedFd};

/// Events that are open, and do nothing but that.
pub struct OpenEvents(#[allow(dead_code, reason = "dropping them is what they are for")] Vec<OwnedFd>);

/// Opens an event on each CPU (where there are none named: on any) of each thread, one `perf_event_open(2)` after the other. It
/// counts at once, unless the attribute says that it is disabled.
///
/// # Errors
/// The first refusal of the kernel.
pub fn open_all(attr: &Attr, tids: &[i32], cpus: &[u32]) -> Result<OpenEvents, Errno> {
    let bytes = bytes_of(attr);
    let all_cpus: Vec<Option<u32>> =
        if cpus.is_empty() { vec![None] } else { cpus.iter().copied().map(Some).collect() };
    let mut open: Vec<OwnedFd> = Vec::with_capacity(tids.len() * all_cpus.len());
    // The code that this is compared with has to do the same.
    let _ = limits::raise_soft_limit();
    for &tid in tids {
        for &cpu in &all_cpus {
            open.push(perf::open(&bytes, TargetTask::Task(tid.unsigned_abs()), cpu, None)?);
        }
    }
    Ok(OpenEvents(open))
}

/// The same for the calling thread and once: whether the kernel would do it at all.
///
/// # Errors
/// The refusal of the kernel.
pub fn can_open(attr: &Attr) -> Result<(), Errno> {
    open_all(attr, &[current_tid()], &[]).map(drop)
}

/// An event of the calling thread and of all threads that it starts from now on, which counts; for switching it.
pub struct InheritedEvent(OwnedFd);

impl InheritedEvent {
    /// Opens it.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn open(attr: &Attr) -> Result<Self, Errno> {
        let bytes = bytes_of(&Attr { flags: attr.flags | AttrFlags::INHERIT, ..*attr });
        perf::open(&bytes, TargetTask::Task(current_tid().unsigned_abs()), None, None).map(Self)
    }

    /// Switches it off and on again, in all threads that have it.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn off_and_on(&self) -> Result<(), Errno> {
        perf::disable(self.0.as_fd())?;
        perf::enable(self.0.as_fd())
    }
}

/// An event of the calling thread that counts, to see what the call costs that reads it.
pub struct ReadableEvent(std::fs::File);

impl ReadableEvent {
    /// Opens it, with its times.
    ///
    /// # Errors
    /// As [`open_all`].
    pub fn open(attr: &Attr) -> Result<Self, Errno> {
        use pmux_abi::attr::ReadFormat;
        let read_format = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let mut all = open_all(&Attr { read_format, ..*attr }, &[current_tid()], &[])?;
        all.0.pop().map(|fd| Self(fd.into())).ok_or(Errno::EINVAL)
    }

    /// Reads it: one `read(2)`. Returns the count.
    ///
    /// # Errors
    /// [`std::io::Error`] of the call.
    pub fn read(&self) -> std::io::Result<u64> {
        let mut bytes = [0; 24];
        std::io::Read::read_exact(&mut &self.0, &mut bytes)?;
        let [a, b, c, d, e, f, g, h, ..] = bytes;
        Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
    }
}
