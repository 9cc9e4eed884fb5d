//! The counters of this machine, as the service uses them.
//!
//! What it is: [`Counters`], the engine of one session behind the trait of [`crate::service`].
//! Read first: [`Counters`].
//!
//! **Invariant:** what concerns rights is decided in [`crate::rights`]; here are the facts only.

use crate::rights::{self, Denied, Grant, Machine, Membership, PmuKind, Wanted};
use crate::service::{Action, Counting, Failed, PassedCopy, Published, Target};
use pmux::serving::abi::{Attr, EventType};
use pmux::serving::shared::page::{Base, Entry, PageWriter};
use pmux::serving::shared::wire::{Handle, Moment, Totals};
use pmux::serving::{Asker, Cgroups, Place, Proc, Question, ReadError, ServeError, ServedGroup, Subject, TaskIdentity};
use pmux::{Count, Session};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Addresses from here up are the kernel's, on every machine with 64 bits.
const KERNEL_FROM: u64 = 1 << 63;
/// For so long a setting that was read is taken to hold.
const SETTING_AGE: Duration = Duration::from_millis(100);
/// The number of an error for a task that has gone (`ESRCH`), and for a file that is no cgroup (`EBADF`).
const NO_TASK: i32 = 3;
const NO_CGROUP: i32 = 9;

type Reading = Result<Count, ReadError>;

/// The counters of this machine.
pub struct Counters {
    session: Session,
    proc: Proc,
    cgroups: Cgroups,
    paranoid: Option<(i32, Instant)>,
    pmus: HashMap<EventType, PmuKind>,
    /// Tasks of which something is open: how often, and which task it was.
    tasks: HashMap<u32, (usize, Option<TaskIdentity>)>,
    readings: Vec<Reading>,
}

/// A group that is open for a client.
pub struct OpenGroup {
    served: ServedGroup,
    target: Target,
}

impl OpenGroup {
    /// What it counts, for people.
    #[must_use]
    pub fn place(&self) -> String {
        self.served.question().place.to_string()
    }

    /// The group itself.
    #[must_use]
    pub const fn served(&self) -> &ServedGroup {
        &self.served
    }
}

impl Counters {
    /// The counters of a session.
    ///
    /// # Errors
    /// A sentence, where `/proc` is not mounted.
    pub fn new(session: &Session) -> Result<Self, String> {
        let cgroups = Cgroups::new(session).map_err(|error| error.to_string())?;
        Ok(Self {
            session: session.clone(),
            proc: Proc::system(),
            cgroups,
            paranoid: None,
            pmus: HashMap::new(),
            tasks: HashMap::new(),
            readings: Vec::new(),
        })
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// How many cgroups are counted.
    #[must_use]
    pub fn cgroups(&self) -> usize {
        self.cgroups.len()
    }

    fn machine(&mut self) -> Machine {
        let paranoid = match self.paranoid {
            Some((level, read)) if read.elapsed() < SETTING_AGE => level,
            _ => {
                let level = self.session.paranoid();
                self.paranoid = Some((level, Instant::now()));
                level
            }
        };
        Machine { paranoid, kernel_from: KERNEL_FROM }
    }

    fn pmu(&mut self, kind: EventType) -> PmuKind {
        if kind < EventType::FIRST_DYNAMIC {
            return PmuKind::Other;
        }
        // Modules bring PMUs, and only ever new numbers.
        *self.pmus.entry(kind).or_insert_with(|| match self.session.pmu_named_by(kind) {
            Some((name, _)) if matches!(&name[..], "kprobe" | "uprobe") => PmuKind::Probe,
            Some((_, true)) => PmuKind::Core,
            _ => PmuKind::Other,
        })
    }

    /// A number may be another task's now: then what is open on it is told that its task has gone, so that nobody new joins it.
    fn meet_task(&mut self, tid: u32) -> Result<(), Failed> {
        let gone = || Failed { index: 0, errno: NO_TASK, text: format!("there is no task {tid} (any more)") };
        let id = i32::try_from(tid).map_err(|_| gone())?;
        let now = self.proc.task_identity(id).ok();
        if let Some((_, known)) = self.tasks.get_mut(&tid)
            && *known != now
        {
            self.session.served_task_exited(id);
            *known = now;
        }
        now.map(drop).ok_or_else(gone)
    }

    fn failed(error: ServeError) -> Failed {
        Failed { index: error.index, errno: error.errno, text: error.text }
    }
}

fn moment(count: &Count, time_ns: u64) -> Moment {
    let totals = Totals { value: count.value, enabled_ns: count.enabled.0, running_ns: count.running.0 };
    Moment { totals, time_ns }
}

impl Counting for Counters {
    type Group = OpenGroup;
    type File = OwnedFd;
    type Page = PageWriter;

