//! The recorder's end: who asks it, and for what.
//!
//! What it is: [`Control`] listens at a socket of its own, takes in those who may ask, and answers when there is an answer.
//! Read first: [`Control::take`].
//!
//! **Invariant:** no client that asks holds the recorder up: one that sends nonsense, too much, or does not read is let go.

use super::ask::ControlCommand;
use super::socket_dir::{RecorderId, SocketDir, remove_lock};
use crate::payer::Payers;
use pmux::server_api::shared::channel::{Channel, PacketBuffer, Received, Sent, SocketPeer};
use pmux::server_api::shared::listener::Listener;
use pmux::server_api::shared::wire::PACKET_BYTES;
use pmux::server_api::{PeerCred, Proc, user_namespace_of};
use pmux::wait::{Token, Waiter, Wake};
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// So many may ask at once; others wait.
const MAX_CLIENTS: usize = 32;
/// Within so long a question has to be there.
const QUESTION_TIME: Duration = Duration::from_secs(2);

/// Who may ask a recorder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlAccess {
    /// Its own user and root.
    Own,
    /// These groups as well.
    Groups(Vec<u32>),
}

/// A client that asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControlClientId(u64);

/// A question that was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlRequest {
    /// Which client asked.
    pub client: ControlClientId,
    /// What.
    pub command: ControlCommand,
    /// Who that is, for people.
    pub description: String,
}

struct ControlClient {
    id: ControlClientId,
    channel: Channel,
    description: String,
    /// Until when its question has to be there; `None` when it is.
    until: Option<Instant>,
}

/// Where a recorder is asked.
pub struct Control {
    listener: Listener,
    socket: PathBuf,
    id: RecorderId,
    access: ControlAccess,
    payers: Payers,
    clients: Vec<ControlClient>,
    next: u64,
    buffer: PacketBuffer,
}

impl Control {
    /// Listens.
    ///
    /// # Errors
    /// A sentence: the folder of sockets can't be made, or there is no socket.
    pub fn listen(folder: &SocketDir, id: RecorderId, access: ControlAccess) -> Result<Self, String> {
        folder.prepare().map_err(|error| error.to_string())?;
        let socket = folder.socket(&id);
        // Others are told why they may not, where there are others who may.
        let mode = if access == ControlAccess::Own { 0o600 } else { 0o666 };
        let listener = Listener::bind(&socket, mode).map_err(|error| error.to_string())?;
        let (payers, clients, buffer) = (Payers::look_up(), Vec::new(), PacketBuffer::new());
        Ok(Self { listener, socket, id, access, payers, clients, next: 0, buffer })
    }

    /// Has a waiter wait for those who ask.
    pub fn watch(&self, waiter: &mut Waiter, token: Token) {
        if self.clients.len() < MAX_CLIENTS {
            waiter.watch(&self.listener, token);
        }
        self.clients.iter().for_each(|client| waiter.watch(&client.channel, token));
    }

