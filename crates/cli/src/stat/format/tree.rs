//! The process tree as a table (`--tree`): a line for each process with its own counts,
//! children under their parent, the sum at the end.
//!
//! Many equal siblings become one line (`true ×4998`) with their sums, and their children
//! are gathered below it in the same way. An event that could not be counted at all has no column:
//! the notes say why. How the lines become a page is in `tree_page`.
//!
//! **Invariant:** every process is in exactly one line, so the lines add up to the total.
//! No recursion and no work per pair of processes: five thousand children, or a chain of
//! five thousand, cost as much as five thousand lines.

use super::tree_page::{self, Head, TreeLine};
use super::{TreeDetail, numbers, table, text};
use crate::stat::process_tree::{Exit, Process, ProcessTreeReport};
use crate::stat::report::{EventColumn, StatReport, Value};
use crate::style::Style;
use std::collections::HashMap;
use std::fmt::Write as _;

/// More equal siblings than this are folded.
const FOLD_ABOVE: usize = 8;
/// Rails are drawn for this many levels; deeper processes say how deep they are.
const DEPTH_DRAWN: usize = 16;

/// A set of equal siblings waiting to be drawn.
struct Pending {
    members: Vec<usize>,
    /// What stands before the children of this set.
    rails_below: String,
    /// What stands before the set itself.
    rails: String,
    depth: usize,
}

pub(super) fn compose(report: &StatReport, tree: &ProcessTreeReport, detail: TreeDetail, style: Style) -> String {
    let events = counted(report, tree);
    let whole_only = events.iter().copied().filter(|&event| tree.is_of_the_whole_only(event)).collect();
    let shown = Shown { report, tree, events, whole_only, style };
    let lines = lines(&shown, detail);
    let total = total(&shown);
    let heads: Vec<Head> = shown.events.iter().map(|&event| Head::of(&report.events[event])).collect();
    let mut out = String::new();
    table::push_title(&mut out, report, style);
    tree_page::push(&mut out, &heads, &lines, &total, style);
    table::push_footer(&mut out, report, style);
    out
}

/// What is drawn, and how.
struct Shown<'a> {
    report: &'a StatReport,
    tree: &'a ProcessTreeReport,
    /// The events that have a column.
    events: Vec<usize>,
    /// Those of which only the total is known.
    whole_only: Vec<usize>,
    style: Style,
}

/// Returns the events that some process has a count of, or waited for; all events where that is none.
fn counted(report: &StatReport, tree: &ProcessTreeReport) -> Vec<usize> {
    let all = 0..report.events.len();
    let there = |&event: &usize| tree.total(event).is_some_and(|value| value != Value::NotSupported);
    let events: Vec<usize> = all.clone().filter(there).collect();
    if events.is_empty() { all.collect() } else { events }
}

fn lines(shown: &Shown<'_>, detail: TreeDetail) -> Vec<TreeLine> {
    let tree = shown.tree;
    let (children, roots) = tree.children();
    let mut lines = Vec::new();
    let mut stack = Vec::new();
    push_sets(&mut stack, tree, roots, detail, None);
    while let Some(set) = stack.pop() {
        lines.push(line(shown, &set));
        let below: Vec<usize> = set.members.iter().flat_map(|&member| children[member].iter().copied()).collect();
        push_sets(&mut stack, tree, below, detail, Some(&set));
    }
    lines
}

/// Sorts siblings into sets and puts them on the stack, the first one on top.
fn push_sets(
    stack: &mut Vec<Pending>,
    tree: &ProcessTreeReport,
    siblings: Vec<usize>,
    detail: TreeDetail,
    parent: Option<&Pending>,
) {
    let sets = fold(tree, siblings, detail);
    let last = sets.len().saturating_sub(1);
    for (at, members) in sets.into_iter().enumerate().rev() {
        let (depth, rails, rails_below) = match parent {
            None => (0, String::new(), String::new()),
            Some(parent) if parent.depth >= DEPTH_DRAWN => {
                (parent.depth + 1, parent.rails.clone(), parent.rails_below.clone())
            }
            Some(parent) => {
                let above = &parent.rails_below;
                let (corner, below) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                (parent.depth + 1, format!("{above}{corner}"), format!("{above}{below}"))
            }
        };
        stack.push(Pending { members, rails_below, rails, depth });
    }
}

