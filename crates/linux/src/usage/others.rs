//! The targets that are no command: processes, threads, the machine, CPUs, a cgroup.
//!
//! **Invariant:** a target that has ended keeps its last value.

use std::collections::BTreeMap;

use super::tally::Tally;
use super::tree::{Process, UsageReader};
use crate::cgroup::{Cgroup, CgroupError};
use crate::cpus::CpuList;
use crate::procfs::{CpuTimes, ProcError};

/// Processes, each with all its threads and without its children.
#[derive(Debug)]
pub(super) struct Processes {
    pids: Vec<i32>,
    known: BTreeMap<i32, Process>,
    ended: BTreeMap<i32, Tally>,
}

impl Processes {
    /// Takes the processes as they are now.
    pub(super) fn new(pids: &[i32], reader: &UsageReader) -> Result<Self, ProcError> {
        let mut known = BTreeMap::new();
        for &pid in pids {
            known.insert(pid, reader.process(pid, None)?);
        }
        let pids = known.keys().copied().collect();
        Ok(Self { pids, known, ended: BTreeMap::new() })
    }

    pub(super) fn read(&mut self, reader: &UsageReader) -> Result<Tally, ProcError> {
        for pid in &self.pids {
            let Some(earlier) = self.known.get(pid) else { continue };
            match reader.process(*pid, Some(earlier)) {
                Ok(now) if now.start_ticks == earlier.start_ticks => {
                    self.known.insert(*pid, now);
                }
                Ok(_) | Err(ProcError::Gone { .. }) => {
                    self.ended.insert(*pid, earlier.own);
                    self.known.remove(pid);
                }
                Err(error) => return Err(error),
            }
        }
        let living = self.known.values().fold(Tally::ZERO, |sum, process| sum.plus(&process.own));
        Ok(self.ended.values().fold(living, |sum, tally| sum.plus(tally)))
    }
}

/// Whether a thread was still there when it was read last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadState {
    Lives,
    Ended,
}

#[derive(Debug)]
pub(super) struct Threads {
    /// By number: when it began, its last value, and whether it is still there.
    known: BTreeMap<i32, (u64, Tally, ThreadState)>,
}

impl Threads {
    /// Takes the threads as they are now.
    pub(super) fn new(tids: &[i32], reader: &UsageReader) -> Result<Self, ProcError> {
        let mut known = BTreeMap::new();
        for &tid in tids {
            let (start_ticks, tally) = reader.thread(tid)?;
            known.insert(tid, (start_ticks, tally, ThreadState::Lives));
        }
        Ok(Self { known })
    }

    pub(super) fn read(&mut self, reader: &UsageReader) -> Result<Tally, ProcError> {
        for (&tid, (start_ticks, last, state)) in &mut self.known {
            if *state == ThreadState::Ended {
                continue;
            }
            match reader.thread(tid) {
                // Files are read one after another, so the last of them may find the thread gone.
                Ok((start, tally)) if start == *start_ticks => *last = last.at_least(&tally),
                Ok(_) | Err(ProcError::Gone { .. }) => *state = ThreadState::Ended,
                Err(error) => return Err(error),
            }
        }
        Ok(self.known.values().fold(Tally::ZERO, |sum, (_, tally, _)| sum.plus(tally)))
    }
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

/// Some CPUs. One that goes offline keeps its last times.
#[derive(Debug)]
pub(super) struct CpuSet {
    cpus: CpuList,
    last: BTreeMap<u32, Tally>,
}

impl CpuSet {
    pub(super) fn new(cpus: CpuList) -> Self {
        Self { cpus, last: BTreeMap::new() }
    }

    pub(super) fn read(&mut self, reader: &UsageReader) -> Result<Tally, ProcError> {
        let stat = reader.proc.machine()?;
        for cpu in self.cpus.iter() {
            if let Some(now) = stat.cpu(cpu) {
                self.last.insert(cpu, times(reader, now));
            }
        }
        if self.last.is_empty() {
            return Ok(Tally::default());
        }
        // The machine's faults and switches cannot be told apart by CPU.
        let none = Tally { cpu_ns: Some(0), user_ns: Some(0), system_ns: Some(0), ..Tally::default() };
        Ok(self.last.values().fold(none, |sum, tally| sum.plus(tally)))
    }
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
