//! `pmux watch`: who touches this address.
//!
//! What it is: [`targets`] turns what was typed into spots, [`run`] holds the command, arms, waits and takes hits in,
//! [`hits`] judges them, [`resolver`] knows names of threads and places, [`programs`] which programs were executed and not looked into,
//! [`report`] is what was found, [`table`] and [`json`] print it, [`trace`] prints hits as they happen, [`output`] knows where.
//! Read first: [`watch`], then [`run::WatchRun`].
//!
//! **Invariant:** formats see reports only; a hit that is not told one by one is in a number.

mod hits;
mod json;
mod output;
mod programs;
mod report;
mod resolver;
mod run;
mod table;
mod targets;
#[cfg(test)]
mod tests;
mod trace;

use crate::failure::{Failure, failed};
use crate::options::watch::WatchOptions;
use output::WatchOutput;
use pmux::Error;

/// What the library says, and what helps where registers run out.
fn failure(error: &Error) -> Failure {
    let (mut text, status) = crate::failure::failure(error);
    if matches!(error, Error::Shortage(_)) {
        for holder in crate::service::breakpoint_holders() {
            text.push_str("\n    through pmux serve: ");
            text.push_str(&holder);
        }
        text.push_str(
            "\n  what helps: name fewer or shorter targets, or --share-time, which watches all of them in turns",
        );
    }
    (text, status)
}

pub(crate) fn watch(options: &WatchOptions) -> Result<u8, Failure> {
    let targets = targets::parse(&options.targets).map_err(failed)?;
    let session = crate::session::open(&options.shared, None).map_err(|error| failure(&error))?;
    let output = WatchOutput::open(options).map_err(failed)?;
    run::WatchRun::new(options, &session, targets, output)?.run()
}
