//! Why registers are not enough, and who holds them.
//!
//! What it is: what can be seen from here: other processes with events, and debuggers with the processes that they trace.
//! Breakpoints that the kernel sets for itself, or that a program in it holds, are not there to be seen.
//!
//! **Invariant:** it only looks; a process that it names may hold registers, and it says so.

use pmux_engine::hw_breakpoint::Taken;
use pmux_engine::{CpuId, OpenError};
use pmux_linux::capacity::holders::{self, Holder};
use pmux_linux::diagnose::Whose;
use std::fmt;

pub use pmux_linux::capacity::holders::Tracer;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegisterTarget {
    Thread(i32, Whose),
    Cpu(CpuId),
}

/// What another process may hold registers with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holding {
    /// A process that has performance events open.
    Events(Holder),
    /// A debugger.
    Traces(Tracer),
}

/// Registers are not enough.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// What could not be watched any more.
    pub watch_target: String,
    /// How many registers it takes to watch everything.
    pub wanted: usize,
    /// How many of them were granted.
    pub granted: usize,
    /// How many registers of the kind each CPU has, where that is known.
    pub total: Option<u8>,
    /// How many of them this program itself holds there, what was just granted included.
    pub own: u32,
    /// How many are held, but not by this program, where that is certain.
    pub others: u32,
    /// The thread, where it was refused on one.
    pub tid: Option<i32>,
    /// The CPU, where it was refused on one.
    pub cpu: Option<CpuId>,
    /// Who may hold others.
    pub holdings: Vec<Holding>,
}

impl Shortage {
    pub(super) fn of(
        place: RegisterTarget,
        watch_target: String,
        granted: usize,
        wanted: usize,
        error: Option<OpenError>,
    ) -> Self {
        let (total, own, others) = match error {
            Some(OpenError::DebugRegisters { full, taken, .. }) => {
                let others =
                    if taken == Taken::Outside { u32::from(full.total).saturating_sub(full.in_use) } else { 0 };
                (Some(full.total), full.in_use, others)
            }
            _ => (None, 0, 0),
        };
        let (tid, cpu) = match place {
            RegisterTarget::Thread(tid, _) => (Some(tid), None),
            RegisterTarget::Cpu(cpu) => (None, Some(cpu)),
        };
        let tracers = holders::tracers();
        // Of a thread's own registers, only its own debugger can hold some; CPUs are short by those of all debuggers.
        let traces = tracers.into_iter().filter(|tracer| tid.is_none_or(|tid| tracer.traces.contains(&tid)));
        let events = holders::holders().into_iter().map(Holding::Events);
        let holdings = traces.map(Holding::Traces).chain(events).collect();
        Self { watch_target, wanted, granted, total, own, others, tid, cpu, holdings }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watch_target, wanted, granted, total, own, others, tid, cpu, holdings } = self;
        write!(f, "no debug register is left for {watch_target}")?;
        match (tid, cpu) {
            (Some(tid), _) => write!(f, " in thread {tid}")?,
            (_, Some(cpu)) => write!(f, " on CPU {cpu}")?,
            _ => {}
        }
        write!(f, ": {wanted} {} wanted, {granted} could be had", if *wanted == 1 { "is" } else { "are" })?;
        if let Some(total) = total {
            write!(f, "\n  each CPU has {total}")?;
            let else_held = (*own as usize).saturating_sub(*granted);
            if else_held > 0 {
                write!(f, ", and this program holds {else_held} of them for something else")?;
            }
            if *others > 0 {
                write!(f, ", and others hold {others} of them")?;
            }
        }
        if !holdings.is_empty() {
            write!(f, "\n  these may hold some:")?;
        }
        for holding in holdings {
            match holding {
                Holding::Events(Holder { pid, command, .. }) => {
                    write!(f, "\n    {command} (process {pid}) has performance events open")?;
                }
                Holding::Traces(Tracer { pid, command, traces }) => match traces.as_slice() {
                    [one] => write!(f, "\n    {command} (process {pid}) traces {one}")?,
                    many => write!(f, "\n    {command} (process {pid}) traces {} tasks", many.len())?,
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_processes_that_may_hold_registers() {
        let mut shortage = Shortage {
            watch_target: "counter".to_owned(),
            wanted: 5,
            granted: 4,
            total: Some(4),
            own: 4,
            others: 0,
            tid: Some(77),
            cpu: None,
            holdings: Vec::new(),
        };
        let text = shortage.to_string();
        assert!(
            text.starts_with("no debug register is left for counter in thread 77: 5 are wanted, 4 could be had\n"),
            "{text}"
        );
        assert!(text.ends_with("\n  each CPU has 4"), "{text}");
        shortage.holdings = vec![
            Holding::Traces(Tracer { pid: 5, command: "gdb".to_owned(), traces: vec![77] }),
            Holding::Events(Holder { pid: 6, command: "perf".to_owned(), events: vec![3] }),
        ];
        let text = shortage.to_string();
        assert!(
            text.ends_with("\n    gdb (process 5) traces 77\n    perf (process 6) has performance events open"),
            "{text}"
        );
        shortage = Shortage { granted: 1, own: 1, others: 3, ..shortage };
        let text = shortage.to_string();
        assert!(text.contains("\n  each CPU has 4, and others hold 3 of them\n  these may hold some:\n"), "{text}");
    }
}
