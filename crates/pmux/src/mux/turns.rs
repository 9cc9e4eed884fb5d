//! When the next turn begins.
//!
//! What it is: one thread for a session, while an event waits for a counter.
//!
//! **Invariant:** it knows no event; it only says that time has passed.

use super::Slice;
use crate::error::Error;
use crate::session::{Inner, Session};
use crate::units::nanos;
use pmux_engine::LockCell as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A turn that takes so long to begin is followed by so many times as long a slice.
const SLICE_PER_TURN: u32 = 4;

/// Turns are taken as long as it lives.
pub(crate) struct Turning {
    beat: Arc<Beat>,
    thread: Option<JoinHandle<()>>,
}

struct Beat {
    phase: Mutex<Phase>,
    changed: Condvar,
    /// Relaxed: nothing is published by it, and a late store makes one slice longer.
    slice_ns: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No event waits for a counter yet.
    Resting,
    Turning,
    Over,
}

impl Turning {
    /// Makes the thread, which rests until [`Turning::begin`]. Children of the calling thread are counted where that is
    /// asked for: so it is made before events are opened on it.
    pub(crate) fn new(session: &Session, slice: Slice) -> Result<Self, Error> {
        let beat = Arc::new(Beat {
            phase: Mutex::new(Phase::Resting),
            changed: Condvar::new(),
            slice_ns: AtomicU64::new(nanos(slice.length())),
        });
        let (inner, own) = (Arc::downgrade(&session.inner), Arc::clone(&beat));
        let thread = thread::Builder::new().name("pmux-turns".to_owned()).spawn(move || take_turns(&inner, &own));
        Ok(Self { beat, thread: Some(thread.map_err(Error::Thread)?) })
    }

    /// An event waits.
    pub(crate) fn begin(&self) {
        self.beat.advance(Phase::Turning);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.beat.phase.lock().unwrap_or_else(PoisonError::into_inner) == Phase::Turning
    }
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.beat.advance(Phase::Over);
        if let Some(thread) = self.thread.take() {
            // A panic over there has been printed; here is nothing to be saved.
            let _ = thread.join();
        }
    }
}

impl Beat {
    fn advance(&self, next: Phase) {
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if *phase != Phase::Over {
            *phase = next;
        }
        self.changed.notify_all();
    }

    /// Waits for the next turn; `false` at the end.
    fn await_turn(&self, pause: Duration) -> bool {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let resting = self.changed.wait_while(phase, |phase| *phase == Phase::Resting);
        let phase = resting.unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(phase, pause, |phase| *phase == Phase::Turning);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == Phase::Turning
    }
}

fn take_turns(session: &Weak<Inner>, beat: &Beat) {
    let mut took = Duration::ZERO;
    loop {
        let slice = Duration::from_nanos(beat.slice_ns.load(Ordering::Relaxed));
        if !beat.await_turn(slice.max(took * SLICE_PER_TURN)) {
            return;
        }
        let Some(inner) = session.upgrade() else { return };
        let began = Instant::now();
        inner.mux.turn.with(|()| inner.engine.rotate());
        took = began.elapsed();
    }
}

impl Session {
    /// The thread that takes turns; one for all.
    pub(crate) fn turning(&self, slice: Slice) -> Result<Arc<Turning>, Error> {
        self.inner.mux.turning.with(|known| {
            if let Some(turning) = known.upgrade() {
                // A caller wants slices of this length, or shorter ones.
                turning.beat.slice_ns.fetch_min(nanos(slice.length()), Ordering::Relaxed);
                return Ok(turning);
            }
            let turning = Arc::new(Turning::new(self, slice)?);
            *known = Arc::downgrade(&turning);
            Ok(turning)
        })
    }
}
