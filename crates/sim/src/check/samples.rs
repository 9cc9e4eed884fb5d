//! What was sampled is in a ring, or it is counted.
//!
//! **Invariant:** how many samples there were is the machine's own number; what the ring and its readers say is compared with it.

use super::{Checker, Violation};
use crate::machine::{RingBook, World};
use crate::oracle::ring::Mode;

/// One ring: its events, its accounts, its readers.
pub(super) fn ring(world: &World, ring: &RingBook) -> Result<(), Violation> {
    let wrong = |what: &str, expected, found| {
        let violation = Violation::new(Checker::Samples, world.now(), what);
        Err(violation.maybe_event(ring.events.first().copied()).numbers(expected, found))
    };
    let (mut written, mut lost) = ring.left;
    for &event in &ring.events {
        let (fates, waiting) = world.state(|state| (state.fates.get(&event).copied(), state.samples_of(event)));
        let Some(fates) = fates else { continue };
        if world.state(|state| state.samples.is_empty()) && fates.waiting != 0 {
            let what = "a sample was not brought to a reader that was to get it, or was brought to another";
            return wrong(what, fates.taken, fates.written + fates.lost);
        }
        let told = (fates.written + fates.lost + fates.dropped + waiting).wrapping_add_signed(fates.waiting);
        if told != fates.taken {
            return wrong("samples are neither written, nor lost, nor dropped", fates.taken, told);
        }
        written += fates.written;
        lost += fates.lost;
    }
    let tally = ring.output.tally();
    if tally.records - tally.labels != written {
        return wrong("a ring has taken another number of samples than were written", written, tally.records);
    }
    if tally.lost.records() != lost {
        return wrong("a ring has lost another number of samples than were refused", lost, tally.lost.records());
    }
    let (inside, error) = ring.content();
    if let Some(error) = error {
        return wrong(&format!("a ring can't be read: {error}"), written, inside);
    }
    for (seen, reader) in [(&ring.taken, "takes"), (&ring.seen, "looks")] {
        if seen.wrong > 0 {
            return wrong(&format!("the reader {reader} has met samples twice, or in another order"), 0, seen.wrong);
        }
    }
    match ring.mode {
        // What was taken may still be there.
        Mode::Forward if ring.taken.samples + inside < written => {
            wrong("samples are gone that no reader has taken", written, ring.taken.samples + inside)
        }
        // It has missed what is known, and what it has not seen yet.
        Mode::Overwrite if ring.seen.samples + ring.missed().unwrap_or(0) > written => {
            wrong("more samples were seen and missed than written", written, ring.seen.samples)
        }
        _ => Ok(()),
    }
}
