//! The rings of a recording: one for each CPU, into which all events of that CPU write.
//!
//! What it is: on each CPU an [`Outlet`], from which records are taken out. Where what samples is to be overwritten instead, that goes
//! into rings of its own ([`Lanes`]), and only what explains samples is taken out here. Read first: [`Rings`].
//!
//! **Invariant:** a CPU has one such ring as long as the recording lasts.

use super::open::Role;
use crate::error::Error;
use crate::flight::Lanes;
use crate::outlet::{Outlet, is_too_large, pages};
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
    outlets: Vec<Outlet<MappedRing>>,
    pages: u32,
    /// Where samples go, if not here.
    lanes: Option<Lanes>,
}

impl Rings {
    /// Maps a ring for each of these CPUs: of so many bytes, or of as many as are good and allowed.
    pub(super) fn open(
        session: &Session,
        cpus: &[CpuId],
        wanted_bytes: Option<u64>,
        lanes: Option<Lanes>,
    ) -> Result<Self, Error> {
        let usual = USUAL_BYTES.min(TOTAL_BYTES / cpus.len().max(1) as u64).max(LEAST_BYTES * 4);
        let mut bytes = wanted_bytes.unwrap_or(usual);
        let mut rings = Self { session: session.clone(), outlets: Vec::new(), pages: 0, lanes };
        loop {
            rings.pages = pages(bytes);
            // All in one size, or the first would take what the last ones need.
            match cpus.iter().try_for_each(|&cpu| rings.add(cpu)) {
                Ok(()) => return Ok(rings),
                Err(error) if is_too_large(&error) && wanted_bytes.is_none() && bytes > LEAST_BYTES => {
                    rings.outlets.clear();
                    bytes /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn add(&mut self, cpu: CpuId) -> Result<(), Error> {
        let outlet = Outlet::open(&self.session, cpu, self.pages, "mapping a ring for records")?;
        self.outlets.push(outlet);
        Ok(())
    }

    /// Leads an event into the ring of its CPU, which is made where there is none; answers the event's id of the kernel.
    pub(super) fn lead(&mut self, event: EventId, cpu: CpuId, role: Role) -> Result<u64, Error> {
        match &mut self.lanes {
            Some(lanes) if role == Role::Samples => lanes.lead(event, cpu)?,
            _ => {
                if !self.outlets.iter().any(|outlet| outlet.cpu == cpu) {
                    self.add(cpu)?;
                }
                self.outlets.iter().filter(|outlet| outlet.cpu == cpu).try_for_each(|outlet| outlet.lead(event))?;
            }
        }
        let engine = self.session.engine();
        let failed = |errno| Error::Ring { what: "asking for the number of an event", errno };
        engine.host().kernel_id(engine.lease(event)?).map_err(failed)
    }

    /// What becomes readable when a ring fills up.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outlets.iter().map(|outlet| outlet.ring.fd())
    }

    /// The rings, by CPU as they came.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.outlets.iter_mut().map(|outlet| &mut outlet.ring.ring)
    }

    /// Where samples go that are overwritten.
    pub(crate) fn lanes(&mut self) -> Option<&mut Lanes> {
        self.lanes.as_mut()
    }

    /// Bytes of each, and how many there are.
    pub(super) fn bytes(&self) -> (u64, usize) {
        let bytes = self.outlets.first().map_or(0, |outlet| outlet.ring.ring.capacity_bytes());
        (bytes, self.outlets.len())
    }
}
