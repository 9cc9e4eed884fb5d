//! What the service has read of our events last, in memory that it shares.
//!
//! What it is: for each slot of a service, where in the page it is shown, so that it can be looked up without a bank.
//!
//! **Invariant:** what one life shows is added to what the lives before it have counted, and a slot without an entry shows
//! nothing.

use crate::host::lock;
use crate::shared::page::Page;
use crate::shared::wire::{Handle, TimedTotals, Totals};
use pmux_engine::pmu::Lease;
use pmux_engine::target::ContextKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Where an event is shown, in the life that is on.
#[derive(Default)]
pub(super) struct CachedEntry(Mutex<Option<EntryLocation>>);

pub(super) struct EntryLocation {
    pub(super) page: Arc<Page>,
    pub(super) index: u32,
    pub(super) handle: Handle,
    /// What lives before this one have counted.
    pub(super) before: Totals,
}

impl CachedEntry {
    pub(super) fn set(&self, entry: Option<EntryLocation>) {
        *lock(&self.0) = entry;
    }

    fn moment(&self) -> Option<TimedTotals> {
        let entry = lock(&self.0);
        let EntryLocation { page, index, handle, before } = entry.as_ref()?;
        let moment = page.cached(*index, *handle)?;
        Some(TimedTotals { totals: before.plus(moment.totals), ..moment })
    }
}

/// All slots that a service keeps.
#[derive(Default)]
pub(in crate::host) struct CachedSlots(Mutex<HashMap<(ContextKey, Lease), Arc<CachedEntry>>>);

impl CachedSlots {
    pub(super) fn add(&self, of: (ContextKey, Lease), cached: Arc<CachedEntry>) {
        lock(&self.0).insert(of, cached);
    }

    pub(super) fn remove(&self, of: (ContextKey, Lease)) {
        lock(&self.0).remove(&of);
    }

    pub(in crate::host) fn moment(&self, of: (ContextKey, Lease)) -> Option<TimedTotals> {
        // Found first: the map is for all threads, an entry for one of them.
        let cached = lock(&self.0).get(&of).cloned();
        cached?.moment()
    }
}
