//! Who gets a snapshot, who is held back, and what is said of a flood.
//!
//! What it is: what rules want since the last snapshot, made into one cause; the cool-down; and how often each rule is told of.
//!
//! **Invariant:** a direct request, by a signal or through the socket, is never held back. What is not said is counted.

use super::told::Told;
use pmux::flight::Cause;
use pmux::trigger::{Action, Fired, Rule, Source};
use std::time::{Duration, Instant};

/// So many causes are named of one snapshot; the rest is a number.
const NAMED: usize = 8;
/// So often a rule is told of in a second.
const TOLD: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

pub(super) struct Wanted {
    pub(super) cause: Cause,
    /// What is run when it is there.
    pub(super) runs: Vec<(String, Fired)>,
}

struct Line {
    trigger: String,
    /// Whether it is a direct request: nothing holds that back.
    by_hand: bool,
    /// Whether all that follows from it is a snapshot, and what waits for that.
    snapshot_only: bool,
    second: Option<Instant>,
    told: u32,
    left_out: u64,
}

pub(super) struct Wishes {
    lines: Vec<Line>,
    cool_down: Duration,
    /// When the last snapshot was begun for a trigger.
    begun: Option<Instant>,
    causes: Vec<Cause>,
    more: usize,
    runs: Vec<(String, Fired)>,
    held_back: u64,
    /// Of those the ones that were not reported.
    unsaid: u64,
    /// Whether it was said that something is held back.
    said: bool,
}

impl Wishes {
    pub(super) fn new(rules: &[Rule], cool_down: Duration) -> Self {
        let line = |rule: &Rule| Line {
            trigger: rule.trigger.to_string(),
            by_hand: rule.trigger.terms.iter().any(|term| matches!(term.source, Source::Signal(_))),
            snapshot_only: matches!(rule.actions[..], [Action::Snapshot, ..])
                && rule.actions.iter().all(|action| matches!(action, Action::Snapshot | Action::Run(_))),
            second: None,
            told: 0,
            left_out: 0,
        };
        let (causes, runs) = (Vec::new(), Vec::new());
        let lines = rules.iter().map(line).collect();
        Self { lines, cool_down, begun: None, causes, more: 0, runs, held_back: 0, unsaid: 0, said: false }
    }

    pub(super) fn held_back(&self) -> u64 {
        self.held_back
    }

    pub(super) fn tells(&mut self, rule: usize) -> bool {
        let Some(line) = self.lines.get_mut(rule) else { return false };
        let now = Instant::now();
        if line.second.is_none_or(|second| now.duration_since(second) >= SECOND) {
            (line.second, line.told) = (Some(now), 0);
        }
        line.told += 1;
        let tells = line.told <= TOLD;
        line.left_out += u64::from(!tells);
        tells
    }

    /// A rule wants a snapshot, and something to be run then.
    pub(super) fn want(&mut self, fired: &Fired, runs: Vec<String>) -> Option<Told> {
        let line = self.lines.get(fired.rule)?;
        if self.cools_down().is_some() && !line.by_hand && self.causes.is_empty() {
            return self.hold_back(fired.rule, 1);
        }
        if !line.by_hand {
            self.begun = Some(Instant::now());
            self.said = false;
        }
        self.add(Cause { what: fired.to_string(), at: fired.at });
        self.runs.extend(runs.into_iter().map(|run| (run, fired.clone())));
        None
    }

    /// A rule has been held back so often.
    pub(super) fn hold_back(&mut self, rule: usize, times: u64) -> Option<Told> {
        let trigger = self.lines.get(rule)?.trigger.clone();
        self.held_back += times;
        self.unsaid += times;
        if std::mem::replace(&mut self.said, true) {
            return None;
        }
        self.unsaid -= 1;
        Some(Told::HeldBack { trigger, cool_down: self.cool_down })
    }

    fn cools_down(&self) -> Option<Duration> {
        self.cool_down.checked_sub(self.begun?.elapsed()).filter(|left| !left.is_zero())
    }

    /// For how long nothing follows from a rule; `None` where something does.
    pub(super) fn cools_down_for(&self, rule: usize) -> Option<Duration> {
        self.lines.get(rule).filter(|line| line.snapshot_only && !line.by_hand)?;
        self.cools_down()
    }

    pub(super) fn ask(&mut self, who: &str) {
        self.add(Cause::now(format!("asked by {who}")));
    }

    fn add(&mut self, cause: Cause) {
        if self.causes.len() < NAMED {
            self.causes.push(cause);
        } else {
            self.more += 1;
        }
    }

