//! What the page shows, as JSON.
//!
//! What it is: lists, whose places are the numbers that other lists use; samples by column, because there are many. Read first: [`of`].
//!
//! **Invariant:** times are in ns from the beginning of what is shown. What is missing is a gap with a sentence, never an empty place.

use crate::convert::protobuf::push_varint;
use crate::flame::colours;
use crate::input::manifest::{Manifest, Mark};
use crate::picture::{Drawn, Unit, unit};
use pmux::profile::{
    CodeKind, Noted, NotedKind, ProcessId, Span, StackId, Taken, ThreadId, TimeKind, WaitKind, WaitSpan, Waker, Whole,
    spans,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The thread that brings a CPU down and up runs for so long only while its CPU is away.
const OFFLINE_NS: u64 = 1_000_000;

/// A CPU, and from when to when something was so of it.
type CpuSpan = (Option<u32>, u64, u64);

pub(super) fn of(drawn: &Drawn<Whole>, waits: &[WaitSpan]) -> Value {
    let (profile, kept) = (&drawn.profile, &drawn.kept);
    let (begin_ns, end_ns) = kept.span_with(waits).unwrap_or((drawn.first_ns, drawn.first_ns));
    let length_ns = end_ns.saturating_sub(begin_ns).max(1);
    let at = |time_ns: u64| time_ns.saturating_sub(begin_ns).min(length_ns);
    let spans = spans(kept);
    let tasks = Tasks::of(drawn, &spans);
    let mut tree = FunctionTree::default();
    let nodes = column(kept.samples.iter().map(|sample| tree.node(drawn, sample.stack) as u64));
    let samples = |of: &dyn Fn(&Taken) -> u64| column(kept.samples.iter().map(of));
    let mut last_ns = begin_ns;
    let (offline, ran): (Vec<&Span>, Vec<&Span>) = spans.iter().partition(|span| is_offline(drawn, span));
    // Who recorded may have noticed; otherwise it is concluded.
    let reported =
        profile.about.absences.iter().map(|away| (Some(away.cpu), away.from.0, away.to.map_or(end_ns, |to| to.0)));
    let mut away: Vec<CpuSpan> = reported.collect();
    if away.is_empty() {
        away.extend(offline.iter().map(|span| (span.cpu, span.from_ns, span.to_ns)));
    }
    let here = away.into_iter().filter(|(_, from_ns, to_ns)| *to_ns > begin_ns && *from_ns < end_ns);
    let gap = |(cpu, from_ns, to_ns): CpuSpan, what: &str| {
        let (from, to) = (at(from_ns), at(to_ns));
        json!({ "cpu": cpu, "from": from, "to": to, "what": what })
    };
    let mut gaps: Vec<Value> = here.map(|away| gap(away, "offline")).collect();
    gaps.extend(lost(drawn, begin_ns).into_iter().map(|(of, count)| gap(of, &format!("{count} records lost"))));
    gaps.extend(left_out(&drawn.manifests, (begin_ns, end_ns)).into_iter().map(|of| gap(of, "not in this snapshot")));
    let reported = |kind: &'static str, of: fn(&Manifest) -> &Vec<Mark>| {
        drawn.manifests.iter().flat_map(of).map(move |moment| (moment.at_ns, moment.what.as_str(), kind))
    };
    // Two snapshots may tell of the same moment.
    let moments = pmux::order::set(
        reported("trigger", |manifest| &manifest.causes).chain(reported("mark", |manifest| &manifest.marks)),
    );
    let marks: Vec<Value> =
        moments.into_iter().map(|(at_ns, what, kind)| json!({ "at": at(at_ns), "what": what, "kind": kind })).collect();
    gaps.extend(throttled(&kept.notes, end_ns).into_iter().map(|of| {
        let mut thin = gap(of, "held back: samples came too often");
        thin["thin"] = json!(true);
        thin
    }));
    let events: Vec<Value> = profile
        .events
        .iter()
        .map(|event| json!({ "name": event.name, "ns": unit(event) == Unit::Nanoseconds, "clock": event.attr.is_clock(), "wakes": TimeKind::of(event) == TimeKind::Woke }))
        .collect();
    let about = &profile.about;
    json!({
        "file": drawn.name, "host": about.host, "kernel": about.kernel, "command": about.command_line.join(" "),
        // Times are counted from the first sample of the recording, also where part of it is shown.
        "begin": begin_ns.saturating_sub(drawn.first_ns), "length": length_ns,
        "remarks": drawn.manifests.iter().map(Manifest::sentence).chain(crate::picture::remarks(profile)).collect::<Vec<_>>(),
        "events": events,
        "names": tree.names, "kinds": tree.kinds, "nodes": { "parent": tree.parents, "label": tree.labels },
        "processes": tasks.processes(drawn, &at), "threads": tasks.threads(drawn, &at),
        "samples": {
            "count": kept.samples.len(),
            // From the sample before.
            "at": column(kept.samples.iter().map(|sample| {
                let since_ns = sample.time_ns.saturating_sub(last_ns);
                last_ns = sample.time_ns.max(last_ns);
                since_ns
            })),
            // 0 where it is not known.
            "cpu": samples(&|sample| sample.cpu.map_or(0, |cpu| u64::from(cpu) + 1)),
            "thread": samples(&|sample| tasks.thread[&sample.thread] as u64),
            "event": samples(&|sample| u64::from(sample.event)),
            "weight": samples(&|sample| sample.period),
            "node": nodes,
        },
        "spans": ran.iter().map(|span| {
            json!([tasks.thread[&span.thread], span.cpu.map_or(-1, i64::from), at(span.from_ns), at(span.to_ns)])
        }).collect::<Vec<Value>>(),
        "wait_kinds": WaitKind::ALL.map(|kind| json!({ "name": kind.name(), "colour": colours::of_wait(kind) })),
        // The sample, from when to when, the kind, and who ended it: a thread, or the name of an interrupt.
        "waits": waits.iter().map(|wait| {
            let kind = WaitKind::ALL.iter().position(|&kind| kind == wait.kind);
            let waker = wait.waker.map(|waker| match waker {
                Waker::Thread(thread) => json!(tasks.thread.get(&thread)),
                Waker::Interrupt(interrupt) => json!(interrupt.name()),
            });
            json!([wait.place, at(wait.from_ns), at(wait.to_ns), kind, waker])
        }).collect::<Vec<Value>>(),
        "gaps": gaps, "marks": marks,
    })
}

