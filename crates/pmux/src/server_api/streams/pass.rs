//! From the kernel's rings to those of the subscribers.
//!
//! What it is: *rounds* ([`Round`]). One takes out of each kernel ring what was there when the round began, in turns that end when
//! the caller says so ([`Streams::pass_while`]): however much the kernel writes meanwhile, and however many readers there are, a turn
//! costs one piece more than it may, and a round comes to its end. What the kernel found no room for meanwhile is lost, and told by
//! a record of the kernel's.
//! A stream that is switched on or off doesn't wait for a round: the place where it begins is noted, and what waits for it when it
//! ends, or when it is switched on once more, is written into its ring beforehand.
//! Read first: [`Streams::pass_while`].
//!
//! **Invariant:** a pass takes out of each kernel ring what was there when it came to it, once; it waits for no reader. Between two
//! round marks each kernel ring is emptied up to where it was at the first of them, or further.

use super::{SourceRing, StreamId, Streams, events_of};
use crate::perf_data::finished_round;
use pmux_abi::record::RecordKind;
use pmux_engine::engine::Audience;
use pmux_engine::ring_buffer::Wake;
use pmux_engine::{EventId, Nanos};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

const LOST: u32 = RecordKind::LOST.0;
/// So many bytes are written for all readers together before it is asked whether to go on.
pub(super) const PIECE_BYTES: u64 = 64 << 10;

/// How far the kernel's rings were when the round began, as far as they were not emptied up to there since.
#[derive(Default)]
pub(super) struct Round(VecDeque<(EventId, u64)>);

/// What is left after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoundRemainder {
    /// Nothing of what was there when the round began.
    Nothing,
    /// Something: another turn is due.
    Some,
}

/// What becomes of records of a stream for which there is no time now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutOfTime {
    IsLost,
    ComesLater,
}

/// Whether a record lies before the one that a stream begins with.
fn is_before(at: u64, from: Option<u64>) -> bool {
    from.is_some_and(|from| at.wrapping_sub(from) > u64::MAX / 2)
}

impl Streams {
    /// Passes on what waits in the kernel's rings, all of it; how many records that were.
    pub fn pass(&mut self) -> u64 {
        let before = self.tally.taken;
        self.pass_while(|| true);
        // What had come since that round began.
        self.pass_while(|| true);
        self.tally.taken - before
    }

    /// Goes on with the round that is on, or begins one: passes records on as long as `go_on` says so, which is asked after each
    /// piece, and at most to the end of the round.
    pub fn pass_while(&mut self, mut go_on: impl FnMut() -> bool) -> RoundRemainder {
        self.leave_the_ended();
        if self.round.0.is_empty() {
            let begin = |(&event, source): (&EventId, &SourceRing)| {
                let ring = &source.ring.ring;
                (ring.waiting_bytes() > 0).then(|| (event, ring.head()))
            };
            self.round.0 = self.sources.iter().filter_map(begin).collect();
            if self.round.0.is_empty() {
                return RoundRemainder::Nothing;
            }
        }
        let on = Cell::new(true);
        let mut ask = || {
            on.set(go_on());
            on.get()
        };
        let mut woken = BTreeSet::new();
        while let Some(&(event, until)) = self.round.0.front() {
            if self.empty(event, until, &mut woken, &mut ask) == RoundRemainder::Nothing {
                self.round.0.pop_front();
            }
            if !on.get() {
                break;
            }
        }
        for event in woken {
            let held = self.owners.get(&event).and_then(|id| self.held.get(id));
            held.into_iter().for_each(|held| held.bell.ring());
        }
        if !self.round.0.is_empty() {
            return RoundRemainder::Some;
        }
        self.mark(Nanos(pmux_linux::now_ns()));
        RoundRemainder::Nothing
    }

    /// The sources of a stream, and how far the kernel has written each: what is written from here on is what a stream gets that
    /// begins now, and all that is written before what one gets that ends.
    fn heads(&self, id: StreamId) -> BTreeMap<EventId, u64> {
        let head = |(_, _, event)| {
            let source = self.session.engine().source_of(event).ok()?;
            Some((source, self.sources.get(&source)?.ring.ring.head()))
        };
        events_of(&self.session, self.sets(id)).filter_map(head).collect()
    }

    /// A stream begins: what waits in the kernel's rings is not for it.
    pub(super) fn begin(&mut self, id: StreamId) {
        let heads = self.heads(id);
        if let Some(held) = self.held.get_mut(&id).filter(|held| !held.is_on) {
            (held.is_on, held.from) = (true, heads);
        }
    }

    /// A stream ends, once what waits for it is passed on to it. What `go_on` leaves no time for is lost for it.
    pub(super) fn end(&mut self, id: StreamId, go_on: impl FnMut() -> bool) {
        self.catch_up(id, OutOfTime::IsLost, go_on);
        if let Some(held) = self.held.get_mut(&id) {
            held.is_on = false;
        }
    }

