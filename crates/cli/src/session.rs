//! The session of a command that counts.
//!
//! **Invariant:** what the user typed comes before what the environment says.

use crate::options::shared::{SharedOptions, SharedWhen};
use pmux::{Error, Session, SharedChoice};

/// A session that shares counters as was typed. `usual` is what holds where nothing was; `None` is what the environment says.
pub(crate) fn open(options: &SharedOptions, usual: Option<SharedChoice>) -> Result<Session, Error> {
    let Some(socket) = &options.socket else {
        let shared = options.shared.map(SharedChoice::from).or(usual);
        return shared.map_or_else(Session::new, Session::with_shared);
    };
    match (Session::with_service_at(socket), options.shared) {
        (Err(Error::Service(_)), Some(SharedWhen::Auto)) => Session::with_shared(SharedChoice::Never),
        (session, _) => session,
    }
}
