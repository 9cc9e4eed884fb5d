//! Commands whose `perf_event_open(2)` is supervised, though they know nothing of pmux.
//!
//! What it is: [`Supervisor`], at which the calls of a command and its descendants wait; [`OpenAttempt`], an open explained: what is to be
//! counted, where, and what becomes of it; [`Answers`], whether events are shared.
//! Read first: [`Supervisor::open`].
//!
//! **Invariant:** no caller gains anything by lying. What it has this process do is done with rights that it has itself; all else goes
//! on in the caller, where the kernel reads it anew and decides.

mod granted;
mod virtual_event;

use crate::command::{Command, Running};
use crate::error::Error;
use crate::refusal::Refusal;
use crate::server_api::ServedTarget;
use crate::session::Session;
pub use pmux_abi::attr::Sampling;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_linux::Errno;
use pmux_linux::diagnose::{GroupRole, TargetKind, Whose};
use pmux_linux::procfs::Status;
pub use pmux_linux::seccomp::{Call, FdCall, Handover, OpenCall};
use pmux_linux::seccomp::{Listener, NoAttr, OpenFlags};
use pmux_linux::spawn::{ExitedChild, PerfEvents};
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use virtual_event::{VirtualEvents, place_of};

/// Capabilities by their numbers. Source: `capabilities(7)`.
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;

/// What answers the calls of a command. Dropped, or with its process killed, it leaves running events as they are; later calls fail
/// with `ENOSYS`.
///
/// It polls as readable when a call waits, and as hung up when the command and all its descendants have ended.
pub struct Supervisor {
    listener: Listener,
    session: Session,
    answers: Answers,
    /// What `kernel.perf_event_paranoid` is taken to be for tasks of a container.
    paranoid: Option<i32>,
    virtual_events: VirtualEvents,
}

/// By what opens are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// Events that only count, of a CPU or of another process, are virtual: equal ones are one event of the kernel. All others are own.
    Virtual,
    /// Each event is one of the kernel for its caller alone.
    Own,
}

/// A call that was explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenAttempt {
    /// The process that called.
    pub process: i32,
    /// Its thread that did.
    pub thread: i32,
    /// The thread's name; empty where the call is not to be explained.
    pub command: String,
    /// The event, as it would be written on a command line; empty where it could not be read, or is not to be explained.
    pub event: String,
    /// What its samples are taken by.
    pub sampling: Sampling,
    /// Where it is to count.
    pub target: OpenTarget,
    /// Whether it is to join a group.
    pub is_member: bool,
    /// What becomes of it.
    pub answer: OpenAnswer,
}

/// Where an event is to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenTarget {
    /// The thread that calls.
    Caller {
        /// Only there.
        cpu: Option<u32>,
    },
    /// A task, by the number that the caller has given.
    Task {
        /// The number.
        task: i32,
        /// Only there.
        cpu: Option<u32>,
    },
    /// All that runs on a CPU; none where the caller has named none, which the kernel refuses.
    Cpu(Option<u32>),
    /// The tasks of a cgroup on a CPU.
    Cgroup {
        /// Only there.
        cpu: Option<u32>,
    },
}

/// What becomes of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenAnswer {
    /// The caller gets an event of its own, opened by the kernel.
    Own,
    /// An event of its own was opened for the caller by the right that its container was given; or that has failed, with this errno.
    Granted(Option<i32>),
    /// The caller gets a descriptor by which it reads and switches a counter that equal events share.
    Virtual,
    /// The kernel refuses it, for this reason.
    Refused(Refusal),
    /// The kernel decides, and what it says is not known here, for this reason.
    Untold(String),
}

impl OpenAnswer {
    /// Whether the call has ended with it.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        matches!(self, Self::Virtual | Self::Granted(_))
    }
}

impl fmt::Display for OpenTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = match *self {
            Self::Caller { cpu } => f.write_str("itself").map(|()| cpu),
            Self::Task { task, cpu } => write!(f, "task {task}").map(|()| cpu),
            Self::Cgroup { cpu } => f.write_str("a cgroup").map(|()| cpu),
            Self::Cpu(Some(cpu)) => return write!(f, "CPU {cpu}"),
            Self::Cpu(None) => return f.write_str("no task and no CPU"),
        }?;
        cpu.map_or(Ok(()), |cpu| write!(f, " on CPU {cpu}"))
    }
}

