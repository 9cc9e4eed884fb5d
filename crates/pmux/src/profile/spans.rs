//! Which thread had which CPU, from when to when; and how far samples are apart.
//!
//! **Invariant:** a span is what was recorded, from the first sample on: one whose end was not seen ends with the recording, one whose
//! beginning was not seen begins with it.

use super::{Noted, NotedKind, Taken, ThreadId, Whole};
use std::collections::HashMap;

/// A thread had a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Which thread.
    pub thread: ThreadId,
    /// Which CPU, where that was recorded.
    pub cpu: Option<u32>,
    /// From when, in ns of the recording's clock.
    pub from_ns: u64,
    /// To when, in ns of the recording's clock.
    pub to_ns: u64,
}

/// Where one thread can be at a time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RunKey {
    Cpu(u32),
    Of(ThreadId),
}

/// All spans, in the order in which they end (then by CPU and thread). Empty where switches were not recorded.
#[must_use]
pub fn spans(whole: &Whole) -> Vec<Span> {
    let Some((first_ns, last_ns)) = whole.span_ns() else { return Vec::new() };
    // One runs on each CPU; where CPUs were not recorded, each thread is looked at alone.
    let mut running: HashMap<RunKey, (ThreadId, u64)> = HashMap::new();
    let mut spans = Vec::new();
    let mut met: std::collections::HashSet<RunKey> = std::collections::HashSet::new();
    for &Noted { time_ns, cpu, thread, what } in &whole.notes {
        let Some(thread) = thread else { continue };
        let key = cpu.map_or(RunKey::Of(thread), RunKey::Cpu);
        match what {
            NotedKind::SwitchedIn => {
                if let Some((before, from_ns)) = running.insert(key, (thread, time_ns)) {
                    spans.push(Span { thread: before, cpu, from_ns, to_ns: time_ns });
                }
            }
            NotedKind::SwitchedOut | NotedKind::Preempted => {
                let from_ns = match running.remove(&key) {
                    Some((before, from_ns)) => (before == thread).then_some(from_ns),
                    // It ran when the recording began.
                    None => (!met.contains(&key)).then_some(first_ns),
                };
                spans.extend(from_ns.map(|from_ns| Span { thread, cpu, from_ns, to_ns: time_ns }));
            }
            // Who ends does not give the CPU up any more.
            NotedKind::Ended => {
                if let Some(&(before, from_ns)) = running.get(&key)
                    && before == thread
                {
                    running.remove(&key);
                    spans.push(Span { thread, cpu, from_ns, to_ns: time_ns });
                }
                continue;
            }
            _ => continue,
        }
        met.insert(key);
    }
    let open = running.into_iter().map(|(key, (thread, from_ns))| {
        let cpu = if let RunKey::Cpu(cpu) = key { Some(cpu) } else { None };
        Span { thread, cpu, from_ns, to_ns: last_ns }
    });
    spans.extend(open);
    spans.retain(|span| span.to_ns > first_ns);
    spans.iter_mut().for_each(|span| span.from_ns = span.from_ns.max(first_ns));
    // The thread decides what is still equal: those that run at the end come out of a hash table.
    crate::order::sort_by_key(&mut spans, |span| (span.to_ns, span.cpu, span.thread));
    spans
}

/// How far samples of one thread are apart, in ns: the middle of all distances, and a millisecond where there is none.
#[must_use]
pub fn interval_ns<'a>(samples: impl IntoIterator<Item = &'a Taken>) -> u64 {
    let mut last: HashMap<(ThreadId, u32), u64> = HashMap::new();
    let mut apart = Vec::new();
    for sample in samples {
        if let Some(before) = last.insert((sample.thread, sample.event), sample.time_ns) {
            apart.push(sample.time_ns.saturating_sub(before));
        }
    }
    if apart.is_empty() {
        return 1_000_000;
    }
    let middle = apart.len() / 2;
    (*apart.select_nth_unstable(middle).1).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::{Name, Names, StackId, Tasks};
    use super::*;

    /// Two threads: numbers are given by a recording only.
    fn two_threads() -> (ThreadId, ThreadId) {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        (tasks.find(1, 1, &mut names), tasks.find(2, 2, &mut names))
    }

    fn whole(notes: &[(u64, u32, ThreadId, NotedKind)]) -> Whole {
        let (thread, _) = two_threads();
        let (stack, comm) = (StackId::EMPTY, Name::default());
        let sample = |time_ns| Taken { time_ns, period: 1, stack, thread, comm, event: 0, cpu: Some(0) };
        let note = |&(time_ns, cpu, thread, what): &_| Noted { time_ns, cpu: Some(cpu), thread: Some(thread), what };
        Whole { samples: vec![sample(100), sample(200)], notes: notes.iter().map(note).collect(), ..Whole::default() }
    }

    #[test]
    fn a_span_on_a_cpu_is_known_from_both_ends() {
        let (a, b) = two_threads();
        let all = whole(&[
            (90, 1, a, NotedKind::SwitchedIn),
            (110, 0, a, NotedKind::SwitchedOut),
            (110, 0, b, NotedKind::SwitchedIn),
            (120, 1, a, NotedKind::Preempted),
            (150, 0, a, NotedKind::SwitchedIn),
        ]);
        let span = |thread, cpu, from_ns, to_ns| Span { thread, cpu: Some(cpu), from_ns, to_ns };
        let expected = [span(a, 0, 100, 110), span(a, 1, 100, 120), span(b, 0, 110, 150), span(a, 0, 150, 200)];
        assert_eq!(spans(&all), expected);
        assert_eq!(spans(&whole(&[])), []);
        let mut unknown = all;
        unknown.notes.iter_mut().for_each(|note| note.cpu = None);
        assert!(spans(&unknown).iter().all(|span| span.cpu.is_none()));
        assert_eq!(spans(&unknown).last().map(|span| (span.thread, span.from_ns, span.to_ns)), Some((b, 110, 200)));
    }

    #[test]
    fn a_thread_that_ends_has_no_cpu() {
        let (a, b) = two_threads();
        let all =
            whole(&[(110, 0, a, NotedKind::SwitchedIn), (120, 0, a, NotedKind::Ended), (130, 1, b, NotedKind::Ended)]);
        assert_eq!(spans(&all), [Span { thread: a, cpu: Some(0), from_ns: 110, to_ns: 120 }]);
    }

    #[test]
    fn samples_are_as_far_apart_as_most_are() {
        let mut all = whole(&[]);
        let (thread, _) = two_threads();
        for time_ns in [300, 400, 90_000] {
            all.samples.push(Taken { time_ns, thread, ..all.samples[0] });
        }
        assert_eq!(interval_ns(&all.samples), 100);
        assert_eq!(interval_ns(&all.samples[..1]), 1_000_000);
    }
}
