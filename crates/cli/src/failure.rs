//! What ends a command: a text for the user, and the exit status.

use crate::options::exit_status;
use crate::stat::error_message;
use pmux::Error;

/// A text for the user, and the exit status.
pub(crate) type Failure = (String, u8);

/// pmux itself failed.
pub(crate) fn failed(text: impl Into<String>) -> Failure {
    (text.into(), exit_status::FAILED)
}

/// The library did, or the command could not be started.
pub(crate) fn failure(error: &Error) -> Failure {
    let status = match error {
        Error::Spawn(error) => error.exit_code(),
        _ => exit_status::FAILED,
    };
    (error_message(error), status)
}
