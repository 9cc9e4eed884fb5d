//! The notes under a table: why something was not counted, what would help, where the
//! measurement has gaps.
//!
//! **Invariant:** a note is never dropped. Equal notes of several events are one line that
//! names the events.

use super::text;
use crate::stat::report::{About, Note, StatReport, Value};
use crate::style::{Ink, Style};

/// More event names than this are counted instead of listed.
const NAMES_LISTED: usize = 8;
/// The width of lines where no terminal sets one.
const WIDTH: usize = 80;
/// On a terminal that is narrower still, lines are this wide all the same.
const WIDTH_MIN: usize = 30;

/// A note that stands for all that are like it.
pub(super) struct Sentence<'r> {
    /// The events that it is about, in words; empty where it is about the measurement.
    names: String,
    events: Vec<usize>,
    /// What became of those events, with a colon; may be empty.
    state: &'static str,
    note: &'r Note,
}

impl Sentence<'_> {
    pub(super) fn text(&self) -> String {
        let colon = if self.names.is_empty() { "" } else { ": " };
        format!("{}{colon}{}{}", self.names, self.state, self.note.text)
    }

    /// What is so, without its cause and the names.
    fn before(&self, cause: &str) -> String {
        let text = format!("{}{}", self.state, self.note.text);
        text.strip_suffix(cause).unwrap_or(&text).trim_end_matches(' ').trim_end_matches(':').to_owned()
    }
}

/// Returns the notes of a report, equal ones together.
pub(super) fn sentences(report: &StatReport) -> Vec<Sentence<'_>> {
    let mut merged: Vec<(&Note, Vec<usize>)> = Vec::new();
    for note in &report.notes {
        let same = merged.iter_mut().find(|(first, _)| alike(report, first, note));
        match (same, note.about) {
            (Some((_, events)), About::Event(event)) => {
                if !events.contains(&event) {
                    events.push(event);
                }
            }
            // The very same sentence about the measurement needs saying once.
            (Some(_), About::Measurement | About::Loss) => {}
            (None, About::Event(event)) => merged.push((note, vec![event])),
            (None, About::Measurement | About::Loss) => merged.push((note, Vec::new())),
        }
    }
    merged
        .into_iter()
        .map(|(note, events)| Sentence {
            names: names(report, &events, NAMES_LISTED),
            state: if events.is_empty() { "" } else { state(report, &events) },
            events,
            note,
        })
        .collect()
}

/// Appends the notes of a report, in lines as wide as the terminal: what has one cause together. What helps, and what became of each
/// event, is for those who ask for it (-v).
pub(super) fn append(out: &mut String, report: &StatReport, style: Style) {
    let width = style.width.unwrap_or(WIDTH).max(WIDTH_MIN);
    for (cause, same) in by_cause(report) {
        if !report.shows_help {
            push_brief(out, report, (cause, &same), width, style);
            continue;
        }
        let parts: Vec<_> = same.iter().flat_map(|one| [one.names.clone(), one.before(cause)]).collect();
        let parts: Vec<_> = parts.iter().map(|part| text::visible(part)).collect();
        let cause = text::visible(cause);
        let mut pieces = Vec::new();
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let gap = match (pieces.is_empty(), at % 2) {
                (true, _) => "",
                (false, 0) => "; ",
                (false, _) => ": ",
            };
            pieces.extend([(Ink::Plain, gap), (if at % 2 == 0 { Ink::Strong } else { Ink::Plain }, &**part)]);
        }
        pieces.extend([(Ink::Plain, if pieces.is_empty() { "" } else { ": " }), (Ink::Plain, &*cause)]);
        push_wrapped(out, &pieces, 1, width, style);
        let help = same.iter().map(|one| &one.note.help[..]).max_by_key(|help| help.len()).unwrap_or_default();
        for (at, one) in help.iter().enumerate() {
            let label = if at == 0 { "what helps: " } else { "or: " };
            let pieces = [(Ink::Faint, label), (Ink::Plain, &*text::visible(one))];
            push_wrapped(out, &pieces, 3, width, style);
        }
    }
}

