//! What was typed about targets and sampling, as the library takes it: for `pmux stat`, `pmux record`, `pmux flight`, `pmux top` and
//! `pmux watch`.
//!
//! **Invariant:** nothing is enabled here.

use crate::failure::{Failure, failed, failure};
use crate::options::sampling::{CallGraph, DWARF, Frequency, Sampling};
use crate::options::target::TargetSpec;
use crate::stat::{EXEC_HELP, cpu_choice, ended_by_exec};
use pmux::record::{CallChain, Keep, Rate, RecordOptions, Recorder};
use pmux::symbol::{CodeOf, FramePointers};
use pmux::wait::{Token, Waiter, Wake};
use pmux::{Command, Error, EventEnds, EventList, Inherit, Session, SharedChoice, Start, Target};
use std::path::PathBuf;

/// The events; none where none were typed.
pub(crate) fn events(typed: &Sampling, session: &Session) -> Result<EventList, Failure> {
    if typed.events.is_empty() {
        return Ok(EventList::default());
    }
    crate::filters::parse(session, &typed.events, &typed.filters).map_err(failed)
}

/// The target, of CPUs only these control groups, where there are some; `held` is the command, where there is one.
pub(crate) fn target<'c>(
    target_spec: &TargetSpec,
    cgroups: &[String],
    held: Option<&'c Command>,
) -> Result<Target<'c>, Failure> {
    Ok(match (target_spec, held) {
        (TargetSpec::Pids(pids), _) => Target::Processes(pids.clone()),
        (TargetSpec::Tids(tids), _) => Target::Threads(tids.clone()),
        (TargetSpec::Cpus(list), _) => {
            let cpus = cpu_choice(list.as_deref()).map_err(failed)?;
            match cgroups {
                [] => Target::Cpus(cpus),
                names => Target::Cgroups { names: names.to_vec(), cpus },
            }
        }
        (TargetSpec::Command, Some(command)) => Target::Command(command),
        (TargetSpec::Command, None) => return Err(failed("no command to measure")),
    })
}

/// Opens the events, through the service or here; whether it is through the service.
pub(crate) fn open_recorder(
    session: &Session,
    shared: SharedChoice,
    events: EventList,
    target: &Target<'_>,
    how: RecordOptions,
) -> Result<(Recorder, bool), Error> {
    match shared {
        SharedChoice::Never => Ok((Recorder::open(session, events, target, how)?, false)),
        SharedChoice::Always => Ok((Recorder::subscribe(session, events, target, how)?, true)),
        SharedChoice::Auto => match Recorder::subscribe(session, events.clone(), target, how.clone()) {
            Ok(recorder) => Ok((recorder, true)),
            // What is not shared is no news: it was not demanded.
            Err(_) => {
                let own = Session::with_shared(SharedChoice::Never)?;
                Ok((Recorder::open(&own, events, target, how)?, false))
            }
        },
    }
}

/// What the library says where events can't be opened, and what helps where memory for rings is refused; `smaller` asks for less.
pub(crate) fn not_opened(error: &Error, smaller: &str) -> Failure {
    let (mut text, status) = failure(error);
    if matches!(error, Error::Ring { errno, .. } if matches!(errno.raw(), 1 | 12)) {
        text.push_str(&format!(
            "\n  what helps: smaller rings ({smaller}), a larger kernel.perf_event_mlock_kb, or the capability CAP_IPC_LOCK"
        ));
    }
    (text, status)
}

/// At least a part of the target has to be there.
///
/// # Errors
/// Nothing of the target is there.
pub(crate) fn check_target_alive(target: &Target<'_>, target_spec: &TargetSpec) -> Result<(), Failure> {
    if target.is_alive() {
        return Ok(());
    }
    let (one, several, ids) = match target_spec {
        TargetSpec::Pids(pids) => ("process", "processes", &pids[..]),
        TargetSpec::Tids(tids) => ("thread", "threads", &tids[..]),
        TargetSpec::Command | TargetSpec::Cpus(_) => {
            return Err(failed("what was to be recorded is not there (any more)"));
        }
    };
    let (what, are) = if ids.len() == 1 { (one, "is") } else { (several, "are") };
    let ids = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Err(failed(format!("{what} {ids} {are} not there (any more): nothing is recorded")))
}

/// The tasks whose end is the end of the measurement; none where CPUs or a command are measured.
pub(crate) fn awaited_target(target_spec: &TargetSpec) -> Option<Target<'static>> {
    match target_spec {
        TargetSpec::Pids(pids) => Some(Target::Processes(pids.clone())),
        TargetSpec::Tids(tids) => Some(Target::Threads(tids.clone())),
        TargetSpec::Command | TargetSpec::Cpus(_) => None,
    }
}

/// How to record, with what all commands understand, and what is to be said of it; a command is recorded from its first instruction on.
pub(crate) fn record_options(
    typed: &Sampling,
    target_spec: &TargetSpec,
) -> Result<(RecordOptions, Option<String>), Failure> {
    let (call_chain, note) = match typed.call_graph() {
        CallGraph::As(chain) => (chain, None),
        CallGraph::Auto => chosen_chain(typed, target_spec),
    };
    let options = RecordOptions {
        rate: rate(typed)?,
        call_chain,
        addresses: Keep::when(typed.data),
        inherit: if typed.no_inherit { Inherit::None } else { Inherit::Children },
        start: if matches!(target_spec, TargetSpec::Command) { Start::OnExec } else { Start::Later },
        ..RecordOptions::default()
    };
    Ok((options, note))
}