    fn decide(
        &mut self,
        asker: &Asker,
        membership: Membership,
        attr: &Attr,
        target: Target,
    ) -> Result<Result<Grant, Denied>, Failed> {
        let (machine, pmu) = (self.machine(), self.pmu(attr.kind));
        let decide = |wanted| Ok(rights::decide(asker, attr, pmu, wanted, machine, membership));
        match target {
            Target::Cpu(_) => decide(Wanted::Cpu),
            Target::Cgroup(_) => decide(Wanted::Cgroup),
            Target::Task(_) | Target::TaskOnCpu(..) if rights::is_privileged(asker) => decide(Wanted::AnyTask),
            Target::Task(tid) | Target::TaskOnCpu(tid, _) => {
                let id = i32::try_from(tid).unwrap_or(-1);
                match Subject::gather(&self.proc, id) {
                    Ok(subject) => decide(Wanted::Task(&subject)),
                    Err(error) => Err(Failed { index: 0, errno: NO_TASK, text: error.to_string() }),
                }
            }
        }
    }

    fn decide_system_wide(&mut self, asker: &Asker, membership: Membership) -> bool {
        rights::system_wide(asker, self.machine(), membership).is_ok()
    }

    fn open(
        &mut self,
        target: Target,
        folder: Option<OwnedFd>,
        attrs: &[Attr],
        _holder: u32,
    ) -> Result<OpenGroup, Failed> {
        if let Some(tid) = target.task() {
            self.meet_task(tid)?;
        }
        let id = |tid: u32| i32::try_from(tid).unwrap_or(-1);
        let place = match (target, folder) {
            (Target::Task(tid), _) => Place::Task(id(tid)),
            (Target::TaskOnCpu(tid, cpu), _) => Place::TaskOnCpu(id(tid), cpu),
            (Target::Cpu(cpu), _) => Place::Cpu(cpu),
            (Target::Cgroup(cpu), Some(folder)) => {
                let failed = |error| Failed { index: 0, errno: NO_CGROUP, text: format!("{error}") };
                Place::Cgroup(self.cgroups.passed(folder).map_err(failed)?, cpu)
            }
            (Target::Cgroup(_), None) => {
                return Err(Failed { index: 0, errno: NO_CGROUP, text: "the cgroup's folder is missing".to_owned() });
            }
        };
        let served = self.session.serve(Question { place, attrs: attrs.to_vec() }).map_err(Self::failed)?;
        if let Some(tid) = target.task() {
            let known = self.tasks.entry(tid).or_insert_with(|| (0, self.proc.task_identity(id(tid)).ok()));
            known.0 += 1;
        }
        Ok(OpenGroup { served, target })
    }

    fn control(&mut self, group: &mut OpenGroup, index: usize, action: Action<'_>) -> Result<(), Failed> {
        let served = &mut group.served;
        let done = match action {
            Action::Enable => served.enable(index),
            Action::Disable => served.disable(index),
            Action::Reset => served.reset(index),
            Action::EnableGroup => served.enable_all(),
            Action::DisableGroup => served.disable_all(),
            Action::Modify(attr) => served.modify(index, attr),
        };
        done.map_err(Self::failed)
    }

    fn read(&mut self, group: &OpenGroup, indices: &[usize], out: &mut Vec<Result<Moment, i32>>) {
        let served = &group.served;
        let tell =
            |reading: Reading| reading.map(|count| moment(&count, served.now_ns())).map_err(|error| error.errno());
        if let [index] = *indices {
            out.push(tell(served.read(index)));
            return;
        }
        served.read_all(&mut self.readings);
        let all = &self.readings;
        out.extend(indices.iter().map(|&index| tell(all.get(index).copied().unwrap_or(Err(ReadError::Closed)))));
    }

    fn close(&mut self, group: OpenGroup) {
        if let Some(tid) = group.target.task()
            && let Some((users, _)) = self.tasks.get_mut(&tid)
        {
            *users -= 1;
            if *users == 0 {
                self.tasks.remove(&tid);
            }
        }
        drop(group);
    }

    fn files(&mut self, _group: &OpenGroup) -> Option<Vec<PassedCopy<OwnedFd>>> {
        None
    }

    fn page(&mut self, entries: u32) -> Option<(PageWriter, OwnedFd)> {
        PageWriter::make(entries).ok()
    }

    fn publish(&mut self, page: &mut PageWriter, what: &Published<'_>, group: &OpenGroup) {
        group.served.read_all(&mut self.readings);
        let time_ns = group.served.now_ns();
        for (index, (&entry, reading)) in what.entries.iter().zip(&self.readings).enumerate() {
            let handle = Handle(what.leader.0 + index as u64);
            // What can't be read now can be asked for, with its error.
            let moment = reading.map_or_else(|_| Moment::default(), |count| moment(&count, time_ns));
            page.write(entry, &Entry { handle, moment, base: Base::Ask });
        }
    }

    fn retract(&mut self, page: &mut PageWriter, entry: u32) {
        page.clear(entry);
    }
}
