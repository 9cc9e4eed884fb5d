//! A service for tests: an engine of its own behind a socket, and whatever a test wants to go wrong.
//!
//! What it is: one thread that answers, shares nothing, allows everything, and does as it is told ([`FakeBehavior`], [`Fake::move_all`],
//! [`Fake::kill`]).
//!
//! **Invariant:** what it says of counts is true, unless a test wants lies.

use pmux_abi::attr::{Attr, AttrFlags, EventType, sw};
use pmux_engine::target::Opened as Group;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{CpuId, EventState, GroupSpec, Target};
use pmux_linux::Errno;
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost};
use pmux_linux::shared::channel::{Channel, PacketBuffer, Received};
use pmux_linux::shared::listener::Listener;
use pmux_linux::shared::page::{Base, Entry, PageWriter};
use pmux_linux::shared::poll::{Interest, Poll, Token};
use pmux_linux::shared::wire::{
    Context, EventOp, Handle, Limits, Narrowing, Notice, Open, Opened, OptIn, Part, PassedFile, Refusal, RefusalKind,
    Reply, Request, Rights, ServedPage, TimedTotals, Totals, ValueIndex, Welcome, decode_request, encode_reply,
};
use pmux_linux::worker::monotonic_ns;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const ENTRIES: u32 = 64;

#[derive(Clone, Default)]
pub(crate) struct FakeBehavior {
    pub(crate) no_files: bool,
    pub(crate) no_page: bool,
    /// It answers every opening like this.
    pub(crate) refuses: Option<Refusal>,
    /// It answers every opening with something else.
    pub(crate) lies: Option<Reply>,
    /// It answers every opening with these bytes.
    pub(crate) babbles: Option<Vec<u8>>,
    /// It answers every opening under this number more than the request's.
    pub(crate) renumbers: u32,
    pub(crate) is_silent: bool,
}

/// An engine for all CPUs.
pub(crate) fn engine() -> LinuxEngine {
    LinuxHost::engine(pmux_linux::cpus::Cpus::system().online().unwrap().iter())
}

/// A software event, in user mode.
pub(crate) fn software(config: u64) -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::DISABLED;
    Attr { kind: EventType::SOFTWARE, config, flags, ..Attr::default() }
}

/// One for each page that is touched for the first time.
pub(crate) fn faults() -> Attr {
    software(sw::PAGE_FAULTS)
}

pub(crate) struct Fake {
    /// What is to be done, or the end.
    orders: Sender<Option<fn(&mut Server)>>,
    answers: Receiver<(usize, u64)>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub(crate) fn start(path: &Path, behavior: FakeBehavior) -> Self {
        let (orders, to_do) = channel();
        let (done, answers) = channel();
        let listener = Listener::bind(path, 0o600).unwrap();
        let thread = std::thread::spawn(move || {
            Server::new(behavior).run(&listener, &to_do, &done);
        });
        Self { orders, answers, thread: Some(thread) }
    }

    /// Lets other files tell of all that is open.
    pub(crate) fn move_all(&self) {
        self.order(Server::move_all);
    }

    /// Lets the page say what is counted now.
    pub(crate) fn refresh(&self) {
        self.order(Server::refresh);
    }

    /// How many events are open, and how many requests there were.
    pub(crate) fn census(&self) -> (usize, u64) {
        self.order(|_| ())
    }

    fn order(&self, order: fn(&mut Server)) -> (usize, u64) {
        self.orders.send(Some(order)).unwrap();
        self.answers.recv().unwrap()
    }

