//! What tests of watched addresses share.
//!
//! **Invariant:** debug registers are few: each test that takes one holds [`super::DEBUG_REGISTERS`].

use super::needs;
use pmux::event::Access;
use pmux::watch::{Detail, Hit, News, Spot, Watch, WatchOptions};
use pmux::{Error, Session, Target};
use std::sync::atomic::{AtomicU64, Ordering};

/// A session, and whether this thread may watch `address`.
pub fn session(spot: &Spot) -> Option<Session> {
    let session = super::session()?;
    match Watch::open(&session, vec![spot.clone()], &Target::CurrentThread, WatchOptions::default()) {
        Ok(_) => Some(session),
        Err(Error::Shortage(shortage)) => {
            needs("breakpoints", &format!("a debug register that is free ({shortage})"), false);
            None
        }
        Err(error) => {
            needs("breakpoints", &format!("debug registers ({error})"), false);
            None
        }
    }
}

pub fn spot(name: &str, word: &'static AtomicU64) -> Spot {
    Spot { name: name.to_owned(), address: std::ptr::from_ref(word) as u64, len: 8, access: Access::WRITE }
}

pub fn values() -> WatchOptions {
    WatchOptions { detail: Detail::Values { max_stack: 8 }, ..WatchOptions::default() }
}

pub fn hits(news: Vec<News>) -> Vec<Hit> {
    let hit = |news| match news {
        News::Hit(hit) => Some(hit),
        _ => None,
    };
    news.into_iter().filter_map(hit).collect()
}

/// Writes from one place.
#[inline(never)]
pub fn write(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}
