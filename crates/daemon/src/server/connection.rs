//! One client's end of the line.
//!
//! **Invariant:** answers wait here, within a limit, and never hold up the loop; while some wait, nothing more is read.

use super::status::StatusJob;
use crate::service::{Effect, Note};
use pmux::server_api::shared::channel::Channel;
use pmux::server_api::shared::poll::{Interest, Ready};
use pmux::server_api::shared::wire::{Notice, Refusal, Reply, Request, encode_reply};
use pmux::server_api::shared::{Flushed, Outbox, OutboxError};
use pmux::server_api::{Peer, PeerCred};
use std::os::fd::{AsFd, OwnedFd};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitsFor {
    Request,
    /// Room for what it has to be told.
    Room,
    /// The time at which it may ask again.
    Turn,
    Opener,
}

impl WaitsFor {
    /// What is waited for of its socket, if anything.
    pub(super) const fn interest(self) -> Option<Interest> {
        match self {
            Self::Room => Some(Interest::Write),
            Self::Request => Some(Interest::Read),
            // What is still in its socket waits; that it has gone is heard at once.
            Self::Opener => Some(Interest::Hangup),
            Self::Turn => None,
        }
    }
}

pub(super) struct Connection {
    pub(super) channel: Channel,
    /// Who connected, as the kernel noted it then.
    pub(super) connected: PeerCred,
    /// The process that did, whatever its number means now; `None` where the connection itself tells (Linux 6.5).
    pub(super) process: Option<OwnedFd>,
    outbox: Outbox,
    pub(super) waits: WaitsFor,
    /// Since when answers wait without one of them getting away.
    pub(super) stuck_since_ns: Option<u64>,
    pub(super) since_ns: u64,
    pub(super) greeted: bool,
    /// Everything has been said; it is closed when that has got away.
    pub(super) leaving: bool,
    pub(super) user: u32,
    /// What it was reported ready for, while it waits for its turn.
    pub(super) ready: Option<Ready>,
    /// An answer that is being written; nothing more is read before its end.
    pub(super) status: Option<Box<StatusJob>>,
    /// A request, by its number, that waits for an opener; nothing more is read before its answer.
    pub(super) parked: Option<(u32, Request)>,
    pub(super) opened: u64,
    pub(super) refused: u64,
    pub(super) last_refusal: Option<Refusal>,
    pub(super) label: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ConnectionState {
    Open,
    /// The client is gone, or it was told that this is the end.
    Closed,
    /// It did something that it must not, or did not do what it must.
    CutOff(String),
}

impl Connection {
    /// What it has done, in words.
    pub(super) fn done(&self) -> String {
        let why = |last: &Refusal| format!(", the last one: {} (errno {})", last.text, last.errno);
        let last = self.last_refusal.as_ref().map(why).unwrap_or_default();
        format!("opened {} events; {} of its requests were refused{last}", self.opened, self.refused)
    }

    pub(super) fn new(
        (channel, process): (Channel, Option<OwnedFd>),
        (peer, payer): (&Peer, u32),
        number: u64,
        queue_bytes: usize,
        now_ns: u64,
    ) -> Self {
        Self {
            channel,
            connected: peer.connected.clone(),
            process,
            outbox: Outbox::new(queue_bytes),
            waits: WaitsFor::Request,
            stuck_since_ns: None,
            since_ns: now_ns,
            greeted: false,
            leaving: false,
            user: payer,
            ready: None,
            status: None,
            parked: None,
            opened: 0,
            refused: 0,
            last_refusal: None,
            label: label(number, peer),
        }
    }

    /// Does what a step says; notes are given to `log_note`.
    pub(super) fn carry_out(
        &mut self,
        effects: &mut Vec<Effect<OwnedFd>>,
        now_ns: u64,
        mut log_note: impl FnMut(&mut Self, &Note),
    ) -> ConnectionState {
        let mut state = ConnectionState::Open;
        for effect in effects.drain(..) {
            match effect {
                Effect::Note(note) => {
                    self.greeted |= note == Note::Welcomed;
                    log_note(self, &note);
                }
                Effect::HangUp => self.leaving = true,
                Effect::Send { number, reply, files } if state == ConnectionState::Open => {
                    state = self.send(number, &reply, &files, now_ns);
                }
                Effect::Send { .. } => {}
            }
        }
        self.after(state)
    }

    /// A client that is sent away is gone when all was said that there was to say to it.
    fn after(&self, state: ConnectionState) -> ConnectionState {
        let has_left = self.leaving && !self.is_blocked();
        if has_left && state == ConnectionState::Open { ConnectionState::Closed } else { state }
    }

    /// Sends, or keeps it until there is room.
    pub(super) fn send(&mut self, number: u32, reply: &Reply, files: &[OwnedFd], now_ns: u64) -> ConnectionState {
        let packet = match encode_reply(number, reply) {
            Ok(packet) => packet,
            Err(error) => return ConnectionState::CutOff(format!("an answer could not be written: {error}")),
        };
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let sent = self.outbox.send(&self.channel, packet, &files);
        self.account(sent, now_ns)
    }

    /// There is room again.
    pub(super) fn flush(&mut self, now_ns: u64) -> ConnectionState {
        let before = self.outbox.bytes();
        let sent = self.outbox.flush(&self.channel);
        if self.outbox.bytes() < before {
            self.stuck_since_ns = None;
        }
        let state = self.account(sent, now_ns);
        self.after(state)
    }

    fn account(&mut self, sent: Result<Flushed, OutboxError>, now_ns: u64) -> ConnectionState {
        match sent {
            Ok(Flushed::Empty) => {
                self.stuck_since_ns = None;
                ConnectionState::Open
            }
            Ok(Flushed::Waiting) => {
                self.stuck_since_ns.get_or_insert(now_ns);
                ConnectionState::Open
            }
            Err(OutboxError::Full) => ConnectionState::CutOff("more answers wait for it than may".to_owned()),
            Err(OutboxError::Channel(_)) => ConnectionState::Closed,
        }
    }

    pub(super) fn without_answers(mut self) -> Self {
        self.outbox = Outbox::new(0);
        self
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.outbox.bytes() > 0
    }

    /// Tells it why this is the end, also where it doesn't read.
    pub(super) fn send_last_notice(&self, why: &str) {
        let text = format!("the service cuts this client off: {why}");
        if let Ok(packet) = encode_reply(0, &Reply::Notice(Notice::Slow { text })) {
            // More can't be done for a client that doesn't read.
            let _ = self.channel.send_last(&packet);
        }
    }
}

fn label(number: u64, peer: &Peer) -> String {
    let connected = &peer.connected;
    let name = if peer.command.is_empty() { "?" } else { &peer.command };
    format!("client {number} (user {}, process {}, {name})", connected.user, connected.process)
}
