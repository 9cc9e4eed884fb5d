//! What tests of watched addresses share.
//!
//! **Invariant:** debug registers are few: each test that takes one holds [`super::DEBUG_REGISTERS`].

use super::needs;
use pmux::event::Access;
use pmux::watch::{Hit, Watch, WatchDetail, WatchEvent, WatchOptions, WatchTarget};
use pmux::{Session, Target};
use pmux_testkit::late_hits;
use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

/// A session by which this thread may be watched.
pub fn session(watch_target: &WatchTarget) -> Option<Session> {
    session_for(watch_target, &Target::CurrentThread)
}

/// A session by which `target` may be watched.
pub fn session_for(watch_target: &WatchTarget, target: &Target<'_>) -> Option<Session> {
    let session = super::session()?;
    let tried = Watch::open(&session, vec![watch_target.clone()], target, WatchOptions::default()).map(drop);
    let why = tried.as_ref().err().map(ToString::to_string).unwrap_or_default();
    needs("breakpoints", &format!("debug registers ({why})"), tried.is_ok()).then_some(session)
}

pub fn watch_target(name: &str, word: &'static AtomicU64) -> WatchTarget {
    WatchTarget { name: name.to_owned(), address: std::ptr::from_ref(word) as u64, len: 8, access: Access::WRITE }
}

/// A word that this thread may watch, as long as the first of the three is there.
#[track_caller]
pub fn watched(word: &'static AtomicU64) -> Option<(File, Session, WatchTarget)> {
    let registers = super::debug_registers()?;
    let watch_target = watch_target("WORD", word);
    Some((registers, session(&watch_target)?, watch_target))
}

/// The same of several words, which may be more than there are registers.
#[track_caller]
pub fn all_watched(words: &'static [AtomicU64]) -> Option<(File, Session, Vec<WatchTarget>)> {
    let (registers, session, _) = watched(&words[0])?;
    let watch_target = |(index, word)| watch_target(&format!("WORDS[{index}]"), word);
    Some((registers, session, words.iter().enumerate().map(watch_target).collect()))
}

pub fn values() -> WatchOptions {
    WatchOptions { detail: WatchDetail::Values { max_stack: 8 }, ..WatchOptions::default() }
}

pub fn rows() -> WatchOptions {
    WatchOptions { detail: WatchDetail::Rows { max_stack: 8 }, ..WatchOptions::default() }
}

pub fn hits(events: Vec<WatchEvent>) -> Vec<Hit> {
    let hit = |event| match event {
        WatchEvent::Hit(hit) => Some(hit),
        _ => None,
    };
    events.into_iter().filter_map(hit).collect()
}

/// Writes from one place.
#[inline(never)]
pub fn write(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// What is seen in a run in which no hit came late ([`late_hits`]).
pub fn exactly<T>(mut run: impl FnMut() -> T) -> T {
    loop {
        late_hits();
        let seen = run();
        if late_hits() == 0 {
            return seen;
        }
    }
}

/// How many hits of each thread are missing, together; none has more than it made.
pub fn missing(mut seen: HashMap<i32, u64>, made: &HashMap<i32, u64>) -> u64 {
    let missing = |(tid, made): (&i32, &u64)| {
        let seen = seen.remove(tid).unwrap_or_default();
        made.checked_sub(seen).unwrap_or_else(|| panic!("thread {tid} made {made} hits, not {seen}"))
    };
    let missing = made.iter().map(missing).sum();
    assert!(seen.is_empty(), "threads that made none: {seen:?}");
    missing
}
