//! Opening: events times targets, through the engine.
//!
//! What it is: each event becomes a PMU and an attribute (see `column`), each target a row or a set. What the machine refuses
//! becomes a [`Refusal`] of its event, and the rest is opened.
//!
//! **Invariant:** an event is counted on all rows or refused on all, and in the same way; nothing is half open when this
//! returns.

use super::column::Column;
use super::together::Together;
use super::{Counters, CpuRows, TaskGroup, TaskRow, Who};
use crate::error::Error;
use crate::event::EventList;
use crate::mux::turns::Turning;
use crate::mux::{Multiplexing, Slice, clock};
use crate::owned_group::{Owned, OwnedGroup};
use crate::refusal::Refusal;
use crate::session::{Backend, Session};
use crate::target::{Attribution, CpuChoice, Inherit, Options, Start, Target, no_such_cpu};
use crate::tree::TreeFollower;
use pmux_engine::cpu_mask::CpuMask;
use pmux_engine::engine::SetRequest;
use pmux_engine::system_wide::{Absent, SetScope};
use pmux_engine::{CgroupId, CpuId, GroupSpec, LockCell as _, OpenError, SetId};
use pmux_linux::cgroup::Mounts;
use pmux_linux::diagnose::{ReasonKind, TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost, SleepLock, USAGE};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

type Groups = Vec<Vec<usize>>;
/// A set, and the column of each of its events.
type OpenSet = (Owned<SetId>, Vec<usize>);

impl Session {
    /// Opens events on a target.
    ///
    /// Events that this machine can't count are refused one by one ([`Counters::refusal`]); the others are counted.
    /// Events of a group that lost a member stay together.
    ///
    /// # Errors
    /// [`Error::Options`] where the options don't go with the target; [`Error::Process`], [`Error::Cgroup`],
    /// [`Error::NoSuchCpu`] for a target that is not there; [`Error::Refused`] where every event is refused for want of
    /// rights, or one for want of fds or memory; [`Error::Ring`] where the process tree can't be followed.
    pub fn open(&self, events: &EventList, target: &Target<'_>, mut options: Options) -> Result<Counters, Error> {
        check(target, options)?;
        if options.start == Start::OnExec && self.counts_through_service_only() {
            // The task is held: nothing but the way to its exec is counted more.
            options.start = Start::AtOnce;
        }
        let mut opening = Opening::new(self, events, target, options)?;
        let counters = opening.open(target, options).and_then(|mut counters| {
            counters.columns = std::mem::take(&mut opening.columns);
            let asked = counters.clock.unwrap_or(counters.columns.len());
            let asked = &counters.columns[..asked];
            counters.events = asked.iter().map(|column| column.event.clone()).collect::<Vec<_>>().into();
            let refusals: Vec<_> = asked.iter().filter_map(|column| column.refusal.clone()).collect();
            let is_about_rights = |refusal: &Refusal| refusal.kind == ReasonKind::NotPermitted;
            if refusals.len() == asked.len() && refusals.iter().any(is_about_rights) {
                return Err(Error::Refused(without_repetition(refusals)));
            }
            match (options.start, target) {
                (Start::AtOnce, _) => counters.enable()?,
                (Start::OnExec, Target::Command(command)) => counters.await_exec(LinuxHost::task(command.pid())),
                _ => {}
            }
            Refusal::files_for_later().map(|()| counters)
        });
        counters.map_err(|error| {
            opening.cgroups.clear();
            self.with_file_numbers(error, opening.files)
        })
    }
}