impl Command {
    /// As [`Command::hold`], for a command whose calls of `perf_event_open(2)` are answered by [`Running::take_supervisor`]. Without
    /// `CAP_SYS_ADMIN` neither it nor a descendant gains rights by an exec.
    ///
    /// # Errors
    /// As [`Command::hold`]. [`Command::release`] fails with [`Error::Spawn`] where it can't be supervised.
    pub fn hold_supervised<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Result<Self, Error> {
        Self::hold_as(words, |options| options.perf_events = PerfEvents::Supervised)
    }
}

impl Running {
    /// What has to answer the calls of a command that was started by [`Command::hold_supervised`], by events of this session; `None` for
    /// others, the second time, and where the command was killed before it began.
    ///
    /// # Errors
    /// [`Error::Wait`] where no file is left.
    pub fn take_supervisor(&mut self, session: &Session, answers: Answers) -> Result<Option<Supervisor>, Error> {
        self.child.take_listener().map(|listener| Supervisor::new(listener, session, answers)).transpose()
    }

    /// Whether a command that no session counts has ended, and how; `None` while it runs.
    ///
    /// # Errors
    /// [`Error::Wait`] where other code has reaped it.
    pub fn try_end(&mut self) -> Result<Option<ExitedChild>, Error> {
        self.child.try_wait().map_err(Error::Wait)
    }
}

/// The name of an error number, or the number.
#[must_use]
pub fn errno_name(errno: i32) -> String {
    format!("{:?}", Errno::from_raw(errno))
}

impl AsFd for Supervisor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Supervisor {
    fn new(listener: Listener, session: &Session, answers: Answers) -> Result<Self, Error> {
        let virtual_events = VirtualEvents::new().map_err(Error::Wait)?;
        // Without it, events that children inherit are not shared.
        let _ = session.note_forks();
        Ok(Self { listener, session: session.clone(), answers, paranoid: None, virtual_events })
    }

    /// What has to answer the calls of a container, whose runtime has passed the listener at this place among its files. With
    /// [`Answers::Virtual`] its profile has to report what is done to descriptors of virtual events, too.
    ///
    /// # Errors
    /// [`Error::Wait`]: `ENOENT` without such a file, `EINVAL` where it is no listener, `EMFILE`.
    pub fn of_container(handover: Handover, at: usize, session: &Session, answers: Answers) -> Result<Self, Error> {
        handover.listener(at).map_err(Error::Wait).and_then(|listener| Self::new(listener, session, answers))
    }

    /// From now on events of a container's tasks are opened as if `kernel.perf_event_paranoid` were `level` (2: user mode; 1: kernel mode as
    /// well), where the kernel's own value is higher. The container must have a PID namespace of its own.
    #[must_use]
    pub fn with_paranoid(mut self, level: Option<i32>) -> Self {
        self.paranoid = level;
        self
    }

