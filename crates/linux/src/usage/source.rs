//! A target whose usage is followed.
//!
//! **Invariant:** what it returns never runs backwards, whatever the kernel's files do; only a memory peak may, once,
//! when `wait4` has the last word on it.

use std::time::Instant;

use super::others;
use super::tally::Tally;
use super::tree::{Process, Tree, UsageReader};
use super::{UsageError, UsageKind};
use crate::cgroup::Cgroup;
use crate::procfs::{Proc, ProcError};
use crate::spawn::Usage;

/// Whose usage is wanted.
#[derive(Debug)]
pub enum UsageTarget {
    /// A child of ours, with everything that it starts.
    Command(i32),
    /// A process with all its threads, without its children: `/proc` cannot tell later children from earlier ones.
    Process(i32),
    /// A thread alone.
    Thread(i32),
    /// Everything.
    Machine,
    /// A CPU.
    Cpu(u32),
    /// A cgroup with all below it.
    Cgroup(Cgroup),
}

#[derive(Debug)]
enum Target {
    /// In a box, as [`Target::Process`]: they are far larger than the others.
    Command(Box<Tree>),
    Process(Option<i32>, Box<Process>),
    Thread(Option<i32>, (u64, Tally)),
    Machine,
    Cpu(u32),
    Cgroup(Cgroup),
}

/// Follows what a target uses, without any event.
///
/// Each [`UsageSource::refresh`] reads all quantities at once; [`UsageSource::value`] returns one of them.
///
/// What to expect of a [`UsageTarget::Command`]: while it runs, times and faults cover the command, its living
/// descendants and the ended ones that were waited for. Context switches of a descendant that began and ended between
/// two readings are missing until `wait4` has told them ([`UsageSource::retire`]). Two kinds of process never count in
/// full: children whose parent ignores `SIGCHLD` (no one is told what they used), and orphans that began and ended
/// unseen. Orphans that were seen go on counting after the command has ended.
#[derive(Debug)]
pub struct UsageSource {
    reader: UsageReader,
    target: Target,
    start: Tally,
    best: Tally,
    opened: Instant,
    /// Time that passed until the command ended.
    ended_after_ns: Option<u64>,
    /// Whether it is known what the held child has used before the command's `exec`.
    begun: bool,
}

impl UsageSource {
    /// Starts to follow a target from 0; a memory peak is that of the whole life in any case.
    ///
    /// To leave out what the opener's own copy uses before the command's `exec`, open it while the child is held before
    /// it, and say with [`UsageSource::begin`] what that was. Where `/proc` is not mounted, a command can still be
    /// followed: it has no value before [`UsageSource::retire`].
    ///
    /// # Errors
    /// [`UsageError::Proc`] ([`ProcError::Gone`] for a task that is not there, `Denied`), [`UsageError::Cgroup`].
    pub fn open(target: UsageTarget, proc: Proc) -> Result<Self, UsageError> {
        let mut source = Self::from_birth(target, proc)?;
        source.start = source.best;
        source.best = source.start.since(&source.start);
        Ok(source)
    }

    /// The same with what the target has used before.
    pub(super) fn from_birth(target: UsageTarget, proc: Proc) -> Result<Self, UsageError> {
        let reader = UsageReader::new(proc);
        let target = match target {
            // The tree itself takes a missing root for one that has ended.
            UsageTarget::Command(pid) => match reader.process(pid, None) {
                Ok(_) | Err(ProcError::NotMounted { .. }) => Target::Command(Box::new(Tree::new(pid))),
                Err(error) => return Err(error.into()),
            },
            UsageTarget::Process(pid) => Target::Process(Some(pid), Box::new(reader.process(pid, None)?)),
            UsageTarget::Thread(tid) => Target::Thread(Some(tid), reader.thread(tid)?),
            UsageTarget::Machine => Target::Machine,
            UsageTarget::Cpu(cpu) => Target::Cpu(cpu),
            UsageTarget::Cgroup(cgroup) => Target::Cgroup(cgroup),
        };
        let mut source = Self {
            reader,
            target,
            start: Tally::ZERO,
            best: Tally::default(),
            opened: Instant::now(),
            ended_after_ns: None,
            begun: false,
        };
        source.best = match (source.reading(), &source.target) {
            (Err(UsageError::Proc(ProcError::NotMounted { .. })), Target::Command(_)) => Usage::default().into(),
            (reading, _) => reading?,
        };
        Ok(source)
    }