    /// What waits for a stream in the kernel's rings is passed on to it, and stays there for the others. So it costs what is new for it,
    /// however many they are.
    pub(super) fn catch_up(&mut self, id: StreamId, late: OutOfTime, mut go_on: impl FnMut() -> bool) {
        let (mut reached, mut on) = (BTreeMap::new(), true);
        for (event, until) in self.heads(id) {
            let Some(held) = self.held.get(&id).filter(|held| held.is_on) else { return };
            let Some(source) = self.sources.get_mut(&event) else { continue };
            let (now, position) = (Nanos(pmux_linux::now_ns()), source.ring.ring.position());
            let from = held.from.get(&event).copied().filter(|&from| is_before(position, Some(from)));
            let (audience, owners) = (&mut self.audience, &self.owners);
            self.session.engine().audience(event, audience);
            let mut at = from.unwrap_or(position);
            let is_its_own = |event| owners.get(&event) == Some(&id);
            let looked = source.ring.ring.look_between(at, until, &mut |record| {
                on = on && go_on();
                match (on, late) {
                    (true, _) => audience.write_to(is_its_own, record, now, |_| held.bell.ring()),
                    (false, OutOfTime::IsLost) => held.ring.leave_out(record, now),
                    (false, OutOfTime::ComesLater) => return,
                }
                at = at.wrapping_add(record.len() as u64);
            });
            reached.insert(event, at);
            self.tally.broken += u64::from(looked.is_err());
            *audience = Audience::default();
        }
        if let Some(held) = self.held.get_mut(&id) {
            held.from.extend(reached);
        }
    }

    /// Takes out of a kernel ring what is there up to a head, piece by piece as long as `go_on` says so.
    fn empty(
        &mut self,
        event: EventId,
        until: u64,
        woken: &mut BTreeSet<EventId>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> RoundRemainder {
        // It was closed, or is empty: then the engine need not be asked which streams listen.
        let Some(source) = self.sources.get_mut(&event) else { return RoundRemainder::Nothing };
        if source.ring.ring.waiting_bytes() == 0 {
            return RoundRemainder::Nothing;
        }
        let now = Nanos(pmux_linux::now_ns());
        let (audience, tally) = (&mut self.audience, &mut self.tally);
        self.session.engine().audience(event, audience);
        let piece_bytes = PIECE_BYTES / (1 + audience.len() as u64);
        let mut at = source.ring.ring.position();
        // Who has begun with a record that waits still.
        let begins = |view: EventId| {
            let from = self.held.get(self.owners.get(&view)?)?.from.get(&event).copied();
            is_before(at, from).then_some((view, from?))
        };
        let late: HashMap<EventId, u64> = audience.events().filter_map(begins).collect();
        let drained = source.ring.ring.drain_to(
            until,
            piece_bytes,
            &mut |record| {
                tally.taken += 1;
                if let Some(&[a, b, c, d, ..]) = record.first_chunk::<8>()
                    && u32::from_ne_bytes([a, b, c, d]) == LOST
                {
                    let lost = record.get(16..24).and_then(|bytes| bytes.try_into().ok());
                    tally.lost += lost.map_or(0, u64::from_ne_bytes);
                }
                let mut wake = |event| {
                    woken.insert(event);
                };
                if late.is_empty() {
                    audience.write(record, now, &mut wake);
                } else {
                    audience.write_to(|view| !is_before(at, late.get(&view).copied()), record, now, &mut wake);
                }
                at = at.wrapping_add(record.len() as u64);
            },
            go_on,
        );
        tally.broken += u64::from(drained.is_err());
        // Once this audience is dropped, nothing here holds a ring that was closed.
        *audience = Audience::default();
        if drained.is_ok_and(|drained| drained.left_bytes > 0) { RoundRemainder::Some } else { RoundRemainder::Nothing }
    }

    /// An event whose task has ended would be ready for ever.
    fn leave_the_ended(&self) {
        let mut ended = BTreeSet::new();
        // What can't be waited for is looked at with the others.
        let _ = self.poll.wait(Some(Duration::ZERO), |ready| {
            if ready.hangup {
                ended.insert(ready.token.0);
            }
        });
        if ended.is_empty() {
            return;
        }
        for source in self.sources.values().filter(|source| ended.contains(&source.number)) {
            let _ = self.poll.remove(source.ring.fd());
        }
    }

    fn mark(&mut self, now: Nanos) {
        let round = finished_round();
        for held in self.held.values_mut() {
            if held.ring.tally().bytes == held.marked_bytes {
                continue;
            }
            // Full, it has no mark: then two rounds are one.
            if matches!(held.ring.write(&round, now), Ok(Wake::Now)) {
                held.bell.ring();
            }
            held.marked_bytes = held.ring.tally().bytes;
        }
    }
}