/// Numbers, packed: seven bits to a byte, the lowest first, with the eighth bit where more follow; in base 64.
fn column(numbers: impl Iterator<Item = u64>) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    numbers.for_each(|number| push_varint(&mut bytes, number));
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// Where samples were held back, on each CPU: from when to when.
fn throttled(notes: &[Noted], end_ns: u64) -> Vec<CpuSpan> {
    let mut since: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let mut gaps = Vec::new();
    for note in notes {
        match note.what {
            NotedKind::Throttled => {
                since.entry(note.cpu).or_insert(note.time_ns);
            }
            NotedKind::Unthrottled => {
                gaps.extend(since.remove(&note.cpu).map(|from_ns| (note.cpu, from_ns, note.time_ns)));
            }
            _ => {}
        }
    }
    gaps.extend(since.into_iter().map(|(cpu, from_ns)| (cpu, from_ns, end_ns)));
    gaps
}

/// Whether the CPU was away: its own thread for that, `cpuhp/1`, was the last to be seen, and then no thread for long.
fn is_offline(drawn: &Drawn<Whole>, span: &Span) -> bool {
    let name = drawn.profile.names.get(drawn.profile.tasks.thread(span.thread).name());
    span.cpu.is_some_and(|cpu| name == format!("cpuhp/{cpu}")) && span.to_ns.saturating_sub(span.from_ns) >= OFFLINE_NS
}

