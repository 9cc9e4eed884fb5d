//! Records for all clients that ask: one event of the kernel, any number of readers.
//!
//! What it is: [`Streams`] opens what is asked for through the engine, where equal questions have one event on each CPU (a
//! *source*); it empties the kernel's ring of each source once, and writes what was in it into the ring of each subscriber.
//! Read first: [`Streams::open`], then `pass` (from the kernel's rings to those of the subscribers).
//!
//! A round mark (`PERF_RECORD_FINISHED_ROUND`, as it stands in `perf.data`) ends what one pass has written into a ring: what comes
//! behind the next mark is no older than what came before this one.
//!
//! **Invariant:** nothing here decides who may ask for what. A stream that is switched on or off gets exactly what is
//! written in between. A reader that is slow loses its own records, and is told how many.

mod pass;

pub use pass::RoundRemainder;

use super::acting::Acting;
use super::group::ServeError;
use crate::ring_owner::pages;
use crate::session::Session;
use crate::subscription::{StreamRequest, StreamScope};
use crate::target::CpuChoice;
use pmux_abi::attr::{Attr, Wakeup as KernelWakeup};
use pmux_abi::record::SampleLayout;
use pmux_engine::engine::{Audience, EventRing, SetRequest};
use pmux_engine::ring_buffer::{Forward, Labels, RingSetup, Wake, Wakeup};
use pmux_engine::share::SharingScope;
use pmux_engine::system_wide::SetScope;
use pmux_engine::{CpuId, EventId, GroupSpec, SetId};
use pmux_linux::Errno;
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost, MappedRing};
use pmux_linux::shared::Bell;
use pmux_linux::shared::poll::{Interest, Poll, Token};
use pmux_linux::shared::wire::EventNumber;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A kernel ring is tried down to so many bytes where more is not allowed.
const LEAST_SOURCE_BYTES: u64 = 16 << 10;

/// A stream that is open in [`Streams`]; it is closed there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(u64);

/// What a stream has got so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamTally {
    /// Records that are in its ring or were taken out, labels and round marks among them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Records for which there was no room.
    pub lost: u64,
    /// How often its reader claimed to have taken what it can't have.
    pub lies: u64,
}

/// All streams of a session together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamsTally {
    /// Streams that are open.
    pub streams: usize,
    /// Events of the kernel that write for them.
    pub sources: usize,
    /// Records that were taken out of the kernel's rings.
    pub taken: u64,
    /// Records that found no room in the kernel's rings, as far as it is known.
    pub lost: u64,
    /// Kernel rings that contradicted themselves.
    pub broken: u64,
}

/// All streams of a session.
pub struct Streams {
    session: Session,
    /// Bytes of the kernel's ring of each source.
    source_bytes: u64,
    sources: BTreeMap<EventId, SourceRing>,
    held: BTreeMap<StreamId, OpenStream>,
    owners: HashMap<EventId, StreamId>,
    next: u64,
    poll: Poll,
    audience: Audience,
    round: pass::Round,
    tally: StreamsTally,
}

/// An event of the kernel, with its ring.
struct SourceRing {
    ring: MappedRing,
    number: u64,
}

struct OpenStream {
    sets: Vec<SetId>,
    /// Bytes of the kernel's ring of each of its sources.
    source_bytes: u64,
    attrs: Vec<Attr>,
    ring: Arc<EventRing<LinuxHost, Forward>>,
    bell: Bell,
    is_on: bool,
    /// Where in each kernel's ring it has begun.
    from: BTreeMap<EventId, u64>,
    /// How far its ring was at the last round mark.
    marked_bytes: u64,
    /// Keeps the rights registered that its events are opened with, also on CPUs that come.
    _acting: Acting,
}

impl Streams {
    /// None yet. The kernel's ring of each source has so many bytes, or as many as are allowed.
    ///
    /// # Errors
    /// Those of `epoll_create1(2)`.
    pub fn new(session: &Session, source_bytes: u64) -> Result<Self, Errno> {
        Ok(Self {
            session: session.clone(),
            source_bytes,
            sources: BTreeMap::new(),
            held: BTreeMap::new(),
            owners: HashMap::new(),
            next: 1,
            poll: Poll::new()?,
            audience: Audience::default(),
            round: pass::Round::default(),
            tally: StreamsTally::default(),
        })
    }