fn check(target: &Target<'_>, options: Options) -> Result<(), Error> {
    let command = matches!(target, Target::Command(_));
    let nothing = match target {
        Target::Threads(ids) | Target::Processes(ids) => ids.is_empty(),
        Target::Cpus(CpuChoice::Only(cpus)) => cpus.is_empty(),
        Target::Cgroups { names, cpus } => names.is_empty() || matches!(cpus, CpuChoice::Only(cpus) if cpus.is_empty()),
        _ => false,
    };
    if nothing {
        return Err(Error::Options("there is nothing to count: the list of tasks, CPUs or cgroups is empty"));
    }
    if options.start == Start::OnExec && !command {
        return Err(Error::Options("only a command can start its counters by an exec"));
    }
    if options.attribution == Attribution::EachProcess {
        if options.multiplexing == Multiplexing::Engine {
            return Err(Error::Options("a process tree is counted with the kernel's own turns only"));
        }
        if !command {
            return Err(Error::Options("a process tree needs a command to be its root"));
        }
        if options.inherit == Inherit::None {
            return Err(Error::Options("a process tree needs children to be counted"));
        }
    }
    Ok(())
}

fn without_repetition(refusals: Vec<Refusal>) -> Vec<Refusal> {
    let mut kept: Vec<Refusal> = Vec::new();
    for refusal in refusals {
        if !kept.iter().any(|other| other.summary == refusal.summary) {
            kept.push(refusal);
        }
    }
    kept
}

pub(super) struct Opening<'s> {
    pub(super) session: &'s Session,
    /// Whether the target is a child of ours.
    command: bool,
    columns: Vec<Column>,
    groups: Together,
    /// How often a column was changed or refused: what was opened before has to be opened again.
    pub(super) changes: u64,
    cgroups: Vec<Owned<CgroupId>>,
    /// How many files it takes, as far as that is known.
    files: u64,
    /// The last column, where that only keeps the time: see [`clock`].
    clock: Option<usize>,
    slice: Slice,
    turning: Option<Arc<Turning>>,
}

impl<'s> Opening<'s> {
    fn new(session: &'s Session, events: &EventList, target: &Target<'_>, options: Options) -> Result<Self, Error> {
        let knows_tasks = !matches!(target, Target::Cpus(_));
        let mut columns = Vec::new();
        let mut groups = Together::default();
        for group in &events.groups {
            let first = columns.len();
            columns.extend(group.events.iter().map(|event| Column::new(session, event, options, knows_tasks)));
            if let Target::Cpus(CpuChoice::All) = target {
                columns[first..].iter_mut().for_each(Column::count_machine);
            }
            // A group is inherited as a whole.
            if let Some(why) = columns[first..].iter().find_map(Column::cannot_follow) {
                columns[first..].iter_mut().for_each(|column| column.count_alone(&why, options.attribution));
            }
            groups.add(group, first..columns.len());
        }
        let command = matches!(target, Target::Command(_));
        let (changes, files, cgroups, slice) = (0, 1, Vec::new(), options.slice);
        let opening =
            Self { session, command, columns, groups, changes, cgroups, files, clock: None, slice, turning: None };
        match options.multiplexing {
            Multiplexing::Kernel => Ok(opening),
            Multiplexing::Engine => opening.with_turns(knows_tasks, options),
        }
    }

    /// Prepares everything for events that take turns, if there are any.
    fn with_turns(mut self, knows_tasks: bool, options: Options) -> Result<Self, Error> {
        self.session.assign_counters(&mut self.columns);
        let Some(pmu) = self.columns.iter().find(|column| column.is_scarce()).map(|column| column.pmu) else {
            return Ok(self);
        };
        if !self.session.all_fit(&self.columns) {
            self.turning = Some(self.session.turning(self.slice)?);
        }
        if knows_tasks {
            self.clock = Some(self.columns.len());
            // The first one that is switched on.
            self.groups.lead(self.columns.len());
            self.columns.push(Column::new(self.session, &clock::event(pmu), options, knows_tasks));
        }
        Ok(self)
    }

    fn open(&mut self, target: &Target<'_>, options: Options) -> Result<Counters, Error> {
        match target {
            Target::CurrentThread => self.tasks(&[pmux_linux::current_tid()]),
            Target::Threads(tids) => self.tasks(tids),
            Target::Processes(pids) => self.processes(pids, options),
            Target::Command(command) => {
                self.session.engine().host().add_command(LinuxHost::task(command.pid()));
                match options.attribution {
                    Attribution::Totals => self.tasks(&[command.pid()]),
                    Attribution::EachProcess => self.tree(command.pid()),
                }
            }
            Target::Cpus(cpus) => {
                let sets = self.sets(cpus, SetScope::Everything, None)?;
                Ok(self.counters(Vec::new(), sets))
            }
            Target::Cgroups { names, cpus } => self.cgroups(names, cpus),
        }
    }

