//! Events of many threads in one slot: a kernel event on each thread, or on each thread and CPU.
//!
//! What it is: the threads that are armed together, and the result. The engine treats all threads as one task: that of the context that the
//! event is opened on. So what a thousand threads cost is what a thousand calls cost.
//!
//! What a program alone tells of has no ring: hits from before the program is there would be counted, and no code would know of them. To
//! switch it on behind that ([`EnableTime`]) is one more interrupt of a CPU for each thread, and mostly no thread hits meanwhile.
//!
//! **Invariant:** all threads have the event or none, but for those that the caller can do without.

use crate::bpf::Program;
use crate::host::lock;
use crate::host::opener::{EventFile, EventFiles, FileCount, bytes_of, with_room};
use crate::sys::Errno;
use crate::sys::perf::{self, TargetTask};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::pmu::BankError;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};

/// When an event begins whose hits a program alone tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnableTime {
    /// At its opening. Where it was hit before it was seen to have its program, nothing is opened: `EAGAIN`.
    AtOpen,
    /// When it has its program.
    AfterAttach,
}

/// Threads that are watched together.
#[derive(Debug)]
pub struct PerThreadEvents {
    tids: Vec<i32>,
    tolerated: Vec<Errno>,
    begun: EnableTime,
    report: Mutex<PerThreadReport>,
}

/// What came of opening events on all threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PerThreadReport {
    /// Threads that the caller can do without and that have no event, and why; the last one for each event that was opened.
    pub left_out: Vec<(i32, Errno)>,
    /// The thread because of which nothing was opened.
    pub refused: Option<i32>,
}

impl PerThreadEvents {
    /// These threads. One that is refused with an errno of `tolerated` (it has ended: `ESRCH`) is left out.
    #[must_use]
    pub fn new(tids: Vec<i32>, tolerated: &[i32], begun: EnableTime) -> Arc<Self> {
        let tolerated = tolerated.iter().map(|&errno| Errno::from_raw(errno)).collect();
        Arc::new(Self { tids, tolerated, begun, report: Mutex::default() })
    }

    /// What came of the last event that was opened on it.
    #[must_use]
    pub fn report(&self) -> PerThreadReport {
        lock(&self.report).clone()
    }

    /// Opens an event on all of them: on each of these CPUs into the ring of the event there, or where there are none, wherever
    /// they run. The program runs at its hits.
    pub(super) fn open(
        &self,
        attr: &Attr,
        ring_owners: &[(u32, &EventFile)],
        program: Option<&Program>,
        count: &Arc<FileCount>,
    ) -> Result<EventFiles, BankError> {
        let mut asked = *attr;
        let begun = (program.is_some() && ring_owners.is_empty() && !attr.flags.contains(AttrFlags::DISABLED))
            .then_some(self.begun);
        asked.flags.set(
            AttrFlags::DISABLED,
            begun == Some(EnableTime::AfterAttach) || attr.flags.contains(AttrFlags::DISABLED),
        );
        let bytes = bytes_of(&asked);
        let attach = |fd: OwnedFd| program.map_or(Ok(()), |program| program.attach(fd.as_fd())).map(|()| fd);
        let on_thread = |tid: i32, fds: &mut Vec<OwnedFd>| -> Result<(), Errno> {
            let target_task = || TargetTask::Task(tid.unsigned_abs());
            if ring_owners.is_empty() {
                let fd = with_room(|| perf::open(&bytes, target_task(), None, None)).and_then(attach)?;
                match begun {
                    Some(EnableTime::AfterAttach) => perf::enable(fd.as_fd())?,
                    Some(EnableTime::AtOpen) if perf::count(fd.as_fd())? != Some(0) => return Err(Errno::EAGAIN),
                    Some(EnableTime::AtOpen) | None => {}
                }
                fds.push(fd);
            }
            for (cpu, ring_owner) in ring_owners {
                fds.push(
                    with_room(|| perf::open_into(&bytes, target_task(), *cpu, ring_owner.as_fd())).and_then(attach)?,
                );
            }
            Ok(())
        };
        // By one thread: two would wait for the same locks and interrupt each other's CPU, which costs twice as much, and takes no less time.
        let mut fds = Vec::with_capacity(self.tids.len() * ring_owners.len().max(1));
        let (mut left_out, mut refused) = (Vec::new(), None);
        for &tid in &self.tids {
            let before = fds.len();
            let Err(errno) = on_thread(tid, &mut fds) else { continue };
            fds.truncate(before);
            if self.tolerated.contains(&errno) {
                left_out.push((tid, errno));
            } else {
                refused = Some((tid, errno));
                break;
            }
        }
        // Counted also where they are closed again at once.
        let files = EventFiles::new(fds, count);
        let first_left_out = left_out.first().copied().filter(|_| files.fds.is_empty());
        let refused = refused.or(first_left_out);
        *lock(&self.report) = PerThreadReport { left_out, refused: refused.map(|(tid, _)| tid) };
        match refused {
            Some((_, errno)) => Err(BankError::from_errno(errno.raw())),
            None => Ok(files),
        }
    }
}
