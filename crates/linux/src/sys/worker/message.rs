//! What goes over the socket between a worker and the process that tells it what to do.
//!
//! **Invariant:** both ends are the same program on the same machine; a message that makes no sense is refused all the same.

/// Eight words: an order, or an answer.
pub(crate) type Message = [u64; 8];

/// What a task does at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touching {
    /// Reads a byte.
    Read,
    /// Writes a byte.
    Write,
    /// Calls what is there: a return.
    Execute,
}

/// Which child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildKind {
    /// A process.
    Process,
    /// A thread of the same process.
    Thread,
}

/// What a worker is told to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// To go to a CPU and stay there.
    Go {
        /// The CPU.
        cpu: u32,
    },
    /// To spend CPU time, with page faults spread over it.
    Run {
        /// Nanoseconds of its own time.
        cpu_ns: u64,
        /// Fresh pages.
        pages: u64,
    },
    /// To touch fresh pages: a page fault each.
    Touch {
        /// How many.
        pages: u64,
    },
    /// To access a byte of the memory for accesses.
    Access {
        /// Which byte.
        offset: u64,
        /// What is done there.
        how: Touching,
        /// How often.
        times: u32,
    },
    /// To start a child, which answers on a socket that comes along.
    Fork {
        /// Which of the stacks it gets.
        stack: u32,
        /// Which child.
        child_kind: ChildKind,
    },
    /// To execute its own program again, or another copy of it that comes along.
    Exec,
    /// To end.
    Exit,
}

impl Order {
    pub(crate) fn encode(self) -> Message {
        let (op, a, b, c) = match self {
            Self::Go { cpu } => (1, u64::from(cpu), 0, 0),
            Self::Run { cpu_ns, pages } => (2, cpu_ns, pages, 0),
            Self::Touch { pages } => (3, pages, 0, 0),
            Self::Access { offset, how, times } => (4, offset, how as u64, u64::from(times)),
            Self::Fork { stack, child_kind } => (5, u64::from(stack), child_kind as u64, 0),
            Self::Exec => (6, 0, 0, 0),
            Self::Exit => (7, 0, 0, 0),
        };
        [op, a, b, c, 0, 0, 0, 0]
    }

    pub(crate) fn decode([op, a, b, c, ..]: Message) -> Option<Self> {
        Some(match op {
            1 => Self::Go { cpu: u32::try_from(a).ok()? },
            2 => Self::Run { cpu_ns: a, pages: b },
            3 => Self::Touch { pages: a },
            4 => Self::Access { offset: a, how: touching(b)?, times: u32::try_from(c).ok()? },
            5 => Self::Fork { stack: u32::try_from(a).ok()?, child_kind: child_kind(b)? },
            6 => Self::Exec,
            7 => Self::Exit,
            _ => return None,
        })
    }
}

fn touching(word: u64) -> Option<Touching> {
    [Touching::Read, Touching::Write, Touching::Execute].get(usize::try_from(word).ok()?).copied()
}

fn child_kind(word: u64) -> Option<ChildKind> {
    [ChildKind::Process, ChildKind::Thread].get(usize::try_from(word).ok()?).copied()
}

/// What a worker says when it is there, and after each order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WorkerAnswer {
    /// 0, or the number of the error.
    pub(crate) errno: i32,
    pub(crate) tid: i32,
    pub(crate) pid: i32,
    pub(crate) child: i32,
    /// The CPU time that it has used since it was born.
    pub(crate) cpu_ns: u64,
    /// The rounds of the known loop in this order.
    pub(crate) rounds: u64,
    /// The fresh pages that it has touched in this order.
    pub(crate) pages: u64,
    pub(crate) accesses: u64,
    /// Its effective user.
    pub(crate) user: u32,
}

impl WorkerAnswer {
    pub(crate) fn encode(self) -> Message {
        let half = |high: i32, low: i32| u64::from(high.cast_unsigned()) << 32 | u64::from(low.cast_unsigned());
        [
            half(self.errno, self.tid),
            half(self.pid, self.child),
            self.cpu_ns,
            self.rounds,
            self.pages,
            self.accesses,
            u64::from(self.user),
            0,
        ]
    }

    pub(crate) fn decode([errno_tid, pid_child, cpu_ns, rounds, pages, accesses, user, _]: Message) -> Self {
        let high = |word: u64| ((word >> 32) as u32).cast_signed();
        let low = |word: u64| (word as u32).cast_signed();
        Self {
            errno: high(errno_tid),
            tid: low(errno_tid),
            pid: high(pid_child),
            child: low(pid_child),
            cpu_ns,
            rounds,
            pages,
            accesses,
            user: user as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_come_out_as_they_went_in() {
        let access = |how| Order::Access { offset: u64::MAX, how, times: u32::MAX };
        for order in [
            Order::Go { cpu: 1023 },
            Order::Run { cpu_ns: 10_000_000, pages: 5 },
            Order::Touch { pages: 20 },
            access(Touching::Read),
            access(Touching::Write),
            access(Touching::Execute),
            Order::Fork { stack: 3, child_kind: ChildKind::Process },
            Order::Fork { stack: 4, child_kind: ChildKind::Thread },
            Order::Exec,
            Order::Exit,
        ] {
            assert_eq!(Order::decode(order.encode()), Some(order));
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_order() {
        for message in
            [[0; 8], [8; 8], [4, 0, 3, 1, 0, 0, 0, 0], [5, 0, 2, 0, 0, 0, 0, 0], [1, u64::MAX, 0, 0, 0, 0, 0, 0]]
        {
            assert_eq!(Order::decode(message), None, "{message:?}");
        }
    }

    #[test]
    fn answers_come_out_as_they_went_in() {
        let answer = WorkerAnswer {
            errno: 22,
            tid: 4_194_303,
            pid: -1,
            child: 7,
            cpu_ns: u64::MAX,
            rounds: 1,
            pages: 2,
            accesses: 3,
            user: u32::MAX,
        };
        assert_eq!(WorkerAnswer::decode(answer.encode()), answer);
    }
}
