//! One function for each kind of request.
//!
//! **Invariant:** a refused request has changed nothing.

use super::budget::Charge;
use super::client::{Client, HeldGroup, Holds};
use super::counting::{Counting, Refused, Requester, Target};
use super::{ClientId, Note, Service, errno};
use crate::config::Files;
use crate::rights::{Grant, is_privileged};
use pmux::abi::Attr;
use pmux::server_api::shared::wire::{
    CgroupName, Context, EventOp, Handle, Hello, NEWEST_VERSION, Narrowing, OLDEST_VERSION, Open, Opened, OptIn,
    PACKET_FILES, Refusal, RefusalKind, Reply, Rights, ServedPage, Welcome,
};
use pmux::server_api::{EventAction, PidNamespace, without_filter};

/// What a request that is granted leads to.
pub(super) struct Answer<F> {
    pub(super) note: Option<Note>,
    pub(super) reply: Reply,
    pub(super) files: Vec<F>,
}

impl<F> From<Reply> for Answer<F> {
    fn from(reply: Reply) -> Self {
        Self { note: None, reply, files: Vec::new() }
    }
}

pub(super) type Answered<F> = Result<Answer<F>, Refusal>;

impl<C: Counting> Service<C> {
    pub(super) fn hello(&mut self, id: ClientId, counting: &mut C, hello: &Hello) -> Answered<C::File> {
        let (limits, entries) = (self.limits(), self.rules.limits.page_entries);
        let (files, refresh_ms) = (self.rules.files, self.rules.refresh_ms);
        let epoch = self.epoch;
        let client = self.client(id)?;
        let version = hello.newest_version.min(NEWEST_VERSION);
        if version < hello.oldest_version || version < OLDEST_VERSION {
            let text = format!(
                "the client speaks versions {} to {}, the service {OLDEST_VERSION} to {NEWEST_VERSION}: one of them is too old",
                hello.oldest_version, hello.newest_version
            );
            return Err(Refusal::new(RefusalKind::Version, 0, errno::EPROTO, text));
        }
        let page = if entries > 0 { counting.page(entries) } else { None };
        let (page, file) = page.unzip();
        let peer = &client.peer;
        let rights = Rights {
            files: may_have_files(files, is_privileged(peer)) && page.is_some(),
            system_wide: counting.may_count_cpus(client.requester()),
            tasks: peer.task_ids == PidNamespace::Ours,
        };
        let served = page.as_ref().map(|_| ServedPage { entries, refresh_ms });
        client.greet(hello.name.clone(), page, entries);
        let version = version.max(OLDEST_VERSION);
        let reply = Reply::Welcome(Welcome { version, epoch, limits, rights, page: served });
        Ok(Answer { note: Some(Note::Welcomed), reply, files: file.into_iter().collect() })
    }

    pub(super) fn open(
        &mut self,
        id: ClientId,
        counting: &mut C,
        (open, cgroup): (&Open, Option<&CgroupName>),
    ) -> Answered<C::File> {
        let policy = self.rules.files;
        let target = target(open, cgroup)?;
        let attrs = decode(&open.attrs)?;
        let charge = Charge::of_group(&attrs);
        self.has_room(id, counting, charge)?;
        let client = self.client(id)?;
        let user = client.payer;
        let cgroup = cgroup.map(|cgroup| (cgroup, &client.peer));
        let (group, grant) = counting.open(client.requester(), target, cgroup, &attrs)?;
        // A process that holds a file can stop its counter: those that share it have the same credentials.
        let files = open.files == OptIn::Wanted
            && open.entries == OptIn::Wanted
            && grant == Grant::AsKernel
            && may_have_files(policy, is_privileged(&client.peer));
        let leader = self.next_handle;
        self.next_handle += u64::from(charge.events);
        self.charge(user, charge);
        self.tallies.opened += u64::from(charge.events);
        let client = self.client(id)?;
        client.take_in(leader, HeldGroup::new(group, target, attrs.clone(), grant));
        if open.entries == OptIn::Wanted {
            client.give_entries(leader);
        }
        let answer = self.opened(id, counting, leader, files)?;
        let names = attrs.iter().map(|attr| counting.name(attr)).collect();
        Ok(Answer { note: Some(Note::Opened(Handle(leader), names, target)), ..answer })
    }

