//! What one client may do at a time.
//!
//! **Invariant:** a client waits for one thing at a time: its next request, room for an answer, or the moment from which it may
//! ask again. A client that is cut off has lost everything in the same step.

use super::connection::{Connection, ConnectionState, WaitsFor};
use super::{FIRST_CLIENT, MILLISECOND_NS, Server, log_for_user};
use crate::config::Level;
use crate::service::{ClientId, Effect, Note};
use pmux::server_api::shared::channel::Received;
use pmux::server_api::shared::poll::{Interest, Ready, Token};
use pmux::server_api::shared::wire::{EventOp, Part, Reply, Request, decode_request};
use pmux::server_api::{RequestId, Retry};
use std::os::fd::OwnedFd;

/// Requests of one client before the others have their turn.
const REQUESTS: usize = 16;
/// And for so long at most; the request that is under way is finished.
const TURN_NS: u64 = MILLISECOND_NS;
/// All turns together last so long before everything else is looked at, and one turn longer.
const TURNS_NS: u64 = 4 * MILLISECOND_NS;
/// Slow clients are looked for as often as this part of the time that they may take.
const LOOKS: u64 = 4;
const RIGHTS_GIVEN_UP: &str =
    "this process has given up rights with which it connected, and which exempt it from budgets: connect anew";

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
        let until = pmux::server_api::now_ns() + TURNS_NS;
        while let Some(id) = self.queue.pop() {
            let now = pmux::server_api::now_ns();
            self.take_turn(id, now);
            if now > until {
                break;
            }
        }
    }

    fn take_turn(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let hangup = connection.ready.take().is_some_and(|report| report.hangup);
        let state = match connection.waits {
            // What is left in its socket belongs to no client any more.
            WaitsFor::Room | WaitsFor::Opener if hangup => ConnectionState::Closed,
            WaitsFor::Room => connection.flush(now),
            WaitsFor::Opener => self.try_again(id, now),
            WaitsFor::Request => self.take_requests(id, now),
            WaitsFor::Turn => return,
        };
        self.settle(id, state, now);
        self.go_on_with_status(id);
    }

    pub(super) fn resume(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let token = Token(id.0 + FIRST_CLIENT);
        if connection.waits != WaitsFor::Turn {
            return;
        }
        match self.poll.add(&connection.channel, token, Interest::Read) {
            Ok(()) => {
                connection.waits = WaitsFor::Request;
                self.go_on_with_status(id);
            }
            Err(_) => self.settle(id, ConnectionState::CutOff("it can't be waited for".to_owned()), now),
        }
    }

    fn take_requests(&mut self, id: ClientId, now: u64) -> ConnectionState {
        let mut effects = Vec::new();
        let until = pmux::server_api::now_ns() + TURN_NS;
        for _ in 0..REQUESTS {
            let Some(connection) = self.connections.get_mut(&id) else { return ConnectionState::Open };
            if connection.status.is_some() {
                return self.send_status(id, until, now);
            }
            if connection.is_blocked() || self.service.ready_at(id, now).is_some() {
                return ConnectionState::Open;
            }
            let greeted = connection.greeted;
            match connection.channel.receive(&mut self.buffer, 0) {
                Ok(Received::Nothing) => return ConnectionState::Open,
                Ok(Received::End) | Err(_) => return ConnectionState::Closed,
                Ok(Received::Cut) => {
                    self.service.nonsense(id, "a packet is at most 64 KiB long and has no files", &mut effects);
                }
                Ok(Received::Stranger) => {
                    let text = "this packet was sent by another process, or with another user or group, than connected: connect anew";
                    self.service.nonsense(id, text, &mut effects);
                }
                Ok(Received::Packet(bytes, _)) => match decode_request(self.buffer.bytes(bytes)) {
                    Ok((_, Request::Status { .. })) if greeted && !self.refresh_peer(id) => {
                        self.service.nonsense(id, RIGHTS_GIVEN_UP, &mut effects);
                    }
                    Ok((number, Request::Status { detail })) if greeted => {
                        self.service.note_request(id, now);
                        let job = Box::new(self.status_job(id, number, detail));
                        if let Some(connection) = self.connections.get_mut(&id) {
                            connection.status = Some(job);
                        }
                    }
                    Ok(request) => self.try_request(id, now, request, &mut effects),
                    Err(error) => self.service.nonsense(id, &format!("it can't be understood: {error}"), &mut effects),
                },
            }
            let state = self.carry_out(id, now, &mut effects);
            let Some(connection) = self.connections.get(&id) else { return state };
            let is_over = connection.leaving || connection.parked.is_some();
            if state != ConnectionState::Open || is_over || pmux::server_api::now_ns() > until {
                return state;
            }
        }
        ConnectionState::Open
    }

    fn carry_out(&mut self, id: ClientId, now: u64, effects: &mut Vec<Effect<OwnedFd>>) -> ConnectionState {
        let Some(connection) = self.connections.get_mut(&id) else { return ConnectionState::Open };
        let (log, log_limiter) = (&self.log, &mut self.log_limiter);
        connection.carry_out(effects, now, |connection, note| {
            count(connection, note);
            log_for_user(log, log_limiter, connection.user, Level::Debug, format_args!("{} {note}", connection.label));
        })
    }

    /// Does what a client asks, or keeps it until an opener has answered.
    fn try_request(&mut self, id: ClientId, now: u64, request: (u32, Request), effects: &mut Vec<Effect<OwnedFd>>) {
        if !needs_rights(&request.1) {
            self.service.request(id, &mut self.counters, now, request, effects);
            return;
        }
        if !self.refresh_peer(id) {
            self.counters.session.openers().end(RequestId(id.0));
            self.service.nonsense(id, RIGHTS_GIVEN_UP, effects);
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let openers = self.counters.session.clone();
        let openers = openers.openers();
        if !openers.begin(RequestId(id.0), connection.user) {
            connection.parked = Some(request);
            return;
        }
        let left = self.service.request(id, &mut self.counters, now, request, effects);
        // What did not come back has been answered, whatever is still to come of it.
        if openers.pause() && left.is_none() {
            openers.end(RequestId(id.0));
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.parked = left;
        }
    }

    /// An opener has answered, or has not in time.
    fn try_again(&mut self, id: ClientId, now: u64) -> ConnectionState {
        let parked = self.connections.get_mut(&id).and_then(|connection| connection.parked.take());
        let Some(request) = parked else { return ConnectionState::Open };
        let mut effects = Vec::new();
        self.try_request(id, now, request, &mut effects);
        self.carry_out(id, now, &mut effects)
    }

    /// Requests that wait for openers have their turns, as far as their openers have answered.
    pub(super) fn go_on_with_parked(&mut self) {
        let mut ready = Vec::new();
        self.counters.session.openers().go_on(&mut ready);
        let mut opened = false;
        for retry in ready {
            match retry {
                Retry::Request(RequestId(number)) => self.wake(ClientId(number)),
                Retry::OfUser(user) => {
                    self.counters.session.retry_late(user);
                    opened = true;
                }
            }
        }
        if opened {
            self.counters.streams.cpus_changed();
        }
    }

    /// A turn for a client to whose socket nothing has happened.
    fn wake(&mut self, id: ClientId) {
        let ready = Ready { token: Token(id.0 + FIRST_CLIENT), readable: true, writable: false, hangup: false };
        self.client_is_ready(id, ready);
    }

    /// Writes and sends an answer about the state, as far as time and room go.
    fn send_status(&mut self, id: ClientId, until: u64, now: u64) -> ConnectionState {
        let Some(mut job) = self.connections.get_mut(&id).and_then(|connection| connection.status.take()) else {
            return ConnectionState::Open;
        };
        let mut state = ConnectionState::Open;
        let mut goes_on = true;
        while goes_on && state == ConnectionState::Open {
            self.write_status(&mut job);
            let Some(connection) = self.connections.get_mut(&id) else { return state };
            while let Some((number, reply)) = job.next_packet()
                && state == ConnectionState::Open
            {
                let is_last = matches!(reply, Reply::StatusReport { part: Part::Last, .. });
                state = connection.send(number, &reply, &[], now);
                if is_last {
                    return state;
                }
            }
            goes_on = !connection.is_blocked() && pmux::server_api::now_ns() < until;
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.status = Some(job);
        }
        state
    }

    /// Nothing happens to a client that waits for the rest of an answer: it has further turns by itself.
    fn go_on_with_status(&mut self, id: ClientId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.status.is_some() && connection.waits == WaitsFor::Request && connection.ready.is_none() {
            self.wake(id);
        }
    }

    /// Says what the connection waits for next, or ends it.
    pub(super) fn settle(&mut self, id: ClientId, state: ConnectionState, now: u64) {
        match state {
            ConnectionState::Open => self.wait_on(id, now),
            ConnectionState::Closed => self.let_go(id),
            ConnectionState::CutOff(why) => self.cut_off(id, &why),
        }
        self.plan_refresh(now, 0);
    }

    fn wait_on(&mut self, id: ClientId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let token = Token(id.0 + FIRST_CLIENT);
        let next = if connection.is_blocked() || connection.leaving {
            WaitsFor::Room
        } else if connection.parked.is_some() {
            WaitsFor::Opener
        } else if self.service.ready_at(id, now).is_some() {
            WaitsFor::Turn
        } else {
            WaitsFor::Request
        };
        if next == connection.waits {
            return;
        }
        let channel = &connection.channel;
        let changed = match (connection.waits.interest(), next.interest()) {
            (None, Some(interest)) => self.poll.add(channel, token, interest),
            (Some(_), None) => self.poll.remove(channel),
            (Some(_), Some(interest)) => self.poll.change(channel, token, interest),
            (None, None) => Ok(()),
        };
        let was_blocked = connection.waits == WaitsFor::Room;
        connection.waits = next;
        if let Some(at) = self.service.ready_at(id, now).filter(|_| next == WaitsFor::Turn) {
            self.paused.insert((at, id));
        }
        if next == WaitsFor::Room {
            self.plan_slow_check(now);
        }
        if next == WaitsFor::Opener && was_blocked {
            // The answer may have come meanwhile.
            self.wake(id);
        }
        if changed.is_err() {
            self.cut_off(id, "it can't be waited for");
        }
    }

    pub(super) fn cut_off(&mut self, id: ClientId, why: &str) {
        if let Some(connection) = self.connections.get(&id) {
            connection.send_last_notice(why);
            let text = format_args!("{} is cut off: {why}", connection.label);
            log_for_user(&self.log, &mut self.log_limiter, connection.user, Level::Warning, text);
            self.service.note_cut_off();
        }
        self.let_go(id);
    }

    /// Gives everything back that a client held.
    pub(super) fn let_go(&mut self, id: ClientId) {
        // With it go copies of events' files that it has not received: they must not be the last ones.
        let Some(connection) = self.connections.remove(&id).map(Connection::without_answers) else { return };
        self.counters.session.openers().end(RequestId(id.0));
        let events = self.service.gone(id);
        let (opened, refused) = (connection.opened, connection.refused);
        let level = if opened + refused > 0 { Level::Info } else { Level::Debug };
        let text = format_args!("{} has gone: {events} events were open, {}", connection.label, connection.done());
        log_for_user(&self.log, &mut self.log_limiter, connection.user, level, text);
        if connection.waits == WaitsFor::Turn {
            self.paused.retain(|&(_, of)| of != id);
        }
    }

    /// A client may have to be cut off some time later.
    pub(super) fn plan_slow_check(&mut self, now: u64) {
        let within = u64::from(self.config.limits.slow_ms) * MILLISECOND_NS / LOOKS;
        self.next_slow_check_ns = self.next_slow_check_ns.min(now + within);
    }

    /// Cuts off those that don't read, and those that never say hello.
    pub(super) fn cut_off_slow_clients(&mut self, now: u64) {
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
            self.plan_slow_check(now);
        }
    }
}

/// Whether the rights of its client, as they are now, decide about a request.
const fn needs_rights(request: &Request) -> bool {
    matches!(
        request,
        Request::Open(_)
            | Request::OpenCgroup(_)
            | Request::Subscribe(_)
            | Request::Control { op: EventOp::Modify(_), .. }
    )
}

/// Counts what a client has done, for the line when it goes.
fn count(connection: &mut Connection, note: &Note) {
    match note {
        Note::Opened(_, names, _) | Note::Subscribed(_, names, _) => connection.opened += names.len() as u64,
        Note::Refused(refusal) => {
            connection.refused += 1;
            connection.last_refusal = Some(refusal.clone());
        }
        Note::Welcomed | Note::Closed(_) => {}
    }
}
