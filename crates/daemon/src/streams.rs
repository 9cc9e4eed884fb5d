//! The records of this machine, as the service passes them on.
//!
//! What it is: [`pmux::server_api::Streams`] of the session behind the trait of [`crate::service`].
//!
//! **Invariant:** every event is opened with the rights of its client, by the kernel's own decision.

use crate::counters::{Counters, NO_TASK, not_yet};
use crate::rights;
use crate::service::{Counting as _, Flow, Refused, Streaming, Subscription};
use pmux::server_api::shared::wire::{EventNumber, Scope};
use pmux::server_api::{
    Acting, EventTarget, Peer, ServeError, StreamId, StreamRequest, StreamScope, TargetKind, TargetScope, Whose,
};
use std::os::fd::OwnedFd;

/// The capability that frees from the limit of locked memory. Source: `capabilities(7)`.
const IPC_LOCK: u64 = 1 << 14;
/// For so long at most one subscription is given what waits for it at one request.
const END_NS: u64 = 100_000_000;

impl Counters {
    /// With whose rights a client is given records, if it may have them. The kernel decides once more when they are opened; here it is
    /// asked also where equal ones are open already.
    fn may_record(&mut self, peer: &Peer, wanted: &Subscription) -> Result<Acting, Refused> {
        let target_scope = match wanted.scope {
            Scope::Cpus(_) => TargetScope::WholeCpu,
            Scope::Tasks(_) => TargetScope::Task,
        };
        for (index, attr) in wanted.attrs.iter().enumerate() {
            let pmu = self.pmu(attr.kind);
            let may = rights::may_record(peer, attr, pmu).and_then(|()| self.module_allows(peer, attr, target_scope));
            may.map_err(|denied| Refused::Denied(index, denied))?;
        }
        let acting = self.acting(peer).map_err(|denied| Refused::Denied(0, denied))?;
        match &wanted.scope {
            Scope::Cpus(_) => {
                let cpu = self.session.online().iter().next().unwrap_or_default();
                let target = EventTarget { task: None, cpu: Some(cpu) };
                self.check_target(&acting, &wanted.attrs, (target, TargetKind::Cpu(cpu)))?;
            }
            Scope::Tasks(tasks) => {
                let mut checked = Ok(());
                for &task in tasks {
                    let target = EventTarget { task: Some(task), cpu: None };
                    match self.check_target(&acting, &wanted.attrs, (target, TargetKind::Task(Whose::Other))) {
                        // The opener is asked about all of them at once.
                        Err(refused @ Refused::Late(_)) if self.is_waiting() => checked = Err(refused),
                        // One that has gone is left out; where all have, opening says so.
                        Err(Refused::Failed(ServeError { errno: NO_TASK, .. })) if tasks.len() > 1 => {}
                        answered => answered?,
                    }
                }
                checked?;
            }
        }
        Ok(acting)
    }
}

impl Streaming for Counters {
    type Stream = StreamId;
    type File = OwnedFd;

    fn places(&self, scope: &Scope) -> u32 {
        let online = self.session.online().len();
        let places = match scope {
            Scope::Cpus(cpus) if cpus.is_empty() => online,
            Scope::Cpus(cpus) => cpus.len(),
            Scope::Tasks(tasks) => tasks.len().saturating_mul(online),
        };
        u32::try_from(places).unwrap_or(u32::MAX)
    }

    fn kernel_bytes(&self) -> u64 {
        self.streams.kernel_bytes()
    }

    fn locked_bytes(&mut self, peer: &Peer) -> u64 {
        if peer.capabilities() & IPC_LOCK != 0 || self.paranoid() <= -1 {
            return u64::MAX;
        }
        let process = peer.process.map_or(0, pmux::server_api::locked_memory_of);
        let cpus = self.session.online().len() as u64;
        pmux::server_api::ring_memory_per_cpu().saturating_mul(cpus).saturating_add(process)
    }

    fn subscribe(&mut self, peer: &Peer, wanted: &Subscription) -> Result<(StreamId, Vec<OwnedFd>), Refused> {
        let acting = self.may_record(peer, wanted)?;
        let scope = match &wanted.scope {
            Scope::Cpus(cpus) if cpus.is_empty() => StreamScope::AllCpus,
            Scope::Cpus(cpus) => StreamScope::Cpus(cpus.iter().copied().collect()),
            Scope::Tasks(tasks) => {
                StreamScope::Tasks(tasks.iter().map(|&tid| i32::try_from(tid).unwrap_or(-1)).collect())
            }
        };
        let Subscription { attrs, ring_bytes, wake_bytes, .. } = wanted;
        let question = StreamRequest { scope, attrs: attrs.clone(), ring_bytes: *ring_bytes, wake_bytes: *wake_bytes };
        self.streams.set_source_bytes(wanted.kernel_ring_bytes);
        match self.streams.open(&acting, &question) {
            Ok((stream, _)) if self.is_waiting() => {
                self.streams.close(stream);
                Err(not_yet())
            }
            Ok((stream, files)) => Ok((stream, files.into())),
            Err(error) => Err(Self::refused(&acting, error)),
        }
    }

    fn switch(&mut self, stream: &StreamId, flow: Flow) -> Result<(), ServeError> {
        let until = pmux::server_api::now_ns() + END_NS;
        let in_time = || pmux::server_api::now_ns() < until;
        match flow {
            Flow::On => self.streams.enable_while(*stream, in_time),
            Flow::Off => {
                self.streams.disable_while(*stream, in_time);
                Ok(())
            }
        }
    }

    fn numbers(&self, stream: &StreamId) -> Vec<EventNumber> {
        self.streams.numbers(*stream)
    }

    fn unsubscribe(&mut self, stream: StreamId) {
        self.streams.close(stream);
    }
}
