//! The session of a command that counts.
//!
//! **Invariant:** what the user typed comes before what the environment says.

use crate::options::shared::{SharedOptions, SharedWhen};
use crate::stderr::write_stderr;
use pmux::{Error, Session, SharedChoice};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// A session that shares counters as was typed. `usual` is what holds where nothing was; `None` is what the environment says.
pub(crate) fn open(options: &SharedOptions, usual: Option<SharedChoice>) -> Result<Session, Error> {
    let Some(socket) = &options.socket else {
        let shared = options.shared.map(SharedChoice::from).or(usual).map_or_else(SharedChoice::of_environment, Ok)?;
        if shared == SharedChoice::Auto {
            note_wrong_socket();
        }
        return Session::with_shared(shared);
    };
    match (Session::with_service_at(socket), options.shared) {
        (Err(Error::Service(_)), Some(SharedWhen::Auto)) => Session::with_shared(SharedChoice::Never),
        (session, _) => session,
    }
}

/// Whether a service may listen there.
pub(crate) fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.file_type().is_socket())
}

pub(crate) fn socket_of_environment() -> Option<PathBuf> {
    std::env::var_os("PMUX_SOCKET").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What is there and is no socket was meant to be one. Where there is nothing, the service may only be away.
fn note_wrong_socket() {
    if let Some(path) = socket_of_environment().filter(|path| path.exists() && !is_socket(path)) {
        write_stderr(&format!("pmux: PMUX_SOCKET={} is not a socket: events are opened directly", path.display()));
    }
}
