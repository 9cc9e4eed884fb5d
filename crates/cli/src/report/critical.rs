//! `pmux report --critical-path`: what a thread's time was spent on, by it and by those that it waited for.
//!
//! What it is: [`critical_path`] makes stretches of a recording with waits; here they are added up by thread and by what it did, and the
//! longest are told in the order of time.
//!
//! | field | what |
//! |---|---|
//! | `thread` | whose time it is: `comm`, `pid`, `tid`; `from_ns` and `to_ns`, after the first sample |
//! | `sums` | `comm`, `pid`, `tid`; `kind` of what was waited for (`null`: it ran), `function`, `ended_by`; `total_ns`, `times` |
//! | `path` | the stretches in the order of time: `from_ns`, `to_ns`, `comm`, `pid`, `tid`, `kind`, `function`, `ended_by`; `awaited_by` and `awaited_for`: who waited meanwhile, and for what |
//! | `lost`, `notes` | as in the report |
//!
//! **Invariant:** the stretches are the whole time, each moment once. Which function ran is read off samples of a clock.

use super::run_queue::{json_of_thread, thread_name};
use super::waits::{Stacks, in_order, milliseconds, print_columns, printed, read};
use super::{missing, share};
use crate::failure::{Failure, failed};
use crate::input::OpenedInput;
use crate::options::reading::ReportOptions;
use pmux::profile::{
    Chosen, NamedThread, Profile, SampleFilter, StackId, Stretch, Symbols, Taken, ThreadId, TimeKind, WaitKind,
    WaitLinks, WaitSum, Waker, Whole, critical_path, interval_ns,
};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// The longest stretches that are told one by one.
const MOST_LONGEST: usize = 20;

/// Where it isn't known whether a thread ran: the clock does not meet it for more than so many intervals.
const UNKNOWN: &str = "[unknown]";
const MANY: u64 = 20;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Doing {
    thread: NamedThread,
    /// What it waited for; it ran otherwise.
    kind: Option<&'static str>,
    function: String,
    /// Who ended the wait, where that is something else than a thread that is on the path.
    ended_by: String,
}

impl Doing {
    fn text(&self) -> String {
        let kind = self.kind.unwrap_or_default();
        let by = if self.ended_by.is_empty() { String::new() } else { format!(", ended by {}", self.ended_by) };
        match (kind, &*self.function) {
            ("", "") => "[runs]".to_owned(),
            (one, "") | ("", one) => format!("{one}{by}"),
            (kind, function) => format!("{kind}: {function}{by}"),
        }
    }

    fn json(&self, profile: &Profile) -> Json {
        let or_null = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut object = json_of_thread(profile, self.thread);
        object["kind"] = json!(self.kind);
        object["function"] = json!(or_null(&self.function));
        object["ended_by"] = json!(or_null(&self.ended_by));
        object
    }
}

/// A thread with what it was called just before a moment.
fn named(profile: &Profile, thread: ThreadId, at_ns: u64) -> NamedThread {
    let names = &profile.tasks.thread(thread).names;
    let behind = names.partition_point(|(from_ns, _)| *from_ns < at_ns);
    let name = names.get(behind.saturating_sub(1)).map(|(_, name)| *name);
    (thread, name.unwrap_or_default())
}

/// Where threads were met by a clock.
struct Ran {
    /// In the order of the ids of threads, and of time.
    threads: Vec<Vec<(u64, StackId)>>,
    /// How far samples of a thread are apart; `None` without a clock.
    interval_ns: Option<u64>,
}

impl Ran {
    fn of(profile: &Profile, whole: &Whole) -> Self {
        let is_clock =
            |sample: &&Taken| profile.events.get(sample.event as usize).is_some_and(|event| event.attr.is_clock());
        let clock = || whole.samples.iter().filter(is_clock);
        let mut threads = vec![Vec::new(); profile.tasks.threads().len()];
        clock().for_each(|sample| threads[sample.thread.index()].push((sample.time_ns, sample.stack)));
        Self { threads, interval_ns: clock().next().map(|_| interval_ns(clock())) }
    }

    /// Where a thread was met in a stretch.
    fn within(&self, stretch: &Stretch) -> &[(u64, StackId)] {
        let ran = &self.threads[stretch.thread.index()];
        let begin = ran.partition_point(|(time_ns, _)| *time_ns <= stretch.from_ns);
        let end = begin + ran[begin..].partition_point(|(time_ns, _)| *time_ns <= stretch.to_ns);
        &ran[begin..end]
    }
}

