//! Who gets a snapshot, who is held back, and what is said of a flood.
//!
//! What it is: what rules want since the last snapshot, made into one cause; the cool-down; and how often each rule is told of.
//!
//! **Invariant:** a direct request, by a signal or through the socket, is never held back. What is not said is counted.

use super::recorder_event::RecorderEvent;
use pmux::flight::SnapshotCause;
use pmux::trigger::{Action, Fired, Rule, TermSource};
use std::time::{Duration, Instant};

/// So many causes are named of one snapshot; the rest is a number.
const MAX_CAUSES: usize = 8;
/// So often a rule is told of in a second.
const REPORTS_PER_SECOND: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

pub(super) struct SnapshotRequest {
    pub(super) cause: SnapshotCause,
    /// What is run when it is there.
    pub(super) runs: Vec<(String, Fired)>,
}

struct RuleState {
    trigger: String,
    /// Whether it is a direct request: nothing holds that back.
    direct: bool,
    /// Whether all that follows from it is a snapshot, and what waits for that.
    snapshot_only: bool,
    second: Option<Instant>,
    reported: u32,
    left_out: u64,
}

pub(super) struct SnapshotThrottle {
    rules: Vec<RuleState>,
    cool_down: Duration,
    /// When the last snapshot was begun for a trigger.
    begun: Option<Instant>,
    causes: Vec<SnapshotCause>,
    more: usize,
    runs: Vec<(String, Fired)>,
    pub(super) held_back: u64,
    /// Of those the ones that were not reported.
    unreported: u64,
    /// Whether it was said that something is held back.
    hold_reported: bool,
}

impl SnapshotThrottle {
    pub(super) fn new(rules: &[Rule], cool_down: Duration) -> Self {
        let state = |rule: &Rule| RuleState {
            trigger: rule.trigger.to_string(),
            direct: rule.trigger.terms.iter().any(|term| matches!(term.source, TermSource::Signal(_))),
            snapshot_only: matches!(rule.actions[..], [Action::Snapshot, ..])
                && rule.actions.iter().all(|action| matches!(action, Action::Snapshot | Action::Run(_))),
            second: None,
            reported: 0,
            left_out: 0,
        };
        let (causes, runs) = (Vec::new(), Vec::new());
        let rules = rules.iter().map(state).collect();
        Self { rules, cool_down, begun: None, causes, more: 0, runs, held_back: 0, unreported: 0, hold_reported: false }
    }

    pub(super) fn may_report(&mut self, rule: usize) -> bool {
        let Some(state) = self.rules.get_mut(rule) else { return false };
        let now = Instant::now();
        if state.second.is_none_or(|second| now.duration_since(second) >= SECOND) {
            (state.second, state.reported) = (Some(now), 0);
        }
        state.reported += 1;
        let may_report = state.reported <= REPORTS_PER_SECOND;
        state.left_out += u64::from(!may_report);
        may_report
    }

    /// A rule wants a snapshot, and something to be run then.
    pub(super) fn request(&mut self, fired: &Fired, runs: Vec<String>) -> Option<RecorderEvent> {
        let state = self.rules.get(fired.rule)?;
        if self.cooldown_left().is_some() && !state.direct && self.causes.is_empty() {
            return self.hold_back(fired.rule, 1);
        }
        if !state.direct {
            self.begun = Some(Instant::now());
            self.hold_reported = false;
        }
        self.add(SnapshotCause { what: fired.to_string(), at: fired.at });
        self.runs.extend(runs.into_iter().map(|run| (run, fired.clone())));
        None
    }

    /// A rule has been held back so often.
    pub(super) fn hold_back(&mut self, rule: usize, times: u64) -> Option<RecorderEvent> {
        let trigger = self.rules.get(rule)?.trigger.clone();
        self.held_back += times;
        self.unreported += times;
        if std::mem::replace(&mut self.hold_reported, true) {
            return None;
        }
        self.unreported -= 1;
        Some(RecorderEvent::HeldBack { trigger, cool_down: self.cool_down })
    }

    fn cooldown_left(&self) -> Option<Duration> {
        self.cool_down.checked_sub(self.begun?.elapsed()).filter(|left| !left.is_zero())
    }

    /// For how long nothing follows from a rule; `None` where something does.
    pub(super) fn cooldown_left_for(&self, rule: usize) -> Option<Duration> {
        self.rules.get(rule).filter(|state| state.snapshot_only && !state.direct)?;
        self.cooldown_left()
    }

    pub(super) fn request_by_hand(&mut self, who: &str) {
        self.add(SnapshotCause::now(format!("asked by {who}")));
    }

    fn add(&mut self, cause: SnapshotCause) {
        if self.causes.len() < MAX_CAUSES {
            self.causes.push(cause);
        } else {
            self.more += 1;
        }
    }

