//! Would it open?
//!
//! **Invariant:** a probe opens for real, counts nothing, and closes at once.

use crate::error::Error;
use crate::event::{Event, EventList};
use crate::refusal::Refusal;
use crate::session::{Backend, Session};
use crate::target::{CpuChoice, Inherit, Options, Start, Target};
use pmux_linux::cpus::CpuList;
use pmux_linux::usage::UsageKind;

/// What became of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// It opens as asked.
    Opens,
    /// It opens with a change, in a sentence.
    OpensChanged(String),
    /// It doesn't.
    Refused(Refusal),
}

impl Session {
    /// Opens an event on a target, disabled, and closes it again.
    ///
    /// # Errors
    /// As [`Session::open`], where the target itself is at fault.
    pub fn probe(&self, event: &Event, target: &Target<'_>) -> Result<Probe, Error> {
        let options = Options { inherit: Inherit::None, start: Start::Later, ..Options::default() };
        match self.open(&EventList::from(event.clone()), target, options) {
            Ok(counters) => Ok(match (counters.refusal(0), counters.adjustment(0)) {
                (Some(refusal), _) => Probe::Refused(refusal.clone()),
                (None, change)
                    if matches!(target, Target::CurrentThread) && self.is_of_running_tasks(event, change) =>
                {
                    let change = change.map(|change| format!("; {change}")).unwrap_or_default();
                    Probe::OpensChanged(format!(
                        "counted of processes that already run, and not of a command, of which `wait4` does not tell it{change}"
                    ))
                }
                (None, Some(change)) => Probe::OpensChanged(change.to_owned()),
                (None, None) => Probe::Opens,
            }),
            Err(Error::Refused(refusals)) if !refusals.is_empty() => Ok(Probe::Refused(refusals[0].clone())),
            Err(error) => Err(error),
        }
    }

    /// Whether its count is that of `/proc/PID/sched`, which is gone with the process.
    fn is_of_running_tasks(&self, event: &Event, change: Option<&str>) -> bool {
        let is_from_proc = change.is_some() || matches!(self.backend(), Backend::Usage { .. });
        is_from_proc && UsageKind::for_attr(&event.attr) == Some(UsageKind::CpuMigrations)
    }

    /// The target on which an event is most likely to open for this user: the calling thread, or for the PMU of a package
    /// one of its CPUs.
    #[must_use]
    pub fn easiest_target(&self, event: &Event) -> Target<'static> {
        match event.package_cpus().and_then(<[u32]>::first) {
            Some(&cpu) => Target::Cpus(CpuChoice::Only(CpuList::from_iter([cpu]))),
            None => Target::CurrentThread,
        }
    }
}