    /// Opens a stream with these rights, off; of several tasks, for those that are still there. With the files of its ring and its bell,
    /// as [`super::shared::wire::Reply::Subscribed`] passes them.
    ///
    /// # Errors
    /// [`ServeError`]: the kernel's own number for the first event that can't be opened, `ENOMEM` or `EMFILE` for a ring. Nothing is
    /// open then.
    pub fn open(&mut self, acting: &Acting, question: &StreamRequest) -> Result<(StreamId, [OwnedFd; 3]), ServeError> {
        let sets = self.open_sets(acting, question)?;
        let (ring, bell, files) = self.attach_rings(question, &sets).inspect_err(|_| {
            sets.iter().for_each(|&set| self.session.engine().close_set(set));
            self.prune();
        })?;
        let id = StreamId(self.next);
        self.next += 1;
        let marked_bytes = ring.tally().bytes;
        let (attrs, is_on, from) = (question.attrs.clone(), false, BTreeMap::new());
        let (source_bytes, acting) = (self.source_bytes, acting.clone());
        let held = OpenStream { sets, source_bytes, attrs, ring, bell, is_on, from, marked_bytes, _acting: acting };
        self.held.insert(id, held);
        self.own(id);
        Ok((id, files))
    }

    fn open_sets(&self, acting: &Acting, question: &StreamRequest) -> Result<Vec<SetId>, ServeError> {
        let engine = self.session.engine();
        let wrong = |error: crate::error::Error| ServeError::new(Errno::EINVAL.raw(), error);
        let (choice, scopes) = match &question.scope {
            StreamScope::AllCpus => (CpuChoice::All, vec![SetScope::Everything]),
            StreamScope::Cpus(list) => (CpuChoice::Only(list.clone()), vec![SetScope::Everything]),
            StreamScope::Tasks(tids) => {
                (CpuChoice::All, tids.iter().map(|&tid| SetScope::Task(LinuxHost::task(tid))).collect())
            }
        };
        let (mask, absent) = choice.mask(&self.session).map_err(wrong)?;
        // A quarter, so that what is left suffices until a reader comes.
        let wakeup = KernelWakeup::Bytes(u32::try_from(self.source_bytes / 4).unwrap_or(u32::MAX));
        let groups: Vec<_> =
            question.attrs.iter().map(|attr| GroupSpec::single(KERNEL, Attr { wakeup, ..*attr })).collect();
        let mut sets = Vec::with_capacity(scopes.len());
        let (mut refused, mut gone, many) = (None, None, scopes.len() > 1);
        for scope in scopes {
            let request = SetRequest { groups: groups.clone(), scope, mask: mask.clone(), absent };
            match engine.open_set_in(acting.sharing_scope(SharingScope::RECORDS), request) {
                Ok(set) => sets.push(set),
                // The opener is asked for all of them at once.
                Err(error) if error.error.errno() == Errno::EAGAIN.raw() => {
                    refused.get_or_insert((scope, error));
                }
                // A task that ends while others are opened is left out, as long as one remains.
                Err(error) if many && error.error.errno() == Errno::ESRCH.raw() => {
                    self.is_over(scope);
                    gone = Some((scope, error));
                }
                Err(error) => {
                    refused = Some((scope, error));
                    break;
                }
            }
        }
        if let Some((scope, error)) = refused.or(gone.filter(|_| sets.is_empty())) {
            sets.into_iter().for_each(|set| engine.close_set(set));
            let attr = question.attrs.get(error.group).copied().unwrap_or_default();
            let kind = match scope {
                SetScope::Task(_) => TargetKind::Task(Whose::Other),
                _ => TargetKind::Cpu(error.cpu.0),
            };
            let (errno, text) = (error.error.errno(), acting.reason(&self.session, error.error, &attr, kind));
            if errno == Errno::ESRCH.raw() {
                self.is_over(scope);
            }
            return Err(ServeError { index: error.group, errno, text });
        }
        Ok(sets)
    }

    /// Whatever is open on the number of a task that has gone is over.
    fn is_over(&self, scope: SetScope) {
        if let SetScope::Task(task) = scope
            && let Ok(task) = i32::try_from(task.0)
        {
            self.session.served_task_was_gone(task);
        }
    }

