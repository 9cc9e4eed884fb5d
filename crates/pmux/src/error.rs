//! What can go wrong in the library.
//!
//! **Invariant:** each error is a sentence that a person can act on.

use crate::event::TextError;
use crate::refusal::Refusal;
#[cfg(feature = "record")]
use crate::watch::{Shortage, WatchTargetError};
use pmux_engine::{ControlError, ModifyError, ReadError};
use pmux_linux::Errno;
use pmux_linux::catalog::CatalogError;
use pmux_linux::cgroup::CgroupError;
use pmux_linux::cpus::CpusError;
use pmux_linux::procfs::ProcError;
use pmux_linux::shared::client::ConnectError;
use pmux_linux::spawn::SpawnError;
use pmux_linux::trace::FollowError;
use std::fmt;

/// Why something was not opened, counted or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An event was not understood.
    Parse(TextError),
    /// No event could be opened; one refusal per event, equal ones once.
    Refused(Vec<Refusal>),
    /// The environment asks for a backend that doesn't exist.
    Backend(String),
    /// The environment asks for a way of sharing that doesn't exist.
    SharedChoice(String),
    /// Counters were to be shared, and there is no service.
    Service(ConnectError),
    /// The service doesn't do what was asked of it: a sentence.
    ServiceRefused(String),
    /// There is no service, or it is away.
    NoService,
    /// A ring that another process writes contradicts itself.
    BrokenRing(pmux_linux::ring::RingError),
    /// What the kernel says of its events could not be read.
    Catalog(CatalogError),
    /// The machine's CPUs could not be read.
    Cpus(CpusError),
    /// A named CPU is offline or doesn't exist.
    NoSuchCpu {
        /// The CPU.
        cpu: u32,
        /// The CPUs that are online.
        online: String,
    },
    /// A process or thread is not there or can't be looked at.
    Process(ProcError),
    /// A cgroup can't be used.
    Cgroup(CgroupError),
    /// The command was not started.
    Spawn(SpawnError),
    /// The command can't be followed.
    Follow(FollowError),
    /// An option doesn't go with the target.
    Options(&'static str),
    /// A counter could not be switched.
    Control(ControlError),
    /// An event counts what it counted.
    Modify(ModifyError),
    /// A counter could not be read.
    Read(ReadError),
    /// A ring could not be set up or read.
    Ring {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// The kernel does not take a filter.
    Filter {
        /// The filter.
        filter: String,
        /// What the kernel said.
        errno: Errno,
        /// What it can name, in lines of their own; empty where that is not known.
        help: String,
    },
    /// A spot can't be watched, on any machine.
    #[cfg(feature = "record")]
    WatchTarget(WatchTargetError),
    /// Debug registers are not enough.
    #[cfg(feature = "record")]
    Shortage(Box<Shortage>),
    /// Waiting failed.
    Wait(Errno),
    /// What was recorded could not be written.
    Output(std::io::Error),
    /// A directory can't be made or written to.
    Directory {
        /// Which.
        path: std::path::PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// There is no thread for taking turns.
    Thread(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse(error) => error.fmt(f),
            Self::Refused(refusals) => {
                for (index, refusal) in refusals.iter().enumerate() {
                    if index > 0 {
                        writeln!(f)?;
                    }
                    refusal.fmt(f)?;
                }
                Ok(())
            }
            Self::Backend(name) => {
                write!(f, "{}={name}: it is one of auto, kernel, usage", crate::session::BACKEND_VARIABLE)
            }
            Self::SharedChoice(name) => {
                write!(f, "{}={name}: it is one of auto, always, never", crate::session::SHARED_VARIABLE)
            }
            Self::Service(error) => error.fmt(f),
            Self::NoService => f.write_str("there is no sharing service: start one with `pmux serve`"),
            Self::BrokenRing(error) => write!(f, "records are missing: {error}"),
            Self::ServiceRefused(text) => write!(f, "the sharing service says no: {text}"),
            Self::Catalog(error) => error.fmt(f),
            Self::Cpus(error) => error.fmt(f),
            Self::NoSuchCpu { cpu, online } => {
                write!(f, "CPU {cpu} is offline or doesn't exist; online are {online}")
            }
            Self::Process(error) => error.fmt(f),
            Self::Cgroup(error) => error.fmt(f),
            Self::Spawn(error) => error.fmt(f),
            Self::Follow(error) => error.fmt(f),
            Self::Options(text) => f.write_str(text),
            Self::Control(error) => error.fmt(f),
            Self::Modify(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::Ring { what, errno } => write!(f, "{what}: {errno}"),
            Self::Filter { filter, errno, help } => {
                write!(f, "the kernel does not take the filter `{filter}`: {errno}{help}")
            }
            #[cfg(feature = "record")]
            Self::WatchTarget(error) => error.fmt(f),
            #[cfg(feature = "record")]
            Self::Shortage(shortage) => shortage.fmt(f),
            Self::Wait(errno) => write!(f, "waiting failed: {errno}"),
            Self::Output(error) => write!(f, "writing failed: {error}"),
            Self::Directory { path, error } => write!(f, "{}: nothing can be written there: {error}", path.display()),
            Self::Thread(error) => write!(f, "no thread could be started that lets events take turns: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        Self::Parse(error)
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}
