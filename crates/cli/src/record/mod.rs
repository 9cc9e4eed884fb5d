//! `pmux record`: samples into a file.
//!
//! What it is: [`run`] opens, waits and passes records on; [`files`] knows which file is written, and when it is another one's
//! turn; [`messages`] is what is said. Read first: [`record`], then [`run::RecordRun`].
//!
//! **Invariant:** whatever ends it, what was recorded until then is in the file; what was lost is told.

mod files;
mod messages;
mod run;

pub(crate) use files::timestamp;

use crate::failure::{Failure, failure};
use crate::options::record::RecordOptions;

pub(crate) fn record(options: &RecordOptions) -> Result<u8, Failure> {
    let session = crate::session::open(&options.shared, Some(pmux::SharedChoice::Never));
    run::RecordRun::new(options, &session.map_err(|error| failure(&error))?)?.run()
}
