//! What was under way when somebody panicked.
//!
//! What it is: each sequence tells where it is; a hook prints that behind the message of a panic, whichever thread panics, and also
//! where a panic ends the program at once.
//!
//! **Invariant:** a sequence that has ended is not under way.

use super::step::Step;
use std::collections::BTreeMap;
use std::panic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// By a number for each sequence: which one, and its step.
static UNDER_WAY: Mutex<BTreeMap<u64, (String, String)>> = Mutex::new(BTreeMap::new());

fn under_way() -> MutexGuard<'static, BTreeMap<u64, (String, String)>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sequence that is under way.
pub struct Witness {
    number: u64,
}

impl Witness {
    /// One begins.
    pub fn of(sequence: String) -> Self {
        static HOOK: Once = Once::new();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                before(info);
                under_way().values().for_each(|(sequence, step)| eprintln!("under way: {sequence}, {step}"));
            }));
        });
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        under_way().insert(number, (sequence, "before its first step".to_owned()));
        Self { number }
    }

    /// It comes to a step.
    pub fn sees(&self, number: usize, step: &Step) {
        if let Some((_, at)) = under_way().get_mut(&self.number) {
            *at = format!("step {number}, `{step}`");
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        under_way().remove(&self.number);
    }
}
