//! What ends a command: a text for the user, and the exit status.

use crate::options::exit_status;
use crate::stat::error_message;
use crate::stderr::report_error;
use pmux::Error;

/// A text for the user, and the exit status.
pub(crate) type Failure = (String, u8);

/// The exit status of a command, which says what has ended it where that is a failure.
pub(crate) fn ended(result: Result<u8, Failure>) -> u8 {
    result.unwrap_or_else(|(text, status)| report_error(&text, status))
}

/// The same of a command that has nothing to say of a good end.
pub(crate) fn done(result: Result<(), Failure>) -> u8 {
    ended(result.map(|()| exit_status::SUCCESS))
}

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