/// Reads a recording, and prints the path.
pub(super) fn run(opened: OpenedInput, options: &ReportOptions) -> Result<(), Failure> {
    let SampleFilter { from_ns, to_ns, pids, tids, max_stack, .. } = options.part.wanted();
    let others =
        SampleFilter { from_ns, to_ns, pids: pids.clone(), tids: tids.clone(), max_stack, ..Default::default() };
    if others != options.part.wanted() || pids.len() + tids.len() > 1 {
        return Err(failed(
            "--critical-path is of one thread: of the options that choose samples it takes one --tid or one --pid, --from and --to",
        ));
    }
    let name = opened.name.clone();
    let about = |text: &str| crate::input::about(&name, &text);
    let mut chosen = Chosen::new(SampleFilter { max_stack, ..Default::default() }, Whole::default());
    let (mut profile, mut notes) = read(opened, options, &mut chosen, (WaitLinks::has_waits, "waits", "offcpu-time"))?;
    let Chosen { sink: mut whole, first_ns, .. } = chosen;
    let first_ns = first_ns.unwrap_or(0);
    let waits = whole.waits(&mut profile);
    let asked = tids.first().map(|tid| (*tid, false)).or(pids.first().map(|pid| (*pid, true)));
    let thread = thread_of(&profile, &whole, asked).map_err(|text| about(&text))?;
    let (begin_ns, end_ns) = whole.span_with(&waits).unwrap_or((first_ns, first_ns));
    // Times count from what was there first, which may be a wait.
    let first_ns = first_ns.min(begin_ns);
    let life = profile.tasks.thread(thread);
    let since = |ns: u64| first_ns.saturating_add(ns);
    let begin_ns = from_ns.map_or(begin_ns, since).max(begin_ns).max(life.born_ns.unwrap_or(0));
    let end_ns = to_ns.map_or(end_ns, since).min(end_ns).min(life.ended_ns.unwrap_or(u64::MAX));
    if begin_ns >= end_ns {
        return Err(about("the thread was not there then, or too short (--from, --to, --tid)"));
    }
    let stretches = critical_path(&profile, &whole, &waits, thread, (begin_ns, end_ns));
    let mut symbols = Symbols::new(&profile);
    symbols.resolve_all(&profile);
    let ran = Ran::of(&profile, &whole);
    let mut stacks = Stacks::new(&profile, &symbols);
    let mut path = PathSums::default();
    stretches.into_iter().for_each(|stretch| path.take(stretch, &ran, &mut stacks));
    if path.unknown_ns > 0 {
        notes.push(format!(
            "of {} ms nothing is known: a wait that had not ended, one that was not seen, or recording was off",
            milliseconds(path.unknown_ns)
        ));
    }
    if asked.is_none() {
        notes.push("--tid or --pid chooses another thread".to_owned());
    }
    notes.extend(missing::notes(&profile, symbols.notes()));
    let whose = named(&profile, thread, begin_ns + (end_ns - begin_ns) / 2);
    let tables = PathTables { profile: &profile, whose, first_ns, ends: (begin_ns, end_ns) };
    let least_percent = options.percent_limit.unwrap_or_default();
    let object = || tables.json(&path, least_percent);
    printed(options, &profile, &notes, object, |out| tables.print(&path, least_percent, out))
}

/// The thread that is asked for by its number or by that of its process; otherwise one of the recorded command, or of the program that was
/// executed first. Of several the main one, or that which was seen for the longest time.
fn thread_of(profile: &Profile, whole: &Whole, asked: Option<(i32, bool)>) -> Result<ThreadId, String> {
    let mut seen: Vec<Option<(ThreadId, u64, u64)>> = vec![None; profile.tasks.threads().len()];
    let is_of_wakes: Vec<bool> = profile.events.iter().map(|event| TimeKind::of(event) == TimeKind::Woke).collect();
    // Of who ends a wait nothing else may be told.
    for sample in whole.samples.iter().filter(|sample| is_of_wakes.get(sample.event as usize) == Some(&false)) {
        let at_ns = sample.time_ns;
        seen[sample.thread.index()].get_or_insert((sample.thread, at_ns, at_ns)).2 = at_ns;
    }
    let process_of = |thread: ThreadId| profile.tasks.process_of(thread);
    let is_asked = |thread: ThreadId| match asked {
        Some((pid, true)) => process_of(thread).pid == pid,
        Some((tid, false)) => profile.tasks.thread(thread).tid == tid,
        // The idle thread of a CPU waits for nothing.
        None => profile.tasks.thread(thread).tid > 0,
    };
    let command = profile.about.command_line.iter().skip_while(|word| *word != "--").nth(1);
    // As the kernel names threads.
    let comm = command.and_then(|path| path.rsplit('/').next()).map(|name| &name.as_bytes()[..name.len().min(15)]);
    let is_command = |thread: ThreadId| {
        let mut names = profile.tasks.thread(thread).names.iter();
        asked.is_none() && names.any(|(_, name)| Some(profile.names.get(*name).as_bytes()) == comm)
    };
    let rank = |&&(thread, first, last): &&(ThreadId, u64, u64)| {
        let executed = process_of(thread).execs_ns.first().copied().unwrap_or(u64::MAX);
        let is_main = process_of(thread).main == Some(thread);
        let executed = if asked.is_none() { executed } else { 0 };
        (is_command(thread), std::cmp::Reverse(executed), is_main, last - first)
    };
    let asked_for = seen.iter().flatten().filter(|(thread, ..)| is_asked(*thread));
    asked_for.rev().max_by_key(rank).map(|(thread, ..)| *thread).ok_or_else(|| match asked {
        Some((pid, true)) => format!("there is no sample of process {pid} in it"),
        Some((tid, false)) => format!("there is no sample of thread {tid} in it"),
        None => "there is no sample of a thread in it".to_owned(),
    })
}

