//! `pmux report --runqueue`: how long threads that could run waited for a CPU.
//!
//! What it is: tables of what [`RunQueue`] has added up: how long waits were, who waited, for which CPU, with which priority, and the longest
//! ones with who ran there meanwhile.
//!
//! | field | what |
//! |---|---|
//! | `histogram` | waits from `from_ns` to less than twice as many, with `waits`, `total_ns`, `longest_ns` |
//! | `threads` | each with `comm`, `pid`, `tid` and these sums, and `others_ns`: how long it was in waits that are not known one by one |
//! | `cpus` | each with `cpu` (`null` where it was not recorded) and these sums |
//! | `priorities` | each with `priority` as the kernel counts (120 is usual, 99 and less are real-time) and these sums; none where they were not recorded |
//! | `worst` | `end_ns` after the first sample, `waited_ns`, `comm`, `pid`, `tid`, `cpu`; `ran`: who was seen to run there meanwhile, with `samples` |
//! | `lost`, `notes` | as in the report |
//!
//! **Invariant:** who ran meanwhile is read off samples of a clock: that none was seen is not that none ran.

use super::waits::{first_of, milliseconds, print_columns, printed, read, with_sums};
use super::{missing, share};
use crate::failure::Failure;
use crate::input::OpenedInput;
use crate::options::reading::ReportOptions;
use crate::picture;
use crate::stderr::visible;
use pmux::profile::{NamedThread, Profile, QueuedSum, QueuedWait, RunQueue, WaitSum};
use serde_json::{Value as Json, json};
use std::io::{self, Write};

/// The longest bar of the histogram.
const BAR: u64 = 40;

/// Reads a recording, and prints the tables.
pub(super) fn run(opened: OpenedInput, options: &ReportOptions) -> Result<(), Failure> {
    let mut queue = RunQueue::new(options.part.wanted());
    let (profile, mut notes) =
        read(opened, options, &mut queue, (RunQueue::has_waits, "waits for a CPU", "runqueue-time"))?;
    notes.extend(missing::notes(&profile, &[]));
    let tables = Tables { profile: &profile, queue: &queue, least_percent: options.percent_limit };
    printed(options, &profile, &notes, || tables.json(), |out| tables.print(out))
}

struct Tables<'a> {
    profile: &'a Profile,
    queue: &'a RunQueue,
    least_percent: Option<f64>,
}

