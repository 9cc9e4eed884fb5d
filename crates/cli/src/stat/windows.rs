//! Whether all events of a command were counted for the same time.
//!
//! What it is: all of them begin at its exec and end when it does, so the time that each was enabled is the same, whether it always had
//! a counter or took turns. Some kernels (seen with Linux 6.18) forget, of events that take turns in a task that exits, the time
//! since they were last on: then the share that they ran looks larger than it was, and the estimate is too low.
//!
//! **Invariant:** a pure function of the rows; a count is never changed, it is said what is wrong with it.

use super::report::{About, EventColumn, Note, Row, Value};

/// What is less than this is the time that switching takes.
const LEAST_NS: u64 = 1_000_000;
/// Nor is less than this part of the whole worth a word.
const LEAST_PART: u64 = 100;

/// What is not counted by an event of the kernel: its time is that of the measurement.
const BY_USAGE: [&str; 4] = ["duration_time", "user_time", "system_time", "max_rss"];

/// A note for each event of a command that the kernel says was enabled for less time than the others were: one and the same for all of
/// them, so that it is printed once.
pub(crate) fn cut_short(events: &[EventColumn], rows: &[Row]) -> Vec<Note> {
    let by_kernel =
        |row: &&Row| events.get(row.event).is_some_and(|event| !BY_USAGE.contains(&event.canonical.as_str()));
    let mut short: Vec<Short> = Vec::new();
    for row in rows.iter().filter(by_kernel) {
        let Some((enabled_ns, true)) = times(row.value) else { continue };
        let others = rows.iter().filter(by_kernel).filter(|other| other.scope == row.scope);
        let longest_ns = others.filter_map(|other| times(other.value)).map(|(enabled, _)| enabled).max().unwrap_or(0);
        let missing = longest_ns.saturating_sub(enabled_ns);
        if missing >= LEAST_NS.max(longest_ns / LEAST_PART) && short.iter().all(|known| known.event != row.event) {
            short.push(Short { event: row.event, enabled_ns, longest_ns });
        }
    }
    if short.is_empty() {
        return Vec::new();
    }
    let seconds = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e9;
    let least = seconds(short.iter().map(|it| it.enabled_ns).min());
    let most = seconds(short.iter().map(|it| it.enabled_ns).max());
    let longest = seconds(short.iter().map(|it| it.longest_ns).max());
    let text = match short.len() {
        1 => format!(
            "the kernel says that it was enabled for {least:.3} s, but the command was counted for {longest:.3} s: the estimate is too low by as much"
        ),
        _ => format!(
            "the kernel says that they were enabled for {least:.3} to {most:.3} s, but the command was counted for {longest:.3} s: the \
             estimates are too low by as much"
        ),
    };
    let help = vec!["count fewer events at once, so that none has to take turns".to_owned()];
    let note = |it: Short| Note { about: About::Event(it.event), text: text.clone(), help: help.clone() };
    short.into_iter().map(note).collect()
}

/// An event, how long the kernel says that it was enabled, and how long another one was.
struct Short {
    event: usize,
    enabled_ns: u64,
    longest_ns: u64,
}

/// How long an event was enabled, and whether it took turns.
fn times(value: Value) -> Option<(u64, bool)> {
    match value {
        Value::Counted { enabled_ns, running_ns, .. } => Some((enabled_ns, running_ns < enabled_ns)),
        Value::NotCounted { enabled_ns } if enabled_ns > 0 => Some((enabled_ns, true)),
        Value::NotCounted { .. } | Value::NotSupported => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(event: usize, enabled_ns: u64, running_ns: u64) -> Row {
        Row::all(event, Value::Counted { raw: 1.0, enabled_ns, running_ns })
    }

    fn said(names: &[&str], rows: &[Row]) -> Vec<usize> {
        let events: Vec<_> = names.iter().map(|name| EventColumn::new(name, name)).collect();
        let notes = cut_short(&events, rows);
        let event = |note: &Note| match note.about {
            About::Event(event) => event,
            About::Measurement | About::Loss => panic!("{}", note.text),
        };
        notes.iter().map(event).collect()
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn an_event_that_took_turns_for_less_time_than_the_others_is_named() {
        let rows = [counted(0, S, S), counted(1, S / 2, S / 3), counted(2, S, S / 2)];
        assert_eq!(said(&["task-clock", "cycles", "branches"], &rows), [1]);
        let events = [EventColumn::new("task-clock", ""), EventColumn::new("cycles", "")];
        let notes = cut_short(&events, &rows[..2]);
        assert!(notes[0].text.contains("enabled for 0.500 s, but the command was counted for 1.000 s"), "{notes:?}");
    }

    #[test]
    fn of_several_all_is_said_in_one_sentence() {
        let rows = [counted(0, S, S), counted(1, S / 2, S / 3), counted(2, S / 4, S / 5)];
        let events = ["task-clock", "cycles", "branches"].map(|name| EventColumn::new(name, name));
        let notes = cut_short(&events, &rows);
        assert_eq!(notes.iter().map(|note| note.about).collect::<Vec<_>>(), [About::Event(1), About::Event(2)]);
        assert!(
            notes[0].text.contains("enabled for 0.250 to 0.500 s, but the command was counted for 1.000 s"),
            "{notes:?}"
        );
        assert_eq!(notes[0].text, notes[1].text);
    }

    #[test]
    fn what_never_waited_or_differs_by_little_is_not() {
        let rows = [counted(0, S, S), counted(1, S / 2, S / 2), counted(2, S - S / 200, S / 2)];
        assert_eq!(said(&["task-clock", "cycles", "branches"], &rows), [0; 0]);
        let rows = [counted(0, 2_000_000, 2_000_000), counted(1, 1_500_000, 1_000_000)];
        assert_eq!(said(&["task-clock", "cycles"], &rows), [0; 0]);
        // What is no event of the kernel is measured for longer than the command runs.
        let rows = [counted(0, S, S), counted(1, S / 2, S / 3)];
        assert_eq!(said(&["duration_time", "cycles"], &rows), [0; 0]);
    }

    #[test]
    fn an_event_that_never_had_a_turn_is_named_too() {
        let rows = [counted(0, S, S), Row::all(1, Value::NotCounted { enabled_ns: S / 10 })];
        assert_eq!(said(&["task-clock", "cycles"], &rows), [1]);
    }
}
