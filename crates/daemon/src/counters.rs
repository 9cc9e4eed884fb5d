//! The counters of this machine, as the service uses them.
//!
//! What it is: [`Counters`], the engine of one session behind the trait of [`crate::service`].
//! Read first: [`Counters`].
//!
//! **Invariant:** every event is opened with the rights of its client, by the kernel's own decision, but for what
//! [`crate::rights`] lets a group of the configuration have.

use crate::rights::{self, Access, Denied, Grant, Membership, Module, PmuKind, allowed_by};
use crate::service::{Counting, Published, ReadWhen, Refused, Requester, Target};
use pmux::abi::{Attr, AttrFlags, EventType};
use pmux::server_api::shared::page::{Base, Entry, PageWriter};
use pmux::server_api::shared::wire::{CgroupName, Handle, PassedFile, TimedTotals, Totals, ValueIndex};
use pmux::server_api::{
    ActError, Acting, CachedCount, Cgroups, Closing, CountSource, Credentials, EventAction, EventTarget, NamedCgroup,
    Peer, PeerCred, ReadError, ReaderIds, Selinux, ServeError, ServeRequest, ServedGroup, ServedTarget, SharedFile,
    Streams, TargetKind, TargetScope, Whose,
};
use pmux::{Count, Multiplexing, Session};
use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

/// For so long a setting that was read is taken to hold.
const SETTING_AGE: Duration = Duration::from_millis(100);
/// The number of an error for a task that has gone (`ESRCH`), and for a file that is no cgroup (`EBADF`).
pub(crate) const NO_TASK: i32 = 3;
const NO_CGROUP: i32 = 9;
/// What the kernel says to a process that lacks a right (`EPERM`, `EACCES`).
const NO_RIGHT: [i32; 2] = [1, EACCES];
const EACCES: i32 = 13;
const EAGAIN: i32 = 11;
/// `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`. Source: `capabilities(7)`.
const READS_ALL: u64 = 1 << 1 | 1 << 2;

type Reading = Result<Count, ReadError>;

/// The counters of this machine.
pub struct Counters {
    pub(crate) session: Session,
    /// The credentials of the service; `None` where they are not of one kind.
    own: Option<Credentials>,
    pub(crate) cgroups: Cgroups,
    /// How what is opened from now on takes turns.
    pub(crate) turns: Multiplexing,
    paranoid: Option<(i32, Instant)>,
    selinux: Option<Selinux>,
    /// What it said of each label.
    modules: HashMap<String, (Module, Instant)>,
    pmus: HashMap<EventType, PmuKind>,
    /// When the pages of all clients were begun to be written last: the kernel's tick of then, as readings have it.
    round_ns: u64,
    readings: Vec<Reading>,
    pub(crate) streams: Streams,
    seen: Vec<Option<CachedCount>>,
}

/// A group that is open for a client.
pub struct OpenGroup {
    served: ServedGroup,
    target: Target,
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
    Reported,
}

impl Counters {
    /// The counters of a session. The kernel's rings have so many bytes.
    ///
    /// # Errors
    /// A sentence, where `/proc` is not mounted, or no file is left.
    pub fn new(session: &Session, turns: Multiplexing, kernel_ring_bytes: u64) -> Result<Self, String> {
        let streams = Streams::new(session, kernel_ring_bytes).map_err(|errno| format!("no epoll: {errno}"))?;
        let cgroups = Cgroups::new(session).map_err(|error| error.to_string())?;
        let (session, own, selinux) = (session.clone(), Credentials::own(), Selinux::system());
        let (paranoid, modules, pmus, round_ns, readings, seen) = Default::default();
        Ok(Self { session, own, cgroups, turns, paranoid, selinux, modules, pmus, round_ns, readings, streams, seen })
    }

    /// With whose rights a client's events are opened.
    pub(crate) fn acting(&self, peer: &Peer) -> Result<Acting, Denied> {
        Ok(match rights::access(peer, self.own.as_ref())? {
            Access::AsService => Acting::default(),
            Access::AsClient(credentials) => self.session.act_for(peer.connected.process, credentials),
        })
    }