/// How call chains are found in what is recorded, and why so.
fn chosen_chain(typed: &Sampling, target_spec: &TargetSpec) -> (CallChain, Option<String>) {
    // More of them are not named.
    const NAMED: usize = 3;
    let code = match (target_spec, &typed.command[..]) {
        (TargetSpec::Pids(ids) | TargetSpec::Tids(ids), _) => CodeOf::Processes(ids),
        (TargetSpec::Command, [word, ..]) => CodeOf::Command(word),
        _ => CodeOf::Everything,
    };
    let FramePointers { without, with, unknown } = FramePointers::of(code, NAMED + 1);
    if without.is_empty() {
        let why = match with {
            0 => "whether these are kept is not known".to_owned(),
            1 => "the 1 file that was looked into keeps them".to_owned(),
            _ => format!("the {with} files that were looked into keep them"),
        };
        let others = if with > 0 && unknown > 0 { format!("; {unknown} more do not tell") } else { String::new() };
        return (CallChain::FramePointers, Some(format!("call chains by frame pointers (fp): {why}{others}")));
    }
    let name = |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).display().to_string();
    let names = without.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    let keep = match without.len() {
        1 => " keeps",
        2..=NAMED => " keep",
        _ => " and others keep",
    };
    (DWARF, Some(format!("call chains by copies of the stack (dwarf): {names}{keep} no frame pointers")))
}

/// How call chains are found where they are needed: what was asked for, or by frame pointers.
pub(crate) fn needed_chain(asked: CallChain, is_needed: bool) -> CallChain {
    match asked {
        CallChain::None if is_needed => CallChain::FramePointers,
        asked => asked,
    }
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

/// What tells that an exec has ended the events of what is measured.
pub(crate) struct EventEndWatch {
    ends: EventEnds,
    target_spec: TargetSpec,
    token: Token,
}

impl EventEndWatch {
    /// For a command that is held, or what is measured otherwise.
    pub(crate) fn new(session: &Session, target_spec: &TargetSpec, held: Option<&Command>, token: Token) -> Self {
        let ends = match (target_spec, held) {
            (TargetSpec::Command, Some(command)) => session.watch_event_ends_of(command),
            (TargetSpec::Pids(tasks) | TargetSpec::Tids(tasks), _) => session.watch_event_ends(tasks),
            _ => session.watch_event_ends(&[]),
        };
        Self { ends, target_spec: target_spec.clone(), token }
    }

    /// The same, after a first look. What may end wakes the waiter with this token.
    pub(crate) fn watch(
        session: &Session,
        target_spec: &TargetSpec,
        held: Option<&Command>,
        (waiter, token): (&mut Waiter, Token),
    ) -> Self {
        let mut ends = Self::new(session, target_spec, held, token);
        ends.look(waiter);
        ends
    }

    /// The tasks that have lost their events, as far as was looked.
    pub(crate) fn ended(&self) -> &[i32] {
        self.ends.ended()
    }

    /// Whether it is to be looked from time to time.
    pub(crate) const fn wants_looks(&self) -> bool {
        self.ends.wants_looks()
    }

    /// Looks, where something has happened that may have ended events.
    pub(crate) fn take(&mut self, wakes: &[Wake], waiter: &mut Waiter) {
        let may_have_ended = |wake: &Wake| match wake {
            Wake::Child => true,
            Wake::Hangup(token) => *token == self.token,
            Wake::Deadline => self.wants_looks(),
            _ => false,
        };
        if wakes.iter().any(may_have_ended) {
            self.look(waiter);
        }
    }

    /// Looks, and has the waiter wait for what may end next.
    pub(crate) fn look(&mut self, waiter: &mut Waiter) {
        self.ends.look();
        self.await_next(waiter);
    }

    /// Has the waiter wait for what may end next.
    pub(crate) fn await_next(&self, waiter: &mut Waiter) {
        waiter.forget(self.token);
        self.ends.fds().for_each(|fd| waiter.watch(fd, self.token));
    }

    /// What has ended, which ends `what_ended`, in a sentence.
    pub(crate) fn sentence(&self, what_ended: &str) -> Option<String> {
        let ended: Vec<_> = self.ends.ended().iter().map(ToString::to_string).collect();
        let what = match self.target_spec {
            _ if ended.is_empty() => return None,
            TargetSpec::Command => "the command".to_owned(),
            TargetSpec::Tids(_) => format!("thread {}", ended.join(", ")),
            TargetSpec::Pids(_) | TargetSpec::Cpus(_) => format!("process {}", ended.join(", ")),
        };
        Some(ended_by_exec(what_ended, &what))
    }

    /// What has ended a recording, with what helps.
    pub(crate) fn message(&self) -> Option<String> {
        self.sentence("recording").map(|text| format!("{text}; {EXEC_HELP}"))
    }
}
