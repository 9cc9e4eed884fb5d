//! Which programs a command and its descendants execute.
//!
//! What it is: [`Execs`], a dummy event with `comm`, `comm_exec` and `inherit` for each CPU, opened on the task of a command before it
//! executes its program. `perf_event_exec` takes away events with `remove_on_exec`, and this one stays.
//!
//! Source: `perf_event_open(2)`, `PERF_RECORD_COMM`.

use crate::dummies::{DummyRings, dummy};
use crate::sys::Errno;
use pmux_abi::attr::AttrFlags;
use pmux_abi::record::{CommCause, Record};

/// Pages of data of a ring: some hundred names.
const RING_PAGES: u32 = 8;

/// A process has executed a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exec {
    /// The process.
    pub pid: i32,
    /// The name of the program, cut to 15 bytes.
    pub name: String,
}

/// Tells which programs a task and its descendants execute.
#[derive(Debug)]
pub struct Execs(DummyRings);

impl Execs {
    /// Opens the events on a task; where `descendants` is false, they are not told of.
    ///
    /// # Errors
    /// Those of `perf_event_open(2)` and `mmap(2)`.
    pub fn open(tid: i32, descendants: bool, cpus: impl IntoIterator<Item = u32>) -> Result<Self, Errno> {
        let mut attr = dummy(AttrFlags::COMM | AttrFlags::COMM_EXEC);
        attr.flags.set(AttrFlags::INHERIT, descendants);
        DummyRings::open(&attr, tid, cpus, RING_PAGES).map(Self)
    }

    /// What was executed since the last call; those of one CPU in their order.
    pub fn take(&mut self) -> Vec<Exec> {
        let mut taken = Vec::new();
        self.0.drain(&mut |record, _| {
            if let Record::Comm(comm) = record
                && comm.cause == CommCause::Exec
            {
                let name = String::from_utf8_lossy(comm.comm).into_owned();
                taken.push(Exec { pid: comm.pid.cast_signed(), name });
            }
        });
        taken
    }

    /// How many records there was no room for.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.0.lost()
    }
}
