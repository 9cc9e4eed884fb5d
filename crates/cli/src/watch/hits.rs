//! What is done with a hit: judged, told, counted; and the report in the end.
//!
//! **Invariant:** of each hit it is known whether it was meant; where that can't be said, it is in a number.

use super::json;
use super::output::WatchOutput;
use super::report::{self, ChainShare, HitRow, WatchReport};
use super::resolver::{AddressKind, Resolver};
use super::targets::{self, TargetArg};
use super::trace::{self, Rate, TraceLine};
use crate::options::watch::{RATE, WatchOptions as Options};
use crate::stat::gaps;
use pmux::symbol::ResolvedAddress;
use pmux::watch::{
    CountedHits, Hit, HitTally, Registers, Sides, ValuesFrom, Watch, WatchEvent, WatchTarget, stands_behind,
};
use pmux::{Error, Nanos};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// So many rows are kept of programs that were executed since.
const MOST_ROWS: usize = 1 << 16;
/// So many rows of each target are shown.
const ROWS: usize = 20;

/// Rows that become one.
struct Merged {
    row: HitRow,
    /// Hits of the call chain that is shown.
    most: u64,
    all_looked_at: bool,
}

fn is_same_way(one: &[Arc<ResolvedAddress>], other: &[Arc<ResolvedAddress>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.to_string() == other.to_string())
}

pub(super) struct Hits<'a> {
    options: &'a Options,
    pub(super) resolver: Resolver,
    /// The spots of the watch, each with its target.
    watch_targets: Vec<(usize, WatchTarget)>,
    notes: Vec<String>,
    tally: HitTally,
    /// What the tally has given: hits of one thread at one place, though it be several instructions; by target, process, thread, place and
    /// name.
    merged: BTreeMap<(usize, i32, i32, String, String), Merged>,
    /// Hits that had no room there.
    not_kept: u64,
    /// Which threads made hits that were meant.
    pub(super) threads: HashSet<i32>,
    rate: Rate,
    begin: Nanos,
    /// Hits that were meant.
    pub(super) matched: u64,
    /// Hits that came after there were enough.
    too_many: u64,
}

impl<'a> Hits<'a> {
    pub(super) fn new(options: &'a Options) -> Self {
        Self {
            options,
            resolver: Resolver::default(),
            watch_targets: Vec::new(),
            notes: Vec::new(),
            tally: HitTally::default(),
            merged: BTreeMap::new(),
            not_kept: 0,
            threads: HashSet::new(),
            rate: Rate::new(options.rate.unwrap_or(RATE)),
            begin: Nanos::ZERO,
            matched: 0,
            too_many: 0,
        }
    }

