//! Which thread had which CPU, from when to when; and how far samples are apart.
//!
//! **Invariant:** a span is what was recorded: one whose end was not seen ends with the recording, one whose beginning was not seen
//! begins with it.

use pmux::profile::{Noted, Taken, ThreadId, What, Whole};
use std::collections::HashMap;

/// A thread had a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) thread: ThreadId,
    pub(crate) cpu: u32,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
}

/// All spans, in the order in which they end. Empty where switches were not recorded.
pub(crate) fn spans(whole: &Whole) -> Vec<Span> {
    let Some((first_ns, last_ns)) = whole.span_ns() else { return Vec::new() };
    let mut running: HashMap<u32, (ThreadId, u64)> = HashMap::new();
    let mut spans = Vec::new();
    let mut met: std::collections::HashSet<u32> = std::collections::HashSet::new();
    for &Noted { time_ns, cpu, thread, what } in &whole.notes {
        let (Some(cpu), Some(thread)) = (cpu, thread) else { continue };
        match what {
            What::SwitchedIn => {
                if let Some((before, from_ns)) = running.insert(cpu, (thread, time_ns)) {
                    spans.push(Span { thread: before, cpu, from_ns, to_ns: time_ns });
                }
            }
            What::SwitchedOut | What::Preempted => match running.remove(&cpu) {
                Some((before, from_ns)) if before == thread => {
                    spans.push(Span { thread, cpu, from_ns, to_ns: time_ns });
                }
                Some(_) => {}
                // It ran when the recording began.
                None if !met.contains(&cpu) => {
                    spans.push(Span { thread, cpu, from_ns: first_ns, to_ns: time_ns });
                }
                None => {}
            },
            _ => continue,
        }
        met.insert(cpu);
    }
    let open = running.into_iter().map(|(cpu, (thread, from_ns))| Span { thread, cpu, from_ns, to_ns: last_ns });
    spans.extend(open);
    spans.sort_by_key(|span| (span.to_ns, span.cpu));
    spans
}

/// How far samples of one thread are apart, in ns: the middle of all distances.
pub(crate) fn interval_ns<'a>(samples: impl IntoIterator<Item = &'a Taken>) -> u64 {
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
