//! Part of a recording: some events, some time, some tasks, CPUs, programs and functions; and how deep its call chains are read.
//!
//! What it is: [`Chosen`] stands before another sink and lets through what is wanted. Read first: [`SampleFilter`].
//!
//! **Invariant:** times are counted from the first sample of the recording, of whatever task: two parts of one recording fit together.

use super::{Detail, Happening, Name, Profile, Progress, Sample, Sink, StackId, Symbols, ThreadId};
use pmux_abi::record::Record;
use std::ops::{ControlFlow, RangeInclusive};

/// What is wanted of a recording. An empty list stands for all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SampleFilter {
    /// Names of events.
    pub events: Vec<String>,
    /// From so many ns after the first sample.
    pub from_ns: Option<u64>,
    /// Up to so many ns after the first sample.
    pub to_ns: Option<u64>,
    /// Names of threads.
    pub comms: Vec<String>,
    /// Processes.
    pub pids: Vec<i32>,
    /// Threads.
    pub tids: Vec<i32>,
    /// CPUs.
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Programs and libraries that samples were met in: by path, or by what they are called in a table.
    pub dsos: Vec<String>,
    /// Functions that samples were met in: whole names.
    pub symbols: Vec<String>,
    /// So many frames of each call chain are read, the innermost ones; all without it.
    pub max_stack: Option<usize>,
}

