//! Who may still take a debug register: the kernel's rule, by counting.
//!
//! What it is: the model of the breakpoint ledger. Every question walks over all CPUs, all tasks and all that is held.
//!
//! The rule: a request of weight w fits if on each CPU that it is for, the slots that the CPU's own breakpoints hold,
//! plus those that a task may need there, plus w, are at most as many as there are. For a request of a task that
//! is this task only: others are not on the CPU at the same moment. For a request of a CPU it is the task that may
//! need most. A task may need on a CPU what it holds for that CPU and what it holds for all CPUs.
//!
//! Read first: [`Ledger::in_use`], which is the rule.
//!
//! **Invariant:** nothing is kept but the list of what is held. A refusal changes nothing.

pub use pmux_engine::hw_breakpoint::Kind;
use pmux_engine::{CpuId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// The debug registers of each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registers {
    /// Each may serve both kinds.
    Shared(u32),
    /// Each kind has its own.
    Separate {
        /// Those for execution.
        execute: u32,
        /// Those for data.
        data: u32,
    },
}

impl Registers {
    /// How many may serve a kind.
    #[must_use]
    pub const fn for_kind(self, kind: Kind) -> u32 {
        match (self, kind) {
            (Self::Shared(count), _) => count,
            (Self::Separate { execute, .. }, Kind::Execute) => execute,
            (Self::Separate { data, .. }, Kind::Data) => data,
        }
    }

    /// Whether two kinds want the same registers.
    #[must_use]
    pub fn compete(self, one: Kind, other: Kind) -> bool {
        one == other || matches!(self, Self::Shared(_))
    }
}

/// On which CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Where {
    /// Wherever the task is.
    Everywhere,
    /// On these.
    Only(BTreeSet<CpuId>),
}

impl Where {
    /// On one CPU.
    #[must_use]
    pub fn on(cpu: CpuId) -> Self {
        Self::Only([cpu].into())
    }
}

/// A wish for debug registers: one set of them on each of its CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What it waits for.
    pub kind: Kind,
    /// The task that it is for; `None`: whatever runs on the CPUs.
    pub task: Option<TaskId>,
    /// The CPUs.
    pub cpus: Where,
    /// How many registers it takes on each of them.
    pub weight: u32,
}

/// The right to what was reserved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReservationId(u64);

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestError {
    /// Here it does not fit: the first such CPU.
    Full {
        /// The CPU.
        cpu: CpuId,
        /// Registers that count as taken for this request.
        in_use: u32,
        /// Registers that may serve its kind.
        total: u32,
    },
    /// The token stands for nothing (any more).
    Stale,
}

/// Everything that is held.
#[derive(Clone, Debug)]
pub struct Ledger {
    cpus: BTreeSet<CpuId>,
    registers: Registers,
    held: BTreeMap<ReservationId, Request>,
    next: u64,
}

impl Ledger {
    /// Nothing is held on `cpus`: all that the machine may ever have, those included that are offline.
    pub fn new(cpus: impl IntoIterator<Item = CpuId>, registers: Registers) -> Self {
        Self { cpus: cpus.into_iter().collect(), registers, held: BTreeMap::new(), next: 0 }
    }

    /// What is held.
    pub fn held(&self) -> impl Iterator<Item = (ReservationId, &Request)> {
        self.held.iter().map(|(reservation, request)| (*reservation, request))
    }

    fn cpus_of(&self, request: &Request) -> Vec<CpuId> {
        match &request.cpus {
            Where::Everywhere => self.cpus.iter().copied().collect(),
            Where::Only(cpus) => cpus.iter().copied().collect(),
        }
    }

    /// The weight of all that `task` (`None`: the CPU itself) holds on a CPU in registers of a kind.
    fn weight(&self, task: Option<TaskId>, cpu: CpuId, kind: Kind) -> u32 {
        let counts = |request: &&Request| {
            let same_registers = self.registers.compete(request.kind, kind);
            request.task == task && same_registers && self.cpus_of(request).contains(&cpu)
        };
        self.held.values().filter(counts).map(|request| request.weight).sum()
    }

    /// How many registers of a CPU count as taken for a request: what the CPU itself holds, and what its task may need
    /// there, or, where the request is for the CPU itself, the task that may need most.
    #[must_use]
    pub fn in_use(&self, request: &Request, cpu: CpuId) -> u32 {
        let of_tasks = match request.task {
            Some(task) => self.weight(Some(task), cpu, request.kind),
            None => {
                let tasks: BTreeSet<_> = self.held.values().filter_map(|request| request.task).collect();
                tasks.iter().map(|&task| self.weight(Some(task), cpu, request.kind)).max().unwrap_or(0)
            }
        };
        self.weight(None, cpu, request.kind) + of_tasks
    }

    /// Whether a request fits on all of its CPUs.
    ///
    /// # Errors
    /// [`RequestError::Full`] with the first CPU where it does not.
    pub fn fits(&self, request: &Request) -> Result<(), RequestError> {
        let total = self.registers.for_kind(request.kind);
        for cpu in self.cpus_of(request) {
            let in_use = self.in_use(request, cpu);
            if in_use + request.weight > total {
                return Err(RequestError::Full { cpu, in_use, total });
            }
        }
        Ok(())
    }

    /// Reserves on all CPUs of a request, or on none.
    ///
    /// # Errors
    /// [`RequestError::Full`].
    pub fn reserve(&mut self, request: Request) -> Result<ReservationId, RequestError> {
        self.fits(&request)?;
        let reservation = ReservationId(self.next);
        self.next += 1;
        self.held.insert(reservation, request);
        Ok(reservation)
    }

    /// Gives back what a token stands for. Its task or CPU may be gone since: what was held is held until now.
    ///
    /// # Errors
    /// [`RequestError::Stale`].
    pub fn release(&mut self, reservation: ReservationId) -> Result<Request, RequestError> {
        self.held.remove(&reservation).ok_or(RequestError::Stale)
    }

    /// Reserve, then swap: the token stands for `request` from now on, or, where that does not fit, for what it stood
    /// for before. What it holds already serves the new request where both want the same registers; no other
    /// request can take it in between.
    ///
    /// # Errors
    /// [`RequestError::Stale`], [`RequestError::Full`].
    pub fn modify(&mut self, reservation: ReservationId, request: Request) -> Result<(), RequestError> {
        let mut without = self.clone();
        without.release(reservation)?;
        without.fits(&request)?;
        self.held.insert(reservation, request);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
