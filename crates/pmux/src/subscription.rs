//! Records through a service: samples and what explains them, of events that others ask for as well.
//!
//! What it is: [`Subscription`]. The service has one event of the kernel for identical requests, and writes each record into the
//! ring of each subscriber; this is the reading end of one ring.
//! Read first: [`Subscription`].
//!
//! **Invariant:** who reads waits for the service only in [`Subscription::flush`]; where it goes away, what it had written is read still,
//! and the time until it is back is a gap that is told.

use crate::error::Error;
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_linux::cpus::CpuList;
use pmux_linux::shared::Heard;
use pmux_linux::shared::client::{AskError, Records, Service};
use pmux_linux::shared::wire::{EventNumber, EventOp, Scope, Subscribe};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Where events are opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamScope {
    /// On all CPUs, and those that come.
    AllCpus,
    /// On these CPUs.
    Cpus(CpuList),
    /// On these threads, on each CPU.
    Tasks(Vec<i32>),
}

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamRequest {
    /// Where.
    pub scope: StreamScope,
    /// Which events.
    pub attrs: Vec<Attr>,
    /// Bytes of its ring: a power of two, from 4096 on.
    pub ring_bytes: u64,
    /// It is woken with each so many bytes, at most half of the ring.
    pub wake_bytes: u64,
}

/// Records of events that a service opens for all who ask the same.
///
/// Each record comes whole, as the kernel wrote it, with the number of the event that wrote it where its attribute asks for that
/// ([`Subscription::numbers`] tells which event that is). Between records stand round marks (`PERF_RECORD_FINISHED_ROUND`), and where
/// there was no room, `PERF_RECORD_LOST` says how many were lost: a slow reader loses its own records, and no other loses any.
///
/// ```no_run
/// use pmux::abi::{Attr, AttrFlags, EventType, SampleFormat, Sampling, sw};
/// use pmux::{Session, SharedChoice, StreamRequest, StreamScope, Subscription};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let session = Session::with_shared(SharedChoice::Always)?;
/// let clock = Attr {
///     kind: EventType::SOFTWARE,
///     config: sw::CPU_CLOCK,
///     sampling: Sampling::Frequency(99),
///     sample: SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME,
///     flags: AttrFlags::SAMPLE_ID_ALL,
///     ..Attr::default()
/// };
/// let request =
///     StreamRequest { scope: StreamScope::AllCpus, attrs: vec![clock], ring_bytes: 1 << 20, wake_bytes: 4096 };
/// let mut subscription = Subscription::open(&session, &request)?;
/// subscription.enable()?;
/// for _ in 0..10 {
///     std::thread::sleep(std::time::Duration::from_millis(100));
///     subscription.drain(&mut |record| println!("{} bytes", record.len()))?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Subscription {
    service: Arc<Service>,
    request: Subscribe,
    /// Whether records are wanted.
    is_on: bool,
    records: Option<Records>,
    lives: u64,
    /// When it was looked last, and the service was there.
    seen_ns: u64,
    /// When it was enabled, or records came last.
    heard_ns: u64,
    /// Since when nothing comes.
    away_ns: Option<u64>,
    missed_ns: u64,
    /// Why it was not opened again, and in which life.
    refused: Option<(u64, String)>,
}

impl Subscription {
    /// Asks the session's service for records. It is off at first.
    ///
    /// # Errors
    /// [`Error::NoService`] where there is none; [`Error::ServiceRefused`] with what it says.
    pub fn open(session: &Session, question: &StreamRequest) -> Result<Self, Error> {
        Self::ask(session, question).map_err(refused)
    }

    /// The same, with the service's own words.
    pub(crate) fn ask(session: &Session, question: &StreamRequest) -> Result<Self, AskError> {
        let service = Arc::clone(session.engine().host().find_service().ok_or(AskError::Away)?);
        let request = request(question);
        let records = Some(service.subscribe(&request)?);
        let seen_ns = pmux_linux::now_ns();
        let (is_on, lives, heard_ns, missed_ns) = (false, 1, seen_ns, 0);
        let (away_ns, refused) = (None, None);
        Ok(Self { service, request, is_on, records, lives, seen_ns, heard_ns, away_ns, missed_ns, refused })
    }

    /// Lets records come from now on. Where the service is away, they come when it is back.
    ///
    /// # Errors
    /// [`Error::ServiceRefused`].
    pub fn enable(&mut self) -> Result<(), Error> {
        let is_there = self.switch(EventOp::Enable)?;
        let now = pmux_linux::now_ns();
        if !self.is_on {
            // Until now nothing was missed.
            self.heard_ns = now;
            if !is_there || self.away_ns.is_some() {
                self.away_ns = Some(now);
            }
        }
        self.is_on = true;
        Ok(())
    }

    /// Lets no more records come: those of before are in the ring.
    ///
    /// # Errors
    /// [`Error::ServiceRefused`].
    pub fn disable(&mut self) -> Result<(), Error> {
        let is_there = self.switch(EventOp::Disable)?;
        if self.is_on {
            if !is_there {
                // What it has not written yet it never will.
                self.away_ns.get_or_insert(self.heard_ns);
            }
            self.missed_ns += self.away_now_ns();
        }
        self.is_on = false;
        Ok(())
    }