    /// Its end, without a word.
    pub(crate) fn kill(self) {}
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.orders.send(None);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Server {
    engine: LinuxEngine,
    behavior: FakeBehavior,
    clients: Vec<Client>,
    next_handle: u64,
    requests: u64,
}

struct Client {
    channel: Channel,
    page: Option<PageWriter>,
    groups: HashMap<u64, Served>,
    next_entry: u32,
}

/// A group that is open; its handles follow on each other.
struct Served {
    question: Open,
    group: Group,
    first: u64,
    first_entry: u32,
    on: Vec<bool>,
    /// What was counted before it was moved.
    before: Vec<Totals>,
}

impl Served {
    /// Which of its events has a handle.
    fn place_of(&self, handle: Handle) -> Option<usize> {
        (self.first..).take(self.on.len()).position(|own| own == handle.0)
    }
}

fn totals(count: pmux_engine::Count) -> Totals {
    Totals { value: count.value, enabled_ns: count.enabled.0, running_ns: count.running.0 }
}

impl Server {
    fn new(behavior: FakeBehavior) -> Self {
        let engine = engine();
        engine.host().let_files_be_passed();
        Self { engine, behavior, clients: Vec::new(), next_handle: 1000, requests: 0 }
    }

    fn run(mut self, listener: &Listener, to_do: &Receiver<Option<fn(&mut Self)>>, done: &Sender<(usize, u64)>) {
        let mut buffer = PacketBuffer::new();
        let poll = Poll::new().unwrap();
        poll.add(listener, Token(0), Interest::Read).unwrap();
        loop {
            // The thread that gives orders waits a moment for them to be heard.
            poll.wait(Some(Duration::from_millis(1)), |_| ()).unwrap();
            match to_do.try_recv() {
                Ok(Some(order)) => {
                    order(&mut self);
                    let groups = self.clients.iter().flat_map(|client| client.groups.values());
                    done.send((groups.map(|group| group.on.len()).sum(), self.requests)).unwrap();
                }
                Ok(None) => return,
                Err(_) => {}
            }
            while let Some(channel) = listener.accept().unwrap() {
                poll.add(&channel, Token(1), Interest::Read).unwrap();
                self.clients.push(Client { channel, page: None, groups: HashMap::new(), next_entry: 0 });
            }
            for at in (0..self.clients.len()).rev() {
                loop {
                    match self.clients[at].channel.receive(&mut buffer, 0).unwrap() {
                        Received::Packet(bytes, _) => {
                            let (number, request) = decode_request(buffer.bytes(bytes)).unwrap();
                            self.requests += 1;
                            self.answer(at, number, request);
                        }
                        Received::Nothing => break,
                        Received::End | Received::Cut | Received::Stranger => {
                            let client = self.clients.remove(at);
                            client.groups.values().for_each(|served| self.engine.close(served.group.group));
                            break;
                        }
                    }
                }
            }
        }
    }

    fn answer(&mut self, at: usize, number: u32, request: Request) {
        if self.behavior.is_silent {
            return;
        }
        if let (Request::Open(_), Some(bytes)) = (&request, &self.behavior.babbles) {
            let _ = self.clients[at].channel.send(bytes, &[]);
            return;
        }
        let mut client = self.clients.swap_remove(at);
        let mut passed = Vec::new();
        let number = number + if matches!(request, Request::Open(_)) { self.behavior.renumbers } else { 0 };
        let reply = match request {
            Request::Hello(hello) => {
                assert!(hello.oldest_version <= 1 && hello.newest_version >= 1);
                assert_ne!(hello.pid_namespace, 0);
                let page = (!self.behavior.no_page).then(|| PageWriter::make(ENTRIES).unwrap());
                let served_page = page.as_ref().map(|_| ServedPage { entries: ENTRIES, refresh_ms: 0 });
                if let Some((writer, file)) = page {
                    client.page = Some(writer);
                    passed.push(file);
                }
                let limits = Limits { events: 100, requests_per_second: 100 };
                let rights = Rights { files: true, system_wide: true, tasks: true };
                Reply::Welcome(Welcome { version: 1, epoch: 1, limits, rights, page: served_page })
            }
            Request::Open(question) => match (&self.behavior.refuses, &self.behavior.lies) {
                (Some(refusal), _) => Reply::Refused(refusal.clone()),
                (None, Some(lie)) => lie.clone(),
                (None, None) => self.open(&mut client, question, &mut passed),
            },
            Request::Control { handle, op } => self.control(&mut client, handle, &op),
            Request::Read { handles } => {
                Reply::Values { values: handles.iter().map(|&handle| self.read(&client, handle)).collect() }
            }
            Request::Renew { handle } => {
                let served = &client.groups[&handle.0];
                self.opened(served, client.page.is_some(), &mut passed)
            }
            Request::Close { handles } => {
                for handle in handles {
                    if let Some(served) = client.groups.remove(&handle.0) {
                        self.engine.close(served.group.group);
                    }
                }
                Reply::Done
            }
            Request::Status { .. } => {
                for text in ["{\"events\":", " 1"] {
                    let part = Reply::StatusReport { part: Part::More, text: text.into() };
                    client.channel.send(&encode_reply(number, &part).unwrap(), &[]).unwrap();
                }
                Reply::StatusReport { part: Part::Last, text: "}".into() }
            }
            Request::Ping => Reply::Done,
            // It speaks an older version: no client asks for records.
            other @ (Request::Weigh { .. }
            | Request::Subscribe(_)
            | Request::Numbers { .. }
            | Request::OpenCgroup(_)) => panic!("{other:?}"),
        };
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        // The client may have gone.
        let _ = client.channel.send(&encode_reply(number, &reply).unwrap(), &passed);
        self.clients.push(client);
        let last = self.clients.len() - 1;
        self.clients.swap(at, last);
    }

