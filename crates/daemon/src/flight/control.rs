//! The recorder's end: who asks it, and for what.
//!
//! What it is: [`Control`] listens at a socket of its own, takes in those who may ask, and answers when there is an answer.
//! Read first: [`Control::take`].
//!
//! **Invariant:** no client that asks holds the recorder up: one that sends nonsense, too much, or does not read is let go.

use super::ask::Question;
use super::place::{Called, Folder, remove_lock};
use crate::payer::Payers;
use pmux::serving::shared::channel::{Channel, PacketBuffer, Received, Sent, SocketPeer};
use pmux::serving::shared::listener::{ListenError, Listener};
use pmux::serving::shared::wire::PACKET_BYTES;
use pmux::serving::{PeerCred, Proc, user_namespace_of};
use pmux::wait::{Token, Waiter, Wake};
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So many may ask at once; others wait.
const MOST_ASKERS: usize = 32;
/// Within so long a question has to be there.
const QUESTION_TIME: Duration = Duration::from_secs(2);

/// Who may ask a recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Askers {
    /// Its own user and root.
    Own,
    /// These groups as well.
    Groups(Vec<u32>),
}

/// Why a recorder can't be asked.
#[derive(Debug)]
pub enum ControlError {
    /// The folder of sockets can't be made.
    Folder(io::Error),
    /// There is no socket.
    Listen(ListenError),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ControlError {}

/// A client that asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AskerId(u64);

/// A question that was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Which client asked.
    pub asker: AskerId,
    /// What.
    pub question: Question,
    /// Who that is, for people.
    pub who: String,
}

struct Asker {
    id: AskerId,
    channel: Channel,
    who: String,
    /// Until when its question has to be there; `None` when it is.
    until: Option<Instant>,
}

/// Where a recorder is asked.
pub struct Control {
    listener: Listener,
    socket: PathBuf,
    called: Called,
    may: Askers,
    payers: Payers,
    askers: Vec<Asker>,
    next: u64,
    buffer: PacketBuffer,
}

