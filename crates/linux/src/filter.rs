//! Filters of tracepoints: an expression over the fields of a hit, which the kernel evaluates.
//!
//! What it is: the filter belongs to what an event asks. The kernel has no place for it in `perf_event_attr`; here the `config3` of a
//! tracepoint or a probe, which the kernel does not read, points to it, until the event is opened.
//! Read first: [`with_filter`].
//!
//! **Invariant:** an event has its filter before it counts, wherever and whenever it is opened. What goes to the kernel, into a file or to a
//! service has no pointer in it.
//!
//! Linux: `PERF_EVENT_IOC_SET_FILTER`, `perf_event_set_filter` (kernel/events/core.c).

use crate::host::bytes_of;
use crate::kept_text::{address_of, text_at};
use crate::probe::ProbePmu;
use crate::sys::perf::{self, TargetTask};
use crate::sys::{self, Errno};
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The attribute of a tracepoint or a probe that counts and writes only those hits of which the filter holds; `None` for other events, and
/// for a text with a zero byte.
#[must_use]
pub fn with_filter(attr: &Attr, filter: &str) -> Option<Attr> {
    let config3 = takes_filter(attr).then(|| address_of(filter.as_bytes()))??;
    Some(Attr { config3, ..*attr })
}

/// Whether the kernel evaluates filters for such an event.
#[must_use]
pub fn takes_filter(attr: &Attr) -> bool {
    attr.kind == EventType::TRACEPOINT || ProbePmu::of(attr.kind).is_some()
}

/// The filter of an attribute, if it has one.
#[must_use]
pub fn filter_of(attr: &Attr) -> Option<&'static str> {
    text_of(attr)?.to_str().ok()
}

/// The attribute without its filter, as the kernel, a file or a service gets it.
#[must_use]
pub fn without_filter(attr: &Attr) -> Attr {
    let config3 = if takes_filter(attr) { 0 } else { attr.config3 };
    Attr { config3, ..*attr }
}

/// Tries whether the kernel takes a filter.
///
/// It keeps an event of each tracepoint that it tried, so that the tracepoint stays on: the kernel waits some 40 ms when the last event of
/// one is closed, and would do so for each trial.
#[derive(Debug, Default)]
pub struct FilterTrials(Mutex<HashMap<Attr, OwnedFd>>);

impl FilterTrials {
    /// Whether the kernel takes the filter of an attribute. Where the event itself can't be opened, that is not known, and no error.
    ///
    /// # Errors
    /// `EINVAL` for what is no filter of this tracepoint.
    pub fn check(&self, attr: &Attr) -> Result<(), Errno> {
        let Attr { kind, config, config1, config2, .. } = *attr;
        let tried = Attr { kind, config, config1, config2, flags: AttrFlags::DISABLED, ..Attr::default() };
        let own = TargetTask::Task(sys::current_tid().cast_unsigned());
        let Ok(event) = perf::open(&bytes_of(&tried), own, None, None) else { return Ok(()) };
        let answer = set(event.as_fd(), attr);
        // An event takes one filter only, so each trial opens its own; all but the first are closed at once.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(tried).or_insert(event);
        answer
    }
}

/// Gives an event that does not count yet the filter of its attribute, if that has one.
pub(crate) fn set(event: BorrowedFd<'_>, attr: &Attr) -> Result<(), Errno> {
    text_of(attr).map_or(Ok(()), |filter| perf::set_filter(event, filter))
}

fn text_of(attr: &Attr) -> Option<&'static CStr> {
    (attr.config3 != 0 && takes_filter(attr)).then(|| text_at(attr.config3))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tracepoints_have_filters() {
        let tracepoint = Attr { kind: EventType::TRACEPOINT, config: 7, ..Attr::default() };
        let filtered = with_filter(&tracepoint, "count == 7").unwrap_or_default();
        assert_eq!(filter_of(&filtered), Some("count == 7"));
        assert_eq!(with_filter(&tracepoint, "count == 7"), Some(filtered), "equal filters are equal questions");
        assert_ne!(with_filter(&tracepoint, "count == 8"), Some(filtered));
        assert_eq!((without_filter(&filtered), filter_of(&tracepoint)), (tracepoint, None));
        assert_eq!(with_filter(&Attr::default(), "count == 7"), None);
        assert_eq!(with_filter(&tracepoint, "\0"), None);
        let unknown = Attr { config3: 4, ..tracepoint };
        assert_eq!(filter_of(&unknown), None, "no address that another program has sent is read");
    }
}