    /// When [`Control::take`] is to be called although no client says anything.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.clients.iter().filter_map(|client| client.until).min()
    }

    /// What was asked. Each question is to be answered by [`Control::answer`].
    pub fn take(&mut self, wakes: &[Wake], token: Token) -> Vec<ControlRequest> {
        let woken = |wake: &Wake| *wake == Wake::Fd(token) || *wake == Wake::Hangup(token);
        let now = Instant::now();
        let mut asked = Vec::new();
        if wakes.iter().any(woken) {
            self.accept(now);
            let mut clients = std::mem::take(&mut self.clients);
            clients.retain(|client| self.read_request(client, &mut asked));
            self.clients = clients;
            for ControlRequest { client, .. } in &asked {
                let of = self.clients.iter_mut().filter(|known| known.id == *client);
                of.for_each(|known| known.until = None);
            }
        }
        self.clients.retain(|client| client.until.is_none_or(|until| now < until));
        asked
    }

    /// Answers, and lets go.
    pub fn answer(&mut self, client: ControlClientId, answer: &Value) {
        if let Some(at) = self.clients.iter().position(|known| known.id == client) {
            // One that has left needs no answer.
            let _ = self.clients.swap_remove(at).channel.send(packet(answer).as_bytes(), &[]);
        }
    }

    fn accept(&mut self, now: Instant) {
        // The listener stays readable while one waits: who connects again and again must not keep the recorder here.
        for _ in 0..MAX_CLIENTS.saturating_sub(self.clients.len()) {
            // Without a file for it the client waits.
            let Ok(Some(channel)) = self.listener.accept() else { return };
            let Ok(peer) = channel.peer() else { continue };
            if self.may_ask(&peer) {
                self.next += 1;
                let description = format!("user {}, process {}", peer.uid, peer.pid);
                let (id, until) = (ControlClientId(self.next), Some(now + QUESTION_TIME));
                self.clients.push(ControlClient { id, channel, description, until });
            } else {
                let text = match self.access {
                    ControlAccess::Own => "only its own user, and root with its capabilities, may ask this recorder",
                    ControlAccess::Groups(_) => {
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
            pmux::server_api::Peer::gather(&Proc::system(), connected, process, user_namespace_of).credentials
        };
        self.payers.is_trusted(peer.uid, credentials)
            || matches!(&self.access, ControlAccess::Groups(groups) if grouped(groups))
    }

    /// Whether the client stays; what it asks is taken down.
    fn read_request(&mut self, client: &ControlClient, asked: &mut Vec<ControlRequest>) -> bool {
        match client.channel.receive(&mut self.buffer, 0) {
            Ok(Received::Nothing) => true,
            // The client sends a second request.
            Ok(Received::Packet(..)) if client.until.is_none() => false,
            Ok(Received::Packet(bytes, _)) => match ControlCommand::decode(self.buffer.bytes(bytes)) {
                Ok(command) => {
                    asked.push(ControlRequest { client: client.id, command, description: client.description.clone() });
                    true
                }
                Err(text) => {
                    let refusal = json!({ "refused": format!("the recorder does not understand: {text}") });
                    matches!(client.channel.send(refusal.to_string().as_bytes(), &[]), Ok(Sent::NoRoom))
                }
            },
            Ok(Received::End | Received::Cut | Received::Stranger) | Err(_) => false,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if matches!(self.id, RecorderId::Process(_)) {
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
    use super::super::ask::{self, AskError, ask};
    use super::*;
    use std::path::Path;

    const TOKEN: Token = Token(7);
    const PATIENCE: Duration = Duration::from_secs(60);

    fn control(folder: &Path, access: ControlAccess) -> Control {
        Control::listen(&SocketDir::beside(&folder.join("p.sock")), RecorderId::Name("x".to_owned()), access).unwrap()
    }

    fn turn(control: &mut Control) -> Vec<ControlRequest> {
        let mut waiter = Waiter::new();
        control.watch(&mut waiter, TOKEN);
        let until = control.deadline().unwrap_or_else(|| Instant::now() + PATIENCE);
        let wakes = waiter.wait(Some(until)).unwrap();
        control.take(&wakes, TOKEN)
    }

    fn asked(control: &mut Control, count: usize) -> Vec<ControlRequest> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(turn(control));
        }
        all
    }

    #[test]
    fn questions_are_answered_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut control = control(folder.path(), ControlAccess::Own);
        let socket = control.socket.clone();
        let threads: Vec<_> = [ControlCommand::Dump, ControlCommand::Status, ControlCommand::Dump]
            .into_iter()
            .map(|command| {
                let socket = socket.clone();
                std::thread::spawn(move || ask(&socket, command, PATIENCE).unwrap())
            })
            .collect();
        let mut all = asked(&mut control, 3);
        assert_eq!(all.iter().filter(|asked| asked.command == ControlCommand::Dump).count(), 2);
        assert!(all[0].description.contains(&format!("process {}", std::process::id())), "{}", all[0].description);
        all.reverse();
        all.iter()
            .for_each(|asked| control.answer(asked.client, &json!({ "to": asked.command == ControlCommand::Dump })));
        let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()["to"] == true).collect();
        assert_eq!(answers, [true, false, true]);
        assert!(control.clients.is_empty());
    }

    #[test]
    fn nonsense_is_refused_and_silence_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut control = control(folder.path(), ControlAccess::Own);
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
        assert_eq!(control.clients.len(), 1);
        let talkative = ask::connect(&control.socket).unwrap();
        let command = b"{\"ask\":\"dump\"}";
        talkative.send(command, &[]).unwrap();
        assert_eq!(turn(&mut control).len(), 1);
        talkative.send(command, &[]).unwrap();
        assert_eq!(turn(&mut control), []);
        assert_eq!(control.clients.len(), 1, "only the silent one");
        control.clients[0].until = Some(Instant::now());
        turn(&mut control);
        assert!(control.clients.is_empty());
        drop(silent);
    }

    #[test]
    fn many_wait_for_their_turn() {
        let folder = tempfile::tempdir().unwrap();
        let mut control = control(folder.path(), ControlAccess::Own);
        let channels: Vec<_> = (0..MAX_CLIENTS + 5).map(|_| ask::connect(&control.socket).unwrap()).collect();
        for channel in &channels {
            channel.send(b"{\"ask\":\"status\"}", &[]).unwrap();
        }
        let first = asked(&mut control, MAX_CLIENTS);
        assert_eq!(first.len(), MAX_CLIENTS);
        first.iter().for_each(|asked| control.answer(asked.client, &json!({})));
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
    fn a_timeout_and_a_missing_socket_are_distinct_errors() {
        let folder = tempfile::tempdir().unwrap();
        let control = control(folder.path(), ControlAccess::Own);
        let socket = control.socket.clone();
        assert_eq!(ask(&socket, ControlCommand::Status, Duration::ZERO), Err(AskError::TimedOut));
        drop(control);
        assert_eq!(ask(&socket, ControlCommand::Status, PATIENCE), Err(AskError::NoSocket));
    }
}
