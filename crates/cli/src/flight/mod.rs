//! `pmux flight`: the last seconds in memory, and in a file when something happens.
//!
//! What it is: [`run`] is a recorder in the foreground; [`asking`] asks those that run; [`messages`] is what is said. What a recorder
//! does is in `pmux_daemon::flight`. Read first: [`flight`], then [`run::FlightRun`].
//!
//! **Invariant:** what a rule asked for is done or it is said why not, also at the end.

mod asking;
mod messages;
mod run;

pub(crate) use messages::in_a_line;

use crate::failure::{Failure, failure};
use crate::options::flight::FlightOptions;

/// Runs `pmux flight`, or asks a recorder that runs, and returns the exit status.
pub(crate) fn flight(options: &FlightOptions) -> Result<u8, Failure> {
    match &options.ask {
        Some(ask) => asking::carry_out(ask),
        // What samples shares nothing.
        None => pmux::Session::with_shared(pmux::SharedChoice::Never)
            .map_err(|error| failure(&error))
            .and_then(|session| run::FlightRun::new(options, &session)?.run()),
    }
}