#[derive(Default)]
struct PathSums {
    /// How often, and for how long.
    sums: HashMap<Doing, WaitSum>,
    /// Each stretch with what was done for most of it.
    all: Vec<(Stretch, Doing)>,
    /// In which it isn't known what was done.
    unknown_ns: u64,
}

impl PathSums {
    fn take(&mut self, stretch: Stretch, ran: &Ran, stacks: &mut Stacks<'_>) {
        let profile = stacks.profile;
        let thread = named(profile, stretch.thread, middle(&stretch));
        let Some(wait) = stretch.wait else { return self.take_ran(stretch, thread, ran, stacks) };
        let ended_by = match wait.waker {
            Some(Waker::Thread(waker)) => thread_name(profile, named(profile, waker, stretch.to_ns)),
            // What else would end a sleep.
            Some(Waker::Interrupt(interrupt)) if wait.kind != WaitKind::Sleep => interrupt.name().to_owned(),
            _ => String::new(),
        };
        let function = stacks.facts(wait.stack).function.clone();
        let doing = Doing { thread, kind: Some(wait.kind.name()), function, ended_by };
        self.add(doing.clone(), length_ns(&stretch));
        self.all.push((stretch, doing));
    }

    /// A stretch in which a thread ran, as far as the clock has met it.
    fn take_ran(&mut self, stretch: Stretch, thread: NamedThread, ran: &Ran, stacks: &mut Stacks<'_>) {
        let of = |kind, function| Doing { thread, kind, function, ended_by: String::new() };
        let met = ran.within(&stretch);
        let length_ns = length_ns(&stretch);
        // Who runs is met by the clock again and again.
        let interval_ns = ran.interval_ns.unwrap_or(length_ns);
        let missing_ns = length_ns.saturating_sub(interval_ns.saturating_mul(met.len() as u64));
        let is_unknown = missing_ns > interval_ns.saturating_mul(MANY) && missing_ns > length_ns / 2;
        let unknown_ns = if is_unknown { missing_ns } else { 0 };
        let ran_ns = length_ns - unknown_ns;
        let mut parts: BTreeMap<String, u64> = BTreeMap::new();
        for (_, stack) in met {
            *parts.entry(stacks.facts(*stack).function.clone()).or_default() += 1;
        }
        let most = parts.iter().max_by_key(|(_, samples)| **samples).map(|(name, _)| name.clone()).unwrap_or_default();
        // The one with most takes what is left.
        let mut rest_ns = ran_ns;
        for (function, samples) in parts.into_iter().filter(|(function, _)| *function != most) {
            let ns = (u128::from(ran_ns) * u128::from(samples) / met.len() as u128) as u64;
            self.add(of(None, function), ns);
            rest_ns -= ns;
        }
        if rest_ns > 0 {
            self.add(of(None, most.clone()), rest_ns);
        }
        if is_unknown {
            self.add(of(Some(UNKNOWN), String::new()), unknown_ns);
            self.unknown_ns += unknown_ns;
        }
        let doing = if is_unknown { of(Some(UNKNOWN), String::new()) } else { of(None, most) };
        self.all.push((stretch, doing));
    }

    fn add(&mut self, doing: Doing, ns: u64) {
        self.sums.entry(doing).or_default().add(WaitSum { waits: 1, total_ns: ns, longest_ns: ns });
    }