    /// Gives sets that are open sources, a ring and a bell.
    fn attach_rings(&mut self, question: &StreamRequest, sets: &[SetId]) -> Result<StreamResources, ServeError> {
        let number = self.map_rings(sets, self.source_bytes)?.unwrap_or_default();
        let engine = self.session.engine();
        let layout = question.attrs.first().map(SampleLayout::new).unwrap_or_default();
        let labels = Some(Labels { id: number, layout, cpu: None });
        let setup = RingSetup { wakeup: Wakeup::Bytes(question.wake_bytes), labels };
        let no_ring = |text: String| ServeError::new(Errno::ENOMEM.raw(), text);
        let bytes = usize::try_from(question.ring_bytes).unwrap_or(usize::MAX);
        let Some((&first, others)) = sets.split_first() else {
            return Err(ServeError::new(Errno::EINVAL.raw(), "no thread is named"));
        };
        let ring = engine
            .attach_set_ring::<Forward>(first, bytes, setup)
            .map_err(|error| no_ring(format!("no ring of {bytes} bytes: {error}")))?;
        for &set in others {
            engine.redirect_set(set, first).map_err(|error| no_ring(error.to_string()))?;
        }
        let no_file = |errno: Errno| ServeError::new(errno.raw(), format!("no file: {errno}"));
        let copy = |file: BorrowedFd<'_>| {
            let failed = |error: std::io::Error| no_file(error.raw_os_error().map_or(Errno::ENOMEM, Errno::from_raw));
            file.try_clone_to_owned().map_err(failed)
        };
        let bell = Bell::make().map_err(no_file)?;
        let memory = ring.pages();
        let files = [copy(memory.records_file())?, copy(memory.taken_file())?, bell.file().map_err(no_file)?];
        Ok((ring, bell, files))
    }

    /// Sees to it that every source of these sets has a ring; the number of the first one.
    fn map_rings(&mut self, sets: &[SetId], source_bytes: u64) -> Result<Option<u64>, ServeError> {
        let session = self.session.clone();
        let mut first = None;
        for source in events_of(&session, sets).filter_map(|(_, _, event)| session.engine().source_of(event).ok()) {
            let number = match self.sources.get(&source) {
                Some(known) => known.number,
                None => self.map_ring(source, source_bytes)?,
            };
            first.get_or_insert(number);
        }
        Ok(first)
    }

    /// Maps the ring of a source.
    fn map_ring(&mut self, source: EventId, mut bytes: u64) -> Result<u64, ServeError> {
        let engine = self.session.engine();
        let host = engine.host();
        let failed = |errno: Errno| ServeError::new(errno.raw(), format!("the kernel's ring can't be mapped: {errno}"));
        let lease = engine.lease(source)?;
        let number = host.kernel_id(lease).map_err(failed)?;
        let ring = loop {
            match host.map_ring(lease, pages(bytes)) {
                Ok(ring) => break ring,
                Err(Errno::EPERM | Errno::ENOMEM) if bytes > LEAST_SOURCE_BYTES => bytes /= 2,
                Err(errno) => return Err(failed(errno)),
            }
        };
        self.poll.add(ring.fd(), Token(number), Interest::Read).map_err(failed)?;
        self.sources.insert(source, SourceRing { ring, number });
        Ok(number)
    }

    /// Notes whose events the events of a stream are.
    fn own(&mut self, id: StreamId) {
        let events: Vec<_> = events_of(&self.session, self.sets(id)).map(|(_, _, event)| (event, id)).collect();
        self.owners.extend(events);
    }

    /// The sets of a stream; none of one that is closed.
    fn sets(&self, id: StreamId) -> &[SetId] {
        self.held.get(&id).map(|held| &held.sets[..]).unwrap_or_default()
    }

    /// Lets go of what is not needed any more.
    fn prune(&mut self) {
        let engine = self.session.engine();
        self.sources.retain(|&source, _| engine.source_of(source).is_ok());
        self.owners.retain(|&event, _| engine.source_of(event).is_ok());
    }

    /// Lets a stream begin, or go on.
    ///
    /// # Errors
    /// [`ServeError`]: then it is off.
    pub fn enable(&mut self, id: StreamId) -> Result<(), ServeError> {
        self.enable_while(id, || true)
    }

    /// As [`Streams::enable`]. Of a stream that is on already, all that was written until now is in its ring then: before each record that
    /// waits `go_on` is asked, and from where it says no, what waits comes with the next pass.
    ///
    /// # Errors
    /// As [`Streams::enable`].
    pub fn enable_while(&mut self, id: StreamId, go_on: impl FnMut() -> bool) -> Result<(), ServeError> {
        if self.held.get(&id).is_some_and(|held| held.is_on) {
            self.catch_up(id, pass::OutOfTime::ComesLater, go_on);
            return Ok(());
        }
        self.begin(id);
        let Some(held) = self.held.get_mut(&id) else { return Ok(()) };
        for &set in &held.sets {
            if let Err(error) = self.session.engine().enable_set(set) {
                held.is_on = false;
                self.disarm(id);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Lets a stream stop: all that was written until now is in its ring.
    pub fn disable(&mut self, id: StreamId) {
        self.disable_while(id, || true);
    }

    /// As [`Streams::disable`]; before each record that waits `go_on` is asked, and from where it says no, what waits is lost, and
    /// told as lost.
    pub fn disable_while(&mut self, id: StreamId, go_on: impl FnMut() -> bool) {
        self.end(id, go_on);
        self.disarm(id);
        let Some(held) = self.held.get(&id) else { return };
        if held.ring.tell_losses() == Wake::Now {
            held.bell.ring();
        }
    }

    fn disarm(&self, id: StreamId) {
        for &set in self.sets(id) {
            // It fails for what is closed only.
            let _ = self.session.engine().disable_set(set);
        }
    }

    /// Closes a stream. Its ring lives as long as its reader has it.
    pub fn close(&mut self, id: StreamId) {
        let Some(held) = self.held.remove(&id) else { return };
        held.sets.iter().for_each(|&set| self.session.engine().close_set(set));
        self.prune();
    }

    /// CPUs have come or gone: what came goes on in the rings that are there. Call [`Streams::pass`] before the session follows
    /// them, so that nothing is left behind on a CPU that went.
    pub fn cpus_changed(&mut self) {
        let ids: Vec<_> = self.held.keys().copied().collect();
        for id in ids {
            let Some(OpenStream { sets, source_bytes, .. }) = self.held.get(&id) else { continue };
            let (sets, source_bytes) = (sets.clone(), *source_bytes);
            // A CPU whose ring can't be mapped tells nothing; a client that asks for its numbers sees that it is missing.
            let _ = self.map_rings(&sets, source_bytes);
            self.own(id);
        }
        self.prune();
    }

    /// Which event of the kernel has which number in the records of a stream.
    #[must_use]
    pub fn numbers(&self, id: StreamId) -> Vec<EventNumber> {
        let number = |(cpu, event, id): (CpuId, u32, EventId)| {
            let source = self.sources.get(&self.session.engine().source_of(id).ok()?)?;
            Some(EventNumber { event, cpu: cpu.0, number: source.number })
        };
        events_of(&self.session, self.sets(id)).filter_map(number).collect()
    }

    /// How many events a stream has asked for.
    #[must_use]
    pub fn events(&self, id: StreamId) -> usize {
        events_of(&self.session, self.sets(id)).count()
    }

    /// What a stream asks.
    #[must_use]
    pub fn attrs(&self, id: StreamId) -> &[Attr] {
        self.held.get(&id).map(|held| &held.attrs[..]).unwrap_or_default()
    }

    /// What a stream has got so far.
    #[must_use]
    pub fn tally(&self, id: StreamId) -> StreamTally {
        self.held.get(&id).map_or_else(StreamTally::default, |held| {
            let tally = held.ring.tally();
            StreamTally { records: tally.records, bytes: tally.bytes, lost: tally.lost.records(), lies: tally.bad_tail }
        })
    }

    /// All of them together.
    #[must_use]
    pub fn all(&self) -> StreamsTally {
        StreamsTally { streams: self.held.len(), sources: self.sources.len(), ..self.tally }
    }

    /// Bytes of the kernel's rings of all sources.
    #[must_use]
    pub fn kernel_bytes(&self) -> u64 {
        self.sources.values().map(|source| source.ring.ring.capacity_bytes()).sum()
    }

    /// From now on the kernel's ring of each source of new streams has so many bytes.
    pub const fn set_source_bytes(&mut self, bytes: u64) {
        self.source_bytes = bytes;
    }

    /// Whether any is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// Readable when a kernel ring wants to be emptied.
impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

/// The events of these sets that are open now: the CPU of each, and its place among those that were asked for.
fn events_of(session: &Session, sets: &[SetId]) -> impl Iterator<Item = (CpuId, u32, EventId)> {
    let of_set = move |&set: &SetId| session.engine().set_events(set).unwrap_or_default();
    let each = |(cpu, events): (CpuId, Vec<EventId>)| (0..).zip(events).map(move |(at, event)| (cpu, at, event));
    sets.iter().flat_map(of_set).flat_map(each)
}

type StreamResources = (Arc<EventRing<LinuxHost, Forward>>, Bell, [OwnedFd; 3]);

#[cfg(test)]
mod tests;
