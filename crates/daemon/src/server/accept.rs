//! Clients that connect, and what is known of each.
//!
//! **Invariant:** a client without a place costs as little as can be: nothing is read about it.

use super::connection::Connection;
use super::start::membership;
use super::{ACCEPTS, FIRST_CLIENT, LOG_AGAIN_NS, NO_FILES_NS, Server, log_for_user};
use crate::config::Level;
use crate::payer::WITHOUT_RIGHTS;
use crate::rights::Membership;
use crate::service::{ClientId, Counting as _, KEPT_FOR_ROOT, errno};
use pmux::server_api::shared::channel::{Channel, SocketPeer};
use pmux::server_api::shared::poll::{Interest, Token};
use pmux::server_api::shared::wire::{Refusal, RefusalKind, Reply, encode_reply};
use pmux::server_api::{Peer, PeerCred, user_namespace_of};
use std::os::fd::{AsFd, OwnedFd};

impl Server {
    /// Takes in clients that wait, some at a time.
    pub(super) fn accept(&mut self, now: u64) {
        for _ in 0..ACCEPTS {
            self.reserve.give_up();
            match self.listener.accept() {
                Ok(Some(channel)) => self.take_in(channel, now),
                Ok(None) => {
                    self.reserve.refill(&self.listener);
                    return;
                }
                Err(errno) => {
                    // It would be reported again and again.
                    self.log.write(Level::Error, format_args!("no client can be taken in: {errno}"));
                    let _ = self.poll.remove(&self.listener);
                    self.accept_from_ns = now + NO_FILES_NS;
                    return;
                }
            }
        }
        self.reserve.refill(&self.listener);
    }

    fn take_in(&mut self, channel: Channel, now: u64) {
        let Ok(SocketPeer { pid, uid: user, gid: group, groups, label, process }) = channel.peer() else { return };
        let connected = PeerCred { process: pid, user, group, groups, label };
        // Before anything is read about it, but for those that could be exempt: a client without a place costs little.
        let mut gathered = None;
        self.payers.refresh();
        let payer = self.payers.payer(user, || {
            let peer = gathered.insert(self.gather(connected.clone(), process.as_ref()));
            peer.credentials
        });
        if let Err(refusal) = self.service.has_place(payer) {
            let text = format_args!("user {user}, process {pid}, is turned away: {}", refusal.text);
            log_for_user(&self.log, &mut self.log_limiter, payer, Level::Warning, text);
            return turn_away(&channel, refusal);
        }
        let peer = gathered.unwrap_or_else(|| self.gather(connected, process.as_ref()));
        // Where the kernel tells it again, it is not kept: it would be one more file for each client.
        let process = process.filter(|_| channel.process().is_err());
        let kept_back = self.service.rules.files_kept_back(payer);
        let has_files = self.reserve.refill(&self.listener);
        if has_files && self.counters.files_left() < kept_back {
            let text = format_args!("user {user}, process {pid}, is turned away: {KEPT_FOR_ROOT}");
            log_for_user(&self.log, &mut self.log_limiter, payer, Level::Warning, text);
            return turn_away(&channel, Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, KEPT_FOR_ROOT));
        }
        if !has_files {
            let text = pmux::server_api::NO_FILES;
            turn_away(&channel, Refusal::new(RefusalKind::Limit, 0, errno::EMFILE, text));
            self.turned_away += 1;
            if now >= self.log_again_ns {
                self.log_again_ns = now + LOG_AGAIN_NS;
                let count = std::mem::take(&mut self.turned_away);
                self.log.write(Level::Error, format_args!("new clients are turned away ({count} so far): {text}"));
            }
            return;
        }
        match self.service.connect((peer.clone(), payer), membership(&peer, &self.system_wide), now) {
            Ok(id) => {
                let queue = self.config.limits.queue_kib as usize * 1024;
                let connection = Connection::new((channel, process), (&peer, payer), id.0, queue, now);
                if self.poll.add(&connection.channel, Token(id.0 + FIRST_CLIENT), Interest::Read).is_err() {
                    self.service.gone(id);
                    return;
                }
                self.log.write(Level::Debug, format_args!("{} has connected", connection.label));
                self.connections.insert(id, connection);
                self.plan_slow_check(now);
            }
            Err(refusal) => {
                let (user, process) = (peer.connected.user, peer.connected.process);
                let label = format_args!("user {user}, process {process}, is turned away: {}", refusal.text);
                log_for_user(&self.log, &mut self.log_limiter, payer, Level::Warning, label);
                turn_away(&channel, refusal);
            }
        }
    }

    fn gather(&self, connected: PeerCred, process: Option<&OwnedFd>) -> Peer {
        Peer::gather(&self.proc, connected, process.map(AsFd::as_fd), user_namespace_of)
    }

    /// Brings what is known of a client up to date, because its rights decide about what it asks for: it may have given some up, or
    /// gained some, since it asked last. Answers whether it may go on: one that was exempt from budgets, and has given up the rights that
    /// made it so, has to connect anew.
    pub(super) fn refresh_peer(&mut self, id: ClientId) -> bool {
        let look = |server: &Self| {
            let connection = server.connections.get(&id)?;
            let again = connection.channel.process();
            let process = connection.process.as_ref().or(again.as_ref().ok());
            Some(server.gather(connection.connected.clone(), process))
        };
        let Some(mut peer) = look(self) else { return true };
        if peer.credentials.is_none() {
            // To look needs files, also where none is left.
            self.reserve.give_up();
            peer = look(self).unwrap_or(peer);
            self.reserve.refill(&self.listener);
        }
        let (user, known) = (peer.connected.user, peer.credentials.is_some());
        let payer = self.payers.payer(user, || peer.credentials);
        let paid_by = self.connections.get(&id).map(|connection| connection.user);
        let was_exempt = payer == WITHOUT_RIGHTS && paid_by != Some(WITHOUT_RIGHTS);
        // One that has exited has no rights; nor has one, on an account that is exempt, of which it is not known what it may.
        let membership = match peer.has_exited || (was_exempt && !known) {
            true => Membership::None,
            false => membership(&peer, &self.system_wide),
        };
        self.service.set_peer(id, peer, membership);
        !(was_exempt && known)
    }
}

/// Tells a client that has just connected why it can't stay.
fn turn_away(channel: &Channel, refusal: Refusal) {
    if let Ok(packet) = encode_reply(0, &Reply::Refused(refusal)) {
        let _ = channel.send(&packet, &[]);
    }
}
