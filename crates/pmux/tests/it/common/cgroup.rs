//! Commands in cgroups.

pub use pmux_testkit::Cgroup;

use pmux::{Command, Session};

/// Runs a role in a cgroup, to the end.
pub fn run_in(cgroup: &Cgroup, session: &Session, words: &str) {
    let command = Command::hold(super::role::words(words)).unwrap();
    cgroup.take_in(command.pid());
    let status = command.release(&[]).unwrap().wait(session).unwrap().status;
    assert!(status.success(), "{words}: {status:?}");
}