    /// The snapshot that is wanted since the last time; its cause is the first one's moment.
    pub(super) fn take_request(&mut self) -> Option<SnapshotRequest> {
        let at = self.causes.first()?.at;
        let mut what: Vec<String> = self.causes.drain(..).map(|cause| cause.what).collect();
        what.dedup();
        let more = std::mem::take(&mut self.more);
        if more > 0 {
            what.push(format!("and {more} more"));
        }
        Some(SnapshotRequest {
            cause: SnapshotCause { what: what.join("; "), at },
            runs: std::mem::take(&mut self.runs),
        })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.rules.iter().filter(|state| state.left_out > 0).filter_map(|state| Some(state.second? + SECOND)).min()
    }

    /// What was not said in a second that is over.
    pub(super) fn take_suppressed(&mut self) -> Vec<RecorderEvent> {
        let over = |state: &RuleState| state.second.is_none_or(|second| second.elapsed() >= SECOND);
        self.left_out(over)
    }

    /// What was not said at all.
    pub(super) fn end(&mut self) -> Vec<RecorderEvent> {
        let mut events = self.left_out(|_| true);
        let unreported = std::mem::take(&mut self.unreported);
        if unreported > 0 {
            events.push(RecorderEvent::MoreHeldBack { times: unreported });
        }
        events
    }

    fn left_out(&mut self, may_report: impl Fn(&RuleState) -> bool) -> Vec<RecorderEvent> {
        let events = self.rules.iter_mut().filter(|state| state.left_out > 0 && may_report(state)).map(|state| {
            RecorderEvent::MoreFired { trigger: state.trigger.clone(), times: std::mem::take(&mut state.left_out) }
        });
        events.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux::Nanos;
    use pmux::trigger::{Reason, TriggerTarget};

    const HOUR: Duration = Duration::from_secs(3600);

    fn throttle(cool_down: Duration) -> SnapshotThrottle {
        let rules = ["line:a", "line:b", "signal:USR2"].map(|text| Rule::parse(text, None).unwrap());
        SnapshotThrottle::new(&rules, cool_down)
    }

    fn fired(rule: usize, line: &str) -> Fired {
        let reasons = vec![Reason::Line(line.to_owned())];
        Fired { rule, at: Nanos(5), place: TriggerTarget::All, cgroup: None, reasons }
    }

    #[test]
    fn concurrent_requests_share_one_snapshot() {
        let mut throttle = throttle(HOUR);
        assert!(throttle.take_request().is_none());
        for line in 0..20 {
            assert!(throttle.request(&fired(line % 2, &line.to_string()), vec!["go".to_owned()]).is_none());
        }
        throttle.request_by_hand("user 1");
        let SnapshotRequest { cause, runs } = throttle.take_request().unwrap();
        assert_eq!((cause.at, runs.len()), (Nanos(5), 20));
        assert!(
            cause.what.starts_with("line: 0; line: 1; ") && cause.what.ends_with("; and 13 more"),
            "{}",
            cause.what
        );
        assert!(throttle.take_request().is_none());
    }

    #[test]
    fn direct_requests_are_not_held_back() {
        let mut throttle = throttle(HOUR);
        throttle.request(&fired(0, "x"), Vec::new());
        assert!(throttle.take_request().is_some());
        assert!(matches!(throttle.request(&fired(1, "x"), Vec::new()), Some(RecorderEvent::HeldBack { .. })));
        assert!(throttle.request(&fired(0, "x"), vec!["go".to_owned()]).is_none(), "once is enough");
        assert!(throttle.take_request().is_none());
        assert!(throttle.request(&fired(2, "x"), Vec::new()).is_none());
        assert!(throttle.take_request().unwrap().runs.is_empty(), "what was held back is not done later");
        throttle.request_by_hand("user 1");
        assert!(throttle.take_request().is_some());
        assert_eq!(throttle.held_back, 2);
        assert!(matches!(throttle.end()[..], [RecorderEvent::MoreHeldBack { times: 1 }]));
    }

    #[test]
    fn without_a_cool_down_no_request_is_held_back() {
        let mut throttle = throttle(Duration::ZERO);
        for _ in 0..3 {
            assert!(throttle.request(&fired(0, "x"), Vec::new()).is_none());
            assert!(throttle.take_request().is_some());
        }
    }

    #[test]
    fn suppressed_events_are_reported_as_a_count() {
        let mut throttle = throttle(HOUR);
        let reported = (0..100).filter(|_| throttle.may_report(0)).count();
        assert!(throttle.deadline().is_some());
        // It may have taken longer than a second.
        let left_out: u64 = throttle
            .end()
            .iter()
            .map(|event| match event {
                RecorderEvent::MoreFired { times, .. } => *times,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(reported as u64 + left_out, 100);
        assert!(throttle.deadline().is_none() && throttle.may_report(1));
    }
}