    /// More spots are watched.
    pub(super) fn armed(&mut self, places: Vec<targets::ResolvedTarget>, begin: Nanos) {
        self.begin = begin;
        for place in places {
            for note in place.notes {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
            self.watch_targets.push((place.target, place.watch_target));
        }
    }

    /// The command will have the name of its program.
    pub(super) fn command(&mut self, pid: i32) {
        if let Some(program) = self.options.command.first() {
            let name = std::path::Path::new(program).file_name().unwrap_or(program).to_string_lossy();
            self.resolver.named(pid, name.chars().take(15).collect());
        }
    }

    /// Whether `--stop` is reached.
    pub(super) fn has_enough(&self) -> bool {
        self.options.stop.is_some_and(|most| self.matched >= most)
    }

    pub(super) fn take(&mut self, event: WatchEvent, output: &mut WatchOutput) {
        match event {
            WatchEvent::Hit(hit) => self.hit(&hit, output),
            WatchEvent::Counted(counted) => self.counted(&counted),
            WatchEvent::Name { pid, tid, name, cause } => {
                if cause == pmux::watch::NameCause::Exec {
                    self.settle(Some(pid));
                    self.resolver.executed(pid);
                }
                self.resolver.named(tid, name);
            }
            WatchEvent::Started { pid, tid, parent } => self.resolver.started(pid, tid, parent),
            WatchEvent::Mapped { pid, mapping } => self.resolver.mapped(pid, mapping),
        }
    }

    fn hit(&mut self, hit: &Hit, output: &mut WatchOutput) {
        if self.has_enough() {
            self.too_many += 1;
            return;
        }
        let Some((target, watch_target)) = self.watch_targets.get(hit.watch_target) else { return };
        let (target, access, name) = (*target, watch_target.access, watch_target.name.clone());
        let len = if watch_target.is_code() { 0 } else { watch_target.len };
        // Looked up while the process lives.
        self.resolver.name(hit.pid, hit.tid);
        let at = hit.at_instruction(access);
        let is_in = |place: &ResolvedAddress| self.options.callers.iter().any(|name| place.is_in(name));
        let here = is_in(&self.resolver.place(hit.pid, at, AddressKind::Instruction));
        if !self.options.callers.is_empty()
            && !here
            && !hit.callers.iter().any(|&caller| is_in(&self.resolver.place(hit.pid, caller, AddressKind::Return)))
        {
            return;
        }
        self.matched += 1;
        self.threads.insert(hit.tid);
        self.tally.add(hit);
        if self.options.trace {
            let several = self.watch_targets.iter().any(|(other, _)| *other != target);
            self.print(hit, at, if several || self.options.json { &name } else { "" }, len, output);
        }
    }

    /// Hits that were only counted, where each is meant.
    fn counted(&mut self, counted: &CountedHits) {
        // Where the record of the first one was lost, this is the first that is known of the thread.
        self.resolver.name(counted.pid, counted.tid);
        self.matched += counted.hits;
        self.threads.insert(counted.tid);
        self.tally.add_counted(counted);
    }

    fn print(&mut self, hit: &Hit, at: u64, target: &str, len: u64, output: &mut WatchOutput) {
        let since = hit.at.since(self.begin);
        let (left_out_before, is_printed) = self.rate.hit(since);
        if left_out_before > 0 {
            self.print_left_out(left_out_before, output);
        }
        if !is_printed {
            return;
        }
        let place = self.resolver.place(hit.pid, at, AddressKind::Instruction);
        let callers = self.resolver.callers(hit.pid, &hit.callers);
        let command = self.resolver.name(hit.pid, hit.tid).to_owned();
        let verbose = self.options.verbose;
        let line =
            TraceLine { hit, at: since, target, len, command: &command, place: &place, callers: &callers, verbose };
        let text = if self.options.json { json::hit(&line) } else { trace::line(&line, output.style) };
        output.put(&text);
    }

    fn print_left_out(&self, count: u64, output: &mut WatchOutput) {
        let text = if self.options.json { json::left_out(count) } else { trace::left_out(count, output.style) };
        output.put(&text);
    }

    /// Tells what was left out and not told yet.
    pub(super) fn flush(&mut self, output: &mut WatchOutput) {
        let count = self.rate.flush();
        if count > 0 {
            self.print_left_out(count, output);
        }
    }

    /// What was found.
    ///
    /// # Errors
    /// Where a count can't be read.
    pub(super) fn report(&mut self, args: &[TargetArg], watch: &Watch) -> Result<WatchReport, Error> {
        let mut rows = self.rows();
        let mut report = WatchReport {
            span: watch.span(),
            detailed: !self.options.count_only,
            most_rows: if self.options.verbose { usize::MAX } else { ROWS },
            filtered: self.options.condition.is_some() || !self.options.callers.is_empty(),
            ..WatchReport::default()
        };
        for (index, arg) in args.iter().enumerate() {
            let mut target = report::TargetReport { name: arg.text.clone(), ..report::TargetReport::default() };
            let mut abouts: Vec<String> = Vec::new();
            for (watch_target, (_, what)) in self.watch_targets.iter().enumerate().filter(|(_, (of, _))| *of == index) {
                target.count += watch.count(watch_target)?;
                let about = targets::about(what);
                if !abouts.contains(&about) {
                    abouts.push(about);
                }
            }
            target.about = match abouts.as_slice() {
                [] => String::new(),
                [one] => one.clone(),
                [first, _] => format!("{first}, and one more place"),
                [first, rest @ ..] => format!("{first}, and {} more places", rest.len()),
            };
            target.rows = rows.remove(&index).unwrap_or_default();
            target.hits_in_rows = target.rows.iter().map(|row| row.hits).sum();
            if !arg.found {
                let why = arg.problem.clone().unwrap_or_else(|| "its library was not loaded".to_owned());
                report.notes.push(format!("{} was never there: {why}", arg.text));
            }
            report.targets.push(target);
        }
        self.remarks(&mut report, watch);
        report.notes.extend(gaps(&watch.coverage()?).into_iter().map(|note| note.text));
        Ok(report)
    }

    /// Finds out where the hits of a process were, or all hits: as the process is named and mapped now.
    fn settle(&mut self, pid: Option<i32>) {
        for (caller, row) in self.tally.take_rows(pid) {
            let Some((target, watch_target)) = self.watch_targets.get(caller.watch_target) else { continue };
            let behind = caller.ip.saturating_sub(u64::from(stands_behind(watch_target.access)));
            let place = self.resolver.place(caller.pid, behind, AddressKind::Instruction);
            let command = self.resolver.name(caller.pid, caller.tid).to_owned();
            let key = (*target, caller.pid, caller.tid, place.to_string(), command.clone());
            if self.merged.len() >= MOST_ROWS && !self.merged.contains_key(&key) {
                self.not_kept += row.hits;
                continue;
            }
            let (chain, that_way) = row.main_chain().unwrap_or((&[], 0));
            let callers = self.resolver.callers(caller.pid, chain);
            let Merged { row: into, most, all_looked_at } = self.merged.entry(key).or_insert_with(|| {
                let first = row.first.since(self.begin);
                Merged { row: HitRow::new(caller.pid, caller.tid, first, place), most: 0, all_looked_at: true }
            });
            *all_looked_at &= row.is_looked_at();
            into.command = command;
            into.hits += row.hits;
            into.first = into.first.min(row.first.since(self.begin));
            let last = row.last.since(self.begin);
            if last >= into.last {
                (into.last, into.value) = (last, row.last_value.or(into.value));
            }
            into.cpus.extend(&row.cpus);
            if *most > 0 && is_same_way(&into.callers, &callers) {
                *most += that_way;
            } else if that_way > *most {
                (*most, into.callers) = (that_way, callers);
            }
        }
    }

    /// Rows by target.
    fn rows(&mut self) -> BTreeMap<usize, Vec<HitRow>> {
        self.settle(None);
        let mut rows: BTreeMap<usize, Vec<HitRow>> = BTreeMap::new();
        for ((target, ..), Merged { mut row, most, all_looked_at }) in std::mem::take(&mut self.merged) {
            row.that_way = match most {
                _ if most >= row.hits => ChainShare::One,
                _ if all_looked_at => ChainShare::Several(most),
                _ => ChainShare::About(most),
            };
            rows.entry(target).or_default().push(row);
        }
        for rows in rows.values_mut() {
            pmux::order::sort_by(rows, |a, b| b.hits.cmp(&a.hits).then(a.first.cmp(&b.first)).then(a.tid.cmp(&b.tid)));
        }
        rows
    }

    /// What is to be said beside the numbers.
    fn remarks(&self, report: &mut WatchReport, watch: &Watch) {
        let notes = &mut report.notes;
        notes.extend(self.notes.iter().cloned());
        let hits = |count: u64| if count == 1 { "hit" } else { "hits" };
        if self.options.count_only {
            notes.extend(side(watch));
            return;
        }
        let lost = watch.unseen().unwrap_or_else(|_| watch.lost());
        if lost > 0 {
            let remedy = watch.not_counted_because().map(|why| format!("; a BPF program would know it, but {why}"));
            notes.push(format!(
                "{lost} {} came too fast to be taken in: they are counted, but it is not known whose they were{}",
                hits(lost),
                remedy.unwrap_or_default()
            ));
        }
        if watch.throttled() > 0 {
            notes.push(format!(
                "the kernel held hits back {} times, as kernel.perf_event_max_sample_rate wants it: those are not counted",
                watch.throttled()
            ));
        }
        let strays = watch.strays();
        if strays > 0 {
            let hits = hits(strays);
            notes.push(format!("{strays} {hits} came before everything was armed, or twice: they are left out"));
        }
        let undecided = watch.undecided();
        if undecided > 0 {
            notes.push(format!(
                "of {undecided} {} it is not known whether the condition held: the value, or the one before, was not seen",
                hits(undecided)
            ));
        }
        notes.extend(values(watch));
        if self.resolver.astray {
            notes.push(
                "callers are left out where frame pointers lead to no code: -fno-omit-frame-pointer (Rust: -C \
                 force-frame-pointers=yes) shows them"
                    .to_owned(),
            );
        }
        if self.matched == 0 && !self.options.callers.is_empty() && report.targets.iter().any(|it| it.count.value > 0) {
            let names = self.options.callers.join(", ");
            notes.push(format!(
                "no hit came by way of {names}: is that the name of a function, and was the code built with frame pointers?"
            ));
        }
        let left = self.rate.total_left_out;
        if left > 0 {
            let hits = hits(left);
            notes.push(format!("{left} {hits} were not printed, so as not to print more than a person can read"));
        }
        if self.too_many > 0 {
            notes.push(format!(
                "{} more {} came while it was ended (--stop); {} in all are counted",
                self.too_many,
                hits(self.too_many),
                report.targets.iter().map(|target| target.count.value).sum::<u64>()
            ));
        }
        let not_kept = self.tally.not_kept() + self.not_kept;
        if not_kept > 0 {
            notes.push(format!("{not_kept} hits are in no row: there are too many places"));
        }
        notes.extend(side(watch));
    }
}

/// Where values come from, for the reader of the report.
fn values(watch: &Watch) -> Option<String> {
    match watch.values() {
        ValuesFrom::Nowhere => None,
        ValuesFrom::Hit if stands_behind(pmux::event::Access::WRITE) => {
            let before = if watch.registers() == Registers::Kept {
                "that of the hit before"
            } else {
                "that of the last hit that was seen, perhaps some turns ago"
            };
            Some(format!("values are those at the hit, seen by a BPF program; the old one is {before}"))
        }
        ValuesFrom::Hit => Some(
            "this machine reports an access before it is made: the old value is the one at the hit, seen by a BPF program; \
             the new one is what the next hit found, or what was read later"
                .to_owned(),
        ),
        ValuesFrom::Memory { why: None } => None,
        ValuesFrom::Memory { why: Some(why) } => Some(format!("values were read after the hit, not at it: {why}")),
    }
}

fn side(watch: &Watch) -> Option<String> {
    let only = watch.sides() == Sides::UserOnly;
    only.then(|| {
        "only hits in user mode are seen: this user may not watch the kernel (kernel.perf_event_paranoid)".to_owned()
    })
}
