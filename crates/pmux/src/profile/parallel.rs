//! How many threads run at a moment, and what a function costs in time that passes.
//!
//! What it is: [`Running`] follows the context switches of a recording, so that each sample can tell how many threads had a CPU when it
//! was taken. While N run, a sample of one of them is 1/N of what passes: [`Tally::latency`] adds these shares up. Read first:
//! [`Running::sampled`].
//!
//! **Invariant:** a thread has one CPU at most, and a CPU one thread: what the kernel lost is put right by the next record of either.

use super::tally::{Key, Tally, Weight};
use super::tasks::{ProcessId, Tasks, ThreadId};
use super::times::{TimeKind, TimeKinds};
use super::{Apart, EventGroup, EventInfo, Profile};
use hashbrown::HashMap;
use pmux_abi::attr::AttrFlags;
use pmux_abi::record::{Record, SwitchDirection};

/// Which threads have a CPU.
#[derive(Default)]
pub(super) struct Running {
    /// By thread: its process, and the CPU, where that is known.
    threads: Vec<Option<(ProcessId, Option<u32>)>>,
    /// By CPU.
    cpus: Vec<Option<ThreadId>>,
    /// How many of each process, and of all.
    counts: Vec<u32>,
    all: u32,
    /// Whether whole CPUs are recorded.
    is_system_wide: bool,
    kinds: TimeKinds,
}

/// No machine has more: threads on what is recorded as another one are known by themselves.
const MOST_CPUS: u32 = 1 << 16;

/// A place in a list that grows.
fn at<T: Clone + Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if list.len() <= place {
        list.resize(place + 1, T::default());
    }
    &mut list[place]
}

impl Running {
    /// Whether context switches are recorded with these events.
    pub(super) fn is_told(events: &[EventInfo]) -> bool {
        events.iter().any(|event| event.attr.flags.contains(AttrFlags::CONTEXT_SWITCH))
    }

    /// A sample was taken of a thread: how many run then, with this one. Where whole CPUs are recorded, those of its process: others do
    /// not make it faster. 0 for a CPU that is idle, `None` for what a recorder tells of a thread later.
    pub(super) fn sampled(
        &mut self,
        profile: &Profile,
        event: usize,
        thread: ThreadId,
        cpu: Option<u32>,
    ) -> Option<u32> {
        let is_met = matches!(self.kinds.of(profile, event), TimeKind::Ran | TimeKind::Other);
        is_met.then(|| self.met(&profile.tasks, thread, cpu))
    }

    /// A thread was met: it has a CPU. The first switch of one that runs when it begins to be recorded is away from the CPU.
    fn met(&mut self, tasks: &Tasks, thread: ThreadId, cpu: Option<u32>) -> u32 {
        self.runs(tasks, thread, cpu);
        let task = tasks.thread(thread);
        if task.tid == 0 {
            return 0;
        }
        let running = if self.is_system_wide { *at(&mut self.counts, task.process.index()) } else { self.all };
        running.max(1)
    }

    /// Something else was recorded of a thread.
    pub(super) fn happened(&mut self, tasks: &Tasks, thread: ThreadId, cpu: Option<u32>, record: &Record<'_>) {
        let direction = match record {
            Record::Switch(direction) => direction,
            Record::SwitchCpuWide(switch) => {
                self.is_system_wide = true;
                &switch.direction
            }
            // Who ends does not give the CPU up any more.
            Record::Exit(_) => return self.stops(thread),
            _ => return,
        };
        match direction {
            SwitchDirection::In => self.runs(tasks, thread, cpu),
            SwitchDirection::Out | SwitchDirection::OutPreempted => self.stops(thread),
        }
    }

    fn runs(&mut self, tasks: &Tasks, thread: ThreadId, cpu: Option<u32>) {
        let cpu = cpu.filter(|&cpu| cpu < MOST_CPUS);
        if at(&mut self.threads, thread.index()).is_some_and(|(_, known)| known == cpu || cpu.is_none()) {
            return;
        }
        self.stops(thread);
        if let Some(before) = cpu.and_then(|cpu| at(&mut self.cpus, cpu as usize).take()) {
            self.stops(before);
        }
        let task = tasks.thread(thread);
        // Each CPU has an idle thread, and all have one number. What is told of one that has ended is late.
        if task.tid <= 0 || task.ended_ns.is_some() {
            return;
        }
        if let Some(cpu) = cpu {
            *at(&mut self.cpus, cpu as usize) = Some(thread);
        }
        *at(&mut self.threads, thread.index()) = Some((task.process, cpu));
        *at(&mut self.counts, task.process.index()) += 1;
        self.all += 1;
    }

    fn stops(&mut self, thread: ThreadId) {
        let Some((process, cpu)) = at(&mut self.threads, thread.index()).take() else { return };
        if let Some(cpu) = cpu {
            *at(&mut self.cpus, cpu as usize) = None;
        }
        *at(&mut self.counts, process.index()) -= 1;
        self.all -= 1;
    }
}

