//! The counters of this machine, as the service uses them.
//!
//! What it is: [`Counters`], the engine of one session behind the trait of [`crate::service`].
//! Read first: [`Counters`].
//!
//! **Invariant:** what concerns rights is decided in [`crate::rights`]; here are the facts only.

use crate::rights::{self, Denied, Grant, Machine, Membership, Module, PmuKind, Wanted, allowed_by};
use crate::service::{Action, Asks, Counting, Failed, Published, Target};
use pmux::serving::abi::{Attr, AttrFlags, EventType};
use pmux::serving::shared::page::{Base, Entry, PageWriter};
use pmux::serving::shared::wire::{Handle, Moment, PassedFile, Place as ValuePlace, Totals};
use pmux::serving::{
    Asker, Breadth, Cgroups, Domain, Found, Place, Proc, Question, ReadError, Seen, Selinux, ServeError, ServedGroup,
    SharedFile, Streams, Subject,
};
use pmux::{Count, Multiplexing, Session};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Addresses from here up are the kernel's, on every machine with 64 bits.
const KERNEL_FROM: u64 = 1 << 63;
/// For so long a setting that was read is taken to hold.
const SETTING_AGE: Duration = Duration::from_millis(100);
/// The number of an error for a task that has gone (`ESRCH`), and for a file that is no cgroup (`EBADF`).
pub(crate) const NO_TASK: i32 = 3;
const NO_CGROUP: i32 = 9;

type Reading = Result<Count, ReadError>;

/// The counters of this machine.
pub struct Counters {
    session: Session,
    proc: Proc,
    cgroups: Cgroups,
    turns: Multiplexing,
    paranoid: Option<(i32, Instant)>,
    selinux: Option<Selinux>,
    /// What it said of each label.
    modules: HashMap<String, (Module, Instant)>,
    pmus: HashMap<EventType, PmuKind>,
    /// When the pages of all clients were begun to be written last: the kernel's tick of then, as readings have it.
    round_ns: u64,
    readings: Vec<Reading>,
    pub(crate) streams: Streams,
    /// What is known of the events of a group.
    seen: Vec<Option<Seen>>,
}

/// A group that is open for a client.
pub struct OpenGroup {
    served: ServedGroup,
    /// The numbers of the files that the client holds.
    passed: Vec<u64>,
    moved: Moved,
}