/// One line for a cause, where it has room in one.
fn push_brief(
    out: &mut String,
    report: &StatReport,
    (cause, same): (&str, &[Sentence<'_>]),
    width: usize,
    style: Style,
) {
    // What has no count is named first.
    let of = |counted: bool| same.iter().filter(move |one| one.state.is_empty() == counted).flat_map(|one| &one.events);
    let events: Vec<usize> = of(false).chain(of(true)).copied().collect();
    // What is in brackets then tells how it is known.
    let brief =
        cause.split_once(" (there is no ").filter(|(_, how)| how.ends_with(')')).map_or(cause, |(brief, _)| brief);
    let is_cut = brief.len() < cause.len() || same.len() > 1;
    let before = if same.len() > 1 { String::new() } else { same.iter().map(|one| one.before(cause)).collect() };
    let gap = |text: &str| if text.is_empty() { "" } else { ": " };
    let text = text::visible(&format!("{before}{}{brief}", gap(&before)));
    let has_more = is_cut || same.iter().any(|one| !one.note.help.is_empty());
    let more = if has_more { " (-v: more)" } else { "" };
    let named = |most: usize| {
        let names = names(report, &events, most);
        format!("{}{}", text::visible(&names), gap(&names))
    };
    let fits = |names: &String| 1 + text::columns(names) + text::columns(&text) + text::columns(more) <= width;
    let names = (1..=NAMES_LISTED).rev().map(named).find(fits).unwrap_or_else(|| named(1));
    push_wrapped(out, &[(Ink::Strong, &names), (Ink::Plain, &text), (Ink::Faint, more)], 1, width, style);
}

/// The sentences by their causes.
fn by_cause(report: &StatReport) -> Vec<(&str, Vec<Sentence<'_>>)> {
    let mut causes: Vec<(&str, Vec<Sentence<'_>>)> = Vec::new();
    for sentence in sentences(report) {
        let cause = cause(&sentence.note.text);
        let is_of_events = |same: &[Sentence<'_>]| same.iter().chain([&sentence]).all(|one| !one.names.is_empty());
        match causes.iter_mut().find(|(known, same)| *known == cause && is_of_events(same)) {
            Some((_, same)) => same.push(sentence),
            None => causes.push((cause, vec![sentence])),
        }
    }
    causes
}

/// Why it is so, of a text that says first what is so.
fn cause(text: &str) -> &str {
    const WHAT: [&str; 2] = ["counts user mode only: ", "taken from what the kernel accounts for anyway: "];
    WHAT.iter().find_map(|what| text.strip_prefix(what)).unwrap_or(text)
}

/// Appends pieces of text as lines of at most `width` columns; those behind the first stand two columns further to the right. Words
/// stay whole, and so does what stands in backticks: it may be wanted for copying.
fn push_wrapped(out: &mut String, pieces: &[(Ink, &str)], indent: usize, width: usize, style: Style) {
    let mut column = 0;
    let mut pending = String::new();
    let mut start = indent;
    for (ink, word) in words(pieces) {
        let bare = word.trim_end_matches(' ');
        let needed = text::columns(bare);
        let gap = text::columns(&pending);
        if column > 0 && !pending.is_empty() && column + gap + needed > width {
            out.push('\n');
            column = 0;
            start = indent + 2;
        }
        if column == 0 {
            out.extend(std::iter::repeat_n(' ', start));
            column = start;
        } else {
            out.push_str(&pending);
            column += gap;
        }
        pending.clear();
        pending.extend(std::iter::repeat_n(' ', word.len() - bare.len()));
        style.paint(out, ink, bare);
        column += needed;
    }
    out.push('\n');
}

/// Cuts pieces into words, each with the spaces behind it.
fn words<'t>(pieces: &[(Ink, &'t str)]) -> Vec<(Ink, &'t str)> {
    let mut words = Vec::new();
    for &(ink, text) in pieces {
        let mut from = 0;
        let mut quoted = false;
        for (at, c) in text.char_indices() {
            quoted ^= c == '`';
            let end = at + c.len_utf8();
            if c == ' ' && !quoted && !text[end..].starts_with(' ') {
                words.push((ink, &text[from..end]));
                from = end;
            }
        }
        words.push((ink, &text[from..]));
    }
    words.retain(|(_, word)| !word.is_empty());
    words
}

fn alike(report: &StatReport, a: &Note, b: &Note) -> bool {
    let kind = |note: &Note| match note.about {
        About::Event(event) => Some(state(report, &[event])),
        About::Measurement | About::Loss => None,
    };
    a.text == b.text && a.help == b.help && kind(a) == kind(b)
}

/// Says what became of an event that has no count at all.
fn state(report: &StatReport, events: &[usize]) -> &'static str {
    let mut rows = report.rows.iter().filter(|row| events.contains(&row.event));
    let Some(first) = rows.next() else { return "" };
    match rows.fold(first.value, |sum, row| sum.plus(row.value)) {
        Value::Counted { .. } => "",
        Value::NotCounted { .. } => "not counted: ",
        Value::NotSupported => "not supported: ",
    }
}

