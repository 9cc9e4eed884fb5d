//! Which programs were executed and not looked into, and which ran without the rights of their files.
//!
//! **Invariant:** an exec counts as looked into once for each stop that was taken at one.

use pmux::watch::AcrossExec;
use pmux::{Exec, Execs, Inherit, Session, Stop};
use pmux_daemon::flight::ran_without_its_rights;
use std::collections::{BTreeMap, HashMap};

/// Execs of what is watched.
#[derive(Default)]
pub(super) struct Programs {
    /// What tells of those of a command or a process, and of what it starts.
    execs: Vec<Execs>,
    /// By process: how many there were, and the name of the last program.
    executed: BTreeMap<i32, (u64, String)>,
    /// By process: how many of them were looked into.
    looked_into: HashMap<i32, u64>,
    notes: Vec<String>,
}

impl Programs {
    /// A command that is held, or the first thread of a process that runs.
    pub(super) fn follow(&mut self, session: &Session, tid: i32, inherit: Inherit) {
        match Execs::open(tid, inherit == Inherit::Children, session.online().iter()) {
            Ok(execs) => self.execs.push(execs),
            Err(errno) => self.notes.push(format!(
                "whether process {tid}, or what it started, executed programs that were not watched is not known: {errno}"
            )),
        }
    }

    /// A stop at which the targets are looked for.
    pub(super) fn stopped(&mut self, stop: &Stop) {
        if stop.cause() == pmux::Cause::Exec {
            self.looked_into(stop.pid());
        }
        self.notes.extend(ran_without_its_rights(stop));
    }

    /// A program that is watched from its first instruction on.
    pub(super) fn looked_into(&mut self, pid: i32) {
        *self.looked_into.entry(pid).or_default() += 1;
    }

    /// A process that is watched has executed a program.
    pub(super) fn executed(&mut self, pid: i32, name: String) {
        let (times, last) = self.executed.entry(pid).or_default();
        *times += 1;
        *last = name;
    }

    pub(super) fn take(&mut self) {
        for Exec { pid, name } in self.execs.iter_mut().flat_map(Execs::take).collect::<Vec<_>>() {
            self.executed(pid, name);
        }
    }

    /// What has to be said; `later` is what helps.
    pub(super) fn into_notes(mut self, across_exec: AcrossExec, later: Option<&str>) -> Vec<String> {
        self.take();
        let left = |(pid, (times, _)): &(&i32, &(u64, String))| {
            times.saturating_sub(self.looked_into.get(pid).copied().unwrap_or_default())
        };
        let mut others = self.executed.iter().map(|one| (left(&one), one)).filter(|(left, _)| *left > 0);
        if let Some((times, (pid, (_, name)))) = others.next() {
            let more = times - 1 + others.map(|(left, _)| left).sum::<u64>();
            let lost = self.execs.iter().any(|execs| execs.lost() > 0);
            let at_least = if lost { "at least " } else { "" };
            let more = match more {
                0 if !lost => String::new(),
                1 => format!(", and {at_least}one more was executed"),
                more => format!(", and {at_least}{more} more were executed"),
            };
            let what = match across_exec {
                AcrossExec::Drop => "from then on such a process is not watched",
                AcrossExec::Keep => {
                    "such a process is watched on at the same addresses, and a position-independent program has its variables and \
                     functions elsewhere"
                }
            };
            let helps = later.map(|later| format!("; {later}")).unwrap_or_default();
            self.notes.push(format!("process {pid} executed another program, {name}{more}: {what}{helps}"));
        }
        self.notes
    }
}