/// Whether the files that a client holds still tell of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moved {
    No,
    Yes,
    /// And the client knows.
    Told,
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
    /// The counters of a session. The kernel's rings have so many bytes.
    ///
    /// # Errors
    /// A sentence, where `/proc` is not mounted, or no file is left.
    pub fn new(session: &Session, turns: Multiplexing, kernel_ring_bytes: u64) -> Result<Self, String> {
        let streams = Streams::new(session, kernel_ring_bytes).map_err(|errno| format!("no epoll: {errno}"))?;
        let cgroups = Cgroups::new(session).map_err(|error| error.to_string())?;
        Ok(Self {
            session: session.clone(),
            proc: Proc::system(),
            cgroups,
            turns,
            paranoid: None,
            selinux: Selinux::system(),
            modules: HashMap::new(),
            pmus: HashMap::new(),
            round_ns: 0,
            readings: Vec::new(),
            streams,
            seen: Vec::new(),
        })
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) const fn proc(&self) -> &Proc {
        &self.proc
    }

    /// From now on what is opened takes turns like this.
    pub const fn set_turns(&mut self, turns: Multiplexing) {
        self.turns = turns;
    }

    /// How many cgroups are counted.
    #[must_use]
    pub fn cgroups(&self) -> usize {
        self.cgroups.len()
    }

    pub(crate) fn machine(&mut self) -> Machine {
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

    /// Whether a security module lets an asker have an event.
    pub(crate) fn module_allows(&mut self, asker: &Asker, attr: &Attr, breadth: Breadth) -> Result<(), Denied> {
        allowed_by(self.module(asker), attr, breadth)
    }

    /// What a security module has to say about an asker.
    fn module(&mut self, asker: &Asker) -> Module {
        let Some(selinux) = &self.selinux else { return Module::None };
        let label = asker.connected.label.as_deref().unwrap_or_default();
        match self.modules.get(label) {
            Some((module, asked)) if asked.elapsed() < SETTING_AGE => *module,
            _ => {
                let module = selinux.rights_of(label).map_or(Module::Silent, Module::Allows);
                // Labels come and go with clients.
                self.modules.retain(|_, (_, asked)| asked.elapsed() < SETTING_AGE);
                self.modules.insert(label.to_owned(), (module, Instant::now()));
                module
            }
        }
    }

    pub(crate) fn pmu(&mut self, kind: EventType) -> PmuKind {
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

    pub(crate) fn failed(error: ServeError) -> Failed {
        Failed { index: error.index, errno: error.errno, text: error.text }
    }
}

const fn totals(count: &Count) -> Totals {
    Totals { value: count.value, enabled_ns: count.enabled.0, running_ns: count.running.0 }
}

const fn moment(count: &Count, time_ns: u64) -> Moment {
    Moment { totals: totals(count), time_ns }
}

impl Counting for Counters {
    type Group = OpenGroup;
    type Page = PageWriter;

    fn decide(
        &mut self,
        asker: &Asker,
        membership: Membership,
        attr: &Attr,
        target: Target,
    ) -> Result<Result<Grant, Denied>, Failed> {
        let breadth = match target {
            Target::Cpu(_) | Target::Cgroup(_) => Breadth::WholeCpu,
            Target::Task(_) | Target::TaskOnCpu(..) => Breadth::Task,
        };
        if let Err(denied) = self.module_allows(asker, attr, breadth) {
            return Ok(Err(denied));
        }
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
        // Of what counts least.
        let attr = Attr { flags: AttrFlags::EXCLUDE_KERNEL, ..Attr::default() };
        self.module_allows(asker, &attr, Breadth::WholeCpu).is_ok()
            && rights::system_wide(asker, self.machine(), membership).is_ok()
    }

    fn open(
        &mut self,
        target: Target,
        folder: Option<(OwnedFd, i32)>,
        attrs: &[Attr],
        holder: u64,
    ) -> Result<OpenGroup, Failed> {
        let id = |tid: u32| i32::try_from(tid).unwrap_or(-1);
        let place = match (target, folder) {
            (Target::Task(tid), _) => Place::Task(id(tid)),
            (Target::TaskOnCpu(tid, cpu), _) => Place::TaskOnCpu(id(tid), cpu),
            (Target::Cpu(cpu), _) => Place::Cpu(cpu),
            (Target::Cgroup(cpu), Some((folder, by))) => {
                let failed = |error| Failed { index: 0, errno: NO_CGROUP, text: format!("{error}") };
                Place::Cgroup(self.cgroups.passed(folder, by).map_err(failed)?, cpu)
            }
            (Target::Cgroup(_), None) => {
                return Err(Failed { index: 0, errno: NO_CGROUP, text: "the cgroup's folder is missing".to_owned() });
            }
        };
        let opened = self.session.serve(Domain(holder), Question { place, attrs: attrs.to_vec() }, self.turns);
        let served = opened.map_err(|error| {
            // Whatever is open on its number is over.
            if let (NO_TASK, Some(tid)) = (error.errno, target.task()) {
                self.session.served_task_exited(id(tid));
            }
            Self::failed(error)
        })?;
        Ok(OpenGroup { served, passed: Vec::new(), moved: Moved::No })
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

    fn weigh(&mut self, group: &mut OpenGroup, weight: u16) {
        group.served.weigh(weight);
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
        drop(group);
    }

    fn files(&mut self, group: &mut OpenGroup) -> Option<Vec<(PassedFile, OwnedFd)>> {
        let files = group.served.files()?;
        group.passed = files.iter().map(|file| file.number).collect();
        group.moved = Moved::No;
        let describe = |SharedFile { file, number, read_format, values, places }: SharedFile| {
            let place = |(event, value): (usize, usize)| ValuePlace { event: event as u32, value: value as u32 };
            let places = places.into_iter().map(place).collect();
            (PassedFile { number, read_format, values: values as u32, places }, file)
        };
        Some(files.into_iter().map(describe).collect())
    }

    fn has_moved(&mut self, group: &mut OpenGroup) -> bool {
        let moved = group.moved == Moved::Yes;
        if moved {
            group.moved = Moved::Told;
        }
        moved
    }

    fn page(&mut self, entries: u32) -> Option<(PageWriter, OwnedFd)> {
        PageWriter::make(entries).ok()
    }

    fn name(&mut self, attr: &Attr) -> String {
        self.session.describe(attr)
    }

    fn begin_round(&mut self) {
        self.round_ns = pmux::serving::tick_ns();
    }

    fn publish(&mut self, page: &mut PageWriter, what: &Published<'_>, group: &mut OpenGroup) {
        let OpenGroup { served, passed, moved } = group;
        let find = |at| served.find(at).ok();
        let is_old = |seen: Option<Seen>| seen.is_none_or(|seen| seen.at_ns < self.round_ns || what.asks == Asks::Now);
        // What stands still was read when it stopped.
        let stands = |seen: Option<Seen>| seen.is_some_and(|seen| matches!(seen.found, Found::Standing(_)));
        self.seen.clear();
        self.seen.extend((0..what.entries.len()).map(find));
        if self.seen.iter().any(|&seen| is_old(seen)) && !self.seen.iter().all(|&seen| stands(seen)) {
            served.read_all(&mut self.readings);
            self.seen.clear();
            self.seen.extend((0..what.entries.len()).map(find));
        }
        for (index, (&entry, &seen)) in what.entries.iter().zip(&self.seen).enumerate() {
            let handle = Handle(what.leader.0 + index as u64);
            let time_ns = match seen {
                Some(seen) if !stands(Some(seen)) => seen.at_ns,
                _ => served.now_ns(),
            };
            // What can't be read now can be asked for, with its error.
            let (count, found) = seen.map_or((Count::default(), Found::Nowhere), |seen| (seen.count, seen.found));
            let base = match found {
                Found::Standing(count) => Base::Standing(totals(&count)),
                Found::InFile(number, less) if passed.contains(&number) => Base::File(number, totals(&less)),
                Found::InFile(..) => {
                    if !passed.is_empty() && *moved == Moved::No {
                        *moved = Moved::Yes;
                    }
                    Base::Ask
                }
                Found::Nowhere => Base::Ask,
            };
            page.write(entry, &Entry { handle, moment: Moment { totals: totals(&count), time_ns }, base });
        }
    }

    fn retract(&mut self, page: &mut PageWriter, entry: u32) {
        page.clear(entry);
    }
}
