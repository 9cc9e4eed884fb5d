//! The rings: one for each CPU, into which all events of that CPU write.
//!
//! What it is: on each CPU an event of the calling thread that counts nothing and holds the ring (an *outlet*). It outlives every
//! task that is recorded, and its CPU going offline: what comes back is led into the ring that is there. Read first: [`Rings`].
//!
//! **Invariant:** a CPU has one ring as long as the recording lasts.

use super::attrs::CLOCK_MONOTONIC;
use crate::error::Error;
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags, EventType, Wakeup};
use pmux_engine::context::{ContextKey, Filter};
use pmux_engine::shell::Opened;
use pmux_engine::{CpuId, EventId, GroupSpec, Target};
use pmux_linux::Errno;
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost, MappedRing};
use pmux_linux::ring::Ring;
use std::os::fd::BorrowedFd;

/// Bytes of all rings together, where nobody says how large they are.
const TOTAL_BYTES: u64 = 64 << 20;
/// Bytes of a ring, where nobody says: the most, and what is tried down to where more is not allowed.
const USUAL_BYTES: u64 = 1 << 20;
const LEAST_BYTES: u64 = 32 << 10;

/// One CPU's ring.
struct Outlet {
    cpu: CpuId,
    opened: Opened,
    ring: MappedRing,
}

/// All rings.
pub(super) struct Rings {
    session: Session,
    outlets: Vec<Outlet>,
    pages: u32,
}

fn outlet_attr(ring_bytes: u64) -> Attr {
    Attr {
        kind: EventType::SOFTWARE,
        config: pmux_abi::attr::sw::DUMMY,
        // Without inheritance the last flag does nothing, but that it marks an event with records.
        flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::USE_CLOCKID | AttrFlags::INHERIT_STAT,
        clock_id: CLOCK_MONOTONIC,
        // A ring wants to be read when a quarter of it is full: what is left must do until somebody comes.
        wakeup: Wakeup::Bytes(u32::try_from(ring_bytes / 4).unwrap_or(u32::MAX)),
        ..Attr::default()
    }
}

impl Rings {
    /// Maps a ring for each of these CPUs: of so many bytes, or of as many as are good and allowed.
    pub(super) fn open(session: &Session, cpus: &[CpuId], wanted_bytes: Option<u64>) -> Result<Self, Error> {
        let page_bytes = u64::from(pmux_linux::page_bytes());
        let pages = |bytes: u64| u32::try_from(bytes.div_ceil(page_bytes).next_power_of_two()).unwrap_or(1 << 31);
        let usual = USUAL_BYTES.min(TOTAL_BYTES / cpus.len().max(1) as u64).max(LEAST_BYTES * 4);
        let mut bytes = wanted_bytes.unwrap_or(usual);
        loop {
            let mut rings = Self { session: session.clone(), outlets: Vec::new(), pages: pages(bytes) };
            // All in one size, or the first would take what the last ones need.
            match cpus.iter().try_for_each(|&cpu| rings.add(cpu)) {
                Ok(()) => return Ok(rings),
                Err(Error::Ring { errno: Errno::EPERM | Errno::ENOMEM, .. })
                    if wanted_bytes.is_none() && bytes > LEAST_BYTES =>
                {
                    bytes /= 2;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Maps the ring of one more CPU.
    pub(super) fn add(&mut self, cpu: CpuId) -> Result<(), Error> {
        let engine = self.session.engine();
        let attr = outlet_attr(u64::from(self.pages) * u64::from(pmux_linux::page_bytes()));
        let own = ContextKey::Task(LinuxHost::task(pmux_linux::current_tid()));
        let target = Target { context: own, filter: Filter::OnCpu(cpu) };
        let opened = engine.open(&GroupSpec::single(KERNEL, attr), target);
        let opened = opened
            .map_err(|error| Error::Refused(vec![self.session.refusal(error, &attr, TargetKind::Task(Whose::Own))]))?;
        let mapped = engine.lease(opened.events[0]).map_err(Error::Read).and_then(|lease| {
            let failed = |errno| Error::Ring { what: "mapping a ring for records", errno };
            engine.host().map_ring(lease, self.pages).map_err(failed)
        });
        match mapped {
            Ok(ring) => {
                self.outlets.push(Outlet { cpu, opened, ring });
                Ok(())
            }
            Err(error) => {
                engine.close(opened.group);
                Err(error)
            }
        }
    }

    /// Leads an event into the ring of its CPU, which is made where there is none; answers the event's id of the kernel.
    pub(super) fn lead(&mut self, event: EventId, cpu: CpuId) -> Result<u64, Error> {
        if !self.outlets.iter().any(|outlet| outlet.cpu == cpu) {
            self.add(cpu)?;
        }
        let engine = self.session.engine();
        let failed = |errno| Error::Ring { what: "leading records into a ring", errno };
        let from = engine.lease(event)?;
        if let Some(outlet) = self.outlets.iter().find(|outlet| outlet.cpu == cpu) {
            engine.host().redirect(from, engine.lease(outlet.opened.events[0])?).map_err(failed)?;
        }
        engine.host().kernel_id(from).map_err(failed)
    }

    /// What becomes readable when a ring fills up.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.outlets.iter().map(|outlet| outlet.ring.fd())
    }

    /// The rings, by CPU as they came.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.outlets.iter_mut().map(|outlet| &mut outlet.ring.ring)
    }

    /// Bytes of each, and how many there are.
    pub(super) fn bytes(&self) -> (u64, usize) {
        let bytes = self.outlets.first().map_or(0, |outlet| outlet.ring.ring.capacity_bytes());
        (bytes, self.outlets.len())
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        for outlet in &self.outlets {
            self.session.engine().close(outlet.opened.group);
        }
    }
}
