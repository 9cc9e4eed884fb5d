//! Trace events in JSON, as chrome://tracing and many others take them.
//!
//! What it is: stacks become slices that last until the next sample of their thread has another stack; who had which CPU, and what
//! happened, stands beside them. Read first: [`write`].
//!
//! **Invariant:** a slice is an estimate, by samples: it ends after one distance between samples where no other one follows soon.
//! Events are written one by one.
//!
//! Source: "Trace Event Format", the document that Chromium's catapult project has published.

use super::happening;
use crate::picture::Drawn;
use pmux::profile::{SourceLineId, ThreadId, Whole, interval_ns, spans};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A process that is none, for CPUs: no process has so large a number.
const CPUS: i64 = 1 << 23;
/// Samples that are further apart than so many distances have nothing to do with each other.
const APART: u64 = 4;

/// Writes events, with commas between them.
struct Events<'a> {
    out: &'a mut dyn Write,
    begin_ns: u64,
    count: u64,
}

impl Events<'_> {
    fn put(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if self.count == 0 { b"\n" } else { b",\n" })?;
        self.count += 1;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    /// The format counts in microseconds.
    fn us(&self, time_ns: u64) -> f64 {
        time_ns.saturating_sub(self.begin_ns) as f64 / 1e3
    }

    fn slice(&mut self, name: &str, category: &str, ids: (i64, i64), (from_ns, to_ns): (u64, u64)) -> io::Result<()> {
        let (ts, dur) = (self.us(from_ns), to_ns.saturating_sub(from_ns) as f64 / 1e3);
        let (pid, tid) = ids;
        self.put(&json!({
            "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        }))
    }
}

pub(crate) fn write(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let profile = &drawn.profile;
    let begin_ns = drawn.kept.span_ns().map_or(drawn.first_ns, |(first, _)| first);
    let about = &profile.about;
    let other = json!({
        "recorded by": about.command_line.join(" "), "host": about.host, "kernel": about.kernel,
        "file": drawn.name, "written by": concat!("pmux ", env!("CARGO_PKG_VERSION")),
    });
    write!(out, "{{\"otherData\": {other}, \"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
    let mut events = Events { out, begin_ns, count: 0 };
    name_all(drawn, &mut events)?;
    slices(drawn, &mut events)?;
    for span in spans(&drawn.kept) {
        let Some(cpu) = span.cpu else { continue };
        let thread = profile.tasks.thread(span.thread);
        let name = format!("{} {}", profile.names.get(thread.name()), thread.tid);
        events.slice(&name, "cpu", (CPUS, cpu.into()), (span.from_ns, span.to_ns))?;
    }
    for note in &drawn.kept.notes {
        let Some(name) = happening(profile, note.what) else { continue };
        let (pid, tid) = match (note.thread, note.cpu) {
            (Some(thread), _) => ids(drawn, thread),
            (None, Some(cpu)) => (CPUS, cpu.into()),
            (None, None) => continue,
        };
        let ts = events.us(note.time_ns);
        events.put(&json!({
            "ph": "i", "s": "t", "name": name, "cat": "happening", "pid": pid, "tid": tid, "ts": ts,
        }))?;
    }
    events.out.write_all(b"\n]}")
}

fn ids(drawn: &Drawn<Whole>, id: ThreadId) -> (i64, i64) {
    let tasks = &drawn.profile.tasks;
    (tasks.process_of(id).pid.into(), tasks.thread(id).tid.into())
}

fn name_all(drawn: &Drawn<Whole>, events: &mut Events<'_>) -> io::Result<()> {
    let profile = &drawn.profile;
    let threads = pmux::order::set(drawn.kept.samples.iter().map(|sample| sample.thread));
    let mut name = |kind: &str, pid: i64, tid: i64, name: &str| {
        events.put(&json!({ "ph": "M", "name": kind, "pid": pid, "tid": tid, "args": { "name": name } }))
    };
    let mut processes = BTreeSet::new();
    for id in threads {
        let (pid, tid) = ids(drawn, id);
        let process = profile.tasks.process_of(id);
        if processes.insert(pid) {
            let main = process.main.unwrap_or(id);
            name("process_name", pid, pid, profile.names.get(profile.tasks.thread(main).name()))?;
        }
        name("thread_name", pid, tid, profile.names.get(profile.tasks.thread(id).name()))?;
    }
    let cpus: BTreeSet<u32> = drawn.kept.notes.iter().filter_map(|note| note.cpu).collect();
    if !cpus.is_empty() {
        name("process_name", CPUS, 0, "CPUs")?;
    }
    cpus.into_iter().try_for_each(|cpu| name("thread_name", CPUS, cpu.into(), &format!("CPU {cpu}")))
}

/// The stacks of each thread, of one event.
fn slices(drawn: &Drawn<Whole>, events: &mut Events<'_>) -> io::Result<()> {
    let event = drawn.one_event();
    let name = &drawn.profile.events[event].name;
    let own = drawn.kept.samples.iter().filter(|sample| sample.event as usize == event);
    let interval = interval_ns(own.clone());
    let mut threads: BTreeMap<ThreadId, Vec<_>> = BTreeMap::new();
    for sample in own {
        threads.entry(sample.thread).or_default().push(sample);
    }
    for (thread, samples) in threads {
        let ids = ids(drawn, thread);
        // What is open, the outermost first, each with its beginning.
        let mut open: Vec<(SourceLineId, u64)> = Vec::new();
        let mut close = |open: &mut Vec<(SourceLineId, u64)>, keep: usize, at_ns: u64| -> io::Result<()> {
            while open.len() > keep {
                let Some((place, from_ns)) = open.pop() else { break };
                events.slice(&drawn.places.get(place).function, name, ids, (from_ns, at_ns))?;
            }
            Ok(())
        };
        let mut last_ns: Option<u64> = None;
        for sample in samples {
            if let Some(last) = last_ns
                && sample.time_ns.saturating_sub(last) > interval.saturating_mul(APART)
            {
                close(&mut open, 0, last.saturating_add(interval))?;
            }
            let mut stack: Vec<SourceLineId> = drawn.places.of_stack(&drawn.profile, sample.stack).collect();
            stack.reverse();
            let same = open.iter().zip(&stack).take_while(|((open, _), place)| open == *place).count();
            close(&mut open, same, sample.time_ns)?;
            open.extend(stack.into_iter().skip(same).map(|place| (place, sample.time_ns)));
            last_ns = Some(sample.time_ns);
        }
        close(&mut open, 0, last_ns.unwrap_or(0).saturating_add(interval))?;
    }
    Ok(())
}
