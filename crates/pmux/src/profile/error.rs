//! Why a recording can't be read.
//!
//! **Invariant:** each error is a sentence that says what is wrong and what to do.

use pmux_abi::attr::AttrError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why nothing of a recording can be read. What is wrong later in the file is in [`super::Losses`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ProfileError {
    /// It can't be opened.
    Open(PathBuf, io::Error),
    /// It is a folder without recordings.
    Folder(PathBuf),
    /// Two recordings of a folder are not of one machine and one start of it.
    Machines(PathBuf, PathBuf),
    /// Reading failed.
    Read(io::Error),
    /// It is empty.
    Empty,
    /// It does not begin as a recording does.
    NoRecording,
    /// It was made on a machine whose bytes have another order.
    OtherByteOrder,
    /// It is of the first version of the format, which `perf` wrote until 2010.
    FirstVersion,
    /// It ends within its description.
    CutOff {
        /// What was being read.
        what: &'static str,
    },
    /// A number in its description can't be right.
    Broken {
        /// Which one.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// An event's description is not understood.
    Event {
        /// Its place, from 0.
        index: usize,
        /// Why.
        error: AttrError,
    },
    /// There is no event in it.
    NoEvents,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) if error.kind() == io::ErrorKind::NotFound => {
                write!(f, "{}: there is no such file; `pmux record` makes one, `-i FILE` names another", path.display())
            }
            Self::Open(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Folder(path) => {
                write!(f, "{}: there is no recording in this folder: none of its files ends in .data, and none is called data", path.display())
            }
            Self::Machines(before, after) => write!(
                f,
                "{} and {} are not of one machine, or it was started anew in between: name one of them, or a folder with those \
                 that belong together",
                before.display(),
                after.display()
            ),
            Self::Read(error) => write!(f, "the recording can't be read: {error}"),
            Self::Empty => f.write_str("the recording is empty: its writer ended before the first byte"),
            Self::NoRecording => {
                f.write_str("this is no recording: it does not begin with the letters of a perf.data file")
            }
            Self::OtherByteOrder => f.write_str(
                "the recording was made on a machine whose bytes have another order: read it on such a machine",
            ),
            Self::FirstVersion => f.write_str(
                "the recording is of the first version of perf.data, as perf wrote it until 2010: only perf itself reads that",
            ),
            Self::CutOff { what } => write!(f, "the recording is cut off: it ends within its {what}"),
            Self::Broken { what, value } => write!(f, "the recording is broken: its {what} can't be {value}"),
            Self::Event { index, error } => write!(f, "event {index} of the recording is not understood: {error}"),
            Self::NoEvents => f.write_str("the recording has no event"),
        }
    }
}

impl std::error::Error for ProfileError {}

impl From<io::Error> for ProfileError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}
