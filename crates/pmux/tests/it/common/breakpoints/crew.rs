//! Tasks that do nothing, for others to set breakpoints on.
//!
//! What it is: [`Idle`], a thread or a process that waits for its end and, if it is a thread, starts others of either kind, which
//! inherit what stands on it; and [`Crew`], some of them by place.
//!
//! **Invariant:** when one has ended, the kernel has taken from it what it inherited.

use super::party::Answer;
use super::step::ChildKind;
use pmux_abi::attr::{Attr, EventType, sw};
use pmux_engine::target::{ContextKey, Filter};
use pmux_linux::host::{LinuxBank, LinuxHost};
use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

type Orders = mpsc::Sender<(ChildKind, mpsc::Sender<io::Result<Idle>>)>;

enum Life {
    Thread(Orders, JoinHandle<()>),
    Process(Child),
    Over,
}

/// A task that does nothing until it is dropped.
pub struct Idle {
    pub tid: i32,
    life: Life,
}

/// A process that ended and was not waited for yet.
pub struct Zombie(Child);

impl Idle {
    /// A thread, by the one that calls.
    pub fn start() -> Self {
        Self::begin(ChildKind::Thread).unwrap()
    }

    fn begin(child_kind: ChildKind) -> io::Result<Self> {
        // Others may have as many tasks at this moment as there may be.
        for _ in 0..1000 {
            match Self::try_to_begin(child_kind) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                begun => return begun,
            }
        }
        Self::try_to_begin(child_kind)
    }

    fn try_to_begin(child_kind: ChildKind) -> io::Result<Self> {
        match child_kind {
            ChildKind::Thread => {
                let (orders, ordered) = mpsc::channel::<(ChildKind, mpsc::Sender<io::Result<Self>>)>();
                let (sender, receiver) = mpsc::channel();
                let thread = std::thread::Builder::new().spawn(move || {
                    sender.send(pmux_linux::current_tid()).unwrap();
                    for (child_kind, answer) in ordered {
                        answer.send(Self::begin(child_kind)).unwrap();
                    }
                })?;
                Ok(Self { tid: receiver.recv().unwrap(), life: Life::Thread(orders, thread) })
            }
            ChildKind::Process => {
                // It gives back what it is told, and waits for the end of its input.
                let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                // Until it has begun its program, it has a copy of our open events, so that none is closed.
                child.stdin.as_mut().unwrap().write_all(b"?")?;
                child.stdout.as_mut().unwrap().read_exact(&mut [0])?;
                Ok(Self { tid: child.id().cast_signed(), life: Life::Process(child) })
            }
        }
    }

    /// Lets it start another one.
    ///
    /// Errors: the kernel's; a process starts no other task.
    pub fn fork(&self, child_kind: ChildKind) -> io::Result<Self> {
        let Life::Thread(orders, _) = &self.life else { return Err(io::ErrorKind::Unsupported.into()) };
        let (answer, answered) = mpsc::channel();
        orders.send((child_kind, answer)).unwrap();
        answered.recv().unwrap()
    }

    /// Lets it end. A process stays there until it is waited for.
    pub fn end(mut self) -> Option<Zombie> {
        self.finish()
    }

    fn finish(&mut self) -> Option<Zombie> {
        match std::mem::replace(&mut self.life, Life::Over) {
            Life::Thread(orders, thread) => {
                drop(orders);
                thread.join().unwrap();
                // It has ended for us before the kernel has taken its events from it.
                until(|| !std::path::Path::new(&format!("/proc/self/task/{}", self.tid)).exists());
                None
            }
            Life::Process(mut child) => {
                drop(child.stdin.take());
                let proc = pmux_linux::procfs::Proc::system();
                until(|| proc.stat(self.tid).is_ok_and(|stat| stat.state == 'Z'));
                Some(Zombie(child))
            }
            Life::Over => None,
        }
    }
}

fn until(so: impl Fn() -> bool) {
    while !so() {
        std::thread::sleep(Duration::from_micros(20));
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

impl Drop for Zombie {
    fn drop(&mut self) {
        self.0.wait().unwrap();
    }
}

/// So many processes that ended are waited for later.
const ZOMBIES: usize = 3;

/// Whether the kernel may exchange the events of tasks.
///
/// On a switch between a task and its child whose events are all inherited, it exchanges the two sets instead of the registers'
/// contents. From then on the one that exits gives back the registers that count as the other one's. A task with an event that is
/// not inherited takes no part in that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchange {
    /// Each task has such an event: who holds what is known.
    Never,
    /// As it happens.
    AsItHappens,
}

/// Tasks by place.
pub struct Crew {
    exchange: Exchange,
    /// What is not inherited, of each place.
    apart: Vec<Option<LinuxBank>>,
    places: Vec<Idle>,
    zombies: Vec<Zombie>,
    /// The numbers that tasks had: none is used again, for what a task held that is gone is told by its number.
    used: HashSet<i32>,
}

impl Crew {
    pub fn new(threads: usize, exchange: Exchange) -> Self {
        let (places, apart) = (Vec::new(), Vec::new());
        let mut crew = Self { exchange, apart, places, zombies: Vec::new(), used: HashSet::new() };
        for _ in 0..threads {
            let idle = crew.fresh(|| Ok(Idle::start())).unwrap();
            let apart = crew.keep_apart(&idle);
            crew.apart.push(apart);
            crew.places.push(idle);
        }
        crew
    }

    /// It is not exchanged before either: it has no events yet, or those of a parent with an event that is not inherited.
    fn keep_apart(&self, idle: &Idle) -> Option<LinuxBank> {
        let dummy = Attr { kind: EventType::SOFTWARE, config: sw::DUMMY, ..Attr::default() };
        let key = ContextKey::Task(LinuxHost::task(idle.tid));
        let apart = || super::kernel::open(&LinuxHost::new(), key, Filter::Everything, &dummy).unwrap();
        (self.exchange == Exchange::Never).then(apart)
    }

    fn fresh(&mut self, start: impl Fn() -> io::Result<Idle>) -> io::Result<Idle> {
        // They wait for their end until there is one with a number of its own.
        let mut again = Vec::new();
        loop {
            let idle = start()?;
            if self.used.insert(idle.tid) {
                return Ok(idle);
            }
            again.push(idle);
        }
    }

    pub fn tid(&self, place: usize) -> i32 {
        self.places[place].tid
    }

    /// A fresh thread takes the place of another.
    pub fn replace(&mut self, place: usize) {
        let idle = self.fresh(|| Ok(Idle::start())).unwrap();
        self.put(place, idle);
    }

    /// The task at a place ends, and a child of another one takes its place; that stays empty where there is no register for what the
    /// child would inherit.
    pub fn fork(&mut self, parent: usize, place: usize, child_kind: ChildKind) -> Answer {
        const ENOSPC: i32 = 28;
        // It ends first, and leaves no task behind.
        self.replace(place);
        let idle = match self.places[parent].fork(child_kind) {
            Err(error) if error.raw_os_error() == Some(ENOSPC) => return Answer::Full,
            forked => forked.unwrap(),
        };
        if !self.used.insert(idle.tid) {
            drop(idle);
            return self.fork(parent, place, child_kind);
        }
        self.put(place, idle);
        Answer::Granted
    }

    fn put(&mut self, place: usize, idle: Idle) {
        let apart = self.keep_apart(&idle);
        let before = std::mem::replace(&mut self.places[place], idle);
        self.zombies.extend(before.end());
        self.apart[place] = apart;
        if self.zombies.len() > ZOMBIES {
            self.zombies.remove(0);
        }
    }
}