    /// Whether events of this sort may be opened with these rights at this target: asked before anything is opened, and where an
    /// equal event is open already, because the kernel is not asked again then.
    pub(crate) fn check_target(
        &self,
        acting: &Acting,
        attrs: &[Attr],
        (target, kind): (EventTarget, TargetKind),
    ) -> Result<(), Refused> {
        let sides = AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let mut known: Vec<AttrFlags> = Vec::new();
        for (index, attr) in attrs.iter().enumerate() {
            let asked = attr.flags & sides;
            if known.contains(&asked) {
                continue;
            }
            acting.check_target(attr, target).map_err(|error| self.not_acted(acting, error, (index, attr), kind))?;
            known.push(asked);
        }
        Ok(())
    }

    fn not_acted(&self, acting: &Acting, error: ActError, (index, attr): (usize, &Attr), kind: TargetKind) -> Refused {
        let refused = ServeError { index, ..acting.explain(&self.session, error, attr, kind) };
        match error {
            // Then the client's own try is what is left.
            ActError::NotTaken(_) => Refused::Rights(refused),
            _ => Self::refused(acting, refused),
        }
    }

    /// Whose refusal it is.
    pub(crate) fn refused(acting: &Acting, failed: ServeError) -> Refused {
        match failed.errno {
            errno if acting.is_for_client() && NO_RIGHT.contains(&errno) => Refused::Rights(failed),
            EAGAIN if acting.is_for_client() => Refused::Late(failed),
            _ => Refused::Failed(failed),
        }
    }

    /// A client may look into its own process where others of its user may not.
    fn or_its_own(peer: &Peer, target: Target, refused: Refused) -> Refused {
        let denied = matches!(&refused, Refused::Rights(failed) if failed.errno == EACCES);
        let own = target.task().is_some_and(|task| peer.process.is_some_and(|own| own.cast_unsigned() == task));
        if denied && own { Refused::Denied(0, Denied::OwnProcess) } else { refused }
    }