    fn open_group(&self, question: &Open) -> Result<Group, Refusal> {
        let attrs = question.attrs.iter().map(|bytes| (KERNEL, Attr::decode(bytes).unwrap()));
        let spec = GroupSpec { events: attrs.collect() };
        let context = match question.context {
            Context::Task(tid) => ContextKey::Task(LinuxHost::task(tid.cast_signed())),
            Context::Cpu(cpu) => ContextKey::Cpu(CpuId(cpu)),
        };
        let filter = match question.narrowing {
            Narrowing::OnCpu(cpu) => Filter::OnCpu(CpuId(cpu)),
            _ => Filter::Everything,
        };
        self.engine.open(&spec, Target { context, filter }).map_err(|error| {
            let index = u32::try_from(error.index().unwrap_or_default()).unwrap();
            Refusal::new(RefusalKind::Kernel, index, error.errno(), error.to_string())
        })
    }

    fn open(&mut self, client: &mut Client, question: Open, passed: &mut Vec<std::os::fd::OwnedFd>) -> Reply {
        let group = match self.open_group(&question) {
            Ok(group) => group,
            Err(refusal) => return Reply::Refused(refusal),
        };
        let (first, first_entry, count) = (self.next_handle, client.next_entry, group.events.len());
        self.next_handle += count as u64;
        client.next_entry += count as u32;
        let (on, before) = (vec![false; count], vec![Totals::default(); count]);
        let served = Served { question, group, first, first_entry, on, before };
        self.show(client.page.as_mut(), &served);
        let reply = self.opened(&served, client.page.is_some(), passed);
        client.groups.insert(first, served);
        reply
    }

    fn opened(&self, served: &Served, page: bool, passed: &mut Vec<std::os::fd::OwnedFd>) -> Reply {
        let count = served.on.len() as u32;
        let handles = (served.first..).take(count as usize).map(Handle).collect();
        let entries = if page { (served.first_entry..).take(count as usize).collect() } else { Vec::new() };
        let mut files: Vec<PassedFile> = Vec::new();
        if page && !self.behavior.no_files && served.question.files == OptIn::Wanted {
            for (event, &id) in (0..).zip(&served.group.events) {
                let file = self.engine.host().passable(self.engine.lease(id).unwrap()).unwrap();
                let place = ValueIndex { event, value: file.place as u32 };
                match files.iter_mut().find(|known| known.number == file.number) {
                    Some(known) => known.places.push(place),
                    None => {
                        passed.push(file.as_fd().try_clone_to_owned().unwrap());
                        let (number, read_format, values) = (file.number, file.read_format, file.values as u32);
                        files.push(PassedFile { number, read_format, values, places: vec![place] });
                    }
                }
                if let Some(own) = file.own() {
                    passed.push(own.try_clone_to_owned().unwrap());
                    files.push(PassedFile { number: 0, read_format: file.read_format, values: 1, places: Vec::new() });
                }
            }
        }
        Reply::Opened(Opened { handles, entries, files })
    }