impl Control {
    /// Listens.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn listen(folder: &Folder, called: Called, may: Askers) -> Result<Self, ControlError> {
        folder.prepare().map_err(ControlError::Folder)?;
        let socket = folder.socket(&called);
        // Others are told why they may not, where there are others who may.
        let mode = if may == Askers::Own { 0o600 } else { 0o666 };
        let listener = Listener::bind(&socket, mode).map_err(ControlError::Listen)?;
        Ok(Self {
            listener,
            socket,
            called,
            may,
            payers: Payers::look_up(),
            askers: Vec::new(),
            next: 0,
            buffer: PacketBuffer::new(),
        })
    }

    /// Has a waiter wait for those who ask.
    pub fn watch(&self, waiter: &mut Waiter, token: Token) {
        if self.askers.len() < MOST_ASKERS {
            waiter.watch(&self.listener, token);
        }
        self.askers.iter().for_each(|asker| waiter.watch(&asker.channel, token));
    }

    /// When [`Control::take`] is to be called although no client says anything.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.askers.iter().filter_map(|asker| asker.until).min()
    }

    /// What was asked. Each question is to be answered by [`Control::answer`].
    pub fn take(&mut self, wakes: &[Wake], token: Token) -> Vec<Asked> {
        let woken = |wake: &Wake| *wake == Wake::Fd(token) || *wake == Wake::Hangup(token);
        let now = Instant::now();
        let mut asked = Vec::new();
        if wakes.iter().any(woken) {
            self.accept(now);
            let mut askers = std::mem::take(&mut self.askers);
            askers.retain(|asker| self.hear(asker, &mut asked));
            self.askers = askers;
            for Asked { asker, .. } in &asked {
                let of = self.askers.iter_mut().filter(|known| known.id == *asker);
                of.for_each(|known| known.until = None);
            }
        }
        self.askers.retain(|asker| asker.until.is_none_or(|until| now < until));
        asked
    }

    /// Answers, and lets go.
    pub fn answer(&mut self, asker: AskerId, answer: &Value) {
        if let Some(at) = self.askers.iter().position(|known| known.id == asker) {
            // One that has left needs no answer.
            let _ = self.askers.swap_remove(at).channel.send(packet(answer).as_bytes(), &[]);
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.askers.len() < MOST_ASKERS {
            // Without a file for it the client waits.
            let Ok(Some(channel)) = self.listener.accept() else { return };
            let Ok(peer) = channel.peer() else { continue };
            if self.may_ask(&peer) {
                self.next += 1;
                let who = format!("user {}, process {}", peer.uid, peer.pid);
                self.askers.push(Asker { id: AskerId(self.next), channel, who, until: Some(now + QUESTION_TIME) });
            } else {
                let text = match self.may {
                    Askers::Own => "only its own user, and root with its capabilities, may ask this recorder",
                    Askers::Groups(_) => {
                        "only root, the service's user and the groups of `rights.system_wide` may ask this recorder"
                    }
                };
                let _ = channel.send(json!({ "refused": text }).to_string().as_bytes(), &[]);
            }
        }
    }

    fn may_ask(&self, peer: &SocketPeer) -> bool {
        let grouped = |groups: &[u32]| groups.contains(&peer.gid) || peer.groups.iter().any(|of| groups.contains(of));
        let credentials = || {
            let SocketPeer { pid: process, uid: user, gid: group, .. } = *peer;
            let connected = PeerCred { process, user, group, ..PeerCred::default() };
            let process = peer.process.as_ref().map(AsFd::as_fd);
            pmux::serving::Peer::gather(&Proc::system(), connected, process, user_namespace_of).credentials
        };
        self.payers.is_trusted(peer.uid, credentials) || matches!(&self.may, Askers::Groups(groups) if grouped(groups))
    }

    /// Whether the client stays; what it asks is taken down.
    fn hear(&mut self, asker: &Asker, asked: &mut Vec<Asked>) -> bool {
        match asker.channel.receive(&mut self.buffer, 0) {
            Ok(Received::Nothing) => true,
            // He says more than one thing.
            Ok(Received::Packet(..)) if asker.until.is_none() => false,
            Ok(Received::Packet(bytes, _)) => match Question::decode(self.buffer.bytes(bytes)) {
                Ok(question) => {
                    asked.push(Asked { asker: asker.id, question, who: asker.who.clone() });
                    true
                }
                Err(text) => {
                    let refusal = json!({ "refused": format!("the recorder does not understand: {text}") });
                    matches!(asker.channel.send(refusal.to_string().as_bytes(), &[]), Ok(Sent::NoRoom))
                }
            },
            Ok(Received::End | Received::Cut | Received::Stranger) | Err(_) => false,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if matches!(self.called, Called::Process(_)) {
            remove_lock(&self.socket);
        }
    }
}

/// What is said, in one packet: on a very large machine without what is said of each CPU.
fn packet(answer: &Value) -> String {
    let text = answer.to_string();
    if text.len() <= PACKET_BYTES {
        return text;
    }
    let mut shorter = answer.clone();
    for list in ["/held/cpus", "/windows"] {
        if let Some(list) = shorter.pointer_mut(list) {
            *list = Value::Null;
        }
    }
    shorter.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::ask::{self, AskError, ask};
    use super::*;
    use std::path::Path;

    const TOKEN: Token = Token(7);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn control(folder: &Path, may: Askers) -> Control {
        Control::listen(&Folder::beside(&folder.join("p.sock")), Called::Name("x".to_owned()), may).unwrap()
    }

    fn turn(control: &mut Control) -> Vec<Asked> {
        let mut waiter = Waiter::new();
        control.watch(&mut waiter, TOKEN);
        let until = control.deadline().unwrap_or_else(|| Instant::now() + PATIENCE);
        let wakes = waiter.wait(Some(until)).unwrap();
        control.take(&wakes, TOKEN)
    }

    fn asked(control: &mut Control, count: usize) -> Vec<Asked> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(turn(control));
        }
        all
    }

    #[test]
    fn questions_are_answered_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut control = control(folder.path(), Askers::Own);
        let socket = control.socket.clone();
        let threads: Vec<_> = [Question::Dump, Question::Status, Question::Dump]
            .into_iter()
            .map(|question| {
                let socket = socket.clone();
                std::thread::spawn(move || ask(&socket, question, PATIENCE).unwrap())
            })
            .collect();
        let mut all = asked(&mut control, 3);
        assert_eq!(all.iter().filter(|asked| asked.question == Question::Dump).count(), 2);
        assert!(all[0].who.contains(&format!("process {}", std::process::id())), "{}", all[0].who);
        all.reverse();
        all.iter().for_each(|asked| control.answer(asked.asker, &json!({ "to": asked.question == Question::Dump })));
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()["to"] == true).collect();
        assert_eq!(answers, [true, false, true]);
        assert!(control.askers.is_empty());
    }

    #[test]
    fn nonsense_is_refused_and_silence_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut control = control(folder.path(), Askers::Own);
        let nonsense: [&[u8]; 5] = [b"x", b"{}", b"{\"ask\":7}", b"{\"ask\":\"stop\"}", &[0xff; 4000]];
        for bytes in nonsense {
            let channel = ask::connect(&control.socket).unwrap();
            channel.send(bytes, &[]).unwrap();
            assert_eq!(turn(&mut control), []);
            let mut buffer = PacketBuffer::new();
            let Ok(Received::Packet(count, _)) = channel.receive(&mut buffer, 0) else { panic!("no answer") };
            assert!(String::from_utf8_lossy(buffer.bytes(count)).contains("does not understand"));
        }
        // No client that says nothing is waited for, and no client that says too much.
        let silent = ask::connect(&control.socket).unwrap();
        turn(&mut control);
        assert_eq!(control.askers.len(), 1);
        let talkative = ask::connect(&control.socket).unwrap();
        let question = b"{\"ask\":\"dump\"}";
        talkative.send(question, &[]).unwrap();
        assert_eq!(turn(&mut control).len(), 1);
        talkative.send(question, &[]).unwrap();
        assert_eq!(turn(&mut control), []);
        assert_eq!(control.askers.len(), 1, "only the silent one");
        control.askers[0].until = Some(Instant::now());
        turn(&mut control);
        assert!(control.askers.is_empty());
        drop(silent);
    }

    #[test]
    fn many_wait_for_their_turn() {
        let folder = tempfile::tempdir().unwrap();
        let mut control = control(folder.path(), Askers::Own);
        let channels: Vec<_> = (0..MOST_ASKERS + 5).map(|_| ask::connect(&control.socket).unwrap()).collect();
        for channel in &channels {
            channel.send(b"{\"ask\":\"status\"}", &[]).unwrap();
        }
        let first = asked(&mut control, MOST_ASKERS);
        assert_eq!(first.len(), MOST_ASKERS);
        first.iter().for_each(|asked| control.answer(asked.asker, &json!({})));
        assert_eq!(asked(&mut control, 5).len(), 5);
    }

    #[test]
    fn an_answer_fits_into_a_packet() {
        let cpus: Vec<_> = (0..4096).map(|cpu| json!({ "cpu": cpu, "seconds": 1.5, "bytes": 1 })).collect();
        let text = packet(&json!({ "held": { "cpus": cpus, "bytes": 7 }, "windows": cpus }));
        assert!(text.len() < PACKET_BYTES);
        assert!(text.contains("\"bytes\":7"), "{text}");
    }

    #[test]
    fn who_does_not_answer_is_told_apart_from_who_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let control = control(folder.path(), Askers::Own);
        let socket = control.socket.clone();
        assert_eq!(ask(&socket, Question::Status, Duration::ZERO), Err(AskError::TooLate));
        drop(control);
        assert_eq!(ask(&socket, Question::Status, PATIENCE), Err(AskError::NotThere));
    }
}