/// What no snapshot has of a CPU, where there are snapshots: from when to when.
fn left_out(manifests: &[Manifest], (begin_ns, end_ns): (u64, u64)) -> Vec<CpuSpan> {
    let mut windows: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for window in manifests.iter().flat_map(|manifest| &manifest.windows) {
        windows.entry(window.cpu).or_default().push((window.first_ns, window.last_ns));
    }
    let mut gaps = Vec::new();
    for (cpu, mut windows) in windows {
        pmux::order::sort(&mut windows);
        let mut until_ns = begin_ns;
        for (first_ns, last_ns) in windows.into_iter().chain([(end_ns, end_ns)]) {
            if until_ns < first_ns {
                gaps.push((Some(cpu), until_ns, first_ns));
            }
            until_ns = until_ns.max(last_ns);
        }
    }
    gaps
}

/// Where records were lost, and how many: from the last one before, on that CPU, to the one that says so.
fn lost(drawn: &Drawn<Whole>, begin_ns: u64) -> Vec<(CpuSpan, u64)> {
    let mut by_cpu: BTreeMap<Option<u32>, Vec<u64>> = BTreeMap::new();
    for sample in &drawn.kept.samples {
        by_cpu.entry(sample.cpu).or_default().push(sample.time_ns);
    }
    let mut gaps = Vec::new();
    for note in &drawn.kept.notes {
        let NotedKind::Lost(count) = note.what else { continue };
        let times = by_cpu.get(&note.cpu).map_or(&[][..], Vec::as_slice);
        let before = times.partition_point(|&time| time < note.time_ns).checked_sub(1).map(|at| times[at]);
        gaps.push(((note.cpu, before.unwrap_or(begin_ns), note.time_ns), count));
    }
    gaps
}

/// Stacks as a tree of functions: lines of one function are one node.
#[derive(Default)]
struct FunctionTree {
    names: Vec<String>,
    kinds: Vec<&'static str>,
    known_names: HashMap<(String, &'static str), usize>,
    /// The place of the parent; that of itself for the outermost.
    parents: Vec<usize>,
    labels: Vec<usize>,
    known: HashMap<(usize, usize), usize>,
    by_stack: HashMap<StackId, usize>,
}

const NOWHERE: usize = usize::MAX;

impl FunctionTree {
    /// The node of a stack. The first node is that of stacks without frames.
    fn node(&mut self, drawn: &Drawn<Whole>, stack: StackId) -> usize {
        if let Some(&node) = self.by_stack.get(&stack) {
            return node;
        }
        if self.parents.is_empty() {
            self.child(NOWHERE, "(no stack)".to_owned(), "unknown");
        }
        let mut places: Vec<_> = drawn.places.of_stack(&drawn.profile, stack).collect();
        places.reverse();
        let mut node = NOWHERE;
        for place in places {
            let place = drawn.places.get(place);
            let kind = match place.kind {
                CodeKind::Kernel => "kernel",
                CodeKind::Library => "library",
                CodeKind::Program => "program",
                CodeKind::Jit => "jit",
                CodeKind::Wait => "wait",
                CodeKind::Unknown => "unknown",
            };
            node = self.child(node, place.function.to_string(), kind);
        }
        let node = if node == NOWHERE { 0 } else { node };
        self.by_stack.insert(stack, node);
        node
    }

