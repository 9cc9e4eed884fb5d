//! What one client may do at a time.
//!
//! **Invariant:** a client waits for one thing at a time: its next request, room for an answer, or the moment from which it may
//! ask again. Whoever is cut off has lost everything in the same step.

use super::connection::{Connection, Fate, Waits};
use super::{FIRST_CLIENT, MILLISECOND_NS, Server};
use crate::config::Level;
use crate::service::{ClientId, Effect, Note};
use pmux::serving::shared::channel::Received;
use pmux::serving::shared::poll::{Interest, Ready, Token};
use pmux::serving::shared::wire::{Detail, PART_BYTES, Part, Reply, Request, decode_request};
use std::os::fd::OwnedFd;

/// Requests of one client before the others have their turn.
const REQUESTS: usize = 16;
/// And for so long at most; the request that is under way is finished.
const TURN_NS: u64 = 2 * MILLISECOND_NS;
/// Opens of one client that are worth a line each; later ones are for those who look closely.
const LOGGED_OPENS: u32 = 16;
/// Slow clients are looked for as often as this part of the time that they may take.
const LOOKS: u64 = 4;

impl Server {
    pub(super) fn client_is_ready(&mut self, id: ClientId, report: Ready, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let fate = match connection.waits {
            // What is left in its socket is nobody's any more.
            Waits::Room if report.hangup => Fate::Ends,
            Waits::Room => connection.flush(now),
            Waits::Request => self.take_requests(id, now),
            Waits::Turn => return,
        };
        self.settle(id, fate, now);
    }

    /// It has waited long enough.
    pub(super) fn resume(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let token = Token(id.0 + FIRST_CLIENT);
        if connection.waits != Waits::Turn || self.poll.add(&connection.channel, token, Interest::Read).is_err() {
            return;
        }
        connection.waits = Waits::Request;
        let fate = self.take_requests(id, now);
        self.settle(id, fate, now);
    }

    fn take_requests(&mut self, id: ClientId, now: u64) -> Fate {
        let mut effects = Vec::new();
        let until = pmux::serving::now_ns() + TURN_NS;
        for _ in 0..REQUESTS {
            let Some(connection) = self.connections.get_mut(&id) else { return Fate::Stays };
            if connection.is_blocked() || self.service.ready_at(id, now).is_some() {
                return Fate::Stays;
            }
            match connection.channel.receive(&mut self.buffer, 1) {
                Ok(Received::Nothing) => return Fate::Stays,
                Ok(Received::End) | Err(_) => return Fate::Ends,
                Ok(Received::Cut) => {
                    self.service.nonsense(id, "a packet is at most 64 KiB long and has at most one file", &mut effects);
                }
                Ok(Received::Packet(bytes, mut files)) => match decode_request(self.buffer.bytes(bytes)) {
                    Ok((number, Request::Status { detail })) if connection.greeted => {
                        self.tell_status(id, number, detail, &mut effects);
                    }
                    Ok(request) => {
                        let folder = files.pop();
                        self.service.request(id, &mut self.counters, now, request, folder, &mut effects);
                    }
                    Err(error) => self.service.nonsense(id, &format!("it can't be understood: {error}"), &mut effects),
                },
            }
            let Some(connection) = self.connections.get_mut(&id) else { return Fate::Stays };
            let log = &self.log;
            let fate = connection.carry_out(&mut effects, now, |connection, note| {
                let level = level(connection, note);
                log.say(level, format_args!("{} {note}", connection.who));
            });
            if fate != Fate::Stays || connection.leaving || pmux::serving::now_ns() > until {
                return fate;
            }
        }
        Fate::Stays
    }

    /// Says what the connection waits for next, or ends it.
    pub(super) fn settle(&mut self, id: ClientId, fate: Fate, now: u64) {
        match fate {
            Fate::Stays => self.wait_on(id, now),
            Fate::Ends => self.let_go(id),
            Fate::CutOff(why) => self.cut_off(id, &why),
        }
        self.plan_refresh(now, 0);
    }

