//! What was typed about sampling, as the library takes it: for `pmux record` and `pmux flight`.
//!
//! **Invariant:** nothing is opened here.

use crate::failure::{Failure, failed, failure};
use crate::options::sampling::{Frequency, Sampling};
use crate::options::target::Whom;
use crate::stat::cpu_choice;
use pmux::record::{Keep, Rate, RecordOptions};
use pmux::{Command, Error, EventList, Inherit, Session, Start, Target};

/// The events; none where none were typed.
pub(crate) fn events(typed: &Sampling, session: &Session) -> Result<EventList, Failure> {
    if typed.events.is_empty() {
        return Ok(EventList::default());
    }
    EventList::parse(&typed.events, session.catalog()).map_err(|error| failure(&Error::Parse(error)))
}

/// The target; `held` is the command, where there is one.
pub(crate) fn target<'c>(typed: &Sampling, whom: &Whom, held: Option<&'c Command>) -> Result<Target<'c>, Failure> {
    Ok(match (whom, held) {
        (Whom::Pids(pids), _) => Target::Processes(pids.clone()),
        (Whom::Tids(tids), _) => Target::Threads(tids.clone()),
        (Whom::Cpus(list), _) => {
            let cpus = cpu_choice(list.as_deref()).map_err(failed)?;
            match &typed.cgroups[..] {
                [] => Target::Cpus(cpus),
                names => Target::Cgroups { names: names.to_vec(), cpus },
            }
        }
        (Whom::Command, Some(command)) => Target::Command(command),
        (Whom::Command, None) => return Err(failed("no command to record")),
    })
}

/// Somebody has to be there.
///
/// # Errors
/// Nobody is.
pub(crate) fn must_live(target: &Target<'_>, whom: &Whom) -> Result<(), Failure> {
    if target.is_alive() {
        return Ok(());
    }
    let (one, several, ids) = match whom {
        Whom::Pids(pids) => ("process", "processes", &pids[..]),
        Whom::Tids(tids) => ("thread", "threads", &tids[..]),
        Whom::Command | Whom::Cpus(_) => return Err(failed("whoever was to be recorded is not there (any more)")),
    };
    let (what, are) = if ids.len() == 1 { (one, "is") } else { (several, "are") };
    let ids = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(failed(format!("{what} {ids} {are} not there (any more): nobody is recorded")))
}

/// Those whose end is the end of it; nobody where CPUs or a command are recorded.
pub(crate) fn whose_end(whom: &Whom) -> Option<Target<'static>> {
    match whom {
        Whom::Pids(pids) => Some(Target::Processes(pids.clone())),
        Whom::Tids(tids) => Some(Target::Threads(tids.clone())),
        Whom::Command | Whom::Cpus(_) => None,
    }
}

/// How to record, with what both commands understand; a command is recorded from its first instruction on.
pub(crate) fn how(typed: &Sampling, whom: &Whom) -> Result<RecordOptions, Failure> {
    Ok(RecordOptions {
        rate: rate(typed)?,
        call_chain: typed.call_chain(),
        addresses: Keep::when(typed.data),
        inherit: if typed.no_inherit { Inherit::Nobody } else { Inherit::Children },
        start: if matches!(whom, Whom::Command) { Start::OnExec } else { Start::Later },
        ..RecordOptions::default()
    })
}

fn rate(typed: &Sampling) -> Result<Rate, Failure> {
    Ok(match (typed.period, typed.frequency) {
        (Some(period), _) => Rate::Period(period),
        (None, None) => Rate::Usual,
        (None, Some(Frequency::Most)) => {
            let unknown = "the kernel does not tell how many samples it allows (kernel.perf_event_max_sample_rate)";
            Rate::Frequency(pmux::record::most_samples_per_second().ok_or_else(|| failed(unknown))?)
        }
        (None, Some(Frequency::PerSecond(hz))) => Rate::Frequency(hz),
    })
}