impl Tables<'_> {
    fn name(&self, thread: NamedThread) -> String {
        thread_name(self.profile, thread)
    }

    fn total(&self) -> QueuedSum {
        let mut total = QueuedSum::default();
        for (_, QueuedSum { sum, others_ns }) in self.queue.threads() {
            total.sum.add(*sum);
            total.others_ns = total.others_ns.saturating_add(*others_ns);
        }
        total
    }

    /// Who waited longest first.
    fn threads(&self) -> Vec<(NamedThread, QueuedSum)> {
        let least = self.least_percent.unwrap_or_default();
        let all_ns = whole_ns(self.total());
        let mut threads: Vec<_> = self.queue.threads().map(|(thread, sum)| (*thread, *sum)).collect();
        threads.retain(|(_, sum)| share(whole_ns(*sum), all_ns) >= least);
        let key = |(thread, sum): &(NamedThread, QueuedSum)| {
            (std::cmp::Reverse(whole_ns(*sum)), numbers(self.profile, *thread))
        };
        pmux::order::sort_by_key(&mut threads, key);
        threads
    }

    fn json(&self) -> Json {
        let histogram = self.queue.histogram().map(|(from, sum)| with_sums(json!({ "from_ns": from }), *sum));
        let threads = self.threads().into_iter().map(|(thread, QueuedSum { sum, others_ns })| {
            let mut object = with_sums(json_of_thread(self.profile, thread), sum);
            object["others_ns"] = others_ns.into();
            object
        });
        let cpus = self.queue.cpus().map(|(cpu, sum)| with_sums(json!({ "cpu": cpu }), *sum));
        let priorities =
            self.queue.priorities().map(|(priority, sum)| with_sums(json!({ "priority": priority }), *sum));
        let worst = self.queue.worst().iter().map(|wait| {
            let mut object = json_of_thread(self.profile, wait.thread);
            let ran = wait.ran.iter().map(|&(thread, samples)| {
                let mut object = json_of_thread(self.profile, thread);
                object["samples"] = samples.into();
                object
            });
            object["end_ns"] = wait.end_ns.into();
            object["waited_ns"] = wait.waited_ns.into();
            object["cpu"] = json!(wait.cpu);
            object["ran"] = ran.collect();
            object
        });
        json!({
            "histogram": histogram.collect::<Vec<_>>(), "threads": threads.collect::<Vec<_>>(),
            "cpus": cpus.collect::<Vec<_>>(), "priorities": priorities.collect::<Vec<_>>(),
            "worst": worst.collect::<Vec<_>>(),
        })
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let total = self.total();
        let QueuedSum { sum, others_ns } = total;
        writeln!(out, "# {} waits for a CPU, {} ms in all", sum.waits, milliseconds(sum.total_ns))?;
        if others_ns > 0 {
            writeln!(out, "# and {} ms in waits that were only added up, or have no stack", milliseconds(others_ns))?;
        }
        writeln!(out, "#")?;
        let most = self.queue.histogram().map(|(_, sum)| sum.waits).max().unwrap_or(0);
        let bar = |waits: u64| "#".repeat((waits * BAR).div_ceil(most.max(1)) as usize);
        let lines = self.queue.histogram().map(|(from, sum)| {
            vec![picture::duration(from), sum.waits.to_string(), milliseconds(sum.total_ns), bar(sum.waits)]
        });
        print_columns(out, &["from", "waits", "total ms", "up to twice as long"], &lines.collect::<Vec<_>>(), 3)?;
        writeln!(out, "#")?;
        let lines = self.threads().into_iter().map(|(thread, sum)| line(sum, total, self.name(thread)));
        print_columns(out, &heading("thread"), &lines.collect::<Vec<_>>(), 5)?;
        writeln!(out, "#")?;
        let name = |cpu: &Option<u32>| cpu.map_or_else(|| "not recorded".to_owned(), |cpu| cpu.to_string());
        let of_cpus = QueuedSum { others_ns: 0, ..total };
        let lines = self.queue.cpus().map(|(cpu, sum)| line(QueuedSum { sum: *sum, others_ns: 0 }, of_cpus, name(cpu)));
        print_columns(out, &heading("CPU"), &lines.collect::<Vec<_>>(), 5)?;
        writeln!(out, "#")?;
        let line_of = |(priority, sum): (&i32, &WaitSum)| {
            line(QueuedSum { sum: *sum, others_ns: 0 }, of_cpus, priority_name(*priority))
        };
        let lines: Vec<_> = self.queue.priorities().map(line_of).collect();
        if !lines.is_empty() {
            print_columns(out, &heading("priority"), &lines, 5)?;
            writeln!(out, "#")?;
        }
        let lines: Vec<_> = self.queue.worst().iter().map(|wait| self.worst(wait)).collect();
        print_columns(out, &["waited ms", "until s", "CPU", "thread", "who ran there meanwhile"], &lines, 3)
    }

    fn worst(&self, wait: &QueuedWait) -> Vec<String> {
        let all: u64 = wait.ran.iter().map(|(_, samples)| samples).sum();
        let name =
            |&(thread, samples): &(NamedThread, u64)| format!("{} {:.0}%", self.name(thread), share(samples, all));
        let ran = first_of(wait.ran.iter().map(name));
        vec![
            milliseconds(wait.waited_ns),
            format!("{:.6}", wait.end_ns as f64 / 1e9),
            wait.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
            self.name(wait.thread),
            if ran.is_empty() { "-".to_owned() } else { ran },
        ]
    }
}

/// Its name, its process, and its number.
fn numbers(profile: &Profile, (thread, name): NamedThread) -> (String, i32, i32) {
    let facts = profile.tasks.thread(thread);
    let pid = profile.tasks.process(facts.process).pid;
    (visible(profile.names.get(name)), pid, facts.tid)
}

/// A priority of the kernel, as `chrt(1)` and `nice(1)` say it.
fn priority_name(priority: i32) -> String {
    match priority {
        ..0 => "deadline".to_owned(),
        0..100 => format!("real-time {}", 99 - priority),
        _ => format!("nice {}", priority - 120),
    }
}

/// How a thread is called in a table.
pub(super) fn thread_name(profile: &Profile, thread: NamedThread) -> String {
    let (comm, pid, tid) = numbers(profile, thread);
    if pid == tid { format!("{comm}/{tid}") } else { format!("{comm}/{pid}/{tid}") }
}

pub(super) fn json_of_thread(profile: &Profile, thread: NamedThread) -> Json {
    let (comm, pid, tid) = numbers(profile, thread);
    json!({ "comm": comm, "pid": pid, "tid": tid })
}

fn heading(last: &str) -> [&str; 6] {
    ["total ms", "share", "waits", "mean ms", "longest ms", last]
}

fn whole_ns(sum: QueuedSum) -> u64 {
    sum.sum.total_ns.saturating_add(sum.others_ns)
}

fn line(queued: QueuedSum, total: QueuedSum, name: String) -> Vec<String> {
    let (sum, all_ns) = (queued.sum, whole_ns(queued));
    let (waits, mean, longest) = match sum.waits {
        0 => ("-".to_owned(), "-".to_owned(), "-".to_owned()),
        waits => (waits.to_string(), milliseconds(sum.total_ns / waits), milliseconds(sum.longest_ns)),
    };
    vec![milliseconds(all_ns), format!("{:.2}%", share(all_ns, whole_ns(total))), waits, mean, longest, name]
}
