//! The session of a command that counts.
//!
//! **Invariant:** what the user typed comes before what the environment says.

use crate::options::shared::SharedWish;
use pmux::{Error, Session};

/// A session that shares counters as was wished.
pub(crate) fn open(wish: Option<SharedWish>) -> Result<Session, Error> {
    wish.map_or_else(Session::new, |wish| Session::with_shared(wish.into()))
}