    /// Has the service pass on what the kernel has written by now: it is in the ring then. Nothing to do where records don't come.
    ///
    /// # Errors
    /// [`Error::ServiceRefused`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.is_on { self.switch(EventOp::Enable).map(drop) } else { Ok(()) }
    }

    /// Answers whether the service was there.
    fn switch(&self, op: EventOp) -> Result<bool, Error> {
        let Some(records) = &self.records else { return Ok(false) };
        match self.service.switch_records(records, op) {
            Ok(()) => Ok(true),
            Err(AskError::Away) => Ok(false),
            Err(error) => Err(refused(error)),
        }
    }

    /// Hands every record that is there to `sink`, the oldest first, and goes on with a service that came back; answers how many
    /// records there were.
    ///
    /// # Errors
    /// [`Error::BrokenRing`], where the ring contradicts itself; it goes on with what is written next.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, Error> {
        let Some(records) = &mut self.records else {
            self.come_back();
            return Ok(0);
        };
        let heard = records.hear();
        let drained = records.drain(sink).map_err(Error::BrokenRing);
        if drained.as_ref().is_ok_and(|&records| records > 0) {
            self.heard_ns = pmux_linux::now_ns();
        }
        if heard == Heard::Gone || !self.service.keeps(records) {
            // What it wrote until it went has been read.
            self.records = None;
            // One that was silent for too long may have been so for longer.
            let since = if heard == Heard::Gone { self.seen_ns } else { self.heard_ns };
            self.away_ns = Some(since);
            self.come_back();
        } else {
            self.seen_ns = pmux_linux::now_ns();
        }
        drained
    }

    /// Looks whether the service is there, and goes on with one that came back. A caller that calls it now and then, between drains,
    /// knows the gap as closely.
    pub fn look(&mut self) {
        match &self.records {
            Some(records) if self.service.keeps(records) => self.seen_ns = pmux_linux::now_ns(),
            // It has gone: what it wrote comes with the next drain.
            Some(_) => {}
            None => self.come_back(),
        }
    }

    fn come_back(&mut self) {
        let life = self.service.look_for_life();
        if life.is_none() || self.refused.as_ref().is_some_and(|(in_life, _)| Some(*in_life) == life) {
            return;
        }
        match self.service.subscribe(&self.request) {
            Ok(records) => {
                if self.is_on && self.service.switch_records(&records, EventOp::Enable).is_err() {
                    return;
                }
                if self.is_on {
                    self.missed_ns += self.away_now_ns();
                }
                (self.records, self.away_ns, self.refused) = (Some(records), None, None);
                self.lives += 1;
                self.seen_ns = pmux_linux::now_ns();
            }
            Err(AskError::Refused(refusal)) => self.refused = life.map(|life| (life, refusal.text)),
            Err(AskError::Away) => {}
        }
    }

    fn away_now_ns(&self) -> u64 {
        self.away_ns.map_or(0, |since| pmux_linux::now_ns().saturating_sub(since))
    }

    /// Which event of the kernel has which number in the records: the events by their place in the question. A CPU that comes back
    /// has new ones: a reader that meets a number that it doesn't know asks again.
    ///
    /// # Errors
    /// [`Error::ServiceRefused`]. None are known while the service is away.
    pub fn numbers(&self) -> Result<Vec<EventNumber>, Error> {
        match self.records.as_ref().map(|records| self.service.numbers(records)) {
            None | Some(Err(AskError::Away)) => Ok(Vec::new()),
            Some(Err(error)) => Err(refused(error)),
            Some(Ok(numbers)) => Ok(numbers),
        }
    }

    /// Readable when there is something to read, or when the service has gone; `None` while it is away. It is another one in each
    /// life of the service.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.records.as_ref().map(Records::fd)
    }

    /// In how many lives of the service it has been open: with each new one, all numbers of events are new.
    #[must_use]
    pub const fn lives(&self) -> u64 {
        self.lives
    }

    /// For how long no records came because the service was away, all times together, this one too.
    #[must_use]
    pub fn gap(&self) -> Duration {
        let now = if self.is_on { self.away_now_ns() } else { 0 };
        Duration::from_nanos(self.missed_ns + now)
    }

    /// Why a service that came back did not go on with it, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refused.as_ref().map(|(_, text)| &text[..])
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(records) = &self.records {
            self.service.unsubscribe(records);
        }
    }
}

fn refused(error: AskError) -> Error {
    match error {
        AskError::Refused(refusal) => Error::ServiceRefused(refusal.text),
        AskError::Away => Error::NoService,
    }
}

fn request(question: &StreamRequest) -> Subscribe {
    let scope = match &question.scope {
        StreamScope::AllCpus => Scope::Cpus(Vec::new()),
        StreamScope::Cpus(cpus) => Scope::Cpus(cpus.iter().collect()),
        StreamScope::Tasks(tids) => Scope::Tasks(tids.iter().map(|tid| tid.cast_unsigned()).collect()),
    };
    let encode = |attr: &Attr| {
        let attr = Attr { flags: attr.flags | AttrFlags::DISABLED, ..*attr };
        let mut bytes = [0; Attr::MAX_SIZE];
        let size = attr.encode(&mut bytes);
        bytes[..size].to_vec()
    };
    let attrs = question.attrs.iter().map(encode).collect();
    Subscribe { scope, attrs, ring_bytes: question.ring_bytes, wake_bytes: question.wake_bytes }
}
