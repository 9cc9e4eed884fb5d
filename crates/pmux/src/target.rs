//! Targets: whose events.
//!
//! **Invariant:** a target is a wish; whether it exists is seen when it is opened.

use crate::command::Command;
use crate::error::Error;
use crate::mux::{Multiplexing, Slice};
use crate::session::Session;
use pmux_engine::CpuId;
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::system_wide::Absent;
use pmux_linux::cpus::{CpuList, Cpus};
use pmux_linux::procfs::{Proc, ProcError};
use pmux_linux::wait::ProcessEnd;

/// Whose events.
#[derive(Clone, Debug)]
pub enum Target<'a> {
    /// The calling thread.
    CurrentThread,
    /// Single threads, a row each.
    Threads(Vec<i32>),
    /// All threads of processes as they are now, a row each; threads and children that they start later are counted
    /// in the row of the task that started them.
    Processes(Vec<i32>),
    /// A command that is held before its exec, with all its children.
    Command(&'a Command),
    /// CPUs, a row each, whatever runs there.
    Cpus(CpuChoice),
    /// The tasks of cgroups, on CPUs: a row for each cgroup and CPU.
    Cgroups {
        /// The cgroups: absolute paths, or names below the mount.
        names: Vec<String>,
        /// The CPUs.
        cpus: CpuChoice,
    },
}

impl Target<'_> {
    /// Whether there is still something to count: a task of the target, or a CPU.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let proc = Proc::system();
        // A zombie has nothing left to count.
        let lives = |&id: &i32| match proc.stat(id) {
            Ok(stat) => stat.state != 'Z',
            Err(ProcError::Gone { .. }) => false,
            // That it can't be read, as for want of a file, does not say that it has ended.
            Err(_) => ProcessEnd::lives(id),
        };
        match self {
            Self::Threads(ids) | Self::Processes(ids) => ids.iter().any(lives),
            Self::Command(command) => lives(&command.pid()),
            Self::CurrentThread | Self::Cpus(_) | Self::Cgroups { .. } => true,
        }
    }
}

/// The threads that processes have now.
pub(crate) fn threads_of(pids: &[i32]) -> Result<Vec<i32>, Error> {
    let threads = pids.iter().map(|&pid| Proc::system().threads_of(pid)).collect::<Result<Vec<_>, _>>();
    Ok(threads.map_err(Error::Process)?.concat())
}

/// Which CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuChoice {
    /// Those that are online, and those that come.
    All,
    /// These; each must be online when it is opened. One that goes and comes back is counted again.
    Only(CpuList),
}

pub(crate) fn no_such_cpu(cpu: u32, online: &CpuList) -> Error {
    Error::NoSuchCpu { cpu, online: online.to_string() }
}

impl CpuChoice {
    /// The CPUs, and what happens with those that are not online.
    pub(crate) fn mask(&self, session: &Session) -> Result<(CpuMask, Absent), Error> {
        let online = session.online();
        Ok(match self {
            Self::All => {
                // CPUs that come later are counted too.
                let possible = Cpus::system().possible().unwrap_or(online);
                (possible.iter().map(CpuId).collect(), Absent::Await)
            }
            Self::Only(list) => {
                if let Some(cpu) = list.iter().find(|&cpu| !online.contains(cpu)) {
                    return Err(no_such_cpu(cpu, &online));
                }
                (list.iter().map(CpuId).collect(), Absent::Refuse)
            }
        })
    }
}

/// Whether children are counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inherit {
    /// Children and new threads count.
    #[default]
    Children,
    /// Only the tasks themselves.
    None,
}

/// When counting begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// At once, when everything is open.
    #[default]
    AtOnce,
    /// When the command executes its program. Only for [`Target::Command`].
    OnExec,
    /// When [`crate::Counters::enable`] is called.
    Later,
}

/// What gets numbers of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Attribution {
    /// The target as a whole.
    #[default]
    Totals,
    /// Each process of the command's tree as well: see [`crate::Counters::tree`].
    EachProcess,
}

/// How to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether children are counted in.
    pub inherit: Inherit,
    /// When counting begins.
    pub start: Start,
    /// What gets numbers of its own.
    pub attribution: Attribution,
    /// Who takes turns where counters are fewer than events.
    pub multiplexing: Multiplexing,
    /// How long a turn lasts, where the engine takes them.
    pub slice: Slice,
}