    fn counted(&self, served: &Served, index: usize) -> Result<Totals, i32> {
        let count = self.engine.read(served.group.events[index]).map_err(|error| error.errno())?;
        Ok(served.before[index].plus(totals(count)))
    }

    fn show(&self, page: Option<&mut PageWriter>, served: &Served) {
        let Some(page) = page else { return };
        for index in 0..served.on.len() {
            let counted = self.counted(served, index).unwrap_or_default();
            let base = if served.on[index] {
                let file = self.engine.host().passable(self.engine.lease(served.group.events[index]).unwrap());
                Base::File(file.unwrap().number, Totals::default().less(served.before[index]))
            } else {
                Base::Stopped(counted)
            };
            let moment = TimedTotals { totals: counted, time_ns: monotonic_ns() };
            let handle = Handle(served.first + index as u64);
            page.write(served.first_entry + index as u32, &Entry { handle, moment, base });
        }
    }

    fn control(&mut self, client: &mut Client, handle: Handle, op: &EventOp) -> Reply {
        let mut groups = client.groups.values_mut();
        let Some((index, served)) = groups.find_map(|served| Some((served.place_of(handle)?, served))) else {
            return Reply::Refused(Refusal::new(RefusalKind::Request, 0, Errno::EBADF.raw(), "no such event"));
        };
        let event = served.group.events[index];
        let done = match op {
            EventOp::Enable => {
                served.on[index] = true;
                self.engine.enable(event).map_err(|error| error.errno())
            }
            EventOp::Disable => {
                served.on[index] = false;
                self.engine.disable(event).map_err(|error| error.errno())
            }
            EventOp::Modify(bytes) => {
                self.engine.modify(event, &Attr::decode(bytes).unwrap()).map_err(|error| error.errno())
            }
            other => panic!("{other:?} was never asked for"),
        };
        self.show(client.page.as_mut(), served);
        match done {
            Ok(()) => Reply::Done,
            Err(errno) => Reply::Refused(Refusal::new(RefusalKind::Kernel, 0, errno, "refused")),
        }
    }

    fn read(&self, client: &Client, handle: Handle) -> Result<TimedTotals, i32> {
        let found = client.groups.values().find_map(|served| Some((served, served.place_of(handle)?)));
        let (served, index) = found.ok_or(Errno::EBADF.raw())?;
        Ok(TimedTotals { totals: self.counted(served, index)?, time_ns: monotonic_ns() })
    }

    fn refresh(&mut self) {
        let mut clients = std::mem::take(&mut self.clients);
        for client in &mut clients {
            for served in client.groups.values() {
                self.show(client.page.as_mut(), served);
            }
        }
        self.clients = clients;
    }

    fn move_all(&mut self) {
        let mut clients = std::mem::take(&mut self.clients);
        for client in &mut clients {
            let mut moved = Vec::new();
            for served in client.groups.values_mut() {
                for index in 0..served.on.len() {
                    served.before[index] = self.counted(served, index).unwrap();
                }
                self.engine.close(served.group.group);
                served.group = self.open_group(&served.question).unwrap();
                for (index, &event) in served.group.events.iter().enumerate().rev() {
                    if served.on[index] {
                        self.engine.enable(event).unwrap();
                        assert_ne!(self.engine.state(event).unwrap(), EventState::Error);
                    }
                }
                self.show(client.page.as_mut(), served);
                moved.push(Handle(served.first));
            }
            let notice = encode_reply(0, &Reply::Notice(Notice::Moved { handles: moved })).unwrap();
            client.channel.send(&notice, &[]).unwrap();
        }
        self.clients = clients;
    }
}
