//! Stacks as text: the functions from the outermost to the innermost with semicolons between them, and what they weigh.
//!
//! **Invariant:** a line has one stack. What would break it (semicolons and line ends in names) is replaced.

use super::Drawn;
use crate::options::flame::GroupStacksBy;
use crate::stderr::visible;
use pmux::profile::{CodeKind, Inlining, Key, Profile, SourceLine, Tally};
use std::collections::BTreeMap;

/// Whether names tell what kind of code they are, as flame graphs know it: `_[k]` for the kernel, `_[i]` for inlined, `_[j]` for code
/// that was made while it ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Marks {
    Shown,
    Hidden,
}

pub(crate) fn frame_text(place: &SourceLine, marks: Marks) -> String {
    let mut text = visible(&place.function).replace(';', ":");
    if marks == Marks::Shown {
        text.push_str(match (place.kind, place.inlining) {
            (CodeKind::Kernel, _) => "_[k]",
            (CodeKind::Jit, _) => "_[j]",
            (_, Inlining::Inlined) => "_[i]",
            _ => "",
        });
    }
    text
}

/// What stands at the bottom.
pub(crate) fn root(profile: &Profile, key: &Key, by: GroupStacksBy) -> String {
    let comm = || profile.names.get(key.comm);
    let text = match (by, key.thread, key.cpu) {
        (GroupStacksBy::Thread, Some(thread), _) => format!("{} (thread {})", comm(), profile.tasks.thread(thread).tid),
        (GroupStacksBy::Process, Some(thread), _) => {
            let process = profile.tasks.process_of(thread);
            let main = process.main.map_or_else(comm, |main| profile.names.get(profile.tasks.thread(main).name()));
            format!("{main} (process {})", process.pid)
        }
        (GroupStacksBy::Cpu, _, Some(cpu)) => format!("CPU {cpu}"),
        (GroupStacksBy::Cpu, _, None) => "CPU not recorded".to_owned(),
        _ => comm().to_owned(),
    };
    visible(&text).replace(';', ":")
}

/// The stacks of an event by their text, with what they weigh: occurrences, or samples where those are not known.
pub(crate) fn lines(drawn: &Drawn<Tally>, event: usize, by: GroupStacksBy, marks: Marks) -> BTreeMap<String, u64> {
    let Drawn { profile, places, kept, .. } = drawn;
    let frames: Vec<String> = places.all().iter().map(|place| frame_text(place, marks)).collect();
    let mut lines = BTreeMap::new();
    for (key, weight) in kept.rows().filter(|(key, _)| key.event as usize == event) {
        let mut stack: Vec<&str> = places.of_stack(profile, key.stack).map(|id| frames[id.index()].as_str()).collect();
        let root = root(profile, key, by);
        stack.push(&root);
        stack.reverse();
        *lines.entry(stack.join(";")).or_default() += weight.period;
    }
    lines
}