    pub(super) fn counters(&mut self, tasks: Vec<TaskRow>, sets: Vec<CpuRows>) -> Counters {
        Counters {
            session: self.session.clone(),
            columns: Vec::new(),
            events: Arc::new([]),
            tasks,
            sets,
            _cgroups: std::mem::take(&mut self.cgroups),
            last: SleepLock::new(None),
            tree: None,
            clock: self.clock,
            slice: self.slice,
            turning: SleepLock::new(self.turning.clone()),
            settled: true,
            counts_already: AtomicBool::new(false),
            held: SleepLock::new(None),
        }
    }

    /// The groups of the columns that are still wanted. What was asked for as one group but has to be counted by
    /// two sources is two groups.
    fn wanted(&self, of: impl Fn(&Column) -> bool) -> (Vec<GroupSpec>, Groups) {
        let mut specs = Vec::new();
        let mut columns = Vec::new();
        for group in self.groups.iter() {
            for by_usage in [false, true] {
                let members: Vec<_> = group
                    .iter()
                    .copied()
                    .filter(|&index| {
                        let column = &self.columns[index];
                        column.refusal.is_none() && (column.pmu == USAGE) == by_usage && of(column)
                    })
                    .collect();
                if !members.is_empty() {
                    let spec = |&index: &usize| (self.columns[index].pmu, self.columns[index].attr);
                    let events = members.iter().map(spec).collect();
                    specs.push(GroupSpec { events });
                    columns.push(members);
                }
            }
        }
        (specs, columns)
    }

    fn needs_files(&mut self, times: usize) {
        let events = self.columns.iter().filter(|column| column.pmu != USAGE && column.refusal.is_none()).count();
        self.files = (events * times).max(1) as u64;
    }

    /// Judges a refusal: the event is tried again in another way, given up, or everything is. A weak group is broken up
    /// before any of its events is given up.
    fn refuse(&mut self, column: usize, error: OpenError, target: TargetKind) -> Result<(), Error> {
        if !self.groups.break_up(column, error, &mut self.columns) {
            self.columns[column].refuse(self.session, error, target)?;
        }
        self.changes += 1;
        Ok(())
    }

    /// A row for each thread. A thread that exits meanwhile is left out, as long as one remains.
    pub(super) fn tasks(&mut self, tids: &[i32]) -> Result<Counters, Error> {
        self.needs_files(tids.len());
        loop {
            let (rows, changes) = self.rows(tids)?;
            // Rows that were opened before a column changed have it as it was.
            if self.changes == changes {
                return Ok(self.counters(rows, Vec::new()));
            }
        }
    }

    /// The rows, and the number of changes after the first of them.
    fn rows(&mut self, tids: &[i32]) -> Result<(Vec<TaskRow>, u64), Error> {
        let mut rows: Vec<TaskRow> = Vec::new();
        let mut gone = None;
        let mut changes = self.changes;
        for &tid in tids {
            let first = rows.is_empty();
            match self.row_of(tid, first) {
                Ok(row) => {
                    if first {
                        changes = self.changes;
                    }
                    rows.push(row);
                }
                Err(Error::Refused(refusals)) if refusals.iter().all(Refusal::is_gone) && tids.len() > 1 => {
                    gone = Some(refusals);
                }
                Err(error) => return Err(error),
            }
        }
        match gone {
            Some(refusals) if rows.is_empty() => Err(Error::Refused(refusals)),
            _ => Ok((rows, changes)),
        }
    }