    /// What took longest first.
    fn sums(&self, least_percent: f64, whole_ns: u64) -> Vec<(&Doing, WaitSum)> {
        let sums = self.sums.iter().map(|(doing, sum)| (doing, *sum));
        in_order(sums.filter(|(_, sum)| share(sum.total_ns, whole_ns) >= least_percent))
    }

    /// The places of the longest stretches, in the order of time.
    fn longest(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.all.len()).collect();
        pmux::order::sort_by_key(&mut places, |&at| std::cmp::Reverse(length_ns(&self.all[at].0)));
        places.truncate(MOST_LONGEST);
        pmux::order::sort(&mut places);
        places
    }
}

/// When threads are called by their names: at the ends they may get others.
fn middle(stretch: &Stretch) -> u64 {
    stretch.from_ns + length_ns(stretch) / 2
}

fn length_ns(stretch: &Stretch) -> u64 {
    stretch.to_ns - stretch.from_ns
}

/// What is printed.
struct PathTables<'a> {
    profile: &'a Profile,
    whose: NamedThread,
    first_ns: u64,
    ends: (u64, u64),
}

impl PathTables<'_> {
    fn whole_ns(&self) -> u64 {
        self.ends.1 - self.ends.0
    }

    fn name(&self, thread: NamedThread) -> String {
        thread_name(self.profile, thread)
    }

    /// Who waited meanwhile, and for what.
    fn awaited(&self, stretch: &Stretch) -> Option<(NamedThread, WaitKind)> {
        stretch.awaited_by.map(|(thread, kind)| (named(self.profile, thread, middle(stretch)), kind))
    }

    fn print(&self, path: &PathSums, least_percent: f64, out: &mut dyn Write) -> io::Result<()> {
        let whole_ns = self.whole_ns();
        let whose = self.name(self.whose);
        writeln!(
            out,
            "# {} ms of {whose}: what it did, and where it waited for others, what they did meanwhile\n#",
            milliseconds(whole_ns)
        )?;
        let line = |(doing, sum): (&Doing, WaitSum)| {
            let share = format!("{:.2}%", share(sum.total_ns, whole_ns));
            let numbers = [milliseconds(sum.total_ns), share, sum.waits.to_string()];
            [&numbers[..], &[self.name(doing.thread), doing.text()]].concat()
        };
        let lines: Vec<_> = path.sums(least_percent, whole_ns).into_iter().map(line).collect();
        print_columns(out, &["total ms", "share", "times", "thread", "what"], &lines, 3)?;
        writeln!(out, "#\n# The longest, in the order of time:\n#")?;
        let line = |at: usize| {
            let (stretch, doing) = &path.all[at];
            let from = format!("{:.6}", stretch.from_ns.saturating_sub(self.first_ns) as f64 / 1e9);
            let awaited = self.awaited(stretch);
            let awaited = awaited.map(|(thread, kind)| format!("{} waits for {}", self.name(thread), kind.name()));
            let thread = self.name(doing.thread);
            vec![from, milliseconds(length_ns(stretch)), thread, doing.text(), awaited.unwrap_or_default()]
        };
        let lines: Vec<_> = path.longest().into_iter().map(line).collect();
        print_columns(out, &["from s", "ms", "thread", "what", "while"], &lines, 2)
    }

    fn json(&self, path: &PathSums, least_percent: f64) -> Json {
        let since = |ns: u64| ns.saturating_sub(self.first_ns);
        let sums = path.sums(least_percent, self.whole_ns()).into_iter().map(|(doing, sum)| {
            let mut object = doing.json(self.profile);
            object["total_ns"] = sum.total_ns.into();
            object["times"] = sum.waits.into();
            object
        });
        let stretches = path.all.iter().map(|(stretch, doing)| {
            let mut object = doing.json(self.profile);
            let awaited = self.awaited(stretch);
            object["from_ns"] = since(stretch.from_ns).into();
            object["to_ns"] = since(stretch.to_ns).into();
            object["awaited_by"] = json!(awaited.map(|(thread, _)| json_of_thread(self.profile, thread)));
            object["awaited_for"] = json!(awaited.map(|(_, kind)| kind.name()));
            object
        });
        let mut thread = json_of_thread(self.profile, self.whose);
        thread["from_ns"] = since(self.ends.0).into();
        thread["to_ns"] = since(self.ends.1).into();
        json!({ "thread": thread, "sums": sums.collect::<Vec<_>>(), "path": stretches.collect::<Vec<_>>() })
    }
}