    /// What a group of the configuration allows its members: to count on a CPU what only the setting of the machine forbids them.
    fn group_allows(&self, peer: &Peer, attrs: &[Attr], cpu: u32) -> Result<(), Refused> {
        for (index, attr) in attrs.iter().enumerate().filter(|(_, attr)| rights::kernel_has_a_say(attr)) {
            let acting = self.acting(peer).map_err(|denied| Refused::Denied(index, denied))?;
            let milder = Attr { flags: attr.flags | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV, ..*attr };
            match acting.check(&milder, EventTarget { task: None, cpu: Some(cpu) }) {
                Err(error) if error.errno().raw() != EACCES => {
                    return Err(self.not_acted(&acting, error, (index, attr), TargetKind::Cpu(cpu)));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// What the service's own rules say about events of a target.
    fn may_count(&mut self, peer: &Peer, attrs: &[Attr], target: Target) -> Result<(), Refused> {
        let target_scope = match target {
            Target::Cpu(_) | Target::Cgroup(_) => TargetScope::WholeCpu,
            Target::Task(_) | Target::TaskOnCpu(..) => TargetScope::Task,
        };
        for (index, attr) in attrs.iter().enumerate() {
            let pmu = self.pmu(attr.kind);
            let may = rights::may_count(peer, attr, pmu, target_scope)
                .and_then(|()| self.module_allows(peer, attr, target_scope));
            may.map_err(|denied| Refused::Denied(index, denied))?;
        }
        Ok(())
    }

    /// With whose rights a group is opened, if the client may have it: its own, or the service's where a group of the configuration
    /// allows that.
    fn grant(
        &self,
        Requester { peer, membership }: Requester<'_>,
        attrs: &[Attr],
        target: Target,
    ) -> Result<(Acting, Grant), Refused> {
        let kind = match target {
            Target::Cpu(cpu) => TargetKind::Cpu(cpu),
            Target::Cgroup(_) => TargetKind::Cgroup,
            Target::Task(_) | Target::TaskOnCpu(..) => TargetKind::Task(Whose::Other),
        };
        let on = EventTarget { task: target.task(), cpu: target.cpu() };
        let whole = target.task().is_none();
        let acted = self.acting(peer).map_err(|denied| Refused::Denied(0, denied));
        let acted = acted.and_then(|acting| {
            let checked = self.check_target(&acting, attrs, (on, kind));
            checked.map_err(|refused| Self::or_its_own(peer, target, refused))?;
            Ok(acting)
        });
        match (acted, target.cpu().filter(|_| whole && membership == Membership::Named)) {
            (Ok(acting), _) => Ok((acting, Grant::AsKernel)),
            (Err(Refused::Rights(_) | Refused::Denied(_, Denied::NotKnown)), Some(cpu)) => {
                self.group_allows(peer, attrs, cpu).map(|()| (Acting::default(), Grant::ByGroup))
            }
            (Err(Refused::Rights(mut failed)), None) if whole && failed.errno == EACCES => {
                failed.text += ", or a group that the service's configuration names in `system_wide`";
                Err(Refused::Rights(failed))
            }
            (Err(refused), _) => Err(refused),
        }
    }

    pub(crate) fn paranoid(&mut self) -> i32 {
        match self.paranoid {
            Some((level, read)) if read.elapsed() < SETTING_AGE => level,
            _ => {
                let level = self.session.paranoid();
                self.paranoid = Some((level, Instant::now()));
                level
            }
        }
    }

    /// Whether a security module lets an asker have an event.
    pub(crate) fn module_allows(&mut self, peer: &Peer, attr: &Attr, target_scope: TargetScope) -> Result<(), Denied> {
        allowed_by(self.module(peer), attr, target_scope)
    }

    fn module(&mut self, peer: &Peer) -> Module {
        let Some(selinux) = &self.selinux else { return Module::None };
        let label = peer.connected.label.as_deref().unwrap_or_default();
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
        let session = &self.session;
        *self.pmus.entry(kind).or_insert_with(|| if session.is_probe(kind) { PmuKind::Probe } else { PmuKind::Other })
    }
}

/// Something was asked of an opener, which has not answered yet.
pub(crate) fn not_yet() -> Refused {
    Refused::Late(ServeError { index: 0, errno: EAGAIN, text: ActError::Late.to_string() })
}

const fn totals(count: &Count) -> Totals {
    Totals { value: count.value, enabled_ns: count.enabled.0, running_ns: count.running.0 }
}

impl Counting for Counters {
    type Group = OpenGroup;
    type Page = PageWriter;

    fn may_count_cpus(&mut self, Requester { peer, membership }: Requester<'_>) -> bool {
        // Of what counts least.
        let attr = Attr { flags: AttrFlags::EXCLUDE_KERNEL, ..Attr::default() };
        let named = membership == Membership::Named;
        let as_service = rights::access(peer, self.own.as_ref()) == Ok(Access::AsService);
        self.module_allows(peer, &attr, TargetScope::WholeCpu).is_ok()
            && (named || as_service || rights::is_privileged(peer) || self.paranoid() <= 0)
    }

    fn is_waiting(&self) -> bool {
        self.session.openers().is_waiting()
    }

    fn open(
        &mut self,
        requester: Requester<'_>,
        target: Target,
        cgroup: Option<(&CgroupName, &Peer)>,
        attrs: &[Attr],
    ) -> Result<(OpenGroup, Grant), Refused> {
        self.may_count(requester.peer, attrs, target)?;
        let (acting, grant) = self.grant(requester, attrs, target)?;
        let id = |tid: u32| i32::try_from(tid).unwrap_or(-1);
        let place = match (target, cgroup) {
            (Target::Task(tid), _) => ServedTarget::Task(id(tid)),
            (Target::TaskOnCpu(tid, cpu), _) => ServedTarget::TaskOnCpu(id(tid), cpu),
            (Target::Cpu(cpu), _) => ServedTarget::Cpu(cpu),
            (Target::Cgroup(cpu), Some((cgroup, by))) => {
                let failed = |error| ServeError { index: 0, errno: NO_CGROUP, text: format!("{error}") };
                let named = NamedCgroup { device: cgroup.device, inode: cgroup.inode, path: &cgroup.path };
                let PeerCred { user, group, groups, .. } = &by.connected;
                let reads_all =
                    by.credentials.is_some_and(|of| of.user_namespace.is_none() && of.effective & READS_ALL != 0);
                let by = ReaderIds { user: *user, group: *group, groups, reads_all };
                ServedTarget::Cgroup(self.cgroups.named(&named, by).map_err(failed)?, cpu)
            }
            (Target::Cgroup(_), None) => {
                let text = "the cgroup is not named".to_owned();
                return Err(ServeError { index: 0, errno: NO_CGROUP, text }.into());
            }
        };
        let opened = self.session.serve(&acting, ServeRequest { target: place, attrs: attrs.to_vec() }, self.turns);
        let served = opened.map_err(|error| {
            // Whatever is open on its number is over.
            if let (NO_TASK, Some(tid)) = (error.errno, target.task()) {
                self.session.served_task_was_gone(id(tid));
            }
            Self::refused(&acting, error)
        })?;
        // What a group can do without may still come.
        if self.is_waiting() {
            return Err(not_yet());
        }
        let group = OpenGroup { served, target, passed: Vec::new(), moved: Moved::No };
        Ok((group, grant))
    }

    fn modify(
        &mut self,
        requester: Requester<'_>,
        group: &mut OpenGroup,
        index: usize,
        attr: &Attr,
    ) -> Result<(), Refused> {
        let target = group.target;
        self.may_count(requester.peer, std::slice::from_ref(attr), target)?;
        let (acting, _) = self.grant(requester, std::slice::from_ref(attr), target)?;
        let served = &mut group.served;
        if !acting.is_like(served.acting()) {
            return Err(Refused::Denied(0, Denied::Changed));
        }
        served.modify(index, attr).map_err(|failed| Self::refused(&acting, failed))
    }

    fn control(&mut self, group: &mut OpenGroup, index: usize, action: EventAction) -> Result<(), ServeError> {
        group.served.control(index, action)
    }

    fn read(&mut self, group: &OpenGroup, indices: &[usize], out: &mut Vec<Result<TimedTotals, i32>>) {
        let served = &group.served;
        let moment = |count: Count| TimedTotals { totals: totals(&count), time_ns: served.now_ns() };
        let tell = |reading: Reading| reading.map(moment).map_err(|error| error.errno());
        if let [index] = *indices {
            out.push(tell(served.read(index)));
            return;
        }
        served.read_all(&mut self.readings);
        let all = &self.readings;
        out.extend(indices.iter().map(|&index| tell(all.get(index).copied().unwrap_or(Err(ReadError::Closed)))));
    }

    fn closing(&self) -> Closing {
        self.session.closing()
    }

    fn files_left(&self) -> u64 {
        pmux::server_api::files_left(self.streams.as_fd())
    }

    fn close(&mut self, group: OpenGroup) {
        drop(group);
    }

    fn files(&mut self, group: &mut OpenGroup) -> Option<Vec<(PassedFile, OwnedFd)>> {
        let files = group.served.files()?;
        group.passed = files.iter().map(|file| file.number).collect();
        group.moved = Moved::No;
        let describe = |SharedFile { file, number, read_format, values, places }: SharedFile| {
            let place = |(event, value): (usize, usize)| ValueIndex { event: event as u32, value: value as u32 };
            let places = places.into_iter().map(place).collect();
            (PassedFile { number, read_format, values: values as u32, places }, file)
        };
        Some(files.into_iter().map(describe).collect())
    }

    fn has_moved(&mut self, group: &mut OpenGroup) -> bool {
        let moved = group.moved == Moved::Yes;
        if moved {
            group.moved = Moved::Reported;
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
        self.round_ns = pmux::server_api::tick_ns();
    }

    fn publish(&mut self, page: &mut PageWriter, what: &Published<'_>, group: &mut OpenGroup) {
        let OpenGroup { served, passed, moved, .. } = group;
        let find = |at| served.find(at).ok();
        let is_old = |seen: Option<CachedCount>| {
            seen.is_none_or(|seen| seen.at_ns < self.round_ns || what.read_when == ReadWhen::Now)
        };
        // What stands still was read when it stopped.
        let stands =
            |seen: Option<CachedCount>| seen.is_some_and(|seen| matches!(seen.found, CountSource::Standing(_)));
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
            let (count, found) = seen.map_or((Count::default(), CountSource::Nowhere), |seen| (seen.count, seen.found));
            let base = match found {
                CountSource::Standing(count) => Base::Stopped(totals(&count)),
                CountSource::InFile(number, less) if passed.contains(&number) => Base::File(number, totals(&less)),
                CountSource::InFile(..) => {
                    if !passed.is_empty() && *moved == Moved::No {
                        *moved = Moved::Yes;
                    }
                    Base::Ask
                }
                CountSource::Nowhere => Base::Ask,
            };
            page.write(entry, &Entry { handle, moment: TimedTotals { totals: totals(&count), time_ns }, base });
        }
    }

    fn retract(&mut self, page: &mut PageWriter, entry: u32) {
        page.clear(entry);
    }
}
