//! The samples of the interval that goes on.
//!
//! What it is: samples come in one by one ([`Live::take`]); [`Live::turn`] ends an interval, and [`Interval`] is what it had. Read first:
//! [`Live::take`].
//!
//! **Invariant:** memory is bounded by what one interval holds ([`MOST_SAMPLES`], [`MOST_FRAMES`]); what had no room is counted.

use super::interval::{Interval, LiveSample, Place};
use super::waits::Waits;
use pmux::profile::{
    Interrupt, ModuleId, ModuleKind, Name, Profile, Sample, StackId, Symbols, TimeKind, WaitKind, level,
};
use pmux::record::WaitsUntil;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many samples of an interval are kept.
const MOST_SAMPLES: usize = 1 << 18;
/// So many frames of their stacks.
const MOST_FRAMES: usize = 1 << 23;
/// For so long it is waited for the rest of an interval once it is known where it ends.
const MOST_PATIENCE: Duration = Duration::from_secs(2);

/// What samples are collected in.
#[derive(Default)]
pub(super) struct Live {
    /// Up to when the interval before went, and up to when there are all samples now, or in a moment; `None` before recording began.
    began: Option<Instant>,
    pub(super) until: Option<Instant>,
    interval: Interval,
    pub(super) waits: Waits,
    /// Whether an interval is to end, where waits are told, and since when it is known where.
    pub(super) is_asked: bool,
    answered: Option<Instant>,
    /// What is waited for in stacks.
    wait_kinds: HashMap<StackId, WaitKind>,
    /// Which stacks are those of an interrupt.
    interrupts: HashMap<StackId, Option<Interrupt>>,
    places: Arc<Vec<Place>>,
    names: HashMap<Name, Arc<str>>,
    dsos: HashMap<ModuleId, Arc<str>>,
    /// What the recorder has to say, the newest last.
    pub(super) notes: Vec<String>,
    /// Records that the rings had no room for, ever.
    pub(super) lost: u64,
    /// Waits that were not seen as a whole, ever.
    pub(super) unseen: u64,
    /// For how long the service was away.
    pub(super) gap: Duration,
    /// Why there is no more to come.
    pub(super) ended: Option<Result<(), String>>,
}

impl Live {
    /// A profile has begun anew: its numbers mean something else now.
    pub(super) fn begin_profile(&mut self) {
        self.places = Arc::default();
        self.names.clear();
        self.dsos.clear();
        self.wait_kinds.clear();
        self.interrupts.clear();
        self.interval = Interval::default();
        // The interval is as much shorter.
        self.waits = Waits::default();
    }

    /// Takes in a sample that was met in these functions, the innermost first.
    pub(super) fn take(&mut self, profile: &Profile, symbols: &Symbols, sample: &Sample<'_>, functions: &[u32]) {
        let part = profile.events.get(sample.event).map_or(TimeKind::Other, TimeKind::of);
        let is_wait = matches!(part, TimeKind::Waited | TimeKind::WaitedForCpu);
        let interval = &self.interval;
        if !is_wait
            && part != TimeKind::Woke
            && (interval.samples.len() >= MOST_SAMPLES || interval.stacks.len() >= MOST_FRAMES)
        {
            self.interval.left_out += 1;
            return;
        }
        self.learn_places(profile, symbols);
        let places = &self.places;
        let kernel_functions = || -> Vec<&Arc<str>> {
            let places = functions.iter().filter_map(|&id| places.get(id as usize));
            places.take_while(|place| place.is_kernel).map(|place| &place.name).collect()
        };
        if part == TimeKind::Woke {
            let interrupt = *self.interrupts.entry(sample.stack).or_insert_with(|| Interrupt::of(&kernel_functions()));
            let waker = interrupt.map_or_else(|| profile.names.get(sample.comm), |interrupt| interrupt.name());
            if let Some(tid) = sample.fields.addr.and_then(|tid| i32::try_from(tid).ok()) {
                self.waits.take_wake(tid, sample.period, waker);
            }
            return;
        }
        let thread = profile.tasks.thread(sample.thread);
        let process = profile.tasks.process(thread.process);
        let main = process.main.map_or(sample.comm, |main| profile.tasks.thread(main).name());
        let names = &mut self.names;
        let mut name = |name: Name| Arc::clone(names.entry(name).or_insert_with(|| profile.names.get(name).into()));
        let mut taken = LiveSample {
            event: sample.event as u16,
            time_ns: sample.time_ns,
            pid: process.pid,
            tid: thread.tid,
            names: [name(main), name(sample.comm)],
            cpu: sample.cpu.unwrap_or(0),
            period: sample.period,
            ..LiveSample::default()
        };
        if is_wait {
            let is_sum = profile.stacks.is_nowhere(sample.stack);
            let kind = self.wait_kinds.entry(sample.stack).or_insert_with(|| WaitKind::of(&kernel_functions()));
            let functions = if is_sum { &[] } else { functions };
            self.waits.take(part, *kind, (sample.time_ns, is_sum), taken, functions);
        } else {
            taken.stack = self.interval.put_stack(functions);
            self.interval.samples.push(taken);
        }
    }