    /// Whether the target tells this quantity at all.
    #[must_use]
    pub fn supports(&self, kind: UsageKind) -> bool {
        kind == UsageKind::DurationTime || self.best.value(kind).is_some()
    }

    /// Reads all quantities once.
    ///
    /// A target that has ended is no error: its last values stay.
    ///
    /// # Errors
    /// [`UsageError::Proc`] and [`UsageError::Cgroup`] where the kernel's files cannot be read; the values stay.
    pub fn refresh(&mut self) -> Result<(), UsageError> {
        let now = self.reading()?.since(&self.start);
        self.best = self.best.at_least(&now);
        Ok(())
    }

    /// Returns a quantity as of the last reading: ns, a count, or bytes. Time that passed is always that of now.
    ///
    /// # Errors
    /// [`UsageError::Unavailable`].
    pub fn value(&self, kind: UsageKind) -> Result<u64, UsageError> {
        if kind == UsageKind::DurationTime {
            return Ok(self.ended_after_ns.unwrap_or_else(|| self.passed_ns()));
        }
        self.best.value(kind).ok_or(UsageError::Unavailable(kind))
    }

    /// Reads the target and returns one quantity.
    ///
    /// # Errors
    /// [`UsageError::Unavailable`], then as [`UsageSource::refresh`].
    pub fn read(&mut self, kind: UsageKind) -> Result<u64, UsageError> {
        if !self.supports(kind) {
            return Err(UsageError::Unavailable(kind));
        }
        if kind != UsageKind::DurationTime {
            self.refresh()?;
        }
        self.value(kind)
    }

    /// Whether [`UsageSource::begin`] may still come.
    #[must_use]
    pub fn awaits_exec(&self) -> bool {
        matches!(self.target, Target::Command(_)) && !self.begun
    }

    /// Takes what the held child had used when it executed the command: values begin there. `/proc` can't be read at that moment.
    ///
    /// Only the first call counts, and only for a [`UsageTarget::Command`].
    pub fn begin(&mut self, used: Usage) {
        if self.awaits_exec() {
            self.begun = true;
            self.start = self.start.at_least(&used.into());
            self.best = Tally { max_rss_bytes: self.best.max_rss_bytes, ..self.start.since(&self.start) };
        }
    }

    /// Takes what `wait4` said when the command was reaped: exact from here on, and the time that passed stands still.
    ///
    /// Only the first call counts, and only for a [`UsageTarget::Command`].
    pub fn retire(&mut self, final_usage: Usage) {
        let Target::Command(tree) = &mut self.target else { return };
        if tree.is_retired() {
            return;
        }
        tree.retire(final_usage);
        self.ended_after_ns = Some(self.passed_ns());
        // Even if `/proc` cannot be read any more, the last word is known.
        let last = Tally::from(final_usage).since(&self.start);
        // `/proc` and `wait4` state memory peaks that differ by the kernel's batches for each CPU: the last word holds, so
        // that the number is the one that other programs show.
        self.best = Tally { max_rss_bytes: last.max_rss_bytes, ..self.best.at_least(&last) };
        // Orphans are added where they can be seen; a failure leaves the last word as it is.
        let _ = self.refresh();
    }

    fn passed_ns(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn reading(&mut self) -> Result<Tally, UsageError> {
        let reader = &self.reader;
        Ok(match &mut self.target {
            Target::Command(tree) => tree.read(reader)?,
            Target::Process(pid, last) => others::process(pid, last, reader)?,
            Target::Thread(tid, last) => others::thread(tid, last, reader)?,
            Target::Machine => others::machine(reader)?,
            Target::Cpu(cpu) => others::cpu(*cpu, reader)?,
            Target::Cgroup(group) => others::cgroup(group)?,
        })
    }
}
