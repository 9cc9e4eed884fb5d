//! Why a load can't be measured.
//!
//! **Invariant:** each error is a sentence, and says what would help where something does.

use crate::refusal::Refusal;
use pmux_engine::hw_breakpoint::ReserveError;
use pmux_linux::Errno;
use pmux_linux::capacity::holders::{Holder, Tracer, holders, tracers};
use std::fmt;

/// Why a load can't be measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// There are no performance events here.
    NoEvents(Box<Refusal>),
    /// Not all breakpoints were granted.
    Refused {
        /// How many were asked for.
        asked: u32,
        /// How many were granted.
        granted: u32,
        /// Why the first of the others was not.
        refusal: Box<Refusal>,
        /// The other processes that have events open, where debug registers are short.
        holders: Vec<Holder>,
        /// The other processes that trace a task, in the same case.
        tracers: Vec<Tracer>,
    },
    /// The session can't open or switch breakpoints.
    Session(crate::Error),
    /// A thread could not be started.
    Thread {
        /// How many breakpoints it would have inherited.
        breakpoints: u32,
        /// What the kernel said.
        errno: Errno,
    },
    /// The accounts that were asked alone refused.
    Accounts {
        /// How many breakpoints each task was to have.
        breakpoints: u32,
        /// What they said.
        refused: ReserveError,
    },
}

impl BenchError {
    pub(super) fn refused(asked: u32, granted: u32, refusal: Refusal) -> Self {
        let short = refusal.errno == Some(Errno::ENOSPC.raw());
        let (holders, tracers) = if short { (holders(), tracers()) } else { Default::default() };
        Self::Refused { asked, granted, refusal: Box::new(refusal), holders, tracers }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvents(why) => {
                write!(f, "the kernel's performance events can't be opened here: {why}")?;
                write!(f, "\n  the ledger alone needs none: --engine ledger")
            }
            Self::Refused { asked, granted, refusal, holders, tracers } => {
                write!(f, "{granted} of {asked} breakpoints were granted: {refusal}")?;
                let who = |command: &str, pid: i32| format!("{command} ({pid})");
                list(f, "have performance events open", holders.iter().map(|other| who(&other.command, other.pid)))?;
                let tracers = tracers.iter().map(|other| who(&other.command, other.pid));
                list(f, "trace another process, as debuggers do", tracers)
            }
            Self::Session(error) => error.fmt(f),
            Self::Thread { breakpoints, errno } => {
                write!(f, "a thread could not be started ({breakpoints} breakpoints to inherit): {errno}")?;
                match *errno {
                    Errno::ENOSPC => write!(f, "\n  another program has taken debug registers meanwhile"),
                    Errno::EAGAIN => {
                        write!(f, "\n  start fewer at a time, or raise `ulimit -u` or pids.max of the cgroup")
                    }
                    _ => Ok(()),
                }
            }
            Self::Accounts { breakpoints, refused } => {
                write!(f, "a task can't have {breakpoints} breakpoints: {refused}")
            }
        }
    }
}

/// A line for others who may hold what is short.
fn list(f: &mut fmt::Formatter<'_>, what: &str, names: impl Iterator<Item = String>) -> fmt::Result {
    let names: Vec<_> = names.collect();
    if names.is_empty() { Ok(()) } else { write!(f, "\n  other processes that {what}: {}", names.join(", ")) }
}

impl std::error::Error for BenchError {}

impl From<crate::Error> for BenchError {
    fn from(error: crate::Error) -> Self {
        Self::Session(error)
    }
}
