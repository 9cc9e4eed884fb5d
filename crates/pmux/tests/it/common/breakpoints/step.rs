//! The steps of a sequence.
//!
//! **Invariant:** a step names breakpoints by number and threads by place, so that a sequence makes sense without some of
//! its steps: what is not open is not closed.

use pmux::event::Access;
use pmux_engine::CpuId;
use pmux_sim::oracle::breakpoint::Kind;
use std::collections::BTreeSet;

/// What a breakpoint waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    pub access: Access,
    /// In bytes. No machine watches [`Watch::NEVER`] at once.
    pub len: u64,
    /// Which of a few addresses.
    pub at: usize,
}

impl Watch {
    /// A length that every kernel finds invalid.
    pub const NEVER: u64 = 9;

    pub const SIMPLEST: Self = Self { access: Access::WRITE, len: 8, at: 0 };

    pub fn execute(at: usize) -> Self {
        Self { access: Access::EXECUTE, len: Access::EXECUTE.default_len(), at }
    }

    pub fn kind(self) -> Kind {
        if self.access == Access::EXECUTE { Kind::Execute } else { Kind::Data }
    }

    pub fn is_valid(self) -> bool {
        self.len != Self::NEVER
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Of a thread, wherever it is.
    Thread(usize),
    /// Of a thread, while it is on these CPUs.
    ThreadOn(usize, BTreeSet<CpuId>),
    /// Of these CPUs.
    Cpus(BTreeSet<CpuId>),
}

impl Whose {
    pub fn thread(&self) -> Option<usize> {
        match self {
            Self::Thread(thread) | Self::ThreadOn(thread, _) => Some(*thread),
            Self::Cpus(_) => None,
        }
    }

    pub fn cpus(&self) -> Option<&BTreeSet<CpuId>> {
        match self {
            Self::Thread(_) => None,
            Self::ThreadOn(_, cpus) | Self::Cpus(cpus) => Some(cpus),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heirs {
    NoTask,
    Children,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildKind {
    /// It may have children.
    Thread,
    Process,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A fresh thread takes the place of another, which ends. The old one's breakpoints stay until they are closed.
    Replace(usize),
    /// The task at a place ends, and a child of another one, a thread, takes its place.
    Fork {
        parent: usize,
        child: usize,
        child_kind: ChildKind,
    },
    Open {
        number: u32,
        whose: Whose,
        watch: Watch,
        counting: Counting,
        heirs: Heirs,
    },
    Modify {
        number: u32,
        watch: Watch,
    },
    Switch {
        number: u32,
        counting: Counting,
    },
    Close(u32),
}
