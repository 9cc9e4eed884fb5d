//! The seccomp agent: where runtimes of containers pass the listeners of their profiles.
//!
//! What it is: a thread that accepts connections, and starts a process for each (`pmux run --container`), which has the connection as its
//! standard input and answers the calls of that container. The service reads nothing that comes through the connection. Such a process
//! outlives the service, since nothing else can answer for its container.
//!
//! **Invariant:** the loop waits for nothing here; a container that keeps its process busy or stuck holds up itself only.

use crate::config::Level;
use crate::log::Log;
use pmux::server_api::shared::listener::bind_stream;
use pmux::server_api::shared::poll::{Interest, Poll, Token};
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

const LISTENER: Token = Token(0);
const WAKE: Token = Token(1);
/// So many containers have a process at once.
const MOST: usize = 1024;
/// How long no container is taken in when no process or file is left.
const PAUSE: Duration = Duration::from_millis(100);
const STACK: usize = 64 * 1024;

/// A thread that takes containers in; dropped, it ends.
pub(crate) struct SeccompAgent {
    pub(crate) path: PathBuf,
    /// The end of the stream tells the thread to end.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl SeccompAgent {
    /// Listens at `path`, which only this process's user may connect to. What is started there finds the service at `service`, or at the
    /// usual place, and takes `kernel.perf_event_paranoid` to be `paranoid` for containers.
    pub(crate) fn start(
        path: &Path,
        (service, paranoid): (Option<&Path>, Option<i32>),
        log: &Log,
    ) -> Result<Self, String> {
        let failed = |error: &dyn Display| format!("containers can't be taken in at {}: {error}", path.display());
        let listener = bind_stream(path, 0o600).map_err(|error| failed(&error))?;
        listener.set_nonblocking(true).map_err(|error| failed(&error))?;
        let (wake, woken) = UnixStream::pair().map_err(|error| failed(&error))?;
        let poll = Poll::new().map_err(|error| failed(&error))?;
        poll.add(&listener, LISTENER, Interest::Read).map_err(|error| failed(&error))?;
        poll.add(&woken, WAKE, Interest::Read).map_err(|error| failed(&error))?;
        let service = service.map(Path::to_owned);
        let entrance = Entrance { listener, poll, _woken: woken, service, paranoid, log: log.clone() };
        let thread = std::thread::Builder::new().name("pmux-agent".to_owned());
        let thread = thread.spawn(move || entrance.run()).map_err(|error| failed(&error))?;
        log.write(Level::Info, format_args!("containers are taken in at {}", path.display()));
        Ok(Self { path: path.to_owned(), wake: Some(wake), thread: Some(thread) })
    }
}

impl Drop for SeccompAgent {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Entrance {
    listener: UnixListener,
    poll: Poll,
    _woken: UnixStream,
    service: Option<PathBuf>,
    paranoid: Option<i32>,
    log: Log,
}

impl Entrance {
    fn run(self) {
        // Each waiting thread has one.
        let places = Arc::new(());
        loop {
            let (mut is_over, mut comes) = (false, false);
            let waited = self.poll.wait(None, |ready| match ready.token {
                WAKE => is_over = true,
                _ => comes = true,
            });
            if is_over {
                return;
            }
            if waited.is_err() {
                std::thread::sleep(PAUSE);
            } else if comes && let Err(error) = self.take_in(&places) {
                self.log.write(Level::Error, format_args!("a container was not taken in: {error}"));
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn take_in(&self, places: &Arc<()>) -> Result<(), String> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        if Arc::strong_count(places) > MOST {
            return Err(format!("{MOST} of them are here already"));
        }
        let child = self.supervisor(stream).map_err(|error| format!("no process could be started for it: {error}"))?;
        let (place, log) = (Arc::clone(places), self.log.clone());
        let thread = std::thread::Builder::new().name("pmux-container".to_owned()).stack_size(STACK);
        let waits = thread.spawn(move || {
            await_end(child, &log);
            drop(place);
        });
        // Without a thread the container is answered for all the same; its process is reaped when the service has ended.
        waits.map(drop).map_err(|error| format!("no thread waits for its process: {error}"))
    }

    /// The process that answers for a container. It is this program, also where its file was replaced since.
    fn supervisor(&self, runtime: UnixStream) -> std::io::Result<Child> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("pmux").args(["run", "--container"]);
        if let Some(service) = &self.service {
            command.arg("--shared=auto").arg("--socket").arg(service);
        }
        if let Some(level) = self.paranoid {
            command.arg("--paranoid").arg(level.to_string());
        }
        if self.log.wants(Level::Debug) {
            command.arg("--explain");
        }
        // It is no service of systemd's.
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command.stdin(OwnedFd::from(runtime)).stdout(Stdio::null()).spawn()
    }
}

fn await_end(mut child: Child, log: &Log) {
    let process = child.id();
    match child.wait() {
        Ok(status) if status.success() => {}
        Ok(status) => log.write(
            Level::Error,
            format_args!("the process {process} that answered for a container has ended: {status}; if that still runs, it can't open events any more (ENOSYS)"),
        ),
        Err(error) => log.write(Level::Error, format_args!("the process {process} of a container: {error}")),
    }
}
