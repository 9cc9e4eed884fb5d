//! From the text of actions and of sets to their trees.
//!
//! **Invariant:** whether a set or a command exists is not asked here.

use super::parser::unquoted;
use super::{Action, SetText, Switching};
use crate::event::check_list;
use crate::event::nearest::nearest;
use crate::text::{Cursor, TextError, TextPiece};
use pmux_engine::event_set::Position;
use std::str::FromStr;

const ACTIONS: [&str; 4] = ["snapshot", "set", "run", "mark"];

pub(super) fn parse(text: &str) -> Result<Vec<Action>, TextError> {
    let mut cursor = Cursor::new(text);
    let mut actions = Vec::new();
    loop {
        let piece = cursor.until(';')?;
        actions.push(action(cursor, piece)?);
        if cursor.rest().is_empty() {
            return Ok(actions);
        }
        cursor.at += 1;
        // One at the end separates nothing.
        if cursor.is_at_end() {
            return Ok(actions);
        }
    }
}

fn action(whole: Cursor<'_>, piece: TextPiece<'_>) -> Result<Action, TextError> {
    let mut cursor = whole.within(piece);
    let word = cursor.name();
    let action = match word.text {
        "snapshot" => Action::Snapshot,
        "set" => set(&mut cursor)?,
        "run" => {
            let command = piece.from(word.text.len()).trim();
            if command.text.is_empty() {
                return Err(whole.error(command.at, "expected a command behind `run`, such as `run gzip {}`"));
            }
            return Ok(Action::Run(command.text.to_owned()));
        }
        "mark" => {
            let rest = piece.from(word.text.len()).trim();
            let mark = if rest.text.is_empty() { String::new() } else { unquoted(&whole, rest, "a text")? };
            return Ok(Action::Mark(mark));
        }
        other => {
            let error = whole.error(word.at, "expected an action: snapshot, set, run or mark");
            return Err(error.suggesting(nearest(other, ACTIONS.map(str::to_owned))));
        }
    };
    if cursor.is_at_end() { Ok(action) } else { Err(cursor.expected("`;` or the end")) }
}

fn set(cursor: &mut Cursor<'_>) -> Result<Action, TextError> {
    let name = cursor.name().text.to_owned();
    if name.is_empty() {
        return Err(cursor.expected("the name of a set (--set NAME={EVENTS})"));
    }
    let to = match () {
        () if cursor.take_word("on") => {
            if cursor.take_word("while") {
                if !(cursor.take_word("it") && cursor.take_word("holds")) {
                    return Err(cursor.expected("`it holds` behind `while`"));
                }
                Switching::WhileItHolds
            } else if cursor.take_word("for") {
                Switching::OnFor(cursor.duration()?)
            } else {
                Switching::On
            }
        }
        () if cursor.take_word("off") => {
            if cursor.take_word("for") {
                Switching::OffFor(cursor.duration()?)
            } else {
                Switching::Off
            }
        }
        () => return Err(cursor.expected("`on` or `off`")),
    };
    Ok(Action::Set { name, to })
}

impl FromStr for SetText {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut cursor = Cursor::new(text);
        let name = cursor.name();
        if name.text.is_empty() {
            return Err(cursor.expected("NAME={EVENTS}, such as fine={sched:*}"));
        }
        if !cursor.take("=") {
            return Err(cursor.expected("`=` and the events, such as fine={sched:*}"));
        }
        cursor.skip_blanks();
        if !cursor.rest().starts_with('{') {
            return Err(cursor.expected("`{` in front of the events, such as fine={sched:*}"));
        }
        let open = cursor.at;
        let Some(len) = closing(cursor.rest()) else { return Err(cursor.error(open, "this `{` has no `}`")) };
        let events = TextPiece { text: cursor.rest(), at: open }.to(len).from(1).trim();
        if let Err((at, problem)) = check_list(events.text) {
            return Err(cursor.error(events.at + at, problem));
        }
        cursor.at = open + len + 1;
        let at_first = if cursor.take_word("on") {
            Position::On
        } else {
            let _ = cursor.take_word("off");
            Position::Off
        };
        if !cursor.is_at_end() {
            return Err(cursor.expected("`on`, `off` or the end"));
        }
        Ok(Self { name: name.text.to_owned(), events: events.text.to_owned(), at_first })
    }
}

/// Where the brace closes that the text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}
