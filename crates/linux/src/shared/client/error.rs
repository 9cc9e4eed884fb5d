//! Why there is no service.
//!
//! **Invariant:** each sentence says what was wrong, where, and what to do where something can be done.

use crate::shared::wire::Refusal;
use crate::sys::Errno;
use std::fmt;
use std::path::PathBuf;

/// Why no connection came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The socket can't be reached: `ENOENT` where it isn't there, `ECONNREFUSED` where no process listens.
    Socket(PathBuf, Errno),
    /// It belongs to this user, who is neither root nor the caller.
    Stranger(PathBuf, u32),
    /// The service doesn't want this client.
    Refused(PathBuf, Refusal),
    /// The service fell silent during the first words.
    Away(PathBuf, Away),
}

/// Why a connection ended, or the next one is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Away {
    /// The service closed it, or died.
    Closed,
    /// It said goodbye.
    Said(String),
    /// It didn't answer in time.
    TooLate,
    /// It said what makes no sense.
    Nonsense,
    /// A reply didn't fit, or there was no number left for its files.
    Cut,
    /// The socket failed.
    Socket(Errno),
    /// It is there again, and does not open anew what the one before had open: why it doesn't.
    Refuses(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path, Errno::ENOENT) => {
                write!(f, "no sharing service: there is no socket {}; start one with `pmux serve`", path.display())
            }
            Self::Socket(path, Errno::ECONNREFUSED) => write!(
                f,
                "no sharing service: nothing listens at {} any more; start one with `pmux serve`",
                path.display()
            ),
            Self::Socket(path, Errno::ENOTSOCK) => {
                write!(f, "no sharing service: {} is not a socket; PMUX_SOCKET or --socket names it", path.display())
            }
            Self::Socket(path, Errno::EACCES) => {
                write!(f, "this user may not use the sharing service at {}: permission denied", path.display())
            }
            Self::Socket(path, errno) => {
                write!(f, "can't connect to the sharing service at {}: {errno}", path.display())
            }
            Self::Stranger(path, uid) => write!(
                f,
                "the socket {} belongs to user {uid}, who is neither root nor you: name it in PMUX_SOCKET if you trust it",
                path.display()
            ),
            Self::Refused(path, refusal) => {
                write!(f, "the sharing service at {} doesn't take this client: {}", path.display(), refusal.text)
            }
            Self::Away(path, away) => write!(f, "the sharing service at {} {away}", path.display()),
        }
    }
}

impl std::error::Error for ConnectError {}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed the connection"),
            Self::Said(text) => write!(f, "closed the connection: {text}"),
            Self::TooLate => f.write_str("doesn't answer"),
            Self::Nonsense => f.write_str("speaks another language"),
            Self::Cut => f.write_str("sent more than this process may have open: raise `ulimit -n`"),
            Self::Socket(errno) => write!(f, "can't be heard: {errno}"),
            Self::Refuses(text) => write!(f, "began anew and refuses it: {text}"),
        }
    }
}

impl std::error::Error for Away {}
