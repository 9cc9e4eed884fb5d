//! One hit, as it comes out of the rings.
//!
//! **Invariant:** plain data; an address is as the program saw it.

use crate::event::Access;
use pmux_engine::Nanos;

/// In which mode the instruction ran.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HitSide {
    /// The program.
    User,
    /// The kernel, on behalf of the program or of no program.
    Kernel,
}

/// What is known of the watched data after a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HitValue {
    /// Seen at the hit itself, behind the access, before the task went on.
    AtHit {
        /// What stood there: the bytes as the machine reads a number of that length.
        now: u64,
        /// What stood there at the hit before this one in the same process (in the kernel: in any), or when it was armed; `None`
        /// where that is not known. It is what this hit found, unless a writer that is not watched wrote there: another
        /// process that shares the memory, a device, or any thread where registers take turns.
        before: Option<u64>,
    },
    /// Seen at the hit itself, in front of the access, as machines other than x86 report it.
    Found {
        /// What stood there: what the hit found.
        before: u64,
        /// What it left, as far as that was seen: what the next hit found, or what was read later; and how long after the hit that
        /// was.
        after: Option<(u64, Nanos)>,
    },
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

impl HitValue {
    /// The number, where it is known.
    #[must_use]
    pub fn now(&self) -> Option<u64> {
        match *self {
            Self::AtHit { now, .. } | Self::Read { now, .. } => Some(now),
            Self::Found { after, .. } => after.map(|(now, _)| now),
            Self::Overtaken | Self::Unreadable => None,
        }
    }

    /// The number before, where it is known.
    #[must_use]
    pub fn before(&self) -> Option<u64> {
        match *self {
            Self::AtHit { before, .. } | Self::Read { before, .. } => before,
            Self::Found { before, .. } => Some(before),
            Self::Overtaken | Self::Unreadable => None,
        }
    }

    /// How long after the hit [`HitValue::now`] was seen; 0 for at the hit.
    #[must_use]
    pub fn late(&self) -> Option<Nanos> {
        match *self {
            Self::AtHit { .. } => Some(Nanos::ZERO),
            Self::Found { after, .. } => after.map(|(_, late)| late),
            Self::Read { late, .. } => Some(late),
            Self::Overtaken | Self::Unreadable => None,
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
    pub watch_target: usize,
    /// The first byte of the register that was hit.
    pub address: u64,
    /// The instruction pointer as the machine reports it: see [`Hit::at_instruction`].
    pub ip: u64,
    /// In which mode.
    pub side: HitSide,
    /// Return addresses, the innermost first, as far as frame pointers lead. Those of the kernel come before those of the
    /// program.
    pub callers: Box<[u64]>,
    /// What is known of the data.
    pub value: HitValue,
    /// For how many hits its callers stand: itself, and those before it, of the same thread at the same place on the same CPU, that
    /// were only counted ([`super::WatchEvent::Counted`]).
    pub stands_for: u64,
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
