//! What one client may do at a time.
//!
//! **Invariant:** a client waits for one thing at a time: its next request, room for an answer, or the moment from which it may
//! ask again. Whoever is cut off has lost everything in the same step.

use super::connection::{Connection, Fate, Waits};
use super::{FIRST_CLIENT, MILLISECOND_NS, Server, say_of};
use crate::config::Level;
use crate::service::{ClientId, Note};
use pmux::serving::shared::channel::Received;
use pmux::serving::shared::poll::{Interest, Ready, Token};
use pmux::serving::shared::wire::{Part, Reply, Request, Verb, decode_request};

/// Requests of one client before the others have their turn.
const REQUESTS: usize = 16;
/// And for so long at most; the request that is under way is finished.
const TURN_NS: u64 = MILLISECOND_NS;
/// All turns together last so long before everything else is looked at, and one turn longer.
const TURNS_NS: u64 = 4 * MILLISECOND_NS;
/// Opens of one client that are worth a line each; later ones are for those who look closely.
const LOGGED_OPENS: u32 = 16;
/// Slow clients are looked for as often as this part of the time that they may take.
const LOOKS: u64 = 4;

impl Server {
    /// Something happened to a client: it has its turn when those have had theirs that wait already.
    pub(super) fn client_is_ready(&mut self, id: ClientId, report: Ready) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.ready.replace(report).is_none() {
            self.queue.push(connection.user, id);
        }
    }

    /// Lets clients have their turns, user by user, for a moment: then signals, CPUs and new clients are looked at.
    pub(super) fn take_turns(&mut self) {
        let until = pmux::serving::now_ns() + TURNS_NS;
        while let Some(id) = self.queue.pop() {
            let now = pmux::serving::now_ns();
            self.take_turn(id, now);
            if now > until {
                break;
            }
        }
    }

    fn take_turn(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let hangup = connection.ready.take().is_some_and(|report| report.hangup);
        let fate = match connection.waits {
            // What is left in its socket is nobody's any more.
            Waits::Room if hangup => Fate::Ends,
            Waits::Room => connection.flush(now),
            Waits::Request => self.take_requests(id, now),
            Waits::Turn => return,
        };
        self.settle(id, fate, now);
        self.go_on_with_status(id);
    }

    pub(super) fn resume(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let token = Token(id.0 + FIRST_CLIENT);
        if connection.waits != Waits::Turn {
            return;
        }
        match self.poll.add(&connection.channel, token, Interest::Read) {
            Ok(()) => {
                connection.waits = Waits::Request;
                self.go_on_with_status(id);
            }
            Err(_) => self.settle(id, Fate::CutOff("it can't be waited for".to_owned()), now),
        }
    }

    fn take_requests(&mut self, id: ClientId, now: u64) -> Fate {
        let mut effects = Vec::new();
        let until = pmux::serving::now_ns() + TURN_NS;
        for _ in 0..REQUESTS {
            let Some(connection) = self.connections.get_mut(&id) else { return Fate::Stays };
            if connection.status.is_some() {
                return self.send_status(id, until, now);
            }
            if connection.is_blocked() || self.service.ready_at(id, now).is_some() {
                return Fate::Stays;
            }
            match connection.channel.receive(&mut self.buffer, 0) {
                Ok(Received::Nothing) => return Fate::Stays,
                Ok(Received::End) | Err(_) => return Fate::Ends,
                Ok(Received::Cut) => {
                    self.service.nonsense(id, "a packet is at most 64 KiB long and has no files", &mut effects);
                }
                Ok(Received::Stranger) => {
                    let text = "this packet was sent by another process, or with another user or group, than connected: connect anew";
                    self.service.nonsense(id, text, &mut effects);
                }
                Ok(Received::Packet(bytes, _)) => match decode_request(self.buffer.bytes(bytes)) {
                    Ok((number, Request::Status { detail })) if connection.greeted => {
                        self.look_at(id);
                        self.service.note_request(id, now);
                        let job = Box::new(self.status_job(id, number, detail));
                        if let Some(connection) = self.connections.get_mut(&id) {
                            connection.status = Some(job);
                        }
                    }
                    Ok(request) => {
                        if needs_rights(&request.1) {
                            self.look_at(id);
                        }
                        self.service.request(id, &mut self.counters, now, request, &mut effects);
                    }
                    Err(error) => self.service.nonsense(id, &format!("it can't be understood: {error}"), &mut effects),
                },
            }
            let Some(connection) = self.connections.get_mut(&id) else { return Fate::Stays };
            let (log, flood) = (&self.log, &mut self.flood);
            let fate = connection.carry_out(&mut effects, now, |connection, note| {
                let level = level(connection, note);
                say_of(log, flood, connection.user, level, format_args!("{} {note}", connection.who));
            });
            if fate != Fate::Stays || connection.leaving || pmux::serving::now_ns() > until {
                return fate;
            }
        }
        Fate::Stays
    }

    /// Writes and sends an answer about the state, as far as time and room go.
    fn send_status(&mut self, id: ClientId, until: u64, now: u64) -> Fate {
        let Some(mut job) = self.connections.get_mut(&id).and_then(|connection| connection.status.take()) else {
            return Fate::Stays;
        };
        let mut fate = Fate::Stays;
        let mut goes_on = true;
        while goes_on && fate == Fate::Stays {
            self.write_status(&mut job);
            let Some(connection) = self.connections.get_mut(&id) else { return fate };
            while let Some((number, reply)) = job.next_packet()
                && fate == Fate::Stays
            {
                let is_last = matches!(reply, Reply::StatusReport { part: Part::Last, .. });
                fate = connection.send(number, &reply, &[], now);
                if is_last {
                    return fate;
                }
            }
            goes_on = !connection.is_blocked() && pmux::serving::now_ns() < until;
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.status = Some(job);
        }
        fate
    }

    /// Nothing happens to a client that waits for the rest of an answer: it has further turns by itself.
    fn go_on_with_status(&mut self, id: ClientId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.status.is_some() && connection.waits == Waits::Request && connection.ready.is_none() {
            let ready = Ready { token: Token(id.0 + FIRST_CLIENT), readable: true, writable: false, hangup: false };
            self.client_is_ready(id, ready);
        }
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
            let text = format_args!("{} is cut off: {why}", connection.who);
            say_of(&self.log, &mut self.flood, connection.user, Level::Warning, text);
            self.service.note_cut_off();
        }
        self.let_go(id);
    }

    /// Gives everything back that a client held.
    pub(super) fn let_go(&mut self, id: ClientId) {
        // With it go copies of events' files that it has not received: they must not be the last ones.
        let Some(connection) = self.connections.remove(&id).map(Connection::without_answers) else { return };
        let events = self.service.gone(id);
        let level = if connection.greeted && events > 0 { Level::Info } else { Level::Debug };
        let text = format_args!("{} has gone; {events} events of it are closed", connection.who);
        say_of(&self.log, &mut self.flood, connection.user, level, text);
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
}

const fn interest(waits: Waits) -> Interest {
    match waits {
        Waits::Room => Interest::Write,
        Waits::Request | Waits::Turn => Interest::Read,
    }
}

/// Whether the rights of its client, as they are now, decide about a request.
const fn needs_rights(request: &Request) -> bool {
    matches!(
        request,
        Request::Open(_)
            | Request::OpenCgroup(_)
            | Request::Subscribe(_)
            | Request::Control { verb: Verb::Modify(_), .. }
    )
}

fn level(connection: &mut Connection, note: &Note) -> Level {
    match note {
        Note::Welcomed | Note::Closed(_) => Level::Debug,
        Note::Refused(_) => Level::Info,
        Note::Opened(..) | Note::Subscribed(..) => {
            connection.logged += 1;
            if connection.logged <= LOGGED_OPENS { Level::Info } else { Level::Debug }
        }
    }
}