    fn child(&mut self, parent: usize, name: String, kind: &'static str) -> usize {
        let next = self.names.len();
        let label = *self.known_names.entry((name.clone(), kind)).or_insert(next);
        if label == next {
            self.names.push(name);
            self.kinds.push(kind);
        }
        let next = self.parents.len();
        let node = *self.known.entry((parent, label)).or_insert(next);
        if node == next {
            self.parents.push(if parent == NOWHERE { next } else { parent });
            self.labels.push(label);
        }
        node
    }
}

/// The threads and processes that are shown, by their places in the lists.
struct Tasks {
    shown_threads: Vec<ThreadId>,
    thread: HashMap<ThreadId, usize>,
    shown_processes: Vec<ProcessId>,
    process: HashMap<ProcessId, usize>,
}

impl Tasks {
    /// All that have a sample or a CPU, or that come or go, and those that they come from.
    fn of(drawn: &Drawn<Whole>, spans: &[Span]) -> Self {
        let tasks = &drawn.profile.tasks;
        let shown_threads: BTreeSet<ThreadId> = (drawn.kept.samples.iter().map(|sample| sample.thread))
            .chain(spans.iter().map(|span| span.thread))
            .chain(drawn.kept.notes.iter().filter_map(|note| note.thread))
            .collect();
        let mut shown_processes = BTreeSet::new();
        for &thread in &shown_threads {
            let mut at = Some(tasks.thread(thread).process);
            // Each comes from one that was met before: there is no circle.
            while let Some(id) = at {
                if !shown_processes.insert(id) {
                    break;
                }
                at = tasks.process(id).parent;
            }
        }
        Self {
            thread: shown_threads.iter().copied().zip(0..).collect(),
            process: shown_processes.iter().copied().zip(0..).collect(),
            shown_threads: shown_threads.into_iter().collect(),
            shown_processes: shown_processes.into_iter().collect(),
        }
    }

    fn processes(&self, drawn: &Drawn<Whole>, at: &dyn Fn(u64) -> u64) -> Vec<Value> {
        let profile = &drawn.profile;
        let one = |&id: &ProcessId| {
            let process = profile.tasks.process(id);
            let main = process.main.map(|main| profile.names.get(profile.tasks.thread(main).name()));
            json!({
                "pid": process.pid, "name": main.unwrap_or("?"),
                "parent": process.parent.and_then(|parent| self.process.get(&parent)),
                "born": process.born_ns.map(at), "ended": process.ended_ns.map(at),
                "execs": process.execs_ns.iter().map(|&time| at(time)).collect::<Vec<u64>>(),
            })
        };
        self.shown_processes.iter().map(one).collect()
    }

    fn threads(&self, drawn: &Drawn<Whole>, at: &dyn Fn(u64) -> u64) -> Vec<Value> {
        let profile = &drawn.profile;
        let one = |&id: &ThreadId| {
            let thread = profile.tasks.thread(id);
            json!({
                "tid": thread.tid, "process": self.process[&thread.process], "name": profile.names.get(thread.name()),
                "born": thread.born_ns.map(at), "ended": thread.ended_ns.map(at),
            })
        };
        self.shown_threads.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_packed() {
        assert_eq!(column([0, 1, 127].into_iter()), "AAF/");
        assert_eq!(column([128, 300].into_iter()), "gAGsAg==");
        assert_eq!(column([u64::MAX].into_iter()).len(), 16);
        assert_eq!(column(std::iter::empty()), "");
    }

    #[test]
    fn what_was_held_back_is_a_stretch() {
        let note = |time_ns, what| Noted { time_ns, cpu: Some(1), thread: None, what };
        let notes = [
            note(10, NotedKind::Throttled),
            note(12, NotedKind::Throttled),
            note(20, NotedKind::Unthrottled),
            note(30, NotedKind::Unthrottled),
            note(40, NotedKind::Throttled),
        ];
        assert_eq!(throttled(&notes, 50), [(Some(1), 10, 20), (Some(1), 40, 50)]);
    }

    #[test]
    fn what_no_snapshot_has_is_left_out() {
        let window = |cpu, first_ns, last_ns| crate::input::manifest::Window { cpu, first_ns, last_ns };
        let manifest = |windows: Vec<_>| Manifest { windows, ..Manifest::default() };
        let all =
            [manifest(vec![window(0, 10, 20), window(1, 0, 30)]), manifest(vec![window(0, 15, 40), window(1, 35, 50)])];
        assert_eq!(left_out(&all, (0, 50)), [(Some(0), 0, 10), (Some(0), 40, 50), (Some(1), 30, 35)]);
        assert_eq!(left_out(&[], (0, 50)), []);
    }
}
