//! Screens of text: the keys, and what a recording tells of itself.
//!
//! **Invariant:** each key that does something stands in [`KEYS`].

use super::messages::Overview;
use super::state::Screen;
use crate::columns::{fit, wrap};

/// What keys do, by where they do it.
const KEYS: [(&str, &[(&str, &str)]); 4] = [
    (
        "Everywhere",
        &[
            ("↑ ↓  j k", "up, down"),
            ("PgUp PgDn  ^U ^D", "a screen up, down; so does the wheel of a mouse, by three lines"),
            ("g G  Home End", "to the first line, to the last one"),
            ("Esc", "back: leaves a screen, takes the filter away, leaves a zoom"),
            ("t", "pick a thread: only its samples are counted"),
            ("e E", "next event; pick one"),
            ("i", "what the recording tells of itself, and what is missing in it"),
            ("< >", "names to the left, to the right"),
            ("?", "this help"),
            ("^Z", "stop; `fg` of the shell goes on"),
            ("q  ^C", "quit; on another screen than the table, q goes back to it"),
        ],
    ),
    (
        "Table",
        &[
            ("→  l", "open: what the function called, and who called it; again: go into it"),
            ("←  h", "close; again: go to what is above"),
            ("Space", "open or close; so does a second click"),
            ("x", "open everything below"),
            ("Enter  a", "source of the function, with the share of each line"),
            ("/", "filter: rows that have all of these words; Enter keeps it, Esc takes it away"),
            ("s", "sort by the next column; so does a click on the headings"),
            ("Tab", "other columns: what rows are told apart by"),
            ("z", "zoom into the function: only samples that were met in it, or in what it had called"),
            ("d", "zoom into the program or library: only samples that were met in it"),
            ("f", "from a call to the row of its function"),
        ],
    ),
    (
        "Source",
        &[
            ("n N", "to the next line by weight: lighter, heavier"),
            ("a", "instructions instead of lines, and back"),
            ("←  Enter  Esc", "back to the table"),
        ],
    ),
    (
        "Columns",
        &[
            ("Children", "samples that were met in the function, or in what it had called"),
            ("Self", "samples that were met in the function itself, or in the line"),
            ("█ ░", "the same as a bar: Self, and what is more in Children"),
        ],
    ),
];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TextLine {
    Heading(String),
    /// What it is about, and the text.
    Fact(String, String),
    Plain(String),
    /// Something is missing.
    Remark(String),
}

/// The lines of a screen of text of so many columns; empty of other screens.
pub(super) fn lines(screen: &Screen, overview: &Overview, columns: usize) -> Vec<TextLine> {
    match screen {
        Screen::Help(_) => help(columns),
        Screen::Info(_) => info(overview, columns),
        _ => Vec::new(),
    }
}

fn help(columns: usize) -> Vec<TextLine> {
    let mut lines = Vec::new();
    for (heading, keys) in KEYS {
        lines.push(TextLine::Heading(heading.to_owned()));
        for (key, what) in keys {
            facts(key, what, columns, &mut lines);
        }
        lines.push(TextLine::Plain(String::new()));
    }
    lines
}

fn info(overview: &Overview, columns: usize) -> Vec<TextLine> {
    let mut lines = vec![TextLine::Heading("What is missing".to_owned())];
    if overview.remarks.is_empty() {
        lines.push(TextLine::Plain("nothing that is known of".to_owned()));
    }
    for remark in &overview.remarks {
        lines.extend(wrap(remark, columns.saturating_sub(4)).into_iter().map(TextLine::Remark));
    }
    lines.push(TextLine::Plain(String::new()));
    lines.push(TextLine::Heading("The recording".to_owned()));
    for (what, text) in &overview.about {
        facts(what, text, columns, &mut lines);
    }
    lines
}

/// The widest of what facts are about.
const FACT_COLUMNS: usize = 22;

fn facts(what: &str, text: &str, columns: usize, lines: &mut Vec<TextLine>) {
    let mut what = what.to_owned();
    for part in wrap(text, columns.saturating_sub(FACT_COLUMNS + 4)) {
        lines.push(TextLine::Fact(fit(&what, FACT_COLUMNS), part));
        what.clear();
    }
}