    /// Names the functions that are new.
    fn learn_places(&mut self, profile: &Profile, symbols: &Symbols) {
        if symbols.functions().len() > self.places.len() {
            // Copied where an interval is looked at that has them, too: once in each interval.
            let places = Arc::make_mut(&mut self.places);
            for function in &symbols.functions()[places.len()..] {
                let module = function.module;
                let dso = self.dsos.entry(module).or_insert_with(|| {
                    let short = profile.modules.get(module).short;
                    profile.names.get(short).into()
                });
                let name = match &*function.name {
                    "" => format!("{:#x}", function.start).into(),
                    _ => Arc::clone(&function.name),
                };
                places.push(Place {
                    name,
                    dso: Arc::clone(dso),
                    is_kernel: level(profile, module) == 'k',
                    is_mapped: profile.modules.get(module).kind != ModuleKind::Unknown,
                });
            }
        }
    }

    /// Samples are taken from now on.
    pub(super) fn begin_interval(&mut self, now: Instant) {
        (self.began, self.until) = (Some(now), Some(now));
    }

    /// It was looked for waits that go on.
    pub(super) fn waits_until(&mut self, until: Option<WaitsUntil>) {
        self.unseen = until.map_or(self.unseen, |until| until.unseen);
        // What is not recorded now ends no interval.
        if until.is_none_or(|until| self.waits.end_at(until)) {
            if std::mem::take(&mut self.is_asked) {
                self.answered = Some(Instant::now());
            }
        } else {
            // The first moment is where one begins.
            self.began = Some(Instant::now());
        }
    }

    /// Whether there is as much as an interval is to have at least: recording takes time to begin.
    pub(super) fn is_long(&self, shortest: Duration) -> bool {
        self.ended.is_some() || self.began.is_some_and(|began| began.elapsed() >= shortest)
    }

    /// Whether all has come that was asked for, or won't come any more.
    pub(super) fn is_whole(&self) -> bool {
        let is_late = || self.answered.is_none_or(|answered| answered.elapsed() > MOST_PATIENCE);
        self.ended.is_some() || !self.is_asked && (self.waits.are_here || is_late())
    }

    /// Ends the interval. It is as long as samples came for it, whatever the screen's clock says.
    pub(super) fn turn(&mut self) -> Interval {
        let mut ended = std::mem::take(&mut self.interval);
        let began = std::mem::replace(&mut self.began, self.until);
        ended.took = began.zip(self.until).map_or(Duration::ZERO, |(began, until)| until - began);
        ended.places = Arc::clone(&self.places);
        let waits = self.waits.cut();
        ended.waits_left_out = waits.left_out;
        if let Some((from_ns, to_ns)) = waits.window_ns {
            // What ran is told of the time of which waits are.
            ended.took = Duration::from_nanos(to_ns.saturating_sub(from_ns));
            let (of_it, others) =
                std::mem::take(&mut ended.samples).into_iter().partition(|sample| sample.time_ns <= to_ns);
            ended.samples = of_it;
            ended.samples.retain(|sample| sample.time_ns > from_ns);
            for mut later in others {
                later.stack = self.interval.put_stack(ended.stacks.get(later.stack).unwrap_or_default());
                self.interval.samples.push(later);
            }
        }
        for (mut part, functions) in waits.parts {
            part.stack = ended.put_stack(&functions);
            ended.samples.push(part);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_ends_after_recording_began_and_when_it_is_known_where() {
        let mut live = Live::default();
        let wait_long = |live: &mut Live| live.answered = Some(Instant::now() - 2 * MOST_PATIENCE);
        assert!(!live.is_long(Duration::ZERO), "it has not begun");
        live.begin_interval(Instant::now());
        assert!(live.is_long(Duration::ZERO) && !live.is_long(Duration::from_secs(1 << 20)));
        live.is_asked = true;
        wait_long(&mut live);
        let until = |at_ns| Some(WaitsUntil { at_ns, samples: 1, unseen: 0 });
        live.waits_until(until(100));
        assert!(live.is_asked && !live.is_whole(), "the first moment is where it begins");
        live.waits_until(until(200));
        assert!(!live.is_asked && !live.is_whole(), "what tells of it is still to come");
        wait_long(&mut live);
        assert!(live.is_whole(), "it does not come any more");
        assert_eq!(live.turn().took, Duration::from_nanos(100));
        // What can't be told is not waited for.
        live.is_asked = true;
        live.waits_until(None);
        wait_long(&mut live);
        assert!(live.is_whole());
        assert!(live.turn().took < Duration::from_secs(1 << 20));
    }
}
