//! `pmux run --container`: the seccomp agent of one container.
//!
//! **Invariant:** the runtime is believed what it says of its container; nothing that its programs do is.
//!
//! Source: the runtime specification of the Open Container Initiative, `config-linux.md`, "The Container Process State".

use super::{Receivers, await_end, name_oneself_after};
use crate::failure::{Failure, failed, failure};
use crate::foreground::waiter;
use crate::options::run::RunOptions;
use pmux::supervisor::{Answers, Handover, Supervisor};
use serde_json::Value;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// The runtime sends all that it has to say at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// How the state calls the listener.
const LISTENER: &str = "seccompFd";
/// What a profile says of itself (`listenerMetadata`) that reports what is done to descriptors of virtual events.
const VIRTUAL: &str = "virtual";

#[derive(Clone, PartialEq, Eq, Debug)]
struct Container {
    name: String,
    /// Which of the files is the listener.
    listener: usize,
    answers: Answers,
}

impl Container {
    fn parse(state: &[u8]) -> Option<Self> {
        let state: Value = serde_json::from_slice(state).ok()?;
        let name = state["state"]["id"].as_str()?.to_owned();
        let listener = state["fds"].as_array()?.iter().position(|file| file == LISTENER)?;
        let answers = if state["metadata"] == VIRTUAL { Answers::Virtual } else { Answers::Own };
        Some(Self { name, listener, answers })
    }
}

pub(super) fn answer_for_container(options: &RunOptions) -> Result<u8, Failure> {
    let mut waiter = waiter()?;
    let is_whole = |state: &[u8]| serde_json::from_slice::<Value>(state).is_ok();
    let handover = Handover::receive(io::stdin().as_fd(), PATIENCE, is_whole).map_err(|errno| {
        failed(format!("no runtime of a container has passed a listener through standard input: {errno}"))
    })?;
    let container = Container::parse(&handover.state)
        .ok_or_else(|| failed("what came through standard input is no state of a container".to_owned()))?;
    name_oneself_after(&container.name);
    let session = crate::session::open(&options.shared, None).map_err(|error| failure(&error))?;
    let explained = options.explains().then(|| super::Explained::open(options, Some(&container.name)));
    let explained = explained.transpose().map_err(failed)?;
    let answers = if options.own { Answers::Own } else { container.answers };
    let supervisor = Supervisor::of_container(handover, container.listener, &session, answers);
    let supervisor = supervisor.map_err(|error| failure(&error))?.with_paranoid(options.paranoid);
    let receivers = Receivers::start(supervisor, explained, &mut waiter)?;
    let status = await_end(&mut waiter, None, Some(&receivers))?;
    Ok(receivers.finish(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_says_which_file_is_the_listener() {
        let state = br#"{"ociVersion":"1.0.2","fds":["other","seccompFd"],"pid":4422,"metadata":"virtual",
            "state":{"ociVersion":"1.0.2","id":"web-1","status":"creating","pid":4422,"bundle":"/b"}}"#;
        let known = Container { name: "web-1".to_owned(), listener: 1, answers: Answers::Virtual };
        assert_eq!(Container::parse(state), Some(known));
        let plain = br#"{"fds":["seccompFd"],"state":{"id":"a"}}"#;
        assert_eq!(Container::parse(plain).map(|of| (of.listener, of.answers)), Some((0, Answers::Own)));
        for wrong in [&b""[..], b"{}", b"[]", br#"{"fds":["other"],"state":{"id":"a"}}"#, br#"{"fds":["seccompFd"]}"#] {
            assert_eq!(Container::parse(wrong), None, "{}", String::from_utf8_lossy(wrong));
        }
    }
}