/// Whether a list names something; the empty list names everything.
fn names<T: PartialEq>(list: &[T], mut is: impl FnMut(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(&mut is)
}

impl SampleFilter {
    /// Whether an event is meant: by its whole name, or by what stands before its modifiers.
    #[must_use]
    pub fn has_event(&self, name: &str) -> bool {
        names(&self.events, |wanted| {
            let modifiers = name.strip_prefix(wanted.as_str());
            modifiers.is_some_and(|rest| rest.is_empty() || is_modifiers(rest))
        })
    }

    /// Whether only part of the samples is wanted.
    #[must_use]
    pub fn is_part(&self) -> bool {
        *self != Self { max_stack: self.max_stack, ..Self::default() }
    }

    fn has_cpu(&self, cpu: Option<u32>) -> bool {
        names(&self.cpus, |wanted| cpu.is_some_and(|cpu| wanted.contains(&cpu)))
    }

    fn has_task(&self, profile: &Profile, thread: ThreadId) -> bool {
        let thread = profile.tasks.thread(thread);
        names(&self.tids, |tid| *tid == thread.tid)
            && names(&self.pids, |pid| *pid == profile.tasks.process(thread.process).pid)
    }

    fn has_comm(&self, profile: &Profile, comm: Name) -> bool {
        names(&self.comms, |wanted| wanted == profile.names.get(comm))
    }

    fn has_time(&self, since_first_ns: u64) -> bool {
        self.from_ns.is_none_or(|from| since_first_ns >= from) && self.to_ns.is_none_or(|to| since_first_ns < to)
    }
}

/// A tracepoint has colons of its own: `sched:sched_switch`.
fn is_modifiers(rest: &str) -> bool {
    rest.strip_prefix(':').is_some_and(|letters| letters.chars().all(|letter| "ukhHGIpPSDeW".contains(letter)))
}

/// Which frames are in the programs and functions that are wanted, each asked once.
#[derive(Default)]
struct Places {
    symbols: Option<Symbols>,
    /// By frame.
    known: Vec<Option<bool>>,
}

impl Places {
    /// Whether what was met in a stack is wanted.
    fn has(&mut self, wanted: &SampleFilter, profile: &Profile, stack: StackId) -> bool {
        if wanted.dsos.is_empty() && wanted.symbols.is_empty() {
            return true;
        }
        let Some(frame) = profile.stacks.innermost(stack) else { return false };
        let Self { symbols, known } = self;
        if known.len() <= frame.index() {
            known.resize(profile.stacks.frames().len(), None);
        }
        *known[frame.index()].get_or_insert_with(|| {
            let module = profile.modules.get(profile.stacks.frame(frame).module);
            let called = [module.short, module.path].map(|name| profile.names.get(name).trim_end());
            names(&wanted.dsos, |dso| called.contains(&dso.as_str()))
                && (wanted.symbols.is_empty() || {
                    let symbols = symbols.get_or_insert_with(|| Symbols::new(profile));
                    let name = &*symbols.function_of(profile, frame).name;
                    wanted.symbols.iter().any(|symbol| symbol == name)
                })
        })
    }
}

/// Lets a sink see what is wanted.
#[derive(Default)]
pub struct Chosen<S> {
    wanted: SampleFilter,
    /// Who sees it.
    pub sink: S,
    /// When the first sample was, in ns of the recording's clock.
    pub first_ns: Option<u64>,
    /// Whether there is anything that is not wanted.
    is_part: bool,
    /// By event.
    is_wanted: Vec<bool>,
    places: Places,
}

impl<S> Chosen<S> {
    /// A sink that sees what is wanted.
    pub fn new(wanted: SampleFilter, sink: S) -> Self {
        let (is_part, is_wanted) = (wanted.is_part(), Vec::new());
        Self { wanted, sink, first_ns: None, is_part, is_wanted, places: Places::default() }
    }

    /// What is wanted.
    #[must_use]
    pub fn wanted(&self) -> &SampleFilter {
        &self.wanted
    }
}

impl<S: Sink> Sink for Chosen<S> {
    fn wants(&self) -> Detail {
        self.sink.wants()
    }

    fn max_stack(&self) -> usize {
        self.wanted.max_stack.unwrap_or(usize::MAX)
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let first_ns = *self.first_ns.get_or_insert(sample.time_ns);
        if !self.is_part {
            return self.sink.sample(profile, sample);
        }
        // In a pipe events may come late.
        for event in profile.events.get(self.is_wanted.len()..).unwrap_or_default() {
            self.is_wanted.push(self.wanted.has_event(&event.name));
        }
        let wanted = &self.wanted;
        let is_wanted = self.is_wanted.get(sample.event).copied().unwrap_or(false)
            && wanted.has_time(sample.time_ns.saturating_sub(first_ns))
            && wanted.has_cpu(sample.cpu)
            && wanted.has_task(profile, sample.thread)
            && wanted.has_comm(profile, sample.comm)
            && self.places.has(wanted, profile, sample.stack);
        if is_wanted { self.sink.sample(profile, sample) } else { ControlFlow::Continue(()) }
    }

    fn happening(&mut self, profile: &Profile, happening: &Happening<'_>) -> ControlFlow<()> {
        let wanted = &self.wanted;
        // What comes before the first sample tells what was there: it belongs to any part.
        let since_ns = self.first_ns.map(|first| happening.time_ns.saturating_sub(first));
        // What is lost is lost to all tasks of the CPU.
        let is_of_task = !matches!(happening.record, Record::Lost(_) | Record::LostSamples(_));
        let has_task = happening.thread.filter(|_| is_of_task).is_none_or(|thread| {
            wanted.has_task(profile, thread) && wanted.has_comm(profile, profile.tasks.thread(thread).name())
        });
        // Records that were made up from what was there before are of no CPU.
        let has_cpu = happening.cpu.is_none() || wanted.has_cpu(happening.cpu);
        let is_wanted = since_ns.is_none_or(|since| wanted.has_time(since)) && has_task && has_cpu;
        if is_wanted { self.sink.happening(profile, happening) } else { ControlFlow::Continue(()) }
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
        let wanted = |name: &str| SampleFilter { events: vec![name.to_owned()], ..SampleFilter::default() };
        assert!(SampleFilter::default().has_event("anything"));
        assert!(wanted("cycles").has_event("cycles:u"));
        assert!(wanted("cycles:u").has_event("cycles:u"));
        assert!(!wanted("cycles:u").has_event("cycles"));
        assert!(!wanted("cycle").has_event("cycles"));
        assert!(wanted("sched:sched_switch").has_event("sched:sched_switch"));
        assert!(!wanted("sched").has_event("sched:sched_switch"));
    }

    #[test]
    fn a_part_has_its_beginning_and_not_its_end() {
        let part = SampleFilter { from_ns: Some(10), to_ns: Some(20), ..SampleFilter::default() };
        let times: Vec<bool> = [0, 9, 10, 19, 20].map(|time| part.has_time(time)).to_vec();
        assert_eq!(times, [false, false, true, true, false]);
        assert!(SampleFilter::default().has_time(u64::MAX));
    }
}