    /// Describes a group that is open, and passes its files where the client may have them.
    fn opened(&mut self, id: ClientId, counting: &mut C, leader: u64, files: bool) -> Answered<C::File> {
        let client = self.client(id)?;
        let Some((_, _, held)) = client.find(Handle(leader)) else { return Err(unknown(0)) };
        let copies = if files && !held.entries.is_empty() { counting.files(&mut held.group) } else { None };
        let copies = copies.filter(|copies| copies.len() <= PACKET_FILES);
        held.files = if copies.is_some() { Holds::Files } else { Holds::Nothing };
        let events = u64::try_from(held.attrs.len()).unwrap_or_default();
        let handles = (leader..leader + events).map(Handle).collect();
        let entries = held.entries.clone();
        let (files, passed) = copies.unwrap_or_default().into_iter().unzip();
        client.publish(leader, counting);
        Ok(Answer { note: None, reply: Reply::Opened(Opened { handles, entries, files }), files: passed })
    }

    pub(super) fn renew(&mut self, id: ClientId, counting: &mut C, handle: Handle) -> Answered<C::File> {
        let client = self.client(id)?;
        let Some((leader, 0, held)) = client.find(handle) else { return Err(unknown(0)) };
        // Who had files may have the new ones.
        let files = held.files == Holds::Files;
        self.opened(id, counting, leader, files)
    }

    pub(super) fn control(
        &mut self,
        id: ClientId,
        counting: &mut C,
        handle: Handle,
        op: &EventOp,
    ) -> Result<(), Refusal> {
        if self.control_stream(id, counting, handle, op)?.is_some() {
            return Ok(());
        }
        let client = self.client(id)?;
        let (peer, membership) = (client.peer.clone(), client.membership);
        let Some((leader, index, held)) = client.find(handle) else { return Err(unknown(0)) };
        let whole = matches!(op, EventOp::EnableGroup | EventOp::DisableGroup);
        if whole && index > 0 {
            let text = "a group is switched by the handle of its leader";
            return Err(Refusal::new(RefusalKind::Request, 0, errno::EINVAL, text));
        }
        let action = match op {
            EventOp::Enable => EventAction::Enable,
            EventOp::Disable => EventAction::Disable,
            EventOp::Reset => EventAction::Reset,
            EventOp::EnableGroup => EventAction::EnableGroup,
            EventOp::DisableGroup => EventAction::DisableGroup,
            EventOp::Modify(bytes) => {
                let wanted = decode(std::slice::from_ref(bytes))?[0];
                counting.modify(Requester { peer: &peer, membership }, &mut held.group, index, &wanted)?;
                if let Some(known) = held.attrs.get_mut(index) {
                    *known = wanted;
                }
                client.publish(leader, counting);
                return Ok(());
            }
        };
        counting.control(&mut held.group, index, action).map_err(Refused::from)?;
        client.publish(leader, counting);
        Ok(())
    }

    pub(super) fn read(&mut self, id: ClientId, counting: &mut C, handles: &[Handle]) -> Result<Reply, Refusal> {
        let client = self.client(id)?;
        if let Some(wrong) = handles.iter().position(|&handle| client.find(handle).is_none()) {
            return Err(unknown(wrong));
        }
        let mut values = Vec::with_capacity(handles.len());
        let mut indices = Vec::new();
        let mut rest = handles;
        while let Some(&first) = rest.first() {
            let Some((leader, _, held)) = client.find(first) else { return Err(unknown(0)) };
            let last = leader + held.attrs.len() as u64;
            let together = rest.iter().take_while(|handle| (leader..last).contains(&handle.0)).count();
            indices.clear();
            indices.extend(rest[..together].iter().map(|handle| (handle.0 - leader) as usize));
            counting.read(&held.group, &indices, &mut values);
            rest = &rest[together..];
        }
        Ok(Reply::Values { values })
    }