/// Returns the siblings in sets: those of a frequent command together, in the place of the
/// first of them, all others alone.
fn fold(tree: &ProcessTreeReport, siblings: Vec<usize>, detail: TreeDetail) -> Vec<Vec<usize>> {
    if detail == TreeDetail::Complete || siblings.len() <= FOLD_ABOVE {
        return siblings.into_iter().map(|one| vec![one]).collect();
    }
    let command = |process: usize| tree.processes[process].command.as_str();
    let mut count: HashMap<&str, usize> = HashMap::new();
    for &one in &siblings {
        *count.entry(command(one)).or_default() += 1;
    }
    let mut set_of: HashMap<&str, usize> = HashMap::new();
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for one in siblings {
        let name = command(one);
        if count.get(name).is_none_or(|&n| n <= FOLD_ABOVE) {
            sets.push(vec![one]);
            continue;
        }
        let next = sets.len();
        let at = *set_of.entry(name).or_insert(next);
        if at == next {
            sets.push(Vec::new());
        }
        sets[at].push(one);
    }
    sets
}

fn line(shown: &Shown<'_>, set: &Pending) -> TreeLine {
    let (tree, style) = (shown.tree, shown.style);
    let members = || set.members.iter().filter_map(|&at| tree.processes.get(at));
    let wall_ns = members().map(|p| p.wall_ns).fold(0, u64::saturating_add);
    let values = shown.values(|event| tree.sum(event, set.members.iter().copied()));
    let (command, pid) = match set.members.as_slice() {
        [one] => (tree.processes[*one].command.as_str(), tree.processes[*one].pid.to_string()),
        many => (many.first().map_or("", |&one| tree.processes[one].command.as_str()), String::new()),
    };
    let mut note = String::new();
    if set.members.len() > 1 {
        let _ = write!(note, " ×{}", set.members.len());
    }
    push_remarks(&mut note, members());
    if set.depth > DEPTH_DRAWN {
        let _ = write!(note, " [depth {}]", set.depth);
    }
    TreeLine {
        rails: set.rails.clone(),
        command: text::visible(command),
        note,
        pid,
        wall: numbers::millis(wall_ns, style.grouping),
        values,
    }
}

/// Appends what is unusual about the processes of a line: threads, signals, exit codes.
fn push_remarks<'a>(note: &mut String, members: impl Iterator<Item = &'a Process> + Clone) {
    let processes = members.clone().count();
    let threads: u64 = members.clone().map(|p| u64::from(p.threads.max(1))).sum();
    if threads > processes as u64 {
        let _ = write!(note, " [{threads} threads]");
    }
    let mut killed: HashMap<i32, usize> = HashMap::new();
    let mut running = 0;
    for process in members {
        match process.exit {
            Exit::Signal(signal) => *killed.entry(signal).or_default() += 1,
            Exit::Running => running += 1,
            Exit::Code(code) if code != 0 && processes == 1 => {
                let _ = write!(note, " [exit {code}]");
            }
            Exit::Code(_) | Exit::Unknown => {}
        }
    }
    let mut killed: Vec<(i32, usize)> = killed.into_iter().collect();
    pmux::order::sort(&mut killed);
    for (signal, count) in killed {
        let _ = match count {
            1 => write!(note, " [signal {signal}]"),
            _ => write!(note, " [signal {signal} ×{count}]"),
        };
    }
    let _ = match running {
        0 => Ok(()),
        1 if processes == 1 => write!(note, " [still running]"),
        _ => write!(note, " [{running} still running]"),
    };
}

impl Shown<'_> {
    fn values(&self, of: impl Fn(usize) -> Option<Value>) -> Vec<String> {
        let whole_only = |event| self.whole_only.contains(&event);
        let known = |event| of(event).filter(|&value| value != Value::NotSupported || !whole_only(event));
        let text = |&event: &usize| value_text(&self.report.events[event], known(event), self.style);
        self.events.iter().map(text).collect()
    }
}

fn total(shown: &Shown<'_>) -> TreeLine {
    let tree = shown.tree;
    let processes = match tree.processes.len() {
        1 => "1 process".to_owned(),
        many => format!("{many} processes"),
    };
    TreeLine {
        command: format!("total of {processes}"),
        wall: numbers::millis(shown.report.elapsed_ns, shown.style.grouping),
        values: shown.values(|event| tree.total(event)),
        ..TreeLine::default()
    }
}

fn value_text(column: &EventColumn, value: Option<Value>, style: Style) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let mut out = numbers::value(column, value, style.grouping);
    if value.is_estimate() {
        let _ = write!(out, " ({:.0}%)", value.running_pct());
    }
    out
}

#[cfg(test)]
#[path = "tree_tests.rs"]
pub(super) mod tests;
