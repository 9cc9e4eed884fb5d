//! Part of a recording: some events, some time.
//!
//! What it is: [`Chosen`] stands before another sink and lets through what is wanted. Read first: [`Wanted`].
//!
//! **Invariant:** times are counted from the first sample of the recording, whoever it is of: two parts of one recording fit together.

use super::{Detail, Happening, Profile, Progress, Sample, Sink};
use std::ops::ControlFlow;

/// What is wanted of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Names of events; all if there is none.
    pub events: Vec<String>,
    /// From so many ns after the first sample.
    pub from_ns: Option<u64>,
    /// Up to so many ns after the first sample.
    pub to_ns: Option<u64>,
}

impl Wanted {
    /// Whether an event is meant: by its whole name, or by what stands before its modifiers.
    #[must_use]
    pub fn has_event(&self, name: &str) -> bool {
        let is_meant = |wanted: &String| {
            let modifiers = name.strip_prefix(wanted.as_str());
            modifiers.is_some_and(|rest| rest.is_empty() || is_modifiers(rest))
        };
        self.events.is_empty() || self.events.iter().any(is_meant)
    }

    fn has_time(&self, since_first_ns: u64) -> bool {
        self.from_ns.is_none_or(|from| since_first_ns >= from) && self.to_ns.is_none_or(|to| since_first_ns < to)
    }
}

/// A tracepoint has colons of its own: `sched:sched_switch`.
fn is_modifiers(rest: &str) -> bool {
    rest.strip_prefix(':').is_some_and(|letters| letters.chars().all(|letter| "ukhHGIpPSDeW".contains(letter)))
}

/// Lets a sink see what is wanted.
#[derive(Debug, Default)]
pub struct Chosen<S> {
    /// What is wanted.
    pub wanted: Wanted,
    /// Who sees it.
    pub sink: S,
    /// When the first sample was, in ns of the recording's clock.
    pub first_ns: Option<u64>,
    /// By event.
    is_wanted: Vec<bool>,
}

impl<S> Chosen<S> {
    /// A sink that sees what is wanted.
    pub fn new(wanted: Wanted, sink: S) -> Self {
        Self { wanted, sink, first_ns: None, is_wanted: Vec::new() }
    }
}

impl<S: Sink> Sink for Chosen<S> {
    fn wants(&self) -> Detail {
        self.sink.wants()
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let first_ns = *self.first_ns.get_or_insert(sample.time_ns);
        // In a pipe events may come late.
        for event in profile.events.get(self.is_wanted.len()..).unwrap_or_default() {
            self.is_wanted.push(self.wanted.has_event(&event.name));
        }
        let is_wanted = self.is_wanted.get(sample.event).copied().unwrap_or(false);
        if is_wanted && self.wanted.has_time(sample.time_ns.saturating_sub(first_ns)) {
            return self.sink.sample(profile, sample);
        }
        ControlFlow::Continue(())
    }

    fn happening(&mut self, profile: &Profile, happening: &Happening<'_>) -> ControlFlow<()> {
        // What comes before the first sample tells what was there: it belongs to any part.
        let since_ns = self.first_ns.map(|first| happening.time_ns.saturating_sub(first));
        if since_ns.is_none_or(|since| self.wanted.has_time(since)) {
            return self.sink.happening(profile, happening);
        }
        ControlFlow::Continue(())
    }

    fn progress(&mut self, profile: &Profile, progress: Progress) -> ControlFlow<()> {
        self.sink.progress(profile, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_meant_with_or_without_its_modifiers() {
        let wanted = |name: &str| Wanted { events: vec![name.to_owned()], ..Wanted::default() };
        assert!(Wanted::default().has_event("anything"));
        assert!(wanted("cycles").has_event("cycles:u"));
        assert!(wanted("cycles:u").has_event("cycles:u"));
        assert!(!wanted("cycles:u").has_event("cycles"));
        assert!(!wanted("cycle").has_event("cycles"));
        assert!(wanted("sched:sched_switch").has_event("sched:sched_switch"));
        assert!(!wanted("sched").has_event("sched:sched_switch"));
    }

    #[test]
    fn a_part_has_its_beginning_and_not_its_end() {
        let part = Wanted { from_ns: Some(10), to_ns: Some(20), ..Wanted::default() };
        let times: Vec<bool> = [0, 9, 10, 19, 20].map(|time| part.has_time(time)).to_vec();
        assert_eq!(times, [false, false, true, true, false]);
        assert!(Wanted::default().has_time(u64::MAX));
    }
}
