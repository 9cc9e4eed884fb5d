//! The targets that are no command: a process, a thread, the machine, a CPU, a cgroup.
//!
//! **Invariant:** a process or a thread that has ended keeps its last value.

use super::tally::Tally;
use super::tree::{Process, UsageReader};
use crate::cgroup::{Cgroup, CgroupError};
use crate::procfs::{CpuTimes, ProcError};

/// A process with all its threads and without its children, given its last reading. `pid` becomes `None` when it has ended: the number may
/// be another's then.
pub(super) fn process(pid: &mut Option<i32>, last: &mut Process, reader: &UsageReader) -> Result<Tally, ProcError> {
    if let Some(number) = *pid {
        match reader.process(number, Some(last)) {
            Ok(now) if now.start_ticks == last.start_ticks => *last = now,
            Ok(_) | Err(ProcError::Gone { .. }) => *pid = None,
            Err(error) => return Err(error),
        }
    }
    // What has no memory, as a thread of the kernel, has a peak of 0.
    Ok(Tally::ZERO.plus(&last.own))
}

/// A thread, given when it began and what it had used by the last reading. `tid` is as the number in [`process`].
pub(super) fn thread(
    tid: &mut Option<i32>,
    (start_ticks, last): &mut (u64, Tally),
    reader: &UsageReader,
) -> Result<Tally, ProcError> {
    if let Some(number) = *tid {
        match reader.thread(number) {
            // Files are read one after another, so the last of them may find the thread gone.
            Ok((start, now)) if start == *start_ticks => *last = last.at_least(&now),
            Ok(_) | Err(ProcError::Gone { .. }) => *tid = None,
            Err(error) => return Err(error),
        }
    }
    Ok(Tally::ZERO.plus(last))
}

pub(super) fn machine(reader: &UsageReader) -> Result<Tally, ProcError> {
    let stat = reader.proc.machine()?;
    let faults = match reader.proc.faults() {
        Ok(faults) => Some(faults),
        Err(ProcError::Unsupported { .. } | ProcError::Denied { .. } | ProcError::Malformed { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(Tally {
        faults: faults.map(|faults| faults.all),
        minor: faults.map(|faults| faults.all.saturating_sub(faults.major)),
        major: faults.map(|faults| faults.major),
        switches: Some(stat.context_switches),
        ..times(reader, &stat.all)
    })
}

/// A CPU: nothing is known while it is offline. The machine's faults and switches cannot be told apart by CPU.
pub(super) fn cpu(cpu: u32, reader: &UsageReader) -> Result<Tally, ProcError> {
    Ok(reader.proc.machine()?.cpu(cpu).map_or_else(Tally::default, |now| times(reader, now)))
}

fn times(reader: &UsageReader, cpu: &CpuTimes) -> Tally {
    Tally {
        // An event on a CPU counts the time that passes there, busy or not.
        cpu_ns: Some(reader.ticks_ns(cpu.total())),
        user_ns: Some(reader.ticks_ns(cpu.user_mode())),
        system_ns: Some(reader.ticks_ns(cpu.kernel_mode())),
        ..Tally::default()
    }
}

/// A cgroup and all below it.
pub(super) fn cgroup(cgroup: &Cgroup) -> Result<Tally, CgroupError> {
    let cpu = known(cgroup.cpu_usage())?;
    let faults = known(cgroup.page_faults())?;
    Ok(Tally {
        cpu_ns: cpu.map(|cpu| cpu.total_ns),
        user_ns: cpu.map(|cpu| cpu.user_ns),
        system_ns: cpu.map(|cpu| cpu.system_ns),
        faults: faults.map(|(all, _)| all),
        minor: faults.map(|(all, major)| all.saturating_sub(major)),
        major: faults.map(|(_, major)| major),
        max_rss_bytes: known(cgroup.memory_peak_bytes())?,
        ..Tally::default()
    })
}

/// A count that the cgroup does not keep is unknown; one that has been removed has nothing more to tell.
fn known<T>(result: Result<T, CgroupError>) -> Result<Option<T>, CgroupError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(CgroupError::NoCount { .. } | CgroupError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