/// Their names, of which so many are listed.
fn names(report: &StatReport, events: &[usize], most: usize) -> String {
    let mut names: Vec<&str> = Vec::new();
    for &event in events {
        let name = report.events.get(event).map_or("?", |e| e.name.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(most);
    // "and 1 more" would be longer than the name it hides.
    if more == 0 || (most > 1 && more == 1) {
        return names.join(", ");
    }
    format!("{} and {more} more", names[..most].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::{notes_text, sample};

    fn note(about: About, text: &str, help: Option<&str>) -> Note {
        Note { about, text: text.to_owned(), help: help.into_iter().map(str::to_owned).collect() }
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal() {
        let mut report = sample::counted(&[("cycles", 0.0)]);
        report.rows[0].value = Value::NotSupported;
        let mut long = note(About::Event(0), "this machine has no hardware PMU", Some("a machine type with a PMU"));
        long.help.push("as root, once: `sysctl kernel.perf_event_paranoid=0`".to_owned());
        report.notes = vec![long];
        let narrow = Style { width: Some(40), ..sample::PLAIN };
        assert_eq!(
            notes_text(&report, narrow),
            " cycles: not supported: this machine has
   no hardware PMU
   what helps: a machine type with a PMU
   or: as root, once:
     `sysctl kernel.perf_event_paranoid=0`
"
        );
        let painted = notes_text(&report, Style { color: crate::style::Color::On, ..narrow });
        assert!(painted.starts_with(" \u{1b}[1mcycles\u{1b}[0m: not supported"), "{painted:?}");
    }

    #[test]
    fn equal_reasons_are_said_once() {
        let mut report = sample::counted(&[("cycles", 0.0), ("branches", 0.0), ("faults", 1.0)]);
        report.rows[0].value = Value::NotSupported;
        report.rows[1].value = Value::NotSupported;
        let why = "this machine has no hardware PMU";
        let help = Some("a virtual machine type with a PMU");
        report.notes = vec![
            note(About::Event(0), why, help),
            note(About::Measurement, "counted on 3 of 4 CPUs for 1.97 s", None),
            note(About::Event(1), why, help),
            note(About::Measurement, "counted on 3 of 4 CPUs for 1.97 s", None),
            note(About::Event(2), "shared its counter", None),
        ];
        assert_eq!(
            notes_text(&report, sample::PLAIN),
            " cycles, branches: not supported: this machine has no hardware PMU\n   \
             what helps: a virtual machine type with a PMU\n \
             counted on 3 of 4 CPUs for 1.97 s\n \
             faults: shared its counter\n"
        );
    }

    #[test]
    fn long_lists_are_counted_and_indices_never_trusted() {
        let names: Vec<String> = (0..12).map(|i| format!("e{i}")).collect();
        let events: Vec<(&str, f64)> = names.iter().map(|n| (n.as_str(), 0.0)).collect();
        let mut report = sample::counted(&events);
        for row in &mut report.rows {
            row.value = Value::NotCounted { enabled_ns: 1 };
        }
        report.notes = (0..12).map(|event| note(About::Event(event), "no free counter", None)).collect();
        report.notes.push(note(About::Event(99), "lost\n", None));
        assert_eq!(
            notes_text(&report, sample::PLAIN),
            " e0, e1, e2, e3, e4, e5, e6, e7 and 4 more: not counted: no free counter\n \
             ?: lost\\n\n"
        );
    }
}
