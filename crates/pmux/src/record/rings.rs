//! The rings of a recording: one for each CPU, into which all events of that CPU write.
//!
//! What it is: on each CPU an [`RingOwner`], from which records are taken out. Where what samples is to be overwritten instead, that goes
//! into rings of its own ([`CpuRings`]), and only what explains samples is taken out here. Read first: [`Rings`].
//!
//! **Invariant:** a CPU has one such ring as long as the recording lasts.

use super::open::EventRole;
use crate::error::Error;
use crate::flight::CpuRings;
use crate::ring_owner::{RingOwner, is_too_large, pages};
use crate::session::Session;
use pmux_engine::{CpuId, EventId};
use pmux_linux::host::MappedRing;
use pmux_linux::ring::Ring;
use std::os::fd::BorrowedFd;

/// Bytes of all rings together, where the caller does not say how large they are.
const TOTAL_BYTES: u64 = 64 << 20;
/// Bytes of a ring, where the caller does not say: the most, and what is tried down to where more is not allowed.
const USUAL_BYTES: u64 = 1 << 20;
const LEAST_BYTES: u64 = 32 << 10;

pub(crate) struct Rings {
    session: Session,
    ring_owners: Vec<RingOwner<MappedRing>>,
    pages: u32,
    /// Where samples go that are overwritten, if not here.
    pub(crate) cpu_rings: Option<CpuRings>,
}

impl Rings {
    /// Maps a ring for each of these CPUs: of so many bytes, or of as many as are good and allowed.
    pub(super) fn open(
        session: &Session,
        cpus: &[CpuId],
        wanted_bytes: Option<u64>,
        cpu_rings: Option<CpuRings>,
    ) -> Result<Self, Error> {
        let usual = USUAL_BYTES.min(TOTAL_BYTES / cpus.len().max(1) as u64).max(LEAST_BYTES * 4);
        let mut bytes = wanted_bytes.unwrap_or(usual);
        let mut rings = Self { session: session.clone(), ring_owners: Vec::new(), pages: 0, cpu_rings };
        loop {
            rings.pages = pages(bytes);
            // All in one size, or the first would take what the last ones need.
            match cpus.iter().try_for_each(|&cpu| rings.add(cpu)) {
                Ok(()) => return Ok(rings),
                Err(error) if is_too_large(&error) && wanted_bytes.is_none() && bytes > LEAST_BYTES => {
                    rings.ring_owners.clear();
                    bytes /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn add(&mut self, cpu: CpuId) -> Result<(), Error> {
        let ring_owner = RingOwner::open(&self.session, cpu, self.pages, "mapping a ring for records")?;
        self.ring_owners.push(ring_owner);
        Ok(())
    }

    /// Leads an event into the ring of its CPU, which is made where there is none; answers the event's id of the kernel.
    pub(super) fn lead(&mut self, event: EventId, cpu: CpuId, role: EventRole) -> Result<u64, Error> {
        match &mut self.cpu_rings {
            Some(cpu_rings) if role == EventRole::Samples => cpu_rings.lead(event, cpu)?,
            _ => {
                if !self.ring_owners.iter().any(|ring_owner| ring_owner.cpu == cpu) {
                    self.add(cpu)?;
                }
                let mut ring_owners = self.ring_owners.iter().filter(|ring_owner| ring_owner.cpu == cpu);
                ring_owners.try_for_each(|ring_owner| ring_owner.lead(event))?;
            }
        }
        let engine = self.session.engine();
        let failed = |errno| Error::Ring { what: "asking for the number of an event", errno };
        engine.host().kernel_id(engine.lease(event)?).map_err(failed)
    }

    /// What becomes readable when a ring fills up.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ring_owners.iter().map(|ring_owner| ring_owner.ring.fd())
    }

    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.each_with_cpu().map(|(_, ring)| ring)
    }

    pub(super) fn each_with_cpu(&mut self) -> impl Iterator<Item = (CpuId, &mut Ring)> {
        self.ring_owners.iter_mut().map(|ring_owner| (ring_owner.cpu, &mut ring_owner.ring.ring))
    }

    /// Bytes of each, and how many there are.
    pub(super) fn bytes(&self) -> (u64, usize) {
        let bytes = self.ring_owners.first().map_or(0, |ring_owner| ring_owner.ring.ring.capacity_bytes());
        (bytes, self.ring_owners.len())
    }
}
