//! One hit, as it comes out of the rings.
//!
//! **Invariant:** plain data; an address is as the program saw it.

use crate::event::Access;
use pmux_engine::Nanos;

/// In which mode the instruction ran.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The program.
    User,
    /// The kernel, on behalf of the program or of nobody.
    Kernel,
}

/// What is known of the watched data after a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Read from the process after the hit.
    Read {
        /// What stood there: the bytes as the machine reads a number of that length.
        now: u64,
        /// What stood there when it was last looked at; `None` for the first time.
        before: Option<u64>,
        /// How long after the hit it was read.
        late: Nanos,
    },
    /// There was another hit before it could be read, so it is not known what this one left.
    Overtaken,
    /// It can't be read: the process is gone, or this user may not, or it is code, or too long.
    Unreadable,
}

impl Value {
    /// The number, where it is known.
    #[must_use]
    pub fn now(&self) -> Option<u64> {
        match *self {
            Self::Read { now, .. } => Some(now),
            _ => None,
        }
    }

    /// The number at the last look, where it is known.
    #[must_use]
    pub fn before(&self) -> Option<u64> {
        match *self {
            Self::Read { before, .. } => before,
            _ => None,
        }
    }
}

/// One hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hit {
    /// When, on the monotonic clock.
    pub at: Nanos,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// The CPU.
    pub cpu: u32,
    /// Which spot.
    pub spot: usize,
    /// The first byte of the register that was hit.
    pub address: u64,
    /// The instruction pointer as the machine reports it: see [`Hit::at_instruction`].
    pub ip: u64,
    /// In which mode.
    pub side: Side,
    /// Return addresses, the innermost first, as far as frame pointers lead. Those of the kernel come before those of the
    /// program.
    pub callers: Box<[u64]>,
    /// What is known of the data.
    pub value: Value,
}

impl Hit {
    /// An address inside the instruction that made the access: see [`stands_behind`].
    #[must_use]
    pub fn at_instruction(&self, access: Access) -> u64 {
        self.ip.saturating_sub(u64::from(stands_behind(access)))
    }
}

/// Whether the pointer of a hit stands behind its instruction.
///
/// x86 reports an access to data when it is done. Other machines report it before, and all do so with an execution: there the
/// pointer stands on the instruction.
#[must_use]
pub fn stands_behind(access: Access) -> bool {
    cfg!(any(target_arch = "x86", target_arch = "x86_64")) && access != Access::EXECUTE
}