    /// The snapshot that is wanted since the last time; its cause is the first one's moment.
    pub(super) fn granted(&mut self) -> Option<Wanted> {
        let at = self.causes.first()?.at;
        let mut what: Vec<String> = self.causes.drain(..).map(|cause| cause.what).collect();
        what.dedup();
        let more = std::mem::take(&mut self.more);
        if more > 0 {
            what.push(format!("and {more} more"));
        }
        Some(Wanted { cause: Cause { what: what.join("; "), at }, runs: std::mem::take(&mut self.runs) })
    }

    /// When [`Wishes::pass`] has something to say.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.lines.iter().filter(|line| line.left_out > 0).filter_map(|line| Some(line.second? + SECOND)).min()
    }

    /// What was not said in a second that is over.
    pub(super) fn pass(&mut self) -> Vec<Told> {
        let over = |line: &Line| line.second.is_none_or(|second| second.elapsed() >= SECOND);
        self.left_out(over)
    }

    /// What was not said at all.
    pub(super) fn end(&mut self) -> Vec<Told> {
        let mut told = self.left_out(|_| true);
        let unsaid = std::mem::take(&mut self.unsaid);
        if unsaid > 0 {
            told.push(Told::MoreHeldBack { times: unsaid });
        }
        told
    }

    fn left_out(&mut self, tells: impl Fn(&Line) -> bool) -> Vec<Told> {
        let told = self
            .lines
            .iter_mut()
            .filter(|line| line.left_out > 0 && tells(line))
            .map(|line| Told::MoreFired { trigger: line.trigger.clone(), times: std::mem::take(&mut line.left_out) });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pmux::Nanos;
    use pmux::trigger::{Reason, TriggerTarget};

    const HOUR: Duration = Duration::from_secs(3600);

    fn wishes(cool_down: Duration) -> Wishes {
        let rules = ["line:a", "line:b", "signal:USR2"].map(|text| Rule::parse(text, None).unwrap());
        Wishes::new(&rules, cool_down)
    }

    fn fired(rule: usize, line: &str) -> Fired {
        Fired {
            rule,
            at: Nanos(5),
            place: TriggerTarget::All,
            cgroup: None,
            reasons: vec![Reason::Line(line.to_owned())],
        }
    }

    #[test]
    fn what_is_wanted_at_once_is_one_snapshot() {
        let mut wishes = wishes(HOUR);
        assert!(wishes.granted().is_none());
        for line in 0..20 {
            assert!(wishes.want(&fired(line % 2, &line.to_string()), vec!["go".to_owned()]).is_none());
        }
        wishes.ask("user 1");
        let Wanted { cause, runs } = wishes.granted().unwrap();
        assert_eq!((cause.at, runs.len()), (Nanos(5), 20));
        assert!(
            cause.what.starts_with("line: 0; line: 1; ") && cause.what.ends_with("; and 13 more"),
            "{}",
            cause.what
        );
        assert!(wishes.granted().is_none());
    }

    #[test]
    fn who_asks_himself_is_not_held_back() {
        let mut wishes = wishes(HOUR);
        wishes.want(&fired(0, "x"), Vec::new());
        assert!(wishes.granted().is_some());
        assert!(matches!(wishes.want(&fired(1, "x"), Vec::new()), Some(Told::HeldBack { .. })));
        assert!(wishes.want(&fired(0, "x"), vec!["go".to_owned()]).is_none(), "once is enough");
        assert!(wishes.granted().is_none());
        assert!(wishes.want(&fired(2, "x"), Vec::new()).is_none());
        assert!(wishes.granted().unwrap().runs.is_empty(), "what was held back is not done later");
        wishes.ask("user 1");
        assert!(wishes.granted().is_some());
        assert_eq!(wishes.held_back(), 2);
        assert!(matches!(wishes.end()[..], [Told::MoreHeldBack { times: 1 }]));
    }

    #[test]
    fn without_a_cool_down_nobody_is_held_back() {
        let mut wishes = wishes(Duration::ZERO);
        for _ in 0..3 {
            assert!(wishes.want(&fired(0, "x"), Vec::new()).is_none());
            assert!(wishes.granted().is_some());
        }
    }

    #[test]
    fn a_flood_is_told_as_a_number() {
        let mut wishes = wishes(HOUR);
        let told = (0..100).filter(|_| wishes.tells(0)).count();
        assert!(wishes.deadline().is_some());
        // It may have taken longer than a second.
        let left_out: u64 = wishes
            .end()
            .iter()
            .map(|told| match told {
                Told::MoreFired { times, .. } => *times,
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!(told as u64 + left_out, 100);
        assert!(wishes.deadline().is_none() && wishes.tells(1));
    }
}