    fn row_of(&mut self, tid: i32, first: bool) -> Result<TaskRow, Error> {
        let own = self.command || tid == pmux_linux::current_tid();
        let kind = TargetKind::Task(if own { Whose::Own } else { Whose::Other });
        let groups = self.row(tid, kind, |column| first || !column.counts_once())?;
        Ok(TaskRow { who: Who { thread: Some(tid), ..Who::default() }, groups })
    }

    /// The row of a thread; `None` where it has ended.
    pub(super) fn task_row(&mut self, tid: i32, first: bool) -> Result<Option<TaskRow>, Error> {
        match self.row_of(tid, first) {
            Err(Error::Refused(refusals)) if refusals.iter().all(Refusal::is_gone) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Opens what is wanted of `of` on one task. What is open stays open where another event is refused.
    fn row(&mut self, tid: i32, kind: TargetKind, of: impl Fn(&Column) -> bool) -> Result<Vec<TaskGroup>, Error> {
        let mut groups: Vec<TaskGroup> = Vec::new();
        'again: loop {
            let (specs, columns) = self.wanted(&of);
            for (spec, columns) in specs.iter().zip(columns) {
                // A refusal changes only its own group, and those before it are in front of it still.
                if groups.iter().any(|open| open.columns == columns) {
                    continue;
                }
                let target = pmux_engine::Target::task(LinuxHost::task(tid));
                match self.session.engine().open(spec, target) {
                    Ok(opened) => groups.push(TaskGroup { own: OwnedGroup::new(self.session, opened), columns }),
                    Err(error) => {
                        // What is open may be what stands in the way, and is named then.
                        self.refuse(at_fault(error, &columns), error, kind)?;
                        continue 'again;
                    }
                }
            }
            return Ok(groups);
        }
    }

    fn cgroups(&mut self, names: &[String], choice: &CpuChoice) -> Result<Counters, Error> {
        let mounts = Mounts::system().map_err(Error::Cgroup)?;
        for name in names {
            let cgroup = mounts.open(name).map_err(Error::Cgroup)?;
            self.cgroups.push(self.session.hold_cgroup(cgroup));
        }
        let ids: Vec<CgroupId> = self.cgroups.iter().map(|cgroup| **cgroup).collect();
        'again: loop {
            let mut sets = Vec::new();
            for (index, &id) in ids.iter().enumerate() {
                let before = self.changes;
                sets.extend(self.sets(choice, SetScope::Cgroup(id), Some(index))?);
                if self.changes != before && index > 0 {
                    // The cgroups before this one have a column as it was.
                    continue 'again;
                }
            }
            return Ok(self.counters(Vec::new(), sets));
        }
    }

    /// A set for each list of CPUs that a PMU has, with a row for each CPU.
    fn sets(&mut self, choice: &CpuChoice, scope: SetScope, cgroup: Option<usize>) -> Result<Vec<CpuRows>, Error> {
        self.session.watch_hotplug();
        let mut sets = Vec::new();
        for cpus in self.distinct_cpus() {
            let (mask, absent) = self.mask(choice, cpus.as_deref())?;
            self.needs_files(mask.len().min(self.session.online().len()) * self.cgroups.len().max(1));
            let of = |column: &Column| {
                column.event.cpus.list().map(<[u32]>::to_vec) == cpus && !is_one_for_all(column, scope)
            };
            let set = self.set(&mask, absent, scope, of)?;
            sets.extend(set.map(|(set, columns)| CpuRows { cgroup, per_cpu: true, set, columns }));
        }
        // One number, not one for each CPU: it is taken on one CPU only.
        let (mask, _) = self.mask(choice, None)?;
        let online = self.session.online();
        let first: CpuMask = mask.iter().filter(|cpu| online.contains(cpu.0)).take(1).collect();
        for of_machine in [false, true] {
            let of = |column: &Column| is_one_for_all(column, scope) && column.is_of_machine() == of_machine;
            // It is no number of the CPU that it is taken on.
            let per_cpu = cgroup.is_none() && !of_machine;
            let set = self.set(&first, Absent::Refuse, scope, of)?;
            sets.extend(set.map(|(set, columns)| CpuRows { cgroup, per_cpu, set, columns }));
        }
        Ok(sets)
    }

