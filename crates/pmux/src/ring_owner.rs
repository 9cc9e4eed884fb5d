//! Rings, and who holds them.
//!
//! What it is: a ring belongs to an event, and the events whose records are wanted come and go. So beside them stands an event of the
//! calling thread on each CPU that counts nothing and holds the ring (a *ring owner*). It outlives every task that is followed, and its CPU
//! going offline: what comes back is led into the ring that is there. Read first: [`RingOwner::open`].
//!
//! **Invariant:** a ring owner's event is closed with it; the thread that opens it is to live as long. All events of a ring owner are
//! on its CPU, and their times are those of one clock.

use crate::error::Error;
use crate::owned_group::Owned;
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags, EventType, Wakeup};
use pmux_engine::pmu::Lease;
use pmux_engine::target::{ContextKey, Filter, Opened};
use pmux_engine::{CpuId, EventId, GroupSpec, Target};
use pmux_linux::Errno;
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost, MappedRing};
use pmux_linux::ring::BackwardRing;

/// `CLOCK_MONOTONIC`, so that times compare with ours.
pub(crate) const CLOCK_MONOTONIC: i32 = 1;

/// The ring of one CPU, and the event that holds it. `R` is the kind of ring.
pub(crate) struct RingOwner<R> {
    opened: Owned<Opened>,
    /// The CPU that writes into it.
    pub(crate) cpu: CpuId,
    pub(crate) ring: R,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Full {
    /// It takes nothing until a reader has read.
    Waits,
    /// It gives up what is oldest.
    Overwrites,
}

fn dummy_attr(pages: u32, full: Full) -> Attr {
    // Without inheritance the last flag does nothing, but that it marks an event with records.
    let mut flags =
        AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV | AttrFlags::USE_CLOCKID | AttrFlags::INHERIT_STAT;
    flags.set(AttrFlags::WRITE_BACKWARD, full == Full::Overwrites);
    let quarter = u64::from(pages) * u64::from(pmux_linux::page_bytes()) / 4;
    Attr {
        kind: EventType::SOFTWARE,
        config: pmux_abi::attr::sw::DUMMY,
        flags,
        clock_id: CLOCK_MONOTONIC,
        // A ring wants to be read when a quarter of it is full: what is left must suffice until a reader comes.
        wakeup: Wakeup::Bytes(u32::try_from(quarter).unwrap_or(u32::MAX)),
        ..Attr::default()
    }
}

/// How many pages are so many bytes, rounded up to what a ring can have.
pub(crate) fn pages(bytes: u64) -> u32 {
    let pages = bytes.div_ceil(u64::from(pmux_linux::page_bytes())).max(1);
    pages.checked_next_power_of_two().and_then(|pages| u32::try_from(pages).ok()).unwrap_or(1 << 31)
}

impl RingOwner<MappedRing> {
    /// Maps a ring of so many pages, a power of two, for a CPU: one that is drained.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Ring`] with `what` was tried.
    pub(crate) fn open(session: &Session, cpu: CpuId, pages: u32, what: &'static str) -> Result<Self, Error> {
        Self::with(session, cpu, dummy_attr(pages, Full::Waits), what, |lease| {
            session.engine().host().map_ring(lease, pages)
        })
    }
}

impl RingOwner<BackwardRing> {
    /// As the other one: a ring that overwrites what is oldest. Only events with `WRITE_BACKWARD` can be led into it.
    pub(crate) fn open_backward(session: &Session, cpu: CpuId, pages: u32, what: &'static str) -> Result<Self, Error> {
        Self::with(session, cpu, dummy_attr(pages, Full::Overwrites), what, |lease| {
            session.engine().host().map_backward_ring(lease, pages)
        })
    }
}

impl<R> RingOwner<R> {
    fn with(
        session: &Session,
        cpu: CpuId,
        attr: Attr,
        what: &'static str,
        map: impl FnOnce((ContextKey, Lease)) -> Result<R, Errno>,
    ) -> Result<Self, Error> {
        let own = ContextKey::Task(LinuxHost::task(pmux_linux::current_tid()));
        let target = Target { context: own, filter: Filter::OnCpu(cpu) };
        let refused = |error| Error::Refused(vec![session.refusal(error, &attr, TargetKind::Task(Whose::Own))]);
        let opened = session.hold(&GroupSpec::single(KERNEL, attr), target).map_err(refused)?;
        let lease = session.engine().lease(opened.events[0])?;
        let ring = map(lease).map_err(|errno| Error::Ring { what, errno })?;
        Ok(Self { opened, cpu, ring })
    }

    /// The slot of its event.
    pub(crate) fn lease(&self) -> Result<(ContextKey, Lease), Error> {
        Ok(self.opened.session.engine().lease(self.opened.events[0])?)
    }

    /// Leads an event of its CPU into the ring. From one record to the next the event changes over; it may have been led elsewhere before.
    pub(crate) fn lead(&self, event: EventId) -> Result<(), Error> {
        let engine = self.opened.session.engine();
        let failed = |errno| Error::Ring { what: "leading records into a ring", errno };
        engine.host().redirect(engine.lease(event)?, self.lease()?).map_err(failed)
    }
}

/// Whether an error says that a ring is larger than allowed, or than there is memory for.
pub(crate) fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::Ring { errno: Errno::EPERM | Errno::ENOMEM, .. })
}
