//! A list to pick from: threads, events.
//!
//! **Invariant:** what is picked is what is shown: the filter decides both.

use super::super::messages::Overview;
use super::scroll::Scroll;
use pmux::profile::{ThreadId, Weight};
use std::cmp::Reverse;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Choice {
    /// A thread, or all of them.
    Thread(Option<ThreadId>),
    /// The place of an event.
    Event(usize),
}

/// A line of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Entry {
    pub(in super::super) choice: Choice,
    pub(in super::super) text: String,
    pub(in super::super) weight: Weight,
    /// Of what its share is.
    pub(in super::super) of: Weight,
}

#[derive(Clone, Debug)]
pub(in super::super) struct Pick {
    /// One of what it has, in a word.
    pub(in super::super) what: &'static str,
    pub(in super::super) entries: Vec<Entry>,
    pub(in super::super) filter: String,
    pub(in super::super) scroll: Scroll,
    /// All entries; those that are shown are in `entries`.
    all: Vec<Entry>,
}

impl Pick {
    pub(super) fn threads(overview: &Overview, event: usize, page: usize) -> Self {
        let weight = |weights: &[Weight]| weights.get(event).copied().unwrap_or_default();
        let of = overview.events.get(event).map(|event| event.total).unwrap_or_default();
        let mut threads: Vec<_> =
            overview.threads.iter().filter(|thread| weight(&thread.weights).samples > 0).collect();
        pmux::order::sort_by_key(&mut threads, |thread| Reverse(weight(&thread.weights).period));
        let all = Entry { choice: Choice::Thread(None), text: "all threads".to_owned(), weight: of, of };
        let entries = threads.iter().map(|thread| Entry {
            choice: Choice::Thread(Some(thread.id)),
            text: thread_label(thread.pid, thread.tid, &thread.name),
            weight: weight(&thread.weights),
            of,
        });
        Self::new("thread", [all].into_iter().chain(entries).collect(), page)
    }

    pub(super) fn events(overview: &Overview, page: usize) -> Self {
        let events = overview.events.iter().enumerate().filter(|(_, event)| event.total.samples > 0);
        let entries = events.map(|(at, event)| Entry {
            choice: Choice::Event(at),
            text: format!("{}   {} samples", event.name, event.total.samples),
            weight: event.total,
            of: event.total,
        });
        Self::new("event", entries.collect(), page)
    }

    fn new(what: &'static str, all: Vec<Entry>, page: usize) -> Self {
        let mut pick = Self { what, entries: Vec::new(), filter: String::new(), scroll: Scroll::default(), all };
        pick.scroll.set_page(page);
        pick.set_filter(String::new());
        pick
    }

    pub(super) fn set_filter(&mut self, filter: String) {
        let words: Vec<String> = filter.split_whitespace().map(str::to_lowercase).collect();
        let is_meant = |entry: &&Entry| words.iter().all(|word| entry.text.to_lowercase().contains(word));
        self.entries = self.all.iter().filter(is_meant).cloned().collect();
        self.filter = filter;
        self.scroll.set_len(self.entries.len());
        self.scroll.to(0);
    }

    pub(super) fn picked(&self) -> Option<&Entry> {
        self.entries.get(self.scroll.cursor)
    }
}

/// `sh 12/13`, or `sh 12` of the first thread of a process.
pub(super) fn thread_label(pid: i32, tid: i32, name: &str) -> String {
    if pid == tid { format!("{name} {pid}") } else { format!("{name} {pid}/{tid}") }
}