    fn wait_on(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let token = Token(id.0 + FIRST_CLIENT);
        let next = if connection.is_blocked() || connection.leaving {
            Waits::Room
        } else if self.service.ready_at(id, now).is_some() {
            Waits::Turn
        } else {
            Waits::Request
        };
        if next == connection.waits {
            return;
        }
        let channel = &connection.channel;
        let changed = match (connection.waits, next) {
            (Waits::Turn, _) => self.poll.add(channel, token, interest(next)),
            (_, Waits::Turn) => self.poll.remove(channel),
            _ => self.poll.change(channel, token, interest(next)),
        };
        connection.waits = next;
        if let Some(at) = self.service.ready_at(id, now).filter(|_| next == Waits::Turn) {
            self.paused.insert((at, id));
        }
        if next == Waits::Room {
            self.plan_look(now);
        }
        if changed.is_err() {
            self.cut_off(id, "it can't be waited for");
        }
    }

    pub(super) fn cut_off(&mut self, id: ClientId, why: &str) {
        if let Some(connection) = self.connections.get(&id) {
            connection.farewell(why);
            self.log.say(Level::Warning, format_args!("{} is cut off: {why}", connection.who));
            self.service.note_cut_off();
        }
        self.let_go(id);
    }

    /// Gives everything back that a client held.
    pub(super) fn let_go(&mut self, id: ClientId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let events = self.service.gone(id, &mut self.counters);
        let level = if connection.greeted && events > 0 { Level::Info } else { Level::Debug };
        self.log.say(level, format_args!("{} has gone; {events} events of it were closed", connection.who));
        if connection.waits == Waits::Turn {
            self.paused.retain(|&(_, of)| of != id);
        }
    }

    /// Somebody may have to be cut off some time later.
    pub(super) fn plan_look(&mut self, now: u64) {
        let within = u64::from(self.config.limits.slow_ms) * MILLISECOND_NS / LOOKS;
        self.next_look_ns = self.next_look_ns.min(now + within);
    }

    /// Cuts off those that don't read, and those that never say hello.
    pub(super) fn look_after_the_slow(&mut self, now: u64) {
        let most = u64::from(self.config.limits.slow_ms) * MILLISECOND_NS;
        let mut waiting = false;
        let mut slow = Vec::new();
        for (&id, connection) in &self.connections {
            let since = connection.stuck_since_ns.or((!connection.greeted).then_some(connection.since_ns));
            let Some(since) = since else { continue };
            waiting = true;
            if now.saturating_sub(since) >= most {
                let why = if connection.greeted { "it doesn't read its answers" } else { "it hasn't said hello" };
                slow.push((id, why));
            }
        }
        for (id, why) in slow {
            self.cut_off(id, why);
        }
        if waiting {
            self.plan_look(now);
        }
    }

    fn tell_status(&mut self, id: ClientId, number: u32, detail: Detail, effects: &mut Vec<Effect<OwnedFd>>) {
        let text = self.status(id, detail).to_string();
        let parts = text.len().div_ceil(PART_BYTES).max(1);
        for (index, bytes) in text.as_bytes().chunks(PART_BYTES).enumerate() {
            let part = if index + 1 == parts { Part::Last } else { Part::More };
            let reply = Reply::StatusReport { part, text: bytes.to_vec() };
            effects.push(Effect::Send { number, reply, files: Vec::new() });
        }
    }
}

const fn interest(waits: Waits) -> Interest {
    match waits {
        Waits::Room => Interest::Write,
        Waits::Request | Waits::Turn => Interest::Read,
    }
}

/// How much a note matters.
fn level(connection: &mut Connection, note: &Note) -> Level {
    match note {
        Note::Welcomed | Note::Closed(_) => Level::Debug,
        Note::Refused(_) | Note::Weighs(_) => Level::Info,
        Note::Opened(..) | Note::Subscribed(..) => {
            connection.logged += 1;
            if connection.logged <= LOGGED_OPENS { Level::Info } else { Level::Debug }
        }
    }
}