    /// Answers how many events were closed.
    pub(super) fn close(&mut self, id: ClientId, counting: &mut C, handles: &[Handle]) -> Result<usize, Refusal> {
        let client = self.client(id)?;
        // A handle twice, or a member beside its leader, is closed once; one that was never there is a mistake.
        let there = |client: &mut Client<C>, handle| client.stream(handle).is_some() || client.find(handle).is_some();
        if let Some(wrong) = handles.iter().position(|&handle| !there(client, handle)) {
            return Err(unknown(wrong));
        }
        let user = client.payer;
        let (mut events, mut charge) = (0, Charge::default());
        for &handle in handles {
            let closed = client.close_stream(handle, counting);
            let closed = closed.or_else(|| client.close(handle, counting)).unwrap_or_default();
            events += closed.events;
            charge = charge.plus(closed.charge);
        }
        self.give_back(user, charge);
        Ok(events)
    }

    pub(super) fn client(&mut self, id: ClientId) -> Result<&mut Client<C>, Refusal> {
        self.clients.get_mut(&id).ok_or_else(|| unknown(0))
    }
}

const fn may_have_files(policy: Files, privileged: bool) -> bool {
    match policy {
        Files::Own => true,
        Files::Privileged => privileged,
        Files::Never => false,
    }
}

fn target(open: &Open, cgroup: Option<&CgroupName>) -> Result<Target, Refusal> {
    let wrong = |text: &str| Err(Refusal::new(RefusalKind::Request, 0, errno::EINVAL, text));
    let target = match (open.context, open.narrowing) {
        (Context::Task(0), _) => return wrong("there is no task 0"),
        (Context::Task(task), Narrowing::Everything) => Target::Task(task),
        (Context::Task(task), Narrowing::OnCpu(cpu)) => Target::TaskOnCpu(task, cpu),
        (Context::Task(_), Narrowing::Cgroup) => return wrong("a cgroup is counted on CPUs, not in tasks"),
        (Context::Cpu(cpu), Narrowing::Everything) => Target::Cpu(cpu),
        (Context::Cpu(_), Narrowing::OnCpu(_)) => return wrong("a CPU can't be limited to a CPU"),
        (Context::Cpu(cpu), Narrowing::Cgroup) => Target::Cgroup(cpu),
    };
    match (target, cgroup) {
        (Target::Cgroup(_), None) => {
            // It passed a folder, before Linux 6.16: no file is received here.
            let text = "the client is too old: it has to name the cgroup";
            Err(Refusal::new(RefusalKind::NotShared, 0, errno::EOPNOTSUPP, text))
        }
        (Target::Cgroup(_), Some(_)) | (_, None) => Ok(target),
        (_, Some(_)) => wrong("a cgroup is named for what is not counted in one"),
    }
}

pub(super) fn decode(attrs: &[Vec<u8>]) -> Result<Vec<Attr>, Refusal> {
    if attrs.is_empty() {
        return Err(Refusal::new(RefusalKind::Request, 0, errno::EINVAL, "a group has at least one event"));
    }
    let decode = |(index, bytes): (usize, &Vec<u8>)| {
        // A word that the kernel does not read is nothing that an event is asked.
        Attr::decode(bytes).map(|attr| without_filter(&attr)).map_err(|error| {
            let text = format!("the attribute of event {index} can't be read: {error}");
            Refusal::new(RefusalKind::Request, index as u32, errno::EINVAL, text)
        })
    };
    attrs.iter().enumerate().map(decode).collect()
}

pub(super) fn unknown(index: usize) -> Refusal {
    let index = u32::try_from(index).unwrap_or_default();
    Refusal::new(RefusalKind::Request, index, errno::EBADF, "the client has no event with this handle (any more)")
}

pub(super) fn too_many(whose: &str, key: &str, most: u32) -> Refusal {
    let text = format!("{whose} {most} events ({key} in the service's configuration)");
    Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, text)
}
