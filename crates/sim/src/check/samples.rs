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
        let (sample_stats, waiting) =
            world.state(|state| (state.sample_stats.get(&event).copied(), state.samples_of(event)));
        let Some(sample_stats) = sample_stats else { continue };
        if world.state(|state| state.samples.is_empty()) && sample_stats.waiting != 0 {
            let what = "a sample was not brought to a reader that was to get it, or was brought to another";
            return wrong(what, sample_stats.taken, sample_stats.written + sample_stats.lost);
        }
        let accounted = (sample_stats.written + sample_stats.lost + sample_stats.dropped + waiting)
            .wrapping_add_signed(sample_stats.waiting);
        if accounted != sample_stats.taken {
            return wrong("samples are neither written, nor lost, nor dropped", sample_stats.taken, accounted);
        }
        written += sample_stats.written;
        lost += sample_stats.lost;
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
