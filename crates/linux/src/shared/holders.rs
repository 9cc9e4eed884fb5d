//! Processes that release what the service must not: sockets with files of their senders in them.
//!
//! What it is: [`Holders`]. A socket is sent to a child (`crate::sys`, `fork_holder`), and released when that child exits. An exit takes
//! as long as the senders of the files like (a FUSE file can keep it in D state), so the number of children is limited. When so many are
//! about to exit, the last one stays and takes all further sockets, and exits when another one has.
//!
//! One limit for all users suffices: a user who has reached it delays only the release of files that other users have sent
//! as well, and no user has a reason to send some. The kernel limits how many files of a user are on their way (`RLIMIT_NOFILE` of the
//! sender, `too_many_unix_fds` in net/unix).
//!
//! **Invariant:** no socket that was given here is closed last by this process.

use crate::sys::{self, Errno, Reaping};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Children at once.
const MOST: usize = 8;

/// Children that hold sockets, and those that are about to exit.
#[derive(Debug)]
pub(super) struct Holders {
    /// The child that takes sockets, and the socket that they are sent to.
    taking: Option<(i32, OwnedFd)>,
    exiting: Vec<i32>,
    /// Sockets that no child could take so far.
    waiting: Vec<OwnedFd>,
    /// Sockets that were given up and that the caller still has open: a child that exited now would not close them last.
    open: usize,
}

impl Holders {
    pub(super) const fn new() -> Self {
        Self { taking: None, exiting: Vec::new(), waiting: Vec::new(), open: 0 }
    }

    /// Has a child release a socket. The caller closes its own copy, and calls [`Holders::closed`]. That copy is not the last one, unless
    /// there is neither a child nor a number left for a further descriptor.
    pub(super) fn give_up(&mut self, socket: BorrowedFd<'_>) {
        self.tend();
        self.open += 1;
        if !self.send(socket) {
            self.waiting.extend(socket.try_clone_to_owned());
        }
    }

    pub(super) fn closed(&mut self) {
        self.open -= 1;
        self.release();
    }

    /// Reaps children that have exited, and goes on with what waited for that.
    pub(super) fn tend(&mut self) {
        self.exiting.retain(|&pid| matches!(sys::wait_child(pid, Reaping::Look), Ok(None)));
        while let Some(socket) = self.waiting.pop() {
            if !self.send(socket.as_fd()) {
                self.waiting.push(socket);
                break;
            }
        }
        self.release();
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> bool {
        loop {
            if self.taking.is_none() && self.exiting.len() < MOST {
                self.taking = sys::fork_holder().ok();
            }
            let Some((_, door)) = &self.taking else { return false };
            match sys::send_packet(door.as_fd(), &[0], &[socket]) {
                Ok(()) => return true,
                Err(Errno::EPIPE | Errno::ECONNRESET) => self.dismiss(),
                // It has more to take than there is room for.
                Err(_) => return false,
            }
        }
    }

    /// Lets the child go that takes sockets, where another one may follow it.
    fn release(&mut self) {
        if self.open == 0 && self.exiting.len() + 1 < MOST {
            self.dismiss();
        }
    }

    fn dismiss(&mut self) {
        self.exiting.extend(self.taking.take().map(|(pid, _)| pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::time::{Duration, Instant};

    fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(300), "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn state(pid: i32) -> char {
        crate::procfs::Proc::system().stat(pid).unwrap().state
    }

    fn files(pid: i32) -> usize {
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    }

    /// Children that are stopped; they go on when the test ends, however it does.
    struct Stopped(Vec<i32>);

    impl Drop for Stopped {
        fn drop(&mut self) {
            self.0.iter().for_each(|&pid| _ = sys::kill(pid, libc::SIGCONT));
        }
    }

    /// A child that is stopped stands for one that a file keeps from exiting.
    #[test]
    fn children_that_cannot_exit_are_limited() {
        let mut holders = Holders::new();
        let (mut stopped, mut readers) = (Stopped(Vec::new()), Vec::new());
        for _ in 0..150 {
            let (reader, writer) = sys::pipe().unwrap();
            holders.give_up(writer.as_fd());
            if stopped.0.len() + 1 < MOST {
                let pid = holders.taking.as_ref().unwrap().0;
                eventually("it has the file", || files(pid) == 2);
                sys::kill(pid, libc::SIGSTOP).unwrap();
                stopped.0.push(pid);
                eventually("it is stopped", || state(pid) == 'T');
            }
            drop(writer);
            holders.closed();
            readers.push(std::fs::File::from(reader));
            assert!(holders.exiting.len() + usize::from(holders.taking.is_some()) <= MOST);
        }
        assert_eq!(holders.exiting, stopped.0);
        eventually("one child takes all the others", || {
            holders.tend();
            holders.waiting.is_empty()
        });
        let taking = holders.taking.as_ref().unwrap().0;
        eventually("it has them", || files(taking) == 1 + 150 - stopped.0.len());
        // All is held, nothing is released.
        let mut byte = [0];
        assert!(readers.iter_mut().all(|reader| reader.read(&mut byte).is_err()));
        drop(stopped);
        eventually("all children have exited", || {
            holders.tend();
            holders.exiting.is_empty() && holders.taking.is_none()
        });
        eventually("all is released", || readers.iter_mut().all(|reader| matches!(reader.read(&mut byte), Ok(0))));
    }

    #[test]
    fn a_child_that_was_killed_is_replaced() {
        let mut holders = Holders::new();
        let (reader, writer) = sys::pipe().unwrap();
        holders.give_up(writer.as_fd());
        let pid = holders.taking.as_ref().unwrap().0;
        sys::kill(pid, libc::SIGKILL).unwrap();
        eventually("it is dead", || state(pid) == 'Z');
        holders.give_up(writer.as_fd());
        drop(writer);
        assert!(holders.waiting.is_empty());
        let (mut reader, mut byte) = (std::fs::File::from(reader), [0]);
        assert!(reader.read(&mut byte).is_err(), "another one has it");
        holders.closed();
        holders.closed();
        eventually("it is released", || matches!(reader.read(&mut byte), Ok(0)));
    }
}