    /// The CPU lists of the PMUs that are asked, each once.
    fn distinct_cpus(&self) -> Vec<Option<Vec<u32>>> {
        let mut lists: Vec<Option<Vec<u32>>> = Vec::new();
        // What keeps the time is switched on first.
        let clock = self.clock.map(|index| &self.columns[index]);
        for column in clock.into_iter().chain(&self.columns) {
            let list = column.event.cpus.list().map(<[u32]>::to_vec);
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
        lists
    }

    fn mask(&self, choice: &CpuChoice, of_pmu: Option<&[u32]>) -> Result<(CpuMask, Absent), Error> {
        let (mask, absent) = choice.mask(self.session)?;
        let in_pmu = |cpu: &CpuId| of_pmu.is_none_or(|cpus| cpus.contains(&cpu.0));
        Ok((mask.iter().filter(in_pmu).collect(), absent))
    }

    /// One set, or none where no column is left; events that are refused on one CPU are refused on all.
    fn set(
        &mut self,
        mask: &CpuMask,
        absent: Absent,
        scope: SetScope,
        of: impl Fn(&Column) -> bool,
    ) -> Result<Option<OpenSet>, Error> {
        loop {
            let (groups, columns) = self.wanted(&of);
            if groups.is_empty() {
                return Ok(None);
            }
            let request = SetRequest { groups, scope, mask: mask.clone(), absent };
            let error = match self.session.hold_set(request) {
                Ok(set) => return Ok(Some((set, columns.concat()))),
                Err(error) => error,
            };
            if self.has_gone(error.cpu, error.error) {
                if absent == Absent::Refuse {
                    return Err(no_such_cpu(error.cpu.0, &self.session.online()));
                }
                continue;
            }
            let at = at_fault(error.error, &columns[error.group]);
            let kind = match scope {
                SetScope::Everything => TargetKind::Cpu(error.cpu.0),
                SetScope::Cgroup(_) => TargetKind::Cgroup,
                SetScope::Task(_) => TargetKind::Task(Whose::Own),
            };
            self.refuse(at, error.error, kind)?;
        }
    }

    /// Whether a CPU refused because it has just gone offline.
    fn has_gone(&self, cpu: CpuId, error: OpenError) -> bool {
        if error.errno() != pmux_linux::Errno::ENODEV.raw() {
            return false;
        }
        self.session.look_at_cpus();
        !self.session.online().contains(cpu.0)
    }

    /// One row for the command, whose children report into rings.
    fn tree(&mut self, pid: i32) -> Result<Counters, Error> {
        if let Backend::Usage { .. } = self.session.backend() {
            return Err(Error::Options(
                "a process tree needs the kernel's performance events, which can't be opened here",
            ));
        }
        self.session.watch_hotplug();
        let mut counters = self.tasks(&[pid])?;
        let events = counters.tasks.iter().flat_map(TaskRow::events);
        let counted: Vec<_> = events.filter(|&(column, _)| self.columns[column].pmu == KERNEL).collect();
        // An event on each CPU to follow the tasks, and one beside each event to hold its ring.
        self.files = (2 * counted.len() + self.session.online().len()) as u64;
        counters.tree = Some(TreeFollower::open(self.session, pid, &counted)?);
        Ok(counters)
    }
}

/// Which column of a group an error is about. Of a group that needs too many counters the last one has to go.
fn at_fault(error: OpenError, columns: &[usize]) -> usize {
    let last = columns.len() - 1;
    let index = if let OpenError::NeverFits { .. } = error { last } else { error.index().unwrap_or_default() };
    columns[index.min(last)]
}

/// Whether a column is one number for all CPUs of a set.
fn is_one_for_all(column: &Column, scope: SetScope) -> bool {
    // The files of a cgroup tell of all CPUs together.
    column.counts_once() || column.is_of_machine() || (column.pmu == USAGE && matches!(scope, SetScope::Cgroup(_)))
}