impl Tally {
    /// Puts before each event another one, in a group with it, in which a sample counts 1/N where N threads ran. What was waited for is
    /// left out. The tally has to tell apart how many threads run; the new one tells apart what `apart` says.
    ///
    /// # Errors
    /// A sentence: it isn't known who ran when.
    pub fn latency(&self, profile: &mut Profile, apart: Apart) -> Result<Self, String> {
        if !Running::is_told(&profile.events) {
            return Err("it has no context switches: record it with `pmux record --latency`".to_owned());
        }
        let is_of_what_runs = |event: &EventInfo| matches!(TimeKind::of(event), TimeKind::Ran | TimeKind::Other);
        let (mut events, mut places) = (Vec::new(), Vec::new());
        for event in profile.events.drain(..) {
            places.push(is_of_what_runs(&event).then_some(events.len() as u32));
            if is_of_what_runs(&event) {
                let group = Some(EventGroup { name: "latency".to_owned(), events: 2 });
                let name = format!("{} (latency)", event.name);
                events.push(EventInfo { name, ids: Vec::new(), group, ..event.clone() });
                events.push(EventInfo { group: None, ..event });
            }
        }
        profile.events = events;
        let mut both = Self::new(apart);
        let (mut idle, mut not_told) = (0, 0);
        // By event and by how many ran: what there was.
        let mut sums: HashMap<(u32, u32), u64> = HashMap::new();
        for (key, weight) in self.rows() {
            let Some(&Some(event)) = places.get(key.event as usize) else { continue };
            let Some(running) = key.parallelism.filter(|&running| running > 0) else {
                let left_out = if key.parallelism.is_some() { &mut idle } else { &mut not_told };
                *left_out += weight.samples;
                continue;
            };
            // What rounding leaves goes to a later row, so that the sum is right.
            let sum = sums.entry((event, running)).or_default();
            let before = *sum / u64::from(running);
            *sum = sum.saturating_add(weight.period);
            let period = *sum / u64::from(running) - before;
            let key = |event| Key { event, parallelism: key.parallelism.filter(|_| apart.parallelism), ..*key };
            both.add(key(event), Weight { period, ..*weight });
            both.add(key(event + 1), *weight);
        }
        if not_told > 0 {
            profile.notes.push(format!("{not_told} samples are left out: no context switches were recorded with them"));
        }
        if idle > 0 {
            profile.notes.push(format!("{idle} samples of idle CPUs are left out"));
        }
        Ok(both)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Names;
    use super::*;
    use pmux_abi::record::SwitchCpuWide;

    const IN: Record<'_> = Record::Switch(SwitchDirection::In);
    const OUT: Record<'_> = Record::Switch(SwitchDirection::Out);

    fn tasks() -> (Tasks, impl Fn(i32) -> ThreadId) {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        let ids: Vec<_> = [(0, 0), (10, 1), (10, 2), (20, 3)].map(|(pid, tid)| tasks.find(pid, tid, &mut names)).into();
        (tasks, move |tid| ids[tid as usize])
    }

    #[test]
    fn those_run_that_were_switched_to_and_not_away() {
        let (tasks, thread) = tasks();
        let mut running = Running::default();
        assert_eq!(running.met(&tasks, thread(1), Some(0)), 1);
        running.happened(&tasks, thread(2), Some(1), &IN);
        running.happened(&tasks, thread(3), Some(2), &IN);
        assert_eq!(running.met(&tasks, thread(1), Some(0)), 3);
        running.happened(&tasks, thread(3), Some(2), &OUT);
        assert_eq!(running.met(&tasks, thread(2), Some(1)), 2);
        let end = pmux_abi::record::Task { pid: 10, tid: 1, ppid: 1, ptid: 1, time: 0 };
        running.happened(&tasks, thread(1), Some(0), &Record::Exit(end));
        assert_eq!(running.met(&tasks, thread(2), Some(1)), 1);
    }

    #[test]
    fn what_was_lost_is_put_right() {
        let (tasks, thread) = tasks();
        let mut running = Running::default();
        running.happened(&tasks, thread(1), Some(0), &IN);
        // Away from CPU 0, and to CPU 1, where another one is since: not seen.
        running.happened(&tasks, thread(2), Some(0), &IN);
        assert_eq!(running.met(&tasks, thread(2), Some(0)), 1);
        assert_eq!(running.met(&tasks, thread(2), Some(1)), 1, "it has moved");
        assert_eq!(running.met(&tasks, thread(0), Some(1)), 0, "idle");
        running.happened(&tasks, thread(0), Some(1), &IN);
        assert_eq!(running.met(&tasks, thread(1), Some(0)), 1, "CPU 1 is idle");
        assert_eq!((running.all, running.cpus.iter().flatten().count()), (1, 1));
    }

    #[test]
    fn without_cpus_threads_are_known_by_themselves() {
        let (tasks, thread) = tasks();
        let mut running = Running::default();
        [1, 2, 3].into_iter().for_each(|tid| running.happened(&tasks, thread(tid), None, &IN));
        assert_eq!(running.met(&tasks, thread(1), None), 3);
        running.happened(&tasks, thread(2), None, &OUT);
        assert_eq!(running.met(&tasks, thread(1), None), 2);
    }

    #[test]
    fn where_all_is_recorded_only_threads_of_the_same_process_share() {
        let (tasks, thread) = tasks();
        let mut running = Running::default();
        let switch = |direction| Record::SwitchCpuWide(SwitchCpuWide { direction, next_prev_pid: 0, next_prev_tid: 0 });
        for tid in [1, 2, 3] {
            running.happened(&tasks, thread(tid), Some(tid as u32), &switch(SwitchDirection::In));
        }
        assert_eq!([1, 3].map(|tid| running.met(&tasks, thread(tid), Some(tid as u32))), [2, 1]);
        running.happened(&tasks, thread(2), Some(2), &switch(SwitchDirection::OutPreempted));
        assert_eq!(running.met(&tasks, thread(1), Some(1)), 1);
    }
}