    /// Waits for the next call; `None` when the command and all its descendants have ended. For one thread at a time.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub fn receive(&self) -> Result<Option<Call>, Error> {
        self.listener.receive().map_err(Error::Wait)
    }

    /// Lets a call go on in its caller, where the kernel carries it out.
    ///
    /// # Errors
    /// [`Error::Wait`] before Linux 5.5.
    pub fn go_on(&self, call: &OpenCall) -> Result<(), Error> {
        self.listener.go_on(call).map_err(Error::Wait)
    }

    /// By what its virtual events count.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Answers a call about a descriptor of a virtual event; any other one goes on.
    pub fn carry_out(&self, call: &FdCall) {
        self.virtual_events.carry_out(&self.listener, call);
    }

    /// Readable when [`Supervisor::close_unused`] has something to do.
    #[must_use]
    pub fn closed(&self) -> BorrowedFd<'_> {
        self.virtual_events.closed()
    }

    /// Closes virtual events that no program has any more.
    pub fn close_unused(&self) {
        self.virtual_events.close_unused();
    }

    /// What a call asks for, and what becomes of it. A virtual or granted event is given at once; every other call still waits, and
    /// [`Supervisor::go_on`] has to follow. With `explains`, what the kernel will say is tried by opening the same event and
    /// closing it again. `None` where the call doesn't wait any more, or its arguments alone show that it is the kernel's and nothing is to
    /// be explained.
    ///
    /// It takes as long as the caller's memory takes to be read, which is not bounded: call it from a thread on which nothing else
    /// depends.
    #[must_use]
    pub fn open(&self, call: &OpenCall, explains: bool) -> Option<OpenAttempt> {
        let (listener, proc) = (&self.listener, self.listener.proc());
        let place = place_of(call).filter(|_| self.answers == Answers::Virtual);
        if place.is_none() && !explains && self.paranoid.is_none() {
            self.virtual_events.make_room_for_member(listener, call);
            return None;
        }
        let bytes = call.attr_bytes();
        let status = proc.status(call.thread);
        let command = if explains { proc.comm(call.thread).unwrap_or_default() } else { String::new() };
        let own_rights = self.has_our_rights(call.thread, status.as_ref().ok());
        let place = place.filter(|place| match *place {
            // The rights of a thread are changed by that thread only, and it waits.
            ServedTarget::Cpu(_) => own_rights.is_ok() || self.may_count_cpus(call.thread, status.as_ref().ok()),
            // What counts itself reads often.
            _ => own_rights.is_ok() && proc.process_of(call.pid).ok() != status.as_ref().ok().map(|of| of.process),
        });
        // All of that is about the caller, if it waits until now.
        if !listener.still_waits(call) {
            return None;
        }
        let process = status.as_ref().map_or(call.thread, |status| status.process);
        let attr = bytes.as_ref().ok().and_then(|bytes| Attr::decode(bytes).ok());
        let answer = match (own_rights, &bytes) {
            (_, Err(NoAttr::Size(size))) => OpenAnswer::Refused(Refusal::of_size(*size)),
            (_, Err(NoAttr::Memory(Errno::EFAULT))) => OpenAnswer::Refused(Refusal::of_address()),
            (_, Err(NoAttr::Memory(errno))) => OpenAnswer::Untold(format!("its memory can't be read: {errno}")),
            (own_rights, Ok(bytes)) => {
                let shared = attr.zip(place);
                let give =
                    |(attr, place)| self.virtual_events.open(&self.session, listener, (call, place), (bytes, &attr));
                if shared.and_then(give).is_some() {
                    OpenAnswer::Virtual
                } else {
                    self.virtual_events.make_room_for_member(listener, call);
                    match own_rights {
                        Ok(()) => self.own(call, process, (bytes, attr), explains),
                        Err(why) => self.grant(call, (bytes, attr)).unwrap_or(OpenAnswer::Untold(why)),
                    }
                }
            }
        };
        Some(OpenAttempt {
            process,
            thread: call.thread,
            command,
            // The names of tracepoints are many files.
            event: attr.filter(|_| explains).map(|attr| self.describe(attr, call)).unwrap_or_default(),
            sampling: attr.map_or(Sampling::None, |attr| attr.sampling),
            target: target_of(call),
            is_member: is_member(call),
            answer,
        })
    }

    /// The event as it would be written on a command line.
    fn describe(&self, mut attr: Attr, call: &OpenCall) -> String {
        if matches!(target_of(call), OpenTarget::Cpu(_)) {
            // No task inherits it.
            attr.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_THREAD);
        }
        self.session.describe(&attr)
    }

    /// Gives the caller an event that its container is allowed, and the kernel's rule for all users is against; `None` where it is not allowed.
    fn grant(&self, call: &OpenCall, (bytes, attr): (&[u8], Option<Attr>)) -> Option<OpenAnswer> {
        let level = self.paranoid?;
        let attr = attr.filter(|attr| granted::is_covered(attr, level))?;
        if self.session.paranoid() <= granted::highest_level(&attr) || are_labels_asked() {
            return None;
        }
        let opened = self.listener.open_within(call, bytes);
        match opened.and_then(|event| self.listener.answer_with_file(call, event.as_fd())) {
            Ok(()) => Some(OpenAnswer::Granted(None)),
            Err(Errno::EACCES) => None,
            // What the kernel has to say of the event itself.
            Err(errno) => {
                self.listener.answer(call, Err(errno));
                Some(OpenAnswer::Granted(Some(errno.raw())))
            }
        }
    }

    /// What the kernel will say.
    fn own(&self, call: &OpenCall, process: i32, (bytes, attr): (&[u8], Option<Attr>), explains: bool) -> OpenAnswer {
        if !explains {
            return OpenAnswer::Untold("it was not asked".to_owned());
        }
        if attr.is_some_and(|attr| self.session.is_probe(attr.kind)) {
            return OpenAnswer::Untold("it names its probe in its own memory".to_owned());
        }
        match call.attempt(bytes, self.listener.proc()) {
            Ok(()) => OpenAnswer::Own,
            Err(errno) => OpenAnswer::Refused(self.refusal(call, process, attr, errno)),
        }
    }

    /// Whether the kernel decides about this process as about a caller; the reason why not.
    fn has_our_rights(&self, thread: i32, status: Option<&Status>) -> Result<(), String> {
        let (Some(theirs), Ok(ours)) = (status, self.listener.proc().own_status()) else {
            return Err("its rights can't be read".to_owned());
        };
        let own = std::process::id().cast_signed();
        let namespace = pmux_linux::peer::user_namespace_of;
        if theirs.pid_namespaces != ours.pid_namespaces {
            Err("it is in another PID namespace".to_owned())
        } else if namespace(thread).is_none() || namespace(thread) != namespace(own) {
            Err("it is in another user namespace".to_owned())
        } else if (theirs.users, theirs.groups) != (ours.users, ours.groups) {
            Err(format!("it runs as user {}", theirs.users.effective))
        } else if (theirs.permitted_capabilities, theirs.effective_capabilities)
            != (ours.permitted_capabilities, ours.effective_capabilities)
        {
            Err("it has other capabilities".to_owned())
        } else if !self.has_our_label(thread) {
            Err("it has another label of a security module".to_owned())
        } else {
            Ok(())
        }
    }

    /// Whether a security module that is asked about one of us is asked about the other.
    fn has_our_label(&self, thread: i32) -> bool {
        let label = |task: &str| std::fs::read(self.listener.proc().root().join(task).join("attr/current")).ok();
        label(&thread.to_string()) == label("self")
    }

    /// Whether the kernel lets a caller without our rights count whole CPUs, by a capability of its own.
    fn may_count_cpus(&self, thread: i32, status: Option<&Status>) -> bool {
        let namespace = pmux_linux::peer::user_namespace_of;
        let ours = namespace(std::process::id().cast_signed());
        status.is_some_and(|status| status.effective_capabilities & (SYS_ADMIN | PERFMON) != 0)
            && ours.is_some()
            && namespace(thread) == ours
            && self.has_our_label(thread)
    }

    fn refusal(&self, call: &OpenCall, process: i32, attr: Option<Attr>, errno: Errno) -> Refusal {
        let target = match target_of(call) {
            OpenTarget::Caller { .. } => TargetKind::Task(Whose::Own),
            OpenTarget::Task { task, .. } if self.listener.proc().process_of(task).is_ok_and(|of| of == process) => {
                TargetKind::Task(Whose::Own)
            }
            OpenTarget::Task { .. } => TargetKind::Task(Whose::Other),
            OpenTarget::Cpu(cpu) => TargetKind::Cpu(cpu.unwrap_or(0)),
            OpenTarget::Cgroup { .. } => TargetKind::Cgroup,
        };
        let role = if is_member(call) { GroupRole::Member } else { GroupRole::Leader };
        self.session.refusal_of(errno.raw(), &attr.unwrap_or_default(), target, role)
    }
}

/// Whether SELinux is there: it would be asked about our label, and not the caller's.
fn are_labels_asked() -> bool {
    // Its own file system may not be mounted where this process runs.
    std::fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("selinuxfs"))
}

fn target_of(call: &OpenCall) -> OpenTarget {
    let cpu = u32::try_from(call.cpu).ok();
    match call.pid {
        _ if call.flags.has(OpenFlags::CGROUP) => OpenTarget::Cgroup { cpu },
        0 => OpenTarget::Caller { cpu },
        -1 => OpenTarget::Cpu(cpu),
        task => OpenTarget::Task { task, cpu },
    }
}

fn is_member(call: &OpenCall) -> bool {
    call.group_fd != -1 && !call.flags.has(OpenFlags::NO_GROUP)
}
